//! Commands and their data: SCSI Command and Response, Data-In, Data-Out and R2T, and task management.

use std::num::NonZeroU32;

use derive_more::Display;
use num_enum::{FromPrimitive, IntoPrimitive, TryFromPrimitive};

use super::bhs::{Bhs, Itt, Lun, Malformed, Opcode, TargetNumbers, Ttt};
use super::layout::{AHS_LENGTH, Bit, DATA_LENGTH, FINAL, Field, IMMEDIATE, Place, codes, pdus};
use crate::pdu::bhs::Sn;

pdus! {
    /// A SCSI command (section 11.3).
    ScsiCommand(expect_command, Bhs::new) {
        /// I: immediate delivery, outside the CmdSN order.
        immediate: bool = IMMEDIATE,
        /// F: no unsolicited Data-Out follows.
        is_final: bool = FINAL,
        /// R: the command reads.
        read: bool = READ,
        /// W: the command writes.
        write: bool = WRITE,
        attribute: TaskAttribute = 1,
        /// Additional header segments, all together, in bytes (a multiple of 4, at most 1020); see [`super::Ahs`].
        total_ahs_length: usize = AHS_LENGTH,
        /// Immediate data, in bytes without padding.
        data_segment_length: u32 = DATA_LENGTH,
        lun: Lun = 8,
        itt: Itt = 16,
        /// EDTL: bytes that the initiator expects to transfer; for a bidirectional command, to write.
        expected_data_transfer_length: u32 = 20,
        cmd_sn: Sn = 24,
        exp_stat_sn: Sn = 28,
        /// The first sixteen bytes of the CDB; a shorter CDB is filled with zeros.
        cdb: [u8; 16] = 32,
    }

    /// The result of a command (section 11.4).
    ///
    /// Its data segment is the sense data, after a length of two bytes, and possibly response data.
    ScsiResponse(Bhs::expect, Bhs::new) {
        /// iSCSI service response.
        response: Response = 2,
        /// SAM-5 status, valid if the command was completed.
        status: u8 = 3,
        itt: Itt = 16,
        /// Set for a read whose data was resent under new tags (ErrorRecoveryLevel above 0); otherwise zero.
        snack_tag: u32 = 20,
        numbers: TargetNumbers = 24,
        /// ExpDataSN: number of Data-In (bidirectional: and R2T) PDUs sent for the command.
        exp_data_sn: Sn = 36,
        /// Residual of the data, or of a bidirectional command's written data.
        residual: Residual = RESIDUAL,
        /// Residual of a bidirectional command's read data.
        read_residual: Residual = READ_RESIDUAL,
        /// Sense and response data, in bytes without padding.
        data_segment_length: u32 = DATA_LENGTH,
    }

    /// A part of a write's data, unsolicited or requested by an R2T (section 11.7).
    DataOut(Bhs::expect, Bhs::new) {
        /// F: the last of its sequence: of the unsolicited data, or of the data for one R2T.
        is_final: bool = FINAL,
        /// The R2T's LUN, for solicited data.
        lun: Lun = 8,
        itt: Itt = 16,
        /// Target Transfer Tag of the R2T; none for unsolicited data.
        ttt: Option<Ttt> = 20,
        exp_stat_sn: Sn = 28,
        /// DataSN, from zero in each sequence.
        data_sn: Sn = 36,
        /// Bytes from the start of this command's data, not from the start of the LUN.
        buffer_offset: u32 = 40,
        /// Bytes of data, without padding.
        data_segment_length: u32 = DATA_LENGTH,
    }

    /// A piece of a read's data. The last one may carry the command's status instead of a SCSI Response
    /// (section 11.7).
    DataIn(expect_data_in, Bhs::new) {
        /// F: the last of its sequence (a sequence is at most MaxBurstLength long).
        is_final: bool = FINAL,
        /// A: acknowledgement requested (ErrorRecoveryLevel above 0); LUN and TTT are then set.
        acknowledge: bool = ACKNOWLEDGE,
        /// S: the command's status, if this PDU ends the command.
        status: Option<DataInStatus> = 3,
        /// The logical unit, if an acknowledgement is requested.
        lun: Lun = 8,
        itt: Itt = 16,
        /// Target Transfer Tag for the acknowledgement, if requested.
        ttt: Option<Ttt> = 20,
        exp_cmd_sn: Sn = 28,
        max_cmd_sn: Sn = 32,
        /// DataSN, from zero.
        data_sn: Sn = 36,
        /// Bytes from the start of this command's data, not from the start of the LUN.
        buffer_offset: u32 = 40,
        /// Bytes of data, without padding.
        data_segment_length: u32 = DATA_LENGTH,
    }

    /// Ready To Transfer: requests a part of a write's data (section 11.8).
    R2t(Bhs::expect_no_data, Bhs::new) {
        /// The logical unit, to be repeated in the data PDUs.
        lun: Lun = 8,
        itt: Itt = 16,
        /// Target Transfer Tag, to be repeated in the data PDUs.
        ttt: Ttt = 20,
        /// The next StatSN, which an R2T does not consume. ExpCmdSN and MaxCmdSN.
        numbers: TargetNumbers = 24,
        /// R2TSN, from zero.
        r2t_sn: Sn = 36,
        /// Bytes from the start of this command's data, not from the start of the LUN.
        buffer_offset: u32 = 40,
        /// Desired Data Transfer Length, at most MaxBurstLength.
        desired_data_transfer_length: NonZeroU32 = 44,
    }

    /// Abort, reset or query (section 11.5).
    TaskManagementRequest(Bhs::expect_no_data, Bhs::new) {
        /// I: immediate delivery, outside the CmdSN order.
        immediate: bool = IMMEDIATE,
        /// The function requested.
        function: TaskManagementFunction = 1,
        /// The logical unit, for functions that apply to one.
        lun: Lun = 8,
        /// The tag of the request itself.
        itt: Itt = 16,
        /// The referenced task, for functions that apply to one.
        referenced_task: Option<Itt> = 20,
        cmd_sn: Sn = 24,
        exp_stat_sn: Sn = 28,
        /// ABORT TASK: the CmdSN of the task to abort.
        ref_cmd_sn: Sn = 32,
        /// TASK REASSIGN: the next DataSN or R2TSN that the initiator expects.
        exp_data_sn: Sn = 36,
    }

    /// The result of a task management request (section 11.6).
    TaskManagementResponse(Bhs::expect_no_data, Bhs::new) {
        result: TaskManagementResult = 2,
        itt: Itt = 16,
        numbers: TargetNumbers = 24,
    }
}

/// Task attribute (SAM-5 section 8.9), numbered as in section 11.3.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoPrimitive, TryFromPrimitive)]
#[repr(u8)]
pub enum TaskAttribute {
    /// The default of the device server.
    Untagged = 0,
    /// In any order among other simple tasks.
    #[default]
    Simple = 1,
    /// After all earlier tasks, before all later ones.
    Ordered = 2,
    /// Before all others.
    HeadOfQueue = 3,
    /// To clear an auto contingent allegiance.
    Aca = 4,
}

/// iSCSI service response (section 11.4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Response {
    /// Command completed at target; see the status.
    #[default]
    Completed,
    /// The target could not execute the command.
    TargetFailure,
    /// 0x80 to 0xff: vendor-specific.
    VendorSpecific(u8),
}

/// The difference between Expected Data Transfer Length and the length that the device had to transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Residual {
    /// The expected length was transferred.
    #[default]
    None,
    /// Overflow: bytes not transferred because the initiator expected fewer.
    Overflow(u32),
    /// Underflow: bytes expected and not transferred.
    Underflow(u32),
}

/// Status in the last Data-In.
#[expect(missing_docs, reason = "the names are self-explanatory")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataInStatus {
    /// SAM-5 status, without sense data.
    pub status: u8,
    pub stat_sn: Sn,
    pub residual: Residual,
}

/// The function of a task management request (section 11.5.1; 9 to 12 are from RFC 7144).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromPrimitive, IntoPrimitive)]
#[repr(u8)]
pub enum TaskManagementFunction {
    /// Abort one task.
    AbortTask = 1,
    /// Abort all tasks of this session on a logical unit.
    AbortTaskSet = 2,
    /// Clear an auto contingent allegiance.
    ClearAca = 3,
    /// Abort all tasks on a logical unit.
    ClearTaskSet = 4,
    /// Reset a logical unit.
    LogicalUnitReset = 5,
    /// Reset all logical units.
    TargetWarmReset = 6,
    /// Reset all logical units and end all sessions.
    TargetColdReset = 7,
    /// Reassign a task to this connection.
    TaskReassign = 8,
    /// Query whether the task exists.
    QueryTask = 9,
    /// Query whether any task of this session exists.
    QueryTaskSet = 10,
    /// End all outstanding tasks of this session.
    ITNexusReset = 11,
    /// Query whether a unit attention condition is pending.
    QueryAsynchronousEvent = 12,
    /// A function that no standard defines. The response is "not supported", not a Reject.
    #[num_enum(catch_all)]
    Other(u8),
}

/// Result of a task management function (section 11.6.1; 7 is from RFC 7144).
#[expect(
    missing_docs,
    reason = "where a variant has no more to say than it displays"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, FromPrimitive, IntoPrimitive)]
#[repr(u8)]
pub enum TaskManagementResult {
    #[display("done")]
    FunctionComplete = 0,
    #[display("there is no such task")]
    TaskDoesNotExist = 1,
    #[display("there is no such LUN")]
    LunDoesNotExist = 2,
    #[display("the task belongs to another connection")]
    TaskStillAllegiant = 3,
    #[display("the target does not support task reassignment")]
    ReassignmentNotSupported = 4,
    #[display("the target does not support this function")]
    NotSupported = 5,
    #[display("this initiator does not have permission")]
    AuthorizationFailed = 6,
    #[display("yes")]
    FunctionSucceeded = 7,
    #[display("the target refused")]
    FunctionRejected = 255,
    #[display("unknown response code {_0}")]
    #[num_enum(catch_all)]
    Other(u8) = 254,
}

impl ScsiCommand {
    /// A command with the attribute Simple that moves no data, with an ExpStatSN of 0.
    pub fn simple(lun: Lun, itt: Itt, cmd_sn: Sn, cdb: [u8; 16]) -> ScsiCommand {
        ScsiCommand {
            immediate: false,
            is_final: true,
            read: false,
            write: false,
            attribute: TaskAttribute::Simple,
            total_ahs_length: 0,
            data_segment_length: 0,
            lun,
            itt,
            expected_data_transfer_length: 0,
            cmd_sn,
            exp_stat_sn: Sn(0),
            cdb,
        }
    }
}

codes! {
    TaskAttribute: 0x07 else Malformed::ReservedAttribute,
    TaskManagementFunction: 0x7f,
    TaskManagementResult: 0xff,
}

impl Field for Response {
    fn read(bhs: &Bhs, at: usize) -> Result<Response, Malformed> {
        match bhs.u8(at) {
            0 => Ok(Response::Completed),
            1 => Ok(Response::TargetFailure),
            2..=0x7f => Err(Malformed::ReservedResponse),
            number @ 0x80.. => Ok(Response::VendorSpecific(number)),
        }
    }

    fn write(self, bhs: &mut Bhs, at: usize) {
        let number = match self {
            Response::Completed => 0,
            Response::TargetFailure => 1,
            Response::VendorSpecific(number) => number,
        };
        debug_assert!(number <= 1 || number >= 0x80, "a reserved response");
        bhs.set_u8(at, number);
    }
}

/// A residual: one of two bits in byte 1, and four bytes with the count.
struct ResidualPlace {
    overflow: Bit,
    underflow: Bit,
    count: usize,
}

impl Place<Residual> for ResidualPlace {
    #[inline]
    fn read(&self, bhs: &Bhs) -> Result<Residual, Malformed> {
        let count = bhs.u32(self.count);
        match (bhs.has(self.overflow), bhs.has(self.underflow)) {
            (false, false) => Ok(Residual::None),
            (true, false) => Ok(Residual::Overflow(count)),
            (false, true) => Ok(Residual::Underflow(count)),
            (true, true) => Err(Malformed::ContradictoryResidual),
        }
    }

    #[inline]
    fn write(&self, residual: Residual, bhs: &mut Bhs) {
        let (overflow, underflow, count) = match residual {
            Residual::None => (false, false, 0),
            Residual::Overflow(count) => (true, false, count),
            Residual::Underflow(count) => (false, true, count),
        };
        bhs.set(self.overflow, overflow);
        bhs.set(self.underflow, underflow);
        bhs.set_u32(self.count, count);
    }
}

impl Field for Option<DataInStatus> {
    #[inline]
    fn read(bhs: &Bhs, at: usize) -> Result<Option<DataInStatus>, Malformed> {
        if !bhs.has(STATUS) {
            return Ok(None);
        }
        Ok(Some(DataInStatus {
            status: bhs.u8(at),
            stat_sn: Sn(bhs.u32(24)),
            residual: RESIDUAL.read(bhs)?,
        }))
    }

    #[inline]
    fn write(self, bhs: &mut Bhs, at: usize) {
        let Some(DataInStatus {
            status,
            stat_sn,
            residual,
        }) = self
        else {
            return;
        };
        debug_assert!(bhs.has(FINAL), "a status comes with the last data only");
        bhs.set(STATUS, true);
        bhs.set_u8(at, status);
        bhs.set_u32(24, stat_sn.0);
        RESIDUAL.write(residual, bhs);
    }
}

/// Accepts additional header segments, which [`super::Ahs`] parses.
fn expect_command(bhs: &Bhs, opcode: Opcode) -> Result<(), Malformed> {
    bhs.expect_opcode(opcode)?;
    // Section 11.3.1: "Setting both the W and the F bit to 0 is an error."
    if bhs.has(WRITE) || bhs.has(FINAL) {
        Ok(())
    } else {
        Err(Malformed::UnsolicitedDataWithoutWrite)
    }
}

#[inline]
fn expect_data_in(bhs: &Bhs, opcode: Opcode) -> Result<(), Malformed> {
    bhs.expect(opcode)?;
    // Section 11.7.3: "If S is set to 1, the F bit MUST also be set to 1."
    if bhs.has(STATUS) && !bhs.has(FINAL) {
        Err(Malformed::StatusWithoutFinal)
    } else {
        Ok(())
    }
}

const READ: Bit = Bit::flag(0x40);
const WRITE: Bit = Bit::flag(0x20);
const ACKNOWLEDGE: Bit = Bit::flag(0x40);
const STATUS: Bit = Bit::flag(0x01);
const RESIDUAL: ResidualPlace = ResidualPlace {
    overflow: Bit::flag(0x04),
    underflow: Bit::flag(0x02),
    count: 44,
};
const READ_RESIDUAL: ResidualPlace = ResidualPlace {
    overflow: Bit::flag(0x10),
    underflow: Bit::flag(0x08),
    count: 40,
};
