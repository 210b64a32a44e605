//! A URL in, a block device out: the initiator.
//!
//! [`open`] logs in to a target and gives a [`RemoteLun`], which is a [`block::BlockDevice`] like any other and
//! takes commands of the caller's own beside. [`discover`] asks a portal which targets it has. The protocol is
//! `iscsi`'s, as a machine without I/O; here are the loops between that machine and a socket, and what SCSI
//! commands a block device is made of. The world, with its sockets and its clock, is the reactor's.
//!
//! A session outlives its connections. When some are lost it goes on with the others, and when all are it is begun
//! again; requests wait meanwhile, as long as [`Settings::reconnect_time`] says, and are sent again when it is certain
//! that the target has let go of them (`session_state`, `recovery`).
//!
//! Reading order: [`Url`] and [`Settings`], [`open`], `login`, [`RemoteLun`], [`RemoteTarget`] (how a LUN reaches
//! its session), `session` and `inner` (commands under way), `connection`, `receive` and `send` (the wire);
//! [`Statistics`] and [`FlightRecorder`] (what can be known of all that). [`Unit`] and [`verbs`] are beside that: SCSI
//! commands by name, for whoever wants more than a block device has.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod caches;
mod connection;
mod discovery;
mod effect;
mod error;
mod gather;
mod inner;
mod login;
mod lun;
mod management;
mod nexus;
mod open;
mod pings;
mod probe;
mod receive;
mod recorder;
mod recovery;
mod registrations;
mod remote_target;
mod send;
mod session;
mod session_state;
mod settings;
mod statistics;
mod tasks;
mod timeouts;
mod unit;
mod unsettled_extents;
mod url;
pub mod verbs;
mod verdict;

pub use discovery::{Discovered, discover};
pub use effect::only_asks;
pub use error::{CommandError, Ending, OpenError};
pub use iscsi::pdu::{Lun, TaskManagementResult};
pub use login::Random;
pub use lun::RemoteLun;
pub use management::Management;
pub use nexus::Nexus;
pub use open::{open, open_target};
pub use pings::Pong;
pub use recorder::{FlightRecorder, pcapng};
pub use remote_target::RemoteTarget;
pub use scsi::{Sense, cdb, status, status_words};
pub use settings::{SettingError, Settings};
pub use statistics::{
    Calls, Class, ClassStatistics, ConnectionStatistics, Counters, DigestTime, Incidents, Latency, Phase,
    RoundTrips, Statistics,
};
pub use tasks::Transfer;
pub use unit::{Answer, Unit};
pub use url::{PORT, Portal, Url, UrlError, UrlProblem};
