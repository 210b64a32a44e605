//! Negotiation (RFC 7143 section 6.2) of the [`Parameters`] of a session.
//!
//! One [`Negotiator`] serves one side of one login. The initiator makes offers and reads the answers; the
//! target declares its own numbers and answers the offers. Both roles can process offers and answers, since
//! the standard allows both sides to make offers. The rules of each key are in [`crate::keys`]; names,
//! authentication and SendTargets are not negotiated here.
//!
//! ```text
//!   initiator                                     target
//!   MaxBurstLength=16776192   ───────────────▶    limit 1048576
//!                             ◀───────────────    MaxBurstLength=1048576
//!   X-com.example.Dance=Yes   ───────────────▶    unknown key
//!                             ◀───────────────    X-com.example.Dance=NotUnderstood
//! ```

use derive_more::Display;

use crate::keys::{self, Entry, Key, Scope, Sender, Use, answer};
use crate::rules::{Rule, Setting};
use crate::text::{self, Pair};

pub use crate::keys::{Offers, Parameters};
pub use crate::rules::{DigestKind, SessionType, TaskReporting};

/// The role of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The initiator.
    Initiator,
    /// The target.
    Target,
}

/// A violation by the peer that ends a negotiation. A target answers it with "initiator error" (0200); an
/// initiator closes the connection (section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum NegotiationError {
    /// A key was declared or negotiated again.
    #[display("{} was declared or negotiated twice", _0.name())]
    Repeated(Key),
    /// An answer that the key's rule does not allow for our offer.
    #[display("the response to {} contains a value that was not offered", _0.name())]
    UnfairAnswer(Key),
    /// There is no choice that both sides accept, and this side does not accept the default either.
    #[display("the two sides accept no common value of {}", _0.name())]
    NothingShared(Key),
}

/// One side of one login's negotiation.
#[derive(Clone, Debug)]
pub struct Negotiator {
    role: Role,
    offers: Offers,
    parameters: Parameters,
    is_leading: bool,
    progress: [Progress; keys::TABLE.len()],
    received_keys: ReceivedKeys,
}

/// State of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Open,
    Offered,
    Settled,
}

impl Negotiator {
    /// Starts a negotiation for the leading connection of a session.
    pub fn leading(role: Role, offers: Offers, session_type: SessionType) -> Negotiator {
        let parameters = Parameters::defaults(session_type);
        Negotiator {
            role,
            offers,
            parameters,
            is_leading: true,
            progress: [Progress::Open; keys::TABLE.len()],
            received_keys: ReceivedKeys::default(),
        }
    }

    /// Starts a negotiation for a further connection of a session with the parameters `session`.
    pub fn following(role: Role, offers: Offers, session: &Parameters) -> Negotiator {
        let parameters = session.for_another_connection();
        Negotiator {
            role,
            offers,
            parameters,
            is_leading: false,
            progress: [Progress::Open; keys::TABLE.len()],
            received_keys: ReceivedKeys::default(),
        }
    }

    /// Appends our declarations and, in the role of the initiator, our offers. To be called once per login.
    pub fn open(&mut self, out: &mut Vec<u8>) {
        self.declare(out);
        if self.role == Role::Initiator {
            for entry in keys::TABLE {
                self.offer(entry, out);
            }
        }
    }

    /// Records the keys of a text, including keys that the login itself processes. Fails if a key is declared
    /// or negotiated twice.
    pub fn note_keys(&mut self, pairs: &[Pair<'_>]) -> Result<(), NegotiationError> {
        self.received_keys.take(pairs)
    }

    /// Processes pairs whose keys have been recorded, and appends the replies.
    ///
    /// FirstBurstLength is processed last: it "MUST NOT exceed MaxBurstLength" (section 13.14), whose value
    /// may follow it in the text.
    pub fn receive_all<'a>(
        &mut self,
        pairs: impl IntoIterator<Item = Pair<'a>>,
        out: &mut Vec<u8>,
    ) -> Result<(), NegotiationError> {
        let (last, first): (Vec<Pair<'_>>, Vec<Pair<'_>>) = pairs
            .into_iter()
            .partition(|pair| pair.key == Key::FirstBurstLength.name());
        first
            .into_iter()
            .chain(last)
            .try_for_each(|pair| self.receive(pair, out))
    }

    /// The negotiated parameters. Keys offered but never answered keep their default.
    ///
    /// FirstBurstLength can exceed MaxBurstLength if the two were negotiated in different messages, or if one
    /// kept its default. It is then reduced to MaxBurstLength, which is the limit of any burst in any case.
    pub fn finish(mut self) -> Result<Parameters, NegotiationError> {
        if let Some(entry) = keys::TABLE
            .iter()
            .find(|entry| !self.accepts_outcome(entry))
        {
            return Err(NegotiationError::NothingShared(entry.key));
        }
        let parameters = &mut self.parameters;
        parameters.first_burst_length = parameters
            .first_burst_length
            .min(parameters.max_burst_length);
        debug_assert!(
            parameters.max_burst_length >= 512,
            "numbers are taken in their ranges only"
        );
        Ok(self.parameters)
    }

    fn declare(&mut self, out: &mut Vec<u8>) {
        let segment = self
            .offers
            .max_recv_data_segment_length
            .clamp(512, 0xff_ffff);
        self.parameters.local_max_recv_data_segment_length = segment;
        text::append(out, Key::MaxRecvDataSegmentLength.name(), segment);
        if let Some(alias) = self.offers.alias.clone() {
            let (key, place) = match self.role {
                Role::Initiator => (Key::InitiatorAlias, &mut self.parameters.initiator_alias),
                Role::Target => (Key::TargetAlias, &mut self.parameters.target_alias),
            };
            text::append(out, key.name(), alias.as_str());
            *place = Some(alias.to_string());
        }
    }

    fn may_offer(&self, entry: &Entry) -> bool {
        self.is_relevant(entry) && (self.is_leading || entry.used != Use::LeadingLogin)
    }

    fn is_relevant(&self, entry: &Entry) -> bool {
        !(entry.irrelevant_in_discovery && self.parameters.session_type == SessionType::Discovery)
    }

    fn offer(&mut self, entry: &Entry, out: &mut Vec<u8>) {
        let Some(settings) = self
            .offers
            .settings(entry.key)
            .filter(|_| self.may_offer(entry))
        else {
            return;
        };
        let listed: Vec<String> = settings.iter().map(Setting::to_string).collect();
        text::append(out, entry.name, listed.join(","));
        self.progress[entry.key as usize] = Progress::Offered;
    }

    fn receive(&mut self, pair: Pair<'_>, out: &mut Vec<u8>) -> Result<(), NegotiationError> {
        let Some(key) = Key::find(pair.key) else {
            reply_unless_answer(pair, answer::NOT_UNDERSTOOD, out);
            return Ok(());
        };
        match key.entry().rule {
            Rule::Text | Rule::DeclaredNumber(..) => {
                self.parameters.hear(self.role, key, pair, out)
            }
            Rule::Obsolete(refusal) => reply_unless_answer(pair, refusal, out),
            Rule::Exchange => reply_unless_answer(pair, answer::REJECT, out),
            Rule::And(_)
            | Rule::Or(_)
            | Rule::Minimum(..)
            | Rule::Maximum(..)
            | Rule::Choice(_) => {
                return self.negotiate(key, pair, out);
            }
        }
        Ok(())
    }

    /// Processes a pair: the answer to our offer if we made one, otherwise an offer of the peer.
    fn negotiate(
        &mut self,
        key: Key,
        pair: Pair<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), NegotiationError> {
        match self.progress[key as usize] {
            Progress::Offered => self.take_answer(key, pair.value)?,
            Progress::Open if answer::is_answer(pair.value) => return Ok(()),
            Progress::Open => text::append(out, pair.key, self.answer_offer(key, pair.value)),
            // A second answer. ([`ReceivedKeys`] detects repeated offers.)
            Progress::Settled => return Err(NegotiationError::Repeated(key)),
        }
        self.progress[key as usize] = Progress::Settled;
        Ok(())
    }

    /// Processes the answer to our offer. If the peer does not support the key, the default applies.
    fn take_answer(&mut self, key: Key, value: &str) -> Result<(), NegotiationError> {
        if answer::is_answer(value) {
            return Ok(());
        }
        let rule = key.entry().rule;
        let offered = self.offers.settings(key).unwrap_or_default();
        match rule.read(value).as_deref() {
            Some(&[answer]) if rule.is_fair(&offered, answer) => self.parameters.set(key, answer),
            _ => return Err(NegotiationError::UnfairAnswer(key)),
        }
        Ok(())
    }

    /// Applies the peer's offer, and returns the answer to it.
    fn answer_offer(&mut self, key: Key, value: &str) -> String {
        let entry = key.entry();
        if !self.is_relevant(entry) {
            return answer::IRRELEVANT.to_owned();
        }
        let offered = entry.rule.read(value);
        let agreed =
            offered.and_then(|offered| entry.rule.agree(&offered, &self.acceptable(entry)));
        match agreed {
            Some(setting)
                if self.may_change(entry) || self.parameters.setting(key) == Some(setting) =>
            {
                self.parameters.set(key, setting);
                setting.to_string()
            }
            _ => answer::REJECT.to_owned(),
        }
    }

    /// The acceptable values of a key. On a further connection, only the session's values are acceptable: an
    /// initiator that offers a session's keys again, although LO forbids this, gets the same values.
    fn acceptable(&self, entry: &Entry) -> Vec<Setting> {
        if !self.may_change(entry) {
            return self.parameters.setting(entry.key).into_iter().collect();
        }
        let settings = self.offers.settings(entry.key).unwrap_or_default();
        match entry.key {
            Key::FirstBurstLength => {
                let range = text::Range {
                    least: 512,
                    greatest: self.parameters.max_burst_length,
                };
                settings
                    .into_iter()
                    .map(|setting| setting.clamped(range))
                    .collect()
            }
            _ => settings,
        }
    }

    fn may_change(&self, entry: &Entry) -> bool {
        self.is_leading || entry.scope == Scope::Connection
    }

    /// Whether the result of a choice is acceptable.
    fn accepts_outcome(&self, entry: &Entry) -> bool {
        if !matches!(entry.rule, Rule::Choice(_)) || !self.may_offer(entry) {
            return true;
        }
        let acceptable = self.offers.settings(entry.key).unwrap_or_default();
        self.parameters
            .setting(entry.key)
            .is_none_or(|outcome| acceptable.contains(&outcome))
    }
}

impl Parameters {
    /// Processes a declaration.
    fn hear(&mut self, role: Role, key: Key, pair: Pair<'_>, out: &mut Vec<u8>) {
        let from_peer = match role {
            Role::Initiator => key.entry().sender != Sender::Initiator,
            Role::Target => key.entry().sender != Sender::Target,
        };
        if answer::is_answer(pair.value) {
            return;
        }
        if !from_peer || !self.declare(key, pair.value) {
            text::append(out, pair.key, answer::REJECT);
        }
    }

    /// Applies a declaration if it is acceptable, and returns whether it is. The login processes names and
    /// addresses.
    fn declare(&mut self, key: Key, value: &str) -> bool {
        match (key, key.entry().rule) {
            (Key::MaxRecvDataSegmentLength, Rule::DeclaredNumber(range, _)) => {
                let number = text::number(value).filter(|&number| range.holds(number));
                number
                    .inspect(|&number| self.peer_max_recv_data_segment_length = number)
                    .is_some()
            }
            (Key::InitiatorAlias, _) => set_alias(&mut self.initiator_alias, value),
            (Key::TargetAlias, _) => set_alias(&mut self.target_alias, value),
            _ => true,
        }
    }
}

impl NegotiationError {
    /// The key concerned.
    pub fn key(self) -> Key {
        match self {
            NegotiationError::Repeated(key)
            | NegotiationError::UnfairAnswer(key)
            | NegotiationError::NothingShared(key) => key,
        }
    }
}

impl std::error::Error for NegotiationError {}

/// Answers a pair, unless the pair is itself an answer: otherwise two incompatible sides would answer each
/// other forever.
fn reply_unless_answer(pair: Pair<'_>, reply: &str, out: &mut Vec<u8>) {
    if !answer::is_answer(pair.value) {
        text::append(out, pair.key, reply);
    }
}

/// Sections 13.6 and 13.7: an alias is a display name of up to 255 bytes.
const ALIAS_BYTES_MAX: usize = 255;

fn set_alias(place: &mut Option<String>, value: &str) -> bool {
    let fits = value.len() <= ALIAS_BYTES_MAX;
    if fits {
        *place = (!value.is_empty()).then(|| value.to_owned());
    }
    fits
}

/// The keys that one side has declared, offered or answered in a login, or in a text exchange.
///
/// RFC 7143 section 6.3: "Neither the initiator nor the target should attempt to declare or negotiate a
/// parameter more than once during login", except for keys that explicitly allow it. "An attempt to
/// renegotiate/redeclare parameters not specifically allowed MUST be detected by the initiator and target".
/// Section 6.4 requires the same in the full feature phase.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReceivedKeys(u64);

impl ReceivedKeys {
    /// Records the keys of one text.
    pub(crate) fn take(&mut self, pairs: &[Pair<'_>]) -> Result<(), NegotiationError> {
        let mut here = ReceivedKeys::default();
        for pair in pairs.iter().filter(|pair| !answer::is_answer(pair.value)) {
            let Some(key) = Key::find(pair.key) else {
                continue;
            };
            let before = match key {
                // There may be several addresses (section 13.8), and CHAP is an exchange with its own rules.
                Key::TargetAddress
                | Key::ChapA
                | Key::ChapI
                | Key::ChapC
                | Key::ChapN
                | Key::ChapR => {
                    continue;
                }
                // Not allowed, but harmless and common: libiscsi and u-root's initiator repeat their names in
                // every request. The login checks that they do not change.
                Key::InitiatorName | Key::TargetName | Key::SessionType | Key::InitiatorAlias => {
                    here
                }
                _ => *self,
            };
            if before.has(key) {
                return Err(NegotiationError::Repeated(key));
            }
            here.add(key);
            self.add(key);
        }
        Ok(())
    }

    fn has(self, key: Key) -> bool {
        self.0 >> key as u32 & 1 == 1
    }

    fn add(&mut self, key: Key) {
        const {
            assert!(
                keys::TABLE.len() <= u64::BITS as usize,
                "a bit for each key"
            )
        }
        self.0 |= 1 << key as u32;
    }
}

#[cfg(test)]
mod tests;
