//! Huge pages for zones that are nearly full, made by a separate thread.
//!
//! A processor finds the bytes of a random request sooner in pages of 2 MiB, but taking one clears all of it:
//! 0.2 ms, or tens of milliseconds where a hypervisor has to find the memory, during which the core is
//! blocked. So a reactor takes small pages only, as data are stored, and a zone of which most is written is
//! copied into a huge page later.
//!
//! ```text
//!   reactor   |·|x|·|·|x|·|·|·|  lands data in small pages
//!             |x|x|·|x|x|x|x|·|  three quarters: the zone is wanted
//!   thread    |x x · x x x x · |  becomes a huge page
//! ```
//!
//! An access to the zone waits while it is copied; others do not.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::bits::Bits;
use super::mapping::Mapping;
use super::memory::{Memory, ZONE_BYTES};

/// Who writes a zone from its beginning to its end has gone on by then, and does not wait for the copy.
const SETTLE: Duration = Duration::from_millis(100);
/// The thread rests for so many times as long as each page took: it is a fifth of a processor at most.
const REST: u32 = 4;

/// The zones of a volume to be converted to huge pages.
pub(super) struct HugePages {
    wanted: Bits,
    /// The thread has been notified of zones.
    announced: AtomicBool,
}

impl HugePages {
    pub(super) fn new(zones: usize) -> io::Result<HugePages> {
        Ok(HugePages { wanted: Bits::new(zones)?, announced: AtomicBool::new(false) })
    }

    /// The number of written granules of a zone, of so many in all, has gone from `written.start` to
    /// `written.end`. If that passes three quarters, the zone is wanted.
    pub(super) fn note(&self, memory: &Weak<Memory>, zone: usize, granules: usize, written: Range<usize>) {
        let most = granules - granules / 4;
        if written.start < most && written.end >= most {
            self.wanted.insert(zone..zone + 1);
            if !self.announced.swap(true, Ordering::AcqRel) {
                announce(Weak::clone(memory));
            }
        }
    }

    /// One of the zones that are wanted, which it then is no longer.
    fn take(&self) -> Option<usize> {
        let zone = self.wanted.first(0).or_else(|| {
            // What is wanted from here on is announced again; what was a moment ago is found by the second
            // look.
            self.announced.swap(false, Ordering::AcqRel);
            self.wanted.first(0)
        })?;
        self.wanted.remove(zone..zone + 1);
        Some(zone)
    }

    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        !self.announced.load(Ordering::Acquire) && self.wanted.first(0).is_none()
    }
}

/// Notifies the thread, which is started the first time. Without it pages stay small.
fn announce(memory: Weak<Memory>) {
    static THREAD: OnceLock<Option<Sender<Weak<Memory>>>> = OnceLock::new();
    let thread = THREAD.get_or_init(|| {
        let (sender, volumes) = mpsc::channel();
        let started = thread::Builder::new().name("huge-pages".into()).spawn(move || run(&volumes));
        started.is_ok().then_some(sender)
    });
    if let Some(thread) = thread {
        // It never ends.
        let _ = thread.send(memory);
    }
}

fn run(volumes: &Receiver<Weak<Memory>>) {
    let Ok(spare) = Mapping::new(ZONE_BYTES) else { return };
    spare.take_huge_pages();
    for volume in volumes {
        thread::sleep(SETTLE);
        // Between two pages a volume may end.
        while let Some(memory) = volume.upgrade()
            && let Some(zone) = memory.huge_pages.as_ref().and_then(HugePages::take)
        {
            let begun = Instant::now();
            if memory.is_mostly_resident(zone) {
                // The page that is cleared and given back is the next one that the kernel takes: a hypervisor
                // has found its memory by then, and the copy, for which others may wait, is short.
                spare.zero(0, 1);
                spare.discard(0..ZONE_BYTES);
                memory.make_huge(zone);
            }
            drop(memory);
            thread::sleep(begun.elapsed() * REST);
        }
    }
}
