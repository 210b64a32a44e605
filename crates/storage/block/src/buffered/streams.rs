//! Detection of sequential readers.

use crate::Extent;

/// Sequential readers that are tracked: more than 16 files are seldom read at the same time.
pub(super) const STREAMS: usize = 16;

/// The expected next block of each sequential reader, the latest last.
#[derive(Debug, Default)]
pub(super) struct Streams(Vec<u64>);

impl Streams {
    /// Records a read; true if it is sequential.
    pub(super) fn follow(&mut self, extent: Extent) -> bool {
        let valid = self.0.iter().position(|next| *next == extent.lba.0);
        match valid {
            Some(at) => drop(self.0.remove(at)),
            None if self.0.len() == STREAMS => drop(self.0.remove(0)),
            None => {}
        }
        self.0.extend(extent.end().map(|end| end.0));
        valid.is_some()
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
