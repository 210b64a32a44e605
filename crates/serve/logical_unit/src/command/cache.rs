//! SYNCHRONIZE CACHE(10) and (16), PRE-FETCH(10) and (16) (SBC-3 5.9, 5.10, 5.26, 5.27).

use super::{Call, transfer};
use crate::failure::Failure;
use crate::plan::{Outcome, Plan};

/// Everything goes to stable storage, whatever blocks are named. With IMMED too GOOD comes when it is there:
/// an answer that comes early would be worth nothing.
pub(crate) fn plan_synchronize(call: &mut Call<'_>) -> Result<Plan, Failure> {
    transfer::within(call.cdb.extent(), call.geometry())?;
    call.run(0, |access| async move {
        access.flush().await?;
        Ok(Outcome::default())
    })
}

/// There is no cache of ours to fetch into; the device's own sees to itself. GOOD says that not all blocks
/// are in the cache, CONDITION MET would promise that they are.
pub(crate) fn plan_prefetch(call: &mut Call<'_>) -> Result<Plan, Failure> {
    transfer::within(call.cdb.extent(), call.geometry())?;
    call.good()
}
