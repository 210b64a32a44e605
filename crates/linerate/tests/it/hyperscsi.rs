//! Tests of HyperSCSI with a test client, which drives the initiator's state machine over UDP on the loopback
//! and over raw Ethernet between two network namespaces. The scenes cover commands, keys, reservations,
//! restarts and hostile frames. tshark decodes the traffic.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use ::hyperscsi::initiator::{Config, EndReason, Event, RequestId};
use ::hyperscsi::{
    Cipher, Command, ETHERTYPE, FRAME_BYTES_MAX, FRAME_BYTES_MIN, Function, FunctionResult, Header,
    Initiator, Psk, Refusal, Response, discovery,
};
use reactor::{
    DatagramAddress, DatagramBatch, DatagramEndpoint, DatagramOptions, Datagrams, MacAddress,
    OutDatagram, OutSlice,
};

use crate::aoe::{Running, Site, complaints, frames};
use crate::program::{
    LINERATE, PATIENCE, end_of, installed, linerate, run, run_command, says, signal, until,
};
use crate::remote::{self, GOOD, RESERVATION_CONFLICT, attached, in_a_world};
use crate::server::Server;

const SECRET: &str = "a secret of many letters";
const TASK_ABORTED: u8 = 0x40;

const TEXT: &str = r#"
[log]
filter = "warn,audit=info,daemon=info"
[[portal]]
listen = "127.0.0.1:{port}"
[volume.disk]
spec = "file:{state}/disk?size=8MiB"
[volume.other]
spec = "ram:1MiB"
[volume.slow]
spec = "ram:1MiB"
[[target]]
name = "iqn.2026-01.io.linerate:disk"
lun = [{ lun = 0, volume = "disk" }]
[hyperscsi]
listen = ["hyperscsi+udp://127.0.0.1:{port}"]
[[hyperscsi.target]]
name = "disks"
lun = [{ lun = 0, volume = "disk" }, { lun = 1, volume = "slow" }, { lun = 2, volume = "other", initiators = ["host2"] }]
[[hyperscsi.target]]
name = "kept"
initiators = ["host*"]
lun = [{ lun = 0, volume = "disk" }]
key = [{ initiator = "host1", secret = "a secret of many letters" }]
"#;

/// The initiator's end of a session.
pub(crate) struct Client {
    pub(crate) machine: Initiator,
    config: Config,
    datagrams: Box<dyn Datagrams>,
    to: DatagramAddress,
    /// Whether each frame is joined with a preceding frame of the same length that belongs to no session.
    pub(crate) joins: bool,
    batch: DatagramBatch,
    pub(crate) answers: BTreeMap<RequestId, Response>,
    done: BTreeMap<RequestId, FunctionResult>,
    lost: Vec<RequestId>,
    /// All other events of the state machine.
    pub(crate) events: Vec<Event>,
}

impl Client {
    /// Creates a client over UDP on the loopback.
    pub(crate) fn udp(port: u16, config: Config) -> Client {
        let here = DatagramEndpoint::Udp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let there = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Client::at(here, DatagramAddress::Udp(there), config)
    }

    pub(crate) fn at(endpoint: DatagramEndpoint, to: DatagramAddress, config: Config) -> Client {
        let options = DatagramOptions {
            endpoint,
            receive_buffer_bytes: None,
            ring: None,
            payload_bytes_min: 0,
            share: None,
        };
        Client {
            machine: Initiator::new(reactor::now(), config.clone(), seed()),
            config,
            datagrams: reactor::world().datagrams(&options).expect("a socket"),
            to,
            joins: false,
            batch: DatagramBatch::new(64, FRAME_BYTES_MAX),
            answers: BTreeMap::new(),
            done: BTreeMap::new(),
            lost: Vec::new(),
            events: Vec::new(),
        }
    }

    pub(crate) async fn logged_in(mut self) -> Client {
        self.until("a login", |client| !client.events.is_empty())
            .await;
        let events = std::mem::take(&mut self.events);
        let is_sealed = self.config.key.is_some();
        assert!(
            matches!(&events[..], [Event::LoggedIn { is_encrypted, .. }] if *is_encrypted == is_sealed),
            "{events:?}"
        );
        self
    }

    /// Waits for the failure of a login, and returns it.
    async fn refused(mut self) -> Event {
        self.until("a refusal", |client| !client.events.is_empty())
            .await;
        self.events.remove(0)
    }

    pub(crate) fn send(&self, frame: &[u8]) {
        let other = vec![0; frame.len()];
        let payloads = [[OutSlice::Bytes(&other)], [OutSlice::Bytes(frame)]];
        let datagrams = payloads.each_ref().map(|payload| OutDatagram {
            to: self.to,
            payload,
        });
        // A frame that cannot be sent is lost.
        let _ = self.datagrams.try_send(if self.joins {
            &datagrams
        } else {
            &datagrams[1..]
        });
    }

    /// Sends, receives, and waits briefly if there is nothing to receive.
    pub(crate) async fn turn(&mut self) {
        let now = reactor::now();
        if self.machine.poll_timeout().is_some_and(|due| due <= now) {
            self.machine.handle_timeout(now);
        }
        let mut frame = Vec::new();
        while self.machine.poll_transmit(now, &mut frame).is_some() {
            self.send(&frame);
        }
        match self.datagrams.try_receive(&mut self.batch) {
            Ok(count) => {
                for index in 0..count {
                    if let Some((_, frame)) = self.batch.get_mut(index) {
                        self.machine.handle_frame(now, frame);
                    }
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let due = self
                    .machine
                    .poll_timeout()
                    .map_or(MOMENT, |due| due.saturating_duration_since(now));
                let received = poll_fn(|cx| self.datagrams.poll_receivable(cx));
                let _ = reactor::timeout(due.min(MOMENT), received).await;
            }
            Err(error) => panic!("{error}"),
        }
        while let Some(event) = self.machine.poll_event() {
            match event {
                Event::Completed { id, response } => drop(self.answers.insert(id, response)),
                Event::FunctionDone { id, result } => drop(self.done.insert(id, result)),
                Event::Lost { id } => self.lost.push(id),
                event => self.events.push(event),
            }
        }
    }

    pub(crate) async fn until(&mut self, what: &str, is_so: impl Fn(&Client) -> bool) {
        let end = reactor::now() + PATIENCE;
        while !is_so(self) {
            assert!(
                reactor::now() < end,
                "{what} has not come; {:?}",
                self.events
            );
            self.turn().await;
        }
    }

    pub(crate) fn submit(
        &mut self,
        lun: u8,
        cdb: &[u8],
        data_in_bytes: u32,
        data_out: Vec<u8>,
    ) -> RequestId {
        let command = Command {
            lun: [0, lun, 0, 0, 0, 0, 0, 0],
            cdb: cdb.to_vec(),
            data_in_bytes,
            data_out: data_out.into(),
            ..Command::default()
        };
        self.machine.submit(command).expect("there is room")
    }

    async fn answer(&mut self, id: RequestId) -> Response {
        self.until("an answer", |client| client.answers.contains_key(&id))
            .await;
        self.answers.remove(&id).expect("it is there")
    }

    /// Runs a command to completion. On a unit attention, the command is sent again.
    async fn command(
        &mut self,
        lun: u8,
        cdb: &[u8],
        data_in_bytes: u32,
        data_out: &[u8],
    ) -> Response {
        loop {
            let id = self.submit(lun, cdb, data_in_bytes, data_out.to_vec());
            let response = self.answer(id).await;
            if response.status != 2 || sense(&response).0 != 6 {
                return response;
            }
        }
    }

    async fn function(
        &mut self,
        function: Function,
        lun: u8,
        task: Option<RequestId>,
    ) -> FunctionResult {
        let id = self
            .machine
            .manage(function, [0, lun, 0, 0, 0, 0, 0, 0], task)
            .expect("there is room");
        self.until("a function", |client| client.done.contains_key(&id))
            .await;
        self.done[&id]
    }

    /// The numbers of the visible LUNs.
    async fn luns(&mut self) -> Vec<u8> {
        let cdb = [0xa0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0];
        let list = self.command(0, &cdb, 4096, &[]).await.data;
        list[8..].chunks(8).map(|lun| lun[1]).collect()
    }
}

/// The sense key, and the additional sense code with its qualifier.
fn sense(response: &Response) -> (u8, u16) {
    match response.sense[0] & 0x7f {
        0x72 | 0x73 => (
            response.sense[1] & 0xf,
            u16::from_be_bytes([response.sense[2], response.sense[3]]),
        ),
        _ => (
            response.sense[2] & 0xf,
            u16::from_be_bytes([response.sense[12], response.sense[13]]),
        ),
    }
}

/// The client's polling interval.
const MOMENT: Duration = Duration::from_millis(50);

fn seed() -> [u8; 32] {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).expect("the system has random numbers once it has started");
    seed
}

pub(crate) fn config(initiator: &str, target: &str, secret: Option<&str>) -> Config {
    let key = secret.map(|secret| (Psk::from_secret(secret.as_bytes()), Cipher::Aes256Gcm));
    Config {
        key,
        frame_bytes: vec![9000, FRAME_BYTES_MIN as u16],
        ..Config::new(initiator, target)
    }
}

const BLOCK: usize = 512;

/// The content of a block after this number of changes.
fn content(block: u32, version: u32) -> Vec<u8> {
    let word = block
        .wrapping_mul(2_654_435_761)
        .wrapping_add(version.wrapping_mul(40_503));
    word.to_le_bytes().repeat(BLOCK / 4)
}

pub(crate) fn cdb(code: u8, block: u32, blocks: u16) -> Vec<u8> {
    let [a, b, c, d] = block.to_be_bytes();
    let [high, low] = blocks.to_be_bytes();
    vec![code, 0, a, b, c, d, 0, high, low, 0]
}

pub(crate) const READ: u8 = 0x28;
const WRITE: u8 = 0x2a;

/// Writes runs of blocks, many concurrently, and reads them back in the same way.
pub(crate) async fn write_and_read(client: &mut Client, blocks: u32, run: u16) {
    let starts: Vec<u32> = (0..blocks).step_by(run.into()).collect();
    let data = |start: u32| -> Vec<u8> {
        (start..start + u32::from(run))
            .flat_map(|block| content(block, 1))
            .collect()
    };
    let turn_ready = client.command(0, &[0; 6], 0, &[]).await;
    assert_eq!(turn_ready.status, GOOD);
    for starts in starts.chunks(16) {
        let ids: Vec<RequestId> = starts
            .iter()
            .map(|start| client.submit(0, &cdb(WRITE, *start, run), 0, data(*start)))
            .collect();
        for id in ids {
            let response = client.answer(id).await;
            assert_eq!((response.status, response.residual), (GOOD, 0));
        }
    }
    for starts in starts.chunks(16) {
        let bytes = u32::from(run) * BLOCK as u32;
        let ids: Vec<RequestId> = starts
            .iter()
            .map(|start| client.submit(0, &cdb(READ, *start, run), bytes, Vec::new()))
            .collect();
        for (id, start) in ids.into_iter().zip(starts) {
            let response = client.answer(id).await;
            assert_eq!((response.status, response.residual), (GOOD, 0));
            assert!(response.data == data(*start), "{run} blocks at {start}");
        }
    }
}

#[test]
fn commands_reach_the_disk_in_clear_and_sealed() {
    let mut server = or_skip!(Server::configured(TEXT));
    let port = server.port();
    in_a_world(async {
        for (target, secret) in [("disks", None), ("kept", Some(SECRET))] {
            let mut client = Client::udp(port, config("host1", target, secret))
                .logged_in()
                .await;
            for run in [1, 64, 2048] {
                write_and_read(&mut client, 4096, run).await;
            }
            let past_the_end = client.command(0, &cdb(READ, 1 << 20, 1), 512, &[]).await;
            assert_eq!(
                (past_the_end.status, sense(&past_the_end)),
                (2, (5, 0x2100))
            );
            let absent = client.command(9, &[0; 6], 0, &[]).await;
            assert_eq!((absent.status, sense(&absent)), (2, (5, 0x2500)));
            // Only 36 bytes of the longer INQUIRY data are requested.
            let inquiry = client.command(0, &[0x12, 0, 0, 0, 255, 0], 36, &[]).await;
            assert!(
                inquiry.data.len() == 36
                    && &inquiry.data[8..16] == b"LINERATE"
                    && inquiry.residual > 0
            );
            let luns: &[u8] = if target == "disks" { &[0, 1] } else { &[0] };
            assert_eq!(
                client.luns().await,
                luns,
                "the other LUN is for another initiator"
            );
            let sessions = linerate(&["server", "sessions", "--control", &control(&server)]);
            let sessions = sessions.expect_success();
            says(&sessions, &[target, "host1"]);
            client.machine.disconnect(reactor::now());
            client
                .until("the end", |client| !client.events.is_empty())
                .await;
            assert_eq!(client.events, [Event::Ended(EndReason::Disconnected)]);
        }
        let mut other = Client::udp(port, config("host2", "disks", None))
            .logged_in()
            .await;
        assert_eq!(other.luns().await, [0, 1, 2]);
        let refusals = [
            (
                "host1",
                "kept",
                Some("another secret, as long"),
                Refusal::Authentication,
            ),
            ("host1", "kept", None, Refusal::Authentication),
            ("host1", "disks", Some(SECRET), Refusal::Authentication),
            ("host2", "kept", Some(SECRET), Refusal::Authentication),
            ("guest", "kept", Some(SECRET), Refusal::UnknownTarget),
            ("host1", "none", None, Refusal::UnknownTarget),
        ];
        for (initiator, target, secret, refusal) in refusals {
            let ended = Client::udp(port, config(initiator, target, secret))
                .refused()
                .await;
            assert_eq!(
                ended,
                Event::Ended(EndReason::Refused(refusal)),
                "{initiator} at {target}"
            );
        }
    });
    for parts in [
        [
            "logged in",
            "initiator=\"host1\"",
            "user=\"host1\"",
            "target=\"kept\"",
        ],
        [
            "session ended",
            "why=\"logout\"",
            "initiator=\"host1\"",
            "target=\"disks\"",
        ],
        [
            "login refused",
            "initiator=\"guest\"",
            "target=\"kept\"",
            "the target does not exist",
        ],
    ] {
        until(&format!("a line with {parts:?}"), || {
            server
                .log()
                .lines()
                .any(|line| parts.iter().all(|part| line.contains(part)))
        });
    }
    server.stop();
}

pub(crate) fn control(server: &Server) -> String {
    server.state().join("control").display().to_string()
}

#[test]
fn functions_end_commands_and_each_has_its_answer() {
    let quick = "[volume.slow]\nspec = \"ram:1MiB\"";
    let text = TEXT.replace(quick, "[volume.slow]\nspec = \"delay:50s:[ram:1MiB]\"");
    let mut server = or_skip!(Server::configured(&text));
    let port = server.port();
    in_a_world(async {
        let mut client = Client::udp(port, config("host1", "disks", None))
            .logged_in()
            .await;
        let mut other = Client::udp(port, config("host2", "disks", None))
            .logged_in()
            .await;
        client.command(1, &[0; 6], 0, &[]).await;
        other.command(1, &[0; 6], 0, &[]).await;
        let slow = |client: &mut Client| client.submit(1, &cdb(READ, 0, 1), 512, Vec::new());
        let first = slow(&mut client);
        let second = slow(&mut client);
        let theirs = slow(&mut other);
        assert_eq!(
            other.function(Function::QueryTask, 1, Some(theirs)).await,
            FunctionResult::Succeeded
        );
        assert_eq!(
            client.function(Function::AbortTask, 1, Some(first)).await,
            FunctionResult::Complete
        );
        assert_eq!(client.answer(first).await.status, TASK_ABORTED);
        assert!(!client.answers.contains_key(&second), "it goes on");
        assert_eq!(
            client.function(Function::LogicalUnitReset, 1, None).await,
            FunctionResult::Complete
        );
        assert_eq!(client.answer(second).await.status, TASK_ABORTED);
        assert_eq!(other.answer(theirs).await.status, TASK_ABORTED);
        // All sessions are notified of the reset, on every LUN that it affected.
        let id = other.submit(1, &[0; 6], 0, Vec::new());
        let attention = other.answer(id).await;
        assert_eq!((attention.status, sense(&attention).0), (2, 6));
        assert_eq!(
            client.function(Function::LogicalUnitReset, 7, None).await,
            FunctionResult::IncorrectLun
        );
        assert_eq!(
            client.function(Function::Other(77), 0, None).await,
            FunctionResult::Rejected
        );
    });
    server.kill(); // a clean shutdown would wait for the last flush
}

#[test]
fn a_reservation_holds_against_iscsi_and_the_other_way_round() {
    let mut server = or_skip!(Server::configured(TEXT));
    let (port, url) = (server.port(), server.url("disk"));
    in_a_world(async {
        let mut client = Client::udp(port, config("host1", "disks", None))
            .logged_in()
            .await;
        let lun = attached(&url).await;
        let reserve = |action: u8| [0x5f, action, 1, 0, 0, 0, 0, 0, 24, 0];
        let parameters =
            |key: u64, new: u64| [&key.to_be_bytes()[..], &new.to_be_bytes(), &[0; 8]].concat();
        let write = || remote::write(&lun, 0, &[7; 512], false);
        assert_eq!(write().await.expect("an answer").status, GOOD);
        assert_eq!(
            client
                .command(0, &reserve(0), 0, &parameters(0, 11))
                .await
                .status,
            GOOD
        );
        assert_eq!(
            client
                .command(0, &reserve(1), 0, &parameters(11, 0))
                .await
                .status,
            GOOD
        );
        assert_eq!(
            write().await.expect("an answer").status,
            RESERVATION_CONFLICT
        );
        assert_eq!(
            client
                .command(0, &cdb(WRITE, 0, 1), 0, &[1; 512])
                .await
                .status,
            GOOD
        );
        // Another port of the same initiator is another nexus, and so is another initiator.
        for other in [
            Config {
                port: 2,
                ..config("host1", "disks", None)
            },
            config("host2", "disks", None),
        ] {
            let mut other = Client::udp(port, other).logged_in().await;
            let denied = other.command(0, &cdb(WRITE, 0, 1), 0, &[2; 512]).await;
            assert_eq!(denied.status, RESERVATION_CONFLICT);
        }
        // The registration survives the session.
        client.machine.disconnect(reactor::now());
        client
            .until("the end", |client| !client.events.is_empty())
            .await;
        assert_eq!(
            write().await.expect("an answer").status,
            RESERVATION_CONFLICT
        );
        let mut client = Client::udp(port, config("host1", "disks", None))
            .logged_in()
            .await;
        assert_eq!(
            client
                .command(0, &cdb(WRITE, 0, 1), 0, &[3; 512])
                .await
                .status,
            GOOD
        );
        assert_eq!(
            client
                .command(0, &reserve(2), 0, &parameters(11, 0))
                .await
                .status,
            GOOD
        );
        assert_eq!(write().await.expect("an answer").status, GOOD);
        let read = client.command(0, &cdb(READ, 0, 1), 512, &[]).await;
        assert!(read.data == [7; 512]);
        lun.close().await;
    });
    server.stop();
}

/// A load of blocks that are written repeatedly. Each block is written by one command at a time.
pub(crate) struct Load {
    /// The first block.
    pub(crate) start: u32,
    /// The number of confirmed writes of each block; the version being written is one more.
    versions: Vec<u32>,
    under_way: BTreeMap<RequestId, u32>,
}

impl Load {
    pub(crate) const BLOCKS: u32 = 32;

    pub(crate) fn new() -> Load {
        Load {
            start: 0,
            versions: vec![0; Load::BLOCKS as usize],
            under_way: BTreeMap::new(),
        }
    }

    fn write(&mut self, client: &mut Client, block: u32) {
        let version = self.versions[block as usize] + 1;
        let id = client.submit(
            0,
            &cdb(WRITE, self.start + block, 1),
            0,
            content(block, version),
        );
        self.under_way.insert(id, block);
    }

    /// Processes responses, and sends the next commands; lost commands are sent again with the same content.
    fn go_on(&mut self, client: &mut Client) {
        let answered: Vec<RequestId> = client.answers.keys().copied().collect();
        for id in answered {
            let response = client.answers.remove(&id).expect("it is there");
            let block = self.under_way.remove(&id).expect("one of these");
            if response.status == GOOD {
                self.versions[block as usize] += 1;
            } else {
                assert_eq!(sense(&response).0, 6, "a unit attention");
            }
            self.write(client, block);
        }
    }

    /// Records the end of the session: commands with a response were executed, and lost commands may have
    /// been executed.
    pub(crate) fn end_of_session(&mut self, client: &Client) {
        assert_eq!(
            client.lost.len() + client.answers.len(),
            self.under_way.len(),
            "each is answered or lost"
        );
        for id in client.answers.keys() {
            let block = self.under_way.remove(id).expect("one of these");
            self.versions[block as usize] += 1;
        }
    }

    /// Continues the load in another session.
    pub(crate) fn begin_again(&mut self, client: &mut Client) {
        client.lost.clear();
        client.answers.clear();
        self.under_way.clear();
        (0..Load::BLOCKS).for_each(|block| self.write(client, block));
    }

    pub(crate) async fn until(&mut self, client: &mut Client, more: u32) {
        let goal = self.versions.iter().min().expect("some") + more;
        let end = reactor::now() + PATIENCE;
        while self.versions.iter().any(|version| *version < goal) {
            assert!(
                reactor::now() < end,
                "writes do not go on: {:?}",
                client.events
            );
            client.turn().await;
            self.go_on(client);
        }
    }

    /// Checks that each block contains the last acknowledged write, or the write that was outstanding at the
    /// end of the session.
    pub(crate) async fn verify(&self, client: &mut Client) {
        for block in 0..Load::BLOCKS {
            let read = client
                .command(0, &cdb(READ, self.start + block, 1), 512, &[])
                .await;
            let version = self.versions[block as usize];
            let is_right = [version, version + 1]
                .iter()
                .any(|version| read.data == content(block, *version));
            assert!(
                is_right,
                "block {block} has neither version {version} nor the next"
            );
        }
    }
}

#[test]
fn a_server_that_ends_or_dies_under_load_loses_nothing_that_it_acknowledged() {
    let mut server = or_skip!(Server::configured(TEXT));
    let port = server.port();
    in_a_world(async {
        let mut load = Load::new();
        let mut client = Client::udp(port, config("host1", "kept", Some(SECRET)))
            .logged_in()
            .await;
        load.begin_again(&mut client);
        load.until(&mut client, 20).await;
        // When the server is asked to shut down, it closes the session.
        server.signal("TERM");
        let end = reactor::now() + PATIENCE;
        while client.events.is_empty() {
            assert!(reactor::now() < end, "the session is not closed");
            client.turn().await;
            let answered: Vec<RequestId> = client.answers.keys().copied().collect();
            for id in answered {
                assert_eq!(
                    client.answers.remove(&id).map(|response| response.status),
                    Some(GOOD)
                );
                let block = load.under_way.remove(&id).expect("one of these");
                load.versions[block as usize] += 1;
            }
        }
        assert_eq!(client.events, [Event::Ended(EndReason::ByTarget)]);
        assert!(server.ended().success());
        server.restart();
        let mut client = Client::udp(port, config("host1", "kept", Some(SECRET)))
            .logged_in()
            .await;
        load.verify(&mut client).await;
        load.begin_again(&mut client);
        load.until(&mut client, 20).await;
        // After a kill and a restart, the server has no state of the session.
        server.kill();
        server.restart();
        client
            .until("another session", |client| {
                matches!(
                    client.events[..],
                    [Event::NexusLost, Event::LoggedIn { .. }]
                )
            })
            .await;
        load.end_of_session(&client);
        load.verify(&mut client).await;
        client.events.clear();
        load.begin_again(&mut client);
        load.until(&mut client, 20).await;
    });
    server.stop();
}

#[test]
fn another_configuration_reaches_the_sessions() {
    let mut server = or_skip!(Server::configured(TEXT));
    let port = server.port();
    let text = TEXT.replace("{port}", &port.to_string());
    let text = text.replace("{state}", &server.state().display().to_string());
    in_a_world(async {
        let mut client = Client::udp(port, config("host1", "disks", None))
            .logged_in()
            .await;
        let mut kept = Client::udp(port, config("host1", "kept", Some(SECRET)))
            .logged_in()
            .await;
        client.command(0, &[0; 6], 0, &[]).await;
        assert_eq!(client.luns().await, [0, 1]);
        let more = text
            .replace("[\"host2\"]", "[\"host*\"]")
            .replace("size=8MiB", "size=16MiB");
        server.reconfigure(&more);
        let control = control(&server);
        let reload = |force: &[&str]| {
            let words = [&["server", "reload", "--control", control.as_str()], force].concat();
            run(LINERATE, &words)
        };
        reload(&[]).expect_success();
        let id = client.submit(0, &[0; 6], 0, Vec::new());
        let attention = client.answer(id).await;
        assert_eq!((attention.status, sense(&attention).0), (2, 6));
        assert_eq!(client.luns().await, [0, 1, 2]);
        let capacity = client
            .command(0, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8, &[])
            .await;
        assert_eq!(capacity.data[..4], (16 * 2048_u32 - 1).to_be_bytes());
        // Another key is required at the next login; the session continues.
        server.reconfigure(&more.replace(SECRET, "another secret, as long"));
        reload(&[]).expect_success();
        assert_eq!(kept.command(0, &[0; 6], 0, &[]).await.status, GOOD);
        let refused = Client::udp(port, config("host1", "kept", Some(SECRET)))
            .refused()
            .await;
        assert_eq!(
            refused,
            Event::Ended(EndReason::Refused(Refusal::Authentication))
        );
        // Each address is listened on once.
        let listen = format!("\"hyperscsi+udp://127.0.0.1:{port}\"");
        server.reconfigure(&more.replace(&listen, &format!("{listen}, {listen}")));
        let refused = reload(&[]).expect_failure();
        says(
            &refused,
            &[&format!(
                "udp:127.0.0.1:{port}: it is listed twice; list it once"
            )],
        );
        assert_eq!(client.command(0, &[0; 6], 0, &[]).await.status, GOOD);
        // Removing a target ends its sessions, if forced.
        let (before, _) = more
            .split_once("[[hyperscsi.target]]\nname = \"kept\"")
            .expect("its section");
        server.reconfigure(before);
        let refused = reload(&[]).expect_failure();
        says(&refused, &["host1 uses the HyperSCSI target kept"]);
        reload(&["--force"]).expect_success();
        kept.until("the end", |client| !client.events.is_empty())
            .await;
        assert_eq!(kept.events, [Event::Ended(EndReason::ByTarget)]);
        assert_eq!(client.command(0, &[0; 6], 0, &[]).await.status, GOOD);
    });
    server.stop();
}

fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .expect("its line");
    line.trim()
        .trim_end_matches(" kB")
        .parse::<u64>()
        .expect("a number")
        << 10
}

#[test]
fn hostile_frames_end_no_session_and_take_no_memory() {
    let mut server = or_skip!(Server::configured(TEXT));
    let port = server.port();
    in_a_world(async {
        let mut client = Client::udp(port, config("host1", "kept", Some(SECRET)))
            .logged_in()
            .await;
        write_and_read(&mut client, 256, 64).await;
        let before = resident_bytes(server.pid());
        // Logins that are started and never finished, from frames that a client really sends.
        for number in 0..600u32 {
            let config = Config {
                port: number,
                ..config("host1", "kept", Some(SECRET))
            };
            let mut machine = Initiator::new(reactor::now(), config, seed());
            let mut frame = Vec::new();
            while machine.poll_transmit(reactor::now(), &mut frame).is_some() {
                client.send(&frame);
                // Send the same frame truncated, and with other bytes.
                for length in [0, 1, 4, 27, 28, 31, 60, frame.len() - 1] {
                    client.send(&frame[..length]);
                }
                for at in [4, 5, 7, 13, 20, 24, 29, 40] {
                    let mut other = frame.clone();
                    other[at] ^= 0x55;
                    client.send(&other);
                }
            }
            if number % 16 == 0 {
                client.turn().await;
            }
        }
        // Frames of other or nonexistent sessions, and endless fragments.
        let mut noise = vec![0u8; 1400];
        for number in 0..4000u32 {
            getrandom::fill(&mut noise).expect("random numbers");
            noise[3] = 0x52;
            noise[4] = (number % 64) as u8;
            client.send(&noise);
            client.send(&discovery::question(u64::from(number)));
            if number % 16 == 0 {
                client.turn().await;
            }
        }
        write_and_read(&mut client, 256, 64).await;
        let after = resident_bytes(server.pid());
        assert!(after < before + (48 << 20), "{before} bytes became {after}");
        assert!(client.events.is_empty(), "{:?}", client.events);
    });
    server.stop();
}

#[test]
fn tshark_decodes_a_session_over_raw_ethernet() {
    let Some(site) = Site::new(9000) else { return };
    let _server = site.serve(&["--listen", "hyperscsi://san0", "--volume", "disk=ram:8MiB"]);
    let has_tshark = installed(&["tshark"]);
    let capture = site.path("capture");
    let mac = site.client_sees_server();
    let start = |capture: &str| {
        let mut tshark = site.client.command("tshark");
        tshark.args([
            "-q",
            "-i",
            "eth0",
            "-F",
            "pcap",
            "-w",
            capture,
            "-f",
            "ether proto 0x889a",
        ]);
        Running(tshark.stderr(Stdio::null()).spawn().expect("started"))
    };
    let tshark = has_tshark.then(|| start(&capture));
    let session = || {
        in_a_world(async {
            let there = DatagramAddress::Ethernet(mac);
            let here = DatagramEndpoint::Ethernet {
                interface: "eth0".to_owned(),
                ether_type: ETHERTYPE,
            };
            let config = Config {
                frame_bytes: vec![9000],
                ..config("host1", "disk", None)
            };
            let mut client = Client::at(here, there, config).logged_in().await;
            for run in [1, 64, 2048] {
                write_and_read(&mut client, 4096, run).await;
            }
            assert_eq!(
                client.function(Function::LogicalUnitReset, 0, None).await,
                FunctionResult::Complete
            );
            client.machine.disconnect(reactor::now());
            client
                .until("the end", |client| !client.events.is_empty())
                .await;
        });
    };
    if let Some(mut tshark) = tshark {
        let question = || {
            in_a_world(async {
                let here = DatagramEndpoint::Ethernet {
                    interface: "eth0".to_owned(),
                    ether_type: ETHERTYPE,
                };
                let to = DatagramAddress::Ethernet(MacAddress::BROADCAST);
                let client = Client::at(here, to, config("host1", "disk", None));
                client.send(&discovery::question(7));
            });
        };
        until("tshark captures", || {
            site.client.run(question).expect("a thread");
            std::fs::metadata(&capture).is_ok_and(|file| file.len() > 24)
        });
        site.client.run(session).expect("a thread");
        signal(&tshark.0, "INT");
        end_of(&mut tshark.0);
        decoded_alike(&capture);
    } else {
        site.client.run(session).expect("a thread");
    }
}

/// Checks that tshark decodes each frame in the same way as Linerate, without complaints.
fn decoded_alike(capture: &str) {
    let complaint = "_ws.malformed || _ws.expert.severity >= 6291456";
    let malformed = complaints(&run("tshark", &["-r", capture, "-Y", complaint]).expect_success());
    assert!(malformed.is_empty(), "{malformed:#?}");
    let mut words = vec!["-r", capture, "-T", "fields"];
    for field in [
        "hyperscsi.tagno",
        "hyperscsi.lastfrag",
        "hyperscsi.fragno",
        "hyperscsi.cmd",
    ] {
        words.extend(["-e", field]);
    }
    let theirs = complaints(&run("tshark", &words).expect_success());
    let ours = frames(Path::new(capture));
    assert!(ours.len() > 1000, "{} frames", ours.len());
    assert_eq!(theirs.len(), ours.len());
    let number = |text: &str| match text {
        "True" => 1,
        "False" => 0,
        _ => match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).expect("a number"),
            None => text.parse().expect("a number"),
        },
    };
    for (theirs, frame) in theirs.iter().zip(&ours) {
        let header = Header::parse(frame).expect("a frame of ours");
        let read: Vec<u32> = theirs.split('\t').map(number).collect();
        let ours = [
            header.tag().into(),
            header.last.into(),
            header.fragment.into(),
            header.opcode as u32,
        ];
        assert_eq!(read, ours, "{theirs}");
    }
}

#[test]
fn a_file_that_cannot_be_served_is_refused_with_a_sentence() {
    let Some(site) = Site::new(1500) else { return };
    let refused = |listen: &str| {
        let state = site.path("state");
        let mut command = site.server.command(LINERATE);
        command.args([
            "serve",
            "--check",
            "--state",
            &state,
            "--listen",
            listen,
            "--volume",
            "disk=ram:1MiB",
        ]);
        run_command(&mut command).expect_failure()
    };
    let unknown = refused("hyperscsi://eth9");
    says(
        &unknown,
        &["there is no interface eth9; this machine has lo, san0"],
    );
    let down = refused("hyperscsi://lo");
    assert!(down.contains("interface lo is down"), "{down}");
    let port = refused("hyperscsi+udp://eth0");
    assert!(port.contains("is not an address and a port"), "{port}");
}
