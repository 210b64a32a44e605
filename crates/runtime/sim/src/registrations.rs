//! The known registrations of one volume (SPC-4 5.13), derived from requests and responses. All registrations
//! are requested with APTPL, so a restart does not change them.

use std::collections::BTreeMap;

use crate::checker::Writer;

/// The known state of the registrations, by nexus. The key of a nexus is its number.
#[derive(Debug, Default)]
pub(crate) struct Registrations {
    all: BTreeMap<Writer, Known>,
    /// Counts requests and responses.
    moment: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// Number of times that the nexus has sent its registration.
    pub(crate) sent: u64,
    /// Number of unanswered registrations. If a registration is concurrent with a preemption, either may have
    /// been executed first. A registration that was sent after a preemption may be executed.
    pub(crate) under_way: u64,
    /// Number of unanswered preemptions of the nexus.
    preempted: u64,
    /// Whether a registration and a preemption were outstanding at the same time, so that their order is
    /// unknown.
    is_open: bool,
    /// Whether the nexus is registered; `None` if unknown.
    is_registered: Option<bool>,
}

impl Registrations {
    pub(crate) fn known(&self, writer: Writer) -> Known {
        self.all.get(&writer).copied().unwrap_or_default()
    }

    fn change(&mut self, writer: Writer, change: impl FnOnce(&mut Known)) {
        self.moment += 1;
        change(self.all.entry(writer).or_default());
    }

    /// Called when a nexus is about to register.
    pub(crate) fn asks(&mut self, writer: Writer) {
        self.change(writer, |known| {
            known.sent += 1;
            known.under_way += 1;
            known.is_open |= known.preempted > 0;
            known.is_registered = None;
        });
    }

    pub(crate) fn is_answered(&mut self, writer: Writer, done: bool) {
        self.change(writer, |known| {
            known.under_way = known.under_way.saturating_sub(1);
            known.is_registered = (done && known.under_way == 0 && !known.is_open).then_some(true);
            known.settle();
        });
    }

    /// Called before the request to preempt a nexus.
    pub(crate) fn is_preempted(&mut self, victim: Writer) {
        self.change(victim, |known| {
            known.preempted += 1;
            known.is_open |= known.under_way > 0;
            known.is_registered = None;
        });
    }

    /// Called when the preemption is answered.
    pub(crate) fn preemption_ended(&mut self, victim: Writer, done: bool) {
        self.change(victim, |known| {
            known.preempted = known.preempted.saturating_sub(1);
            known.is_registered = (done && known.preempted == 0 && !known.is_open).then_some(false);
            known.settle();
        });
    }

    /// Called when the nexus of `writer` starts a new session, which terminates its outstanding requests.
    pub(crate) fn begins_anew(&mut self, writer: Writer) {
        self.change(writer, |known| {
            known.under_way = 0;
            known.settle();
        });
    }

    /// Called when the only preemptor starts a new session.
    pub(crate) fn preemptor_begins_anew(&mut self) {
        self.moment += 1;
        for known in self.all.values_mut() {
            known.preempted = 0;
            known.settle();
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.moment
    }

    /// Checks the keys that the unit returned, for a request sent at `begun`, against the known state.
    pub(crate) fn are_told(&mut self, begun: u64, keys: &[u64]) -> Result<(), String> {
        if begun != self.moment {
            return Ok(()); // a request has started or ended meanwhile
        }
        if let Some(stranger) = keys.iter().find(|key| !self.all.contains_key(key)) {
            return Err(format!(
                "key {stranger} is registered, but its registration was never requested"
            ));
        }
        for (writer, known) in &mut self.all {
            let is_there = keys.contains(writer);
            match known.is_registered {
                Some(true) if !is_there => {
                    return Err(format!(
                        "nexus {writer} is no longer registered, but was not preempted"
                    ));
                }
                Some(false) if is_there => {
                    return Err(format!(
                        "nexus {writer} is registered, but has not requested it since it was unregistered"
                    ));
                }
                // No outstanding request can change this registration.
                None if known.under_way == 0 && known.preempted == 0 => {
                    known.is_registered = Some(is_there)
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Known {
    /// Clears `is_open` when nothing is outstanding, because later requests are not concurrent with earlier
    /// ones.
    fn settle(&mut self) {
        self.is_open &= self.under_way > 0 || self.preempted > 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(book: &mut Registrations, keys: &[u64]) -> bool {
        let begun = book.now();
        book.are_told(begun, keys).is_ok()
    }

    #[test]
    fn what_was_answered_is_there() {
        let mut book = Registrations::default();
        book.asks(1);
        assert!(
            told(&mut book, &[]) && told(&mut book, &[1]),
            "it is under way"
        );
        book.is_answered(1, true);
        assert!(told(&mut book, &[1]) && !told(&mut book, &[]));
    }

    #[test]
    fn who_was_preempted_is_not_there_unless_it_asks_again() {
        let mut book = Registrations::default();
        book.asks(1);
        book.is_answered(1, true);
        book.is_preempted(1);
        book.preemption_ended(1, true);
        assert!(told(&mut book, &[]) && !told(&mut book, &[1]));
        book.asks(1);
        assert!(told(&mut book, &[1]));
    }

    #[test]
    fn what_was_seen_stays_as_long_as_nobody_asks_for_anything() {
        let mut book = Registrations::default();
        book.asks(1);
        book.is_answered(1, false);
        assert!(told(&mut book, &[]), "perhaps it was not carried out");
        assert!(!told(&mut book, &[1]), "then it is not carried out later");
    }

    #[test]
    fn of_a_registration_beside_a_preemption_nobody_knows_which_was_first() {
        let mut book = Registrations::default();
        book.asks(1);
        book.is_preempted(1);
        book.preemption_ended(1, true);
        book.is_answered(1, true);
        assert!(told(&mut book, &[]), "it was preempted last");
        assert!(!told(&mut book, &[1]), "and that is known now");
    }

    #[test]
    fn nobody_is_registered_who_has_not_asked() {
        assert!(!told(&mut Registrations::default(), &[7]));
    }
}
