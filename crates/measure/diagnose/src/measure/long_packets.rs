//! Long packets that vanish: short exchanges work, and whatever fills a packet hangs, since something on the way carries
//! only shorter ones and does not say so (RFC 2923 section 2.1, "path MTU discovery black hole").
//!
//! It shows at once, if a long answer and a long question are tried first; and since TCP delivers in order, a connection
//! on which a long packet is lost is silent from then on, so that it is not taken for a slow disk. Shorter segments get
//! through: with the longest that do, everything else is measured.

use std::time::Duration;

use crate::LongPackets;
use iscsi::pdu::Cid;

use super::device::Device;
use super::probe::{Ground, NoTime, Probe};
use super::subject::Subject;
use super::way::Way;
use backends::Failure;

/// The way that works, and what was found on it.
pub(super) struct Found {
    pub(super) way: Way,
    pub(super) long_packets: Option<LongPackets>,
    /// A NOP with data was never answered, though it is not the length of packets that is to blame: in a sentence.
    pub(super) unanswered_ping: Option<String>,
}

/// Segments that get through where others do not: Ethernet's 1500 bytes; PPPoE, tunnels and overlays, which take up to 100
/// of them; the least that IPv6 promises (1280); the least that TCP does.
const SEGMENTS: [u16; 4] = [1460, 1360, 1220, 536];
/// A long READ: many packets, and no more than any target gives at once.
const READ_BYTES: u32 = 64 << 10;

/// Tries long packets both ways, and shorter ones if they vanish. `patience` is what an answer may take that has nothing
/// to do with a disk.
pub(super) async fn look(
    mut way: Way,
    ground: &mut Ground,
    cids: &[Cid],
    ping_bytes: u32,
    patience: Duration,
) -> Result<Found, Failure> {
    let ping = Probe::NopWithData(ping_bytes);
    // A READ goes by the first connection, and so does a NOP by any.
    let others = cids.iter().skip(1).map(|cid| Probe::NopBy(*cid, ping_bytes));
    let probes: Vec<Probe> = [ping, Probe::CachedRead(READ_BYTES)].into_iter().chain(others).collect();
    let mut found = None;
    let mut unanswered_ping = None;
    for probe in probes {
        let is_ping = probe != Probe::CachedRead(READ_BYTES);
        if is_ping && unanswered_ping.is_some() {
            continue;
        }
        let Some(segment_bytes) = hangs(probe, &mut way, ground, patience).await? else { continue };
        let lost = format!("{} had no answer in {:.1} s", probe.name(), patience.as_secs_f64());
        let shorter = shorter(way.subject(), segment_bytes, probe, ground, patience).await?;
        let works_bytes = shorter.as_ref().map(|(bytes, _)| u32::from(*bytes));
        if let Some((_, better)) = shorter {
            way = better;
        } else if is_ping {
            // A target may not like it. If it is the way, the READ will not come back either.
            unanswered_ping = Some(lost);
            continue;
        }
        found = Some(LongPackets { lost, segment_bytes, works_bytes });
        if works_bytes.is_none() {
            break;
        }
    }
    Ok(Found { way, long_packets: found, unanswered_ping })
}

/// Whether a connection falls silent for good when this is asked; the length of its segments then.
async fn hangs(
    probe: Probe,
    way: &mut Way,
    ground: &mut Ground,
    patience: Duration,
) -> Result<Option<u32>, Failure> {
    let lun = way.device().await.map_err(Failure::failed)?;
    let outcome = probe.ask(&lun, ground, patience).await;
    if outcome != Err(NoTime::Late) {
        return Ok(None);
    }
    let segment_bytes = segment_bytes(&lun).await;
    let again = if let Probe::NopBy(cid, _) = probe { Probe::NopBy(cid, 0) } else { Probe::Nop };
    let is_silent = again.ask(&lun, ground, patience / 2).await.is_err();
    way.give_up();
    Ok(segment_bytes.filter(|_| is_silent))
}

/// A way with shorter segments by which `probe` is answered, if there is one.
async fn shorter(
    subject: &Subject,
    than: u32,
    probe: Probe,
    ground: &mut Ground,
    patience: Duration,
) -> Result<Option<(u16, Way)>, Failure> {
    for bytes in SEGMENTS.into_iter().filter(|bytes| u32::from(*bytes) < than) {
        let shorter = subject.with("tcp-segment", &bytes.to_string()).map_err(Failure::failed)?;
        let mut way = Way::open(&shorter).await?;
        let lun = way.device().await.map_err(Failure::failed)?;
        if probe.ask(&lun, ground, patience).await != Err(NoTime::Late) {
            return Ok(Some((bytes, way)));
        }
        way.give_up();
    }
    Ok(None)
}

/// What TCP sends at once, by the session's first connection.
async fn segment_bytes(device: &Device) -> Option<u32> {
    device.told().await?.connections.first()?.path.as_ref().map(|path| path.segment_bytes)
}
