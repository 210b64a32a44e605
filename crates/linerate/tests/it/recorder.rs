//! Tests that decode the flight recorder's files with tshark: every PDU must be recognised, and nothing
//! malformed.
//!
//! The other scenes with Linerate's initiator pass their recordings to [`keep`] and have them checked at the
//! end. An independent dissector therefore checks everything that the initiator does in these tests.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use iscsi_client::{FlightRecorder, Settings};
use tempfile::NamedTempFile;

use crate::capture::{SUSPICIOUS, faults, tell};
use crate::program::{Ended, LINERATE, end_of, installed, run_command, signal, until};
use crate::server::{Server, has_ipv6};
use crate::sessions::sessions;
use crate::sharkd;

/// The ports to decode as iSCSI: all of them, because a recording contains only iSCSI.
const ANY_PORT: &str = "1-65535";

/// Packets with bytes that belong to no PDU. Continuations of a PDU of several packets have no captured
/// bytes.
const NOT_DECODED: &str = "tcp.len > 0 && frame.cap_len > 60 && !iscsi";

/// Data whose command is no longer in the recording, so that its exchange is unknown. The recorder's own comment
/// on the gap can come with it.
const COMMAND_NOT_KEPT: &str = "_ws.expert.message contains \"Unknown SCSI exchange\" && (count(_ws.expert.message) == 1 \
     || (count(_ws.expert.message) == 2 && _ws.expert.message contains \"were not kept\"))";

thread_local! {
    static KEPT: RefCell<Vec<FlightRecorder>> = const { RefCell::new(Vec::new()) };
}

/// Marks the sessions of these settings for [`look_at_all`].
pub(crate) fn keep(settings: &Settings) {
    KEPT.with_borrow_mut(|kept| kept.push(settings.recorder.clone()));
}

/// Decodes the recordings of this thread's sessions since the last call with tshark.
pub(crate) fn look_at_all() {
    let kept = KEPT.take();
    if !kept.is_empty() {
        let file = NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), iscsi_client::pcapng(&kept)).expect("a temporary file");
        look_at(file.path());
    }
}

/// Records a command, if it is a Linerate command that connects to a target and is not yet recorded.
pub(crate) fn begin(command: &mut Command) -> Option<NamedTempFile> {
    const CONNECT: [&str; 8] = [
        "bench", "selftest", "discover", "info", "copy", "read", "write", "scsi",
    ];
    let has = |word: &str| command.get_args().any(|argument| argument == word);
    let is_ours = command.get_program() == LINERATE;
    // These run until a signal ends them, or connect to no target.
    let is_other = ["agent", "verify"].into_iter().any(has);
    if !is_ours
        || is_other
        || has("--record")
        || !CONNECT.into_iter().any(has)
        || !installed(&["tshark"])
    {
        return None;
    }
    let file = NamedTempFile::new().expect("a temporary file");
    command.arg("--record").arg(file.path());
    Some(file)
}

/// Decodes a file, unless it has no packets because the command was rejected before it connected. tshark is
/// started only for a file with suspicious packets.
pub(crate) fn look_at(file: &Path) {
    if !installed(&["tshark"]) || !has_packets(file) {
        return;
    }
    let suspicious = format!("({SUSPICIOUS} && !({COMMAND_NOT_KEPT})) || ({NOT_DECODED})");
    if sharkd::matches(file, [&suspicious]) == Some([false]) {
        return;
    }
    let strange = not_decoded(file);
    assert_eq!(
        strange,
        [""; 0],
        "packets that are no iSCSI, and what is around them:\n{}",
        around(file, &strange)
    );
    // See COMMAND_NOT_KEPT.
    let faults: Vec<String> = faults(file, ANY_PORT)
        .into_iter()
        .filter(|fault| !fault.contains("Unknown SCSI exchange"))
        .collect();
    assert!(
        faults.is_empty(),
        "tshark complains:\n{}",
        faults.join("\n")
    );
}

/// Whether a pcapng file has an Enhanced Packet Block. A block is its type, its length including both of
/// these, and its body.
fn has_packets(file: &Path) -> bool {
    const ENHANCED_PACKET_BLOCK: u32 = 6;
    let bytes = std::fs::read(file).expect("a recording");
    let mut rest = bytes.as_slice();
    while let [k0, k1, k2, k3, l0, l1, l2, l3, ..] = *rest {
        if u32::from_le_bytes([k0, k1, k2, k3]) == ENHANCED_PACKET_BLOCK {
            return true;
        }
        let length = u32::from_le_bytes([l0, l1, l2, l3])
            .try_into()
            .expect("a small block");
        rest = rest.split_at_checked(length).expect("whole blocks").1;
    }
    false
}

/// tshark's output for the first of these packets and its neighbours.
fn around(file: &Path, packets: &[String]) -> String {
    let first: u64 = packets
        .iter()
        .find_map(|number| number.parse().ok())
        .unwrap_or_default();
    let filter = format!(
        "frame.number >= {} && frame.number <= {}",
        first.saturating_sub(3),
        first + 3
    );
    tell(file, ANY_PORT, &["-Y", &filter])
        + &tell(
            file,
            ANY_PORT,
            &["-Y", &format!("frame.number == {first}"), "-V"],
        )
}

/// The numbers of packets with a PDU that tshark does not recognize.
fn not_decoded(file: &Path) -> Vec<String> {
    fields(file, NOT_DECODED, "frame.number")
}

/// A field of every packet that matches.
fn fields(file: &Path, filter: &str, field: &str) -> Vec<String> {
    let said = tell(file, ANY_PORT, &["-Y", filter, "-T", "fields", "-e", field]);
    said.lines()
        .filter(|line| !line.starts_with("Running as user"))
        .map(str::to_owned)
        .collect()
}

/// Runs Linerate with `--record`, and returns its result and the file's name.
fn recorded(folder: &Path, arguments: &[&str]) -> (Ended, PathBuf) {
    let file = folder.join("recording.pcapng");
    let mut command = Command::new(LINERATE);
    command.arg("--record").arg(&file).args(arguments);
    (run_command(&mut command), file)
}

#[test]
fn reads_and_writes_are_decoded_whatever_the_digests_and_lengths() {
    needs!(installed(&["tshark"]));
    let server = Server::serving(&["disk=ram:64MiB"]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    for keys in [
        "",
        "?header-digest=crc32c&data-digest=crc32c",
        "?connections=2&data-digest=crc32c&record=65536",
        "?initial-r2t=yes&immediate-data=no&header-digest=crc32c",
    ] {
        for block in ["4KiB", "256KiB"] {
            let url = format!("{}{keys}", server.url("disk"));
            let work = [
                "--read",
                "50",
                "--allow-write",
                "--yes",
                "--seconds",
                "0.5",
                "--depth",
                "4",
                "--block",
                block,
            ];
            let (ended, file) = recorded(folder.path(), &[&["bench", &url], &work[..]].concat());
            ended.expect_success();
            look_at(&file);
            let cdbs = fields(
                &file,
                "scsi.request_frame || scsi_sbc.opcode",
                "scsi_sbc.opcode",
            );
            assert!(
                cdbs.iter().any(|code| code.contains("0x88")),
                "no READ (16) with {keys}: {cdbs:?}"
            );
            if keys.contains("digest") {
                let details = tell(&file, ANY_PORT, &["-V"]);
                assert!(
                    details.contains("(Good CRC32)") && !details.contains("Bad CRC32"),
                    "with {keys}"
                );
            }
        }
    }
}

#[test]
fn a_recording_over_ipv6_is_decoded() {
    if !installed(&["tshark"]) || !has_ipv6() {
        return;
    }
    let server = Server::serving(&["disk=ram:64MiB"]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let url = server.url("disk").replace("127.0.0.1", "[::1]");
    let (ended, file) = recorded(
        folder.path(),
        &["bench", &url, "--seconds", "1", "--block", "256KiB"],
    );
    ended.expect_success();
    look_at(&file);
    assert!(fields(&file, "ipv6 && iscsi", "iscsi.opcode").len() > 8);
}

#[test]
fn discovery_is_decoded_to_the_names_of_targets() {
    needs!(installed(&["tshark"]));
    let server = Server::serving(&["disk=ram:64MiB"]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (ended, file) = recorded(folder.path(), &["discover", &server.portal()]);
    ended.expect_success();
    look_at(&file);
    let texts = fields(&file, "iscsi.opcode == 0x24", "iscsi.keyvalue");
    assert!(
        texts
            .iter()
            .any(|text| text.contains(&server.target_name("disk"))),
        "{texts:?}"
    );
}

#[test]
fn a_pdu_of_no_known_kind_would_be_noticed() {
    needs!(installed(&["tshark"]));
    const TEXT_REQUEST: [u8; 7] = [0x44, 0x80, 0, 0, 0, 0, 0]; // immediate, of less than 256 bytes
    let server = Server::serving(&["disk=ram:64MiB"]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (ended, file) = recorded(folder.path(), &["discover", &server.portal()]);
    ended.expect_success();
    let mut bytes = std::fs::read(&file).expect("a recording");
    let request = bytes
        .windows(7)
        .position(|window| window == TEXT_REQUEST)
        .expect("SendTargets");
    bytes[request] = 0x4f;
    std::fs::write(&file, bytes).expect("a recording");
    assert_eq!(not_decoded(&file).len(), 1);
}

#[test]
fn a_refused_login_is_in_the_file_with_its_reason() {
    needs!(installed(&["tshark"]));
    let server = Server::serving(&["disk=ram:64MiB"]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let url = server.url("disk").replace(":disk/", ":dusk/");
    let (ended, file) = recorded(folder.path(), &["bench", &url]);
    ended.expect_failure();
    look_at(&file);
    assert_eq!(
        fields(&file, "iscsi.login.status", "iscsi.login.status"),
        ["0x0203"]
    ); // target not found
    let comments = fields(&file, "frame.comment", "frame.comment");
    assert!(
        comments
            .iter()
            .any(|comment| comment.contains("no such target")),
        "{comments:?}"
    );
}

/// Starts a command that records a session of a minute.
fn recording(server: &Server, folder: &Path) -> (Child, PathBuf) {
    let file = folder.join("recording.pcapng");
    let mut command = Command::new(LINERATE);
    command
        .args(["bench", &server.url("disk"), "--seconds", "60", "--record"])
        .arg(&file);
    let child = command.stdout(Stdio::null()).spawn();
    until("a session", || sessions(server).len() == 1);
    (child.expect("the linerate binary"), file)
}

#[test]
fn an_interrupted_command_leaves_its_recording() {
    needs!(installed(&["tshark"]));
    let server = Server::serving(&["disk=ram:64MiB"]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mut child, file) = recording(&server, folder.path());
    signal(&child, "INT");
    let status = end_of(&mut child);
    assert!(!status.success());
    look_at(&file);
    assert!(!fields(&file, "iscsi", "frame.number").is_empty());
}

#[test]
fn a_signal_writes_the_recording_of_a_command_that_goes_on() {
    needs!(installed(&["tshark"]));
    let server = Server::serving(&["disk=ram:64MiB"]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mut child, file) = recording(&server, folder.path());
    signal(&child, "USR1");
    until("a recording", || {
        file.metadata().is_ok_and(|file| file.len() > 0)
    });
    assert!(child.try_wait().expect("a child").is_none(), "it goes on");
    signal(&child, "TERM");
    end_of(&mut child);
    look_at(&file);
}

#[test]
fn a_connection_that_is_lost_leaves_a_file_where_it_is_wanted() {
    needs!(installed(&["tshark"]));
    let mut server = Server::serving(&["disk=ram:64MiB"]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = Command::new(LINERATE);
    let url = format!("{}?reconnect-time=0", server.url("disk"));
    command
        .args(["bench", &url, "--seconds", "60"])
        .env("LINERATE_RECORD_DIR", folder.path());
    let bench = thread::spawn(move || run_command(&mut command));
    // Wait for the session that measures, not for the earlier one that queries the LUN and logs out.
    until("a busy session", || {
        sessions(&server)
            .iter()
            .any(|session| session["commands"].as_u64() > Some(1000))
    });
    server.kill();
    bench.join().expect("no panic").expect_failure();
    let mut files = folder.path().read_dir().expect("the folder");
    let file = files.next().expect("a file").expect("its name").path();
    look_at(&file);
    assert_eq!(
        fields(&file, "tcp.flags.fin == 1", "frame.comment").len(),
        1
    );
}

#[test]
fn commands_without_a_target_have_nothing_to_record() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (ended, file) = recorded(folder.path(), &["completions", "bash"]);
    assert!(
        ended
            .expect_failure()
            .contains("--record needs a command that connects to a target")
    );
    assert!(!file.exists());
}
