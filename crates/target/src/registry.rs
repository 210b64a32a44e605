//! Who is logged in, for all cores: the one place where session identity is decided (RFC 7143 sections 6.3.5
//! and 6.3.6). Touched at login, logout and on request, never by a command.

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

/// The answer to a login that names no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admittance {
    /// It has a seat now.
    Seated(Seat),
    /// Another session of the same nexus must end first (session reinstatement).
    Replaces(Seat),
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
    nexus: Option<NexusName>,
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
    pub(crate) fn seat(&self, nexus: Option<NexusName>, parameters: &Parameters) -> Admittance {
        let mut book = self.book();
        if let Some(nexus) = &nexus
            && let Some((&tsih, old)) =
                book.sessions.iter().find(|(_, entry)| entry.nexus.as_ref() == Some(nexus))
        {
            return Admittance::Replaces(Seat { tsih: Tsih(tsih), core: old.core });
        }
        if book.sessions.len() >= self.sessions_max {
            return Admittance::Full;
        }
        let core = (0..book.per_core.len()).min_by_key(|&core| book.per_core[core]).unwrap_or(0);
        let tsih = book.free_tsih();
        book.per_core[core] += 1;
        book.sessions.insert(tsih, Entry { nexus, core, parameters: parameters.clone() });
        Admittance::Seated(Seat { tsih: Tsih(tsih), core })
    }

    /// The session that a further connection names, if it is of the same nexus.
    pub(crate) fn find(&self, tsih: Tsih, nexus: &NexusName) -> Option<Seat> {
        let book = self.book();
        let entry = book.sessions.get(&tsih.0)?;
        (entry.nexus.as_ref() == Some(nexus)).then_some(Seat { tsih, core: entry.core })
    }

    /// What that session has agreed on.
    pub(crate) fn parameters(&self, tsih: Tsih, nexus: &NexusName) -> Option<Parameters> {
        let book = self.book();
        let entry = book.sessions.get(&tsih.0)?;
        (entry.nexus.as_ref() == Some(nexus)).then(|| entry.parameters.clone())
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

    fn attempt(registry: &Registry, nexus: Option<NexusName>) -> Admittance {
        registry.seat(nexus, &Parameters::defaults(SessionType::Normal))
    }

    fn seated(registry: &Registry, nexus: Option<NexusName>) -> Seat {
        match attempt(registry, nexus) {
            Admittance::Seated(seat) => seat,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_same_nexus_replaces_its_session_and_another_isid_does_not() {
        let registry = Registry::new(2, 8);
        let first = seated(&registry, Some(nexus("iqn.a", 1)));
        assert_eq!(attempt(&registry, Some(nexus("iqn.a", 1))), Admittance::Replaces(first));
        let second = seated(&registry, Some(nexus("iqn.a", 2)));
        assert_ne!(first.tsih, second.tsih);
        assert_ne!(first.core, second.core, "sessions spread over the cores");
        registry.vacate(first.tsih);
        seated(&registry, Some(nexus("iqn.a", 1)));
    }

    #[test]
    fn discovery_sessions_live_side_by_side() {
        let registry = Registry::new(1, 8);
        assert_ne!(seated(&registry, None), seated(&registry, None));
    }

    #[test]
    fn a_connection_joins_only_a_session_of_its_own_nexus() {
        let registry = Registry::new(1, 8);
        let seat = seated(&registry, Some(nexus("iqn.a", 1)));
        assert_eq!(registry.find(seat.tsih, &nexus("iqn.a", 1)), Some(seat));
        assert_eq!(registry.find(seat.tsih, &nexus("iqn.thief", 1)), None);
        assert_eq!(registry.find(Tsih(999), &nexus("iqn.a", 1)), None);
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
