//! The SCSI logical unit over a volume: commands, sense, pages, reservations and copies; knows no transport.
//!
//! A [`LogicalUnit`] stands between a transport and a [`block::BlockDevice`]. A front end attaches each I_T
//! nexus ([`LogicalUnit::attach`]), hands commands to [`LogicalUnit::begin`], moves data as the [`Plan`] says,
//! and lets [`LogicalUnit::finish`] do the rest. Task management, the order of commands and the limits of time
//! are the front end's; unit attentions, mode pages and everything a CDB can say are decided here. Who may use the volume is the
//! volume's to know ([`volume::Volume::permits`]), so that other protocols obey what was reserved or protected by SCSI.
//!
//! This crate does no I/O but through the device, never asks the time and spawns nothing.

mod attention;
mod cdb;
mod command;
mod copy;
mod failure;
mod format;
mod identity;
mod medium_operation;
mod mode;
mod nexus;
mod persistent;
mod plan;
mod reserve;
mod sanitize;
mod unit;

pub use command::luns::{absent, well_known};
pub use identity::Identity;
pub use nexus::{InitiatorPort, Nexus, NexusId, TargetPort};
pub use plan::{
    Background, CommandIn, Data, DataIn, Effect, Job, Landing, Plan, Receive, Reply, Running, SiblingUnits,
    Step,
};
pub use scsi::{
    Condition, LunAddress, REPORT_LUNS_WELL_KNOWN, SenseData, SenseFormat, SenseKey, Specific, Status, asc,
    flat_number,
};
pub use unit::{
    AT_ONCE_BYTES_MAX, DeviceRequest, LogicalUnit, LogicalUnitOptions, Misdeclared, TransferFault, Watch,
};
pub use volume::Damaged;
