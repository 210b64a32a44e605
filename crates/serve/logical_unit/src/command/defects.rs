//! READ DEFECT DATA(10) and (12) (SBC-3 5.17 and 5.18): both lists are valid and empty.

use super::Call;
use crate::failure::Failure;
use crate::plan::Plan;

pub(crate) fn plan_10(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let header = vec![0, call.cdb.byte(2) & REQUEST, 0, 0];
    call.parameter_data(header, u32::from(call.cdb.u16(7)))
}

pub(crate) fn plan_12(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let header = vec![0, call.cdb.byte(1) & REQUEST, 0, 0, 0, 0, 0, 0];
    call.parameter_data(header, call.cdb.u32(6))
}

/// REQ_PLIST, REQ_GLIST and DEFECT LIST FORMAT, which the header gives back in the same bits.
const REQUEST: u8 = 0x1f;
