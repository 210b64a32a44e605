//! Tests of the reports of records that were measured over distances.

use bench::record::Record;

use crate::{records, report};

fn markdown(record: &Record) -> String {
    report(record).markdown()
}

/// Returns the cells of the first line with this prefix.
fn line(page: &str, begin: &str) -> String {
    page.lines()
        .find(|line| line.starts_with(begin))
        .unwrap_or_else(|| panic!("{begin}:\n{page}"))
        .to_owned()
}

#[test]
fn each_number_stands_beside_the_models_and_the_published_one() {
    let page = markdown(&records::wan());
    let (_, reads) = page.split_once("### Reads").expect("the table");
    assert_eq!(
        line(reads, "| request |"),
        "| request | depth | 0 ms | 2 ms | 10 ms | 50 ms |"
    );
    let far: Vec<String> = line(reads, "| 64 KiB | 1 |")
        .split('|')
        .map(|cell| cell.trim().to_owned())
        .collect();
    // Over 2 ms, the document's testbed was faster than 160 Mbit/s permit. Over 50 ms, all are equally slow.
    assert!(far[4].ends_with("/ 17.2 †"), "{far:?}");
    assert!(
        far[6].starts_with("1.") && far[6].ends_with("/ 1.2"),
        "{far:?}"
    );
    assert!(
        page.contains(
            "each with one round trip of 2 ms and 3.48 ms on the link: at most 12.0 MB/s"
        ),
        "{page}"
    );
    assert!(
        page.lines().all(|line| line.len() < 4000),
        "tables are to be read"
    );
}

#[test]
fn a_published_number_that_is_missed_is_said_first() {
    let mut record = records::wan();
    let slow = record
        .runs
        .iter_mut()
        .find(|run| run.cell == "read, 50 ms, 8 KiB × 32")
        .expect("the cell");
    slow.clients[0].run.reads.bytes /= 3;
    let page = markdown(&record);
    let (first, tables) = page.split_once("## ").expect("sections");
    assert!(
        first.contains("Slower than published, although the path permits more: "),
        "{first}"
    );
    assert!(first.contains("read, 50 ms, 8 KiB × 32"), "{first}");
    assert!(tables.contains("/ 4.7 ✗"), "{tables}");
}

#[test]
fn what_distance_costs_is_the_first_thing_that_is_told() {
    let page = markdown(&records::wan());
    let (first, _) = page.split_once("## ").expect("sections");
    assert!(
        first.contains("reads over 50 ms: **") && first.contains("%** (of the link: "),
        "{first}"
    );
    assert!(
        first.contains("published numbers met or exceeded: **"),
        "{first}"
    );
    assert!(first.contains("model, median error: **"), "{first}");
}

#[test]
fn a_part_of_the_matrix_is_shown_without_the_rest() {
    let mut record = records::wan();
    record
        .runs
        .retain(|run| run.cell.starts_with("read, 10 ms"));
    let page = report(&record).html();
    assert!(
        page.contains("<section id=\"wan\">") && !page.contains("NaN"),
        "{page}"
    );
    record.runs.clear();
    assert!(report(&record).markdown().contains("Nothing was run."));
}

#[test]
fn a_terminal_shows_many_requests_over_every_round_trip() {
    let record = records::wan();
    let seen = report(&record).terminal(100);
    let line = line(&seen, "  unsolicited write, 256 KiB × 32");
    let numbers: Vec<&str> = line
        .split("32 ")
        .nth(1)
        .expect("numbers")
        .split_whitespace()
        .collect();
    assert_eq!(numbers.len(), 8, "{line}");
    assert_eq!([numbers[1], numbers[7]], ["(19.3)", "(4.9)"], "{line}");
    // With a network delay, a constant time per request is expected.
    assert!(
        !seen.contains("for all request lengths")
            && !seen.contains("requests were outstanding on average"),
        "{seen}"
    );
}

#[test]
fn the_table_of_cells_has_the_way_the_model_and_what_was_published() {
    let record = records::wan();
    let table = report(&record).cells_csv();
    let columns: Vec<&str> = table.lines().next().expect("a head").split(',').collect();
    let far = line(&table, "\"unsolicited write, 50 ms, 64 KiB × 32\"");
    // The name and the series contain commas, but the rest of the line does not.
    let cells: Vec<&str> = far
        .rsplit("\",")
        .next()
        .expect("the rest")
        .split(',')
        .collect();
    let at = |name: &str| {
        columns
            .iter()
            .position(|column| *column == name)
            .expect("a column")
    };
    let cell = |name: &str| cells[at(name) - at("direction")];
    assert_eq!(
        [cell("way"), cell("rtt_ms"), cell("mtu")],
        ["most unsolicited writes", "50", "1500"]
    );
    assert_eq!(
        [
            cell("model_limit"),
            cell("published_bytes_per_s"),
            cell("met")
        ],
        ["outstanding writes", "4800000", "beaten"]
    );
    // Other suites have no settings.
    assert!(!report(&records::sweep()).cells_csv().contains("rtt_ms"));
}
