//! A session on its thread: the machine, the commands that it has, and their requesters.
//!
//! ```text
//!   New ── logged in ──► Up ── no record of it, silence, left ──► Down ── logged in ──► Up, one reinstatement more
//!    │                                                             │ fail_after(reconnect): requests fail, logins go on
//!    └── refused, silence ──► Over ◄── closed; lost, and not to come back
//! ```
//!
//! The machine begins another session by itself when the target has lost its record of one. When nothing answers any more, or the
//! target has closed the session, it ends: the target is looked for again, and another machine logs in, with the same name and port.
//! Either way the commands of the lost session are lost, and none of them is executed after one of the next session.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use hyperscsi::initiator::EndReason;
use hyperscsi::{Counters, Function, FunctionResult, Initiator};
use iscsi_client::carrier::CommandRecord;
use iscsi_client::{CommandError, CommandSpec, Ended, Lun, Timeouts};
use reactor::{DatagramAddress, Receiver, mailbox};

use crate::driver::Driver;
use crate::inner::{Agreed, Inner, PAUSE_LONGEST, Phase, Requester};
use crate::link::Link;
use crate::open::Connector;

/// Interval of timeout checks; timeouts are seconds long.
const TICK: Duration = Duration::from_millis(500);

/// A session, shared by its task and by the requests on its thread.
pub(crate) struct Session {
    inner: RefCell<Inner>,
    shared: Arc<Shared>,
}

/// What other threads read.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) reinstatements: AtomicU64,
    pub(crate) is_lost: AtomicBool,
    replays: AtomicU64,
}

/// How a session is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionStatus {
    /// Bytes of a frame.
    pub frame_bytes: usize,
    /// Commands that may be outstanding.
    pub queue_depth: u32,
    /// Whether frames are sealed, and the target has proven to know the key.
    pub is_encrypted: bool,
    /// Its paths.
    pub paths: Vec<PathStatus>,
    /// What its machine has counted.
    pub counters: Counters,
    /// Sessions that were lost and begun again.
    pub reinstatements: u64,
    /// Commands that were sent again because their outcome was unknown.
    pub replays: u64,
}

/// How a path is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathStatus {
    /// This end.
    pub local: DatagramAddress,
    /// The other one.
    pub remote: DatagramAddress,
    /// Whether it carries frames.
    pub is_up: bool,
    /// Its round trip, once it is measured.
    pub round_trip: Option<Duration>,
    /// Its window.
    pub window_frames: u32,
}

impl Shared {
    pub(crate) fn reinstatements(&self) -> u64 {
        self.reinstatements.load(Relaxed)
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Relaxed)
    }

    pub(crate) fn replayed(&self) {
        self.replays.fetch_add(1, Relaxed);
    }

    pub(crate) fn replays(&self) -> u64 {
        self.replays.load(Relaxed)
    }
}

impl Session {
    /// A session that logs in by this machine, over this link. Its tasks end when it is over.
    pub(crate) fn begin(
        machine: Initiator,
        link: Link,
        connector: Connector,
        timeouts: Timeouts,
        record: CommandRecord,
    ) -> Rc<Session> {
        let inner = Inner::new(machine, link.ends(), timeouts, record);
        let session = Rc::new(Session { inner: RefCell::new(inner), shared: Arc::default() });
        drop(reactor::spawn(drive(Rc::clone(&session), link, connector)));
        drop(reactor::spawn(keep_time(Rc::downgrade(&session))));
        session
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Ends when the first login has succeeded; an error if it has not.
    pub(crate) async fn logged_in(&self) -> Result<(), EndReason> {
        poll_fn(|cx| {
            let mut inner = self.inner.borrow_mut();
            match inner.phase {
                Phase::New => inner.wait(cx.waker()),
                Phase::Over(reason) => Poll::Ready(Err(reason)),
                Phase::Up { .. } | Phase::Down { .. } => Poll::Ready(Ok(())),
            }
        })
        .await
    }

    /// Sends a command, as soon as there is room.
    pub(crate) fn request(self: &Rc<Session>, spec: CommandSpec) -> Request {
        let now = reactor::now();
        let mut inner = self.inner.borrow_mut();
        let ticket = inner.submit(now, spec, self.shared.reinstatements());
        inner.fill(now, self.shared.reinstatements());
        inner.wake_driver();
        drop(inner);
        Request { session: Rc::clone(self), ticket, is_done: false }
    }

    /// Sends a task management function; its result comes from the receiver, which ends without one if the session is lost.
    pub(crate) fn manage(
        &self,
        function: Function,
        lun: Lun,
    ) -> Result<Receiver<FunctionResult>, CommandError> {
        let mut inner = self.inner.borrow_mut();
        let machine = inner.machine.as_mut().ok_or(CommandError::ConnectionLost)?;
        let id = machine.manage(function, lun.0.to_be_bytes(), None);
        let id = id.map_err(|_| CommandError::ConnectionLost)?;
        let (sender, receiver) = mailbox();
        inner.functions.insert(id, sender);
        inner.wake_driver();
        Ok(receiver)
    }

    /// How it is, if it is logged in.
    pub(crate) fn status(&self) -> Option<SessionStatus> {
        let inner = self.inner.borrow();
        let machine = inner.machine.as_ref().filter(|_| matches!(inner.phase, Phase::Up { .. }))?;
        let paths = machine.paths().into_iter().zip(&inner.ends);
        let path = |((is_up, round_trip, window_frames), &(local, remote))| PathStatus {
            local,
            remote,
            is_up,
            round_trip,
            window_frames,
        };
        let Agreed { frame_bytes, queue_depth, is_encrypted } = inner.agreed;
        Some(SessionStatus {
            frame_bytes,
            queue_depth,
            is_encrypted,
            paths: paths.map(path).collect(),
            counters: inner.counters(),
            reinstatements: self.shared.reinstatements(),
            replays: self.shared.replays(),
        })
    }

    /// Of a function.
    pub(crate) fn reset_time(&self) -> Duration {
        self.inner.borrow().timeouts.reset
    }

    pub(crate) async fn usable(&self) -> Result<(), CommandError> {
        poll_fn(|cx| {
            let mut inner = self.inner.borrow_mut();
            match inner.phase {
                Phase::Up { .. } => Poll::Ready(Ok(())),
                Phase::Over(_) | Phase::Down { fails: true, .. } => {
                    Poll::Ready(Err(CommandError::ConnectionLost))
                }
                Phase::New | Phase::Down { fails: false, .. } => inner.wait(cx.waker()),
            }
        })
        .await
    }

    pub(crate) async fn quiesced(&self) -> Result<(), CommandError> {
        let mark = self.inner.borrow().next_ticket;
        poll_fn(|cx| {
            let mut inner = self.inner.borrow_mut();
            let mut older = inner.tasks.range(..mark);
            if older.any(|(_, task)| matches!(task.requester, Requester::Gone | Requester::Expired)) {
                return inner.wait(cx.waker());
            }
            match inner.phase {
                _ if !inner.are_some_lost => Poll::Ready(Ok(())),
                Phase::Over(_) | Phase::Down { fails: true, .. } => {
                    Poll::Ready(Err(CommandError::ConnectionLost))
                }
                Phase::New | Phase::Up { .. } | Phase::Down { fails: false, .. } => inner.wait(cx.waker()),
            }
        })
        .await
    }

    /// Says farewell, and ends when the session is over.
    pub(crate) async fn close(&self) {
        {
            let mut inner = self.inner.borrow_mut();
            inner.is_leaving = true;
            match &mut inner.machine {
                Some(machine) => machine.disconnect(reactor::now()),
                None => inner.end_session(EndReason::Disconnected, &self.shared),
            }
            inner.wake_driver();
        }
        poll_fn(|cx| {
            let mut inner = self.inner.borrow_mut();
            if inner.is_over() { Poll::Ready(()) } else { inner.wait(cx.waker()) }
        })
        .await;
    }

    /// Runs `work` unless the session is over.
    async fn unless_over<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        poll_fn(|cx| {
            {
                let mut inner = self.inner.borrow_mut();
                if inner.is_over() {
                    return Poll::Ready(None);
                }
                let _: Poll<()> = inner.wait(cx.waker());
            }
            work.as_mut().poll(cx).map(Some)
        })
        .await
    }

    /// Ready when there is no machine any more.
    fn poll(&self, driver: &mut Driver, cx: &mut Context<'_>) -> Poll<()> {
        let inner = &mut *self.inner.borrow_mut();
        inner.driver = Some(cx.waker().clone());
        let now = reactor::now();
        inner.now = now;
        if let Some(machine) = &mut inner.machine {
            driver.receive(machine, now, cx);
            if machine.poll_timeout().is_some_and(|at| at <= now) {
                machine.handle_timeout(now);
            }
        }
        inner.take_events(now, &self.shared);
        inner.fill(now, self.shared.reinstatements());
        let Some(machine) = &mut inner.machine else { return Poll::Ready(()) };
        driver.transmit(machine, now, cx);
        // An event may have come of the last frame.
        if inner.take_events(now, &self.shared) {
            cx.waker().wake_by_ref();
        }
        let Some(machine) = &inner.machine else { return Poll::Ready(()) };
        driver.wait_until(machine.poll_timeout(), cx);
        Poll::Pending
    }
}

/// Serves a session until it is over.
async fn drive(session: Rc<Session>, link: Link, connector: Connector) {
    let mut driver = Driver::new(link);
    loop {
        poll_fn(|cx| session.poll(&mut driver, cx)).await;
        match begin_again(&session, &connector).await {
            Some(link) => driver = Driver::new(link),
            None => return,
        }
    }
}

/// Looks for the target of a lost session, with pauses, and gives the session another machine. `None` when it is over.
async fn begin_again(session: &Session, connector: &Connector) -> Option<Link> {
    loop {
        let pause = {
            let mut inner = session.inner.borrow_mut();
            let pause = inner.pause;
            inner.pause = (pause * 2).min(PAUSE_LONGEST);
            pause
        };
        session.unless_over(reactor::sleep(connector.spread(pause))).await?;
        let found = session.unless_over(connector.machine_again()).await?;
        let mut inner = session.inner.borrow_mut();
        match found {
            Ok((link, machine)) if !inner.is_over() => {
                inner.machine = Some(machine);
                inner.ends = link.ends();
                inner.frames = 0;
                return Some(link);
            }
            Ok(_) => return None,
            Err(error) => inner.say(&error.to_string()),
        }
    }
}

/// Processes timeouts while the session exists.
async fn keep_time(session: Weak<Session>) {
    loop {
        reactor::sleep(TICK).await;
        let Some(session) = session.upgrade() else { return };
        let mut inner = session.inner.borrow_mut();
        if inner.is_over() {
            return;
        }
        inner.pass_time(reactor::now(), &session.shared);
        inner.fill(reactor::now(), session.shared.reinstatements());
        inner.wake_driver();
    }
}

/// A command from its submission to its end. Dropped early, it is aborted.
pub(crate) struct Request {
    session: Rc<Session>,
    ticket: u64,
    is_done: bool,
}

impl Future for Request {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        let ended = self.session.inner.borrow_mut().poll_request(self.ticket, cx.waker());
        match ended {
            Some(ended) => {
                self.is_done = true;
                Poll::Ready(ended)
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.is_done {
            self.session.inner.borrow_mut().abandon(self.ticket);
        }
    }
}
