//! The part that SCSI front ends share, whatever their transport:
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
//! makes all its device requests, and records in `Watch`, for its front end, which request it waits for.
//! Every quarter second each core checks its tasks ([`ScsiSession::expire`], and `slow_peers` of
//! `iscsi_server`, which contain the tables):
//!
//! - If a device has had a request for longer than the LUN's deadline, the command fails and the unit is fenced: NOT READY for all
//!   initiators until `Volume::quiesced` reports that no abandoned request can reach the medium.
//! - If a command waits that long for its turn, memory or blocks, it gets BUSY or fails. No unit is fenced.
//! - A slow peer's transfer moves to a buffer when others wait for its blocks. When others find no memory,
//!   its connection is cut to free its memory.
//!
//! Task management finds commands on all cores with `Server::abort`. Its response is sent when the devices
//! have quiesced or the fence is in place. A command belongs to the task sets of all units that it uses: a
//! reset or preemption at source or destination finds an EXTENDED COPY (`Running::others`), which checks
//! before each piece whether it may continue. A command cleared by another initiator (`TaskState::Cleared`)
//! never starts, even if it was queued. NOPs, logins and other LUNs wait for none of this.
//!
//! Dropping a request's future cancels it. A request that the device can withdraw never reaches the medium.
//! The device counts the requests that the kernel has, and keeps their buffers, until they end. The blocks of
//! such a change stay locked (`RangeLocks::hold`), because the kernel could execute it last. A command that
//! saves reservations or mode pages is committed (`Watch::is_committed`): it runs to its end even without a
//! requester, so that disk and memory agree.

mod commands;
mod luns;
mod tally;
#[cfg(test)]
mod tests;

pub use commands::{
    Answer, Commands, Declared, LossReport, Observed, Receiving, Removed, ScsiSession, Task, Waiting,
    WaitingFor, abort_ordered, tell_removed, with,
};
pub use luns::{Export, Luns, NamePattern, Slot, Turn, abort_everybodys, add_units, quiesce};
