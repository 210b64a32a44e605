//! Emulates several hosts on one machine, connected by links with a rate, delay, jitter, loss, reordering,
//! MTU and buffer.
//!
//! A host is a network namespace. A link is a thread of this process. It reads frames from an interface on
//! one side, and writes each frame to the interface on the other side when a link with these [`Conditions`]
//! would deliver it. Dropping the [`Lab`], or the end of the process, removes everything.
//! Protocols above Ethernet are parsed only to cut TCP segments into frames.
//!
//! Reading order: [`Plan`] and [`Conditions`] (the description), [`Lab`] (the running lab), [`Background`]
//! (the programs of a plan). Then the wire: `pipe` (one path and one direction, as values without I/O:
//! whether and when a frame arrives), `wire` (the thread).

mod conditions;
mod error;
mod frame;
mod host;
mod lab;
mod pipe;
mod plan;
pub mod section;
mod wire;

pub use conditions::{Conditions, Spread};
pub use error::{LabError, PlanError};
pub use host::Host;
pub use lab::{Background, Direction, Lab, LinkHandle, Output};
pub use pipe::Counts;
pub use plan::{EndPlan, HostPlan, LinkPlan, Plan, ReadyCheck};
