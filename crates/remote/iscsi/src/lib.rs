//! The iSCSI initiator, which opens a LUN by its URL as a block device.
//!
//! [`open`] logs in to a target and returns a [`RemoteLun`], which is a [`block::BlockDevice`] and also
//! accepts SCSI commands of the caller. [`discover`] lists the targets of a portal. The crate `iscsi`
//! implements the protocol as a state machine without I/O. This crate connects the state machine to sockets,
//! and translates block requests to SCSI commands. The reactor provides the sockets and the clock.
//!
//! A session outlives its connections. When some connections are lost, the session continues with the others;
//! when all are lost, it is reinstated. Until then, requests wait for up to [`Settings::reconnect_time`]. A
//! request is resent once the target is certain to have completed or aborted its earlier command
//! (`session_state`, `open`).
//!
//! Reading order: [`Url`] and [`Settings`], [`open`], `login`, [`RemoteLun`], [`RemoteTarget`] (how a LUN
//! reaches its session), `session` and `inner` (outstanding commands), `connection` (the wire);
//! [`Statistics`] and [`FlightRecorder`] (observation). [`Carrier`] is for sessions over another protocol.
//! [`Unit`] and [`verbs`] are separate: they provide SCSI commands by name, for users who need more than a
//! block device.
//!
//! # How a session survives
//!
//! ```text
//!  RemoteLun ──► RemoteTarget ──► session::Request ──► iscsi::initiator::Session ──► wire
//!  retries        this thread,      waits for space      CmdSN, R2Ts, tags: no I/O
//!     ▲           or a mailbox      or a session                      ▲ a new machine
//!     └── usable ◄── session_state ◄── lost connection ──► recovery ──► login
//! ```
//!
//! Users of a LUN see delays, not session failures. When a connection is lost, its commands fail with
//! `ConnectionLost`. Callers of idempotent commands retry once `session_state` reports that the loss is
//! settled: another connection has logged the lost one out, or a reinstatement has terminated all its tasks.
//! If a caller retried earlier, the first copy of the command could still overwrite a newer write.
//!
//! - A login in another portal group creates another I_T nexus, and terminates no commands of the old one.
//!   Outstanding changes on the old nexus wait for a login at its portal, or fail with
//!   `CommandError::Unsettled`, and requests for their blocks fail.
//! - Reinstatements are counted, and each request refers to a session by this count. A request is sent in
//!   another session only after the LUN has been verified as the same device, and its size read again
//!   (`RemoteLun::look_again`).
//! - Acknowledged writes can be lost with the target's cache. `block::FlushLedger` decides which flushes
//!   fail; `caches` keeps one ledger per device.
//! - A [`Unit`] is an address, not a device. Verbs that only read are retried in another session; verbs that
//!   change anything are not.
//! - Expired timeouts escalate (`EscalationStep`): abort, reset of the unit, reset of the target, new
//!   session. With `command-tries` above 1 the caller waits through all steps.
//! - Logins back off after each failure. A session that breaks soon after its login counts as a failure
//!   (`Attempts`, `STEADY`).
//! - The state machine counts phases of commands and PDUs; `statistics::Meter` counts everything else. The
//!   recorder's tape is behind a mutex, for which only its reader contends, so that the recording of a hung
//!   session can be read.
//!
//! LUNs over HyperSCSI use the same rules.
//!
//! | wait | limit |
//! |---|---|
//! | the response to the first try, space in the window | `command-time`; with `command-tries`, the escalation. Over iSCSI, from the last progress (`failover::Patience`), up to 10 times that |
//! | anything after the first try: a session, unsettled commands, a check of the LUN, pauses, retries | `Timeouts::request` (`RemoteLun::within_its_time`) |
//! | an earlier change of the same blocks (`RemoteLun::ends_earlier`) | the same |
//! | a verb with all its tries (`Unit::within_its_time`) | the same |
//! | SendTargets; a NOP-Out; a task management function | `login-time` for the discovery; `command-time`; `reset-time` |

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod caches;
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
pub use iscsi::login::Authenticated;
pub use iscsi::pdu::{Isid, Lun, Residual, TaskManagementResult, Tsih};
pub use login::Random;
pub use lun::RemoteLun;
pub use open::{Discovered, discover, open, open_target};
pub use paths::{MultipathLun, open_paths};
pub use recorder::{FlightRecorder, pcapng};
pub use remote_target::{Answer, Carrier, CommandRecord, Recorded, RemoteTarget};
pub use scsi::{Sense, cdb, status, status_words};
pub use session_state::Nexus;
pub use statistics::{
    Calls, Class, ClassStatistics, ConnectionStatistics, Counters, DigestTime, Incidents, Latency,
    Phase, RoundTrips, Statistics,
};
pub use tasks::{CommandEnd, CommandSpec, Status, Transfer};
pub use url::{
    EscalationStep, Multipath, PORT, Portal, SettingError, Settings, Timeouts, Url, UrlError,
    UrlProblem,
};
pub use verbs::{CommandResult, Unit};
