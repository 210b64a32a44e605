//! Tests of RAID sets over several servers, which are separate processes and are killed.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use iscsi_client::{Transfer, cdb};
use serde_json::Value;
use tempfile::TempDir;
use testkit::Random;

use crate::crash::{Promise, Writer, check};
use crate::program::{
    LINERATE, PATIENCE, ended_within, installed, run, says, until, write_patterned_file,
};
use crate::remote::{GOOD, attached, in_a_world, read, write};
use crate::server::{Server, free_port};

/// A server of a thin file, over NBD and iSCSI.
struct Machine {
    server: Server,
    nbd: u16,
}

impl Machine {
    fn new() -> Option<Machine> {
        Machine::with_disk("96MiB")
    }

    fn with_disk(size: &str) -> Option<Machine> {
        Machine::of(&format!("file:{{state}}/disk?size={size}"))
    }

    fn of(spec: &str) -> Option<Machine> {
        let nbd = free_port();
        let text = format!(
            "[nbd]\nlisten = [\"127.0.0.1:{nbd}\"]\n[volume.disk]\nspec = \"{spec}\"\n[[nbd.export]]\n\
             volume = \"disk\"\n[[target]]\nname = \"iqn.2026-01.io.linerate:disk\"\n\
             lun = [{{ lun = 0, volume = \"disk\" }}]\n"
        );
        Server::configured(&text).map(|server| Machine { server, nbd })
    }

    /// The server's disk as a member of a set, with a timeout of ten seconds. If builds use the same disk,
    /// one second may not be enough for a working member.
    fn member(&self) -> String {
        format!("nbd://127.0.0.1:{}/disk?timeout=10", self.nbd)
    }
}

/// The number of allocated blocks of the server's file, of 512 bytes each.
fn blocks(machine: &Machine) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(machine.server.state().join("disk")).map_or(0, |disk| disk.blocks())
}

fn set_of(level: &str, machines: &[&Machine]) -> String {
    let members: Vec<_> = machines.iter().map(|machine| machine.member()).collect();
    format!("{level}:[{}]?rebuild=1GiB", members.join(","))
}

/// A server of this set, which logs more than warnings.
fn serving(set: &str) -> Server {
    let text = format!(
        "[log]\nfilter = \"info\"\n[volume.vol]\nspec = \"{set}\"\n[[target]]\nname = \"iqn.2026-01.io.linerate:vol\"\n\
         lun = [{{ lun = 0, volume = \"vol\" }}]\n"
    );
    Server::configured(&text).expect("a server of ours")
}

fn linerate(arguments: &[&str]) -> String {
    run(LINERATE, arguments).expect_success()
}

/// The output of `raid status`, and whether its exit code reports a healthy set.
fn status(set: &[&str]) -> (Value, bool) {
    let ended = run(LINERATE, &[&["raid", "status", "--json"], set].concat());
    assert!(
        matches!(ended.status.code(), Some(0 | 10)),
        "{}",
        ended.said
    );
    (
        serde_json::from_str(&ended.said).unwrap_or_else(|_| panic!("{}", ended.said)),
        ended.status.success(),
    )
}

fn states(set: &str) -> Vec<String> {
    let (status, _) = status(&[set]);
    let members = status["sets"][0]["members"]
        .as_array()
        .expect("members")
        .iter();
    members
        .map(|member| member["state"].as_str().expect("a state").to_owned())
        .collect()
}

/// A verified load, which must not be affected by a failing machine.
fn load(url: &str) -> Child {
    let options = [
        "--verify",
        "--allow-write",
        "--yes",
        "--seconds",
        "6",
        "--read",
        "50",
        "--block",
        "4KiB,64KiB",
    ];
    let mut command = Command::new(LINERATE);
    command
        .args(["bench", url, "--json", "--depth", "8", "--span", "64MiB"])
        .args(options);
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a load")
}

#[test]
fn a_set_over_three_machines_outlives_each_of_them_under_a_verified_load() {
    let machines: Option<Vec<Machine>> = (0..4).map(|_| Machine::new()).collect();
    let Some(mut machines) = machines else { return };
    let set = set_of("raid5:64KiB", &[&machines[0], &machines[1], &machines[2]]);
    linerate(&["raid", "create", &set]);
    let mut front = serving(&set);
    let before = blocks(&machines[1]);
    let mut loaded = load(&front.url("vol"));
    until("the load has begun", || {
        blocks(&machines[1]) > before + (4 << 11)
            || loaded.try_wait().is_ok_and(|ended| ended.is_some())
    });
    machines[1].server.kill();
    let ended = ended_within(&mut loaded, PATIENCE).expect("the load ends");
    let output = loaded.wait_with_output().expect("its output");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(ended.success(), "{said}\n{}", front.log());
    front.stop();
    let there = set_of("raid5:64KiB", &[&machines[0], &machines[2]]);
    assert_eq!(
        states(&there),
        ["in sync", "failed", "in sync"],
        "{}",
        front.log()
    );

    // The fourth machine replaces the dead one, and then another one fails.
    let image = front.state().join("image");
    write_patterned_file(&image, 32 << 20);
    let image = image.display().to_string();
    linerate(&["copy", &image, &there, "--yes"]);
    linerate(&["raid", "replace", &there, "1", &machines[3].member()]);
    let repaired = set_of("raid5:64KiB", &[&machines[0], &machines[2], &machines[3]]);
    let mut front = serving(&repaired);
    until("it is rebuilt", || {
        front.log().contains("a member of a RAID set is rebuilt")
    });
    machines[0].server.kill();
    let copied = front.state().join("copied").display().to_string();
    match installed(&["qemu-img"]) {
        // QEMU queries the allocation first.
        true => drop(
            run(
                "qemu-img",
                &[
                    "convert",
                    "-f",
                    "raw",
                    "-O",
                    "raw",
                    &front.url("vol"),
                    &copied,
                ],
            )
            .expect_success(),
        ),
        false => drop(linerate(&["read", &front.url("vol"), "--output", &copied])),
    }
    let (data, copied) = (
        std::fs::read(&image).expect("data"),
        std::fs::read(&copied).expect("data"),
    );
    assert!(data == copied[..data.len()], "{}", front.log());
    front.stop();
    machines[2].server.stop();
    machines[3].server.stop();
}

#[test]
fn a_member_that_was_away_for_a_write_is_rebuilt_in_the_regions_that_it_missed() {
    let machines: Option<Vec<Machine>> = (0..2).map(|_| Machine::with_disk("512MiB")).collect();
    let Some(mut machines) = machines else { return };
    let set = set_of("raid1", &[&machines[0], &machines[1]]);
    linerate(&["raid", "create", &set]);
    let mut front = serving(&set);
    let vol = |front: &Server, order: &str| front.ask(&["raid", order, "vol"]);
    let image = front.state().join("image");
    write_patterned_file(&image, 4096);
    let image = image.display().to_string();
    for in_use in [true, false] {
        let before = blocks(&machines[1]);
        machines[1].server.kill();
        linerate(&["copy", &image, &front.url("vol"), "--yes"]);
        until("the missed regions are recorded", || {
            vol(&front, "status").said.contains("regions are recorded")
        });
        if !in_use {
            front.kill();
        }
        machines[1].server.restart();
        match in_use {
            true => {
                let said = vol(&front, "assemble").expect_success();
                says(&said, &["has returned, and the regions that it missed"]);
            }
            false => front.restart(),
        }
        until("it is in sync", || {
            vol(&front, "status").said.contains(": healthy")
        });
        // The rebuild has written one region of 64 MiB, and some records.
        let written = (blocks(&machines[1]) - before) / 2048;
        assert!(written < 80, "{written} MiB were written");
    }
    machines[0].server.kill();
    let copied = front.state().join("copied").display().to_string();
    linerate(&[
        "read",
        &front.url("vol"),
        "--length",
        "4KiB",
        "--output",
        &copied,
    ]);
    assert!(
        std::fs::read(&image).expect("data") == std::fs::read(&copied).expect("data"),
        "{}",
        front.log()
    );
    front.end(); // it does not matter here whether its last flush waits for the killed member
    machines[1].server.stop();
}

/// Regression: initiators detected only at their next flush that a server had lost its cache. Until then, a
/// set read old blocks from that server, and wrote data computed from them to its other members.
fn a_set_takes_no_old_blocks_from_a_server_that_lost_its_cache(
    member: impl Fn(&Machine) -> String,
) {
    // A mirror reads from its fastest member.
    let levels: [(&str, &[&str], &[&str]); 2] = [
        ("raid1", &["delay:20ms:"], &[]),
        ("raid5:64KiB", &["", ""], &["--journal", "0"]),
    ];
    for (level, layers, journal) in levels {
        let mut back = or_skip!(Machine::of("buffered:4MiB:[file:{state}/disk?size=96MiB]"));
        let folder = tempfile::tempdir().expect("a folder");
        let local = |(name, layer): (&str, &&str)| match layer.is_empty() {
            true => file_in(folder.path(), name),
            false => format!("{layer}[{}]", file_in(folder.path(), name)),
        };
        let members: Vec<String> = [member(&back)]
            .into_iter()
            .chain(["a", "b"].into_iter().zip(layers).map(local))
            .collect();
        let set = format!("{level}:[{}]", members.join(", "));
        linerate(&[&["raid", "create", &set], journal].concat());
        let mut front = serving(&set);
        in_a_world(async {
            let lun = attached(&front.url("vol")).await;
            let flush = async || {
                let flushed = lun.command(cdb::synchronize_cache(), Transfer::None).await;
                assert_eq!(flushed.expect("an answer").status, GOOD);
            };
            // Write only parts of the chunks in which the cache writes back, so that the cache keeps them
            // until a flush.
            let places = || (0..32).map(|number| 128 * number);
            for byte in [1, 2] {
                flush().await;
                for lba in places() {
                    let written = write(&lun, lba, &[byte; 4096], false).await;
                    assert_eq!(written.expect("an answer").status, GOOD);
                }
            }
            back.server.kill();
            back.server.restart();
            for lba in places() {
                assert!(
                    read(&lun, lba, 512).await.iter().all(|byte| *byte == 2),
                    "{set}: block {lba}"
                );
                // Part of a strip: parity is computed from old data and old parity.
                let written = write(&lun, lba + 1, &[3; 512], false).await;
                assert_eq!(written.expect("an answer").status, GOOD);
            }
            flush().await;
            flush().await;
            let expected = [[2; 512], [3; 512], [2; 512]].concat();
            for lba in places() {
                assert!(
                    read(&lun, lba, 3 * 512).await[..] == expected,
                    "{set}: block {lba}"
                );
            }
        });
        let control = front.state().join("control").display().to_string();
        let (status, _) = status(&["vol", "--control", &control]);
        assert_eq!(
            status["sets"][0]["members"][0]["state"], "failed",
            "{status}"
        );
        front.stop();
        back.server.stop();
    }
}

#[test]
fn a_set_takes_no_old_blocks_from_an_iscsi_target_that_lost_its_cache() {
    a_set_takes_no_old_blocks_from_a_server_that_lost_its_cache(|back| back.server.url("disk"));
}

#[test]
fn a_set_takes_no_old_blocks_from_an_nbd_server_that_lost_its_cache() {
    a_set_takes_no_old_blocks_from_a_server_that_lost_its_cache(|back| {
        format!("{}&journal=0", back.member())
    });
}

/// Scripts rely on the exit code.
#[test]
fn a_set_that_is_not_synchronised_and_a_scrub_of_a_part_have_exit_code_10() {
    let folder = tempfile::tempdir().expect("a folder");
    let members = ["one", "two"].map(|name| file_in(folder.path(), name));
    let set = format!("raid1:[{}]", members.join(", "));
    write_patterned_file(&folder.path().join("one"), 96 << 20);
    linerate(&["raid", "create", &set, "--yes"]);
    let looked = || {
        let (status, is_well) = status(&[&set]);
        (
            status["sets"][0]["state"]
                .as_str()
                .expect("a state")
                .to_owned(),
            is_well,
        )
    };
    assert_eq!(looked(), ("unsynchronised".to_owned(), false));
    linerate(&["raid", "scrub", "--repair", &set]);
    assert_eq!(looked(), ("healthy".to_owned(), true));
    std::fs::remove_file(folder.path().join("two")).expect("a dead disk");
    let without = format!("raid1:[{}]?missing-are-lost", members[0]);
    let scrubbed = run(LINERATE, &["raid", "scrub", &without]);
    assert_eq!(scrubbed.status.code(), Some(10), "{}", scrubbed.said);
    says(&scrubbed.said, &["could not be compared"]);
    // The loss is recorded now, so the new specification does not have the option.
    let replaced = linerate(&[
        "raid",
        "replace",
        &without,
        "1",
        &file_in(folder.path(), "three"),
    ]);
    assert!(
        replaced.contains("as 'raid1:[") && !replaced.contains("missing-are-lost"),
        "{replaced}"
    );
}

#[test]
fn a_configuration_with_a_set_can_be_checked_without_a_change() {
    let machines = or_skip!(
        (0..2)
            .map(|_| Machine::new())
            .collect::<Option<Vec<Machine>>>()
    );
    let set = set_of("raid1", &[&machines[0], &machines[1]]);
    linerate(&["raid", "create", &set]);
    linerate(&["write", &set, "--yes"]);
    let before = linerate(&["raid", "status", &set]);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("linerate.toml");
    let text = format!(
        "state = \"{0}/state\"\n[volume.vol]\nspec = \"{set}\"\n[[target]]\nname = \"iqn.2026-01.io.linerate:v\"\nlun = [{{ lun = 0, volume = \"vol\" }}]\n",
        folder.path().display()
    );
    std::fs::write(&file, text).expect("a file");
    linerate(&["serve", "--config", &file.display().to_string(), "--check"]);
    assert_eq!(linerate(&["raid", "status", &set]), before);
}

/// A server of a set of files, as `disk`.
struct Local {
    server: Server,
    disks: TempDir,
}

impl Local {
    /// Starts a server of a new set. Its configuration has a comment, which must be kept.
    fn new(level: &str, members: &[&str]) -> Option<Local> {
        let disks = TempDir::new().expect("a folder");
        let files: Vec<_> = members
            .iter()
            .map(|name| file_in(disks.path(), name))
            .collect();
        let set = format!("{level}:[{}]?rebuild=1GiB", files.join(", "));
        linerate(&["raid", "create", &set, "--yes"]);
        let text = format!(
            "[log]\nfilter = \"info\"\n# of mine\n[volume.disk]\nspec = \"{set}\" # here\n[[target]]\n\
             name = \"iqn.2026-01.io.linerate:disk\"\nlun = [{{ lun = 0, volume = \"disk\" }}]\n"
        );
        Server::configured(&text).map(|server| Local { server, disks })
    }

    fn file(&self, name: &str) -> String {
        file_in(self.disks.path(), name)
    }

    /// The arguments of a command, followed by this server's socket.
    fn with_control(&self, words: &[&str]) -> Vec<String> {
        let control = self.server.state().join("control").display().to_string();
        words
            .iter()
            .map(|word| (*word).to_owned())
            .chain(["--control".to_owned(), control])
            .collect()
    }

    fn tell(&self, words: &[&str]) -> String {
        run(LINERATE, &self.with_control(words)).expect_success()
    }

    fn refused(&self, words: &[&str]) -> String {
        run(LINERATE, &self.with_control(words)).expect_failure()
    }

    /// The status of the set, and whether the exit code reports a healthy set.
    fn status(&self) -> (Value, bool) {
        let words = self.with_control(&["disk"]);
        let (status, is_well) = status(&words.iter().map(String::as_str).collect::<Vec<_>>());
        (status["sets"][0].clone(), is_well)
    }

    /// Replaces a member, unless a spare has already done so.
    fn replace(&self, member: usize, new: &str) {
        let words = [
            "raid",
            "replace",
            "disk",
            &member.to_string(),
            &self.file(new),
        ];
        let ended = run(LINERATE, &self.with_control(&words));
        assert!(
            ended.status.success() || ended.said.contains("remove it first"),
            "{}",
            ended.said
        );
    }

    fn until_healthy(&self) {
        until("all members are in sync", || self.status().1);
    }

    /// The specification in the server's configuration file.
    fn specification(&self) -> String {
        let text =
            std::fs::read_to_string(self.server.state().join("linerate.toml")).expect("its file");
        says(&text, &["# of mine\n", " # here\n"]);
        text.split("spec = \"")
            .nth(1)
            .and_then(|rest| rest.split('"').next())
            .expect("a spec")
            .to_owned()
    }
}

fn file_in(folder: &std::path::Path, name: &str) -> String {
    format!("file:{}?size=96MiB", folder.join(name).display())
}

#[test]
fn members_of_a_set_in_use_come_and_go_and_the_server_tells_of_it() {
    let mut local = or_skip!(Local::new("raid5:64KiB", &["a", "b", "c"]));
    let metric = |local: &Local, name: &str| {
        let text = local.tell(&["server", "metrics"]);
        let line = text
            .lines()
            .find(|line| line.starts_with(name))
            .map(str::to_owned);
        line.unwrap_or_else(|| panic!("no {name}: {text}"))
    };
    local.until_healthy();
    let lacking = "linerate_raid_members_lacking{volume=\"disk\",set=\"0\",level=\"RAID 5\"}";
    assert_eq!(metric(&local, lacking), format!("{lacking} 0"));
    let mut loaded = load(&local.server.url("disk"));

    assert!(
        local
            .refused(&["raid", "replace", "disk", "1", &local.file("d")])
            .contains("is in sync")
    );
    assert!(
        local
            .refused(&["raid", "fail", "disk", "7"])
            .contains("members 0 to 2")
    );
    assert!(
        local
            .refused(&["raid", "fail", "other", "1"])
            .contains("no volume named other")
    );
    local.tell(&["raid", "fail", "disk", "1"]);
    let (status, is_well) = local.status();
    assert_eq!(
        (&status["state"], &status["members"][1]["state"]),
        (&"degraded".into(), &"failed".into())
    );
    assert!(
        !is_well
            && local
                .tell(&["server", "volumes"])
                .contains("disk: RAID 5: degraded")
    );
    assert_eq!(metric(&local, lacking), format!("{lacking} 1"));
    assert!(
        local
            .refused(&["raid", "fail", "disk", "0"])
            .contains("data would be lost")
    );
    assert!(
        local
            .refused(&["raid", "grow", "disk"])
            .contains("degraded")
    );
    let small = format!(
        "file:{}?size=8MiB",
        local.disks.path().join("small").display()
    );
    assert!(
        local
            .refused(&["raid", "replace", "disk", "1", &small])
            .contains("a member needs")
    );
    assert!(
        !local.disks.path().join("small").exists(),
        "it was made for nothing"
    );

    let said = local.tell(&["raid", "replace", "disk", "1", &local.file("d")]);
    says(
        &said,
        &["is now member 1", "linerate.toml was also updated"],
    );
    local.until_healthy();
    local.tell(&["raid", "add", "disk", &local.file("e")]);
    // The spare replaces the next one.
    local.tell(&["raid", "fail", "disk", "0"]);
    until("the spare is a member", || {
        local.status().0["members"][0]["volume"] == *local.file("e")
    });
    local.until_healthy();
    // A removed member can return, overwriting its content.
    let again = local
        .specification()
        .split(['[', ','])
        .nth(1)
        .expect("a member")
        .trim()
        .to_owned();
    assert!(
        local
            .refused(&["raid", "add", "disk", &again])
            .contains("RAID")
    );
    local.tell(&["raid", "add", "disk", &again, "--yes"]);
    let ended = ended_within(&mut loaded, PATIENCE).expect("the load ends");
    let said = loaded.wait_with_output().expect("its output");
    assert!(
        ended.success(),
        "{}\n{}",
        String::from_utf8_lossy(&said.stderr),
        local.server.log()
    );

    let found = local.tell(&["raid", "scrub", "disk"]);
    assert!(found.contains(": 0 inconsistent, 0 unreadable"), "{found}");
    let (status, _) = local.status();
    assert_eq!(
        (&status["scrub"]["has_ended"], &status["spares"][0]),
        (&true.into(), &again.as_str().into())
    );
    assert!(metric(&local, "linerate_raid_scrub_ratio").ends_with(" 1"));
    let log = local.server.log();
    says(&log, &["set=\"disk\"", "disk=\"file:"]);

    // A shutdown closes the set, and a kill does not.
    let set = local.specification();
    local.server.stop();
    let is_closed = |set: &str| status_of(set)["closed"].clone();
    assert_eq!(is_closed(&set), true);
    local.server.restart();
    local.until_healthy();
    local.server.kill();
    assert_eq!(is_closed(&set), false);
    linerate(&["raid", "scrub", &set]);
    let files: Vec<String> = ["b", "c", "d", "e"]
        .iter()
        .map(|name| local.disks.path().join(name).display().to_string())
        .collect();
    let words: Vec<&str> = ["raid", "assemble"]
        .into_iter()
        .chain(files.iter().map(String::as_str))
        .collect();
    let assembled = linerate(&words);
    says(&assembled, &["[volume.NAME]", "raid5:64KiB:[file:"]);
}

fn status_of(set: &str) -> Value {
    status(&[set]).0["sets"][0].clone()
}

#[test]
fn a_set_whose_members_have_become_larger_grows_in_use_and_alone() {
    let sets = [
        ("raid1", 2, false),
        ("raid5:64KiB", 3, false),
        ("raid10:64KiB", 3, true),
        ("raid5:64KiB", 3, true),
    ];
    for (level, count, has_sums) in sets {
        let names = &["a", "b", "c"][..count];
        // Without sizes in the specification: the files' own lengths apply.
        let disks = TempDir::new().expect("a folder");
        let set_length = |mib: u64, zeros: bool| {
            for (number, name) in (1u8..).zip(names) {
                let file = std::fs::File::options()
                    .create(true)
                    .append(true)
                    .open(disks.path().join(name));
                let mut file = file.expect("a file");
                let from = file.metadata().expect("a file").len();
                match zeros {
                    true => file.set_len(mib << 20).expect("longer"),
                    // The new part of a disk has arbitrary content.
                    false => file
                        .write_all(&vec![number; (mib << 20) as usize - from as usize])
                        .expect("longer"),
                }
            }
        };
        set_length(96, true);
        let paths: Vec<_> = names
            .iter()
            .map(|name| format!("file:{}", disks.path().join(name).display()))
            .collect();
        let set = format!("{level}:[{}]", paths.join(", "));
        linerate(
            &[
                &["raid", "create", &set][..],
                if has_sums { &["--checksums"] } else { &[] },
            ]
            .concat(),
        );
        let refused = run(LINERATE, &["raid", "grow", &set]).expect_failure();
        assert!(
            refused.contains(if has_sums {
                "too little new space"
            } else {
                "no new space"
            }),
            "{refused}"
        );
        let image = disks.path().join("image");
        write_patterned_file(&image, 32 << 20);
        linerate(&["copy", &image.display().to_string(), &set, "--yes"]);
        let bytes = || status_of(&set)["bytes"].as_u64().expect("a size");
        let before = bytes();
        set_length(128, false);
        linerate(&["raid", "grow", &set]);
        assert!(bytes() > before, "{level}");
        assert!(
            linerate(&["raid", "scrub", &set]).contains(": 0 inconsistent"),
            "{level}"
        );

        let alone = bytes();
        let mut server = serving(&set.replace(']', "]?rebuild=1GiB"));
        set_length(160, false);
        let mut loaded = load(&server.url("vol"));
        server.ask(&["raid", "grow", "vol"]).expect_success();
        let listed = || {
            let listed: Value = serde_json::from_str(
                &server
                    .ask(&["server", "volumes", "--json"])
                    .expect_success(),
            )
            .expect("JSON");
            listed["volumes"][0]["bytes"].as_u64().expect("a size")
        };
        until("the volume is larger", || listed() > alone);
        until("initiators can be told", || {
            server.log().contains("the volume has grown")
        });
        let ended = ended_within(&mut loaded, PATIENCE).expect("the load ends");
        let said = loaded.wait_with_output().expect("its output");
        assert!(
            ended.success(),
            "{}\n{}",
            String::from_utf8_lossy(&said.stderr),
            server.log()
        );
        let grown = listed();
        server.stop();
        assert_eq!(bytes(), grown, "{level}");
        assert!(
            linerate(&["raid", "scrub", &set]).contains(": 0 inconsistent"),
            "{level}"
        );
    }
}

#[test]
fn a_benchmark_closes_the_set_that_it_has_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let members = ["one", "two"].map(|name| file_in(folder.path(), name));
    let set = format!("raid1:[{}]", members.join(", "));
    linerate(&["raid", "create", &set]);
    linerate(&[
        "bench",
        &set,
        "--allow-write",
        "--yes",
        "--json",
        "--read",
        "0",
        "--seconds",
        "0.5",
    ]);
    assert_eq!(
        status(&[&set]).0["sets"][0]["closed"],
        true,
        "its next user has nothing to synchronise"
    );
}

#[test]
fn a_scrub_survives_its_server() {
    let mut local = or_skip!(Local::new("raid5:64KiB", &["a", "b", "c"]));
    local.until_healthy();
    let control = local.server.state().join("linerate.toml");
    let text = std::fs::read_to_string(&control).expect("its file");
    local.server.stop();
    std::fs::write(&control, text.replace("rebuild=1GiB", "rebuild=8MiB")).expect("its file");
    local.server.restart();
    let words = local.with_control(&["raid", "scrub", "disk", "--repair"]);
    let mut asking = Command::new(LINERATE)
        .args(&words)
        .stderr(Stdio::null())
        .spawn()
        .expect("a command");
    let stripes = |local: &Local| local.status().0["scrub"]["found"]["stripes"].as_u64();
    until("it is under way", || {
        stripes(&local).is_some_and(|stripes| stripes > 2)
    });
    // The client that waits for the outcome may exit.
    asking.kill().expect("killed");
    asking.wait().expect("its end");
    let metric = |local: &Local, name: &str| local.tell(&["server", "metrics"]).contains(name);
    until("its time left is known", || {
        metric(&local, "linerate_raid_scrub_seconds_left{volume=\"disk\"")
    });
    let before = stripes(&local).expect("a scrub");
    local.server.stop();
    assert!(
        linerate(&["raid", "status", &local.specification()])
            .contains("resumes when the set is opened")
    );
    local.server.restart();
    assert!(
        stripes(&local).is_some_and(|now| now >= before),
        "{:?} {before}",
        stripes(&local)
    );
    assert!(
        local
            .refused(&["raid", "scrub", "disk"])
            .contains("already")
    );
    // After a kill, the operation resumes at the recorded position.
    local.server.kill();
    local.server.restart();
    until("it has resumed", || {
        stripes(&local).is_some_and(|now| now >= before)
    });
    assert!(local.server.log().contains("a scrub of a RAID set resumes"));
    assert!(
        local
            .tell(&["raid", "scrub", "disk", "--cancel"])
            .contains("ended early")
    );
    assert!(
        local
            .refused(&["raid", "scrub", "disk", "--cancel"])
            .contains("not being scrubbed")
    );
    local.server.kill();
    local.server.restart();
    assert_eq!(stripes(&local), None);
}

/// A server of a set of files with a separate journal file, which can be made to fail.
fn with_journal_of_its_own(level: &str, members: &[&str]) -> Option<Local> {
    let disks = TempDir::new().expect("a folder");
    let files: Vec<_> = members
        .iter()
        .map(|name| file_in(disks.path(), name))
        .collect();
    let journal = format!(
        "fault:[file:{}?size=40MiB]",
        disks.path().join("journal").display()
    );
    let created = linerate(&[
        "raid",
        "create",
        &format!("{level}:[{}]", files.join(", ")),
        "--journal-on",
        &journal,
        "--yes",
    ]);
    assert!(created.contains("journal: on  fault:[file:"), "{created}");
    let set = created
        .split("open it as '")
        .nth(1)
        .and_then(|rest| rest.split('\'').next())
        .expect("a specification");
    let text = format!(
        "[log]\nfilter = \"info\"\n# of mine\n[volume.disk]\nspec = \"{set}?rebuild=1GiB\" # here\n[[target]]\n\
         name = \"iqn.2026-01.io.linerate:disk\"\nlun = [{{ lun = 0, volume = \"disk\" }}]\n"
    );
    Server::configured(&text).map(|server| Local { server, disks })
}

/// Writes to a server until `during` has ended and more was acknowledged. Then kills and restarts the server,
/// which must have the acknowledged data.
fn written_and_killed(
    local: &mut Local,
    during: impl FnOnce(&Local),
    before_restart: impl FnOnce(&Local),
) {
    let promises = [Promise::Fua, Promise::Synchronize(16)];
    let writers: Vec<Writer> = (0..)
        .zip(promises)
        .map(|(ring, promise)| Writer::start(&local.server, ring, promise))
        .collect();
    let kept = || writers.iter().map(Writer::kept).min().unwrap_or(0);
    let until_more = || {
        let begun = kept();
        until("the load goes on", || {
            kept() > begun + 20 || writers.iter().any(Writer::has_ended)
        });
        assert!(
            !writers.iter().any(Writer::has_ended),
            "{}",
            local.server.log()
        );
    };
    until_more();
    during(local);
    until_more();
    local.server.kill();
    let ended: Vec<_> = writers.into_iter().map(Writer::end).collect();
    before_restart(local);
    local.server.restart();
    in_a_world(async {
        let lun = attached(&local.server.url("disk")).await;
        for (ring, kept, sent) in ended {
            check(&lun, ring, kept, sent).await;
        }
    });
}

#[test]
fn a_journal_on_a_volume_of_its_own_survives_kills_a_lost_member_and_its_own_failure() {
    // The remaining members are too few for the set to have continued without the lost ones.
    for (level, members, lost) in [("raid5:64KiB", 4, 1), ("raid6:16KiB", 5, 2)] {
        let names = &["a", "b", "c", "d", "e"][..members];
        let mut local = or_skip!(with_journal_of_its_own(level, names));
        // The server is killed, and the maximum number of members is lost.
        written_and_killed(
            &mut local,
            |_| {},
            |local| {
                for name in &["a", "c"][..lost] {
                    std::fs::remove_file(local.disks.path().join(name)).expect("a dead disk");
                }
            },
        );
        let (set, _) = local.status();
        assert_eq!(set["state"], "degraded");
        assert_eq!(set["journal"]["has_failed"], false, "{set}");
        // The journal fails while the set is in use, without errors for its users, and its content is not
        // used afterwards.
        let journal = local.disks.path().join("journal");
        let old = std::fs::read(&journal).expect("a journal");
        written_and_killed(
            &mut local,
            |local| {
                local.tell(&["server", "fault", "disk", "fail"]);
                until("it is noticed", || {
                    local.status().0["journal"]["has_failed"] == true
                });
                until("it is logged", || {
                    local.server.log().contains("the journal is now on members")
                });
            },
            |_| std::fs::write(&journal, &old).expect("the old journal comes back"),
        );
        let (set, _) = local.status();
        assert_eq!(
            (&set["state"], &set["journal"]),
            (&"degraded".into(), &Value::Null),
            "{set}"
        );
        for (member, name) in [(0, "f"), (2, "g")].into_iter().take(lost) {
            local.replace(member, name);
        }
        local.until_healthy();
        assert!(
            local
                .tell(&["raid", "scrub", "disk"])
                .contains(": 0 inconsistent, 0 unreadable")
        );
        local.server.stop();
        let said = linerate(&["raid", "status", &local.specification()]);
        says(&said, &["it had the journal, which is now on the members"]);
    }
}

#[test]
fn a_set_whose_journal_is_lost_starts_when_that_is_accepted_and_with_a_journal_on_its_members() {
    let mut local = or_skip!(with_journal_of_its_own("raid5:64KiB", &["a", "b", "c"]));
    let set = local.specification();
    let files: Vec<String> = ["a", "b", "c"]
        .iter()
        .map(|name| local.disks.path().join(name).display().to_string())
        .collect();
    let discarded = |yes: &[&str]| {
        let files = files.iter().map(String::as_str);
        let words: Vec<&str> = ["raid", "assemble", "--discard-journal"]
            .into_iter()
            .chain(files)
            .chain(yes.iter().copied())
            .collect();
        run(LINERATE, &words)
    };
    let refused = |set: &str| run(LINERATE, &["read", set]).expect_failure();
    let image = local.disks.path().join("image");
    write_patterned_file(&image, 32 << 20);
    local.server.stop();
    linerate(&["copy", &image.display().to_string(), &set, "--yes"]);
    let with_journal = format!(
        "fault:[file:{}]",
        local.disks.path().join("journal").display()
    );
    let said = discarded(&["--yes", &with_journal]).expect_failure();
    assert!(said.contains("can be replayed"), "{said}");
    // Try to start without the journal, with an older copy of it, and with another file.
    let journal = local.disks.path().join("journal");
    let there = std::fs::read(&journal).expect("a journal");
    linerate(&["copy", &image.display().to_string(), &set, "--yes"]);
    std::fs::write(&journal, &there).expect("an old copy");
    let said = refused(&set);
    says(&said, &["an old copy of it", "--discard-journal"]);
    std::fs::write(&journal, vec![0; 40 << 20]).expect("another file");
    assert!(
        refused(&set).contains("no Linerate RAID superblock"),
        "{}",
        refused(&set)
    );
    std::fs::remove_file(&journal).expect("a lost journal");
    let said = refused(&set);
    says(
        &said,
        &[
            "the device with the journal is missing",
            "The set was closed",
        ],
    );
    let ended = run(LINERATE, &["raid", "status", &set]);
    assert!(
        ended.said.contains("journal: missing") && ended.status.code() == Some(10),
        "{}",
        ended.said
    );
    let said = discarded(&[]).expect_failure();
    assert!(said.contains("--yes"), "{said}");
    discarded(&["--yes"]).expect_success();
    let (status, is_well) = status(&[&set]);
    assert!(
        is_well && status["sets"][0]["journal"] == Value::Null,
        "{status}"
    );
    let copied = local.disks.path().join("copied");
    linerate(&["read", &set, "--output", &copied.display().to_string()]);
    let (data, copied) = (
        std::fs::read(&image).expect("data"),
        std::fs::read(&copied).expect("data"),
    );
    assert!(data == copied[..data.len()]);
    // The set is still protected against the write hole.
    local.server.restart();
    written_and_killed(
        &mut local,
        |_| {},
        |local| {
            std::fs::remove_file(local.disks.path().join("b")).expect("a dead disk");
        },
    );
    local.server.stop();
}

/// Members fail and are replaced, spares are used, scrubs run and the server is killed, in a random order,
/// under writers that record the guaranteed writes.
#[test]
fn what_was_acknowledged_survives_failures_replacements_and_kills_in_any_order() {
    let mut random = Random::of_variable("LINERATE_RAID_SEED", Random::fresh_seed());
    let mut draw = move |below: u64| random.below(below) as usize;
    let (level, redundancy) = [
        ("raid5:16KiB", 1),
        ("raid6:64KiB", 2),
        ("raid1", 3),
        ("raid10:64KiB", 1),
    ][draw(4)];
    let mut local = or_skip!(Local::new(level, &["a", "b", "c", "d"]));
    let mut made = 0;
    for life in 0..3 {
        let promises = [Promise::Fua, Promise::Synchronize(16)];
        let writers: Vec<Writer> = (0..)
            .zip(promises)
            .map(|(ring, promise)| Writer::start(&local.server, ring, promise))
            .collect();
        let kept = || writers.iter().map(Writer::kept).min().unwrap_or(0);
        for _ in 0..4 {
            let begun = kept();
            until("the load goes on", || {
                kept() > begun + 20 || writers.iter().any(Writer::has_ended)
            });
            let (set, _) = local.status();
            let lacking: Vec<usize> = set["members"]
                .as_array()
                .expect("members")
                .iter()
                .enumerate()
                .filter(|(_, member)| member["state"] != "in sync")
                .map(|(member, _)| member)
                .collect();
            let member = draw(4);
            match draw(4) {
                0 | 1 if lacking.len() < redundancy => {
                    local.tell(&["raid", "fail", "disk", &member.to_string()]);
                }
                2 if lacking.is_empty() => {
                    made += 1;
                    local.tell(&["raid", "add", "disk", &local.file(&format!("spare{made}"))]);
                }
                3 => {
                    let scrubbed = run(
                        LINERATE,
                        &local.with_control(&["raid", "scrub", "disk", "--repair"]),
                    );
                    // Exit code 10 means that stripes could not be compared, because a member was missing at
                    // the time.
                    let expected = if scrubbed.said.contains("could not be compared") {
                        10
                    } else {
                        0
                    };
                    assert_eq!(scrubbed.status.code(), Some(expected), "{}", scrubbed.said);
                }
                _ => {
                    let failed = lacking
                        .iter()
                        .find(|member| set["members"][**member]["state"] != "rebuilding");
                    if let Some(failed) = failed {
                        made += 1;
                        local.replace(*failed, &format!("new{made}"));
                    }
                }
            }
        }
        local.server.kill();
        let ended: Vec<_> = writers.into_iter().map(Writer::end).collect();
        assert!(
            ended.iter().all(|(_, kept, _)| *kept > 0),
            "life {life}: {}",
            local.server.log()
        );
        local.server.restart();
        in_a_world(async {
            let lun = attached(&local.server.url("disk")).await;
            for (ring, kept, sent) in ended {
                check(&lun, ring, kept, sent).await;
            }
        });
    }
    // Permanently missing members are replaced, and then all copies and parity are consistent.
    let (set, _) = local.status();
    for (member, status) in set["members"]
        .as_array()
        .expect("members")
        .iter()
        .enumerate()
    {
        if status["state"] != "in sync" && status["state"] != "rebuilding" {
            local.replace(member, &format!("last{member}"));
        }
    }
    local.until_healthy();
    let found = local.tell(&["raid", "scrub", "disk"]);
    assert!(found.contains(": 0 inconsistent, 0 unreadable"), "{found}");
    local.server.stop();
}
