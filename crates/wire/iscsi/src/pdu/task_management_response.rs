//! Task Management Function Response (RFC 7143 section 11.6).

use derive_more::Display;
use num_enum::{FromPrimitive, IntoPrimitive};

use super::{Bhs, Itt, Malformed, Opcode, TargetNumbers};

/// What became of a task management request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskManagementResponse {
    /// The response code.
    pub result: TaskManagementResult,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub numbers: TargetNumbers,
}

/// Outcome of a task management function (section 11.6.1; 7 is RFC 7144's).
#[expect(missing_docs, reason = "where a variant has no more to say than it displays")]
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
    #[display("the target does not reassign tasks to other connections")]
    ReassignmentNotSupported = 4,
    #[display("the target does not have this function")]
    NotSupported = 5,
    #[display("this initiator may not do that")]
    AuthorizationFailed = 6,
    #[display("yes")]
    FunctionSucceeded = 7,
    #[display("the target refused")]
    FunctionRejected = 255,
    #[display("an answer that no standard has: {_0}")]
    #[num_enum(catch_all)]
    Other(u8) = 254,
}

impl TaskManagementResponse {
    /// Parses the header.
    pub fn parse(bhs: &Bhs) -> Result<TaskManagementResponse, Malformed> {
        bhs.expect(Opcode::TaskManagementResponse)?;
        bhs.expect_no_data()?;
        Ok(TaskManagementResponse {
            result: TaskManagementResult::from(bhs.u8(2)),
            itt: bhs.itt()?,
            numbers: bhs.numbers(),
        })
    }

    /// Builds the header.
    pub fn emit(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::TaskManagementResponse);
        bhs.set_u8(2, self.result.into());
        bhs.set_u32(16, self.itt.get());
        bhs.set_numbers(self.numbers);
        bhs
    }
}

#[cfg(test)]
mod tests {
    use super::super::round_trip::{assert_any_header_holds, assert_golden};
    use super::*;
    use crate::serial::Sn;

    #[test]
    fn golden() {
        let response = TaskManagementResponse {
            result: TaskManagementResult::FunctionRejected,
            itt: Itt::new(0x12).expect("a tag"),
            numbers: TargetNumbers { stat_sn: Sn(8), exp_cmd_sn: Sn(6), max_cmd_sn: Sn(0x105) },
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
        assert!((0..=255).all(|number| u8::from(TaskManagementResult::from(number)) == number));
    }
}
