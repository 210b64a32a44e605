//! Every cell in one table.

use crate::Report;
use crate::document::{Block, Section, Table};
use crate::views::{interval, latencies, load};
use readable::figures::{latency, megabytes, significant};

pub(super) fn section(report: &Report<'_>) -> Option<Section> {
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
    let says = "Medians of the runs, with their 95 % intervals. Latencies are those of all runs together.";
    let blocks = vec![Block::Text(says.to_owned()), Block::Table(table)];
    (!report.summaries.is_empty()).then_some(Section { id: "results", title: "All results", blocks })
}
