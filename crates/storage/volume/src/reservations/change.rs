//! The changes of [`Registrations`] (SPC-4 5.12.7 to 5.12.11, where they are service actions of PERSISTENT
//! RESERVE OUT).
//!
//! Notices: the path that requested the change gets none, and a path that loses its registration gets only
//! that notice.

use std::num::NonZeroU64;

use super::{
    Change, Changed, Event, Move, Notice, Ports, REGISTRATIONS_MAX, Refusal, Register, Registration,
    Registrations, Reservation, ReservationType,
};
use crate::requester::{HostPath, ServicePort};

type Verdict = Result<Changed, Refusal>;

impl Registrations {
    /// Carries out a change for `by`.
    ///
    /// # Errors
    /// Nothing has changed.
    pub fn change(&mut self, by: &HostPath, change: Change) -> Result<Changed, Refusal> {
        match change {
            Change::Register(register) => self.register(by, &register),
            Change::Reserve { key, kind } => self.reserve(by, key, kind),
            Change::Release { key, kind } => self.release(by, key, kind),
            Change::Clear { key } => self.clear(by, key),
            Change::Preempt { key, victims, kind, .. } => self.preempt(by, key, victims, kind),
            Change::Move(to) => self.register_and_move(by, to),
        }
    }

    /// REGISTER, REGISTER AND IGNORE EXISTING KEY (SPC-4 5.12.7, tables 58 and 59; 5.12.11.3 for key zero).
    pub(super) fn register(&mut self, by: &HostPath, command: &Register) -> Verdict {
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
            let path = HostPath { host: other.clone(), service: by.service.clone() };
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

    /// Registers `path`, or its host through all ports through which it is not registered yet.
    fn insert(&mut self, path: &HostPath, key: NonZeroU64, all: bool) {
        let elsewhere = self.registered.iter().filter(|other| other.host == path.host);
        let elsewhere: Option<Vec<ServicePort>> = elsewhere.map(|other| other.ports.one().cloned()).collect();
        let ports = match elsewhere {
            Some(others) if all => Ports::AllBut(others),
            _ => Ports::One(path.service.clone()),
        };
        self.registered.push(Registration { host: path.host.clone(), ports, key });
    }

    /// Takes out what a registration command of `by` replaces: its own registration, or with `all_ports`
    /// those of its host through all ports, as far as the command's key is theirs.
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

    /// Takes `path` out of its registration, and the registration with it unless it covers other paths.
    fn remove_registration_of(&mut self, path: &HostPath) {
        self.registered.retain_mut(|registration| {
            if !registration.covers(path) {
                return true;
            }
            match &mut registration.ports {
                Ports::AllBut(others) if others.len() < PORTS_LEFT_OUT_MAX => {
                    others.push(path.service.clone());
                    true
                }
                _ => false,
            }
        });
    }

    /// A reservation whose last holder is unregistered ends (SPC-4 5.12.11.3). The remaining registrants are
    /// told where they had access through it (types 5 and 6); with types 7 and 8 none remain.
    fn release_without_holder(&mut self) -> Changed {
        if self.is_consistent() { Changed::default() } else { self.end_reservation() }
    }

    /// Ends the reservation and tells the registrants, if it was of a kind that gave them access
    /// (SPC-4 5.12.11.2.2).
    fn end_reservation(&mut self) -> Changed {
        let tell = self.reservation.take().is_some_and(|ended| ended.kind.registrants_have_access());
        let notices = if tell { self.notices(Event::ReservationReleased) } else { Vec::new() };
        Changed { notices, ..Changed::default() }
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

    /// All changes but registering are for registered paths that know their key.
    fn registrant(&self, by: &HostPath, key: u64) -> Result<NonZeroU64, Refusal> {
        self.key_of(by).filter(|registered| registered.get() == key).ok_or(Refusal::Conflict)
    }

    /// RESERVE (SPC-4 5.12.9).
    pub(super) fn reserve(&mut self, by: &HostPath, key: u64, kind: ReservationType) -> Verdict {
        self.registrant(by, key)?;
        match &self.reservation {
            None => self.reservation = Some(Reservation { kind, holder: by.clone() }),
            Some(existing) if existing.kind == kind && self.holds(by) => {}
            Some(_) => return Err(Refusal::Conflict),
        }
        Ok(Changed::default())
    }

    /// RELEASE (SPC-4 5.12.11.2.2). Releasing what one does not hold is no error and does nothing.
    pub(super) fn release(&mut self, by: &HostPath, key: u64, kind: ReservationType) -> Verdict {
        self.registrant(by, key)?;
        match &self.reservation {
            Some(existing) if self.holds(by) && existing.kind != kind => Err(Refusal::OfAnotherKind),
            Some(_) if self.holds(by) => Ok(self.end_reservation()),
            _ => Ok(Changed::default()),
        }
    }

    /// CLEAR (SPC-4 5.12.11.2.7): all registrations and the reservation end.
    pub(super) fn clear(&mut self, by: &HostPath, key: u64) -> Verdict {
        self.registrant(by, key)?;
        let notices = self.notices(Event::ReservationPreempted);
        self.registered.clear();
        self.reservation = None;
        self.count();
        Ok(Changed { notices, ..Changed::default() })
    }

    /// PREEMPT and PREEMPT AND ABORT (SPC-4 5.12.11.2.4): `victims` is the key of those who lose their
    /// registrations; if a holder is among them, `by` takes the reservation over with type `kind`, which is
    /// ignored otherwise.
    pub(super) fn preempt(
        &mut self,
        by: &HostPath,
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

    fn is_key_of(&self, path: &HostPath, key: u64) -> bool {
        self.key_of(path).is_some_and(|registered| registered.get() == key)
    }

    /// Preempting without taking the reservation over (SPC-4 5.12.11.2.5).
    fn remove_victims(&mut self, by: &HostPath, victims: u64) -> Verdict {
        let victims = NonZeroU64::new(victims).ok_or(Refusal::KeyZero)?;
        if !self.registered.iter().any(|registration| registration.key == victims) {
            return Err(Refusal::Conflict);
        }
        let preempted = self.remove_all_but(by, Some(victims));
        self.count();
        Ok(Changed { notices: notices(&preempted, Event::RegistrationPreempted), preempted })
    }

    /// Preempting the reservation: the registrations with key `victims`, or with `None` all, give way to `by`
    /// (SPC-4 5.12.11.2.4). Those that stay are told if the new reservation is of another type.
    fn take_over(
        &mut self,
        by: &HostPath,
        victims: Option<NonZeroU64>,
        kind: Option<ReservationType>,
    ) -> Verdict {
        let kind = kind.ok_or(Refusal::KindMissing)?;
        let preempted = self.remove_all_but(by, victims);
        let before = self.reservation.replace(Reservation { kind, holder: by.clone() });
        self.count();
        let mut notices = notices(&preempted, Event::RegistrationPreempted);
        if before.is_some_and(|before| before.kind != kind) {
            notices.extend(self.notices(Event::ReservationReleased));
        }
        Ok(Changed { notices, preempted })
    }

    /// Removes the registrations with key `victims`, or all, and returns them. That of `by` stays, even if
    /// its key is the same: SPC-4 5.12.11.2.4 exempts it when the reservation is preempted, and libiscsi,
    /// whose hosts often share a key, expects it whenever registrations are.
    fn remove_all_but(&mut self, by: &HostPath, victims: Option<NonZeroU64>) -> Vec<Registration> {
        let everyone = std::mem::take(&mut self.registered);
        let (kept, removed) = everyone.into_iter().partition(|registration| {
            registration.covers(by) || victims.is_some_and(|victims| registration.key != victims)
        });
        self.registered = kept;
        removed
    }

    /// REGISTER AND MOVE (SPC-4 5.12.8): the holder hands the reservation to another path.
    pub(super) fn register_and_move(&mut self, by: &HostPath, command: Move) -> Verdict {
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
        next.reservation = Some(Reservation { kind, holder: command.to });
        next.registration_changed(command.persist_through_power_loss);
        *self = next;
        Ok(Changed::default())
    }
}

fn notices(registrations: &[Registration], what: Event) -> Vec<Notice> {
    registrations.iter().map(|who| Notice { who: who.clone(), what }).collect()
}

/// How many ports an all-ports registration may lose one by one before it ends as a whole: portal groups
/// are few, and a list that a peer can lengthen has an end.
const PORTS_LEFT_OUT_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::super::scene::{key, path, through};
    use super::*;

    fn registered(keys: &[(u8, u64)]) -> Registrations {
        let mut state = Registrations::default();
        for &(who, with) in keys {
            state.register(&path(who), &Register::new(key(with))).unwrap();
        }
        state
    }

    fn change_key(existing: u64, new: u64) -> Register {
        Register { existing: Some(existing), key: new, ..Register::new(key(1)) }
    }

    fn told(changed: &Changed) -> Vec<(u8, Event)> {
        let who = |notice: &Notice| (notice.who.host.qualifier[5], notice.what);
        changed.notices.iter().map(who).collect()
    }

    fn keys(state: &Registrations) -> Vec<u64> {
        state.registered().iter().map(|registration| registration.key.get()).collect()
    }

    const CONFLICT: Verdict = Err(Refusal::Conflict);

    #[test]
    fn a_newcomer_registers_with_reservation_key_zero_only() {
        let mut state = Registrations::default();
        assert_eq!(state.register(&path(1), &change_key(7, 1)), CONFLICT);
        assert_eq!(state.generation, 0);
        assert!(state.register(&path(1), &change_key(0, 1)).is_ok());
        assert_eq!((keys(&state), state.generation), (vec![1], 1));
    }

    #[test]
    fn unregistering_a_newcomer_does_nothing_and_counts_nothing() {
        let mut state = Registrations::default();
        assert!(state.register(&path(1), &change_key(0, 0)).is_ok());
        assert_eq!(state, Registrations::default());
    }

    #[test]
    fn a_registered_key_changes_only_for_who_knows_it_or_ignores_it() {
        let mut state = registered(&[(1, 1)]);
        assert_eq!(state.register(&path(1), &change_key(2, 3)), CONFLICT);
        assert!(state.register(&path(1), &change_key(1, 3)).is_ok());
        assert!(state.register(&path(1), &Register::new(key(4))).is_ok());
        assert_eq!((keys(&state), state.generation), (vec![4], 3));
    }

    #[test]
    fn the_holder_keeps_the_reservation_when_it_changes_its_key() {
        let mut state = registered(&[(1, 1)]);
        state.reserve(&path(1), 1, ReservationType::ExclusiveAccess).unwrap();
        state.register(&path(1), &change_key(1, 2)).unwrap();
        assert!(state.holds(&path(1)));
    }

    #[test]
    fn a_holder_that_unregisters_releases_and_registrants_only_types_tell_the_others() {
        for kind in ReservationType::ALL.into_iter().filter(|kind| !kind.all_registrants()) {
            let mut state = registered(&[(1, 1), (2, 2)]);
            state.reserve(&path(1), 1, kind).unwrap();
            let changed = state.register(&path(1), &change_key(1, 0)).unwrap();
            assert_eq!(state.reservation(), None);
            let expected =
                if kind.registrants_have_access() { vec![(2, Event::ReservationReleased)] } else { vec![] };
            assert_eq!(told(&changed), expected, "{kind:?}");
        }
    }

    #[test]
    fn a_reservation_of_all_registrants_ends_with_the_last() {
        let mut state = registered(&[(1, 1), (2, 2)]);
        state.reserve(&path(1), 1, ReservationType::WriteExclusiveAllRegistrants).unwrap();
        state.register(&path(1), &change_key(1, 0)).unwrap();
        assert!(state.holds(&path(2)));
        state.register(&path(2), &change_key(2, 0)).unwrap();
        assert_eq!(state.reservation(), None);
    }

    #[test]
    fn only_a_registrant_with_its_key_reserves_and_repeating_is_no_error() {
        let mut state = registered(&[(1, 1), (2, 2)]);
        assert_eq!(state.reserve(&path(3), 0, ReservationType::ExclusiveAccess), CONFLICT);
        assert_eq!(state.reserve(&path(1), 2, ReservationType::ExclusiveAccess), CONFLICT);
        for _ in 0..2 {
            assert!(state.reserve(&path(1), 1, ReservationType::ExclusiveAccess).is_ok());
        }
        assert_eq!(state.reserve(&path(1), 1, ReservationType::WriteExclusive), CONFLICT);
        assert_eq!(state.reserve(&path(2), 2, ReservationType::ExclusiveAccess), CONFLICT);
        assert_eq!(state.generation, 2, "reserving does not count");
    }

    #[test]
    fn releasing_with_another_type_is_refused_and_by_another_does_nothing() {
        let mut state = registered(&[(1, 1), (2, 2)]);
        state.reserve(&path(1), 1, ReservationType::ExclusiveAccess).unwrap();
        let wrong = state.release(&path(1), 1, ReservationType::WriteExclusive).unwrap_err();
        assert_eq!(wrong, Refusal::OfAnotherKind);
        assert!(state.release(&path(2), 2, ReservationType::ExclusiveAccess).is_ok());
        assert!(state.holds(&path(1)));
        assert_eq!(state.release(&path(1), 2, ReservationType::ExclusiveAccess), CONFLICT);
        assert!(state.release(&path(1), 1, ReservationType::ExclusiveAccess).unwrap().notices.is_empty());
        assert_eq!(state.reservation(), None);
    }

    #[test]
    fn releasing_what_registrants_shared_tells_them() {
        for kind in ReservationType::ALL.into_iter().filter(|kind| kind.registrants_have_access()) {
            let mut state = registered(&[(1, 1), (2, 2)]);
            state.reserve(&path(1), 1, kind).unwrap();
            let changed = state.release(&path(1), 1, kind).unwrap();
            assert!(told(&changed).contains(&(2, Event::ReservationReleased)), "{kind:?}");
        }
    }

    #[test]
    fn clear_ends_all_and_tells_all() {
        let mut state = registered(&[(1, 1), (2, 2), (3, 3)]);
        state.reserve(&path(1), 1, ReservationType::ExclusiveAccess).unwrap();
        assert_eq!(state.clear(&path(2), 1), CONFLICT);
        let changed = state.clear(&path(2), 2).unwrap();
        assert!(told(&changed).contains(&(1, Event::ReservationPreempted)));
        assert_eq!((keys(&state), state.reservation(), state.generation), (vec![], None, 4));
    }

    #[test]
    fn preempting_the_holder_takes_the_reservation_over() {
        let mut state = registered(&[(1, 1), (2, 2), (3, 3)]);
        state.reserve(&path(1), 1, ReservationType::WriteExclusive).unwrap();
        let changed = state.preempt(&path(2), 2, 1, Some(ReservationType::ExclusiveAccess)).unwrap();
        assert!(state.holds(&path(2)));
        assert_eq!(keys(&state), [2, 3]);
        let told = told(&changed);
        assert!(told.contains(&(1, Event::RegistrationPreempted)));
        assert!(told.contains(&(3, Event::ReservationReleased)), "the type is another one");
        assert_eq!(changed.preempted.len(), 1);
    }

    #[test]
    fn preempting_one_who_holds_nothing_ends_its_registration_only() {
        let mut state = registered(&[(1, 1), (2, 2), (3, 3)]);
        state.reserve(&path(1), 1, ReservationType::WriteExclusive).unwrap();
        let changed = state.preempt(&path(2), 2, 3, Some(ReservationType::ExclusiveAccess)).unwrap();
        assert_eq!(told(&changed), [(3, Event::RegistrationPreempted)]);
        assert!(state.holds(&path(1)));
        assert_eq!(state.reservation().map(|held| held.kind), Some(ReservationType::WriteExclusive));
    }

    #[test]
    fn preempting_nobody_is_a_conflict_and_key_zero_is_wrong() {
        let mut state = registered(&[(1, 1), (2, 2)]);
        assert_eq!(state.preempt(&path(2), 2, 9, Some(ReservationType::ExclusiveAccess)), CONFLICT);
        let zero = state.preempt(&path(2), 2, 0, Some(ReservationType::ExclusiveAccess));
        assert_eq!(zero, Err(Refusal::KeyZero));
    }

    #[test]
    fn key_zero_preempts_all_registrants() {
        let mut state = registered(&[(1, 1), (2, 2), (3, 3)]);
        state.reserve(&path(1), 1, ReservationType::ExclusiveAccessAllRegistrants).unwrap();
        let changed = state.preempt(&path(2), 2, 0, Some(ReservationType::WriteExclusive)).unwrap();
        assert_eq!(keys(&state), [2]);
        assert_eq!(changed.preempted.len(), 2);
        assert!(state.holds(&path(2)));
    }

    #[test]
    fn a_nonzero_key_preempts_some_of_all_registrants_and_leaves_the_reservation() {
        let mut state = registered(&[(1, 1), (2, 2), (3, 3)]);
        state.reserve(&path(1), 1, ReservationType::ExclusiveAccessAllRegistrants).unwrap();
        state.preempt(&path(2), 2, 1, Some(ReservationType::WriteExclusive)).unwrap();
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
        let changed = state.preempt(&path(2), 5, 5, Some(ReservationType::ExclusiveAccess)).unwrap();
        assert_eq!(told(&changed), [(1, Event::RegistrationPreempted)]);
        assert_eq!((state.key_of(&path(2)), state.generation), (Some(key(5)), 3));
    }

    #[test]
    fn a_holder_that_preempts_itself_only_changes_the_type() {
        let mut state = registered(&[(1, 1), (2, 2)]);
        state.reserve(&path(1), 1, ReservationType::WriteExclusive).unwrap();
        let changed = state.preempt(&path(1), 1, 1, Some(ReservationType::ExclusiveAccess)).unwrap();
        assert!(changed.preempted.is_empty());
        assert_eq!(state.reservation().map(|held| held.kind), Some(ReservationType::ExclusiveAccess));
        assert!(state.holds(&path(1)));
    }

    fn to(who: u8, key: u64) -> Move {
        let to = path(who);
        Move { existing: 1, key, to, unregister: false, persist_through_power_loss: false }
    }

    #[test]
    fn the_holder_hands_its_reservation_on() {
        let mut state = registered(&[(1, 1), (2, 2)]);
        state.reserve(&path(1), 1, ReservationType::ExclusiveAccess).unwrap();
        state.register_and_move(&path(1), to(3, 7)).unwrap();
        assert!(state.holds(&path(3)) && !state.holds(&path(1)));
        assert_eq!((state.key_of(&path(3)), state.generation), (Some(key(7)), 3));
    }

    #[test]
    fn moving_may_unregister_the_old_holder() {
        let mut state = registered(&[(1, 1)]);
        state.reserve(&path(1), 1, ReservationType::ExclusiveAccess).unwrap();
        state.register_and_move(&path(1), Move { unregister: true, ..to(2, 2) }).unwrap();
        assert_eq!(keys(&state), [2]);
        assert!(state.holds(&path(2)));
    }

    #[test]
    fn who_holds_nothing_for_itself_moves_nothing() {
        let mut state = registered(&[(1, 1), (2, 2)]);
        assert_eq!(state.register_and_move(&path(1), to(3, 3)), CONFLICT);
        state.reserve(&path(1), 1, ReservationType::WriteExclusiveAllRegistrants).unwrap();
        assert_eq!(state.register_and_move(&path(1), to(3, 3)), CONFLICT);
    }

    #[test]
    fn moving_to_oneself_or_with_key_zero_is_wrong() {
        let mut state = registered(&[(1, 1)]);
        state.reserve(&path(1), 1, ReservationType::ExclusiveAccess).unwrap();
        let itself = state.register_and_move(&path(1), to(1, 3));
        assert_eq!(itself, Err(Refusal::MovedToItself));
        let zero = state.register_and_move(&path(1), to(2, 0));
        assert_eq!(zero, Err(Refusal::KeyZero));
    }

    #[test]
    fn others_are_registered_alike_or_none_at_all() {
        let mut state = registered(&[(3, 3)]);
        let with = |others: &[u8]| {
            let others = others.iter().map(|&who| path(who).host).collect();
            Register { others: Some(others), ..change_key(0, 9) }
        };
        assert!(state.register(&path(1), &with(&[2, 3])).is_err());
        assert_eq!(keys(&state), [3]);
        state.register(&path(1), &with(&[2, 4])).unwrap();
        assert_eq!((keys(&state), state.generation), (vec![3, 9, 9, 9], 2));
        assert_eq!(
            state.register(&path(1), &Register { existing: Some(9), ..with(&[5]) }),
            Err(Refusal::AlreadyRegistered)
        );
    }

    #[test]
    fn a_registration_for_all_ports_counts_through_each() {
        let mut state = Registrations::default();
        let all = Register { all_ports: true, ..change_key(0, 1) };
        state.register(&path(1), &all).unwrap();
        assert_eq!(state.key_of(&through(1, 2)), Some(key(1)));
        state.register(&through(1, 2), &change_key(1, 0)).unwrap();
        assert_eq!(state.key_of(&through(1, 2)), None);
        assert_eq!(state.key_of(&through(1, 3)), Some(key(1)));
    }

    #[test]
    fn unregistering_for_all_ports_ends_each_with_that_key() {
        let mut state = Registrations::default();
        state.register(&through(1, 1), &change_key(0, 1)).unwrap();
        state.register(&through(1, 2), &change_key(0, 1)).unwrap();
        state.register(&through(1, 3), &change_key(0, 8)).unwrap();
        let all = Register { all_ports: true, ..change_key(1, 0) };
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
        assert_eq!(one_more, Err(Refusal::TooMany));
    }
}
