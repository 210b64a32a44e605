//! Both sides prove that they know the secret, without saying it.
//!
//! A proof is `HMAC-SHA256(secret, who proves, SHA-256 of both hellos)`. Each hello holds 32 fresh random bytes, so that
//! no proof holds twice; both hellos are in it, so that nobody between can make one side believe that the other is of
//! another version; and who proves is in it, so that a proof cannot be sent back to where it came from. The coordinator
//! proves first: an agent listens on a port, and says nothing to strangers that they could try secrets against.
//!
//! The phases are values that become each other; whoever has [`Keys`] has seen a proof.

use std::fmt;

use base64ct::{Base64, Encoding as _};
use hmac::Mac as _;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::seal::{CODE, Seal, keyed};
use super::{PROTOCOL, Secret};

/// Fresh random bytes, for one handshake.
pub type Nonce = [u8; 32];

/// The program and its version.
const PROGRAM: &str = concat!("linerate ", env!("CARGO_PKG_VERSION"));

/// What each side says first. Its first field tells a linerate that has come to the wrong port from anything else.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hello {
    linerate_bench: u32,
    program: String,
    nonce: String,
}

/// What each side says then.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Proof(String),
    /// From the agent only.
    WrongSecret,
}

/// Why there is no understanding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// What came is not of this protocol.
    NotOurs,
    /// The other side is of another version.
    OtherVersion {
        /// As it says.
        theirs: String,
    },
    /// Our own random numbers came back to us.
    Reflected,
    /// The coordinator does not know the agent's secret.
    WrongSecret,
    /// The other side took our proof and could not give one: it does not know the secret either.
    Impostor,
}

/// The seals of one connection.
#[derive(Debug)]
pub struct Keys {
    /// For what this side says.
    pub ours: Seal,
    /// For what it hears.
    pub theirs: Seal,
}

/// A coordinator that has said hello.
#[derive(Debug)]
pub struct Greeting {
    hello: Vec<u8>,
}

/// A coordinator that has proved who it is.
#[derive(Debug)]
pub struct Proved {
    understanding: Understanding,
}

/// An agent that has answered a hello.
#[derive(Debug)]
pub struct Greeted {
    understanding: Understanding,
}

impl Greeting {
    /// What the coordinator says first.
    pub fn new(nonce: &Nonce) -> Greeting {
        Greeting { hello: hello(nonce) }
    }

    pub fn message(&self) -> &[u8] {
        &self.hello
    }

    /// The agent's hello; gives the proof to send.
    pub fn answered(self, hello: &[u8], secret: &Secret) -> Result<(Vec<u8>, Proved), Refusal> {
        let understanding = Understanding::new(&self.hello, hello, hello, secret)?;
        let proof = understanding.proof(Side::Coordinator);
        Ok((proof, Proved { understanding }))
    }
}

impl Proved {
    /// The agent's proof.
    pub fn answered(self, answer: &[u8]) -> Result<Keys, Refusal> {
        match serde_json::from_slice(answer).map_err(|_| Refusal::NotOurs)? {
            Answer::Proof(proof) if self.understanding.is_proved(Side::Agent, &proof) => {
                Ok(self.understanding.keys(Side::Coordinator))
            }
            Answer::Proof(_) => Err(Refusal::Impostor),
            Answer::WrongSecret => Err(Refusal::WrongSecret),
        }
    }
}

impl Greeted {
    /// A stranger's hello; gives ours, which is said even to one of another version so that it can tell.
    pub fn by(theirs: &[u8], nonce: &Nonce, secret: &Secret) -> (Vec<u8>, Result<Greeted, Refusal>) {
        let ours = hello(nonce);
        let understanding = Understanding::new(theirs, &ours, theirs, secret);
        (ours, understanding.map(|understanding| Greeted { understanding }))
    }

    /// The stranger's proof; gives what to answer, and the keys if it is one.
    pub fn answered(self, answer: &[u8]) -> (Vec<u8>, Result<Keys, Refusal>) {
        match serde_json::from_slice(answer) {
            Ok(Answer::Proof(proof)) if self.understanding.is_proved(Side::Coordinator, &proof) => {
                (self.understanding.proof(Side::Agent), Ok(self.understanding.keys(Side::Agent)))
            }
            Ok(_) => (json(&Answer::WrongSecret), Err(Refusal::WrongSecret)),
            Err(_) => (json(&Answer::WrongSecret), Err(Refusal::NotOurs)),
        }
    }
}

/// Who says something.
#[derive(Clone, Copy)]
enum Side {
    Coordinator,
    Agent,
}

impl Side {
    /// What it proves, and what its key is for: no two of these texts begin alike and go on differently, so that no
    /// code is good for two purposes.
    fn texts(self) -> (&'static [u8], &'static [u8]) {
        match self {
            Side::Coordinator => (b"linerate: the coordinator's proof", b"linerate: the coordinator's key"),
            Side::Agent => (b"linerate: the agent's proof", b"linerate: the agent's key"),
        }
    }
}

/// What both sides know when they have said hello.
struct Understanding {
    secret: Secret,
    hellos: [u8; CODE],
}

impl Understanding {
    fn new(
        coordinators: &[u8],
        agents: &[u8],
        theirs: &[u8],
        secret: &Secret,
    ) -> Result<Understanding, Refusal> {
        if coordinators == agents {
            return Err(Refusal::Reflected);
        }
        check(theirs)?;
        // Hashed each by itself: where one ends and the other begins cannot be shifted.
        let hellos =
            Sha256::new().chain_update(Sha256::digest(coordinators)).chain_update(Sha256::digest(agents));
        Ok(Understanding { secret: secret.clone(), hellos: hellos.finalize().into() })
    }

    fn proof(&self, side: Side) -> Vec<u8> {
        json(&Answer::Proof(Base64::encode_string(&self.code(side.texts().0))))
    }

    fn is_proved(&self, side: Side, proof: &str) -> bool {
        let mut bytes = [0; CODE];
        let mut expected = keyed(&self.secret.0);
        expected.update(side.texts().0);
        expected.update(&self.hellos);
        Base64::decode(proof, &mut bytes).is_ok_and(|proof| expected.verify_slice(proof).is_ok())
    }

    fn keys(&self, side: Side) -> Keys {
        let seal = |side: Side| Seal::new(&self.code(side.texts().1));
        match side {
            Side::Coordinator => Keys { ours: seal(Side::Coordinator), theirs: seal(Side::Agent) },
            Side::Agent => Keys { ours: seal(Side::Agent), theirs: seal(Side::Coordinator) },
        }
    }

    fn code(&self, text: &[u8]) -> [u8; CODE] {
        let mut code = keyed(&self.secret.0);
        code.update(text);
        code.update(&self.hellos);
        code.finalize().into_bytes().into()
    }
}

fn hello(nonce: &Nonce) -> Vec<u8> {
    let nonce = Base64::encode_string(nonce);
    json(&Hello { linerate_bench: PROTOCOL, program: PROGRAM.to_owned(), nonce })
}

/// Whether a hello is one, and of our version.
fn check(hello: &[u8]) -> Result<(), Refusal> {
    let hello: Hello = serde_json::from_slice(hello).map_err(|_| Refusal::NotOurs)?;
    if hello.linerate_bench != PROTOCOL || hello.program != PROGRAM {
        let theirs = format!("{} with protocol {}", hello.program, hello.linerate_bench);
        return Err(Refusal::OtherVersion { theirs });
    }
    let mut nonce = Nonce::default();
    match Base64::decode(&hello.nonce, &mut nonce) {
        Ok(bytes) if bytes.len() == size_of::<Nonce>() => Ok(()),
        _ => Err(Refusal::NotOurs),
    }
}

fn json(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("texts and numbers are always JSON")
}

impl Refusal {
    /// Whether one side does not know the other's secret.
    pub fn is_about_secrets(&self) -> bool {
        matches!(self, Refusal::WrongSecret | Refusal::Impostor)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotOurs => f.write_str("what answers there is no linerate agent"),
            Refusal::OtherVersion { theirs } => {
                write!(
                    f,
                    "it is {theirs}, and this is {PROGRAM} with protocol {PROTOCOL}: both must be the same"
                )
            }
            Refusal::Reflected => f.write_str("what answers there only repeats what it hears"),
            Refusal::WrongSecret => f.write_str("its secret is another one than ours"),
            Refusal::Impostor => {
                f.write_str("what answers there does not know the secret, and passes for an agent")
            }
        }
    }
}

impl fmt::Debug for Understanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Understanding(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::new(text.as_bytes()).expect("a long one")
    }

    fn right() -> Secret {
        secret("correct horse battery")
    }

    /// A coordinator and an agent with these secrets; what each thinks of the other.
    fn meet(coordinators: &Secret, agents: &Secret) -> (Result<Keys, Refusal>, Result<Keys, Refusal>) {
        let greeting = Greeting::new(&[1; 32]);
        let (hello, greeted) = Greeted::by(greeting.message(), &[2; 32], agents);
        let (proof, proved) = greeting.answered(&hello, coordinators).expect("a hello");
        let (answer, agents) = greeted.expect("a hello").answered(&proof);
        (proved.answered(&answer), agents)
    }

    #[test]
    fn a_wrong_secret_is_told_on_both_sides_and_nothing_else_is() {
        let (coordinator, agent) = meet(&secret("incorrect horse battery"), &right());
        assert_eq!(coordinator.err(), Some(Refusal::WrongSecret));
        assert_eq!(agent.err(), Some(Refusal::WrongSecret));
    }

    #[test]
    fn an_agent_that_cannot_prove_itself_is_none() {
        let greeting = Greeting::new(&[1; 32]);
        let (hello, _) = Greeted::by(greeting.message(), &[2; 32], &secret("incorrect horse battery"));
        let (proof, proved) = greeting.answered(&hello, &right()).expect("a hello");
        assert_eq!(
            proved.answered(&proof).err(),
            Some(Refusal::Impostor),
            "our own proof is none of the agent's"
        );
    }

    #[test]
    fn a_hello_that_comes_back_is_no_agents() {
        let greeting = Greeting::new(&[1; 32]);
        let same = greeting.message().to_vec();
        assert_eq!(greeting.answered(&same, &right()).err(), Some(Refusal::Reflected));
    }

    #[test]
    fn another_version_is_named() {
        let greeting = Greeting::new(&[1; 32]);
        let older = String::from_utf8(hello(&[2; 32])).expect("JSON").replace(r#"bench":1"#, r#"bench":0"#);
        let refusal = greeting.answered(older.as_bytes(), &right()).expect_err("a refusal");
        assert!(refusal.to_string().contains("with protocol 0, and this is linerate"), "{refusal}");
    }

    #[test]
    fn a_changed_hello_makes_the_proof_worthless() {
        let greeting = Greeting::new(&[1; 32]);
        let (_, greeted) = Greeted::by(greeting.message(), &[2; 32], &right());
        let another = hello(&[3; 32]);
        let (proof, _) = greeting.answered(&another, &right()).expect("a hello");
        assert_eq!(greeted.expect("a hello").answered(&proof).1.err(), Some(Refusal::WrongSecret));
    }

    #[test]
    fn what_is_no_hello_is_refused() {
        for bad in
            [&b""[..], b"GET / HTTP/1.1", b"{}", br#"{"linerate_bench":1,"program":"x","nonce":"","more":1}"#]
        {
            let (_, greeted) = Greeted::by(bad, &[2; 32], &right());
            assert_eq!(greeted.err(), Some(Refusal::NotOurs), "{bad:?}");
        }
        let short = br#"{"linerate_bench":1,"program":"PROGRAM","nonce":"AAAA"}"#;
        let short = String::from_utf8_lossy(short).replace("PROGRAM", PROGRAM);
        assert_eq!(check(short.as_bytes()), Err(Refusal::NotOurs));
    }

    #[test]
    fn who_knows_the_secret_is_understood_in_both_directions() {
        let (coordinator, agent) = meet(&right(), &right());
        let (mut coordinator, mut agent) = (coordinator.expect("keys"), agent.expect("keys"));
        let order = coordinator.ours.close(b"order").expect("a frame");
        assert_eq!(agent.theirs.open(&order[4..]), Ok(&b"order"[..]));
        let news = agent.ours.close(b"news").expect("a frame");
        assert!(
            Seal::open(&mut agent.theirs, &news[4..]).is_err(),
            "a message is good in one direction only"
        );
        assert_eq!(coordinator.theirs.open(&news[4..]), Ok(&b"news"[..]));
    }
}
