//! Protocol errors of a target.

use std::fmt;

use crate::pdu::Malformed;

/// A rule broken by the target: the connection must be closed, and at ErrorRecoveryLevel 0 its commands are
/// lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fatal {
    /// A header digest error. Drivers, which check digests, report it themselves.
    HeaderDigest,
    /// A data digest error. Without SNACK the data cannot be requested again (section 7.8).
    DataDigest,
    /// A malformed PDU.
    Malformed(Malformed),
    /// A data segment longer than our MaxRecvDataSegmentLength.
    SegmentTooLong {
        /// Bytes of data announced.
        length: u32,
    },
    /// A response with an unknown tag.
    UnknownTag,
    /// A response on another connection than the request's (section 4.2.2.3, connection allegiance).
    ForeignTask,
    /// A response of a type that does not match the request.
    WrongAnswer,
    /// Data-In beyond the expected data.
    DataInBeyondEnd,
    /// Data-In out of order under DataPDUInOrder and DataSequenceInOrder, or with a gap.
    DataInOutOfOrder,
    /// An R2T beyond the data, longer than MaxBurstLength, or out of order.
    BadR2t,
    /// More outstanding R2Ts than MaxOutstandingR2T.
    TooManyR2ts,
    /// A text response beyond the limit.
    TextTooLong,
    /// Truncated sense data or rejected header.
    Truncated,
    /// More pings than responses were taken.
    TooManyUnanswered,
    /// The connection is not, or no longer, part of the session.
    NotConnected,
}

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fatal::HeaderDigest => f.write_str("a header does not match its digest"),
            Fatal::DataDigest => f.write_str("data do not match their digest"),
            Fatal::Malformed(malformed) => write!(f, "a malformed PDU: {malformed}"),
            Fatal::SegmentTooLong { length } => {
                write!(f, "{length} bytes in one PDU, more than MaxRecvDataSegmentLength")
            }
            Fatal::UnknownTag => f.write_str("an answer to nothing that was asked"),
            Fatal::ForeignTask => f.write_str("an answer by another connection than the question"),
            Fatal::WrongAnswer => f.write_str("an answer that does not fit the question"),
            Fatal::DataInBeyondEnd => f.write_str("more data than were asked for"),
            Fatal::DataInOutOfOrder => f.write_str("data out of order"),
            Fatal::BadR2t => f.write_str("a request for data that are not there, or out of order"),
            Fatal::TooManyR2ts => f.write_str("more requests for data than MaxOutstandingR2T"),
            Fatal::TextTooLong => f.write_str("an answer in text that does not end"),
            Fatal::Truncated => f.write_str("sense data or a rejected header cut short"),
            Fatal::TooManyUnanswered => f.write_str("the peer sends pings and takes no answers"),
            Fatal::NotConnected => f.write_str("the connection is not part of the session"),
        }
    }
}

impl std::error::Error for Fatal {}

impl From<Malformed> for Fatal {
    fn from(malformed: Malformed) -> Fatal {
        Fatal::Malformed(malformed)
    }
}
