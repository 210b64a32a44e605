//! Client and server against each other: each side parses the output of the other correctly, in every form,
//! and however it is split.

use nbd::flags::transmission;
use nbd::{
    BadReply, BlockSizes, BlockStatus, ChannelName, Chunk, ClientHandshake, ClientStep, Command,
    Errno, Export, Exports, Handshake, Refused, Reply, ReplyForm, Request, Session, Step, TlsMode,
};
use proptest::prelude::*;

struct Offered(Vec<Export>);

const VOLUME: u128 = 9 << 77;

impl Exports for Offered {
    fn list<'a>(&'a self, from: usize) -> Box<dyn Iterator<Item = (&'a str, &'a str)> + 'a> {
        Box::new(
            self.0[from..]
                .iter()
                .map(|export| (export.name.as_str(), export.description.as_str())),
        )
    }

    fn find(&self, name: &str) -> Option<Export> {
        self.0.iter().find(|export| export.name == name).cloned()
    }

    fn volume(&self, _: &str) -> Option<u128> {
        Some(VOLUME)
    }
}

fn export() -> impl Strategy<Value = Export> {
    let sizes = (0u32..=16, 9u32..=20).prop_map(|(minimum, preferred)| BlockSizes {
        minimum: 1 << minimum,
        preferred: 1 << preferred.max(minimum),
        maximum: 32 << 20,
    });
    (
        "[a-z/ é]{1,20}",
        "[a-z ]{0,20}",
        any::<u64>(),
        any::<u16>(),
        sizes,
    )
        .prop_map(|(name, description, bytes, flags, block_sizes)| Export {
            name,
            description,
            bytes,
            flags: flags & !transmission::SEND_DF | transmission::HAS_FLAGS,
            block_sizes,
        })
}

/// The client's name for the connection.
fn channel() -> ChannelName {
    ChannelName {
        session: 7 << 90,
        number: 3,
        ended: vec![1, 2],
        start: 0,
        volume: Some(VOLUME),
    }
}

/// A handshake in memory. `spoil` may change what a server has sent.
fn agree(
    name: &str,
    offered: &Offered,
    mut spoil: impl FnMut(&mut Vec<u8>),
) -> Result<(Session, Session), Refused> {
    converse(
        Handshake::default(),
        ClientHandshake::new(name).named(ChannelName {
            volume: None,
            ..channel()
        }),
        offered,
        &mut spoil,
    )
}

fn converse(
    mut server: Handshake,
    mut client: ClientHandshake,
    offered: &Offered,
    spoil: &mut dyn FnMut(&mut Vec<u8>),
) -> Result<(Session, Session), Refused> {
    let (mut to_client, mut to_server) = (Handshake::greeting().to_vec(), Vec::new());
    let mut at_server = None;
    loop {
        let mut progress = false;
        spoil(&mut to_client);
        while to_client.len() >= client.wanted() {
            progress = true;
            let bytes: Vec<u8> = to_client.drain(..client.wanted()).collect();
            match client.take(&bytes, &mut to_server)? {
                ClientStep::Continue => {}
                ClientStep::Listed(_) => panic!("it has asked for an export"),
                ClientStep::StartTls => client.encrypted(&mut to_server),
                ClientStep::Transmission(session) => {
                    assert!(
                        to_client.is_empty(),
                        "nothing is sent before it is asked for"
                    );
                    return Ok((at_server.expect("the server was there first"), session));
                }
            }
        }
        while at_server.is_none() && to_server.len() >= server.wanted() {
            progress = true;
            let bytes: Vec<u8> = to_server.drain(..server.wanted()).collect();
            match server
                .take(&bytes, offered, &mut to_client)
                .expect("the client keeps the rules")
            {
                Step::Continue | Step::StartTls => {}
                Step::Transmission(session) => at_server = Some(session),
                Step::End => panic!("it was not requested"),
            }
        }
        assert!(progress, "both wait for each other");
    }
}

fn sessions() -> impl Strategy<Value = Session> {
    let form = prop_oneof![
        Just(ReplyForm::Simple),
        Just(ReplyForm::Structured),
        Just(ReplyForm::Extended)
    ];
    (export(), form).prop_map(|(export, form)| Session {
        export,
        form,
        allocation: Some(1),
        channel: None,
    })
}

fn requests() -> impl Strategy<Value = Request> {
    (
        any::<u16>(),
        0u16..10,
        any::<u64>(),
        any::<u64>(),
        any::<u32>(),
    )
        .prop_map(|(flags, kind, cookie, offset, length)| Request {
            flags,
            kind,
            cookie,
            offset,
            length: length.into(),
        })
}

proptest! {
    #[test]
    fn both_agree_on_the_same_export(exports in prop::collection::vec(export(), 1..5), which in any::<prop::sample::Index>()) {
        let wanted = which.get(&exports).name.clone();
        let offered = Offered(exports);
        let (at_server, at_client) = agree(&wanted, &offered, |_| ()).expect("it is there");
        prop_assert_eq!(&at_client, &at_server);
        prop_assert_eq!(at_client.form, ReplyForm::Extended);
        prop_assert_eq!(at_client.allocation, Some(nbd::ALLOCATION_CONTEXT));
        prop_assert_eq!(at_client.channel, Some(channel()));
        prop_assert!(at_client.export.flags & transmission::SEND_DF != 0);
    }

    /// A broken or hostile server causes an error, not a panic.
    #[test]
    fn no_bytes_of_a_server_panic(at in any::<prop::sample::Index>(), to in any::<u8>(), turn in 0usize..8) {
        let offered = Offered(vec![Export {
            name: "disk".to_owned(),
            description: "of a test".to_owned(),
            bytes: 1 << 20,
            flags: transmission::HAS_FLAGS,
            block_sizes: BlockSizes { minimum: 1, preferred: 4096, maximum: 32 << 20 },
        }]);
        let mut turns = 0;
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| agree("disk", &offered, |bytes| {
            if turns == turn && !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = to;
            }
            turns += 1;
        })))
        .map_err(|panic| {
            // Both sides may then wait for each other, which a timeout of the sockets ends.
            let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
            let text = panic.downcast_ref::<&str>().map_or(text, |text| (*text).to_owned());
            assert!(text.contains("both wait") || text.contains("nothing is sent"), "{text}");
        });
    }

    #[test]
    fn a_request_is_read_as_it_was_written(session in sessions(), request in requests(), cut in 0usize..32) {
        let mut bytes = Vec::new();
        request.write(session.form, &mut bytes);
        prop_assert_eq!(bytes.len(), Request::header_bytes(session.form));
        prop_assert_eq!(Request::parse(session.form, &bytes), Ok(Some(request)));
        prop_assert_eq!(Request::parse(session.form, &bytes[..cut.min(bytes.len() - 1)]), Ok(None));
        let _ = session.check(&request);
    }

    #[test]
    fn a_reply_is_read_as_it_was_written(
        session in sessions(),
        request in requests(),
        text in "[a-zé ]{0,80}",
        extents in prop::collection::vec((1u64..1 << 20, 0u32..4), 1..9),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut extents: Vec<_> = extents.iter().map(|(bytes, state)| BlockStatus { bytes: *bytes, state: *state }).collect();
        let mut request = Request { kind: Command::Read as u16, ..request };
        let chunked = session.form != ReplyForm::Simple;
        let check = |bytes: &[u8], chunk: Chunk, request: &Request| {
            let (reply, length) = Reply::parse(session.form, bytes).expect("a reply").expect("all of it");
            assert_eq!(reply, Reply { cookie: request.cookie, is_last: true, chunk });
            // Any prefix of the header is incomplete, not an error.
            assert_eq!(Reply::parse(session.form, &bytes[..cut.index(length)]), Ok(None));
            length
        };
        let mut bytes = Vec::new();
        session.read_header(&request, &mut bytes);
        let expected = match request.length {
            length if chunked && length > 0 => Chunk::Data { offset: request.offset, bytes: length },
            _ if chunked => Chunk::None,
            _ => Chunk::Simple,
        };
        // The offset of a chunk of data belongs to the header.
        prop_assert_eq!(check(&bytes, expected, &request), bytes.len());

        bytes.clear();
        session.fail(&request, Errno::Enospc, &text, &mut bytes);
        let text_bytes = if chunked { text.len() as u64 } else { 0 };
        let length = check(&bytes, Chunk::Error { error: 28, text_bytes }, &request);
        prop_assert_eq!(&bytes[length..], if chunked { text.as_bytes() } else { &[] });

        bytes.clear();
        request.kind = Command::Write as u16;
        session.succeed(&request, &mut bytes);
        let is_chunk = session.form == ReplyForm::Extended;
        check(&bytes, if is_chunk { Chunk::None } else { Chunk::Simple }, &request);

        if chunked {
            bytes.clear();
            request.kind = Command::BlockStatus as u16;
            session.block_status(&request, &extents, &mut bytes);
            let (reply, length) = Reply::parse(session.form, &bytes).expect("a reply").expect("all of it");
            let Chunk::BlockStatus { bytes: announced } = reply.chunk else { panic!("{reply:?}") };
            prop_assert_eq!(announced as usize, bytes.len() - length);
            prop_assert_eq!(session.extents(&bytes[length..]), Some(extents.clone()));
            extents[0].bytes = 5 << 32;
            bytes.clear();
            session.block_status(&request, &extents, &mut bytes);
            let told = session.extents(&bytes[length..]).expect("extents");
            match session.form {
                ReplyForm::Extended => prop_assert_eq!(told, extents),
                _ => {
                    prop_assert_eq!(told.len(), 1, "what does not fit is the last");
                    prop_assert!(told[0].bytes < 1 << 32 && told[0].bytes % 512 == 0);
                }
            }
        }
    }

    #[test]
    fn no_reply_panics(form in 0u8..3, magic in 0usize..4, rest in prop::collection::vec(any::<u8>(), 0..60)) {
        let form = [ReplyForm::Simple, ReplyForm::Structured, ReplyForm::Extended][usize::from(form)];
        let magic = [0x6744_6698u32, 0x668e_33ef, 0x6e8a_278c, 7][magic];
        let bytes = [&magic.to_be_bytes()[..], &rest].concat();
        match Reply::parse(form, &bytes) {
            Ok(Some((_, length))) => prop_assert!(length <= bytes.len()),
            Ok(None) | Err(BadReply::Magic(_) | BadReply::Chunk { .. }) => {}
        }
    }
}

/// A client that requires TLS requests nothing from a server without it: others could read and modify the
/// traffic.
#[test]
fn a_client_that_wants_tls_does_without_nothing() {
    let offered = Offered(Vec::new());
    for (mode, wants, expected) in [
        (
            TlsMode::Off,
            true,
            Refused::NoTls("this server does not support TLS".into()),
        ),
        (TlsMode::Required, false, Refused::TlsRequired),
        (
            TlsMode::Required,
            true,
            Refused::NoExport("disk".to_owned()),
        ),
        (TlsMode::Allowed, true, Refused::NoExport("disk".to_owned())),
    ] {
        let client = if wants {
            ClientHandshake::new("disk").over_tls()
        } else {
            ClientHandshake::new("disk")
        };
        assert_eq!(
            converse(Handshake::new(mode), client, &offered, &mut |_| ()),
            Err(expected)
        );
    }
    // A greeting from which an attacker has removed fixed newstyle.
    let strip = &mut |said: &mut Vec<u8>| {
        said.iter_mut()
            .skip(17)
            .take(1)
            .for_each(|flags| *flags = 0)
    };
    let stripped = converse(
        Handshake::new(TlsMode::Allowed),
        ClientHandshake::new("disk").over_tls(),
        &offered,
        strip,
    );
    assert!(matches!(stripped, Err(Refused::NoTls(_))), "{stripped:?}");
}

#[test]
fn a_list_has_all_exports_and_no_more_than_a_server_can_have() {
    let told = |count: usize| {
        let name = |number: usize| (format!("disk{number}"), format!("the {number}th"));
        let replies = (0..count).flat_map(|number| {
            let (name, description) = name(number);
            let head = [
                0x0003_e889_0455_65a9u64.to_be_bytes(),
                0x3_0000_0002u64.to_be_bytes(),
            ]
            .concat();
            let lengths = [name.len() + description.len() + 4, name.len()]
                .map(|length| (length as u32).to_be_bytes());
            [
                &head[..],
                &lengths.concat(),
                name.as_bytes(),
                description.as_bytes(),
            ]
            .concat()
        });
        let end = [
            0x0003_e889_0455_65a9u64.to_be_bytes(),
            0x3_0000_0001u64.to_be_bytes(),
        ]
        .concat();
        let said: Vec<u8> = Handshake::greeting()
            .into_iter()
            .chain(replies)
            .chain(end)
            .chain([0; 4])
            .collect();
        let (mut client, mut rest) = (ClientHandshake::lister(), &said[..]);
        loop {
            let (now, later) = rest.split_at(client.wanted());
            rest = later;
            match client.take(now, &mut Vec::new()) {
                Ok(ClientStep::Continue) => {}
                Ok(ClientStep::Listed(list)) => {
                    assert!(list.into_iter().eq((0..count).map(name)));
                    return Ok(());
                }
                Ok(step) => panic!("{step:?}"),
                Err(refused) => return Err(refused),
            }
        }
    };
    for count in [0, 1, 1000] {
        assert_eq!(told(count), Ok(()));
    }
    assert!(matches!(told(20_000), Err(Refused::Violation(_))));
}

#[test]
fn an_export_that_is_not_there_is_refused_by_name() {
    let nothing = Offered(Vec::new());
    assert_eq!(
        agree("disk", &nothing, |_| ()),
        Err(Refused::NoExport("disk".to_owned()))
    );
}

#[test]
fn what_is_no_server_is_told_by_its_first_bytes() {
    let mut client = ClientHandshake::new("disk");
    let http = *b"HTTP/1.1 400 Bad R";
    assert_eq!(
        client.take(&http, &mut Vec::new()),
        Err(Refused::NotNbd(u64::from_be_bytes(*b"HTTP/1.1")))
    );
    let mut old = Handshake::greeting();
    old[8..16].copy_from_slice(&0x0000_4202_8186_1253u64.to_be_bytes());
    let mut client = ClientHandshake::new("disk");
    assert_eq!(client.take(&old, &mut Vec::new()), Err(Refused::OldStyle));
}

/// If a client does not receive the replies, the server stores one part of the list, however long the list
/// is.
#[test]
fn a_list_of_thousands_of_exports_is_told_in_parts() {
    let sizes = BlockSizes {
        minimum: 1,
        preferred: 4096,
        maximum: 32 << 20,
    };
    let offered = Offered(
        (0..5000)
            .map(|number| Export {
                name: format!("disk{number}"),
                description: "x".repeat(number % 4096),
                bytes: 1 << 20,
                flags: transmission::HAS_FLAGS,
                block_sizes: sizes,
            })
            .collect(),
    );
    let (mut server, mut client) = (Handshake::default(), ClientHandshake::lister());
    let (mut to_client, mut to_server) = (Handshake::greeting().to_vec(), Vec::new());
    let mut parts = 0;
    let list = loop {
        if to_client.len() >= client.wanted() {
            let bytes: Vec<u8> = to_client.drain(..client.wanted()).collect();
            match client
                .take(&bytes, &mut to_server)
                .expect("the server keeps the rules")
            {
                ClientStep::Continue => {}
                ClientStep::Listed(list) => break list,
                step => panic!("{step:?}"),
            }
            continue;
        }
        let (bytes, before) = (
            to_server.drain(..server.wanted()).collect::<Vec<u8>>(),
            to_client.len(),
        );
        assert_eq!(
            server.take(&bytes, &offered, &mut to_client),
            Ok(Step::Continue)
        );
        let told = to_client.len() - before;
        assert!(
            told <= 24 << 10,
            "{told} bytes are kept for a client that has not read the ones before"
        );
        parts += 1;
    };
    let all: Vec<_> = offered
        .0
        .iter()
        .map(|export| (export.name.clone(), export.description.clone()))
        .collect();
    assert!(
        list == all && parts > 100,
        "{} exports in {parts} parts",
        list.len()
    );
}

/// The server's text is part of our message on a terminal.
#[test]
fn what_a_server_says_of_a_refusal_is_shown_escaped() {
    let offered = Offered(Vec::new());
    let mut spoil = |said: &mut Vec<u8>| {
        let refused = said.windows(4).position(|code| *code == [0x80, 0, 0, 6]); // the export is unknown
        if let Some(at) = refused {
            let text = "gone\nlinerate: data verified, 0 errors\n\u{202e}txt".as_bytes();
            said[at..at + 4].copy_from_slice(&[0x80, 0, 0, 2]); // it is forbidden
            said.truncate(at + 4);
            said.extend((text.len() as u32).to_be_bytes());
            said.extend(text);
        }
    };
    let refused = agree("x", &offered, &mut spoil).expect_err("there is no export");
    assert_eq!(
        refused.to_string(),
        r"the server rejects the export: gone\nlinerate: data verified, 0 errors\n\u{202e}txt"
    );
}

/// The number of replies, and of their bytes, that a client accepts from a server that repeats a reply to its
/// first option forever.
fn endured(mut client: ClientHandshake, code: u32, data: &[u8]) -> (usize, usize) {
    let mut sent = Vec::new();
    client
        .take(&Handshake::greeting(), &mut sent)
        .expect("a greeting");
    let option = sent[12..16].to_vec();
    let header = [
        &0x3_e889_0455_65a9_u64.to_be_bytes()[..],
        &option,
        &code.to_be_bytes(),
        &(data.len() as u32).to_be_bytes(),
    ]
    .concat();
    let mut all = 0;
    for replies in 0..100_000 {
        for part in [&header[..], data]
            .into_iter()
            .filter(|part| !part.is_empty())
        {
            match client.take(part, &mut sent) {
                Ok(ClientStep::Continue) => all += part.len(),
                Ok(step) => panic!("{step:?}"),
                Err(refused) => {
                    assert!(matches!(refused, Refused::Violation(_)), "{refused}");
                    return (replies, all);
                }
            }
        }
    }
    panic!("without end");
}

/// The limit on the length of a reply does not limit the number of replies.
#[test]
fn a_server_that_never_ends_an_option_is_refused() {
    let (info, unknown, context) = (3, 5, 4);
    let description = [&[0, 2][..], &[b'd'; 4000]].concat();
    for (code, data) in [
        (info, &description[..]),
        (unknown, b""),
        (unknown, &[7; 8000]),
        (context, b"\0\0\0\x01base:allocation"),
    ] {
        let (replies, bytes) = endured(ClientHandshake::new("disk"), code, data);
        assert!(
            replies <= 64 && bytes <= 1 << 20,
            "{code}: {replies} replies, {bytes} bytes"
        );
    }
    let server = 2;
    for data in [
        &b"\0\0\0\x04disk"[..],
        &[&[0, 0, 0, 4][..], &[b'd'; 8000]].concat(),
    ] {
        let (replies, bytes) = endured(ClientHandshake::lister(), server, data);
        assert!(
            replies <= 11_000 && bytes <= 33 << 20,
            "{replies} exports, {bytes} bytes"
        );
    }
    let (replies, _) = endured(ClientHandshake::lister(), unknown, b"");
    assert!(replies <= 11_000, "{replies}");
}
