//! The service actions of PERSISTENT RESERVE OUT as verbs on [`Registrations`] (SPC-4 5.12.7 to 5.12.11).
//!
//! Unit attentions: the nexus that sent the command is never told of what it did itself, and whoever loses a
//! registration hears of that alone.

use std::num::NonZeroU64;

use scsi::{Condition, ReservationType, SenseKey, asc};

use super::{NexusName, Ports, REGISTRATIONS_MAX, Registration, Registrations, Reservation};
use crate::attention::Attention;
use crate::failure::Failure;
use crate::nexus::{InitiatorPort, TargetPort};

/// What a service action did besides changing the state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    /// Whom to tell what. The nexus that sent the command is not meant, even where it is covered.
    pub(crate) notices: Vec<Notice>,
    /// Whose registrations were preempted: PREEMPT AND ABORT ends their commands.
    pub(crate) preempted: Vec<Registration>,
}

/// A unit attention for the I_T nexuses of a registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) who: Registration,
    pub(crate) what: Attention,
}

/// REGISTER and REGISTER AND IGNORE EXISTING KEY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Register {
    /// RESERVATION KEY; `None` to ignore the existing one.
    pub(crate) existing: Option<u64>,
    /// SERVICE ACTION RESERVATION KEY: the key to register, or zero to unregister.
    pub(crate) key: u64,
    /// ALL_TG_PT.
    pub(crate) all_target_ports: bool,
    /// APTPL.
    pub(crate) persist_through_power_loss: bool,
    /// SPEC_I_PT: other initiator ports to register alike.
    pub(crate) initiators: Option<Vec<InitiatorPort>>,
}

/// REGISTER AND MOVE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    /// RESERVATION KEY of the holder.
    pub(crate) existing: u64,
    /// The key to register the new holder with.
    pub(crate) key: u64,
    /// The new holder.
    pub(crate) to: NexusName,
    /// UNREG: the old holder's registration ends.
    pub(crate) unregister: bool,
    /// APTPL.
    pub(crate) persist_through_power_loss: bool,
}

type Verdict = Result<Changed, Failure>;

/// Where SERVICE ACTION RESERVATION KEY and the bits lie in the parameter list, for field pointers.
const SERVICE_ACTION_KEY: u16 = 8;
const SPEC_I_PT: Condition = Condition::invalid_parameter(20).at_field(false, 20, Some(3));

impl Registrations {
    /// REGISTER, REGISTER AND IGNORE EXISTING KEY (SPC-4 5.12.7, tables 58 and 59; 5.12.11.3 for key zero).
    pub(crate) fn register(&mut self, by: &NexusName, command: &Register) -> Verdict {
        let current = self.key_of(by).map_or(0, NonZeroU64::get);
        if command.existing.is_some_and(|existing| existing != current) {
            return Err(Failure::ReservationConflict);
        }
        if current != 0 && command.initiators.is_some() {
            return Err(SPEC_I_PT.into());
        }
        match NonZeroU64::new(command.key) {
            None if current == 0 => Ok(Changed::default()),
            None => Ok(self.unregister(by, command)),
            Some(key) => self.add(by, key, command),
        }
    }

    fn unregister(&mut self, by: &NexusName, command: &Register) -> Changed {
        self.remove_registrations_for(by, command);
        self.registration_changed(command.persist_through_power_loss);
        self.release_without_holder()
    }

    fn add(&mut self, by: &NexusName, key: NonZeroU64, command: &Register) -> Verdict {
        let mut next = self.clone();
        next.remove_registrations_for(by, command);
        next.insert(by, key, command.all_target_ports);
        for initiator in command.initiators.iter().flatten() {
            let nexus = NexusName { initiator: initiator.clone(), target: by.target.clone() };
            if nexus.is(by) {
                continue;
            }
            if next.key_of(&nexus).is_some() {
                return Err(Condition::invalid_parameter(28).into());
            }
            next.insert(&nexus, key, command.all_target_ports);
        }
        if next.registered.len() > REGISTRATIONS_MAX {
            let code = asc::INSUFFICIENT_REGISTRATION_RESOURCES;
            return Err(Condition::new(SenseKey::IllegalRequest, code).into());
        }
        next.registration_changed(command.persist_through_power_loss);
        *self = next;
        Ok(Changed::default())
    }

    /// Registers `nexus`, or its initiator port through all target ports through which it is not registered yet.
    fn insert(&mut self, nexus: &NexusName, key: NonZeroU64, all: bool) {
        let elsewhere = self.registered.iter().filter(|other| other.initiator == nexus.initiator);
        let elsewhere: Option<Vec<TargetPort>> = elsewhere.map(|other| other.ports.one().cloned()).collect();
        let ports = match elsewhere {
            Some(others) if all => Ports::AllBut(others),
            _ => Ports::One(nexus.target.clone()),
        };
        self.registered.push(Registration { initiator: nexus.initiator.clone(), ports, key });
    }

    /// Takes out what a registration command of `by` replaces: its own registration, or with ALL_TG_PT those of
    /// its initiator port through all target ports, as far as the command's key is theirs.
    fn remove_registrations_for(&mut self, by: &NexusName, command: &Register) {
        if command.all_target_ports {
            let existing = command.existing;
            self.registered.retain(|registration| {
                registration.initiator != by.initiator
                    || existing.is_some_and(|existing| existing != registration.key.get())
            });
        }
        self.remove_registration_of(by);
    }

    /// Takes `nexus` out of its registration, and the registration with it unless it covers other nexuses.
    fn remove_registration_of(&mut self, nexus: &NexusName) {
        self.registered.retain_mut(|registration| {
            if !registration.covers(nexus) {
                return true;
            }
            match &mut registration.ports {
                Ports::AllBut(others) if others.len() < PORTS_LEFT_OUT_MAX => {
                    others.push(nexus.target.clone());
                    true
                }
                _ => false,
            }
        });
    }

    /// A reservation whose last holder is unregistered ends (SPC-4 5.12.11.3). The remaining registrants are
    /// told where they had access through it (types 5 and 6); with types 7 and 8 none remain.
    fn release_without_holder(&mut self) -> Changed {
        let held =
            self.reservation.as_ref().is_none_or(|reservation| match reservation.kind.all_registrants() {
                true => !self.registered.is_empty(),
                false => self.key_of(&reservation.holder).is_some(),
            });
        if held { Changed::default() } else { self.end_reservation() }
    }

    /// Ends the reservation and tells the registrants, if it was of a kind that gave them access
    /// (SPC-4 5.12.11.2.2).
    fn end_reservation(&mut self) -> Changed {
        let tell = self.reservation.take().is_some_and(|ended| ended.kind.registrants_have_access());
        let notices = if tell { self.notices(Attention::ReservationsReleased) } else { Vec::new() };
        Changed { notices, ..Changed::default() }
    }

    fn notices(&self, what: Attention) -> Vec<Notice> {
        notices(&self.registered, what)
    }

    fn registration_changed(&mut self, persist_through_power_loss: bool) {
        self.persist_through_power_loss = persist_through_power_loss;
        self.count();
    }

    fn count(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// Every service action but the registering ones is for registered nexuses that know their key.
    fn registrant(&self, by: &NexusName, key: u64) -> Result<NonZeroU64, Failure> {
        self.key_of(by).filter(|registered| registered.get() == key).ok_or(Failure::ReservationConflict)
    }

    /// RESERVE (SPC-4 5.12.9).
    pub(crate) fn reserve(&mut self, by: &NexusName, key: u64, kind: ReservationType) -> Verdict {
        self.registrant(by, key)?;
        match &self.reservation {
            None => self.reservation = Some(Reservation { kind, holder: by.clone() }),
            Some(existing) if existing.kind == kind && self.holds(by) => {}
            Some(_) => return Err(Failure::ReservationConflict),
        }
        Ok(Changed::default())
    }

    /// RELEASE (SPC-4 5.12.11.2.2). Releasing what one does not hold is no error and does nothing.
    pub(crate) fn release(&mut self, by: &NexusName, key: u64, kind: ReservationType) -> Verdict {
        self.registrant(by, key)?;
        match &self.reservation {
            Some(existing) if self.holds(by) && existing.kind != kind => {
                let code = asc::INVALID_RELEASE_OF_PERSISTENT_RESERVATION;
                Err(Condition::new(SenseKey::IllegalRequest, code).into())
            }
            Some(_) if self.holds(by) => Ok(self.end_reservation()),
            _ => Ok(Changed::default()),
        }
    }

    /// CLEAR (SPC-4 5.12.11.2.7): all registrations and the reservation end.
    pub(crate) fn clear(&mut self, by: &NexusName, key: u64) -> Verdict {
        self.registrant(by, key)?;
        let notices = self.notices(Attention::ReservationsPreempted);
        self.registered.clear();
        self.reservation = None;
        self.count();
        Ok(Changed { notices, ..Changed::default() })
    }

    /// PREEMPT and PREEMPT AND ABORT (SPC-4 5.12.11.2.4): `victims` is the key of those who lose their
    /// registrations; if a holder is among them, `by` takes the reservation over with type `kind`, which is
    /// ignored otherwise.
    pub(crate) fn preempt(
        &mut self,
        by: &NexusName,
        key: u64,
        victims: u64,
        kind: Option<ReservationType>,
    ) -> Verdict {
        self.registrant(by, key)?;
        match &self.reservation {
            Some(held) if held.kind.all_registrants() && victims == 0 => self.take_over(by, None, kind),
            Some(held) if !held.kind.all_registrants() && self.is_key_of(&held.holder, victims) => {
                self.take_over(by, NonZeroU64::new(victims), kind)
            }
            _ => self.remove_victims(by, victims),
        }
    }

    fn is_key_of(&self, nexus: &NexusName, key: u64) -> bool {
        self.key_of(nexus).is_some_and(|registered| registered.get() == key)
    }

    /// Preempting without taking the reservation over (SPC-4 5.12.11.2.5).
    fn remove_victims(&mut self, by: &NexusName, victims: u64) -> Verdict {
        let victims = NonZeroU64::new(victims).ok_or(Condition::invalid_parameter(SERVICE_ACTION_KEY))?;
        if !self.registered.iter().any(|registration| registration.key == victims) {
            return Err(Failure::ReservationConflict);
        }
        let preempted = self.remove_all_but(by, Some(victims));
        self.count();
        Ok(Changed { notices: notices(&preempted, Attention::RegistrationsPreempted), preempted })
    }

    /// Preempting the reservation: the registrations with key `victims`, or with `None` all, give way to `by`
    /// (SPC-4 5.12.11.2.4). Those that stay are told if the new reservation is of another type.
    fn take_over(
        &mut self,
        by: &NexusName,
        victims: Option<NonZeroU64>,
        kind: Option<ReservationType>,
    ) -> Verdict {
        let kind = kind.ok_or(Condition::invalid_bit(2, 3))?;
        let preempted = self.remove_all_but(by, victims);
        let before = self.reservation.replace(Reservation { kind, holder: by.clone() });
        self.count();
        let mut notices = notices(&preempted, Attention::RegistrationsPreempted);
        if before.is_some_and(|before| before.kind != kind) {
            notices.extend(self.notices(Attention::ReservationsReleased));
        }
        Ok(Changed { notices, preempted })
    }

    /// Removes the registrations with key `victims`, or all, and returns them. That of `by` stays, even if its
    /// key is the same: SPC-4 5.12.11.2.4 exempts it when the reservation is preempted, and libiscsi, whose
    /// hosts often share a key, expects it whenever registrations are.
    fn remove_all_but(&mut self, by: &NexusName, victims: Option<NonZeroU64>) -> Vec<Registration> {
        let everyone = std::mem::take(&mut self.registered);
        let (kept, removed) = everyone.into_iter().partition(|registration| {
            registration.covers(by) || victims.is_some_and(|victims| registration.key != victims)
        });
        self.registered = kept;
        removed
    }

    /// REGISTER AND MOVE (SPC-4 5.12.8): the holder hands the reservation to another nexus.
    pub(crate) fn register_and_move(&mut self, by: &NexusName, command: Move) -> Verdict {
        self.registrant(by, command.existing)?;
        let reservation = self.reservation.as_ref().ok_or(Failure::ReservationConflict)?;
        if reservation.kind.all_registrants() || !self.holds(by) {
            return Err(Failure::ReservationConflict);
        }
        let kind = reservation.kind;
        let key = NonZeroU64::new(command.key).ok_or(Condition::invalid_parameter(SERVICE_ACTION_KEY))?;
        if command.to.is(by) {
            return Err(Condition::invalid_parameter(24).into());
        }
        let mut next = self.clone();
        next.remove_registration_of(&command.to);
        next.insert(&command.to, key, false);
        if next.registered.len() > REGISTRATIONS_MAX {
            let code = asc::INSUFFICIENT_REGISTRATION_RESOURCES;
            return Err(Condition::new(SenseKey::IllegalRequest, code).into());
        }
        if command.unregister {
            next.remove_registration_of(by);
        }
        next.reservation = Some(Reservation { kind, holder: command.to });
        next.registration_changed(command.persist_through_power_loss);
        *self = next;
        Ok(Changed::default())
    }
}

fn notices(registrations: &[Registration], what: Attention) -> Vec<Notice> {
    registrations.iter().map(|who| Notice { who: who.clone(), what }).collect()
}

/// How many target ports an all-ports registration may lose one by one before it ends as a whole: portal groups
/// are few, and a list that a peer can lengthen has an end.
const PORTS_LEFT_OUT_MAX: usize = 64;

#[cfg(test)]
impl Register {
    /// A nexus that is not registered yet, or ignores that it is, registers with `key`.
    pub(crate) fn new(key: NonZeroU64) -> Register {
        Register {
            existing: None,
            key: key.get(),
            all_target_ports: false,
            persist_through_power_loss: false,
            initiators: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{key, nexus, through};
    use super::*;

    fn registered(keys: &[(u8, u64)]) -> Registrations {
        let mut state = Registrations::default();
        for &(who, with) in keys {
            state.register(&nexus(who), &Register::new(key(with))).unwrap();
        }
        state
    }

    fn change_key(existing: u64, new: u64) -> Register {
        Register { existing: Some(existing), key: new, ..Register::new(key(1)) }
    }

    fn told(changed: &Changed) -> Vec<(u8, Attention)> {
        let who = |notice: &Notice| (notice.who.initiator.isid[5], notice.what);
        changed.notices.iter().map(who).collect()
    }

    fn keys(state: &Registrations) -> Vec<u64> {
        state.registered().iter().map(|registration| registration.key.get()).collect()
    }

    const CONFLICT: Verdict = Err(Failure::ReservationConflict);

    #[test]
    fn a_newcomer_registers_with_reservation_key_zero_only() {
        let mut state = Registrations::default();
        assert_eq!(state.register(&nexus(1), &change_key(7, 1)), CONFLICT);
        assert_eq!(state.generation, 0);
        assert!(state.register(&nexus(1), &change_key(0, 1)).is_ok());
        assert_eq!((keys(&state), state.generation), (vec![1], 1));
    }

    #[test]
    fn unregistering_a_newcomer_does_nothing_and_counts_nothing() {
        let mut state = Registrations::default();
        assert!(state.register(&nexus(1), &change_key(0, 0)).is_ok());
        assert_eq!(state, Registrations::default());
    }

    #[test]
    fn a_registered_key_changes_only_for_who_knows_it_or_ignores_it() {
        let mut state = registered(&[(1, 1)]);
        assert_eq!(state.register(&nexus(1), &change_key(2, 3)), CONFLICT);
        assert!(state.register(&nexus(1), &change_key(1, 3)).is_ok());
        assert!(state.register(&nexus(1), &Register::new(key(4))).is_ok());
        assert_eq!((keys(&state), state.generation), (vec![4], 3));
    }

    #[test]
    fn the_holder_keeps_the_reservation_when_it_changes_its_key() {
        let mut state = registered(&[(1, 1)]);
        state.reserve(&nexus(1), 1, ReservationType::ExclusiveAccess).unwrap();
        state.register(&nexus(1), &change_key(1, 2)).unwrap();
        assert!(state.holds(&nexus(1)));
    }

    #[test]
    fn a_holder_that_unregisters_releases_and_registrants_only_types_tell_the_others() {
        for kind in ReservationType::ALL.into_iter().filter(|kind| !kind.all_registrants()) {
            let mut state = registered(&[(1, 1), (2, 2)]);
            state.reserve(&nexus(1), 1, kind).unwrap();
            let changed = state.register(&nexus(1), &change_key(1, 0)).unwrap();
            assert_eq!(state.reservation(), None);
            let expected = if kind.registrants_have_access() {
                vec![(2, Attention::ReservationsReleased)]
            } else {
                vec![]
            };
            assert_eq!(told(&changed), expected, "{kind:?}");
        }
    }

    #[test]
    fn a_reservation_of_all_registrants_ends_with_the_last() {
        let mut state = registered(&[(1, 1), (2, 2)]);
        state.reserve(&nexus(1), 1, ReservationType::WriteExclusiveAllRegistrants).unwrap();
        state.register(&nexus(1), &change_key(1, 0)).unwrap();
        assert!(state.holds(&nexus(2)));
        state.register(&nexus(2), &change_key(2, 0)).unwrap();
        assert_eq!(state.reservation(), None);
    }

    #[test]
    fn only_a_registrant_with_its_key_reserves_and_repeating_is_no_error() {
        let mut state = registered(&[(1, 1), (2, 2)]);
        assert_eq!(state.reserve(&nexus(3), 0, ReservationType::ExclusiveAccess), CONFLICT);
        assert_eq!(state.reserve(&nexus(1), 2, ReservationType::ExclusiveAccess), CONFLICT);
        for _ in 0..2 {
            assert!(state.reserve(&nexus(1), 1, ReservationType::ExclusiveAccess).is_ok());
        }
        assert_eq!(state.reserve(&nexus(1), 1, ReservationType::WriteExclusive), CONFLICT);
        assert_eq!(state.reserve(&nexus(2), 2, ReservationType::ExclusiveAccess), CONFLICT);
        assert_eq!(state.generation, 2, "reserving does not count");
    }

    #[test]
    fn releasing_with_another_type_is_refused_and_by_another_does_nothing() {
        let mut state = registered(&[(1, 1), (2, 2)]);
        state.reserve(&nexus(1), 1, ReservationType::ExclusiveAccess).unwrap();
        let wrong = state.release(&nexus(1), 1, ReservationType::WriteExclusive).unwrap_err();
        let code = asc::INVALID_RELEASE_OF_PERSISTENT_RESERVATION;
        assert_eq!(wrong, Condition::new(SenseKey::IllegalRequest, code).into());
        assert!(state.release(&nexus(2), 2, ReservationType::ExclusiveAccess).is_ok());
        assert!(state.holds(&nexus(1)));
        assert_eq!(state.release(&nexus(1), 2, ReservationType::ExclusiveAccess), CONFLICT);
        assert!(state.release(&nexus(1), 1, ReservationType::ExclusiveAccess).unwrap().notices.is_empty());
        assert_eq!(state.reservation(), None);
    }

    #[test]
    fn releasing_what_registrants_shared_tells_them() {
        for kind in ReservationType::ALL.into_iter().filter(|kind| kind.registrants_have_access()) {
            let mut state = registered(&[(1, 1), (2, 2)]);
            state.reserve(&nexus(1), 1, kind).unwrap();
            let changed = state.release(&nexus(1), 1, kind).unwrap();
            assert!(told(&changed).contains(&(2, Attention::ReservationsReleased)), "{kind:?}");
        }
    }

    #[test]
    fn clear_ends_all_and_tells_all() {
        let mut state = registered(&[(1, 1), (2, 2), (3, 3)]);
        state.reserve(&nexus(1), 1, ReservationType::ExclusiveAccess).unwrap();
        assert_eq!(state.clear(&nexus(2), 1), CONFLICT);
        let changed = state.clear(&nexus(2), 2).unwrap();
        assert!(told(&changed).contains(&(1, Attention::ReservationsPreempted)));
        assert_eq!((keys(&state), state.reservation(), state.generation), (vec![], None, 4));
    }

    #[test]
    fn preempting_the_holder_takes_the_reservation_over() {
        let mut state = registered(&[(1, 1), (2, 2), (3, 3)]);
        state.reserve(&nexus(1), 1, ReservationType::WriteExclusive).unwrap();
        let changed = state.preempt(&nexus(2), 2, 1, Some(ReservationType::ExclusiveAccess)).unwrap();
        assert!(state.holds(&nexus(2)));
        assert_eq!(keys(&state), [2, 3]);
        let told = told(&changed);
        assert!(told.contains(&(1, Attention::RegistrationsPreempted)));
        assert!(told.contains(&(3, Attention::ReservationsReleased)), "the type is another one");
        assert_eq!(changed.preempted.len(), 1);
    }

    #[test]
    fn preempting_one_who_holds_nothing_ends_its_registration_only() {
        let mut state = registered(&[(1, 1), (2, 2), (3, 3)]);
        state.reserve(&nexus(1), 1, ReservationType::WriteExclusive).unwrap();
        let changed = state.preempt(&nexus(2), 2, 3, Some(ReservationType::ExclusiveAccess)).unwrap();
        assert_eq!(told(&changed), [(3, Attention::RegistrationsPreempted)]);
        assert!(state.holds(&nexus(1)));
        assert_eq!(state.reservation().map(|held| held.kind), Some(ReservationType::WriteExclusive));
    }

    #[test]
    fn preempting_nobody_is_a_conflict_and_key_zero_is_wrong() {
        let mut state = registered(&[(1, 1), (2, 2)]);
        assert_eq!(state.preempt(&nexus(2), 2, 9, Some(ReservationType::ExclusiveAccess)), CONFLICT);
        let zero = state.preempt(&nexus(2), 2, 0, Some(ReservationType::ExclusiveAccess));
        assert_eq!(zero, Err(Condition::invalid_parameter(8).into()));
    }

    #[test]
    fn key_zero_preempts_all_registrants() {
        let mut state = registered(&[(1, 1), (2, 2), (3, 3)]);
        state.reserve(&nexus(1), 1, ReservationType::ExclusiveAccessAllRegistrants).unwrap();
        let changed = state.preempt(&nexus(2), 2, 0, Some(ReservationType::WriteExclusive)).unwrap();
        assert_eq!(keys(&state), [2]);
        assert_eq!(changed.preempted.len(), 2);
        assert!(state.holds(&nexus(2)));
    }

    #[test]
    fn a_nonzero_key_preempts_some_of_all_registrants_and_leaves_the_reservation() {
        let mut state = registered(&[(1, 1), (2, 2), (3, 3)]);
        state.reserve(&nexus(1), 1, ReservationType::ExclusiveAccessAllRegistrants).unwrap();
        state.preempt(&nexus(2), 2, 1, Some(ReservationType::WriteExclusive)).unwrap();
        assert_eq!(keys(&state), [2, 3]);
        assert_eq!(
            state.reservation().map(|held| held.kind),
            Some(ReservationType::ExclusiveAccessAllRegistrants)
        );
    }

    /// Both hosts of libiscsi's ProutPreempt.RemoveRegistration mostly draw the same key.
    #[test]
    fn preempting_ones_own_key_spares_oneself() {
        let mut state = registered(&[(1, 5), (2, 5)]);
        let changed = state.preempt(&nexus(2), 5, 5, Some(ReservationType::ExclusiveAccess)).unwrap();
        assert_eq!(told(&changed), [(1, Attention::RegistrationsPreempted)]);
        assert_eq!((state.key_of(&nexus(2)), state.generation), (Some(key(5)), 3));
    }

    #[test]
    fn a_holder_that_preempts_itself_only_changes_the_type() {
        let mut state = registered(&[(1, 1), (2, 2)]);
        state.reserve(&nexus(1), 1, ReservationType::WriteExclusive).unwrap();
        let changed = state.preempt(&nexus(1), 1, 1, Some(ReservationType::ExclusiveAccess)).unwrap();
        assert!(changed.preempted.is_empty());
        assert_eq!(state.reservation().map(|held| held.kind), Some(ReservationType::ExclusiveAccess));
        assert!(state.holds(&nexus(1)));
    }

    fn to(who: u8, key: u64) -> Move {
        let to = nexus(who);
        Move { existing: 1, key, to, unregister: false, persist_through_power_loss: false }
    }

    #[test]
    fn the_holder_hands_its_reservation_on() {
        let mut state = registered(&[(1, 1), (2, 2)]);
        state.reserve(&nexus(1), 1, ReservationType::ExclusiveAccess).unwrap();
        state.register_and_move(&nexus(1), to(3, 7)).unwrap();
        assert!(state.holds(&nexus(3)) && !state.holds(&nexus(1)));
        assert_eq!((state.key_of(&nexus(3)), state.generation), (Some(key(7)), 3));
    }

    #[test]
    fn moving_may_unregister_the_old_holder() {
        let mut state = registered(&[(1, 1)]);
        state.reserve(&nexus(1), 1, ReservationType::ExclusiveAccess).unwrap();
        state.register_and_move(&nexus(1), Move { unregister: true, ..to(2, 2) }).unwrap();
        assert_eq!(keys(&state), [2]);
        assert!(state.holds(&nexus(2)));
    }

    #[test]
    fn who_holds_nothing_for_itself_moves_nothing() {
        let mut state = registered(&[(1, 1), (2, 2)]);
        assert_eq!(state.register_and_move(&nexus(1), to(3, 3)), CONFLICT);
        state.reserve(&nexus(1), 1, ReservationType::WriteExclusiveAllRegistrants).unwrap();
        assert_eq!(state.register_and_move(&nexus(1), to(3, 3)), CONFLICT);
    }

    #[test]
    fn moving_to_oneself_or_with_key_zero_is_wrong() {
        let mut state = registered(&[(1, 1)]);
        state.reserve(&nexus(1), 1, ReservationType::ExclusiveAccess).unwrap();
        let itself = state.register_and_move(&nexus(1), to(1, 3));
        assert_eq!(itself, Err(Condition::invalid_parameter(24).into()));
        let zero = state.register_and_move(&nexus(1), to(2, 0));
        assert_eq!(zero, Err(Condition::invalid_parameter(8).into()));
    }

    #[test]
    fn other_initiators_are_registered_alike_or_none_at_all() {
        let mut state = registered(&[(3, 3)]);
        let with = |others: &[u8]| {
            let initiators = others.iter().map(|&who| nexus(who).initiator).collect();
            Register { initiators: Some(initiators), ..change_key(0, 9) }
        };
        assert!(state.register(&nexus(1), &with(&[2, 3])).is_err());
        assert_eq!(keys(&state), [3]);
        state.register(&nexus(1), &with(&[2, 4])).unwrap();
        assert_eq!((keys(&state), state.generation), (vec![3, 9, 9, 9], 2));
        assert_eq!(
            state.register(&nexus(1), &Register { existing: Some(9), ..with(&[5]) }),
            Err(SPEC_I_PT.into())
        );
    }

    #[test]
    fn a_registration_for_all_target_ports_counts_through_each() {
        let mut state = Registrations::default();
        let all = Register { all_target_ports: true, ..change_key(0, 1) };
        state.register(&nexus(1), &all).unwrap();
        assert_eq!(state.key_of(&through(1, 2)), Some(key(1)));
        state.register(&through(1, 2), &change_key(1, 0)).unwrap();
        assert_eq!(state.key_of(&through(1, 2)), None);
        assert_eq!(state.key_of(&through(1, 3)), Some(key(1)));
    }

    #[test]
    fn unregistering_for_all_target_ports_ends_each_with_that_key() {
        let mut state = Registrations::default();
        state.register(&through(1, 1), &change_key(0, 1)).unwrap();
        state.register(&through(1, 2), &change_key(0, 1)).unwrap();
        state.register(&through(1, 3), &change_key(0, 8)).unwrap();
        let all = Register { all_target_ports: true, ..change_key(1, 0) };
        state.register(&through(1, 1), &all).unwrap();
        assert_eq!(keys(&state), [8]);
    }

    #[test]
    fn registrations_are_bounded() {
        let mut state = Registrations::default();
        let count = REGISTRATIONS_MAX as u16;
        for group in 0..count {
            state.register(&through(1, group), &change_key(0, 1)).unwrap();
        }
        let one_more = state.register(&through(1, count), &change_key(0, 1));
        let code = asc::INSUFFICIENT_REGISTRATION_RESOURCES;
        assert_eq!(one_more, Err(Condition::new(SenseKey::IllegalRequest, code).into()));
    }
}
