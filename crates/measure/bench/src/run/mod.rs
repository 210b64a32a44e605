//! Putting a workload on devices, and measuring what comes of it.
//!
//! ```text
//!   slots, one for each request that may be under way          the run
//!   ────────────────────────────────────────────────           ─────────────────────────
//!   which request is next (access), and when                   closes samples on time,
//!     closed: as soon as one has ended, if no pause            shows them to who asked,
//!       or draining is due (turn)                     ──────►  ends the run, waits for what
//!     open: when it is due (arrivals)                  Tally   is under way, gives up on it
//!   hand it over, wait for its end, count it
//! ```
//!
//! All of it runs on the reactor of one thread. The clock is read once for each request that ends; in a closed loop that
//! is also when the next one begins.

mod arrivals;
#[cfg(test)]
mod known_devices;
mod payload;
mod session;
mod signal;
mod slot;
mod tally;
#[cfg(test)]
mod tests;
mod turn;

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::BlockDevice;
use reactor::JoinHandle;

use self::arrivals::Arrivals;
use self::session::sessions;
use self::signal::{Signal, before};
use self::tally::{Tally, Window};
use crate::access::WorkloadError;
use crate::journal::Journal;
use crate::plan::Workload;
use crate::record::{Run, Sample};

/// When a run begins, what it counts, and when it ends: at the first of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orders {
    /// Time before anything is counted.
    pub warm_up: Duration,
    /// The longest time that is counted.
    pub max: Duration,
    /// The length of a sample.
    pub interval: Duration,
    /// Ends with the request that makes so many bytes.
    pub bytes: Option<u64>,
    /// Ends with the request that is so many.
    pub requests: Option<u64>,
    /// Begins at this time, so that several begin together; at once if it is `None` or over.
    pub start: Option<Instant>,
    /// How long requests that are still under way at the end may take. Then they count as failed.
    pub patience: Duration,
}

impl Orders {
    /// Counts for this time, in samples of a tenth of a second.
    pub fn for_time(time: Duration) -> Orders {
        Orders {
            warm_up: Duration::ZERO,
            max: time,
            interval: Duration::from_millis(100),
            bytes: None,
            requests: None,
            start: None,
            patience: PATIENCE,
        }
    }
}

/// Whether a run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    /// It does.
    On,
    /// It ends with the sample that was shown.
    Stop,
}

/// A device that fails this often will not do better: the run ends.
pub const FAILURES_MAX: u64 = 100;
/// How long requests that are still under way at the end may take, unless orders say otherwise.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Runs the workload on the devices at once, and measures them together. Several devices are several ways to the same
/// data (sessions of one LUN). In a closed loop each keeps [`Workload::depth`] requests under way; the rate of an open
/// loop is that of all of them together.
///
/// Each sample is shown to `each` when its time is over, also when nothing has ended in it. Only requests that end while
/// the run counts are counted. Those that have not ended ten seconds later are given up and counted as errors, and a
/// device that fails [`FAILURES_MAX`] times is not asked any more.
pub async fn run(
    devices: &[Arc<dyn BlockDevice>],
    workload: &Workload,
    orders: &Orders,
    each: &mut dyn FnMut(&Sample) -> Go,
) -> Result<Run, WorkloadError> {
    run_with(devices, workload, orders, None, each).await
}

/// The same for a workload that verifies its data, and notes in a journal what the devices have promised, so that it can
/// be checked after a crash. For that, every 64 writes are followed by a flush, and one of eight goes to stable storage by
/// itself.
pub async fn run_with_journal(
    devices: &[Arc<dyn BlockDevice>],
    workload: &Workload,
    orders: &Orders,
    journal: &Rc<Journal>,
    each: &mut dyn FnMut(&Sample) -> Go,
) -> Result<Run, WorkloadError> {
    run_with(devices, workload, orders, Some(journal), each).await
}

async fn run_with(
    devices: &[Arc<dyn BlockDevice>],
    workload: &Workload,
    orders: &Orders,
    journal: Option<&Rc<Journal>>,
    each: &mut dyn FnMut(&Sample) -> Go,
) -> Result<Run, WorkloadError> {
    let sessions = sessions(devices, workload, journal)?;
    let base = orders.start.unwrap_or_else(reactor::now).max(reactor::now());
    reactor::sleep_until(base).await;
    let shared = Rc::new(Shared {
        base,
        tally: Tally::new(Window::of(orders), workload.pace.is_open()).into(),
        ended: Signal::default(),
        arrivals: Arrivals::new(workload.pace, workload.seed).map(Into::into),
    });
    // Slot by slot, not session by session: those of an open loop take their turns over all of them.
    let slots = (0..workload.depth)
        .flat_map(|number| sessions.iter().map(move |session| (number, Rc::clone(session))))
        .map(|(number, session)| reactor::spawn(slot::serve(Rc::clone(&shared), session, number)));
    let slots = Slots(slots.collect());
    shared.watch(each).await;
    shared.drain(orders.patience).await;
    drop(slots);
    let backlog_max = shared.arrivals.as_ref().map_or(0, |arrivals| arrivals.borrow().backlog_max());
    Ok(shared.tally.borrow_mut().take_run(backlog_max))
}

/// The slots' tasks, which end with the run: also if whoever waits for it goes away.
struct Slots(Vec<JoinHandle<()>>);

impl Drop for Slots {
    fn drop(&mut self) {
        self.0.drain(..).for_each(JoinHandle::abort);
    }
}

/// What all slots of a run share.
struct Shared {
    /// Times are counted from here, in nanoseconds.
    base: Instant,
    tally: std::cell::RefCell<Tally>,
    /// The run is over, or nothing is under way any more.
    ended: Signal,
    /// Of an open loop.
    arrivals: Option<std::cell::RefCell<Arrivals>>,
}

impl Shared {
    fn now(&self) -> u64 {
        (reactor::now().saturating_duration_since(self.base)).as_nanos() as u64
    }

    fn at(&self, ns: u64) -> Instant {
        self.base + Duration::from_nanos(ns)
    }

    /// Shows the samples, until the run is over.
    async fn watch(&self, each: &mut dyn FnMut(&Sample) -> Go) {
        loop {
            let now = self.now();
            if let Some(arrivals) = &self.arrivals {
                arrivals.borrow_mut().look(now);
            }
            self.tally.borrow_mut().advance(now);
            while let Some(sample) = { self.tally.borrow_mut().next_closed() } {
                if each(&sample) == Go::Stop {
                    self.tally.borrow_mut().stop();
                }
            }
            let Some(next) = self.tally.borrow().boundary() else { return };
            before(self.at(next), &self.ended).await;
        }
    }

    /// Waits for what is under way, and gives up on it after a while.
    async fn drain(&self, patience: Duration) {
        let patience = reactor::now() + patience;
        while self.tally.borrow().under_way() > 0 && reactor::now() < patience {
            before(patience, &self.ended).await;
        }
        self.tally.borrow_mut().give_up();
    }
}
