//! A storage path to be built: two hosts or one, what lies between them, the server, and what the client is told.

use std::fmt;
use std::time::Duration;

use lab::Conditions;

/// Everything that is on the way, as values.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    /// The link; without one, client and server are on one host.
    pub(super) link: Option<Link>,
    pub(super) server: Server,
    /// What sits in front of the server.
    pub(super) middle: Option<Forwarder>,
    /// The core that diagnoses, if it may not use all.
    pub(super) client_core: Option<usize>,
    /// Somebody else's work.
    pub(super) burner: Option<Burner>,
    /// Keys of the URL.
    pub(super) keys: Vec<(&'static str, String)>,
    /// More arguments for `linerate diagnose`.
    pub(super) asked: Vec<String>,
}

/// The link between the two hosts.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) conditions: Conditions,
    /// What the interfaces claim to run at, in Mbit/s, if it is not the link's rate.
    pub(super) reported_megabits: Option<u32>,
    /// The interfaces' own MTU, if it is not the link's.
    pub(super) interface_mtu: Option<u32>,
}

/// `linerate serve`, with one volume.
#[derive(Clone, Debug)]
pub(super) struct Server {
    /// The volume; `{state}` in it is a folder of the server's own.
    pub(super) volume: String,
    /// Lines of `[target.session]`.
    pub(super) session: Vec<String>,
    /// The command window.
    pub(super) window: Option<u32>,
    /// SO_RCVBUF of its portal, in bytes.
    pub(super) receive_buffer: Option<u64>,
    /// The core that it may use, if it may not use all.
    pub(super) core: Option<usize>,
    /// It serves an export of NBD in place of a LUN.
    pub(super) nbd: Option<NbdServer>,
    /// Settings of its host's kernel; only with a link.
    pub(super) sysctls: Vec<(String, String)>,
}

/// A server of NBD.
#[derive(Clone, Debug)]
pub(super) enum NbdServer {
    /// `linerate serve`; with `tls` clients encrypt, and need not.
    Linerate { tls: bool },
    /// nbdkit with these arguments.
    Nbdkit(Vec<String>),
}

/// Hands bytes on between the client and the server, and what the server sends in pieces: a PDU's header, then its data,
/// as a careless target does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Forwarder {
    /// TCP_NODELAY is not set: the second piece waits until the first is acknowledged (RFC 896).
    pub(super) nagle: bool,
}

/// A program that takes a core from whoever else wants it, for a part of each period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Burner {
    pub(super) core: usize,
    /// How much of the time it takes.
    pub(super) share: f64,
    pub(super) period: Duration,
}

impl Scene {
    /// One host, a RAM volume, nothing in the way.
    pub(super) fn loopback() -> Scene {
        Scene {
            link: None,
            server: Server {
                volume: "ram:1GiB".to_owned(),
                session: Vec::new(),
                window: None,
                receive_buffer: None,
                core: None,
                nbd: None,
                sysctls: Vec::new(),
            },
            middle: None,
            client_core: None,
            burner: None,
            keys: Vec::new(),
            asked: Vec::new(),
        }
    }

    /// Two hosts, `round_trip_ms` apart, on a link of so many Mbit/s, whose rate the person knows.
    pub(super) fn network(megabits: f64, round_trip_ms: f64) -> Scene {
        Scene::unknown_network(megabits, round_trip_ms).asking(["--link", &format!("{megabits}Mbit/s")])
    }

    /// The same where nobody says what the link is built for, but for the interfaces.
    pub(super) fn unknown_network(megabits: f64, round_trip_ms: f64) -> Scene {
        let conditions = Conditions {
            bits_per_s: Some(megabits * 1e6),
            delay: Duration::from_secs_f64(round_trip_ms / 2e3),
            ..Conditions::default()
        };
        let link = Link { conditions, reported_megabits: None, interface_mtu: None };
        Scene { link: Some(link), ..Scene::loopback() }
    }

    /// The same, where anything may be written.
    pub(super) fn writable(self) -> Scene {
        self.asking(["--allow-write", "--yes"])
    }

    pub(super) fn asking<const N: usize>(mut self, arguments: [&str; N]) -> Scene {
        self.asked.extend(arguments.map(str::to_owned));
        self
    }

    pub(super) fn with_key(mut self, key: &'static str, value: impl fmt::Display) -> Scene {
        self.keys.push((key, value.to_string()));
        self
    }

    pub(super) fn with_volume(mut self, volume: impl Into<String>) -> Scene {
        self.server.volume = volume.into();
        self
    }

    /// The link's conditions, changed; a scene on one host has none and stays as it is.
    pub(super) fn with_conditions(mut self, change: impl FnOnce(&mut Conditions)) -> Scene {
        if let Some(link) = &mut self.link {
            change(&mut link.conditions);
        }
        self
    }
}
