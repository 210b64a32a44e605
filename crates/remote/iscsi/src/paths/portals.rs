//! How paths are connected: by which portal, as which initiator port, and to which LUN.
//!
//! Each session has an ISID of its own, so that one target port can have several. A session that was lost is ended for certain by
//! a login of the same initiator port to the same target port (RFC 7143 section 6.3.5: the target terminates all its tasks first).
//! So a new session takes over the ISID of a lost one of its portal, and others that were lost at the same target port, which may
//! have several portals, are ended by a login and a logout each. What was lost at another target port cannot be ended from here:
//! `failover` keeps its blocks from newer writes until that port is there again, or for a quarantine.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use block::Extent;
use failover::{Connected, Name, Transport};
use iscsi::pdu::Isid;
use scsi::{Association, Name as DesignatorName, PortGroup, VpdContent};

use super::Common;
use super::asked::{Asked, What};
use super::multipath::Multipath;
use super::path::{Path, rank};
use super::reference::LunReference;
use crate::error::OpenError;
use crate::login::Random;
use crate::open::{Connector, LeadingLogin, isid};
use crate::probe::failed;
use crate::remote_target::RemoteTarget;
use crate::settings::Settings;
use crate::timeouts::Timeouts;
use crate::unit::Unit;
use crate::url::{Portal, Url};
use crate::verbs::VerbError;

/// The portals by which a LUN is reached.
pub(crate) struct Portals {
    paths: Vec<(Portal, Settings)>,
    target: String,
    lun: u16,
    random: Random,
    common: Arc<Common>,
    /// The LUN as it was when it was opened.
    reference: OnceCell<LunReference>,
    /// The sessions that may have to be ended, by the numbers of their connections.
    made: RefCell<BTreeMap<u64, Made>>,
}

/// A session that was logged in.
#[derive(Clone)]
struct Made {
    isid: Isid,
    path: usize,
    leading: LeadingLogin,
    /// A new session is about to end it.
    is_taken: bool,
    /// The target has terminated its tasks.
    has_ended: bool,
}

/// More sessions that may have to be ended than there can be: the oldest have left long ago.
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
            made.get_mut(number).into_iter().for_each(|made| made.is_taken = false);
        }
    }
}

impl Url {
    /// The same LUN by each of its paths, as URLs of a single session: each portal, from its own address of this host if they are named.
    pub fn paths(&self) -> Vec<Url> {
        let Multipath { addresses, sources, .. } = &self.settings.paths;
        let portals: Vec<&Portal> = std::iter::once(&self.portal).chain(addresses).collect();
        let path = |number: usize| {
            let mut url = Url { portal: portals[number % portals.len()].clone(), ..self.clone() };
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
    /// The portals of a URL, each from its own address of this host if they are named.
    pub(crate) fn new(url: &Url, random: Random, common: Arc<Common>) -> Portals {
        // Sessions are not recovered: another takes the place of one that is lost. A command that does not end is aborted, however
        // often that takes: before its end it must not be sent by another path and forgotten here.
        let path = |Url { portal, settings, .. }: Url| {
            (portal, Settings { reconnect_time: Duration::ZERO, command_tries: Some(u32::MAX), ..settings })
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

    /// Number of paths.
    pub(crate) fn count(&self) -> usize {
        self.paths.len()
    }

    /// The LUN as it was when it was opened.
    pub(crate) fn reference(&self) -> Option<&LunReference> {
        self.reference.get()
    }

    /// The first session, by the first path by which there is one.
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
        let settings = Settings { isid: Some(isid), ..settings.clone() };
        Connector::new(portal, &settings, self.random, Some(&self.target))
    }

    async fn session(&self, path: usize, name: Name, ended: &[u64]) -> Result<Connected<Path>, OpenError> {
        let taken = self.take(ended);
        let heir = taken.lost.iter().find(|(_, made)| made.path == path);
        let isid = heir.map_or_else(|| isid(self.random), |(_, made)| made.isid);
        let (session, leading) = self.connector(path, isid)?.session().await?;
        let (_, settings) = &self.paths[path];
        let target =
            RemoteTarget::new(Rc::clone(&session), Timeouts::new(settings), settings.recorder.clone());
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
        if let Some(why) = self.reference.get_or_init(|| reference.clone()).difference(&reference) {
            return Err(OpenError::AnotherDevice { address: leading.address, why });
        }
        let access = access(&lun.unit()).await.map_err(|error| failed("INQUIRY", error))?;
        let mut made = self.made.borrow_mut();
        // Of those that are not known any more nothing is known.
        let has_ended = |number: &&u64| made.get(*number).is_some_and(|made| made.has_ended);
        let (ended, not_ended): (Vec<u64>, Vec<u64>) = ended.iter().partition(has_ended);
        for number in ended {
            made.remove(&number);
        }
        made.insert(name.number, Made { isid, path, leading, is_taken: false, has_ended: false });
        while made.len() > MADE_MAX {
            made.pop_first();
        }
        let start = lun.cache_generation().map(|generation| u128::from_be_bytes(generation.0));
        let link = Path::begin(session, lun, Arc::clone(&self.common), access);
        Ok(Connected { link, fences: true, not_ended, start })
    }

    /// Those of the lost sessions that no other connection is about to end.
    fn take(&self, ended: &[u64]) -> Taken<'_> {
        let mut made = self.made.borrow_mut();
        let mut lost = Vec::new();
        for number in ended {
            if let Some(one) = made.get_mut(number).filter(|made| !made.is_taken && !made.has_ended) {
                one.is_taken = true;
                lost.push((*number, one.clone()));
            }
        }
        Taken { portals: self, lost }
    }

    /// Ends a session that was lost at the target port of this address, with all its tasks.
    async fn end(&self, path: usize, lost: &Made, address: SocketAddr) -> bool {
        let left = lost.leading.at(address);
        match self.connector(path, lost.isid) {
            Ok(connector) => connector.end_nexus(&left).await.unwrap_or(false),
            Err(_) => false,
        }
    }
}

/// The target port group that a unit is reached by, and its rank, if the target tells of them.
async fn access(unit: &Unit) -> Result<Option<(u16, Option<u8>)>, VerbError> {
    let told = unit.own_port_group().await?;
    Ok(told.map(|(group, groups)| (group, rank(&groups, group))))
}

impl Unit {
    /// The target port group that it is reached by, and all of them with their access states, if the target tells of them (ALUA).
    ///
    /// # Errors
    /// The session is lost.
    pub async fn own_port_group(&self) -> Result<Option<(u16, Vec<PortGroup>)>, VerbError> {
        if self.inquiry().await?.target_port_groups == 0 {
            return Ok(None);
        }
        let page = self.vpd(0x83).await.map(Some).or_else(unless_refused)?;
        let Some(VpdContent::Designators(names)) = page.map(|page| page.content) else { return Ok(None) };
        let of_port = names.into_iter().filter(|one| one.association == Association::TargetPort);
        let group = of_port.into_iter().find_map(|one| match one.name {
            DesignatorName::TargetPortGroup(group) => Some(group),
            _ => None,
        });
        let Some(group) = group else { return Ok(None) };
        let groups = self.target_port_groups().await.map(Some).or_else(unless_refused)?;
        Ok(groups.map(|groups| (group, groups)))
    }
}

/// A target that refuses to tell has nothing to tell, whatever INQUIRY says.
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

    async fn connect(&self, path: usize, name: Name, ended: &[u64]) -> Result<Connected<Path>, String> {
        self.session(path, name, ended).await.map_err(|error| error.to_string())
    }

    fn path_name(&self, path: usize) -> String {
        let Some((portal, settings)) = self.paths.get(path) else { return String::new() };
        let source = settings.stream.source.map(|source| format!(" from {}", source.ip()));
        format!("{portal}{}", source.unwrap_or_default())
    }

    fn probe(&self) -> Asked {
        self.asked(What::Probe)
    }

    fn read(&self, range: Range<u64>) -> Asked {
        let Asked { block_shift, .. } = self.asked(What::Probe);
        let blocks = (range.end - range.start) >> block_shift;
        Asked::new(What::Read(Extent::new(range.start >> block_shift, blocks)), block_shift)
    }

    /// The LUN splits longer ones.
    fn read_bytes_max(&self) -> u64 {
        u64::MAX
    }

    fn flush(&self) -> Asked {
        self.asked(What::Flush)
    }
}

impl Portals {
    fn asked(&self, what: What) -> Asked {
        let shift = self.reference.get().map_or(0, |reference| reference.geometry.block_size.shift());
        Asked::new(what, shift)
    }
}
