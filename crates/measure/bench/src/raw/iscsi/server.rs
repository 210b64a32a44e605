//! The half that answers.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use reactor::{InSlice, Stream};

use super::answers::{self, Answer};
use super::login::{self, Agreed};
use super::owed::{Outbox, WINDOW};
use super::pdu::{self, FINAL, HEADER_BYTES, Header, answer, field, request};
use super::{Disk, Round, SEGMENT_BYTES};
use crate::raw::unless_blocked;

/// Answers an initiator until it logs out or ends the stream. Connections of one thread may share the disk.
///
/// Fails with what the socket says, and with `InvalidData` if what comes is no iSCSI or more than a window of writes.
pub async fn serve(stream: &dyn Stream, disk: &Disk) -> io::Result<()> {
    let mut connection = Connection::new(disk);
    for turn in 1_u64.. {
        if turn.is_multiple_of(TURNS) {
            reactor::yield_now().await;
        }
        let received = connection.receive(stream)?;
        let sent = connection.outbox.send(stream, &disk.memory, &connection.agreed)?;
        match received {
            Received::End => return Ok(()),
            _ if connection.ends && connection.outbox.is_empty() => return Ok(()),
            Received::Nothing if !sent => connection.idle(stream).await?,
            Received::Nothing | Received::Something => {}
        }
    }
    Ok(())
}

/// One that always has something to ask keeps the others of this thread waiting for so many turns.
const TURNS: u64 = 16;
/// Keys of a login, or what a ping says.
const TEXT_BYTES_MAX: usize = 16 << 10;

enum Received {
    Something,
    Nothing,
    End,
}

struct Connection<'a> {
    disk: &'a Disk,
    agreed: Agreed,
    is_logged_in: bool,
    /// Nothing more is listened to: it has logged out, or was refused.
    ends: bool,
    header: Header,
    header_bytes: usize,
    /// What comes behind the header and has not come yet.
    behind: usize,
    /// Of a PDU whose data are words for us: a login's keys, a ping.
    text: Vec<u8>,
    writes: Vec<Write>,
    outbox: Outbox,
    /// Where commands are received, as long as no data come with them.
    scratch: Vec<u8>,
    /// Whether data came the last time: then the next ones are received into the disk's memory.
    gets_data: bool,
    into: Round,
}

/// A WRITE that waits for data.
struct Write {
    tag: u32,
    left: usize,
    offset: usize,
    r2ts: u32,
}

impl<'a> Connection<'a> {
    fn new(disk: &'a Disk) -> Connection<'a> {
        Connection {
            disk,
            agreed: Agreed::default(),
            is_logged_in: false,
            ends: false,
            header: [0; HEADER_BYTES],
            header_bytes: 0,
            behind: 0,
            text: Vec::new(),
            writes: Vec::new(),
            outbox: Outbox::new(),
            scratch: vec![0; SEGMENT_BYTES],
            gets_data: false,
            into: Round::default(),
        }
    }

    /// Something came, or what is owed can be sent.
    async fn idle(&self, stream: &dyn Stream) -> io::Result<()> {
        poll_fn(|cx| {
            let readable = !self.outbox.is_full() && !self.ends && stream.poll_readable(cx).is_ready();
            let writable = !self.outbox.is_empty() && stream.poll_writable(cx).is_ready();
            if readable || writable { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }

    fn receive(&mut self, stream: &dyn Stream) -> io::Result<Received> {
        if self.outbox.is_full() || self.ends {
            return Ok(Received::Nothing);
        }
        let memory = self.disk.memory.bytes();
        let at = self.gets_data.then(|| self.into.take(memory.len(), SEGMENT_BYTES));
        let slice = match at {
            Some(at) => InSlice::Shared(&memory[at..at + SEGMENT_BYTES]),
            None => InSlice::Bytes(&mut self.scratch),
        };
        let read = unless_blocked(stream.try_read(&mut [slice]))?;
        if let Some(at) = at {
            self.into = Round(at + read.unwrap_or(0));
        }
        match read {
            None => Ok(Received::Nothing),
            Some(0) => Ok(Received::End),
            Some(bytes) => self.take(at, bytes).map(|()| Received::Something),
        }
    }

    /// Goes through what was received, at a place of the memory or in the scratch.
    fn take(&mut self, place: Option<usize>, bytes: usize) -> io::Result<()> {
        let mut at = 0;
        self.gets_data = false;
        while at < bytes && !self.ends {
            if self.behind > 0 {
                let part = self.behind.min(bytes - at);
                self.take_behind(place, at, part)?;
                at += part;
            } else {
                let part = (HEADER_BYTES - self.header_bytes).min(bytes - at);
                let mut piece = [0; HEADER_BYTES];
                self.load(place, at, &mut piece[..part]);
                self.header[self.header_bytes..][..part].copy_from_slice(&piece[..part]);
                self.header_bytes += part;
                at += part;
                if self.header_bytes < HEADER_BYTES {
                    return Ok(());
                }
                self.behind = pdu::bytes_behind(&self.header);
            }
            if self.behind == 0 {
                self.header_bytes = 0;
                let header = self.header;
                self.carry_out(&header)?;
                self.text.clear();
            }
        }
        Ok(())
    }

    fn load(&self, place: Option<usize>, at: usize, into: &mut [u8]) {
        match place {
            Some(place) => self.disk.memory.load(place + at, into),
            None => into.copy_from_slice(&self.scratch[at..at + into.len()]),
        }
    }

    fn take_behind(&mut self, place: Option<usize>, at: usize, part: usize) -> io::Result<()> {
        self.behind -= part;
        if matches!(pdu::opcode(&self.header), request::COMMAND | request::DATA_OUT) {
            self.gets_data = true; // and is where it belongs
            return Ok(());
        }
        if self.text.len() + part > TEXT_BYTES_MAX {
            return Err(invalid("more text than anybody has to say"));
        }
        let mut piece = vec![0; part];
        self.load(place, at, &mut piece);
        self.text.extend(piece);
        Ok(())
    }

    /// A PDU is whole.
    fn carry_out(&mut self, header: &Header) -> io::Result<()> {
        let opcode = pdu::opcode(header);
        let tag = pdu::word(header, field::ITT);
        if opcode == request::LOGIN && !self.is_logged_in {
            return self.log_in(header);
        }
        if !self.is_logged_in {
            return Err(invalid("something else than a login"));
        }
        if header[0] & pdu::IMMEDIATE == 0 && opcode != request::DATA_OUT {
            self.outbox.exp_cmd_sn = pdu::word(header, field::CMD_SN).wrapping_add(1);
        }
        match opcode {
            request::COMMAND => self.command(header, tag)?,
            request::DATA_OUT => self.data_out(header, tag)?,
            request::NOP_OUT if tag == pdu::RESERVED_TAG => {} // an answer to nothing that was asked here
            request::NOP_OUT => self.pong(header, tag),
            request::TASK_MANAGEMENT => {
                self.outbox.push(pdu::header(answer::TASK_MANAGEMENT, tag), Vec::new());
            }
            request::LOGOUT => {
                self.outbox.push(pdu::header(answer::LOGOUT, tag), Vec::new());
                self.ends = true;
            }
            _ => self.reject(header),
        }
        Ok(())
    }

    fn log_in(&mut self, header: &Header) -> io::Result<()> {
        const CONTINUE: u8 = 0x40;
        const FULL_FEATURE_PHASE: u8 = 3;
        let mut said = pdu::header(answer::LOGIN, pdu::word(header, field::ITT));
        said[8..16].copy_from_slice(&header[8..16]); // ISID, and the session's handle, which we give below
        self.outbox.exp_cmd_sn = pdu::word(header, field::CMD_SN);
        if header[14..16] != [0, 0] {
            said[1] = 0;
            said[36..38].copy_from_slice(&[2, 0x0a]); // no such session: each has one connection here
            self.ends = true;
            self.outbox.push(said, Vec::new());
            return Ok(());
        }
        let mut answer = self.agreed.answer(&self.text)?;
        if self.text.starts_with(b"TargetName=") || contains(&self.text, b"\0TargetName=") {
            login::append(&mut answer, "TargetPortalGroupTag", "1");
        }
        said[1] = header[1] & !CONTINUE;
        if said[1] & FINAL != 0 && said[1] & 3 == FULL_FEATURE_PHASE {
            said[14..16].copy_from_slice(&[0, 1]);
            self.is_logged_in = true;
        } else if said[1] & FINAL == 0 {
            said[1] &= 0x0c; // a stage that goes on names no next one
        }
        self.say(said, answer);
        Ok(())
    }

    fn command(&mut self, header: &Header, tag: u32) -> io::Result<()> {
        let expected = pdu::word(header, field::EDTL) as usize;
        let mut cdb = [0; 16];
        cdb.copy_from_slice(&header[32..48]);
        match answers::of(&cdb, self.disk.blocks) {
            Answer::Read if expected > 0 => self.outbox.push_read(tag, expected),
            Answer::Read => self.respond(tag),
            Answer::Write => {
                let came = pdu::data_bytes(header).min(expected);
                let write = Write { tag, left: expected - came, offset: came, r2ts: 0 };
                self.go_on(write, header[1] & FINAL != 0)?;
            }
            Answer::Data(data) if data.is_empty() => self.respond(tag),
            Answer::Data(data) => self.data_in(tag, data, expected),
            Answer::Unknown => {
                let mut said = pdu::header(answer::RESPONSE, tag);
                said[3] = 2; // CHECK CONDITION
                self.say(said, [&[0, answers::SENSE.len() as u8], &answers::SENSE[..]].concat());
            }
        }
        Ok(())
    }

    /// More of a WRITE. Its sender says when it is the other side's turn.
    fn data_out(&mut self, header: &Header, tag: u32) -> io::Result<()> {
        let Some(at) = self.writes.iter().position(|write| write.tag == tag) else { return Ok(()) };
        let mut write = self.writes.swap_remove(at);
        let came = pdu::data_bytes(header).min(write.left);
        write.left -= came;
        write.offset += came;
        self.go_on(write, header[1] & FINAL != 0)
    }

    /// Answers a WRITE that has all its data, and asks for more of it if none come by themselves.
    fn go_on(&mut self, mut write: Write, is_our_turn: bool) -> io::Result<()> {
        if write.left == 0 {
            self.respond(write.tag);
            return Ok(());
        }
        if is_our_turn {
            let mut r2t = pdu::header(answer::R2T, write.tag);
            pdu::set_word(&mut r2t, field::TTT, write.tag & 0x7fff_ffff); // any but the reserved one
            pdu::set_word(&mut r2t, field::DATA_SN, write.r2ts);
            pdu::set_word(&mut r2t, field::OFFSET, write.offset as u32); // below the expected length: 32 bits
            pdu::set_word(&mut r2t, field::LENGTH, write.left.min(self.agreed.max_burst_bytes) as u32);
            self.outbox.push_r2t(r2t);
            write.r2ts += 1;
        }
        if self.writes.len() >= WINDOW as usize {
            return Err(invalid("more writes than a window has room for"));
        }
        self.writes.push(write);
        Ok(())
    }

    /// Status GOOD.
    fn respond(&mut self, tag: u32) {
        self.outbox.push(pdu::header(answer::RESPONSE, tag), Vec::new());
    }

    fn data_in(&mut self, tag: u32, mut data: Vec<u8>, expected: usize) {
        const STATUS: u8 = 0x01;
        const UNDERFLOW: u8 = 0x02;
        data.truncate(expected);
        let mut said = pdu::header(answer::DATA_IN, tag);
        said[1] |= STATUS;
        pdu::set_word(&mut said, field::TTT, pdu::RESERVED_TAG);
        if data.len() < expected {
            said[1] |= UNDERFLOW;
            pdu::set_word(&mut said, field::LENGTH, (expected - data.len()) as u32); // both have 32 bits
        }
        self.say(said, data);
    }

    fn pong(&mut self, header: &Header, tag: u32) {
        let mut said = pdu::header(answer::NOP_IN, tag);
        said[8..16].copy_from_slice(&header[8..16]); // the LUN
        pdu::set_word(&mut said, field::TTT, pdu::RESERVED_TAG);
        let mut ping = std::mem::take(&mut self.text);
        ping.truncate(pdu::data_bytes(header).min(self.agreed.segment_bytes));
        self.say(said, ping);
    }

    fn reject(&mut self, header: &Header) {
        const COMMAND_NOT_SUPPORTED: u8 = 0x05;
        let mut said = pdu::header(answer::REJECT, pdu::RESERVED_TAG);
        said[2] = COMMAND_NOT_SUPPORTED;
        self.say(said, header.to_vec());
    }

    fn say(&mut self, mut header: Header, mut data: Vec<u8>) {
        pdu::set_data_bytes(&mut header, data.len());
        data.resize(pdu::padded(data.len()), 0);
        self.outbox.push(header, data);
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
