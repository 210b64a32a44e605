//! Tests of configuration changes of all kinds, chosen by a seed, while two initiators keep a verified load
//! on a LUN that is never removed. After each change, the server, its file and the initiators' view are
//! compared with a model of the wanted configuration.
//!
//! `cargo measure changes` makes 200 of them and prints the longest pauses; the test makes fewer.
//! `LINERATE_CHANGES` sets their number, and `LINERATE_SEED` the seed.

pub(crate) mod dialogue;
mod loads;
mod model;

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use block::{BlockDevice as _, Blocks};
use iscsi_client::verbs::LunSelection;
use iscsi_client::{RemoteLun, Transfer, cdb};
use serde_json::Value;

use self::dialogue::Dialogue;
use self::loads::Progress;
use self::model::{INITIATORS, Model, SECRET_TARGET, Seen, TARGET};
use crate::program::{Ended, LINERATE, end_of, installed, linerate, run_command, until};
use crate::remote::{attached, in_a_world};
use crate::server::Server;

/// A thread that is later than this has waited for a core, which may also have delayed the completion of a
/// request.
const CALM: Duration = Duration::from_millis(5);

/// The unit attentions that changes may raise on a LUN that stays.
const LUNS_CHANGED: &str = "3f/0e";
const CAPACITY_CHANGED: &str = "2a/09";

/// A number from an environment variable, or the default.
fn number(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |text| {
        text.parse().unwrap_or_else(|_| panic!("{variable}={text}"))
    })
}

#[test]
fn changes_disturb_no_load_and_initiators_see_them_without_another_login() {
    let (changes, seed) = (
        number("LINERATE_CHANGES", 40),
        number("LINERATE_SEED", 20_261_124),
    );
    println!("{changes} changes of LINERATE_SEED={seed}");
    let mut scene = or_skip!(Scene::begin(seed));
    let progress = Arc::new(Progress::default());
    let clock = loads::clock(Arc::clone(&progress));
    let ours = loads::ours(scene.server.port(), Arc::clone(&progress));
    let qemu = loads::qemu(scene.server.port(), Arc::clone(&progress));
    let all = 2 + usize::from(qemu.is_some());
    until("the loads have begun", || {
        progress.started.load(Relaxed) == all || ours.is_finished()
    });
    let sessions = scene.sessions();
    let begun = Instant::now();
    scene.change(changes, &progress);
    let time = begun.elapsed();
    progress
        .end_bytes
        .store(scene.model.seen()[&0].mib << 20, Relaxed);
    let after = scene.sessions();
    assert!(
        after.is_superset(&sessions),
        "the loads have logged in again: {sessions:?}, now {after:?}"
    );
    progress.is_over.store(true, Relaxed);
    let clock = clock.join().expect("no panic");
    let is_calm = |change: usize| clock.longest.get(&change).is_some_and(|late| *late < CALM);
    let calm = (1..=changes as usize)
        .filter(|change| is_calm(*change))
        .count();
    println!(
        "{:.1} s; this machine was never late by {CALM:?} during {calm} of {changes} changes",
        time.as_secs_f64()
    );
    for (name, load) in [("our initiator", Some(ours)), ("QEMU (libiscsi)", qemu)] {
        let Some(timing) = load.map(|load| load.join().expect("no request failed")) else {
            continue;
        };
        let shown = |longest| match longest {
            Some((time, change)) => format!("{time:.1?} (change {change})"),
            None => "none".to_owned(),
        };
        let (all, calm) = (
            shown(timing.longest(|_| true)),
            shown(timing.longest(is_calm)),
        );
        println!(
            "{name}: {} requests, the longest {all}, during those changes {calm}",
            timing.requests
        );
    }
    scene.server.stop();
}

/// A server may be killed at any point of a change. The next start must then serve the configuration in the
/// file, which is either the old or the new one, with the same volumes.
#[test]
fn a_server_that_is_killed_in_the_middle_of_a_change_serves_the_old_or_the_new_configuration_next()
{
    let (kills, seed) = (
        number("LINERATE_CHANGES", 30),
        number("LINERATE_SEED", 20_261_125),
    );
    println!("{kills} changes of LINERATE_SEED={seed}");
    let mut scene = or_skip!(Scene::begin(seed));
    let identities = scene.identities();
    let (mut olds, mut news) = (0, 0);
    for number in 1..=kills {
        let before = scene.model.clone();
        let change = scene.model.change();
        let what = format!("change {number}: {}", change.what);
        if change.command.is_none() {
            scene.server.reconfigure(&scene.model.text());
        }
        let words = change
            .command
            .clone()
            .unwrap_or_else(|| vec!["reload".to_owned()]);
        let forced = words[0] == "reload";
        let mut asking = Command::new(LINERATE);
        asking
            .arg("server")
            .args(words)
            .args(forced.then_some("--force"))
            .arg("--control")
            .arg(scene.server.state().join("control"));
        let mut asking = asking
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the linerate binary");
        // Kill the server at a random time: before, during or after the change.
        thread::sleep(Duration::from_millis(scene.model.below(40)));
        scene.server.kill();
        end_of(&mut asking);
        scene.server.restart();
        let served = scene.served();
        let is_new = served == scene.model.served();
        // A file written by another program is the new configuration; the server itself writes it last.
        if !is_new && change.command.is_some() {
            let random = scene.model.clone();
            scene.model = before;
            scene.model.draw_on(&random);
        }
        (olds, news) = (olds + u64::from(!is_new), news + u64::from(is_new));
        assert_eq!(served, scene.model.served(), "{what}");
        for expected in ["as it was written", "as wanted"] {
            let same =
                administer(&scene.server, &["server", "reload", "--dry-run"]).expect_success();
            assert_eq!(same, "no changes\n", "{expected}, {what}");
            scene.server.reconfigure(&scene.model.text());
        }
        assert_eq!(scene.identities(), identities, "{what}");
    }
    println!("{olds} old, {news} new");
    scene.server.stop();
}

fn administer(server: &Server, words: &[&str]) -> Ended {
    server.ask(words)
}

/// A server, and its wanted configuration.
struct Scene {
    server: Server,
    model: Model,
    /// A session of libiscsi that lasts as long as the scene.
    libiscsi: Option<Dialogue>,
}

impl Scene {
    /// A server with the configuration of the first model; `None` if another server is tested.
    fn begin(seed: u64) -> Option<Scene> {
        let first = "[[portal]]\nlisten = \"127.0.0.1:{port}\"\n[volume.first]\nspec = \"ram:1MiB\"\n\
                     [[target]]\nname = \"iqn.2026-01.com.example:first\"\nlun = [{ lun = 0, volume = \"first\" }]\n";
        let mut server = Server::configured(first)?;
        let model = Model::new(seed, server.port(), server.state().to_owned());
        server.reconfigure(&model.text());
        administer(&server, &["server", "reload", "--force"]).expect_success();
        Some(Scene {
            server,
            model,
            libiscsi: None,
        })
    }

    /// The saved identities of the two permanent volumes, whatever their names.
    fn identities(&self) -> [String; 2] {
        let kept = |name: &str| self.server.state().join("volumes").join(name).join("uuid");
        self.model
            .files()
            .map(|name| std::fs::read_to_string(kept(name)).expect("an identity"))
    }

    fn url(&self, lun: u16) -> String {
        format!(
            "iscsi://127.0.0.1:{}/{TARGET}/{lun}?initiator={INITIATORS}observer",
            self.server.port()
        )
    }

    fn change(&mut self, changes: u64, progress: &Progress) {
        self.libiscsi = libiscsi(self.server.port());
        in_a_world(async {
            let (observer, file) = (attached(&self.url(0)).await, attached(&self.url(1)).await);
            for number in 1..=changes {
                progress.change.store(number as usize, Relaxed);
                let before = self.model.seen();
                let change = self.model.change();
                let what = format!("change {number}: {}", change.what);
                println!("{what}");
                self.carry_out(change.command.as_deref(), &what);
                for (number, lun) in [(0, &observer), (1, &file)] {
                    let expected = attentions(number, &before, &self.model.seen());
                    assert_eq!(told(lun).await, expected, "LUN {number} after {what}");
                    if let Some(libiscsi) = &mut self.libiscsi {
                        assert_eq!(
                            libiscsi_told(libiscsi, number),
                            expected,
                            "LUN {number} after {what}"
                        );
                    }
                }
                self.check_luns(&observer, &what).await;
                if let Some(port) = self.model.second_portal() {
                    attached(
                        &self
                            .url(0)
                            .replace(&self.server.port().to_string(), &port.to_string()),
                    )
                    .await
                    .close()
                    .await;
                }
                if number % 5 == 0 {
                    self.check_server(&what);
                }
            }
            for lun in [observer, file] {
                lun.close().await;
            }
        });
    }

    /// Makes a change. Afterwards, the file has the wanted configuration, written by the test or by the
    /// server.
    fn carry_out(&mut self, command: Option<&[String]>, what: &str) {
        let Some(command) = command else {
            self.server.reconfigure(&self.model.text());
            let ended = administer(&self.server, &["server", "reload", "--force"]);
            assert!(ended.status.success(), "{what}: {}", ended.said);
            return;
        };
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let ended = administer(&self.server, &[&["server"], &words[..]].concat());
        assert!(ended.status.success(), "{what}: {}", ended.said);
        let same = administer(&self.server, &["server", "reload", "--dry-run"]).expect_success();
        assert_eq!(
            same, "no changes\n",
            "the file that was written, after {what}"
        );
        self.server.reconfigure(&self.model.text());
        let same = administer(&self.server, &["server", "reload", "--dry-run"]).expect_success();
        assert_eq!(same, "no changes\n", "{what}");
    }

    /// Checks that all LUNs are visible in sessions that are older than the LUNs.
    async fn check_luns(&mut self, observer: &RemoteLun, what: &str) {
        let seen = self.model.seen();
        let luns = observer
            .unit()
            .report_luns(LunSelection::Ordinary)
            .await
            .expect("REPORT LUNS");
        let numbers: Vec<u16> = luns.iter().map(|lun| (lun.0 >> 48) as u16).collect();
        assert!(
            numbers.iter().eq(seen.keys()),
            "{what}: {numbers:?}, {seen:?}"
        );
        for (number, Seen { mib, .. }) in &seen {
            let lun = observer.target().lun(*number).await.expect("a LUN");
            assert_eq!(
                lun.geometry().blocks,
                Blocks(mib * 2048),
                "LUN {number} after {what}"
            );
        }
        let Some(libiscsi) = &mut self.libiscsi else {
            return;
        };
        let numbers = libiscsi.ask("luns");
        assert!(
            numbers.split(' ').eq(seen.keys().map(u16::to_string)),
            "{what}: libiscsi sees {numbers}"
        );
        for (number, Seen { mib, .. }) in &seen {
            libiscsi_told(libiscsi, *number); // a new LUN also reports a unit attention
            let blocks = libiscsi.ask(&format!("blocks {number}"));
            assert_eq!(
                blocks,
                (mib * 2048).to_string(),
                "LUN {number} after {what}"
            );
        }
    }

    /// The volumes listed by the server, in the form of [`Model::served`].
    fn served(&self) -> BTreeMap<String, (u64, BTreeSet<(String, u16)>)> {
        let listed = administer(&self.server, &["server", "volumes", "--json"]).expect_success();
        let listed = crate::sessions::listed("volumes", &listed);
        let place = |lun: &Value| {
            Some((
                lun["target"].as_str()?.to_owned(),
                lun["lun"].as_u64()? as u16,
            ))
        };
        let volume = |volume: &Value| {
            let luns: Option<BTreeSet<_>> = volume["luns"].as_array()?.iter().map(place).collect();
            Some((
                volume["name"].as_str()?.to_owned(),
                (volume["bytes"].as_u64()? >> 20, luns?),
            ))
        };
        let served: Option<BTreeMap<_, _>> = listed.iter().map(volume).collect();
        served.expect("names, sizes and LUNs")
    }

    /// Checks the server's own report, and the view of new initiators.
    fn check_server(&self, what: &str) {
        assert_eq!(self.served(), self.model.served(), "{what}");

        let portal = format!(
            "iscsi://127.0.0.1:{}?initiator={INITIATORS}stranger",
            self.server.port()
        );
        let found = linerate(&["discover", &portal, "--json"]);
        let is_empty = found.status.code() == Some(6);
        let targets: BTreeSet<String> = match is_empty {
            true => BTreeSet::new(),
            false => {
                let found: Value = serde_json::from_str(&found.expect_success()).expect("JSON");
                let targets = found["targets"].as_array().expect("targets").iter();
                targets
                    .filter_map(|target| Some(target["name"].as_str()?.to_owned()))
                    .collect()
            }
        };
        assert_eq!(targets, self.model.targets(), "{what}");

        let by = |secret: &str| {
            let url = format!(
                "iscsi://alice@127.0.0.1:{}/{SECRET_TARGET}/0",
                self.server.port()
            );
            let mut command = Command::new(LINERATE);
            command.args(["info", &url]).env("LINERATE_SECRET", secret);
            run_command(&mut command).status.success()
        };
        assert!(by(&self.model.secret()), "{what}");
        assert!(!by("correct-horse-battery"), "{what}");
    }

    /// The sessions of the loads: their users, and the identity of each login.
    fn sessions(&self) -> BTreeSet<(String, u64)> {
        let said = administer(&self.server, &["server", "sessions", "--json"]).expect_success();
        let sessions = crate::sessions::listed("sessions", &said);
        let session = |session: &Value| {
            Some((
                session["initiator"].as_str()?.to_owned(),
                session["tsih"].as_u64()?,
            ))
        };
        sessions.iter().filter_map(session).collect()
    }
}

/// The unit attentions for a LUN that existed before and still exists.
fn attentions(
    lun: u16,
    before: &BTreeMap<u16, Seen>,
    after: &BTreeMap<u16, Seen>,
) -> BTreeSet<&'static str> {
    let devices = |seen: &BTreeMap<u16, Seen>| -> Vec<_> {
        seen.iter().map(|(lun, seen)| (*lun, seen.device)).collect()
    };
    let luns = (devices(before) != devices(after)).then_some(LUNS_CHANGED);
    let capacity = (before[&lun].mib != after[&lun].mib).then_some(CAPACITY_CHANGED);
    luns.into_iter().chain(capacity).collect()
}

/// The unit attentions that TEST UNIT READY returns. Each is reported once.
async fn told(lun: &RemoteLun) -> BTreeSet<&'static str> {
    let mut told = BTreeSet::new();
    loop {
        let answer = lun
            .command(cdb::test_unit_ready(), Transfer::None)
            .await
            .expect("an answer");
        let Some(sense) = answer.sense else {
            return told;
        };
        let is_new = told.insert(match (sense.key, sense.code, sense.qualifier) {
            (6, 0x3f, 0x0e) => LUNS_CHANGED,
            (6, 0x2a, 0x09) => CAPACITY_CHANGED,
            other => panic!("{other:x?}"),
        });
        assert!(is_new, "{told:?} twice");
    }
}

/// Like [`told`], from libiscsi's output.
fn libiscsi_told(libiscsi: &mut Dialogue, lun: u16) -> BTreeSet<&'static str> {
    let mut told = BTreeSet::new();
    loop {
        let said = libiscsi.ask(&format!("tur {lun}"));
        match said.to_lowercase() {
            said if said == "good" => return told,
            said if said.contains("0x3f0e") => told.insert(LUNS_CHANGED),
            said if said.contains("0x2a09") => told.insert(CAPACITY_CHANGED),
            said if said.contains("0x2900") => true, // POWER ON: the first of a new LUN
            said if said.contains("0x3f03") => true, // INQUIRY DATA HAS CHANGED: another unit had its number
            _ => panic!("{said}"),
        };
    }
}

/// A session of libiscsi; `None` if Python or the library is not installed.
fn libiscsi(port: u16) -> Option<Dialogue> {
    if !installed(&["python3"]) {
        return None;
    }
    let mut command = Command::new("python3");
    command.args([
        "-c",
        include_str!("libiscsi.py"),
        &format!("127.0.0.1:{port}"),
        TARGET,
    ]);
    command.arg(format!("{INITIATORS}libiscsi"));
    let mut dialogue = Dialogue::begin(&mut command, "\n")?;
    (0..2).for_each(|lun| drop(libiscsi_told(&mut dialogue, lun)));
    Some(dialogue)
}
