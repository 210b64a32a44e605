//! What it takes to judge the rest: the suite and its assumptions, how to run it again, and every run.

use crate::Report;
use crate::document::{Block, Section, Table};
use bench::record::{CellRun, ClientRun, Ended};
use readable::figures::{duration, megabytes, significant};

pub(super) fn section(report: &Report<'_>) -> Section {
    let record = report.record;
    let suite = &record.suite;
    let mut blocks = Vec::new();
    if !suite.about.is_empty() {
        blocks.push(Block::Text(suite.about.trim().to_owned()));
    }
    if !suite.assumed.is_empty() {
        blocks.push(Block::List(suite.assumed.iter().map(|what| format!("assumed: {what}")).collect()));
    }
    if !record.command.is_empty() {
        blocks.push(Block::Text("To run it again:".to_owned()));
        blocks.push(Block::Command(command(&record.command)));
    }
    blocks.push(Block::Table(runs(report)));
    Section { id: "appendix", title: "Appendix", blocks }
}

/// As a shell takes it.
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
        "#begun",
        "client",
        "#counted",
        "#IOPS",
        "#MB/s",
        "#under way",
        "#failed",
        "#wrong data",
        "ended",
    ];
    let mut table = Table::of("Every run", &columns);
    for (run, client) in report.record.runs.iter().flat_map(|run| run.clients.iter().map(move |c| (run, c))) {
        let marked = client.run.errors > 0 || client.run.mismatches > 0 || !is_as_meant(run.ended);
        table.marked_row(marked, row(run, client));
    }
    let many = table.rows.len() > 60;
    table.folded(many)
}

fn row(run: &CellRun, client: &ClientRun) -> [String; 11] {
    let measured = &client.run;
    let failure =
        measured.first_failure.as_ref().map(|first| format!("; first failure: {first}")).unwrap_or_default();
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
        Ended::Time => "after its time",
        Ended::Confidence => "known well enough",
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
        assert_eq!(command(&arguments), r"linerate 'iscsi://h/t/0?a=b&c' 'it'\''s' ''");
    }
}
