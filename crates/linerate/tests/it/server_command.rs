//! Tests of `linerate server`: adding, removing and resizing a volume, and the updated file.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use block::{BlockDevice as _, Blocks};
use iscsi_client::{RemoteLun, Transfer, Url, cdb};

use crate::program::{Ended, LINERATE, end_of, installed, linerate, run, says};
use crate::remote::{attached, in_a_world, random};
use crate::server::{Server, free_port};

const TARGET: &str = "iqn.2026-01.com.example:t";

const BASE: &str = "# what is served here
[[portal]]
listen = \"127.0.0.1:{port}\" # for this machine

[volume.a] # the first
spec = \"ram:8MiB\"
[volume.f]
spec = \"file:{state}/f.img?size=1MiB\" # grows

[[target]]
name = \"iqn.2026-01.com.example:t\"
lun = [{ lun = 0, volume = \"a\" }, { lun = 1, volume = \"f\" }] # both
";

fn server(server: &Server, words: &[&str]) -> Ended {
    server.ask(&[&["server"], words].concat())
}

fn reload(server: &Server) -> Ended {
    server.ask(&["server", "reload"])
}

fn configuration(server: &Server) -> PathBuf {
    server.state().join("linerate.toml")
}

fn text(server: &Server) -> String {
    std::fs::read_to_string(configuration(server)).expect("the configuration")
}

fn url(server: &Server, lun: u16) -> String {
    format!("iscsi://127.0.0.1:{}/{TARGET}/{lun}", server.port())
}

async fn attention(lun: &RemoteLun) -> Option<(u8, u8, u8)> {
    let answer = lun
        .command(cdb::test_unit_ready(), Transfer::None)
        .await
        .expect("an answer");
    answer
        .sense
        .map(|sense| (sense.key, sense.code, sense.qualifier))
}

#[test]
fn a_volume_is_added_made_larger_and_removed_and_initiators_and_the_file_know() {
    let mut served = or_skip!(Server::configured(BASE));
    let before = text(&served);
    let image = served.state().join("g.img").display().to_string();
    in_a_world(async {
        let first = attached(&url(&served, 0)).await;
        let said = server(
            &served,
            &[
                "add",
                &format!("g=file:{image}?size=2MiB"),
                "--target",
                TARGET,
            ],
        );
        let said = said.expect_success();
        says(&said, &["+ volume g = file:", "LUN 2 = g"]);
        assert_eq!(
            attention(&first).await,
            Some((6, 0x3f, 0x0e)),
            "REPORTED LUNS DATA HAS CHANGED"
        );
        let lun = first.target().lun(2).await.expect("the new LUN");
        assert_eq!(lun.geometry().blocks, Blocks(4096));
        assert!(
            text(&served).contains("[volume.g]\nspec = \"file:"),
            "{}",
            text(&served)
        );

        server(&served, &["resize", "g", "3MiB"]).expect_success();
        assert_eq!(
            attention(&lun).await,
            Some((6, 0x2a, 0x09)),
            "CAPACITY DATA HAS CHANGED"
        );
        assert_eq!(std::fs::metadata(&image).expect("the image").len(), 3 << 20);
        assert!(
            text(&served).contains("g.img?size=3MiB"),
            "{}",
            text(&served)
        );
        assert_eq!(reload(&served).expect_success(), "no changes\n");

        let in_use = server(&served, &["remove", "g"]);
        assert_eq!(in_use.status.code(), Some(2));
        assert!(in_use.said.contains("uses LUN 2 of"), "{}", in_use.said);
        assert!(text(&served).contains("[volume.g]"), "nothing has changed");
        let dry = server(&served, &["remove", "g", "--dry-run"]).expect_success();
        assert!(
            dry.contains("- volume g") && text(&served).contains("[volume.g]"),
            "{dry}"
        );
        server(&served, &["remove", "g", "--force"]).expect_success();
        assert_eq!(
            attention(&first).await,
            Some((6, 0x3f, 0x0e)),
            "REPORTED LUNS DATA HAS CHANGED"
        );
        drop(lun);
        first.close().await;
    });
    assert_eq!(text(&served), before, "what came is gone, and nothing else");
    assert_eq!(
        std::fs::metadata(&image).expect("the image").len(),
        3 << 20,
        "what is on it stays"
    );
    served.kill();
    served.restart();
    assert_eq!(reload(&served).expect_success(), "no changes\n");
    served.stop();
}

/// Regression: the target was removed with its only volume, and a target with the same name, open to any
/// initiator, was created for the next volume.
#[test]
fn who_may_not_use_a_target_may_not_use_its_next_volume() {
    let nbd = free_port();
    let access = format!(
        "lun = [{{ lun = 0, volume = \"a\" }}]\ninitiators = [\"iqn.2026-01.com.example:host\"]\n\
         [nbd]\nlisten = [\"127.0.0.1:{nbd}\"]\n\
         [[nbd.export]]\nvolume = \"a\"\nnetworks = [\"192.0.2.0/24\"]\n"
    );
    let luns = "lun = [{ lun = 0, volume = \"a\" }, { lun = 1, volume = \"f\" }] # both";
    let mut served = or_skip!(Server::configured(&BASE.replace(luns, &access)));
    let stranger = |served: &Server| {
        let url = Url::parse(&url(served, 0)).expect("a URL");
        let outcome = in_a_world(async { iscsi_client::open(&url, random).await.map(drop) });
        let over_nbd = linerate(&["info", &format!("nbd://127.0.0.1:{nbd}/a")]).expect_failure();
        (outcome.expect_err("a stranger").to_string(), over_nbd)
    };
    let before = stranger(&served);
    let removed = server(&served, &["remove", "a"]).expect_success();
    says(
        &removed,
        &["has no LUN left, and stays for listed initiators"],
    );
    let added = server(&served, &["add", "b=ram:4MiB", "--target", TARGET]).expect_success();
    assert!(added.contains("LUN 0 = b for listed initiators"), "{added}");
    let again = server(
        &served,
        &["add", "c=ram:4MiB", "--front-end", "nbd", "--target", "a"],
    );
    let again = again.expect_success();
    says(&again, &["NBD export a = c for listed networks"]);
    assert_eq!(stranger(&served), before);
    in_a_world(async {
        let host = attached(&format!(
            "{}?initiator=iqn.2026-01.com.example:host",
            url(&served, 0)
        ))
        .await;
        assert_eq!(host.geometry().blocks, Blocks(8192));
        host.close().await;
    });
    served.stop();
}

#[test]
fn others_initiators_find_a_volume_that_is_added() {
    needs!(installed(&["iscsi-ls", "iscsi-readcapacity16"]));
    let mut served = or_skip!(Server::configured(BASE));
    server(&served, &["add", "new=ram:16MiB"]).expect_success();
    let found = run(
        "iscsi-ls",
        &["-s", &format!("iscsi://127.0.0.1:{}", served.port())],
    )
    .expect_success();
    assert!(found.contains("iqn.2026-01.io.linerate:new"), "{found}");
    let url = format!(
        "iscsi://127.0.0.1:{}/iqn.2026-01.io.linerate:new/0",
        served.port()
    );
    let capacity = run("iscsi-readcapacity16", &[url]).expect_success();
    assert!(
        capacity.contains("32767"),
        "16 MiB of 512 bytes: {capacity}"
    );
    let listed = server(&served, &["list"]).expect_success();
    assert!(
        listed
            .lines()
            .any(|line| line.starts_with("new") && line.contains("16MiB")),
        "{listed}"
    );
    let json = server(&served, &["list", "--json"]).expect_success();
    let volumes = crate::sessions::listed("volumes", &json);
    assert_eq!(
        volumes[2]["luns"][0]["target"], "iqn.2026-01.io.linerate:new",
        "{json}"
    );
    assert_eq!(volumes[2]["bytes"], 16 << 20);
    served.stop();
}

/// Events, as received by subscribers.
#[test]
fn events_are_told_as_they_happen() {
    let text = BASE.replace("ram:8MiB", "fault:[ram:8MiB]");
    let mut served = or_skip!(Server::configured(&text));
    let mut events = Events::of(&served);
    in_a_world(async {
        let lun = attached(&url(&served, 0)).await;
        let began = events.next("session-began");
        assert_eq!(began["target"], TARGET);
        assert_eq!(began["version"], 1);
        server(&served, &["add", "g=ram:2MiB"]).expect_success();
        assert_eq!(events.next("volume-added")["volume"], "g");
        let applied = events.next("reload-applied");
        assert_eq!(applied["changes"][0], "+ volume g = ram:2MiB");
        server(&served, &["resize", "f", "2MiB"]).expect_success();
        assert_eq!(events.next("volume-grown")["bytes"], 2 << 20);
        let renamed =
            self::text(&served).replace("[volume.f]", "[volume.f2]\nprevious-name = \"f\"");
        let renamed = renamed.replace("volume = \"f\"", "volume = \"f2\"");
        std::fs::write(configuration(&served), &renamed).expect("written");
        reload(&served).expect_success();
        assert_eq!(events.next("volume-renamed")["volume"], "f2");
        std::fs::write(
            configuration(&served),
            renamed.replace("ram:2MiB", "rom:2MiB"),
        )
        .expect("written");
        assert_eq!(reload(&served).status.code(), Some(2));
        let refused = events.next("reload-refused");
        assert!(
            refused["reason"]
                .as_str()
                .is_some_and(|reason| reason.contains("rom")),
            "{refused}"
        );
        std::fs::write(configuration(&served), renamed).expect("written");

        let fault = |mode| served.ask(&["server", "fault", "a", mode]).expect_success();
        fault("fail");
        let read = lun
            .command(
                cdb::read_16(0, 1),
                Transfer::into_all_of(block::Buffer::zeroed(512)),
            )
            .await;
        assert_ne!(read.expect("an answer").status, 0);
        assert_eq!(events.next("volume-failed")["volume"], "a");
        fault("pass");
        let read = lun
            .command(
                cdb::read_16(0, 1),
                Transfer::into_all_of(block::Buffer::zeroed(512)),
            )
            .await;
        assert_eq!(read.expect("an answer").status, 0);
        assert_eq!(events.next("volume-recovered")["volume"], "a");
        server(&served, &["remove", "g"]).expect_success();
        assert_eq!(events.next("volume-removed")["volume"], "g");
        lun.close().await;
        assert_eq!(events.next("session-ended")["tsih"], began["tsih"]);
    });
    served.stop();
    let ended = end_of(&mut events.child);
    assert_eq!(ended.code(), Some(1), "the server has ended");
}

/// `linerate server events`.
struct Events {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Events {
    fn of(server: &Server) -> Events {
        let control = server.state().join("control").display().to_string();
        let mut command = Command::new(LINERATE);
        command
            .args(["server", "events", "--control", &control])
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("the linerate binary");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        // The command receives no events until it has subscribed. Each of these requests is rejected, which
        // is an event.
        let refused = || self::server(server, &["remove", "nothing"]).status;
        let (told, is_told) = std::sync::mpsc::channel::<()>();
        let lines = std::thread::scope(|scope| {
            let first = scope.spawn(move || {
                let line = lines.next();
                drop(told);
                line.expect("a line").expect("of text");
                lines
            });
            while is_told.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                refused();
            }
            first.join().expect("no panic")
        });
        Events { child, lines }
    }

    /// Returns the next event of a kind, and skips others before it.
    fn next(&mut self, event: &str) -> serde_json::Value {
        let mut lines = self
            .lines
            .by_ref()
            .map(|line| serde_json::from_str(&line.expect("text")).expect("JSON"));
        lines
            .find(|line: &serde_json::Value| line["event"] == event)
            .unwrap_or_else(|| panic!("no {event}"))
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended already
        let _ = self.child.wait();
    }
}

#[test]
fn a_server_without_a_file_says_that_it_will_not_last() {
    let mut served = Server::serving(&["one=ram:1MiB"]);
    needs!(served.is_ours());
    let added = server(&served, &["add", "two=ram:2MiB"]);
    assert!(
        added.status.success() && added.said.contains("is lost at a restart"),
        "{added:?}"
    );
    server(&served, &["remove", "one"]).expect_success();
    let last = server(&served, &["remove", "two"]);
    assert!(
        !last.status.success() && last.said.contains("is the last volume"),
        "{}",
        last.said
    );
    let masked = server(
        &served,
        &[
            "add",
            "three=ram:2MiB",
            "--initiator",
            "iqn.2026-01.com.example:i",
        ],
    );
    says(&masked.said, &["no configuration file"]);
    served.signal("HUP");
    let listed = server(&served, &["list"]).expect_success();
    assert!(
        listed.contains("two") && !listed.contains("one "),
        "{listed}"
    );
    served.stop();
}

#[test]
fn a_mistake_changes_neither_what_is_served_nor_the_file() {
    let mut served = or_skip!(Server::configured(BASE));
    let before = (text(&served), server(&served, &["list"]).expect_success());
    for (words, says) in [
        (&["add", "a=ram:1MiB"][..], "volume a already exists"),
        (&["add", "x=file:x.img?size=1MiB"], "use an absolute path"),
        (
            &["add", "x=file:/nonexistent/x.img?size=1MiB"],
            "/nonexistent/x.img",
        ),
        (&["add", "x=rom:1MiB"], "did you mean"),
        (
            &["add", "x=ram:1MiB", "--target", TARGET, "--lun", "1"],
            "LUN 2 is free",
        ),
        (&["add", "x=ram:1MiB", "--target", "disk one"], "disk one"),
        (
            &["add", "x=ram:1MiB", "--initiator", "a b*"],
            "is not the start of an iSCSI name",
        ),
        (&["remove", "x"], "volume x does not exist"),
        (&["resize", "x", "1GiB"], "volume x does not exist"),
        (&["resize", "a", "1GiB"], "has no size="),
        (
            &["resize", "f", "512KiB"],
            "only file volumes can be resized",
        ),
        (
            &["resize", "f", "1048577"],
            "linerate: 1048577B is not a whole number of 512-byte blocks; 1MiB is",
        ),
    ] {
        let refused = server(&served, words);
        assert_eq!(
            refused.status.code(),
            Some(2),
            "{words:?}: {}",
            refused.said
        );
        assert!(refused.said.contains(says), "{words:?}: {}", refused.said);
    }
    assert_eq!(
        (text(&served), server(&served, &["list"]).expect_success()),
        before
    );

    std::fs::write(configuration(&served), format!("{}x = = 3\n", before.0)).expect("written");
    let file = configuration(&served).display().to_string();
    let line = before.0.lines().count() + 1;
    for words in [&["reload"][..], &["add", "x=ram:1MiB"]] {
        for said in [
            server(&served, words).expect_failure(),
            linerate(&[&["server", "--config", &file], words].concat()).expect_failure(),
        ] {
            says(&said, &[&format!("{file}:{line}:5: invalid TOML")]);
        }
    }
    std::fs::write(configuration(&served), &before.0).expect("written");

    let edited = before.0.replace("ram:8MiB", "ram:16MiB");
    std::fs::write(configuration(&served), &edited).expect("written");
    let unserved = server(&served, &["add", "x=ram:1MiB"]);
    says(&unserved.said, &["`linerate server reload` first"]);
    says(&unserved.said, &["~ volume a = ram:16MiB"]);
    assert_eq!(text(&served), edited);
    served.stop();
}

/// A change that cannot be written to the file is still applied, and reported.
#[test]
fn a_file_that_cannot_be_written_is_told() {
    let mut served = or_skip!(Server::configured(BASE));
    let elsewhere = tempfile::tempdir().expect("a folder");
    let real = elsewhere.path().join("gone");
    let told = {
        // Use a readable link in a directory in which nothing can be created. /proc is such a directory, even
        // for root.
        std::fs::write(&real, text(&served)).expect("written");
        let open = std::fs::File::open(&real).expect("readable");
        use std::os::fd::AsRawFd as _;
        let link = format!("/proc/{}/fd/{}", std::process::id(), open.as_raw_fd());
        std::fs::remove_file(configuration(&served)).expect("there");
        std::os::unix::fs::symlink(link, configuration(&served)).expect("a link");
        std::fs::remove_file(&real).expect("there");
        server(&served, &["add", "x=ram:1MiB"])
    };
    assert_eq!(told.status.code(), Some(1), "{}", told.said);
    assert!(told.said.contains("could not be written"), "{}", told.said);
    assert!(
        server(&served, &["list"])
            .expect_success()
            .contains("iqn.2026-01.io.linerate:x")
    );
    served.stop();
}

#[test]
fn what_to_type_on_a_host_is_told_and_works() {
    let served = or_skip!(Server::configured(BASE));
    // As parsed by a shell: a line with this ending continues on the next one.
    let usage = || {
        let told = server(&served, &["usage"]);
        assert_eq!(told.status.code(), Some(0), "{told:?}");
        told.said
            .split(" \\\n")
            .map(str::trim_start)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let told = usage();
    let command = |program| {
        told.lines()
            .find_map(|line| line.split(program).nth(1))
            .expect(program)
    };
    let portal = served.portal();
    assert_eq!(command("iscsiadm -m discovery -t sendtargets -p "), portal);
    assert_eq!(
        command("esxcli iscsi adapter discovery sendtarget add -A vmhba64 -a "),
        portal
    );
    needs!(installed(&["iscsi-ls", "iscsi-inq"]));
    let listed = run("iscsi-ls", &["-s", command("iscsi-ls -s ")]);
    assert!(listed.said.contains(TARGET), "{listed:?}");
    let inquiry = run("iscsi-inq", &[command("iscsi-inq ").trim_matches('\'')]);
    assert!(inquiry.said.contains("LINERATE"), "{inquiry:?}");
    // A target added later is included.
    assert_eq!(
        server(&served, &["add", "late=ram:1MiB"]).status.code(),
        Some(0)
    );
    assert!(usage().contains("iqn.2026-01.io.linerate:late --login\n"));
}
