//! Runs a workload on devices, and measures it.
//!
//! ```text
//!   slots, one for each request that may be outstanding         the run
//!   ────────────────────────────────────────────────            ─────────────────────────
//!   choose the next request (access) and its time               closes samples on time,
//!     closed loop: when the last one has completed,             passes them to the caller,
//!       after any pause or draining (turn)             ──────►  ends the run, and waits for
//!     open loop: when the request is due (arrivals)     Tally   outstanding requests until
//!   submit the request, await it, count it                      a timeout
//! ```
//!
//! All tasks run on the reactor of one thread. The clock is read once for each completed request. In a closed
//! loop, this time is also the start of the next request.

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

/// Runs the workload on all devices concurrently, and measures them together. Several devices are several
/// paths to the same data (sessions of one LUN). In a closed loop, each device has [`Workload::depth`]
/// outstanding requests. In an open loop, the rate applies to all devices combined.
///
/// Each sample is passed to `each` at the end of its interval, even if nothing completed in it. Only requests
/// that complete within the counted time are counted. After the end of the run, requests that are still
/// outstanding after [`Orders::patience`] count as errors. The run also ends after [`FAILURES_MAX`] failures.
pub async fn run(
    devices: &[Arc<dyn BlockDevice>],
    workload: &Workload,
    orders: &Orders,
    each: &mut dyn FnMut(&Sample) -> Go,
) -> Result<Run, WorkloadError> {
    run_with(devices, workload, orders, None, each).await
}

/// Like [`run`], for a workload that verifies its data. This function also records the device's guarantees in
/// a journal, so that they can be checked after a crash. For this purpose, it flushes after every 64 writes,
/// and sends one write in eight directly to stable storage.
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
    let base = orders
        .start
        .unwrap_or_else(reactor::now)
        .max(reactor::now());
    reactor::sleep_until(base).await;
    let shared = Rc::new(Shared {
        base,
        tally: Tally::new(Window::of(orders), workload.pace.is_open()).into(),
        ended: Signal::default(),
        arrivals: Arrivals::new(workload.pace, workload.seed).map(Into::into),
    });
    // Order the slots by number, not by session: in an open loop, consecutive requests then rotate over all
    // sessions.
    let slots = (0..workload.depth)
        .flat_map(|number| {
            sessions
                .iter()
                .map(move |session| (number, Rc::clone(session)))
        })
        .map(|(number, session)| reactor::spawn(slot::serve(Rc::clone(&shared), session, number)));
    let slots = Slots(slots.collect());
    shared.watch(each).await;
    shared.drain(orders.patience).await;
    drop(slots);
    let backlog_max = shared
        .arrivals
        .as_ref()
        .map_or(0, |arrivals| arrivals.borrow().backlog_max());
    Ok(shared.tally.borrow_mut().take_run(backlog_max))
}

/// The tasks of the slots. Dropping this value cancels the tasks, so they end with the run even if the caller
/// drops the run early.
struct Slots(Vec<JoinHandle<()>>);

impl Drop for Slots {
    fn drop(&mut self) {
        self.0.drain(..).for_each(JoinHandle::abort);
    }
}
