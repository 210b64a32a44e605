//! An interface, or a UDP socket: frames that are received and sent by it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use hyperscsi::Frame;
use reactor::{DatagramAddress, Datagrams, OutDatagram, OutSlice};

/// Frames of one call.
const CALL_MAX: usize = 64;
/// Frames that wait for an interface that takes none. More are dropped, as a full queue of a network would: they count as lost,
/// and are sent again more slowly.
const WAITING_MAX: usize = 1024;
/// What an Ethernet frame has room for at least: cards fill it up, and we do it ourselves so that nothing of the kernel's gets there.
const ETHERNET_BYTES_MIN: usize = 46;
/// Buffers of frames that are kept for the next ones.
const SPARE_MAX: usize = 512;

/// Where the other end of a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The number of the interface, which is the portal's on every core.
    pub(crate) interface: u32,
    /// The address there.
    pub(crate) address: DatagramAddress,
}

/// An interface.
pub(crate) struct Interface {
    /// Another one after each failure.
    datagrams: RefCell<Rc<dyn Datagrams>>,
    queue: RefCell<VecDeque<(DatagramAddress, Frame)>>,
    waker: RefCell<Option<Waker>>,
    /// The portal, as people know it.
    pub(crate) portal: String,
    /// Frames that were dropped because the interface took none.
    dropped: Cell<u64>,
}

/// Buffers for frames.
#[derive(Default)]
pub(crate) struct Spare(RefCell<Vec<Frame>>);

impl Spare {
    pub(crate) fn take(&self) -> Frame {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    pub(crate) fn give_back(&self, mut frame: Frame) {
        frame.clear(); // data of messages are not to outlive their messages
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

    /// Frames that were dropped here: in our queue, and in the kernel's.
    pub(crate) fn dropped(&self) -> u64 {
        let drops = self.datagrams().drops();
        self.dropped.get() + drops.receive_buffer_full + drops.too_long + drops.send_queue_full
    }

    pub(crate) fn datagrams(&self) -> Rc<dyn Datagrams> {
        Rc::clone(&self.datagrams.borrow())
    }

    /// It has failed, and this is it now.
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

    /// Sends as many as it takes. One that is too long for it is dropped, and over UDP one whose address cannot be reached; so are all when an
    /// interface has failed, which receiving tells.
    pub(crate) fn send(&self, spare: &Spare) {
        let datagrams = self.datagrams();
        let mut queue = self.queue.borrow_mut();
        while !queue.is_empty() {
            let first = queue.iter().take(CALL_MAX);
            let slices: Vec<OutSlice<'_>> =
                first.clone().flat_map(|(_, frame)| frame.pieces()).map(OutSlice::Bytes).collect();
            let mut rest = &slices[..];
            let out: Vec<OutDatagram<'_>> = first
                .map(|(to, frame)| {
                    let (payload, behind) = rest.split_at(frame.pieces().count());
                    rest = behind;
                    OutDatagram { to: *to, payload }
                })
                .collect();
            let gone = match datagrams.try_send(&out) {
                Ok(sent) => sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if let Some(waker) = self.waker.take() {
                        waker.wake(); // which waits for room
                    }
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => 1,
                Err(_) if queue.iter().all(|(to, _)| matches!(to, DatagramAddress::Udp(_))) => 1,
                Err(_) => queue.len(),
            };
            debug_assert!(gone <= queue.len(), "a call takes no other frames");
            queue.drain(..gone).for_each(|(_, frame)| spare.give_back(frame));
        }
    }

    /// Waits until something can be received. Sends meanwhile what waits.
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
