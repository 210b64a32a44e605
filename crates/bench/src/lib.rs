//! Workloads over any block device, and what they measured.
//!
//! A [`Workload`] says what to ask of a device: how large, how many at once, how much of it reading, how much of
//! it at random places. [`run`] keeps that many requests under way for its duration and gives a [`Measurement`]:
//! rates, the latency of every request, and whether the data was right. The device may be memory, a file, or a
//! LUN at the other end of a network; this crate cannot tell, and opens nothing itself. It has no clock of its
//! own either: time is the reactor's, and CPU time is handed in by whoever can ask for it.
//!
//! Reading order: [`Workload`] (what), [`pattern`] (which bytes), [`run`] (the loop), [`Measurement`] (how it
//! went); [`round_trip`] for data that must come back without being timed.

mod failure;
mod generations;
mod measurement;
pub mod pattern;
mod picker;
pub mod plan;
pub mod published;
mod random;
pub mod record;
mod round_trip;
mod run;
pub mod schedule;
pub mod statistics;
pub mod steady;
pub mod summary;
#[cfg(test)]
mod test_disk;
mod workload;

pub use failure::Failure;
pub use measurement::{Latency, Measurement};
pub use round_trip::{RoundTrip, read_back, round_trip};
pub use run::run;
pub use workload::{Percent, Workload, WorkloadError};
