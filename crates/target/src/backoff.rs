//! Wrong secrets are put off, longer each time, so that they cannot be guessed in numbers.
//!
//! Counted is by address, target and user together: whoever guesses somebody's secret puts off that user from its own
//! address, and nowhere else. While a user is put off no proof is looked at, right or wrong, so that nothing is learnt
//! from the answer. A number of entries is kept that is bounded; when they are all taken, the least guessed at makes
//! room, so that a crowd of invented names does not wash away what is known of a real one.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use crate::access::AddressBlock;

/// Who proves to be whom.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct Attempt<'a> {
    pub(crate) from: AddressBlock,
    /// Its index; `None` is discovery. Targets may have different accounts for users of one name.
    pub(crate) target: Option<usize>,
    /// As it says. Any text.
    pub(crate) user: &'a str,
}

/// What is remembered of wrong secrets.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    /// Users are anything that anybody says, so that their hashes are kept, under a key that nobody knows.
    hasher: RandomState,
    entries: BTreeMap<u64, Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    failures: u32,
    last: Instant,
}

/// As many people may mistype a secret before they are put off.
pub(crate) const FREE_FAILURES: u32 = 5;
/// The first wait; each further wrong secret doubles it.
pub(crate) const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest: 1,440 guesses a day from one address.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);
/// Wrong secrets are forgotten after so long without another.
pub(crate) const FORGOTTEN: Duration = Duration::from_secs(600);
/// Entries of 24 bytes.
pub(crate) const ENTRIES_MAX: usize = 4096;

impl Backoff {
    /// How long an attempt is put off; `None` if its proof may be looked at.
    pub(crate) fn wait(&self, now: Instant, attempt: &Attempt<'_>) -> Option<Duration> {
        let entry = self.entries.get(&self.hasher.hash_one(attempt))?;
        let left = entry.wait().checked_sub(now.saturating_duration_since(entry.last))?;
        (!left.is_zero()).then_some(left)
    }

    /// The proof was wrong.
    pub(crate) fn failed(&mut self, now: Instant, attempt: &Attempt<'_>) {
        let key = self.hasher.hash_one(attempt);
        if !self.entries.contains_key(&key) && self.entries.len() >= ENTRIES_MAX {
            self.make_room(now);
        }
        let entry = self.entries.entry(key).or_insert(Entry { failures: 0, last: now });
        if entry.is_forgotten(now) {
            entry.failures = 0;
        }
        *entry = Entry { failures: entry.failures.saturating_add(1), last: now };
    }

    /// The proof was right: its user is at this address.
    pub(crate) fn succeeded(&mut self, attempt: &Attempt<'_>) {
        self.entries.remove(&self.hasher.hash_one(attempt));
    }

    fn make_room(&mut self, now: Instant) {
        self.entries.retain(|_, entry| !entry.is_forgotten(now));
        let least = self.entries.iter().min_by_key(|(_, entry)| (entry.failures, entry.last));
        if let Some(key) = least.map(|(key, _)| *key).filter(|_| self.entries.len() >= ENTRIES_MAX) {
            self.entries.remove(&key);
        }
    }
}

impl Entry {
    fn wait(&self) -> Duration {
        match self.failures.checked_sub(FREE_FAILURES) {
            None => Duration::ZERO,
            Some(doublings) => {
                FIRST_WAIT.saturating_mul(1u32.checked_shl(doublings).unwrap_or(u32::MAX)).min(WAIT_MAX)
            }
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
        Attempt { from: AddressBlock::of(from), target: Some(0), user }
    }

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
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
        (0..9).for_each(|_| backoff.failed(now, &attempt("192.0.2.1", "alice")));
        let other_target = Attempt { target: None, ..attempt("192.0.2.1", "alice") };
        for other in [attempt("192.0.2.2", "alice"), attempt("192.0.2.1", "bob"), other_target] {
            assert_eq!(backoff.wait(now, &other), None, "{other:?}");
        }
        assert_eq!(
            backoff.wait(now, &attempt("::ffff:192.0.2.1", "alice")),
            Some(seconds(16)),
            "the same address"
        );
    }

    /// A host of IPv6 has 2^64 addresses of its own.
    #[test]
    fn the_addresses_of_an_ipv6_network_count_together() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        for host in 1..10 {
            backoff.failed(now, &attempt(&format!("2001:db8::{host}"), "alice"));
        }
        assert!(backoff.wait(now, &attempt("2001:db8::ffff:1:2", "alice")).is_some());
        assert_eq!(backoff.wait(now, &attempt("2001:db8:0:1::1", "alice")), None);
    }

    #[test]
    fn the_right_secret_and_time_make_forgotten() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        let alice = attempt("192.0.2.1", "alice");
        (0..9).for_each(|_| backoff.failed(now, &alice));
        backoff.succeeded(&alice);
        assert_eq!(backoff.wait(now, &alice), None);
        (0..4).for_each(|_| backoff.failed(now, &alice));
        backoff.failed(now + seconds(601), &alice);
        assert_eq!(backoff.wait(now + seconds(601), &alice), None, "one again");
    }

    #[test]
    fn a_crowd_of_invented_users_takes_bounded_memory_and_hides_nobody() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        let alice = attempt("192.0.2.1", "alice");
        (0..9).for_each(|_| backoff.failed(now, &alice));
        for number in 0..2 * ENTRIES_MAX {
            backoff.failed(now, &attempt("192.0.2.1", &number.to_string()));
        }
        assert_eq!(backoff.entries.len(), ENTRIES_MAX);
        assert_eq!(backoff.wait(now, &alice), Some(seconds(16)));
    }
}
