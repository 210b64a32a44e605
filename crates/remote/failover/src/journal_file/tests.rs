use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use block::{BlockDevice, BlockSize, Buffer, DeviceError, Durability, Extent, Pending, Slice};
use proptest::prelude::*;
use tempfile::TempDir;
use testkit::{TestDisk, ready};

use crate::journal_file::recovery::Server;
use crate::journal_file::*;

const BLOCKS: usize = 96;
const BLOCK: usize = 512;
const CAPACITY: u64 = 20_000;

/// A device with a cache. All bytes of a block are the same.
struct Medium {
    disk: TestDisk,
    /// If set, the device loses its cache before it executes the next request of this kind.
    loses_cache_at: Mutex<Option<At>>,
    /// How often the device has lost its cache.
    restarts: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Read,
    Write,
    Flush,
}

impl Medium {
    fn new() -> Medium {
        let disk = TestDisk::new(BlockSize::B512, BLOCKS as u64);
        Medium {
            disk,
            loses_cache_at: Mutex::default(),
            restarts: AtomicU64::new(0),
        }
    }

    fn begin(&self, request: At) {
        if self
            .loses_cache_at
            .lock()
            .expect("whole")
            .take_if(|at| *at == request)
            .is_some()
        {
            self.restarts.fetch_add(1, Relaxed);
            self.disk.lose_cache();
        }
    }

    fn fill(&self, blocks: Range<usize>, byte: u8) {
        self.disk
            .with_bytes(|bytes| bytes[blocks.start * BLOCK..blocks.end * BLOCK].fill(byte));
    }

    /// The byte that each block contains.
    fn now(&self) -> Vec<u8> {
        self.disk.contents().into_iter().step_by(BLOCK).collect()
    }

    /// The byte that each block contains without the cache.
    fn durable(&self) -> Vec<u8> {
        self.disk
            .stable_contents()
            .into_iter()
            .step_by(BLOCK)
            .collect()
    }

    fn owner(&self) -> Owner {
        let (identity, bytes) = ("nbd://san1/vm1".to_owned(), (BLOCKS * BLOCK) as u64);
        Owner {
            identity,
            bytes,
            writers: Writers::Unknown,
        }
    }
}

impl BlockDevice for Medium {
    block::forward!(self => self.disk; geometry, profile, unmap, write_zeroes, allocation, losses, quiesced);

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        self.begin(At::Read);
        self.disk.read(extent, buffer)
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        self.begin(At::Write);
        self.disk.write(extent, data, durability)
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.begin(At::Flush);
        self.disk.flush()
    }
}

/// A device, and the path of its journal file.
struct Scene {
    medium: Medium,
    folder: TempDir,
}

impl Scene {
    fn new() -> Scene {
        Scene {
            medium: Medium::new(),
            folder: TempDir::new().expect("a temporary folder"),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("journal")
    }

    fn open(&self, rule: ReplayRule, start: Option<u128>) -> Result<JournalFile, JournalFileError> {
        self.open_as(rule, start, &self.medium.owner())
    }

    fn open_as(
        &self,
        rule: ReplayRule,
        start: Option<u128>,
        owner: &Owner,
    ) -> Result<JournalFile, JournalFileError> {
        let before = self.medium.restarts.load(Relaxed);
        let server = || {
            let restarts = self.medium.restarts.load(Relaxed) - before;
            Server {
                start: start.map(|start| start + u128::from(restarts)),
                connections: 1 + restarts,
            }
        };
        ready(JournalFile::recovered(
            &self.path(),
            rule,
            CAPACITY,
            owner,
            &self.medium,
            &server,
        ))
    }

    /// Executes a write, and records its acknowledgement.
    fn write(&self, file: &mut JournalFile, blocks: Range<usize>, byte: u8) {
        let range = (blocks.start * BLOCK) as u64..(blocks.end * BLOCK) as u64;
        self.announce(file, &range);
        self.medium.fill(blocks.clone(), byte);
        let data = vec![byte; blocks.len() * BLOCK];
        if !file
            .append(&range, Some(&Content::Write(&data)))
            .expect("a file")
        {
            self.flush(file);
        }
    }

    /// Announces a change to the file, as a change over an acknowledged one.
    fn announce(&self, file: &mut JournalFile, range: &Range<u64>) {
        if !file.will_change(range, true).expect("a file") {
            self.flush(file);
        }
    }

    fn flush(&self, file: &mut JournalFile) {
        ready(self.medium.flush()).expect("memory");
        file.flushed(file.mark()).expect("a file");
    }

    /// A flush fails, and the server keeps the writes in its cache.
    fn fail_flush(&self, file: &mut JournalFile) {
        self.medium.disk.fail_next_flush(DeviceError::WritesLost);
        ready(self.medium.flush()).expect_err("it fails");
        file.note_loss().expect("a file");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize, usize),
    Zeroes(usize, usize),
    WriteDurably(usize, usize),
    /// A write is sent, and executed or not, but never acknowledged.
    Send(usize, usize, bool),
    Mark,
    Flushed,
    /// This process is killed, and the server restarts. It has lost all writes except those that it happened
    /// to flush.
    Kill(u64),
    /// Like `Kill`, but while a record is being written: the last byte of the record is missing.
    KillWithinAWrite(u64, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0usize..BLOCKS - 12, 1usize..12);
    prop_oneof![
        8 => place().prop_map(|(at, length)| Step::Write(at, length)),
        1 => place().prop_map(|(at, length)| Step::Zeroes(at, length)),
        2 => place().prop_map(|(at, length)| Step::WriteDurably(at, length)),
        1 => (place(), any::<bool>()).prop_map(|((at, length), is_done)| Step::Send(at, length, is_done)),
        2 => Just(Step::Mark),
        2 => Just(Step::Flushed),
        1 => any::<u64>().prop_map(Step::Kill),
        1 => (any::<u64>(), 0usize..BLOCKS).prop_map(|(seed, at)| Step::KillWithinAWrite(seed, at)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    /// Whenever the process is killed and the server restarted, the device has all acknowledged data.
    #[test]
    fn nothing_acknowledged_is_lost_by_a_kill_of_both_ends(steps in prop::collection::vec(step(), 0..120)) {
        let scene = Scene::new();
        let medium = &scene.medium;
        let mut file = scene.open(ReplayRule::Force, None).expect("a new file");
        // The allowed content of each block: the byte of the last acknowledged write, and the bytes of writes
        // sent since.
        let mut allowed: Vec<Vec<u8>> = vec![vec![0]; BLOCKS];
        let mut journal: crate::Journal<recoverable::Nothing> = crate::Journal::default();
        let mut flush = None;
        for (step, version) in steps.into_iter().zip((1u8..=250).cycle()) {
            let mut killed = None;
            match step {
                Step::Write(at, length) => {
                    scene.write(&mut file, at..at + length, version);
                    journal.insert(at as u64..(at + length) as u64, recoverable::Nothing);
                    allowed[at..at + length].fill(vec![version]);
                }
                Step::Zeroes(at, length) => {
                    let range = (at * BLOCK) as u64..((at + length) * BLOCK) as u64;
                    scene.announce(&mut file, &range);
                    medium.fill(at..at + length, 0);
                    if !file.append(&range, Some(&Content::Zeroes { may_unmap: true })).expect("a file") {
                        scene.flush(&mut file);
                    }
                    journal.insert(at as u64..(at + length) as u64, recoverable::Nothing);
                    allowed[at..at + length].fill(vec![0]);
                }
                Step::WriteDurably(at, length) => {
                    let range = (at * BLOCK) as u64..((at + length) * BLOCK) as u64;
                    scene.announce(&mut file, &range);
                    let data = Buffer::from(&vec![version; length * BLOCK][..]).share();
                    let extent = Extent::new(at as u64, length as u64);
                    ready(medium.disk.write(extent, data, Durability::Stable)).expect("memory");
                    if journal.forget(at as u64..(at + length) as u64) && !file.append(&range, None).expect("a file") {
                        scene.flush(&mut file);
                    }
                    allowed[at..at + length].fill(vec![version]);
                }
                Step::Send(at, length, is_done) => {
                    let range = (at * BLOCK) as u64..((at + length) * BLOCK) as u64;
                    scene.announce(&mut file, &range);
                    if is_done {
                        medium.fill(at..at + length, version);
                    }
                    allowed[at..at + length].iter_mut().for_each(|bytes| bytes.push(version));
                }
                // The server flushes immediately, and its response arrives later.
                Step::Mark => {
                    flush = Some((file.mark(), journal.mark()));
                    ready(medium.flush()).expect("memory");
                }
                Step::Flushed => if let Some((mark, in_memory)) = flush.take() {
                    file.flushed(mark).expect("a file");
                    journal.flushed(in_memory);
                },
                Step::Kill(seed) => killed = Some(seed),
                Step::KillWithinAWrite(seed, at) => {
                    let range = (at * BLOCK) as u64..((at + 1) * BLOCK) as u64;
                    scene.announce(&mut file, &range);
                    medium.fill(at..at + 1, version);
                    allowed[at].push(version);
                    let data = vec![version; BLOCK];
                    if file.append(&range, Some(&Content::Write(&data))).expect("a file") {
                        let last = file.header.offset(file.head - 1);
                        file.file.write_all_at(&[!version], last).expect("a file");
                    }
                    killed = Some(seed);
                }
            }
            if let Some(seed) = killed {
                drop(file);
                flush = None;
                journal = crate::Journal::default();
                medium.disk.lose_cache_except(|block| seed >> (block % 64) & 1 == 1);
                file = scene.open(ReplayRule::Force, None).expect("its own file");
                for (number, block) in medium.now().into_iter().enumerate() {
                    prop_assert!(allowed[number].contains(&block), "block {number}: {block}, not {:?}", allowed[number]);
                    allowed[number] = vec![block];
                }
            }
        }
    }
}

mod recoverable {
    use super::*;

    #[derive(Clone, Debug)]
    pub(super) struct Nothing;

    impl crate::Part for Nothing {
        fn part(&self, _: Range<u64>) -> Nothing {
            Nothing
        }

        fn memory_bytes(&self) -> usize {
            0
        }
    }
}

#[test]
fn what_the_server_has_is_not_written_again_and_what_it_has_lost_is() {
    let scene = Scene::new();
    let mut file = scene.open(ReplayRule::Auto, Some(1)).expect("a new file");
    scene.write(&mut file, 30..34, 7);
    assert!(!file.is_empty());
    drop(file);
    let file = scene
        .open(ReplayRule::Auto, Some(1))
        .expect("nothing is lost");
    assert!(file.is_empty());
    drop(file);

    let mut file = scene.open(ReplayRule::Auto, Some(1)).expect("a clean file");
    scene.write(&mut file, 31..33, 8);
    drop(file);
    scene.medium.disk.lose_cache();
    assert_eq!(scene.medium.now()[30..34], [7, 7, 7, 7]);
    assert!(
        scene
            .open(ReplayRule::Auto, Some(2))
            .expect("it was restarted")
            .is_empty()
    );
    assert_eq!(scene.medium.now()[30..34], [7, 8, 8, 7]);
    assert_eq!(scene.medium.durable()[30..34], [7, 8, 8, 7]);
}

/// The file's data is only in the server's cache. The server is replaced by one without that cache while the
/// file is processed.
#[test]
fn a_cache_that_is_lost_while_the_file_is_compared_or_flushed_costs_nothing() {
    for (start, at) in [
        (Some(1), At::Flush),
        (Some(1), At::Read),
        (None, At::Flush),
        (None, At::Read),
    ] {
        let scene = Scene::new();
        let mut file = scene.open(ReplayRule::Auto, start).expect("a new file");
        scene.write(&mut file, 30..34, 7);
        scene.write(&mut file, 50..52, 8);
        drop(file);
        *scene.medium.loses_cache_at.lock().expect("whole") = Some(at);
        assert!(
            scene
                .open(ReplayRule::Auto, start)
                .expect("no other writes")
                .is_empty()
        );
        let durable = scene.medium.durable();
        assert_eq!(
            (&durable[30..34], &durable[50..52]),
            (&[7; 4][..], &[8; 2][..]),
            "{start:?}, {at:?}"
        );
    }
}

/// A file with a write of block 40 that the server has lost; blocks 60 to 63 were flushed before.
fn with_a_lost_write(before: impl FnOnce(&Scene, &mut JournalFile)) -> Scene {
    let scene = Scene::new();
    let mut file = scene.open(ReplayRule::Auto, Some(1)).expect("a new file");
    scene.write(&mut file, 60..64, 6);
    scene.flush(&mut file);
    before(&scene, &mut file);
    scene.write(&mut file, 40..41, 4);
    drop(file);
    scene.medium.disk.lose_cache();
    scene
}

fn doubt(scene: &Scene, start: Option<u128>) -> Doubt {
    match scene.open(ReplayRule::Auto, start) {
        Err(JournalFileError::Refused(_, 1, doubt)) => doubt,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_another_client_may_have_written_is_not_overwritten_unless_that_is_wanted() {
    let scene = with_a_lost_write(|_, _| {});
    assert_eq!(
        doubt(&scene, Some(1)),
        Doubt::SameStart,
        "it cannot have lost anything"
    );

    scene.medium.fill(62..63, 9);
    assert_eq!(doubt(&scene, Some(2)), Doubt::Anchors);
    assert_eq!(
        doubt(&scene, None),
        Doubt::Anchors,
        "a server that tells nothing"
    );
    assert_eq!(scene.medium.now()[40], 0, "untouched");
    drop(
        scene
            .open(ReplayRule::Force, Some(2))
            .expect("that is wanted"),
    );
    assert_eq!(scene.medium.now()[40], 4);

    let scene = with_a_lost_write(|_, _| {});
    let mut header = {
        let page = std::fs::read(scene.path()).expect("a file");
        Header::parse(page.first_chunk().expect("a header")).expect("a header")
    };
    header.boot ^= 1;
    let file = OpenOptions::new()
        .write(true)
        .open(scene.path())
        .expect("a file");
    file.write_all_at(&header.page(), 0).expect("a file");
    assert_eq!(doubt(&scene, Some(2)), Doubt::Boot);
    assert!(
        scene
            .open(ReplayRule::Discard, Some(2))
            .expect("that is wanted")
            .is_empty()
    );
    assert_eq!(scene.medium.now()[40], 0);
}

/// The server still shows a write that its failed flush has abandoned.
#[test]
fn what_a_failed_flush_has_left_in_the_cache_is_written_again() {
    for (start, writers, durable) in [
        (Some(2), Writers::Unknown, 4),
        (None, Writers::Unknown, 4),
        (None, Writers::Several, 0), // nothing shows the loss, and a replay could replace newer data
    ] {
        let scene = Scene::new();
        let mut file = scene.open(ReplayRule::Auto, Some(1)).expect("a new file");
        scene.write(&mut file, 40..41, 4);
        drop(file);
        scene.medium.disk.fail_next_flush(DeviceError::WritesLost);
        ready(scene.medium.flush()).expect_err("another client's");
        let owner = Owner {
            writers,
            ..scene.medium.owner()
        };
        drop(
            scene
                .open_as(ReplayRule::Auto, start, &owner)
                .expect("no other writes"),
        );
        assert_eq!(scene.medium.now()[40], 4);
        assert_eq!(
            scene.medium.durable()[40],
            durable,
            "{start:?}, {writers:?}"
        );
        if writers == Writers::Several {
            continue;
        }
        let mut file = scene
            .open(ReplayRule::Auto, Some(3))
            .expect("an empty file");
        scene.write(&mut file, 50..51, 5);
        drop(file);
        let several = Owner {
            writers: Writers::Several,
            ..scene.medium.owner()
        };
        match scene.open_as(ReplayRule::Auto, Some(4), &several) {
            Err(JournalFileError::Refused(_, 1, Doubt::Several)) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// With several writers, nothing else distinguishes the lost write from a stored one.
#[test]
fn a_loss_that_no_flush_has_reported_is_evidence_for_the_next_process() {
    let several = |scene: &Scene| Owner {
        writers: Writers::Several,
        ..scene.medium.owner()
    };
    for is_found_by_the_recovery in [false, true] {
        let scene = Scene::new();
        let mut file = scene.open(ReplayRule::Auto, None).expect("a new file");
        scene.write(&mut file, 40..41, 4);
        if is_found_by_the_recovery {
            drop(file);
            scene.medium.disk.fail_next_flush(DeviceError::WritesLost);
            match scene.open_as(ReplayRule::Auto, None, &several(&scene)) {
                Err(JournalFileError::Device(_, DeviceError::WritesLost, _)) => {}
                other => panic!("{other:?}"),
            }
        } else {
            scene.fail_flush(&mut file);
            drop(file);
        }
        for _ in 0..2 {
            match scene.open_as(ReplayRule::Auto, None, &several(&scene)) {
                Err(JournalFileError::Refused(_, 1, Doubt::Several)) => {}
                other => panic!("found by the recovery: {is_found_by_the_recovery}: {other:?}"),
            }
        }
        let file = scene
            .open_as(ReplayRule::Force, None, &several(&scene))
            .expect("that is wanted");
        assert!(
            !file.has_dropped_unreported(),
            "a replay has repaired the loss"
        );
        assert_eq!(scene.medium.durable()[40], 4);
    }
}

#[test]
fn a_loss_of_changes_that_the_file_no_longer_has_is_kept_until_it_is_reported() {
    for removes in [JournalFile::drop_lost, JournalFile::flushed] {
        let scene = Scene::new();
        let mut file = scene.open(ReplayRule::Auto, Some(1)).expect("a new file");
        scene.write(&mut file, 40..41, 4);
        scene.fail_flush(&mut file);
        let mark = file.mark();
        removes(&mut file, mark).expect("a file");
        scene.write(&mut file, 50..51, 5);
        for _ in 0..2 {
            drop(file);
            file = scene
                .open(ReplayRule::Auto, Some(1))
                .expect("no other writes");
            assert!(file.has_dropped_unreported());
        }
        file.loss_recorded().expect("a file");
        drop(file);
        assert!(
            !scene
                .open(ReplayRule::Auto, Some(1))
                .expect("its own file")
                .has_dropped_unreported()
        );
    }
}

/// Blocks that a failed flush has abandoned are not durable, so their content says nothing about another
/// client.
#[test]
fn what_a_failed_flush_has_abandoned_is_no_anchor() {
    let scene = with_a_lost_write(|scene, file| {
        scene.write(file, 20..21, 2);
        scene.fail_flush(file);
        file.drop_lost(file.mark()).expect("a file");
        scene.flush(file);
    });
    assert_eq!(scene.medium.now()[20], 0, "abandoned");
    drop(
        scene
            .open(ReplayRule::Auto, Some(2))
            .expect("no other client has written"),
    );
    assert_eq!(scene.medium.durable()[40], 4);
}

/// Blocks that another host may write are compared after a restart, and never replaced: neither by this
/// process nor by the next one.
#[test]
fn what_several_hosts_write_is_not_written_again_by_the_next_process() {
    let scene = with_a_lost_write(|_, _| {});
    let several = Owner {
        writers: Writers::Several,
        ..scene.medium.owner()
    };
    match scene.open_as(ReplayRule::Auto, Some(2), &several) {
        Err(JournalFileError::Refused(_, 1, Doubt::Several)) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(scene.medium.now()[40], 0, "untouched");
}

/// An outstanding write of this client at the time of the kill must not make an anchor look like another
/// client's write.
#[test]
fn a_write_that_was_outstanding_is_no_other_clients() {
    let scene = with_a_lost_write(|scene, file| {
        let range = (61 * BLOCK) as u64..(62 * BLOCK) as u64;
        scene.announce(file, &range);
        scene.medium.fill(61..62, 9);
        ready(scene.medium.flush()).expect("memory"); // another client's flush, or the server's own
    });
    drop(scene.open(ReplayRule::Auto, Some(2)).expect("no doubt"));
    assert_eq!(scene.medium.now()[40], 4);
}

/// The same for a write over an acknowledged one, with a server that has lost nothing.
#[test]
fn a_write_that_was_outstanding_over_another_is_no_other_clients() {
    let scene = Scene::new();
    let mut file = scene.open(ReplayRule::Auto, Some(1)).expect("a new file");
    scene.write(&mut file, 30..34, 7);
    scene.announce(&mut file, &((31 * BLOCK) as u64..(32 * BLOCK) as u64));
    scene.medium.fill(31..32, 8);
    drop(file);
    drop(scene.open(ReplayRule::Auto, Some(1)).expect("no doubt"));
    assert_eq!(scene.medium.now()[30..34], [7, 8, 7, 7], "carried out");
    let mut file = scene.open(ReplayRule::Auto, Some(1)).expect("a clean file");
    scene.write(&mut file, 30..34, 9);
    scene.announce(&mut file, &((31 * BLOCK) as u64..(32 * BLOCK) as u64));
    scene.write(&mut file, 31..32, 10);
    drop(file);
    scene.medium.fill(31..32, 1);
    assert_eq!(
        doubt(&scene, Some(1)),
        Doubt::SameStart,
        "it was acknowledged"
    );
}

#[test]
fn a_file_that_is_not_this_devices_is_refused_and_stays_as_it_is() {
    let scene = with_a_lost_write(|_, _| {});
    let before = std::fs::read(scene.path()).expect("a file");
    let owner = scene.medium.owner();
    for other in [
        Owner {
            identity: "nbd://san1/vm2".to_owned(),
            ..owner.clone()
        },
        Owner {
            bytes: owner.bytes - 512,
            ..owner.clone()
        },
    ] {
        for rule in [ReplayRule::Auto, ReplayRule::Force, ReplayRule::Discard] {
            let refused = scene
                .open_as(rule, Some(2), &other)
                .expect_err("another device");
            assert!(
                matches!(refused, JournalFileError::AnotherDevice(..)),
                "{refused}"
            );
        }
    }
    assert!(std::fs::read(scene.path()).expect("a file") == before);
    let grown = Owner {
        bytes: owner.bytes + 512,
        ..owner
    };
    let file = scene
        .open_as(ReplayRule::Auto, Some(2), &grown)
        .expect("it has grown");
    assert!(matches!(
        scene.open(ReplayRule::Auto, None),
        Err(JournalFileError::InUse(_))
    ));
    drop(file);

    std::fs::write(scene.path(), [7; 100]).expect("a file");
    assert!(matches!(
        scene.open(ReplayRule::Force, None),
        Err(JournalFileError::Foreign(_))
    ));
    std::fs::write(scene.path(), [7; 10_000]).expect("a file");
    assert!(matches!(
        scene.open(ReplayRule::Force, None),
        Err(JournalFileError::Foreign(_))
    ));
    let mut damaged = before;
    damaged[40] ^= 1;
    std::fs::write(scene.path(), damaged).expect("a file");
    assert!(matches!(
        scene.open(ReplayRule::Force, None),
        Err(JournalFileError::Damaged(_))
    ));
}

#[test]
fn a_file_whose_allocation_was_killed_is_allocated_again() {
    for length in [HEADER_BYTES as u64, HEADER_BYTES as u64 + 5000] {
        let scene = Scene::new();
        drop(JournalFile::open(&scene.path(), &scene.medium.owner(), CAPACITY).expect("a file"));
        let cut = |scene: &Scene| {
            let file = OpenOptions::new()
                .write(true)
                .open(scene.path())
                .expect("a file");
            file.set_len(length).expect("a shorter file");
        };
        cut(&scene);
        let mut file = scene
            .open(ReplayRule::Auto, Some(1))
            .expect("a file that was never used");
        scene.write(&mut file, 3..5, 7);
        drop(file);
        scene.medium.disk.lose_cache();
        drop(
            scene
                .open(ReplayRule::Auto, Some(2))
                .expect("its changes are replayed"),
        );
        assert_eq!(scene.medium.durable()[3..5], [7, 7]);
        cut(&scene);
        assert!(matches!(
            scene.open(ReplayRule::Auto, Some(2)),
            Err(JournalFileError::Damaged(_))
        ));
    }
}

#[test]
fn a_header_survives_its_page_however_long_the_name_is() {
    let name = "ä".repeat(3000);
    let header = Header {
        capacity: 1 << 20,
        tail: 1 << 40,
        salt: 3,
        boot: 4,
        start: Some(5),
        loss: UnreportedLoss::Dropped,
        bytes: 6,
        identity: super::shortened(&name),
        anchors: vec![
            Anchor {
                start: 1,
                length: 2,
                checksum: 3
            };
            64
        ],
    };
    assert_eq!(Header::parse(&header.page()), Some(header));
    assert_ne!(super::shortened(&name), super::shortened(&(name + "ö")));
}
