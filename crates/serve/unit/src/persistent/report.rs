//! PERSISTENT RESERVE IN: parameter data (SPC-4 6.15).

use scsi::{Condition, ReservationType};

use super::{Ports, Registration, Registrations};

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
}

impl Registrations {
    /// The parameter data in full; the lengths in it are not those of what the allocation length leaves.
    pub(crate) fn report(&self, report: Report, can_persist: bool) -> Vec<u8> {
        match report {
            Report::Keys => self.listed(self.registered().iter().flat_map(|one| one.key.get().to_be_bytes())),
            Report::Reservation => self.listed(self.reservation_descriptor().into_iter().flatten()),
            Report::Capabilities => self.capabilities(can_persist).to_vec(),
            Report::FullStatus => self.listed(self.registered().iter().flat_map(|one| self.full_status(one))),
        }
    }

    /// PRGENERATION and ADDITIONAL LENGTH before a list.
    fn listed(&self, list: impl Iterator<Item = u8>) -> Vec<u8> {
        let mut data = [self.generation.to_be_bytes(), [0; 4]].concat();
        data.extend(list);
        let length = u32::try_from(data.len() - 8).unwrap_or(u32::MAX);
        data[4..8].copy_from_slice(&length.to_be_bytes());
        data
    }

    /// SPC-4 table 201. The key of an all-registrants reservation is zero (SPC-4 6.15.3.2).
    fn reservation_descriptor(&self) -> Option<[u8; 16]> {
        let reservation = self.reservation()?;
        let key = match reservation.kind.all_registrants() {
            true => 0,
            false => self.key_of(&reservation.holder).map_or(0, std::num::NonZeroU64::get),
        };
        let mut descriptor = [0; 16];
        descriptor[..8].copy_from_slice(&key.to_be_bytes());
        descriptor[13] = reservation.kind.code();
        Some(descriptor)
    }

    /// SPC-4 table 204.
    fn capabilities(&self, can_persist: bool) -> [u8; 8] {
        let can_persist = u8::from(can_persist);
        let persists = u8::from(self.persist_through_power_loss);
        let types = ReservationType::ALL.into_iter().fold(0u16, |mask, kind| mask | type_bit(kind));
        let [first, second] = types.to_be_bytes();
        [0, 8, CRH | SIP_C | ATP_C | can_persist, TMV | ALLOW_COMMANDS | persists, first, second, 0, 0]
    }

    /// SPC-4 table 208.
    fn full_status(&self, registration: &Registration) -> Vec<u8> {
        let transport_id = registration.initiator.transport_id();
        let held = self.reservation().filter(|reservation| {
            reservation.kind.all_registrants() || registration.covers(&reservation.holder)
        });
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
    use super::super::change::Register;
    use super::super::scene::{key, nexus};
    use super::*;

    fn two_registered() -> Registrations {
        let mut state = Registrations::default();
        for who in [1, 2] {
            state.register(&nexus(who), &Register::new(key(u64::from(who) << 56 | 0xab))).unwrap();
        }
        state
    }

    #[test]
    fn keys_are_listed_behind_the_generation() {
        let data = two_registered().report(Report::Keys, true);
        assert_eq!(data[..8], [0, 0, 0, 2, 0, 0, 0, 16]);
        assert_eq!(data[8..], [1, 0, 0, 0, 0, 0, 0, 0xab, 2, 0, 0, 0, 0, 0, 0, 0xab]);
    }

    #[test]
    fn without_a_reservation_there_is_no_descriptor() {
        assert_eq!(two_registered().report(Report::Reservation, true), [0, 0, 0, 2, 0, 0, 0, 0]);
    }

    #[test]
    fn a_reservation_shows_its_holders_key_and_type() {
        let mut state = two_registered();
        state.reserve(&nexus(2), 2 << 56 | 0xab, ReservationType::ExclusiveAccessRegistrantsOnly).unwrap();
        let data = state.report(Report::Reservation, true);
        assert_eq!(data[8..], [2, 0, 0, 0, 0, 0, 0, 0xab, 0, 0, 0, 0, 0, 6, 0, 0]);
    }

    #[test]
    fn the_key_of_all_registrants_is_zero() {
        let mut state = two_registered();
        state.reserve(&nexus(2), 2 << 56 | 0xab, ReservationType::WriteExclusiveAllRegistrants).unwrap();
        assert_eq!(state.report(Report::Reservation, true)[8..16], [0; 8]);
    }

    #[test]
    fn capabilities_tell_of_all_types_and_of_persistence() {
        let state = Registrations { persist_through_power_loss: true, ..Registrations::default() };
        assert_eq!(state.report(Report::Capabilities, true), [0, 8, 0x1d, 0xc1, 0xea, 0x01, 0, 0]);
        let state = Registrations::default();
        assert_eq!(state.report(Report::Capabilities, false), [0, 8, 0x1c, 0xc0, 0xea, 0x01, 0, 0]);
    }

    #[test]
    fn full_status_names_each_registrant_and_its_port() {
        let mut state = two_registered();
        state.reserve(&nexus(1), 1 << 56 | 0xab, ReservationType::WriteExclusive).unwrap();
        let data = state.report(Report::FullStatus, true);
        let id = nexus(1).initiator.transport_id();
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
        let all = Register { all_target_ports: true, ..Register::new(key(1)) };
        state.register(&nexus(1), &all).unwrap();
        assert_eq!(state.report(Report::FullStatus, true)[8 + 12], 0x02);
    }
}
