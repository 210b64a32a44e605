//! Formats a comparison: a table for a terminal or for Markdown, with remarks.

use std::mem::discriminant;

use foreign::printable;
use readable::figures::{latency, significant};

use super::{Basis, CellComparison, Change, Comparison, Figure, Judgement, Side};
use crate::summary::Flag;
use crate::terminal::{indented, printed, used};
use readable::table::{Align, Column, hanging};

const ALIGN: [Align; 8] = [
    Align::Left,
    Align::Right,
    Align::Right,
    Align::Right,
    Align::Right,
    Align::Left,
    Align::Right,
    Align::Right,
];

/// The order in which columns are omitted if they do not all fit.
const RANKS: [u8; 8] = [0, 1, 1, 0, 3, 0, 4, 2];

pub(super) fn terminal(comparison: &Comparison, width: usize) -> String {
    let rows: Vec<[String; 8]> = std::iter::once(head(comparison))
        .chain(rows(comparison))
        .collect();
    let column = |at: usize| Column {
        align: ALIGN[at],
        rank: RANKS[at],
    };
    let names = [
        "cell",
        "A",
        "B",
        "difference",
        "interval",
        "judgement",
        "detectable",
        "p99",
    ];
    let mut lines = hanging("", &count(comparison), used(width));
    lines.push(String::new());
    lines.extend(indented(
        "",
        &names,
        &[0, 1, 2, 3, 4, 5, 6, 7].map(column),
        &rows,
        width.max(used(0)),
    ));
    lines.push(String::new());
    lines.extend(
        remarks(comparison)
            .iter()
            .flat_map(|remark| hanging("", remark, used(width))),
    );
    let around = environment(comparison);
    if around.len() > 1 {
        lines.push(String::new());
        let columns = [Column {
            align: Align::Left,
            rank: 0,
        }; 3];
        lines.extend(indented(
            "",
            &["", "A", "B"],
            &columns,
            &around,
            used(width),
        ));
    }
    printed(&lines)
}

/// Formats the comparison as Markdown, for a merge request.
pub(super) fn markdown(comparison: &Comparison) -> String {
    let rows: Vec<[String; 8]> = rows(comparison).collect();
    let mut text = format!("**{}**\n\n", count(comparison));
    text += &table(&head(comparison), ALIGN, &rows);
    text += "\n";
    remarks(comparison)
        .iter()
        .for_each(|remark| text += &format!("- {}\n", escaped(remark)));
    let around = environment(comparison);
    if let [head, facts @ ..] = around.as_slice()
        && !facts.is_empty()
    {
        text += "\n";
        text += &table(head, [Align::Left; 3], facts);
    }
    text
}

/// Lists a few names, and the number of further ones.
pub fn listed(names: &[&str]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<String> = names
        .iter()
        .take(SHOWN)
        .map(|name| printable(name))
        .collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Returns the first line: the number of cells with each result.
fn count(comparison: &Comparison) -> String {
    let of = |is: fn(&Judgement) -> bool| {
        comparison
            .cells
            .iter()
            .filter(|cell| is(&cell.judgement))
            .count()
    };
    let worse = of(|judgement| matches!(judgement, Judgement::Worse(_)));
    let better = of(|judgement| matches!(judgement, Judgement::Better(_)));
    let undecided = of(|judgement| matches!(judgement, Judgement::Undecided(_)));
    let unjudged = comparison.cells.len() - comparison.judged();
    if comparison.judged() == 0 {
        return "No cell could be compared.".to_owned();
    }
    let mut line = match (worse, better) {
        (0, 0) => "No differences were found".to_owned(),
        (0, better) => format!("B is better in {}", cells(better)),
        (worse, 0) => format!("B is worse in {}", cells(worse)),
        (worse, better) => format!("B is worse in {}, better in {better}", cells(worse)),
    };
    if worse + better > 0 && undecided > 0 {
        line += &format!("; no difference was found in {undecided}");
    }
    if unjudged > 0 {
        line += &format!("; {unjudged} could not be compared");
    }
    line + "."
}

fn cells(count: usize) -> String {
    if count == 1 {
        "1 cell".to_owned()
    } else {
        format!("{count} cells")
    }
}

fn head(comparison: &Comparison) -> [String; 8] {
    // Each time includes its unit. If a table contains times as well as rates, each rate also does.
    let [a, b] = if only_rates(comparison) {
        ["A, IOPS", "B, IOPS"]
    } else {
        ["A", "B"]
    };
    [
        "cell",
        a,
        b,
        "difference",
        "interval",
        "",
        "detectable",
        "p99 A → B",
    ]
    .map(str::to_owned)
}

fn only_rates(comparison: &Comparison) -> bool {
    comparison
        .cells
        .iter()
        .all(|cell| cell.figure == Figure::Iops)
}

fn rows(comparison: &Comparison) -> impl Iterator<Item = [String; 8]> {
    let unit = if only_rates(comparison) { "" } else { " IOPS" };
    comparison.cells.iter().map(move |cell| row(cell, unit))
}

fn row(cell: &CellComparison, unit: &str) -> [String; 8] {
    let change = cell.judgement.change();
    let told = |of: fn(Change) -> String| change.map_or(String::new(), of);
    let verdict = match cell.judgement {
        Judgement::Better(_) => "▲ better",
        Judgement::Worse(_) => "▼ worse",
        Judgement::Undecided(_) => "none found",
        Judgement::OtherWorkload => "other workload",
        Judgement::TooLittle => "insufficient data",
    };
    [
        printable(&cell.cell),
        value(&cell.a, cell.figure, unit),
        value(&cell.b, cell.figure, unit),
        told(|change| signed(change.percent)),
        told(|change| {
            format!(
                "{} … {}",
                signed(change.low_percent),
                signed(change.high_percent)
            )
        }),
        verdict.to_owned(),
        told(|change| signed(change.detectable_percent)),
        format!("{} → {}", latency(cell.a.p99_us), latency(cell.b.p99_us)),
    ]
}

fn value(side: &Side, figure: Figure, unit: &str) -> String {
    match figure {
        Figure::Iops => format!("{}{unit}", significant(side.value)),
        Figure::ResponseUs => latency(side.value),
    }
}

/// Formats a difference in percent with its sign: `+3.1 %`, `−0.4 %`, `> +9999 %`.
fn signed(percent: f64) -> String {
    const SHOWN_MAX: f64 = 9999.0;
    let sign = if percent < 0.0 { '−' } else { '+' };
    match percent.abs() {
        large if large > SHOWN_MAX => format!("> {sign}{SHOWN_MAX} %"),
        large if large >= 99.95 => format!("{sign}{large:.0} %"),
        small => format!("{sign}{small:.1} %"),
    }
}

/// Returns the remarks that readers need to interpret the table.
fn remarks(comparison: &Comparison) -> Vec<String> {
    let judged = comparison.judged();
    let mut remarks = vec![format!(
        "The intervals and verdicts of all {} are simultaneously correct in 95 of 100 comparisons (Holm's \
         rule). \"Detectable\" is the smallest regression that 4 of 5 comparisons would find.",
        cells(judged)
    )];
    let single = of_basis(comparison, Basis::Samples);
    if !single.is_empty() {
        remarks.push(format!(
            "One or both sides have only a single run in {}: another run may differ by more than the samples \
             of this one. Repeat the measurement to be sure.",
            listed(&single)
        ));
    }
    for (names, side) in [(&comparison.only_a, "A"), (&comparison.only_b, "B")] {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        if !names.is_empty() {
            remarks.push(format!("Only in {side}: {}.", listed(&names)));
        }
    }
    for cell in comparison.cells.iter().filter(|cell| cell.has_new_faults()) {
        let (name, faults) = (printable(&cell.cell), cell.b.faults);
        remarks.push(format!(
            "{name}: {faults} requests failed or returned wrong data in B, but none in A."
        ));
    }
    remarks.extend(flags(comparison));
    remarks
}

fn of_basis(comparison: &Comparison, basis: Basis) -> Vec<&str> {
    let has = |cell: &&CellComparison| {
        cell.judgement
            .change()
            .is_some_and(|change| change.basis == basis)
    };
    comparison
        .cells
        .iter()
        .filter(has)
        .map(|cell| cell.cell.as_str())
        .collect()
}

/// Returns warnings about individual cells. Each kind of flag is shown for the first cell, followed by the
/// names of the other cells that have it.
fn flags(comparison: &Comparison) -> Vec<String> {
    let sides = comparison
        .cells
        .iter()
        .flat_map(|cell| [(cell, 'A', &cell.a), (cell, 'B', &cell.b)]);
    let raised =
        sides.flat_map(|(cell, side, of)| of.flags.iter().map(move |flag| (flag, cell, side)));
    let mut kinds: Vec<(&Flag, Vec<String>)> = Vec::new();
    for (flag, cell, side) in raised {
        let place = format!("{} in {side}", cell.cell);
        match kinds
            .iter_mut()
            .find(|(known, _)| discriminant(*known) == discriminant(flag))
        {
            Some((_, places)) => places.push(place),
            None => kinds.push((flag, vec![place])),
        }
    }
    let sentence = |(flag, places): (&Flag, Vec<String>)| {
        let others: Vec<&str> = places[1..].iter().map(String::as_str).collect();
        let likewise = if others.is_empty() {
            String::new()
        } else {
            format!(" (likewise {})", listed(&others))
        };
        format!("{}: {flag}{likewise}.", printable(&places[0]))
    };
    kinds.into_iter().map(sentence).collect()
}

/// Returns a heading and a row for each difference.
fn environment(comparison: &Comparison) -> Vec<[String; 3]> {
    let head = ["different too", "A", "B"].map(str::to_owned);
    let told = |value: &Option<String>| value.as_deref().map_or("not known".to_owned(), printable);
    let rows = comparison
        .environment
        .iter()
        .map(|one| [printable(&one.name), told(&one.a), told(&one.b)]);
    std::iter::once(head).chain(rows).collect()
}

fn table<const N: usize>(head: &[String; N], columns: [Align; N], rows: &[[String; N]]) -> String {
    let line = |cells: &[String; N]| {
        format!(
            "| {} |\n",
            cells.each_ref().map(|cell| escaped(cell)).join(" | ")
        )
    };
    let rule = columns
        .map(|align| if align == Align::Right { "--:" } else { ":--" })
        .join(" | ");
    let body: String = rows.iter().map(line).collect();
    format!("{}| {rule} |\n{body}", line(head))
}

/// Escapes Markdown syntax.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        if matches!(
            letter,
            '|' | '*' | '_' | '`' | '<' | '>' | '[' | ']' | '\\' | '#'
        ) {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Difference;

    fn side(value: f64) -> Side {
        Side {
            value,
            bytes_per_s: value * 4096.0,
            p99_us: 1203.0,
            runs: 3,
            faults: 0,
            flags: vec![],
        }
    }

    fn change(percent: f64) -> Change {
        Change {
            percent,
            low_percent: percent - 3.0,
            high_percent: percent + 3.0,
            p: 0.001,
            alpha: 0.025,
            detectable_percent: -4.1,
            basis: Basis::Runs,
        }
    }

    fn cell(name: &str, judgement: Judgement) -> CellComparison {
        let name = name.to_owned();
        CellComparison {
            cell: name,
            figure: Figure::Iops,
            a: side(52_301.0),
            b: side(41_207.0),
            judgement,
        }
    }

    fn comparison(cells: Vec<CellComparison>) -> Comparison {
        Comparison {
            cells,
            only_a: vec![],
            only_b: vec![],
            environment: vec![],
        }
    }

    #[test]
    fn a_table_says_what_is_worse_and_how_sure_that_is() {
        let worse = cell("read-4KiB", Judgement::Worse(change(-21.2)));
        let same = cell("write-4KiB", Judgement::Undecided(change(0.4)));
        let text = terminal(&comparison(vec![worse, same]), 200);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "B is worse in 1 cell; no difference was found in 1."
        );
        assert_eq!(
            lines[2..5],
            [
                "cell        A, IOPS  B, IOPS  difference           interval              detectable          p99 A → B",
                "read-4KiB    52,301   41,207     −21.2 %  −24.2 % … −18.2 %  ▼ worse         −4.1 %  1.20 ms → 1.20 ms",
                "write-4KiB   52,301   41,207      +0.4 %    −2.6 % … +3.4 %  none found      −4.1 %  1.20 ms → 1.20 ms",
            ]
        );
    }

    #[test]
    fn cells_that_cannot_be_compared_are_no_absence_of_differences() {
        let text = terminal(&comparison(vec![cell("c", Judgement::OtherWorkload)]), 200);
        assert!(text.starts_with("No cell could be compared.\n"), "{text}");
    }

    #[test]
    fn a_narrow_terminal_loses_columns_and_names_them() {
        let text = terminal(
            &comparison(vec![cell("read-4KiB", Judgement::Worse(change(-21.2)))]),
            80,
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        assert!(
            text.contains("\nno space for interval, detectable; use a wider terminal or JSON\n"),
            "{text}"
        );
        assert!(
            text.contains("−21.2 %") && text.contains("1.20 ms → 1.20 ms"),
            "{text}"
        );
    }

    #[test]
    fn a_time_has_its_unit_and_so_have_the_rates_beside_it() {
        let time = CellComparison {
            figure: Figure::ResponseUs,
            a: side(203.0),
            ..cell("paced", Judgement::Undecided(change(1.0)))
        };
        let text = terminal(
            &comparison(vec![time, cell("free", Judgement::Undecided(change(1.0)))]),
            200,
        );
        assert!(
            text.contains("203 µs") && text.contains("52,301 IOPS"),
            "{text}"
        );
    }

    #[test]
    fn a_remark_that_holds_for_many_is_made_once() {
        let flagged = |name: &str| {
            let mut cell = cell(name, Judgement::Undecided(change(1.0)));
            cell.a.flags = vec![Flag::Failed { errors: 2 }];
            cell.b.flags = vec![Flag::Failed { errors: 3 }];
            cell
        };
        let text = terminal(&comparison(vec![flagged("one"), flagged("two")]), 200);
        assert!(
            text.contains("one in A: 2 requests failed (likewise one in B, two in A, two in B)."),
            "{text}"
        );
    }

    #[test]
    fn what_differs_around_stands_below() {
        let mut comparison = comparison(vec![cell("c", Judgement::Better(change(8.0)))]);
        let (a, b) = (Some("1500".to_owned()), None);
        comparison.environment = vec![Difference {
            name: "MTU".to_owned(),
            a,
            b,
        }];
        let text = terminal(&comparison, 200);
        assert!(text.starts_with("B is better in 1 cell.\n"), "{text}");
        assert!(
            text.ends_with("different too  A     B\nMTU            1500  not known\n"),
            "{text}"
        );
        assert!(markdown(&comparison).contains("| MTU | 1500 | not known |\n"));
    }

    #[test]
    fn names_from_a_file_change_no_terminal_and_no_markdown() {
        let comparison = comparison(vec![cell("a|\x1b[31m", Judgement::TooLittle)]);
        assert!(terminal(&comparison, 200).contains("a|\\u{1b}[31m"));
        let text = markdown(&comparison);
        assert!(
            text.contains("\\[31m |") && !text.contains('\x1b'),
            "{text}"
        );
    }

    #[test]
    fn a_single_run_is_remarked_upon() {
        let change = Change {
            basis: Basis::Samples,
            ..change(-50.0)
        };
        let text = terminal(
            &comparison(vec![cell("read-4KiB", Judgement::Worse(change))]),
            200,
        );
        assert!(
            text.contains("One or both sides have only a single run in read-4KiB:"),
            "{text}"
        );
    }

    #[test]
    fn a_difference_has_its_sign_and_a_largest_value() {
        assert_eq!(
            [1e6, 312.4, 12.34, -0.04, -100.0].map(signed),
            ["> +9999 %", "+312 %", "+12.3 %", "−0.0 %", "−100 %"]
        );
    }
}
