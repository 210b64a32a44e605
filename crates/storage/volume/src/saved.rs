//! The persistent state of a volume as bytes for [`PersistentState`](crate::PersistentState): persistent
//! reservations with APTPL, and the state of the front end (mode pages in SCSI).
//!
//! ```text
//!  0    magic "LINERATE"
//!  8    version u16, 1
//!  10   reservations: length u32 · bytes
//!  ...  front end:    length u32 · bytes
//!  -4   CRC-32C of all before
//! ```
//!
//! All numbers are big-endian. Bytes that are not exactly this are [`Damaged`] as a whole: a partial
//! reservation is worse than one known to be missing, so opening the volume fails.

use std::fmt;

/// The two parts that are kept, each in its own form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Saved {
    /// [`Registrations`](crate::reservations::Registrations).
    pub(crate) reservations: Vec<u8>,
    /// What the front end keeps of its own.
    pub(crate) front_end: Vec<u8>,
}

/// The saved bytes of a volume are damaged: cut, changed, or of a later version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the saved reservations and mode pages are damaged or of a later version")
    }
}

impl std::error::Error for Damaged {}

const MAGIC: &[u8; 8] = b"LINERATE";
const VERSION: u16 = 1;

impl Saved {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_be_bytes());
        for part in [&self.reservations, &self.front_end] {
            bytes.extend((part.len() as u32).to_be_bytes());
            bytes.extend(part);
        }
        bytes.extend(crc32c(&bytes).to_be_bytes());
        bytes
    }

    /// What [`Saved::to_bytes`] wrote.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Saved, Damaged> {
        let (body, crc) = bytes.split_last_chunk::<4>().ok_or(Damaged)?;
        if crc32c(body) != u32::from_be_bytes(*crc) {
            return Err(Damaged);
        }
        let mut reader = Reader::new(body);
        if reader.array()? != *MAGIC || reader.u16()? != VERSION {
            return Err(Damaged);
        }
        let kept = Saved { reservations: reader.part()?, front_end: reader.part()? };
        reader.end()?;
        Ok(kept)
    }
}

/// Takes numbers and runs of bytes from the front of a slice.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8], Damaged> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Damaged)?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Damaged)?;
        self.rest = rest;
        Ok(*bytes)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Damaged> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Damaged> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Damaged> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Damaged> {
        self.array().map(u64::from_be_bytes)
    }

    fn part(&mut self) -> Result<Vec<u8>, Damaged> {
        let length = self.u32()?;
        self.bytes(length as usize).map(<[u8]>::to_vec)
    }

    /// Nothing is left.
    pub(crate) fn end(&self) -> Result<(), Damaged> {
        if self.rest.is_empty() { Ok(()) } else { Err(Damaged) }
    }
}

/// Castagnoli's polynomial, bit by bit: a few kilobytes once in a while need no table.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _: u32| if crc & 1 != 0 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), step))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Saved {
        Saved { reservations: vec![1, 2, 3], front_end: vec![4; 70] }
    }

    #[test]
    fn both_parts_come_back() {
        assert_eq!(Saved::from_bytes(&kept().to_bytes()), Ok(kept()));
    }

    /// The check value of RFC 3720 B.4's CRC, over "123456789".
    #[test]
    fn the_crc_is_castagnolis() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn bytes_cut_anywhere_are_damaged() {
        let bytes = kept().to_bytes();
        for length in 0..bytes.len() {
            assert_eq!(Saved::from_bytes(&bytes[..length]), Err(Damaged), "{length}");
        }
    }

    #[test]
    fn a_changed_bit_is_damage() {
        let bytes = kept().to_bytes();
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Saved::from_bytes(&bytes), Err(Damaged), "{bit}");
        }
    }

    #[test]
    fn a_version_to_come_is_refused() {
        let mut bytes = kept().to_bytes();
        bytes[9] = 2;
        let body = bytes.len() - 4;
        let crc = crc32c(&bytes[..body]).to_be_bytes();
        bytes[body..].copy_from_slice(&crc);
        assert_eq!(Saved::from_bytes(&bytes), Err(Damaged));
    }
}
