//! The receive ring of a packet socket (PACKET_RX_RING, packet(7), version 2): memory that the kernel fills with frames and this process
//! reads in place. It costs no system call and no page for each frame, and one copy less.
//!
//! ```text
//!  slot:  tpacket2_hdr │ sockaddr_ll │ gap │ payload          a block has a whole number of slots
//!  status: KERNEL ── a frame was written ──► USER ── read ──► KERNEL
//! ```
//!
//! Version 3 hands over whole blocks, by a timer of a millisecond at least: ruinous for a request that waits alone.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{sockaddr_ll, tpacket_req, tpacket2_hdr};
use reactor::DatagramAddress;

use super::packet::sender_of;
use super::set_option;

/// From the beginning of a slot to its address, and to its payload (`tpacket_rcv` of the kernel).
const NAME_AT: usize = align(size_of::<tpacket2_hdr>());
const PAYLOAD_AT: usize = align(NAME_AT + size_of::<sockaddr_ll>()) + 16;
/// Contiguous memory that the kernel is asked for.
const BLOCK_BYTES: usize = 64 << 10;

const fn align(bytes: usize) -> usize {
    bytes.next_multiple_of(libc::TPACKET_ALIGNMENT)
}

/// A ring, mapped.
pub(crate) struct ReceiveRing {
    memory: NonNull<u8>,
    blocks: usize,
    slot_bytes: usize,
    slots_per_block: usize,
    /// The slot that the kernel fills next, borrowed while it is read.
    next: RefCell<usize>,
    /// Datagrams that were longer than a slot.
    pub(super) too_long: Cell<u64>,
}

// SAFETY: the mapping may be read and written from any thread; that one at a time has the ring is what `Send` without `Sync` says.
unsafe impl Send for ReceiveRing {}

impl ReceiveRing {
    /// For an interface with a usual MTU: slots of 2 KiB.
    pub(super) const SHORT_PAYLOAD_BYTES: usize = (2 << 10) - PAYLOAD_AT;

    /// Gives a socket that is not bound yet a ring of about so many bytes, but no more slots than these, for payloads of so many bytes.
    pub(super) fn open(
        socket: &OwnedFd,
        payload_bytes: usize,
        bytes: usize,
        slots_max: usize,
    ) -> io::Result<ReceiveRing> {
        let slot_bytes = align(PAYLOAD_AT + payload_bytes);
        let slots_per_block = BLOCK_BYTES / slot_bytes;
        if slots_per_block == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let blocks = (bytes / BLOCK_BYTES).min(slots_max / slots_per_block).max(1);
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        let request = tpacket_req {
            tp_block_size: BLOCK_BYTES as _,
            tp_block_nr: blocks as _,
            tp_frame_size: slot_bytes as _,
            tp_frame_nr: (slots_per_block * blocks) as _,
        };
        set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses the place, so no existing memory is touched; a ring of this length was made just now.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                blocks * BLOCK_BYTES,
                protection,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            // The kernel would go on to fill what nobody reads.
            let none = tpacket_req { tp_block_size: 0, tp_block_nr: 0, tp_frame_size: 0, tp_frame_nr: 0 };
            set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_RX_RING, &none)?;
            return Err(error);
        }
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let (next, too_long) = (RefCell::new(0), Cell::new(0));
        Ok(ReceiveRing { memory, blocks, slot_bytes, slots_per_block, next, too_long })
    }

    /// The longest payload that it takes.
    pub(super) fn payload_bytes_max(&self) -> usize {
        self.slot_bytes - PAYLOAD_AT
    }

    fn slot(&self, number: usize) -> NonNull<u8> {
        let (block, place) = (number / self.slots_per_block, number % self.slots_per_block);
        debug_assert!(block < self.blocks);
        // SAFETY: the mapping has `blocks` blocks, and each the space of `slots_per_block` slots.
        unsafe { self.memory.add(block * BLOCK_BYTES + place * self.slot_bytes) }
    }

    /// Whether a frame is there.
    pub(crate) fn has_any(&self) -> bool {
        self.next.try_borrow().is_ok_and(|next| self.status(*next) & libc::TP_STATUS_USER != 0)
    }

    fn status(&self, number: usize) -> u32 {
        self.status_word(number).load(Ordering::Acquire)
    }

    fn status_word(&self, number: usize) -> &AtomicU32 {
        let header = self.slot(number).cast::<tpacket2_hdr>();
        // SAFETY: a slot begins with its header, aligned (16), which lives as long as the mapping. The kernel and we read and write
        // this word whole, so it is an atomic for both.
        unsafe { AtomicU32::from_ptr(&raw mut (*header.as_ptr()).tp_status) }
    }

    /// Hands the payloads that are there to `take`, at most so many; how many slots were read, with those of frames that are for
    /// nobody here. 0: nothing is there.
    pub(super) fn receive(&self, most: usize, take: &mut dyn FnMut(DatagramAddress, &mut [u8])) -> usize {
        // Borrowed: by this call alone, so no slot is handed out twice.
        let Ok(mut next) = self.next.try_borrow_mut() else { return 0 };
        for count in 0..most {
            if self.status(*next) & libc::TP_STATUS_USER == 0 {
                return count;
            }
            let slot = self.slot(*next);
            let number = *next;
            *next = (number + 1) % (self.slots_per_block * self.blocks);
            // Given back when it was read, also if `take` panics.
            let _given_back = GiveBack(self.status_word(number));
            // SAFETY: the status says that the kernel has written the slot, and it writes nothing there before it is given back.
            // The header and behind it the address are plain numbers, aligned by 16.
            let (header, name) = unsafe {
                (slot.cast::<tpacket2_hdr>().read(), slot.add(NAME_AT).cast::<sockaddr_ll>().read())
            };
            let (start, bytes) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
            if header.tp_snaplen < header.tp_len {
                self.too_long.set(self.too_long.get() + 1);
                continue;
            }
            let is_inside = start >= PAYLOAD_AT && start + bytes <= self.slot_bytes;
            if let (true, Some(from)) = (is_inside, sender_of(&name)) {
                // SAFETY: inside the slot, which is ours until it is given back; `next` is borrowed, so this is the only reference.
                let payload = unsafe { slice::from_raw_parts_mut(slot.add(start).as_ptr(), bytes) };
                take(from, payload);
            }
        }
        most
    }
}

/// A slot goes back to the kernel.
struct GiveBack<'a>(&'a AtomicU32);

impl Drop for GiveBack<'_> {
    fn drop(&mut self) {
        self.0.store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

impl Drop for ReceiveRing {
    fn drop(&mut self) {
        // SAFETY: mapped by `open` with this length; no reference to it outlives a call of `receive`.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.blocks * BLOCK_BYTES) };
    }
}
