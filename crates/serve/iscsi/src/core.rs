//! A reactor thread's share of the server: the sessions that live on it, the messages that reach it, and its
//! clock.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};
use std::sync::{self, Arc};
use std::time::{Duration, Instant};

use iscsi::pdu::{Cid, Tsih};
use iscsi::serial::Sn;
use iscsi::target::TaskId;
use reactor::{Receiver, Sender};
use unit::LogicalUnit;

use crate::admission::Admitted;
use crate::budget::Budget;
use crate::config::{Portal, ServerConfig, Target};
use crate::connection::Connection;
use crate::growth;
use crate::inbox::{SCRATCH_BYTES, Scratch};
use crate::listener::Listeners;
use crate::management::{self, Spared, Whose};
use crate::refusal::Refusal;
use crate::registry::Seat;
use crate::server::Server;
use crate::session::{Removed, Session, SharedSession};
use crate::status::SessionStatus;
use crate::storage;

/// What one core tells another.
pub(crate) enum Message {
    /// A connection is about to join a session here: may it, and where does the command window stand?
    Reserve { tsih: Tsih, cid: Cid, answer: Sender<Result<(Sn, Sn), Refusal>> },
    /// A connection has logged in, and its session lives, or is to live, here.
    Join(Box<Admitted>),
    /// A session must end; the answer is the end of the channel.
    End { seat: Seat, done: Sender<()> },
    /// Commands must end; the answer is the end of the channel.
    Abort { unit: Arc<LogicalUnit>, whose: Whose, spared: Spared, done: Sender<()> },
    /// The sessions of a target must close their connections.
    CloseTarget { target: Arc<Target>, except: Tsih },
    /// For the first core: these portals are to be listened on, and no others.
    Listen { portals: Vec<Portal>, answer: Sender<io::Result<Vec<SocketAddr>>> },
    /// What is served has changed; the answer is the end of the channel.
    Changed { done: Sender<()> },
    /// Somebody wants to know.
    Status(std::sync::mpsc::Sender<Vec<SessionStatus>>),
    /// The server ends: ask initiators to log out, and leave within so long.
    Drain(Duration),
}

/// A reactor thread's share of a server. Made by [`Server::new`], moved to its thread, and run there.
pub struct Core {
    pub(crate) index: usize,
    pub(crate) server: Arc<Server>,
    pub(crate) messages: Receiver<Message>,
}

/// What the tasks of a core share.
pub(crate) struct Local {
    pub(crate) index: usize,
    pub(crate) server: Arc<Server>,
    pub(crate) sessions: RefCell<BTreeMap<u16, SharedSession>>,
    pub(crate) scratch: Rc<Scratch>,
    /// Memory that the commands of this core may hold.
    memory: Rc<Budget>,
    /// The first core has all of them.
    listeners: RefCell<Listeners>,
    /// The volumes that this core, the first one, looks after.
    watched: RefCell<Vec<sync::Weak<LogicalUnit>>>,
}

impl Core {
    /// Serves until [`Server::shutdown`]. The first core binds the portals and reports their addresses, or why
    /// it could not, to `bound`; the others report nothing. True if all volumes were flushed before the end.
    pub async fn run(self, bound: std::sync::mpsc::Sender<io::Result<Vec<SocketAddr>>>) -> bool {
        let Core { index, server, mut messages } = self;
        let scratch = RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice());
        let config = server.config();
        let memory = Budget::new(server.memory_of_a_core(&config), None);
        let local = Rc::new(Local {
            index,
            server,
            sessions: RefCell::default(),
            scratch: Rc::new(scratch),
            memory,
            listeners: RefCell::new(Listeners::new(&config.limits)),
            watched: RefCell::default(),
        });
        if index == 0 {
            let listens = local.listeners.borrow_mut().set(&local, &config.portals);
            match listens {
                Ok(addresses) => {
                    local.watch_volumes(&config);
                    drop(bound.send(Ok(addresses)));
                }
                Err(error) => {
                    drop(bound.send(Err(error)));
                    return true; // nothing was served
                }
            }
        }
        drop((bound, config)); // what it served until something else is served can be closed
        let _clock = reactor::spawn(tick(Rc::clone(&local)));
        while let Some(message) = messages.recv().await {
            if let Message::Drain(grace) = message {
                return local.drain(grace).await;
            }
            local.handle(message);
        }
        true
    }
}

impl Local {
    fn handle(self: &Rc<Self>, message: Message) {
        match message {
            Message::Reserve { tsih, cid, answer } => {
                // As below, whoever asked may be gone by now.
                let _ = answer.send(self.reserve(tsih, cid));
            }
            Message::Join(admitted) => self.join(*admitted),
            Message::End { seat, done } => self.end(seat, done),
            Message::Abort { unit, whose, spared, done } => self.abort(&unit, &whose, spared, done),
            Message::CloseTarget { target, except } => self.close_target(&target.name, except),
            Message::Listen { portals, answer } => {
                let _ = answer.send(self.listeners.borrow_mut().set(self, &portals));
            }
            Message::Changed { done } => self.change(&done),
            Message::Status(answer) => drop(answer.send(self.status())),
            Message::Drain(_) => unreachable!("handled by the loop that ends with it"),
        }
    }

    pub(crate) fn session(&self, tsih: Tsih) -> Option<SharedSession> {
        self.sessions.borrow().get(&tsih.0).cloned()
    }

    fn all(&self) -> Vec<SharedSession> {
        self.sessions.borrow().values().cloned().collect()
    }

    /// Whether a session has room for a connection, or has one of this CID already, which the new one replaces
    /// (RFC 7143 section 6.3.4).
    fn reserve(&self, tsih: Tsih, cid: Cid) -> Result<(Sn, Sn), Refusal> {
        let session = self.session(tsih).ok_or(Refusal::NoSuchSession(tsih))?;
        let session = session.borrow();
        match session.has_room_for(cid) {
            true => Ok((session.machine.exp_cmd_sn(), session.machine.max_cmd_sn())),
            false => Err(Refusal::SessionIsFull),
        }
    }

    /// A connection has logged in: its session begins, or goes on with one more.
    fn join(self: &Rc<Self>, mut admitted: Admitted) {
        let tsih = admitted.login.request.tsih;
        let peer = admitted.peer;
        if !self.is_current(&mut admitted) {
            // What is served has changed since the login began. The initiator tries again, and is told by that login.
            if admitted.leading {
                self.server.registry.vacate(admitted.seat);
            }
            return self.server.registry.leave(peer.ip());
        }
        let session = match (admitted.leading, self.session(tsih)) {
            (true, _) if self.server.registry.holds(admitted.seat) => self.begin_session(&admitted),
            (false, Some(session)) if session.borrow().has_room_for(admitted.login.request.cid) => session,
            // Another login has taken its seat, or its session has ended, or others have joined, since the login looked.
            _ => return self.server.registry.leave(peer.ip()),
        };
        match Connection::new(self, &session, admitted) {
            Ok(connection) => drop(reactor::spawn(serve(Rc::clone(self), session, connection, peer.ip()))),
            Err(error) => {
                tracing::warn!(%peer, %error, "a connection could not change threads");
                self.server.registry.leave(peer.ip());
                self.end_session_without_links(&session);
            }
        }
    }

    /// Whether the target is there still for who has logged in to it, and as it is now.
    fn is_current(&self, admitted: &mut Admitted) -> bool {
        let Some(before) = &admitted.target else { return true };
        let config = self.server.config();
        let (login, address) = (&admitted.login, admitted.peer.ip());
        let (initiator, user) = (login.request.initiator_name.as_str(), login.authenticated_as.as_deref());
        let keeps = |target: &&Arc<Target>| target.keeps(initiator, address, user, admitted.tag);
        admitted.target = config.target(&before.name).filter(keeps).cloned();
        admitted.target.is_some()
    }

    fn begin_session(self: &Rc<Self>, admitted: &Admitted) -> SharedSession {
        let session = Session::begin(&self.server, &self.memory, admitted);
        self.sessions.borrow_mut().insert(admitted.login.request.tsih.0, Rc::clone(&session));
        session
    }

    /// Takes a session off the books once its last connection is gone.
    fn end_session_without_links(&self, session: &SharedSession) {
        let seat = session.borrow().identity.seat;
        if session.borrow().links().next().is_none()
            && self.sessions.borrow_mut().remove(&seat.tsih.0).is_some()
        {
            self.server.registry.vacate(seat);
        }
    }

    /// Cuts a session's connections; their tasks take it off the books, which ends the wait of `done`. A seat whose login
    /// is not over yet has no session and is vacated at once: its initiator, which may never read what it is told, must
    /// not hold it against others.
    fn end(&self, seat: Seat, done: Sender<()>) {
        match self.session(seat.tsih) {
            Some(session) if session.borrow().identity.seat == seat => {
                let mut session = session.borrow_mut();
                session.on_end(done);
                session.links().for_each(|link| link.cut());
            }
            _ => self.server.registry.vacate(seat),
        }
    }

    /// Ends commands on behalf of one session: its own without a word, those of others so that they are told, once
    /// the devices have let go of them and they may be sent again. Whoever asked waits for `unit` itself, and by `done` for
    /// the other units that they were at work on.
    fn abort(self: &Rc<Self>, unit: &Arc<LogicalUnit>, whose: &Whose, spared: Spared, done: Sender<()>) {
        let (mut cleared, mut others) = (Vec::new(), Vec::new());
        for session in self.all() {
            let mut session = session.borrow_mut();
            let Some(nexus) = session.nexus_of(unit) else { continue };
            let meant = match whose {
                Whose::All => true,
                Whose::Of(nexuses) => nexuses.contains(&nexus),
            };
            match spared {
                Spared::Nexus(own) if own == nexus => {}
                Spared::Command(own, task) if own == nexus => {
                    if meant {
                        let (units, untold) = session.abort_unit(unit, Some(task));
                        management::add_units(&mut others, &units);
                        cleared.push((session.weak(), untold));
                        session.wake_all();
                    }
                }
                Spared::Nexus(_) | Spared::Command(..) | Spared::Nobody => {
                    if meant {
                        cleared.push((session.weak(), session.clear_unit(unit, &mut others)));
                    }
                }
            }
        }
        cleared.retain(|(_, tasks)| !tasks.is_empty());
        others.retain(|other| !Arc::ptr_eq(other, unit));
        if !cleared.is_empty() || !others.is_empty() {
            drop(reactor::spawn(tell_aborted(Rc::clone(self), Arc::clone(unit), others, done, cleared)));
        }
    }

    fn close_target(&self, target: &str, except: Tsih) {
        for session in self.all() {
            let session = session.borrow();
            if session.target_name() == target && session.identity.seat.tsih != except {
                session.links().for_each(|link| link.cut());
            }
        }
    }

    /// What is served has changed: sessions are told, each as far as it is concerned.
    fn change(self: &Rc<Self>, done: &Sender<()>) {
        let config = self.server.config();
        self.memory.set_limit(self.server.memory_of_a_core(&config));
        if self.index == 0 {
            self.listeners.borrow().set_limit(config.limits.logins);
            self.watch_volumes(&config);
        }
        let (portals, now) = (self.server.portals(), reactor::now());
        for session in self.all() {
            let ended = session.borrow_mut().adapt(now, &config, &portals);
            if !ended.is_empty() {
                let (session, server) = (Rc::downgrade(&session), Arc::clone(&self.server));
                drop(reactor::spawn(tell_removed(session, server, ended, Sender::clone(done))));
            }
        }
    }

    /// Looks after the volumes that are served, those that are new.
    fn watch_volumes(&self, config: &ServerConfig) {
        let mut watched = self.watched.borrow_mut();
        watched.retain(|unit| unit.strong_count() > 0);
        for (volume, unit) in config.units() {
            if !watched.iter().any(|known| known.as_ptr() == Arc::as_ptr(&unit)) {
                let unit = Arc::downgrade(&unit);
                drop(reactor::spawn(growth::watch(volume.clone(), sync::Weak::clone(&unit))));
                drop(reactor::spawn(storage::watch(volume, sync::Weak::clone(&unit))));
                watched.push(unit);
            }
        }
    }

    /// Somebody found no memory on this core since the last look: whoever has held some longest, because its peer is slow
    /// to send or to read, loses its connection.
    fn reclaim_memory(&self, now: Instant) {
        if !self.memory.take_refusal() {
            return;
        }
        let slowest = |session: SharedSession| {
            let (since, connection) = session.borrow().slowest_holder(now)?;
            Some((since, session, connection))
        };
        let slowest = self.all().into_iter().filter_map(slowest).min_by_key(|(since, ..)| *since);
        if let Some((_, session, connection)) = slowest {
            session.borrow().cut_slow(connection);
        }
    }

    fn status(&self) -> Vec<SessionStatus> {
        self.all().iter().map(|session| session.borrow().status(self.index)).collect()
    }

    /// Asks initiators to log out, lets commands end, then cuts what is left. Says whether the flush, which is the
    /// first core's, went well.
    async fn drain(self: &Rc<Self>, grace: Duration) -> bool {
        let end = reactor::now() + grace;
        for session in self.all() {
            let mut session = session.borrow_mut();
            session.machine.request_logout(reactor::now(), grace);
            session.wake_all();
        }
        while reactor::now() < end && !self.sessions.borrow().is_empty() {
            reactor::sleep(DRAIN_STEP).await;
        }
        for session in self.all() {
            session.borrow().links().for_each(|link| link.cut());
        }
        // Their tasks see it on their next turn, and take their sessions off the books.
        reactor::sleep(DRAIN_STEP).await;
        self.index != 0 || self.flush_all().await
    }

    /// What was acknowledged is kept: the last flush is ours. All volumes at once, so that one that hangs costs
    /// the others nothing.
    async fn flush_all(&self) -> bool {
        let mut all = true;
        let end = reactor::now() + FLUSH_TIME;
        let flushing: Vec<_> = self
            .server
            .config()
            .units()
            .into_iter()
            .map(|(volume, unit)| (reactor::spawn(flush(unit)), volume))
            .collect();
        for (flushed, volume) in flushing {
            let left = end.saturating_duration_since(reactor::now());
            let cause = match reactor::timeout(left, flushed).await {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("the device does not answer for {} s", FLUSH_TIME.as_secs()),
            };
            tracing::error!(volume, cause, "could not flush before leaving");
            all = false;
        }
        all
    }
}

async fn tell_aborted(
    local: Rc<Local>,
    unit: Arc<LogicalUnit>,
    others: Vec<Arc<LogicalUnit>>,
    done: Sender<()>,
    cleared: Vec<(Weak<RefCell<Session>>, Vec<TaskId>)>,
) {
    management::let_go(&local.server, others).await;
    drop(done);
    management::let_go(&local.server, vec![unit]).await;
    for (session, tasks) in cleared {
        if let Some(session) = session.upgrade() {
            session.borrow_mut().tell_aborted(&tasks);
        }
    }
}

/// Commands for LUNs that are gone are told so once the devices have let go of them; their number is free then.
async fn tell_removed(
    session: Weak<RefCell<Session>>,
    server: Arc<Server>,
    Removed { units, tasks }: Removed,
    done: Sender<()>,
) {
    management::let_go(&server, units).await;
    if let Some(session) = session.upgrade() {
        let mut session = session.borrow_mut();
        session.tell_aborted(&tasks);
        session.sweep_luns();
    }
    drop(done);
}

async fn flush(unit: Arc<LogicalUnit>) -> Result<(), block::DeviceError> {
    unit.volume().flush().await
}

/// A connection's life in full feature phase.
async fn serve(local: Rc<Local>, session: SharedSession, mut connection: Connection, address: IpAddr) {
    let end = connection.run().await;
    session.borrow().log_out(&connection.link, &end);
    let id = connection.id;
    drop(connection); // closes the socket
    session.borrow_mut().lose_link(reactor::now(), id);
    local.server.registry.leave(address);
    // Another session of this nexus must not begin while commands of this one can still reach the medium.
    let given_up = session.borrow_mut().take_given_up();
    management::let_go(&local.server, given_up).await;
    local.end_session_without_links(&session);
}

/// Looks after what nobody's arrival wakes: commands that take too long, peers that are silent, sockets that
/// take nothing.
async fn tick(local: Rc<Local>) {
    loop {
        let now = reactor::now();
        let mut busy = false;
        if local.index == 0 {
            local.server.log_left_out();
        }
        let stall = local.server.config().limits.send_stall;
        for session in local.all() {
            busy |= tick_session(&session, now, stall);
        }
        local.reclaim_memory(now);
        reactor::sleep(if busy { BUSY_TICK } else { IDLE_TICK }).await;
    }
}

fn tick_session(session: &SharedSession, now: Instant, stall: Duration) -> bool {
    let mut session = session.borrow_mut();
    session.observe(now);
    let hung = session.expire(now);
    hung.iter().for_each(|(unit, time)| management::fence(unit, *time));
    session.withdraw_slow_transfers(now);
    session.cut_stalled(now, stall);
    session.end_discovery(now);
    session.sweep_luns();
    session.settle_kept();
    session.feed_starved();
    if session.machine.poll_timeout().is_some_and(|due| due <= now) {
        session.machine.handle_timeout(now);
        session.handle_events(now);
    }
    // Whether a socket has taken nothing for too long is for its connection to find.
    session.links().filter(|link| link.is_blocked()).for_each(|link| link.wake());
    session.in_flight() > 0
}

/// Deadlines are seconds; a quarter of one is fine enough.
const BUSY_TICK: Duration = Duration::from_millis(250);
/// With nothing in flight only silence is timed.
const IDLE_TICK: Duration = Duration::from_secs(1);
const DRAIN_STEP: Duration = Duration::from_millis(20);
/// The process promises to end within ten seconds.
const FLUSH_TIME: Duration = Duration::from_secs(4);
