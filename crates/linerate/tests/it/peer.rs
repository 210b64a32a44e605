//! A small initiator for these tests: blocking sockets around `iscsi::initiator::Session`, one thread, any
//! number of connections. It follows the protocol, exposes all messages of a target, and can be made to stop
//! reading.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use iscsi::initiator::{
    Command, ConnectionId, ConnectionStart, Destination, Event, Failure, Payload, Session,
    SessionConfig, TaskId, TmfId,
};
use iscsi::login::{Attached, InitiatorConfig};
use iscsi::name::Name;
use iscsi::negotiate::{Offers, SessionType};
use iscsi::pdu::{
    AsyncMessage, BHS_BYTES, Cid, Isid, Itt, LogoutReason, Lun, Residual, Sn, TaskAttribute,
    TaskManagementFunction, TaskManagementResult, Tsih,
};

use crate::server::Server;
use crate::wire::{Heard, NoLogin, PATIENCE, Wire};

/// A session.
#[derive(Debug)]
pub(crate) struct Peer {
    session: Session,
    lines: Vec<Line>,
    data: HashMap<TaskId, Data>,
    ended: HashMap<TaskId, Ended>,
    managed: HashMap<TmfId, Option<TaskManagementResult>>,
    pongs: usize,
    texts: Vec<Vec<u8>>,
    /// Received asynchronous messages.
    pub(crate) messages: Vec<AsyncMessage>,
    /// The state after the leading login.
    pub(crate) attached: Attached,
    config: InitiatorConfig,
}

#[derive(Debug)]
struct Line {
    id: ConnectionId,
    wire: Wire,
}

#[derive(Debug, Default)]
struct Data {
    out: Vec<u8>,
    read: Vec<u8>,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The command ended with a status.
    With(Answer),
    /// The command ended without a status.
    Without(Failure),
}

/// A command's status, and its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u8,
    pub(crate) sense: Box<[u8]>,
    pub(crate) data: Vec<u8>,
    pub(crate) residual: Residual,
}

/// The data transfer of a command.
#[derive(Clone, Debug, Default)]
pub(crate) enum Moves {
    /// The command transfers no data.
    #[default]
    Nothing,
    /// This number of bytes from the target.
    In(u32),
    /// These bytes to the target.
    Out(Vec<u8>),
}

/// Bytes in a block of the volumes of these tests.
pub(crate) const BLOCK: usize = 512;

/// The parameters of the initiator with this number. Different numbers have different ISIDs of one initiator
/// name.
pub(crate) fn initiator(target: Option<&str>, number: u8) -> InitiatorConfig {
    let name = |name: &str| Name::new(name).expect("an iSCSI name");
    InitiatorConfig {
        initiator_name: name("iqn.2026-01.com.example:peer"),
        target_name: target.map(name),
        session_type: if target.is_some() {
            SessionType::Normal
        } else {
            SessionType::Discovery
        },
        isid: Isid([0x80, 0x12, 0x34, 0, 0, number]), // the "random" format
        tsih: Tsih::NEW,
        cid: Cid(0),
        itt: Itt::new(7).expect("a tag"),
        cmd_sn: Sn(100),
        chap: None,
        offers: Offers {
            max_connections: 8,
            ..Offers::of_initiator()
        },
        session: None,
    }
}

impl Peer {
    /// Logs in to a volume's target and consumes the initial unit attention.
    pub(crate) fn attach(server: &Server, volume: &str, number: u8) -> Peer {
        Peer::log_in(server, initiator(Some(&server.target_name(volume)), number))
            .expect("a session")
            .ready()
    }

    /// Logs in with these parameters.
    pub(crate) fn log_in(server: &Server, config: InitiatorConfig) -> Result<Peer, NoLogin> {
        Peer::log_in_at(&server.portal(), config)
    }

    /// Like [`Peer::log_in`], at any address, `host:port`.
    pub(crate) fn log_in_at(portal: &str, config: InitiatorConfig) -> Result<Peer, NoLogin> {
        let mut wire = Wire::connect(portal);
        let attached = *wire.log_in(config.clone())?;
        let mut session = Session::new(SessionConfig::new(&attached));
        let id =
            session.add_connection(Instant::now(), config.cid, ConnectionStart::new(&attached));
        Ok(Peer {
            session,
            lines: vec![Line { id, wire }],
            data: HashMap::new(),
            ended: HashMap::new(),
            managed: HashMap::new(),
            pongs: 0,
            texts: Vec::new(),
            messages: Vec::new(),
            attached,
            config,
        })
    }

    /// Sends TEST UNIT READY to LUN 0 until no unit attention is pending.
    pub(crate) fn ready(mut self) -> Peer {
        let attentions = (0..8).find(|_| self.test_ready().is_good());
        assert!(attentions.is_some(), "LUN 0 is not ready");
        self
    }

    /// Adds a connection to the session.
    pub(crate) fn join(&mut self, server: &Server, cid: u16) -> Result<(), NoLogin> {
        let config = InitiatorConfig {
            tsih: self.attached.tsih,
            cid: Cid(cid),
            cmd_sn: self.session.cmd_sn(),
            session: Some(self.attached.parameters.clone()),
            ..self.config.clone()
        };
        let mut wire = Wire::connect(&server.portal());
        let attached = wire.log_in(config)?;
        let id =
            self.session
                .add_connection(Instant::now(), Cid(cid), ConnectionStart::new(&attached));
        self.lines.push(Line { id, wire });
        Ok(())
    }

    /// Holds back everything that one connection sends from now on, until [`Peer::release`].
    pub(crate) fn hold(&mut self, line: usize) {
        self.lines[line].wire.hold();
    }

    pub(crate) fn release(&mut self, line: usize) {
        self.lines[line]
            .wire
            .release()
            .expect("a connection that is open");
    }

    /// Sends the first of the held PDUs: one PDU without data.
    pub(crate) fn release_one(&mut self, line: usize) -> bool {
        self.lines[line].wire.release_some(BHS_BYTES)
    }

    /// Drops a connection silently.
    pub(crate) fn cut(&mut self, line: usize) {
        let line = self.lines.remove(line);
        self.session.remove_connection(Instant::now(), line.id);
        self.speak();
        self.note_events();
    }

    /// Returns the first connection: messages of the target are no longer processed on it.
    pub(crate) fn abandon(mut self) -> Wire {
        self.lines.remove(0).wire
    }

    /// SendTargets: the answer's text.
    pub(crate) fn targets(&mut self, which: &str) -> String {
        assert!(
            self.session.send_targets(self.lines[0].id, which),
            "a text that may be sent"
        );
        self.speak();
        let text = self
            .until(PATIENCE, |peer| peer.texts.pop())
            .expect("an answer");
        String::from_utf8(text).expect("UTF-8")
    }

    /// The number of the session's connections.
    pub(crate) fn connections(&self) -> usize {
        self.lines.len()
    }

    /// Sends a command to LUN 0 over the connection with this index, without waiting.
    pub(crate) fn begin(&mut self, line: usize, cdb: &[u8], moves: Moves) -> TaskId {
        self.begin_at(line, Lun(0), cdb, moves)
    }

    /// Like [`Peer::begin`], for any LUN.
    pub(crate) fn begin_at(&mut self, line: usize, lun: Lun, cdb: &[u8], moves: Moves) -> TaskId {
        let data = match moves {
            Moves::Nothing => Data::default(),
            Moves::In(bytes) => Data {
                read: vec![0; bytes as usize],
                ..Data::default()
            },
            Moves::Out(out) => Data {
                out,
                ..Data::default()
            },
        };
        let command = Command {
            lun,
            cdb,
            attribute: TaskAttribute::Simple,
            read_bytes: data.read.len() as u32,
            write_bytes: data.out.len() as u32,
        };
        while !self.session.can_submit() {
            assert!(self.step(PATIENCE), "the command window stays closed");
        }
        let task = self
            .session
            .submit(Instant::now(), self.lines[line].id, &command)
            .expect("a command that is taken");
        self.data.insert(task, data);
        self.speak();
        task
    }

    /// Waits for the end of a command; `None` if it does not end within this time.
    pub(crate) fn end_within(&mut self, task: TaskId, within: Duration) -> Option<Ended> {
        self.until(within, |peer| peer.ended.remove(&task))
    }

    /// Waits for the end of a command. Fails if it does not end.
    pub(crate) fn end(&mut self, task: TaskId) -> Ended {
        self.end_within(task, PATIENCE)
            .expect("a command that ends")
    }

    /// The status of a command, which must end with one.
    pub(crate) fn answer(&mut self, task: TaskId) -> Answer {
        match self.end(task) {
            Ended::With(answer) => answer,
            Ended::Without(why) => panic!("no status: {why:?}"),
        }
    }

    /// Runs a command on LUN 0 to its end.
    pub(crate) fn run(&mut self, cdb: &[u8], moves: Moves) -> Answer {
        let task = self.begin(0, cdb, moves);
        self.answer(task)
    }

    pub(crate) fn test_ready(&mut self) -> Answer {
        self.run(&[0; 6], Moves::Nothing)
    }

    /// Writes blocks, which must succeed.
    pub(crate) fn write(&mut self, lba: u32, data: &[u8]) {
        self.run(&write_10(lba, data.len(), false), Moves::Out(data.to_vec()))
            .expect_good();
    }

    /// Reads blocks, which must succeed.
    pub(crate) fn read(&mut self, lba: u32, blocks: usize) -> Vec<u8> {
        self.run(&read_10(lba, blocks), Moves::In((blocks * BLOCK) as u32))
            .expect_good()
    }

    /// Pings, and waits for the response.
    pub(crate) fn ping(&mut self) {
        let before = self.pongs;
        assert!(
            self.session
                .ping(self.lines[0].id, b"are you there?")
                .is_some(),
            "a ping that may be sent"
        );
        self.speak();
        self.until(PATIENCE, |peer| (peer.pongs > before).then_some(()))
            .expect("a pong");
    }

    /// Aborts a command, and returns the target's response.
    pub(crate) fn abort(&mut self, task: TaskId) -> TaskManagementResult {
        let tmf = self
            .session
            .abort_task(Instant::now(), task)
            .expect("a task to abort");
        self.managed(tmf)
    }

    /// Sends a task management function for LUN 0.
    pub(crate) fn manage(&mut self, function: TaskManagementFunction) -> TaskManagementResult {
        self.manage_at(function, Lun(0))
    }

    /// Like [`Peer::manage`], for any LUN.
    pub(crate) fn manage_at(
        &mut self,
        function: TaskManagementFunction,
        lun: Lun,
    ) -> TaskManagementResult {
        let id = self.lines[0].id;
        let tmf = self
            .session
            .manage(Instant::now(), id, function, lun)
            .expect("room for a function");
        self.managed(tmf)
    }

    /// Sends a function for LUN 0, immediately followed by a command, in one write.
    pub(crate) fn manage_and_begin(
        &mut self,
        function: TaskManagementFunction,
        cdb: &[u8],
        moves: Moves,
    ) -> (TaskManagementResult, TaskId) {
        let id = self.lines[0].id;
        self.hold(0);
        let tmf = self
            .session
            .manage(Instant::now(), id, function, Lun(0))
            .expect("room for a function");
        let task = self.begin(0, cdb, moves);
        self.release(0);
        (self.managed(tmf), task)
    }

    fn managed(&mut self, tmf: TmfId) -> TaskManagementResult {
        self.speak();
        let result = self
            .until(PATIENCE, |peer| peer.managed.remove(&tmf))
            .expect("an answer to a function");
        result.expect("an answer that is not lost")
    }

    /// Logs the session out and waits for the connections to close.
    pub(crate) fn log_out(mut self) {
        let id = self.lines[0].id;
        assert!(
            self.session
                .log_out(Instant::now(), id, LogoutReason::CloseSession),
            "a logout may be sent"
        );
        self.speak();
        assert!(
            self.hear_the_end(PATIENCE),
            "a logout that is answered and closes the session"
        );
    }

    /// Waits for all connections to close; returns whether they did.
    pub(crate) fn hear_the_end(&mut self, within: Duration) -> bool {
        self.until(within, |peer| peer.lines.is_empty().then_some(()))
            .is_some()
    }

    /// Waits for an asynchronous message.
    pub(crate) fn message(&mut self) -> AsyncMessage {
        self.until(PATIENCE, |peer| peer.messages.pop())
            .expect("an asynchronous message")
    }

    fn until<T>(
        &mut self,
        within: Duration,
        mut what: impl FnMut(&mut Peer) -> Option<T>,
    ) -> Option<T> {
        let until = Instant::now() + within;
        loop {
            if let Some(found) = what(self) {
                return Some(found);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.step(left) {
                return what(self);
            }
        }
    }

    /// Sends all pending PDUs.
    fn speak(&mut self) {
        for Line { id, wire } in &mut self.lines {
            while let Some(pdu) = self.session.poll_transmit(Instant::now(), *id) {
                let data = match pdu.payload {
                    Payload::None => Vec::new(),
                    Payload::Inline(bytes) => bytes,
                    Payload::Task {
                        task,
                        offset,
                        length,
                    } => self.data[&task].out[offset as usize..][..length as usize].to_vec(),
                };
                // A closed connection is detected when it is read.
                let _ = wire.send_with(&pdu.header, &pdu.ahs, &data);
            }
        }
    }

    /// Receives one PDU from each connection, and responds. `false` when there is nothing left to read from.
    fn step(&mut self, within: Duration) -> bool {
        let each = if self.lines.len() > 1 {
            within.min(Duration::from_millis(1))
        } else {
            within
        };
        for index in (0..self.lines.len()).rev() {
            match self.lines[index].wire.hear(each) {
                Heard::Pdu(bhs, data) => self.take(index, &bhs, &data),
                Heard::Closed => {
                    let line = self.lines.remove(index);
                    self.session.remove_connection(Instant::now(), line.id);
                }
                Heard::Nothing => {}
            }
        }
        self.note_events();
        self.speak();
        !self.lines.is_empty()
    }

    fn take(&mut self, index: usize, bhs: &iscsi::pdu::Bhs, data: &[u8]) {
        let (id, now) = (self.lines[index].id, Instant::now());
        let segment = self
            .session
            .handle_header(now, id, bhs, &[])
            .expect("a target that keeps to the rules");
        let inline = match segment.destination {
            Destination::None => return,
            Destination::Inline => data,
            Destination::Task { task, offset } => {
                if let Some(place) = self.data.get_mut(&task) {
                    place.read[offset as usize..][..data.len()].copy_from_slice(data);
                }
                &[]
            }
            Destination::Discard => &[],
        };
        self.session
            .handle_segment(now, id, true, inline)
            .expect("a target that keeps to the rules");
    }

    fn note_events(&mut self) {
        while let Some(event) = self.session.poll_event() {
            match event {
                Event::Done {
                    task,
                    status,
                    sense,
                    residual,
                    data_in_bytes,
                    ..
                } => {
                    let mut data = self.data.remove(&task).unwrap_or_default().read;
                    data.truncate(data_in_bytes as usize);
                    self.ended.insert(
                        task,
                        Ended::With(Answer {
                            status,
                            sense,
                            data,
                            residual,
                        }),
                    );
                }
                Event::Failed { task, why } => {
                    self.data.remove(&task);
                    self.ended.insert(task, Ended::Without(why));
                }
                Event::Managed { tmf, result } => drop(self.managed.insert(tmf, result)),
                Event::Pong { .. } => self.pongs += 1,
                Event::Message { message, .. } => self.messages.push(message),
                Event::Text { text, .. } => self.texts.push(text),
                Event::LoggedOut { .. } | Event::Close { .. } => {}
            }
        }
    }
}

impl Answer {
    pub(crate) fn is_good(&self) -> bool {
        self.status == 0
    }

    /// The data of a command, which must have succeeded.
    pub(crate) fn expect_good(self) -> Vec<u8> {
        assert!(self.is_good(), "{self:02x?}");
        self.data
    }

    /// The sense key; 0 without sense data.
    pub(crate) fn sense_key(&self) -> u8 {
        match self.sense.first().map(|code| code & 0x7f) {
            Some(0x70 | 0x71) => self.sense[2] & 0x0f, // fixed format, SPC-4 4.5.3
            Some(0x72 | 0x73) => self.sense[1] & 0x0f, // descriptor format, SPC-4 4.5.2
            _ => 0,
        }
    }
}

/// READ (10) of this number of blocks.
pub(crate) fn read_10(lba: u32, blocks: usize) -> [u8; 10] {
    transfer_10(0x28, lba, blocks, false)
}

/// WRITE (10) of this number of bytes, optionally with FUA.
pub(crate) fn write_10(lba: u32, bytes: usize, fua: bool) -> [u8; 10] {
    transfer_10(0x2a, lba, bytes / BLOCK, fua)
}

/// SYNCHRONIZE CACHE (10) of the whole medium.
pub(crate) const SYNCHRONIZE_CACHE: [u8; 10] = [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn transfer_10(operation: u8, lba: u32, blocks: usize, fua: bool) -> [u8; 10] {
    let mut cdb = [0; 10];
    cdb[0] = operation;
    cdb[1] = if fua { 0x08 } else { 0 };
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[7..9].copy_from_slice(&(blocks as u16).to_be_bytes());
    cdb
}
