//! What a target must not do.

use std::fmt;

use crate::pdu::Malformed;

/// A rule broken by the target: the connection must be closed, and with ErrorRecoveryLevel 0 its commands are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fatal {
    /// A header does not match its digest. Drivers, who check digests, say so themselves.
    HeaderDigest,
    /// Data do not match their digest. Without SNACK they cannot be had again (section 7.8).
    DataDigest,
    /// A PDU makes no sense by itself.
    Malformed(Malformed),
    /// More data in one PDU than our MaxRecvDataSegmentLength.
    SegmentTooLong {
        /// Bytes of data announced.
        length: u32,
    },
    /// An answer to nothing that we asked.
    UnknownTag,
    /// An answer by another connection than the question (section 4.2.2.3, connection allegiance).
    ForeignTask,
    /// An answer of a kind that does not fit the question.
    WrongAnswer,
    /// Data-In beyond the data that were expected.
    DataInBeyondEnd,
    /// Data-In in another order than DataPDUInOrder and DataSequenceInOrder allow, or with a gap.
    DataInOutOfOrder,
    /// An R2T for more than there is, more than MaxBurstLength, or out of order.
    BadR2t,
    /// More R2Ts at a time than MaxOutstandingR2T.
    TooManyR2ts,
    /// An answer in text that never ends.
    TextTooLong,
    /// Sense data, or a rejected header, that are not all there.
    Truncated,
    /// More pings than answers were taken.
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
