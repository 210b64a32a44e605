//! Diagnosis of slow storage paths: the measurements of the layers ([`Evidence`]), and the conclusions
//! ([`Diagnosis`]). [`measure`] measures any target's LUN and any NBD server's export. The rest of the crate
//! uses no network and changes no settings; it only names them.
//!
//! ```text
//!   Evidence ──┬── layers (probes at rest) ──┐
//!              ├── symptoms (of each load) ──┼── case ── causes ── judge ── Diagnosis
//!              └── ceiling (the link) ───────┘     │
//!                                               model
//! ```
//!
//! [`diagnose`] builds a [model](model) of the path from the probes' times, and limits it by the loads'
//! results. A cause is reported if its symptom is present and the model without it is faster by 15 % or more.
//!
//! ```
//! use diagnose::{Cause, Evidence, diagnose};
//!
//! // What `linerate diagnose --quick` measured over 16 ms with a receive buffer of 48 KiB.
//! let measured = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/real/tcp-window.json"));
//! let evidence: Evidence = serde_json::from_str(measured).expect("evidence");
//!
//! let first = diagnose(evidence).findings.remove(0);
//! assert_eq!(first.cause, Cause::TcpWindow);
//! assert_eq!(first.gain.predicted.expect("a rate to compare with").round(), 3.0);
//! ```
//!
//! [`measure`] runs on one thread with one session, which is reopened if a probe breaks it. It runs probes in
//! random order, with rounds of loads between them (over NBD also through sessions with one setting changed),
//! and reads all clocks and counters before and after.

mod case;
mod causes;
mod ceiling;
mod evidence;
mod finding;
mod judge;
mod layers;
mod load;
pub mod measure;
mod patterns;
mod symptoms;
#[cfg(test)]
mod tests;

pub use environment::network::LinkLayer;
pub use evidence::{Evidence, Known, Ladder, LongPackets, NbdSession, PathLayer, Storage, Timed};
pub use finding::{
    Beside, Cause, Change, Confirmed, Diagnosis, Explained, Finding, Gain, Otherwise, Remedy, Verdict, Where,
};
pub use judge::{confirmed, diagnose};
pub use load::{LoadRun, Parts, PathUnderLoad};
