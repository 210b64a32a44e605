//! Property test: random changes by several hosts against a simple model with one key per host and one set of
//! holders, which carries out each change as the standard describes it.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::scene::path;
use super::{Change, Changed, Event, Move, Refusal, Register, Registrations, ReservationType};
use crate::requester::{Access, HostPath};

/// Host number to key; the holders are worked out, not stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Model {
    generation: u32,
    keys: BTreeMap<u8, u64>,
    reservation: Option<(ReservationType, u8)>,
}

/// What the model answers: a conflict, another refusal, or whom to tell what.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ModelResult {
    Conflict,
    Refused,
    Good { told: BTreeSet<(u8, Event)>, preempted: BTreeSet<u8> },
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
        ModelResult::Good { told, preempted: BTreeSet::new() }
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
                let told = self.others(by).map(|who| (who, Event::ReservationPreempted)).collect();
                *self = Model { generation: self.generation + 1, ..Model::default() };
                Model::good(told)
            }
            Change::Preempt { victims, kind, .. } => self.preempt(by, *victims, kind.expect("a type")),
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
                told = self.keys.keys().map(|&who| (who, Event::ReservationReleased)).collect();
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
        Model::good(if held.registrants_have_access() { told.collect() } else { BTreeSet::new() })
    }

    fn preempt(&mut self, by: u8, victims: u64, kind: ReservationType) -> ModelResult {
        let all = self.reservation.is_some_and(|(held, _)| held.all_registrants());
        let holder_key = self.reservation.and_then(|(_, holder)| self.keys.get(&holder).copied());
        let takes_over = if all { victims == 0 } else { victims != 0 && holder_key == Some(victims) };
        if !takes_over && victims == 0 {
            return ModelResult::Refused;
        }
        if !takes_over && !self.keys.values().any(|&key| key == victims) {
            return ModelResult::Conflict;
        }
        let everyone = takes_over && all;
        let preempted: BTreeSet<u8> =
            self.others(by).filter(|who| everyone || self.keys[who] == victims).collect();
        self.keys.retain(|who, _| !preempted.contains(who));
        self.generation += 1;
        let mut told: BTreeSet<_> =
            preempted.iter().map(|&who| (who, Event::RegistrationPreempted)).collect();
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
        let Some((kind, holder)) = self.reservation else { return ModelResult::Conflict };
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
        let Some((kind, _)) = self.reservation else { return true };
        self.holders().contains(&who)
            || kind.registrants_have_access() && self.keys.contains_key(&who)
            || kind.others_may_read() && !write
    }
}

/// The answer of what is tested, in the model's words. The sender hears nothing, covered or not.
fn answer(by: u8, outcome: Result<Changed, Refusal>) -> ModelResult {
    let number = |registration: &super::Registration| registration.host.qualifier[5];
    match outcome {
        Err(Refusal::Conflict) => ModelResult::Conflict,
        Err(_) => ModelResult::Refused,
        Ok(changed) => {
            let told = changed.notices.iter().map(|notice| (number(&notice.who), notice.what));
            let preempted = changed.preempted.iter().map(number).collect();
            ModelResult::Good { told: told.filter(|(who, _)| *who != by).collect(), preempted }
        }
    }
}

/// Few keys and few hosts, so that things happen.
fn changes() -> impl Strategy<Value = (u8, Change)> {
    let key = 0u64..4;
    let kind = proptest::sample::select(ReservationType::ALL.to_vec());
    let register = (proptest::option::of(key.clone()), key.clone(), any::<bool>()).prop_map(
        |(existing, key, persist_through_power_loss)| {
            Change::Register(Register {
                existing,
                key,
                all_ports: false,
                persist_through_power_loss,
                others: None,
            })
        },
    );
    let reserve = (key.clone(), kind.clone()).prop_map(|(key, kind)| Change::Reserve { key, kind });
    let release = (key.clone(), kind.clone()).prop_map(|(key, kind)| Change::Release { key, kind });
    let clear = key.clone().prop_map(|key| Change::Clear { key });
    let preempt = (key.clone(), key.clone(), kind, any::<bool>())
        .prop_map(|(key, victims, kind, abort)| Change::Preempt { key, victims, kind: Some(kind), abort });
    let hand_over =
        (key.clone(), key, 1..=HOSTS, any::<bool>()).prop_map(|(existing, key, to, unregister)| {
            Change::Move(Move { existing, key, to: path(to), unregister, persist_through_power_loss: false })
        });
    let action =
        prop_oneof![4 => register, 3 => reserve, 2 => release, 1 => clear, 3 => preempt, 2 => hand_over];
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
                let key = state.key_of(&name).map(std::num::NonZeroU64::get);
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
