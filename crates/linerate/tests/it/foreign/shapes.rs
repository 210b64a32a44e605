//! The shapes of a target's disks: block lengths, write protection, number of disks.

use block::{BlockDevice, BlockSize, Buffer, DeviceError, Durability, Extent};
use iscsi_client::{OpenError, Transfer, cdb};

use super::san::{BYTES, San};
use super::{Disk, Needs, open, round_trip, stamped, try_open, with_each};

#[test]
fn a_lun_that_is_not_there_is_named() {
    with_each(Needs::Nothing, async |san| {
        let (target, _) = san.place(Disk::Plain);
        let url = format!("iscsi://127.0.0.1:{}/{target}/77", san.port());
        let outcome = try_open(&url).await;
        assert!(
            matches!(outcome, Err(OpenError::NoSuchLun(77))),
            "{:?}",
            outcome.err()
        );
    });
}

#[test]
fn a_protected_disk_is_read_and_not_written() {
    with_each(Needs::Nothing, async |san| {
        let lun = open(&san.url(Disk::Protected, "")).await;
        assert!(lun.profile().read_only);
        let written = lun
            .write(
                Extent::new(0, 8),
                stamped(&lun, 0, 8, 1),
                Durability::Cached,
            )
            .await;
        assert!(written.is_err());
        let read = lun
            .read(Extent::new(0, 8), Buffer::recycled(4096))
            .await
            .expect("it may be read");
        assert!(read.iter().all(|byte| *byte == 0), "nothing was written");
        lun.close().await;
    });
}

#[test]
fn a_write_to_a_protected_disk_says_why_it_fails() {
    with_each(Needs::Sense, async |san| {
        let lun = open(&san.url(Disk::Protected, "")).await;
        let written = lun
            .write(
                Extent::new(0, 8),
                stamped(&lun, 0, 8, 1),
                Durability::Cached,
            )
            .await;
        assert_eq!(written, Err(DeviceError::ReadOnly));
        lun.close().await;
    });
}

#[test]
fn blocks_are_as_long_as_the_target_says() {
    with_each(Needs::Nothing, async |san| {
        for (disk, size) in [
            (Disk::Plain, BlockSize::B512),
            (Disk::FourKi, BlockSize::B4096),
        ] {
            let lun = open(&san.url(disk, "")).await;
            let geometry = lun.geometry();
            assert_eq!(
                (geometry.block_size, geometry.bytes()),
                (size, BYTES),
                "{disk:?}"
            );
            for blocks in [1, 7, 128, 1025] {
                round_trip(&lun, 3, blocks, blocks).await;
            }
            round_trip(&lun, geometry.blocks.0 - 9, 9, 1).await;
            lun.close().await;
        }
    });
}

#[test]
fn two_luns_of_one_session_are_two_disks() {
    with_each(Needs::Nothing, async |san| {
        let first = open(&san.url(Disk::Plain, "")).await;
        let second = first
            .target()
            .lun(san.place(Disk::Second).1)
            .await
            .expect("the second LUN");
        round_trip(&first, 0, 64, 1).await;
        round_trip(&second, 0, 64, 2).await;
        let still = first
            .read(Extent::new(0, 64), Buffer::recycled(64 * 512))
            .await
            .expect("read");
        bench::pattern::check(&still, block::Lba(0), 512, 1).expect("the first disk's own");
        first.close().await;
    });
}

#[test]
fn requests_beyond_the_end_are_refused_by_the_target_too() {
    with_each(Needs::Sense, async |san| {
        let lun = open(&san.url(Disk::Plain, "")).await;
        let end = lun.geometry().blocks.0;
        let read = cdb::read_16(end - 1, 2);
        let answer = lun
            .command(read, Transfer::into_all_of(Buffer::zeroed(1024)))
            .await
            .expect("an answer");
        let sense = answer.sense.expect("CHECK CONDITION has sense data");
        assert_eq!((answer.status, sense.key, sense.code), (2, 5, 0x21)); // LBA OUT OF RANGE
        lun.close().await;
    });
}

/// SBC-3 5.8: a TRANSFER LENGTH of zero "shall not be considered an error".
async fn read_nothing(san: &San, transfer: Transfer) {
    let lun = open(&san.url(Disk::Plain, "")).await;
    let answer = lun
        .command(cdb::read_16(0, 0), transfer)
        .await
        .expect("an answer");
    assert_eq!(
        (answer.status, answer.data.len()),
        (0, 0),
        "{:?}",
        answer.sense
    );
    round_trip(&lun, 0, 8, 1).await;
    lun.close().await;
}

#[test]
fn no_blocks_at_all_where_some_had_room() {
    with_each(Needs::Nothing, async |san| {
        read_nothing(san, Transfer::into_all_of(Buffer::zeroed(512))).await
    });
}

#[test]
fn no_blocks_at_all_and_no_room_for_any() {
    with_each(Needs::ReadWithoutData, async |san| {
        read_nothing(san, Transfer::None).await
    });
}
