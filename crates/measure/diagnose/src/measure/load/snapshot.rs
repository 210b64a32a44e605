//! What the clocks and counters say at one moment: two of them make what a load has cost.

use std::time::{Duration, Instant};

use host::cputime;

use crate::measure::device::{Device, Told};
use environment::server::{Server, ServerClocks};

/// At one moment.
pub(super) struct Snapshot {
    pub(super) at: Instant,
    /// CPU time of this thread.
    pub(super) cpu: Duration,
    /// How long it had to wait for one; zero where nobody tells.
    pub(super) waited: Duration,
    pub(super) server: Option<ServerClocks>,
    /// Session by session.
    pub(super) told: Vec<Told>,
}

impl Snapshot {
    pub(super) async fn take(devices: &[Device], server: Option<&Server>) -> Snapshot {
        let mut told = Vec::new();
        for device in devices {
            told.extend(device.told().await);
        }
        Snapshot {
            at: reactor::now(),
            cpu: cputime::thread(),
            waited: cputime::thread_waited().unwrap_or_default(),
            server: server.and_then(|server| server.clocks().ok()),
            told,
        }
    }
}
