//! What a server serves, as values: the binary reads files and arguments, this crate never does.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use iscsi::chap::{Algorithm, Credentials};
use iscsi::negotiate::Offers;
use unit::LogicalUnit;

use crate::access::{Access, NamePattern};

/// All of it. The front end takes another by [`Iscsi::adopt`](crate::Iscsi::adopt), but for `random`.
#[derive(Clone)]
pub struct Config {
    /// What initiators find.
    pub targets: Vec<Arc<Target>>,
    /// What discovery sessions must prove; `None` lets every initiator ask, and answers only with what it may use.
    pub discovery_authentication: Option<Authentication>,
    /// Limits.
    pub limits: Limits,
    /// Fills a slice from the operating system's random source: for CHAP challenges.
    pub random: fn(&mut [u8]),
}

impl Config {
    /// The target of this name; names compare without regard to case.
    pub(crate) fn target(&self, name: &str) -> Option<&Arc<Target>> {
        self.targets.iter().find(|target| target.name.eq_ignore_ascii_case(name))
    }
}

/// A target: a name, its logical units, and who may use them.
#[derive(Clone)]
pub struct Target {
    /// Its iSCSI name.
    pub name: String,
    /// What people call it (TargetAlias).
    pub alias: Option<String>,
    /// Its LUNs.
    pub exports: Vec<Export>,
    /// Who may log in.
    pub access: Access,
    /// What they must prove; `None` is no proof.
    pub authentication: Option<Authentication>,
    /// What it offers and accepts at login. The alias in it counts for nothing, and neither does MaxConnections: those are
    /// [`Target::alias`]'s and [`Limits::connections_per_session`]'s.
    pub offers: Offers,
    /// The portal groups that reach it; `None` is all.
    pub portal_groups: Option<Vec<u16>>,
    /// Send initiators elsewhere at login.
    pub redirect: Option<Redirect>,
}

impl Target {
    /// Whether portals of this group lead to it.
    pub(crate) fn is_reached_by(&self, tag: u16) -> bool {
        self.portal_groups.as_ref().is_none_or(|groups| groups.contains(&tag))
    }

    /// Whether an initiator that has logged in may stay: what a login asks for, but the proof itself.
    pub(crate) fn keeps(&self, initiator: &str, address: IpAddr, user: Option<&str>, tag: u16) -> bool {
        let proved = match (&self.authentication, user) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(wanted), Some(user)) => wanted.knows(user) && wanted.lets_present(user, initiator),
        };
        proved && self.redirect.is_none() && self.is_reached_by(tag) && self.access.admits(initiator, address)
    }
}

impl Export {
    /// Whether this initiator sees it.
    pub(crate) fn is_seen_by(&self, initiator: &str) -> bool {
        self.initiators.as_ref().is_none_or(|names| names.iter().any(|name| name.matches(initiator)))
    }
}

/// A logical unit under a number.
#[derive(Clone)]
pub struct Export {
    /// 0 to 16,383 (SAM-5 4.7: what flat space addressing can say).
    pub lun: u16,
    /// What people call the volume.
    pub volume: String,
    /// What answers there.
    pub unit: Arc<LogicalUnit>,
    /// Who sees it; `None` is everybody who may log in.
    pub initiators: Option<Vec<NamePattern>>,
    /// How long a command may take before it is given up and its LUN is taken out of service until the device
    /// answers again.
    pub deadline: Duration,
}

/// CHAP (RFC 7143 section 12.1).
#[derive(Clone)]
pub struct Authentication {
    /// Whom the target believes. Secrets are at least 96 bits long (RFC 7143 section 9.2.1); the binary's
    /// configuration sees to that.
    pub accounts: Arc<[Credentials]>,
    /// Which initiator names a user may present. A user that is not in it may present any.
    pub initiators: BTreeMap<String, Vec<NamePattern>>,
    /// What it answers to an initiator that wants proof in turn.
    pub mutual: Option<Credentials>,
    /// The hashes it accepts.
    pub algorithms: Vec<Algorithm>,
}

impl Authentication {
    /// Whether there is an account of this name.
    pub(crate) fn knows(&self, user: &str) -> bool {
        self.accounts.iter().any(|account| account.name == user)
    }

    /// Whether `user`, who has proved to be that, may come as the initiator of this name.
    pub(crate) fn lets_present(&self, user: &str, initiator: &str) -> bool {
        let names = self.initiators.get(user);
        names.is_none_or(|names| names.iter().any(|name| name.matches(initiator)))
    }
}

/// A login redirection (RFC 7143 section 11.13.5, status class 1).
#[derive(Clone, Debug, PartialEq)]
pub struct Redirect {
    /// `host:port` or `host:port,tag`.
    pub address: String,
    /// 0102h instead of 0101h: the initiator may remember it.
    pub permanent: bool,
}

/// Limits besides [`server::Limits`], so that neither a crowd nor a hostile peer takes the memory or the time of
/// others.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Normal sessions at once, all together.
    pub sessions: usize,
    /// Discovery sessions at once, all together. One more ends the oldest of the address with the most.
    pub discovery_sessions: usize,
    /// How long a discovery session may last.
    pub discovery_time: Duration,
    /// Connections of one session (the MaxConnections key): 1 to 8.
    pub connections_per_session: u16,
    /// From accepting a connection to its last login response.
    pub login_time: Duration,
    /// Commands a session may have in flight: the command window (RFC 7143 section 4.2.2.1).
    pub window: u32,
    /// Silence after which an initiator is asked whether it is alive; no answer for as long ends its
    /// connection.
    pub nop_interval: Duration,
    /// How long a peer may take nothing of what is being sent to it, or send nothing of the data it owes.
    pub send_stall: Duration,
    /// Memory that the commands of one session may hold, in bytes, within [`server::Limits::staging_bytes`].
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
