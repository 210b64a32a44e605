//! Tests of HyperSCSI in normal use: `serve` and every command that accepts a URL, over UDP and over raw
//! Ethernet, and a gateway to iSCSI.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::aoe::Site;
use crate::json::{DISCOVER, INFO, check};
use crate::program::{
    LINERATE, installed, linerate, run, run_command, until, write_patterned_file,
};
use crate::server::{Server, free_port};

const SECRET: &str = "a secret of many letters";

const TEXT: &str = r#"
[[portal]]
listen = "127.0.0.1:{port}"
[volume.disk]
spec = "file:{state}/disk?size=16MiB"
[[target]]
name = "iqn.2026-01.io.linerate:disk"
lun = [{ lun = 0, volume = "disk" }]
[hyperscsi]
listen = ["hyperscsi+udp://127.0.0.1:{port}"]
[[hyperscsi.target]]
name = "open"
lun = [{ lun = 0, volume = "disk" }]
[[hyperscsi.target]]
name = "sealed"
lun = [{ lun = 0, volume = "disk" }]
key = [{ initiator = "host1", secret = "a secret of many letters" }]
"#;

/// Options for random reads and writes, in which the data of each read is compared with the last write.
const VERIFY: &[&str] = &[
    "--read",
    "50",
    "--block",
    "16KiB",
    "--depth",
    "8",
    "--verify",
    "--allow-write",
    "--yes",
];

fn json(said: &str) -> Value {
    serde_json::from_str(said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn every_command_takes_the_url_in_clear_and_sealed() {
    let mut server = or_skip!(Server::configured(TEXT));
    let place = format!("hyperscsi+udp://127.0.0.1:{}", server.port());
    let key = server.state().join("key");
    fs::write(&key, SECRET).expect("a file");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("its mode");
    let found = json(&linerate(&["discover", "--hyperscsi", &place, "--json"]).expect_success());
    check(DISCOVER, &found);
    let names = found["targets"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|target| &target["name"]);
    assert_eq!(names.collect::<Vec<_>>(), ["open", "sealed"]);
    let at = |name: &str| server.state().join(name).display().to_string();
    for (number, target, options) in [
        (0, "open", String::new()),
        (1, "sealed", format!("?name=host1&key={}", key.display())),
    ] {
        let url = format!("{place}/{target}/0{options}");
        let told = json(&linerate(&["info", &url, "--json"]).expect_success());
        check(INFO, &told);
        assert_eq!(told["session"]["encrypted"], number == 1, "{told}");
        assert_eq!(told["luns"][0]["disk"]["bytes"], 16 << 20, "{told}");
        let (image, copy) = (at(&format!("image{number}")), at(&format!("copy{number}")));
        write_patterned_file(std::path::Path::new(&image), 16 << 20);
        linerate(&["copy", &image, &url, "--yes"]).expect_success();
        linerate(&["copy", &url, &copy]).expect_success();
        assert!(
            fs::read(&image).expect("there") == fs::read(&copy).expect("there"),
            "{target}"
        );
        // The LUN is the same disk that is exported over iSCSI.
        let iscsi = at(&format!("iscsi{number}"));
        linerate(&["copy", &server.url("disk"), &iscsi]).expect_success();
        assert!(
            fs::read(&image).expect("there") == fs::read(&iscsi).expect("there"),
            "{target}"
        );
        linerate(&[&["bench", &url, "--seconds", "1"], VERIFY].concat()).expect_success();
        let inquiry = linerate(&["scsi", "inquiry", &url]).expect_success();
        assert!(inquiry.contains("LINERATE"), "{inquiry}");
    }
    let without_key = linerate(&["info", &format!("{place}/sealed/0")]).expect_failure();
    assert!(
        without_key.contains("key") || without_key.contains("refuse"),
        "{without_key}"
    );
    server.stop();
}

/// Reads and writes continue when the server is restarted, and none fails.
#[test]
fn a_load_outlives_a_server_that_is_killed_and_started_again() {
    let mut server = or_skip!(Server::configured(TEXT));
    let url = format!("hyperscsi+udp://127.0.0.1:{}/open/0", server.port());
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log").display().to_string();
    let words = ["bench", &url, "--seconds", "4", "--verify-log", &log];
    let disk = server.state().join("disk");
    let written =
        || fs::metadata(&disk).map_or(0, |file| std::os::unix::fs::MetadataExt::blocks(&file));
    let before = written();
    let load = std::thread::scope(|scope| {
        let load = scope.spawn(|| run(LINERATE, &[&words[..], VERIFY].concat()));
        until("it has begun", || written() > before + 256);
        server.kill();
        server.restart();
        load.join().expect("its end")
    });
    assert!(
        load.status.success() && load.said.contains("none failed"),
        "{}",
        load.said
    );
    linerate(&["bench", "verify", &log, &url]).expect_success();
    server.stop();
}

/// The frames of two hosts on one Ethernet.
#[test]
fn raw_frames_carry_a_verified_load_of_each_size() {
    for mtu in [1500, 9000] {
        let Some(site) = Site::new(mtu) else { return };
        let _server = site.serve(&["--listen", "hyperscsi://san0", "--volume", "disk=ram:16MiB"]);
        let on_client = |words: &[&str]| {
            run_command(site.client.command(LINERATE).args(words)).expect_success()
        };
        let found = json(&on_client(&["discover", "--hyperscsi", "eth0", "--json"]));
        check(DISCOVER, &found);
        let station = &found["targets"][0]["stations"][0]["address"];
        assert_eq!(
            station.as_str(),
            Some(&*site.client_sees_server().to_string()),
            "{found}"
        );
        let told = json(&on_client(&["info", "hyperscsi://eth0/disk", "--json"]));
        check(INFO, &told);
        let frame = told["session"]["frame_bytes"].as_u64().expect("a number");
        assert!(
            (u64::from(mtu) - 100..=u64::from(mtu)).contains(&frame),
            "{told}"
        );
        on_client(
            &[
                &["bench", "hyperscsi://eth0/disk/0", "--seconds", "1"],
                VERIFY,
            ]
            .concat(),
        );
    }
}

/// An interface is specified twice, by one or two names. A server rejects this, and a client has only one
/// path.
#[test]
fn an_interface_is_used_once() {
    needs!(installed(&["ip"]));
    let Some(site) = Site::new(1500) else { return };
    for (host, name, other) in [
        (&site.server, "san0", "lan0"),
        (&site.client, "eth0", "enx0"),
    ] {
        let words = ["link", "property", "add", "dev", name, "altname", other];
        let named = run_command(host.command("ip").args(words));
        if !named.status.success() {
            return eprintln!(
                "skipped: interfaces have one name each here: {}",
                named.said
            );
        }
    }
    let twice = "cannot listen on san0: it is listed twice; list it once";
    let alike =
        "cannot listen on lan0: this is the interface san0 under another name; list it once";
    for (front_end, other, why) in [
        ("hyperscsi", "san0", twice),
        ("hyperscsi", "lan0", alike),
        ("aoe", "lan0", alike),
    ] {
        let (listen, again) = (
            format!("{front_end}://san0"),
            format!("{front_end}://{other}"),
        );
        for check in [&[][..], &["--check"][..]] {
            let mut command = site.server.command(LINERATE);
            command.args([
                "serve",
                "--state",
                &site.path("refused"),
                "--volume",
                "disk=ram:1MiB",
            ]);
            let ended = run_command(
                command
                    .args(["--listen", &listen, "--listen", &again])
                    .args(check),
            );
            assert!(
                !ended.status.success() && ended.said.contains(why),
                "{}",
                ended.said
            );
        }
    }
    // Two protocols do not receive each other's frames.
    let options = [
        "--listen",
        "hyperscsi://san0",
        "--listen",
        "aoe://lan0",
        "--volume",
        "disk=ram:1MiB",
    ];
    let _server = site.serve(&options);
    let words = [
        "bench",
        "hyperscsi://eth0+eth0+enx0/disk/0",
        "--seconds",
        "1",
        "--statistics",
        "--json",
    ];
    let said = run_command(site.client.command(LINERATE).args(words)).expect_success();
    // The output starts with a note that the volume was never written.
    let told = json(
        said.lines()
            .find(|line| line.starts_with('{'))
            .expect("the result"),
    );
    let paths = told["sessions"]
        .as_array()
        .and_then(|all| all.first())
        .map(|first| &first["paths"]);
    assert_eq!(
        paths.and_then(Value::as_array).map(Vec::len),
        Some(1),
        "{told}"
    );
}

/// The same logical unit is used for any protocol, so tests of libiscsi's suite must succeed through a
/// gateway.
#[test]
fn conditions_of_libiscsis_suite_hold_through_a_gateway() {
    needs!(installed(&["iscsi-test-cu"]));
    let mut back = or_skip!(Server::configured(TEXT));
    let volume = format!("disk=hyperscsi+udp://127.0.0.1:{}/open/0", back.port());
    let mut gateway = Server::serving(&[&volume]);
    for family in [
        "SCSI.Read16",
        "SCSI.Write16",
        "SCSI.WriteSame16",
        "SCSI.Unmap",
        "SCSI.CompareAndWrite",
    ] {
        let of = |server: &Server| {
            let said = run(
                "iscsi-test-cu",
                &["--dataloss", "-t", family, &server.url("disk")],
            )
            .said;
            let told = |line: &&str| line.trim_start().starts_with("Test: ");
            said.lines()
                .filter(told)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let (direct, through) = (of(&back), of(&gateway));
        assert!(
            direct.iter().any(|test| test.ends_with("passed")),
            "{family}: {direct:?}"
        );
        assert_eq!(through, direct, "{family}");
    }
    gateway.stop();
    back.stop();
}

#[test]
fn what_cannot_be_reached_is_told_in_a_sentence() {
    let nobody = format!(
        "hyperscsi+udp://127.0.0.1:{}/disk/0?timeout=1s",
        free_port()
    );
    let ended = linerate(&["info", &nobody]);
    assert_eq!(ended.status.code(), Some(3), "{}", ended.said);
    let ended = linerate(&["info", "hyperscsi://nowhere0/disk/0"]);
    assert!(
        !ended.status.success() && ended.said.contains("nowhere0"),
        "{}",
        ended.said
    );
    let ended = linerate(&["info", "hyperscsi://lo/disk/0?timout=1s"]);
    assert!(
        ended.status.code() == Some(2) && ended.said.contains("`timout`"),
        "{}",
        ended.said
    );
}
