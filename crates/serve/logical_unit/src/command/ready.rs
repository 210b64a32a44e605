//! TEST UNIT READY (SPC-4 6.47). The gate has made all the checks.

use super::Call;
use crate::failure::Failure;
use crate::plan::Plan;

pub(crate) fn plan(call: &mut Call<'_>) -> Result<Plan, Failure> {
    call.good()
}
