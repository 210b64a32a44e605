//! The target's side of a login.
//!
//! The phases of `LoginPhase`, and the calls that change them; all are in this file:
//!
//! ```text
//!                                           AwaitingVerdict
//!                                     CHAP_R │   ▲ │ judge
//!                                            ▼   │ ▼
//!   Initial ── first text ──▶ AwaitingAdmission ── admit ──▶ Negotiating ── T to FullFeature ──▶ AwaitingSession
//!      │                             │                          │                                  │       │
//!      └─ protocol error ────────────┴── Refuse, Redirect ──────┴── protocol error, CHAP failure ──┤       │ grant
//!                                                                                                  ▼       ▼
//!                                                                               Failed ◀────────  Done ──▶ LoggedIn
//! ```
//!
//! A request's text is answered in one response, or in several PDUs. The driver makes up to three decisions:
//!
//! - whether the initiator is admitted
//! - whether its CHAP response may be checked (it may have failed too often)
//! - to which session the connection belongs
//!
//! The last decision is requested when only the last PDU of the last response remains to be sent, so that a
//! granted session does not wait for the initiator.

use std::collections::VecDeque;

use super::{
    Acceptance, Admission, AdmissionRequest, Grant, LOGIN_DATA_BYTES_MAX, LOGIN_PDUS_MAX,
    LOGIN_TEXT_BYTES_MAX, LoggedIn, LoginError, SessionRequest, TargetEvent, Transmit,
};
use crate::chap::{Authenticator, ChapPolicy};
use crate::keys::Key;
use crate::name::{NAME_BYTES_MAX, Name};
use crate::negotiate::{NegotiationError, Negotiator, Parameters, Role, SessionType};
use crate::pdu::{
    Bhs, Cid, Isid, Itt, LoginRequest, LoginResponse, LoginStatus, Opcode, Sn, Stage,
    TargetNumbers, Tsih,
};
use crate::text::{self, Assembly, MalformedText, Pair, Pieces};

/// Settings of all logins of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetPolicy {
    /// StatSN of the first response.
    pub first_stat_sn: Sn,
}

/// One login on one connection.
#[derive(Debug)]
pub struct TargetLogin {
    phase: LoginPhase,
    stage: Stage,
    latest: LatestRequest,
    assembly: Assembly,
    claimed: ClaimedNames,
    proved: Option<String>,
    pdus: usize,
    stat_sn: Sn,
    transmits: VecDeque<Transmit>,
    events: VecDeque<TargetEvent>,
}

#[derive(Debug)]
enum LoginPhase {
    /// No text is complete yet.
    Initial,
    /// Waits for [`TargetLogin::admit`], with the first text.
    AwaitingAdmission(AdmissionRequest, LoginRequest, Vec<u8>),
    Negotiating(Box<Negotiation>),
    /// Waits for [`TargetLogin::judge`], with the text that contains the CHAP response.
    AwaitingVerdict(Box<Negotiation>, LoginRequest, Vec<u8>),
    /// Waits for [`TargetLogin::grant`].
    AwaitingSession(Box<Negotiation>, Box<Parameters>),
    Done,
}

/// The names that an initiator claims, for logs. They may be any text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimedNames {
    /// InitiatorName, truncated to the maximum length of a name.
    pub initiator: Option<String>,
    /// TargetName, truncated likewise.
    pub target: Option<String>,
}

/// The fields of a request needed to answer it, even if the rest is invalid.
#[derive(Clone, Copy, Debug)]
struct LatestRequest {
    stage: Stage,
    isid: Isid,
    tsih: Tsih,
    cid: Cid,
    itt: Itt,
    cmd_sn: Sn,
}

impl TargetLogin {
    /// A login that waits for the first request.
    pub fn new(policy: TargetPolicy) -> TargetLogin {
        TargetLogin {
            phase: LoginPhase::Initial,
            stage: Stage::SecurityNegotiation,
            latest: LatestRequest::NONE,
            assembly: Assembly::new(LOGIN_TEXT_BYTES_MAX),
            claimed: ClaimedNames::default(),
            proved: None,
            pdus: 0,
            stat_sn: policy.first_stat_sn,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Processes a PDU: its header, and its data without padding. A driver need not read data beyond
    /// [`LOGIN_DATA_BYTES_MAX`]; it may close the connection instead.
    pub fn handle_pdu(&mut self, bhs: &Bhs, data: &[u8]) {
        if !matches!(self.phase, LoginPhase::Done) {
            self.receive(bhs, data)
                .unwrap_or_else(|error| self.fail(error));
        }
    }

    /// The driver's reply to [`TargetEvent::Admit`]. Ignored if no such reply is due.
    pub fn admit(&mut self, admission: Admission) {
        match std::mem::replace(&mut self.phase, LoginPhase::Done) {
            LoginPhase::AwaitingAdmission(request, first, text) => match admission {
                Admission::Accept(acceptance) => {
                    let negotiation = Box::new(Negotiation::new(*acceptance, request));
                    self.answer(negotiation, &first, &text)
                        .unwrap_or_else(|error| self.fail(error));
                }
                Admission::Refuse(status) => self.fail(LoginError::Refused(status)),
                Admission::Redirect { address, permanent } => self.redirect(&address, permanent),
            },
            other => self.phase = other,
        }
    }

    /// The driver's reply to [`TargetEvent::Proof`]. Ignored if no such reply is due.
    pub fn judge(&mut self, verdict: Result<(), LoginStatus>) {
        match std::mem::replace(&mut self.phase, LoginPhase::Done) {
            LoginPhase::AwaitingVerdict(negotiation, request, text) => match verdict {
                Ok(()) => self
                    .answer(negotiation, &request, &text)
                    .unwrap_or_else(|error| self.fail(error)),
                Err(status) => self.fail(LoginError::Refused(status)),
            },
            other => self.phase = other,
        }
    }

    /// The driver's reply to [`TargetEvent::SessionNeeded`]. Ignored if no such reply is due.
    pub fn grant(&mut self, grant: Result<Grant, LoginStatus>) {
        match std::mem::replace(&mut self.phase, LoginPhase::Done) {
            LoginPhase::AwaitingSession(negotiation, parameters) => match grant {
                Ok(grant) => self.conclude(negotiation, *parameters, grant),
                Err(status) => self.fail(LoginError::Refused(status)),
            },
            other => self.phase = other,
        }
    }

    /// The authenticated CHAP name, even if the login was refused later.
    pub fn proved(&self) -> Option<&str> {
        self.proved.as_deref()
    }

    /// The names in the first request, valid or not.
    pub fn claimed(&self) -> &ClaimedNames {
        &self.claimed
    }

    /// The next PDU to send. Send all of them before acting on an event.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<TargetEvent> {
        self.events.pop_front()
    }

    fn receive(&mut self, bhs: &Bhs, data: &[u8]) -> Result<(), LoginError> {
        if bhs.opcode() != Some(Opcode::LoginRequest) {
            return Err(if self.pdus == 0 {
                LoginError::NotALogin
            } else {
                LoginError::AnotherPdu
            });
        }
        let latest = LatestRequest::from_bhs(bhs).ok_or(LoginError::NotALogin)?;
        let before = std::mem::replace(&mut self.latest, latest);
        self.pdus += 1;
        // Check the announced length: the driver may not have read all the data.
        if self.pdus > LOGIN_PDUS_MAX || bhs.data_segment_length() as usize > LOGIN_DATA_BYTES_MAX {
            return Err(LoginError::TooMuch);
        }
        let request = LoginRequest::parse(bhs)?;
        if self.pdus == 1 {
            // The initiator chooses the first stage (section 6.3). Only version 0 exists (section 11.12.4).
            self.stage = request.stage;
            if request.version_min > VERSION {
                return Err(LoginError::Version);
            }
        } else if !latest.is_same_login(&before) {
            return Err(LoginError::IdentityChanged);
        } else if request.stage != self.stage {
            return Err(LoginError::WrongStage);
        }
        self.take(&request, data)
    }

    fn take(&mut self, request: &LoginRequest, data: &[u8]) -> Result<(), LoginError> {
        match std::mem::replace(&mut self.phase, LoginPhase::Done) {
            // Our text has not been sent completely, so only an empty request is allowed (section 6.2).
            LoginPhase::Negotiating(negotiation) if !negotiation.reply.is_empty() => {
                if request.continues || !data.is_empty() {
                    return Err(LoginError::OutOfTurn);
                }
                self.send_response(negotiation)?;
            }
            phase @ (LoginPhase::Initial | LoginPhase::Negotiating(_)) => {
                match self.assembly.add(data, request.continues)? {
                    Some(text) => self.take_text(phase, request, text)?,
                    None => {
                        self.phase = phase;
                        self.transmit(self.response(LoginStatus::Success), Vec::new());
                    }
                }
            }
            LoginPhase::AwaitingAdmission(..)
            | LoginPhase::AwaitingVerdict(..)
            | LoginPhase::AwaitingSession(..)
            | LoginPhase::Done => {
                return Err(LoginError::OutOfTurn);
            }
        }
        Ok(())
    }

    fn take_text(
        &mut self,
        phase: LoginPhase,
        request: &LoginRequest,
        text: Vec<u8>,
    ) -> Result<(), LoginError> {
        let pairs = text::parse(&text)?;
        if let LoginPhase::Negotiating(negotiation) = phase {
            let user = negotiation.proof_by(request, &pairs).map(str::to_owned);
            let Some(user) = user else {
                return self.answer(negotiation, request, &text);
            };
            self.events.push_back(TargetEvent::Proof { user });
            self.phase = LoginPhase::AwaitingVerdict(negotiation, *request, text);
            return Ok(());
        }
        self.claimed = ClaimedNames::from_pairs(&pairs);
        let admission = admission_request(request, &pairs)?;
        self.events.push_back(TargetEvent::Admit(admission.clone()));
        self.phase = LoginPhase::AwaitingAdmission(admission, *request, text);
        Ok(())
    }

    /// Answers a complete text, and moves to the next stage if requested and allowed.
    fn answer(
        &mut self,
        mut negotiation: Box<Negotiation>,
        request: &LoginRequest,
        text: &[u8],
    ) -> Result<(), LoginError> {
        let mut out = Vec::new();
        let answered = negotiation.answer(request, &text::parse(text)?, &mut out);
        self.proved = negotiation.authentication.name();
        answered?;
        negotiation.reply = Pieces::new(out);
        self.send_response(negotiation)
    }

    /// Sends the next PDU of a reply. The last PDU of a reply changes the stage. If the next stage is the
    /// full feature phase, this PDU is sent only after the driver has granted a session.
    fn send_response(&mut self, mut negotiation: Box<Negotiation>) -> Result<(), LoginError> {
        debug_assert!(
            matches!(self.phase, LoginPhase::Done),
            "the phase is taken while a request is answered"
        );
        let is_last = negotiation.reply.left_bytes() <= LOGIN_DATA_BYTES_MAX;
        if is_last && negotiation.transit_to == Some(Stage::FullFeature) {
            let parameters = negotiation.negotiator.clone().finish()?;
            self.events
                .push_back(TargetEvent::SessionNeeded(Box::new(SessionRequest {
                    request: negotiation.request.clone(),
                    authenticated_as: negotiation.authentication.name(),
                    parameters: parameters.clone(),
                    cmd_sn: self.latest.cmd_sn,
                })));
            self.phase = LoginPhase::AwaitingSession(negotiation, Box::new(parameters));
            return Ok(());
        }
        let (data, continues) = negotiation.reply.next(LOGIN_DATA_BYTES_MAX);
        let mut response = LoginResponse {
            continues,
            ..self.response(LoginStatus::Success)
        };
        if !continues {
            response.transit_to = negotiation.transit_to.take();
            debug_assert!(
                response.transit_to.is_none_or(|next| next > self.stage),
                "a login goes forward"
            );
            self.stage = response.transit_to.unwrap_or(self.stage);
        }
        self.transmit(response, data);
        self.phase = LoginPhase::Negotiating(negotiation);
        Ok(())
    }

    /// Sends the last PDU of the last reply.
    fn conclude(
        &mut self,
        mut negotiation: Box<Negotiation>,
        parameters: Parameters,
        grant: Grant,
    ) {
        let (data, _) = negotiation.reply.next(LOGIN_DATA_BYTES_MAX);
        debug_assert!(negotiation.reply.is_empty(), "text after the last response");
        debug_assert_ne!(grant.tsih, Tsih::NEW, "a session has a handle");
        let (exp_cmd_sn, max_cmd_sn) = (grant.exp_cmd_sn, grant.max_cmd_sn);
        let response = LoginResponse {
            transit_to: negotiation.transit_to,
            tsih: grant.tsih,
            numbers: TargetNumbers {
                stat_sn: self.stat_sn,
                exp_cmd_sn,
                max_cmd_sn,
            },
            ..self.response(LoginStatus::Success)
        };
        self.transmit(response, data);
        self.events
            .push_back(TargetEvent::LoggedIn(Box::new(LoggedIn {
                request: AdmissionRequest {
                    tsih: grant.tsih,
                    ..negotiation.request
                },
                authenticated_as: negotiation.authentication.name(),
                parameters,
                exp_cmd_sn,
                max_cmd_sn,
                stat_sn: self.stat_sn,
            })));
    }

    fn redirect(&mut self, address: &str, permanent: bool) {
        let status = if permanent {
            LoginStatus::TargetMovedPermanently
        } else {
            LoginStatus::TargetMovedTemporarily
        };
        let mut data = Vec::new();
        text::append(&mut data, Key::TargetAddress.name(), address);
        self.transmit(self.response(status), data);
        self.events
            .push_back(TargetEvent::Failed(LoginError::Refused(status)));
    }

    fn fail(&mut self, error: LoginError) {
        self.phase = LoginPhase::Done;
        if let Some(status) = error.status() {
            self.transmit(self.response(status), Vec::new());
        }
        self.events.push_back(TargetEvent::Failed(error));
    }

    /// A response to the latest request, in its stage, without text.
    fn response(&self, status: LoginStatus) -> LoginResponse {
        let latest = self.latest;
        let cmd_sn = latest.cmd_sn;
        let numbers = TargetNumbers {
            stat_sn: self.stat_sn,
            exp_cmd_sn: cmd_sn,
            max_cmd_sn: cmd_sn,
        };
        LoginResponse {
            continues: false,
            stage: latest.stage,
            transit_to: None,
            version_max: VERSION,
            version_active: VERSION,
            isid: latest.isid,
            tsih: latest.tsih,
            itt: latest.itt,
            numbers,
            status,
            data_segment_length: 0,
        }
    }

    fn transmit(&mut self, response: LoginResponse, data: Vec<u8>) {
        // A piece has no more than LOGIN_DATA_BYTES_MAX bytes.
        debug_assert!(
            data.len() <= LOGIN_DATA_BYTES_MAX,
            "a response that is too long"
        );
        let response = LoginResponse {
            data_segment_length: data.len() as u32,
            ..response
        };
        self.transmits.push_back(Transmit {
            bhs: response.emit(),
            data,
        });
        self.stat_sn = self.stat_sn.next();
    }
}

impl ClaimedNames {
    fn from_pairs(pairs: &[text::Pair<'_>]) -> ClaimedNames {
        let value = |key: Key| {
            let pair = pairs.iter().find(|pair| pair.key == key.name())?;
            Some(pair.value[..pair.value.floor_char_boundary(NAME_BYTES_MAX)].to_owned())
        };
        ClaimedNames {
            initiator: value(Key::InitiatorName),
            target: value(Key::TargetName),
        }
    }
}

impl LatestRequest {
    /// The value before the first request. No response is built from it: errors before the first request
    /// close the connection without a response.
    const NONE: LatestRequest = LatestRequest {
        stage: Stage::SecurityNegotiation,
        isid: Isid([0; 6]),
        tsih: Tsih::NEW,
        cid: Cid(0),
        itt: Itt::ZERO,
        cmd_sn: Sn(0),
    };

    /// Reads the fields of a header, whether or not the header is valid. `None` if it has no task tag,
    /// because a response is then impossible.
    fn from_bhs(bhs: &Bhs) -> Option<LatestRequest> {
        Some(LatestRequest {
            stage: Stage::try_from(bhs.u8(1) >> 2 & 3).unwrap_or(Stage::SecurityNegotiation),
            isid: Isid(bhs.bytes(8)),
            tsih: Tsih(bhs.u16(14)),
            cid: Cid(bhs.u16(20)),
            itt: Itt::new(bhs.itt_raw())?,
            cmd_sn: Sn(bhs.u32(24)),
        })
    }

    /// Whether a request belongs to the same login as the previous one. The task tag should also be the same
    /// (section 11.12), but some initiators increment it, and nothing depends on it.
    fn is_same_login(&self, before: &LatestRequest) -> bool {
        (self.isid, self.tsih, self.cid) == (before.isid, before.tsih, before.cid)
    }
}

const VERSION: u8 = 0;

/// An admitted login.
#[derive(Debug)]
pub(super) struct Negotiation {
    pub(super) request: AdmissionRequest,
    pub(super) authentication: Authentication,
    pub(super) negotiator: Negotiator,
    /// Whether our declarations have been sent.
    has_declared: bool,
    /// The status to refuse an authenticated initiator with.
    refusal: Option<LoginStatus>,
    /// Keys to process after authentication.
    kept: Vec<u8>,
    /// TargetPortalGroupTag, until it is sent.
    tag: Option<u16>,
    /// The rest of the reply to the latest request, and the stage after it.
    pub(super) reply: Pieces,
    pub(super) transit_to: Option<Stage>,
}

#[derive(Debug)]
pub(super) enum Authentication {
    NotNeeded,
    Needed(ChapPolicy),
    Running(Authenticator),
}

impl Negotiation {
    pub(super) fn new(acceptance: Acceptance, request: AdmissionRequest) -> Negotiation {
        let negotiator = match &acceptance.session {
            Some(session) => Negotiator::following(Role::Target, acceptance.offers, session),
            None => Negotiator::leading(Role::Target, acceptance.offers, request.session_type),
        };
        Negotiation {
            request,
            authentication: acceptance
                .authentication
                .map_or(Authentication::NotNeeded, Authentication::Needed),
            negotiator,
            has_declared: false,
            refusal: acceptance.refusal,
            kept: Vec::new(),
            tag: acceptance.target_portal_group_tag,
            reply: Pieces::default(),
            transit_to: None,
        }
    }

    /// Appends the reply to a text, and determines the next stage.
    pub(super) fn answer(
        &mut self,
        request: &LoginRequest,
        pairs: &[Pair<'_>],
        out: &mut Vec<u8>,
    ) -> Result<(), LoginError> {
        self.check_names(pairs)?;
        if let Some(tag) = self.tag.take() {
            // Section 13.9: required in the first response of a normal session.
            text::append(out, Key::TargetPortalGroupTag.name(), tag);
        }
        if request.stage == Stage::SecurityNegotiation {
            self.authentication.handle(pairs, out)?;
        }
        if let Some(status) = self.refusal.filter(|_| self.authentication.is_passed()) {
            return Err(LoginError::Refused(status));
        }
        self.transit_to = self.next_stage(request)?;
        // Declarations are sent in the operational stage or, if it is skipped, with the last response before
        // it.
        let may_declare = request.stage == Stage::OperationalNegotiation
            || self.transit_to == Some(Stage::FullFeature);
        if may_declare && !std::mem::replace(&mut self.has_declared, true) {
            self.negotiator.open(out);
        }
        self.negotiator.note_keys(pairs)?;
        let negotiated = pairs
            .iter()
            .copied()
            .filter(|pair| is_negotiated(pair, request.stage));
        if !self.authentication.is_passed() {
            return self.keep(negotiated);
        }
        let kept = std::mem::take(&mut self.kept);
        let pairs: Vec<Pair<'_>> = text::parse(&kept)?.into_iter().chain(negotiated).collect();
        if pairs.len() > text::PAIRS_MAX {
            return Err(MalformedText::TooManyPairs.into());
        }
        Ok(self.negotiator.receive_all(pairs, out)?)
    }

    /// Stores the keys of an unauthenticated initiator until it is authenticated: some replies would reveal
    /// that a session exists.
    fn keep<'a>(&mut self, pairs: impl Iterator<Item = Pair<'a>>) -> Result<(), LoginError> {
        pairs.for_each(|pair| text::append(&mut self.kept, pair.key, pair.value));
        self.kept.shrink_to_fit();
        if self.kept.len() > LOGIN_TEXT_BYTES_MAX {
            Err(LoginError::TooMuch)
        } else {
            Ok(())
        }
    }

    /// The CHAP name whose response is in this request, if any.
    pub(super) fn proof_by<'a>(
        &self,
        request: &LoginRequest,
        pairs: &[Pair<'a>],
    ) -> Option<&'a str> {
        match &self.authentication {
            Authentication::Running(chap) if request.stage == Stage::SecurityNegotiation => {
                chap.proof_by(pairs)
            }
            _ => None,
        }
    }

    /// The stage after this request: the requested one, once the initiator is authenticated.
    ///
    /// iPXE sets T in every step of CHAP (ipxe pull request 1444). It has no meaning before authentication is
    /// complete, so the response leaves T clear.
    fn next_stage(&self, request: &LoginRequest) -> Result<Option<Stage>, LoginError> {
        match (&self.authentication, request.stage, request.transit_to) {
            (Authentication::NotNeeded, _, requested_stage) => Ok(requested_stage),
            (Authentication::Running(chap), _, requested_stage) => {
                Ok(requested_stage.filter(|_| chap.authenticated().is_some()))
            }
            (Authentication::Needed(_), Stage::SecurityNegotiation, None) => Ok(None),
            (Authentication::Needed(_), ..) => Err(LoginError::AuthenticationSkipped),
        }
    }

    /// Names may be repeated (some initiators do so in every request), but not changed.
    fn check_names(&self, pairs: &[Pair<'_>]) -> Result<(), LoginError> {
        let same = |pair: &Pair<'_>| match Key::find(pair.key) {
            Some(Key::InitiatorName) => {
                Name::of_initiator(pair.value).as_ref() == Ok(&self.request.initiator_name)
            }
            Some(Key::TargetName) => Name::new(pair.value).ok() == self.request.target_name,
            Some(Key::SessionType) => {
                SessionType::named(pair.value) == Some(self.request.session_type)
            }
            _ => true,
        };
        if pairs.iter().all(same) {
            Ok(())
        } else {
            Err(LoginError::IdentityChanged)
        }
    }
}

impl Authentication {
    /// Processes the security keys of a request, and appends our reply.
    fn handle(&mut self, pairs: &[Pair<'_>], out: &mut Vec<u8>) -> Result<(), LoginError> {
        if let Some(method) = pairs.iter().find(|pair| pair.key == Key::AuthMethod.name()) {
            self.choose(method.value, out)?;
        }
        // An initiator may send its algorithms together with AuthMethod, or in the next request.
        match self {
            Authentication::Running(chap) if pairs.iter().any(is_chap) => {
                Ok(chap.handle(pairs, out)?)
            }
            _ => Ok(()),
        }
    }

    /// AuthMethod (section 12.1): the method required by the target, if it is in the initiator's list.
    fn choose(&mut self, listed: &str, out: &mut Vec<u8>) -> Result<(), LoginError> {
        let (wanted, chosen) = match std::mem::replace(self, Authentication::NotNeeded) {
            Authentication::NotNeeded => (NONE, Authentication::NotNeeded),
            Authentication::Needed(policy) => {
                (CHAP, Authentication::Running(Authenticator::new(policy)))
            }
            Authentication::Running(_) => {
                return Err(LoginError::Negotiation(NegotiationError::Repeated(
                    Key::AuthMethod,
                )));
            }
        };
        if !listed.split(',').any(|method| method == wanted) {
            return Err(LoginError::NoSharedAuthMethod);
        }
        text::append(out, Key::AuthMethod.name(), wanted);
        *self = chosen;
        Ok(())
    }

    /// Whether authentication is complete or not required.
    fn is_passed(&self) -> bool {
        match self {
            Authentication::NotNeeded => true,
            Authentication::Needed(_) => false,
            Authentication::Running(chap) => chap.authenticated().is_some(),
        }
    }

    /// The authenticated CHAP name.
    pub(super) fn name(&self) -> Option<String> {
        match self {
            Authentication::NotNeeded | Authentication::Needed(_) => None,
            Authentication::Running(chap) => chap.authenticated().map(str::to_owned),
        }
    }
}

/// The request for admission, from the first request's text.
pub(super) fn admission_request(
    request: &LoginRequest,
    pairs: &[Pair<'_>],
) -> Result<AdmissionRequest, LoginError> {
    let find = |key: Key| {
        pairs
            .iter()
            .find(|pair| pair.key == key.name())
            .map(|pair| pair.value)
    };
    let initiator_name =
        find(Key::InitiatorName).ok_or(LoginError::MissingKey(Key::InitiatorName))?;
    let target_name = find(Key::TargetName).map(Name::new).transpose();
    // Without the key, the session is a normal one (section 13.21).
    let session_type = find(Key::SessionType).map_or(Some(SessionType::Normal), SessionType::named);
    let admission = AdmissionRequest {
        initiator_name: Name::of_initiator(initiator_name).map_err(LoginError::BadInitiatorName)?,
        target_name: target_name.map_err(LoginError::BadTargetName)?,
        session_type: session_type.ok_or(LoginError::UnknownSessionType)?,
        isid: request.isid,
        tsih: request.tsih,
        cid: request.cid,
    };
    if admission.session_type == SessionType::Normal && admission.target_name.is_none() {
        return Err(LoginError::MissingKey(Key::TargetName));
    }
    Ok(admission)
}

/// Whether the negotiator processes a pair. The login itself processes names, and in the security stage, CHAP
/// processes security keys. In the operational stage, security keys are invalid, and the negotiator rejects
/// them.
fn is_negotiated(pair: &Pair<'_>, stage: Stage) -> bool {
    let is_name = [Key::InitiatorName, Key::TargetName, Key::SessionType]
        .iter()
        .any(|key| pair.key == key.name());
    let is_security = pair.key == Key::AuthMethod.name() || is_chap(pair);
    !(is_name || is_security && stage == Stage::SecurityNegotiation)
}

fn is_chap(pair: &Pair<'_>) -> bool {
    [Key::ChapA, Key::ChapI, Key::ChapC, Key::ChapN, Key::ChapR]
        .iter()
        .any(|key| pair.key == key.name())
}

/// Values of AuthMethod.
const NONE: &str = "None";
const CHAP: &str = "CHAP";
