//! Records as from a benchmark, for tests of reports. They are deterministic, contain everything that a
//! report can draw, and were not measured.

use bench::plan::{Cell, Order, Pace, Percent, Role, Rule, Step, Stop, Suite, Workload};
use bench::record::{
    CellRun, ClientRun, Cpu, Ended, FORMAT, Facts, Flow, Group, Histogram, Limit, Record, Run,
    Sample, ServerCpu, Subject,
};
use bench::suite::wan::{self, WanPlan};
use model::link::Link;
use model::{Load, Path, predict};
use testkit::Random;

/// The properties of the simulated storage: the time of a request, the maximum byte rate, and the maximum
/// request rate.
const SERVICE_S: f64 = 75e-6;
const BYTES_PER_S: f64 = 1.12e9;
const IOPS: f64 = 180_000.0;

/// Returns a record of block sizes from 512 B to 8 MiB in both directions, with three rounds, on a link of 10
/// Gbit/s.
pub(crate) fn sweep() -> Record {
    sizes_at(4)
}

/// Returns the same record with one outstanding request and sequential writes, as in document 001's ATTO
/// pattern.
pub(crate) fn atto() -> Record {
    let mut record = sizes_at(1);
    for step in &mut record.suite.steps {
        let Step::Measure { cells, .. } = step else {
            continue;
        };
        cells
            .iter_mut()
            .for_each(|cell| cell.roles[0].workload.accesses[0].random = Percent::NONE);
    }
    record
}

fn sizes_at(depth: u32) -> Record {
    let sizes = || (9..=23).map(|power| 1_u32 << power);
    let reads = sizes().map(|size| one(&format!("read-{size}"), "read", size, depth, Percent::ALL));
    let writes = sizes().map(|size| {
        one(
            &format!("write-{size}"),
            "write",
            size,
            depth,
            Percent::NONE,
        )
    });
    let interleaved = Order::Interleaved {
        repeats_min: 3,
        repeats_max: 5,
    };
    let suite = suite(
        "atto",
        "ATTO: 512 B to 8 MiB",
        interleaved,
        reads.chain(writes).collect(),
    );
    let mut record = measured(suite, 3, 2.0);
    let points = |factor: f64| {
        sizes()
            .map(|size| (size, 1.25e9 * factor * goodput(size)))
            .collect()
    };
    for (direction, factor) in [("read", 0.949), ("write", 0.949)] {
        record.limits.push(Limit {
            name: "10 Gbit/s Ethernet, MTU 1500".to_owned(),
            direction: direction.to_owned(),
            depth: None,
            points: points(factor),
        });
    }
    record
}

/// Returns a record of random reads of 4 KiB and 64 KiB, with depths from 1 to 256.
pub(crate) fn depths() -> Record {
    let depths = [1, 2, 4, 8, 16, 32, 64, 128, 256];
    let cells =
        [(4096, "4 KiB random read"), (65_536, "64 KiB random read")].map(|(size, series)| {
            depths.map(|depth| {
                one(
                    &format!("{series}, depth {depth}"),
                    series,
                    size,
                    depth,
                    Percent::ALL,
                )
            })
        });
    let order = Order::Interleaved {
        repeats_min: 3,
        repeats_max: 3,
    };
    measured(
        suite("depth", "Latency against depth", order, cells.concat()),
        3,
        5.0,
    )
}

/// Returns a record of one, two and three readers, and of a mix of roles.
pub(crate) fn clients() -> Record {
    let readers = |count: u16| {
        let role = |n| Role::new(format!("VM0{}", n + 1), n, reading(32_768, 8));
        let roles = (0..count).map(role).collect();
        Cell::new(format!("{count} readers"), "readers", roles)
    };
    let mut mixed = readers(3);
    mixed.name = "mixed roles".to_owned();
    mixed.series = "mixed roles".to_owned();
    mixed.roles[1].workload = Workload::simple(
        8192,
        8,
        Percent::new(65).expect("a share"),
        Percent::new(60).expect("a share"),
    );
    let cells = vec![readers(1), readers(2), readers(3), mixed];
    measured(
        suite(
            "clients",
            "One, two and three initiators",
            Order::Once,
            cells,
        ),
        1,
        20.0,
    )
}

/// Returns a record of rates from low to too high, on storage that stalls for a second in the middle.
pub(crate) fn open_loop() -> Record {
    let cell = |per_second: f64| {
        let mut workload = reading(4096, 64);
        workload.pace = Pace::Poisson { per_second };
        Cell::new(
            format!("rate-{per_second}"),
            "poisson",
            vec![Role::new("client", 0, workload)],
        )
    };
    let cells = [1e3, 5e3, 20e3, 50e3, 80e3, 120e3].map(cell).to_vec();
    let mut record = measured(
        suite("open", "Open loop, Poisson", Order::Once, cells),
        1,
        10.0,
    );
    for run in record.runs.iter_mut().map(|run| &mut run.clients[0].run) {
        let stalled = Histogram(
            run.reads
                .service
                .0
                .iter()
                .map(|(ns, n)| (ns + 2_000, *n))
                .collect(),
        );
        let late = run.reads.ios / 10;
        run.reads.response = stalled.merged(&Histogram(vec![
            (500_000_000, late),
            (990_000_000, late / 50),
        ]));
        run.reads.service = run
            .reads
            .service
            .merged(&Histogram(vec![(1_000_000_000, 64)]));
        run.backlog_max = late;
        run.samples[40].reads = 0;
        run.samples[40].read_bytes = 0;
        run.samples[40].p99_us = 0.0;
    }
    record
}

/// Returns a record of SNIA's matrix: seven mixes with eight lengths, in rounds until the results are steady.
/// It is large, as such records are.
pub(crate) fn pts() -> Record {
    let mut cells = Vec::new();
    for read in [100, 95, 65, 50, 35, 5, 0] {
        for size in [1_048_576, 131_072, 65_536, 32_768, 16_384, 8192, 4096, 512] {
            let series = format!("{read}/{}", 100 - read);
            let name = format!("{series} {size}");
            cells.push(one(
                &name,
                &series,
                size,
                32,
                Percent::new(read).expect("a share"),
            ));
        }
    }
    let order = Order::SteadyRounds {
        tracked: "0/100 4096".to_owned(),
        rounds_max: 25,
    };
    let mut record = measured(suite("pts", "SNIA PTS: IOPS", order, cells), 12, 60.0);
    for run in &mut record.runs {
        // Fresh storage writes faster at first.
        let faster = 1.0 + 1.4 * (-f64::from(run.round) / 2.0).exp();
        let run = &mut run.clients[0].run;
        run.writes.ios = (run.writes.ios as f64 * faster) as u64;
        run.writes.bytes = (run.writes.bytes as f64 * faster) as u64;
    }
    record
}

/// Returns a record of document 002's matrix in a lab with 160 Mbit/s and ends of average quality. Distance
/// and long requests reduce the rate.
pub(crate) fn wan() -> Record {
    let plan = WanPlan {
        link_bits_per_s: 160e6,
        congestion: "cubic".to_owned(),
        quick: false,
    };
    let mut record = measured(wan::suite(&plan), 1, 2.0);
    record.subject.place = "lab".to_owned();
    let cells: Vec<Cell> = record.suite.cells().cloned().collect();
    let mut noise = Noise(Random::new(0x2545_f491));
    for (run, cell) in record.runs.iter_mut().zip(&cells) {
        let Role {
            sessions, workload, ..
        } = &cell.roles[0];
        let iops = across(cell) / workload.block_bytes_mean();
        // The queue depth applies to each session.
        let workload = Workload {
            depth: workload.depth * u32::from(*sessions),
            ..workload.clone()
        };
        run.clients[0].run = flow_of(&workload, iops, 2.0, &mut noise);
        run.ended = Ended::Time;
    }
    record
}

/// Returns the throughput of a cell with a setting, in bytes per second.
fn across(cell: &Cell) -> f64 {
    let setting = cell.setting.as_deref().expect("a way");
    let workload = &cell.roles[0].workload;
    let link = Link {
        timestamps: true,
        ..Link::ethernet(setting.link_bits_per_s, setting.mtu)
    };
    let payload_per_s = link.payload_per_s();
    let kept = if setting.loss > 0.0 && setting.congestion != "bbr" {
        60e3
    } else {
        f64::INFINITY
    };
    let path = Path {
        payload_per_s: Some(payload_per_s),
        exchange_s: 60e-6,
        command_s: 150e-6,
        copy_per_s: Some(0.9 * payload_per_s),
        exchanges_per_s: Some(30_000.0),
        window_bytes: setting
            .tcp_window_bytes
            .map(|bytes| (0.7 * f64::from(bytes)).min(kept)),
        writes_under_way_bytes: Some(800e3),
        connections: setting.connections,
        commands_at_once: setting.command_window.map(f64::from),
        ..Path::of_round_trip(setting.rtt_ms / 1e3)
    };
    let load = Load {
        direction: setting.way.direction(),
        block_bytes: workload.block_bytes_max(),
        depth: workload.depth,
        sessions: setting.sessions,
        random: false,
        durable: false,
    };
    match setting.way.keys() {
        Some(keys) => predict(&path, &keys, &load).bytes_per_s,
        None => path.tcp_per_s(1),
    }
}

/// Returns a record of an interrupted sweep, with some failures and with malicious names.
pub(crate) fn partial() -> Record {
    let mut record = sweep();
    let evil = "<script>alert(1)</script>\"'&\u{202e}\u{1b}[2J|`=1+1";
    record.ended = None;
    record.runs.truncate(40);
    record.runs[39].ended = Ended::Interrupted;
    record.runs[3].clients[0].run.errors = 17;
    record.runs[3].clients[0].run.first_failure = Some(format!("the device said {evil}"));
    record.runs[5].clients[0].run.mismatches = 2;
    record.subject.place = format!("iscsi://10.0.0.7/iqn.2003-01.org.example:{evil}/0");
    record.subject.product = Some(evil.to_owned());
    record.environment.add(Group::Storage, "vendor", evil);
    record.notes.push(format!("the server {evil} went away"));
    record.command.push(evil.to_owned());
    record.suite.title = evil.to_owned();
    let long = "x".repeat(300);
    record
        .environment
        .add(Group::Storage, long.clone(), long.clone());
    record.subject.place.push_str(&long);
    record
}

/// Returns a record without runs.
pub(crate) fn empty() -> Record {
    let mut record = measured(suite("empty", "Nothing", Order::Once, Vec::new()), 0, 1.0);
    record.environment = Facts::default();
    record
}

fn suite(name: &str, title: &str, order: Order, cells: Vec<Cell>) -> Suite {
    let stop = Stop {
        warm_up_s: 1.0,
        min_s: 2.0,
        max_s: 60.0,
        rule: Rule::Confidence { percent: 2.0 },
    };
    Suite {
        name: name.to_owned(),
        title: title.to_owned(),
        about: "A suite that was made up so that reports can be looked at.".to_owned(),
        document: Some("001".to_owned()),
        assumed: vec!["the depth; the source does not say it".to_owned()],
        steps: vec![Step::Measure { stop, order, cells }],
    }
}

fn one(name: &str, series: &str, size: u32, depth: u32, read: Percent) -> Cell {
    let random = if read == Percent::ALL && series == "read" {
        Percent::NONE
    } else {
        Percent::ALL
    };
    let role = Role::new("client", 0, Workload::simple(size, depth, read, random));
    Cell::new(name, series, vec![role])
}

fn reading(size: u32, depth: u32) -> Workload {
    Workload::simple(size, depth, Percent::ALL, Percent::ALL)
}

/// Returns the share of a link's rate that remains for data; short requests consist mostly of headers.
fn goodput(size: u32) -> f64 {
    f64::from(size) / (f64::from(size) + 96.0)
}

fn measured(suite: Suite, rounds: u32, seconds: f64) -> Record {
    let mut noise = Noise(Random::new(0x9e37_79b9));
    let cells: Vec<Cell> = suite.cells().cloned().collect();
    let mut runs = Vec::new();
    for round in 0..rounds {
        for cell in &cells {
            let begun_s = runs.len() as f64 * (seconds + 1.0);
            runs.push(run(cell, round, begun_s, seconds, &mut noise));
        }
    }
    Record {
        format: FORMAT,
        version: "0.1.0".to_owned(),
        command: [
            "linerate",
            "bench",
            "iscsi://10.0.0.7/iqn.2003-01.org.example:disk1/0?connections=2",
        ]
        .map(str::to_owned)
        .to_vec(),
        begun: "2026-11-21T15:24:07Z".to_owned(),
        ended: Some("2026-11-21T15:31:19Z".to_owned()),
        subject: Subject {
            place: "iscsi://10.0.0.7/iqn.2003-01.org.example:disk1/0".to_owned(),
            kind: "iscsi".to_owned(),
            bytes: 100 << 30,
            block_bytes: 512,
            product: Some("EXAMPLE FastDisk 3000".to_owned()),
            identity: None,
        },
        environment: facts(),
        suite,
        runs,
        limits: Vec::new(),
        notes: Vec::new(),
    }
}

fn facts() -> Facts {
    let mut facts = Facts::default();
    facts.add(Group::Negotiated, "InitialR2T", "Yes");
    facts.0[0].better =
        Some("No: each write waits for a round trip before its data may go".to_owned());
    facts.add(Group::Negotiated, "FirstBurstLength", "262144");
    facts.add(Group::Negotiated, "MaxBurstLength", "16776192");
    facts.add(Group::Negotiated, "DataDigest", "None");
    facts.add(
        Group::Network,
        "interface",
        "enp1s0f0, 10 Gbit/s, full duplex",
    );
    facts.add(Group::Network, "MTU", "1500");
    facts.0[5].better = Some("9000: fewer packets, a few percent more payload".to_owned());
    facts.add(Group::Network, "round trip", "52 µs");
    facts.add(Group::Network, "congestion control", "cubic");
    facts.add(Group::Storage, "write cache", "enabled");
    facts.add(Group::Storage, "capacity", "100 GiB, blocks of 512 B");
    facts.add(Group::Client, "kernel", "Linux 6.12.9");
    facts.add(Group::Client, "CPU", "Example Xeon 2.4 GHz, 8 CPUs");
    facts.add(Group::Tool, "linerate", "0.1.0, release, rustc 1.95");
    facts
}

fn run(cell: &Cell, round: u32, begun_s: f64, seconds: f64, noise: &mut Noise) -> CellRun {
    let share = 1.0 / cell.roles.len() as f64;
    let clients: Vec<ClientRun> = cell
        .roles
        .iter()
        .enumerate()
        .map(|(n, role)| client(role, n, share, seconds, noise))
        .collect();
    let cpu = clients.iter().map(|client| client.cpu.seconds).sum::<f64>();
    CellRun {
        cell: cell.name.clone(),
        round,
        begun_s,
        ended: Ended::Confidence,
        clients,
        server_cpu: Some(ServerCpu {
            of: "linerate (process 4711)".to_owned(),
            seconds: cpu * 1.3,
            busiest_thread_s: None,
            machine: None,
        }),
    }
}

fn client(role: &Role, number: usize, share: f64, seconds: f64, noise: &mut Noise) -> ClientRun {
    let run = flow(&role.workload, share, seconds, noise);
    let cpu_s = (run.ios() as f64 * 2.2e-6 + run.bytes() as f64 * 1.5e-10).min(seconds * 0.97);
    ClientRun {
        role: role.name.clone(),
        client: format!("client {}", number + 1),
        run,
        cpu: Cpu {
            seconds: cpu_s,
            busiest_thread_s: cpu_s,
            looked_in_vain_s: 0.0,
            machine_s: (number == 0).then_some(cpu_s * 1.4),
            cpus: 8,
        },
        late_us: 0.0,
        late_error_us: 0.0,
        sessions: Vec::new(),
    }
}

fn flow(workload: &Workload, share: f64, seconds: f64, noise: &mut Noise) -> Run {
    let size = workload.block_bytes_mean();
    let depth = f64::from(workload.depth);
    let possible = (depth / (SERVICE_S + size / BYTES_PER_S))
        .min(BYTES_PER_S / size * share)
        .min(IOPS * share);
    flow_of(workload, possible, seconds, noise)
}

/// Returns the requests of storage with this maximum rate.
fn flow_of(workload: &Workload, possible: f64, seconds: f64, noise: &mut Noise) -> Run {
    let size = workload.block_bytes_mean();
    let depth = f64::from(workload.depth);
    let asked = workload.pace.per_second().unwrap_or(f64::MAX);
    let iops = possible.min(asked) * noise.around_one(0.02);
    let mean_s = if asked < possible {
        SERVICE_S
    } else {
        depth / iops
    };
    let reads = f64::from(workload.accesses[0].read.get()) / 100.0;
    let histogram = |count: f64| lognormal(mean_s * 1e9, count as u64);
    let direction = |part: f64| {
        let ios = (iops * seconds * part) as u64;
        let service = if ios == 0 {
            Histogram::default()
        } else {
            histogram(ios as f64)
        };
        Flow {
            ios: service.count(),
            bytes: service.count() * size as u64,
            service,
            response: Histogram::default(),
        }
    };
    let (reads_flow, writes_flow) = (direction(reads), direction(1.0 - reads));
    let interval = 0.1;
    let samples = (1..=(seconds / interval) as u32).map(|n| {
        let iops = iops * noise.around_one(0.05);
        let counts =
            [iops * interval * reads, iops * interval * (1.0 - reads)].map(|count| count as u64);
        Sample {
            at_s: f64::from(n) * interval,
            seconds: interval,
            reads: counts[0],
            writes: counts[1],
            read_bytes: counts[0] * size as u64,
            written_bytes: counts[1] * size as u64,
            p50_us: mean_s * 0.9e6,
            p99_us: mean_s * 2.6e6 * noise.around_one(0.2),
            max_us: mean_s * 6e6,
            under_way: iops * mean_s,
        }
    });
    Run {
        seconds,
        under_way_mean: iops * mean_s,
        reads: reads_flow,
        writes: writes_flow,
        backlog_max: 0,
        errors: 0,
        mismatches: 0,
        first_failure: None,
        samples: samples.collect(),
    }
}

/// Returns a histogram of this number of requests with this mean latency and a typical long tail.
fn lognormal(mean_ns: f64, count: u64) -> Histogram {
    const SIGMA: f64 = 0.35;
    let mut bins: Vec<(u64, u64)> = Vec::new();
    let mut left = count;
    // Use quantiles at steps of a fraction of a nine: coarse at first, and a single request at the end.
    for step in 0..160_i32 {
        let share_above = 10_f64.powf(-f64::from(step + 1) / 20.0);
        let above = ((count as f64) * share_above) as u64;
        let here = left.saturating_sub(above);
        if here > 0 {
            let z = normal_quantile_above(share_above * 1.06);
            let ns = mean_ns * (SIGMA * z - SIGMA * SIGMA / 2.0).exp();
            bins.push((ns.max(1.0) as u64, here));
            left -= here;
        }
    }
    bins.extend((left > 0).then_some((mean_ns as u64 * 9, left)));
    Histogram::default().merged(&Histogram(bins))
}

/// Returns the number of standard deviations above the mean that leaves this small share above it, with an
/// error below a hundredth (Abramowitz and Stegun 26.2.23).
fn normal_quantile_above(share: f64) -> f64 {
    let share = share.clamp(1e-12, 1.0 - 1e-12);
    if share > 0.5 {
        return -normal_quantile_above(1.0 - share);
    }
    let t = (-2.0 * share.ln()).sqrt();
    t - (2.515_517 + 0.802_853 * t + 0.010_328 * t * t)
        / (1.0 + 1.432_788 * t + 0.189_269 * t * t + 0.001_308 * t * t * t)
}

/// Pseudo-random numbers that are the same in every test run.
struct Noise(Random);

impl Noise {
    fn around_one(&mut self, spread: f64) -> f64 {
        1.0 + spread * (self.0.fraction() * 2.0 - 1.0)
    }
}
