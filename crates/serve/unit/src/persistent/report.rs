//! PERSISTENT RESERVE IN: parameter data (SPC-4 6.15).

use scsi::Condition;
use volume::reservations::{Ports, Registration, Registrations, ReservationType};

use super::transport_id::transport_id;

/// A service action of PERSISTENT RESERVE IN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    Keys,
    Reservation,
    Capabilities,
    FullStatus,
}

impl Report {
    /// Reads the CDB, 5Eh, of full length: what is asked for, and the allocation length in bytes.
    pub(crate) fn parse(cdb: &[u8]) -> Result<(Report, usize), Condition> {
        let &[0x5e, action, _, _, _, _, _, high, low, ..] = cdb else {
            return Err(Condition::invalid_field(0));
        };
        let report = match action & 0x1f {
            0x00 => Report::Keys,
            0x01 => Report::Reservation,
            0x02 => Report::Capabilities,
            0x03 => Report::FullStatus,
            _ => return Err(Condition::invalid_bit(1, 4)),
        };
        Ok((report, usize::from(u16::from_be_bytes([high, low]))))
    }

    /// Its parameter data in full; the lengths in it are not those of what the allocation length leaves.
    pub(crate) fn data(self, state: &Registrations, can_persist: bool) -> Vec<u8> {
        match self {
            Report::Keys => {
                listed(state, state.registered().iter().flat_map(|one| one.key.get().to_be_bytes()))
            }
            Report::Reservation => listed(state, reservation_descriptor(state).into_iter().flatten()),
            Report::Capabilities => capabilities(state, can_persist).to_vec(),
            Report::FullStatus => {
                listed(state, state.registered().iter().flat_map(|one| full_status(state, one)))
            }
        }
    }
}

/// PRGENERATION and ADDITIONAL LENGTH before a list.
fn listed(state: &Registrations, list: impl Iterator<Item = u8>) -> Vec<u8> {
    let mut data = [state.generation.to_be_bytes(), [0; 4]].concat();
    data.extend(list);
    let length = u32::try_from(data.len() - 8).unwrap_or(u32::MAX);
    data[4..8].copy_from_slice(&length.to_be_bytes());
    data
}

/// SPC-4 table 201. The key of an all-registrants reservation is zero (SPC-4 6.15.3.2).
fn reservation_descriptor(state: &Registrations) -> Option<[u8; 16]> {
    let reservation = state.reservation()?;
    let key = match reservation.kind.all_registrants() {
        true => 0,
        false => state.key_of(&reservation.holder).map_or(0, std::num::NonZeroU64::get),
    };
    let mut descriptor = [0; 16];
    descriptor[..8].copy_from_slice(&key.to_be_bytes());
    descriptor[13] = reservation.kind.code();
    Some(descriptor)
}

/// SPC-4 table 204.
fn capabilities(state: &Registrations, can_persist: bool) -> [u8; 8] {
    let can_persist = u8::from(can_persist);
    let persists = u8::from(state.persist_through_power_loss);
    let types = ReservationType::ALL.into_iter().fold(0u16, |mask, kind| mask | type_bit(kind));
    let [first, second] = types.to_be_bytes();
    [0, 8, CRH | SIP_C | ATP_C | can_persist, TMV | ALLOW_COMMANDS | persists, first, second, 0, 0]
}

/// SPC-4 table 208.
fn full_status(state: &Registrations, registration: &Registration) -> Vec<u8> {
    let transport_id = transport_id(&registration.host);
    let held = state
        .reservation()
        .filter(|reservation| reservation.kind.all_registrants() || registration.covers(&reservation.holder));
    let mut status = vec![0; 24];
    status[..8].copy_from_slice(&registration.key.get().to_be_bytes());
    status[12] = u8::from(held.is_some());
    status[13] = held.map_or(0, |reservation| reservation.kind.code());
    match &registration.ports {
        Ports::One(port) => status[18..20].copy_from_slice(&port.relative_port.to_be_bytes()),
        Ports::AllBut(_) => status[12] |= ALL_TG_PT,
    }
    status[20..24].copy_from_slice(&(transport_id.len() as u32).to_be_bytes());
    status.extend(transport_id);
    status
}

/// Compatible reservation handling: RESERVE of a registrant with access is GOOD without effect (SPC-4 5.12.3).
const CRH: u8 = 0x10;
/// SPEC_I_PT and ALL_TG_PT are supported.
const SIP_C: u8 = 0x08;
const ATP_C: u8 = 0x04;
/// The type mask that follows is valid.
const TMV: u8 = 0x80;
/// 100b: what [`crate::unit::Reserved::Status`] stands for passes all types (SPC-4 table 205).
const ALLOW_COMMANDS: u8 = 0x40;
const ALL_TG_PT: u8 = 0x02;

/// PERSISTENT RESERVATION TYPE MASK (SPC-4 table 206), both bytes as one number.
fn type_bit(kind: ReservationType) -> u16 {
    match kind {
        ReservationType::WriteExclusiveAllRegistrants => 0x8000,
        ReservationType::ExclusiveAccessRegistrantsOnly => 0x4000,
        ReservationType::WriteExclusiveRegistrantsOnly => 0x2000,
        ReservationType::ExclusiveAccess => 0x0800,
        ReservationType::WriteExclusive => 0x0200,
        ReservationType::ExclusiveAccessAllRegistrants => 0x0001,
    }
}

#[cfg(test)]
mod tests {
    use volume::reservations::{Change, Register};

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
        let data = Report::Keys.data(&two_registered(), true);
        assert_eq!(data[..8], [0, 0, 0, 2, 0, 0, 0, 16]);
        assert_eq!(data[8..], [1, 0, 0, 0, 0, 0, 0, 0xab, 2, 0, 0, 0, 0, 0, 0, 0xab]);
    }

    #[test]
    fn without_a_reservation_there_is_no_descriptor() {
        assert_eq!(Report::Reservation.data(&two_registered(), true), [0, 0, 0, 2, 0, 0, 0, 0]);
    }

    #[test]
    fn a_reservation_shows_its_holders_key_and_type() {
        let mut state = two_registered();
        reserve(&mut state, 2, ReservationType::ExclusiveAccessRegistrantsOnly);
        let data = Report::Reservation.data(&state, true);
        assert_eq!(data[8..], [2, 0, 0, 0, 0, 0, 0, 0xab, 0, 0, 0, 0, 0, 6, 0, 0]);
    }

    #[test]
    fn the_key_of_all_registrants_is_zero() {
        let mut state = two_registered();
        reserve(&mut state, 2, ReservationType::WriteExclusiveAllRegistrants);
        assert_eq!(Report::Reservation.data(&state, true)[8..16], [0; 8]);
    }

    #[test]
    fn capabilities_tell_of_all_types_and_of_persistence() {
        let mut state = Registrations::default();
        let lasting = Register { persist_through_power_loss: true, ..register(1) };
        state.change(&nexus(1), Change::Register(lasting)).unwrap();
        assert_eq!(Report::Capabilities.data(&state, true), [0, 8, 0x1d, 0xc1, 0xea, 0x01, 0, 0]);
        let state = Registrations::default();
        assert_eq!(Report::Capabilities.data(&state, false), [0, 8, 0x1c, 0xc0, 0xea, 0x01, 0, 0]);
    }

    #[test]
    fn full_status_names_each_registrant_and_its_port() {
        let mut state = two_registered();
        reserve(&mut state, 1, ReservationType::WriteExclusive);
        let data = Report::FullStatus.data(&state, true);
        let id = transport_id(&nexus(1).host);
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
        assert_eq!(Report::FullStatus.data(&state, true)[8 + 12], 0x02);
    }
}
