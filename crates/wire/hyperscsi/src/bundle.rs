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

/// Whether the lengths in a body are those of two messages or more that fill it.
pub(crate) fn is_right(header: &Header, body: &[u8]) -> bool {
    let (mut rest, mut last) = (body.get(header.message_bytes as usize..), header.message);
    loop {
        match rest {
            None => return false,
            Some([]) => return last > header.message,
            Some([high, low, behind @ ..]) if last < u32::MAX => {
                rest = behind.get(usize::from(u16::from_be_bytes([*high, *low]))..);
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
    let behind = (header.message..).skip(1).map_while(move |message| {
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

    #[test]
    fn messages_come_out_with_the_headers_that_they_would_have_alone() {
        let (header, body) = (bundle(510, 3), b"abc\0\x02de\0\0\0\x01f");
        assert!(is_right(&header, body));
        let out: Vec<(u32, u32, u16, &[u8])> = messages(&header, body)
            .map(|(header, bytes)| {
                assert!(!header.bundle);
                (header.message, header.message_bytes, header.length, bytes)
            })
            .collect();
        let wanted: [(u32, u32, u16, &[u8]); 4] =
            [(510, 3, 3, b"abc"), (511, 2, 2, b"de"), (512, 0, 0, b""), (513, 1, 1, b"f")];
        assert_eq!(out, wanted);
    }

    #[test]
    fn lengths_that_do_not_fill_the_body_are_wrong() {
        let good = b"abc\0\x02de";
        assert!(is_right(&bundle(0, 3), good));
        for length in 0..good.len() {
            assert!(
                !is_right(&bundle(0, 3), &good[..length]),
                "{length} bytes: cut off, or one message alone"
            );
        }
        assert!(!is_right(&bundle(0, 3), b"abc\0\x02def"), "a byte too many");
        assert!(!is_right(&bundle(0, u32::MAX), good), "a giant");
        assert!(!is_right(&bundle(u32::MAX, 3), good), "no number is behind the last one");
    }
}
