//! What front ends that carry SCSI share, whatever their transport: which LUNs a session sees ([`Export`], [`Luns`]), in which
//! order the commands of a LUN begin ([`Turn`]), what monitoring calls commands and answers, and what several units have
//! to wait for.
//!
//! Not here: what a command does (`logical_unit`), tasks and their states, which each transport ends in its own way.

mod export;
mod luns;
mod tally;
mod units;
mod work;

pub use export::{Export, NamePattern};
pub use luns::{Luns, Slot, Turn};
pub use tally::{Failure, failure, operation};
pub use units::{AbortedUnits, abort_everybodys, add_units, quiesce};
pub use work::Work;
