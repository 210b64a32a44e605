//! Finds symptoms in the numbers of a load. Each has a threshold, whose reason is stated with it.
//!
//! A symptom is not yet a cause: for example, a queue in the network is normal if the link is full.
//! [`causes`](super::causes) draws the conclusions.

use bench::record::Histogram;
use model::Direction;

use crate::layers::{Layers, median};
use crate::patterns::{Estimate, Stalls};
use crate::{Evidence, Known, LoadRun, PathUnderLoad, patterns};

/// The symptoms of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Symptoms {
    /// Lost segments as a share of all segments, as far as this end can detect them.
    pub(super) lost: f64,
    /// The queue in the network: the increase of the time of a TCP handshake over that on the idle path, in seconds. If
    /// handshakes were not measured, the smaller of two upper bounds: the increase of TCP's round trip, which also grows
    /// with late acknowledgements, and `nop_queue_s`.
    pub(super) queue_s: f64,
    /// The queue in the network and at both ends: the increase of a NOP's time over that on the idle path, in
    /// seconds.
    pub(super) nop_queue_s: Option<f64>,
    /// The share of a request's time in which it waited for the command window.
    pub(super) waiting: f64,
    /// The average number of commands at the target, without those that wait for the command window.
    pub(super) at_once: f64,
    /// The TCP window that limited the load, if any.
    pub(super) window: Option<FullWindow>,
    /// The share of the time in which this end was runnable, but its CPU ran programs other than the target.
    pub(super) starved: f64,
    /// Requests whose times cluster at the delay of an acknowledgement.
    pub(super) stalls: Option<Stalls>,
    /// The share of the time in which the target did not respond to anything.
    pub(super) target_away: f64,
    /// Whether requests wait for each other where a NOP does not wait.
    pub(super) medium_full: bool,
}

/// A TCP window that limited the load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FullWindow {
    /// The used part of the window: the bytes in transit at one time, on each connection.
    pub(super) bytes: f64,
    pub(super) whose: Whose,
}

/// The buffer that limits a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// Our receive buffer.
    OurReceive,
    /// Our send buffer.
    OurSend,
    /// The target's receive buffer.
    TargetReceive,
    /// The target's send buffer. It is not observable, so it is inferred by elimination.
    TargetSend,
}

impl Symptoms {
    pub(super) fn of(
        evidence: &Evidence,
        layers: &Layers,
        run: &LoadRun,
        rate: Estimate,
    ) -> Symptoms {
        let waiting = waiting(run);
        let nop_queue_s = median(&run.nop).map(|nop| nop.value - layers.probe_s());
        let handshakes_s = handshakes_s(evidence, run);
        let symptoms = Symptoms {
            lost: lost(run),
            queue_s: handshakes_s.unwrap_or_else(|| {
                round_trips_s(layers, run).min(nop_queue_s.unwrap_or(f64::INFINITY))
            }),
            nop_queue_s,
            waiting,
            at_once: run.under_way,
            window: None,
            starved: starved(run),
            stalls: stalls(evidence, layers, run),
            target_away: layers.away,
            medium_full: false,
        };
        Symptoms {
            window: full_window(evidence, layers, run, rate, &symptoms),
            ..symptoms
        }
    }

    /// Whether the loss is high enough to slow TCP down. By the square root law, a loss of 0.1 % allows 40
    /// segments in transit, or 57 kB: 1 Gbit/s at a round trip of 0.5 ms, and less over longer paths.
    pub(super) fn lossy(&self) -> bool {
        self.lost >= LOST_MIN
    }

    /// Whether packets queue in the network.
    pub(super) fn queued(&self, layers: &Layers) -> bool {
        self.queue_s > QUEUE_MIN_S.max(layers.round_trip_s * QUEUE_SHARE_MIN)
    }

    /// Whether this end waits for a CPU.
    pub(super) fn starved(&self) -> bool {
        self.starved >= STARVED_MIN
    }
}

const LOST_MIN: f64 = 0.001;
/// Minimum number of lost segments. Out of a few thousand segments, a lower number is not significant.
const LOST_COUNT_MIN: u64 = 5;
/// The minimum queue. A busy machine can delay an acknowledgement by this much without any queue.
const QUEUE_MIN_S: f64 = 0.001_5;
/// The minimum queue as a share of the round trip. BBR keeps a quarter of a round trip in the queue of a path
/// that it fills; other algorithms keep more.
const QUEUE_SHARE_MIN: f64 = 0.25;
/// The share of the time from which this end is starved. Other programs on the same CPU occasionally take a
/// third of the time; above this share, they take more of it than this process.
const STARVED_MIN: f64 = 0.4;

/// Returns the share of lost segments. For sent data, these are retransmitted segments. For received data,
/// these are out-of-order segments, since this machine notices a loss only by later segments. In the opposite
/// direction of the data, there are only a few commands, so a few retransmissions due to late responses would
/// be a large share; they do not count.
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
            let came = sum(|path| {
                path.segments_in
                    .unwrap_or(path.received_bytes / SEGMENT_BYTES)
            });
            share(sum(|path| path.out_of_order_segments.unwrap_or(0)), came)
        }
    }
}

/// The segment length on Ethernet without jumbo frames, used if the kernel does not count segments.
const SEGMENT_BYTES: u64 = 1448;

/// Returns the share of the time for which this end waited for a CPU, minus the time in which a target on
/// this machine used one. The scheduler puts two programs that wake each other on one CPU, where one waits
/// while the other works for it.
pub(super) fn starved(run: &LoadRun) -> f64 {
    (run.client_waited - run.server_busy.unwrap_or(0.0)).clamp(0.0, 1.0)
}

/// Returns the increase of the time of a TCP handshake, in seconds. Data of the session's own connection does not delay
/// a handshake, and the kernel of the target answers it without the target. A time that is usual without a load is no
/// increase: on a path with jitter that keeps packets in order, a load gets the longer delays.
fn handshakes_s(evidence: &Evidence, run: &LoadRun) -> Option<f64> {
    let Known::Measured(idle) = &evidence.connect else {
        return None;
    };
    let loaded_s = median(&run.connect)?.value;
    let usual_s = idle.times.quantile_ns(USUAL) as f64 / 1e9;
    Some(if loaded_s <= usual_s {
        0.0
    } else {
        (loaded_s - idle.median_us / 1e6).max(0.0)
    })
}

/// The share of handshakes without a load whose times are usual.
const USUAL: f64 = 0.9;

/// Returns the increase of TCP's round trip, in seconds.
fn round_trips_s(layers: &Layers, run: &LoadRun) -> f64 {
    let loaded: Vec<f64> = run
        .paths
        .iter()
        .map(|path| path.round_trip_us / 1e6)
        .filter(|s| s.is_finite() && *s > 0.0)
        .collect();
    if loaded.is_empty() {
        0.0
    } else {
        (stats::median(&loaded) - layers.round_trip_s).max(0.0)
    }
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
    if all > 0.0 {
        (parts.waiting_us / all).clamp(0.0, 1.0)
    } else {
        0.0
    }
}

/// Finds single requests that wait for a delayed acknowledgement.
///
/// The times of such requests cluster at 40 ms or 200 ms. If other requests are outstanding, the
/// acknowledgement is sent together with the next request. A medium may also take 40 ms, but then every
/// request takes this time, and longer requests are not faster. A stall, in contrast, ends with a full
/// segment or with the next request.
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

/// Returns the times of the probes that read or write, with their lengths.
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

/// Returns the probe whose length is nearest to that of the load's requests.
fn nearest<'a>(evidence: &'a Evidence, run: &LoadRun) -> Option<(u32, &'a Histogram)> {
    single(evidence, run.load.direction)
        .min_by_key(|(bytes, _)| bytes.abs_diff(run.load.block_bytes))
}

/// Returns the window that is full: according to the kernel, or because the data in transit equals the
/// window.
///
/// For sending, the kernel counts the time in which the peer's window or our buffer was the limit. For
/// receiving, there is no such counter, so the product of rate and round trip is compared with our own
/// window. If our window is not the limit, the target's send buffer is, under three conditions:
///
/// - There is neither a loss nor a queue in the network.
/// - A NOP waits behind data that the target could not send yet.
/// - The rate is the same in every round.
fn full_window(
    evidence: &Evidence,
    layers: &Layers,
    run: &LoadRun,
    rate: Estimate,
    symptoms: &Symptoms,
) -> Option<FullWindow> {
    let asked = symptoms.at_once * f64::from(run.load.block_bytes);
    let connections = evidence.paths.len().max(1) as f64 * f64::from(run.load.sessions.max(1));
    let on_the_way = rate.value * layers.round_trip_s / connections;
    let far = layers.round_trip_s >= NEAR_S && asked / connections >= ASKED_MIN * on_the_way;
    // If requests take as long as single ones, a window does not limit their rate.
    let alone_s = layers
        .alone_s(run.load.direction, run.load.block_bytes)
        .unwrap_or(0.0);
    let explained = asked <= EXPLAINED_MAX * rate.value * alone_s;
    // Several connections have several windows. If they are not faster, a window is not the limit.
    let elsewhere = run
        .by_connections()
        .is_some_and(|ratio| ratio < CONNECTIONS_MIN);
    if !far || explained || elsewhere || symptoms.lossy() || symptoms.queued(layers) {
        return None;
    }
    match run.load.direction {
        Direction::Write => {
            let usual = 1.0 + layers.jitter_s / layers.round_trip_s;
            sending(run, on_the_way, usual)
        }
        Direction::Read if evidence.nbd.is_some() => receiving_by_nbd(run, on_the_way),
        Direction::Read => receiving(run, layers, rate, on_the_way, symptoms),
    }
}

/// The minimum round trip of a window that the kernel reports as full, and of one that is inferred. On shorter paths,
/// the ends take longer than the path.
const NEAR_S: f64 = 0.000_1;
const FAR_S: f64 = 0.000_5;
/// The outstanding data must exceed the data in transit by this factor.
const ASKED_MIN: f64 = 1.5;
const EXPLAINED_MAX: f64 = 1.3;

/// `usual` is the usual round trip, as a multiple of the shortest.
fn sending(run: &LoadRun, on_the_way: f64, usual: f64) -> Option<FullWindow> {
    let mean =
        |of: fn(&PathUnderLoad) -> f64| stats::mean(&run.paths.iter().map(of).collect::<Vec<_>>());
    let (receiver, buffer) = (
        mean(|path| path.limited_by_receiver),
        mean(|path| path.limited_by_send_buffer),
    );
    let window = run
        .paths
        .iter()
        .filter_map(|path| path.peer_window_bytes)
        .min()
        .map(|bytes| bytes as f64);
    // A target that does not read its data also closes its window, but then much less data than a window is
    // in transit.
    let used = window.is_none_or(|window| on_the_way * usual >= USED_MIN * window);
    match () {
        () if receiver >= LIMITED_MIN && receiver >= buffer && used => Some(FullWindow {
            bytes: on_the_way,
            whose: Whose::TargetReceive,
        }),
        () if buffer >= LIMITED_MIN => Some(FullWindow {
            bytes: on_the_way,
            whose: Whose::OurSend,
        }),
        () => None,
    }
}

/// The minimum share of the time in which a window or buffer is the limit. Below it, a fix could not gain 15
/// %, or the next limit would prevent the gain.
const LIMITED_MIN: f64 = 0.3;
/// The range of a full window's used share. It is between a half (a receiver that opens the window late) and
/// all, with a tolerance.
const USED_MIN: f64 = 0.35;
const USED_MAX: f64 = 1.25;

fn receiving(
    run: &LoadRun,
    layers: &Layers,
    rate: Estimate,
    on_the_way: f64,
    symptoms: &Symptoms,
) -> Option<FullWindow> {
    let window = run
        .paths
        .iter()
        .filter_map(|path| path.own_window_bytes)
        .max()
        .map(|bytes| bytes as f64);
    let used = |window: f64| (USED_MIN..USED_MAX).contains(&(on_the_way / window));
    // If the target has data that waits, it delays the response to a NOP. A target without data to send does
    // not delay the response.
    let waits_for_data = symptoms
        .nop_queue_s
        .is_some_and(|queue_s| queue_s > layers.round_trip_s * NOP_QUEUE_MIN);
    let steady = rate.relative_error() <= STEADY_MAX;
    match window {
        Some(window) if used(window) && waits_for_data => Some(FullWindow {
            bytes: on_the_way,
            whose: Whose::OurReceive,
        }),
        _ if waits_for_data && steady && !symptoms.starved() && layers.round_trip_s >= FAR_S => {
            Some(FullWindow {
                bytes: on_the_way,
                whose: Whose::TargetSend,
            })
        }
        _ => None,
    }
}

/// Over NBD, the probe has a separate connection, so it does not wait for data. If our window is fully used,
/// it is the limit. The limits of the server (its buffer, or its own speed) are not visible from the client.
fn receiving_by_nbd(run: &LoadRun, on_the_way: f64) -> Option<FullWindow> {
    run.by_connections()?;
    let window = run
        .paths
        .iter()
        .filter_map(|path| path.own_window_bytes)
        .max()? as f64;
    let used = (USED_MIN..USED_MAX).contains(&(on_the_way / window));
    used.then_some(FullWindow {
        bytes: on_the_way,
        whose: Whose::OurReceive,
    })
}

/// The minimum ratio. If windows are the limit, four connections are four times as fast as one, or as fast as
/// the link.
const CONNECTIONS_MIN: f64 = 1.3;
/// The minimum increase of a NOP's time, as a share of the round trip: a full window of data is sent before
/// the response, which takes a round trip.
const NOP_QUEUE_MIN: f64 = 0.5;
/// The maximum relative error of the rate. With a fixed window, the rate is the same in every round; with a
/// window that still grows, it is not.
const STEADY_MAX: f64 = 0.15;
