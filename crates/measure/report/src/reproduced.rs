//! The page of a reproduced document: every table with the measured numbers, for each bed on which the tests
//! were carried out, and the figures over the length of requests.
//!
//! A *bed* is a set of hosts, links and storage: a model of the document's hardware, or this machine without a
//! model. A *test* measures numbers of the document with one suite. The caller carries the tests out; this
//! module only compares and shows.

use bench::plan::Cell;
use bench::record::Record;
use published::{Conditions, Direction, Document as Source, Path, Quantity, Row, Table as Printed};
use readable::figures::{megabytes, significant, size};

use crate::beside::{ANY_MEDIUM, on_unknown_storage, shares};
use crate::chart::{Axis, Curve, Look, Plot, Point, Scale};
use crate::document::{Block, Document, Lead, Section, Table, Tone, Verdict};
use crate::summary::{self, CellSummary};
use crate::views::{Series, block_bytes, over_size};
use crate::{html, markdown, wan};

/// A reproduced document.
#[derive(Clone, Debug)]
pub struct Reproduction<'a> {
    source: &'static Source,
    is_quick: bool,
    beds: Vec<Measured<'a>>,
}

/// The results of a bed.
#[derive(Clone, Debug)]
pub struct Bed<'a> {
    /// The name of the bed.
    pub name: String,
    /// The bed in a sentence.
    pub about: String,
    /// The settings that were chosen so that results match the document, with their values.
    pub fitted: Vec<String>,
    /// The tests, in the order of the plan.
    pub tests: Vec<Test<'a>>,
}

/// The result of a test.
#[derive(Clone, Debug)]
pub struct Test<'a> {
    /// The numbers of the document that the test measures.
    pub rows: Vec<&'static Row>,
    /// The measured storage, as in the plan.
    pub place: String,
    /// A remark about the published numbers; empty if there is none.
    pub note: String,
    /// The result.
    pub record: &'a Record,
}

/// A bed with its summarized tests.
#[derive(Clone, Debug)]
struct Measured<'a> {
    bed: Bed<'a>,
    /// The cells of each test.
    summaries: Vec<Vec<CellSummary>>,
    /// The measured numbers, with their values in base units. A number about a range of lengths was "reached"
    /// with each of them, so its lowest rate counts.
    values: Vec<(&'static Row, f64)>,
}

/// The agreement of a bed with the document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// The numbers that the tests measure.
    pub numbers: usize,
    /// The numbers that have been measured.
    pub measured: usize,
    /// The numbers that differ from the published ones by at most [`NEAR`].
    pub near: usize,
    /// The numbers that are at least as good as the published ones.
    pub reached: usize,
}

/// The difference up to which a number counts as reproduced. The documents do not state the uncertainty of
/// their numbers. Where they print a test twice, they differ by 3 to 12 %.
pub const NEAR: f64 = 0.15;

/// Returns the numbers among `rows` that a cell measures, and for each the index of the role whose result it
/// is; `None` if it is the result of all roles.
pub fn measured_by(cell: &Cell, rows: &[&'static Row]) -> Vec<(Option<usize>, &'static Row)> {
    if let Some(setting) = &cell.setting {
        let Some(asked) = wan::Asked::of(cell) else {
            return Vec::new();
        };
        let is_of = |row: &&&Row| wan::is_of(row, setting, asked);
        return rows.iter().filter(is_of).map(|row| (None, *row)).collect();
    }
    let mut paths: Vec<Path> = Vec::new();
    for path in rows
        .iter()
        .filter_map(|row| row.class.as_ref().map(|class| class.path))
    {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    let of = |conditions: &Conditions| -> Vec<&'static Row> {
        let mut found: Vec<&'static Row> = Vec::new();
        for path in &paths {
            let conditions = Conditions {
                path: *path,
                media: ANY_MEDIUM,
                ..conditions.clone()
            };
            let comparable = published::comparable(&conditions);
            let chosen = |row: &&'static Row| rows.iter().any(|other| std::ptr::eq(*other, *row));
            for row in comparable.filter(chosen) {
                if !found.iter().any(|other| std::ptr::eq(*other, row)) {
                    found.push(row);
                }
            }
        }
        found
    };
    let total = on_unknown_storage(cell).map_or_else(Vec::new, |conditions| of(&conditions));
    let mut all: Vec<_> = total.into_iter().map(|row| (None, row)).collect();
    for share in shares(cell) {
        let rows = of(&share.conditions);
        let mut columns: Vec<published::Source> = Vec::new();
        for source in rows.iter().map(|row| row.source()) {
            if !columns.contains(&source) {
                columns.push(source);
            }
        }
        // The columns of a table are the clients, in order.
        if let Some(column) = columns.get(share.nth) {
            let own = rows.iter().filter(|row| row.source() == *column);
            all.extend(own.map(|row| (Some(share.role), *row)));
        }
    }
    all
}

/// Returns the measured value of a published number, in the number's base unit.
fn value(summary: &CellSummary, role: Option<usize>, row: &Row) -> Option<f64> {
    let client = match role {
        Some(role) => Some(summary.clients.get(role)?),
        None => None,
    };
    let times = client.map_or(&summary.service, |client| &client.service);
    let value = match row.metric.as_str() {
        "throughput" => client.map_or(summary.bytes_per_s.median, |client| client.bytes_per_s),
        "iops" => client.map_or(summary.iops.median, |client| client.iops),
        "latency_avg" => times.mean_us / 1e6,
        "latency_max" => times.max_us / 1e6,
        "cpu_load_client" => summary.cpu_load.client? / 100.0,
        _ => return None,
    };
    (value.is_finite() && value > 0.0).then_some(value)
}

/// Whether a larger number is better.
fn is_rate(row: &Row) -> bool {
    matches!(row.metric.as_str(), "throughput" | "iops")
}

impl<'a> Measured<'a> {
    fn new(bed: Bed<'a>) -> Measured<'a> {
        let of_test = |test: &Test<'_>| summary::of(test.record);
        let summaries: Vec<Vec<CellSummary>> = bed.tests.iter().map(of_test).collect();
        let mut values: Vec<(&'static Row, f64)> = Vec::new();
        for (test, summaries) in bed.tests.iter().zip(&summaries) {
            for summary in summaries.iter().filter(|summary| summary.runs > 0) {
                for (role, row) in measured_by(&summary.cell, &test.rows) {
                    let Some(value) = value(summary, role, row) else {
                        continue;
                    };
                    match values
                        .iter_mut()
                        .find(|(other, _)| std::ptr::eq(*other, row))
                    {
                        Some((_, lowest)) => *lowest = lowest.min(value),
                        None => values.push((row, value)),
                    }
                }
            }
        }
        Measured {
            bed,
            summaries,
            values,
        }
    }

    /// Returns the numbers that the tests of the bed measure.
    fn rows(&self) -> impl Iterator<Item = &'static Row> + '_ {
        self.bed
            .tests
            .iter()
            .flat_map(|test| test.rows.iter().copied())
    }

    /// Returns the measured value of a number in its base unit.
    fn value(&self, row: &'static Row) -> Option<f64> {
        let is_row = |(other, _): &&(&'static Row, f64)| std::ptr::eq(*other, row);
        self.values.iter().find(is_row).map(|(_, value)| *value)
    }

    fn agreement(&self) -> Agreement {
        let mut agreement = Agreement::default();
        for row in self.rows() {
            agreement.numbers += 1;
            let Some(times) = self.value(row).zip(row.si).map(times) else {
                continue;
            };
            agreement.measured += 1;
            agreement.near += usize::from((times - 1.0).abs() <= NEAR);
            let is_reached = if is_rate(row) {
                times >= 1.0
            } else {
                times <= 1.0
            };
            agreement.reached += usize::from(is_reached);
        }
        agreement
    }
}

fn times((value, si): (f64, Quantity)) -> f64 {
    value / si.value
}

/// Returns a measured value in the unit of a published number.
fn in_its_unit(value: f64, row: &Row) -> Option<f64> {
    let printed: f64 = row.printed.parse().ok()?;
    Some(value / row.si?.value * printed)
}

impl<'a> Reproduction<'a> {
    /// Creates the page of a document. `is_quick` marks it as measured with shortened runs.
    pub fn new(source: &'static Source, is_quick: bool, beds: Vec<Bed<'a>>) -> Reproduction<'a> {
        Reproduction {
            source,
            is_quick,
            beds: beds.into_iter().map(Measured::new).collect(),
        }
    }

    /// Returns the page as a self-contained HTML file.
    pub fn html(&self) -> String {
        html::page(&self.document())
    }

    /// Returns the page as Markdown.
    pub fn markdown(&self) -> String {
        markdown::page(&self.document())
    }

    /// Returns the agreement of each bed with the document, in a line each.
    pub fn terminal(&self) -> String {
        self.beds
            .iter()
            .map(|measured| format!("{}: {}\n", measured.bed.name, said(measured)))
            .collect()
    }

    /// Returns a CSV line for each number and bed. Values are in the document's units.
    ///
    /// # Errors
    /// There are none in practice: the table is in memory.
    pub fn csv(&self) -> Result<String, csv::Error> {
        const COLUMNS: [&str; 12] = [
            "document",
            "table",
            "system",
            "test",
            "block_bytes",
            "depth",
            "rtt_ms",
            "metric",
            "unit",
            "published",
            "bed",
            "measured",
        ];
        let mut lines = csv::Writer::from_writer(Vec::new());
        lines.write_record(COLUMNS.into_iter().chain(["ratio"]))?;
        let text = |number: Option<f64>| number.map_or_else(String::new, |n| n.to_string());
        for measured in &self.beds {
            for row in measured.rows() {
                let value = measured.value(row);
                let cells: [&str; 13] = [
                    &row.document,
                    &row.table,
                    &row.system,
                    &row.test,
                    &text(row.block_bytes.map(f64::from)),
                    &text(row.depth.map(f64::from)),
                    &text(row.rtt_ms),
                    &row.metric,
                    &row.unit,
                    &row.printed,
                    &measured.bed.name,
                    &text(value.and_then(|value| in_its_unit(value, row))),
                    &text(value.zip(row.si).map(times)),
                ];
                lines.write_record(cells)?;
            }
        }
        let bytes = lines.into_inner().map_err(|error| error.into_error())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn document(&self) -> Document {
        let sections = [self.beds_section(), self.tables_section()]
            .into_iter()
            .chain(self.figures_section())
            .chain([self.tests_section()]);
        let begun = self.records().map(|record| record.begun.as_str()).min();
        let version = self.records().map(|record| record.version.as_str()).next();
        let mut subtitle = vec![
            self.source.title.to_owned(),
            format!("by {}", self.source.by),
            begun.unwrap_or_default().to_owned(),
            format!("linerate {}", version.unwrap_or_default()),
        ];
        subtitle.retain(|part| !part.is_empty());
        Document {
            title: format!("Document {}, reproduced", self.source.number),
            subtitle: subtitle.join(" · "),
            verdict: self.verdict(),
            sections: sections.collect(),
        }
    }

    fn records(&self) -> impl Iterator<Item = &'a Record> + '_ {
        let tests = self.beds.iter().flat_map(|measured| &measured.bed.tests);
        tests.map(|test| test.record)
    }

    fn verdict(&self) -> Verdict {
        let agreements: Vec<Agreement> = self.beds.iter().map(Measured::agreement).collect();
        let is_complete = agreements
            .iter()
            .all(|agreement| agreement.measured == agreement.numbers);
        let tone = match (is_complete, self.is_quick) {
            (false, _) => Tone::Incomplete,
            (true, true) => Tone::Care,
            (true, false) => Tone::Good,
        };
        let lead = self.beds.iter().map(|measured| Lead {
            about: "How close is it?",
            says: format!("{}: {}.", measured.bed.name, said(measured)),
        });
        let quick = "This is a quick run: each cell was measured only once, for a fraction of a \
                     second. Use it to check the plan, and not the numbers.";
        Verdict {
            lead: lead.collect(),
            tone,
            says: match (self.is_quick, is_complete) {
                (true, _) => quick.to_owned(),
                (false, true) => "Every test ran to its end.".to_owned(),
                (false, false) => "Some numbers were not measured.".to_owned(),
            },
            headlines: Vec::new(),
            reservations: Vec::new(),
        }
    }

    /// The beds, with their fitted settings.
    fn beds_section(&self) -> Section {
        let mut table = Table::of(
            "",
            &[
                "bed",
                "",
                "#numbers",
                "#measured",
                "#within 15 %",
                "#reached",
                "#fitted settings",
            ],
        );
        let mut fitted = Vec::new();
        for measured in &self.beds {
            let (bed, agreement) = (&measured.bed, measured.agreement());
            table.row([
                bed.name.clone(),
                bed.about.clone(),
                agreement.numbers.to_string(),
                agreement.measured.to_string(),
                agreement.near.to_string(),
                agreement.reached.to_string(),
                bed.fitted.len().to_string(),
            ]);
            let each = bed.fitted.iter();
            fitted.extend(each.map(|setting| format!("fitted, {}: {setting}", bed.name)));
        }
        let says = "A number is reached if the rate is at least as high, or the time or load at most as \
                    high, as published. Fitted settings were chosen so that results match the document; all \
                    other settings are from the document.";
        Section {
            id: "beds",
            title: "Beds",
            blocks: vec![
                Block::Table(table),
                Block::Text(says.to_owned()),
                Block::List(fitted),
            ],
        }
    }

    /// Every table of the document that contains measurements.
    fn tables_section(&self) -> Section {
        let says = "Cells are measured / published / ratio, in the unit of the document.";
        let mut blocks = vec![Block::Text(says.to_owned())];
        let mut others = Vec::new();
        for printed in published::tables(self.source.number) {
            let is_measured = |row: &'static Row| {
                let mut all = self.beds.iter().flat_map(Measured::rows);
                all.any(|other| std::ptr::eq(other, row))
            };
            let mut rows = rows_of(&printed);
            if !rows.any(is_measured) {
                others.push(printed.name.clone());
                continue;
            }
            blocks.push(Block::Heading(printed.name.clone()));
            if !printed.common.is_empty() {
                blocks.push(Block::Text(printed.common.join("; ")));
            }
            for measured in &self.beds {
                blocks.push(Block::Text(format!("Bed {}:", measured.bed.name)));
                blocks.push(Block::Table(table(&printed, measured)));
            }
            let notes = self.notes_of(&printed);
            if !notes.is_empty() {
                blocks.push(Block::List(notes));
            }
        }
        if !others.is_empty() {
            let names = others.join(", ");
            blocks.push(Block::Text(format!(
                "Settings, limits and calculations, which no test measures: {names}."
            )));
        }
        Section {
            id: "tables",
            title: "Tables",
            blocks,
        }
    }

    fn notes_of(&self, printed: &Printed) -> Vec<String> {
        let mut notes = [printed.footnotes.clone(), printed.notes.clone()].concat();
        for test in self.beds.iter().flat_map(|measured| &measured.bed.tests) {
            let is_here = test.rows.iter().any(|row| printed.holds(row));
            if is_here && !test.note.is_empty() && !notes.contains(&test.note) {
                notes.push(test.note.clone());
            }
        }
        notes
    }

    /// The results over the length of requests.
    fn figures_section(&self) -> Option<Section> {
        let mut blocks = Vec::new();
        let tests = self
            .beds
            .first()
            .map_or(0, |measured| measured.bed.tests.len());
        for test in 0..tests {
            blocks.extend(self.figures(test));
        }
        (!blocks.is_empty()).then_some(Section {
            id: "figures",
            title: "Figures",
            blocks,
        })
    }

    /// Returns the figures of a test: throughput and, if the document has requests per second, these and their
    /// number for each percent of CPU load.
    fn figures(&self, test: usize) -> Vec<Block> {
        let first = &self.beds[0].bed.tests[test];
        let all: Vec<(&Measured<'_>, Vec<Series<'_>>)> =
            self.beds
                .iter()
                .filter_map(|measured| {
                    let at =
                        measured.bed.tests.iter().position(|other| {
                            other.rows == first.rows && other.place == first.place
                        });
                    let series = over_size(&measured.summaries[at?]);
                    (!series.is_empty() && series.len() <= SERIES_MAX).then_some((measured, series))
                })
                .collect();
        if all.is_empty() {
            return Vec::new();
        }
        let mut quantities = vec![Figure::Throughput];
        if first.rows.iter().any(|row| row.metric == "iops") {
            quantities.extend([Figure::Requests, Figure::Effectiveness]);
        }
        let source = first.rows[0].source();
        let plots = quantities.into_iter().filter_map(|figure| {
            let plot = figure.plot(&source.table, &all, &first.rows)?;
            let says = "Dotted lines are the published results.".to_owned();
            let numbers = (figure == Figure::Throughput).then(|| numbers(&all));
            Some(Block::Plot(Box::new(plot), says, numbers))
        });
        let heading = Block::Heading(match source.column.as_str() {
            "" => source.table.clone(),
            column => format!("{}, {column}", source.table),
        });
        std::iter::once(heading).chain(plots).collect()
    }

    /// The tests, so that each can be repeated by hand.
    fn tests_section(&self) -> Section {
        let mut table = Table::of("", &["bed", "table", "suite", "storage", "#runs"]);
        for measured in &self.beds {
            for test in &measured.bed.tests {
                table.row([
                    measured.bed.name.clone(),
                    test.rows[0].source().table,
                    test.record.suite.name.clone(),
                    test.place.clone(),
                    test.record.runs.len().to_string(),
                ]);
            }
        }
        let mut assumed: Vec<String> = Vec::new();
        for text in self.records().flat_map(|record| &record.suite.assumed) {
            if !assumed.contains(text) {
                assumed.push(text.clone());
            }
        }
        Section {
            id: "tests",
            title: "Tests",
            blocks: vec![
                Block::Table(table),
                Block::List(
                    assumed
                        .iter()
                        .map(|what| format!("assumed: {what}"))
                        .collect(),
                ),
            ],
        }
    }
}

/// The number of curves of a bed up to which they are drawn. The tables over distance have eight.
const SERIES_MAX: usize = 3;

fn said(measured: &Measured<'_>) -> String {
    let Agreement {
        numbers,
        measured,
        near,
        reached,
    } = measured.agreement();
    let missing = match numbers - measured {
        0 => String::new(),
        missing => format!("; {missing} not measured"),
    };
    format!("{near} of {measured} numbers within 15 %, {reached} reached{missing}")
}

fn rows_of(printed: &Printed) -> impl Iterator<Item = &'static Row> + '_ {
    let cells = printed.lines.iter().flat_map(|line| &line.cells);
    cells.flatten().map(|cell| cell.row)
}

fn table(printed: &Printed, measured: &Measured<'_>) -> Table {
    let heads = printed.line_heads.iter().map(|head| (*head).to_owned());
    let columns = printed.columns.iter().map(|column| {
        let unit = column.unit.as_deref().filter(|unit| !unit.is_empty());
        let unit = unit.map_or_else(String::new, |unit| format!(" in {unit}"));
        format!("#{}{unit}", column.head)
    });
    let columns: Vec<String> = heads.chain(columns).collect();
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::of("", &columns);
    for line in &printed.lines {
        let cells = line
            .cells
            .iter()
            .zip(&printed.columns)
            .map(|(cell, column)| {
                let Some(cell) = cell else {
                    return String::new();
                };
                let unit = match column.unit {
                    Some(_) => String::new(),
                    None => format!(" {}", cell.row.unit),
                };
                let value = measured.value(cell.row);
                let shown = value
                    .and_then(|value| in_its_unit(value, cell.row))
                    .map_or_else(|| "–".to_owned(), significant);
                let ratio = value
                    .zip(cell.row.si)
                    .map(|both| format!(" / {:.2}", times(both)))
                    .unwrap_or_default();
                format!("{shown} / {}{unit}{ratio}", cell.row.printed)
            });
        table.row(line.heads.iter().cloned().chain(cells));
    }
    table
}

/// A quantity that is drawn over the length of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    Throughput,
    Requests,
    Effectiveness,
}

impl Figure {
    fn title(self) -> &'static str {
        match self {
            Figure::Throughput => "throughput in MB/s",
            Figure::Requests => "requests per second",
            Figure::Effectiveness => "requests per second for each % of the client's CPU load",
        }
    }

    fn of(self, summary: &CellSummary) -> Option<f64> {
        match self {
            Figure::Throughput => Some(summary.bytes_per_s.median / 1e6),
            Figure::Requests => Some(summary.iops.median),
            Figure::Effectiveness => summary.iops_per_percent(summary.cpu_load.client),
        }
    }

    fn published(self, row: &Row) -> Option<f64> {
        match (self, row.metric.as_str()) {
            (Figure::Throughput, "throughput") => row.bytes_per_s().map(|rate| rate / 1e6),
            (Figure::Requests, "iops") => row.si.map(|si| si.value),
            _ => None,
        }
    }

    /// Draws the quantity. Returns `None` if it is not known.
    fn plot(
        self,
        table: &str,
        all: &[(&Measured<'_>, Vec<Series<'_>>)],
        rows: &[&'static Row],
    ) -> Option<Plot> {
        let mut curves: Vec<Curve> = Vec::new();
        for (measured, series) in all {
            for (colour, series) in series.iter().enumerate() {
                let points = series.cells.iter().filter_map(|summary| {
                    let (x, y) = (block_bytes(&summary.cell), self.of(summary)?);
                    let says = format!("{}, {}: {}", series.name, size(x), significant(y));
                    Some(Point::exact(x, y, says))
                });
                let is_first = std::ptr::eq(*measured, all[0].0);
                curves.push(Curve {
                    name: format!("{}, {}", series.name, measured.bed.name),
                    look: if is_first {
                        Look::Measured
                    } else {
                        Look::Companion
                    },
                    colour,
                    points: points.collect(),
                });
            }
        }
        curves.retain(|curve| !curve.points.is_empty());
        if curves.is_empty() {
            return None;
        }
        curves.extend(self.published_curves(rows));
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let values: Vec<f64> = points().map(|point| point.y).collect();
        Some(Plot {
            title: format!("{table}: {}", self.title()),
            x: Axis {
                title: "block size",
                scale: Scale::log2(points().map(|point| point.x)),
                tick: size,
            },
            y: Axis {
                title: self.title(),
                scale: Scale::from_zero_or_log(&values),
                tick: readable::figures::short,
            },
            curves,
            bands: Vec::new(),
        })
    }

    /// Returns a curve for each direction. A number about a range of lengths is a horizontal line.
    fn published_curves(self, rows: &[&'static Row]) -> Vec<Curve> {
        let mut curves: Vec<(Option<Direction>, Curve)> = Vec::new();
        for row in rows {
            let (Some(y), Some(length)) = (self.published(row), row.block_bytes) else {
                continue;
            };
            let lengths = [Some(length), row.block_bytes_max];
            let says = format!("published, {}: {}", size(f64::from(length)), row.printed);
            let points = lengths
                .into_iter()
                .flatten()
                .map(|length| Point::exact(f64::from(length), y, says.clone()));
            let known = curves
                .iter()
                .position(|(direction, _)| *direction == row.direction);
            let at = known.unwrap_or_else(|| {
                let name = row
                    .direction
                    .map_or_else(String::new, |direction| format!("{direction}, "));
                curves.push((
                    row.direction,
                    Curve {
                        name: format!("{name}published"),
                        look: Look::Published,
                        colour: curves.len(),
                        points: Vec::new(),
                    },
                ));
                curves.len() - 1
            });
            curves[at].1.points.extend(points);
        }
        curves.into_iter().map(|(_, curve)| curve).collect()
    }
}

/// Returns the numbers of the curves.
fn numbers(all: &[(&Measured<'_>, Vec<Series<'_>>)]) -> Table {
    let columns = ["bed", "series", "#block", "#MB/s", "#IOPS", "#client CPU %"];
    let mut table = Table::of("", &columns).folded(true);
    for (measured, series) in all {
        for (series, summary) in series
            .iter()
            .flat_map(|series| series.cells.iter().map(move |cell| (series, cell)))
        {
            table.row([
                measured.bed.name.clone(),
                series.name.clone(),
                size(block_bytes(&summary.cell)),
                megabytes(summary.bytes_per_s.median),
                significant(summary.iops.median),
                summary.cpu_load.client.map(significant).unwrap_or_default(),
            ]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use bench::test_record::{record_of, run};

    use super::*;

    fn rows(document: &str, table: &str) -> Vec<&'static Row> {
        let of_table = |row: &&Row| row.document == document && row.source().table == table;
        let rows = published::rows().iter().filter(of_table);
        rows.filter(|row| row.class.is_some()).collect()
    }

    fn printed(suite: &str, document: &str, table: &str) -> Vec<(Option<usize>, &'static str)> {
        let suite = bench::suite::named(suite).expect("a built-in suite");
        let rows = rows(document, table);
        let cells = suite.cells().flat_map(|cell| measured_by(cell, &rows));
        cells
            .map(|(role, row)| (role, row.printed.as_str()))
            .collect()
    }

    #[test]
    fn a_cell_measures_only_numbers_of_its_table() {
        let table_2 = printed("dd-ladder", "000", "Table 2");
        assert_eq!(table_2.len(), 22);
        assert_eq!(table_2[0], (None, "21.5"));
        assert_eq!(printed("dpmeter", "000", "Table 4").len(), 16);
        assert_eq!(printed("vmware4", "001", "Test 001").len(), 16);
        assert_eq!(printed("cern", "004", "3.2 HyperSCSI and ENBD").len(), 18);
        assert_eq!(
            printed("bonnie", "004", "4.1 Software RAID (6 drives)").len(),
            8
        );
    }

    #[test]
    fn clients_measure_their_share_and_the_total() {
        let test_008 = printed("clients", "001", "Test 008");
        let iops = |role| {
            let of = test_008.iter().filter(move |(other, _)| *other == role);
            of.map(|(_, printed)| *printed).collect::<Vec<_>>()
        };
        assert_eq!(iops(None), ["9.271509", "357.970612"]);
        assert_eq!(iops(Some(1))[..2], ["4.115037", "131.681186"]);
        assert_eq!(iops(Some(2))[..2], ["4.518114", "144.579644"]);
    }

    /// The numbers of two figures, and a record of their test with this rate in every cell.
    fn measured(iops: f64) -> (Vec<&'static Row>, Record) {
        let suite = bench::suite::named("iometer-sweep").expect("a built-in suite");
        let rows = rows("003", "figures 5 and 8");
        let cells: Vec<_> = suite.cells().cloned().collect();
        let runs = cells
            .iter()
            .map(|cell| run(cell, 0, &vec![iops; cell.roles.len()]))
            .collect();
        (rows, record_of(suite, runs))
    }

    fn reproduction<'a>(
        rows: &[&'static Row],
        record: &'a Record,
        is_quick: bool,
    ) -> Reproduction<'a> {
        let document = published::DOCUMENTS
            .iter()
            .find(|document| document.number == "003");
        let test = Test {
            rows: rows.to_vec(),
            place: "iscsi://a/b/0".to_owned(),
            note: "a remark".to_owned(),
            record,
        };
        let bed = Bed {
            name: "model".to_owned(),
            about: "a bed".to_owned(),
            fitted: vec!["link.wire.rate = 1Gbit/s".to_owned()],
            tests: vec![test],
        };
        Reproduction::new(document.expect("a document"), is_quick, vec![bed])
    }

    #[test]
    fn a_range_counts_with_its_lowest_rate() {
        let (rows, record) = measured(46_000.0);
        let reproduction = reproduction(&rows, &record, false);
        // 46,000 requests of 8 KiB are the lowest rate of the range; they are 3.18 times 113 MiB/s.
        let csv = reproduction.csv().expect("a table");
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 3, "{csv}");
        assert!(
            lines[1].ends_with(&format!(
                "{},{}",
                46_000.0 * 8192.0 / 1_048_576.0,
                46_000.0 * 8192.0 / 1_048_576.0 / 113.0
            )),
            "{csv}"
        );
        let agreement = reproduction.beds[0].agreement();
        assert_eq!(
            agreement,
            Agreement {
                numbers: 2,
                measured: 2,
                near: 1,
                reached: 2
            }
        );
    }

    #[test]
    fn a_page_has_every_number_with_its_ratio_and_says_if_it_is_quick() {
        let (rows, record) = measured(23_000.0);
        let full = reproduction(&rows, &record, false);
        let markdown = full.markdown();
        assert!(markdown.contains("23,000 / 46000 1/s / 0.50"), "{markdown}");
        assert!(markdown.contains("- a remark"), "{markdown}");
        assert!(
            markdown.contains("fitted, model: link.wire.rate = 1Gbit/s"),
            "{markdown}"
        );
        assert!(!markdown.contains("quick run"), "{markdown}");
        assert!(full.html().contains("requests per second"), "a figure");
        let quick = reproduction(&rows, &record, true).markdown();
        assert!(quick.contains("This is a quick run"), "{quick}");
    }

    #[test]
    fn missing_numbers_are_counted() {
        let (rows, mut record) = measured(23_000.0);
        record.runs.retain(|run| run.cell != "read-512B");
        let reproduction = reproduction(&rows, &record, false);
        assert!(
            reproduction.terminal().contains("; 1 not measured"),
            "{}",
            reproduction.terminal()
        );
        assert!(reproduction.markdown().contains("– / 46000 1/s"));
    }
}
