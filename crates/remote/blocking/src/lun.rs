//! A LUN and the thread of its session.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use std::{io, thread};

use block::{
    BlockDevice, Buffer, DeviceError, Durability, Extent, Geometry, Profile, RangeLocks, Slice,
    bytewise,
};
use derive_more::Display;
use host::{Epoll, EpollOptions};
use iscsi_client::cdb::Cdb;
use iscsi_client::{
    CommandError, CommandResult, Discovered, Portal, RemoteLun, Settings, Statistics, Transfer, Url,
};
use reactor::{Receiver, Sender};

/// A logical unit of a target, usable from any thread and any async runtime.
///
/// All clones are the same LUN in the same session. When the last one is dropped and no request is
/// outstanding, the session logs out and its thread ends. [`Lun::close`] waits for that.
#[derive(Clone)]
pub struct Lun {
    orders: Sender<Order>,
    device: Arc<RemoteLun>,
    /// Locks of the blocks that are being written in part.
    locks: Arc<RangeLocks>,
}

/// An order for the session's thread.
enum Order {
    Run(Box<dyn FnOnce() + Send>),
    Close(Completer<(), Ended>),
}

impl Lun {
    /// Starts a thread, logs in to the target of `url` on it, and attaches the LUN.
    pub fn open(url: &Url) -> Request<Lun, OpenError> {
        let url = url.clone();
        on_a_thread(move |completer| async move {
            let mut opened = None;
            let opening = async {
                let device = Arc::new(iscsi_client::open(&url, random).await?);
                let (orders, received) = reactor::mailbox();
                opened = Some((Arc::clone(&device), received));
                Ok(Lun {
                    orders,
                    device,
                    locks: Arc::default(),
                })
            };
            completer.carry_out(opening).await;
            if let Some((device, received)) = opened {
                serve(device, received).await;
            }
        })
    }

    /// Capacity and block size. The capacity may grow: see [`Lun::refresh`].
    pub fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    /// The LUN's properties.
    pub fn profile(&self) -> Profile {
        self.device.profile()
    }

    /// The LUN in its session, for operations that have no method here. Its futures make progress only on the
    /// session's thread: see [`Lun::run`].
    pub fn remote(&self) -> &RemoteLun {
        &self.device
    }

    /// Fills `buffer`, whose length is that of the extent, and returns it.
    pub fn read(&self, extent: Extent, buffer: Buffer) -> Request<Buffer, DeviceError> {
        self.run(move |device| async move { device.read(extent, buffer).await })
    }

    /// Writes `data`, whose length is that of the extent.
    pub fn write(
        &self,
        extent: Extent,
        data: Slice,
        durability: Durability,
    ) -> Request<(), DeviceError> {
        let locks = Arc::clone(&self.locks);
        self.run(move |device| async move {
            let _with_others = locks.share(extent).await;
            device.write(extent, data, durability).await
        })
    }

    /// Reads the bytes of `range`, regardless of block boundaries.
    pub fn read_bytes(&self, range: Range<u64>) -> Request<Slice, DeviceError> {
        self.run(move |device| async move { bytewise::read(&*device, range).await })
    }

    /// Writes `data` at the byte `offset`. Blocks that are written in part are read first. During the call,
    /// this session's writes to other parts of the same block wait; writes of other initiators do not.
    pub fn write_bytes(&self, offset: u64, data: Slice) -> Request<(), DeviceError> {
        let locks = Arc::clone(&self.locks);
        self.run(move |device| async move {
            let end = offset
                .checked_add(data.len() as u64)
                .ok_or(DeviceError::OutOfRange)?;
            let extent = bytewise::covering(&*device, &(offset..end))?;
            debug_assert!(
                device.geometry().length(extent) >= data.len() as u64,
                "the blocks of a write cover its bytes"
            );
            if device.geometry().length(extent) == data.len() as u64 {
                let _with_others = locks.share(extent).await;
                return bytewise::write(&*device, offset, data).await;
            }
            let _alone = locks.exclude(extent).await;
            bytewise::write(&*device, offset, data).await
        })
    }

    /// Flushes all previously acknowledged writes to stable storage.
    pub fn flush(&self) -> Request<(), DeviceError> {
        self.run(|device| async move { device.flush().await })
    }

    /// Deallocates the blocks, which read as zeros afterwards.
    pub fn unmap(&self, extent: Extent) -> Request<(), DeviceError> {
        let locks = Arc::clone(&self.locks);
        self.run(move |device| async move {
            let _with_others = locks.share(extent).await;
            device.unmap(extent).await
        })
    }

    /// Zeroes the blocks. If `may_unmap` is set, deallocates them where possible.
    pub fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Request<(), DeviceError> {
        let locks = Arc::clone(&self.locks);
        self.run(move |device| async move {
            let _with_others = locks.share(extent).await;
            device.write_zeroes(extent, may_unmap).await
        })
    }

    /// Queries the target for a new capacity. Afterwards, [`Lun::geometry`] returns it.
    pub fn refresh(&self) -> Request<(), DeviceError> {
        self.run(|device| async move { device.refresh().await })
    }

    /// Sends a command unchanged, and returns the target's response, whatever its status. The command is not
    /// retried.
    pub fn command(&self, cdb: Cdb, transfer: Transfer) -> Request<CommandResult, CommandError> {
        self.run(move |device| async move { device.command(cdb, transfer).await })
    }

    /// The statistics of the session; `None` if the session is permanently lost.
    pub fn statistics(&self) -> Request<Option<Statistics>, Ended> {
        self.run(|device| async move { Ok(device.target().statistics().await) })
    }

    /// Runs the caller's future on the session's thread, where all of [`RemoteLun`]'s futures may be awaited.
    /// It must not block, because all requests of the session wait until it returns.
    pub fn run<T, E, F>(
        &self,
        work: impl FnOnce(Arc<RemoteLun>) -> F + Send + 'static,
    ) -> Request<T, E>
    where
        T: Send + 'static,
        E: From<Ended> + Send + 'static,
        F: Future<Output = Result<T, E>> + 'static,
    {
        let (request, completer) = request();
        let lun = self.clone(); // keeps the session open until the request has ended
        let order = Order::Run(Box::new(move || {
            let device = Arc::clone(&lun.device);
            reactor::spawn(async move {
                completer.carry_out(work(device)).await;
                drop(lun);
            });
        }));
        // If the thread has ended, the order is dropped, and the request fails.
        let _ = self.orders.send(order);
        request
    }

    /// Closes the LUN: ends outstanding requests with [`Ended`], logs out, and waits for the target's
    /// confirmation or the timeout.
    pub fn close(&self) -> Request<(), Ended> {
        let (request, completer) = request();
        let _ = self.orders.send(Order::Close(completer)); // if the LUN is already closed, the request fails
        request
    }
}

/// Lists the targets of a portal, on a thread that ends afterwards.
pub fn discover(portal: &Portal, settings: &Settings) -> Request<Vec<Discovered>, OpenError> {
    let (portal, settings) = (portal.clone(), settings.clone());
    run(async move || Ok(iscsi_client::discover(&portal, &settings, random).await?))
}

/// Runs the caller's future in a runtime environment on a new thread. The thread exits when the future
/// completes.
pub fn run<T, E, F>(work: impl FnOnce() -> F + Send + 'static) -> Request<T, E>
where
    T: Send + 'static,
    E: From<Ended> + From<io::Error> + Send + 'static,
    F: Future<Output = Result<T, E>>,
{
    on_a_thread(move |completer| completer.carry_out(work()))
}

fn on_a_thread<T, E, F>(work: impl FnOnce(Completer<T, E>) -> F + Send + 'static) -> Request<T, E>
where
    T: Send + 'static,
    E: From<Ended> + From<io::Error> + Send + 'static,
    F: Future<Output = ()>,
{
    let (started, completer) = request();
    let body = move || match Epoll::shared(EpollOptions::default()) {
        Ok(world) => reactor::block_on(world, work(completer)),
        Err(error) => completer.complete(Err(error.into())),
    };
    match thread::Builder::new()
        .name("linerate-session".to_owned())
        .spawn(body)
    {
        Ok(_) => started,
        Err(error) => {
            let (failed, completer) = request();
            completer.complete(Err(error.into()));
            failed
        }
    }
}

/// Executes orders until the last [`Lun`] is dropped, or one of them is closed.
async fn serve(device: Arc<RemoteLun>, mut orders: Receiver<Order>) {
    let closed = loop {
        match orders.recv().await {
            Some(Order::Run(start)) => start(),
            Some(Order::Close(completer)) => break Some(completer),
            None => break None,
        }
    };
    drop(orders); // later orders fail
    device.target().close().await;
    if let Some(completer) = closed {
        completer.complete(Ok(()));
    }
}

/// Fills `bytes` with random numbers, for session identifiers and CHAP challenges.
fn random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the system has random numbers once it has started");
}

// Errors of the session's thread.

/// The session's thread has ended: the LUN was closed, or the thread has panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[display("the session is closed")]
pub struct Ended;

impl std::error::Error for Ended {}

impl From<Ended> for DeviceError {
    fn from(_: Ended) -> DeviceError {
        DeviceError::NotReady
    }
}

impl From<Ended> for CommandError {
    fn from(_: Ended) -> CommandError {
        CommandError::ConnectionLost
    }
}

/// Why a session could not be opened, or a discovery failed.
#[derive(Debug, Display)]
pub enum OpenError {
    /// The system cannot create a thread or an epoll instance.
    #[display("cannot start a thread for the session: {_0}")]
    System(io::Error),
    /// The initiator's error.
    Open(iscsi_client::OpenError),
    /// The session's thread has panicked.
    Ended(Ended),
}

impl std::error::Error for OpenError {}

impl From<Ended> for OpenError {
    fn from(error: Ended) -> OpenError {
        OpenError::Ended(error)
    }
}

impl From<iscsi_client::OpenError> for OpenError {
    fn from(error: iscsi_client::OpenError) -> OpenError {
        OpenError::Open(error)
    }
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> OpenError {
        OpenError::System(error)
    }
}

// A request is a slot for the outcome, shared by the requester and the session's thread. Each of the two has
// a waker in the slot.

/// An outstanding request. It is executed even if it is not polled. Dropping it cancels it, like a request of
/// a [`block::BlockDevice`].
///
/// A future for any executor; [`Request::wait`] blocks a thread instead.
#[must_use = "dropping a request cancels it"]
pub struct Request<T, E> {
    slot: Arc<Slot<T, E>>,
}

struct Slot<T, E> {
    state: Mutex<State<T, E>>,
    has_ended: Condvar,
}

struct State<T, E> {
    outcome: Option<Result<T, E>>,
    /// Wakes the requester, which waits for the outcome.
    requester: Option<Waker>,
    /// Wakes the task that executes the request.
    worker: Option<Waker>,
    /// The requester has dropped the request.
    is_abandoned: bool,
}

impl<T, E> Slot<T, E> {
    fn lock(&self) -> MutexGuard<'_, State<T, E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner) // no foreign code runs under the lock
    }
}

/// Creates a request, and the completer that ends it.
pub(crate) fn request<T, E: From<Ended>>() -> (Request<T, E>, Completer<T, E>) {
    let state = State {
        outcome: None,
        requester: None,
        worker: None,
        is_abandoned: false,
    };
    let slot = Arc::new(Slot {
        state: Mutex::new(state),
        has_ended: Condvar::new(),
    });
    (
        Request {
            slot: Arc::clone(&slot),
        },
        Completer { slot },
    )
}

impl<T, E> Request<T, E> {
    /// Blocks this thread until the request ends. Do not call it on the session's own thread. Tasks of an
    /// async runtime should await the request instead.
    ///
    /// # Errors
    /// Errors of the request.
    pub fn wait(self) -> Result<T, E> {
        let mut state = self.slot.lock();
        loop {
            match state.outcome.take() {
                Some(outcome) => return outcome,
                None => {
                    state = self
                        .slot
                        .has_ended
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner)
                }
            }
        }
    }

    /// Like [`Request::wait`], but waits for at most `time`. After that, returns the request, which is still
    /// outstanding.
    ///
    /// # Errors
    /// The request itself, if it is still outstanding.
    pub fn wait_for(self, time: Duration) -> Result<Result<T, E>, Request<T, E>> {
        let until = Instant::now() + time;
        let mut state = self.slot.lock();
        loop {
            if let Some(outcome) = state.outcome.take() {
                return Ok(outcome);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(state);
                return Err(self);
            }
            let waited = self.slot.has_ended.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl<T, E> Future for Request<T, E> {
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, E>> {
        let mut state = self.slot.lock();
        match state.outcome.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                state.requester = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T, E> Drop for Request<T, E> {
    fn drop(&mut self) {
        let mut state = self.slot.lock();
        state.is_abandoned = true;
        let worker = state.worker.take();
        drop(state);
        if let Some(worker) = worker {
            worker.wake();
        }
    }
}

/// Delivers the outcome to the requester. If it is dropped without one, the request fails with [`Ended`].
pub(crate) struct Completer<T, E: From<Ended>> {
    slot: Arc<Slot<T, E>>,
}

impl<T, E: From<Ended>> Completer<T, E> {
    pub(crate) fn complete(&self, outcome: Result<T, E>) {
        let mut state = self.slot.lock();
        if state.outcome.is_none() && !state.is_abandoned {
            state.outcome = Some(outcome);
        }
        state.worker = None;
        let requester = state.requester.take();
        drop(state);
        self.slot.has_ended.notify_all();
        if let Some(requester) = requester {
            requester.wake();
        }
    }

    /// Runs `work`, unless the requester drops the request first.
    pub(crate) async fn carry_out(self, work: impl Future<Output = Result<T, E>>) {
        let mut work = std::pin::pin!(work);
        let ended = std::future::poll_fn(|cx| {
            {
                let mut state = self.slot.lock();
                if state.is_abandoned {
                    return Poll::Ready(None);
                }
                state.worker = Some(cx.waker().clone());
            }
            work.as_mut().poll(cx).map(Some)
        });
        if let Some(outcome) = ended.await {
            self.complete(outcome);
        }
    }
}

impl<T, E: From<Ended>> Drop for Completer<T, E> {
    fn drop(&mut self) {
        let is_open = {
            let state = self.slot.lock();
            state.outcome.is_none() && !state.is_abandoned
        };
        if is_open {
            self.complete(Err(E::from(Ended)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use reactor::{Alone, block_on};

    use super::*;

    #[test]
    fn a_thread_without_an_executor_waits_for_the_outcome() {
        let (request, completer) = request::<u32, Ended>();
        let other = thread::spawn(move || completer.complete(Ok(7)));
        assert_eq!(request.wait(), Ok(7));
        other.join().expect("no panic");
    }

    #[test]
    fn a_request_that_is_not_over_in_time_is_still_outstanding() {
        let (request, completer) = request::<u32, Ended>();
        let Err(request) = request.wait_for(Duration::from_millis(1)) else {
            panic!("it has not ended")
        };
        completer.complete(Ok(7));
        assert!(matches!(request.wait_for(Duration::ZERO), Ok(Ok(7))));
    }

    #[test]
    fn a_task_of_any_executor_is_woken_by_the_outcome() {
        let (request, completer) = request::<u32, Ended>();
        let other = thread::spawn(move || completer.complete(Ok(7)));
        // This test uses `reactor` in place of any other executor: an executor interacts with a request only
        // through the waker.
        assert_eq!(block_on(Alone::real_time(), request), Ok(7));
        other.join().expect("no panic");
    }

    #[test]
    fn a_request_whose_thread_ends_fails() {
        let (request, completer) = request::<u32, Ended>();
        drop(completer);
        assert_eq!(request.wait(), Err(Ended));
    }

    #[test]
    fn a_request_that_is_dropped_ends_its_work() {
        let (request, completer) = request::<u32, Ended>();
        let (work, (sender, begun)) = (Arc::new(()), std::sync::mpsc::channel());
        let held = Arc::clone(&work);
        let worker = thread::spawn(move || {
            block_on(
                Alone::real_time(),
                completer.carry_out(async move {
                    let _held = held;
                    let _ = sender.send(()); // the test may have failed already
                    std::future::pending().await
                }),
            );
        });
        assert_eq!(begun.recv(), Ok(()), "the work has begun");
        drop(request);
        worker.join().expect("the work has ended");
        assert!(Arc::into_inner(work).is_some(), "the work was dropped");
    }
}
