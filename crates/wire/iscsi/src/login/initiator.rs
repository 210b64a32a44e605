//! The initiator's side of a login.
//!
//! ```text
//!   new ──▶ SecurityNegotiation ──────────────▶ OperationalNegotiation ───────────────▶ FullFeature: LoggedIn
//!               │ AuthMethod=None, or CHAP           │ offers (negotiate)
//!               └── refused, protocol error, CHAP failure, too many PDUs ──▶ Failed, or Redirected
//! ```
//!
//! The login starts in the security stage. Without credentials, it offers AuthMethod=None, since some targets
//! require the key. All transitions are in this file; `take` changes the stage when the target's response has
//! T set.

use std::collections::VecDeque;

use derive_more::Display;

use super::{LOGIN_PDUS_MAX, LOGIN_TEXT_BYTES_MAX, Transmit};
use crate::chap::{ChapClaim, ChapError, Claimant};
use crate::keys::Key;
use crate::name::Name;
use crate::negotiate::{NegotiationError, Negotiator, Offers, Parameters, Role, SessionType};
use crate::pdu::{
    Bhs, Cid, Isid, Itt, LoginRequest, LoginResponse, LoginStatus, Malformed, Sn, Stage, Tsih,
};
use crate::text::{self, Assembly, MalformedText, Pair, Pieces};

/// Configuration of a login.
#[expect(missing_docs, reason = "the names are self-explanatory")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitiatorConfig {
    pub initiator_name: Name,
    /// TargetName; none for discovery.
    pub target_name: Option<Name>,
    pub session_type: SessionType,
    /// The initiator's part of the session identifier. A new login with the same ISID reinstates the session.
    pub isid: Isid,
    /// [`Tsih::NEW`], or the session to join.
    pub tsih: Tsih,
    pub cid: Cid,
    /// The login's task tag.
    pub itt: Itt,
    /// The CmdSN of the first command after the login.
    pub cmd_sn: Sn,
    /// Credentials, and whether the target must authenticate.
    pub chap: Option<ChapClaim>,
    /// Values offered in the negotiation.
    pub offers: Offers,
    /// The session's parameters, if the connection joins one.
    pub session: Option<Parameters>,
}

/// The result of a login, reported once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitiatorEvent {
    /// The connection is in full feature phase.
    LoggedIn(Box<Attached>),
    /// Login redirection (section 13.8): log in at the new address, with the same names.
    Redirected {
        /// `host[:port][,tag]`.
        address: String,
        /// Whether the redirection is permanent.
        permanent: bool,
    },
    /// The login failed. Close the connection.
    Failed(LoginFailure),
}

/// A connection in full feature phase.
#[expect(missing_docs, reason = "the names are self-explanatory")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    pub parameters: Parameters,
    pub tsih: Tsih,
    pub authentication: Authenticated,
    /// The target's portal group tag, if it was sent.
    pub target_portal_group_tag: Option<u16>,
    pub exp_stat_sn: Sn,
    pub exp_cmd_sn: Sn,
    pub max_cmd_sn: Sn,
}

/// The sides that were authenticated during a login, with CHAP (RFC 7143 section 12.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authenticated {
    /// The target required no authentication.
    Neither,
    /// Only the initiator was authenticated.
    Initiator,
    /// Both sides were authenticated (mutual CHAP).
    Both,
}

/// Why a login failed.
#[expect(
    missing_docs,
    reason = "where a variant has no more to say than it displays"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum LoginFailure {
    #[display("the target refused the login: {_0}")]
    Refused(LoginStatus),
    /// Service unavailable, in reply to our CHAP response: the response was not checked.
    #[display(
        "the target did not check the secret: it may delay logins after wrong secrets (a Linerate target for \
         1 s to 60 s; its log has the time), or it is shutting down; try again later"
    )]
    Unchecked,
    #[display("the target sent a malformed response: {_0}")]
    Malformed(Malformed),
    #[display("the target sent a malformed text: {_0}")]
    MalformedText(MalformedText),
    /// A response whose tag, session, stage or version does not match the request.
    #[display("the target's response does not match the request")]
    NotOurs,
    /// A stage transition that was not requested, or text before ours was complete.
    #[display("the target changed the login stage without a request")]
    OutOfTurn,
    #[display("the target requires an authentication method that was not offered")]
    AuthMethod,
    /// CHAP failed in either direction.
    #[display("{}", chap_failure(*_0))]
    Chap(ChapError),
    #[display("negotiation failed: {_0}")]
    Negotiation(NegotiationError),
    #[display("the target redirects the login, but gives no address")]
    NoAddress,
    #[display("the login takes too many rounds")]
    TooManyRounds,
}

/// One login on one connection.
#[derive(Debug)]
pub struct InitiatorLogin {
    config: InitiatorConfig,
    stage: Stage,
    authentication: Authentication,
    negotiator: Negotiator,
    assembly: Assembly,
    /// The rest of our text, and the stage to request with its last PDU.
    request: Pieces,
    requested_stage: Option<Stage>,
    /// The stage requested with the latest request.
    asked: Option<Stage>,
    target_portal_group_tag: Option<u16>,
    exp_stat_sn: Option<Sn>,
    rounds: usize,
    is_over: bool,
    transmits: VecDeque<Transmit>,
    event: Option<InitiatorEvent>,
}

#[derive(Debug)]
enum Authentication {
    /// AuthMethod was offered.
    Offered(Option<ChapClaim>),
    Running(Claimant),
    Done,
}

impl InitiatorLogin {
    /// Starts the login: the first request is queued.
    pub fn new(config: InitiatorConfig) -> InitiatorLogin {
        let offers = config.offers.clone();
        let negotiator = match &config.session {
            Some(session) => Negotiator::following(Role::Initiator, offers, session),
            None => Negotiator::leading(Role::Initiator, offers, config.session_type),
        };
        let mut login = InitiatorLogin {
            stage: Stage::SecurityNegotiation,
            authentication: Authentication::Offered(config.chap.clone()),
            negotiator,
            assembly: Assembly::new(LOGIN_TEXT_BYTES_MAX),
            request: Pieces::new(first_text(&config)),
            // Without credentials, the security stage ends when the target agrees.
            requested_stage: config
                .chap
                .is_none()
                .then_some(Stage::OperationalNegotiation),
            asked: None,
            target_portal_group_tag: None,
            exp_stat_sn: None,
            rounds: 0,
            is_over: false,
            transmits: VecDeque::new(),
            event: None,
            config,
        };
        login.send_request();
        login
    }

    /// Processes a PDU: its header, and its data without padding.
    pub fn handle_pdu(&mut self, bhs: &Bhs, data: &[u8]) {
        if !self.is_over {
            self.receive(bhs, data)
                .unwrap_or_else(|failure| self.end(InitiatorEvent::Failed(failure)));
        }
    }

    /// The next PDU to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// The result, once the login has ended.
    pub fn poll_event(&mut self) -> Option<InitiatorEvent> {
        self.event.take()
    }

    fn receive(&mut self, bhs: &Bhs, data: &[u8]) -> Result<(), LoginFailure> {
        let response = LoginResponse::parse(bhs).map_err(LoginFailure::Malformed)?;
        if response.itt != self.config.itt {
            return Err(LoginFailure::NotOurs);
        }
        if response.status != LoginStatus::Success {
            return self.take_refusal(response.status, data);
        }
        self.check(&response)?;
        self.exp_stat_sn = Some(response.numbers.stat_sn.next());
        match self
            .assembly
            .add(data, response.continues)
            .map_err(LoginFailure::MalformedText)?
        {
            Some(text) => self.take(&response, &text),
            // The target's text is incomplete: request the rest with an empty PDU.
            None if self.request.is_empty() => {
                self.send_request();
                Ok(())
            }
            None => Err(LoginFailure::OutOfTurn),
        }
    }

    fn check(&mut self, response: &LoginResponse) -> Result<(), LoginFailure> {
        self.rounds += 1;
        if self.rounds > LOGIN_PDUS_MAX {
            return Err(LoginFailure::TooManyRounds);
        }
        let ours = response.isid == self.config.isid
            && response.stage == self.stage
            && response.version_active == VERSION;
        if !ours {
            return Err(LoginFailure::NotOurs);
        }
        // Section 11.13.6: a target changes the stage only as requested, and after our complete text.
        let moves = response.transit_to.is_some();
        if moves && (response.transit_to != self.asked || !self.request.is_empty()) {
            return Err(LoginFailure::OutOfTurn);
        }
        Ok(())
    }

    fn take_refusal(&mut self, status: LoginStatus, data: &[u8]) -> Result<(), LoginFailure> {
        let permanent = match status {
            LoginStatus::TargetMovedTemporarily => false,
            LoginStatus::TargetMovedPermanently => true,
            LoginStatus::ServiceUnavailable
                if self.stage == Stage::SecurityNegotiation
                    && self.authentication.is_answered() =>
            {
                return Err(LoginFailure::Unchecked);
            }
            other => return Err(LoginFailure::Refused(other)),
        };
        let pairs = text::parse(data).map_err(LoginFailure::MalformedText)?;
        let address = pairs
            .iter()
            .find(|pair| pair.key == Key::TargetAddress.name());
        let address = address.ok_or(LoginFailure::NoAddress)?.value.to_owned();
        self.end(InitiatorEvent::Redirected { address, permanent });
        Ok(())
    }

    /// Processes a complete text, or the empty response to a part of our text.
    fn take(&mut self, response: &LoginResponse, text: &[u8]) -> Result<(), LoginFailure> {
        if !self.request.is_empty() {
            self.send_request();
            return Ok(());
        }
        let pairs = text::parse(text).map_err(LoginFailure::MalformedText)?;
        let mut out = Vec::new();
        let tag = pairs
            .iter()
            .find(|pair| pair.key == Key::TargetPortalGroupTag.name());
        let tag = tag.and_then(|pair| u16::try_from(text::number(pair.value)?).ok());
        self.target_portal_group_tag = self.target_portal_group_tag.or(tag);
        if self.stage == Stage::SecurityNegotiation {
            self.authentication.handle(&pairs, &mut out)?;
        }
        let answered = self.negotiator.note_keys(&pairs).and_then(|()| {
            self.negotiator
                .receive_all(pairs.into_iter().filter(is_negotiated), &mut out)
        });
        answered.map_err(LoginFailure::Negotiation)?;
        match response.transit_to {
            Some(Stage::FullFeature) => return self.finish(response),
            // The operational stage, which requires that authentication is complete.
            Some(_) if !self.authentication.is_done() => return Err(LoginFailure::OutOfTurn),
            Some(next) => {
                debug_assert!(next > self.stage, "a login goes forward");
                self.stage = next;
                self.negotiator.open(&mut out);
            }
            None => {}
        }
        self.request = Pieces::new(out);
        // Request the next stage, unless authentication is incomplete.
        self.requested_stage = match self.stage {
            Stage::SecurityNegotiation => self
                .authentication
                .may_move()
                .then_some(Stage::OperationalNegotiation),
            Stage::OperationalNegotiation | Stage::FullFeature => Some(Stage::FullFeature),
        };
        self.send_request();
        Ok(())
    }

    fn finish(&mut self, response: &LoginResponse) -> Result<(), LoginFailure> {
        let parameters = self
            .negotiator
            .clone()
            .finish()
            .map_err(LoginFailure::Negotiation)?;
        self.end(InitiatorEvent::LoggedIn(Box::new(Attached {
            parameters,
            tsih: response.tsih,
            authentication: self.authenticated(),
            target_portal_group_tag: self.target_portal_group_tag,
            exp_stat_sn: response.numbers.stat_sn.next(),
            exp_cmd_sn: response.numbers.exp_cmd_sn,
            max_cmd_sn: response.numbers.max_cmd_sn,
        })));
        Ok(())
    }

    fn authenticated(&self) -> Authenticated {
        match (&self.authentication, &self.config.chap) {
            (Authentication::Running(_), Some(claim)) if claim.target.is_some() => {
                Authenticated::Both
            }
            (Authentication::Running(_), _) => Authenticated::Initiator,
            (Authentication::Offered(_) | Authentication::Done, _) => Authenticated::Neither,
        }
    }

    fn end(&mut self, event: InitiatorEvent) {
        debug_assert!(!self.is_over, "a login ends once");
        self.is_over = true;
        self.event = Some(event);
    }

    /// Sends the next PDU of our text. Only the last one requests a stage transition.
    fn send_request(&mut self) {
        let (data, continues) = self.request.next(super::LOGIN_DATA_BYTES_MAX);
        self.asked = self.requested_stage.filter(|_| !continues);
        debug_assert!(
            data.len() <= super::LOGIN_DATA_BYTES_MAX,
            "a request that is too long"
        );
        let request = LoginRequest {
            continues,
            stage: self.stage,
            transit_to: self.asked,
            version_max: VERSION,
            version_min: VERSION,
            isid: self.config.isid,
            tsih: self.config.tsih,
            itt: self.config.itt,
            cid: self.config.cid,
            cmd_sn: self.config.cmd_sn,
            exp_stat_sn: self.exp_stat_sn.unwrap_or_default(),
            // The cast is lossless: the data has at most LOGIN_DATA_BYTES_MAX bytes.
            data_segment_length: data.len() as u32,
        };
        self.transmits.push_back(Transmit {
            bhs: request.emit(),
            data,
        });
    }
}

impl Authentication {
    /// Processes the security keys of a response, and appends our reply.
    fn handle(&mut self, pairs: &[Pair<'_>], out: &mut Vec<u8>) -> Result<(), LoginFailure> {
        if let Authentication::Offered(claim) = self {
            let method = pairs.iter().find(|pair| pair.key == Key::AuthMethod.name());
            let Some(method) = method else { return Ok(()) };
            *self = chosen(method.value, claim.take())?;
        }
        if let Authentication::Running(chap) = self {
            chap.handle(pairs, out).map_err(LoginFailure::Chap)?;
        }
        Ok(())
    }

    /// Whether our CHAP response has been computed.
    fn is_answered(&self) -> bool {
        matches!(self, Authentication::Running(chap) if chap.has_proved())
    }

    /// Whether the target may change the stage. A target that does not answer AuthMethod=None has accepted
    /// it.
    fn is_done(&self) -> bool {
        match self {
            Authentication::Offered(claim) => claim.is_none(),
            Authentication::Running(chap) => chap.is_done(),
            Authentication::Done => true,
        }
    }

    /// Whether to request the next stage with the next text. With mutual CHAP, the text with our response
    /// already requests the next stage: the target's response arrives with the target's last text of this
    /// stage.
    fn may_move(&self) -> bool {
        match self {
            Authentication::Offered(claim) => claim.is_none(),
            Authentication::Running(chap) => chap.has_proved(),
            Authentication::Done => true,
        }
    }
}

/// The authentication that results from the target's choice of AuthMethod. "None" fails with mutual CHAP,
/// because it was not offered.
fn chosen(method: &str, claim: Option<ChapClaim>) -> Result<Authentication, LoginFailure> {
    match (method, claim) {
        (CHAP, Some(claim)) => Ok(Authentication::Running(Claimant::new(claim))),
        (NONE, None) => Ok(Authentication::Done),
        (NONE, Some(claim)) if claim.target.is_none() => Ok(Authentication::Done),
        _ => Err(LoginFailure::AuthMethod),
    }
}

/// The first text: names, session type and authentication methods. An initiator that has credentials, but
/// does not require the target to authenticate, also accepts a target without authentication.
fn first_text(config: &InitiatorConfig) -> Vec<u8> {
    let mut text = Vec::new();
    text::append(&mut text, Key::InitiatorName.name(), &config.initiator_name);
    if let Some(target_name) = &config.target_name {
        text::append(&mut text, Key::TargetName.name(), target_name);
    }
    if config.tsih == Tsih::NEW {
        text::append(
            &mut text,
            Key::SessionType.name(),
            config.session_type.name(),
        );
    }
    let methods = match &config.chap {
        None => NONE,
        Some(claim) if claim.target.is_some() => CHAP,
        Some(_) => "CHAP,None",
    };
    text::append(&mut text, Key::AuthMethod.name(), methods);
    text
}

/// Whether the negotiator processes a pair. The target's name and portal group tag need no negotiation, and
/// CHAP processes the security keys.
fn is_negotiated(pair: &Pair<'_>) -> bool {
    use Key::{AuthMethod, ChapA, ChapC, ChapI, ChapN, ChapR, TargetName, TargetPortalGroupTag};
    let ours = [
        AuthMethod,
        ChapA,
        ChapI,
        ChapC,
        ChapN,
        ChapR,
        TargetName,
        TargetPortalGroupTag,
    ];
    !ours.iter().any(|key| pair.key == key.name())
}

fn chap_failure(error: ChapError) -> String {
    match error {
        ChapError::WrongResponse => {
            "the target failed to authenticate: its CHAP name or secret is wrong".to_owned()
        }
        error => format!("authentication failed: {error}"),
    }
}

impl std::error::Error for LoginFailure {}

const VERSION: u8 = 0;

/// Values of AuthMethod.
const NONE: &str = "None";
const CHAP: &str = "CHAP";
