//! fio's `--output-format=json+`, for programs that read it: fio-plot, fio's own `fio_jsonplus_clat2csv`, and
//! many scripts. The file contains a job for each role of each cell, which combines all its runs.
//!
//! The structure and the units are the same as in fio 3. Values that a record does not contain are 0, as for
//! disabled measurements in fio. These are the submission latency (`slat_ns`; our latencies start with the
//! submission), context switches, page faults, and the split of the CPU time, which is completely in
//! `usr_cpu`. `clat_ns` is the service time. `lat_ns` is the response time in an open loop, and the service
//! time otherwise. The keys of `bins` are the same as in our histogram, with steps of 1/1000 instead of fio's
//! 1/128.

use serde_json::{Map, Value, json};

use bench::plan::{Cell, Pace, Percent, Role};
use bench::record::{Flow, Histogram, Record, Run, Sample};

/// fio's default list of percentiles, in its syntax.
const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];

/// Returns the content of the file.
pub(super) fn results(record: &Record) -> String {
    let jobs: Vec<Value> = record
        .suite
        .cells()
        .flat_map(|cell| cell.roles.iter().map(move |role| (cell, role)))
        .filter_map(|(cell, role)| job(record, cell, role))
        .collect();
    let seconds = record.begun.parse().map_or(0, jiff::Timestamp::as_second);
    let file = json!({
        "fio version": format!("linerate-{}", record.version),
        "timestamp": seconds,
        "timestamp_ms": seconds * 1000,
        "time": record.begun,
        "jobs": jobs,
    });
    format!("{file:#}\n")
}

fn job(record: &Record, cell: &Cell, role: &Role) -> Option<Value> {
    let of_cell = record
        .runs
        .iter()
        .filter(|run| run.cell == cell.name)
        .flat_map(|run| &run.clients);
    let parts: Vec<_> = of_cell.filter(|client| client.role == role.name).collect();
    let runs: Vec<&Run> = parts.iter().map(|client| &client.run).collect();
    let seconds: f64 = runs.iter().map(|run| run.seconds).sum();
    if seconds <= 0.0 {
        return None;
    }
    let cpu: f64 = parts.iter().map(|client| client.cpu.seconds).sum();
    let service = merged(&runs, |flow| &flow.service, true).merged(&merged(
        &runs,
        |flow| &flow.service,
        false,
    ));
    let depth = role.workload.depth.saturating_mul(role.sessions.into());
    let name = if cell.roles.len() == 1 {
        cell.name.clone()
    } else {
        format!("{} {}", cell.name, role.name)
    };
    Some(json!({
        "jobname": name,
        "groupid": 0,
        "error": 0,
        "eta": 0,
        "elapsed": seconds.ceil() as u64,
        "job options": options(record, &name, role),
        "read": direction(&runs, seconds, true),
        "write": direction(&runs, seconds, false),
        "trim": direction(&[], seconds, true),
        "sync": { "total_ios": 0, "lat_ns": times(&Histogram::default()) },
        "job_runtime": (seconds * 1e3).round() as u64,
        "usr_cpu": cpu / seconds * 100.0,
        "sys_cpu": 0.0,
        "ctx": 0,
        "majf": 0,
        "minf": 0,
        "iodepth_level": levels(depth),
        "latency_ns": shares(&service, &UNDER_1000, 1, 0),
        "latency_us": shares(&service, &UNDER_1000, 1000, 1000),
        "latency_ms": shares(&service, &MILLISECONDS, 1_000_000, 1_000_000),
        "latency_depth": depth,
        "latency_target": 0,
        "latency_percentile": 100.0,
        "latency_window": 0,
        "total_err": total(runs.iter().map(|run| run.errors)),
    }))
}

/// Describes a role by fio's options.
fn options(record: &Record, name: &str, role: &Role) -> Value {
    let workload = &role.workload;
    let mut options = Map::new();
    let mut set = |key: &str, value: String| options.insert(key.to_owned(), Value::String(value));
    set("name", name.to_owned());
    set("filename", record.subject.place.clone());
    let kind = workload.kind();
    let order = if kind.random > Percent::NONE {
        "rand"
    } else {
        ""
    };
    let direction = match kind.read {
        Percent::NONE => "write",
        Percent::ALL => "read",
        _ => "rw",
    };
    set("rw", format!("{order}{direction}"));
    set("iodepth", workload.depth.to_string());
    set("numjobs", role.sessions.to_string());
    set("bs", short_size(workload.block_bytes_max()));
    if workload.accesses.len() > 1 {
        let part = |access: &bench::plan::Access| {
            format!("{}/{}", short_size(access.block_bytes), access.share.get())
        };
        set(
            "bssplit",
            workload
                .accesses
                .iter()
                .map(part)
                .collect::<Vec<_>>()
                .join(":"),
        );
    }
    if direction == "rw" {
        set("rwmixread", kind.read.get().to_string());
    }
    set("percentage_random", kind.random.get().to_string());
    if kind.random > Percent::NONE {
        set("random_distribution", kind.distribution.fio());
    }
    if let Some(rate) = workload.pace.per_second() {
        set("rate_iops", format!("{rate:.0}"));
    }
    if let Pace::Poisson { .. } = workload.pace {
        set("rate_process", "poisson".to_owned());
    }
    Value::Object(options)
}

/// Formats a length in fio's notation: `4k`, `1m`.
fn short_size(bytes: u32) -> String {
    match bytes {
        bytes if bytes % (1 << 20) == 0 => format!("{}m", bytes >> 20),
        bytes if bytes % 1024 == 0 => format!("{}k", bytes >> 10),
        bytes => bytes.to_string(),
    }
}

fn flow(run: &Run, reads: bool) -> &Flow {
    if reads { &run.reads } else { &run.writes }
}

fn merged(runs: &[&Run], of: fn(&Flow) -> &Histogram, reads: bool) -> Histogram {
    runs.iter().fold(Histogram::default(), |all, run| {
        all.merged(of(flow(run, reads)))
    })
}

fn direction(runs: &[&Run], seconds: f64, reads: bool) -> Value {
    let ios = total(runs.iter().map(|run| flow(run, reads).ios));
    let bytes = total(runs.iter().map(|run| flow(run, reads).bytes));
    let service = merged(runs, |flow| &flow.service, reads);
    let response = merged(runs, |flow| &flow.response, reads);
    let samples = || {
        runs.iter()
            .flat_map(|run| &run.samples)
            .filter(|sample| sample.seconds > 0.0)
    };
    let counts =
        |sample: &Sample| if reads { sample.reads } else { sample.writes } as f64 / sample.seconds;
    let kib = |sample: &Sample| {
        (if reads {
            sample.read_bytes
        } else {
            sample.written_bytes
        }) as f64
            / sample.seconds
            / 1024.0
    };
    let iops = Spread::of(samples().map(counts));
    let bw = Spread::of(samples().map(kib));
    let rate = bytes as f64 / seconds;
    json!({
        "io_bytes": bytes,
        "io_kbytes": bytes / 1024,
        "bw_bytes": rate.round() as u64,
        "bw": (rate / 1024.0).round() as u64,
        "iops": ios as f64 / seconds,
        "runtime": if ios > 0 { (seconds * 1e3).round() as u64 } else { 0 },
        "total_ios": ios,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": times(&Histogram::default()),
        "clat_ns": with_bins(&service),
        "lat_ns": times(if response.is_empty() { &service } else { &response }),
        "bw_min": bw.least.round() as u64,
        "bw_max": bw.most.round() as u64,
        "bw_agg": if ios > 0 { 100.0 } else { 0.0 },
        "bw_mean": bw.mean,
        "bw_dev": bw.deviation,
        "bw_samples": bw.count,
        "iops_min": iops.least.round() as u64,
        "iops_max": iops.most.round() as u64,
        "iops_mean": iops.mean,
        "iops_stddev": iops.deviation,
        "iops_samples": iops.count,
    })
}

fn times(histogram: &Histogram) -> Value {
    let weighed = || {
        histogram
            .0
            .iter()
            .map(|(ns, times)| (*ns as f64, *times as f64))
    };
    let (mean, count) = (histogram.mean_ns(), histogram.count());
    let squares: f64 = weighed()
        .map(|(ns, times)| (ns - mean).powi(2) * times)
        .sum();
    json!({
        "min": histogram.0.first().map_or(0, |(ns, _)| *ns),
        "max": histogram.max_ns(),
        "mean": mean,
        "stddev": if count > 1 { (squares / (count - 1) as f64).sqrt() } else { 0.0 },
        "N": count,
    })
}

fn with_bins(histogram: &Histogram) -> Value {
    let mut value = times(histogram);
    if !histogram.is_empty() {
        let quantile = |percent: f64| {
            (
                format!("{percent:.6}"),
                json!(histogram.quantile_ns(percent / 100.0)),
            )
        };
        value["percentile"] = PERCENTILES
            .into_iter()
            .map(quantile)
            .collect::<Map<_, _>>()
            .into();
    }
    let bin = |(ns, times): &(u64, u64)| (ns.to_string(), json!(times));
    value["bins"] = histogram.0.iter().map(bin).collect::<Map<_, _>>().into();
    value
}

const UNDER_1000: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];
const MILLISECONDS: [u64; 11] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000];

/// Returns, for each end, the percentage of all requests below it and not below the previous end; the first
/// range starts at `from_ns`. For milliseconds, also returns the percentage above the last end.
fn shares(histogram: &Histogram, ends: &[u64], unit_ns: u64, from_ns: u64) -> Value {
    let all = histogram.count().max(1) as f64;
    let between = |low: u64, high: u64| {
        let inside = histogram
            .0
            .iter()
            .filter(|(ns, _)| *ns >= low && *ns < high);
        json!(total(inside.map(|(_, times)| *times)) as f64 / all * 100.0)
    };
    let mut shares = Map::new();
    let mut low = from_ns;
    for end in ends {
        let high = end * unit_ns;
        shares.insert(end.to_string(), between(low, high));
        low = high;
    }
    if ends.len() == MILLISECONDS.len() {
        shares.insert(">=2000".to_owned(), between(low, u64::MAX));
    }
    shares.into()
}

/// Returns fio's distribution of queue depths, with all requests at the configured depth.
fn levels(depth: u32) -> Value {
    const LEVELS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
    let own = LEVELS
        .iter()
        .rev()
        .find(|level| **level <= depth)
        .unwrap_or(&1);
    let level = |level: &u32| {
        let name = if *level == 64 {
            ">=64".to_owned()
        } else {
            level.to_string()
        };
        (name, json!(if level == own { 100.0 } else { 0.0 }))
    };
    LEVELS.iter().map(level).collect::<Map<_, _>>().into()
}

/// Returns a sum that saturates, since a record may contain any numbers.
fn total(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// Minimum, maximum, mean and standard deviation of samples.
#[derive(Clone, Copy, Debug, Default)]
struct Spread {
    least: f64,
    most: f64,
    mean: f64,
    deviation: f64,
    count: usize,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Spread {
        let values: Vec<f64> = values.collect();
        if values.is_empty() {
            return Spread::default();
        }
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Spread {
            least: values.iter().copied().fold(f64::MAX, f64::min),
            most: values.iter().copied().fold(0.0, f64::max),
            mean,
            deviation: (squares / (count.max(2) - 1) as f64).sqrt(),
            count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_all_units_make_all_requests() {
        let histogram = Histogram(vec![
            (900, 1),
            (71_000, 5),
            (2_500_000, 3),
            (9_000_000_000, 1),
        ]);
        let parts = [
            shares(&histogram, &UNDER_1000, 1, 0),
            shares(&histogram, &UNDER_1000, 1000, 1000),
            shares(&histogram, &MILLISECONDS, 1_000_000, 1_000_000),
        ];
        let all = parts
            .iter()
            .flat_map(|part| part.as_object().expect("shares").values());
        assert_eq!(all.filter_map(Value::as_f64).sum::<f64>(), 100.0);
        assert_eq!(parts[1]["100"], 50.0);
    }
}
