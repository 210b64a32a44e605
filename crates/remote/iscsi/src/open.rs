//! Opens a LUN by its URL, lists the targets of a portal, and recovers a lost session.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::future::{self, Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use iscsi::framing::Framing;
use iscsi::initiator::{ConnectionStart, NopPolicy, Session as Machine, SessionConfig};
use iscsi::login::{Authenticated, InitiatorConfig};
use iscsi::name::Name;
use iscsi::negotiate::{Parameters, SessionType};
use iscsi::pdu::{Cid, Isid, Itt, Sn, Tsih};
use reactor::Stream;
use scsi::LunAddress;

use crate::connection::Connection;
use crate::error::{CommandError, Ending, OpenError};
use crate::inner::{Outage, Restart};
use crate::login::{LoggedIn, Outcome, Random, chap, log_in};
use crate::lun::RemoteLun;
use crate::remote_target::RemoteTarget;
use crate::session::Session;
use crate::session_state::{Fault, Nexus};
use crate::url::{Portal, Settings, Timeouts, Url, on_link};

/// Logs in to the target of `url` and attaches its LUN.
///
/// The session runs on this thread's reactor, which must keep running while the LUN is in use. `random`
/// provides the session's identifier and the CHAP challenges.
pub async fn open(url: &Url, random: Random) -> Result<RemoteLun, OpenError> {
    let target = open_target(&url.portal, &url.target, &url.settings, random).await?;
    target.lun(url.lun).await
}

/// Logs in to a target, without attaching a LUN.
pub async fn open_target(
    portal: &Portal,
    target: &str,
    settings: &Settings,
    random: Random,
) -> Result<Arc<RemoteTarget>, OpenError> {
    if settings.paths.are_several() {
        return Err(OpenError::SeveralPaths);
    }
    let connector = Connector::new(portal, settings, random, Some(target))?;
    let (session, _) = connector.session().await?;
    Ok(RemoteTarget::new(
        session,
        Timeouts::new(settings),
        settings.recorder.clone(),
    ))
}

/// Maximum number of redirections. More of them are considered a loop.
const REDIRECTIONS_MAX: usize = 4;

/// Portal, target and settings of a session, the same for every login.
pub(crate) struct Connector {
    portal: Portal,
    settings: Settings,
    pub(crate) random: Random,
    /// The target's name; `None` for discovery.
    target_name: Option<Name>,
    initiator_name: Name,
    isid: Isid,
}

/// The results of the leading login of a session, which further connections and a restart of the session
/// need.
#[derive(Clone)]
pub(crate) struct LeadingLogin {
    pub(crate) address: SocketAddr,
    tsih: Tsih,
    target_portal_group_tag: Option<u16>,
    parameters: Parameters,
    authentication: Authenticated,
}

impl LeadingLogin {
    fn new(address: SocketAddr, first: &LoggedIn) -> LeadingLogin {
        LeadingLogin {
            address,
            tsih: first.attached.tsih,
            target_portal_group_tag: first.attached.target_portal_group_tag,
            parameters: first.attached.parameters.clone(),
            authentication: first.attached.authentication,
        }
    }

    /// Returns whether two sessions with one target have the same target port. A SCSI target port is
    /// identified by the target's name and a portal group tag (RFC 7143 section 4.4.2). Without a tag, the
    /// addresses of the portals are compared.
    pub(crate) fn is_same_port(&self, other: &LeadingLogin) -> bool {
        match (self.target_portal_group_tag, other.target_portal_group_tag) {
            (Some(tag), Some(other)) => tag == other,
            (None, None) => self.address == other.address,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    /// Returns the same login, at another portal of the target port.
    pub(crate) fn at(&self, address: SocketAddr) -> LeadingLogin {
        LeadingLogin {
            address,
            ..self.clone()
        }
    }

    /// Returns the portal group tag, for messages.
    pub(crate) fn group(&self) -> String {
        self.target_portal_group_tag
            .map_or_else(|| "unknown".to_owned(), |tag| tag.to_string())
    }
}

impl fmt::Display for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target_name {
            Some(name) => write!(f, "{}/{name}", self.portal),
            None => self.portal.fmt(f),
        }
    }
}

impl Connector {
    pub(crate) fn new(
        portal: &Portal,
        settings: &Settings,
        random: Random,
        target: Option<&str>,
    ) -> Result<Connector, OpenError> {
        Ok(Connector {
            portal: portal.clone(),
            random,
            target_name: target.map(name_to_send).transpose()?,
            initiator_name: name_to_send(&settings.initiator)?,
            isid: settings.isid.unwrap_or_else(|| isid(random)),
            settings: settings.clone(),
        })
    }

    /// Opens a session with all its connections, and starts its recovery.
    pub(crate) async fn session(self) -> Result<(Rc<Session>, LeadingLogin), OpenError> {
        let (leading, machine, first) = self.lead().await?;
        let session = Session::new(
            *machine,
            self.nexus(&leading),
            Timeouts::new(&self.settings),
        );
        self.join(&session, Cid(0), first);
        if let Err(error) = self.join_others(&session, &leading).await {
            session.close().await;
            return Err(error);
        }
        reactor::spawn(keep_time(Rc::downgrade(&session)));
        reactor::spawn(recover(Rc::clone(&session), self, leading.clone()));
        Ok((session, leading))
    }

    /// Opens further connections. If the session loses all of its connections in the meantime, it ends, and
    /// no further connection joins.
    async fn join_others(
        &self,
        session: &Rc<Session>,
        leading: &LeadingLogin,
    ) -> Result<(), OpenError> {
        for cid in 1..self.connections(leading) {
            let cmd_sn = session.inner().machine.cmd_sn();
            let further = self.follow(leading, Cid(cid), cmd_sn).await?;
            if !session.inner().state().is_up() {
                return Err(OpenError::Broken {
                    address: leading.address,
                    ending: Ending::Closed,
                });
            }
            self.join(session, Cid(cid), further);
        }
        Ok(())
    }

    /// Starts the task of a logged-in connection.
    pub(crate) fn join(&self, session: &Rc<Session>, cid: Cid, logged_in: LoggedIn) {
        let LoggedIn {
            stream,
            attached,
            already,
            recording,
        } = logged_in;
        let framing = Framing::new(&attached.parameters);
        let id =
            session
                .inner()
                .add_connection(reactor::now(), cid, ConnectionStart::new(&attached));
        let (peer, stream) = (stream.peer(), Rc::<dyn Stream>::from(stream));
        session.inner().watch(id, &stream);
        let mut connection =
            Connection::new(Rc::clone(session), id, stream, framing, &already, recording);
        connection.gather(self.settings.gather);
        reactor::spawn(async move {
            match connection.run().await {
                Ending::LoggedOut => tracing::debug!(%peer, "logged out"),
                ending => tracing::warn!(%peer, "the connection to the target ended: {ending}"),
            }
        });
    }

    /// Returns the number of connections of a session.
    pub(crate) fn connections(&self, leading: &LeadingLogin) -> u16 {
        self.settings
            .offers
            .max_connections
            .min(leading.parameters.max_connections)
    }

    /// Performs a leading login, for a new or a restarted session.
    pub(crate) async fn lead(&self) -> Result<(LeadingLogin, Box<Machine>, LoggedIn), OpenError> {
        let (address, first) = self.first_connection(&self.leading_config()?).await?;
        let leading = LeadingLogin::new(address, &first);
        let machine = Box::new(Machine::new(self.session_config(&first)));
        Ok((leading, machine, first))
    }

    /// Logs in to an abandoned nexus, which terminates the old session and all its tasks (RFC 7143 section
    /// 6.3.5), and logs out. Returns false if the login reached another portal group, which does not affect
    /// the nexus.
    pub(crate) async fn end_nexus(&self, left: &LeadingLogin) -> Result<bool, OpenError> {
        let Outcome::LoggedIn(first) =
            log_in(left.address, &self.settings, self.leading_config()?).await?
        else {
            return Ok(false);
        };
        let here = LeadingLogin::new(left.address, &first);
        let timeouts = Timeouts {
            reconnect: Duration::ZERO,
            ..Timeouts::new(&self.settings)
        };
        let session = Session::new(
            Machine::new(self.session_config(&first)),
            self.nexus(&here),
            timeouts,
        );
        self.join(&session, Cid(0), first);
        reactor::spawn(async move { session.close().await });
        Ok(here.is_same_port(left))
    }

    /// Returns the I_T nexus of a login.
    pub(crate) fn nexus(&self, leading: &LeadingLogin) -> Nexus {
        Nexus {
            initiator: self.initiator_name.to_string(),
            isid: self.isid,
            target: self
                .target_name
                .as_ref()
                .map(Name::to_string)
                .unwrap_or_default(),
            target_portal_group_tag: leading.target_portal_group_tag,
            tsih: leading.tsih,
            address: leading.address,
            authentication: leading.authentication,
        }
    }

    /// Logs in a further connection.
    pub(crate) async fn follow(
        &self,
        leading: &LeadingLogin,
        cid: Cid,
        cmd_sn: Sn,
    ) -> Result<LoggedIn, OpenError> {
        let config = InitiatorConfig {
            tsih: leading.tsih,
            cid,
            cmd_sn,
            session: Some(leading.parameters.clone()),
            ..self.leading_config()?
        };
        let address = leading.address;
        let Outcome::LoggedIn(further) = log_in(address, &self.settings, config).await? else {
            return Err(OpenError::Redirected(address));
        };
        match (
            leading.target_portal_group_tag,
            further.attached.target_portal_group_tag,
        ) {
            (Some(session), Some(connection)) if session != connection => {
                Err(OpenError::AnotherGroup {
                    address,
                    session,
                    connection,
                })
            }
            _ => Ok(further),
        }
    }

    fn leading_config(&self) -> Result<InitiatorConfig, OpenError> {
        let kind = if self.target_name.is_some() {
            SessionType::Normal
        } else {
            SessionType::Discovery
        };
        Ok(InitiatorConfig {
            initiator_name: self.initiator_name.clone(),
            target_name: self.target_name.clone(),
            session_type: kind,
            isid: self.isid,
            tsih: Tsih::NEW,
            cid: Cid(0),
            itt: Itt::new(0).expect("0 is not the reserved tag"),
            cmd_sn: Sn(1),
            chap: chap(&self.settings, self.random)?,
            offers: self.settings.offers.clone(),
            session: None,
        })
    }

    /// Logs in at the first of the portal's addresses that accepts, following redirections.
    async fn first_connection(
        &self,
        config: &InitiatorConfig,
    ) -> Result<(SocketAddr, LoggedIn), OpenError> {
        let mut addresses = resolve(&self.portal).await?;
        let mut last = OpenError::NoAddress(self.portal.host.clone());
        let mut redirected_by = None;
        for _ in 0..=REDIRECTIONS_MAX {
            let mut elsewhere = None;
            for address in std::mem::take(&mut addresses) {
                match log_in(address, &self.settings, config.clone()).await {
                    Ok(Outcome::LoggedIn(first)) => return Ok((address, first)),
                    Ok(Outcome::Redirected(to)) => {
                        tracing::info!(portal = %address, to, "the login is redirected");
                        redirected_by = Some(address);
                        last = OpenError::Redirected(address);
                        elsewhere = Some((to, address));
                        break;
                    }
                    Err(error) => last = after_redirection(redirected_by, error),
                }
            }
            match elsewhere {
                Some((to, asked)) => {
                    let resolved = match Portal::from_peer(&to, asked) {
                        Ok(portal) => resolve(&portal).await,
                        Err(error) => Err(OpenError::Url(error)),
                    };
                    addresses =
                        resolved.map_err(|error| after_redirection(redirected_by, error))?;
                }
                None => break,
            }
        }
        Err(last)
    }

    fn session_config(&self, first: &LoggedIn) -> SessionConfig {
        let interval = self.settings.nop_interval;
        let nop = NopPolicy {
            interval,
            timeout: interval,
            ..NopPolicy::OF_INITIATOR
        };
        SessionConfig {
            nop,
            ..SessionConfig::new(&first.attached)
        }
    }
}

/// Interval of timeout checks. Timeouts take seconds, so this is precise enough.
const TICK: Duration = Duration::from_millis(500);

/// Checks timeouts at regular intervals while the session exists.
async fn keep_time(session: Weak<Session>) {
    loop {
        reactor::sleep(TICK).await;
        match session.upgrade() {
            Some(session) if !session.inner().is_over() => {
                session.inner().pass_time(reactor::now())
            }
            Some(_) | None => return,
        }
    }
}

/// Converts a name for the login. A name that does not conform to the standard is sent if possible, because
/// such names are in use. The target can reject it.
fn name_to_send(name: &str) -> Result<Name, OpenError> {
    let sent = Name::to_send(name).map_err(|why| OpenError::Name {
        name: name.to_owned(),
        why,
    })?;
    if let Some(why) = sent.irregularity() {
        tracing::warn!(
            name,
            "the name does not have the standard form ({why}): it is sent unchanged"
        );
    }
    Ok(sent)
}

async fn resolve(portal: &Portal) -> Result<Vec<SocketAddr>, OpenError> {
    portal.resolve().await.map_err(|error| OpenError::Resolve {
        host: portal.host.clone(),
        error,
    })
}

/// Adds the redirecting address to an error at an address that the user did not specify.
fn after_redirection(from: Option<SocketAddr>, error: OpenError) -> OpenError {
    match from {
        Some(from) => OpenError::AfterRedirection {
            from,
            error: Box::new(error),
        },
        None => error,
    }
}

/// Creates a unique ISID. Its first byte, 80h, marks it as random (RFC 7143 section 11.12.5).
pub(crate) fn isid(random: Random) -> Isid {
    let mut bytes = [0x80; 6];
    random(&mut bytes[1..]);
    Isid(bytes)
}

// SendTargets discovery (RFC 7143 appendix C).

/// A discovered target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovered {
    /// The target's iSCSI name.
    pub name: String,
    /// The target's portals as `host:port,tag`, with an IPv6 address in brackets. If this is empty, the
    /// target is at the portal that was queried.
    pub addresses: Vec<String>,
}

/// Lists the targets of a portal.
pub async fn discover(
    portal: &Portal,
    settings: &Settings,
    random: Random,
) -> Result<Vec<Discovered>, OpenError> {
    // A discovery session has one connection (RFC 7143 section 4.3), and is not recovered.
    let mut settings = Settings {
        reconnect_time: Duration::ZERO,
        ..settings.clone()
    };
    settings.offers.max_connections = 1;
    let by = reactor::now() + settings.login_time; // the limit includes the login, as documented
    let (session, _) = Connector::new(portal, &settings, random, None)?
        .session()
        .await?;
    let answered = reactor::timeout_at(by, session.send_targets("All")).await;
    let answered = answered.unwrap_or(Err(CommandError::TimedOut));
    match answered {
        // Wait for the logout. Otherwise it might not be sent, because the process may end after this.
        Ok(_) => session.close().await,
        Err(_) => session.inner().give_up(),
    }
    let text = answered.map_err(|error| OpenError::Command {
        name: "SendTargets",
        error,
    })?;
    let mut targets = targets(&text).ok_or(OpenError::Nonsense("SendTargets"))?;
    // A target reports link-local addresses without a zone, because the zone differs from host to host.
    if let Some(zone) = portal.zone() {
        for address in targets.iter_mut().flat_map(|target| &mut target.addresses) {
            *address = on_link(address, Some(&zone)).into_owned();
        }
    }
    Ok(targets)
}

/// Parses a SendTargets response. A TargetName starts a target, and the TargetAddresses up to the next
/// TargetName belong to it.
fn targets(text: &[u8]) -> Option<Vec<Discovered>> {
    let mut targets: Vec<Discovered> = Vec::new();
    for pair in iscsi::text::pairs(text) {
        let pair = pair.ok()?;
        match pair.key {
            "TargetName" => targets.push(Discovered {
                name: pair.value.to_owned(),
                addresses: Vec::new(),
            }),
            "TargetAddress" => targets.last_mut()?.addresses.push(pair.value.to_owned()),
            _ => {}
        }
    }
    Some(targets)
}

// Recovery of lost connections, and of the session.
//
// If a session has lost some of its connections, it continues with the rest, and the lost connections log in
// again with their CIDs. If a session has lost all its connections, it is *reinstated* by a login with the
// same ISID: the target first ends every task of the old session (RFC 7143 section 6.3.5). Requests are only
// delayed. `session_state` has a diagram of the states; this task performs the transitions to `Up`.
//
// A login may reach another portal group, for instance after a redirection or at another address of the host.
// It then creates a session with another target port, and does not end the old session, whose commands may be
// executed at any time. The session continues at the new port. Lost commands that change something wait until
// a login at the old portal has also terminated the old nexus, or they fail.

/// Recovers a session until it is over.
pub(crate) async fn recover(session: Rc<Session>, connector: Connector, leading: LeadingLogin) {
    let attempts = Attempts::new(connector.random);
    let further = FurtherLogins {
        random: connector.random,
        attempts: BTreeMap::new(),
    };
    let mut recovery = Recovery {
        session,
        connector,
        leading,
        left: Vec::new(),
        attempts,
        further,
    };
    while let Some(lost) = recovery.until_lost().await {
        recovery.restart(lost).await;
    }
}

/// A session has lost its last connection. The next login must wait for `time2wait`.
struct Lost {
    time2wait: Duration,
}

struct Recovery {
    session: Rc<Session>,
    connector: Connector,
    leading: LeadingLogin,
    left: Vec<AbandonedNexus>,
    /// The attempts at leading logins.
    attempts: Attempts,
    further: FurtherLogins,
}

/// Logins of further connections. Each connection has its own pauses, so its success or failure does not
/// delay the other connections.
struct FurtherLogins {
    random: Random,
    attempts: BTreeMap<u16, Attempts>,
}

impl FurtherLogins {
    fn of(&mut self, cid: Cid) -> &mut Attempts {
        self.attempts
            .entry(cid.0)
            .or_insert_with(|| Attempts::new(self.random))
    }
}

/// A nexus that the session left, with commands outstanding, for another portal group.
struct AbandonedNexus {
    leading: LeadingLogin,
    /// The session that was lost in this nexus, identified by the number of reinstatements before it.
    epoch: u64,
    /// Deadline for terminating the nexus, derived from the time for which requests wait for a lost session.
    /// After the deadline, the nexus ends only if the session returns to it.
    until: Option<Instant>,
}

/// Maximum number of abandoned nexuses. A target with more portal groups than this is faulty or hostile, and
/// the session ends.
const LEFT_MAX: usize = 16;

impl Recovery {
    /// Restores missing connections and, concurrently, terminates abandoned nexuses, until the session is
    /// lost. Returns `None` when the session is over. Neither activity waits for the other, which may never
    /// complete.
    async fn until_lost(&mut self) -> Option<Lost> {
        let Recovery {
            session,
            connector,
            leading,
            left,
            further,
            ..
        } = self;
        let lost = restore_connections(session, connector, leading, further);
        let ended = end_left(session, connector, leading, left);
        let (mut lost, mut ended) = (pin!(lost), pin!(ended));
        poll_fn(|cx| match lost.as_mut().poll(cx) {
            // The session is about to be restarted. A login that ends a nexus must not reinstate this
            // session.
            Poll::Ready(lost) => Poll::Ready(lost),
            Poll::Pending => ended.as_mut().poll(cx).map(|never| match never {}),
        })
        .await
    }

    /// Logs in until it succeeds, or the session is over.
    async fn restart(&mut self, Lost { time2wait }: Lost) {
        let Recovery {
            session,
            connector,
            attempts,
            ..
        } = self;
        let fault = Fault::SessionLost { time2wait };
        attempts.begin(time2wait);
        let (leading, machine, first) = loop {
            if session
                .unless_worse_fault(fault, attempts.pause())
                .await
                .is_none()
            {
                return;
            }
            match session.unless_worse_fault(fault, connector.lead()).await {
                None => return,
                Some(Ok(logged_in)) => break logged_in,
                Some(Err(error)) => attempts.failed(connector, &error),
            }
        };
        let how = if leading.is_same_port(&self.leading) {
            Restart::Reinstated
        } else {
            Restart::Moved
        };
        let epoch = session.shared().epoch();
        let outage = session.restart(*machine, connector.nexus(&leading), how);
        attempts.succeeded();
        debug_assert_eq!(session.shared().epoch(), epoch + 1);
        let (away, commands) = (outage.away.as_secs_f64(), outage.commands);
        let back =
            format!("the session was restored after {away:.1} s; outstanding commands: {commands}");
        tracing::warn!(target = %connector, "{back}");
        first.recording.tape().occasion(back);
        connector.join(session, Cid(0), first);
        (1..connector.connections(&leading))
            .for_each(|cid| session.inner().connection_missing(Cid(cid)));
        let before = std::mem::replace(&mut self.leading, leading);
        self.returned();
        if how == Restart::Moved {
            self.moved(before, epoch, &outage);
        }
        if self.left.len() > LEFT_MAX {
            tracing::error!(
                target = %self.connector,
                "the session has moved to another portal group {LEFT_MAX} times, and commands in the earlier \
                 groups could not be terminated: closing the session; check the target's redirections and \
                 portal group tags"
            );
            self.session.close().await;
        }
    }

    /// Processes a restart of the session in another portal group.
    fn moved(&mut self, before: LeadingLogin, epoch: u64, outage: &Outage) {
        let Recovery {
            session,
            connector,
            leading,
            left,
            ..
        } = self;
        let (from, to, unsettled) = (before.group(), leading.group(), outage.unsettled);
        tracing::warn!(
            target = %connector,
            "the session has moved from portal group {from} to {to}, which is another I_T nexus; waiting \
             until {unsettled} commands that modify data have ended in portal group {from}"
        );
        for lun in &outage.orphaned {
            let lun = LunAddress::parse(lun.0);
            tracing::error!(
                target = %connector,
                %lun,
                "the reservation key was registered in portal group {from} and is not valid in portal group \
                 {to}: register it again"
            );
        }
        if unsettled > 0 {
            let until = reactor::now() + session.inner().timeouts.reconnect;
            debug_assert!(
                left.iter().all(|left| left.epoch < epoch),
                "nexuses are left one after the other"
            );
            left.push(AbandonedNexus {
                leading: before,
                epoch,
                until: Some(until),
            });
        }
    }

    /// Records that the login has terminated any abandoned nexus of its portal group.
    fn returned(&mut self) {
        let Recovery {
            session,
            leading,
            left,
            ..
        } = self;
        left.retain(|left| {
            let is_here = left.leading.is_same_port(leading);
            if is_here {
                session.nexus_ended(left.epoch);
            }
            !is_here
        });
    }
}

/// Terminates abandoned nexuses, one after the other, or gives up at their deadlines.
async fn end_left(
    session: &Session,
    connector: &Connector,
    leading: &LeadingLogin,
    left: &mut Vec<AbandonedNexus>,
) -> Infallible {
    let next = |(place, left): (usize, &AbandonedNexus)| Some((place, left.until?));
    while let Some((place, until)) = left.iter().enumerate().find_map(next) {
        let nexus = &left[place];
        if end(connector, leading, &nexus.leading, until).await {
            session.nexus_ended(nexus.epoch);
            left.remove(place);
        } else {
            tracing::error!(
                target = %connector,
                "the commands in portal group {} could not be terminated: the writes among them fail, and so \
                 do other requests for the same blocks until the session has logged in to that group again",
                nexus.leading.group()
            );
            session.nexus_not_ended(nexus.epoch);
            left[place].until = None;
        }
    }
    future::pending().await
}

/// Restores missing connections until the session is lost; `None` when it is over.
async fn restore_connections(
    session: &Rc<Session>,
    connector: &Connector,
    leading: &LeadingLogin,
    further: &mut FurtherLogins,
) -> Option<Lost> {
    loop {
        let fault = session.fault().await;
        match fault {
            Fault::SessionOver => return None,
            Fault::SessionLost { time2wait } => return Some(Lost { time2wait }),
            Fault::ConnectionLost(cid) => {
                replace(session, connector, leading, (fault, cid), further.of(cid)).await;
            }
        }
    }
}

/// Tries to terminate the abandoned nexus `left` until its deadline. Returns false if this is impossible.
async fn end(
    connector: &Connector,
    leading: &LeadingLogin,
    left: &LeadingLogin,
    until: Instant,
) -> bool {
    // Each portal belongs to one group. If this portal is now in another group, the old nexus is unreachable,
    // and a login here would terminate the current session.
    if leading.address == left.address {
        return false;
    }
    let mut attempts = Attempts::new(connector.random);
    let ended = async {
        loop {
            match connector.end_nexus(left).await {
                Ok(ended) => return ended,
                Err(error) => attempts.failed(connector, &error),
            }
            attempts.pause().await;
        }
    };
    reactor::timeout(until.saturating_duration_since(reactor::now()), ended)
        .await
        .unwrap_or(false)
}

/// Logs a connection in again. Returns early if the session is lost.
async fn replace(
    session: &Rc<Session>,
    connector: &Connector,
    leading: &LeadingLogin,
    (fault, cid): (Fault, Cid),
    attempts: &mut Attempts,
) {
    let is_brief = attempts.begin(Duration::ZERO);
    if is_brief
        && session
            .unless_worse_fault(fault, attempts.pause())
            .await
            .is_none()
    {
        return;
    }
    loop {
        let cmd_sn = session.inner().machine.cmd_sn();
        match session
            .unless_worse_fault(fault, connector.follow(leading, cid, cmd_sn))
            .await
        {
            None => return,
            Some(Ok(further)) => {
                tracing::info!(target = %connector, cid = cid.0, "the connection is open");
                attempts.succeeded();
                return connector.join(session, cid, further);
            }
            Some(Err(error)) => attempts.failed(connector, &error),
        }
        if session
            .unless_worse_fault(fault, attempts.pause())
            .await
            .is_none()
        {
            return;
        }
    }
}

/// Repeated logins, with increasing pauses. A login whose session or connection is lost soon does not count
/// as a success. Otherwise, a target that accepts every login and then closes the connection would be retried
/// in a tight loop.
struct Attempts {
    random: Random,
    pause: Duration,
    /// The last login that succeeded.
    succeeded_at: Option<Instant>,
    /// The last error, which is logged only once.
    said: String,
}

const PAUSE_FIRST: Duration = Duration::from_millis(50);
/// Maximum pause. It is short enough to reach a recovered target soon, and long enough not to overload a
/// target that has not recovered.
const PAUSE_LONGEST: Duration = Duration::from_secs(3);
/// A login counts as a success if its session or connection lasts this long. The pauses then restart at the
/// shortest.
const STEADY: Duration = Duration::from_secs(10);

impl Attempts {
    fn new(random: Random) -> Attempts {
        Attempts {
            random,
            pause: PAUSE_FIRST,
            succeeded_at: None,
            said: String::new(),
        }
    }

    /// Starts the recovery from a loss. The target requires a pause of `at_least`. Returns true if the last
    /// login did not last long.
    fn begin(&mut self, at_least: Duration) -> bool {
        let lived = self
            .succeeded_at
            .map(|at| reactor::now().saturating_duration_since(at));
        let is_brief = lived.is_some_and(|lived| lived < STEADY);
        if !is_brief {
            self.pause = PAUSE_FIRST;
        }
        self.pause = self.pause.max(at_least);
        self.said.clear();
        is_brief
    }

    fn succeeded(&mut self) {
        self.succeeded_at = Some(reactor::now());
    }

    /// Waits for the pause, which doubles each time. A random part is added, so that the initiators of a
    /// target do not all log in simultaneously.
    async fn pause(&mut self) {
        let mut dice = [0];
        (self.random)(&mut dice);
        let more = self.pause.mul_f64(f64::from(dice[0]) / 512.0);
        reactor::sleep(self.pause + more).await;
        debug_assert!(self.pause >= PAUSE_FIRST);
        self.pause = (self.pause * 2).clamp(PAUSE_FIRST, PAUSE_LONGEST);
    }

    fn failed(&mut self, connector: &Connector, error: &OpenError) {
        let said = error.to_string();
        if said != self.said {
            tracing::warn!(target = %connector, "cannot log in again yet: {said}");
            self.said = said;
        }
    }
}

#[cfg(test)]
mod tests {
    use reactor::{Alone, block_on};

    use super::*;

    #[test]
    fn a_redirection_may_name_a_portal_group() {
        let asked = "10.0.0.7:3260".parse().expect("an address");
        let portal = |to| {
            Portal::from_peer(to, asked)
                .map(|portal| portal.to_string())
                .ok()
        };
        assert_eq!(portal("10.0.0.1:3261,2").as_deref(), Some("10.0.0.1:3261"));
        assert_eq!(portal("[::1],1").as_deref(), Some("[::1]:3260"));
        assert_eq!(portal("san2").as_deref(), Some("san2:3260"));
        assert_eq!(portal(":7"), None);
    }

    #[test]
    fn addresses_belong_to_the_name_before_them() {
        let text = b"TargetName=iqn.a:1\0TargetAddress=[::1]:3260,1\0TargetAddress=10.0.0.1:3260,2\0TargetName=iqn.a:2\0";
        let found = targets(text).unwrap();
        assert_eq!(found[0].addresses, ["[::1]:3260,1", "10.0.0.1:3260,2"]);
        assert_eq!(
            (found[1].name.as_str(), found[1].addresses.len()),
            ("iqn.a:2", 0)
        );
    }

    #[test]
    fn thousands_of_targets_are_found() {
        let text: String = (0..4096)
            .map(|number| format!("TargetName=iqn.a:{number}\0TargetAddress=10.0.0.1:3260,1\0"))
            .collect();
        let found = targets(text.as_bytes()).unwrap();
        assert_eq!(found.len(), 4096);
        assert!(found.iter().all(|target| target.addresses.len() == 1));
    }

    #[test]
    fn an_address_of_nobody_makes_no_sense() {
        assert_eq!(targets(b"TargetAddress=10.0.0.1:3260,1\0"), None);
        assert_eq!(targets(b""), Some(Vec::new()));
    }

    /// Eight connections of a restarted session are restored without a pause. Only the connection that is
    /// repeatedly lost soon after its login waits. Its pauses grow until it has lasted for a while.
    #[test]
    fn a_connection_waits_for_its_own_failures_only() {
        block_on(Alone::exact_virtual_time(), async {
            let mut further = FurtherLogins {
                random: |bytes| bytes.fill(0),
                attempts: BTreeMap::new(),
            };
            for cid in (1..8).map(Cid) {
                assert!(!further.of(cid).begin(Duration::ZERO), "{cid:?}");
                further.of(cid).succeeded();
            }
            for pause in [50, 100, 200] {
                let broken = further.of(Cid(3));
                assert!(broken.begin(Duration::ZERO));
                let begun = reactor::now();
                broken.pause().await;
                assert_eq!(reactor::now() - begun, Duration::from_millis(pause));
                broken.succeeded();
            }
            reactor::sleep(STEADY).await;
            for cid in (1..8).map(Cid) {
                assert!(!further.of(cid).begin(Duration::ZERO), "{cid:?}");
                assert_eq!(further.of(cid).pause, PAUSE_FIRST);
            }
        });
    }
}
