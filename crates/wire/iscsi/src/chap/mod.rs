//! CHAP (RFC 7143 section 12.1.3, RFC 1994): proof of knowledge of a secret without disclosing it.
//!
//! ```text
//!   initiator                                   target
//!   CHAP_A=8,7,5           ─────────────────▶
//!                          ◀─────────────────   CHAP_A=7 CHAP_I=.. CHAP_C=..     challenge to the initiator
//!   CHAP_N=.. CHAP_R=..
//!   [CHAP_I=.. CHAP_C=..]  ─────────────────▶                                    challenge to the target
//!                          ◀─────────────────   [CHAP_N=.. CHAP_R=..]
//! ```
//!
//! A response is `H(identifier, secret, challenge)`. The [`Authenticator`] is the target's side and the
//! [`Claimant`] the initiator's; each does both parts if authentication is mutual. The caller supplies the
//! challenges, fresh from the system's random source; this module generates no random numbers.

use std::fmt;
use std::sync::Arc;

use derive_more::Display;
use sha2::Digest;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::keys::Key;
use crate::text::{self, Pair};

/// RFC 7143 section 12.1.3: a challenge has at most 1024 bytes.
pub const CHALLENGE_BYTES_MAX: usize = 1024;

/// Hash functions, by IANA's PPP authentication algorithm numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Algorithm {
    /// 5: the only algorithm that RFC 7143 requires. MD5 is not collision-resistant, but CHAP does not depend
    /// on that.
    Md5 = 5,
    /// 6: SHA-1.
    Sha1 = 6,
    /// 7: SHA-256.
    Sha256 = 7,
    /// 8: SHA3-256.
    Sha3_256 = 8,
}

/// A secret. It is never printed, compared in constant time, and wiped on drop.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

/// A name and its secret.
#[expect(missing_docs, reason = "the names are self-explanatory")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    pub name: String,
    /// The shared secret.
    pub secret: Secret,
}

/// The challenge to one side: fresh random numbers for every login.
#[expect(missing_docs, reason = "the names are self-explanatory")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    pub identifier: u8,
    /// CHAP_C: 1 to 1024 bytes. It should have at least 16 bytes.
    pub bytes: Vec<u8>,
}

/// Why authentication failed. The peer only receives "authentication failure" (0201); the log may be more specific.
#[expect(
    missing_docs,
    reason = "where a variant has no more to say than it displays"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum ChapError {
    /// None of the offered algorithms is acceptable, or the peer chose one that was not offered.
    #[display("no common CHAP algorithm")]
    NoSharedAlgorithm,
    #[display("{} is missing", _0.name())]
    Missing(Key),
    #[display("{} occurs twice", _0.name())]
    Repeated(Key),
    #[display("the value of {} is invalid", _0.name())]
    BadValue(Key),
    /// The name is unknown, or the response does not match: the two are not distinguished.
    #[display("the CHAP name or secret is wrong")]
    WrongResponse,
    /// The peer returned our own challenge: a reflection attack.
    #[display("the peer returned our own CHAP challenge")]
    ReflectedChallenge,
    /// Both sides have the same secret, so an attacker could obtain a response from the side that requests it
    /// (section 12.1.3).
    #[display("both sides have the same CHAP secret")]
    EqualSecrets,
    /// The initiator requires the target to authenticate, but the target has no credentials.
    #[display("the initiator requested mutual CHAP, but the target has no secret for it")]
    CannotProve,
}

impl Algorithm {
    /// All algorithms, the strongest first.
    pub const ALL: [Algorithm; 4] = [
        Algorithm::Sha3_256,
        Algorithm::Sha256,
        Algorithm::Sha1,
        Algorithm::Md5,
    ];

    /// The algorithm of this number.
    pub fn new(number: u32) -> Option<Algorithm> {
        Algorithm::ALL
            .into_iter()
            .find(|&algorithm| algorithm as u32 == number)
    }

    /// Computes the response to a challenge from the secret.
    pub fn response(self, secret: &Secret, challenge: &Challenge) -> Vec<u8> {
        match self {
            Algorithm::Md5 => respond::<md5::Md5>(secret, challenge),
            Algorithm::Sha1 => respond::<sha1::Sha1>(secret, challenge),
            Algorithm::Sha256 => respond::<sha2::Sha256>(secret, challenge),
            Algorithm::Sha3_256 => respond::<sha3::Sha3_256>(secret, challenge),
        }
    }

    /// The algorithms as a value of CHAP_A.
    fn list(algorithms: &[Algorithm]) -> String {
        let numbers: Vec<String> = algorithms
            .iter()
            .map(|&algorithm| (algorithm as u8).to_string())
            .collect();
        numbers.join(",")
    }
}

impl Secret {
    /// Copies a secret. The caller must wipe its own copy.
    pub fn new(bytes: &[u8]) -> Secret {
        Secret(Zeroizing::new(bytes.to_vec()))
    }

    /// Its length in bytes. Section 9.2.1 requires at least 12 bytes (96 bits) if IPsec is not used.
    pub fn length(&self) -> usize {
        self.0.len()
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Challenge {
    /// Decodes CHAP_I and CHAP_C.
    fn read(pairs: &[Pair<'_>]) -> Result<Challenge, ChapError> {
        let identifier =
            text::number(required(pairs, Key::ChapI)?).and_then(|number| u8::try_from(number).ok());
        let identifier = identifier.ok_or(ChapError::BadValue(Key::ChapI))?;
        let bytes = text::binary(required(pairs, Key::ChapC)?, CHALLENGE_BYTES_MAX);
        let bytes = bytes
            .filter(|bytes| !bytes.is_empty())
            .ok_or(ChapError::BadValue(Key::ChapC))?;
        Ok(Challenge { identifier, bytes })
    }

    fn append(&self, out: &mut Vec<u8>) {
        debug_assert!(
            (1..=CHALLENGE_BYTES_MAX).contains(&self.bytes.len()),
            "a challenge of no valid length"
        );
        text::append(out, Key::ChapI.name(), self.identifier);
        text::append(out, Key::ChapC.name(), text::hex_value(&self.bytes));
    }
}

/// CHAP_N and CHAP_R as received.
struct Proof<'a> {
    name: &'a str,
    response: Vec<u8>,
}

impl Proof<'_> {
    fn read<'a>(pairs: &[Pair<'a>]) -> Result<Proof<'a>, ChapError> {
        let response = text::binary(required(pairs, Key::ChapR)?, RESPONSE_BYTES_MAX);
        let response = response.ok_or(ChapError::BadValue(Key::ChapR))?;
        Ok(Proof {
            name: required(pairs, Key::ChapN)?,
            response,
        })
    }

    /// Whether the response matches these credentials. Takes the same time whether or not the name is
    /// correct.
    fn is_by(
        &self,
        credentials: &Credentials,
        algorithm: Algorithm,
        challenge: &Challenge,
    ) -> bool {
        let expected = algorithm.response(&credentials.secret, challenge);
        let right_response = expected.ct_eq(&self.response);
        let right_name = credentials.name.as_bytes().ct_eq(self.name.as_bytes());
        (right_response & right_name).into()
    }
}

/// Appends CHAP_N and CHAP_R.
fn append_proof(
    credentials: &Credentials,
    algorithm: Algorithm,
    challenge: &Challenge,
    out: &mut Vec<u8>,
) {
    text::append(out, Key::ChapN.name(), &credentials.name);
    let response = algorithm.response(&credentials.secret, challenge);
    debug_assert!(
        response.len() <= RESPONSE_BYTES_MAX,
        "a response that no peer would read"
    );
    text::append(out, Key::ChapR.name(), text::hex_value(&response));
}

fn respond<H: Digest>(secret: &Secret, challenge: &Challenge) -> Vec<u8> {
    let hash = H::new()
        .chain_update([challenge.identifier])
        .chain_update(&*secret.0)
        .chain_update(&challenge.bytes);
    hash.finalize().to_vec()
}

/// The single value of a key among the pairs.
fn find<'a>(pairs: &[Pair<'a>], key: Key) -> Result<Option<&'a str>, ChapError> {
    let mut values = pairs
        .iter()
        .filter(|pair| pair.key == key.name())
        .map(|pair| pair.value);
    let first = values.next();
    if values.next().is_some() {
        Err(ChapError::Repeated(key))
    } else {
        Ok(first)
    }
}

fn required<'a>(pairs: &[Pair<'a>], key: Key) -> Result<&'a str, ChapError> {
    find(pairs, key)?.ok_or(ChapError::Missing(key))
}

/// Maximum length of a received response; longer than the output of any algorithm.
const RESPONSE_BYTES_MAX: usize = 64;

impl std::error::Error for ChapError {}

/// A target's requirements for an initiator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChapPolicy {
    /// Acceptable algorithms. The strongest one that the initiator also supports is chosen.
    pub algorithms: Vec<Algorithm>,
    /// Credentials of the initiators that may log in.
    pub initiators: Arc<[Credentials]>,
    /// The target's credentials, for mutual authentication.
    pub target: Option<Credentials>,
    /// The challenge to the initiator, which must be fresh for every login.
    pub challenge: Challenge,
}

/// The target's side of one exchange.
#[derive(Clone, Debug)]
pub struct Authenticator {
    policy: ChapPolicy,
    step: AuthenticatorStep,
}

#[derive(Clone, Debug)]
enum AuthenticatorStep {
    Algorithms,
    Response(Algorithm),
    Done(String),
}

impl Authenticator {
    /// Starts the exchange.
    pub fn new(policy: ChapPolicy) -> Authenticator {
        Authenticator {
            policy,
            step: AuthenticatorStep::Algorithms,
        }
    }

    /// The identity that the initiator claims in these keys, if they contain a proof that
    /// [`Authenticator::handle`] would check.
    pub fn proof_by<'a>(&self, pairs: &[Pair<'a>]) -> Option<&'a str> {
        let value = |key: Key| {
            pairs
                .iter()
                .find(|pair| pair.key == key.name())
                .map(|pair| pair.value)
        };
        value(Key::ChapN).filter(|_| {
            matches!(self.step, AuthenticatorStep::Response(_)) && value(Key::ChapR).is_some()
        })
    }

    /// The initiator's CHAP_N, once it has been authenticated.
    pub fn authenticated(&self) -> Option<&str> {
        match &self.step {
            AuthenticatorStep::Done(name) => Some(name),
            AuthenticatorStep::Algorithms | AuthenticatorStep::Response(_) => None,
        }
    }

    /// Processes the keys of one request, and appends the reply.
    pub fn handle(&mut self, pairs: &[Pair<'_>], out: &mut Vec<u8>) -> Result<(), ChapError> {
        self.step = match &self.step {
            AuthenticatorStep::Algorithms => self.choose(pairs, out)?,
            AuthenticatorStep::Response(algorithm) => self.verify(*algorithm, pairs, out)?,
            AuthenticatorStep::Done(name) => AuthenticatorStep::Done(name.clone()),
        };
        Ok(())
    }

    /// Chooses the strongest algorithm in the initiator's list that the policy allows. The list is in "order
    /// of preference", but the target chooses (section 12.1.3), and many initiators put MD5 first.
    fn choose(
        &self,
        pairs: &[Pair<'_>],
        out: &mut Vec<u8>,
    ) -> Result<AuthenticatorStep, ChapError> {
        let offered = required(pairs, Key::ChapA)?.split(',').take(ALGORITHMS_MAX);
        let offered: Vec<Algorithm> = offered
            .filter_map(|number| Algorithm::new(text::number(number)?))
            .collect();
        let is_common = |algorithm: &Algorithm| {
            self.policy.algorithms.contains(algorithm) && offered.contains(algorithm)
        };
        let chosen = Algorithm::ALL
            .into_iter()
            .find(is_common)
            .ok_or(ChapError::NoSharedAlgorithm)?;
        text::append(out, Key::ChapA.name(), chosen as u8);
        self.policy.challenge.append(out);
        Ok(AuthenticatorStep::Response(chosen))
    }

    fn verify(
        &self,
        algorithm: Algorithm,
        pairs: &[Pair<'_>],
        out: &mut Vec<u8>,
    ) -> Result<AuthenticatorStep, ChapError> {
        let proof = Proof::read(pairs)?;
        // All accounts are tried, so that the timing does not reveal which names exist.
        let try_account = |found, account| {
            if proof.is_by(account, algorithm, &self.policy.challenge) {
                Some(account)
            } else {
                found
            }
        };
        let account = self
            .policy
            .initiators
            .iter()
            .fold(None, try_account)
            .ok_or(ChapError::WrongResponse)?;
        if find(pairs, Key::ChapC)?.is_some() || find(pairs, Key::ChapI)?.is_some() {
            self.prove(account, algorithm, &Challenge::read(pairs)?, out)?;
        }
        Ok(AuthenticatorStep::Done(account.name.clone()))
    }

    /// Answers the initiator's challenge to the target (mutual authentication).
    fn prove(
        &self,
        account: &Credentials,
        algorithm: Algorithm,
        challenge: &Challenge,
        out: &mut Vec<u8>,
    ) -> Result<(), ChapError> {
        let own = self.policy.target.as_ref().ok_or(ChapError::CannotProve)?;
        if challenge.bytes == self.policy.challenge.bytes {
            return Err(ChapError::ReflectedChallenge);
        }
        if own.secret == account.secret {
            return Err(ChapError::EqualSecrets);
        }
        append_proof(own, algorithm, challenge, out);
        Ok(())
    }
}

/// Maximum number of algorithms that are read from a list; further ones are ignored.
const ALGORITHMS_MAX: usize = 32;

/// An initiator's credentials, and its requirements for the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChapClaim {
    /// Acceptable algorithms, the preferred first. For tgt (1.0.85) this must be only MD5, or MD5 first: it
    /// does not support SHA1, and it accepts SHA-256 but cannot parse the response.
    pub algorithms: Vec<Algorithm>,
    /// The initiator's credentials.
    pub initiator: Credentials,
    /// For mutual authentication, the target's credentials and the challenge to it (fresh for every login).
    pub target: Option<(Credentials, Challenge)>,
}

/// The initiator's side of one exchange.
#[derive(Clone, Debug)]
pub struct Claimant {
    claim: ChapClaim,
    step: ClaimantStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimantStep {
    Algorithms,
    Challenge,
    Proof(Algorithm),
    Done,
}

impl Claimant {
    /// Starts the exchange.
    pub fn new(claim: ChapClaim) -> Claimant {
        Claimant {
            claim,
            step: ClaimantStep::Algorithms,
        }
    }

    /// Whether our own proof was sent; the target's may still be outstanding.
    pub fn has_proved(&self) -> bool {
        matches!(self.step, ClaimantStep::Proof(_) | ClaimantStep::Done)
    }

    /// Whether both sides are done. A login status may still reject our proof.
    pub fn is_done(&self) -> bool {
        self.step == ClaimantStep::Done
    }

    /// Processes the keys of one response, and appends the reply.
    pub fn handle(&mut self, pairs: &[Pair<'_>], out: &mut Vec<u8>) -> Result<(), ChapError> {
        self.step = match self.step {
            ClaimantStep::Algorithms => self.offer(out),
            ClaimantStep::Challenge => self.answer(pairs, out)?,
            ClaimantStep::Proof(algorithm) => self.verify(algorithm, pairs)?,
            ClaimantStep::Done => ClaimantStep::Done,
        };
        Ok(())
    }

    fn offer(&self, out: &mut Vec<u8>) -> ClaimantStep {
        text::append(
            out,
            Key::ChapA.name(),
            Algorithm::list(&self.claim.algorithms),
        );
        ClaimantStep::Challenge
    }

    fn answer(&self, pairs: &[Pair<'_>], out: &mut Vec<u8>) -> Result<ClaimantStep, ChapError> {
        let chosen = text::number(required(pairs, Key::ChapA)?).and_then(Algorithm::new);
        let chosen = chosen.filter(|algorithm| self.claim.algorithms.contains(algorithm));
        let chosen = chosen.ok_or(ChapError::NoSharedAlgorithm)?;
        let challenge = Challenge::read(pairs)?;
        append_proof(&self.claim.initiator, chosen, &challenge, out);
        match &self.claim.target {
            None => Ok(ClaimantStep::Done),
            Some((target, _)) if target.secret == self.claim.initiator.secret => {
                Err(ChapError::EqualSecrets)
            }
            Some((_, ours)) if ours.bytes == challenge.bytes => Err(ChapError::ReflectedChallenge),
            Some((_, ours)) => {
                ours.append(out);
                Ok(ClaimantStep::Proof(chosen))
            }
        }
    }

    fn verify(&self, algorithm: Algorithm, pairs: &[Pair<'_>]) -> Result<ClaimantStep, ChapError> {
        let proof = Proof::read(pairs)?;
        match &self.claim.target {
            Some((target, challenge)) if proof.is_by(target, algorithm, challenge) => {
                Ok(ClaimantStep::Done)
            }
            _ => Err(ChapError::WrongResponse),
        }
    }
}

#[cfg(test)]
mod tests;
