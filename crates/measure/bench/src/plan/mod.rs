//! What is to be measured, as values: a [`Suite`] of steps, whose cells have roles, each of which puts a [`Workload`]
//! on the storage.
//!
//! ```text
//!   Suite ── Step ── Cell ── Role ── Workload ── Access
//!   vmware4  measure  rand-8k  client 0  depth 64  8 KiB, 70 % reads, 100 % random, aligned to 512 B
//! ```
//!
//! A cell whose way to the storage is made for it too (a link, a distance, a session's keys) has a [`Setting`].
//!
//! Nothing here runs anything. Suites are written as data (`suites/*.toml`), read from Iometer's files, or made of
//! options ([`Sweep`]), and all of them are these values; a record of results holds the suite that it is of, so that it can be
//! understood, shown and repeated without the program that made it.

mod cell;
mod setting;
mod share;
mod stop;
mod sweep;
mod text;
mod workload;

pub use cell::{Cell, Order, Role, Step, Suite};
pub use setting::{Part, Setting, Way};
pub use share::Percent;
pub use stop::{Rule, Stop};
pub use sweep::Sweep;
pub use text::{Blocks, BlocksList, Rate, load_words, pace};
pub use workload::{Access, Align, Data, Distribution, Pace, Span, Workload};
