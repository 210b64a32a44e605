//! What is to be thought of a result, as values and as sentences.

use derive_more::Display;
use readable::figures::grouped;
use serde::Serialize;

/// What is to be thought of a result. [`std::fmt::Display`] says it in a sentence; as JSON it is its `kind` and its figures.
#[derive(Clone, Debug, PartialEq, Display, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Flag {
    /// Rate times latency is not the number of requests under way (Little's law): something was not counted.
    #[display(
        "Rate times latency gives {expected:.1} requests under way, and {measured:.1} were counted \
         (Little's law): something is not in these numbers"
    )]
    Little {
        /// Rate times mean latency.
        #[serde(rename = "expected_requests")]
        expected: f64,
        /// Requests under way, measured.
        #[serde(rename = "measured_requests")]
        measured: f64,
    },
    /// The depth that was asked for was not reached.
    #[display(
        "{measured:.1} requests were under way on average, and {asked} were asked for: the client did not \
         make them as fast as they were answered"
    )]
    DepthNotReached {
        /// Requests under way, measured.
        #[serde(rename = "measured_requests")]
        measured: f64,
        /// And asked for.
        #[serde(rename = "asked_requests")]
        asked: u32,
    },
    /// The client's threads were busy all the time: it is the client that was measured.
    #[display(
        "A thread of the client was busy for {percent:.0} % of the time, idle polls not included: the client \
         may be the bottleneck"
    )]
    ClientCpu {
        /// CPU time of the busiest thread in percent of the time, without idle polls.
        percent: f64,
    },
    /// All CPUs of a client's machine were busy all the time, with any program: nothing there could go faster.
    #[display(
        "The CPUs of a client's machine were busy for {percent:.0} % of the time, other programs included: an \
         idle machine may give more"
    )]
    MachineBusy {
        /// Of all its CPUs, in percent of the time.
        percent: f64,
    },
    /// Requests a second hardly depend on their length, although the bytes a second do (DPMETERM on a RAM drive, document
    /// 000 table 4): it is the loop that makes requests that was measured.
    #[display(
        "About {iops:.0} requests a second whatever their length: a fixed time for each was measured, of \
         the loop that makes them or of whatever delays them, and not how fast data can be moved"
    )]
    LoopRate {
        /// Requests a second.
        #[serde(rename = "requests_per_s")]
        iops: f64,
    },
    /// The rate of an open loop was not kept.
    #[display(
        "{} requests a second were to be made, and {} were reached: response times grow for as long as this goes on",
        grouped(asked.round() as u64), grouped(reached.round() as u64)
    )]
    Overload {
        /// Asked for, per second.
        #[serde(rename = "asked_per_s")]
        asked: f64,
        /// Reached, per second.
        #[serde(rename = "reached_per_s")]
        reached: f64,
    },
    /// The interval of confidence is wider than was asked for.
    #[display("The rate is known to {percent:.1} % only, which is less well than was asked for")]
    NotConfident {
        /// Half of it in percent of the median.
        percent: f64,
    },
    /// The rounds did not become steady.
    #[display("The rounds did not become steady by SNIA's rule: these are the last of a rate that changes")]
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
        /// From the first quarter to the last, in percent of the first: -100 or more.
        percent: f64,
    },
    /// No request completed, so that there is neither a rate nor a latency.
    #[display("No request completed while the run counted: it measured neither a rate nor a latency")]
    NothingCompleted,
    /// Requests failed.
    #[display("{errors} requests failed")]
    Failed {
        /// How many.
        errors: u64,
    },
    /// Data came back wrong.
    #[display("Data came back wrong {mismatches} times")]
    WrongData {
        /// How often.
        mismatches: u64,
    },
    /// A run was cut short.
    #[display("The run was interrupted: it is shorter than it should be")]
    Interrupted,
}
