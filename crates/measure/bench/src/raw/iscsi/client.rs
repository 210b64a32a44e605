//! The half that asks.

use std::future::poll_fn;
use std::io;
use std::time::{Duration, Instant};

use reactor::{InSlice, OutSlice, Stream};

use super::SEGMENT_BYTES;
use super::asking::Asking;
use super::login::{self, Agreed};
use super::pdu::{self, HEADER_BYTES, Header, field};
use crate::raw::{Direction, unless_blocked};
use crate::record::Histogram;
use stats::Latencies;

/// What is asked, again and again.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Which way the data go.
    pub direction: Direction,
    /// Data of each command, in bytes: whole blocks of 512.
    pub block_bytes: u32,
    /// Commands under way at once in each session.
    pub depth: u32,
    /// At places drawn anew for each command, instead of one after the other.
    pub random: bool,
    /// The part of the disk that is asked for, from its beginning, in bytes.
    pub disk_bytes: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Commands that were answered with GOOD.
    pub requests: u64,
    /// From the end of the warm-up to the end.
    pub time: Duration,
    /// Latencies of a sample: in each session one of the commands under way is watched.
    pub latencies: Histogram,
    /// Looks at a socket that found nothing, for each command: a client that never waits for its server has none.
    pub idle_looks: f64,
}

/// Logs in over each of the streams, to LUN `lun` of `target`, and asks for at least `duration` after `warm_up`. It looks
/// for answers all the time and never sleeps. The streams have commands under way afterwards and are of no further use.
///
/// Fails with what a socket says, with `InvalidData` if the answers are no iSCSI, and with `Other` if a login or command
/// is answered by a failure.
pub async fn ask(
    streams: &[&dyn Stream],
    target: &str,
    lun: u16,
    load: Load,
    [warm_up, duration]: [Duration; 2],
) -> io::Result<Asked> {
    let mut sessions = Vec::new();
    for (number, stream) in streams.iter().enumerate() {
        let initiator = format!("iqn.2026-01.io.linerate:raw-{number}");
        let (agreed, numbers) = log_in(*stream, &initiator, target, number as u8).await?;
        sessions.push(Asking::new(*stream, agreed, numbers, lun, load, number as u64));
    }
    for session in &mut sessions {
        session.clear_unit_attention().await?;
    }
    let mut scratch = vec![0; SCRATCH_BYTES];
    let data = vec![0x5a; load.block_bytes as usize];
    let begun = reactor::now();
    for session in &mut sessions {
        session.begin(begun);
    }
    run(&mut sessions, &mut scratch, &data, begun + warm_up).await?;
    let (before, mut latencies) = (done(&sessions), Latencies::default());
    sessions.iter_mut().for_each(|session| session.latencies.clear());
    let measured = reactor::now();
    let (end, looks) = run(&mut sessions, &mut scratch, &data, measured + duration).await?;
    let requests = done(&sessions) - before;
    sessions.iter().for_each(|session| latencies.add(&session.latencies));
    Ok(Asked {
        requests,
        time: end - measured,
        latencies: latencies.histogram(),
        idle_looks: looks as f64 / requests.max(1) as f64,
    })
}

/// Received at once: enough for a batch of answers.
const SCRATCH_BYTES: usize = 1 << 20;
/// Looks in vain before the clock is read.
const LOOKS: u64 = 64;

fn done(sessions: &[Asking<'_>]) -> u64 {
    sessions.iter().map(|session| session.done).sum()
}

/// Goes round the sessions until then. When it ended, and how often it looked in vain.
async fn run(
    sessions: &mut [Asking<'_>],
    scratch: &mut [u8],
    data: &[u8],
    until: Instant,
) -> io::Result<(Instant, u64)> {
    let mut looks = 0_u64;
    loop {
        let mut now = None;
        for session in &mut *sessions {
            let moved = session.send(data)?;
            match unless_blocked(session.stream.try_read(&mut [InSlice::Bytes(scratch)]))? {
                None if moved => {}
                None => looks += 1,
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(bytes) => {
                    let now = *now.get_or_insert_with(reactor::now);
                    session.take(&scratch[..bytes], now)?;
                    session.send(data)?;
                }
            }
        }
        if now.is_none() {
            reactor::yield_now().await;
            now = looks.is_multiple_of(LOOKS).then(reactor::now);
        }
        if let Some(now) = now.filter(|now| *now >= until) {
            return Ok((now, looks));
        }
    }
}

/// What a connection counts: CmdSN, ExpStatSN and MaxCmdSN after the login.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    pub(super) cmd_sn: u32,
    pub(super) exp_stat_sn: u32,
    pub(super) max_cmd_sn: u32,
}

async fn log_in(
    stream: &dyn Stream,
    initiator: &str,
    target: &str,
    number: u8,
) -> io::Result<(Agreed, Numbers)> {
    const OPERATIONAL_TO_FULL: u8 = 0x87;
    let mut text = login::offers(initiator, target);
    let mut header = pdu::header(pdu::request::LOGIN | pdu::IMMEDIATE, 1);
    header[1] = OPERATIONAL_TO_FULL;
    header[8..14].copy_from_slice(&[0x80, 0, 0, 0, 0, number]); // an ISID of its own for each session
    pdu::set_data_bytes(&mut header, text.len());
    pdu::set_word(&mut header, field::CMD_SN, 1);
    text.resize(pdu::padded(text.len()), 0);
    send_all(stream, &[&header[..], &text].concat()).await?;
    let (header, text) = receive_pdu(stream).await?;
    if pdu::opcode(&header) != pdu::answer::LOGIN || header[1] != OPERATIONAL_TO_FULL || header[36] != 0 {
        let [class, detail] = [header[36], header[37]];
        return Err(io::Error::other(format!("the login was answered by status {class:02x}{detail:02x}")));
    }
    let mut agreed = Agreed::default();
    agreed.take_answer(&text)?;
    let numbers = Numbers {
        cmd_sn: 1,
        exp_stat_sn: pdu::word(&header, field::STAT_SN).wrapping_add(1),
        max_cmd_sn: pdu::word(&header, field::MAX_CMD_SN),
    };
    Ok((agreed, numbers))
}

/// Sends all of it, where nothing else is to be done meanwhile.
pub(super) async fn send_all(stream: &dyn Stream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match unless_blocked(stream.try_write(&[OutSlice::Bytes(bytes)]))? {
            Some(sent) => bytes = &bytes[sent..],
            None => poll_fn(|cx| stream.poll_writable(cx)).await?,
        }
    }
    Ok(())
}

/// The next PDU, where nothing else is to be done meanwhile.
pub(super) async fn receive_pdu(stream: &dyn Stream) -> io::Result<(Header, Vec<u8>)> {
    let mut header = [0; HEADER_BYTES];
    receive_all(stream, &mut header).await?;
    let bytes = pdu::bytes_behind(&header);
    if bytes > SEGMENT_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a PDU longer than was agreed on"));
    }
    let mut data = vec![0; bytes];
    receive_all(stream, &mut data).await?;
    data.truncate(pdu::data_bytes(&header));
    Ok((header, data))
}

async fn receive_all(stream: &dyn Stream, mut into: &mut [u8]) -> io::Result<()> {
    while !into.is_empty() {
        match unless_blocked(stream.try_read(&mut [InSlice::Bytes(into)]))? {
            Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some(bytes) => into = &mut into[bytes..],
            None => poll_fn(|cx| stream.poll_readable(cx)).await?,
        }
    }
    Ok(())
}
