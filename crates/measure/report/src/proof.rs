//! Compares measurements with this machine's TCP limit and with published results, in a line for each cell.

use crate::beside::{conditions, rates};
use crate::summary::{self, CellSummary, CpuCost};
use crate::views::percent_of_limit;
use bench::raw::Question;
use bench::record::Record;
use published::Row;
use readable::figures::{grouped, significant};

const HEADING: [&str; 2] = [
    "                                                             p50       CPU µs     of what",
    "                                       MB/s       IOPS        µs   we + target   TCP does",
];
/// The heading of the last column, which exists only if a published result has the class of a cell.
const PUBLISHED: [&str; 2] = ["   published at best,", "   in MB/s"];

/// Returns the table with its heading.
pub fn table(record: &Record) -> String {
    let summaries = summary::of(record);
    let lines: Vec<(String, Option<String>)> = summaries
        .iter()
        .map(|summary| (line(record, summary), best(record, summary)))
        .collect();
    let is_compared = lines.iter().any(|(_, best)| best.is_some());
    let heading = HEADING
        .into_iter()
        .zip(PUBLISHED)
        .map(|(own, published)| format!("{own}{}", if is_compared { published } else { "" }));
    let lines = lines.iter().map(|(line, best)| match best {
        Some(best) => format!("{line:<92}   {best}"),
        None => line.trim_end().to_owned(),
    });
    let lines = std::iter::once(String::new()).chain(heading).chain(lines);
    lines.map(|line| line + "\n").collect()
}

fn line(record: &Record, summary: &CellSummary) -> String {
    let rate = summary.bytes_per_s.median;
    let asked = Question::of_cell(&summary.cell);
    let share = asked
        .and_then(|asked| asked.ceiling(&record.limits))
        .map(|ceiling| percent_of_limit(rate, ceiling));
    let us =
        |cost: Option<CpuCost>| cost.map_or_else(|| "?".to_owned(), |cost| short(cost.us_per_io));
    format!(
        "  {:<32} {:>8}  {:>9}  {:>8}   {:>11}   {:>8}",
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
        })
    )
}

/// Returns the highest published rate of the cell's class: `74.2 (000), ×12`.
fn best(record: &Record, summary: &CellSummary) -> Option<String> {
    let conditions = conditions(&record.subject, &summary.cell)?;
    let (row, best) = rates(&conditions).max_by(|one, other| one.1.total_cmp(&other.1))?;
    Some(beside(summary.bytes_per_s.median, row, best))
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
        assert!(table.contains("published at best"), "{table}");
    }

    #[test]
    fn without_a_published_result_there_is_no_column_for_it() {
        let cells = vec![cell("deep", 524_288, 5)];
        let runs = vec![run(&cells[0], 0, &[1000.0])];
        let mut record = record(cells, runs);
        record.subject.kind = "iscsi".to_owned();
        assert!(!table(&record).contains("published"), "{}", table(&record));
    }
}
