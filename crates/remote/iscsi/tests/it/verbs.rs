//! Tests of other targets' responses to commands that block devices do not use.

use block::{BlockDevice, Buffer, DeviceError, Durability, Extent};
use iscsi_client::verbs::{
    CommandSupport, Identity, LbaRun, LbaStatus, LunAddress, LunSelection, ModeFieldError,
    ModeValues, PersistentReserve, Reservation, ReservationType, Sanitize, SanitizeManner,
};
use iscsi_client::{CommandError, Management, RemoteLun, TaskManagementResult};

use crate::scenes::{attach, with};
use crate::tgt::Tgt;

#[test]
fn a_function_is_answered_until_the_target_dies() {
    with(Tgt::start(), async |mut tgt| {
        let unit = attach(&tgt.url("", 1, "")).await.unit();
        let reset = Management::LogicalUnitReset(unit.lun());
        assert_eq!(
            unit.target().manage(reset).await,
            Ok(TaskManagementResult::FunctionComplete)
        );
        tgt.kill();
        assert_eq!(
            unit.target().manage(reset).await,
            Err(CommandError::ConnectionLost)
        );
    });
}

#[test]
fn tgt_says_who_it_is() {
    with(Tgt::start(), async |tgt| {
        let unit = attach(&tgt.url("", 1, "")).await.unit();
        let inquiry = unit.inquiry().await.expect("INQUIRY");
        assert_eq!(
            (inquiry.vendor.as_str(), inquiry.product.as_str()),
            ("IET", "VIRTUAL-DISK")
        );
        for page in unit.vpd_pages().await.expect("the list of pages") {
            let page = unit.vpd(page).await.expect("a page on the list");
            assert_eq!(page.bytes.get(1), Some(&page.code), "{page}");
        }
        let identity = unit.identity().await.expect("an identity");
        assert!(matches!(identity, Identity::Designators(_)), "{identity}");
        let controller = unit.target().unit(0).identity().await.expect("an identity");
        assert_ne!(identity, controller);
    });
}

/// tgt does not report the relative port of a session. Regression: each registration was treated as one at
/// another port.
#[test]
fn nothing_is_registered_elsewhere_where_a_target_does_not_name_its_ports() {
    with(Tgt::start(), async |tgt| {
        let unit = attach(&tgt.url("", 1, "")).await.unit();
        let register = PersistentReserve::RegisterAndIgnoreExistingKey {
            new_key: 7,
            persist: false,
        };
        unit.persistent_reserve(register).await.expect("registered");
        assert_eq!(unit.registrations_elsewhere().await.expect("told"), []);
    });
}

#[test]
fn what_tgt_does_not_know_is_refused_in_words() {
    with(Tgt::start(), async |tgt| {
        let unit = attach(&tgt.url("", 1, "")).await.unit();
        let manner = SanitizeManner::default();
        let refused = unit
            .sanitize(&Sanitize::BlockErase, manner)
            .await
            .expect_err("tgt cannot");
        assert!(refused.is_unsupported());
        let words = "the target refused SANITIZE: ILLEGAL REQUEST, the target does not support the command \
             (05/20/00)";
        assert_eq!(refused.to_string(), words);
    });
}

#[test]
fn a_lun_that_is_not_there_answers_inquiry_only() {
    with(Tgt::start(), async |tgt| {
        let nobody = attach(&tgt.url("", 1, "")).await.target().unit(99);
        assert!(
            !nobody
                .inquiry()
                .await
                .expect("any LUN answers INQUIRY")
                .is_there()
        );
        let refused = nobody
            .test_unit_ready()
            .await
            .expect_err("there is no target");
        assert!(
            refused
                .to_string()
                .contains("there is no such LUN (05/25/00)"),
            "{refused}"
        );
    });
}

#[test]
fn the_luns_of_tgt_are_its_controller_and_its_disk() {
    with(Tgt::start(), async |tgt| {
        let unit = attach(&tgt.url("", 1, "")).await.unit();
        let luns = unit
            .report_luns(LunSelection::Ordinary)
            .await
            .expect("REPORT LUNS");
        let numbers: Vec<_> = luns
            .into_iter()
            .map(|lun| LunAddress::parse(lun.0))
            .collect();
        assert_eq!(numbers, [LunAddress::Number(0), LunAddress::Number(1)]);
    });
}

#[test]
fn a_second_initiator_is_kept_out_by_a_reservation() {
    with(Tgt::start(), async |tgt| {
        let ours = attach(&tgt.url("", 1, "?initiator=iqn.2026-01.io.linerate:ours")).await;
        let theirs = attach(&tgt.url("", 1, "?initiator=iqn.2026-01.io.linerate:theirs")).await;
        let kind = ReservationType::WriteExclusive;
        let unit = ours.unit();
        let register = PersistentReserve::Register {
            key: 0,
            new_key: 0xa5,
            persist: false,
        };
        unit.persistent_reserve(register).await.expect("registered");
        unit.persistent_reserve(PersistentReserve::Reserve { key: 0xa5, kind })
            .await
            .expect("reserved");
        assert_eq!(
            theirs.unit().registered_keys().await.expect("keys").keys,
            [0xa5]
        );
        assert_eq!(
            theirs.unit().reservation().await,
            Ok(Some(Reservation { key: 0xa5, kind }))
        );
        // tgt does not check reservations for WRITE SAME, so a WRITE is tested.
        assert_eq!(write(&theirs).await, Err(DeviceError::Reserved));
        let wrong = unit
            .persistent_reserve(PersistentReserve::Clear { key: 0x5a })
            .await;
        let words = "the target refused PERSISTENT RESERVE OUT: reservation conflict";
        assert!(
            wrong
                .expect_err("not our key")
                .to_string()
                .starts_with(words)
        );
        unit.persistent_reserve(PersistentReserve::Clear { key: 0xa5 })
            .await
            .expect("cleared");
        assert_eq!(theirs.unit().reservation().await, Ok(None));
        assert_eq!(write(&theirs).await, Ok(()));
    });
}

#[test]
fn the_write_cache_is_switched_off_by_its_name() {
    with(Tgt::start(), async |tgt| {
        let unit = attach(&tgt.url("", 1, "")).await.unit();
        let wce = async || {
            let modes = unit
                .mode_sense(0x08, 0, ModeValues::Current)
                .await
                .expect("MODE SENSE");
            let fields = modes.pages.first().expect("the page").fields();
            fields
                .iter()
                .find(|field| field.name == "WCE")
                .expect("the field")
                .value
        };
        unit.set_mode_field("WCE", 0, false)
            .await
            .expect("MODE SELECT");
        assert_eq!(wce().await, 0);
        unit.set_mode_field("wce", 1, false)
            .await
            .expect("MODE SELECT");
        assert_eq!(wce().await, 1);
        assert_eq!(
            unit.set_mode_field("WCE", 2, false).await,
            Err(ModeFieldError::TooLarge)
        );
        assert_eq!(
            unit.set_mode_field("RCD", 1, false).await,
            Err(ModeFieldError::Fixed)
        );
        assert_eq!(
            unit.set_mode_field("AWRE", 1, false).await,
            Err(ModeFieldError::Missing)
        );
        assert!(
            unit.modes(ModeValues::Current)
                .await
                .expect("all pages")
                .pages
                .len()
                > 3
        );
    });
}

#[test]
fn tgt_lists_the_commands_it_knows() {
    with(Tgt::start(), async |tgt| {
        let unit = attach(&tgt.url("", 1, "")).await.unit();
        let commands = unit.supported_commands().await.expect("the list");
        assert!(
            commands
                .iter()
                .any(|command| command.to_string() == "READ(16)"),
            "{commands:?}"
        );
        let read = unit.command_support(0x88, None).await;
        assert!(
            matches!(
                read,
                Ok(CommandSupport::Yes {
                    as_in_the_standard: true,
                    ..
                })
            ),
            "{read:?}"
        );
        // tgt rejects a query about an unknown command.
        let unknown = unit
            .command_support(0xff, None)
            .await
            .expect_err("tgt cannot");
        assert!(unknown.is_unsupported(), "{unknown}");
    });
}

#[test]
fn blocks_of_a_thin_disk_are_given_back() {
    with(Tgt::start().map(Tgt::thin), async |tgt| {
        let lun = attach(&tgt.url("", 1, "")).await;
        let unit = lun.unit();
        let holes = async || {
            let runs = unit
                .lba_status(Extent::new(0, 16), 100)
                .await
                .expect("GET LBA STATUS");
            let is_hole = |run: &LbaRun| run.status == LbaStatus::Deallocated;
            runs.into_iter()
                .filter(is_hole)
                .map(|run| run.extent)
                .collect::<Vec<_>>()
        };
        assert!(lun.profile().thin);
        write(&lun).await.expect("written");
        assert_eq!(holes().await, [Extent::new(8, 8)]);
        lun.unmap(Extent::new(0, 8))
            .await
            .expect("WRITE SAME with UNMAP");
        assert_eq!(holes().await, [Extent::new(0, 16)]);
        write(&lun).await.expect("written");
        unit.unmap(&[Extent::new(0, 8), Extent::new(100, 8)], false)
            .await
            .expect("UNMAP");
        assert_eq!(holes().await, [Extent::new(0, 16)]);
    });
}

async fn write(lun: &RemoteLun) -> Result<(), DeviceError> {
    lun.write(
        Extent::new(0, 8),
        Buffer::zeroed(8 * 512).share(),
        Durability::Cached,
    )
    .await
}
