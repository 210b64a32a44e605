use std::time::Duration;

use super::*;
use crate::test_record::{self, suite};

fn cell(name: &str) -> Cell {
    test_record::cell(name, 4096, 1)
}

fn measure(names: &[&str], order: Order) -> Step {
    test_record::measure(order, names.iter().map(|name| cell(name)).collect())
}

/// Creates a run of a cell with this rate.
fn run_at(name: &str, round: u32, rate: u64) -> CellRun {
    test_record::run(&cell(name), round, &[rate as f64])
}

/// Reports all tasks as done, with rates that depend on cell and round. Returns the order of the runs.
fn carry_out(schedule: &mut Schedule, rate: impl Fn(&str, u32) -> u64) -> Vec<String> {
    let mut order = Vec::new();
    while let Some(task) = schedule.due() {
        assert!(order.len() < 1000, "it never ends: {:?}", &order[..10]);
        match task.work {
            Work::Purge | Work::Fill { .. } => {
                order.push("prepare".to_owned());
                schedule.prepared(task.step);
            }
            Work::Measure { cell, .. } => {
                order.push(format!("{} {}", cell.name, task.round));
                schedule.done(&run_at(
                    &cell.name,
                    task.round,
                    rate(&cell.name, task.round),
                ));
            }
        }
    }
    order
}

fn interleaved(repeats_min: u32, repeats_max: u32) -> Order {
    Order::Interleaved {
        repeats_min,
        repeats_max,
    }
}

#[test]
fn once_is_once_and_in_order() {
    let fill = Step::Fill {
        block_bytes: 4096,
        depth: 1,
        passes: 1,
    };
    let suite = suite(vec![
        fill,
        measure(&["a", "b"], Order::Once),
        Step::Purge,
        measure(&["c"], Order::Once),
    ]);
    let order = carry_out(&mut Schedule::new(&suite, &[], 1), |_, _| 100);
    assert_eq!(order, ["prepare", "a 0", "b 0", "prepare", "c 0"]);
}

#[test]
fn what_is_due_stays_due_until_it_is_done() {
    let suite = suite(vec![Step::Purge, measure(&["a"], Order::Once)]);
    let mut schedule = Schedule::new(&suite, &[], 1);
    assert_eq!(schedule.due().map(|task| task.work), Some(Work::Purge));
    assert_eq!(schedule.due(), schedule.due());
    schedule.prepared(0);
    let cut_short = CellRun {
        ended: Ended::Interrupted,
        ..run_at("a", 0, 1)
    };
    schedule.done(&cut_short);
    assert!(
        schedule.due().is_some(),
        "a run that was cut short is made again"
    );
    schedule.done(&run_at("a", 0, 100));
    assert_eq!(schedule.due(), None);
}

#[test]
fn a_cell_may_end_by_a_stop_of_its_own() {
    let mut own = cell("own");
    own.stop = Some(Stop::after(3.0));
    let step = Step::Measure {
        stop: Stop::after(10.0),
        order: Order::Once,
        cells: vec![own],
    };
    let task = Schedule::new(&suite(vec![step]), &[], 1).due().unwrap();
    assert!(matches!(task.work, Work::Measure { stop, .. } if stop == Stop::after(3.0)));
}

#[test]
fn rounds_end_when_every_median_is_known() {
    let suite = suite(vec![measure(&["calm", "wild"], interleaved(3, 9))]);
    // The rate of the cell `wild` becomes constant after two rounds. With five runs, the Student interval is
    // still too wide; with six, the order-statistics interval still contains all runs.
    let rate = |cell: &str, round: u32| {
        if cell == "wild" && round < 2 {
            1300
        } else {
            1000
        }
    };
    let order = carry_out(&mut Schedule::new(&suite, &[], 1), rate);
    assert_eq!(
        order.len(),
        2 * 9,
        "the second smallest and the second largest of nine: {order:?}"
    );
    let order = carry_out(&mut Schedule::new(&suite, &[], 1), |_, round| {
        1000 + u64::from(round)
    });
    assert_eq!(order.len(), 2 * 3);
}

#[test]
fn rounds_end_at_the_latest_with_the_last_that_is_allowed() {
    let suite = suite(vec![measure(&["a"], interleaved(2, 4))]);
    let order = carry_out(&mut Schedule::new(&suite, &[], 1), |_, round| {
        1000 * u64::from(round + 1)
    });
    assert_eq!(order.len(), 4);
    let failed = carry_out(&mut Schedule::new(&suite, &[], 1), |_, _| 0);
    assert_eq!(
        failed.len(),
        4,
        "a cell of which every request fails has no median that could be known"
    );
}

#[test]
fn each_round_has_an_order_of_its_own_that_the_seed_decides() {
    let names: Vec<String> = (0..8).map(|number| format!("cell-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let suite = suite(vec![measure(&names, interleaved(3, 3))]);
    let order = |seed| carry_out(&mut Schedule::new(&suite, &[], seed), |_, _| 100);
    let cells = |round: usize| -> Vec<String> {
        order(1)[8 * round..8 * (round + 1)]
            .iter()
            .map(|run| run[..6].to_owned())
            .collect()
    };
    assert_ne!(cells(0), cells(1));
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
    let mut all = cells(2);
    all.sort();
    assert_eq!(all, names);
}

#[test]
fn rounds_that_become_steady_end_with_the_fifth_steady_one() {
    let order = Order::SteadyRounds {
        tracked: "tracked".into(),
        rounds_max: 25,
    };
    let suite = suite(vec![measure(&["other", "tracked"], order)]);
    // A drive that settles: its rates are 8000, 4000, 2000, and then constantly 1000.
    let rate = |_: &str, round: u32| if round < 3 { 8000 >> round } else { 1000 };
    let order = carry_out(&mut Schedule::new(&suite, &[], 1), rate);
    assert_eq!(order.last().unwrap(), "tracked 7");
    let order = carry_out(&mut Schedule::new(&suite, &[], 1), |_, round| {
        100 << (round % 5)
    });
    assert_eq!(order.last().unwrap(), "tracked 24", "never steady");
}

#[test]
fn a_record_that_was_cut_short_is_continued_where_it_ended() {
    let steps = || {
        let fill = Step::Fill {
            block_bytes: 4096,
            depth: 1,
            passes: 2,
        };
        vec![
            fill,
            measure(&["a", "b", "c"], interleaved(2, 2)),
            Step::Purge,
            measure(&["d"], Order::Once),
        ]
    };
    let suite = suite(steps());
    let mut whole = Schedule::new(&suite, &[], 7);
    let all = carry_out(&mut whole, |_, _| 100);
    let runs: Vec<CellRun> = all
        .iter()
        .filter(|run| *run != "prepare")
        .map(|run| {
            let (cell, round) = run.split_once(' ').unwrap();
            run_at(cell, round.parse().unwrap(), 100)
        })
        .collect();
    for kept in 1..runs.len() {
        let mut resumed = Schedule::new(&suite, &runs[..kept], 7);
        let rest = carry_out(&mut resumed, |_, _| 100);
        let expected: Vec<&String> = all.iter().skip(kept + 1).collect();
        assert_eq!(
            rest.iter().collect::<Vec<_>>(),
            expected,
            "after {kept} runs"
        );
    }
}

#[test]
fn a_suite_of_nonsense_ends_too() {
    let twice = measure(&["same", "same"], interleaved(1, 2));
    let empty = measure(&[], interleaved(1, u32::MAX));
    let untracked = measure(
        &["a"],
        Order::SteadyRounds {
            tracked: "b".into(),
            rounds_max: 6,
        },
    );
    let order = carry_out(
        &mut Schedule::new(&suite(vec![empty, twice, untracked]), &[], 1),
        |_, _| 5,
    );
    assert_eq!(order.len(), 2 + 6, "{order:?}");
    let strange = [run_at("unknown", u32::MAX, 5), run_at("a", u32::MAX, 5)];
    assert_eq!(Schedule::new(&suite(vec![]), &strange, 1).due(), None);
}

#[test]
fn what_is_left_becomes_less() {
    let suite = suite(vec![measure(&["a", "b"], interleaved(2, 4))]);
    let mut schedule = Schedule::new(&suite, &[], 1);
    let left = schedule.left();
    assert_eq!((left.runs_min, left.runs_max), (4, 8));
    assert_eq!(
        (left.time_min, left.time_max),
        (Duration::from_secs(40), Duration::from_secs(80))
    );
    schedule.done(&run_at("a", 0, 100));
    assert_eq!(schedule.left().runs_min, 3);
    carry_out(&mut schedule, |_, _| 100);
    assert_eq!(schedule.left().time_max, Duration::ZERO);
}
