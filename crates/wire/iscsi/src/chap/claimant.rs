//! The initiator's side of CHAP.

use super::{Algorithm, Challenge, ChapError, Credentials, Proof, append_proof, required};
use crate::keys::Key;
use crate::text::{self, Pair};

/// An initiator's credentials, and what it requires of the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChapClaim {
    /// Acceptable algorithms, the preferred first. For tgt (1.0.85) this must be MD5 alone, or first: it knows SHA1
    /// not at all, and takes SHA-256 but cannot read the response to it.
    pub algorithms: Vec<Algorithm>,
    /// Who we are.
    pub initiator: Credentials,
    /// Who the target must be, and what it must answer to (fresh for every login), if the proof is to be mutual.
    pub target: Option<(Credentials, Challenge)>,
}

/// The initiator's side of one exchange.
#[derive(Clone, Debug)]
pub struct Claimant {
    claim: ChapClaim,
    step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Algorithms,
    Challenge,
    Proof(Algorithm),
    Done,
}

impl Claimant {
    /// Begins.
    pub fn new(claim: ChapClaim) -> Claimant {
        Claimant { claim, step: Step::Algorithms }
    }

    /// Whether our own proof has been given; the target's may still be due.
    pub fn has_proved(&self) -> bool {
        matches!(self.step, Step::Proof(_) | Step::Done)
    }

    /// Whether nothing more is due from either side. Our own proof may still be refused by a login status.
    pub fn is_done(&self) -> bool {
        self.step == Step::Done
    }

    /// Whether our response has been sent, or is about to be.
    pub fn has_answered(&self) -> bool {
        matches!(self.step, Step::Proof(_) | Step::Done)
    }

    /// Takes in the keys of one response, and appends what is to be said to them.
    pub fn handle(&mut self, pairs: &[Pair<'_>], out: &mut Vec<u8>) -> Result<(), ChapError> {
        self.step = match self.step {
            Step::Algorithms => self.offer(out),
            Step::Challenge => self.answer(pairs, out)?,
            Step::Proof(algorithm) => self.verify(algorithm, pairs)?,
            Step::Done => Step::Done,
        };
        Ok(())
    }

    fn offer(&self, out: &mut Vec<u8>) -> Step {
        text::append(out, Key::ChapA.name(), Algorithm::list(&self.claim.algorithms));
        Step::Challenge
    }

    fn answer(&self, pairs: &[Pair<'_>], out: &mut Vec<u8>) -> Result<Step, ChapError> {
        let chosen = text::number(required(pairs, Key::ChapA)?).and_then(Algorithm::new);
        let chosen = chosen.filter(|algorithm| self.claim.algorithms.contains(algorithm));
        let chosen = chosen.ok_or(ChapError::NoSharedAlgorithm)?;
        let challenge = Challenge::read(pairs)?;
        append_proof(&self.claim.initiator, chosen, &challenge, out);
        match &self.claim.target {
            None => Ok(Step::Done),
            Some((target, _)) if target.secret == self.claim.initiator.secret => Err(ChapError::EqualSecrets),
            Some((_, ours)) if ours.bytes == challenge.bytes => Err(ChapError::ReflectedChallenge),
            Some((_, ours)) => {
                ours.append(out);
                Ok(Step::Proof(chosen))
            }
        }
    }

    fn verify(&self, algorithm: Algorithm, pairs: &[Pair<'_>]) -> Result<Step, ChapError> {
        let proof = Proof::read(pairs)?;
        match &self.claim.target {
            Some((target, challenge)) if proof.is_by(target, algorithm, challenge) => Ok(Step::Done),
            _ => Err(ChapError::WrongResponse),
        }
    }
}
