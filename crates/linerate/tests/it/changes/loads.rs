//! The loads on the LUN that is never removed: blocks are written and read back, by Linerate's initiator and
//! by libiscsi (QEMU). No request may fail.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use block::{BlockDevice as _, Buffer, Durability, Extent};
use host::{Epoll, EpollOptions};
use iscsi_client::Url;

use super::dialogue::Dialogue;
use super::model::{INITIATORS, TARGET};
use crate::program::installed;
use crate::remote::random;

/// The state shared by the loads and the changes.
#[derive(Default)]
pub(super) struct Progress {
    pub(super) is_over: AtomicBool,
    /// The number of the current change.
    pub(super) change: AtomicUsize,
    /// The final capacity of the LUN, in bytes.
    pub(super) end_bytes: AtomicU64,
    /// Loads that have completed a request.
    pub(super) started: AtomicUsize,
}

/// The durations of a load's requests.
#[derive(Debug, Default)]
pub(super) struct Timing {
    pub(super) requests: u64,
    /// The longest request that completed during each change, by the number of the change.
    pub(super) longest: BTreeMap<usize, Duration>,
}

impl Timing {
    /// The longest request during these changes, and the change.
    pub(super) fn longest(&self, during: impl Fn(usize) -> bool) -> Option<(Duration, usize)> {
        let changes = self.longest.iter().filter(|(change, _)| during(**change));
        changes.map(|(change, longest)| (*longest, *change)).max()
    }

    fn note(&mut self, progress: &Progress, begun: Instant) {
        if self.requests == 0 {
            progress.started.fetch_add(1, Relaxed);
        }
        self.requests += 1;
        let longest = self
            .longest
            .entry(progress.change.load(Relaxed))
            .or_default();
        *longest = begun.elapsed().max(*longest);
    }
}

pub(super) type Load = JoinHandle<Timing>;

/// The number of slots of a load, of 4 KiB each.
const SLOTS: u64 = 128;
const SLOT_BYTES: u64 = 4096;
/// Pause between rounds, so that mainly the changes keep the machine busy, not the loads.
const PAUSE: Duration = Duration::from_millis(2);

/// Linerate's initiator, from the first block on.
pub(super) fn ours(port: u16, progress: Arc<Progress>) -> Load {
    let url = format!("iscsi://127.0.0.1:{port}/{TARGET}/0?initiator={INITIATORS}load");
    let url = Url::parse(&url).expect("a URL");
    let work = async move || {
        let lun = iscsi_client::open(&url, random)
            .await
            .unwrap_or_else(|error| panic!("login: {error}"));
        let mut timing = Timing::default();
        let extent = |slot| Extent::new(slot * SLOT_BYTES / 512, SLOT_BYTES / 512);
        let mut stamps = [0; SLOTS as usize];
        for round in 1_u64.. {
            let (slot, stamp) = (round % SLOTS, round as u8);
            let begun = Instant::now();
            let data = Buffer::from(&[stamp; SLOT_BYTES as usize][..]).share();
            lun.write(extent(slot), data, Durability::Cached)
                .await
                .expect("nothing is wrong with LUN 0");
            timing.note(&progress, begun);
            stamps[slot as usize] = stamp;
            // Read the data that was written half a round of slots ago, and the data that was just written.
            for slot in [(slot + SLOTS / 2) % SLOTS, slot] {
                let begun = Instant::now();
                let read = lun
                    .read(extent(slot), Buffer::zeroed(SLOT_BYTES as usize))
                    .await;
                timing.note(&progress, begun);
                let expected = stamps[slot as usize];
                assert!(
                    read.expect("nor is with reading it")
                        .iter()
                        .all(|byte| *byte == expected)
                );
            }
            reactor::sleep(PAUSE).await;
            if progress.is_over.load(Relaxed) {
                break;
            }
        }
        lun.refresh().await.expect("the LUN answers");
        assert_eq!(
            lun.geometry().bytes(),
            progress.end_bytes.load(Relaxed),
            "it knows that the LUN has grown"
        );
        lun.close().await;
        timing
    };
    thread::spawn(move || {
        let world = Epoll::shared(EpollOptions::default()).expect("an epoll instance");
        reactor::block_on(world, work())
    })
}

/// QEMU's initiator, which uses libiscsi, on the blocks after those of the other load; `None` if QEMU is not
/// installed.
pub(super) fn qemu(port: u16, progress: Arc<Progress>) -> Option<Load> {
    if !installed(&["qemu-io"]) {
        return None;
    }
    let mut command = Command::new("qemu-io");
    command
        .args(["--image-opts", "-t", "none"])
        .stderr(Stdio::null());
    command.arg(format!(
        "driver=iscsi,transport=tcp,portal=127.0.0.1:{port},target={TARGET},lun=0,initiator-name={INITIATORS}qemu"
    ));
    let mut qemu = Dialogue::begin(&mut command, "qemu-io> ").expect("QEMU logs in");
    let work = move || {
        let mut timing = Timing::default();
        let mut carry_out = |line: &str, done: &str| {
            let begun = Instant::now();
            let said = qemu.ask(line);
            timing.note(&progress, begun);
            assert!(
                said.starts_with(done) && !said.contains("failed"),
                "{line}: {said}"
            );
        };
        for round in 1_u64.. {
            let (place, stamp) = (2 << 20 | (round % SLOTS * SLOT_BYTES), round % 255 + 1);
            carry_out(&format!("write -P {stamp} {place} {SLOT_BYTES}"), "wrote ");
            carry_out(&format!("read -P {stamp} {place} {SLOT_BYTES}"), "read ");
            thread::sleep(PAUSE);
            if progress.is_over.load(Relaxed) {
                break;
            }
        }
        // This command is rejected unless the LUN has this length. A session that has not queried the length
        // again still has the old one.
        let end_bytes = progress.end_bytes.load(Relaxed);
        carry_out(&format!("truncate {end_bytes}"), "");
        carry_out(
            &format!("write -P 7 {} {SLOT_BYTES}", end_bytes - SLOT_BYTES),
            "wrote ",
        );
        carry_out(
            &format!("read -P 7 {} {SLOT_BYTES}", end_bytes - SLOT_BYTES),
            "read ",
        );
        timing
    };
    Some(thread::spawn(work))
}

/// A thread that wakes up every millisecond and measures its delay. The requests of the loads cannot be
/// faster than the machine allows.
pub(super) fn clock(progress: Arc<Progress>) -> Load {
    thread::spawn(move || {
        let mut timing = Timing::default();
        while !progress.is_over.load(Relaxed) {
            let due = Instant::now() + Duration::from_millis(1);
            thread::sleep(Duration::from_millis(1));
            timing.note(&progress, due);
        }
        timing
    })
}
