//! RAID sets over servers on other hosts: network namespaces with a link to each. A host fails under a file
//! system with a verified load, and another one replaces it. Needs root, /dev/fuse and loop devices.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use serde_json::Value;
use tempfile::TempDir;

use crate::attach_disk::{Loop, Mounted, loops_possible};
use crate::program::{Ended, LINERATE, end_of, installed, run, run_command, until};

/// The number of networks created by this test program: concurrent tests have separate networks.
static NETWORKS: AtomicU32 = AtomicU32::new(0);

/// A host in the middle, and others, each with a link to it.
struct Network {
    name: String,
    others: u8,
}

impl Network {
    fn of(others: u8) -> Option<Network> {
        let name = format!(
            "linerate-raid-{}-{}",
            std::process::id(),
            NETWORKS.fetch_add(1, Relaxed)
        );
        if !run("ip", &["netns", "add", &name]).status.success() {
            eprintln!("skipped: network namespaces need root");
            return None;
        }
        let network = Network { name, others: 0 };
        ip(&network.name, &["link", "set", "lo", "up"]);
        Some((0..others).fold(network, Network::with_another))
    }

    /// Adds a host. Its link has the addresses 10.89.N.1 on the host in the middle, and 10.89.N.2 on the new
    /// host.
    fn with_another(mut self, number: u8) -> Network {
        let (other, link) = (self.host(number), format!("link{number}"));
        run("ip", &["netns", "add", &other]).expect_success();
        self.others = number + 1;
        let cable = [
            "link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &other,
        ];
        ip(&self.name, &cable);
        for (host, interface, end) in [(&self.name, link.as_str(), 1), (&other, "eth0", 2)] {
            ip(
                host,
                &[
                    "address",
                    "add",
                    &format!("10.89.{number}.{end}/24"),
                    "dev",
                    interface,
                ],
            );
            ip(host, &["link", "set", interface, "up"]);
        }
        self
    }

    fn host(&self, number: u8) -> String {
        format!("{}-{number}", self.name)
    }

    /// The command that runs the binary under test on a host, with the mounts of this process.
    fn linerate(host: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args([&format!("--net=/run/netns/{host}"), "--", LINERATE]);
        command
    }

    /// Runs a command on the host in the middle, which has the set.
    fn here(&self, arguments: &[&str]) -> Ended {
        run_command(Network::linerate(&self.name).args(arguments))
    }

    fn unplug(&self, number: u8) {
        ip(&self.host(number), &["link", "set", "eth0", "down"]);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let others = (0..self.others).map(|number| self.host(number));
        for name in others.chain([self.name.clone()]) {
            let _ = run("ip", &["netns", "delete", &name]); // a leftover empty one is harmless
        }
    }
}

fn ip(host: &str, words: &[&str]) {
    run("ip", &[&["-n", host], words].concat()).expect_success();
}

/// A server on a host.
struct Host {
    child: Child,
    state: TempDir,
}

impl Host {
    fn start(host: &str, arguments: &[String]) -> Host {
        let state = TempDir::new().expect("a temporary folder");
        let log = fs::File::create(state.path().join("log")).expect("a temporary file");
        let mut command = Network::linerate(host);
        command.args("--log info serve --congestion cubic --reactors 1 --state".split(' '));
        command
            .arg(state.path())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        let mut child = command.spawn().expect("a server");
        let mut said = BufReader::new(child.stdout.take().expect("a pipe"))
            .lines()
            .map_while(Result::ok);
        let is_ready = said.by_ref().any(|line| line == "ready");
        let server = Host { child, state };
        assert!(is_ready, "{}", server.log());
        std::thread::spawn(move || said.for_each(drop)); // so that it never blocks on a full pipe
        server
    }

    /// Starts a server of two disks, over iSCSI, NBD and HyperSCSI.
    fn of_disks(network: &Network, number: u8, disks: &Path) -> Host {
        let address = format!("10.89.{number}.2");
        let disk = |name: &str| {
            let file = disks.join(format!("{number}{name}"));
            [
                "--volume".to_owned(),
                format!("{name}=file:{}?size=192MiB", file.display()),
            ]
        };
        let listen = |portal: String| ["--listen".to_owned(), portal];
        let words = [
            disk("a"),
            disk("b"),
            listen(format!("{address}:3260")),
            listen(format!("nbd://{address}:10809")),
            listen("hyperscsi://eth0".to_owned()),
        ];
        Host::start(&network.host(number), &words.concat())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.state.path().join("log")).unwrap_or_default()
    }

    fn control(&self) -> String {
        self.state.path().join("control.sock").display().to_string()
    }

    fn kill(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.kill();
    }
}

#[derive(Clone, Copy, Debug)]
enum Protocol {
    Nbd,
    Iscsi,
    HyperScsi,
}

impl Protocol {
    /// A disk of a host as a member, with a timeout of five seconds. On a busy machine, a request
    /// occasionally takes one or two.
    fn member(self, number: u8, disk: &str) -> String {
        match self {
            Protocol::Nbd => format!("nbd://10.89.{number}.2/{disk}?timeout=5"),
            Protocol::Iscsi => format!(
                "iscsi://10.89.{number}.2/iqn.2026-01.io.linerate:{disk}/0?command-time=5&reconnect-time=5"
            ),
            Protocol::HyperScsi => {
                format!("hyperscsi://link{number}/{disk}/0?timeout=5s&reconnect-time=5s")
            }
        }
    }
}

/// A volume of the middle host as a mounted file system; all of it is removed when this is dropped.
struct FileSystem {
    mounted: Option<Mounted>,
    device: Option<Loop>,
    file: PathBuf,
    _folder: TempDir,
}

impl FileSystem {
    fn of(network: &Network, url: &str) -> FileSystem {
        let folder = TempDir::new().expect("a temporary folder");
        let file = folder.path().join("disk");
        let path = file.display().to_string();
        network
            .here(&["attach", &format!("{url}?congestion=cubic"), &path])
            .expect_success();
        let mut made = FileSystem {
            mounted: None,
            device: None,
            file,
            _folder: folder,
        };
        let device = made.device.insert(Loop::over(&made.file, &[]));
        run("mkfs.ext4", &["-q", device.name()]).expect_success();
        made.mounted = Some(Mounted::new(device));
        made
    }

    fn path(&self) -> &Path {
        self.mounted.as_ref().expect("mounted").path()
    }

    /// Writes a file at random, then reads and verifies every block.
    fn load(&self, run: u32) -> Child {
        let mut command = Command::new("fio");
        command.args([
            "--name=verified",
            "--rw=randwrite",
            "--bs=4k-64k",
            "--size=48M",
            "--ioengine=libaio",
        ]);
        command.args([
            "--iodepth=8",
            "--direct=1",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_state_save=0",
        ]);
        command
            .arg(format!("--randseed={run}"))
            .arg(format!("--directory={}", self.path().display()));
        command.arg(format!(
            "--output={}",
            self.path().join("fio.out").display()
        ));
        command.stdin(Stdio::null()).spawn().expect("fio")
    }

    fn expect_verified(&self, mut load: Child) {
        let status = end_of(&mut load);
        let said = fs::read_to_string(self.path().join("fio.out")).unwrap_or_default();
        assert!(
            status.success() && said.contains("err= 0"),
            "{status}: {said}"
        );
    }

    /// Unmounts the file system, and checks that it is consistent.
    fn end(mut self) {
        self.mounted = None;
        let device = self.device.take().expect("a loop device");
        run("e2fsck", &["-f", "-n", device.name()]).expect_success();
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        (self.mounted, self.device) = (None, None);
        let _ = run(
            LINERATE,
            &[Path::new("detach"), Path::new("--force"), &self.file],
        );
    }
}

fn state_of(control: &str) -> Value {
    let ended = run(
        LINERATE,
        &["raid", "status", "vol", "--json", "--control", control],
    );
    let status: Value =
        serde_json::from_str(&ended.said).unwrap_or_else(|_| panic!("{}", ended.said));
    status["sets"][0].clone()
}

fn a_host_dies_and_is_replaced_under_a_file_system(protocol: Protocol) {
    if !loops_possible(&["mkfs.ext4", "e2fsck", "fio"]) || !installed(&["ip", "nsenter"]) {
        return;
    }
    let network = or_skip!(Network::of(4));
    let disks = TempDir::new().expect("a temporary folder");
    let mut hosts: Vec<Host> = (0..4)
        .map(|number| Host::of_disks(&network, number, disks.path()))
        .collect();
    let members: Vec<String> = (0..3).map(|number| protocol.member(number, "a")).collect();
    let set = format!("raid5:64KiB:[{}]?rebuild=1GiB", members.join(","));
    network.here(&["raid", "create", &set]).expect_success();
    let words = [
        "--volume",
        &format!("vol={set}"),
        "--listen",
        "127.0.0.1:3260",
    ]
    .map(str::to_owned);
    let front = Host::start(&network.name, &words);
    let control = front.control();
    let volume = FileSystem::of(&network, "iscsi://127.0.0.1/iqn.2026-01.io.linerate:vol/0");

    let mut runs = 1;
    let mut load = volume.load(runs);
    let written = || {
        fs::metadata(disks.path().join("1a"))
            .map_or(0, |disk| std::os::unix::fs::MetadataExt::blocks(&disk))
    };
    let before = written();
    until("the load has begun", || written() > before + (8 << 11));
    network.unplug(1);
    hosts[1].kill();
    until("the set knows", || {
        state_of(&control)["members"][1]["state"] == "failed"
    });
    assert_eq!(state_of(&control)["state"], "degraded");
    run(
        LINERATE,
        &[
            "raid",
            "replace",
            "vol",
            "1",
            &protocol.member(3, "a"),
            "--control",
            &control,
        ],
    )
    .expect_success();
    // The member is rebuilt under load.
    until("it is rebuilt", || {
        if let Ok(Some(_)) = load.try_wait() {
            runs += 1;
            let ended = std::mem::replace(&mut load, volume.load(runs));
            assert!(
                ended
                    .wait_with_output()
                    .is_ok_and(|ended| ended.status.success())
            );
        }
        let state = state_of(&control);
        let members = state["members"].as_array().expect("a list");
        assert!(
            members.iter().all(|member| member["state"] != "failed"),
            "{state}: {}",
            front.log()
        );
        state["state"] == "healthy"
    });
    volume.expect_verified(load);
    volume.expect_verified(volume.load(runs + 1));
    volume.end();
    let found = run(LINERATE, &["raid", "scrub", "vol", "--control", &control]).expect_success();
    assert!(found.contains(": 0 inconsistent, 0 unreadable"), "{found}");
    let log = front.log();
    assert!(log.contains("a member of a RAID set is rebuilt"), "{log}");
}

#[test]
fn ext4_over_three_nbd_servers_outlives_one_that_dies_and_is_replaced() {
    a_host_dies_and_is_replaced_under_a_file_system(Protocol::Nbd);
}

#[test]
fn ext4_over_three_iscsi_targets_outlives_one_that_dies_and_is_replaced() {
    a_host_dies_and_is_replaced_under_a_file_system(Protocol::Iscsi);
}

#[test]
fn ext4_over_three_hyperscsi_targets_outlives_one_that_dies_and_is_replaced() {
    a_host_dies_and_is_replaced_under_a_file_system(Protocol::HyperScsi);
}

/// Sets of six and of four disks of three hosts, each under a verified load, in order and at random.
#[test]
fn sets_of_six_and_of_four_disks_of_three_hosts_verify() {
    if std::env::var_os("LINERATE_RAID_LONG").is_none() {
        eprintln!("skipped: it takes minutes; set LINERATE_RAID_LONG=1");
        return;
    }
    let network = or_skip!(Network::of(3));
    let disks = TempDir::new().expect("a temporary folder");
    let _hosts: Vec<Host> = (0..3)
        .map(|number| Host::of_disks(&network, number, disks.path()))
        .collect();
    for protocol in [Protocol::Nbd, Protocol::Iscsi, Protocol::HyperScsi] {
        for count in [6, 4] {
            let of = |number: u8| protocol.member(number % 3, ["a", "b"][usize::from(number / 3)]);
            let members: Vec<String> = (0..count).map(of).collect();
            let pairs: Vec<String> = members
                .chunks(2)
                .map(|pair| format!("raid1:[{}]", pair.join(",")))
                .collect();
            let flat = |level: &str| format!("{level}:[{}]", members.join(","));
            let sets = [
                flat("raid0"),
                flat("raid5"),
                flat("raid10"),
                format!("raid0:[{}]", pairs.join(",")),
            ];
            for set in sets {
                if set.contains("raid1:") {
                    for pair in &pairs {
                        network
                            .here(&["raid", "create", pair, "--yes"])
                            .expect_success();
                    }
                }
                network
                    .here(&["raid", "create", &set, "--yes"])
                    .expect_success();
                // The disks have been used: copies are consistent from here on.
                network
                    .here(&["raid", "scrub", &set, "--repair"])
                    .expect_success();
                for random in ["0", "100"] {
                    let load = [
                        "--block",
                        "4KiB,64KiB",
                        "--depth",
                        "8",
                        "--read",
                        "50",
                        "--seconds",
                        "2",
                    ];
                    let rest = [
                        "--verify",
                        "--allow-write",
                        "--yes",
                        "--span",
                        "96MiB",
                        "--random",
                        random,
                    ];
                    let ended = network.here(&[&["bench", &set], &load[..], &rest].concat());
                    assert!(
                        ended.status.success(),
                        "{set}, {random} % at random: {}",
                        ended.said
                    );
                }
                let ended = network.here(&["raid", "scrub", &set]);
                assert!(
                    ended.said.contains(": 0 inconsistent, 0 unreadable"),
                    "{set}: {}",
                    ended.said
                );
            }
        }
    }
}
