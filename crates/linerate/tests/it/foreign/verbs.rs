//! The responses of each make to commands by name. No make supports all of them, and each must reject the
//! others.

use iscsi_client::Management;
use iscsi_client::verbs::{
    Identity, LunAddress, LunSelection, ModeValues, PersistentReserve, ReservationType, StartStop,
    VerbError,
};

use super::{Disk, Needs, open, with_each};

#[test]
fn a_disk_says_what_and_who_it_is() {
    with_each(Needs::Nothing, async |san| {
        let lun = open(&san.url(Disk::Plain, "")).await;
        let unit = lun.unit();
        let inquiry = unit.inquiry().await.expect("INQUIRY");
        assert!(
            inquiry.is_there() && !inquiry.vendor.is_empty(),
            "{inquiry:?}"
        );
        for code in unit.vpd_pages().await.expect("the list of pages") {
            match unit.vpd(code).await {
                Ok(page) => assert_eq!(page.code, code),
                Err(error) => eprintln!("page {code:02x}h is on the list: {error}"),
            }
        }
        assert_ne!(
            unit.identity().await.expect("an identity"),
            Identity::Unknown
        );
        let modes = unit.modes(ModeValues::Current).await.expect("MODE SENSE");
        assert!(!modes.pages.is_empty());
        lun.close().await;
    });
}

#[test]
fn the_luns_of_a_target_are_listed() {
    with_each(Needs::Nothing, async |san| {
        let lun = open(&san.url(Disk::Plain, "")).await;
        let luns = lun
            .unit()
            .report_luns(LunSelection::Ordinary)
            .await
            .expect("REPORT LUNS");
        let (_, number) = san.place(Disk::Plain);
        assert!(
            luns.into_iter()
                .any(|lun| LunAddress::parse(lun.0) == LunAddress::Number(u64::from(number)))
        );
        lun.close().await;
    });
}

#[test]
fn a_disk_is_reserved_and_released() {
    with_each(Needs::Nothing, async |san| {
        let lun = open(&san.url(Disk::Plain, "")).await;
        let unit = lun.unit();
        let kind = ReservationType::WriteExclusive;
        let register = PersistentReserve::Register {
            key: 0,
            new_key: 7,
            persist: false,
        };
        unit.persistent_reserve(register).await.expect("registered");
        unit.persistent_reserve(PersistentReserve::Reserve { key: 7, kind })
            .await
            .expect("reserved");
        let held = unit
            .reservation()
            .await
            .expect("READ RESERVATION")
            .expect("it is reserved");
        assert_eq!((held.key, held.kind), (7, kind));
        unit.persistent_reserve(PersistentReserve::Clear { key: 7 })
            .await
            .expect("cleared");
        assert_eq!(unit.reservation().await, Ok(None));
        lun.close().await;
    });
}

#[test]
fn what_a_make_does_not_know_is_an_answer_and_not_the_end() {
    with_each(Needs::Nothing, async |san| {
        let lun = open(&san.url(Disk::Plain, "")).await;
        let unit = lun.unit();
        let answers = [
            ("commands", unit.supported_commands().await.map(drop)),
            ("ports", unit.target_port_groups().await.map(drop)),
            ("registrations", unit.registrations().await.map(drop)),
            (
                "reservations",
                unit.reservation_capabilities().await.map(drop),
            ),
            ("defaults", unit.modes(ModeValues::Default).await.map(drop)),
            ("limits", unit.block_limits().await.map(drop)),
            ("sense", unit.request_sense().await.map(drop)),
            ("start", unit.start_stop(StartStop::Start).await),
        ];
        for (what, answer) in answers {
            match answer {
                Ok(()) => {}
                Err(error @ VerbError::Refused { .. }) => eprintln!("{what}: {error}"),
                Err(error) => panic!("{what}: {error}"),
            }
        }
        let reset = unit
            .target()
            .manage(Management::LogicalUnitReset(unit.lun()))
            .await;
        eprintln!("LOGICAL UNIT RESET: {}", reset.expect("an answer"));
        unit.test_unit_ready().await.expect("it is still there");
        lun.close().await;
    });
}
