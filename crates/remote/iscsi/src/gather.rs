//! Interrupt coalescing for a connection's task: how much to receive before it is woken.
//!
//! A target that responds to one command after the other, each a little later than we could process it,
//! causes a wake-up for each: a receiving and a sending system call for 4 KiB, and as many on its side. At
//! high queue depth nothing is gained by that, since the target has work enough meanwhile. So the kernel is
//! asked to wake us when a quarter of the responses have arrived. The outstanding commands are those that
//! arrive in one service time (Little's law), so this is a quarter of that time at most; fewer system calls
//! at both ends gain more. Measured against tgt, 32 outstanding reads of 4 KiB: 6.6 instead of 12.5 µs of our
//! CPU for each, and their median latency falls from 740 to 630 µs.
//!
//! It takes no longer than [`LONGEST`] in any case. If that passes, whatever has arrived is processed, and
//! gathering stops for a while: the target is so slow that a wake-up per response costs little.

use std::time::Duration;

/// Learns from each iteration of a connection. A pure value: the connection measures, and applies the result.
#[derive(Debug)]
pub(crate) struct Gather {
    wanted: bool,
    /// The present threshold in bytes.
    asked: usize,
    /// Iterations until gathering begins again.
    resting: u32,
}

/// One iteration of the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// Commands that ended in it.
    pub(crate) answers: usize,
    /// Bytes received.
    pub(crate) bytes: usize,
    /// Commands outstanding at its start.
    pub(crate) under_way: usize,
}

/// Maximum delay of a response: twice what tgt takes for a quarter of 32 reads of 4 KiB. Such a delay once in
/// [`REST`] iterations is not measurable.
pub(crate) const LONGEST: Duration = Duration::from_micros(400);
/// Iterations without gathering after a longer delay.
const REST: u32 = 256;
/// The share of outstanding commands whose responses are gathered.
const SHARE: usize = 4;
/// With fewer outstanding commands each response counts: its requester may be the only one with more to send.
const DEEP: usize = 16;
/// More than this is received by one system call, and waiting for more would reduce the TCP window.
const BYTES_MAX: usize = 128 << 10;

impl Gather {
    pub(crate) fn new(wanted: bool) -> Gather {
        Gather { wanted, asked: 1, resting: 0 }
    }

    /// The number of bytes to wait for, if that changes.
    pub(crate) fn after(&mut self, round: Round) -> Option<usize> {
        let Round { answers, bytes, under_way } = round;
        self.resting = self.resting.saturating_sub(u32::from(answers > 0));
        if !self.wanted || under_way < DEEP || self.resting > 0 {
            return self.ask(1);
        }
        // An iteration without a complete response has no information.
        let bytes_each = bytes.checked_div(answers)?;
        self.ask(bytes_each.saturating_mul(under_way / SHARE).clamp(1, BYTES_MAX))
    }

    /// The delay was exceeded.
    pub(crate) fn in_vain(&mut self) -> Option<usize> {
        self.resting = REST;
        self.ask(1)
    }

    /// Whether responses are gathered.
    pub(crate) fn is_on(&self) -> bool {
        self.asked > 1
    }

    /// A small difference is not worth a system call.
    fn ask(&mut self, wanted: usize) -> Option<usize> {
        let is_near = wanted > 1 && self.asked.abs_diff(wanted) <= wanted / 4;
        if wanted == self.asked || is_near {
            return None;
        }
        self.asked = wanted;
        Some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An iteration of reads of 4 KiB.
    fn round(answers: usize, under_way: usize) -> Round {
        Round { answers, bytes: answers * 4144, under_way }
    }

    #[test]
    fn a_quarter_of_many_answers_is_gathered() {
        let mut gather = Gather::new(true);
        assert_eq!(gather.after(round(1, 32)), Some(8 * 4144));
        assert!(gather.is_on());
        assert_eq!(gather.after(round(8, 30)), None, "that it is a little less now is not worth telling");
        assert_eq!(gather.after(round(8, 16)), Some(4 * 4144));
    }

    #[test]
    fn few_commands_are_answered_at_once() {
        let mut gather = Gather::new(true);
        assert_eq!(gather.after(round(1, 15)), None);
        gather.after(round(1, 32));
        assert_eq!(gather.after(round(20, 12)), Some(1));
        assert!(!gather.is_on());
    }

    #[test]
    fn who_does_not_want_it_is_woken_for_each_answer() {
        assert_eq!(Gather::new(false).after(round(1, 64)), None);
    }

    #[test]
    fn a_slow_target_is_left_alone_for_a_while() {
        let mut gather = Gather::new(true);
        gather.after(round(1, 32));
        assert_eq!(gather.in_vain(), Some(1));
        for _ in 1..REST {
            assert_eq!(gather.after(round(1, 32)), None);
        }
        assert_eq!(gather.after(round(1, 32)), Some(8 * 4144));
    }

    #[test]
    fn no_more_is_gathered_than_is_taken_at_once() {
        let mut gather = Gather::new(true);
        let long = Round { answers: 1, bytes: 256 << 10, under_way: 32 };
        assert_eq!(gather.after(long), Some(BYTES_MAX));
        assert_eq!(gather.after(Round { answers: 0, bytes: 65_536, under_way: 32 }), None);
        assert_eq!(
            Gather::new(true).after(Round { answers: 3, bytes: usize::MAX, under_way: 128 }),
            Some(BYTES_MAX)
        );
    }
}
