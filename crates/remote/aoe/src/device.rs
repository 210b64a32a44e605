//! AoE devices: discovers them on an Ethernet, opens one, and implements [`BlockDevice`] for it.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use aoe::{
    Address, Ata, AtaError, ErrorCode, IDENTITY_BYTES, Identity, SECTOR_BYTES, WriteCache,
    write_trim_ranges,
};
use block::{
    Allocation, BlockDevice, BlockSize, Blocks, Buffer, DeviceError, Durability, Extent, Geometry,
    Lba, LossCounter, Losses, Pending, Profile, Run, Slice,
};
use derive_more::Display;
use failover::{Claim, Claims};
use reactor::Resident;

use crate::session::{
    AGAIN, Asked, Counters, Exchange, Failed, Found, Route, Session, endpoint, query,
};
use crate::url::Url;

/// Maximum number of zeroed sectors to send in one request. AoE has no command that writes zeros.
const ZEROES_MAX: u64 = 2048;

/// A device on an Ethernet. It can be used from any thread that runs a reactor; its commands run on the
/// thread that opened it.
pub struct RemoteAoe {
    commands: Resident<Commands>,
    geometry: Geometry,
    profile: Profile,
    identity: Identity,
    sectors: u8,
    /// Losses of cached writes that flushes have reported. The session counts them.
    losses: LossCounter,
}

/// The parts that stay on the thread that opened the device.
struct Commands {
    session: Rc<Session>,
    claims: Claims,
    sectors: u8,
    timeout: Duration,
}

impl RemoteAoe {
    pub(crate) fn new(
        session: Rc<Session>,
        url: &Url,
        identity: &Identity,
        sectors: u8,
    ) -> RemoteAoe {
        debug_assert!(sectors > 0, "a frame has space for a sector");
        let commands = Commands {
            session,
            claims: Claims::default(),
            sectors,
            timeout: url.options.timeout,
        };
        let leave = async |commands: Rc<Commands>| commands.session.leave();
        let has_flush = identity.has_flush || identity.has_flush_ext;
        RemoteAoe {
            commands: Resident::new(Rc::new(commands), leave),
            geometry: Geometry {
                block_size: BlockSize::B512,
                blocks: Blocks(identity.sectors),
                physical_exponent: identity.physical_exponent.min(8),
            },
            profile: Profile {
                // The protocol does not report write protection.
                read_only: false,
                thin: identity.trims,
                granularity: Blocks(1 << identity.physical_exponent.min(8)),
                volatile_cache: has_flush || identity.has_write_cache(),
                durable: true,
                solid_state: identity.is_solid_state,
                optimal_transfer: None,
                // The client cannot detect a restart of the server: the protocol has no sessions, and the new
                // server responds like the old one.
                loses_unseen: identity.write_cache != WriteCache::Off
                    && !url.options.cache_loss_unseen,
            },
            identity: identity.clone(),
            sectors,
            losses: LossCounter::default(),
        }
    }

    /// The identity that the device reports.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Maximum number of sectors per frame.
    pub fn sectors(&self) -> u8 {
        self.sectors
    }

    /// The session's counters; `None` if the thread that runs the commands has ended.
    pub async fn counters(&self) -> Option<Counters> {
        self.commands
            .with(async |commands: Rc<Commands>| commands.session.counters())
            .await
    }

    fn check(&self, extent: Extent) -> Result<(), DeviceError> {
        let end = extent
            .lba
            .0
            .checked_add(extent.blocks.0)
            .filter(|end| *end <= self.geometry.blocks.0);
        end.map(drop).ok_or(DeviceError::OutOfRange)
    }

    /// Runs `work` on the thread that runs the commands.
    async fn on<R: Send + 'static, F: Future<Output = Result<R, DeviceError>> + 'static>(
        &self,
        work: impl FnOnce(Rc<Commands>) -> F + Send + 'static,
    ) -> Result<R, DeviceError> {
        self.commands
            .with(work)
            .await
            .unwrap_or(Err(DeviceError::NotReady))
    }

    async fn sync(&self) -> Result<(), DeviceError> {
        let is_extended = self.identity.has_flush_ext;
        if !is_extended && !self.identity.has_flush {
            return Ok(());
        }
        let losses = self.losses.clone();
        self.on(async move |commands: Rc<Commands>| commands.flush(is_extended, losses).await)
            .await
    }

    async fn trim(&self, extent: Extent) -> Result<(), DeviceError> {
        self.check(extent)?;
        self.on(async move |commands: Rc<Commands>| commands.trim(extent).await)
            .await
    }
}

impl Commands {
    fn ask(
        &self,
        ata: Ata,
        data: Option<Slice>,
        returns: usize,
        claim: Option<&Claim>,
        is_slow: bool,
    ) -> Exchange {
        let (claim, deadline) = (claim.cloned(), reactor::now() + self.timeout);
        self.session.ask(Asked {
            ata,
            data,
            returns,
            claim,
            losses: None,
            is_slow,
            deadline,
        })
    }

    /// Claims these sectors for a change. The claim is granted once no older change of them can still arrive.
    async fn claim(&self, extent: Extent) -> Result<Claim, DeviceError> {
        let bytes = |sectors: u64| sectors * SECTOR_BYTES as u64;
        let claim = self
            .claims
            .claim(bytes(extent.lba.0)..bytes(extent.lba.0 + extent.blocks.0));
        reactor::timeout(self.timeout, claim.granted())
            .await
            .map_err(|_| DeviceError::NotReady)?;
        Ok(claim)
    }

    async fn read(&self, extent: Extent, mut buffer: Buffer) -> Result<Buffer, DeviceError> {
        debug_assert_eq!(
            buffer.len() as u64,
            extent.blocks.0 * SECTOR_BYTES as u64,
            "a read fills its buffer with its sectors"
        );
        let pieces: Vec<(Extent, Exchange)> = extent
            .chunks(self.sectors.into())
            .map(|piece| {
                let ata = Ata::read(piece.lba.0, piece.blocks.0 as u8);
                (
                    piece,
                    self.ask(
                        ata,
                        None,
                        piece.blocks.0 as usize * SECTOR_BYTES,
                        None,
                        false,
                    ),
                )
            })
            .collect();
        for (piece, exchange) in pieces {
            let data = exchange
                .await
                .map_err(|failed| error(failed, DeviceError::Unreadable(piece.lba)))?;
            let at = (piece.lba.0 - extent.lba.0) as usize * SECTOR_BYTES;
            buffer[at..at + data.len()].copy_from_slice(&data);
        }
        Ok(buffer)
    }

    async fn write(&self, extent: Extent, data: Slice) -> Result<(), DeviceError> {
        debug_assert_eq!(
            data.len() as u64,
            extent.blocks.0 * SECTOR_BYTES as u64,
            "a write has the data of its sectors"
        );
        let claim = self.claim(extent).await?;
        let piece_of = |piece: Extent| {
            let at = (piece.lba.0 - extent.lba.0) as usize * SECTOR_BYTES;
            data.part(at..at + piece.blocks.0 as usize * SECTOR_BYTES)
        };
        let mut exchanges = Vec::new();
        for piece in extent.chunks(self.sectors.into()) {
            let ata = Ata::write_sectors(piece.lba.0, piece.blocks.0 as u8);
            let data = piece_of(piece).ok_or(DeviceError::OutOfRange)?;
            exchanges.push((piece.lba, self.ask(ata, Some(data), 0, Some(&claim), false)));
        }
        drop(claim);
        all_of(exchanges).await
    }

    /// Flushes the device. If the reply reports a loss, it is counted in `losses`.
    async fn flush(&self, is_extended: bool, losses: LossCounter) -> Result<(), DeviceError> {
        let flushed = self.session.ask(Asked {
            ata: Ata::flush(is_extended),
            data: None,
            returns: 0,
            claim: None,
            losses: Some(losses),
            is_slow: true,
            deadline: reactor::now() + self.timeout,
        });
        flushed.await.map_err(Failed::of_flush)?;
        let ended = reactor::timeout(self.timeout, self.session.abandoned_flushes_ended()).await;
        ended.map_err(|_| DeviceError::NotReady)
    }

    async fn trim(&self, extent: Extent) -> Result<(), DeviceError> {
        let (mut lba, end) = (extent.lba.0, extent.lba.0 + extent.blocks.0);
        while lba < end {
            let mut ranges = [0; SECTOR_BYTES];
            let sectors = write_trim_ranges(lba, end - lba, &mut ranges);
            debug_assert!(
                (1..=end - lba).contains(&sectors),
                "each command trims some of the rest"
            );
            let claim = self.claim(Extent::new(lba, sectors)).await?;
            let data = Buffer::from(&ranges[..]).share();
            let exchange = self.ask(Ata::trim(1), Some(data), 0, Some(&claim), true);
            drop(claim);
            all_of(vec![(Lba(lba), exchange)]).await?;
            lba += sectors;
        }
        Ok(())
    }
}

/// Waits for all commands, even if one fails, because dropping an exchange would abandon its command. Returns
/// the first failure.
async fn all_of(exchanges: Vec<(Lba, Exchange)>) -> Result<(), DeviceError> {
    let mut first = Ok(());
    for (lba, exchange) in exchanges {
        let changed = exchange
            .await
            .map(drop)
            .map_err(|failed| error(failed, DeviceError::Unwritable(lba)));
        first = first.and(changed);
    }
    first
}

/// Converts a failure to a block device's error: `otherwise` if the device reported an unspecific error.
fn error(failed: Failed, otherwise: DeviceError) -> DeviceError {
    match failed {
        Failed::TimedOut | Failed::Refused(ErrorCode::Unavailable) => DeviceError::NotReady,
        Failed::Refused(ErrorCode::Reserved) => DeviceError::Reserved,
        Failed::Refused(_) => DeviceError::Unsupported,
        Failed::Device(register) if register & AtaError::NoSector as u8 != 0 => {
            DeviceError::OutOfRange
        }
        Failed::Device(_) => otherwise,
    }
}

impl BlockDevice for RemoteAoe {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn profile(&self) -> Profile {
        self.profile
    }

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        Box::pin(async move {
            self.check(extent)?;
            if self.geometry.length(extent) != buffer.len() as u64 {
                return Err(DeviceError::OutOfRange);
            }
            self.on(async move |commands: Rc<Commands>| commands.read(extent, buffer).await)
                .await
        })
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        Box::pin(async move {
            self.check(extent)?;
            if self.geometry.length(extent) != data.len() as u64 {
                return Err(DeviceError::OutOfRange);
            }
            let before = self.losses().count();
            self.on(async move |commands: Rc<Commands>| commands.write(extent, data).await)
                .await?;
            if durability == Durability::Stable {
                self.sync().await?;
                // This write may be lost, and another flush may have received the only report of the loss.
                if self.losses().count() != before {
                    return Err(DeviceError::WritesLost);
                }
            }
            Ok(())
        })
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(self.sync())
    }

    fn losses(&self) -> Losses {
        self.losses.get()
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        Box::pin(async move {
            match self.identity.trims {
                true => self.trim(extent).await,
                false => self.check(extent),
            }
        })
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        Box::pin(async move {
            self.check(extent)?;
            if may_unmap && self.identity.trims {
                return self.trim(extent).await;
            }
            for piece in extent.chunks(ZEROES_MAX) {
                let zeros = Buffer::zeroed(self.geometry.length(piece) as usize).share();
                self.on(async move |commands: Rc<Commands>| commands.write(piece, zeros).await)
                    .await?;
            }
            Ok(())
        })
    }

    /// Reports all blocks as allocated, because ATA has no command that queries allocation.
    fn allocation(&self, extent: Extent, _: usize) -> Pending<'_, Vec<Run>> {
        Box::pin(async move {
            self.check(extent)?;
            Ok(vec![Run {
                extent,
                allocation: Allocation::Mapped,
            }])
        })
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(self.on(async |commands: Rc<Commands>| {
            commands.claims.quiesced().await;
            Ok(())
        }))
    }
}

// Discovers devices on an Ethernet, and opens one.

/// Sectors per frame if nothing else is known: two sectors fit into a frame of any Ethernet.
const SECTORS_USUAL: u8 = 2;
/// Time limit for the reply to the read that tests long frames. It allows for some retransmissions.
const PROBE: Duration = Duration::from_secs(2);
/// The model that Linerate's server reports. This server remembers the tags of executed writes.
const OWN_MODEL: &str = "LINERATE";

/// Why a device could not be opened.
#[derive(Debug, Display)]
pub enum OpenError {
    /// The interface cannot be used.
    #[display("{_0}")]
    Interface(io::Error),
    /// The device did not respond.
    #[display("no AoE device {address} responded on {interface} within {} s", timeout.as_secs_f64())]
    Silent {
        /// The device.
        address: Address,
        /// The interface.
        interface: String,
        /// The time limit.
        timeout: Duration,
    },
    /// The server rejected a command.
    #[display("AoE device {_0}: {_1}")]
    Refused(Address, ErrorCode),
    /// The device has failed IDENTIFY DEVICE.
    #[display("AoE device {_0} rejected IDENTIFY DEVICE: error register 0x{_1:02x}")]
    Unidentified(Address, u8),
    /// The device has no sectors.
    #[display("AoE device {_0} has no sectors")]
    Empty(Address),
}

impl std::error::Error for OpenError {}

/// Queries all devices on the Ethernet of an interface. Returns those that respond within `time`, in order.
///
/// # Errors
/// The interface cannot be used.
pub async fn discover(interface: &str, time: Duration) -> Result<Vec<Found>, OpenError> {
    let datagrams = endpoint(interface).map_err(OpenError::Interface)?;
    let (mut all, end) = (Vec::new(), reactor::now() + time);
    while reactor::now() < end {
        let left = end.saturating_duration_since(reactor::now());
        let mut found = Vec::new();
        let listening = query(&*datagrams, Address::ALL, &mut found, |_| false);
        let _ = reactor::timeout(left.min(AGAIN), listening).await;
        all.append(&mut found);
        all.sort();
        all.dedup();
    }
    Ok(all)
}

/// Opens a device. Its commands run on this thread's reactor, which must keep running while the device is in
/// use.
pub async fn open(url: &Url) -> Result<RemoteAoe, OpenError> {
    let options = &url.options;
    let datagrams = endpoint(&url.interface).map_err(OpenError::Interface)?;
    let silent = || OpenError::Silent {
        address: url.address,
        interface: url.interface.clone(),
        timeout: options.timeout,
    };
    let deadline = reactor::now() + options.timeout;
    let found = loop {
        let left = deadline.saturating_duration_since(reactor::now());
        if left.is_zero() {
            return Err(silent());
        }
        let mut found = Vec::new();
        let asked = query(&*datagrams, url.address, &mut found, |found| {
            found.address == url.address
        });
        let _ = reactor::timeout(left.min(AGAIN), asked).await;
        if let Some(found) = found.pop() {
            break found;
        }
    };
    // A server before AoEr11 reports 0, and accepts 2.
    let of_server = if found.sectors_max == 0 {
        SECTORS_USUAL
    } else {
        found.sectors_max
    };
    let of_interface =
        u8::try_from(aoe::sectors_of(datagrams.payload_bytes_max())).unwrap_or(u8::MAX);
    let mut sectors = of_server
        .min(of_interface)
        .min(options.sectors.unwrap_or(u8::MAX))
        .max(1);
    let (station, address) = (found.station, url.address);
    let route = Route {
        interface: url.interface.clone(),
        address,
        datagrams: datagrams.into(),
        station,
    };
    let session = Session::begin(route, found.buffer_count, options.quarantine);
    let asked = |ata, returns, deadline| Asked {
        ata,
        data: None,
        returns,
        claim: None,
        losses: None,
        is_slow: false,
        deadline,
    };
    let failed = |failed| match failed {
        Failed::Refused(code) => OpenError::Refused(address, code),
        Failed::Device(register) => OpenError::Unidentified(address, register),
        Failed::TimedOut => silent(),
    };
    let leaving = |error| {
        session.leave();
        Err(error)
    };
    let sector = match session
        .ask(asked(Ata::identify(), IDENTITY_BYTES, deadline))
        .await
    {
        Ok(sector) => sector,
        Err(error) => return leaving(failed(error)),
    };
    let Some(identity) = sector
        .first_chunk()
        .map(Identity::parse)
        .filter(|identity| identity.sectors > 0)
    else {
        return leaving(OpenError::Empty(address));
    };
    if identity.model.starts_with(OWN_MODEL) {
        session.server_remembers();
    }
    if sectors > SECTORS_USUAL && identity.sectors >= u64::from(sectors) {
        // Both hosts support long frames, but switches between them may drop these frames silently.
        let probe = asked(
            Ata::read(0, sectors),
            usize::from(sectors) * SECTOR_BYTES,
            reactor::now() + PROBE,
        );
        if session.ask(probe).await == Err(Failed::TimedOut) {
            tracing::warn!(device = %url, sectors, "frames of this length get no response; using shorter ones");
            sectors = SECTORS_USUAL;
        }
    }
    session.identified(identity.clone());
    Ok(RemoteAoe::new(session, url, &identity, sectors))
}
