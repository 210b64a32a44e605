//! A model, without I/O, of one path of a link in one direction: which frames arrive, and when.
//!
//! ```text
//!            queue               transmitter          way
//!  frame ──► buffer_bytes ──► one after another ──► delay + jitter ──► arrives
//!    │           │             at bits_per_s            │
//!    ▼           ▼                                      ▼
//!  too long   overflowed                               lost
//! ```

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fmt;
use std::ops::{AddAssign, Range};
use std::time::{Duration, Instant};

use block::{GOLDEN_GAMMA, mix};
use hdrhistogram::Histogram;

use crate::conditions::{Conditions, Spread};
use crate::frame::{Shape, cut, frame_bytes, wire_bytes};

/// One path of a link in one direction.
#[derive(Debug)]
pub(crate) struct Pipe {
    conditions: Conditions,
    /// The transmission time of a byte in picoseconds; 0 if the rate is unlimited.
    ps_per_byte: f64,
    /// The time at which the transmitter will have sent all waiting frames, in picoseconds. The transmission
    /// time of a frame on a fast link is not a whole number of nanoseconds.
    busy_until_ps: u64,
    /// The transmission time of a byte during a burst, in picoseconds.
    peak_ps_per_byte: f64,
    /// The time at which the bucket of a burst will be full again, in picoseconds.
    full_at_ps: u64,
    /// The arrival time of the last frame. It ensures that jitter does not reorder frames.
    last_ns: u64,
    /// Frames received so far.
    frames: u64,
}

/// The result of sending a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameOutcome {
    Arrives {
        at_ns: u64,
    },
    /// The frame arrives after later frames.
    Overtaken {
        at_ns: u64,
    },
    Lost,
    Overflowed,
    TooLong,
}

impl Pipe {
    pub(crate) fn new(conditions: Conditions) -> Pipe {
        let ps_per_byte = |rate: Option<f64>| rate.map_or(0.0, |rate| 8e12 / rate);
        Pipe {
            ps_per_byte: ps_per_byte(conditions.bits_per_s),
            peak_ps_per_byte: ps_per_byte(conditions.momentary_bits_per_s()),
            conditions,
            busy_until_ps: 0,
            full_at_ps: 0,
            last_ns: 0,
            frames: 0,
        }
    }

    /// Changes the conditions for later frames. Waiting frames are still sent first. Frames are counted from
    /// 0 again, so that the same seed loses the frames with the same numbers.
    pub(crate) fn set(&mut self, conditions: Conditions) {
        let (busy_until_ps, last_ns) = (self.busy_until_ps, self.last_ns);
        let full_at_ps = self.full_at_ps;
        *self = Pipe {
            busy_until_ps,
            full_at_ps,
            last_ns,
            ..Pipe::new(conditions)
        };
    }

    /// Handles a frame that contains an IP packet of `ip_bytes`, and takes `wire_bytes` on the wire with all
    /// overhead.
    pub(crate) fn carry(&mut self, now_ns: u64, ip_bytes: u32, wire_bytes: u32) -> FrameOutcome {
        let number = self.frames;
        self.frames += 1;
        if ip_bytes > self.conditions.mtu {
            return FrameOutcome::TooLong;
        }
        let now_ps = now_ns * PS_PER_NS;
        if self.waiting_bytes(now_ps) + f64::from(wire_bytes) > self.conditions.buffer_bytes as f64
        {
            return FrameOutcome::Overflowed;
        }
        self.transmit(now_ps, wire_bytes);
        if self.draws(Purpose::Loss, number, self.conditions.loss) {
            return FrameOutcome::Lost;
        }
        let at_ns = self.arrival_ns(number);
        if self.draws(Purpose::Reorder, number, self.conditions.reorder) {
            return FrameOutcome::Overtaken {
                at_ns: at_ns + self.sending_ps(OVERTAKEN_BY_BYTES) / PS_PER_NS,
            };
        }
        self.last_ns = at_ns;
        FrameOutcome::Arrives { at_ns }
    }

    /// Sends a frame when the transmitter is free and, with a burst, the bucket contains as many bytes. The
    /// bucket fills at the rate of the link.
    fn transmit(&mut self, now_ps: u64, wire_bytes: u32) {
        let (bucket_ps, frame_ps) = (self.bucket_ps(), self.sending_ps(wire_bytes));
        let free_ps = self.busy_until_ps.max(now_ps);
        let begun_ps = if bucket_ps > 0 {
            // A frame longer than the bucket waits until it is full.
            free_ps.max((self.full_at_ps + frame_ps.min(bucket_ps)).saturating_sub(bucket_ps))
        } else {
            free_ps
        };
        self.full_at_ps = self.full_at_ps.max(begun_ps) + frame_ps;
        self.busy_until_ps =
            begun_ps + (f64::from(wire_bytes) * self.peak_ps_per_byte).round() as u64;
    }

    /// Returns the time in which the bucket fills.
    fn bucket_ps(&self) -> u64 {
        (self.conditions.burst_bytes as f64 * self.ps_per_byte) as u64
    }

    /// Returns the number of bytes that wait or are being sent, except those of a burst.
    fn waiting_bytes(&self, now_ps: u64) -> f64 {
        if self.ps_per_byte == 0.0 {
            return 0.0;
        }
        let until_ps = match self.bucket_ps() {
            0 => self.busy_until_ps,
            bucket_ps => self.full_at_ps.saturating_sub(bucket_ps),
        };
        until_ps.saturating_sub(now_ps) as f64 / self.ps_per_byte
    }

    fn sending_ps(&self, bytes: u32) -> u64 {
        (f64::from(bytes) * self.ps_per_byte).round() as u64
    }

    /// Returns the arrival time of the frame that was queued last.
    fn arrival_ns(&self, number: u64) -> u64 {
        let late = fraction(self.conditions.seed, Purpose::Jitter, number);
        let jitter_ns = (nanoseconds(self.conditions.jitter) as f64 * late) as u64;
        let sent_ns = self.busy_until_ps.div_ceil(PS_PER_NS);
        (sent_ns + nanoseconds(self.conditions.delay) + jitter_ns).max(self.last_ns)
    }

    fn draws(&self, purpose: Purpose, number: u64, share: f64) -> bool {
        share > 0.0 && fraction(self.conditions.seed, purpose, number) < share
    }
}

const PS_PER_NS: u64 = 1000;
/// Eight full-size frames. This is more than the three that a TCP sender treats as a loss (RFC 5681 section
/// 3.2).
const OVERTAKEN_BY_BYTES: u32 = 8 * 1538;

/// One direction of a link.
#[derive(Debug)]
pub(crate) struct LinkDirection {
    /// The single path, or the lanes of a bundle.
    pipes: Vec<Pipe>,
    seed: u64,
    spread: Spread,
    /// The flows in their order of appearance, if this order determines their lanes. The replies of the flows
    /// appear in the same order in the opposite direction.
    flows: Vec<u64>,
    /// The length of the longest packet that the receiving interface accepts.
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

    /// Changes the conditions for later packets.
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

    /// Handles a packet from the tap interface. Consecutive frames of the packet that arrive within
    /// [`BATCH_NS`] remain one packet, which arrives with the last of them. A network card also reports
    /// several frames together.
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
                    if !batch
                        .as_mut()
                        .is_some_and(|batch| batch.takes(frame, at_ns))
                    {
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

    /// Returns the time at which the next packet is due.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        self.line.next_due_ns()
    }

    /// Returns the next packet that is due at `now_ns`. The packet counts as arrived;
    /// [`LinkDirection::refused`] reverts this.
    pub(crate) fn leave(&mut self, now_ns: u64) -> Option<Packet> {
        let (due_ns, packet) = self.line.arrived(now_ns)?;
        self.counts.frames += u64::from(packet.frames);
        self.counts.bytes += u64::from(packet.frame_bytes);
        self.counts
            .own_delay
            .saturating_record_n((now_ns - due_ns).max(1), u64::from(packet.frames));
        Some(packet)
    }

    /// Records that the receiver's kernel did not accept a packet.
    pub(crate) fn refused(&mut self, packet: &Packet) {
        self.counts.frames -= u64::from(packet.frames);
        self.counts.bytes -= u64::from(packet.frame_bytes);
        self.counts.failed += u64::from(packet.frames);
    }

    fn carry(
        &mut self,
        lane: usize,
        now_ns: u64,
        ip_bytes: u32,
        memory_bytes: usize,
    ) -> FrameOutcome {
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
            (lanes, Spread::ByHash) => {
                (number(self.seed, Purpose::Lane, shape.flow) % lanes as u64) as usize
            }
            // Packets other than IP (such as ARP) do not count in the round-robin order.
            (_, Spread::InTurn) if shape.flow == 0 => 0,
            (lanes, Spread::InTurn) => self.round_robin_lane(shape.flow) % lanes,
        }
    }

    /// Returns the number of flows that appeared before this one.
    fn round_robin_lane(&mut self, flow: u64) -> usize {
        let known = self.flows.iter().position(|known| *known == flow);
        known.unwrap_or_else(|| {
            // When the list contains the maximum number of flows, it is cleared.
            self.flows.truncate(if self.flows.len() < FLOWS_MAX {
                FLOWS_MAX
            } else {
                0
            });
            self.flows.push(flow);
            self.flows.len() - 1
        })
    }

    fn send(&mut self, batch: Option<FrameBatch>, packet: &[u8], shape: &Shape) {
        let Some(FrameBatch { frames, due_ns, .. }) = batch else {
            return;
        };
        let bytes = frames
            .clone()
            .map(|frame| frame_bytes(shape.ip_bytes(frame)))
            .sum();
        let count = frames.len() as u32;
        self.line.send(
            due_ns,
            Packet {
                bytes: cut(packet, shape, frames),
                frames: count,
                frame_bytes: bytes,
            },
        );
    }
}

/// The maximum number of flows in the list.
const FLOWS_MAX: usize = 4096;

/// Consecutive frames of a segment that arrive together.
struct FrameBatch {
    frames: Range<usize>,
    first_ns: u64,
    due_ns: u64,
}

impl FrameBatch {
    fn new(frame: usize, at_ns: u64) -> FrameBatch {
        FrameBatch {
            frames: frame..frame + 1,
            first_ns: at_ns,
            due_ns: at_ns,
        }
    }

    /// Adds this frame if it arrives together with the others. Returns whether it does.
    fn takes(&mut self, frame: usize, at_ns: u64) -> bool {
        let takes = frame == self.frames.end && at_ns - self.first_ns <= BATCH_NS;
        if takes {
            (self.frames.end, self.due_ns) = (frame + 1, at_ns);
        }
        takes
    }
}

/// The maximum time that a frame waits for later ones, like the interrupt coalescing of a network card.
pub(crate) const BATCH_NS: u64 = 250_000;

/// The maximum number of bytes in transit in one direction: two seconds at 1 Gbit/s. Further frames are lost,
/// as if a buffer were full.
const MEMORY_BYTES_MAX: usize = 256 << 20;

// Pseudorandom numbers that depend only on a seed, a purpose and a count.
//
// Each frame has a separate number for each purpose, which does not depend on other calls. Whether frame 1000
// is lost does not depend on whether frame 999 was delayed, for example.

/// The purpose of a random number.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Loss,
    Reorder,
    Jitter,
    Lane,
}

/// Returns a number from 0 to below 1, in steps of 2^-53.
pub(crate) fn fraction(seed: u64, purpose: Purpose, count: u64) -> f64 {
    (number(seed, purpose, count) >> 11) as f64 / (1u64 << 53) as f64
}

/// Mixes a counter as SplitMix64 does. Each purpose has a different start value.
pub(crate) fn number(seed: u64, purpose: Purpose, count: u64) -> u64 {
    let start = mix(seed ^ (purpose as u64 + 1).wrapping_mul(GOLDEN_GAMMA));
    mix(start.wrapping_add(count.wrapping_mul(GOLDEN_GAMMA)))
}

/// The packets in transit, with their total length.
#[derive(Debug, Default)]
pub(crate) struct InFlightQueue {
    heap: BinaryHeap<InFlight>,
    bytes: usize,
    /// The number of packets sent so far. If two packets are due at the same time, they arrive in the order
    /// in which they were sent.
    sent: u64,
}

#[derive(Debug)]
struct InFlight {
    due_ns: u64,
    order: u64,
    packet: Packet,
}

/// A packet in the form in which a tap interface reads and writes it, and its size in frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) bytes: Vec<u8>,
    /// The number of Ethernet frames that the packet represents; `frame_bytes` is their length, including
    /// check sequences.
    pub(crate) frames: u32,
    pub(crate) frame_bytes: u32,
}

impl InFlightQueue {
    pub(crate) fn send(&mut self, due_ns: u64, packet: Packet) {
        self.bytes += packet.bytes.len();
        self.sent += 1;
        self.heap.push(InFlight {
            due_ns,
            order: self.sent,
            packet,
        });
    }

    /// Returns the arrival time of the next frame.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        self.heap.peek().map(|next| next.due_ns)
    }

    /// Returns the next packet, if it has arrived by now, and its due time.
    pub(crate) fn arrived(&mut self, now_ns: u64) -> Option<(u64, Packet)> {
        self.next_due_ns().filter(|&due_ns| due_ns <= now_ns)?;
        let next = self.heap.pop()?;
        self.bytes -= next.packet.bytes.len();
        Some((next.due_ns, next.packet))
    }

    /// Returns the memory that all packets use.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Ord for InFlight {
    /// The earliest packet is the greatest, since a heap returns the greatest element first.
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

/// The counters of a link, for one direction or both.
#[derive(Clone, Debug)]
pub struct Counts {
    /// The number of frames that arrived at the other side.
    pub frames: u64,
    /// The length of these frames, from the Ethernet header to the check sequence.
    pub bytes: u64,
    /// The number of frames that were lost according to the conditions.
    pub lost: u64,
    /// The number of frames that were overtaken according to the conditions. They also count as arrived.
    pub overtaken: u64,
    /// The number of frames that did not fit into the buffer.
    pub overflowed: u64,
    /// The number of frames that were longer than the MTU of the link or of the receiving interface.
    pub too_long: u64,
    /// The number of frames that this lab lost unintentionally, because the wire did not read them in time,
    /// or because the receiver's kernel rejected them. In a valid measurement, there are none.
    pub failed: u64,
    /// The lateness of frames in nanoseconds: the delay that the lab adds to the delay of the link.
    pub own_delay: Histogram<u64>,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            frames: 0,
            bytes: 0,
            lost: 0,
            overtaken: 0,
            overflowed: 0,
            too_long: 0,
            failed: 0,
            // The range is from 1 ns to 10 s, with a precision of 1 in 100.
            own_delay: Histogram::new_with_bounds(1, 10_000_000_000, 2)
                .expect("these bounds are in order"),
        }
    }
}

impl Counts {
    /// Returns the lateness that a `share` of all frames does not exceed, in microseconds.
    pub fn own_delay_us(&self, share: f64) -> f64 {
        self.own_delay.value_at_quantile(share) as f64 / 1e3
    }
}

impl AddAssign<&Counts> for Counts {
    fn add_assign(&mut self, more: &Counts) {
        self.frames += more.frames;
        self.bytes += more.bytes;
        self.lost += more.lost;
        self.overtaken += more.overtaken;
        self.overflowed += more.overflowed;
        self.too_long += more.too_long;
        self.failed += more.failed;
        // Both histograms have the same bounds, so every value fits.
        self.own_delay
            .add(&more.own_delay)
            .expect("the bounds are the same");
    }
}

impl fmt::Display for Counts {
    /// Formats the counters on one line: "1000 frames, 1.5 MB; lost 3, …; own delay 12 µs at the median, …".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} frames, {:.1} MB",
            self.frames,
            self.bytes as f64 / 1e6
        )?;
        let unusual = [
            ("lost", self.lost),
            ("overtaken", self.overtaken),
            ("overflowed", self.overflowed),
            ("too long", self.too_long),
            ("FAILED IN THE LAB", self.failed),
        ];
        for (what, count) in unusual.into_iter().filter(|&(_, count)| count > 0) {
            write!(f, ", {count} {what}")?;
        }
        if self.frames == 0 {
            return Ok(());
        }
        let [median, p99, max] = [0.5, 0.99, 1.0].map(|share| self.own_delay_us(share));
        write!(
            f,
            "; sent {median:.0} µs (median), {p99:.0} µs (p99), {max:.0} µs (max) late"
        )
    }
}

/// A clock that starts at 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock(Instant::now())
    }

    pub(crate) fn now_ns(self) -> u64 {
        nanoseconds(self.0.elapsed())
    }
}

/// Converts a time to nanoseconds. 64 bits are enough for 584 years.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use crate::frame::tests::{MSS, Version, made, payload};

    const GIGABIT: f64 = 1e9;

    /// The table of document 002 needs such a link: 256 KiB cross it as fast as Gigabit Ethernet, and more at
    /// 160 Mbit/s.
    #[test]
    fn a_burst_crosses_at_the_peak_rate_and_the_rest_at_the_rate() {
        const FRAME: u32 = 1538;
        const BURST: u64 = 100 * FRAME as u64;
        let mut pipe = pipe(|conditions| {
            conditions.bits_per_s = Some(160e6);
            conditions.burst_bytes = BURST;
            conditions.peak_bits_per_s = Some(GIGABIT);
        });
        let mut arrivals = |now_ns: u64, frames: usize| -> Vec<u64> {
            let each = (0..frames).map(|_| match pipe.carry(now_ns, 1500, FRAME) {
                FrameOutcome::Arrives { at_ns } => at_ns - now_ns,
                other => panic!("{other:?}"),
            });
            each.collect()
        };
        let frame_ns = |bits_per_s: f64| f64::from(FRAME) * 8e9 / bits_per_s;
        let first = arrivals(0, 300);
        let peak = first[99] as f64 / 100.0;
        assert!((peak / frame_ns(GIGABIT) - 1.0).abs() < 0.01, "{peak}");
        let rate = (first[299] - first[199]) as f64 / 100.0;
        assert!((rate / frame_ns(160e6) - 1.0).abs() < 0.01, "{rate}");
        // All 300 frames take as long as 200 frames at the rate, since the bucket was full.
        let all = first[299] as f64 / 200.0;
        assert!((all / frame_ns(160e6) - 1.0).abs() < 0.01, "{all}");
        // After a pause in which the bucket fills, there is another burst.
        let later = arrivals(1_000_000_000, 100);
        assert!(later[99].abs_diff(first[99]) < 1000, "{}", later[99]);
    }

    fn pipe(change: impl FnOnce(&mut Conditions)) -> Pipe {
        let mut conditions = Conditions {
            bits_per_s: Some(GIGABIT),
            ..Conditions::default()
        };
        change(&mut conditions);
        Pipe::new(conditions)
    }

    fn full_frame(pipe: &mut Pipe, now_ns: u64) -> FrameOutcome {
        pipe.carry(now_ns, 1500, 1538)
    }

    #[test]
    fn a_frame_longer_than_the_mtu_vanishes_and_takes_no_time() {
        let mut pipe = pipe(|conditions| conditions.mtu = 1400);
        assert_eq!(full_frame(&mut pipe, 0), FrameOutcome::TooLong);
        assert_eq!(
            pipe.carry(0, 1400, 1438),
            FrameOutcome::Arrives { at_ns: 11_504 }
        );
    }

    #[test]
    fn what_the_buffer_has_no_room_for_is_lost() {
        let mut pipe = pipe(|conditions| conditions.buffer_bytes = 2 * 1538);
        let fates = [(); 3].map(|()| full_frame(&mut pipe, 0));
        assert_eq!(
            fates,
            [
                FrameOutcome::Arrives { at_ns: 12_304 },
                FrameOutcome::Arrives { at_ns: 24_608 },
                FrameOutcome::Overflowed
            ]
        );
        // The first frame has been sent, so there is space for one more.
        assert_eq!(
            full_frame(&mut pipe, 12_304),
            FrameOutcome::Arrives { at_ns: 36_912 }
        );
    }

    #[test]
    fn the_same_seed_loses_the_same_frames() {
        let lost = |seed| {
            let mut pipe = pipe(|conditions| (conditions.loss, conditions.seed) = (0.01, seed));
            let fates = (0..100_000).map(|number| full_frame(&mut pipe, number * 12_304));
            let lost = fates
                .enumerate()
                .filter(|(_, outcome)| *outcome == FrameOutcome::Lost);
            lost.map(|(number, _)| number).collect::<Vec<_>>()
        };
        let once = lost(7);
        assert!((900..1100).contains(&once.len()), "{}", once.len());
        assert_eq!(once, lost(7));
        assert_ne!(once, lost(8));
    }

    #[test]
    fn conditions_that_change_count_frames_anew_and_send_first_what_waits() {
        let conditions = Conditions {
            loss: 0.5,
            seed: 7,
            ..Conditions::default()
        };
        let mut pipe = Pipe::new(conditions.clone());
        let mut fates = || [(); 64].map(|()| full_frame(&mut pipe, 5) == FrameOutcome::Lost);
        let once = fates();
        assert_ne!(once, fates());
        pipe.set(conditions);
        assert_eq!(
            once,
            [(); 64].map(|()| full_frame(&mut pipe, 5) == FrameOutcome::Lost)
        );

        let mut slow = Pipe::new(Conditions {
            bits_per_s: Some(1e6),
            ..Conditions::default()
        });
        full_frame(&mut slow, 0);
        slow.set(Conditions {
            bits_per_s: Some(GIGABIT),
            ..Conditions::default()
        });
        assert_eq!(
            full_frame(&mut slow, 0),
            FrameOutcome::Arrives {
                at_ns: 12_304_000 + 12_304
            }
        );
    }

    #[test]
    fn a_link_carries_its_rate_to_the_last_frame() {
        for rate in [10e6, 160e6, GIGABIT, 7e9] {
            let mut pipe = pipe(|conditions| conditions.bits_per_s = Some(rate));
            let arrives = (0..1000).map(|_| full_frame(&mut pipe, 0)).last();
            let wanted_ns = 1000.0 * 1538.0 * 8e9 / rate;
            let Some(FrameOutcome::Arrives { at_ns }) = arrives else {
                panic!("{arrives:?}")
            };
            assert!(
                (at_ns as f64 - wanted_ns).abs() < 2.0,
                "{rate}: {at_ns} instead of {wanted_ns}"
            );
        }
    }

    #[test]
    fn jitter_is_spread_evenly_and_keeps_the_order() {
        let mut pipe = pipe(|conditions| {
            conditions.bits_per_s = None;
            conditions.delay = Duration::from_millis(1);
            conditions.jitter = Duration::from_micros(100);
        });
        let mut sum = 0;
        let mut last = 0;
        for number in 0..1000 {
            let now_ns = number * 1_000_000;
            let FrameOutcome::Arrives { at_ns } = full_frame(&mut pipe, now_ns) else {
                panic!("lost")
            };
            let late = at_ns - now_ns - 1_000_000;
            assert!(late < 100_000 && at_ns > last, "{late}");
            (sum, last) = (sum + late, at_ns);
        }
        assert!((45_000..55_000).contains(&(sum / 1000)), "{}", sum / 1000);
        let mut batch = (0..100).map(|_| match full_frame(&mut pipe, last) {
            FrameOutcome::Arrives { at_ns } => at_ns,
            other => panic!("{other:?}"),
        });
        assert!(batch.by_ref().is_sorted());
    }

    #[test]
    fn an_overtaken_frame_comes_after_the_eight_that_follow() {
        let mut pipe = pipe(|conditions| (conditions.reorder, conditions.seed) = (0.05, 3));
        let fates: Vec<_> = (0..1000).map(|_| full_frame(&mut pipe, 0)).collect();
        let overtaken = fates
            .iter()
            .position(|outcome| matches!(outcome, FrameOutcome::Overtaken { .. }))
            .expect("5 %");
        let FrameOutcome::Overtaken { at_ns } = fates[overtaken] else {
            unreachable!("found so")
        };
        let earlier = fates[overtaken + 1..].iter().filter(
            |outcome| matches!(outcome, FrameOutcome::Arrives { at_ns: other } if *other <= at_ns),
        );
        assert!((7..=8).contains(&earlier.count()));
    }

    const MSS_FRAME_NS: u64 = wire_ns(MSS as u64 + 52);

    /// Returns the transmission time of an IP packet at 1 Gbit/s.
    const fn wire_ns(ip_bytes: u64) -> u64 {
        (ip_bytes + 38) * 8
    }

    fn link(change: impl FnOnce(&mut Conditions)) -> LinkDirection {
        let mut conditions = Conditions {
            bits_per_s: Some(1e9),
            ..Conditions::default()
        };
        change(&mut conditions);
        LinkDirection::new(&conditions, 1500)
    }

    fn segment(frames: usize) -> Vec<u8> {
        made(Version::V4, &payload(frames * MSS), 0x10)
    }

    /// Returns the time and the number of frames of each outgoing packet.
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
        assert_eq!(
            leaving(&mut link),
            [(5 + 10 * MSS_FRAME_NS + 1_000_000, 10)]
        );
        assert_eq!(
            (link.counts.frames, link.counts.bytes),
            (10, 10 * (MSS as u64 + 52 + 18))
        );
    }

    #[test]
    fn a_segment_that_takes_long_arrives_bit_by_bit() {
        let mut link = link(|conditions| conditions.bits_per_s = Some(100e6));
        link.receive(0, &segment(10));
        let frame_ns = 10 * MSS_FRAME_NS;
        // Each frame takes 87 µs, so three frames take 174 µs from the first to the last.
        assert_eq!(
            leaving(&mut link),
            [(3, 3), (6, 3), (9, 3), (10, 1)].map(|(at, frames)| (at * frame_ns, frames))
        );
    }

    #[test]
    fn a_segment_that_loses_a_frame_arrives_in_two_parts() {
        // Find a seed that loses only the fourth of ten frames.
        let seed = (0..10_000).find(|&seed| {
            let lost = |count| crate::pipe::fraction(seed, Purpose::Loss, count) < 0.05;
            (0..10).all(|count| lost(count) == (count == 3))
        });
        let mut link = link(|conditions| {
            (conditions.loss, conditions.seed) = (0.05, seed.expect("one in 2000"))
        });
        link.receive(0, &segment(10));
        assert_eq!(
            leaving(&mut link),
            [(3 * MSS_FRAME_NS, 3), (10 * MSS_FRAME_NS, 6)]
        );
        assert_eq!((link.counts.lost, link.counts.frames), (1, 9));
    }

    #[test]
    fn a_receiver_with_a_smaller_mtu_takes_nothing_longer() {
        let conditions = Conditions {
            mtu: 9000,
            ..Conditions::default()
        };
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
        assert_eq!(
            (link.counts.frames, link.counts.bytes, link.counts.failed),
            (0, 0, 3)
        );
    }

    #[test]
    fn a_bundle_may_get_more_lanes_and_fewer() {
        let mut link = link(|_| {});
        let lane = Conditions {
            bits_per_s: Some(1e8),
            ..Conditions::default()
        };
        link.set(&Conditions {
            lanes: vec![lane.clone(), lane],
            ..Conditions::default()
        });
        link.receive(0, &segment(1));
        assert_eq!(leaving(&mut link), [(10 * MSS_FRAME_NS, 1)]);
        link.set(&Conditions::default());
        link.receive(100_000, &segment(1));
        assert_eq!(leaving(&mut link), [(100_000, 1)]);
    }

    #[test]
    fn a_share_of_the_frames_is_as_large_as_wanted() {
        let lost = (0..100_000)
            .filter(|&count| fraction(7, Purpose::Loss, count) < 0.01)
            .count();
        assert!((900..1100).contains(&lost), "{lost}");
    }

    #[test]
    fn purposes_and_seeds_do_not_follow_each_other() {
        let below = |seed, purpose: Purpose, count| fraction(seed, purpose, count) < 0.5;
        let same = |one: (u64, Purpose), other: (u64, Purpose)| {
            (0..10_000)
                .filter(|&count| below(one.0, one.1, count) == below(other.0, other.1, count))
                .count()
        };
        assert!((4_800..5_200).contains(&same((7, Purpose::Loss), (7, Purpose::Reorder))));
        assert!((4_800..5_200).contains(&same((7, Purpose::Loss), (8, Purpose::Loss))));
    }

    fn packet(byte: u8) -> Packet {
        Packet {
            bytes: vec![byte],
            frames: 1,
            frame_bytes: 64,
        }
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

    #[test]
    fn both_directions_make_a_sum() {
        let mut sum = Counts {
            frames: 3,
            lost: 1,
            ..Counts::default()
        };
        let mut more = Counts {
            frames: 4,
            bytes: 6_000_000,
            ..Counts::default()
        };
        more.own_delay.record(20_000).expect("in bounds");
        sum += &more;
        assert!(
            sum.to_string()
                .starts_with("7 frames, 6.0 MB, 1 lost; sent 20 µs"),
            "{sum}"
        );
    }
}
