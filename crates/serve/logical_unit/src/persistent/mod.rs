//! PERSISTENT RESERVE IN and OUT: SCSI's encoding of [`volume::reservations`].
//!
//! Reading order: [`command`] (the commands at a logical unit), [`out`] and [`report`] (parameter lists and
//! parameter data). The effect of a change, and what a reservation forbids, are in `volume`.

pub(crate) mod command;
pub(crate) mod out;
pub(crate) mod report;

use scsi::{Condition, SenseKey, asc};
use volume::reservations::{Event, Refusal};

use crate::attention::Attention;
use crate::failure::Failure;

impl From<Event> for Attention {
    fn from(event: Event) -> Attention {
        match event {
            Event::ReservationReleased => Attention::ReservationsReleased,
            Event::ReservationPreempted => Attention::ReservationsPreempted,
            Event::RegistrationPreempted => Attention::RegistrationsPreempted,
        }
    }
}

/// Field pointers are those of the parameter list.
impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        let code = |code| Condition::new(SenseKey::IllegalRequest, code);
        Failure::Check(match refusal {
            Refusal::Conflict => return Failure::ReservationConflict,
            // SPEC_I_PT.
            Refusal::AlreadyRegistered => Condition::invalid_parameter(20).at_field(false, 20, Some(3)),
            Refusal::OtherRegistered => Condition::invalid_parameter(28), // the first TransportID
            Refusal::TooMany => code(asc::INSUFFICIENT_REGISTRATION_RESOURCES),
            Refusal::OfAnotherKind => code(asc::INVALID_RELEASE_OF_PERSISTENT_RESERVATION),
            Refusal::KeyZero => Condition::invalid_parameter(8), // SERVICE ACTION RESERVATION KEY
            Refusal::KindMissing => Condition::invalid_bit(2, 3), // TYPE, in the CDB
            Refusal::MovedToItself => Condition::invalid_parameter(24), // the TransportID
        })
    }
}

#[cfg(test)]
mod scene {
    //! Names and keys for the scenes of this module's tests.

    use std::num::NonZeroU64;

    use volume::reservations::{Change, Register, Registrations};
    use volume::{HostPath, HostPort, ServicePort};

    /// The initiator port `who`, through the first target port.
    pub(crate) fn nexus(who: u8) -> HostPath {
        through(who, 1)
    }

    pub(crate) fn through(who: u8, group: u16) -> HostPath {
        let name = format!("iqn.2026-11.test:host{who}");
        let host = HostPort { name, qualifier: [0x40, 0, 0, 0, 0, who] };
        let name = "iqn.2026-11.test:target".into();
        HostPath { host, service: ServicePort { name, group, relative_port: group } }
    }

    /// A registration with `key` by a nexus that has none.
    pub(crate) fn register(key: u64) -> Register {
        Register::new(NonZeroU64::new(key).expect("tests use keys that are not zero"))
    }

    /// The initiator ports `who`, registered with their number in the first byte of a key that ends in ABh.
    pub(crate) fn registered(who: &[u8]) -> Registrations {
        let mut state = Registrations::default();
        for &who in who {
            let register = register(u64::from(who) << 56 | 0xab);
            state.change(&nexus(who), Change::Register(register)).expect("it is not registered");
        }
        state
    }
}
