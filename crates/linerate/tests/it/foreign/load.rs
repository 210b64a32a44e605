//! A load that writes and reads during a scene, and verifies every read.
//!
//! Every write to a block has a new generation, and every read is compared with the last acknowledged write.
//! The next read of a block detects lost, stale or torn data, and there are few blocks. Scenes wait for
//! progress of the load instead of a fixed time, because the load's speed depends on the machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use bench::plan::{Data, Percent, Span, Workload};
use bench::record::Run;
use bench::{Go, Orders};
use block::BlockDevice;

use super::open;
use crate::program::PATIENCE;
use crate::remote::in_a_world;

/// A load on a separate thread, which runs until it is stopped.
pub(super) struct Load {
    thread: JoinHandle<()>,
    outcome: Receiver<Run>,
    /// The number of requests that completed in each tenth of a second.
    samples: Receiver<u64>,
    is_over: Arc<AtomicBool>,
}

/// Maximum duration of a load. It is long, because each wait of a scene may take up to [`PATIENCE`].
const LONGER_THAN_ANY_SCENE: Duration = Duration::from_hours(24);

/// A number of requests after which almost certainly every block was written: four for each block.
const MANY: u64 = 4 * SPAN_BYTES / BLOCK_BYTES as u64;
const SPAN_BYTES: u64 = 2 << 20;
const BLOCK_BYTES: u32 = 8192;

impl Load {
    /// Logs in, and starts the load.
    pub(super) fn begin(url: &str) -> Load {
        let url = url.to_owned();
        let (ready, begun) = mpsc::channel();
        let (report, outcome) = mpsc::channel();
        let (tell, samples) = mpsc::channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            in_a_world(async {
                let lun = Arc::new(open(&url).await);
                let target = Arc::clone(lun.target());
                ready.send(()).expect("who began it waits");
                let device: Arc<dyn BlockDevice> = lun;
                let orders = Orders {
                    patience: PATIENCE,
                    ..Orders::for_time(LONGER_THAN_ANY_SCENE)
                };
                let each = &mut |sample: &bench::record::Sample| {
                    let _ = tell.send(sample.reads + sample.writes); // fails if the scene has already failed
                    if over.load(Relaxed) { Go::Stop } else { Go::On }
                };
                let measured = bench::run(&[device], &workload(), &orders, each).await;
                let measured = measured.expect("it fits the disk");
                target.close().await;
                let _ = report.send(measured); // fails if the scene has already failed
            });
        });
        begun.recv().expect("a login");
        Load {
            thread,
            outcome,
            samples,
            is_over,
        }
    }

    /// Waits until many more requests have completed, in which every block has been written.
    pub(super) fn goes_on(&self) {
        self.forget();
        let mut ended = 0;
        while ended < MANY {
            ended += self.sample();
        }
    }

    /// Waits until no request has completed for a tenth of a second.
    pub(super) fn stands_still(&self) {
        self.forget();
        while self.sample() > 0 {}
    }

    /// Discards the samples so far.
    fn forget(&self) {
        while self.samples.try_recv().is_ok() {}
    }

    fn sample(&self) -> u64 {
        match self.samples.recv_timeout(PATIENCE) {
            Ok(ended) => ended,
            Err(RecvTimeoutError::Timeout) => panic!("no word of the load for {PATIENCE:?}"),
            Err(RecvTimeoutError::Disconnected) => {
                panic!("the load has ended: {:?}", self.outcome.try_recv())
            }
        }
    }

    /// Stops the load, and checks that no data was lost or stale and no request was rejected.
    pub(super) fn end(self) -> Run {
        self.is_over.store(true, Relaxed);
        let measured = self
            .outcome
            .recv_timeout(PATIENCE)
            .expect("an end of the load");
        self.thread.join().expect("without a panic");
        assert_eq!(measured.first_failure, None, "{measured:?}");
        measured
    }
}

fn workload() -> Workload {
    let percent = |percent| Percent::new(percent).expect("a percentage");
    Workload {
        span: Span {
            start_bytes: 0,
            bytes: Some(SPAN_BYTES),
        },
        data: Data::Stamped,
        ..Workload::simple(BLOCK_BYTES, 32, percent(40), percent(90))
    }
}
