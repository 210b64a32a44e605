//! Anonymous memory mappings. Bytes are zero until written; pages are allocated on the first write, and freed
//! individually. Small pages can be collapsed into huge pages.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU8, AtomicU64};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Unit of allocation. [`Mapping::new`] checks that it is a multiple of the system's page size.
pub(super) const PAGE: usize = 4096;
/// Size of a huge page on x86-64, and on ARM with pages of 4 KiB.
pub(super) const HUGE_PAGE: usize = 2 << 20;

/// An anonymous mapping, which is unmapped when this is dropped. At any time, any thread may access its
/// bytes, and so may the kernel on behalf of a socket. So they are accessed only as atomics and through raw
/// pointers: a race for a byte yields the old or the new value, and is never undefined behaviour.
/// [`super::memory`] excludes the races that matter.
pub(super) struct Mapping {
    start: NonNull<c_void>,
    length: usize,
}

// SAFETY: the mapping is plain memory that belongs to no thread; all access is by atomics or by copies whose
// races are harmless (see `store`).
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps at least `length` bytes, rounded up to whole pages. The mapping takes address space but no
    /// memory. Unless `vm.overcommit_memory` is 2, it does not count against the overcommit limit, so a RAM
    /// volume may be larger than the free memory. A mapping that is at least as long as a huge page is
    /// aligned to one.
    pub(super) fn new(length: usize) -> io::Result<Mapping> {
        assert!(
            PAGE.is_multiple_of(rustix::param::page_size()),
            "pages of 4 KiB or a part of it"
        );
        let length = length
            .checked_next_multiple_of(PAGE)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let slack = if length >= HUGE_PAGE {
            HUGE_PAGE - PAGE
        } else {
            0
        };
        let mapped = length
            .checked_add(slack)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses the place, so no existing memory is touched.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), mapped, protection, flags) }?;
        let before = if slack > 0 {
            start.addr().wrapping_neg() % HUGE_PAGE
        } else {
            0
        };
        // SAFETY: the parts before and after the kept part belong to this mapping, and no reference to them
        // exists yet. At worst they continue to occupy address space.
        let start = unsafe {
            let kept = start.byte_add(before);
            let _ = munmap(start, before);
            let _ = munmap(kept.byte_add(length), slack - before);
            kept
        };
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Mapping { start, length };
        mapping.advise(0..length, Advice::LinuxNoHugepage);
        Ok(mapping)
    }

    /// Uses huge pages for memory that is allocated from now on, if the kernel supports them. A new mapping
    /// uses small pages.
    pub(super) fn take_huge_pages(&self) {
        self.advise(0..self.length, Advice::LinuxHugepage);
    }

    /// Moves the small pages of the 2 MiB at `at`, a multiple of [`HUGE_PAGE`], into a huge page. Accesses
    /// wait meanwhile. The content never changes. After an error, the small pages remain, and the first one
    /// may have been allocated.
    pub(super) fn collapse(&self, at: usize) -> io::Result<()> {
        let page = at..at + HUGE_PAGE;
        assert!(page.end <= self.length, "a page inside the mapping");
        self.advise(page.clone(), Advice::LinuxHugepage);
        // If the range has no pages yet, this call already allocates the huge page.
        self.advise(at..at + PAGE, Advice::LinuxPopulateWrite);
        // SAFETY: inside the mapping; its content does not change.
        let collapsed =
            match unsafe { libc::madvise(self.at(at).cast(), HUGE_PAGE, libc::MADV_COLLAPSE) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            };
        // Existing pages keep their size, and memory that is allocated here later uses small pages. With the
        // same advice for all parts, the kernel needs only one area for the whole mapping, instead of one per
        // huge page. (It allows 65,530 areas.)
        self.advise(page, Advice::LinuxNoHugepage);
        collapsed
    }

    /// Returns the number of small pages in this range that have memory. A huge page counts as all the small
    /// pages that it replaces. The range must start at a page. Returns zero if the kernel cannot count the
    /// pages.
    pub(super) fn resident_pages_in(&self, bytes: Range<usize>) -> usize {
        assert!(
            bytes.start.is_multiple_of(PAGE) && bytes.end <= self.length,
            "pages of the mapping"
        );
        let mut pages = vec![0; bytes.len().div_ceil(PAGE)];
        // SAFETY: inside the mapping, which is a whole number of pages; `pages` has a byte for each.
        unsafe { libc::mincore(self.at(bytes.start).cast(), bytes.len(), pages.as_mut_ptr()) };
        // mincore fails only for lack of memory (EAGAIN), and then `pages` stays zero.
        pages.iter().filter(|&&page| page & 1 == 1).count()
    }

    #[cfg(test)]
    pub(super) fn resident_pages(&self) -> usize {
        self.resident_pages_in(0..self.length)
    }

    /// Gives the kernel advice that does not change the content. Ignores errors.
    fn advise(&self, bytes: Range<usize>, advice: Advice) {
        use Advice::{LinuxHugepage, LinuxNoHugepage, LinuxPopulateWrite};
        debug_assert!(matches!(
            advice,
            LinuxHugepage | LinuxNoHugepage | LinuxPopulateWrite
        ));
        // SAFETY: callers pass a range inside the mapping; none of these changes its content. A kernel
        // without huge pages returns an error, and small pages are used.
        let _ = unsafe { madvise(self.at(bytes.start).cast(), bytes.len(), advice) };
    }

    /// The mapping as words, for counters or bitmaps.
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: page-aligned, zeroed by the kernel, valid for `length` bytes as long as `self` lives;
        // atomics may be shared.
        unsafe {
            slice::from_raw_parts(
                self.start.as_ptr().cast(),
                self.length / size_of::<AtomicU64>(),
            )
        }
    }

    /// Frees whole pages, which read as zeros afterwards, including when the kernel reads them for a socket.
    /// Under mlockall(2), the pages are zeroed and keep their memory. Bytes beyond the mapping are ignored.
    pub(super) fn discard(&self, bytes: Range<usize>) {
        debug_assert!(bytes.start.is_multiple_of(PAGE) && bytes.end.is_multiple_of(PAGE));
        let end = bytes.end.min(self.length);
        let Some(length) = end.checked_sub(bytes.start).filter(|&length| length > 0) else {
            return;
        };
        // SAFETY: the range lies inside the mapping. Private anonymous pages become zero pages; a concurrent
        // copy from or to them sees the old bytes or zeros.
        let gone = unsafe { madvise(self.at(bytes.start).cast(), length, Advice::LinuxDontNeed) };
        // The call fails only for locked memory (EINVAL under mlockall). In that case, zero the bytes in
        // place.
        if gone.is_err() {
            self.zero(bytes.start, length);
        }
    }

    /// Zeroes bytes. Bytes beyond the mapping are ignored.
    pub(super) fn zero(&self, at: usize, length: usize) {
        let length = length.min(self.length.saturating_sub(at));
        if length > 0 {
            // SAFETY: inside the mapping; for races see `store`.
            unsafe { ptr::write_bytes(self.at(at), 0, length) };
        }
    }

    pub(super) fn bytes(&self) -> &[AtomicU8] {
        // SAFETY: valid for `length` bytes as long as `self` lives; atomics may be shared.
        unsafe { slice::from_raw_parts(self.start.as_ptr().cast(), self.length) }
    }

    /// Copies `from` to offset `at`. Panics if the bytes are not all in the mapping.
    pub(super) fn store(&self, at: usize, from: &[u8]) {
        assert!(
            at <= self.length && from.len() <= self.length - at,
            "a store inside the mapping"
        );
        // SAFETY: inside the mapping by the assertion, and `from`, being a reference to plain bytes, is not
        // part of it: no such references to a mapping are created. The kernel may copy the same bytes to a
        // socket at the same time, which yields a mixture of old and new ones. No reference to them as plain
        // bytes exists, and nothing here depends on their values. Byte-wise atomic stores would say the same
        // to the compiler at a tenth of the speed.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.at(at), from.len()) };
    }

    /// Copies bytes from offset `at` to `into`. Panics if they are not all in the mapping.
    pub(super) fn load(&self, at: usize, into: &mut [u8]) {
        assert!(
            at <= self.length && into.len() <= self.length - at,
            "a load inside the mapping"
        );
        // SAFETY: as for `store`, the other way round.
        unsafe { ptr::copy_nonoverlapping(self.at(at), into.as_mut_ptr(), into.len()) };
    }

    /// Returns the address of a byte, or of the end of the mapping.
    fn at(&self, byte: usize) -> *mut u8 {
        debug_assert!(byte <= self.length);
        // SAFETY: callers have checked that `byte` lies in the mapping.
        unsafe { self.start.as_ptr().cast::<u8>().add(byte) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and no slice of it outlives the value.
        let _ = unsafe { munmap(self.start.as_ptr(), self.length) };
    }
}
