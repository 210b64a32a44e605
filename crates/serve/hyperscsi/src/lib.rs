//! HyperSCSI as a front end: targets, LUN maps, access control and sessions over raw Ethernet and UDP, joined to logical
//! units.
//!
//! ```text
//!   interface ──► core: one batch of frames ──► hyperscsi::Target ──► session ──► LogicalUnit::begin, finish
//!       ▲                                            │    ▲                           │ at once, or as a task
//!       └────────── one batch of frames ◄────────────┘    └──────── respond ◄─────────┘ that awaits the device
//! ```
//!
//! - [`HyperScsi`] (`context`) is what all cores share: the configuration. `front_end` is what the server calls.
//! - `wire` has the protocol machine of a core, `core` runs it, with its clock and sessions; `interface` receives and sends. Each core
//!   has a socket for each portal, and is given the frames of its sessions by the kernel. Sessions of one nexus are on one core.
//! - `config` says who may log in.
//! - `session` carries out commands, as iSCSI's sessions do: their life is that of the crate `scsi_session`.
//!
//! Not here: numbers, credit, retransmission, which commands were met before: all of that is `hyperscsi`'s.

mod config;
mod context;
mod core;
mod front_end;
mod interface;
mod session;
mod status;
mod wire;

pub use config::{Access, Config, Target};
pub use context::{HYPERSCSI, HyperScsi};
pub use scsi_session::{Export, NamePattern};
pub use status::{PathStatus, SessionStatus};
