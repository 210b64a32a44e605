//! The journal after the server may have lost what it had acknowledged: what is written again, and what is not.
//!
//! ```text
//!                                  │ only this client writes │ not known            │ others write, too
//!   it tells of another cache      │ written again           │ written again        │ compared
//!   it tells of the same cache     │ nothing was lost        │ nothing was lost     │ nothing was lost
//!   it tells nothing, and no       │ written again           │ compared             │ compared
//!   connection from before answers │                         │                      │
//! ```
//!
//! A restart is no loss: the page cache of a server that was killed is still there, and what another host has written and flushed since
//! must not be replaced by what this client wrote before. So without evidence of a loss the server is asked what the blocks hold. What
//! they hold as it was written is not lost. What they hold otherwise was lost or was replaced by another host, and nothing tells which:
//! it stays, and the next flush fails, as without a journal. Blocks that this client is changing at the time are an exception: nothing
//! orders that change and another host's, so the earlier change of those blocks, and of no others, is written again.

use std::ops::Range;
use std::rc::Rc;

use crate::journal::Part as _;
use crate::journal_file::Content;
use crate::session::{RequestOf, Shared};
use crate::transport::{Failed, Link, Request as _, Transport};

/// Changes of a journal that are replayed at once.
const AT_ONCE: usize = 32;
/// A change is compared in pieces of this length, or of the longest that the server accepts,
const PIECE_BYTES: u64 = 1 << 20;
/// and a longer one, which only zeros are, not at all: it counts as one that was not found.
const COMPARED_BYTES_MAX: u64 = 64 << 20;

/// Who else changes the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writers {
    /// Not known: what another host writes is not replaced without evidence of a loss.
    #[default]
    Unknown,
    /// Nobody: whatever the blocks hold otherwise was lost.
    One,
    /// Other hosts: what the blocks hold otherwise is never replaced.
    Several,
}

impl Writers {
    /// The words of URLs.
    pub fn parse(text: &str) -> Option<Writers> {
        match text {
            "one" => Some(Writers::One),
            "several" => Some(Writers::Several),
            _ => None,
        }
    }
}

/// What is known of a server that may have lost what it had acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// It tells that its cache is another one than before.
    Loss,
    /// It tells nothing of its cache.
    None,
}

impl Evidence {
    /// What the starts that a server has told of, before and now, are evidence of.
    pub(crate) fn of(before: Option<u128>, now: Option<u128>) -> Evidence {
        match before.zip(now) {
            Some((before, now)) if before != now => Evidence::Loss,
            _ => Evidence::None,
        }
    }
}

type Change<T> = (Range<u64>, RequestOf<T>);

/// What a comparison has found.
struct Compared<T: Transport> {
    /// Changes, and parts of some, that are written again.
    again: Vec<Change<T>>,
    /// Changes, and parts of some, that were lost or replaced by another host.
    missing: usize,
}

/// The outcome of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replayed {
    /// The server has all of it.
    Whole,
    /// Some of it was lost, or replaced by another host: the next flush fails.
    InPart,
}

impl<T: Transport> Shared<T> {
    /// Deals with the journal before anything else is sent over this connection. `None` if the connection was lost meanwhile.
    pub(crate) async fn replay(self: &Rc<Self>, link: &Rc<T::Link>, evidence: Evidence) -> Option<Replayed> {
        if self.ledger.borrow_mut().note_loss() {
            tracing::warn!("the server may have been restarted, and acknowledged writes may be lost");
        }
        // What they answer from now on is of the server as it was.
        std::mem::take(&mut self.state.borrow_mut().leaving).iter().for_each(|away| away.link.reset());
        let changes: Vec<Change<T>> = {
            let journal = self.journal.borrow();
            journal.changes().map(|(range, change)| (range, change.clone())).collect()
        };
        if changes.is_empty() {
            return Some(Replayed::Whole);
        }
        let are_trusted = match (self.settings.writers, evidence) {
            (Writers::One, _) | (Writers::Unknown, Evidence::Loss) => true,
            (Writers::Several, _) | (Writers::Unknown, Evidence::None) => false,
        };
        let all = changes.len();
        let compared = match are_trusted {
            true => Some(Compared { again: changes, missing: 0 }),
            false => self.compare(link, changes).await,
        };
        let Compared { again, missing } = compared?;
        if missing > 0 {
            tracing::warn!(
                changes = missing,
                "acknowledged writes were lost, or another host has replaced them: they are not written again, and the next flush \
                 fails. If no other host writes here, writers=one has them written again"
            );
            self.tell_of_loss();
        }
        if again.is_empty() {
            tracing::info!(changes = all, missing, "the journal was compared with what the server has");
            return Some(if missing > 0 { Replayed::InPart } else { Replayed::Whole });
        }
        let refused = self.write_again(link, &again).await?;
        Some(if missing > 0 || refused > 0 { Replayed::InPart } else { Replayed::Whole })
    }

    /// How many of the changes the server has refused.
    async fn write_again(self: &Rc<Self>, link: &Rc<T::Link>, changes: &[Change<T>]) -> Option<usize> {
        let mut refused = 0;
        for some in changes.chunks(AT_ONCE) {
            let deadline = reactor::now() + self.settings.timeout; // however long the whole takes
            let mut sent = Vec::with_capacity(some.len());
            for (range, change) in some {
                let claim = self.claims.claim(range.clone());
                sent.push(reactor::spawn(link.exchange(change, Some(claim), deadline, None)));
            }
            for answer in sent {
                match answer.await {
                    Ok(_) => {}
                    Err(Failed::Server(_)) => refused += 1,
                    Err(_) => return None,
                }
            }
        }
        if refused > 0 {
            self.tell_of_loss();
        }
        let bytes: usize = changes.iter().map(|(_, change)| change.memory_bytes()).sum();
        tracing::info!(
            changes = changes.len(),
            bytes,
            refused,
            "the journal was replayed: the server may have been restarted"
        );
        self.state.borrow_mut().replays += 1;
        Some(refused)
    }

    /// Asks the server what the blocks of these changes hold. `None` if the connection was lost.
    async fn compare(self: &Rc<Self>, link: &Rc<T::Link>, changes: Vec<Change<T>>) -> Option<Compared<T>> {
        let mut compared = Compared { again: Vec::new(), missing: 0 };
        // Deallocated blocks promise no content, so none of it can be lost.
        let promises = |change: &Change<T>| !matches!(change.1.content(), Some(Content::Unmap));
        let parts = changes.into_iter().filter(promises).flat_map(|(range, change)| {
            let parts = self.claims.cut(&range).into_iter();
            parts.map(move |(part, is_claimed)| {
                let is_whole = part == range;
                let change = if is_whole { change.clone() } else { change.part(part.clone()) };
                (part, change, is_claimed)
            })
        });
        let mut parts = parts.peekable();
        while parts.peek().is_some() {
            let ask = |(range, change, is_claimed): (Range<u64>, RequestOf<T>, bool)| {
                let asked = Rc::clone(self).is_there(Rc::clone(link), range.clone(), change.clone());
                (range, change, is_claimed, reactor::spawn(asked))
            };
            let asked: Vec<_> = parts.by_ref().take(AT_ONCE).map(ask).collect();
            for (range, change, is_claimed, is_there) in asked {
                match is_there.await? {
                    true => {}
                    // The newer write, which is not answered, may have been carried out in part, and it is sent again after this.
                    // Hosts that write a block while another one writes it are not ordered by anything.
                    false if is_claimed => compared.again.push((range, change)),
                    false => compared.missing += 1,
                }
            }
        }
        Some(compared)
    }

    /// Whether the server has what a change has made of these bytes. `None` if the connection was lost.
    async fn is_there(
        self: Rc<Self>,
        link: Rc<T::Link>,
        range: Range<u64>,
        change: RequestOf<T>,
    ) -> Option<bool> {
        if range.end - range.start > COMPARED_BYTES_MAX {
            return Some(false);
        }
        let longest = PIECE_BYTES.min(self.transport.read_bytes_max()).max(1);
        let mut at = range.start;
        while at < range.end {
            let piece = at..range.end.min(at + longest);
            at = piece.end;
            let deadline = reactor::now() + self.settings.timeout;
            match link.exchange(&self.transport.read(piece.clone()), None, deadline, None).await {
                Ok(reply) if T::Link::shows(&change.part(piece), &reply) => {}
                Ok(_) | Err(Failed::Server(_)) => return Some(false),
                Err(_) => return None,
            }
        }
        Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_start_than_before_is_evidence_of_a_loss() {
        for (before, now, evidence) in [
            (Some(1), Some(2), Evidence::Loss),
            (Some(1), Some(1), Evidence::None),
            (None, Some(1), Evidence::None),
            (Some(1), None, Evidence::None),
            (None, None, Evidence::None),
        ] {
            assert_eq!(Evidence::of(before, now), evidence, "{before:?}, {now:?}");
        }
    }
}
