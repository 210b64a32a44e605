//! How a PDU's header can be wrong on its own, whatever the session: one variant per rule broken.

use derive_more::{Display, Error};

use super::RejectReason;

/// Why a header could not be parsed.
#[expect(missing_docs, reason = "where a variant has no more to say than it displays")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
pub enum Malformed {
    /// RFC 7143 section 11.2.1.2 lists no such opcode.
    #[display("unknown opcode")]
    UnknownOpcode,
    #[display("another opcode than expected")]
    WrongOpcode,
    /// 0xffffffff where a task must be named.
    #[display("reserved Initiator Task Tag")]
    ReservedItt,
    /// 0xffffffff where a transfer must be named.
    #[display("reserved Target Transfer Tag")]
    ReservedTtt,
    /// A task is named in a PDU that belongs to none (sections 11.9, 11.17).
    #[display("an Initiator Task Tag where none belongs")]
    UnexpectedItt,
    #[display("additional header segments where none belong")]
    UnexpectedAhs,
    /// Data in a PDU whose DataSegmentLength must be 0.
    #[display("data where none belongs")]
    UnexpectedData,
    /// An additional header segment is cut off, or does not have the length its type must have.
    #[display("additional header segment of a wrong length")]
    AhsLength,
    #[display("additional header segment given twice")]
    AhsRepeated,
    /// A task attribute above 4 (section 11.3.1).
    #[display("reserved task attribute")]
    ReservedAttribute,
    /// "Setting both the W and the F bit to 0 is an error" (section 11.3.1): data announced, but no write.
    #[display("data announced for a command that is no write")]
    UnsolicitedDataWithoutWrite,
    /// Overflow and underflow at once (sections 11.4.1, 11.7.3).
    #[display("overflow and underflow at once")]
    ContradictoryResidual,
    /// A SCSI response code between the standard's and the vendors' (section 11.4.3).
    #[display("reserved response code")]
    ReservedResponse,
    /// Status on a Data-In that is not the last (section 11.7.3).
    #[display("status on a Data-In that is not the last")]
    StatusWithoutFinal,
    /// An R2T for no data (section 11.8.4).
    #[display("an R2T that asks for nothing")]
    EmptyR2t,
    /// C together with F or T (sections 11.10.2, 11.12.2).
    #[display("text that goes on and is over")]
    ContinueAndFinal,
    /// Login stage 2 (section 11.12.3).
    #[display("reserved login stage")]
    ReservedStage,
    /// An invalid stage transition (section 11.12.3).
    #[display("a login that does not go forward")]
    BackwardStage,
    /// A logout reason above 2 (section 11.14.1).
    #[display("reserved logout reason")]
    ReservedLogoutReason,
    /// A SNACK type above 3 (section 11.16.1).
    #[display("reserved SNACK type")]
    ReservedSnackKind,
}

impl Malformed {
    /// The reason code of a target's Reject in full feature phase (section 11.17.1).
    pub fn reject_reason(self) -> RejectReason {
        match self {
            Malformed::UnknownOpcode | Malformed::WrongOpcode => RejectReason::CommandNotSupported,
            Malformed::UnsolicitedDataWithoutWrite
            | Malformed::StatusWithoutFinal
            | Malformed::ContinueAndFinal
            | Malformed::BackwardStage
            | Malformed::UnexpectedData
            | Malformed::UnexpectedAhs => RejectReason::ProtocolError,
            Malformed::ReservedItt
            | Malformed::ReservedTtt
            | Malformed::UnexpectedItt
            | Malformed::AhsLength
            | Malformed::AhsRepeated
            | Malformed::ReservedAttribute
            | Malformed::ContradictoryResidual
            | Malformed::ReservedResponse
            | Malformed::EmptyR2t
            | Malformed::ReservedStage
            | Malformed::ReservedLogoutReason
            | Malformed::ReservedSnackKind => RejectReason::InvalidPduField,
        }
    }
}
