//! MODE SENSE and MODE SELECT at a logical unit.

use block::Buffer;
use scsi::Condition;

use super::Pages;
use super::select::Select;
use super::sense::{Medium, Sense};
use crate::attention::Attention;
use crate::command::Call;
use crate::failure::Failure;
use crate::nexus::NexusId;
use crate::plan::{Outcome, Plan};
use crate::unit::{DeviceAccess, LogicalUnit, UnitState};

/// MODE SENSE(6) and (10).
pub(crate) fn plan_sense(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let sense = Sense::parse(&call.cdb.full()).ok_or(Condition::invalid_field(0))?;
    let data = call.unit.look(|state| sense.data(&state.modes, call.unit.mode_medium(state)))?;
    call.parameter_data(data, sense.allocation as u32)
}

/// MODE SELECT(6) and (10).
pub(crate) fn plan_select(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let (select, length) = Select::parse(&call.cdb.full(), call.unit.volume().can_save())?;
    let id = call.nexus.id;
    call.receive(length as u32, 0, move |access, list| select_pages(access, id, select, length, list))
}

/// Once it saves it is run to its end.
async fn select_pages(
    unit: DeviceAccess,
    id: NexusId,
    select: Select,
    length: usize,
    list: Buffer,
) -> Result<Outcome, Failure> {
    if list.len() < length {
        return Err(Condition::parameter_list_length().into());
    }
    let lock = unit.volume().lock_to_save().await;
    let (mut next, medium) = unit.look(|state| (state.modes.clone(), unit.mode_medium(state)));
    let before = next.clone();
    let changed = select.apply(&mut next, &list, medium)?;
    if select.save {
        unit.commit();
        unit.volume().save_front_end_state(next.to_bytes(), &lock).await?;
    }
    unit.change(|state| state.take_modes(id, next, changed));
    settle_cache(&unit, &before).await?;
    Ok(Outcome::default())
}

/// What was cached before the write cache was switched off is written out before that is answered: from then
/// on, an initiator need not flush (SBC-3 6.5.5).
async fn settle_cache(access: &DeviceAccess, before: &Pages) -> Result<(), Failure> {
    if before.write_cache() && !access.look(|state| state.modes.write_cache()) {
        access.flush().await?;
    }
    Ok(())
}

impl LogicalUnit {
    fn mode_medium(&self, state: &UnitState) -> Medium {
        let geometry = self.device().geometry();
        Medium {
            blocks: geometry.blocks.0,
            block_bytes: geometry.block_size.bytes(),
            write_protected: state.writable().is_err(),
            dpo_fua: true,
            can_save: self.volume().can_save(),
        }
    }
}

impl UnitState {
    fn take_modes(&mut self, by: NexusId, next: Pages, changed: bool) {
        self.volume.set_write_protected(next.write_protect());
        self.modes = next;
        if changed {
            self.raise_others(by, Attention::ModeParametersChanged);
        }
    }
}
