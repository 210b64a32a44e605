//! What front ends that carry SCSI share, whatever their transport: which LUNs a session sees (`luns`), the life of a command
//! from its arrival to its answer ([`ScsiSession`], [`Commands`]), what monitoring calls commands and answers (`tally`), and
//! what several units have to wait for (`units`).
//!
//! Not here: what a command does (`logical_unit`), how its data and its answer travel, which task management functions there
//! are.

mod commands;
mod luns;
mod tally;
#[cfg(test)]
mod tests;
mod units;

pub use commands::{
    Commands, Declared, LossReport, Observed, Removed, ScsiSession, Task, TaskState, Waiting, WaitingFor,
    Work, abort_ordered, tell_removed, with,
};
pub use luns::{Export, Luns, NamePattern, Slot, Turn};
pub use units::{abort_everybodys, add_units, quiesce};
