//! The half that asks.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use iscsi::login::{Attached, InitiatorConfig, InitiatorEvent, InitiatorLogin, LoginFailure};
use iscsi::name::Name;
use iscsi::negotiate::SessionType;
use iscsi::pdu::{BHS_BYTES, Bhs, Cid, Isid, Itt, Tsih, pad_bytes};
use iscsi::serial::Sn;
use reactor::{InSlice, OutSlice, Stream, StreamOptions};

use super::asking::Asking;
use super::{SEGMENT_BYTES, bytes_behind, invalid};
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

/// The same as [`ask`] over so many connections to a portal.
///
/// # Errors
/// As there, or what connecting fails with.
pub async fn ask_at(
    portal: SocketAddr,
    sessions: u8,
    target: &str,
    lun: u16,
    load: Load,
    times: [Duration; 2],
) -> io::Result<Asked> {
    let mut streams: Vec<Box<dyn Stream>> = Vec::new();
    for _ in 0..sessions {
        let stream = reactor::world().connect(portal, &StreamOptions::default())?;
        poll_fn(|cx| stream.poll_writable(cx)).await?;
        streams.push(stream);
    }
    let streams: Vec<&dyn Stream> = streams.iter().map(|stream| &**stream).collect();
    ask(&streams, target, lun, load, times).await
}

/// Logs in over each of the streams, to LUN `lun` of `target`, and asks for at least `duration` after `warm_up`. It looks
/// for answers all the time and never sleeps. The streams have commands under way afterwards and are of no further use.
///
/// Fails with what a socket says, with `InvalidData` if `target` is no name or the answers are no iSCSI, and with `Other`
/// if a login or command is answered by a failure.
pub async fn ask(
    streams: &[&dyn Stream],
    target: &str,
    lun: u16,
    load: Load,
    [warm_up, duration]: [Duration; 2],
) -> io::Result<Asked> {
    let mut sessions = Vec::new();
    for (number, stream) in streams.iter().enumerate() {
        let agreed = log_in(*stream, target, number as u8).await?;
        sessions.push(Asking::new(*stream, &agreed, lun, load, number as u64));
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

/// The CmdSN of a session's first command.
pub(super) const CMD_SN: Sn = Sn(1);

async fn log_in(stream: &dyn Stream, target: &str, number: u8) -> io::Result<Attached> {
    let mut login = InitiatorLogin::new(InitiatorConfig {
        initiator_name: Name::new(&format!("iqn.2026-01.io.linerate:raw-{number}")).map_err(invalid)?,
        target_name: Some(Name::to_send(target).map_err(invalid)?),
        session_type: SessionType::Normal,
        isid: Isid([0x80, 0, 0, 0, 0, number]), // one of its own for each session
        tsih: Tsih::NEW,
        cid: Cid(0),
        itt: Itt::ZERO,
        cmd_sn: CMD_SN,
        chap: None,
        offers: super::offers(),
        session: None,
    });
    loop {
        while let Some(transmit) = login.poll_transmit() {
            send_pdu(stream, &transmit.bhs, &transmit.data).await?;
        }
        let (bhs, data) = receive_pdu(stream).await?;
        login.handle_pdu(&bhs, &data);
        match login.poll_event() {
            None => {}
            Some(InitiatorEvent::LoggedIn(agreed)) => return Ok(*agreed),
            Some(InitiatorEvent::Redirected { address, .. }) => {
                return Err(io::Error::other(format!("the target is now at {address}")));
            }
            Some(InitiatorEvent::Failed(failure @ LoginFailure::Refused(_))) => {
                return Err(io::Error::other(failure));
            }
            Some(InitiatorEvent::Failed(failure)) => return Err(invalid(failure)),
        }
    }
}

/// Sends a PDU, where nothing else is to be done meanwhile.
pub(super) async fn send_pdu(stream: &dyn Stream, bhs: &Bhs, data: &[u8]) -> io::Result<()> {
    send_all(stream, &[&bhs.0[..], data, &[0; 3][..pad_bytes(data.len())]].concat()).await
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
pub(super) async fn receive_pdu(stream: &dyn Stream) -> io::Result<(Bhs, Vec<u8>)> {
    let mut bhs = Bhs([0; BHS_BYTES]);
    receive_all(stream, &mut bhs.0).await?;
    let bytes = bytes_behind(&bhs);
    if bytes > SEGMENT_BYTES {
        return Err(invalid("a PDU longer than was agreed on"));
    }
    let mut data = vec![0; bytes];
    receive_all(stream, &mut data).await?;
    data.truncate(bhs.data_segment_length() as usize);
    Ok((bhs, data))
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
