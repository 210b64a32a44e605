//! Answers that are owed.

use std::collections::VecDeque;
use std::io;

use block::Region;
use reactor::{OutSlice, Stream};

use super::Round;
use super::login::Agreed;
use super::pdu::{self, FINAL, Header, field};
use super::wire::{Data, Wire};

/// What goes out in the order in which it was owed. The connection's numbers are written into headers only when these
/// go onto the wire.
#[derive(Debug)]
pub(super) struct Outbox {
    owed: VecDeque<Owed>,
    wire: Wire,
    /// Where the data of the next READ come from.
    from: Round,
    pub(super) stat_sn: u32,
    pub(super) exp_cmd_sn: u32,
}

/// An answer.
#[derive(Debug)]
enum Owed {
    /// A whole PDU, with its data.
    Whole { header: Header, data: Vec<u8>, takes_stat_sn: bool },
    /// What is left of a READ.
    Read { tag: u32, left: usize, offset: usize, data_sn: u32 },
}

/// Answers that wait. An initiator that keeps to its window has fewer; of one that does not, nothing more is received.
const OWED_MAX: usize = 1024;
/// Commands that an initiator may have under way: the same as our target's.
pub(super) const WINDOW: u32 = 256;

impl Outbox {
    pub(super) fn new() -> Outbox {
        Outbox { owed: VecDeque::new(), wire: Wire::new(), from: Round::default(), stat_sn: 1, exp_cmd_sn: 1 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.owed.is_empty() && self.wire.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.owed.len() > OWED_MAX
    }

    /// An answer that ends something, and so has a number of its own.
    pub(super) fn push(&mut self, header: Header, data: Vec<u8>) {
        self.owed.push_back(Owed::Whole { header, data, takes_stat_sn: true });
    }

    /// An R2T, which only tells the number that comes next.
    pub(super) fn push_r2t(&mut self, header: Header) {
        self.owed.push_back(Owed::Whole { header, data: Vec::new(), takes_stat_sn: false });
    }

    /// The data that a READ expects, and its status.
    pub(super) fn push_read(&mut self, tag: u32, bytes: usize) {
        self.owed.push_back(Owed::Read { tag, left: bytes, offset: 0, data_sn: 0 });
    }

    /// Sends as much as fits. Whether anything was.
    pub(super) fn send(&mut self, stream: &dyn Stream, memory: &Region, agreed: &Agreed) -> io::Result<bool> {
        let bytes = memory.bytes();
        let mut any = false;
        loop {
            while !self.wire.is_full() && self.stage(bytes.len(), agreed) {}
            let part = |at, length| OutSlice::Shared(&bytes[at..at + length]);
            if self.wire.is_empty() || !self.wire.send(stream, part)? {
                return Ok(any);
            }
            any = true;
        }
    }

    /// Makes the next PDU ready; whether there was one.
    fn stage(&mut self, memory_bytes: usize, agreed: &Agreed) -> bool {
        let (mut header, data, takes_stat_sn) = match self.owed.front_mut() {
            None => return false,
            Some(Owed::Whole { header, data, takes_stat_sn }) => {
                let whole = (*header, Data::Own(std::mem::take(data)), *takes_stat_sn);
                self.owed.pop_front();
                whole
            }
            Some(Owed::Read { tag, left, offset, data_sn }) => {
                let in_burst = agreed.max_burst_bytes - *offset % agreed.max_burst_bytes;
                let bytes = agreed.segment_bytes.min(*left).min(in_burst);
                let (is_last, ends_burst) = (bytes == *left, bytes == in_burst);
                let header = data_in(*tag, *offset, *data_sn, bytes, is_last, is_last || ends_burst);
                (*left, *offset, *data_sn) = (*left - bytes, *offset + bytes, *data_sn + 1);
                if is_last {
                    self.owed.pop_front();
                }
                (header, Data::Part(self.from.take(memory_bytes, bytes), bytes), is_last)
            }
        };
        if takes_stat_sn || pdu::opcode(&header) == pdu::answer::R2T {
            pdu::set_word(&mut header, field::STAT_SN, self.stat_sn);
        }
        self.stat_sn = self.stat_sn.wrapping_add(takes_stat_sn.into());
        pdu::set_word(&mut header, field::EXPECTED_SN, self.exp_cmd_sn);
        pdu::set_word(&mut header, field::MAX_CMD_SN, self.exp_cmd_sn.wrapping_add(WINDOW - 1));
        self.wire.push(header, data);
        true
    }
}

/// A Data-In; the last one says that all is well (the S bit, and status GOOD).
fn data_in(tag: u32, offset: usize, data_sn: u32, bytes: usize, is_last: bool, is_final: bool) -> Header {
    let mut header = pdu::header(pdu::answer::DATA_IN, tag);
    header[1] = if is_final { FINAL } else { 0 } | u8::from(is_last);
    pdu::set_data_bytes(&mut header, bytes);
    pdu::set_word(&mut header, field::TTT, pdu::RESERVED_TAG);
    pdu::set_word(&mut header, field::DATA_SN, data_sn);
    pdu::set_word(&mut header, field::OFFSET, offset as u32); // below the expected length, which has 32 bits
    header
}
