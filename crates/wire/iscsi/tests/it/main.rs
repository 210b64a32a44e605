//! The full feature phase: initiator against target in memory, on a virtual clock.
//!
//! `pair` joins the two machines by wires that can be cut, held back and tampered with, and gives the target a disk;
//! `raw` speaks to the target PDU by PDU, for what a decent initiator would never say.

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
