//! The figures of a run, and their medians and spreads over the rounds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One figure of a run. CPU time is the user and system time of all threads of a process, per request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Figure {
    Iops,
    MbPerS,
    P50Us,
    P99Us,
    P999Us,
    MeanUs,
    ServerUsPerIo,
    ClientUsPerIo,
    BothUsPerIo,
    ServerSPerGib,
    ClientSPerGib,
    IopsPerClientCpu,
    /// CPU time of the process in percent of the elapsed time.
    ServerBusy,
    ClientBusy,
    /// Time of one CRC32C.
    SumNs,
    /// Jain's index of the client threads' shares: 1 if all are equal, 1/N if one thread has everything.
    Jain,
    SlowestClient,
    FastestClient,
    LastClient,
    /// IOPS of the other, concurrent load.
    OtherIops,
    /// Percentage of time for which the machine withdrew a core.
    Away,
    /// The figures of document 004 for the same storage and test, and the measured rate as a multiple of the
    /// printed one.
    PrintedMbPerS,
    PrintedClientBusy,
    TimesPrinted,
}

/// One run's figures, or the medians of several.
pub(crate) type Figures = BTreeMap<Figure, f64>;

impl Figure {
    /// Returns the figure's heading in a table, and its number of decimal places.
    pub(crate) fn column(self) -> (&'static str, usize) {
        match self {
            Figure::Iops => ("IOPS", 0),
            Figure::MbPerS => ("MB/s", 0),
            Figure::P50Us => ("p50 µs", 1),
            Figure::P99Us => ("p99 µs", 1),
            Figure::P999Us => ("p99.9 µs", 1),
            Figure::MeanUs => ("mean µs", 1),
            Figure::ServerUsPerIo => ("server CPU µs/IO", 2),
            Figure::ClientUsPerIo => ("client CPU µs/IO", 2),
            Figure::BothUsPerIo => ("CPU of both µs/IO", 2),
            Figure::ServerSPerGib => ("server CPU s/GiB", 3),
            Figure::ClientSPerGib => ("client CPU s/GiB", 3),
            Figure::IopsPerClientCpu => ("IOPS per client CPU s", 0),
            Figure::ServerBusy => ("server ran, %", 0),
            Figure::ClientBusy => ("client ran, %", 0),
            Figure::SumNs => ("ns", 1),
            Figure::Jain => ("Jain's index", 4),
            Figure::SlowestClient => ("slowest client, IOPS", 0),
            Figure::FastestClient => ("fastest client, IOPS", 0),
            Figure::LastClient => ("last client, IOPS", 0),
            Figure::OtherIops => ("IOPS of the other load", 0),
            Figure::Away => ("core away, %", 2),
            Figure::PrintedMbPerS => ("MB/s in print", 1),
            Figure::PrintedClientBusy => ("client load in print, %", 0),
            Figure::TimesPrinted => ("times that", 2),
        }
    }
}

/// Adds the figures derived from the rate and the CPU time.
pub(crate) fn complete(figures: &mut Figures, block_bytes: u64) {
    let bytes = block_bytes as f64;
    let iops = figures.get(&Figure::Iops).copied();
    figures.extend(iops.map(|iops| (Figure::MbPerS, iops * bytes / 1e6)));
    let sides = [
        (
            Figure::ServerUsPerIo,
            Figure::ServerSPerGib,
            Figure::ServerBusy,
        ),
        (
            Figure::ClientUsPerIo,
            Figure::ClientSPerGib,
            Figure::ClientBusy,
        ),
    ];
    for (us_per_io, s_per_gib, busy) in sides {
        let Some((us, iops)) = figures.get(&us_per_io).copied().zip(iops) else {
            continue;
        };
        figures.insert(s_per_gib, us * f64::from(1 << 30) / bytes / 1e6);
        figures.insert(busy, us * iops / 1e4);
    }
    if let Some(us) = figures.get(&Figure::ClientUsPerIo).filter(|us| **us > 0.0) {
        figures.insert(Figure::IopsPerClientCpu, 1e6 / us);
    }
    let both = figures
        .get(&Figure::ServerUsPerIo)
        .zip(figures.get(&Figure::ClientUsPerIo));
    figures.extend(both.map(|(server, client)| (Figure::BothUsPerIo, server + client)));
}

/// Returns the median of each figure, independently.
pub(crate) fn median(rounds: &[Figures]) -> Figures {
    let of = |figure: &Figure| {
        middle(
            rounds
                .iter()
                .filter_map(|round| round.get(figure).copied())
                .collect(),
        )
    };
    rounds
        .iter()
        .flat_map(BTreeMap::keys)
        .filter_map(|figure| Some((*figure, of(figure)?)))
        .collect()
}

/// Returns the median of a figure, and the lowest and the highest round.
pub(crate) fn spread(rounds: &[Figures], figure: Figure) -> String {
    let mut found: Vec<f64> = rounds
        .iter()
        .filter_map(|round| round.get(&figure).copied())
        .collect();
    found.sort_by(f64::total_cmp);
    let places = figure.column().1;
    match (found.first(), found.last(), middle(found.clone())) {
        (Some(lowest), Some(highest), Some(median)) => {
            format!("{median:.places$} ({lowest:.places$}–{highest:.places$})")
        }
        _ => String::new(),
    }
}

/// Returns the median.
pub(crate) fn middle(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let upper = figures.get(figures.len() / 2)?;
    let lower = figures.get((figures.len() - 1) / 2)?;
    Some(f64::midpoint(*lower, *upper))
}

/// A goal and the measured figure.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) what: String,
    /// The cell in which it was measured; empty for a goal of a whole measurement.
    pub(crate) cell: String,
    pub(crate) found: f64,
    pub(crate) bound: Bound,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Judged {
    pub(crate) fn at_most(what: impl Into<String>, found: f64, limit: f64) -> Judged {
        Judged {
            what: what.into(),
            cell: String::new(),
            found,
            bound: Bound::AtMost(limit),
        }
    }

    pub(crate) fn at_least(what: impl Into<String>, found: f64, limit: f64) -> Judged {
        Judged {
            bound: Bound::AtLeast(limit),
            ..Judged::at_most(what, found, limit)
        }
    }

    /// Whether the goal was reached.
    pub(crate) fn is_reached(&self) -> bool {
        match self.bound {
            Bound::AtMost(limit) => self.found <= limit,
            Bound::AtLeast(limit) => self.found >= limit,
        }
    }

    /// Returns the figure, in bold type if it misses the goal.
    fn verdict(&self) -> String {
        let places = if self.found < 100.0 { 3 } else { 0 };
        match self.is_reached() {
            true => format!("{:.places$}", self.found),
            false => format!("**{:.places$}**", self.found),
        }
    }
}

impl Bound {
    fn text(self) -> String {
        match self {
            Bound::AtMost(limit) => format!("≤ {limit}"),
            Bound::AtLeast(limit) => format!("≥ {limit}"),
        }
    }
}

/// Returns a table with a row for each goal and a column for each cell; a missed goal is in bold type. A limit that differs
/// between the cells follows the figure. Without goals, the text is empty.
pub(crate) fn rows(goals: &[Judged]) -> String {
    let (mut names, mut cells) = (Vec::new(), Vec::new());
    for goal in goals {
        if !names.contains(&&goal.what) {
            names.push(&goal.what);
        }
        if !cells.contains(&&goal.cell) {
            cells.push(&goal.cell);
        }
    }
    if names.is_empty() {
        return String::new();
    }
    let heading = |cell: &&String| {
        if cell.is_empty() {
            " found |".to_owned()
        } else {
            format!(" {cell} |")
        }
    };
    let mut text = format!(
        "| goal | limit |{}\n|---|---|{}\n",
        cells.iter().map(heading).collect::<String>(),
        "---:|".repeat(cells.len())
    );
    for name in names {
        let row = || goals.iter().filter(|goal| goal.what == *name);
        let mut bounds = row().map(|goal| goal.bound);
        let first = bounds.next();
        let common = first.filter(|first| bounds.all(|bound| bound == *first));
        text += &format!(
            "| {name} | {} |",
            common.map_or_else(String::new, Bound::text)
        );
        for cell in &cells {
            text += &match row().find(|goal| goal.cell == **cell) {
                None => " |".to_owned(),
                Some(goal) if common.is_some() => format!(" {} |", goal.verdict()),
                Some(goal) => format!(" {} ({}) |", goal.verdict(), goal.bound.text()),
            };
        }
        text.push('\n');
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_round_does_not_count() {
        let round = |iops, cpu| Figures::from([(Figure::Iops, iops), (Figure::ServerUsPerIo, cpu)]);
        let rounds = [round(100.0, 1.0), round(3.0, 9.0), round(110.0, 2.0)];
        let median = median(&rounds);
        assert_eq!(
            (median[&Figure::Iops], median[&Figure::ServerUsPerIo]),
            (100.0, 2.0)
        );
        assert_eq!(spread(&rounds, Figure::Iops), "100 (3–110)");
        assert_eq!(spread(&rounds, Figure::MbPerS), "");
        assert_eq!(middle(vec![1.0, 3.0]), Some(2.0));
        assert_eq!(middle(Vec::new()), None);
    }

    #[test]
    fn bytes_and_shares_follow_from_the_rate() {
        let mut figures = Figures::from([(Figure::Iops, 1e5), (Figure::ClientUsPerIo, 5.0)]);
        complete(&mut figures, 4096);
        assert_eq!(
            (figures[&Figure::MbPerS], figures[&Figure::ClientBusy]),
            (409.6, 50.0)
        );
        assert_eq!(figures[&Figure::IopsPerClientCpu], 2e5);
        assert_eq!(figures.get(&Figure::ServerBusy), None);
    }

    #[test]
    fn a_goal_has_one_row_and_a_missed_one_is_marked() {
        let goal = |cell: &str, found, limit| Judged {
            cell: cell.to_owned(),
            ..Judged::at_least("rate", found, limit)
        };
        assert_eq!(
            rows(&[goal("reads", 0.9, 0.8), goal("writes", 0.7, 0.8)]),
            "| goal | limit | reads | writes |\n|---|---|---:|---:|\n| rate | ≥ 0.8 | 0.900 | **0.700** |\n\n"
        );
        assert_eq!(
            rows(&[goal("reads", 0.9, 0.8), goal("writes", 0.7, 0.6)]),
            "| goal | limit | reads | writes |\n|---|---|---:|---:|\n| rate |  | 0.900 (≥ 0.8) | 0.700 (≥ 0.6) |\n\n"
        );
        let whole = rows(&[Judged::at_most("seconds", 2.5, 2.0)]);
        assert_eq!(
            whole,
            "| goal | limit | found |\n|---|---|---:|\n| seconds | ≤ 2 | **2.500** |\n\n"
        );
        assert_eq!(rows(&[]), "");
    }
}
