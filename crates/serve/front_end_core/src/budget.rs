//! A limit on the memory that commands hold, so that one initiator cannot use up the memory of the others.
//! Each session has a budget within the budget of its core.

use std::cell::Cell;
use std::rc::Rc;

/// A limit on the number of bytes held concurrently.
pub struct Budget {
    limit: Cell<usize>,
    used: Cell<usize>,
    /// Whether a request for memory was refused since the last [`Budget::take_refusal`].
    refused: Cell<bool>,
    /// The outer budget, against which the bytes of this budget also count.
    within: Option<Rc<Budget>>,
}

/// Bytes taken from a budget. Dropping the charge releases them.
pub struct Charge {
    budget: Rc<Budget>,
    bytes: usize,
}

impl Budget {
    /// Creates a budget of `limit` bytes, which also count against `within`.
    pub fn new(limit: usize, within: Option<Rc<Budget>>) -> Rc<Budget> {
        Rc::new(Budget {
            limit: Cell::new(limit),
            used: Cell::new(0),
            refused: Cell::new(false),
            within,
        })
    }

    /// Changes the limit for later requests.
    pub fn set_limit(&self, limit: usize) {
        self.limit.set(limit);
    }

    /// Takes `bytes` if they are available. An unused budget grants any amount, because a command that needs
    /// more than the limit must not wait forever.
    pub fn take(self: &Rc<Self>, bytes: usize) -> Option<Charge> {
        self.has(bytes).then(|| {
            self.add(bytes);
            Charge {
                budget: Rc::clone(self),
                bytes,
            }
        })
    }

    /// Takes `bytes` regardless of the limit, because they have already been allocated.
    pub fn hold(self: &Rc<Self>, bytes: usize) -> Charge {
        self.add(bytes);
        Charge {
            budget: Rc::clone(self),
            bytes,
        }
    }

    /// The maximum number of bytes held.
    pub fn limit(&self) -> usize {
        self.limit.get()
    }

    /// The number of bytes held.
    pub fn used(&self) -> usize {
        self.used.get()
    }

    /// The number of available bytes.
    pub fn free(&self) -> usize {
        let free = self.limit.get().saturating_sub(self.used.get());
        self.within
            .as_ref()
            .map_or(free, |within| free.min(within.free()))
    }

    fn has(&self, bytes: usize) -> bool {
        let used = self.used.get();
        let fits = bytes == 0 || used == 0 || used.saturating_add(bytes) <= self.limit.get();
        if !fits {
            self.refused.set(true);
        }
        fits && self.within.as_ref().is_none_or(|within| within.has(bytes))
    }

    /// Whether a request was refused since the last call.
    pub fn take_refusal(&self) -> bool {
        self.refused.take()
    }

    fn add(&self, bytes: usize) {
        debug_assert!(
            self.used.get().checked_add(bytes).is_some(),
            "more memory than any machine has"
        );
        self.used.set(self.used.get() + bytes);
        if let Some(within) = &self.within {
            within.add(bytes);
            debug_assert!(
                self.used.get() <= within.used.get(),
                "the enclosing budget includes these bytes"
            );
        }
    }

    fn give_back(&self, bytes: usize) {
        debug_assert!(bytes <= self.used.get(), "a charge is released one time");
        self.used.set(self.used.get() - bytes);
        if let Some(within) = &self.within {
            within.give_back(bytes);
        }
    }
}

impl Charge {
    /// Changes the size of the charge, regardless of the limit.
    pub fn set(&mut self, bytes: usize) {
        if bytes > self.bytes {
            self.budget.add(bytes - self.bytes);
        } else {
            self.budget.give_back(self.bytes - bytes);
        }
        self.bytes = bytes;
    }

    /// Splits off a charge of `bytes`, or the whole charge if it is smaller.
    pub fn split(&mut self, bytes: usize) -> Charge {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Charge {
            budget: Rc::clone(&self.budget),
            bytes,
        }
    }

    /// Adds another charge of the same budget to this one.
    pub fn merge(&mut self, mut other: Charge) {
        debug_assert!(
            Rc::ptr_eq(&self.budget, &other.budget),
            "both are charges of one budget"
        );
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let budget = Budget::new(10, None);
        let first = budget.take(8);
        assert!(first.is_some() && budget.take(3).is_none());
        drop(first);
        assert!(budget.take(3).is_some());
    }

    #[test]
    fn what_is_held_already_counts_although_it_was_not_there() {
        let core = Budget::new(10, None);
        let session = Budget::new(8, Some(Rc::clone(&core)));
        let mut held = session.hold(0);
        assert_eq!(session.free(), 8);
        held.set(9);
        assert_eq!(
            (session.free(), core.free(), session.take(1).is_some()),
            (0, 1, false)
        );
        held.set(2);
        assert_eq!((session.free(), core.free()), (6, 8));
        drop(held);
        assert_eq!((session.free(), core.free()), (8, 10));
    }

    #[test]
    fn who_holds_nothing_gets_any_amount() {
        let budget = Budget::new(10, None);
        let large = budget.take(100);
        assert!(large.is_some() && budget.take(1).is_none());
    }

    #[test]
    fn sessions_share_what_their_core_has() {
        let core = Budget::new(10, None);
        let (one, other) = (
            Budget::new(8, Some(Rc::clone(&core))),
            Budget::new(8, Some(Rc::clone(&core))),
        );
        let held = one.take(8);
        assert!(held.is_some() && other.take(4).is_none() && other.take(2).is_some());
        drop(held);
        assert!(other.take(4).is_some());
        assert_eq!(core.used.get(), 0);
    }
}
