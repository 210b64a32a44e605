//! What a link carries at most ([`LinkLimits`](model::limits::LinkLimits)), for people and for programs.

mod json;
mod print;

pub use json::json;
pub use print::terminal;
