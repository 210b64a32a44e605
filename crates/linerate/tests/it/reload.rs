//! What a server serves changes while it serves: by `linerate reload` and by SIGHUP.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use block::{BlockDevice, Blocks, Buffer, Durability, Extent};
use initiator::verbs::LunSelection;
use initiator::{RemoteLun, Transfer, cdb};

use crate::program::{Ended, installed, run, run_command, until};
use crate::remote::{attached, in_a_world};
use crate::server::{Server, free_port};

const LINERATE: &str = env!("CARGO_BIN_EXE_linerate");
const TARGET: &str = "iqn.2026-01.com.example:t";

fn reload(server: &Server, options: &[&str]) -> Ended {
    let control = server.state().join("control").display().to_string();
    run(LINERATE, &[&["reload", "--control", &control], options].concat())
}

fn url(port: u16, lun: u16) -> String {
    format!("iscsi://127.0.0.1:{port}/{TARGET}/{lun}")
}

/// The sense key and code with which TEST UNIT READY is refused, if it is.
async fn attention(lun: &RemoteLun) -> Option<(u8, u8, u8)> {
    let answer = lun.command(cdb::test_unit_ready(), Transfer::None).await.expect("an answer");
    answer.sense.map(|sense| (sense.key, sense.code, sense.qualifier))
}

async fn numbers(lun: &RemoteLun) -> Vec<u64> {
    let luns = lun.unit().report_luns(LunSelection::Ordinary).await.expect("REPORT LUNS");
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

/// A server of [`BASE`], and what it is told to serve then.
fn served(change: impl FnOnce(String) -> String) -> Option<Server> {
    let mut server = Server::configured(BASE)?;
    let text = change(BASE.replace("{port}", &server.port().to_string()));
    server.reconfigure(&text);
    Some(server)
}

#[test]
fn a_lun_that_is_added_is_seen_without_another_login() {
    let Some(mut server) = Server::configured(BASE) else { return };
    in_a_world(async {
        let lun = attached(&url(server.port(), 0)).await;
        assert_eq!(numbers(&lun).await, [0, 1]);
        let text = BASE.replace("{port}", &server.port().to_string());
        let more = "{ lun = 1, volume = \"b\" }, { lun = 300, volume = \"c\" }]";
        let text = text.replace("{ lun = 1, volume = \"b\" }]", more);
        server.reconfigure(&format!("{text}[volume.c]\nspec = \"ram:1MiB\"\n"));
        let said = reload(&server, &[]).expect_success();
        assert!(said.contains("+ volume c = ram:1MiB"), "{said}");
        assert_eq!(attention(&lun).await, Some((6, 0x3f, 0x0e)), "REPORTED LUNS DATA HAS CHANGED");
        assert_eq!(attention(&lun).await, None, "it is told once");
        assert_eq!(numbers(&lun).await, [0, 1, 0x4000 + 300]);
        let new = lun.target().lun(300).await.expect("the new LUN");
        assert_eq!(new.geometry().blocks, Blocks(2048));
        drop(new);
        lun.close().await;
    });
    server.stop();
}

#[test]
fn what_is_in_use_is_taken_away_by_force_alone() {
    let Some(mut server) = served(|text| text.replace(", { lun = 1, volume = \"b\" }]", "]")) else { return };
    in_a_world(async {
        let lun = attached(&url(server.port(), 0)).await;
        let refused = reload(&server, &[]);
        assert_eq!(refused.status.code(), Some(2), "{}", refused.said);
        assert!(refused.said.contains("uses LUN 1 of iqn.2026-01.com.example:t"), "{}", refused.said);
        assert_eq!(attention(&lun).await, None, "nothing has changed");
        assert_eq!(numbers(&lun).await, [0, 1]);
        let told = reload(&server, &["--dry-run"]).expect_success();
        assert!(told.contains("- volume b") && told.contains("in use:"), "{told}");
        reload(&server, &["--force"]).expect_success();
        assert_eq!(attention(&lun).await, Some((6, 0x3f, 0x0e)));
        assert_eq!(numbers(&lun).await, [0]);
        lun.close().await;
    });
    server.stop();
}

/// A command that its device does not answer ends with its LUN, and keeps neither the reload nor the other LUN waiting.
#[test]
fn a_lun_whose_device_hangs_can_be_taken_away() {
    let text = BASE.replace("ram:4MiB", "fault:[ram:4MiB]");
    let Some(mut server) = Server::configured(&text) else { return };
    let control = server.state().join("control").display().to_string();
    in_a_world(async {
        let (lun, hung) = (attached(&url(server.port(), 0)).await, attached(&url(server.port(), 1)).await);
        run(LINERATE, &["fault", "b", "hang", "--control", &control]).expect_success();
        let write = reactor::spawn(async move {
            let answer = hung.command(cdb::read_16(0, 8), Transfer::into_all_of(Buffer::zeroed(4096))).await;
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
        let gone = hung.command(cdb::test_unit_ready(), Transfer::None).await.expect("an answer");
        assert_eq!(gone.sense.map(|sense| (sense.key, sense.code)), Some((5, 0x25)), "no such LUN");
        assert_eq!(numbers(&lun).await, [0]);
        lun.close().await;
    });
    server.signal("KILL"); // its device hangs for good
    server.ended();
}

fn in_flight(control: &str) -> u64 {
    let said = run(LINERATE, &["sessions", "--json", "--control", control]).expect_success();
    let sessions: Vec<serde_json::Value> = serde_json::from_str(&said).expect("JSON");
    sessions.iter().filter_map(|session| session["in_flight"].as_u64()).sum()
}

#[test]
fn a_target_that_is_gone_asks_its_initiators_to_log_out() {
    let Some(server) = served(|text| text.replace("com.example:t", "com.example:other")) else { return };
    in_a_world(async {
        let lun = attached(&url(server.port(), 0)).await;
        assert_eq!(reload(&server, &[]).status.code(), Some(2), "it is in use");
        reload(&server, &["--force"]).expect_success();
        let answer = lun.command(cdb::test_unit_ready(), Transfer::None).await;
        assert!(!answer.is_ok_and(|answer| answer.status == 0), "there is no such LUN any more");
        drop(lun);
    });
    until("a log line about the logout", || server.log().is_empty() || sessions_of(&server) == 0);
}

fn sessions_of(server: &Server) -> usize {
    let control = server.state().join("control").display().to_string();
    let said = run(LINERATE, &["sessions", "--json", "--control", &control]).expect_success();
    serde_json::from_str::<Vec<serde_json::Value>>(&said).expect("JSON").len()
}

#[test]
fn a_mistake_changes_nothing_and_is_shown_at_its_place() {
    let Some(mut server) = served(|text| text.replace("ram:4MiB", "ram:4MyB")) else { return };
    let refused = reload(&server, &["--force"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(refused.said.contains("linerate.toml:7:13: unknown unit `MyB`"), "{}", refused.said);
    // A volume that cannot be opened and an address that is taken are found out before anything changes, too.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let text = BASE.replace("{port}", &server.port().to_string()).replace("lun = 1", "lun = 2");
    let portal = format!("[[portal]]\nlisten = \"{}\"\n", taken.local_addr().expect("its address"));
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
    // Nothing is taken away: who looks, below, is logged in meanwhile, and what is in use stays.
    let more = "volume = \"b\" }, { lun = 2, volume = \"b\" }]";
    let Some(mut server) = served(|text| text.replace("volume = \"b\" }]", more)) else { return };
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

/// Identity and reservations are kept under a volume's name, and move with it.
#[test]
fn a_volume_that_gets_another_name_is_the_same_after_a_restart() {
    let Some(mut server) = served(|text| {
        text.replace("[volume.b]", "[volume.c]\nprevious-name = \"b\"")
            .replace("volume = \"b\"", "volume = \"c\"")
    }) else {
        return;
    };
    let identity = |server: &Server| {
        let said = run("iscsi-inq", &["-e", "1", "-c", "131", &url(server.port(), 1)]).expect_success();
        said.lines().filter(|line| line.contains("Designator:")).collect::<String>()
    };
    if !installed(&["iscsi-inq"]) {
        return;
    }
    let before = identity(&server);
    let said = reload(&server, &[]).expect_success();
    assert!(said.contains("~ volume b is called c now"), "{said}");
    assert_eq!(identity(&server), before);
    assert!(server.state().join("volumes/c/uuid").exists() && !server.state().join("volumes/b").exists());
    server.stop();
    server.restart();
    assert_eq!(identity(&server), before);
    server.stop();
}

/// What a server is to serve, as a value: the truth that initiators are held against.
struct Wanted {
    /// LUNs beside 0 and 1, with their sizes in MiB.
    more: BTreeMap<u16, u64>,
    file_mib: u64,
    file_name: u64,
    secret: u64,
    second_portal: Option<u16>,
    deadline_s: u64,
    sessions: u64,
}

impl Wanted {
    fn text(&self, port: u16, state: &Path) -> String {
        let mut text = format!("[[portal]]\nlisten = \"127.0.0.1:{port}\"\n");
        let mut put = |part: String| text.write_str(&part).expect("memory");
        if let Some(port) = self.second_portal {
            put(format!("[[portal]]\nlisten = \"127.0.0.1:{port}\"\n"));
        }
        put(format!("[limits]\nsessions = {}\n", self.sessions));
        put(format!("[volume.a]\nspec = \"ram:8MiB\"\ndeadline = \"{}s\"\n", self.deadline_s));
        put(format!(
            "[volume.f{}]\nspec = \"file:{}/f?size={}MiB\"\n{}",
            self.file_name,
            state.display(),
            self.file_mib,
            self.file_name
                .checked_sub(1)
                .map(|name| format!("previous-name = \"f{name}\"\n"))
                .unwrap_or_default(),
        ));
        for (lun, mib) in &self.more {
            put(format!("[volume.v{lun}]\nspec = \"ram:{mib}MiB\"\n"));
        }
        put(format!(
            "[volume.s]\nspec = \"ram:1MiB\"\n[[target]]\nname = \"{TARGET}\"\nlun = [{{ lun = 0, volume = \"a\" }}"
        ));
        put(format!(", {{ lun = 1, volume = \"f{}\" }}", self.file_name));
        for lun in self.more.keys() {
            put(format!(", {{ lun = {lun}, volume = \"v{lun}\" }}"));
        }
        put(format!(
            "]\n[[target]]\nname = \"iqn.2026-01.com.example:s\"\nlun = [{{ lun = 0, volume = \"s\" }}]\n\
             [target.chap]\n[[target.chap.account]]\nuser = \"alice\"\nsecret = \"correct-horse-{:06}\"\n",
            self.secret
        ));
        text
    }

    fn change(&mut self, random: &mut impl FnMut(u64) -> u64) {
        match random(8) {
            0 => {
                let lun = 2 + random(6) as u16;
                self.more.insert(lun, 1 + random(3));
            }
            1 | 2 => {
                let lun = 2 + random(6) as u16;
                self.more.remove(&lun);
            }
            3 => self.file_mib += 1,
            4 => self.file_name += 1,
            5 => self.secret += 1,
            6 => {
                self.second_portal = match self.second_portal {
                    Some(_) => None,
                    None => Some(free_port()),
                }
            }
            _ => (self.deadline_s, self.sessions) = (10 + random(50), 100 + random(50)),
        }
    }
}

/// Writes and reads blocks of its own until it is told to stop; everything must be there, and no request may fail. Returns
/// how many requests there were, and the longest.
fn load(url: String, first: u64, is_over: Arc<AtomicBool>) -> JoinHandle<(u64, Duration)> {
    thread::spawn(move || {
        in_a_world(async {
            let lun = attached(&url).await;
            let (mut requests, mut longest) = (0, Duration::ZERO);
            while !is_over.load(Relaxed) {
                let begun = Instant::now();
                let (extent, stamp) = (Extent::new(first + requests % 64 * 8, 8), requests as u8);
                let data = Buffer::from(&[stamp; 4096][..]).share();
                lun.write(extent, data, Durability::Cached).await.expect("nothing is wrong with LUN 0");
                let read = lun.read(extent, Buffer::zeroed(4096)).await.expect("nor is with reading it");
                assert!(read.iter().all(|byte| *byte == stamp));
                requests += 1;
                longest = longest.max(begun.elapsed());
            }
            lun.close().await;
            (requests, longest)
        })
    })
}

#[test]
fn two_hundred_changes_disturb_nobody_whom_they_do_not_concern() {
    const CHANGES: usize = 200;
    let mut wanted = Wanted {
        more: BTreeMap::new(),
        file_mib: 1,
        file_name: 0,
        secret: 0,
        second_portal: None,
        deadline_s: 30,
        sessions: 100,
    };
    let Some(mut server) = Server::configured(&BASE.replace("{ lun = 1, volume = \"b\" }", "")) else {
        return;
    };
    let (port, state) = (server.port(), server.state().to_owned());
    server.reconfigure(&wanted.text(port, &state));
    reload(&server, &["--force"]).expect_success();
    let is_over = Arc::new(AtomicBool::new(false));
    let loads: Vec<_> =
        [0, 4096].map(|first| load(url(port, 0), first, Arc::clone(&is_over))).into_iter().collect();
    let mut state_of = 0x2026_1124_u64;
    let mut random = |below: u64| {
        state_of = state_of.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state_of >> 33) % below
    };
    in_a_world(async {
        let (looking, file) = (attached(&url(port, 0)).await, attached(&url(port, 1)).await);
        for change in 0..CHANGES {
            wanted.change(&mut random);
            server.reconfigure(&wanted.text(port, &state));
            let ended = reload(&server, &["--force"]);
            assert!(ended.status.success(), "change {change}: {}", ended.said);
            let mut expected: Vec<u64> = vec![0, 1];
            expected.extend(wanted.more.keys().map(|lun| u64::from(*lun)));
            assert_eq!(numbers(&looking).await, expected, "change {change}: {}", ended.said);
            file.refresh().await.expect("the LUN answers");
            assert_eq!(
                file.geometry().blocks,
                Blocks(wanted.file_mib * 2048),
                "change {change}: {}",
                ended.said
            );
            for (lun, mib) in &wanted.more {
                let more = looking.target().lun(*lun).await.expect("a LUN");
                assert_eq!(more.geometry().blocks, Blocks(mib * 2048), "change {change}, LUN {lun}");
            }
            if let Some(port) = wanted.second_portal {
                attached(&url(port, 0)).await.close().await;
            }
            let by = |number| {
                let url = format!("iscsi://alice@127.0.0.1:{port}/iqn.2026-01.com.example:s/0");
                let mut command = Command::new(LINERATE);
                command.args(["info", &url]).env("LINERATE_SECRET", format!("correct-horse-{number:06}"));
                run_command(&mut command).status.success()
            };
            if change % 20 == 0 {
                assert!(by(wanted.secret), "change {change}");
                assert!(!by(wanted.secret + 1), "change {change}");
            }
        }
        for lun in [looking, file] {
            lun.close().await;
        }
    });
    is_over.store(true, Relaxed);
    for load in loads {
        let (requests, longest) = load.join().expect("no request failed");
        println!("{requests} writes and reads, the longest pair {longest:?}");
        assert!(requests > 0);
    }
    server.stop();
}

/// Somebody's reservations are kept under the name already.
#[test]
fn no_volume_takes_over_what_is_kept_under_the_name_of_another() {
    let Some(mut server) = served(|text| {
        text.replace("[volume.b]", "[volume.c]\nprevious-name = \"b\"")
            .replace("volume = \"b\"", "volume = \"c\"")
    }) else {
        return;
    };
    std::fs::create_dir(server.state().join("volumes/c")).expect("a folder");
    let refused = reload(&server, &["--force"]);
    assert_eq!(refused.status.code(), Some(2), "{}", refused.said);
    assert!(refused.said.contains("volume b cannot be called c"), "{}", refused.said);
    in_a_world(async {
        let lun = attached(&url(server.port(), 1)).await;
        assert_eq!(numbers(&lun).await, [0, 1]);
        lun.close().await;
    });
    server.stop();
}

/// A volume that cannot become what it is to be stays what it was, and the next reload tries again.
#[test]
fn what_cannot_be_opened_again_stays_what_it_was() {
    let Some(mut server) = Server::configured(BASE) else { return };
    let state = server.state().to_owned();
    let text = BASE.replace("{port}", &server.port().to_string());
    server.reconfigure(&text.replace("ram:4MiB", &format!("file:{}/late", state.display())));
    let failed = reload(&server, &[]);
    assert_eq!(failed.status.code(), Some(1), "{}", failed.said);
    assert!(failed.said.contains("it stays what it was"), "{}", failed.said);
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

/// Wherever a reload is when its server is killed: the next start serves what the file says, and the volume that was to have
/// another name is the one that it was.
#[test]
fn a_server_that_is_killed_in_the_middle_of_a_reload_serves_the_new_configuration_next() {
    let Some(mut server) = Server::configured(BASE) else { return };
    let base = BASE.replace("{port}", &server.port().to_string());
    let text = |round: u64| {
        let (name, previous) = (format!("n{round}"), format!("n{}", round.wrapping_sub(1)));
        let renamed =
            format!("[volume.{name}]\nprevious-name = \"{}\"", if round == 0 { "b" } else { &previous });
        let text = base.replace("[volume.b]", &renamed).replace("\"b\" }", &format!("\"{name}\" }}"));
        text.replace("lun = 1,", &format!("lun = {},", 1 + round % 2))
    };
    let uuid = std::fs::read_to_string(server.state().join("volumes/b/uuid")).expect("an identity");
    for round in 0..12 {
        server.reconfigure(&text(round));
        let control = server.state().join("control").display().to_string();
        let mut asking = Command::new(LINERATE);
        asking.args(["reload", "--force", "--control", &control]);
        asking.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut asking = asking.spawn().expect("the linerate binary");
        thread::sleep(Duration::from_millis(7 * round)); // anywhere: before it, in it, behind it
        server.kill();
        asking.wait().expect("its end");
        server.restart();
        in_a_world(async {
            let lun = attached(&url(server.port(), 0)).await;
            assert_eq!(numbers(&lun).await, [0, 1 + round % 2], "round {round}");
            lun.close().await;
        });
        let path = server.state().join(format!("volumes/n{round}/uuid"));
        assert_eq!(std::fs::read_to_string(path).expect("an identity"), uuid, "round {round}");
    }
    server.stop();
}
