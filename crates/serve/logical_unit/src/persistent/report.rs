//! PERSISTENT RESERVE IN: parameter data (SPC-4 6.15).

use scsi::{Condition, RegisteredKeys, ReservationCapabilities, ReservationType, ReserveIn, TransportId};
use volume::reservations::{Registration, Registrations, Reservation};

use crate::nexus::InitiatorPort;

/// Reads the CDB, 5Eh, of full length: what is asked for, and the allocation length in bytes.
pub(crate) fn parse(cdb: &[u8]) -> Result<(ReserveIn, usize), Condition> {
    let &[0x5e, action, _, _, _, _, _, high, low, ..] = cdb else {
        return Err(Condition::invalid_field(0));
    };
    let action = ReserveIn::try_from(action & 0x1f).map_err(|_| Condition::invalid_bit(1, 4))?;
    Ok((action, usize::from(u16::from_be_bytes([high, low]))))
}

/// The parameter data in full; the lengths in it are not those of what the allocation length leaves.
pub(crate) fn report(state: &Registrations, action: ReserveIn, can_persist: bool) -> Vec<u8> {
    match action {
        ReserveIn::Keys => {
            let keys = state.registered().iter().map(|one| one.key.get()).collect();
            RegisteredKeys { generation: state.generation, keys }.write()
        }
        ReserveIn::Reservation => scsi::Reservation::write(state.generation, reservation(state)),
        ReserveIn::Capabilities => capabilities(state, can_persist).write().to_vec(),
        ReserveIn::FullStatus => {
            let all = state.registered().iter().map(|one| full_status(state, one));
            scsi::Registration::write_list(state.generation, all)
        }
    }
}

/// The key of an all-registrants reservation is zero (SPC-4 6.15.3.2).
fn reservation(state: &Registrations) -> Option<scsi::Reservation> {
    let reservation = state.reservation()?;
    let key = match reservation.kind.all_registrants() {
        true => 0,
        false => state.key_of(&reservation.holder).map_or(0, std::num::NonZeroU64::get),
    };
    Some(scsi::Reservation { key, kind: kind(reservation)? })
}

/// Its kind as SCSI has it, whose numbers are those of what is saved.
fn kind(reservation: &Reservation) -> Option<ReservationType> {
    ReservationType::try_from(reservation.kind.code()).ok()
}

fn capabilities(state: &Registrations, can_persist: bool) -> ReservationCapabilities {
    ReservationCapabilities {
        // RESERVE of a registrant with access is GOOD without effect (SPC-4 5.12.3).
        compatible_reservation_handling: true,
        specify_initiator_ports: true,
        all_target_ports: true,
        persist_capable: can_persist,
        persist_active: state.persist_through_power_loss,
        // 100b: what [`crate::unit::Reserved::Status`] stands for passes all types (SPC-4 table 205).
        allow_commands: 4,
        type_mask_valid: true,
        type_mask: ReservationType::ALL.into_iter().map(ReservationCapabilities::type_bit).sum(),
    }
}

fn full_status(state: &Registrations, registration: &Registration) -> scsi::Registration {
    let held = state
        .reservation()
        .filter(|reservation| reservation.kind.all_registrants() || registration.covers(&reservation.holder));
    let port = registration.ports.one();
    scsi::Registration {
        key: registration.key.get(),
        holds: held.and_then(kind),
        all_ports: port.is_none(),
        relative_port: port.map_or(0, |port| port.relative_port),
        initiator: Some(transport_id(&registration.host)),
    }
}

/// An initiator port's name as reservations have it.
pub(crate) fn transport_id(port: &InitiatorPort) -> TransportId {
    TransportId::Iscsi { name: port.name.clone(), isid: Some(port.qualifier) }
}

#[cfg(test)]
mod tests {
    use volume::reservations::{Change, Register, ReservationType};

    use super::super::scene::{nexus, register, registered};
    use super::*;

    fn two_registered() -> Registrations {
        registered(&[1, 2])
    }

    fn reserve(state: &mut Registrations, who: u8, kind: ReservationType) {
        let key = u64::from(who) << 56 | 0xab;
        state.change(&nexus(who), Change::Reserve { key, kind }).unwrap();
    }

    #[test]
    fn keys_are_listed_behind_the_generation() {
        let data = report(&two_registered(), ReserveIn::Keys, true);
        assert_eq!(data[..8], [0, 0, 0, 2, 0, 0, 0, 16]);
        assert_eq!(data[8..], [1, 0, 0, 0, 0, 0, 0, 0xab, 2, 0, 0, 0, 0, 0, 0, 0xab]);
    }

    #[test]
    fn without_a_reservation_there_is_no_descriptor() {
        assert_eq!(report(&two_registered(), ReserveIn::Reservation, true), [0, 0, 0, 2, 0, 0, 0, 0]);
    }

    #[test]
    fn a_reservation_shows_its_holders_key_and_type() {
        let mut state = two_registered();
        reserve(&mut state, 2, ReservationType::ExclusiveAccessRegistrantsOnly);
        let data = report(&state, ReserveIn::Reservation, true);
        assert_eq!(data[8..], [2, 0, 0, 0, 0, 0, 0, 0xab, 0, 0, 0, 0, 0, 6, 0, 0]);
    }

    #[test]
    fn the_key_of_all_registrants_is_zero() {
        let mut state = two_registered();
        reserve(&mut state, 2, ReservationType::WriteExclusiveAllRegistrants);
        assert_eq!(report(&state, ReserveIn::Reservation, true)[8..16], [0; 8]);
    }

    #[test]
    fn scsi_has_every_kind_by_its_number() {
        for (here, there) in ReservationType::ALL.into_iter().zip(scsi::ReservationType::ALL) {
            let reservation = Reservation { kind: here, holder: nexus(1) };
            assert_eq!(
                (kind(&reservation), ReservationType::from_code(there.code())),
                (Some(there), Some(here))
            );
        }
    }

    #[test]
    fn capabilities_tell_of_all_types_and_of_persistence() {
        let mut state = Registrations::default();
        let lasting = Register { persist_through_power_loss: true, ..register(1) };
        state.change(&nexus(1), Change::Register(lasting)).unwrap();
        assert_eq!(report(&state, ReserveIn::Capabilities, true), [0, 8, 0x1d, 0xc1, 0xea, 0x01, 0, 0]);
        let state = Registrations::default();
        assert_eq!(report(&state, ReserveIn::Capabilities, false), [0, 8, 0x1c, 0xc0, 0xea, 0x01, 0, 0]);
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
        let all = Register { all_ports: true, ..register(1) };
        state.change(&nexus(1), Change::Register(all)).unwrap();
        assert_eq!(report(&state, ReserveIn::FullStatus, true)[8 + 12], 0x02);
    }
}
