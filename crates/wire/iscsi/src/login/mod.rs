//! Login (RFC 7143 section 6.3), as two state machines without I/O.
//!
//! ```text
//!                      SecurityNegotiation ──▶ OperationalNegotiation ──▶ FullFeature
//!                              │                         ▲                    ▲
//!        authenticate ─────────┘   may also be the first │      or be skipped │
//! ```
//!
//! [`TargetLogin`] and [`InitiatorLogin`] each drive one login on one connection. PDUs enter through
//! `handle_pdu`; PDUs to send come from `poll_transmit`, and queries to the driver and results from
//! `poll_event`. Neither state machine has a clock: the driver ends a login that takes too long.

mod initiator;
mod interface;
#[cfg(test)]
mod pair;
mod target;
#[cfg(test)]
mod tests;

pub use initiator::{Attached, Authenticated, InitiatorConfig, InitiatorEvent, InitiatorLogin, LoginFailure};
pub use interface::{
    Acceptance, Admission, AdmissionRequest, Grant, LoggedIn, LoginError, SessionRequest, TargetEvent,
};
pub use target::{ClaimedNames, TargetLogin, TargetPolicy};

use crate::pdu::Bhs;

/// Size of the data of a login PDU: MaxRecvDataSegmentLength's default, which applies until it is declared
/// (section 13.12). Nothing larger need be read from a peer that has not logged in.
pub const LOGIN_DATA_BYTES_MAX: usize = 8192;

/// Maximum size of one text in a login, over all its PDUs: the size that every implementation without
/// certificate authentication must accept (section 6.2). A peer that has not logged in cannot make a target
/// store more.
pub const LOGIN_TEXT_BYTES_MAX: usize = 16384;

/// Maximum number of PDUs from a peer in one login. A login with mutual CHAP takes five; this allows texts in
/// several PDUs, and ends a login that never finishes.
pub const LOGIN_PDUS_MAX: usize = 64;

/// A PDU to send: its header, and its data without padding. There are no digests before the full feature phase.
#[expect(missing_docs, reason = "where a name says all")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    pub bhs: Bhs,
    /// The data, with the length stated in the header.
    pub data: Vec<u8>,
}
