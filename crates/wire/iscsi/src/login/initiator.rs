//! The initiator's side of a login.
//!
//! It begins in the security stage, with AuthMethod=None if there is nothing to prove, since some targets want to
//! be asked; goes on to the operational stage, where it makes its offers; and ends in the full feature phase.

use std::collections::VecDeque;
use std::fmt;

use super::{LOGIN_PDUS_MAX, LOGIN_TEXT_BYTES_MAX, Transmit};
use crate::chap::{ChapClaim, ChapError, Claimant};
use crate::keys::Key;
use crate::name::Name;
use crate::negotiate::{NegotiationError, Negotiator, Offers, Parameters, Role, SessionType};
use crate::pdu::{Bhs, Cid, Isid, Itt, LoginRequest, LoginResponse, LoginStatus, Malformed, Stage, Tsih};
use crate::serial::Sn;
use crate::text::{self, Assembly, MalformedText, Pair, Pieces};

/// What an initiator says of itself and wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitiatorConfig {
    /// Who we are.
    pub initiator_name: Name,
    /// Which target is wanted; none for discovery.
    pub target_name: Option<Name>,
    /// What for.
    pub session_type: SessionType,
    /// Our part of the session's identifier: the same one replaces an older session of ours.
    pub isid: Isid,
    /// [`Tsih::NEW`], or the session that the connection is to join.
    pub tsih: Tsih,
    /// The connection's identifier within its session.
    pub cid: Cid,
    /// The login's task tag.
    pub itt: Itt,
    /// The CmdSN of the first command after the login.
    pub cmd_sn: Sn,
    /// What we prove ourselves with, and whether the target must.
    pub chap: Option<ChapClaim>,
    /// What we would like to agree on.
    pub offers: Offers,
    /// What the session has agreed on, if the connection is to join one.
    pub session: Option<Parameters>,
}

/// How a login ended. There is one such event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitiatorEvent {
    /// The connection is in full feature phase.
    LoggedIn(Box<Attached>),
    /// The target is at another address (section 13.8): log in there, with the same names.
    Redirected {
        /// `host[:port][,tag]`.
        address: String,
        /// Whether it is to be remembered.
        permanent: bool,
    },
    /// No session. Close the connection.
    Failed(LoginFailure),
}

/// A connection in full feature phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// What both sides work by.
    pub parameters: Parameters,
    /// The session's handle.
    pub tsih: Tsih,
    /// The target's portal group, if it said.
    pub target_portal_group_tag: Option<u16>,
    /// The status to expect next.
    pub exp_stat_sn: Sn,
    /// The next CmdSN that the target expects.
    pub exp_cmd_sn: Sn,
    /// The last CmdSN that the target has room for.
    pub max_cmd_sn: Sn,
}

/// Why there is no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginFailure {
    /// The target refused.
    Refused(LoginStatus),
    /// A response's header breaks a rule.
    Malformed(Malformed),
    /// A response's text breaks a rule.
    MalformedText(MalformedText),
    /// A response to something else: another tag, session, stage or version.
    NotOurs,
    /// The target moved to a stage that it was not asked to move to, or spoke out of turn.
    OutOfTurn,
    /// The target chose an authentication method that was not offered.
    AuthMethod,
    /// The target did not prove itself, or could not be proved to.
    Chap(ChapError),
    /// The target negotiated a key in a way that it cannot be.
    Negotiation(NegotiationError),
    /// The target's address is missing from a redirection.
    NoAddress,
    /// The target goes on and on.
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
    /// What remains to be said, and the stage to ask for with the last of it.
    request: Pieces,
    requested_stage: Option<Stage>,
    /// The wish that went out with the latest request.
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
    /// AuthMethod has been offered, and is to be answered.
    Offered(Option<ChapClaim>),
    Running(Claimant),
    Done,
}

impl InitiatorLogin {
    /// Begins: the first request is ready to be sent.
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
            // Without anything to prove, the security stage is over as soon as the target agrees.
            requested_stage: config.chap.is_none().then_some(Stage::OperationalNegotiation),
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

    /// A PDU has come: its header, and its data without padding.
    pub fn handle_pdu(&mut self, bhs: &Bhs, data: &[u8]) {
        if !self.is_over {
            self.receive(bhs, data).unwrap_or_else(|failure| self.end(InitiatorEvent::Failed(failure)));
        }
    }

    /// The next PDU to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// How the login ended, once it has.
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
        self.exp_stat_sn = Some(response.stat_sn.next());
        match self.assembly.add(data, response.continues).map_err(LoginFailure::MalformedText)? {
            Some(text) => self.take(&response, &text),
            // The rest of the target's text is yet to come: "go on".
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
        // Section 11.13.6: a target moves only where it was asked to, and not before it has heard all.
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
            other => return Err(LoginFailure::Refused(other)),
        };
        let pairs = text::parse(data).map_err(LoginFailure::MalformedText)?;
        let address = pairs.iter().find(|pair| pair.key == Key::TargetAddress.name());
        let address = address.ok_or(LoginFailure::NoAddress)?.value.to_owned();
        self.end(InitiatorEvent::Redirected { address, permanent });
        Ok(())
    }

    /// A whole text, which may be nothing but "go on" in the middle of ours.
    fn take(&mut self, response: &LoginResponse, text: &[u8]) -> Result<(), LoginFailure> {
        if !self.request.is_empty() {
            self.send_request();
            return Ok(());
        }
        let pairs = text::parse(text).map_err(LoginFailure::MalformedText)?;
        let mut out = Vec::new();
        self.note_portal_group(&pairs);
        if self.stage == Stage::SecurityNegotiation {
            self.authentication.handle(&pairs, &mut out)?;
        }
        let answered = self
            .negotiator
            .note_keys(&pairs)
            .and_then(|()| self.negotiator.receive_all(pairs.into_iter().filter(is_negotiated), &mut out));
        answered.map_err(LoginFailure::Negotiation)?;
        match response.transit_to {
            Some(Stage::FullFeature) => return self.finish(response),
            Some(next) => self.enter(next, &mut out)?,
            None => {}
        }
        self.request = Pieces::new(out);
        self.requested_stage = self.next_wish();
        self.send_request();
        Ok(())
    }

    fn note_portal_group(&mut self, pairs: &[Pair<'_>]) {
        let tag = pairs.iter().find(|pair| pair.key == Key::TargetPortalGroupTag.name());
        let tag = tag.and_then(|pair| u16::try_from(text::number(pair.value)?).ok());
        self.target_portal_group_tag = self.target_portal_group_tag.or(tag);
    }

    /// The operational stage begins, which authentication must have come before.
    fn enter(&mut self, next: Stage, out: &mut Vec<u8>) -> Result<(), LoginFailure> {
        if !self.authentication.is_done() {
            return Err(LoginFailure::OutOfTurn);
        }
        self.stage = next;
        self.negotiator.open(out);
        Ok(())
    }

    /// Where to ask to go: on, unless there is still something to prove.
    fn next_wish(&self) -> Option<Stage> {
        match self.stage {
            Stage::SecurityNegotiation => {
                self.authentication.may_move().then_some(Stage::OperationalNegotiation)
            }
            Stage::OperationalNegotiation | Stage::FullFeature => Some(Stage::FullFeature),
        }
    }

    fn finish(&mut self, response: &LoginResponse) -> Result<(), LoginFailure> {
        let parameters = self.negotiator.clone().finish().map_err(LoginFailure::Negotiation)?;
        self.end(InitiatorEvent::LoggedIn(Box::new(Attached {
            parameters,
            tsih: response.tsih,
            target_portal_group_tag: self.target_portal_group_tag,
            exp_stat_sn: response.stat_sn.next(),
            exp_cmd_sn: response.exp_cmd_sn,
            max_cmd_sn: response.max_cmd_sn,
        })));
        Ok(())
    }

    fn end(&mut self, event: InitiatorEvent) {
        self.is_over = true;
        self.event = Some(event);
    }

    /// Sends the next piece of what is to be said. Of a text in pieces, only the last asks to move on.
    fn send_request(&mut self) {
        let (data, continues) = self.request.next(super::LOGIN_DATA_BYTES_MAX);
        self.asked = self.requested_stage.filter(|_| !continues);
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
            // A piece is of LOGIN_DATA_BYTES_MAX bytes at most.
            data_segment_length: data.len() as u32,
        };
        self.transmits.push_back(Transmit { bhs: request.emit(), data });
    }
}

impl Authentication {
    /// Takes in the security keys of a response, and appends what is to be said to them.
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

    /// Whether the target may now move on. One that never answered AuthMethod=None has nothing against it.
    fn is_done(&self) -> bool {
        match self {
            Authentication::Offered(claim) => claim.is_none(),
            Authentication::Running(chap) => chap.is_done(),
            Authentication::Done => true,
        }
    }

    /// Whether to ask to move on with what is said next. When CHAP is mutual, our proof is said while the
    /// target's is still due, and the target's comes with its last response in this stage.
    fn may_move(&self) -> bool {
        match self {
            Authentication::Offered(claim) => claim.is_none(),
            Authentication::Running(chap) => chap.has_proved(),
            Authentication::Done => true,
        }
    }
}

/// What the target's choice of AuthMethod leads to. With mutual CHAP, "None" was not offered.
fn chosen(method: &str, claim: Option<ChapClaim>) -> Result<Authentication, LoginFailure> {
    match (method, claim) {
        (CHAP, Some(claim)) => Ok(Authentication::Running(Claimant::new(claim))),
        (NONE, None) => Ok(Authentication::Done),
        (NONE, Some(claim)) if claim.target.is_none() => Ok(Authentication::Done),
        _ => Err(LoginFailure::AuthMethod),
    }
}

/// Who we are, what we want, and how we are ready to prove it. One who can prove itself, but need not have the
/// target prove anything, also makes do with a target that asks for no proof.
fn first_text(config: &InitiatorConfig) -> Vec<u8> {
    let mut text = Vec::new();
    text::append(&mut text, Key::InitiatorName.name(), &config.initiator_name);
    if let Some(target_name) = &config.target_name {
        text::append(&mut text, Key::TargetName.name(), target_name);
    }
    if config.tsih == Tsih::NEW {
        text::append(&mut text, Key::SessionType.name(), config.session_type.name());
    }
    let methods = match &config.chap {
        None => NONE,
        Some(claim) if claim.target.is_some() => CHAP,
        Some(_) => "CHAP,None",
    };
    text::append(&mut text, Key::AuthMethod.name(), methods);
    text
}

/// Whether a pair is the negotiator's: names are known, and security keys are CHAP's.
fn is_negotiated(pair: &Pair<'_>) -> bool {
    use Key::{AuthMethod, ChapA, ChapC, ChapI, ChapN, ChapR, TargetName, TargetPortalGroupTag};
    let ours = [AuthMethod, ChapA, ChapI, ChapC, ChapN, ChapR, TargetName, TargetPortalGroupTag];
    !ours.iter().any(|key| pair.key == key.name())
}

impl fmt::Display for LoginFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoginFailure::Refused(status) => write!(f, "the target refused the login: {status}"),
            LoginFailure::Malformed(broken) => write!(f, "the target sent a malformed response: {broken}"),
            LoginFailure::MalformedText(broken) => write!(f, "the target sent a malformed text: {broken}"),
            LoginFailure::NotOurs => f.write_str("the target answered something else than was asked"),
            LoginFailure::OutOfTurn => f.write_str("the target went ahead before it was asked to"),
            LoginFailure::AuthMethod => {
                f.write_str("the target wants an authentication that was not offered")
            }
            LoginFailure::Chap(ChapError::WrongResponse) => {
                f.write_str("the target did not prove itself: its CHAP name or secret is wrong")
            }
            LoginFailure::Chap(error) => write!(f, "authentication failed: {error}"),
            LoginFailure::Negotiation(error) => write!(f, "negotiation failed: {error}"),
            LoginFailure::NoAddress => f.write_str("the target has moved and does not say where"),
            LoginFailure::TooManyRounds => f.write_str("the target does not come to an end"),
        }
    }
}

impl std::error::Error for LoginFailure {}

const VERSION: u8 = 0;

/// Values of AuthMethod.
const NONE: &str = "None";
const CHAP: &str = "CHAP";
