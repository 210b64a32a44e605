//! A change in the ring: a header, and the data of a write behind it.

use std::ops::Range;

use super::{Content, checksum};

/// Bytes of its header.
pub(super) const RECORD_BYTES: usize = 48;
/// The checksum is its last field.
const SUMMED: usize = RECORD_BYTES - 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) position: u64,
    pub(super) range: Range<u64>,
    pub(super) kind: Kind,
    pub(super) data_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Write = 1,
    Zeroes = 2,
    /// Zeros that may be deallocated.
    ZeroesOrHoles = 3,
    Unmap = 4,
    /// A durable change: older ones of its bytes must not be written again.
    Durable = 5,
    /// A change was sent over one that was acknowledged: it may have been carried out.
    Sent = 6,
}

const KINDS: [Kind; 6] =
    [Kind::Write, Kind::Zeroes, Kind::ZeroesOrHoles, Kind::Unmap, Kind::Durable, Kind::Sent];

pub(super) fn kind(content: Option<&Content<&[u8]>>) -> Kind {
    match content {
        Some(Content::Write(_)) => Kind::Write,
        Some(Content::Zeroes { may_unmap: false }) => Kind::Zeroes,
        Some(Content::Zeroes { may_unmap: true }) => Kind::ZeroesOrHoles,
        Some(Content::Unmap) => Kind::Unmap,
        None => Kind::Durable,
    }
}

impl Record {
    /// The position behind it.
    pub(super) fn end(&self) -> u64 {
        self.position + (RECORD_BYTES + self.data_bytes) as u64
    }

    pub(super) fn header(&self, salt: u64, data: &[u8]) -> [u8; RECORD_BYTES] {
        let mut header = [0; RECORD_BYTES];
        let numbers = [salt, self.position, self.range.start, self.range.end];
        for (field, number) in header.chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        header[32..36].copy_from_slice(&(self.kind as u32).to_le_bytes());
        header[36..40].copy_from_slice(&(self.data_bytes as u32).to_le_bytes());
        let sum = checksum(&[&header[..SUMMED], data]);
        header[SUMMED..].copy_from_slice(&sum.to_le_bytes());
        header
    }

    /// What a header says, if it is one of this position. Its checksum is not looked at.
    pub(super) fn parse(header: &[u8; RECORD_BYTES], salt: u64, position: u64) -> Option<Record> {
        let u64_at = |at: usize| Some(u64::from_le_bytes(*header.get(at..)?.first_chunk()?));
        let u32_at = |at: usize| Some(u32::from_le_bytes(*header.get(at..)?.first_chunk()?));
        let range = u64_at(16)?..u64_at(24)?;
        let kind = u32_at(32)?;
        let kind = KINDS.into_iter().find(|one| *one as u32 == kind)?;
        let data_bytes = u32_at(36)? as usize;
        let is_whole = kind != Kind::Write || range.end.checked_sub(range.start) == Some(data_bytes as u64);
        let is_here = u64_at(0)? == salt && u64_at(8)? == position;
        (is_here && is_whole && range.start < range.end).then_some(Record {
            position,
            range,
            kind,
            data_bytes,
        })
    }
}
