//! Connections that have not logged in yet: a bounded number, and who gives way when it is reached.
//!
//! Nobody is turned away, since a stranger who opens connections and says nothing would then turn others away. Of the
//! address with the most of them the oldest is closed: a crowd from one address takes its own places. Addresses that
//! have sessions keep theirs as long as others can give way, so that they can add connections and reinstate sessions.

use std::collections::BTreeMap;

use crate::access::AddressBlock;

/// Connections that have not logged in, with what ends them.
pub(crate) struct Logins<T> {
    most: usize,
    next: u64,
    /// In the order in which they came.
    waiting: BTreeMap<u64, (AddressBlock, T)>,
    per_block: BTreeMap<AddressBlock, usize>,
}

impl<T> Logins<T> {
    /// Room for so many, at least one.
    pub(crate) fn new(most: usize) -> Logins<T> {
        Logins { most: most.max(1), next: 0, waiting: BTreeMap::new(), per_block: BTreeMap::new() }
    }

    /// One more has come. If there were too many, another has to end.
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
        *self.per_block.entry(from).or_default() += 1;
        ended
    }

    /// One has logged in, or failed to.
    pub(crate) fn remove(&mut self, number: u64) -> Option<T> {
        let (from, login) = self.waiting.remove(&number)?;
        if let Some(count) = self.per_block.get_mut(&from) {
            *count -= 1;
            if *count == 0 {
                self.per_block.remove(&from);
            }
        }
        Some(login)
    }

    /// The oldest of an address.
    pub(crate) fn take_oldest(&mut self, block: AddressBlock) -> Option<T> {
        let number = self.waiting.iter().find(|(_, (from, _))| *from == block).map(|(number, _)| *number)?;
        self.remove(number)
    }

    fn heaviest(&self, has_sessions: impl Fn(AddressBlock) -> bool) -> Option<AddressBlock> {
        let oldest = |block: &AddressBlock| {
            self.waiting.iter().find(|(_, (from, _))| from == block).map(|(at, _)| *at)
        };
        let most = |strangers: bool| {
            let counts = self.per_block.iter().filter(|(block, _)| !strangers || !has_sessions(**block));
            let most = counts.clone().map(|(_, count)| *count).max()?;
            counts.filter(|(_, count)| **count == most).map(|(block, _)| *block).min_by_key(oldest)
        };
        most(true).or_else(|| most(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(number: u32) -> AddressBlock {
        AddressBlock::of(std::net::Ipv4Addr::from_bits(number).into())
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

    #[test]
    fn who_is_done_leaves_room() {
        let mut logins = Logins::new(2);
        come(&mut logins, &[1, 2], &[]);
        assert_eq!((logins.remove(0), logins.remove(0)), (Some(0), None));
        assert_eq!(come(&mut logins, &[3], &[]), [None]);
        assert_eq!((logins.take_oldest(block(3)), logins.take_oldest(block(3))), (Some(2), None));
        assert_eq!(logins.per_block.len(), 1, "nothing is kept of who has gone");
    }
}
