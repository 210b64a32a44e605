//! Monitoring of a running server: metrics in Prometheus' text format, and a health check.
//!
//! Nothing is counted here, and no front end is known: each has its counters on each core
//! ([`front_end_core::CoreFrontEnd::statistics`]), which get its name as their label `protocol`. Volumes have their state, and the kernel
//! has that of the process; a scrape reads all of them ([`Sample`]). While the server reloads, or a core hangs, a scrape still
//! ends within a second and reports that.
//!
//! Reading order: [`families`] (all metrics, and the text format), [`sample`] (reading the counters),
//! `render` (a sample as text), [`health`], `http` (the listener).

mod families;
pub(crate) mod health;
pub(crate) mod http;
pub(crate) mod render;
mod sample;

pub use families::{FAMILIES, Family, MetricKind};
pub use health::Health;
pub(crate) use sample::{Probe, Reloads};
