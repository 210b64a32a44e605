//! Tests with other initiators that reset and reserve the same disk, and with targets that change. They check
//! the notifications that all initiators must get, and the effects on Linerate's requests.

use block::{BlockDevice, Blocks, Buffer, DeviceError, Durability, Extent};
use iscsi_client::verbs::{PersistentReserve, ReservationType};
use iscsi_client::{Management, RemoteLun, Sense, TaskManagementResult, Transfer, cdb};

use super::load::Load;
use super::san::BYTES;
use super::{Disk, Make, Needs, San, for_each, open, round_trip, stamped, with_each};
use crate::remote::in_a_world;
use crate::server::Server;

/// The sense key, code and qualifier with which TEST UNIT READY is rejected; `None` if it succeeds.
async fn attention(lun: &RemoteLun) -> Option<(u8, u8, u8)> {
    let answer = lun
        .command(cdb::test_unit_ready(), Transfer::None)
        .await
        .expect("an answer");
    answer.sense.map(
        |Sense {
             key,
             code,
             qualifier,
             ..
         }| (key, code, qualifier),
    )
}

#[test]
fn another_session_hears_of_a_reset_and_goes_on() {
    with_each(Needs::Nothing, async |san| {
        let [one, other] = [
            open(&san.url(Disk::Plain, "")).await,
            open(&san.url(Disk::Plain, "")).await,
        ];
        round_trip(&other, 0, 64, 1).await;
        let reset = Management::LogicalUnitReset(one.unit().lun());
        assert_eq!(
            one.target().manage(reset).await,
            Ok(TaskManagementResult::FunctionComplete)
        );
        if san.make() != Make::Istgt {
            // istgt closes the other sessions instead, so commands that must not be repeated are lost.
            let heard = attention(&other).await;
            assert!(
                matches!(heard, Some((6, 0x29, _))),
                "RESET OCCURRED, and not {heard:?}"
            );
        }
        round_trip(&other, 0, 64, 2).await;
        for lun in [one, other] {
            lun.close().await;
        }
    });
}

/// Commands ended by a reset are sent again, without visible errors.
#[test]
fn resets_by_another_session_fail_no_request() {
    for_each(Needs::Nothing, |san| {
        let load = Load::begin(&san.url(Disk::Plain, "?congestion=cubic"));
        in_a_world(async {
            let other = open(&san.url(Disk::Plain, "")).await;
            let reset = Management::LogicalUnitReset(other.unit().lun());
            for _ in 0..5 {
                load.goes_on();
                assert_eq!(
                    other.target().manage(reset).await,
                    Ok(TaskManagementResult::FunctionComplete)
                );
            }
            other.close().await;
        });
        load.end();
    });
}

#[test]
fn a_lun_that_is_added_is_told_and_found() {
    with_each(Needs::NewLun, async |san| {
        let lun = open(&san.url(Disk::Plain, "")).await;
        let number = san.add_lun();
        assert_eq!(
            attention(&lun).await,
            Some((6, 0x3f, 0x0e)),
            "REPORTED LUNS DATA HAS CHANGED"
        );
        let added = lun.target().lun(number).await.expect("the new LUN");
        round_trip(&added, 0, 64, 1).await;
        lun.close().await;
    });
}

#[test]
fn a_disk_that_grows_is_larger_here_after_the_next_request() {
    with_each(Needs::Growth, async |san| {
        let lun = open(&san.url(Disk::Plain, "")).await;
        san.grow(BYTES + (1 << 20));
        let larger = Blocks((BYTES + (1 << 20)) / 512);
        while lun.geometry().blocks != larger {
            round_trip(&lun, 0, 8, 1).await; // the scene ends in time, or has failed
        }
        round_trip(&lun, larger.0 - 8, 8, 1).await;
        lun.close().await;
    });
}

/// A session of another initiator.
async fn stranger(san: &San) -> RemoteLun {
    open(&san.url(Disk::Plain, "?initiator=iqn.2026-01.com.example:stranger")).await
}

#[test]
fn what_another_initiator_has_reserved_is_left_alone() {
    with_each(Needs::Nothing, async |san| {
        let [ours, theirs] = [open(&san.url(Disk::Plain, "")).await, stranger(san).await];
        round_trip(&ours, 0, 8, 1).await;
        let (key, kind) = (0x5eed, ReservationType::ExclusiveAccess);
        let unit = theirs.unit();
        let register = PersistentReserve::RegisterAndIgnoreExistingKey {
            new_key: key,
            persist: false,
        };
        unit.persistent_reserve(register).await.expect("registered");
        unit.persistent_reserve(PersistentReserve::Reserve { key, kind })
            .await
            .expect("reserved");
        let written = ours
            .write(
                Extent::new(0, 8),
                stamped(&ours, 0, 8, 2),
                Durability::Cached,
            )
            .await;
        assert_eq!(written, Err(DeviceError::Reserved));
        let read = ours.read(Extent::new(0, 8), Buffer::recycled(4096)).await;
        assert_eq!(read.err(), Some(DeviceError::Reserved));
        round_trip(&theirs, 8, 8, 1).await;
        unit.persistent_reserve(PersistentReserve::Release { key, kind })
            .await
            .expect("released");
        let read = ours
            .read(Extent::new(0, 8), Buffer::recycled(4096))
            .await
            .expect("free again");
        bench::pattern::check(&read, block::Lba(0), 512, 1).expect("what was there before");
        unit.persistent_reserve(PersistentReserve::Clear { key })
            .await
            .expect("cleared");
        for lun in [ours, theirs] {
            lun.close().await;
        }
    });
}

/// Linerate can be configured to return TASK SET FULL, with hardly any memory for the data of writes. tgt and
/// istgt close the command window instead, and have no such setting.
#[test]
fn a_task_set_that_is_full_is_tried_again() {
    let server = or_skip!(Server::configured(
        "[limits]\nsession-staging = \"64KiB\"\n[volume.disk]\nspec = \"delay:1ms:[ram:64MiB]\"\n[[target]]\n\
         name = \"iqn.2026-01.io.linerate:disk\"\nlun = [{ lun = 0, volume = \"disk\" }]\n",
    ));
    let load = Load::begin(&server.url("disk"));
    load.goes_on();
    load.end();
}
