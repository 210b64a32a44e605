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
    /// Bytes of the files that it has loaded.
    loaded: u64,
    /// Number of the files that it has loaded.
    files: u32,
    _profile: TempDir,
}

/// Bytes of files after which another process takes over, because sharkd does not free all memory of a file: in the
/// tests of this crate, one process grew to 6 GB.
const LOADED_MAX: u64 = 128 << 20;

static SHARKD: Mutex<Option<Sharkd>> = Mutex::new(None);

/// For each filter, whether a packet of the file matches it; `None` without sharkd. Every port is decoded as
/// iSCSI.
pub(crate) fn matches<const N: usize>(file: &Path, filters: [&str; N]) -> Option<[bool; N]> {
    if !installed(&["sharkd"]) {
        return None;
    }
    let mut running = SHARKD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(full) = running.take_if(|sharkd| sharkd.loaded > LOADED_MAX) {
        full.end();
    }
    let sharkd = running.get_or_insert_with(Sharkd::start);
    sharkd.loaded += file.metadata().expect("a file").len();
    sharkd.files += 1;
    sharkd.ask("load", &json!({ "file": file }));
    // sharkd 4.0 keeps the packets that match a filter, and also uses them for the same filter of the next file. So no two
    // files have the same filter.
    let every_packet = format!("frame.number < {}", u32::MAX - sharkd.files);
    Some(filters.map(|filter| {
        let filter = format!("({filter}) && {every_packet}");
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
            loaded: 0,
            files: 0,
            _profile: profile,
        }
    }

    fn end(mut self) {
        drop(self.requests);
        self.process
            .wait()
            .expect("sharkd ends with its standard input");
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

#[test]
fn a_filter_is_applied_to_each_file_anew() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = |port: u16| folder.path().join(port.to_string());
    for port in [1000_u16, 2000] {
        // pcap (magic number, version 2.4, raw IP), with a packet of 28 bytes: an IPv4 header and a UDP header.
        let mut file = Vec::new();
        file.extend(
            [0xa1b2_c3d4_u32, 2 | 4 << 16, 0, 0, 65535, 101]
                .map(u32::to_le_bytes)
                .concat(),
        );
        file.extend([0_u32, 0, 28, 28].map(u32::to_le_bytes).concat());
        file.extend([
            0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1,
        ]);
        file.extend([port, port, 8, 0].map(u16::to_be_bytes).concat());
        std::fs::write(path(port), file).expect("a temporary file");
    }
    for port in [1000, 2000, 1000] {
        let found = matches(&path(port), ["udp.port == 1000", "udp.port == 2000"]);
        assert!(found.is_none_or(|found| found == [port == 1000, port == 2000]));
    }
}
