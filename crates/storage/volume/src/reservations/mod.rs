//! Persistent reservations (SPC-4 5.12): which hosts are registered with a volume, and which holds it.
//!
//! [`Registrations`] is the whole state. A [`Change`] is either refused without effect, or changes the state
//! and returns notices for other hosts. It is independent of sessions and protocols: a host is a
//! [`HostPath`], which survives connections and restarts. SCSI's service actions are one encoding of it.
//!
//! Reading order: this file (the state and its queries), `request` (requests and results), `change` (the
//! transitions), `access` (which accesses a reservation forbids), `kept` (the state in a file).
//!
//! ```text
//!                 register           reserve
//!  unregistered ───────────> registered ───────────> holder (or one of many, with the all-registrants types)
//!       <──────── unregister · clear · preempt ────────
//! ```

mod access;
mod change;
mod kept;
mod kind;
#[cfg(test)]
mod model;
mod request;

use std::num::NonZeroU64;

pub use kind::ReservationType;
pub use request::{Change, Changed, Event, Move, Notice, Refusal, Register};

use crate::requester::{HostPath, HostPort, ServicePort};

/// A registered path, or all of one host's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The host.
    pub host: HostPort,
    /// The target ports.
    pub ports: Ports,
    /// The reservation key.
    pub key: NonZeroU64,
}

/// The ports through which a registration counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ports {
    /// One.
    One(ServicePort),
    /// All ports including later ones, except those whose path was unregistered or got another key since.
    AllBut(Vec<ServicePort>),
}

/// The reservation; it is always one of the whole volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Its type.
    pub kind: ReservationType,
    /// Its holder. Without meaning for the all-registrants types.
    pub holder: HostPath,
}

/// The registrations of a volume, and its reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registrations {
    /// Counts changes of registrations since power on (PRGENERATION, SPC-4 6.15.2).
    pub generation: u32,
    registered: Vec<Registration>,
    reservation: Option<Reservation>,
    /// Persists through power loss, as the last registration requested (APTPL).
    pub persist_through_power_loss: bool,
}

/// The most registrations one volume keeps: a cluster of 64 hosts with 16 paths each.
const REGISTRATIONS_MAX: usize = 1024;

impl Registrations {
    /// All of them, in the order in which they came.
    pub fn registered(&self) -> &[Registration] {
        &self.registered
    }

    /// The reservation, if there is one.
    pub fn reservation(&self) -> Option<&Reservation> {
        self.reservation.as_ref()
    }

    /// The key with which `path` is registered.
    pub fn key_of(&self, path: &HostPath) -> Option<NonZeroU64> {
        self.registered.iter().find(|registration| registration.covers(path)).map(|found| found.key)
    }

    /// Whether `path` holds the reservation.
    pub fn holds(&self, path: &HostPath) -> bool {
        self.reservation.as_ref().is_some_and(|reservation| match reservation.kind.all_registrants() {
            true => self.key_of(path).is_some(),
            false => reservation.holder.is(path),
        })
    }

    /// A reservation has a holder.
    fn is_consistent(&self) -> bool {
        self.reservation.as_ref().is_none_or(|reservation| match reservation.kind.all_registrants() {
            true => !self.registered.is_empty(),
            false => self.key_of(&reservation.holder).is_some(),
        })
    }
}

impl Registration {
    /// Whether it is the registration of `path`.
    pub fn covers(&self, path: &HostPath) -> bool {
        self.host == path.host && self.ports.include(&path.service)
    }
}

impl Ports {
    /// The only one, if it is not all.
    pub fn one(&self) -> Option<&ServicePort> {
        match self {
            Ports::One(port) => Some(port),
            Ports::AllBut(_) => None,
        }
    }

    fn include(&self, port: &ServicePort) -> bool {
        match self {
            Ports::One(one) => one.is(port),
            Ports::AllBut(others) => !others.iter().any(|other| other.is(port)),
        }
    }
}

#[cfg(test)]
pub(crate) mod scene {
    //! Names and keys for the scenes of this module's tests.

    use super::*;

    pub(crate) fn port(group: u16) -> ServicePort {
        ServicePort { name: "iqn.2026-11.test:target".into(), group, relative_port: group }
    }

    /// The host `who`, through the first port.
    pub(crate) fn path(who: u8) -> HostPath {
        through(who, 1)
    }

    pub(crate) fn through(who: u8, group: u16) -> HostPath {
        let name = format!("iqn.2026-11.test:host{who}");
        HostPath { host: HostPort { name, qualifier: [0x40, 0, 0, 0, 0, who] }, service: port(group) }
    }

    pub(crate) fn key(key: u64) -> NonZeroU64 {
        NonZeroU64::new(key).expect("tests use keys that are not zero")
    }
}
