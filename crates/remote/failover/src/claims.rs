//! Claims of byte ranges. Each change claims the range that it changes, and overlapping changes are executed
//! one after the other, in the order of their claims. The requester and each connection over which the server
//! may still execute the change hold a clone of the claim. The claim ends when the last clone is dropped. All
//! holders are on the thread of the connections.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// The claims of one device.
#[derive(Clone, Default)]
pub struct Claims(Rc<Table>);

#[derive(Default)]
struct Table {
    next: Cell<u64>,
    /// The claims, in the order of their numbers. There are few, because only outstanding changes have
    /// claims.
    entries: RefCell<Vec<Entry>>,
    /// Callers of [`Claims::quiesced`]. The end of any claim wakes them all.
    quiescing: RefCell<Vec<Waker>>,
}

struct Entry {
    number: u64,
    range: Range<u64>,
    /// Whether the requester still waits for the result of the change.
    is_awaited: bool,
    /// Wakes the future of [`Claim::granted`].
    waker: Option<Waker>,
}

/// A handle of a claim, granted or waiting. The claim ends when all clones are dropped.
#[derive(Clone)]
pub struct Claim(Rc<Held>);

/// The claim of a requester that waits for the result of the change. Dropping it releases the requester's
/// share only: connections may still hold clones of the claim.
pub(crate) struct Awaited(Claim);

struct Held {
    table: Rc<Table>,
    number: u64,
}

impl Claims {
    /// Claims `range`. The claim is granted when all earlier claims that overlap it have ended.
    pub fn claim(&self, range: Range<u64>) -> Claim {
        self.enter(range, false)
    }

    /// Like [`Claims::claim`], for a requester that waits for the result of its change.
    pub(crate) fn await_claim(&self, range: Range<u64>) -> Awaited {
        Awaited(self.enter(range, true))
    }

    fn enter(&self, range: Range<u64>, is_awaited: bool) -> Claim {
        debug_assert!(range.start <= range.end, "a claim ends after its start");
        let number = self.0.next.replace(self.0.next.get() + 1);
        let mut entries = self.0.entries.borrow_mut();
        debug_assert!(
            entries.last().is_none_or(|last| last.number < number),
            "claims are in order"
        );
        entries.push(Entry {
            number,
            range,
            is_awaited,
            waker: None,
        });
        drop(entries);
        Claim(Rc::new(Held {
            table: Rc::clone(&self.0),
            number,
        }))
    }

    /// Resolves when every claim made before this call has ended. The caller cannot determine this from its
    /// own requests, even if all of them have completed or were dropped. The server may still execute a copy
    /// of a completed change that was sent over a lost connection, and a drop on another thread takes effect
    /// here later.
    pub async fn quiesced(&self) {
        let before = self.0.next.get();
        poll_fn(|cx| {
            if self
                .0
                .entries
                .borrow()
                .first()
                .is_none_or(|entry| entry.number >= before)
            {
                return Poll::Ready(());
            }
            self.0.quiescing.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Splits `range` where a claim, granted or waiting, begins or ends. Returns the parts in order, each
    /// with a flag that is true if the part is claimed.
    pub fn cut(&self, range: &Range<u64>) -> Vec<(Range<u64>, bool)> {
        let entries = self.0.entries.borrow();
        let claimed: Vec<&Range<u64>> = entries
            .iter()
            .map(|entry| &entry.range)
            .filter(|claimed| overlap(claimed, range))
            .collect();
        let mut ends: Vec<u64> = claimed
            .iter()
            .flat_map(|claimed| [claimed.start, claimed.end])
            .collect();
        ends.extend([range.start, range.end]);
        ends.retain(|end| (range.start..=range.end).contains(end));
        ends.sort_unstable();
        ends.dedup();
        let part = |ends: &[u64]| {
            let part = ends[0]..ends[1];
            let is_claimed = claimed.iter().any(|claimed| overlap(claimed, &part));
            (part, is_claimed)
        };
        debug_assert!(ends.first() == Some(&range.start) && ends.last() == Some(&range.end));
        ends.windows(2).map(part).collect()
    }

    /// Number of claims, granted or waiting.
    pub fn count(&self) -> usize {
        self.0.entries.borrow().len()
    }
}

impl Claim {
    /// Waits for the grant.
    pub async fn granted(&self) {
        poll_fn(|cx| {
            let mut entries = self.0.table.entries.borrow_mut();
            let Some(place) = entries
                .iter()
                .position(|entry| entry.number == self.0.number)
            else {
                debug_assert!(false, "a claim that is held has its entry");
                return Poll::Ready(());
            };
            let (before, rest) = entries.split_at_mut(place);
            if !before
                .iter()
                .any(|entry| overlap(&entry.range, &rest[0].range))
            {
                return Poll::Ready(());
            }
            rest[0].waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Awaited {
    pub(crate) fn claim(&self) -> &Claim {
        &self.0
    }

    /// Whether this claim waits for an earlier claim whose requester waits for the result of its change.
    pub(crate) fn is_behind_an_awaited_one(&self) -> bool {
        let Held { table, number } = &*self.0.0;
        let entries = table.entries.borrow();
        let own = entries.iter().find(|entry| entry.number == *number);
        let mut earlier = entries
            .iter()
            .filter(|entry| entry.number < *number && entry.is_awaited);
        debug_assert!(own.is_some(), "a claim that is held has its entry");
        own.is_some_and(|own| earlier.any(|entry| overlap(&entry.range, &own.range)))
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        let held = &self.0.0;
        if Rc::strong_count(held) == 1 {
            return; // this ends the claim
        }
        let mut entries = held.table.entries.borrow_mut();
        let Some(place) = entries.iter().position(|entry| entry.number == held.number) else {
            return;
        };
        debug_assert!(entries[place].is_awaited, "a requester stops waiting once");
        entries[place].is_awaited = false;
        let later: Vec<Waker> = entries[place..]
            .iter_mut()
            .filter_map(|later| later.waker.take())
            .collect();
        drop(entries);
        later.into_iter().for_each(Waker::wake);
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Claim({})", self.0.number)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut entries = self.table.entries.borrow_mut();
        let Some(place) = entries.iter().position(|entry| entry.number == self.number) else {
            debug_assert!(false, "a claim ends once");
            return;
        };
        let ended = entries.remove(place);
        let mut woken: Vec<Waker> = Vec::new();
        for entry in entries[place..]
            .iter_mut()
            .filter(|entry| overlap(&entry.range, &ended.range))
        {
            woken.extend(entry.waker.take());
        }
        drop(entries);
        woken.append(&mut self.table.quiescing.borrow_mut());
        woken.into_iter().for_each(Waker::wake);
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests {
    use std::task::Context;

    use super::*;

    fn is_granted(claim: &Claim) -> bool {
        let mut granted = Box::pin(claim.granted());
        granted
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    #[test]
    fn overlapping_claims_are_granted_in_order() {
        let claims = Claims::default();
        let [first, beside, over, last] =
            [0..10, 10..20, 5..15, 5..6].map(|range| claims.claim(range));
        assert!(
            is_granted(&first) && is_granted(&beside) && !is_granted(&over) && !is_granted(&last)
        );
        let held_by_a_lost_link = first.clone();
        drop(first);
        assert!(!is_granted(&over), "a link still has the claim");
        drop(held_by_a_lost_link);
        assert!(!is_granted(&over), "the other neighbour is outstanding");
        drop(beside);
        assert!(is_granted(&over) && !is_granted(&last));
        drop(over);
        assert!(is_granted(&last));
        drop(last);
        assert_eq!(claims.count(), 0);
    }

    #[test]
    fn a_range_is_cut_where_claims_begin_and_end() {
        let claims = Claims::default();
        assert_eq!(claims.cut(&(4..12)), [(4..12, false)]);
        let _held = [0..6, 5..8, 10..12, 12..14].map(|range| claims.claim(range));
        let parts = [
            (4..5, true),
            (5..6, true),
            (6..8, true),
            (8..10, false),
            (10..12, true),
        ];
        assert_eq!(claims.cut(&(4..12)), parts);
        assert_eq!(claims.cut(&(8..10)), [(8..10, false)]);
    }

    #[test]
    fn a_claim_that_is_given_up_before_its_grant_blocks_nobody() {
        let claims = Claims::default();
        let [first, waiting, last] = [0..4, 0..8, 6..8].map(|range| claims.claim(range));
        assert!(is_granted(&first) && !is_granted(&last));
        drop(waiting);
        assert!(is_granted(&last));
    }

    #[test]
    fn the_device_is_quiet_once_what_was_claimed_before_has_ended() {
        let claims = Claims::default();
        let poll = |quiet: &mut std::pin::Pin<Box<dyn Future<Output = ()>>>| {
            quiet.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        };
        let quiet = || -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
            let claims = claims.clone();
            Box::pin(async move { claims.quiesced().await })
        };
        assert!(poll(&mut quiet()).is_ready());
        let outstanding = claims.claim(0..4);
        let held_by_a_lost_link = outstanding.clone();
        let mut waiting = quiet();
        assert!(poll(&mut waiting).is_pending());
        let _later = claims.claim(8..12);
        drop(outstanding);
        assert!(
            poll(&mut waiting).is_pending(),
            "its answer came by another link"
        );
        drop(held_by_a_lost_link);
        assert!(
            poll(&mut waiting).is_ready(),
            "what came later is not waited for"
        );
    }
}
