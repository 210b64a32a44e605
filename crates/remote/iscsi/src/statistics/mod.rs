//! Statistics of a session: counts, and latencies by phase. Always on, at low cost.
//!
//! The session's thread counts in a `Meter`; [`Statistics`] are a copy of it as plain values. Two of them
//! make an interval ([`Statistics::since`]). They can be printed, as a table, and serialized, with units in
//! the names.
//!
//! Each attempt counts as a command: one that is retried after BUSY, or in another session, counts again.

mod class;
mod digest_time;
mod latency;
mod meter;
mod record;
mod table;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

pub use class::Class;
pub use digest_time::DigestTime;
pub use iscsi::initiator::{Counters, Phase, RoundTrips};
use iscsi::pdu::Cid;
pub use latency::Latency;
pub(crate) use meter::{Account, Meter, Outcome};
use reactor::PathInfo;

/// What a session has done, since it was opened or in an interval.
#[derive(Clone, Debug)]
pub struct Statistics {
    /// How long it took.
    pub time: Duration,
    /// Commands that read blocks.
    pub read: ClassStatistics,
    /// Commands that write blocks.
    pub write: ClassStatistics,
    /// All others.
    pub other: ClassStatistics,
    /// What moved, PDU by PDU, and how often the target's command window held us up.
    pub counters: Counters,
    /// How the socket was read.
    pub received: Calls,
    /// How it was written.
    pub sent: Calls,
    /// What data digests cost.
    pub digests: DigestTime,
    /// What did not go smoothly.
    pub incidents: Incidents,
    /// Commands that the target would take at the end of this time.
    pub window_room: u32,
    /// Commands under way then.
    pub under_way: u32,
    /// The connections that the session had then.
    pub connections: Vec<ConnectionStatistics>,
}

/// Commands of one kind.
#[derive(Clone, Debug, Default)]
pub struct ClassStatistics {
    /// Commands that ended, one way or another.
    pub commands: u64,
    /// Those of them with another status than GOOD or CONDITION MET, or without any.
    pub errors: u64,
    /// Bytes of data of those that ended well.
    pub bytes: u64,
    /// How long those took that ended well: from when they were asked for to when their status was there.
    pub latency: Latency,
    /// The part of it before they could be submitted: the target's command window had no room, or the session
    /// was being brought back.
    pub waiting: Latency,
    /// The other parts, which make the whole with it.
    phases: [Latency; Phase::ALL.len()],
}

/// System calls in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// How many.
    pub calls: u64,
    /// Those of them that moved nothing: there was nothing to read, or no room to write.
    pub idle: u64,
    /// Bytes they moved.
    pub bytes: u64,
}

/// What did not go smoothly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Incidents {
    /// Answers BUSY.
    pub busy: u64,
    /// Answers TASK SET FULL.
    pub task_set_full: u64,
    /// Answers that brought a unit attention.
    pub unit_attentions: u64,
    /// Commands sent again because what had become of them was not known.
    pub replays: u64,
    /// Commands that did not end in their time.
    pub timeouts: u64,
    /// Commands that the target was asked to abort, because of that or because nobody waited for them any
    /// more.
    pub aborts: u64,
    /// Resets of logical units and of the target because commands could not be aborted.
    pub resets: u64,
    /// Connections that were lost.
    pub connections_lost: u64,
    /// Times the whole session was lost and begun again.
    pub reconnects: u64,
    /// How long it was away, together.
    pub away: Duration,
    /// The longest time that it was.
    pub away_longest: Duration,
}

/// A connection of the session.
#[derive(Clone, Debug)]
pub struct ConnectionStatistics {
    /// Its identifier in the session.
    pub cid: Cid,
    /// Our end.
    pub local: SocketAddr,
    /// The target's.
    pub peer: SocketAddr,
    /// What the kernel knows of the way between, now.
    pub path: Option<PathInfo>,
}

impl Statistics {
    /// What happened since `earlier`, which is to be of the same session. Extremes are those of the whole
    /// time, for those of a part are not known.
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

    /// PDUs that came by one read of the socket that brought any, on average.
    pub fn pdus_per_read(&self) -> Option<f64> {
        self.received.share(self.counters.pdus_in)
    }

    /// PDUs that went by one write to the socket that took any, on average.
    pub fn pdus_per_write(&self) -> Option<f64> {
        self.sent.share(self.counters.pdus_out)
    }
}

impl ClassStatistics {
    /// What commands that ended well spent in a phase.
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
    }

    fn share(self, pdus: u64) -> Option<f64> {
        let calls = self.calls.saturating_sub(self.idle);
        (calls > 0).then(|| pdus as f64 / calls as f64)
    }

    fn since(self, earlier: Calls) -> Calls {
        Calls {
            calls: self.calls.saturating_sub(earlier.calls),
            idle: self.idle.saturating_sub(earlier.idle),
            bytes: self.bytes.saturating_sub(earlier.bytes),
        }
    }
}

impl Incidents {
    fn since(&self, earlier: &Incidents) -> Incidents {
        Incidents {
            busy: self.busy.saturating_sub(earlier.busy),
            task_set_full: self.task_set_full.saturating_sub(earlier.task_set_full),
            unit_attentions: self.unit_attentions.saturating_sub(earlier.unit_attentions),
            replays: self.replays.saturating_sub(earlier.replays),
            timeouts: self.timeouts.saturating_sub(earlier.timeouts),
            aborts: self.aborts.saturating_sub(earlier.aborts),
            resets: self.resets.saturating_sub(earlier.resets),
            connections_lost: self.connections_lost.saturating_sub(earlier.connections_lost),
            reconnects: self.reconnects.saturating_sub(earlier.reconnects),
            away: self.away.saturating_sub(earlier.away),
            away_longest: self.away_longest,
        }
    }
}
