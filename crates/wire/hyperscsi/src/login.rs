//! Login (opcodes 0x11 and 0x12): one frame in each direction, followed by the first authentic frame of the
//! initiator in the new epoch.
//!
//! With a pre-shared key, the two frames carry the messages of Noise, pattern `NNpsk0`: a challenge and a
//! response, which use X25519 and the key. From them, both sides derive keys for this epoch, which stay
//! secret even if the pre-shared key is disclosed later. The initiator's parameters are sent in clear, and
//! included in Noise's prologue. The code of a request (HMAC-SHA-256 of all preceding bytes) proves no more
//! than Noise's message, but lets a target detect a forged request at the cost of a hash. Without a key,
//! nothing is authenticated.
//!
//! ```text
//!  request  0 flags (1 resume, 2 bundles) │ 1 protection │ 2 frame bytes u16 │ 4 credit u32 │ 8 nonce u64 │ 16 instance u64 │ 24 port u32 │
//!           28 paths │ 29 name, target, Noise's message, its code, each after its length (u8)
//!  reply    0 refusal │ 1 nonce u64 │ 9 Noise's message or the answer itself, after its length (u8)
//!  answer   0 outcome │ 1 frame bytes u16 │ 3 credit u32 │ 7 queue depth u16 │ 9 session u32 │ 13 epoch u16 │ 15 paths │
//!           [16 flags (1 bundles)]
//! ```
//!
//! Both frames are padded to the frame size that they propose, which proves that the network carries frames
//! of this size. The padding also ensures that a target never answers with more bytes than it received.

use std::sync::Arc;

use derive_more::{Display, Error};
use num_enum::TryFromPrimitive;
use ring::hmac;
use sha2::{Digest as _, Sha256};
use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher as NoiseCipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use zeroize::Zeroizing;

use crate::frame::{
    Cipher, FRAME_BYTES_MIN, Frame, HEADER_BYTES, Header, Opcode, PATHS_MAX, Protection,
};

/// The Noise protocol.
pub const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// Maximum length of the name of an initiator or a target.
pub const NAME_BYTES_MAX: usize = 223;

const PROLOGUE: &[u8] = b"linerate hyperscsi 1";
const RESUME: u8 = 1;
const BUNDLES: u8 = 2;
const ANSWER_BYTES: usize = 17;
const ANSWER_BUNDLES: u8 = 1;
/// Maximum length of Noise's messages: a public key and a code, plus the answer in the second one.
const NOISE_BYTES_MAX: usize = 96;
/// Length of a code, without and with the byte that contains its length.
const CODE_BYTES: usize = 32;
const CODE_FIELD_BYTES: usize = 1 + CODE_BYTES;

/// A pre-shared key.
#[derive(Clone)]
pub struct Psk {
    noise: Zeroizing<[u8; 32]>,
    /// The HMAC key for the codes of login requests.
    code: Arc<hmac::Key>,
}

impl Psk {
    /// Creates a key from a secret of any length. The caller must ensure its strength: an eavesdropper on a
    /// login can test guesses offline.
    pub fn from_secret(secret: &[u8]) -> Psk {
        let derived = |label: &[u8]| -> Zeroizing<[u8; 32]> {
            Zeroizing::new(
                Sha256::new()
                    .chain_update(label)
                    .chain_update(secret)
                    .finalize()
                    .into(),
            )
        };
        let code = hmac::Key::new(
            hmac::HMAC_SHA256,
            &*derived(b"linerate hyperscsi login code: "),
        );
        Psk {
            noise: derived(b"linerate hyperscsi secret: "),
            code: Arc::new(code),
        }
    }
}

/// Compares in constant time.
impl PartialEq for Psk {
    fn eq(&self, other: &Psk) -> bool {
        self.noise
            .iter()
            .zip(other.noise.iter())
            .fold(0, |differs, (one, other)| differs | (one ^ other))
            == 0
    }
}

impl Eq for Psk {}

impl std::fmt::Debug for Psk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Psk")
    }
}

/// Why a target refuses a login. It is sent in clear and unauthenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error, TryFromPrimitive)]
#[repr(u8)]
pub enum Refusal {
    /// There is no such target, or the initiator has no access to it.
    #[display("the target does not exist, or this initiator has no access to it")]
    UnknownTarget = 1,
    /// The initiator has a wrong key, or no key although one is required.
    #[display("the target rejects the initiator's key")]
    Authentication = 2,
    /// The target has reached its maximum number of sessions.
    #[display("the target has reached its maximum number of sessions")]
    Full = 3,
    /// The request is malformed or impossible.
    #[display("the target rejects the login as malformed")]
    Malformed = 4,
}

/// The result of a login according to the authenticated answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromPrimitive)]
#[repr(u8)]
pub(crate) enum Outcome {
    /// A new session.
    New = 0,
    /// Another epoch of the session of this instance.
    Resumed = 1,
    /// There is no session of this instance to resume.
    Unknown = 2,
}

/// A login request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoginRequest {
    /// Resume an existing session.
    pub(crate) resume: bool,
    /// A frame may carry several messages.
    pub(crate) bundles: bool,
    pub(crate) cipher: Option<Cipher>,
    pub(crate) frame_bytes: u16,
    pub(crate) credit: u32,
    /// Identifies this login.
    pub(crate) nonce: u64,
    /// Identifies this session: a random number that is drawn when the session starts.
    pub(crate) instance: u64,
    /// Port of the initiator: a new session with the same name and port to a target replaces the earlier one.
    pub(crate) port: u32,
    pub(crate) paths: u8,
    pub(crate) initiator: String,
    pub(crate) target: String,
    /// Noise's message, and the code of all preceding bytes, if there is a key.
    pub(crate) noise: Vec<u8>,
    pub(crate) code: Vec<u8>,
}

/// A target's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) outcome: Outcome,
    pub(crate) frame_bytes: u16,
    pub(crate) credit: u32,
    pub(crate) queue_depth: u16,
    pub(crate) session: u32,
    pub(crate) epoch: u16,
    pub(crate) paths: u8,
    /// A frame may carry several messages. The answer has a byte for it only if the initiator requested it.
    pub(crate) bundles: bool,
}

/// A target's reply to a login request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LoginReply {
    pub(crate) nonce: u64,
    pub(crate) content: Result<Vec<u8>, Refusal>,
}

/// Reads fields one after the other.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    /// A field preceded by its length in one byte.
    fn counted(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(self.u8()?);
        let (first, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(first)
    }

    /// A name: letters, digits and the marks of iSCSI names and of host names.
    pub(crate) fn name(&mut self) -> Option<String> {
        let name = str::from_utf8(self.counted()?).ok()?;
        is_name(name).then(|| name.to_owned())
    }
}

/// Whether this is a valid name of an initiator or a target: 1 to [`NAME_BYTES_MAX`] of the characters of
/// iSCSI names.
pub fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".:-_".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_allowed)
}

/// Appends bytes preceded by their length.
pub(crate) fn put_counted(bytes: &[u8], into: &mut Vec<u8>) {
    debug_assert!(
        bytes.len() <= usize::from(u8::MAX),
        "{} bytes after a length of eight bits",
        bytes.len()
    );
    into.push(bytes.len() as u8);
    into.extend_from_slice(bytes);
}

impl LoginRequest {
    /// Decodes a request; also returns the part that Noise's prologue covers.
    pub(crate) fn parse(body: &[u8]) -> Option<(LoginRequest, &[u8])> {
        let mut fields = Fields(body);
        let flags = fields.u8()?;
        let cipher = match fields.u8()? {
            0 => None,
            1 => Some(Cipher::Aes256Gcm),
            2 => Some(Cipher::ChaCha20Poly1305),
            _ => return None,
        };
        let (frame_bytes, credit) = (fields.u16()?, fields.u32()?);
        let (nonce, instance, port) = (fields.u64()?, fields.u64()?, fields.u32()?);
        let paths = fields.u8()?;
        let (initiator, target) = (fields.name()?, fields.name()?);
        let clear = &body[..body.len() - fields.0.len()];
        let (noise, code) = (fields.counted()?.to_vec(), fields.counted()?.to_vec());
        let is_right = (1..=PATHS_MAX).contains(&usize::from(paths))
            && usize::from(frame_bytes) >= FRAME_BYTES_MIN
            && credit as usize >= crate::pdu::MESSAGE_BYTES_MAX
            && noise.is_empty() == cipher.is_none()
            && noise.len() <= NOISE_BYTES_MAX
            && code.len() == if cipher.is_none() { 0 } else { CODE_BYTES }
            && fields.0.is_empty();
        // Other flags belong to later extensions: the answer shows the requester that they are not supported.
        let request = LoginRequest {
            resume: flags & RESUME != 0,
            bundles: flags & BUNDLES != 0,
            cipher,
            frame_bytes,
            credit,
            nonce,
            instance,
            port,
            paths,
            initiator,
            target,
            noise,
            code,
        };
        is_right.then_some((request, clear))
    }

    /// The part sent in clear, authenticated by Noise's prologue.
    pub(crate) fn clear(&self) -> Vec<u8> {
        let protection = match self.cipher {
            None => 0,
            Some(Cipher::Aes256Gcm) => 1,
            Some(Cipher::ChaCha20Poly1305) => 2,
        };
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let mut body = vec![
            flag(self.resume, RESUME) | flag(self.bundles, BUNDLES),
            protection,
        ];
        body.extend_from_slice(&self.frame_bytes.to_be_bytes());
        body.extend_from_slice(&self.credit.to_be_bytes());
        body.extend_from_slice(&self.nonce.to_be_bytes());
        body.extend_from_slice(&self.instance.to_be_bytes());
        body.extend_from_slice(&self.port.to_be_bytes());
        body.push(self.paths);
        put_counted(self.initiator.as_bytes(), &mut body);
        put_counted(self.target.as_bytes(), &mut body);
        body
    }

    /// The body of the frame. The key is the one used for Noise's message.
    pub(crate) fn body(&self, psk: Option<&Psk>) -> Vec<u8> {
        let mut body = self.clear();
        put_counted(&self.noise, &mut body);
        let code = psk.map(|psk| hmac::sign(&psk.code, &body));
        put_counted(code.as_ref().map_or(&[], hmac::Tag::as_ref), &mut body);
        body
    }

    /// Whether its code, at the end of its body, matches this key. A request with a valid code can be
    /// replayed by anyone.
    pub(crate) fn is_proven(&self, psk: &Psk, body: &[u8]) -> bool {
        let before = body
            .len()
            .checked_sub(CODE_FIELD_BYTES)
            .and_then(|end| body.get(..end));
        before.is_some_and(|before| hmac::verify(&psk.code, before, &self.code).is_ok())
    }
}

impl Answer {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Answer> {
        let mut fields = Fields(bytes);
        let answer = Answer {
            outcome: Outcome::try_from(fields.u8()?).ok()?,
            frame_bytes: fields.u16()?,
            credit: fields.u32()?,
            queue_depth: fields.u16()?,
            session: fields.u32()?,
            epoch: fields.u16()?,
            paths: fields.u8()?,
            bundles: !fields.0.is_empty() && fields.u8()? & ANSWER_BUNDLES != 0,
        };
        let is_right = usize::from(answer.frame_bytes) >= FRAME_BYTES_MIN
            && (1..=PATHS_MAX).contains(&usize::from(answer.paths))
            && answer.queue_depth >= 2
            && fields.0.is_empty();
        is_right.then_some(answer)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ANSWER_BYTES);
        bytes.push(self.outcome as u8);
        bytes.extend_from_slice(&self.frame_bytes.to_be_bytes());
        bytes.extend_from_slice(&self.credit.to_be_bytes());
        bytes.extend_from_slice(&self.queue_depth.to_be_bytes());
        bytes.extend_from_slice(&self.session.to_be_bytes());
        bytes.extend_from_slice(&self.epoch.to_be_bytes());
        bytes.push(self.paths);
        if self.bundles {
            bytes.push(ANSWER_BUNDLES);
        }
        bytes
    }
}

impl LoginReply {
    pub(crate) fn parse(body: &[u8]) -> Option<LoginReply> {
        let mut fields = Fields(body);
        let (refusal, nonce) = (fields.u8()?, fields.u64()?);
        let content = fields.counted()?.to_vec();
        let content = match refusal {
            0 => Ok(content),
            code => Err(Refusal::try_from(code).ok()?),
        };
        fields.0.is_empty().then_some(LoginReply { nonce, content })
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        let refusal = self
            .content
            .as_ref()
            .err()
            .map_or(0, |refusal| *refusal as u8);
        let mut body = vec![refusal];
        body.extend_from_slice(&self.nonce.to_be_bytes());
        put_counted(self.content.as_deref().unwrap_or_default(), &mut body);
        body
    }
}

/// A frame outside sessions, padded to `frame_bytes` bytes.
pub(crate) fn frame(opcode: Opcode, path: u8, body: &[u8], frame_bytes: usize) -> Vec<u8> {
    debug_assert!(opcode.is_outside_sessions() && body.len() < FRAME_BYTES_MIN);
    let header = Header {
        length: body.len() as u16,
        path,
        ..Header::plain(opcode)
    };
    let mut frame = Frame::default();
    frame.put(&header.bytes());
    frame.put(body);
    Protection::Crc.seal(&header, &mut frame);
    frame.pad(frame_bytes);
    frame.bytes
}

/// The body of a frame outside sessions, if it is intact.
pub(crate) fn body<'a>(header: &Header, frame: &'a mut [u8]) -> Option<&'a [u8]> {
    debug_assert!(frame.len() >= HEADER_BYTES);
    Protection::Crc.open(header, frame)
}

/// Noise's primitives, with random numbers that the caller supplies.
struct Drawn(Zeroizing<[u8; 32]>);

struct Once(Zeroizing<[u8; 32]>);

impl Random for Once {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), snow::Error> {
        let drawn = self.0.get(..dest.len()).ok_or(snow::Error::Rng)?;
        dest.copy_from_slice(drawn);
        Ok(())
    }
}

impl CryptoResolver for Drawn {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Once(self.0.clone())))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn NoiseCipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

/// One side of a login with a key.
pub(crate) struct Handshake {
    noise: HandshakeState,
    cipher: Cipher,
    is_initiator: bool,
}

impl Handshake {
    /// Starts a login. `drawn` becomes the ephemeral key, and must be used only for this.
    pub(crate) fn new(
        psk: &Psk,
        cipher: Cipher,
        clear: &[u8],
        drawn: Zeroizing<[u8; 32]>,
        is_initiator: bool,
    ) -> Handshake {
        let params: NoiseParams = PATTERN.parse().expect("a pattern that snow has");
        let prologue = [PROLOGUE, clear].concat();
        let builder = Builder::with_resolver(params, Box::new(Drawn(drawn)));
        let builder = builder
            .psk(0, &psk.noise)
            .and_then(|builder| builder.prologue(&prologue));
        let built = builder.and_then(|builder| match is_initiator {
            true => builder.build_initiator(),
            false => builder.build_responder(),
        });
        Handshake {
            noise: built.expect("the pattern needs this one key"),
            cipher,
            is_initiator,
        }
    }

    /// This side's next message.
    pub(crate) fn write(&mut self, payload: &[u8]) -> Vec<u8> {
        let mut message = vec![0; NOISE_BYTES_MAX];
        let bytes = self
            .noise
            .write_message(payload, &mut message)
            .expect("it is our turn, and there is room");
        message.truncate(bytes);
        message
    }

    /// The peer's next message, if it has the same key.
    pub(crate) fn read(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let mut payload = vec![0; NOISE_BYTES_MAX];
        let bytes = self.noise.read_message(message, &mut payload).ok()?;
        payload.truncate(bytes);
        Some(payload)
    }

    /// The keys of the epoch, after both messages.
    pub(crate) fn protection(mut self) -> Protection {
        let (first, second) = self.noise.dangerously_get_raw_split();
        let (first, second) = (Zeroizing::new(first), Zeroizing::new(second));
        match self.is_initiator {
            true => Protection::aead(self.cipher, &first, &second),
            false => Protection::aead(self.cipher, &second, &first),
        }
    }
}

impl std::fmt::Debug for Handshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handshake")
    }
}

/// A random number generator: SHA-256 of the seed and a counter.
pub(crate) struct SeededRandom {
    seed: Zeroizing<[u8; 32]>,
    drawn: u64,
}

impl SeededRandom {
    pub(crate) fn new(seed: [u8; 32]) -> SeededRandom {
        SeededRandom {
            seed: Zeroizing::new(seed),
            drawn: 0,
        }
    }

    pub(crate) fn bytes(&mut self) -> Zeroizing<[u8; 32]> {
        self.drawn += 1;
        let hash = Sha256::new()
            .chain_update(*self.seed)
            .chain_update(self.drawn.to_be_bytes());
        Zeroizing::new(hash.finalize().into())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        let bytes = self.bytes();
        bytes
            .first_chunk()
            .map_or(0, |chunk| u64::from_be_bytes(*chunk))
    }
}

impl std::fmt::Debug for SeededRandom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SeededRandom")
            .field("drawn", &self.drawn)
            .finish_non_exhaustive()
    }
}
