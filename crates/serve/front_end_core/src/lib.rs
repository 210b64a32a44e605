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
//! Reading order: [`FrontEnd`] (what a protocol has to do) and [`Observer`] (who is told what happens), [`Server`] and [`Core`] (the
//! threads and what they share; how commands end that a device does not answer), `listener` (connections that have not logged in),
//! [`Budget`] (memory), `storage` (volumes that fail and that become larger), `tally` (what is counted for monitoring), `log_limit`.

mod address;
mod budget;
mod front_end;
mod listener;
mod log_limit;
mod portal;
mod requests;
mod server;
mod storage;
mod tally;

pub use address::{AddressBlock, Counts, HostAddress, Network, NotAHostAddress, NotANetwork};
pub use budget::{Budget, Charge};
pub use front_end::{
    AbortOrder, Accepted, CoreFrontEnd, FrontEnd, Observer, Owners, SessionInfo, SlowHolder,
};
pub use log_limit::{ALL_LINES_MAX, AUDIT, LINES_MAX, WINDOW};
pub use portal::{ListenAddress, Portal, each_once};
pub use requests::{Requests, Ticket, Unserved};
pub use server::{
    AFTER_GRACE, Config, ConnectionPermit, Core, CoreHandle, Limits, Phase, RunningCore, Server,
};
pub use storage::{Unflushed, last_flush};
pub use tally::{
    CLASSES, CoreStatistics, CoreTally, Count, Durations, HOSTS_MAX, HostNames, HostStatistics, OTHERS,
    Operation, SessionCounts, Span, Traffic, VolumeStatistics, VolumeTally,
};
