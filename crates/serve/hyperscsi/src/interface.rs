//! A network interface or UDP socket: receives and sends frames.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use hyperscsi::Frame;
use reactor::{DatagramAddress, Datagrams, OutDatagram, OutSlice};

/// Maximum number of frames sent in one call.
const CALL_MAX: usize = 64;
/// Maximum number of frames queued for a blocked interface. Further frames are dropped, as in a full network
/// queue. They count as lost, and are retransmitted at a lower rate.
const WAITING_MAX: usize = 1024;
/// Minimum payload of an Ethernet frame. Network cards pad shorter frames. The server pads them itself, so
/// that the padding does not expose kernel memory.
const ETHERNET_BYTES_MIN: usize = 46;
/// Maximum number of frame buffers kept for reuse.
const SPARE_MAX: usize = 512;

/// The remote address of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The number of the interface: the number of its portal, the same on every core.
    pub(crate) interface: u32,
    /// The address on that interface.
    pub(crate) address: DatagramAddress,
}

/// An interface.
pub(crate) struct Interface {
    /// The datagram socket, which is replaced after each failure.
    datagrams: RefCell<Rc<dyn Datagrams>>,
    queue: RefCell<VecDeque<(DatagramAddress, Frame)>>,
    waker: RefCell<Option<Waker>>,
    /// The display name of the portal.
    pub(crate) portal: String,
    /// Number of frames dropped because the interface was blocked.
    dropped: Cell<u64>,
}

/// Frame buffers for reuse.
#[derive(Default)]
pub(crate) struct Spare(RefCell<Vec<Frame>>);

impl Spare {
    pub(crate) fn take(&self) -> Frame {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    pub(crate) fn give_back(&self, mut frame: Frame) {
        frame.clear(); // data must not stay in memory after its message
        let mut spare = self.0.borrow_mut();
        if spare.len() < SPARE_MAX {
            spare.push(frame);
        }
        debug_assert!(spare.len() <= SPARE_MAX);
    }
}

impl Interface {
    pub(crate) fn new(datagrams: Rc<dyn Datagrams>, portal: String) -> Interface {
        Interface {
            datagrams: RefCell::new(datagrams),
            queue: RefCell::default(),
            waker: RefCell::default(),
            portal,
            dropped: Cell::new(0),
        }
    }

    /// Frames dropped here: in the server's queue and in the kernel's.
    pub(crate) fn dropped(&self) -> u64 {
        let drops = self.datagrams().drops();
        self.dropped.get() + drops.receive_buffer_full + drops.too_long + drops.send_queue_full
    }

    pub(crate) fn datagrams(&self) -> Rc<dyn Datagrams> {
        Rc::clone(&self.datagrams.borrow())
    }

    /// Replaces the failed datagram socket.
    pub(crate) fn replace(&self, datagrams: Rc<dyn Datagrams>) {
        self.dropped.set(self.dropped());
        self.queue.borrow_mut().clear();
        *self.datagrams.borrow_mut() = datagrams;
    }

    /// Queues a frame; [`Interface::send`] sends it.
    pub(crate) fn push(&self, to: DatagramAddress, mut frame: Frame, spare: &Spare) {
        let mut queue = self.queue.borrow_mut();
        if queue.len() >= WAITING_MAX {
            self.dropped.set(self.dropped.get() + 1);
            return spare.give_back(frame);
        }
        if matches!(to, DatagramAddress::Ethernet(_)) {
            frame.pad(ETHERNET_BYTES_MIN);
        }
        queue.push_back((to, frame));
        debug_assert!(queue.len() <= WAITING_MAX);
    }

    /// Sends as many frames as the interface accepts. Drops a frame that is too long and, over UDP, one whose
    /// address is unreachable. If the interface has failed, drops all frames; the receiving task detects the
    /// failure.
    pub(crate) fn send(&self, spare: &Spare) {
        let datagrams = self.datagrams();
        let mut queue = self.queue.borrow_mut();
        while !queue.is_empty() {
            let first = queue.iter().take(CALL_MAX);
            let slices: Vec<OutSlice<'_>> = first
                .clone()
                .flat_map(|(_, frame)| frame.pieces())
                .map(OutSlice::Bytes)
                .collect();
            let mut rest = &slices[..];
            let out: Vec<OutDatagram<'_>> = first
                .map(|(to, frame)| {
                    let (payload, behind) = rest.split_at(frame.pieces().count());
                    rest = behind;
                    OutDatagram { to: *to, payload }
                })
                .collect();
            debug_assert!(rest.is_empty(), "each piece is of one frame");
            let gone = match datagrams.try_send(&out) {
                Ok(sent) => sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if let Some(waker) = self.waker.take() {
                        waker.wake(); // the task that waits for space
                    }
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => 1,
                Err(_)
                    if queue
                        .iter()
                        .all(|(to, _)| matches!(to, DatagramAddress::Udp(_))) =>
                {
                    1
                }
                Err(_) => queue.len(),
            };
            debug_assert!(gone <= queue.len(), "a call takes no other frames");
            queue
                .drain(..gone)
                .for_each(|(_, frame)| spare.give_back(frame));
        }
    }

    /// Waits until a frame can be received. Sends queued frames while it waits.
    pub(crate) fn poll_receivable(&self, spare: &Spare, cx: &mut Context<'_>) -> Poll<()> {
        let datagrams = self.datagrams();
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        while !self.queue.borrow().is_empty() && datagrams.poll_sendable(cx).is_ready() {
            let before = self.queue.borrow().len();
            self.send(spare);
            if self.queue.borrow().len() == before {
                break;
            }
        }
        datagrams.poll_receivable(cx).map(drop)
    }
}
