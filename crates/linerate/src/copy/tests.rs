//! Copies between devices that fail where they are told to.

use std::sync::Arc;

use block::{BlockDevice, Buffer, DeviceError, Extent, Fault, FaultControl, Misbehaviour, Requests, Rule};
use clap::Parser;
use host::ReactorClock;

use super::*;
use crate::bytewise;
use crate::place::Opened;
use crate::volume;

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    copy: CopyArguments,
}

const MIB: u64 = 1 << 20;

/// A source full of sevens and a destination, both with faults.
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
            Opened::of(Arc::new(Fault::new(Arc::clone(inner), Arc::new(ReactorClock), control.clone())))
        };
        Scene {
            source: Rc::new(Source::of(fault(&from, &reading), "from".to_owned())),
            destination: Rc::new(Destination::of(fault(&to, &writing), "to".to_owned())),
            behind: to,
            reading,
            writing,
        }
    }

    fn copy(&self, more: &[&str]) -> Result<Report, Failure> {
        let line = Line::parse_from([&["copy", "from", "to", "--quiet"], more].concat());
        let (source, destination) = (&self.source, &self.destination);
        remote::run(between(&line.copy, source, destination, None, 0, &Interrupt::never()))
    }

    /// What has arrived.
    fn bytes(&self) -> Vec<u8> {
        let read = remote::run(async { Ok(bytewise::read(&*self.behind, 0..8 * MIB).await) });
        read.expect("a world").expect("memory").to_vec()
    }
}

fn memory() -> Arc<dyn BlockDevice> {
    volume::open(&"ram:8MiB".parse().expect("a volume")).expect("memory")
}

/// Fails what touches these blocks of 512 bytes.
fn failing(requests: Requests, lba: u64, blocks: u64, error: DeviceError) -> Rule {
    Rule { requests, within: Some(Extent::new(lba, blocks)), misbehaviour: Misbehaviour::Fail(error) }
}

fn unreadable(lba: u64) -> Rule {
    failing(Requests::Reads, lba, 1, DeviceError::Unreadable(block::Lba(lba)))
}

#[test]
fn what_cannot_be_read_ends_the_copy_and_is_told() {
    let scene = Scene::new();
    scene.reading.set([unreadable(5000)]);
    let said = scene.copy(&[]).err().expect("a failure").to_string();
    assert_eq!(said, "cannot read from at byte 2097152: block 5000 could not be read");
}

#[test]
fn with_skip_errors_it_is_replaced_by_zeros_and_named() {
    let scene = Scene::new();
    scene.reading.set([unreadable(5000), unreadable(9)]);
    let report = scene.copy(&["--skip-errors"]).unwrap_or_else(|failure| panic!("{failure}"));
    let said = report.verdict().expect_err("not what was asked for").to_string();
    assert!(said.contains("\n  4096-8191") && said.contains("\n  2560000-2564095"), "{said}");
    let bytes = scene.bytes();
    let zeros: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] == 0).collect();
    assert_eq!(zeros, (4096..8192).chain(2_560_000..2_564_096).collect::<Vec<_>>());
}

#[test]
fn a_source_that_fails_otherwise_is_not_skipped() {
    let scene = Scene::new();
    scene.reading.set([failing(Requests::Reads, 5000, 1, DeviceError::NotReady)]);
    assert!(scene.copy(&["--skip-errors"]).is_err());
}

#[test]
fn a_full_destination_is_told() {
    let scene = Scene::new();
    scene.writing.set([failing(Requests::Writes, 8000, 8192, DeviceError::NoSpace)]);
    let said = scene.copy(&[]).err().expect("a failure").to_string();
    assert!(said.starts_with("cannot write to at byte 3145728: no space left"), "{said}");
}

#[test]
fn a_copy_that_was_not_flushed_is_no_success() {
    let scene = Scene::new();
    let lost = Misbehaviour::Fail(DeviceError::Unwritable(block::Lba(0)));
    scene.writing.set([Rule { requests: Requests::Flushes, within: None, misbehaviour: lost }]);
    let said = scene.copy(&[]).err().expect("a failure").to_string();
    assert!(said.starts_with("cannot flush to: "), "{said}");
}

#[test]
fn the_first_byte_that_differs_is_told() {
    let scene = Scene::new();
    scene
        .copy(&["--verify", "--depth", "3", "--request", "64KiB"])
        .unwrap_or_else(|failure| panic!("{failure}"));
    let line = Line::parse_from(["copy", "from", "to", "--quiet", "--request", "1MiB"]);
    let other = Buffer::from(&[8; 3][..]).share();
    let compared = remote::run(async {
        for at in [7 * MIB, 3 * MIB + 5] {
            bytewise::write(&*scene.behind, at, other.clone()).await.expect("memory");
        }
        let progress = Progress::new(&line.copy, "compared", 8 * MIB);
        let (source, destination) = (&scene.source, &scene.destination);
        compare::compare(&line.copy, source, destination, &progress, &Interrupt::never()).await
    });
    let said = compared.expect_err("a difference").to_string();
    assert_eq!(said, format!("to differs from from at byte {}", 3 * MIB + 5));
}
