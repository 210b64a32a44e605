//! The commands: one table, one file per family.

pub(crate) mod atomic;
pub(crate) mod call;
pub(crate) mod diagnostic;
pub(crate) mod inquiry;
pub(crate) mod provisioning;
pub(crate) mod read_write;
pub(crate) mod removal;
pub(crate) mod report;
pub(crate) mod table;
