//! The configuration of the front end as values. The caller reads files and arguments.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use front_end_core::Network;
use iscsi::chap::{Algorithm, Credentials};
use iscsi::name::TargetAddress;
use iscsi::negotiate::Offers;
use iscsi::text::PrintableText;
use scsi_session::{Export, NamePattern};

/// The configuration of the front end. [`Iscsi::adopt`](crate::Iscsi::adopt) replaces it, except `random`.
#[derive(Clone)]
pub struct Config {
    /// The targets. Discovery lists them in the order of their names.
    pub targets: Vec<Arc<Target>>,
    /// Authentication of discovery sessions; `None` admits every initiator. Either way only targets that it
    /// may use are reported.
    pub discovery_authentication: Option<Authentication>,
    /// Limits.
    pub limits: Limits,
    /// Fills a slice from the operating system's random source: for CHAP challenges.
    pub random: fn(&mut [u8]),
}

impl Config {
    /// With its targets in the order of their names, by which the parts of a list of them continue.
    pub(crate) fn in_order(mut self) -> Config {
        self.targets.sort_by(|one, other| one.name.cmp(&other.name));
        self
    }

    /// The target of this name; names compare without regard to case.
    pub(crate) fn target(&self, name: &str) -> Option<&Arc<Target>> {
        self.targets.iter().find(|target| target.name.eq_ignore_ascii_case(name))
    }
}

/// A target: its name, LUNs and access control.
#[derive(Clone)]
pub struct Target {
    /// Its iSCSI name.
    pub name: String,
    /// What people call it (TargetAlias).
    pub alias: Option<PrintableText>,
    /// Its LUNs.
    pub exports: Vec<Export>,
    /// Access control by name and network.
    pub access: Access,
    /// Authentication; `None` for none.
    pub authentication: Option<Authentication>,
    /// The keys that it offers and accepts at login. Alias and MaxConnections in it are ignored:
    /// [`Target::alias`] and [`Limits::connections_per_session`] replace them.
    pub offers: Offers,
    /// The portal groups that it is accessible through; `None` for all.
    pub portal_groups: Option<Vec<u16>>,
    /// Initiators without access are told that there is no such target (0203h), and not that they have none (0202h).
    pub hidden: bool,
    /// Redirects logins to another address.
    pub redirect: Option<Redirect>,
}

impl Target {
    /// A target for anybody, by all portals, with what a target offers by default; initiators that may not use it, once
    /// somebody may not, are told that there is none.
    pub fn open(name: impl Into<String>, exports: Vec<Export>) -> Target {
        Target {
            name: name.into(),
            alias: None,
            exports,
            access: Access::default(),
            authentication: None,
            offers: Offers::of_target(),
            portal_groups: None,
            hidden: true,
            redirect: None,
        }
    }

    /// The target without its LUNs: for whatever outlives a change of the configuration, so that it keeps no volume open.
    pub(crate) fn without_luns(&self) -> Arc<Target> {
        Arc::new(Target { exports: Vec::new(), ..self.clone() })
    }

    /// Whether it is accessible through portals of this group.
    pub(crate) fn is_reached_by(&self, tag: u16) -> bool {
        self.portal_groups.as_ref().is_none_or(|groups| groups.contains(&tag))
    }

    /// Whether a logged-in initiator still has access: the checks of a login without authentication.
    pub(crate) fn keeps(&self, initiator: &str, address: IpAddr, user: Option<&str>, tag: u16) -> bool {
        let proved = match (&self.authentication, user) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(wanted), Some(user)) => wanted.knows(user) && wanted.lets_present(user, initiator),
        };
        proved && self.redirect.is_none() && self.is_reached_by(tag) && self.access.admits(initiator, address)
    }
}

/// CHAP (RFC 7143 section 12.1).
#[derive(Clone)]
pub struct Authentication {
    /// The accounts. Secrets must be at least 96 bits long (RFC 7143 section 9.2.1); `manage::config` checks
    /// that.
    pub accounts: Arc<[Credentials]>,
    /// Initiator names that a user may use. A user without an entry may use any.
    pub initiators: BTreeMap<String, Vec<NamePattern>>,
    /// The target's own credentials, for mutual authentication.
    pub mutual: Option<Credentials>,
    /// The accepted hash algorithms.
    pub algorithms: Vec<Algorithm>,
}

impl Authentication {
    /// Whether an account with this name exists.
    pub(crate) fn knows(&self, user: &str) -> bool {
        self.accounts.iter().any(|account| account.name == user)
    }

    /// Whether the authenticated `user` may log in with this initiator name.
    pub(crate) fn lets_present(&self, user: &str, initiator: &str) -> bool {
        let names = self.initiators.get(user);
        names.is_none_or(|names| names.iter().any(|name| name.matches(initiator)))
    }
}

/// A login redirection (RFC 7143 section 11.13.5, status class 1).
#[derive(Clone, Debug, PartialEq)]
pub struct Redirect {
    /// "The comma and portal-group-tag MUST be omitted" (RFC 7143 section 13.8).
    pub address: TargetAddress,
    /// 0102h instead of 0101h: the initiator may remember it.
    pub permanent: bool,
}

/// Limits besides [`front_end_core::Limits`], against overload and hostile peers.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Normal sessions in total.
    pub sessions: usize,
    /// Discovery sessions in total. One more ends the oldest of the address with the most.
    pub discovery_sessions: usize,
    /// How long a discovery session may last.
    pub discovery_time: Duration,
    /// Connections of one session (the MaxConnections key): 1 to 8.
    pub connections_per_session: u16,
    /// From accepting a connection to its last login response.
    pub login_time: Duration,
    /// Commands a session may have in flight: the command window (RFC 7143 section 4.2.2.1).
    pub window: u32,
    /// Idle time after which a NOP-In is sent; without an answer within the same time the connection is
    /// closed.
    pub nop_interval: Duration,
    /// How long a peer may neither receive queued data nor send the data of its outstanding writes.
    pub send_stall: Duration,
    /// Memory that the commands of one session may hold, in bytes, within [`front_end_core::Limits::staging_bytes`].
    pub session_staging_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            sessions: 4096,
            discovery_sessions: 64,
            discovery_time: Duration::from_secs(60), // asking takes a second
            connections_per_session: 8,
            login_time: Duration::from_secs(15), // open-iscsi gives a login 15 s, then tries again
            window: 256,                         // users find 32, 64 and 128 too small (tcmu-runner#359)
            nop_interval: Duration::from_secs(15),
            send_stall: Duration::from_secs(60),
            session_staging_bytes: 256 << 20, // the whole window in commands of 1 MiB
        }
    }
}

/// Access control of a target: both lists must admit the initiator.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Names the initiator may have; `None` is any.
    pub initiators: Option<Vec<NamePattern>>,
    /// Networks it may come from; `None` is any.
    pub networks: Option<Vec<Network>>,
}

impl Access {
    /// Whether `initiator`, coming from `address`, may log in, and may know that the target exists.
    pub fn admits(&self, initiator: &str, address: IpAddr) -> bool {
        self.admits_name(initiator) && self.admits_address(address)
    }

    /// Whether it lets any initiator in, wherever that comes from.
    pub fn is_open(&self) -> bool {
        self.initiators.is_none() && self.networks.is_none()
    }

    pub(crate) fn admits_name(&self, initiator: &str) -> bool {
        self.initiators.as_ref().is_none_or(|names| names.iter().any(|name| name.matches(initiator)))
    }

    pub(crate) fn admits_address(&self, address: IpAddr) -> bool {
        self.networks.as_ref().is_none_or(|networks| networks.iter().any(|net| net.contains(address)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Network {
        text.parse().expect("a network")
    }

    #[test]
    fn both_lists_must_let_an_initiator_in() {
        let access = Access {
            initiators: Some(vec![NamePattern::new("iqn.a:*")]),
            networks: Some(vec![net("10.0.0.0/8")]),
        };
        let (inside, outside) = ([10, 0, 0, 1].into(), [11, 0, 0, 1].into());
        assert!(access.admits("iqn.a:1", inside));
        assert!(!access.admits("iqn.a:1", outside));
        assert!(!access.admits("iqn.b:1", inside));
        assert!(Access::default().admits("iqn.b:1", outside));
    }

    #[test]
    fn a_list_of_nobody_lets_nobody_in() {
        let access = Access { initiators: Some(Vec::new()), networks: None };
        assert!(!access.admits("iqn.a:1", [10, 0, 0, 1].into()));
        let access = Access { initiators: None, networks: Some(Vec::new()) };
        assert!(!access.admits("iqn.a:1", [10, 0, 0, 1].into()));
    }
}
