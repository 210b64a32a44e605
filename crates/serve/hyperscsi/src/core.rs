//! The part of the front end for one core: the protocol state machine with its clock, interfaces and
//! sessions.
//!
//! Each core has its own socket for each portal, to which the kernel delivers the frames of the core's
//! sessions. The first core also receives frames outside sessions. It answers discovery, and passes a login
//! to the core that owns the sessions of its nexus ([`hyperscsi::target::Share`]). With UDP, a core may also
//! receive a frame for another core, and passes it on.
//!
//! [`CoreSessions::run`] is called after every change of the state machine. The task that receives frames
//! calls it after each batch; for all other changes, the task [`drive`] calls it once per turn of the
//! executor.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use front_end_core::{
    AUDIT, AddressBlock, Budget, Charge, CoreHandle, CoreTally, Counted, HostAddress, Phase,
    Portal, Server, WordCounts,
};
use hyperscsi::target::{Event, PathState, SessionEnd, SessionId, Share};
use hyperscsi::{Counters, FRAME_BYTES_MAX, Header, Refusal};
use reactor::{DatagramBatch, Datagrams, Receiver, Sender};
use scsi_session::{ScsiSession, quiesce, tell_removed};

use crate::config::{Config, Door};
use crate::context::{HYPERSCSI, Handed, HyperScsi, Machine, Pace, Wire};
use crate::interface::{Interface, Place, Spare};
use crate::session::{Began, Session, SharedSession};
use crate::status::{PathStatus, SessionStatus};

/// Maximum number of frames received before outgoing frames are sent.
const BATCH: usize = 64;
/// Maximum number of frames sent before other tasks run.
const ROUND: usize = 512;
/// Maximum number of frames built before they are sent, and of commands executed before their replies are
/// sent. The initiator processes the first frames while the server builds the next ones. If the server
/// handled a whole window in one batch, the two sides would alternately wait for each other. UDP segmentation
/// joins up to 44 datagrams of 1,472 bytes.
const SENT_TOGETHER: usize = 44;
const CARRIED_OUT_TOGETHER: usize = 8;
/// Maximum number of concurrent sessions on all cores, if there is sufficient memory.
const SESSIONS_MAX: usize = 128;
/// One core may have up to this multiple of its share of the sessions.
const UNEVENNESS: usize = 3;
/// Memory of a session for its commands, and again for its replies. It is sufficient for at least one command
/// of 1 MiB.
const SESSION_BYTES_MIN: usize = 1 << 21;
const SESSION_BYTES_MAX: usize = 8 << 20;

/// State shared by the tasks of a core.
pub(crate) struct CoreSessions {
    index: usize,
    /// Determines which sessions belong to this core.
    share: Share,
    pub(crate) server: Arc<Server>,
    pub(crate) front_end: Arc<HyperScsi>,
    pub(crate) wire: Rc<Wire>,
    sessions: RefCell<BTreeMap<SessionId, SharedSession>>,
    interfaces: RefCell<BTreeMap<u32, Rc<Interface>>>,
    /// Number of frames dropped by interfaces that have since been closed, or because another core's mailbox
    /// was full.
    dropped_before: Cell<u64>,
    last_handle: Cell<u16>,
    spare: Spare,
    /// Memory for the commands of this core.
    pub(crate) memory: Rc<Budget>,
    /// Memory used by the state machine at the last tick.
    pub(crate) kept: RefCell<Charge>,
    pub(crate) tally: Rc<CoreTally>,
    /// Whether the server is shutting down, so that no new session or command starts.
    pub(crate) is_leaving: Cell<bool>,
}

/// An interface in the list of the core. Dropping this value removes it, when its portal is closed.
struct Listed {
    core: Rc<CoreSessions>,
    number: u32,
}

impl Drop for Listed {
    fn drop(&mut self) {
        if let Some(interface) = self.core.interfaces.borrow_mut().remove(&self.number) {
            let before = &self.core.dropped_before;
            before.set(before.get() + interface.dropped());
        }
    }
}

impl CoreSessions {
    pub(crate) fn begin(front_end: Arc<HyperScsi>, handle: CoreHandle) -> Rc<CoreSessions> {
        let CoreHandle {
            core: index,
            server,
            memory,
        } = handle;
        let config = front_end.config();
        let mut seed = [0; 32];
        (config.random)(&mut seed);
        let count = server.datagram_cores();
        let share = Share {
            index: index as u32,
            count: count as u32,
        };
        // The core of a session depends on names and a port, so the cores have different numbers of sessions.
        let sessions_max = (UNEVENNESS * SESSIONS_MAX.div_ceil(count)).min(SESSIONS_MAX);
        let session_bytes =
            (memory.limit() / (2 * sessions_max)).clamp(SESSION_BYTES_MIN, SESSION_BYTES_MAX);
        let limits = hyperscsi::target::Config {
            credit: session_bytes as u32,
            send_bytes_max: session_bytes,
            sessions_max: (memory.limit() / (2 * session_bytes)).clamp(1, sessions_max),
            share,
            ..hyperscsi::target::Config::default()
        };
        let core = Rc::new(CoreSessions {
            index,
            share,
            wire: Rc::new(Wire {
                machine: RefCell::new(Machine::new(limits, Door { config }, seed)),
                pace: Pace::default(),
            }),
            sessions: RefCell::default(),
            interfaces: RefCell::default(),
            dropped_before: Cell::new(0),
            last_handle: Cell::new(0),
            spare: Spare::default(),
            kept: RefCell::new(memory.hold(0)),
            memory,
            tally: Rc::default(),
            is_leaving: Cell::new(false),
            server,
            front_end,
        });
        drop(reactor::spawn(drive(Rc::clone(&core))));
        if count > 1 && index < count {
            let inbox = core.front_end.inbox(share.index);
            drop(reactor::spawn(take_handed(Rc::clone(&core), inbox)));
        }
        core
    }

    pub(crate) fn all(&self) -> Vec<SharedSession> {
        self.sessions.borrow().values().cloned().collect()
    }

    /// Processes the outputs of the state machine: events, frames, and its next deadline.
    fn run(self: &Rc<Self>) {
        let was_running = self.wire.pace.is_running.replace(true);
        debug_assert!(!was_running, "no event of the machine runs it");
        self.wire.pace.is_wanted.set(false);
        self.handle_events(None);
        self.wire.pace.is_running.set(false);
        self.transmit();
        let due = self.wire.machine.borrow().poll_timeout();
        if let Some(due) = due
            && self.wire.pace.due.get().is_none_or(|before| due < before)
        {
            self.wire.pace.due.set(Some(due));
            self.wire.pace.wake();
        }
    }

    fn transmit(&self) {
        let mut machine = self.wire.machine.borrow_mut();
        let interfaces = self.interfaces.borrow();
        let now = reactor::now();
        let mut has_more = true;
        for count in 0..ROUND {
            if count % SENT_TOGETHER == 0 {
                interfaces
                    .values()
                    .for_each(|interface| interface.send(&self.spare));
            }
            let mut frame = self.spare.take();
            let Some(to) = machine.poll_frame(now, &mut frame) else {
                self.spare.give_back(frame);
                has_more = false;
                break;
            };
            match interfaces.get(&to.interface) {
                Some(interface) => interface.push(to.address, frame, &self.spare),
                None => self.spare.give_back(frame), // its portal has been closed, so the frame is lost
            }
        }
        drop(machine);
        interfaces
            .values()
            .for_each(|interface| interface.send(&self.spare));
        if has_more {
            self.wire.want_run();
        }
    }

    /// Serves a portal until the future is dropped.
    pub(crate) async fn serve(
        self: Rc<Self>,
        portal: Portal,
        number: u32,
        datagrams: Box<dyn Datagrams>,
    ) {
        let url = portal.listen.url(HYPERSCSI);
        let interface = Rc::new(Interface::new(Rc::from(datagrams), url));
        self.interfaces
            .borrow_mut()
            .insert(number, Rc::clone(&interface));
        let _listed = Listed {
            core: Rc::clone(&self),
            number,
        };
        loop {
            let error = self.serve_while_up(number, &interface).await;
            tracing::warn!(portal = %portal.listen, %error, "an interface has failed");
            let again = portal.open_again().await;
            if let Some(datagrams) = again {
                interface.replace(Rc::from(datagrams));
            }
            tracing::info!(portal = %portal.listen, "the interface works again");
        }
    }

    /// Serves an interface until it fails, and returns the error.
    async fn serve_while_up(self: &Rc<Self>, number: u32, interface: &Interface) -> io::Error {
        let datagrams = interface.datagrams();
        // Allow the maximum length of a frame on any interface, because an MTU can grow.
        let mut batch = DatagramBatch::new(BATCH, FRAME_BYTES_MAX);
        loop {
            debug_assert!(
                !self.wire.pace.is_running.get(),
                "one task at a time runs the machine"
            );
            self.wire.pace.is_running.set(true);
            let received = datagrams.receive_each(&mut batch, &mut |address, frame| {
                self.take(
                    &Place {
                        interface: number,
                        address,
                    },
                    frame,
                );
            });
            self.wire.pace.is_running.set(false);
            match received {
                Ok(_) => {
                    self.run();
                    reactor::yield_now().await;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll_fn(|cx| interface.poll_receivable(&self.spare, cx)).await;
                }
                Err(error) => return error,
            }
        }
    }

    /// Processes a received frame.
    fn take(self: &Rc<Self>, from: &Place, frame: &mut [u8]) {
        let Ok(header) = Header::parse(frame) else {
            return;
        };
        let now = reactor::now();
        if !self.hears(&header)
            || !self
                .wire
                .machine
                .borrow_mut()
                .has_time_for(now, from, &header, frame)
        {
            return;
        }
        match self.share.owner(&header, frame) {
            Some(owner) if owner == self.share.index => self.handle_frame(now, from, frame),
            Some(owner) => {
                let has_room = self.front_end.hand_over(
                    owner,
                    Handed {
                        from: *from,
                        frame: frame.into(),
                    },
                );
                self.dropped_before
                    .set(self.dropped_before.get() + u64::from(!has_room));
            }
            None => {}
        }
    }

    /// Whether frames with this header are accepted in the current phase of the server.
    fn hears(&self, header: &Header) -> bool {
        match self.server.phase() {
            Phase::Starting => false, // initiators retry
            Phase::Draining => !header.opcode.is_outside_sessions(),
            Phase::Open => true,
        }
    }

    fn handle_frame(self: &Rc<Self>, now: Instant, from: &Place, frame: &mut [u8]) {
        self.wire
            .machine
            .borrow_mut()
            .handle_frame(now, from, frame);
        self.handle_events(Some(from));
    }

    /// Handles the state machine's events; `from` is the source of the frame that caused them.
    fn handle_events(self: &Rc<Self>, from: Option<&Place>) {
        let mut commands = 0;
        loop {
            let event = self.wire.machine.borrow_mut().poll_event();
            let Some(event) = event else { return };
            if matches!(event, Event::Command { .. }) {
                commands += 1;
                if commands % CARRIED_OUT_TOGETHER == 0 {
                    self.transmit();
                }
            }
            match event {
                Event::SessionBegan {
                    session,
                    initiator,
                    port,
                    target,
                    is_encrypted,
                } => {
                    self.begin_session(session, initiator, port, &target, is_encrypted, from);
                }
                Event::LoginRefused {
                    initiator,
                    target,
                    refusal,
                } => {
                    self.note_refusal(&initiator, &target, refusal, from);
                }
                Event::SessionEnded { session, reason } => self.end_session(session, reason),
                Event::Command { task, command } => match self.session(task.session) {
                    // The initiator is notified of the end of its session, and retries later.
                    Some(session) if !self.is_leaving.get() => {
                        session
                            .borrow_mut()
                            .begin_task(reactor::now(), task.number, command);
                    }
                    _ => {}
                },
                Event::Function {
                    task,
                    function,
                    lun,
                    referenced,
                } => {
                    if let Some(session) = self.session(task.session) {
                        session.borrow_mut().manage(task, function, lun, referenced);
                    }
                }
                Event::Received { task } => {
                    if let Some(session) = self.session(task.session) {
                        session.borrow_mut().note_told(task.number);
                    }
                }
            }
        }
    }

    pub(crate) fn session(&self, id: SessionId) -> Option<SharedSession> {
        self.sessions.borrow().get(&id).cloned()
    }

    fn begin_session(
        self: &Rc<Self>,
        id: SessionId,
        initiator: String,
        port: u32,
        target: &str,
        is_encrypted: bool,
        from: Option<&Place>,
    ) {
        let config = self.front_end.config();
        let (Some(target), Some(from)) = (config.target(target), from) else {
            return self.wire.disconnect(id); // the target has been removed since the login was answered
        };
        let peer = HostAddress::from(from.address);
        let interfaces = self.interfaces.borrow();
        let portal = interfaces
            .get(&from.interface)
            .map(|interface| interface.portal.clone());
        drop(interfaces);
        let began = Began {
            id,
            handle: self.free_handle(),
            counted_as: self.front_end.names.label(&initiator),
            initiator,
            port,
            target: Arc::clone(target),
            is_encrypted,
            peer,
            portal: portal.unwrap_or_default(),
        };
        let keeps = target.keeps(&began.initiator, peer, is_encrypted);
        let session = Session::begin(&self.server, &self.wire, &self.tally, &self.memory, began);
        self.tally
            .note(Counted::Login, Some(&target.name), "accepted");
        session.borrow().log_in();
        self.server
            .tell(|observer| observer.session_began(session.borrow().info(), peer));
        let before = self.sessions.borrow_mut().insert(id, session);
        debug_assert!(before.is_none(), "a session begins once");
        if !keeps {
            self.wire.disconnect(id); // its access has been revoked
        }
    }

    /// The next free session number. One is always free, because there are fewer sessions than numbers. The
    /// numbers of different cores do not overlap, because each core counts in steps of the number of cores.
    fn free_handle(&self) -> u16 {
        let (first, step) = (self.share.index as u16 + 1, self.share.count as u16);
        loop {
            let handle = match self.last_handle.get() {
                0 => first,
                last => last.checked_add(step).unwrap_or(first),
            };
            self.last_handle.set(handle);
            debug_assert!(handle != 0, "0 means no session");
            debug_assert_eq!(
                (handle - first) % step,
                0,
                "the cores' numbers do not overlap"
            );
            if self
                .all()
                .iter()
                .all(|session| session.borrow().handle() != handle)
            {
                return handle;
            }
        }
    }

    fn note_refusal(&self, initiator: &str, target: &str, refusal: Refusal, from: Option<&Place>) {
        let config = self.front_end.config();
        let served = config.target(target).map(|target| target.name.as_str());
        let result = match refusal {
            Refusal::UnknownTarget => "no_such_target",
            Refusal::Authentication => "wrong_key",
            Refusal::Full => "server_full",
            Refusal::Malformed => "malformed",
        };
        self.tally.note(Counted::Login, served, result);
        let Some(peer) = from.map(|from| HostAddress::from(from.address)) else {
            return;
        };
        if self.server.may_log_of(AddressBlock::from(peer)) {
            tracing::warn!(target: AUDIT, %peer, initiator, target, why = %refusal, "login refused");
        }
    }

    fn end_session(self: &Rc<Self>, id: SessionId, reason: SessionEnd) {
        let Some(session) = self.sessions.borrow_mut().remove(&id) else {
            self.wire.machine.borrow_mut().quiesced(id);
            return self.wire.want_run();
        };
        let why = match reason {
            SessionEnd::Disconnected => "logout",
            SessionEnd::Closed => "closed",
            SessionEnd::Replaced => "reinstated",
            SessionEnd::Silent => "silent",
            SessionEnd::Misbehaved => "violation",
        };
        let units = session.borrow_mut().end();
        self.tally
            .note(Counted::ConnectionClosed, session.borrow().target(), why);
        session.borrow().log_out(why);
        self.server
            .tell(|observer| observer.session_ended(session.borrow().info()));
        // The nexuses of the session end when it is dropped: here, or by a task that is just ending.
        drop(session);
        let core = Rc::clone(self);
        drop(reactor::spawn(async move {
            // The next session of the nexus must not start while commands of this session can still reach the
            // medium.
            quiesce(&core.server, units).await;
            core.wire.machine.borrow_mut().quiesced(id);
            core.wire.want_run();
        }));
    }

    pub(crate) fn status(&self) -> Vec<SessionStatus> {
        let status = |session: &SharedSession| {
            let session = session.borrow();
            let (frame_bytes, counters, paths) = self.transport_of(session.id());
            session.status(self.index, frame_bytes, counters, paths)
        };
        self.all().iter().map(status).collect()
    }

    /// Returns the state of a session in the state machine; empty if the session has just ended.
    fn transport_of(&self, id: SessionId) -> (usize, Counters, Vec<PathStatus>) {
        let machine = self.wire.machine.borrow();
        let Some(state) = machine.session(id) else {
            return Default::default();
        };
        let interfaces = self.interfaces.borrow();
        let path = |path: &PathState<Place>| {
            let place = path.address?;
            let interface = interfaces.get(&place.interface);
            Some(PathStatus {
                peer: HostAddress::from(place.address),
                portal: interface
                    .map(|interface| interface.portal.clone())
                    .unwrap_or_default(),
                is_up: path.is_up,
                round_trip: path.round_trip,
                window_frames: path.window_frames,
            })
        };
        (
            state.frame_bytes,
            state.counters,
            state.paths.iter().filter_map(path).collect(),
        )
    }

    /// Frame counts, by outcome.
    pub(crate) fn frames(&self) -> WordCounts {
        let counters = self.wire.machine.borrow().counters();
        let interfaces = self.interfaces.borrow();
        let dropped = interfaces.values().map(|interface| interface.dropped());
        let counts = [
            ("sent", counters.frames_sent),
            ("received", counters.frames_received),
            ("repeated", counters.frames_repeated),
            ("damaged", counters.frames_damaged),
            ("refused", counters.fragments_refused),
            ("lost", counters.fragments_lost),
            ("dropped", self.dropped_before.get() + dropped.sum::<u64>()),
        ];
        // Report no counts before the first frame.
        let has_any = counts.iter().any(|(_, count)| *count > 0);
        let count = |(word, count)| ((Counted::Frame, String::new(), word), count);
        if has_any {
            counts.map(count).into()
        } else {
            WordCounts::new()
        }
    }

    /// Ends the sessions with this number or of this initiator. Returns their number.
    pub(crate) fn end_sessions(&self, handle: Option<u16>, initiator: &str) -> usize {
        let is_meant = |session: &SharedSession| session.borrow().is_called(handle, initiator);
        let meant: Vec<SharedSession> = self.all().into_iter().filter(is_meant).collect();
        meant
            .iter()
            .for_each(|session| self.wire.disconnect(session.borrow().id()));
        meant.len()
    }

    /// Adapts a session to the configuration. If the session may stay, it keeps its nexus, with different
    /// LUNs.
    pub(crate) fn adapt_session(
        self: &Rc<Self>,
        session: &SharedSession,
        config: &Config,
        done: &Sender<()>,
    ) {
        let (removed, may_stay) = session.borrow_mut().adapt(config);
        if !may_stay {
            self.wire.disconnect(session.borrow().id());
        }
        tell_removed(&self.server, session, removed, done);
    }
}

/// Runs the state machine at its deadlines, and after any change not caused by a frame.
async fn drive(core: Rc<CoreSessions>) {
    loop {
        let due = core.wire.pace.due.get();
        // Without a deadline, sleep for an hour: no deadline is later than this.
        let sleep =
            reactor::sleep_until(due.unwrap_or_else(|| reactor::now() + Duration::from_secs(3600)));
        let mut sleep = pin!(sleep);
        poll_fn(|cx| {
            *core.wire.pace.waker.borrow_mut() = Some(cx.waker().clone());
            let is_changed = core.wire.pace.is_wanted.get() || core.wire.pace.due.get() != due;
            if is_changed {
                Poll::Ready(())
            } else {
                sleep.as_mut().poll(cx)
            }
        })
        .await;
        let now = reactor::now();
        let is_due = core.wire.pace.due.get().is_some_and(|due| due <= now);
        if is_due {
            core.wire.pace.due.set(None);
            core.wire.machine.borrow_mut().handle_timeout(now);
        }
        if is_due || core.wire.pace.is_wanted.get() {
            core.run();
            reactor::yield_now().await; // this may cause more changes immediately
        }
    }
}

/// Handles frames that other cores have received for sessions of this core or for logins to it.
async fn take_handed(core: Rc<CoreSessions>, mut inbox: Receiver<Handed>) {
    while let Some(Handed { from, mut frame }) = inbox.recv().await {
        if Header::parse(&frame).is_ok_and(|header| core.hears(&header)) {
            debug_assert!(
                !core.wire.pace.is_running.get(),
                "one task at a time runs the machine"
            );
            core.wire.pace.is_running.set(true);
            core.handle_frame(reactor::now(), &from, &mut frame);
            core.wire.pace.is_running.set(false);
            core.run();
        }
        reactor::yield_now().await;
    }
}
