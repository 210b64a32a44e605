//! Several hosts on one machine, joined by links with rate, delay, jitter, loss, reordering, MTU and buffer.
//!
//! A host is a network namespace, a link a wire in this process: a thread that takes frames from an interface
//! on one side and gives them to one on the other when a link with these [`Conditions`] would have. Dropping
//! the [`Lab`], or the end of the process, removes everything. Protocols above Ethernet are parsed only to
//! cut TCP segments into frames.
//!
//! Reading order: [`Plan`] and [`Conditions`] (what is wanted), [`Lab`] (what there is), [`Background`] (the programs of a plan), then the wire: `pipe` (one
//! path, as pure values: when does this frame arrive, if it does), `link` (one direction), `wire` (the thread).

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
