//! Tests of the comparison, on records of a machine with known constants.

use super::*;
use bench::plan::{Cell, Part, Suite, Way};
use bench::record::Record;
use bench::suite::wan::{WanPlan, suite};
use bench::test_record;
use model::{Path, Term, predict};

const US: f64 = 1e-6;

fn plan(link_bits_per_s: f64) -> WanPlan {
    WanPlan {
        link_bits_per_s,
        congestion: "cubic".to_owned(),
        quick: false,
    }
}

/// Returns the path of a cell, with ends that have these constants.
fn path(cell: &Cell) -> Path {
    let setting = cell.setting.as_deref().expect("a setting");
    let link = super::path(setting);
    let payload = link.payload_per_s.expect("a link");
    Path {
        exchange_s: 30.0 * US,
        command_s: 90.0 * US,
        copy_per_s: Some(1.0 / (1.0 / payload + 1.0 / 2e9)),
        exchanges_per_s: Some(60_000.0),
        window_bytes: link
            .window_bytes
            .map(|bytes| if bytes > 1e6 { bytes } else { 0.7 * bytes }),
        ..link
    }
}

/// Returns the rate of such ends in a cell, in bytes per second.
fn rate(cell: &Cell) -> f64 {
    let setting = cell.setting.as_deref().expect("a setting");
    let workload = &cell.roles[0].workload;
    let asked = Asked {
        block_bytes: workload.block_bytes_max(),
        depth: workload.depth,
    };
    match (asked.load(setting), setting.way.keys()) {
        (Some(load), Some(keys)) => predict(&path(cell), &keys, &load).bytes_per_s,
        _ => path(cell).tcp_per_s(1),
    }
}

/// Returns a record of a suite whose rates are this multiple of the rates of such ends.
fn record(suite: Suite, factor: f64) -> Record {
    let runs = suite.cells().map(|cell| {
        let block_bytes = cell.roles[0].workload.block_bytes_mean();
        test_record::run(cell, 0, &[factor * rate(cell) / block_bytes])
    });
    let runs = runs.collect();
    test_record::record_of(suite, runs)
}

fn wan(link_bits_per_s: f64, factor: f64) -> Wan {
    Wan::of(&record(suite(&plan(link_bits_per_s)), factor)).expect("a WAN record")
}

fn row<'a>(wan: &'a Wan, cell: &str) -> &'a Row {
    wan.rows
        .iter()
        .find(|row| row.cell == cell)
        .unwrap_or_else(|| panic!("{cell}"))
}

#[test]
fn every_cell_that_the_document_prints_has_its_number() {
    let wan = wan(160e6, 1.0);
    let printed = |part: Part| wan.part(part).filter(|row| row.published.is_some()).count();
    assert_eq!([Part::Wan, Part::Tcp, Part::Lan].map(printed), [96, 16, 24]);
    assert_eq!(
        wan.rows
            .iter()
            .filter(|row| row.published.is_some())
            .count(),
        136
    );
    let number = |cell: &str| {
        row(&wan, cell)
            .published
            .as_ref()
            .expect("a number")
            .printed
            .clone()
    };
    assert_eq!(number("read, 10 ms, 256 KiB × 1"), "18.3");
    assert_eq!(number("solicited write, 50 ms, 64 KiB × 32"), "4.5");
    assert_eq!(number("unsolicited write, 0 ms, 1 KiB × 1"), "2.2");
    assert_eq!(number("unsolicited write, LAN, 256 KiB × 32"), "100.4");
    assert_eq!(number("TCP from the target, 2 ms, window 64 KiB"), "13.5");
    let digit = row(&wan, "read, 50 ms, 1 KiB × 1")
        .published
        .as_ref()
        .expect("0.02")
        .half_digit_per_s;
    assert_eq!(digit, 5e3);
}

#[test]
fn the_ends_are_found_in_the_record_and_explain_what_they_were_not_found_in() {
    for link in [160e6, 1e9] {
        let wan = wan(link, 1.0);
        let verdict = wan.verdict();
        let fitted = verdict.fitted.expect("a fit");
        assert!(
            fitted.median < 0.01 && fitted.worst.abs() < 0.10,
            "{link}: {fitted:?}"
        );
        let predicted: Vec<&Row> = wan
            .rows
            .iter()
            .filter(|row| row.published.is_none() && row.setting.loss == 0.0)
            .collect();
        assert!(predicted.len() > 30);
        for row in predicted {
            let off = row.off().expect("a model").abs();
            assert!(off < 0.05, "{}: {off} {row:?}", row.cell);
        }
    }
}

#[test]
fn loss_is_expected_to_cost_a_window_what_its_congestion_control_says() {
    let wan = wan(1e9, 1.0);
    let model = |congestion: &str| {
        let cell = row(
            &wan,
            &format!("unsolicited write, 0.1 % loss, {congestion}"),
        );
        (cell.model.expect("a model") / 1e6, cell.binding)
    };
    // Reno's rate: 1448 B × sqrt(1.5 / 0.001) in each 10 ms.
    let (reno, term) = model("reno");
    assert!(
        (reno - 5.6).abs() < 0.1 && term == Some(Term::Window),
        "{reno} {term:?}"
    );
    assert!(model("cubic").0 >= reno && model("bbr").0 > 100.0);
}

#[test]
fn a_cell_that_nobody_can_reach_is_named_with_the_reason() {
    let wan = wan(160e6, 1.0);
    let why = |cell: &str| match &row(&wan, cell).met {
        Some(Met::CannotBe(why)) => why.clone(),
        other => panic!("{cell}: {other:?}"),
    };
    assert_eq!(
        why("read, 10 ms, 256 KiB × 1"),
        "one request at a time, each with one round trip of 10 ms and 13.92 ms on the link: at most 11.0 MB/s"
    );
    assert_eq!(
        why("read, 0 ms, 256 KiB × 32"),
        "the link permits at most 18.8 MB/s of such data"
    );
    // On a faster link, all published results are possible.
    let wan = self::wan(1e9, 1.0);
    assert_eq!(wan.verdict().cannot_be, 0, "{:?}", wan.verdict());
    assert_eq!(row(&wan, "read, 10 ms, 256 KiB × 1").met, Some(Met::Beaten));
}

#[test]
fn a_cell_that_is_missed_for_no_reason_is_not_excused() {
    let slow = wan(1e9, 0.05).verdict();
    assert!(
        slow.missed.contains(&"read, 50 ms, 64 KiB × 32".to_owned()),
        "{slow:?}"
    );
    assert_eq!(
        slow.published,
        slow.beaten + slow.met + slow.cannot_be + slow.missed.len()
    );
}

#[test]
fn the_share_of_the_link_is_told_where_the_document_stopped_at_a_quarter() {
    let shares = wan(160e6, 1.0).verdict().shares;
    assert_eq!(shares.len(), 6);
    assert!(
        shares.iter().all(|share| share.of_link > 0.99),
        "{shares:?}"
    );
    // 32 × 64 KiB are not enough to fill a gigabit over 50 ms, for which the ends are not responsible.
    let shares = wan(1e9, 1.0).verdict().shares;
    let short = |way: Way| {
        let share = shares
            .iter()
            .find(|share| share.way == way && share.block_bytes == 64 << 10);
        share
            .map(|share| (share.of_link, share.of_most))
            .expect("a share")
    };
    assert!(
        short(Way::Reads).0 < 0.4 && short(Way::Reads).1 > 0.95,
        "{shares:?}"
    );
}

#[test]
fn what_was_not_run_has_no_numbers() {
    let mut record = record(suite(&plan(160e6)), 1.0);
    record.runs.clear();
    let wan = Wan::of(&record).expect("its cells");
    assert!(
        wan.constants.is_empty()
            && wan
                .rows
                .iter()
                .all(|row| row.measured.is_none() && row.met.is_none())
    );
    assert_eq!(wan.verdict().published, 0);
    assert_eq!(
        Wan::of(&test_record::record(
            vec![test_record::cell("read", 4096, 1)],
            vec![]
        )),
        None
    );
}
