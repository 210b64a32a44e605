//! Scenes: both halves over a stream in memory, and initiators that behave as no initiator does.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::Duration;

use block::{Medium, Region};
use iscsi::pdu::{
    Cid, DataIn, DataOut, Isid, Itt, LoginRequest, LoginResponse, LoginStatus, LogoutReason, LogoutRequest,
    Lun, NopIn, NopOut, Opcode, R2t, ScsiCommand, ScsiResponse, Stage, Tsih,
};
use iscsi::serial::Sn;
use reactor::{Alone, Stream, block_on};
use scsi::cdb;

use super::client::{receive_pdu, send_all, send_pdu};
use super::*;
use crate::raw::Direction;
use crate::raw::tests::{End, pair};

struct Bytes(Vec<AtomicU8>);

impl Medium for Bytes {
    fn bytes(&self) -> &[AtomicU8] {
        &self.0
    }

    fn store(&self, at: usize, from: &[u8]) {
        self.0[at..].iter().zip(from).for_each(|(place, byte)| place.store(*byte, Relaxed));
    }

    fn load(&self, at: usize, into: &mut [u8]) {
        into.iter_mut().zip(&self.0[at..]).for_each(|(byte, place)| *byte = place.load(Relaxed));
    }

    fn receive(&self, range: Range<usize>, receive: &mut dyn FnMut(&[AtomicU8]) -> usize) {
        receive(&self.0[range]);
    }
}

/// A little more than the longest PDU, so that its end is reached again and again.
fn disk() -> Disk {
    const BYTES: usize = SEGMENT_BYTES + 5000;
    let medium = Arc::new(Bytes((0..BYTES).map(|_| AtomicU8::new(0x5a)).collect()));
    Disk::new(Region::new(medium, 0..BYTES).expect("all of it")).expect("it is large enough")
}

/// What the client says of a load against the server, by so many bytes at once.
fn asked(load: Load, sessions: usize, at_once: usize) -> io::Result<Asked> {
    block_on(Alone::virtual_time(), async move {
        let disk = disk();
        let mut ends: Vec<Box<dyn Stream>> = Vec::new();
        for _ in 0..sessions {
            let (client, server) = pair(at_once);
            let disk = disk.clone();
            reactor::spawn(async move { serve(&server, &disk).await });
            ends.push(Box::new(client));
        }
        let ends: Vec<&dyn Stream> = ends.iter().map(|end| &**end).collect();
        let times = [Duration::from_micros(10), Duration::from_micros(200)];
        ask(&ends, "iqn.2026-01.io.linerate:raw", 0, load, times).await
    })
}

#[test]
fn commands_are_answered_however_the_bytes_are_cut() {
    for direction in [Direction::Read, Direction::Write] {
        for (block_bytes, at_once) in [(512, 31), (512, 1000), (4096, 47), (4096, 1000)] {
            let load = Load { direction, block_bytes, depth: 3, random: false, disk_bytes: 1 << 18 };
            let asked = asked(load, 2, at_once).expect("the server answers");
            assert!(asked.requests > 10, "{load:?} by {at_once} bytes: {asked:?}");
            assert!(asked.latencies.count() > 0, "{load:?}: {asked:?}");
        }
    }
}

#[test]
fn commands_longer_than_a_pdu_are_answered_in_pieces() {
    for direction in [Direction::Read, Direction::Write] {
        // Of a WRITE the first burst comes by itself, and the rest is asked for.
        let load = Load { direction, block_bytes: 270 << 10, depth: 1, random: true, disk_bytes: 1 << 20 };
        let asked = asked(load, 1, 1000).expect("the server answers");
        assert!(asked.requests > 0, "{direction:?}: {asked:?}");
    }
}

/// Without these there is no login.
const KEYS: &str = "InitiatorName=iqn.1994-05.com.example:h\0TargetName=iqn.2026-01.io.linerate:x\0";

/// An initiator that has logged in, by the keys it likes, and what it was told.
async fn logged_in(keys: &str) -> (End, String) {
    let (client, server) = pair(1000);
    let disk = disk();
    reactor::spawn(async move { serve(&server, &disk).await });
    let keys = format!("{KEYS}{keys}");
    let (bhs, text) = exchange(&client, login(keys.len()), keys.as_bytes()).await;
    let response = LoginResponse::parse(&bhs).expect("a login response");
    assert_eq!((response.status, response.transit_to), (LoginStatus::Success, Some(Stage::FullFeature)));
    (client, String::from_utf8(text).expect("text"))
}

fn login(bytes: usize) -> Bhs {
    let request = LoginRequest {
        continues: false,
        stage: Stage::OperationalNegotiation,
        transit_to: Some(Stage::FullFeature),
        version_max: 0,
        version_min: 0,
        isid: Isid([0x80, 0, 0, 0, 0, 1]),
        tsih: Tsih::NEW,
        itt: itt(9),
        cid: Cid(0),
        cmd_sn: Sn(7),
        exp_stat_sn: Sn(0),
        data_segment_length: bytes as u32,
    };
    request.emit()
}

fn itt(number: u32) -> Itt {
    Itt::new(number).expect("a tag")
}

async fn exchange(client: &End, bhs: Bhs, data: &[u8]) -> (Bhs, Vec<u8>) {
    send(client, bhs, data).await;
    receive_pdu(client).await.expect("an answer")
}

async fn send(client: &End, bhs: Bhs, data: &[u8]) {
    send_pdu(client, &bhs, data).await.expect("the server listens");
}

fn command(cdb: scsi::Cdb, expected: u32) -> Bhs {
    let command = ScsiCommand::simple(Lun(0), itt(5), Sn(7), cdb);
    ScsiCommand { expected_data_transfer_length: expected, ..command }.emit()
}

fn read(expected: u32) -> Bhs {
    command(cdb::read_16(0, 8), expected)
}

fn write(expected: u32) -> Bhs {
    command(cdb::write_16(0, 3, false), expected)
}

#[test]
fn what_an_initiator_insists_on_is_agreed_to() {
    let answer = block_on(Alone::virtual_time(), async {
        logged_in("InitialR2T=Yes\0ImmediateData=No\0MaxBurstLength=4096\0HeaderDigest=CRC32C,None\0X-y=1\0")
            .await
            .1
    });
    let expected =
        "InitialR2T=Yes\0ImmediateData=No\0MaxBurstLength=4096\0HeaderDigest=None\0X-y=NotUnderstood\0";
    assert_eq!(answer, format!("{OF_ITS_OWN_ACCORD}{expected}"));
}

/// What the server says of itself to everybody.
const OF_ITS_OWN_ACCORD: &str = "TargetPortalGroupTag=1\0MaxRecvDataSegmentLength=262144\0";

#[test]
fn only_what_was_offered_is_answered() {
    let answer = block_on(Alone::virtual_time(), async { logged_in("").await.1 });
    assert_eq!(answer, OF_ITS_OWN_ACCORD);
}

#[test]
fn a_session_is_not_joined_by_a_second_connection() {
    let (status, ended) = block_on(Alone::virtual_time(), async {
        let (client, server) = pair(1000);
        let disk = disk();
        let serving = reactor::spawn(async move { serve(&server, &disk).await });
        let request =
            LoginRequest { tsih: Tsih(1), ..LoginRequest::parse(&login(KEYS.len())).expect("ours") };
        let (bhs, _) = exchange(&client, request.emit(), KEYS.as_bytes()).await;
        (LoginResponse::parse(&bhs).expect("a login response").status, serving.await)
    });
    assert_eq!((status, ended.is_ok()), (LoginStatus::SessionDoesNotExist, true));
}

#[test]
fn a_read_is_cut_at_segments_and_bursts_and_its_last_piece_is_its_status() {
    let pieces = block_on(Alone::virtual_time(), async {
        let (client, _) = logged_in("MaxRecvDataSegmentLength=1024\0MaxBurstLength=1536\0").await;
        send(&client, read(4095), &[]).await;
        let mut pieces = Vec::new();
        while pieces.last().is_none_or(|(_, _, is_last, _)| !is_last) {
            let (bhs, data) = receive_pdu(&client).await.expect("a piece");
            let piece = DataIn::parse(&bhs).expect("a Data-In");
            pieces.push((piece.buffer_offset, piece.is_final, piece.status.is_some(), data.len()));
        }
        exchange(&client, ping(), b"who?").await;
        pieces
    });
    let expected = [
        (0, false, false, 1024),
        (1024, true, false, 512),
        (1536, false, false, 1024),
        (2560, true, false, 512),
        (3072, true, true, 1023),
    ];
    assert_eq!(pieces, expected);
}

#[test]
fn a_write_without_its_data_is_asked_for_them() {
    block_on(Alone::virtual_time(), async {
        let (client, _) = logged_in("InitialR2T=Yes\0MaxBurstLength=1024\0").await;
        send(&client, write(1536), &[]).await;
        for (offset, length) in [(0, 1024), (1024, 512)] {
            let (bhs, _) = receive_pdu(&client).await.expect("an R2T");
            let r2t = R2t::parse(&bhs).expect("an R2T");
            assert_eq!((r2t.buffer_offset, r2t.desired_data_transfer_length.get()), (offset, length));
            let data_out = DataOut {
                is_final: true,
                lun: Lun(0),
                itt: r2t.itt,
                ttt: Some(r2t.ttt),
                exp_stat_sn: Sn(0),
                data_sn: Sn(0),
                buffer_offset: offset,
                data_segment_length: length,
            };
            send(&client, data_out.emit(), &vec![1; length as usize]).await;
        }
        let (response, _) = receive_pdu(&client).await.expect("a response");
        assert_eq!(ScsiResponse::parse(&response).expect("a response").status, scsi::status::GOOD);
    });
}

#[test]
fn an_unknown_command_is_refused_and_the_next_one_answered() {
    block_on(Alone::virtual_time(), async {
        let (client, _) = logged_in("").await;
        let (refused, sense) = exchange(&client, command(cdb::write_same_16(0, 1, false), 0), &[]).await;
        assert_eq!(ScsiResponse::parse(&refused).expect("a response").status, scsi::status::CHECK_CONDITION);
        assert_eq!((sense[4] & 0xf, sense[14]), (5, 0x20));
        let (capacity, data) = exchange(&client, command(cdb::read_capacity_10(), 8), &[]).await;
        assert_eq!((capacity.opcode(), data.len()), (Some(Opcode::DataIn), 8));
        let (pong, data) = exchange(&client, ping(), b"who?").await;
        assert_eq!((NopIn::parse(&pong).expect("a pong").itt, &data[..]), (Some(itt(3)), &b"who?"[..]));
        let logout = LogoutRequest {
            immediate: false,
            reason: LogoutReason::CloseSession,
            itt: itt(6),
            cid: Cid(0),
            cmd_sn: Sn(8),
            exp_stat_sn: Sn(0),
        };
        let (left, _) = exchange(&client, logout.emit(), &[]).await;
        assert_eq!(left.opcode(), Some(Opcode::LogoutResponse));
    });
}

fn ping() -> Bhs {
    let ping = NopOut {
        immediate: true,
        lun: Lun(0),
        itt: Some(itt(3)),
        ttt: None,
        cmd_sn: Sn(7),
        exp_stat_sn: Sn(0),
        data_segment_length: 4,
    };
    ping.emit()
}

/// How the server ends that is told this after a login, or instead of one.
fn told(says_login: bool, wire: Vec<u8>) -> io::Result<()> {
    block_on(Alone::virtual_time(), async move {
        let (client, server) = pair(1000);
        let disk = disk();
        let serving = reactor::spawn(async move { serve(&server, &disk).await });
        if says_login {
            exchange(&client, login(KEYS.len()), KEYS.as_bytes()).await;
        }
        // It may have left before all of it was said.
        let _ = reactor::timeout(Duration::from_millis(10), send_all(&client, &wire)).await;
        client.shutdown();
        serving.await
    })
}

#[test]
fn nonsense_ends_a_connection_and_nothing_else() {
    let kind = |ended: io::Result<()>| ended.map_err(|error| error.kind());
    assert_eq!(kind(told(false, vec![0xff; 30_000])), Err(io::ErrorKind::InvalidData));
    assert_eq!(kind(told(false, read(512).0.to_vec())), Err(io::ErrorKind::InvalidData));
    let mut endless = ping();
    endless.set_data_segment_length(0xff_ffff);
    let endless = [&endless.0[..], &[0; 100_000]].concat();
    assert_eq!(kind(told(true, endless)), Err(io::ErrorKind::InvalidData));
    let writes = write(512).0.repeat(300);
    assert_eq!(kind(told(true, writes)), Err(io::ErrorKind::InvalidData), "nobody has so many outstanding");
    assert_eq!(kind(told(true, vec![0; 20])), Ok(()), "the end in the middle of a header");
}
