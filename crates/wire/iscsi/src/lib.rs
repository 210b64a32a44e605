//! iSCSI (RFC 7143), both halves, as state machines without I/O.
//!
//! The inputs are received bytes, completions and the current time; the outputs are bytes to send and actions
//! for the driver. Nothing here opens a socket, reads the clock or draws a random number. CDBs are opaque:
//! other crates interpret SCSI commands.
//!
//! Reading order:
//!
//! - [`pdu`] (the wire format)
//! - [`text`], [`rules`], [`keys`] and [`negotiate`] (negotiation)
//! - [`name`] and [`chap`] (names, addresses and authentication)
//! - [`login`] (the start of a connection)
//! - [`framing`] (PDU boundaries and digests after the login)
//! - [`target`] and [`initiator`] (the full feature phase, one half each)

pub mod chap;
pub mod framing;
pub mod initiator;
mod keepalive;
pub mod keys;
pub mod login;
pub mod name;
pub mod negotiate;
pub mod observed;
pub mod pdu;
pub mod rules;
mod slab;
pub mod target;
pub mod text;
