//! The connections of a session.

use std::rc::Rc;
use std::time::Instant;

use iscsi::pdu::Cid;
use iscsi::target::{CloseReason, ConnectionId, ConnectionStart};
use reactor::Sender;

use super::Session;
use crate::link::Link;

impl Session {
    /// Adds a connection. It replaces one with the same CID, whose commands are aborted.
    pub(crate) fn open_link(&mut self, now: Instant, link: Rc<Link>, start: ConnectionStart) -> ConnectionId {
        let older = self.links.iter().flatten().find(|(_, other)| other.cid == link.cid).cloned();
        if let Some((id, older)) = older {
            older.cut();
            self.lose_link(now, id);
        }
        let id = self.machine.add_connection(now, link.cid, start);
        if self.links.len() <= id.index() {
            self.links.resize_with(id.index() + 1, || None);
        }
        self.links[id.index()] = Some((id, link));
        id
    }

    /// Removes a lost connection and aborts its commands (ErrorRecoveryLevel 0).
    pub(crate) fn lose_link(&mut self, now: Instant, id: ConnectionId) {
        if let Some(place) = self.links.get_mut(id.index()) {
            place.take_if(|(known, _)| *known == id);
        }
        self.machine.remove_connection(now, id);
        self.handle_events(now);
        self.wake_all();
    }

    /// Whether a connection with this CID may join; it replaces one with the same CID.
    pub(crate) fn has_room_for(&self, cid: Cid) -> bool {
        let others = self.links().filter(|link| link.cid != cid).count();
        others < usize::from(self.machine.parameters().max_connections)
    }

    /// Its connections.
    pub(crate) fn links(&self) -> impl Iterator<Item = &Rc<Link>> {
        self.links.iter().flatten().map(|(_, link)| link)
    }

    pub(super) fn link(&self, id: ConnectionId) -> Option<&Rc<Link>> {
        let (known, link) = self.links.get(id.index())?.as_ref()?;
        (*known == id).then_some(link)
    }

    pub(super) fn close_link(&self, id: ConnectionId, reason: CloseReason) {
        if let Some(link) = self.link(id) {
            link.close(reason);
        }
    }

    /// Ends a connection whose peer is too slow.
    pub(crate) fn cut_slow(&self, id: ConnectionId) {
        if let Some(link) = self.link(id) {
            link.cut_slow();
        }
    }

    pub(super) fn wake(&self, id: ConnectionId) {
        if let Some(link) = self.link(id) {
            link.wake();
        }
    }

    /// Wakes every connection to send what is queued.
    pub(crate) fn wake_all(&self) {
        self.links().for_each(|link| link.wake());
    }

    /// `done` is dropped when the session is.
    pub(crate) fn on_end(&mut self, done: Sender<()>) {
        self.ending.push(done);
    }
}
