//! Access control: CHAP, initiator names, and LUNs that only some initiators see.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use iscsi::chap::{Algorithm, ChapClaim, Credentials, Secret};
use iscsi::login::{InitiatorConfig, InitiatorEvent, LoginFailure};
use iscsi::name::Name;
use iscsi::pdu::{Cid, LoginRequest, LoginResponse, LoginStatus, Sn, Stage, Tsih};

use crate::capture::watched;
use crate::peer::{BLOCK, Peer, initiator};
use crate::program::{LINERATE, installed, run, run_command, says};
use crate::server::{Server, ask};
use crate::sessions::sessions;
use crate::wire::{Heard, NoLogin, PATIENCE, Wire};

/// The status and the event of a failed login.
#[track_caller]
pub(crate) fn refusal(outcome: Result<impl std::fmt::Debug, NoLogin>) -> LoginStatus {
    let Err(NoLogin::Told(event)) = outcome else {
        panic!("{outcome:?}")
    };
    match *event {
        InitiatorEvent::Failed(LoginFailure::Refused(status)) => status,
        InitiatorEvent::Failed(LoginFailure::Unchecked) => LoginStatus::ServiceUnavailable,
        event => panic!("{event:?}"),
    }
}

/// The CHAP claim of an initiator that authenticates as `user`.
pub(crate) fn claim(user: &str, secret: &str) -> Option<ChapClaim> {
    let initiator = Credentials {
        name: user.to_owned(),
        secret: Secret::new(secret.as_bytes()),
    };
    Some(ChapClaim {
        algorithms: vec![Algorithm::Sha256],
        initiator,
        target: None,
    })
}

const LOCKED: &str = r#"
[volume.disk]
spec = "ram:16MiB"
[[target]]
name = "iqn.2026-01.io.linerate:disk"
lun = [{ lun = 0, volume = "disk" }]
[target.chap]
algorithms = ["md5"] # the one that libiscsi has
[[target.chap.account]]
user = "alice"
secret = "correct-horse-battery"
"#;

#[test]
fn chap_lets_in_who_knows_the_secret() {
    needs!(installed(&["iscsi-inq", "qemu-img"]));
    let server = or_skip!(Server::configured(LOCKED));
    let with = |account: &str| {
        server
            .url("disk")
            .replace("iscsi://", &format!("iscsi://{account}"))
    };
    watched(&server, || {
        let url = with("alice%correct-horse-battery@");
        assert!(ask("iscsi-inq", &[], &url).contains("DIRECT_ACCESS"));
        run("qemu-img", &["info", &url]).expect_success();
        for stranger in [
            "",
            "alice%wrong-horse-battery@",
            "bob%correct-horse-battery@",
        ] {
            let said = run("iscsi-inq", &[with(stranger)]).expect_failure();
            assert!(
                said.contains("Login Failed") || said.contains("login") || said.contains("auth"),
                "{said}"
            );
        }
    });
}

const MASKED: &str = r#"
[volume.shared]
spec = "ram:16MiB"
[volume.private]
spec = "ram:16MiB"
[[target]]
name = "iqn.2026-01.io.linerate:disk"
initiators = ["iqn.2026-01.com.example:alice", "iqn.2026-01.com.example:bob"]
[[target.lun]]
lun = 0
volume = "shared"
[[target.lun]]
lun = 1
volume = "private"
initiators = ["iqn.2026-01.com.example:alice"]
"#;

#[test]
fn initiators_see_their_targets_and_their_luns() {
    needs!(installed(&["iscsi-ls"]));
    let server = or_skip!(Server::configured(MASKED));
    let portal = format!("iscsi://{}", server.portal());
    let seen_by = |name: &str| {
        let name = format!("iqn.2026-01.com.example:{name}");
        run("iscsi-ls", &["-s", "-i", &name, &portal]).said
    };
    watched(&server, || {
        let (alice, bob, eve) = (seen_by("alice"), seen_by("bob"), seen_by("eve"));
        says(&alice, &["Lun:0", "Lun:1"]);
        assert!(bob.contains("Lun:0") && !bob.contains("Lun:1"), "{bob}");
        assert!(!eve.contains("Target:"), "{eve}"); // a target that the user may not use is not listed
    });
}

#[test]
fn who_is_not_on_the_list_is_not_let_in() {
    needs!(installed(&["iscsi-inq"]));
    let server = or_skip!(Server::configured(MASKED));
    watched(&server, || {
        run(
            "iscsi-inq",
            &["-i", "iqn.2026-01.com.example:eve", &server.url("disk")],
        )
        .expect_failure();
        run(
            "iscsi-inq",
            &["-i", "iqn.2026-01.com.example:bob", &server.url("disk")],
        )
        .expect_success();
    });
}

const GUARDED_DISCOVERY: &str = r#"
[volume.disk]
spec = "ram:16MiB"
[[target]]
name = "iqn.2026-01.io.linerate:disk"
lun = [{ lun = 0, volume = "disk" }]
[discovery.chap]
[[discovery.chap.account]]
user = "alice"
secret = "correct-horse-battery"
"#;

/// The key has no meaning in a discovery session (RFC 7143 section 13.4), so it must not affect its
/// authentication.
#[test]
fn a_discovery_login_that_names_an_open_target_still_needs_the_secret_of_discovery() {
    let server = or_skip!(Server::configured(GUARDED_DISCOVERY));
    let name = Name::new(&server.target_name("disk")).expect("an iSCSI name");
    let naming_it = || InitiatorConfig {
        target_name: Some(name.clone()),
        ..initiator(None, 1)
    };
    assert_eq!(
        refusal(Peer::log_in(&server, initiator(None, 1))),
        LoginStatus::AuthenticationFailure
    );
    assert_eq!(
        refusal(Peer::log_in(&server, naming_it())),
        LoginStatus::AuthenticationFailure
    );
    let proved = InitiatorConfig {
        chap: claim("alice", "correct-horse-battery"),
        ..naming_it()
    };
    let mut alice = Peer::log_in(&server, proved).expect("a discovery session");
    assert!(alice.targets("All").contains(name.as_str()));
    Peer::attach(&server, "disk", 1); // the target is still open to all
}

/// Discovery sessions have one connection (RFC 7143 section 13.2) and no nexus. A discovery login without
/// authentication must not become part of a session that requires it.
#[test]
fn a_discovery_login_does_not_join_a_session() {
    let server = or_skip!(Server::configured(&LOCKED.replace("md5", "sha256")));
    let config = initiator(Some(&server.target_name("disk")), 1);
    let proved = InitiatorConfig {
        chap: claim("alice", "correct-horse-battery"),
        ..config.clone()
    };
    let mut alice = Peer::log_in(&server, proved).expect("a session").ready();
    let text = format!(
        "InitiatorName={}\0TargetName={}\0SessionType=Discovery\0",
        config.initiator_name,
        server.target_name("disk")
    );
    let straight_in = LoginRequest {
        continues: false,
        stage: Stage::OperationalNegotiation,
        transit_to: Some(Stage::FullFeature),
        version_max: 0,
        version_min: 0,
        isid: config.isid,
        tsih: alice.attached.tsih,
        itt: config.itt,
        cid: Cid(1),
        cmd_sn: config.cmd_sn,
        exp_stat_sn: Sn(0),
        data_segment_length: text.len() as u32,
    };
    let mut stranger = Wire::connect(&server.portal());
    stranger
        .send(&straight_in.emit(), text.as_bytes())
        .expect("a connection that is open");
    let Heard::Pdu(bhs, _) = stranger.hear(PATIENCE) else {
        panic!("closed without a status")
    };
    let status = LoginResponse::parse(&bhs).expect("a login response").status;
    assert_eq!(status, LoginStatus::SessionDoesNotExist);
    alice.write(0, &[1; BLOCK]);
}

/// Two users, each of whom may use any of these host names.
const TWO_USERS: &str = r#"
[volume.disk]
spec = "ram:16MiB"
[[target]]
name = "iqn.2026-01.io.linerate:disk"
lun = [{ lun = 0, volume = "disk" }]
[target.chap]
[[target.chap.account]]
user = "alice"
secret = "correct-horse-battery"
initiators = ["iqn.2026-01.com.example:peer"]
[[target.chap.account]]
user = "bob"
secret = "staple-of-his-own"
initiators = ["iqn.2026-01.com.example:*"]
"#;

fn alice(server: &Server) -> InitiatorConfig {
    let config = initiator(Some(&server.target_name("disk")), 1);
    InitiatorConfig {
        chap: claim("alice", "correct-horse-battery"),
        ..config
    }
}

fn bob(server: &Server) -> InitiatorConfig {
    InitiatorConfig {
        chap: claim("bob", "staple-of-his-own"),
        ..alice(server)
    }
}

/// An I_T nexus is named by values that any host can send (RFC 7143 section 4.4.2); the owner of a session is
/// the authenticated user.
#[test]
fn a_user_does_not_take_over_the_session_of_another() {
    let server = or_skip!(Server::configured(TWO_USERS));
    let mut hers = Peer::log_in(&server, alice(&server))
        .expect("a session")
        .ready();
    assert_eq!(
        refusal(Peer::log_in(&server, bob(&server))),
        LoginStatus::AuthorizationFailure
    );
    hers.write(0, &[1; BLOCK]);
    let mut again = Peer::log_in(&server, alice(&server))
        .expect("her own may be reinstated")
        .ready();
    assert_eq!(again.read(0, 1), [1; BLOCK]);
}

#[test]
fn a_user_does_not_join_the_session_of_another() {
    let server = or_skip!(Server::configured(TWO_USERS));
    let mut hers = Peer::log_in(&server, alice(&server))
        .expect("a session")
        .ready();
    let joining = |config: InitiatorConfig| InitiatorConfig {
        tsih: hers.attached.tsih,
        cid: Cid(1),
        session: Some(hers.attached.parameters.clone()),
        ..config
    };
    let (his, her_own) = (joining(bob(&server)), joining(alice(&server)));
    assert_eq!(
        refusal(Wire::connect(&server.portal()).log_in(his)),
        LoginStatus::SessionDoesNotExist
    );
    Wire::connect(&server.portal())
        .log_in(her_own)
        .expect("a further connection");
    hers.write(0, &[1; BLOCK]);
}

/// A user's LUNs and reservations belong to an initiator name, which must not be usable with another user's
/// secret.
#[test]
fn a_user_comes_only_under_the_initiator_names_of_its_account() {
    let server = or_skip!(Server::configured(TWO_USERS));
    let named = |config: InitiatorConfig, name: &str| InitiatorConfig {
        initiator_name: Name::new(name).expect("an iSCSI name"),
        ..config
    };
    let other = "iqn.2026-01.com.example:other";
    let refused = Peer::log_in(&server, named(alice(&server), other));
    assert_eq!(refusal(refused), LoginStatus::AuthorizationFailure);
    let _his =
        Peer::log_in(&server, named(bob(&server), other)).expect("his account says that he may");
    let _hers = Peer::log_in(&server, alice(&server)).expect("her own name");
    let seen = sessions(&server);
    let user_of = |name: &str| {
        seen.iter()
            .find(|session| session["initiator"] == name)
            .map(|session| &session["user"])
    };
    assert_eq!(
        user_of(other).and_then(|user| user.as_str()),
        Some("bob"),
        "{seen:?}"
    );
}

/// The response to the first request of a login that names this session, before any authentication.
fn first_answer(server: &Server, tsih: Tsih) -> (LoginStatus, Vec<u8>) {
    let config = alice(server);
    let target = server.target_name("disk");
    let text = format!(
        "InitiatorName={}\0TargetName={target}\0AuthMethod=CHAP\0",
        config.initiator_name
    );
    let request = LoginRequest {
        continues: false,
        stage: Stage::SecurityNegotiation,
        transit_to: None,
        version_max: 0,
        version_min: 0,
        isid: config.isid,
        tsih,
        itt: config.itt,
        cid: Cid(1),
        cmd_sn: config.cmd_sn,
        exp_stat_sn: Sn(0),
        data_segment_length: text.len() as u32,
    };
    let mut stranger = Wire::connect(&server.portal());
    stranger
        .send(&request.emit(), text.as_bytes())
        .expect("a connection that is open");
    let Heard::Pdu(bhs, text) = stranger.hear(PATIENCE) else {
        panic!("closed without a status")
    };
    (
        LoginResponse::parse(&bhs).expect("a login response").status,
        text,
    )
}

#[test]
fn whether_a_session_exists_is_told_only_to_who_has_proved_to_be_its_user() {
    let server = or_skip!(Server::configured(TWO_USERS));
    let hers = Peer::log_in(&server, alice(&server)).expect("a session");
    let (there, elsewhere) = (hers.attached.tsih, Tsih(hers.attached.tsih.0 ^ 0x0f0f));
    let answer = first_answer(&server, there);
    assert_eq!(answer.0, LoginStatus::Success);
    assert_eq!(first_answer(&server, elsewhere), answer);
    let joining = InitiatorConfig {
        tsih: elsewhere,
        cid: Cid(1),
        session: Some(hers.attached.parameters.clone()),
        ..alice(&server)
    };
    assert_eq!(
        refusal(Wire::connect(&server.portal()).log_in(joining)),
        LoginStatus::SessionDoesNotExist
    );
}

#[test]
fn guesses_at_a_secret_are_put_off_and_the_user_comes_in_from_elsewhere() {
    let server = or_skip!(Server::configured(TWO_USERS));
    // After these logins, no further login from this address is logged for a while.
    for _ in 0..5 {
        let nowhere = initiator(Some(&server.target_name("nowhere")), 1);
        assert_eq!(
            refusal(Peer::log_in(&server, nowhere)),
            LoginStatus::NotFound
        );
    }
    let guess = || {
        let config = InitiatorConfig {
            chap: claim("alice", "some-other-secret"),
            ..alice(&server)
        };
        refusal(Peer::log_in(&server, config))
    };
    let answers: Vec<LoginStatus> = (0..30).map(|_| guess()).collect();
    let looked_at = answers
        .iter()
        .filter(|status| **status == LoginStatus::AuthenticationFailure)
        .count();
    let put_off = answers
        .iter()
        .filter(|status| **status == LoginStatus::ServiceUnavailable)
        .count();
    assert!(
        put_off > 0 && looked_at + put_off == answers.len(),
        "{answers:?}"
    );
    assert_eq!(answers[0], LoginStatus::AuthenticationFailure);
    // The lockout is logged once, even if lines about these logins were suppressed.
    let lockout = line_with(&server, "locked out after wrong secrets");
    says(&lockout, &["seconds=1", "user=\"alice\""]);
    assert_eq!(server.log().matches("locked out").count(), 1);
    // The right secret from another address, and another user from this address, are still accepted.
    let url = format!(
        "{}?source=127.0.0.2&initiator=iqn.2026-01.com.example:peer",
        server.url("disk")
    );
    let mut elsewhere = Command::new(LINERATE);
    elsewhere.args(["info", &url.replace("iscsi://", "iscsi://alice@")]);
    run_command(elsewhere.env("LINERATE_SECRET", "correct-horse-battery")).expect_success();
    let his = InitiatorConfig {
        isid: initiator(None, 2).isid,
        ..bob(&server)
    }; // hers would wait until the old session ends
    Peer::log_in(&server, his).expect("his secret");
    // The right secret from this address is accepted later: deferred attempts are not counted.
    let until = Instant::now() + 4 * PATIENCE;
    while let Err(refused) = Peer::log_in(&server, alice(&server)) {
        assert_eq!(
            refusal(Err::<(), _>(refused)),
            LoginStatus::ServiceUnavailable
        );
        assert!(Instant::now() < until, "still put off");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Waits for a line with this text in a server's log, and returns the first one.
fn line_with(server: &Server, text: &str) -> String {
    let until = Instant::now() + PATIENCE;
    loop {
        let log = server.log();
        if let Some(line) = log.lines().find(|line| line.contains(text)) {
            return line.to_owned();
        }
        assert!(Instant::now() < until, "no line with {text}:\n{log}");
        std::thread::sleep(Duration::from_millis(10)); // polling for another process
    }
}

#[test]
fn an_initiator_whose_name_has_no_standard_form_logs_in_with_a_warning() {
    let server = Server::serving(&["disk=ram:1MiB"]);
    needs!(server.is_ours());
    let name = Name::to_send("xxxx-client.000200000318").expect("a name");
    let config = InitiatorConfig {
        initiator_name: name,
        ..initiator(Some(&server.target_name("disk")), 1)
    };
    Peer::log_in(&server, config).expect("a session");
    let line = line_with(&server, "does not have the standard form");
    says(&line, &["initiator=\"xxxx-client.000200000318\""]);
}

/// Regression: the server removed all white space after a secret, the client removed one line end, and the
/// environment kept everything, so a secret file did not match itself.
#[test]
fn one_secret_file_is_right_at_both_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("secret");
    std::fs::write(&file, "correct horse battery \r\n\n").expect("a file");
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("a file of ours");
    let file = file.display().to_string();
    let text = LOCKED.replace("md5", "sha256");
    let text = text.replace(
        "secret = \"correct-horse-battery\"",
        &format!("secret-file = {file:?}"),
    );
    let server = or_skip!(Server::configured(&text));
    let info = |query: &str, variable: &str| {
        let mut command = Command::new(LINERATE);
        command.args(["info", &format!("{}?user=alice{query}", server.url("disk"))]);
        run_command(command.env("LINERATE_SECRET", variable))
    };
    info(&format!("&secret-file={file}"), "").expect_success();
    info("", "correct horse battery \n").expect_success();
    info("", "correct horse battery").expect_failure();
}

#[test]
fn a_refused_login_is_logged_with_who_and_what_and_why() {
    let server = or_skip!(Server::configured(
        &TWO_USERS.replace("[target.chap]", "networks = [\"127.0.0.0/8\"]")
    ));
    let named = |config: InitiatorConfig, name: &str| InitiatorConfig {
        initiator_name: Name::new(name).expect("an iSCSI name"),
        ..config
    };
    let guess = InitiatorConfig {
        chap: claim("alice", "some-other-secret"),
        ..alice(&server)
    };
    let other = named(alice(&server), "iqn.2026-01.com.example:other");
    let elsewhere = Some(Name::new("iqn.2026-01.io.linerate:dusk").expect("an iSCSI name"));
    let mistyped = InitiatorConfig {
        target_name: elsewhere,
        chap: None,
        ..alice(&server)
    };
    for config in [guess, other, mistyped] {
        refusal(Peer::log_in(&server, config));
    }
    for (why, fields) in [
        (
            "wrong secret",
            &[
                "initiator=\"iqn.2026-01.com.example:peer\"",
                "target=\"iqn.2026-01.io.linerate:disk\"",
                "user=\"alice\"",
            ][..],
        ),
        (
            "initiator not listed for the account",
            &[
                "initiator=\"iqn.2026-01.com.example:other\"",
                "target=\"iqn.2026-01.io.linerate:disk\"",
                "user=\"alice\"",
            ],
        ),
        (
            "no such target",
            &["target=\"iqn.2026-01.io.linerate:dusk\""],
        ),
    ] {
        let line = line_with(&server, why);
        let expected = fields.iter().chain(&["login refused", "peer=127.0.0.1:"]);
        let missing: Vec<_> = expected.filter(|field| !line.contains(**field)).collect();
        assert!(missing.is_empty(), "{missing:?} not in {line}");
    }
}

/// Logs are read in terminals and by programs: text from an unauthenticated peer must not affect either.
#[test]
fn what_a_stranger_says_of_itself_is_logged_escaped_and_cut() {
    let server = or_skip!(Server::configured(&LOCKED.replace("md5", "sha256")));
    let user = format!(
        "joe\u{1b}[2J\" why=\"let in\"\n\u{202e}{}",
        "x".repeat(5000)
    );
    let config = InitiatorConfig {
        chap: claim(&user, "some-other-secret"),
        ..alice(&server)
    };
    assert_eq!(
        refusal(Peer::log_in(&server, config)),
        LoginStatus::AuthenticationFailure
    );
    let line = line_with(&server, "user=\"joe");
    says(&line, &[r#"joe\u{1b}[2J\" why=\"let in\"\n\u{202e}xxx"#]);
    assert!(
        line.chars().count() <= 600
            && line.contains("why=\"unknown account\"")
            && line.chars().all(|c| !c.is_control()),
        "{line}"
    );
}

#[test]
fn a_stranger_does_not_fill_the_log() {
    const LOGINS: u64 = 100;
    let server = or_skip!(Server::configured(LOCKED));
    let begin = Instant::now();
    for _ in 0..LOGINS {
        refusal(Peer::log_in(
            &server,
            initiator(Some(&server.target_name("disk")), 1),
        ));
    }
    let windows = begin.elapsed().as_secs() / 10 + 2; // of ten seconds, including partial ones
    let written = || server.log().matches("login refused").count() as u64;
    assert!(
        written() <= 5 * windows,
        "{} lines in {windows} times",
        written()
    );
    let told = || {
        let log = server.log();
        let counts = log
            .lines()
            .filter(|line| line.contains("were suppressed"))
            .filter_map(|line| line.split("lines=").nth(1));
        counts
            .filter_map(|count| count.trim().parse::<u64>().ok())
            .sum::<u64>()
    };
    let until = Instant::now() + 3 * PATIENCE;
    while written() + told() < LOGINS {
        assert!(
            Instant::now() < until,
            "{} written and {} left out of {LOGINS}",
            written(),
            told()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(written() + told(), LOGINS);
}
