//! Persistent reservations (SPC-4 5.13): parameter data of PERSISTENT RESERVE IN (6.15), and parameter lists of PERSISTENT
//! RESERVE OUT (6.16).

use std::fmt;

use crate::fields::{elements, u8_at, u16_at, u32_at, u64_at};
use crate::{Condition, ReservationType, TransportId};

/// Service actions of PERSISTENT RESERVE IN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReserveIn {
    /// READ KEYS.
    Keys = 0,
    /// READ RESERVATION.
    Reservation = 1,
    /// REPORT CAPABILITIES.
    Capabilities = 2,
    /// READ FULL STATUS.
    FullStatus = 3,
}

impl ReserveIn {
    /// `None` of those that are reserved.
    pub fn new(code: u8) -> Option<ReserveIn> {
        use ReserveIn::*;
        [Keys, Reservation, Capabilities, FullStatus].into_iter().find(|action| *action as u8 == code)
    }
}

/// Service actions of PERSISTENT RESERVE OUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReserveOut {
    /// REGISTER.
    Register = 0,
    /// RESERVE.
    Reserve = 1,
    /// RELEASE.
    Release = 2,
    /// CLEAR.
    Clear = 3,
    /// PREEMPT.
    Preempt = 4,
    /// PREEMPT AND ABORT.
    PreemptAndAbort = 5,
    /// REGISTER AND IGNORE EXISTING KEY.
    RegisterAndIgnoreExistingKey = 6,
    /// REGISTER AND MOVE.
    RegisterAndMove = 7,
}

impl ReserveOut {
    /// `None` of those that are reserved, and of REPLACE LOST RESERVATION, which is of tapes.
    pub fn new(code: u8) -> Option<ReserveOut> {
        use ReserveOut::*;
        let all = [
            Register,
            Reserve,
            Release,
            Clear,
            Preempt,
            PreemptAndAbort,
            RegisterAndIgnoreExistingKey,
            RegisterAndMove,
        ];
        all.into_iter().find(|action| *action as u8 == code)
    }
}

/// The basic parameter list of PERSISTENT RESERVE OUT (SPC-4 table 209), without TransportIDs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReserveOutList {
    /// RESERVATION KEY: the sender's.
    pub key: u64,
    /// SERVICE ACTION RESERVATION KEY: the one to register, or whose registrations end.
    pub service_action_key: u64,
    /// SPEC_I_PT: TransportIDs follow.
    pub specify_initiator_ports: bool,
    /// ALL_TG_PT: by all of the target's ports.
    pub all_target_ports: bool,
    /// APTPL: it outlives a loss of power.
    pub persist: bool,
}

impl ReserveOutList {
    /// Its length.
    pub const BYTES: usize = 24;

    /// `None` if it is cut short.
    pub fn parse(list: &[u8]) -> Option<ReserveOutList> {
        let list = list.get(..Self::BYTES)?;
        Some(ReserveOutList {
            key: u64_at(list, 0),
            service_action_key: u64_at(list, 8),
            specify_initiator_ports: list[20] & 0x08 != 0,
            all_target_ports: list[20] & 0x04 != 0,
            persist: list[20] & 0x01 != 0,
        })
    }

    /// As it travels.
    pub fn write(&self) -> [u8; Self::BYTES] {
        let mut list = [0; Self::BYTES];
        list[..8].copy_from_slice(&self.key.to_be_bytes());
        list[8..16].copy_from_slice(&self.service_action_key.to_be_bytes());
        let spec_i_pt = u8::from(self.specify_initiator_ports) << 3;
        list[20] = spec_i_pt | u8::from(self.all_target_ports) << 2 | u8::from(self.persist);
        list
    }
}

/// The parameter list of REGISTER AND MOVE (SPC-4 table 211).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReserveMoveList {
    /// RESERVATION KEY of the holder.
    pub key: u64,
    /// The key to register the new holder with.
    pub new_key: u64,
    /// UNREG: the old holder's registration ends.
    pub unregister: bool,
    /// APTPL: it outlives a loss of power.
    pub persist: bool,
    /// RELATIVE TARGET PORT IDENTIFIER of the new holder.
    pub relative_port: u16,
    /// The new holder.
    pub initiator: TransportId,
}

impl ReserveMoveList {
    /// Its length without the TransportID.
    const BYTES: usize = 24;

    /// What is wrong with it, if it is.
    pub fn parse(list: &[u8]) -> Result<ReserveMoveList, Condition> {
        let (fixed, id) = list.split_at_checked(Self::BYTES).ok_or(Condition::parameter_list_length())?;
        if u32_at(fixed, 20) as usize != id.len() {
            return Err(Condition::parameter_list_length());
        }
        let initiator = match TransportId::parse_strictly(id) {
            Some((id, [])) => id,
            _ => return Err(Condition::invalid_parameter(Self::BYTES as u16)),
        };
        Ok(ReserveMoveList {
            key: u64_at(fixed, 0),
            new_key: u64_at(fixed, 8),
            unregister: fixed[17] & 0x02 != 0,
            persist: fixed[17] & 0x01 != 0,
            relative_port: u16_at(fixed, 18),
            initiator,
        })
    }

    /// As it travels.
    pub fn write(&self) -> Vec<u8> {
        let id = self.initiator.write();
        let mut list = [self.key.to_be_bytes(), self.new_key.to_be_bytes()].concat();
        list.extend([0, u8::from(self.unregister) << 1 | u8::from(self.persist)]);
        list.extend(self.relative_port.to_be_bytes());
        list.extend((id.len() as u32).to_be_bytes());
        list.extend(id);
        list
    }
}

/// The keys that are registered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegisteredKeys {
    /// PRGENERATION: it grows with every change of the registrations.
    pub generation: u32,
    /// One for each I_T nexus.
    pub keys: Vec<u64>,
}

/// The reservation in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The holder's key; zero if all registrants hold it.
    pub key: u64,
    /// TYPE.
    pub kind: ReservationType,
}

/// An I_T nexus that is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Its key.
    pub key: u64,
    /// R_HOLDER, and what it holds.
    pub holds: Option<ReservationType>,
    /// ALL_TG_PT: by all of the target's ports.
    pub all_ports: bool,
    /// RELATIVE TARGET PORT IDENTIFIER, if it is not all.
    pub relative_port: u16,
    /// The initiator port; `None` if what the target says is none.
    pub initiator: Option<TransportId>,
}

/// What a target can do about persistent reservations (SPC-4 6.15.4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservationCapabilities {
    /// CRH: RESERVE(6) of a registered initiator does as if.
    pub compatible_reservation_handling: bool,
    /// SIP_C: registrations of others may be asked for.
    pub specify_initiator_ports: bool,
    /// ATP_C: a registration may be for all ports.
    pub all_target_ports: bool,
    /// PTPL_C: registrations can outlive a loss of power.
    pub persist_capable: bool,
    /// PTPL_A: they do now.
    pub persist_active: bool,
    /// ALLOW COMMANDS: which commands reservations let pass (SPC-4 table 205).
    pub allow_commands: u8,
    /// The types it knows; empty if it does not say.
    pub types: Vec<ReservationType>,
}

/// What is behind PRGENERATION and ADDITIONAL LENGTH, as far as it came.
fn additional(answer: &[u8]) -> Option<&[u8]> {
    let rest = answer.get(8..)?;
    Some(&rest[..rest.len().min(u32_at(answer, 4) as usize)])
}

/// PRGENERATION and ADDITIONAL LENGTH before a list.
fn listed(generation: u32, list: &[u8]) -> Vec<u8> {
    let length = u32::try_from(list.len()).unwrap_or(u32::MAX);
    [&generation.to_be_bytes()[..], &length.to_be_bytes(), list].concat()
}

impl RegisteredKeys {
    /// READ KEYS; `None` if it is too short for a header.
    pub fn parse(answer: &[u8]) -> Option<RegisteredKeys> {
        let keys = additional(answer)?.chunks_exact(8).map(|key| u64_at(key, 0)).collect();
        Some(RegisteredKeys { generation: u32_at(answer, 0), keys })
    }

    /// As it travels.
    pub fn write(&self) -> Vec<u8> {
        let keys: Vec<u8> = self.keys.iter().flat_map(|key| key.to_be_bytes()).collect();
        listed(self.generation, &keys)
    }
}

impl Reservation {
    /// READ RESERVATION (SPC-4 table 201): nothing if nothing is reserved; `None` if it is cut short, or of no type.
    pub fn parse(answer: &[u8]) -> Option<Option<Reservation>> {
        match additional(answer)? {
            [] => Some(None),
            descriptor if descriptor.len() < 16 => None,
            descriptor => {
                let kind = ReservationType::new(descriptor[13] & 0x0f)?;
                Some(Some(Reservation { key: u64_at(descriptor, 0), kind }))
            }
        }
    }

    /// As it travels.
    pub fn write(generation: u32, reservation: Option<Reservation>) -> Vec<u8> {
        let Some(Reservation { key, kind }) = reservation else { return listed(generation, &[]) };
        listed(generation, &[&key.to_be_bytes()[..], &[0, 0, 0, 0, 0, kind.code(), 0, 0]].concat())
    }
}

impl ReservationCapabilities {
    /// REPORT CAPABILITIES; `None` if it is cut short.
    pub fn parse(answer: &[u8]) -> Option<ReservationCapabilities> {
        let [_, _, can, does, first, second, ..] = *answer else { return None };
        // TMV: the mask of types is valid. Its bits are numbered by the types, 0 to 7 in its first byte.
        let mask = if does & 0x80 != 0 { u16::from_le_bytes([first, second]) } else { 0 };
        let known = |kind: &ReservationType| mask >> kind.code() & 1 == 1;
        Some(ReservationCapabilities {
            compatible_reservation_handling: can & 0x10 != 0,
            specify_initiator_ports: can & 0x08 != 0,
            all_target_ports: can & 0x04 != 0,
            persist_capable: can & 0x01 != 0,
            persist_active: does & 0x01 != 0,
            allow_commands: does >> 4 & 7,
            types: ReservationType::ALL.into_iter().filter(known).collect(),
        })
    }

    /// As it travels.
    pub fn write(&self) -> [u8; 8] {
        let flag = |is: bool, bit: u8| if is { bit } else { 0 };
        let can = flag(self.compatible_reservation_handling, 0x10)
            | flag(self.specify_initiator_ports, 0x08)
            | flag(self.all_target_ports, 0x04)
            | flag(self.persist_capable, 0x01);
        let does =
            flag(!self.types.is_empty(), 0x80) | self.allow_commands << 4 | flag(self.persist_active, 0x01);
        let [first, second] =
            self.types.iter().fold(0u16, |mask, kind| mask | 1 << kind.code()).to_le_bytes();
        [0, 8, can, does, first, second, 0, 0]
    }
}

impl Registration {
    /// READ FULL STATUS; `None` if it is too short for a header.
    pub fn parse_list(answer: &[u8]) -> Option<Vec<Registration>> {
        let length = |rest: &[u8]| Some(24 + u32_at(rest.get(..24)?, 20) as usize);
        Some(elements(additional(answer)?, length).map(Registration::parse).collect())
    }

    /// SPC-4 table 208.
    fn parse(bytes: &[u8]) -> Registration {
        let flags = u8_at(bytes, 12);
        Registration {
            key: u64_at(bytes, 0),
            holds: ReservationType::new(u8_at(bytes, 13) & 0x0f).filter(|_| flags & 1 != 0),
            all_ports: flags & 2 != 0,
            relative_port: u16_at(bytes, 18),
            initiator: bytes.get(24..).and_then(TransportId::parse),
        }
    }

    /// As they travel.
    pub fn write_list(generation: u32, registrations: impl Iterator<Item = Registration>) -> Vec<u8> {
        let mut list = Vec::new();
        for registration in registrations {
            let id = registration.initiator.as_ref().map(TransportId::write).unwrap_or_default();
            let flags = u8::from(registration.all_ports) << 1 | u8::from(registration.holds.is_some());
            list.extend(registration.key.to_be_bytes());
            list.extend([0, 0, 0, 0, flags, registration.holds.map_or(0, ReservationType::code), 0, 0, 0, 0]);
            list.extend(registration.relative_port.to_be_bytes());
            list.extend((id.len() as u32).to_be_bytes());
            list.extend(id);
        }
        listed(generation, &list)
    }
}

/// `key 0x1 by iqn.…, holds write-exclusive`.
impl fmt::Display for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {:#x} by ", self.key)?;
        match &self.initiator {
            Some(initiator) => initiator.fmt(f)?,
            None => write!(f, "somebody")?,
        }
        match self.all_ports {
            true => write!(f, " at all ports")?,
            false => write!(f, " at port {}", self.relative_port)?,
        }
        self.holds.iter().try_for_each(|kind| write!(f, ", holds {kind}"))
    }
}

impl fmt::Display for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by key {:#x}", self.kind, self.key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_reserved_is_no_nonsense() {
        assert_eq!(Reservation::parse(&[0, 0, 0, 1, 0, 0, 0, 0]), Some(None));
        assert_eq!(Reservation::parse(&[0; 7]), None);
    }

    #[test]
    fn a_reservation_of_an_unknown_type_is_refused() {
        let mut answer = [0; 24];
        (answer[7], answer[21]) = (16, 0x02);
        assert_eq!(Reservation::parse(&answer), None);
        (answer[15], answer[21]) = (7, 0x05);
        assert_eq!(
            Reservation::parse(&answer).unwrap().unwrap().to_string(),
            "write-exclusive-registrants-only by key 0x7"
        );
    }

    #[test]
    fn keys_end_where_the_header_says() {
        let answer = [&[0, 0, 0, 9, 0, 0, 0, 8][..], &7u64.to_be_bytes(), &8u64.to_be_bytes()].concat();
        assert_eq!(RegisteredKeys::parse(&answer), Some(RegisteredKeys { generation: 9, keys: vec![7] }));
    }

    #[test]
    fn a_registration_names_its_initiator() {
        let port = b"iqn.2026-01.io:a,i,0x800102030405\0\0\0";
        let mut answer = [0; 36];
        (answer[7], answer[15], answer[20], answer[21], answer[27]) = (28 + 36, 7, 1, 1, 1);
        (answer[31], answer[32], answer[35]) = (40, 0x45, 36);
        let answer = [&answer[..], port].concat();
        let words = "key 0x7 by iqn.2026-01.io:a,i,0x800102030405 at port 1, holds write-exclusive";
        assert_eq!(Registration::parse_list(&answer).unwrap()[0].to_string(), words);
    }

    #[test]
    fn capabilities_name_the_types() {
        let all = ReservationCapabilities::parse(&[0, 8, 0x0d, 0x81, 0xea, 0x01, 0, 0]).unwrap();
        assert_eq!(all.types, ReservationType::ALL);
        assert!(all.persist_capable && all.persist_active);
        assert!(ReservationCapabilities::parse(&[0, 8, 0, 0, 0xea, 1, 0, 0]).unwrap().types.is_empty());
    }

    #[test]
    fn every_type_is_known_by_its_name() {
        for kind in ReservationType::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            assert_eq!(ReservationType::new(kind.code()), Some(kind));
        }
        assert_eq!("exclusive".parse::<ReservationType>(), Err(crate::UnknownReservationType));
    }

    #[test]
    fn the_keys_are_where_the_clause_has_them() {
        let list =
            ReserveOutList { key: 1, service_action_key: 2, persist: true, ..ReserveOutList::default() };
        assert_eq!(list.write(), [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(ReserveOutList::parse(&list.write()[..23]), None);
    }

    proptest! {
        #[test]
        fn lists_come_back_as_they_were(key: u64, service_action_key: u64, flags: [bool; 3], relative_port: u16) {
            let [specify_initiator_ports, all_target_ports, persist] = flags;
            let list = ReserveOutList { key, service_action_key, specify_initiator_ports, all_target_ports, persist };
            prop_assert_eq!(ReserveOutList::parse(&list.write()), Some(list));
            let initiator = TransportId::Iscsi { name: "iqn.x:i".into(), isid: Some([1; 6]) };
            let list = ReserveMoveList {
                key, new_key: service_action_key, unregister: all_target_ports, persist, relative_port, initiator,
            };
            prop_assert_eq!(ReserveMoveList::parse(&list.write()), Ok(list));
        }

        #[test]
        fn data_come_back_as_they_were(generation: u32, keys: Vec<u64>, kind in 0usize..7, flags: [bool; 5], allow_commands in 0u8..8) {
            let kind = ReservationType::ALL.get(kind).copied();
            let registration = |key: &u64| Registration {
                key: *key, holds: kind, all_ports: flags[0], relative_port: 7,
                initiator: Some(TransportId::Iscsi { name: "iqn.x:i".into(), isid: None }),
            };
            let registrations: Vec<_> = keys.iter().map(registration).collect();
            let written = Registration::write_list(generation, registrations.iter().cloned());
            prop_assert_eq!(Registration::parse_list(&written), Some(registrations));
            let keys = RegisteredKeys { generation, keys };
            prop_assert_eq!(RegisteredKeys::parse(&keys.write()), Some(keys));
            let reservation = kind.map(|kind| Reservation { key: 9, kind });
            prop_assert_eq!(Reservation::parse(&Reservation::write(generation, reservation)), Some(reservation));
            let [compatible_reservation_handling, specify_initiator_ports, all_target_ports, persist_capable, persist_active] = flags;
            let capabilities = ReservationCapabilities {
                compatible_reservation_handling, specify_initiator_ports, all_target_ports, persist_capable, persist_active,
                allow_commands, types: kind.into_iter().collect(),
            };
            prop_assert_eq!(ReservationCapabilities::parse(&capabilities.write()), Some(capabilities));
        }

        #[test]
        fn any_answer_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..128)) {
            RegisteredKeys::parse(&bytes);
            Reservation::parse(&bytes);
            ReservationCapabilities::parse(&bytes);
            for registration in Registration::parse_list(&bytes).unwrap_or_default() {
                prop_assert!(!registration.to_string().chars().any(char::is_control));
            }
        }
    }
}
