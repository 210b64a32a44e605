//! What came of asking, in numbers that are named as `linerate bench` names them.

use std::fmt;

use serde::Serialize;

use super::{Asked, Load};

/// What is printed: as JSON, or as lines for people.
#[derive(Debug, Serialize)]
pub struct Figures {
    iops: f64,
    mb_per_s: f64,
    latency_us: Latency,
    ios: u64,
    /// No command failed, or nothing would be shown.
    errors: u64,
    idle_looks_per_io: f64,
}

/// Of a sample.
#[derive(Debug, Serialize)]
struct Latency {
    p50: f64,
    p99: f64,
    p999: f64,
}

impl Figures {
    /// Of what came of this load.
    pub fn new(asked: &Asked, load: Load) -> Figures {
        let iops = asked.requests as f64 / asked.time.as_secs_f64().max(f64::MIN_POSITIVE);
        let us = |share| asked.latencies.quantile_ns(share) as f64 / 1e3;
        Figures {
            iops,
            mb_per_s: iops * f64::from(load.block_bytes) / 1e6,
            latency_us: Latency { p50: us(0.5), p99: us(0.99), p999: us(0.999) },
            ios: asked.requests,
            errors: 0,
            idle_looks_per_io: asked.idle_looks,
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Latency { p50, p99, p999 } = self.latency_us;
        writeln!(f, "{:.0} IOPS   {:.1} MB/s", self.iops, self.mb_per_s)?;
        writeln!(f, "latency of a sample   p50 {p50:.1} µs   p99 {p99:.1} µs   p99.9 {p999:.1} µs")?;
        writeln!(f, "{:.2} idle polls per command", self.idle_looks_per_io)
    }
}
