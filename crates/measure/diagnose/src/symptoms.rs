//! Symptoms in the numbers of a load, each with its threshold and the reason for it.
//!
//! A symptom is not yet a cause: a queue in the network is good on a link that is full. The conclusions are
//! in [`causes`](super::causes).

use bench::record::Histogram;
use model::Direction;

use crate::layers::{Layers, median};
use crate::patterns::{Estimate, Stalls};
use crate::{Evidence, Known, LoadRun, PathUnderLoad, patterns};

/// The symptoms of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Symptoms {
    /// Lost segments, as far as this end can detect them, as a share of all.
    pub(super) lost: f64,
    /// The increase of TCP's round trip over the idle one, in seconds: the queue in the network.
    pub(super) queue_s: f64,
    /// The increase of a NOP's time over the idle one, in seconds: the queue in the network and at the ends.
    pub(super) nop_queue_s: Option<f64>,
    /// The share of a request's time in which it waited for the command window.
    pub(super) waiting: f64,
    /// Commands at the target on average, without the waiting ones.
    pub(super) at_once: f64,
    /// The TCP window that was full, if any.
    pub(super) window: Option<FullWindow>,
    /// The share of the time in which this end was runnable, but programs other than the target had its CPU.
    pub(super) starved: f64,
    /// Requests that cluster at the delay of an acknowledgement.
    pub(super) stalls: Option<Stalls>,
    /// The share of the time in which the target did not respond to anything.
    pub(super) target_away: f64,
    /// Requests wait for each other where a NOP does not.
    pub(super) medium_full: bool,
}

/// A TCP window that limited the load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FullWindow {
    /// The part of it in transit at one time, on each connection.
    pub(super) bytes: f64,
    pub(super) whose: Whose,
}

/// The buffer behind a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// Our receive buffer.
    OurReceive,
    /// Our send buffer.
    OurSend,
    /// The target's receive buffer.
    TargetReceive,
    /// The target's send buffer: not observable, and concluded by elimination.
    TargetSend,
}

impl Symptoms {
    pub(super) fn of(evidence: &Evidence, layers: &Layers, run: &LoadRun, rate: Estimate) -> Symptoms {
        let waiting = waiting(run);
        let symptoms = Symptoms {
            lost: lost(run),
            queue_s: queue_s(layers, run),
            nop_queue_s: median(&run.nop).map(|nop| nop.value - layers.probe_s()),
            waiting,
            at_once: run.under_way * (1.0 - waiting),
            window: None,
            starved: starved(run),
            stalls: stalls(evidence, layers, run),
            target_away: layers.away,
            medium_full: false,
        };
        Symptoms { window: full_window(evidence, layers, run, rate, &symptoms), ..symptoms }
    }

    /// Whether the loss is high enough to slow TCP down. By the square root law, a loss of 0.1 % allows 40
    /// segments in transit: 57 kB, 1 Gbit/s at a round trip of 0.5 ms and less over longer ones.
    pub(super) fn lossy(&self) -> bool {
        self.lost >= LOST_MIN
    }

    /// Whether packets queue up in the network: the link is full. TCP's round trip also grows if the target
    /// has no data to send with its acknowledgement and delays it; a NOP's time then does not grow.
    pub(super) fn queued(&self, layers: &Layers) -> bool {
        let queue_s = self.nop_queue_s.map_or(self.queue_s, |nop_queue_s| nop_queue_s.min(self.queue_s));
        queue_s > QUEUE_MIN_S.max(layers.round_trip_s * QUEUE_SHARE_MIN)
    }

    /// Whether this end waits for a CPU.
    pub(super) fn starved(&self) -> bool {
        self.starved >= STARVED_MIN
    }
}

const LOST_MIN: f64 = 0.001;
/// A lower count, out of a few thousand segments, is not significant.
const LOST_COUNT_MIN: u64 = 5;
/// A busy machine delays an acknowledgement by this much without any queue.
const QUEUE_MIN_S: f64 = 0.001_5;
/// BBR keeps a quarter of a round trip in the queue of a path that it fills; others keep more.
const QUEUE_SHARE_MIN: f64 = 0.25;
/// Other programs on the same CPU take a third now and then; above this share they have more of it than this
/// process.
const STARVED_MIN: f64 = 0.4;

/// Retransmitted segments for sent data, or out-of-order segments for received data: a loss towards this
/// machine is visible only by later segments. The other direction carries only a few commands, of which those
/// that are retransmitted because a response was late would be a large share.
fn lost(run: &LoadRun) -> f64 {
    let sum = |of: fn(&PathUnderLoad) -> u64| run.paths.iter().map(of).fold(0, u64::saturating_add);
    let share = |bad: u64, all: u64| match bad >= LOST_COUNT_MIN && all > 0 {
        true => (bad as f64 / all as f64).min(1.0),
        false => 0.0,
    };
    match run.load.direction {
        Direction::Write => {
            let sent = sum(|path| path.segments_out.unwrap_or(path.sent_bytes / SEGMENT_BYTES));
            share(sum(|path| path.retransmitted_segments), sent)
        }
        Direction::Read => {
            let came = sum(|path| path.segments_in.unwrap_or(path.received_bytes / SEGMENT_BYTES));
            share(sum(|path| path.out_of_order_segments.unwrap_or(0)), came)
        }
    }
}

/// The length on Ethernet without jumbo frames, used if the kernel does not count segments.
const SEGMENT_BYTES: u64 = 1448;

/// The time for which this end waited for a CPU, minus the time in which a target on this machine used one:
/// the scheduler puts two programs that wake each other on one CPU, where one waits while the other works for
/// it.
pub(super) fn starved(run: &LoadRun) -> f64 {
    (run.client_waited - run.server_busy.unwrap_or(0.0)).clamp(0.0, 1.0)
}

fn queue_s(layers: &Layers, run: &LoadRun) -> f64 {
    let loaded: Vec<f64> =
        run.paths.iter().map(|path| path.round_trip_us / 1e6).filter(|s| s.is_finite() && *s > 0.0).collect();
    if loaded.is_empty() { 0.0 } else { (stats::median(&loaded) - layers.round_trip_s).max(0.0) }
}

fn waiting(run: &LoadRun) -> f64 {
    let parts = &run.parts;
    let all = [
        parts.waiting_us,
        parts.queued_us,
        parts.sending_us,
        parts.r2t_us,
        parts.answer_us,
        parts.data_us,
        parts.status_us,
    ];
    let all: f64 = all.iter().sum();
    if all > 0.0 { (parts.waiting_us / all).clamp(0.0, 1.0) } else { 0.0 }
}

/// Whether single requests of this kind wait for a delayed acknowledgement.
///
/// Single requests cluster at 40 ms or 200 ms; with others outstanding, an acknowledgement is sent with the
/// next request. A medium may also take 40 ms, but then it does so for every request, and longer requests are
/// not faster: a stall ends with a full segment, or with the next request.
fn stalls(evidence: &Evidence, layers: &Layers, run: &LoadRun) -> Option<Stalls> {
    if run.load.depth > 1 || run.load.durable {
        return None;
    }
    let exchange_s = layers.exchange_s();
    let of_the_load = || Some((patterns::stalls(&run.service, exchange_s)?, None));
    let probe = nearest(evidence, run)
        .and_then(|(bytes, probe)| Some((patterns::stalls(probe, exchange_s)?, Some(bytes))));
    let (stalls, bytes) = probe.or_else(of_the_load)?;
    let quick = |times: &Histogram| times.quantile_ns(0.5) as f64 / 1e9 < stalls.held_s / 2.0;
    let longer = bytes.is_some_and(|bytes| {
        single(evidence, run.load.direction).any(|(longer, times)| longer > bytes && quick(times))
    });
    let deeper = evidence.loads.iter().any(|other| {
        other.load.direction == run.load.direction
            && other.load.depth > run.load.depth
            && quick(&other.service)
    });
    (stalls.others_s.is_some() || longer || deeper).then_some(stalls)
}

/// Probes that read or write, by length.
fn single(evidence: &Evidence, direction: Direction) -> impl Iterator<Item = (u32, &Histogram)> {
    let ladder = &evidence.ladder;
    let probes = match direction {
        Direction::Read => &ladder.cached_reads,
        Direction::Write => &ladder.writes,
    };
    probes.iter().filter_map(|(bytes, probe)| match probe {
        Known::Measured(timed) => Some((*bytes, &timed.times)),
        Known::Unknown(_) => None,
    })
}

/// The probe with the length nearest to the load's requests.
fn nearest<'a>(evidence: &'a Evidence, run: &LoadRun) -> Option<(u32, &'a Histogram)> {
    single(evidence, run.load.direction).min_by_key(|(bytes, _)| bytes.abs_diff(run.load.block_bytes))
}

/// A window is full if the kernel reports so, or if the data in transit equals the window.
///
/// For sending, the kernel counts the time in which the peer's window or our buffer was the limit. For
/// receiving, there is no such counter: the rate times the round trip is compared with our own window. The
/// target's window is the limit under three conditions: our window is much larger, there is neither a loss
/// nor a queue in the network, and a NOP waits behind data that the target could not send yet.
fn full_window(
    evidence: &Evidence,
    layers: &Layers,
    run: &LoadRun,
    rate: Estimate,
    symptoms: &Symptoms,
) -> Option<FullWindow> {
    let asked = symptoms.at_once * f64::from(run.load.block_bytes);
    let connections = evidence.paths.len().max(1) as f64;
    let on_the_way = rate.value * layers.round_trip_s / connections;
    let far = layers.round_trip_s >= FAR_S && asked / connections >= ASKED_MIN * on_the_way;
    // The rate of requests that take as long as single ones is not limited by a window.
    let alone_s = layers.alone_s(run.load.direction, run.load.block_bytes).unwrap_or(0.0);
    let explained = asked <= EXPLAINED_MAX * rate.value * alone_s;
    // Several connections have several windows: if they are not faster, a window is not the limit.
    let elsewhere = run.by_connections().is_some_and(|ratio| ratio < CONNECTIONS_MIN);
    if !far || explained || elsewhere || symptoms.lossy() || symptoms.queued(layers) {
        return None;
    }
    match run.load.direction {
        Direction::Write => sending(run, on_the_way),
        Direction::Read if evidence.nbd.is_some() => receiving_by_nbd(run, on_the_way),
        Direction::Read => receiving(run, layers, rate, on_the_way, symptoms),
    }
}

/// On shorter paths, the ends take longer than the path, and windows are not the limit.
const FAR_S: f64 = 0.000_5;
/// More data must be waiting than is in transit.
const ASKED_MIN: f64 = 1.5;
const EXPLAINED_MAX: f64 = 1.3;

fn sending(run: &LoadRun, on_the_way: f64) -> Option<FullWindow> {
    let mean = |of: fn(&PathUnderLoad) -> f64| stats::mean(&run.paths.iter().map(of).collect::<Vec<_>>());
    let (receiver, buffer) =
        (mean(|path| path.limited_by_receiver), mean(|path| path.limited_by_send_buffer));
    let window = run.paths.iter().filter_map(|path| path.peer_window_bytes).min().map(|bytes| bytes as f64);
    // A target that does not read its data also closes its window, but then far less than a window is in
    // transit.
    let used = window.is_none_or(|window| on_the_way >= USED_MIN * window);
    match () {
        () if receiver >= LIMITED_MIN && receiver >= buffer && used => {
            Some(FullWindow { bytes: on_the_way, whose: Whose::TargetReceive })
        }
        () if buffer >= LIMITED_MIN => Some(FullWindow { bytes: on_the_way, whose: Whose::OurSend }),
        () => None,
    }
}

/// A third of the time: below it, a fix could not gain 15 %, or the next limit would absorb it.
const LIMITED_MIN: f64 = 0.3;
/// The usable share of a window is between a half (a receiver that opens it late) and all.
const USED_MIN: f64 = 0.35;
const USED_MAX: f64 = 1.25;

fn receiving(
    run: &LoadRun,
    layers: &Layers,
    rate: Estimate,
    on_the_way: f64,
    symptoms: &Symptoms,
) -> Option<FullWindow> {
    let window = run.paths.iter().filter_map(|path| path.own_window_bytes).max().map(|bytes| bytes as f64);
    let used = |window: f64| (USED_MIN..USED_MAX).contains(&(on_the_way / window));
    // Data waiting at the target delays a NOP's response; a target without data to send does not delay it.
    let waits_for_data =
        symptoms.nop_queue_s.is_some_and(|queue_s| queue_s > layers.round_trip_s * NOP_QUEUE_MIN);
    let steady = rate.relative_error() <= STEADY_MAX;
    match window {
        Some(window) if used(window) && waits_for_data => {
            Some(FullWindow { bytes: on_the_way, whose: Whose::OurReceive })
        }
        _ if waits_for_data && steady && !symptoms.starved() => {
            Some(FullWindow { bytes: on_the_way, whose: Whose::TargetSend })
        }
        _ => None,
    }
}

/// The probe has a separate connection, and does not wait for data. If our window is used, it is the limit.
/// The server's limits, its buffer or its own speed, are not visible from here.
fn receiving_by_nbd(run: &LoadRun, on_the_way: f64) -> Option<FullWindow> {
    run.by_connections()?;
    let window = run.paths.iter().filter_map(|path| path.own_window_bytes).max()? as f64;
    let used = (USED_MIN..USED_MAX).contains(&(on_the_way / window));
    used.then_some(FullWindow { bytes: on_the_way, whose: Whose::OurReceive })
}

/// Four connections limited by their windows are four times as fast, or as fast as the link.
const CONNECTIONS_MIN: f64 = 1.3;
/// A window's worth of data is sent before a NOP's response, and takes a round trip.
const NOP_QUEUE_MIN: f64 = 0.5;
/// A fixed window gives the same rate in every round; a TCP window that still grows does not.
const STEADY_MAX: f64 = 0.15;
