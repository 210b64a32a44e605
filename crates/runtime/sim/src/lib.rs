//! A simulated world, from a seed: machines with several cores, a network, disks and a clock, a whole server with initiators
//! around it, and a checker that knows for every block what may be read there. The same seed is the same world, step by
//! step, on every machine and in every build. Never shipped.
//!
//! Reading order: [`run`] in `scenario` (what there is), `director` and `server` (what befalls it), `volume`, `writing`, `ours`
//! and `fencing` (who does what), `checker` (what is right), then the world: `universe` (clock, chance, events), `cores` (who
//! runs when), `network`, `disk`.

mod adversary;
mod checker;
mod cores;
mod coverage;
mod director;
mod disk;
mod fencing;
mod keep;
mod network;
mod ours;
mod pdu;
mod random;
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
pub use scenario::{Feature, Outcome, Run, run};
