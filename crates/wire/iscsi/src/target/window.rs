//! The command window: the order in which commands are delivered (RFC 7143 section 4.2.2.1).
//!
//! ```text
//!      … | ExpCmdSN | …held, or not yet arrived… | MaxCmdSN | …
//!   ignored   next            ahead (held)                    ignored
//! ```

use std::collections::VecDeque;

use super::connection::Request;
use crate::pdu::Sn;
use crate::slab::Key;

/// The window, and the requests that arrived before their turn in CmdSN order.
#[derive(Debug)]
pub(super) struct Window {
    exp_cmd_sn: Sn,
    max_cmd_sn: Sn,
    depth: u32,
    /// Held entries, indexed by their distance from ExpCmdSN. The queue is never longer than the largest
    /// window so far.
    held: VecDeque<Option<Held>>,
    /// Number of times that a command closed the window.
    closings: u64,
}

/// A request whose CmdSN is ahead of ExpCmdSN.
#[derive(Debug)]
pub(super) enum Held {
    /// A SCSI command, which is stored in its task.
    Command(Key),
    /// Any other request.
    Request(Box<Request>),
    /// No request: the command was aborted, and its CmdSN counts as received.
    Received,
}

/// Position of a CmdSN relative to the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CmdSnOrder {
    /// ExpCmdSN.
    Next,
    /// Within the window, after CmdSNs that have not arrived.
    Ahead,
    /// "The target MUST silently ignore any non-immediate command outside of this range or non-immediate
    /// duplicates within the range."
    Ignored,
}

impl Window {
    pub(super) fn new(exp_cmd_sn: Sn, depth: u32) -> Window {
        // Serial numbers can be compared only within half their range, so the window must be far smaller. No
        // initiator needs a window of a million.
        let depth = depth.clamp(1, 1 << 20);
        let max_cmd_sn = exp_cmd_sn.plus(depth).minus(1);
        Window {
            exp_cmd_sn,
            max_cmd_sn,
            depth,
            held: VecDeque::new(),
            closings: 0,
        }
    }

    pub(super) fn exp_cmd_sn(&self) -> Sn {
        self.exp_cmd_sn
    }

    pub(super) fn max_cmd_sn(&self) -> Sn {
        self.max_cmd_sn
    }

    /// Whether the window is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.max_cmd_sn.lt(self.exp_cmd_sn)
    }

    /// Number of times that a command closed the window, so that the initiator had to wait before it could
    /// send the next command.
    pub(super) fn closings(&self) -> u64 {
        self.closings
    }

    /// Advances MaxCmdSN by the slots that `active` commands leave free, and returns it. MaxCmdSN never
    /// decreases: "a MaxCmdSN value less than the local one is ignored", so an initiator would continue to
    /// use the larger value.
    pub(super) fn open(&mut self, active: u32) -> Sn {
        let scope = self
            .exp_cmd_sn
            .plus(self.depth.saturating_sub(active))
            .minus(1);
        if self.max_cmd_sn.lt(scope) {
            self.max_cmd_sn = scope;
        }
        debug_assert!(
            self.exp_cmd_sn.distance(self.max_cmd_sn.next()) <= self.depth,
            "a window beyond its depth"
        );
        self.max_cmd_sn
    }

    pub(super) fn order(&self, cmd_sn: Sn) -> CmdSnOrder {
        if !(self.exp_cmd_sn.le(cmd_sn) && cmd_sn.le(self.max_cmd_sn)) {
            return CmdSnOrder::Ignored;
        }
        match self.exp_cmd_sn.distance(cmd_sn) {
            0 => CmdSnOrder::Next,
            ahead => match self.held.get(ahead as usize) {
                Some(Some(_)) => CmdSnOrder::Ignored,
                Some(None) | None => CmdSnOrder::Ahead,
            },
        }
    }

    /// Notes that the next CmdSN has arrived.
    pub(super) fn advance(&mut self) {
        debug_assert!(
            self.exp_cmd_sn.le(self.max_cmd_sn),
            "a CmdSN beyond the window"
        );
        debug_assert!(
            !matches!(self.held.front(), Some(Some(_))),
            "the command held for this CmdSN is skipped"
        );
        self.held.pop_front();
        self.exp_cmd_sn = self.exp_cmd_sn.next();
        self.closings += u64::from(self.is_closed());
    }

    /// Holds an entry whose [`CmdSnOrder`] is ahead.
    pub(super) fn hold(&mut self, cmd_sn: Sn, what: Held) {
        debug_assert_eq!(self.order(cmd_sn), CmdSnOrder::Ahead, "CmdSN {cmd_sn}");
        let ahead = self.exp_cmd_sn.distance(cmd_sn) as usize;
        if self.held.len() <= ahead {
            self.held.resize_with(ahead + 1, || None);
        }
        self.held[ahead] = Some(what);
    }

    /// Takes the entry held for the next CmdSN, and advances ExpCmdSN.
    pub(super) fn take_next(&mut self) -> Option<Held> {
        let next = self.held.front_mut()?.take()?;
        self.advance();
        Some(next)
    }

    /// The held commands that precede this CmdSN.
    pub(super) fn held_before(&self, cmd_sn: Sn) -> Vec<Key> {
        debug_assert!(self.exp_cmd_sn.le(cmd_sn), "nothing is held below ExpCmdSN");
        let ahead = self.exp_cmd_sn.distance(cmd_sn) as usize;
        let command = |held: &Option<Held>| match held {
            Some(Held::Command(key)) => Some(*key),
            Some(Held::Request(_) | Held::Received) | None => None,
        };
        self.held.iter().take(ahead).filter_map(command).collect()
    }

    /// The held requests other than commands.
    pub(super) fn held_requests(&self) -> impl Iterator<Item = &Request> {
        self.held.iter().flatten().filter_map(|held| match held {
            Held::Request(request) => Some(&**request),
            Held::Command(_) | Held::Received => None,
        })
    }

    /// Notes that a held command was removed; its CmdSN still counts as received.
    pub(super) fn mark_received(&mut self, key: Key) {
        let is_it =
            |held: &&mut Option<Held>| matches!(held, Some(Held::Command(held)) if *held == key);
        if let Some(held) = self.held.iter_mut().find(is_it) {
            *held = Some(Held::Received);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_outside_the_window_and_repeated_ones_have_no_turn() {
        let mut window = Window::new(Sn(10), 4);
        let turns = |window: &Window| [9, 10, 11, 13, 14].map(|sn| window.order(Sn(sn)));
        assert_eq!(
            turns(&window),
            [
                CmdSnOrder::Ignored,
                CmdSnOrder::Next,
                CmdSnOrder::Ahead,
                CmdSnOrder::Ahead,
                CmdSnOrder::Ignored
            ]
        );
        window.hold(Sn(13), Held::Received);
        assert_eq!(window.order(Sn(13)), CmdSnOrder::Ignored);
        window.advance();
        assert_eq!(
            (window.order(Sn(11)), window.order(Sn(12))),
            (CmdSnOrder::Next, CmdSnOrder::Ahead)
        );
    }

    #[test]
    fn what_is_held_comes_when_the_gap_is_filled() {
        let mut window = Window::new(Sn(u32::MAX), 8);
        window.hold(Sn(0), Held::Received);
        window.hold(Sn(2), Held::Received);
        assert!(window.take_next().is_none());
        window.advance();
        assert!(window.take_next().is_some());
        assert!(window.take_next().is_none());
        assert_eq!(window.exp_cmd_sn(), Sn(1));
    }

    #[test]
    fn the_window_closes_by_standing_still_and_never_shrinks() {
        let mut window = Window::new(Sn(1), 2);
        assert_eq!(window.max_cmd_sn(), Sn(2));
        window.advance();
        assert_eq!(window.open(1), Sn(2));
        window.advance();
        assert_eq!(window.open(2), Sn(2));
        assert!(window.is_closed());
        assert_eq!(window.order(Sn(3)), CmdSnOrder::Ignored);
        assert_eq!(window.open(1), Sn(3));
        assert_eq!(window.order(Sn(3)), CmdSnOrder::Next);
    }
}
