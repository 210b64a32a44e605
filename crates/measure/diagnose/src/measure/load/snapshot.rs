//! What the clocks and counters say at one moment: two of them make what a load has cost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use host::cputime;
use initiator::{RemoteLun, Statistics};

use crate::measure::way::told;
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
    pub(super) statistics: Vec<Statistics>,
}

impl Snapshot {
    pub(super) async fn take(luns: &[Arc<RemoteLun>], server: Option<&Server>) -> Snapshot {
        let mut statistics = Vec::new();
        for lun in luns {
            statistics.extend(told(lun).await);
        }
        Snapshot {
            at: reactor::now(),
            cpu: cputime::thread(),
            waited: cputime::thread_waited().unwrap_or_default(),
            server: server.and_then(|server| server.clocks().ok()),
            statistics,
        }
    }
}
