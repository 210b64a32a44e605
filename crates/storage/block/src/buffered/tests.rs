//! Tests on an executor that polls only woken tasks, in random order.

use std::cell::Cell;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::checked::Checked;
use crate::extent::Lba;
use crate::fault::{Fault, FaultAction, FaultControl, Requests, Rule};
use crate::testing::{
    LocalSpawner, ManualClock, Memory, SlowDevice, all_end, end, filled, read, requests, run, seed,
};

/// Requests of 4 KiB, windows of 16 KiB.
const WINDOW: Window = Window {
    bytes: 16 << 10,
    request_bytes: 4 << 10,
};

const NO_SPACE: FaultAction = FaultAction::Fail(DeviceError::NoSpace);

fn over<D: BlockDevice + 'static>(inner: D) -> Buffered<D> {
    Buffered::new(inner, WINDOW, Arc::new(LocalSpawner))
}

/// Returns a device with such a small cache that chunks are evicted and loaded again.
fn cramped<D: BlockDevice + 'static>(inner: D) -> Buffered<D> {
    let sizes = Sizes {
        chunks_kept: 3,
        ..WINDOW.sizes(inner.geometry())
    };
    Buffered {
        traffic: Traffic::new(inner, sizes, Arc::new(LocalSpawner)),
        streams: Lock::default(),
        sizes,
    }
}

fn write<D: BlockDevice>(device: &D, lba: u64, byte: u8) {
    end(device.write(Extent::new(lba, 1), filled(byte, 1), Durability::Cached)).expect("taken");
}

fn hanging() -> (Buffered<Fault<Memory>>, FaultControl) {
    let control = FaultControl::default();
    (
        over(Fault::new(
            Memory::new(128),
            Arc::new(ManualClock::default()),
            control.clone(),
        )),
        control,
    )
}

#[test]
fn who_reads_one_after_the_other_is_read_ahead_of() {
    let device = over(Memory::new(128));
    read(&device, 0, 1);
    assert_eq!(device.traffic.inner.lengths(), [1], "once is no sequence");
    read(&device, 1, 1);
    assert_eq!(
        device.traffic.inner.lengths(),
        [1, 7, 8, 8, 8, 8],
        "its chunk, and a window"
    );
    (2..8).for_each(|lba| drop(read(&device, lba, 1)));
    assert_eq!(device.traffic.inner.requests(), 6);
    read(&device, 8, 1);
    assert_eq!(
        device.traffic.inner.lengths()[6..],
        [8],
        "the window moves on"
    );
}

#[test]
fn reads_here_and_there_are_as_long_as_asked_for() {
    let device = over(Memory::new(128));
    [90, 10, 50]
        .into_iter()
        .for_each(|lba| drop(read(&device, lba, 2)));
    assert_eq!(device.traffic.inner.lengths(), [2, 2, 2]);
}

#[test]
fn a_long_read_is_made_of_requests_side_by_side() {
    let (device, control) = hanging();
    control.hang();
    let long = device.read(Extent::new(4, 100), Buffer::zeroed(100 * 512));
    let left = run(vec![Box::pin(async { drop(long.await) })]);
    assert_eq!(
        control.counts().hanging,
        5,
        "one that is waited for, and a window"
    );
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
    assert_eq!(
        [
            device.traffic.inner.byte(7 * 512),
            device.traffic.inner.byte(8 * 512)
        ],
        [1, 2]
    );
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
fn what_was_taken_and_lost_is_told_by_the_flush_that_finds_it_and_is_counted() {
    let (device, control) = hanging();
    write(&device, 0, 1);
    let action = FaultAction::Fail(DeviceError::Unwritable(Lba(0)));
    control.set([Rule {
        requests: Requests::Writes,
        within: None,
        action,
    }]);
    assert_eq!(end(device.flush()), Err(DeviceError::WritesLost));
    assert_eq!(device.losses().count(), 1);
    control.pass();
    assert_eq!(end(device.flush()), Ok(()));
    assert_eq!(
        read(&device, 0, 1)[0],
        0,
        "what the device has, not what it should have"
    );
}

#[test]
fn what_was_lost_behind_a_writer_is_counted_before_anybody_flushes() {
    let (device, control) = hanging();
    let action = FaultAction::Fail(DeviceError::NoSpace);
    control.set([Rule {
        requests: Requests::Writes,
        within: None,
        action,
    }]);
    (0..8).for_each(|lba| write(&device, lba, 1)); // a full chunk, which is written back now
    assert_eq!(device.losses().count(), 1);
    control.pass();
    assert_eq!(
        end(device.flush()),
        Ok(()),
        "it fails for what fails while it is under way"
    );
    assert_eq!(device.losses().count(), 1);
}

/// The first chunk of the write is written back, and lost, while the second chunk waits for space.
#[test]
fn a_stable_write_fails_if_a_part_of_it_was_lost_before_all_of_it_was_taken() {
    let (device, control) = hanging();
    control.hang();
    (16..40).for_each(|lba| write(&device, lba, 1)); // a window minus one chunk
    let ended = Cell::new(None);
    let stable = device.write(Extent::new(0, 16), filled(7, 16), Durability::Stable);
    let left = run(vec![Box::pin(async { ended.set(Some(stable.await)) })]);
    let first = Some(Extent::new(0, 8));
    let lost = Rule {
        requests: Requests::Writes,
        within: first,
        action: NO_SPACE,
    };
    control.set([lost, Rule::all(FaultAction::Hang)]);
    let left = run(left);
    assert_eq!((ended.get(), device.losses().count()), (None, 1));
    control.pass();
    drop(run(left));
    assert_eq!(
        (ended.get(), device.losses().count()),
        (Some(Err(DeviceError::WritesLost)), 1)
    );
}

#[test]
fn a_flush_that_has_lost_writes_says_so_whatever_else_goes_wrong_with_it() {
    let (device, control) = hanging();
    write(&device, 0, 1);
    let not_ready = FaultAction::Fail(DeviceError::NotReady);
    control.set([
        Rule {
            requests: Requests::Writes,
            within: None,
            action: NO_SPACE,
        },
        Rule {
            requests: Requests::Flushes,
            within: None,
            action: not_ready,
        },
    ]);
    assert_eq!(end(device.flush()), Err(DeviceError::WritesLost));
    assert_eq!(
        end(device.flush()),
        Err(DeviceError::NotReady),
        "nothing more is lost"
    );
}

#[test]
fn a_flush_says_that_another_host_has_the_device_though_writes_were_lost() {
    for error in [DeviceError::Reserved, DeviceError::Fenced] {
        let (device, control) = hanging();
        (0..8).for_each(|lba| write(&device, lba, 1));
        control.set([Rule {
            requests: Requests::Writes,
            within: None,
            action: FaultAction::Fail(error),
        }]);
        write(&device, 8, 1);
        assert_eq!(
            (end(device.flush()), device.losses().count()),
            (Err(error), 1)
        );
        control.pass();
        assert_eq!(end(device.flush()), Ok(()), "nothing more is lost");
    }
}

/// A write-back fails after its write was acknowledged, without a flush. The next request fails, and so do
/// all others until the device can be flushed again.
#[test]
fn who_asks_next_is_told_that_another_host_has_the_device() {
    let (device, control) = hanging();
    control.fail(DeviceError::Reserved);
    (0..8).for_each(|lba| write(&device, lba, 1)); // a full chunk, which is written back now
    assert_eq!(device.losses().count(), 1);
    let read = || end(device.read(Extent::new(0, 1), Buffer::zeroed(512))).map(drop);
    let write = || end(device.write(Extent::new(0, 1), filled(1, 1), Durability::Cached));
    assert_eq!((read(), read(), write(), end(device.flush())), {
        let told = Err(DeviceError::Reserved);
        (told, told, told, told)
    });
    control.pass();
    assert_eq!(
        (read(), write(), end(device.flush())),
        (Ok(()), Ok(()), Ok(()))
    );
    // The takeover is reported once, even if the other host has released the device before the next request.
    control.fail(DeviceError::Fenced);
    (8..16).for_each(|lba| crate::buffered::tests::write(&device, lba, 1));
    control.pass();
    assert_eq!((read(), read()), (Err(DeviceError::Fenced), Ok(())));
}

/// Each block is in a different chunk, and a chunk has memory for eight blocks.
#[test]
fn writes_here_and_there_take_no_more_chunks_than_are_kept() {
    let device = cramped(Memory::new(1024));
    for number in 0..64 {
        write(&device, number * 16, 1);
        assert!(device.traffic.chunks() <= 3, "{number}");
    }
    end(device.flush()).expect("flushed");
    assert!((0..64).all(|number| device.traffic.inner.byte(number * 16 * 512) == 1));
}

#[test]
fn a_read_that_fails_says_so_and_one_that_was_ahead_does_not() {
    let (device, control) = hanging();
    let action = FaultAction::Fail(DeviceError::Unreadable(Lba(16)));
    control.set([Rule {
        requests: Requests::Reads,
        within: Some(Extent::new(16, 1)),
        action,
    }]);
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
    // The thread's executor ends, which drops its write-backs.
    drop(run(vec![Box::pin(async { taken.await.expect("taken") })]));
    control.pass();
    assert_eq!(end(device.flush()), Ok(()));
    assert_eq!(control.counts().passed, 2, "the write again, and the flush");
}

/// A chunk receives new data while a write-back of it is outstanding. Then the executor ends and drops the
/// write-back, so that a single write covers the old and the new data.
#[test]
fn a_flush_ends_though_a_write_that_it_waits_for_was_dropped() {
    let (device, control) = hanging();
    control.hang();
    let taken = device.write(Extent::new(0, 8), filled(1, 8), Durability::Cached);
    let writing = run(vec![Box::pin(async { taken.await.expect("taken") })]);
    write(&device, 0, 2);
    let ended = Cell::new(None);
    let flush = device.flush();
    let flushing = run(vec![Box::pin(async { ended.set(Some(flush.await)) })]);
    control.pass();
    drop(writing);
    drop(run(flushing));
    assert_eq!(
        (ended.get(), control.counts().passed),
        (Some(Ok(())), 2),
        "one write, and the flush"
    );
}

#[test]
fn what_is_not_there_is_refused() {
    let device = over(Memory::new(128));
    let beyond = Extent::new(127, 2);
    assert_eq!(
        end(device.read(beyond, Buffer::zeroed(1024))).err(),
        Some(DeviceError::OutOfRange)
    );
    assert_eq!(
        end(device.unmap(Extent::new(u64::MAX, 2))),
        Err(DeviceError::OutOfRange)
    );
    let short = device.write(Extent::new(0, 2), filled(1, 1), Durability::Cached);
    assert_eq!(end(short), Err(DeviceError::OutOfRange));
    assert_eq!(
        end(device.read(Extent::new(5, 0), Buffer::zeroed(0))).map(|buffer| buffer.len()),
        Ok(0)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn whatever_overlaps_reads_find_what_was_last_written(
        users in prop::collection::vec(prop::collection::vec(requests(), 1..12), 1..5),
        polls_max in prop::option::of(1u64..40),
        state in any::<u64>(),
    ) {
        seed(state);
        let inner = Checked::new(SlowDevice(Memory::new(64)));
        let device = Checked::new(if state % 2 == 0 { over(inner) } else { cramped(inner) });
        prop_assert!(all_end(&device, users, polls_max), "somebody waits for ever");
        end(device.quiesced()).expect("fenced");
        let all = read(&device, 0, 64);
        end(device.flush()).expect("flushed");
        let kept = read(device.inner().traffic.inner.inner(), 0, 64);
        prop_assert!(*all == *kept, "after a flush the device has what reads find");
        prop_assert_eq!(device.inner().traffic.inner.open(), 0);
    }
}

/// A device that still executes dropped requests, as a kernel does.
struct Late {
    inner: Memory,
    asked: Lock<Option<Extent>>,
}

impl BlockDevice for Late {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
    fn profile(&self) -> Profile {
        self.inner.profile()
    }
    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        self.inner.read(extent, buffer)
    }
    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        self.inner.write(extent, data, durability)
    }
    fn flush(&self) -> Pending<'_, ()> {
        self.inner.flush()
    }
    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        self.inner.unmap(extent)
    }
    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        self.inner.allocation(extent, runs_max)
    }
    fn write_zeroes(&self, extent: Extent, _may_unmap: bool) -> Pending<'_, ()> {
        Box::pin(async move {
            *self.asked.lock() = Some(extent);
            std::future::pending().await
        })
    }
    fn quiesced(&self) -> Pending<'_, ()> {
        let asked = self.asked.lock().take();
        Box::pin(async move {
            match asked {
                Some(extent) => self.inner.write_zeroes(extent, false).await,
                None => Ok(()),
            }
        })
    }

    fn losses(&self) -> crate::Losses {
        crate::Losses::NONE
    }
}

/// Seeds 5040088 and 6060030 of the simulation at df8a461: a read of a neighbouring block loaded the blocks
/// of an aborted UNMAP with their old content, the device executed the UNMAP, and later reads returned either
/// content.
#[test]
fn nobody_loads_what_an_aborted_change_is_about_to_change() {
    let device = over(Late {
        inner: Memory::new(128),
        asked: Lock::new(None),
    });
    write(&device, 3, 7);
    end(device.flush()).expect("flushed");
    let zeros = device.write_zeroes(Extent::new(3, 1), false);
    drop(run(vec![Box::pin(async {
        let _ = zeros.await;
    })]));
    assert!(
        device.traffic.inner.asked.lock().is_some(),
        "the device has it"
    );
    // Reads a block in the same chunk.
    read(&device, 2, 2);
    end(device.quiesced()).expect("the device has nothing any more");
    let kept = read(&device.traffic.inner, 3, 1);
    assert_eq!(
        read(&device, 3, 1)[..],
        kept[..],
        "what is in memory is what the device has"
    );
    write(&device, 3, 8);
    assert_eq!(read(&device, 3, 1)[..], filled(8, 1)[..]);
}

#[test]
fn readers_are_told_from_each_other() {
    let mut streams = Streams::default();
    assert!(!streams.follow(Extent::new(0, 8)) && !streams.follow(Extent::new(1000, 8)));
    assert!(streams.follow(Extent::new(8, 8)) && streams.follow(Extent::new(1008, 8)));
    assert!(
        !streams.follow(Extent::new(8, 8)),
        "this reader has gone on"
    );
}

#[test]
fn those_that_read_nothing_for_long_are_forgotten() {
    let mut streams = Streams::default();
    for reader in 0..=STREAMS as u64 {
        streams.follow(Extent::new(reader * 1000, 8));
    }
    assert!(!streams.follow(Extent::new(8, 8)) && streams.follow(Extent::new(2008, 8)));
}
