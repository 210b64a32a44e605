//! Why a storage path is slow: what was measured of its layers ([`Evidence`]), and what follows from that
//! ([`Diagnosis`]). [`measure`] is what measures, of any
//! target's LUN and any NBD server's export; nothing else here knows a network, or how a setting is changed, but only how it is called.
//!
//! ```text
//!   Evidence ──┬── layers (probes at rest) ──┐
//!              ├── symptoms (of each load) ──┼── case ── causes ── judge ── Diagnosis
//!              └── ceiling (the link) ───────┘     │
//!                                               model
//! ```
//!
//! [`diagnose`] makes a [model](model) of the path out of what the probes took, and limits it by what the loads
//! show. A cause is found where its own sign is there and the model without it is faster by 15 % or more.
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
//! [`measure`] runs on one thread with one session, which is reopened if a probe costs it: probes in random order, rounds of loads
//! between them (over NBD also through sessions with one setting changed), and all clocks and counters before and after.

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
mod words;

pub use environment::network::LinkLayer;
pub use evidence::{Evidence, Known, Ladder, LongPackets, NbdSession, PathLayer, Storage, Timed};
pub use finding::Cause;
pub use finding::{Beside, Otherwise};
pub use finding::{Change, Confirmed, Diagnosis, Explained, Finding, Gain, Remedy, Verdict, Where};
pub use judge::confirmed;
pub use judge::diagnose;
pub use load::{LoadRun, Parts, PathUnderLoad};
