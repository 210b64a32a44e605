mod trouble;

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use block::{BlockDevice, Buffer, DeviceError, Durability, Extent};
use disk_contents::Consent;

use crate::raid::*;
use crate::{open, parse, remote};

fn set(folder: &Path, level: &str, members: &[usize]) -> Spec {
    let members: Vec<_> = members
        .iter()
        .map(|member| member_of(folder, *member))
        .collect();
    parse(&format!("{level}:[{}]", members.join(", "))).expect("a specification")
}

fn member_of(folder: &Path, member: usize) -> String {
    format!(
        "file:{}?size=96MiB",
        folder.join(format!("disk{member}")).display()
    )
}

fn made(spec: &Spec, creation: &Creation) -> Result<(), Failure> {
    remote::run(async {
        create(spec, creation, Consent::Ask(&|_| false))
            .await
            .map(drop)
    })
}

/// Writes a distinct number to each block.
fn fill(spec: &Spec, stamp: u8) {
    remote::run(async {
        let device = open(spec).await.map_err(Failure::from)?;
        for (block, number) in (0..device.geometry().blocks.0).step_by(4099).zip(0u8..) {
            let mut data = Buffer::zeroed(512);
            data.fill(stamp ^ number);
            let write = device.write(Extent::new(block, 1), data.share(), Durability::Cached);
            write
                .await
                .map_err(|error| Failure::device("write", error))?;
        }
        device
            .flush()
            .await
            .map_err(|error| Failure::device("flush", error))
    })
    .unwrap_or_else(|failure| panic!("{failure}"));
}

fn assert_filled(spec: &Spec, stamp: u8) {
    remote::run(async {
        let device = open(spec).await.map_err(Failure::from)?;
        for (block, number) in (0..device.geometry().blocks.0).step_by(4099).zip(0u8..) {
            let data = device
                .read(Extent::new(block, 1), Buffer::zeroed(512))
                .await;
            let data = data.map_err(|error: DeviceError| Failure::device("read", error))?;
            assert!(
                data.iter().all(|byte| *byte == stamp ^ number),
                "block {block}"
            );
        }
        Ok(())
    })
    .unwrap_or_else(|failure| panic!("{failure}"));
}

/// Opens a set for one user, and returns its device and its outermost set.
async fn in_use(spec: &Spec) -> Result<(Arc<dyn BlockDevice>, Arc<Running>), Failure> {
    let (device, sets) = crate::raid::open(spec).await?;
    Ok((device, sets.into_iter().next().expect("the set")))
}

fn refusal(spec: &Spec) -> String {
    match remote::run(async { open(spec).await.map(drop).map_err(Failure::from) }) {
        Ok(()) => panic!("{spec} was opened"),
        Err(failure) => failure.to_string(),
    }
}

#[test]
fn a_set_is_found_by_content_in_any_order_and_survives_a_member() {
    for (level, members) in [
        ("raid1", 2),
        ("raid5:64KiB", 3),
        ("raid6:16KiB", 4),
        ("raid10:4KiB", 4),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let all: Vec<usize> = (0..members).collect();
        made(&set(folder.path(), level, &all), &Creation::default()).expect("a set");
        fill(&set(folder.path(), level, &all), 0x5a);
        let (sets, _) = remote::run(status(&set(folder.path(), level, &all))).expect("a set");
        assert!(sets[0].closed, "nothing is to be synchronised or replayed");
        let turned: Vec<usize> = all.iter().rev().copied().collect();
        let only_read = |spec: Spec| parse(&format!("{spec}?read-only")).expect("a specification");
        let before = std::fs::read(folder.path().join("disk0")).expect("a disk");
        assert_filled(&only_read(set(folder.path(), level, &turned)), 0x5a);
        assert!(
            std::fs::read(folder.path().join("disk0")).expect("a disk") == before,
            "it was only read"
        );
        assert_filled(&set(folder.path(), level, &turned), 0x5a);
        std::fs::remove_file(folder.path().join("disk1")).expect("a dead disk");
        if level == "raid1" {
            // Each of two copies could have been used without the other, so the set must not start with only
            // one.
            assert!(
                refusal(&set(folder.path(), level, &all)).contains("confirm that they are lost")
            );
            let confirmed = parse(&format!(
                "{}?missing-are-lost",
                set(folder.path(), level, &all)
            ));
            assert_filled(&confirmed.expect("a specification"), 0x5a);
        }
        assert_filled(&set(folder.path(), level, &all), 0x5a);
        fill(&set(folder.path(), level, &all), 0x3c);
        assert_filled(&set(folder.path(), level, &turned), 0x3c);
    }
}

#[test]
fn what_cannot_be_right_is_refused_and_nothing_is_made_for_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let of = |level: &str, members: &[usize]| set(folder.path(), level, members);
    assert!(refusal(&of("raid5:64KiB", &[0, 1, 2])).contains("does not exist"));
    assert!(!folder.path().join("disk0").exists());
    // A layer above a member's file must not cause the file to be created when it is missing.
    let layered = |member: usize| {
        let file = member_of(folder.path(), member);
        format!(
            "delay:0ms:[{}]",
            file.strip_suffix("?size=96MiB").expect("its size")
        )
    };
    let told = refusal(
        &parse(&format!("raid1:[{}, {}]", layered(0), layered(1))).expect("a specification"),
    );
    assert!(
        told.contains("disk0 does not exist") && !told.contains("specify a size"),
        "{told}"
    );
    made(&of("raid5:64KiB", &[0, 1, 2]), &Creation::default()).expect("a set");
    let again = made(&of("raid1", &[2, 3]), &Creation::default()).expect_err("a member of a set");
    assert!(again.to_string().contains("RAID"), "{again}");
    assert!(refusal(&of("raid6:64KiB", &[0, 1, 2])).contains("RAID 5 set"));
    assert!(refusal(&of("raid5:4KiB", &[0, 1, 2])).contains("strips of 65536 bytes"));
    std::fs::remove_file(folder.path().join("disk1")).expect("a dead disk");
    std::fs::remove_file(folder.path().join("disk2")).expect("another");
    assert!(refusal(&of("raid5:64KiB", &[0, 1, 2])).contains("disk1 does not exist"));
    let few = made(&of("raid5:64KiB", &[4, 5]), &Creation::default()).expect_err("too few");
    assert!(few.to_string().contains("at least 3 members"), "{few}");
    assert!(
        !folder.path().join("disk4").exists(),
        "it was made for nothing"
    );
    let with_journal = Creation {
        journal: Some(Bytes(1 << 20)),
        ..Creation::default()
    };
    let refused = made(&of("raid1", &[4, 5]), &with_journal).expect_err("no journal");
    assert!(
        refused.to_string().contains("RAID 1 has no journal"),
        "{refused}"
    );
    let memory = parse("raid1:[ram:96MiB, ram:96MiB]").expect("a specification");
    assert!(made(&memory, &Creation::default()).is_err());
    // The minimum size that the refusal names is sufficient, and a smaller size is not.
    for level in ["raid1", "raid5:64KiB", "raid6:16KiB"] {
        let of_size = |size: &str| {
            let folder = tempfile::tempdir().expect("a folder");
            let members = [0, 1, 2, 3].map(|member| {
                format!(
                    "file:{}?size={size}",
                    folder.path().join(format!("disk{member}")).display()
                )
            });
            let spec =
                parse(&format!("{level}:[{}]", members.join(", "))).expect("a specification");
            made(&spec, &Creation::default()).map_err(|refused| refused.to_string())
        };
        let refused = of_size("1MiB").expect_err("too small");
        let least = refused
            .split("use members of ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        let least = least.unwrap_or_else(|| panic!("{refused}"));
        assert_eq!(of_size(least), Ok(()), "{level}: {refused}");
        let bytes = least.parse::<Bytes>().expect("a size").0;
        let refused = of_size(&(bytes - 512).to_string()).expect_err("too small");
        assert!(
            refused.contains(&format!("use members of {least} or more")),
            "{level}: {refused}"
        );
    }
}

#[test]
fn a_set_of_memory_needs_no_creation() {
    let spec = parse("raid0:64KiB:[raid1:[ram:8MiB, ram:8MiB], raid1:[ram:8MiB, ram:8MiB]]")
        .expect("nested");
    assert!(!spec.keeps_data());
    remote::run(async {
        let device = open(&spec).await.map_err(Failure::from)?;
        assert_eq!(device.geometry().bytes(), 16 << 20);
        Ok(())
    })
    .expect("memory");
}

/// Hosts align their requests to the reported strip and stripe.
#[test]
fn a_set_reports_its_strip_and_its_stripe_through_layers() {
    let reported = |text: &str| {
        remote::run(async {
            let device = open(&parse(text).expect("a specification"))
                .await
                .map_err(Failure::from)?;
            let optimal = device.profile().optimal_transfer;
            Ok(optimal.map(|optimal| (optimal.granularity.0, optimal.length.0)))
        })
        .unwrap_or_else(|failure| panic!("{text}: {failure}"))
    };
    let [short, long] = ["ram:8MiB", "ram:8MiB?block=4096"].map(|member| [member; 4].join(", "));
    assert_eq!(
        reported(&format!("raid0:64KiB:[{short}]")),
        Some((128, 512))
    );
    assert_eq!(
        reported(&format!("raid5:64KiB:[{short}]")),
        Some((128, 384))
    );
    assert_eq!(reported(&format!("raid6:16KiB:[{short}]")), Some((32, 64)));
    assert_eq!(
        reported(&format!("raid10:64KiB:[{short}]")),
        Some((128, 256))
    );
    assert_eq!(
        reported(&format!("raid10:64KiB:[{short}, ram:8MiB]")),
        Some((128, 640)),
        "two rows"
    );
    assert_eq!(
        reported(&format!("raid1:[{short}]")),
        None,
        "all lengths are equally good"
    );
    assert_eq!(reported(&format!("raid5:64KiB:[{long}]")), Some((16, 48)));
    assert_eq!(
        reported(&format!("512e:[raid5:64KiB:[{long}]]")),
        Some((128, 384))
    );
    assert_eq!(
        reported(&format!("limit:1000iops:[fault:[raid5:64KiB:[{short}]]]")),
        Some((128, 384))
    );
}

#[test]
fn members_with_old_data_are_made_to_fit() {
    let bitmap = Some(Bytes(0));
    for (level, members, journal) in [
        ("raid1", 2, None),
        ("raid5:64KiB", 3, None),
        ("raid5:64KiB", 3, bitmap),
        ("raid6:16KiB", 4, None),
        ("raid6:16KiB", 4, bitmap),
        ("raid10:64KiB", 5, None),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let all: Vec<usize> = (0..members).collect();
        for member in &all {
            let old = vec![0x40 + *member as u8; 96 << 20];
            std::fs::write(folder.path().join(format!("disk{member}")), old).expect("old data");
        }
        let spec = set(folder.path(), level, &all);
        let creation = Creation {
            journal,
            ..Creation::default()
        };
        remote::run(async { create(&spec, &creation, Consent::Given).await }).expect("a set");
        let (sets, _) = remote::run(status(&spec)).expect("a set");
        // A set with a bitmap reads from all members from the start.
        let has_copies = matches!(level, "raid1" | "raid10:64KiB");
        let (has_bitmap, said) = (has_copies || journal.is_some(), sets[0].to_string());
        assert!(sets[0].unsynchronised && !sets[0].is_healthy());
        let expected = if has_bitmap {
            Condition::Unsynchronised
        } else {
            Condition::Rebuilding
        };
        assert_eq!(sets[0].state, expected, "{said}");
        let says = match (has_copies, has_bitmap) {
            (true, _) => "copies differ until",
            (false, true) => "parity is computed region by region",
            (false, false) => "degraded until",
        };
        assert!(said.contains(says), "{said}");
        let found =
            remote::run(async { scrub(&spec, false, &mut |_, _| {}).await }).expect("scrubbed");
        assert_eq!(
            (found.unsynchronised > 0, found.degraded > 0),
            (has_bitmap, !has_bitmap),
            "{found}"
        );
        assert_eq!(
            found.to_string().contains("created on used disks"),
            has_bitmap,
            "{found}"
        );
        let fast = parse(&format!("{spec}?rebuild=4GiB")).expect("a specification");
        remote::run(async {
            let (_device, set) = in_use(&fast).await?;
            while !matches!(set.status().state, Condition::Healthy) {
                reactor::sleep(Duration::from_millis(20)).await;
            }
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
        let found =
            remote::run(async { scrub(&spec, false, &mut |_, _| {}).await }).expect("scrubbed");
        assert!(found.is_right() && found.degraded == 0, "{found}");
    }
}

#[test]
fn an_old_copy_of_a_member_is_not_read() {
    for (level, members) in [("raid1", 2), ("raid5:64KiB", 3)] {
        let folder = tempfile::tempdir().expect("a folder");
        let all: Vec<usize> = (0..members).collect();
        let spec = set(folder.path(), level, &all);
        made(&spec, &Creation::default()).expect("a set");
        fill(&spec, 0x11);
        let disk = folder.path().join("disk0");
        let old = std::fs::read(&disk).expect("a disk");
        fill(&spec, 0x22);
        std::fs::write(&disk, old).expect("the copy comes back");
        if level == "raid1" {
            assert!(refusal(&spec).contains("missing-are-lost"));
        } else {
            assert_filled(&spec, 0x22);
            let (sets, _) = remote::run(status(&spec)).expect("a set");
            assert_eq!(
                (sets[0].members[0].state, sets[0].left_out.len()),
                (MemberCondition::Failed, 1)
            );
        }
    }
}

#[test]
fn a_scrub_without_repair_and_a_refused_replacement_change_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (spec, two) = (
        set(folder.path(), "raid5:64KiB", &[0, 1, 2]),
        set(folder.path(), "raid5:64KiB", &[0, 1]),
    );
    made(&spec, &Creation::default()).expect("a set");
    let replaced = |volume: &str| {
        let volume = parse(volume).expect("a volume");
        let replaced = remote::run(async { replace(&two, 2, &volume, Consent::Given).await });
        replaced.expect_err("it is refused").to_string()
    };
    assert!(replaced(&member_of(folder.path(), 4)).contains("never used"));
    fill(&spec, 0x33);
    let read =
        |member: usize| std::fs::read(folder.path().join(format!("disk{member}"))).expect("a disk");
    let before = [read(0), read(1)];
    assert!(replaced("ram:96MiB").contains("does not keep its data"));
    assert!(
        replaced(&format!(
            "file:{}?size=8MiB",
            folder.path().join("small").display()
        ))
        .contains("a member needs")
    );
    let found = remote::run(async { scrub(&two, false, &mut |_, _| {}).await }).expect("scrubbed");
    assert!(found.degraded > 0);
    assert!(before == [read(0), read(1)], "something was written");
    assert_filled(&spec, 0x33);
    // The set must not start without a member that is present but read-only, or that belongs to another set.
    let read_only = parse(&format!("{}", spec).replacen("96MiB", "96MiB&read-only", 1));
    let read_only = read_only.expect("a specification");
    assert!(refusal(&read_only).contains("is not writable"));
    let taken = remote::run(async {
        let _user = open(&parse(&member_of(folder.path(), 1)).expect("a volume"))
            .await
            .map_err(Failure::from)?;
        Ok(open(&spec)
            .await
            .map(drop)
            .map_err(Failure::from)
            .expect_err("it is in use")
            .to_string())
    });
    assert!(taken.expect("a world").contains("in use"));
    assert_filled(&spec, 0x33);
}

#[test]
fn a_scrub_finds_what_was_changed_behind_the_set_and_repairs_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let spec = set(folder.path(), "raid5:64KiB", &[0, 1, 2]);
    made(&spec, &Creation::default()).expect("a set");
    fill(&spec, 0x77);
    let scrubbed = |repairs| {
        remote::run(async { scrub(&spec, repairs, &mut |_, _| {}).await }).expect("scrubbed")
    };
    assert!(scrubbed(false).is_right());
    let disk = std::fs::File::options()
        .write(true)
        .open(folder.path().join("disk2"))
        .expect("a disk");
    disk.write_all_at(b"unexpected bytes!", 80 << 20)
        .expect("written");
    assert_eq!(
        (
            scrubbed(false).mismatches,
            scrubbed(true).repaired,
            scrubbed(false).mismatches
        ),
        (1, 1, 0)
    );
}

#[test]
fn a_scrub_in_use_resumes_where_it_was_and_can_be_cancelled() {
    let folder = tempfile::tempdir().expect("a folder");
    let spec = set(folder.path(), "raid5:64KiB", &[0, 1, 2]);
    made(&spec, &Creation::default()).expect("a set");
    fill(&spec, 0x77);
    let disk = std::fs::File::options()
        .write(true)
        .open(folder.path().join("disk2"))
        .expect("a disk");
    // Corrupt one of the first stripes.
    disk.write_all_at(b"unexpected bytes!", 34 << 20)
        .expect("written");
    let at_rate = |rate: &str| parse(&format!("{spec}?rebuild={rate}")).expect("a specification");
    // Returns the findings of a scrub that has reached `stripes` or the end.
    let used = |spec: &Spec, order: Option<Order>, stripes: u64| {
        remote::run(async {
            let (_device, running) = in_use(spec).await?;
            let said = match order {
                Some(order) => Some(running.ask(order).await?),
                None => None,
            };
            loop {
                match running.status().scrub {
                    Some(scrub) if scrub.has_ended || scrub.found.stripes >= stripes => {
                        return Ok((Some(scrub), said));
                    }
                    None if said.is_some() => return Ok((None, said)),
                    _ => reactor::sleep(Duration::from_millis(5)).await,
                }
            }
        })
    };
    let recorded = || {
        remote::run(status(&spec)).expect("a set").0[0]
            .scrub
            .clone()
    };
    assert_eq!(recorded(), None);
    let (begun, _) =
        used(&at_rate("32MiB"), Some(Order::Scrub { repairs: true }), 60).expect("begun");
    let begun = begun.expect("a scrub");
    assert!(!begun.has_ended && begun.found.repaired == 1, "{begun:?}");
    let kept = recorded().expect("a scrub");
    assert!(
        !kept.has_ended && kept.repairs && kept.found.stripes >= 60,
        "{kept:?}"
    );
    assert_eq!(kept.found.repaired, 1);
    // The scrub resumes after the stripes that it has completed, so later corruption of these is not found.
    disk.write_all_at(b"something else", 34 << 20)
        .expect("written");
    let (ended, _) = used(&at_rate("4GiB"), None, u64::MAX).expect("resumed");
    let ended = ended.expect("a scrub");
    assert!(ended.has_ended && ended.found.repaired == 1, "{ended:?}");
    assert_eq!(ended.progress.done, ended.progress.total);
    assert_eq!(
        recorded().map(|scrub| (scrub.has_ended, scrub.found)),
        Some((true, ended.found))
    );
    assert_eq!(
        remote::run(async { scrub(&spec, false, &mut |_, _| {}).await })
            .expect("scrubbed")
            .mismatches,
        1
    );

    let slow = at_rate("1MiB");
    used(&slow, Some(Order::Scrub { repairs: false }), 0).expect("begun");
    assert!(recorded().is_some_and(|scrub| !scrub.has_ended && !scrub.repairs));
    let refused = used(&slow, Some(Order::Scrub { repairs: false }), 0).expect_err("it resumes");
    assert!(refused.to_string().contains("already"), "{refused}");
    let (cancelled, said) = used(&slow, Some(Order::CancelScrub), 0).expect("cancelled");
    assert_eq!(
        (
            cancelled,
            said.is_some_and(|said| said.contains("ended early"))
        ),
        (None, true)
    );
    assert_eq!(recorded(), None);
    assert!(used(&slow, Some(Order::CancelScrub), 0).is_err());
}

#[test]
fn a_member_that_is_taken_out_of_a_set_at_rest_has_no_user_any_more() {
    let sets = [
        ("raid1", 2),
        ("raid10:64KiB", 4),
        ("raid5:64KiB", 3),
        ("raid6:64KiB", 4),
    ];
    for (level, members) in sets {
        let folder = tempfile::tempdir().expect("a folder");
        let spec = set(folder.path(), level, &(0..members).collect::<Vec<_>>());
        made(&spec, &Creation::default()).expect("a set");
        fill(&spec, 0x21);
        remote::run(async {
            let (device, running) = in_use(&spec).await?;
            let disk = parse(&member_of(folder.path(), 1)).expect("a volume");
            assert!(open(&disk).await.is_err(), "{level}: it is in use");

            running.ask(Order::Fail { member: 1 }).await?;
            drop(open(&disk).await.map_err(Failure::from)?);
            drop(device);
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{level}: {failure}"));
    }
}

#[test]
fn a_set_whose_journal_is_destroyed_starts_without_it_when_that_is_accepted() {
    for checksums in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let spec = set(folder.path(), "raid5:64KiB", &[0, 1, 2]);
        made(
            &spec,
            &Creation {
                checksums,
                ..Creation::default()
            },
        )
        .expect("a set");
        fill(&spec, 0x77);
        let discarded =
            |yes: bool| remote::run(async { discard_journal(&spec, yes, &mut |_, _| {}).await });
        let refused = discarded(true).expect_err("it has a journal").to_string();
        assert!(refused.contains("can be replayed"), "{refused}");
        let disk = |member: usize| {
            let path = folder.path().join(format!("disk{member}"));
            std::fs::File::options()
                .write(true)
                .open(path)
                .expect("a disk")
        };
        // The headers are at the start of the area, on both members that have one; the parity of one stripe
        // is stale.
        for member in 0..2 {
            disk(member)
                .write_all_at(&[0x5a; 8192], raid::superblock::SLOTS_END)
                .expect("written");
        }
        if !checksums {
            disk(2)
                .write_all_at(b"stale parity of the first stripe", 33 << 20)
                .expect("written");
        } else {
            // Change data and parity whose checksums were still only in memory.
            for member in [0, 2] {
                disk(member)
                    .write_all_at(b"the last write", (33 << 20) + 512)
                    .expect("written");
            }
        }
        let refused = refusal(&spec);
        assert!(refused.contains("--discard-journal"), "{refused}");
        let refused = discarded(false).expect_err("without consent").to_string();
        testkit::says(&refused, &["--yes", "may have their old content"]);
        assert!(
            refusal(&spec).contains("--discard-journal"),
            "nothing was done"
        );
        let found = discarded(true).expect("discarded");
        assert!(found.is_right(), "{found}");
        assert_eq!(
            (found.mismatches, found.unreadable),
            (u64::from(!checksums), u64::from(checksums)),
            "{found}"
        );
        assert_filled(&spec, 0x77);
        let (sets, _) = remote::run(status(&spec)).expect("a set");
        assert!(sets[0].state.is_well() && sets[0].closed);
        assert!(sets[0].scrub.as_ref().is_some_and(|scrub| scrub.has_ended));
        fill(&spec, 0x3c);
        std::fs::remove_file(folder.path().join("disk0")).expect("a dead disk");
        assert_filled(&spec, 0x3c);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mirror = set(folder.path(), "raid1", &[0, 1]);
    made(&mirror, &Creation::default()).expect("a set");
    fill(&mirror, 1);
    let refused = remote::run(async { discard_journal(&mirror, true, &mut |_, _| {}).await });
    assert!(
        refused
            .expect_err("it has none")
            .to_string()
            .contains("no journal")
    );
}

#[test]
fn a_journal_has_any_volume_of_its_own_even_a_mirror() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| format!("file:{}?size=40MiB", folder.path().join(name).display());
    for (level, members, journal) in [
        ("raid5:64KiB", 3, file("one")),
        (
            "raid6:16KiB",
            4,
            format!("raid1:[{}, {}]", file("x"), file("y")),
        ),
    ] {
        let all: Vec<usize> = (0..members).map(|member| member + 10 * members).collect();
        let spec = set(folder.path(), level, &all);
        let journal_on = parse(&journal).expect("a volume");
        if journal_on.backend().kind().name == "raid1" {
            made(&journal_on, &Creation::default()).expect("a mirror");
        }
        made(
            &spec,
            &Creation {
                journal_on: Some(journal_on),
                ..Creation::default()
            },
        )
        .expect("a set");
        let said = refusal(&spec);
        testkit::says(&said, &["the device with the journal is missing"]);
        let names: Vec<String> = all
            .iter()
            .map(|member| member_of(folder.path(), *member))
            .collect();
        let whole =
            parse(&format!("{level}:[{journal}, {}]", names.join(", "))).expect("a specification");
        fill(&whole, 0x5a);
        let (sets, _) = remote::run(status(&whole)).expect("a set");
        assert!(sets[0].state.is_well() && sets[0].closed);
        assert_eq!(
            sets[0]
                .journal
                .as_ref()
                .and_then(|journal| journal.volume.clone()),
            Some(journal.clone())
        );
        let printed = parse(&sets[0].specification).expect("a specification");
        assert_filled(&printed, 0x5a);
        std::fs::remove_file(folder.path().join(format!("disk{}", all[1]))).expect("a dead disk");
        fill(&printed, 0x3c);
        assert_filled(
            &parse(&format!("{whole}?read-only")).expect("a specification"),
            0x3c,
        );
        assert_filled(&whole, 0x3c);
    }
}

/// Half of the set's members could run without the others, which are also lost: both losses must be
/// confirmed.
#[test]
fn a_lost_journal_and_lost_members_can_be_given_up_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = format!(
        "file:{}?size=40MiB",
        folder.path().join("journal").display()
    );
    let journal_on = Some(parse(&journal).expect("a volume"));
    let whole = set(folder.path(), "raid6", &[0, 1, 2, 3]);
    made(
        &whole,
        &Creation {
            journal_on,
            ..Creation::default()
        },
    )
    .expect("a set");
    let names: Vec<String> = (0..4)
        .map(|member| member_of(folder.path(), member))
        .collect();
    fill(
        &parse(&format!("raid6:[{journal}, {}]", names.join(", "))).expect("a set"),
        0x5a,
    );
    for lost in ["journal", "disk1", "disk3"] {
        std::fs::remove_file(folder.path().join(lost)).expect("a lost disk");
    }
    let left = set(folder.path(), "raid6", &[0, 2]);
    let discarded =
        |spec: &Spec| remote::run(async { discard_journal(spec, true, &mut |_, _| {}).await });
    assert!(
        discarded(&left)
            .expect_err("refused")
            .to_string()
            .contains("missing-are-lost")
    );
    let said = parse(&format!("{left}?missing-are-lost")).expect("a specification");
    assert!(
        refusal(&said).contains("--discard-journal"),
        "{}",
        refusal(&said)
    );
    discarded(&said).expect("both are said");
    assert_filled(&left, 0x5a);
}

/// The state after a crash during a fallback: the members have an empty journal, and the superblocks do not
/// record the fallback yet.
#[test]
fn a_lost_journal_can_be_given_up_whatever_the_members_have_in_reserve() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = folder.path().join("journal");
    let journal_on = parse(&format!("file:{}?size=40MiB", journal.display())).expect("a volume");
    let (spec, other) = (
        set(folder.path(), "raid5", &[0, 1, 2]),
        set(folder.path(), "raid5", &[3, 4, 5]),
    );
    made(
        &spec,
        &Creation {
            journal_on: Some(journal_on.clone()),
            ..Creation::default()
        },
    )
    .expect("a set");
    made(&other, &Creation::default()).expect("a set");
    fill(&other, 1);
    let names: Vec<String> = (0..3)
        .map(|member| member_of(folder.path(), member))
        .collect();
    fill(
        &parse(&format!("raid5:[{journal_on}, {}]", names.join(", "))).expect("a set"),
        0x5a,
    );
    // The journal's position: after the superblocks, and before the data.
    let (start, bytes) = (192 << 10, 32 << 20);
    for member in 0..2 {
        let mut area = vec![0; bytes];
        let disk = |member: usize| folder.path().join(format!("disk{member}"));
        let from = std::fs::File::open(disk(member + 3)).expect("a member");
        from.read_exact_at(&mut area, start).expect("its journal");
        let into = std::fs::File::options()
            .write(true)
            .open(disk(member))
            .expect("a member");
        into.write_all_at(&area, start).expect("written");
    }
    std::fs::remove_file(journal).expect("a lost journal");
    assert!(
        refusal(&spec).contains("the device with the journal is missing"),
        "{}",
        refusal(&spec)
    );
    remote::run(async { discard_journal(&spec, true, &mut |_, _| {}).await })
        .expect("it starts without it");
    assert_filled(&spec, 0x5a);
}

#[test]
fn a_journal_on_a_volume_of_its_own_that_cannot_be_is_refused_and_nothing_is_made_for_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |level: &str, members: &[usize], journal_on: &str, journal: Option<Bytes>| {
        let journal_on = Some(parse(journal_on).expect("a volume"));
        let creation = Creation {
            journal_on,
            journal,
            ..Creation::default()
        };
        made(&set(folder.path(), level, members), &creation)
            .expect_err("it is refused")
            .to_string()
    };
    let file = |mib: u64| {
        format!(
            "file:{}?size={mib}MiB",
            folder.path().join(format!("journal{mib}")).display()
        )
    };
    assert!(refused("raid1", &[0, 1], &file(40), None).contains("this set is RAID 1"));
    assert!(
        refused("raid5", &[0, 1, 2], &file(40), Some(Bytes(0))).contains("without --journal 0")
    );
    assert!(refused("raid5", &[0, 1, 2], "ram:40MiB", None).contains("does not keep its data"));
    let said = refused("raid5", &[0, 1, 2], &file(8), None);
    testkit::says(&said, &["the journal needs 33751040", "--journal SIZE"]);
    assert!(refused("raid5", &[0, 1, 2], &member_of(folder.path(), 2), None).contains("in use"));
    assert_eq!(
        std::fs::read_dir(folder.path()).expect("a folder").count(),
        0
    );
    let creation = Creation {
        journal_on: Some(parse(&file(8)).expect("a volume")),
        journal: Some(Bytes(4 << 20)),
        ..Creation::default()
    };
    made(&set(folder.path(), "raid5", &[0, 1, 2]), &creation).expect("a smaller journal");
}

#[test]
fn with_checksums_data_stay_right_and_a_scrub_says_which_member_was_wrong() {
    for level in ["raid1", "raid5:64KiB"] {
        let folder = tempfile::tempdir().expect("a folder");
        let spec = set(folder.path(), level, &[0, 1, 2]);
        made(
            &spec,
            &Creation {
                checksums: true,
                ..Creation::default()
            },
        )
        .expect("a set");
        fill(&spec, 0x77);
        let disk = std::fs::File::options()
            .write(true)
            .open(folder.path().join("disk0"))
            .expect("a disk");
        disk.write_all_at(&vec![0x5a; 4 << 20], 40 << 20)
            .expect("written");
        assert_filled(&spec, 0x77);
        let scrubbed = |repairs| {
            remote::run(async { scrub(&spec, repairs, &mut |_, _| {}).await }).expect("scrubbed")
        };
        let found = scrubbed(true);
        assert!(
            found.is_right() && found.wrong_blocks[0] > 0,
            "{level}: {found}"
        );
        assert_eq!(found.wrong_blocks[1..], [0, 0], "{level}: {found}");
        assert_eq!(
            (scrubbed(false).unreadable, scrubbed(false).mismatches),
            (0, 0),
            "{level}"
        );
        assert_filled(&spec, 0x77);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |level: &str, journal: u64| {
        let creation = Creation {
            checksums: true,
            journal: Some(Bytes(journal)),
            ..Creation::default()
        };
        made(&set(folder.path(), level, &[0, 1, 2]), &creation)
            .expect_err("refused")
            .to_string()
    };
    assert!(refused("raid0", 0).contains("RAID 0 has no redundancy"));
    assert!(refused("raid5", 0).contains("RAID 5 without a journal"));
}

#[test]
fn a_spare_takes_the_place_of_a_lost_member() {
    let folder = tempfile::tempdir().expect("a folder");
    let spec = set(folder.path(), "raid5:64KiB", &[0, 1, 2]);
    let spare = parse(&member_of(folder.path(), 3)).expect("a volume");
    made(
        &spec,
        &Creation {
            spares: vec![spare],
            ..Creation::default()
        },
    )
    .expect("a set");
    fill(&spec, 0x11);
    std::fs::remove_file(folder.path().join("disk0")).expect("a dead disk");
    let with_spare = set(folder.path(), "raid5:64KiB", &[1, 2, 3]);
    let with_spare = parse(&format!("{with_spare}?rebuild=1GiB")).expect("a specification");
    assert_rebuilt(&with_spare);
    std::fs::remove_file(folder.path().join("disk1")).expect("another dead disk");
    assert_filled(&with_spare, 0x11);
    let new = parse(&member_of(folder.path(), 4)).expect("a volume");
    let replaced =
        |member| remote::run(async { replace(&with_spare, member, &new, Consent::Given).await });
    assert!(
        replaced(0)
            .expect_err("a member")
            .to_string()
            .contains("in sync")
    );
    replaced(1).expect("replaced");
    let repaired = parse(&format!(
        "{}?rebuild=1GiB",
        set(folder.path(), "raid5:64KiB", &[2, 3, 4])
    ));
    let repaired = repaired.expect("a specification");
    assert_rebuilt(&repaired);
    std::fs::remove_file(folder.path().join("disk2")).expect("a third dead disk");
    assert_filled(&repaired, 0x11);
}

#[test]
fn a_set_without_a_journal_that_is_refused_for_a_member_starts_once_that_is_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let spec = set(folder.path(), "raid5:64KiB", &[0, 1, 2]);
    made(
        &spec,
        &Creation {
            journal: Some(Bytes(0)),
            ..Creation::default()
        },
    )
    .expect("a set");
    fill(&spec, 0x71);
    let crashed = tempfile::tempdir().expect("a folder");
    remote::run(async {
        let device = open(&spec).await.map_err(Failure::from)?;
        let write = device.write(
            Extent::new(0, 1),
            Buffer::zeroed(512).share(),
            Durability::Stable,
        );
        write
            .await
            .map_err(|error| Failure::device("write", error))?;
        for disk in ["disk0", "disk1", "disk2"] {
            std::fs::copy(folder.path().join(disk), crashed.path().join(disk)).expect("copied");
        }
        Ok(())
    })
    .unwrap_or_else(|failure| panic!("{failure}"));
    let (disk, away) = (crashed.path().join("disk2"), crashed.path().join("away"));
    let spec = set(crashed.path(), "raid5:64KiB", &[0, 1, 2]);
    std::fs::rename(&disk, &away).expect("a disk that is late");
    for _ in 0..2 {
        assert!(
            refusal(&spec).contains("data-may-be-wrong"),
            "{}",
            refusal(&spec)
        );
        let (sets, _) = remote::run(status(&spec)).expect("a set");
        let said = sets[0].refusal.as_deref().unwrap_or_default();
        assert!(
            said.contains("data-may-be-wrong") && sets[0].state == Condition::Refused,
            "{}",
            sets[0]
        );
        let overruled = parse(&format!("{spec}?data-may-be-wrong")).expect("a specification");
        let (sets, _) = remote::run(status(&overruled)).expect("a set");
        assert_eq!(sets[0].state, Condition::Degraded, "{}", sets[0]);
    }
    std::fs::rename(&away, &disk).expect("it is there");
    remote::run(async { open(&spec).await.map(drop).map_err(Failure::from) })
        .expect("all are there");
    let (sets, _) = remote::run(status(&spec)).expect("a set");
    assert!(sets[0].state.is_well(), "{}", sets[0]);
    // The same applies to a set whose journal is lost.
    let (degraded, lost) = (tempfile::tempdir().expect("a folder"), 2);
    let spec = set(folder.path(), "raid5:64KiB", &[0, 1, 2]);
    remote::run(async {
        let device = open(&spec).await.map_err(Failure::from)?;
        let write = device.write(
            Extent::new(0, 1),
            Buffer::zeroed(512).share(),
            Durability::Stable,
        );
        write
            .await
            .map_err(|error| Failure::device("write", error))?;
        for disk in 0..lost {
            let disk = format!("disk{disk}");
            std::fs::copy(folder.path().join(&disk), degraded.path().join(&disk)).expect("copied");
        }
        Ok(())
    })
    .unwrap_or_else(|failure| panic!("{failure}"));
    let spec = set(degraded.path(), "raid5:64KiB", &[0, 1]);
    assert!(refusal(&spec).contains("data-may-be-wrong"));
    let overruled = parse(&format!("{spec}?data-may-be-wrong")).expect("a specification");
    remote::run(async { open(&overruled).await.map(drop).map_err(Failure::from) })
        .expect("overruled");
}

/// Checks that a rebuild resumes at the position that it had when the set was closed.
fn assert_rebuilt(spec: &Spec) {
    let in_sync = || {
        let (sets, others) = remote::run(status(spec)).expect("a set");
        assert!(others.is_empty(), "{others:?}");
        sets[0]
            .members
            .iter()
            .all(|member| member.state == MemberCondition::InSync)
    };
    assert!(!in_sync());
    while !in_sync() {
        remote::run(async {
            let device = open(spec).await.map_err(Failure::from)?;
            reactor::sleep(Duration::from_millis(200)).await;
            device
                .flush()
                .await
                .map_err(|error| Failure::device("flush", error))
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn a_set_does_not_grow_while_a_member_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    made(
        &set(folder.path(), "raid5:64KiB", &[0, 1, 2]),
        &Creation::default(),
    )
    .expect("a set");
    let path = |disk: usize| folder.path().join(format!("disk{disk}"));
    for disk in 0..4 {
        let file = std::fs::File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path(disk));
        file.expect("a disk")
            .set_len(160 << 20)
            .expect("a larger disk");
    }
    let members = |disks: [usize; 3]| {
        let disks = disks.map(|disk| format!("file:{}", path(disk).display()));
        parse(&format!("raid5:64KiB:[{}]?rebuild=64MiB", disks.join(", ")))
            .expect("a specification")
    };
    let before = members([0, 1, 2]);
    fill(&before, 0x21);
    remote::run(async {
        let (device, running) = in_use(&before).await?;
        let bytes = device.geometry().bytes();

        running.ask(Order::Grow).await?;
        running.ask(Order::Fail { member: 1 }).await?;
        let replace = |file: &str| Order::Replace {
            member: 1,
            with: parse(&format!("file:{}", folder.path().join(file).display())).expect("a volume"),
            overwrites: true,
        };
        running.ask(replace("disk3")).await?;
        while running.status().state != Condition::Healthy {
            reactor::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(
            device.geometry().bytes(),
            bytes,
            "it has grown with a disk that it no longer has"
        );
        let data = Buffer::zeroed(512);
        let write = device.write(Extent::new(0, 1), data.share(), Durability::Stable);
        write
            .await
            .map_err(|error| Failure::device("write", error))?;
        let mut again = Buffer::zeroed(512);
        again.fill(0x21);
        let write = device.write(Extent::new(0, 1), again.share(), Durability::Stable);
        write
            .await
            .map_err(|error| Failure::device("write", error))?;
        // Members on other hosts have no locks, so this process must not open a set twice, whatever its
        // members are.
        assert!(
            crate::raid::running::unused(&running.status().uuid.expect("it has one"), None)
                .await
                .is_err()
        );
        Ok(())
    })
    .unwrap_or_else(|failure| panic!("{failure}"));
    std::fs::remove_file(path(1)).expect("what was taken out");
    let after = members([0, 3, 2]);
    assert_filled(&after, 0x21);
    let found =
        remote::run(async { scrub(&after, false, &mut |_, _| {}).await }).expect("scrubbed");
    assert!(found.is_right() && found.degraded == 0, "{found}");
}

/// A clock that only sleeps advance. A sleep returns immediately.
struct Slept {
    begun: Instant,
    milliseconds: AtomicU64,
}

impl block::Sleeper for Slept {
    fn now(&self) -> Instant {
        self.begun + Duration::from_millis(self.milliseconds.load(Ordering::Relaxed))
    }

    fn sleep(&self, duration: Duration) -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
        self.milliseconds
            .fetch_add(duration.as_millis() as u64, Ordering::Relaxed);
        Box::pin(std::future::ready(()))
    }
}

#[test]
fn a_server_that_starts_waits_for_members() {
    let folder = tempfile::tempdir().expect("a folder");
    let spec = set(folder.path(), "raid5:64KiB", &[0, 1, 2]);
    made(&spec, &Creation::default()).expect("a set");
    fill(&spec, 0x44);
    let (disk, away) = (folder.path().join("disk1"), folder.path().join("away"));
    let states = |spec: &Spec| {
        let opening = Opening {
            start: Some(Instant::now()),
            ..crate::opening()
        };
        remote::run(async {
            let _device = spec.open(&opening).await.map_err(Failure::from)?;
            Ok(sets(&opening.layers)[0].status().state)
        })
        .unwrap_or_else(|failure| panic!("{failure}"))
    };
    let waits =
        |time: &str| parse(&format!("{spec}?assemble-wait={time}")).expect("a specification");
    // The default is 30 s, counted from the start of the server.
    let waited = |since_start: u64| {
        let (start, milliseconds) = (Instant::now(), AtomicU64::new(0));
        let slept = Arc::new(Slept {
            begun: start + Duration::from_secs(since_start),
            milliseconds,
        });
        let sleeper = Arc::clone(&slept) as _;
        let opening = Opening {
            start: Some(start),
            sleeper,
            read_only: true,
            ..crate::opening()
        };
        remote::run(async { named(&spec)?.assembled(&opening).await.map(drop) }).expect("degraded");
        slept.milliseconds.load(Ordering::Relaxed)
    };
    std::fs::rename(&disk, &away).expect("a disk that is late");
    assert_eq!([0, 20, 40].map(waited), [30_000, 10_000, 0]);
    let late = std::thread::scope(|scope| {
        let late = scope.spawn(|| states(&waits("10min")));
        std::thread::sleep(Duration::from_millis(100));
        std::fs::rename(&away, &disk).expect("it is there");
        late.join().expect("opened")
    });
    assert_eq!(late, Condition::Healthy);
    std::fs::rename(&disk, &away).expect("a disk that is lost");
    assert_eq!(states(&waits("0s")), Condition::Degraded);
    // The set does not wait for a member that is recorded as failed.
    assert_eq!(states(&waits("10min")), Condition::Degraded);
}

#[test]
fn status_and_opening_agree_on_what_is_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    made(&set(folder.path(), "raid1", &[0, 1]), &Creation::default()).expect("a set");
    fill(&set(folder.path(), "raid1", &[0, 1]), 0x12);
    let one = set(folder.path(), "raid1", &[0]);
    let lost = parse(&format!("{one}?missing-are-lost")).expect("a specification");
    let looked = |spec: &Spec| remote::run(status(spec)).expect("a set").0.remove(0);
    assert_eq!(looked(&one).state, Condition::Refused);
    assert_eq!(looked(&lost).state, Condition::Degraded);
    assert!(
        looked(&lost).specification.ends_with("?missing-are-lost"),
        "{}",
        looked(&lost)
    );
    // A scrub without repairs writes nothing. A scrub with repairs records the loss, like every other start
    // of the set.
    let scrubbed = |spec: &Spec, repairs| {
        remote::run(async { scrub(spec, repairs, &mut |_, _| {}).await }).expect("scrubbed")
    };
    assert!(!scrubbed(&lost, false).is_proof());
    assert_eq!(looked(&one).state, Condition::Refused);
    assert!(!scrubbed(&lost, true).is_proof());
    assert_eq!(looked(&one).state, Condition::Degraded);
    assert_filled(&one, 0x12);
    assert_eq!(looked(&lost).specification, looked(&one).specification);
    let found = scrubbed(&one, false);
    assert!(found.is_right() && !found.is_proof(), "{found}");
    assert_eq!(
        without_overruling("raid1:[file:/a?size=1MiB&read-only]?missing-are-lost&rebuild=1MiB"),
        "raid1:[file:/a?size=1MiB&read-only]?rebuild=1MiB"
    );
    assert_eq!(
        without_overruling("raid5:[file:/a]?rebuild=1MiB&data-may-be-wrong"),
        "raid5:[file:/a]?rebuild=1MiB"
    );
}

#[test]
fn a_set_that_was_never_used_is_created_anew_if_its_journal_is_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let spec = set(folder.path(), "raid5:64KiB", &[0, 1, 2]);
    let journal_on = Some(parse(&member_of(folder.path(), 3)).expect("a volume"));
    made(
        &spec,
        &Creation {
            journal_on,
            ..Creation::default()
        },
    )
    .expect("a set");
    let (sets, _) = remote::run(status(&spec)).expect("a set");
    let said = sets[0].refusal.as_deref().unwrap_or_default();
    assert!(
        said.contains("create the set again") && !said.contains("--discard-journal"),
        "{said}"
    );
}

#[test]
fn sets_that_are_written_alike_are_two() {
    let spec = parse("raid0:64KiB:[raid1:[ram:8MiB, ram:8MiB], raid1:[ram:8MiB, ram:8MiB]]")
        .expect("nested");
    remote::run(async {
        let (_device, sets) = crate::raid::open(&spec).await?;
        let [_, first, second] = &sets[..] else {
            panic!("{} sets", sets.len())
        };
        first.ask(Order::Fail { member: 0 }).await?;
        assert_eq!(
            (first.status().lacking(), second.status().lacking()),
            (1, 0)
        );
        let with = parse("ram:8MiB").expect("a volume");
        first
            .ask(Order::Replace {
                member: 0,
                with,
                overwrites: false,
            })
            .await?;
        assert_eq!(first.written(), "raid1:[ram:8MiB, ram:8MiB]");
        Ok(())
    })
    .unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn a_set_of_sets_is_created_by_one_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let pair = |members: [usize; 2]| set(folder.path(), "raid1", &members).to_string();
    let spec = parse(&format!("raid0:64KiB:[{}, {}]", pair([0, 1]), pair([2, 3]))).expect("nested");
    made(&spec, &Creation::default()).expect("a set of sets");
    fill(&spec, 0x3d);
    assert_filled(&spec, 0x3d);
}

#[test]
fn a_disk_of_the_set_is_named_if_it_is_to_replace_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let spec = set(folder.path(), "raid1", &[0, 1, 2]);
    made(&spec, &Creation::default()).expect("a set");
    let volume = |member| parse(&member_of(folder.path(), member)).expect("a volume");
    remote::run(async {
        let (_device, running) = in_use(&spec).await?;
        running.ask(Order::Fail { member: 0 }).await?;
        let replace = |with| {
            running.ask(Order::Replace {
                member: 0,
                with,
                overwrites: true,
            })
        };
        let refused = replace(volume(1)).await.expect_err("a member").to_string();
        testkit::says(&refused, &["is already member 1 of the set"]);
        replace(volume(0)).await.map(drop)
    })
    .unwrap_or_else(|failure| panic!("{failure}"));
}
