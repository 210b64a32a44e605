//! A slot: the place of one request under way, filled again and again.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;

use block::{DeviceError, Durability};

use super::Shared;
use super::payload::Payload;
use super::session::{Request, Session};
use super::signal::before;
use super::tally::Completed;
use super::turn::Turnstile;
use crate::Failure;
use crate::access::{Ask, Kind};

/// A device that answers at once, such as memory, never makes a slot wait: it then yields by itself now and then, so
/// that the other slots, and the rest of the thread, have their turn. A slot that has waited has given them theirs: were
/// it to yield as well, its next request would miss those of the others, and a session would send for it alone.
const REQUESTS_WITHOUT_YIELD: u32 = 16;

/// Makes requests until the run is over.
pub(super) async fn serve(shared: Rc<Shared>, session: Rc<Session>, number: u32) {
    let mut payload = session.payload(number);
    let mut since_wait = 0;
    // The end of the last request, as long as it is the time.
    let mut time = None;
    while let Some(due) = shared.next_due().await {
        let ask = match &session.turnstile {
            None => session.ask(),
            Some(turnstile) => match session.next(turnstile, &shared).await {
                Some(ask) => ask,
                None => return,
            },
        };
        let request = session.begin(ask);
        if session.turnstile.is_some() || due.is_some() {
            time = None;
        }
        let Returned { at, waited } = carry_out(&shared, &session, request, &mut payload, due, time).await;
        time = Some(at);
        if session.keeps_journal() {
            time = None;
            if let Err(failure) = session.flush_if_due().await {
                shared.tally.borrow_mut().failed(shared.now(), failure);
            }
        }
        since_wait = if waited { 0 } else { since_wait + 1 };
        if since_wait == REQUESTS_WITHOUT_YIELD {
            since_wait = 0;
            time = None;
            reactor::yield_now().await;
        }
    }
}

impl Shared {
    /// Waits until the next request of an open loop is due, and tells when that was; a closed loop has none. `None` when
    /// the run is over.
    async fn next_due(&self) -> Option<Option<u64>> {
        if let Some(arrivals) = &self.arrivals {
            let now = self.now();
            arrivals.borrow_mut().look(now);
            let due = arrivals.borrow_mut().take();
            if due > now {
                reactor::sleep_until(self.at(due)).await;
            }
            return (!self.tally.borrow().is_over()).then_some(Some(due));
        }
        (!self.tally.borrow().is_over()).then_some(None)
    }
}

impl Session {
    /// The next request, after whatever has to end or pass before it. `None` when the run is over.
    async fn next(&self, turnstile: &Turnstile, shared: &Shared) -> Option<Ask> {
        let _turn = turnstile.enter().await;
        while self.must_drain() {
            before(shared.at(FOR_EVER_NS), &self.drained).await;
        }
        self.has_drained();
        let ask = self.ask();
        if !ask.pause.is_zero() {
            reactor::sleep(ask.pause).await;
        }
        (!shared.tally.borrow().is_over()).then_some(ask)
    }
}

/// A century: draining has no time of its own to end.
const FOR_EVER_NS: u64 = 100 * 365 * 86_400 * 1_000_000_000;

/// That a request has come back, well or not.
#[derive(Clone, Copy)]
struct Returned {
    at: u64,
    /// Not at once: others had their turn meanwhile.
    waited: bool,
}

/// One request from beginning to end.
async fn carry_out(
    shared: &Shared,
    session: &Session,
    request: Request,
    payload: &mut Payload,
    due: Option<u64>,
    time: Option<u64>,
) -> Returned {
    let ended = match request.ask.kind {
        Kind::Read => read(shared, session, &request, payload, time).await,
        Kind::Write => write(shared, session, &request, payload, time).await,
    };
    let Ended { handed, returned, outcome } = ended;
    session.end(&request);
    let mut tally = shared.tally.borrow_mut();
    match outcome {
        Err(failure) => tally.failed(returned.at, failure),
        Ok(()) => {
            let service = returned.at - handed;
            let response = due.map(|due| returned.at - due.min(handed));
            tally.completed(
                returned.at,
                Completed { kind: request.ask.kind, bytes: request.ask.bytes, service, response },
            );
        }
    }
    if tally.is_over() {
        shared.ended.give();
    }
    returned
}

/// How a request went.
struct Ended {
    /// When the device had it.
    handed: u64,
    returned: Returned,
    outcome: Result<(), Failure>,
}

async fn read(
    shared: &Shared,
    session: &Session,
    request: &Request,
    payload: &mut Payload,
    time: Option<u64>,
) -> Ended {
    let buffer = payload.reading(request.ask.bytes as usize);
    let (handed, returned, read) = timed(shared, time, session.device.read(request.extent, buffer)).await;
    // What was read is looked at when its time has been taken.
    let outcome = read.map_err(Failure::Device).and_then(|buffer| {
        let checked = session.check(request, &buffer);
        payload.was_read(buffer);
        checked
    });
    Ended { handed, returned, outcome }
}

async fn write(
    shared: &Shared,
    session: &Session,
    request: &Request,
    payload: &mut Payload,
    time: Option<u64>,
) -> Ended {
    let extent = request.extent;
    let (handed, returned, written) = match session.stamp(request, payload) {
        None => {
            let data = payload.writing(request.ask.bytes as usize);
            timed(shared, time, session.device.write(extent, data, Durability::Cached)).await
        }
        Some(stamped) => {
            let data = stamped.data.clone();
            // Stamping has taken time that is not the device's.
            let ended = timed(shared, None, session.device.write(extent, data, stamped.durability)).await;
            session.wrote(request, &stamped, ended.2.is_ok());
            payload.is_written(stamped.data);
            ended
        }
    };
    Ended { handed, returned, outcome: written.map_err(Failure::Device) }
}

/// Waits for a request and takes its time, counting it as under way meanwhile.
async fn timed<T>(
    shared: &Shared,
    time: Option<u64>,
    request: impl Future<Output = Result<T, DeviceError>>,
) -> (u64, Returned, Result<T, DeviceError>) {
    let handed = time.unwrap_or_else(|| shared.now());
    shared.tally.borrow_mut().handed(handed);
    let (mut request, mut waited) = (pin!(request), false);
    let outcome = poll_fn(|cx| {
        let polled = request.as_mut().poll(cx);
        waited |= polled.is_pending();
        polled
    })
    .await;
    let at = shared.now();
    shared.tally.borrow_mut().returned(at);
    (handed, Returned { at, waited }, outcome)
}
