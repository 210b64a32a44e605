//! The initiator against other targets, over real TCP on loopback. Tests whose target is not installed are
//! skipped with a message.

mod fake;
mod polled;
mod scenes;
mod statistics;
mod tgt;
mod verbs;
