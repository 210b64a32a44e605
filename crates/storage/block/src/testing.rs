//! A device, a clock and an executor for testing layers, and tests with several concurrent users.

use std::cell::RefCell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use crate::buffer::{Buffer, Slice};
use crate::device::{Allocation, BlockDevice, DeviceError, Durability, Pending, Profile, Run};
use crate::extent::{BlockSize, Blocks, Extent, Geometry};
use crate::forward;
use crate::lock::{Lock, LockGuard};
use crate::losses::Losses;
use crate::random::Random;
use crate::tasks::{Sleeper, Spawner};

pub(crate) fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

pub(crate) fn ready<F: Future>(future: F) -> F::Output {
    poll(pin!(future)).expect("ready immediately")
}

/// A clock that advances only when [`ManualClock::pass`] is called.
pub(crate) struct ManualClock {
    now: Arc<Lock<Instant>>,
}

impl Default for ManualClock {
    fn default() -> ManualClock {
        ManualClock {
            now: Arc::new(Lock::new(Instant::now())),
        }
    }
}

impl ManualClock {
    pub(crate) fn pass(&self, time: Duration) {
        *self.now.lock() += time;
    }
}

impl Sleeper for ManualClock {
    fn now(&self) -> Instant {
        *self.now.lock()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()>>> {
        let now = Arc::clone(&self.now);
        let end = *now.lock() + duration;
        Box::pin(std::future::poll_fn(move |_| {
            if *now.lock() >= end {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }))
    }
}

/// A device with its blocks in a vector. Each request completes in its first poll.
pub(crate) struct Memory {
    state: Lock<(Vec<u8>, Vec<Extent>)>,
    block_size: BlockSize,
    blocks: u64,
}

impl Memory {
    pub(crate) fn new(blocks: u64) -> Memory {
        Memory::with_block_size(BlockSize::B512, blocks)
    }

    pub(crate) fn with_block_size(block_size: BlockSize, blocks: u64) -> Memory {
        let bytes = vec![0; (blocks << block_size.shift()) as usize];
        Memory {
            state: Lock::new((bytes, Vec::new())),
            block_size,
            blocks,
        }
    }

    pub(crate) fn byte(&self, at: usize) -> u8 {
        self.state().0[at]
    }

    /// Changes a byte without a request.
    pub(crate) fn corrupt(&self, at: usize) {
        self.state().0[at] ^= 0xff;
    }

    pub(crate) fn requests(&self) -> usize {
        self.state().1.len()
    }

    /// Returns the number of blocks of each request, in order.
    pub(crate) fn lengths(&self) -> Vec<u64> {
        self.state()
            .1
            .iter()
            .map(|extent| extent.blocks.0)
            .collect()
    }

    fn state(&self) -> LockGuard<'_, (Vec<u8>, Vec<Extent>)> {
        self.state.lock()
    }

    fn with<'a, T: 'a>(
        &'a self,
        extent: Extent,
        act: impl FnOnce(&mut [u8]) -> T + 'a,
    ) -> Pending<'a, T> {
        Box::pin(async move {
            if !self.geometry().contains(extent) {
                return Err(DeviceError::OutOfRange);
            }
            let mut state = self.state();
            state.1.push(extent);
            let geometry = self.geometry();
            let start = geometry.offset(extent) as usize;
            Ok(act(
                &mut state.0[start..start + geometry.length(extent) as usize]
            ))
        })
    }
}

impl BlockDevice for Memory {
    fn geometry(&self) -> Geometry {
        Geometry {
            block_size: self.block_size,
            blocks: Blocks(self.blocks),
            physical_exponent: 0,
        }
    }

    fn profile(&self) -> Profile {
        Profile {
            read_only: false,
            thin: true,
            granularity: Blocks(1),
            volatile_cache: true,
            durable: false,
            solid_state: true,
            optimal_transfer: None,
            loses_unseen: false,
        }
    }

    fn losses(&self) -> Losses {
        Losses::NONE
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn read(&self, extent: Extent, mut buffer: Buffer) -> Pending<'_, Buffer> {
        self.with(extent, move |bytes| {
            buffer.copy_from_slice(bytes);
            buffer
        })
    }

    fn write(&self, extent: Extent, data: Slice, _: Durability) -> Pending<'_, ()> {
        self.with(extent, move |bytes| bytes.copy_from_slice(&data))
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.with(Extent::new(0, 0), |_| ())
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        self.with(extent, |bytes| bytes.fill(0))
    }

    fn write_zeroes(&self, extent: Extent, _: bool) -> Pending<'_, ()> {
        self.unmap(extent)
    }

    fn allocation(&self, extent: Extent, _: usize) -> Pending<'_, Vec<Run>> {
        let run = Run {
            extent,
            allocation: Allocation::Mapped,
        };
        self.with(extent, move |_| {
            if extent.is_empty() {
                Vec::new()
            } else {
                vec![run]
            }
        })
    }
}

#[derive(Clone, Debug)]
pub(crate) enum TestRequest {
    Read,
    Write(u8),
    WriteStable(u8),
    Flush,
    Unmap,
    Zero,
    Allocation,
}

pub(crate) fn requests() -> impl Strategy<Value = (TestRequest, u64, u64)> {
    let request = prop_oneof![
        4 => Just(TestRequest::Read),
        5 => any::<u8>().prop_map(TestRequest::Write),
        1 => any::<u8>().prop_map(TestRequest::WriteStable),
        1 => Just(TestRequest::Flush),
        1 => Just(TestRequest::Unmap),
        1 => Just(TestRequest::Zero),
        1 => Just(TestRequest::Allocation),
    ];
    (request, 0u64..60, 0u64..14)
}

async fn carry_out(device: &impl BlockDevice, (request, lba, blocks): (TestRequest, u64, u64)) {
    // A few requests exceed the end of the device, and fail.
    let extent = Extent::new(lba, blocks);
    let _ = match request {
        TestRequest::Read => device
            .read(extent, Buffer::zeroed(blocks as usize * 512))
            .await
            .map(drop),
        TestRequest::Write(byte) => {
            device
                .write(extent, filled(byte, blocks), Durability::Cached)
                .await
        }
        TestRequest::WriteStable(byte) => {
            device
                .write(extent, filled(byte, blocks), Durability::Stable)
                .await
        }
        TestRequest::Flush => device.flush().await,
        TestRequest::Unmap => device.unmap(extent).await,
        TestRequest::Zero => device.write_zeroes(extent, false).await,
        TestRequest::Allocation => device.allocation(extent, 1).await.map(drop),
    };
}

/// Returns whether all requests of several concurrent users end. The last user drops its requests after
/// `polls_max` polls.
pub(crate) fn all_end(
    device: &impl BlockDevice,
    users: Vec<Vec<(TestRequest, u64, u64)>>,
    polls_max: Option<u64>,
) -> bool {
    let alone = |requests: Vec<(TestRequest, u64, u64)>| -> Task<'_> {
        Box::pin(async move {
            for request in requests {
                carry_out(device, request).await;
            }
        })
    };
    let mut tasks: Vec<Task<'_>> = users.into_iter().map(alone).collect();
    if let Some(polls) = polls_max {
        let last = tasks.pop().expect("at least one");
        tasks.push(Box::pin(with_poll_limit(polls, last)));
    }
    run(tasks).is_empty()
}

pub(crate) fn filled(byte: u8, blocks: u64) -> Slice {
    Buffer::from(&vec![byte; blocks as usize * 512][..]).share()
}

pub(crate) fn read<D: BlockDevice>(device: &D, lba: u64, blocks: u64) -> Buffer {
    let buffer = Buffer::zeroed(blocks as usize * 512);
    end(device.read(Extent::new(lba, blocks), buffer)).expect("readable")
}

/// A device that yields a random number of times before and after each request.
pub(crate) struct SlowDevice(pub(crate) Memory);

async fn random_yields() {
    for _ in 0..draw(4) {
        let mut waited = false;
        std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            if std::mem::replace(&mut waited, true) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

impl SlowDevice {
    fn later<'a, T: 'a>(&'a self, request: Pending<'a, T>) -> Pending<'a, T> {
        Box::pin(async move {
            random_yields().await;
            let result = request.await;
            random_yields().await;
            result
        })
    }
}

impl BlockDevice for SlowDevice {
    forward!(self => self.0; geometry, profile, losses, quiesced);

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        self.later(self.0.read(extent, buffer))
    }
    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        self.later(self.0.write(extent, data, durability))
    }
    fn flush(&self) -> Pending<'_, ()> {
        self.later(self.0.flush())
    }
    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        self.later(self.0.unmap(extent))
    }
    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        self.later(self.0.write_zeroes(extent, may_unmap))
    }
    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        self.later(self.0.allocation(extent, runs_max))
    }
}

pub(crate) type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

thread_local! {
    static SPAWNED: RefCell<Vec<Task<'static>>> = const { RefCell::new(Vec::new()) };
    static RANDOM: RefCell<Random> = RefCell::new(Random::new(1));
}

/// Returns a random number below `below`.
pub(crate) fn draw(below: u64) -> u64 {
    RANDOM.with_borrow_mut(|random| random.below(below))
}

/// Sets the random seed of this thread.
pub(crate) fn seed(number: u64) {
    RANDOM.set(Random::new(number));
}

pub(crate) struct LocalSpawner;

impl Spawner for LocalSpawner {
    fn spawn(&self, task: Task<'static>) {
        SPAWNED.with_borrow_mut(|tasks| tasks.push(task));
    }
}

/// Runs the given tasks, and tasks that they spawn, until no task is woken. Returns the tasks that have not
/// ended.
pub(crate) fn run<'a>(users: Vec<Task<'a>>) -> Vec<Task<'a>> {
    let mut tasks: Vec<(bool, Task<'a>, Arc<Woken>)> = Vec::new();
    let start = |task, user| (user, task, Arc::new(Woken(AtomicBool::new(true))));
    tasks.extend(users.into_iter().map(|task| start(task, true)));
    loop {
        tasks.extend(
            SPAWNED
                .take()
                .into_iter()
                .map(|task| start(task as Task<'a>, false)),
        );
        let woken: Vec<usize> = (0..tasks.len())
            .filter(|at| tasks[*at].2.0.load(Ordering::SeqCst))
            .collect();
        if woken.is_empty() {
            break;
        }
        let at = woken[draw(woken.len() as u64) as usize];
        let (_, task, flag) = &mut tasks[at];
        flag.0.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(flag));
        if task
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_ready()
        {
            drop(tasks.remove(at));
        }
    }
    tasks.into_iter().map(|(_, task, _)| task).collect()
}

/// Runs one request to completion. Panics if it does not complete.
pub(crate) fn end<T>(request: Pending<'_, T>) -> Result<T, DeviceError> {
    let result = RefCell::new(None);
    let left = run(vec![Box::pin(async {
        *result.borrow_mut() = Some(request.await)
    })]);
    drop(left);
    result.into_inner().expect("it comes to its end")
}

/// Polls `task` at most `polls` times, then drops it.
pub(crate) async fn with_poll_limit(mut polls: u64, mut task: Task<'_>) {
    std::future::poll_fn(|context| {
        polls = polls.saturating_sub(1);
        if polls == 0 {
            Poll::Ready(())
        } else {
            task.as_mut().poll(context)
        }
    })
    .await;
}
