//! A configured server, for any program that runs or manages one: `linerate`, a test, an HTTP API.
//!
//! Reading order:
//!
//! - [`config`] - parsing a file, and its errors
//! - [`StartOptions`] - a file, and options from the command line
//! - [`state`] - state that survives a restart
//! - [`front_ends`] - the table of front ends
//! - `volumes` - opening a configuration's devices
//! - [`start()`], and [`check()`], a start that changes nothing
//! - [`Live`] - a running server and its reconfiguration
//! - `orders` - requests to a running server
//! - [`control`] - both sides of the control socket, events, tables
//! - [`metrics`] - monitoring
//! - [`Supervisor`] - notifications to a service manager
//!
//! This crate does not print, parse arguments or exit the process. Its errors are `backends::Failure`.
//!
//! ```
//! use daemon::Config;
//!
//! let text = "\
//! [volume.vm1]
//! spec = \"ram:1GiB\"
//! [[target]]
//! name = \"iqn.2026-01.com.example:disks\"
//! lun = [{ lun = 0, volume = \"vm2\" }]
//! ";
//! let mistake = Config::parse("linerate.toml", text).expect_err("there is no such volume").to_string();
//! assert!(mistake.starts_with("linerate.toml:5:28: unknown volume `vm2`; did you mean `vm1`?"), "{mistake}");
//! assert_eq!(daemon::announce::summary(&Config::parse("linerate.toml", &text.replace("vm2", "vm1"))?), "\
//! target iqn.2026-01.com.example:disks for any initiator
//!   LUN 0: vm1 = ram:1GiB
//! the configuration is valid
//! ");
//! # Ok::<(), daemon::ConfigError>(())
//! ```
//!
//! # Changing the configuration
//!
//! ```text
//!   linerate server reload ─► control socket ─► live ─► difference: added, removed, renamed, grown, reopened
//!   SIGHUP ──────────────────────────────────────┘ │
//!                                                  │ new volumes are opened; `losses`: which initiators would lose what?
//!                                                  ▼ (refused without --force)
//!                              front_end_core::Server::reconfigure ── portals: opened by the first core, closed by all
//!                                                  │               └─ a new snapshot, a new configuration
//!                                                  ▼
//!                              each core ─► CoreFrontEnd::adapt ─► each session: LUNs appear and disappear
//!                                                  ▼
//!                              removed volumes are flushed and closed; files grow; states are renamed
//! ```
//!
//! A configuration and a snapshot of the registry are never changed, only replaced. Sessions hold their
//! target and logical units by `Arc`, so a volume is closed when the last session has dropped it. A command
//! refers to its LUN by a slot in `scsi_session::Luns`. The slot of a removed LUN stays while commands use
//! it; the LUN's number is free immediately.
//!
//! `server add`, `remove` and `resize` edit the text of the file (`config/file.rs`, with `toml_edit`, which
//! preserves the rest of the text), apply the result, and then write it. [`Live`] is the `Observer` of the
//! server. It publishes the server's events and its own to a bounded queue per subscriber. Tests:
//! `reload.rs`, `server_command.rs` and `changes` in `crates/linerate/tests/it`; `changes` compares the
//! server, its file and three initiators with a model after each random change.

pub mod announce;
mod check;
pub mod config;
pub mod control;
mod difference;
pub mod front_ends;
mod identity;
pub mod import;
mod live;
mod log_line;
pub mod metrics;
mod orders;
mod shrink;
mod start;
mod start_options;
pub mod state;
mod supervisor;
mod volumes;
mod waiting;

pub use check::{Checked, check};
pub use config::values::{Gather, Poll};
pub use config::{Address, Config, ConfigError, VolumeName};
pub use front_end_core::AFTER_GRACE;
pub use live::{Live, ReloadOptions, Reloaded};
pub use log_line::{LogLine, log_fields};
pub use start::{Started, start};
pub use start_options::{Listen, NamedSpec, StartOptions};
pub use supervisor::Supervisor;
