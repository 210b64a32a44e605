//! Computes the time of each layer from the probes, as the input of the model.
//!
//! If a layer was not measured, its time is part of the next deeper layer's time, so that no finding is based
//! on missing measurements.

use super::patterns::{self, Spread};
use super::{Evidence, Known, Timed};
use crate::patterns::Estimate;
use model::{Direction, Keys, Load, Path};

/// The times of the layers of an idle path, in seconds.
pub(super) struct Layers {
    /// TCP's round trip: the mean of all connections, because commands use the connections in rotation.
    pub(super) round_trip_s: f64,
    /// The time of a NOP: the round trip, plus the time of both ends for a PDU. `None` if an NBD server takes
    /// so long that it must have accessed its storage.
    pub(super) nop: Option<Estimate>,
    /// As `nop`, but including times in which an NBD server accessed its storage.
    probe: Option<Estimate>,
    /// The distribution of NOP times.
    pub(super) nop_spread: Option<Spread>,
    /// The share of the time in which the target does not respond to any request.
    pub(super) away: f64,
    /// The time of TEST UNIT READY.
    pub(super) unit_ready: Option<Estimate>,
    /// The times of READs by length in bytes, the shortest first.
    pub(super) reads: Vec<(f64, Estimate)>,
    /// The time by which a usual TCP handshake without a load exceeds the shortest round trip, in seconds. The kernels of
    /// both ends answer handshakes, so that this is the path's.
    pub(super) jitter_s: f64,
    /// The times of WRITEs by length in bytes, the shortest first.
    pub(super) writes: Vec<(f64, Estimate)>,
    /// The time of a byte of a NOP's data, which the target returns, in seconds.
    pub(super) ping_s: Option<f64>,
    /// The additional time of a READ of blocks that have not been read before.
    pub(super) seek_s: f64,
    /// The additional time of a durable WRITE.
    pub(super) flush_s: f64,
    /// The additional time of a WRITE that is not a whole number of physical blocks.
    pub(super) short_s: f64,
    physical_block_bytes: u32,
}

/// Returns the median time of a probe, if it was measured and is plausible.
pub(super) fn median(probe: &Known<Timed>) -> Option<Estimate> {
    match probe {
        Known::Measured(timed) => Estimate::of_times(timed),
        Known::Unknown(_) => None,
    }
}

fn spread(probe: &Known<Timed>) -> Option<Spread> {
    match probe {
        Known::Measured(timed) => patterns::spread(&timed.times),
        Known::Unknown(_) => None,
    }
}

/// Returns the share of the time in which the target is unresponsive: the minimum over NOPs, TEST UNIT READY,
/// reads and loads of single requests. An unresponsive target delays all of these equally. A medium that is
/// sometimes slow, or a single disturbance, affects only some of them.
fn away(evidence: &Evidence) -> f64 {
    let ladder = &evidence.ladder;
    let probes = [&ladder.nop, &ladder.test_unit_ready, &ladder.cached_read]
        .into_iter()
        .map(spread);
    let single = evidence.loads.iter().filter(|run| run.load.depth == 1);
    let all = probes.chain(single.map(|run| patterns::spread(&run.service)));
    all.flatten()
        .map(|spread| spread.away)
        .fold(None, least)
        .unwrap_or(0.0)
}

fn least(so_far: Option<f64>, next: f64) -> Option<f64> {
    Some(so_far.map_or(next, |least| least.min(next)))
}

impl Layers {
    pub(super) fn of(evidence: &Evidence) -> Layers {
        let ladder = &evidence.ladder;
        let probe = median(&ladder.nop);
        let round_trip_s = round_trip(evidence, probe);
        let nop =
            probe.filter(|nop| evidence.nbd.is_none() || nop.value - round_trip_s < STATUS_MAX_S);
        let reads = by_length(
            &ladder.cached_read,
            evidence.storage.block_bytes,
            &ladder.cached_reads,
        );
        let writes = by_length(
            &ladder.write,
            evidence.storage.physical_block_bytes,
            &ladder.writes,
        );
        let more = |deeper: &Known<Timed>, than: Option<Estimate>| match (median(deeper), than) {
            (Some(deeper), Some(than)) => Some((deeper.value - than.value).max(0.0)),
            _ => None,
        };
        let write = median(&ladder.write);
        Layers {
            round_trip_s,
            jitter_s: median(&evidence.connect)
                .map_or(0.0, |connect| (connect.value - round_trip_s).max(0.0)),
            nop,
            probe,
            nop_spread: spread(&ladder.nop)
                .or_else(|| spread(&ladder.cached_read).filter(|_| evidence.nbd.is_some())),
            away: away(evidence),
            unit_ready: median(&ladder.test_unit_ready),
            ping_s: probe.and_then(|nop| ping_s(evidence, nop)),
            seek_s: more(&ladder.medium_read, median(&ladder.cached_read)).unwrap_or(0.0),
            flush_s: more(&ladder.durable_write, write)
                .or(median(&ladder.flush).map(|flush| flush.value))
                .unwrap_or(0.0),
            short_s: more(&ladder.short_write, write).unwrap_or(0.0),
            physical_block_bytes: evidence.storage.physical_block_bytes,
            reads,
            writes,
        }
    }

    /// Returns the time of one exchange: a NOP, or the round trip if that is unknown.
    pub(super) fn exchange_s(&self) -> f64 {
        self.nop
            .map_or(self.round_trip_s, |nop| nop.value.max(self.round_trip_s))
    }

    /// Returns the time that the probe sent during loads takes on an idle path.
    pub(super) fn probe_s(&self) -> f64 {
        self.probe.map_or(self.round_trip_s, |probe| {
            probe.value.max(self.round_trip_s)
        })
    }

    /// Returns the target's time for a command without data, in addition to a NOP.
    pub(super) fn dispatch_s(&self) -> f64 {
        self.unit_ready
            .map_or(0.0, |ready| (ready.value - self.exchange_s()).max(0.0))
    }

    /// Returns the time of a single command of this length and direction, without a seek and without a flush.
    pub(super) fn alone_s(&self, direction: Direction, bytes: u32) -> Option<f64> {
        let known = match direction {
            Direction::Read => &self.reads,
            Direction::Write => &self.writes,
        };
        on_the_line(known, f64::from(bytes))
    }

    /// Returns the rate of additional data of a single long command, in bytes per second.
    pub(super) fn data_per_s(&self, direction: Direction) -> Option<f64> {
        let known = match direction {
            Direction::Read => &self.reads,
            Direction::Write => &self.writes,
        };
        let [.., (shorter, less), (longer, more)] = known[..] else {
            return None;
        };
        (more.value > less.value).then(|| (longer - shorter) / (more.value - less.value))
    }

    /// Returns the time of the shortest command with data, in addition to its exchanges: the target's work
    /// and the medium.
    fn command_s(&self, direction: Direction, keys: &Keys) -> f64 {
        let shortest = match direction {
            Direction::Read => self.reads.first(),
            Direction::Write => self.writes.first(),
        };
        let Some(&(bytes, time)) = shortest else {
            return self.dispatch_s();
        };
        let exchanges = f64::from(keys.exchanges(direction, bytes as u32));
        (time.value - exchanges * self.exchange_s()).max(0.0)
    }

    /// Whether the load consists of writes that are not a multiple of the physical block.
    pub(super) fn short_of_a_block(&self, load: &Load) -> bool {
        load.direction == Direction::Write
            && !load
                .block_bytes
                .is_multiple_of(self.physical_block_bytes.max(1))
    }

    /// Returns the path with these layers, for a load. Limits on concurrent commands are missing, because an
    /// idle path does not show them.
    pub(super) fn path(&self, load: &Load, keys: &Keys, connections: u16) -> Path {
        let command_s = self.command_s(load.direction, keys);
        let exchanges = f64::from(keys.exchanges(load.direction, load.block_bytes));
        let whole_s = self.alone_s(load.direction, load.block_bytes);
        let data_s = whole_s.map(|whole_s| whole_s - exchanges * self.exchange_s() - command_s);
        let more_s = match (load.direction, load.durable) {
            (Direction::Read, _) if load.random => self.seek_s,
            (Direction::Write, true) => self.flush_s,
            _ if self.short_of_a_block(load) => self.short_s,
            _ => 0.0,
        };
        Path {
            round_trip_s: self.round_trip_s,
            exchange_s: self.exchange_s() - self.round_trip_s,
            command_s: command_s + more_s,
            copy_per_s: data_s
                .filter(|data_s| *data_s > NOTHING_S)
                .map(|data_s| f64::from(load.block_bytes) / data_s),
            connections,
            ..Path::of_round_trip(self.round_trip_s)
        }
    }
}

/// The maximum time of an NBD server for a BLOCK_STATUS that does not access its storage. A longer time
/// includes the storage, which may be the slow component.
const STATUS_MAX_S: f64 = 0.001;
/// A shorter time counts as zero: medians of a few hundred probes do not distinguish them.
const NOTHING_S: f64 = 1e-6;

/// Returns the time of a byte of a NOP's data, in seconds: the least of all lengths, because a small congestion window
/// adds a round trip to a longer NOP. Times that differ by less than their intervals, as with jitter, count as equal.
fn ping_s(evidence: &Evidence, nop: Estimate) -> Option<f64> {
    let each = evidence
        .ladder
        .nop_with_data
        .iter()
        .filter_map(|(bytes, probe)| {
            Some((median(probe)?.low - nop.high).max(0.0) / f64::from((*bytes).max(1)))
        });
    each.min_by(f64::total_cmp)
}

/// Returns TCP's shortest round trip, which includes neither a queue nor a delayed acknowledgement. If the
/// kernel does not report it, the time of a NOP is an upper bound.
fn round_trip(evidence: &Evidence, nop: Option<Estimate>) -> f64 {
    let each: Vec<f64> = evidence
        .paths
        .iter()
        .map(|path| {
            let own_nop_us = median(&path.nop).map(|nop| nop.value * 1e6);
            let told_us = path.round_trip_min_us.unwrap_or(path.round_trip_us);
            own_nop_us.map_or(told_us, |nop_us| nop_us.min(told_us))
        })
        .filter(|us| us.is_finite() && *us > 0.0)
        .collect();
    let told_s = stats::mean(&each) / 1e6;
    let least_s = nop.map_or(f64::INFINITY, |nop| nop.value);
    match told_s {
        told_s if told_s > 0.0 => told_s.min(least_s),
        _ => [
            median(&evidence.connect).map(|connect| connect.value),
            nop.map(|nop| nop.value),
        ]
        .into_iter()
        .flatten()
        .fold(f64::INFINITY, f64::min)
        .min(LONGEST_S),
    }
}

/// The round trip that is assumed if none was measured.
const LONGEST_S: f64 = 1.0;

/// Returns times by length, the shortest length first. If a length was measured twice, the time from `series`
/// is used.
fn by_length(
    one_block: &Known<Timed>,
    block_bytes: u32,
    series: &[(u32, Known<Timed>)],
) -> Vec<(f64, Estimate)> {
    let all = series
        .iter()
        .map(|(bytes, probe)| (*bytes, probe))
        .chain([(block_bytes, one_block)]);
    let mut known: Vec<(f64, Estimate)> = all
        .filter_map(|(bytes, probe)| Some((f64::from(bytes), median(probe)?)))
        .collect();
    known.sort_by(|one, other| one.0.total_cmp(&other.0));
    known.dedup_by(|later, earlier| later.0 == earlier.0);
    known
}

/// Returns the time for any length, interpolated between two measured lengths, or extrapolated from the two
/// nearest.
fn on_the_line(known: &[(f64, Estimate)], bytes: f64) -> Option<f64> {
    let at = known
        .partition_point(|(length, _)| *length < bytes)
        .clamp(1, known.len().max(2) - 1);
    match (known.get(at - 1), known.get(at)) {
        (Some(&(shorter, less)), Some(&(longer, more))) => {
            let slope = ((more.value - less.value) / (longer - shorter)).max(0.0);
            Some((less.value + slope * (bytes - shorter)).max(0.0))
        }
        (Some((_, only)), None) => Some(only.value),
        _ => None,
    }
}
