//! From a URL to a LUN, and from a portal to the targets behind it.

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

use crate::connection::Connection;
use crate::error::{Ending, OpenError};
use crate::login::{LoggedIn, Outcome, Random, chap, log_in, offers};
use crate::lun::RemoteLun;
use crate::remote_target::RemoteTarget;
use crate::session::Session;
use crate::settings::Settings;
use crate::url::{Portal, Url};

/// Logs in to the target of `url` and attaches its LUN.
///
/// The session lives on the reactor of this thread, which must go on running for as long as the LUN is in use.
/// `random` gives the session its identifier and CHAP its challenges. Resolving the host's name blocks the
/// thread; addresses do not.
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
    let target_name = Name::new(target).map_err(|_| OpenError::Name(target.to_owned()))?;
    let asking = Asking { settings, random, target_name: Some(target_name) };
    let (session, parameters) = asking.session(portal).await?;
    Ok(RemoteTarget::new(session, parameters, settings.command_time))
}

/// Times a target may send us elsewhere: more are a circle.
const REDIRECTIONS_MAX: usize = 4;

/// What is wanted of a portal.
pub(crate) struct Asking<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) random: Random,
    /// None for discovery.
    pub(crate) target_name: Option<Name>,
}

impl Asking<'_> {
    /// A session with all its connections, and what its leading login agreed on.
    pub(crate) async fn session(&self, portal: &Portal) -> Result<(Rc<Session>, Parameters), OpenError> {
        let leading = self.leading_config()?;
        let (address, first) = self.first_connection(portal, &leading).await?;
        let parameters = first.attached.parameters.clone();
        let tsih = first.attached.tsih;
        let machine = Machine::new(self.session_config(&first));
        let session = Session::new(machine, self.settings.command_time);
        join(&session, leading.cid, first);
        for cid in 1..self.settings.connections.min(parameters.max_connections) {
            let config = InitiatorConfig {
                tsih,
                cid: Cid(cid),
                cmd_sn: session.parts().machine.cmd_sn(),
                chap: chap(self.settings, self.random)?,
                session: Some(parameters.clone()),
                ..leading.clone()
            };
            match log_in(address, self.settings, config).await? {
                Outcome::LoggedIn(further) => join(&session, Cid(cid), further),
                Outcome::Redirected(_) => return Err(OpenError::Redirected(address)),
            }
        }
        reactor::spawn(keep_time(Rc::downgrade(&session)));
        Ok((session, parameters))
    }

    fn leading_config(&self) -> Result<InitiatorConfig, OpenError> {
        let initiator = &self.settings.initiator;
        let initiator_name = Name::new(initiator).map_err(|_| OpenError::Name(initiator.clone()))?;
        let kind = if self.target_name.is_some() { SessionType::Normal } else { SessionType::Discovery };
        Ok(InitiatorConfig {
            initiator_name,
            target_name: self.target_name.clone(),
            session_type: kind,
            isid: self.settings.isid.unwrap_or_else(|| isid(self.random)),
            tsih: Tsih::NEW,
            cid: Cid(0),
            itt: Itt::new(0).expect("0 is not the reserved tag"),
            cmd_sn: Sn(1),
            chap: chap(self.settings, self.random)?,
            offers: offers(self.settings),
            session: None,
        })
    }

    /// The first of the portal's addresses that lets us in, wherever it sends us.
    async fn first_connection(
        &self,
        portal: &Portal,
        config: &InitiatorConfig,
    ) -> Result<(SocketAddr, LoggedIn), OpenError> {
        let mut addresses = resolve(portal)?;
        let mut last = OpenError::NoAddress(portal.host.clone());
        for _ in 0..=REDIRECTIONS_MAX {
            let mut elsewhere = None;
            for address in std::mem::take(&mut addresses) {
                match log_in(address, self.settings, config.clone()).await {
                    Ok(Outcome::LoggedIn(first)) => return Ok((address, first)),
                    Ok(Outcome::Redirected(to)) => {
                        last = OpenError::Redirected(address);
                        elsewhere = Some(to);
                        break;
                    }
                    Err(error) => last = error,
                }
            }
            match elsewhere {
                Some(to) => addresses = resolve(&redirected(&to)?)?,
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

/// Begins a connection's life in full feature phase.
fn join(session: &Rc<Session>, cid: Cid, logged_in: LoggedIn) {
    let LoggedIn { stream, attached, already } = logged_in;
    let framing = Framing::new(&attached.parameters);
    let id = session.parts().add_connection(reactor::now(), cid, ConnectionStart::new(&attached));
    let (peer, connection) =
        (stream.peer(), Connection::new(Rc::clone(session), id, stream, framing, &already));
    reactor::spawn(async move {
        match connection.run().await {
            Ending::LoggedOut => tracing::debug!(%peer, "logged out"),
            ending => tracing::warn!(%peer, "the connection to the target ended: {ending}"),
        }
    });
}

/// How often deadlines are looked at; they are seconds long.
const TICK: Duration = Duration::from_millis(500);

/// Lets deadlines pass for as long as there is a session.
async fn keep_time(session: Weak<Session>) {
    loop {
        reactor::sleep(TICK).await;
        match session.upgrade().filter(|session| session.parts().is_alive()) {
            Some(session) => session.pass_time(reactor::now()),
            None => return,
        }
    }
}

fn resolve(portal: &Portal) -> Result<Vec<SocketAddr>, OpenError> {
    portal.resolve().map_err(|error| OpenError::Resolve { host: portal.host.clone(), error })
}

/// The address in a redirection: `host[:port][,tag]` (RFC 7143 section 13.8).
fn redirected(to: &str) -> Result<Portal, OpenError> {
    let address = to.split_once(',').map_or(to, |(address, _tag)| address);
    let (portal, _) = Portal::parse(&format!("iscsi://{address}")).map_err(OpenError::Url)?;
    Ok(portal)
}

/// A name for a session that no other has: 80h says that it is random (RFC 7143 section 11.12.5).
fn isid(random: Random) -> Isid {
    let mut bytes = [0x80; 6];
    random(&mut bytes[1..]);
    Isid(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirection_may_name_a_portal_group() {
        let portal = |to| redirected(to).map(|portal| portal.to_string()).ok();
        assert_eq!(portal("10.0.0.1:3261,2").as_deref(), Some("10.0.0.1:3261"));
        assert_eq!(portal("[::1],1").as_deref(), Some("[::1]:3260"));
        assert_eq!(portal("san2").as_deref(), Some("san2:3260"));
        assert_eq!(portal(":7"), None);
    }
}
