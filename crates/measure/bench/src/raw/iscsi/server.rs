//! The half that answers.

use std::future::poll_fn;
use std::io;
use std::num::NonZeroU32;
use std::task::Poll;

use iscsi::login::{
    Acceptance, Admission, AdmissionRequest, Grant, LOGIN_TEXT_BYTES_MAX, TargetEvent, TargetLogin,
    TargetPolicy,
};
use iscsi::negotiate::SessionType;
use iscsi::pdu::{
    BHS_BYTES, Bhs, DataIn, DataInStatus, DataOut, Itt, LoginStatus, LogoutRequest, LogoutResponse,
    LogoutResult, Lun, NopIn, NopOut, Opcode, R2t, Reject, RejectReason, Residual, Response, ScsiCommand,
    ScsiResponse, TaskManagementRequest, TaskManagementResponse, TaskManagementResult, TextRequest, Tsih,
    Ttt,
};
use iscsi::serial::Sn;
use reactor::{InSlice, Stream};
use scsi::{Condition, SenseFormat, SenseKey, asc, status};

use super::answers::{self, Answer};
use super::owed::{Outbox, WINDOW};
use super::{Disk, Round, SEGMENT_BYTES, bytes_behind, invalid};
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
        let sent = connection.outbox.send(stream, &disk.memory)?;
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

enum Received {
    Something,
    Nothing,
    End,
}

struct Connection<'a> {
    disk: &'a Disk,
    /// Until the connection is in full feature phase.
    login: Option<TargetLogin>,
    /// Nothing more is listened to: it has logged out, or was refused.
    ends: bool,
    bhs: Bhs,
    bhs_bytes: usize,
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
    itt: Itt,
    left: u32,
    offset: u32,
    r2t_sn: Sn,
}

impl<'a> Connection<'a> {
    fn new(disk: &'a Disk) -> Connection<'a> {
        Connection {
            disk,
            login: Some(TargetLogin::new(TargetPolicy { first_stat_sn: Sn(1) })),
            ends: false,
            bhs: Bhs([0; BHS_BYTES]),
            bhs_bytes: 0,
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
                let part = (BHS_BYTES - self.bhs_bytes).min(bytes - at);
                let mut piece = [0; BHS_BYTES];
                self.load(place, at, &mut piece[..part]);
                self.bhs.0[self.bhs_bytes..][..part].copy_from_slice(&piece[..part]);
                self.bhs_bytes += part;
                at += part;
                if self.bhs_bytes < BHS_BYTES {
                    return Ok(());
                }
                self.behind = bytes_behind(&self.bhs);
            }
            if self.behind == 0 {
                self.bhs_bytes = 0;
                let bhs = self.bhs;
                self.carry_out(&bhs)?;
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
        if matches!(self.bhs.opcode(), Some(Opcode::ScsiCommand | Opcode::DataOut)) {
            self.gets_data = true; // and is where it belongs
            return Ok(());
        }
        if self.text.len() + part > LOGIN_TEXT_BYTES_MAX {
            return Err(invalid("more text than anybody has to say"));
        }
        let mut piece = vec![0; part];
        self.load(place, at, &mut piece);
        self.text.extend(piece);
        Ok(())
    }

    /// A PDU is whole.
    fn carry_out(&mut self, bhs: &Bhs) -> io::Result<()> {
        if let Some(login) = self.login.take() {
            return self.log_in(login, bhs);
        }
        match bhs.opcode() {
            Some(Opcode::ScsiCommand) => self.command(&ScsiCommand::parse(bhs).map_err(invalid)?)?,
            Some(Opcode::DataOut) => self.data_out(&DataOut::parse(bhs).map_err(invalid)?)?,
            Some(Opcode::NopOut) => self.pong(&NopOut::parse(bhs).map_err(invalid)?),
            Some(Opcode::TaskManagementRequest) => {
                let request = TaskManagementRequest::parse(bhs).map_err(invalid)?;
                self.heed(request.cmd_sn, request.immediate);
                let numbers = self.outbox.status_numbers();
                let result = TaskManagementResult::FunctionComplete;
                let itt = request.itt;
                let response = TaskManagementResponse { result, itt, numbers };
                self.outbox.push(response.emit(), Vec::new());
            }
            Some(Opcode::LogoutRequest) => self.log_out(&LogoutRequest::parse(bhs).map_err(invalid)?),
            Some(Opcode::TextRequest) => {
                let request = TextRequest::parse(bhs).map_err(invalid)?;
                self.heed(request.cmd_sn, request.immediate);
                self.reject(bhs);
            }
            _ => self.reject(bhs),
        }
        Ok(())
    }

    /// The next number expected, whatever came before.
    fn heed(&mut self, cmd_sn: Sn, immediate: bool) {
        if !immediate {
            self.outbox.exp_cmd_sn = cmd_sn.next();
        }
    }

    /// Accepts every login, for any target.
    fn log_in(&mut self, mut login: TargetLogin, bhs: &Bhs) -> io::Result<()> {
        self.text.truncate(bhs.data_segment_length() as usize);
        login.handle_pdu(bhs, &self.text);
        let mut outcome = None;
        while let Some(event) = login.poll_event() {
            match event {
                TargetEvent::Admit(request) => login.admit(admission(&request)),
                TargetEvent::SessionNeeded(session) => login.grant(Ok(Grant {
                    tsih: Tsih(1),
                    exp_cmd_sn: session.cmd_sn,
                    max_cmd_sn: session.cmd_sn.plus(WINDOW - 1),
                })),
                TargetEvent::LoggedIn(agreed) => outcome = Some(Ok(agreed)),
                TargetEvent::Failed(cause) => outcome = Some(Err(cause)),
                TargetEvent::Proof { .. } => {} // nothing has to be proved here
            }
        }
        while let Some(transmit) = login.poll_transmit() {
            self.outbox.push(transmit.bhs, transmit.data);
        }
        match outcome {
            None => self.login = Some(login),
            Some(Ok(agreed)) => {
                self.outbox.begin(&agreed);
            }
            // Who is refused is told why.
            Some(Err(_)) if !self.outbox.is_empty() => self.ends = true,
            Some(Err(cause)) => return Err(invalid(cause)),
        }
        Ok(())
    }

    fn log_out(&mut self, request: &LogoutRequest) {
        let numbers = self.outbox.status_numbers();
        let response = LogoutResponse {
            result: LogoutResult::Success,
            itt: request.itt,
            numbers,
            time2wait_s: 0,
            time2retain_s: 0,
        };
        self.outbox.push(response.emit(), Vec::new());
        self.ends = true;
    }

    fn command(&mut self, command: &ScsiCommand) -> io::Result<()> {
        self.heed(command.cmd_sn, command.immediate);
        let (itt, expected) = (command.itt, command.expected_data_transfer_length);
        match answers::of(&command.cdb, self.disk.blocks) {
            Answer::Read if expected > 0 => self.outbox.push_read(itt, expected),
            Answer::Write => {
                let came = command.data_segment_length.min(expected);
                let write = Write { itt, left: expected - came, offset: came, r2t_sn: Sn(0) };
                self.go_on(write, command.is_final)?;
            }
            Answer::Data(data) if !data.is_empty() => self.data_in(itt, data, expected),
            Answer::Read | Answer::Data(_) => self.respond(itt, status::GOOD, Vec::new()),
            Answer::Unknown => {
                let unknown = Condition::new(SenseKey::IllegalRequest, asc::INVALID_COMMAND_OPERATION_CODE);
                let sense = unknown.encode(SenseFormat::Fixed);
                let length = sense.bytes().len() as u16; // some twenty bytes
                let data = [&length.to_be_bytes(), sense.bytes()].concat();
                self.respond(itt, status::CHECK_CONDITION, data);
            }
        }
        Ok(())
    }

    /// More of a WRITE. Its sender says when it is the other side's turn.
    fn data_out(&mut self, data_out: &DataOut) -> io::Result<()> {
        let Some(at) = self.writes.iter().position(|write| write.itt == data_out.itt) else { return Ok(()) };
        let mut write = self.writes.swap_remove(at);
        let came = data_out.data_segment_length.min(write.left);
        write.left -= came;
        write.offset += came;
        self.go_on(write, data_out.is_final)
    }

    /// Answers a WRITE that has all its data, and asks for more of it if none come by themselves.
    fn go_on(&mut self, mut write: Write, is_our_turn: bool) -> io::Result<()> {
        let Some(wanted) = NonZeroU32::new(write.left.min(self.outbox.burst_bytes)) else {
            self.respond(write.itt, status::GOOD, Vec::new());
            return Ok(());
        };
        if is_our_turn {
            let numbers = self.outbox.numbers();
            let r2t = R2t {
                lun: Lun(0),
                itt: write.itt,
                ttt: Ttt::new(write.itt.get() & 0x7fff_ffff).unwrap_or_else(|| {
                    unreachable!("its highest bit is clear, so it is not the reserved tag")
                }),
                numbers,
                r2t_sn: write.r2t_sn,
                buffer_offset: write.offset,
                desired_data_transfer_length: wanted,
            };
            self.outbox.push(r2t.emit(), Vec::new());
            write.r2t_sn = write.r2t_sn.next();
        }
        if self.writes.len() >= WINDOW as usize {
            return Err(invalid("more writes than a window has room for"));
        }
        self.writes.push(write);
        Ok(())
    }

    fn respond(&mut self, itt: Itt, status: u8, sense: Vec<u8>) {
        let numbers = self.outbox.status_numbers();
        let response = ScsiResponse {
            response: Response::Completed,
            status,
            itt,
            snack_tag: 0,
            numbers,
            exp_data_sn: Sn(0),
            residual: Residual::None,
            read_residual: Residual::None,
            data_segment_length: sense.len() as u32, // some twenty bytes
        };
        self.outbox.push(response.emit(), sense);
    }

    fn data_in(&mut self, itt: Itt, mut data: Vec<u8>, expected: u32) {
        data.truncate(expected as usize);
        let length = data.len() as u32; // constants of a few bytes
        let missing = expected - length;
        let numbers = self.outbox.status_numbers();
        let residual = if missing > 0 { Residual::Underflow(missing) } else { Residual::None };
        let data_in = DataIn {
            is_final: true,
            acknowledge: false,
            status: Some(DataInStatus { status: status::GOOD, stat_sn: numbers.stat_sn, residual }),
            lun: Lun(0),
            itt,
            ttt: None,
            exp_cmd_sn: numbers.exp_cmd_sn,
            max_cmd_sn: numbers.max_cmd_sn,
            data_sn: Sn(0),
            buffer_offset: 0,
            data_segment_length: length,
        };
        self.outbox.push(data_in.emit(), data);
    }

    fn pong(&mut self, ping: &NopOut) {
        self.heed(ping.cmd_sn, ping.immediate);
        if ping.itt.is_none() {
            return; // an answer to nothing that was asked here
        }
        let mut data = std::mem::take(&mut self.text);
        data.truncate(ping.data_segment_length.min(self.outbox.segment_bytes) as usize);
        let numbers = self.outbox.status_numbers();
        let pong = NopIn {
            lun: ping.lun,
            itt: ping.itt,
            ttt: None,
            numbers,
            data_segment_length: data.len() as u32, // no more than was sent
        };
        self.outbox.push(pong.emit(), data);
    }

    fn reject(&mut self, refused: &Bhs) {
        let numbers = self.outbox.status_numbers();
        let reject = Reject {
            reason: RejectReason::CommandNotSupported,
            numbers,
            data_sn: Sn(0),
            data_segment_length: BHS_BYTES as u32,
        };
        self.outbox.push(reject.emit(), refused.0.to_vec());
    }
}

/// Each session has one connection here, so a further one has no session to join.
fn admission(request: &AdmissionRequest) -> Admission {
    if request.tsih != Tsih::NEW {
        return Admission::Refuse(LoginStatus::SessionDoesNotExist);
    }
    Admission::Accept(Box::new(Acceptance {
        target_portal_group_tag: (request.session_type == SessionType::Normal).then_some(1),
        authentication: None,
        offers: super::offers(),
        session: None,
        refusal: None,
    }))
}
