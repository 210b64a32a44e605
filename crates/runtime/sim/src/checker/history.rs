//! What is known of one block: the writes that it may show, and when they were under way.

use std::collections::VecDeque;

use super::{Moment, VOLUME_SHIFT, WriteId, Writer};

#[derive(Default)]
pub(super) struct BlockHistory {
    /// Those that a read could still show, and their younger competitors.
    pub(super) writes: Vec<Entry>,
    /// With so many of them it is time to forget some.
    pub(super) tidy_at: usize,
    /// All that is known to have taken effect lasts: a flush changes nothing.
    pub(super) settled: bool,
    /// When a write was last begun or ended, or lost.
    pub(super) changed: Moment,
    /// What a read showed that was asked for after that, and whether it lasts: the next one that shows it
    /// says nothing new.
    pub(super) shown: Option<Shown>,
    /// What was found there and exchanged for something else, the latest last. Forgotten when writes may have
    /// been lost.
    pub(super) exchanged: VecDeque<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    pub(super) value: u64,
    pub(super) begun: Moment,
    pub(super) lasts: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) id: WriteId,
    /// What it shows: its own number, or 0 for zeros.
    pub(super) value: u64,
    pub(super) begun: Moment,
    /// From then on it will not take effect any more.
    pub(super) ended: Option<Moment>,
    /// Its writer was told that it is done.
    pub(super) answered: bool,
    /// It had taken effect by then.
    pub(super) effective: Option<Moment>,
    /// A flush has made it last.
    pub(super) lasts: bool,
    /// Who asked for it.
    pub(super) writer: Writer,
    /// It may be carried out several times until it has ended: its initiator sends it again when it is
    /// aborted.
    pub(super) repeats: bool,
    /// Until it is seen, it may show any write of that volume, and of those before it.
    pub(super) copied_from: Option<u64>,
    /// What a failed sync has done to it.
    pub(super) loss: Loss,
    /// Its writer was found to know of that.
    pub(super) told: bool,
    /// It had ended when the power was cut.
    pub(super) cut: bool,
    /// A read that was answered then has shown another that must be later.
    pub(super) superseded: Option<Moment>,
}

/// Whether a failed sync has lost a write, which no later sync stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Loss {
    None,
    /// It was outstanding then, so it may have been lost or may still be written.
    Possible,
    Certain,
}

impl Entry {
    /// Nothing but zeros was there at that moment.
    pub(super) fn zeros(now: Moment) -> Entry {
        Entry { ended: Some(now), effective: Some(now), lasts: true, ..Entry::begun(0) }
    }

    /// One of zeros that has begun then.
    pub(super) fn begun(begun: Moment) -> Entry {
        Entry {
            id: WriteId(0),
            value: 0,
            begun,
            ended: None,
            answered: false,
            effective: None,
            lasts: false,
            writer: 0,
            repeats: false,
            copied_from: None,
            loss: Loss::None,
            told: false,
            cut: false,
            superseded: None,
        }
    }

    pub(super) fn may_show(&self, value: u64) -> bool {
        match self.copied_from {
            // Copies go to volumes with higher numbers only, so the source has nothing from here.
            Some(source) => value >> VOLUME_SHIFT <= source,
            None => self.value == value,
        }
    }

    /// By then it had taken effect, if it ever did.
    pub(super) fn latest(&self) -> Option<Moment> {
        match (self.ended, self.effective.filter(|_| !self.repeats)) {
            (Some(ended), Some(effective)) => Some(ended.min(effective)),
            (one, other) => one.or(other),
        }
    }

    /// Whether it is gone for a read that is asked for at `moment`; `newest` is what had taken effect by
    /// then.
    pub(super) fn is_superseded_at(&self, moment: Moment, newest: Moment) -> bool {
        self.superseded.is_some_and(|at| at < moment) || self.is_before(newest)
    }

    /// Whether it had taken effect, if it ever did, when a write began that began then.
    pub(super) fn is_before(&self, begun: Moment) -> bool {
        self.latest().is_some_and(|latest| latest < begun)
    }
}

impl BlockHistory {
    pub(super) fn shows(&mut self, value: u64, begun: Moment, now: Moment) -> Result<(), String> {
        if let Some(shown) = self.shown.filter(|shown| shown.value == value && shown.begun < begun) {
            self.settled &= shown.lasts;
            return Ok(());
        }
        let newest = self.newest(|entry| entry.effective.is_some_and(|at| at < begun));
        let mut possible = (0..self.writes.len()).filter(|place| {
            let entry = &self.writes[*place];
            entry.may_show(value) && !entry.is_superseded_at(begun, newest)
        });
        let (first, second) = (possible.next(), possible.next());
        let Some(only) = first else {
            return Err(self.explain(value, begun));
        };
        if second.is_none() {
            let id = self.writes[only].id;
            let entry = &mut self.writes[only];
            (entry.value, entry.copied_from) = (value, None);
            entry.effective = Some(entry.effective.map_or(now, |at| at.min(now)));
            self.settled &= entry.lasts;
            self.shown = (self.changed < begun).then_some(Shown { value, begun, lasts: entry.lasts });
            for other in self.writes.iter_mut().filter(|other| other.id != id) {
                if other.latest().is_some_and(|latest| latest < begun) {
                    other.superseded.get_or_insert(now);
                }
            }
        }
        Ok(())
    }

    pub(super) fn changes(&mut self, now: Moment) {
        (self.changed, self.shown) = (now, None);
    }

    /// When the last of these writes began; 0 if there is none. Those that had taken effect before cannot be
    /// seen behind it.
    pub(super) fn newest(&self, is_meant: impl Fn(&Entry) -> bool) -> Moment {
        self.writes.iter().filter(|entry| is_meant(entry)).map(|entry| entry.begun).max().unwrap_or(0)
    }

    /// Whether a write was under way at that moment, or has begun since.
    pub(super) fn changes_since(&self, moment: Moment) -> bool {
        self.writes.iter().any(|entry| entry.ended.is_none_or(|ended| ended > moment))
    }

    pub(super) fn explain(&self, value: u64, begun: Moment) -> String {
        let newest = self.newest(|entry| entry.effective.is_some_and(|at| at < begun));
        let legal: Vec<u64> = self
            .writes
            .iter()
            .filter(|entry| !entry.is_superseded_at(begun, newest))
            .map(|entry| entry.value)
            .collect();
        let what = self.writes.iter().find(|entry| entry.value == value);
        format!("shows write {value}, which is over or superseded ({what:?}); it may show {legal:?}")
    }

    /// Takes those off the books that no read can show any more, not even after a power cut; unless one shows
    /// whatever it likes.
    pub(super) fn forget(&mut self, horizon: impl FnOnce() -> Moment, keeps: bool) {
        if self.writes.len() < self.tidy_at.max(8) {
            return;
        }
        let horizon = horizon();
        let counts = |entry: &Entry| entry.lasts || !keeps;
        let newest = self.newest(|entry| counts(entry) && entry.effective.is_some_and(|at| at < horizon));
        self.writes.retain(|entry| !entry.is_before(newest));
        self.tidy_at = 2 * self.writes.len();
    }

    /// Nothing is known any more but what is there now, and what is sent again.
    pub(super) fn forget_all(&mut self, now: Entry) {
        self.changes(now.effective.unwrap_or_default());
        self.exchanged.clear();
        self.writes.retain(|entry| entry.repeats && entry.ended.is_none());
        self.writes.iter_mut().for_each(|entry| (entry.effective, entry.cut) = (None, true));
        self.writes.push(now);
    }

    pub(super) fn cut_power(&mut self, now: Moment) {
        self.changes(now);
        self.exchanged.clear();
        let newest = self.newest(|entry| entry.lasts);
        self.writes.retain(|entry| !entry.is_before(newest));
        for entry in &mut self.writes {
            // It was there before the cut, or was not; who read it then does not know what is there now.
            entry.superseded = None;
            entry.cut = true;
            if !entry.lasts {
                entry.effective = None;
            }
        }
    }
}
