//! Tests of accepted files, and of rejected files with the line and column of the error.

mod stream;

use super::*;
use crate::plan::{Align, Cell, Percent, Rule, Step, Suite};
use crate::suite::named;

/// The four access patterns of the VMware thread, written manually from the published grammar.
const VMWARE4: &str = include_str!("../../tests/data/vmware4.icf");

fn setup(text: &str) -> Setup {
    parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn mistake(text: &str) -> String {
    parse(text).expect_err("a mistake").to_string()
}

/// Returns the file with one line changed.
fn changed(from: &str, to: &str) -> String {
    assert!(VMWARE4.contains(from), "{from}");
    VMWARE4.replacen(from, to, 1)
}

fn suite(text: &str) -> Suite {
    setup(text).suite("imported")
}

fn names(suite: &Suite) -> Vec<&str> {
    suite.cells().map(|cell| cell.name.as_str()).collect()
}

#[test]
fn what_is_no_configuration_is_refused_at_its_place() {
    assert_eq!(
        mistake("hello"),
        "line 1, column 1: expected Version, 'TEST SETUP, 'RESULTS DISPLAY, 'ACCESS SPECIFICATIONS or 'MANAGER LIST, \
         found `hello`"
    );
    assert!(mistake("").starts_with("line 1, column 1: the file has no ACCESS SPECIFICATIONS"));
    assert!(
        mistake("Version 1.x\n")
            .starts_with("line 1, column 1: expected a version of three numbers")
    );
    assert!(mistake("Version 1998.01.05\n").contains("have a different format"));
    let cut = &VMWARE4[..VMWARE4.find("'End worker").expect("a worker")];
    let lines = cut.lines().count() + 1;
    assert_eq!(
        mistake(cut),
        format!(
            "line {lines}, column 1: the file ends, but a key of a worker, or 'End worker, was expected"
        )
    );
}

#[test]
fn a_wrong_number_is_pointed_at() {
    assert_eq!(
        mistake(&changed(
            "\t8192,100,65,60,0,1,0,0",
            "\t8192,100,165,60,0,1,0,0"
        )),
        "line 42, column 11: % reads: expected a whole number from 0 to 100, found `165`"
    );
    assert_eq!(
        mistake(&changed(
            "\t8192,100,65,60,0,1,0,0",
            "\t8192,90,65,60,0,1,0,0"
        )),
        "line 40, column 2: the shares (% of size) of this access specification add up to 90 %, not 100 %"
    );
    assert_eq!(
        mistake(&changed("\t8192,100,65,60,0,1,0,0", "\t8192,100,65,60,0,1")),
        "line 42, column 2: expected 8 numbers (size, % of size, % reads, % random, delay, burst, align, reply), found 6"
    );
    assert!(
        mistake(&changed("\t8192,100,65", "\t1000,100,65"))
            .ends_with("expected whole sectors of 512 bytes, found 1000")
    );
    assert!(
        mistake(&changed("0          2          0", "0          2"))
            .contains("expected hours, minutes and seconds")
    );
    assert!(
        mistake(&changed(
            "0          2          0",
            "0          0          0"
        ))
        .contains("until stopped")
    );
    assert!(
        mistake(&changed("64,ENABLED,500", "64,MAYBE,500"))
            .contains("expected ENABLED or DISABLED, found `MAYBE`")
    );
    assert!(
        mistake(&changed("64,ENABLED,500", "0,ENABLED,500")).contains("from 1 to 65536, found `0`")
    );
    assert!(
        mistake(&changed(
            "1          32         2          EXPONENTIAL",
            "1 32 EXPONENTIAL"
        ))
        .contains("such as 1 32 2 EXPONENTIAL")
    );
    assert!(
        mistake(&changed("\tNORMAL", "\tSIDEWAYS"))
            .contains("the test type: expected one of NORMAL, CYCLE_TARGETS")
    );
}

#[test]
fn what_is_not_known_is_named_and_not_dropped() {
    assert!(
        mistake(&changed("'Ramp Up Time (s)", "'Cool Down Time (s)"))
            .ends_with("TEST SETUP has no key `Cool Down Time (s)`")
    );
    assert!(
        mistake(&changed("'Worker type", "'Worker colour"))
            .ends_with("a worker has no key `Worker colour`")
    );
    let unassigned = changed(
        "\tRandom-8k-70%Read\n'End assigned",
        "\tRandom-9k\n'End assigned",
    );
    assert!(
        mistake(&unassigned).ends_with("there is no access specification `Random-9k` in this file")
    );
    let several = changed("\tNORMAL", "\tCYCLE_TARGETS").replace(
        "'End target assignments",
        "'Target\n\tE: \"\"\n'Target type\n\tDISK\n'End target\n'End target assignments",
    );
    assert!(
        mistake(&several)
            .ends_with("the test varies the number of disks, but there is only one storage here")
    );
}

#[test]
fn the_file_of_the_four_patterns_is_the_preset() {
    let (imported, preset) = (suite(VMWARE4), named("vmware4").expect("a preset"));
    assert_eq!(
        names(&imported),
        [
            "Max Throughput-100%Read",
            "RealLife-60%Rand-65%Read",
            "Max Throughput-50%Read",
            "Random-8k-70%Read"
        ]
    );
    let workloads = |suite: &Suite| -> Vec<_> {
        suite
            .cells()
            .map(|cell| cell.roles[0].workload.clone())
            .collect()
    };
    assert_eq!(workloads(&imported), workloads(&preset));
    let stop = |suite: &Suite| match &suite.steps[0] {
        Step::Measure { stop, order, .. } => (*stop, order.clone()),
        step => panic!("{step:?}"),
    };
    assert_eq!(stop(&imported), stop(&preset));
}

#[test]
fn line_ends_case_and_blanks_do_not_matter() {
    let windows = VMWARE4.replace('\n', "\r\n").replace('\t', "    ");
    assert_eq!(setup(&windows), setup(VMWARE4));
    let shouted: String = VMWARE4
        .lines()
        .map(|line| {
            if line.starts_with('\'') {
                line.to_uppercase() + "\n"
            } else {
                line.to_owned() + "\n"
            }
        })
        .collect();
    assert_eq!(setup(&shouted), setup(VMWARE4));
    let spaced = VMWARE4
        .replace("'END test setup", "'END test setup\n\n")
        .replace("8192,100,65,60,0,1,0,0", "8192, 100 65, 60,0 1 0,0");
    assert_eq!(setup(&spaced), setup(VMWARE4));
}

#[test]
fn outstanding_requests_are_stepped_through() {
    let cycled = suite(&changed("\tNORMAL", "\tCYCLE_OUTSTANDING_IOS"));
    let of_first: Vec<(&str, u32)> = cycled
        .cells()
        .filter(|cell| cell.series == "Max Throughput-100%Read")
        .map(|cell| (cell.name.as_str(), cell.roles[0].workload.depth))
        .collect();
    assert_eq!(of_first[0], ("Max Throughput-100%Read, 1 outstanding", 1));
    assert_eq!(
        of_first.iter().map(|(_, depth)| *depth).collect::<Vec<_>>(),
        [1, 2, 4, 8, 16, 32]
    );
    assert_eq!(cycled.cells().count(), 4 * 6);
    let linear = Steps {
        start: 3,
        end: 10,
        step: 3,
        exponential: false,
    };
    assert_eq!(linear.numbers(u32::MAX), [3, 6, 9]);
    let endless = Steps {
        start: 1,
        end: 4,
        step: 1,
        exponential: true,
    };
    assert_eq!(endless.numbers(u32::MAX), [1, 2, 3, 4]);
}

/// Two machines. One of them has two workers; the second worker runs a different specification first, and is
/// then idle.
fn two_managers() -> String {
    let worker = |name: &str, specs: &str| {
        format!(
            "'Worker\n\t{name}\n'Worker type\n\tDISK\n'Default target settings for worker\n'Number of outstanding \
             IOs,test connection rate,transactions per connection,use fixed seed,fixed seed value\n\t4,DISABLED,1,ENABLED,7\n\
             'Disk maximum size,starting sector,Data pattern\n\t0,2048,0\n'End default target settings for \
             worker\n'Assigned access specs\n{specs}'End assigned access specs\n'End worker\n"
        )
    };
    let (four, two) = (
        "\tRandom-8k-70%Read\n\tIdle\n",
        "\tMax Throughput-50%Read\n",
    );
    let list = VMWARE4.find("'MANAGER LIST").expect("a list");
    format!(
        "{}'MANAGER LIST ===\n'Manager ID, manager name\n\t1,A\n'Manager network address\n\t\n{}{}'End manager\n'Manager ID, \
         manager name\n\t2,B, the second\n'Manager network address\n\t10.0.0.2\n{}'End manager\n'END manager list\n",
        &VMWARE4[..list],
        worker("Worker 1", four),
        worker("Worker 1", two),
        worker("Worker 1", "\tRandom-8k-70%Read\n\tRandom-8k-70%Read\n"),
    )
}

#[test]
fn managers_are_clients_and_workers_are_roles() {
    let suite = suite(&two_managers());
    let cells: Vec<&Cell> = suite.cells().collect();
    assert_eq!(
        names(&suite),
        ["test 1: 2 concurrent specifications", "Random-8k-70%Read"]
    );
    let roles: Vec<(&str, u16)> = cells[0]
        .roles
        .iter()
        .map(|role| (role.name.as_str(), role.client))
        .collect();
    assert_eq!(
        roles,
        [
            ("A, Worker 1", 0),
            ("A, Worker 1 (2)", 0),
            ("B, the second, Worker 1", 1)
        ]
    );
    assert_eq!(
        cells[1].roles.len(),
        1,
        "idle workers, and those without a second specification, do nothing"
    );
    let workload = &cells[0].roles[0].workload;
    assert_eq!(
        (workload.depth, workload.drain_after, workload.seed),
        (4, None, 7)
    );
    assert_eq!(
        (workload.span.start_bytes, workload.span.bytes),
        (2048 * 512, None)
    );
    assert!(
        suite
            .assumed
            .iter()
            .any(|note| note.contains("the same bytes repeatedly")),
        "{:?}",
        suite.assumed
    );
}

#[test]
fn workers_are_stepped_through_on_each_manager() {
    let text = two_managers().replacen("\tNORMAL", "\tCYCLE_WORKERS", 1);
    let suite = suite(&text);
    let roles: Vec<(&str, usize)> = suite
        .cells()
        .map(|cell| (cell.series.as_str(), cell.roles.len()))
        .collect();
    assert_eq!(
        roles[..2],
        [
            ("test 1: 2 concurrent specifications", 2),
            ("test 1: 2 concurrent specifications", 3)
        ]
    );
}

#[test]
fn a_file_of_specifications_alone_has_one_worker() {
    let (start, end) = (
        VMWARE4.find("'ACCESS").expect("specs"),
        VMWARE4.find("'MANAGER LIST").expect("a list"),
    );
    let setup = setup(&VMWARE4[start..end]);
    assert_eq!(
        setup.managers[0].workers[0].specs,
        [Some(0), Some(1), Some(2), Some(3)]
    );
    let suite = setup.suite("specs");
    assert_eq!(suite.cells().count(), 4);
    assert!(
        suite
            .assumed
            .iter()
            .any(|note| note.contains("a queue depth of 1")),
        "{:?}",
        suite.assumed
    );
    assert!(
        suite
            .assumed
            .iter()
            .any(|note| note.starts_with("The file has no TEST SETUP: "))
    );
}

#[test]
fn a_specification_has_all_its_lines() {
    let text = changed(
        "\t8192,100,65,60,0,1,0,0",
        "\t8192,67,65,60,0,1,0,0\n\t65536,33,0,0,5,8,4096,0",
    );
    let spec = &setup(&text).specs[1];
    assert_eq!(
        (spec.lines.len(), spec.name.as_str()),
        (2, "RealLife-60%Rand-65%Read")
    );
    let line = &spec.lines[1];
    assert_eq!(
        (line.block_bytes, line.share, line.read),
        (65_536, Percent::new(33).expect("a share"), Percent::NONE)
    );
    assert_eq!(
        (line.align, line.burst, line.delay_ms),
        (Align::Bytes(4096), 8, 5)
    );
}

#[test]
fn ramp_up_and_run_time_are_the_stop() {
    let text = changed("'Ramp Up Time (s)\n\t0", "'Ramp Up Time (s)\n\t30");
    let Step::Measure { stop, .. } = &suite(&text).steps[0] else {
        panic!("a step")
    };
    assert_eq!(
        (stop.warm_up_s, stop.min_s, stop.max_s, stop.rule),
        (30.0, 120.0, 120.0, Rule::Time)
    );
}

#[test]
fn names_that_are_asked_for_again_get_numbers() {
    let text = changed(
        "\tMax Throughput-100%Read\n\tRealLife",
        "\tMax Throughput-100%Read\n\tMax Throughput-100%Read\n\tRealLife",
    );
    assert_eq!(
        names(&suite(&text))[..2],
        ["Max Throughput-100%Read", "Max Throughput-100%Read (2)"]
    );
}
