//! A synthetic path with known layers. The evidence is derived from the layers as measurements would show
//! them, with noise. The true gain of each fix is also known.

use crate::{
    Evidence, Known, Ladder, LinkLayer, LoadRun, LongPackets, Parts, PathLayer, PathUnderLoad,
    Storage, Timed,
};
use bench::record::Histogram;
use block::Random;
use model::link::Link;
use model::{Direction, Keys, Load, Path, Prediction, Term, predict};

/// The properties of a synthetic path.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) seed: u64,
    pub(super) loopback: bool,
    /// The actual speed of the link.
    pub(super) link_bits_per_s: f64,
    /// The actual speed in the direction of writes, if it differs.
    pub(super) uplink_bits_per_s: Option<f64>,
    /// The rated speed of the link.
    pub(super) built_for: Option<f64>,
    /// The round trips of the connections.
    pub(super) round_trips_s: Vec<f64>,
    /// The time of both ends for an exchange.
    pub(super) exchange_s: f64,
    /// The target's additional time for a command.
    pub(super) dispatch_s: f64,
    /// The time of an access to the medium.
    pub(super) access_s: f64,
    /// The maximum number of requests per second of the medium.
    pub(super) accesses_per_s: f64,
    /// The time to make a write durable.
    pub(super) flush_s: f64,
    /// The additional time of a write that is shorter than a physical block.
    pub(super) short_s: f64,
    pub(super) physical_block_bytes: u32,
    /// The rate at which the ends copy the data of one command.
    pub(super) copy_per_s: f64,
    /// The TCP windows for reads and for writes.
    pub(super) windows: (Option<f64>, Option<f64>),
    pub(super) commands_at_once: Option<f64>,
    pub(super) asked: Keys,
    pub(super) got: Keys,
    /// The share of packets that are lost.
    pub(super) loss: f64,
    /// The shares of the time in which the ends are unresponsive.
    pub(super) target_away: f64,
    pub(super) client_starved: f64,
    /// The share of single requests that wait for a delayed acknowledgement.
    pub(super) held_back: f64,
    /// The storage stops for this time, in seconds, once in every two seconds.
    pub(super) stall_s: f64,
    pub(super) long_packets: Option<LongPackets>,
    /// The load that the user specified.
    pub(super) named: Option<Load>,
}

/// Returns the number of this range that belongs to a fraction from 0 to 1, on a logarithmic scale.
pub(super) fn between(fraction: f64, low: f64, high: f64) -> f64 {
    low * (high / low).powf(fraction)
}

pub(super) fn good_keys() -> Keys {
    Keys {
        immediate_data: true,
        initial_r2t: false,
        first_burst_bytes: 262_144,
        max_burst_bytes: 16_776_192,
        outstanding_r2ts: 8,
        target_segment_bytes: 262_144,
        initiator_segment_bytes: 262_144,
        header_digest: false,
        data_digest: false,
    }
}

impl World {
    /// Creates a path without any cause.
    pub(super) fn healthy(seed: u64, link_bits_per_s: f64, round_trip_s: f64) -> World {
        let mut random = Random::new(seed);
        let mut between = |low: f64, high: f64| low + random.fraction() * (high - low);
        World {
            seed,
            loopback: false,
            link_bits_per_s,
            uplink_bits_per_s: None,
            built_for: Some(link_bits_per_s),
            round_trips_s: vec![round_trip_s],
            exchange_s: between(20e-6, 80e-6),
            dispatch_s: between(2e-6, 20e-6),
            access_s: between(1e-6, 10e-6),
            accesses_per_s: f64::INFINITY,
            flush_s: between(1e-6, 50e-6),
            short_s: 0.0,
            physical_block_bytes: 4096,
            copy_per_s: between(0.5e9, 3e9),
            windows: (None, None),
            commands_at_once: None,
            asked: good_keys(),
            got: good_keys(),
            loss: 0.0,
            target_away: 0.0,
            client_starved: 0.0,
            held_back: 0.0,
            stall_s: 0.0,
            long_packets: None,
            named: None,
        }
    }

    fn payload_per_s(&self, direction: Direction) -> f64 {
        let uplink = self
            .uplink_bits_per_s
            .filter(|_| direction == Direction::Write);
        let bits_per_s = uplink.unwrap_or(self.link_bits_per_s);
        let link = Link {
            timestamps: true,
            ..Link::ethernet(bits_per_s, 1500)
        };
        if self.loopback {
            3e9
        } else {
            link.payload_per_s()
        }
    }

    fn round_trip_s(&self) -> f64 {
        self.round_trips_s.iter().sum::<f64>() / self.round_trips_s.len() as f64
    }

    fn path(&self, load: &Load) -> Path {
        let round_trip_s = self.round_trip_s();
        let (read, write) = self.windows;
        let window = if load.direction == Direction::Read {
            read
        } else {
            write
        };
        let short = load.direction == Direction::Write
            && !load.block_bytes.is_multiple_of(self.physical_block_bytes);
        let flush_s = if load.durable { self.flush_s } else { 0.0 };
        let short_s = if short { self.short_s } else { 0.0 };
        // The window after losses follows from the square root law (Mathis and others, 1997).
        let after_losses = (self.loss > 0.0).then(|| 1448.0 * 1.22 / self.loss.sqrt());
        let window_bytes = [window, after_losses]
            .into_iter()
            .flatten()
            .reduce(f64::min);
        Path {
            payload_per_s: Some(self.payload_per_s(load.direction)),
            window_bytes,
            connections: self.round_trips_s.len() as u16,
            exchange_s: self.exchange_s,
            command_s: self.dispatch_s + self.access_s + flush_s + short_s,
            // The data of a single request is first copied and then sent.
            copy_per_s: Some(
                1.0 / (1.0 / self.copy_per_s + 1.0 / self.payload_per_s(load.direction)),
            ),
            commands_at_once: self.commands_at_once,
            medium_per_s: Some(self.accesses_per_s * f64::from(load.block_bytes)),
            exchanges_per_s: Some(EXCHANGES_PER_S),
            ..Path::of_round_trip(round_trip_s)
        }
    }

    fn predict(&self, load: &Load) -> Prediction {
        predict(&self.path(load), &self.got, load)
    }

    /// Returns the rate of a load, in bytes per second.
    pub(super) fn bytes_per_s(&self, load: &Load) -> f64 {
        let there = (1.0 - self.target_away)
            * (1.0 - self.client_starved)
            * (1.0 - self.stall_s / STALL_PERIOD_S);
        let bytes_per_s = self.predict(load).bytes_per_s * there;
        if load.depth > 1 || self.held_back == 0.0 {
            return bytes_per_s;
        }
        let alone_s = f64::from(load.block_bytes) / bytes_per_s;
        f64::from(load.block_bytes) / (alone_s + self.held_back * 0.0405)
    }

    /// Returns the evidence that measurements on this path would produce.
    pub(super) fn evidence(&self) -> Evidence {
        let mut noise = Noise(Random::new(self.seed ^ 0x5eed));
        let paths = (0u16..)
            .zip(&self.round_trips_s)
            .map(|(cid, round_trip_s)| self.path_layer(cid, *round_trip_s, &mut noise));
        let paths = paths.collect();
        let link = LinkLayer {
            interface: if self.loopback { "lo" } else { "eth0" }.to_owned(),
            bits_per_s: None,
            full_duplex: None,
            mtu: 1500,
            loopback: self.loopback,
            faults: 0,
        };
        Evidence {
            place: "iscsi://192.0.2.1/iqn.2026-01.com.example:disk/0".to_owned(),
            expected_link_bits_per_s: self.built_for.filter(|_| !self.loopback),
            environment: Default::default(),
            storage: Storage {
                bytes: 1 << 30,
                block_bytes: 512,
                physical_block_bytes: self.physical_block_bytes,
                ..Storage::default()
            },
            asked: Some(self.asked),
            got: Some(self.got),
            command_window: self.commands_at_once.map(|window| window as u32),
            nbd: None,
            link: Known::Measured(link),
            connect: Known::Measured(noise.timed(self.round_trip_s() + 20e-6)),
            paths,
            long_packets: self.long_packets.clone(),
            ladder: self.ladder(&mut noise),
            loads: self.load_runs(&mut noise),
        }
    }

    fn path_layer(&self, cid: u16, round_trip_s: f64, noise: &mut Noise) -> PathLayer {
        let several = self.round_trips_s.len() > 1;
        PathLayer {
            cid,
            peer: format!("192.0.2.{}:3260", 1 + cid),
            congestion: "cubic".to_owned(),
            round_trip_min_us: Some(round_trip_s * 1e6),
            round_trip_us: round_trip_s * 1.1e6,
            segment_bytes: 1448,
            path_mtu_bytes: 1500,
            nop: match several {
                true => Known::Measured(noise.timed(round_trip_s + self.exchange_s)),
                false => Known::Unknown("there is only one".to_owned()),
            },
        }
    }

    fn ladder(&self, noise: &mut Noise) -> Ladder {
        let nop_s = self.round_trip_s() + self.exchange_s;
        let alone = |direction, bytes: u32, durable| {
            let load = Load {
                direction,
                block_bytes: bytes,
                depth: 1,
                sessions: 1,
                random: false,
                durable,
            };
            f64::from(bytes) / self.bytes_per_s(&load)
                * (1.0 - self.target_away)
                * (1.0 - self.client_starved)
                * (1.0 - self.stall_s / STALL_PERIOD_S)
        };
        let mut ask = |seconds: f64| Known::Measured(noise.probe(seconds, self.target_away));
        let ping_s = 1.0 / self.copy_per_s
            + 1.0 / self.payload_per_s(Direction::Read)
            + 1.0 / self.payload_per_s(Direction::Write);
        let sizes = [4096, 16_384, 65_536, 262_144];
        let read = |bytes| alone(Direction::Read, bytes, false);
        let write = |bytes| alone(Direction::Write, bytes, false);
        Ladder {
            nop: ask(nop_s),
            nop_with_data: vec![(4096, ask(nop_s + 4096.0 * ping_s))],
            test_unit_ready: ask(nop_s + self.dispatch_s),
            cached_read: ask(read(512)),
            cached_reads: sizes.map(|bytes| (bytes, ask(read(bytes)))).to_vec(),
            medium_read: ask(read(512)),
            write: ask(write(self.physical_block_bytes)),
            writes: sizes.map(|bytes| (bytes, ask(write(bytes)))).to_vec(),
            durable_write: ask(alone(Direction::Write, self.physical_block_bytes, true)),
            flush: ask(nop_s + self.flush_s),
            short_write: ask(write(512)),
        }
    }

    /// Returns the loads of `diagnose`: the user's load if any, and the default ones.
    pub(super) fn loads(&self) -> Vec<Load> {
        let load = |direction, kib: u32, depth, random, durable| Load {
            direction,
            block_bytes: kib * 1024,
            depth,
            sessions: 1,
            random,
            durable,
        };
        let usual = [
            load(Direction::Read, 64, 32, false, false),
            load(Direction::Read, 4, 1, true, false),
            load(Direction::Read, 4, 32, true, false),
            load(Direction::Write, 64, 32, false, false),
            load(Direction::Write, 4, 1, true, false),
            load(Direction::Write, 4, 1, true, true),
        ];
        self.named.into_iter().chain(usual).collect()
    }

    fn load_runs(&self, noise: &mut Noise) -> Vec<LoadRun> {
        let mut runs: Vec<_> = self
            .loads()
            .iter()
            .map(|load| self.load_run(load, noise))
            .collect();
        runs[0].named = self.named.is_some();
        runs
    }

    fn load_run(&self, load: &Load, noise: &mut Noise) -> LoadRun {
        let bytes_per_s = self.bytes_per_s(load);
        let modelled = self.predict(load);
        let (block, depth) = (f64::from(load.block_bytes), f64::from(load.depth));
        let service_s = depth * block / bytes_per_s;
        let at_once = self.commands_at_once.unwrap_or(depth).min(depth);
        let binding = modelled.binding();
        let nop_s = self.round_trip_s() + self.exchange_s;
        let at_link = binding == Some(Term::Link) && self.target_away + self.client_starved == 0.0;
        let queue_s = if at_link {
            (service_s - modelled.alone_s).max(0.0)
        } else {
            0.0
        };
        // If the window is full, data waits that the sender could not send yet.
        let behind_data_s = if binding == Some(Term::Window) {
            (service_s - modelled.alone_s).max(0.0)
        } else {
            queue_s
        };
        let r2ts = if load.direction == Direction::Write {
            self.got.r2ts(load.block_bytes)
        } else {
            0
        };
        let r2t_s = f64::from(modelled.exchanges - 1) * nop_s;
        let waiting_s = service_s * (1.0 - at_once / depth);
        let limited =
            binding == Some(Term::Window) && self.loss == 0.0 && load.direction == Direction::Write;
        let sent = load.direction == Direction::Write;
        let segments = (bytes_per_s * COUNTED_S / 1448.0) as u64;
        let path = |cid| PathUnderLoad {
            cid,
            sent_bytes: if sent {
                (bytes_per_s * COUNTED_S) as u64
            } else {
                10_000
            },
            received_bytes: if sent {
                10_000
            } else {
                (bytes_per_s * COUNTED_S) as u64
            },
            segments_in: Some(if sent { 100 } else { segments }),
            segments_out: Some(if sent { segments } else { 100 }),
            retransmitted_segments: if sent {
                (segments as f64 * self.loss) as u64
            } else {
                0
            },
            out_of_order_segments: Some(if sent {
                0
            } else {
                (segments as f64 * self.loss * 5.0) as u64
            }),
            round_trip_us: (self.round_trip_s() + queue_s) * 1.05e6,
            congestion_window_bytes: 1 << 20,
            peer_window_bytes: Some(self.windows.1.unwrap_or(8e6) as u64),
            own_window_bytes: Some(self.windows.0.unwrap_or(8e6) as u64),
            limited_by_receiver: if limited { 0.95 } else { 0.01 },
            limited_by_send_buffer: 0.0,
        };
        LoadRun {
            load: *load,
            named: false,
            bytes_per_s: (0..6).map(|_| bytes_per_s * noise.factor(0.03)).collect(),
            service: as_many(
                self.service(load, service_s, noise),
                bytes_per_s * COUNTED_S / block,
            ),
            under_way: at_once,
            parts: Parts {
                waiting_us: waiting_s * 1e6,
                r2t_us: r2t_s * 1e6,
                answer_us: (service_s - waiting_s - r2t_s).max(0.0) * 1e6,
                ..Parts::default()
            },
            window_stalled: if at_once < depth { 0.97 } else { 0.0 },
            r2ts_per_command: f64::from(r2ts),
            busy_answers: 0,
            errors: 0,
            first_failure: None,
            nop: Known::Measured(noise.timed(nop_s + behind_data_s)),
            connect: Known::Measured(noise.timed(self.round_trip_s() + 20e-6 + queue_s)),
            paths: (0..self.round_trips_s.len() as u16).map(path).collect(),
            beside: Vec::new(),
            // On loopback, a full link stands for saturated ends.
            client_busy: match self.loopback && at_link {
                true => 0.97,
                false => {
                    0.97 * f64::from(modelled.exchanges) * bytes_per_s / block / EXCHANGES_PER_S
                }
            },
            client_waited: self.client_starved,
            client_digests: None,
            server_busy: None,
        }
    }

    fn service(&self, load: &Load, service_s: f64, noise: &mut Noise) -> Histogram {
        if self.held_back > 0.0 && load.depth == 1 {
            let quick_s = service_s - self.held_back * 0.0405;
            return noise.mixture(&[
                (quick_s, 1.0 - self.held_back),
                (quick_s + 0.0405, self.held_back),
            ]);
        }
        let running_s = service_s * (1.0 - self.stall_s / STALL_PERIOD_S);
        let mut times = noise
            .probe(running_s * (1.0 - self.target_away), self.target_away)
            .times;
        if self.stall_s > 0.0 {
            // Each stall delays as many requests as are outstanding.
            let stalled = times.count() as f64 * running_s / (STALL_PERIOD_S - self.stall_s);
            let longest_s = running_s + self.stall_s;
            times
                .0
                .push(((longest_s * 1e9) as u64, (stalled.round() as u64).max(1)));
        }
        times
    }
}

/// The time from one stall of the storage to the next, in seconds.
const STALL_PERIOD_S: f64 = 2.0;

/// The number of exchanges per second for which the ends have CPU time.
const EXCHANGES_PER_S: f64 = 150_000.0;

/// The counted time of a load over all rounds, in seconds.
const COUNTED_S: f64 = 5.0;

/// Scales a distribution, in which each time occurs once, to this number of requests.
fn as_many(times: Histogram, requests: f64) -> Histogram {
    let each = requests / times.count().max(1) as f64;
    let until = |index: usize| (index as f64 * each).round() as u64;
    let spread = times
        .0
        .into_iter()
        .enumerate()
        .map(|(index, (ns, _))| (ns, until(index + 1) - until(index)));
    Histogram(spread.filter(|(_, count)| *count > 0).collect())
}

/// A longer time is a wait, which does not scatter with the other times.
const USUAL_S: f64 = 0.001;

/// The noise of measurements: a scatter of a few percent, and occasional delays by milliseconds on a busy
/// machine.
struct Noise(Random);

impl Noise {
    /// Returns a random factor with a mean of 1 and about this scatter.
    fn factor(&mut self, scatter: f64) -> f64 {
        // The sum of four fractions has a standard deviation of 0.58.
        let centred: f64 = ((0..4).map(|_| self.0.fraction()).sum::<f64>() - 2.0) / 0.58;
        (1.0 + scatter * centred).max(0.2)
    }

    fn timed(&mut self, seconds: f64) -> Timed {
        self.probe(seconds, 0.0)
    }

    /// Returns two hundred times of an end that is unresponsive for a share of the time, for ten milliseconds
    /// in each case.
    fn probe(&mut self, seconds: f64, away: f64) -> Timed {
        let late = away / (1.0 - away) * seconds / 0.005;
        let times = self.mixture(&[(seconds, 1.0), (seconds + 0.005, late)]);
        let ns = |share| times.quantile_ns(share) as f64 / 1e3;
        let (low_us, median_us, high_us) = (ns(0.45), ns(0.5), ns(0.55));
        Timed {
            times,
            median_us,
            low_us,
            high_us,
        }
    }

    fn mixture(&mut self, of: &[(f64, f64)]) -> Histogram {
        let all: f64 = of.iter().map(|(_, share)| share).sum();
        let mut times = Vec::new();
        for &(seconds, share) in of {
            let count = (200.0 * share / all).round() as usize;
            times.extend(
                (0..count).map(|_| seconds + seconds.min(USUAL_S) * (self.factor(0.05) - 1.0)),
            );
        }
        // One time of two hundred is late by some milliseconds.
        times
            .iter_mut()
            .step_by(200)
            .for_each(|time| *time += 0.003);
        let mut ns: Vec<(u64, u64)> = times
            .into_iter()
            .map(|time| ((time * 1e9) as u64, 1))
            .collect();
        ns.sort_unstable();
        Histogram(ns)
    }
}
