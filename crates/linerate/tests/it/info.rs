//! `linerate info`: the negotiated parameters, possible improvements, and the LUNs.

use std::process::Command;

use serde_json::Value;

use crate::program::{Ended, LINERATE, run_command, says};
use crate::server::Server;

fn info(arguments: &[&str]) -> Ended {
    run_command(Command::new(LINERATE).arg("info").args(arguments))
}

fn json(url: &str) -> Value {
    let said = info(&[url, "--json"]).expect_success();
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// The keys with possible improvements.
fn marked(info: &Value) -> Vec<&str> {
    let keys = info["session"]["negotiated"].as_array().expect("keys");
    keys.iter()
        .filter(|key| !key["recommended"].is_null())
        .filter_map(|key| key["key"].as_str())
        .collect()
}

#[test]
fn what_could_be_better_is_marked_and_the_reason_given() {
    let server = Server::serving(&["disk=ram:1MiB"]);
    needs!(server.is_ours());
    let url = server.url("disk");
    assert!(marked(&json(&url)).is_empty());
    let slow =
        format!("{url}?initial-r2t=yes&first-burst=8192&max-burst=65536&max-outstanding-r2t=1");
    let keys = [
        "InitialR2T",
        "FirstBurstLength",
        "MaxBurstLength",
        "MaxOutstandingR2T",
    ];
    assert_eq!(marked(&json(&slow)), keys);
    let said = info(&[&slow]).expect_success();
    says(&said, &["waits a round trip before its first R2T"]);
}

#[test]
fn a_session_says_between_whom_it_is() {
    let server = Server::serving(&["disk=ram:1MiB"]);
    let session = json(&format!("{}?connections=2", server.url("disk")))["session"].clone();
    assert_eq!(session["target"], server.target_name("disk"));
    assert_eq!(session["address"], server.portal());
    assert_eq!(session["target_portal_group"], 1);
    assert_eq!(session["redirected_from"], Value::Null);
    if server.is_ours() {
        assert_eq!(session["connections"][1]["peer"], server.portal());
        assert!(
            session["connections"][1]["segment_bytes"].as_u64() > Some(0),
            "{session}"
        );
    }
}

#[test]
fn whom_a_login_authenticated_is_shown() {
    let target = |name: &str, chap: &str| {
        format!(
            "[[target]]\nname = \"iqn.2026-01.io.linerate:{name}\"\nlun = [{{ lun = 0, volume = \"disk\" }}]\n{chap}"
        )
    };
    let alice = "[target.chap]\n[[target.chap.account]]\nuser = \"alice\"\nsecret = \"correct-horse-battery\"\n";
    let mutual = "[target.chap.mutual]\nuser = \"disk\"\nsecret = \"staple-of-the-target\"\n";
    let configuration = [
        "[volume.disk]\nspec = \"ram:1MiB\"\n".to_owned(),
        target("open", ""),
        target("locked", alice),
        target("mutual", &format!("{alice}{mutual}")),
    ];
    let server = or_skip!(Server::configured(&configuration.concat()));
    let session = |target: &str, options: &str| {
        let url = server.url(target).replace("iscsi://", "iscsi://alice@");
        let mut info = Command::new(LINERATE);
        info.env("LINERATE_SECRET", "correct-horse-battery");
        info.env("LINERATE_TARGET_SECRET", "staple-of-the-target");
        let said =
            run_command(info.args(["info", &format!("{url}{options}"), "--json"])).expect_success();
        let session = serde_json::from_str::<Value>(&said).expect("JSON")["session"].clone();
        (session["authentication"].clone(), session["user"].clone())
    };
    assert_eq!(
        session("open", ""),
        ("none".into(), Value::Null),
        "a user alone proves nothing"
    );
    assert_eq!(session("locked", ""), ("initiator".into(), "alice".into()));
    assert_eq!(
        session("mutual", "?target-user=disk"),
        ("both".into(), "alice".into())
    );
}

#[test]
fn a_disk_is_told_with_its_size_its_names_and_who_holds_it() {
    let server = Server::serving(&["disk=ram:1MiB?block=4096&read-only"]);
    needs!(server.is_ours());
    let info = json(&server.url("disk"));
    let (lun, disk) = (&info["luns"][0], &info["luns"][0]["disk"]);
    assert_eq!(
        (&disk["bytes"], &disk["block_bytes"]),
        (&(1 << 20).into(), &4096.into())
    );
    assert_eq!(
        (&disk["read_only"], &disk["write_cache"]),
        (&true.into(), &false.into())
    );
    assert_eq!(disk["provisioning"]["thin"], true);
    assert!(
        lun["names"][0]
            .as_str()
            .is_some_and(|name| name.starts_with("naa.")),
        "{lun}"
    );
    assert_eq!(
        (&lun["reservation"], &lun["registrations"]),
        (&Value::Null, &Value::Array(Vec::new()))
    );
    assert_eq!(lun["problem"], Value::Null);
}

#[test]
fn without_a_lun_all_are_told() {
    let server = Server::serving(&["disk=ram:1MiB"]);
    let url = server.url("disk");
    let (target, _lun) = url.rsplit_once('/').expect("a LUN");
    let said = info(&[target]).expect_success();
    assert!(said.contains("\nLUN 0: "), "{said}");
    let Ended { status, said } = info(&[&format!("{target}/7")]);
    assert_eq!(status.code(), Some(6), "{said}");
}

#[test]
fn a_page_is_shown_in_words_and_bytes() {
    let server = Server::serving(&["disk=ram:1MiB"]);
    if server.is_ours() {
        let said = info(&[&server.url("disk"), "--vpd", "b2"]).expect_success();
        assert!(said.contains("Logical Block Provisioning (b2h)"), "{said}");
        says(&said, &["UNMAP deallocates blocks", "0000  00 b2 00 04"]);
    }
}

const MOVED: &str = r#"
[[target]]
name = "iqn.2026-01.io.linerate:disk"
[target.redirect]
address = "{there}"
"#;

#[test]
fn a_target_that_has_moved_says_where_to() {
    let there = Server::serving(&["disk=ram:1MiB"]);
    let here = or_skip!(Server::configured(
        &MOVED.replace("{there}", &there.portal())
    ));
    let session = json(&here.url("disk"))["session"].clone();
    assert_eq!(session["redirected_from"], here.portal());
    assert_eq!(session["address"], there.portal());
}

#[test]
fn a_target_agrees_on_no_more_than_its_configuration_allows() {
    let configuration = "
[[portal]]
listen = \"127.0.0.1:{port}\"
[volume.disk]
spec = \"ram:1MiB\"
[[target]]
name = \"iqn.2026-01.io.linerate:disk\"
lun = [{ lun = 0, volume = \"disk\" }]
[target.session]
initial-r2t = true
immediate-data = false
max-burst = \"8KiB\"
max-segment = \"512B\"
max-outstanding-r2t = 1
header-digest = [\"crc32c\"]
";
    let server = or_skip!(Server::configured(configuration));
    let url = server.url("disk");
    let refused = info(&[&url]);
    assert!(
        !refused.status.success(),
        "a login without a digest: {}",
        refused.said
    );
    let told = json(&format!("{url}?header-digest=crc32c"));
    let agreed = |name: &str| {
        let keys = told["session"]["negotiated"].as_array().expect("keys");
        let key = keys.iter().find(|key| key["key"] == name).expect("a key");
        key["got"].clone()
    };
    let keys = [
        "InitialR2T",
        "ImmediateData",
        "FirstBurstLength",
        "MaxBurstLength",
        "MaxOutstandingR2T",
        "HeaderDigest",
    ];
    assert_eq!(
        keys.map(agreed),
        [
            "Yes".into(),
            "No".into(),
            8192.into(),
            8192.into(),
            1.into(),
            Value::from("CRC32C")
        ],
        "{told}"
    );
}
