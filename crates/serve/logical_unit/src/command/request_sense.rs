//! REQUEST SENSE (SPC-4 6.39): with autosense, it returns pending unit attentions and pollable sense data.

use scsi::{Condition, SenseFormat, SenseKey, asc};

use super::Call;
use crate::failure::Failure;
use crate::plan::Plan;

pub(crate) fn plan(call: &mut Call<'_>) -> Result<Plan, Failure> {
    call.command.returns_data()?; // before the attention is taken
    let format = if call.cdb.bit(1, 0) { SenseFormat::Descriptor } else { SenseFormat::Fixed };
    let allocation_length = u32::from(call.cdb.byte(4));
    let unit = call.unit;
    let condition = unit.take_attention(call).unwrap_or_else(|| unit.look(|state| pollable(state.ready())));
    call.parameter_data(condition.encode(format).bytes().to_vec(), allocation_length)
}

/// Sense data that can be polled (SPC-4 5.11.2): why the unit is not ready, or that there is nothing to tell.
fn pollable(ready: Result<(), Condition>) -> Condition {
    ready.err().unwrap_or(Condition::new(SenseKey::NoSense, asc::NO_ADDITIONAL_SENSE_INFORMATION))
}
