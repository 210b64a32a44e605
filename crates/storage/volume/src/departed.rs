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
    /// The lowest count among the entries that were dropped.
    forgotten: Option<u64>,
}

/// Maximum number of entries; the users that departed last are kept.
const DEPARTED_MAX: usize = 4096;

impl<K, R> Default for Departed<K, R> {
    fn default() -> Departed<K, R> {
        Departed {
            users: VecDeque::new(),
            forgotten: None,
        }
    }
}

impl<K, R: Reported> Departed<K, R> {
    /// Records a user's departure.
    pub fn note(&mut self, user: K, reported: R) {
        if self.users.len() == DEPARTED_MAX
            && let Some((_, reported)) = self.users.pop_front()
        {
            let count = reported.count();
            self.forgotten = Some(self.forgotten.map_or(count, |lowest| lowest.min(count)));
        }
        self.users.push_back((user, reported));
        debug_assert!(self.users.len() <= DEPARTED_MAX);
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

    /// Returns the lowest count among the entries that were dropped. Any unknown user may have had one. A loss
    /// may therefore also be reported to a user that is new: a spurious error is better than a missing one.
    pub fn forgotten(&self) -> Option<u64> {
        self.forgotten
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
            .for_each(|(user, count)| departed.note(user, count));
        assert_eq!(departed.lowest(|_| true), Some(1));
        let is_a = |user: &&str| *user == "a";
        assert_eq!(departed.lowest(is_a), Some(3));
        assert_eq!(
            [(); 3].map(|()| departed.take(is_a)),
            [Some(3), Some(4), None]
        );
        assert_eq!(departed.forgotten(), None);
    }

    #[test]
    fn the_counts_of_those_who_departed_first_are_summed_up() {
        let mut departed = Departed::default();
        (0..DEPARTED_MAX as u64 + 2).for_each(|user| departed.note(user, 10 - user.min(5)));
        assert_eq!(departed.users.len(), DEPARTED_MAX);
        assert_eq!(
            (departed.lowest(|user| *user < 2), departed.forgotten()),
            (None, Some(9))
        );
    }
}
