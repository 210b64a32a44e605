//! How a PDU's header can be wrong on its own, whatever the session: one variant per rule broken.

use std::fmt;

use super::RejectReason;

/// Why a header could not be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// RFC 7143 section 11.2.1.2 lists no such opcode.
    UnknownOpcode,
    /// The header has another opcode than expected.
    WrongOpcode,
    /// 0xffffffff where a task must be named.
    ReservedItt,
    /// 0xffffffff where a transfer must be named.
    ReservedTtt,
    /// A task is named in a PDU that belongs to none (sections 11.9, 11.17).
    UnexpectedItt,
    /// Additional header segments in a PDU that has none.
    UnexpectedAhs,
    /// Data in a PDU whose DataSegmentLength must be 0.
    UnexpectedData,
    /// An additional header segment is cut off, or does not have the length its type must have.
    AhsLength,
    /// The same additional header segment twice.
    AhsRepeated,
    /// A task attribute above 4 (section 11.3.1).
    ReservedAttribute,
    /// "Setting both the W and the F bit to 0 is an error" (section 11.3.1): data announced, but no write.
    UnsolicitedDataWithoutWrite,
    /// Overflow and underflow at once (sections 11.4.1, 11.7.3).
    ContradictoryResidual,
    /// A SCSI response code between the standard's and the vendors' (section 11.4.3).
    ReservedResponse,
    /// Status on a Data-In that is not the last (section 11.7.3).
    StatusWithoutFinal,
    /// An R2T for no data (section 11.8.4).
    EmptyR2t,
    /// C together with F or T (sections 11.10.2, 11.12.2).
    ContinueAndFinal,
    /// Login stage 2 (section 11.12.3).
    ReservedStage,
    /// An invalid stage transition (section 11.12.3).
    BackwardStage,
    /// A logout reason above 2 (section 11.14.1).
    ReservedLogoutReason,
    /// A SNACK type above 3 (section 11.16.1).
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

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Malformed::UnknownOpcode => "unknown opcode",
            Malformed::WrongOpcode => "another opcode than expected",
            Malformed::ReservedItt => "reserved Initiator Task Tag",
            Malformed::ReservedTtt => "reserved Target Transfer Tag",
            Malformed::UnexpectedItt => "an Initiator Task Tag where none belongs",
            Malformed::UnexpectedAhs => "additional header segments where none belong",
            Malformed::UnexpectedData => "data where none belongs",
            Malformed::AhsLength => "additional header segment of a wrong length",
            Malformed::AhsRepeated => "additional header segment given twice",
            Malformed::ReservedAttribute => "reserved task attribute",
            Malformed::UnsolicitedDataWithoutWrite => "data announced for a command that is no write",
            Malformed::ContradictoryResidual => "overflow and underflow at once",
            Malformed::ReservedResponse => "reserved response code",
            Malformed::StatusWithoutFinal => "status on a Data-In that is not the last",
            Malformed::EmptyR2t => "an R2T that asks for nothing",
            Malformed::ContinueAndFinal => "text that goes on and is over",
            Malformed::ReservedStage => "reserved login stage",
            Malformed::BackwardStage => "a login that does not go forward",
            Malformed::ReservedLogoutReason => "reserved logout reason",
            Malformed::ReservedSnackKind => "reserved SNACK type",
        })
    }
}

impl std::error::Error for Malformed {}
