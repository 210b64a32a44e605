//! Errors that close a connection.

use std::fmt;

/// An error that no PDU can answer: the connection must be closed, and at ErrorRecoveryLevel 0 its commands
/// are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fatal {
    /// A header digest error: the start of the next PDU is unknown (section 7.8). Drivers, which check
    /// digests, report it themselves.
    HeaderDigest,
    /// A data segment longer than our MaxRecvDataSegmentLength.
    SegmentTooLong {
        /// Bytes of data announced.
        length: u32,
    },
    /// A Login Request after the login.
    LoginInFullFeaturePhase,
    /// Data for a task of another connection (section 4.2.2.3, connection allegiance).
    ForeignTask,
    /// More responses queued than allowed: the peer sends without receiving.
    TooManyUnanswered,
    /// The connection is not, or no longer, part of the session.
    NotConnected,
}

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fatal::HeaderDigest => f.write_str("a header does not match its digest"),
            Fatal::SegmentTooLong { length } => {
                write!(f, "{length} bytes in one PDU, more than MaxRecvDataSegmentLength")
            }
            Fatal::LoginInFullFeaturePhase => f.write_str("a login request after the login"),
            Fatal::ForeignTask => f.write_str("data for a task of another connection"),
            Fatal::TooManyUnanswered => f.write_str("the peer sends requests and takes no answers"),
            Fatal::NotConnected => f.write_str("the connection is not part of the session"),
        }
    }
}

impl std::error::Error for Fatal {}
