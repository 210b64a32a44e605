//! The server's interface to iSCSI: to the part of the front end that all cores share, and to the part for
//! each core.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use front_end_core::{
    AbortOrder, Accepted, AddressBlock, CoreFrontEnd, CoreHandle, CoreStatistics, FrontEnd, Portal,
    RunningCore, Server, SessionCounts, SlowHolder,
};
use logical_unit::LogicalUnit;
use reactor::Sender;
use scsi_session::{ScsiSession, abort_ordered, tell_removed};
use volume::Volume;

use crate::admission::LoginDriver;
use crate::config::Config;
use crate::context::{Context, ISCSI, Iscsi};
use crate::core::CoreSessions;
use crate::session::SharedSession;
use crate::status::{Loss, SessionStatus, losses};

impl Iscsi {
    /// Returns the losses that current sessions would suffer if `wanted` were served at `portals`. Blocks
    /// like [`Iscsi::sessions`].
    /// [`Iscsi::sessions`].
    pub fn losses(&self, server: &Server, wanted: &Config, portals: &[Portal]) -> Vec<Loss> {
        losses(
            &self.sessions(server),
            &self.config(),
            &server.portals(),
            wanted,
            portals,
        )
    }

    /// Returns the status of all sessions. Blocks for up to one second, so reactor threads must not call it.
    pub fn sessions(&self, server: &Server) -> Vec<SessionStatus> {
        let status =
            |local: &Rc<RunningCore>| local.front_end::<CoreSessions>().map(|core| core.status());
        let by_core = server.ask_cores(Duration::from_secs(1), status);
        let mut sessions: Vec<SessionStatus> =
            by_core.into_iter().flatten().flatten().flatten().collect();
        sessions.sort_by_key(|session| session.tsih);
        sessions
    }

    /// Ends the sessions with this TSIH or of this initiator, and returns their number. Requests the
    /// initiators to log out within five seconds; with `force`, closes the connections immediately. The
    /// initiators may log in again. Blocks like [`Iscsi::sessions`].
    pub fn drop_sessions(&self, server: &Server, which: &str, force: bool) -> usize {
        let (tsih, name) = (which.parse::<u16>().ok(), which.to_owned());
        let end = move |local: &Rc<RunningCore>| {
            local
                .front_end::<CoreSessions>()
                .map_or(0, |core| core.end_sessions(tsih, &name, force))
        };
        server
            .ask_cores(Duration::from_secs(1), end)
            .into_iter()
            .flatten()
            .sum()
    }
}

impl FrontEnd for Iscsi {
    fn name(&self) -> &'static str {
        ISCSI
    }

    fn begin(self: Arc<Self>, handle: CoreHandle) -> Rc<dyn CoreFrontEnd> {
        Rc::new(CoreSessions::new(self, handle))
    }

    fn has_sessions(&self, from: AddressBlock) -> bool {
        self.registry.has_sessions(from)
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
    fn accept(self: Rc<Self>, accepted: Accepted) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(LoginDriver::new(&self, accepted).admit())
    }

    fn abort(self: Rc<Self>, order: &AbortOrder, done: &Sender<()>) {
        abort_ordered(&self.context.server, &self.all(), order, done);
    }

    fn adapt(self: Rc<Self>, done: &Sender<()>) {
        let (config, portals, now) = (
            self.context.config(),
            self.context.portals(),
            reactor::now(),
        );
        self.tally
            .keep_served(|target| config.target(target).is_some());
        for session in self.all() {
            let removed = session.borrow_mut().adapt(now, &config, &portals);
            if let Some(removed) = removed {
                tell_removed(&self.context.server, &session, removed, done);
            }
        }
    }

    fn statistics(&self) -> CoreStatistics {
        let (all, mut in_flight) = (self.all(), BTreeMap::new());
        let sessions = all.iter().map(|session| {
            let session = session.borrow();
            session.commands.count_in_flight(&mut in_flight);
            SessionCounts {
                target: session.target().map(str::to_owned),
                host: Arc::clone(&session.identity.counted_as),
                connections: session.links().count() as u64,
                traffic: session.traffic(),
            }
        });
        // Logical units count data for all cores together, so only the first core reports it.
        let units = if self.index == 0 {
            units_of(&self.context)
        } else {
            BTreeMap::new()
        };
        units
            .values()
            .for_each(|unit| drop(self.tally.volume(unit.volume())));
        let mut statistics = self.tally.statistics(sessions);
        for volume in &mut statistics.volumes {
            let address = address(volume.volume.as_ptr());
            volume.in_flight = in_flight.get(&address).copied().unwrap_or(0);
            if let Some(unit) = units.get(&address) {
                let (traffic, block_size) =
                    (unit.traffic(), unit.volume().device().geometry().block_size);
                volume.read_bytes = traffic.blocks_sent << block_size.shift();
                volume.written_bytes = traffic.blocks_received << block_size.shift();
            }
        }
        statistics
    }

    fn tick(&self, now: Instant) -> bool {
        let stall = self.context.config().limits.send_stall;
        let mut busy = false;
        for session in self.all() {
            busy |= tick_session(&self.context.server, &session, now, stall);
        }
        busy
    }

    fn slowest_holder(&self, now: Instant) -> Option<SlowHolder> {
        let slowest = |session: SharedSession| {
            let (since, connection) = session.borrow().slowest_holder(now)?;
            Some((since, session, connection))
        };
        let (since, session, connection) = self
            .all()
            .into_iter()
            .filter_map(slowest)
            .min_by_key(|(since, ..)| *since)?;
        Some(SlowHolder {
            since,
            cut: Box::new(move || session.borrow().cut_slow(connection)),
        })
    }

    fn ask_to_leave(&self, grace: Duration) {
        for session in self.all() {
            let mut session = session.borrow_mut();
            session.request_logout(reactor::now(), grace);
            session.wake_all();
        }
    }

    fn is_idle(&self) -> bool {
        self.all().is_empty()
    }

    fn close_all(&self) {
        for session in self.all() {
            session.borrow().links().for_each(|link| link.cut());
        }
    }
}

/// Returns the logical units in use, by the address of their volume.
fn units_of(context: &Context) -> BTreeMap<usize, Arc<LogicalUnit>> {
    let config = context.config();
    let exports = config.targets.iter().flat_map(|target| &target.exports);
    exports
        .map(|export| {
            (
                address(Arc::as_ptr(export.unit.volume())),
                Arc::clone(&export.unit),
            )
        })
        .collect()
}

fn address(volume: *const Volume) -> usize {
    volume as usize
}

fn tick_session(server: &Server, session: &SharedSession, now: Instant, stall: Duration) -> bool {
    let mut session = session.borrow_mut();
    session.commands.observe(now);
    let hung = session.expire(now);
    hung.iter()
        .for_each(|(unit, time)| server.fence(unit.volume(), *time));
    session.withdraw_slow_transfers(now);
    session.cut_stalled(now, stall);
    session.end_discovery(now);
    session.commands.sweep_luns();
    session.settle_kept();
    session.resume_waiting_for_memory();
    if session.machine.poll_timeout().is_some_and(|due| due <= now) {
        session.machine.handle_timeout(now);
        session.handle_events(now);
    }
    // Wake blocked connections. Each of them then checks for how long its socket has accepted no data.
    session
        .links()
        .filter(|link| link.is_blocked())
        .for_each(|link| link.wake());
    session.commands.in_flight() > 0
}
