//! RESERVE and RELEASE, 6 and 10 bytes long (SPC-2 7.21 to 7.24): the SPC-2 reservation, which belongs to one
//! nexus and ends with it. SPC-4 has removed these commands; clusters and boot firmware still use them. Their
//! effect is defined by the volume ([`volume::Volume::reserve`]). Third-party reservations and extents, which
//! were optional, are refused.

use scsi::Condition;
use volume::reservations::Refusal;
use volume::{Requester, Volume};

use crate::command::Call;
use crate::failure::Failure;
use crate::plan::Plan;

pub(crate) fn plan_reserve(call: &mut Call<'_>) -> Result<Plan, Failure> {
    plan(call, Volume::reserve)
}

pub(crate) fn plan_release(call: &mut Call<'_>) -> Result<Plan, Failure> {
    plan(call, Volume::release)
}

fn plan(
    call: &mut Call<'_>,
    change: impl FnOnce(&Volume, &Requester<'_>) -> Result<(), Refusal>,
) -> Result<Plan, Failure> {
    whole_unit_for_oneself(call)?;
    call.unit.change(|state| {
        let requester = state.requester(call.nexus.id).ok_or(Failure::ReservationConflict)?;
        Ok::<_, Failure>(change(call.unit.volume(), &requester)?)
    })?;
    call.good()
}

/// 3RDPTY, LONGID and EXTENT are zero.
fn whole_unit_for_oneself(call: &Call<'_>) -> Result<(), Condition> {
    match [4, 1, 0].into_iter().find(|&bit| call.cdb.bit(1, bit)) {
        Some(bit) => Err(Condition::invalid_bit(1, bit)),
        None => Ok(()),
    }
}
