//! A model of a storage path. It predicts the maximum throughput, the latency and the bottleneck of reads and
//! writes. Its inputs are the link, the round-trip time, TCP's window, the negotiated keys, and the costs of
//! both ends.
//!
//! A [`Path`] contains the known or assumed constants of the path and its ends, [`Keys`] the negotiated keys,
//! and a [`Load`] the workload. Every limit is a [`Term`]; the lowest limit is the bottleneck.
//!
//! ```
//! use model::link::Link;
//! use model::{Direction, Keys, Load, Path, Term, predict};
//!
//! // The Gigabit Ethernet of document 003 carries 118.7 MB/s of TCP payload.
//! let link = Link::ethernet(1e9, 1500);
//! assert_eq!((link.payload_per_s() / 1e5).round(), 1187.0);
//!
//! // With one outstanding 64 KiB read over 10 ms, one request completes per round trip, regardless of the
//! // link.
//! let path = Path { payload_per_s: Some(link.payload_per_s()), ..Path::of_round_trip(0.01) };
//! let load = Load {
//!     direction: Direction::Read,
//!     block_bytes: 65_536,
//!     depth: 1,
//!     sessions: 1,
//!     random: true,
//!     durable: false,
//! };
//! let gives = predict(&path, &Keys::default(), &load);
//! assert_eq!((gives.binding(), gives.bytes_per_s.round()), (Some(Term::Depth), 6_553_600.0));
//! ```

mod disks;
mod fit;
pub mod limits;
pub mod link;
mod path;
mod predict;

pub use disks::{Array, Medium, Redundancy};
pub use fit::{Constant, Fitted, Measured, fit};
pub use path::{Direction, Keys, LinkRate, Load, Path, Term, Traffic};
pub use predict::{Prediction, predict, predict_sessions};

#[cfg(test)]
mod tests;
