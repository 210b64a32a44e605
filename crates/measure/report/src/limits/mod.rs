//! What a link carries at most ([`Answer`](model::limits::Answer)), for people and for programs.

mod json;
mod print;

pub use json::json;
pub use print::terminal;
