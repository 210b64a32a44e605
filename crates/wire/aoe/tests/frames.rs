//! Frames of other implementations, malformed frames, and round trips.

use aoe::{
    Address, Ata, AtaOperation, Body, Config, ConfigCommand, ErrorCode, Frame, Header, Malformed,
    Mask, Reserve,
};
use proptest::prelude::*;

const DEVICE: Address = Address { major: 7, minor: 1 };

fn header() -> Header {
    Header {
        is_response: false,
        error: None,
        address: DEVICE,
        tag: 0x8000_0001,
    }
}

/// `aoeping -i 7 1 eth0` of Debian's aoetools 36: a query of the configuration and IDENTIFY DEVICE, padded.
#[test]
fn a_query_is_read_with_its_padding() {
    let mut query = vec![0x10, 0, 0, 7, 1, 1, 0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    query.resize(46, 0);
    let frame = Frame::parse(&query).expect("a frame");
    assert_eq!(
        frame,
        Frame {
            header: header(),
            body: Body::Config(Config::query(ConfigCommand::Read, b""))
        }
    );
    let mut identify = vec![
        0x10, 0, 0, 7, 1, 0, 0x80, 0, 0, 1, 0, 0, 1, 0xec, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    identify.resize(46, 0);
    let Ok(Frame {
        body: Body::Ata(ata, _),
        ..
    }) = Frame::parse(&identify)
    else {
        panic!("a frame")
    };
    assert_eq!(
        (ata.operation(), ata),
        (AtaOperation::Identify, Ata::identify())
    );
}

#[test]
fn what_cannot_be_read_is_answered_with_its_error() {
    let parse = |bytes: &[u8]| Frame::parse(bytes).expect_err("no frame");
    assert_eq!(parse(&[0x10; 9]), Malformed::NoHeader);
    assert_eq!(parse(&[0x10; 9]).answer(), None);
    let code = |bytes: &[u8]| {
        parse(bytes)
            .answer()
            .map(|answer| (answer[0], answer[1], answer.len()))
    };
    let short = |first: u8, command: u8| [first, 0, 0, 7, 1, command, 0, 0, 0, 1];
    assert_eq!(
        code(&short(0x20, 1)),
        Some((0x1c, 5, 10)),
        "another version"
    );
    assert_eq!(
        code(&short(0x10, 9)),
        Some((0x1c, 1, 10)),
        "another command"
    );
    for command in 0..4 {
        assert_eq!(
            code(&short(0x10, command)),
            Some((0x1c, 2, 10)),
            "command {command} without its body"
        );
        assert_eq!(
            code(&short(0x18, command)),
            None,
            "an answer is not answered"
        );
    }
    let mut long = short(0x10, 1).to_vec();
    long.extend([0, 0, 0, 0, 0, 0, 0x04, 0x01]);
    long.resize(18 + 1025, b'x');
    assert_eq!(code(&long), Some((0x1c, 2, 10)), "a string of 1025 bytes");
    long[17] = 0;
    assert!(Frame::parse(&long).is_ok(), "a string of 1024");
}

fn body() -> impl Strategy<Value = (Header, Vec<u8>, u8)> {
    let header = (
        any::<bool>(),
        proptest::option::of(1u8..=9),
        any::<u16>(),
        any::<u8>(),
        any::<u32>(),
    )
        .prop_map(|(is_response, error, major, minor, tag)| {
            let code = |code| match code {
                1 => ErrorCode::BadCommand,
                2 => ErrorCode::BadArgument,
                3 => ErrorCode::Unavailable,
                4 => ErrorCode::ConfigPresent,
                5 => ErrorCode::BadVersion,
                6 => ErrorCode::Reserved,
                code => ErrorCode::Other(code),
            };
            Header {
                is_response,
                error: error.map(code),
                address: Address { major, minor },
                tag,
            }
        });
    (
        header,
        proptest::collection::vec(any::<u8>(), 0..1100),
        0u8..4,
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read((header, bytes, kind) in body()) {
        let stations: Vec<[u8; 6]> = bytes.as_chunks::<6>().0.iter().take(255).copied().collect();
        let body = match kind {
            0 => Body::Ata(Ata { flags: 0x41, feature_or_error: 4, count: 2, command_or_status: 0x34, lba: 1 << 47 | 3 }, &bytes),
            1 => Body::Config(Config {
                buffer_count: 16, firmware: 2, sectors_max: 17, command: ConfigCommand::Set,
                string: &bytes[..bytes.len().min(1024)],
            }),
            2 => Body::Mask(Mask { command: 1, error: None, directives: stations.iter()
                .map(|station| aoe::MaskDirective { command: 1, station: *station }).take(100).collect() }),
            _ => Body::Reserve(Reserve { command: aoe::ReserveCommand::ForceSet, stations }),
        };
        let frame = Frame { header, body };
        let written = frame.write();
        prop_assert_eq!(Frame::parse(&written), Ok(frame));
    }

    #[test]
    fn anything_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0u8..6) {
        let mut bytes = bytes;
        if let [first, _, _, _, _, command, ..] = &mut bytes[..] {
            (*first, *command) = (0x10 | *first & 0x0f, kind);
        }
        match Frame::parse(&bytes) {
            Ok(frame) => prop_assert!(frame.write().len() <= bytes.len().max(22)),
            Err(malformed) => drop(malformed.answer()),
        }
    }
}
