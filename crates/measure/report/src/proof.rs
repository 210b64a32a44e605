//! Compares measurements with this machine's TCP limit and with published results, in a line for each cell.

use crate::summary::{CellSummary, CpuCost};
use crate::views::percent_of_limit;
use bench::raw::{self, Question};
use bench::record::Limit;
use published::Row;
use readable::figures::{grouped, significant};

const HEADING: &str = "
                                                             p50       CPU µs     of what   published at best,
                                       MB/s       IOPS        µs   we + target   TCP does   in MB/s
";

/// Returns the table with its heading.
pub fn table(summaries: &[CellSummary], limits: &[Limit]) -> String {
    let lines = summaries.iter().map(|summary| line(summary, limits) + "\n");
    HEADING.to_owned() + &lines.collect::<String>()
}

fn line(summary: &CellSummary, limits: &[Limit]) -> String {
    let rate = summary.bytes_per_s.median;
    let asked = Question::of_cell(&summary.cell);
    let share = asked.and_then(|asked| asked.ceiling(limits)).map(|ceiling| percent_of_limit(rate, ceiling));
    let best = asked.and_then(|asked| published::best(direction(asked), asked.block_bytes));
    let us = |cost: Option<CpuCost>| cost.map_or_else(|| "?".to_owned(), |cost| short(cost.us_per_io));
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
            percent.map_or_else(|| "exceeded".to_owned(), |percent| format!("{percent:.1} %"))
        }),
        best.and_then(|row| beside(rate, row)).unwrap_or_default()
    );
    line.trim_end().to_owned()
}

/// Formats a number with two significant digits, and at least its integer part: `1.9`, `27`.
fn short(number: f64) -> String {
    if number < 9.95 { format!("{number:.1}") } else { format!("{number:.0}") }
}

/// Formats a published result, its document, and the ratio of the measurement to it: `74.2 (000), ×12`.
fn beside(rate: f64, row: &Row) -> Option<String> {
    let best = row.bytes_per_s().filter(|best| *best > 0.0)?;
    Some(format!("{:>4} ({}), ×{}", significant(best / 1e6), row.document, short(rate / best)))
}

fn direction(asked: Question) -> published::Direction {
    match asked.direction {
        raw::Direction::Read => published::Direction::Read,
        raw::Direction::Write => published::Direction::Write,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_published_is_named_with_its_document() {
        let row = published::best(published::Direction::Write, 65_536).expect("several have it");
        let rate = row.bytes_per_s().expect("a rate");
        let text = beside(10.0 * rate, row).expect("a rate");
        assert!(text.contains(&row.document) && text.contains("×10"), "{text}");
    }
}
