//! The first page of a journal file.

use std::ops::Range;

use super::checksum;

/// One page: a call writes all of it or nothing, also if the process is killed meanwhile.
pub(super) const HEADER_BYTES: usize = 4096;
/// What it begins with; the last two digits are the version of the format.
const MAGIC: &[u8; 8] = b"LNRJNL01";
/// Anchors, at most.
const ANCHORS_MAX: usize = 64;
/// Bytes of an identity, at most.
const IDENTITY_BYTES_MAX: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Bytes of the ring.
    pub(super) capacity: u64,
    /// The position of the first record that no flush has covered. Positions only grow; a place of the ring has one of each lap.
    pub(super) tail: u64,
    /// In each record: data of users never look like a record.
    pub(super) salt: u64,
    pub(super) boot: u128,
    pub(super) start: Option<u128>,
    /// The device's capacity.
    pub(super) bytes: u64,
    pub(super) identity: String,
    pub(super) anchors: Vec<Anchor>,
}

/// A place with a checksum of what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Anchor {
    pub(super) start: u64,
    pub(super) length: u32,
    pub(super) checksum: u32,
}

impl Anchor {
    pub(super) fn new(start: u64, data: &[u8]) -> Anchor {
        Anchor { start, length: data.len() as u32, checksum: checksum(&[data]) }
    }

    pub(super) fn range(&self) -> Range<u64> {
        self.start..self.start.saturating_add(self.length.into())
    }

    pub(super) fn overlaps(&self, range: &Range<u64>) -> bool {
        self.start < range.end && range.start < self.range().end
    }
}

impl Header {
    pub(super) fn offset(&self, position: u64) -> u64 {
        HEADER_BYTES as u64 + position % self.capacity
    }

    /// The position of the start of the ring after this one.
    pub(super) fn next_lap(&self, position: u64) -> u64 {
        (position / self.capacity + 1).saturating_mul(self.capacity)
    }

    /// Where a record of this length begins, which lies in one piece.
    pub(super) fn place(&self, head: u64, bytes: u64) -> u64 {
        if head % self.capacity + bytes > self.capacity { self.next_lap(head) } else { head }
    }

    /// Puts an anchor in the place of another one, if there is no room for one more: the next turn.
    pub(super) fn replace_anchor(&mut self, turn: usize, anchor: Anchor) -> usize {
        if self.anchors.len() < ANCHORS_MAX {
            self.anchors.push(anchor);
            return turn;
        }
        self.anchors[turn % ANCHORS_MAX] = anchor;
        (turn + 1) % ANCHORS_MAX
    }

    pub(super) fn page(&self) -> [u8; HEADER_BYTES] {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend(MAGIC);
        for number in [self.capacity, self.tail, self.salt, self.bytes] {
            out.extend(number.to_le_bytes());
        }
        out.extend(self.boot.to_le_bytes());
        out.extend(u32::from(self.start.is_some()).to_le_bytes());
        out.extend(self.start.unwrap_or_default().to_le_bytes());
        out.extend((self.identity.len() as u32).to_le_bytes());
        out.extend(self.identity.as_bytes());
        out.extend((self.anchors.len() as u32).to_le_bytes());
        for anchor in &self.anchors {
            out.extend(anchor.start.to_le_bytes());
            out.extend(anchor.length.to_le_bytes());
            out.extend(anchor.checksum.to_le_bytes());
        }
        let mut page = [0; HEADER_BYTES];
        page[..out.len()].copy_from_slice(&out);
        let end = HEADER_BYTES - 4;
        let sum = checksum(&[&page[..end]]);
        page[end..].copy_from_slice(&sum.to_le_bytes());
        page
    }

    /// None if it is no header, or damaged.
    pub(super) fn parse(page: &[u8; HEADER_BYTES]) -> Option<Header> {
        let (body, sum) = page.split_at(HEADER_BYTES - 4);
        if !is_ours(page) || checksum(&[body]).to_le_bytes() != sum {
            return None;
        }
        let mut rest = &body[MAGIC.len()..];
        let [capacity, tail, salt, bytes] =
            [take(&mut rest)?, take(&mut rest)?, take(&mut rest)?, take(&mut rest)?].map(u64::from_le_bytes);
        let boot = u128::from_le_bytes(take(&mut rest)?);
        let has_start = u32::from_le_bytes(take(&mut rest)?) == 1;
        let start = Some(u128::from_le_bytes(take(&mut rest)?)).filter(|_| has_start);
        let length = u32::from_le_bytes(take(&mut rest)?) as usize;
        let (identity, after) = rest.split_at_checked(length)?;
        let identity = String::from_utf8(identity.to_vec()).ok()?;
        rest = after;
        let count = u32::from_le_bytes(take(&mut rest)?) as usize;
        let mut anchors = Vec::new();
        for _ in 0..Some(count).filter(|count| *count <= ANCHORS_MAX)? {
            let start = u64::from_le_bytes(take(&mut rest)?);
            let [length, checksum] = [take(&mut rest)?, take(&mut rest)?].map(u32::from_le_bytes);
            anchors.push(Anchor { start, length, checksum });
        }
        (capacity > 0).then_some(Header { capacity, tail, salt, boot, start, bytes, identity, anchors })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*taken)
}

/// Whether a page claims to be a header.
pub(super) fn is_ours(page: &[u8; HEADER_BYTES]) -> bool {
    page.starts_with(MAGIC)
}

/// An identity as the header has room for it: the checksum of a long one stands for its end.
pub(super) fn shortened(identity: &str) -> String {
    if identity.len() <= IDENTITY_BYTES_MAX {
        return identity.to_owned();
    }
    let cut = identity.floor_char_boundary(IDENTITY_BYTES_MAX - 16);
    format!("{}… {:08x}", &identity[..cut], checksum(&[identity.as_bytes()]))
}
