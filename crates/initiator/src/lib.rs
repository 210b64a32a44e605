//! A URL in, a block device out: the initiator.
//!
//! [`open`] logs in to a target and gives a [`RemoteLun`], which is a [`block::BlockDevice`] like any other and
//! takes commands of the caller's own beside. [`discover`] asks a portal which targets it has. The protocol is
//! `iscsi`'s, as a machine without I/O; here are the loops between that machine and a socket, and what SCSI
//! commands a block device is made of. The world, with its sockets and its clock, is the reactor's.
//!
//! A session does not outlive its connections: when they are lost, requests fail with
//! [`block::DeviceError::NotReady`], and a new session is [`open`]ed by whoever wants one.
//!
//! Reading order: [`Url`] and [`Settings`], [`open`], `login`, [`RemoteLun`], [`RemoteTarget`] (how a LUN reaches
//! its session), `session` and `parts` (commands under way), `connection`, `receive` and `send` (the wire).

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod cdb;
mod connection;
mod discovery;
mod error;
mod login;
mod lun;
mod management;
mod open;
mod parts;
mod probe;
mod receive;
mod remote_target;
mod send;
mod sense;
mod session;
mod settings;
mod tasks;
mod unit;
mod url;

pub use discovery::{Discovered, discover};
pub use error::{CommandError, Ending, OpenError};
pub use iscsi::pdu::{Lun, TaskManagementResult};
pub use login::Random;
pub use lun::RemoteLun;
pub use management::Management;
pub use open::{open, open_target};
pub use remote_target::RemoteTarget;
pub use sense::{Sense, status};
pub use settings::{SettingError, Settings};
pub use tasks::Transfer;
pub use unit::{Answer, Unit};
pub use url::{PORT, Portal, Url, UrlError, UrlProblem};
