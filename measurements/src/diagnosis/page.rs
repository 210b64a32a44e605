//! docs/measured/diagnose-matrix.md: planted causes, findings, and the gains from removing the causes.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use diagnose::{Cause, Diagnosis, Verdict};
use model::Load;
use serde::{Deserialize, Serialize};

use crate::diagnosis::plants;
use crate::diagnosis::plants::Plant;

/// The first finding, as a column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Found(Cause),
    Fine,
    NotKnown,
    Failed,
}

impl Column {
    fn of(answer: &Answer) -> Column {
        match (answer.first(), answer) {
            (Some(cause), _) => Column::Found(cause),
            (None, Answer::NotKnown) => Column::NotKnown,
            (None, Answer::Failed(_)) => Column::Failed,
            (None, Answer::Fine | Answer::Found(_)) => Column::Fine,
        }
    }

    fn title(self) -> String {
        match self {
            Column::Found(cause) => plants::name(cause),
            Column::Fine => "fine".to_owned(),
            Column::NotKnown => "not known".to_owned(),
            Column::Failed => "failed".to_owned(),
        }
    }
}

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
    page.push_str("\n## Planted causes and first findings\n\n");
    page.push_str(&confusion(outcomes));
    page.push_str("\n## Predicted and confirmed gains\n\n");
    page.push_str(GAINS);
    page.push_str(&gains(outcomes));
    page.push_str(&wrong(outcomes));
    page.push_str("\n## Every repeat\n\n");
    page.push_str(&every(outcomes));
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
its rate with the cause, measured in alternating rounds. Figures are medians of the repeats.

";

fn confusion(outcomes: &[Outcome]) -> String {
    let mut columns: Vec<Column> = plants::ALL
        .iter()
        .map(|plant| Column::Found(plant.cause))
        .collect();
    // Findings that are never planted come last.
    columns.extend(outcomes.iter().map(|outcome| Column::of(&outcome.answer)));
    columns.extend([Column::Fine, Column::NotKnown, Column::Failed]);
    let mut shown: Vec<Column> = Vec::new();
    for column in columns {
        let somewhere = outcomes
            .iter()
            .any(|outcome| Column::of(&outcome.answer) == column);
        if somewhere && !shown.contains(&column) {
            shown.push(column);
        }
    }
    let titles: Vec<String> = shown.iter().map(|column| column.title()).collect();
    let mut table = format!(
        "| planted | {} |\n|---|{}\n",
        titles.join(" | "),
        "---:|".repeat(titles.len())
    );
    for (name, row) in rows(outcomes) {
        let count = |column: &Column| {
            let count = row
                .iter()
                .filter(|outcome| Column::of(&outcome.answer) == *column)
                .count();
            let right = row.first().is_some_and(|outcome| {
                outcome.planted.map_or(*column == Column::Fine, |cause| {
                    *column == Column::Found(cause)
                })
            });
            match (count, right) {
                (0, _) => String::new(),
                (count, true) => format!("**{count}**"),
                (count, false) => count.to_string(),
            }
        };
        let cells: Vec<String> = shown.iter().map(count).collect();
        let _ = writeln!(table, "| {name} | {} |", cells.join(" | "));
    }
    table
}

/// Returns the outcomes of each plant that has any, and the outcomes of healthy paths.
fn rows(outcomes: &[Outcome]) -> Vec<(String, Vec<&Outcome>)> {
    let healthy = [(None, false), (None, true)];
    let all = plants::ALL
        .iter()
        .map(|plant| (Some(plant.cause), plant.nbd))
        .chain(healthy);
    let of = |row| {
        outcomes
            .iter()
            .filter(|outcome| (outcome.planted, outcome.nbd) == row)
            .collect::<Vec<_>>()
    };
    all.map(|row| (plants::named(row.0, row.1), of(row)))
        .filter(|(_, row)| !row.is_empty())
        .collect()
}

fn gains(outcomes: &[Outcome]) -> String {
    let mut table =
        "| planted | description | correct | predicted | confirmed | within 20 % |\n|---|---|---:|---:|---:|---:|\n"
            .to_owned();
    for plant @ Plant {
        cause, nbd, what, ..
    } in plants::ALL
    {
        let of_row = |outcome: &&Outcome| (outcome.planted, outcome.nbd) == (Some(*cause), *nbd);
        let row: Vec<&Outcome> = outcomes.iter().filter(of_row).collect();
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
            let mut values: Vec<f64> = gains
                .map(|gains| of(gains).ratio.unwrap_or(f64::INFINITY))
                .collect();
            values.sort_by(f64::total_cmp);
            values
                .get(values.len() / 2)
                .map_or_else(String::new, |value| shown(Some(*value)))
        };
        let _ = writeln!(
            table,
            "| {} | {what} | {}/{} | {} | {} | {close}/{} |",
            plant.name(),
            right.len(),
            row.len(),
            middle(|(predicted, _)| predicted),
            middle(|(_, confirmed)| confirmed),
            compared.len(),
        );
    }
    table
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

fn every(outcomes: &[Outcome]) -> String {
    let mut table =
        "| planted | parameters | found | predicted | confirmed |\n|---|---|---|---:|---:|\n"
            .to_owned();
    for outcome in outcomes {
        let (predicted, confirmed) = match outcome.gains() {
            Some((predicted, confirmed)) => (shown(predicted.ratio), shown(confirmed.ratio)),
            None => (String::new(), String::new()),
        };
        let _ = writeln!(
            table,
            "| {} | {} | {} | {predicted} | {confirmed} |",
            planted(outcome),
            outcome.details,
            answered(&outcome.answer)
        );
    }
    table
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
    let mut outcomes: Vec<Outcome> = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(".outcome.json") {
            let text = fs::read(&path).with_context(|| path.display().to_string())?;
            outcomes
                .push(serde_json::from_slice(&text).with_context(|| path.display().to_string())?);
        }
    }
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
}
