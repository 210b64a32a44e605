//! Persistent reservations (SPC-4 5.13): the parameter data of PERSISTENT RESERVE IN (6.15), and the
//! parameter lists of PERSISTENT RESERVE OUT (6.16).

use std::fmt;
use std::str::FromStr;

use derive_more::Display;
use num_enum::TryFromPrimitive;

use crate::fields::{elements, layout, u8_at, u16_at, u32_at, u64_at};
use crate::transport_id::TransportId;

/// Service actions of PERSISTENT RESERVE IN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromPrimitive)]
#[repr(u8)]
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

/// Service actions of PERSISTENT RESERVE OUT, without REPLACE LOST RESERVATION, which is for tapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromPrimitive)]
#[repr(u8)]
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

layout! {
    /// The basic parameter list of PERSISTENT RESERVE OUT (SPC-4 table 209), without TransportIDs.
    ReserveOutList: 24 bytes,
    {
        key: u64 = (0, 7, 64, "RESERVATION KEY", "the sender's"),
        service_action_key: u64 =
            (8, 7, 64, "SERVICE ACTION RESERVATION KEY", "key to register, or to remove"),
        specify_initiator_ports: bool = (20, 3, 1, "SPEC_I_PT", "TransportIDs follow"),
        all_target_ports: bool = (20, 2, 1, "ALL_TG_PT", "through all target ports"),
        persist: bool = (20, 0, 1, "APTPL", "persists through power loss"),
    }

    /// The parameter list of REGISTER AND MOVE (SPC-4 table 211), without its TransportID.
    ReserveMoveList: 24 bytes,
    {
        key: u64 = (0, 7, 64, "RESERVATION KEY", "the holder's"),
        new_key: u64 = (8, 7, 64, "SERVICE ACTION RESERVATION KEY", "key for the new holder"),
        unregister: bool = (17, 1, 1, "UNREG", "the old holder is unregistered"),
        persist: bool = (17, 0, 1, "APTPL", "persists through power loss"),
        relative_port: u16 = (18, 7, 16, "RELATIVE TARGET PORT IDENTIFIER", "of the new holder"),
        transport_id_bytes: u32 =
            (20, 7, 32, "TRANSPORTID PARAMETER DATA LENGTH", "of the new holder's name"),
    }

    /// Support for persistent reservations: REPORT CAPABILITIES (SPC-4 table 204).
    ReservationCapabilities: 8 bytes from [0, 8],
    {
        compatible_reservation_handling: bool =
            (2, 4, 1, "CRH", "RESERVE(6) from a registered initiator is compatible"),
        specify_initiator_ports: bool = (2, 3, 1, "SIP_C", "SPEC_I_PT is supported"),
        all_target_ports: bool = (2, 2, 1, "ATP_C", "registration for all ports is supported"),
        persist_capable: bool = (2, 0, 1, "PTPL_C", "persistence through power loss is supported"),
        type_mask_valid: bool = (3, 7, 1, "TMV", "the type mask is valid"),
        allow_commands: u8 =
            (3, 6, 3, "ALLOW COMMANDS", "commands permitted with reservations (SPC-4 table 205)"),
        persist_active: bool = (3, 0, 1, "PTPL_A", "registrations persist through power loss"),
        type_mask: u16 = (4, 7, 16, "PERSISTENT RESERVATION TYPE MASK", "supported types, one bit each"),
    }
}

/// The registered keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegisteredKeys {
    /// PRGENERATION: incremented with every change of the registrations.
    pub generation: u32,
    /// One key for each registered I_T nexus.
    pub keys: Vec<u64>,
}

/// The reservation in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[display("{kind} by key {key:#x}")]
pub struct Reservation {
    /// The holder's key; zero if all registrants are holders.
    pub key: u64,
    /// TYPE.
    pub kind: ReservationType,
}

/// A registered I_T nexus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Its key.
    pub key: u64,
    /// The type of the reservation, if this I_T nexus is a holder (R_HOLDER).
    pub holds: Option<ReservationType>,
    /// ALL_TG_PT: through all ports of the target.
    pub all_ports: bool,
    /// RELATIVE TARGET PORT IDENTIFIER, unless the registration applies to all ports.
    pub relative_port: u16,
    /// The initiator port; `None` if the target reports an invalid TransportID.
    pub initiator: Option<TransportId>,
}

/// The received data after PRGENERATION and ADDITIONAL LENGTH.
fn additional(answer: &[u8]) -> Option<&[u8]> {
    let rest = answer.get(8..)?;
    Some(&rest[..rest.len().min(u32_at(answer, 4) as usize)])
}

/// Prepends PRGENERATION and ADDITIONAL LENGTH to a list.
fn listed(generation: u32, list: &[u8]) -> Vec<u8> {
    let length = u32::try_from(list.len()).unwrap_or(u32::MAX);
    [&generation.to_be_bytes()[..], &length.to_be_bytes(), list].concat()
}

impl RegisteredKeys {
    /// Parses READ KEYS data; `None` if it is too short for a header.
    pub fn parse(answer: &[u8]) -> Option<RegisteredKeys> {
        let keys = additional(answer)?
            .chunks_exact(8)
            .map(|key| u64_at(key, 0))
            .collect();
        Some(RegisteredKeys {
            generation: u32_at(answer, 0),
            keys,
        })
    }

    /// Encodes the parameter data.
    pub fn write(&self) -> Vec<u8> {
        let keys: Vec<u8> = self.keys.iter().flat_map(|key| key.to_be_bytes()).collect();
        listed(self.generation, &keys)
    }
}

impl Reservation {
    /// Parses READ RESERVATION data (SPC-4 table 201): `Some(None)` without a reservation; `None` if it is
    /// truncated, or the type is invalid.
    pub fn parse(answer: &[u8]) -> Option<Option<Reservation>> {
        match additional(answer)? {
            [] => Some(None),
            descriptor if descriptor.len() < 16 => None,
            descriptor => {
                let kind = ReservationType::try_from(descriptor[13] & 0x0f).ok()?;
                Some(Some(Reservation {
                    key: u64_at(descriptor, 0),
                    kind,
                }))
            }
        }
    }

    /// Encodes the parameter data.
    pub fn write(generation: u32, reservation: Option<Reservation>) -> Vec<u8> {
        let Some(Reservation { key, kind }) = reservation else {
            return listed(generation, &[]);
        };
        listed(
            generation,
            &[&key.to_be_bytes()[..], &[0, 0, 0, 0, 0, kind.code(), 0, 0]].concat(),
        )
    }
}

impl ReservationCapabilities {
    /// The supported types; empty if the target does not report them.
    pub fn types(&self) -> Vec<ReservationType> {
        let known = |kind: &ReservationType| self.type_mask & Self::type_bit(*kind) != 0;
        ReservationType::ALL
            .into_iter()
            .filter(|kind| self.type_mask_valid && known(kind))
            .collect()
    }

    /// The bit of a type in the mask (SPC-4 table 206). The bit number is the type code; bits 0 to 7 are in
    /// the first byte.
    pub fn type_bit(kind: ReservationType) -> u16 {
        debug_assert!(kind.code() < 16, "a type of four bits");
        (1u16 << kind.code()).swap_bytes()
    }
}

impl Registration {
    /// Parses READ FULL STATUS data; `None` if it is too short for a header.
    pub fn parse_list(answer: &[u8]) -> Option<Vec<Registration>> {
        let length = |rest: &[u8]| Some(24 + u32_at(rest.get(..24)?, 20) as usize);
        Some(
            elements(additional(answer)?, length)
                .map(Registration::parse)
                .collect(),
        )
    }

    /// Parses a descriptor (SPC-4 table 208).
    fn parse(bytes: &[u8]) -> Registration {
        let flags = u8_at(bytes, 12);
        Registration {
            key: u64_at(bytes, 0),
            holds: ReservationType::try_from(u8_at(bytes, 13) & 0x0f)
                .ok()
                .filter(|_| flags & 1 != 0),
            all_ports: flags & 2 != 0,
            relative_port: u16_at(bytes, 18),
            initiator: bytes.get(24..).and_then(TransportId::parse),
        }
    }

    /// Encodes the parameter data.
    pub fn write_list(
        generation: u32,
        registrations: impl Iterator<Item = Registration>,
    ) -> Vec<u8> {
        let mut list = Vec::new();
        for registration in registrations {
            let id = registration
                .initiator
                .as_ref()
                .map(TransportId::write)
                .unwrap_or_default();
            debug_assert!(id.len().is_multiple_of(4), "TransportIDs are whole words");
            let flags =
                u8::from(registration.all_ports) << 1 | u8::from(registration.holds.is_some());
            list.extend(registration.key.to_be_bytes());
            list.extend([
                0,
                0,
                0,
                0,
                flags,
                registration.holds.map_or(0, ReservationType::code),
                0,
                0,
                0,
                0,
            ]);
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
        self.holds
            .iter()
            .try_for_each(|kind| write!(f, ", holds {kind}"))
    }
}

/// The accesses that a reservation forbids to others (SPC-4 table 61).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, TryFromPrimitive)]
#[repr(u8)]
pub enum ReservationType {
    /// Only the holder writes.
    #[display("write-exclusive")]
    WriteExclusive = 1,
    /// Only the holder reads or writes.
    #[display("exclusive-access")]
    ExclusiveAccess = 3,
    /// Only registrants write, and one of them is the holder.
    #[display("write-exclusive-registrants-only")]
    WriteExclusiveRegistrantsOnly = 5,
    /// Only registrants read or write, and one of them is the holder.
    #[display("exclusive-access-registrants-only")]
    ExclusiveAccessRegistrantsOnly = 6,
    /// Only registrants write, and all of them are holders.
    #[display("write-exclusive-all-registrants")]
    WriteExclusiveAllRegistrants = 7,
    /// Only registrants read or write, and all of them are holders.
    #[display("exclusive-access-all-registrants")]
    ExclusiveAccessAllRegistrants = 8,
}

impl ReservationType {
    /// All types, for help texts.
    pub const ALL: [ReservationType; 6] = [
        ReservationType::WriteExclusive,
        ReservationType::ExclusiveAccess,
        ReservationType::WriteExclusiveRegistrantsOnly,
        ReservationType::ExclusiveAccessRegistrantsOnly,
        ReservationType::WriteExclusiveAllRegistrants,
        ReservationType::ExclusiveAccessAllRegistrants,
    ];

    /// Its code.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Whether other I_T nexuses may still read (SPC-4 table 65).
    pub fn others_may_read(self) -> bool {
        matches!(
            self,
            ReservationType::WriteExclusive
                | ReservationType::WriteExclusiveRegistrantsOnly
                | ReservationType::WriteExclusiveAllRegistrants
        )
    }
}

/// No type of reservation has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownReservationType;

impl fmt::Display for UnknownReservationType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown reservation type; use one of:")?;
        ReservationType::ALL
            .into_iter()
            .try_for_each(|kind| write!(f, " {kind}"))
    }
}

impl std::error::Error for UnknownReservationType {}

impl FromStr for ReservationType {
    type Err = UnknownReservationType;

    fn from_str(name: &str) -> Result<ReservationType, UnknownReservationType> {
        ReservationType::ALL
            .into_iter()
            .find(|kind| kind.to_string() == name)
            .ok_or(UnknownReservationType)
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
        let answer = [
            &[0, 0, 0, 9, 0, 0, 0, 8][..],
            &7u64.to_be_bytes(),
            &8u64.to_be_bytes(),
        ]
        .concat();
        assert_eq!(
            RegisteredKeys::parse(&answer),
            Some(RegisteredKeys {
                generation: 9,
                keys: vec![7]
            })
        );
    }

    #[test]
    fn a_registration_names_its_initiator() {
        let port = b"iqn.2026-01.io:a,i,0x800102030405\0\0\0";
        let mut answer = [0; 36];
        (answer[7], answer[15], answer[20], answer[21], answer[27]) = (28 + 36, 7, 1, 1, 1);
        (answer[31], answer[32], answer[35]) = (40, 0x45, 36);
        let answer = [&answer[..], port].concat();
        let words = "key 0x7 by iqn.2026-01.io:a,i,0x800102030405 at port 1, holds write-exclusive";
        assert_eq!(
            Registration::parse_list(&answer).unwrap()[0].to_string(),
            words
        );
    }

    #[test]
    fn capabilities_name_the_types() {
        let all = ReservationCapabilities::parse(&[0, 8, 0x0d, 0x81, 0xea, 0x01, 0, 0]);
        assert_eq!(all.types(), ReservationType::ALL);
        assert!(all.persist_capable && all.persist_active);
        assert!(
            ReservationCapabilities::parse(&[0, 8, 0, 0, 0xea, 1, 0, 0])
                .types()
                .is_empty()
        );
        let mask = ReservationType::ALL
            .into_iter()
            .map(ReservationCapabilities::type_bit)
            .sum::<u16>();
        assert_eq!(mask, 0xea01);
    }

    #[test]
    fn every_type_is_known_by_its_name() {
        for kind in ReservationType::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            assert_eq!(ReservationType::try_from(kind.code()), Ok(kind));
        }
        assert_eq!(
            "exclusive".parse::<ReservationType>(),
            Err(crate::UnknownReservationType)
        );
    }

    #[test]
    fn the_keys_are_where_the_clause_has_them() {
        let list = ReserveOutList {
            key: 1,
            service_action_key: 2,
            persist: true,
            ..ReserveOutList::default()
        };
        assert_eq!(
            list.write(),
            [
                0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0, 0
            ]
        );
    }

    proptest! {
        #[test]
        fn data_come_back_as_they_were(generation: u32, keys: Vec<u64>, kind in 0usize..7, all_ports: bool) {
            let kind = ReservationType::ALL.get(kind).copied();
            let registration = |key: &u64| Registration {
                key: *key, holds: kind, all_ports, relative_port: 7,
                initiator: Some(TransportId::Iscsi { name: "iqn.x:i".into(), isid: None }),
            };
            let registrations: Vec<_> = keys.iter().map(registration).collect();
            let written = Registration::write_list(generation, registrations.iter().cloned());
            prop_assert_eq!(Registration::parse_list(&written), Some(registrations));
            let keys = RegisteredKeys { generation, keys };
            prop_assert_eq!(RegisteredKeys::parse(&keys.write()), Some(keys));
            let reservation = kind.map(|kind| Reservation { key: 9, kind });
            prop_assert_eq!(Reservation::parse(&Reservation::write(generation, reservation)), Some(reservation));
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
