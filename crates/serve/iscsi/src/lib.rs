//! iSCSI as a front end: targets, LUN maps, access control and sessions, joined to logical units.
//!
//! [`Iscsi`] is made from a [`Config`] and handed to a [`front_end_core::Server`], whose cores run it beside other
//! front ends. Not here: threads, portals and the memory of a core (`front_end_core`), the source of the
//! configuration, devices, system calls.
//!
//! Reading order: [`Config`] (targets, LUN maps, limits), `front_end` and `core` (shared by all cores, and
//! per core), `admission` (login; `refusal` and `backoff` for logins that fail), `registry` (all sessions),
//! `connection`, `inbox` and `outbox` (bytes), `session` (commands; its LUNs are those of the crate `scsi_session`),
//! `management` (task management), `loss` (sessions that a configuration change would affect).

mod access;
mod admission;
mod backoff;
mod config;
mod connection;
mod core;
mod directory;
#[cfg(test)]
mod documents;

mod front_end;
mod inbox;
mod link;
mod loss;
mod management;
mod outbox;
mod refusal;
mod registry;
mod report;
mod session;
mod slow_peers;
mod status;

pub use access::Access;
pub use admission::{DISCOVERY_MEMORY_BYTES_MAX, LOGIN_MEMORY_BYTES_MAX};
pub use config::{Authentication, Config, Limits, Redirect, Target};
pub use front_end::{ISCSI, Iscsi};
pub use loss::{Loss, Lost};
pub use scsi_session::{Export, NamePattern};
pub use status::{ConnectionStatus, SessionStatus};
