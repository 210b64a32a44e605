//! One session of the half that asks.

use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use reactor::{OutSlice, Stream};

use super::BLOCK_BYTES;
use super::client::{Load, Numbers, receive_pdu, send_all};
use super::login::Agreed;
use super::pdu::{self, FINAL, HEADER_BYTES, Header, answer, field, request};
use super::wire::{Data, Wire};
use crate::raw::Direction;
use stats::Latencies;
use stats::Random;

/// A session with equal commands under way, whose tags are 0 to the depth.
pub(super) struct Asking<'a> {
    pub(super) stream: &'a dyn Stream,
    /// Commands that were answered with GOOD.
    pub(super) done: u64,
    /// Of the command with tag 0.
    pub(super) latencies: Latencies,
    watched: Instant,
    agreed: Agreed,
    numbers: Numbers,
    lun: [u8; 8],
    load: Load,
    places: Places,
    /// Tags whose next command is due; more than none for long only while the window is closed.
    due: VecDeque<u32>,
    wire: Wire,
    /// Data that were asked for, and go out before anything else.
    data_out: VecDeque<(Header, Data)>,
    header: Header,
    header_bytes: usize,
    behind: usize,
}

/// Data-Out PDUs that wait: more than any window of commands of one burst each makes.
const DATA_OUT_MAX: usize = 1 << 16;

/// Where the next command goes, in requests from the beginning of the disk.
struct Places {
    random: Option<Random>,
    next: u64,
    count: u64,
}

impl Places {
    fn take(&mut self) -> u64 {
        if let Some(random) = &mut self.random {
            return random.below(self.count);
        }
        let place = self.next % self.count;
        self.next = place + 1;
        place
    }
}

impl<'a> Asking<'a> {
    pub(super) fn new(
        stream: &'a dyn Stream,
        agreed: Agreed,
        numbers: Numbers,
        lun: u16,
        load: Load,
        number: u64,
    ) -> Asking<'a> {
        let count = (load.disk_bytes / u64::from(load.block_bytes.max(1))).max(1);
        let random = load.random.then(|| Random::new(number));
        let mut address = [0; 8];
        address[..2].copy_from_slice(&lun.to_be_bytes()); // peripheral or flat: numbers below 256 are the same
        Asking {
            stream,
            done: 0,
            latencies: Latencies::default(),
            watched: reactor::now(),
            agreed,
            numbers,
            lun: address,
            load,
            places: Places { random, next: number * (count / 16), count },
            due: VecDeque::new(),
            wire: Wire::new(),
            data_out: VecDeque::new(),
            header: [0; HEADER_BYTES],
            header_bytes: 0,
            behind: 0,
        }
    }

    /// A new session may be told once of what has happened before it; that is not the first READ's failure.
    pub(super) async fn clear_unit_attention(&mut self) -> io::Result<()> {
        for _ in 0..3 {
            let (stream, ready) = (self.stream, self.command(0, [0; 16], 0));
            send_all(stream, &ready).await?;
            let (header, _) = receive_pdu(stream).await?;
            self.take_numbers(&header);
            if header[3] == 0 {
                return Ok(());
            }
        }
        Err(io::Error::other("the disk does not get ready"))
    }

    /// Everything is due.
    pub(super) fn begin(&mut self, now: Instant) {
        self.due.extend(0..self.load.depth);
        self.watched = now;
    }

    /// Sends what is due and what the window allows, with `data` behind each WRITE. Whether anything went.
    pub(super) fn send(&mut self, data: &[u8]) -> io::Result<bool> {
        let mut any = false;
        loop {
            while !self.wire.is_full() && self.stage() {}
            let part = |at, length| OutSlice::Bytes(&data[at..at + length]);
            if self.wire.is_empty() || !self.wire.send(self.stream, part)? {
                return Ok(any);
            }
            any = true;
        }
    }

    fn stage(&mut self) -> bool {
        if let Some((header, data)) = self.data_out.pop_front() {
            self.wire.push(header, data);
            return true;
        }
        let window = self.numbers.max_cmd_sn.wrapping_sub(self.numbers.cmd_sn);
        if window > u32::MAX / 2 {
            return false; // MaxCmdSN is behind CmdSN: the window is closed
        }
        let Some(tag) = self.due.pop_front() else { return false };
        let bytes = self.load.block_bytes as usize;
        let (opcode, flags) = match self.load.direction {
            Direction::Read => (0x88, 0x40),
            Direction::Write => (0x8a, 0x20),
        };
        let blocks = u64::from(self.load.block_bytes) / BLOCK_BYTES;
        let mut cdb = [0; 16];
        cdb[0] = opcode;
        cdb[2..10].copy_from_slice(&(self.places.take() * blocks).to_be_bytes());
        cdb[10..14].copy_from_slice(&(blocks as u32).to_be_bytes());
        let mut header = self.command(tag, cdb, bytes);
        header[1] |= flags;
        if self.load.direction == Direction::Read {
            self.wire.push(header, Data::Part(0, 0));
            return true;
        }
        let unasked = self.agreed.first_burst_bytes.min(bytes);
        let immediate = if self.agreed.immediate_data { unasked.min(self.agreed.segment_bytes) } else { 0 };
        let more = !self.agreed.initial_r2t && immediate < unasked;
        if more {
            header[1] &= !FINAL;
        }
        pdu::set_data_bytes(&mut header, immediate);
        self.wire.push(header, Data::Part(0, immediate));
        if more {
            self.give(tag, pdu::RESERVED_TAG, immediate, unasked);
        }
        true
    }

    fn command(&mut self, tag: u32, cdb: [u8; 16], expected: usize) -> Header {
        let mut header = pdu::header(request::COMMAND, tag);
        header[1] |= 1; // a simple task
        header[8..16].copy_from_slice(&self.lun);
        pdu::set_word(&mut header, field::EDTL, expected as u32);
        pdu::set_word(&mut header, field::CMD_SN, self.numbers.cmd_sn);
        pdu::set_word(&mut header, field::EXPECTED_SN, self.numbers.exp_stat_sn);
        header[32..48].copy_from_slice(&cdb);
        self.numbers.cmd_sn = self.numbers.cmd_sn.wrapping_add(1);
        header
    }

    /// Data of a WRITE from one place to another.
    fn give(&mut self, tag: u32, transfer_tag: u32, from: usize, to: usize) {
        let mut at = from;
        let mut data_sn = 0;
        while at < to {
            let bytes = self.agreed.segment_bytes.min(to - at);
            let mut header = pdu::header(request::DATA_OUT, tag);
            header[1] = if at + bytes == to { FINAL } else { 0 };
            header[8..16].copy_from_slice(&self.lun);
            pdu::set_data_bytes(&mut header, bytes);
            pdu::set_word(&mut header, field::TTT, transfer_tag);
            pdu::set_word(&mut header, field::EXPECTED_SN, self.numbers.exp_stat_sn);
            pdu::set_word(&mut header, field::DATA_SN, data_sn);
            pdu::set_word(&mut header, field::OFFSET, at as u32); // within a request, which has 32 bits
            self.data_out.push_back((header, Data::Part(at, bytes)));
            at += bytes;
            data_sn += 1;
        }
    }

    /// Goes through what was received; data are passed over.
    pub(super) fn take(&mut self, mut bytes: &[u8], now: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.behind > 0 {
                let part = self.behind.min(bytes.len());
                self.behind -= part;
                bytes = &bytes[part..];
            } else {
                let part = (HEADER_BYTES - self.header_bytes).min(bytes.len());
                self.header[self.header_bytes..][..part].copy_from_slice(&bytes[..part]);
                self.header_bytes += part;
                bytes = &bytes[part..];
                if self.header_bytes < HEADER_BYTES {
                    return Ok(());
                }
                self.behind = pdu::bytes_behind(&self.header);
            }
            if self.behind == 0 {
                self.header_bytes = 0;
                let header = self.header;
                self.carry_out(&header, now)?;
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, header: &Header, now: Instant) -> io::Result<()> {
        const STATUS: u8 = 0x01;
        let tag = pdu::word(header, field::ITT);
        match pdu::opcode(header) {
            answer::DATA_IN if header[1] & STATUS == 0 => Ok(()),
            answer::DATA_IN | answer::RESPONSE => {
                self.take_numbers(header);
                if header[3] != 0 {
                    return Err(io::Error::other(format!(
                        "a command was answered by SCSI status {:#04x}",
                        header[3]
                    )));
                }
                self.done += 1;
                if tag == 0 {
                    let took = now.saturating_duration_since(self.watched);
                    self.latencies.record(took.as_nanos() as u64); // centuries would not fit
                    self.watched = now;
                }
                self.due.push_back(tag);
                Ok(())
            }
            answer::R2T => {
                let (from, length) = (pdu::word(header, field::OFFSET), pdu::word(header, field::LENGTH));
                let to = u64::from(from) + u64::from(length);
                let is_ours = to <= u64::from(self.load.block_bytes) && tag < self.load.depth;
                if !is_ours || self.data_out.len() > DATA_OUT_MAX {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "an R2T for what nobody has"));
                }
                self.give(tag, pdu::word(header, field::TTT), from as usize, to as usize);
                Ok(())
            }
            answer::NOP_IN => Ok(()), // whoever is measured for seconds need not say that it lives
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "an answer to nothing that was asked")),
        }
    }

    fn take_numbers(&mut self, header: &Header) {
        self.numbers.exp_stat_sn = pdu::word(header, field::STAT_SN).wrapping_add(1);
        self.numbers.max_cmd_sn = pdu::word(header, field::MAX_CMD_SN);
    }
}
