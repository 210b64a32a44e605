//! Which numbers of a sequence have been met: all below `next` but the missing ones. Numbers come out of order, and
//! a peer that keeps the rules leaves few out, so this is small for ever.

use std::collections::BTreeSet;

/// Numbers that have been met.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    next: u64,
    missing: BTreeSet<u64>,
}

impl Seen {
    pub(crate) fn contains(&self, number: u64) -> bool {
        number < self.next && !self.missing.contains(&number)
    }

    /// The lowest number that has not been met.
    pub(crate) fn lowest(&self) -> u64 {
        self.missing.first().copied().unwrap_or(self.next)
    }

    /// How many numbers will be missing when this one has been met.
    pub(crate) fn missing_with(&self, number: u64) -> u64 {
        let is_one = u64::from(self.missing.contains(&number));
        self.missing.len() as u64 - is_one + number.saturating_sub(self.next)
    }

    /// Notes a number. The caller has checked [`Seen::missing_with`].
    pub(crate) fn insert(&mut self, number: u64) {
        if number < self.next {
            self.missing.remove(&number);
        } else {
            self.missing.extend(self.next..number);
            self.next = number + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_set(numbers in proptest::collection::vec(0u64..64, 0..80)) {
            let (mut seen, mut model) = (Seen::default(), BTreeSet::new());
            for number in numbers {
                prop_assert_eq!(seen.contains(number), model.contains(&number));
                let missing = seen.missing_with(number);
                seen.insert(number);
                model.insert(number);
                prop_assert_eq!(missing, seen.missing.len() as u64);
                prop_assert_eq!(seen.lowest(), (0..).find(|number| !model.contains(number)).unwrap());
            }
        }
    }
}
