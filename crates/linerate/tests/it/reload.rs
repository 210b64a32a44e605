//! Tests of changes of a running server, by `linerate server reload` and by SIGHUP.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::Duration;

use block::{BlockDevice, Blocks, Buffer};
use iscsi_client::verbs::LunSelection;
use iscsi_client::{RemoteLun, Transfer, cdb};

use crate::program::{Ended, LINERATE, installed, linerate, run, says, until};
use crate::remote::{attached, in_a_world};
use crate::server::{Server, free_port};
use crate::sessions::listed;

const TARGET: &str = "iqn.2026-01.com.example:t";

fn reload(server: &Server, options: &[&str]) -> Ended {
    server.ask(&[&["server", "reload"], options].concat())
}

fn url(port: u16, lun: u16) -> String {
    format!("iscsi://127.0.0.1:{port}/{TARGET}/{lun}")
}

/// The sense key and code with which TEST UNIT READY is rejected, if it is.
async fn attention(lun: &RemoteLun) -> Option<(u8, u8, u8)> {
    let answer = lun
        .command(cdb::test_unit_ready(), Transfer::None)
        .await
        .expect("an answer");
    answer
        .sense
        .map(|sense| (sense.key, sense.code, sense.qualifier))
}

async fn numbers(lun: &RemoteLun) -> Vec<u64> {
    let luns = lun
        .unit()
        .report_luns(LunSelection::Ordinary)
        .await
        .expect("REPORT LUNS");
    luns.iter().map(|lun| lun.0 >> 48).collect()
}

const BASE: &str = "
[[portal]]
listen = \"127.0.0.1:{port}\"
[volume.a]
spec = \"ram:8MiB\"
[volume.b]
spec = \"ram:4MiB\"
[[target]]
name = \"iqn.2026-01.com.example:t\"
lun = [{ lun = 0, volume = \"a\" }, { lun = 1, volume = \"b\" }]
";

/// A server of [`BASE`], whose configuration file is then changed.
fn served(change: impl FnOnce(String) -> String) -> Option<Server> {
    let mut server = Server::configured(BASE)?;
    let text = change(BASE.replace("{port}", &server.port().to_string()));
    server.reconfigure(&text);
    Some(server)
}

#[test]
fn a_lun_that_is_added_is_seen_without_another_login() {
    let mut server = or_skip!(Server::configured(BASE));
    in_a_world(async {
        let lun = attached(&url(server.port(), 0)).await;
        assert_eq!(numbers(&lun).await, [0, 1]);
        let other = lun.target().lun(1).await.expect("LUN 1");
        let text = BASE.replace("{port}", &server.port().to_string());
        let more = "{ lun = 1, volume = \"b\" }, { lun = 300, volume = \"c\" }]";
        let text = text.replace("{ lun = 1, volume = \"b\" }]", more);
        server.reconfigure(&format!("{text}[volume.c]\nspec = \"ram:1MiB\"\n"));
        let said = reload(&server, &[]).expect_success();
        assert!(said.contains("+ volume c = ram:1MiB"), "{said}");
        assert_eq!(
            attention(&lun).await,
            Some((6, 0x3f, 0x0e)),
            "REPORTED LUNS DATA HAS CHANGED"
        );
        assert_eq!(attention(&lun).await, None, "it is reported once");
        assert_eq!(numbers(&lun).await, [0, 1, 0x4000 + 300]);
        assert_eq!(
            attention(&other).await,
            None,
            "REPORT LUNS at any LUN settles it for all"
        );
        drop(other);
        let new = lun.target().lun(300).await.expect("the new LUN");
        assert_eq!(new.geometry().blocks, Blocks(2048));
        drop(new);
        lun.close().await;
    });
    server.stop();
}

#[test]
fn what_is_in_use_is_taken_away_by_force_alone() {
    let mut server = or_skip!(served(
        |text| text.replace(", { lun = 1, volume = \"b\" }]", "]")
    ));
    in_a_world(async {
        let lun = attached(&url(server.port(), 0)).await;
        let refused = reload(&server, &[]);
        assert_eq!(refused.status.code(), Some(2), "{}", refused.said);
        says(&refused.said, &["uses LUN 1 of iqn.2026-01.com.example:t"]);
        assert_eq!(attention(&lun).await, None, "nothing has changed");
        assert_eq!(numbers(&lun).await, [0, 1]);
        let told = reload(&server, &["--dry-run"]).expect_success();
        says(&told, &["- volume b", "in use:"]);
        reload(&server, &["--force"]).expect_success();
        assert_eq!(attention(&lun).await, Some((6, 0x3f, 0x0e)));
        assert_eq!(numbers(&lun).await, [0]);
        lun.close().await;
    });
    server.stop();
}

/// A command that its device does not complete must end when its LUN is removed, and must delay neither the
/// reload nor the other LUN.
#[test]
fn a_lun_whose_device_hangs_can_be_taken_away() {
    let text = BASE.replace("ram:4MiB", "fault:[ram:4MiB]");
    let mut server = or_skip!(Server::configured(&text));
    let control = server.state().join("control").display().to_string();
    in_a_world(async {
        let (lun, hung) = (
            attached(&url(server.port(), 0)).await,
            attached(&url(server.port(), 1)).await,
        );
        server
            .ask(&["server", "fault", "b", "hang"])
            .expect_success();
        let write = reactor::spawn(async move {
            let answer = hung
                .command(
                    cdb::read_16(0, 8),
                    Transfer::into_all_of(Buffer::zeroed(4096)),
                )
                .await;
            (hung, answer.expect("an answer").status)
        });
        while in_flight(&control) == 0 {
            reactor::sleep(Duration::from_millis(20)).await;
        }
        let text = text.replace("{port}", &server.port().to_string());
        server.reconfigure(&text.replace(", { lun = 1, volume = \"b\" }]", "]"));
        let server = &server;
        let reloading = thread::scope(|scope| scope.spawn(|| reload(server, &["--force"])).join());
        let said = reloading.expect("no panic").said;
        assert!(said.contains("- volume b"), "{said}");
        let (hung, status) = write.await;
        assert_eq!(status, 0x40, "TASK ABORTED");
        let gone = hung
            .command(cdb::test_unit_ready(), Transfer::None)
            .await
            .expect("an answer");
        assert_eq!(
            gone.sense.map(|sense| (sense.key, sense.code)),
            Some((5, 0x25)),
            "no such LUN"
        );
        assert_eq!(numbers(&lun).await, [0]);
        lun.close().await;
    });
    server.signal("KILL"); // its device is permanently unresponsive
    server.ended();
}

/// The peer determines the duration of a login. Regression: a login kept the volumes open that existed at its
/// start.
#[test]
fn a_volume_is_replaced_while_logins_are_in_progress() {
    let nbd = free_port();
    let text =
        format!("{BASE}[nbd]\nlisten = [\"127.0.0.1:{nbd}\"]\n[[nbd.export]]\nvolume = \"b\"\n");
    let mut server = or_skip!(Server::configured(&text));
    let mut client = TcpStream::connect(("127.0.0.1", nbd)).expect("a listener");
    client
        .read_exact(&mut [0; 18])
        .expect("the greeting of NBD");
    let mut initiator = TcpStream::connect(("127.0.0.1", server.port())).expect("a listener");
    let mut keys = format!(
        "InitiatorName=iqn.2000-01.com.example:i\0TargetName={TARGET}\0SessionType=Normal\0"
    )
    .into_bytes();
    let mut header = [0; 48];
    header[0] = 0x43; // a login request in the security stage, which it does not ask to leave
    header[5..8].copy_from_slice(&(keys.len() as u32).to_be_bytes()[1..]);
    header[8] = 0x80; // an ISID
    keys.resize(keys.len().next_multiple_of(4), 0);
    initiator
        .write_all(&[&header[..], &keys].concat())
        .expect("sent");
    initiator.read_exact(&mut header).expect("a login response");
    assert_eq!(
        (header[0] & 0x3f, header[36]),
        (0x23, 0),
        "a login that continues: {header:02x?}"
    );
    let text = text.replace("{port}", &server.port().to_string());
    server.reconfigure(&text.replace("ram:4MiB", "ram:1MiB"));
    let said = reload(&server, &[]).expect_success();
    assert!(!said.contains("not closed"), "{said}");
    in_a_world(async {
        let lun = attached(&url(server.port(), 1)).await;
        assert_eq!(lun.geometry().blocks, Blocks(2048));
        lun.close().await;
    });
    server.stop();
}

/// A volume has two LUNs. When one is removed, the commands of the other continue.
#[test]
fn a_second_lun_of_a_volume_can_be_taken_away_while_the_first_is_at_work() {
    let text = BASE
        .replace("ram:8MiB", "fault:[ram:8MiB]")
        .replace("volume = \"b\"", "volume = \"a\"");
    let mut server = or_skip!(Server::configured(&text));
    let control = server.state().join("control").display().to_string();
    in_a_world(async {
        let lun = attached(&url(server.port(), 0)).await;
        server
            .ask(&["server", "fault", "a", "hang"])
            .expect_success();
        let read = reactor::spawn(async move {
            let answer = lun
                .command(
                    cdb::read_16(0, 8),
                    Transfer::into_all_of(Buffer::zeroed(4096)),
                )
                .await;
            (lun, answer.expect("an answer").status)
        });
        while in_flight(&control) == 0 {
            reactor::sleep(Duration::from_millis(20)).await;
        }
        let text = text.replace("{port}", &server.port().to_string());
        server.reconfigure(&text.replace(", { lun = 1, volume = \"a\" }]", "]"));
        let said = reload(&server, &["--force"]).expect_success();
        assert!(said.contains("LUN 1 = a"), "{said}");
        server
            .ask(&["server", "fault", "a", "pass"])
            .expect_success();
        let (lun, status) = read.await;
        assert_eq!(status, 0, "GOOD");
        assert_eq!(numbers(&lun).await, [0]);
        lun.close().await;
    });
    server.stop();
}

fn in_flight(control: &str) -> u64 {
    let said = linerate(&["server", "sessions", "--json", "--control", control]).expect_success();
    let sessions = listed("sessions", &said);
    sessions
        .iter()
        .filter_map(|session| session["in_flight"].as_u64())
        .sum()
}

#[test]
fn a_target_that_is_gone_asks_its_initiators_to_log_out() {
    let server = or_skip!(served(
        |text| text.replace("com.example:t", "com.example:other")
    ));
    in_a_world(async {
        let lun = attached(&url(server.port(), 0)).await;
        assert_eq!(reload(&server, &[]).status.code(), Some(2), "it is in use");
        reload(&server, &["--force"]).expect_success();
        let answer = lun.command(cdb::test_unit_ready(), Transfer::None).await;
        assert!(
            !answer.is_ok_and(|answer| answer.status == 0),
            "there is no such LUN any more"
        );
        drop(lun);
    });
    until("a log line about the logout", || {
        server.log().is_empty() || sessions_of(&server) == 0
    });
}

fn sessions_of(server: &Server) -> usize {
    let said = server
        .ask(&["server", "sessions", "--json"])
        .expect_success();
    listed("sessions", &said).len()
}

#[test]
fn a_mistake_changes_nothing_and_is_shown_at_its_place() {
    let mut server = or_skip!(served(|text| text.replace("ram:4MiB", "ram:4MyB")));
    let refused = reload(&server, &["--force"]);
    assert_eq!(refused.status.code(), Some(2));
    says(&refused.said, &["linerate.toml:7:13: unknown unit `MyB`"]);
    // A volume that cannot be opened and an address in use are also detected before anything changes.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let text = BASE
        .replace("{port}", &server.port().to_string())
        .replace("lun = 1", "lun = 2");
    let portal = format!(
        "[[portal]]\nlisten = \"{}\"\n",
        taken.local_addr().expect("its address")
    );
    for (text, says) in [
        (
            text.replace("ram:4MiB", "file:/nowhere/b")
                .replace("\"b\"", "\"x\"")
                .replace("volume.b", "volume.x"),
            "volume x",
        ),
        (format!("{text}{portal}"), "cannot listen on"),
    ] {
        server.reconfigure(&text);
        let refused = reload(&server, &["--force"]);
        assert_eq!(refused.status.code(), Some(2), "{}", refused.said);
        assert!(refused.said.contains(says), "{}", refused.said);
    }
    in_a_world(async {
        let lun = attached(&url(server.port(), 0)).await;
        assert_eq!(numbers(&lun).await, [0, 1]);
        lun.close().await;
    });
    server.stop();
}

#[test]
fn a_hangup_has_the_configuration_read_again() {
    // Nothing is removed: initiators, below, are logged in at the same time, and resources in use stay.
    let more = "volume = \"b\" }, { lun = 2, volume = \"b\" }]";
    let Some(mut server) = served(|text| text.replace("volume = \"b\" }]", more)) else {
        return;
    };
    server.signal("HUP");
    in_a_world(async {
        let mut is_there = false;
        while !is_there {
            let lun = attached(&url(server.port(), 0)).await;
            is_there = numbers(&lun).await == [0, 1, 2];
            lun.close().await;
        }
    });
    server.stop();
}

/// SPC-4 6.6.1: every session that uses a LUN is notified when its INQUIRY data changes, and none without a
/// reason.
#[test]
fn a_lun_whose_inquiry_data_change_says_so_to_every_session() {
    let mut server = or_skip!(Server::configured(BASE));
    let base = BASE.replace("{port}", &server.port().to_string());
    let with = |keys: &str| base.replace("ram:4MiB\"", &format!("ram:4MiB\"\n{keys}"));
    let slow = |text: String| text.replace("ram:4MiB", "delay:0ms:[ram:4MiB]");
    in_a_world(async {
        let luns = [
            attached(&url(server.port(), 1)).await,
            attached(&url(server.port(), 1)).await,
        ];
        for (text, is_changed) in [
            (with("product = \"other\""), true),
            (with("serial = \"B12\""), true),
            (slow(with("serial = \"B12\"")), false),
            (with("naa = \"0x60014056f2d4c1e8a3b4f5d9c7e1b2a3\""), true),
            (base.replace("ram:4MiB", "ram:4MiB?block=4096"), true),
        ] {
            server.reconfigure(&text);
            reload(&server, &["--force"]).expect_success();
            for lun in &luns {
                let told = attentions(lun).await;
                assert!(told.contains(&(0x29, 0x00)), "POWER ON: {told:x?}");
                assert_eq!(
                    told.contains(&(0x3f, 0x03)),
                    is_changed,
                    "{told:x?} after {text}"
                );
            }
        }
        for lun in luns {
            lun.close().await;
        }
    });
    server.stop();
}

/// Codes and qualifiers of the pending unit attentions of a LUN.
async fn attentions(lun: &RemoteLun) -> Vec<(u8, u8)> {
    let mut told = Vec::new();
    loop {
        let answer = lun
            .command(cdb::test_unit_ready(), Transfer::None)
            .await
            .expect("an answer");
        let Some(sense) = answer.sense else {
            return told;
        };
        assert!(sense.is_unit_attention(), "{sense:x?}");
        told.push((sense.code, sense.qualifier));
    }
}

/// Identity and reservations are stored under a volume's name, and move with it.
#[test]
fn a_volume_that_gets_another_name_is_the_same_after_a_restart() {
    let mut server = or_skip!(served(|text| {
        text.replace("[volume.b]", "[volume.c]\nprevious-name = \"b\"")
            .replace("volume = \"b\"", "volume = \"c\"")
    }));
    let identity = |server: &Server| {
        let said = run(
            "iscsi-inq",
            &["-e", "1", "-c", "131", &url(server.port(), 1)],
        )
        .expect_success();
        said.lines()
            .filter(|line| line.contains("Designator:"))
            .collect::<String>()
    };
    needs!(installed(&["iscsi-inq"]));
    let before = identity(&server);
    let said = reload(&server, &[]).expect_success();
    assert!(said.contains("~ volume b is renamed to c"), "{said}");
    assert_eq!(identity(&server), before);
    assert!(
        server.state().join("volumes/c/uuid").exists()
            && !server.state().join("volumes/b").exists()
    );
    server.stop();
    server.restart();
    assert_eq!(identity(&server), before);
    server.stop();
}

/// The reservations of another volume are already stored under the new name.
#[test]
fn no_volume_takes_over_what_is_kept_under_the_name_of_another() {
    let mut server = or_skip!(served(|text| {
        text.replace("[volume.b]", "[volume.c]\nprevious-name = \"b\"")
            .replace("volume = \"b\"", "volume = \"c\"")
    }));
    std::fs::create_dir(server.state().join("volumes/c")).expect("a folder");
    let refused = reload(&server, &["--force"]);
    assert_eq!(refused.status.code(), Some(2), "{}", refused.said);
    says(&refused.said, &["volume b cannot be renamed to c"]);
    in_a_world(async {
        let lun = attached(&url(server.port(), 1)).await;
        assert_eq!(numbers(&lun).await, [0, 1]);
        lun.close().await;
    });
    server.stop();
}

/// A volume that cannot be changed keeps its old configuration, and the next reload retries the change.
#[test]
fn what_cannot_be_opened_again_stays_what_it_was() {
    let mut server = or_skip!(Server::configured(BASE));
    let state = server.state().to_owned();
    let text = BASE.replace("{port}", &server.port().to_string());
    server.reconfigure(&text.replace("ram:4MiB", &format!("file:{}/late", state.display())));
    let failed = reload(&server, &[]);
    assert_eq!(failed.status.code(), Some(1), "{}", failed.said);
    says(&failed.said, &["the volume is unchanged"]);
    let blocks = |server: &Server| {
        in_a_world(async {
            let lun = attached(&url(server.port(), 1)).await;
            let blocks = lun.geometry().blocks;
            lun.close().await;
            blocks
        })
    };
    assert_eq!(blocks(&server), Blocks(8192));
    std::fs::write(state.join("late"), vec![0; 1 << 20]).expect("a file");
    reload(&server, &[]).expect_success();
    assert_eq!(blocks(&server), Blocks(2048));
    server.stop();
}

/// Regression: the set held the locks of all volumes that were opened together with it.
#[test]
fn a_volume_that_was_first_served_beside_a_raid_set_can_be_opened_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| format!("file:{}?size=64MiB", folder.path().join(name).display());
    let set = format!("raid1:[{},{}]", file("one"), file("two"));
    linerate(&["raid", "create", &set, "--yes"]).expect_success();
    let base = BASE
        .replace("ram:8MiB", &set)
        .replace("ram:4MiB", &file("disk"));
    let mut server = or_skip!(Server::configured(&base));
    let text = base.replace("{port}", &server.port().to_string());
    server.reconfigure(&text.replace("/disk?size=64MiB", "/disk?size=64MiB&direct=off"));
    reload(&server, &[]).expect_success();
    in_a_world(async {
        let lun = attached(&url(server.port(), 1)).await;
        assert_eq!(lun.geometry().blocks, Blocks(64 << 11));
        lun.close().await;
    });
    server.stop();
}

/// A server may be killed at any point of a reload. The next start must serve the file's configuration, and a
/// renamed volume must still be the same volume.
#[test]
fn a_server_that_is_killed_in_the_middle_of_a_reload_serves_the_new_configuration_next() {
    let mut server = or_skip!(Server::configured(BASE));
    let base = BASE.replace("{port}", &server.port().to_string());
    let text = |round: u64| {
        let (name, previous) = (format!("n{round}"), format!("n{}", round.wrapping_sub(1)));
        let renamed = format!(
            "[volume.{name}]\nprevious-name = \"{}\"",
            if round == 0 { "b" } else { &previous }
        );
        let text = base
            .replace("[volume.b]", &renamed)
            .replace("\"b\" }", &format!("\"{name}\" }}"));
        text.replace("lun = 1,", &format!("lun = {},", 1 + round % 2))
    };
    let uuid = std::fs::read_to_string(server.state().join("volumes/b/uuid")).expect("an identity");
    for round in 0..12 {
        server.reconfigure(&text(round));
        let control = server.state().join("control").display().to_string();
        let mut asking = Command::new(LINERATE);
        asking.args(["server", "reload", "--force", "--control", &control]);
        asking
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null());
        let mut asking = asking.spawn().expect("the linerate binary");
        thread::sleep(Duration::from_millis(7 * round)); // before, during or after the reload
        server.kill();
        asking.wait().expect("its end");
        server.restart();
        in_a_world(async {
            let lun = attached(&url(server.port(), 0)).await;
            assert_eq!(numbers(&lun).await, [0, 1 + round % 2], "round {round}");
            lun.close().await;
        });
        let path = server.state().join(format!("volumes/n{round}/uuid"));
        assert_eq!(
            std::fs::read_to_string(path).expect("an identity"),
            uuid,
            "round {round}"
        );
    }
    server.stop();
}
