//! RESERVE and RELEASE, 6 and 10 bytes long (SPC-2 7.21 to 7.24): the reservation of old, which belongs to one
//! nexus and ends with it. SPC-4 has dropped them; clusters and boot firmware have not.
//!
//! They and persistent reservations exclude each other (SPC-2 5.5.3), except that RESERVE and RELEASE are GOOD
//! and do nothing for a nexus that the persistent reservation gives access (CRH, SPC-4 5.12.3). Third-party
//! reservations and extents, optional even then, are refused.

use scsi::Condition;
use volume::Access;

use crate::command::Call;
use crate::failure::Failure;
use crate::nexus::NexusId;
use crate::plan::Plan;
use crate::unit::{Reserved, State};

pub(crate) fn plan_reserve(call: &mut Call<'_>) -> Result<Plan, Failure> {
    whole_unit_for_oneself(call)?;
    let id = call.nexus.id;
    call.unit.change(|state| state.reserve(id))?;
    call.good()
}

pub(crate) fn plan_release(call: &mut Call<'_>) -> Result<Plan, Failure> {
    whole_unit_for_oneself(call)?;
    let id = call.nexus.id;
    call.unit.change(|state| state.release(id))?;
    call.good()
}

/// 3RDPTY, LONGID and EXTENT are zero.
fn whole_unit_for_oneself(call: &Call<'_>) -> Result<(), Condition> {
    match [4, 1, 0].into_iter().find(|&bit| call.cdb.bit(1, bit)) {
        Some(bit) => Err(Condition::invalid_bit(1, bit)),
        None => Ok(()),
    }
}

impl State {
    /// Reserving again is no error (SPC-2 7.21.2).
    fn reserve(&mut self, id: NexusId) -> Result<(), Failure> {
        if self.shared_by_registrants(id)? {
            return Ok(());
        }
        if self.reserved_by.is_some_and(|holder| holder != id) {
            return Err(Failure::ReservationConflict);
        }
        self.reserved_by = Some(id);
        Ok(())
    }

    /// Releasing what another holds is no error and does nothing (SPC-2 7.23).
    fn release(&mut self, id: NexusId) -> Result<(), Failure> {
        if !self.shared_by_registrants(id)? {
            self.release_reserve(id);
        }
        Ok(())
    }

    /// Ends the reservation if it is this nexus'.
    pub(crate) fn release_reserve(&mut self, id: NexusId) {
        self.reserved_by = self.reserved_by.filter(|holder| *holder != id);
    }

    /// Whether persistent reservations rule here, and this nexus has access. A conflict if it has none.
    fn shared_by_registrants(&self, id: NexusId) -> Result<bool, Failure> {
        if self.registrations.registered().is_empty() {
            return Ok(false);
        }
        let name = self.name(id).ok_or(Failure::ReservationConflict)?;
        let registered = self.registrations.key_of(name).is_some();
        let reserved = self.registrations.reservation().is_some();
        if registered && reserved && self.registrations.permit(name, Access::Write) {
            Ok(true)
        } else {
            Err(Failure::ReservationConflict)
        }
    }

    /// Whether another's RESERVE lets this nexus carry out a command of this class (SPC-2 5.5.1).
    pub(crate) fn passes_reserve(&self, id: NexusId, class: Reserved) -> bool {
        match class {
            Reserved::Never | Reserved::Own => true,
            Reserved::Status | Reserved::Read | Reserved::Write => {
                self.reserved_by.is_none_or(|holder| holder == id)
            }
        }
    }
}
