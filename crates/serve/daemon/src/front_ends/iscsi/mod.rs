//! iSCSI as a front end of a configured server: `[[portal]]`, `[[target]]`, `[discovery]`, and its part of `[limits]`.
//!
//! It has the volumes and addresses of the command line: each volume is LUN 0 of a target of its own, for anybody.

mod changes;
mod chap;
mod edit;
mod limits;
mod names;
mod portal;
mod serving;
mod session;
mod sessions;
mod summary;
mod target;
mod usage;

use std::sync::Arc;

use ::iscsi::name::Name;
use ::iscsi_server::{ISCSI, Iscsi};
use front_end_core::{ListenAddress, Server};

use self::chap::Protected;
use super::{Configured, Document, Kind, Running, Serving};
use crate::config::{Address, Config, Section, VolumeName};
use crate::control::{self, Lun as ExportedLun};
use crate::desired::Desired;

pub use chap::{Account, Chap};
pub use limits::Limits;
pub use portal::Portal;
pub use target::{Lun, Target};

/// Its line of the table.
pub const KIND: Kind = Kind {
    name: ISCSI,
    listen: |text| Ok(text.parse::<Address>()?.0.into()),
    heading: "[[target]]",
    read: |document| Box::new(IscsiConfig::read(document)),
    add: edit::add,
    remove: edit::remove,
};

/// What a configuration says of iSCSI.
#[derive(Debug, Default)]
pub struct IscsiConfig {
    /// Where initiators connect.
    pub portals: Vec<Portal>,
    /// The file says where.
    has_portal: bool,
    /// What initiators find.
    pub targets: Vec<Target>,
    /// What discovery sessions must prove.
    pub discovery: Option<Chap>,
    /// What nobody may exceed.
    pub limits: Limits,
}

impl Config {
    /// What it says of iSCSI.
    ///
    /// # Panics
    /// It was read by a table of front ends without iSCSI.
    pub fn iscsi(&self) -> &IscsiConfig {
        self.front_end().expect("the table of front ends has iSCSI")
    }
}

impl IscsiConfig {
    fn read(document: &Document<'_>) -> IscsiConfig {
        let root = document.root;
        let portals = portal::all(&root.sections("portal", "[[portal]]"));
        let targets = target::all(&root.sections("target", "[[target]]"), document, &portals);
        let limits = document.limits.map(Limits::read).unwrap_or_default();
        let has_portal = !portals.is_empty();
        IscsiConfig { portals, has_portal, targets, discovery: discovery(root), limits }
    }

    fn add_target(&mut self, volume: &VolumeName) -> Result<(), String> {
        let target = Target::of_volume(volume);
        if self.targets.iter().any(|other| other.name == target.name) {
            return Err(format!("the file has the target {} already; rename the volume", target.name));
        }
        self.targets.push(target);
        Ok(())
    }

    fn set_portals(&mut self, desired: &Desired) -> Result<(), String> {
        let listen = desired.listen_by(ISCSI);
        if !listen.is_empty() {
            let addresses = listen.iter().filter_map(ListenAddress::inet);
            self.portals = addresses.map(|address| Portal::at(Address(address))).collect();
        }
        if self.portals.is_empty() && !self.targets.is_empty() {
            let usual = USUAL_ADDRESS.parse::<Address>().map_err(|error| error.to_string())?;
            self.portals = vec![Portal::at(usual)];
        }
        // The file is held to this by itself; --listen may have taken a group away.
        let lost = |target: &&Target| !self.portals.iter().any(|portal| target.is_reached_by(portal.group));
        match self.targets.iter().find(lost) {
            None => Ok(()),
            Some(target) => Err(format!(
                "no listener has a portal group of {}; --listen makes group 1 only, so use [[portal]] in the file",
                target.name
            )),
        }
    }
}

impl Configured for IscsiConfig {
    fn take_over(&mut self, desired: &Desired) -> Result<(), String> {
        // Who asks for addresses of other front ends only does not ask for iSCSI.
        let is_asked_for = desired.listen.is_empty() || !desired.listen_by(ISCSI).is_empty();
        if is_asked_for || !self.targets.is_empty() {
            desired.volumes.iter().try_for_each(|volume| self.add_target(&volume.name))?;
        }
        self.set_portals(desired)
    }

    fn is_empty(&self) -> bool {
        self.targets.is_empty() && !self.has_portal
    }

    fn volumes(&self) -> Vec<&VolumeName> {
        self.targets.iter().flat_map(|target| &target.luns).map(|lun| &lun.volume).collect()
    }

    fn portals(&self) -> Vec<front_end_core::Portal> {
        self.portals.iter().map(Portal::of_server).collect()
    }

    fn describe(&self, portal: &front_end_core::Portal) -> String {
        format!("{} (portal group {})", portal.listen, portal.tag)
    }

    fn changes(&self, wanted: &Config, renamed: &[(VolumeName, VolumeName)]) -> Vec<String> {
        changes::between(self, wanted.iscsi(), renamed)
    }

    fn summary(&self, config: &Config) -> String {
        self.targets.iter().map(|target| summary::of(target, config)).collect()
    }

    fn exports_of(&self, volume: &VolumeName) -> Vec<ExportedLun> {
        let all = self.targets.iter().flat_map(|target| target.luns.iter().map(move |lun| (target, lun)));
        let its = all.filter(|(_, lun)| lun.volume == *volume);
        let exported = |(target, lun): (&Target, &Lun)| ExportedLun {
            front_end: ISCSI.to_owned(),
            target: target.name.to_string(),
            lun: Some(lun.lun),
        };
        its.map(exported).collect()
    }

    fn targets(&self, portals: &[front_end_core::Portal]) -> Vec<control::Target> {
        self.targets.iter().map(|target| summary::told(target, portals)).collect()
    }

    fn announcement(&self, portals: &[front_end_core::Portal], volumes: &[control::Volume]) -> String {
        self.targets.iter().filter_map(|target| summary::announced(target, portals, volumes)).collect()
    }

    fn usage(&self, portals: &[front_end_core::Portal]) -> String {
        usage::text(self, portals)
    }

    fn start(&self, serving: Serving<'_>, cores: usize) -> Arc<dyn Running> {
        Iscsi::new(serving::config(self, serving), cores)
    }
}

impl Running for Iscsi {
    fn adopt(&self, wanted: Serving<'_>) {
        Iscsi::adopt(self, serving::config(wanted.config.iscsi(), wanted));
    }

    fn losses(
        &self,
        server: &Server,
        wanted: Serving<'_>,
        portals: &[front_end_core::Portal],
    ) -> Vec<String> {
        let losses = Iscsi::losses(self, server, &serving::config(wanted.config.iscsi(), wanted), portals);
        losses.iter().map(ToString::to_string).collect()
    }

    fn sessions(&self, server: &Server) -> Vec<control::Session> {
        Iscsi::sessions(self, server).into_iter().map(sessions::session).collect()
    }

    fn drop_sessions(&self, server: &Server, which: &str, force: bool) -> usize {
        Iscsi::drop_sessions(self, server, which, force)
    }
}

fn discovery(root: &Section<'_>) -> Option<Chap> {
    let section = root.section("discovery", "[discovery]")?;
    let chap = section
        .section("chap", "[discovery.chap]")
        .and_then(|section| chap::read(&section, Protected::Discovery));
    section.done();
    chap
}

/// The target that a volume of the command line, or of `server add`, has to itself.
fn own_target(volume: &VolumeName) -> Name {
    // A volume's name has letters that every iSCSI name may have, and is short enough: both are rules of `VolumeName`.
    let name = Name::new(&format!("iqn.2026-01.io.linerate:{volume}"));
    name.expect("a volume's name makes an iSCSI name").normalised()
}

/// Nobody but this machine reaches what nobody thought about.
const USUAL_ADDRESS: &str = "127.0.0.1:3260";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_of_a_volume_makes_the_name_of_a_target() {
        let volume = "vm-1.".to_owned() + &"x".repeat(59);
        let name = own_target(&volume.parse().expect("64 letters"));
        assert_eq!(name.as_str(), format!("iqn.2026-01.io.linerate:{volume}"));
    }
}
