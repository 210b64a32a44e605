//! Tests with random records. The expected statements are computed independently: directly from the runs,
//! with a printed table of Student's distribution.

use super::*;
use crate::summary;
use bench::plan::{Cell, Percent, Workload};
use bench::record::{CellRun, Record};
use bench::test_record::{clients, record, run};
use testkit::Random;

/// The value of Student's table for 3 runs: two degrees of freedom, 95 %.
const T: f64 = 4.303;

fn between(random: &mut Random, low: f64, high: f64) -> f64 {
    low + (high - low) * random.fraction()
}

fn cell(name: &str, series: &str, block_bytes: u32, depth: u32, read: Percent) -> Cell {
    let workload = Workload::simple(block_bytes, depth, read, Percent::NONE);
    Cell {
        series: series.to_owned(),
        ..clients(name, 1, &workload)
    }
}

fn runs_of(cell: &Cell, rates: [f64; 3]) -> Vec<CellRun> {
    (0..)
        .zip(rates)
        .map(|(round, rate)| run(cell, round, &[rate]))
        .collect()
}

fn middle(mut rates: [f64; 3]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[1]
}

#[test]
fn a_rate_is_judged_by_its_own_ceiling_else_by_what_was_published_of_its_length() {
    let mut seen = [0; 3];
    for seed in 1..=400_u64 {
        let mut random = Random::new(seed);
        let lengths = [4096_u32, 65_536, 1 << 20];
        let mut cells: Vec<(Cell, [f64; 3], bool)> = Vec::new();
        for n in 0..=random.below(5) {
            let reads = random.below(2) == 0;
            let share = if reads { Percent::ALL } else { Percent::NONE };
            let cell = cell(
                &format!("c{n}"),
                "s",
                lengths[random.below(3) as usize],
                8,
                share,
            );
            cells.push((
                cell,
                [0; 3].map(|_| (1000 + random.below(100_000)) as f64),
                reads,
            ));
        }
        let mut limits: Vec<Limit> = Vec::new();
        for direction in ["read", "write"]
            .into_iter()
            .filter(|_| random.below(2) == 0)
            .collect::<Vec<_>>()
        {
            let points = lengths
                .map(|bytes| (bytes, between(&mut random, 1e8, 1e11)))
                .to_vec();
            limits.push(Limit {
                name: format!("{direction} roof"),
                direction: direction.to_owned(),
                depth: None,
                points,
            });
        }
        let mut published: Vec<(bool, u32, f64)> = Vec::new();
        for reads in [true, false] {
            if random.below(2) == 0 {
                published.push((
                    reads,
                    lengths[random.below(3) as usize],
                    between(&mut random, 1e6, 1e9),
                ));
            }
        }

        let all = record(
            cells.iter().map(|(cell, ..)| cell.clone()).collect(),
            cells
                .iter()
                .flat_map(|(cell, rates, _)| runs_of(cell, *rates))
                .collect(),
        );
        let summaries = summary::of(&all);
        let counterparts: Vec<Counterpart<'_>> = published
            .iter()
            .flat_map(|published| summaries.iter().map(move |summary| (published, summary)))
            .filter(|((reads, bytes, _), summary)| {
                let workload = &summary.cell.roles[0].workload;
                (workload.reads(), workload.block_bytes_max()) == (*reads, *bytes)
            })
            .map(|((.., rate), summary)| Counterpart {
                summary,
                client: None,
                measured: summary.bytes_per_s.median,
                row: &published::rows()[0],
                published: *rate,
            })
            .collect();
        let judged = judgements(&summaries, &limits, &counterparts);

        let mut expected: Vec<(String, f64)> = Vec::new();
        for reads in [true, false] {
            let length = |cell: &Cell| cell.roles[0].workload.block_bytes_max();
            let mut those: Vec<(f64, &Cell)> = cells
                .iter()
                .filter(|(.., is_read)| *is_read == reads)
                .map(|(cell, rates, _)| (middle(*rates) * f64::from(length(cell)), cell))
                .collect();
            those.sort_by(|one, other| other.0.total_cmp(&one.0));
            let Some((rate, fastest)) = those.first() else {
                continue;
            };
            let word = if reads { "read" } else { "write" };
            if let Some(limit) = limits.iter().find(|limit| limit.direction == word) {
                let (_, most) = limit
                    .points
                    .iter()
                    .find(|(bytes, _)| *bytes == length(fastest))
                    .expect("a point");
                expected.push((fastest.name.clone(), rate / most));
                continue;
            }
            let Some((_, bytes, most)) = published.iter().find(|(read, ..)| *read == reads) else {
                continue;
            };
            if let Some((rate, cell)) = those.iter().find(|(_, cell)| length(cell) == *bytes) {
                expected.push((cell.name.clone(), rate / most));
            }
        }
        assert_eq!(
            judged.len(),
            expected.len(),
            "seed {seed}: {judged:?} {expected:?}"
        );
        for (judgement, (name, ratio)) in judged.iter().zip(&expected) {
            let near = |value: f64| (value / ratio - 1.0).abs() < 1e-9;
            match judgement {
                Judgement::OfCeiling { cell, share, .. } => {
                    seen[0] += 1;
                    assert!(
                        near(*share) && *ratio <= 1.0 && cell.cell.name == *name,
                        "seed {seed}"
                    );
                }
                Judgement::AboveCeiling { cell, .. } => {
                    seen[1] += 1;
                    assert!(*ratio > 1.0 && cell.cell.name == *name, "seed {seed}");
                }
                Judgement::OfPublished { cell, times, .. } => {
                    seen[2] += 1;
                    assert!(near(*times) && cell.cell.name == *name, "seed {seed}");
                }
            }
            let says = good(&judged, &[]);
            assert!(!says.contains("10001") && says.ends_with('.'), "{says}");
        }
        if expected.is_empty() {
            assert!(good(&judged, &[]).starts_with("There is nothing to compare with"));
        }
    }
    assert!(seen.iter().all(|count| *count > 30), "{seen:?}");
}

/// Returns the effect of the last step, by the formula mean ± t s/√3, extended to include the median and
/// limited to 0. Returns `None` if it is too close to a threshold for a table with four digits.
fn told(before: [f64; 3], after: [f64; 3]) -> Option<(bool, bool)> {
    let ends = |rates: [f64; 3]| {
        let mean = rates.iter().sum::<f64>() / 3.0;
        let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / 2.0;
        let half = T * variance.sqrt() / 3.0_f64.sqrt();
        (
            (mean - half).min(middle(rates)).max(0.0),
            (mean + half).max(middle(rates)),
        )
    };
    let ((b_low, b_high), (a_low, a_high)) = (ends(before), ends(after));
    let times = middle(after) / middle(before);
    let edges = [(a_low, b_high), (a_high, 1.1 * b_low), (times, 1.1)];
    let is_near =
        |(one, other): &(f64, f64)| (one - other).abs() < 2e-3 * one.abs().max(other.abs());
    if edges.iter().any(is_near) {
        return None;
    }
    Some((times >= 1.1 && a_low > b_high, a_high < 1.1 * b_low))
}

#[test]
fn only_a_step_that_the_intervals_tell_apart_is_said_to_help_or_not_to_help() {
    let mut seen = [0; 3];
    for seed in 1..=600_u64 {
        let mut random = Random::new(seed);
        let over_length = seed % 3 == 0;
        let (mut cells, mut runs, mut last) = (Vec::new(), Vec::new(), Vec::new());
        for series in ["one", "two"].iter().take(1 + random.below(2) as usize) {
            let noise = [0.001, 0.03, 0.3][random.below(3) as usize];
            let mut rate = 50_000.0;
            let mut rates: Vec<[f64; 3]> = Vec::new();
            for (step, number) in [1_u32, 4, 16].into_iter().enumerate() {
                let (bytes, depth) = if over_length {
                    (4096 * number, 8)
                } else {
                    (4096, number)
                };
                let cell = cell(
                    &format!("{series}-{step}"),
                    series,
                    bytes,
                    depth,
                    Percent::ALL,
                );
                rate *= between(&mut random, 0.8, 1.8);
                let measured =
                    [0; 3].map(|_| (rate * between(&mut random, 1.0 - noise, 1.0 + noise)).round());
                runs.extend(runs_of(&cell, measured));
                cells.push(cell);
                rates.push(if over_length {
                    measured.map(|rate| rate * f64::from(bytes))
                } else {
                    measured
                });
            }
            last.push((*series, rates[1], rates[2]));
        }
        let all = record(cells, runs);
        let helps = helps(&summary::of(&all), &[], None);
        let Some(told) = last
            .iter()
            .map(|(_, before, after)| told(*before, *after))
            .collect::<Option<Vec<_>>>()
        else {
            continue;
        };
        let times = |n: usize| middle(last[n].2) / middle(last[n].1);
        let most = |wanted: fn(&(bool, bool)) -> bool| {
            let those = (0..last.len()).filter(|n| wanted(&told[*n]));
            those
                .max_by(|one, other| times(*one).total_cmp(&times(*other)))
                .map(|n| last[n].0)
        };
        let expected = match (most(|told| told.0), most(|told| told.1)) {
            (Some(series), _) => (0, series),
            (None, Some(series)) if !over_length => (1, series),
            _ => (2, ""),
        };
        seen[expected.0] += 1;
        let found = match helps.as_slice() {
            [Help::Depth(step)] if !over_length => (0, step.series.as_str()),
            [Help::Length(step)] if over_length => (0, step.series.as_str()),
            [Help::NotDepth(step)] => (1, step.series.as_str()),
            [Help::Unknown] => (2, ""),
            other => panic!("seed {seed}: {other:?}"),
        };
        assert_eq!(found, expected, "seed {seed}: {helps:?} {last:?}");
    }
    assert!(seen.iter().all(|count| *count > 20), "{seen:?}");
}

fn one_cell() -> Record {
    let cell = cell("read", "read", 4096, 1, Percent::ALL);
    let runs = runs_of(&cell, [1000.0, 1010.0, 990.0]);
    record(vec![cell], runs)
}

fn said(record: &Record) -> Vec<(&'static str, String)> {
    leads(&Report::new(record))
        .into_iter()
        .map(|lead| (lead.about, lead.says))
        .collect()
}

#[test]
fn a_record_with_nothing_beside_it_is_told_and_not_judged() {
    let said = said(&one_cell());
    assert_eq!(
        said,
        [
            (
                "What was measured?",
                "ram of 1 GiB, by the suite test: reads up to 4.10 MB/s, up to 1,000 IOPS; a single request \
                 takes 1.00 ms (p50)."
                    .to_owned()
            ),
            (
                "Is it good?",
                "There is nothing to compare with: the record has no ceiling, and no document to compare \
                 with was named."
                    .to_owned()
            ),
            (
                "What would help?",
                "Unknown. To find the limit of an iSCSI path, run linerate diagnose.".to_owned()
            ),
        ]
    );
}

#[test]
fn wrong_data_are_all_that_is_said() {
    let mut wrong = one_cell();
    wrong.runs[1].clients[0].run.mismatches = 1;
    let said = said(&wrong);
    assert!(
        said.len() == 1 && said[0].1.starts_with("No: wrong data was read"),
        "{said:?}"
    );
}

#[test]
fn nearly_all_of_a_ceiling_is_not_all_of_it() {
    assert_eq!(
        [0.999, 1.0, 0.0512, 0.5].map(percent),
        ["99 %", "100 %", "5.12 %", "50 %"]
    );
}

#[test]
fn a_lun_is_judged_by_results_over_a_network() {
    let mut record = one_cell();
    record.suite.document = Some("000".to_owned());
    let judged = |record: &Record| said(record)[1].1.clone();
    let local = "Slower than published results: reads of 4 KiB reach 0.202 times the rate in document 000, \
                 Table 4, local (no iSCSI) RAM drive.";
    assert_eq!(judged(&record), local);
    record.subject.kind = "iscsi".to_owned();
    let over_a_network = "Slower than published results: reads of 4 KiB reach 0.556 times the rate in document \
                          000, Table 5, iSCSI to hard drive, alternate adapter (Intel PRO 1000/T).";
    assert_eq!(judged(&record), over_a_network);
    // No document has numbers for these drives.
    record.subject.kind = "raid5 over disk over ram".to_owned();
    let none = "There is nothing to compare with: the record has no ceiling, and no result of the same class is \
                in document 000.";
    assert_eq!(judged(&record), none);
}
