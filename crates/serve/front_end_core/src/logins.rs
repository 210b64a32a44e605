//! Connections that have not logged in yet: their number is bounded, and a new one may evict an older one.
//!
//! No connection is refused: a peer that opens connections and sends nothing would otherwise keep others out.
//! At the limit the oldest connection of the address with the most of them is closed, so a flood from one
//! address evicts its own connections. Addresses that have sessions are evicted last, so that they can add
//! connections and reinstate sessions.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::address::AddressBlock;

/// Connections that have not logged in, with what ends them.
pub(crate) struct Logins<T> {
    most: usize,
    next: u64,
    waiting: BTreeMap<u64, (AddressBlock, T)>,
    /// The numbers of each address, in the order in which they came.
    per_block: BTreeMap<AddressBlock, BTreeSet<u64>>,
    /// The same addresses; the last one is evicted first.
    ranks: BTreeSet<Rank>,
}

/// How many logins an address has, and the number of the oldest of them: of two with as many, the one with
/// the older login ranks higher.
type Rank = (usize, Reverse<u64>, AddressBlock);

impl<T> Logins<T> {
    /// Room for so many, at least one.
    pub(crate) fn new(most: usize) -> Logins<T> {
        Logins {
            most: most.max(1),
            next: 0,
            waiting: BTreeMap::new(),
            per_block: BTreeMap::new(),
            ranks: BTreeSet::new(),
        }
    }

    /// Room for so many, at least one, from now on.
    pub(crate) fn set_limit(&mut self, most: usize) {
        self.most = most.max(1);
    }

    /// Adds a connection. Returns the one to be closed if the limit is exceeded.
    pub(crate) fn add(
        &mut self,
        from: AddressBlock,
        login: impl FnOnce(u64) -> T,
        has_sessions: impl Fn(AddressBlock) -> bool,
    ) -> Option<T> {
        let gives_way = if self.waiting.len() >= self.most { self.heaviest(has_sessions) } else { None };
        let ended = gives_way.and_then(|block| self.take_oldest(block));
        let number = self.next;
        self.next += 1;
        self.waiting.insert(number, (from, login(number)));
        self.change(from, |numbers| numbers.insert(number));
        ended
    }

    /// Removes a connection whose login succeeded or failed.
    pub(crate) fn remove(&mut self, number: u64) -> Option<T> {
        let (from, login) = self.waiting.remove(&number)?;
        self.change(from, |numbers| numbers.remove(&number));
        Some(login)
    }

    /// The oldest of an address.
    pub(crate) fn take_oldest(&mut self, block: AddressBlock) -> Option<T> {
        let oldest = *self.per_block.get(&block)?.first()?;
        self.remove(oldest)
    }

    /// Changes the logins of an address, and its rank with them.
    fn change(&mut self, block: AddressBlock, act: impl FnOnce(&mut BTreeSet<u64>) -> bool) {
        let numbers = self.per_block.entry(block).or_default();
        let rank = |numbers: &BTreeSet<u64>| -> Option<Rank> {
            Some((numbers.len(), Reverse(*numbers.first()?), block))
        };
        if let Some(before) = rank(numbers) {
            self.ranks.remove(&before);
        }
        act(numbers);
        match rank(numbers) {
            Some(after) => drop(self.ranks.insert(after)),
            None => drop(self.per_block.remove(&block)),
        }
    }

    fn heaviest(&self, has_sessions: impl Fn(AddressBlock) -> bool) -> Option<AddressBlock> {
        let stranger = self.ranks.iter().rev().find(|(_, _, block)| !has_sessions(*block));
        stranger.or_else(|| self.ranks.last()).map(|(_, _, block)| *block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(number: u32) -> AddressBlock {
        AddressBlock::containing(std::net::Ipv4Addr::from_bits(number).into())
    }

    /// Who ends when these come one after the other: the number of the login that does.
    fn come(logins: &mut Logins<u64>, from: &[u32], has_sessions: &[u32]) -> Vec<Option<u64>> {
        let has_sessions = |from| has_sessions.iter().any(|number| block(*number) == from);
        from.iter().map(|number| logins.add(block(*number), |login| login, has_sessions)).collect()
    }

    #[test]
    fn a_crowd_from_one_address_takes_its_own_places() {
        let mut logins = Logins::new(4);
        assert_eq!(come(&mut logins, &[7, 9, 9, 9], &[]), [None; 4]);
        assert_eq!(come(&mut logins, &[9, 9, 8], &[]), [Some(1), Some(2), Some(3)], "and others come in");
        assert_eq!(logins.waiting.keys().copied().collect::<Vec<_>>(), [0, 4, 5, 6]);
    }

    #[test]
    fn a_crowd_of_addresses_takes_the_oldest_and_spares_who_is_logged_in() {
        let mut logins = Logins::new(3);
        assert_eq!(come(&mut logins, &[1, 2, 3, 4, 5], &[]), [None, None, None, Some(0), Some(1)]);
        let mut logins = Logins::new(3);
        assert_eq!(come(&mut logins, &[1, 1, 3, 4, 5], &[1]), [None, None, None, Some(2), Some(3)]);
        assert_eq!(come(&mut logins, &[1, 1, 1], &[1]), [Some(4), Some(0), Some(1)], "but not for ever");
    }

    /// Each question takes the lock of the registry.
    #[test]
    fn an_address_is_asked_about_once_at_most_when_one_more_comes() {
        let mut logins = Logins::new(1000);
        come(&mut logins, &(0..1000).collect::<Vec<u32>>(), &[]);
        let ask = |logins: &mut Logins<u64>, strangers: bool| {
            let asked = std::cell::Cell::new(0);
            let has_sessions = |_| {
                asked.set(asked.get() + 1);
                !strangers
            };
            let ended = logins.add(block(7), |login| login, has_sessions);
            (ended, asked.get())
        };
        assert_eq!(ask(&mut logins, true), (Some(0), 1), "the first stranger gives way");
        assert_eq!(ask(&mut logins, true), (Some(7), 1));
        assert_eq!(ask(&mut logins, false), (Some(1000), 999));
    }

    #[test]
    fn who_is_done_leaves_room() {
        let mut logins = Logins::new(2);
        come(&mut logins, &[1, 2], &[]);
        assert_eq!((logins.remove(0), logins.remove(0)), (Some(0), None));
        assert_eq!(come(&mut logins, &[3], &[]), [None]);
        assert_eq!((logins.take_oldest(block(3)), logins.take_oldest(block(3))), (Some(2), None));
        assert_eq!((logins.per_block.len(), logins.ranks.len()), (1, 1), "nothing is kept of who has gone");
    }
}
