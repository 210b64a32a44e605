//! Who is logged in, for all cores: the one place where session identity is decided (RFC 7143 sections 6.3.5
//! and 6.3.6). Touched at login, logout and on request, never by a command.
//!
//! A nexus is named by what anybody may say. The user that was proved (CHAP_N) is kept beside it, and a session is
//! joined or replaced by that user alone.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use iscsi::negotiate::Parameters;
use iscsi::pdu::{Isid, Tsih};

/// What makes two sessions the same one: an I_T nexus (RFC 7143 section 4.4.2). Discovery sessions have none,
/// and never replace each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NexusName {
    pub(crate) initiator: String,
    pub(crate) isid: Isid,
    pub(crate) target: String,
    pub(crate) tag: u16,
}

/// Where a session lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) tsih: Tsih,
    pub(crate) core: usize,
}

/// Who logs in: the nexus that is claimed, and what was proved about the initiator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) nexus: NexusName,
    /// The CHAP name that was proved; none at a target that asks for no proof.
    pub(crate) user: Option<String>,
}

/// The answer to a login that names no session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admittance {
    /// It has a seat now.
    Seated(Seat),
    /// Another session of the same nexus must end first (session reinstatement).
    Replaces(Seat),
    /// Another user has a session of the same nexus, which goes on.
    OfAnother {
        /// Who.
        user: String,
    },
    /// There are as many sessions as there may be.
    Full,
}

/// Who is logged in.
pub(crate) struct Registry {
    sessions_max: usize,
    book: Mutex<Book>,
}

struct Book {
    sessions: HashMap<u16, Entry>,
    last_tsih: u16,
    per_core: Vec<usize>,
    per_address: HashMap<IpAddr, usize>,
}

struct Entry {
    claim: Option<Claim>,
    core: usize,
    /// What further connections must fit.
    parameters: Parameters,
}

impl Registry {
    pub(crate) fn new(cores: usize, sessions_max: usize) -> Registry {
        let book = Book {
            sessions: HashMap::new(),
            last_tsih: 0,
            per_core: vec![0; cores],
            per_address: HashMap::new(),
        };
        Registry { sessions_max: sessions_max.min(usize::from(u16::MAX) - 1), book: Mutex::new(book) }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection from `address`, unless it has `most` already.
    pub(crate) fn enter(&self, address: IpAddr, most: usize) -> bool {
        let mut book = self.book();
        let count = book.per_address.entry(address).or_default();
        let room = *count < most;
        if room {
            *count += 1;
        }
        room
    }

    /// Takes a connection from `address` off the count.
    pub(crate) fn leave(&self, address: IpAddr) {
        let mut book = self.book();
        if let Some(count) = book.per_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                book.per_address.remove(&address);
            }
        }
    }

    /// A seat for a new session, on the core with the fewest; a discovery session has no nexus.
    pub(crate) fn seat(&self, claim: Option<Claim>, parameters: &Parameters) -> Admittance {
        let mut book = self.book();
        if let Some(claim) = &claim
            && let Some((tsih, core, old)) = book.of_nexus(&claim.nexus)
        {
            return match &old.user {
                Some(user) if claim.user.as_ref() != Some(user) => {
                    Admittance::OfAnother { user: user.clone() }
                }
                _ => Admittance::Replaces(Seat { tsih, core }),
            };
        }
        if book.sessions.len() >= self.sessions_max {
            return Admittance::Full;
        }
        let core = (0..book.per_core.len()).min_by_key(|&core| book.per_core[core]).unwrap_or(0);
        let tsih = book.free_tsih();
        book.per_core[core] += 1;
        book.sessions.insert(tsih, Entry { claim, core, parameters: parameters.clone() });
        Admittance::Seated(Seat { tsih: Tsih(tsih), core })
    }

    /// The session that a further connection names, if it is of the same nexus and user.
    pub(crate) fn find(&self, tsih: Tsih, claim: &Claim) -> Option<Seat> {
        let book = self.book();
        let entry = book.sessions.get(&tsih.0)?;
        (entry.claim.as_ref() == Some(claim)).then_some(Seat { tsih, core: entry.core })
    }

    /// What the session has agreed on that a connection of this nexus names.
    pub(crate) fn parameters(&self, tsih: Tsih, nexus: &NexusName) -> Option<Parameters> {
        let book = self.book();
        let entry = book.sessions.get(&tsih.0)?;
        let same = entry.claim.as_ref().is_some_and(|claim| claim.nexus == *nexus);
        same.then(|| entry.parameters.clone())
    }

    /// The session is over.
    pub(crate) fn vacate(&self, tsih: Tsih) {
        let mut book = self.book();
        if let Some(entry) = book.sessions.remove(&tsih.0) {
            book.per_core[entry.core] -= 1;
        }
    }
}

impl Book {
    /// The session of a nexus.
    fn of_nexus(&self, nexus: &NexusName) -> Option<(Tsih, usize, &Claim)> {
        self.sessions.iter().find_map(|(&tsih, entry)| {
            let claim = entry.claim.as_ref().filter(|claim| claim.nexus == *nexus)?;
            Some((Tsih(tsih), entry.core, claim))
        })
    }

    /// The next handle that no session has; 0 means "none" on the wire (RFC 7143 section 11.12.6). There are
    /// fewer sessions than handles, so one is free.
    fn free_tsih(&mut self) -> u16 {
        loop {
            self.last_tsih = self.last_tsih.wrapping_add(1).max(1);
            if !self.sessions.contains_key(&self.last_tsih) {
                return self.last_tsih;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iscsi::negotiate::SessionType;

    fn nexus(initiator: &str, isid: u8) -> NexusName {
        let isid = Isid([0x80, 0, 0, 0, 0, isid]);
        NexusName { initiator: initiator.into(), isid, target: "iqn.t".into(), tag: 1 }
    }

    /// Nobody has proved anything.
    fn open(initiator: &str, isid: u8) -> Claim {
        Claim { nexus: nexus(initiator, isid), user: None }
    }

    fn proved(user: &str, initiator: &str, isid: u8) -> Claim {
        Claim { nexus: nexus(initiator, isid), user: Some(user.into()) }
    }

    fn attempt(registry: &Registry, claim: Option<Claim>) -> Admittance {
        registry.seat(claim, &Parameters::defaults(SessionType::Normal))
    }

    fn seated(registry: &Registry, claim: Option<Claim>) -> Seat {
        match attempt(registry, claim) {
            Admittance::Seated(seat) => seat,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_same_nexus_replaces_its_session_and_another_isid_does_not() {
        let registry = Registry::new(2, 8);
        let first = seated(&registry, Some(open("iqn.a", 1)));
        assert_eq!(attempt(&registry, Some(open("iqn.a", 1))), Admittance::Replaces(first));
        let second = seated(&registry, Some(open("iqn.a", 2)));
        assert_ne!(first.tsih, second.tsih);
        assert_ne!(first.core, second.core, "sessions spread over the cores");
        registry.vacate(first.tsih);
        seated(&registry, Some(open("iqn.a", 1)));
    }

    #[test]
    fn discovery_sessions_live_side_by_side() {
        let registry = Registry::new(1, 8);
        assert_ne!(seated(&registry, None), seated(&registry, None));
    }

    #[test]
    fn a_connection_joins_only_a_session_of_its_own_nexus() {
        let registry = Registry::new(1, 8);
        let seat = seated(&registry, Some(open("iqn.a", 1)));
        assert_eq!(registry.find(seat.tsih, &open("iqn.a", 1)), Some(seat));
        assert_eq!(registry.find(seat.tsih, &open("iqn.thief", 1)), None);
        assert_eq!(registry.find(Tsih(999), &open("iqn.a", 1)), None);
    }

    #[test]
    fn a_session_is_joined_and_replaced_by_its_own_user_alone() {
        let registry = Registry::new(1, 8);
        let seat = seated(&registry, Some(proved("alice", "iqn.a", 1)));
        let of_alice = Admittance::OfAnother { user: "alice".into() };
        for other in [proved("bob", "iqn.a", 1), open("iqn.a", 1)] {
            assert_eq!(attempt(&registry, Some(other.clone())), of_alice);
            assert_eq!(registry.find(seat.tsih, &other), None);
        }
        let again = proved("alice", "iqn.a", 1);
        assert_eq!(registry.find(seat.tsih, &again), Some(seat));
        assert_eq!(attempt(&registry, Some(again)), Admittance::Replaces(seat));
        seated(&registry, Some(proved("bob", "iqn.a", 2))); // another ISID is another nexus
    }

    /// Its target may have begun to ask for proof since.
    #[test]
    fn a_session_that_proved_nothing_is_replaced_by_whoever_may_log_in_and_joined_by_its_like() {
        let registry = Registry::new(1, 8);
        let seat = seated(&registry, Some(open("iqn.a", 1)));
        assert_eq!(registry.find(seat.tsih, &proved("alice", "iqn.a", 1)), None);
        assert_eq!(attempt(&registry, Some(proved("alice", "iqn.a", 1))), Admittance::Replaces(seat));
    }

    #[test]
    fn limits_hold_and_are_given_back() {
        let registry = Registry::new(1, 1);
        let here: IpAddr = [127, 0, 0, 1].into();
        assert!(registry.enter(here, 1));
        assert!(!registry.enter(here, 1));
        registry.leave(here);
        assert!(registry.enter(here, 1));
        let seat = seated(&registry, None);
        assert_eq!(attempt(&registry, None), Admittance::Full);
        registry.vacate(seat.tsih);
        seated(&registry, None);
    }
}
