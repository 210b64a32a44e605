//! Portals, targets, LUN maps, access control and sessions: front ends joined to devices.
//!
//! A [`Server`] is made from a [`ServerConfig`] together with one [`Core`] for each reactor thread; each core is
//! moved to its thread and run there. What this crate leaves out: where configuration comes from, what a device
//! is made of, and every system call.
//!
//! Reading order: [`ServerConfig`] (what is served), `server` and `core` (the threads and what they share),
//! `listener` and `admission` (how a connection gets in; `refusal`, `backoff` and `log_limit` for those that do not),
//! `registry` (who is logged in), `connection`, `inbox` and `outbox` (its bytes),
//! `session` and `luns` (its commands), `management` (how commands end otherwise),
//! `growth` (volumes that become larger), `storage` (volumes that fail), `loss` (who uses what a change would take away).

mod access;
mod admission;
mod backoff;
mod budget;
mod config;
mod connection;
mod core;
mod directory;
#[cfg(test)]
mod documents;
mod growth;
mod inbox;
mod link;
mod listener;
mod log_limit;
mod logins;
mod loss;
mod luns;
mod management;
mod outbox;
mod refusal;
mod registry;
mod server;
mod session;
mod status;
mod storage;

pub use access::{Access, NamePattern, Network, NotANetwork};
pub use admission::{DISCOVERY_MEMORY_BYTES_MAX, LOGIN_MEMORY_BYTES_MAX};
pub use config::{Authentication, Export, Limits, Portal, Redirect, ServerConfig, Target};
pub use core::Core;
pub use loss::{Loss, Lost};
pub use server::Server;
pub use status::{ConnectionStatus, SessionStatus, Traffic};
