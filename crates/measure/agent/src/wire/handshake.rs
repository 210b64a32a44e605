//! Mutual authentication by a shared secret, which is not transmitted, and creation of the keys for a
//! connection.
//!
//! The protocol is the Noise Protocol Framework (revision 34), implemented by the crate `snow`: pattern NN,
//! with the hash of the secret as a pre-shared key that is mixed in first ([`PATTERN`]). The first messages
//! contain the version in clear text, so that a peer with a different version can be detected. The versions
//! are also part of Noise's prologue.
//!
//! ```text
//!   coordinator                         agent
//!   Greeting   ── Hello: psk, e ─────▶            decryption fails: the coordinator has another secret
//!              ◀── Hello: e, ee ──────  Greeted   decryption fails: the agent has another secret
//!   Keys       ── a sealed message ──▶            decryption fails: the first Hello was replayed
//!                                       Keys
//! ```
//!
//! Each phase is a type that the next phase consumes. A value of [`Keys`] proves that the peer is
//! authenticated.

use std::rc::Rc;

use base64ct::{Base64, Encoding as _};
use derive_more::Display;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use snow::{Builder, HandshakeState};

use super::{PROTOCOL, STRANGER_BYTES_MAX, Secret};
use crate::wire::Seal;

/// The name of the Noise protocol.
pub const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";

/// The program and its version.
const PROGRAM: &str = concat!("linerate ", env!("CARGO_PKG_VERSION"));

/// The first message of each side. Its first field distinguishes Linerate from other programs that listen on
/// the port. The fields are those of protocol 1, which compares versions before it checks the nonce.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hello {
    linerate_bench: u32,
    program: String,
    /// The handshake message of Noise.
    #[serde(rename = "nonce")]
    noise: String,
}

/// The reply of an agent to a coordinator with a wrong secret.
const WRONG_SECRET: &[u8] = br#""wrong_secret""#;

/// The reason why a handshake failed.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
pub enum Refusal {
    /// The message does not belong to this protocol.
    #[display("the peer is not a linerate agent")]
    NotOurs,
    /// The peer has a different version.
    #[display(
        "the peer is {theirs}, but this is {PROGRAM} with protocol {PROTOCOL}: both must have the same \
         version"
    )]
    OtherVersion {
        /// The version that the peer reports. At this point, the peer is not authenticated.
        theirs: foreign::Text,
    },
    /// The coordinator does not have the agent's secret.
    #[display("its secret is different from the local one")]
    WrongSecret,
    /// The peer accepted our proof, but could not provide its own, so it does not have the secret.
    #[display("the peer poses as an agent, but does not have the secret")]
    Impostor,
    /// The peer replays a message that a coordinator sent to another agent, or at another time.
    #[display("the peer does not have the secret, and replays messages of other agents")]
    Replayed,
}

/// The keys of one connection, one for each direction.
#[derive(Debug)]
pub struct Keys {
    /// Encrypts the messages of this side.
    pub ours: Seal,
    /// Decrypts received messages.
    pub theirs: Seal,
}

/// A coordinator that has sent its hello, which also proves that it has the secret.
#[derive(Debug)]
pub struct Greeting {
    noise: HandshakeState,
    hello: Vec<u8>,
}

/// An agent that has replied to a hello, which proves that it has the secret.
#[derive(Debug)]
pub struct Greeted {
    keys: Keys,
}

impl Greeting {
    /// Creates the coordinator's first message.
    pub fn new(secret: &Secret) -> Greeting {
        let mut noise = noise(secret, |builder| builder.build_initiator());
        let hello = hello(&written(&mut noise));
        Greeting { noise, hello }
    }

    /// Returns the message to send.
    pub fn message(&self) -> &[u8] {
        &self.hello
    }

    /// Processes the agent's reply. Returns the frame that confirms the reply, and the keys.
    ///
    /// # Errors
    /// Returns the reason if the handshake fails.
    pub fn answered(mut self, answer: &[u8]) -> Result<(Vec<u8>, Keys), Refusal> {
        if answer == WRONG_SECRET {
            return Err(Refusal::WrongSecret);
        }
        let proof = parse(answer)?;
        self.noise
            .read_message(&proof, &mut [])
            .map_err(|_| Refusal::Impostor)?;
        let mut keys = Keys::new(self.noise);
        let confirmation = keys.ours.close(&[]).expect("nothing fits into a frame");
        Ok((confirmation, keys))
    }
}

impl Greeted {
    /// Processes the hello of an unauthenticated peer, and returns the reply. A peer with a different version
    /// also gets a reply, so that it can report the mismatch.
    pub fn by(
        hello_of_theirs: &[u8],
        secret: &Secret,
    ) -> (Option<Vec<u8>>, Result<Greeted, Refusal>) {
        let proof = match parse(hello_of_theirs) {
            Ok(proof) => proof,
            Err(refusal @ Refusal::OtherVersion { .. }) => return (Some(hello(&[])), Err(refusal)),
            Err(refusal) => return (None, Err(refusal)),
        };
        let mut noise = noise(secret, |builder| builder.build_responder());
        if noise.read_message(&proof, &mut []).is_err() {
            return (Some(WRONG_SECRET.to_vec()), Err(Refusal::WrongSecret));
        }
        let answer = hello(&written(&mut noise));
        (
            Some(answer),
            Ok(Greeted {
                keys: Keys::new(noise),
            }),
        )
    }

    /// Checks the coordinator's confirmation, which proves that its hello was not a replay.
    ///
    /// # Errors
    /// [`Refusal::Replayed`]
    pub fn confirmed(mut self, frame: &[u8]) -> Result<Keys, Refusal> {
        match self.keys.theirs.open(frame) {
            Ok(message) if message.is_empty() => Ok(self.keys),
            _ => Err(Refusal::Replayed),
        }
    }
}

impl Keys {
    fn new(noise: HandshakeState) -> Keys {
        let keys = noise
            .into_stateless_transport_mode()
            .expect("both messages of the pattern have passed");
        let keys = Rc::new(keys);
        Keys {
            ours: Seal::new(Rc::clone(&keys)),
            theirs: Seal::new(keys),
        }
    }
}

/// Creates the initial state of one side of a handshake.
fn noise(
    secret: &Secret,
    build: impl FnOnce(Builder<'_>) -> Result<HandshakeState, snow::Error>,
) -> HandshakeState {
    // The hash has 32 bytes for a secret of any length. Short secrets, which could be guessed, were rejected
    // earlier.
    let key: [u8; 32] = Sha256::new()
        .chain_update(b"linerate agents' secret: ")
        .chain_update(&*secret.0)
        .finalize()
        .into();
    let prologue = format!("{PROGRAM} {PROTOCOL}");
    let builder = Builder::new(PATTERN.parse().expect("a pattern that snow has"));
    let builder = builder
        .psk(0, &key)
        .and_then(|builder| builder.prologue(prologue.as_bytes()));
    builder
        .and_then(build)
        .expect("the pattern has this one key, and the system random numbers")
}

/// Returns the next message of a handshake, for this side to send.
fn written(noise: &mut HandshakeState) -> Vec<u8> {
    let mut message = vec![0; STRANGER_BYTES_MAX];
    let bytes = noise
        .write_message(&[], &mut message)
        .expect("it is our turn, and there is room");
    message.truncate(bytes);
    message
}

fn hello(noise: &[u8]) -> Vec<u8> {
    let noise = Base64::encode_string(noise);
    let hello = Hello {
        linerate_bench: PROTOCOL,
        program: PROGRAM.to_owned(),
        noise,
    };
    serde_json::to_vec(&hello).expect("texts and numbers are always JSON")
}

/// Returns the handshake message in a hello of our version.
fn parse(hello: &[u8]) -> Result<Vec<u8>, Refusal> {
    let hello: Hello = serde_json::from_slice(hello).map_err(|_| Refusal::NotOurs)?;
    if hello.linerate_bench != PROTOCOL || hello.program != PROGRAM {
        let theirs = format!("{} with protocol {}", hello.program, hello.linerate_bench);
        return Err(Refusal::OtherVersion {
            theirs: theirs.into(),
        });
    }
    Base64::decode_vec(&hello.noise).map_err(|_| Refusal::NotOurs)
}

impl Refusal {
    /// Whether the two sides do not have the same secret.
    pub fn is_about_secrets(&self) -> bool {
        matches!(
            self,
            Refusal::WrongSecret | Refusal::Impostor | Refusal::Replayed
        )
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::new(text.as_bytes()).expect("a long one")
    }

    pub(in super::super) fn right() -> Secret {
        secret("correct horse battery")
    }

    fn wrong() -> Secret {
        secret("incorrect horse battery")
    }

    /// Runs the handshake of a coordinator and an agent with these secrets. Returns the result of each side.
    pub(in super::super) fn meet(
        coordinators: &Secret,
        agents: &Secret,
    ) -> (Result<Keys, Refusal>, Result<Keys, Refusal>) {
        let greeting = Greeting::new(coordinators);
        let (answer, greeted) = Greeted::by(greeting.message(), agents);
        match greeting.answered(&answer.expect("an answer")) {
            Ok((confirmation, keys)) => (
                Ok(keys),
                greeted.and_then(|agent| agent.confirmed(&confirmation[4..])),
            ),
            Err(refusal) => (Err(refusal), Err(greeted.expect_err("a refusal"))),
        }
    }

    #[test]
    fn a_wrong_secret_is_told_on_both_sides_and_nothing_else_is() {
        let (coordinator, agent) = meet(&wrong(), &right());
        assert_eq!(coordinator.err(), Some(Refusal::WrongSecret));
        assert_eq!(agent.err(), Some(Refusal::WrongSecret));
        let (answer, _) = Greeted::by(Greeting::new(&wrong()).message(), &right());
        assert_eq!(
            answer.as_deref(),
            Some(WRONG_SECRET),
            "nothing to try secrets against"
        );
    }

    #[test]
    fn an_agent_that_cannot_prove_itself_is_none() {
        let greeting = Greeting::new(&right());
        let same = greeting.message().to_vec();
        assert_eq!(
            greeting.answered(&same).err(),
            Some(Refusal::Impostor),
            "our own proof is none of the agent's"
        );
        let (another, _) = Greeted::by(Greeting::new(&right()).message(), &right());
        let answered = Greeting::new(&right()).answered(&another.expect("an answer"));
        assert_eq!(
            answered.err(),
            Some(Refusal::Impostor),
            "nor is what an agent said to somebody else"
        );
        let made_up = Greeting::new(&right()).answered(&hello(&[7; 48]));
        assert_eq!(made_up.err(), Some(Refusal::Impostor));
    }

    #[test]
    fn who_repeats_a_coordinator_is_answered_and_not_let_in() {
        let greeting = Greeting::new(&right());
        let overheard = greeting.message().to_vec();
        let (answer, _) = Greeted::by(&overheard, &right());
        let (confirmation, _) = greeting
            .answered(&answer.expect("an answer"))
            .expect("keys");
        let (_, again) = Greeted::by(&overheard, &right());
        let confirmed = again
            .expect("a proof, though not of the one who sent it")
            .confirmed(&confirmation[4..]);
        assert_eq!(confirmed.err(), Some(Refusal::Replayed));
    }

    #[test]
    fn another_version_is_named() {
        let older = |program: &str| {
            format!(r#"{{"linerate_bench":1,"program":"{program}","nonce":"AAAA"}}"#)
        };
        let (answer, greeted) = Greeted::by(older(PROGRAM).as_bytes(), &right());
        let refusal = greeted.expect_err("a refusal").to_string();
        assert!(
            refusal.contains("with protocol 1, but this is linerate"),
            "{refusal}"
        );
        let answer = answer.expect("an answer, so that it can tell");
        let fields: serde_json::Value = serde_json::from_slice(&answer).expect("JSON");
        assert_eq!(
            fields["linerate_bench"], PROTOCOL,
            "where protocol 1 looks first"
        );
        assert!(fields["nonce"].is_string(), "a field that it wants");
        let refusal = Greeting::new(&right()).answered(older("linerate 0.0.9").as_bytes());
        assert!(matches!(refusal, Err(Refusal::OtherVersion { .. })));
    }

    #[test]
    fn a_changed_hello_makes_the_proof_worthless() {
        let hello_of = |greeting: &Greeting| parse(greeting.message()).expect("a hello");
        for at in [0, 31, 32, 47] {
            let mut changed = hello_of(&Greeting::new(&right()));
            changed[at] ^= 1;
            assert_eq!(
                Greeted::by(&hello(&changed), &right()).1.err(),
                Some(Refusal::WrongSecret)
            );
        }
    }

    #[test]
    fn what_is_no_hello_is_refused() {
        let more =
            format!(r#"{{"linerate_bench":{PROTOCOL},"program":"{PROGRAM}","nonce":"","more":1}}"#);
        let no_base64 =
            format!(r#"{{"linerate_bench":{PROTOCOL},"program":"{PROGRAM}","nonce":"?"}}"#);
        for bad in [
            &b""[..],
            b"GET / HTTP/1.1",
            b"{}",
            more.as_bytes(),
            no_base64.as_bytes(),
        ] {
            let (answer, greeted) = Greeted::by(bad, &right());
            assert_eq!(
                (answer, greeted.err()),
                (None, Some(Refusal::NotOurs)),
                "{bad:?}"
            );
        }
        for length in [0, 1, 31, 32, 47, 49, 600] {
            let (_, greeted) = Greeted::by(&hello(&vec![0; length]), &right());
            assert_eq!(greeted.err(), Some(Refusal::WrongSecret), "{length}");
        }
    }

    #[test]
    fn who_knows_the_secret_is_understood_in_both_directions() {
        let (coordinator, agent) = meet(&right(), &right());
        let (mut coordinator, mut agent) = (coordinator.expect("keys"), agent.expect("keys"));
        let order = coordinator.ours.close(b"order").expect("a frame");
        assert_eq!(agent.theirs.open(&order[4..]).as_deref(), Ok(&b"order"[..]));
        let news = agent.ours.close(b"news").expect("a frame");
        assert!(
            !news.windows(4).any(|bytes| bytes == b"news"),
            "nobody else reads it"
        );
        assert!(
            agent.theirs.open(&news[4..]).is_err(),
            "a message is good in one direction only"
        );
        assert_eq!(
            coordinator.theirs.open(&news[4..]).as_deref(),
            Ok(&b"news"[..])
        );
    }
}
