//! Somebody who goes on writing and reading while a scene happens, and knows what every read must give.
//!
//! Every write of a place is another generation of it, and every read is checked against the one that was acknowledged
//! last: what is lost, stale or torn is found by the next read of its place, and there are few places.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::Duration;

use bench::plan::{Data, Percent, Span, Workload};
use bench::record::Run;
use bench::{Go, Orders};
use block::BlockDevice;

use super::open;
use crate::remote::in_a_world;

/// A load on a thread of its own.
pub(super) struct Load {
    thread: JoinHandle<()>,
    outcome: Receiver<Run>,
    duration: Duration,
}

/// What the last requests may take behind the end of a load, and the logout: nobody waits longer for anything.
const PATIENCE: Duration = Duration::from_secs(45);

impl Load {
    /// Logs in, and begins.
    pub(super) fn begin(url: &str, duration: Duration) -> Load {
        let url = url.to_owned();
        let (ready, begun) = mpsc::channel();
        let (report, outcome) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            in_a_world(async {
                let lun = Arc::new(open(&url).await);
                let target = Arc::clone(lun.target());
                ready.send(()).expect("who began it waits");
                let device: Arc<dyn BlockDevice> = lun;
                let orders = Orders::for_time(duration);
                let measured = bench::run(&[device], &workload(), &orders, &mut |_| Go::On).await;
                let measured = measured.expect("it fits the disk");
                target.close().await;
                let _ = report.send(measured); // unless the scene has failed meanwhile
            });
        });
        begun.recv().expect("a login");
        Load { thread, outcome, duration }
    }

    /// Its end, at which nothing may have been lost, stale or refused.
    pub(super) fn end(self) -> Run {
        let measured = self.whatever_end();
        assert_eq!(measured.first_failure, None, "{measured:?}");
        measured
    }

    /// Its end, whatever happened; but it must come.
    pub(super) fn whatever_end(self) -> Run {
        let outcome = self.outcome.recv_timeout(self.duration + PATIENCE);
        let measured = outcome.expect("an end of the load");
        self.thread.join().expect("without a panic");
        measured
    }
}

fn workload() -> Workload {
    let percent = |percent| Percent::new(percent).expect("a percentage");
    Workload {
        span: Span { start_bytes: 0, bytes: Some(4 << 20) },
        data: Data::Stamped,
        ..Workload::simple(8192, 32, percent(40), percent(90))
    }
}
