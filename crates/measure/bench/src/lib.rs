//! Workloads over any block device, and what they measured.
//!
//! A [`plan::Workload`] says what to ask of a device: how large, how many at once or so many a second, how much of it
//! reading, at which places. [`run()`] puts it on a device and gives a [`record::Run`]: how many requests ended, how long
//! each took, how that went over time, and whether the data was right. The device may be memory, a file, or a LUN at the
//! other end of a network; this crate cannot tell, and opens nothing itself. It has no clock of its own either: time is
//! the reactor's.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use bench::plan::{Percent, Workload};
//! use bench::{Go, Orders};
//! use block::{BlockDevice, BlockSize, Blocks, Geometry, Null};
//!
//! // Random reads of 4 KiB, eight at a time, for 20 ms of virtual time.
//! let geometry = Geometry { block_size: BlockSize::B512, blocks: Blocks(1 << 20), physical_exponent: 3 };
//! let devices: [Arc<dyn BlockDevice>; 1] = [Arc::new(Null::new(geometry))];
//! let workload = Workload::simple(4096, 8, Percent::ALL, Percent::ALL);
//! let orders = Orders::for_time(Duration::from_millis(20));
//! let mut go_on = |_: &bench::record::Sample| Go::On;
//! let run = bench::run(&devices, &workload, &orders, &mut go_on);
//! let run = reactor::block_on(reactor::Alone::virtual_time(), run).expect("a workload that fits");
//! assert!(run.reads.ios > 0 && run.errors == 0);
//! ```
//!
//! Reading order: [`plan`] (what), [`pattern`] (which bytes), [`run()`] (the loop), [`record`] (how it went);
//! [`schedule`] for which cell comes next, [`round_trip`] for data that must come back without being timed, and [`journal`]
//! for data that must be there after a crash.

mod access;
mod extent;
mod failure;
pub mod fio_job;
pub mod icf;
pub mod journal;
pub mod pattern;
pub mod plan;
pub mod raw;
pub mod record;
mod round_trip;
mod run;
pub mod schedule;
pub mod suite;
#[cfg(test)]
mod test_disk;
pub mod test_record;

pub use access::WorkloadError;
pub use extent::Extent;
pub use failure::Failure;
pub use round_trip::{RoundTrip, read_back, round_trip};
pub use run::{FAILURES_MAX, Go, Orders, PATIENCE, run, run_with_journal};
