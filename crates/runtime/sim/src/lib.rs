//! Deterministic simulations: machines with several cores, a network, disks and a clock, a complete server
//! with initiators, and a checker that determines the permitted results of reads. A seed determines each
//! simulation, step by step, on every machine and in every build. This crate is not shipped.
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
