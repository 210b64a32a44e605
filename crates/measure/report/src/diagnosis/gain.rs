//! What a finding's load comes to now, and what it would come to.

use diagnose::{Confirmed, Diagnosis, Finding, Gain, LoadRun};
use readable::figures::{grouped, megabytes, significant};
use stats::{Interval, median, median_interval};

/// `×1.17`: as many digits as a ratio of noisy rates has.
pub(super) fn times(ratio: f64) -> String {
    match ratio {
        ratio if !ratio.is_finite() => "×?".to_owned(),
        ratio if ratio >= 9.95 => format!("×{}", grouped(ratio.round() as u64)),
        ratio if ratio >= 1.995 => format!("×{ratio:.1}"),
        ratio => format!("×{ratio:.2}"),
    }
}

/// `×1.90 (1.74 to 2.10)`, or that nothing goes at all.
pub(super) fn predicted(gain: &Gain) -> String {
    match gain.predicted {
        Some(ratio) => format!("{} ({} to {})", times(ratio), bare(gain.low), bare(gain.high)),
        None => "nothing gets through as it is".to_owned(),
    }
}

/// `×1.85 (1.80 to 1.90)`, and what follows if that is no clear gain.
pub(super) fn confirmed(confirmed: &Confirmed) -> String {
    let figures = format!("{} ({} to {})", times(confirmed.ratio), bare(confirmed.low), bare(confirmed.high));
    match confirmed {
        tried if tried.brings() => figures,
        tried if tried.brings_nothing() => format!("{figures}: nothing"),
        _ => format!("{figures}: too little or too noisy to tell"),
    }
}

fn bare(ratio: f64) -> String {
    times(ratio).split_off('×'.len_utf8())
}

/// The load that a finding is about; none if it names one that is not there.
pub(super) fn load<'a>(diagnosis: &'a Diagnosis, finding: &Finding) -> Option<&'a LoadRun> {
    diagnosis.evidence.loads.get(finding.load)
}

/// The median of a load's rounds, in bytes a second; none if there was no round.
pub(super) fn rate(run: &LoadRun) -> Option<f64> {
    (!run.bytes_per_s.is_empty()).then(|| median(&run.bytes_per_s)).filter(|rate| rate.is_finite())
}

pub(super) fn interval(run: &LoadRun) -> Option<Interval> {
    median_interval(&run.bytes_per_s)
}

/// `12.3 MB/s now, about 23.4 MB/s (21.4 to 25.8) without it`.
pub(super) fn rates(diagnosis: &Diagnosis, finding: &Finding) -> Option<String> {
    let now = rate(load(diagnosis, finding)?)?;
    let gain = &finding.gain;
    Some(match gain.predicted {
        Some(ratio) => format!(
            "{} now, about {} ({} to {}) without it",
            with_unit(now),
            with_unit(now * ratio),
            megabytes(now * gain.low),
            megabytes(now * gain.high)
        ),
        None => format!("{} now", with_unit(now)),
    })
}

/// Bytes a second, in MB of 10^6 bytes.
pub(super) fn with_unit(bytes_per_s: f64) -> String {
    format!("{} MB/s", megabytes(bytes_per_s))
}

/// `97 %`.
pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        percent if !percent.is_finite() => "? %".to_owned(),
        // Less than anybody could do anything about.
        percent if percent.abs() < 0.0005 => "0 %".to_owned(),
        percent if percent.abs() < 0.95 => format!("{} %", significant(percent)),
        percent => format!("{percent:.0} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_has_as_many_digits_as_it_deserves() {
        assert_eq!([1.166, 1.996, 9.94, 31.4, 1234.0].map(times), ["×1.17", "×2.0", "×9.9", "×31", "×1,234"]);
        assert_eq!(times(f64::INFINITY), "×?");
    }

    #[test]
    fn a_share_of_nothing_has_no_digits_behind_the_point() {
        assert_eq!(
            [0.0, 0.00031, 0.0312, 0.973, f64::NAN].map(percent),
            ["0 %", "0.031 %", "3 %", "97 %", "? %"]
        );
    }

    #[test]
    fn what_was_tried_in_vain_is_told_from_what_nobody_could_tell() {
        let tried = |low, high| confirmed(&Confirmed { ratio: 1.04, low, high });
        assert_eq!(tried(1.01, 1.08), "×1.04 (1.01 to 1.08)");
        assert_eq!(tried(0.97, 1.08), "×1.04 (0.97 to 1.08): nothing");
        assert_eq!(tried(0.2, 5.0), "×1.04 (0.20 to 5.0): too little or too noisy to tell");
    }

    #[test]
    fn a_gain_without_an_end_is_said_in_words() {
        let gain = Gain { predicted: None, low: 1.0, high: f64::INFINITY, confirmed: None };
        assert_eq!(predicted(&gain), "nothing gets through as it is");
        let gain = Gain { predicted: Some(1.9), low: 1.74, high: 2.1, confirmed: None };
        assert_eq!(predicted(&gain), "×1.90 (1.74 to 2.1)");
    }
}
