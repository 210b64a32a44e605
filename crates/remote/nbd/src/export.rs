//! An export as a block device.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use block::{
    Allocation, BlockDevice, BlockSize, Blocks, Buffer, DeviceError, Durability, Extent, Geometry,
    LossCounter, Losses, OptimalTransfer, Pending, Profile, Run, Slice,
};
use failover::{Channelled, Channels, Failed, Owner, Status, Untold};
use nbd::flags::{allocation, command, transmission};
use nbd::{BlockStatus, Command, Errno, Session};
use reactor::{PathInfo, Resident};

use crate::open::{Export, OpenError, block_size, payload_bytes_max};
use crate::request::{Asked, Returned};
use crate::url::{Options, Url};

/// The longest request without data: less than 2^32 bytes, in whole blocks of any size.
const LENGTH_MAX: u64 = 1 << 31;

/// A preferred block size above is no physical block, but a cluster or a stripe.
const PHYSICAL_BYTES_MAX: u32 = 4096;

/// An export of a server. Usable from any thread that runs a reactor; its connections live on the thread that
/// opened it. When it is dropped, they disconnect.
pub struct RemoteExport {
    channels: Resident<Channels<Export>>,
    session: Arc<Session>,
    geometry: Geometry,
    profile: Profile,
    /// Blocks of the longest payload.
    payload_blocks: u64,
    /// A flush was answered that acknowledged writes are lost, and its caller had gone.
    has_lost: Arc<AtomicBool>,
    losses: LossCounter,
}

/// A connection to the server, as the kernel sees it.
#[derive(Clone, Debug)]
pub struct ConnectionState {
    /// The number of its channel.
    pub number: usize,
    /// This end.
    pub local: SocketAddr,
    /// The server's.
    pub peer: SocketAddr,
    /// The path between them, by TCP.
    pub path: Option<PathInfo>,
}

impl RemoteExport {
    /// # Errors
    /// The export has no byte, or ends within a block and is not used by bytes.
    pub(crate) fn new(
        channels: Channels<Export>,
        session: &Arc<Session>,
        options: &Options,
    ) -> Result<RemoteExport, OpenError> {
        let export = &session.export;
        let has = |flag| export.flags & flag != 0;
        let block_size = block_size(&export.block_sizes);
        let bytes = export.bytes;
        let blocks = bytes.div_ceil(block_size.bytes().into());
        if blocks == 0 {
            return Err(OpenError::Empty(bytes));
        }
        if block_size.exact(bytes).is_none() {
            if block_size != BlockSize::B512 {
                return Err(OpenError::Unreachable { bytes, minimum: block_size.bytes() });
            }
            // A journal file has whole blocks.
            if !options.by_bytes || options.journal_file.is_some() {
                return Err(OpenError::Ragged { bytes, block_bytes: block_size.bytes() });
            }
        }
        let preferred = export.block_sizes.preferred.max(block_size.bytes());
        let leave = async |channels: Rc<Channels<Export>>| channels.close().await;
        Ok(RemoteExport {
            losses: channels.losses(),
            channels: Resident::new(Rc::new(channels), leave),
            session: Arc::clone(session),
            geometry: Geometry {
                block_size,
                blocks: Blocks(blocks),
                physical_exponent: (preferred.min(PHYSICAL_BYTES_MAX).ilog2().max(block_size.shift())
                    - block_size.shift()) as u8,
            },
            profile: Profile {
                read_only: has(transmission::READ_ONLY),
                // TRIM promises nothing of what is read afterwards; WRITE_ZEROES deallocates, too.
                thin: has(transmission::SEND_WRITE_ZEROES) && has(transmission::SEND_TRIM),
                granularity: Blocks(u64::from(preferred >> block_size.shift()).max(1)),
                volatile_cache: has(transmission::SEND_FLUSH),
                durable: has(transmission::SEND_FLUSH),
                solid_state: !has(transmission::ROTATIONAL),
                optimal_transfer: optimal_transfer(preferred, block_size),
                // Connections that end together count as a loss of the cache.
                loses_unseen: false,
            },
            payload_blocks: u64::from(payload_bytes_max(&export.block_sizes)) >> block_size.shift(),
            has_lost: Arc::default(),
        })
    }

    /// Opens the journal file that the URL names, and deals with what it holds. Nobody uses the device yet.
    pub(crate) async fn recover(&self, url: &Url) -> Result<(), OpenError> {
        let options = &url.options;
        let Some(path) = &options.journal_file else { return Ok(()) };
        let (identity, bytes) = (url.to_string(), self.geometry.bytes());
        let owner = Owner { identity, bytes, writers: options.writers };
        let (rule, capacity) = (options.journal_replay, options.journal_bytes as u64);
        let Some(channels) = self.channels.here() else { return Ok(()) };
        channels.keep_in(path, rule, capacity, &owner, self).await.map_err(OpenError::JournalFile)
    }

    /// What was agreed with the server.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// What is known of the channels; `None` if their thread has ended.
    pub async fn status(&self) -> Option<Status> {
        self.channels.with(async |channels: Rc<Channels<Export>>| channels.status()).await
    }

    /// The connections that are alive. None if their thread has ended.
    pub async fn connections(&self) -> Vec<ConnectionState> {
        let now = async |channels: Rc<Channels<Export>>| {
            let links = channels.links().into_iter();
            links.filter_map(|(number, link)| link.connection(number)).collect()
        };
        self.channels.with(now).await.unwrap_or_default()
    }

    fn has(&self, flag: u16) -> bool {
        self.session.export.flags & flag != 0
    }

    /// The bytes of an extent, which must lie within the device.
    fn bytes(&self, extent: Extent) -> Result<(u64, u64), DeviceError> {
        match self.geometry.contains(extent) {
            true => Ok((self.geometry.offset(extent), self.geometry.length(extent))),
            false => Err(DeviceError::OutOfRange),
        }
    }

    async fn ask(&self, asked: Asked) -> Result<Returned, Failed<u32>> {
        match self.channels.here() {
            Some(channels) => channels.ask(asked).await,
            None => {
                let work = async |channels: Rc<Channels<Export>>| channels.ask(asked).await;
                // In a place of its own: requests of the channels' thread need no room for it.
                Box::pin(self.channels.ask(work)).await.unwrap_or(Err(Failed::Lost))
            }
        }
    }

    /// The bytes of an extent that the export has: the last block may end early.
    fn place(&self, extent: Extent) -> (u64, u64) {
        let (offset, length) = (self.geometry.offset(extent), self.geometry.length(extent));
        (offset, length.min(self.session.export.bytes.saturating_sub(offset)))
    }

    /// A request without data.
    async fn order(
        &self,
        kind: Command,
        flags: u16,
        extent: Extent,
    ) -> Result<Vec<BlockStatus>, Failed<u32>> {
        self.ask(Asked::order(kind, flags, self.place(extent))).await.map(|returned| returned.extents)
    }

    /// The same for a request that changes blocks, however long.
    async fn change(&self, kind: Command, flags: u16, extent: Extent) -> Result<(), DeviceError> {
        self.bytes(extent)?;
        for piece in extent.chunks(LENGTH_MAX >> self.geometry.block_size.shift()) {
            self.order(kind, flags, piece)
                .await
                .map_err(|failed| self.error(failed, Access::Write(piece)))?;
        }
        Ok(())
    }

    async fn write_pieces(
        &self,
        extent: Extent,
        data: Slice,
        durability: Durability,
    ) -> Result<(), DeviceError> {
        let (start, length) = self.bytes(extent)?;
        if length != data.len() as u64 {
            return Err(DeviceError::OutOfRange);
        }
        let behind = (start + length).saturating_sub(self.session.export.bytes) as usize;
        if behind > 0 && data[data.len() - behind..].iter().any(|byte| *byte != 0) {
            return Err(DeviceError::OutOfRange); // there is nothing that could keep it
        }
        let is_stable = durability == Durability::Stable;
        let fua = if is_stable && self.has(transmission::SEND_FUA) { command::FUA } else { 0 };
        for piece in extent.chunks(self.payload_blocks) {
            let (offset, length) = self.place(piece);
            let from = (offset - start) as usize;
            let data = data.part(from..from + length as usize);
            let asked = Asked { data, ..Asked::order(Command::Write, fua, (offset, length)) };
            self.ask(asked).await.map_err(|failed| self.error(failed, Access::Write(piece)))?;
        }
        if !is_stable || fua != 0 {
            return Ok(());
        }
        let synced = self.sync().await;
        if synced == Err(DeviceError::WritesLost) {
            // Others have lost writes, too, and rely on a flush to hear of it.
            self.tell_of_loss().await;
        }
        synced
    }

    async fn tell_of_loss(&self) {
        let tell = async |channels: Rc<Channels<Export>>| channels.tell_of_loss();
        let _ = self.channels.with(tell).await; // without their thread there is nobody to tell
    }

    async fn sync(&self) -> Result<(), DeviceError> {
        if !self.has(transmission::SEND_FLUSH) {
            return Ok(());
        }
        if self.has_lost.swap(false, Relaxed) {
            self.tell_of_loss().await;
        }
        let has_lost = Arc::clone(&self.has_lost);
        let work = async move |channels: Rc<Channels<Export>>| {
            let flushed = channels.ask(Asked::order(Command::Flush, 0, (0, 0))).await.map(drop);
            let untold = Untold::of(&flushed, &has_lost);
            (flushed, untold)
        };
        let (flushed, untold) = self.channels.with(work).await.ok_or(DeviceError::NotReady)?;
        untold.told();
        flushed.map_err(|failed| self.error(failed, Access::Flush))
    }

    /// What a failure is for a block device.
    fn error(&self, failed: Failed<u32>, access: Access) -> DeviceError {
        let error = match failed {
            Failed::Server(error) => error,
            Failed::WritesLost => return DeviceError::WritesLost,
            Failed::Lost | Failed::TimedOut | Failed::JournalFile => return DeviceError::NotReady,
        };
        match (Errno::try_from(error), access) {
            (Ok(Errno::Eperm), _) if self.profile.read_only => DeviceError::ReadOnly,
            (Ok(Errno::Eperm), _) if self.session.channel.is_some() => DeviceError::Reserved,
            // A foreign server has no reservations: it forbids changes, or its file system does.
            (Ok(Errno::Eperm), Access::Write(_)) => DeviceError::ReadOnly,
            (Ok(Errno::Eperm), Access::Read(extent)) => DeviceError::Unreadable(extent.lba),
            (Ok(Errno::Enospc), _) => DeviceError::NoSpace,
            (Ok(Errno::Enomem | Errno::Eshutdown), _) => DeviceError::NotReady,
            (Ok(Errno::Eio), Access::Read(extent)) => DeviceError::Unreadable(extent.lba),
            (Ok(Errno::Eio), Access::Write(extent)) => DeviceError::Unwritable(extent.lba),
            (_, Access::Flush) => DeviceError::WritesLost,
            // Other numbers count as EINVAL (section "Error values").
            (_, Access::Read(_) | Access::Write(_)) => DeviceError::Unsupported,
        }
    }
}

/// What a request was for.
#[derive(Clone, Copy)]
enum Access {
    Read(Extent),
    Write(Extent),
    Flush,
}

impl BlockDevice for RemoteExport {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn length_bytes(&self) -> u64 {
        self.session.export.bytes
    }

    fn profile(&self) -> Profile {
        self.profile
    }

    fn read(&self, extent: Extent, mut buffer: Buffer) -> Pending<'_, Buffer> {
        Box::pin(async move {
            let (start, length) = self.bytes(extent)?;
            if length != buffer.len() as u64 {
                return Err(DeviceError::OutOfRange);
            }
            let pieces = extent.chunks(self.payload_blocks);
            let is_one = extent.blocks.0 <= self.payload_blocks;
            for piece in pieces {
                let (offset, length) = self.place(piece);
                let own = if is_one {
                    std::mem::replace(&mut buffer, Buffer::zeroed(0))
                } else {
                    Buffer::recycled(length as usize)
                };
                let order = Asked::order(Command::Read, 0, (offset, length));
                let asked = Asked { buffer: RefCell::new(Some(own)), ..order };
                let read = self.ask(asked).await.map_err(|failed| self.error(failed, Access::Read(piece)))?;
                let read = read.buffer.ok_or(DeviceError::Unreadable(piece.lba))?;
                let whole = self.geometry.length(piece) as usize;
                if is_one && read.len() == whole {
                    return Ok(read);
                }
                if is_one {
                    buffer = Buffer::recycled(whole);
                }
                let from = (offset - start) as usize;
                buffer[from..from + read.len()].copy_from_slice(&read);
                buffer[from + read.len()..from + whole].fill(0); // behind the end of the export
            }
            Ok(buffer)
        })
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        Box::pin(self.write_pieces(extent, data, durability))
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(self.sync())
    }

    fn losses(&self) -> Losses {
        self.losses.get()
    }

    fn resolve_losses(&self) -> Pending<'_, ()> {
        Box::pin(async {
            let resolved = async |channels: Rc<Channels<Export>>| channels.resolved().await;
            match self.channels.with(resolved).await {
                Some(true) => Ok(()),
                Some(false) | None => Err(DeviceError::NotReady),
            }
        })
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        Box::pin(async move {
            match self.profile.thin {
                true => self.change(Command::WriteZeroes, 0, extent).await,
                false => self.bytes(extent).map(drop),
            }
        })
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        Box::pin(async move {
            if self.has(transmission::SEND_WRITE_ZEROES) {
                let flags = if may_unmap { 0 } else { command::NO_HOLE };
                return self.change(Command::WriteZeroes, flags, extent).await;
            }
            for piece in
                extent.chunks(self.payload_blocks.min(ZEROES_MAX >> self.geometry.block_size.shift()))
            {
                let zeros = Buffer::zeroed(self.bytes(piece)?.1 as usize).share();
                self.write_pieces(piece, zeros, Durability::Cached).await?;
            }
            Ok(())
        })
    }

    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        Box::pin(async move {
            self.bytes(extent)?;
            let mapped = Run { extent, allocation: Allocation::Mapped };
            if self.session.allocation.is_none() || extent.is_empty() {
                return Ok(vec![mapped]);
            }
            let asked =
                extent.chunks(LENGTH_MAX >> self.geometry.block_size.shift()).next().unwrap_or(extent);
            let extents = self.order(Command::BlockStatus, 0, asked).await;
            let extents = extents.map_err(|failed| self.error(failed, Access::Read(asked)))?;
            Ok(self.runs(asked, &extents, runs_max))
        })
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(async {
            let quiesced = async |channels: Rc<Channels<Export>>| channels.quiesced().await;
            self.channels.with(quiesced).await.ok_or(DeviceError::NotReady)
        })
    }
}

impl Channelled for RemoteExport {
    fn status(&self) -> Pin<Box<dyn Future<Output = Option<Status>> + '_>> {
        Box::pin(RemoteExport::status(self))
    }

    /// With the number that changes when the server may have lost acknowledged writes, flushed or not: a volume in memory is empty after a
    /// restart of its server, and has the same UUID.
    fn identity(&self) -> Option<String> {
        let channel = self.session.channel.as_ref()?;
        Some(format!("NBD volume {:032x}, start {:032x}", channel.volume?, channel.start))
    }
}

/// A preferred block size above what disks have is one of the storage behind the export. The protocol has one length for both.
fn optimal_transfer(preferred_bytes: u32, block_size: BlockSize) -> Option<OptimalTransfer> {
    let length = Blocks(u64::from(preferred_bytes >> block_size.shift()));
    (preferred_bytes > PHYSICAL_BYTES_MAX).then_some(OptimalTransfer { granularity: length, length })
}

/// Zeros that are sent as data, in bytes.
const ZEROES_MAX: u64 = 1 << 20;

impl RemoteExport {
    /// The runs of blocks that some extents of bytes make. A block of which a part is allocated is.
    fn runs(&self, asked: Extent, extents: &[BlockStatus], runs_max: usize) -> Vec<Run> {
        let shift = self.geometry.block_size.shift();
        let is_hole = |state: u32| state & allocation::HOLE != 0 && state & allocation::ZERO != 0;
        let (end, mut at) = (asked.lba.0 + asked.blocks.0, self.geometry.offset(asked));
        let mut runs: Vec<Run> = Vec::new();
        let mut done = asked.lba.0;
        for extent in extents {
            at = at.saturating_add(extent.bytes);
            let hole = is_hole(extent.state);
            // The block that holds the boundary belongs to what is allocated.
            let until = if hole { at >> shift } else { at.div_ceil(1 << shift) }.min(end);
            if until <= done {
                continue;
            }
            let kind = if hole { Allocation::Deallocated } else { Allocation::Mapped };
            let is_full = runs.len() == runs_max.max(1);
            match runs.last_mut().filter(|last| last.allocation == kind) {
                Some(last) => last.extent.blocks.0 += until - done,
                None if is_full => break,
                None => runs.push(Run { extent: Extent::new(done, until - done), allocation: kind }),
            }
            done = until;
        }
        if runs.is_empty() {
            runs.push(Run { extent: asked, allocation: Allocation::Mapped });
        }
        runs
    }
}
