//! A record of the loads' rounds and of the faults, and a comparison of the end with the start.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::fs;
use std::time::Duration;

use anyhow::Result;
use xtask::document;
use xtask::tally::Verdict;

use crate::figures::middle;
use crate::machine;

/// The names of the two loads that are compared with each other.
pub(super) const FILES: &str = "fio in ext4 on linerate attach";
pub(super) const RAW_FILES: &str = "fio in ext4 on a file of this machine";

/// A fault of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// SIGKILL and restart.
    Killed,
    /// SIGTERM and restart.
    Ended,
    /// SIGSTOP for some seconds.
    Stopped,
    /// The link is down for some seconds.
    Cut,
    /// A disk has this fault for some seconds (`linerate server fault`).
    Disk(&'static str),
    /// A disk is full for some seconds.
    Full,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Killed => f.write_str("server killed"),
            Kind::Ended => f.write_str("server shut down"),
            Kind::Stopped => f.write_str("server paused"),
            Kind::Cut => f.write_str("link cut"),
            Kind::Disk("hang") => f.write_str("disk hangs"),
            Kind::Disk("fail") => f.write_str("disk fails"),
            Kind::Disk("lose") => f.write_str("disk loses writes"),
            Kind::Disk(_) => f.write_str("disk is slow"),
            Kind::Full => f.write_str("disk is full"),
        }
    }
}

/// The resources of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    pub(super) memory: u64,
    pub(super) descriptors: usize,
}

impl Usage {
    pub(super) fn of(pid: u32) -> Result<Usage> {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))?.count();
        Ok(Usage {
            memory: machine::own_memory(pid)?,
            descriptors,
        })
    }
}

/// One round of one load.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) load: String,
    /// The round's start time.
    pub(super) at: Duration,
    pub(super) outcome: Outcome,
}

/// How a round ended.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// All data was correct.
    Right { mb_per_s: f64, p50_us: Option<f64> },
    /// All data was correct, but a request failed with an expected error.
    Disturbed(String),
    /// Wrong data, or an unexpected error.
    Wrong(String),
}

#[derive(Debug, Default)]
pub(super) struct Record {
    rounds: Vec<Round>,
    troubles: BTreeMap<Kind, u64>,
    /// The resources used, by process.
    usage: BTreeMap<&'static str, Vec<(Duration, Usage)>>,
    wrong: Vec<String>,
}

/// Minimum ratio of the last quarter's rate to the first quarter's.
const SLOWER: f64 = 0.7;
/// Maximum ratio of the last quarter's latency, memory and descriptors to those of the first quarter.
const MORE: f64 = 1.3;

impl Record {
    pub(super) fn note(&mut self, round: Round) -> Verdict {
        let Round { load, at, outcome } = &round;
        match outcome {
            Outcome::Right { .. } => {}
            Outcome::Disturbed(what) => println!("           {load}: {what}"),
            Outcome::Wrong(what) => {
                self.note_wrong(format!("{load} at {:.1} s: {what}", at.as_secs_f64()))
            }
        }
        self.rounds.push(round);
        Verdict::of(self.wrong.is_empty())
    }

    /// Records a fault, and the resources of each process at its start.
    pub(super) fn note_trouble(
        &mut self,
        kind: Kind,
        at: Duration,
        usages: Vec<(&'static str, Usage)>,
    ) {
        *self.troubles.entry(kind).or_default() += 1;
        for (process, usage) in usages {
            self.usage.entry(process).or_default().push((at, usage));
        }
    }

    pub(super) fn note_wrong(&mut self, what: String) {
        println!("WRONG: {what}");
        self.wrong.push(what);
    }

    /// Passes if nothing was wrong, every load had a correct round, and the figures at the end were like
    /// those at the start.
    pub(super) fn verdict(&self) -> Verdict {
        let rows = self.rows();
        let is_whole = rows.iter().all(|row| row.rounds > 0) && rows.iter().all(Row::lasts);
        Verdict::of(self.wrong.is_empty() && is_whole)
    }

    fn loads(&self) -> BTreeSet<&str> {
        self.rounds
            .iter()
            .map(|round| round.load.as_str())
            .collect()
    }

    fn rows(&self) -> Vec<Row> {
        let as_much = |ends: [f64; 2]| ends[1] <= ends[0] * MORE;
        let share = self.share();
        let mut rows = Vec::new();
        for load in self.loads() {
            let is_told_by_share = share.is_some() && [FILES, RAW_FILES].contains(&load);
            let holds = if is_told_by_share {
                |_| true
            } else {
                is_as_fast
            };
            rows.push(Row::of(format!("{load}, MB/s"), &self.rates(load), holds));
            let right = self.right(load).into_iter();
            let latency: Vec<_> = right.filter_map(|(at, _, p50)| Some((at, p50?))).collect();
            if !latency.is_empty() {
                rows.push(Row::of(format!("{load}, p50 in µs"), &latency, as_much));
            }
        }
        rows.extend(share);
        for (process, usage) in &self.usage {
            let of = |figure: fn(&Usage) -> f64| {
                usage
                    .iter()
                    .map(|(at, usage)| (*at, figure(usage)))
                    .collect::<Vec<_>>()
            };
            let memory = of(|usage| usage.memory as f64 / 1_048_576.0);
            rows.push(Row::of(format!("{process}, MiB"), &memory, as_much));
            let descriptors = of(|usage| usage.descriptors as f64);
            rows.push(Row::of(
                format!("{process}, descriptors"),
                &descriptors,
                as_much,
            ));
        }
        rows
    }

    /// Returns the rounds of a load without errors: time, MB/s, and p50 in µs.
    fn right(&self, load: &str) -> Vec<(Duration, f64, Option<f64>)> {
        let rounds = self.rounds.iter().filter(|round| round.load == load);
        let right = rounds.filter_map(|round| match round.outcome {
            Outcome::Right { mb_per_s, p50_us } => Some((round.at, mb_per_s, p50_us)),
            Outcome::Disturbed(_) | Outcome::Wrong(_) => None,
        });
        right.collect()
    }

    /// Returns the time and MB/s of these rounds.
    fn rates(&self, load: &str) -> Vec<(Duration, f64)> {
        self.right(load)
            .into_iter()
            .map(|(at, rate, _)| (at, rate))
            .collect()
    }

    /// Returns the rate of a file system on a volume as a percentage of the rate on a local file, because
    /// other loads use the same disk.
    fn share(&self) -> Option<Row> {
        let [files, raw] = [FILES, RAW_FILES].map(|load| {
            Row::of(
                format!("{load}, % of that on a file"),
                &self.rates(load),
                is_as_fast,
            )
        });
        let percent = |at: usize| Some(100.0 * files.ends[at]? / raw.ends[at]?);
        let (rounds, ends) = (files.rounds.min(raw.rounds), [percent(0), percent(1)]);
        (rounds > 0).then_some(Row {
            rounds,
            ends,
            ..files
        })
    }

    pub(super) fn text(&self, time: Duration, seed: u64) -> String {
        let troubles: Vec<String> = self
            .troubles
            .iter()
            .map(|(kind, times)| format!("{kind} {times}"))
            .collect();
        let mut text = format!(
            "{}; {:.2} h, seed {seed}. Faults: {}.\n\n\
             | load | correct rounds | with expected errors | MB/s | p50 in µs |\n|---|---:|---:|---:|---:|\n",
            machine::machine(),
            time.as_secs_f64() / 3600.0,
            troubles.join(", ")
        );
        let mut rows = self.rows();
        // Takes the figures of a name, as `first → last`.
        let mut take = |name: String| {
            let row = rows.iter().position(|row| row.name == name)?;
            Some(rows.remove(row).text())
        };
        for load in self.loads() {
            let count = |is_it: fn(&Outcome) -> bool| {
                self.rounds
                    .iter()
                    .filter(|round| round.load == load && is_it(&round.outcome))
                    .count()
            };
            let right = count(|outcome| matches!(outcome, Outcome::Right { .. }));
            let disturbed = count(|outcome| matches!(outcome, Outcome::Disturbed(_)));
            let [rate, latency] = ["MB/s", "p50 in µs"]
                .map(|unit| take(format!("{load}, {unit}")).unwrap_or_default());
            let _ = writeln!(
                text,
                "| {load} | {right} | {disturbed} | {rate} | {latency} |"
            ); // a String takes everything
        }
        let others: Vec<String> = rows
            .iter()
            .map(|row| format!("{}: {}", row.name, row.text()))
            .collect();
        let _ = writeln!(
            text,
            "\nFigures are medians of the first → the last quarter; (!) is one that does not last. {}.",
            others.join("; ")
        );
        for what in &self.wrong {
            let _ = writeln!(text, "\nWRONG: {what}");
        }
        text
    }

    /// Adds the run to docs/measured/soak.md.
    pub(super) fn write(&self, time: Duration, seed: u64) -> Result<()> {
        let today = xtask::process::run("date", &["--iso-8601"])?;
        let heading = format!(
            "{}, {:.1} hours, seed {seed}",
            today.trim(),
            time.as_secs_f64() / 3600.0
        );
        document::write_section("soak", &heading, &self.text(time, seed))
    }
}

fn is_as_fast([first, last]: [f64; 2]) -> bool {
    last >= first * SLOWER
}

/// A figure at the start and at the end.
struct Row {
    name: String,
    rounds: usize,
    ends: [Option<f64>; 2],
    holds: fn([f64; 2]) -> bool,
}

impl Row {
    fn of(name: String, figures: &[(Duration, f64)], holds: fn([f64; 2]) -> bool) -> Row {
        let last = figures.last().map_or(Duration::ZERO, |(at, _)| *at);
        let of = |is_in: &dyn Fn(Duration) -> bool| {
            middle(
                figures
                    .iter()
                    .filter(|(at, _)| is_in(*at))
                    .map(|(_, figure)| *figure)
                    .collect(),
            )
        };
        let ends = [of(&|at| at <= last / 4), of(&|at| at >= last * 3 / 4)];
        Row {
            name,
            rounds: figures.len(),
            ends,
            holds,
        }
    }

    /// Returns the figures at the start and at the end.
    fn text(&self) -> String {
        let [first, last] = self
            .ends
            .map(|end| end.map_or("—".to_owned(), |end| format!("{end:.1}")));
        let mark = if self.lasts() { "" } else { " (!)" };
        format!("{first} → {last}{mark}")
    }

    fn lasts(&self) -> bool {
        let [Some(first), Some(last)] = self.ends else {
            return false;
        };
        (self.holds)([first, last])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(rates: &[f64]) -> Record {
        let mut record = Record::default();
        for (number, &mb_per_s) in (0..).zip(rates) {
            note(
                &mut record,
                "load",
                number,
                Outcome::Right {
                    mb_per_s,
                    p50_us: None,
                },
            );
            note_memory(&mut record, number, 1 << 20);
        }
        record
    }

    fn note(record: &mut Record, load: &str, second: u64, outcome: Outcome) -> Verdict {
        record.note(Round {
            load: load.to_owned(),
            at: Duration::from_secs(second),
            outcome,
        })
    }

    fn note_memory(record: &mut Record, second: u64, memory: u64) {
        let usage = Usage {
            memory,
            descriptors: 10,
        };
        record.note_trouble(
            Kind::Killed,
            Duration::from_secs(second),
            vec![("server", usage)],
        );
    }

    #[test]
    fn the_end_is_to_be_like_the_beginning() {
        assert_eq!(record(&[10.0; 20]).verdict(), Verdict::Holds);
        let mut slower = [10.0; 20];
        slower[14..].fill(5.0);
        assert_eq!(record(&slower).verdict(), Verdict::Fails);
    }

    #[test]
    fn more_and_more_memory_is_noticed() {
        let mut record = record(&[10.0; 20]);
        for number in 0..20 {
            note_memory(&mut record, 20 + number, 1 << 30);
        }
        assert_eq!(record.verdict(), Verdict::Fails);
    }

    #[test]
    fn longer_latencies_are_noticed() {
        for (longer, verdict) in [(1.2, Verdict::Holds), (2.0, Verdict::Fails)] {
            let mut record = record(&[10.0; 20]);
            for number in 0..20 {
                let p50_us = Some(if number < 10 { 100.0 } else { 100.0 * longer });
                let outcome = Outcome::Right {
                    mb_per_s: 10.0,
                    p50_us,
                };
                note(&mut record, "other", number, outcome);
            }
            assert_eq!(record.verdict(), verdict, "{longer}");
        }
    }

    #[test]
    fn a_slower_disk_is_not_ours() {
        for (raw_at_the_end, verdict) in [(20.0, Verdict::Holds), (40.0, Verdict::Fails)] {
            let mut record = record(&[10.0; 20]);
            for number in 0..20 {
                let rate = |first: f64, last: f64| if number < 10 { first } else { last };
                for (load, mb_per_s) in [
                    (FILES, rate(20.0, 10.0)),
                    (RAW_FILES, rate(40.0, raw_at_the_end)),
                ] {
                    note(
                        &mut record,
                        load,
                        number,
                        Outcome::Right {
                            mb_per_s,
                            p50_us: None,
                        },
                    );
                }
            }
            assert_eq!(record.verdict(), verdict, "{raw_at_the_end}");
        }
    }

    #[test]
    fn one_wrong_round_is_enough() {
        let mut record = record(&[10.0; 20]);
        let outcome = Outcome::Wrong("a block is older than it may be".to_owned());
        assert_eq!(note(&mut record, "load", 0, outcome), Verdict::Fails);
        assert_eq!(record.verdict(), Verdict::Fails);
        assert!(record.text(Duration::ZERO, 1).contains("older"));
    }
}
