//! Counters of a session.

use std::time::{Duration, Instant};

use derive_more::AddAssign;

/// Counters since the session began. Those of several sessions add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, AddAssign)]
pub struct Counters {
    /// PDUs received.
    pub pdus_in: u64,
    /// PDUs transmitted.
    pub pdus_out: u64,
    /// Commands transmitted.
    pub commands: u64,
    /// Bytes received as Data-In.
    pub data_in_bytes: u64,
    /// Bytes sent as immediate data.
    pub immediate_bytes: u64,
    /// Bytes sent as unsolicited Data-Out.
    pub unsolicited_bytes: u64,
    /// Bytes sent as solicited Data-Out.
    pub solicited_bytes: u64,
    /// R2Ts received.
    pub r2ts: u64,
    /// Our PDUs that the target rejected.
    pub rejects: u64,
    /// Times when somebody wanted to submit a command and there was no room: the target's command window was used up,
    /// or as much under way as may be.
    pub window_stalls: u64,
    /// Total duration of these stalls: from a refused command until there is room again.
    pub window_stalled: Duration,
    /// Answered NOP-Outs, those of the caller and those of the keepalive.
    pub nops: RoundTrips,
}

/// Round-trip times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTrips {
    /// Number of round trips.
    pub count: u64,
    /// Their sum.
    pub sum: Duration,
    /// The shortest; `None` before the first.
    pub min: Option<Duration>,
    /// The longest.
    pub max: Option<Duration>,
}

impl Counters {
    /// The difference to `earlier` counters of the same session. Minimum and maximum of the interval are
    /// unknown: those of the whole time stay.
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            pdus_in: self.pdus_in.saturating_sub(earlier.pdus_in),
            pdus_out: self.pdus_out.saturating_sub(earlier.pdus_out),
            commands: self.commands.saturating_sub(earlier.commands),
            data_in_bytes: self.data_in_bytes.saturating_sub(earlier.data_in_bytes),
            immediate_bytes: self.immediate_bytes.saturating_sub(earlier.immediate_bytes),
            unsolicited_bytes: self.unsolicited_bytes.saturating_sub(earlier.unsolicited_bytes),
            solicited_bytes: self.solicited_bytes.saturating_sub(earlier.solicited_bytes),
            r2ts: self.r2ts.saturating_sub(earlier.r2ts),
            rejects: self.rejects.saturating_sub(earlier.rejects),
            window_stalls: self.window_stalls.saturating_sub(earlier.window_stalls),
            window_stalled: self.window_stalled.saturating_sub(earlier.window_stalled),
            nops: RoundTrips {
                count: self.nops.count.saturating_sub(earlier.nops.count),
                sum: self.nops.sum.saturating_sub(earlier.nops.sum),
                ..self.nops
            },
        }
    }
}

impl RoundTrips {
    /// The mean; `None` without round trips.
    pub fn mean(&self) -> Option<Duration> {
        let count = u32::try_from(self.count).unwrap_or(u32::MAX);
        self.sum.checked_div(count)
    }

    pub(super) fn note(&mut self, time: Duration) {
        *self += RoundTrips { count: 1, sum: time, min: Some(time), max: Some(time) };
    }
}

impl std::ops::AddAssign for RoundTrips {
    fn add_assign(&mut self, other: RoundTrips) {
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.min = self.min.into_iter().chain(other.min).min();
        self.max = self.max.max(other.max);
    }
}

/// A period in which a command waits for room.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stall(Option<Instant>);

impl Stall {
    pub(super) fn begin(&mut self, now: Instant, counters: &mut Counters) {
        if self.0.is_none() {
            self.0 = Some(now);
            counters.window_stalls += 1;
        }
    }

    pub(super) fn end(&mut self, now: Instant, counters: &mut Counters) {
        if let Some(begun) = self.0.take() {
            let lasted = now.saturating_duration_since(begun);
            counters.window_stalled = counters.window_stalled.saturating_add(lasted);
        }
    }

    pub(super) fn is_on(self) -> bool {
        self.0.is_some()
    }
}
