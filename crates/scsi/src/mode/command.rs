//! MODE SENSE and MODE SELECT at a logical unit.

use std::sync::Arc;

use block::Buffer;

use super::Pages;
use super::select::Select;
use super::sense::{Medium, Sense};
use crate::attention::Attention;
use crate::command::Call;
use crate::failure::Failure;
use crate::nexus::NexusId;
use crate::plan::{Outcome, Plan};
use crate::sense::Condition;
use crate::unit::{LogicalUnit, State};

/// MODE SENSE(6) and (10).
pub(crate) fn plan_sense(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let sense = Sense::parse(&call.cdb.full()).ok_or(Condition::invalid_field(0))?;
    let data = call.unit.look(|state| sense.data(&state.modes, call.unit.mode_medium(state)))?;
    call.parameter_data(data, sense.allocation as u32)
}

/// MODE SELECT(6) and (10).
pub(crate) fn plan_select(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let (select, length) = Select::parse(&call.cdb.full(), call.unit.can_keep())?;
    let id = call.nexus.id;
    call.receive(length as u32, move |unit, list| select_pages(unit, id, select, length, list))
}

async fn select_pages(
    unit: Arc<LogicalUnit>,
    id: NexusId,
    select: Select,
    length: usize,
    list: Buffer,
) -> Result<Outcome, Failure> {
    if list.len() < length {
        return Err(Condition::parameter_list_length().into());
    }
    let turn = unit.turn_to_keep().await;
    let (mut next, medium) = unit.look(|state| (state.modes.clone(), unit.mode_medium(state)));
    let before = next.clone();
    let changed = select.apply(&mut next, &list, medium)?;
    if select.save {
        unit.save_modes(&next, &turn).await?;
    }
    unit.change(|state| state.take_modes(id, next, changed));
    unit.settle_cache(&before).await?;
    Ok(Outcome::default())
}

impl LogicalUnit {
    fn mode_medium(&self, state: &State) -> Medium {
        let geometry = self.device().geometry();
        Medium {
            blocks: geometry.blocks.0,
            block_bytes: geometry.block_size.bytes(),
            write_protected: state.writable(self.read_only()).is_err(),
            dpo_fua: true,
            can_save: self.can_keep(),
        }
    }

    /// What was cached before the write cache was switched off is written out before that is answered: from then
    /// on, an initiator need not flush (SBC-3 6.5.5).
    async fn settle_cache(&self, before: &Pages) -> Result<(), Failure> {
        if before.write_cache() && !self.look(|state| state.modes.write_cache()) {
            self.device().flush().await?;
        }
        Ok(())
    }
}

impl State {
    fn take_modes(&mut self, by: NexusId, next: Pages, changed: bool) {
        self.modes = next;
        if changed {
            self.raise_others(by, Attention::ModeParametersChanged);
        }
    }
}
