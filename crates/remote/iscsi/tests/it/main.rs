//! The initiator against other targets, over real TCP on loopback. Tests whose target is not installed are
//! skipped with a message. `opening` and `recovery` have a target in memory instead.

mod fake;
mod memory;
mod opening;
mod polled;
mod recovery;
mod scenes;
mod statistics;
mod tgt;
mod verbs;
