//! Task Management Function Response (RFC 7143 section 11.6).

use std::fmt;

use super::{Bhs, Itt, Malformed, Opcode};
use crate::serial::Sn;

/// What became of a task management request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskManagementResponse {
    /// The response code.
    pub result: TaskManagementResult,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// StatSN.
    pub stat_sn: Sn,
    /// ExpCmdSN.
    pub exp_cmd_sn: Sn,
    /// MaxCmdSN.
    pub max_cmd_sn: Sn,
}

/// Outcome of a task management function (section 11.6.1; 7 is RFC 7144's).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskManagementResult {
    /// 0: done.
    FunctionComplete,
    /// 1: there is no such task.
    TaskDoesNotExist,
    /// 2: there is no such logical unit.
    LunDoesNotExist,
    /// 3: the task still belongs to another connection.
    TaskStillAllegiant,
    /// 4: tasks cannot be reassigned.
    ReassignmentNotSupported,
    /// 5: the function is not supported.
    NotSupported,
    /// 6: the initiator may not do that.
    AuthorizationFailed,
    /// 7: the query's answer is yes.
    FunctionSucceeded,
    /// 255: refused.
    FunctionRejected,
    /// Any other number.
    Other(u8),
}

impl TaskManagementResponse {
    /// Parses the header.
    pub fn parse(bhs: &Bhs) -> Result<TaskManagementResponse, Malformed> {
        bhs.expect(Opcode::TaskManagementResponse)?;
        bhs.expect_no_data()?;
        Ok(TaskManagementResponse {
            result: TaskManagementResult::new(bhs.u8(2)),
            itt: bhs.itt()?,
            stat_sn: Sn(bhs.u32(24)),
            exp_cmd_sn: Sn(bhs.u32(28)),
            max_cmd_sn: Sn(bhs.u32(32)),
        })
    }

    /// Builds the header.
    pub fn emit(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::TaskManagementResponse);
        bhs.set_u8(2, self.result.number());
        bhs.set_u32(16, self.itt.get());
        bhs.set_u32(24, self.stat_sn.0);
        bhs.set_u32(28, self.exp_cmd_sn.0);
        bhs.set_u32(32, self.max_cmd_sn.0);
        bhs
    }
}

impl TaskManagementResult {
    /// The outcome of this number.
    pub fn new(number: u8) -> TaskManagementResult {
        use TaskManagementResult as R;
        match number {
            0 => R::FunctionComplete,
            1 => R::TaskDoesNotExist,
            2 => R::LunDoesNotExist,
            3 => R::TaskStillAllegiant,
            4 => R::ReassignmentNotSupported,
            5 => R::NotSupported,
            6 => R::AuthorizationFailed,
            7 => R::FunctionSucceeded,
            255 => R::FunctionRejected,
            other => R::Other(other),
        }
    }

    /// The outcome's number.
    pub fn number(self) -> u8 {
        use TaskManagementResult as R;
        match self {
            R::FunctionComplete => 0,
            R::TaskDoesNotExist => 1,
            R::LunDoesNotExist => 2,
            R::TaskStillAllegiant => 3,
            R::ReassignmentNotSupported => 4,
            R::NotSupported => 5,
            R::AuthorizationFailed => 6,
            R::FunctionSucceeded => 7,
            R::FunctionRejected => 255,
            R::Other(number) => number,
        }
    }
}

/// As a person would say it.
impl fmt::Display for TaskManagementResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TaskManagementResult::FunctionComplete => write!(f, "done"),
            TaskManagementResult::TaskDoesNotExist => write!(f, "there is no such task"),
            TaskManagementResult::LunDoesNotExist => write!(f, "there is no such LUN"),
            TaskManagementResult::TaskStillAllegiant => write!(f, "the task belongs to another connection"),
            TaskManagementResult::ReassignmentNotSupported => {
                write!(f, "the target does not reassign tasks to other connections")
            }
            TaskManagementResult::NotSupported => write!(f, "the target does not have this function"),
            TaskManagementResult::AuthorizationFailed => write!(f, "this initiator may not do that"),
            TaskManagementResult::FunctionSucceeded => write!(f, "yes"),
            TaskManagementResult::FunctionRejected => write!(f, "the target refused"),
            TaskManagementResult::Other(code) => write!(f, "an answer that no standard has: {code}"),
        }
    }
}

impl fmt::Display for TaskManagementResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Task Management Response {:?} itt {} stat_sn {} exp_cmd_sn {} max_cmd_sn {}",
            self.result, self.itt, self.stat_sn, self.exp_cmd_sn, self.max_cmd_sn,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::round_trip::{assert_any_header_holds, assert_golden};
    use super::*;

    #[test]
    fn golden() {
        let response = TaskManagementResponse {
            result: TaskManagementResult::FunctionRejected,
            itt: Itt::new(0x12).expect("a tag"),
            stat_sn: Sn(8),
            exp_cmd_sn: Sn(6),
            max_cmd_sn: Sn(0x105),
        };
        let golden = "2280ff00 00000000 00000000 00000000 00000012 00000000
                      00000008 00000006 00000105 00000000 00000000 00000000";
        assert_golden(&response, golden, TaskManagementResponse::parse, TaskManagementResponse::emit);
    }

    #[test]
    fn any_header_holds() {
        assert_any_header_holds(
            Opcode::TaskManagementResponse,
            TaskManagementResponse::parse,
            TaskManagementResponse::emit,
        );
    }

    #[test]
    fn every_number_is_its_result_s_own() {
        assert!((0..=255).all(|number| TaskManagementResult::new(number).number() == number));
    }
}
