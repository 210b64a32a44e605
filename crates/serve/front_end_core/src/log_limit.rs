//! Rate limit for log lines about connections that have not logged in. In each time window, the number of
//! lines is limited per address and in total. Suppressed lines are counted, and the counts are logged.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::address::AddressBlock;

/// Counts log lines about peers that have not logged in.
#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    blocks: BTreeMap<AddressBlock, Lines>,
    /// The lines about all addresses combined. Its `left_out` counts lines about addresses for which `blocks`
    /// has no free entry.
    all: Option<Lines>,
}

#[derive(Clone, Copy, Debug)]
struct Lines {
    since: Instant,
    written: u32,
    left_out: u64,
}

/// Suppressed lines about one address, or about addresses that are not tracked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub(crate) from: Option<AddressBlock>,
    pub(crate) lines: u64,
}

/// The log target of the audit, shown by default: logins with their user, rejected logins with the reason,
/// ended sessions with the reason, and changes with their author.
pub const AUDIT: &str = "audit";
/// The length of a window, after which the counts restart.
pub const WINDOW: Duration = Duration::from_secs(10);
/// Maximum number of lines about one address in a window: enough for every attempt of an initiator that
/// retries every two seconds.
pub const LINES_MAX: u32 = 5;
/// Maximum number of lines in a window.
pub const ALL_LINES_MAX: u32 = 50;
/// Maximum number of addresses that are counted separately, 40 bytes each.
const BLOCKS_MAX: usize = 1024;

impl LogLimit {
    /// Whether a line about this address may be written. If not, it is counted as suppressed.
    pub(crate) fn admits(&mut self, now: Instant, from: AddressBlock) -> bool {
        let all = self.all.get_or_insert(Lines::new(now));
        if all.is_over(now) {
            *all = Lines {
                left_out: all.left_out,
                ..Lines::new(now)
            };
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

    /// Removes and returns the counts of suppressed lines in windows that have ended. Called periodically.
    pub(crate) fn left_out(&mut self, now: Instant) -> Vec<LeftOut> {
        let over = self.blocks.extract_if(.., |_, lines| lines.is_over(now));
        let told = |(from, lines): (_, Lines)| LeftOut {
            from: Some(from),
            lines: lines.left_out,
        };
        let mut left_out: Vec<LeftOut> = over
            .map(told)
            .filter(|left_out| left_out.lines > 0)
            .collect();
        // The number of lines that report suppressed lines is also limited.
        left_out.sort_by_key(|left_out| std::cmp::Reverse(left_out.lines));
        let rest: u64 = left_out
            .drain(left_out.len().min(SUMMARIES_MAX)..)
            .map(|left_out| left_out.lines)
            .sum();
        let Some(all) = &mut self.all else {
            return left_out;
        };
        all.left_out += rest;
        if all.is_over(now) && all.left_out > 0 {
            left_out.push(LeftOut {
                from: None,
                lines: std::mem::take(&mut all.left_out),
            });
        }
        left_out
    }
}

/// Maximum number of addresses whose suppressed lines are reported individually.
const SUMMARIES_MAX: usize = 10;

impl Lines {
    fn new(now: Instant) -> Lines {
        Lines {
            since: now,
            written: 0,
            left_out: 0,
        }
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
        assert_eq!(
            limit.left_out(later),
            [LeftOut {
                from: Some(block(1)),
                lines: 995
            }]
        );
        assert!(limit.admits(later, block(1)), "in the next while");
        assert_eq!(limit.left_out(later + WINDOW), []);
    }

    #[test]
    fn a_crowd_of_addresses_has_a_bounded_number_of_lines_and_of_bytes() {
        let now = Instant::now();
        let mut limit = LogLimit::default();
        let written = (0..100_000)
            .filter(|&number| limit.admits(now, block(number)))
            .count();
        assert_eq!((written, limit.blocks.len()), (50, BLOCKS_MAX));
        let left_out = limit.left_out(now + WINDOW);
        assert!(left_out.len() <= SUMMARIES_MAX + 1, "{}", left_out.len());
        let told: u64 = left_out.iter().map(|left_out| left_out.lines).sum();
        assert_eq!(told, 100_000 - 50, "nothing is left out without a word");
        assert!(limit.blocks.is_empty() && limit.admits(now + WINDOW, block(7)));
    }
}
