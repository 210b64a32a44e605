//! Implements a block device for an export, and creates its connections, as the transport of the channels.
//!
//! A request longer than the server allows is sent in pieces, one after the other. The first failure ends the
//! request. Earlier pieces of a write may then already have been executed.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use block::{
    Allocation, BlockDevice, BlockSize, Blocks, Buffer, DeviceError, Durability, Extent, Geometry,
    LossCounter, Losses, OptimalTransfer, Pending, Profile, Run, Slice,
};
use derive_more::Display;
use failover::{
    Channelled, Channels, Connected, Failed, JournalFileError, Name, Owner, Settings, Status,
    Transport,
};
use nbd::flags::{allocation, command, transmission};
use nbd::{
    BlockSizes, BlockStatus, ChannelName, ClientHandshake, ClientStep, Command, Errno,
    PAYLOAD_BYTES_MAX, Refused, Session,
};
use reactor::{Resident, Stream, StreamOptions};

use crate::link::{Asked, ConnectionState, Link, Returned};
use crate::url::{Options, Url};

/// Maximum length of a request without data: less than 2^32 bytes, in whole blocks of any size.
const LENGTH_MAX: u64 = 1 << 31;

/// Maximum size of a physical block. A larger preferred block size describes a cluster or a stripe, not a
/// physical block.
const PHYSICAL_BYTES_MAX: u32 = 4096;

/// An export of a server. It can be used from any thread that runs a reactor. Its connections live on the
/// thread that opened it, and are closed when it is dropped.
pub struct RemoteExport {
    channels: Resident<Channels<Export>>,
    session: Arc<Session>,
    geometry: Geometry,
    profile: Profile,
    /// Maximum payload in blocks.
    payload_blocks: u64,
    losses: LossCounter,
}

impl RemoteExport {
    /// # Errors
    /// The export is empty. Or the export ends within a block, and it is not used by bytes, has a journal
    /// file, or has a minimum block size above 512 bytes.
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
                return Err(OpenError::Unreachable {
                    bytes,
                    minimum: block_size.bytes(),
                });
            }
            // A journal file requires whole blocks.
            if !options.by_bytes || options.journal_file.is_some() {
                return Err(OpenError::Ragged {
                    bytes,
                    block_bytes: block_size.bytes(),
                });
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
                physical_exponent: (preferred
                    .min(PHYSICAL_BYTES_MAX)
                    .ilog2()
                    .max(block_size.shift())
                    - block_size.shift()) as u8,
            },
            profile: Profile {
                read_only: has(transmission::READ_ONLY),
                // TRIM does not define the data that is read afterwards, so WRITE_ZEROES, which also
                // deallocates, is used.
                thin: has(transmission::SEND_WRITE_ZEROES) && has(transmission::SEND_TRIM),
                granularity: Blocks(u64::from(preferred >> block_size.shift()).max(1)),
                volatile_cache: has(transmission::SEND_FLUSH),
                durable: has(transmission::SEND_FLUSH),
                solid_state: !has(transmission::ROTATIONAL),
                optimal_transfer: optimal_transfer(preferred, block_size),
                // No loss of the cache is undetected, because the loss of all connections is treated as one.
                loses_unseen: false,
            },
            payload_blocks: u64::from(payload_bytes_max(&export.block_sizes)) >> block_size.shift(),
        })
    }

    /// Opens the journal file of the URL and processes its content. The device must not be in use yet.
    pub(crate) async fn recover(&self, url: &Url) -> Result<(), OpenError> {
        let options = &url.options;
        let Some(path) = &options.journal_file else {
            return Ok(());
        };
        let (identity, bytes) = (url.to_string(), self.geometry.bytes());
        let owner = Owner {
            identity,
            bytes,
            writers: options.writers,
        };
        let (rule, capacity) = (options.journal_replay, options.journal_bytes as u64);
        let Some(channels) = self.channels.here() else {
            return Ok(());
        };
        channels
            .keep_in(path, rule, capacity, &owner, self)
            .await
            .map_err(OpenError::JournalFile)
    }

    /// The parameters agreed with the server.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The status of the channels; `None` if their thread has ended.
    pub async fn status(&self) -> Option<Status> {
        self.channels
            .with(async |channels: Rc<Channels<Export>>| channels.status())
            .await
    }

    /// The live connections; empty if their thread has ended.
    pub async fn connections(&self) -> Vec<ConnectionState> {
        let now = async |channels: Rc<Channels<Export>>| {
            let links = channels.links().into_iter();
            links
                .filter_map(|(number, link)| link.connection(number))
                .collect()
        };
        self.channels.with(now).await.unwrap_or_default()
    }

    fn has(&self, flag: u16) -> bool {
        self.session.export.flags & flag != 0
    }

    /// The offset and the length of an extent in bytes. Fails if the extent is not within the device.
    fn bytes(&self, extent: Extent) -> Result<(u64, u64), DeviceError> {
        match self.geometry.contains(extent) {
            true => Ok((self.geometry.offset(extent), self.geometry.length(extent))),
            false => Err(DeviceError::OutOfRange),
        }
    }

    /// Executes a request on the channels' thread. Fails with [`Failed::Lost`] if that thread has ended.
    async fn ask(&self, asked: Asked) -> Result<Returned, Failed<u32>> {
        match self.channels.here() {
            Some(channels) => channels.ask(asked).await,
            None => {
                let work = async |channels: Rc<Channels<Export>>| channels.ask(asked).await;
                // This future is boxed, so that requests on the channels' own thread do not need space for
                // it.
                Box::pin(self.channels.ask(work))
                    .await
                    .unwrap_or(Err(Failed::Lost))
            }
        }
    }

    /// The offset and the length of the bytes of an extent that the export contains. The last block may be
    /// incomplete.
    fn place(&self, extent: Extent) -> (u64, u64) {
        debug_assert!(
            self.geometry.contains(extent),
            "a request is within the export"
        );
        let (offset, length) = (self.geometry.offset(extent), self.geometry.length(extent));
        (
            offset,
            length.min(self.session.export.bytes.saturating_sub(offset)),
        )
    }

    /// Sends a request without data.
    async fn order(
        &self,
        kind: Command,
        flags: u16,
        extent: Extent,
    ) -> Result<Vec<BlockStatus>, Failed<u32>> {
        self.ask(Asked::order(kind, flags, self.place(extent)))
            .await
            .map(|returned| returned.extents)
    }

    /// Sends a request that changes blocks, in pieces if necessary.
    async fn change(&self, kind: Command, flags: u16, extent: Extent) -> Result<(), DeviceError> {
        self.bytes(extent)?;
        for piece in extent.chunks(LENGTH_MAX >> self.geometry.block_size.shift()) {
            self.order(kind, flags, piece)
                .await
                .map_err(|failed| self.error(failed, Access::Write(piece)))?;
        }
        Ok(())
    }

    /// Writes data in pieces. A stable write sets FUA in each piece, or ends with one flush if the server
    /// does not support FUA.
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
            return Err(DeviceError::OutOfRange); // the export has no space for it
        }
        let is_stable = durability == Durability::Stable;
        let fua = if is_stable && self.has(transmission::SEND_FUA) {
            command::FUA
        } else {
            0
        };
        // Without FUA, a flush follows. An export without a flush has no cache.
        let flushes = is_stable && fua == 0 && self.has(transmission::SEND_FLUSH);
        let begin = async |channels: Rc<Channels<Export>>| channels.begin_stable_write();
        let stable_write = match flushes {
            true => Some(
                self.channels
                    .with(begin)
                    .await
                    .ok_or(DeviceError::NotReady)?,
            ),
            false => None,
        };
        debug_assert!(
            self.payload_blocks > 0,
            "a request transfers a block or more"
        );
        for piece in extent.chunks(self.payload_blocks) {
            let (offset, length) = self.place(piece);
            debug_assert!(start <= offset && length <= self.geometry.length(piece));
            let from = (offset - start) as usize;
            let data = data.part(from..from + length as usize);
            let asked = Asked {
                data,
                ..Asked::order(Command::Write, fua, (offset, length))
            };
            self.ask(asked)
                .await
                .map_err(|failed| self.error(failed, Access::Write(piece)))?;
        }
        let Some(write) = stable_write else {
            return Ok(());
        };
        let end =
            async move |channels: Rc<Channels<Export>>| channels.end_stable_write(write).await;
        let ended = self.channels.with(end).await.ok_or(DeviceError::NotReady)?;
        ended.map_err(|failed| self.error(failed, Access::Flush))
    }

    /// Flushes the server's cache. An export that does not support flushes has no cache.
    async fn sync(&self) -> Result<(), DeviceError> {
        if !self.has(transmission::SEND_FLUSH) {
            return Ok(());
        }
        let flush = Asked::order(Command::Flush, 0, (0, 0));
        let flushed = self.ask(flush).await.map(drop);
        flushed.map_err(|failed| self.error(failed, Access::Flush))
    }

    /// Converts a failure into a device error.
    fn error(&self, failed: Failed<u32>, access: Access) -> DeviceError {
        let error = match failed {
            Failed::Server(error) => error,
            Failed::WritesLost => return DeviceError::WritesLost,
            Failed::Lost | Failed::TimedOut | Failed::JournalFile => return DeviceError::NotReady,
        };
        match (Errno::try_from(error), access) {
            (Ok(Errno::Eperm), _) if self.profile.read_only => DeviceError::ReadOnly,
            (Ok(Errno::Eperm), _) if self.session.channel.is_some() => DeviceError::Reserved,
            // A server other than Linerate's has no reservations, so EPERM means that the server or its file
            // system rejects changes.
            (Ok(Errno::Eperm), Access::Write(_) | Access::Flush) => DeviceError::ReadOnly,
            (Ok(Errno::Eperm), Access::Read(extent)) => DeviceError::Unreadable(extent.lba),
            (Ok(Errno::Enospc), _) => DeviceError::NoSpace,
            // The ledger has counted a loss for this error (`Link::is_rejection`), so the error must report
            // it.
            (_, Access::Flush) => DeviceError::WritesLost,
            (Ok(Errno::Enomem | Errno::Eshutdown), _) => DeviceError::NotReady,
            (Ok(Errno::Eio), Access::Read(extent)) => DeviceError::Unreadable(extent.lba),
            (Ok(Errno::Eio), Access::Write(extent)) => DeviceError::Unwritable(extent.lba),
            // By the section "Error values" of the standard, other numbers count as EINVAL.
            (_, Access::Read(_) | Access::Write(_)) => DeviceError::Unsupported,
        }
    }
}

/// The kind of access of a request.
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
                let asked = Asked {
                    buffer: RefCell::new(Some(own)),
                    ..order
                };
                let read = self
                    .ask(asked)
                    .await
                    .map_err(|failed| self.error(failed, Access::Read(piece)))?;
                let read = read.buffer.ok_or(DeviceError::Unreadable(piece.lba))?;
                let whole = self.geometry.length(piece) as usize;
                debug_assert!(read.len() as u64 == length && read.len() <= whole);
                if is_one && read.len() == whole {
                    return Ok(read);
                }
                if is_one {
                    buffer = Buffer::recycled(whole);
                }
                let from = (offset - start) as usize;
                buffer[from..from + read.len()].copy_from_slice(&read);
                buffer[from + read.len()..from + whole].fill(0); // the part after the end of the export
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

    fn losses_recorded(&self, count: u64) {
        self.losses.recorded(count);
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
            for piece in extent.chunks(
                self.payload_blocks
                    .min(ZEROES_MAX >> self.geometry.block_size.shift()),
            ) {
                let zeros = Buffer::zeroed(self.bytes(piece)?.1 as usize).share();
                self.write_pieces(piece, zeros, Durability::Cached).await?;
            }
            Ok(())
        })
    }

    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        Box::pin(async move {
            self.bytes(extent)?;
            let mapped = Run {
                extent,
                allocation: Allocation::Mapped,
            };
            if self.session.allocation.is_none() || extent.is_empty() {
                return Ok(vec![mapped]);
            }
            let asked = extent
                .chunks(LENGTH_MAX >> self.geometry.block_size.shift())
                .next()
                .unwrap_or(extent);
            let extents = self.order(Command::BlockStatus, 0, asked).await;
            let extents = extents.map_err(|failed| self.error(failed, Access::Read(asked)))?;
            Ok(self.runs(asked, &extents, runs_max))
        })
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(async {
            let quiesced = async |channels: Rc<Channels<Export>>| channels.quiesced().await;
            self.channels
                .with(quiesced)
                .await
                .ok_or(DeviceError::NotReady)
        })
    }
}

impl Channelled for RemoteExport {
    fn status(&self) -> Pin<Box<dyn Future<Output = Option<Status>> + '_>> {
        Box::pin(RemoteExport::status(self))
    }

    /// The identity of the volume. It includes the number that changes when the server may have lost
    /// acknowledged writes, even flushed ones. A RAM volume, for example, has the same UUID after a restart
    /// of its server, but is empty.
    fn identity(&self) -> Option<String> {
        let channel = self.session.channel.as_ref()?;
        Some(format!(
            "NBD volume {:032x}, start {:032x}",
            channel.volume?, channel.start
        ))
    }
}

/// The optimal transfer length. The protocol has only one value for this and for the physical block size. A
/// preferred block size that is larger than a disk's describes the storage behind the export.
fn optimal_transfer(preferred_bytes: u32, block_size: BlockSize) -> Option<OptimalTransfer> {
    let length = Blocks(u64::from(preferred_bytes >> block_size.shift()));
    (preferred_bytes > PHYSICAL_BYTES_MAX).then_some(OptimalTransfer {
        granularity: length,
        length,
    })
}

/// Maximum length of zeros sent as data, in bytes.
const ZEROES_MAX: u64 = 1 << 20;

impl RemoteExport {
    /// Converts byte extents into runs of blocks. A partly allocated block counts as allocated.
    fn runs(&self, asked: Extent, extents: &[BlockStatus], runs_max: usize) -> Vec<Run> {
        let shift = self.geometry.block_size.shift();
        let is_hole = |state: u32| state & allocation::HOLE != 0 && state & allocation::ZERO != 0;
        let (end, mut at) = (asked.lba.0 + asked.blocks.0, self.geometry.offset(asked));
        let mut runs: Vec<Run> = Vec::new();
        let mut done = asked.lba.0;
        for extent in extents {
            at = at.saturating_add(extent.bytes);
            let hole = is_hole(extent.state);
            // The block at the boundary counts as allocated.
            let until = if hole {
                at >> shift
            } else {
                at.div_ceil(1 << shift)
            }
            .min(end);
            if until <= done {
                continue;
            }
            let kind = if hole {
                Allocation::Deallocated
            } else {
                Allocation::Mapped
            };
            let is_full = runs.len() == runs_max.max(1);
            match runs.last_mut().filter(|last| last.allocation == kind) {
                Some(last) => last.extent.blocks.0 += until - done,
                None if is_full => break,
                None => runs.push(Run {
                    extent: Extent::new(done, until - done),
                    allocation: kind,
                }),
            }
            done = until;
        }
        debug_assert_eq!(
            runs.iter().map(|run| run.extent.blocks.0).sum::<u64>(),
            done - asked.lba.0,
            "the runs follow each other from the start"
        );
        debug_assert!(done <= end, "the runs are within the request");
        if runs.is_empty() {
            runs.push(Run {
                extent: asked,
                allocation: Allocation::Mapped,
            });
        }
        runs
    }
}

// Opens an export: determines the paths, connects, and performs the handshakes.

/// A function that fills a slice with random bytes, which must not be predictable.
pub type Random = fn(&mut [u8]);

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => path.display().fmt(f),
        }
    }
}

/// Why an export could not be opened.
#[derive(Debug, Display)]
pub enum OpenError {
    /// The host name could not be resolved.
    #[display("{_0}: {_1}")]
    Resolve(String, io::Error),
    /// The connection failed or was lost.
    #[display("{_0}: {_1}")]
    Connection(Address, io::Error),
    /// The connection attempt or the handshake timed out.
    #[display("{_0}: no response in time")]
    TimedOut(Address),
    /// The server rejected the client.
    #[display("{_0}: {_1}")]
    Refused(Address, Refused),
    /// The export has changed: it is smaller, or its properties differ.
    #[display("{_0}: the export has changed: {_1}")]
    Changed(Address, String),
    /// The connection is not encrypted, or authentication failed on either side.
    #[display("{_0}: {_1}")]
    Tls(Address, tls::Failure),
    /// The server requires a certificate, and the URL names none.
    #[display(
        "{_0}: the server requires a client certificate; add tls-certificate=FILE and tls-key=FILE, or \
         tls-certificates=DIR with a client-cert.pem and a client-key.pem"
    )]
    NoCertificate(Address),
    /// The journal file cannot be used.
    #[display("{_0}")]
    JournalFile(JournalFileError),
    /// The export is empty.
    #[display("the export has {_0} bytes")]
    Empty(u64),
    /// The export ends within a block, but is to be used in whole blocks.
    #[display(
        "the export has {bytes} bytes, which is not a multiple of its block size of {block_bytes}, so \
         block-based commands cannot reach its end. Use copy, read, write or attach, which support any length"
    )]
    Ragged {
        /// The export's length in bytes.
        bytes: u64,
        /// The length of a block.
        block_bytes: u32,
    },
    /// The export ends within a block, and the server rejects requests for part of a block.
    #[display(
        "the export has {bytes} bytes, but the server accepts only requests in multiples of {minimum} bytes: \
         the export's last {} bytes cannot be reached",
        bytes % u64::from(*minimum)
    )]
    Unreachable {
        /// The export's length in bytes.
        bytes: u64,
        /// The minimum block size advertised by the server.
        minimum: u32,
    },
}

impl OpenError {
    /// Chooses the error to report: this error of the next address, unless a server at an earlier address has
    /// answered and no server has answered here.
    fn or_answer(self, earlier: Option<OpenError>) -> OpenError {
        let is_answer = |error: &OpenError| {
            matches!(
                error,
                OpenError::Refused(..) | OpenError::Tls(..) | OpenError::NoCertificate(_)
            )
        };
        match earlier {
            Some(earlier) if is_answer(&earlier) && !is_answer(&self) => earlier,
            _ => self,
        }
    }
}

impl std::error::Error for OpenError {}

enum Failure {
    Socket(io::Error),
    Refused(Refused),
    Tls(tls::Failure),
}

impl From<io::Error> for Failure {
    /// Converts an I/O error, which may contain a TLS failure: a server may reject the client's certificate
    /// after the handshake.
    fn from(error: io::Error) -> Failure {
        match error.downcast::<tls::Failure>() {
            Ok(failure) => Failure::Tls(failure),
            Err(error) => Failure::Socket(error),
        }
    }
}

/// A path to the server.
struct Path {
    name: String,
    /// The addresses of the path's host, or a Unix socket. The first address with a successful handshake is
    /// used.
    addresses: Vec<Address>,
    options: StreamOptions,
    credentials: Option<tls::Client>,
}

/// Creates connections to an export.
pub(crate) struct Export {
    url: Url,
    paths: Vec<Path>,
    session: Arc<Session>,
    losses: LossCounter,
}

/// Connects to an export. `credentials`, which the caller reads from the URL's files, are for TLS. The
/// connections live on the reactor of this thread, which must run while the device is in use. `random`
/// generates the session's name. By this name, a client makes the server close the session's old connections,
/// so other clients must not be able to guess it.
///
/// Tries all addresses of all paths in order, each for the URL's timeout. Then opens the other connections
/// and processes the journal file.
///
/// # Errors
/// The failure at the last address, the last answer of a server, or the reason why the export or its journal
/// file cannot be used.
pub async fn open(
    url: &Url,
    credentials: Option<&tls::Client>,
    random: Random,
) -> Result<RemoteExport, OpenError> {
    let paths = paths(url, credentials).await?;
    let (mut session, mut seed) = ([0; 16], [0; 8]);
    random(&mut session);
    random(&mut seed);
    let (seed, id) = (
        u64::from_le_bytes(seed),
        Name {
            session: u128::from_le_bytes(session),
            number: 0,
        },
    );
    let machine = || ClientHandshake::new(&url.export).named(channel(id, &[]));
    match first_of(&paths, url, machine).await? {
        (path, _, Reached::Export(stream, session)) => {
            join(url, paths, path, stream, session, (id.session, seed)).await
        }
        (_, address, Reached::List(_)) => Err(OpenError::Refused(address, UNASKED)),
    }
}

/// Lists the names and descriptions of the exports of a URL's server. Tries the server's addresses as
/// [`open`] does.
pub async fn list(
    url: &Url,
    credentials: Option<&tls::Client>,
) -> Result<Vec<(String, String)>, OpenError> {
    match first_of(
        &paths(url, credentials).await?,
        url,
        ClientHandshake::lister,
    )
    .await?
    {
        (.., Reached::List(list)) => Ok(list),
        (_, address, Reached::Export(..)) => Err(OpenError::Refused(address, UNASKED)),
    }
}

/// The error for a handshake that returned a result that was not requested.
const UNASKED: Refused = Refused::Violation("unexpected end of the handshake");

/// The result of a handshake.
enum Reached {
    Export(Box<dyn Stream>, Session),
    List(Vec<(String, String)>),
}

/// Runs the handshake over the first path that works, and returns its index. If none works, returns the
/// failure of the last path.
async fn first_of(
    paths: &[Path],
    url: &Url,
    machine: impl Fn() -> ClientHandshake,
) -> Result<(usize, Address, Reached), OpenError> {
    let mut failure = None;
    for (number, path) in paths.iter().enumerate() {
        match path.connect(&machine, url.options.timeout).await {
            Ok((address, reached)) => return Ok((number, address, reached)),
            Err(error) => failure = Some(error.or_answer(failure)),
        }
    }
    let none = || OpenError::Resolve(url.host.clone(), io::ErrorKind::AddrNotAvailable.into());
    Err(failure.unwrap_or_else(none))
}

/// Adds the other connections to the first one, and waits until each is open or refused. `path` is the index
/// of the first connection's path; `id` identifies the session, and `seed` is for the channels' random
/// numbers.
async fn join(
    url: &Url,
    paths: Vec<Path>,
    path: usize,
    stream: Box<dyn Stream>,
    session: Session,
    (id, seed): (u128, u64),
) -> Result<RemoteExport, OpenError> {
    let (options, flags) = (&url.options, session.export.flags);
    let has = |flag| flags & flag != 0;
    let channels = if has(transmission::CAN_MULTI_CONN) {
        options.connections
    } else {
        1
    };
    if channels < options.connections {
        tracing::warn!(export = %url, "the server does not advertise NBD_FLAG_CAN_MULTI_CONN; using one connection");
    }
    let settings = Settings {
        channels,
        paths: paths.len(),
        timeout: options.timeout,
        quarantine: options.quarantine,
        journal_bytes: options.journal_bytes,
        is_volatile: has(transmission::SEND_FLUSH),
        is_coherent: has(transmission::CAN_MULTI_CONN),
        writers: options.writers,
        session: id,
        seed,
    };
    let session = Arc::new(session);
    let losses = LossCounter::default();
    let link = Link::begin(
        stream,
        Arc::clone(&session),
        options.stall(),
        losses.clone(),
    );
    let (fences, not_ended) = (session.channel.is_some(), Vec::new());
    let first = Connected {
        link,
        fences,
        not_ended,
        start: start_of(&session),
    };
    let export = Export {
        url: url.clone(),
        paths,
        session: Arc::clone(&session),
        losses,
    };
    let channels = Channels::new(export, settings, first, path);
    channels.tried().await;
    let export = RemoteExport::new(channels, &session, options)?;
    export.recover(url).await?;
    Ok(export)
}

/// The channel name for a handshake. With it, the server is asked to end the session's connections with the
/// numbers in `ended`.
fn channel(name: Name, ended: &[u64]) -> ChannelName {
    ChannelName {
        session: name.session,
        number: name.number,
        ended: ended.to_vec(),
        start: 0,
        volume: None,
    }
}

/// Determines the paths: to the URL's host and its other addresses, each from its local address if the URL
/// specifies one, or to the Unix socket.
async fn paths(url: &Url, credentials: Option<&tls::Client>) -> Result<Vec<Path>, OpenError> {
    let options = &url.options;
    let path = |name, addresses, source: Option<&SocketAddr>| Path {
        name,
        addresses,
        options: StreamOptions {
            congestion: options.congestion.clone(),
            source: source.copied(),
            ..StreamOptions::default()
        },
        credentials: credentials.cloned(),
    };
    if let Some(socket) = &url.socket {
        return Ok(vec![path(
            socket.display().to_string(),
            vec![Address::Unix(socket.clone())],
            None,
        )]);
    }
    let mut hosts = vec![(url.host.as_str(), url.port)];
    hosts.extend(
        options
            .addresses
            .iter()
            .map(|(host, port)| (host.as_str(), *port)),
    );
    let mut paths = Vec::new();
    for number in 0..hosts.len().max(options.sources.len()) {
        let (host, port) = hosts[number % hosts.len()];
        let resolved = reactor::resolve(host, port).await;
        let resolved = resolved.map_err(|error| OpenError::Resolve(host.to_owned(), error))?;
        let source = options.sources.get(number % options.sources.len().max(1));
        let from = source.map_or_else(String::new, |source| format!(" from {}", source.ip()));
        let addresses = resolved.into_iter().map(Address::Tcp).collect();
        paths.push(path(
            format!("{}:{port}{from}", reactor::bracketed(host)),
            addresses,
            source,
        ));
    }
    Ok(paths)
}

impl Path {
    /// Tries the addresses in order, each for the URL's timeout. If none works, returns the last answer of a
    /// server, or else the last failure.
    async fn connect(
        &self,
        machine: impl Fn() -> ClientHandshake,
        timeout: Duration,
    ) -> Result<(Address, Reached), OpenError> {
        let mut failure = None;
        for address in &self.addresses {
            match self.connect_to(address, machine(), timeout).await {
                Ok(reached) => return Ok((address.clone(), reached)),
                Err(error) => failure = Some(error.or_answer(failure)),
            }
        }
        let none = || OpenError::Resolve(self.name.clone(), io::ErrorKind::AddrNotAvailable.into());
        Err(failure.unwrap_or_else(none))
    }

    async fn connect_to(
        &self,
        address: &Address,
        machine: ClientHandshake,
        timeout: Duration,
    ) -> Result<Reached, OpenError> {
        let connected = async {
            let stream = match address {
                Address::Tcp(address) => reactor::world().connect(*address, &self.options),
                Address::Unix(path) => reactor::world().connect_local(path),
            };
            shake_hands(
                stream.map_err(Failure::Socket)?,
                machine,
                self.credentials.as_ref(),
            )
            .await
        };
        match reactor::timeout(timeout, connected).await {
            Ok(Ok(connected)) => Ok(connected),
            Ok(Err(Failure::Socket(error))) => Err(OpenError::Connection(address.clone(), error)),
            Ok(Err(Failure::Refused(refused))) => Err(OpenError::Refused(address.clone(), refused)),
            Ok(Err(Failure::Tls(failure))) if failure.is_missing_certificate() => {
                Err(OpenError::NoCertificate(address.clone()))
            }
            Ok(Err(Failure::Tls(failure))) => Err(OpenError::Tls(address.clone(), failure)),
            Err(_) => Err(OpenError::TimedOut(address.clone())),
        }
    }
}

impl Transport for Export {
    type Link = Link;

    async fn connect(
        &self,
        path: usize,
        name: Name,
        ended: &[u64],
    ) -> Result<Connected<Link>, String> {
        let stall = self.url.options.stall();
        let machine = || ClientHandshake::new(&self.url.export).named(channel(name, ended));
        let connected = self.paths[path]
            .connect(machine, stall)
            .await
            .map_err(|error| error.to_string())?;
        let (address, Reached::Export(stream, session)) = connected else {
            return Err(UNASKED.to_string());
        };
        if let Some(why) = difference(&self.session, &session) {
            return Err(OpenError::Changed(address, why).to_string());
        }
        let (fences, start) = (session.channel.is_some(), start_of(&session));
        let link = Link::begin(stream, Arc::new(session), stall, self.losses.clone());
        Ok(Connected {
            link,
            fences,
            not_ended: Vec::new(),
            start,
        })
    }

    fn path_name(&self, path: usize) -> String {
        self.paths
            .get(path)
            .map_or_else(String::new, |path| path.name.clone())
    }

    fn probe(&self) -> Asked {
        Asked::order(
            Command::Read,
            0,
            (0, self.session.export.block_sizes.minimum.max(512).into()),
        )
    }

    fn read(&self, range: Range<u64>) -> Asked {
        Asked::order(Command::Read, 0, (range.start, range.end - range.start))
    }

    fn read_bytes_max(&self) -> u64 {
        payload_bytes_max(&self.session.export.block_sizes).into()
    }

    fn flush(&self) -> Asked {
        Asked::order(Command::Flush, 0, (0, 0))
    }

    fn losses(&self) -> LossCounter {
        self.losses.clone()
    }
}

/// The block size of the device: the server's minimum block size, or 512 bytes if that is not a power of two
/// from 512 to 65,536.
pub(crate) fn block_size(sizes: &BlockSizes) -> BlockSize {
    BlockSize::new(sizes.minimum).unwrap_or(BlockSize::B512)
}

/// Maximum data length of a request in bytes. It is a multiple of the block size.
pub(crate) fn payload_bytes_max(sizes: &BlockSizes) -> u32 {
    let block = block_size(sizes).bytes();
    let longest = sizes.maximum.clamp(block, PAYLOAD_BYTES_MAX);
    longest - longest % block
}

/// The server's run, if the server reports it: a number that changes when it may have lost acknowledged
/// writes.
fn start_of(session: &Session) -> Option<u128> {
    session.channel.as_ref().map(|channel| channel.start)
}

/// Why an export cannot be the one that was opened before; `None` if it can. The export may have grown, but
/// the device keeps its size.
fn difference(before: &Session, now: &Session) -> Option<String> {
    let volume = |session: &Session| session.channel.as_ref().and_then(|channel| channel.volume);
    // A server that does not report the volume's identity may be an older version, before or after an update.
    if let (Some(old), Some(new)) = (volume(before), volume(now))
        && old != new
    {
        return Some("it is a different volume".to_owned());
    }
    let (old, new) = (&before.export, &now.export);
    if new.bytes < old.bytes {
        return Some(format!(
            "it has {} bytes instead of {}",
            new.bytes, old.bytes
        ));
    }
    if new.flags & !transmission::SEND_DF != old.flags & !transmission::SEND_DF {
        return Some(format!(
            "its flags are 0x{:x} instead of 0x{:x}",
            new.flags, old.flags
        ));
    }
    // The preferred size may differ, because it is only a hint.
    let limits = |sizes: &BlockSizes| (sizes.minimum, sizes.maximum);
    if limits(&new.block_sizes) != limits(&old.block_sizes) {
        return Some("its block sizes differ".to_owned());
    }
    (before.allocation.is_some() && now.allocation.is_none())
        .then(|| "it no longer reports holes".to_owned())
}

/// Adds possible causes if the server closed the connection during the handshake. A server of another
/// protocol waits for the client's first bytes or closes the connection; a server that rejects this host also
/// closes it.
fn explained(error: io::Error, is_encrypted: bool) -> io::Error {
    if error.kind() != io::ErrorKind::UnexpectedEof {
        return error;
    }
    let why = match is_encrypted {
        false => "it is not an NBD server, or does not accept this host",
        true => "it may require a client certificate, or a different one",
    };
    io::Error::new(
        error.kind(),
        format!("the server closed the connection during the handshake: {why}"),
    )
}

async fn shake_hands(
    mut stream: Box<dyn Stream>,
    machine: ClientHandshake,
    credentials: Option<&tls::Client>,
) -> Result<Reached, Failure> {
    let mut machine = if credentials.is_some() {
        machine.over_tls()
    } else {
        machine
    };
    let (mut received, mut sent, mut is_encrypted) = (Vec::new(), Vec::new(), false);
    loop {
        received.resize(machine.wanted(), 0);
        stream
            .read_exact(&mut received)
            .await
            .map_err(|error| explained(error, is_encrypted))?;
        match machine
            .take(&received, &mut sent)
            .map_err(Failure::Refused)?
        {
            ClientStep::Continue => {}
            ClientStep::StartTls => {
                // The handshake requests TLS only if the client was created for it.
                let Some(credentials) = credentials else {
                    return Err(Failure::Refused(Refused::TlsRequired));
                };
                stream = Box::new(
                    tls::connect(stream, credentials)
                        .await
                        .map_err(Failure::Tls)?,
                );
                is_encrypted = true;
                machine.encrypted(&mut sent);
            }
            ClientStep::Transmission(session) => return Ok(Reached::Export(stream, session)),
            ClientStep::Listed(list) => {
                let _ = stream.write_all(&sent).await; // the server may have closed the connection
                return Ok(Reached::List(list));
            }
        }
        stream.write_all(&sent).await?;
        sent.clear();
    }
}

#[cfg(test)]
mod lost_writes;

#[cfg(test)]
mod tests {
    use nbd::ReplyForm;

    use super::*;

    #[test]
    fn the_answer_of_a_server_is_reported_instead_of_a_later_silence() {
        let address = || Address::Unix("/run/nbd.sock".into());
        let refused = || OpenError::Refused(address(), UNASKED);
        let silent = || OpenError::TimedOut(address());
        for (earlier, now, is_answer) in [
            (None, silent(), false),
            (Some(refused()), silent(), true),
            (Some(silent()), refused(), true),
        ] {
            assert_eq!(
                matches!(now.or_answer(earlier), OpenError::Refused(..)),
                is_answer
            );
        }
    }

    #[test]
    fn another_volume_of_the_same_size_is_refused() {
        let session = |volume| Session {
            export: nbd::Export {
                name: "disk".to_owned(),
                description: String::new(),
                bytes: 1 << 20,
                flags: transmission::HAS_FLAGS,
                block_sizes: BlockSizes {
                    minimum: 1,
                    preferred: 4096,
                    maximum: 32 << 20,
                },
            },
            form: ReplyForm::Extended,
            allocation: None,
            channel: Some(ChannelName {
                session: 1,
                number: 0,
                ended: Vec::new(),
                start: 5,
                volume,
            }),
        };
        assert!(difference(&session(Some(1)), &session(Some(2))).is_some());
        for (before, now) in [(Some(1), Some(1)), (None, Some(2)), (Some(1), None)] {
            assert_eq!(
                difference(&session(before), &session(now)),
                None,
                "{before:?} {now:?}"
            );
        }
    }
}
