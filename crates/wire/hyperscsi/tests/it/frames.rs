use hyperscsi::{FRAME_BYTES_MIN, HEADER_BYTES, Header, Malformed, Opcode, discovery};
use proptest::prelude::*;

/// Written out by hand from docs/hyperscsi-format.md.
#[test]
fn golden_header() {
    let header = Header {
        sealed: true,
        last: true,
        fragment: 0x203,
        length: 0x1234,
        session: 0xdead_beef,
        epoch: 0x0102,
        path: 5,
        has_ack: true,
        ask: true,
        number: 0x0a0b_0c0d_0e0f,
        message: 0x0001_0155,
        message_bytes: 0x000f_0001,
        ..Header::plain(Opcode::Reply)
    };
    // Tag 0x155 is 1 0101 0101, last 1, fragment 10 0000 0011: 0000 1010 | 1010 1110 | 0000 0011.
    let mut frame = vec![
        0x0a, 0xae, 0x03, 0x52, 0x81, 0x12, 0x34, 0xde, 0xad, 0xbe, 0xef, 1, 2, 0xa5,
    ];
    frame.extend([
        0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0, 1, 1, 0x55, 0, 0x0f, 0, 1,
    ]);
    assert_eq!(header.bytes()[..], frame);
    frame.resize(HEADER_BYTES + 0x1234 + 16, 0);
    assert_eq!(Header::parse(&frame), Ok(header));
    frame.pop();
    assert_eq!(Header::parse(&frame), Err(Malformed::Truncated));
}

/// The whole question: its CRC32C matches RFC 3720's algorithm, computed bit by bit here.
#[test]
fn golden_frame() {
    let frame = discovery::question(0x0102_0304_0506_0708);
    assert_eq!(frame.len(), FRAME_BYTES_MIN, "padded");
    let mut wanted = vec![0, 4, 0, 0x52, 0x10, 0, 9];
    wanted.resize(HEADER_BYTES, 0);
    wanted.extend([0, 1, 2, 3, 4, 5, 6, 7, 8]);
    let shift = |crc: u32| {
        if crc & 1 == 1 {
            crc >> 1 ^ 0x82f6_3b78
        } else {
            crc >> 1
        }
    };
    let crc = !wanted.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| shift(crc))
    });
    wanted.extend(crc.to_be_bytes());
    assert_eq!(frame[..wanted.len()], wanted);
    assert!(frame[wanted.len()..].iter().all(|byte| *byte == 0));
}

#[test]
fn what_is_no_frame_is_refused_and_says_why() {
    let good = discovery::question(1);
    let with = |at: usize, value: u8| {
        let mut frame = good.clone();
        frame[at] = value;
        Header::parse(&frame)
    };
    assert!(Header::parse(&good).is_ok());
    assert_eq!(Header::parse(&good[..27]), Err(Malformed::Truncated));
    assert_eq!(Header::parse(&[]), Err(Malformed::Truncated));
    assert_eq!(with(0, 0x10), Err(Malformed::Reserved));
    assert_eq!(with(13, 0x08), Err(Malformed::Reserved));
    assert_eq!(
        with(13, 0x10),
        Err(Malformed::Fields),
        "no bundle outside sessions"
    );
    assert_eq!(with(3, 1), Err(Malformed::Version(1)), "a frame of 2002");
    assert_eq!(with(4, 0x30), Err(Malformed::Opcode(0x30)));
    assert_eq!(with(1, 0x0c), Err(Malformed::Tag));
    assert_eq!(
        with(2, 1),
        Err(Malformed::Fields),
        "a fragment of no message"
    );
    assert_eq!(
        with(10, 1),
        Err(Malformed::Fields),
        "no discovery in a session"
    );
    assert_eq!(with(5, 0xff), Err(Malformed::Truncated));
}

proptest! {
    #[test]
    fn what_is_read_is_written_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..200), opcode: u8) {
        let mut bytes = bytes;
        if bytes.len() > HEADER_BYTES {
            // Most random bytes are not frames; these are almost valid.
            let tag = u32::from(bytes[22] & 1) << 8 | u32::from(bytes[23]);
            let word = tag << 11 | u32::from(bytes[1] & 7) << 8 | u32::from(bytes[2]);
            bytes[..3].copy_from_slice(&word.to_be_bytes()[1..]);
            bytes[13] &= 0xf7;
            (bytes[3], bytes[4], bytes[5]) = (0x52, opcode & 0x93, 0);
        }
        if let Ok(header) = Header::parse(&bytes) {
            prop_assert_eq!(&header.bytes()[..], &bytes[..HEADER_BYTES]);
        }
    }
}
