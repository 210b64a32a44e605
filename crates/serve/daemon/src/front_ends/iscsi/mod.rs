//! iSCSI as a front end of a configured server: `[[portal]]`, `[[target]]`, `[discovery]`, and its part of
//! `[limits]`.
//!
//! iSCSI also serves the volumes and addresses of the command line: each volume is LUN 0 of a separate
//! target, open to any initiator.

pub(crate) mod target;
mod usage;

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use front_end_core::{ListenAddress, Server};
use iscsi::name::TargetAddress;
use iscsi_server::{Authentication, ConnectionStatus, ISCSI, Iscsi, SessionStatus};
use reactor::StreamOptions;
use toml_edit::Table;
use volume::spec::{Bytes, Time};

use self::target::{Chap, Protected, Target, own_target};
use super::exposed::{self, Exposed, announced, place_of_target, portal_changes};
use super::sections::{add_lun, each_once, exports, random, remove_luns};
use crate::config::section::Section;
use crate::config::values::{Address, ISCSI_PORT, VolumeName};
use crate::config::{
    self, Addition, Beside, Config, Configured, Document, FrontEndKind, RunningFrontEnd, Serving,
};
use crate::control;

/// The entry of iSCSI in the front-end table.
pub const KIND: FrontEndKind = FrontEndKind {
    name: ISCSI,
    listen: |text| Ok(text.parse::<Address>()?.0.into()),
    heading: "[[target]]",
    read: |document| Box::new(IscsiConfig::read(document)),
    add,
    remove: |root, volume| remove_luns(root, volume),
};

/// The iSCSI part of a configuration.
#[derive(Debug, Default)]
pub struct IscsiConfig {
    /// The addresses that initiators connect to.
    pub portals: Vec<Portal>,
    /// Whether the file has a `[[portal]]`.
    has_portal: bool,
    /// The targets that initiators find.
    pub targets: Vec<Target>,
    /// CHAP for discovery sessions.
    pub discovery: Option<Chap>,
    /// The limits.
    pub limits: Limits,
}

/// An address to listen on, and the settings of connections to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Portal {
    /// The address to listen on.
    pub listen: Address,
    /// Its portal group tag [default: 1].
    pub group: u16,
    /// The address to advertise in discovery instead.
    pub advertise: Option<TargetAddress>,
    /// TCP congestion control by name.
    pub congestion: Option<String>,
    /// SO_SNDBUF in bytes; the system's automatic size if `None`.
    pub send_buffer: Option<usize>,
    /// SO_RCVBUF in bytes; the system's automatic size if `None`.
    pub receive_buffer: Option<usize>,
}

/// Limits in addition to those of the server; `None` means the default of `iscsi_server::Limits`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// Maximum concurrent sessions, excluding discovery sessions.
    pub sessions: Option<usize>,
    /// Maximum concurrent discovery sessions.
    pub discovery_sessions: Option<usize>,
    /// Maximum duration of a discovery session.
    pub discovery_time: Option<Duration>,
    /// Maximum connections of one session.
    pub connections_per_session: Option<u16>,
    /// Maximum time from accepting a connection to its last login response.
    pub login_time: Option<Duration>,
    /// Maximum outstanding commands of one session.
    pub window: Option<u32>,
    /// Idle time after which an initiator is pinged.
    pub nop_interval: Option<Duration>,
    /// The time for which a transfer may stall, in either direction.
    pub send_stall: Option<Duration>,
    /// Memory for command data and working buffers of one session.
    pub session_staging_bytes: Option<usize>,
}

impl Config {
    /// The iSCSI part of the configuration.
    ///
    /// # Panics
    /// The configuration was read by a table of front ends without iSCSI.
    pub fn iscsi(&self) -> &IscsiConfig {
        self.front_end().expect("the table of front ends has iSCSI")
    }
}

impl IscsiConfig {
    fn read(document: &Document<'_>) -> IscsiConfig {
        let root = document.root;
        let portals = portals(&root.sections("portal", "[[portal]]"));
        let groups: Vec<u16> = portals.iter().map(|portal| portal.group).collect();
        let targets = root.sections("target", "[[target]]");
        let targets = targets
            .iter()
            .filter_map(|section| Target::read(section, document, &groups));
        let targets = each_once(targets, root.mistakes, |name, _| {
            format!("the target {name} is defined twice; put all its LUNs under one [[target]]")
        });
        let discovery = root
            .section("discovery", "[discovery]")
            .and_then(|section| {
                let chap = section.section("chap", "[discovery.chap]");
                let chap = chap.and_then(|section| Chap::read(&section, Protected::Discovery));
                section.done();
                chap
            });
        let limits = document.limits.map(Limits::read).unwrap_or_default();
        IscsiConfig {
            has_portal: !portals.is_empty(),
            portals,
            targets,
            discovery,
            limits,
        }
    }

    /// Returns the configuration for `iscsi_server`.
    fn served(&self, serving: Serving<'_>) -> iscsi_server::Config {
        let served = |target: &Target| {
            Arc::new(iscsi_server::Target {
                name: target.name.to_string(),
                alias: target.alias.clone(),
                exports: exports(&target.luns, serving),
                access: iscsi_server::Access {
                    initiators: target.initiators.clone(),
                    networks: target.networks.clone(),
                },
                authentication: target.chap.as_ref().map(authentication),
                offers: target.offers.clone(),
                portal_groups: target.groups.clone(),
                hidden: target.hidden,
                redirect: target.redirect.clone(),
            })
        };
        iscsi_server::Config {
            targets: self.targets.iter().map(served).collect(),
            discovery_authentication: self.discovery.as_ref().map(authentication),
            limits: self.limits.of_iscsi(),
            random,
        }
    }
}

fn authentication(chap: &Chap) -> Authentication {
    let accounts = chap.accounts.iter();
    Authentication {
        accounts: accounts
            .clone()
            .map(|account| account.credentials.clone())
            .collect(),
        // The users that are restricted to certain initiator names.
        initiators: accounts
            .filter_map(|account| {
                Some((
                    account.credentials.name.clone(),
                    account.initiators.clone()?,
                ))
            })
            .collect(),
        mutual: chap.mutual.clone(),
        algorithms: chap.algorithms.clone(),
    }
}

impl Portal {
    /// Creates a portal at this address, with defaults for everything else.
    pub fn at(listen: Address) -> Portal {
        let (advertise, congestion) = (None, None);
        Portal {
            listen,
            group: 1,
            advertise,
            congestion,
            send_buffer: None,
            receive_buffer: None,
        }
    }

    pub(super) fn of_server(&self) -> front_end_core::Portal {
        let Portal {
            listen,
            group,
            advertise,
            congestion,
            send_buffer,
            receive_buffer,
        } = self;
        debug_assert_ne!(*group, 0, "a portal group tag must be 1 or greater");
        front_end_core::Portal {
            front_end: ISCSI,
            listen: listen.0.into(),
            tag: *group,
            advertise: advertise.as_ref().map(ToString::to_string),
            stream: StreamOptions {
                congestion: congestion.clone(),
                send_buffer_bytes: *send_buffer,
                receive_buffer_bytes: *receive_buffer,
                ..StreamOptions::default()
            },
        }
    }
}

fn portals(sections: &[Section<'_>]) -> Vec<Portal> {
    let mut portals: Vec<Portal> = Vec::new();
    for section in sections {
        let Some(portal) = read_portal(section) else {
            continue;
        };
        // Port 0 selects a free port each time, so duplicates are allowed.
        if portal.listen.0.port() != 0 && portals.iter().any(|other| other.listen == portal.listen)
        {
            let sentence = format!("{} is used twice; remove one [[portal]]", portal.listen.0);
            section.mistakes.add(section.at(), sentence);
        }
        portals.push(portal);
    }
    portals
}

fn read_portal(section: &Section<'_>) -> Option<Portal> {
    let listen = section.required(
        "listen",
        section.parsed::<Address>("listen"),
        "\"0.0.0.0:3260\"",
    );
    let group = section
        .count("group", 1..=65_535)
        .map_or(1, |group| group.value as u16);
    let advertise = section.parsed("advertise").map(|address| address.value);
    let congestion = section.text("congestion").map(|name| name.value.to_owned());
    let buffer = |key| {
        section
            .parsed::<Bytes>(key)
            .map(|bytes| bytes.value.0 as usize)
    };
    let (send_buffer, receive_buffer) = (buffer("send-buffer"), buffer("receive-buffer"));
    section.done();
    let listen = listen?.value;
    Some(Portal {
        listen,
        group,
        advertise,
        congestion,
        send_buffer,
        receive_buffer,
    })
}

impl Limits {
    fn read(section: &Section<'_>) -> Limits {
        let count = |key, most| section.count(key, 1..=most).map(|count| count.value);
        let time = |key| section.parsed::<Time>(key).map(|time| time.value.0);
        Limits {
            sessions: count("sessions", 65_534).map(|count| count as usize),
            discovery_sessions: count("discovery-sessions", 65_534).map(|count| count as usize),
            discovery_time: time("discovery-time"),
            connections_per_session: count("connections-per-session", 8).map(|count| count as u16),
            login_time: time("login-time"),
            window: count("window", 65_535).map(|count| count as u32),
            nop_interval: time("nop-interval"),
            send_stall: time("send-stall"),
            session_staging_bytes: section
                .parsed::<Bytes>("session-staging")
                .map(|bytes| bytes.value.0 as usize),
        }
    }

    /// The limits for `iscsi_server`, with its defaults for omitted ones.
    pub fn of_iscsi(&self) -> iscsi_server::Limits {
        let usual = iscsi_server::Limits::default();
        iscsi_server::Limits {
            sessions: self.sessions.unwrap_or(usual.sessions),
            discovery_sessions: self.discovery_sessions.unwrap_or(usual.discovery_sessions),
            discovery_time: self.discovery_time.unwrap_or(usual.discovery_time),
            connections_per_session: self
                .connections_per_session
                .unwrap_or(usual.connections_per_session),
            login_time: self.login_time.unwrap_or(usual.login_time),
            window: self.window.unwrap_or(usual.window),
            nop_interval: self.nop_interval.unwrap_or(usual.nop_interval),
            send_stall: self.send_stall.unwrap_or(usual.send_stall),
            session_staging_bytes: self
                .session_staging_bytes
                .unwrap_or(usual.session_staging_bytes),
        }
    }
}

impl Configured for IscsiConfig {
    fn kind(&self) -> &'static FrontEndKind {
        &KIND
    }

    fn take_over(&mut self, beside: &Beside<'_>) -> Result<(), String> {
        // If all addresses on the command line are for other front ends, the user does not request iSCSI.
        let is_asked_for = !beside.has_addresses || !beside.listen.is_empty();
        if is_asked_for || !self.targets.is_empty() {
            for volume in &beside.volumes {
                let target = Target::of_volume(volume);
                if self.targets.iter().any(|other| other.name == target.name) {
                    return Err(format!(
                        "the file already has a target {}; rename the volume",
                        target.name
                    ));
                }
                self.targets.push(target);
            }
        }
        if !beside.listen.is_empty() {
            let addresses = beside.listen.iter().filter_map(ListenAddress::inet);
            self.portals = addresses
                .map(|address| Portal::at(Address(address)))
                .collect();
        }
        if self.portals.is_empty() && !self.targets.is_empty() {
            self.portals = vec![Portal::at(USUAL_ADDRESS)];
        }
        // The groups of the file have already been checked, but `--listen` may have removed one.
        let lost = |target: &&Target| !self.portals.iter().any(|portal| target.is_in(portal.group));
        match self.targets.iter().find(lost) {
            None => Ok(()),
            Some(target) => Err(format!(
                "no portal serves {}; --listen creates only portal group 1: use [[portal]] in the file",
                target.name
            )),
        }
    }

    fn is_empty(&self) -> bool {
        self.targets.is_empty() && !self.has_portal
    }

    fn exposed(&self) -> Vec<&dyn Exposed> {
        self.targets
            .iter()
            .map(|target| target as &dyn Exposed)
            .collect()
    }

    fn portals(&self) -> Vec<front_end_core::Portal> {
        self.portals.iter().map(Portal::of_server).collect()
    }

    fn describe(&self, portal: &front_end_core::Portal) -> String {
        format!("{} (portal group {})", portal.listen, portal.tag)
    }

    fn changes(
        &self,
        wanted: &dyn Configured,
        renamed: &[(VolumeName, VolumeName)],
    ) -> Vec<String> {
        let mut lines = exposed::changes(&self.exposed(), &wanted.exposed(), renamed);
        let describe =
            |portal: &front_end_core::Portal| format!("{} (group {})", portal.listen, portal.tag);
        lines.extend(portal_changes(&self.portals(), &wanted.portals(), describe));
        let any: &dyn Any = wanted;
        // All fields are listed, so that a new field must be compared or omitted on purpose.
        if let Some(IscsiConfig {
            portals: _,
            has_portal: _,
            targets: _,
            discovery,
            limits,
        }) = any.downcast_ref()
        {
            lines.extend(
                (self.discovery != *discovery).then(|| "~ discovery: CHAP accounts".to_owned()),
            );
            lines.extend((self.limits != *limits).then(|| config::LIMITS_CHANGED.to_owned()));
        }
        lines
    }

    fn announcement(
        &self,
        portals: &[front_end_core::Portal],
        volumes: &[control::Volume],
    ) -> String {
        let announced = |target: &Target| {
            let addresses = addresses(target, portals);
            let url = format!("{ISCSI}://{}", addresses.first()?);
            let name = target.name.to_string();
            let place = place_of_target(&url, &name, &target.luns, addresses.len() - 1);
            Some(announced(target, volumes, &place))
        };
        self.targets.iter().filter_map(announced).collect()
    }

    fn usage(&self, portals: &[front_end_core::Portal]) -> String {
        let ways = self.targets.iter().filter_map(|target| {
            usage::Way::to(target, addresses(target, portals)).map(|way| way.text())
        });
        ways.collect::<Vec<_>>().join("\n")
    }

    fn start(&self, serving: Serving<'_>, cores: usize) -> Arc<dyn RunningFrontEnd> {
        Iscsi::new(self.served(serving), cores)
    }
}

/// Returns the addresses of the portals that reach a target.
fn addresses(target: &Target, portals: &[front_end_core::Portal]) -> Vec<SocketAddr> {
    let leads_to = |portal: &&front_end_core::Portal| {
        portal.front_end == ISCSI && target.is_reached_by(portal)
    };
    let address = |portal: &front_end_core::Portal| match portal.listen.inet()? {
        // Omit an IPv6 zone, because it is valid only on this host.
        SocketAddr::V6(v6) => Some(SocketAddr::from((*v6.ip(), v6.port()))),
        v4 => Some(v4),
    };
    portals
        .iter()
        .filter(leads_to)
        .filter_map(address)
        .collect()
}

impl RunningFrontEnd for Iscsi {
    fn adopt(&self, wanted: Serving<'_>) {
        Iscsi::adopt(self, wanted.config.iscsi().served(wanted));
    }

    fn losses(
        &self,
        server: &Server,
        wanted: Serving<'_>,
        portals: &[front_end_core::Portal],
    ) -> Vec<String> {
        let losses = Iscsi::losses(self, server, &wanted.config.iscsi().served(wanted), portals);
        losses.iter().map(ToString::to_string).collect()
    }

    fn sessions(&self, server: &Server) -> Vec<control::ServedSession> {
        Iscsi::sessions(self, server)
            .into_iter()
            .map(session)
            .collect()
    }

    fn drop_sessions(&self, server: &Server, which: &str, force: bool) -> usize {
        Iscsi::drop_sessions(self, server, which, force)
    }
}

fn session(status: SessionStatus) -> control::ServedSession {
    let connection = |status: &ConnectionStatus| control::Connection {
        cid: Some(status.cid),
        peer: status.peer.into(),
        local: status.local.to_string(),
    };
    control::ServedSession {
        front_end: ISCSI.to_owned(),
        initiator: status.initiator,
        user: status.user,
        isid: Some(status.isid),
        tsih: Some(status.tsih),
        target: status.target,
        age_seconds: status.age.as_secs_f64(),
        core: status.core,
        connections: status.connections.iter().map(connection).collect(),
        parameters: status.parameters,
        in_flight: status.in_flight,
        commands: status.traffic.commands,
        read_bytes: status.traffic.read_bytes,
        written_bytes: status.traffic.written_bytes,
    }
}

/// Adds a LUN. Creates its target if it is not in the file.
fn add(root: &mut Table, addition: &Addition<'_>) -> Result<(), String> {
    let own = own_target(addition.volume);
    add_lun(
        root,
        addition.target.unwrap_or(own.as_str()),
        str::eq_ignore_ascii_case,
        addition,
    )
}

/// The default address. It is loopback, so that only this host can connect unless the administrator specifies
/// another address.
const USUAL_ADDRESS: Address =
    Address(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), ISCSI_PORT));
