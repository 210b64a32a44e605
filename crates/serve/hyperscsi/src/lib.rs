//! HyperSCSI as a front end: targets, LUN maps, access control and sessions over raw Ethernet and UDP, joined
//! to logical units.
//!
//! ```text
//!   interface ──► core: one batch of frames ──► hyperscsi::Target ──► session ──► LogicalUnit::begin, finish
//!       ▲                                            │    ▲                           │ at once, or as a task
//!       └────────── one batch of frames ◄────────────┘    └──────── respond ◄─────────┘ that awaits the device
//! ```
//!
//! - [`HyperScsi`] (`context`) is the configuration, shared by all cores. `front_end` is the server's
//!   interface.
//! - `context` also contains the protocol's state machine for each core; `core` runs it, with its clock and
//!   sessions; `interface` receives and sends frames. Each core has a socket for each portal, and the kernel
//!   delivers the frames of its sessions to it. Sessions of one nexus are on one core.
//! - `config` has the access control.
//! - `session` executes commands, like iSCSI's sessions: the crate `scsi_session` defines their life cycle.
//!
//! Not included: sequence numbers, credit, retransmission and duplicate detection, which are in the crate
//! `hyperscsi`.

mod config;
mod context;
mod core;
mod front_end;
mod interface;
mod session;
mod status;

pub use config::{Access, Config, Target};
pub use context::{HYPERSCSI, HyperScsi};
pub use scsi_session::{Export, NamePattern};
pub use status::{PathStatus, SessionStatus};
