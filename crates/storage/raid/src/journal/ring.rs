//! Which blocks of the ring are in use. Pure.
//!
//! ```text
//!   |  free  | record | record | record |  free  |          a record never wraps: one that does not fit
//!            tail                       head                before the end begins at block 0
//! ```
//!
//! The reader of a ring looks for the next record where the last one ended, and then at block 0. So no record may
//! begin at the tail or cross it, unless the header says that the ring begins elsewhere; and a record may begin at block 0
//! although it would fit where the last one ended. A ring of which only a part is used as long as that suffices stays in the caches of
//! a processor.

use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct Ring {
    blocks: u64,
    /// Records begin anew behind so many blocks, if the start is free.
    enough: u64,
    /// Where the header says that the ring begins, with the sequence of the record there.
    tail: u64,
    head: u64,
    next: u64,
    records: VecDeque<InRing>,
}

#[derive(Debug)]
struct InRing {
    sequence: u64,
    start: u64,
    is_applied: bool,
}

/// Where a ring begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) block: u64,
    pub(super) sequence: u64,
}

impl Ring {
    /// An empty ring of so many blocks, of which `enough` are used mostly, whose header says that it begins at block 0 with record
    /// `sequence`.
    pub(super) fn new(blocks: u64, enough: u64, sequence: u64) -> Ring {
        let enough = enough.min(blocks);
        Ring { blocks, enough, tail: 0, head: 0, next: sequence, records: VecDeque::new() }
    }

    /// Room for a record: its first block and its sequence. `None` if there is none.
    pub(super) fn take(&mut self, blocks: u64) -> Option<Start> {
        let block = self.place(blocks)?;
        let start = Start { block, sequence: self.next };
        self.records.push_back(InRing { sequence: self.next, start: block, is_applied: false });
        self.next += 1;
        self.head = block + blocks;
        Some(start)
    }

    /// Where a record of so many blocks can begin.
    fn place(&self, blocks: u64) -> Option<u64> {
        // With records, head equal to tail says that the ring is full.
        let wrapped = self.head < self.tail || (self.head == self.tail && !self.records.is_empty());
        let limit = if wrapped { self.tail } else { self.blocks };
        let can_wrap = !wrapped && blocks <= self.tail;
        if self.head + blocks > if can_wrap { self.enough } else { limit } {
            return can_wrap.then_some(0);
        }
        Some(self.head)
    }

    /// Whether the next record would begin at this block.
    pub(super) fn takes_at(&self, block: Option<u64>, blocks: u64) -> bool {
        self.place(blocks).is_some() && self.place(blocks) == block
    }

    /// Takes back the records from this one on, which were not written.
    pub(super) fn withdraw(&mut self, sequence: u64) {
        while let Some(last) = self.records.back().filter(|last| last.sequence >= sequence) {
            (self.head, self.next) = (last.start, last.sequence);
            self.records.pop_back();
        }
    }

    /// Begins anew at block 0 of another area, without records.
    pub(super) fn restart(&mut self) -> Start {
        self.records.clear();
        (self.tail, self.head) = (0, 0);
        Start { block: 0, sequence: self.next }
    }

    pub(super) fn applied(&mut self, sequence: u64) {
        // Their sequences follow each other.
        let first = self.records.front().map_or(sequence, |record| record.sequence);
        let place = usize::try_from(sequence.wrapping_sub(first)).unwrap_or(usize::MAX);
        if let Some(record) = self.records.get_mut(place) {
            record.is_applied = true;
        }
    }

    /// Whether the oldest record is applied, or there is none.
    pub(super) fn can_free(&self) -> bool {
        self.records.front().is_none_or(|record| record.is_applied)
    }

    /// Whether all records are applied.
    pub(super) fn is_applied(&self) -> bool {
        self.records.iter().all(|record| record.is_applied)
    }

    /// Where the ring can begin once what is applied is on stable storage: at the first record that is not applied.
    pub(super) fn next_start(&self) -> Start {
        match self.records.iter().find(|record| !record.is_applied) {
            Some(record) => Start { block: record.start, sequence: record.sequence },
            None => Start { block: if self.records.is_empty() { 0 } else { self.head }, sequence: self.next },
        }
    }

    /// The header says that the ring begins there.
    pub(super) fn begins(&mut self, start: Start) {
        while self.records.front().is_some_and(|record| record.sequence < start.sequence) {
            self.records.pop_front();
        }
        self.tail = start.block;
        if self.records.is_empty() {
            self.head = start.block;
        }
    }

    /// Whether more than half of what is used mostly is in use.
    pub(super) fn is_half_full(&self) -> bool {
        if self.records.is_empty() {
            return false;
        }
        let used =
            if self.head > self.tail { self.head - self.tail } else { self.blocks - self.tail + self.head };
        used * 2 > self.enough
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_full_ring_takes_none_until_its_oldest_is_freed() {
        let mut ring = Ring::new(10, 10, 5);
        assert_eq!(ring.take(6), Some(Start { block: 0, sequence: 5 }));
        assert_eq!(ring.take(4), Some(Start { block: 6, sequence: 6 }));
        assert_eq!(ring.take(1), None);
        ring.applied(6);
        assert!(!ring.can_free());
        ring.applied(5);
        let start = ring.next_start();
        assert_eq!(start, Start { block: 10, sequence: 7 });
        ring.begins(start);
        assert_eq!(ring.take(10), Some(Start { block: 0, sequence: 7 }));
    }

    #[test]
    fn an_empty_ring_that_begins_in_the_middle_can_begin_anew() {
        let mut ring = Ring::new(10, 10, 0);
        ring.take(5);
        ring.applied(0);
        ring.begins(ring.next_start());
        assert_eq!(ring.take(8), None);
        assert_eq!(ring.next_start(), Start { block: 0, sequence: 1 });
        ring.begins(ring.next_start());
        assert_eq!(ring.take(8), Some(Start { block: 0, sequence: 1 }));
    }

    #[test]
    fn records_that_were_not_written_are_taken_back() {
        let mut ring = Ring::new(10, 10, 0);
        assert_eq!(ring.take(4), Some(Start { block: 0, sequence: 0 }));
        assert_eq!(ring.take(3), Some(Start { block: 4, sequence: 1 }));
        assert_eq!(ring.take(3), Some(Start { block: 7, sequence: 2 }));
        ring.withdraw(1);
        assert!(!ring.is_applied());
        assert_eq!(ring.take(6), Some(Start { block: 4, sequence: 1 }));
        ring.withdraw(1);
        ring.applied(0);
        assert!(ring.is_applied());
        assert_eq!(ring.restart(), Start { block: 0, sequence: 1 });
        assert_eq!(ring.take(10), Some(Start { block: 0, sequence: 1 }));
    }

    #[test]
    fn a_ring_is_used_no_further_than_it_must_be() {
        let mut ring = Ring::new(1000, 10, 0);
        let mut furthest = 0;
        for sequence in 0..100 {
            let start = ring.take(3).expect("room");
            furthest = furthest.max(start.block + 3);
            ring.applied(sequence);
            if ring.is_half_full() {
                ring.begins(ring.next_start());
            }
        }
        assert!(furthest <= 10, "{furthest}");
        // Where nothing is applied, all of the ring is there.
        ring.begins(ring.next_start());
        let starts: Vec<_> = (0..300).map(|_| ring.take(3).expect("room").block).collect();
        assert!(starts.iter().any(|start| *start > 500));
    }

    proptest! {
        #[test]
        fn records_in_use_never_overlap_and_are_found(
            steps in proptest::collection::vec((1..9u64, 0..4usize), 1..200), enough in 1..22u64
        ) {
            let mut ring = Ring::new(20, enough, 0);
            let mut used: Vec<(u64, u64, u64)> = Vec::new();
            let mut begins = Start { block: 0, sequence: 0 };
            for (blocks, frees) in steps {
                if let Some(start) = ring.take(blocks) {
                    let range = start.block..start.block + blocks;
                    prop_assert!(range.end <= 20);
                    for (other, length, _) in &used {
                        prop_assert!(range.end <= *other || range.start >= other + length);
                    }
                    used.push((start.block, blocks, start.sequence));
                }
                for (_, _, sequence) in used.iter().take(frees) {
                    ring.applied(*sequence);
                }
                if frees > 0 && ring.can_free() {
                    begins = ring.next_start();
                    ring.begins(begins);
                    used.retain(|(_, _, sequence)| *sequence >= begins.sequence);
                }
                // The reader: where the last one ended, or at block 0.
                let mut at = begins.block;
                for (block, length, _) in &used {
                    prop_assert!(*block == at || *block == 0);
                    prop_assert!(*block == at || !used.iter().any(|(other, _, _)| *other == at && at != 0));
                    at = block + length;
                }
            }
        }
    }
}
