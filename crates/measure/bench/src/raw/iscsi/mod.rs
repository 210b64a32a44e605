//! The ceiling of an iSCSI target on this machine: the bytes of iSCSI without SCSI, sessions and storage.
//!
//! [`serve`] logs any initiator in, with the lengths that our own target answers, and tells it of a disk that is not
//! there: a few answers are constants, a READ is answered from memory that is taken round and round whatever block was
//! asked for, with the status in its last Data-In (RFC 7143 section 11.7.3), and the data of a WRITE are received into
//! memory and counted. Commands that came together are answered by one send. It looks at no CmdSN, keeps no order of
//! tasks, aborts nothing, and checks only what keeps it alive. No target can do less, so none can be faster by much.
//!
//! [`ask`] is the other half: it logs in and keeps READs or WRITEs under way, discards what it reads, and takes the time
//! of few requests. Where a full initiator is what limits a measurement, this one shows what the target could do.
//!
//! Both run on whatever world the thread has: one that sleeps when there is nothing to do, or one that spins.

mod answers;
mod asking;
mod client;
mod figures;
mod owed;
mod server;
mod wire;

use std::io;

use block::Region;
use iscsi::framing::Framing;
use iscsi::negotiate::Offers;
use iscsi::pdu::{BHS_BYTES, Bhs};

pub use client::{Asked, Load, ask, ask_at};
pub use figures::Figures;
pub use server::serve;

/// The disk that initiators are told of, in blocks of 512 bytes.
#[derive(Clone, Debug)]
pub struct Disk {
    memory: Region,
    blocks: u64,
}

const BLOCK_BYTES: u64 = 512;
/// What comes from or goes to the memory in one piece at most, and what a PDU may carry (MaxRecvDataSegmentLength): the
/// same as our target's.
const SEGMENT_BYTES: usize = 256 << 10;

impl Disk {
    /// A disk of as many whole blocks as `memory` has room for; `None` if that is less than 256 KiB, the longest PDU.
    pub fn new(memory: Region) -> Option<Disk> {
        let blocks = memory.len() as u64 / BLOCK_BYTES;
        (memory.len() >= SEGMENT_BYTES).then_some(Disk { memory, blocks })
    }
}

/// Where the next `bytes` (at most [`SEGMENT_BYTES`]) of a memory lie that is used round and round.
#[derive(Clone, Copy, Debug, Default)]
struct Round(usize);

impl Round {
    fn take(&mut self, length: usize, bytes: usize) -> usize {
        let at = if self.0 + bytes > length { 0 } else { self.0 };
        self.0 = at + bytes;
        at
    }
}

/// What either half would like to agree on: no digests, and the lengths of our own target and initiator.
fn offers() -> Offers {
    Offers { max_outstanding_r2t: 1, default_time2retain_s: 0, ..Offers::of_initiator() }
}

/// What follows a header: additional headers, and data with their padding. Digests are never agreed on.
fn bytes_behind(bhs: &Bhs) -> usize {
    let framing = Framing::default();
    framing.header_bytes(bhs) - BHS_BYTES + framing.segment_bytes(bhs)
}

/// Bytes that are no iSCSI, or none that is agreed on.
fn invalid(what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests;
