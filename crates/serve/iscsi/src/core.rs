//! The part of the front end for one core: the sessions of that core.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use front_end_core::{Budget, ConnectionPermit, CoreHandle, CoreTally};
use iscsi::pdu::{Cid, Sn, Tsih};
use reactor::Sender;
use scsi_session::{ScsiSession, quiesce};

use crate::config::Target;
use crate::connection::Connection;
use crate::context::{Context, Iscsi};
use crate::inbox::{SCRATCH_BYTES, Scratch};
use crate::refusal::Refusal;
use crate::registry::{Admitted, SessionSlot};
use crate::session::{Session, SharedSession};
use crate::status::SessionStatus;

/// State shared by the tasks of a core.
pub(crate) struct CoreSessions {
    pub(crate) index: usize,
    pub(crate) context: Context,
    sessions: RefCell<BTreeMap<u16, SharedSession>>,
    pub(crate) scratch: Rc<Scratch>,
    /// Memory for the commands of this core.
    memory: Rc<Budget>,
    pub(crate) tally: Rc<CoreTally>,
}

impl CoreSessions {
    pub(crate) fn new(iscsi: Arc<Iscsi>, handle: CoreHandle) -> CoreSessions {
        let CoreHandle {
            core: index,
            server,
            memory,
        } = handle;
        let scratch = Rc::new(RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice()));
        CoreSessions {
            index,
            context: Context { server, iscsi },
            sessions: RefCell::default(),
            scratch,
            memory,
            tally: Rc::default(),
        }
    }

    pub(crate) fn session(&self, tsih: Tsih) -> Option<SharedSession> {
        self.sessions.borrow().get(&tsih.0).cloned()
    }

    pub(crate) fn all(&self) -> Vec<SharedSession> {
        self.sessions.borrow().values().cloned().collect()
    }

    /// Returns the session that has this slot. Another session may have its TSIH by now, so the whole slot is
    /// compared.
    fn session_of(&self, slot: SessionSlot) -> Option<SharedSession> {
        self.session(slot.tsih)
            .filter(|session| session.borrow().identity.slot == slot)
    }

    /// Reserves a connection in a session, and returns the session's window. If the session has a connection
    /// with the same CID, the new connection will replace it (RFC 7143 section 6.3.4).
    pub(crate) fn reserve(&self, slot: SessionSlot, cid: Cid) -> Result<(Sn, Sn), Refusal> {
        let session = self
            .session_of(slot)
            .ok_or(Refusal::NoSuchSession(slot.tsih))?;
        let mut session = session.borrow_mut();
        match session.reserve(cid) {
            true => Ok((session.machine.exp_cmd_sn(), session.machine.max_cmd_sn())),
            false => Err(Refusal::SessionIsFull),
        }
    }

    /// Releases a reservation, if there is one.
    pub(crate) fn release(&self, slot: SessionSlot, cid: Cid) {
        if let Some(session) = self.session_of(slot) {
            session.borrow_mut().release(cid);
        }
    }

    /// Starts the session of a connection that has logged in, or adds the connection to its session.
    pub(crate) fn join(self: &Rc<Self>, mut admitted: Admitted) {
        let peer = admitted.peer;
        if !admitted.leading {
            self.release(admitted.slot, admitted.login.request.cid);
        }
        if !self.is_current(&mut admitted) {
            // The configuration has changed since the login began. The initiator retries, and receives the
            // reason in the response to that login.
            if admitted.leading {
                self.context.registry().vacate(admitted.slot);
            }
            return;
        }
        let session = match (admitted.leading, self.session_of(admitted.slot)) {
            (true, _) if self.context.registry().holds(admitted.slot) => {
                self.begin_session(&admitted)
            }
            (false, Some(session)) => session,
            // Another login has taken the slot since the check, or the session has ended.
            _ => return,
        };
        match Connection::new(&self.scratch, &session, admitted) {
            Ok((connection, permit)) => {
                drop(reactor::spawn(serve(
                    Rc::clone(self),
                    session,
                    connection,
                    permit,
                )));
            }
            Err(error) => {
                tracing::warn!(%peer, %error, "a connection could not change threads");
                self.end_session_without_links(&session);
            }
        }
    }

    /// Whether the target still exists and still admits the initiator. Replaces the target in `admitted` by
    /// its current configuration.
    fn is_current(&self, admitted: &mut Admitted) -> bool {
        let Some(before) = &admitted.target else {
            return true;
        };
        let config = self.context.config();
        let (login, address) = (&admitted.login, admitted.peer.ip());
        let (initiator, user) = (
            login.request.initiator_name.as_str(),
            login.authenticated_as.as_deref(),
        );
        let keeps = |target: &&Arc<Target>| target.keeps(initiator, address, user, admitted.tag);
        admitted.target = config.target(&before.name).filter(keeps).cloned();
        admitted.target.is_some()
    }

    fn begin_session(self: &Rc<Self>, admitted: &Admitted) -> SharedSession {
        let session = Session::begin(&self.context, &self.memory, &self.tally, admitted);
        debug_assert_eq!(
            admitted.login.request.tsih, admitted.slot.tsih,
            "the handle of its slot"
        );
        let before = self
            .sessions
            .borrow_mut()
            .insert(admitted.login.request.tsih.0, Rc::clone(&session));
        debug_assert!(before.is_none(), "a handle has one session at a time");
        self.context
            .server
            .tell(|observer| observer.session_began(session.borrow().info(), admitted.peer.into()));
        session
    }

    /// Ends a session without connections.
    fn end_session_without_links(&self, session: &SharedSession) {
        let slot = session.borrow().identity.slot;
        if session.borrow().links().next().is_none()
            && self.sessions.borrow_mut().remove(&slot.tsih.0).is_some()
        {
            debug_assert_eq!(
                session.borrow().commands.in_flight(),
                0,
                "no task outlives its connection"
            );
            session.borrow().count_end();
            self.context.registry().vacate(slot);
            self.context
                .server
                .tell(|observer| observer.session_ended(session.borrow().info()));
        }
    }

    /// Ends a session by cutting its connections; `done` is dropped when it has ended. A slot whose login is
    /// not complete has no session and is vacated immediately: an initiator that does not read its responses
    /// must not hold the slot.
    pub(crate) fn end(&self, slot: SessionSlot, by: SocketAddr, done: Sender<()>) {
        match self.session(slot.tsih) {
            Some(session) if session.borrow().identity.slot == slot => {
                let mut session = session.borrow_mut();
                session.log_replaced(by);
                session.on_end(done);
                session.links().for_each(|link| link.cut());
            }
            _ => self.context.registry().vacate(slot),
        }
    }

    pub(crate) fn close_target(&self, target: &str, except: Tsih) {
        for session in self.all() {
            let session = session.borrow();
            if session.target() == Some(target) && session.identity.slot.tsih != except {
                session.links().for_each(|link| link.cut());
            }
        }
    }

    /// Ends the sessions with this TSIH or of this initiator. Returns their number.
    pub(crate) fn end_sessions(&self, tsih: Option<u16>, initiator: &str, at_once: bool) -> usize {
        let all = self.all().into_iter();
        all.filter(|session| session.borrow_mut().end(tsih, initiator, at_once))
            .count()
    }

    pub(crate) fn status(&self) -> Vec<SessionStatus> {
        self.all()
            .iter()
            .map(|session| session.borrow().status(self.index))
            .collect()
    }
}

/// Runs a connection in the full feature phase until its end.
async fn serve(
    core: Rc<CoreSessions>,
    session: SharedSession,
    mut connection: Connection,
    permit: ConnectionPermit,
) {
    let end = connection.run().await;
    session.borrow().log_out(&connection.link, &end);
    session.borrow().count_end_of_connection(&end);
    let id = connection.id;
    drop(connection); // closes the socket
    session.borrow_mut().lose_link(reactor::now(), id);
    drop(permit);
    // The next session of the nexus must not start while commands of this session can still reach the medium.
    let aborted_units = session.borrow_mut().commands.take_aborted_units();
    quiesce(&core.context.server, aborted_units).await;
    core.end_session_without_links(&session);
}

/// Messages to other cores.
impl Context {
    /// Runs a closure on another core with that core's part of the front end.
    pub(crate) fn tell(&self, core: usize, what: impl FnOnce(&Rc<CoreSessions>) + Send + 'static) {
        self.server.run_on(core, move |local| {
            if let Some(core) = local.front_end::<CoreSessions>() {
                what(&core);
            }
        });
    }
}
