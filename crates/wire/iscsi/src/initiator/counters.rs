//! What a session has moved, counted since it began.

use std::time::{Duration, Instant};

/// What a session has moved, counted since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// PDUs that came.
    pub pdus_in: u64,
    /// PDUs that were handed out to be sent.
    pub pdus_out: u64,
    /// Commands that were handed out to be sent.
    pub commands: u64,
    /// Bytes that came as Data-In.
    pub data_in_bytes: u64,
    /// Bytes sent with their commands.
    pub immediate_bytes: u64,
    /// Bytes sent in Data-Out that no R2T asked for.
    pub unsolicited_bytes: u64,
    /// Bytes sent in Data-Out because an R2T asked for them.
    pub solicited_bytes: u64,
    /// R2Ts that came.
    pub r2ts: u64,
    /// PDUs of ours that the target refused.
    pub rejects: u64,
    /// Times when somebody wanted to submit a command and there was no room: the target's command window was used up,
    /// or as much under way as may be.
    pub window_stalls: u64,
    /// How long that lasted, together: from when a command was not taken to when there was room again.
    pub window_stalled: Duration,
    /// NOP-Outs that were answered, of the caller's and of the machine's own.
    pub nops: RoundTrips,
}

/// How long answers took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTrips {
    /// Questions that were answered.
    pub count: u64,
    /// All times together.
    pub sum: Duration,
    /// The shortest; `None` before the first.
    pub min: Option<Duration>,
    /// The longest.
    pub max: Option<Duration>,
}

impl Counters {
    /// Takes what another session has moved along.
    pub fn add(&mut self, other: &Counters) {
        self.pdus_in += other.pdus_in;
        self.pdus_out += other.pdus_out;
        self.commands += other.commands;
        self.data_in_bytes += other.data_in_bytes;
        self.immediate_bytes += other.immediate_bytes;
        self.unsolicited_bytes += other.unsolicited_bytes;
        self.solicited_bytes += other.solicited_bytes;
        self.r2ts += other.r2ts;
        self.rejects += other.rejects;
        self.window_stalls += other.window_stalls;
        self.window_stalled += other.window_stalled;
        self.nops.add(&other.nops);
    }

    /// What came on top of `earlier`, which is to be of the same session. The extremes of a part of the time cannot be
    /// known: they stay those of all of it.
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
    /// The mean; `None` without any.
    pub fn mean(&self) -> Option<Duration> {
        let count = u32::try_from(self.count).unwrap_or(u32::MAX);
        self.sum.checked_div(count)
    }

    pub(super) fn note(&mut self, time: Duration) {
        self.add(&RoundTrips { count: 1, sum: time, min: Some(time), max: Some(time) });
    }

    fn add(&mut self, other: &RoundTrips) {
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.min = self.min.into_iter().chain(other.min).min();
        self.max = self.max.max(other.max);
    }
}

/// A time in which there is no room for a command that somebody has.
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
