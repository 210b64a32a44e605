//! Scenes: both halves over a stream in memory, and initiators that behave as no initiator does.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::Duration;

use block::{Medium, Region};
use reactor::{Alone, Stream, block_on};

use super::client::{receive_pdu, send_all};
use super::pdu::{self, FINAL, Header, field};
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

/// An initiator that has logged in, by the keys it likes.
async fn logged_in(keys: &str) -> (End, String) {
    let (client, server) = pair(1000);
    let disk = disk();
    reactor::spawn(async move { serve(&server, &disk).await });
    let (header, text) = exchange(&client, login(keys.len()), keys.as_bytes()).await;
    assert_eq!((pdu::opcode(&header), header[1], header[36]), (pdu::answer::LOGIN, 0x87, 0));
    (client, String::from_utf8(text).expect("text"))
}

fn login(bytes: usize) -> Header {
    let mut header = pdu::header(pdu::request::LOGIN | pdu::IMMEDIATE, 9);
    header[1] = 0x87;
    pdu::set_data_bytes(&mut header, bytes);
    pdu::set_word(&mut header, field::CMD_SN, 7);
    header
}

async fn exchange(client: &End, header: Header, data: &[u8]) -> (Header, Vec<u8>) {
    send(client, header, data).await;
    receive_pdu(client).await.expect("an answer")
}

async fn send(client: &End, header: Header, data: &[u8]) {
    let mut wire = [&header[..], data].concat();
    wire.resize(wire.len().next_multiple_of(4), 0);
    send_all(client, &wire).await.expect("the server listens");
}

fn command(cdb: &[u8], expected: u32) -> Header {
    let mut header = pdu::header(pdu::request::COMMAND, 5);
    pdu::set_word(&mut header, field::EDTL, expected);
    pdu::set_word(&mut header, field::CMD_SN, 7);
    header[32..32 + cdb.len()].copy_from_slice(cdb);
    header
}

#[test]
fn what_an_initiator_insists_on_is_agreed_to() {
    let answer = block_on(Alone::virtual_time(), async {
        logged_in("TargetName=x\0InitialR2T=Yes\0ImmediateData=No\0MaxBurstLength=4096\0HeaderDigest=CRC32C,None\0X-y=1\0")
            .await
            .1
    });
    let expected =
        "InitialR2T=Yes\0ImmediateData=No\0MaxBurstLength=4096\0HeaderDigest=None\0X-y=NotUnderstood\0";
    assert_eq!(answer, format!("{expected}TargetPortalGroupTag=1\0"));
}

#[test]
fn only_what_was_offered_is_answered() {
    let answer = block_on(Alone::virtual_time(), async { logged_in("InitiatorName=a\0").await.1 });
    assert_eq!(answer, "");
}

#[test]
fn a_read_is_cut_at_segments_and_bursts_and_its_last_piece_is_its_status() {
    let pieces = block_on(Alone::virtual_time(), async {
        let (client, _) = logged_in("MaxRecvDataSegmentLength=1024\0MaxBurstLength=1536\0").await;
        send(&client, command(&[0x28], 4096), &[]).await;
        let mut pieces = Vec::new();
        while pieces.last().is_none_or(|(_, flags, _)| flags & 1 == 0) {
            let (header, data) = receive_pdu(&client).await.expect("a piece");
            pieces.push((pdu::word(&header, field::OFFSET), header[1], data.len()));
        }
        pieces
    });
    let expected =
        [(0, 0, 1024), (1024, FINAL, 512), (1536, 0, 1024), (2560, FINAL, 512), (3072, FINAL | 1, 1024)];
    assert_eq!(pieces, expected);
}

#[test]
fn a_write_without_its_data_is_asked_for_them() {
    block_on(Alone::virtual_time(), async {
        let (client, _) = logged_in("InitialR2T=Yes\0MaxBurstLength=1024\0").await;
        send(&client, command(&[0x2a], 1536), &[]).await;
        for (offset, length) in [(0, 1024), (1024, 512)] {
            let (r2t, _) = receive_pdu(&client).await.expect("an R2T");
            assert_eq!(pdu::opcode(&r2t), pdu::answer::R2T);
            assert_eq!([field::OFFSET, field::LENGTH].map(|at| pdu::word(&r2t, at)), [offset, length]);
            let mut data_out = pdu::header(pdu::request::DATA_OUT, 5);
            pdu::set_data_bytes(&mut data_out, length as usize);
            send(&client, data_out, &vec![1; length as usize]).await;
        }
        let (response, _) = receive_pdu(&client).await.expect("a response");
        assert_eq!((pdu::opcode(&response), response[3]), (pdu::answer::RESPONSE, 0));
    });
}

#[test]
fn an_unknown_command_is_refused_and_the_next_one_answered() {
    block_on(Alone::virtual_time(), async {
        let (client, _) = logged_in("InitiatorName=a\0").await;
        let (refused, sense) = exchange(&client, command(&[0x93], 0), &[]).await;
        assert_eq!((refused[3], sense[4] & 0xf, sense[14]), (2, 5, 0x20));
        let (capacity, data) = exchange(&client, command(&[0x25], 8), &[]).await;
        assert_eq!((pdu::opcode(&capacity), data.len()), (pdu::answer::DATA_IN, 8));
        let (pong, data) = exchange(&client, ping(), b"who?").await;
        assert_eq!((pdu::opcode(&pong), &data[..]), (pdu::answer::NOP_IN, &b"who?"[..]));
        let (left, _) = exchange(&client, pdu::header(pdu::request::LOGOUT, 6), &[]).await;
        assert_eq!(pdu::opcode(&left), pdu::answer::LOGOUT);
    });
}

fn ping() -> Header {
    let mut header = pdu::header(pdu::request::NOP_OUT | pdu::IMMEDIATE, 3);
    pdu::set_data_bytes(&mut header, 4);
    header
}

/// How the server ends that is told this after a login, or instead of one.
fn told(says_login: bool, wire: Vec<u8>) -> io::Result<()> {
    block_on(Alone::virtual_time(), async move {
        let (client, server) = pair(1000);
        let disk = disk();
        let serving = reactor::spawn(async move { serve(&server, &disk).await });
        if says_login {
            exchange(&client, login(0), &[]).await;
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
    assert_eq!(kind(told(false, command(&[0x28], 512).to_vec())), Err(io::ErrorKind::InvalidData));
    let mut endless = ping();
    pdu::set_data_bytes(&mut endless, 0xff_ffff);
    let endless = [&endless[..], &[0; 100_000]].concat();
    assert_eq!(kind(told(true, endless)), Err(io::ErrorKind::InvalidData));
    let writes = command(&[0x2a], 512).repeat(300);
    assert_eq!(kind(told(true, writes)), Err(io::ErrorKind::InvalidData), "nobody has so many under way");
    assert_eq!(kind(told(true, vec![0; 20])), Ok(()), "the end in the middle of a header");
}
