//! What a WAN record says to who reads nothing else.

use super::numbers::{load, rate, way};
use crate::document::Headline;
use crate::wan::{Verdict, Wan};
use readable::figures::{counted, significant};

/// The link's share at the longest round trip, the document's cells, the model.
pub(crate) fn headlines(wan: &Wan) -> Vec<Headline> {
    let verdict = wan.verdict();
    let mut headlines = shares(wan, &verdict);
    if verdict.published > 0 {
        let reached = verdict.beaten + verdict.met;
        headlines.push(Headline {
            what: "published numbers met or beaten".to_owned(),
            value: format!("{reached} of {}", verdict.published - verdict.cannot_be),
            note: format!("of those that can be; {} cannot over this way", verdict.cannot_be),
        });
    }
    headlines.extend(verdict.fitted.map(|off| Headline {
        what: "model, median error".to_owned(),
        value: format!("{} %", significant(off.median * 100.0)),
        note: format!("over {}", counted(off.cells, "cell")),
    }));
    headlines
}

/// The longest requests of each way.
fn shares(wan: &Wan, verdict: &Verdict) -> Vec<Headline> {
    let longest = verdict.shares.iter().map(|share| share.block_bytes).max();
    let of_longest = verdict.shares.iter().filter(|share| Some(share.block_bytes) == longest);
    let headline = |share: &crate::wan::Share| {
        let row = wan.rows.iter().find(|row| row.cell == share.cell)?;
        let published = row.published.as_ref().map(|published| format!("; published {}", published.printed));
        Some(Headline {
            what: format!("{} over {} ms", way(share.way), row.setting.rtt_ms),
            value: format!("{} %", significant(share.of_link * 100.0)),
            note: format!(
                "of the link: {} MB/s of {}{}",
                rate(row.measured),
                load(row),
                published.unwrap_or_default()
            ),
        })
    };
    of_longest.filter_map(headline).collect()
}

/// Published numbers that were missed for no reason that the way gives; a sentence.
pub(crate) fn missed(wan: &Wan) -> Option<String> {
    let verdict = wan.verdict();
    let missed: Vec<&str> = verdict.missed.iter().map(String::as_str).collect();
    (!missed.is_empty()).then(|| {
        format!(
            "Less than was published, where the way allows more: {}.",
            super::super::verdict::listed(&missed)
        )
    })
}
