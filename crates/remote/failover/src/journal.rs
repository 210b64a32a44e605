//! The journal of acknowledged changes that no flush has covered. A server may lose these changes when it
//! restarts. The entries do not overlap, because a newer change replaces the parts of older changes that it
//! covers. They can therefore be replayed in any order.

use std::collections::BTreeMap;
use std::ops::Range;

/// A change that can be split.
pub trait Part: Sized {
    /// A copy of the bytes of `range`, which lies within the change.
    fn part(&self, range: Range<u64>) -> Self;
    /// The memory that the change takes, in bytes.
    fn memory_bytes(&self) -> usize;
}

/// The changes of one device.
#[derive(Debug)]
pub struct Journal<R> {
    /// The changes, by first byte.
    entries: BTreeMap<u64, Entry<R>>,
    next: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Entry<R> {
    end: u64,
    /// The change's number, in the order of acknowledgements.
    number: u64,
    change: R,
}

/// A position in the order of acknowledgements: a flush that is sent at this position covers all earlier
/// changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(u64);

impl<R> Default for Journal<R> {
    fn default() -> Journal<R> {
        Journal {
            entries: BTreeMap::new(),
            next: 0,
            bytes: 0,
        }
    }
}

impl<R: Part> Journal<R> {
    /// Adds an acknowledged change. An empty one has no effect.
    pub fn insert(&mut self, range: Range<u64>, change: R) {
        if range.is_empty() {
            return;
        }
        let number = self.next;
        self.next += 1;
        // Entries do not overlap, so only the last one can extend beyond the end of the range.
        let last = self.entries.range_mut(..range.end).next_back();
        if let Some((start, entry)) = last
            && entry.end > range.start
        {
            if (*start, entry.end) == (range.start, range.end) {
                self.bytes -= entry.change.memory_bytes();
                self.bytes += change.memory_bytes();
                (entry.number, entry.change) = (number, change);
                return;
            }
            self.forget(range.clone());
        }
        self.bytes += change.memory_bytes();
        let earlier = self.entries.insert(
            range.start,
            Entry {
                end: range.end,
                number,
                change,
            },
        );
        debug_assert!(earlier.is_none(), "the changes of a journal do not overlap");
    }

    /// Removes the changes to `range`. Call this when a durable change was acknowledged, because a replay
    /// must not restore the changes that it has replaced. Returns true if there were any.
    pub fn forget(&mut self, range: Range<u64>) -> bool {
        if range.is_empty() {
            return false;
        }
        let before = self.entries.range(..range.start).next_back();
        let first = before
            .filter(|(_, entry)| entry.end > range.start)
            .map_or(range.start, |(start, _)| *start);
        let touched: Vec<u64> = self
            .entries
            .range(first..range.end)
            .map(|(start, _)| *start)
            .collect();
        let is_any = !touched.is_empty();
        for start in touched {
            let Some(Entry {
                end,
                number,
                change,
            }) = self.entries.remove(&start)
            else {
                continue;
            };
            self.bytes -= change.memory_bytes();
            for kept in [start..range.start.min(end), range.end.max(start)..end] {
                if !kept.is_empty() {
                    let change = change.part(kept.clone());
                    self.bytes += change.memory_bytes();
                    self.entries.insert(
                        kept.start,
                        Entry {
                            end: kept.end,
                            number,
                            change,
                        },
                    );
                }
            }
        }
        debug_assert!(!self.overlaps(&range));
        is_any
    }

    /// Whether any change overlaps these bytes.
    pub fn overlaps(&self, range: &Range<u64>) -> bool {
        // Entries do not overlap, so the last one that starts before the end also ends last.
        let last = self.entries.range(..range.end).next_back();
        last.is_some_and(|(_, entry)| entry.end > range.start)
    }

    /// Returns the mark for a flush that is sent now. The flush covers the changes before the mark.
    pub fn mark(&self) -> Mark {
        Mark(self.next)
    }

    /// Removes the changes that a successful flush covers.
    pub fn flushed(&mut self, mark: Mark) {
        debug_assert!(mark.0 <= self.next, "the mark is of this journal");
        let bytes = &mut self.bytes;
        self.entries.retain(|_, entry| {
            let stays = entry.number >= mark.0;
            if !stays {
                *bytes -= entry.change.memory_bytes();
            }
            stays
        });
        debug_assert!(
            !self.entries.is_empty() || self.bytes == 0,
            "all memory is that of a change"
        );
        debug_assert_eq!(
            self.bytes,
            self.entries
                .values()
                .map(|entry| entry.change.memory_bytes())
                .sum::<usize>(),
            "the memory of a journal is that of its changes"
        );
    }

    /// The memory of all changes, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The changes, in the order of their ranges.
    pub fn changes(&self) -> impl Iterator<Item = (Range<u64>, &R)> {
        self.entries
            .iter()
            .map(|(start, entry)| (*start..entry.end, &entry.change))
    }
}

/// Who else changes the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writers {
    /// It is not known whether other hosts write. Different content is not replaced without evidence of a
    /// loss, because another host may have written it.
    #[default]
    Unknown,
    /// No other host writes. If blocks have different content, changes were lost.
    One,
    /// Other hosts also write. Different content is never replaced.
    Several,
}

impl Writers {
    /// Parses the value of the URL key.
    pub fn parse(text: &str) -> Option<Writers> {
        match text {
            "one" => Some(Writers::One),
            "several" => Some(Writers::Several),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The data of a change, one number for each byte of its range.
    #[derive(Clone, Debug)]
    struct Data(u64, Vec<u32>);

    impl Part for Data {
        fn part(&self, range: Range<u64>) -> Data {
            let (from, to) = (
                (range.start - self.0) as usize,
                (range.end - self.0) as usize,
            );
            Data(range.start, self.1[from..to].to_vec())
        }

        fn memory_bytes(&self) -> usize {
            self.1.len()
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, u64),
        WriteDurably(u64, u64),
        Mark,
        Flushed,
        Restart,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u64..60, 0u64..12).prop_map(|(at, length)| Step::Write(at, length)),
            1 => (0u64..60, 1u64..12).prop_map(|(at, length)| Step::WriteDurably(at, length)),
            1 => Just(Step::Mark),
            1 => Just(Step::Flushed),
            1 => Just(Step::Restart),
        ]
    }

    proptest! {
        /// After a restart of the server and a replay, a device with a volatile cache has all acknowledged
        /// data.
        #[test]
        fn nothing_acknowledged_is_lost_by_a_restart(steps in prop::collection::vec(step(), 0..80)) {
            let (mut cache, mut durable) = ([0u32; 80], [0u32; 80]);
            let mut acknowledged = [0u32; 80];
            let mut journal = Journal::default();
            let mut flush = None;
            for (version, step) in (1u32..).zip(steps) {
                match step {
                    Step::Write(at, length) => {
                        let range = at as usize..(at + length) as usize;
                        cache[range.clone()].fill(version);
                        acknowledged[range.clone()].fill(version);
                        journal.insert(at..at + length, Data(at, vec![version; length as usize]));
                    }
                    Step::WriteDurably(at, length) => {
                        let range = at as usize..(at + length) as usize;
                        cache[range.clone()].fill(version);
                        durable[range.clone()].fill(version);
                        acknowledged[range].fill(version);
                        journal.forget(at..at + length);
                    }
                    // The flush covers the cache at its start, and completes later.
                    Step::Mark => flush = Some((journal.mark(), cache)),
                    Step::Flushed => if let Some((mark, at_mark)) = flush.take() {
                        for (place, (durable, cached)) in durable.iter_mut().zip(at_mark).enumerate() {
                            // Versions only increase: durable data is never replaced by older data.
                            *durable = (*durable).max(cached);
                            prop_assert!(*durable <= acknowledged[place]);
                        }
                        journal.flushed(mark);
                    },
                    Step::Restart => {
                        flush = None;
                        cache = durable;
                        for (range, change) in journal.changes() {
                            cache[range.start as usize..range.end as usize].copy_from_slice(&change.1);
                        }
                    }
                }
                prop_assert_eq!(journal.bytes(), journal.changes().map(|(_, change)| change.1.len()).sum::<usize>());
                prop_assert_eq!(cache, acknowledged);
            }
        }
    }
}
