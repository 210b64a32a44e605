//! docs/measured/diagnose-matrix.md: planted causes, findings, and the gains from removing the causes.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use diagnose::{Cause, Diagnosis, Verdict};
use model::Load;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::diagnosis::plants;
use crate::diagnosis::plants::Plant;

/// Returns the summary: the number of correct findings, and the accuracy of the gains.
pub(super) fn summary(outcomes: &[Outcome]) -> String {
    let (planted, healthy): (Vec<&Outcome>, Vec<&Outcome>) = outcomes
        .iter()
        .partition(|outcome| outcome.planted.is_some());
    let right = planted.iter().filter(|outcome| outcome.is_right()).count();
    let alarms = healthy.iter().filter(|outcome| !outcome.is_right()).count();
    let compared: Vec<bool> = planted
        .iter()
        .filter_map(|outcome| outcome.is_close())
        .collect();
    let close = compared.iter().filter(|close| **close).count();
    format!(
        "first finding correct in {right} of {} ({:.0} %); false alarms on healthy paths: {alarms} of {}; predicted gain within \
         20 % of the confirmed one in {close} of {}",
        planted.len(),
        100.0 * right as f64 / planted.len().max(1) as f64,
        healthy.len(),
        compared.len(),
    )
}

/// Returns the whole page. `setting` contains lines on the machine and the options.
pub(super) fn markdown(outcomes: &[Outcome], setting: &[String]) -> String {
    let mut page = INTRODUCTION.to_owned();
    // Writing into a String does not fail.
    let _ = writeln!(page, "**{}.**\n", summary(outcomes));
    for line in setting {
        let _ = writeln!(page, "- {line}");
    }
    page.push_str("\n## Predicted and confirmed gains\n\n");
    page.push_str(GAINS);
    page.push_str(&gains(outcomes));
    page.push_str(&wrong(outcomes));
    page
}

const INTRODUCTION: &str = "\
# What `linerate diagnose` finds

Causes of slowness are planted in fully known paths: hosts in network namespaces, links of the lab ([lab.md](../lab.md)), our
own target, and for NBD our own server and nbdkit. Each repeat chooses its own random distance, rate and sizes, from a range in
which the cause is the bottleneck. `linerate diagnose` runs as for a user, without information on the planted cause. Some paths
are healthy. `cargo measure diagnose-matrix` does this and writes this page.

";

const GAINS: &str = "\
The predicted gain is that of the first finding. The confirmed gain is the rate of the same load without the cause, divided by
its rate with the cause, measured in alternating rounds. Gains are medians of the repeats, with the range in brackets. *Also* counts
further findings.

";

fn gains(outcomes: &[Outcome]) -> String {
    let mut table =
        "| planted | description | correct | also | predicted | confirmed | within 20 % |\n\
                     |---|---|---:|---|---:|---:|---:|\n"
            .to_owned();
    for plant @ Plant {
        cause, nbd, what, ..
    } in plants::ALL
    {
        let row = repeats(outcomes, Some(*cause), *nbd);
        if row.is_empty() {
            continue;
        }
        let right: Vec<&&Outcome> = row.iter().filter(|outcome| outcome.is_right()).collect();
        let compared: Vec<bool> = right
            .iter()
            .filter_map(|outcome| outcome.is_close())
            .collect();
        let close = compared.iter().filter(|close| **close).count();
        let middle = |of: fn((Gain, Gain)) -> Gain| {
            let gains = right.iter().filter_map(|outcome| outcome.gains());
            range(
                gains
                    .map(|gains| of(gains).ratio.unwrap_or(f64::INFINITY))
                    .collect(),
            )
        };
        let _ = writeln!(
            table,
            "| {} | {what} | {}/{} | {} | {} | {} | {close}/{} |",
            plant.name(),
            right.len(),
            row.len(),
            further(&right),
            middle(|(predicted, _)| predicted),
            middle(|(_, confirmed)| confirmed),
            compared.len(),
        );
    }
    for nbd in [false, true] {
        let row = repeats(outcomes, None, nbd);
        if !row.is_empty() {
            let right = row.iter().filter(|outcome| outcome.is_right()).count();
            let name = plants::named(None, nbd);
            let _ = writeln!(
                table,
                "| {name} | {HEALTHY} | {right}/{} | | | | |",
                row.len()
            );
        }
    }
    table
}

const HEALTHY: &str = "loopback, LANs and WANs without a planted cause";

/// Returns the repeats of one plant, or of healthy paths.
fn repeats(outcomes: &[Outcome], planted: Option<Cause>, nbd: bool) -> Vec<&Outcome> {
    let is_it = |outcome: &&Outcome| (outcome.planted, outcome.nbd) == (planted, nbd);
    outcomes.iter().filter(is_it).collect()
}

/// Returns the median of gains and their range.
fn range(mut gains: Vec<f64>) -> String {
    gains.sort_by(f64::total_cmp);
    match (gains.first(), gains.get(gains.len() / 2), gains.last()) {
        (Some(lowest), Some(middle), Some(highest)) if lowest < highest => format!(
            "{} ({}–{})",
            shown(Some(*middle)),
            shown(Some(*lowest)),
            shown(Some(*highest))
        ),
        (_, middle, _) => middle.map_or_else(String::new, |middle| shown(Some(*middle))),
    }
}

/// Returns the findings after the first, with the number of repeats that have them.
fn further(outcomes: &[&&Outcome]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for outcome in outcomes {
        if let Answer::Found(causes) = &outcome.answer {
            for cause in causes.iter().skip(1) {
                *counts.entry(plants::name(*cause)).or_default() += 1;
            }
        }
    }
    let texts = counts.iter().map(|(name, count)| format!("{name} {count}"));
    texts.collect::<Vec<_>>().join(", ")
}

fn wrong(outcomes: &[Outcome]) -> String {
    let wrong: Vec<&Outcome> = outcomes
        .iter()
        .filter(|outcome| !outcome.is_right())
        .collect();
    if wrong.is_empty() {
        return String::new();
    }
    let mut text = "\n## Wrong findings\n\n".to_owned();
    for outcome in wrong {
        let _ = writeln!(
            text,
            "- {} ({}): {}",
            planted(outcome),
            outcome.details,
            answered(&outcome.answer)
        );
    }
    text
}

fn planted(outcome: &Outcome) -> String {
    plants::named(outcome.planted, outcome.nbd)
}

pub(super) fn answered(answer: &Answer) -> String {
    match answer {
        Answer::Found(causes) => causes
            .iter()
            .map(|cause| plants::name(*cause))
            .collect::<Vec<_>>()
            .join(", then "),
        Answer::Fine => "fine".to_owned(),
        Answer::NotKnown => "not known".to_owned(),
        Answer::Failed(why) => format!("no diagnosis: {}", why.lines().next().unwrap_or_default()),
    }
}

fn shown(gain: Option<f64>) -> String {
    match gain {
        None => "∞".to_owned(),
        Some(gain) if gain.is_infinite() => "∞".to_owned(),
        Some(gain) if gain >= 9.95 => format!("{gain:.0}"),
        Some(gain) => format!("{gain:.2}"),
    }
}

/// The stored outcome of one repeat of a plant, or of one healthy path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Outcome {
    /// The planted cause; `None` on a healthy path.
    pub(super) planted: Option<Cause>,
    /// Whether the path is to an NBD export.
    #[serde(default)]
    pub(super) nbd: bool,
    pub(super) repeat: u32,
    /// The random parameters of the repeat.
    pub(super) details: String,
    pub(super) answer: Answer,
    /// The first finding's load and predicted gain.
    pub(super) predicted: Option<Gain>,
    /// The measured gain from removing the planted cause.
    pub(super) confirmed: Option<Gain>,
}

/// The gain of a load: the new rate divided by the old one. `None` is infinite: the old rate was zero.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Gain {
    pub(super) load: Load,
    pub(super) ratio: Option<f64>,
}

/// The result of a diagnosis, reduced to the parts that are judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    /// Findings, in order.
    Found(Vec<Cause>),
    /// The diagnosis found no problem.
    Fine,
    /// No findings, but not everything is explained.
    NotKnown,
    /// No diagnosis, with the reason.
    Failed(String),
}

impl Answer {
    pub(super) fn of(diagnosis: &Diagnosis) -> Answer {
        match (&diagnosis.verdict, diagnosis.findings.is_empty()) {
            (_, false) => Answer::Found(
                diagnosis
                    .findings
                    .iter()
                    .map(|finding| finding.cause)
                    .collect(),
            ),
            (Verdict::NotKnown { .. } | Verdict::Uncertain { .. }, true) => Answer::NotKnown,
            (Verdict::Fine { .. } | Verdict::HeldBack, true) => Answer::Fine,
        }
    }

    /// Returns the first finding.
    pub(super) fn first(&self) -> Option<Cause> {
        match self {
            Answer::Found(causes) => causes.first().copied(),
            Answer::Fine | Answer::NotKnown | Answer::Failed(_) => None,
        }
    }
}

impl Gain {
    /// Returns the predicted gain of the first finding.
    pub(super) fn predicted(diagnosis: &Diagnosis) -> Option<Gain> {
        let finding = diagnosis.findings.first()?;
        let load = diagnosis.evidence.loads.get(finding.load)?.load;
        Some(Gain {
            load,
            ratio: finding.gain.predicted,
        })
    }
}

impl Outcome {
    /// Whether the first finding is the planted cause, or there is no finding on a healthy path.
    pub(super) fn is_right(&self) -> bool {
        match (&self.answer, self.planted) {
            (Answer::Failed(_), _) => false,
            (answer, planted) => answer.first() == planted,
        }
    }

    /// Returns the predicted and confirmed gains, if the right cause was found and removed.
    pub(super) fn gains(&self) -> Option<(Gain, Gain)> {
        let both = self
            .predicted
            .zip(self.confirmed)
            .filter(|_| self.is_right());
        both.filter(|(predicted, confirmed)| predicted.load == confirmed.load)
    }

    /// Whether the predicted gain is within 20 % of the confirmed one. Returns `None` if there is nothing to
    /// compare.
    pub(super) fn is_close(&self) -> Option<bool> {
        let (predicted, confirmed) = self.gains()?;
        Some(match (predicted.ratio, confirmed.ratio) {
            (Some(predicted), Some(confirmed)) => (predicted / confirmed - 1.0).abs() <= 0.2,
            (predicted, confirmed) => predicted == confirmed, // both infinite
        })
    }

    /// Returns the same outcome with a new diagnosis of the stored evidence.
    pub(super) fn judged(&self, diagnosis: &Diagnosis) -> Outcome {
        let (answer, predicted) = (Answer::of(diagnosis), Gain::predicted(diagnosis));
        Outcome {
            answer,
            predicted,
            ..self.clone()
        }
    }

    /// Returns the name of the outcome's files.
    pub(super) fn name(&self) -> String {
        format!(
            "{}-{:02}",
            crate::diagnosis::plants::named(self.planted, self.nbd),
            self.repeat
        )
    }

    pub(super) fn keep(&self, folder: &Path) -> Result<()> {
        let file = folder.join(file(&self.name()));
        fs::write(&file, serde_json::to_vec_pretty(self)?)
            .with_context(|| file.display().to_string())
    }
}

/// Returns the file name of an outcome.
pub(super) fn file(name: &str) -> String {
    format!("{name}.outcome.json")
}

/// Returns all stored outcomes, in the order of plants and repeats.
pub(super) fn all(folder: &Path) -> Result<Vec<Outcome>> {
    let mut outcomes: Vec<Outcome> = stored(folder)?;
    outcomes.sort_by_key(|outcome| {
        (
            outcome.nbd,
            outcome.planted.is_none(),
            outcome.planted,
            outcome.repeat,
        )
    });
    Ok(outcomes)
}

/// Returns the outcomes that are stored in a directory.
pub(super) fn stored<T: DeserializeOwned>(folder: &Path) -> Result<Vec<T>> {
    let mut outcomes = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(".outcome.json") {
            let text = fs::read(&path).with_context(|| path.display().to_string())?;
            outcomes
                .push(serde_json::from_slice(&text).with_context(|| path.display().to_string())?);
        }
    }
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use super::super::rate::LOADS;
    use super::*;

    fn outcome(
        planted: Option<Cause>,
        answer: Answer,
        gains: (Option<f64>, Option<f64>),
    ) -> Outcome {
        let gain = |ratio| {
            Some(Gain {
                load: LOADS[0],
                ratio,
            })
        };
        let (predicted, confirmed) = (gain(gains.0), gain(gains.1));
        Outcome {
            planted,
            nbd: false,
            repeat: 0,
            details: String::new(),
            answer,
            predicted,
            confirmed,
        }
    }

    #[test]
    fn a_second_guess_is_no_answer() {
        let answer = Answer::Found(vec![Cause::Medium, Cause::Loss]);
        assert!(!outcome(Some(Cause::Loss), answer.clone(), (None, None)).is_right());
        assert!(outcome(Some(Cause::Medium), answer, (None, None)).is_right());
    }

    #[test]
    fn a_finding_on_a_healthy_path_is_a_false_alarm_and_a_failure_is_never_right() {
        assert!(!outcome(None, Answer::Found(vec![Cause::Loss]), (None, None)).is_right());
        assert!(!outcome(None, Answer::Failed("no route".to_owned()), (None, None)).is_right());
        assert!(outcome(None, Answer::NotKnown, (None, None)).is_right());
    }

    #[test]
    fn a_gain_is_close_within_a_fifth_and_infinity_only_to_itself() {
        let close = |predicted, confirmed| {
            outcome(
                Some(Cause::Loss),
                Answer::Found(vec![Cause::Loss]),
                (predicted, confirmed),
            )
            .is_close()
        };
        assert_eq!(close(Some(1.2), Some(1.0)), Some(true));
        assert_eq!(close(Some(0.79), Some(1.0)), Some(false));
        assert_eq!(close(None, None), Some(true));
        assert_eq!(close(None, Some(3.0)), Some(false));
    }

    #[test]
    fn the_page_has_a_row_for_each_plant_and_one_for_healthy_paths() {
        let found = |causes: &[Cause]| Answer::Found(causes.to_vec());
        let also = found(&[Cause::Loss, Cause::ClientCpu]);
        let outcomes = [
            outcome(Some(Cause::Loss), also, (Some(4.0), Some(4.2))),
            outcome(
                Some(Cause::Loss),
                found(&[Cause::Loss]),
                (Some(3.0), Some(2.0)),
            ),
            outcome(None, Answer::Fine, (None, None)),
        ];
        let page = markdown(&outcomes, &["a machine".to_owned()]);
        let loss = "| 2/2 | client-cpu 1 | 4.00 (3.00–4.00) | 4.20 (2.00–4.20) | 1/2 |\n";
        assert!(page.contains(loss), "{page}");
        assert!(
            page.contains("| healthy | loopback, LANs and WANs without a planted cause | 1/1 |")
        );
        assert!(!page.contains("Wrong findings"));
    }
}
