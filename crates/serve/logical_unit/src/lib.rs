//! The SCSI logical unit over a volume: commands, sense data, pages, reservations and copies, independent of
//! the transport.
//!
//! A [`LogicalUnit`] stands between a transport and a [`block::BlockDevice`]. A front end attaches each I_T
//! nexus ([`LogicalUnit::attach`]), passes commands to [`LogicalUnit::begin`], transfers data according to
//! the [`Plan`], and calls [`LogicalUnit::finish`]. The front end is responsible for task management, the
//! order of commands and timeouts. This crate is responsible for unit attentions, mode pages and the
//! interpretation of CDBs. Access control of the volume is in `volume` ([`volume::Volume::permits`]), so that
//! other protocols obey SCSI reservations and write protection.
//!
//! This crate does no I/O except through the device, reads no clock and spawns no tasks.

mod access;
mod carry_out;
mod cdb;
mod command;
mod copy;
mod failure;
mod identity;
mod medium_operation;
mod mode;
mod nexus;
mod plan;
mod reservations;
mod sanitize;
mod state;
mod unit;

pub use access::{DeviceRequest, Watch};
pub use carry_out::{AT_ONCE_BYTES_MAX, Misdeclared, TransferFault};
pub use command::report::{absent, well_known};
pub use identity::{Ascii, GivenNames, Identity, Naa, NameError};
pub use nexus::{InitiatorPort, NexusId, SessionTraits, TargetPort, Traffic};
pub use plan::{
    Background, CommandIn, Data, DataIn, Effect, Job, Landing, Plan, Receive, Reply, Running,
    SiblingUnits, Step,
};
pub use scsi::{
    Condition, LunAddress, REPORT_LUNS_WELL_KNOWN, SenseData, SenseFormat, SenseKey, Specific,
    Status, asc, flat_number,
};
pub use unit::{InquiryFacts, LogicalUnit, LogicalUnitOptions, Nexus};
pub use volume::Damaged;
