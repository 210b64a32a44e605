//! Reservations: persistent ones (SPC-4 5.13, 6.15 and 6.16), and those by RESERVE(6) of SPC-2.

use std::fmt;

use scsi::{ReservationType, cdb};

use super::designator::{Association, Name};
use super::fields::{elements, u8_at, u16_at, u32_at, u64_at};
use super::transport_id::TransportId;
use super::vpd::VpdContent;
use super::{VerbError, parameters};
use crate::unit::Unit;

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
    /// The types it knows; empty if it does not say.
    pub types: Vec<ReservationType>,
}

/// PERSISTENT RESERVE OUT. Every action but the two that register needs a registration, and proves it by its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PersistentReserve {
    /// Registers a key, or another than the one before; zero ends the registration.
    Register {
        /// The key before; zero if there was none.
        key: u64,
        /// The key from now on.
        new_key: u64,
        /// APTPL: it outlives a loss of power.
        persist: bool,
    },
    /// The same, whatever was registered before.
    RegisterAndIgnoreExistingKey {
        /// The key from now on.
        new_key: u64,
        /// APTPL: it outlives a loss of power.
        persist: bool,
    },
    /// Reserves the logical unit.
    Reserve {
        /// Our key.
        key: u64,
        /// What others may not.
        kind: ReservationType,
    },
    /// Ends our reservation.
    Release {
        /// Our key.
        key: u64,
        /// As it was reserved.
        kind: ReservationType,
    },
    /// Ends the reservation and all registrations.
    Clear {
        /// Our key.
        key: u64,
    },
    /// Takes the reservation of others, and ends their registrations.
    Preempt {
        /// Our key.
        key: u64,
        /// Theirs.
        victim: u64,
        /// What others may not from now on.
        kind: ReservationType,
    },
    /// The same, and aborts their commands.
    PreemptAndAbort {
        /// Our key.
        key: u64,
        /// Theirs.
        victim: u64,
        /// What others may not from now on.
        kind: ReservationType,
    },
}

/// PERSISTENT RESERVE OUT, as it travels.
#[derive(Debug, PartialEq, Eq)]
struct Out {
    action: u8,
    kind: u8,
    key: u64,
    service_action_key: u64,
    persist: bool,
}

impl PersistentReserve {
    fn encode(self) -> Out {
        use PersistentReserve as P;
        let out = |action, key| Out { action, kind: 0, key, service_action_key: 0, persist: false };
        match self {
            P::Register { key, new_key, persist } => {
                Out { service_action_key: new_key, persist, ..out(0, key) }
            }
            P::Reserve { key, kind } => Out { kind: kind.code(), ..out(1, key) },
            P::Release { key, kind } => Out { kind: kind.code(), ..out(2, key) },
            P::Clear { key } => out(3, key),
            P::Preempt { key, victim, kind } => {
                Out { kind: kind.code(), service_action_key: victim, ..out(4, key) }
            }
            P::PreemptAndAbort { key, victim, kind } => {
                Out { kind: kind.code(), service_action_key: victim, ..out(5, key) }
            }
            P::RegisterAndIgnoreExistingKey { new_key, persist } => {
                Out { service_action_key: new_key, persist, ..out(6, 0) }
            }
        }
    }
}

impl Out {
    /// The basic parameter list (SPC-4 6.16.3).
    fn list(&self) -> [u8; LIST_BYTES] {
        let mut list = [0; LIST_BYTES];
        list[..8].copy_from_slice(&self.key.to_be_bytes());
        list[8..16].copy_from_slice(&self.service_action_key.to_be_bytes());
        list[20] = u8::from(self.persist);
        list
    }
}

const IN: &str = "PERSISTENT RESERVE IN";
const OUT: &str = "PERSISTENT RESERVE OUT";
const LIST_BYTES: usize = 24;
/// Enough for some forty registrations; more are asked for again.
const BYTES: u32 = 4096;

impl Unit {
    /// READ KEYS.
    pub async fn registered_keys(&self) -> Result<RegisteredKeys, VerbError> {
        let answer = self.reservations(0).await?;
        registered_keys(&answer).ok_or(VerbError::Nonsense(IN))
    }

    /// READ RESERVATION; `None` if the logical unit is not reserved.
    pub async fn reservation(&self) -> Result<Option<Reservation>, VerbError> {
        let answer = self.reservations(1).await?;
        reservation(&answer).ok_or(VerbError::Nonsense(IN))
    }

    /// REPORT CAPABILITIES.
    pub async fn reservation_capabilities(&self) -> Result<ReservationCapabilities, VerbError> {
        let answer = self.ask(IN, cdb::persistent_reserve_in(2, 8), 8).await?;
        capabilities(&answer).ok_or(VerbError::Nonsense(IN))
    }

    /// READ FULL STATUS.
    pub async fn registrations(&self) -> Result<Vec<Registration>, VerbError> {
        let answer = self.reservations(3).await?;
        registrations(&answer).ok_or(VerbError::Nonsense(IN))
    }

    /// What is registered for this session's initiator port, and not at the target port that the session is with: such a
    /// registration does not count here. A login that ends in another portal group is at another port.
    pub async fn registrations_elsewhere(&self) -> Result<Vec<Registration>, VerbError> {
        let nexus = self.target().nexus();
        let isid: String = nexus.isid.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let is_ours = |registration: &Registration| match &registration.initiator {
            Some(TransportId::Iscsi { name, isid: Some(its) }) => {
                *name == nexus.initiator && its.eq_ignore_ascii_case(&isid)
            }
            Some(TransportId::Iscsi { isid: None, .. } | TransportId::Other { .. }) | None => false,
        };
        // One that does not say which port this is: nothing can be said to be elsewhere.
        let Some(here) = self.relative_port().await? else { return Ok(Vec::new()) };
        let mut registrations = self.registrations().await?;
        registrations.retain(|registration| {
            is_ours(registration) && !registration.all_ports && registration.relative_port != here
        });
        Ok(registrations)
    }

    /// Which of the target's ports the session is with, if the target says.
    async fn relative_port(&self) -> Result<Option<u16>, VerbError> {
        let VpdContent::Designators(designators) = self.vpd(0x83).await?.content else { return Ok(None) };
        let mut of_port = designators.into_iter().filter(|one| one.association == Association::TargetPort);
        Ok(of_port.find_map(|one| match one.name {
            Name::RelativeTargetPort(port) => Some(port),
            _ => None,
        }))
    }

    /// PERSISTENT RESERVE OUT. A wrong key is a RESERVATION CONFLICT.
    pub async fn persistent_reserve(&self, what: PersistentReserve) -> Result<(), VerbError> {
        let out = what.encode();
        let cdb = cdb::persistent_reserve_out(out.action, out.kind, LIST_BYTES as u32);
        self.tell(OUT, cdb, parameters(&out.list())).await
    }

    /// RESERVE(6): only this session uses the logical unit, until it releases it, ends, or the unit is reset.
    pub async fn reserve(&self) -> Result<(), VerbError> {
        self.carry_out("RESERVE(6)", cdb::reserve_6()).await
    }

    /// RELEASE(6). It is no error to release what was not reserved.
    pub async fn release(&self) -> Result<(), VerbError> {
        self.carry_out("RELEASE(6)", cdb::release_6()).await
    }

    async fn reservations(&self, action: u8) -> Result<block::Buffer, VerbError> {
        let cdb = |bytes| cdb::persistent_reserve_in(action, bytes as u16);
        let whole = |answer: &[u8]| 8 + u64::from(u32_at(answer, 4));
        self.ask_all(IN, cdb, BYTES, u32::from(u16::MAX), whole).await
    }
}

/// What is behind PRGENERATION and ADDITIONAL LENGTH, as far as it came.
fn additional(answer: &[u8]) -> Option<&[u8]> {
    let rest = answer.get(8..)?;
    Some(&rest[..rest.len().min(u32_at(answer, 4) as usize)])
}

fn registered_keys(answer: &[u8]) -> Option<RegisteredKeys> {
    let keys = additional(answer)?.chunks_exact(8).map(|key| u64_at(key, 0)).collect();
    Some(RegisteredKeys { generation: u32_at(answer, 0), keys })
}

fn reservation(answer: &[u8]) -> Option<Option<Reservation>> {
    match additional(answer)? {
        [] => Some(None),
        descriptor if descriptor.len() < 16 => None,
        descriptor => {
            let kind = ReservationType::new(descriptor[13] & 0x0f)?;
            Some(Some(Reservation { key: u64_at(descriptor, 0), kind }))
        }
    }
}

fn capabilities(answer: &[u8]) -> Option<ReservationCapabilities> {
    let [_, _, can, does, high, low, ..] = *answer else { return None };
    // TMV: the mask of types is valid. Its bits are numbered by the types, 0 to 7 in its first byte.
    let mask = if does & 0x80 != 0 { u16::from(high) | u16::from(low) << 8 } else { 0 };
    let known = |kind: &ReservationType| mask >> kind.code() & 1 == 1;
    Some(ReservationCapabilities {
        compatible_reservation_handling: can & 0x10 != 0,
        specify_initiator_ports: can & 0x08 != 0,
        all_target_ports: can & 0x04 != 0,
        persist_capable: can & 0x01 != 0,
        persist_active: does & 0x01 != 0,
        types: ReservationType::ALL.into_iter().filter(known).collect(),
    })
}

fn registrations(answer: &[u8]) -> Option<Vec<Registration>> {
    let length = |rest: &[u8]| Some(24 + u32_at(rest.get(..24)?, 20) as usize);
    Some(elements(additional(answer)?, length).map(registration).collect())
}

/// SPC-4 table 214.
fn registration(bytes: &[u8]) -> Registration {
    let flags = u8_at(bytes, 12);
    Registration {
        key: u64_at(bytes, 0),
        holds: ReservationType::new(u8_at(bytes, 13) & 0x0f).filter(|_| flags & 1 != 0),
        all_ports: flags & 2 != 0,
        relative_port: u16_at(bytes, 18),
        initiator: bytes.get(24..).and_then(TransportId::parse),
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
        assert_eq!(reservation(&[0, 0, 0, 1, 0, 0, 0, 0]), Some(None));
        assert_eq!(reservation(&[0; 7]), None);
    }

    #[test]
    fn a_reservation_of_an_unknown_type_is_refused() {
        let mut answer = [0; 24];
        (answer[7], answer[21]) = (16, 0x02);
        assert_eq!(reservation(&answer), None);
        (answer[15], answer[21]) = (7, 0x05);
        assert_eq!(
            reservation(&answer).unwrap().unwrap().to_string(),
            "write-exclusive-registrants-only by key 0x7"
        );
    }

    #[test]
    fn keys_end_where_the_header_says() {
        let answer = [&[0, 0, 0, 9, 0, 0, 0, 8][..], &7u64.to_be_bytes(), &8u64.to_be_bytes()].concat();
        assert_eq!(registered_keys(&answer), Some(RegisteredKeys { generation: 9, keys: vec![7] }));
    }

    #[test]
    fn a_registration_names_its_initiator() {
        let port = b"iqn.2026-01.io:a,i,0x800102030405\0\0\0";
        let mut answer = [0; 36];
        (answer[7], answer[15], answer[20], answer[21], answer[27]) = (28 + 36, 7, 1, 1, 1);
        (answer[31], answer[32], answer[35]) = (40, 0x45, 36);
        let answer = [&answer[..], port].concat();
        let words = "key 0x7 by iqn.2026-01.io:a,i,0x800102030405 at port 1, holds write-exclusive";
        assert_eq!(registrations(&answer).unwrap()[0].to_string(), words);
    }

    #[test]
    fn capabilities_name_the_types() {
        let all = capabilities(&[0, 8, 0x0d, 0x81, 0xea, 0x01, 0, 0]).unwrap();
        assert_eq!(all.types, ReservationType::ALL);
        assert!(all.persist_capable && all.persist_active);
        assert!(capabilities(&[0, 8, 0, 0, 0xea, 1, 0, 0]).unwrap().types.is_empty());
    }

    #[test]
    fn the_keys_are_where_the_action_wants_them() {
        let register = PersistentReserve::Register { key: 1, new_key: 2, persist: true }.encode();
        let list = register.list();
        assert_eq!((list[7], list[15], list[20], register.kind), (1, 2, 1, 0));
        let kind = ReservationType::ExclusiveAccessAllRegistrants;
        let preempt = PersistentReserve::PreemptAndAbort { key: 1, victim: 3, kind }.encode();
        assert_eq!((preempt.action, preempt.kind, preempt.service_action_key), (5, 8, 3));
    }

    #[test]
    fn every_type_is_known_by_its_name() {
        for kind in ReservationType::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            assert_eq!(ReservationType::new(kind.code()), Some(kind));
        }
        assert_eq!("exclusive".parse::<ReservationType>(), Err(scsi::UnknownReservationType));
    }

    proptest! {
        #[test]
        fn any_answer_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..128)) {
            registered_keys(&bytes);
            reservation(&bytes);
            capabilities(&bytes);
            for registration in registrations(&bytes).unwrap_or_default() {
                prop_assert!(!registration.to_string().chars().any(char::is_control));
            }
        }
    }
}
