//! The registry of all logged-in sessions of all cores. Only the registry decides on session identity (RFC
//! 7143 sections 6.3.5 and 6.3.6). It is accessed at login, at logout and for status, never by a command.
//!
//! A nexus name is an unverified claim of the peer. The registry therefore also records the authenticated
//! user (CHAP_N): only the same user may join or reinstate a session. A session of a target without
//! authentication has no user, and any login of its nexus reinstates it.
//!
//! ```text
//!          allocate (login)          join (full feature phase)          vacate (last connection gone)
//!   free ────────────────► pending ─────────────────────────► session ───────────────────────────► free
//!                             └─ vacate: the login failed, or another login of the nexus ended it ──► free
//! ```

use std::collections::BTreeMap;

use block::{Lock, LockGuard};
use front_end_core::{AddressBlock, Counts};
use iscsi::negotiate::Parameters;
use iscsi::pdu::{Isid, Tsih};

use crate::config::Limits;
use crate::config::Target;
use front_end_core::ConnectionPermit;
use iscsi::login::LoggedIn;
use reactor::Detached;
use std::net::SocketAddr;
use std::sync::Arc;

/// A connection that has logged in, before its transfer to the core of its session.
pub(crate) struct Admitted {
    pub(crate) stream: Detached,
    pub(crate) permit: ConnectionPermit,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) login: LoggedIn,
    /// The configuration of the target when the login began, without its LUNs; `None` for a discovery
    /// session.
    pub(crate) target: Option<Arc<Target>>,
    pub(crate) tag: u16,
    pub(crate) slot: SessionSlot,
    /// Whether this is the first connection of a new session.
    pub(crate) leading: bool,
}

/// The I_T nexus that identifies a normal session (RFC 7143 section 4.4.2). Discovery sessions have none and
/// never replace each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NexusName {
    pub(crate) initiator: String,
    pub(crate) isid: Isid,
    pub(crate) target: String,
    pub(crate) tag: u16,
}

/// The TSIH and core of a session, allocated during its login. The slot stays allocated until
/// [`Registry::vacate`]; dropping this value has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionSlot {
    pub(crate) tsih: Tsih,
    pub(crate) core: usize,
    /// Sequence number of the allocation, which distinguishes slots with the same TSIH: TSIHs are reused.
    number: u64,
}

/// The identity of a login: the claimed nexus and the authenticated user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) nexus: NexusName,
    /// The authenticated CHAP name; `None` at a target without authentication.
    pub(crate) user: Option<String>,
}

/// A session about to begin.
#[derive(Clone, Debug)]
pub(crate) struct NewSession {
    /// `None` for a discovery session.
    pub(crate) claim: Option<Claim>,
    pub(crate) from: AddressBlock,
    /// Whether a session of the same nexus was ended so that this session can reinstate it. The new session
    /// is then given a slot even if the limit has been reached in the meantime. No effect for a discovery
    /// session.
    pub(crate) reinstates: bool,
}

/// The result of allocating a slot for a new session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SlotOutcome {
    /// A slot was allocated.
    Allocated(SessionSlot),
    /// This existing session must end first, because it has the same nexus (session reinstatement) or is
    /// evicted. The caller ends it, and then allocates again.
    Replaces(SessionSlot),
    /// A session of the same nexus belongs to another user, and is not ended.
    OfAnother {
        /// The user's name.
        user: String,
    },
    /// The limit on normal sessions is reached, or all TSIHs are in use.
    Full,
}

/// All sessions of the front end.
pub(crate) struct Registry {
    book: Lock<Book>,
}

struct Book {
    sessions_max: usize,
    discovery_max: usize,
    sessions: BTreeMap<u16, Entry>,
    last_tsih: u16,
    /// Number of slots allocated so far.
    next: u64,
    per_core: Vec<usize>,
    /// Normal sessions.
    normal: Counts,
    discovery: Counts,
}

struct Entry {
    claim: Option<Claim>,
    from: AddressBlock,
    slot: SessionSlot,
    /// The negotiated parameters of the session, which further connections must match.
    parameters: Parameters,
}

impl Registry {
    pub(crate) fn new(cores: usize, limits: &Limits) -> Registry {
        let book = Book {
            sessions_max: limits.sessions,
            discovery_max: limits.discovery_sessions.max(1),
            sessions: BTreeMap::new(),
            last_tsih: 0,
            next: 0,
            per_core: vec![0; cores],
            normal: Counts::default(),
            discovery: Counts::default(),
        };
        Registry {
            book: Lock::new(book),
        }
    }

    /// Changes the limits for later logins.
    pub(crate) fn set_limits(&self, limits: &Limits) {
        let mut book = self.book();
        (book.sessions_max, book.discovery_max) =
            (limits.sessions, limits.discovery_sessions.max(1));
    }

    fn book(&self) -> LockGuard<'_, Book> {
        self.book.lock()
    }

    /// Whether a normal session from this address exists.
    pub(crate) fn has_sessions(&self, from: AddressBlock) -> bool {
        self.book().normal.count_of(from) > 0
    }

    /// Allocates a slot for a new session, on the core with the fewest sessions. Other outcomes change
    /// nothing.
    pub(crate) fn allocate(&self, newcomer: &NewSession, parameters: &Parameters) -> SlotOutcome {
        let mut book = self.book();
        if let Some(claim) = &newcomer.claim
            && let Some((old, of)) = book.of_nexus(&claim.nexus)
        {
            return match &of.user {
                Some(user) if claim.user.as_ref() != Some(user) => {
                    SlotOutcome::OfAnother { user: user.clone() }
                }
                _ => SlotOutcome::Replaces(old),
            };
        }
        let is_full = match newcomer.claim {
            Some(_) => book.normal.all() >= book.sessions_max && !newcomer.reinstates,
            None => book.discovery.all() >= book.discovery_max,
        };
        if is_full && newcomer.claim.is_none() {
            return book
                .oldest_discovery()
                .map_or(SlotOutcome::Full, SlotOutcome::Replaces);
        }
        if is_full || book.sessions.len() >= TSIHS {
            return SlotOutcome::Full;
        }
        let core = (0..book.per_core.len())
            .min_by_key(|&core| book.per_core[core])
            .unwrap_or(0);
        let tsih = book.free_tsih();
        book.per_core[core] += 1;
        let (claim, from) = (newcomer.claim.clone(), newcomer.from);
        let slot = SessionSlot {
            tsih: Tsih(tsih),
            core,
            number: book.next,
        };
        book.next += 1;
        book.counts(claim.is_none()).add(from);
        let before = book.sessions.insert(
            tsih,
            Entry {
                claim,
                from,
                slot,
                parameters: parameters.clone(),
            },
        );
        debug_assert!(before.is_none(), "a new session takes a free handle");
        debug_assert_eq!(
            book.per_core.iter().sum::<usize>(),
            book.sessions.len(),
            "each is on one core"
        );
        SlotOutcome::Allocated(slot)
    }

    /// Returns the session that a further connection names, if it has the same nexus and user. Includes
    /// sessions whose login is not complete.
    pub(crate) fn find(&self, tsih: Tsih, claim: &Claim) -> Option<SessionSlot> {
        let book = self.book();
        let entry = book.sessions.get(&tsih.0)?;
        (entry.claim.as_ref() == Some(claim)).then_some(entry.slot)
    }

    /// Returns the negotiated parameters of the session `tsih`, if it has this nexus. Does not check the
    /// user, because the login requires the parameters before authentication. [`Self::find`] checks the user
    /// afterwards.
    pub(crate) fn parameters(&self, tsih: Tsih, nexus: &NexusName) -> Option<Parameters> {
        let book = self.book();
        let entry = book.sessions.get(&tsih.0)?;
        let same = entry
            .claim
            .as_ref()
            .is_some_and(|claim| claim.nexus == *nexus);
        same.then(|| entry.parameters.clone())
    }

    /// Whether a slot is still allocated.
    pub(crate) fn holds(&self, slot: SessionSlot) -> bool {
        self.book()
            .sessions
            .get(&slot.tsih.0)
            .is_some_and(|entry| entry.slot == slot)
    }

    /// Frees the slot of a session that has ended, or whose login failed. No effect if the slot is already
    /// free, even if its TSIH has been reused.
    pub(crate) fn vacate(&self, slot: SessionSlot) {
        let mut book = self.book();
        if book
            .sessions
            .get(&slot.tsih.0)
            .is_some_and(|entry| entry.slot == slot)
            && let Some(entry) = book.sessions.remove(&slot.tsih.0)
        {
            book.per_core[slot.core] -= 1;
            book.counts(entry.claim.is_none()).remove(entry.from);
            debug_assert_eq!(
                book.normal.all() + book.discovery.all(),
                book.sessions.len(),
                "each session is counted until it is vacated"
            );
        }
    }
}

/// The number of TSIHs: all 16-bit values except 0, which means "none" on the wire (RFC 7143 section
/// 11.12.6).
const TSIHS: usize = u16::MAX as usize;

impl Book {
    fn counts(&mut self, is_discovery: bool) -> &mut Counts {
        if is_discovery {
            &mut self.discovery
        } else {
            &mut self.normal
        }
    }

    /// The discovery session to evict: the oldest session of the address with the most discovery sessions, so
    /// that a flood from one address evicts its own sessions.
    fn oldest_discovery(&self) -> Option<SessionSlot> {
        let discovery = self.sessions.values().filter(|entry| entry.claim.is_none());
        discovery
            .min_by_key(|entry| {
                (
                    std::cmp::Reverse(self.discovery.count_of(entry.from)),
                    entry.slot.number,
                )
            })
            .map(|entry| entry.slot)
    }

    /// Returns the session of a nexus.
    fn of_nexus(&self, nexus: &NexusName) -> Option<(SessionSlot, &Claim)> {
        self.sessions.values().find_map(|entry| {
            let claim = entry.claim.as_ref().filter(|claim| claim.nexus == *nexus)?;
            Some((entry.slot, claim))
        })
    }

    /// The next unused TSIH. The caller has checked that there are fewer sessions than TSIHs.
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
        NexusName {
            initiator: initiator.into(),
            isid,
            target: "iqn.t".into(),
            tag: 1,
        }
    }

    /// Creates a claim without authentication.
    fn open(initiator: &str, isid: u8) -> Claim {
        Claim {
            nexus: nexus(initiator, isid),
            user: None,
        }
    }

    fn proved(user: &str, initiator: &str, isid: u8) -> Claim {
        Claim {
            nexus: nexus(initiator, isid),
            user: Some(user.into()),
        }
    }

    fn from(number: u32) -> AddressBlock {
        AddressBlock::containing(std::net::Ipv4Addr::from_bits(number).into())
    }

    fn registry(cores: usize, sessions: usize, discovery_sessions: usize) -> Registry {
        Registry::new(
            cores,
            &Limits {
                sessions,
                discovery_sessions,
                ..Limits::default()
            },
        )
    }

    fn attempt(registry: &Registry, claim: Option<Claim>) -> SlotOutcome {
        come(
            registry,
            &NewSession {
                claim,
                from: from(1),
                reinstates: false,
            },
        )
    }

    fn come(registry: &Registry, newcomer: &NewSession) -> SlotOutcome {
        registry.allocate(newcomer, &Parameters::defaults(SessionType::Normal))
    }

    fn allocated(registry: &Registry, claim: Option<Claim>) -> SessionSlot {
        match attempt(registry, claim) {
            SlotOutcome::Allocated(slot) => slot,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_same_nexus_replaces_its_session_and_another_isid_does_not() {
        let registry = registry(2, 8, 8);
        let first = allocated(&registry, Some(open("iqn.a", 1)));
        assert_eq!(
            attempt(&registry, Some(open("iqn.a", 1))),
            SlotOutcome::Replaces(first)
        );
        let second = allocated(&registry, Some(open("iqn.a", 2)));
        assert_ne!(first.tsih, second.tsih);
        assert_ne!(first.core, second.core, "sessions spread over the cores");
        registry.vacate(first);
        allocated(&registry, Some(open("iqn.a", 1)));
    }

    #[test]
    fn discovery_sessions_live_side_by_side() {
        let registry = registry(1, 8, 8);
        assert_ne!(allocated(&registry, None), allocated(&registry, None));
    }

    #[test]
    fn a_connection_joins_only_a_session_of_its_own_nexus() {
        let registry = registry(1, 8, 8);
        let slot = allocated(&registry, Some(open("iqn.a", 1)));
        assert_eq!(registry.find(slot.tsih, &open("iqn.a", 1)), Some(slot));
        assert_eq!(registry.find(slot.tsih, &open("iqn.thief", 1)), None);
        assert_eq!(registry.find(Tsih(999), &open("iqn.a", 1)), None);
    }

    #[test]
    fn a_session_is_joined_and_replaced_by_its_own_user_alone() {
        let registry = registry(1, 8, 8);
        let slot = allocated(&registry, Some(proved("alice", "iqn.a", 1)));
        let of_alice = SlotOutcome::OfAnother {
            user: "alice".into(),
        };
        for other in [proved("bob", "iqn.a", 1), open("iqn.a", 1)] {
            assert_eq!(attempt(&registry, Some(other.clone())), of_alice);
            assert_eq!(registry.find(slot.tsih, &other), None);
        }
        let again = proved("alice", "iqn.a", 1);
        assert_eq!(registry.find(slot.tsih, &again), Some(slot));
        assert_eq!(attempt(&registry, Some(again)), SlotOutcome::Replaces(slot));
        allocated(&registry, Some(proved("bob", "iqn.a", 2))); // another ISID is another nexus
    }

    /// The target may have started to require authentication after the session was established.
    #[test]
    fn a_session_that_proved_nothing_is_replaced_by_whoever_may_log_in_and_joined_by_its_like() {
        let registry = registry(1, 8, 8);
        let slot = allocated(&registry, Some(open("iqn.a", 1)));
        assert_eq!(registry.find(slot.tsih, &proved("alice", "iqn.a", 1)), None);
        assert_eq!(
            attempt(&registry, Some(proved("alice", "iqn.a", 1))),
            SlotOutcome::Replaces(slot)
        );
    }

    #[test]
    fn limits_hold_and_are_given_back() {
        let registry = registry(1, 1, 1);
        let slot = allocated(&registry, Some(open("iqn.a", 1)));
        assert_eq!(
            attempt(&registry, Some(open("iqn.a", 2))),
            SlotOutcome::Full
        );
        registry.vacate(slot);
        allocated(&registry, Some(open("iqn.a", 2)));
    }

    /// A login that has not completed loses its slot if another login ends it.
    #[test]
    fn a_seat_that_was_vacated_is_lost_to_its_login_though_its_handle_comes_again() {
        let registry = registry(1, 1, 1);
        let lost = allocated(&registry, None);
        assert!(registry.holds(lost));
        registry.vacate(lost);
        registry.book().last_tsih = lost.tsih.0 - 1;
        let another = allocated(&registry, None);
        assert_eq!(another.tsih, lost.tsih);
        assert!(registry.holds(another) && !registry.holds(lost));
        registry.vacate(lost);
        assert!(registry.holds(another));
    }

    #[test]
    fn discovery_sessions_take_no_seat_of_others() {
        let registry = registry(1, 2, 2);
        assert_ne!(allocated(&registry, None), allocated(&registry, None));
        allocated(&registry, Some(open("iqn.a", 1)));
        allocated(&registry, Some(open("iqn.a", 2)));
        assert_eq!(
            attempt(&registry, Some(open("iqn.a", 3))),
            SlotOutcome::Full
        );
    }

    #[test]
    fn a_crowd_from_one_address_ends_its_own_discovery_sessions() {
        let registry = registry(1, 2, 3);
        let ask = |number| NewSession {
            claim: None,
            from: from(number),
            reinstates: false,
        };
        let slots: Vec<SessionSlot> = [7, 9, 9]
            .into_iter()
            .map(|number| match come(&registry, &ask(number)) {
                SlotOutcome::Allocated(slot) => slot,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(come(&registry, &ask(9)), SlotOutcome::Replaces(slots[1]));
        assert_eq!(
            come(&registry, &ask(8)),
            SlotOutcome::Replaces(slots[1]),
            "and others are let in"
        );
        registry.vacate(slots[1]);
        assert!(matches!(
            come(&registry, &ask(8)),
            SlotOutcome::Allocated(_)
        ));
        assert_eq!(
            come(&registry, &ask(8)),
            SlotOutcome::Replaces(slots[0]),
            "all have one: the oldest"
        );
    }

    #[test]
    fn a_session_that_is_reinstated_has_its_seat_though_somebody_was_faster() {
        let registry = registry(1, 1, 1);
        let mine = |reinstates| NewSession {
            claim: Some(open("iqn.a", 1)),
            from: from(1),
            reinstates,
        };
        let slot = allocated(&registry, Some(open("iqn.a", 1)));
        assert_eq!(come(&registry, &mine(false)), SlotOutcome::Replaces(slot));
        registry.vacate(slot);
        allocated(&registry, Some(open("iqn.thief", 1)));
        assert_eq!(come(&registry, &mine(false)), SlotOutcome::Full);
        assert!(matches!(
            come(&registry, &mine(true)),
            SlotOutcome::Allocated(_)
        ));
    }

    #[test]
    fn who_has_a_session_is_known_by_its_address() {
        let registry = registry(1, 2, 2);
        allocated(&registry, None);
        assert!(!registry.has_sessions(from(1)), "discovery is for anybody");
        let slot = allocated(&registry, Some(open("iqn.a", 1)));
        assert!(registry.has_sessions(from(1)) && !registry.has_sessions(from(2)));
        registry.vacate(slot);
        assert!(!registry.has_sessions(from(1)));
    }
}
