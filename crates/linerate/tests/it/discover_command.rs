//! `linerate discover`: targets, portals and LUNs, in all supported ways.

use std::process::Command;

use crate::program::{Ended, LINERATE, run_command, says};
use crate::server::{Server, free_port, has_ipv6};

fn discover(arguments: &[&str], secrets: &[(&str, &str)]) -> Ended {
    let mut command = Command::new(LINERATE);
    command
        .arg("discover")
        .args(arguments)
        .envs(secrets.iter().copied());
    run_command(&mut command)
}

fn json(arguments: &[&str]) -> serde_json::Value {
    let said = discover(&[arguments, &["--json"]].concat(), &[]).expect_success();
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn a_portal_tells_its_targets() {
    let server = Server::serving(&["disk=ram:1MiB"]);
    let (name, portal) = (server.target_name("disk"), server.portal());
    for way in [
        portal.clone(),
        format!("iscsi://{portal}"),
        format!("localhost:{}", server.port()),
    ] {
        let said = discover(&[&way], &[]).expect_success();
        assert!(
            said.starts_with(&format!("{name}\n  portal {portal}")),
            "{said}"
        );
    }
    if has_ipv6() && server.is_ours() {
        assert_eq!(
            json(&[&format!("[::1]:{}", server.port())])["targets"][0]["name"],
            name
        );
    }
}

#[test]
fn luns_are_listed_with_what_they_are() {
    let server = Server::serving(&["disk=ram:1MiB?block=4096&read-only"]);
    needs!(server.is_ours());
    let found = json(&["--luns", &server.portal()]);
    let lun = &found["targets"][0]["luns"][0];
    assert_eq!(
        (&lun["lun"], &lun["device_type"]),
        (&"0".into(), &"disk".into())
    );
    assert_eq!(
        (&lun["bytes"], &lun["block_bytes"]),
        (&(1 << 20).into(), &4096.into())
    );
    assert_eq!(
        (&lun["thin"], &lun["read_only"]),
        (&true.into(), &true.into())
    );
    let said = discover(&["--luns", &server.portal()], &[]).expect_success();
    says(
        &said,
        &["  LUN 0  1MiB  in blocks of 4096  LINERATE VOLUME"],
    );
}

/// The first portal announces an address without a server.
const TWO_PORTALS: &str = r#"
[[portal]]
listen = "127.0.0.1:{port}"
advertise = "127.0.0.1:{gone}"
[[portal]]
listen = "127.0.0.1:{other}"
[volume.disk]
spec = "ram:1MiB"
[[target]]
name = "iqn.2026-01.io.linerate:disk"
lun = [{ lun = 0, volume = "disk" }]
"#;

#[test]
fn a_portal_that_cannot_be_reached_is_told_and_the_next_one_tried() {
    let ports = [("{gone}", free_port()), ("{other}", free_port())];
    let text = ports
        .iter()
        .fold(TWO_PORTALS.to_owned(), |text, (word, port)| {
            text.replace(word, &port.to_string())
        });
    let server = or_skip!(Server::configured(&text));
    let found = json(&["--luns", &server.portal()]);
    let target = &found["targets"][0];
    assert_eq!(target["luns"][0]["bytes"], 1 << 20, "{found}");
    let problem = target["portals"][0]["problem"].as_str();
    assert!(
        problem.is_some_and(|problem| problem.contains("Connection refused")),
        "{found}"
    );
    assert!(target["portals"][1]["problem"].is_null(), "{found}");
}

const LOCKED: &str = r#"
[volume.disk]
spec = "ram:1MiB"
[volume.open]
spec = "ram:1MiB"
[[target]]
name = "iqn.2026-01.io.linerate:disk"
lun = [{ lun = 0, volume = "disk" }]
[target.chap]
[[target.chap.account]]
user = "alice"
secret = "correct-horse-battery"
[[target]]
name = "iqn.2026-01.io.linerate:open"
lun = [{ lun = 0, volume = "open" }]
"#;

#[test]
fn a_target_that_does_not_let_us_in_keeps_nobody_from_the_others() {
    let server = or_skip!(Server::configured(LOCKED));
    let Ended { status, said } = discover(&["--luns", &server.portal()], &[]);
    assert_eq!(status.code(), Some(5), "{said}");
    assert!(said.contains("could not be authenticated"), "{said}");
    assert!(said.contains("LUN 0  1MiB"), "{said}");
    let alice = format!("alice@{}", server.portal());
    let said = discover(
        &["--luns", &alice],
        &[("LINERATE_SECRET", "correct-horse-battery")],
    )
    .expect_success();
    assert_eq!(said.matches("LUN 0  1MiB").count(), 2, "{said}");
}

const HIDDEN: &str = r#"
[volume.disk]
spec = "ram:1MiB"
[[target]]
name = "iqn.2026-01.io.linerate:disk"
initiators = ["iqn.2026-01.com.example:other"]
lun = [{ lun = 0, volume = "disk" }]
[nbd]
listen = ["127.0.0.1:{nbd}"]
"#;

#[test]
fn a_discovery_that_finds_nothing_fails() {
    let port = free_port();
    let Some(server) = Server::configured(&HIDDEN.replace("{nbd}", &port.to_string())) else {
        return;
    };
    let nbd = format!("nbd://127.0.0.1:{port}");
    for (place, what) in [
        (server.portal(), "targets for this initiator"),
        (nbd, "exports for this client"),
    ] {
        let Ended { status, said } = discover(&[&place], &[]);
        assert_eq!(status.code(), Some(6), "{said}");
        assert!(
            said.starts_with("linerate: ") && said.contains(what),
            "{said}"
        );
        let Ended { status, said } = discover(&[&place, "--json"], &[]);
        assert_eq!(status.code(), Some(6), "{said}");
        assert!(said.contains("\": []"), "the list is empty: {said}");
    }
}

#[test]
fn nobody_there_is_an_exit_code_of_its_own() {
    let Ended { status, said } = discover(&[&format!("127.0.0.1:{}", free_port())], &[]);
    assert_eq!(status.code(), Some(3), "{said}");
}
