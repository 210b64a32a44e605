//! The login of a connection. Drives the login state machine, from the first byte until the connection joins
//! its session.
//!
//! All resources are limited, because the peer is not authenticated yet. [`Limits::login_time`] limits the
//! time, [`Limits::logins`] and the server's listener limit the connections, and the state machine limits
//! PDUs and text. In total, a connection takes at most [`LOGIN_MEMORY_BYTES_MAX`] of memory.
//!
//! ```text
//!  accepted ─► security and operational negotiation (`iscsi::login::TargetLogin`)
//!               ├─ admission: does the initiator have access?                 ── no ──► refused
//!               ├─ CHAP, if required, unless the user is delayed (`backoff`)  ── no ──► refused
//!               ├─ slot (`registry`): new session, further connection, or reinstatement,
//!               │  which first ends the old session of the nexus              ── no ──► refused
//!               └─ last response sent ─► Admitted, handed to the core of the session
//! ```
//!
//! [`Limits::login_time`]: crate::config::Limits::login_time
//! [`Limits::logins`]: front_end_core::Limits::logins

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use front_end_core::{AUDIT, Accepted, AddressBlock, ConnectionPermit, Counted, Phase};
use iscsi::chap::{Challenge, ChapError, ChapPolicy};
use iscsi::framing::Framing;
use iscsi::login::{
    Acceptance, Admission, AdmissionRequest, Grant, LOGIN_DATA_BYTES_MAX, LoggedIn, LoginError,
    SessionRequest, TargetEvent, TargetLogin, TargetPolicy,
};
use iscsi::name::NAME_BYTES_MAX;
use iscsi::negotiate::{Offers, Parameters, SessionType};
use iscsi::pdu::{BHS_BYTES, Bhs, Cid, LoginStatus, Sn, Tsih};
use iscsi::target::SessionConfig;
use reactor::Stream;

use crate::config::{Authentication, Target};
use crate::context::Context;
use crate::core::CoreSessions;
use crate::refusal::{Attempt, Refusal};
use crate::registry::{Admitted, Claim, NewSession, NexusName, SessionSlot, SlotOutcome};

/// The reason why a connection never became part of a session.
#[derive(Debug)]
enum Failure {
    Login(LoginError),
    Socket(io::Error),
    PeerClosed,
    TooLong,
}

impl Failure {
    /// Returns the label for monitoring.
    fn name(&self, refusal: Option<&Refusal>) -> &'static str {
        match (self, refusal) {
            (Failure::Login(LoginError::Refused(_)), Some(refusal)) => refusal.name(),
            (Failure::Login(LoginError::Refused(_)), None) => "moved",
            (Failure::Login(LoginError::Chap(_)), _) => "wrong_secret",
            (
                Failure::Login(LoginError::NoSharedAuthMethod | LoginError::AuthenticationSkipped),
                _,
            ) => "no_authentication",
            (Failure::Login(_), _) => "protocol_error",
            (Failure::Socket(_), _) => "socket_error",
            (Failure::PeerClosed, _) => "closed_by_initiator",
            (Failure::TooLong, _) => "too_slow",
        }
    }
}

/// A login in progress. Dropping it releases everything that it holds.
pub(crate) struct LoginDriver {
    core: Rc<CoreSessions>,
    tag: u16,
    stream: Box<dyn Stream>,
    permit: ConnectionPermit,
    machine: TargetLogin,
    received: Vec<u8>,
    /// The target to which the initiator may log in. It has no LUNs, so that a login, whose duration the peer
    /// determines, does not keep volumes open.
    target: Option<Arc<Target>>,
    /// The target that the initiator names, whether or not it may log in; also without LUNs.
    named: Option<Arc<Target>>,
    /// The CHAP user that the initiator claimed, authenticated or not.
    user: Option<String>,
    /// The server's reason to refuse the login.
    refusal: Option<Refusal>,
    booking: Booking,
}

/// The reservation of a login. It is released on drop, unless the session has taken it over.
struct Booking {
    context: Context,
    reserved: Option<Reserved>,
}

#[derive(Clone, Copy)]
enum Reserved {
    /// The slot of a new session.
    Session(SessionSlot),
    /// A connection in an existing session.
    Connection(SessionSlot, Cid),
}

impl Drop for Booking {
    fn drop(&mut self) {
        match self.reserved {
            None => {}
            Some(Reserved::Session(slot)) => self.context.registry().vacate(slot),
            Some(Reserved::Connection(slot, cid)) => {
                self.context
                    .tell(slot.core, move |core| core.release(slot, cid));
            }
        }
    }
}

impl LoginDriver {
    /// Creates the login of a connection that has just been accepted.
    pub(crate) fn new(core: &Rc<CoreSessions>, accepted: Accepted) -> LoginDriver {
        let Accepted {
            portal,
            stream,
            permit,
        } = accepted;
        let core = Rc::clone(core);
        let booking = Booking {
            context: core.context.clone(),
            reserved: None,
        };
        let mut first = [0; 4];
        (core.context.config().random)(&mut first);
        let policy = TargetPolicy {
            first_stat_sn: Sn(u32::from_ne_bytes(first)),
        };
        let machine = TargetLogin::new(policy);
        LoginDriver {
            core,
            tag: portal.tag,
            stream,
            permit,
            machine,
            received: Vec::new(),
            target: None,
            named: None,
            user: None,
            refusal: None,
            booking,
        }
    }

    /// Completes the login of the connection, and passes the connection to the core of its session.
    pub(crate) async fn admit(mut self) {
        let limit = self.core.context.config().limits.login_time;
        match reactor::timeout(limit, self.log_in()).await {
            Ok(Ok(login)) => self.hand_over(login),
            Ok(Err(failure)) => self.give_up(&failure),
            Err(_) => self.give_up(&Failure::TooLong),
        }
    }

    async fn log_in(&mut self) -> Result<LoggedIn, Failure> {
        loop {
            self.read_pdu().await?;
            while let Some(event) = self.next_event().await? {
                match event {
                    TargetEvent::Admit(request) => {
                        let admission = self.admission(&request);
                        let admission = admission
                            .unwrap_or_else(|refusal| Admission::Refuse(self.refused(refusal)));
                        self.machine.admit(admission);
                    }
                    TargetEvent::Proof { user } => self.judge(&user),
                    TargetEvent::SessionNeeded(request) => {
                        let grant = self.find_session(&request).await;
                        let grant = grant.map_err(|refusal| self.refused(refusal));
                        self.machine.grant(grant);
                    }
                    TargetEvent::LoggedIn(login) => return Ok(*login),
                    TargetEvent::Failed(cause) => return Err(Failure::Login(cause)),
                }
            }
        }
    }

    /// Sends queued responses, then returns the next event of the state machine.
    async fn next_event(&mut self) -> Result<Option<TargetEvent>, Failure> {
        while let Some(transmit) = self.machine.poll_transmit() {
            let mut bytes = transmit.bhs.0.to_vec();
            bytes.extend_from_slice(&transmit.data);
            Framing::default().end_data(&mut bytes, &transmit.data);
            self.stream
                .write_all(&bytes)
                .await
                .map_err(Failure::Socket)?;
        }
        Ok(self.machine.poll_event())
    }

    async fn read_pdu(&mut self) -> Result<(), Failure> {
        debug_assert!(self.received.is_empty(), "no byte of the last PDU is left");
        let framing = Framing::default(); // digests are used only in full feature phase
        self.fill(BHS_BYTES).await?;
        let mut bhs = Bhs([0; BHS_BYTES]);
        bhs.0.copy_from_slice(&self.received[..BHS_BYTES]);
        let (header, data) = (
            framing.header_bytes(&bhs),
            bhs.data_segment_length() as usize,
        );
        if data > LOGIN_DATA_BYTES_MAX {
            // The state machine responds as far as possible without the data, which this function does not
            // read.
            self.machine.handle_pdu(&bhs, &[]);
            return Ok(());
        }
        self.fill(header + framing.segment_bytes(&bhs)).await?;
        let received = std::mem::take(&mut self.received);
        self.machine
            .handle_pdu(&bhs, &received[header..header + data]);
        Ok(())
    }

    /// Reads until `length` bytes have been received, and no further: data after the login belongs to the
    /// session.
    async fn fill(&mut self, length: usize) -> Result<(), Failure> {
        // Memory is allocated for received bytes, not for the announced length. A login PDU usually fits into
        // one piece.
        let mut piece = [0; 512];
        while self.received.len() < length {
            let most = (length - self.received.len()).min(piece.len());
            match self
                .stream
                .read_some(&mut piece[..most])
                .await
                .map_err(Failure::Socket)?
            {
                0 => return Err(Failure::PeerClosed),
                read => {
                    self.received.reserve_exact(read);
                    self.received.extend_from_slice(&piece[..read]);
                }
            }
        }
        debug_assert_eq!(
            self.received.len(),
            length,
            "the following bytes belong to the session"
        );
        Ok(())
    }

    /// Records the reason and returns the login status.
    fn refused(&mut self, refusal: Refusal) -> LoginStatus {
        let hidden = self.named.as_ref().is_none_or(|target| target.hidden);
        let status = refusal.status(hidden);
        self.refusal = Some(refusal);
        status
    }

    /// Decides whether this initiator may try to log in, and how it must authenticate itself.
    fn admission(&mut self, request: &AdmissionRequest) -> Result<Admission, Refusal> {
        let context = &self.core.context;
        if context.server.phase() != Phase::Open {
            return Err(Refusal::NotOpen);
        }
        // Only the session type counts: a target name in a discovery login is ignored.
        let name = match (request.session_type, &request.target_name) {
            (SessionType::Normal, Some(name)) => name,
            // The state machine ensures that a normal session names one.
            (SessionType::Normal, None) => return Err(Refusal::NoSuchTarget),
            (SessionType::Discovery, _) => return Ok(self.acceptance(request, None)),
        };
        let config = context.config();
        let target = config
            .target(name.as_str())
            .ok_or(Refusal::NoSuchTarget)?
            .without_luns();
        self.named = Some(Arc::clone(&target));
        self.check_access(&target, request)?;
        if let Some(redirect) = &target.redirect {
            let (address, permanent) = (redirect.address.to_string(), redirect.permanent);
            return Ok(Admission::Redirect { address, permanent });
        }
        self.target = Some(target);
        let session = self.nexus(request).and_then(|nexus| {
            self.core
                .context
                .registry()
                .parameters(request.tsih, &nexus)
        });
        Ok(self.acceptance(request, session))
    }

    fn check_access(&self, target: &Target, request: &AdmissionRequest) -> Result<(), Refusal> {
        if !target.is_reached_by(self.tag) {
            return Err(Refusal::PortalGroup(self.tag));
        }
        if !target.access.admits_name(request.initiator_name.as_str()) {
            return Err(Refusal::InitiatorNotListed);
        }
        if !target.access.admits_address(self.stream.peer().ip()) {
            return Err(Refusal::NetworkNotListed);
        }
        Ok(())
    }

    /// Returns the authentication that the target, or discovery, requires.
    fn authentication(&self) -> Option<Authentication> {
        match &self.target {
            Some(target) => target.authentication.clone(),
            None => self.core.context.config().discovery_authentication.clone(),
        }
    }

    fn acceptance(&mut self, request: &AdmissionRequest, session: Option<Parameters>) -> Admission {
        let missing = request.tsih != Tsih::NEW && session.is_none();
        let refusal = missing.then(|| self.refused(Refusal::NoSuchSession(request.tsih)));
        let target = self.target.as_ref();
        let limits = &self.core.context.config().limits;
        let offers = match target {
            Some(target) => Offers {
                max_connections: limits.connections_per_session,
                alias: target.alias.clone(),
                ..target.offers.clone()
            },
            // Discovery needs no long PDUs.
            None => Offers {
                max_recv_data_segment_length: LOGIN_DATA_BYTES_MAX as u32,
                ..Offers::of_target()
            },
        };
        Admission::Accept(Box::new(Acceptance {
            target_portal_group_tag: target.map(|_| self.tag),
            authentication: self.authentication().map(|wanted| self.chap(&wanted)),
            offers,
            session,
            refusal,
        }))
    }

    fn chap(&self, wanted: &Authentication) -> ChapPolicy {
        let mut random = [0; CHALLENGE_BYTES + 1];
        (self.core.context.config().random)(&mut random);
        let challenge = Challenge {
            identifier: random[0],
            bytes: random[1..].to_vec(),
        };
        ChapPolicy {
            algorithms: wanted.algorithms.clone(),
            initiators: Arc::clone(&wanted.accounts),
            target: wanted.mutual.clone(),
            challenge,
        }
    }

    /// Allows a CHAP response to be checked, unless this user is delayed at this address.
    fn judge(&mut self, user: &str) {
        self.user = Some(bounded(user));
        let context = self.core.context.clone();
        let now = reactor::now();
        let from = AddressBlock::containing(self.stream.peer().ip());
        let target = self.target.as_ref().map(|target| target.name.as_str());
        let attempt = Attempt { from, target, user };
        let wait = context.backoff().wait(now, &attempt);
        if let Some(wait) = wait {
            let status = self.refused(Refusal::TooManyGuesses(wait));
            return self.machine.judge(Err(status));
        }
        self.machine.judge(Ok(()));
        match self.machine.proved() {
            Some(_) => context.backoff().succeeded(&attempt),
            None => {
                let begun = context.backoff().failed(now, &attempt);
                if let Some(wait) = begun.filter(|_| context.may_log_alarm(from)) {
                    let (peer, claimed) = (self.stream.peer(), self.machine.claimed());
                    tracing::warn!(
                        target: AUDIT,
                        seconds = wait.as_secs(),
                        %peer,
                        user = self.user.as_deref(),
                        initiator = claimed.initiator.as_deref(),
                        target,
                        "locked out after wrong secrets: until then, even the correct secret is refused"
                    );
                }
            }
        }
    }

    /// Returns the nexus that a login would use; a discovery session has none.
    fn nexus(&self, request: &AdmissionRequest) -> Option<NexusName> {
        let target = request
            .target_name
            .as_ref()
            .filter(|_| request.session_type == SessionType::Normal)?;
        Some(NexusName {
            initiator: request.initiator_name.as_str().to_owned(),
            isid: request.isid,
            target: target.as_str().to_owned(),
            tag: self.tag,
        })
    }

    /// Allocates a slot for a new session, or finds the session that the connection joins.
    async fn find_session(&mut self, request: &SessionRequest) -> Result<Grant, Refusal> {
        self.check_user(request)?;
        let user = request.authenticated_as.clone();
        let claim = self
            .nexus(&request.request)
            .map(|nexus| Claim { nexus, user });
        if request.request.tsih != Tsih::NEW {
            return self.find_existing(request, claim).await;
        }
        let slot = self.find_seat(claim, &request.parameters).await?;
        self.booking.reserved = Some(Reserved::Session(slot));
        let window = match self.target {
            Some(_) => self.core.context.config().limits.window,
            None => SessionConfig::DISCOVERY_WINDOW,
        };
        Ok(Grant {
            tsih: slot.tsih,
            exp_cmd_sn: request.cmd_sn,
            max_cmd_sn: request.cmd_sn.plus(window - 1),
        })
    }

    /// Whether the authenticated user may log in with this initiator name.
    fn check_user(&self, request: &SessionRequest) -> Result<(), Refusal> {
        let initiator = request.request.initiator_name.as_str();
        match (self.authentication(), &request.authenticated_as) {
            (Some(wanted), Some(user)) if !wanted.lets_present(user, initiator) => {
                Err(Refusal::NotTheUsersName)
            }
            _ => Ok(()),
        }
    }

    /// Allocates a slot for a new session. If there is a session of the same nexus, ends it with all its
    /// commands first (RFC 7143 section 6.3.5).
    async fn find_seat(
        &self,
        claim: Option<Claim>,
        parameters: &Parameters,
    ) -> Result<SessionSlot, Refusal> {
        let peer = self.stream.peer();
        let from = AddressBlock::containing(peer.ip());
        let mut newcomer = NewSession {
            claim,
            from,
            reinstates: false,
        };
        for _ in 0..REINSTATEMENTS {
            match self.core.context.registry().allocate(&newcomer, parameters) {
                SlotOutcome::Allocated(slot) => return Ok(slot),
                SlotOutcome::OfAnother { user } => return Err(Refusal::SessionOfAnother(user)),
                SlotOutcome::Full => return Err(Refusal::ServerIsFull),
                SlotOutcome::Replaces(old) => {
                    let (done, mut ended) = reactor::mailbox();
                    self.core
                        .context
                        .tell(old.core, move |core| core.end(old, peer, done));
                    // Nothing is ever sent: the mailbox is closed when the session has ended.
                    let _: Option<()> = ended.recv().await;
                    newcomer.reinstates = true;
                }
            }
        }
        Err(Refusal::ReplacedTooOften)
    }

    async fn find_existing(
        &mut self,
        request: &SessionRequest,
        claim: Option<Claim>,
    ) -> Result<Grant, Refusal> {
        let tsih = request.request.tsih;
        let missing = || Refusal::NoSuchSession(tsih);
        let slot = claim.and_then(|claim| self.core.context.registry().find(tsih, &claim));
        let slot = slot.ok_or_else(missing)?;
        let (answer, mut answers) = reactor::mailbox();
        let cid = request.request.cid;
        self.core.context.tell(slot.core, move |core| {
            // If the requesting login has ended, it releases the reservation.
            let _ = answer.send(core.reserve(slot, cid));
        });
        self.booking.reserved = Some(Reserved::Connection(slot, cid));
        let window = answers.recv().await.ok_or_else(missing)??;
        Ok(Grant {
            tsih,
            exp_cmd_sn: window.0,
            max_cmd_sn: window.1,
        })
    }

    fn hand_over(mut self, login: LoggedIn) {
        let (slot, leading) = match self.booking.reserved.take() {
            None => return,
            Some(Reserved::Session(slot)) => (slot, true),
            Some(Reserved::Connection(slot, _)) => (slot, false),
        };
        self.count("accepted");
        let name = &login.request.initiator_name;
        if let Some(why) = name.irregularity()
            && self.core.context.may_log(self.stream.peer().ip())
        {
            tracing::warn!(
                initiator = name.as_str(),
                "the initiator's name does not have the standard form: {why}"
            );
        }
        let admitted = Admitted {
            peer: self.stream.peer(),
            local: self.stream.local(),
            stream: self.stream.detach(),
            permit: self.permit,
            login,
            target: self.target,
            tag: self.tag,
            slot,
            leading,
        };
        self.core
            .context
            .tell(slot.core, move |core| core.join(admitted));
    }

    /// Counts this login by its result, and by its target if one of that name exists.
    fn count(&self, result: &'static str) {
        self.core.tally.note(
            Counted::Login,
            self.named.as_ref().map(|target| target.name.as_str()),
            result,
        );
    }

    fn give_up(self, failure: &Failure) {
        let peer = self.stream.peer();
        self.count(failure.name(self.refusal.as_ref()));
        let claimed = self.machine.claimed();
        let (initiator, target) = (claimed.initiator.as_deref(), claimed.target.as_deref());
        let why = match (failure, &self.refusal) {
            // The peer is a port scanner, or a health check.
            (Failure::PeerClosed, _) => {
                return tracing::debug!(%peer, "closed before its login was complete");
            }
            // This is normal while the server starts or shuts down, and for a redirected target. The
            // initiator retries.
            (Failure::Login(LoginError::Refused(status)), None | Some(Refusal::NotOpen)) => {
                return tracing::info!(%peer, %status, initiator, target, "login deferred or redirected");
            }
            (Failure::Login(LoginError::Refused(_)), Some(refusal)) => refusal.to_string(),
            // The log states whether the user or the secret was wrong; the response to the initiator does
            // not.
            (Failure::Login(LoginError::Chap(ChapError::WrongResponse)), _) => {
                match self.has_account() {
                    true => "wrong secret".to_owned(),
                    false => "unknown account".to_owned(),
                }
            }
            (Failure::Login(cause), _) => cause.to_string(),
            (Failure::Socket(error), _) => error.to_string(),
            (Failure::TooLong, _) => "login too slow (login-time)".to_owned(),
        };
        if self.core.context.may_log(peer.ip()) {
            let user = self.user.as_deref();
            tracing::warn!(target: AUDIT, why, %peer, user, initiator, target, "login refused");
        }
    }

    /// Whether there is an account with the initiator's user name.
    fn has_account(&self) -> bool {
        let (wanted, user) = (self.authentication(), self.user.as_deref());
        wanted
            .zip(user)
            .is_some_and(|(wanted, user)| wanted.knows(user))
    }
}

/// Returns the beginning of a text from a peer, up to the maximum length of a name.
fn bounded(text: &str) -> String {
    text[..text.floor_char_boundary(NAME_BYTES_MAX)].to_owned()
}

/// Maximum memory of a connection before it has logged in, without the kernel's socket buffers.
pub const LOGIN_MEMORY_BYTES_MAX: usize = 64 << 10;
/// Maximum memory of a discovery session, which may be unauthenticated, without its SendTargets responses.
pub const DISCOVERY_MEMORY_BYTES_MAX: usize = 128 << 10;
/// Challenges must be at least 16 bytes, or as long as the hash (RFC 7143 section 12.1.3).
const CHALLENGE_BYTES: usize = 32;
/// Maximum number of reinstatements for which a login waits: two initiators that replace each other must not
/// keep the core busy.
const REINSTATEMENTS: usize = 8;
