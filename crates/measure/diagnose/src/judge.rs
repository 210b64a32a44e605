//! Selects the causes to report, and determines the verdict.

use model::Term;
use stats::{median, median_interval};

use crate::case::Case;
use crate::causes::Found;
use crate::ceiling::Ceiling;
use crate::finding::GAIN_MIN;
use crate::layers::Layers;
use crate::{Cause, Confirmed, Diagnosis, Evidence, Finding, Verdict, causes};

/// Maximum number of findings. Readers ignore longer lists.
const FINDINGS_MAX: usize = 3;

/// Draws conclusions from the measurements.
///
/// If the user specified a load, the findings are about that load; otherwise, about any measured load. The
/// same evidence always results in the same diagnosis.
pub fn diagnose(evidence: Evidence) -> Diagnosis {
    let layers = Layers::of(&evidence);
    let ceiling = Ceiling::of(&evidence, &layers);
    let cases: Vec<Case<'_>> = (0..evidence.loads.len())
        .filter_map(|index| Case::of(&evidence, &layers, &ceiling, index))
        .collect();
    let asked = asked_about(&cases);
    let findings = settle(found(&evidence, &asked));
    let verdict = verdict(&findings, &asked);
    let explained = (0..evidence.loads.len())
        .map(|index| {
            cases
                .iter()
                .find(|case| case.index == index)
                .map_or_else(Default::default, Case::explained)
        })
        .collect();
    Diagnosis {
        explained,
        findings,
        verdict,
        evidence,
    }
}

/// Returns the loads to explain.
fn asked_about<'a, 'b>(cases: &'a [Case<'b>]) -> Vec<&'a Case<'b>> {
    let named: Vec<_> = cases.iter().filter(|case| case.run.named).collect();
    if named.is_empty() {
        cases.iter().collect()
    } else {
        named
    }
}

/// Returns each cause once, with the load that it affects most.
fn found(evidence: &Evidence, cases: &[&Case<'_>]) -> Vec<Finding> {
    let vanished = causes::long_packets(evidence).map(|found| finding(found, 0));
    let worst = causes::ALL.iter().filter_map(|find| {
        let of_loads = cases
            .iter()
            .filter_map(|case| Some(finding(causes::told(find(case)?, case), case.index)));
        of_loads
            .filter(worth_it)
            .max_by(|one, other| size(one).total_cmp(&size(other)))
    });
    vanished.into_iter().chain(worst).collect()
}

fn finding(found: Found, load: usize) -> Finding {
    let Found {
        cause,
        because,
        gain,
        remedies,
        trial,
    } = found;
    Finding {
        cause,
        load,
        because,
        gain,
        remedies,
        trial,
    }
}

/// Returns the predicted gain; infinite if nothing works at all.
fn size(finding: &Finding) -> f64 {
    finding.gain.predicted.unwrap_or(f64::INFINITY)
}

/// Whether the gain is large enough, and exceeds the scatter of the measurements.
fn worth_it(finding: &Finding) -> bool {
    size(finding) >= GAIN_MIN && finding.gain.low > 1.0
}

/// Causes that also produce the symptoms of others. In each pair, the first is the actual cause, and the
/// second is not reported.
const SHADOWS: [(Cause, Cause); 20] = [
    // Without CPU time, everything appears to be slow.
    (Cause::ClientCpu, Cause::Medium),
    (Cause::ClientCpu, Cause::Flush),
    (Cause::TargetCpu, Cause::Medium),
    (Cause::TargetCpu, Cause::Flush),
    // Without CPU time or with losses, requests stand still, too; over a slow path, they take many times as long.
    (Cause::ClientCpu, Cause::Stalls),
    (Cause::TargetCpu, Cause::Stalls),
    (Cause::Loss, Cause::Stalls),
    (Cause::SlowPath, Cause::Stalls),
    // A stall of 40 ms delays every probe that it affects.
    (Cause::DelayedAck, Cause::Medium),
    (Cause::DelayedAck, Cause::TargetCpu),
    (Cause::DelayedAck, Cause::Flush),
    // Two alternating paths produce a wide spread of times, and the slower one fills first.
    (Cause::SlowPath, Cause::TargetCpu),
    (Cause::SlowPath, Cause::Medium),
    (Cause::SlowPath, Cause::LinkRate),
    (Cause::SlowPath, Cause::TcpWindow),
    (Cause::SlowPath, Cause::DelayedAck),
    // After a loss, TCP's congestion window is small, which looks like a small window.
    (Cause::Loss, Cause::TcpWindow),
    (Cause::Loss, Cause::DelayedAck),
    // Several connections have several windows, and independent losses.
    (Cause::TcpWindow, Cause::Connections),
    (Cause::Loss, Cause::Connections),
];

/// The maximum gain of a finding, as a multiple of the gain of another cause, that this other cause explains.
const EXPLAINED_MAX: f64 = 1.5;

/// Returns the findings with the greatest gains, without those that another cause explains.
fn settle(mut findings: Vec<Finding>) -> Vec<Finding> {
    let sizes: Vec<(Cause, f64)> = findings
        .iter()
        .map(|finding| (finding.cause, size(finding)))
        .collect();
    let causes: Vec<Cause> = sizes.iter().map(|(cause, _)| *cause).collect();
    findings.retain(|finding| {
        let explains = |(cause, gain): &(Cause, f64)| {
            SHADOWS.contains(&(*cause, finding.cause)) && size(finding) <= gain * EXPLAINED_MAX
        };
        !sizes.iter().any(explains)
    });
    findings.sort_by(|one, other| {
        rank(one, &causes)
            .cmp(&rank(other, &causes))
            .then(size(other).total_cmp(&size(one)))
    });
    findings.truncate(FINDINGS_MAX);
    findings
}

/// Causes on the path rank before changes of the load. Unaligned writes, which access the medium twice, rank
/// before a slow medium, which would have to be replaced.
fn rank(finding: &Finding, causes: &[Cause]) -> u8 {
    match finding.cause {
        Cause::Depth => 2,
        Cause::Medium if causes.contains(&Cause::Misalignment) => 1,
        _ => 0,
    }
}

/// The share of its limits that each load of a good path reaches. The rest is the model's error and the scatter of the
/// rounds.
const FINE_MIN: f64 = 0.8;

/// The relative uncertainty from which a rate is useless: it may hide causes, and its share of a limit is
/// meaningless.
const UNCERTAIN_MIN: f64 = 1.0;

fn verdict(findings: &[Finding], cases: &[&Case<'_>]) -> Verdict {
    if !findings.is_empty() {
        return Verdict::HeldBack;
    }
    let least_known = cases
        .iter()
        .map(|case| case.rate.uncertainty())
        .fold(0.0, f64::max);
    if least_known >= UNCERTAIN_MIN {
        return Verdict::Uncertain {
            interval: least_known,
        };
    }
    let share = |case: &Case<'_>| case.rate.value / case.modelled.bytes_per_s;
    let by_share = |one: &&&Case<'_>, other: &&&Case<'_>| share(one).total_cmp(&share(other));
    let Some(worst) = cases.iter().min_by(by_share) else {
        return Verdict::NotKnown {
            unexplained: 1.0,
            load: 0,
        };
    };
    // Prefer the link, because it is the most expensive limit to change.
    let at_link = cases
        .iter()
        .filter(|case| case.modelled.binding() == Some(Term::Link));
    let best = at_link.max_by(by_share).unwrap_or(&cases[0]);
    match best.modelled.binding() {
        Some(term) if share(worst) >= FINE_MIN => Verdict::Fine {
            term,
            share: share(best),
        },
        _ => Verdict::NotKnown {
            unexplained: (1.0 - share(worst)).clamp(0.0, 1.0),
            load: worst.index,
        },
    }
}

// Evaluates the test of a change.

/// Returns the median ratio of the rounds in each pair, and its 95 % interval. The first rate of a pair is
/// without the change, the second with it. Drift affects both rounds of a pair.
///
/// Returns `None` if fewer than three pairs are usable. A pair is not usable if nothing completed in one of
/// its rounds.
pub fn confirmed(pairs: &[(f64, f64)]) -> Option<Confirmed> {
    // Use logarithms, since only these are distributed symmetrically around their median.
    let logs: Vec<f64> = pairs
        .iter()
        .map(|(without, with)| (with / without).ln())
        .filter(|log| log.is_finite())
        .collect();
    if logs.len() < PAIRS_MIN {
        return None;
    }
    let interval = median_interval(&logs)?;
    Some(Confirmed {
        ratio: median(&logs).exp(),
        low: interval.low.exp(),
        high: interval.high.exp(),
    })
}

const PAIRS_MIN: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_in_which_nothing_got_through_have_no_ratio() {
        assert_eq!(confirmed(&[]), None);
        assert_eq!(
            confirmed(&[(0.0, 5.0), (0.0, 5.0), (0.0, 5.0), (1.0, 0.0)]),
            None
        );
        assert_eq!(confirmed(&[(1.0, 2.0), (1.0, 2.0)]), None);
    }

    #[test]
    fn a_drift_that_both_rounds_of_a_pair_share_is_not_in_the_ratio() {
        let pairs: Vec<(f64, f64)> = (1..=7)
            .map(|n| (f64::from(n), 1.5 * f64::from(n)))
            .collect();
        let tried = confirmed(&pairs).expect("seven pairs");
        for end in [tried.ratio, tried.low, tried.high] {
            assert!((end - 1.5).abs() < 1e-9, "{tried:?}");
        }
    }

    #[test]
    fn one_pair_that_went_wrong_moves_neither_the_ratio_nor_much_of_the_interval() {
        let mut pairs = vec![
            (10.0, 19.0),
            (10.0, 20.0),
            (10.0, 21.0),
            (10.0, 19.5),
            (10.0, 20.5),
            (10.0, 20.0),
        ];
        pairs.extend([(10.0, 20.2), (10.0, 19.8), (10.0, 1.0)]);
        let tried = confirmed(&pairs).expect("nine pairs");
        assert!(
            (1.95..2.05).contains(&tried.ratio) && tried.low > 1.85 && tried.high < 2.15,
            "{tried:?}"
        );
    }
}
