//! Statistics of a session: counts, and latencies by phase. They are always collected, at low cost.
//!
//! The session's thread counts in a `Meter`. [`Statistics`] is a copy of the meter as plain values, and
//! [`Statistics::since`] computes the difference between two copies. Statistics can be printed as a table,
//! and serialized with units in the names.
//!
//! Each attempt counts as a command, so a command that is retried after BUSY, or in another session, counts
//! again.

mod record;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::time::{Duration, Instant};
use std::{fmt, io};

use hdrhistogram::Histogram;
use iscsi::initiator::{Session as Machine, Times};
use iscsi::pdu::{Cid, Residual};
use reactor::PathInfo;
use scsi::{Sense, status};

use crate::effect::Account;
use crate::error::CommandError;
use crate::tasks::{EndedTask, Status};

pub use iscsi::initiator::{Counters, Phase, RoundTrips};

pub use crate::effect::Class;

/// The activity of a session, since it was opened or in an interval.
#[derive(Clone, Debug)]
pub struct Statistics {
    /// The length of the interval.
    pub time: Duration,
    /// Commands that read blocks.
    pub read: ClassStatistics,
    /// Commands that write blocks.
    pub write: ClassStatistics,
    /// All other commands.
    pub other: ClassStatistics,
    /// The number of PDUs, and the number of times that the target's command window was full.
    pub counters: Counters,
    /// Reads of the socket.
    pub received: Calls,
    /// Writes to the socket.
    pub sent: Calls,
    /// The CPU time of data digests.
    pub digests: DigestTime,
    /// Errors, retries and outages.
    pub incidents: Incidents,
    /// Number of commands that the target would accept at the end of the interval.
    pub window_room: u32,
    /// Number of commands outstanding at the end of the interval.
    pub under_way: u32,
    /// The session's connections at the end of the interval.
    pub connections: Vec<ConnectionStatistics>,
}

/// Commands of one kind.
#[derive(Clone, Debug, Default)]
pub struct ClassStatistics {
    /// Completed commands, successful or not.
    pub commands: u64,
    /// Completed commands with a status other than GOOD or CONDITION MET, or without a status.
    pub errors: u64,
    /// Bytes of data that the successful commands moved.
    pub bytes: u64,
    /// Latency of the successful commands, from the request to the arrival of the status.
    pub latency: Latency,
    /// The part of the latency before the command was submitted, while the target's command window was full
    /// or the session was being reinstated.
    pub waiting: Latency,
    /// The other parts of the latency. Together with `waiting`, they add up to the latency.
    phases: [Latency; Phase::ALL.len()],
}

/// System calls in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Number of calls.
    pub calls: u64,
    /// Calls that moved no data, because there was nothing to read, or no space to write.
    pub idle: u64,
    /// Bytes moved.
    pub bytes: u64,
}

/// Errors, retries and outages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Incidents {
    /// BUSY responses.
    pub busy: u64,
    /// TASK SET FULL responses.
    pub task_set_full: u64,
    /// Responses with a unit attention.
    pub unit_attentions: u64,
    /// Commands sent again because their outcome was unknown.
    pub replays: u64,
    /// Commands that timed out.
    pub timeouts: u64,
    /// Commands aborted after a timeout, or after their caller stopped waiting.
    pub aborts: u64,
    /// Resets of logical units and of the target, for commands that could not be aborted.
    pub resets: u64,
    /// Lost connections.
    pub connections_lost: u64,
    /// Number of times that the session was lost and reinstated.
    pub reconnects: u64,
    /// Total time of these outages.
    pub away: Duration,
    /// The longest outage.
    pub away_longest: Duration,
}

/// A connection of the session.
#[derive(Clone, Debug)]
pub struct ConnectionStatistics {
    /// The connection's identifier in the session.
    pub cid: Cid,
    /// The local address.
    pub local: SocketAddr,
    /// The target's address.
    pub peer: SocketAddr,
    /// The kernel's current information on the network path.
    pub path: Option<PathInfo>,
}

/// Computes the counts since `earlier`. All other fields keep their values, which cover the whole time.
macro_rules! since {
    ($type:ident, $now:expr, $earlier:expr, $($field:ident),*) => {{
        #[allow(clippy::needless_update)] // some structs have no other fields
        $type { $($field: $now.$field.saturating_sub($earlier.$field),)* ..$now }
    }};
}

impl Statistics {
    /// Returns the activity since `earlier`, which must be of the same session. Minimum and maximum cover the
    /// whole time, because their values for an interval are unknown.
    pub fn since(&self, earlier: &Statistics) -> Statistics {
        Statistics {
            time: self.time.saturating_sub(earlier.time),
            read: self.read.since(&earlier.read),
            write: self.write.since(&earlier.write),
            other: self.other.since(&earlier.other),
            counters: self.counters.since(&earlier.counters),
            received: self.received.since(earlier.received),
            sent: self.sent.since(earlier.sent),
            digests: self.digests.since(&earlier.digests),
            incidents: self.incidents.since(&earlier.incidents),
            ..self.clone()
        }
    }

    /// Commands of one kind.
    pub fn class(&self, class: Class) -> &ClassStatistics {
        match class {
            Class::Read => &self.read,
            Class::Write => &self.write,
            Class::Other => &self.other,
        }
    }

    /// Returns the average number of PDUs received per read that returned data.
    pub fn pdus_per_read(&self) -> Option<f64> {
        self.received.share(self.counters.pdus_in)
    }

    /// Returns the average number of PDUs sent per write that moved data.
    pub fn pdus_per_write(&self) -> Option<f64> {
        self.sent.share(self.counters.pdus_out)
    }
}

impl ClassStatistics {
    /// Returns the time that successful commands spent in a phase.
    pub fn phase(&self, phase: Phase) -> &Latency {
        &self.phases[phase as usize]
    }

    fn since(&self, earlier: &ClassStatistics) -> ClassStatistics {
        ClassStatistics {
            commands: self.commands.saturating_sub(earlier.commands),
            errors: self.errors.saturating_sub(earlier.errors),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            latency: self.latency.since(&earlier.latency),
            waiting: self.waiting.since(&earlier.waiting),
            phases: Phase::ALL.map(|phase| self.phase(phase).since(earlier.phase(phase))),
        }
    }
}

impl Calls {
    pub(crate) fn note(&mut self, outcome: &io::Result<usize>) {
        self.calls += 1;
        match outcome {
            Ok(bytes) => self.bytes += *bytes as u64,
            Err(_) => self.idle += 1,
        }
        debug_assert!(self.idle <= self.calls);
    }

    fn share(self, pdus: u64) -> Option<f64> {
        let calls = self.calls.saturating_sub(self.idle);
        (calls > 0).then(|| pdus as f64 / calls as f64)
    }

    fn since(self, earlier: Calls) -> Calls {
        since!(Calls, self, earlier, calls, idle, bytes)
    }
}

impl Incidents {
    fn since(&self, earlier: &Incidents) -> Incidents {
        since!(
            Incidents,
            *self,
            earlier,
            busy,
            task_set_full,
            unit_attentions,
            replays,
            timeouts,
            aborts,
            resets,
            connections_lost,
            reconnects,
            away
        )
    }
}

// The CPU time of data digests, estimated from samples.

/// The CPU time of data digests. One segment in 64 is timed: reading the clock takes longer than the digest
/// of a short segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DigestTime {
    /// Data segments with a digest, in both directions.
    pub segments: u64,
    /// Bytes of these segments.
    pub bytes: u64,
    /// Bytes of the timed segments.
    pub sampled_bytes: u64,
    /// CPU time for the bytes of the timed segments.
    pub sampled: Duration,
}

/// The interval of timed segments. The first segment is timed as well.
const EVERY: u64 = 64;

impl DigestTime {
    /// Estimates the time of all digests, on the assumption that every byte took as long as in the samples.
    pub fn estimate(&self) -> Duration {
        match self.sampled_bytes {
            0 => Duration::ZERO,
            sampled => self.sampled.mul_f64(self.bytes as f64 / sampled as f64),
        }
    }

    /// Runs `work`, which computes a segment's digest if the connection has digests.
    #[inline]
    pub(crate) fn around<T>(
        &mut self,
        has_digest: bool,
        bytes: usize,
        work: impl FnOnce() -> T,
    ) -> T {
        if !has_digest {
            return work();
        }
        let is_sample = self.segments.is_multiple_of(EVERY);
        self.segments += 1;
        self.bytes += bytes as u64;
        if !is_sample {
            return work();
        }
        let begun = reactor::now();
        let done = work();
        self.sampled += reactor::now().saturating_duration_since(begun);
        self.sampled_bytes += bytes as u64;
        debug_assert!(self.sampled_bytes <= self.bytes);
        done
    }

    pub(crate) fn since(&self, earlier: &DigestTime) -> DigestTime {
        since!(
            DigestTime,
            *self,
            earlier,
            segments,
            bytes,
            sampled_bytes,
            sampled
        )
    }
}

// Latencies, as histograms with two significant digits.

/// The distribution of a duration, with two significant digits.
///
/// Most phases of a command take no time. Zeros are therefore only counted, and the histogram is allocated
/// for the first other value.
#[derive(Clone, Default)]
pub struct Latency {
    zeros: u64,
    /// The values above zero, in nanoseconds.
    above: Option<Box<Histogram<u64>>>,
    sum_ns: u128,
}

/// The highest value: 18 minutes, which is longer than any command may take. Longer durations count as this
/// value.
const HIGHEST_NS: u64 = 1 << 40;
/// Number of significant digits. Two digits take 28 KiB of counters.
const DIGITS: u8 = 2;

impl Latency {
    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.zeros + self.above.as_ref().map_or(0, |above| above.len())
    }

    /// Returns the average; zero if there are no values.
    pub fn mean(&self) -> Duration {
        nanoseconds(self.sum_ns.checked_div(self.count().into()).unwrap_or(0))
    }

    /// Returns the sum of all values.
    pub fn sum(&self) -> Duration {
        nanoseconds(self.sum_ns)
    }

    /// Returns the percentile: the value that `percent` of all values do not exceed. Returns zero if there
    /// are no values.
    pub fn percentile(&self, percent: f64) -> Duration {
        let Some(above) = &self.above else {
            return Duration::ZERO;
        };
        let rank = (percent / 100.0).clamp(0.0, 1.0) * self.count() as f64;
        let within = rank - self.zeros as f64;
        if within <= 0.0 {
            return Duration::ZERO;
        }
        Duration::from_nanos(above.value_at_quantile(within / above.len() as f64))
    }

    /// Returns the longest duration; zero if there are no values above zero.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.above.as_ref().map_or(0, |above| above.max()))
    }

    #[inline]
    pub(crate) fn record(&mut self, ns: u64) {
        match ns {
            0 => self.zeros += 1,
            _ => self.record_some(ns),
        }
    }

    fn record_some(&mut self, ns: u64) {
        self.sum_ns += u128::from(ns);
        self.above
            .get_or_insert_with(|| Box::new(histogram()))
            .saturating_record(ns);
    }

    /// Returns the values recorded after `earlier`, an earlier state of the same distribution.
    pub(crate) fn since(&self, earlier: &Latency) -> Latency {
        let above = self.above.clone().map(|mut above| match &earlier.above {
            // The subtraction fails if `earlier` has values that are missing here, which means that it
            // belongs to another session.
            Some(earlier) if above.subtract(&**earlier).is_err() => Box::new(histogram()),
            Some(_) | None => above,
        });
        Latency {
            zeros: self.zeros.saturating_sub(earlier.zeros),
            above: above.filter(|above| !above.is_empty()),
            sum_ns: self.sum_ns.saturating_sub(earlier.sum_ns),
        }
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, HIGHEST_NS, DIGITS)
        .expect("1 is below the maximum, and 2 digits are allowed")
}

fn nanoseconds(ns: u128) -> Duration {
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

impl fmt::Debug for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latency")
            .field("count", &self.count())
            .field("mean", &self.mean())
            .field("max", &self.max())
            .finish_non_exhaustive()
    }
}

// The counters of the session's thread.

/// The counters of a session.
pub(crate) struct Meter {
    begun: Instant,
    read: ClassStatistics,
    write: ClassStatistics,
    other: ClassStatistics,
    /// The counts of the session's earlier state machines.
    pub(crate) before: Counters,
    pub(crate) received: Calls,
    pub(crate) sent: Calls,
    pub(crate) digests: DigestTime,
    pub(crate) incidents: Incidents,
}

/// The outcome of a command, for the statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The command was executed. Contains the number of bytes received, and of outgoing bytes that the target
    /// did not accept.
    Good {
        in_bytes: usize,
        unwanted_bytes: usize,
    },
    Busy,
    TaskSetFull,
    UnitAttention,
    /// The command failed, or its outcome is unknown.
    Failed,
}

impl Outcome {
    pub(crate) fn from_result(outcome: &Result<Status, CommandError>) -> Outcome {
        let Ok(answer) = outcome else {
            return Outcome::Failed;
        };
        match answer.status {
            status::GOOD | status::CONDITION_MET => {
                let unwanted_bytes = match answer.residual {
                    Residual::Underflow(bytes) => bytes as usize,
                    Residual::None | Residual::Overflow(_) => 0,
                };
                Outcome::Good {
                    in_bytes: answer.in_bytes,
                    unwanted_bytes,
                }
            }
            status::BUSY => Outcome::Busy,
            status::TASK_SET_FULL => Outcome::TaskSetFull,
            _ if Sense::parse(&answer.sense).is_some_and(Sense::is_unit_attention) => {
                Outcome::UnitAttention
            }
            _ => Outcome::Failed,
        }
    }
}

impl ClassStatistics {
    /// Counts a successful command.
    fn note(&mut self, account: &Account, times: &Times) {
        self.latency
            .record(account.waited_ns.saturating_add(times.total_ns()));
        self.waiting.record(account.waited_ns);
        for (phase, spent_ns) in self.phases.iter_mut().zip(times.spent_ns()) {
            phase.record(*spent_ns);
        }
    }
}

impl Incidents {
    fn note(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Busy => self.busy += 1,
            Outcome::TaskSetFull => self.task_set_full += 1,
            Outcome::UnitAttention => self.unit_attentions += 1,
            Outcome::Good { .. } | Outcome::Failed => {}
        }
    }
}

impl Meter {
    pub(crate) fn new(now: Instant) -> Meter {
        Meter {
            begun: now,
            read: ClassStatistics::default(),
            write: ClassStatistics::default(),
            other: ClassStatistics::default(),
            before: Counters::default(),
            received: Calls::default(),
            sent: Calls::default(),
            digests: DigestTime::default(),
            incidents: Incidents::default(),
        }
    }

    /// Counts a completed command.
    pub(crate) fn ended(&mut self, left: &EndedTask, outcome: Outcome, times: &Times) {
        let class = self.class(left.account.class);
        class.commands += 1;
        let Outcome::Good {
            in_bytes,
            unwanted_bytes,
        } = outcome
        else {
            class.errors += 1;
            return self.incidents.note(outcome);
        };
        class.bytes += (in_bytes + left.out_bytes.saturating_sub(unwanted_bytes)) as u64;
        class.note(&left.account, times);
    }

    /// Records that the session was reinstated, with another state machine.
    pub(crate) fn reconnected(&mut self, before: &Counters, away: Duration) {
        self.before += *before;
        let incidents = &mut self.incidents;
        incidents.reconnects += 1;
        incidents.away = incidents.away.saturating_add(away);
        incidents.away_longest = incidents.away_longest.max(away);
    }

    pub(crate) fn statistics(
        &self,
        now: Instant,
        machine: &Machine,
        connections: Vec<ConnectionStatistics>,
    ) -> Statistics {
        let mut counters = self.before;
        counters += *machine.counters();
        Statistics {
            time: now.saturating_duration_since(self.begun),
            read: self.read.clone(),
            write: self.write.clone(),
            other: self.other.clone(),
            counters,
            received: self.received,
            sent: self.sent,
            digests: self.digests,
            incidents: self.incidents,
            window_room: machine.room(),
            under_way: machine.in_flight() as u32, // at most 65,535
            connections,
        }
    }

    fn class(&mut self, class: Class) -> &mut ClassStatistics {
        match class {
            Class::Read => &mut self.read,
            Class::Write => &mut self.write,
            Class::Other => &mut self.other,
        }
    }
}
