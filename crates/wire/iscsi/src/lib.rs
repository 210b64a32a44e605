//! iSCSI (RFC 7143), both halves, as state machines without I/O.
//!
//! Bytes, completions and the time go in; bytes to send and actions come out. Nothing here opens a socket,
//! reads the clock or draws a random number. A CDB is opaque: commands are interpreted elsewhere.
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
