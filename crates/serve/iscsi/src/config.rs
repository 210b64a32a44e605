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
    /// Authentication of discovery sessions; `None` admits every initiator. In both cases, discovery reports
    /// only targets that the initiator may use.
    pub discovery_authentication: Option<Authentication>,
    /// Limits.
    pub limits: Limits,
    /// Fills a slice from the operating system's random source: for CHAP challenges.
    pub random: fn(&mut [u8]),
}

impl Config {
    /// Sorts the targets by name, because a discovery list in several parts continues after the last name.
    pub(crate) fn in_order(mut self) -> Config {
        self.targets.sort_by(|one, other| one.name.cmp(&other.name));
        debug_assert!(
            self.targets.is_sorted_by(|one, next| one.name < next.name),
            "the names of targets differ"
        );
        self
    }

    /// Returns the target with this name, ignoring case.
    pub(crate) fn target(&self, name: &str) -> Option<&Arc<Target>> {
        self.targets
            .iter()
            .find(|target| target.name.eq_ignore_ascii_case(name))
    }
}

/// A target: its name, LUNs and access control.
#[derive(Clone)]
pub struct Target {
    /// Its iSCSI name.
    pub name: String,
    /// Its display name (TargetAlias).
    pub alias: Option<PrintableText>,
    /// Its LUNs.
    pub exports: Vec<Export>,
    /// Access control by name and network.
    pub access: Access,
    /// Authentication; `None` disables it.
    pub authentication: Option<Authentication>,
    /// The keys that it offers and accepts at login. TargetAlias and MaxConnections in these offers are
    /// ignored: [`Target::alias`] and [`Limits::connections_per_session`] replace them.
    pub offers: Offers,
    /// The portal groups through which it is accessible; `None` for all.
    pub portal_groups: Option<Vec<u16>>,
    /// Whether initiators without access receive the login status for a missing target (0203h) instead of the
    /// status for missing access (0202h).
    pub hidden: bool,
    /// Redirects logins to another address.
    pub redirect: Option<Redirect>,
}

impl Target {
    /// Creates a target that is open to any initiator, through all portals, with default offers. If access is
    /// later restricted, the target is hidden from initiators without access.
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

    /// Returns a copy of the target without its LUNs, for objects that outlive a configuration change and
    /// must not keep a volume open.
    pub(crate) fn without_luns(&self) -> Arc<Target> {
        Arc::new(Target {
            exports: Vec::new(),
            ..self.clone()
        })
    }

    /// Whether it is accessible through portals of this group.
    pub(crate) fn is_reached_by(&self, tag: u16) -> bool {
        self.portal_groups
            .as_ref()
            .is_none_or(|groups| groups.contains(&tag))
    }

    /// Whether a logged-in initiator still has access. Makes the same checks as a login, except
    /// authentication.
    pub(crate) fn keeps(
        &self,
        initiator: &str,
        address: IpAddr,
        user: Option<&str>,
        tag: u16,
    ) -> bool {
        let proved = match (&self.authentication, user) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(wanted), Some(user)) => {
                wanted.knows(user) && wanted.lets_present(user, initiator)
            }
        };
        proved
            && self.redirect.is_none()
            && self.is_reached_by(tag)
            && self.access.admits(initiator, address)
    }
}

/// CHAP (RFC 7143 section 12.1).
#[derive(Clone)]
pub struct Authentication {
    /// The accounts. Secrets must be at least 96 bits long (RFC 7143 section 9.2.1); the crate `daemon`
    /// checks this when it reads a configuration.
    pub accounts: Arc<[Credentials]>,
    /// The initiator names that each user may use. A user without an entry may use any name.
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
    /// Whether the redirection is permanent (status 0102h, not 0101h), so that the initiator may remember it.
    pub permanent: bool,
}

/// Limits in addition to [`front_end_core::Limits`], against overload and hostile peers.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum normal sessions in total.
    pub sessions: usize,
    /// Maximum discovery sessions in total. When a further discovery session starts, the oldest one of the
    /// address with the most discovery sessions is ended.
    pub discovery_sessions: usize,
    /// Maximum duration of a discovery session.
    pub discovery_time: Duration,
    /// Maximum connections of one session (the MaxConnections key): 1 to 8.
    pub connections_per_session: u16,
    /// Maximum time from accepting a connection to its last login response.
    pub login_time: Duration,
    /// Maximum outstanding commands of a session: the command window (RFC 7143 section 4.2.2.1).
    pub window: u32,
    /// Idle time after which a NOP-In is sent; without a response within the same time the connection is
    /// closed.
    pub nop_interval: Duration,
    /// Time for which a peer may accept none of the queued data, or send none of the data of its outstanding
    /// writes.
    pub send_stall: Duration,
    /// Memory for the commands of one session, in bytes, within [`front_end_core::Limits::staging_bytes`].
    pub session_staging_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            sessions: 4096,
            discovery_sessions: 64,
            discovery_time: Duration::from_secs(60), // a discovery takes a second
            connections_per_session: 8,
            login_time: Duration::from_secs(15), // open-iscsi allows 15 s for a login, then retries
            window: 256, // users report that 32, 64 and 128 are too small (tcmu-runner#359)
            nop_interval: Duration::from_secs(15),
            send_stall: Duration::from_secs(60),
            session_staging_bytes: 256 << 20, // the whole window in commands of 1 MiB
        }
    }
}

/// Access control of a target: both lists must admit the initiator.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The names that the initiator may have; `None` allows any.
    pub initiators: Option<Vec<NamePattern>>,
    /// The networks from which it may connect; `None` allows any.
    pub networks: Option<Vec<Network>>,
}

impl Access {
    /// Whether `initiator`, connected from `address`, may log in and see the target.
    pub fn admits(&self, initiator: &str, address: IpAddr) -> bool {
        self.admits_name(initiator) && self.admits_address(address)
    }

    /// Whether any initiator may log in, from any network.
    pub fn is_open(&self) -> bool {
        self.initiators.is_none() && self.networks.is_none()
    }

    pub(crate) fn admits_name(&self, initiator: &str) -> bool {
        self.initiators
            .as_ref()
            .is_none_or(|names| names.iter().any(|name| name.matches(initiator)))
    }

    pub(crate) fn admits_address(&self, address: IpAddr) -> bool {
        self.networks
            .as_ref()
            .is_none_or(|networks| networks.iter().any(|net| net.contains(address)))
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
        let access = Access {
            initiators: Some(Vec::new()),
            networks: None,
        };
        assert!(!access.admits("iqn.a:1", [10, 0, 0, 1].into()));
        let access = Access {
            initiators: None,
            networks: Some(Vec::new()),
        };
        assert!(!access.admits("iqn.a:1", [10, 0, 0, 1].into()));
    }
}
