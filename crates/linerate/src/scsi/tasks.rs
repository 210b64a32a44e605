//! Task management functions, which end other commands.

use initiator::{Lun, Management, TaskManagementResult};

use super::unit::UnitArguments;
use crate::failure::{Failure, Kind};

/// Those that a person may have a use for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Function {
    AbortTaskSet,
    ClearTaskSet,
    ResetLun,
    ResetTarget,
}

impl Function {
    fn on(self, lun: Lun) -> Management {
        match self {
            Function::AbortTaskSet => Management::AbortTaskSet(lun),
            Function::ClearTaskSet => Management::ClearTaskSet(lun),
            Function::ResetLun => Management::LogicalUnitReset(lun),
            Function::ResetTarget => Management::TargetWarmReset,
        }
    }
}

pub(super) fn manage(asked: &UnitArguments, function: Function) -> Result<(), Failure> {
    asked.with(async |unit| {
        let management = function.on(unit.lun());
        match unit.target().manage(management).await? {
            TaskManagementResult::FunctionComplete | TaskManagementResult::FunctionSucceeded => Ok(()),
            refused @ TaskManagementResult::LunDoesNotExist => {
                Err(Failure::new(Kind::NotFound, format_args!("{management}: {refused}")))
            }
            refused => Err(Failure::failed(format_args!("{management}: {refused}"))),
        }
    })
}
