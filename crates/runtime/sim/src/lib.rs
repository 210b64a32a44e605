//! Deterministic simulations: machines with several cores, a network, disks and a clock, a complete server
//! with initiators, and a checker that determines the permitted results of reads. A seed determines each
//! simulation, step by step, on every machine and in every build. This crate is not shipped.
//!
//! The simulation checks that
//!
//! - each block returns a permitted write: linearizable, and durable once flushed. No write that was aborted,
//!   reset, preempted, superseded or abandoned reaches the medium later;
//! - every user who relied on lost acknowledged data sees a failed flush;
//! - reservation registrations are those requested and acknowledged, through all restarts;
//! - once all faults are repaired, all participants finish, and the server shuts down on request;
//! - with orderly restarts and LUN changes only, our initiator reports no error.
//!
//! Reading order: [`run`] in `scenario` (the setup and the faults), `simulation` (the shared state),
//! `server`, `portals`, `volume`, `writing`, `ours` and `fencing` (the initiators), `nbd` (other clients),
//! `checker` (correctness), then the environment: `universe` (clock, random numbers, events), `cores`
//! (scheduling), `network`, `disk`.

mod adversary;
mod checker;
mod cores;
mod coverage;
mod disk;
mod features;
mod fencing;
mod nbd;
mod network;
mod ours;
mod pdu;
mod portals;
mod registrations;
mod scenario;
mod server;
mod simple;
mod simulation;
mod universe;
mod volume;
mod writing;

pub use coverage::Coverage;
pub use features::{Addition, Feature};
pub use scenario::{Outcome, Run, run};
