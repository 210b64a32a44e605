//! Packets in flight on a link, in the order of their arrival.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Packets in flight, with their bytes.
#[derive(Debug, Default)]
pub(crate) struct InFlightQueue {
    heap: BinaryHeap<InFlight>,
    bytes: usize,
    /// How many were ever sent: breaks ties, so that what was sent first arrives first.
    sent: u64,
}

#[derive(Debug)]
struct InFlight {
    due_ns: u64,
    order: u64,
    packet: Packet,
}

/// A packet as a tap reads and writes it, and what it counts as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) bytes: Vec<u8>,
    /// The Ethernet frames that it stands for, and their bytes with check sequences.
    pub(crate) frames: u32,
    pub(crate) frame_bytes: u32,
}

impl InFlightQueue {
    pub(crate) fn send(&mut self, due_ns: u64, packet: Packet) {
        self.bytes += packet.bytes.len();
        self.sent += 1;
        self.heap.push(InFlight { due_ns, order: self.sent, packet });
    }

    /// When the next arrives.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        self.heap.peek().map(|next| next.due_ns)
    }

    /// The next, if it has arrived by now, and when it was to.
    pub(crate) fn arrived(&mut self, now_ns: u64) -> Option<(u64, Packet)> {
        self.next_due_ns().filter(|&due_ns| due_ns <= now_ns)?;
        let next = self.heap.pop()?;
        self.bytes -= next.packet.bytes.len();
        Some((next.due_ns, next.packet))
    }

    /// The memory that all of it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Ord for InFlight {
    /// The earliest is the greatest, since a heap gives that first.
    fn cmp(&self, other: &InFlight) -> Ordering {
        (other.due_ns, other.order).cmp(&(self.due_ns, self.order))
    }
}

impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &InFlight) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for InFlight {
    fn eq(&self, other: &InFlight) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for InFlight {}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(byte: u8) -> Packet {
        Packet { bytes: vec![byte], frames: 1, frame_bytes: 64 }
    }

    #[test]
    fn packets_arrive_by_time_and_then_in_the_order_they_were_sent() {
        let mut line = InFlightQueue::default();
        for (due_ns, byte) in [(30, 1), (10, 2), (10, 3), (20, 4)] {
            line.send(due_ns, packet(byte));
        }
        assert_eq!(line.next_due_ns(), Some(10));
        let mut arrived = Vec::new();
        while let Some((_, packet)) = line.arrived(20) {
            arrived.push(packet.bytes[0]);
        }
        assert_eq!(arrived, [2, 3, 4]);
        assert_eq!((line.next_due_ns(), line.bytes()), (Some(30), 1));
    }
}
