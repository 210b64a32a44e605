//! Tests that each kind of failure has a separate exit code and one sentence, which contains the target's
//! reason.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use iscsi::pdu::{Bhs, LoginRequest, LoginResponse, LoginStatus, Sn, Stage, TargetNumbers};

use crate::program::{Ended, LINERATE, run_command};
use crate::remote::{GOOD, attached, in_a_world, reserve_out};
use crate::server::{Server, free_port};
use crate::sessions::sessions;

const REFUSED: i32 = 2;
const UNREACHABLE: i32 = 3;
const LOGIN_REFUSED: i32 = 4;
const AUTHENTICATION: i32 = 5;
const NOT_FOUND: i32 = 6;
const RESERVED: i32 = 7;
const WRITE_PROTECTED: i32 = 8;

/// The name of a target that no server has.
const TARGET: &str = "iqn.2026-01.com.example:disk";

/// Queries the readiness of a LUN, which needs no rights, with these secrets in the environment.
fn ready_with(url: &str, secrets: &[(&str, &str)]) -> Ended {
    let mut command = Command::new(LINERATE);
    command
        .env_remove("LINERATE_SECRET")
        .env_remove("LINERATE_TARGET_SECRET");
    command
        .args(["scsi", "ready", url])
        .envs(secrets.iter().copied());
    run_command(&mut command)
}

fn ready(url: &str) -> Ended {
    ready_with(url, &[])
}

/// Checks that a command ended with this exit code and one sentence, which contains these words.
fn expect(ended: Ended, code: i32, words: &str) {
    let Ended { status, said } = ended;
    assert_eq!(status.code(), Some(code), "{said}");
    assert!(said.contains(words), "{said}");
    let sentences = said
        .lines()
        .filter(|line| line.starts_with("linerate: "))
        .count();
    assert_eq!(sentences, 1, "{said}");
}

#[test]
fn a_wrong_url_is_pointed_at() {
    let Ended { status, said } = ready("iscsi://san1:port/iqn.x:y/0");
    assert_eq!(status.code(), Some(REFUSED), "{said}");
    let expected = "\
linerate: the port must be a number from 1 to 65535 (column 13)
  iscsi://san1:port/iqn.x:y/0
              ^
";
    assert_eq!(said, expected);
}

#[test]
fn what_no_storage_or_no_kernel_has_is_refused_with_what_there_is() {
    let linerate = |words: &[&str]| run_command(Command::new(LINERATE).args(words));
    let congestion = format!(
        "iscsi://127.0.0.1:{}/{TARGET}/0?congestion=nope",
        free_port()
    );
    let available = "congestion=nope: unknown TCP congestion control; this machine has ";
    expect(ready(&congestion), REFUSED, available);
    expect(
        linerate(&["info", "ram:1GiB"]),
        REFUSED,
        "`linerate serve --volume disk=ram:1GiB`",
    );
    expect(
        linerate(&["bench", "127.0.0.1:3260"]),
        REFUSED,
        "`linerate discover 127.0.0.1:3260 --luns`",
    );
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("report.html"), "of a bench").expect("a file");
    let out = folder.path().display().to_string();
    let diagnosed = linerate(&["diagnose", &congestion, "--out", &out]);
    expect(diagnosed, REFUSED, "holds a report; name another directory");
}

#[test]
fn nobody_there_is_unreachable() {
    let url = format!("iscsi://127.0.0.1:{}/{TARGET}/0", free_port());
    expect(ready(&url), UNREACHABLE, "Connection refused");
    let mut nowhere = Command::new(LINERATE);
    let nowhere = nowhere.args(["server", "sessions", "--control", "/nowhere/control.sock"]);
    expect(
        run_command(nowhere),
        UNREACHABLE,
        "no server listens at /nowhere/control.sock",
    );
    expect(
        ready(&format!("iscsi://no-such-host.invalid/{TARGET}/0")),
        UNREACHABLE,
        "no-such-host.invalid",
    );
}

#[test]
fn a_target_that_says_nothing_is_unreachable() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("an address");
    expect(
        ready(&format!("iscsi://{address}/{TARGET}/0?login-time=1")),
        UNREACHABLE,
        "timed out",
    );
}

/// A wait before the login timeout is reported to people, but not to programs.
#[test]
fn a_wait_for_a_silent_target_is_told_to_people() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("an address");
    for (urls, key) in [("iscsi", "login-time"), ("nbd", "timeout")] {
        let url = format!("{urls}://{address}?{key}=1h");
        let mut asking = Command::new(LINERATE);
        let mut asking = asking
            .args(["discover", &url])
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary");
        let mut line = String::new();
        let stderr = asking.stderr.take().expect("a pipe");
        BufReader::new(stderr).read_line(&mut line).expect("a line");
        assert!(
            line.contains("waiting for a response from ") && line.contains(&address.to_string()),
            "{line}"
        );
        assert!(line.contains(&format!("for up to 1h ({key})")), "{line}");
        asking.kill().expect("a process");
        asking.wait().expect("its end");
    }
    let url = format!("iscsi://{address}?login-time=3");
    let words = ["discover", &url, "--json"];
    let said = run_command(Command::new(LINERATE).args(words)).said;
    assert!(!said.contains("waiting for"), "{said}");
}

#[test]
fn a_target_that_is_lost_for_good_is_unreachable() {
    expect(
        lost_meanwhile(&["read"], 1),
        UNREACHABLE,
        "the connection to the target is lost",
    );
}

#[test]
fn a_run_in_which_the_target_went_is_made_again_by_who_goes_on() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().display().to_string();
    let lost = lost_meanwhile(
        &["bench", "--out", &out, "--seconds", "3600", "--depth", "7"],
        7,
    );
    let said = lost.said.clone();
    expect(
        lost,
        UNREACHABLE,
        &format!("?reconnect-time=0' --resume {out}"),
    );
    assert!(
        said.contains("to resume: linerate bench 'iscsi://"),
        "quoted for a shell: {said}"
    );
    let record = std::fs::read_to_string(folder.path().join("result.json")).expect("a record");
    let record: serde_json::Value = serde_json::from_str(&record).expect("JSON");
    assert_eq!(record["runs"][0]["ended"], "interrupted");
}

/// Runs a command on a LUN that responds after an hour. The server ends when this number of commands is
/// outstanding.
fn lost_meanwhile(words: &[&str], commands: u64) -> Ended {
    let mut server = Server::serving(&["disk=delay:1h:[ram:1MiB]"]);
    let mut command = Command::new(LINERATE);
    command
        .args(words)
        .arg(format!("{}?reconnect-time=0", server.url("disk")));
    let lost = thread::spawn(move || run_command(&mut command));
    let waits = || {
        sessions(&server)
            .iter()
            .any(|session| session["in_flight"].as_u64() >= Some(commands))
    };
    while !waits() && !lost.is_finished() {
        thread::sleep(Duration::from_millis(10));
    }
    server.kill();
    lost.join().expect("an end")
}

/// A portal that responds to one login with this status.
fn refusing(status: LoginStatus) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut header = [0; 48];
        stream.read_exact(&mut header).expect("a login request");
        let request = LoginRequest::parse(&Bhs(header)).expect("a login request");
        stream
            .write_all(&refusal(&request, status).0)
            .expect("a connection");
        let _ = stream.read_to_end(&mut Vec::new()); // until the initiator has read it and disconnects
    });
    format!("iscsi://{address}/{TARGET}/0")
}

fn refusal(request: &LoginRequest, status: LoginStatus) -> Bhs {
    LoginResponse {
        continues: false,
        stage: Stage::SecurityNegotiation,
        transit_to: None,
        version_max: 0,
        version_active: 0,
        isid: request.isid,
        tsih: request.tsih,
        itt: request.itt,
        numbers: TargetNumbers {
            stat_sn: Sn(1),
            exp_cmd_sn: Sn(1),
            max_cmd_sn: Sn(1),
        },
        status,
        data_segment_length: 0,
    }
    .emit()
}

#[test]
fn a_refused_login_says_what_the_target_said() {
    for (status, code, words) in [
        (LoginStatus::AuthorizationFailure, LOGIN_REFUSED, "(0202)"),
        (LoginStatus::ServiceUnavailable, LOGIN_REFUSED, "(0301)"),
        (LoginStatus::OutOfResources, LOGIN_REFUSED, "(0302)"),
        (LoginStatus::AuthenticationFailure, AUTHENTICATION, "(0201)"),
        (LoginStatus::NotFound, NOT_FOUND, "(0203)"),
        (LoginStatus::TargetRemoved, NOT_FOUND, "(0204)"),
    ] {
        expect(ready(&refusing(status)), code, words);
    }
}

const LOCKED: &str = r#"
[volume.disk]
spec = "ram:1MiB"
[[target]]
name = "iqn.2026-01.io.linerate:disk"
lun = [{ lun = 0, volume = "disk" }]
[target.chap]
[[target.chap.account]]
user = "alice"
secret = "correct-horse-battery"
"#;

#[test]
fn a_wrong_secret_is_no_other_failure() {
    let server = or_skip!(Server::configured(LOCKED));
    let alice = server.url("disk").replace("iscsi://", "iscsi://alice@");
    let with = |secret| ready_with(&alice, &[("LINERATE_SECRET", secret)]);
    with("correct-horse-battery").expect_success();
    expect(
        with("wrong-horse-battery"),
        AUTHENTICATION,
        "refused the login",
    );
    expect(
        ready(&server.url("disk")),
        AUTHENTICATION,
        "name a user in the URL",
    );
    // There is no terminal for a prompt.
    expect(ready(&alice), REFUSED, "LINERATE_SECRET");
    for user in [
        "alice%correct-horse-battery@",
        "alice:correct-horse-battery@",
    ] {
        let said = ready(&alice.replace("alice@", user));
        assert!(!said.said.contains("correct-horse"), "{said:?}");
        expect(said, REFUSED, "the list of processes");
    }
    // A user name may contain a colon.
    let named = format!("{}?user=alice", server.url("disk"));
    ready_with(&named, &[("LINERATE_SECRET", "correct-horse-battery")]).expect_success();
}

#[test]
fn no_mistake_beside_a_secret_has_it_printed() {
    for url in [
        "iscsi://joe:hush-hush@san1",
        "iscsi://joe:hush/hush@san1/iqn.x:y/0",
        "iscsi://joe:hush?hush@san1/iqn.x:y/0",
        "isci://joe:hush-hush@san1/iqn.x:y/0",
        "nbd://joe:hush-hush@san1/x",
        "iscsi://san1/iqn.x:y/0?target-user=san&target-secret=ha&hush=1",
        "iscsi://san1/iqn.x:y/0?target-secrt=hush-hush",
    ] {
        for command in [
            &["scsi", "ready", url][..],
            &["read", url],
            &["copy", "ram:1MiB", url],
            &["bench", url],
            &["discover", url],
            &["attach", url, "/tmp/nowhere"],
            &["info", "iscsi://san1/iqn.x:y/0", url],
            &["serve", "--check", "--volume", &format!("disk={url}")],
            &["bench", "ram:1MiB", "--agents", url],
        ] {
            // The command has no connection, so there is nothing to record.
            let output = Command::new(LINERATE).args(command).output();
            let output = output.expect("the linerate binary");
            let said =
                String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            assert_eq!(output.status.code(), Some(REFUSED), "{command:?}: {said}");
            assert!(!said.contains("hush"), "{command:?}: {said}");
        }
    }
}

#[test]
fn what_is_not_there_is_not_found() {
    let server = Server::serving(&["disk=ram:1MiB"]);
    if server.is_ours() {
        expect(
            ready(&server.url("disk").replace(":disk/0", ":dusk/0")),
            NOT_FOUND,
            "there is no such target",
        );
        expect(
            ready(&server.url("disk").replace("disk/0", "disk/7")),
            NOT_FOUND,
            "there is no such LUN",
        );
    }
}

/// Overwrites a block.
fn write(url: &str) -> Ended {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let block = folder.path().join("block");
    std::fs::write(&block, [0xa5; 512]).expect("a temporary file");
    let write_10 = "2a 00 00000000 00 0001 00";
    let mut command = Command::new(LINERATE);
    command
        .args(["scsi", "raw", url, "--yes", "--cdb", write_10, "--out"])
        .arg(&block);
    run_command(&mut command)
}

#[test]
fn a_write_protected_lun_says_so() {
    let server = Server::serving(&["disk=ram:1MiB?read-only"]);
    if server.is_ours() {
        expect(write(&server.url("disk")), WRITE_PROTECTED, "DATA PROTECT");
    }
}

#[test]
fn a_lun_that_another_initiator_has_reserved_says_so() {
    const REGISTER: u8 = 0;
    const RESERVE: u8 = 1;
    const WRITE_EXCLUSIVE: u8 = 1;
    let server = Server::serving(&["disk=ram:1MiB"]);
    let url = server.url("disk");
    write(&url).expect_success();
    in_a_world(async {
        let other = attached(&url).await;
        assert_eq!(reserve_out(&other, REGISTER, 0, 0, 0xabc).await, GOOD);
        assert_eq!(
            reserve_out(&other, RESERVE, WRITE_EXCLUSIVE, 0xabc, 0).await,
            GOOD
        );
        other.target().close().await;
    });
    expect(write(&url), RESERVED, "another initiator has reserved it");
}
