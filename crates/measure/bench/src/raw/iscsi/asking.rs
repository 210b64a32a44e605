//! One session of the half that asks.

use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use iscsi::login::Attached;
use iscsi::negotiate::Parameters;
use iscsi::pdu::{BHS_BYTES, Bhs, DataIn, DataOut, Itt, Lun, Opcode, R2t, ScsiCommand, ScsiResponse, Ttt};
use iscsi::serial::Sn;
use reactor::{OutSlice, Stream};
use scsi::cdb;

use super::client::{CMD_SN, Load, receive_pdu, send_pdu};
use super::wire::{Data, Wire};
use super::{BLOCK_BYTES, bytes_behind, invalid};
use crate::raw::Direction;
use block::Random;
use stats::Latencies;

/// A session with equal commands under way, whose tags are 0 to the depth.
pub(super) struct Asking<'a> {
    pub(super) stream: &'a dyn Stream,
    /// Commands that were answered with GOOD.
    pub(super) done: u64,
    /// Of the command with tag 0.
    pub(super) latencies: Latencies,
    watched: Instant,
    agreed: Parameters,
    cmd_sn: Sn,
    exp_stat_sn: Sn,
    max_cmd_sn: Sn,
    lun: Lun,
    load: Load,
    places: Places,
    /// Tags whose next command is due; more than none for long only while the window is closed.
    due: VecDeque<Itt>,
    wire: Wire,
    /// Data that were asked for, and go out before anything else.
    data_out: VecDeque<(Bhs, Data)>,
    bhs: Bhs,
    bhs_bytes: usize,
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
        attached: &Attached,
        lun: u16,
        load: Load,
        number: u64,
    ) -> Asking<'a> {
        let count = (load.disk_bytes / u64::from(load.block_bytes.max(1))).max(1);
        let random = load.random.then(|| Random::new(number));
        let mut agreed = attached.parameters.clone();
        agreed.peer_max_recv_data_segment_length &= !3; // whole words: no padding between pieces of a WRITE
        Asking {
            stream,
            done: 0,
            latencies: Latencies::default(),
            watched: reactor::now(),
            agreed,
            cmd_sn: CMD_SN,
            exp_stat_sn: attached.exp_stat_sn,
            max_cmd_sn: attached.max_cmd_sn,
            lun: Lun(u64::from(lun) << 48), // peripheral or flat: numbers below 256 are the same
            load,
            places: Places { random, next: number * (count / 16), count },
            due: VecDeque::new(),
            wire: Wire::new(),
            data_out: VecDeque::new(),
            bhs: Bhs([0; BHS_BYTES]),
            bhs_bytes: 0,
            behind: 0,
        }
    }

    /// A new session may be told once of what has happened before it; that is not the first READ's failure.
    pub(super) async fn clear_unit_attention(&mut self) -> io::Result<()> {
        for _ in 0..3 {
            let ready = self.command(Itt::ZERO, cdb::test_unit_ready(), 0);
            send_pdu(self.stream, &ready.emit(), &[]).await?;
            let (bhs, _) = receive_pdu(self.stream).await?;
            let response = ScsiResponse::parse(&bhs).map_err(invalid)?;
            self.take_numbers(response.numbers.stat_sn, response.numbers.max_cmd_sn);
            if response.status == scsi::status::GOOD {
                return Ok(());
            }
        }
        Err(io::Error::other("the disk does not get ready"))
    }

    /// Everything is due.
    pub(super) fn begin(&mut self, now: Instant) {
        self.due.extend((0..self.load.depth).filter_map(Itt::new));
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
        if let Some((bhs, data)) = self.data_out.pop_front() {
            self.wire.push(bhs, data);
            return true;
        }
        if !self.cmd_sn.le(self.max_cmd_sn) {
            return false; // the window is closed
        }
        let Some(itt) = self.due.pop_front() else { return false };
        let bytes = self.load.block_bytes;
        let blocks = bytes / BLOCK_BYTES as u32;
        let lba = self.places.take() * u64::from(blocks);
        if self.load.direction == Direction::Read {
            let command = self.command(itt, cdb::read_16(lba, blocks), bytes);
            self.wire.push(ScsiCommand { read: true, ..command }.emit(), Data::Part(0, 0));
            return true;
        }
        let agreed = &self.agreed;
        let unasked = agreed.first_burst_length.min(bytes);
        let at_once =
            if agreed.immediate_data { unasked.min(agreed.peer_max_recv_data_segment_length) } else { 0 };
        let is_final = agreed.initial_r2t || at_once == unasked;
        let command = ScsiCommand {
            write: true,
            is_final,
            data_segment_length: at_once,
            ..self.command(itt, cdb::write_16(lba, blocks, false), bytes)
        };
        self.wire.push(command.emit(), Data::Part(0, at_once as usize));
        if !is_final {
            self.give(itt, None, at_once, unasked);
        }
        true
    }

    /// The next command, which moves so many bytes one way or the other.
    fn command(&mut self, itt: Itt, cdb: scsi::Cdb, bytes: u32) -> ScsiCommand {
        let cmd_sn = self.cmd_sn;
        self.cmd_sn = cmd_sn.next();
        ScsiCommand {
            expected_data_transfer_length: bytes,
            exp_stat_sn: self.exp_stat_sn,
            ..ScsiCommand::simple(self.lun, itt, cmd_sn, cdb)
        }
    }

    /// Data of a WRITE from one place to another.
    fn give(&mut self, itt: Itt, ttt: Option<Ttt>, from: u32, to: u32) {
        let mut at = from;
        let mut data_sn = Sn(0);
        while at < to {
            let bytes = self.agreed.peer_max_recv_data_segment_length.min(to - at);
            let data_out = DataOut {
                is_final: at + bytes == to,
                lun: self.lun,
                itt,
                ttt,
                exp_stat_sn: self.exp_stat_sn,
                data_sn,
                buffer_offset: at,
                data_segment_length: bytes,
            };
            self.data_out.push_back((data_out.emit(), Data::Part(at as usize, bytes as usize)));
            at += bytes;
            data_sn = data_sn.next();
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
                let part = (BHS_BYTES - self.bhs_bytes).min(bytes.len());
                self.bhs.0[self.bhs_bytes..][..part].copy_from_slice(&bytes[..part]);
                self.bhs_bytes += part;
                bytes = &bytes[part..];
                if self.bhs_bytes < BHS_BYTES {
                    return Ok(());
                }
                self.behind = bytes_behind(&self.bhs);
            }
            if self.behind == 0 {
                self.bhs_bytes = 0;
                let bhs = self.bhs;
                self.carry_out(&bhs, now)?;
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, bhs: &Bhs, now: Instant) -> io::Result<()> {
        match bhs.opcode() {
            Some(Opcode::DataIn) => {
                let data_in = DataIn::parse(bhs).map_err(invalid)?;
                let Some(end) = data_in.status else { return Ok(()) };
                self.take_numbers(end.stat_sn, data_in.max_cmd_sn);
                self.finish(data_in.itt, end.status, now)
            }
            Some(Opcode::ScsiResponse) => {
                let response = ScsiResponse::parse(bhs).map_err(invalid)?;
                self.take_numbers(response.numbers.stat_sn, response.numbers.max_cmd_sn);
                self.finish(response.itt, response.status, now)
            }
            Some(Opcode::R2t) => {
                let r2t = R2t::parse(bhs).map_err(invalid)?;
                let (from, length) = (r2t.buffer_offset, r2t.desired_data_transfer_length.get());
                let to = from.checked_add(length).filter(|to| *to <= self.load.block_bytes);
                let is_ours = r2t.itt.get() < self.load.depth && self.data_out.len() <= DATA_OUT_MAX;
                let to = to.filter(|_| is_ours).ok_or_else(|| invalid("an R2T for what nobody has"))?;
                self.give(r2t.itt, Some(r2t.ttt), from, to);
                Ok(())
            }
            Some(Opcode::NopIn) => Ok(()), // a measurement lasts seconds: pings need no answer
            _ => Err(invalid("an answer to nothing that was asked")),
        }
    }

    fn finish(&mut self, itt: Itt, status: u8, now: Instant) -> io::Result<()> {
        if status != scsi::status::GOOD {
            return Err(io::Error::other(format!("a command was answered by SCSI status {status:#04x}")));
        }
        self.done += 1;
        if itt == Itt::ZERO {
            let took = now.saturating_duration_since(self.watched);
            self.latencies.record(took.as_nanos() as u64); // centuries would not fit
            self.watched = now;
        }
        self.due.push_back(itt);
        Ok(())
    }

    fn take_numbers(&mut self, stat_sn: Sn, max_cmd_sn: Sn) {
        self.exp_stat_sn = stat_sn.next();
        self.max_cmd_sn = max_cmd_sn;
    }
}
