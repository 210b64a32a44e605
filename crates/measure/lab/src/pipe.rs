//! One path of a link in one direction, as a pure model: which frames arrive, and when.
//!
//! ```text
//!            queue               transmitter          way
//!  frame ──► buffer_bytes ──► one after another ──► delay + jitter ──► arrives
//!    │           │             at bits_per_s            │
//!    ▼           ▼                                      ▼
//!  too long   overflowed                               lost
//! ```

use crate::clock::nanoseconds;
use crate::conditions::Conditions;
use crate::random::{Purpose, fraction};

/// One path.
#[derive(Debug)]
pub(crate) struct Pipe {
    conditions: Conditions,
    /// How long a byte takes to be sent; 0 without a rate.
    ps_per_byte: f64,
    /// When the transmitter has sent all that waits, in picoseconds: frames of a fast link do not last whole
    /// nanoseconds.
    busy_until_ps: u64,
    /// When the last frame arrives: no other overtakes it because of jitter.
    last_ns: u64,
    /// Frames that have come so far.
    frames: u64,
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameOutcome {
    Arrives {
        at_ns: u64,
    },
    /// Arrives when others that came later have arrived.
    Overtaken {
        at_ns: u64,
    },
    Lost,
    Overflowed,
    TooLong,
}

impl Pipe {
    pub(crate) fn new(conditions: Conditions) -> Pipe {
        let ps_per_byte = conditions.bits_per_s.map_or(0.0, |rate| 8e12 / rate);
        Pipe { conditions, ps_per_byte, busy_until_ps: 0, last_ns: 0, frames: 0 }
    }

    /// Changes what the path does to frames that come from now on. What waits is still sent first; frames are
    /// counted from 0 again, so that the same seed loses the same ones.
    pub(crate) fn set(&mut self, conditions: Conditions) {
        let (busy_until_ps, last_ns) = (self.busy_until_ps, self.last_ns);
        *self = Pipe { busy_until_ps, last_ns, ..Pipe::new(conditions) };
    }

    /// A frame comes: an IP packet so long, which takes so many bytes on the wire with all that surrounds it.
    pub(crate) fn carry(&mut self, now_ns: u64, ip_bytes: u32, wire_bytes: u32) -> FrameOutcome {
        let number = self.frames;
        self.frames += 1;
        if ip_bytes > self.conditions.mtu {
            return FrameOutcome::TooLong;
        }
        let now_ps = now_ns * PS_PER_NS;
        if self.waiting_bytes(now_ps) + f64::from(wire_bytes) > self.conditions.buffer_bytes as f64 {
            return FrameOutcome::Overflowed;
        }
        self.busy_until_ps = self.busy_until_ps.max(now_ps) + self.sending_ps(wire_bytes);
        if self.draws(Purpose::Loss, number, self.conditions.loss) {
            return FrameOutcome::Lost;
        }
        let at_ns = self.arrival_ns(number);
        if self.draws(Purpose::Reorder, number, self.conditions.reorder) {
            return FrameOutcome::Overtaken {
                at_ns: at_ns + self.sending_ps(OVERTAKEN_BY_BYTES) / PS_PER_NS,
            };
        }
        self.last_ns = at_ns;
        FrameOutcome::Arrives { at_ns }
    }

    /// What is in the queue or being sent.
    fn waiting_bytes(&self, now_ps: u64) -> f64 {
        if self.ps_per_byte == 0.0 {
            return 0.0;
        }
        self.busy_until_ps.saturating_sub(now_ps) as f64 / self.ps_per_byte
    }

    fn sending_ps(&self, bytes: u32) -> u64 {
        (f64::from(bytes) * self.ps_per_byte).round() as u64
    }

    /// Arrival of the frame whose last bit has just been sent.
    fn arrival_ns(&self, number: u64) -> u64 {
        let late = fraction(self.conditions.seed, Purpose::Jitter, number);
        let jitter_ns = (nanoseconds(self.conditions.jitter) as f64 * late) as u64;
        let sent_ns = self.busy_until_ps.div_ceil(PS_PER_NS);
        (sent_ns + nanoseconds(self.conditions.delay) + jitter_ns).max(self.last_ns)
    }

    fn draws(&self, purpose: Purpose, number: u64, share: f64) -> bool {
        share > 0.0 && fraction(self.conditions.seed, purpose, number) < share
    }
}

const PS_PER_NS: u64 = 1000;
/// Eight full frames: more than the three that a sender of TCP takes for a loss (RFC 5681 section 3.2).
const OVERTAKEN_BY_BYTES: u32 = 8 * 1538;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const GIGABIT: f64 = 1e9;

    fn pipe(change: impl FnOnce(&mut Conditions)) -> Pipe {
        let mut conditions = Conditions { bits_per_s: Some(GIGABIT), ..Conditions::default() };
        change(&mut conditions);
        Pipe::new(conditions)
    }

    fn full_frame(pipe: &mut Pipe, now_ns: u64) -> FrameOutcome {
        pipe.carry(now_ns, 1500, 1538)
    }

    #[test]
    fn a_frame_longer_than_the_mtu_vanishes_and_takes_no_time() {
        let mut pipe = pipe(|conditions| conditions.mtu = 1400);
        assert_eq!(full_frame(&mut pipe, 0), FrameOutcome::TooLong);
        assert_eq!(pipe.carry(0, 1400, 1438), FrameOutcome::Arrives { at_ns: 11_504 });
    }

    #[test]
    fn what_the_buffer_has_no_room_for_is_lost() {
        let mut pipe = pipe(|conditions| conditions.buffer_bytes = 2 * 1538);
        let fates = [(); 3].map(|()| full_frame(&mut pipe, 0));
        assert_eq!(
            fates,
            [
                FrameOutcome::Arrives { at_ns: 12_304 },
                FrameOutcome::Arrives { at_ns: 24_608 },
                FrameOutcome::Overflowed
            ]
        );
        // The first has been sent: there is room for one more.
        assert_eq!(full_frame(&mut pipe, 12_304), FrameOutcome::Arrives { at_ns: 36_912 });
    }

    #[test]
    fn the_same_seed_loses_the_same_frames() {
        let lost = |seed| {
            let mut pipe = pipe(|conditions| (conditions.loss, conditions.seed) = (0.01, seed));
            let fates = (0..100_000).map(|number| full_frame(&mut pipe, number * 12_304));
            let lost = fates.enumerate().filter(|(_, outcome)| *outcome == FrameOutcome::Lost);
            lost.map(|(number, _)| number).collect::<Vec<_>>()
        };
        let once = lost(7);
        assert!((900..1100).contains(&once.len()), "{}", once.len());
        assert_eq!(once, lost(7));
        assert_ne!(once, lost(8));
    }

    #[test]
    fn conditions_that_change_count_frames_anew_and_send_first_what_waits() {
        let conditions = Conditions { loss: 0.5, seed: 7, ..Conditions::default() };
        let mut pipe = Pipe::new(conditions.clone());
        let mut fates = || [(); 64].map(|()| full_frame(&mut pipe, 5) == FrameOutcome::Lost);
        let once = fates();
        assert_ne!(once, fates());
        pipe.set(conditions);
        assert_eq!(once, [(); 64].map(|()| full_frame(&mut pipe, 5) == FrameOutcome::Lost));

        let mut slow = Pipe::new(Conditions { bits_per_s: Some(1e6), ..Conditions::default() });
        full_frame(&mut slow, 0);
        slow.set(Conditions { bits_per_s: Some(GIGABIT), ..Conditions::default() });
        assert_eq!(full_frame(&mut slow, 0), FrameOutcome::Arrives { at_ns: 12_304_000 + 12_304 });
    }

    #[test]
    fn a_link_carries_its_rate_to_the_last_frame() {
        for rate in [10e6, 160e6, GIGABIT, 7e9] {
            let mut pipe = pipe(|conditions| conditions.bits_per_s = Some(rate));
            let arrives = (0..1000).map(|_| full_frame(&mut pipe, 0)).last();
            let wanted_ns = 1000.0 * 1538.0 * 8e9 / rate;
            let Some(FrameOutcome::Arrives { at_ns }) = arrives else { panic!("{arrives:?}") };
            assert!((at_ns as f64 - wanted_ns).abs() < 2.0, "{rate}: {at_ns} instead of {wanted_ns}");
        }
    }

    #[test]
    fn jitter_is_spread_evenly_and_keeps_the_order() {
        let mut pipe = pipe(|conditions| {
            conditions.bits_per_s = None;
            conditions.delay = Duration::from_millis(1);
            conditions.jitter = Duration::from_micros(100);
        });
        let mut sum = 0;
        let mut last = 0;
        for number in 0..1000 {
            let now_ns = number * 1_000_000;
            let FrameOutcome::Arrives { at_ns } = full_frame(&mut pipe, now_ns) else { panic!("lost") };
            let late = at_ns - now_ns - 1_000_000;
            assert!(late < 100_000 && at_ns > last, "{late}");
            (sum, last) = (sum + late, at_ns);
        }
        assert!((45_000..55_000).contains(&(sum / 1000)), "{}", sum / 1000);
        let mut batch = (0..100).map(|_| match full_frame(&mut pipe, last) {
            FrameOutcome::Arrives { at_ns } => at_ns,
            other => panic!("{other:?}"),
        });
        assert!(batch.by_ref().is_sorted());
    }

    #[test]
    fn an_overtaken_frame_comes_after_the_eight_that_follow() {
        let mut pipe = pipe(|conditions| (conditions.reorder, conditions.seed) = (0.05, 3));
        let fates: Vec<_> = (0..1000).map(|_| full_frame(&mut pipe, 0)).collect();
        let overtaken =
            fates.iter().position(|outcome| matches!(outcome, FrameOutcome::Overtaken { .. })).expect("5 %");
        let FrameOutcome::Overtaken { at_ns } = fates[overtaken] else { unreachable!("found so") };
        let earlier = fates[overtaken + 1..]
            .iter()
            .filter(|outcome| matches!(outcome, FrameOutcome::Arrives { at_ns: other } if *other <= at_ns));
        assert!((7..=8).contains(&earlier.count()));
    }
}
