//! The SCSI encoding of reservations: PERSISTENT RESERVE IN and OUT ([`volume::reservations`]), with the unit
//! attentions for affected nexuses, and RESERVE and RELEASE, 6 and 10 bytes long (SPC-2 7.21 to 7.24).
//! `volume` implements the effect of a change and the restrictions of a reservation. [`out`] reads the
//! parameter lists of PERSISTENT RESERVE OUT.
//!
//! The SPC-2 reservation belongs to one nexus and ends with it. SPC-4 has removed its commands, but clusters
//! and boot firmware still use them. Third-party reservations and extents, which were optional, are rejected.

use std::sync::Arc;

use block::Buffer;
use scsi::{
    Condition, RegisteredKeys, ReservationCapabilities, ReservationType, ReserveIn, SenseKey,
    TransportId, asc,
};
use volume::reservations::{
    Change, Changed, Event, Refusal, Registration, Registrations, Reservation,
};
use volume::{Requester, Volume};

use self::out::{ListContext, Request};
use crate::access::DeviceAccess;
use crate::command::call::Call;
use crate::failure::Failure;
use crate::nexus::{Attention, InitiatorPort, NexusId, NexusName};
use crate::plan::{DataIn, Effect, Outcome, Plan};
use crate::state::UnitState;

pub(crate) mod out;

/// Plans PERSISTENT RESERVE IN (SPC-4 6.15).
pub(crate) fn plan_in(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let (action, allocation) = parse(&call.cdb.full())?;
    let volume = call.unit.volume();
    not_reserved(volume)?;
    let data = report(&volume.reservations(), action, volume.can_save());
    call.parameter_data(data, allocation as u32)
}

/// Plans PERSISTENT RESERVE OUT (SPC-4 6.16).
pub(crate) fn plan_out(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let request = Request::parse(&call.cdb.full())?;
    not_reserved(call.unit.volume())?;
    let id = call.nexus.id;
    call.receive(request.length as u32, 0, move |access, list| {
        carry_out(access, id, request, list)
    })
}

/// While any nexus holds the unit by RESERVE, PERSISTENT RESERVE IN and OUT from every nexus conflict (SPC-2
/// 5.5.3).
fn not_reserved(volume: &Volume) -> Result<(), Failure> {
    match volume.reserved_by() {
        None => Ok(()),
        Some(_) => Err(Failure::ReservationConflict),
    }
}

/// Saves the new state, then applies it, then responds. An acknowledged change has therefore been saved, and
/// a change that could not be saved has no effect. Once saving has begun, the command runs to completion.
async fn carry_out(
    unit: DeviceAccess,
    id: NexusId,
    request: Request,
    list: Buffer,
) -> Result<Outcome, Failure> {
    let lock = unit.volume().lock_to_save().await;
    let (by, attached) = unit.look(|state| {
        let attached: Vec<NexusName> = state
            .nexuses
            .iter()
            .map(|nexus| nexus.name.clone())
            .collect();
        (state.name(id).cloned(), attached)
    });
    let mut next = Registrations::clone(&unit.volume().reservations());
    let by = by.ok_or(Failure::ReservationConflict)?;
    let context = ListContext {
        by: &by,
        attached: &attached,
        can_persist: unit.volume().can_save(),
    };
    let change = request.read(&list, &context)?;
    let abort = matches!(change, Change::Preempt { abort: true, .. });
    let changed = next.change(&by, change)?;
    unit.commit();
    unit.volume().save_reservations(&next, &lock).await?;
    let preempted = unit.change(|state| {
        unit.volume().set_reservations(next, &lock);
        state.tell(id, &changed)
    });
    let demand = || Effect::AbortTasks {
        unit: Arc::clone(&unit),
        nexuses: preempted,
        by: id,
    };
    let effects = abort.then(demand).into_iter().collect();
    Ok(Outcome {
        data: DataIn::None,
        effects,
    })
}

impl UnitState {
    /// Establishes unit attentions for the nexuses that a change of reservations affects. Returns the
    /// preempted nexuses, except `by`.
    fn tell(&mut self, by: NexusId, changed: &Changed) -> Vec<NexusId> {
        for notice in &changed.notices {
            for id in self.covered(&notice.who, by) {
                self.raise(id, notice.what.into());
            }
        }
        changed
            .preempted
            .iter()
            .flat_map(|preempted| self.covered(preempted, by))
            .collect()
    }

    /// Returns the attached nexuses that a registration covers, except `by`.
    fn covered(&self, registration: &Registration, by: NexusId) -> Vec<NexusId> {
        let others = self.nexuses.iter().filter(|nexus| nexus.id != by);
        others
            .filter(|nexus| registration.covers(&nexus.name))
            .map(|nexus| nexus.id)
            .collect()
    }
}

impl From<Event> for Attention {
    fn from(event: Event) -> Attention {
        match event {
            Event::ReservationReleased => Attention::ReservationsReleased,
            Event::ReservationPreempted => Attention::ReservationsPreempted,
            Event::RegistrationPreempted => Attention::RegistrationsPreempted,
        }
    }
}

/// Field pointers refer to the parameter list, unless a comment names the CDB.
impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        let code = |code| Condition::new(SenseKey::IllegalRequest, code);
        Failure::Check(match refusal {
            Refusal::Conflict => return Failure::ReservationConflict,
            // SPEC_I_PT.
            Refusal::AlreadyRegistered => {
                Condition::invalid_parameter(20).at_field(false, 20, Some(3))
            }
            Refusal::OtherRegistered => Condition::invalid_parameter(28), // the first TransportID
            Refusal::TooMany => code(asc::INSUFFICIENT_REGISTRATION_RESOURCES),
            Refusal::OfAnotherKind => code(asc::INVALID_RELEASE_OF_PERSISTENT_RESERVATION),
            Refusal::KeyZero => Condition::invalid_parameter(8), // SERVICE ACTION RESERVATION KEY
            Refusal::KindMissing => Condition::invalid_bit(2, 3), // TYPE, in the CDB
            Refusal::MovedToItself => Condition::invalid_parameter(24), // the TransportID
        })
    }
}

/// Parses the CDB (5Eh, of full length) into the service action and the allocation length in bytes.
pub(crate) fn parse(cdb: &[u8]) -> Result<(ReserveIn, usize), Condition> {
    let &[0x5e, action, _, _, _, _, _, high, low, ..] = cdb else {
        return Err(Condition::invalid_field(0));
    };
    let action = ReserveIn::try_from(action & 0x1f).map_err(|_| Condition::invalid_bit(1, 4))?;
    Ok((action, usize::from(u16::from_be_bytes([high, low]))))
}

/// Returns the complete parameter data; its length fields do not depend on the allocation length.
pub(crate) fn report(state: &Registrations, action: ReserveIn, can_persist: bool) -> Vec<u8> {
    match action {
        ReserveIn::Keys => {
            let keys = state.registered().iter().map(|one| one.key.get()).collect();
            RegisteredKeys {
                generation: state.generation,
                keys,
            }
            .write()
        }
        ReserveIn::Reservation => scsi::Reservation::write(state.generation, reservation(state)),
        ReserveIn::Capabilities => capabilities(state, can_persist).write().to_vec(),
        ReserveIn::FullStatus => {
            let all = state.registered().iter().map(|one| full_status(state, one));
            scsi::Registration::write_list(state.generation, all)
        }
    }
}

/// Returns the reservation as PERSISTENT RESERVE IN reports it. The key of an all-registrants reservation is
/// zero (SPC-4 6.15.3.2).
fn reservation(state: &Registrations) -> Option<scsi::Reservation> {
    let reservation = state.reservation()?;
    let key = match reservation.kind.all_registrants() {
        true => 0,
        false => state
            .key_of(&reservation.holder)
            .map_or(0, std::num::NonZeroU64::get),
    };
    Some(scsi::Reservation {
        key,
        kind: kind(reservation)?,
    })
}

/// Returns the SCSI type of a reservation; the saved state uses the same codes.
fn kind(reservation: &Reservation) -> Option<ReservationType> {
    ReservationType::try_from(reservation.kind.code()).ok()
}

fn capabilities(state: &Registrations, can_persist: bool) -> ReservationCapabilities {
    ReservationCapabilities {
        // RESERVE by a registrant with access returns GOOD and has no effect (SPC-4 5.12.3).
        compatible_reservation_handling: true,
        specify_initiator_ports: true,
        all_target_ports: true,
        persist_capable: can_persist,
        persist_active: state.persist_through_power_loss,
        // 100b: commands with [`crate::unit::Reserved::Status`] are allowed for all types (SPC-4 table 205).
        allow_commands: 4,
        type_mask_valid: true,
        type_mask: ReservationType::ALL
            .into_iter()
            .map(ReservationCapabilities::type_bit)
            .sum(),
    }
}

fn full_status(state: &Registrations, registration: &Registration) -> scsi::Registration {
    let held = state.reservation().filter(|reservation| {
        reservation.kind.all_registrants() || registration.covers(&reservation.holder)
    });
    let port = registration.ports.one();
    scsi::Registration {
        key: registration.key.get(),
        holds: held.and_then(kind),
        all_ports: port.is_none(),
        relative_port: port.map_or(0, |port| port.relative_port),
        initiator: Some(transport_id(&registration.host)),
    }
}

/// Returns the name of an initiator port in reservations.
pub(crate) fn transport_id(port: &InitiatorPort) -> TransportId {
    TransportId::Iscsi {
        name: port.name.clone(),
        isid: Some(port.qualifier),
    }
}

pub(crate) fn plan_reserve(call: &mut Call<'_>) -> Result<Plan, Failure> {
    plan_spc2(call, Volume::reserve)
}

pub(crate) fn plan_release(call: &mut Call<'_>) -> Result<Plan, Failure> {
    plan_spc2(call, Volume::release)
}

fn plan_spc2(
    call: &mut Call<'_>,
    change: impl FnOnce(&Volume, &Requester<'_>) -> Result<(), Refusal>,
) -> Result<Plan, Failure> {
    whole_unit_for_oneself(call)?;
    call.unit.change(|state| {
        let requester = state
            .requester(call.nexus.id)
            .ok_or(Failure::ReservationConflict)?;
        Ok::<_, Failure>(change(call.unit.volume(), &requester)?)
    })?;
    call.good()
}

/// Checks that 3RDPTY, LONGID and EXTENT are zero.
fn whole_unit_for_oneself(call: &Call<'_>) -> Result<(), Condition> {
    match [4, 1, 0].into_iter().find(|&bit| call.cdb.bit(1, bit)) {
        Some(bit) => Err(Condition::invalid_bit(1, bit)),
        None => Ok(()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::num::NonZeroU64;

    use volume::reservations::{Change, Register, ReservationType};
    use volume::{HostPath, HostPort, ServicePort};

    use super::*;

    /// Returns the initiator port `who`, through the first target port.
    pub(in crate::reservations) fn nexus(who: u8) -> HostPath {
        through(who, 1)
    }

    pub(in crate::reservations) fn through(who: u8, group: u16) -> HostPath {
        let name = format!("iqn.2026-11.test:host{who}");
        let host = HostPort {
            name,
            qualifier: [0x40, 0, 0, 0, 0, who],
        };
        let name = "iqn.2026-11.test:target".into();
        HostPath {
            host,
            service: ServicePort {
                name,
                group,
                relative_port: group,
            },
        }
    }

    /// Returns a registration with `key` by an unregistered nexus.
    pub(in crate::reservations) fn register(key: u64) -> Register {
        Register::new(NonZeroU64::new(key).expect("tests use keys that are not zero"))
    }

    /// Returns the initiator ports `who`, each registered with a key that has its number in the first byte
    /// and ends in ABh.
    pub(in crate::reservations) fn registered(who: &[u8]) -> Registrations {
        let mut state = Registrations::default();
        for &who in who {
            let register = register(u64::from(who) << 56 | 0xab);
            state
                .change(&nexus(who), Change::Register(register))
                .expect("it is not registered");
        }
        state
    }

    fn two_registered() -> Registrations {
        registered(&[1, 2])
    }

    fn reserve(state: &mut Registrations, who: u8, kind: ReservationType) {
        let key = u64::from(who) << 56 | 0xab;
        state
            .change(&nexus(who), Change::Reserve { key, kind })
            .unwrap();
    }

    #[test]
    fn keys_are_listed_behind_the_generation() {
        let data = report(&two_registered(), ReserveIn::Keys, true);
        assert_eq!(data[..8], [0, 0, 0, 2, 0, 0, 0, 16]);
        assert_eq!(
            data[8..],
            [1, 0, 0, 0, 0, 0, 0, 0xab, 2, 0, 0, 0, 0, 0, 0, 0xab]
        );
    }

    #[test]
    fn without_a_reservation_there_is_no_descriptor() {
        assert_eq!(
            report(&two_registered(), ReserveIn::Reservation, true),
            [0, 0, 0, 2, 0, 0, 0, 0]
        );
    }

    #[test]
    fn a_reservation_shows_its_holders_key_and_type() {
        let mut state = two_registered();
        reserve(
            &mut state,
            2,
            ReservationType::ExclusiveAccessRegistrantsOnly,
        );
        let data = report(&state, ReserveIn::Reservation, true);
        assert_eq!(
            data[8..],
            [2, 0, 0, 0, 0, 0, 0, 0xab, 0, 0, 0, 0, 0, 6, 0, 0]
        );
    }

    #[test]
    fn the_key_of_all_registrants_is_zero() {
        let mut state = two_registered();
        reserve(&mut state, 2, ReservationType::WriteExclusiveAllRegistrants);
        assert_eq!(report(&state, ReserveIn::Reservation, true)[8..16], [0; 8]);
    }

    #[test]
    fn scsi_has_every_kind_by_its_number() {
        for (here, there) in ReservationType::ALL
            .into_iter()
            .zip(scsi::ReservationType::ALL)
        {
            let reservation = Reservation {
                kind: here,
                holder: nexus(1),
            };
            assert_eq!(
                (kind(&reservation), ReservationType::from_code(there.code())),
                (Some(there), Some(here))
            );
        }
    }

    #[test]
    fn capabilities_tell_of_all_types_and_of_persistence() {
        let mut state = Registrations::default();
        let lasting = Register {
            persist_through_power_loss: true,
            ..register(1)
        };
        state.change(&nexus(1), Change::Register(lasting)).unwrap();
        assert_eq!(
            report(&state, ReserveIn::Capabilities, true),
            [0, 8, 0x1d, 0xc1, 0xea, 0x01, 0, 0]
        );
        let state = Registrations::default();
        assert_eq!(
            report(&state, ReserveIn::Capabilities, false),
            [0, 8, 0x1c, 0xc0, 0xea, 0x01, 0, 0]
        );
    }

    #[test]
    fn full_status_names_each_registrant_and_its_port() {
        let mut state = two_registered();
        reserve(&mut state, 1, ReservationType::WriteExclusive);
        let data = report(&state, ReserveIn::FullStatus, true);
        let id = transport_id(&nexus(1).host).write();
        let first = &data[8..8 + 24 + id.len()];
        assert_eq!(first[12..20], [1, 1, 0, 0, 0, 0, 0, 1]);
        assert_eq!(first[23] as usize, id.len());
        assert_eq!(first[24..], id);
        let second = &data[8 + first.len()..];
        assert_eq!(second[12..14], [0, 0]);
    }

    #[test]
    fn full_status_tells_of_a_registration_for_all_target_ports() {
        let mut state = Registrations::default();
        let all = Register {
            all_ports: true,
            ..register(1)
        };
        state.change(&nexus(1), Change::Register(all)).unwrap();
        assert_eq!(report(&state, ReserveIn::FullStatus, true)[8 + 12], 0x02);
    }
}
