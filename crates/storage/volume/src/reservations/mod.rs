//! Persistent reservations (SPC-4 5.12): the hosts registered with a volume, and the holder of its reservation.
//!
//! [`Registrations`] is the complete state. A [`Change`] is either refused without effect, or changes the
//! state and returns notices for other hosts. This module is independent of sessions and protocols: a host is
//! a [`HostPath`], which survives connections and restarts. SCSI's service actions are one encoding of
//! changes.
//!
//! Reading order: the state and its queries, the requests and their results, the changes. The module
//! `persistent_state` encodes the state as bytes.
//!
//! ```text
//!                 register           reserve
//!  unregistered ───────────> registered ───────────> holder (or one of many, with the all-registrants types)
//!       <──────── unregister · clear · preempt ────────
//! ```

#[cfg(test)]
pub(crate) mod tests;

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

/// A registration of one path, or of all paths of one host port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The host.
    pub host: HostPort,
    /// The target ports to which the registration applies.
    pub ports: Ports,
    /// The reservation key.
    pub key: NonZeroU64,
}

/// The ports to which a registration applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ports {
    /// One port.
    One(ServicePort),
    /// All ports, including ports that are added later, except ports through which the host has since been
    /// unregistered or registered with another key.
    AllBut(Vec<ServicePort>),
}

/// The reservation, which always covers the whole volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The type of the reservation.
    pub kind: ReservationType,
    /// The holder of the reservation. Not used for the all-registrants types.
    pub holder: HostPath,
}

/// The registrations of a volume, and its reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registrations {
    /// Number of changes of registrations since power on (PRGENERATION, SPC-4 6.15.2).
    pub generation: u32,
    pub(crate) registered: Vec<Registration>,
    pub(crate) reservation: Option<Reservation>,
    /// Whether the state persists through power loss, as requested by the last registration (APTPL).
    pub persist_through_power_loss: bool,
}

/// Maximum number of registrations of a volume: enough for a cluster of 64 hosts with 16 paths each.
pub(crate) const REGISTRATIONS_MAX: usize = 1024;

impl Registrations {
    /// Returns all registrations, in the order of registration.
    pub fn registered(&self) -> &[Registration] {
        &self.registered
    }

    /// Returns the reservation, if there is one.
    pub fn reservation(&self) -> Option<&Reservation> {
        self.reservation.as_ref()
    }

    /// Returns the key with which `path` is registered.
    pub fn key_of(&self, path: &HostPath) -> Option<NonZeroU64> {
        self.registered
            .iter()
            .find(|registration| registration.covers(path))
            .map(|found| found.key)
    }

    /// Returns whether `path` holds the reservation.
    pub fn holds(&self, path: &HostPath) -> bool {
        self.reservation.as_ref().is_some_and(|reservation| {
            match reservation.kind.all_registrants() {
                true => self.key_of(path).is_some(),
                false => reservation.holder.is(path),
            }
        })
    }

    /// Returns whether the reservation, if any, has a holder that is registered.
    pub(crate) fn is_consistent(&self) -> bool {
        self.reservation.as_ref().is_none_or(|reservation| {
            match reservation.kind.all_registrants() {
                true => !self.registered.is_empty(),
                false => self.key_of(&reservation.holder).is_some(),
            }
        })
    }
}

impl Registration {
    /// Returns whether the registration applies to `path`.
    pub fn covers(&self, path: &HostPath) -> bool {
        self.host == path.host && self.ports.include(&path.service)
    }
}

impl Ports {
    /// Returns the single port; `None` if the registration applies to all ports.
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

/// The type of a reservation: the six types that SCSI (SPC-4 table 61) and NVMe share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationType {
    /// Only the holder can write.
    WriteExclusive,
    /// Only the holder can read or write.
    ExclusiveAccess,
    /// Only registrants can write, and one of them is the holder.
    WriteExclusiveRegistrantsOnly,
    /// Only registrants can read or write, and one of them is the holder.
    ExclusiveAccessRegistrantsOnly,
    /// Only registrants can write, and all of them are holders.
    WriteExclusiveAllRegistrants,
    /// Only registrants can read or write, and all of them are holders.
    ExclusiveAccessAllRegistrants,
}

impl ReservationType {
    /// All types.
    pub const ALL: [ReservationType; 6] = [
        ReservationType::WriteExclusive,
        ReservationType::ExclusiveAccess,
        ReservationType::WriteExclusiveRegistrantsOnly,
        ReservationType::ExclusiveAccessRegistrantsOnly,
        ReservationType::WriteExclusiveAllRegistrants,
        ReservationType::ExclusiveAccessAllRegistrants,
    ];

    /// Returns the type's number in saved state. SCSI uses the same numbers, NVMe different ones.
    pub fn code(self) -> u8 {
        match self {
            ReservationType::WriteExclusive => 1,
            ReservationType::ExclusiveAccess => 3,
            ReservationType::WriteExclusiveRegistrantsOnly => 5,
            ReservationType::ExclusiveAccessRegistrantsOnly => 6,
            ReservationType::WriteExclusiveAllRegistrants => 7,
            ReservationType::ExclusiveAccessAllRegistrants => 8,
        }
    }

    /// Returns the type with this number.
    pub fn from_code(code: u8) -> Option<ReservationType> {
        ReservationType::ALL
            .into_iter()
            .find(|kind| kind.code() == code)
    }

    /// Returns whether every registered host is a holder.
    pub fn all_registrants(self) -> bool {
        matches!(
            self,
            ReservationType::WriteExclusiveAllRegistrants
                | ReservationType::ExclusiveAccessAllRegistrants
        )
    }

    /// Returns whether every registered host has access, even if it is not the holder.
    pub fn registrants_have_access(self) -> bool {
        !matches!(
            self,
            ReservationType::WriteExclusive | ReservationType::ExclusiveAccess
        )
    }

    /// Returns whether all other hosts may read.
    pub fn others_may_read(self) -> bool {
        matches!(
            self,
            ReservationType::WriteExclusive
                | ReservationType::WriteExclusiveRegistrantsOnly
                | ReservationType::WriteExclusiveAllRegistrants
        )
    }
}

/// A change requested by a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Register, register with another key, or unregister.
    Register(Register),
    /// Take the reservation.
    Reserve {
        /// The key of the requester.
        key: u64,
        /// The type of reservation.
        kind: ReservationType,
    },
    /// Release the requester's reservation.
    Release {
        /// The key of the requester.
        key: u64,
        /// The type of the reservation.
        kind: ReservationType,
    },
    /// Remove all registrations and the reservation.
    Clear {
        /// The key of the requester.
        key: u64,
    },
    /// Remove registrations of others, and take over their reservation.
    Preempt {
        /// The key of the requester.
        key: u64,
        /// The key of the others. With the all-registrants types, zero stands for all registrants.
        victims: u64,
        /// The type of the new reservation; required only if the reservation is taken over.
        kind: Option<ReservationType>,
        /// Whether the front end must abort the requests of the others.
        abort: bool,
    },
    /// Move the reservation to another path.
    Move(Move),
}

/// The effects of a change on other hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Notices for other hosts. The requesting path receives no notice, even if the registration in a notice
    /// covers it.
    pub notices: Vec<Notice>,
    /// The preempted registrations.
    pub preempted: Vec<Registration>,
}

/// An event for the paths of a registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The registration.
    pub who: Registration,
    /// The event.
    pub what: Event,
}

/// An effect of another host's change on a host's reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// The reservation that gave the host access has been released, or its type has changed.
    ReservationReleased,
    /// Another host has cleared all registrations and the reservation.
    ReservationPreempted,
    /// Another host has removed the host's registration.
    RegistrationPreempted,
}

/// The reason why a change is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The path is not registered, its key is different, or another path holds the reservation.
    Conflict,
    /// The path requests registration of others together with itself, but it is already registered.
    AlreadyRegistered,
    /// One of the others is already registered.
    OtherRegistered,
    /// The volume has the maximum number of registrations.
    TooMany,
    /// The reservation to release has another type.
    OfAnotherKind,
    /// The key is zero.
    KeyZero,
    /// The type of the reservation is missing, but the reservation would be taken over.
    KindMissing,
    /// The reservation would be moved to the path that holds it.
    MovedToItself,
}

/// Parameters of a registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    /// The current key of the path; zero if the path is not registered. `None` ignores the current key.
    pub existing: Option<u64>,
    /// The key to register, or zero to unregister.
    pub key: u64,
    /// Whether to register through all target ports instead of only this one.
    pub all_ports: bool,
    /// Whether all registrations and the reservation must survive a power loss.
    pub persist_through_power_loss: bool,
    /// Other host ports to register with the same key.
    pub others: Option<Vec<HostPort>>,
}

impl Register {
    /// Registers only the requesting path with `key`, regardless of its current key.
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

/// Parameters of a move of the reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The key of the holder.
    pub existing: u64,
    /// The key with which to register the new holder.
    pub key: u64,
    /// The new holder.
    pub to: HostPath,
    /// Whether to remove the registration of the old holder.
    pub unregister: bool,
    /// Whether all registrations and the reservation must survive a power loss.
    pub persist_through_power_loss: bool,
}

impl Registrations {
    /// Returns whether `path` has this access under the reservation, if there is one.
    pub fn permit(&self, path: &HostPath, access: Access) -> bool {
        let Some(reservation) = &self.reservation else {
            return true;
        };
        match access {
            Access::Read if reservation.kind.others_may_read() => true,
            Access::Read | Access::Write if reservation.kind.registrants_have_access() => {
                self.key_of(path).is_some()
            }
            Access::Read | Access::Write => self.holds(path),
        }
    }
}

type Verdict = Result<Changed, Refusal>;

/// The changes (SPC-4 5.12.7 to 5.12.11, as service actions of PERSISTENT RESERVE OUT).
///
/// The path that requested the change receives no notice. A path that loses its registration is notified only
/// of this loss.
impl Registrations {
    /// Executes a change for `by`.
    ///
    /// # Errors
    /// Returns the reason why the change is refused; the state is then unchanged.
    pub fn change(&mut self, by: &HostPath, change: Change) -> Result<Changed, Refusal> {
        let verdict = match change {
            Change::Register(register) => self.register(by, &register),
            Change::Reserve { key, kind } => self.reserve(by, key, kind),
            Change::Release { key, kind } => self.release(by, key, kind),
            Change::Clear { key } => self.clear(by, key),
            Change::Preempt {
                key, victims, kind, ..
            } => self.preempt(by, key, victims, kind),
            Change::Move(to) => self.register_and_move(by, to),
        };
        debug_assert!(self.is_consistent(), "a reservation has a holder");
        debug_assert!(self.registered.len() <= REGISTRATIONS_MAX);
        verdict
    }

    /// Executes REGISTER, or REGISTER AND IGNORE EXISTING KEY (SPC-4 5.12.7, tables 58 and 59; 5.12.11.3 for
    /// key zero).
    pub(crate) fn register(&mut self, by: &HostPath, command: &Register) -> Verdict {
        let current = self.key_of(by).map_or(0, NonZeroU64::get);
        if command.existing.is_some_and(|existing| existing != current) {
            return Err(Refusal::Conflict);
        }
        if current != 0 && command.others.is_some() {
            return Err(Refusal::AlreadyRegistered);
        }
        match NonZeroU64::new(command.key) {
            None if current == 0 => Ok(Changed::default()),
            None => Ok(self.unregister(by, command)),
            Some(key) => self.add(by, key, command),
        }
    }

    fn unregister(&mut self, by: &HostPath, command: &Register) -> Changed {
        self.remove_registrations_for(by, command);
        self.registration_changed(command.persist_through_power_loss);
        self.release_without_holder()
    }

    fn add(&mut self, by: &HostPath, key: NonZeroU64, command: &Register) -> Verdict {
        let mut next = self.clone();
        next.remove_registrations_for(by, command);
        next.insert(by, key, command.all_ports);
        for other in command.others.iter().flatten() {
            let path = HostPath {
                host: other.clone(),
                service: by.service.clone(),
            };
            if path.is(by) {
                continue;
            }
            if next.key_of(&path).is_some() {
                return Err(Refusal::OtherRegistered);
            }
            next.insert(&path, key, command.all_ports);
        }
        if next.registered.len() > REGISTRATIONS_MAX {
            return Err(Refusal::TooMany);
        }
        next.registration_changed(command.persist_through_power_loss);
        *self = next;
        Ok(Changed::default())
    }

    /// Registers `path`, or, with `all`, registers its host through all ports through which the host is not
    /// yet registered.
    fn insert(&mut self, path: &HostPath, key: NonZeroU64, all: bool) {
        debug_assert!(self.key_of(path).is_none(), "a path has one key");
        let elsewhere = self
            .registered
            .iter()
            .filter(|other| other.host == path.host);
        let elsewhere: Option<Vec<ServicePort>> =
            elsewhere.map(|other| other.ports.one().cloned()).collect();
        let ports = match elsewhere {
            Some(others) if all => Ports::AllBut(others),
            _ => Ports::One(path.service.clone()),
        };
        self.registered.push(Registration {
            host: path.host.clone(),
            ports,
            key,
        });
    }

    /// Removes the registrations that a command of `by` replaces: the registration of `by`, or with
    /// `all_ports`, the registrations of its host through all ports whose key matches the command's.
    fn remove_registrations_for(&mut self, by: &HostPath, command: &Register) {
        if command.all_ports {
            let existing = command.existing;
            self.registered.retain(|registration| {
                registration.host != by.host
                    || existing.is_some_and(|existing| existing != registration.key.get())
            });
        }
        self.remove_registration_of(by);
    }

    /// Removes `path` from its registration. Removes the registration unless it covers other paths.
    fn remove_registration_of(&mut self, path: &HostPath) {
        self.registered.retain_mut(|registration| {
            if !registration.covers(path) {
                return true;
            }
            match &mut registration.ports {
                Ports::AllBut(others) if others.len() < PORTS_LEFT_OUT_MAX => {
                    debug_assert!(
                        !others.iter().any(|other| other.is(&path.service)),
                        "it covers the path"
                    );
                    others.push(path.service.clone());
                    true
                }
                _ => false,
            }
        });
    }

    /// Releases a reservation whose last holder has been unregistered (SPC-4 5.12.11.3). Notifies the
    /// remaining registrants if they had access through the reservation (types 5 and 6). With types 7 and 8,
    /// there are no remaining registrants.
    fn release_without_holder(&mut self) -> Changed {
        if self.is_consistent() {
            Changed::default()
        } else {
            self.end_reservation()
        }
    }

    /// Releases the reservation, and notifies the registrants if its type gave them access (SPC-4
    /// 5.12.11.2.2).
    fn end_reservation(&mut self) -> Changed {
        debug_assert!(self.reservation.is_some());
        let tell = self
            .reservation
            .take()
            .is_some_and(|ended| ended.kind.registrants_have_access());
        let notices = if tell {
            self.notices(Event::ReservationReleased)
        } else {
            Vec::new()
        };
        Changed {
            notices,
            ..Changed::default()
        }
    }

    fn notices(&self, what: Event) -> Vec<Notice> {
        notices(&self.registered, what)
    }

    fn registration_changed(&mut self, persist_through_power_loss: bool) {
        self.persist_through_power_loss = persist_through_power_loss;
        self.count();
    }

    fn count(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// Checks that `by` is registered with this key, as all changes except registration require.
    fn registrant(&self, by: &HostPath, key: u64) -> Result<NonZeroU64, Refusal> {
        self.key_of(by)
            .filter(|registered| registered.get() == key)
            .ok_or(Refusal::Conflict)
    }

    /// Executes RESERVE (SPC-4 5.12.9).
    pub(crate) fn reserve(&mut self, by: &HostPath, key: u64, kind: ReservationType) -> Verdict {
        self.registrant(by, key)?;
        match &self.reservation {
            None => {
                self.reservation = Some(Reservation {
                    kind,
                    holder: by.clone(),
                })
            }
            Some(existing) if existing.kind == kind && self.holds(by) => {}
            Some(_) => return Err(Refusal::Conflict),
        }
        Ok(Changed::default())
    }

    /// Executes RELEASE (SPC-4 5.12.11.2.2). If another path holds the reservation, this succeeds without
    /// effect.
    fn release(&mut self, by: &HostPath, key: u64, kind: ReservationType) -> Verdict {
        self.registrant(by, key)?;
        match &self.reservation {
            Some(existing) if self.holds(by) && existing.kind != kind => {
                Err(Refusal::OfAnotherKind)
            }
            Some(_) if self.holds(by) => Ok(self.end_reservation()),
            _ => Ok(Changed::default()),
        }
    }

    /// CLEAR (SPC-4 5.12.11.2.7): removes all registrations and the reservation.
    fn clear(&mut self, by: &HostPath, key: u64) -> Verdict {
        self.registrant(by, key)?;
        let notices = self.notices(Event::ReservationPreempted);
        self.registered.clear();
        self.reservation = None;
        self.count();
        Ok(Changed {
            notices,
            ..Changed::default()
        })
    }

    /// PREEMPT and PREEMPT AND ABORT (SPC-4 5.12.11.2.4): removes the registrations with the key `victims`.
    /// If a holder is among them, `by` takes over the reservation with type `kind`; otherwise `kind` is
    /// ignored.
    fn preempt(
        &mut self,
        by: &HostPath,
        key: u64,
        victims: u64,
        kind: Option<ReservationType>,
    ) -> Verdict {
        self.registrant(by, key)?;
        match &self.reservation {
            Some(held) if held.kind.all_registrants() && victims == 0 => {
                self.take_over(by, None, kind)
            }
            Some(held) if !held.kind.all_registrants() && self.is_key_of(&held.holder, victims) => {
                self.take_over(by, NonZeroU64::new(victims), kind)
            }
            _ => self.remove_victims(by, victims),
        }
    }

    fn is_key_of(&self, path: &HostPath, key: u64) -> bool {
        self.key_of(path)
            .is_some_and(|registered| registered.get() == key)
    }

    /// Removes registrations without taking over the reservation (SPC-4 5.12.11.2.5).
    fn remove_victims(&mut self, by: &HostPath, victims: u64) -> Verdict {
        let victims = NonZeroU64::new(victims).ok_or(Refusal::KeyZero)?;
        if !self
            .registered
            .iter()
            .any(|registration| registration.key == victims)
        {
            return Err(Refusal::Conflict);
        }
        let preempted = self.remove_all_but(by, Some(victims));
        self.count();
        Ok(Changed {
            notices: notices(&preempted, Event::RegistrationPreempted),
            preempted,
        })
    }

    /// Takes over the reservation for `by`, and removes the registrations with the key `victims`, or all
    /// other registrations if `victims` is `None` (SPC-4 5.12.11.2.4). Notifies the remaining registrants if
    /// the new reservation has another type.
    fn take_over(
        &mut self,
        by: &HostPath,
        victims: Option<NonZeroU64>,
        kind: Option<ReservationType>,
    ) -> Verdict {
        let kind = kind.ok_or(Refusal::KindMissing)?;
        let preempted = self.remove_all_but(by, victims);
        debug_assert!(self.key_of(by).is_some(), "a registrant takes it over");
        let before = self.reservation.replace(Reservation {
            kind,
            holder: by.clone(),
        });
        self.count();
        let mut notices = notices(&preempted, Event::RegistrationPreempted);
        if before.is_some_and(|before| before.kind != kind) {
            notices.extend(self.notices(Event::ReservationReleased));
        }
        Ok(Changed { notices, preempted })
    }

    /// Removes the registrations with the key `victims`, or all if it is `None`, and returns them. The
    /// registration of `by` stays, even if its key is the same: SPC-4 5.12.11.2.4 exempts it when a
    /// reservation is preempted. libiscsi, in whose tests hosts often share a key, expects the same when only
    /// registrations are removed.
    fn remove_all_but(&mut self, by: &HostPath, victims: Option<NonZeroU64>) -> Vec<Registration> {
        let everyone = std::mem::take(&mut self.registered);
        let (kept, removed) = everyone.into_iter().partition(|registration| {
            registration.covers(by) || victims.is_some_and(|victims| registration.key != victims)
        });
        self.registered = kept;
        debug_assert!(
            !removed.iter().any(|registration| registration.covers(by)),
            "its own stays"
        );
        removed
    }

    /// REGISTER AND MOVE (SPC-4 5.12.8): the holder moves the reservation to another path.
    fn register_and_move(&mut self, by: &HostPath, command: Move) -> Verdict {
        self.registrant(by, command.existing)?;
        let reservation = self.reservation.as_ref().ok_or(Refusal::Conflict)?;
        if reservation.kind.all_registrants() || !self.holds(by) {
            return Err(Refusal::Conflict);
        }
        let kind = reservation.kind;
        let key = NonZeroU64::new(command.key).ok_or(Refusal::KeyZero)?;
        if command.to.is(by) {
            return Err(Refusal::MovedToItself);
        }
        let mut next = self.clone();
        next.remove_registration_of(&command.to);
        next.insert(&command.to, key, false);
        if next.registered.len() > REGISTRATIONS_MAX {
            return Err(Refusal::TooMany);
        }
        if command.unregister {
            next.remove_registration_of(by);
        }
        debug_assert!(
            next.key_of(&command.to).is_some(),
            "the new holder is registered"
        );
        next.reservation = Some(Reservation {
            kind,
            holder: command.to,
        });
        next.registration_changed(command.persist_through_power_loss);
        *self = next;
        Ok(Changed::default())
    }
}

fn notices(registrations: &[Registration], what: Event) -> Vec<Notice> {
    registrations
        .iter()
        .map(|who| Notice {
            who: who.clone(),
            what,
        })
        .collect()
}

/// Maximum number of ports that an all-ports registration can lose individually; beyond that, the whole
/// registration is removed. There are only few portal groups, but a list that a peer can extend must be
/// limited.
const PORTS_LEFT_OUT_MAX: usize = 64;

// Hosts, requesters and their attachments, independently of protocols. Hosts have names that survive their
// connections.

/// A host port, which can hold reservations. Its identity survives the loss of a connection and a restart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// The host's name: the iSCSI name of an initiator.
    pub name: String,
    /// Distinguishes the ports of one host: the ISID in iSCSI (RFC 7143 4.4.2), zeros if the name is sufficient.
    pub qualifier: [u8; 6],
}

/// A port that serves hosts: a target port in SCSI.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServicePort {
    /// The name of the server side: the iSCSI name of a target.
    pub name: String,
    /// The portal group tag, which together with the name forms the SCSI port name (RFC 7143 4.4.2).
    pub group: u16,
    /// The port's number among the ports of this name, from 1.
    pub relative_port: u16,
}

/// A path from a host to a volume, identified by its two ports: an I_T nexus in SCSI.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPath {
    /// The port of the host.
    pub host: HostPort,
    /// The port that serves the host.
    pub service: ServicePort,
}

impl HostPath {
    /// Returns whether both are the same path. This compares the names of ports, because relative port
    /// identifiers may be renumbered at a restart.
    pub fn is(&self, other: &HostPath) -> bool {
        self.host == other.host && self.service.is(&other.service)
    }
}

impl ServicePort {
    /// Returns whether both are the same port.
    pub(crate) fn is(&self, other: &ServicePort) -> bool {
        self.group == other.group && self.name == other.name
    }
}

/// The requester of an access.
#[derive(Clone, Copy, Debug)]
pub struct Requester<'a> {
    /// The attachment, which can hold a reservation that ends with the attachment.
    pub attachment: AttachmentId,
    /// The path, which can hold persistent reservations.
    pub path: &'a HostPath,
}

/// The access of a request to blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The request reads the blocks.
    Read,
    /// The request changes the blocks.
    Write,
}

/// Identifies an attachment of a host to a volume in any protocol: an I_T nexus in SCSI, a connection in NBD.
/// Never reused within the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttachmentId(u64);

impl AttachmentId {
    /// Returns a new unique identifier.
    pub fn next() -> AttachmentId {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        debug_assert!(number > 0, "no number comes twice");
        AttachmentId(number)
    }

    /// Returns the identifier as a number.
    pub fn number(self) -> u64 {
        self.0
    }
}
