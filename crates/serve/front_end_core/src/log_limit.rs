//! Rate limit for log lines about connections that have not logged in: a number of lines per address and time
//! window, and one for all addresses together. Suppressed lines are counted, and the counts are logged.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::address::AddressBlock;

/// Lines of strangers.
#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    blocks: BTreeMap<AddressBlock, Lines>,
    /// Of all addresses; those left out are of the ones that there was no room for in `blocks`.
    all: Option<Lines>,
}

#[derive(Clone, Copy, Debug)]
struct Lines {
    since: Instant,
    written: u32,
    left_out: u64,
}

/// What lines were left out of an address, or of addresses that are not known any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub(crate) from: Option<AddressBlock>,
    pub(crate) lines: u64,
}

/// The log target of the audit, shown by default: who logged in as whom, who was refused and why, whose session ended and why,
/// who changed what.
pub const AUDIT: &str = "audit";
/// Counted anew after so long.
pub const WINDOW: Duration = Duration::from_secs(10);
/// Lines of one address in that time: an initiator that tries again every two seconds is seen to do so.
pub const LINES_MAX: u32 = 5;
/// Lines of all.
pub const ALL_LINES_MAX: u32 = 50;
/// Addresses whose lines are counted apart, 40 bytes each.
const BLOCKS_MAX: usize = 1024;

impl LogLimit {
    /// Whether a line about this address may be written. If it may not, it is counted.
    pub(crate) fn admits(&mut self, now: Instant, from: AddressBlock) -> bool {
        let all = self.all.get_or_insert(Lines::new(now));
        if all.is_over(now) {
            *all = Lines { left_out: all.left_out, ..Lines::new(now) };
        }
        let known = self.blocks.len() < BLOCKS_MAX || self.blocks.contains_key(&from);
        let Some(lines) = known.then(|| self.blocks.entry(from).or_insert(Lines::new(now))) else {
            all.left_out += 1;
            return false;
        };
        if lines.is_over(now) && lines.left_out == 0 {
            *lines = Lines::new(now);
        }
        let admits = lines.written < LINES_MAX && all.written < ALL_LINES_MAX;
        match admits {
            true => (lines.written, all.written) = (lines.written + 1, all.written + 1),
            false => lines.left_out += 1,
        }
        debug_assert!(lines.written <= LINES_MAX && all.written <= ALL_LINES_MAX);
        debug_assert!(self.blocks.len() <= BLOCKS_MAX);
        admits
    }

    /// What was left out in times that are over. Called every now and then.
    pub(crate) fn left_out(&mut self, now: Instant) -> Vec<LeftOut> {
        let over = self.blocks.extract_if(.., |_, lines| lines.is_over(now));
        let told = |(from, lines): (_, Lines)| LeftOut { from: Some(from), lines: lines.left_out };
        let mut left_out: Vec<LeftOut> = over.map(told).filter(|left_out| left_out.lines > 0).collect();
        // The lines that tell of it are bounded, too.
        left_out.sort_by_key(|left_out| std::cmp::Reverse(left_out.lines));
        let rest: u64 =
            left_out.drain(left_out.len().min(SUMMARIES_MAX)..).map(|left_out| left_out.lines).sum();
        let Some(all) = &mut self.all else { return left_out };
        all.left_out += rest;
        if all.is_over(now) && all.left_out > 0 {
            left_out.push(LeftOut { from: None, lines: std::mem::take(&mut all.left_out) });
        }
        left_out
    }
}

/// Addresses of which it is told one by one what was left out.
const SUMMARIES_MAX: usize = 10;

impl Lines {
    fn new(now: Instant) -> Lines {
        Lines { since: now, written: 0, left_out: 0 }
    }

    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= WINDOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(number: u32) -> AddressBlock {
        AddressBlock::containing(std::net::Ipv4Addr::from_bits(number).into())
    }

    #[test]
    fn an_address_has_its_lines_and_the_rest_are_counted() {
        let now = Instant::now();
        let mut limit = LogLimit::default();
        let written = (0..1000).filter(|_| limit.admits(now, block(1))).count();
        assert_eq!(written, 5);
        assert!(limit.admits(now, block(2)), "another address");
        assert_eq!(limit.left_out(now + WINDOW / 2), []);
        let later = now + WINDOW;
        assert_eq!(limit.left_out(later), [LeftOut { from: Some(block(1)), lines: 995 }]);
        assert!(limit.admits(later, block(1)), "in the next while");
        assert_eq!(limit.left_out(later + WINDOW), []);
    }

    #[test]
    fn a_crowd_of_addresses_has_a_bounded_number_of_lines_and_of_bytes() {
        let now = Instant::now();
        let mut limit = LogLimit::default();
        let written = (0..100_000).filter(|&number| limit.admits(now, block(number))).count();
        assert_eq!((written, limit.blocks.len()), (50, BLOCKS_MAX));
        let left_out = limit.left_out(now + WINDOW);
        assert!(left_out.len() <= SUMMARIES_MAX + 1, "{}", left_out.len());
        let told: u64 = left_out.iter().map(|left_out| left_out.lines).sum();
        assert_eq!(told, 100_000 - 50, "nothing is left out without a word");
        assert!(limit.blocks.is_empty() && limit.admits(now + WINDOW, block(7)));
    }
}
