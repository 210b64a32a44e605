//! What a frame's trailer proves: that it was not damaged (CRC32C), or that the peer of the login sent it (AEAD).
//!
//! The header is in clear and covered in both cases. The nonce of the AEAD is the frame's path and number, which no
//! epoch uses twice, under a key that is of one direction of one epoch.

use std::fmt;

use crc_fast::crc32_iscsi;
use ring::aead::{AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

use crate::frame::{CRC_BYTES, HEADER_BYTES, Header, TAG_BYTES};
use crate::outgoing::Frame;

/// How the frames of a session are sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// AES-256-GCM: the faster one where the processor has AES.
    Aes256Gcm,
    /// ChaCha20-Poly1305.
    ChaCha20Poly1305,
}

/// The protection of an epoch's frames.
pub(crate) enum Protection {
    /// Damage is noticed, forgery is not.
    Crc,
    /// Both are. The keys are this side's and the peer's.
    Aead { ours: Box<LessSafeKey>, theirs: Box<LessSafeKey> },
}

impl fmt::Debug for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_aead() { "Aead" } else { "Crc" })
    }
}

impl Protection {
    pub(crate) fn aead(cipher: Cipher, ours: &[u8; 32], theirs: &[u8; 32]) -> Protection {
        let algorithm: &'static Algorithm = match cipher {
            Cipher::Aes256Gcm => &AES_256_GCM,
            Cipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        let key = |bytes| {
            let key = UnboundKey::new(algorithm, bytes);
            Box::new(LessSafeKey::new(key.expect("both ciphers have keys of 32 bytes")))
        };
        Protection::Aead { ours: key(ours), theirs: key(theirs) }
    }

    pub(crate) fn is_aead(&self) -> bool {
        matches!(self, Protection::Aead { .. })
    }

    /// Bytes behind a body.
    pub(crate) fn trailer_bytes(&self) -> usize {
        if self.is_aead() { TAG_BYTES } else { CRC_BYTES }
    }

    /// Ends a frame that consists of this header and the body behind it.
    pub(crate) fn seal(&self, header: &Header, frame: &mut Frame) {
        match self {
            Protection::Crc => frame.put(&frame.crc().to_be_bytes()),
            Protection::Aead { ours, .. } => {
                let (head, body) = frame.bytes.split_at_mut(HEADER_BYTES);
                let tag = ours.seal_in_place_separate_tag(nonce(header), Aad::from(&*head), body);
                frame.put(tag.expect("a frame is shorter than a cipher's limit").as_ref());
            }
        }
    }

    /// The body of a frame whose trailer is right. The length was checked by [`Header::parse`].
    pub(crate) fn open<'a>(&self, header: &Header, frame: &'a mut [u8]) -> Option<&'a [u8]> {
        if header.sealed != self.is_aead() {
            return None;
        }
        let end = HEADER_BYTES + usize::from(header.length);
        match self {
            Protection::Crc => {
                let crc = frame.get(end..end + CRC_BYTES)?;
                (crc == crc32_iscsi(&frame[..end]).to_be_bytes()).then(|| &frame[HEADER_BYTES..end])
            }
            Protection::Aead { theirs, .. } => {
                let (head, sealed) = frame.get_mut(..end + TAG_BYTES)?.split_at_mut(HEADER_BYTES);
                let body = theirs.open_in_place(nonce(header), Aad::from(&*head), sealed);
                body.ok().map(|body| &*body)
            }
        }
    }
}

fn nonce(header: &Header) -> Nonce {
    let mut bytes = [0; 12];
    bytes[0] = header.path;
    bytes[4..].copy_from_slice(&header.number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}
