//! Single requests, and their times. Each kind of request reaches one layer deeper than the previous one.

use std::io;
use std::time::Duration;

use backends::Failure;
use block::Random;
use block::{BlockDevice as _, Buffer, DeviceError, Durability, Extent, Slice};
use iscsi::pdu::Cid;

use crate::LongPackets;
use crate::measure::Subject;
use crate::measure::device::Device;
use crate::measure::places::{Part, Untouched, physical_block_bytes};
use crate::measure::way::Address;
use crate::measure::way::Way;

/// A kind of single request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Probe {
    /// A new TCP connection, which is closed again.
    Connect,
    /// A NOP-Out on any connection; over NBD, a BLOCK_STATUS.
    Nop,
    /// A NOP-Out on this connection, with this number of bytes of ping data.
    NopBy(Cid, u32),
    /// A NOP-Out on any connection, with this number of bytes of ping data.
    NopWithData(u32),
    /// TEST UNIT READY.
    TestUnitReady,
    /// A READ of this number of bytes, at least one block; always the same blocks.
    CachedRead(u32),
    /// A READ of one block that has not been read before.
    MediumRead,
    /// A WRITE of this number of bytes, or of a physical block if that is longer, aligned to its length and
    /// to the physical block.
    Write(u32),
    /// A WRITE of a physical block with FUA. If the target does not support FUA, a SYNCHRONIZE CACHE follows
    /// instead.
    DurableWrite,
    /// A SYNCHRONIZE CACHE. The WRITE before it is not part of the time.
    Flush,
    /// A WRITE of a logical block that is shorter than a physical block.
    ShortWrite,
}

/// The reason why a probe has no time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoTime {
    /// The response timed out.
    Late,
    /// The target does not support the probe, at least in this form, so a retry is useless.
    Never(String),
    /// The probe failed, but may succeed later.
    Failed(String),
}

/// The parameters that all probes share.
pub(super) struct Ground {
    /// The range to read.
    pub(super) part: Part,
    /// The range that may be written, if any.
    pub(super) writable: Option<Part>,
    pub(super) untouched: Untouched,
    pub(super) random: Random,
    /// Incompressible data to write.
    data: Slice,
    /// The address for TCP connections ([`Way::address`](super::way::Way::address)).
    connect: Option<Address>,
}

/// The longest write of any probe.
pub(super) const WRITE_BYTES_MAX: u32 = 256 << 10;

impl Ground {
    pub(super) fn new(
        part: Part,
        writable: Option<Part>,
        seed: u64,
        connect: Option<Address>,
    ) -> Ground {
        let mut random = Random::new(seed);
        let mut data = Buffer::zeroed(WRITE_BYTES_MAX as usize);
        data.chunks_exact_mut(8)
            .for_each(|word| word.copy_from_slice(&random.next().to_le_bytes()));
        let untouched = Untouched::new(part, random.next());
        Ground {
            part,
            writable,
            untouched,
            random,
            data: data.share(),
            connect,
        }
    }

    fn data(&self, extent: Extent, device: &Device) -> Result<Slice, NoTime> {
        let bytes = device.geometry().length(extent) as usize;
        self.data
            .part(0..bytes)
            .ok_or_else(|| never("the LUN's block size is larger than the written data"))
    }
}

impl Probe {
    /// Whether the probe modifies the LUN.
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

    /// Returns the probe's name for sentences.
    pub(super) fn name(self) -> String {
        match self {
            Probe::Connect => "a TCP connection".to_owned(),
            Probe::Nop => "a NOP".to_owned(),
            Probe::NopBy(cid, 0) => format!("a NOP over connection {}", cid.0),
            Probe::NopBy(cid, bytes) => {
                format!("a NOP with {bytes} bytes of data over connection {}", cid.0)
            }
            Probe::NopWithData(bytes) => format!("a NOP with {bytes} bytes of data"),
            Probe::TestUnitReady => "TEST UNIT READY".to_owned(),
            Probe::CachedRead(bytes) => format!("a READ of {bytes} bytes"),
            Probe::MediumRead => "a READ of a new block".to_owned(),
            Probe::Write(bytes) => format!("a WRITE of {bytes} bytes"),
            Probe::DurableWrite => "a WRITE with FUA".to_owned(),
            Probe::Flush => "SYNCHRONIZE CACHE".to_owned(),
            Probe::ShortWrite => "a WRITE shorter than the physical block".to_owned(),
        }
    }

    /// Sends the request once, and waits up to `patience` for the response.
    pub(super) async fn ask(
        self,
        device: &Device,
        ground: &mut Ground,
        patience: Duration,
    ) -> Result<Duration, NoTime> {
        match reactor::timeout(patience, self.timed(device, ground)).await {
            Ok(Ok(time)) if time.is_zero() => {
                Err(never("the measured time is zero, which is impossible"))
            }
            Ok(outcome) => outcome,
            Err(_) => Err(NoTime::Late),
        }
    }

    async fn timed(self, device: &Device, ground: &mut Ground) -> Result<Duration, NoTime> {
        let geometry = device.geometry();
        let block = geometry.block_size.bytes();
        match self {
            Probe::Connect => {
                connect(
                    ground
                        .connect
                        .as_ref()
                        .ok_or_else(|| never("the target has no address to connect to"))?,
                )
                .await
            }
            Probe::Nop => device.ping(None, 0).await,
            Probe::NopBy(cid, bytes) => device.ping(Some(cid), bytes).await,
            Probe::NopWithData(bytes) => device.ping(None, bytes).await,
            Probe::TestUnitReady => {
                let lun = device
                    .lun()
                    .ok_or_else(|| never("NBD has no such request"))?;
                let begun = reactor::now();
                // This is the device's check for changes, which takes the same path as a READ here.
                lun.refresh().await.map_err(of_device)?;
                Ok(since(begun))
            }
            Probe::CachedRead(bytes) => {
                let extent = ground.part.first(bytes.max(block), geometry);
                read(
                    device,
                    extent.ok_or_else(|| never("the LUN is smaller than the request"))?,
                )
                .await
            }
            Probe::MediumRead => {
                let extent = ground.untouched.next(block, geometry);
                let extent = extent.ok_or_else(|| never("the LUN has no unread blocks left"))?;
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
            Probe::ShortWrite if physical(device) <= block => Err(never(
                "the physical block is no longer than the logical one",
            )),
            Probe::ShortWrite => {
                let extent = writable(ground, device, block)?;
                write(device, ground, extent, Durability::Cached).await
            }
        }
    }
}

/// Opens a TCP connection and closes it again. Returns the time of the three-way handshake, in which only the kernels
/// of both ends take part.
pub(super) async fn connect((address, options): &Address) -> Result<Duration, NoTime> {
    let failed = |error: io::Error| NoTime::Failed(format!("cannot connect: {error}"));
    let begun = reactor::now();
    let stream = reactor::world()
        .connect(*address, options)
        .map_err(failed)?;
    std::future::poll_fn(|cx| stream.poll_writable(cx))
        .await
        .map_err(failed)?;
    // A first write shows whether the connection succeeded, even if the write is empty.
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

/// Returns an extent that may be overwritten.
fn writable(ground: &mut Ground, device: &Device, bytes: u32) -> Result<Extent, NoTime> {
    let part = ground.writable.ok_or_else(|| never(NOT_ALLOWED))?;
    let extent = part.somewhere(bytes, device.geometry(), &mut ground.random);
    extent.ok_or_else(|| never("the writable range is smaller than the request"))
}

/// The reason why writes are not measured.
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

// Lost long packets. Short exchanges work, but exchanges with full-size packets hang, because a device on the
// path silently drops long packets (RFC 2923 section 2.1, "path MTU discovery black hole").
//
// A long response and a long request are sent first, so that the problem is detected early. TCP delivers in
// order, so after a long packet is lost, the connection remains unresponsive; this distinguishes it from a
// slow disk. Shorter segments arrive, and all other measurements use the longest segments that do.

/// A path that works, and the findings about long packets.
pub(super) struct Found {
    pub(super) way: Way,
    pub(super) long_packets: Option<LongPackets>,
    /// The failure of a NOP with data that had no response, if packet length is not the cause.
    pub(super) unanswered_ping: Option<String>,
}

/// Segment lengths to try: for Ethernet's 1500 bytes; for PPPoE, tunnels and overlays, which take up to 100
/// of these; for IPv6's guaranteed minimum (1280 bytes); and TCP's minimum.
const SEGMENTS: [u16; 4] = [1460, 1360, 1220, 536];
/// The length of a long READ: it takes many packets, but is within every target's limit.
const READ_BYTES: u32 = 64 << 10;

/// Sends long packets in both directions, and tries shorter segments if they are lost. `patience` is the
/// timeout of a request without a disk access.
pub(super) async fn look(
    mut way: Way,
    ground: &mut Ground,
    cids: &[Cid],
    ping_bytes: u32,
    patience: Duration,
) -> Result<Found, Failure> {
    let ping = Probe::NopWithData(ping_bytes);
    // A READ uses the first connection, as does a NOP without a fixed connection.
    let others = cids
        .iter()
        .skip(1)
        .map(|cid| Probe::NopBy(*cid, ping_bytes));
    let probes: Vec<Probe> = [ping, Probe::CachedRead(READ_BYTES)]
        .into_iter()
        .chain(others)
        .collect();
    let mut found = None;
    let mut unanswered_ping = None;
    for probe in probes {
        let is_ping = probe != Probe::CachedRead(READ_BYTES);
        if is_ping && unanswered_ping.is_some() {
            continue;
        }
        let Some(segment_bytes) = hangs(probe, &mut way, ground, patience).await? else {
            continue;
        };
        let lost = format!(
            "{} had no response in {:.1} s",
            probe.name(),
            patience.as_secs_f64()
        );
        let shorter = shorter(way.subject(), segment_bytes, probe, ground, patience).await?;
        let works_bytes = shorter.as_ref().map(|(bytes, _)| u32::from(*bytes));
        if let Some((_, better)) = shorter {
            way = better;
        } else if is_ping {
            // The target may not support pings with data. If the path is the cause, the READ will time out as
            // well.
            unanswered_ping = Some(lost);
            continue;
        }
        found = Some(LongPackets {
            lost,
            segment_bytes,
            works_bytes,
        });
        if works_bytes.is_none() {
            break;
        }
    }
    Ok(Found {
        way,
        long_packets: found,
        unanswered_ping,
    })
}

/// Checks whether this request makes its connection permanently unresponsive. If it does, returns the
/// connection's segment length.
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
    let again = if let Probe::NopBy(cid, _) = probe {
        Probe::NopBy(cid, 0)
    } else {
        Probe::Nop
    };
    let is_silent = again.ask(&lun, ground, patience / 2).await.is_err();
    way.give_up();
    Ok(segment_bytes.filter(|_| is_silent))
}

/// Returns a path with shorter segments on which `probe` completes, if there is one.
async fn shorter(
    subject: &Subject,
    than: u32,
    probe: Probe,
    ground: &mut Ground,
    patience: Duration,
) -> Result<Option<(u16, Way)>, Failure> {
    for bytes in SEGMENTS
        .into_iter()
        .filter(|bytes| u32::from(*bytes) < than)
    {
        let shorter = subject
            .with("tcp-segment", &bytes.to_string())
            .map_err(Failure::failed)?;
        let mut way = Way::open(&shorter).await?;
        let lun = way.device().await.map_err(Failure::failed)?;
        if probe.ask(&lun, ground, patience).await != Err(NoTime::Late) {
            return Ok(Some((bytes, way)));
        }
        way.give_up();
    }
    Ok(None)
}

/// Returns TCP's segment length on the session's first connection.
async fn segment_bytes(device: &Device) -> Option<u32> {
    device
        .told()
        .await?
        .connections
        .first()?
        .path
        .as_ref()
        .map(|path| path.segment_bytes)
}
