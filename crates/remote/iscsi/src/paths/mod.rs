//! A LUN over several sessions: one for each portal of its target, or several over the same portal
//! (multipath).
//!
//! ```text
//!   Url ── open_paths ──► Channels of Paths ──► MultipathLun: BlockDevice
//!                           │ balancing, failover, fencing, journal, reconnection: crate `failover`
//!                           ▼
//!                         Path ──► RemoteLun ──► a session of its own
//! ```
//!
//! - `Portals` logs in, terminates lost sessions, and verifies that every path leads to the opened LUN.
//! - `path` is one session with the LUN and its access state (ALUA).
//! - `path::Asked` is a request that can be sent more than once.
//!
//! The URL keys of [`Multipath`] select this mode. A URL without them opens a single session with
//! [`crate::open`].

mod path;

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path as FilePath;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use block::{
    BlockDevice, Blocks, Buffer, DeviceError, Durability, Extent, Geometry, LossCounter, Losses,
    Pending, Profile, Run, Slice,
};
use failover::{
    Channelled, Channels, Connected, Failed, JournalFileError, Name, Owner, Status, Transport,
};
use iscsi::pdu::Isid;
use reactor::Resident;
use scsi::{Association, Name as DesignatorName, PortGroup, VpdContent};

use crate::error::OpenError;
use crate::login::Random;
use crate::open::{Connector, LeadingLogin, isid};
use crate::paths::path::{Asked, Common, Path, Returned, What, rank};
use crate::probe::failed;
use crate::remote_target::RemoteTarget;
use crate::url::{Multipath, Portal, Settings, Timeouts, Url};
use crate::verbs::{Identity, Unit, VerbError};

use crate::probe::LunReference;

/// A LUN over several sessions. It can be used from any thread that runs a reactor. Its sessions run on the
/// thread that opened it, and log out when it is dropped.
pub struct MultipathLun {
    channels: Resident<Channels<Portals>>,
    common: Arc<Common>,
    geometry: Geometry,
    profile: Profile,
    losses: LossCounter,
    /// The LUN's identity, which is the same over all paths, if it distinguishes the LUN from others.
    identity: Option<String>,
}

/// Logs in over the paths of `url`, and attaches its LUN. Its sessions run on this thread's reactor, which
/// must keep running while the LUN is in use.
///
/// # Errors
/// No path could open a session. The error of the last failure is returned.
pub async fn open_paths(url: &Url, random: Random) -> Result<MultipathLun, OpenError> {
    let common = Arc::new(Common::default());
    let portals = Portals::new(url, random, Arc::clone(&common));
    let mut dice = [0; 24];
    random(&mut dice);
    let [session, seed] = [0, 16].map(|from| {
        dice[from..]
            .iter()
            .take(16)
            .fold(0, |number, byte| number << 8 | u128::from(*byte))
    });
    let (path, first) = portals.first(Name { session, number: 0 }).await?;
    let Some(reference) = portals.reference().cloned() else {
        return Err(OpenError::Nonsense("INQUIRY"));
    };
    let settings = &url.settings;
    let Multipath {
        sessions,
        quarantine,
        journal_bytes,
        writers,
        ..
    } = settings.paths;
    let settings = failover::Settings {
        channels: sessions.map_or(portals.count(), usize::from),
        paths: portals.count(),
        timeout: settings.command_time + settings.reconnect_time,
        quarantine,
        journal_bytes,
        // The mode pages are not used, because the cache mode can change.
        is_volatile: true,
        // All paths share the cache, because it belongs to the logical unit, not to a port.
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
    let identity =
        (reference.identity != Identity::Unknown).then(|| format!("LUN {}", reference.identity));
    let lun = MultipathLun {
        channels,
        common,
        geometry,
        profile,
        losses,
        identity,
    };
    if let Some(path) = &url.settings.paths.journal_file {
        lun.recover(path, url, &reference)
            .await
            .map_err(OpenError::JournalFile)?;
    }
    Ok(lun)
}

impl MultipathLun {
    /// Opens the journal file of the URL and handles its contents, before the device is used.
    async fn recover(
        &self,
        file: &FilePath,
        url: &Url,
        reference: &LunReference,
    ) -> Result<(), JournalFileError> {
        if reference.identity == Identity::Unknown {
            return Err(JournalFileError::Nameless(file.to_owned()));
        }
        let Multipath {
            journal_bytes,
            journal_replay,
            writers,
            ..
        } = url.settings.paths;
        let (identity, bytes) = (reference.identity.to_string(), self.geometry().bytes());
        let owner = Owner {
            identity,
            bytes,
            writers,
        };
        let rule = journal_replay.unwrap_or_default();
        let Some(channels) = self.channels.here() else {
            return Ok(());
        };
        channels
            .keep_in(file, rule, journal_bytes as u64, &owner, self)
            .await
    }

    async fn ask(&self, what: What, buffer: Option<Buffer>) -> Result<Returned, DeviceError> {
        let asked = Asked::new(what, self.geometry.block_size.shift());
        asked.buffer.replace(buffer);
        let answer = match self.channels.here() {
            Some(channels) => channels.ask(asked).await,
            None => {
                let work = async |channels: Rc<Channels<Portals>>| channels.ask(asked).await;
                // Boxed, so that requests on the channels' own thread do not need space for this future.
                Box::pin(self.channels.ask(work))
                    .await
                    .unwrap_or(Err(Failed::Lost))
            }
        };
        answer.map_err(error)
    }

    async fn change(&self, extent: Extent, what: What) -> Result<(), DeviceError> {
        self.check(extent)?;
        if extent.blocks.0 == 0 {
            return Ok(());
        }
        self.ask(what, None).await.map(drop)
    }

    fn check(&self, extent: Extent) -> Result<(), DeviceError> {
        if self.geometry().contains(extent) {
            Ok(())
        } else {
            Err(DeviceError::OutOfRange)
        }
    }
}

/// Converts a failure to a block device's error.
fn error(failed: Failed<DeviceError>) -> DeviceError {
    match failed {
        Failed::Server(error) => error,
        Failed::WritesLost => DeviceError::WritesLost,
        Failed::Lost | Failed::TimedOut | Failed::JournalFile => DeviceError::NotReady,
    }
}

impl Channelled for MultipathLun {
    fn status(&self) -> Pin<Box<dyn Future<Output = Option<Status>> + '_>> {
        Box::pin(
            self.channels
                .with(async |channels: Rc<Channels<Portals>>| channels.status()),
        )
    }

    fn identity(&self) -> Option<String> {
        self.identity.clone()
    }
}

impl BlockDevice for MultipathLun {
    fn geometry(&self) -> Geometry {
        Geometry {
            blocks: Blocks(self.common.blocks.load(Relaxed)),
            ..self.geometry
        }
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
            self.change(extent, What::Write(extent, data, durability))
                .await
        })
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(async { self.ask(What::Flush, None).await.map(drop) })
    }

    fn losses(&self) -> Losses {
        self.losses.get()
    }

    fn losses_recorded(&self, count: u64) {
        self.losses.recorded(count);
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

    /// Sends a command, because targets report events only in the response to a command. The response may
    /// report a changed capacity.
    fn refresh(&self) -> Pending<'_, ()> {
        Box::pin(async move { self.ask(What::Probe, None).await.map(drop) })
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(async {
            let quiesced = async |channels: Rc<Channels<Portals>>| channels.quiesced().await;
            self.channels
                .with(quiesced)
                .await
                .ok_or(DeviceError::NotReady)
        })
    }
}

// Connects paths: selects the portal and the initiator port, and verifies the LUN.
//
// Each session has its own ISID, so that one target port can have several sessions. A lost session certainly
// ends when the same initiator port logs in to the same target port again (RFC 7143 section 6.3.5: the target
// terminates all its tasks first). So a new session uses the ISID of a lost session of the same portal. Other
// lost sessions of the same target port, which may have several portals, are terminated by a login and a
// logout each. A session lost at another target port cannot be ended this way: `failover` delays newer writes
// to the blocks of its outstanding writes until that port is available again, or for a quarantine.

/// The portals of a LUN.
pub(crate) struct Portals {
    paths: Vec<(Portal, Settings)>,
    target: String,
    lun: u16,
    random: Random,
    common: Arc<Common>,
    /// The LUN's properties when it was opened.
    reference: OnceCell<LunReference>,
    /// The sessions that may have to be terminated, by connection number.
    made: RefCell<BTreeMap<u64, Made>>,
}

/// A session that was logged in.
#[derive(Clone)]
struct Made {
    isid: Isid,
    path: usize,
    leading: LeadingLogin,
    /// Whether a new session is about to terminate this session.
    is_taken: bool,
    /// Whether the target has terminated the session's tasks.
    has_ended: bool,
}

/// Maximum number of sessions in `made`. It is so large that the oldest sessions have certainly ended.
const MADE_MAX: usize = 1024;

/// Lost sessions that a new one is about to end.
struct Taken<'a> {
    portals: &'a Portals,
    lost: Vec<(u64, Made)>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut made = self.portals.made.borrow_mut();
        for (number, _) in &self.lost {
            made.get_mut(number).into_iter().for_each(|made| {
                debug_assert!(made.is_taken, "a session that was taken is given back once");
                made.is_taken = false;
            });
        }
    }
}

impl Url {
    /// Returns URLs with a single session for the same LUN, one for each path. Each path is a portal, with
    /// its own source address if the URL names source addresses.
    pub fn paths(&self) -> Vec<Url> {
        let Multipath {
            addresses, sources, ..
        } = &self.settings.paths;
        let portals: Vec<&Portal> = std::iter::once(&self.portal).chain(addresses).collect();
        let path = |number: usize| {
            let mut url = Url {
                portal: portals[number % portals.len()].clone(),
                ..self.clone()
            };
            url.settings.paths = Multipath::default();
            if !sources.is_empty() {
                url.settings.stream.source = Some(sources[number % sources.len()]);
            }
            url
        };
        (0..portals.len().max(sources.len())).map(path).collect()
    }
}

impl Portals {
    /// Returns the portals of a URL, each with its own source address if the URL names source addresses.
    pub(crate) fn new(url: &Url, random: Random, common: Arc<Common>) -> Portals {
        // Sessions are not reinstated: a new session replaces a lost one. A command that does not complete is
        // aborted, with as many attempts as necessary, because it must no longer be outstanding when it is
        // sent over another path.
        let path = |Url {
                        portal, settings, ..
                    }: Url| {
            (
                portal,
                Settings {
                    reconnect_time: Duration::ZERO,
                    command_tries: Some(u32::MAX),
                    ..settings
                },
            )
        };
        Portals {
            paths: url.paths().into_iter().map(path).collect(),
            target: url.target.clone(),
            lun: url.lun,
            random,
            common,
            reference: OnceCell::new(),
            made: RefCell::default(),
        }
    }

    /// Returns the number of paths.
    pub(crate) fn count(&self) -> usize {
        self.paths.len()
    }

    /// Returns the LUN's properties when it was opened.
    pub(crate) fn reference(&self) -> Option<&LunReference> {
        self.reference.get()
    }

    /// Opens the first session, over the first path that works.
    pub(crate) async fn first(&self, name: Name) -> Result<(usize, Connected<Path>), OpenError> {
        let mut failure = None;
        for path in 0..self.paths.len() {
            match self.session(path, name, &[]).await {
                Ok(connected) => return Ok((path, connected)),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| OpenError::NoAddress(self.target.clone())))
    }

    fn connector(&self, path: usize, isid: Isid) -> Result<Connector, OpenError> {
        let (portal, settings) = &self.paths[path];
        let settings = Settings {
            isid: Some(isid),
            ..settings.clone()
        };
        Connector::new(portal, &settings, self.random, Some(&self.target))
    }

    async fn session(
        &self,
        path: usize,
        name: Name,
        ended: &[u64],
    ) -> Result<Connected<Path>, OpenError> {
        let taken = self.take(ended);
        let heir = taken.lost.iter().find(|(_, made)| made.path == path);
        let isid = heir.map_or_else(|| isid(self.random), |(_, made)| made.isid);
        let (session, leading) = self.connector(path, isid)?.session().await?;
        let (_, settings) = &self.paths[path];
        let target = RemoteTarget::new(
            Rc::clone(&session),
            Timeouts::new(settings),
            settings.recorder.clone(),
        );
        for (number, lost) in &taken.lost {
            let is_taken_over = lost.isid == isid;
            let has_ended = lost.leading.is_same_port(&leading)
                && (is_taken_over || self.end(path, lost, leading.address).await);
            if let Some(made) = self.made.borrow_mut().get_mut(number) {
                made.has_ended |= has_ended;
            }
        }
        drop(taken);
        let lun = target.lun(self.lun).await?;
        let reference = lun.reference();
        if let Some(why) = self
            .reference
            .get_or_init(|| reference.clone())
            .difference(&reference)
        {
            return Err(OpenError::AnotherDevice {
                address: leading.address,
                why,
            });
        }
        let access = access(&lun.unit())
            .await
            .map_err(|error| failed("INQUIRY", error))?;
        let mut made = self.made.borrow_mut();
        // A session that is no longer in the map counts as not ended, because its state is unknown.
        let has_ended = |number: &&u64| made.get(*number).is_some_and(|made| made.has_ended);
        let (ended, not_ended): (Vec<u64>, Vec<u64>) = ended.iter().partition(has_ended);
        for number in ended {
            made.remove(&number);
        }
        let earlier = made.insert(
            name.number,
            Made {
                isid,
                path,
                leading,
                is_taken: false,
                has_ended: false,
            },
        );
        debug_assert!(earlier.is_none(), "each connection has a distinct number");
        while made.len() > MADE_MAX {
            made.pop_first();
        }
        let start = lun
            .cache_generation()
            .map(|generation| u128::from_be_bytes(generation.0));
        let link = Path::begin(session, lun, Arc::clone(&self.common), access);
        Ok(Connected {
            link,
            fences: true,
            not_ended,
            start,
        })
    }

    /// Takes the lost sessions that no other connection is about to end.
    fn take(&self, ended: &[u64]) -> Taken<'_> {
        let mut made = self.made.borrow_mut();
        let mut lost = Vec::new();
        for number in ended {
            if let Some(one) = made
                .get_mut(number)
                .filter(|made| !made.is_taken && !made.has_ended)
            {
                one.is_taken = true;
                lost.push((*number, one.clone()));
            }
        }
        Taken {
            portals: self,
            lost,
        }
    }

    /// Ends a session that was lost at the target port of this address, and all its tasks.
    async fn end(&self, path: usize, lost: &Made, address: SocketAddr) -> bool {
        let left = lost.leading.at(address);
        match self.connector(path, lost.isid) {
            Ok(connector) => connector.end_nexus(&left).await.unwrap_or(false),
            Err(_) => false,
        }
    }
}

/// Returns the unit's own target port group and its rank, if the target reports them.
async fn access(unit: &Unit) -> Result<Option<(u16, Option<u8>)>, VerbError> {
    let told = unit.own_port_group().await?;
    Ok(told.map(|(group, groups)| (group, rank(&groups, group))))
}

impl Unit {
    /// Returns the unit's own target port group, and all groups with their access states, if the target
    /// reports them (ALUA).
    ///
    /// # Errors
    /// The session is lost.
    pub async fn own_port_group(&self) -> Result<Option<(u16, Vec<PortGroup>)>, VerbError> {
        if self.inquiry().await?.target_port_groups == 0 {
            return Ok(None);
        }
        let page = self.vpd(0x83).await.map(Some).or_else(unless_refused)?;
        let Some(VpdContent::Designators(names)) = page.map(|page| page.content) else {
            return Ok(None);
        };
        let of_port = names
            .into_iter()
            .filter(|one| one.association == Association::TargetPort);
        let group = of_port.into_iter().find_map(|one| match one.name {
            DesignatorName::TargetPortGroup(group) => Some(group),
            _ => None,
        });
        let Some(group) = group else { return Ok(None) };
        let groups = self
            .target_port_groups()
            .await
            .map(Some)
            .or_else(unless_refused)?;
        Ok(groups.map(|groups| (group, groups)))
    }
}

/// Converts a rejection to `None`: a target that rejects the command does not support it, whatever INQUIRY
/// reports.
fn unless_refused<T>(error: VerbError) -> Result<Option<T>, VerbError> {
    match error {
        VerbError::Lost(_) => Err(error),
        VerbError::Refused { .. }
        | VerbError::Orphaned(_)
        | VerbError::Nonsense(_)
        | VerbError::OutOfRange(_) => Ok(None),
    }
}

impl Transport for Portals {
    type Link = Path;

    async fn connect(
        &self,
        path: usize,
        name: Name,
        ended: &[u64],
    ) -> Result<Connected<Path>, String> {
        self.session(path, name, ended)
            .await
            .map_err(|error| error.to_string())
    }

    fn path_name(&self, path: usize) -> String {
        let Some((portal, settings)) = self.paths.get(path) else {
            return String::new();
        };
        let source = settings
            .stream
            .source
            .map(|source| format!(" from {}", source.ip()));
        format!("{portal}{}", source.unwrap_or_default())
    }

    fn probe(&self) -> Asked {
        self.asked(What::Probe)
    }

    fn read(&self, range: Range<u64>) -> Asked {
        let Asked { block_shift, .. } = self.asked(What::Probe);
        debug_assert!(
            (range.start | range.end).trailing_zeros() >= block_shift,
            "a change is whole blocks"
        );
        let blocks = (range.end - range.start) >> block_shift;
        Asked::new(
            What::Read(Extent::new(range.start >> block_shift, blocks)),
            block_shift,
        )
    }

    /// Returns the maximum. There is no limit, because the LUN splits long reads.
    fn read_bytes_max(&self) -> u64 {
        u64::MAX
    }

    fn flush(&self) -> Asked {
        self.asked(What::Flush)
    }

    fn losses(&self) -> LossCounter {
        self.common.losses.clone()
    }
}

impl Portals {
    fn asked(&self, what: What) -> Asked {
        let shift = self
            .reference
            .get()
            .map_or(0, |reference| reference.geometry.block_size.shift());
        Asked::new(what, shift)
    }
}
