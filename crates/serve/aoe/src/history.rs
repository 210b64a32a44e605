//! The history of a station. It contains the completed writes and deallocations, so that a delayed copy of
//! one of them does not overwrite a newer write. It also contains the lost writes reported to the station: a
//! loss is reported once to each station, and again if the station repeats the query.
//!
//! A copy has the tag, the registers and the data of the original. If a host reuses a tag, a new write can
//! have the same values. While a copy can still arrive, `carry_out` therefore acknowledges such a command
//! only if the medium contains its data. If a client retransmits a write with a new tag, as the Linux driver
//! does, the retransmission cannot be detected.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use aoe::ATA_BYTES;
use reactor::MacAddress;
use volume::{Departed, Reported};

/// Time after the latest reply in which a copy of its command may still arrive. Linerate's client assumes
/// that no frame takes longer than its quarantine of 2 s, and sends a newer write as soon as it has a reply.
/// The reply was sent at most 2 s earlier, and a copy that was sent until then arrives at most 2 s later. The
/// remaining second is for frames that wait at the local interface.
const LIFETIME: Duration = Duration::from_secs(5);

/// Maximum number of kept replies to changes of all stations together, about 100 bytes each: the capacity of
/// a table of 2^20 entries.
const ANSWERS_MAX: usize = (1 << 20) / 8 * 7;

/// Minimum number of kept replies for one station, however many stations there are.
const ANSWERS_MIN: usize = 64;

/// The header and the registers of a reply.
pub(crate) type Head = [u8; ATA_BYTES];

/// The treatment of a write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Execute it.
    New,
    /// The write is being executed, and will be answered.
    Running,
    /// The write was executed with this reply. The reply must be repeated while the medium contains the
    /// write's data.
    Done(Head),
}

/// Number of stations with kept replies, which share the capacity.
#[derive(Clone, Default)]
pub(crate) struct Writers(Rc<Cell<usize>>);

impl Writers {
    /// Maximum number of kept replies of one station.
    fn share(&self) -> usize {
        (ANSWERS_MAX / self.0.get().max(1)).max(ANSWERS_MIN)
    }
}

/// The writes of one station at one slot, by their tags.
pub(crate) struct Writes {
    known: HashMap<u32, Write>,
    /// Times and tags of the latest replies, in order.
    answered: VecDeque<(Instant, u32)>,
    writers: Writers,
}

struct Write {
    fingerprint: u64,
    /// The reply; `None` while the write is being executed.
    answer: Option<Answer>,
}

struct Answer {
    /// The time of the reply in the queue of replies.
    since: Instant,
    /// Whether a copy was answered after `since`. If so, the reply is queued again instead of being removed.
    is_repeated: bool,
    head: Head,
}

impl Writes {
    /// Creates the empty history of a station, which `writers` counts.
    pub(crate) fn new(writers: &Writers) -> Writes {
        Writes {
            known: HashMap::new(),
            answered: VecDeque::new(),
            writers: writers.clone(),
        }
    }

    /// Records a received write. If the verdict is [`Verdict::New`], the write counts as running.
    pub(crate) fn begin(&mut self, now: Instant, tag: u32, fingerprint: u64) -> Verdict {
        self.forget_old(now);
        match self
            .known
            .get_mut(&tag)
            .filter(|write| write.fingerprint == fingerprint)
        {
            Some(Write { answer: None, .. }) => Verdict::Running,
            Some(Write {
                answer: Some(answer),
                ..
            }) => Verdict::Done(answer.head),
            None => {
                self.known.insert(
                    tag,
                    Write {
                        fingerprint,
                        answer: None,
                    },
                );
                Verdict::New
            }
        }
    }

    /// Records that this reply was repeated.
    pub(crate) fn repeated(&mut self, tag: u32, head: &Head) {
        let answer = self
            .known
            .get_mut(&tag)
            .and_then(|write| write.answer.as_mut());
        if let Some(answer) = answer.filter(|answer| answer.head == *head) {
            answer.is_repeated = true;
        }
    }

    /// Records the reply to a write; `None` if the write was not answered and may be executed again.
    pub(crate) fn end(&mut self, now: Instant, tag: u32, fingerprint: u64, answer: Option<Head>) {
        // Another write may have reused the tag.
        let Some(write) = self
            .known
            .get_mut(&tag)
            .filter(|write| write.fingerprint == fingerprint)
        else {
            return;
        };
        match answer {
            None => drop(self.known.remove(&tag)),
            Some(head) => {
                write.answer = Some(Answer {
                    since: now,
                    is_repeated: false,
                    head,
                });
                debug_assert!(
                    self.answered.back().is_none_or(|(last, _)| *last <= now),
                    "replies are kept in the order of their times"
                );
                if self.answered.is_empty() {
                    self.writers.0.set(self.writers.0.get() + 1);
                }
                self.answered.push_back((now, tag));
                self.forget(now, self.writers.share());
            }
        }
    }

    pub(crate) fn are_kept(&self) -> bool {
        !self.answered.is_empty()
    }

    /// Removes writes of which no more copies can arrive.
    pub(crate) fn forget_old(&mut self, now: Instant) {
        self.forget(now, usize::MAX);
    }

    fn forget(&mut self, now: Instant, most: usize) {
        let were_kept = self.are_kept();
        while let Some(&(since, tag)) = self.answered.front() {
            if self.answered.len() <= most && now.saturating_duration_since(since) <= LIFETIME {
                break;
            }
            self.answered.pop_front();
            let answer = self
                .known
                .get_mut(&tag)
                .and_then(|write| write.answer.as_mut());
            // Another write may have reused the tag.
            let Some(answer) = answer.filter(|answer| answer.since == since) else {
                continue;
            };
            if answer.is_repeated {
                (answer.is_repeated, answer.since) = (false, now);
                self.answered.push_back((now, tag));
            } else {
                self.known.remove(&tag);
            }
        }
        if were_kept && !self.are_kept() {
            debug_assert!(
                self.writers.0.get() > 0,
                "it was counted when its first answer was kept"
            );
            self.writers.0.set(self.writers.0.get() - 1);
        }
    }
}

impl Drop for Writes {
    fn drop(&mut self) {
        if self.are_kept() {
            debug_assert!(
                self.writers.0.get() > 0,
                "it counts as long as replies are kept"
            );
            self.writers.0.set(self.writers.0.get() - 1);
        }
    }
}

/// Time for which a flush may be repeated after its reply was lost.
const REPEATED: Duration = Duration::from_secs(60);

/// Maximum number of flushes per station that have reported a loss and can be repeated.
const REPORTS_MAX: usize = 8;

/// The losses reported to one station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReportedLosses {
    /// The loss count last reported to the station. Losses before its arrival count as reported.
    count: u64,
    /// The tags of the last flushes that reported losses, latest first, and their times.
    by: [Option<(u32, Instant)>; REPORTS_MAX],
}

impl Reported for ReportedLosses {
    fn count(&self) -> u64 {
        self.count
    }
}

impl ReportedLosses {
    /// Returns the state of a station that arrives. `presumed` is the count for a station of which nothing is
    /// known.
    pub(crate) fn of_arriving(
        departed: &mut Departed<MacAddress, ReportedLosses>,
        station: MacAddress,
        presumed: u64,
        now: Instant,
    ) -> ReportedLosses {
        departed.take(|gone| *gone == station).unwrap_or_else(|| {
            ReportedLosses::since(
                departed
                    .forgotten(now, |gone| *gone == station)
                    .map_or(presumed, |count| count.min(presumed)),
            )
        })
    }

    /// Creates the state of a station that arrives at this loss count.
    pub(crate) fn since(count: u64) -> ReportedLosses {
        ReportedLosses {
            count,
            by: [None; REPORTS_MAX],
        }
    }

    /// Whether a flush must report a loss, given the reported count at its start and the loss count now. If
    /// so, the loss then counts as reported. Concurrent flushes may be for different writes, so each of them
    /// reports the loss.
    pub(crate) fn report(&mut self, now: Instant, tag: u32, at_start: u64, losses: u64) -> bool {
        debug_assert!(
            at_start <= self.count && self.count <= losses,
            "losses only grow"
        );
        if at_start < losses {
            self.count = losses;
            self.by.rotate_right(1);
            self.by[0] = Some((tag, now));
            return true;
        }
        let is_repeated = |(told, at): &(u32, Instant)| {
            *told == tag && now.saturating_duration_since(*at) <= REPEATED
        };
        self.by.iter().flatten().any(is_repeated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Head = [7; ATA_BYTES];
    const OTHER: Head = [8; ATA_BYTES];

    #[test]
    fn a_copy_is_answered_as_the_first_was() {
        let (mut writes, now) = (Writes::new(&Writers::default()), Instant::now());
        assert_eq!(writes.begin(now, 1, 10), Verdict::New);
        assert_eq!(writes.begin(now, 1, 10), Verdict::Running);
        writes.end(now, 1, 10, Some(HEAD));
        assert_eq!(writes.begin(now, 1, 10), Verdict::Done(HEAD));
        assert_eq!(
            writes.begin(now, 1, 11),
            Verdict::New,
            "another write with the same tag"
        );
        writes.end(now, 1, 10, Some(OTHER));
        assert_eq!(
            writes.begin(now, 1, 11),
            Verdict::Running,
            "the end of the other is not its own"
        );
        writes.end(now, 1, 11, None);
        assert_eq!(
            writes.begin(now, 1, 11),
            Verdict::New,
            "without an answer it may be carried out again"
        );
    }

    #[test]
    fn what_is_old_or_too_much_is_forgotten() {
        let (mut writes, now) = (Writes::new(&Writers::default()), Instant::now());
        for tag in 0..10 {
            writes.begin(now, tag, 0);
            writes.end(now, tag, 0, Some(HEAD));
        }
        assert_eq!(writes.begin(now, 0, 0), Verdict::Done(HEAD));
        writes.repeated(0, &HEAD);
        writes.forget(now, 4);
        assert_eq!((writes.known.len(), writes.answered.len()), (4, 4));
        assert_eq!(
            writes.begin(now, 0, 0),
            Verdict::Done(HEAD),
            "its last answer is the latest of all"
        );
        assert_eq!(writes.begin(now, 6, 0), Verdict::New);
        assert_eq!(writes.begin(now, 9, 0), Verdict::Done(HEAD));
        assert_eq!(writes.begin(now + 3 * LIFETIME, 7, 0), Verdict::New);
        assert_eq!(writes.begin(now + 5 * LIFETIME, 9, 0), Verdict::New);
    }

    #[test]
    fn an_answer_is_kept_from_its_last_repetition_on() {
        let (mut writes, mut now) = (Writes::new(&Writers::default()), Instant::now());
        writes.begin(now, 1, 0);
        writes.end(now, 1, 0, Some(HEAD));
        for _ in 0..10 {
            now += LIFETIME;
            assert_eq!(writes.begin(now, 1, 0), Verdict::Done(HEAD));
            writes.repeated(1, &HEAD);
        }
        [1, 3, 5]
            .into_iter()
            .for_each(|times| writes.forget_old(now + times * LIFETIME));
        assert!(writes.known.is_empty() && !writes.are_kept());
    }

    #[test]
    fn stations_share_with_those_that_have_answers_kept() {
        let (writers, now) = (Writers::default(), Instant::now());
        let mut all: Vec<Writes> = (0..2560).map(|_| Writes::new(&writers)).collect();
        let answered = |writes: &mut Writes| {
            writes.begin(now, 1, 0);
            writes.end(now, 1, 0, Some(HEAD));
        };
        answered(&mut all[0]);
        assert_eq!(writers.share(), ANSWERS_MAX, "the others read");
        answered(&mut all[1]);
        answered(&mut all[1]);
        assert_eq!(writers.share(), ANSWERS_MAX / 2);
        all[0].forget_old(now + 2 * LIFETIME);
        assert_eq!(writers.share(), ANSWERS_MAX);
        drop(all);
        assert_eq!(writers.0.get(), 0);
        writers.0.set(usize::MAX);
        assert_eq!(writers.share(), ANSWERS_MIN);
    }

    #[test]
    fn a_loss_is_told_once_and_again_to_a_copy() {
        let (mut told, now) = (ReportedLosses::since(3), Instant::now());
        assert!(!told.report(now, 1, 3, 3));
        assert!(told.report(now, 2, 3, 4));
        assert!(
            told.report(now + REPEATED, 2, 4, 4),
            "its answer may be lost"
        );
        assert!(!told.report(now, 3, 4, 4));
        assert!(
            !told.report(now + 2 * REPEATED, 2, 4, 4),
            "another flush with this tag"
        );
    }

    #[test]
    fn flushes_that_began_before_the_report_report_the_loss_too() {
        let (mut told, now) = (ReportedLosses::since(3), Instant::now());
        assert!(told.report(now, 1, 3, 4));
        assert!(told.report(now, 2, 3, 4), "it may be for other writes");
        assert!(
            told.report(now, 1, 4, 4) && told.report(now, 2, 4, 4),
            "the answers to both may be lost"
        );
        assert!(!told.report(now, 3, 4, 4));
    }
    #[test]
    fn a_station_that_comes_back_knows_what_it_knew() {
        let station = |number: u16| {
            let [high, low] = number.to_be_bytes();
            MacAddress([2, 0, 0, 0, high, low])
        };
        let now = Instant::now();
        let leaves = |departed: &mut Departed<_, _>, station: MacAddress, count| {
            departed.note(station, ReportedLosses::since(count), now, |gone| {
                *gone == station
            });
        };
        let mut departed = Departed::default();
        leaves(&mut departed, station(1), 3);
        let mut arrives =
            |number| ReportedLosses::of_arriving(&mut departed, station(number), 5, now);
        assert_eq!(arrives(2), ReportedLosses::since(5), "a new one");
        assert_eq!(arrives(1), ReportedLosses::since(3));
        (0..5000).for_each(|number| leaves(&mut departed, station(10 + number), 4));
        let unknown = ReportedLosses::of_arriving(&mut departed, station(4), 5, now);
        assert_eq!(unknown, ReportedLosses::since(4), "it may have been there");
    }
}
