//! PERSISTENT RESERVE IN and OUT at a logical unit: the commands, and the notification of the nexuses
//! concerned.

use std::sync::Arc;

use block::Buffer;
use volume::Volume;
use volume::reservations::{Change, Changed, Registration, Registrations};

use super::out::{ListContext, Request};
use super::report;
use crate::command::Call;
use crate::failure::Failure;
use crate::nexus::{NexusId, NexusName};
use crate::plan::{DataIn, Effect, Outcome, Plan};
use crate::unit::{DeviceAccess, UnitState};

/// PERSISTENT RESERVE IN (SPC-4 6.15).
pub(crate) fn plan_in(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let (action, allocation) = report::parse(&call.cdb.full())?;
    let volume = call.unit.volume();
    not_reserved(volume)?;
    let data = report::report(&volume.reservations(), action, volume.can_save());
    call.parameter_data(data, allocation as u32)
}

/// PERSISTENT RESERVE OUT (SPC-4 6.16).
pub(crate) fn plan_out(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let request = Request::parse(&call.cdb.full())?;
    not_reserved(call.unit.volume())?;
    let id = call.nexus.id;
    call.receive(request.length as u32, 0, move |access, list| carry_out(access, id, request, list))
}

/// While any nexus holds the unit by RESERVE, PERSISTENT RESERVE IN and OUT from every nexus conflict (SPC-2
/// 5.5.3).
fn not_reserved(volume: &Volume) -> Result<(), Failure> {
    match volume.reserved_by() {
        None => Ok(()),
        Some(_) => Err(Failure::ReservationConflict),
    }
}

/// Saves the new state, then changes it, then answers: an acknowledged change is saved, and a change that
/// could not be saved has no effect. Once saving has begun the command is run to its end.
async fn carry_out(
    unit: DeviceAccess,
    id: NexusId,
    request: Request,
    list: Buffer,
) -> Result<Outcome, Failure> {
    let lock = unit.volume().lock_to_save().await;
    let (by, attached) = unit.look(|state| {
        let attached: Vec<NexusName> = state.nexuses.iter().map(|nexus| nexus.name.clone()).collect();
        (state.name(id).cloned(), attached)
    });
    let mut next = Registrations::clone(&unit.volume().reservations());
    let by = by.ok_or(Failure::ReservationConflict)?;
    let context = ListContext { by: &by, attached: &attached, can_persist: unit.volume().can_save() };
    let change = request.read(&list, &context)?;
    let abort = matches!(change, Change::Preempt { abort: true, .. });
    let changed = next.change(&by, change)?;
    unit.commit();
    unit.volume().save_reservations(&next, &lock).await?;
    let preempted = unit.change(|state| {
        unit.volume().set_reservations(next, &lock);
        state.tell(id, &changed)
    });
    let demand = || Effect::AbortTasks { unit: Arc::clone(&unit), nexuses: preempted, by: id };
    let effects = abort.then(demand).into_iter().collect();
    Ok(Outcome { data: DataIn::None, effects })
}

impl UnitState {
    /// Establishes unit attentions for the nexuses that a change of reservations affects. Returns the
    /// preempted nexuses without `by`.
    fn tell(&mut self, by: NexusId, changed: &Changed) -> Vec<NexusId> {
        for notice in &changed.notices {
            for id in self.covered(&notice.who, by) {
                self.raise(id, notice.what.into());
            }
        }
        changed.preempted.iter().flat_map(|preempted| self.covered(preempted, by)).collect()
    }

    /// The attached nexuses that a registration covers, without `by`.
    fn covered(&self, registration: &Registration, by: NexusId) -> Vec<NexusId> {
        let others = self.nexuses.iter().filter(|nexus| nexus.id != by);
        others.filter(|nexus| registration.covers(&nexus.name)).map(|nexus| nexus.id).collect()
    }
}
