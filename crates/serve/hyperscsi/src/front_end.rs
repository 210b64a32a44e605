//! The server's interface to HyperSCSI: to the part of the front end that all cores share, and to the part
//! for each core.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use front_end_core::{
    AbortOrder, Accepted, AddressBlock, CoreFrontEnd, CoreHandle, CoreStatistics, FrontEnd, Portal,
    RunningCore, Server, SessionCounts, SlowHolder,
};
use hyperscsi::SESSION_AT;
use logical_unit::LogicalUnit;
use reactor::{Datagrams, Sender};
use scsi_session::{ScsiSession, abort_ordered};
use volume::Volume;

use crate::config::Config;
use crate::context::{HYPERSCSI, HyperScsi};
use crate::core::CoreSessions;
use crate::status::{SessionStatus, losses};

impl HyperScsi {
    /// Returns the losses that current sessions would suffer if `wanted` were served, one sentence each.
    /// Blocks as [`HyperScsi::sessions`] does.
    pub fn losses(&self, server: &Server, wanted: &Config) -> Vec<String> {
        losses(&self.sessions(server), &self.config(), wanted)
    }

    /// Returns the status of all sessions. Blocks for up to one second, so reactor threads must not call it.
    pub fn sessions(&self, server: &Server) -> Vec<SessionStatus> {
        let status =
            |local: &Rc<RunningCore>| local.front_end::<CoreSessions>().map(|core| core.status());
        let by_core = server.ask_cores(Duration::from_secs(1), status);
        let mut sessions: Vec<SessionStatus> =
            by_core.into_iter().flatten().flatten().flatten().collect();
        sessions.sort_by_key(|session| session.handle);
        sessions
    }

    /// Ends the sessions with this number, or of this initiator, and returns their number. Their initiators
    /// are notified, and may log in again. Blocks as [`HyperScsi::sessions`] does.
    pub fn drop_sessions(&self, server: &Server, which: &str) -> usize {
        let (handle, name) = (which.parse::<u16>().ok(), which.to_owned());
        let end = move |local: &Rc<RunningCore>| {
            local
                .front_end::<CoreSessions>()
                .map_or(0, |core| core.end_sessions(handle, &name))
        };
        server
            .ask_cores(Duration::from_secs(1), end)
            .into_iter()
            .flatten()
            .sum()
    }
}

impl FrontEnd for HyperScsi {
    fn name(&self) -> &'static str {
        HYPERSCSI
    }

    fn begin(self: Arc<Self>, handle: CoreHandle) -> Rc<dyn CoreFrontEnd> {
        CoreSessions::begin(self, handle)
    }

    /// The offset of the session number. Frames outside sessions have the number 0, so the first core
    /// receives them.
    fn shares_datagrams_at(&self) -> Option<u16> {
        Some(SESSION_AT)
    }

    /// Always false, because there are no connections to evict.
    fn has_sessions(&self, _: AddressBlock) -> bool {
        false
    }

    fn volume_grew(&self, volume: &Arc<Volume>) {
        let config = self.config();
        let exports = config.targets.iter().flat_map(|target| &target.exports);
        let presents = |unit: &&Arc<LogicalUnit>| Arc::ptr_eq(unit.volume(), volume);
        for unit in exports.map(|export| &export.unit).filter(presents) {
            unit.tell_growth();
        }
    }
}

impl CoreFrontEnd for CoreSessions {
    /// There are no connections.
    fn accept(self: Rc<Self>, _: Accepted) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async {})
    }

    fn receive(
        self: Rc<Self>,
        portal: Portal,
        number: u32,
        datagrams: Box<dyn Datagrams>,
    ) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(self.serve(portal, number, datagrams))
    }

    fn abort(self: Rc<Self>, order: &AbortOrder, done: &Sender<()>) {
        abort_ordered(&self.server, &self.all(), order, done);
    }

    fn adapt(self: Rc<Self>, done: &Sender<()>) {
        let config = self.front_end.config();
        self.wire.machine.borrow_mut().directory_mut().config = Arc::clone(&config);
        self.tally
            .keep_served(|target| config.target(target).is_some());
        for session in self.all() {
            self.adapt_session(&session, &config, done);
        }
    }

    fn statistics(&self) -> CoreStatistics {
        let (all, mut in_flight) = (self.all(), BTreeMap::new());
        let sessions = all.iter().map(|session| {
            let session = session.borrow();
            session.commands.count_in_flight(&mut in_flight);
            SessionCounts {
                target: session.target().map(str::to_owned),
                host: session.counted_as(),
                connections: 1,
                traffic: session.commands.traffic,
            }
        });
        let mut statistics = self.tally.statistics(sessions);
        for volume in &mut statistics.volumes {
            let address = volume.volume.as_ptr() as usize;
            volume.in_flight = in_flight.get(&address).copied().unwrap_or(0);
        }
        statistics.counts.extend(self.frames());
        statistics
    }

    fn tick(&self, now: Instant) -> bool {
        let mut is_busy = false;
        self.kept
            .borrow_mut()
            .set(self.wire.machine.borrow().memory_bytes());
        for session in self.all() {
            let mut session = session.borrow_mut();
            session.commands.observe(now);
            let hung = session.expire(now);
            hung.iter()
                .for_each(|(unit, time)| self.server.fence(unit.volume(), *time));
            session.commands.sweep_luns();
            session.resume_waiting_for_memory();
            is_busy |= session.commands.in_flight() > 0;
        }
        is_busy
    }

    /// Returns `None`, because the resources of each session are limited, and the state machine ends a
    /// session that stops acknowledging frames.
    fn slowest_holder(&self, _: Instant) -> Option<SlowHolder> {
        None
    }

    /// Rejects new commands, because the protocol has no such request. Responses to outstanding commands are
    /// still sent, and then the sessions are closed.
    fn ask_to_leave(&self, _: Duration) {
        self.is_leaving.set(true);
    }

    fn is_idle(&self) -> bool {
        let (_, unacknowledged, _) = self.wire.machine.borrow().holds();
        unacknowledged == 0
            && self
                .all()
                .iter()
                .all(|session| session.borrow().commands.in_flight() == 0)
    }

    fn close_all(&self) {
        self.all()
            .iter()
            .for_each(|session| self.wire.disconnect(session.borrow().id()));
    }
}
