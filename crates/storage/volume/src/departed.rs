//! Which losses were reported to users that have departed. A user that returns, such as a host whose connection
//! was lost, continues its writes, so it must be told of the losses since its departure.

use std::collections::VecDeque;

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
    /// A user of each host with dropped entries, and their lowest count.
    excess: VecDeque<(K, u64)>,
    /// The lowest count among other entries that were dropped.
    forgotten: Option<u64>,
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
    /// Records a user's departure. `is_of_host` tells which users are of the same host.
    pub fn note(&mut self, user: K, reported: R, is_of_host: impl Fn(&K) -> bool) {
        let mut of_host = (0..self.users.len()).filter(|at| is_of_host(&self.users[*at].0));
        let oldest = of_host.next();
        if of_host.count() + 1 >= OF_HOST_MAX
            && let Some((user, reported)) = oldest.and_then(|oldest| self.users.remove(oldest))
        {
            self.note_excess(user, reported.count(), is_of_host);
        }
        if self.users.len() == DEPARTED_MAX
            && let Some((_, reported)) = self.users.pop_front()
        {
            self.forget(reported.count());
        }
        self.users.push_back((user, reported));
        debug_assert!(self.users.len() <= DEPARTED_MAX);
    }

    fn note_excess(&mut self, user: K, count: u64, is_of_host: impl Fn(&K) -> bool) {
        if let Some((_, lowest)) = self.excess.iter_mut().find(|(user, _)| is_of_host(user)) {
            *lowest = count.min(*lowest);
            return;
        }
        if self.excess.len() == DEPARTED_MAX
            && let Some((_, count)) = self.excess.pop_front()
        {
            self.forget(count);
        }
        self.excess.push_back((user, count));
    }

    fn forget(&mut self, count: u64) {
        self.forgotten = Some(self.forgotten.map_or(count, |lowest| lowest.min(count)));
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

    /// Returns the lowest count among the dropped entries that an unknown user of this host may have had. A loss
    /// may therefore also be reported to a user that is new: a spurious error is better than a missing one.
    pub fn forgotten(&self, is_of_host: impl Fn(&K) -> bool) -> Option<u64> {
        let excess = self.excess.iter().find(|(user, _)| is_of_host(user));
        let of_host = excess.map(|(_, count)| *count);
        of_host.into_iter().chain(self.forgotten).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_count_of_a_name_is_taken_first() {
        let mut departed = Departed::default();
        [("a", 4), ("b", 1), ("a", 3)]
            .into_iter()
            .for_each(|(user, count)| departed.note(user, count, |other| *other == user));
        assert_eq!(departed.lowest(|_| true), Some(1));
        let is_a = |user: &&str| *user == "a";
        assert_eq!(departed.lowest(is_a), Some(3));
        assert_eq!(
            [(); 3].map(|()| departed.take(is_a)),
            [Some(3), Some(4), None]
        );
        assert_eq!(departed.forgotten(|_| true), None);
    }

    #[test]
    fn the_counts_of_those_who_departed_first_are_summed_up() {
        let mut departed = Departed::default();
        (0..DEPARTED_MAX as u64 + 2)
            .for_each(|user| departed.note(user, 10 - user.min(5), |other| *other == user));
        assert_eq!(departed.users.len(), DEPARTED_MAX);
        assert_eq!(
            (
                departed.lowest(|user| *user < 2),
                departed.forgotten(|_| false)
            ),
            (None, Some(9))
        );
    }

    #[test]
    fn a_host_with_many_users_displaces_no_user_of_another() {
        let mut departed = Departed::default();
        departed.note(("other", 0), 2, |(host, _)| *host == "other");
        let is_crowd = |(host, _): &(&str, u64)| *host == "crowd";
        for user in 0..2 * DEPARTED_MAX as u64 {
            departed.note(("crowd", user), 5 + user, is_crowd);
        }
        assert_eq!(departed.users.len(), OF_HOST_MAX + 1);
        assert_eq!(departed.take(|(host, _)| *host == "other"), Some(2));
        // Any of the crowd may be the one with the lowest count, but nobody else.
        assert_eq!(
            (departed.forgotten(is_crowd), departed.forgotten(|_| false)),
            (Some(5), None)
        );
    }
}
