//! The box at the top: the one sentence, the gains in large letters, and what is not known.

use crate::diagnosis::gain::{percent, times};
use crate::diagnosis::unknown::unknown;
use crate::diagnosis::words;
use crate::document::{Headline, Lead, Tone, Verdict};
use diagnose::{Diagnosis, Finding, Verdict as Told};

pub(super) fn verdict(diagnosis: &Diagnosis) -> Verdict {
    let says = format!("{} {}.", tone(&diagnosis.verdict).sign(), words::verdict(diagnosis));
    let remedy = diagnosis.findings.first().and_then(|finding| finding.remedies.first());
    let help = match (remedy, &diagnosis.verdict) {
        (Some(remedy), _) => format!("{}: {}.", words::at(remedy.at), remedy.change),
        (None, Told::Fine { .. }) => "Nothing that can be changed on the way.".to_owned(),
        (None, Told::Uncertain { .. }) => {
            "A longer measurement: without --quick, or with --seconds 120.".to_owned()
        }
        (None, _) => "Not known: nothing was found that could be changed.".to_owned(),
    };
    Verdict {
        lead: vec![Lead { about: "Is it good?", says }, Lead { about: "What would help first?", says: help }],
        tone: tone(&diagnosis.verdict),
        says: String::new(),
        headlines: headlines(diagnosis),
        reservations: unknown(&diagnosis.evidence),
    }
}

pub(in crate::diagnosis) fn tone(verdict: &Told) -> Tone {
    match verdict {
        Told::HeldBack => Tone::Care,
        Told::Fine { .. } => Tone::Good,
        Told::NotKnown { .. } | Told::Uncertain { .. } => Tone::Incomplete,
    }
}

/// A gain for each finding; without any, how much of a limit is reached, or how much is not explained.
fn headlines(diagnosis: &Diagnosis) -> Vec<Headline> {
    if !diagnosis.findings.is_empty() {
        return diagnosis.findings.iter().map(|finding| gain(diagnosis, finding)).collect();
    }
    let (what, value, note) = match &diagnosis.verdict {
        Told::HeldBack => return Vec::new(),
        Told::Fine { term, share } => ("of the limit", percent(share.min(1.0)), words::term(*term)),
        Told::Uncertain { interval } => ("95 % interval", percent(*interval), "of a rate, to either side"),
        Told::NotKnown { unexplained } => ("not explained", percent(*unexplained), "of the time"),
    };
    vec![Headline { what: what.to_owned(), value, note: note.to_owned() }]
}

fn gain(diagnosis: &Diagnosis, finding: &Finding) -> Headline {
    let load = diagnosis.evidence.loads.get(finding.load).map(|run| words::load(&run.load));
    let (what, value) = match (&finding.gain.confirmed, finding.gain.predicted) {
        (Some(tried), _) => ("gained when tried", times(tried.ratio)),
        (None, Some(predicted)) => ("to be gained", times(predicted)),
        (None, None) => ("to be gained", "everything".to_owned()),
    };
    let note = [Some(words::cause(diagnosis, finding.cause).to_owned()), load];
    Headline { what: what.to_owned(), value, note: note.into_iter().flatten().collect::<Vec<_>>().join("; ") }
}
