//! Opening a LUN by its URL, and listing the targets of a portal.

use std::fmt;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use iscsi::framing::Framing;
use iscsi::initiator::{ConnectionStart, NopPolicy, Session as Machine, SessionConfig};
use iscsi::login::InitiatorConfig;
use iscsi::name::Name;
use iscsi::negotiate::{Parameters, SessionType};
use iscsi::pdu::{Cid, Isid, Itt, Tsih};
use iscsi::serial::Sn;
use reactor::Stream;

use crate::connection::Connection;
use crate::error::{Ending, OpenError};
use crate::login::{LoggedIn, Outcome, Random, chap, log_in};
use crate::lun::RemoteLun;
use crate::nexus::Nexus;
use crate::recovery;
use crate::remote_target::RemoteTarget;
use crate::session::Session;
use crate::settings::Settings;
use crate::timeouts::Timeouts;
use crate::url::{Portal, Url};

/// Logs in to the target of `url` and attaches its LUN.
///
/// The session lives on the reactor of this thread, which must run for as long as the LUN is in use. `random`
/// gives the session its identifier and CHAP its challenges. Resolving the host's name blocks the thread;
/// addresses do not.
pub async fn open(url: &Url, random: Random) -> Result<RemoteLun, OpenError> {
    let target = open_target(&url.portal, &url.target, &url.settings, random).await?;
    target.lun(url.lun).await
}

/// Logs in to a target, for any of its LUNs.
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
    Ok(RemoteTarget::new(session, Timeouts::new(settings), settings.recorder.clone()))
}

/// Maximum number of redirections: more are a loop.
const REDIRECTIONS_MAX: usize = 4;

/// Portal, target and settings of a session, the same for every login.
pub(crate) struct Connector {
    portal: Portal,
    settings: Settings,
    pub(crate) random: Random,
    /// None for discovery.
    target_name: Option<Name>,
    initiator_name: Name,
    isid: Isid,
}

/// The leading login of a session, which further connections and a restarted session need.
#[derive(Clone)]
pub(crate) struct LeadingLogin {
    pub(crate) address: SocketAddr,
    tsih: Tsih,
    target_portal_group_tag: Option<u16>,
    parameters: Parameters,
}

impl LeadingLogin {
    fn new(address: SocketAddr, first: &LoggedIn) -> LeadingLogin {
        LeadingLogin {
            address,
            tsih: first.attached.tsih,
            target_portal_group_tag: first.attached.target_portal_group_tag,
            parameters: first.attached.parameters.clone(),
        }
    }

    /// Whether two sessions with one target have the same target port: a SCSI target port is the target's
    /// name and a portal group tag (RFC 7143 section 4.4.2). Without a tag, the portal's address counts.
    pub(crate) fn is_same_port(&self, other: &LeadingLogin) -> bool {
        match (self.target_portal_group_tag, other.target_portal_group_tag) {
            (Some(tag), Some(other)) => tag == other,
            (None, None) => self.address == other.address,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    /// The same, at another portal of the port.
    pub(crate) fn at(&self, address: SocketAddr) -> LeadingLogin {
        LeadingLogin { address, ..self.clone() }
    }

    /// The portal group tag, for messages.
    pub(crate) fn group(&self) -> String {
        self.target_portal_group_tag.map_or_else(|| "unknown".to_owned(), |tag| tag.to_string())
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
        let session = Session::new(*machine, self.nexus(&leading), Timeouts::new(&self.settings));
        self.join(&session, Cid(0), first);
        if let Err(error) = self.join_others(&session, &leading).await {
            session.close().await;
            return Err(error);
        }
        reactor::spawn(keep_time(Rc::downgrade(&session)));
        reactor::spawn(recovery::run(Rc::clone(&session), self, leading.clone()));
        Ok((session, leading))
    }

    /// Opens further connections. If the session loses all of its connections meanwhile, it ends, and no
    /// further one joins.
    async fn join_others(&self, session: &Rc<Session>, leading: &LeadingLogin) -> Result<(), OpenError> {
        for cid in 1..self.connections(leading) {
            let cmd_sn = session.inner().machine.cmd_sn();
            let further = self.follow(leading, Cid(cid), cmd_sn).await?;
            if !session.inner().state().is_up() {
                return Err(OpenError::Broken { address: leading.address, ending: Ending::Closed });
            }
            self.join(session, Cid(cid), further);
        }
        Ok(())
    }

    /// Starts the task of a logged-in connection.
    pub(crate) fn join(&self, session: &Rc<Session>, cid: Cid, logged_in: LoggedIn) {
        let LoggedIn { stream, attached, already, recording } = logged_in;
        let framing = Framing::new(&attached.parameters);
        let id = session.inner().add_connection(reactor::now(), cid, ConnectionStart::new(&attached));
        let (peer, stream) = (stream.peer(), Rc::<dyn Stream>::from(stream));
        session.inner().watch(id, &stream);
        let mut connection = Connection::new(Rc::clone(session), id, stream, framing, &already, recording);
        connection.gather(self.settings.gather);
        reactor::spawn(async move {
            match connection.run().await {
                Ending::LoggedOut => tracing::debug!(%peer, "logged out"),
                ending => tracing::warn!(%peer, "the connection to the target ended: {ending}"),
            }
        });
    }

    /// Number of connections of a session.
    pub(crate) fn connections(&self, leading: &LeadingLogin) -> u16 {
        self.settings.connections.min(leading.parameters.max_connections)
    }

    /// Performs a leading login, for a new or a restarted session.
    pub(crate) async fn lead(&self) -> Result<(LeadingLogin, Box<Machine>, LoggedIn), OpenError> {
        let (address, first) = self.first_connection(&self.leading_config()?).await?;
        let leading = LeadingLogin::new(address, &first);
        let machine = Box::new(Machine::new(self.session_config(&first)));
        Ok((leading, machine, first))
    }

    /// Logs in to an abandoned nexus, which ends it with all its tasks (RFC 7143 section 6.3.5), and logs
    /// out. False if the login reached another portal group, which says nothing about the nexus.
    pub(crate) async fn end_nexus(&self, left: &LeadingLogin) -> Result<bool, OpenError> {
        let Outcome::LoggedIn(first) = log_in(left.address, &self.settings, self.leading_config()?).await?
        else {
            return Ok(false);
        };
        let here = LeadingLogin::new(left.address, &first);
        let timeouts = Timeouts { reconnect: Duration::ZERO, ..Timeouts::new(&self.settings) };
        let session = Session::new(Machine::new(self.session_config(&first)), self.nexus(&here), timeouts);
        self.join(&session, Cid(0), first);
        reactor::spawn(async move { session.close().await });
        Ok(here.is_same_port(left))
    }

    /// The I_T nexus of a login.
    pub(crate) fn nexus(&self, leading: &LeadingLogin) -> Nexus {
        Nexus {
            initiator: self.initiator_name.to_string(),
            isid: self.isid,
            target: self.target_name.as_ref().map(Name::to_string).unwrap_or_default(),
            target_portal_group_tag: leading.target_portal_group_tag,
            tsih: leading.tsih,
            address: leading.address,
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
        match (leading.target_portal_group_tag, further.attached.target_portal_group_tag) {
            (Some(session), Some(connection)) if session != connection => {
                Err(OpenError::AnotherGroup { address, session, connection })
            }
            _ => Ok(further),
        }
    }

    fn leading_config(&self) -> Result<InitiatorConfig, OpenError> {
        let kind = if self.target_name.is_some() { SessionType::Normal } else { SessionType::Discovery };
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
            offers: self.settings.offers(),
            session: None,
        })
    }

    /// Logs in at the first of the portal's addresses that accepts, following redirections.
    async fn first_connection(&self, config: &InitiatorConfig) -> Result<(SocketAddr, LoggedIn), OpenError> {
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
                    addresses = resolved.map_err(|error| after_redirection(redirected_by, error))?;
                }
                None => break,
            }
        }
        Err(last)
    }

    fn session_config(&self, first: &LoggedIn) -> SessionConfig {
        let interval = self.settings.nop_interval;
        let nop = NopPolicy { interval, timeout: interval, ..NopPolicy::OF_INITIATOR };
        SessionConfig { nop, ..SessionConfig::new(&first.attached) }
    }
}

/// Interval of timeout checks; timeouts are seconds long.
const TICK: Duration = Duration::from_millis(500);

/// Processes timeouts while the session exists.
async fn keep_time(session: Weak<Session>) {
    loop {
        reactor::sleep(TICK).await;
        match session.upgrade() {
            Some(session) if !session.inner().is_over() => session.inner().pass_time(reactor::now()),
            Some(_) | None => return,
        }
    }
}

/// Names outside the standard's form are in use, and it is for the target to refuse them.
fn name_to_send(name: &str) -> Result<Name, OpenError> {
    let sent = Name::to_send(name).map_err(|why| OpenError::Name { name: name.to_owned(), why })?;
    if let Some(why) = sent.irregularity() {
        tracing::warn!(name, "the name is not of the standard's form ({why}): it is sent as it is written");
    }
    Ok(sent)
}

async fn resolve(portal: &Portal) -> Result<Vec<SocketAddr>, OpenError> {
    portal.resolve().await.map_err(|error| OpenError::Resolve { host: portal.host.clone(), error })
}

/// An error that names an address nobody asked for tells where that came from.
fn after_redirection(from: Option<SocketAddr>, error: OpenError) -> OpenError {
    match from {
        Some(from) => OpenError::AfterRedirection { from, error: Box::new(error) },
        None => error,
    }
}

/// A unique ISID: 80h for a random one (RFC 7143 section 11.12.5).
pub(crate) fn isid(random: Random) -> Isid {
    let mut bytes = [0x80; 6];
    random(&mut bytes[1..]);
    Isid(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirection_may_name_a_portal_group() {
        let asked = "10.0.0.7:3260".parse().expect("an address");
        let portal = |to| Portal::from_peer(to, asked).map(|portal| portal.to_string()).ok();
        assert_eq!(portal("10.0.0.1:3261,2").as_deref(), Some("10.0.0.1:3261"));
        assert_eq!(portal("[::1],1").as_deref(), Some("[::1]:3260"));
        assert_eq!(portal("san2").as_deref(), Some("san2:3260"));
        assert_eq!(portal(":7"), None);
    }
}
