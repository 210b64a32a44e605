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
        ("NOP", &ladder.nop),
        ("TEST UNIT READY", &ladder.test_unit_ready),
        ("READ of the same block", &ladder.cached_read),
        ("READ at new places", &ladder.medium_read),
        ("WRITE", &ladder.write),
        ("WRITE with FUA", &ladder.durable_write),
        ("SYNCHRONIZE CACHE", &ladder.flush),
        ("WRITE shorter than the physical block", &ladder.short_write),
    ];
    let link = why(&evidence.link).map(|why| ("the interface".to_owned(), why));
    let rungs = rungs.into_iter().filter_map(|(name, known)| Some((name.to_owned(), why(known)?)));
    let loads = evidence.loads.iter().filter_map(|run| {
        let name = format!("NOP beside {}", words::load(&run.load));
        Some((name, why(&run.nop)?))
    });
    link.into_iter().chain(rungs).chain(loads).collect()
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
