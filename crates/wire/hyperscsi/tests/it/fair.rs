//! Two HyperSCSI sessions and a TCP connection share a link with a finite queue, in virtual time. HyperSCSI
//! runs its real state machines; TCP is a model of its congestion control, CUBIC (RFC 9438), with selective
//! acknowledgements and a retransmission timeout.
//!
//! ```text
//!   initiator ── 10 Gbit/s ─┐                                        ┌─► target
//!   initiator ── 10 Gbit/s ─┼──► queue ──► 1 Gbit/s ──► delay of each ┼─► target     frames of data
//!   TCP ──────── 10 Gbit/s ─┘   drop tail                            └─► TCP
//!       ◄──────────────────── delay of each ─────────────────────────             acknowledgements, replies
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

use hyperscsi::initiator::{self, Event};
use hyperscsi::target;
use hyperscsi::{Initiator, Response, Target};
use testkit::Random;

use crate::pair::{One, command};

const NS_PER_BYTE: u64 = 8;
/// Ethernet overhead per frame: addresses, EtherType, check sequence, preamble and gap.
const AROUND: usize = 14 + 4 + 8 + 12;
const FRAME_BYTES: usize = 1500;
/// Payload of a full frame, without header and checksum.
const HYPERSCSI_PAYLOAD: usize = FRAME_BYTES - 28 - 4;
/// Payload of a full TCP segment, without the headers of IP and TCP with time stamps.
const TCP_PAYLOAD: usize = FRAME_BYTES - 52;
const COMMAND_BYTES: usize = 256 << 10;
const DEPTH: usize = 8;

/// Uses the remainder instead of [`Random::below`], so that the simulations in which fairness was measured
/// stay the same.
fn below(random: &mut Random, end: u64) -> u64 {
    random.next() % end
}

/// A packet on the link or on the way back.
enum Packet {
    Frame(Vec<u8>),
    Segment(u64),
    Acknowledged(u64),
}

/// The position of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// At the queue, after its sender's own link.
    Queue {
        bytes: usize,
    },
    There,
    Back,
}

/// The direction of the commands' data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    Out,
    In,
}

enum Flow {
    HyperScsi(Box<Session>),
    Tcp(Tcp),
}

/// An initiator that keeps commands outstanding, and its target.
struct Session {
    data: Data,
    initiator: Initiator,
    target: Target<u8, One>,
    done: u64,
}

impl Session {
    fn new(now: Instant, seed: u8, data: Data) -> Session {
        let config = initiator::Config {
            frame_bytes: vec![FRAME_BYTES as u16],
            ..initiator::Config::new("host", "disk")
        };
        Session {
            data,
            initiator: Initiator::new(now, config, [seed; 32]),
            target: Target::new(target::Config::default(), One(None), [seed ^ 0xff; 32]),
            done: 0,
        }
    }

    /// Handles events of the state machines, and submits more commands.
    fn run(&mut self) {
        while let Some(event) = self.target.poll_event() {
            if let target::Event::Command { task, command } = event {
                let data = vec![0; command.data_in_bytes as usize];
                assert!(self.target.respond(
                    task,
                    Response {
                        data: data.into(),
                        ..Response::default()
                    }
                ));
            }
        }
        let mut may_ask = 0;
        while let Some(event) = self.initiator.poll_event() {
            match event {
                Event::LoggedIn { .. } => may_ask = DEPTH,
                Event::Completed { response, .. } => {
                    assert_eq!(response.status, 0);
                    self.done += COMMAND_BYTES as u64;
                    may_ask += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        for _ in 0..may_ask {
            let (read, written) = match self.data {
                Data::Out => (0, vec![0; COMMAND_BYTES]),
                Data::In => (COMMAND_BYTES as u32, Vec::new()),
            };
            self.initiator
                .submit(command(0, read, written))
                .expect("there is room");
        }
    }
}

/// A sender that always has more data to send, and its receiver.
struct Tcp {
    window: f64,
    threshold: f64,
    /// Window at the last congestion, and time of the reaction to it.
    largest: f64,
    answered_at: Option<u64>,
    estimate: f64,
    /// Losses of earlier segments belong to congestion already reacted to.
    answered_below: u64,
    next: u64,
    /// Outstanding segments, and when they were sent.
    sent: BTreeMap<u64, u64>,
    round_trip_ns: f64,
    heard_at: u64,
    received: u64,
}

const CUBIC_C: f64 = 0.4;
const CUBIC_BETA: f64 = 0.7;
const TIMEOUT_NS: u64 = 200_000_000;

impl Tcp {
    fn new() -> Tcp {
        Tcp {
            window: 10.0,
            threshold: f64::INFINITY,
            largest: 0.0,
            answered_at: None,
            estimate: 0.0,
            answered_below: 0,
            next: 0,
            sent: BTreeMap::new(),
            round_trip_ns: 0.0,
            heard_at: 0,
            received: 0,
        }
    }

    /// The next segment, if the window has space. A retransmission counts like a new segment, since only
    /// arrivals are counted.
    fn transmit(&mut self, now: u64) -> Option<u64> {
        if self.sent.is_empty() {
            self.heard_at = now;
        }
        (self.sent.len() < self.window as usize).then(|| {
            self.sent.insert(self.next, now);
            self.next += 1;
            self.next - 1
        })
    }

    fn deadline(&self) -> Option<u64> {
        (!self.sent.is_empty()).then_some(self.heard_at + TIMEOUT_NS)
    }

    fn handle_timeout(&mut self, now: u64) {
        self.threshold = (self.window * CUBIC_BETA).max(2.0);
        (self.window, self.heard_at, self.answered_at) = (1.0, now, None);
        self.sent.clear();
    }

    fn acknowledge(&mut self, now: u64, number: u64) {
        let Some(at) = self.sent.remove(&number) else {
            return;
        };
        self.heard_at = now;
        let trip = (now - at) as f64;
        self.round_trip_ns = if self.round_trip_ns == 0.0 {
            trip
        } else {
            self.round_trip_ns * 0.875 + trip * 0.125
        };
        let lost: Vec<u64> = self
            .sent
            .range(..number.saturating_sub(2))
            .map(|(lost, _)| *lost)
            .collect();
        for lost in lost {
            self.sent.remove(&lost);
            if lost >= self.answered_below {
                self.decrease(now);
            }
        }
        if number >= self.answered_below {
            self.grow(now);
        }
    }

    fn decrease(&mut self, now: u64) {
        // Fast convergence.
        self.largest = if self.window < self.largest {
            self.window * 0.85
        } else {
            self.window
        };
        self.window = (self.window * CUBIC_BETA).max(2.0);
        (self.threshold, self.estimate) = (self.window, self.window);
        (self.answered_at, self.answered_below) = (Some(now), self.next);
    }

    fn grow(&mut self, now: u64) {
        if self.window < self.threshold {
            self.window += 1.0;
            return;
        }
        let since_s =
            (now - *self.answered_at.get_or_insert(now)) as f64 / 1e9 + self.round_trip_ns / 1e9;
        let origin_s = (self.largest * (1.0 - CUBIC_BETA) / CUBIC_C).cbrt();
        let cubic = CUBIC_C * (since_s - origin_s).powi(3) + self.largest;
        self.estimate += 3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA) / self.window;
        let aim = cubic.min(self.window * 1.5);
        if aim > self.window {
            self.window += (aim - self.window) / self.window;
        }
        self.window = self.window.max(self.estimate);
    }
}

/// The flows that share the link, and the packets on it.
struct Link {
    base: Instant,
    now: u64,
    random: Random,
    buffer_bytes: u64,
    busy_until: u64,
    flows: Vec<(Flow, u64)>,
    /// Start times of the flows.
    begin_at: Vec<u64>,
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    packets: BTreeMap<u64, (usize, Way, Packet)>,
    /// Time at which the sender's own link has sent everything queued.
    access_until: Vec<u64>,
    sequence: u64,
    dropped: u64,
    /// Time of the next burst of other traffic, and the total duration of such bursts.
    others_at: u64,
    others_ns: u64,
}

/// Mean interval of bursts of other traffic: 8.5 frames of 6.4 µs on average, which is 5 % of the link.
const OTHERS_NS: u64 = 1_090_000;

impl Link {
    /// A link with random queue and delays.
    fn new(seed: u64, data: Data) -> Link {
        let base = Instant::now();
        let mut random = Random::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let session = |number| Flow::HyperScsi(Box::new(Session::new(base, number, data)));
        let flows = vec![session(1), session(2), Flow::Tcp(Tcp::new())];
        // Shallow as in a rack switch, or some milliseconds deep.
        let buffer_bytes = [100_000, 200_000, 400_000][below(&mut random, 3) as usize];
        let delay_ns = [50_000, 200_000, 500_000][below(&mut random, 3) as usize];
        // Hosts on one network: delays differ, but not by much.
        let flows: Vec<_> = flows
            .into_iter()
            .map(|flow| (flow, delay_ns + below(&mut random, delay_ns / 4)))
            .collect();
        let access_until = vec![0; flows.len()];
        let begin_at = flows
            .iter()
            .map(|_| below(&mut random, 100_000_000))
            .collect();
        Link {
            base,
            now: 0,
            random,
            buffer_bytes,
            busy_until: 0,
            flows,
            begin_at,
            heap: BinaryHeap::new(),
            packets: BTreeMap::new(),
            access_until,
            sequence: 0,
            dropped: 0,
            others_at: 0,
            others_ns: 0,
        }
    }

    fn instant(&self) -> Instant {
        self.base + Duration::from_nanos(self.now)
    }

    fn arrive(&mut self, at: u64, flow: usize, way: Way, packet: Packet) {
        self.sequence += 1;
        self.heap.push(Reverse((at, self.sequence)));
        self.packets.insert(self.sequence, (flow, way, packet));
    }

    /// Data leaves through the sender's own link, in order. A host takes a varying few microseconds for each
    /// frame; otherwise the same flow would get the last place in the queue each time.
    fn send(&mut self, flow: usize, bytes: usize, packet: Packet) {
        let ready = self.now + below(&mut self.random, 100_000);
        let until = &mut self.access_until[flow];
        // If its own link were no faster than the shared one, a sender would keep the queue full without losses.
        *until = ready.max(*until) + (bytes + AROUND) as u64 * NS_PER_BYTE / 10;
        let at = *until;
        self.arrive(at, flow, Way::Queue { bytes }, packet);
    }

    /// The return path has no queue.
    fn answer(&mut self, flow: usize, packet: Packet) {
        self.arrive(self.now + self.flows[flow].1, flow, Way::Back, packet);
    }

    /// Other traffic uses the link in short bursts at random times. Without it the flows of a simulation
    /// synchronise, and the same flow gets the last place in the queue each time (Floyd and Jacobson's phase
    /// effects).
    fn disturb(&mut self) {
        while self.others_at <= self.now {
            let at = self.others_at;
            let frames = 1 + below(&mut self.random, 16);
            for _ in 0..frames {
                let wire_ns = (46 + below(&mut self.random, 1455) + AROUND as u64) * NS_PER_BYTE;
                if self.busy_until.saturating_sub(at) + wire_ns <= self.buffer_bytes * NS_PER_BYTE {
                    self.busy_until = self.busy_until.max(at) + wire_ns;
                    self.others_ns += wire_ns;
                }
            }
            self.others_at = at + below(&mut self.random, 2 * OTHERS_NS);
        }
    }

    fn enqueue(&mut self, flow: usize, bytes: usize, packet: Packet) {
        self.disturb();
        let wire_ns = (bytes + AROUND) as u64 * NS_PER_BYTE;
        let waiting_ns = self.busy_until.saturating_sub(self.now);
        if waiting_ns + wire_ns > self.buffer_bytes * NS_PER_BYTE {
            self.dropped += 1;
            return;
        }
        self.busy_until = self.busy_until.max(self.now) + wire_ns;
        self.arrive(
            self.busy_until + self.flows[flow].1,
            flow,
            Way::There,
            packet,
        );
    }

    /// Sends all pending packets of a flow.
    fn flush(&mut self, index: usize) {
        if self.begin_at[index] > self.now {
            return;
        }
        let now = self.instant();
        let mut out = VecDeque::new();
        match &mut self.flows[index].0 {
            Flow::HyperScsi(session) => {
                session.run();
                let (mut frame, by_initiator) = (Vec::new(), session.data == Data::Out);
                while session.initiator.poll_transmit(now, &mut frame).is_some() {
                    out.push_back((by_initiator, frame.len(), Packet::Frame(frame.clone())));
                }
                while session.target.poll_transmit(now, &mut frame).is_some() {
                    out.push_back((!by_initiator, frame.len(), Packet::Frame(frame.clone())));
                }
            }
            Flow::Tcp(tcp) => {
                while let Some(number) = tcp.transmit(self.now) {
                    out.push_back((true, FRAME_BYTES, Packet::Segment(number)));
                }
            }
        }
        for (is_data, bytes, packet) in out {
            if is_data {
                self.send(index, bytes, packet)
            } else {
                self.answer(index, packet)
            }
        }
    }

    /// Handles the arrival of a packet; returns whether it reached its receiver.
    fn handle(&mut self, index: usize, way: Way, packet: Packet) -> bool {
        if let Way::Queue { bytes } = way {
            self.enqueue(index, bytes, packet);
            return false;
        }
        let now = self.instant();
        match (&mut self.flows[index].0, packet) {
            (Flow::HyperScsi(session), Packet::Frame(mut frame)) => {
                if (way == Way::There) == (session.data == Data::Out) {
                    session.target.handle_frame(now, &0, &mut frame);
                } else {
                    session.initiator.handle_frame(now, &mut frame);
                }
            }
            (Flow::Tcp(tcp), Packet::Segment(number)) => {
                tcp.received += TCP_PAYLOAD as u64;
                self.answer(index, Packet::Acknowledged(number));
            }
            (Flow::Tcp(tcp), Packet::Acknowledged(number)) => tcp.acknowledge(self.now, number),
            _ => unreachable!("packets stay in their flow"),
        }
        true
    }

    fn deadline(&self, index: usize) -> Option<u64> {
        let begin = self.begin_at[index];
        if begin > self.now {
            return Some(begin);
        }
        match &self.flows[index].0 {
            Flow::HyperScsi(session) => {
                let both = [
                    session.initiator.poll_timeout(),
                    session.target.poll_timeout(),
                ];
                let at = both.into_iter().flatten().min()?;
                Some(at.saturating_duration_since(self.base).as_nanos() as u64)
            }
            Flow::Tcp(tcp) => tcp.deadline(),
        }
    }

    fn run_until(&mut self, end: u64) {
        (0..self.flows.len()).for_each(|index| self.flush(index));
        loop {
            let due = (0..self.flows.len())
                .filter_map(|index| Some((self.deadline(index)?, index)))
                .min();
            let item = self.heap.peek().map(|Reverse((at, _))| *at);
            let next = [due.map(|(at, _)| at), item]
                .into_iter()
                .flatten()
                .min()
                .expect("somebody waits");
            if next > end {
                return;
            }
            self.now = self.now.max(next);
            let now = self.instant();
            let index = if item == Some(next) {
                let Reverse((_, sequence)) = self.heap.pop().expect("an item");
                let (index, way, packet) = self.packets.remove(&sequence).expect("a packet");
                if !self.handle(index, way, packet) {
                    continue;
                }
                index
            } else {
                let (at, index) = due.expect("a deadline");
                match &mut self.flows[index].0 {
                    _ if self.begin_at[index] == at => {}
                    Flow::HyperScsi(session) => {
                        session.initiator.handle_timeout(now);
                        session.target.handle_timeout(now);
                    }
                    Flow::Tcp(tcp) => tcp.handle_timeout(self.now),
                }
                index
            };
            self.flush(index);
        }
    }

    /// Data arrived from each flow, as wire time of full frames.
    fn carried(&self) -> Vec<f64> {
        let wire = (FRAME_BYTES + AROUND) as f64;
        let carried = self.flows.iter().map(|(flow, _)| match flow {
            Flow::HyperScsi(session) => session.done as f64 / HYPERSCSI_PAYLOAD as f64,
            Flow::Tcp(tcp) => tcp.received as f64 / TCP_PAYLOAD as f64,
        });
        carried.map(|frames| frames * wire).collect()
    }
}

/// The shares of the link while all flows are active.
fn shares(seed: u64, data: Data, seconds: u64) -> Vec<f64> {
    let mut link = Link::new(seed, data);
    let begin = 500_000_000;
    link.run_until(begin);
    let before = link.carried();
    link.run_until(begin + seconds * 1_000_000_000);
    let bytes = (seconds * 1_000_000_000 / NS_PER_BYTE) as f64;
    let shares: Vec<f64> = link
        .carried()
        .iter()
        .zip(before)
        .map(|(after, before)| (after - before) / bytes)
        .collect();
    println!(
        "seed {seed}, {data:?}, queue {} kB, delay {} us: {shares:.3?}, Jain {:.3}, {} dropped, others {:.3}",
        link.buffer_bytes / 1000,
        link.flows[0].1 / 1000,
        jain(&shares),
        link.dropped,
        link.others_ns as f64 / link.now as f64
    );
    shares
}

fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    sum * sum / (shares.len() as f64 * shares.iter().map(|share| share * share).sum::<f64>())
}

/// `HYPERSCSI_FAIR_SEEDS=40 HYPERSCSI_FAIR_SECONDS=8 cargo test --release -p linerate-hyperscsi --test it fair -- --nocapture` tries
/// more. A session halves its window at a loss and adds a frame per round trip, as in RFC 5681. A TCP with
/// CUBIC behaves the same if round trips are short, as its section 4.3 requires.
#[test]
fn two_sessions_and_a_tcp_connection_share_a_link_fairly_and_fill_it() {
    let given = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().expect("a number"))
    };
    let (seeds, seconds) = (
        given("HYPERSCSI_FAIR_SEEDS"),
        given("HYPERSCSI_FAIR_SECONDS").unwrap_or(3),
    );
    for seed in 0..seeds.unwrap_or(2) {
        let ways = if seeds.is_some() {
            vec![Data::Out, Data::In]
        } else {
            vec![[Data::Out, Data::In][seed as usize % 2]]
        };
        for data in ways {
            let shares = shares(seed, data, seconds);
            assert!(jain(&shares) >= 0.9, "seed {seed}, {data:?}: {shares:?}");
            assert!(
                shares.iter().sum::<f64>() >= 0.9,
                "seed {seed}, {data:?}: {shares:?}"
            );
        }
    }
}
