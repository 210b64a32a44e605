//! iSCSI as a front end: targets, LUN maps, access control and sessions, joined to logical units.
//!
//! [`Iscsi`] is created from a [`Config`] and passed to a [`front_end_core::Server`], whose cores run it
//! together with other front ends. Not included: threads, portals and the memory of a core
//! (`front_end_core`), the source of the configuration, devices, system calls.
//!
//! Reading order:
//!
//! - [`Config`] - targets, LUN maps, limits
//! - `context` - state shared by all cores
//! - `registry` - all sessions
//! - `session` - the commands of a session, whose life cycle and LUNs are in the crate `scsi_session`; with
//!   `management` (task management), `slow_peers` and `report`
//! - `inbox`, `outbox`, `link` and `connection` - reception and transmission
//! - `core` - the sessions of a core
//! - `admission` - login, with `refusal` for failed logins
//! - `front_end` - the interface to the server
//! - `status` - the status of sessions, and the effects of a configuration change on them
//!
//! # Data
//!
//! Overlapping outstanding commands are executed in any order, but each block contains the data of only one
//! of them. Only whole blocks reach a RAM volume. The start of an incomplete block is kept with its command,
//! so after an interrupted write each block is either old or new. Stores, receives, UNMAP and copies of a
//! block exclude each other, and the allocation of the block is recorded under the same exclusion
//! (`host::ram`).
//!
//! There is one exception, because data is sent without a copy: a READ without data digests may return a
//! block that is half old and half new, if another core stores to the block during transmission. This can
//! happen only while the READ and a WRITE of the block are outstanding at the same time, in sessions on
//! different cores. Once the WRITE has completed, the block reads consistently.
//!
//! # Input validation
//!
//! `iscsi::pdu` rejects violations of the RFC within a PDU, `iscsi::target` violations within a session, and
//! `logical_unit` invalid CDBs and parameter lists. Each rule is a variant of an enum. The number and
//! duration of discovery sessions are limited (`registry`). Each command declares the memory it takes in
//! addition to its data (`Job::working_bytes`); `tests/memory.rs` of `logical_unit` checks this with a
//! counting allocator. `tests/strangers.rs` checks the limits for peers that have not logged in.

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
