//! Tests of the exports for other programs: tables, Iometer's result file, and fio's JSON.

use bench::plan::{Distribution, Pace, Percent, Step, Workload};
use serde_json::Value;

use crate::{all, records, report};

/// Parses the cells of a line of CSV, according to RFC 4180.
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            letter => cells.last_mut().expect("a cell").push(letter),
        }
    }
    cells
}

fn column(table: &str, row: usize, name: &str) -> String {
    let mut lines = table.lines();
    let at = cells(lines.next().expect("it is there"))
        .iter()
        .position(|title| title == name)
        .expect("a column");
    cells(lines.nth(row).expect("it is there"))[at].clone()
}

#[test]
fn every_line_of_a_table_has_all_columns() {
    for record in all() {
        for table in [report(&record).cells_csv(), report(&record).samples_csv()] {
            let columns = cells(table.lines().next().expect("it is there")).len();
            assert!(
                table.lines().all(|line| cells(line).len() == columns),
                "{}",
                record.suite.name
            );
        }
    }
}

#[test]
fn the_table_of_samples_has_every_sample() {
    let record = records::clients();
    let table = report(&record).samples_csv();
    let samples = record
        .runs
        .iter()
        .flat_map(|run| &run.clients)
        .map(|client| client.run.samples.len());
    assert_eq!(table.lines().count() - 1, samples.sum::<usize>());
    let first = &record.runs[0].clients[0].run.samples[0];
    assert_eq!(
        column(&table, 0, "read_bytes"),
        first.read_bytes.to_string()
    );
}

#[test]
fn iometers_lines_have_iometers_columns() {
    let record = records::clients();
    let file = report(&record).iometer_csv();
    let header = file
        .lines()
        .find(|line| line.starts_with("'Target Type"))
        .expect("it is there");
    // Each line has 59 columns of results, and then 21 latency bins.
    assert_eq!(cells(header).len(), 80);
    let results: Vec<_> = file
        .lines()
        .filter(|line| {
            ["ALL,", "MANAGER,", "WORKER,"]
                .iter()
                .any(|kind| line.starts_with(kind))
        })
        .map(cells)
        .collect();
    // Each run has one line for everything and, for each client, one line as a manager and one as a worker.
    assert_eq!(
        results.len(),
        record
            .runs
            .iter()
            .map(|run| 1 + 2 * run.clients.len())
            .sum::<usize>()
    );
    for line in &results {
        assert_eq!(line.len(), 80, "{line:?}");
        for title in [
            "IOps",
            "MBps (Decimal)",
            "Average Response Time",
            "Errors",
            "Queue Depth",
        ] {
            let at = cells(header)
                .iter()
                .position(|known| known == title)
                .expect("it is there");
            assert!(line[at].parse::<f64>().is_ok(), "{title}: {}", line[at]);
        }
    }
}

#[test]
fn iometers_numbers_are_ours() {
    let record = records::clients();
    let file = report(&record).iometer_csv();
    let header = file
        .lines()
        .find(|line| line.starts_with("'Target Type"))
        .expect("it is there");
    let line = file
        .lines()
        .filter(|line| line.starts_with("ALL,"))
        .nth(2)
        .expect("it is there");
    let table = format!("{header}\n{line}\n");
    let number = |name: &str| column(&table, 0, name).parse::<f64>().expect("it is there");
    let run = &record.runs[2];
    assert!((number("IOps") - run.iops()).abs() < 0.001);
    assert!((number("MiBps (Binary)") * 1_048_576.0 / run.bytes_per_s() - 1.0).abs() < 1e-6);
    assert_eq!(number("# Workers"), 3.0);
    let requests: f64 = cells(line)[59..]
        .iter()
        .map(|bin| bin.parse::<f64>().expect("it is there"))
        .sum();
    assert_eq!(
        requests,
        run.clients
            .iter()
            .map(|client| client.run.ios())
            .sum::<u64>() as f64
    );
}

#[test]
fn fios_jobs_have_what_fio_plot_reads() {
    let record = records::depths();
    let file: Value = serde_json::from_str(&report(&record).fio_json()).expect("JSON");
    let jobs = file["jobs"].as_array().expect("jobs");
    assert_eq!(jobs.len(), 18);
    for job in jobs {
        // These are the values that fio_plot's jsonimport.py reads from each job, with their types.
        for option in ["iodepth", "numjobs"] {
            let text = job["job options"][option].as_str().expect("a string");
            assert!(text.parse::<u32>().is_ok(), "{option}: {text}");
        }
        for option in ["bs", "rw"] {
            assert!(job["job options"][option].is_string(), "{option}");
        }
        for number in ["bw", "iops", "iops_stddev"] {
            assert!(job["read"][number].is_number(), "{number}");
        }
        assert!(
            job["read"]["lat_ns"]["mean"].is_number()
                && job["read"]["lat_ns"]["stddev"].is_number()
        );
        assert!(job["usr_cpu"].is_number() && job["sys_cpu"].is_number());
        let sum = |unit: &str| {
            job[unit]
                .as_object()
                .expect("it is there")
                .values()
                .filter_map(Value::as_f64)
                .sum::<f64>()
        };
        let all = ["latency_ns", "latency_us", "latency_ms"]
            .map(sum)
            .iter()
            .sum::<f64>();
        assert!((all - 100.0).abs() < 0.01, "{all}");
    }
    assert!(file["fio version"].is_string());
}

#[test]
fn fios_bins_and_percentiles_are_those_of_the_record() {
    let record = records::depths();
    let file: Value = serde_json::from_str(&report(&record).fio_json()).expect("JSON");
    let (job, cell) = (
        &file["jobs"][4],
        record.suite.cells().nth(4).expect("it is there"),
    );
    let runs: Vec<_> = record
        .runs
        .iter()
        .filter(|run| run.cell == cell.name)
        .collect();
    let ios: u64 = runs.iter().map(|run| run.clients[0].run.ios()).sum();
    let bins = job["read"]["clat_ns"]["bins"].as_object().expect("bins");
    assert_eq!(bins.values().filter_map(Value::as_u64).sum::<u64>(), ios);
    assert_eq!(job["read"]["total_ios"], ios);
    let p99 = job["read"]["clat_ns"]["percentile"]["99.000000"]
        .as_u64()
        .expect("a percentile");
    assert!(bins.contains_key(&p99.to_string()));
    // fio_jsonplus_clat2csv expects bins in all three directions.
    assert!(job["trim"]["clat_ns"]["bins"].is_object());
}

#[test]
fn fios_options_make_the_same_workload_again() {
    let distributions = ["uniform", "zipf:0.99", "pareto:0.2", "hot:90/10"]
        .map(|text| text.parse::<Distribution>());
    for distribution in distributions {
        let distribution = distribution.expect("a distribution");
        let mut workload = Workload::simple(4096, 8, Percent::ALL, Percent::ALL);
        workload.distribution = distribution;
        workload.pace = Pace::Poisson { per_second: 1000.0 };
        let mut record = records::depths();
        let Step::Measure { cells, .. } = &mut record.suite.steps[0] else {
            panic!("no cells")
        };
        cells[0].roles[0].workload = workload.clone();
        let page = report(&record).fio_json();
        let file: Value = serde_json::from_str(&page).expect("JSON");
        let options = file["jobs"][0]["job options"].as_object().expect("options");
        let of_a_workload = [
            "rw",
            "bs",
            "iodepth",
            "percentage_random",
            "random_distribution",
            "rate_iops",
            "rate_process",
        ];
        let lines = of_a_workload
            .map(|name| format!("{name}={}\n", options[name].as_str().expect("a string")));
        let job = format!("[job]\nioengine=libaio\nsize=100%\n{}", lines.concat());
        let jobs = bench::fio_job::parse(&job, &[])
            .expect("a job")
            .suite("again", 1 << 20)
            .expect("a suite");
        let again = &jobs.cells().next().expect("a cell").roles[0].workload;
        assert_eq!(
            (again.kind(), again.pace),
            (workload.kind(), workload.pace),
            "{job}"
        );
    }
    let sequential: Value =
        serde_json::from_str(&report(&records::sweep()).fio_json()).expect("JSON");
    let options = &sequential["jobs"][0]["job options"];
    assert_eq!(
        (&options["rw"], &options["percentage_random"]),
        (&"read".into(), &"0".into())
    );
    assert!(options["random_distribution"].is_null() && options["rate_process"].is_null());
}

/// The names in a job and in its directions, as fio 3.33 wrote them with `--output-format=json+`. A parser
/// may depend on each name.
#[test]
fn fios_names_are_all_there() {
    let record = records::sweep();
    let file: Value = serde_json::from_str(&report(&record).fio_json()).expect("JSON");
    let job = &file["jobs"][0];
    let of_a_job = "jobname groupid error eta elapsed read write trim sync job_runtime usr_cpu sys_cpu ctx majf minf \
                    iodepth_level latency_ns latency_us latency_ms latency_depth latency_target \
                    latency_percentile latency_window";
    let of_a_direction = "io_bytes io_kbytes bw_bytes bw iops runtime total_ios short_ios drop_ios slat_ns clat_ns \
                          lat_ns bw_min bw_max bw_agg bw_mean bw_dev bw_samples iops_min iops_max iops_mean \
                          iops_stddev iops_samples";
    for name in of_a_job.split_whitespace() {
        assert!(!job[name].is_null(), "{name}");
    }
    for (direction, name) in ["read", "write", "trim"]
        .into_iter()
        .flat_map(|d| of_a_direction.split_whitespace().map(move |n| (d, n)))
    {
        assert!(!job[direction][name].is_null(), "{direction} {name}");
    }
    for name in ["min", "max", "mean", "stddev", "N"] {
        assert!(job["read"]["slat_ns"][name].is_number(), "{name}");
    }
}
