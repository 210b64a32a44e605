//! Runs sharkd, which provides Wireshark's dissectors as a service. It loads a file in milliseconds, while
//! each start of tshark takes half a second of CPU time.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::capture::guessers;
use crate::program::installed;

/// The process. It ends when this process ends, because its standard input is then closed.
struct Sharkd {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    _profile: TempDir,
}

static SHARKD: Mutex<Option<Sharkd>> = Mutex::new(None);

/// For each filter, whether a packet of the file matches it; `None` without sharkd. Every port is decoded as
/// iSCSI.
pub(crate) fn matches<const N: usize>(file: &Path, filters: [&str; N]) -> Option<[bool; N]> {
    if !installed(&["sharkd"]) {
        return None;
    }
    let mut running = SHARKD.lock().unwrap_or_else(PoisonError::into_inner);
    let sharkd = running.get_or_insert_with(Sharkd::start);
    sharkd.ask("load", &json!({ "file": file }));
    Some(filters.map(|filter| {
        let found = sharkd.ask("frames", &json!({ "filter": filter, "limit": 1 }));
        !found.as_array().expect("a list of packets").is_empty()
    }))
}

impl Sharkd {
    fn start() -> Sharkd {
        let profile = TempDir::new().expect("a temporary folder");
        let write = |name: &str, text: String| {
            std::fs::write(profile.path().join(name), text).expect("a temporary file");
        };
        write("preferences", "iscsi.target_ports: 1-65535\n".to_owned());
        write(
            "heuristic_protos",
            guessers()
                .iter()
                .map(|guesser| format!("{guesser},0\n"))
                .collect(),
        );
        let mut command = Command::new("sharkd");
        command.arg("-").env("WIRESHARK_CONFIG_DIR", profile.path());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut process = command.spawn().expect("sharkd");
        let requests = process.stdin.take().expect("a pipe");
        let answers = BufReader::new(process.stdout.take().expect("a pipe"));
        Sharkd {
            process,
            requests,
            answers,
            _profile: profile,
        }
    }

    /// The result of a request; see the JSON-RPC of sharkd.
    fn ask(&mut self, method: &str, parameters: &Value) -> Value {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": parameters });
        writeln!(self.requests, "{request}").expect("sharkd is running");
        let mut line = String::new();
        // An answer is followed by an empty line.
        while line.trim().is_empty() {
            line.clear();
            let read = self.answers.read_line(&mut line).expect("sharkd answers");
            assert!(read > 0, "sharkd has ended: {:?}", self.process.try_wait());
        }
        let mut answer: Value = serde_json::from_str(&line).expect("JSON");
        assert!(answer["error"].is_null(), "{request}: {answer}");
        answer["result"].take()
    }
}
