//! iSCSI's part of `[limits]`.

use std::time::Duration;

use volume::spec::{Bytes, Time};

use crate::config::Section;

/// Limits besides those of the server; what is `None` has the default of `iscsi_server::Limits`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// Sessions at once, without those for discovery.
    pub sessions: Option<usize>,
    /// Discovery sessions at once.
    pub discovery_sessions: Option<usize>,
    /// How long one of them may last.
    pub discovery_time: Option<Duration>,
    /// Connections of one session.
    pub connections_per_session: Option<u16>,
    /// From accepting a connection to its last login response.
    pub login_time: Option<Duration>,
    /// Commands in flight in one session.
    pub window: Option<u32>,
    /// Silence after which an initiator is asked whether it is alive.
    pub nop_interval: Option<Duration>,
    /// How long a peer may read nothing, or send nothing of the data it owes.
    pub send_stall: Option<Duration>,
    /// Memory for data and working buffers of commands of one session.
    pub session_staging_bytes: Option<usize>,
}

impl Limits {
    pub(super) fn read(section: &Section<'_>) -> Limits {
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

    /// What the file leaves out is as `iscsi_server` has it.
    pub fn of_iscsi(&self) -> iscsi_server::Limits {
        let usual = iscsi_server::Limits::default();
        iscsi_server::Limits {
            sessions: self.sessions.unwrap_or(usual.sessions),
            discovery_sessions: self.discovery_sessions.unwrap_or(usual.discovery_sessions),
            discovery_time: self.discovery_time.unwrap_or(usual.discovery_time),
            connections_per_session: self.connections_per_session.unwrap_or(usual.connections_per_session),
            login_time: self.login_time.unwrap_or(usual.login_time),
            window: self.window.unwrap_or(usual.window),
            nop_interval: self.nop_interval.unwrap_or(usual.nop_interval),
            send_stall: self.send_stall.unwrap_or(usual.send_stall),
            session_staging_bytes: self.session_staging_bytes.unwrap_or(usual.session_staging_bytes),
        }
    }
}
