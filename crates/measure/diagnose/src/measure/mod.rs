//! Measuring what a diagnosis is made of, for any vendor's target or NBD server and without anything on it.
//!
//! ```text
//!   Options ── way ── long_packets ──► course ──► Evidence ──► diagnose
//!               ▲                       │   │
//!               │ again, when lost      │   └── load: rounds of requests, with all clocks and counters
//!               └───────────────────────┴────── ladder: probes alone, in random order, between the rounds
//! ```
//!
//! Nothing on the LUN is changed unless writing is allowed, and no task management function is asked for but the abort
//! of a command that hangs: others use the LUN too. What a target does not do, or lies about, is not known, and the rest
//! goes on. Reading order: `course` (the order of events), `ladder` and `probe` (what is asked alone), `load` (what is asked
//! together), `pace` (how long that takes), `way` (the session), `device` (where iSCSI and NBD
//! differ), `confirm` (whether a change brings
//! what is predicted).

mod beside;
mod confirm;
mod course;
mod device;
mod keys;
mod ladder;
mod load;
mod long_packets;
mod pace;
mod places;
mod probe;
mod subject;
mod way;
mod writing;

use bench::Extent;
use disk_contents::Consent;
use model::Load;

pub use confirm::confirm;
pub use course::evidence;
pub use subject::Subject;

/// What is asked for.
#[derive(Clone, Copy)]
pub struct Options {
    /// Some twelve seconds instead of forty.
    pub quick: bool,
    /// About how long it may take, if that was said.
    pub seconds: Option<f64>,
    /// The load that the person has.
    pub own: Option<Load>,
    /// What may be written; nothing if `None`.
    pub allow_write: Option<Extent>,
    /// Whether what is there may be lost.
    pub consent: Consent<'static>,
    /// What the link is built for, in bits a second.
    pub expected_link_bits_per_s: Option<f64>,
    /// Where random places, data and the order of everything come from.
    pub seed: u64,
}

/// Who is told how far it is.
pub trait Progress {
    /// There are so many steps.
    fn of(&self, steps: usize);

    /// This begins.
    fn begins(&self, what: &str);

    /// It has ended.
    fn ended(&self);
}

/// Nobody.
impl Progress for () {
    fn of(&self, _: usize) {}
    fn begins(&self, _: &str) {}
    fn ended(&self) {}
}
