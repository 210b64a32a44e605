//! A connection from its first byte to its session: the login machine's driver.
//!
//! Everything here is bounded, for nothing is known of the peer yet: time by [`Limits::login_time`], bytes and
//! PDUs by the machine, connections by the listener.
//!
//! [`Limits::login_time`]: crate::config::Limits::login_time

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use iscsi::chap::{Challenge, ChapPolicy};
use iscsi::framing::Framing;
use iscsi::login::{
    Acceptance, Admission, AdmissionRequest, Cause, Grant, LOGIN_DATA_BYTES_MAX, LoggedIn, SessionRequest,
    TargetEvent, TargetLogin, TargetPolicy,
};
use iscsi::negotiate::{Offers, Parameters, SessionType};
use iscsi::pdu::{BHS_BYTES, Bhs, LoginStatus, Tsih};
use iscsi::serial::Sn;
use reactor::{Detached, InSlice, OutSlice, Stream};

use crate::config::{Authentication, Target};
use crate::core::{Local, Message};
use crate::registry::{Admittance, Claim, NexusName, Seat};
use crate::server::Phase;

/// A connection that has logged in, on its way to its session's core.
pub(crate) struct Admitted {
    pub(crate) stream: Detached,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    /// Bytes that came behind the last login request.
    pub(crate) rest: Vec<u8>,
    pub(crate) login: LoggedIn,
    /// The index of the target; none for a discovery session.
    pub(crate) target: Option<usize>,
    pub(crate) tag: u16,
    /// The first connection of a new session.
    pub(crate) leading: bool,
}

/// Why a connection never became part of a session.
#[derive(Debug)]
enum Failure {
    Login(Cause),
    Socket(io::Error),
    PeerClosed,
    TooLong,
}

/// Takes a new connection through its login and hands it to the core of its session.
pub(crate) async fn admit(local: Rc<Local>, tag: u16, stream: Box<dyn Stream>) {
    let (peer, here) = (stream.peer(), stream.local());
    let limit = local.server.config.limits.login_time;
    let mut door = Door::new(Rc::clone(&local), tag, stream);
    let outcome = reactor::timeout(limit, door.log_in()).await;
    match outcome {
        Ok(Ok(login)) => door.hand_over(login, peer, here),
        Ok(Err(failure)) => door.give_up(peer, &failure),
        Err(_) => door.give_up(peer, &Failure::TooLong),
    }
}

/// What a login needs while it lasts.
struct Door {
    local: Rc<Local>,
    tag: u16,
    stream: Box<dyn Stream>,
    machine: TargetLogin,
    received: Vec<u8>,
    target: Option<usize>,
    seat: Option<Seat>,
    leading: bool,
}

impl Door {
    fn new(local: Rc<Local>, tag: u16, stream: Box<dyn Stream>) -> Door {
        let mut first = [0; 4];
        (local.server.config.random)(&mut first);
        let policy = TargetPolicy { first_stat_sn: Sn(u32::from_ne_bytes(first)) };
        let machine = TargetLogin::new(policy);
        Door { local, tag, stream, machine, received: Vec::new(), target: None, seat: None, leading: false }
    }

    async fn log_in(&mut self) -> Result<LoggedIn, Failure> {
        loop {
            self.read_pdu().await?;
            while let Some(event) = self.next_event().await? {
                match event {
                    TargetEvent::Admit(request) => {
                        let admission = self.admission(&request);
                        self.machine.admit(admission);
                    }
                    TargetEvent::SessionNeeded(request) => {
                        let grant = self.find_session(&request).await;
                        self.machine.grant(grant);
                    }
                    TargetEvent::LoggedIn(login) => return Ok(*login),
                    TargetEvent::Failed(cause) => return Err(Failure::Login(cause)),
                }
            }
        }
    }

    /// What there is to say goes out before anything is acted on.
    async fn next_event(&mut self) -> Result<Option<TargetEvent>, Failure> {
        while let Some(transmit) = self.machine.poll_transmit() {
            let mut bytes = transmit.bhs.0.to_vec();
            bytes.extend_from_slice(&transmit.data);
            Framing::default().end_data(&mut bytes, &transmit.data);
            self.write(&bytes).await?;
        }
        Ok(self.machine.poll_event())
    }

    async fn read_pdu(&mut self) -> Result<(), Failure> {
        let framing = Framing::default(); // digests begin with full feature phase
        self.fill(BHS_BYTES).await?;
        let mut bhs = Bhs([0; BHS_BYTES]);
        bhs.0.copy_from_slice(&self.received[..BHS_BYTES]);
        let (header, data) = (framing.header_bytes(&bhs), bhs.data_segment_length() as usize);
        if data > LOGIN_DATA_BYTES_MAX {
            // The machine answers what it can without the data, which nobody will read.
            self.received.clear();
            self.machine.handle_pdu(&bhs, &[]);
            return Ok(());
        }
        let end = header + framing.segment_bytes(&bhs);
        self.fill(end).await?;
        self.machine.handle_pdu(&bhs, &self.received[header..header + data]);
        self.received.drain(..end);
        Ok(())
    }

    /// Reads until at least `length` bytes are there.
    async fn fill(&mut self, length: usize) -> Result<(), Failure> {
        let mut piece = [0; 4096];
        while self.received.len() < length {
            match self.stream.try_read(&mut [InSlice::Bytes(&mut piece)]) {
                Ok(0) => return Err(Failure::PeerClosed),
                Ok(read) => self.received.extend_from_slice(&piece[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll_fn(|cx| self.stream.poll_readable(cx)).await.map_err(Failure::Socket)?;
                }
                Err(error) => return Err(Failure::Socket(error)),
            }
        }
        Ok(())
    }

    async fn write(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        while !bytes.is_empty() {
            match self.stream.try_write(&[OutSlice::Bytes(bytes)]) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll_fn(|cx| self.stream.poll_writable(cx)).await.map_err(Failure::Socket)?;
                }
                Err(error) => return Err(Failure::Socket(error)),
            }
        }
        Ok(())
    }

    /// Whether this initiator may try to log in, and how it must prove itself.
    fn admission(&mut self, request: &AdmissionRequest) -> Admission {
        let server = &self.local.server;
        if server.phase() != Phase::Open {
            return Admission::Refuse(LoginStatus::ServiceUnavailable);
        }
        // By the type of the session alone: a discovery login may name a target, which means nothing.
        let name = match (request.session_type, &request.target_name) {
            (SessionType::Normal, Some(name)) => name,
            (SessionType::Normal, None) => return Admission::Refuse(LoginStatus::MissingParameter),
            (SessionType::Discovery, _) => {
                return self.acceptance(None, server.config.discovery_authentication.as_ref(), None);
            }
        };
        let address = self.stream.peer().ip();
        let found =
            server.config.targets.iter().position(|target| target.name.eq_ignore_ascii_case(name.as_str()));
        // Who may not log in to a target is told the same as if it were not there.
        let Some(index) =
            found.filter(|index| self.may_enter(&server.config.targets[*index], request, address))
        else {
            return Admission::Refuse(LoginStatus::NotFound);
        };
        let target = &server.config.targets[index];
        if let Some(redirect) = &target.redirect {
            return Admission::Redirect { address: redirect.address.clone(), permanent: redirect.permanent };
        }
        let session = match request.tsih {
            Tsih::NEW => None,
            tsih => match self.nexus(request).and_then(|nexus| server.registry.parameters(tsih, &nexus)) {
                Some(parameters) => Some(parameters),
                None => return Admission::Refuse(LoginStatus::SessionDoesNotExist),
            },
        };
        self.target = Some(index);
        let target = &self.local.server.config.targets[index];
        self.acceptance(Some(target), target.authentication.as_ref(), session)
    }

    fn may_enter(&self, target: &Target, request: &AdmissionRequest, address: IpAddr) -> bool {
        target.is_reached_by(self.tag) && target.access.admits(request.initiator_name.as_str(), address)
    }

    fn acceptance(
        &self,
        target: Option<&Target>,
        authentication: Option<&Authentication>,
        session: Option<Parameters>,
    ) -> Admission {
        let limits = &self.local.server.config.limits;
        let offers = Offers {
            max_connections: limits.connections_per_session,
            alias: target.and_then(|target| target.alias.clone()),
            ..target.map_or_else(Offers::of_target, |target| target.offers.clone())
        };
        Admission::Accept(Box::new(Acceptance {
            target_portal_group_tag: target.map(|_| self.tag),
            authentication: authentication.map(|wanted| self.chap(wanted)),
            offers,
            session,
        }))
    }

    fn chap(&self, wanted: &Authentication) -> ChapPolicy {
        let mut random = [0; CHALLENGE_BYTES + 1];
        (self.local.server.config.random)(&mut random);
        let challenge = Challenge { identifier: random[0], bytes: random[1..].to_vec() };
        ChapPolicy {
            algorithms: wanted.algorithms.clone(),
            initiators: Arc::clone(&wanted.accounts),
            target: wanted.mutual.clone(),
            challenge,
        }
    }

    /// The nexus that a login is for; discovery has none.
    fn nexus(&self, request: &AdmissionRequest) -> Option<NexusName> {
        let target = request.target_name.as_ref().filter(|_| request.session_type == SessionType::Normal)?;
        Some(NexusName {
            initiator: request.initiator_name.as_str().to_owned(),
            isid: request.isid,
            target: target.as_str().to_owned(),
            tag: self.tag,
        })
    }

    /// A seat for the session, or the session that the connection joins.
    async fn find_session(&mut self, request: &SessionRequest) -> Result<Grant, LoginStatus> {
        self.check_user(request)?;
        let user = request.authenticated_as.clone();
        let claim = self.nexus(&request.request).map(|nexus| Claim { nexus, user });
        if request.request.tsih != Tsih::NEW {
            return self.find_existing(request, claim).await;
        }
        let seat = self.find_seat(claim, &request.parameters).await?;
        self.seat = Some(seat);
        self.leading = true;
        let window = self.local.server.config.limits.window;
        Ok(Grant { tsih: seat.tsih, exp_cmd_sn: request.cmd_sn, max_cmd_sn: request.cmd_sn.plus(window - 1) })
    }

    /// Whether the user that was proved may come as this initiator.
    fn check_user(&self, request: &SessionRequest) -> Result<(), LoginStatus> {
        let config = &self.local.server.config;
        let wanted = match self.target {
            Some(index) => config.targets[index].authentication.as_ref(),
            None => config.discovery_authentication.as_ref(),
        };
        let (Some(wanted), Some(user)) = (wanted, &request.authenticated_as) else { return Ok(()) };
        match wanted.lets_present(user, request.request.initiator_name.as_str()) {
            true => Ok(()),
            false => Err(LoginStatus::AuthorizationFailure),
        }
    }

    /// A session of the same nexus ends first, with all its commands, before the new one begins (RFC 7143
    /// section 6.3.5).
    async fn find_seat(&self, claim: Option<Claim>, parameters: &Parameters) -> Result<Seat, LoginStatus> {
        for _ in 0..REINSTATEMENTS {
            match self.local.server.registry.seat(claim.clone(), parameters) {
                Admittance::Seated(seat) => return Ok(seat),
                Admittance::OfAnother { .. } => return Err(LoginStatus::AuthorizationFailure),
                Admittance::Full => return Err(LoginStatus::OutOfResources),
                Admittance::Replaces(old) => {
                    let (done, mut ended) = reactor::mailbox();
                    self.local.server.tell(old.core, Message::End { tsih: old.tsih, done });
                    // Nothing is ever sent: the channel ends with the session.
                    let _: Option<()> = ended.recv().await;
                }
            }
        }
        Err(LoginStatus::OutOfResources)
    }

    async fn find_existing(
        &mut self,
        request: &SessionRequest,
        claim: Option<Claim>,
    ) -> Result<Grant, LoginStatus> {
        let tsih = request.request.tsih;
        let seat = claim.and_then(|claim| self.local.server.registry.find(tsih, &claim));
        let seat = seat.ok_or(LoginStatus::SessionDoesNotExist)?;
        let (answer, mut answers) = reactor::mailbox();
        let cid = request.request.cid;
        self.local.server.tell(seat.core, Message::Reserve { tsih, cid, answer });
        let window = answers.recv().await.ok_or(LoginStatus::SessionDoesNotExist)??;
        self.seat = Some(seat);
        Ok(Grant { tsih, exp_cmd_sn: window.0, max_cmd_sn: window.1 })
    }

    fn hand_over(self, login: LoggedIn, peer: SocketAddr, local: SocketAddr) {
        let Some(seat) = self.seat else { return };
        let admitted = Admitted {
            stream: self.stream.detach(),
            peer,
            local,
            rest: self.received,
            login,
            target: self.target,
            tag: self.tag,
            leading: self.leading,
        };
        self.local.server.tell(seat.core, Message::Join(Box::new(admitted)));
    }

    fn give_up(self, peer: SocketAddr, failure: &Failure) {
        self.local.server.registry.leave(peer.ip());
        if let (Some(seat), true) = (self.seat, self.leading) {
            self.local.server.registry.vacate(seat.tsih);
        }
        match failure {
            // A port scanner, or a health check.
            Failure::PeerClosed => tracing::debug!(%peer, "closed before its login was over"),
            // A matter of course while starting, draining or moving; the initiator tries again.
            Failure::Login(Cause::Refused(
                LoginStatus::ServiceUnavailable
                | LoginStatus::TargetMovedTemporarily
                | LoginStatus::TargetMovedPermanently,
            )) => {
                tracing::info!(%peer, "login put off or sent elsewhere");
            }
            Failure::Login(cause) => tracing::warn!(target: LOG, %peer, %cause, "login refused"),
            Failure::Socket(error) => tracing::warn!(target: LOG, %peer, %error, "login failed"),
            Failure::TooLong => tracing::warn!(target: LOG, %peer, "login took too long"),
        }
    }
}

/// The log target of logins and logouts, shown by default.
pub(crate) const LOG: &str = "linerate::login";
/// Challenges must be at least 16 bytes, or as long as the hash (RFC 7143 section 12.1.3).
const CHALLENGE_BYTES: usize = 32;
/// A nexus that is replaced over and over by two of its own kind does not keep this core busy for ever.
const REINSTATEMENTS: usize = 8;
