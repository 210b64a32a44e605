//! The memory of a volume, and the record of which parts are written.
//!
//! The bytes of a zone, and the record of which granules are written, change together under the zone's lock.
//! So a block is never a mixture of two writes, or of a write and an unmap, and the record is correct
//! whenever the lock is free. A zone has the size of a huge page, so that one call frees it. There is a fixed
//! number of locks; zones that share a lock are far apart.
//!
//! ```text
//!   zone      |       0       |       1       |       2       | ...     2 MiB each
//!   granules  |·|x|x|·|·|·|·|·|x|x|x|x|x|x|x|x|·|·|                     x written, · not allocated
//!   lock         0               1               2                     modulo LOCKS
//! ```

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::thread;
use std::time::{Duration, Instant};

use block::Medium;

use super::bits::Bits;
use super::mapping::{HUGE_PAGE, Mapping, PAGE};

/// Size of a zone, which is a multiple of every granule.
pub(super) const ZONE_BYTES: usize = HUGE_PAGE;
/// Number of locks: enough that two cores in different zones rarely contend for the same lock.
const LOCKS: usize = 256;

pub(super) struct Memory {
    me: Weak<Memory>,
    pub(super) mapping: Mapping,
    length: usize,
    /// log2 of the unit of space in bytes: a page, or a block if that is larger.
    granule_shift: u32,
    pub(super) written: Bits,
    /// `None` if the volume uses only small pages.
    pub(super) huge_pages: Option<HugePages>,
    locks: Box<[RwLock<()>; LOCKS]>,
}

impl Memory {
    /// Creates a memory of `length` zero bytes, in blocks of `block_bytes`.
    pub(super) fn new(
        length: usize,
        block_bytes: usize,
        huge_pages: bool,
    ) -> io::Result<Arc<Memory>> {
        let mapping = Mapping::new(length)?;
        let granule = PAGE.max(block_bytes);
        let granule_shift = granule.trailing_zeros();
        let written = Bits::new(length.div_ceil(granule))?;
        let huge_pages = huge_pages
            .then(|| HugePages::new(length / ZONE_BYTES))
            .transpose()?;
        let locks = Box::new([const { RwLock::new(()) }; LOCKS]);
        Ok(Arc::new_cyclic(|me| {
            let me = Weak::clone(me);
            Memory {
                me,
                mapping,
                length,
                granule_shift,
                written,
                huge_pages,
                locks,
            }
        }))
    }

    /// Frees the whole granules in a range. Partial granules at its ends are zeroed in place.
    pub(super) fn give_back(&self, range: Range<usize>) {
        for piece in pieces(range) {
            let _alone = self.write_lock(piece.start);
            self.give_back_in_zone(piece);
        }
    }

    fn give_back_in_zone(&self, range: Range<usize>) {
        // The last granule of the device may be shorter, but counts as a whole one.
        let granule = self.granule();
        let end = if range.end == self.length {
            range.end.div_ceil(granule)
        } else {
            range.end / granule
        };
        let whole = range.start.div_ceil(granule)..end;
        if whole.is_empty() {
            return self.zero_where_written(range);
        }
        let bytes = whole.start * granule..whole.end * granule;
        self.zero_where_written(range.start..bytes.start);
        self.zero_where_written(bytes.end..range.end);
        if self.written.remove(whole) > 0 {
            self.mapping.discard(bytes);
        }
    }

    /// Zeroes the parts of a range that lie in written granules. An unwritten granule is already zero, and
    /// must not be touched, so that no memory is allocated for it.
    fn zero_where_written(&self, range: Range<usize>) {
        let granule = self.granule();
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min((at / granule + 1) * granule);
            if self.written.contains(at / granule) {
                self.mapping.zero(at, end - at);
            }
            at = end;
        }
    }

    /// Zeroes a range, which counts as allocated afterwards. Bytes without memory are already zero, and no
    /// memory is allocated for them: for a large range, that would block the reactor for a long time.
    pub(super) fn zero(&self, range: Range<usize>) {
        for piece in pieces(range) {
            let _alone = self.write_lock(piece.start);
            self.zero_where_written(piece.clone());
            // Granules that are newly marked as written here use no memory, so they do not justify a huge
            // page.
            self.written.insert(self.granules(&piece));
        }
    }

    fn store_in_zone(&self, at: usize, from: &[u8]) {
        if !from.is_empty() {
            let _alone = self.write_lock(at);
            self.mapping.store(at, from);
            self.landed(&(at..at + from.len()));
        }
    }

    /// Records that bytes of one zone were written.
    fn landed(&self, piece: &Range<usize>) {
        let granules = self.granules(piece);
        // In the usual case, an overwrite, do not write to a cache line that other cores share.
        if !self.written.contains_all(granules.clone()) {
            self.landed_first(piece.start / ZONE_BYTES, granules);
        }
    }

    #[cold]
    fn landed_first(&self, zone: usize, granules: Range<usize>) {
        let more = self.written.insert(granules);
        let all = zone_bytes(zone);
        // The last zone may be too short for a huge page.
        if let Some(huge_pages) = self.huge_pages.as_ref().filter(|_| all.end <= self.length) {
            let all = self.granules(&all);
            let written = self.written.count_in(all.clone());
            huge_pages.note(&self.me, zone, all.len(), written - more..written);
        }
    }

    /// Whether a mostly written zone still has memory for most of its bytes. The zone may have been freed
    /// since it was queued, and then zeroed, which uses no memory.
    pub(super) fn is_mostly_resident(&self, zone: usize) -> bool {
        let pages = ZONE_BYTES / PAGE;
        self.mapping.resident_pages_in(zone_bytes(zone)) >= pages - pages / 4
    }

    /// Moves a zone into a huge page.
    pub(super) fn make_huge(&self, zone: usize) {
        let bytes = zone_bytes(zone);
        if let Err(error) = self.mapping.collapse(bytes.start) {
            // There is no contiguous memory, the kernel uses a page of the zone, or the kernel is older than
            // Linux 6.1.
            return tracing::debug!(%error, zone, "no huge page");
        }
        // If the zone was freed meanwhile, the collapse has allocated memory for zeros. Free it.
        let _alone = self.write_lock(bytes.start);
        if self.written.count_in(self.granules(&bytes)) == 0 {
            self.mapping.discard(bytes);
        }
    }

    /// Returns the granules that the range touches.
    pub(super) fn granules(&self, range: &Range<usize>) -> Range<usize> {
        range.start >> self.granule_shift..(range.end + self.granule() - 1) >> self.granule_shift
    }

    /// The size of a granule in bytes.
    pub(super) fn granule(&self) -> usize {
        1 << self.granule_shift
    }

    fn write_lock(&self, at: usize) -> RwLockWriteGuard<'_, ()> {
        self.lock(at)
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn read_lock(&self, at: usize) -> RwLockReadGuard<'_, ()> {
        self.lock(at).read().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self, at: usize) -> &RwLock<()> {
        &self.locks[at / ZONE_BYTES % LOCKS]
    }
}

impl Medium for Memory {
    fn bytes(&self) -> &[AtomicU8] {
        self.mapping.bytes()
    }

    fn store(&self, at: usize, from: &[u8]) {
        if (at % ZONE_BYTES) + from.len() <= ZONE_BYTES {
            return self.store_in_zone(at, from); // the usual case
        }
        for piece in pieces(at..at + from.len()) {
            self.store_in_zone(piece.start, &from[piece.start - at..piece.end - at]);
        }
    }

    fn load(&self, at: usize, into: &mut [u8]) {
        for piece in pieces(at..at + into.len()) {
            let _unchanging = self.read_lock(piece.start);
            self.mapping
                .load(piece.start, &mut into[piece.start - at..piece.end - at]);
        }
    }

    fn receive(&self, range: Range<usize>, receive: &mut dyn FnMut(&[AtomicU8]) -> usize) {
        let Some(piece) = pieces(range).next() else {
            return;
        };
        let _alone = self.write_lock(piece.start);
        let received = receive(&self.mapping.bytes()[piece.clone()]).min(piece.len());
        if received > 0 {
            self.landed(&(piece.start..piece.start + received));
        }
    }
}

fn zone_bytes(zone: usize) -> Range<usize> {
    zone * ZONE_BYTES..(zone + 1) * ZONE_BYTES
}

/// Splits a range at the boundaries of zones.
fn pieces(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let start = at;
        at = range.end.min((start / ZONE_BYTES + 1) * ZONE_BYTES);
        (start < range.end).then_some(start..at)
    })
}

// Huge pages for zones that are mostly written. A separate thread makes them.
//
// Random access is faster with pages of 2 MiB, but allocating one clears all of it. This takes 0.2 ms, or
// tens of milliseconds if a hypervisor has to find the memory, and blocks the core. So a reactor allocates
// only small pages as data is stored, and a mostly written zone is copied into a huge page later.
//
// ```text
//   reactor   |·|x|·|·|x|·|·|·|  stores data in small pages
//             |x|x|·|x|x|x|x|·|  three quarters written: queues the zone
//   thread    |x x · x x x x · |  copies it into a huge page
// ```
//
// Access to the zone waits while it is copied; access to other zones does not.

/// Delay before the thread copies a zone. A sequential writer has left the zone by then, and does not have to
/// wait for the copy.
const SETTLE: Duration = Duration::from_millis(100);
/// After each page, the thread rests for this multiple of the time that the page took, so that it uses a
/// fifth of a CPU at most.
const REST: u32 = 4;

/// The zones of a volume to convert to huge pages.
pub(super) struct HugePages {
    wanted: Bits,
    /// Whether the thread has been notified that zones are queued.
    announced: AtomicBool,
}

impl HugePages {
    pub(super) fn new(zones: usize) -> io::Result<HugePages> {
        Ok(HugePages {
            wanted: Bits::new(zones)?,
            announced: AtomicBool::new(false),
        })
    }

    /// Records that the number of written granules of a zone has increased from `written.start` to
    /// `written.end`, out of `granules`. Once three quarters are written, queues the zone for conversion.
    pub(super) fn note(
        &self,
        memory: &Weak<Memory>,
        zone: usize,
        granules: usize,
        written: Range<usize>,
    ) {
        let most = granules - granules / 4;
        if written.start < most && written.end >= most {
            self.wanted.insert(zone..zone + 1);
            if !self.announced.swap(true, Ordering::AcqRel) {
                announce(Weak::clone(memory));
            }
        }
    }

    /// Removes a zone from the queue and returns it.
    fn take(&self) -> Option<usize> {
        let zone = self.wanted.first(0).or_else(|| {
            // From here on, queueing a zone notifies the thread again. The second check finds zones that were
            // queued before.
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

/// Notifies the thread, and starts it on first use. If the thread cannot be started, pages stay small.
fn announce(memory: Weak<Memory>) {
    static THREAD: OnceLock<Option<Sender<Weak<Memory>>>> = OnceLock::new();
    let thread = THREAD.get_or_init(|| {
        let (sender, volumes) = mpsc::channel();
        let started = thread::Builder::new()
            .name("huge-pages".into())
            .spawn(move || run(&volumes));
        started.is_ok().then_some(sender)
    });
    if let Some(thread) = thread {
        // The thread never ends, so sending does not fail.
        let _ = thread.send(memory);
    }
}

fn run(volumes: &Receiver<Weak<Memory>>) {
    let Ok(spare) = Mapping::new(ZONE_BYTES) else {
        return;
    };
    spare.take_huge_pages();
    for volume in volumes {
        thread::sleep(SETTLE);
        // The volume may be closed between two pages.
        while let Some(memory) = volume.upgrade()
            && let Some(zone) = memory.huge_pages.as_ref().and_then(HugePages::take)
        {
            let begun = Instant::now();
            if memory.is_mostly_resident(zone) {
                // Allocate, clear and free a huge page, which the kernel will use again for the zone. The
                // hypervisor then already backs it with memory, so the copy, which may block other requests,
                // is short.
                spare.zero(0, 1);
                spare.discard(0..ZONE_BYTES);
                memory.make_huge(zone);
            }
            drop(memory);
            thread::sleep(begun.elapsed() * REST);
        }
    }
}
