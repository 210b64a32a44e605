//! The initiator against other people's targets, over real TCP on loopback. A target that is not installed is
//! skipped, and says so.

mod fake;
mod polled;
mod scenes;
mod statistics;
mod tgt;
mod verbs;
