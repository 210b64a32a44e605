//! Code shared by `xtask` and `measurements`: processes, Debian packages, Linerate's and its peers' servers, pages.

pub mod document;
pub mod namespace;
pub mod packages;
pub mod process;
pub mod serving;
pub mod tally;
pub mod workspace;
