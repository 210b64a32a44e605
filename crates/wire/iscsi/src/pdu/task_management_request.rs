//! Task Management Function Request (RFC 7143 section 11.5).

use std::fmt;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskManagementFunction {
    /// 1: abort one task.
    AbortTask,
    /// 2: abort all tasks of this session on a logical unit.
    AbortTaskSet,
    /// 3: clear an auto contingent allegiance.
    ClearAca,
    /// 4: abort all tasks on a logical unit.
    ClearTaskSet,
    /// 5: reset a logical unit.
    LogicalUnitReset,
    /// 6: reset all logical units.
    TargetWarmReset,
    /// 7: reset all logical units and end all sessions.
    TargetColdReset,
    /// 8: take a task over to this connection.
    TaskReassign,
    /// 9: is the task there?
    QueryTask,
    /// 10: is any task of this session there?
    QueryTaskSet,
    /// 11: end what this session has under way.
    ITNexusReset,
    /// 12: is a unit attention waiting?
    QueryAsynchronousEvent,
    /// A function that no standard names; it gets "not supported" for an answer, not a Reject.
    Other(u8),
}

impl TaskManagementRequest {
    /// Parses the header.
    pub fn parse(bhs: &Bhs) -> Result<TaskManagementRequest, Malformed> {
        bhs.expect(Opcode::TaskManagementRequest)?;
        bhs.expect_no_data()?;
        Ok(TaskManagementRequest {
            immediate: bhs.immediate(),
            function: TaskManagementFunction::new(bhs.u8(1) & !FINAL),
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
        bhs.set_u8(1, FINAL | self.function.number());
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

impl TaskManagementFunction {
    /// The function of this number (seven bits).
    pub fn new(number: u8) -> TaskManagementFunction {
        use TaskManagementFunction as F;
        match number {
            1 => F::AbortTask,
            2 => F::AbortTaskSet,
            3 => F::ClearAca,
            4 => F::ClearTaskSet,
            5 => F::LogicalUnitReset,
            6 => F::TargetWarmReset,
            7 => F::TargetColdReset,
            8 => F::TaskReassign,
            9 => F::QueryTask,
            10 => F::QueryTaskSet,
            11 => F::ITNexusReset,
            12 => F::QueryAsynchronousEvent,
            other => F::Other(other),
        }
    }

    /// The function's number.
    pub fn number(self) -> u8 {
        use TaskManagementFunction as F;
        match self {
            F::AbortTask => 1,
            F::AbortTaskSet => 2,
            F::ClearAca => 3,
            F::ClearTaskSet => 4,
            F::LogicalUnitReset => 5,
            F::TargetWarmReset => 6,
            F::TargetColdReset => 7,
            F::TaskReassign => 8,
            F::QueryTask => 9,
            F::QueryTaskSet => 10,
            F::ITNexusReset => 11,
            F::QueryAsynchronousEvent => 12,
            F::Other(number) => number,
        }
    }
}

impl fmt::Display for TaskManagementRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Task Management Request{} {:?} itt {} lun {} task {} ref_cmd_sn {} cmd_sn {} exp_stat_sn {}",
            if self.immediate { " [I]" } else { "" },
            self.function,
            self.itt,
            self.lun,
            super::tag::or_dash(self.referenced_task),
            self.ref_cmd_sn,
            self.cmd_sn,
            self.exp_stat_sn,
        )
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
        assert!((0..0x80).all(|number| TaskManagementFunction::new(number).number() == number));
    }
}
