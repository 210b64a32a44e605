//! RAID sets over servers on other "machines": processes of their own, which die.

use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::program::{PATIENCE, ended_within, installed, run, until, write_patterned_file};
use crate::server::{Server, free_port};

const LINERATE: &str = env!("CARGO_BIN_EXE_linerate");

/// A server of a thin file, over NBD.
struct Machine {
    server: Server,
    nbd: u16,
}

impl Machine {
    fn new() -> Option<Machine> {
        let nbd = free_port();
        let text = format!(
            "[nbd]\nlisten = [\"127.0.0.1:{nbd}\"]\n[volume.disk]\nspec = \"file:{{state}}/disk?size=96MiB\"\n\
             [[nbd.export]]\nvolume = \"disk\"\n"
        );
        Server::configured(&text).map(|server| Machine { server, nbd })
    }

    /// Its disk as a member that is given up after a second.
    fn member(&self) -> String {
        format!("nbd://127.0.0.1:{}/disk?timeout=1", self.nbd)
    }
}

/// Of 512 bytes, that its file has.
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

fn states(set: &str) -> Vec<String> {
    let status: Value = serde_json::from_str(&linerate(&["raid", "status", set, "--json"])).expect("JSON");
    let members = status["sets"][0]["members"].as_array().expect("members").iter();
    members.map(|member| member["state"].as_str().expect("a state").to_owned()).collect()
}

/// A verified load, from which nobody may hear of a machine that dies.
fn load(url: &str) -> Child {
    let options =
        ["--verify", "--allow-write", "--yes", "--seconds", "6", "--read", "50", "--block", "4KiB,64KiB"];
    let mut command = Command::new(LINERATE);
    command.args(["bench", url, "--json", "--depth", "8", "--span", "64MiB"]).args(options);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a load")
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
        blocks(&machines[1]) > before + (4 << 11) || loaded.try_wait().is_ok_and(|ended| ended.is_some())
    });
    machines[1].server.kill();
    let ended = ended_within(&mut loaded, PATIENCE).expect("the load ends");
    let output = loaded.wait_with_output().expect("its output");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(ended.success(), "{said}\n{}", front.log());
    front.stop();
    let there = set_of("raid5:64KiB", &[&machines[0], &machines[2]]);
    assert_eq!(states(&there), ["in sync", "failed", "in sync"], "{}", front.log());

    // The fourth machine takes the place of the dead one, and then another one dies.
    let image = front.state().join("image");
    write_patterned_file(&image, 32 << 20);
    let image = image.display().to_string();
    linerate(&["copy", &image, &there, "--yes"]);
    linerate(&["raid", "replace", &there, "1", &machines[3].member()]);
    let repaired = set_of("raid5:64KiB", &[&machines[0], &machines[2], &machines[3]]);
    let mut front = serving(&repaired);
    until("it is rebuilt", || front.log().contains("a member of a RAID set is rebuilt"));
    machines[0].server.kill();
    let copied = front.state().join("copied").display().to_string();
    match installed(&["qemu-img"]) {
        // It asks what is allocated first.
        true => drop(
            run("qemu-img", &["convert", "-f", "raw", "-O", "raw", &front.url("vol"), &copied])
                .expect_success(),
        ),
        false => drop(linerate(&["read", &front.url("vol"), "--output", &copied])),
    }
    let (data, copied) = (std::fs::read(&image).expect("data"), std::fs::read(&copied).expect("data"));
    assert!(data == copied[..data.len()], "{}", front.log());
    front.stop();
    machines[2].server.stop();
    machines[3].server.stop();
}

#[test]
fn a_configuration_with_a_set_can_be_checked_without_a_change() {
    let Some(machines) = (0..2).map(|_| Machine::new()).collect::<Option<Vec<Machine>>>() else { return };
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
