//! One direction of a link: packets enter and leave later, whole, in parts, or not at all.

use std::ops::Range;

use crate::conditions::{Conditions, Spread};
use crate::counts::Counts;
use crate::frame::{Shape, cut, frame_bytes, wire_bytes};
use crate::line::{InFlightQueue, Packet};
use crate::pipe::{FrameOutcome, Pipe};
use crate::random::{Purpose, number};

/// One direction of a link.
#[derive(Debug)]
pub(crate) struct LinkDirection {
    /// One path, or the lanes of a bundle.
    pipes: Vec<Pipe>,
    seed: u64,
    spread: Spread,
    /// The flows that have appeared, in their order, if that decides on their lanes. The answers of a flow
    /// appear in the same order on the way back.
    flows: Vec<u64>,
    /// The longest packet that the receiving interface takes.
    receiver_mtu: u32,
    line: InFlightQueue,
    pub(crate) counts: Counts,
}

impl LinkDirection {
    pub(crate) fn new(conditions: &Conditions, receiver_mtu: u32) -> LinkDirection {
        let pipes = conditions.paths().iter().cloned().map(Pipe::new).collect();
        LinkDirection {
            pipes,
            seed: conditions.seed,
            spread: conditions.spread,
            flows: Vec::new(),
            receiver_mtu,
            line: InFlightQueue::default(),
            counts: Counts::default(),
        }
    }

    /// Changes the conditions for what comes from now on.
    pub(crate) fn set(&mut self, conditions: &Conditions) {
        let paths = conditions.paths();
        self.seed = conditions.seed;
        self.spread = conditions.spread;
        self.pipes.truncate(paths.len());
        for (at, path) in paths.iter().enumerate() {
            match self.pipes.get_mut(at) {
                Some(pipe) => pipe.set(path.clone()),
                None => self.pipes.push(Pipe::new(path.clone())),
            }
        }
    }

    /// A packet comes, as the tap gave it. Those of its frames that arrive in a row, and within [`BATCH_NS`],
    /// stay one packet, which arrives when the last of them does, as when a network card tells of several
    /// frames at once.
    pub(crate) fn receive(&mut self, now_ns: u64, packet: &[u8]) {
        let Some(shape) = Shape::parse(packet) else {
            self.counts.failed += 1;
            return;
        };
        let lane = self.lane(&shape);
        let mut batch: Option<FrameBatch> = None;
        for frame in 0..shape.frames() {
            match self.carry(lane, now_ns, shape.ip_bytes(frame), packet.len()) {
                FrameOutcome::Arrives { at_ns } => {
                    if !batch.as_mut().is_some_and(|batch| batch.takes(frame, at_ns)) {
                        self.send(batch.replace(FrameBatch::new(frame, at_ns)), packet, &shape);
                    }
                }
                FrameOutcome::Overtaken { at_ns } => {
                    self.counts.overtaken += 1;
                    self.send(Some(FrameBatch::new(frame, at_ns)), packet, &shape);
                }
                FrameOutcome::Lost => self.counts.lost += 1,
                FrameOutcome::Overflowed => self.counts.overflowed += 1,
                FrameOutcome::TooLong => self.counts.too_long += 1,
            }
        }
        self.send(batch, packet, &shape);
    }

    /// When the next packet leaves.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        self.line.next_due_ns()
    }

    /// The next packet that leaves by now. It counts as arrived; [`LinkDirection::refused`] takes that back.
    pub(crate) fn leave(&mut self, now_ns: u64) -> Option<Packet> {
        let (due_ns, packet) = self.line.arrived(now_ns)?;
        self.counts.frames += u64::from(packet.frames);
        self.counts.bytes += u64::from(packet.frame_bytes);
        self.counts.own_delay.saturating_record_n((now_ns - due_ns).max(1), u64::from(packet.frames));
        Some(packet)
    }

    /// The receiver's kernel did not take a packet.
    pub(crate) fn refused(&mut self, packet: &Packet) {
        self.counts.frames -= u64::from(packet.frames);
        self.counts.bytes -= u64::from(packet.frame_bytes);
        self.counts.failed += u64::from(packet.frames);
    }

    fn carry(&mut self, lane: usize, now_ns: u64, ip_bytes: u32, memory_bytes: usize) -> FrameOutcome {
        if ip_bytes > self.receiver_mtu {
            return FrameOutcome::TooLong;
        }
        if self.line.bytes() + memory_bytes > MEMORY_BYTES_MAX {
            return FrameOutcome::Overflowed;
        }
        self.pipes[lane].carry(now_ns, ip_bytes, wire_bytes(ip_bytes))
    }

    fn lane(&mut self, shape: &Shape) -> usize {
        match (self.pipes.len(), self.spread) {
            (1, _) => 0,
            (lanes, Spread::ByHash) => (number(self.seed, Purpose::Lane, shape.flow) % lanes as u64) as usize,
            // Packets other than IP (ARP) do not count in the round-robin order.
            (_, Spread::InTurn) if shape.flow == 0 => 0,
            (lanes, Spread::InTurn) => self.round_robin_lane(shape.flow) % lanes,
        }
    }

    /// How many flows appeared before this one.
    fn round_robin_lane(&mut self, flow: u64) -> usize {
        let known = self.flows.iter().position(|known| *known == flow);
        known.unwrap_or_else(|| {
            // Beyond that many flows the list begins anew.
            self.flows.truncate(if self.flows.len() < FLOWS_MAX { FLOWS_MAX } else { 0 });
            self.flows.push(flow);
            self.flows.len() - 1
        })
    }

    fn send(&mut self, batch: Option<FrameBatch>, packet: &[u8], shape: &Shape) {
        let Some(FrameBatch { frames, due_ns, .. }) = batch else { return };
        let bytes = frames.clone().map(|frame| frame_bytes(shape.ip_bytes(frame))).sum();
        let count = frames.len() as u32;
        self.line
            .send(due_ns, Packet { bytes: cut(packet, shape, frames), frames: count, frame_bytes: bytes });
    }
}

/// Flows that are remembered.
const FLOWS_MAX: usize = 4096;

/// Frames of a segment that arrive together.
struct FrameBatch {
    frames: Range<usize>,
    first_ns: u64,
    due_ns: u64,
}

impl FrameBatch {
    fn new(frame: usize, at_ns: u64) -> FrameBatch {
        FrameBatch { frames: frame..frame + 1, first_ns: at_ns, due_ns: at_ns }
    }

    /// Whether this frame arrives with the others.
    fn takes(&mut self, frame: usize, at_ns: u64) -> bool {
        let takes = frame == self.frames.end && at_ns - self.first_ns <= BATCH_NS;
        if takes {
            (self.frames.end, self.due_ns) = (frame + 1, at_ns);
        }
        takes
    }
}

/// Maximum wait of a frame for those behind it: the interrupt coalescing of a network card.
pub(crate) const BATCH_NS: u64 = 250_000;

/// Maximum bytes in flight in one direction: two seconds of 1 Gbit/s. More is lost as if a buffer were full.
const MEMORY_BYTES_MAX: usize = 256 << 20;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::frame::tests::{MSS, Version, made, payload};

    const MSS_FRAME_NS: u64 = wire_ns(MSS as u64 + 52);

    /// Transmission time of an IP packet at 1 Gbit/s.
    const fn wire_ns(ip_bytes: u64) -> u64 {
        (ip_bytes + 38) * 8
    }

    fn link(change: impl FnOnce(&mut Conditions)) -> LinkDirection {
        let mut conditions = Conditions { bits_per_s: Some(1e9), ..Conditions::default() };
        change(&mut conditions);
        LinkDirection::new(&conditions, 1500)
    }

    fn segment(frames: usize) -> Vec<u8> {
        made(Version::V4, &payload(frames * MSS), 0x10)
    }

    /// All that leaves: when, and as how many frames.
    fn leaving(link: &mut LinkDirection) -> Vec<(u64, u32)> {
        let mut left = Vec::new();
        while let Some(due_ns) = link.next_due_ns() {
            let packet = link.leave(due_ns).expect("due");
            left.push((due_ns, packet.frames));
        }
        left
    }

    #[test]
    fn nonsense_counts_as_a_fault_of_the_lab() {
        let mut link = link(|_| {});
        link.receive(0, &[0; 12]);
        assert_eq!((link.counts.failed, link.next_due_ns()), (1, None));
    }

    #[test]
    fn a_segment_arrives_whole_when_its_last_frame_does() {
        let mut link = link(|conditions| conditions.delay = Duration::from_millis(1));
        link.receive(5, &segment(10));
        assert_eq!(leaving(&mut link), [(5 + 10 * MSS_FRAME_NS + 1_000_000, 10)]);
        assert_eq!((link.counts.frames, link.counts.bytes), (10, 10 * (MSS as u64 + 52 + 18)));
    }

    #[test]
    fn a_segment_that_takes_long_arrives_bit_by_bit() {
        let mut link = link(|conditions| conditions.bits_per_s = Some(100e6));
        link.receive(0, &segment(10));
        let frame_ns = 10 * MSS_FRAME_NS;
        // Three frames of 87 µs are 174 µs from the first to the last.
        assert_eq!(
            leaving(&mut link),
            [(3, 3), (6, 3), (9, 3), (10, 1)].map(|(at, frames)| (at * frame_ns, frames))
        );
    }

    #[test]
    fn a_segment_that_loses_a_frame_arrives_in_two_parts() {
        // The seed loses the fourth of ten.
        let seed = (0..10_000).find(|&seed| {
            let lost = |count| crate::random::fraction(seed, Purpose::Loss, count) < 0.05;
            (0..10).all(|count| lost(count) == (count == 3))
        });
        let mut link =
            link(|conditions| (conditions.loss, conditions.seed) = (0.05, seed.expect("one in 2000")));
        link.receive(0, &segment(10));
        assert_eq!(leaving(&mut link), [(3 * MSS_FRAME_NS, 3), (10 * MSS_FRAME_NS, 6)]);
        assert_eq!((link.counts.lost, link.counts.frames), (1, 9));
    }

    #[test]
    fn a_receiver_with_a_smaller_mtu_takes_nothing_longer() {
        let conditions = Conditions { mtu: 9000, ..Conditions::default() };
        let mut link = LinkDirection::new(&conditions, MSS as u32);
        link.receive(0, &segment(2));
        assert_eq!((link.counts.too_long, link.next_due_ns()), (2, None));
    }

    #[test]
    fn what_the_kernel_refuses_has_not_arrived() {
        let mut link = link(|_| {});
        link.receive(0, &segment(3));
        let packet = link.leave(u64::MAX / 2).expect("due");
        link.refused(&packet);
        assert_eq!((link.counts.frames, link.counts.bytes, link.counts.failed), (0, 0, 3));
    }

    #[test]
    fn a_bundle_may_get_more_lanes_and_fewer() {
        let mut link = link(|_| {});
        let lane = Conditions { bits_per_s: Some(1e8), ..Conditions::default() };
        link.set(&Conditions { lanes: vec![lane.clone(), lane], ..Conditions::default() });
        link.receive(0, &segment(1));
        assert_eq!(leaving(&mut link), [(10 * MSS_FRAME_NS, 1)]);
        link.set(&Conditions::default());
        link.receive(100_000, &segment(1));
        assert_eq!(leaving(&mut link), [(100_000, 1)]);
    }
}
