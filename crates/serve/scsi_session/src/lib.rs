//! The part that all SCSI front ends share, independent of the transport:
//!
//! - `luns`: the LUNs visible to a session, and operations on several units
//! - [`ScsiSession`], [`Commands`]: the life cycle of a command from arrival to response
//! - `tally`: the names of commands and responses in monitoring
//!
//! Not included: the execution of commands (`logical_unit`), the transport of data and responses, and the
//! available task management functions.
//!
//! # How a command ends
//!
//! A command is in its session's task table until it is answered or aborted. `logical_unit`'s `DeviceAccess`
//! makes all its device requests. For the front end, it records in `Watch` the request that the command is
//! waiting for. Every quarter second each core checks its tasks ([`ScsiSession::expire`], and `slow_peers` of
//! `iscsi_server`; both document the limits in a table):
//!
//! - If a device has had a request for longer than the LUN's deadline, the command fails and the unit is
//!   fenced: it is NOT READY for all initiators until `Volume::quiesced` reports that no abandoned request
//!   can reach the medium.
//! - If a command waits longer than this deadline for its turn, memory or blocks, it is rejected with BUSY or
//!   fails. No unit is fenced.
//! - If other commands wait for the blocks of a slow peer's transfer, the transfer moves to a buffer. If
//!   other commands cannot get memory, the slow peer's connection is cut to free its memory.
//!
//! Task management finds commands on all cores with `Server::abort`. The response to the function is sent
//! when the devices have quiesced or their volumes are fenced. A command belongs to the task sets of all
//! units that it uses (`Watch::others`): a reset or preemption at the source or the destination also aborts
//! an EXTENDED COPY. The copy checks before each piece whether it may continue. A command cleared by another
//! initiator (`TaskState::Cleared`) never starts, even if it was queued. NOPs, logins and commands for other
//! LUNs do not wait for an abort.
//!
//! Dropping a request's future cancels the request. A request that the device can withdraw never reaches the
//! medium. A request that was already passed to the kernel continues: the device counts it and keeps its
//! buffer until it completes. If it is a change, its blocks stay locked (`RangeLocks::hold`), because the
//! kernel could execute it after later requests. A command that saves reservations or mode pages is committed
//! (`Watch::is_committed`): it runs to completion even after an abort, so that disk and memory agree.

mod commands;
mod luns;
mod tally;
#[cfg(test)]
mod tests;

pub use commands::{
    Answer, Commands, Declared, LossReport, Observed, Receiving, Removed, ScsiSession, Task,
    Waiting, WaitingFor, abort_ordered, tell_removed, with,
};
pub use luns::{Export, Luns, NamePattern, Slot, Turn, abort_everybodys, add_units, quiesce};
