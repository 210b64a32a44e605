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

/// Returns the slowest and the fastest round.
pub(crate) fn spread(rounds: &[Figures]) -> String {
    let rates = || {
        rounds
            .iter()
            .filter_map(|round| round.get(&Figure::Iops).copied())
    };
    match rates().next() {
        None => String::new(),
        Some(_) => {
            format!(
                "{:.0} – {:.0}",
                rates().fold(f64::INFINITY, f64::min),
                rates().fold(0.0, f64::max)
            )
        }
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
    pub(crate) found: f64,
    pub(crate) bound: Bound,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Judged {
    pub(crate) fn at_most(what: impl Into<String>, found: f64, limit: f64) -> Judged {
        Judged {
            what: what.into(),
            found,
            bound: Bound::AtMost(limit),
        }
    }

    pub(crate) fn at_least(what: impl Into<String>, found: f64, limit: f64) -> Judged {
        Judged {
            what: what.into(),
            found,
            bound: Bound::AtLeast(limit),
        }
    }

    /// Whether the goal was reached.
    pub(crate) fn is_reached(&self) -> bool {
        match self.bound {
            Bound::AtMost(limit) => self.found <= limit,
            Bound::AtLeast(limit) => self.found >= limit,
        }
    }

    pub(crate) fn row(&self) -> String {
        let asked = match self.bound {
            Bound::AtMost(limit) => format!("≤ {limit}"),
            Bound::AtLeast(limit) => format!("≥ {limit}"),
        };
        let verdict = if self.is_reached() {
            "reached"
        } else {
            "**missed**"
        };
        format!(
            "| {} | {asked} | {:.3} | {verdict} |\n",
            self.what, self.found
        )
    }
}

/// Returns a table with a row for each goal. The table is empty if there are no goals.
pub(crate) fn rows(goals: &[Judged]) -> String {
    if goals.is_empty() {
        return String::new();
    }
    let head = "| goal | limit | found | |\n|---|---|---:|---|\n";
    goals
        .iter()
        .fold(head.to_owned(), |text, goal| text + &goal.row())
        + "\n"
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
        assert_eq!(spread(&rounds), "3 – 110");
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
}
