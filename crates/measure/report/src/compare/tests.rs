use super::*;
use bench::plan::Pace;
use bench::record::{CellRun, Facts, Group, Histogram};
use bench::test_record::{cell, record, run};
use testkit::Random;

fn cells(count: usize) -> Vec<Cell> {
    (0..count)
        .map(|number| cell(&format!("cell-{number}"), 4096, 1))
        .collect()
}

/// Creates a record in which each cell has these rates, one for each run.
fn rates(cells: &[Cell], rates: &[&[f64]]) -> Record {
    let runs = cells.iter().zip(rates).flat_map(|(cell, rates)| {
        rates
            .iter()
            .zip(0..)
            .map(|(rate, round)| run(cell, round, &[*rate]))
    });
    record(cells.to_vec(), runs.collect())
}

fn one(a: &[f64], b: &[f64]) -> CellComparison {
    let cells = cells(1);
    compare(&rates(&cells, &[a]), &rates(&cells, &[b]))
        .cells
        .remove(0)
}

/// Returns a number that is approximately normally distributed: the sum of twelve uniform numbers.
fn normal(random: &mut Random) -> f64 {
    (0..12)
        .map(|_| random.next() as f64 / u64::MAX as f64)
        .sum::<f64>()
        - 6.0
}

#[test]
fn a_fifth_less_is_worse_if_runs_scatter_by_a_hundredth() {
    let comparison = one(&[1000.0, 1010.0, 990.0], &[800.0, 808.0, 792.0]);
    let Judgement::Worse(change) = comparison.judgement else {
        panic!("{comparison:?}")
    };
    assert!((change.percent + 20.0).abs() < 0.1, "{change:?}");
    assert!(
        change.low_percent < -20.0 && (-20.0..-17.0).contains(&change.high_percent),
        "{change:?}"
    );
    assert_eq!(
        (change.basis, comparison.figure),
        (Basis::Runs, Figure::Iops)
    );
    assert!(comparison.is_worse(0.0) && comparison.is_worse(15.0) && !comparison.is_worse(25.0));
}

#[test]
fn a_fifth_more_is_better_and_nothing_to_fail_for() {
    let comparison = one(&[1000.0, 1010.0, 990.0], &[1200.0, 1212.0, 1188.0]);
    assert!(
        matches!(comparison.judgement, Judgement::Better(_)),
        "{comparison:?}"
    );
    assert!(!comparison.is_worse(0.0));
}

#[test]
fn what_scatters_too_much_is_undecided_and_says_what_could_have_been_seen() {
    let comparison = one(&[1000.0, 1300.0, 700.0], &[900.0, 1100.0, 700.0]);
    let Judgement::Undecided(change) = comparison.judgement else {
        panic!("{comparison:?}")
    };
    assert!(
        change.low_percent < 0.0 && change.high_percent > 0.0,
        "{change:?}"
    );
    assert!(
        (-90.0..-50.0).contains(&change.detectable_percent),
        "{change:?}"
    );
    assert!(!comparison.is_worse(0.0));
}

#[test]
fn a_single_run_is_judged_by_its_samples_and_says_so() {
    let wobbling = |rate: f64| {
        let cells = cells(1);
        let mut record = rates(&cells, &[&[rate]]);
        let samples = &mut record.runs[0].clients[0].run.samples;
        samples.iter_mut().enumerate().for_each(|(index, sample)| {
            let off = f64::from([0, 1, 3, 2, 1, 0, 2][index % 7]) / 100.0;
            sample.reads = (rate / 2.0 * (0.985 + off)) as u64;
        });
        record
    };
    let comparison = compare(&wobbling(1000.0), &wobbling(900.0)).cells.remove(0);
    let Judgement::Worse(change) = comparison.judgement else {
        panic!("{comparison:?}")
    };
    assert_eq!(change.basis, Basis::Samples);
    assert!((change.percent + 10.0).abs() < 0.01, "{change:?}");
    let same = compare(&wobbling(1000.0), &wobbling(1000.0))
        .cells
        .remove(0);
    assert!(
        matches!(same.judgement, Judgement::Undecided(_)),
        "{same:?}"
    );
}

#[test]
fn a_run_without_samples_cannot_be_judged() {
    let cells = cells(1);
    let mut bare = rates(&cells, &[&[1000.0]]);
    bare.runs[0].clients[0].run.samples.clear();
    let comparison = compare(&bare, &rates(&cells, &[&[500.0]]));
    assert_eq!(comparison.cells[0].judgement, Judgement::TooLittle);
    assert_eq!(comparison.judged(), 0);
}

#[test]
fn in_an_open_loop_time_is_compared_and_less_is_better() {
    let mut open = cell("open", 4096, 1);
    open.roles[0].workload.pace = Pace::Constant { per_second: 1000.0 };
    let at = |us: [u64; 3]| {
        let runs = us.iter().zip(0..).map(|(us, round)| {
            let mut run = run(&open, round, &[1000.0]);
            run.clients[0].run.reads.response = Histogram(vec![(us * 1000, 10_000)]);
            run
        });
        record(vec![open.clone()], runs.collect())
    };
    let comparison = compare(&at([200, 201, 199]), &at([100, 101, 99]))
        .cells
        .remove(0);
    assert_eq!(comparison.figure, Figure::ResponseUs);
    let Judgement::Better(change) = comparison.judgement else {
        panic!("{comparison:?}")
    };
    assert!((change.percent + 50.0).abs() < 0.1, "{change:?}");
    assert!(
        (0.5..10.0).contains(&change.detectable_percent),
        "longer is worse: {change:?}"
    );
    assert!(
        (comparison.a.value - 200.0).abs() < 0.1 && comparison.a.p99_us == 201.0,
        "{comparison:?}"
    );
}

#[test]
fn the_more_cells_are_compared_the_surer_each_has_to_be() {
    // Alone, this difference is significant with p = 3 %.
    let (a, b): (&[f64], &[f64]) = (&[1000.0, 1020.0, 980.0], &[950.0, 970.0, 930.0]);
    assert!(matches!(one(a, b).judgement, Judgement::Worse(_)));
    let cells = cells(10);
    let mut of_b: Vec<&[f64]> = vec![a; 10];
    of_b[4] = b;
    let together = compare(&rates(&cells, &[a; 10]), &rates(&cells, &of_b));
    assert_eq!((together.judged(), together.worse(0.0).count()), (10, 0));
    let Judgement::Undecided(change) = together.cells[4].judgement else {
        panic!()
    };
    assert_eq!(change.alpha, 0.005);
}

#[test]
fn equal_storage_is_found_different_seldom_however_many_cells_there_are() {
    let cells = cells(12);
    let mut random = Random::new(4);
    let mut measured = || {
        let runs = cells
            .iter()
            .flat_map(|cell| (0..3).map(move |round| (cell, round)));
        let runs: Vec<CellRun> = runs
            .map(|(cell, round)| run(cell, round, &[1000.0 + 20.0 * normal(&mut random)]))
            .collect();
        record(cells.clone(), runs)
    };
    let found = (0..300)
        .filter(|_| {
            let comparison = compare(&measured(), &measured());
            comparison
                .cells
                .iter()
                .any(|cell| !matches!(cell.judgement, Judgement::Undecided(_)))
        })
        .count();
    assert!(
        found <= 21,
        "in {found} of 300 comparisons; 5 in 100 are promised"
    );
}

#[test]
fn failed_requests_are_worse_however_fast() {
    let cells = cells(1);
    let mut failing = rates(&cells, &[&[2000.0, 2000.0]]);
    failing.runs[1].clients[0].run.errors = 1;
    let good = rates(&cells, &[&[1000.0, 1000.0]]);
    assert_eq!(compare(&good, &failing).worse(50.0).count(), 1);
    assert_eq!(
        compare(&failing, &failing).worse(0.0).count(),
        0,
        "it was so before"
    );
}

#[test]
fn a_cell_of_which_nothing_came_cannot_be_judged() {
    let comparison = one(&[1000.0, 1000.0], &[0.0, 0.0]);
    assert_eq!(
        (comparison.judgement, comparison.b.value),
        (Judgement::TooLittle, 0.0)
    );
}

#[test]
fn equal_names_are_not_equal_work() {
    let (one, other) = (cell("cell", 4096, 1), cell("cell", 8192, 1));
    let (a, b) = (
        rates(&[one], &[&[1000.0, 1000.0]]),
        rates(&[other], &[&[500.0, 500.0]]),
    );
    assert_eq!(compare(&a, &b).cells[0].judgement, Judgement::OtherWorkload);
}

/// Creates the record of a suite on storage of this size.
fn on_storage(mut cells: Vec<Cell>, bytes: u64, iops: f64) -> Record {
    for workload in cells
        .iter_mut()
        .flat_map(|cell| &mut cell.roles)
        .map(|role| &mut role.workload)
    {
        let wanted = workload.span.bytes.unwrap_or(u64::MAX);
        workload.span.bytes = Some(wanted.min(bytes));
    }
    let iops = [iops, iops * 1.01];
    let of_all: Vec<&[f64]> = vec![&iops; cells.len()];
    let mut record = rates(&cells, &of_all);
    record.subject.bytes = bytes;
    record
}

fn preset(name: &str) -> Vec<Cell> {
    bench::suite::named(name)
        .unwrap()
        .cells()
        .cloned()
        .collect()
}

fn difference(comparison: &Comparison, name: &str) -> Option<(String, String)> {
    let one = comparison.environment.iter().find(|one| one.name == name)?;
    Some((one.a.clone()?, one.b.clone()?))
}

#[test]
fn a_suite_is_the_same_on_storage_of_another_size() {
    let (ram, disk) = (512 << 20, 64 << 30);
    let dpmeter = || preset("dpmeter");
    let comparison = compare(
        &on_storage(dpmeter(), ram, 978_010.0),
        &on_storage(dpmeter(), disk, 24_430.0),
    );
    assert_eq!(
        comparison.worse(90.0).count(),
        dpmeter().len(),
        "{comparison:?}"
    );
    assert_eq!(
        difference(&comparison, "part of the storage"),
        None,
        "both use all of it"
    );
    // On the smaller storage, less than the 4,096 MB of the suite is used.
    let vmware4 = || preset("vmware4");
    let comparison = compare(
        &on_storage(vmware4(), ram, 978_010.0),
        &on_storage(vmware4(), disk, 24_430.0),
    );
    assert_eq!(comparison.worse(90.0).count(), 4, "{comparison:?}");
    let parts = difference(&comparison, "part of the storage").unwrap();
    assert_eq!(
        parts,
        ("all of it".to_owned(), "0B to 4000000KiB".to_owned())
    );
}

#[test]
fn an_alignment_is_a_difference_and_not_another_workload() {
    let [any, aligned] =
        ["vmware4", "vmware4-aligned"].map(|name| on_storage(preset(name), 64 << 30, 1000.0));
    let comparison = compare(&any, &aligned);
    assert_eq!(comparison.judged(), 4, "{comparison:?}");
    let alignments = difference(&comparison, "alignment").unwrap();
    assert_eq!(alignments, ("block".to_owned(), "natural".to_owned()));
}

#[test]
fn cells_of_one_side_are_named() {
    let all = cells(3);
    let (a, b) = (
        rates(&all[..2], &[&[1.0, 1.0], &[1.0, 1.0]]),
        rates(&all[1..], &[&[1.0, 1.0], &[1.0, 1.0]]),
    );
    let comparison = compare(&a, &b);
    assert_eq!(
        (comparison.cells.len(), comparison.only_a, comparison.only_b),
        (1, vec!["cell-0".to_owned()], vec!["cell-2".to_owned()])
    );
}

#[test]
fn what_differs_around_the_measurement_is_told() {
    let cells = cells(1);
    let facts = |mtu: &str, more: Option<&str>| {
        let mut facts = Facts::default();
        facts.add(Group::Client, "kernel", "6.12");
        facts.add(Group::Network, "MTU", mtu);
        if let Some(value) = more {
            facts.add(Group::Negotiated, "DataDigest", value);
        }
        Record {
            environment: facts,
            ..rates(&cells, &[&[1.0, 1.0]])
        }
    };
    let differences = compare(&facts("1500", None), &facts("9000", Some("CRC32C"))).environment;
    let told: Vec<_> = differences
        .iter()
        .map(|one| (one.name.as_str(), one.a.as_deref(), one.b.as_deref()))
        .collect();
    assert_eq!(
        told,
        [
            ("MTU", Some("1500"), Some("9000")),
            ("DataDigest", None, Some("CRC32C"))
        ]
    );
}

#[test]
fn a_comparison_has_a_form_for_programs() {
    let cells = cells(1);
    let (a, b) = (
        rates(&cells, &[&[1000.0, 1010.0]]),
        rates(&cells, &[&[500.0, 505.0]]),
    );
    let json = serde_json::to_value(compare(&a, &b)).unwrap();
    let cell = &json["cells"][0];
    assert_eq!(cell["judgement"]["is"], "worse");
    assert_eq!(cell["figure"], "iops");
    assert_eq!(cell["judgement"]["change"]["basis"], "runs");
    assert!((cell["judgement"]["change"]["percent"].as_f64().unwrap() + 50.0).abs() < 1e-9);
}
