//! The target's back end in these scenes: bytes, and CDBs of our own design.
//!
//! ```text
//!   CDB   | op | 0 | offset, 4 bytes | length, 4 bytes | 0 … |
//! ```
//!
//! Any other operation transfers no data and ends with GOOD.

/// Reads.
pub(crate) const READ: u8 = 0x28;
/// Writes.
pub(crate) const WRITE: u8 = 0x2a;
/// Ends with CHECK CONDITION and the sense data [`SENSE`].
pub(crate) const FAIL: u8 = 0xff;
/// Stays outstanding until it is ended explicitly.
pub(crate) const HANG: u8 = 0x99;

pub(crate) const SENSE: &[u8] = &[0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0];

pub(crate) fn cdb(op: u8, offset: u32, length: u32) -> [u8; 10] {
    let mut cdb = [op, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    cdb[2..6].copy_from_slice(&offset.to_be_bytes());
    cdb[6..10].copy_from_slice(&length.to_be_bytes());
    cdb
}

pub(crate) struct Cdb {
    pub(crate) op: u8,
    pub(crate) offset: usize,
    pub(crate) length: u32,
}

pub(crate) fn parse(cdb: &[u8]) -> Cdb {
    let number = |at: usize| u32::from_be_bytes([cdb[at], cdb[at + 1], cdb[at + 2], cdb[at + 3]]);
    Cdb {
        op: cdb[0],
        offset: number(2) as usize,
        length: number(6),
    }
}

pub(crate) struct Disk(pub(crate) Vec<u8>);

pub(crate) const DISK_BYTES: usize = 1 << 20;

impl Disk {
    pub(crate) fn new() -> Disk {
        Disk(vec![0; DISK_BYTES])
    }

    /// Data of a read: zeros beyond the end.
    pub(crate) fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut data = vec![0; length];
        let there = self.0.get(offset..).unwrap_or_default();
        let count = there.len().min(length);
        data[..count].copy_from_slice(&there[..count]);
        data
    }

    /// Data beyond the end is lost.
    pub(crate) fn write(&mut self, offset: usize, data: &[u8]) {
        let there = self.0.get_mut(offset..).unwrap_or_default();
        let count = there.len().min(data.len());
        there[..count].copy_from_slice(&data[..count]);
    }
}
