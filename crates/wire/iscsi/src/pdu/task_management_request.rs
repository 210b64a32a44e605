//! Task Management Function Request (RFC 7143 section 11.5).

use num_enum::{FromPrimitive, IntoPrimitive};

use super::bhs::FINAL;
use super::{Bhs, Itt, Lun, Malformed, Opcode};
use crate::serial::Sn;

/// Abort, reset or query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskManagementRequest {
    /// I: immediate delivery, outside the CmdSN order.
    pub immediate: bool,
    /// What to do.
    pub function: TaskManagementFunction,
    /// The logical unit, for the functions that concern one.
    pub lun: Lun,
    /// The request's own name.
    pub itt: Itt,
    /// The task concerned, for the functions that concern one.
    pub referenced_task: Option<Itt>,
    /// CmdSN.
    pub cmd_sn: Sn,
    /// ExpStatSN.
    pub exp_stat_sn: Sn,
    /// ABORT TASK: the CmdSN of the task to abort.
    pub ref_cmd_sn: Sn,
    /// TASK REASSIGN: the next DataSN or R2TSN that the initiator expects.
    pub exp_data_sn: Sn,
}

/// What a task management request asks for (section 11.5.1; 9 to 12 are RFC 7144's).
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
    /// Take a task over to this connection.
    TaskReassign = 8,
    /// Is the task there?
    QueryTask = 9,
    /// Is any task of this session there?
    QueryTaskSet = 10,
    /// End what this session has under way.
    ITNexusReset = 11,
    /// Is a unit attention waiting?
    QueryAsynchronousEvent = 12,
    /// A function that no standard names; it gets "not supported" for an answer, not a Reject.
    #[num_enum(catch_all)]
    Other(u8),
}

impl TaskManagementRequest {
    /// Parses the header.
    pub fn parse(bhs: &Bhs) -> Result<TaskManagementRequest, Malformed> {
        bhs.expect(Opcode::TaskManagementRequest)?;
        bhs.expect_no_data()?;
        Ok(TaskManagementRequest {
            immediate: bhs.immediate(),
            function: TaskManagementFunction::from(bhs.u8(1) & !FINAL),
            lun: bhs.lun(),
            itt: bhs.itt()?,
            referenced_task: Itt::new(bhs.u32(20)),
            cmd_sn: Sn(bhs.u32(24)),
            exp_stat_sn: Sn(bhs.u32(28)),
            ref_cmd_sn: Sn(bhs.u32(32)),
            exp_data_sn: Sn(bhs.u32(36)),
        })
    }

    /// Builds the header.
    pub fn emit(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::TaskManagementRequest);
        bhs.set_immediate(self.immediate);
        bhs.set_u8(1, FINAL | u8::from(self.function));
        bhs.set_lun(self.lun);
        bhs.set_u32(16, self.itt.get());
        bhs.set_u32(20, Itt::wire(self.referenced_task));
        bhs.set_u32(24, self.cmd_sn.0);
        bhs.set_u32(28, self.exp_stat_sn.0);
        bhs.set_u32(32, self.ref_cmd_sn.0);
        bhs.set_u32(36, self.exp_data_sn.0);
        bhs
    }
}

#[cfg(test)]
mod tests {
    use super::super::round_trip::{altered, assert_any_header_holds, assert_golden};
    use super::*;

    fn abort_task() -> TaskManagementRequest {
        TaskManagementRequest {
            immediate: true,
            function: TaskManagementFunction::AbortTask,
            lun: Lun(0),
            itt: Itt::new(0x12).expect("a tag"),
            referenced_task: Itt::new(0x11),
            cmd_sn: Sn(6),
            exp_stat_sn: Sn(8),
            ref_cmd_sn: Sn(5),
            exp_data_sn: Sn(0),
        }
    }

    #[test]
    fn golden() {
        let golden = "42810000 00000000 00000000 00000000 00000012 00000011
                      00000006 00000008 00000005 00000000 00000000 00000000";
        assert_golden(&abort_task(), golden, TaskManagementRequest::parse, TaskManagementRequest::emit);
    }

    #[test]
    fn any_header_holds() {
        assert_any_header_holds(
            Opcode::TaskManagementRequest,
            TaskManagementRequest::parse,
            TaskManagementRequest::emit,
        );
    }

    #[test]
    fn data_is_refused() {
        let bhs = altered(abort_task().emit(), 7, 4);
        assert_eq!(TaskManagementRequest::parse(&bhs), Err(Malformed::UnexpectedData));
    }

    #[test]
    fn every_number_is_its_function_s_own() {
        assert!((0..0x80).all(|number| u8::from(TaskManagementFunction::from(number)) == number));
    }
}
