use proptest::prelude::*;

use super::*;
use crate::checked::Checked;
use crate::fault::{Fault, FaultAction, FaultControl, Requests, Rule};
use crate::testing::{
    LocalSpawner, ManualClock, Memory, SlowDevice, Task, all_end, end, filled, read, requests, run,
    seed, with_poll_limit,
};

fn memory(blocks: u64) -> Memory {
    Memory::with_block_size(BlockSize::B4096, blocks)
}

fn over<D: BlockDevice + 'static>(inner: D) -> Emulated512<D> {
    Emulated512::new(inner, Arc::new(LocalSpawner))
}

fn hanging() -> (Emulated512<Fault<Memory>>, FaultControl) {
    let control = FaultControl::default();
    (
        over(Fault::new(
            memory(16),
            Arc::new(ManualClock::default()),
            control.clone(),
        )),
        control,
    )
}

fn write<D: BlockDevice + 'static>(device: &Emulated512<D>, lba: u64, blocks: u64, byte: u8) {
    end(device.write(
        Extent::new(lba, blocks),
        filled(byte, blocks),
        Durability::Cached,
    ))
    .expect("written");
}

#[test]
fn it_shows_short_blocks_and_says_how_long_they_are_really() {
    let device = over(memory(16));
    let geometry = device.geometry();
    assert_eq!(
        (
            geometry.block_size,
            geometry.blocks,
            geometry.physical_exponent
        ),
        (BlockSize::B512, Blocks(128), 3)
    );
    assert_eq!(device.profile().granularity, Blocks(8));
}

#[test]
fn whole_blocks_pass_as_they_are() {
    let device = over(memory(16));
    write(&device, 8, 16, 7);
    assert_eq!(read(&device, 8, 8)[4095], 7);
    assert_eq!(device.inner.lengths(), [2, 1]);
}

#[test]
fn a_short_write_reads_its_block_first_and_keeps_the_rest_of_it() {
    let device = over(memory(16));
    write(&device, 0, 8, 1);
    write(&device, 3, 1, 2);
    assert_eq!(
        device.inner.lengths(),
        [1, 1, 1],
        "a write, a read, a write"
    );
    assert_eq!(
        [2, 3, 4].map(|block| device.inner.byte(block * 512)),
        [1, 2, 1]
    );
}

#[test]
fn a_write_across_the_ends_of_blocks_reads_those_at_its_ends_only() {
    let device = over(memory(16));
    write(&device, 6, 4, 9);
    assert_eq!(
        device.inner.lengths(),
        [2, 2],
        "neighbours are read together"
    );
    write(&device, 7, 34, 9);
    assert_eq!(device.inner.lengths()[2..], [1, 1, 6]);
    write(&device, 8, 9, 9);
    assert_eq!(device.inner.lengths()[5..], [1, 2]);
}

#[test]
fn zeros_within_a_block_leave_its_other_blocks() {
    let device = over(memory(16));
    write(&device, 0, 32, 5);
    end(device.unmap(Extent::new(7, 10))).expect("unmapped");
    let bytes: Vec<u8> = (0..32)
        .map(|block| device.inner.byte(block * 512))
        .collect();
    assert_eq!(bytes[..7], [5; 7]);
    assert_eq!(bytes[7..17], [0; 10]);
    assert_eq!(bytes[17..], [5; 15]);
}

#[test]
fn what_cannot_be_read_cannot_be_changed_and_the_short_block_is_named() {
    let (device, control) = hanging();
    let action = FaultAction::Fail(DeviceError::Unreadable(Lba(2)));
    control.set([Rule {
        requests: Requests::Reads,
        within: None,
        action,
    }]);
    let short = device.write(Extent::new(17, 1), filled(1, 1), Durability::Cached);
    assert_eq!(end(short), Err(DeviceError::Unreadable(Lba(16))));
    write(&device, 16, 8, 1);
}

#[test]
fn a_write_whose_waiter_goes_away_keeps_others_out_until_it_has_ended() {
    let (device, control) = hanging();
    let writes = Rule {
        requests: Requests::Writes,
        within: None,
        action: FaultAction::Hang,
    };
    control.set([writes]);
    let first = device.write(Extent::new(0, 1), filled(1, 1), Durability::Cached);
    // The write is dropped while its block is being written back.
    let mut left: Vec<Task<'_>> = run(vec![Box::pin(with_poll_limit(
        3,
        Box::pin(async { first.await.expect("not observed") }),
    ))]);
    let second = device.write(Extent::new(1, 1), filled(2, 1), Durability::Cached);
    left.push(Box::pin(async { second.await.expect("written") }));
    let left = run(left);
    assert_eq!(
        control.counts().hanging,
        1,
        "the second waits for the first"
    );
    control.pass();
    assert!(run(left).is_empty());
    assert_eq!(read(&device, 1, 1)[0], 2);
    assert_eq!(end(device.quiesced()), Ok(()));
}

#[test]
fn what_is_not_there_is_refused() {
    let device = over(memory(16));
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
    assert_eq!(
        end(device.write(Extent::new(5, 0), filled(1, 0), Durability::Cached)),
        Ok(())
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
        let device = Checked::new(over(Checked::new(SlowDevice(memory(8)))));
        prop_assert!(all_end(&device, users, polls_max), "somebody waits for ever");
        end(device.quiesced()).expect("fenced");
        let all = read(&device, 0, 64);
        prop_assert!((0..64 * 512).all(|at| device.inner().inner.inner().0.byte(at) == all[at]));
        prop_assert_eq!(device.inner().inner.open(), 0);
    }
}
