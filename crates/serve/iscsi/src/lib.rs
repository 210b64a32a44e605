//! iSCSI as a front end: targets, LUN maps, access control and sessions, joined to logical units.
//!
//! [`Iscsi`] is made from a [`Config`] and handed to a [`front_end_core::Server`], whose cores run it beside other
//! front ends. Not here: threads, portals and the memory of a core (`front_end_core`), the source of the
//! configuration, devices, system calls.
//!
//! Reading order: [`Config`] (targets, LUN maps, limits), `context` (shared by all cores), `registry` (all sessions), `session`
//! (commands; their life and the LUNs are those of the crate `scsi_session`) with `management` (task management), `slow_peers` and
//! `report`, `inbox`, `outbox`, `link` and `connection` (bytes), `core` (the sessions of a core), `admission` (login; `refusal` for
//! logins that fail), `front_end` (what the server calls), `status` (also of what a configuration change would affect).

mod admission;
mod config;
mod connection;
mod context;
mod core;
mod directory;
#[cfg(test)]
mod documents;

mod front_end;
mod inbox;
mod link;
mod management;
mod outbox;
mod refusal;
mod registry;
mod report;
mod session;
mod slow_peers;
mod status;

pub use admission::{DISCOVERY_MEMORY_BYTES_MAX, LOGIN_MEMORY_BYTES_MAX};
pub use config::{Access, Authentication, Config, Limits, Redirect, Target};
pub use context::{ISCSI, Iscsi};
pub use scsi_session::{Export, NamePattern};
pub use status::{ConnectionStatus, Loss, Lost, SessionStatus};
