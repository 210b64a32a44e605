//! Sections "Request message", "Simple reply message", "Structured reply chunk message" and "Extended headers".

use nbd::flags::{allocation, command};
use nbd::{BadMagic, BlockStatus, Command, Errno, ReplyForm, Request, Session};
use proptest::prelude::*;

use crate::{bytes, disk};

const FORMS: [ReplyForm; 3] = [
    ReplyForm::Simple,
    ReplyForm::Structured,
    ReplyForm::Extended,
];

fn session(form: ReplyForm) -> Session {
    Session {
        export: disk(),
        form,
        allocation: Some(nbd::ALLOCATION_CONTEXT),
        channel: None,
    }
}

/// A request with this command.
fn request(kind: Command) -> Request {
    Request {
        flags: 0,
        kind: kind as u16,
        cookie: 0x0102_0304_0506_0708,
        offset: 0x1234_5678,
        length: 0x200,
    }
}

/// Checks the output of `write` in the three forms.
#[track_caller]
fn is_written(write: impl Fn(&Session, &mut Vec<u8>), texts: [&str; 3]) {
    for (form, text) in FORMS.into_iter().zip(texts) {
        let mut out = Vec::new();
        write(&session(form), &mut out);
        assert_eq!(
            out.escape_ascii().to_string(),
            bytes(text).escape_ascii().to_string(),
            "{form:?}"
        );
    }
}

#[test]
fn a_request_has_28_bytes_and_an_extended_one_32() {
    let request = Request {
        flags: 1,
        kind: 6,
        cookie: 0xfeed,
        offset: 0x1_0000_0000,
        length: 0x1000,
    };
    let short = bytes("25609513 0001 0006 000000000000feed 0000000100000000 00001000");
    let long = bytes("21e41c71 0001 0006 000000000000feed 0000000100000000 0000000000001000");
    for (form, header) in FORMS.into_iter().zip([&short, &short, &long]) {
        assert_eq!(Request::header_bytes(form), header.len());
        assert_eq!(Request::parse(form, header), Ok(Some(request)));
        let longer = [&header[..], &[0xff; 64]].concat();
        assert_eq!(
            Request::parse(form, &longer),
            Ok(Some(request)),
            "what follows is not its own"
        );
        for length in 0..header.len() {
            assert_eq!(
                Request::parse(form, &header[..length]),
                Ok(None),
                "{length}"
            );
        }
        let mut out = Vec::new();
        request.write(form, &mut out);
        assert_eq!(out, *header);
    }
    let huge = bytes("21e41c71 0000 0004 0000000000000000 0000000000000000 ffffffffffffffff");
    let huge = Request::parse(ReplyForm::Extended, &huge)
        .expect("a header")
        .expect("a whole one");
    assert_eq!(
        (huge.command(), huge.length),
        (Some(Command::Trim), u64::MAX)
    );
}

#[test]
fn a_request_of_another_form_is_none() {
    for (form, magic) in [
        (ReplyForm::Simple, 0x21e4_1c71),
        (ReplyForm::Structured, 0x21e4_1c71),
        (ReplyForm::Extended, 0x2560_9513),
        (ReplyForm::Simple, 0x6744_6698),
        (ReplyForm::Simple, 0),
    ] {
        let header = u32::to_be_bytes(magic);
        assert_eq!(
            Request::parse(form, &header),
            Err(BadMagic(magic)),
            "as soon as possible"
        );
    }
}

#[test]
fn only_writes_have_a_payload_unless_extended_headers_announce_one() {
    for kind in 0..12 {
        for flags in [0, command::PAYLOAD_LEN, 0xffff] {
            let request = Request {
                flags,
                kind,
                cookie: 0,
                offset: 0,
                length: 7,
            };
            let is_write = kind == 1;
            assert_eq!(
                request.payload_bytes(ReplyForm::Simple),
                if is_write { 7 } else { 0 }
            );
            assert_eq!(
                request.payload_bytes(ReplyForm::Structured),
                if is_write { 7 } else { 0 }
            );
            let announced = is_write || flags & 0x20 != 0;
            assert_eq!(
                request.payload_bytes(ReplyForm::Extended),
                if announced { 7 } else { 0 }
            );
        }
    }
}

#[test]
fn success_without_data() {
    let simple = "67446698 00000000 0102030405060708";
    let extended = "6e8a278c 0001 0000 0102030405060708 0000000012345678 0000000000000000";
    for kind in [
        Command::Write,
        Command::Flush,
        Command::Trim,
        Command::Cache,
        Command::WriteZeroes,
    ] {
        is_written(
            |session, out| session.succeed(&request(kind), out),
            [simple, simple, extended],
        );
    }
}

/// With chunks, a read has no simple reply; an empty chunk of data is not allowed either.
#[test]
fn a_read_of_nothing_succeeds_without_a_chunk_of_data() {
    let nothing = Request {
        length: 0,
        ..request(Command::Read)
    };
    is_written(
        |session, out| session.read_header(&nothing, out),
        [
            "67446698 00000000 0102030405060708",
            "668e33ef 0001 0000 0102030405060708 00000000",
            "6e8a278c 0001 0000 0102030405060708 0000000012345678 0000000000000000",
        ],
    );
}

#[test]
fn data_of_a_read() {
    is_written(
        |session, out| session.read_header(&request(Command::Read), out),
        [
            "67446698 00000000 0102030405060708",
            "668e33ef 0001 0001 0102030405060708 00000208 0000000012345678",
            "6e8a278c 0001 0001 0102030405060708 0000000012345678 0000000000000208 0000000012345678",
        ],
    );
}

#[test]
fn errors_have_a_number_and_where_possible_a_text() {
    for kind in [Command::Read, Command::Write, Command::BlockStatus] {
        is_written(
            |session, out| session.fail(&request(kind), Errno::Enospc, "full", out),
            [
                "67446698 0000001c 0102030405060708",
                "668e33ef 0001 8001 0102030405060708 0000000a 0000001c 0004 'full'",
                "6e8a278c 0001 8001 0102030405060708 0000000012345678 000000000000000a 0000001c 0004 'full'",
            ],
        );
    }
    let numbers = [
        (Errno::Eperm, 1),
        (Errno::Eio, 5),
        (Errno::Enomem, 12),
        (Errno::Einval, 22),
        (Errno::Enospc, 28),
        (Errno::Eoverflow, 75),
        (Errno::Enotsup, 95),
        (Errno::Eshutdown, 108),
    ];
    for (error, number) in numbers {
        let mut out = Vec::new();
        session(ReplyForm::Simple).fail(&request(Command::Write), error, "", &mut out);
        assert_eq!(out[4..8], u32::to_be_bytes(number));
    }
    // The text is a string of up to 4096 bytes that ends at a character boundary.
    let mut out = Vec::new();
    session(ReplyForm::Structured).fail(
        &request(Command::Read),
        Errno::Eio,
        &"ä".repeat(3000),
        &mut out,
    );
    assert_eq!(u16::from_be_bytes([out[24], out[25]]), 4096);
    assert_eq!(out.len(), 20 + 6 + 4096);
    let long = format!("a{}", "ä".repeat(3000));
    out.clear();
    session(ReplyForm::Structured).fail(&request(Command::Read), Errno::Eio, &long, &mut out);
    assert!(std::str::from_utf8(&out[26..]).is_ok());
}

#[test]
fn extents() {
    let extents = [
        BlockStatus {
            bytes: 0x1000,
            state: allocation::HOLE | allocation::ZERO,
        },
        BlockStatus {
            bytes: 0x200,
            state: 0,
        },
    ];
    let write = |session: &Session, out: &mut Vec<u8>| {
        session.block_status(&request(Command::BlockStatus), &extents, out);
    };
    let (mut structured, mut extended) = (Vec::new(), Vec::new());
    write(&session(ReplyForm::Structured), &mut structured);
    write(&session(ReplyForm::Extended), &mut extended);
    let wanted =
        "668e33ef 0001 0005 0102030405060708 00000014 00000001 00001000 00000003 00000200 00000000";
    assert_eq!(structured, bytes(wanted));
    let wanted =
        "6e8a278c 0001 0006 0102030405060708 0000000012345678 0000000000000028 00000001 00000002
                  0000000000001000 0000000000000003 0000000000000200 0000000000000000";
    assert_eq!(extended, bytes(wanted));
}

/// Without extended headers: as much as fits in 32 bits, in whole blocks, and nothing after it.
#[test]
fn an_extent_that_is_too_long_for_its_reply_ends_it() {
    let one = BlockStatus {
        bytes: 512,
        state: 0,
    };
    let extents = [
        one,
        BlockStatus {
            bytes: 1 << 32,
            state: 3,
        },
        one,
    ];
    let mut out = Vec::new();
    session(ReplyForm::Structured).block_status(&request(Command::BlockStatus), &extents, &mut out);
    let wanted =
        "668e33ef 0001 0005 0102030405060708 00000014 00000001 00000200 00000000 fffff000 00000003";
    assert_eq!(out, bytes(wanted));
}

proptest! {
    #[test]
    fn any_bytes_are_a_request_or_none(header in proptest::collection::vec(any::<u8>(), 0..40), form in 0_usize..3) {
        let form = FORMS[form];
        if let Ok(Some(request)) = Request::parse(form, &header) {
            let mut out = Vec::new();
            request.write(form, &mut out);
            prop_assert_eq!(&out[..], &header[..out.len()]);
        }
    }

    #[test]
    fn a_request_is_read_as_it_was_written(
        flags: u16, kind: u16, cookie: u64, offset: u64, length: u64, form in 0_usize..3,
    ) {
        let form = FORMS[form];
        let length = if form == ReplyForm::Extended { length } else { length >> 32 };
        let request = Request { flags, kind, cookie, offset, length };
        let mut out = Vec::new();
        request.write(form, &mut out);
        prop_assert_eq!(Request::parse(form, &out), Ok(Some(request)));
        // Every request gets a reply.
        for allocation in [None, Some(nbd::ALLOCATION_CONTEXT)] {
            let session = Session { allocation, ..session(form) };
            if let Ok(command) = session.check(&request) {
                prop_assert_eq!(command as u16, kind);
                let moves = matches!(command, Command::Read | Command::Write);
                prop_assert!(!moves || length <= 32 << 20);
                let ends = offset.checked_add(length).is_some_and(|end| end <= session.export.bytes);
                prop_assert!(ends || command == Command::Disconnect);
            }
        }
    }
}
