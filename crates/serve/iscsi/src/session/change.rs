//! Adapts a session to a changed configuration.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use front_end_core::Portal;
use iscsi::target::TaskId;
use logical_unit::LogicalUnit;

use super::Session;
use crate::config::{Config, Target};

/// Commands that were aborted because their LUNs were removed.
#[derive(Default)]
pub(crate) struct Removed {
    /// The units whose devices may still carry them out.
    pub(crate) units: Vec<Arc<LogicalUnit>>,
    /// To be answered by [`Session::tell_aborted`] when these have quiesced.
    pub(crate) tasks: Vec<TaskId>,
}

impl Removed {
    pub(crate) fn is_empty(&self) -> bool {
        self.units.is_empty()
    }
}

impl Session {
    /// Adapts to the current configuration. A session that has lost its target, or access to it, has no LUNs
    /// any more and is asked to log out. Returns the aborted commands.
    #[must_use]
    pub(crate) fn adapt(&mut self, now: Instant, config: &Config, portals: &[Portal]) -> Removed {
        let Some(before) = &self.identity.target else { return Removed::default() };
        let target = config.target(&before.name).filter(|target| self.may_stay(target)).cloned();
        // Of a target that is gone the name is left: its volumes are to be closed.
        self.identity.target = Some(target.clone().unwrap_or_else(|| before.without_luns()));
        let exports = target.as_ref().map_or(&[][..], |target| &target.exports);
        let gone = self.luns.remove_gone(exports);
        let mut removed = Removed::default();
        for place in gone {
            let unit = self.luns.unit(place);
            let cleared = match self.luns.shows(&unit) {
                true => self.clear_lun(place, &mut removed.units), // another LUN is the same unit
                false => self.clear_unit(&unit, &mut removed.units),
            };
            removed.tasks.extend(cleared);
            scsi_session::add_units(&mut removed.units, &[unit]);
        }
        if self.luns.add_missing(exports) > 0 || !removed.is_empty() {
            self.luns.tell_changed();
        }
        self.sweep_luns();
        if target.is_none() {
            self.machine.request_logout(now, LOGOUT_TIME);
        } else {
            self.cut_strays(portals);
        }
        self.wake_all();
        removed
    }

    /// Ends the session if it has this TSIH, or is this initiator's: asks the initiator to log out, or closes the connections
    /// at once.
    pub(crate) fn end(&mut self, tsih: Option<u16>, initiator: &str, at_once: bool) -> bool {
        let identity = &self.identity;
        if tsih != Some(identity.slot.tsih.0) && !identity.initiator.eq_ignore_ascii_case(initiator) {
            return false;
        }
        if at_once {
            self.links().for_each(|link| link.cut());
        } else {
            self.machine.request_logout(reactor::now(), LOGOUT_TIME);
            self.wake_all();
        }
        true
    }

    fn may_stay(&self, target: &Target) -> bool {
        let (initiator, user) = (&self.identity.initiator, self.identity.user.as_deref());
        self.links().all(|link| target.keeps(initiator, link.peer.ip(), user, self.identity.tag))
    }

    /// Cuts connections whose portal was removed.
    fn cut_strays(&self, portals: &[Portal]) {
        let is_there = |local: SocketAddr| {
            portals.iter().any(|portal| portal.tag == self.identity.tag && portal.took_in(local))
        };
        self.links().filter(|link| !is_there(link.local)).for_each(|link| link.cut());
    }

    /// Frees LUNs that were removed, once no command needs them.
    pub(crate) fn sweep_luns(&mut self) {
        if self.luns.are_some_gone() {
            let tasks = &self.tasks;
            self.luns.sweep(|place| tasks.iter().flatten().any(|task| task.slot == Some(place)));
        }
    }
}

/// For an initiator to log out when its target is gone, or when its session is to end.
const LOGOUT_TIME: Duration = Duration::from_secs(5);
