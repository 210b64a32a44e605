//! The sections of a report, in reading order. Each file creates one section, or none if the record does not
//! contain the data for it.

pub(super) mod beside;
mod clients;
mod latency;
mod sizes;
mod verdict;
mod wan;

use bench::record::{CellRun, ClientRun, Ended, Facts, Group};
use readable::figures::{counted, duration, latency, megabytes, significant, size};

use crate::Report;
use crate::document::{Block, Document, Section, Table};
use crate::loads::Loads;
use crate::views::{interval, latencies, load};
pub(super) use verdict::fastest;
pub(super) use verdict::says;
pub(super) use verdict::verdict;

/// Returns the complete report.
pub(super) fn document(report: &Report<'_>) -> Document {
    let measured = match &report.wan {
        Some(wan) => wan::sections(wan),
        None => {
            let sections = [
                beside::section(report),
                sizes::section(report),
                latency::load_section(report),
                latency::percentiles_section(report),
                latency::times_section(report),
                clients::section(report),
                clients::cpu_section(report),
                loads_section(report),
            ];
            sections.into_iter().flatten().collect()
        }
    };
    let sections = measured
        .into_iter()
        .chain(results_section(report))
        .chain([appendix_section(report)])
        .chain(environment_section(report));
    Document {
        title: title(report),
        subtitle: subtitle(report),
        verdict: verdict(report),
        sections: sections.collect(),
    }
}

/// Returns the title: `vmware4 on iscsi://…`.
pub(super) fn title(report: &Report<'_>) -> String {
    format!(
        "{} on {}",
        report.record.suite.name, report.record.subject.place
    )
}

fn subtitle(report: &Report<'_>) -> String {
    let (record, subject) = (report.record, &report.record.subject);
    let mut parts: Vec<String> = report
        .folder
        .iter()
        .map(|folder| format!("folder {folder}"))
        .collect();
    parts.push(record.suite.title.clone());
    parts.push(match &subject.product {
        Some(product) => format!(
            "{product}, {}, {}",
            subject.kind,
            size(subject.bytes as f64)
        ),
        None => format!("{}, {}", subject.kind, size(subject.bytes as f64)),
    });
    let seconds =
        |run: &bench::record::CellRun| run.clients.first().map_or(0.0, |client| client.run.seconds);
    let measured: f64 = record.runs.iter().map(seconds).sum();
    parts.push(format!(
        "{}, {} measured",
        counted(record.runs.len(), "run"),
        duration(measured)
    ));
    parts.push(record.begun.clone());
    parts.push(format!("linerate {}", record.version));
    parts.retain(|part| !part.is_empty());
    parts.join(" · ")
}

/// The groups of facts, in order. Possible improvements are visible; everything else is folded.
const GROUPS: [(Group, &str); 5] = [
    (Group::Negotiated, "Negotiated"),
    (Group::Network, "Network"),
    (Group::Storage, "Storage"),
    (Group::Client, "Client"),
    (Group::Tool, "Tool"),
];

fn environment_section(report: &Report<'_>) -> Option<Section> {
    table(&report.record.environment)
}

/// Returns the section with all facts, by group.
pub(crate) fn table(facts: &Facts) -> Option<Section> {
    let facts = &facts.0;
    if facts.is_empty() {
        return None;
    }
    let mut blocks = Vec::new();
    if facts.iter().any(|fact| fact.better.is_some()) {
        let mut table = Table::of("Possible improvements", &["", "value", "better"]);
        for fact in facts {
            let Some(better) = &fact.better else { continue };
            table.marked_row(
                true,
                [fact.name.clone(), fact.value.clone(), better.clone()],
            );
        }
        blocks.push(Block::Table(table));
    }
    let mut table = Table::of("All details", &["", "", "value"]);
    for (group, title) in GROUPS {
        for (index, fact) in facts.iter().filter(|fact| fact.group == group).enumerate() {
            let title = if index == 0 { title } else { "" };
            table.row([title.to_owned(), fact.name.clone(), fact.value.clone()]);
        }
    }
    blocks.push(Block::Table(table.folded(true)));
    Some(Section {
        id: "environment",
        title: "Environment",
        blocks,
    })
}

/// Returns the section that compares rates and CPU loads with those of the document.
fn loads_section(report: &Report<'_>) -> Option<Section> {
    let loads = Loads::of(report)?;
    let cells: Vec<String> = loads.cells.iter().map(|cell| format!("#{cell}")).collect();
    let heads: Vec<&str> = std::iter::once("")
        .chain(cells.iter().map(String::as_str))
        .collect();
    let mut table = Table::of(&format!("Document {}", loads.document), &heads);
    loads
        .rows
        .into_iter()
        .for_each(|(name, values)| table.row(std::iter::once(name).chain(values)));
    let blocks = vec![Block::Text(loads.note), Block::Table(table)];
    Some(Section {
        id: "loads",
        title: "CPU loads compared with the published ones",
        blocks,
    })
}

/// Returns the section with every cell in one table.
fn results_section(report: &Report<'_>) -> Option<Section> {
    let columns = [
        "cell",
        "load",
        "#runs",
        "#IOPS",
        "#95 % interval",
        "#MB/s",
        "#p50",
        "#p99",
        "#p99.9",
        "#longest",
        "",
    ];
    let mut table = Table::of("", &columns);
    for summary in &report.summaries {
        let times = latencies(summary);
        let flags: Vec<String> = summary.flags.iter().map(ToString::to_string).collect();
        table.marked_row(
            !flags.is_empty(),
            [
                summary.cell.name.clone(),
                load(summary),
                summary.runs.to_string(),
                significant(summary.iops.median),
                interval(summary.iops, significant),
                megabytes(summary.bytes_per_s.median),
                latency(times.p50_us),
                latency(times.p99_us),
                latency(times.p999_us),
                latency(times.max_us),
                flags.join(" "),
            ],
        );
    }
    let says = "Medians of the runs, with 95 % intervals. Latencies cover all runs together.";
    let blocks = vec![Block::Text(says.to_owned()), Block::Table(table)];
    (!report.summaries.is_empty()).then_some(Section {
        id: "results",
        title: "All results",
        blocks,
    })
}

/// Returns the section with reference data: the suite and its assumptions, the command to run it again, and
/// every run.
fn appendix_section(report: &Report<'_>) -> Section {
    let record = report.record;
    let suite = &record.suite;
    let mut blocks = Vec::new();
    if !suite.about.is_empty() {
        blocks.push(Block::Text(suite.about.trim().to_owned()));
    }
    if !suite.assumed.is_empty() {
        blocks.push(Block::List(
            suite
                .assumed
                .iter()
                .map(|what| format!("assumed: {what}"))
                .collect(),
        ));
    }
    if !record.command.is_empty() {
        blocks.push(Block::Text("To run it again:".to_owned()));
        blocks.push(Block::Command(command(&record.command)));
    }
    blocks.push(Block::Table(runs(report)));
    Section {
        id: "appendix",
        title: "Appendix",
        blocks,
    }
}

/// Formats a shell command line.
fn command(arguments: &[String]) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:,=@%+".contains(letter);
    let quoted = |argument: &String| {
        if !argument.is_empty() && argument.chars().all(plain) {
            argument.clone()
        } else {
            format!("'{}'", argument.replace('\'', r"'\''"))
        }
    };
    arguments.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

fn runs(report: &Report<'_>) -> Table {
    let columns = [
        "cell",
        "#round",
        "#started",
        "client",
        "#counted",
        "#IOPS",
        "#MB/s",
        "#in flight",
        "#failed",
        "#wrong data",
        "ended",
    ];
    let mut table = Table::of("Every run", &columns);
    for (run, client) in report
        .record
        .runs
        .iter()
        .flat_map(|run| run.clients.iter().map(move |c| (run, c)))
    {
        let marked = client.run.errors > 0 || client.run.mismatches > 0 || !is_as_meant(run.ended);
        table.marked_row(marked, row(run, client));
    }
    let many = table.rows.len() > 60;
    table.folded(many)
}

fn row(run: &CellRun, client: &ClientRun) -> [String; 11] {
    let measured = &client.run;
    let failure = measured
        .first_failure
        .as_ref()
        .map(|first| format!("; first failure: {first}"))
        .unwrap_or_default();
    [
        run.cell.clone(),
        (u64::from(run.round) + 1).to_string(),
        duration(run.begun_s),
        client.client.clone(),
        duration(measured.seconds),
        significant(measured.iops()),
        megabytes(measured.bytes_per_s()),
        significant(measured.under_way_mean),
        measured.errors.to_string(),
        measured.mismatches.to_string(),
        format!("{}{failure}", ended(run.ended)),
    ]
}

fn is_as_meant(ended: Ended) -> bool {
    matches!(ended, Ended::Time | Ended::Confidence | Ended::Work)
}

fn ended(ended: Ended) -> &'static str {
    match ended {
        Ended::Time => "time elapsed",
        Ended::Confidence => "confident",
        Ended::OutOfTime => "out of time",
        Ended::Work => "all done",
        Ended::Failures => "too many failures",
        Ended::Interrupted => "interrupted",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_survives_a_shell() {
        let arguments = ["linerate", "iscsi://h/t/0?a=b&c", "it's", ""].map(str::to_owned);
        assert_eq!(
            command(&arguments),
            r"linerate 'iscsi://h/t/0?a=b&c' 'it'\''s' ''"
        );
    }
}
