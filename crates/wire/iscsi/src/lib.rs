//! iSCSI (RFC 7143), both halves, as machines without I/O.
//!
//! Bytes, completions and the time go in; bytes to send and things to do come out. Nothing here opens a socket,
//! asks the clock or draws a random number, and a CDB is opaque: what a command means is the business of others.
//!
//! Reading order: [`pdu`] (the wire), [`serial`] (its sequence numbers), [`text`], [`rules`], [`keys`] and
//! [`negotiate`] (what the two sides agree on), [`name`] and [`chap`] (who they are, and where), [`login`] (how a
//! connection begins), [`framing`] (where PDUs begin and end from then on, and their digests), [`target`] and [`initiator`] (the full
//! feature phase, one half each).

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
pub mod serial;
mod slab;
pub mod target;
pub mod text;
