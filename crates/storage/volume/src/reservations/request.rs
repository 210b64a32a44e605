//! Requests to change the reservations of a volume, and their results.

use std::num::NonZeroU64;

use super::{Registration, ReservationType};
use crate::requester::{HostPath, HostPort};

/// A change requested by a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Register, register with another key, or unregister.
    Register(Register),
    /// Take the reservation.
    Reserve {
        /// The key of who asks.
        key: u64,
        /// What it is to keep others from.
        kind: ReservationType,
    },
    /// Release the requester's reservation.
    Release {
        /// The key of who asks.
        key: u64,
        /// The kind that it has.
        kind: ReservationType,
    },
    /// Remove all registrations and the reservation.
    Clear {
        /// The key of who asks.
        key: u64,
    },
    /// Remove registrations of others, and take over their reservation.
    Preempt {
        /// The key of who asks.
        key: u64,
        /// The key of the others. Zero stands for all registrants, where all of them hold the reservation.
        victims: u64,
        /// What the reservation is to keep others from; needed only if it is taken over.
        kind: Option<ReservationType>,
        /// The requests of the others are to be aborted, by the front end.
        abort: bool,
    },
    /// Hand the reservation to another path.
    Move(Move),
}

/// The effects of a change on other hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Notices for other hosts. The requesting path is excluded, even if a registration covers it.
    pub notices: Vec<Notice>,
    /// The preempted registrations.
    pub preempted: Vec<Registration>,
}

/// An event for the paths of a registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The registration.
    pub who: Registration,
    /// What.
    pub what: Event,
}

/// What another host did to the reservations of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// The reservation through which it had access has ended, or has become one of another kind.
    ReservationReleased,
    /// Another has ended all registrations and the reservation.
    ReservationPreempted,
    /// Another has ended its registration.
    RegistrationPreempted,
}

/// Why a change is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The path is not registered, its key differs, or another path holds the reservation.
    Conflict,
    /// A path registers others with itself, and is registered already.
    AlreadyRegistered,
    /// One of the others is registered already.
    OtherRegistered,
    /// The limit of registrations is reached.
    TooMany,
    /// The reservation to release is of another kind.
    OfAnotherKind,
    /// The key is zero.
    KeyZero,
    /// A reservation is to be taken over, and its type is missing.
    KindMissing,
    /// A reservation is to be moved to its holder.
    MovedToItself,
}

/// Registering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    /// The key that it has so far, zero for none; `None` to ignore it.
    pub existing: Option<u64>,
    /// The key to register, or zero to unregister.
    pub key: u64,
    /// Through all target ports, not only this one.
    pub all_ports: bool,
    /// All registrations and the reservation are to survive a loss of power.
    pub persist_through_power_loss: bool,
    /// Other host ports to register with the same key.
    pub others: Option<Vec<HostPort>>,
}

impl Register {
    /// Registers the path that asks, and no other, with `key`, whatever key it has so far.
    pub fn new(key: NonZeroU64) -> Register {
        Register {
            existing: None,
            key: key.get(),
            all_ports: false,
            persist_through_power_loss: false,
            others: None,
        }
    }
}

/// Moving the reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The key of the holder.
    pub existing: u64,
    /// The key to register the new holder with.
    pub key: u64,
    /// The new holder.
    pub to: HostPath,
    /// The old holder's registration ends.
    pub unregister: bool,
    /// All registrations and the reservation are to survive a loss of power.
    pub persist_through_power_loss: bool,
}
