//! The audit log: logins and refusals with their causes, and changes with their authors.

use std::process::{Command, id};

use iscsi::login::InitiatorConfig;
use iscsi::name::Name;
use iscsi::pdu::LoginStatus;

use crate::access::{claim, refusal};
use crate::peer::{Peer, initiator};
use crate::program::{LINERATE, linerate, run_command, until};
use crate::server::{Server, free_port, serve};

const TEXT: &str = r#"
[log]
filter = "warn,audit=info,daemon=info"
[[portal]]
listen = "127.0.0.1:{port}"
[volume.disk]
spec = "ram:1MiB"
[[target]]
name = "iqn.2026-01.io.linerate:disk"
lun = [{ lun = 0, volume = "disk" }]
[[target.chap.account]]
user = "alice"
secret = "correct-horse-battery"
[[target]]
name = "iqn.2026-01.io.linerate:closed"
initiators = ["iqn.2026-01.com.example:nobody"]
lun = [{ lun = 0, volume = "disk" }]
[[target]]
name = "iqn.2026-01.io.linerate:told"
initiators = ["iqn.2026-01.com.example:nobody"]
hidden = false
lun = [{ lun = 0, volume = "disk" }]
[[target]]
name = "iqn.2026-01.io.linerate:afar"
networks = ["192.0.2.0/24"]
hidden = false
lun = [{ lun = 0, volume = "disk" }]
"#;

/// Waits for a log line that contains all of these parts.
fn await_line(server: &Server, parts: &[&str]) {
    let has = |line: &str| parts.iter().all(|part| line.contains(part));
    until(&format!("a line with {parts:?}"), || {
        server.log().lines().any(has)
    });
}

#[test]
fn the_audit_tells_who_came_in_who_did_not_and_why_and_who_changed_what() {
    let mut server = or_skip!(Server::configured(TEXT));
    let at = |name: &str, user: Option<(&str, &str)>| InitiatorConfig {
        chap: user.and_then(|(user, secret)| claim(user, secret)),
        ..initiator(Some(&server.target_name(name)), 1)
    };
    let refused = |name, user| refusal(Peer::log_in(&server, at(name, user)));
    let causes = [
        (
            refused("disk", Some(("alice", "wrong-horse-battery"))),
            LoginStatus::AuthenticationFailure,
            "wrong secret",
        ),
        (
            refused("disk", Some(("bob", "wrong-horse-battery"))),
            LoginStatus::AuthenticationFailure,
            "unknown account",
        ),
        (
            refused("nowhere", None),
            LoginStatus::NotFound,
            "no such target",
        ),
        (
            refused("closed", None),
            LoginStatus::NotFound,
            "initiator not listed (initiators)",
        ),
        (
            refused("told", None),
            LoginStatus::AuthorizationFailure,
            "initiator not listed (initiators)",
        ),
    ];
    for (status, expected, why) in causes {
        assert_eq!(status, expected, "{why}");
        await_line(
            &server,
            &[
                "WARN audit: login refused why=",
                why,
                "peer=127.0.0.1:",
                "initiator=\"iqn.",
            ],
        );
    }
    // From another address, because each address has five lines in ten seconds.
    let away = format!("{}?source=127.0.0.2", server.url("afar"));
    let said = linerate(&["info", &away]).expect_failure();
    assert!(
        said.contains("0202") || said.to_lowercase().contains("authorization"),
        "{said}"
    );
    await_line(
        &server,
        &[
            "login refused",
            "address not listed (networks)",
            "peer=127.0.0.2:",
        ],
    );
    let alice = at("disk", Some(("alice", "correct-horse-battery")));
    let _hers = Peer::log_in(&server, alice.clone())
        .expect("a session")
        .ready();
    await_line(
        &server,
        &["INFO audit: logged in", "user=\"alice\"", "linerate:disk\""],
    );
    let _hers = Peer::log_in(&server, alice).expect("the same nexus, from the same host");
    let replaced = "INFO audit: replaced by another login by=127.0.0.1:";
    await_line(
        &server,
        &[
            replaced,
            "session=",
            "initiator=\"iqn.",
            "user=\"alice\"",
            "linerate:disk\"",
        ],
    );

    let text = TEXT.replace("{port}", &server.port().to_string());
    let added = format!(
        "{text}[volume.more]\nspec = \"ram:2MiB\"\n[[target]]\nname = \"iqn.2026-01.io.linerate:more\"\nlun = [{{ lun = 0, volume = \"more\" }}]\n"
    );
    server.reconfigure(&added);
    server.signal("HUP");
    await_line(
        &server,
        &[
            "INFO audit: changed by=\"SIGHUP\"",
            "+ volume more = ram:2MiB",
        ],
    );
    server.reconfigure("[volume.disk]\nspec = \"rom:1MiB\"\n");
    server.ask(&["server", "reload"]).expect_failure();
    await_line(
        &server,
        &[
            "ERROR audit: configuration not changed by=\"user ",
            ", process ",
            "linerate.toml:2:",
        ],
    );
    let gone = text.replace(
        "iqn.2026-01.io.linerate:disk",
        "iqn.2026-01.io.linerate:disc",
    );
    server.reconfigure(&gone);
    server
        .ask(&["server", "reload", "--force"])
        .expect_success();
    await_line(&server, &["configuration changed", "force=true"]);
    let removed = [
        "INFO audit: changed by=\"user ",
        "removed while in use: iqn.",
        " uses the target iqn.",
    ];
    await_line(&server, &removed);

    server.stop();
    let log = server.log();
    for part in [
        "INFO daemon::start: started version=",
        "serves: target iqn.2026-01.io.linerate:disk",
        "INFO daemon::live: shutting down",
        "INFO daemon::start: ended",
    ] {
        assert!(log.contains(part), "no {part} in {log}");
    }
    assert!(
        !log.contains("horse") && !log.contains("discovery"),
        "{log}"
    );
    let is_cut_within_a_field = |line: &&str| {
        line.strip_suffix('…')
            .is_some_and(|line| !line.ends_with('"'))
    };
    let cut: Vec<&str> = log.lines().filter(is_cut_within_a_field).collect();
    assert!(cut.is_empty(), "{cut:#?}");
}

#[test]
fn a_filter_that_names_nothing_is_refused_with_what_there_is() {
    for (filter, says) in [
        (
            "warn,audti=info",
            "unknown log target `audti`; did you mean `audit`?",
        ),
        (
            "iscsi_server::nowhere=debug",
            "known are `iscsi_server::admission`",
        ),
        ("loudly", "`audit`"),
    ] {
        let ended = linerate(&["--log", filter, "serve", "--check"]);
        assert_eq!(ended.status.code(), Some(2), "{}", ended.said);
        assert!(ended.said.contains(says), "{}", ended.said);
    }
}

/// A user name may be as long as an iSCSI name. The log line must contain the whole name, and little more.
#[test]
fn a_line_has_the_whole_name_of_a_stranger_and_little_more() {
    let server = or_skip!(Server::configured(TEXT));
    let name = format!("iqn.2026-01.com.example:{}", "x".repeat(190));
    let config = InitiatorConfig {
        initiator_name: Name::new(&name).expect("an iSCSI name"),
        ..initiator(Some(&server.target_name("closed")), 1)
    };
    refusal(Peer::log_in(&server, config));
    let named = format!("initiator=\"{name}\"…");
    await_line(
        &server,
        &[
            "login refused why=\"initiator not listed (initiators)\" peer=127.0.0.1:",
            &named,
        ],
    );
    let is_short = |line: &str| line.chars().count() <= 600;
    assert!(server.log().lines().all(is_short), "{}", server.log());
}

#[test]
fn a_second_server_on_one_state_directory_is_refused_with_the_process_of_the_first() {
    let server = or_skip!(Server::configured(TEXT));
    let mut second = Command::new(LINERATE);
    second
        .args("serve --volume other=ram:1MiB --listen 127.0.0.1:0 --state".split(' '))
        .arg(server.state());
    let ended = run_command(second.arg("--control").arg(server.state().join("other")));
    assert_eq!(ended.status.code(), Some(2), "{}", ended.said);
    let process = format!("is in use by another server (process {})", server.pid());
    assert!(
        ended.said.contains(&process) && !ended.said.contains(&format!("process {})", id())),
        "{}",
        ended.said
    );
}

#[test]
fn a_start_that_fails_leaves_no_files_behind() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let other = Server::serving(&["disk=ram:1MiB"]);
    needs!(other.is_ours());
    let (state, image) = (
        folder.path().join("a/state"),
        folder.path().join("disk.img"),
    );
    let volume = |size: &str| vec![format!("disk=file:{}?size={size}", image.display())];
    let left = || {
        std::fs::read_dir(folder.path())
            .expect("it")
            .map(|entry| entry.expect("one").file_name())
            .collect::<Vec<_>>()
    };
    // The address is in use; the second volume does not exist.
    let missing = format!("gone=file:{}", folder.path().join("gone.img").display());
    for (port, volumes) in [
        (other.port(), volume("1MiB")),
        (free_port(), [volume("1MiB"), vec![missing]].concat()),
    ] {
        let ended = run_command(&mut serve(port, &volumes, &state));
        assert_eq!(ended.status.code(), Some(2), "{}", ended.said);
        assert_eq!(left(), [] as [&str; 0], "{}", ended.said);
    }
    // The existing content of the file must be kept.
    std::fs::write(&image, vec![7; 1 << 20]).expect("a file");
    std::fs::create_dir_all(state.join("volumes/disk")).expect("a folder");
    let ended = run_command(&mut serve(other.port(), &volume("1MiB"), &state));
    assert_eq!(ended.status.code(), Some(2), "{}", ended.said);
    assert_eq!(std::fs::read(&image).expect("it"), vec![7; 1 << 20]);
    assert!(state.join("volumes/disk").is_dir());
}
