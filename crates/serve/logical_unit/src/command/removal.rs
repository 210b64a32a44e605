//! START STOP UNIT (SBC-3 5.25) and PREVENT ALLOW MEDIUM REMOVAL (SPC-4 6.14).

use scsi::{Condition, SenseKey, asc};

use crate::command::call::Call;
use crate::failure::Failure;
use crate::nexus::{Attention, NexusId};
use crate::plan::{Outcome, Plan};
use crate::state::{Medium, Reserved, UnitState};

/// There is no spindle to stop, but a stopped unit behaves as if there were: commands that need the medium
/// are rejected until the unit is started again (SBC-3 4.20). Only a fixed medium is stopped. libiscsi's
/// StartStopUnit.NoLoej expects a removable medium to be ready after START=0, like a drive that spins up for
/// the next command. The active, idle and standby power conditions do not differ here: each of them starts a
/// stopped unit. The command completes when the change is complete, even with IMMED.
pub(crate) fn plan_start_stop(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let (start, load_eject) = (call.cdb.bit(4, START), call.cdb.bit(4, LOEJ));
    let no_power_condition = call.cdb.byte(4) >> 4 == 0;
    if !start || !no_power_condition {
        // SBC-3 table 13: allowed under a persistent reservation only if it starts the unit.
        call.unit
            .look(|state| state.reserved(call.nexus.id, Reserved::Write))?;
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
        (true, true, false) => {
            call.unit.look(removable_now)?;
            plan_flush(call, |state| {
                // Another nexus may have prevented the removal in the meantime.
                removable_now(state)?;
                debug_assert_ne!(
                    state.medium,
                    Medium::Stopped,
                    "only a fixed medium is stopped"
                );
                state.medium = Medium::Ejected;
                Ok(())
            })
        }
        (true, false, false) => {
            let removable = call.unit.options().removable;
            plan_flush(call, move |state| {
                if !removable {
                    state.stop();
                }
                Ok(())
            })
        }
        (true, false, true) => start_unit(call),
        (false, ..) => match call.cdb.byte(4) >> 4 {
            ACTIVE | IDLE | STANDBY => start_unit(call),
            _ => call.good(),
        },
    }
}

fn start_unit(call: &Call<'_>) -> Result<Plan, Failure> {
    call.unit.change(UnitState::start);
    call.good()
}

/// Flushes the cache, then ejects or stops the medium.
fn plan_flush(
    call: &Call<'_>,
    change: impl FnOnce(&mut UnitState) -> Result<(), Failure> + Send + 'static,
) -> Result<Plan, Failure> {
    let flush = !call.cdb.bit(4, NO_FLUSH);
    call.run(0, move |access| async move {
        if flush && access.look(|state| state.medium) != Medium::Ejected {
            access.flush().await?;
        }
        access.change(|state| {
            // A SANITIZE or FORMAT UNIT may have started since the command was accepted, and needs the medium
            // until it ends.
            state.operations.in_progress()?;
            change(state)
        })?;
        Ok(Outcome::default())
    })
}

/// Loads the medium. Establishes a unit attention for the other nexuses, because a medium is present again
/// and may have changed. PREVENT also locks an empty drive: libiscsi's PreventAllow.Eject expects loading to
/// fail.
fn load(state: &mut UnitState, by: NexusId) -> Result<(), Failure> {
    if state.medium == Medium::Ejected {
        removable_now(state)?;
        state.medium = Medium::Loaded;
        state.raise_others(by, Attention::MediumChanged);
    }
    Ok(())
}

fn removable_now(state: &UnitState) -> Result<(), Failure> {
    if state.nexuses.iter().any(|nexus| nexus.prevents_removal) {
        return Err(Condition::new(SenseKey::IllegalRequest, asc::MEDIUM_REMOVAL_PREVENTED).into());
    }
    Ok(())
}

/// Plans PREVENT ALLOW MEDIUM REMOVAL. Each nexus can prevent removal independently of the others.
pub(crate) fn plan_prevent(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let prevent = match call.cdb.byte(4) & 3 {
        0 => false,
        1 => true,
        _ => return Err(Condition::invalid_bit(4, 1).into()),
    };
    let id = call.nexus.id;
    if prevent {
        // SPC-4 table 66: allowing removal is permitted under any reservation, preventing it is not.
        call.unit
            .look(|state| state.reserved(id, Reserved::Write))?;
    }
    call.unit.change(|state| {
        if let Some(nexus) = state.nexus(id) {
            nexus.prevents_removal = prevent;
        }
    });
    call.good()
}

/// POWER CONDITION (SBC-3 table 77).
const ACTIVE: u8 = 1;
const IDLE: u8 = 2;
const STANDBY: u8 = 3;
const NO_FLUSH: u8 = 2;
const LOEJ: u8 = 1;
const START: u8 = 0;
