//! TEST UNIT READY (SPC-4 6.47). The gate has asked all there is to ask.

use super::Call;
use crate::failure::Failure;
use crate::plan::Plan;

pub(crate) fn plan(call: &mut Call<'_>) -> Result<Plan, Failure> {
    call.good()
}
