//! Iometer's result file, for programs that read it. It contains a section of results for each run: a line
//! for everything, one for each manager (our clients) and one for each worker (their roles).
//!
//! The columns and their order are the same as in Iometer 1.1 (`ManagerList::SaveResults`). Values without a
//! counterpart here are empty, as in Iometer's own lines if a column does not apply. These are the counts in
//! ticks of Iometer's timer, the split of CPU time into user, privileged, DPC and interrupt time, and the
//! network interface.

use super::csv::{line, text};
use bench::plan::{Access, Align, Cell, Role};
use bench::record::{CellRun, ClientRun, Histogram, Record, Run};

const COLUMNS: &str = "'Target Type,Target Name,Access Specification Name,# Managers,# Workers,# Disks,\
    IOps,Read IOps,Write IOps,MiBps (Binary),Read MiBps (Binary),Write MiBps (Binary),\
    MBps (Decimal),Read MBps (Decimal),Write MBps (Decimal),Transactions per Second,Connections per Second,\
    Average Response Time,Average Read Response Time,Average Write Response Time,Average Transaction Time,\
    Average Connection Time,Maximum Response Time,Maximum Read Response Time,Maximum Write Response Time,\
    Maximum Transaction Time,Maximum Connection Time,Errors,Read Errors,Write Errors,Bytes Read,Bytes Written,\
    Read I/Os,Write I/Os,Connections,Transactions per Connection,Total Raw Read Response Time,\
    Total Raw Write Response Time,Total Raw Transaction Time,Total Raw Connection Time,\
    Maximum Raw Read Response Time,Maximum Raw Write Response Time,Maximum Raw Transaction Time,\
    Maximum Raw Connection Time,Total Raw Run Time,Starting Sector,Maximum Size,Queue Depth,% CPU Utilization,\
    % User Time,% Privileged Time,% DPC Time,% Interrupt Time,Processor Speed,Interrupts per Second,\
    CPU Effectiveness,Packets/Second,Packet Errors,Segments Retransmitted/Second,0 to 50 uS,50 to 100 uS,\
    100 to 200 uS,200 to 500 uS,0.5 to 1 mS,1 to 2 mS,2 to 5 mS,5 to 10 mS,10 to 15 mS,15 to 20 mS,20 to 30 mS,\
    30 to 50 mS,50 to 100 mS,100 to 200 mS,200 to 500 mS,0.5 to 1 S,1 to 2 s,2 to 4.7 s,4.7 to 5 s,5 to 10 s, >= 10 s\n";

/// The upper ends of all latency bins except the last, in microseconds.
const BINS_US: [u64; 20] = [
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 20_000, 30_000, 50_000, 100_000,
    200_000, 500_000, 1_000_000, 2_000_000, 4_700_000, 5_000_000, 10_000_000,
];

/// Iometer's value for "differs, or does not apply" in a column of numbers.
const AMBIGUOUS: i32 = -1;

/// Returns the content of the file.
pub(super) fn results(record: &Record) -> String {
    let when = record.begun.replace('T', " ").replace('Z', "");
    let mut file = format!(
        "'Test Type,Test Description\n0,{}\n'Version\n1.1.0\n'Time Stamp\n{}\n",
        text(&record.suite.title),
        text(&when)
    );
    for run in &record.runs {
        let Some(cell) = record.suite.cells().find(|cell| cell.name == run.cell) else {
            continue;
        };
        file += &specifications(cell);
        file += "'Results\n";
        file += COLUMNS;
        file += &lines(cell, run);
        file += &format!("'Time Stamp\n{}\n", text(&when));
    }
    file
}

/// Describes the workloads of a cell in the form of Iometer's access specifications.
fn specifications(cell: &Cell) -> String {
    let mut text = "'Access specifications\n".to_owned();
    for role in &cell.roles {
        text += "'Access specification name,default assignment\n";
        text += &line([specification(cell, role), "0".to_owned()]);
        text += "'size,% of size,% reads,% random,delay,burst,align,reply\n";
        text.extend(role.workload.accesses.iter().map(access));
    }
    text + "'End access specifications\n"
}

fn access(access: &Access) -> String {
    let align = match access.align {
        Align::Natural => access.block_bytes,
        Align::Block => 0,
        Align::Bytes(bytes) => bytes,
    };
    let percents =
        [access.share, access.read, access.random].map(|percent| u32::from(percent.get()));
    let numbers = [access.block_bytes].into_iter().chain(percents);
    line(
        numbers
            .chain([access.delay_ms, access.burst, align, 0])
            .map(|number| number.to_string()),
    )
}

/// Returns the name of a specification. If a cell has one role, the cell is one specification; otherwise,
/// each role is one.
fn specification(cell: &Cell, role: &Role) -> String {
    if cell.roles.len() == 1 {
        text(&cell.name)
    } else {
        text(&format!("{}: {}", cell.name, role.name))
    }
}

fn lines(cell: &Cell, run: &CellRun) -> String {
    let parts: Vec<&ClientRun> = run.clients.iter().collect();
    let mut managers: Vec<&str> = parts.iter().map(|part| part.client.as_str()).collect();
    managers.dedup();
    let mut text = row(cell, ["ALL", "All"], managers.len(), &parts);
    for manager in &managers {
        let own: Vec<&ClientRun> = parts
            .iter()
            .copied()
            .filter(|part| part.client == *manager)
            .collect();
        text += &row(cell, ["MANAGER", manager], 1, &own);
        text.extend(
            own.iter()
                .map(|worker| row(cell, ["WORKER", &worker.role], 0, &[*worker])),
        );
    }
    text
}

fn row(cell: &Cell, name: [&str; 2], managers: usize, parts: &[&ClientRun]) -> String {
    let role = cell
        .roles
        .iter()
        .find(|role| parts.len() == 1 && role.name == parts[0].role);
    let role = role.or(cell.roles.first());
    let specification = role
        .map(|role| self::specification(cell, role))
        .unwrap_or_default();
    let managers = if managers == 0 {
        String::new()
    } else {
        managers.to_string()
    };
    let mut cells = vec![text(name[0]), text(name[1]), specification, managers];
    cells.extend([parts.len().to_string(), parts.len().to_string()]);
    cells.extend(measured(parts));
    let drained = role.and_then(|role| role.workload.drain_after);
    cells.push(drained.map_or_else(|| AMBIGUOUS.to_string(), |after| after.to_string()));
    cells.extend(std::iter::repeat_n(String::new(), 9)); // in ticks of Iometer's timer
    cells.extend(place(cell, role));
    cells.extend(cpu(parts));
    cells.extend(std::iter::repeat_n(String::new(), 3)); // of the network interface
    cells.extend(bins(parts).map(|count| count.to_string()));
    line(cells)
}

/// Returns the columns for rates, times, errors and counts, up to the number of connections.
fn measured(parts: &[&ClientRun]) -> Vec<String> {
    let sum = |of: &dyn Fn(&Run) -> f64| parts.iter().map(|part| of(&part.run)).sum::<f64>();
    let rate = |count: u64, run: &Run| {
        if run.seconds > 0.0 {
            count as f64 / run.seconds
        } else {
            0.0
        }
    };
    let iops = [
        sum(&|run| run.iops()),
        sum(&|run| rate(run.reads.ios, run)),
        sum(&|run| rate(run.writes.ios, run)),
    ];
    let bytes_per_s = [
        sum(&|run| run.bytes_per_s()),
        sum(&|run| rate(run.reads.bytes, run)),
        sum(&|run| rate(run.writes.bytes, run)),
    ];
    let reads = merged(parts, |run| &run.reads.service);
    let writes = merged(parts, |run| &run.writes.service);
    let all = reads.merged(&writes);
    let ms = [&all, &reads, &writes];
    let mean = ms.map(|histogram| histogram.mean_ns() / 1e6);
    let longest = ms.map(|histogram| histogram.max_ns() as f64 / 1e6);
    let whole = |number: f64| (number as u64).to_string();
    let mut cells: Vec<String> = iops.map(decimal).to_vec();
    cells.extend(bytes_per_s.map(|rate| decimal(rate / f64::from(1 << 20))));
    cells.extend(bytes_per_s.map(|rate| decimal(rate / 1e6)));
    cells.extend([iops[0], 0.0].map(decimal)); // transactions, connections
    cells.extend(mean.map(decimal));
    cells.extend([mean[0], 0.0].map(decimal));
    cells.extend(longest.map(decimal));
    cells.extend([longest[0], 0.0].map(decimal));
    // Failed requests are not counted by direction.
    cells.extend([
        whole(sum(&|run| run.errors as f64)),
        String::new(),
        String::new(),
    ]);
    cells.extend(
        [
            sum(&|run| run.reads.bytes as f64),
            sum(&|run| run.writes.bytes as f64),
        ]
        .map(whole),
    );
    cells.extend(
        [
            sum(&|run| run.reads.ios as f64),
            sum(&|run| run.writes.ios as f64),
        ]
        .map(whole),
    );
    cells.push("0".to_owned());
    cells
}

/// Returns the starting sector, the maximum size in sectors of 512 bytes (0 means no limit), and the queue
/// depth.
fn place(cell: &Cell, role: Option<&Role>) -> [String; 3] {
    let span = role.map(|role| role.workload.span).unwrap_or_default();
    let depth: u32 = cell
        .roles
        .iter()
        .map(|role| role.workload.depth.saturating_mul(role.sessions.into()))
        .max()
        .unwrap_or(0);
    [
        span.start_bytes / 512,
        span.bytes.unwrap_or(0) / 512,
        u64::from(depth),
    ]
    .map(|number| number.to_string())
}

/// Returns the CPU utilisation of the machine in percent of all its CPUs, and requests per second for each
/// percent, with the unknown columns between them.
fn cpu(parts: &[&ClientRun]) -> Vec<String> {
    let share = |part: &&ClientRun, used_s: f64| {
        let all = f64::from(part.cpu.cpus.max(1)) * part.run.seconds;
        if all > 0.0 { used_s / all * 100.0 } else { 0.0 }
    };
    // Only one client of each machine contains the machine's CPU time. The machines are averaged, as Iometer
    // averages managers.
    let machines: Vec<f64> = parts
        .iter()
        .filter_map(|part| Some(share(part, part.cpu.machine_s?)))
        .collect();
    let percent = match machines.len() {
        0 => parts.iter().map(|part| share(part, part.cpu.seconds)).sum(),
        count => machines.iter().sum::<f64>() / count as f64,
    };
    let iops: f64 = parts.iter().map(|part| part.run.iops()).sum();
    let effectiveness = if percent > 0.0 { iops / percent } else { 0.0 };
    let mut cells = vec![decimal(percent)];
    cells.extend(std::iter::repeat_n(String::new(), 6));
    cells.push(decimal(effectiveness));
    cells
}

/// Formats a number in Iometer's notation, which is never empty.
fn decimal(number: f64) -> String {
    format!("{:.6}", if number.is_finite() { number } else { 0.0 })
}

fn bins(parts: &[&ClientRun]) -> [u64; 21] {
    let all =
        merged(parts, |run| &run.reads.service).merged(&merged(parts, |run| &run.writes.service));
    let mut bins = [0_u64; 21];
    for (ns, times) in &all.0 {
        let bin = &mut bins[BINS_US.partition_point(|end| end * 1000 <= *ns)];
        *bin = bin.saturating_add(*times);
    }
    bins
}

fn merged(parts: &[&ClientRun], of: fn(&Run) -> &Histogram) -> Histogram {
    parts
        .iter()
        .fold(Histogram::default(), |all, part| all.merged(of(&part.run)))
}
