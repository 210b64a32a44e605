//! A simulated world from a seed: machines with several cores, a network, disks and a clock, a whole server
//! with initiators, and a checker that determines for every block what may be read. The same seed gives the
//! same world, step by step, on every machine and in every build. Never shipped.
//!
//! Reading order: [`run`] in `scenario` (the setup), `director`, `server`, `redirector` and `breaker` (faults), `volume`, `writing`,
//! `ours` and `fencing` (the initiators), `nbd` (other clients), `checker` (correctness), then the world: `universe` (clock, random
//! numbers, events), `cores` (scheduling), `network`, `disk`.

mod adversary;
mod breaker;
mod checker;
mod cores;
mod coverage;
mod director;
mod disk;
mod fencing;
mod keep;
mod nbd;
mod network;
mod ours;
mod outbox;
mod pdu;
mod redirector;
mod registrations;
mod scenario;
mod server;
mod simple;
mod universe;
mod volume;
mod world;
mod writing;

pub use coverage::Coverage;
pub use scenario::{Addition, Feature, Outcome, Run, run};
