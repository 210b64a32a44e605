//! START STOP UNIT (SBC-3 5.25) and PREVENT ALLOW MEDIUM REMOVAL (SPC-4 6.14): the medium that comes and goes.

use super::Call;
use crate::attention::Attention;
use crate::failure::Failure;
use crate::nexus::NexusId;
use crate::plan::{Outcome, Plan};
use crate::sense::{Condition, SenseKey, asc};
use crate::unit::{DeviceAccess, Medium, Reserved, State};

/// Stopping does no more than flush: a volume has no spindle, and initiators do not expect to find it stopped.
/// Power conditions are hints that we have no use for.
pub(crate) fn plan_start_stop(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let (start, load_eject) = (call.cdb.bit(4, START), call.cdb.bit(4, LOEJ));
    let no_power_condition = call.cdb.byte(4) >> 4 == 0;
    if !start || !no_power_condition {
        // SBC-3 table 13: allowed under a persistent reservation only if it starts the unit.
        call.unit.look(|state| state.reserved(call.nexus.id, Reserved::Write))?;
    }
    if load_eject && no_power_condition && !call.unit.options().removable {
        return Err(Condition::invalid_bit(4, LOEJ).into());
    }
    let id = call.nexus.id;
    match (no_power_condition, load_eject, start) {
        (true, true, true) => {
            call.unit.change(|state| load(state, id))?;
            call.good()
        }
        (true, true, false) => plan_eject(call),
        (true, false, false) if !call.cdb.bit(4, NO_FLUSH) => call.run(0, |access| async move {
            flush_loaded(&access).await?;
            Ok(Outcome::default())
        }),
        _ => call.good(),
    }
}

fn plan_eject(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let flush = !call.cdb.bit(4, NO_FLUSH);
    call.unit.look(removable_now)?;
    call.run(0, move |access| async move {
        if flush {
            flush_loaded(&access).await?;
        }
        // Somebody may have prevented it in the meantime.
        access.change(|state| {
            removable_now(state)?;
            state.medium = Medium::Ejected;
            Ok(Outcome::default())
        })
    })
}

async fn flush_loaded(access: &DeviceAccess) -> Result<(), Failure> {
    if access.look(|state| state.medium) == Medium::Loaded {
        access.flush().await?;
    }
    Ok(())
}

/// The others must learn that there is a medium again, and that it may be another. PREVENT locks an empty drive too:
/// libiscsi's PreventAllow.Eject loads in vain.
fn load(state: &mut State, by: NexusId) -> Result<(), Failure> {
    if state.medium == Medium::Ejected {
        removable_now(state)?;
        state.medium = Medium::Loaded;
        state.raise_others(by, Attention::MediumChanged);
    }
    Ok(())
}

fn removable_now(state: &State) -> Result<(), Failure> {
    if state.nexuses.iter().any(|nexus| nexus.prevents_removal) {
        return Err(Condition::new(SenseKey::IllegalRequest, asc::MEDIUM_REMOVAL_PREVENTED).into());
    }
    Ok(())
}

/// Each nexus prevents and allows for itself.
pub(crate) fn plan_prevent(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let prevent = match call.cdb.byte(4) & 3 {
        0 => false,
        1 => true,
        _ => return Err(Condition::invalid_bit(4, 1).into()),
    };
    let id = call.nexus.id;
    if prevent {
        // SPC-4 table 66: allowing is allowed under any reservation, preventing is not.
        call.unit.look(|state| state.reserved(id, Reserved::Write))?;
    }
    call.unit.change(|state| {
        if let Some(nexus) = state.nexus(id) {
            nexus.prevents_removal = prevent;
        }
    });
    call.good()
}

const NO_FLUSH: u8 = 2;
const LOEJ: u8 = 1;
const START: u8 = 0;
