//! An interface, and frames on their way out by it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use front_end_core::Charge;
use reactor::{DatagramAddress, Datagrams, MacAddress, OutDatagram, OutSlice};

/// An interface, as commands that came by it know it.
#[derive(Clone)]
pub(crate) struct Interface {
    pub(crate) outgoing: Rc<Outgoing>,
    /// The sectors that one of its frames carries.
    pub(crate) sectors_max: u8,
}

/// Frames that wait; tasks add to them, and who receives sends them.
#[derive(Default)]
pub(crate) struct Outgoing {
    frames: RefCell<VecDeque<OutFrame>>,
    waker: RefCell<Option<Waker>>,
}

/// A frame, and the memory that it is charged for.
pub(crate) struct OutFrame {
    pub(crate) to: DatagramAddress,
    pub(crate) payload: Vec<u8>,
    pub(crate) _charge: Option<Charge>,
}

/// Frames of one call.
const CALL_MAX: usize = 64;

/// More frames that are not charged are dropped: the interface takes none, and hosts send again what is not answered.
const WAITING_MAX: usize = 4096;

impl Outgoing {
    pub(crate) fn push(&self, mut frame: OutFrame) {
        let bytes = frame.payload.len().max(aoe::PAYLOAD_BYTES_MIN);
        frame.payload.resize(bytes, 0);
        let mut frames = self.frames.borrow_mut();
        if frames.len() < WAITING_MAX {
            frames.push_back(frame);
        }
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Ready if a frame waits.
    pub(crate) fn poll_waiting(&self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.frames.borrow().is_empty() {
            return Poll::Ready(());
        }
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Sends as many as the interface takes; the error of one that it does not take, which is dropped. So is one that is too long for
    /// it, without an error.
    pub(crate) fn send(&self, by: &dyn Datagrams) -> io::Result<()> {
        let mut frames = self.frames.borrow_mut();
        while !frames.is_empty() {
            let payloads: Vec<[OutSlice<'_>; 1]> =
                frames.iter().take(CALL_MAX).map(|frame| [OutSlice::Bytes(&frame.payload)]).collect();
            let to = frames.iter().map(|frame| frame.to);
            let datagrams: Vec<OutDatagram<'_>> =
                to.zip(&payloads).map(|(to, payload)| OutDatagram { to, payload }).collect();
            match by.try_send(&datagrams) {
                Ok(sent) => drop(frames.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => {
                    frames.pop_front();
                    if error.kind() != io::ErrorKind::InvalidInput {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Interface {
    pub(crate) fn answer(&self, to: MacAddress, payload: Vec<u8>) {
        self.outgoing.push(OutFrame { to: DatagramAddress::Ethernet(to), payload, _charge: None });
    }
}
