//! Which losses were reported to users that have departed. A user that returns, such as a host whose connection
//! was lost, continues its writes, so it must be told of the losses since its departure.

use std::collections::VecDeque;
use std::time::Instant;

use crate::persistent_state::RETURN_TIME;

/// The losses reported to a user.
pub trait Reported {
    /// The loss count last reported to the user, as a value of [`Volume::lost_writes`](crate::Volume::lost_writes).
    fn count(&self) -> u64;
}

impl Reported for u64 {
    fn count(&self) -> u64 {
        *self
    }
}

/// The losses reported to departed users of one volume, by names of type `K`. A front end whose names are
/// ambiguous records one entry for each departure.
#[derive(Debug)]
pub struct Departed<K, R = u64> {
    /// The users, in the order of their departures.
    users: VecDeque<(K, R)>,
    /// A user of each host with dropped entries.
    excess: VecDeque<(K, Dropped)>,
    /// Other entries that were dropped.
    forgotten: Option<Dropped>,
}

/// Dropped entries.
#[derive(Clone, Copy, Debug)]
struct Dropped {
    lowest: u64,
    /// The time of the last drop.
    at: Instant,
}

impl Dropped {
    fn and(self, later: Dropped) -> Dropped {
        match self.counts(later.at) {
            Some(lowest) => Dropped {
                lowest: lowest.min(later.lowest),
                at: later.at.max(self.at),
            },
            None => later,
        }
    }

    /// Returns the lowest count, unless the users of the entries no longer return.
    fn counts(self, now: Instant) -> Option<u64> {
        (now.saturating_duration_since(self.at) < RETURN_TIME).then_some(self.lowest)
    }
}

/// Maximum number of entries; the users that departed last are kept.
const DEPARTED_MAX: usize = 4096;
/// Maximum number of entries of one host, so that a host cannot displace the entries of all others.
const OF_HOST_MAX: usize = 64;

impl<K, R> Default for Departed<K, R> {
    fn default() -> Departed<K, R> {
        Departed {
            users: VecDeque::new(),
            excess: VecDeque::new(),
            forgotten: None,
        }
    }
}

impl<K, R: Reported> Departed<K, R> {
    /// Records a user's departure at the time `now`. `is_of_host` tells which users are of the same host.
    pub fn note(&mut self, user: K, reported: R, now: Instant, is_of_host: impl Fn(&K) -> bool) {
        let dropped = |reported: R| Dropped {
            lowest: reported.count(),
            at: now,
        };
        let mut of_host = (0..self.users.len()).filter(|at| is_of_host(&self.users[*at].0));
        let oldest = of_host.next();
        if of_host.count() + 1 >= OF_HOST_MAX
            && let Some((user, reported)) = oldest.and_then(|oldest| self.users.remove(oldest))
        {
            self.note_excess(user, dropped(reported), is_of_host);
        }
        if self.users.len() == DEPARTED_MAX
            && let Some((_, reported)) = self.users.pop_front()
        {
            self.forget(dropped(reported));
        }
        self.users.push_back((user, reported));
        debug_assert!(self.users.len() <= DEPARTED_MAX);
    }

    fn note_excess(&mut self, user: K, dropped: Dropped, is_of_host: impl Fn(&K) -> bool) {
        if let Some((_, earlier)) = self.excess.iter_mut().find(|(user, _)| is_of_host(user)) {
            *earlier = earlier.and(dropped);
            return;
        }
        if self.excess.len() == DEPARTED_MAX
            && let Some((_, earlier)) = self.excess.pop_front()
        {
            self.forget(earlier);
        }
        self.excess.push_back((user, dropped));
    }

    fn forget(&mut self, dropped: Dropped) {
        let earlier = self.forgotten;
        self.forgotten = Some(earlier.map_or(dropped, |earlier| earlier.and(dropped)));
    }

    /// Removes the entry with the lowest count among these users.
    pub fn take(&mut self, is_meant: impl Fn(&K) -> bool) -> Option<R> {
        let meant = self
            .users
            .iter()
            .enumerate()
            .filter(|(_, (user, _))| is_meant(user));
        let (place, _) = meant.min_by_key(|(_, (_, reported))| reported.count())?;
        self.users.remove(place).map(|(_, reported)| reported)
    }

    /// Returns the lowest count reported to one of these users.
    pub fn lowest(&self, is_meant: impl Fn(&K) -> bool) -> Option<u64> {
        let meant = self.users.iter().filter(|(user, _)| is_meant(user));
        meant.map(|(_, reported)| reported.count()).min()
    }

    /// Returns the lowest count among the dropped entries that an unknown user of this host, who arrives `now`,
    /// may have had. A loss may therefore also be reported to a user that is new: a spurious error is better than
    /// a missing one. Users return within five minutes, so older entries do not count.
    pub fn forgotten(&self, now: Instant, is_of_host: impl Fn(&K) -> bool) -> Option<u64> {
        let excess = self.excess.iter().find(|(user, _)| is_of_host(user));
        let of_host = excess.map(|(_, dropped)| *dropped);
        let may_return = |dropped: Dropped| dropped.counts(now);
        of_host
            .into_iter()
            .chain(self.forgotten)
            .filter_map(may_return)
            .min()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_lowest_count_of_a_name_is_taken_first() {
        let mut departed = Departed::default();
        [("a", 4), ("b", 1), ("a", 3)]
            .into_iter()
            .for_each(|(user, count)| {
                departed.note(user, count, Instant::now(), |other| *other == user)
            });
        assert_eq!(departed.lowest(|_| true), Some(1));
        let is_a = |user: &&str| *user == "a";
        assert_eq!(departed.lowest(is_a), Some(3));
        assert_eq!(
            [(); 3].map(|()| departed.take(is_a)),
            [Some(3), Some(4), None]
        );
        assert_eq!(departed.forgotten(Instant::now(), |_| true), None);
    }

    #[test]
    fn the_counts_of_those_who_departed_first_are_summed_up() {
        let mut departed = Departed::default();
        let now = Instant::now();
        (0..DEPARTED_MAX as u64 + 2)
            .for_each(|user| departed.note(user, 10 - user.min(5), now, |other| *other == user));
        assert_eq!(departed.users.len(), DEPARTED_MAX);
        assert_eq!(
            (
                departed.lowest(|user| *user < 2),
                departed.forgotten(now, |_| false)
            ),
            (None, Some(9))
        );
    }

    #[test]
    fn a_host_with_many_users_displaces_no_user_of_another() {
        let mut departed = Departed::default();
        let now = Instant::now();
        departed.note(("other", 0), 2, now, |(host, _)| *host == "other");
        let is_crowd = |(host, _): &(&str, u64)| *host == "crowd";
        for user in 0..2 * DEPARTED_MAX as u64 {
            departed.note(("crowd", user), 5 + user, now, is_crowd);
        }
        assert_eq!(departed.users.len(), OF_HOST_MAX + 1);
        assert_eq!(departed.take(|(host, _)| *host == "other"), Some(2));
        // Each user of this host may be the one with the lowest count, but no other user.
        assert_eq!(
            (
                departed.forgotten(now, is_crowd),
                departed.forgotten(now, |_| false)
            ),
            (Some(5), None)
        );
    }

    /// Each run of a program that logs in with a random ISID is another user.
    #[test]
    fn dropped_entries_count_only_while_their_users_may_return() {
        let mut departed = Departed::default();
        let start = Instant::now();
        let note = |departed: &mut Departed<()>, runs, count, now| {
            (0..runs).for_each(|_| departed.note((), count, now, |()| true));
        };
        note(&mut departed, OF_HOST_MAX + 1, 1, start);
        let (last, later) = (
            start + RETURN_TIME - Duration::from_nanos(1),
            start + RETURN_TIME,
        );
        assert_eq!(departed.forgotten(last, |()| true), Some(1));
        assert_eq!(departed.forgotten(later, |()| true), None);
        note(&mut departed, OF_HOST_MAX, 9, later);
        assert_eq!(
            departed.forgotten(later, |()| true),
            Some(1),
            "dropped again"
        );
        note(&mut departed, 1, 9, later + RETURN_TIME);
        assert_eq!(
            departed.forgotten(later + RETURN_TIME, |()| true),
            Some(9),
            "the users of the earlier ones do not return"
        );
    }
}
