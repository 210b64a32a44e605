//! Section "Handshake phase".

use nbd::{Handshake, ReplyForm, Session, Step, TlsMode, Violation};
use proptest::prelude::*;

use crate::{Disks, bytes};

/// A handshake tested through its bytes only.
struct Talk {
    machine: Handshake,
    said: Vec<u8>,
}

/// The reply to STARTTLS if TLS follows.
const TLS_FOLLOWS: &str = "0003e889045565a9 00000005 00000001 00000000";
const STARTTLS: &str = "'IHAVEOPT' 00000005 00000000";

/// The result of processing some bytes.
type Outcome = Result<Option<Session>, Violation>;

const FIXED: &str = "00000003";

impl Talk {
    /// A handshake after the greeting and these client flags.
    fn begin(flags: &str) -> Talk {
        Talk::with(TlsMode::Off, flags)
    }

    fn with(tls: TlsMode, flags: &str) -> Talk {
        let mut talk = Talk {
            machine: Handshake::new(tls),
            said: Vec::new(),
        };
        assert_eq!(talk.hear(flags), Ok(None));
        assert_eq!(talk.said, [], "client flags have no answer");
        talk
    }

    /// Processes bytes as a socket would deliver them; the state machine must consume all of them.
    fn hear(&mut self, text: &str) -> Outcome {
        self.said.clear();
        let all = bytes(text);
        let mut rest = &all[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(self.machine.wanted());
            rest = later;
            match self.machine.take(now, &Disks, &mut self.said)? {
                Step::Continue => {}
                Step::StartTls => assert_eq!(rest, [], "they are those of TLS"),
                Step::Transmission(session) => {
                    assert_eq!(rest, [], "they are the session's");
                    return Ok(Some(session));
                }
                Step::End => {
                    assert_eq!(rest, []);
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    /// Sends an option that does not end the handshake, and checks the whole reply.
    #[track_caller]
    fn answers(&mut self, option: &str, answer: &str) {
        assert_eq!(self.hear(option), Ok(None));
        let (said, wanted) = (
            self.said.escape_ascii().to_string(),
            bytes(answer).escape_ascii().to_string(),
        );
        assert_eq!(said, wanted);
    }

    /// Sends an option that must fail with this error, with any text.
    #[track_caller]
    fn refuses(&mut self, option: &str, code: u8) {
        assert_eq!(self.hear(option), Ok(None));
        let option = &bytes(option)[8..12];
        assert_eq!(self.said[..8], bytes("0003e889045565a9"));
        assert_eq!(
            (&self.said[8..12], &self.said[12..16]),
            (option, &[0x80, 0, 0, code][..])
        );
        let length = u32::from_be_bytes(self.said[16..20].try_into().expect("four bytes"));
        assert_eq!(self.said.len(), 20 + length as usize, "one reply");
        assert!(std::str::from_utf8(&self.said[20..]).is_ok_and(|text| !text.contains('\0')));
    }
}

#[test]
fn the_greeting_offers_fixed_newstyle_without_zeroes() {
    assert_eq!(
        Handshake::greeting()[..],
        bytes("'NBDMAGIC' 'IHAVEOPT' 0003")
    );
    assert_eq!(Handshake::default().wanted(), 4);
}

#[test]
fn client_flags_that_were_not_offered_end_the_connection() {
    for flags in ["00000004", "80000000", "00010000", "ffffffff"] {
        let mut talk = Talk {
            machine: Handshake::default(),
            said: Vec::new(),
        };
        assert!(
            matches!(talk.hear(flags), Err(Violation::ClientFlags(_))),
            "{flags}"
        );
        assert_eq!(talk.said, []);
    }
    for flags in ["00000000", "00000001", "00000002", "00000003"] {
        Talk::begin(flags);
    }
}

#[test]
fn what_begins_with_another_magic_number_is_no_option() {
    for magic in [
        "'NBDMAGIC'",
        "'GET / HT'",
        "0003e889045565a9",
        "00420281861253 00",
        "0000000000000000",
    ] {
        let mut talk = Talk::begin(FIXED);
        assert!(matches!(
            talk.hear(&format!("{magic} 00000007 00000000")),
            Err(Violation::Magic(_))
        ));
        assert_eq!(talk.said, []);
    }
}

/// Every option except two is answered with NBD_REP_ERR_TLS_REQD, and no export is disclosed (section
/// "FORCEDTLS mode").
#[test]
fn nothing_is_answered_before_tls_where_it_is_required() {
    let mut talk = Talk::with(TlsMode::Required, FIXED);
    for option in ["03", "06", "07", "08", "09", "0a", "0b", "0c", "ff"] {
        talk.refuses(&format!("'IHAVEOPT' 000000{option} 00000004 'disk'"), 5);
    }
    talk.refuses(
        &format!("'IHAVEOPT' 00000007 00010001 {}", "61".repeat(65_537)),
        5,
    );
    for name in [
        "00000004 'disk'".to_owned(),
        format!("00010001 {}", "61".repeat(65_537)),
    ] {
        let mut talk = Talk::with(TlsMode::Required, "00000000");
        assert_eq!(
            talk.hear(&format!("'IHAVEOPT' 00000001 {name}")),
            Err(Violation::WithoutTls)
        );
        assert_eq!(talk.said, [], "a client would take it for a size");
    }
    talk.answers(STARTTLS, TLS_FOLLOWS);
    assert!(
        talk.hear("'IHAVEOPT' 00000007 0000000a 00000004 'disk' 0000")
            .is_ok_and(|session| session.is_some())
    );
    let mut talk = Talk::with(TlsMode::Required, FIXED);
    talk.answers(
        "'IHAVEOPT' 00000002 00000000",
        "0003e889045565a9 00000002 00000001 00000000",
    );
}

/// Clear text may have been injected by an attacker (nbdkit's CVE-2021-3716).
#[test]
fn what_was_agreed_before_tls_is_forgotten() {
    for (tls, option) in [(TlsMode::Allowed, "08"), (TlsMode::Allowed, "0b")] {
        let mut talk = Talk::with(tls, FIXED);
        talk.answers(
            &format!("'IHAVEOPT' 000000{option} 00000000"),
            &format!("0003e889045565a9 000000{option} 00000001 00000000"),
        );
        talk.hear(
            "'IHAVEOPT' 0000000a 0000001f 00000004 'disk' 00000001 0000000f 'base:allocation'",
        )
        .expect("a context");
        talk.answers(STARTTLS, TLS_FOLLOWS);
        let session = talk
            .hear("'IHAVEOPT' 00000007 0000000a 00000004 'disk' 0000")
            .expect("an export");
        let session = session.expect("a session");
        assert_eq!(
            (session.form, session.allocation),
            (ReplyForm::Simple, None)
        );
    }
}

#[test]
fn tls_begins_once_and_where_it_is_offered() {
    let mut talk = Talk::begin(FIXED);
    talk.refuses(STARTTLS, 2);
    // "The server MUST operate in NOTLS mode unless" the client supports fixed newstyle.
    Talk::with(TlsMode::Allowed, "00000002").refuses(STARTTLS, 2);
    for tls in [TlsMode::Allowed, TlsMode::Required] {
        let mut talk = Talk::with(tls, FIXED);
        talk.refuses("'IHAVEOPT' 00000005 00000001 00", 3);
        talk.answers(STARTTLS, TLS_FOLLOWS);
        talk.refuses(STARTTLS, 3);
    }
}

#[test]
fn export_name_is_answered_by_size_flags_and_124_zeroes() {
    let option = "'IHAVEOPT' 00000001 00000004 'disk'";
    for (flags, zeroes) in [
        ("00000000", 124),
        ("00000001", 124),
        ("00000002", 0),
        ("00000003", 0),
    ] {
        let mut talk = Talk::begin(flags);
        let session = talk.hear(option).expect("an export").expect("a session");
        assert_eq!(
            (session.form, session.allocation.is_some()),
            (ReplyForm::Simple, false)
        );
        let mut wanted = bytes("0000000004000000 0d6d");
        wanted.resize(10 + zeroes, 0);
        assert_eq!(talk.said, wanted);
    }
    // With structured replies, a read may be asked not to be fragmented (bit 7).
    let mut talk = Talk::begin(FIXED);
    talk.answers(
        "'IHAVEOPT' 00000008 00000000",
        "0003e889045565a9 00000008 00000001 00000000",
    );
    let session = talk.hear(option).expect("an export").expect("a session");
    assert_eq!(session.form, ReplyForm::Structured);
    assert_eq!(talk.said, bytes("0000000004000000 0ded"));
}

#[test]
fn export_name_has_no_errors_but_the_end() {
    for name in ["00000007 'nothing'", "00000002 ff fe", "00000005 'disk' 00"] {
        let mut talk = Talk::begin(FIXED);
        assert!(matches!(
            talk.hear(&format!("'IHAVEOPT' 00000001 {name}")),
            Err(Violation::NoExport(_))
        ));
        assert_eq!(talk.said, [], "a client would take it for a size");
    }
    // A name that is too long also gets no reply.
    let mut talk = Talk::begin(FIXED);
    let long = format!("'IHAVEOPT' 00000001 00010001 {}", "61".repeat(65_537));
    assert!(matches!(talk.hear(&long), Err(Violation::NoExport(_))));
    assert_eq!(talk.said, []);
    // Headers that the client does not expect after EXPORT_NAME.
    let mut talk = Talk::begin(FIXED);
    talk.answers(
        "'IHAVEOPT' 0000000b 00000000",
        "0003e889045565a9 0000000b 00000001 00000000",
    );
    assert!(matches!(
        talk.hear("'IHAVEOPT' 00000001 00000004 'disk'"),
        Err(Violation::NoExport(_))
    ));
}

#[test]
fn abort_is_acknowledged_and_ends() {
    let long = format!("00010001 {}", "00".repeat(65_537));
    for data in ["00000000", "00000003 010203", &long] {
        let mut machine = Handshake::default();
        let mut said = Vec::new();
        let all = bytes(&format!("{FIXED} 'IHAVEOPT' 00000002 {data}"));
        let mut rest = &all[..];
        let mut last = Step::Continue;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(machine.wanted());
            rest = later;
            last = machine.take(now, &Disks, &mut said).expect("no violation");
        }
        assert_eq!(last, Step::End, "data of ABORT are ignored");
        assert_eq!(said, bytes("0003e889045565a9 00000002 00000001 00000000"));
    }
}

#[test]
fn list_names_and_describes_all() {
    let mut talk = Talk::begin(FIXED);
    talk.answers(
        "'IHAVEOPT' 00000003 00000000",
        "0003e889045565a9 00000003 00000002 0000000e 00000004 'disk' 'a disk'
         0003e889045565a9 00000003 00000002 00000007 00000003 'old'
         0003e889045565a9 00000003 00000001 00000000",
    );
    talk.refuses("'IHAVEOPT' 00000003 00000001 00", 3);
}

#[test]
fn a_client_that_never_stops_sending_options_is_disconnected() {
    let mut talk = Talk::begin(FIXED);
    let answered = (0..1_000_000)
        .take_while(|_| talk.hear("'IHAVEOPT' 0000dead 00000000") == Ok(None))
        .count();
    assert!(
        (4_000..100_000).contains(&answered),
        "{answered}: lists of thousands of exports are asked about"
    );
    assert_eq!(
        talk.hear("'IHAVEOPT' 0000dead 00000000"),
        Err(Violation::TooManyOptions)
    );
}

#[test]
fn options_that_are_not_served_are_told_so() {
    let mut talk = Talk::begin(FIXED);
    for unknown in [
        "00000000", "00000004", "0000000c", "7fffffff", "ffffffff", "80000001",
    ] {
        talk.refuses(&format!("'IHAVEOPT' {unknown} 00000000"), 1);
        talk.refuses(&format!("'IHAVEOPT' {unknown} 00000005 0102030405"), 1);
    }
    talk.refuses("'IHAVEOPT' 00000005 00000000", 2); // STARTTLS, section "NOTLS mode"
}

#[test]
fn go_tells_what_info_tells() {
    let answer = |option: &str, name: &str, description: &str| {
        format!(
            "0003e889045565a9 {option} 00000003 0000000c 0000 0000000004000000 0d6d {name} {description}
             0003e889045565a9 {option} 00000003 0000000e 0003 00000001 00001000 02000000
             0003e889045565a9 {option} 00000001 00000000"
        )
    };
    let name = |option: &str| format!("0003e889045565a9 {option} 00000003 00000006 0001 'disk'");
    let description =
        |option: &str| format!("0003e889045565a9 {option} 00000003 00000008 0002 'a disk'");
    // Without requests; with all and unknown ones; for the default export, whose name is reported.
    let plain = "0000000a 00000004 'disk' 0000";
    let all = "00000014 00000004 'disk' 0005 0003 0001 0002 7fff 0000";
    let default = "00000006 00000000 0000";
    for (data, with_name, with_description) in [
        (plain, false, false),
        (all, true, true),
        (default, true, false),
    ] {
        for (option, ends) in [("00000006", false), ("00000007", true)] {
            let mut talk = Talk::begin("00000001");
            let session = talk
                .hear(&format!("'IHAVEOPT' {option} {data}"))
                .expect("an export");
            let name = if with_name {
                name(option)
            } else {
                String::new()
            };
            let description = if with_description {
                description(option)
            } else {
                String::new()
            };
            let wanted = bytes(&answer(option, &name, &description));
            assert_eq!(
                talk.said.escape_ascii().to_string(),
                wanted.escape_ascii().to_string()
            );
            assert_eq!(session.is_some(), ends);
        }
    }
}

#[test]
fn info_with_wrong_lengths_is_invalid_and_of_nothing_unknown() {
    let mut talk = Talk::begin(FIXED);
    for option in ["00000006", "00000007"] {
        for data in [
            "00000000",
            "00000003 000000",
            "00000004 00000000",
            "00000005 00000000 00",
            "00000006 00000001 0000", // a name that is longer than the data
            "00000006 ffffffff 0000", // and much longer
            "00000008 00000000 0002 0003", // fewer requests than announced
            "00000008 00000000 0000 0003", // more requests than announced
            "00000008 00000002 fffe 0000", // not UTF-8
        ] {
            talk.refuses(&format!("'IHAVEOPT' {option} {data}"), 3);
        }
        talk.refuses(
            &format!("'IHAVEOPT' {option} 0000000d 00000007 'nothing' 0000"),
            6,
        );
        let long = format!("00001007 00001001 {} 0000", "61".repeat(4097));
        talk.refuses(&format!("'IHAVEOPT' {option} {long}"), 3);
    }
    assert!(
        talk.hear("'IHAVEOPT' 00000007 0000000a 00000004 'disk' 0000")
            .expect("an export")
            .is_some()
    );
}

#[test]
fn an_option_that_is_too_long_is_dropped_and_refused() {
    let mut talk = Talk::begin(FIXED);
    for option in [
        "00000003", "00000006", "00000007", "00000008", "0000000a", "7fffffff",
    ] {
        talk.refuses(
            &format!("'IHAVEOPT' {option} 00010001 {}", "49".repeat(65_537)),
            9,
        );
    }
    talk.answers(
        "'IHAVEOPT' 00000008 00000000",
        "0003e889045565a9 00000008 00000001 00000000",
    );
}

#[test]
fn structured_replies_and_extended_headers_have_no_data() {
    for (option, form) in [
        ("00000008", ReplyForm::Structured),
        ("0000000b", ReplyForm::Extended),
    ] {
        let mut talk = Talk::begin(FIXED);
        talk.refuses(&format!("'IHAVEOPT' {option} 00000004 00000001"), 3);
        talk.answers(
            &format!("'IHAVEOPT' {option} 00000000"),
            &format!("0003e889045565a9 {option} 00000001 00000000"),
        );
        let session = talk.hear("'IHAVEOPT' 00000007 0000000a 00000004 'disk' 0000");
        assert_eq!(session.expect("an export").expect("a session").form, form);
    }
    // Extended headers include structured replies, and remain in use.
    let mut talk = Talk::begin(FIXED);
    talk.answers(
        "'IHAVEOPT' 00000008 00000000",
        "0003e889045565a9 00000008 00000001 00000000",
    );
    talk.answers(
        "'IHAVEOPT' 0000000b 00000000",
        "0003e889045565a9 0000000b 00000001 00000000",
    );
    talk.refuses("'IHAVEOPT' 00000008 00000000", 10);
    let session = talk.hear("'IHAVEOPT' 00000007 0000000a 00000004 'disk' 0000");
    assert_eq!(
        session.expect("an export").expect("a session").form,
        ReplyForm::Extended
    );
}

#[test]
fn metadata_contexts_are_listed_without_a_number() {
    let mut talk = Talk::begin(FIXED);
    let found = "0003e889045565a9 00000009 00000004 00000013 00000000 'base:allocation'
                 0003e889045565a9 00000009 00000001 00000000";
    let none = "0003e889045565a9 00000009 00000001 00000000";
    // LIST may come before structured replies.
    talk.answers(
        "'IHAVEOPT' 00000009 0000000c 00000004 'disk' 00000000",
        found,
    );
    talk.answers(
        "'IHAVEOPT' 00000009 00000015 00000004 'disk' 00000001 00000005 'base:'",
        found,
    );
    talk.answers(
        "'IHAVEOPT' 00000009 0000001f 00000004 'disk' 00000001 0000000f 'base:allocation'",
        found,
    );
    let twice = "'IHAVEOPT' 00000009 00000028 00000004 'disk' 00000002 00000005 'base:' 0000000f 'base:allocation'";
    talk.answers(twice, found);
    // Other leaves and other namespaces are skipped.
    talk.answers(
        "'IHAVEOPT' 00000009 0000001a 00000004 'disk' 00000001 0000000a 'base:other'",
        none,
    );
    talk.answers(
        "'IHAVEOPT' 00000009 00000017 00000004 'disk' 00000001 00000007 'x-y:abc'",
        none,
    );
    talk.refuses(
        "'IHAVEOPT' 00000009 0000000f 00000007 'nothing' 00000000",
        6,
    );
    for malformed in [
        "00000004 00000000",
        "0000000c 00000004 'disk' 00000001",
        "0000000c 00000004 'disk' ffffffff",
        "0000000d 00000004 'disk' 00000000 00",
        "00000011 00000004 'disk' 00000001 00000002 'a'",
    ] {
        talk.refuses(&format!("'IHAVEOPT' 00000009 {malformed}"), 3);
    }
}

#[test]
fn a_metadata_context_is_chosen_for_the_export_it_was_chosen_for() {
    const CHOOSE: &str =
        "'IHAVEOPT' 0000000a 0000001f 00000004 'disk' 00000001 0000000f 'base:allocation'";
    const CHOSEN: &str = "0003e889045565a9 0000000a 00000004 00000013 00000001 'base:allocation'
                          0003e889045565a9 0000000a 00000001 00000000";
    const NONE: &str = "0003e889045565a9 0000000a 00000001 00000000";
    const GO: &str = "'IHAVEOPT' 00000007 0000000a 00000004 'disk' 0000";
    let structured = || {
        let mut talk = Talk::begin(FIXED);
        talk.answers(
            "'IHAVEOPT' 00000008 00000000",
            "0003e889045565a9 00000008 00000001 00000000",
        );
        talk
    };
    let chosen = |mut talk: Talk, go: &str| {
        talk.hear(go)
            .expect("an export")
            .expect("a session")
            .allocation
            .is_some()
    };
    Talk::begin(FIXED).refuses(CHOOSE, 3); // structured replies must be negotiated first
    let mut talk = structured();
    talk.answers(CHOOSE, CHOSEN);
    assert!(chosen(talk, GO));
    let mut talk = structured();
    talk.answers(CHOOSE, CHOSEN);
    assert!(
        !chosen(talk, "'IHAVEOPT' 00000007 00000009 00000003 'old' 0000"),
        "it was for another export"
    );
    // An empty list selects nothing, and neither does a wildcard.
    for (length, queries) in [("0c", "00000000"), ("15", "00000001 00000005 'base:'")] {
        let mut talk = structured();
        talk.answers(CHOOSE, CHOSEN);
        talk.answers(
            &format!("'IHAVEOPT' 0000000a 000000{length} 00000004 'disk' {queries}"),
            NONE,
        );
        assert!(!chosen(talk, GO), "the last one counts");
    }
    // A failed option also discards the selection: for an unknown export, malformed, or too long.
    let long = format!("'IHAVEOPT' 0000000a 00010001 {}", "00".repeat(65_537));
    let unknown = "'IHAVEOPT' 0000000a 0000000f 00000007 'nothing' 00000000";
    for (failing, code) in [
        (unknown, 6),
        ("'IHAVEOPT' 0000000a 00000001 00", 3),
        (&long, 9),
    ] {
        let mut talk = structured();
        talk.answers(CHOOSE, CHOSEN);
        talk.refuses(failing, code);
        assert!(
            !chosen(talk, GO),
            "the last one counts, also when it fails ({code})"
        );
    }
}

proptest! {
    /// For any input in any pieces, the number of wanted bytes is bounded and not zero, and replies are bounded.
    #[test]
    fn nothing_panics_and_everything_is_bounded(
        flags in 0_u32..4,
        options in proptest::collection::vec((0_u32..14, data()), 0..12),
        raw in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut all = flags.to_be_bytes().to_vec();
        for (option, data) in options {
            all.extend_from_slice(b"IHAVEOPT");
            all.extend_from_slice(&option.to_be_bytes());
            all.extend_from_slice(&(data.len() as u32).to_be_bytes());
            all.extend_from_slice(&data);
        }
        all.extend_from_slice(&raw);
        let (mut machine, mut rest) = (Handshake::default(), &all[..]);
        loop {
            let wanted = machine.wanted();
            prop_assert!((1..=64 << 10).contains(&wanted), "{wanted}");
            let Some((now, later)) = rest.split_at_checked(wanted) else { break };
            rest = later;
            let mut out = Vec::new();
            let step = machine.take(now, &Disks, &mut out);
            prop_assert!(out.len() < 4096, "{}", out.len());
            if !matches!(step, Ok(Step::Continue)) {
                break;
            }
        }
    }
}

/// Data of options: valid, nearly valid, or invalid; sometimes longer than the limit.
fn data() -> impl Strategy<Value = Vec<u8>> {
    let text = || {
        prop_oneof![
            Just("disk"),
            Just("old"),
            Just(""),
            Just("base:allocation"),
            Just("base:"),
            Just("no")
        ]
    };
    let string = |text: &str| [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat();
    let queries = (text(), 0_u32..5, proptest::collection::vec(text(), 0..4)).prop_map(
        move |(name, count, texts)| {
            let texts = texts.iter().flat_map(|text| string(text));
            string(name)
                .into_iter()
                .chain(count.to_be_bytes())
                .chain(texts)
                .collect::<Vec<u8>>()
        },
    );
    let requests = (text(), 0_u16..4, proptest::collection::vec(0_u16..6, 0..4)).prop_map(
        move |(name, count, all)| {
            let all = all.into_iter().flat_map(u16::to_be_bytes);
            string(name)
                .into_iter()
                .chain(count.to_be_bytes())
                .chain(all)
                .collect::<Vec<u8>>()
        },
    );
    prop_oneof![
        4 => queries,
        4 => requests,
        2 => Just(Vec::new()),
        2 => proptest::collection::vec(any::<u8>(), 0..40),
        1 => (65_530_usize..100_000).prop_map(|length| vec![b'x'; length]),
    ]
}
