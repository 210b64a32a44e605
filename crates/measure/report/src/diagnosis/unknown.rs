//! What is not known, and why: layers that a target would not show, loads that failed, and what was not allowed.

use super::words;
use diagnose::{Evidence, Known, LoadRun};

/// A sentence for each reason, with all that it kept from being known, in the order of the layers; then what failed.
pub(super) fn unknown(evidence: &Evidence) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for (what, why) in gaps(evidence) {
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(what),
            None => reasons.push((why, vec![what])),
        }
    }
    let gaps = reasons.into_iter().map(|(why, names)| format!("Not known: {}: {why}", names.join(", ")));
    gaps.chain(evidence.loads.iter().filter_map(failed)).collect()
}

/// What could not be measured, each with its reason.
fn gaps(evidence: &Evidence) -> Vec<(String, &str)> {
    let ladder = &evidence.ladder;
    let rungs = [
        ("connect", &evidence.connect),
        (words::shortest(evidence), &ladder.nop),
        ("TEST UNIT READY", &ladder.test_unit_ready),
        ("READ of the same block", &ladder.cached_read),
        ("READ at new places", &ladder.medium_read),
        ("WRITE", &ladder.write),
        ("WRITE with FUA", &ladder.durable_write),
        (words::flush(evidence), &ladder.flush),
        ("WRITE shorter than the physical block", &ladder.short_write),
    ];
    let link = why(&evidence.link).map(|why| ("the interface".to_owned(), why));
    // They are not asked of NBD, and nothing is missing for it.
    let rungs = rungs
        .into_iter()
        .filter(|(name, _)| evidence.nbd.is_none() || !["connect", "TEST UNIT READY"].contains(name));
    let rungs = rungs.filter_map(|(name, known)| Some((name.to_owned(), why(known)?)));
    let loads = evidence.loads.iter().filter_map(|run| {
        let name = format!("{} beside {}", words::shortest(evidence), words::load(&run.load));
        Some((name, why(&run.nop)?))
    });
    let beside = evidence.loads.iter().flat_map(|run| {
        let besides = run.beside.iter().filter(|beside| beside.pairs.is_empty());
        besides.filter_map(|beside| {
            Some((
                format!("{} {}", words::load(&run.load), words::otherwise(beside.otherwise)),
                beside.first_failure.as_deref()?,
            ))
        })
    });
    link.into_iter().chain(rungs).chain(loads).chain(beside).collect()
}

fn why<T>(known: &Known<T>) -> Option<&str> {
    match known {
        Known::Measured(_) => None,
        Known::Unknown(why) => Some(why),
    }
}

fn failed(run: &LoadRun) -> Option<String> {
    let first = run.first_failure.as_ref().map(|first| format!("; the first: {first}")).unwrap_or_default();
    let requests = if run.errors == 1 { "request" } else { "requests" };
    (run.errors > 0).then(|| format!("{}: {} {requests} failed{first}", words::load(&run.load), run.errors))
}
