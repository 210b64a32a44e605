//! The numbers by which clients are named: 1 to 65,535, over and over, none of which two clients have at the same time.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// A client's number, which is free again when this is dropped.
pub(crate) struct Number(u16);

/// Those that are in use, and the last that was given.
#[derive(Default)]
struct Numbers {
    used: BTreeSet<u16>,
    last: u16,
}

/// Of this process: clients of all cores are told apart by them.
static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers { used: BTreeSet::new(), last: 0 });

impl Number {
    /// The next that is free. With 65,535 clients none is, and two have the same.
    pub(crate) fn next() -> Number {
        Number(NUMBERS.lock().unwrap_or_else(PoisonError::into_inner).next())
    }

    pub(crate) fn value(&self) -> u16 {
        self.0
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        NUMBERS.lock().unwrap_or_else(PoisonError::into_inner).used.remove(&self.0);
    }
}

impl Numbers {
    fn next(&mut self) -> u16 {
        let later = (self.last..u16::MAX).map(|before| before + 1).chain(1..=self.last);
        self.last = later.into_iter().find(|number| !self.used.contains(number)).unwrap_or(u16::MAX);
        self.used.insert(self.last);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_not_given_again_while_its_client_is_there() {
        let mut numbers = Numbers::default();
        let first: Vec<u16> = (0..3).map(|_| numbers.next()).collect();
        assert_eq!(first, [1, 2, 3]);
        numbers.used.remove(&2);
        numbers.last = u16::MAX - 1;
        let later: Vec<u16> = (0..4).map(|_| numbers.next()).collect();
        assert_eq!(later, [u16::MAX, 2, 4, 5]);
    }

    #[test]
    fn there_is_an_end_of_looking_where_all_are_used() {
        let mut numbers = Numbers { used: (1..=u16::MAX).collect(), last: 7 };
        assert_eq!(numbers.next(), u16::MAX);
    }
}
