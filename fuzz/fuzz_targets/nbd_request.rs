//! Arbitrary bytes as requests, in each form: an accepted request is unchanged when written again, a permitted request keeps
//! to the limits, and every reply has the length in its header.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nbd::{BlockSizes, BlockStatus, Command, Errno, Export, Reply, ReplyForm, Request, Session};
use script::Script;

fuzz_target!(|bytes: &[u8]| {
    let mut script = Script(bytes);
    let form = [
        ReplyForm::Simple,
        ReplyForm::Structured,
        ReplyForm::Extended,
    ][usize::from(script.byte() % 3)];
    let export = Export {
        name: "disk".to_owned(),
        description: String::new(),
        bytes: 1 << (script.byte() % 63),
        flags: u16::from_be_bytes([script.byte(), script.byte()]),
        block_sizes: BlockSizes {
            minimum: 1 << (script.byte() % 17),
            preferred: 65_536,
            maximum: 32 << 20,
        },
    };
    let has_allocation = form != ReplyForm::Simple && script.flag();
    let session = Session {
        export,
        form,
        allocation: has_allocation.then_some(nbd::ALLOCATION_CONTEXT),
        channel: None,
    };
    while !script.is_over() {
        let header = header(&mut script, form);
        // Arbitrary server data is parsed without a panic, as far as possible.
        if let Ok(Some((_, length))) = Reply::parse(form, bytes) {
            assert!(length <= bytes.len());
        }
        let Ok(Some(request)) = Request::parse(form, &header) else {
            continue;
        };
        let mut again = Vec::new();
        request.write(form, &mut again);
        assert_eq!(again, header[..again.len()]);
        match session.check(&request) {
            Ok(command) => obeys(&session, &request, command),
            Err(error) => answers(&session, |out| {
                session.fail(&request, error, "refused", out)
            }),
        }
    }
});

fn obeys(session: &Session, request: &Request, command: Command) {
    let end = request.offset.checked_add(request.length);
    match command {
        Command::Disconnect => return,
        Command::Flush => assert_eq!(end, Some(0)),
        _ => assert!(end.is_some_and(|end| end <= session.export.bytes)),
    }
    match command {
        Command::Read if request.length > 0 => {
            assert!(request.length <= 32 << 20);
            let mut out = Vec::new();
            session.read_header(request, &mut out);
            let (reply, length) = Reply::parse(session.form, &out)
                .expect("a reply")
                .expect("all of it");
            assert_eq!((reply.cookie, length), (request.cookie, out.len()));
        }
        Command::BlockStatus => {
            let extents = [
                BlockStatus {
                    bytes: request.length.max(1),
                    state: 3,
                },
                BlockStatus { bytes: 1, state: 0 },
            ];
            answers(session, |out| session.block_status(request, &extents, out));
        }
        _ => answers(session, |out| session.succeed(request, out)),
    }
    answers(session, |out| {
        session.fail(request, Errno::Eio, &"ä".repeat(3000), out)
    });
}

/// Checks that the length of a reply matches its header, and its form matches the session.
fn answers(session: &Session, write: impl FnOnce(&mut Vec<u8>)) {
    let mut out = Vec::new();
    write(&mut out);
    let number = |at: usize, length: usize| {
        out[at..at + length]
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte))
    };
    let length = match number(0, 4) {
        0x6744_6698 => 16,
        0x668e_33ef => 20 + number(16, 4),
        0x6e8a_278c => 32 + number(24, 8),
        magic => panic!("{magic:#x}"),
    };
    assert_eq!(out.len() as u64, length);
    assert_eq!(
        session.form == ReplyForm::Extended,
        number(0, 4) == 0x6e8a_278c
    );
}

/// Returns a header, usually with the correct magic number.
fn header(script: &mut Script<'_>, form: ReplyForm) -> Vec<u8> {
    let mut header = vec![0; Request::header_bytes(form)];
    let magic: u32 = if form == ReplyForm::Extended {
        0x21e4_1c71
    } else {
        0x2560_9513
    };
    header[..4].copy_from_slice(&magic.to_be_bytes());
    header[5] = script.byte();
    header[7] = script.byte() % 10;
    for field in [8..16, 16..24, 24..header.len()] {
        let count = usize::from(script.byte() & 7).min(field.len());
        let bytes = script.bytes(count);
        let at = if script.flag() {
            field.start
        } else {
            field.end - bytes.len()
        };
        header[at..at + bytes.len()].copy_from_slice(bytes);
    }
    if script.byte() >= 0xfc {
        let at = usize::from(script.byte()) % header.len();
        header[at] = script.byte();
    }
    header
}
