//! Merges queued writes to the same stripe.
//!
//! A sequential writer with several outstanding requests sends the strips of a stripe one by one. The write
//! that gets the stripe lock also executes the writes that are queued behind it. Together they may form a
//! full-stripe write, which needs no reads.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use block::{Buffer, DeviceError, Durability, Lock, Slice};

/// A write to adjacent blocks of one stripe with parity.
#[derive(Clone)]
pub(crate) struct StripeWrite {
    pub(crate) stripe: u64,
    /// Blocks from the start of the stripe's data.
    pub(crate) blocks: Range<u64>,
    pub(crate) data: Slice,
}

/// Maximum number of writes to merge. Together they must fit in one journal record.
pub(crate) const WRITES_MAX: usize = 32;

/// Writes that wait for the locks of their stripes.
#[derive(Default)]
pub(crate) struct WaitingWrites {
    waiting: Lock<BTreeMap<u64, Vec<Entry>>>,
}

struct Entry {
    write: StripeWrite,
    durability: Durability,
    outcome: Arc<Lock<Outcome>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Waiting,
    /// Another write has taken this one, and is outstanding or was dropped.
    Taken,
    Done(Result<(), DeviceError>),
}

impl WaitingWrites {
    /// Adds a write. Dropping the returned value withdraws this write, unless another write has taken it.
    pub(crate) fn add(&self, write: StripeWrite, durability: Durability) -> Waiting<'_> {
        debug_assert!(!write.blocks.is_empty());
        let stripe = write.stripe;
        let outcome = Arc::new(Lock::new(Outcome::Waiting));
        let entry = Entry {
            write,
            durability,
            outcome: Arc::clone(&outcome),
        };
        self.waiting.lock().entry(stripe).or_default().push(entry);
        Waiting {
            writes: self,
            stripe,
            outcome,
        }
    }
}

pub(crate) struct Waiting<'a> {
    writes: &'a WaitingWrites,
    stripe: u64,
    outcome: Arc<Lock<Outcome>>,
}

/// Merged writes, no two of which overlap or are adjacent.
pub(crate) struct Batch {
    /// The writes, ordered by block.
    pub(crate) writes: Vec<StripeWrite>,
    pub(crate) durability: Durability,
    outcomes: Vec<Arc<Lock<Outcome>>>,
}

impl Waiting<'_> {
    /// Called when the stripe has been locked. Returns this write merged with others, or the result of this
    /// write if another write has executed it.
    pub(crate) fn take(self, block_bytes: usize) -> Result<Batch, Result<(), DeviceError>> {
        match *self.outcome.lock() {
            Outcome::Waiting => {}
            Outcome::Taken => return Err(Err(DeviceError::NotReady)),
            Outcome::Done(result) => return Err(result),
        }
        let mut waiting = self.writes.waiting.lock();
        let entries = waiting.remove(&self.stripe).unwrap_or_default();
        let (mut taken, mut left): (Vec<Entry>, Vec<Entry>) = (Vec::new(), Vec::new());
        let (mine, others): (Vec<Entry>, Vec<Entry>) = entries
            .into_iter()
            .partition(|entry| Arc::ptr_eq(&entry.outcome, &self.outcome));
        taken.extend(mine);
        debug_assert_eq!(taken.len(), 1, "a waiting write is in the queue");
        for entry in others {
            // Overlapping writes keep their order.
            let is_free = taken
                .iter()
                .chain(&left)
                .all(|other| !overlap(&other.write.blocks, &entry.write.blocks));
            if is_free && taken.len() < WRITES_MAX {
                taken.push(entry)
            } else {
                left.push(entry)
            }
        }
        debug_assert!(taken.len() <= WRITES_MAX);
        if !left.is_empty() {
            waiting.insert(self.stripe, left);
        }
        drop(waiting);
        taken
            .iter()
            .for_each(|entry| *entry.outcome.lock() = Outcome::Taken);
        let is_stable = taken
            .iter()
            .any(|entry| entry.durability == Durability::Stable);
        let outcomes = taken
            .iter()
            .map(|entry| Arc::clone(&entry.outcome))
            .collect();
        let writes = joined(
            taken.into_iter().map(|entry| entry.write).collect(),
            block_bytes,
        );
        let durability = if is_stable {
            Durability::Stable
        } else {
            Durability::Cached
        };
        Ok(Batch {
            writes,
            durability,
            outcomes,
        })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = self.writes.waiting.lock();
        if let Some(entries) = waiting.get_mut(&self.stripe) {
            entries.retain(|entry| !Arc::ptr_eq(&entry.outcome, &self.outcome));
            if entries.is_empty() {
                waiting.remove(&self.stripe);
            }
        }
    }
}

impl Batch {
    /// Completes all writes of the batch with this result.
    pub(crate) fn end(self, result: Result<(), DeviceError>) {
        self.outcomes
            .into_iter()
            .for_each(|outcome| *outcome.lock() = Outcome::Done(result));
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

fn joined(mut writes: Vec<StripeWrite>, block_bytes: usize) -> Vec<StripeWrite> {
    let length = |blocks: &Range<u64>| (blocks.end - blocks.start) as usize * block_bytes;
    debug_assert!(
        writes
            .iter()
            .all(|write| write.data.len() == length(&write.blocks)),
        "whole blocks"
    );
    writes.sort_unstable_by_key(|write| write.blocks.start);
    let runs = writes.chunk_by(|one, next| one.blocks.end == next.blocks.start);
    let join = |run: &[StripeWrite]| match run {
        [only] => Some(only.clone()),
        [first, .., last] => {
            let blocks = first.blocks.start..last.blocks.end;
            let mut data = Buffer::recycled((blocks.end - blocks.start) as usize * block_bytes);
            for write in run {
                let start = (write.blocks.start - blocks.start) as usize * block_bytes;
                data[start..start + write.data.len()].copy_from_slice(&write.data);
            }
            Some(StripeWrite {
                stripe: first.stripe,
                blocks,
                data: data.share(),
            })
        }
        [] => None,
    };
    runs.filter_map(join).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(blocks: Range<u64>, byte: u8) -> StripeWrite {
        let data =
            Buffer::from(&vec![byte; (blocks.end - blocks.start) as usize * 512][..]).share();
        StripeWrite {
            stripe: 7,
            blocks,
            data,
        }
    }

    fn taken(waiting: Waiting<'_>) -> Option<(Batch, Vec<Range<u64>>)> {
        let batch = waiting.take(512).ok()?;
        let blocks = batch
            .writes
            .iter()
            .map(|write| write.blocks.clone())
            .collect();
        Some((batch, blocks))
    }

    #[test]
    fn writes_that_wait_are_taken_together_and_joined() {
        let waiting = WaitingWrites::default();
        let adds = [write(8..16, 1), write(0..8, 2), write(20..24, 3)];
        let [first, second, third] = adds.map(|write| waiting.add(write, Durability::Cached));
        let (batch, blocks) = taken(first).expect("mine");
        assert_eq!(blocks, [0..16, 20..24]);
        assert_eq!(
            (batch.writes[0].data[0], batch.writes[0].data[8 * 512]),
            (2, 1)
        );
        batch.end(Ok(()));
        assert_eq!(second.take(512).err(), Some(Ok(())));
        assert_eq!(third.take(512).err(), Some(Ok(())));
        assert!(waiting.waiting.lock().is_empty());
    }

    #[test]
    fn overlapping_writes_keep_their_order() {
        let waiting = WaitingWrites::default();
        let adds = [
            write(0..4, 1),
            write(2..8, 2),
            write(6..12, 3),
            write(12..16, 4),
        ];
        let [first, second, _third, _fourth] =
            adds.map(|write| waiting.add(write, Durability::Cached));
        let (_, blocks) = taken(first).expect("mine");
        assert_eq!(blocks, [0..4, 12..16]);
        // The third write waits for the second, which it overlaps; both are still queued.
        assert!(taken(second).is_some());
    }

    #[test]
    fn who_is_dropped_takes_its_write_along() {
        let waiting = WaitingWrites::default();
        let first = waiting.add(write(0..4, 1), Durability::Cached);
        drop(waiting.add(write(4..8, 2), Durability::Stable));
        let (batch, blocks) = taken(first).expect("mine");
        assert_eq!(
            (blocks.len(), &blocks[0], batch.durability),
            (1, &(0..4), Durability::Cached)
        );
    }

    #[test]
    fn a_write_that_was_taken_and_not_ended_has_failed() {
        let waiting = WaitingWrites::default();
        let first = waiting.add(write(0..4, 1), Durability::Cached);
        let second = waiting.add(write(4..8, 2), Durability::Cached);
        drop(taken(first));
        assert_eq!(second.take(512).err(), Some(Err(DeviceError::NotReady)));
    }
}
