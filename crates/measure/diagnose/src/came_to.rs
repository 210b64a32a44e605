//! What a load came to, in bytes a second.

use super::estimate::Estimate;
use super::{Evidence, LoadRun, PathUnderLoad, roof};
use model::Direction;

/// Requests one after the other in each place of the queue, from which a batch more or less no longer counts.
const REQUESTS_MIN: f64 = 4.0;
/// What acknowledgements that are late, and segments sent twice, make of TCP's counters.
const MOVED_ERROR: f64 = 0.05;

/// The median of the rounds; or, where requests take so long that a round has one or two of each place of the queue, and
/// so whole batches of them or none, what TCP moved meanwhile. `None` if that is nothing.
pub(super) fn rate(evidence: &Evidence, run: &LoadRun) -> Option<Estimate> {
    let rounds = Estimate::of_rounds(&run.bytes_per_s);
    match requests_of_a_place(run) >= REQUESTS_MIN {
        true => rounds,
        false => moved(evidence, run).or(rounds),
    }
}

/// How many requests a place of the queue had in a round.
fn requests_of_a_place(run: &LoadRun) -> f64 {
    let places = f64::from(run.load.depth.max(1)) * run.bytes_per_s.len().max(1) as f64;
    run.service.count() as f64 / places
}

fn moved(evidence: &Evidence, run: &LoadRun) -> Option<Estimate> {
    let bytes = |path: &PathUnderLoad| match run.load.direction {
        Direction::Read => path.received_bytes as f64,
        Direction::Write => path.sent_bytes as f64,
    };
    let data = run.paths.iter().map(bytes).sum::<f64>() * roof::data_share(&run.load, &evidence.keys());
    let value =
        data / (round_s(evidence)? * run.bytes_per_s.len() as f64) * without_a_slow_round(&run.bytes_per_s);
    let block = f64::from(run.load.block_bytes);
    // Less than a request a round is the chatter of NOPs.
    let is_load = data >= block * run.bytes_per_s.len() as f64;
    (is_load && value.is_finite()).then_some(Estimate {
        value,
        low: value * (1.0 - MOVED_ERROR),
        high: value * (1.0 + MOVED_ERROR),
    })
}

/// What the median of the rounds is more than their mean: one in which windows had to open first counts less then.
fn without_a_slow_round(rates: &[f64]) -> f64 {
    let ratio = stats::median(rates) / stats::mean(rates);
    if ratio.is_finite() { ratio.clamp(1.0, SLOW_ROUND_MAX) } else { 1.0 }
}

/// Of six rounds one, of which nearly nothing counts.
const SLOW_ROUND_MAX: f64 = 1.15;

/// How long a round is counted: for all loads the same time, which follows from one that made many requests in it.
fn round_s(evidence: &Evidence) -> Option<f64> {
    let many = evidence.loads.iter().filter(|run| requests_of_a_place(run) >= REQUESTS_MIN);
    let busiest = many.max_by_key(|run| run.service.count())?;
    let bytes = busiest.service.count() as f64 * f64::from(busiest.load.block_bytes);
    let per_s: f64 = busiest.bytes_per_s.iter().sum();
    Some(bytes / per_s).filter(|seconds| *seconds > 0.0 && seconds.is_finite())
}
