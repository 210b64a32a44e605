//! Who reads one block after the other.

use crate::Extent;

/// As many readers as can be told from each other: more than that many files are seldom read at once.
pub(super) const STREAMS: usize = 16;

/// Where sequential readers will go on, the latest last.
#[derive(Debug, Default)]
pub(super) struct Streams(Vec<u64>);

impl Streams {
    /// Notes a read, and says whether it goes on where an earlier one ended.
    pub(super) fn follow(&mut self, extent: Extent) -> bool {
        let known = self.0.iter().position(|next| *next == extent.lba.0);
        match known {
            Some(at) => drop(self.0.remove(at)),
            None if self.0.len() == STREAMS => drop(self.0.remove(0)),
            None => {}
        }
        self.0.extend(extent.end().map(|end| end.0));
        known.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_are_told_from_each_other() {
        let mut streams = Streams::default();
        assert!(!streams.follow(Extent::new(0, 8)) && !streams.follow(Extent::new(1000, 8)));
        assert!(streams.follow(Extent::new(8, 8)) && streams.follow(Extent::new(1008, 8)));
        assert!(!streams.follow(Extent::new(8, 8)), "this reader has gone on");
    }

    #[test]
    fn those_that_read_nothing_for_long_are_forgotten() {
        let mut streams = Streams::default();
        for reader in 0..=STREAMS as u64 {
            streams.follow(Extent::new(reader * 1000, 8));
        }
        assert!(!streams.follow(Extent::new(8, 8)) && streams.follow(Extent::new(2008, 8)));
    }
}
