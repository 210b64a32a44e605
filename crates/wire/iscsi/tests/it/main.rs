//! The full feature phase: initiator against target in memory, on a virtual clock.
//!
//! `pair` connects the two state machines with wires that can be cut, delayed and tampered with, and provides
//! the target's disk. `raw` builds single PDUs, for input that a correct initiator would never send.

mod async_messages;
mod data;
mod disk;
mod fence;
mod hostile;
mod keepalive;
mod logout;
mod management;
mod ordering;
mod pair;
mod properties;
mod raw;
mod receipts;
mod residuals;
mod statistics;
mod text;
mod transfer_errors;
mod wire;
