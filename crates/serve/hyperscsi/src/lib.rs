//! HyperSCSI as a front end: targets, LUN maps, access control and sessions over raw Ethernet and UDP, joined to logical
//! units.
//!
//! ```text
//!   interface ──► core: one batch of frames ──► hyperscsi::Target ──► session ──► LogicalUnit::begin, finish
//!       ▲                                            │    ▲                           │ at once, or as a task
//!       └────────── one batch of frames ◄────────────┘    └──────── respond ◄─────────┘ that awaits the device
//! ```
//!
//! - [`HyperScsi`] is what all cores share: the configuration.
//! - `core` has the protocol machine, its clock, and the sessions of a core; `interface` receives and sends. Each core has a socket
//!   for each portal, and is given the frames of its sessions by the kernel. Sessions of one nexus are on one core.
//! - `door` says who may log in.
//! - `session` carries out commands, as iSCSI's sessions do: their life is that of the crate `scsi_session`. `management` has the
//!   functions that end them.
//!
//! Not here: numbers, credit, retransmission, which commands were met before: all of that is `hyperscsi`'s.

mod config;
mod core;
mod door;
mod front_end;
mod interface;
mod loss;
mod management;
mod session;
mod status;

pub use config::{Access, Config, Target};
pub use front_end::{HYPERSCSI, HyperScsi};
pub use scsi_session::{Export, NamePattern};
pub use status::{PathStatus, SessionStatus};
