//! Where a command's time goes.
//!
//! A command is in exactly one [`Phase`] at a time, and what it spends there is added up, so that the parts always
//! make the whole. Times are those that the driver hands in: a driver that looks at the clock once in a round sees
//! what happened within a round as one moment.

use std::time::{Duration, Instant};

use super::transfer::Outbound;

/// A part of a command's life.
///
/// ```text
///           submit    poll_transmit                                 Data-In          last Data-In   status
///   reading   │ Queued │                 Answer                        │     Data        │  Status   │
///   writing   │ Queued │ Sending │ R2t │ Sending │ R2t │ Sending │        Answer                      │
///                      command         R2T             R2T     last Data-Out                      status
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Submitted, and not handed out to be sent.
    Queued,
    /// There are data to hand out that may be sent: unsolicited ones, or those that an R2T asked for.
    Sending,
    /// All that may be sent is handed out, and the target has yet to ask for the rest.
    R2t,
    /// Everything is handed out, and the target has shown nothing for it: the way there, its work, and the way back.
    Answer,
    /// Data-In have begun to arrive and are not all there.
    Data,
    /// All data have arrived, and the status comes by itself. Nothing where it comes with the last of them.
    Status,
}

impl Phase {
    /// All of them, in the order of a command's life.
    pub const ALL: [Phase; 6] =
        [Phase::Queued, Phase::Sending, Phase::R2t, Phase::Answer, Phase::Data, Phase::Status];
}

/// What a command spent in each of its phases: as often as it was in one, together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// By phase, in nanoseconds.
    spent: [u64; Phase::ALL.len()],
}

impl Times {
    /// What was spent in each phase, in nanoseconds and in the order of [`Phase::ALL`].
    pub fn spent_ns(&self) -> &[u64; Phase::ALL.len()] {
        &self.spent
    }

    /// From when the command was submitted to when its status was there, in nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.spent.iter().fold(0, |sum, spent| sum.saturating_add(*spent))
    }
}

/// A command's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct PhaseClock {
    phase: Phase,
    since: Instant,
    times: Times,
}

impl PhaseClock {
    /// The command is submitted.
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

    /// Something was sent, or asked for.
    #[inline]
    pub(super) fn sent(&mut self, now: Instant, outbound: &Outbound) {
        self.enter(now, outbound.phase());
    }

    /// Data have begun to arrive. A bidirectional command may have more to send, which counts first.
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

    /// What was spent until now.
    #[inline]
    pub(super) fn stop(&mut self, now: Instant) -> Times {
        self.pass(now);
        self.times
    }

    #[inline]
    fn pass(&mut self, now: Instant) {
        // Most of what happens to a command happens in a round with something else, and to subtract is 40 instructions.
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
