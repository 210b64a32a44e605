//! Three agents, a target and a coordinator on one Ethernet: network namespaces connected by a bridge.
//! Skipped with a message without root and `ip`.
//!
//! ```text
//!   target        agent 1        agent 2        agent 3
//!   10.77.0.1     10.77.0.11     10.77.0.12     10.77.0.13
//!      └─────────────┴──── bridge ──┴──────────────┘        the coordinator is where the bridge is: 10.77.0.254
//! ```

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use serde_json::Value;
use tempfile::TempDir;

use crate::agents::{Agent, bench, clients, folder, number, record};
use crate::program::{LINERATE, end_of, installed, run, run_command, signal, until};
use crate::sessions::sessions_at;

const TARGET: &str = "10.77.0.1";
const AGENTS: [&str; 3] = ["10.77.0.11", "10.77.0.12", "10.77.0.13"];
const COORDINATOR: &str = "10.77.0.254";

/// The bridge, and a host for each address. Removed when dropped.
struct Lan {
    bridge: String,
    hosts: Vec<(&'static str, String)>,
}

impl Lan {
    /// Creates the network. Returns `None`, and prints the reason, if this is not possible.
    fn new() -> Option<Lan> {
        if !installed(&["ip"]) {
            return None;
        }
        static LANS: AtomicU32 = AtomicU32::new(0);
        let number = LANS.fetch_add(1, Relaxed);
        let name = |what: &str| format!("linerate-{}-{number}-{what}", std::process::id());
        let bridge = name("lan");
        if !run("ip", &["netns", "add", &bridge]).status.success() {
            eprintln!("skipped: network namespaces need root");
            return None;
        }
        let mut lan = Lan {
            bridge,
            hosts: Vec::new(),
        };
        lan.within(&lan.bridge, &["link", "add", "br0", "type", "bridge"]);
        lan.within(
            &lan.bridge,
            &["addr", "add", &format!("{COORDINATOR}/24"), "dev", "br0"],
        );
        lan.within(&lan.bridge, &["link", "set", "br0", "up"]);
        for (number, address) in [TARGET].into_iter().chain(AGENTS).enumerate() {
            lan.plug_in(
                address,
                &name(&format!("host{number}")),
                &format!("port{number}"),
            );
        }
        Some(lan)
    }

    /// Adds a host with this address, connected to the bridge. The host uses cubic, because bbr paces, and
    /// pacing is not under test.
    fn plug_in(&mut self, address: &'static str, host: &str, port: &str) {
        run("ip", &["netns", "add", host]).expect_success();
        self.hosts.push((address, host.to_owned()));
        let cable = [
            "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host,
        ];
        self.within(&self.bridge, &cable);
        self.within(&self.bridge, &["link", "set", port, "master", "br0", "up"]);
        self.within(
            host,
            &[
                "addr",
                "add",
                &format!("{address}/24"),
                "dev",
                "eth0",
                "noprefixroute",
            ],
        );
        self.within(host, &["link", "set", "eth0", "up"]);
        self.within(
            host,
            &[
                "route",
                "add",
                "10.77.0.0/24",
                "dev",
                "eth0",
                "congctl",
                "cubic",
            ],
        );
    }

    fn within(&self, namespace: &str, words: &[&str]) {
        run("ip", &[&["-n", namespace], words].concat()).expect_success();
    }

    /// The binary under test on the host with this address, or on the bridge's host.
    fn linerate(&self, address: &str) -> Command {
        let host = self
            .hosts
            .iter()
            .find(|(host, _)| *host == address)
            .map_or(&self.bridge, |(_, name)| name);
        let mut command = Command::new("ip");
        command.args(["netns", "exec", host, LINERATE]);
        command
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        for name in self
            .hosts
            .iter()
            .map(|(_, name)| name)
            .chain([&self.bridge])
        {
            let _ = run("ip", &["netns", "delete", name]); // a leftover empty one is harmless
        }
    }
}

/// A target that logs the totals of each session.
struct Target {
    child: Child,
    log: PathBuf,
    state: TempDir,
}

/// The target's log message at the end of a connection.
const MOVED: &str = "moved by its session";

impl Target {
    fn start(lan: &Lan) -> Target {
        let state = TempDir::new().expect("a temporary folder");
        let log = state.path().join("log");
        let mut command = lan.linerate(TARGET);
        command.args("--log info --log-format json serve --volume disk=ram:64MiB".split(' '));
        command
            .args(["--listen", &format!("{TARGET}:3260"), "--state"])
            .arg(state.path());
        command.arg("--control").arg(state.path().join("control"));
        command
            .stdout(Stdio::piped())
            .stderr(File::create(&log).expect("a temporary file"));
        let mut child = command.spawn().expect("a target");
        let mut said = BufReader::new(child.stdout.take().expect("a pipe"))
            .lines()
            .map_while(Result::ok);
        assert!(
            said.by_ref().any(|line| line == "ready"),
            "a target that is ready"
        );
        std::thread::spawn(move || said.for_each(drop)); // so that the process never blocks on a full pipe
        Target { child, log, state }
    }

    /// Waits until the agents have logged out and the target has logged the totals of every connection: a
    /// coordinator with all results does not wait for the agents to leave.
    fn until_all_have_left(&self) {
        until("a target without a session", || {
            sessions_at(&self.state.path().join("control")).is_empty()
        });
        until("a logged end of every connection", || {
            AGENTS.iter().all(|address| {
                let logged = |message| self.logged(message, address).len();
                logged(MOVED) > 0 && logged(MOVED) == logged("logged in")
            })
        });
    }

    /// The fields of the log lines with this message about connections of a host.
    fn logged(&self, message: &str, address: &str) -> Vec<Value> {
        let text = fs::read_to_string(&self.log).expect("a log");
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let fields = lines.map(|mut line| line["fields"].take());
        fields
            .filter(|fields| fields["message"] == message)
            .filter(|fields| {
                fields["peer"]
                    .as_str()
                    .and_then(|peer| peer.split(':').next())
                    == Some(address)
            })
            .collect()
    }

    /// The totals of a host's sessions, once all of them have ended: the target's own counters.
    fn counters(&self, address: &str) -> Counters {
        self.logged(MOVED, address)
            .iter()
            .fold(Counters::default(), |sum, fields| Counters {
                commands: sum.commands + number(fields, "/commands"),
                read_bytes: sum.read_bytes + number(fields, "/read_bytes"),
                written_bytes: sum.written_bytes + number(fields, "/written_bytes"),
            })
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        signal(&self.child, "TERM");
        end_of(&mut self.child);
    }
}

#[derive(Debug, Default)]
struct Counters {
    commands: u64,
    read_bytes: u64,
    written_bytes: u64,
}

fn three_agents(lan: &Lan, secret: &Path) -> Vec<Agent> {
    let start =
        |address: &str| Agent::start_by(lan.linerate(address), address, secret, &["--allow-write"]);
    AGENTS.map(start).into()
}

const BLOCK: u64 = 4096;
const DEPTH: u64 = 8;

/// Each agent's numbers and their sum match the target's. The differences are exactly explained:
///
/// * a request outstanding when counting ended is counted by the target and not by the client: 0 to 8 for
///   each client (its depth), whole blocks in the data counters;
/// * before the first request, each session queries the LUN (INQUIRY, READ CAPACITY and so on, which the
///   clients do not count): the same number of commands and bytes, less than a block, for every agent.
#[test]
fn three_agents_saw_what_the_target_saw() {
    let Some(lan) = Lan::new() else { return };
    let (folder, secret) = folder();
    let (target, agents) = (Target::start(&lan), three_agents(&lan, &secret));
    let out = folder.path().join("out");
    let url = format!("iscsi://{TARGET}/iqn.2026-01.io.linerate:disk/0");
    let addresses: Vec<&str> = agents.iter().map(|agent| agent.address.as_str()).collect();
    let options = [
        "--depth",
        "8",
        "--read",
        "70",
        "--seconds",
        "1.5",
        "--allow-write",
        "--yes",
        "--out",
    ];
    let options = [&options[..], &[out.to_str().expect("a path")]].concat();
    let mut command = bench(
        lan.linerate(COORDINATOR),
        &url,
        &addresses,
        &secret,
        &options,
    );
    let said = run_command(&mut command).expect_success();
    for word in addresses.iter().chain(&["IOPS", "fairness"]) {
        assert!(said.contains(word), "{word}: {said}");
    }
    target.until_all_have_left();
    drop(agents);
    let record = record(&out);
    let mut looks = Vec::new();
    for (client, address) in clients(&record).iter().zip(AGENTS) {
        let (seen, told) = (target.counters(address), &client["run"]);
        let count = |path: &str| number(told, path);
        let edge = seen.written_bytes - count("/writes/bytes");
        let more = seen.read_bytes - count("/reads/bytes");
        let (writes, reads, look_bytes) = (edge / BLOCK, more / BLOCK, more % BLOCK);
        assert_eq!(edge % BLOCK, 0, "{address}: {seen:?}");
        assert!(
            writes + reads <= DEPTH,
            "{address}: {writes} writes and {reads} reads more than it counted"
        );
        let look = seen.commands - count("/writes/ios") - count("/reads/ios") - writes - reads;
        eprintln!(
            "{address}: the target counted {reads} reads and {writes} writes more, and {look} commands before"
        );
        looks.push((look, look_bytes));
        assert!(
            count("/reads/ios") > 100 && count("/writes/ios") > 10,
            "{client}"
        );
        assert_eq!(count("/reads/bytes"), count("/reads/ios") * BLOCK);
    }
    assert!(looks.iter().all(|look| *look == looks[0]), "{looks:?}");
    // The bench's total is the sum of the parts.
    let sum: u64 = clients(&record)
        .iter()
        .map(|client| number(&client["run"], "/reads/ios"))
        .sum();
    let all: u64 = AGENTS
        .iter()
        .map(|address| target.counters(address).read_bytes / BLOCK)
        .sum();
    assert!(
        (sum..=sum + 3 * DEPTH).contains(&all),
        "{all} reads by the target's count, {sum} by the clients'"
    );
    for client in clients(&record) {
        let late = client["late_us"].as_f64().expect("a time");
        assert!(
            late >= 0.0
                && client["late_error_us"]
                    .as_f64()
                    .is_some_and(|error| error < 50_000.0),
            "{client}"
        );
    }
}

/// `clients`, with shorter runs than its default.
const CLIENTS: &str = include_str!("../../../measure/bench/suites/clients.toml");

#[test]
fn the_clients_suite_runs_on_as_many_agents_as_there_are_and_on_threads() {
    let Some(lan) = Lan::new() else { return };
    let (folder, secret) = folder();
    let (_target, agents) = (Target::start(&lan), three_agents(&lan, &secret));
    let suite = folder.path().join("clients.toml");
    fs::write(&suite, CLIENTS.replace("2min", "300ms")).expect("a temporary file");
    let url = format!("iscsi://{TARGET}/iqn.2026-01.io.linerate:disk/0");
    let addresses: Vec<&str> = agents.iter().map(|agent| agent.address.as_str()).collect();
    let options = [
        "--allow-write",
        "--yes",
        "--suite",
        suite.to_str().expect("a path"),
        "--out",
    ];
    let run_on = |count: usize| {
        let out = folder.path().join(count.to_string());
        let options = [&options[..], &[out.to_str().expect("a path")]].concat();
        let mut command = lan.linerate(COORDINATOR);
        match count {
            0 => drop(command.args(["bench", &url]).args(options)),
            _ => command = bench(command, &url, &addresses[..count], &secret, &options),
        }
        run_command(&mut command).expect_success();
        (out.clone(), record(&out))
    };
    let shape = |record: &Value| -> Vec<(String, usize)> {
        let runs = record["runs"].as_array().expect("runs").iter();
        let clients = |run: &Value| run["clients"].as_array().map_or(0, Vec::len);
        runs.map(|run| {
            (
                run["cell"].as_str().expect("a name").to_owned(),
                clients(run),
            )
        })
        .collect()
    };
    let all = [1, 2, 3, 1, 3];
    for (count, expected) in [(1, &[1, 1][..]), (2, &[1, 2, 1]), (3, &all), (0, &all)] {
        let (out, record) = run_on(count);
        let shape = shape(&record);
        assert_eq!(
            shape
                .iter()
                .map(|(_, clients)| *clients)
                .collect::<Vec<_>>(),
            expected,
            "{count}: {shape:?}"
        );
        let left_out = record["notes"].to_string().contains("agents are listed");
        assert_eq!(left_out, (1..3).contains(&count), "{}", record["notes"]);
        let report = fs::read_to_string(out.join("report.md")).expect("a report");
        let named = if count == 0 {
            vec!["client 1"]
        } else {
            addresses[..count].to_vec()
        };
        let shows_parts = expected.iter().any(|clients| *clients > 1);
        assert!(
            !shows_parts || named.iter().all(|name| report.contains(name)),
            "{report}"
        );
    }
}
