//! Encrypted and authenticated messages: each is sent as transport messages of Noise (revision 34, section 5)
//! of at most 65,535 bytes. Their numbers are not sent, since TCP keeps the order. A message that was
//! replayed, dropped, reflected or truncated, or is from another connection, does not decrypt.
//!
//! The length of a message stands in front of it within what is encrypted, so that the pieces of one message
//! are not taken for another.

use std::fmt;
use std::rc::Rc;

use derive_more::Display;

use snow::StatelessTransportState;

use super::frame::{TooLong, framed};

/// What one transport message of Noise has at most, and what of it is its code.
const PIECE: usize = 65_535;
const CODE: usize = 16;

const LENGTH: usize = 4;

/// The keys of a connection, and how many transport messages went by them in one direction.
pub struct Seal {
    keys: Rc<StatelessTransportState>,
    number: u64,
}

/// This is no message of the other side's: somebody is between the two, or one of them is out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[display("a message came that was changed on its way, or that nobody sent")]
pub struct Forged;

impl Seal {
    /// For the first message in its direction.
    pub(super) fn new(keys: Rc<StatelessTransportState>) -> Seal {
        Seal { keys, number: 0 }
    }

    /// The message as a frame.
    ///
    /// # Errors
    /// It is too long for one.
    pub fn close(&mut self, message: &[u8]) -> Result<Vec<u8>, TooLong> {
        let length = u32::try_from(message.len()).map_err(|_| TooLong { bytes: message.len() })?;
        let plain = [&length.to_be_bytes(), message].concat();
        let (mut sealed, mut piece) = (Vec::with_capacity(plain.len() + CODE), vec![0; PIECE]);
        for part in plain.chunks(PIECE - CODE) {
            // 2^64 pieces are never sent.
            let written = self.keys.write_message(self.number, part, &mut piece);
            sealed.extend_from_slice(&piece[..written.expect("a part fits into a piece with its code")]);
            self.number += 1;
        }
        framed(&sealed)
    }

    /// The message in a frame, if it is the next one. After a wrong one nothing more is right.
    ///
    /// # Errors
    /// It is not the other side's next message.
    pub fn open(&mut self, frame: &[u8]) -> Result<Vec<u8>, Forged> {
        let (mut plain, mut part) = (Vec::with_capacity(frame.len()), vec![0; PIECE]);
        for piece in frame.chunks(PIECE) {
            let read = self.keys.read_message(self.number, piece, &mut part).map_err(|_| Forged)?;
            plain.extend_from_slice(&part[..read]);
            self.number += 1;
        }
        let length = *plain.first_chunk::<LENGTH>().ok_or(Forged)?;
        let message = plain.split_off(LENGTH);
        if message.len() == u32::from_be_bytes(length) as usize { Ok(message) } else { Err(Forged) }
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seal").field("number", &self.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::handshake::tests::{meet, right};
    use super::*;

    /// What one side says and the other hears by.
    fn seals() -> (Seal, Seal) {
        let (coordinator, agent) = meet(&right(), &right());
        (coordinator.expect("keys").ours, agent.expect("keys").theirs)
    }

    #[test]
    fn a_message_that_was_changed_repeated_left_out_or_of_another_connection_is_forged() {
        let (mut ours, mut theirs) = seals();
        let [one, two] =
            [&b"one"[..], b"two"].map(|message| ours.close(message).expect("a frame").split_off(4));
        let again = || Seal { keys: Rc::clone(&theirs.keys), number: theirs.number };
        let mut changed = one.clone();
        *changed.last_mut().expect("a byte") ^= 1;
        assert_eq!(again().open(&changed), Err(Forged));
        assert_eq!(again().open(&two), Err(Forged), "the first was left out");
        assert_eq!(again().open(b""), Err(Forged));
        for length in 0..one.len() {
            assert_eq!(again().open(&one[..length]), Err(Forged), "it was cut off");
        }
        assert_eq!(seals().1.open(&one), Err(Forged), "it is of another connection");
        assert_eq!(theirs.open(&one).as_deref(), Ok(&b"one"[..]));
        assert_eq!(theirs.open(&one), Err(Forged), "it was repeated");
    }

    #[test]
    fn messages_of_any_length_come_out_as_they_went_in() {
        let (mut ours, mut theirs) = seals();
        for length in [3, 0, PIECE - CODE - LENGTH, PIECE, 3 * (PIECE - CODE) - LENGTH + 1] {
            let message = vec![7; length];
            let frame = ours.close(&message).expect("a frame");
            assert_eq!(theirs.open(&frame[4..]), Ok(message));
        }
    }

    #[test]
    fn the_pieces_of_a_message_are_no_message() {
        let (mut ours, mut theirs) = seals();
        let frame = ours.close(&vec![7; 2 * PIECE]).expect("a frame").split_off(4);
        assert_eq!(theirs.open(&frame[..PIECE]), Err(Forged), "it was cut off between two pieces");
    }
}
