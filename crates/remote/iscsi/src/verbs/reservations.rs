//! Reservations: persistent ones (SPC-4 5.13, 6.15 and 6.16), and those by RESERVE(6) of SPC-2.

use scsi::fields::u32_at;
use scsi::{
    Association, Name, RegisteredKeys, Registration, Reservation, ReservationCapabilities, ReservationType,
    ReserveIn, ReserveOut, ReserveOutList, TransportId, VpdContent, cdb,
};

use super::{VerbError, parameters};
use crate::unit::Unit;

/// PERSISTENT RESERVE OUT. Every action but the two that register needs a registration, and proves it by its
/// key.
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

impl PersistentReserve {
    /// SERVICE ACTION, TYPE and the parameter list.
    fn encode(self) -> (ReserveOut, u8, ReserveOutList) {
        use PersistentReserve as P;
        let list = |key, service_action_key, persist| ReserveOutList {
            key,
            service_action_key,
            persist,
            ..ReserveOutList::default()
        };
        match self {
            P::Register { key, new_key, persist } => (ReserveOut::Register, 0, list(key, new_key, persist)),
            P::RegisterAndIgnoreExistingKey { new_key, persist } => {
                (ReserveOut::RegisterAndIgnoreExistingKey, 0, list(0, new_key, persist))
            }
            P::Reserve { key, kind } => (ReserveOut::Reserve, kind.code(), list(key, 0, false)),
            P::Release { key, kind } => (ReserveOut::Release, kind.code(), list(key, 0, false)),
            P::Clear { key } => (ReserveOut::Clear, 0, list(key, 0, false)),
            P::Preempt { key, victim, kind } => (ReserveOut::Preempt, kind.code(), list(key, victim, false)),
            P::PreemptAndAbort { key, victim, kind } => {
                (ReserveOut::PreemptAndAbort, kind.code(), list(key, victim, false))
            }
        }
    }
}

const IN: &str = "PERSISTENT RESERVE IN";
const OUT: &str = "PERSISTENT RESERVE OUT";
/// Enough for some forty registrations; more are asked for again.
const BYTES: u32 = 4096;

impl Unit {
    /// READ KEYS.
    pub async fn registered_keys(&self) -> Result<RegisteredKeys, VerbError> {
        let answer = self.reservations(ReserveIn::Keys).await?;
        RegisteredKeys::parse(&answer).ok_or(VerbError::Nonsense(IN))
    }

    /// READ RESERVATION; `None` if the logical unit is not reserved.
    pub async fn reservation(&self) -> Result<Option<Reservation>, VerbError> {
        let answer = self.reservations(ReserveIn::Reservation).await?;
        Reservation::parse(&answer).ok_or(VerbError::Nonsense(IN))
    }

    /// REPORT CAPABILITIES.
    pub async fn reservation_capabilities(&self) -> Result<ReservationCapabilities, VerbError> {
        let answer = self.ask(IN, cdb::persistent_reserve_in(ReserveIn::Capabilities, 8), 8).await?;
        // Up to the mask of types.
        answer.get(..6).map(ReservationCapabilities::parse).ok_or(VerbError::Nonsense(IN))
    }

    /// READ FULL STATUS.
    pub async fn registrations(&self) -> Result<Vec<Registration>, VerbError> {
        let answer = self.reservations(ReserveIn::FullStatus).await?;
        Registration::parse_list(&answer).ok_or(VerbError::Nonsense(IN))
    }

    /// What is registered for this session's initiator port, and not at the target port that the session is
    /// with: such a registration does not count here. A login that ends in another portal group is at another
    /// port.
    pub async fn registrations_elsewhere(&self) -> Result<Vec<Registration>, VerbError> {
        let nexus = self.target().nexus();
        let ours = TransportId::Iscsi { name: nexus.initiator, isid: Some(nexus.isid.0) };
        let is_ours = |registration: &Registration| registration.initiator.as_ref() == Some(&ours);
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
        let (action, kind, list) = what.encode();
        let cdb = cdb::persistent_reserve_out(action, kind, ReserveOutList::BYTES as u32);
        self.tell(OUT, cdb, parameters(&list.write())).await
    }

    /// RESERVE(6): only this session uses the logical unit, until it releases it, ends, or the unit is reset.
    pub async fn reserve(&self) -> Result<(), VerbError> {
        self.carry_out("RESERVE(6)", cdb::reserve_6()).await
    }

    /// RELEASE(6). It is no error to release what was not reserved.
    pub async fn release(&self) -> Result<(), VerbError> {
        self.carry_out("RELEASE(6)", cdb::release_6()).await
    }

    async fn reservations(&self, action: ReserveIn) -> Result<block::Buffer, VerbError> {
        let cdb = |bytes| cdb::persistent_reserve_in(action, bytes as u16);
        let whole = |answer: &[u8]| 8 + u64::from(u32_at(answer, 4));
        self.ask_all(IN, cdb, BYTES, u32::from(u16::MAX), whole).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_are_where_the_action_wants_them() {
        let (action, kind, list) = PersistentReserve::Register { key: 1, new_key: 2, persist: true }.encode();
        assert_eq!((action, kind, list.key, list.service_action_key), (ReserveOut::Register, 0, 1, 2));
        let kind = ReservationType::ExclusiveAccessAllRegistrants;
        let (action, kind, list) = PersistentReserve::PreemptAndAbort { key: 1, victim: 3, kind }.encode();
        assert_eq!((action, kind, list.service_action_key), (ReserveOut::PreemptAndAbort, 8, 3));
    }
}
