//! The part of a server that all front ends share: cores, portals, limits, memory, the served volumes, and
//! reconfiguration while they are in use.
//!
//! A front end serves volumes over a protocol. Its [`FrontEnd`] is shared by all cores and creates a
//! [`CoreFrontEnd`] on each core, which owns the sessions there. A [`Server`] is created from a [`Config`]
//! and its front ends, together with one [`Core`] per reactor thread; each core is moved to its thread and
//! runs there. A core runs all front ends with one reactor, one memory budget and one mailbox. Its messages
//! are closures, so the mailbox depends on no protocol.
//!
//! ```text
//!                        ┌─ core 0: reactor ── listeners ── watched volumes ── last flush
//!   Server ── mailboxes ─┤          └── CoreFrontEnd of each FrontEnd: sessions
//!     │                  └─ core n: reactor
//!     │                             └── CoreFrontEnd of each FrontEnd: sessions
//!     ├── volume::Registry: a snapshot of the served volumes
//!     └── FrontEnd of each protocol: configuration, sessions
//! ```
//!
//! Not included: protocols, the source of the configuration, the back ends of volumes, system calls.
//!
//! Reading order:
//!
//! - [`FrontEnd`] (the interface of a protocol) and [`Observer`] (the recipient of events)
//! - [`Server`] and [`Core`] (the threads, their shared state, and the end of commands whose device is
//!   unresponsive)
//! - `listener` (connections that have not logged in) and [`Budget`] (memory)
//! - `storage` (failing and growing volumes), `tally` (statistics for monitoring) and `log_limit`
//!
//! # Adding a front end
//!
//! To add a front end, write a crate, add two lines, and define a section of the configuration. Start from a
//! copy of `crates/serve/nbd` and `crates/serve/daemon/src/front_ends/nbd.rs`;
//! `crates/linerate/tests/echo_disk` is a small but complete front end.
//!
//! 1. The crate `crates/serve/NAME` has a [`FrontEnd`] (one for all cores: configuration, registry of
//!    sessions) and a [`CoreFrontEnd`] (one per core: sessions). The codec, shared by client and server, is
//!    a separate crate, `crates/wire/NAME`, with fuzz targets (`fuzz/fuzz_targets`, `fuzz/Cargo.toml`).
//! 2. Add a file or directory to `crates/serve/daemon/src/front_ends`, with a `FrontEndKind` and
//!    implementations of three traits: `Configured` reads the section, `Exposed` describes the exports, and
//!    `RunningFrontEnd` runs the front end. `sections.rs` there contains code shared by sections.
//!    `FrontEndKind::listen` and `Listen` in `start_options.rs` are used for `serve --listen`.
//! 3. Add the `FrontEndKind` to `ALL` in `front_ends/mod.rs`, and the crate to
//!    `crates/serve/daemon/Cargo.toml`.
//! 4. Explain the keys of the section in `config/reference.toml` and in the same text in
//!    `docs/configuration.md`, and list modules with log lines in `KNOWN` (`config/log.rs`). Tests fail until
//!    both are done. The protocol's page is `docs/NAME.md`.
//!
//! The table of front ends is a value (`FrontEnds` in `StartOptions`), so a program can use front ends
//! unknown to `daemon`.
//!
//! To execute a request, a front end locks its blocks with `Volume::range_locks`. Under that lock, it checks
//! whether the volume permits the request (`Volume::permits`), and sends the request to `Volume::device`. It
//! records the result with `Volume::record_end`. If a change is cancelled before the device completes it,
//! `Volume::lock_until_quiesced` keeps its blocks locked. [`Requests`] does all of this except locking, and
//! adds aborts and deadlines. A reset or preemption in one protocol calls [`Server::abort`], which notifies
//! every front end on every core.
//!
//! Monitoring does not depend on the front ends. Each front end counts in a [`CoreTally`] per core and
//! returns it from [`CoreFrontEnd::statistics`]. `daemon::metrics` writes the counts with the front end's
//! name as the label `protocol`. [`Server::tell`] reports sessions that start and end.
//!
//! # What cores share
//!
//! A session and all its connections are on one core. A connection that logs in on another core is moved to
//! the core of its session. Cores share:
//!
//! - the registry (login and logout only)
//! - each logical unit's state behind a mutex, and its volume's reservations behind a second mutex, which is
//!   locked last
//! - a generation counter, which is the only shared state that a READ or WRITE checks
//! - range locks (two uncontended atomic additions per command)
//! - mailboxes
//!
//! Each core lists the outstanding requests that it executes. A list in the volume would be written by every
//! core for every request, and nothing else on the path of a READ or WRITE is shared in this way. The volume
//! only records requests without an owner (`Volume::quiesced`).
//!
//! # Bounds on peers
//!
//! Connections that have not logged in have their own limit (`listener`): at the limit, the oldest connection
//! of the address with the most connections is closed. Memory for commands is taken from the [`Budget`] of
//! the session, which is part of the budget of the core. When the budget is exhausted, reads wait and writes
//! fail with TASK SET FULL. A transfer between a socket and a RAM volume holds a range lock. If the peer is
//! slow and other commands wait for the blocks, the transfer continues through a buffer.

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
    CLASSES, CoreStatistics, CoreTally, Counted, Durations, HOSTS_MAX, HostNames, HostStatistics,
    OTHERS, Operation, SessionCounts, Span, Traffic, VolumeStatistics, VolumeTally, WordCounts,
};
