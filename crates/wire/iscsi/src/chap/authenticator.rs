//! The target's side of CHAP.

use std::sync::Arc;

use super::{Algorithm, Challenge, ChapError, Credentials, Proof, append_proof, find, required};
use crate::keys::Key;
use crate::text::{self, Pair};

/// What a target requires of an initiator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChapPolicy {
    /// Algorithms that are good enough. Of those that the initiator has, too, the strongest is taken.
    pub algorithms: Vec<Algorithm>,
    /// Who may log in.
    pub initiators: Arc<[Credentials]>,
    /// The target's credentials, for mutual authentication.
    pub target: Option<Credentials>,
    /// What the initiator must answer to: fresh for every login.
    pub challenge: Challenge,
}

/// The target's side of one exchange.
#[derive(Clone, Debug)]
pub struct Authenticator {
    policy: ChapPolicy,
    step: Step,
}

#[derive(Clone, Debug)]
enum Step {
    Algorithms,
    Response(Algorithm),
    Done(String),
}

impl Authenticator {
    /// Begins.
    pub fn new(policy: ChapPolicy) -> Authenticator {
        Authenticator { policy, step: Step::Algorithms }
    }

    /// Whom the initiator claims to be in these keys, if they hold a proof that [`Authenticator::handle`] would look at.
    pub fn proof_by<'a>(&self, pairs: &[Pair<'a>]) -> Option<&'a str> {
        let value = |key: Key| pairs.iter().find(|pair| pair.key == key.name()).map(|pair| pair.value);
        value(Key::ChapN).filter(|_| matches!(self.step, Step::Response(_)) && value(Key::ChapR).is_some())
    }

    /// The CHAP_N that the initiator has proved to be its own, once it has.
    pub fn authenticated(&self) -> Option<&str> {
        match &self.step {
            Step::Done(name) => Some(name),
            Step::Algorithms | Step::Response(_) => None,
        }
    }

    /// Processes the keys of one request, and appends the reply.
    pub fn handle(&mut self, pairs: &[Pair<'_>], out: &mut Vec<u8>) -> Result<(), ChapError> {
        self.step = match &self.step {
            Step::Algorithms => self.choose(pairs, out)?,
            Step::Response(algorithm) => self.verify(*algorithm, pairs, out)?,
            Step::Done(name) => Step::Done(name.clone()),
        };
        Ok(())
    }

    /// The strongest that the policy allows of those in the initiator's list. Its order is "of preference", but the
    /// choice is the target's (section 12.1.3), and many put MD5 first.
    fn choose(&self, pairs: &[Pair<'_>], out: &mut Vec<u8>) -> Result<Step, ChapError> {
        let offered = required(pairs, Key::ChapA)?.split(',').take(ALGORITHMS_MAX);
        let offered: Vec<Algorithm> =
            offered.filter_map(|number| Algorithm::new(text::number(number)?)).collect();
        let is_common =
            |algorithm: &Algorithm| self.policy.algorithms.contains(algorithm) && offered.contains(algorithm);
        let chosen = Algorithm::ALL.into_iter().find(is_common).ok_or(ChapError::NoSharedAlgorithm)?;
        text::append(out, Key::ChapA.name(), chosen as u8);
        self.policy.challenge.append(out);
        Ok(Step::Response(chosen))
    }

    fn verify(&self, algorithm: Algorithm, pairs: &[Pair<'_>], out: &mut Vec<u8>) -> Result<Step, ChapError> {
        let proof = Proof::read(pairs)?;
        // All accounts are tried, so that the time taken does not tell which names exist.
        let try_account = |found, account| {
            if proof.is_by(account, algorithm, &self.policy.challenge) { Some(account) } else { found }
        };
        let account =
            self.policy.initiators.iter().fold(None, try_account).ok_or(ChapError::WrongResponse)?;
        if find(pairs, Key::ChapC)?.is_some() || find(pairs, Key::ChapI)?.is_some() {
            self.prove(account, algorithm, &Challenge::read(pairs)?, out)?;
        }
        Ok(Step::Done(account.name.clone()))
    }

    /// Mutual authentication: the initiator's challenge to the target.
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

/// A list of algorithms longer than this is cut.
const ALGORITHMS_MAX: usize = 32;
