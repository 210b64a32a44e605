//! A LUN by several sessions: over several portals of its target, or several times over one (multipath).
//!
//! ```text
//!   Url ── open_paths ──► Channels of Paths ──► MultipathLun: BlockDevice
//!                           │ balancing, failover, fencing, journal, reconnection: crate `failover`
//!                           ▼
//!                         Path ──► RemoteLun ──► a session of its own
//! ```
//!
//! - [`Portals`](portals) logs in, ends sessions that were lost, and sees to it that every path leads to the LUN that was opened.
//! - `path` is one session with the LUN, and what its access state says (ALUA).
//! - `reference` is the LUN that was opened, and how another differs from it.
//! - `asked` is a request that can be sent more than once.
//!
//! The keys of [`Multipath`] select it; a URL without them opens a single session, by [`crate::open`].

mod asked;
mod multipath;
mod path;
mod portals;
mod reference;

use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use block::{
    BlockDevice, Blocks, Buffer, DeviceError, Durability, Extent, Geometry, LossCounter, Losses, Pending,
    Profile, Run, Slice,
};
use failover::{Channelled, Channels, Failed, JournalFileError, Name, Owner, Status, Untold};
use reactor::Resident;

use self::asked::{Asked, Returned, What};
use self::portals::Portals;
use crate::error::OpenError;
use crate::login::Random;
use crate::url::Url;
use crate::verbs::Identity;

pub use self::multipath::Multipath;
pub(crate) use self::reference::LunReference;

/// A LUN by several sessions. Usable from any thread that runs a reactor; its sessions live on the thread that opened it. When it is
/// dropped, they log out.
pub struct MultipathLun {
    channels: Resident<Channels<Portals>>,
    common: Arc<Common>,
    geometry: Geometry,
    profile: Profile,
    losses: LossCounter,
    /// What the paths agree in, if it distinguishes the LUN.
    identity: Option<String>,
}

/// What all paths tell of the LUN.
#[derive(Debug, Default)]
pub(crate) struct Common {
    /// Capacity in blocks: a LUN may grow while it is in use.
    blocks: AtomicU64,
    /// A target has told that acknowledged writes are lost, on whichever path, or by the answer of a flush whose caller had gone, and no
    /// flush has failed since.
    has_lost: Arc<AtomicBool>,
}

/// Logs in by the paths of `url`, and attaches its LUN. Its sessions live on the reactor of this thread, which must run for as long as
/// the LUN is in use. Resolving the host's name blocks the thread; addresses do not.
///
/// # Errors
/// If there is no session by any path: why not, for the last.
pub async fn open_paths(url: &Url, random: Random) -> Result<MultipathLun, OpenError> {
    let common = Arc::new(Common::default());
    let portals = Portals::new(url, random, Arc::clone(&common));
    let mut dice = [0; 24];
    random(&mut dice);
    let [session, seed] = [0, 16]
        .map(|from| dice[from..].iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte)));
    let (path, first) = portals.first(Name { session, number: 0 }).await?;
    let Some(reference) = portals.reference().cloned() else { return Err(OpenError::Nonsense("INQUIRY")) };
    let settings = &url.settings;
    let Multipath { sessions, quarantine, journal_bytes, writers, .. } = settings.paths;
    let settings = failover::Settings {
        channels: sessions.map_or(portals.count(), usize::from),
        paths: portals.count(),
        timeout: settings.command_time + settings.reconnect_time,
        quarantine,
        journal_bytes,
        // Whatever the mode pages say: they can be changed.
        is_volatile: true,
        // The cache is the logical unit's, not the port's.
        is_coherent: true,
        writers,
        session,
        seed: seed as u64,
    };
    common.blocks.store(reference.geometry.blocks.0, Relaxed);
    let channels = Channels::new(portals, settings, first, path);
    channels.tried().await;
    let leave = async |channels: Rc<Channels<Portals>>| channels.close().await;
    let (geometry, profile) = (reference.geometry, reference.profile);
    let losses = channels.losses();
    let channels = Resident::new(Rc::new(channels), leave);
    let identity = (reference.identity != Identity::Unknown).then(|| format!("LUN {}", reference.identity));
    let lun = MultipathLun { channels, common, geometry, profile, losses, identity };
    if let Some(path) = &url.settings.paths.journal_file {
        lun.recover(path, url, &reference).await.map_err(OpenError::JournalFile)?;
    }
    Ok(lun)
}

impl MultipathLun {
    /// Opens the journal file that the URL names, and deals with what it holds. Nobody uses the device yet.
    async fn recover(
        &self,
        path: &Path,
        url: &Url,
        reference: &LunReference,
    ) -> Result<(), JournalFileError> {
        if reference.identity == Identity::Unknown {
            return Err(JournalFileError::Nameless(path.to_owned()));
        }
        let Multipath { journal_bytes, journal_replay, writers, .. } = url.settings.paths;
        let (identity, bytes) = (reference.identity.to_string(), self.geometry().bytes());
        let owner = Owner { identity, bytes, writers };
        let rule = journal_replay.unwrap_or_default();
        let Some(channels) = self.channels.here() else { return Ok(()) };
        channels.keep_in(path, rule, journal_bytes as u64, &owner, self).await
    }

    async fn ask(&self, what: What, buffer: Option<Buffer>) -> Result<Returned, DeviceError> {
        let asked = Asked::new(what, self.geometry.block_size.shift());
        asked.buffer.replace(buffer);
        let answer = match self.channels.here() {
            Some(channels) => channels.ask(asked).await,
            None => {
                let work = async |channels: Rc<Channels<Portals>>| channels.ask(asked).await;
                // In a place of its own: requests of the channels' thread need no room for it.
                Box::pin(self.channels.ask(work)).await.unwrap_or(Err(Failed::Lost))
            }
        };
        answer.map_err(error)
    }

    async fn flush_once(&self) -> (Result<(), DeviceError>, Option<Untold>) {
        let asked = Asked::new(What::Flush, self.geometry.block_size.shift());
        let common = Arc::clone(&self.common);
        let work = async move |channels: Rc<Channels<Portals>>| {
            let flushed = channels.ask(asked).await.map(drop);
            let untold = Untold::of(&flushed, &common.has_lost);
            (flushed, untold)
        };
        match self.channels.with(work).await {
            Some((flushed, untold)) => (flushed.map_err(error), Some(untold)),
            None => (Err(DeviceError::NotReady), None),
        }
    }

    async fn change(&self, extent: Extent, what: What) -> Result<(), DeviceError> {
        self.check(extent)?;
        self.ask(what, None).await.map(drop)
    }

    fn check(&self, extent: Extent) -> Result<(), DeviceError> {
        if self.geometry().contains(extent) { Ok(()) } else { Err(DeviceError::OutOfRange) }
    }

    /// Whether a loss was told of that no flush has reported: the ledger of the channels reports it to the next.
    async fn note_loss(&self) -> bool {
        let has_lost = self.common.has_lost.swap(false, Relaxed);
        if has_lost {
            let tell = async |channels: Rc<Channels<Portals>>| channels.tell_of_loss();
            let _ = self.channels.with(tell).await; // without their thread there is nobody to tell
        }
        has_lost
    }

    async fn sync(&self) -> Result<(), DeviceError> {
        self.note_loss().await;
        let (flushed, untold) = self.flush_once().await;
        let (flushed, again) = match self.note_loss().await {
            // It was told of meanwhile.
            true => {
                let (again, untold) = self.flush_once().await;
                (again.and(flushed), untold)
            }
            false => (flushed, None),
        };
        [untold, again].into_iter().flatten().for_each(Untold::told);
        flushed
    }
}

/// What a failure is for a block device.
fn error(failed: Failed<DeviceError>) -> DeviceError {
    match failed {
        Failed::Server(error) => error,
        Failed::WritesLost => DeviceError::WritesLost,
        Failed::Lost | Failed::TimedOut | Failed::JournalFile => DeviceError::NotReady,
    }
}

impl Channelled for MultipathLun {
    fn status(&self) -> Pin<Box<dyn Future<Output = Option<Status>> + '_>> {
        Box::pin(self.channels.with(async |channels: Rc<Channels<Portals>>| channels.status()))
    }

    fn identity(&self) -> Option<String> {
        self.identity.clone()
    }
}

impl BlockDevice for MultipathLun {
    fn geometry(&self) -> Geometry {
        Geometry { blocks: Blocks(self.common.blocks.load(Relaxed)), ..self.geometry }
    }

    fn profile(&self) -> Profile {
        self.profile
    }

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        Box::pin(async move {
            self.check(extent)?;
            if buffer.len() as u64 != self.geometry.length(extent) {
                return Err(DeviceError::OutOfRange);
            }
            match self.ask(What::Read(extent), Some(buffer)).await? {
                Returned::Data(buffer) => Ok(buffer),
                Returned::Nothing | Returned::Runs(_) => Err(DeviceError::Unreadable(extent.lba)),
            }
        })
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        Box::pin(async move {
            if data.len() as u64 != self.geometry.length(extent) {
                return Err(DeviceError::OutOfRange);
            }
            self.check(extent)?;
            self.ask(What::Write(extent, data, durability), None).await.map(drop)
        })
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(self.sync())
    }

    fn losses(&self) -> Losses {
        self.losses.get()
    }

    fn resolve_losses(&self) -> Pending<'_, ()> {
        Box::pin(async {
            let resolved = async |channels: Rc<Channels<Portals>>| channels.resolved().await;
            match self.channels.with(resolved).await {
                Some(true) => Ok(()),
                Some(false) | None => Err(DeviceError::NotReady),
            }
        })
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        Box::pin(self.change(extent, What::Unmap(extent)))
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        Box::pin(self.change(extent, What::WriteZeroes(extent, may_unmap)))
    }

    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        Box::pin(async move {
            self.check(extent)?;
            match self.ask(What::Allocation(extent, runs_max), None).await? {
                Returned::Runs(runs) => Ok(runs),
                Returned::Nothing | Returned::Data(_) => Err(DeviceError::Unsupported),
            }
        })
    }

    /// Targets report only to a command: any will do, and the response may report a changed capacity.
    fn refresh(&self) -> Pending<'_, ()> {
        Box::pin(async move { self.ask(What::Probe, None).await.map(drop) })
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(async {
            let quiesced = async |channels: Rc<Channels<Portals>>| channels.quiesced().await;
            self.channels.with(quiesced).await.ok_or(DeviceError::NotReady)
        })
    }
}
