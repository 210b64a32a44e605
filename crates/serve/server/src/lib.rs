//! What all front ends of a server share: cores, portals, limits, memory, the volumes that are served, and how all of that
//! changes while it is served.
//!
//! A front end joins a protocol to volumes. It is a [`FrontEnd`], of which all cores share one, and makes a [`CoreFrontEnd`]
//! on each core, which has the sessions that live there. A [`Server`] is made of a [`Config`] and front ends, together with
//! one [`Core`] for each reactor thread; each core is moved to its thread and run there. A core runs every front end: one
//! reactor, one budget of memory, and one mailbox whose messages are closures, so that no protocol's types are in it.
//!
//! ```text
//!                        ┌─ core 0: reactor ── listeners ── watched volumes ── last flush
//!   Server ── mailboxes ─┤          └── CoreFrontEnd of each FrontEnd: sessions
//!     │                  └─ core n: reactor
//!     │                             └── CoreFrontEnd of each FrontEnd: sessions
//!     ├── volume::Registry: a snapshot of what is served
//!     └── FrontEnd of each protocol: configuration, who is logged in
//! ```
//!
//! What it leaves out: every protocol, where configuration comes from, what a volume is made of, and every system call.
//!
//! Reading order: [`FrontEnd`] (what a protocol has to do), [`Server`] and [`Core`] (the threads and what they share),
//! `listener` and `logins` (connections that have not logged in), [`Budget`] (memory), `fence` (how commands end that a device
//! does not answer), `storage` and `growth` (volumes that fail and that become larger), `log_limit`.

mod address;
mod budget;
mod core;
mod fence;
mod front_end;
mod growth;
mod listener;
mod log_limit;
mod logins;
mod server;
mod storage;

pub use address::{AddressBlock, Counts, Network, NotANetwork};
pub use budget::{Budget, Charge};
pub use core::{Core, CoreHandle, RunningCore};
pub use fence::fence;
pub use front_end::{AbortOrder, Accepted, CoreFrontEnd, FrontEnd, Owners, SlowHolder};
pub use listener::Portal;
pub use log_limit::{ALL_LINES_MAX, LINES_MAX, LOG, WINDOW};
pub use server::{Config, ConnectionPermit, Limits, Phase, Server};
