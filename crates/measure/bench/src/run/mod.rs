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

mod slot;
mod tally;
#[cfg(test)]
mod tests;

pub use tally::{FAILURES_MAX, Go, Orders, PATIENCE};

use std::rc::Rc;
use std::sync::Arc;

use block::BlockDevice;
use reactor::JoinHandle;

use self::slot::{Arrivals, Shared, Signal, sessions};
use self::tally::{Tally, Window};
use crate::access::WorkloadError;
use crate::journal::Journal;
use crate::plan::Workload;
use crate::record::{Run, Sample};

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
