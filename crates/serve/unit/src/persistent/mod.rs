//! Persistent reservations (SPC-4 5.12): who is registered with a logical unit, and who holds it.
//!
//! [`Registrations`] is the whole state, and its verbs are the service actions of PERSISTENT RESERVE OUT. A verb
//! either refuses and changes nothing, or changes the state and returns whom to tell what. It knows neither
//! sessions nor the wire: an I_T nexus is a [`NexusName`], which outlives sessions and restarts.
//!
//! Reading order: this file (the state and the questions to it), [`change`] (the verbs), [`access`] (which
//! commands a reservation stops), [`out`] and [`report`] (parameter lists and parameter data),
//! [`transport_id`], [`kept`] (the state in a file).
//!
//! ```text
//!                 REGISTER           RESERVE
//!  unregistered ───────────> registered ───────────> holder (or one of many, types 7 and 8)
//!       <─────────── REGISTER 0 · CLEAR · PREEMPT ───────────
//! ```

pub(crate) mod access;
pub(crate) mod change;
pub(crate) mod command;
pub(crate) mod kept;
pub(crate) mod out;
pub(crate) mod report;
pub(crate) mod transport_id;

#[cfg(test)]
mod model;

use std::num::NonZeroU64;

use scsi::ReservationType;

use crate::nexus::{InitiatorPort, TargetPort};

/// An I_T nexus by its names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NexusName {
    pub(crate) initiator: InitiatorPort,
    pub(crate) target: TargetPort,
}

/// A registered I_T nexus, or all of one initiator port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registration {
    pub(crate) initiator: InitiatorPort,
    pub(crate) ports: Ports,
    pub(crate) key: NonZeroU64,
}

/// The target ports through which a registration counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ports {
    /// One.
    One(TargetPort),
    /// All (ALL_TG_PT), those included that come into being later, but for those whose nexus has been
    /// unregistered or given another key by itself since.
    AllBut(Vec<TargetPort>),
}

/// The reservation; its scope is always the logical unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub(crate) kind: ReservationType,
    /// Who holds it. Without meaning for the all-registrants types.
    pub(crate) holder: NexusName,
}

/// The registrations of a logical unit, and its reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registrations {
    /// PRGENERATION: counts changes of registrations since power on (SPC-4 6.15.2).
    pub(crate) generation: u32,
    registered: Vec<Registration>,
    reservation: Option<Reservation>,
    /// APTPL of the last registration: all this survives a loss of power.
    pub(crate) persist_through_power_loss: bool,
}

/// The most registrations one logical unit keeps: a cluster of 64 hosts with 16 paths each.
pub(crate) const REGISTRATIONS_MAX: usize = 1024;

impl Registrations {
    /// All of them, in the order in which they came.
    pub(crate) fn registered(&self) -> &[Registration] {
        &self.registered
    }

    /// The reservation, if there is one.
    pub(crate) fn reservation(&self) -> Option<&Reservation> {
        self.reservation.as_ref()
    }

    /// The key with which `nexus` is registered.
    pub(crate) fn key_of(&self, nexus: &NexusName) -> Option<NonZeroU64> {
        self.registered.iter().find(|registration| registration.covers(nexus)).map(|found| found.key)
    }

    /// Whether `nexus` is a persistent reservation holder.
    pub(crate) fn holds(&self, nexus: &NexusName) -> bool {
        self.reservation.as_ref().is_some_and(|reservation| match reservation.kind.all_registrants() {
            true => self.key_of(nexus).is_some(),
            false => reservation.holder.is(nexus),
        })
    }
}

impl NexusName {
    /// Whether both name the same I_T nexus. A relative port identifier may be numbered anew at a restart; the
    /// port's name is what counts.
    pub(crate) fn is(&self, other: &NexusName) -> bool {
        self.initiator == other.initiator && same_port(&self.target, &other.target)
    }
}

impl Registration {
    /// Whether it is the registration of `nexus`.
    pub(crate) fn covers(&self, nexus: &NexusName) -> bool {
        self.initiator == nexus.initiator && self.ports.include(&nexus.target)
    }
}

impl Ports {
    fn one(&self) -> Option<&TargetPort> {
        match self {
            Ports::One(port) => Some(port),
            Ports::AllBut(_) => None,
        }
    }

    fn include(&self, port: &TargetPort) -> bool {
        match self {
            Ports::One(one) => same_port(one, port),
            Ports::AllBut(others) => !others.iter().any(|other| same_port(other, port)),
        }
    }
}

fn same_port(a: &TargetPort, b: &TargetPort) -> bool {
    a.group == b.group && a.name == b.name
}

#[cfg(test)]
pub(crate) mod scene {
    //! Names and keys for the scenes of this module's tests.

    use super::*;

    pub(crate) fn port(group: u16) -> TargetPort {
        TargetPort { name: "iqn.2026-11.test:target".into(), group, relative_port: group }
    }

    /// The initiator port `who`, through the first target port.
    pub(crate) fn nexus(who: u8) -> NexusName {
        through(who, 1)
    }

    pub(crate) fn through(who: u8, group: u16) -> NexusName {
        let name = format!("iqn.2026-11.test:host{who}");
        NexusName { initiator: InitiatorPort { name, isid: [0x40, 0, 0, 0, 0, who] }, target: port(group) }
    }

    pub(crate) fn key(key: u64) -> NonZeroU64 {
        NonZeroU64::new(key).expect("tests use keys that are not zero")
    }
}
