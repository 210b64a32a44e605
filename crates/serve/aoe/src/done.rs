//! The writes and deallocations that a station has had carried out, so that a copy of one that comes late is answered as the first was, and not
//! carried out over a newer write.
//!
//! A copy has the tag, the registers and the data of the first. A client that gives a write that it sends again another tag, as
//! Linux' driver does, is not known to repeat itself.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// For so long a copy may come: longer than the pauses and the quarantine of Linerate's client.
const LIFETIME: Duration = Duration::from_secs(3);

/// What is to be done about a write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is to be carried out.
    New,
    /// It is being carried out: its answer comes.
    Running,
    /// It was carried out, and this was its answer.
    Done(Vec<u8>),
}

/// The writes of one station at one slot, by their tags.
#[derive(Default)]
pub(crate) struct Writes {
    known: HashMap<u32, Write>,
    /// When the latest ones were answered.
    answered: VecDeque<(Instant, u32)>,
}

struct Write {
    fingerprint: u64,
    /// None while it is carried out.
    answer: Option<(Instant, Vec<u8>)>,
}

impl Writes {
    /// A write has come; with [`Verdict::New`] it counts as running.
    pub(crate) fn begin(&mut self, now: Instant, tag: u32, fingerprint: u64) -> Verdict {
        self.forget(now, usize::MAX);
        match self.known.get(&tag).filter(|write| write.fingerprint == fingerprint) {
            Some(Write { answer: None, .. }) => Verdict::Running,
            Some(Write { answer: Some((_, answer)), .. }) => Verdict::Done(answer.clone()),
            None => {
                self.known.insert(tag, Write { fingerprint, answer: None });
                Verdict::New
            }
        }
    }

    /// It has its answer; none if it has none and may be carried out again. At most `most` answers are kept.
    pub(crate) fn end(
        &mut self,
        now: Instant,
        tag: u32,
        fingerprint: u64,
        answer: Option<Vec<u8>>,
        most: usize,
    ) {
        // Another write may have taken the tag.
        let Some(write) = self.known.get_mut(&tag).filter(|write| write.fingerprint == fingerprint) else {
            return;
        };
        match answer {
            None => drop(self.known.remove(&tag)),
            Some(answer) => {
                write.answer = Some((now, answer));
                self.answered.push_back((now, tag));
                self.forget(now, most);
            }
        }
    }

    fn forget(&mut self, now: Instant, most: usize) {
        while let Some(&(since, tag)) = self.answered.front() {
            if self.answered.len() <= most && now.saturating_duration_since(since) <= LIFETIME {
                break;
            }
            self.answered.pop_front();
            let is_this = |write: &Write| write.answer.as_ref().is_some_and(|(at, _)| *at == since);
            if self.known.get(&tag).is_some_and(is_this) {
                self.known.remove(&tag);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_answered_as_the_first_was() {
        let (mut writes, now) = (Writes::default(), Instant::now());
        assert_eq!(writes.begin(now, 1, 10), Verdict::New);
        assert_eq!(writes.begin(now, 1, 10), Verdict::Running);
        writes.end(now, 1, 10, Some(vec![7]), 100);
        assert_eq!(writes.begin(now, 1, 10), Verdict::Done(vec![7]));
        assert_eq!(writes.begin(now, 1, 11), Verdict::New, "another write with the same tag");
        writes.end(now, 1, 10, Some(vec![8]), 100);
        assert_eq!(writes.begin(now, 1, 11), Verdict::Running, "the end of the other is not its own");
        writes.end(now, 1, 11, None, 100);
        assert_eq!(writes.begin(now, 1, 11), Verdict::New, "without an answer it may be carried out again");
    }

    #[test]
    fn what_is_old_or_too_much_is_forgotten() {
        let (mut writes, now) = (Writes::default(), Instant::now());
        for tag in 0..10 {
            writes.begin(now, tag, 0);
            writes.end(now, tag, 0, Some(Vec::new()), 4);
        }
        assert_eq!((writes.known.len(), writes.answered.len()), (4, 4));
        assert_eq!(writes.begin(now, 9, 0), Verdict::Done(Vec::new()));
        assert_eq!(writes.begin(now + 2 * LIFETIME, 9, 0), Verdict::New);
        assert_eq!(writes.known.len(), 1);
    }
}
