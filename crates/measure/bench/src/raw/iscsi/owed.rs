//! Answers that are owed.

use std::collections::VecDeque;
use std::io;

use block::Region;
use iscsi::login::LoggedIn;
use iscsi::pdu::{Bhs, DataIn, DataInStatus, Itt, Lun, Residual, TargetNumbers, pad_bytes};
use iscsi::serial::Sn;
use reactor::{OutSlice, Stream};

use super::Round;
use super::wire::{Data, Wire};

/// What goes out in the order in which it was owed.
#[derive(Debug)]
pub(super) struct Outbox {
    owed: VecDeque<Owed>,
    wire: Wire,
    /// Where the data of the next READ come from.
    from: Round,
    /// Of the next status.
    stat_sn: Sn,
    pub(super) exp_cmd_sn: Sn,
    /// The peer's MaxRecvDataSegmentLength and MaxBurstLength in whole words: no padding between pieces of a READ.
    pub(super) segment_bytes: u32,
    pub(super) burst_bytes: u32,
}

/// An answer.
#[derive(Debug)]
enum Owed {
    /// A whole PDU, with its data.
    Whole { bhs: Bhs, data: Vec<u8> },
    /// What is left of a READ.
    Read { itt: Itt, left: u32, offset: u32, data_sn: Sn, numbers: TargetNumbers },
}

/// Answers that wait. An initiator that keeps to its window has fewer; of one that does not, nothing more is received.
const OWED_MAX: usize = 1024;
/// Commands that an initiator may have outstanding: the same as our target's.
pub(super) const WINDOW: u32 = 256;

impl Outbox {
    /// Nothing, before a login.
    pub(super) fn new() -> Outbox {
        Outbox {
            owed: VecDeque::new(),
            wire: Wire::new(),
            from: Round::default(),
            stat_sn: Sn::default(),
            exp_cmd_sn: Sn::default(),
            segment_bytes: 0,
            burst_bytes: 0,
        }
    }

    /// Counts and cuts from now on as a login has agreed.
    pub(super) fn begin(&mut self, agreed: &LoggedIn) {
        (self.stat_sn, self.exp_cmd_sn) = (agreed.stat_sn, agreed.exp_cmd_sn);
        self.segment_bytes = agreed.parameters.peer_max_recv_data_segment_length & !3;
        self.burst_bytes = agreed.parameters.max_burst_length & !3;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.owed.is_empty() && self.wire.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.owed.len() > OWED_MAX
    }

    /// Of a PDU that does not end anything, and only tells the number of the next status.
    pub(super) fn numbers(&self) -> TargetNumbers {
        let (stat_sn, exp_cmd_sn) = (self.stat_sn, self.exp_cmd_sn);
        TargetNumbers { stat_sn, exp_cmd_sn, max_cmd_sn: exp_cmd_sn.plus(WINDOW - 1) }
    }

    /// Of a PDU that ends something.
    pub(super) fn status_numbers(&mut self) -> TargetNumbers {
        let numbers = self.numbers();
        self.stat_sn = numbers.stat_sn.next();
        numbers
    }

    /// A whole PDU, with its data without padding.
    pub(super) fn push(&mut self, bhs: Bhs, mut data: Vec<u8>) {
        data.resize(data.len() + pad_bytes(data.len()), 0);
        self.owed.push_back(Owed::Whole { bhs, data });
    }

    /// The data that a READ expects, and its status.
    pub(super) fn push_read(&mut self, itt: Itt, bytes: u32) {
        let numbers = self.status_numbers();
        self.owed.push_back(Owed::Read { itt, left: bytes, offset: 0, data_sn: Sn(0), numbers });
    }

    /// Sends as much as fits. Whether anything was.
    pub(super) fn send(&mut self, stream: &dyn Stream, memory: &Region) -> io::Result<bool> {
        let bytes = memory.bytes();
        let mut any = false;
        loop {
            while !self.wire.is_full() && self.stage(bytes.len()) {}
            let part = |at, length| OutSlice::Shared(&bytes[at..at + length]);
            if self.wire.is_empty() || !self.wire.send(stream, part)? {
                return Ok(any);
            }
            any = true;
        }
    }

    /// Makes the next PDU ready; whether there was one.
    fn stage(&mut self, memory_bytes: usize) -> bool {
        match self.owed.front_mut() {
            None => return false,
            Some(Owed::Whole { bhs, data }) => {
                self.wire.push(*bhs, Data::Own(std::mem::take(data)));
                self.owed.pop_front();
            }
            Some(Owed::Read { itt, left, offset, data_sn, numbers }) => {
                let in_burst = self.burst_bytes - *offset % self.burst_bytes;
                let bytes = self.segment_bytes.min(*left).min(in_burst);
                let is_last = bytes == *left;
                let piece = DataIn {
                    is_final: is_last || bytes == in_burst,
                    acknowledge: false,
                    status: is_last.then_some(DataInStatus {
                        status: scsi::status::GOOD,
                        stat_sn: numbers.stat_sn,
                        residual: Residual::None,
                    }),
                    lun: Lun(0),
                    itt: *itt,
                    ttt: None,
                    exp_cmd_sn: numbers.exp_cmd_sn,
                    max_cmd_sn: numbers.max_cmd_sn,
                    data_sn: *data_sn,
                    buffer_offset: *offset,
                    data_segment_length: bytes,
                };
                (*left, *offset, *data_sn) = (*left - bytes, *offset + bytes, data_sn.next());
                if is_last {
                    self.owed.pop_front();
                }
                let on_wire = bytes as usize + pad_bytes(bytes as usize);
                self.wire.push(piece.emit(), Data::Part(self.from.take(memory_bytes, on_wire), on_wire));
            }
        }
        true
    }
}
