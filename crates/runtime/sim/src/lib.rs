//! A simulated world from a seed: machines with several cores, a network, disks and a clock, a whole server
//! with initiators, and a checker that determines for every block what may be read. The same seed produces
//! the same world, step by step, on every machine and in every build. Never shipped.
//!
//! Reading order: [`run`] in `scenario` (the setup and the faults), `simulation` (what its parts share), `server`, `portals`, `volume`,
//! `writing`, `ours` and `fencing` (the initiators), `nbd` (other clients), `checker` (correctness), then the world: `universe` (clock,
//! random numbers, events), `cores` (scheduling), `network`, `disk`.

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
