//! Monitoring of a running server: metrics in Prometheus' text format, and a health check.
//!
//! Nothing is counted here, and this part is independent of front ends. Each front end has its counters on
//! each core ([`front_end_core::CoreFrontEnd::statistics`]); its name becomes the label `protocol`. Volumes
//! have their state, and the kernel has that of the process; a scrape reads all of them ([`Sample`]). While
//! the server reloads, or a core hangs, a scrape still ends within a second and reports that.
//!
//! Reading order: [`sample`] (reading the counters), `render` (all metrics, and a sample as text), `exposition` (the text format),
//! [`health`], `http` (the listener).

mod exposition;
pub(crate) mod health;
pub(crate) mod http;
pub(crate) mod render;
mod sample;

pub use health::Health;
pub use render::families;
pub(crate) use sample::{Probe, Reloads};
