//! Copies between devices with injected faults.

use std::sync::{Arc, Mutex};

use backends::location::Opened;
use backends::remote;
use block::{
    BlockDevice, Buffer, DeviceError, Durability, Extent, Fault, FaultAction, FaultControl,
    Geometry, Null, Pending, Profile, Requests, Rule, Run, Slice, bytewise,
};
use host::{RamDevice, RamOptions, ReactorClock};
use proptest::prelude::*;
use reactor::Alone;

use crate::*;

const MIB: u64 = 1 << 20;

/// A source full of sevens, and a destination, both with fault injection.
struct Scene {
    source: Rc<Source>,
    destination: Rc<Destination>,
    behind: Arc<dyn BlockDevice>,
    reading: FaultControl,
    writing: FaultControl,
}

impl Scene {
    fn new() -> Scene {
        let (reading, writing) = (FaultControl::default(), FaultControl::default());
        let (from, to) = (memory(), memory());
        let sevens = Buffer::from(&vec![7; 8 << 20][..]).share();
        remote::run(async { Ok(bytewise::write(&*from, 0, sevens).await) })
            .expect("a world")
            .expect("memory");
        let fault = |inner: &Arc<dyn BlockDevice>, control: &FaultControl| {
            Opened::local(
                Arc::new(Fault::new(
                    Arc::clone(inner),
                    Arc::new(ReactorClock),
                    control.clone(),
                )),
                None,
            )
        };
        Scene {
            source: Rc::new(Source::from_opened(
                fault(&from, &reading),
                "from".to_owned(),
            )),
            destination: Rc::new(Destination::from_opened(
                fault(&to, &writing),
                "to".to_owned(),
            )),
            behind: to,
            reading,
            writing,
        }
    }

    /// Creates the same source, and a destination that loses its cache at these writes, counted from the
    /// first.
    fn with_crashes(crashes: &[u64]) -> Scene {
        let scene = Scene::new();
        let device = Forgetful {
            inner: Arc::clone(&scene.behind),
            cache: Mutex::new(Cache {
                crashes: crashes.to_vec(),
                ..Cache::default()
            }),
        };
        let destination = Rc::new(Destination::from_opened(
            Opened::local(Arc::new(device), None),
            "to".to_owned(),
        ));
        Scene {
            destination,
            ..scene
        }
    }

    fn copy(&self, options: &Options<'_>) -> Result<Report, Failure> {
        remote::run(between(
            options,
            &self.source,
            &self.destination,
            None,
            0,
            &Unobserved,
        ))
    }

    /// The destination's content.
    fn bytes(&self) -> Vec<u8> {
        let read = remote::run(async { Ok(bytewise::read(&*self.behind, 0..8 * MIB).await) });
        read.expect("a world").expect("memory").to_vec()
    }
}

fn memory() -> Arc<dyn BlockDevice> {
    Arc::new(RamDevice::new(RamOptions::new(8 << 20)).expect("memory"))
}

/// A volatile device: in a crash, all writes since the last flush are undone.
struct Forgetful {
    inner: Arc<dyn BlockDevice>,
    cache: Mutex<Cache>,
}

#[derive(Default)]
struct Cache {
    writes: u64,
    crashes: Vec<u64>,
    /// The previous content of each unflushed write.
    before: Vec<(Extent, Slice)>,
    has_lost: bool,
}

impl Forgetful {
    /// Records the content that a write is about to replace, and executes the write. Crashes afterwards if a
    /// crash is planned at this write.
    async fn change(&self, extent: Extent, write: Pending<'_, ()>) -> Result<(), DeviceError> {
        let buffer = Buffer::zeroed(self.geometry().length(extent) as usize);
        let before = self.inner.read(extent, buffer).await?.share();
        write.await?;
        let lost = {
            let mut cache = self.cache.lock().expect("no panic while locked");
            cache.before.push((extent, before));
            cache.writes += 1;
            let crashes = cache.crashes.contains(&cache.writes);
            cache.has_lost |= crashes;
            if crashes {
                std::mem::take(&mut cache.before)
            } else {
                Vec::new()
            }
        };
        for (extent, before) in lost.into_iter().rev() {
            self.inner.write(extent, before, Durability::Cached).await?;
        }
        Ok(())
    }
}

impl BlockDevice for Forgetful {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn profile(&self) -> Profile {
        Profile {
            volatile_cache: true,
            ..self.inner.profile()
        }
    }

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        self.inner.read(extent, buffer)
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        Box::pin(self.change(extent, self.inner.write(extent, data, durability)))
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(async {
            let mut cache = self.cache.lock().expect("no panic while locked");
            cache.before.clear();
            if std::mem::take(&mut cache.has_lost) {
                Err(DeviceError::WritesLost)
            } else {
                Ok(())
            }
        })
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        Box::pin(self.change(extent, self.inner.unmap(extent)))
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        Box::pin(self.change(extent, self.inner.write_zeroes(extent, may_unmap)))
    }

    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        self.inner.allocation(extent, runs_max)
    }

    fn losses(&self) -> block::Losses {
        block::Losses::NONE
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A rule that fails requests for these blocks of 512 bytes.
fn failing(requests: Requests, lba: u64, blocks: u64, error: DeviceError) -> Rule {
    Rule {
        requests,
        within: Some(Extent::new(lba, blocks)),
        action: FaultAction::Fail(error),
    }
}

fn unreadable(lba: u64) -> Rule {
    failing(
        Requests::Reads,
        lba,
        1,
        DeviceError::Unreadable(block::Lba(lba)),
    )
}

#[test]
fn what_cannot_be_read_ends_the_copy_and_is_told() {
    let scene = Scene::new();
    scene.reading.set([unreadable(5000)]);
    let said = scene
        .copy(&Options::default())
        .expect_err("a failure")
        .to_string();
    assert_eq!(
        said,
        "cannot read from at byte 2097152: block 5000 could not be read"
    );
}

#[test]
fn with_skip_errors_it_is_replaced_by_zeros_and_named() {
    let scene = Scene::new();
    scene
        .reading
        .set([unreadable(5000), unreadable(9), unreadable(10)]);
    let report = scene
        .copy(&Options {
            skip_errors: true,
            ..Options::default()
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
    let said = report
        .verdict()
        .expect_err("not what was asked for")
        .to_string();
    assert!(
        said.contains("\n  4608-5631") && said.contains("\n  2560000-2560511"),
        "{said}"
    );
    let bytes = scene.bytes();
    let zeros: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] == 0).collect();
    assert_eq!(
        zeros,
        (4608..5632).chain(2_560_000..2_560_512).collect::<Vec<_>>()
    );
}

#[test]
fn a_source_that_fails_otherwise_is_not_skipped() {
    let scene = Scene::new();
    scene
        .reading
        .set([failing(Requests::Reads, 5000, 1, DeviceError::NotReady)]);
    assert!(
        scene
            .copy(&Options {
                skip_errors: true,
                ..Options::default()
            })
            .is_err()
    );
}

#[test]
fn a_full_destination_is_told() {
    let scene = Scene::new();
    scene
        .writing
        .set([failing(Requests::Writes, 8000, 8192, DeviceError::NoSpace)]);
    let said = scene
        .copy(&Options::default())
        .expect_err("a failure")
        .to_string();
    assert!(
        said.starts_with("cannot write to at byte 3145728: no space left"),
        "{said}"
    );
}

#[test]
fn a_copy_that_was_not_flushed_is_no_success() {
    let scene = Scene::new();
    let lost = FaultAction::Fail(DeviceError::Unwritable(block::Lba(0)));
    scene.writing.set([Rule {
        requests: Requests::Flushes,
        within: None,
        action: lost,
    }]);
    let said = scene
        .copy(&Options::default())
        .expect_err("a failure")
        .to_string();
    assert!(said.starts_with("cannot flush to: "), "{said}");
}

#[test]
fn the_first_byte_that_differs_is_told() {
    let scene = Scene::new();
    let options = Options {
        verify: true,
        depth: Some(3),
        request_bytes: Some(64 << 10),
        ..Options::default()
    };
    scene
        .copy(&options)
        .unwrap_or_else(|failure| panic!("{failure}"));
    let options = Options {
        request_bytes: Some(1 << 20),
        ..Options::default()
    };
    let other = Buffer::from(&[8; 3][..]).share();
    let compared = remote::run(async {
        for at in [7 * MIB, 3 * MIB + 5] {
            bytewise::write(&*scene.behind, at, other.clone())
                .await
                .expect("memory");
        }
        compare::compare(&options, &scene.source, &scene.destination, &Unobserved).await
    });
    let said = compared.expect_err("a difference").to_string();
    assert_eq!(
        said,
        format!("to differs from from at byte {}", 3 * MIB + 5)
    );
}

#[test]
fn a_destination_that_loses_its_cache_again_and_again_is_given_up() {
    let crashes: Vec<u64> = (1..=1000).collect();
    let said = Scene::with_crashes(&crashes)
        .copy(&Options::default())
        .expect_err("a failure")
        .to_string();
    let expected = "cannot copy beyond 0B to to, which has lost unflushed data 6 times in a row; look for \
                    storage errors in its log, or copy with a smaller --checkpoint: acknowledged \
                    writes may be lost";
    assert_eq!(said, expected);
}

#[test]
fn a_digest_is_of_the_source_however_often_it_is_read() {
    let digest = |scene: Scene| {
        let report = scene
            .copy(&Options {
                checksum: true,
                ..Options::default()
            })
            .unwrap_or_else(|failure| panic!("{failure}"));
        report.sha256.expect("a digest")
    };
    assert_eq!(digest(Scene::with_crashes(&[3, 9])), digest(Scene::new()));
}

/// Counts the turns of the reactor during the work. In this runtime environment, a turn takes a microsecond,
/// and nothing else takes time.
fn turns<T>(work: impl Future<Output = Result<T, Failure>>) -> u128 {
    reactor::block_on(Alone::virtual_time(), async {
        let begun = reactor::now();
        work.await.unwrap_or_else(|failure| panic!("{failure}"));
        (reactor::now() - begun).as_micros()
    })
}

/// A source that consists of one hole of 8 MiB.
fn hole() -> Rc<Source> {
    let geometry = memory().geometry();
    Rc::new(Source::from_opened(
        Opened::local(Arc::new(Null::new(geometry)), None),
        "hole".to_owned(),
    ))
}

// A session answers pings only in turns of the reactor.

#[test]
fn the_reactor_gets_a_turn_after_each_quarter_of_a_mebibyte_that_is_hashed() {
    let options = Options {
        checksum: true,
        ..Options::default()
    };
    for source in [Scene::new().source, hole()] {
        let Scene { destination, .. } = Scene::new();
        let turns = turns(between(
            &options,
            &source,
            &destination,
            None,
            0,
            &Unobserved,
        ));
        assert!(turns >= 4 * 8, "{}: {turns} turns", source.name);
    }
}

#[test]
fn the_reactor_gets_a_turn_after_each_mebibyte_that_is_compared() {
    let (equal, zeros) = (Scene::new(), Scene::new());
    equal
        .copy(&Options::default())
        .unwrap_or_else(|failure| panic!("{failure}"));
    let written = remote::run(async {
        Ok(bytewise::write(&*zeros.behind, 0, Buffer::zeroed(8 << 20).share()).await)
    });
    written.expect("a world").expect("memory");
    for (source, destination) in [
        (equal.source, equal.destination),
        (hole(), zeros.destination),
    ] {
        let turns = turns(compare::compare(
            &Options::default(),
            &source,
            &destination,
            &Unobserved,
        ));
        assert!(turns >= 8, "{}: {turns} turns", source.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn what_a_destination_loses_is_copied_again(
        crashes in prop::collection::vec(1u64..160, 0..=5), depth in 1u16..8
    ) {
        let scene = Scene::with_crashes(&crashes);
        let options = Options { depth: Some(depth), request_bytes: Some(64 << 10), ..Options::default() };
        let report = scene.copy(&options);
        prop_assert!(report.is_ok());
        prop_assert!(scene.bytes().iter().all(|byte| *byte == 7));
    }
}
