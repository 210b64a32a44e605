//! Formats several results as one page: a line for each, the cells that they have in common, and then each
//! result as on its own page.

use super::document::{Block, Document, Lead, Section, Table, Tone, Verdict};
use super::sections::{self, fastest};
use super::views::{Direction, interval, latencies};
use super::{Report, html, markdown, terminal};
use crate::summary::CellSummary;
use readable::figures::{counted, grouped, latency, megabytes, significant};
use readable::table::{Align, Column, fitted};

/// Several results that are shown together.
#[derive(Clone, Debug)]
pub struct Reports<'a>(Vec<Report<'a>>);

impl<'a> Reports<'a> {
    /// Creates a document of these reports, in this order.
    pub fn new(reports: Vec<Report<'a>>) -> Reports<'a> {
        Reports(reports)
    }

    /// Returns the page as a self-contained HTML file.
    pub fn html(&self) -> String {
        html::pages(&self.overview(), &self.parts())
    }

    /// Returns the page as Markdown.
    pub fn markdown(&self) -> String {
        let parts = self.parts();
        let pages = parts
            .iter()
            .map(|part| format!("\n{}", markdown::page(part)));
        markdown::page(&self.overview()) + &pages.collect::<String>()
    }

    /// Returns a line for each result, for a terminal with this number of columns.
    pub fn terminal(&self, width: usize) -> String {
        let table = self.table();
        let head: Vec<String> = table
            .columns
            .iter()
            .map(|column| column.title.clone())
            .collect();
        let rows = table.rows.iter().map(|row| row.cells.clone());
        let rows: Vec<Vec<String>> = [head.clone()].into_iter().chain(rows).collect();
        let align = |numbers: bool| if numbers { Align::Right } else { Align::Left };
        // The first columns identify the result. The last ones are omitted first if there is not enough
        // space.
        let columns = table.columns.iter().enumerate();
        let columns = columns.map(|(at, column)| Column {
            align: align(column.numbers),
            rank: u8::from(at > 1),
        });
        let fitted = fitted(&columns.collect::<Vec<_>>(), &rows, terminal::used(width));
        let note = fitted.note(&head.iter().map(String::as_str).collect::<Vec<_>>());
        terminal::printed(
            &fitted
                .rows
                .concat()
                .into_iter()
                .chain(note)
                .collect::<Vec<_>>(),
        )
    }

    fn parts(&self) -> Vec<Document> {
        let part = |(n, report): (usize, &Report<'_>)| {
            let document = sections::document(report);
            Document {
                title: format!("Result {}: {}", n + 1, document.title),
                ..document
            }
        };
        self.0.iter().enumerate().map(part).collect()
    }

    fn overview(&self) -> Document {
        let table = Block::Table(self.table());
        let mut sections = vec![Section {
            id: "results",
            title: "Results",
            blocks: vec![table],
        }];
        sections.extend(self.in_common());
        let verdicts = self.0.iter().map(sections::verdict);
        let tone = verdicts
            .map(|verdict| verdict.tone)
            .max()
            .unwrap_or(Tone::Incomplete);
        let begun = || self.0.iter().map(|report| report.record.begun.as_str());
        let (first, last) = (
            begun().min().unwrap_or_default(),
            begun().max().unwrap_or_default(),
        );
        Document {
            title: counted(self.0.len(), "result"),
            subtitle: if first == last {
                first.to_owned()
            } else {
                format!("{first} to {last}")
            },
            verdict: Verdict {
                lead: self.leads(),
                tone,
                says: sections::says(tone).to_owned(),
                headlines: Vec::new(),
                reservations: Vec::new(),
            },
            sections,
        }
    }

    /// Returns the fastest storage in each direction, among the results with correct data.
    fn leads(&self) -> Vec<Lead> {
        let mut places: Vec<&str> = Vec::new();
        for place in self
            .0
            .iter()
            .map(|report| report.record.subject.place.as_str())
        {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        let says = format!(
            "{}: {}.",
            counted(places.len(), "place"),
            crate::views::listed(&places)
        );
        let mut leads = vec![Lead {
            about: "What was measured?",
            says,
        }];
        let is_right = |report: &&Report<'_>| {
            report
                .summaries
                .iter()
                .all(|summary| summary.mismatches == 0)
        };
        let best = |direction| {
            let right = self
                .0
                .iter()
                .enumerate()
                .filter(|(_, report)| is_right(report));
            let each = right
                .filter_map(|(n, report)| Some((n, fastest(report.summaries.iter(), direction)?)));
            each.max_by(|(_, one), (_, other)| {
                one.bytes_per_s.median.total_cmp(&other.bytes_per_s.median)
            })
        };
        let clause = |(direction, name): (Direction, &str)| {
            let (n, cell) = best(direction)?;
            Some(format!(
                "{name} in result {} ({} MB/s)",
                n + 1,
                megabytes(cell.bytes_per_s.median)
            ))
        };
        let clauses: Vec<String> = [
            (Direction::Read, "reads"),
            (Direction::Write, "writes"),
            (Direction::Both, "mixed reads and writes"),
        ]
        .into_iter()
        .filter_map(clause)
        .collect();
        if !clauses.is_empty() {
            let says = format!(
                "{}. linerate compare shows the significant differences.",
                clauses.join(", ")
            );
            leads.push(Lead {
                about: "Which is fastest where?",
                says,
            });
        }
        leads
    }

    fn table(&self) -> Table {
        let columns = [
            "#result",
            "folder",
            "began",
            "suite",
            "place",
            "#read MB/s",
            "#write MB/s",
            "#IOPS",
            "",
        ];
        let mut table = Table::of("", &columns);
        for (n, report) in self.0.iter().enumerate() {
            let rate = |direction| {
                let fastest = fastest(report.summaries.iter(), direction);
                fastest
                    .map(|cell| megabytes(cell.bytes_per_s.median))
                    .unwrap_or_default()
            };
            let most = report
                .summaries
                .iter()
                .map(|summary| summary.iops.median)
                .fold(0.0, f64::max);
            let (tone, record) = (sections::verdict(report).tone, report.record);
            table.marked_row(
                tone != Tone::Good,
                [
                    (n + 1).to_string(),
                    report.folder.clone().unwrap_or_default(),
                    record.begun.clone(),
                    record.suite.name.clone(),
                    record.subject.place.clone(),
                    rate(Direction::Read),
                    rate(Direction::Write),
                    grouped(most.round() as u64),
                    sections::says(tone).to_owned(),
                ],
            );
        }
        table
    }

    /// Returns the cells that several results have in common, one below the other. Cells that share only
    /// their names are listed below them.
    fn in_common(&self) -> Option<Section> {
        let columns = [
            "cell",
            "#result",
            "#IOPS",
            "#95 % interval",
            "#MB/s",
            "#p50",
            "#p99",
        ];
        let mut table = Table::of("", &columns);
        let mut others: Vec<&str> = Vec::new();
        let all: Vec<(usize, &CellSummary)> = (1..)
            .zip(&self.0)
            .flat_map(|(n, report)| report.summaries.iter().map(move |summary| (n, summary)))
            .filter(|(_, summary)| summary.runs > 0)
            .collect();
        for (at, (n, summary)) in all.iter().enumerate() {
            let name = summary.cell.name.as_str();
            let named = |(_, other): &&(usize, &CellSummary)| other.cell.name == name;
            let same = |one: &&(usize, &CellSummary)| {
                named(one) && one.1.cell.is_comparable(&summary.cell)
            };
            if all.iter().filter(named).any(|one| !same(&one)) && !others.contains(&name) {
                others.push(name);
            }
            let known = all[..at].iter().any(|other| same(&other));
            let later: Vec<&(usize, &CellSummary)> = all[at + 1..].iter().filter(same).collect();
            if known || later.is_empty() {
                continue;
            }
            for (place, (n, summary)) in [&(*n, *summary)].into_iter().chain(later).enumerate() {
                let times = latencies(summary);
                table.row([
                    if place == 0 {
                        summary.cell.name.clone()
                    } else {
                        String::new()
                    },
                    n.to_string(),
                    significant(summary.iops.median),
                    interval(summary.iops, significant),
                    megabytes(summary.bytes_per_s.median),
                    latency(times.p50_us),
                    latency(times.p99_us),
                ]);
            }
        }
        let mut blocks = Vec::new();
        if !table.rows.is_empty() {
            blocks.push(Block::Table(table));
        }
        if !others.is_empty() {
            let names = crate::views::listed(&others);
            blocks.push(Block::Text(format!(
                "Cells with the same name, but different requests: {names}."
            )));
        }
        (!blocks.is_empty()).then_some(Section {
            id: "common",
            title: "The same cells in several results",
            blocks,
        })
    }
}
