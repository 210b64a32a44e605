//! Decodes the wire traffic with tshark. There must be no malformed frame, and no errors or warnings from
//! tshark's iSCSI and SCSI dissectors.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use tempfile::NamedTempFile;

use crate::program::{end_of, installed, run, signal};
use crate::server::Server;
use crate::sharkd;

/// A false complaint of Wireshark.
struct Artefact {
    /// A part of the complaint's message.
    message: &'static str,
    /// A part of Wireshark's description of the frame.
    frame: &'static str,
    /// The length of the frame's data segment, if the artefact depends on it.
    data_bytes: Option<&'static str>,
}

const ARTEFACTS: &[Artefact] = &[
    // libiscsi requests 64 bytes of VPD page 83h first. The page is longer, so it is truncated, and its PAGE
    // LENGTH contains the full length (SPC-4 4.3.5.6); the dissector follows that length beyond the data.
    Artefact {
        message: "Malformed Packet",
        frame: "Inquiry Response Data",
        data_bytes: Some("64"),
    },
    // A mode page in the sub_page format, such as Control Extension, has two more bytes in front (SPC-4
    // 7.5.7). The dissector (4.0) takes the last two of these for the next page, with number 0 and length 0.
    Artefact {
        message: "Unknown Page",
        frame: "Mode Sense(10)",
        data_bytes: None,
    },
    // The dissector uses this message for MAINTENANCE IN, of which it supports few service actions.
    Artefact {
        message: "No dissection for this service action",
        frame: "Mgmt Protocol In",
        data_bytes: None,
    },
];

/// The group of TCP's own analysis, such as full windows. It is about the loopback, and not about the tested
/// code.
const GROUP_SEQUENCE: &str = "33554432";

/// The number of attempts if a capture has gaps, which a busy machine causes.
const ATTEMPTS: usize = 4;

/// Runs an action on a server while its port is being captured, then has the capture decoded. The action is
/// repeated if frames were lost from the capture, because the dissectors cannot follow gaps.
pub(crate) fn watched<T>(server: &Server, what: impl Fn() -> T) -> T {
    watched_port(server.port(), what)
}

/// Like [`watched`], with any service on a port.
pub(crate) fn watched_port<T>(port: u16, what: impl Fn() -> T) -> T {
    for _ in 1..ATTEMPTS {
        let Some(capture) = Capture::begin(port) else {
            return what();
        };
        let outcome = what();
        let capture = capture.end();
        if capture.is_whole() {
            let faults = capture.faults();
            assert!(
                faults.is_empty(),
                "tshark complains:\n{}",
                faults.join("\n")
            );
            return outcome;
        }
    }
    eprintln!("not decoded: this machine is too busy to capture every frame");
    what()
}

/// A running capture.
struct Capture {
    dumpcap: Child,
    port: u16,
    file: NamedTempFile,
}

impl Capture {
    /// Starts a capture, or prints why it cannot.
    fn begin(port: u16) -> Option<Capture> {
        if !installed(&["tshark", "dumpcap"]) {
            return None;
        }
        let file = NamedTempFile::new().expect("a temporary file");
        let mut command = Command::new("dumpcap");
        // Use a large kernel buffer, and a limit so that a fast run does not fill the disk. The start of a
        // run has every kind of PDU.
        command.args([
            "-q",
            "-i",
            "lo",
            "-B",
            "64",
            "-a",
            "packets:20000",
            "-f",
            &format!("tcp port {port}"),
        ]);
        command
            .arg("-w")
            .arg(file.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut dumpcap = command.spawn().expect("dumpcap");
        let mut lines = BufReader::new(dumpcap.stderr.take().expect("a pipe"))
            .lines()
            .map_while(Result::ok);
        if !lines.any(|line| line.contains("Capturing on")) {
            eprintln!("not decoded: dumpcap may not capture on the loopback here");
            let _ = dumpcap.wait();
            return None;
        }
        std::thread::spawn(move || lines.for_each(drop)); // so that it never blocks on a full pipe
        let mut capture = Capture {
            dumpcap,
            port,
            file,
        };
        capture.until_a_probe_is_in_it();
        Some(capture)
    }

    /// Ends the capture once it contains everything that has happened.
    fn end(mut self) -> Captured {
        self.until_a_probe_is_in_it();
        if matches!(self.dumpcap.try_wait(), Ok(None)) {
            signal(&self.dumpcap, "INT");
        }
        end_of(&mut self.dumpcap);
        Captured {
            port: self.port,
            file: self.file,
        }
    }

    /// Connects to the port until the file has grown by the frames of this connection and no longer changes.
    /// This is necessary because dumpcap reports that it captures slightly before it does, and writes
    /// captured frames slightly later.
    fn until_a_probe_is_in_it(&mut self) {
        let before = self.length();
        let mut seen = before;
        for _ in 0..100 {
            drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)));
            std::thread::sleep(Duration::from_millis(100)); // there is no event to wait for
            let length = self.length();
            if !matches!(self.dumpcap.try_wait(), Ok(None))
                || (length > before && length.abs_diff(seen) < A_PROBE)
            {
                return;
            }
            seen = length;
        }
    }

    fn length(&self) -> u64 {
        self.file.path().metadata().map_or(0, |file| file.len())
    }
}

/// A size that is larger than what a connection without data adds to a capture, and smaller than any login.
const A_PROBE: u64 = 2000;

/// A capture that has ended.
struct Captured {
    port: u16,
    file: NamedTempFile,
}

impl Captured {
    /// Whether it contains every frame, in order.
    fn is_whole(&self) -> bool {
        const GAPS: &str = "tcp.analysis.lost_segment || tcp.analysis.ack_lost_segment || tcp.analysis.out_of_order \
             || _ws.expert.message contains \"Unknown SCSI exchange\""; // whose command is missing
        if let Some([has_gaps, has_pdus]) = sharkd::matches(self.file.path(), [GAPS, "iscsi"]) {
            return !has_gaps && has_pdus;
        }
        let frames = |filter| self.tell(&["-Y", filter, "-T", "fields", "-e", "frame.number"]);
        let count = |lines: String| {
            lines
                .lines()
                .filter(|line| line.parse::<u64>().is_ok())
                .count()
        };
        count(frames(GAPS)) == 0 && count(frames("iscsi")) > 0
    }

    fn faults(&self) -> Vec<String> {
        if sharkd::matches(self.file.path(), [SUSPICIOUS]) == Some([false]) {
            return Vec::new();
        }
        faults(self.file.path(), &self.port.to_string())
    }

    fn tell(&self, what: &[&str]) -> String {
        tell(self.file.path(), &self.port.to_string(), what)
    }
}

/// The relevant complaints of tshark about a file of packets.
pub(crate) fn faults(file: &Path, ports: &str) -> Vec<String> {
    let options = ["-Y", COMPLAINTS].into_iter().chain(FIELDS.iter().copied());
    tell(file, ports, &options.collect::<Vec<_>>())
        .lines()
        .filter_map(fault)
        .collect()
}

/// tshark's output for a file of packets, with those of these ports decoded as iSCSI (`3260` or `1-65535`).
pub(crate) fn tell(file: &Path, ports: &str, what: &[&str]) -> String {
    let file = file.display().to_string();
    let decode_as = format!("tcp.port=={ports},iscsi");
    let guessers = guessers();
    let guessing_off = guessers
        .iter()
        .flat_map(|guesser| ["--disable-protocol", guesser]);
    let arguments: Vec<&str> = ["-r", &file, "-d", &decode_as]
        .into_iter()
        .chain(guessing_off)
        .chain(what.iter().copied())
        .collect();
    run("tshark", &arguments).expect_success()
}

/// The heuristic dissectors, which guess the protocol of a TCP segment from its bytes. A segment in the
/// middle of a PDU's data, where the iSCSI dissector does not start, contains random data in these tests.
/// Occasionally it resembles one of their protocols, such as Ultra Messaging, and that dissector then
/// complains.
pub(crate) fn guessers() -> &'static [String] {
    static NAMES: OnceLock<Vec<String>> = OnceLock::new();
    NAMES.get_or_init(|| {
        let listed = run("tshark", &["-G", "heuristic-decodes"]).expect_success();
        let names = listed.lines().filter_map(|line| {
            let mut fields = line.split_whitespace();
            (fields.next() == Some("tcp")).then_some(fields.next()?)
        });
        names
            .filter(|&name| name != "iscsi")
            .map(str::to_owned)
            .collect()
    })
}

/// Every frame with a complaint.
pub(crate) const COMPLAINTS: &str = "_ws.malformed || _ws.expert.severity >= \"Warning\"";

/// [`COMPLAINTS`], except frames whose only complaint is about TCP, or about an unsupported service action.
pub(crate) const SUSPICIOUS: &str = "(_ws.malformed || _ws.expert.severity >= \"Warning\") && !(count(_ws.expert.message) == 1 \
     && (_ws.expert.group == 33554432 || _ws.expert.message contains \"No dissection for this service action\"))";

/// For each frame: severities, groups, messages, and its description.
const FIELDS: &[&str] = &[
    "-T",
    "fields",
    "-E",
    "aggregator=|",
    "-e",
    "frame.number",
    "-e",
    "_ws.expert.severity",
    "-e",
    "_ws.expert.group",
    "-e",
    "_ws.expert.message",
    "-e",
    "iscsi.datasegmentlength",
    "-e",
    "_ws.col.Info",
];

/// Expert information from "warning" upwards, in Wireshark's numbers.
const WARNING: u32 = 0x0060_0000;

/// The description of a frame, if one of its complaints is relevant.
fn fault(line: &str) -> Option<String> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [_, severities, groups, messages, data_bytes, frame] = fields[..] else {
        return None;
    }; // tshark's own remarks
    let artefact = |message: &str| {
        ARTEFACTS.iter().any(|artefact| {
            message.contains(artefact.message)
                && frame.contains(artefact.frame)
                && artefact.data_bytes.is_none_or(|bytes| bytes == data_bytes)
        })
    };
    let mut complaints = severities
        .split('|')
        .zip(groups.split('|'))
        .zip(messages.split('|'));
    let counts = complaints.any(|((severity, group), message)| {
        let severity: u32 = severity.parse().unwrap_or_default();
        severity >= WARNING && group != GROUP_SEQUENCE && !artefact(message)
    });
    counts.then(|| line.to_owned())
}

#[test]
fn a_complaint_of_tcp_is_not_one_of_iscsi() {
    assert_eq!(
        fault("7\t6291456\t33554432\tTCP Zero Window segment\t\t[TCP ZeroWindow]"),
        None
    );
    assert!(
        fault("7\t2097152|6291456\t33554432|83886080\tACK|Unknown Page\t64\tSCSI: Data In")
            .is_some()
    );
}

#[test]
fn only_a_page_cut_at_64_bytes_may_look_malformed() {
    let malformed = |bytes| {
        format!(
            "7\t8388608\t117440512\tMalformed Packet (Exception occurred)\t{bytes}\tData In (Inquiry Response Data)"
        )
    };
    assert_eq!(fault(&malformed(64)), None);
    assert!(fault(&malformed(72)).is_some());
}
