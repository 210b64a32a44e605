//! The part of a server that all front ends share: cores, portals, limits, memory, the served volumes, and
//! reconfiguration while they are in use.
//!
//! A front end serves volumes by a protocol. Its [`FrontEnd`] is shared by all cores and makes a
//! [`CoreFrontEnd`] on each core, which owns the sessions there. A [`Server`] is made from a [`Config`] and
//! its front ends, together with one [`Core`] per reactor thread; each core is moved to its thread and run
//! there. A core runs all front ends with one reactor, one memory budget and one mailbox. Its messages are
//! closures, so the mailbox depends on no protocol.
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
//! Not here: protocols, the source of the configuration, the back ends of volumes, system calls.
//!
//! Reading order: [`FrontEnd`] (what a protocol has to do), [`Server`] and [`Core`] (the threads and what they share),
//! `listener` and `logins` (connections that have not logged in), [`Budget`] (memory), `fence` (how commands end that a device
//! does not answer), `storage` and `growth` (volumes that fail and that become larger), [`Observer`] (who is
//! told of all that), `tally` (what is counted for monitoring), `log_limit`.

mod address;
mod budget;
mod core;
mod fence;
mod front_end;
mod growth;
mod last_flush;
mod listener;
mod log_limit;
mod logins;
mod observer;
mod requests;
mod server;
mod storage;
mod tally;
mod watched;

pub use address::{AddressBlock, Counts, HostAddress, Network, NotAHostAddress, NotANetwork};
pub use budget::{Budget, Charge};
pub use core::{AFTER_GRACE, Core, CoreHandle, RunningCore};
pub use front_end::{AbortOrder, Accepted, CoreFrontEnd, FrontEnd, Owners, SlowHolder};
pub use last_flush::{Unflushed, last_flush};
pub use listener::{ListenAddress, Portal, each_once};
pub use log_limit::{ALL_LINES_MAX, AUDIT, LINES_MAX, WINDOW};
pub use observer::{Observer, SessionInfo};
pub use requests::{Requests, Ticket, Unserved};
pub use server::{Config, ConnectionPermit, Limits, Phase, Server};
pub use tally::{
    CLASSES, CoreStatistics, CoreTally, Count, Durations, HOSTS_MAX, HostNames, HostStatistics, OTHERS,
    Operation, SessionCounts, Span, Traffic, VolumeStatistics, VolumeTally,
};
