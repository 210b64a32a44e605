//! Why a storage path is slow: what was measured of its layers ([`Evidence`]), and what follows from that
//! ([`Diagnosis`]). Nothing here measures; nothing here knows how a setting is changed, but only how it is called.

mod cause;
mod evidence;
mod finding;
mod load;

pub use cause::Cause;
pub use evidence::{Evidence, Known, Ladder, LinkLayer, LongPackets, PathLayer, Storage, Timed};
pub use finding::{Change, Confirmed, Diagnosis, Explained, Finding, Gain, Remedy, Verdict, Where};
pub use load::{LoadRun, Parts, PathUnderLoad};
