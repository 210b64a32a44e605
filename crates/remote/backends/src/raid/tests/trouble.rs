//! Sets with a faulty member: it is used by another host, it does not respond, it cannot be written, or it
//! may lose its cache undetected.

use testkit::logged;

use crate::raid::tests::*;

/// A volume that fails as the test requires.
#[derive(Debug)]
struct Tampered {
    inner: Spec,
    trouble: Arc<AtomicU8>,
}

const NONE: u8 = 0;
/// Another host has locked the volume's image.
const LOCKED: u8 = 1;
/// Another host has reserved the volume.
const RESERVED: u8 = 2;
/// The volume does not respond until this value changes.
const HANGS: u8 = 3;
/// Like [`HANGS`]; the volume has received at least one request since.
const HANGS_ASKED: u8 = 4;
/// Writes to the volume fail.
const UNWRITABLE: u8 = 5;
/// The volume's server may lose its cache undetected.
const LOSES_UNSEEN: u8 = 6;
/// One sector of the volume cannot be read until it is written.
const BAD_SECTOR: u8 = 7;
/// The unreadable sector, in the middle of a member's data.
const BAD: u64 = (64 << 20) / 512;

fn has_bad(extent: Extent) -> bool {
    (extent.lba.0..extent.lba.0 + extent.blocks.0).contains(&BAD)
}

struct TamperedDevice {
    inner: Arc<dyn BlockDevice>,
    trouble: Arc<AtomicU8>,
}

impl Backend for Tampered {
    fn kind(&self) -> &'static Kind {
        self.inner.backend.kind()
    }

    fn argument(&self) -> String {
        self.inner.backend.argument()
    }

    fn keeps_data(&self) -> bool {
        true
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn open<'a>(&'a self, opening: &'a Opening) -> Opened<'a> {
        Box::pin(async {
            if self.trouble.load(Ordering::Relaxed) == LOCKED {
                let held = "images/a is in use: the client at 192.0.2.7 has its exclusive lock";
                return Err(Failure::new(crate::failure::FailureKind::Reserved, held).into());
            }
            let (inner, trouble) = (self.inner.open(opening).await?, Arc::clone(&self.trouble));
            Ok(Arc::new(TamperedDevice { inner, trouble }) as _)
        })
    }
}

impl BlockDevice for TamperedDevice {
    block::forward!(self => self.inner; geometry, flush, losses, unmap, write_zeroes, allocation, quiesced);

    fn profile(&self) -> block::Profile {
        let loses_unseen = self.trouble.load(Ordering::Relaxed) == LOSES_UNSEEN;
        block::Profile {
            loses_unseen,
            ..self.inner.profile()
        }
    }

    fn write(
        &self,
        extent: Extent,
        data: block::Slice,
        durability: Durability,
    ) -> block::Pending<'_, ()> {
        match self.trouble.load(Ordering::Relaxed) {
            UNWRITABLE => Box::pin(std::future::ready(Err(DeviceError::NotReady))),
            trouble => {
                if trouble == BAD_SECTOR && has_bad(extent) {
                    self.trouble.store(NONE, Ordering::Relaxed);
                }
                self.inner.write(extent, data, durability)
            }
        }
    }

    fn read(&self, extent: Extent, buffer: Buffer) -> block::Pending<'_, Buffer> {
        Box::pin(async move {
            while let HANGS | HANGS_ASKED = self.trouble.load(Ordering::Relaxed) {
                self.trouble.store(HANGS_ASKED, Ordering::Relaxed);
                reactor::sleep(Duration::from_millis(1)).await;
            }
            match self.trouble.load(Ordering::Relaxed) {
                RESERVED => Err(DeviceError::Reserved),
                BAD_SECTOR if has_bad(extent) => Err(DeviceError::Unreadable(block::Lba(BAD))),
                _ => self.inner.read(extent, buffer).await,
            }
        })
    }
}

/// A new set whose last members can be tampered with, all in the same way.
struct Scene {
    folder: tempfile::TempDir,
    /// The same set without tampering.
    plain: Spec,
    spec: Spec,
    trouble: Arc<AtomicU8>,
}

impl Scene {
    fn new(level: &str, members: &[usize], tampered: usize) -> Scene {
        let folder = tempfile::tempdir().expect("a folder");
        let plain = set(folder.path(), level, members);
        made(&plain, &Creation::default()).expect("a set");
        let (spec, trouble) = with_tampered(&plain, tampered);
        Scene {
            folder,
            plain,
            spec,
            trouble,
        }
    }

    fn raid5() -> Scene {
        Scene::new("raid5:64KiB", &[0, 1, 2], 1)
    }

    fn has(&self, trouble: u8) {
        self.trouble.store(trouble, Ordering::Relaxed);
    }
}

/// Returns the specification of the set with its last `count` members tampered with.
fn with_tampered(plain: &Spec, count: usize) -> (Spec, Arc<AtomicU8>) {
    let trouble: Arc<AtomicU8> = Arc::default();
    let mut raid = named(plain).expect("a set");
    for member in raid.members.iter_mut().rev().take(count) {
        let inner = member.clone();
        let backend = Arc::new(Tampered {
            inner: inner.clone(),
            trouble: Arc::clone(&trouble),
        });
        *member = Spec { backend, ..inner };
    }
    (
        Spec {
            backend: Arc::new(raid),
            ..plain.clone()
        },
        trouble,
    )
}

/// The other user may be running the set. If this host started the set without that member, there would be
/// two diverging sets.
#[test]
fn a_set_is_not_started_without_a_member_that_somebody_else_uses() {
    let scene = Scene::raid5();
    fill(&scene.plain, 0x2b);
    scene.has(LOCKED);
    let refused = refusal(&scene.spec);
    testkit::says(&refused, &["192.0.2.7", "remove it from the brackets"]);
    scene.has(RESERVED);
    let refused = refusal(&scene.spec);
    testkit::says(&refused, &["disk2", "reserved by another initiator"]);
    // A set that has this set as a member must not start without it either.
    let backend = Arc::clone(&scene.spec.backend);
    let mut outer = named(&parse("raid1:[ram:8MiB, ram:8MiB]").expect("a set")).expect("a set");
    outer.members = vec![
        Spec {
            backend,
            ..scene.plain.clone()
        },
        scene.plain.clone(),
    ];
    let refused = refusal(&Spec {
        backend: Arc::new(outer),
        ..scene.plain.clone()
    });
    testkit::says(&refused, &["reserved by another initiator"]);
    // Nothing was recorded. Excluding the member requires an explicit specification without it.
    scene.has(NONE);
    let (sets, _) = remote::run(status(&scene.plain)).expect("a set");
    assert!(sets[0].state.is_well(), "{}", sets[0]);
    assert_filled(&set(scene.folder.path(), "raid5:64KiB", &[0, 1]), 0x2b);
}

#[test]
fn a_member_that_hangs_is_taken_out_while_a_scrub_waits_for_it() {
    let scene = Scene::raid5();
    remote::run(async {
        let (device, running) = in_use(&scene.spec).await?;
        scene.has(HANGS);
        running.ask(Order::Scrub { repairs: false }).await?;
        while scene.trouble.load(Ordering::Relaxed) != HANGS_ASKED {
            reactor::sleep(Duration::from_millis(1)).await;
        }
        // This order would never complete if it waited for the scrub.
        let said = running.ask(Order::Fail { member: 2 }).await?;
        assert!(said.contains("removed from the set"), "{said}");
        assert_eq!(running.status().members[2].state, MemberCondition::Failed);
        assert_eq!(
            scene.trouble.load(Ordering::Relaxed),
            HANGS_ASKED,
            "it hangs still"
        );
        scene.has(NONE);
        drop(device);
        Ok(())
    })
    .expect("taken out");
}

/// The other host may be running the set: a superblock written here might overwrite its own.
#[test]
fn a_set_with_a_member_of_another_host_takes_no_orders() {
    let scene = Scene::raid5();
    let disk = || std::fs::read(scene.folder.path().join("disk0")).expect("a member");
    remote::run(async {
        let (device, running) = in_use(&scene.spec).await?;
        scene.has(RESERVED);
        let (extent, buffer) = (Extent::new(0, 512), Buffer::zeroed(512 * 512));
        assert_eq!(
            device.read(extent, buffer).await.map(drop),
            Err(DeviceError::Fenced)
        );
        let before = disk();
        for order in [Order::Scrub { repairs: false }, Order::Fail { member: 0 }] {
            let refused = running
                .ask(order)
                .await
                .expect_err("taken over")
                .to_string();
            assert!(!refused.is_empty());
        }
        let refused = running
            .ask(Order::Scrub { repairs: true })
            .await
            .expect_err("taken over")
            .to_string();
        testkit::says(&refused, &["another host has taken over a member"]);
        assert!(before == disk(), "nothing is written");
        drop(device);
        Ok(())
    })
    .expect("refused");
    scene.has(NONE);
}

async fn written(device: &dyn BlockDevice, byte: u8) -> Result<(), DeviceError> {
    let mut data = Buffer::zeroed(4096);
    data.fill(byte);
    device
        .write(Extent::new(64, 8), data.share(), Durability::Cached)
        .await
}

#[test]
fn a_set_that_has_stopped_starts_again_with_its_members() {
    let scene = Scene::raid5();
    let restarted_twice = async {
        let (device, running) = in_use(&scene.spec).await?;
        running.ask(Order::Fail { member: 0 }).await?;
        written(&*device, 1).await.expect("two of three");
        scene.has(UNWRITABLE);
        written(&*device, 2).await.expect_err("one of three");
        while running.status().why.is_none() {
            reactor::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(running.status().state, Condition::Failed);
        running
            .ask(Order::Assemble)
            .await
            .expect_err("its member cannot be written");
        let refused = running
            .ask(Order::Grow)
            .await
            .expect_err("it has stopped")
            .to_string();
        assert!(refused.contains("raid assemble"), "{refused}");
        scene.has(NONE);
        let said = running.ask(Order::Assemble).await?;
        assert!(said.contains("restarted"), "{said}");
        assert_eq!(
            (running.status().state, running.status().why),
            (Condition::Degraded, None)
        );
        let read = device
            .read(Extent::new(64, 8), Buffer::zeroed(4096))
            .await
            .expect("it serves");
        assert!(read.iter().all(|byte| *byte == 1 || *byte == 2));
        // The set also restarts automatically.
        scene.has(UNWRITABLE);
        written(&*device, 3).await.expect_err("one of three");
        scene.has(NONE);
        while written(&*device, 4).await.is_err() {
            reactor::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    };
    let ((), log) =
        logged(|| remote::run(restarted_twice).unwrap_or_else(|failure| panic!("{failure}")));
    let stops: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("a RAID set has stopped"))
        .collect();
    assert_eq!(stops.len(), 2, "{log}");
    let [failed, well] = [0, 1].map(|member| member_of(scene.folder.path(), member));
    for expected in [
        format!("; member 0 ({failed}): failed, member 1 ({well}): in sync, member 2 (file:"),
        format!(
            "disk2): {}; it restarts automatically when all its members",
            DeviceError::NotReady
        ),
        "or with `linerate raid assemble".to_owned(),
    ] {
        assert!(stops[0].contains(&expected), "{}: no {expected}", stops[0]);
    }
}

/// Regression: the rebuild failed repeatedly at the unreadable sector, and the scrub queued after it never
/// started.
#[test]
fn a_scrub_follows_a_rebuild_with_a_bad_sector_and_the_lost_blocks_are_reported() {
    let scene = Scene::raid5();
    fill(&scene.plain, 0x2b);
    let members = set(scene.folder.path(), "raid5:64KiB", &[3, 1, 2]);
    let looked = || remote::run(status(&members)).expect("a set").0.remove(0);
    let are_lost = "fail until it is rewritten";
    let mut bad = None;
    let scrubbed = async {
        let (device, running) = in_use(&scene.spec).await?;
        running.ask(Order::Fail { member: 0 }).await?;
        scene.has(BAD_SECTOR);
        let with = parse(&member_of(scene.folder.path(), 3)).expect("a volume");
        running
            .ask(Order::Replace {
                member: 0,
                with,
                overwrites: true,
            })
            .await?;
        running.ask(Order::Scrub { repairs: true }).await?;
        let found = loop {
            let status = running.status();
            assert_eq!(status.trouble, None);
            match status.scrub {
                Some(scrub) if scrub.has_ended => break scrub.found,
                _ => reactor::sleep(Duration::from_millis(5)).await,
            }
        };
        assert_eq!(
            (found.unreadable, found.repaired, found.degraded),
            (1, 0, 0),
            "{found}"
        );
        let status = running.status();
        assert_eq!(
            (status.state, status.lost_blocks()),
            (Condition::Healthy, 1),
            "{status}"
        );
        assert!(
            !status.is_healthy() && status.to_string().contains(are_lost),
            "{status}"
        );
        running
            .ask(Order::CancelScrub)
            .await
            .expect_err("it has ended");
        // A stripe has 256 blocks.
        for stripe in 0..device.geometry().blocks.0 / 256 {
            let read = device
                .read(Extent::new(256 * stripe, 256), Buffer::zeroed(256 * 512))
                .await;
            bad = bad.or(read.is_err().then_some(stripe));
        }
        Ok(())
    };
    let ((), log) = logged(|| remote::run(scrubbed).unwrap_or_else(|failure| panic!("{failure}")));
    let disk = format!("disk={:?}", member_of(scene.folder.path(), 3));
    let lost: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("of a member of a RAID set are lost"))
        .collect();
    assert!(matches!(lost[..], [only] if only.contains(&disk)), "{log}");
    let status = looked();
    assert!(
        status.state.is_well() && !status.is_healthy() && status.to_string().contains(are_lost),
        "{status}"
    );
    assert_eq!(status.members[0].lost_blocks, 1);
    // A later write of the blocks repairs them.
    remote::run(async {
        let (device, running) = in_use(&members).await?;
        let extent = Extent::new(256 * bad.expect("a stripe with lost blocks"), 256);
        device
            .write(
                extent,
                Buffer::zeroed(256 * 512).share(),
                Durability::Stable,
            )
            .await
            .expect("written");
        assert!(running.status().is_healthy(), "{}", running.status());
        Ok(())
    })
    .unwrap_or_else(|failure| panic!("{failure}"));
    assert!(looked().is_healthy(), "{}", looked());
}

/// Writes that a mirror has acknowledged but not flushed may be lost with its members' caches. The users of
/// the mirror must receive an error.
#[test]
fn a_mirror_that_starts_again_counts_a_loss() {
    let scene = Scene::new("raid1", &[0, 1], 2);
    remote::run(async {
        let (device, running) = in_use(&scene.spec).await?;
        let losses = device.losses();
        scene.has(UNWRITABLE);
        written(&*device, 1)
            .await
            .expect_err("neither copy, and no record of that");
        while running.status().why.is_none() {
            reactor::sleep(Duration::from_millis(5)).await;
        }
        scene.has(NONE);
        while written(&*device, 1).await.is_err() {
            reactor::sleep(Duration::from_millis(5)).await;
        }
        assert!(device.losses().count() > losses.count());
        Ok(())
    })
    .unwrap_or_else(|failure| panic!("{failure}"));
}

/// Like a member over AoE without `?cache-loss-unseen`, whose server does not report that its write cache is
/// off.
#[test]
fn a_member_whose_protocol_does_not_show_the_loss_of_its_cache_is_refused() {
    for (level, members) in [
        ("raid1", &[0, 1][..]),
        ("raid5:64KiB", &[0, 1, 2]),
        ("raid10:64KiB", &[0, 1]),
    ] {
        let scene = Scene::new(level, members, 1);
        scene.has(LOSES_UNSEEN);
        let refused = refusal(&scene.spec);
        assert!(
            refused.contains("does not report that the server has lost the cache")
                && refused.contains("?cache-loss-unseen"),
            "{level}: {refused}"
        );
        // If the user has accepted the risk, the profile no longer reports it.
        scene.has(NONE);
        remote::run(async { in_use(&scene.spec).await.map(drop) }).expect("a set");
    }
    // RAID 0 has no redundant copies to choose from.
    let scene = Scene::new("raid0:64KiB", &[0, 1], 1);
    scene.has(LOSES_UNSEEN);
    remote::run(async { in_use(&scene.spec).await.map(drop) }).expect("a set");
    // A replacement member is checked as well.
    let scene = Scene::raid5();
    remote::run(async {
        let (device, running) = in_use(&scene.spec).await?;
        running.ask(Order::Fail { member: 2 }).await?;
        scene.has(LOSES_UNSEEN);
        let with = named(&scene.spec).expect("a set").members.remove(2);
        let refused = running
            .ask(Order::Replace {
                member: 2,
                with,
                overwrites: true,
            })
            .await;
        let refused = refused.expect_err("refused").to_string();
        testkit::says(
            &refused,
            &["does not report that the server has lost the cache"],
        );
        drop(device);
        Ok(())
    })
    .expect("refused");
}

#[test]
fn a_spare_that_cannot_be_used_is_in_nobodys_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let spec = set(folder.path(), "raid1", &[0, 1]);
    let spares = [2, 3].map(|spare| parse(&member_of(folder.path(), spare)).expect("a volume"));
    made(
        &spec,
        &Creation {
            spares: spares.into(),
            ..Creation::default()
        },
    )
    .expect("a set");
    fill(&spec, 0x19);
    std::fs::remove_file(folder.path().join("disk0")).expect("a dead disk");
    let with_spares = parse(&format!(
        "{}?missing-are-lost",
        set(folder.path(), "raid1", &[1, 2, 3])
    ));
    let with_spares = with_spares.expect("a specification");
    // The set tries the last spare first.
    let (spec, trouble) = with_tampered(&with_spares, 1);
    trouble.store(UNWRITABLE, Ordering::Relaxed);
    remote::run(async {
        let (device, running) = in_use(&spec).await?;
        while running
            .status()
            .members
            .iter()
            .any(|member| member.state != MemberCondition::InSync)
        {
            reactor::sleep(Duration::from_millis(20)).await;
        }
        device
            .flush()
            .await
            .map_err(|error| Failure::device("flush", error))
    })
    .unwrap_or_else(|failure| panic!("{failure}"));
    assert_filled(&set(folder.path(), "raid1", &[1, 2]), 0x19);
}

/// Regression: the superblocks recorded the volume as a member being rebuilt, but the set did not use it.
#[test]
fn a_member_that_cannot_be_put_back_is_released_and_can_be_tried_again() {
    let scene = Scene::new("raid1", &[0, 1], 1);
    remote::run(async {
        let (device, running) = in_use(&scene.spec).await?;
        scene.has(UNWRITABLE);
        written(&*device, 1).await.expect("one of two");
        while !running.status().members[1].missed_regions_recorded {
            reactor::sleep(Duration::from_millis(5)).await;
        }
        let with = || named(&scene.spec).expect("a set").members.remove(1);
        let replace = || Order::Replace {
            member: 1,
            with: with(),
            overwrites: false,
        };
        running
            .ask(replace())
            .await
            .expect_err("its bitmap cannot be written");
        assert!(running.status().members[1].missed_regions_recorded);
        drop(
            open(&parse(&member_of(scene.folder.path(), 1)).expect("a volume"))
                .await
                .map_err(Failure::from)?,
        );
        scene.has(NONE);
        let said = running.ask(replace()).await?;
        testkit::says(&said, &["is member 1 again, and its missed regions"]);
        drop(device);
        Ok(())
    })
    .unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn a_set_without_reachable_members_fails_as_they_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let remote = |scheme| format!("{scheme}://127.0.0.1:1/iqn.2026-01.io.linerate:x/0");
    let absent = folder.path().join("absent");
    let cases = [
        (
            vec![remote("iscsi"), remote("nbd")],
            crate::failure::FailureKind::Unreachable,
        ),
        (
            vec![format!("file:{}", absent.display()), remote("nbd")],
            crate::failure::FailureKind::Unreachable,
        ),
        (
            vec![format!("file:{}", absent.display()); 2],
            crate::failure::FailureKind::Refused,
        ),
    ];
    for (members, kind) in cases {
        let set = parse(&format!("raid1:[{}]", members.join(", "))).expect("a specification");
        let opened = remote::run(async { open(&set).await.map(drop).map_err(Failure::from) });
        let failure = opened.expect_err("no member answers");
        assert_eq!(failure.kind(), kind, "{failure}");
    }
}
