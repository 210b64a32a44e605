//! A checked configuration and opened volumes, as the values that a server serves; front ends have theirs from
//! [`Configured::start`](crate::front_ends::Configured::start).

use crate::config;
use crate::front_ends::Serving;

/// What all front ends share.
pub(crate) fn server(serving: Serving<'_>) -> front_end_core::Config {
    front_end_core::Config {
        volumes: serving.volumes.by_name(),
        portals: serving.config.portals().map(|(_, portal)| portal).collect(),
        limits: serving.config.limits.of_server(),
    }
}

impl config::Limits {
    /// What the file leaves out is as `front_end_core` has it.
    pub fn of_server(&self) -> front_end_core::Limits {
        let usual = front_end_core::Limits::default();
        front_end_core::Limits {
            connections_per_address: self.connections_per_address.unwrap_or(usual.connections_per_address),
            logins: self.logins.unwrap_or(usual.logins),
            fence_time: self.fence_time.unwrap_or(usual.fence_time),
            staging_bytes: self.staging_bytes.unwrap_or(usual.staging_bytes),
        }
    }
}
