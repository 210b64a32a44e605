//! Errors that close a connection.

use derive_more::{Display, Error};

/// An error that no PDU can answer: the connection must be closed, and at ErrorRecoveryLevel 0 its commands
/// are lost.
#[expect(missing_docs, reason = "where a variant has no more to say than it displays")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
pub enum Fatal {
    /// A header digest error: the start of the next PDU is unknown (section 7.8). Drivers, which check
    /// digests, report it themselves.
    #[display("a header does not match its digest")]
    HeaderDigest,
    #[display("{length} bytes in one PDU, more than MaxRecvDataSegmentLength")]
    SegmentTooLong {
        /// Bytes of data announced.
        length: u32,
    },
    #[display("a login request after the login")]
    LoginInFullFeaturePhase,
    /// Data for a task of another connection (section 4.2.2.3, connection allegiance).
    #[display("data for a task of another connection")]
    ForeignTask,
    /// More responses queued than allowed: the peer sends without receiving.
    #[display("the peer sends requests and takes no answers")]
    TooManyUnanswered,
    #[display("the connection is not part of the session")]
    NotConnected,
}
