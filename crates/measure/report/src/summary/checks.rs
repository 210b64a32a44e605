//! Checks the plausibility of a cell's results. Each check examines one property, and most results pass all
//! checks.

use bench::plan::{Order, Rule};
use bench::record::{CellRun, ClientRun, Cpu, Ended, Flow};
use bench::schedule::percent_wanted;
use derive_more::Display;
use readable::figures::grouped;
use serde::Serialize;
use stats::{little, mean, median, series_mean, welch};

use crate::summary::CellSummary;
use crate::summary::counted::{Counted, machine_percent};

/// Returns the flags of a single cell, the most severe first.
pub(super) fn flags(counted: &Counted<'_>, summary: &CellSummary) -> Vec<Flag> {
    let checks = [
        wrong_data(summary),
        failed(summary),
        nothing_completed(counted),
        interrupted(counted),
        little_s_law(counted, summary),
        client_cpu(counted),
        machine_busy(counted),
        depth(counted, summary),
        overload(counted),
        steadiness(counted),
        confidence(counted, summary),
        drift(counted),
    ];
    checks.into_iter().flatten().collect()
}

fn wrong_data(summary: &CellSummary) -> Option<Flag> {
    (summary.mismatches > 0).then_some(Flag::WrongData {
        mismatches: summary.mismatches,
    })
}

fn failed(summary: &CellSummary) -> Option<Flag> {
    (summary.errors > 0).then_some(Flag::Failed {
        errors: summary.errors,
    })
}

fn nothing_completed(counted: &Counted<'_>) -> Option<Flag> {
    counted
        .clients()
        .all(|client| client.run.ios() == 0)
        .then_some(Flag::NothingCompleted)
}

fn interrupted(counted: &Counted<'_>) -> Option<Flag> {
    counted
        .runs
        .iter()
        .any(|run| run.ended == Ended::Interrupted)
        .then_some(Flag::Interrupted)
}

/// Compares the product of rate and mean latency with the measured number of outstanding requests. The
/// tolerance is a twentieth, plus the effect of the start and end of a run. A request that is outstanding at
/// the start or end counts only partly in one of the two values; at each end, this is at most depth times
/// latency. Failed requests were outstanding, but have no latency, so the check is skipped if there are any.
fn little_s_law(counted: &Counted<'_>, summary: &CellSummary) -> Option<Flag> {
    const TOLERANCE: f64 = 0.05;
    if summary.errors > 0 || summary.iops.median <= 0.0 {
        return None;
    }
    let expected = over_runs(counted, |run| {
        run.clients.iter().map(rate_times_latency).sum()
    });
    let measured = summary.under_way;
    let shortest = counted
        .clients()
        .map(|client| client.run.seconds)
        .fold(f64::INFINITY, f64::min);
    let edges = f64::from(summary.depth) * (summary.service.mean_us / 1e6) / shortest;
    let off = (expected - measured).abs();
    (off > TOLERANCE * expected.max(measured) + edges)
        .then_some(Flag::Little { expected, measured })
}

fn rate_times_latency(client: &ClientRun) -> f64 {
    let of = |flow: &Flow| {
        little(
            flow.ios as f64 / client.run.seconds,
            flow.service.mean_ns() / 1e9,
        )
    };
    if client.run.seconds > 0.0 {
        of(&client.run.reads) + of(&client.run.writes)
    } else {
        0.0
    }
}

/// The share of the time from which a thread is saturated. The kernel's ticks and other programs use the
/// rest.
const BUSY_PERCENT: f64 = 95.0;

fn client_cpu(counted: &Counted<'_>) -> Option<Flag> {
    let busy = |client: &ClientRun| {
        let Cpu {
            busiest_thread_s,
            looked_in_vain_s,
            ..
        } = client.cpu;
        let busy_s = busiest_thread_s - looked_in_vain_s;
        if client.run.seconds > 0.0 {
            (100.0 * busy_s / client.run.seconds).min(100.0)
        } else {
            0.0
        }
    };
    let percent = over_runs(counted, |run| {
        run.clients.iter().map(busy).fold(0.0, f64::max)
    });
    (percent >= BUSY_PERCENT).then_some(Flag::ClientCpu { percent })
}

fn machine_busy(counted: &Counted<'_>) -> Option<Flag> {
    let busiest = |run: &CellRun| {
        run.clients
            .iter()
            .filter_map(machine_percent)
            .fold(0.0, f64::max)
    };
    let percent = over_runs(counted, busiest);
    (percent >= BUSY_PERCENT).then_some(Flag::MachineBusy { percent })
}

/// Compares the depth with the measured number of outstanding requests. In a closed loop, every completion
/// immediately triggers the next request, so a difference is time that the client used. A tenth is more than
/// the client's own overhead. Cells with configured pauses between bursts are not checked.
fn depth(counted: &Counted<'_>, summary: &CellSummary) -> Option<Flag> {
    const SHARE_MIN: f64 = 0.9;
    let paused = |access: &bench::plan::Access| access.delay_ms > 0;
    let workloads = || counted.cell.roles.iter().map(|role| &role.workload);
    let told =
        workloads().any(|workload| workload.pace.is_open() || workload.accesses.iter().any(paused));
    let measured = summary.under_way;
    let short = !told && summary.iops.median > 0.0 && measured < SHARE_MIN * counted.depth_mean();
    short.then_some(Flag::DepthNotReached {
        measured,
        asked: summary.depth,
    })
}

/// Compares the configured rate of an open loop with the achieved one. The tolerance is two percent, plus
/// three standard deviations of a Poisson process of this length, since its number of requests is random.
fn overload(counted: &Counted<'_>) -> Option<Flag> {
    const SHARE_MIN: f64 = 0.98;
    let roles = counted.cell.roles.iter().enumerate();
    let open: Vec<(usize, f64)> = roles
        .filter_map(|(index, role)| Some((index, role.workload.pace.per_second()?)))
        .collect();
    let asked: f64 = open.iter().map(|(_, rate)| rate).sum();
    let reached = over_runs(counted, |run| {
        open.iter()
            .filter_map(|(index, _)| run.clients.get(*index))
            .map(|client| client.run.iops())
            .sum()
    });
    let seconds = over_runs(counted, |run| mean_of(run, |client| client.run.seconds));
    let allowed = SHARE_MIN - 3.0 / (asked * seconds).sqrt();
    (asked > 0.0 && reached < allowed * asked).then_some(Flag::Overload { asked, reached })
}

fn steadiness(counted: &Counted<'_>) -> Option<Flag> {
    (counted.steady == Some(false)).then_some(Flag::NotSteady)
}

/// Checks the confidence interval, if a width was required: by the stop rule of the runs, or by rounds that
/// repeat until the width is reached.
fn confidence(counted: &Counted<'_>, summary: &CellSummary) -> Option<Flag> {
    let by_rounds = matches!(counted.order, Order::Interleaved { repeats_min, repeats_max } if repeats_max > repeats_min);
    let by_rule = matches!(counted.stop.rule, Rule::Confidence { .. });
    let percent = summary.iops.percent()?;
    let wide = percent > percent_wanted(counted.cell, counted.stop);
    (wide && (by_rounds || by_rule)).then_some(Flag::NotConfident { percent })
}

/// Returns the change from the first quarter of a run to the last, if the median over the runs is a tenth or
/// more. A difference that the scatter of the samples explains does not count.
fn drift(counted: &Counted<'_>) -> Option<Flag> {
    const PERCENT_MIN: f64 = 10.0;
    let percent = over_runs(counted, |run| {
        drift_percent(&run.iops_samples()).unwrap_or(0.0)
    });
    (percent.abs() >= PERCENT_MIN).then_some(Flag::Drifts { percent })
}

/// Returns the change in percent of the first quarter, so a decrease is never more than 100.
fn drift_percent(samples: &[f64]) -> Option<f64> {
    /// Limit on the change. If nothing completed in the first quarter, the ratio is infinite, which JSON
    /// cannot represent.
    const PERCENT_MAX: f64 = 1e6;
    /// Minimum number of samples in a quarter, for an estimate of their scatter.
    const QUARTER_MIN: usize = 4;
    const CHANCE_MAX: f64 = 0.01;
    let quarter = samples.len() / 4;
    if quarter < QUARTER_MIN {
        return None;
    }
    let middle = &samples[quarter..samples.len() - quarter];
    let (second, third) = middle.split_at(middle.len() / 2);
    let (first, last) = (
        series_mean(&samples[..quarter])?,
        series_mean(&samples[samples.len() - quarter..])?,
    );
    let change = welch(first, last);
    let is_real =
        change.p() <= CHANCE_MAX || stands_out(first.mean, [mean(second), mean(third), last.mean]);
    let percent = || (100.0 * change.difference / first.mean.max(0.0)).min(PERCENT_MAX);
    (mean(samples) > 0.0 && is_real).then(percent)
}

/// Returns whether the first quarter's mean differs from the others by Dixon's test (r10; Rorabacher, Analytical
/// Chemistry 63, 1991). A write cache that fills within the first quarter scatters its samples so widely that
/// a test of their mean finds nothing, although the other quarters agree with each other.
fn stands_out(first: f64, others: [f64; 3]) -> bool {
    /// The critical value for four values at a chance of 1 %, on either side.
    const CRITICAL: f64 = 0.926;
    let [low, high] = [
        others.iter().copied().fold(f64::INFINITY, f64::min),
        others.iter().copied().fold(0.0, f64::max),
    ];
    let gap = (first - high).max(low - first);
    gap > 0.0 && gap >= CRITICAL * (first.max(high) - first.min(low))
}

fn over_runs(counted: &Counted<'_>, value: impl Fn(&CellRun) -> f64) -> f64 {
    let values: Vec<f64> = counted.runs.iter().map(|run| value(run)).collect();
    median(&values)
}

fn mean_of(run: &CellRun, value: impl Fn(&ClientRun) -> f64) -> f64 {
    let values: Vec<f64> = run.clients.iter().map(value).collect();
    mean(&values)
}

// Warnings about a result, as values and as sentences.

/// A warning about a result. [`std::fmt::Display`] writes it as a sentence; JSON contains its `kind` and its
/// numbers.
#[derive(Clone, Debug, PartialEq, Display, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Flag {
    /// The product of rate and latency differs from the number of outstanding requests (Little's law), so
    /// some requests were not counted.
    #[display(
        "Rate times latency gives {expected:.1} outstanding requests (Little's law), but {measured:.1} were \
         counted: these numbers are incomplete"
    )]
    Little {
        /// The product of rate and mean latency.
        #[serde(rename = "expected_requests")]
        expected: f64,
        /// The measured number of outstanding requests.
        #[serde(rename = "measured_requests")]
        measured: f64,
    },
    /// The configured queue depth was not reached.
    #[display(
        "{measured:.1} requests were outstanding on average, instead of {asked}: the client did not send \
         requests as fast as they completed"
    )]
    DepthNotReached {
        /// The measured number of outstanding requests.
        #[serde(rename = "measured_requests")]
        measured: f64,
        /// The configured queue depth.
        #[serde(rename = "asked_requests")]
        asked: u32,
    },
    /// A thread of the client was busy all the time, so the measurement may show the client's limit.
    #[display(
        "A thread of the client was busy {percent:.0} % of the time, excluding idle polls: the client may be \
         the bottleneck"
    )]
    ClientCpu {
        /// The CPU time of the busiest thread without unsuccessful polls, in percent of the time.
        percent: f64,
    },
    /// All CPUs of a client's machine were busy all the time, including other programs, so the client could
    /// not have been faster.
    #[display(
        "The CPUs of a client's machine were busy {percent:.0} % of the time, including other programs: an \
         otherwise idle machine may be faster"
    )]
    MachineBusy {
        /// The CPU time of the machine, in percent of the time of all its CPUs.
        percent: f64,
    },
    /// The rate in requests per second hardly depends on the request length, although bytes per second do.
    /// Document 000, table 4, has an example: DPMETER on a RAM drive. The measurement shows the limit of the
    /// loop that makes requests.
    #[display(
        "The rate is about {iops:.0} requests per second for all request lengths: this is a fixed time per \
         request, in the sending loop or from a delay, and not the speed of data transfer"
    )]
    LoopRate {
        /// Requests per second.
        #[serde(rename = "requests_per_s")]
        iops: f64,
    },
    /// The rate of an open loop was not achieved.
    #[display(
        "The requested rate was {} requests per second, but only {} were reached: response times grow for as \
         long as this continues",
        grouped(asked.round() as u64), grouped(reached.round() as u64)
    )]
    Overload {
        /// The configured rate, per second.
        #[serde(rename = "asked_per_s")]
        asked: f64,
        /// The achieved rate, per second.
        #[serde(rename = "reached_per_s")]
        reached: f64,
    },
    /// The confidence interval is wider than required.
    #[display("The error of the rate is ±{percent:.1} %, more than requested")]
    NotConfident {
        /// Half of the interval, in percent of the median.
        percent: f64,
    },
    /// The rounds did not become steady.
    #[display(
        "The rounds did not reach a steady state by SNIA's rule: these are the last values of a changing rate"
    )]
    NotSteady,
    /// The rate rises or falls during the runs.
    #[display(
        "The rate {} its value from the first quarter of a run to the last",
        match 1.0 + percent / 100.0 {
            ratio if ratio < 1.0 => format!("falls to {ratio:.2} of"),
            ratio => format!("grows to {ratio:.2} times"),
        }
    )]
    Drifts {
        /// The change from the first quarter to the last, in percent of the first; at least -100.
        percent: f64,
    },
    /// No request completed, so there is neither a rate nor a latency.
    #[display(
        "No request completed during the measured time: there is neither a rate nor a latency"
    )]
    NothingCompleted,
    /// Requests failed.
    #[display("{errors} requests failed")]
    Failed {
        /// The number of failed requests.
        errors: u64,
    },
    /// Reads returned wrong data.
    #[display("Requests read wrong data {mismatches} times")]
    WrongData {
        /// The number of requests that returned wrong data.
        mismatches: u64,
    },
    /// A run was interrupted.
    #[display("The run was interrupted, and is shorter than planned")]
    Interrupted,
}
