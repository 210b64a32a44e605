//! An ordered set of deadlines: a binary heap with an index of its entries, so that a cancelled timer is
//! removed immediately. A deadline is set and cancelled for every command. If cancelled deadlines stayed
//! until they were due, 300,000 commands per second with a deadline of 30 seconds would accumulate nine
//! million entries. Usually a new deadline is later than all others; inserting it moves no other entry.

use std::task::Waker;
use std::time::Instant;

/// The pending deadlines of one thread.
#[derive(Default)]
pub(crate) struct Timers {
    /// An entry's deadline is never earlier than the deadline of its parent, at `(place - 1) / 2`.
    heap: Vec<Entry>,
    slots: Vec<Slot>,
    vacant: Vec<usize>,
}

#[derive(Clone, Copy)]
struct Entry {
    at: Instant,
    slot: usize,
}

struct Slot {
    /// Incremented each time the slot is freed, so that old keys become invalid.
    generation: u64,
    place: usize,
    waker: Option<Waker>,
}

/// Identifies a deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    slot: usize,
    generation: u64,
}

impl Timers {
    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.first().map(|entry| entry.at)
    }

    /// Sets a timer that wakes `waker` at the time `at`.
    pub(crate) fn set(&mut self, at: Instant, waker: Waker) -> Key {
        let place = self.heap.len();
        let slot = match self.vacant.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(Slot {
                    generation: 0,
                    place,
                    waker: None,
                });
                self.slots.len() - 1
            }
        };
        self.slots[slot].waker = Some(waker);
        self.heap.push(Entry { at, slot });
        self.sift_up(place);
        Key {
            slot,
            generation: self.slots[slot].generation,
        }
    }

    /// Changes the waker of a timer. Returns false if the timer has already expired.
    pub(crate) fn renew(&mut self, key: Key, waker: &Waker) -> bool {
        match self.slots.get_mut(key.slot) {
            Some(slot) if slot.generation == key.generation => {
                slot.waker
                    .get_or_insert_with(|| waker.clone())
                    .clone_from(waker);
                true
            }
            _ => false,
        }
    }

    /// Cancels a timer, if it has not expired.
    pub(crate) fn cancel(&mut self, key: Key) -> Option<Waker> {
        let slot = self.slots.get(key.slot)?;
        if slot.generation != key.generation {
            return None;
        }
        self.remove(slot.place)
    }

    /// Removes the earliest timer if it is due at `now`, and returns its waker.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<Waker> {
        self.next().filter(|&at| at <= now)?;
        self.remove(0)
    }

    fn remove(&mut self, place: usize) -> Option<Waker> {
        let removed = self.heap.swap_remove(place);
        if place < self.heap.len() {
            self.sift_down(place);
            self.sift_up(place);
        }
        let slot = &mut self.slots[removed.slot];
        slot.generation += 1;
        self.vacant.push(removed.slot);
        slot.waker.take()
    }

    fn sift_up(&mut self, mut place: usize) {
        while place > 0 && self.heap[place].at < self.heap[(place - 1) / 2].at {
            self.heap.swap(place, (place - 1) / 2);
            self.note(place);
            place = (place - 1) / 2;
        }
        self.note(place);
    }

    fn sift_down(&mut self, mut place: usize) {
        loop {
            let children = 2 * place + 1..(2 * place + 3).min(self.heap.len());
            let earliest = children.min_by_key(|&child| self.heap[child].at);
            let Some(child) = earliest.filter(|&child| self.heap[child].at < self.heap[place].at)
            else {
                break;
            };
            self.heap.swap(place, child);
            self.note(place);
            place = child;
        }
        self.note(place);
    }

    fn note(&mut self, place: usize) {
        self.slots[self.heap[place].slot].place = place;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::time::Duration;

    #[test]
    fn a_cancelled_timer_leaves_nothing_behind() {
        let (mut timers, start) = (Timers::default(), Instant::now());
        for round in 0..1000 {
            let key = timers.set(start + Duration::from_secs(round), Waker::noop().clone());
            assert!(timers.cancel(key).is_some());
            assert!(timers.cancel(key).is_none());
        }
        assert!(timers.next().is_none());
        assert_eq!(timers.slots.len(), 1);
    }

    proptest! {
        #[test]
        fn timers_behave_as_a_sorted_map(steps in prop::collection::vec((0u8..3, 0u64..50), 0..300)) {
            let start = Instant::now();
            let at = |ms| start + Duration::from_millis(ms);
            let (mut timers, mut model, mut keys) = (Timers::default(), BTreeMap::new(), Vec::new());
            for (step, (verb, ms)) in steps.into_iter().enumerate() {
                match verb {
                    0 => {
                        keys.push((timers.set(at(ms), Waker::noop().clone()), (at(ms), step)));
                        model.insert((at(ms), step), ());
                    }
                    1 if !keys.is_empty() => {
                        let (key, id) = keys.swap_remove(ms as usize % keys.len());
                        prop_assert_eq!(timers.cancel(key).is_some(), model.remove(&id).is_some());
                    }
                    _ => {
                        let mut fired = 0;
                        while timers.expire(at(ms)).is_some() {
                            fired += 1;
                        }
                        let later = model.split_off(&(at(ms), usize::MAX));
                        prop_assert_eq!(fired, model.len());
                        model = later;
                    }
                }
                prop_assert_eq!(timers.next(), model.keys().next().map(|id| id.0));
            }
        }
    }
}
