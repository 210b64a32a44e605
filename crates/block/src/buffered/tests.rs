//! Scenes with an executor that wakes nobody who was not woken, in an order drawn by lot.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use proptest::prelude::*;

use super::*;
use crate::testing::{ManualClock, Memory};
use crate::{Checked, Fault, FaultControl, Lba, Misbehaviour, Requests, Rule};

type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

thread_local! {
    static SPAWNED: RefCell<Vec<Task<'static>>> = const { RefCell::new(Vec::new()) };
    static LOT: Cell<u64> = const { Cell::new(1) };
}

/// A number below `below`: xorshift64 (Marsaglia, 2003).
fn draw(below: u64) -> u64 {
    LOT.with(|lot| {
        let mut x = lot.get().max(1);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        lot.set(x);
        x % below
    })
}

struct Here;

impl Spawner for Here {
    fn spawn(&self, task: Task<'static>) {
        SPAWNED.with_borrow_mut(|tasks| tasks.push(task));
    }
}

/// Runs those given to their ends and whatever they spawn as long as anything is woken; gives back what still waits.
fn run<'a>(users: Vec<Task<'a>>) -> Vec<Task<'a>> {
    let mut tasks: Vec<(bool, Task<'a>, Arc<Woken>)> = Vec::new();
    let start = |task, user| (user, task, Arc::new(Woken(AtomicBool::new(true))));
    tasks.extend(users.into_iter().map(|task| start(task, true)));
    loop {
        tasks.extend(SPAWNED.take().into_iter().map(|task| start(task as Task<'a>, false)));
        let woken: Vec<usize> = (0..tasks.len()).filter(|at| tasks[*at].2.0.load(Ordering::SeqCst)).collect();
        if woken.is_empty() {
            break;
        }
        let at = woken[draw(woken.len() as u64) as usize];
        let (_, task, flag) = &mut tasks[at];
        flag.0.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(flag));
        if task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            drop(tasks.remove(at));
        }
    }
    tasks.into_iter().map(|(_, task, _)| task).collect()
}

/// Runs one request to its end; panics if it never would.
fn end<T>(request: Pending<'_, T>) -> Result<T, DeviceError> {
    let result = RefCell::new(None);
    let left = run(vec![Box::pin(async { *result.borrow_mut() = Some(request.await) })]);
    drop(left);
    result.into_inner().expect("it comes to its end")
}

/// 4 KiB at once, 16 KiB in all.
const WINDOW: Window = Window { bytes: 16 << 10, request_bytes: 4 << 10 };

fn over<D: BlockDevice + 'static>(inner: D) -> Buffered<D> {
    Buffered::new(inner, WINDOW, Arc::new(Here))
}

/// So little memory that chunks come and go.
fn cramped<D: BlockDevice + 'static>(inner: D) -> Buffered<D> {
    let sizes = Sizes { chunks_kept: 3, ..WINDOW.sizes(inner.geometry()) };
    Buffered { traffic: Traffic::new(inner, sizes, Arc::new(Here)), streams: Mutex::default(), sizes }
}

fn filled(byte: u8, blocks: u64) -> Slice {
    Buffer::from(&vec![byte; blocks as usize * 512][..]).share()
}

fn read<D: BlockDevice>(device: &D, lba: u64, blocks: u64) -> Buffer {
    let buffer = Buffer::zeroed(blocks as usize * 512);
    end(device.read(Extent::new(lba, blocks), buffer)).expect("readable")
}

fn write<D: BlockDevice>(device: &D, lba: u64, byte: u8) {
    end(device.write(Extent::new(lba, 1), filled(byte, 1), Durability::Cached)).expect("taken");
}

fn hanging() -> (Buffered<Fault<Memory>>, FaultControl) {
    let control = FaultControl::default();
    (over(Fault::new(Memory::new(128), Arc::new(ManualClock::default()), control.clone())), control)
}

#[test]
fn who_reads_one_after_the_other_is_read_ahead_of() {
    let device = over(Memory::new(128));
    read(&device, 0, 1);
    assert_eq!(device.traffic.inner.lengths(), [1], "once is no sequence");
    read(&device, 1, 1);
    assert_eq!(device.traffic.inner.lengths(), [1, 7, 8, 8, 8, 8], "its chunk, and a window");
    (2..8).for_each(|lba| drop(read(&device, lba, 1)));
    assert_eq!(device.traffic.inner.requests(), 6);
    read(&device, 8, 1);
    assert_eq!(device.traffic.inner.lengths()[6..], [8], "the window moves on");
}

#[test]
fn reads_here_and_there_are_as_long_as_asked_for() {
    let device = over(Memory::new(128));
    [90, 10, 50].into_iter().for_each(|lba| drop(read(&device, lba, 2)));
    assert_eq!(device.traffic.inner.lengths(), [2, 2, 2]);
}

#[test]
fn a_long_read_is_made_of_requests_side_by_side() {
    let (device, control) = hanging();
    control.hang();
    let long = device.read(Extent::new(4, 100), Buffer::zeroed(100 * 512));
    let left = run(vec![Box::pin(async { drop(long.await) })]);
    assert_eq!(control.counts().hanging, 5, "one that is waited for, and a window");
    drop(left);
}

#[test]
fn writes_are_answered_from_memory_and_gathered() {
    let device = over(Memory::new(128));
    (0..7).for_each(|lba| write(&device, lba, 1));
    assert_eq!(device.traffic.inner.requests(), 0);
    write(&device, 7, 1);
    assert_eq!(device.traffic.inner.lengths(), [8]);
    write(&device, 8, 2);
    assert_eq!(read(&device, 8, 1)[0], 2);
    assert_eq!(end(device.flush()), Ok(()));
    assert_eq!(device.traffic.inner.lengths(), [8, 1, 0]);
    assert_eq!([device.traffic.inner.byte(7 * 512), device.traffic.inner.byte(8 * 512)], [1, 2]);
}

#[test]
fn no_more_than_a_window_is_written_behind() {
    let (device, control) = hanging();
    control.hang();
    (0..32).for_each(|lba| write(&device, lba, 1));
    let more = device.write(Extent::new(32, 1), filled(1, 1), Durability::Cached);
    let left = run(vec![Box::pin(async { more.await.expect("taken") })]);
    assert!(!left.is_empty(), "it waits for room");
    control.pass();
    run(left);
    assert_eq!(read(&device, 32, 1)[0], 1);
}

#[test]
fn writes_here_and_there_make_room_for_each_other() {
    let device = over(Memory::new(1024));
    (0..64).for_each(|number| write(&device, number * 16, 1));
    assert!(device.traffic.inner.requests() >= 32);
    end(device.flush()).expect("flushed");
    assert!((0..64).all(|number| device.traffic.inner.byte(number * 16 * 512) == 1));
}

#[test]
fn a_stable_write_has_reached_the_device_when_it_ends() {
    let device = over(Memory::new(128));
    end(device.write(Extent::new(3, 1), filled(7, 1), Durability::Stable)).expect("written");
    assert_eq!(device.traffic.inner.byte(3 * 512), 7);
}

#[test]
fn what_was_taken_and_lost_is_told_by_the_next_flush_and_once() {
    let (device, control) = hanging();
    write(&device, 0, 1);
    let misbehaviour = Misbehaviour::Fail(DeviceError::Unwritable(Lba(0)));
    control.set([Rule { requests: Requests::Writes, within: None, misbehaviour }]);
    assert_eq!(end(device.flush()), Err(DeviceError::Unwritable(Lba(0))));
    control.pass();
    assert_eq!(end(device.flush()), Ok(()));
    assert_eq!(read(&device, 0, 1)[0], 0, "what the device has, not what it should have");
}

#[test]
fn a_read_that_fails_says_so_and_one_that_was_ahead_does_not() {
    let (device, control) = hanging();
    let misbehaviour = Misbehaviour::Fail(DeviceError::Unreadable(Lba(16)));
    control.set([Rule { requests: Requests::Reads, within: Some(Extent::new(16, 1)), misbehaviour }]);
    (0..16).for_each(|lba| drop(read(&device, lba, 1)));
    let failed = end(device.read(Extent::new(16, 1), Buffer::zeroed(512)));
    assert_eq!(failed.err(), Some(DeviceError::Unreadable(Lba(16))));
}

#[test]
fn a_reader_that_goes_away_leaves_the_load_to_others() {
    let (device, control) = hanging();
    control.hang();
    let first = device.read(Extent::new(0, 1), Buffer::zeroed(512));
    drop(run(vec![Box::pin(async { drop(first.await) })]));
    control.pass();
    assert_eq!(read(&device, 0, 1)[0], 0);
}

#[test]
fn what_a_thread_left_undone_is_done_by_who_flushes() {
    let (device, control) = hanging();
    control.hang();
    let taken = device.write(Extent::new(0, 8), filled(1, 8), Durability::Cached);
    // The thread's world ends, and with it what it was writing behind.
    drop(run(vec![Box::pin(async { taken.await.expect("taken") })]));
    control.pass();
    assert_eq!(end(device.flush()), Ok(()));
    assert_eq!(control.counts().passed, 2, "the write again, and the flush");
}

#[test]
fn what_is_not_there_is_refused() {
    let device = over(Memory::new(128));
    let beyond = Extent::new(127, 2);
    assert_eq!(end(device.read(beyond, Buffer::zeroed(1024))).err(), Some(DeviceError::OutOfRange));
    assert_eq!(end(device.unmap(Extent::new(u64::MAX, 2))), Err(DeviceError::OutOfRange));
    let short = device.write(Extent::new(0, 2), filled(1, 1), Durability::Cached);
    assert_eq!(end(short), Err(DeviceError::OutOfRange));
    assert_eq!(end(device.read(Extent::new(5, 0), Buffer::zeroed(0))).map(|buffer| buffer.len()), Ok(0));
}

/// Takes its time before it does something, and before it says so.
struct Dawdling(Memory);

async fn dawdle() {
    for _ in 0..draw(4) {
        let mut waited = false;
        std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Dawdling {
    fn later<'a, T: 'a>(&'a self, request: Pending<'a, T>) -> Pending<'a, T> {
        Box::pin(async move {
            dawdle().await;
            let result = request.await;
            dawdle().await;
            result
        })
    }
}

impl BlockDevice for Dawdling {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }
    fn profile(&self) -> Profile {
        self.0.profile()
    }
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

#[derive(Clone, Debug)]
enum Ask {
    Read,
    Write(u8),
    WriteStable(u8),
    Flush,
    Unmap,
    Zero,
    Allocation,
}

fn asks() -> impl Strategy<Value = (Ask, u64, u64)> {
    let ask = prop_oneof![
        4 => Just(Ask::Read),
        5 => any::<u8>().prop_map(Ask::Write),
        1 => any::<u8>().prop_map(Ask::WriteStable),
        1 => Just(Ask::Flush),
        1 => Just(Ask::Unmap),
        1 => Just(Ask::Zero),
        1 => Just(Ask::Allocation),
    ];
    (ask, 0u64..60, 0u64..14)
}

async fn carry_out(device: &impl BlockDevice, (ask, lba, blocks): (Ask, u64, u64)) {
    // A few of them pass the end, and are refused.
    let extent = Extent::new(lba, blocks);
    let _ = match ask {
        Ask::Read => device.read(extent, Buffer::zeroed(blocks as usize * 512)).await.map(drop),
        Ask::Write(byte) => device.write(extent, filled(byte, blocks), Durability::Cached).await,
        Ask::WriteStable(byte) => device.write(extent, filled(byte, blocks), Durability::Stable).await,
        Ask::Flush => device.flush().await,
        Ask::Unmap => device.unmap(extent).await,
        Ask::Zero => device.write_zeroes(extent, false).await,
        Ask::Allocation => device.allocation(extent, 1).await.map(drop),
    };
}

/// Polls `task` so often, and then drops it.
async fn at_most(mut polls: u64, mut task: Task<'_>) {
    std::future::poll_fn(|context| {
        polls = polls.saturating_sub(1);
        if polls == 0 { Poll::Ready(()) } else { task.as_mut().poll(context) }
    })
    .await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn whatever_overlaps_reads_find_what_was_last_written(
        users in prop::collection::vec(prop::collection::vec(asks(), 1..12), 1..5),
        patience in prop::option::of(1u64..40),
        seed in any::<u64>(),
    ) {
        LOT.set(seed);
        let inner = Checked::new(Dawdling(Memory::new(64)));
        let device = Checked::new(if seed % 2 == 0 { over(inner) } else { cramped(inner) });
        let alone = |asks: Vec<(Ask, u64, u64)>| -> Task<'_> {
            let device = &device;
            Box::pin(async move {
                for ask in asks {
                    carry_out(device, ask).await;
                }
            })
        };
        let mut tasks: Vec<Task<'_>> = users.into_iter().map(alone).collect();
        if let Some(polls) = patience {
            let last = tasks.pop().expect("at least one");
            tasks.push(Box::pin(at_most(polls, last)));
        }
        prop_assert!(run(tasks).is_empty(), "somebody waits for ever");
        end(device.quiesced()).expect("fenced");
        let all = read(&device, 0, 64);
        end(device.flush()).expect("flushed");
        let kept = read(device.inner().traffic.inner.inner(), 0, 64);
        prop_assert!(*all == *kept, "after a flush the device has what reads find");
        prop_assert_eq!(device.inner().traffic.inner.open(), 0);
    }
}
