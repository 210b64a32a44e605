//! `linerate bench agent` and `linerate bench --agents`, with which several machines measure together. Here,
//! the machines are processes on the loopback; in `agents_lan`, each has its own network namespace.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::program::{Ended, LINERATE, PATIENCE, end_of, run_command, says, signal, until};
use crate::proxy::{Proxy, Towards};
use crate::server::{Server, free_port};
use crate::sessions::sessions;

const SECRET: &str = "correct horse battery staple";

/// A running agent.
pub(crate) struct Agent {
    child: Child,
    pub(crate) address: String,
}

impl Agent {
    /// Starts an agent on a loopback port.
    pub(crate) fn start(secret: &Path, more: &[&str]) -> Agent {
        Agent::start_by(Command::new(LINERATE), "127.0.0.1:0", secret, more)
    }

    /// Starts an agent with this command, to which the agent's arguments are appended.
    pub(crate) fn start_by(
        mut command: Command,
        listen: &str,
        secret: &Path,
        more: &[&str],
    ) -> Agent {
        command
            .args(["bench", "agent", "--listen", listen, "--secret-file"])
            .arg(secret)
            .args(more);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("an agent");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe"))
            .lines()
            .map_while(Result::ok);
        let first = lines
            .by_ref()
            .find(|line| line.starts_with("listens on "))
            .expect("an agent that listens");
        let address = first["listens on ".len()..]
            .split(';')
            .next()
            .expect("an address")
            .to_owned();
        std::thread::spawn(move || lines.for_each(drop)); // so that the process never blocks on a full pipe
        Agent { child, address }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill(); // fails if it has already ended
        let _ = self.child.wait();
    }
}

/// A directory with a file that contains a secret.
pub(crate) fn folder() -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a temporary folder");
    let secret = written(&folder, "secret", &format!("{SECRET}\r\n"));
    (folder, secret)
}

fn written(folder: &TempDir, name: &str, secret: &str) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, secret).expect("a temporary file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("our own file");
    path
}

/// Runs `linerate bench` with these agents.
pub(crate) fn bench(
    mut command: Command,
    place: &str,
    agents: &[&str],
    secret: &Path,
    more: &[&str],
) -> Command {
    command
        .args([
            "bench",
            place,
            "--agents",
            &agents.join(","),
            "--agent-secret-file",
        ])
        .arg(secret)
        .args(more);
    command
}

fn benched(place: &str, agents: &[&str], secret: &Path, more: &[&str]) -> Ended {
    run_command(&mut bench(
        Command::new(LINERATE),
        place,
        agents,
        secret,
        more,
    ))
}

pub(crate) fn record(folder: &Path) -> Value {
    let text = fs::read_to_string(folder.join("result.json")).expect("a record");
    serde_json::from_str(&text).expect("JSON")
}

/// The clients of the only run.
pub(crate) fn clients(record: &Value) -> Vec<&Value> {
    record["runs"][0]["clients"]
        .as_array()
        .expect("clients")
        .iter()
        .collect()
}

pub(crate) fn number(value: &Value, path: &str) -> u64 {
    value
        .pointer(path)
        .and_then(Value::as_u64)
        .unwrap_or_else(|| panic!("no {path} in {value}"))
}

/// Checks that the coordinator was rejected, with one sentence and this exit code.
fn refused(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.status.code(), Some(code), "{}", ended.said);
    let sentences: Vec<&str> = ended
        .said
        .lines()
        .filter(|line| line.starts_with("linerate: "))
        .collect();
    let [sentence] = sentences[..] else {
        panic!("not one sentence: {}", ended.said)
    };
    words
        .iter()
        .for_each(|word| assert!(sentence.contains(word), "{word}: {sentence}"));
}

#[test]
fn a_wrong_secret_is_refused_on_both_sides() {
    let (folder, secret) = folder();
    let agent = Agent::start(&secret, &[]);
    let other = written(&folder, "other", "incorrect horse battery");
    refused(
        &benched("ram:1MiB", &[&agent.address], &other, &[]),
        5,
        &[&agent.address, "secret"],
    );
    // Line ends are not part of a secret, wherever it is.
    let mut command = Command::new(LINERATE);
    command.args([
        "bench",
        "ram:1MiB",
        "--agents",
        &agent.address,
        "--bs",
        "4k",
        "--seconds",
        "0.1",
    ]);
    let measured = run_command(command.env("LINERATE_AGENT_SECRET", format!("{SECRET}\n")));
    assert!(
        measured.said.contains("1MiB") && measured.status.code() != Some(5),
        "{}",
        measured.said
    );
}

#[test]
fn an_agent_that_is_not_there_is_named() {
    let (_folder, secret) = folder();
    let nobody = format!("127.0.0.1:{}", free_port());
    refused(
        &benched("ram:1MiB", &[&nobody], &secret, &[]),
        3,
        &[&nobody, "refused"],
    );
}

#[test]
fn an_agent_of_another_version_is_named() {
    let (_folder, secret) = folder();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let agent = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a coordinator");
        let mut length = [0; 4];
        stream.read_exact(&mut length).expect("a hello");
        let nonce = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";
        let program = r"linerate 0.0.9\ndata verified"; // as JSON has it
        let hello = format!(r#"{{"linerate_bench":1,"program":"{program}","nonce":"{nonce}"}}"#);
        stream
            .write_all(&[&(hello.len() as u32).to_be_bytes(), hello.as_bytes()].concat())
            .expect("our hello");
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let version = r"linerate 0.0.9\ndata verified"; // escaped, and no second line
    refused(
        &benched("ram:1MiB", &[&address], &secret, &[]),
        2,
        &[&address, version, "the same"],
    );
    agent.join().expect("an agent");
}

#[test]
fn what_is_no_agent_is_said_to_be_none() {
    let (_folder, secret) = folder();
    let server = Server::serving(&["disk=ram:1MiB"]);
    // An iSCSI target closes the connection if the data is not a login.
    refused(
        &benched("ram:1MiB", &[&server.portal()], &secret, &[]),
        3,
        &[&server.portal()],
    );
}

#[test]
fn nothing_is_written_by_an_agent_that_was_not_allowed_to() {
    let (_folder, secret) = folder();
    let server = Server::serving(&["disk=ram:1MiB"]);
    let agent = Agent::start(&secret, &[]);
    let options = ["--read", "0", "--allow-write", "--yes", "--seconds", "0.5"];
    let ended = benched(&server.url("disk"), &[&agent.address], &secret, &options);
    refused(&ended, 2, &[&agent.address, "--allow-write"]);
}

#[test]
fn nothing_is_made_by_an_agent_that_was_not_allowed_to() {
    let ((here, secret), there) = (folder(), TempDir::new().expect("a temporary folder"));
    let mut command = Command::new(LINERATE);
    command.current_dir(there.path());
    let agent = Agent::start_by(command, "127.0.0.1:0", &secret, &[]);
    // The coordinator has the file. In the agent's directory there is none.
    fs::write(here.path().join("new.img"), vec![0; 1 << 20]).expect("a temporary file");
    for more in [
        &["--read", "100"][..],
        &["--read", "0", "--allow-write", "--yes"],
    ] {
        for place in [
            "file:new.img?size=1MiB",
            "buffered:1MiB:[file:new.img?size=1MiB]",
        ] {
            let mut coordinator = Command::new(LINERATE);
            coordinator.current_dir(here.path());
            let options = [more, &["--seconds", "0.5"]].concat();
            let mut coordinator = bench(coordinator, place, &[&agent.address], &secret, &options);
            refused(
                &run_command(&mut coordinator),
                2,
                &[&agent.address, "--allow-write"],
            );
            assert!(
                !there.path().join("new.img").exists(),
                "{place} {more:?}: made without permission"
            );
        }
    }
}

#[test]
fn an_agent_works_for_one_coordinator_at_a_time() {
    let (_folder, secret) = folder();
    let agent = Agent::start(&secret, &[]);
    let begin = || {
        let mut first = bench(
            Command::new(LINERATE),
            "ram:1MiB",
            &[&agent.address],
            &secret,
            &["--seconds", "60"],
        );
        first
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a coordinator")
    };
    let mut first = begin();
    let second = (0..100).find_map(|_| {
        let ended = benched(
            "ram:1MiB",
            &[&agent.address],
            &secret,
            &["--seconds", "0.5"],
        );
        // The agent serves the coordinator that connects first. If that was the second one, the first was
        // rejected.
        if let Ok(Some(_)) = first.try_wait() {
            first = begin();
        }
        (!ended.status.success()).then_some(ended)
    });
    refused(
        &second.expect("a refusal"),
        1,
        &[&agent.address, "another coordinator, 127.0.0.1:"],
    );
    // When it disconnects, even abruptly, the agent is free again.
    first
        .kill()
        .and_then(|()| first.wait())
        .expect("our own child");
    until("a free agent", || {
        benched(
            "ram:1MiB",
            &[&agent.address],
            &secret,
            &["--seconds", "0.5"],
        )
        .status
        .success()
    });
}

#[test]
fn an_agent_that_is_lost_in_the_middle_ends_the_run_and_loses_no_results() {
    let (folder, secret) = folder();
    let server = Server::serving(&["disk=ram:16MiB"]);
    let mut agents: Vec<Agent> = (0..2).map(|_| Agent::start(&secret, &[])).collect();
    let out = folder.path().join("out");
    let port = agents[1]
        .address
        .rsplit(':')
        .next()
        .and_then(|port| port.parse().ok());
    let proxy = Proxy::to(port.expect("a port"));
    let addresses = [
        agents[0].address.clone(),
        format!("127.0.0.1:{}", proxy.port()),
    ];
    let addresses = addresses.each_ref().map(String::as_str);
    let options = ["--seconds", "60", "--out", out.to_str().expect("a path")];
    let mut coordinator = bench(
        Command::new(LINERATE),
        &server.url("disk"),
        &addresses,
        &secret,
        &options,
    );
    let said = tempfile::NamedTempFile::new().expect("a temporary file");
    let errors = said.reopen().expect("the same file");
    let mut coordinator = coordinator
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .expect("a coordinator");
    wait_for_sessions(&server, 2, 5000); // so that there are results to lose
    // The test must not depend on messages that the agent may not have sent: after this many bytes, it has
    // sent several samples.
    let before = proxy.bytes_of(0, Towards::Initiator);
    until("samples of the agent", || {
        proxy.bytes_of(0, Towards::Initiator) > before + 1024
    });
    agents[1]
        .child
        .kill()
        .and_then(|()| agents[1].child.wait())
        .expect("our own child");
    let status = end_of(&mut coordinator);
    let said = fs::read_to_string(said.path()).expect("a text");
    assert_eq!(status.code(), Some(3), "{said}");
    says(
        &said,
        &[&format!(
            "the connection to agent {} was lost",
            addresses[1]
        )],
    );
    let record = record(&out);
    assert_eq!(record["runs"][0]["ended"], "interrupted");
    for client in clients(&record) {
        assert!(number(client, "/run/reads/ios") > 0, "{client}");
    }
    assert!(
        clients(&record)[1]["run"]["first_failure"]
            .as_str()
            .is_some_and(|why| why.contains("disconnected"))
    );
    assert!(record["ended"].is_null(), "it can be gone on with");
}

/// Waits until this number of the agents' sessions have executed more commands than that.
fn wait_for_sessions(server: &Server, count: usize, commands: u64) {
    until("busy sessions", || {
        sessions(server)
            .iter()
            .filter(|session| number(session, "/commands") > commands)
            .count()
            >= count
    });
}

#[test]
fn an_agent_that_loses_its_coordinator_ends_its_requests() {
    let (_folder, secret) = folder();
    let server = Server::serving(&["disk=ram:16MiB"]);
    let agent = Agent::start(&secret, &[]);
    let options = ["--seconds", "60"];
    let mut first = bench(
        Command::new(LINERATE),
        &server.url("disk"),
        &[&agent.address],
        &secret,
        &options,
    );
    let mut first = first
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a coordinator");
    wait_for_sessions(&server, 1, 100);
    signal(&first, "KILL");
    let _ = first.wait();
    until("a logout of the agent", || sessions(&server).is_empty());
}

#[test]
fn a_stranger_gets_nothing_and_keeps_nobody_out() {
    let (_folder, secret) = folder();
    let agent = Agent::start(&secret, &[]);
    let mut strangers: Vec<TcpStream> = (0..40)
        .map(|_| TcpStream::connect(&agent.address).expect("a connection"))
        .collect();
    strangers[39]
        .write_all(b"GET / HTTP/1.1\r\n\r\n")
        .expect("a few bytes");
    let mut said = Vec::new();
    strangers[39]
        .set_read_timeout(Some(PATIENCE))
        .expect("a time");
    let _ = strangers[39].read_to_end(&mut said); // it may be reset
    assert_eq!(said, b"");
    benched(
        "ram:1MiB",
        &[&agent.address],
        &secret,
        &["--seconds", "0.5"],
    )
    .expect_success();
}
