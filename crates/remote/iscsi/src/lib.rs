//! The iSCSI initiator: a URL in, a block device out.
//!
//! [`open`] logs in to a target and returns a [`RemoteLun`], which is a [`block::BlockDevice`] and also
//! accepts SCSI commands of the caller. [`discover`] lists the targets of a portal. The protocol is in
//! `iscsi`, as a machine without I/O; this crate has the loops between that machine and a socket, and the
//! SCSI commands of a block device. Sockets and the clock are the reactor's.
//!
//! A session outlives its connections. When some are lost it continues with the others, and when all are lost
//! it is reinstated; requests wait meanwhile, up to [`Settings::reconnect_time`], and are sent again when it
//! is certain that the target has ended them (`session_state`, `open`).
//!
//! Reading order: [`Url`] and [`Settings`], [`open`], `login`, [`RemoteLun`], [`RemoteTarget`] (how a LUN
//! reaches its session), `session` and `inner` (outstanding commands), `connection` (the wire);
//! [`Statistics`] and [`FlightRecorder`] (observation). [`carrier`] is for sessions by another protocol.
//! [`Unit`] and [`verbs`] are apart: SCSI commands by name, for users who need more than a block device.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod caches;
pub mod carrier;
mod connection;
mod effect;
mod error;
mod inner;
mod login;
mod lun;
mod open;
mod paths;
mod probe;
mod recorder;
mod remote_target;
pub mod secret_file;
mod session;
mod session_state;
mod statistics;
mod tasks;
mod url;
pub mod verbs;

pub use effect::only_asks;
pub use error::{CommandError, Ending, OpenError};
pub use inner::{Management, Pong};
pub use iscsi::pdu::{Isid, Lun, Residual, TaskManagementResult, Tsih};
pub use login::Random;
pub use lun::RemoteLun;
pub use open::{Discovered, discover, open, open_target};
pub use paths::{MultipathLun, open_paths};
pub use recorder::{FlightRecorder, pcapng};

pub use remote_target::RemoteTarget;
pub use scsi::{Sense, cdb, status, status_words};
pub use session_state::Nexus;
pub use statistics::{
    Calls, Class, ClassStatistics, ConnectionStatistics, Counters, DigestTime, Incidents, Latency, Phase,
    RoundTrips, Statistics,
};
pub use tasks::{CommandEnd, CommandSpec, Status, Transfer};
pub use url::{
    EscalationStep, Multipath, PORT, Portal, SettingError, Settings, Timeouts, Url, UrlError, UrlProblem,
};
pub use verbs::{CommandResult, Unit};
