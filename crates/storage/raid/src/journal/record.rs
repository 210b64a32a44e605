//! Records of the journal, as bytes.
//!
//! Numbers are little endian. Everything is in blocks of the journal's device.
//!
//! ```text
//!   header (one block, in blocks 0 and 1 in turn)      record (from block 2 on)
//!    0  "LNRJHEAD"                                       0  "LNRJ"
//!    8  CRC32C of what follows                           4  CRC32C of all that follows, to the record's end
//!   12  version, 2                                       8  key
//!   16  generation                                      16  sequence
//!   24  key of the records                              24  blocks of the record
//!   32  first record: its block, counted from block 2   28  kind: 1 update, 2 zeros, 3 zeros deallocated
//!   40  first record: its sequence                      30  number of parts
//!                                                       32  stripe
//!                                                       40  stripes
//!                                                       48  parts, 12 bytes each: strip, column, blocks (32 bits);
//!                                                           of zeros: member, 0, 0
//!                                                           the data of the parts, from the next block on
//! ```
//!
//! The key changes with each assembly, and is a random number that users do not know: what was left in the ring is not
//! taken for a record, even if somebody wrote data that look like one.

use std::ops::RangeInclusive;

use block::{Buffer, Slice};
use crc_fast::crc32_iscsi;

/// A part of a strip with its new content.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Data, P, Q.
    pub(crate) strip: usize,
    /// The first block from the start of the strip.
    pub(crate) column: u64,
    pub(crate) data: Slice,
}

/// What a record says about stripes.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// These parts of a stripe have this content. The last `derived` of them are parity that follows from the others, which are all
    /// data of the stripe: their content is not recorded, and is empty when the record is read.
    Update { stripe: u64, parts: Vec<Part>, derived: usize },
    /// All blocks that these members have of some stripes are zeros, and deallocated where that is possible and wanted. The
    /// other members did not hold them.
    Clear { stripe: u64, stripes: u64, members: Vec<usize>, may_unmap: bool },
}

/// Where the journal begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) generation: u64,
    pub(crate) key: u64,
    pub(crate) start: u64,
    pub(crate) sequence: u64,
}

/// Blocks of the area before the ring.
pub(crate) const HEADERS: u64 = 2;

const HEADER_MAGIC: &[u8; 8] = b"LNRJHEAD";
const HEADER_BYTES: usize = 48;
const MAGIC: &[u8; 4] = b"LNRJ";
const FIXED_BYTES: usize = 48;
const PART_BYTES: usize = 12;
/// From 2 on parity that follows from a record is not in it. What is read may be older, and is then complete.
const VERSION: u32 = 2;
const UPDATE: u16 = 1;
const ZEROS: u16 = 2;
const DEALLOCATED: u16 = 3;

impl Header {
    pub(crate) fn encode(&self, block_bytes: usize) -> Slice {
        let mut block = Buffer::zeroed(block_bytes);
        block[..8].copy_from_slice(HEADER_MAGIC);
        block[12..16].copy_from_slice(&VERSION.to_le_bytes());
        for (at, number) in [(16, self.generation), (24, self.key), (32, self.start), (40, self.sequence)] {
            block[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        let sum = crc32_iscsi(&block[12..HEADER_BYTES]);
        block[8..12].copy_from_slice(&sum.to_le_bytes());
        block.share()
    }

    /// The version of a header that a newer program has written.
    pub(crate) fn newer_version(block: &[u8]) -> Option<u32> {
        Header::version(block).filter(|version| *version > VERSION)
    }

    /// The version, if there is a header.
    fn version(block: &[u8]) -> Option<u32> {
        let right =
            block.get(..8)? == HEADER_MAGIC && u32_at(block, 8)? == crc32_iscsi(block.get(12..HEADER_BYTES)?);
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
    /// The stripes that it changes.
    pub(crate) fn stripes(&self) -> RangeInclusive<u64> {
        match self {
            Change::Update { stripe, .. } => *stripe..=*stripe,
            Change::Clear { stripe, stripes, .. } => {
                *stripe..=stripe.saturating_add(*stripes).saturating_sub(1)
            }
        }
    }

    /// The parts of an update whose content is recorded.
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

    /// Blocks of the record.
    pub(crate) fn blocks(&self, block_bytes: usize) -> u64 {
        let data: usize = self.recorded().iter().map(|part| part.data.len()).sum();
        (head_bytes(self.list_length(), block_bytes) + data) as u64 / block_bytes as u64
    }

    /// Writes the record to `out`, whose length is [`Change::blocks`].
    pub(crate) fn encode(&self, key: u64, sequence: u64, block_bytes: usize, out: &mut [u8]) {
        let head = head_bytes(self.list_length(), block_bytes);
        out[..head].fill(0);
        out[..4].copy_from_slice(MAGIC);
        let (kind, stripe, stripes) = match self {
            Change::Update { stripe, .. } => (UPDATE, *stripe, 1),
            Change::Clear { stripe, stripes, may_unmap, .. } => {
                (if *may_unmap { DEALLOCATED } else { ZEROS }, *stripe, *stripes)
            }
        };
        for (at, number) in [(8, key), (16, sequence), (32, stripe), (40, stripes)] {
            out[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        // Both fit: a stripe has at most 255 strips of 1 MiB, each written in at most three parts.
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
                    let blocks = recorded.get(index).map_or(0, |part| part.data.len() / block_bytes) as u32;
                    put(index, [part.strip as u32, part.column as u32, blocks]);
                }
                for part in recorded {
                    out[data..data + part.data.len()].copy_from_slice(&part.data);
                    data += part.data.len();
                }
            }
            Change::Clear { members, .. } => {
                members.iter().enumerate().for_each(|(index, member)| put(index, [*member as u32, 0, 0]));
            }
        }
        let sum = crc32_iscsi(&out[8..]);
        out[4..8].copy_from_slice(&sum.to_le_bytes());
    }

    /// The length of the record that begins with this block, if one does.
    pub(crate) fn length(block: &[u8], key: u64, sequence: u64) -> Option<u64> {
        let is_it = block.get(..4)? == MAGIC && u64_at(block, 8)? == key && u64_at(block, 16)? == sequence;
        is_it.then_some(u64::from(u32_at(block, 24)?))
    }

    /// The record, if its checksum is right.
    pub(crate) fn decode(record: &Slice, block_bytes: usize) -> Option<Change> {
        if u32_at(record, 4)? != crc32_iscsi(record.get(8..)?) {
            return None;
        }
        let (stripe, stripes) = (u64_at(record, 32)?, u64_at(record, 40)?);
        let count = usize::from(u16_at(record, 30)?);
        match u16_at(record, 28)? {
            kind @ (ZEROS | DEALLOCATED) => {
                let member = |index| Some(u32_at(record, FIXED_BYTES + index * PART_BYTES)? as usize);
                let members = (0..count).map(member).collect::<Option<Vec<usize>>>()?;
                Some(Change::Clear { stripe, stripes, members, may_unmap: kind == DEALLOCATED })
            }
            UPDATE => {
                let mut parts = Vec::new();
                let mut data = head_bytes(count, block_bytes);
                for index in 0..count {
                    let at = FIXED_BYTES + index * PART_BYTES;
                    let length = u32_at(record, at + 8)? as usize * block_bytes;
                    let part = record.part(data..data + length)?;
                    let (strip, column) = (u32_at(record, at)? as usize, u64::from(u32_at(record, at + 4)?));
                    parts.push(Part { strip, column, data: part });
                    data += length;
                }
                Some(Change::Update { stripe, parts, derived: 0 })
            }
            _ => None,
        }
    }
}

/// Bytes of a record before its data: whole blocks.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn update() -> Change {
        let data = |byte: u8, blocks: usize| Buffer::from(&vec![byte; blocks * 512][..]).share();
        let parts = vec![
            Part { strip: 1, column: 3, data: data(7, 2) },
            Part { strip: 4, column: 3, data: data(9, 2) },
        ];
        Change::Update { stripe: 77, parts, derived: 0 }
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
        assert_eq!((Change::length(&record, 12, 22), Change::length(&record, 11, 23)), (None, None));
        let Some(Change::Update { stripe: 77, parts, derived: 0 }) = Change::decode(&record, 512) else {
            panic!("no update")
        };
        let read: Vec<_> =
            parts.iter().map(|part| (part.strip, part.column, part.data[0], part.data.len())).collect();
        assert_eq!(read, [(1, 3, 7, 1024), (4, 3, 9, 1024)]);
        let clear = Change::Clear { stripe: 5, stripes: 6, members: vec![0, 3], may_unmap: true };
        let Some(Change::Clear { stripe: 5, stripes: 6, members, may_unmap: true }) =
            Change::decode(&encoded(&clear), 512)
        else {
            panic!("no clear")
        };
        assert_eq!(members, [0, 3]);
    }

    #[test]
    fn parity_that_follows_is_named_and_not_recorded() {
        let Change::Update { stripe, parts, .. } = update() else { panic!("an update") };
        let record = encoded(&Change::Update { stripe, parts, derived: 1 });
        let Some(Change::Update { parts, .. }) = Change::decode(&record, 512) else { panic!("no update") };
        let read: Vec<_> = parts.iter().map(|part| (part.strip, part.data.len())).collect();
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
        let header = Header { generation: 1, key: 2, start: 3, sequence: 4 };
        let block = header.encode(512);
        assert_eq!(Header::decode(&block), Some(header));
        let mut torn = Buffer::from(&block[..]);
        torn[33] ^= 1;
        assert_eq!(Header::decode(&torn), None);
    }
}
