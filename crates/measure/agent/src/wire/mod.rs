//! The protocol of a coordinator (`linerate bench --agents`) and its agents, as values and state machines
//! without I/O.
//!
//! ```text
//!   coordinator                                    agent
//!   Hello  protocol, program, Noise   ──────────▶            at most 1 KiB each way, and a few seconds,
//!                                     ◀──────────  Hello     before the secret has been proved
//!   a sealed message, empty           ──────────▶            both sides are authenticated
//!   ═══════ from here on each frame: a message, encrypted and numbered by Noise ═══════
//!   Order                             ──────────▶
//!                                     ◀──────────  Notification
//! ```
//!
//! Every message is JSON in a frame ([`framed`], [`Frames`]): a length, followed by this number of bytes.
//! [`handshake`] authenticates both sides by the secret, and creates keys for the connection. [`Seal`]
//! encrypts every later message, and [`message`] defines the messages.
//!
//! Security: without the secret, an attacker cannot give orders, impersonate an agent or read messages, or modify,
//! replay, drop or reflect messages undetected. Recorded traffic remains confidential even if the secret
//! leaks later (forward secrecy). A short secret is not protected against offline guessing by an
//! eavesdropper, since the first message proves knowledge of the secret. Therefore, short secrets are
//! rejected.

use std::fmt;
use std::rc::Rc;

use derive_more::Display;
use snow::StatelessTransportState;
use zeroize::Zeroizing;

pub mod handshake;
pub mod message;

/// The protocol version. The coordinator and all agents must have the same protocol version and the same
/// program version: if they interpreted a workload differently, the measurement would be wrong.
pub const PROTOCOL: u32 = 3;

/// The maximum length of a frame before authentication.
pub const STRANGER_BYTES_MAX: usize = 1024;

/// The maximum length of a frame after authentication. A result with the samples of a day and all latencies
/// takes 20 MB.
pub const FRAME_BYTES_MAX: usize = 64 << 20;

/// The secret that the coordinator and its agents share.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// The minimum length. An eavesdropper could guess a shorter secret offline.
    pub const BYTES_MIN: usize = 16;

    /// Returns `None` if the secret is too short.
    pub fn new(bytes: &[u8]) -> Option<Secret> {
        (bytes.len() >= Secret::BYTES_MIN).then(|| Secret(Zeroizing::new(bytes.to_vec())))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The received part of a stream of frames.
#[derive(Debug)]
pub struct Frames {
    bytes: Vec<u8>,
    limit: usize,
}

/// The length in a frame's header exceeds the maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[display("it sent a message of {bytes} bytes, which is too long")]
pub struct TooLong {
    /// The length in the frame's header, in bytes.
    pub bytes: usize,
}

const LENGTH: usize = 4;

impl Frames {
    /// Creates an empty buffer for frames of up to `limit` bytes.
    pub fn new(limit: usize) -> Frames {
        Frames {
            bytes: Vec::new(),
            limit,
        }
    }

    /// Sets the maximum length, from the next frame on.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Adds received bytes. If the caller takes complete frames before it adds more bytes, the buffer never
    /// contains more than one frame and the bytes received together with the frame's end. No memory is
    /// allocated on the basis of a frame's claimed length.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next frame, once it is complete.
    ///
    /// # Errors
    /// The length of the frame exceeds the maximum.
    pub fn take(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        let Some(length) = self.bytes.first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        if length > self.limit {
            return Err(TooLong { bytes: length });
        }
        if self.bytes.len() < LENGTH + length {
            return Ok(None);
        }
        let rest = self.bytes.split_off(LENGTH + length);
        let mut frame = std::mem::replace(&mut self.bytes, rest);
        frame.drain(..LENGTH);
        Ok(Some(frame))
    }
}

/// Formats a message as one frame.
///
/// # Errors
/// The message is too long for a frame.
pub fn framed(message: &[u8]) -> Result<Vec<u8>, TooLong> {
    let length = u32::try_from(message.len()).map_err(|_| TooLong {
        bytes: message.len(),
    })?;
    Ok([&length.to_be_bytes(), message].concat())
}

/// The maximum length of a Noise transport message; `CODE` is the length of its authentication tag.
const PIECE: usize = 65_535;
// Encrypted and authenticated messages. Each is sent as transport messages of Noise (revision 34, section 5)
// of at most 65,535 bytes. Their numbers are not sent, since TCP keeps the order. Decryption fails if a
// message was replayed, dropped, reflected or truncated, or if it comes from another connection.
//
// The encrypted content starts with the length of the message, so that the pieces of one message cannot be
// mistaken for another.

const CODE: usize = 16;
/// The keys of a connection, with the number of transport messages that have been encrypted in one direction.
pub struct Seal {
    keys: Rc<StatelessTransportState>,
    number: u64,
}

/// The message does not come from the peer: there is an attacker on the path, or one side violates the
/// protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[display("a message was modified in transit, or was not sent by the peer")]
pub struct Forged;

impl Seal {
    /// Creates the state before the first message of a direction.
    fn new(keys: Rc<StatelessTransportState>) -> Seal {
        Seal { keys, number: 0 }
    }

    /// Encrypts a message as a frame.
    ///
    /// # Errors
    /// The message is too long for a frame.
    pub fn close(&mut self, message: &[u8]) -> Result<Vec<u8>, TooLong> {
        let length = u32::try_from(message.len()).map_err(|_| TooLong {
            bytes: message.len(),
        })?;
        let plain = [&length.to_be_bytes(), message].concat();
        let (mut sealed, mut piece) = (Vec::with_capacity(plain.len() + CODE), vec![0; PIECE]);
        for part in plain.chunks(PIECE - CODE) {
            // The number cannot reach 2^64, which Noise does not permit.
            let written = self.keys.write_message(self.number, part, &mut piece);
            sealed.extend_from_slice(
                &piece[..written.expect("a part fits into a piece with its code")],
            );
            self.number += 1;
        }
        framed(&sealed)
    }

    /// Decrypts the message in a frame, which must be the peer's next message. After a failure, the caller
    /// must close the connection.
    ///
    /// # Errors
    /// The frame does not contain the peer's next message.
    pub fn open(&mut self, frame: &[u8]) -> Result<Vec<u8>, Forged> {
        let (mut plain, mut part) = (Vec::with_capacity(frame.len()), vec![0; PIECE]);
        for piece in frame.chunks(PIECE) {
            let read = self
                .keys
                .read_message(self.number, piece, &mut part)
                .map_err(|_| Forged)?;
            plain.extend_from_slice(&part[..read]);
            self.number += 1;
        }
        let length = *plain.first_chunk::<LENGTH>().ok_or(Forged)?;
        let message = plain.split_off(LENGTH);
        if message.len() == u32::from_be_bytes(length) as usize {
            Ok(message)
        } else {
            Err(Forged)
        }
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seal")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::handshake::tests::{meet, right};

    #[test]
    fn a_frame_that_claims_too_much_is_refused_before_it_comes() {
        let mut frames = Frames::new(8);
        frames.push(&[0, 0, 0, 9]);
        assert_eq!(frames.take(), Err(TooLong { bytes: 9 }));
        let mut frames = Frames::new(usize::MAX);
        frames.push(&[0xff; 4]);
        assert_eq!(
            frames.take(),
            Ok(None),
            "it is waited for, and no memory taken"
        );
        assert!(frames.bytes.capacity() < 1024);
    }

    #[test]
    fn frames_come_out_as_they_went_in_however_the_bytes_arrive() {
        let sent: Vec<u8> = [&b"one"[..], b"", b"three"]
            .iter()
            .flat_map(|frame| framed(frame).expect("a frame"))
            .collect();
        for piece in 1..sent.len() {
            let (mut frames, mut came) = (Frames::new(8), Vec::new());
            for bytes in sent.chunks(piece) {
                frames.push(bytes);
                while let Some(frame) = frames.take().expect("short frames") {
                    came.push(frame);
                }
            }
            assert_eq!(came, [&b"one"[..], b"", b"three"]);
            assert!(frames.bytes.is_empty());
        }
    }

    /// Returns the encryption of one side, and the decryption of the other side.
    fn seals() -> (Seal, Seal) {
        let (coordinator, agent) = meet(&right(), &right());
        (coordinator.expect("keys").ours, agent.expect("keys").theirs)
    }

    #[test]
    fn a_message_that_was_changed_repeated_left_out_or_of_another_connection_is_forged() {
        let (mut ours, mut theirs) = seals();
        let [one, two] =
            [&b"one"[..], b"two"].map(|message| ours.close(message).expect("a frame").split_off(4));
        let again = || Seal {
            keys: Rc::clone(&theirs.keys),
            number: theirs.number,
        };
        let mut changed = one.clone();
        *changed.last_mut().expect("a byte") ^= 1;
        assert_eq!(again().open(&changed), Err(Forged));
        assert_eq!(again().open(&two), Err(Forged), "the first was left out");
        assert_eq!(again().open(b""), Err(Forged));
        for length in 0..one.len() {
            assert_eq!(again().open(&one[..length]), Err(Forged), "it was cut off");
        }
        assert_eq!(
            seals().1.open(&one),
            Err(Forged),
            "it is of another connection"
        );
        assert_eq!(theirs.open(&one).as_deref(), Ok(&b"one"[..]));
        assert_eq!(theirs.open(&one), Err(Forged), "it was repeated");
    }

    #[test]
    fn messages_of_any_length_come_out_as_they_went_in() {
        let (mut ours, mut theirs) = seals();
        for length in [
            3,
            0,
            PIECE - CODE - LENGTH,
            PIECE,
            3 * (PIECE - CODE) - LENGTH + 1,
        ] {
            let message = vec![7; length];
            let frame = ours.close(&message).expect("a frame");
            assert_eq!(theirs.open(&frame[4..]), Ok(message));
        }
    }

    #[test]
    fn the_pieces_of_a_message_are_no_message() {
        let (mut ours, mut theirs) = seals();
        let frame = ours
            .close(&vec![7; 2 * PIECE])
            .expect("a frame")
            .split_off(4);
        assert_eq!(
            theirs.open(&frame[..PIECE]),
            Err(Forged),
            "it was cut off between two pieces"
        );
    }
}
