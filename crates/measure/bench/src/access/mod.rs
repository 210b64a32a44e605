//! Which request comes next: Iometer's rules, as [`crate::plan::Workload`] tells them.
//!
//! ```text
//!   line by its share ─► random place, or behind the last request ─► up to the alignment ─► past the end? to the start
//! ```

mod layout;
mod shuffle;
mod spread;
#[cfg(test)]
mod tests;

use std::time::Duration;

use block::{Blocks, Extent, Lba, Random};

pub(crate) use layout::Layout;
use layout::Line;
pub use layout::WorkloadError;
use spread::Spread;

use crate::plan::Percent;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) kind: Kind,
    /// From the start of the span, in bytes.
    pub(crate) offset: u64,
    /// Its length, in bytes.
    pub(crate) bytes: u64,
    /// Where else it might have started: at multiples of this, in bytes.
    pub(crate) align: u64,
    /// Time in which nothing is to be asked before it.
    pub(crate) pause: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
}

/// The order of one session's requests.
pub(crate) struct AccessStream {
    layout: Layout,
    spread: Spread,
    random: Random,
    /// Where a request goes that follows the one before it: its end, from the start of the span.
    following: u64,
    /// The line that was drawn for this burst, and what is left of it.
    line: Line,
    left_in_burst: u32,
}

impl AccessStream {
    /// The order of session number `index` of `sessions`. Each has its own, and their sequential parts start evenly
    /// spread over the span, so that they do not read what another has just brought into a cache.
    pub(crate) fn new(layout: &Layout, seed: u64, index: usize, sessions: usize) -> AccessStream {
        let start = u128::from(layout.span_bytes) * index as u128 / sessions.max(1) as u128;
        AccessStream {
            layout: layout.clone(),
            spread: Spread::new(layout),
            random: Random::new(seed.wrapping_add((index as u64) << 32)),
            following: start as u64,
            line: layout.lines[0],
            left_in_burst: 0,
        }
    }

    pub(crate) fn next(&mut self) -> Ask {
        let pause = self.next_in_burst();
        let line = self.line;
        let wanted = if line.random.happens(&mut self.random) {
            self.spread.place(&mut self.random, line.align)
        } else {
            self.following
        };
        let aligned = wanted.next_multiple_of(line.align);
        let offset = if aligned + line.bytes > self.layout.span_bytes { 0 } else { aligned };
        self.following = offset + line.bytes;
        let kind = if line.read.happens(&mut self.random) { Kind::Read } else { Kind::Write };
        Ask { kind, offset, bytes: line.bytes, align: line.align, pause }
    }

    /// A line is drawn for each burst, and its pause lies before the burst (Iometer's `Grunt::Do_IOs`).
    fn next_in_burst(&mut self) -> Duration {
        if self.left_in_burst > 0 {
            self.left_in_burst -= 1;
            return Duration::ZERO;
        }
        self.line = self.layout.line(self.random.below(100));
        self.left_in_burst = self.line.burst - 1;
        self.line.pause
    }
}

impl Layout {
    /// Where a request lies on the device.
    pub(crate) fn extent(&self, ask: &Ask) -> Extent {
        let block = u64::from(self.block_bytes);
        Extent { lba: Lba((self.start_bytes + ask.offset) / block), blocks: Blocks(ask.bytes / block) }
    }
}

impl Percent {
    /// Whether something happens that does in so many of 100 cases.
    fn happens(self, random: &mut Random) -> bool {
        match self {
            Percent::NONE => false,
            Percent::ALL => true,
            _ => random.below(100) < u64::from(self.get()),
        }
    }
}
