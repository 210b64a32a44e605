//! Tests of the initiator with other targets, over real TCP on loopback. A test whose target is not installed
//! is skipped with a message. `opening` and `recovery` use a target in memory instead.

mod fake;
mod memory;
mod opening;
mod polled;
mod recovery;
mod scenes;
mod statistics;
mod tgt;
mod verbs;
