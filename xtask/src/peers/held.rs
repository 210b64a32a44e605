//! What our server takes for the work that is all tgt can do.

use anyhow::Result;
use serde::Serialize;

use super::cells::{CONTESTS, DEEP_READ};
use crate::measuring::client::{Arrivals, Client, Measured, Target};

/// One round's runs at tgt's rate.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Held {
    /// tgt at its fastest.
    pub(super) tgt: Measured,
    /// Ours, asked for no more than that, one request after the other.
    pub(super) ours: Measured,
    /// The same, asked for all of a millisecond at once.
    pub(super) in_bursts: Measured,
    /// One request after the other, by a server that lets them gather.
    pub(super) gathering: Measured,
}

/// Our CPU time is at most this share of tgt's.
pub(super) const CPU_SHARE_MAX: f64 = 0.2;

impl Held {
    /// Measures the deep random read again, by a client that asks at tgt's rate.
    pub(super) fn at_rate(
        binary: &std::path::Path,
        target: &Target,
        tgt: &Measured,
        arrivals: Arrivals,
        seconds: f64,
    ) -> Result<Measured> {
        let deep = CONTESTS.iter().find(|contest| contest.cell.name == DEEP_READ);
        let cell = &deep.unwrap_or(&CONTESTS[0]).cell; // it is in the table
        Client::measure_at_rate(cell, binary, target, tgt.iops as u64, arrivals, seconds)
    }

    /// The server's CPU time in one of these runs as a share of tgt's, for the same work.
    pub(super) fn cpu_share(&self, of: fn(&Held) -> &Measured) -> f64 {
        of(self).server_cpu_us_per_io / self.tgt.server_cpu_us_per_io
    }
}
