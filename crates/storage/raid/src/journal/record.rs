//! The byte format of journal records, and their location in the journal ([`Ring`]). This module does no I/O.
//!
//! Numbers are little endian. Lengths and positions are in blocks of the journal's device.
//!
//! ```text
//!   header (one block, alternately block 0 and 1)      record (from block 2 on)
//!    0  "LNRJHEAD"                                       0  "LNRJ"
//!    8  CRC32C of the rest of the block                  4  CRC32C of the rest of the record
//!   12  version, 2                                       8  key
//!   16  generation                                      16  sequence
//!   24  key of the records                              24  number of blocks in the record
//!   32  first record: its block, counted from block 2   28  kind: 1 update, 2 zeros, 3 zeros deallocated
//!   40  first record: its sequence                      30  number of parts
//!                                                       32  stripe
//!                                                       40  stripes
//!                                                       48  parts, 12 bytes each: strip, column, blocks (32 bits);
//!                                                           for zeros: member, 0, 0
//!                                                           the data of the parts, from the next block on
//! ```
//!
//! The key is a random number that users do not know, and changes with each assembly. So leftover content of
//! the ring is not mistaken for a record, even if a user has written data that looks like one.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use block::{Buffer, Slice};
use crc_fast::crc32_iscsi;

/// A part of a strip with its new content.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Index of the strip in the stripe: the data strips, then P, then Q.
    pub(crate) strip: usize,
    /// The first block, counted from the start of the strip.
    pub(crate) column: u64,
    pub(crate) data: Slice,
}

#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// Writes these parts of a stripe. The last `derived` parts are parity that can be computed from the
    /// other parts, which are then all the data of the stripe. The content of the derived parts is not
    /// recorded, and is empty when the record is read.
    Update {
        stripe: u64,
        parts: Vec<Part>,
        derived: usize,
    },
    /// Zeroes all blocks of some stripes on these members, and deallocates them where possible if
    /// `may_unmap`. The other members do not have current content in these stripes.
    Clear {
        stripe: u64,
        stripes: u64,
        members: Vec<usize>,
        may_unmap: bool,
    },
}

/// The content of a header: the position of the first record, and the key of all records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) generation: u64,
    pub(crate) key: u64,
    pub(crate) start: u64,
    pub(crate) sequence: u64,
}

/// Number of header blocks, which precede the ring in the area.
pub(crate) const HEADERS: u64 = 2;

const HEADER_MAGIC: &[u8; 8] = b"LNRJHEAD";
const HEADER_BYTES: usize = 48;
const MAGIC: &[u8; 4] = b"LNRJ";
const FIXED_BYTES: usize = 48;
const PART_BYTES: usize = 12;
/// The version of the format. Since version 2, a record omits parity that can be computed from its data.
/// Older records, which contain this parity, can still be read.
const VERSION: u32 = 2;
const UPDATE: u16 = 1;
const ZEROS: u16 = 2;
const DEALLOCATED: u16 = 3;

impl Header {
    pub(crate) fn encode(&self, block_bytes: usize) -> Slice {
        let mut block = Buffer::zeroed(block_bytes);
        block[..8].copy_from_slice(HEADER_MAGIC);
        block[12..16].copy_from_slice(&VERSION.to_le_bytes());
        for (at, number) in [
            (16, self.generation),
            (24, self.key),
            (32, self.start),
            (40, self.sequence),
        ] {
            block[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        let sum = crc32_iscsi(&block[12..HEADER_BYTES]);
        block[8..12].copy_from_slice(&sum.to_le_bytes());
        block.share()
    }

    /// Returns the version of a header, if a newer program wrote it.
    pub(crate) fn newer_version(block: &[u8]) -> Option<u32> {
        Header::version(block).filter(|version| *version > VERSION)
    }

    /// Returns the version, if the block is a header.
    fn version(block: &[u8]) -> Option<u32> {
        let right = block.get(..8)? == HEADER_MAGIC
            && u32_at(block, 8)? == crc32_iscsi(block.get(12..HEADER_BYTES)?);
        if right { u32_at(block, 12) } else { None }
    }

    pub(crate) fn decode(block: &[u8]) -> Option<Header> {
        let right = (1..=VERSION).contains(&Header::version(block)?);
        right.then_some(Header {
            generation: u64_at(block, 16)?,
            key: u64_at(block, 24)?,
            start: u64_at(block, 32)?,
            sequence: u64_at(block, 40)?,
        })
    }
}

impl Change {
    pub(crate) fn stripes(&self) -> RangeInclusive<u64> {
        match self {
            Change::Update { stripe, .. } => *stripe..=*stripe,
            Change::Clear {
                stripe, stripes, ..
            } => *stripe..=stripe.saturating_add(*stripes).saturating_sub(1),
        }
    }

    /// Returns the parts of an update whose content is recorded.
    fn recorded(&self) -> &[Part] {
        match self {
            Change::Update { parts, derived, .. } => &parts[..parts.len() - derived],
            Change::Clear { .. } => &[],
        }
    }

    fn list_length(&self) -> usize {
        match self {
            Change::Update { parts, .. } => parts.len(),
            Change::Clear { members, .. } => members.len(),
        }
    }

    /// Returns the length of the record in blocks.
    pub(crate) fn blocks(&self, block_bytes: usize) -> u64 {
        let data: usize = self.recorded().iter().map(|part| part.data.len()).sum();
        debug_assert!(data.is_multiple_of(block_bytes), "whole blocks");
        (head_bytes(self.list_length(), block_bytes) + data) as u64 / block_bytes as u64
    }

    /// Writes the record to `out`, whose length is [`Change::blocks`].
    pub(crate) fn encode(&self, key: u64, sequence: u64, block_bytes: usize, out: &mut [u8]) {
        let head = head_bytes(self.list_length(), block_bytes);
        debug_assert_eq!(
            out.len() as u64,
            self.blocks(block_bytes) * block_bytes as u64
        );
        out[..head].fill(0);
        out[..4].copy_from_slice(MAGIC);
        let (kind, stripe, stripes) = match self {
            Change::Update { stripe, .. } => (UPDATE, *stripe, 1),
            Change::Clear {
                stripe,
                stripes,
                may_unmap,
                ..
            } => (
                if *may_unmap { DEALLOCATED } else { ZEROS },
                *stripe,
                *stripes,
            ),
        };
        for (at, number) in [(8, key), (16, sequence), (32, stripe), (40, stripes)] {
            out[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        // Both values fit, because a stripe has at most 255 strips of 1 MiB, and each is written in at most
        // three parts.
        let blocks = (out.len() / block_bytes) as u32;
        out[24..28].copy_from_slice(&blocks.to_le_bytes());
        out[28..30].copy_from_slice(&kind.to_le_bytes());
        out[30..32].copy_from_slice(&(self.list_length() as u16).to_le_bytes());
        let mut put = |index: usize, fields: [u32; 3]| {
            for (field, number) in fields.into_iter().enumerate() {
                let at = FIXED_BYTES + index * PART_BYTES + field * 4;
                out[at..at + 4].copy_from_slice(&number.to_le_bytes());
            }
        };
        match self {
            Change::Update { parts, .. } => {
                let recorded = self.recorded();
                let mut data = head;
                for (index, part) in parts.iter().enumerate() {
                    let blocks = recorded
                        .get(index)
                        .map_or(0, |part| part.data.len() / block_bytes)
                        as u32;
                    put(index, [part.strip as u32, part.column as u32, blocks]);
                }
                for part in recorded {
                    out[data..data + part.data.len()].copy_from_slice(&part.data);
                    data += part.data.len();
                }
            }
            Change::Clear { members, .. } => {
                members
                    .iter()
                    .enumerate()
                    .for_each(|(index, member)| put(index, [*member as u32, 0, 0]));
            }
        }
        let sum = crc32_iscsi(&out[8..]);
        out[4..8].copy_from_slice(&sum.to_le_bytes());
    }

    /// Returns the length of the record that starts with this block, if there is one with this key and
    /// sequence.
    pub(crate) fn length(block: &[u8], key: u64, sequence: u64) -> Option<u64> {
        let is_it =
            block.get(..4)? == MAGIC && u64_at(block, 8)? == key && u64_at(block, 16)? == sequence;
        is_it.then_some(u64::from(u32_at(block, 24)?))
    }

    /// Decodes the record, if its checksum matches.
    pub(crate) fn decode(record: &Slice, block_bytes: usize) -> Option<Change> {
        if u32_at(record, 4)? != crc32_iscsi(record.get(8..)?) {
            return None;
        }
        let (stripe, stripes) = (u64_at(record, 32)?, u64_at(record, 40)?);
        let count = usize::from(u16_at(record, 30)?);
        match u16_at(record, 28)? {
            kind @ (ZEROS | DEALLOCATED) => {
                let member =
                    |index| Some(u32_at(record, FIXED_BYTES + index * PART_BYTES)? as usize);
                let members = (0..count).map(member).collect::<Option<Vec<usize>>>()?;
                Some(Change::Clear {
                    stripe,
                    stripes,
                    members,
                    may_unmap: kind == DEALLOCATED,
                })
            }
            UPDATE => {
                let mut parts = Vec::new();
                let mut data = head_bytes(count, block_bytes);
                for index in 0..count {
                    let at = FIXED_BYTES + index * PART_BYTES;
                    let length = u32_at(record, at + 8)? as usize * block_bytes;
                    let part = record.part(data..data + length)?;
                    let (strip, column) = (
                        u32_at(record, at)? as usize,
                        u64::from(u32_at(record, at + 4)?),
                    );
                    parts.push(Part {
                        strip,
                        column,
                        data: part,
                    });
                    data += length;
                }
                Some(Change::Update {
                    stripe,
                    parts,
                    derived: 0,
                })
            }
            _ => None,
        }
    }
}

/// Returns the length of the part of a record before its data, rounded up to whole blocks.
fn head_bytes(parts: usize, block_bytes: usize) -> usize {
    (FIXED_BYTES + parts * PART_BYTES).next_multiple_of(block_bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The state of the ring: which of its blocks are in use.
///
/// ```text
///   |  free  | record | record | record |  free  |          a record never wraps: if it does not fit
///            tail                       head                before the end, it starts at block 0
/// ```
///
/// A reader expects the next record at the end of the last one, or else at block 0. So no record may start at
/// the tail or cross it until the header has moved the start of the ring. A record may start at block 0 even
/// if it would fit after the previous record. So only a part of the ring is used as long as that part is
/// sufficient, and the part stays in the CPU caches.
#[derive(Debug)]
pub(super) struct Ring {
    blocks: u64,
    /// After this number of blocks, records continue at block 0 if the space there is free.
    enough: u64,
    /// Start of the ring according to the header, and the sequence of the record there.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) block: u64,
    pub(super) sequence: u64,
}

impl Ring {
    /// Creates an empty ring of `blocks` blocks, of which `enough` are normally used. According to its
    /// header, it starts at block 0 with record `sequence`.
    pub(super) fn new(blocks: u64, enough: u64, sequence: u64) -> Ring {
        let enough = enough.min(blocks);
        Ring {
            blocks,
            enough,
            tail: 0,
            head: 0,
            next: sequence,
            records: VecDeque::new(),
        }
    }

    /// Reserves space for a record, and returns its first block and its sequence. Returns `None` if there is
    /// no space.
    pub(super) fn take(&mut self, blocks: u64) -> Option<Start> {
        let block = self.place(blocks)?;
        let start = Start {
            block,
            sequence: self.next,
        };
        self.records.push_back(InRing {
            sequence: self.next,
            start: block,
            is_applied: false,
        });
        self.next += 1;
        self.head = block + blocks;
        debug_assert!(self.head <= self.blocks, "no record wraps");
        Some(start)
    }

    /// Returns the position for the next record of `blocks` blocks, if there is space.
    fn place(&self, blocks: u64) -> Option<u64> {
        // If the ring has records, it is full when head and tail are equal.
        let wrapped = self.head < self.tail || (self.head == self.tail && !self.records.is_empty());
        let limit = if wrapped { self.tail } else { self.blocks };
        let can_wrap = !wrapped && blocks <= self.tail;
        if self.head + blocks > if can_wrap { self.enough } else { limit } {
            return can_wrap.then_some(0);
        }
        Some(self.head)
    }

    /// Whether the next record would start at this block.
    pub(super) fn takes_at(&self, block: Option<u64>, blocks: u64) -> bool {
        self.place(blocks).is_some() && self.place(blocks) == block
    }

    /// Removes the records from this one on, which were not written.
    pub(super) fn withdraw(&mut self, sequence: u64) {
        debug_assert!(sequence <= self.next);
        while let Some(last) = self.records.back().filter(|last| last.sequence >= sequence) {
            (self.head, self.next) = (last.start, last.sequence);
            self.records.pop_back();
        }
    }

    /// Restarts the empty ring at block 0 of another area.
    pub(super) fn restart(&mut self) -> Start {
        self.records.clear();
        (self.tail, self.head) = (0, 0);
        Start {
            block: 0,
            sequence: self.next,
        }
    }

    pub(super) fn applied(&mut self, sequence: u64) {
        // Sequences are consecutive, so the difference is the position.
        let first = self
            .records
            .front()
            .map_or(sequence, |record| record.sequence);
        let place = usize::try_from(sequence.wrapping_sub(first)).unwrap_or(usize::MAX);
        debug_assert!(
            place < self.records.len(),
            "a record is in the ring until it is applied"
        );
        if let Some(record) = self.records.get_mut(place) {
            record.is_applied = true;
        }
    }

    /// Whether the oldest record has been applied, or there is none.
    pub(super) fn can_free(&self) -> bool {
        self.records.front().is_none_or(|record| record.is_applied)
    }

    /// Whether all records have been applied.
    pub(super) fn is_applied(&self) -> bool {
        self.records.iter().all(|record| record.is_applied)
    }

    /// Returns the position at which the ring can start once the applied records are on the members' stable
    /// storage: the position of the first record that has not been applied.
    pub(super) fn next_start(&self) -> Start {
        match self.records.iter().find(|record| !record.is_applied) {
            Some(record) => Start {
                block: record.start,
                sequence: record.sequence,
            },
            None => Start {
                block: if self.records.is_empty() {
                    0
                } else {
                    self.head
                },
                sequence: self.next,
            },
        }
    }

    /// Called after the header has moved the start of the ring to `start`.
    pub(super) fn begins(&mut self, start: Start) {
        debug_assert!(start.sequence <= self.next && start.block <= self.blocks);
        while self
            .records
            .front()
            .is_some_and(|record| record.sequence < start.sequence)
        {
            self.records.pop_front();
        }
        self.tail = start.block;
        if self.records.is_empty() {
            self.head = start.block;
        }
    }

    /// Whether more than half of the normally used part contains records.
    pub(super) fn is_half_full(&self) -> bool {
        if self.records.is_empty() {
            return false;
        }
        let used = if self.head > self.tail {
            self.head - self.tail
        } else {
            self.blocks - self.tail + self.head
        };
        used * 2 > self.enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn update() -> Change {
        let data = |byte: u8, blocks: usize| Buffer::from(&vec![byte; blocks * 512][..]).share();
        let parts = vec![
            Part {
                strip: 1,
                column: 3,
                data: data(7, 2),
            },
            Part {
                strip: 4,
                column: 3,
                data: data(9, 2),
            },
        ];
        Change::Update {
            stripe: 77,
            parts,
            derived: 0,
        }
    }

    fn encoded(change: &Change) -> Slice {
        let mut bytes = Buffer::zeroed(change.blocks(512) as usize * 512);
        change.encode(11, 22, 512, &mut bytes);
        bytes.share()
    }

    #[test]
    fn a_record_comes_back() {
        let record = encoded(&update());
        assert_eq!(Change::length(&record, 11, 22), Some(5));
        assert_eq!(
            (
                Change::length(&record, 12, 22),
                Change::length(&record, 11, 23)
            ),
            (None, None)
        );
        let Some(Change::Update {
            stripe: 77,
            parts,
            derived: 0,
        }) = Change::decode(&record, 512)
        else {
            panic!("no update")
        };
        let read: Vec<_> = parts
            .iter()
            .map(|part| (part.strip, part.column, part.data[0], part.data.len()))
            .collect();
        assert_eq!(read, [(1, 3, 7, 1024), (4, 3, 9, 1024)]);
        let clear = Change::Clear {
            stripe: 5,
            stripes: 6,
            members: vec![0, 3],
            may_unmap: true,
        };
        let Some(Change::Clear {
            stripe: 5,
            stripes: 6,
            members,
            may_unmap: true,
        }) = Change::decode(&encoded(&clear), 512)
        else {
            panic!("no clear")
        };
        assert_eq!(members, [0, 3]);
    }

    #[test]
    fn parity_that_follows_is_named_and_not_recorded() {
        let Change::Update { stripe, parts, .. } = update() else {
            panic!("an update")
        };
        let record = encoded(&Change::Update {
            stripe,
            parts,
            derived: 1,
        });
        let Some(Change::Update { parts, .. }) = Change::decode(&record, 512) else {
            panic!("no update")
        };
        let read: Vec<_> = parts
            .iter()
            .map(|part| (part.strip, part.data.len()))
            .collect();
        assert_eq!((record.len(), read), (3 * 512, vec![(1, 1024), (4, 0)]));
    }

    #[test]
    fn a_torn_record_is_none() {
        let record = encoded(&update());
        for at in [9, 40, 60, 600, 2559] {
            let mut torn = Buffer::from(&record[..]);
            torn[at] ^= 1;
            assert!(Change::decode(&torn.share(), 512).is_none(), "{at}");
        }
        assert!(Change::decode(&Buffer::zeroed(2).share(), 512).is_none());
    }

    #[test]
    fn a_header_comes_back_and_a_torn_one_does_not() {
        let header = Header {
            generation: 1,
            key: 2,
            start: 3,
            sequence: 4,
        };
        let block = header.encode(512);
        assert_eq!(Header::decode(&block), Some(header));
        let mut torn = Buffer::from(&block[..]);
        torn[33] ^= 1;
        assert_eq!(Header::decode(&torn), None);
    }

    #[test]
    fn a_full_ring_takes_none_until_its_oldest_is_freed() {
        let mut ring = Ring::new(10, 10, 5);
        assert_eq!(
            ring.take(6),
            Some(Start {
                block: 0,
                sequence: 5
            })
        );
        assert_eq!(
            ring.take(4),
            Some(Start {
                block: 6,
                sequence: 6
            })
        );
        assert_eq!(ring.take(1), None);
        ring.applied(6);
        assert!(!ring.can_free());
        ring.applied(5);
        let start = ring.next_start();
        assert_eq!(
            start,
            Start {
                block: 10,
                sequence: 7
            }
        );
        ring.begins(start);
        assert_eq!(
            ring.take(10),
            Some(Start {
                block: 0,
                sequence: 7
            })
        );
    }

    #[test]
    fn an_empty_ring_that_begins_in_the_middle_can_begin_anew() {
        let mut ring = Ring::new(10, 10, 0);
        ring.take(5);
        ring.applied(0);
        ring.begins(ring.next_start());
        assert_eq!(ring.take(8), None);
        assert_eq!(
            ring.next_start(),
            Start {
                block: 0,
                sequence: 1
            }
        );
        ring.begins(ring.next_start());
        assert_eq!(
            ring.take(8),
            Some(Start {
                block: 0,
                sequence: 1
            })
        );
    }

    #[test]
    fn records_that_were_not_written_are_taken_back() {
        let mut ring = Ring::new(10, 10, 0);
        assert_eq!(
            ring.take(4),
            Some(Start {
                block: 0,
                sequence: 0
            })
        );
        assert_eq!(
            ring.take(3),
            Some(Start {
                block: 4,
                sequence: 1
            })
        );
        assert_eq!(
            ring.take(3),
            Some(Start {
                block: 7,
                sequence: 2
            })
        );
        ring.withdraw(1);
        assert!(!ring.is_applied());
        assert_eq!(
            ring.take(6),
            Some(Start {
                block: 4,
                sequence: 1
            })
        );
        ring.withdraw(1);
        ring.applied(0);
        assert!(ring.is_applied());
        assert_eq!(
            ring.restart(),
            Start {
                block: 0,
                sequence: 1
            }
        );
        assert_eq!(
            ring.take(10),
            Some(Start {
                block: 0,
                sequence: 1
            })
        );
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
        // As long as no record is applied, the whole ring is used.
        ring.begins(ring.next_start());
        let starts: Vec<_> = (0..300)
            .map(|_| ring.take(3).expect("room").block)
            .collect();
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
                // The reader expects the next record at the end of the last one, or at block 0.
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
