//! What a storage path gives at most, and why not more: throughput and latency of reads and writes as a function of the
//! link, the distance, TCP's window, what was negotiated, and what the two ends cost.
//!
//! A [`Path`] is what is known or assumed of the way and its ends, [`Keys`] what the session agreed on, a [`Load`] what is
//! asked. Every limit is a [`Term`]; the smallest binds, and its name is the diagnosis.

mod disks;
mod fit;
mod keys;
mod load;
mod path;
mod predict;
mod search;
mod several;
mod traffic;

pub use disks::{Array, Disk, Medium, Redundancy};
pub use fit::{Constant, Fitted, Measured, fit};
pub use keys::Keys;
pub use load::{Direction, Load};
pub use path::{Path, Term};
pub use predict::{Prediction, predict};
pub use several::predict_sessions;
pub use traffic::Traffic;

#[cfg(test)]
mod tests;
