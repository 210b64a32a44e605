//! What a host may ask of the reservations of a volume, and what comes of it.

use std::num::NonZeroU64;

use super::{Registration, ReservationType};
use crate::requester::{HostPath, HostPort};

/// A change, as a host asks for it.
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
    /// End one's reservation.
    Release {
        /// The key of who asks.
        key: u64,
        /// The kind that it has.
        kind: ReservationType,
    },
    /// End everything.
    Clear {
        /// The key of who asks.
        key: u64,
    },
    /// End the registrations of others, and take over their reservation.
    Preempt {
        /// The key of who asks.
        key: u64,
        /// The key of the others. Zero stands for all registrants, where all of them hold the reservation.
        victims: u64,
        /// What the reservation is to keep others from; needed only if it is taken over.
        kind: Option<ReservationType>,
        /// The requests of the others are to be aborted. That is for the front end to do.
        abort: bool,
    },
    /// Hand the reservation to another path.
    Move(Move),
}

/// What a change did besides changing the state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Whom to tell what. The path that asked is not meant, even where it is covered.
    pub notices: Vec<Notice>,
    /// Whose registrations were preempted.
    pub preempted: Vec<Registration>,
}

/// An event that the paths of a registration are to be told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whom.
    pub who: Registration,
    /// What.
    pub what: Event,
}

/// What happened to the reservations of a host, by another host's doing.
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
    /// It is not for this path to do: it is not registered, its key is another one, or another holds the reservation.
    Conflict,
    /// A path registers others with itself, and is registered already.
    AlreadyRegistered,
    /// One of the others is registered already.
    OtherRegistered,
    /// There are as many registrations as there can be.
    TooMany,
    /// The reservation to release is of another kind.
    OfAnotherKind,
    /// The key stands for nobody.
    KeyZero,
    /// A reservation is to be taken over, as what kind is not said.
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
    /// By all ports by which the host may be served, not this one alone.
    pub all_ports: bool,
    /// All registrations and the reservation are to survive a loss of power.
    pub persist_through_power_loss: bool,
    /// Other hosts' ends to register alike.
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
