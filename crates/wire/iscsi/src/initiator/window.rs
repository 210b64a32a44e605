//! The target's command window, as the initiator knows it (RFC 7143 section 4.2.2.1).

use crate::serial::Sn;

/// CmdSN, MaxCmdSN and ExpCmdSN.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// CmdSN of the next command.
    cmd_sn: Sn,
    exp_cmd_sn: Sn,
    max_cmd_sn: Sn,
}

impl Window {
    pub(super) fn new(cmd_sn: Sn, max_cmd_sn: Sn) -> Window {
        Window { cmd_sn, exp_cmd_sn: cmd_sn, max_cmd_sn }
    }

    pub(super) fn cmd_sn(&self) -> Sn {
        self.cmd_sn
    }

    /// Number of commands that may be sent.
    pub(super) fn room(&self) -> u32 {
        if self.cmd_sn.le(self.max_cmd_sn) {
            self.cmd_sn.distance(self.max_cmd_sn).saturating_add(1)
        } else {
            0
        }
    }

    /// Consumes the next CmdSN.
    pub(super) fn take(&mut self) -> Sn {
        let taken = self.cmd_sn;
        self.cmd_sn = taken.next();
        taken
    }

    /// Whether the target may still be waiting for this CmdSN.
    pub(super) fn is_unacknowledged(&self, cmd_sn: Sn) -> bool {
        self.exp_cmd_sn.le(cmd_sn) && cmd_sn.lt(self.cmd_sn)
    }

    /// Updates the window. "If the PDU MaxCmdSN is less than the PDU ExpCmdSN-1 (in Serial Arithmetic sense),
    /// they are both ignored"; smaller values than known ones are outdated.
    pub(super) fn update(&mut self, exp_cmd_sn: Sn, max_cmd_sn: Sn) {
        if max_cmd_sn.lt(exp_cmd_sn.minus(1)) {
            return;
        }
        if self.max_cmd_sn.lt(max_cmd_sn) {
            self.max_cmd_sn = max_cmd_sn;
        }
        if self.exp_cmd_sn.lt(exp_cmd_sn) && exp_cmd_sn.le(self.cmd_sn) {
            self.exp_cmd_sn = exp_cmd_sn;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_closes_when_it_is_used_up_and_opens_as_told() {
        let mut window = Window::new(Sn(u32::MAX), Sn(0));
        assert_eq!(window.room(), 2);
        assert_eq!((window.take(), window.take()), (Sn(u32::MAX), Sn(0)));
        assert_eq!(window.room(), 0);
        window.update(Sn(1), Sn(3));
        assert_eq!(window.room(), 3);
    }

    #[test]
    fn old_and_contradictory_news_is_ignored() {
        let mut window = Window::new(Sn(10), Sn(20));
        window.update(Sn(10), Sn(15));
        window.update(Sn(30), Sn(28));
        assert_eq!(window.room(), 11);
    }

    #[test]
    fn a_target_cannot_acknowledge_what_was_not_sent() {
        let mut window = Window::new(Sn(10), Sn(20));
        let sent = window.take();
        window.update(Sn(15), Sn(20));
        assert!(window.is_unacknowledged(sent));
        window.update(Sn(11), Sn(20));
        assert!(!window.is_unacknowledged(sent));
    }
}
