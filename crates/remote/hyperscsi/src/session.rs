//! The task of a session, which runs the state machine, its commands, and their requesters.
//!
//! ```text
//!   New ── logged in ──► Up ── no record of it, silence, left ──► Down ── logged in ──► Up, one reinstatement more
//!    │                                                             │ fail_after(reconnect): requests fail, logins go on
//!    └── refused, silence ──► Over ◄── closed; lost, and not to come back
//! ```
//!
//! If the target has lost its record of the session, the state machine automatically starts a new session. If
//! the target stops responding or closes the session, the state machine ends. The client then searches for
//! the target again, and another state machine logs in with the same name and port. In both cases, the
//! commands of the lost session are lost, and the target executes none of them after a command of the next
//! session.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use hyperscsi::initiator::{Config, EndReason, Times};
use hyperscsi::{Counters, DATA_BYTES_MAX, Function, FunctionResult, Initiator, Psk};
use iscsi_client::{
    Answer, Authenticated, Carrier, CommandEnd, CommandError, CommandRecord, CommandSpec, Isid,
    Lun, Management, Nexus, RemoteLun, RemoteTarget, TaskManagementResult, Timeouts, Tsih,
    secret_file,
};
use reactor::{DatagramAddress, Receiver, Resident, mailbox};

use crate::inner::{Agreed, Inner, PAUSE_FIRST, PAUSE_LONGEST, Phase, Requester, Shared};
use crate::link::{self, Driver, Link, OpenError, Random};
use crate::url::{SCHEME, Url};

/// Interval of timeout checks. Timeouts take seconds, so this is precise enough.
const TICK: Duration = Duration::from_millis(500);

/// A session, shared by its task and by the requests on its thread.
pub(crate) struct Session {
    inner: RefCell<Inner>,
    shared: Arc<Shared>,
}

/// The status of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionStatus {
    /// Maximum length of a frame in bytes.
    pub frame_bytes: usize,
    /// Maximum number of outstanding commands.
    pub queue_depth: u32,
    /// Whether frames are encrypted, and the target has proven that it has the key.
    pub is_encrypted: bool,
    /// The session's paths.
    pub paths: Vec<PathStatus>,
    /// The counters of the session's state machines.
    pub counters: Counters,
    /// Number of times that the session was lost and reinstated.
    pub reinstatements: u64,
    /// Commands that were sent again because their outcome was unknown.
    pub replays: u64,
}

/// The status of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathStatus {
    /// The local address.
    pub local: DatagramAddress,
    /// The target's address.
    pub remote: DatagramAddress,
    /// Whether the path carries frames.
    pub is_up: bool,
    /// The path's round-trip time; `None` until it is measured.
    pub round_trip: Option<Duration>,
    /// The path's window, in frames.
    pub window_frames: u32,
}

impl Session {
    /// Starts a session that logs in with this state machine, over this link. The session's tasks end when
    /// the session is over.
    pub(crate) fn begin(
        machine: Initiator,
        link: Link,
        connector: Connector,
        timeouts: Timeouts,
        record: CommandRecord,
    ) -> Rc<Session> {
        let inner = Inner::new(machine, link.ends(), timeouts, record);
        let session = Rc::new(Session {
            inner: RefCell::new(inner),
            shared: Arc::default(),
        });
        drop(reactor::spawn(drive(Rc::clone(&session), link, connector)));
        drop(reactor::spawn(keep_time(Rc::downgrade(&session))));
        session
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Resolves when the first login has succeeded or failed.
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

    /// Sends a command as soon as the state machine has space for it.
    pub(crate) fn request(self: &Rc<Session>, spec: CommandSpec) -> Request {
        let now = reactor::now();
        let mut inner = self.inner.borrow_mut();
        let ticket = inner.submit(now, spec, self.shared.reinstatements());
        inner.fill(now, self.shared.reinstatements());
        inner.wake_driver();
        drop(inner);
        Request {
            session: Rc::clone(self),
            ticket,
            is_done: false,
        }
    }

    /// Sends a task management function. The receiver gets the function's result, and is closed if the
    /// session is lost.
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

    /// The session's status; `None` if it is not logged in.
    pub(crate) fn status(&self) -> Option<SessionStatus> {
        let inner = self.inner.borrow();
        let machine = inner
            .machine
            .as_ref()
            .filter(|_| matches!(inner.phase, Phase::Up { .. }))?;
        let paths = machine.paths().into_iter().zip(&inner.ends);
        let path = |((is_up, round_trip, window_frames), &(local, remote))| PathStatus {
            local,
            remote,
            is_up,
            round_trip,
            window_frames,
        };
        let Agreed {
            frame_bytes,
            queue_depth,
            is_encrypted,
        } = inner.agreed;
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

    /// Time limit of a task management function.
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
            if older.any(|(_, task)| matches!(task.requester, Requester::Gone | Requester::Expired))
            {
                return inner.wait(cx.waker());
            }
            match inner.phase {
                _ if !inner.are_some_lost => Poll::Ready(Ok(())),
                Phase::Over(_) | Phase::Down { fails: true, .. } => {
                    Poll::Ready(Err(CommandError::ConnectionLost))
                }
                Phase::New | Phase::Up { .. } | Phase::Down { fails: false, .. } => {
                    inner.wait(cx.waker())
                }
            }
        })
        .await
    }

    /// Closes the session. Resolves when the session is over.
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
            if inner.is_over() {
                Poll::Ready(())
            } else {
                inner.wait(cx.waker())
            }
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

    /// Runs the state machine. Ready when the state machine has ended.
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
        let Some(machine) = &mut inner.machine else {
            return Poll::Ready(());
        };
        driver.transmit(machine, now, cx);
        // Sending frames may have caused an event.
        if inner.take_events(now, &self.shared) {
            cx.waker().wake_by_ref();
        }
        let Some(machine) = &inner.machine else {
            return Poll::Ready(());
        };
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

/// Searches for the target of a lost session, with pauses between attempts, and gives the session another
/// state machine. Returns `None` when the session is over.
async fn begin_again(session: &Session, connector: &Connector) -> Option<Link> {
    loop {
        let pause = {
            let mut inner = session.inner.borrow_mut();
            let pause = inner.pause;
            debug_assert!(
                (PAUSE_FIRST..=PAUSE_LONGEST).contains(&pause),
                "a pause is within its limits"
            );
            inner.pause = (pause * 2).min(PAUSE_LONGEST);
            pause
        };
        session
            .unless_over(reactor::sleep(connector.spread(pause)))
            .await?;
        let found = session.unless_over(connector.machine(FIND_AGAIN)).await?;
        let mut inner = session.inner.borrow_mut();
        match found {
            Ok((link, machine)) if !inner.is_over() => {
                debug_assert!(inner.machine.is_none(), "a session has one state machine");
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

/// Checks timeouts at regular intervals while the session exists.
async fn keep_time(session: Weak<Session>) {
    loop {
        reactor::sleep(TICK).await;
        let Some(session) = session.upgrade() else {
            return;
        };
        let mut inner = session.inner.borrow_mut();
        if inner.is_over() {
            return;
        }
        inner.pass_time(reactor::now(), &session.shared);
        inner.fill(reactor::now(), session.shared.reinstatements());
        inner.wake_driver();
    }
}

/// A command, as a future, from its submission to its end. If the future is dropped early, the command is
/// aborted.
pub(crate) struct Request {
    session: Rc<Session>,
    ticket: u64,
    is_done: bool,
}

impl Future for Request {
    type Output = CommandEnd;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CommandEnd> {
        let ended = self
            .session
            .inner
            .borrow_mut()
            .poll_request(self.ticket, cx.waker());
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

// A session as a carrier of SCSI commands for `iscsi_client`.

/// A session, usable from any thread.
pub(crate) struct HyperScsi {
    pub(crate) session: Resident<Session>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) nexus: Nexus,
}

/// A session as the carrier of an [`iscsi_client::RemoteTarget`].
pub(crate) struct Carried(pub(crate) Arc<HyperScsi>);

impl Carrier for Carried {
    fn carry(&self, command: CommandSpec) -> Answer<'_, CommandEnd> {
        match self.0.session.here() {
            Some(session) => Box::pin(session.request(command)),
            None => Box::pin(async {
                let ended = self.0.session.ask(|session| session.request(command)).await;
                ended.unwrap_or(CommandEnd::unfinished(CommandError::ConnectionLost))
            }),
        }
    }

    fn manage(
        &self,
        management: Management,
    ) -> Answer<'_, Result<TaskManagementResult, CommandError>> {
        let (function, lun) = function(management);
        Box::pin(async move {
            let managed = self.0.session.with(async move |session| {
                let mut answer = session.manage(function, lun)?;
                let answered = reactor::timeout(session.reset_time(), answer.recv()).await;
                let result = answered
                    .map_err(|_| CommandError::TimedOut)?
                    .ok_or(CommandError::ConnectionLost)?;
                Ok(meaning(result))
            });
            managed.await.unwrap_or(Err(CommandError::ConnectionLost))
        })
    }

    fn usable(&self) -> Answer<'_, Result<(), CommandError>> {
        Box::pin(async {
            let usable = self
                .0
                .session
                .with(async |session| session.usable().await)
                .await;
            usable.unwrap_or(Err(CommandError::ConnectionLost))
        })
    }

    fn quiesced(&self) -> Answer<'_, Result<(), CommandError>> {
        Box::pin(async {
            let quiesced = self.0.session.with(async |session| {
                reactor::catch_up().await;
                session.quiesced().await
            });
            let quiesced = quiesced.await;
            quiesced.unwrap_or(Err(CommandError::ConnectionLost))
        })
    }

    fn close(&self) -> Answer<'_, ()> {
        // If the thread does not respond, it has ended, and the session with it.
        Box::pin(async {
            let _ = self
                .0
                .session
                .with(async |session| session.close().await)
                .await;
        })
    }

    fn reinstatements(&self) -> u64 {
        self.0.shared.reinstatements()
    }

    fn is_lost(&self) -> bool {
        self.0.shared.is_lost()
    }

    fn replayed(&self) {
        self.0.shared.replayed();
    }

    fn data_bytes_max(&self) -> usize {
        DATA_BYTES_MAX
    }

    fn nexus(&self) -> Nexus {
        self.0.nexus.clone()
    }
}

/// Converts a task management function. HyperSCSI uses iSCSI's functions and their numbers.
fn function(management: Management) -> (Function, Lun) {
    let (code, lun) = match management {
        Management::AbortTaskSet(lun) => (2, lun),
        Management::ClearAca(lun) => (3, lun),
        Management::ClearTaskSet(lun) => (4, lun),
        Management::LogicalUnitReset(lun) => (5, lun),
        Management::TargetWarmReset => (6, Lun(0)),
        Management::TargetColdReset => (7, Lun(0)),
        Management::QueryTaskSet(lun) => (10, lun),
        Management::ITNexusReset(lun) => (11, lun),
        Management::QueryAsynchronousEvent(lun) => (12, lun),
    };
    (Function::from(code), lun)
}

fn meaning(result: FunctionResult) -> TaskManagementResult {
    match result {
        FunctionResult::Complete => TaskManagementResult::FunctionComplete,
        FunctionResult::Succeeded => TaskManagementResult::FunctionSucceeded,
        FunctionResult::Rejected => TaskManagementResult::FunctionRejected,
        FunctionResult::IncorrectLun => TaskManagementResult::LunDoesNotExist,
    }
}

// Opens LUNs by their URLs.

/// Time limit of one search for the target of a lost session.
const FIND_AGAIN: Duration = Duration::from_secs(5);
/// Maximum time without a response after which a session is lost. The time is `reconnect-time` if that is
/// shorter, but at least [`GIVE_UP_LEAST`].
const GIVE_UP: Duration = Duration::from_secs(60);
const GIVE_UP_LEAST: Duration = Duration::from_secs(10);

/// Logs in to the target of a URL and attaches its LUN. The session runs on this thread's reactor, which must
/// keep running while the LUN is in use.
pub async fn open(url: &Url, random: Random) -> Result<RemoteLun, OpenError> {
    open_with_session(url, random).await.map(|(lun, _)| lun)
}

/// The port of the next session. The sessions of this process have consecutive ports, starting with a random
/// one, because a server distributes sessions over its cores by port.
fn next_port(random: Random) -> u32 {
    static FIRST: OnceLock<u32> = OnceLock::new();
    static OPENED: AtomicU32 = AtomicU32::new(0);
    let first = FIRST.get_or_init(|| {
        let mut first = [0; 4];
        random(&mut first);
        u32::from_be_bytes(first)
    });
    first.wrapping_add(OPENED.fetch_add(1, Ordering::Relaxed))
}

/// Like [`open`], but also returns the session.
pub async fn open_with_session(
    url: &Url,
    random: Random,
) -> Result<(RemoteLun, SessionHandle), OpenError> {
    let Opened { target, session } = open_target(url, random).await?;
    match target.lun(url.lun).await {
        Ok(lun) => Ok((lun, session)),
        Err(error) => {
            target.close().await;
            Err(OpenError::Lun(error))
        }
    }
}

/// Logs in to the target of a URL, without attaching a LUN.
pub async fn open_target(url: &Url, random: Random) -> Result<Opened, OpenError> {
    let options = &url.options;
    let port = options.port.unwrap_or_else(|| next_port(random));
    let connector = Connector {
        url: url.clone(),
        port,
        random,
    };
    let end = reactor::now() + options.timeout;
    let (link, machine) = connector.machine(options.timeout).await?;
    let nexus = connector.nexus(&link);
    let timeouts = Timeouts {
        command: options.timeout,
        reconnect: options.reconnect,
        ..Timeouts::default()
    };
    let record = CommandRecord::default();
    let session = Session::begin(machine, link, connector, timeouts, record.clone());
    OPEN.with_borrow_mut(|open| {
        open.retain(|session| session.strong_count() > 0);
        open.push(Rc::downgrade(&session));
    });
    let left = end.saturating_duration_since(reactor::now());
    let silent = || OpenError::Silent {
        place: format!("{}://{}", url.place.scheme(), url.place),
        time: options.timeout,
    };
    match reactor::timeout(left, session.logged_in()).await {
        Ok(Ok(())) => {}
        Ok(Err(EndReason::Unreachable)) => return Err(silent()),
        Ok(Err(EndReason::Refused(refusal))) => {
            return Err(OpenError::Refused {
                target: url.target.clone(),
                refusal,
                has_key: options.key_file.is_some(),
                name: options.name.clone(),
            });
        }
        Ok(Err(reason)) => {
            return Err(OpenError::Login {
                target: url.target.clone(),
                reason,
            });
        }
        Err(_) => {
            session.close().await;
            return Err(silent());
        }
    }
    let shared = Arc::clone(session.shared());
    let session = Resident::new(session, async |session: Rc<Session>| session.close().await);
    let session = Arc::new(HyperScsi {
        session,
        shared,
        nexus,
    });
    let target = RemoteTarget::carried(Carried(Arc::clone(&session)), &record, timeouts);
    Ok(Opened {
        target,
        session: SessionHandle(session),
    })
}

/// A target with a session.
pub struct Opened {
    /// The target, through which LUNs can be opened.
    pub target: Arc<RemoteTarget>,
    /// The session, for its status.
    pub session: SessionHandle,
}

/// A session's status, usable from any thread. It keeps the session alive.
#[derive(Clone)]
pub struct SessionHandle(Arc<HyperScsi>);

impl SessionHandle {
    /// The status; `None` if the thread of the session has ended, or the session is not logged in now.
    pub async fn status(&self) -> Option<SessionStatus> {
        self.0
            .session
            .with(async |session| session.status())
            .await?
    }
}

thread_local! {
    static OPEN: RefCell<Vec<Weak<Session>>> = const { RefCell::new(Vec::new()) };
}

/// Closes all sessions of this thread. Otherwise, their targets would keep them until they time out.
pub async fn closed() {
    let open: Vec<Rc<Session>> = OPEN.take().iter().filter_map(Weak::upgrade).collect();
    let closing: Vec<_> = open
        .into_iter()
        .map(|session| reactor::spawn(async move { session.close().await }))
        .collect();
    for closing in closing {
        closing.await;
    }
}

/// The data that every login of a session needs.
pub(crate) struct Connector {
    url: Url,
    port: u32,
    random: Random,
}

impl Connector {
    /// Finds the target, and starts a login.
    async fn machine(&self, time: Duration) -> Result<(Link, Initiator), OpenError> {
        let Url {
            place,
            target,
            options,
            ..
        } = &self.url;
        // The key is read at every login, like iSCSI secrets.
        let key = options.key_file.as_deref().map(|path| {
            let secret = secret_file::read(path).map_err(|error| OpenError::Key {
                path: path.to_owned(),
                error,
            })?;
            if secret.is_empty() {
                let error = io::Error::new(io::ErrorKind::InvalidData, "it is empty");
                return Err(OpenError::Key {
                    path: path.to_owned(),
                    error,
                });
            }
            Ok((Psk::from_secret(&secret), options.cipher))
        });
        let key = key.transpose()?;
        let link = link::find(place, target, options, time, self.random).await?;
        let config = Config {
            port: self.port,
            key,
            frame_bytes: link.sizes.clone(),
            paths: link.routes.len() as u8,
            times: Times {
                give_up: options.reconnect.clamp(GIVE_UP_LEAST, GIVE_UP),
                ..Times::default()
            },
            ..Config::new(&options.name, target)
        };
        let mut seed = [0; 32];
        (self.random)(&mut seed);
        Ok((link, Initiator::new(reactor::now(), config, seed)))
    }

    /// Adds a random part to a pause, so that a target's initiators do not all log in at the same time.
    pub(crate) fn spread(&self, pause: Duration) -> Duration {
        let mut dice = [0];
        (self.random)(&mut dice);
        pause + pause.mul_f64(f64::from(dice[0]) / 512.0)
    }

    /// The initiator and the target in iSCSI terms, as Linerate's server names them in reservations. The port
    /// takes the place of an ISID. There is no portal group, and on an Ethernet there is no IP address.
    fn nexus(&self, link: &Link) -> Nexus {
        let address = link.routes.first().and_then(|route| match route.to {
            DatagramAddress::Udp(address) => Some(address),
            DatagramAddress::Ethernet(_) => None,
        });
        let [a, b, c, d] = self.port.to_be_bytes();
        Nexus {
            initiator: format!("{SCHEME}:{}", self.url.options.name),
            isid: Isid([0, 0, a, b, c, d]),
            target: self.url.target.clone(),
            target_portal_group_tag: None,
            tsih: Tsih::NEW,
            address: address.unwrap_or(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0)),
            authentication: Authenticated::Neither,
        }
    }
}
