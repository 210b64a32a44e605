//! Records for tests and examples, as measured on an ideal machine: the latency of every request follows from
//! Little's law, and all samples are equal.

use crate::plan::{Cell, Order, Percent, Role, Step, Stop, Suite, Workload};
use crate::record::{
    CellRun, ClientRun, Cpu, Ended, FORMAT, Facts, Flow, Histogram, Record, Run, Sample, Subject,
};

/// The duration of each run.
pub const SECONDS: f64 = 10.0;
/// Number of samples in each run.
pub const SAMPLES: u32 = 20;

/// Creates a cell with one client that reads blocks of this length.
pub fn cell(name: &str, block_bytes: u32, depth: u32) -> Cell {
    clients(
        name,
        1,
        &Workload::simple(block_bytes, depth, Percent::ALL, Percent::NONE),
    )
}

/// Creates a cell with several clients that have the same workload.
pub fn clients(name: &str, count: u16, workload: &Workload) -> Cell {
    let role = |client| Role::new(format!("client {}", client + 1), client, workload.clone());
    Cell::new(name, "read", (0..count).map(role).collect())
}

/// Creates a step that measures these cells for [`SECONDS`].
pub fn measure(order: Order, cells: Vec<Cell>) -> Step {
    Step::Measure {
        stop: Stop::after(SECONDS),
        order,
        cells,
    }
}

/// Creates a suite of these steps.
pub fn suite(steps: Vec<Step>) -> Suite {
    let (name, title) = ("test".to_owned(), "Test".to_owned());
    Suite {
        name,
        title,
        about: String::new(),
        document: None,
        assumed: vec![],
        steps,
    }
}

/// Creates a record of these runs, in one step that repeats its cells.
pub fn record(cells: Vec<Cell>, runs: Vec<CellRun>) -> Record {
    let order = Order::Interleaved {
        repeats_min: 1,
        repeats_max: 1,
    };
    record_of(suite(vec![measure(order, cells)]), runs)
}

/// Creates a record of any suite.
pub fn record_of(suite: Suite, runs: Vec<CellRun>) -> Record {
    Record {
        format: FORMAT,
        version: "0.1.0".to_owned(),
        command: vec!["linerate".to_owned(), "bench".to_owned()],
        begun: "2026-01-01T00:00:00Z".to_owned(),
        ended: Some("2026-01-01T01:00:00Z".to_owned()),
        subject: Subject {
            place: "ram:1GiB".to_owned(),
            kind: "ram".to_owned(),
            bytes: 1 << 30,
            block_bytes: 512,
            product: None,
            identity: None,
        },
        environment: Facts::default(),
        suite,
        runs,
        limits: vec![],
        notes: vec![],
    }
}

/// Creates a run of a cell in which each client has the given rate.
pub fn run(cell: &Cell, round: u32, iops: &[f64]) -> CellRun {
    let clients = cell
        .roles
        .iter()
        .zip(iops)
        .map(|(role, iops)| client(role, *iops))
        .collect();
    CellRun {
        cell: cell.name.clone(),
        round,
        begun_s: f64::from(round) * SECONDS,
        ended: Ended::Time,
        clients,
        server_cpu: None,
    }
}

fn client(role: &Role, iops: f64) -> ClientRun {
    let block_bytes = u64::from(role.workload.block_bytes_max());
    let ios = (iops * SECONDS) as u64;
    let latency_ns = (1e9 * f64::from(role.workload.depth) / iops) as u64;
    let seconds = SECONDS / f64::from(SAMPLES);
    let sample = |number: u32| Sample {
        at_s: f64::from(number + 1) * seconds,
        seconds,
        reads: (iops * seconds) as u64,
        read_bytes: (iops * seconds) as u64 * block_bytes,
        p50_us: latency_ns as f64 / 1000.0,
        ..Sample::default()
    };
    let service = Histogram(vec![(latency_ns, ios)]);
    let run = Run {
        seconds: SECONDS,
        under_way_mean: f64::from(role.workload.depth),
        reads: Flow {
            ios,
            bytes: ios * block_bytes,
            service,
            response: Histogram::default(),
        },
        writes: Flow::default(),
        backlog_max: 0,
        errors: 0,
        mismatches: 0,
        first_failure: None,
        samples: (0..SAMPLES).map(sample).collect(),
    };
    let cpu = Cpu {
        seconds: 1.0,
        busiest_thread_s: 1.0,
        looked_in_vain_s: 0.0,
        machine_s: None,
        cpus: 4,
    };
    ClientRun {
        role: role.name.clone(),
        client: role.name.clone(),
        run,
        cpu,
        late_us: 0.0,
        late_error_us: 0.0,
        sessions: vec![],
    }
}
