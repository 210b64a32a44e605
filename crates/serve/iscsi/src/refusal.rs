//! Failed logins: the reasons for refusing a login, with the status that the initiator receives and the more
//! detailed log text; and delays after wrong secrets.
//!
//! To prevent guessing, login attempts after wrong CHAP secrets are delayed, and the delay increases each
//! time.
//!
//! Wrong secrets are counted per address, target and user together: guessing a user's secret delays that user
//! only from the guesser's address. While a user is delayed, no CHAP response of this user is checked, so
//! that the server's response does not reveal whether the secret is correct.
//!
//! The number of entries is limited. When all entries are in use, the address with the most entries loses
//! one. The entry of its user with the fewest wrong secrets is merged into a shared entry, for all users of
//! that address who have no entry of their own. The shared entry keeps the highest count. Invented user names
//! therefore never lower the count of a real one, and evict entries of other addresses only while those
//! addresses have more entries.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;
use std::time::{Duration, Instant};

use front_end_core::AddressBlock;
use iscsi::pdu::{LoginStatus, Tsih};

/// A rule that forbids a login. Protocol errors are [`iscsi::login::LoginError`]s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The server does not accept logins yet, or is shutting down.
    NotOpen,
    /// The target does not exist.
    NoSuchTarget,
    /// The target is not accessible through this portal group.
    PortalGroup(u16),
    /// The target's `initiators` list does not contain the initiator.
    InitiatorNotListed,
    /// The target's `networks` do not contain the initiator's address.
    NetworkNotListed,
    /// The account's `initiators` list does not contain the initiator.
    NotTheUsersName,
    /// The session with the same initiator name and ISID belongs to this user.
    SessionOfAnother(String),
    /// The TSIH of the login does not identify a session of its nexus and user.
    NoSuchSession(Tsih),
    /// The session has reached its connection limit.
    SessionIsFull,
    /// The server has reached its session limit.
    ServerIsFull,
    /// The session of its nexus was reinstated too often while this login waited.
    ReplacedTooOften,
    /// There were too many wrong secrets for this user from its address. Contains the remaining delay.
    TooManyGuesses(Duration),
}

impl Refusal {
    /// The name of the refusal in metrics.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Refusal::NotOpen => "not_open",
            Refusal::NoSuchTarget => "no_such_target",
            Refusal::PortalGroup(_) => "portal_group",
            Refusal::InitiatorNotListed => "initiator_not_listed",
            Refusal::NetworkNotListed => "network_not_listed",
            Refusal::NotTheUsersName => "not_the_users_name",
            Refusal::SessionOfAnother(_) => "session_of_another",
            Refusal::NoSuchSession(_) => "no_such_session",
            Refusal::SessionIsFull => "session_full",
            Refusal::ServerIsFull => "server_full",
            Refusal::ReplacedTooOften => "replaced_too_often",
            Refusal::TooManyGuesses(_) => "too_many_guesses",
        }
    }

    /// Returns the login status. For a hidden target, an initiator without access receives the same status
    /// as for a target that does not exist.
    pub(crate) fn status(&self, hidden: bool) -> LoginStatus {
        match self {
            Refusal::NotOpen | Refusal::TooManyGuesses(_) => LoginStatus::ServiceUnavailable,
            Refusal::InitiatorNotListed | Refusal::NetworkNotListed if !hidden => {
                LoginStatus::AuthorizationFailure
            }
            Refusal::NoSuchTarget
            | Refusal::PortalGroup(_)
            | Refusal::InitiatorNotListed
            | Refusal::NetworkNotListed => LoginStatus::NotFound,
            Refusal::NotTheUsersName | Refusal::SessionOfAnother(_) => {
                LoginStatus::AuthorizationFailure
            }
            Refusal::NoSuchSession(_) => LoginStatus::SessionDoesNotExist,
            Refusal::SessionIsFull => LoginStatus::TooManyConnections,
            Refusal::ServerIsFull | Refusal::ReplacedTooOften => LoginStatus::OutOfResources,
        }
    }
}

/// The cause as logged, with the configuration key that determines it. `docs/logs.md` lists all of these
/// texts.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotOpen => f.write_str("server is starting up or shutting down"),
            Refusal::NoSuchTarget => f.write_str("no such target"),
            Refusal::PortalGroup(tag) => write!(f, "portal group {tag} not listed (groups)"),
            Refusal::InitiatorNotListed => f.write_str("initiator not listed (initiators)"),
            Refusal::NetworkNotListed => f.write_str("address not listed (networks)"),
            Refusal::NotTheUsersName => f.write_str("initiator not listed for the account"),
            Refusal::SessionOfAnother(user) => write!(f, "session of another user: {user}"),
            Refusal::NoSuchSession(tsih) => write!(f, "no such session: {}", tsih.0),
            Refusal::SessionIsFull => f.write_str("session full (connections-per-session)"),
            Refusal::ServerIsFull => f.write_str("server full (sessions)"),
            Refusal::ReplacedTooOften => {
                f.write_str("session replaced too often during this login")
            }
            Refusal::TooManyGuesses(wait) => {
                write!(
                    f,
                    "too many wrong secrets: deferred for {} s",
                    wait.as_secs() + 1
                )
            }
        }
    }
}

/// A login attempt: address, target and user.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct Attempt<'a> {
    pub(crate) from: AddressBlock,
    /// The target's name; `None` for discovery. Targets may have different accounts for users of the same
    /// name.
    pub(crate) target: Option<&'a str>,
    /// The user name claimed by the peer: any text.
    pub(crate) user: &'a str,
}

/// Counts of wrong secrets.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    /// Hashes user names with a secret key. Peers choose the names, so only hashes of them are stored.
    hasher: RandomState,
    entries: BTreeMap<Key, Entry>,
}

/// An address and a hash of target and user; `None` for all users of that address without their own entry.
type Key = (AddressBlock, Option<u64>);

#[derive(Clone, Copy, Debug)]
struct Entry {
    failures: u32,
    last: Instant,
}

/// Number of wrong secrets without a delay, for typing errors.
pub(crate) const FREE_FAILURES: u32 = 5;
/// The first delay; each further wrong secret doubles it.
pub(crate) const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The maximum delay: 1,440 guesses a day from one address.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);
/// Time without further wrong secrets after which they are no longer counted.
pub(crate) const FORGOTTEN: Duration = Duration::from_secs(600);
/// Maximum number of entries, 64 bytes each including the key.
pub(crate) const ENTRIES_MAX: usize = 4096;

impl Backoff {
    /// Returns the remaining delay of an attempt; `None` if its CHAP response may be checked.
    pub(crate) fn wait(&self, now: Instant, attempt: &Attempt<'_>) -> Option<Duration> {
        let entry = self.entries.get(&self.key(now, attempt))?;
        let left = entry
            .wait()
            .checked_sub(now.saturating_duration_since(entry.last))?;
        (!left.is_zero()).then_some(left)
    }

    /// Records a wrong CHAP response. Returns the delay if it is the first delay, or if it reaches the
    /// maximum for the first time, because an administrator must see both.
    pub(crate) fn failed(&mut self, now: Instant, attempt: &Attempt<'_>) -> Option<Duration> {
        let mut key = self.key(now, attempt);
        // This needs at most two iterations: the first one may create a shared entry for the address, which
        // takes the freed space.
        while !self.entries.contains_key(&key) && self.entries.len() >= ENTRIES_MAX {
            self.make_room(now);
            key = self.key(now, attempt);
        }
        let entry = self.entries.entry(key).or_insert(Entry {
            failures: 0,
            last: now,
        });
        if entry.is_forgotten(now) {
            entry.failures = 0;
        }
        let before = entry.wait();
        *entry = Entry {
            failures: entry.failures.saturating_add(1),
            last: now,
        };
        let wait = entry.wait();
        debug_assert!(self.entries.len() <= ENTRIES_MAX, "one made space");
        let is_news = before != wait && (before.is_zero() || wait == WAIT_MAX);
        is_news.then_some(wait)
    }

    /// Records a correct CHAP response: removes the user's own entry. The shared entry of other users stays.
    pub(crate) fn succeeded(&mut self, attempt: &Attempt<'_>) {
        self.entries.remove(&self.own_key(attempt));
    }

    fn own_key(&self, attempt: &Attempt<'_>) -> Key {
        (attempt.from, Some(self.hasher.hash_one(attempt)))
    }

    /// Returns the entry that counts an attempt.
    fn key(&self, now: Instant, attempt: &Attempt<'_>) -> Key {
        let (own, others) = (self.own_key(attempt), (attempt.from, None));
        let is_one_of_others = !self.entries.contains_key(&own)
            && self
                .entries
                .get(&others)
                .is_some_and(|entry| !entry.is_forgotten(now));
        if is_one_of_others { others } else { own }
    }

    fn make_room(&mut self, now: Instant) {
        self.entries.retain(|_, entry| !entry.is_forgotten(now));
        if self.entries.len() < ENTRIES_MAX {
            return;
        }
        match self.heaviest() {
            (2.., Some(block)) => {
                let users = (
                    Bound::Excluded((block, None)),
                    Bound::Included((block, Some(u64::MAX))),
                );
                let Some(least) = self.remove_least(users) else {
                    return;
                };
                let others = self.entries.entry((block, None)).or_insert(least);
                others.failures = others.failures.max(least.failures);
                others.last = others.last.max(least.last);
            }
            // Each address has only one entry, so remove the entry with the fewest wrong secrets.
            _ => drop(self.remove_least((Bound::Unbounded, Bound::Unbounded))),
        }
    }

    /// The address with the most entries, and their number.
    fn heaviest(&self) -> (usize, Option<AddressBlock>) {
        let (mut heaviest, mut run) = ((0, None), (0, None));
        for (block, _) in self.entries.keys() {
            run = if run.1 == Some(*block) {
                (run.0 + 1, run.1)
            } else {
                (1, Some(*block))
            };
            heaviest = if run.0 >= heaviest.0 { run } else { heaviest };
        }
        heaviest
    }

    /// Removes the entry with the fewest wrong secrets in this range; of several such entries, the oldest.
    fn remove_least(&mut self, among: (Bound<Key>, Bound<Key>)) -> Option<Entry> {
        let least = self
            .entries
            .range(among)
            .min_by_key(|(_, entry)| (entry.failures, entry.last))?;
        let key = *least.0;
        self.entries.remove(&key)
    }
}

impl Entry {
    fn wait(&self) -> Duration {
        match self.failures.checked_sub(FREE_FAILURES) {
            None => Duration::ZERO,
            Some(doublings) => FIRST_WAIT
                .saturating_mul(1u32.checked_shl(doublings).unwrap_or(u32::MAX))
                .min(WAIT_MAX),
        }
    }

    fn is_forgotten(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) > FORGOTTEN
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn attempt<'a>(from: &str, user: &'a str) -> Attempt<'a> {
        let from: IpAddr = from.parse().expect("an address");
        Attempt {
            from: AddressBlock::containing(from),
            target: Some("iqn.t"),
            user,
        }
    }

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn the_beginning_of_a_lockout_is_news_and_so_is_the_longest_delay() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        let alice = attempt("192.0.2.1", "alice");
        let news: Vec<_> = (0..20)
            .filter_map(|_| backoff.failed(now, &alice))
            .collect();
        assert_eq!(news, [FIRST_WAIT, WAIT_MAX]);
    }

    #[test]
    fn each_wrong_secret_beyond_the_free_ones_doubles_the_wait() {
        let (mut backoff, mut now) = (Backoff::default(), Instant::now());
        let alice = attempt("192.0.2.1", "alice");
        let mut waits = Vec::new();
        for _ in 0..14 {
            backoff.failed(now, &alice);
            let wait = backoff.wait(now, &alice).unwrap_or_default();
            waits.push(wait.as_secs());
            now += wait;
            assert_eq!(backoff.wait(now, &alice), None, "its time has come");
        }
        assert_eq!(waits, [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]);
    }

    #[test]
    fn a_user_is_put_off_at_one_address_and_target_alone() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        (0..9).for_each(|_| {
            backoff.failed(now, &attempt("192.0.2.1", "alice"));
        });
        let other_target = Attempt {
            target: None,
            ..attempt("192.0.2.1", "alice")
        };
        for other in [
            attempt("192.0.2.2", "alice"),
            attempt("192.0.2.1", "bob"),
            other_target,
        ] {
            assert_eq!(backoff.wait(now, &other), None, "{other:?}");
        }
        assert_eq!(
            backoff.wait(now, &attempt("::ffff:192.0.2.1", "alice")),
            Some(seconds(16)),
            "the same address"
        );
    }

    /// An IPv6 host controls 2^64 addresses.
    #[test]
    fn the_addresses_of_an_ipv6_network_count_together() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        for host in 1..10 {
            backoff.failed(now, &attempt(&format!("2001:db8::{host}"), "alice"));
        }
        assert!(
            backoff
                .wait(now, &attempt("2001:db8::ffff:1:2", "alice"))
                .is_some()
        );
        assert_eq!(
            backoff.wait(now, &attempt("2001:db8:0:1::1", "alice")),
            None
        );
    }

    #[test]
    fn the_right_secret_and_time_make_forgotten() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        let alice = attempt("192.0.2.1", "alice");
        (0..9).for_each(|_| {
            backoff.failed(now, &alice);
        });
        backoff.succeeded(&alice);
        assert_eq!(backoff.wait(now, &alice), None);
        (0..4).for_each(|_| {
            backoff.failed(now, &alice);
        });
        backoff.failed(now + seconds(601), &alice);
        assert_eq!(backoff.wait(now + seconds(601), &alice), None, "one again");
    }

    /// Regression: invented users with five wrong secrets each took all entries but one. The entry of a real
    /// user with four wrong secrets had the fewest, and one more invented user removed it.
    #[test]
    fn invented_users_do_not_make_guesses_at_a_real_one_forgotten() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        let alice = attempt("192.0.2.1", "alice");
        for number in 0..ENTRIES_MAX {
            (0..FREE_FAILURES).for_each(|_| {
                backoff.failed(now, &attempt("192.0.2.1", &number.to_string()));
            });
        }
        let mut looked_at = 0;
        for round in 0..100 {
            for _ in 0..FREE_FAILURES - 1 {
                if backoff.wait(now, &alice).is_none() {
                    looked_at += 1;
                    backoff.failed(now, &alice);
                }
            }
            backoff.failed(now, &attempt("192.0.2.1", &format!("nobody {round}")));
        }
        assert!(
            looked_at <= FREE_FAILURES,
            "{looked_at} guesses without a wait"
        );
        assert_eq!(
            backoff.wait(now, &attempt("192.0.2.2", "alice")),
            None,
            "other addresses are not affected"
        );
    }

    #[test]
    fn a_crowd_from_one_address_leaves_entries_to_others() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        for number in 0..2 * ENTRIES_MAX {
            backoff.failed(now, &attempt("192.0.2.1", &number.to_string()));
        }
        let (alice, bob) = (attempt("192.0.2.2", "alice"), attempt("192.0.2.2", "bob"));
        (0..5).for_each(|_| {
            backoff.failed(now, &alice);
        });
        backoff.failed(now, &bob);
        assert_eq!(backoff.wait(now, &alice), Some(seconds(1)));
        assert_eq!(backoff.wait(now, &bob), None, "counted apart");
        assert_eq!(backoff.entries.len(), ENTRIES_MAX);
    }

    #[test]
    fn the_count_of_users_without_entries_ends_by_time_alone() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        for number in 0..2 * ENTRIES_MAX {
            backoff.failed(now, &attempt("192.0.2.1", &number.to_string()));
        }
        let alice = attempt("192.0.2.1", "alice");
        assert_eq!(backoff.wait(now, &alice), Some(WAIT_MAX));
        backoff.succeeded(&alice);
        assert_eq!(
            backoff.wait(now, &alice),
            Some(WAIT_MAX),
            "or a user with a secret would make room for guesses"
        );
        backoff.failed(now + seconds(601), &alice);
        assert_eq!(backoff.wait(now + seconds(601), &alice), None, "one again");
        assert_eq!(backoff.entries.len(), 1);
    }

    #[test]
    fn a_crowd_of_invented_users_takes_bounded_memory_and_hides_nobody() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        let alice = attempt("192.0.2.1", "alice");
        (0..9).for_each(|_| {
            backoff.failed(now, &alice);
        });
        for number in 0..2 * ENTRIES_MAX {
            backoff.failed(now, &attempt("192.0.2.1", &number.to_string()));
        }
        assert_eq!(backoff.entries.len(), ENTRIES_MAX);
        assert_eq!(backoff.wait(now, &alice), Some(seconds(16)));
    }
}
