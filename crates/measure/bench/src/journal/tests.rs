//! Scenarios: crashes, and the content that must be found afterwards.

use std::sync::Arc;
use std::time::Duration;

use block::BlockSize;
use proptest::prelude::*;
use reactor::{Alone, block_on};

use super::*;
use crate::plan::{Data, Percent, Workload};
use crate::test_disk::{Disk, Fault};
use crate::{Failure, Go, Orders, run_with_journal};

const EPOCH: u32 = 77;

/// A disk, the journal of a workload on the disk, and the journal's memory (`words`), which survives a crash
/// of the client.
struct Scene {
    disk: Arc<Disk>,
    words: Words,
    journal: Rc<Journal>,
}

impl Scene {
    fn with(disk: Disk) -> Scene {
        let geometry = disk.geometry();
        let words = words(Journal::words(&load(), geometry).expect("it fits"));
        let journal = Journal::begin(Rc::clone(&words), &load(), geometry, EPOCH).expect("it fits");
        Scene {
            disk: Arc::new(disk),
            words,
            journal: Rc::new(journal),
        }
    }

    /// Runs a workload that is killed after this number of milliseconds of a virtual clock.
    fn load_for(&self, ms: u64) {
        let devices: [Arc<dyn BlockDevice>; 1] = [Arc::clone(&self.disk) as Arc<dyn BlockDevice>];
        let orders = Orders::for_time(Duration::from_secs(60));
        block_on(Alone::virtual_time(), async {
            let mut each = |_: &_| Go::On;
            let load = load();
            let run = run_with_journal(&devices, &load, &orders, &self.journal, &mut each);
            reactor::timeout(Duration::from_millis(ms), run)
                .await
                .expect_err("it was to be killed");
        });
    }

    /// Reopens the journal, as another process would, and runs the check.
    fn check(&self, crash: Crash) -> Checked {
        let journal = Journal::open(Rc::clone(&self.words)).expect("it is a journal");
        let device: Arc<dyn BlockDevice> = Arc::clone(&self.disk) as Arc<dyn BlockDevice>;
        block_on(
            Alone::virtual_time(),
            Rc::new(journal).check(&device, crash),
        )
        .expect("the disk can be read")
    }
}

fn words(count: usize) -> Words {
    let words: Vec<AtomicU32> = (0..count).map(|_| AtomicU32::new(0)).collect();
    Rc::new(words)
}

fn load() -> Workload {
    let half = Percent::new(30).expect("a share");
    Workload {
        data: Data::Stamped,
        ..Workload::simple(4096, 8, half, Percent::ALL)
    }
}

#[test]
fn all_that_was_acknowledged_is_there_after_a_crash_of_the_client() {
    for ms in [1, 20, 777] {
        let scene = Scene::with(Disk::new());
        scene.load_for(ms);
        let checked = scene.check(Crash::OfClient);
        assert_eq!(
            (checked.wrong, checked.first_failure),
            (0, None),
            "after {ms} ms"
        );
        assert!(checked.blocks > 0 || ms == 1);
    }
}

#[test]
fn all_that_was_flushed_is_there_after_a_crash_of_the_storage() {
    for ms in [20, 300, 777] {
        let scene = Scene::with(Disk::new());
        scene.load_for(ms);
        scene.disk.crash();
        let checked = scene.check(Crash::OfStorage);
        assert_eq!(
            (checked.wrong, checked.first_failure),
            (0, None),
            "after {ms} ms"
        );
        assert!(checked.blocks > 0);
    }
}

#[test]
fn what_was_not_flushed_is_missed_if_the_storage_should_not_have_crashed() {
    let scene = Scene::with(Disk::new());
    scene.load_for(777);
    scene.disk.crash();
    let checked = scene.check(Crash::OfClient);
    assert!(checked.wrong > 0, "{checked}");
    assert!(matches!(
        checked.first_failure,
        Some(Failure::WrongGeneration { .. } | Failure::NotOurs { .. })
    ));
}

/// Two sessions access one LUN. When the target restarts, a flush by one session must not make the other
/// session's writes durable, since it does not report their loss.
#[test]
fn a_flush_speaks_for_the_writes_of_its_own_session() {
    let scene = Scene::with(Disk::new());
    let journal = &scene.journal;
    let (one, other) = (Unflushed::default(), Unflushed::default());
    let write = |granule: u64, unflushed: &Unflushed| {
        let granules = Granules {
            first: granule,
            count: 1,
        };
        journal.acknowledge(granules, journal.issue(granules), Some(unflushed));
    };
    write(0, &one);
    (0..WRITES_PER_FLUSH).for_each(|_| write(1, &other));
    let flushed = block_on(
        Alone::virtual_time(),
        journal.flush_if_due(&*scene.disk, &other),
    );
    assert_eq!(flushed, Ok(()));
    assert_eq!(
        (
            journal.word(0, Word::Durable),
            journal.word(1, Word::Durable)
        ),
        (0, WRITES_PER_FLUSH as u32)
    );
}

/// The target is killed during a flush, and has acknowledged another write since the flush started. The error
/// of the flush is the only report of that write's loss.
#[test]
fn a_flush_that_fails_promises_nothing_of_what_was_acknowledged_until_its_end() {
    let scene = Scene::with(Disk::new());
    let (journal, unflushed) = (&scene.journal, Unflushed::default());
    let write = |granule: u64| {
        let granules = Granules {
            first: granule,
            count: 1,
        };
        journal.acknowledge(granules, journal.issue(granules), Some(&unflushed));
    };
    let durable = || [0, 1, 2].map(|granule| journal.word(granule, Word::Durable));
    write(0);
    let writes = unflushed.begin_flush();
    write(1);
    journal.end_flush(&unflushed, writes, Err(DeviceError::WritesLost));
    write(2);
    let writes = unflushed.begin_flush();
    journal.end_flush(&unflushed, writes, Ok(()));
    assert_eq!(durable(), [0, 0, 1]);
}

#[test]
fn a_cache_that_lies_about_its_flushes_is_found() {
    let scene = Scene::with(Disk::that(Fault::LiesAboutItsCache));
    scene.load_for(300);
    scene.disk.crash();
    let checked = scene.check(Crash::OfStorage);
    assert!(checked.wrong > 0, "{checked}");
    assert_eq!(
        scene.check(Crash::OfStorage),
        checked,
        "what is wrong is found again"
    );
}

#[test]
fn a_write_that_never_arrived_is_found() {
    let scene = Scene::with(Disk::that(Fault::LosesEveryTenthWrite));
    scene.load_for(100);
    assert!(scene.check(Crash::OfClient).wrong > 0);
}

#[test]
fn a_journal_that_was_checked_goes_on() {
    let mut scene = Scene::with(Disk::new());
    for _ in 0..3 {
        scene.load_for(200);
        scene.disk.crash();
        let checked = scene.check(Crash::OfStorage);
        assert_eq!((checked.wrong, checked.first_failure), (0, None));
        // The check has flushed the content that it found, so the storage must keep it from now on.
        scene.disk.crash();
        assert_eq!(scene.check(Crash::OfClient).wrong, 0);
        let journal = Journal::open(Rc::clone(&scene.words)).expect("it is a journal");
        scene.journal = Rc::new(journal);
    }
}

#[test]
fn a_journal_of_another_device_or_another_load_is_refused() {
    let scene = Scene::with(Disk::new());
    let ground = Ground {
        device_bytes: 1 << 40,
        span_bytes: 1 << 20,
        ..scene.journal.ground
    };
    ground.write((*scene.words).as_ref());
    let journal = Journal::open(Rc::clone(&scene.words));
    assert!(matches!(journal, Err(JournalError::CutOff)));

    let other = Workload {
        data: Data::Stamped,
        ..Workload::simple(8192, 8, Percent::ALL, Percent::ALL)
    };
    let devices: [Arc<dyn BlockDevice>; 1] = [Arc::clone(&scene.disk) as Arc<dyn BlockDevice>];
    let orders = Orders::for_time(Duration::from_secs(1));
    let refused = |workload: &Workload| {
        let mut each = |_: &_| Go::On;
        block_on(
            Alone::virtual_time(),
            run_with_journal(&devices, workload, &orders, &scene.journal, &mut each),
        )
    };
    assert_eq!(refused(&other), Err(WorkloadError::AnotherJournal));
    assert_eq!(
        refused(&Workload {
            data: Data::Random,
            ..load()
        }),
        Err(WorkloadError::NothingToNote)
    );
}

#[test]
fn the_upper_half_tells_runs_from_each_other() {
    let scene = Scene::with(Disk::new());
    scene.load_for(100);
    let geometry = scene.disk.geometry();
    let again =
        Journal::begin(Rc::clone(&scene.words), &load(), geometry, EPOCH + 1).expect("it fits");
    drop(again);
    let checked = scene.check(Crash::OfClient);
    let failure = checked.first_failure.expect("the disk holds another run's");
    assert!(failure.to_string().contains("of another run"), "{failure}");
}

proptest! {
    /// A file with any content is either rejected, or is a readable journal.
    #[test]
    fn no_file_breaks_it(mut header in prop::collection::vec(any::<u32>(), 0..64), likely: bool) {
        if likely {
            let like = [MAGIC[0], MAGIC[1], VERSION, 1, 0, 0];
            header.iter_mut().zip(like).for_each(|(word, value)| *word = value);
            header.iter_mut().skip(6).take(8).for_each(|word| *word &= 0xfff);
        }
        let words: Vec<AtomicU32> = header.into_iter().map(AtomicU32::new).collect();
        if let Ok(journal) = Journal::open(Rc::new(words)) {
            prop_assert!(journal.known().count() <= 64);
        }
    }
}

#[test]
fn a_file_that_is_cut_off_or_of_another_version_says_so() {
    let scene = Scene::with(Disk::new());
    let all: Vec<u32> = (*scene.words)
        .as_ref()
        .iter()
        .map(|word| word.load(Ordering::Relaxed))
        .collect();
    let open = |words: &[u32]| {
        let words: Vec<AtomicU32> = words.iter().map(|word| AtomicU32::new(*word)).collect();
        Journal::open(Rc::new(words)).err()
    };
    assert_eq!(open(&all), None);
    assert_eq!(open(&all[..all.len() - 1]), Some(JournalError::CutOff));
    assert_eq!(open(&all[..5]), Some(JournalError::NotAJournal));
    let mut newer = all;
    newer[2] = 9;
    assert_eq!(open(&newer), Some(JournalError::Version(9)));
}

#[test]
fn a_device_that_is_too_small_is_another() {
    let scene = Scene::with(Disk::new());
    let geometry = block::Geometry {
        block_size: BlockSize::B512,
        blocks: block::Blocks(8),
        physical_exponent: 0,
    };
    let small: Arc<dyn BlockDevice> = Arc::new(block::Null::new(geometry));
    let refused = block_on(
        Alone::virtual_time(),
        scene.journal.check(&small, Crash::OfClient),
    );
    assert!(matches!(
        refused,
        Err(CheckError::Journal(JournalError::AnotherDevice { .. }))
    ));
}
