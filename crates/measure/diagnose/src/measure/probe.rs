//! What can be asked alone, and how long one asking takes. Each is a layer deeper than the one before.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use backends::Failure;
use block::Random;
use block::{BlockDevice as _, Buffer, DeviceError, Durability, Extent, Slice};
use iscsi::pdu::Cid;
use reactor::StreamOptions;

use crate::LongPackets;
use crate::measure::Subject;
use crate::measure::device::Device;
use crate::measure::places::{Part, Untouched, physical_block_bytes};
use crate::measure::way::Way;

/// One thing to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Probe {
    /// A TCP connection, which is closed again.
    Connect,
    /// A NOP-Out by any connection; over NBD a BLOCK_STATUS.
    Nop,
    /// By this one, with so many bytes of ping data.
    NopBy(Cid, u32),
    /// With so many bytes of ping data.
    NopWithData(u32),
    /// TEST UNIT READY.
    TestUnitReady,
    /// A READ of so many bytes, always the same; of one block if there are fewer in it.
    CachedRead(u32),
    /// A READ of one block that was not read before.
    MediumRead,
    /// A WRITE of so many bytes, or of a physical block if that is longer, at a multiple of both.
    Write(u32),
    /// A WRITE of a physical block with FUA; where the target knows none, with SYNCHRONIZE CACHE behind it.
    DurableWrite,
    /// SYNCHRONIZE CACHE behind a WRITE, which is not timed.
    Flush,
    /// A WRITE of a logical block that is shorter than the physical one.
    ShortWrite,
}

/// Why there is no time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoTime {
    /// There was no answer in time.
    Late,
    /// The target does not do it, or not so; asking again is of no use.
    Never(String),
    /// It failed this time.
    Failed(String),
}

/// Where and what is asked.
pub(super) struct Ground {
    /// Where reads go.
    pub(super) part: Part,
    /// Where writes may go.
    pub(super) writable: Option<Part>,
    pub(super) untouched: Untouched,
    pub(super) random: Random,
    /// What is written: numbers that nothing can compress.
    data: Slice,
    /// Where TCP connects to, and how its sockets are made: nowhere over NBD, whose servers log an error for each client that
    /// leaves without a word.
    connect: Option<(SocketAddr, StreamOptions)>,
}

/// The longest write that is asked for.
pub(super) const WRITE_BYTES_MAX: u32 = 256 << 10;

impl Ground {
    pub(super) fn new(
        part: Part,
        writable: Option<Part>,
        seed: u64,
        connect: Option<(SocketAddr, StreamOptions)>,
    ) -> Ground {
        let mut random = Random::new(seed);
        let mut data = Buffer::zeroed(WRITE_BYTES_MAX as usize);
        data.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.next().to_le_bytes()));
        let untouched = Untouched::new(part, random.next());
        Ground { part, writable, untouched, random, data: data.share(), connect }
    }

    fn data(&self, extent: Extent, device: &Device) -> Result<Slice, NoTime> {
        let bytes = device.geometry().length(extent) as usize;
        self.data.part(0..bytes).ok_or_else(|| never("the LUN's blocks are longer than what is written here"))
    }
}

impl Probe {
    /// Whether it changes what is on the LUN.
    pub(super) fn writes(self) -> bool {
        match self {
            Probe::Write(_) | Probe::DurableWrite | Probe::Flush | Probe::ShortWrite => true,
            Probe::Connect
            | Probe::Nop
            | Probe::NopBy(..)
            | Probe::NopWithData(_)
            | Probe::TestUnitReady
            | Probe::CachedRead(_)
            | Probe::MediumRead => false,
        }
    }

    /// Its name in sentences.
    pub(super) fn name(self) -> String {
        match self {
            Probe::Connect => "a TCP connection".to_owned(),
            Probe::Nop => "a NOP".to_owned(),
            Probe::NopBy(cid, 0) => format!("a NOP by connection {}", cid.0),
            Probe::NopBy(cid, bytes) => format!("a NOP with {bytes} bytes of data by connection {}", cid.0),
            Probe::NopWithData(bytes) => format!("a NOP with {bytes} bytes of data"),
            Probe::TestUnitReady => "TEST UNIT READY".to_owned(),
            Probe::CachedRead(bytes) => format!("a READ of {bytes} bytes"),
            Probe::MediumRead => "a READ at a place not read before".to_owned(),
            Probe::Write(bytes) => format!("a WRITE of {bytes} bytes"),
            Probe::DurableWrite => "a WRITE with FUA".to_owned(),
            Probe::Flush => "SYNCHRONIZE CACHE".to_owned(),
            Probe::ShortWrite => "a WRITE shorter than the physical block".to_owned(),
        }
    }

    /// Asks once, and waits no longer than `patience` for the answer.
    pub(super) async fn ask(
        self,
        device: &Device,
        ground: &mut Ground,
        patience: Duration,
    ) -> Result<Duration, NoTime> {
        match reactor::timeout(patience, self.timed(device, ground)).await {
            Ok(Ok(time)) if time.is_zero() => Err(never("it took no time at all, which cannot be")),
            Ok(outcome) => outcome,
            Err(_) => Err(NoTime::Late),
        }
    }

    async fn timed(self, device: &Device, ground: &mut Ground) -> Result<Duration, NoTime> {
        let geometry = device.geometry();
        let block = geometry.block_size.bytes();
        match self {
            Probe::Connect => connect(ground).await,
            Probe::Nop => device.ping(None, 0).await,
            Probe::NopBy(cid, bytes) => device.ping(Some(cid), bytes).await,
            Probe::NopWithData(bytes) => device.ping(None, bytes).await,
            Probe::TestUnitReady => {
                let lun = device.lun().ok_or_else(|| never("NBD has no such request"))?;
                let begun = reactor::now();
                // What a device does to see whether anything has changed: the same way as a READ takes here.
                lun.refresh().await.map_err(of_device)?;
                Ok(since(begun))
            }
            Probe::CachedRead(bytes) => {
                let extent = ground.part.first(bytes.max(block), geometry);
                read(device, extent.ok_or_else(|| never("the LUN is smaller than that"))?).await
            }
            Probe::MediumRead => {
                let extent = ground.untouched.next(block, geometry);
                let extent = extent.ok_or_else(|| never("the LUN has no places left that were not read"))?;
                read(device, extent).await
            }
            Probe::Write(bytes) => {
                let extent = writable(ground, device, bytes.max(physical(device)))?;
                write(device, ground, extent, Durability::Cached).await
            }
            Probe::DurableWrite => {
                let extent = writable(ground, device, physical(device))?;
                write(device, ground, extent, Durability::Stable).await
            }
            Probe::Flush => {
                let extent = writable(ground, device, physical(device))?;
                write(device, ground, extent, Durability::Cached).await?;
                let begun = reactor::now();
                device.flush().await.map_err(of_device)?;
                Ok(since(begun))
            }
            Probe::ShortWrite if physical(device) <= block => {
                Err(never("the physical block is no longer than the logical one"))
            }
            Probe::ShortWrite => {
                let extent = writable(ground, device, block)?;
                write(device, ground, extent, Durability::Cached).await
            }
        }
    }
}

async fn connect(ground: &Ground) -> Result<Duration, NoTime> {
    let failed = |error: io::Error| NoTime::Failed(format!("cannot connect: {error}"));
    let begun = reactor::now();
    let (address, options) = ground.connect.as_ref().ok_or_else(|| never("nothing is to be connected to"))?;
    let stream = reactor::world().connect(*address, options).map_err(failed)?;
    std::future::poll_fn(|cx| stream.poll_writable(cx)).await.map_err(failed)?;
    // Whether it has come to be connected, a first write tells, if it is of nothing too.
    stream.try_write(&[]).map_err(failed)?;
    Ok(since(begun))
}

async fn read(device: &Device, extent: Extent) -> Result<Duration, NoTime> {
    let buffer = Buffer::recycled(device.geometry().length(extent) as usize);
    let begun = reactor::now();
    device.read(extent, buffer).await.map_err(of_device)?;
    Ok(since(begun))
}

async fn write(
    device: &Device,
    ground: &Ground,
    extent: Extent,
    how: Durability,
) -> Result<Duration, NoTime> {
    let data = ground.data(extent, device)?;
    let begun = reactor::now();
    device.write(extent, data, how).await.map_err(of_device)?;
    Ok(since(begun))
}

/// Somewhere that may be written.
fn writable(ground: &mut Ground, device: &Device, bytes: u32) -> Result<Extent, NoTime> {
    let part = ground.writable.ok_or_else(|| never(NOT_ALLOWED))?;
    let extent = part.somewhere(bytes, device.geometry(), &mut ground.random);
    extent.ok_or_else(|| never("what may be written is smaller than that"))
}

/// Why nothing was written.
pub(super) const NOT_ALLOWED: &str = "writing was not allowed (--allow-write)";

fn physical(device: &Device) -> u32 {
    u32::try_from(physical_block_bytes(device.geometry())).unwrap_or(u32::MAX)
}

pub(super) fn since(begun: std::time::Instant) -> Duration {
    reactor::now().saturating_duration_since(begun)
}

pub(super) fn never(why: &str) -> NoTime {
    NoTime::Never(why.to_owned())
}

pub(super) fn of_device(error: DeviceError) -> NoTime {
    match error {
        DeviceError::Unsupported
        | DeviceError::ReadOnly
        | DeviceError::OutOfRange
        | DeviceError::Reserved => NoTime::Never(error.to_string()),
        DeviceError::Unreadable(_)
        | DeviceError::Unwritable(_)
        | DeviceError::NotReady
        | DeviceError::NoSpace
        | DeviceError::TimedOut
        | DeviceError::Cancelled
        | DeviceError::WritesLost
        | DeviceError::Fenced
        | DeviceError::Unsettled => NoTime::Failed(error.to_string()),
    }
}

// Long packets that vanish: short exchanges work, and whatever fills a packet hangs, since something on the way carries
// only shorter ones and does not say so (RFC 2923 section 2.1, "path MTU discovery black hole").
//
// It shows at once, if a long answer and a long question are tried first; and since TCP delivers in order, a connection
// on which a long packet is lost is silent from then on, so that it is not taken for a slow disk. Shorter segments get
// through: with the longest that do, everything else is measured.

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
