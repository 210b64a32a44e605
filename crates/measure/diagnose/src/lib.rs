//! Diagnoses slow storage paths: the measurements of the layers ([`Evidence`]), and the conclusions
//! ([`Diagnosis`]). [`measure`] measures any target's LUN and any NBD server's export. The rest of the crate
//! does not access the network. The crate does not change settings; it only suggests changes.
//!
//! ```text
//!   Evidence ──┬── layers (probes at rest) ──┐
//!              ├── symptoms (of each load) ──┼── case ── causes ── judge ── Diagnosis
//!              └── ceiling (the link) ───────┘     │
//!                                               model
//! ```
//!
//! [`diagnose`] builds a [model](model) of the path from the times of the probes, and adds limits from the
//! results of the loads. A cause is reported if its symptom is present and the model without the cause is at
//! least 15 % faster.
//!
//! ```
//! use diagnose::{Cause, Evidence, diagnose};
//!
//! // Measured by `linerate diagnose --quick` on a path with a round trip of 16 ms and a receive buffer of
//! // 48 KiB.
//! let measured = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/real/tcp-window.json"));
//! let evidence: Evidence = serde_json::from_str(measured).expect("evidence");
//!
//! let first = diagnose(evidence).findings.remove(0);
//! assert_eq!(first.cause, Cause::TcpWindow);
//! assert_eq!(first.gain.predicted.expect("a rate to compare with").round(), 3.0);
//! ```
//!
//! [`measure`] runs on one thread with one session, which it reopens if a probe breaks it. It sends the
//! probes in random order, and runs rounds of loads between them; over NBD, these rounds also use sessions
//! with one changed setting. It reads all clocks and counters before and after each round.

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
    Beside, Cause, Change, Confirmed, Diagnosis, Explained, Finding, Gain, Otherwise, Remedy,
    Verdict, Where,
};
pub use judge::{confirmed, diagnose};
pub use load::{LoadRun, Parts, PathUnderLoad};
