//! Tests of the reports of all kinds of records, and of the handling of malicious names.

mod diagnoses;
mod diagnosis;
mod distance;
mod exports;
mod hostile;
mod records;

use bench::plan::{Cell, Percent, Role, Step, Workload};
use bench::record::Record;
use bench::test_record::{clients, record, record_of, run};
use report::measured::{Beside, Measured};
use report::{Report, Reports};

pub(crate) fn report(record: &Record) -> Report<'_> {
    Report::new(record)
}

pub(crate) fn all() -> [Record; 8] {
    [
        records::sweep(),
        records::depths(),
        records::clients(),
        records::open_loop(),
        records::pts(),
        records::wan(),
        records::partial(),
        records::empty(),
    ]
}

#[test]
fn wrong_data_is_said_before_everything_else() {
    let record = records::partial();
    let page = report(&record).markdown();
    let (wrong, numbers) = (page.find("wrong data was read"), page.find("MB/s"));
    assert!(wrong.is_some() && wrong < numbers, "{page}");
}

#[test]
fn a_record_that_was_not_finished_says_so_and_shows_what_there_is() {
    let mut record = records::sweep();
    record.ended = None;
    record.runs.truncate(10);
    let page = report(&record).markdown();
    assert!(
        page.contains("incomplete") && page.contains("can be resumed"),
        "{page}"
    );
    assert!(page.contains("No measurements for 20 cells: "), "{page}");
    assert!(page.contains("## Throughput against block size"), "{page}");
}

#[test]
fn a_record_of_nothing_is_a_page_that_says_so() {
    let record = records::empty();
    assert!(report(&record).markdown().contains("Nothing was run."));
    assert!(report(&record).terminal(80).contains("Nothing was run."));
    assert_well_formed(&report(&record).html());
}

#[test]
fn there_are_only_sections_that_the_record_has_data_for() {
    let has = |record: &Record, id: &str| {
        report(record)
            .html()
            .contains(&format!("<section id=\"{id}\">"))
    };
    let sections = ["sizes", "load", "percentiles", "times", "clients", "cpu"];
    let distance = ["wan", "tcp", "lan", "axes", "model"];
    let of = |record: Record| sections.map(|section| has(&record, section));
    assert_eq!(of(records::sweep()), [true, false, true, true, false, true]);
    assert_eq!(
        of(records::depths()),
        [false, true, true, true, false, true]
    );
    assert_eq!(
        of(records::clients()),
        [false, false, true, true, true, true]
    );
    assert_eq!(of(records::empty()), [false; 6]);
    // The cells of this record differ in their paths, so a curve over all of them would be meaningless.
    assert_eq!(of(records::wan()), [false; 6]);
    assert!(distance.iter().all(|section| has(&records::wan(), section)));
    assert!(!distance.iter().any(|section| has(&records::pts(), section)));
}

/// Returns the sentence about one, two and more clients with these rates, in thousands per second.
fn about_clients(rates: &[f64]) -> String {
    let workload = Workload::simple(4096, 4, Percent::ALL, Percent::NONE);
    let counts = 1..=u16::try_from(rates.len()).expect("a few");
    let cells: Vec<_> = counts
        .map(|count| clients(&format!("{count}"), count, &workload))
        .collect();
    let each =
        |cell: &Cell, rate: &f64| vec![1000.0 * rate / cell.roles.len() as f64; cell.roles.len()];
    let runs = cells
        .iter()
        .zip(rates)
        .map(|(cell, rate)| run(cell, 0, &each(cell, rate)))
        .collect();
    let page = report(&record(cells, runs)).markdown();
    let line = page
        .lines()
        .find(|line| line.contains("Universal scalability law:"));
    line.unwrap_or_else(|| panic!("{page}")).to_owned()
}

#[test]
fn a_rate_that_falls_with_each_client_is_not_said_to_grow() {
    let said = about_clients(&[101.0, 51.8, 50.9]);
    assert!(
        said.contains("the rate is highest with 1 client (101,000 IOPS). "),
        "{said}"
    );
    let said = about_clients(&[100.0, 160.0, 150.0]);
    assert!(
        said.contains("the rate is highest with 2 clients (160,000 IOPS). "),
        "{said}"
    );
    let said = about_clients(&[100.0, 180.0, 220.0]);
    assert!(
        said.contains(
            "highest with the maximum of 3 clients (220,000 IOPS); by the law, it peaks at "
        ),
        "{said}"
    );
    let said = about_clients(&[100.0, 200.0, 300.0]);
    assert!(
        said.contains("highest with the maximum of 3 clients (300,000 IOPS). "),
        "{said}"
    );
}

#[test]
fn a_suite_on_storage_of_two_sizes_has_its_cells_in_common() {
    let (large, mut small) = (records::sweep(), records::sweep());
    change_roles(&mut small, |role| {
        role.workload.span.bytes = Some(512 << 20)
    });
    let page = |small: &Record| Reports::new(vec![report(&large), report(small)]).markdown();
    let common = page(&small);
    assert!(common.contains("| cell | result |"), "{common}");
    assert!(!common.contains("but different requests"), "{common}");
    change_roles(&mut small, |role| role.workload.depth += 1);
    let others = page(&small);
    let names = "Cells with the same name, but different requests: read-512, read-1024";
    assert!(
        others.contains(names) && !others.contains("| cell | result |"),
        "{others}"
    );
}

/// Changes the planned role of every cell.
fn change_roles(record: &mut Record, change: fn(&mut Role)) {
    for step in &mut record.suite.steps {
        let Step::Measure { cells, .. } = step else {
            continue;
        };
        cells
            .iter_mut()
            .flat_map(|cell| &mut cell.roles)
            .for_each(change);
    }
}

#[test]
fn every_page_is_one_file_that_asks_for_nothing_else() {
    for record in all() {
        let page = report(&record).html();
        assert_well_formed(&page);
        for outside in ["src=", "<link", "url(", "@import", "http://", "fetch("] {
            assert!(!page.contains(outside), "{}: {outside}", record.suite.name);
        }
    }
}

#[test]
fn a_run_of_the_largest_suite_is_drawn_in_less_than_two_megabytes() {
    let mut record = records::pts();
    // After this change, each cell has as many samples as a run of an hour.
    for run in &mut record.runs {
        let samples = &mut run.clients[0].run.samples;
        *samples = samples.repeat(6);
        for (n, sample) in samples.iter_mut().enumerate() {
            sample.at_s = n as f64 * 0.1;
        }
    }
    assert!(report(&record).html().len() < 2_000_000);
}

#[test]
fn one_published_curve_a_series_is_drawn_beside_and_named_with_its_column() {
    let mut record = records::atto();
    let drawn = |record: &Record| {
        let page = report(record).beside(&["001".to_owned()]).html();
        assert_well_formed(&page);
        page
    };
    let place = std::mem::replace(&mut record.subject.place, "disk.img".to_owned());
    record.subject.kind = "file".to_owned();
    assert_eq!(drawn(&record).matches("class=\"curve published").count(), 0);
    (record.subject.kind, record.subject.place) = ("iscsi".to_owned(), place);
    let page = drawn(&record);
    assert_eq!(page.matches("class=\"curve published").count(), 2);
    for direction in ["read", "write"] {
        let name = format!("document 001, Super ATTO Clone pattern, {direction}");
        assert!(page.contains(&name), "{name}");
    }
}

#[test]
fn a_limit_that_is_the_same_for_both_directions_is_drawn_once() {
    let record = records::sweep();
    assert_eq!(
        report(&record)
            .html()
            .matches("class=\"curve limit")
            .count(),
        1
    );
    let mut record = record;
    record.limits[0].points[3].1 /= 2.0;
    assert_eq!(
        report(&record)
            .html()
            .matches("class=\"curve limit")
            .count(),
        2
    );
}

#[test]
fn the_terminal_shows_every_cell_in_lines_of_its_width() {
    for record in all() {
        for width in [0, 60, 80, 100, 500] {
            let seen = report(&record).terminal(width);
            let longest = seen
                .lines()
                .map(|line| line.chars().count())
                .max()
                .unwrap_or(0);
            let bare = |text: &str| text.split_whitespace().collect::<String>();
            assert!(
                !bare(&seen).replace("…incomplete", "").contains('…'),
                "{seen}"
            );
            assert!(
                longest <= width.clamp(60, 100),
                "{longest} of {width}:\n{seen}"
            );
        }
    }
}

#[test]
fn a_terminal_names_the_columns_that_it_has_no_room_for() {
    let record = records::sweep();
    for width in [60, 80, 100] {
        let seen = report(&record).terminal(width);
        for cell in record.suite.cells() {
            assert!(
                seen.contains(&format!("\n  {} ", cell.name)),
                "{}:\n{seen}",
                cell.name
            );
        }
        assert_eq!(seen.contains("no space for "), width == 60, "{seen}");
    }
}

#[test]
fn a_single_run_is_told_with_the_warnings_of_its_report() {
    let mut record = records::sweep();
    let cell = record.suite.cells().next().expect("a cell").clone();
    record.runs.retain(|run| run.cell == cell.name);
    record.runs.truncate(1);
    // After this change, half of the outstanding requests are missing from the rate.
    record.runs[0].clients[0].run.under_way_mean *= 2.0;
    let beside = Beside::new(&record, None, false);
    let measured = Measured::of(&record.runs[0], &beside);
    let json: serde_json::Value =
        serde_json::from_str(&measured.json().expect("JSON")).expect("JSON");
    let warnings = json["warnings"].as_array().expect("a list");
    let little = warnings
        .iter()
        .find(|warning| warning["kind"] == "little")
        .expect("Little's law is broken");
    let numbers = ["expected_requests", "measured_requests"]
        .map(|name| little[name].as_f64().expect("a number"));
    assert!(numbers[0] < numbers[1], "{little}");
    let flags = report::summary::of(&record)[0].flags.clone();
    let sentences: Vec<String> = flags.iter().map(ToString::to_string).collect();
    let told: Vec<&str> = warnings
        .iter()
        .filter_map(|warning| warning["sentence"].as_str())
        .collect();
    assert_eq!(told, sentences);
    for width in [60, 80, 100] {
        let text = measured.text(&cell, &record, width);
        assert!(
            text.lines().all(|line| line.chars().count() <= width),
            "{text}"
        );
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            sentences
                .iter()
                .all(|sentence| words.contains(&format!("! {sentence}"))),
            "{text}"
        );
    }
}

#[test]
fn a_limit_that_is_exceeded_is_no_limit_and_has_no_percentage() {
    let mut record = records::sweep();
    let page = report(&record).markdown();
    assert!(
        page.contains("Dashed lines are ceilings.") && !page.contains("exceeds "),
        "{page}"
    );
    record
        .limits
        .iter_mut()
        .flat_map(|limit| &mut limit.points)
        .for_each(|(_, rate)| *rate /= 1000.0);
    let seen = report(&record).terminal(100);
    let unwrapped = seen.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        unwrapped.contains("so the measured ceiling is too low"),
        "{seen}"
    );
    let above = |text: &str| {
        let words: Vec<&str> = text.split([' ', '|', '\n']).collect();
        words.windows(2).any(|pair| {
            pair[1] == "%"
                && pair[0]
                    .replace(',', "")
                    .parse()
                    .is_ok_and(|n: f64| n > 100.0)
        })
    };
    assert!(!above(&seen), "{seen}");
    let page = report(&record).markdown();
    assert!(
        page.contains("exceeds ") && page.contains("the ceiling was measured too low"),
        "{page}"
    );
}

#[test]
fn the_command_line_of_the_appendix_makes_the_record_again() {
    let record = records::sweep();
    let line = "linerate bench 'iscsi://10.0.0.7/iqn.2003-01.org.example:disk1/0?connections=2'";
    assert!(report(&record).markdown().contains(line));
}

/// Checks that every element is closed, in the right order.
pub(crate) fn assert_well_formed(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let end = rest.find('>').expect("a tag ends");
        let (tag, after) = (&rest[..end], &rest[end + 1..]);
        rest = after;
        let name = tag
            .trim_start_matches('/')
            .split([' ', '/'])
            .next()
            .expect("a name");
        match tag {
            tag if tag.starts_with('!') || tag.ends_with('/') => {}
            tag if tag.starts_with('/') => assert_eq!(open.pop(), Some(name)),
            _ => open.push(name),
        }
        if name == "script" && !tag.starts_with('/') {
            rest = &rest[rest.find("</script").expect("its end")..];
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

/// Returns a record of a built-in suite over iSCSI, in which every client completes 1000 requests a second.
fn of_suite(name: &str) -> Record {
    let suite = bench::suite::named(name).expect("a built-in suite");
    let runs = suite
        .cells()
        .map(|cell| run(cell, 0, &vec![1000.0; cell.roles.len()]))
        .collect();
    let mut record = record_of(suite, runs);
    record.subject.kind = "iscsi".to_owned();
    record
}

#[test]
fn every_form_has_measured_and_published_rates_with_their_ratio() {
    for (suite, document, cell, rates, source) in [
        (
            "dpmeter",
            "000",
            "read-256KiB",
            "262 34.9 7.51",
            "Table 6, iSCSI to RAM drive",
        ),
        (
            "vmware4",
            "001",
            "max-throughput-100-read",
            "32.8 57.7 0.568",
            "Test 001, 001a Max Throughput 100% read",
        ),
        (
            "clients",
            "001",
            "max-throughput-3-clients",
            "98.3 54.5 1.80",
            "Test 007, 007 Totals",
        ),
        (
            "clients",
            "001",
            "mixed-3-clients, VM03 MaxThroughput",
            "32.8 4.74 6.92",
            "Test 008, 008 VM03 MaxThroughput",
        ),
        (
            "bonnie",
            "004",
            "input-block",
            "8.19 62.0 0.132",
            "bonnie++ sequential input block",
        ),
        (
            "cern",
            "004",
            "random-read",
            "1,573 42.0 37.4",
            "seqent_random_io64 random read",
        ),
    ] {
        let record = of_suite(suite);
        let report = report(&record).beside(&[document.to_owned()]);
        let words = |text: &str| {
            text.replace('|', " ")
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        let (terminal, markdown) = (words(&report.terminal(80)), words(&report.markdown()));
        let line = format!("{cell} {rates}");
        assert!(
            terminal.contains(&line) && terminal.contains(source),
            "{line}: {}",
            report.terminal(80)
        );
        let line = format!("{line} ");
        assert!(markdown.contains(&line), "{line}: {}", report.markdown());
        let cells = [cell].into_iter().chain(rates.split(' '));
        let html = report.html();
        assert!(
            cells.chain([source]).all(|cell| html.contains(cell)),
            "{line}: {html}"
        );
    }
}

#[test]
fn cells_without_a_counterpart_are_named() {
    let record = of_suite("bonnie");
    let report = report(&record).beside(&["004".to_owned()]);
    let sentence =
        "Not compared: output-block-direct, input-block-direct. Document 004 has no result";
    let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for text in [report.terminal(100), report.markdown(), report.html()] {
        assert!(words(text.clone()).contains(sentence), "{text}");
    }
}
