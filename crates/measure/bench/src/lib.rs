//! Workloads on any block device, and their measurement.
//!
//! A [`plan::Workload`] describes requests: their size, queue depth or rate, share of reads, and offsets.
//! [`run()`] runs it on a device and returns a [`record::Run`]: the number of completed requests, their
//! latencies, the rate over time, and whether the data was correct. The device may be memory, a file, or a
//! LUN across a network. This crate does not distinguish them, and does not open devices. It takes the time
//! from the reactor's clock.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use bench::plan::{Percent, Workload};
//! use bench::{Go, Orders};
//! use block::{BlockDevice, BlockSize, Blocks, Geometry, Null};
//!
//! // Random reads of 4 KiB, eight at a time, for 100 µs of virtual time.
//! let geometry = Geometry { block_size: BlockSize::B512, blocks: Blocks(1 << 20), physical_exponent: 3 };
//! let devices: [Arc<dyn BlockDevice>; 1] = [Arc::new(Null::new(geometry))];
//! let workload = Workload::simple(4096, 8, Percent::ALL, Percent::ALL);
//! let orders = Orders::for_time(Duration::from_micros(100));
//! let mut go_on = |_: &bench::record::Sample| Go::On;
//! let run = bench::run(&devices, &workload, &orders, &mut go_on);
//! let run = reactor::block_on(reactor::Alone::virtual_time(), run).expect("a workload that fits");
//! assert!(run.reads.ios > 0 && run.errors == 0);
//! ```
//!
//! Reading order: [`plan`] (requests), [`pattern`] (data), [`run()`] (the loop), [`record`] (results).
//! [`schedule`] orders the cells, [`round_trip`] verifies data without timing, and [`journal`] verifies it
//! after a crash.

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
