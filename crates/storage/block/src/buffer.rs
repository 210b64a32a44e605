//! Buffers of requests. They are page-aligned, so that direct I/O accepts them. A request owns its buffer.
//! Therefore a request that continues after its caller has dropped it never writes to reused memory.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use zerocopy::{FromBytes, FromZeros as _, Immutable, IntoBytes, KnownLayout};

/// The alignment of every [`Buffer`], and the unit of its capacity.
pub const PAGE_BYTES: usize = 4096;

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_BYTES]);

/// Page-aligned memory of a fixed length in bytes. The thread keeps dropped buffers for the next requests of
/// the same size, up to a limit of [`POOL_BYTES_MAX`] plus the sizes of its [`Reserve`]s.
pub struct Buffer {
    pages: Vec<Page>,
    length: usize,
}

impl Buffer {
    /// Creates a buffer of `length` zero bytes.
    pub fn zeroed(length: usize) -> Buffer {
        let mut buffer = Buffer::recycled(length);
        buffer.fill(0);
        buffer
    }

    /// Creates a buffer of `length` bytes that may contain data of an earlier request. Use it only if the
    /// buffer will be overwritten completely: a part that was not overwritten must never be sent.
    pub fn recycled(length: usize) -> Buffer {
        let pages = pool_class(length.div_ceil(PAGE_BYTES));
        let pages = POOL
            .with_borrow_mut(|pool| pool.take(pages))
            .unwrap_or_else(|| fresh(pages));
        debug_assert!(pages.len() * PAGE_BYTES >= length);
        Buffer { pages, length }
    }

    /// Returns the amount of memory allocated for a buffer of `length` bytes.
    pub fn memory_bytes(length: usize) -> usize {
        pool_class(length.div_ceil(PAGE_BYTES)) * PAGE_BYTES
    }

    /// Shortens the buffer to `length` bytes. Has no effect if it is already shorter.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Converts the buffer to a read-only [`Slice`] that is cheap to clone.
    pub fn share(self) -> Slice {
        let range = 0..self.length;
        Slice {
            buffer: Arc::new(self),
            range,
        }
    }
}

impl From<&[u8]> for Buffer {
    fn from(bytes: &[u8]) -> Buffer {
        let mut buffer = Buffer::recycled(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.pages.as_slice().as_bytes()[..self.length]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.pages.as_mut_slice().as_mut_bytes()[..self.length]
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.length)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let pages = std::mem::take(&mut self.pages);
        // An exiting thread may no longer have a pool. The memory then returns to the allocator.
        let _ = POOL.try_with(|pool| pool.borrow_mut().put(pages));
    }
}

/// A part of a shared, read-only [`Buffer`], such as the data of a write, which a mirror can send to both of
/// its members.
#[derive(Clone)]
pub struct Slice {
    buffer: Arc<Buffer>,
    range: Range<usize>,
}

impl Slice {
    /// Returns the bytes at `range` of this slice; `None` if the range is not within the slice.
    pub fn part(&self, range: Range<usize>) -> Option<Slice> {
        let inside = range.start <= range.end && range.end <= self.range.len();
        inside.then(|| Slice {
            buffer: Arc::clone(&self.buffer),
            range: self.range.start + range.start..self.range.start + range.end,
        })
    }

    /// Returns whether the buffer has other users.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.buffer) > 1
    }

    /// Returns the buffer, if it is not shared.
    pub fn into_buffer(self) -> Option<Buffer> {
        Arc::into_inner(self.buffer)
    }
}

impl Deref for Slice {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buffer[self.range.clone()]
    }
}

impl From<Buffer> for Slice {
    fn from(buffer: Buffer) -> Slice {
        buffer.share()
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slice({} bytes)", self.range.len())
    }
}

/// Limit on the memory that a thread keeps from dropped buffers: enough for 32 commands of 256 KiB.
pub const POOL_BYTES_MAX: usize = 8 << 20;

/// While this value exists, the thread that created it may keep more memory from dropped buffers. It is
/// intended for users that drop many buffers together and soon need the same number again: allocating the
/// memory from the system again would cost more than using it.
#[derive(Debug)]
pub struct Reserve {
    bytes: usize,
    /// Makes this type neither `Send` nor `Sync`, so that it stays on its thread.
    _here: PhantomData<*const ()>,
}

impl Reserve {
    /// Raises the limit by `bytes`.
    pub fn of(bytes: usize) -> Reserve {
        POOL.with_borrow_mut(|pool| pool.limit += bytes);
        Reserve {
            bytes,
            _here: PhantomData,
        }
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        let _ = POOL.try_with(|pool| {
            let mut pool = pool.borrow_mut();
            debug_assert!(
                pool.limit >= POOL_BYTES_MAX + self.bytes,
                "a reserve ends once"
            );
            pool.limit -= self.bytes;
            pool.make_room(0, SHELVES);
        });
    }
}

/// Rounds a size up to a power of two of pages, so that a returned buffer fits the next request.
fn pool_class(pages: usize) -> usize {
    pages.max(1).next_power_of_two()
}

fn fresh(pages: usize) -> Vec<Page> {
    // `new_vec_zeroed` requests zeroed memory from the allocator, which takes large buffers from new mappings
    // and so need not clear them.
    Page::new_vec_zeroed(pages).expect("the allocator has memory for one request")
}

thread_local! {
    static POOL: RefCell<Pool> =
        const { RefCell::new(Pool { shelves: [const { Vec::new() }; SHELVES], bytes: 0, limit: POOL_BYTES_MAX }) };
}

/// Number of shelves. Shelf n contains buffers of 2^n pages, from 4 KiB to 4 MiB. Larger buffers are not
/// pooled.
const SHELVES: usize = 11;

struct Pool {
    shelves: [Vec<Vec<Page>>; SHELVES],
    bytes: usize,
    limit: usize,
}

impl Pool {
    fn take(&mut self, pages: usize) -> Option<Vec<Page>> {
        debug_assert!(pages.is_power_of_two(), "a class of the pool");
        let kept = self
            .shelves
            .get_mut(pages.trailing_zeros() as usize)?
            .pop()?;
        self.bytes -= kept.len() * PAGE_BYTES;
        Some(kept)
    }

    fn put(&mut self, pages: Vec<Page>) {
        let bytes = pages.len() * PAGE_BYTES;
        let place = pages.len().trailing_zeros() as usize;
        if pages.is_empty() || place >= SHELVES || !self.make_room(bytes, place) {
            return;
        }
        self.shelves[place].push(pages);
        self.bytes += bytes;
        debug_assert!(self.bytes <= self.limit, "the pool keeps to its limit");
    }

    /// Makes room for a buffer by dropping buffers of other sizes, the largest first. Otherwise the buffers
    /// of one workload, such as eight of 1 MiB, would keep all buffers of the next workload out of the pool.
    fn make_room(&mut self, bytes: usize, place: usize) -> bool {
        while self.bytes + bytes > self.limit {
            let others = self
                .shelves
                .iter_mut()
                .enumerate()
                .rev()
                .filter(|(other, _)| *other != place);
            let Some(gone) = others.map(|(_, shelf)| shelf).find_map(Vec::pop) else {
                return false;
            };
            self.bytes -= gone.len() * PAGE_BYTES;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zeroed_buffer_is_zero_even_when_recycled() {
        let mut first = Buffer::zeroed(5000);
        first.fill(0xa5);
        drop(first);
        assert!(Buffer::zeroed(5000).iter().all(|&byte| byte == 0));
    }

    #[test]
    fn buffers_are_page_aligned_and_exactly_as_long_as_asked() {
        for length in [0, 1, 511, 4096, 4097, 1 << 20] {
            let buffer = Buffer::recycled(length);
            assert_eq!(buffer.len(), length);
            assert_eq!(buffer.as_ptr() as usize % PAGE_BYTES, 0);
        }
    }

    #[test]
    fn a_slice_of_a_slice_stays_inside() {
        let slice = Buffer::from(&b"abcdefgh"[..]).share();
        let middle = slice.part(2..6).unwrap();
        assert_eq!(&*middle, b"cdef");
        assert_eq!(&*middle.part(1..3).unwrap(), b"de");
        assert!(middle.part(1..5).is_none());
    }

    #[test]
    fn the_pool_keeps_no_more_than_its_limit() {
        let held: Vec<Buffer> = (0..64).map(|_| Buffer::recycled(1 << 20)).collect();
        drop(held);
        POOL.with_borrow(|pool| assert!(pool.bytes <= POOL_BYTES_MAX));
    }

    #[test]
    fn a_reserve_keeps_more_while_it_lives() {
        let reserve = Reserve::of(16 << 20);
        let held: Vec<Buffer> = (0..32).map(|_| Buffer::recycled(1 << 20)).collect();
        drop(held);
        POOL.with_borrow(|pool| assert_eq!(pool.bytes, POOL_BYTES_MAX + (16 << 20)));
        drop(reserve);
        POOL.with_borrow(|pool| {
            assert_eq!((pool.bytes, pool.limit), (POOL_BYTES_MAX, POOL_BYTES_MAX))
        });
    }

    #[test]
    fn the_sizes_of_an_earlier_workload_make_room() {
        let held: Vec<Buffer> = (0..8).map(|_| Buffer::recycled(1 << 20)).collect();
        drop(held);
        let small = Buffer::recycled(4096);
        let place = small.as_ptr();
        drop(small);
        POOL.with_borrow(|pool| {
            assert!(pool.bytes <= POOL_BYTES_MAX && pool.shelves[0].len() == 1)
        });
        assert_eq!(Buffer::recycled(4096).as_ptr(), place);
    }
}
