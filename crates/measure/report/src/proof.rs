//! Compares measurements with this machine's TCP limit and with published results, in a line for each cell.

use crate::beside::{conditions, rates};
use crate::summary::{self, CellSummary, CpuCost};
use crate::views::percent_of_limit;
use bench::raw::Question;
use bench::record::Record;
use published::Row;
use readable::figures::{grouped, significant};

const HEADING: &str = "
                                                             p50       CPU µs     of what   published at best,
                                       MB/s       IOPS        µs   we + target   TCP does   in MB/s
";

/// Returns the table with its heading.
pub fn table(record: &Record) -> String {
    let summaries = summary::of(record);
    let lines = summaries.iter().map(|summary| line(record, summary) + "\n");
    HEADING.to_owned() + &lines.collect::<String>()
}

fn line(record: &Record, summary: &CellSummary) -> String {
    let rate = summary.bytes_per_s.median;
    let asked = Question::of_cell(&summary.cell);
    let share = asked
        .and_then(|asked| asked.ceiling(&record.limits))
        .map(|ceiling| percent_of_limit(rate, ceiling));
    let best = conditions(&record.subject, &summary.cell)
        .and_then(|conditions| rates(&conditions).max_by(|one, other| one.1.total_cmp(&other.1)));
    let us =
        |cost: Option<CpuCost>| cost.map_or_else(|| "?".to_owned(), |cost| short(cost.us_per_io));
    let line = format!(
        "  {:<32} {:>8}  {:>9}  {:>8}   {:>11}   {:>8}   {}",
        summary.cell.words(),
        significant(rate / 1e6),
        grouped(summary.iops.median.round() as u64),
        significant(summary.service.p50_us),
        format!("{} + {}", us(summary.client_cpu), us(summary.server_cpu)),
        share.map_or_else(String::new, |percent| {
            // A measurement above the limit shows that the limit is too low: the machine was busier when the
            // limit was measured.
            percent.map_or_else(
                || "exceeded".to_owned(),
                |percent| format!("{percent:.1} %"),
            )
        }),
        best.map(|(row, best)| beside(rate, row, best))
            .unwrap_or_default()
    );
    line.trim_end().to_owned()
}

/// Formats a number with two significant digits, and at least its integer part: `1.9`, `27`.
fn short(number: f64) -> String {
    if number < 9.95 {
        format!("{number:.1}")
    } else {
        format!("{number:.0}")
    }
}

/// Formats a published rate, its document, and the ratio of the measurement to it: `74.2 (000), ×12`.
fn beside(rate: f64, row: &Row, best: f64) -> String {
    format!(
        "{:>4} ({}), ×{}",
        significant(best / 1e6),
        row.document,
        short(rate / best)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench::test_record::{cell, record, run};

    #[test]
    fn a_published_result_of_the_same_class_is_named_with_its_document() {
        let cells = vec![cell("read", 524_288, 1), cell("deep", 524_288, 5)];
        let runs = cells.iter().map(|cell| run(cell, 0, &[1000.0])).collect();
        let mut record = record(cells, runs);
        record.subject.kind = "iscsi".to_owned();
        let table = table(&record);
        let lines: Vec<&str> = table.lines().rev().take(2).collect();
        // Test 001's ATTO clone at depth 1. Table 4 of 000 has 2,525 MB/s for a RAM drive without iSCSI.
        assert!(lines[1].ends_with("43.0 (001), ×12"), "{table}");
        assert!(!lines[0].contains('×'), "{table}");
    }
}
