//! Time spent by a command, per phase.
//!
//! A command is in exactly one [`Phase`] at a time, and the time in each is summed, so that the parts add up
//! to the whole. Times are those passed by the driver: if it reads the clock once per iteration, events of
//! one iteration have the same time.

use std::time::{Duration, Instant};

use super::transfer::Outbound;

/// A phase of a command.
///
/// ```text
///           submit    poll_transmit                                 Data-In          last Data-In   status
///   reading   │ Queued │                 Answer                        │     Data        │  Status   │
///   writing   │ Queued │ Sending │ R2t │ Sending │ R2t │ Sending │        Answer                      │
///                      command         R2T             R2T     last Data-Out                      status
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Submitted, not transmitted.
    Queued,
    /// Data may be sent and are not yet transmitted: unsolicited ones, or those requested by an R2T.
    Sending,
    /// All data that may be sent are transmitted, and the target has not requested the rest.
    R2t,
    /// Everything is transmitted, without a response so far: network and target.
    Answer,
    /// Data-In have begun to arrive and are incomplete.
    Data,
    /// All data have arrived, and the status follows separately. Zero if it comes with the last data.
    Status,
}

impl Phase {
    /// All phases, in order.
    pub const ALL: [Phase; 6] =
        [Phase::Queued, Phase::Sending, Phase::R2t, Phase::Answer, Phase::Data, Phase::Status];
}

/// Total time of a command in each phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// By phase, in nanoseconds.
    spent: [u64; Phase::ALL.len()],
}

impl Times {
    /// Time per phase in nanoseconds, in the order of [`Phase::ALL`].
    pub fn spent_ns(&self) -> &[u64; Phase::ALL.len()] {
        &self.spent
    }

    /// From submission to status, in nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.spent.iter().fold(0, |sum, spent| sum.saturating_add(*spent))
    }
}

/// The phase clock of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct PhaseClock {
    phase: Phase,
    since: Instant,
    times: Times,
}

impl PhaseClock {
    /// Starts at the submission.
    pub(super) fn new(now: Instant) -> PhaseClock {
        PhaseClock { phase: Phase::Queued, since: now, times: Times::default() }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    #[inline]
    pub(super) fn enter(&mut self, now: Instant, phase: Phase) {
        if phase != self.phase {
            self.pass(now);
            self.phase = phase;
        }
    }

    /// Data were transmitted or requested.
    #[inline]
    pub(super) fn sent(&mut self, now: Instant, outbound: &Outbound) {
        self.enter(now, outbound.phase());
    }

    /// Data have begun to arrive. A bidirectional command with data to send stays in that phase.
    #[inline]
    pub(super) fn data(&mut self, now: Instant, outbound: &Outbound) {
        if outbound.phase() == Phase::Answer {
            self.enter(now, Phase::Data);
        }
    }

    /// The last data have arrived.
    #[inline]
    pub(super) fn data_complete(&mut self, now: Instant) {
        if self.phase == Phase::Data {
            self.enter(now, Phase::Status);
        }
    }

    /// The times until now.
    #[inline]
    pub(super) fn stop(&mut self, now: Instant) -> Times {
        self.pass(now);
        self.times
    }

    #[inline]
    fn pass(&mut self, now: Instant) {
        // Most events of a command share their iteration with another, and a subtraction takes 40
        // instructions.
        if now != self.since {
            self.spend(now.saturating_duration_since(self.since));
            self.since = now;
        }
    }

    fn spend(&mut self, time: Duration) {
        let sum = &mut self.times.spent[self.phase as usize];
        *sum = sum.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }
}
