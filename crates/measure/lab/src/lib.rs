//! Several hosts on one machine, connected by links with rate, delay, jitter, loss, reordering, MTU and
//! buffer.
//!
//! A host is a network namespace. A link is a wire in this process: a thread that reads frames from an
//! interface on one side and writes them to one on the other side. It does so when a link with these
//! [`Conditions`] would deliver them. Dropping the [`Lab`], or the end of the process, removes everything.
//! Protocols above Ethernet are parsed only to cut TCP segments into frames.
//!
//! Reading order: [`Plan`] and [`Conditions`] (the description), [`Lab`] (the running lab), [`Background`]
//! (the programs of a plan). Then the wire: `pipe` (one path, as pure values: whether and when a frame
//! arrives, and one direction), `wire` (the thread).

mod conditions;
mod error;
mod frame;
mod host;
mod lab;
mod pipe;
mod plan;
mod wire;

pub use conditions::{Conditions, Spread};
pub use error::{LabError, PlanError};
pub use host::Host;
pub use lab::{Background, Direction, Lab, LinkHandle};
pub use pipe::Counts;
pub use plan::{EndPlan, HostPlan, LinkPlan, Plan, ReadyCheck};
