use super::*;
use bench::plan::{Access, Order, Pace, Percent, Rule, Step, Stop, Workload};
use bench::record::{Ended, Histogram, ServerCpu, ServerMachine};
use bench::test_record::{SECONDS, cell, clients, measure, record, record_of, run, suite};
use published::Row;
use stats::{drained_mean, little};

fn summary_of(cell: Cell, runs: Vec<CellRun>) -> CellSummary {
    of(&record(vec![cell], runs)).remove(0)
}

/// Returns the flags of one run of a cell after a change.
fn flags_after(cell: &Cell, change: impl Fn(&mut CellRun)) -> Vec<Flag> {
    let rates: Vec<f64> = cell.roles.iter().map(|_| 1000.0).collect();
    let mut changed = run(cell, 0, &rates);
    change(&mut changed);
    summary_of(cell.clone(), vec![changed]).flags
}

#[test]
fn an_ideal_run_has_no_flags() {
    assert_eq!(flags_after(&cell("c", 4096, 8), |_| ()), []);
}

#[test]
fn a_cell_that_was_not_run_has_no_summary() {
    assert!(of(&record(vec![cell("c", 4096, 1)], vec![])).is_empty());
}

#[test]
fn the_median_of_the_runs_is_shown_with_its_interval() {
    let cell = cell("c", 4096, 1);
    let runs = [1000.0, 990.0, 400.0]
        .iter()
        .zip(0..)
        .map(|(rate, round)| run(&cell, round, &[*rate]))
        .collect();
    let summary = summary_of(cell, runs);
    assert_eq!((summary.runs, summary.iops.median), (3, 990.0));
    let interval = summary.iops.interval.unwrap();
    assert!(
        interval.contains(990.0) && interval.half() > 300.0,
        "{interval:?}"
    );
    assert_eq!(summary.bytes_per_s.median, 990.0 * 4096.0);
}

#[test]
fn no_rate_is_less_than_nothing() {
    let cell = cell("c", 4096, 1);
    let runs = [1000.0, 100.0]
        .iter()
        .zip(0..)
        .map(|(rate, round)| run(&cell, round, &[*rate]))
        .collect();
    let iops = summary_of(cell, runs).iops;
    assert_eq!(iops.interval.unwrap().low, 0.0);
    assert!(
        iops.percent().unwrap() > 1000.0,
        "the other side says how little is known: {iops:?}"
    );
}

#[test]
fn a_single_run_is_as_sure_as_its_samples() {
    let cell = cell("c", 4096, 1);
    let mut wobbling = run(&cell, 0, &[1000.0]);
    let samples = &mut wobbling.clients[0].run.samples;
    samples
        .iter_mut()
        .enumerate()
        .for_each(|(index, sample)| sample.reads = 500 + 10 * (index as u64 % 2));
    let iops = summary_of(cell.clone(), vec![wobbling.clone()]).iops;
    assert_eq!(iops.median, 1000.0);
    assert!(iops.percent().unwrap() > 0.1, "{iops:?}");
    wobbling.clients[0].run.samples.truncate(1);
    assert_eq!(summary_of(cell, vec![wobbling]).iops.interval, None);
}

#[test]
fn latencies_are_those_of_all_runs_and_directions_together() {
    let cell = cell("c", 4096, 1);
    let mut first = run(&cell, 0, &[1000.0]);
    first.clients[0].run.reads.service = Histogram(vec![(100_000, 980)]);
    first.clients[0].run.writes.service = Histogram(vec![(5_000_000, 20)]);
    let service = summary_of(cell, vec![first]).service;
    assert_eq!(
        (service.p50_us, service.p99_us, service.max_us),
        (100.0, 5000.0, 5000.0)
    );
    assert_eq!(service.mean_us, 198.0);
}

#[test]
fn cpu_time_is_told_for_each_request_and_as_document_003_does() {
    let cell = cell("c", 1 << 20, 1);
    let mut run = run(&cell, 0, &[1000.0]);
    run.clients[0].cpu.machine_s = Some(20.0);
    run.server_cpu = Some(ServerCpu {
        of: "target".into(),
        seconds: 5.0,
        busiest_thread_s: None,
        machine: None,
    });
    let summary = summary_of(cell, vec![run]);
    // 10,000 requests of 1 MiB took one second of CPU time.
    let client = summary.client_cpu.unwrap();
    assert_eq!((client.us_per_io, client.us_per_mib), (100.0, 100.0));
    assert_eq!(summary.server_cpu.unwrap().us_per_io, 500.0);
    // Both processes ran on a machine with four CPUs, for 10 s.
    assert_eq!(
        summary.cpu_load,
        CpuLoad {
            client: Some(2.5),
            server: Some(12.5),
            is_shared: true
        }
    );
    let load = summary.cpu_load;
    assert_eq!(
        [load.client, load.server].map(|load| summary.iops_per_percent(load)),
        [Some(400.0), Some(80.0)],
        "both ends divide by the percentage of all four CPUs"
    );
}

#[test]
fn machines_of_their_own_are_as_busy_as_they_were() {
    let cell = cell("c", 1 << 20, 1);
    let mut run = run(&cell, 0, &[1000.0]);
    run.clients[0].cpu.machine_s = Some(20.0);
    assert_eq!(
        cpu_load(&run),
        CpuLoad {
            client: Some(50.0),
            server: None,
            is_shared: false
        }
    );
    let machine = Some(ServerMachine {
        elapsed_s: 12.5,
        cpus: 2,
    });
    run.server_cpu = Some(ServerCpu {
        of: "san1".into(),
        seconds: 5.0,
        busiest_thread_s: None,
        machine,
    });
    assert_eq!(
        cpu_load(&run),
        CpuLoad {
            client: Some(50.0),
            server: Some(20.0),
            is_shared: false
        }
    );
    let summary = summary_of(cell, vec![run]);
    let load = summary.cpu_load;
    assert_eq!(
        [load.client, load.server].map(|load| summary.iops_per_percent(load)),
        [Some(20.0), Some(50.0)]
    );
}

#[test]
fn clients_are_held_against_one_that_is_alone() {
    let workload = || Workload::simple(32_768, 64, Percent::ALL, Percent::NONE);
    let (one, three) = (
        clients("one", 1, &workload()),
        clients("three", 3, &workload()),
    );
    let runs = vec![
        run(&one, 0, &[1761.9]),
        run(&three, 0, &[550.9, 557.6, 554.0]),
    ];
    let cells = of(&record(vec![one, three], runs));
    assert_eq!(cells[0].clients[0].of_single, None);
    let shares: Vec<f64> = cells[1]
        .clients
        .iter()
        .filter_map(|client| client.of_single)
        .collect();
    assert_eq!(shares.len(), 3);
    // In document 001, each of three clients reached a third of the rate of one, and all together 94 %.
    assert!(
        (shares.iter().sum::<f64>() - 0.9436).abs() < 1e-3,
        "{shares:?}"
    );
    assert!(cells[1].fairness.unwrap() > 0.9999);
    assert_eq!(cells[0].fairness, None);
}

#[test]
fn clients_with_different_work_are_neither_fair_nor_unfair() {
    let mut mixed = clients(
        "mixed",
        2,
        &Workload::simple(4096, 1, Percent::ALL, Percent::NONE),
    );
    mixed.roles[1].workload = Workload::simple(32_768, 8, Percent::NONE, Percent::ALL);
    let runs = vec![run(&mixed, 0, &[100.0, 50.0])];
    let summary = summary_of(mixed, runs);
    assert_eq!(
        (summary.fairness, summary.iops.median, summary.depth),
        (None, 150.0, 9)
    );
}

#[test]
fn reads_and_writes_of_a_mix_have_their_own_latencies() {
    let half = Percent::new(50).expect("a share");
    let mixed = clients("mixed", 1, &Workload::simple(4096, 1, half, Percent::NONE));
    let reads = run(&mixed, 0, &[1000.0]);
    assert_eq!(
        summary_of(mixed.clone(), vec![reads.clone()]).directions,
        None
    );
    let mut both = reads;
    // A read takes 1 ms, and a write 4 ms.
    both.clients[0].run.writes.service = Histogram(vec![(4_000_000, 10)]);
    let summary = summary_of(mixed, vec![both]);
    let [reads, writes] = summary.directions.expect("both directions");
    let close = |us: f64, expected: f64| (us / expected - 1.0).abs() < 0.01;
    assert!(close(reads.p50_us, 1000.0) && close(writes.p50_us, 4000.0));
    assert!(close(summary.service.max_us, 4000.0));
}

#[test]
fn a_run_that_was_cut_short_counts_only_if_there_is_no_other() {
    let cell = cell("c", 4096, 1);
    let short = CellRun {
        ended: Ended::Interrupted,
        ..run(&cell, 0, &[10.0])
    };
    let alone = summary_of(cell.clone(), vec![short.clone()]);
    assert_eq!(
        (alone.iops.median, alone.flags),
        (10.0, vec![Flag::Interrupted])
    );
    let again = summary_of(cell.clone(), vec![short, run(&cell, 0, &[1000.0])]);
    assert_eq!(
        (again.runs, again.iops.median, again.flags),
        (1, 1000.0, vec![])
    );
}

#[test]
fn wrong_data_is_said_first() {
    let flags = flags_after(&cell("c", 4096, 1), |run| {
        run.clients[0].run.errors = 3;
        run.clients[0].run.mismatches = 1;
    });
    assert_eq!(
        flags,
        [
            Flag::WrongData { mismatches: 1 },
            Flag::Failed { errors: 3 }
        ]
    );
}

#[test]
fn latencies_that_do_not_explain_the_depth_break_littles_law() {
    let cell = cell("c", 4096, 8);
    let flags = flags_after(&cell, |run| {
        let slow = &mut run.clients[0].run.reads.service.0[0];
        slow.0 /= 2;
    });
    assert!(
        matches!(flags[..], [Flag::Little { expected, measured }] if expected < 4.1 && measured == 8.0),
        "{flags:?}"
    );
}

#[test]
fn the_edges_of_a_short_run_do_not_break_littles_law() {
    // Requests take 2 s in a run of 10 s, so the requests at its start and end are missing on one side.
    let cell = cell("c", 4096, 64);
    let flags = flags_after(&cell, |run| {
        run.clients[0].run.reads.ios = 280;
        run.clients[0].run.reads.service = Histogram(vec![(2_000_000_000, 280)]);
    });
    assert_eq!(flags, []);
}

#[test]
fn a_client_that_cannot_keep_its_depth_is_told() {
    let slow = |run: &mut CellRun| {
        let run = &mut run.clients[0].run;
        run.under_way_mean = 2.0;
        run.reads.service.0[0].0 /= 4;
    };
    let flags = flags_after(&cell("c", 4096, 8), slow);
    assert_eq!(
        flags,
        [Flag::DepthNotReached {
            measured: 2.0,
            asked: 8
        }]
    );

    let mut pausing = cell("c", 4096, 8);
    pausing.roles[0].workload.accesses[0].delay_ms = 1;
    assert_eq!(flags_after(&pausing, slow), [], "it was told to pause");
}

#[test]
fn a_connection_that_drains_is_not_held_to_its_full_depth() {
    let mut draining = cell("c", 4096, 64);
    draining.roles[0].workload.drain_after = Some(100);
    let flags = flags_after(&draining, |run| {
        // The expected average number of outstanding requests is 64 - 64 * 63 / 200.
        run.clients[0].run.under_way_mean = 43.84;
        run.clients[0].run.reads.service.0[0].0 = 43_840_000;
    });
    assert_eq!(flags, []);
}

#[test]
fn a_thread_that_waits_awake_is_not_busy() {
    let flags = flags_after(&cell("c", 4096, 1), |run| {
        run.clients[0].cpu.busiest_thread_s = 0.99 * SECONDS;
        run.clients[0].cpu.looked_in_vain_s = 0.2 * SECONDS;
    });
    assert_eq!(flags, []);
}

#[test]
fn a_busy_thread_is_told() {
    let flags = flags_after(&cell("c", 4096, 1), |run| {
        run.clients[0].cpu.busiest_thread_s = 0.97 * SECONDS
    });
    assert!(
        matches!(flags[..], [Flag::ClientCpu { percent }] if (percent - 97.0).abs() < 1e-9),
        "{flags:?}"
    );
}

#[test]
fn a_machine_without_cpu_time_to_spare_is_told() {
    let flags = flags_after(&cell("c", 4096, 1), |run| {
        run.clients[0].cpu.machine_s = Some(3.9 * SECONDS)
    });
    assert!(
        matches!(flags[..], [Flag::MachineBusy { percent }] if (percent - 97.5).abs() < 1e-9),
        "{flags:?}"
    );
}

#[test]
fn an_open_loop_that_is_not_kept_is_told() {
    let mut open = cell("c", 4096, 1);
    open.roles[0].workload.pace = Pace::Constant { per_second: 1100.0 };
    assert_eq!(
        flags_after(&open, |_| ()),
        [Flag::Overload {
            asked: 1100.0,
            reached: 1000.0
        }]
    );
    // By chance, a Poisson process with an average of 10,300 requests may have only 10,000.
    open.roles[0].workload.pace = Pace::Poisson { per_second: 1030.0 };
    assert_eq!(flags_after(&open, |_| ()), []);
}

#[test]
fn an_open_loop_has_response_times() {
    let mut open = cell("c", 4096, 1);
    open.roles[0].workload.pace = Pace::Constant { per_second: 1000.0 };
    let mut run = run(&open, 0, &[1000.0]);
    run.clients[0].run.reads.response = Histogram(vec![(9_000_000, 10_000)]);
    assert_eq!(summary_of(open, vec![run]).response.unwrap().p50_us, 9000.0);
}

#[test]
fn a_rate_that_falls_is_told() {
    let flags = flags_after(&cell("c", 4096, 1), |run| {
        let samples = run.clients[0].run.samples.iter_mut();
        samples
            .enumerate()
            .for_each(|(index, sample)| sample.reads = 600 - 10 * index as u64);
    });
    assert!(
        matches!(flags[..], [Flag::Drifts { percent }] if (-29.0..-23.0).contains(&percent)),
        "{flags:?}"
    );
}

#[test]
fn a_rate_never_falls_by_more_than_all_of_it() {
    let flags = |first: u64, last: u64| {
        flags_after(&cell("c", 4096, 1), move |run| {
            let samples = &mut run.clients[0].run.samples;
            let quarter = samples.len() / 4;
            samples.iter_mut().enumerate().for_each(|(index, sample)| {
                sample.reads = if index < quarter { first } else { last } + index as u64 % 2;
            });
        })
    };
    let said = |first, last| {
        flags(first, last)
            .iter()
            .map(ToString::to_string)
            .collect::<String>()
    };
    let rate = "its value from the first quarter of a run to the last";
    assert_eq!(said(8000, 0), format!("The rate falls to 0.00 of {rate}"));
    assert_eq!(
        said(2000, 7720),
        format!("The rate grows to 3.86 times {rate}")
    );
}

#[test]
fn a_run_in_which_no_request_completed_is_told_and_has_no_latency() {
    let nothing = |run: &mut CellRun| {
        let run = &mut run.clients[0].run;
        run.reads = bench::record::Flow::default();
        run.samples.iter_mut().for_each(|sample| sample.reads = 0);
    };
    let cell = cell("c", 4096, 1);
    assert_eq!(flags_after(&cell, nothing), [Flag::NothingCompleted]);
    let mut run = run(&cell, 0, &[1000.0]);
    nothing(&mut run);
    let record = record(vec![cell.clone()], vec![run]);
    assert!(of(&record)[0].service.p50_us.is_nan());
    let beside = crate::measured::Beside::new(&record, None, false);
    let measured = crate::measured::Measured::of(&record.runs[0], &beside);
    let json: serde_json::Value = serde_json::from_str(&measured.json().unwrap()).unwrap();
    assert_eq!(json["latency_us"]["p50"], serde_json::Value::Null);
    assert_eq!(json["warnings"][0]["kind"], "nothing_completed");
    assert_eq!(
        json["warnings"].as_array().unwrap().len(),
        1,
        "there is no note"
    );
    let text = measured.text(&cell, &record, 100);
    assert!(
        text.contains("p50 -   p99 -") && text.contains("! No request completed"),
        "{text}"
    );
    let table = crate::Report::new(&record).terminal(100);
    assert!(
        table.contains("No request completed") && !table.contains("0.000 µs"),
        "{table}"
    );
}

#[test]
fn a_note_on_the_record_is_a_warning_for_programs() {
    let cell = cell("c", 4096, 1);
    let mut record = record(vec![cell.clone()], vec![run(&cell, 0, &[1000.0])]);
    let note = "90 % of the 1GiB examined have never been written";
    record.notes.push(note.to_owned());
    let beside = crate::measured::Beside::new(&record, None, false);
    let measured = crate::measured::Measured::of(&record.runs[0], &beside);
    let json: serde_json::Value = serde_json::from_str(&measured.json().unwrap()).unwrap();
    assert_eq!(
        json["warnings"],
        serde_json::json!([{ "kind": "note", "sentence": note }])
    );
    let text = measured.text(&cell, &record, 100);
    assert!(
        !text.contains(note),
        "a terminal has shown it before the run: {text}"
    );
}

#[test]
fn a_write_cache_that_fills_in_the_first_quarter_is_a_drift() {
    // In MB/s, the quarters are 45.5, 20.0, 19.8 and 19.9, as with a write cache of a real disk.
    let first = [120, 48, 20, 20, 20];
    let flags = flags_after(&cell("c", 4096, 1), move |run| {
        for (index, sample) in run.clients[0].run.samples.iter_mut().enumerate() {
            let rest = [200, 198, 199][(index / 5).saturating_sub(1)] + index as u64 % 2;
            sample.reads = first.get(index).map_or(rest, |rate| 10 * rate);
        }
    });
    assert!(
        matches!(flags[..], [Flag::Drifts { percent }] if (-58.0..-54.0).contains(&percent)),
        "{flags:?}"
    );
}

#[test]
fn a_rate_that_jumps_about_does_not_drift() {
    let flags = flags_after(&cell("c", 4096, 1), |run| {
        let samples = run.clients[0].run.samples.iter_mut();
        samples
            .enumerate()
            .for_each(|(index, sample)| sample.reads = [200, 900, 400, 700][index % 4]);
    });
    assert_eq!(flags, []);
}

#[test]
fn an_interval_wider_than_asked_for_is_told() {
    let mut cell = cell("c", 4096, 1);
    cell.stop = Some(Stop {
        warm_up_s: 0.0,
        min_s: 1.0,
        max_s: 10.0,
        rule: Rule::Confidence { percent: 2.0 },
    });
    let runs = |rates: [f64; 3]| {
        rates
            .iter()
            .zip(0..)
            .map(|(rate, round)| run(&cell, round, &[*rate]))
            .collect()
    };
    let wide = summary_of(cell.clone(), runs([1000.0, 1100.0, 900.0])).flags;
    assert!(
        matches!(wide[..], [Flag::NotConfident { percent }] if percent > 20.0),
        "{wide:?}"
    );
    assert_eq!(
        summary_of(cell.clone(), runs([1000.0, 1001.0, 999.0])).flags,
        []
    );
}

#[test]
fn the_last_five_rounds_are_the_result_of_rounds_that_become_steady() {
    let tracked = cell("tracked", 4096, 1);
    let order = Order::SteadyRounds {
        tracked: "tracked".into(),
        rounds_max: 25,
    };
    let rounds = |rates: &[f64]| {
        let runs = rates
            .iter()
            .zip(0..)
            .map(|(rate, round)| run(&tracked, round, &[*rate]))
            .collect();
        record_of(
            suite(vec![
                Step::Purge,
                measure(order.clone(), vec![tracked.clone()]),
            ]),
            runs,
        )
    };
    let settled = rounds(&[8000.0, 4000.0, 1010.0, 1000.0, 1000.0, 990.0, 1000.0]);
    let cells = of(&settled);
    assert_eq!(
        (cells[0].runs, cells[0].iops.median, &cells[0].flags),
        (5, 1000.0, &vec![])
    );
    let convergence = convergence(&settled);
    assert_eq!((convergence[0].step, convergence[0].iops.len()), (1, 7));
    assert_eq!(convergence[0].window.unwrap().first, 2);
    let moving = rounds(&[8000.0, 4000.0, 2000.0, 1000.0, 500.0]);
    assert_eq!(of(&moving)[0].flags, [Flag::NotSteady]);
    assert_eq!(of(&rounds(&[8000.0]))[0].flags, [Flag::NotSteady]);
}

#[test]
fn more_clients_follow_the_law_of_scalability() {
    let workload = || Workload::simple(4096, 4, Percent::ALL, Percent::NONE);
    let cells: Vec<Cell> = (1..=4)
        .map(|count| clients(&format!("{count}"), count, &workload()))
        .collect();
    let total = |n: f64| 1000.0 * n / (1.0 + 0.1 * (n - 1.0) + 0.05 * n * (n - 1.0));
    let runs = cells.iter().map(|cell| {
        let n = cell.roles.len() as f64;
        run(cell, 0, &vec![total(n) / n; cell.roles.len()])
    });
    let scaling = scaling(&of(&record(cells.clone(), runs.collect())));
    assert_eq!(
        scaling.len(),
        1,
        "depth is the same everywhere: {scaling:?}"
    );
    let law = scaling[0].law;
    assert_eq!(
        (scaling[0].over, scaling[0].points.len()),
        (Over::Clients, 4)
    );
    // Requests are counted in whole numbers, so the fit is not exact.
    assert!(
        (law.contention - 0.1).abs() < 0.01 && (law.coherency - 0.05).abs() < 0.01,
        "{law:?}"
    );
    assert!((law.peak().unwrap() - (0.9f64 / 0.05).sqrt()).abs() < 0.3);
}

#[test]
fn a_deeper_queue_is_a_curve_too() {
    let cells: Vec<Cell> = [1, 4, 16, 64]
        .map(|depth| cell(&format!("depth-{depth}"), 4096, depth))
        .to_vec();
    let runs = cells
        .iter()
        .zip([1000.0, 3000.0, 6000.0, 7000.0])
        .map(|(cell, rate)| run(cell, 0, &[rate]));
    let scaling = scaling(&of(&record(cells.clone(), runs.collect())));
    assert_eq!((scaling.len(), scaling[0].over), (1, Over::Depth));
    assert_eq!(
        scaling[0].cells,
        ["depth-1", "depth-4", "depth-16", "depth-64"]
    );
}

fn dpmeter(system: &str) -> Vec<(u32, f64)> {
    let rows = published::rows()
        .iter()
        .filter(|row| row.document == "000" && row.table == "Table 4");
    let points = rows.filter(|row| row.test.contains(system)).map(|row| {
        let block_bytes = row.block_bytes.expect("a length");
        (
            block_bytes,
            row.bytes_per_s().expect("a rate") / f64::from(block_bytes),
        )
    });
    points.collect()
}

/// In document 000, table 4, the rates of the RAM drive do not depend on the length, and those of the hard
/// drive do.
#[test]
fn dpmeter_on_a_ram_drive_measured_its_own_loop() {
    let flags = |system| {
        let cells: Vec<Cell> = dpmeter(system)
            .iter()
            .map(|(block_bytes, _)| cell(&format!("read-{block_bytes}"), *block_bytes, 1))
            .collect();
        let runs = cells
            .iter()
            .zip(dpmeter(system))
            .map(|(cell, (_, iops))| run(cell, 0, &[iops]))
            .collect();
        let summaries = of(&record(cells.clone(), runs));
        assert_eq!(summaries.len(), 8);
        summaries
            .iter()
            .filter(|summary| matches!(summary.flags[..], [Flag::LoopRate { .. }]))
            .count()
    };
    assert_eq!(flags("RAM drive"), 8);
    assert_eq!(flags("hard drive"), 0);
}

#[test]
fn equal_rates_of_small_requests_are_what_storage_is_like() {
    let small = [512, 1024, 2048, 4096, 8192].map(|length| (length, 10_000.0));
    assert_eq!(loop_rate(&small), None);
    let to_the_link = [
        (512, 10_000.0),
        (4096, 9_900.0),
        (65_536, 1_700.0),
        (1 << 20, 110.0),
    ];
    assert_eq!(loop_rate(&to_the_link), None);
    let then_falling = [
        (4096, 5000.0),
        (32_768, 4950.0),
        (262_144, 4900.0),
        (1 << 20, 2000.0),
    ];
    assert_eq!(loop_rate(&then_falling), Some(0..3));
    assert_eq!(loop_rate(&[]), None);
}

#[test]
fn a_rate_that_was_asked_for_is_no_loop_rate() {
    let paced = |block_bytes| {
        let mut cell = cell(&format!("read-{block_bytes}"), block_bytes, 8);
        cell.roles[0].workload.pace = Pace::Constant { per_second: 100.0 };
        cell
    };
    let cells: Vec<Cell> = [4096, 65_536, 1 << 20].map(paced).to_vec();
    let runs = cells.iter().map(|cell| run(cell, 0, &[100.0])).collect();
    let summaries = of(&record(cells, runs));
    assert!(
        summaries.iter().all(|summary| summary.flags.is_empty()),
        "{summaries:?}"
    );
}

/// Document 001 does not state the number of outstanding requests, but it follows from the rates and
/// latencies. It is the average of Iometer's 64 outstanding requests if the connection drains after every 500
/// transactions.
#[test]
fn littles_law_finds_the_depth_of_document_001() {
    let rows = || published::rows().iter().filter(|row| row.document == "001");
    let latency_of = |iops: &Row| {
        let same = |row: &&Row| {
            (&row.test, &row.table) == (&iops.test, &iops.table) && row.metric == "latency_avg"
        };
        rows().find(same)?.si
    };
    let under_way: Vec<f64> = rows()
        .filter(|row| row.metric == "iops")
        .filter_map(|row| Some(little(row.si?.value, latency_of(row)?.value)))
        .collect();
    assert_eq!(under_way.len(), 10);
    assert!(
        under_way.iter().all(|depth| (56.8..61.8).contains(depth)),
        "{under_way:?}"
    );
    assert!(
        under_way.iter().filter(|depth| **depth > 58.9).count() >= 9,
        "{under_way:?}"
    );
    let mean = under_way.iter().sum::<f64>() / 10.0;
    assert!(
        (mean - drained_mean(64, 500)).abs() < 1.0,
        "{mean} and {}",
        drained_mean(64, 500)
    );
}

#[test]
fn a_record_of_nonsense_is_summarized_without_panic() {
    let mut cell = cell("c", 0, u32::MAX);
    cell.roles[0].sessions = u16::MAX;
    let access: Access = cell.roles[0].workload.accesses[0].clone();
    cell.roles[0].workload.accesses.push(access);
    let mut wild = run(&cell, u32::MAX, &[1.0]);
    let run = &mut wild.clients[0].run;
    (run.seconds, run.under_way_mean) = (-1.0, f64::MAX);
    (run.reads.ios, run.writes.ios, run.errors) = (u64::MAX, u64::MAX, u64::MAX);
    run.reads.service = Histogram(vec![(u64::MAX, u64::MAX), (1, u64::MAX)]);
    run.samples
        .iter_mut()
        .for_each(|sample| (sample.reads, sample.writes) = (u64::MAX, u64::MAX));
    let mut none = wild.clone();
    (none.round, none.clients) = (0, vec![]);
    let summaries = of(&record(vec![cell], vec![wild, none]));
    assert_eq!(summaries.len(), 1);
    for flag in &summaries[0].flags {
        assert!(!flag.to_string().is_empty());
    }
    assert!(scaling(&summaries).is_empty());
}
