//! Linerate's logical units with Linerate's initiator: both must interpret every field in the same way.

use block::{BlockDevice, Buffer, Durability, Extent};
use iscsi_client::verbs::{
    AccessState, CommandSupport, Compared, LbaStatus, LunAddress, LunSelection, ModeFieldError,
    ModeValues, PersistentReserve, ReservationType, Sanitize, SanitizeManner, TransportId,
    WriteSame, extended_copy,
};
use iscsi_client::{Management, RemoteLun, TaskManagementResult, Unit};

use crate::remote::{attached, in_a_world};
use crate::server::Server;

const TARGET: &str = "iqn.2026-01.io.linerate:san";

/// A target of two LUNs in memory, and the first of them.
fn with_two_luns(scene: impl AsyncFnOnce(RemoteLun, Unit)) {
    let text = format!(
        "[volume.one]\nspec = \"ram:16MiB\"\n[volume.two]\nspec = \"ram:16MiB\"\n[[target]]\nname = \"{TARGET}\"\n\
         lun = [{{ lun = 0, volume = \"one\" }}, {{ lun = 1, volume = \"two\" }}]\n"
    );
    let server = or_skip!(Server::configured(&text));
    in_a_world(async {
        let lun = attached(&format!(
            "iscsi://{}/{TARGET}/0?initiator=iqn.2026-01.io:us",
            server.portal()
        ))
        .await;
        let unit = lun.unit();
        scene(lun, unit).await;
    });
}

fn filled(byte: u8, blocks: usize) -> Buffer {
    let mut buffer = Buffer::zeroed(blocks * 512);
    buffer.fill(byte);
    buffer
}

async fn first_byte(device: &RemoteLun, lba: u64) -> u8 {
    let read = device
        .read(Extent::new(lba, 1), Buffer::zeroed(512))
        .await
        .expect("it reads");
    read[0]
}

#[test]
fn every_page_on_the_list_is_taken_apart() {
    with_two_luns(async |lun, unit| {
        for code in unit.vpd_pages().await.expect("the list") {
            let page = unit.vpd(code).await.expect("a page on the list");
            assert!(page.to_string().lines().count() > 1, "{page}");
        }
        let other = lun.target().unit(1).identity().await.expect("an identity");
        assert_ne!(unit.identity().await, Ok(other));
        let capacity = unit.read_capacity().await.expect("READ CAPACITY");
        assert_eq!(
            (capacity.bytes(), capacity.thin, capacity.read_zeros),
            (16 << 20, true, true)
        );
    });
}

#[test]
fn luns_ports_and_commands_are_listed() {
    with_two_luns(async |_, unit| {
        let luns = unit
            .report_luns(LunSelection::Ordinary)
            .await
            .expect("REPORT LUNS");
        let luns: Vec<_> = luns
            .into_iter()
            .map(|lun| LunAddress::parse(lun.0))
            .collect();
        assert_eq!(luns, [LunAddress::Number(0), LunAddress::Number(1)]);
        let groups = unit
            .target_port_groups()
            .await
            .expect("REPORT TARGET PORT GROUPS");
        assert_eq!(
            groups.iter().map(|group| group.state).collect::<Vec<_>>(),
            [AccessState::ActiveOptimized]
        );
        let commands = unit.supported_commands().await.expect("the commands");
        let nameless: Vec<_> = commands
            .iter()
            .map(ToString::to_string)
            .filter(|name| name.contains("operation"))
            .collect();
        assert!(nameless.is_empty(), "{nameless:?}");
        let read = unit.command_support(0x88, None).await.expect("READ(16)");
        assert!(
            matches!(
                read,
                CommandSupport::Yes {
                    as_in_the_standard: true,
                    timeouts: Some(_),
                    ..
                }
            ),
            "{read:?}"
        );
        assert_eq!(
            unit.command_support(0xff, None).await,
            Ok(CommandSupport::No)
        );
    });
}

#[test]
fn blocks_that_are_given_back_are_not_allocated() {
    with_two_luns(async |lun, unit| {
        let data = filled(0xa5, 4096).share();
        lun.write(Extent::new(0, 4096), data, Durability::Cached)
            .await
            .expect("written");
        unit.unmap(&[Extent::new(1024, 1024)], false)
            .await
            .expect("UNMAP");
        let runs = unit
            .lba_status(Extent::new(0, 32_768), 1000)
            .await
            .expect("GET LBA STATUS");
        let told: Vec<_> = runs
            .iter()
            .map(|run| (run.extent.lba.0, run.status))
            .collect();
        let expected = [
            (0, LbaStatus::Mapped),
            (1024, LbaStatus::Deallocated),
            (2048, LbaStatus::Mapped),
            (4096, LbaStatus::Deallocated),
        ];
        assert_eq!(told, expected);
        let few = unit
            .lba_status(Extent::new(0, 32_768), 2)
            .await
            .expect("GET LBA STATUS");
        assert_eq!(few.len(), 2);
        let beyond = unit
            .unmap(&[Extent::new(32_768, 1)], false)
            .await
            .expect_err("there is no such block");
        assert!(
            beyond
                .to_string()
                .contains("the LBA is beyond the end of the medium (05/21/00)"),
            "{beyond}"
        );
    });
}

#[test]
fn blocks_are_filled_and_changed_if_they_are_what_they_should_be() {
    with_two_luns(async |lun, unit| {
        let fill = WriteSame {
            block: Some(filled(7, 1).share()),
            ..WriteSame::default()
        };
        unit.write_same(Extent::new(0, 20_000), &fill)
            .await
            .expect("WRITE SAME");
        assert_eq!(
            (first_byte(&lun, 0).await, first_byte(&lun, 19_999).await),
            (7, 7)
        );
        let zeros = WriteSame {
            unmap: true,
            ..WriteSame::default()
        };
        unit.write_same(Extent::new(8, 8), &zeros)
            .await
            .expect("WRITE SAME with NDOB");
        assert_eq!(
            (first_byte(&lun, 8).await, first_byte(&lun, 16).await),
            (0, 7)
        );

        let swap = async |expected, new| {
            unit.compare_and_write(0, 1, &filled(expected, 1), &filled(new, 1))
                .await
                .expect("an answer")
        };
        assert_eq!(swap(7, 8).await, Compared::Written);
        assert_eq!(
            swap(7, 9).await,
            Compared::Differs {
                offset_bytes: Some(0)
            }
        );
        assert_eq!(first_byte(&lun, 0).await, 8);
        unit.write_atomic(4, 1, filled(3, 1).share())
            .await
            .expect("WRITE ATOMIC");
        assert_eq!(first_byte(&lun, 4).await, 3);
        unit.verify(0, 8).await.expect("VERIFY");
    });
}

#[test]
fn a_target_copies_between_its_luns_by_itself() {
    with_two_luns(async |lun, source| {
        let destination = lun.target().lun(1).await.expect("the other LUN");
        lun.write(
            Extent::new(100, 4096),
            filled(0x5a, 4096).share(),
            Durability::Cached,
        )
        .await
        .expect("written");
        extended_copy(&source, &destination.unit(), 100, 1000, 4096)
            .await
            .expect("EXTENDED COPY");
        let (before, behind) = (
            first_byte(&destination, 999).await,
            first_byte(&destination, 5096).await,
        );
        assert_eq!((before, behind), (0, 0));
        let all = destination
            .read(Extent::new(1000, 4096), Buffer::zeroed(4096 * 512))
            .await
            .expect("it reads");
        assert!(all.iter().all(|byte| *byte == 0x5a));
        let beyond = extended_copy(&source, &destination.unit(), 100, 32_760, 100).await;
        assert!(beyond.is_err(), "there is no room");
    });
}

#[test]
fn mode_fields_are_read_and_set_by_name() {
    with_two_luns(async |lun, unit| {
        unit.set_mode_field("SWP", 1, false)
            .await
            .expect("MODE SELECT");
        let modes = unit.modes(ModeValues::Current).await.expect("MODE SENSE");
        assert!(modes.write_protected, "{modes:?}");
        let refused = lun
            .write(Extent::new(0, 1), filled(1, 1).share(), Durability::Cached)
            .await;
        assert_eq!(refused, Err(block::DeviceError::ReadOnly));
        unit.set_mode_field("SWP", 0, false)
            .await
            .expect("MODE SELECT");
        assert_eq!(
            unit.set_mode_field("AWRE", 0, false).await,
            Err(ModeFieldError::Fixed)
        );
        assert_eq!(
            unit.set_mode_field("NONSENSE", 0, false).await,
            Err(ModeFieldError::Unknown)
        );
    });
}

#[test]
fn a_reservation_names_its_holder() {
    with_two_luns(async |_, unit| {
        let kind = ReservationType::ExclusiveAccessRegistrantsOnly;
        let register = PersistentReserve::RegisterAndIgnoreExistingKey {
            new_key: 7,
            persist: false,
        };
        unit.persistent_reserve(register).await.expect("registered");
        unit.persistent_reserve(PersistentReserve::Reserve { key: 7, kind })
            .await
            .expect("reserved");
        let all = unit.registrations().await.expect("READ FULL STATUS");
        assert_eq!((all.len(), all[0].key, all[0].holds), (1, 7, Some(kind)));
        let Some(TransportId::Iscsi {
            name,
            isid: Some(_),
        }) = &all[0].initiator
        else {
            panic!("{all:?}")
        };
        assert_eq!(name, "iqn.2026-01.io:us");
        let capabilities = unit
            .reservation_capabilities()
            .await
            .expect("REPORT CAPABILITIES");
        assert_eq!(capabilities.types(), ReservationType::ALL);
        unit.persistent_reserve(PersistentReserve::Release { key: 7, kind })
            .await
            .expect("released");
        assert_eq!(unit.reservation().await, Ok(None));
        assert_eq!(unit.registered_keys().await.expect("keys").keys, [7]);
    });
}

#[test]
fn sanitizing_leaves_nothing_and_says_how_far_it_is() {
    with_two_luns(async |lun, unit| {
        lun.write(Extent::new(0, 8), filled(1, 8).share(), Durability::Cached)
            .await
            .expect("written");
        let overwrite = Sanitize::Overwrite {
            pattern: vec![0xee],
            passes: 1,
            invert: false,
        };
        let manner = SanitizeManner {
            immediate: true,
            ..SanitizeManner::default()
        };
        unit.sanitize(&overwrite, manner).await.expect("SANITIZE");
        let mut asked = 0;
        while let Some(sense) = unit.request_sense().await.expect("REQUEST SENSE")
            && (sense.code, sense.qualifier) == (0x04, 0x1b)
        {
            assert!(sense.progress().is_some(), "{sense}");
            asked += 1;
            assert!(asked < 100_000, "16 MiB of memory take no time");
        }
        assert_eq!(first_byte(&lun, 0).await, 0xee);
    });
}

#[test]
fn functions_are_answered_in_words() {
    with_two_luns(async |_, unit| {
        let reset = unit
            .target()
            .manage(Management::LogicalUnitReset(unit.lun()))
            .await;
        assert_eq!(reset, Ok(TaskManagementResult::FunctionComplete));
        let nobody = unit.target().unit(9).lun();
        let answer = unit
            .target()
            .manage(Management::LogicalUnitReset(nobody))
            .await
            .expect("an answer");
        assert_eq!(answer.to_string(), "there is no such LUN");
    });
}

#[test]
fn questions_are_asked_again_when_the_session_is_lost() {
    let mut server = Server::serving(&["disk=ram:16MiB"]);
    in_a_world(async {
        let lun = attached(&server.url("disk")).await;
        let unit = lun.unit();
        let before = unit.inquiry().await.expect("INQUIRY");
        server.kill();
        server.restart();
        assert_eq!(unit.inquiry().await, Ok(before));
        assert!(
            !unit
                .supported_commands()
                .await
                .expect("the commands")
                .is_empty()
        );
        lun.close().await;
    });
}
