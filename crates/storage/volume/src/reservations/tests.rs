//! Tests of reservations: the access that each type permits, and random changes by several hosts. The results
//! of changes are compared with a simple model, which has one key per host and executes each change as the
//! standard describes it.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use proptest::prelude::*;

use super::*;

pub(crate) fn port(group: u16) -> ServicePort {
    ServicePort {
        name: "iqn.2026-11.test:target".into(),
        group,
        relative_port: group,
    }
}

/// Returns the path of host `who` through the first port.
pub(crate) fn path(who: u8) -> HostPath {
    through(who, 1)
}

pub(crate) fn through(who: u8, group: u16) -> HostPath {
    let name = format!("iqn.2026-11.test:host{who}");
    HostPath {
        host: HostPort {
            name,
            qualifier: [0x40, 0, 0, 0, 0, who],
        },
        service: port(group),
    }
}

pub(crate) fn key(key: u64) -> NonZeroU64 {
    NonZeroU64::new(key).expect("tests use keys that are not zero")
}

/// SPC-4 table 49: for each type, the access of a registered and of an unregistered path that is not the
/// holder.
#[test]
fn each_type_lets_in_whom_the_table_says() {
    use ReservationType::*;
    let rows = [
        // type                         registered      not registered
        //                              read   write    read   write
        (WriteExclusive, [true, false, true, false]),
        (ExclusiveAccess, [false, false, false, false]),
        (WriteExclusiveRegistrantsOnly, [true, true, true, false]),
        (ExclusiveAccessRegistrantsOnly, [true, true, false, false]),
        (WriteExclusiveAllRegistrants, [true, true, true, false]),
        (ExclusiveAccessAllRegistrants, [true, true, false, false]),
    ];
    for (kind, expected) in rows {
        let mut state = Registrations::default();
        for who in [1, 2] {
            state
                .register(&path(who), &Register::new(key(who.into())))
                .unwrap();
        }
        state.reserve(&path(1), 1, kind).unwrap();
        let seen = [
            state.permit(&path(2), Access::Read),
            state.permit(&path(2), Access::Write),
            state.permit(&path(3), Access::Read),
            state.permit(&path(3), Access::Write),
        ];
        assert_eq!(seen, expected, "{kind:?}");
        assert!(state.permit(&path(1), Access::Write), "{kind:?}");
    }
}

#[test]
fn without_a_reservation_everything_passes() {
    let mut state = Registrations::default();
    state.register(&path(1), &Register::new(key(1))).unwrap();
    assert!(state.permit(&path(2), Access::Write));
}

fn registered(keys: &[(u8, u64)]) -> Registrations {
    let mut state = Registrations::default();
    for &(who, with) in keys {
        state
            .register(&path(who), &Register::new(key(with)))
            .unwrap();
    }
    state
}

/// Creates registrations with these keys, and a reservation of the first host.
fn reserved(keys: &[(u8, u64)], kind: ReservationType) -> Registrations {
    let mut state = registered(keys);
    state.reserve(&path(1), 1, kind).unwrap();
    state
}

fn change_key(existing: u64, new: u64) -> Register {
    Register {
        existing: Some(existing),
        key: new,
        ..Register::new(key(1))
    }
}

fn told(changed: &Changed) -> Vec<(u8, Event)> {
    let who = |notice: &Notice| (notice.who.host.qualifier[5], notice.what);
    changed.notices.iter().map(who).collect()
}

fn keys(state: &Registrations) -> Vec<u64> {
    state
        .registered()
        .iter()
        .map(|registration| registration.key.get())
        .collect()
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
    let mut state = reserved(&[(1, 1)], ReservationType::ExclusiveAccess);
    state.register(&path(1), &change_key(1, 2)).unwrap();
    assert!(state.holds(&path(1)));
}

#[test]
fn a_holder_that_unregisters_releases_and_registrants_only_types_tell_the_others() {
    for kind in ReservationType::ALL
        .into_iter()
        .filter(|kind| !kind.all_registrants())
    {
        let mut state = reserved(&[(1, 1), (2, 2)], kind);
        let changed = state.register(&path(1), &change_key(1, 0)).unwrap();
        assert_eq!(state.reservation(), None);
        let expected = if kind.registrants_have_access() {
            vec![(2, Event::ReservationReleased)]
        } else {
            vec![]
        };
        assert_eq!(told(&changed), expected, "{kind:?}");
    }
}

#[test]
fn a_reservation_of_all_registrants_ends_with_the_last() {
    let mut state = reserved(
        &[(1, 1), (2, 2)],
        ReservationType::WriteExclusiveAllRegistrants,
    );
    state.register(&path(1), &change_key(1, 0)).unwrap();
    assert!(state.holds(&path(2)));
    state.register(&path(2), &change_key(2, 0)).unwrap();
    assert_eq!(state.reservation(), None);
}

#[test]
fn only_a_registrant_with_its_key_reserves_and_repeating_is_no_error() {
    let mut state = registered(&[(1, 1), (2, 2)]);
    assert_eq!(
        state.reserve(&path(3), 0, ReservationType::ExclusiveAccess),
        CONFLICT
    );
    assert_eq!(
        state.reserve(&path(1), 2, ReservationType::ExclusiveAccess),
        CONFLICT
    );
    for _ in 0..2 {
        assert!(
            state
                .reserve(&path(1), 1, ReservationType::ExclusiveAccess)
                .is_ok()
        );
    }
    assert_eq!(
        state.reserve(&path(1), 1, ReservationType::WriteExclusive),
        CONFLICT
    );
    assert_eq!(
        state.reserve(&path(2), 2, ReservationType::ExclusiveAccess),
        CONFLICT
    );
    assert_eq!(state.generation, 2, "reserving does not count");
}

#[test]
fn releasing_with_another_type_is_refused_and_by_another_does_nothing() {
    let mut state = reserved(&[(1, 1), (2, 2)], ReservationType::ExclusiveAccess);
    let wrong = state
        .release(&path(1), 1, ReservationType::WriteExclusive)
        .unwrap_err();
    assert_eq!(wrong, Refusal::OfAnotherKind);
    assert!(
        state
            .release(&path(2), 2, ReservationType::ExclusiveAccess)
            .is_ok()
    );
    assert!(state.holds(&path(1)));
    assert_eq!(
        state.release(&path(1), 2, ReservationType::ExclusiveAccess),
        CONFLICT
    );
    assert!(
        state
            .release(&path(1), 1, ReservationType::ExclusiveAccess)
            .unwrap()
            .notices
            .is_empty()
    );
    assert_eq!(state.reservation(), None);
}

#[test]
fn releasing_what_registrants_shared_tells_them() {
    for kind in ReservationType::ALL
        .into_iter()
        .filter(|kind| kind.registrants_have_access())
    {
        let mut state = reserved(&[(1, 1), (2, 2)], kind);
        let changed = state.release(&path(1), 1, kind).unwrap();
        assert!(
            told(&changed).contains(&(2, Event::ReservationReleased)),
            "{kind:?}"
        );
    }
}

#[test]
fn clear_ends_all_and_tells_all() {
    let mut state = reserved(&[(1, 1), (2, 2), (3, 3)], ReservationType::ExclusiveAccess);
    assert_eq!(state.clear(&path(2), 1), CONFLICT);
    let changed = state.clear(&path(2), 2).unwrap();
    assert!(told(&changed).contains(&(1, Event::ReservationPreempted)));
    assert_eq!(
        (keys(&state), state.reservation(), state.generation),
        (vec![], None, 4)
    );
}

#[test]
fn preempting_the_holder_takes_the_reservation_over() {
    let mut state = reserved(&[(1, 1), (2, 2), (3, 3)], ReservationType::WriteExclusive);
    let changed = state
        .preempt(&path(2), 2, 1, Some(ReservationType::ExclusiveAccess))
        .unwrap();
    assert!(state.holds(&path(2)));
    assert_eq!(keys(&state), [2, 3]);
    let told = told(&changed);
    assert!(told.contains(&(1, Event::RegistrationPreempted)));
    assert!(
        told.contains(&(3, Event::ReservationReleased)),
        "the type is another one"
    );
    assert_eq!(changed.preempted.len(), 1);
}

#[test]
fn preempting_one_who_holds_nothing_ends_its_registration_only() {
    let mut state = reserved(&[(1, 1), (2, 2), (3, 3)], ReservationType::WriteExclusive);
    let changed = state
        .preempt(&path(2), 2, 3, Some(ReservationType::ExclusiveAccess))
        .unwrap();
    assert_eq!(told(&changed), [(3, Event::RegistrationPreempted)]);
    assert!(state.holds(&path(1)));
    assert_eq!(
        state.reservation().map(|held| held.kind),
        Some(ReservationType::WriteExclusive)
    );
}

#[test]
fn preempting_nobody_is_a_conflict_and_key_zero_is_wrong() {
    let mut state = registered(&[(1, 1), (2, 2)]);
    assert_eq!(
        state.preempt(&path(2), 2, 9, Some(ReservationType::ExclusiveAccess)),
        CONFLICT
    );
    let zero = state.preempt(&path(2), 2, 0, Some(ReservationType::ExclusiveAccess));
    assert_eq!(zero, Err(Refusal::KeyZero));
}

#[test]
fn key_zero_preempts_all_registrants() {
    let mut state = reserved(
        &[(1, 1), (2, 2), (3, 3)],
        ReservationType::ExclusiveAccessAllRegistrants,
    );
    let changed = state
        .preempt(&path(2), 2, 0, Some(ReservationType::WriteExclusive))
        .unwrap();
    assert_eq!(keys(&state), [2]);
    assert_eq!(changed.preempted.len(), 2);
    assert!(state.holds(&path(2)));
}

#[test]
fn a_nonzero_key_preempts_some_of_all_registrants_and_leaves_the_reservation() {
    let mut state = reserved(
        &[(1, 1), (2, 2), (3, 3)],
        ReservationType::ExclusiveAccessAllRegistrants,
    );
    state
        .preempt(&path(2), 2, 1, Some(ReservationType::WriteExclusive))
        .unwrap();
    assert_eq!(keys(&state), [2, 3]);
    assert_eq!(
        state.reservation().map(|held| held.kind),
        Some(ReservationType::ExclusiveAccessAllRegistrants)
    );
}

/// The two hosts in libiscsi's test ProutPreempt.RemoveRegistration usually draw the same key.
#[test]
fn preempting_ones_own_key_spares_oneself() {
    let mut state = registered(&[(1, 5), (2, 5)]);
    let changed = state
        .preempt(&path(2), 5, 5, Some(ReservationType::ExclusiveAccess))
        .unwrap();
    assert_eq!(told(&changed), [(1, Event::RegistrationPreempted)]);
    assert_eq!(
        (state.key_of(&path(2)), state.generation),
        (Some(key(5)), 3)
    );
}

#[test]
fn a_holder_that_preempts_itself_only_changes_the_type() {
    let mut state = reserved(&[(1, 1), (2, 2)], ReservationType::WriteExclusive);
    let changed = state
        .preempt(&path(1), 1, 1, Some(ReservationType::ExclusiveAccess))
        .unwrap();
    assert!(changed.preempted.is_empty());
    assert_eq!(
        state.reservation().map(|held| held.kind),
        Some(ReservationType::ExclusiveAccess)
    );
    assert!(state.holds(&path(1)));
}

fn to(who: u8, key: u64) -> Move {
    let to = path(who);
    Move {
        existing: 1,
        key,
        to,
        unregister: false,
        persist_through_power_loss: false,
    }
}

#[test]
fn the_holder_hands_its_reservation_on() {
    let mut state = reserved(&[(1, 1), (2, 2)], ReservationType::ExclusiveAccess);
    state.register_and_move(&path(1), to(3, 7)).unwrap();
    assert!(state.holds(&path(3)) && !state.holds(&path(1)));
    assert_eq!(
        (state.key_of(&path(3)), state.generation),
        (Some(key(7)), 3)
    );
}

#[test]
fn moving_may_unregister_the_old_holder() {
    let mut state = reserved(&[(1, 1)], ReservationType::ExclusiveAccess);
    state
        .register_and_move(
            &path(1),
            Move {
                unregister: true,
                ..to(2, 2)
            },
        )
        .unwrap();
    assert_eq!(keys(&state), [2]);
    assert!(state.holds(&path(2)));
}

#[test]
fn who_holds_nothing_for_itself_moves_nothing() {
    let mut state = registered(&[(1, 1), (2, 2)]);
    assert_eq!(state.register_and_move(&path(1), to(3, 3)), CONFLICT);
    state
        .reserve(&path(1), 1, ReservationType::WriteExclusiveAllRegistrants)
        .unwrap();
    assert_eq!(state.register_and_move(&path(1), to(3, 3)), CONFLICT);
}

#[test]
fn moving_to_oneself_or_with_key_zero_is_wrong() {
    let mut state = reserved(&[(1, 1)], ReservationType::ExclusiveAccess);
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
        Register {
            others: Some(others),
            ..change_key(0, 9)
        }
    };
    assert!(state.register(&path(1), &with(&[2, 3])).is_err());
    assert_eq!(keys(&state), [3]);
    state.register(&path(1), &with(&[2, 4])).unwrap();
    assert_eq!((keys(&state), state.generation), (vec![3, 9, 9, 9], 2));
    assert_eq!(
        state.register(
            &path(1),
            &Register {
                existing: Some(9),
                ..with(&[5])
            }
        ),
        Err(Refusal::AlreadyRegistered)
    );
}

#[test]
fn a_registration_for_all_ports_counts_through_each() {
    let mut state = Registrations::default();
    let all = Register {
        all_ports: true,
        ..change_key(0, 1)
    };
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
    let all = Register {
        all_ports: true,
        ..change_key(1, 0)
    };
    state.register(&through(1, 1), &all).unwrap();
    assert_eq!(keys(&state), [8]);
}

#[test]
fn registrations_are_bounded() {
    let mut state = Registrations::default();
    let count = REGISTRATIONS_MAX as u16;
    for group in 0..count {
        state
            .register(&through(1, group), &change_key(0, 1))
            .unwrap();
    }
    let one_more = state.register(&through(1, count), &change_key(0, 1));
    assert_eq!(one_more, Err(Refusal::TooMany));
}

/// A model of the state. It maps host numbers to keys. Holders are derived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Model {
    generation: u32,
    keys: BTreeMap<u8, u64>,
    reservation: Option<(ReservationType, u8)>,
}

/// The result of a change in the model: a conflict, another refusal, or the notices for each host.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ModelResult {
    Conflict,
    Refused,
    Good {
        told: BTreeSet<(u8, Event)>,
        preempted: BTreeSet<u8>,
    },
}

const HOSTS: u8 = 4;

impl Model {
    fn holders(&self) -> BTreeSet<u8> {
        match self.reservation {
            None => BTreeSet::new(),
            Some((kind, _)) if kind.all_registrants() => self.keys.keys().copied().collect(),
            Some((_, holder)) => BTreeSet::from([holder]),
        }
    }

    fn others(&self, by: u8) -> impl Iterator<Item = u8> + '_ {
        self.keys.keys().copied().filter(move |&who| who != by)
    }

    fn good(told: BTreeSet<(u8, Event)>) -> ModelResult {
        ModelResult::Good {
            told,
            preempted: BTreeSet::new(),
        }
    }

    fn carry_out(&mut self, by: u8, change: &Change) -> ModelResult {
        let own = self.keys.get(&by).copied();
        match change {
            Change::Register(register) => self.register(by, register),
            Change::Reserve { key, .. }
            | Change::Release { key, .. }
            | Change::Clear { key }
            | Change::Preempt { key, .. }
                if own != Some(*key) =>
            {
                ModelResult::Conflict
            }
            Change::Move(Move { existing, .. }) if own != Some(*existing) => ModelResult::Conflict,
            Change::Reserve { kind, .. } => self.reserve(by, *kind),
            Change::Release { kind, .. } => self.release(by, *kind),
            Change::Clear { .. } => {
                let told = self
                    .others(by)
                    .map(|who| (who, Event::ReservationPreempted))
                    .collect();
                *self = Model {
                    generation: self.generation + 1,
                    ..Model::default()
                };
                Model::good(told)
            }
            Change::Preempt { victims, kind, .. } => {
                self.preempt(by, *victims, kind.expect("a type"))
            }
            Change::Move(command) => self.hand_over(by, command),
        }
    }

    fn register(&mut self, by: u8, register: &Register) -> ModelResult {
        let own = self.keys.get(&by).copied().unwrap_or(0);
        if register.existing.is_some_and(|existing| existing != own) {
            return ModelResult::Conflict;
        }
        if register.key != 0 {
            self.keys.insert(by, register.key);
            self.generation += 1;
            return Model::good(BTreeSet::new());
        }
        if own == 0 {
            return Model::good(BTreeSet::new());
        }
        let was_holder = self.holders().contains(&by);
        self.keys.remove(&by);
        self.generation += 1;
        let mut told = BTreeSet::new();
        if let Some((kind, _)) = self.reservation
            && was_holder
            && (!kind.all_registrants() || self.keys.is_empty())
        {
            self.reservation = None;
            if kind.registrants_have_access() {
                told = self
                    .keys
                    .keys()
                    .map(|&who| (who, Event::ReservationReleased))
                    .collect();
            }
        }
        Model::good(told)
    }

    fn reserve(&mut self, by: u8, kind: ReservationType) -> ModelResult {
        match self.reservation {
            None => self.reservation = Some((kind, by)),
            Some((held, _)) if held == kind && self.holders().contains(&by) => {}
            Some(_) => return ModelResult::Conflict,
        }
        Model::good(BTreeSet::new())
    }

    fn release(&mut self, by: u8, kind: ReservationType) -> ModelResult {
        let Some((held, _)) = self.reservation.filter(|_| self.holders().contains(&by)) else {
            return Model::good(BTreeSet::new());
        };
        if held != kind {
            return ModelResult::Refused;
        }
        self.reservation = None;
        let told = self.others(by).map(|who| (who, Event::ReservationReleased));
        Model::good(if held.registrants_have_access() {
            told.collect()
        } else {
            BTreeSet::new()
        })
    }

    fn preempt(&mut self, by: u8, victims: u64, kind: ReservationType) -> ModelResult {
        let all = self
            .reservation
            .is_some_and(|(held, _)| held.all_registrants());
        let holder_key = self
            .reservation
            .and_then(|(_, holder)| self.keys.get(&holder).copied());
        let takes_over = if all {
            victims == 0
        } else {
            victims != 0 && holder_key == Some(victims)
        };
        if !takes_over && victims == 0 {
            return ModelResult::Refused;
        }
        if !takes_over && !self.keys.values().any(|&key| key == victims) {
            return ModelResult::Conflict;
        }
        let everyone = takes_over && all;
        let preempted: BTreeSet<u8> = self
            .others(by)
            .filter(|who| everyone || self.keys[who] == victims)
            .collect();
        self.keys.retain(|who, _| !preempted.contains(who));
        self.generation += 1;
        let mut told: BTreeSet<_> = preempted
            .iter()
            .map(|&who| (who, Event::RegistrationPreempted))
            .collect();
        if takes_over {
            if self.reservation.is_some_and(|(before, _)| before != kind) {
                told.extend(self.others(by).map(|who| (who, Event::ReservationReleased)));
            }
            self.reservation = Some((kind, by));
        }
        ModelResult::Good { told, preempted }
    }

    fn hand_over(&mut self, by: u8, command: &Move) -> ModelResult {
        let to = command.to.host.qualifier[5];
        let Some((kind, holder)) = self.reservation else {
            return ModelResult::Conflict;
        };
        if holder != by || kind.all_registrants() {
            return ModelResult::Conflict;
        }
        if command.key == 0 || to == by {
            return ModelResult::Refused;
        }
        self.keys.insert(to, command.key);
        if command.unregister {
            self.keys.remove(&by);
        }
        self.reservation = Some((kind, to));
        self.generation += 1;
        Model::good(BTreeSet::new())
    }

    fn allows(&self, who: u8, write: bool) -> bool {
        let Some((kind, _)) = self.reservation else {
            return true;
        };
        self.holders().contains(&who)
            || kind.registrants_have_access() && self.keys.contains_key(&who)
            || kind.others_may_read() && !write
    }
}

/// Converts a result of the code under test to the form of the model. The sender receives no notice, even if
/// a registration with a notice covers it.
fn answer(by: u8, outcome: Result<Changed, Refusal>) -> ModelResult {
    let number = |registration: &Registration| registration.host.qualifier[5];
    match outcome {
        Err(Refusal::Conflict) => ModelResult::Conflict,
        Err(_) => ModelResult::Refused,
        Ok(changed) => {
            let told = changed
                .notices
                .iter()
                .map(|notice| (number(&notice.who), notice.what));
            let preempted = changed.preempted.iter().map(number).collect();
            ModelResult::Good {
                told: told.filter(|(who, _)| *who != by).collect(),
                preempted,
            }
        }
    }
}

/// Draws changes with few keys and few hosts, so that they collide.
fn changes() -> impl Strategy<Value = (u8, Change)> {
    let key = 0u64..4;
    let kind = proptest::sample::select(ReservationType::ALL.to_vec());
    let register = (
        proptest::option::of(key.clone()),
        key.clone(),
        any::<bool>(),
    )
        .prop_map(|(existing, key, persist_through_power_loss)| {
            Change::Register(Register {
                existing,
                key,
                all_ports: false,
                persist_through_power_loss,
                others: None,
            })
        });
    let reserve = (key.clone(), kind.clone()).prop_map(|(key, kind)| Change::Reserve { key, kind });
    let release = (key.clone(), kind.clone()).prop_map(|(key, kind)| Change::Release { key, kind });
    let clear = key.clone().prop_map(|key| Change::Clear { key });
    let preempt =
        (key.clone(), key.clone(), kind, any::<bool>()).prop_map(|(key, victims, kind, abort)| {
            Change::Preempt {
                key,
                victims,
                kind: Some(kind),
                abort,
            }
        });
    let hand_over =
        (key.clone(), key, 1..=HOSTS, any::<bool>()).prop_map(|(existing, key, to, unregister)| {
            Change::Move(Move {
                existing,
                key,
                to: path(to),
                unregister,
                persist_through_power_loss: false,
            })
        });
    let action = prop_oneof![4 => register, 3 => reserve, 2 => release, 1 => clear, 3 => preempt, 2 => hand_over];
    (1..=HOSTS, action)
}

fn names() -> Vec<(u8, HostPath)> {
    (1..=HOSTS).map(|who| (who, path(who))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn any_sequence_of_actions_does_what_the_model_does(
        actions in proptest::collection::vec(changes(), 1..40),
    ) {
        let mut state = Registrations::default();
        let mut model = Model::default();
        for (by, change) in actions {
            let before = state.clone();
            let seen = answer(by, state.change(&path(by), change.clone()));
            prop_assert_eq!(&seen, &model.carry_out(by, &change), "{:?} by {}", change, by);
            if !matches!(seen, ModelResult::Good { .. }) {
                prop_assert_eq!(&state, &before, "a refusal changes nothing");
            }
            prop_assert_eq!(state.generation, model.generation);
            for (who, name) in names() {
                let key = state.key_of(&name).map(NonZeroU64::get);
                prop_assert_eq!(key, model.keys.get(&who).copied());
                prop_assert_eq!(state.holds(&name), model.holders().contains(&who));
                prop_assert_eq!(state.permit(&name, Access::Read), model.allows(who, false));
                prop_assert_eq!(state.permit(&name, Access::Write), model.allows(who, true));
            }
            let restarted = Registrations::from_bytes(&state.to_bytes()).expect("what was saved is whole");
            let kept = match state.persist_through_power_loss {
                true => state.clone(),
                false => Registrations::default(),
            };
            prop_assert_eq!(restarted, Registrations { generation: 0, ..kept });
        }
    }
}
