//! Protocol errors of a target.

use derive_more::Display;

use crate::pdu::Malformed;

/// A rule broken by the target: the connection must be closed, and at ErrorRecoveryLevel 0 its commands are
/// lost.
#[expect(missing_docs, reason = "where a variant has no more to say than it displays")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum Fatal {
    /// A header digest error. Drivers, which check digests, report it themselves.
    #[display("a header does not match its digest")]
    HeaderDigest,
    /// A data digest error. Without SNACK the data cannot be requested again (section 7.8).
    #[display("data do not match their digest")]
    DataDigest,
    #[display("a malformed PDU: {_0}")]
    Malformed(Malformed),
    #[display("{length} bytes in one PDU, more than MaxRecvDataSegmentLength")]
    SegmentTooLong {
        /// Bytes of data announced.
        length: u32,
    },
    #[display("an answer to nothing that was asked")]
    UnknownTag,
    /// A response on another connection than the request's (section 4.2.2.3, connection allegiance).
    #[display("an answer by another connection than the question")]
    ForeignTask,
    #[display("an answer that does not fit the question")]
    WrongAnswer,
    #[display("more data than were asked for")]
    DataInBeyondEnd,
    /// Data-In out of order under DataPDUInOrder and DataSequenceInOrder, or with a gap.
    #[display("data out of order")]
    DataInOutOfOrder,
    /// An R2T beyond the data, longer than MaxBurstLength, or out of order.
    #[display("a request for data that are not there, or out of order")]
    BadR2t,
    #[display("more requests for data than MaxOutstandingR2T")]
    TooManyR2ts,
    #[display("an answer in text that does not end")]
    TextTooLong,
    #[display("sense data or a rejected header cut short")]
    Truncated,
    #[display("the peer sends pings and takes no answers")]
    TooManyUnanswered,
    #[display("the connection is not part of the session")]
    NotConnected,
}

impl std::error::Error for Fatal {}

impl From<Malformed> for Fatal {
    fn from(malformed: Malformed) -> Fatal {
        Fatal::Malformed(malformed)
    }
}
