//! iSCSI as a front end: targets, LUN maps, access control and sessions, joined to logical units.
//!
//! [`Iscsi`] is made from a [`Config`] and handed to a [`server::Server`], whose cores run it beside other front ends. What
//! this crate leaves out: threads, portals and the memory of a core, which are `server`'s; where configuration comes from;
//! what a device is made of; and every system call.
//!
//! Reading order: [`Config`] (what is served), `front_end` and `core` (what all cores share, and each core's part),
//! `admission` (how a connection gets in; `refusal` and `backoff` for those that do not), `registry` (who is logged in),
//! `connection`, `inbox` and `outbox` (its bytes), `session` and `luns` (its commands), `management` (how commands end
//! otherwise), `loss` (who uses what a change would take away).

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
mod luns;
mod management;
mod outbox;
mod refusal;
mod registry;
mod session;
mod status;

pub use access::{Access, NamePattern};
pub use admission::{DISCOVERY_MEMORY_BYTES_MAX, LOGIN_MEMORY_BYTES_MAX};
pub use config::{Authentication, Config, Export, Limits, Redirect, Target};
pub use front_end::{ISCSI, Iscsi};
pub use loss::{Loss, Lost};
pub use status::{ConnectionStatus, SessionStatus, Traffic};
