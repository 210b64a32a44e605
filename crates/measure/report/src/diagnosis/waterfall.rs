//! The time of a single request by layer. Each layer's time is the additional time of one rung of the ladder.
//!
//! ```text
//!   TCP round trip    ████
//!   PDU handling          █▌
//!   SCSI dispatch           ▌
//!   data path                ██
//!   medium                     ███████████
//! ```
//!
//! If a rung is unknown, its layer is merged into the layer of the next known rung. If a rung is faster than
//! the previous one, which noise can cause, its layer has the length zero.

use diagnose::{Evidence, Known, LoadRun, Timed};
use model::Direction;
use readable::figures::size;

use crate::diagnosis::words;

/// The time of one request, layer by layer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Waterfall {
    /// The name of the request: `a read of 4 KiB`.
    pub(super) request: String,
    /// The direction of the request's data.
    pub(super) direction: Direction,
    /// The layers, from the network to the medium.
    pub(super) steps: Vec<Step>,
}

/// The time of one layer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    /// The name of the layer; several names if the layers before it are unknown.
    pub(super) layer: String,
    /// The index of the layer among all layers, from the network to the medium. It is the same for reads and
    /// writes.
    pub(super) rank: usize,
    /// The start of the layer's time, in microseconds from the start of the request.
    pub(super) from_us: f64,
    /// The end of the layer's time, in microseconds from the start of the request.
    pub(super) to_us: f64,
    /// The uncertainty of `to_us`, to each side: half of the 95 % interval of the difference.
    pub(super) give_us: f64,
    /// Whether the time was computed from the negotiated keys instead of being measured.
    pub(super) reckoned: bool,
}

/// The total time of a request that reaches a layer.
struct Rung {
    layer: &'static str,
    rank: usize,
    until: Option<Until>,
    reckoned: bool,
}

#[derive(Clone, Copy)]
struct Until {
    us: f64,
    give_us: f64,
}

impl Step {
    /// Returns the time of the layer, in microseconds.
    pub(super) fn takes_us(&self) -> f64 {
        self.to_us - self.from_us
    }

    /// Returns whether the time is zero within the measurement error.
    pub(super) fn is_noise(&self) -> bool {
        self.takes_us() <= self.give_us
    }
}

impl Waterfall {
    /// Returns the total time, in microseconds.
    pub(super) fn whole_us(&self) -> f64 {
        self.steps.last().map_or(0.0, |step| step.to_us)
    }
}

/// Returns the waterfalls of a read, of a write and of a durable write. Omits waterfalls that were not
/// measured.
pub(super) fn waterfalls(evidence: &Evidence) -> Vec<Waterfall> {
    let storage = &evidence.storage;
    let read = format!("a read of {}", size(f64::from(storage.block_bytes)));
    let write = format!(
        "a durable write of {}",
        size(f64::from(written_bytes(evidence)))
    );
    let both = [
        (read, Direction::Read, steps(reading(evidence))),
        (write, Direction::Write, steps(writing(evidence))),
    ];
    let waterfall = |(request, direction, steps)| Waterfall {
        request,
        direction,
        steps,
    };
    both.map(waterfall)
        .into_iter()
        .filter(|waterfall| !waterfall.steps.is_empty())
        .collect()
}

fn reading(evidence: &Evidence) -> Vec<Rung> {
    let ladder = &evidence.ladder;
    let mut rungs = to_the_target(evidence);
    rungs.push(rung(4, "data path", &ladder.cached_read));
    rungs.push(rung(5, "medium", &ladder.medium_read));
    rungs
}

/// Returns the rungs of a write. If no write was measured, there are none: the path alone is already part of
/// the read.
fn writing(evidence: &Evidence) -> Vec<Rung> {
    let ladder = &evidence.ladder;
    if measured(&ladder.write).is_none() && measured(&ladder.durable_write).is_none() {
        return Vec::new();
    }
    let mut rungs = to_the_target(evidence);
    rungs.extend(solicitation(evidence));
    rungs.push(rung(4, "data path and cache", &ladder.write));
    rungs.push(Rung {
        layer: "to stable storage",
        rank: 5,
        until: durable(evidence),
        reckoned: false,
    });
    rungs
}

/// Returns the rungs that all requests have in common: the path, and the handling of the PDU.
fn to_the_target(evidence: &Evidence) -> Vec<Rung> {
    let ladder = &evidence.ladder;
    let shortest = evidence
        .paths
        .iter()
        .map(|path| path.round_trip_min_us.unwrap_or(path.round_trip_us));
    let shortest = shortest
        .filter(|us| us.is_finite() && *us > 0.0)
        .min_by(f64::total_cmp);
    // If a NOP is faster than TCP's round trip, use the NOP's time, since the kernel's value is less precise.
    let nop = measured(&ladder.nop).map_or(f64::INFINITY, |nop| nop.us);
    let way = shortest.map(|us| Until {
        us: us.min(nop),
        give_us: 0.0,
    });
    let way = Rung {
        layer: "TCP round trip",
        rank: 0,
        until: way,
        reckoned: false,
    };
    match &evidence.nbd {
        None => {
            vec![
                way,
                rung(1, "PDU handling", &ladder.nop),
                rung(2, "SCSI dispatch", &ladder.test_unit_ready),
            ]
        }
        Some(session) if session.unix_socket => vec![rung(1, "socket and server", &ladder.nop)],
        Some(_) => vec![way, rung(1, "request handling", &ladder.nop)],
    }
}

/// Returns the time that a write waits for R2Ts, if it does: one NOP for each wait.
fn solicitation(evidence: &Evidence) -> Option<Rung> {
    let exchanges = evidence
        .got?
        .exchanges(Direction::Write, written_bytes(evidence));
    let ladder = &evidence.ladder;
    let (nop, ready) = (measured(&ladder.nop)?, measured(&ladder.test_unit_ready)?);
    let most = measured(&ladder.write)
        .or(durable(evidence))
        .map_or(f64::INFINITY, |write| write.us);
    let us = (ready.us + nop.us * f64::from(exchanges - 1)).min(most);
    let until = Some(Until {
        us,
        give_us: ready.give_us.hypot(nop.give_us),
    });
    (exchanges > 1).then_some(Rung {
        layer: "waiting for R2Ts",
        rank: 3,
        until,
        reckoned: true,
    })
}

/// Returns the time until a write is on stable storage: with FUA, or otherwise with a SYNCHRONIZE CACHE after
/// the write.
fn durable(evidence: &Evidence) -> Option<Until> {
    let ladder = &evidence.ladder;
    let flushed = || {
        let (write, flush) = (measured(&ladder.write)?, measured(&ladder.flush)?);
        Some(Until {
            us: write.us + flush.us,
            give_us: write.give_us.hypot(flush.give_us),
        })
    };
    measured(&ladder.durable_write).or_else(flushed)
}

fn written_bytes(evidence: &Evidence) -> u32 {
    evidence
        .storage
        .physical_block_bytes
        .max(evidence.storage.block_bytes)
}

fn rung(rank: usize, layer: &'static str, known: &Known<Timed>) -> Rung {
    Rung {
        layer,
        rank,
        until: measured(known),
        reckoned: false,
    }
}

fn measured(known: &Known<Timed>) -> Option<Until> {
    match known {
        Known::Measured(timed) if timed.median_us.is_finite() => {
            let give_us = (timed.high_us - timed.low_us) / 2.0;
            Some(Until {
                us: timed.median_us,
                give_us: if give_us > 0.0 { give_us } else { 0.0 },
            })
        }
        _ => None,
    }
}

/// Returns the differences between the known rungs.
fn steps(rungs: Vec<Rung>) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut layers: Vec<&str> = Vec::new();
    let mut before = Until {
        us: 0.0,
        give_us: 0.0,
    };
    for rung in rungs {
        layers.push(rung.layer);
        let Some(until) = rung.until else { continue };
        steps.push(Step {
            layer: layers.join(" + "),
            rank: rung.rank,
            from_us: before.us,
            to_us: until.us.max(before.us),
            give_us: until.give_us.hypot(before.give_us),
            reckoned: rung.reckoned,
        });
        layers.clear();
        before = Until {
            us: until.us.max(before.us),
            ..until
        };
    }
    steps
}

// Unknown values with the reasons: layers that a target does not expose, failed loads, and writes that were
// not allowed.

/// Returns one sentence for each reason, with all values that it affects, in the order of the layers. Load
/// failures follow.
pub(super) fn unknown(evidence: &Evidence) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for (what, why) in gaps(evidence) {
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(what),
            None => reasons.push((why, vec![what])),
        }
    }
    let gaps = reasons
        .into_iter()
        .map(|(why, names)| format!("Unknown: {}: {why}", names.join(", ")));
    gaps.chain(evidence.loads.iter().filter_map(failed))
        .collect()
}

/// Returns the missing measurements, each with its reason.
fn gaps(evidence: &Evidence) -> Vec<(String, &str)> {
    let ladder = &evidence.ladder;
    let rungs = [
        ("connect", &evidence.connect),
        (words::shortest(evidence), &ladder.nop),
        ("TEST UNIT READY", &ladder.test_unit_ready),
        ("READ of the same block", &ladder.cached_read),
        ("READ of new blocks", &ladder.medium_read),
        ("WRITE", &ladder.write),
        ("WRITE with FUA", &ladder.durable_write),
        (words::flush(evidence), &ladder.flush),
        ("WRITE shorter than the physical block", &ladder.short_write),
    ];
    let link = why(&evidence.link).map(|why| ("the interface".to_owned(), why));
    // NBD does not have these requests, so they are not missing.
    let rungs = rungs.into_iter().filter(|(name, _)| {
        evidence.nbd.is_none() || !["connect", "TEST UNIT READY"].contains(name)
    });
    let rungs = rungs.filter_map(|(name, known)| Some((name.to_owned(), why(known)?)));
    let loads = evidence.loads.iter().filter_map(|run| {
        let name = format!(
            "{} during {}",
            words::shortest(evidence),
            words::load(&run.load)
        );
        Some((name, why(&run.nop)?))
    });
    let beside = evidence.loads.iter().flat_map(|run| {
        let besides = run.beside.iter().filter(|beside| beside.pairs.is_empty());
        besides.filter_map(|beside| {
            Some((
                format!(
                    "{} {}",
                    words::load(&run.load),
                    words::otherwise(beside.otherwise)
                ),
                beside.first_failure.as_deref()?,
            ))
        })
    });
    link.into_iter()
        .chain(rungs)
        .chain(loads)
        .chain(beside)
        .collect()
}

fn why<T>(known: &Known<T>) -> Option<&str> {
    match known {
        Known::Measured(_) => None,
        Known::Unknown(why) => Some(why),
    }
}

fn failed(run: &LoadRun) -> Option<String> {
    let first = run
        .first_failure
        .as_ref()
        .map(|first| format!("; the first: {first}"))
        .unwrap_or_default();
    let requests = if run.errors == 1 {
        "request"
    } else {
        "requests"
    };
    (run.errors > 0).then(|| {
        format!(
            "{}: {} {requests} failed{first}",
            words::load(&run.load),
            run.errors
        )
    })
}
