//! What other people's targets answer to the commands that block devices in general do not have.

use initiator::{CommandError, Management, TaskManagementResult};

use crate::scenes::{attach, with};
use crate::tgt::Tgt;

#[test]
fn a_function_is_answered_until_the_target_dies() {
    with(Tgt::start(), async |mut tgt| {
        let unit = attach(&tgt.url("", 1, "")).await.unit();
        let reset = Management::LogicalUnitReset(unit.lun());
        assert_eq!(unit.target().manage(reset).await, Ok(TaskManagementResult::FunctionComplete));
        tgt.kill();
        assert_eq!(unit.target().manage(reset).await, Err(CommandError::ConnectionLost));
    });
}
