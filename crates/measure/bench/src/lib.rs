//! Workloads over any block device, and what they measured.
//!
//! A [`plan::Workload`] says what to ask of a device: how large, how many at once or so many a second, how much of it
//! reading, at which places. [`run()`] puts it on a device and gives a [`record::Run`]: how many requests ended, how long
//! each took, how that went over time, and whether the data was right. The device may be memory, a file, or a LUN at the
//! other end of a network; this crate cannot tell, and opens nothing itself. It has no clock of its own either: time is
//! the reactor's.
//!
//! Reading order: [`plan`] (what), [`pattern`] (which bytes), [`run()`] (the loop), [`record`] (how it went),
//! [`summary`] (what it says); [`wan`] for what distance does, [`round_trip`] for data that must come back without being timed,
//! and [`journal`] for data that must be there after a crash.

mod access;
pub mod compare;
pub mod diagnosis;
mod failure;
mod generations;
pub mod icf;
pub mod journal;
pub mod pattern;
pub mod plan;
pub mod raw;
pub mod record;
pub mod report;
mod round_trip;
mod run;
pub mod schedule;
pub mod suite;
pub mod summary;
#[cfg(test)]
mod test_disk;
#[cfg(test)]
mod test_record;
pub mod wan;

pub use access::WorkloadError;
pub use failure::Failure;
pub use round_trip::{RoundTrip, read_back, round_trip};
pub use run::{FAILURES_MAX, Go, Orders, PATIENCE, run, run_with_journal};
