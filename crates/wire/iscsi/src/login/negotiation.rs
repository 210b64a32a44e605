//! An admitted login: the target's text for each request, and its stage transitions.

use super::admission::{Acceptance, AdmissionRequest};
use super::{LOGIN_TEXT_BYTES_MAX, LoginError};
use crate::chap::{Authenticator, ChapPolicy};
use crate::keys::Key;
use crate::name::Name;
use crate::negotiate::{NegotiationError, Negotiator, Role, SessionType};
use crate::pdu::{LoginRequest, LoginStatus, Stage};
use crate::text::{self, MalformedText, Pair, Pieces};

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
        // In the operational stage, or if it is skipped.
        let may_declare =
            request.stage == Stage::OperationalNegotiation || self.transit_to == Some(Stage::FullFeature);
        if may_declare && !std::mem::replace(&mut self.has_declared, true) {
            self.negotiator.open(out);
        }
        self.negotiator.note_keys(pairs)?;
        let negotiated = pairs.iter().copied().filter(|pair| is_negotiated(pair, request.stage));
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

    /// Keeps keys of an unauthenticated initiator: some replies would reveal that a session exists.
    fn keep<'a>(&mut self, pairs: impl Iterator<Item = Pair<'a>>) -> Result<(), LoginError> {
        pairs.for_each(|pair| text::append(&mut self.kept, pair.key, pair.value));
        self.kept.shrink_to_fit();
        if self.kept.len() > LOGIN_TEXT_BYTES_MAX { Err(LoginError::TooMuch) } else { Ok(()) }
    }

    /// The CHAP name whose response is in this request, if any.
    pub(super) fn proof_by<'a>(&self, request: &LoginRequest, pairs: &[Pair<'a>]) -> Option<&'a str> {
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
            Some(Key::SessionType) => SessionType::named(pair.value) == Some(self.request.session_type),
            _ => true,
        };
        if pairs.iter().all(same) { Ok(()) } else { Err(LoginError::IdentityChanged) }
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
            Authentication::Running(chap) if pairs.iter().any(is_chap) => Ok(chap.handle(pairs, out)?),
            _ => Ok(()),
        }
    }

    /// AuthMethod (section 12.1): the method required by the target, if it is in the initiator's list.
    fn choose(&mut self, listed: &str, out: &mut Vec<u8>) -> Result<(), LoginError> {
        let (wanted, chosen) = match std::mem::replace(self, Authentication::NotNeeded) {
            Authentication::NotNeeded => (NONE, Authentication::NotNeeded),
            Authentication::Needed(policy) => (CHAP, Authentication::Running(Authenticator::new(policy))),
            Authentication::Running(_) => {
                return Err(LoginError::Negotiation(NegotiationError::Repeated(Key::AuthMethod)));
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
    let find = |key: Key| pairs.iter().find(|pair| pair.key == key.name()).map(|pair| pair.value);
    let initiator_name = find(Key::InitiatorName).ok_or(LoginError::MissingKey(Key::InitiatorName))?;
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

/// Whether the negotiator handles a pair: names are handled by the login, and security keys in their stage by
/// CHAP. In the other stage they are invalid, and the negotiator rejects them.
fn is_negotiated(pair: &Pair<'_>, stage: Stage) -> bool {
    let is_name =
        [Key::InitiatorName, Key::TargetName, Key::SessionType].iter().any(|key| pair.key == key.name());
    let is_security = pair.key == Key::AuthMethod.name() || is_chap(pair);
    !(is_name || is_security && stage == Stage::SecurityNegotiation)
}

fn is_chap(pair: &Pair<'_>) -> bool {
    [Key::ChapA, Key::ChapI, Key::ChapC, Key::ChapN, Key::ChapR].iter().any(|key| pair.key == key.name())
}

/// Values of AuthMethod.
const NONE: &str = "None";
const CHAP: &str = "CHAP";
