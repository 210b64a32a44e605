//! Messages that are open, by their numbers. These are consecutive but for the ones that are gone, and the oldest and the newest are never
//! far apart, so a place follows from a number.

use std::collections::VecDeque;

/// A value for each open message.
#[derive(Debug)]
pub(crate) struct OpenMessages<T> {
    /// The number of the first place, which is taken, unless there is none.
    first: u32,
    places: VecDeque<Option<T>>,
    count: usize,
}

impl<T> OpenMessages<T> {
    pub(crate) fn new() -> OpenMessages<T> {
        OpenMessages { first: 0, places: VecDeque::new(), count: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The lowest number.
    pub(crate) fn oldest(&self) -> Option<u32> {
        (self.count > 0).then_some(self.first)
    }

    fn place(&self, number: u32) -> Option<usize> {
        number.checked_sub(self.first).map(|place| place as usize)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.places.get(self.place(number)?)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let place = self.place(number)?;
        self.places.get_mut(place)?.as_mut()
    }

    /// Adds the next one: no number is as high. Places grow by the distance to the oldest, which the caller bounds.
    pub(crate) fn push(&mut self, number: u32, value: T) {
        if self.places.is_empty() {
            self.first = number;
        }
        let place = self.place(number).unwrap_or_default();
        debug_assert!(place >= self.places.len(), "numbers rise");
        self.places.resize_with(place, || None);
        self.places.push_back(Some(value));
        self.count += 1;
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let place = self.place(number)?;
        let value = self.places.get_mut(place)?.take()?;
        self.count -= 1;
        while let Some(None) = self.places.front() {
            self.places.pop_front();
            self.first += 1;
        }
        Some(value)
    }

    /// In the order of their numbers.
    pub(crate) fn into_values(self) -> impl Iterator<Item = T> {
        self.places.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_map(steps in proptest::collection::vec((any::<bool>(), 0u32..40), 0..200)) {
            let (mut open, mut model) = (OpenMessages::new(), BTreeMap::new());
            let mut next = 5;
            for (is_push, number) in steps {
                if is_push {
                    next += number % 3;
                    open.push(next, number);
                    model.insert(next, number);
                    next += 1;
                } else {
                    prop_assert_eq!(open.remove(number), model.remove(&number));
                }
                prop_assert_eq!((open.len(), open.oldest()), (model.len(), model.keys().next().copied()));
                for number in 0..next + 2 {
                    prop_assert_eq!(open.get(number), model.get(&number));
                    prop_assert_eq!(open.get_mut(number), model.get_mut(&number));
                }
            }
            prop_assert!(open.into_values().eq(model.into_values()));
        }
    }
}
