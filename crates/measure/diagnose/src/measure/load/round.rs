//! One round of a load: requests for a short time, NOPs beside them, and what all clocks and counters say before and
//! after.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bench::plan::{Percent, Span, Workload};
use bench::record::{Run, Sample};
use bench::{Go, Orders};
use block::BlockDevice;
use model::{Direction, Load};

use super::durable::Durable;
use super::snapshot::Snapshot;
use crate::measure::device::Device;
use crate::measure::places::Part;
use environment::server::Server;

/// How long a round takes.
#[derive(Clone, Copy, Debug)]
pub(in crate::measure) struct Times {
    /// Until TCP has its windows, and caches and queues are as they stay.
    pub(in crate::measure) warm_up: Duration,
    pub(in crate::measure) counted: Duration,
}

/// What came of it.
pub(super) struct Round {
    pub(super) run: Run,
    /// When counting began and when it ended; nothing if it ended before its time, by too many failures.
    pub(super) clocks: Option<(Snapshot, Snapshot)>,
    /// NOPs beside it.
    pub(super) nops: Vec<Duration>,
}

/// What a load is put on.
pub(super) struct Where<'a> {
    /// One for each session.
    pub(super) devices: &'a [Device],
    pub(super) part: Part,
    pub(super) server: Option<&'a Server>,
}

/// What requests that are under way at the end may take (`bench::run` gives up on them then), and some more for a way
/// that is lost altogether.
const DRAIN: Duration = Duration::from_secs(13);

/// Runs a round. A sentence says why there is none.
pub(super) async fn round(place: Where<'_>, load: &Load, times: Times, seed: u64) -> Result<Round, String> {
    let devices: Vec<Arc<dyn BlockDevice>> = place
        .devices
        .iter()
        .map(|device| match load.durable {
            true => Arc::new(Durable(device.shared())) as Arc<dyn BlockDevice>,
            false => device.shared(),
        })
        .collect();
    let workload = workload(load, place.part, seed);
    let start = reactor::now();
    let (from, to) = (start + times.warm_up, start + times.warm_up + times.counted);
    let orders = Orders {
        warm_up: times.warm_up,
        max: times.counted,
        start: Some(start),
        ..Orders::for_time(times.counted)
    };
    let watch = Watch::begin(&place, from, to);
    let mut on = |_: &Sample| Go::On;
    let run = bench::run(&devices, &workload, &orders, &mut on);
    let run = reactor::timeout(times.warm_up + times.counted + DRAIN, run).await;
    let (clocks, nops) = watch.end(to).await;
    let run = run.map_err(|_| "requests did not end".to_owned())?.map_err(|error| error.to_string())?;
    Ok(Round { run, clocks, nops })
}

fn workload(load: &Load, part: Part, seed: u64) -> Workload {
    let all_or_nothing = |all| if all { Percent::ALL } else { Percent::NONE };
    let read = all_or_nothing(load.direction == Direction::Read);
    let span = Span { start_bytes: part.start_bytes, bytes: Some(part.bytes) };
    Workload {
        span,
        seed,
        ..Workload::simple(load.block_bytes, load.depth, read, all_or_nothing(load.random))
    }
}

/// Looks at clocks and counters when counting begins and ends, and sends NOPs between.
struct Watch {
    snapshots: reactor::JoinHandle<(Snapshot, Snapshot)>,
    nops: reactor::JoinHandle<()>,
    times: Rc<RefCell<Vec<Duration>>>,
}

impl Watch {
    fn begin(place: &Where<'_>, from: Instant, to: Instant) -> Watch {
        let (devices, server) = (place.devices.to_vec(), place.server.cloned());
        let snapshots = reactor::spawn(async move {
            reactor::sleep_until(from).await;
            let before = Snapshot::take(&devices, server.as_ref()).await;
            reactor::sleep_until(to).await;
            (before, Snapshot::take(&devices, server.as_ref()).await)
        });
        let times = Rc::default();
        let nops = reactor::spawn(ping(place.devices.first().cloned(), from, to, Rc::clone(&times)));
        Watch { snapshots, nops, times }
    }

    async fn end(self, to: Instant) -> (Option<(Snapshot, Snapshot)>, Vec<Duration>) {
        self.nops.abort();
        let clocks = match reactor::now() >= to {
            true => Some(self.snapshots.await),
            false => {
                self.snapshots.abort();
                None
            }
        };
        (clocks, self.times.take())
    }
}

/// NOPs, one at a time: some thirty in a round, and none so soon after another that they are a load themselves.
async fn ping(device: Option<Device>, from: Instant, to: Instant, times: Rc<RefCell<Vec<Duration>>>) {
    let Some(device) = device else { return };
    let gap = ((to - from) / 30).max(Duration::from_millis(5));
    reactor::sleep_until(from).await;
    while reactor::now() < to {
        match device.ping_aside().await {
            Ok(time) => times.borrow_mut().push(time),
            Err(_) => return,
        }
        reactor::sleep(gap).await;
    }
}
