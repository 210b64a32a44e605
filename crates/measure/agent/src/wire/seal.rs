//! Messages that only the other side can have made: each is behind a code over a key of its direction, its number and
//! itself. The number is not sent, since TCP keeps the order; one that was repeated, left out or came from an earlier
//! connection has the wrong code.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac};
use sha2::Sha256;

use super::frame::{TooLong, framed};

/// Bytes of a code, and of a key.
pub const CODE: usize = 32;

/// The key of one direction, and how many messages went by it.
pub struct Seal {
    key: Hmac<Sha256>,
    number: u64,
}

/// The code is not that of this message: somebody is between the two sides, or one of them is out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forged;

impl Seal {
    /// For the first message.
    pub fn new(key: &[u8; CODE]) -> Seal {
        Seal { key: keyed(key), number: 0 }
    }

    /// The message and its code as a frame.
    pub fn close(&mut self, message: &[u8]) -> Result<Vec<u8>, TooLong> {
        let code = self.next(message).finalize().into_bytes();
        framed(&[&code, message])
    }

    /// The message in a frame, if its code is right. After a wrong one nothing more is right.
    pub fn open<'a>(&mut self, frame: &'a [u8]) -> Result<&'a [u8], Forged> {
        let (code, message) = frame.split_first_chunk::<CODE>().ok_or(Forged)?;
        self.next(message).verify_slice(code).map_err(|_| Forged)?;
        Ok(message)
    }

    fn next(&mut self, message: &[u8]) -> Hmac<Sha256> {
        let mut code = self.key.clone();
        code.update(&self.number.to_be_bytes());
        code.update(message);
        self.number += 1; // 2^64 messages are never sent
        code
    }
}

/// HMAC-SHA256 with this key.
pub(super) fn keyed(key: &[u8]) -> Hmac<Sha256> {
    // Longer keys are hashed and shorter ones filled up (RFC 2104 section 2): none has a wrong length.
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

impl fmt::Display for Forged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message came that was changed on its way, or that nobody sent")
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seal").field("number", &self.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; CODE] = [7; CODE];

    fn closed(messages: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut seal = Seal::new(&KEY);
        messages.iter().map(|message| seal.close(message).expect("a frame").split_off(4)).collect()
    }

    #[test]
    fn a_message_that_was_changed_repeated_left_out_or_of_another_key_is_forged() {
        let frames = closed(&[b"one", b"two"]);
        let mut changed = frames[0].clone();
        *changed.last_mut().expect("a byte") ^= 1;
        assert_eq!(Seal::new(&KEY).open(&changed), Err(Forged));
        assert_eq!(Seal::new(&KEY).open(&frames[1]), Err(Forged), "the first was left out");
        assert_eq!(Seal::new(&[8; CODE]).open(&frames[0]), Err(Forged));
        assert_eq!(Seal::new(&KEY).open(&frames[0][..CODE - 1]), Err(Forged));
        let mut seal = Seal::new(&KEY);
        assert_eq!(seal.open(&frames[0]), Ok(&b"one"[..]));
        assert_eq!(seal.open(&frames[0]), Err(Forged), "it was repeated");
    }

    #[test]
    fn messages_come_out_as_they_went_in() {
        let mut seal = Seal::new(&KEY);
        for (frame, message) in closed(&[b"one", b"", b"three"]).iter().zip([&b"one"[..], b"", b"three"]) {
            assert_eq!(seal.open(frame), Ok(message));
        }
    }
}
