//! Which of the causes are told, and the verdict.

use model::Term;
use stats::{median, median_interval};

use crate::case::Case;
use crate::causes::Found;
use crate::ceiling::Ceiling;
use crate::finding::GAIN_MIN;
use crate::layers::Layers;
use crate::{Cause, Confirmed, Diagnosis, Evidence, Finding, Verdict, causes};

/// More are not read.
const FINDINGS_MAX: usize = 3;

/// What follows from what was measured.
///
/// If the person named a load, findings are about that; otherwise about any of those that were put on the path. The same
/// evidence gives the same diagnosis.
pub fn diagnose(evidence: Evidence) -> Diagnosis {
    let layers = Layers::of(&evidence);
    let ceiling = Ceiling::of(&evidence, &layers);
    let cases: Vec<Case<'_>> =
        (0..evidence.loads.len()).filter_map(|index| Case::of(&evidence, &layers, &ceiling, index)).collect();
    let asked = asked_about(&cases);
    let findings = settle(found(&evidence, &asked));
    let verdict = verdict(&findings, &asked);
    let explained = (0..evidence.loads.len())
        .map(|index| {
            cases.iter().find(|case| case.index == index).map_or_else(Default::default, Case::explained)
        })
        .collect();
    Diagnosis { explained, findings, verdict, evidence }
}

/// The loads that the question is about.
fn asked_about<'a, 'b>(cases: &'a [Case<'b>]) -> Vec<&'a Case<'b>> {
    let named: Vec<_> = cases.iter().filter(|case| case.run.named).collect();
    if named.is_empty() { cases.iter().collect() } else { named }
}

/// Each cause once, with the load that suffers most.
fn found(evidence: &Evidence, cases: &[&Case<'_>]) -> Vec<Finding> {
    let vanished = causes::long_packets(evidence).map(|found| finding(found, 0));
    let worst = causes::ALL.iter().filter_map(|find| {
        let of_loads =
            cases.iter().filter_map(|case| Some(finding(causes::told(find(case)?, case), case.index)));
        of_loads.filter(worth_it).max_by(|one, other| size(one).total_cmp(&size(other)))
    });
    vanished.into_iter().chain(worst).collect()
}

fn finding(found: Found, load: usize) -> Finding {
    let Found { cause, because, gain, remedies, trial } = found;
    Finding { cause, load, because, gain, remedies, trial }
}

/// The gain, as large as it is; what does not go at all would gain most.
fn size(finding: &Finding) -> f64 {
    finding.gain.predicted.unwrap_or(f64::INFINITY)
}

/// Something is to be gained, and not only because measurements scatter.
fn worth_it(finding: &Finding) -> bool {
    size(finding) >= GAIN_MIN && finding.gain.low > 1.0
}

/// What looks like something else beside: the first of two is the cause, and the second its shadow.
const SHADOWS: [(Cause, Cause); 16] = [
    // Who has no CPU sees everything late.
    (Cause::ClientCpu, Cause::Medium),
    (Cause::ClientCpu, Cause::Flush),
    (Cause::TargetCpu, Cause::Medium),
    (Cause::TargetCpu, Cause::Flush),
    // A stall of 40 ms is in every probe that it hits.
    (Cause::DelayedAck, Cause::Medium),
    (Cause::DelayedAck, Cause::TargetCpu),
    (Cause::DelayedAck, Cause::Flush),
    // Two ways in turn are a wide spread, and the slow one fills first.
    (Cause::SlowPath, Cause::TargetCpu),
    (Cause::SlowPath, Cause::Medium),
    (Cause::SlowPath, Cause::LinkRate),
    (Cause::SlowPath, Cause::TcpWindow),
    (Cause::SlowPath, Cause::DelayedAck),
    // What TCP lets be on the way after a loss is a small window too.
    (Cause::Loss, Cause::TcpWindow),
    (Cause::Loss, Cause::DelayedAck),
    // Several connections have several windows, each with losses of its own.
    (Cause::TcpWindow, Cause::Connections),
    (Cause::Loss, Cause::Connections),
];

/// The greatest gains, without what only looks like something.
fn settle(mut findings: Vec<Finding>) -> Vec<Finding> {
    let causes: Vec<Cause> = findings.iter().map(|finding| finding.cause).collect();
    findings.retain(|finding| {
        !SHADOWS.iter().any(|(cause, shadow)| *shadow == finding.cause && causes.contains(cause))
    });
    findings.sort_by(|one, other| {
        rank(one, &causes).cmp(&rank(other, &causes)).then(size(other).total_cmp(&size(one)))
    });
    findings.truncate(FINDINGS_MAX);
    findings
}

/// What is wrong with the path comes before what the load could do about it; and writes that go to the medium twice for
/// nothing before the medium, which would have to be bought.
fn rank(finding: &Finding, causes: &[Cause]) -> u8 {
    match finding.cause {
        Cause::Depth => 2,
        Cause::Medium if causes.contains(&Cause::Misalignment) => 1,
        _ => 0,
    }
}

/// What of a limit has to be reached for the path to be fine: what the model leaves open, and what rounds scatter by.
const FINE_MIN: f64 = 0.7;

/// A rate whose interval is this much of it to either side may as well be none: causes hide in it, and no share of a limit
/// means anything.
const UNCERTAIN_MIN: f64 = 1.0;

fn verdict(findings: &[Finding], cases: &[&Case<'_>]) -> Verdict {
    if !findings.is_empty() {
        return Verdict::HeldBack;
    }
    let least_known = cases.iter().map(|case| case.rate.uncertainty()).fold(0.0, f64::max);
    if least_known >= UNCERTAIN_MIN {
        return Verdict::Uncertain { interval: least_known };
    }
    let share = |case: &Case<'_>| case.rate.value / case.modelled.bytes_per_s;
    // The link first: no other limit is as hard to move.
    let at_link = cases.iter().filter(|case| case.modelled.binding() == Some(Term::Link));
    let best = at_link
        .max_by(|one, other| share(one).total_cmp(&share(other)))
        .filter(|case| share(case) >= FINE_MIN);
    let Some(case) = best.or(cases.first()) else { return Verdict::NotKnown { unexplained: 1.0 } };
    match case.modelled.binding() {
        Some(term) if share(case) >= FINE_MIN => Verdict::Fine { term, share: share(case) },
        _ => Verdict::NotKnown { unexplained: (1.0 - share(case)).clamp(0.0, 1.0) },
    }
}

// What came of trying a change.

/// From rounds in pairs, the first of each without the change and the second with it, one right behind the other: the
/// median of their ratios, and its 95 % interval. What drifts while all this is measured changes both rounds of a pair.
///
/// `None` if fewer than three pairs say anything: a round in which nothing got through has no ratio.
pub fn confirmed(pairs: &[(f64, f64)]) -> Option<Confirmed> {
    // Ratios scatter evenly around their median only as logarithms.
    let logs: Vec<f64> =
        pairs.iter().map(|(without, with)| (with / without).ln()).filter(|log| log.is_finite()).collect();
    if logs.len() < PAIRS_MIN {
        return None;
    }
    let interval = median_interval(&logs)?;
    Some(Confirmed { ratio: median(&logs).exp(), low: interval.low.exp(), high: interval.high.exp() })
}

const PAIRS_MIN: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_in_which_nothing_got_through_have_no_ratio() {
        assert_eq!(confirmed(&[]), None);
        assert_eq!(confirmed(&[(0.0, 5.0), (0.0, 5.0), (0.0, 5.0), (1.0, 0.0)]), None);
        assert_eq!(confirmed(&[(1.0, 2.0), (1.0, 2.0)]), None);
    }

    #[test]
    fn a_drift_that_both_rounds_of_a_pair_share_is_not_in_the_ratio() {
        let pairs: Vec<(f64, f64)> = (1..=7).map(|n| (f64::from(n), 1.5 * f64::from(n))).collect();
        let tried = confirmed(&pairs).expect("seven pairs");
        for end in [tried.ratio, tried.low, tried.high] {
            assert!((end - 1.5).abs() < 1e-9, "{tried:?}");
        }
    }

    #[test]
    fn one_pair_that_went_wrong_moves_neither_the_ratio_nor_much_of_the_interval() {
        let mut pairs =
            vec![(10.0, 19.0), (10.0, 20.0), (10.0, 21.0), (10.0, 19.5), (10.0, 20.5), (10.0, 20.0)];
        pairs.extend([(10.0, 20.2), (10.0, 19.8), (10.0, 1.0)]);
        let tried = confirmed(&pairs).expect("nine pairs");
        assert!((1.95..2.05).contains(&tried.ratio) && tried.low > 1.85 && tried.high < 2.15, "{tried:?}");
    }
}
