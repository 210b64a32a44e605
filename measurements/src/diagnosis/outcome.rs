//! What came of one repeat, as it is kept.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use diagnose::{Cause, Diagnosis, Verdict};
use model::Load;
use serde::{Deserialize, Serialize};

/// What came of one repeat of one plant, or of one healthy path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Outcome {
    /// What was planted; nothing on a healthy path.
    pub(super) planted: Option<Cause>,
    /// In a path to an NBD export.
    #[serde(default)]
    pub(super) nbd: bool,
    pub(super) repeat: u32,
    /// What the repeat had drawn.
    pub(super) details: String,
    pub(super) answer: Answer,
    /// The first finding's load, and what mending it was to bring: the new rate over the old one; none for an infinite
    /// gain.
    pub(super) predicted: Option<Gain>,
    /// What taking away what was planted brought.
    pub(super) confirmed: Option<Gain>,
}

/// A gain of a load; none for an infinite one, where nothing went before.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Gain {
    pub(super) load: Load,
    pub(super) ratio: Option<f64>,
}

/// What a diagnosis said, as far as it is right or wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    /// It found these, the first of them first.
    Found(Vec<Cause>),
    /// Nothing is wrong.
    Fine,
    /// Nothing was found, and not everything is explained.
    NotKnown,
    /// There was no diagnosis, for this reason.
    Failed(String),
}

impl Answer {
    pub(super) fn of(diagnosis: &Diagnosis) -> Answer {
        match (&diagnosis.verdict, diagnosis.findings.is_empty()) {
            (_, false) => Answer::Found(diagnosis.findings.iter().map(|finding| finding.cause).collect()),
            (Verdict::NotKnown { .. } | Verdict::Uncertain { .. }, true) => Answer::NotKnown,
            (Verdict::Fine { .. } | Verdict::HeldBack, true) => Answer::Fine,
        }
    }

    /// What it says is the first thing that is wrong.
    pub(super) fn first(&self) -> Option<Cause> {
        match self {
            Answer::Found(causes) => causes.first().copied(),
            Answer::Fine | Answer::NotKnown | Answer::Failed(_) => None,
        }
    }
}

impl Gain {
    /// What the first finding says.
    pub(super) fn predicted(diagnosis: &Diagnosis) -> Option<Gain> {
        let finding = diagnosis.findings.first()?;
        let load = diagnosis.evidence.loads.get(finding.load)?.load;
        Some(Gain { load, ratio: finding.gain.predicted })
    }
}

impl Outcome {
    /// The first finding is what was planted; on a healthy path nothing was found.
    pub(super) fn is_right(&self) -> bool {
        match (&self.answer, self.planted) {
            (Answer::Failed(_), _) => false,
            (answer, planted) => answer.first() == planted,
        }
    }

    /// The predicted gain and the confirmed one, if the right thing was found and mended.
    pub(super) fn gains(&self) -> Option<(Gain, Gain)> {
        let both = self.predicted.zip(self.confirmed).filter(|_| self.is_right());
        both.filter(|(predicted, confirmed)| predicted.load == confirmed.load)
    }

    /// Whether the predicted gain is within a fifth of the confirmed one; nothing if there is nothing to compare.
    pub(super) fn is_close(&self) -> Option<bool> {
        let (predicted, confirmed) = self.gains()?;
        Some(match (predicted.ratio, confirmed.ratio) {
            (Some(predicted), Some(confirmed)) => (predicted / confirmed - 1.0).abs() <= 0.2,
            (predicted, confirmed) => predicted == confirmed, // both infinite
        })
    }

    /// The same with what is concluded now from what was measured then.
    pub(super) fn judged(&self, diagnosis: &Diagnosis) -> Outcome {
        let (answer, predicted) = (Answer::of(diagnosis), Gain::predicted(diagnosis));
        Outcome { answer, predicted, ..self.clone() }
    }

    /// What it is called on the disk.
    pub(super) fn name(&self) -> String {
        format!("{}-{:02}", super::plants::named(self.planted, self.nbd), self.repeat)
    }

    pub(super) fn keep(&self, folder: &Path) -> Result<()> {
        let file = folder.join(file(&self.name()));
        fs::write(&file, serde_json::to_vec_pretty(self)?).with_context(|| file.display().to_string())
    }
}

/// Where the outcome of this name is kept.
pub(super) fn file(name: &str) -> String {
    format!("{name}.outcome.json")
}

/// Everything that is kept, in the order of plants and repeats.
pub(super) fn all(folder: &Path) -> Result<Vec<Outcome>> {
    let mut outcomes: Vec<Outcome> = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(".outcome.json") {
            let text = fs::read(&path).with_context(|| path.display().to_string())?;
            outcomes.push(serde_json::from_slice(&text).with_context(|| path.display().to_string())?);
        }
    }
    outcomes.sort_by_key(|outcome| (outcome.nbd, outcome.planted.is_none(), outcome.planted, outcome.repeat));
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use super::super::rate::LOADS;
    use super::*;

    fn outcome(planted: Option<Cause>, answer: Answer, gains: (Option<f64>, Option<f64>)) -> Outcome {
        let gain = |ratio| Some(Gain { load: LOADS[0], ratio });
        let (predicted, confirmed) = (gain(gains.0), gain(gains.1));
        Outcome { planted, nbd: false, repeat: 0, details: String::new(), answer, predicted, confirmed }
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
            outcome(Some(Cause::Loss), Answer::Found(vec![Cause::Loss]), (predicted, confirmed)).is_close()
        };
        assert_eq!(close(Some(1.2), Some(1.0)), Some(true));
        assert_eq!(close(Some(0.79), Some(1.0)), Some(false));
        assert_eq!(close(None, None), Some(true));
        assert_eq!(close(None, Some(3.0)), Some(false));
    }
}
