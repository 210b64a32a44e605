//! Several messages in one frame. What a frame costs does not depend on its length, so small messages that wait travel
//! together, if the login says that both sides can. They are whole, of one opcode, and have consecutive numbers.
//!
//! ```text
//!  header: message, message length of the first │ [acknowledgement] │ first message │ length u16 │ next message │ …
//! ```

use std::iter;

use crate::frame::Header;

/// Bytes in front of each message but the first.
pub(crate) const LENGTH_BYTES: usize = 2;

/// Bytes of a message in a bundle at least, so that a frame carries no more of them than there are requests: the shortest PDU has more.
const MESSAGE_BYTES_MIN: usize = 12;

/// Whether the lengths in a body are those of two messages or more that fill it.
pub(crate) fn is_right(header: &Header, body: &[u8]) -> bool {
    let first = header.message_bytes as usize;
    let (mut rest, mut last) = (body.get(first..).filter(|_| first >= MESSAGE_BYTES_MIN), header.message);
    loop {
        match rest {
            None => return false,
            Some([]) => return last > header.message,
            Some([high, low, behind @ ..]) if last < u32::MAX => {
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                rest = behind.get(length..).filter(|_| length >= MESSAGE_BYTES_MIN);
                last += 1;
            }
            Some(_) => return false,
        }
    }
}

/// The messages of a body that [`is_right`], each with the header that it would have alone.
pub(crate) fn messages<'a>(header: &Header, body: &'a [u8]) -> impl Iterator<Item = (Header, &'a [u8])> {
    let alone = |message: u32, bytes: usize| Header {
        bundle: false,
        length: bytes as u16,
        message,
        message_bytes: bytes as u32,
        ..*header
    };
    let (first, mut rest) = body.split_at_checked(header.message_bytes as usize).unwrap_or((body, &[]));
    let behind = (header.message..=u32::MAX).skip(1).map_while(move |message| {
        let (length, from) = rest.split_first_chunk()?;
        let (bytes, behind) = from.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        rest = behind;
        Some((message, bytes))
    });
    let all = iter::once((header.message, first)).chain(behind);
    all.map(move |(message, bytes)| (alone(message, bytes.len()), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Opcode;

    fn bundle(message: u32, bytes: u32) -> Header {
        let plain = Header::plain(Opcode::Request);
        Header { bundle: true, message, message_bytes: bytes, ..plain }
    }

    /// `message_bytes` of each, then its bytes, each with its length but for the first.
    fn body(messages: &[&[u8]]) -> Vec<u8> {
        let mut body = messages[0].to_vec();
        for message in &messages[1..] {
            body.extend((message.len() as u16).to_be_bytes());
            body.extend_from_slice(message);
        }
        body
    }

    #[test]
    fn messages_come_out_with_the_headers_that_they_would_have_alone() {
        let all: [&[u8]; 3] = [b"the first one", b"and the second", b"the last one"];
        let (header, body) = (bundle(510, 13), body(&all));
        assert!(is_right(&header, &body));
        let out: Vec<(u32, u32, u16, &[u8])> = messages(&header, &body)
            .map(|(header, bytes)| {
                assert!(!header.bundle);
                (header.message, header.message_bytes, header.length, bytes)
            })
            .collect();
        assert_eq!(out, [(510, 13, 13, all[0]), (511, 14, 14, all[1]), (512, 12, 12, all[2])]);
    }

    #[test]
    fn lengths_that_do_not_fill_the_body_are_wrong() {
        let good = body(&[b"the first one", b"and the second"]);
        assert!(is_right(&bundle(0, 13), &good));
        for length in 0..good.len() {
            assert!(
                !is_right(&bundle(0, 13), &good[..length]),
                "{length} bytes: cut off, or one message alone"
            );
        }
        assert!(!is_right(&bundle(0, 13), &[&good[..], b"f"].concat()), "a byte too many");
        assert!(!is_right(&bundle(0, u32::MAX), &good), "a giant");
        assert!(!is_right(&bundle(u32::MAX, 13), &good), "no number is behind the last one");
        assert!(!is_right(&bundle(0, 13), &body(&[b"the first one", b""])), "shorter than any PDU");
        assert!(!is_right(&bundle(0, 1), &body(&[b"1", b"and the second"])), "shorter than any PDU");
    }
}
