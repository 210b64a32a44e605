//! What the automation and the measurements share: processes, packages of the system, servers of every make, pages.

pub mod document;
pub mod namespace;
pub mod packages;
pub mod process;
pub mod serving;
pub mod tally;
pub mod workspace;

mod policy;
