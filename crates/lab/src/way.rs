//! One direction of a link: packets go in at one time and come out at another, whole, in parts, or not at all.

use std::ops::Range;

use crate::conditions::{Conditions, Spread};
use crate::counts::Counts;
use crate::frame::{Shape, cut, frame_bytes, wire_bytes};
use crate::line::{Line, Packet};
use crate::pipe::{Fate, Pipe};
use crate::random::{Purpose, number};

/// One direction of a link.
#[derive(Debug)]
pub(crate) struct Way {
    /// One path, or the lanes of a bundle.
    pipes: Vec<Pipe>,
    seed: u64,
    spread: Spread,
    /// The flows that have appeared, in their order, if that decides on their lanes. The answers of a flow appear in the
    /// same order on the way back.
    flows: Vec<u64>,
    /// The longest packet that the receiving interface takes.
    receiver_mtu: u32,
    line: Line,
    pub(crate) counts: Counts,
}

impl Way {
    pub(crate) fn new(conditions: &Conditions, receiver_mtu: u32) -> Way {
        let pipes = conditions.paths().iter().cloned().map(Pipe::new).collect();
        Way {
            pipes,
            seed: conditions.seed,
            spread: conditions.spread,
            flows: Vec::new(),
            receiver_mtu,
            line: Line::default(),
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

    /// A packet comes, as the tap gave it. Those of its frames that arrive in a row stay one packet, which arrives
    /// when the last of them does, as when a network card tells of several frames at once.
    pub(crate) fn enter(&mut self, now_ns: u64, packet: &[u8]) {
        let Some(shape) = Shape::of(packet) else {
            self.counts.failed += 1;
            return;
        };
        let lane = self.lane(&shape);
        let mut together: Option<(Range<usize>, u64)> = None;
        for frame in 0..shape.frames() {
            match self.carry(lane, now_ns, shape.ip_bytes(frame), packet.len()) {
                Fate::Arrives { at_ns } => match &mut together {
                    Some((frames, due_ns)) => (frames.end, *due_ns) = (frame + 1, at_ns),
                    None => together = Some((frame..frame + 1, at_ns)),
                },
                Fate::Overtaken { at_ns } => {
                    self.counts.overtaken += 1;
                    self.send(together.take(), packet, &shape);
                    self.send(Some((frame..frame + 1, at_ns)), packet, &shape);
                    continue;
                }
                Fate::Lost => self.counts.lost += 1,
                Fate::Overflowed => self.counts.overflowed += 1,
                Fate::TooLong => self.counts.too_long += 1,
            }
            if together.as_ref().is_some_and(|(frames, _)| frames.end <= frame) {
                self.send(together.take(), packet, &shape);
            }
        }
        self.send(together, packet, &shape);
    }

    /// When the next packet leaves.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        self.line.next_due_ns()
    }

    /// The next packet that leaves by now. It counts as arrived; [`Way::refused`] takes that back.
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

    fn carry(&mut self, lane: usize, now_ns: u64, ip_bytes: u32, memory_bytes: usize) -> Fate {
        if ip_bytes > self.receiver_mtu {
            return Fate::TooLong;
        }
        if self.line.bytes() + memory_bytes > MEMORY_BYTES_MAX {
            return Fate::Overflowed;
        }
        self.pipes[lane].carry(now_ns, ip_bytes, wire_bytes(ip_bytes))
    }

    fn lane(&mut self, shape: &Shape) -> usize {
        match (self.pipes.len(), self.spread) {
            (1, _) => 0,
            (lanes, Spread::ByHash) => (number(self.seed, Purpose::Lane, shape.flow) % lanes as u64) as usize,
            // What is not IP (ARP) takes nobody's turn.
            (_, Spread::InTurn) if shape.flow == 0 => 0,
            (lanes, Spread::InTurn) => self.turn(shape.flow) % lanes,
        }
    }

    /// How many flows appeared before this one.
    fn turn(&mut self, flow: u64) -> usize {
        let known = self.flows.iter().position(|known| *known == flow);
        known.unwrap_or_else(|| {
            // Beyond what a lab's programs have at once it begins anew, as if they were new ones.
            self.flows.truncate(if self.flows.len() < FLOWS_MAX { FLOWS_MAX } else { 0 });
            self.flows.push(flow);
            self.flows.len() - 1
        })
    }

    fn send(&mut self, part: Option<(Range<usize>, u64)>, packet: &[u8], shape: &Shape) {
        let Some((frames, due_ns)) = part else { return };
        let bytes = frames.clone().map(|frame| frame_bytes(shape.ip_bytes(frame))).sum();
        let count = frames.len() as u32;
        self.line
            .send(due_ns, Packet { bytes: cut(packet, shape, frames), frames: count, frame_bytes: bytes });
    }
}

/// Flows that are remembered.
const FLOWS_MAX: usize = 4096;
/// What may be under way in one direction: two seconds of 1 Gbit/s. More is lost as if a buffer were full.
const MEMORY_BYTES_MAX: usize = 256 << 20;
