//! ATA over Ethernet between two network namespaces connected by a pair of interfaces: Linerate's server with
//! Debian's `aoetools`, Linerate's client with Debian's `vblade`, and both together, decoded by tshark.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use host::namespace::Namespace;
use host::rtnetlink::{InterfaceSettings, Rtnetlink};
use tempfile::TempDir;

use crate::json::{INFO, check};
use crate::program::{LINERATE, end_of, installed, run, run_command, says, signal, until};

/// Options for random reads and writes, in which the data of each read is compared with the last write.
const VERIFY: &[&str] = &[
    "--rw",
    "randrw",
    "--read",
    "50",
    "--block",
    "4KiB",
    "--iodepth",
    "8",
    "--seconds",
    "2",
    "--verify",
    "--allow-write",
    "--yes",
];

/// Two hosts on one Ethernet. The server's interface is `san0`, and the client's is `eth0`.
pub(crate) struct Site {
    pub(crate) server: Namespace,
    pub(crate) client: Namespace,
    folder: TempDir,
}

/// A process on a host, until this is dropped.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Site {
    /// Creates the hosts; `None` if namespaces cannot be created.
    pub(crate) fn new(mtu: u32) -> Option<Site> {
        let made = Namespace::new().and_then(|server| Ok((server, Namespace::new()?)));
        let (server, client) = match made {
            Ok(both) => both,
            Err(error) => {
                eprintln!("skipped: no network namespace here ({error})");
                return None;
            }
        };
        let peer_in = client.clone();
        let settings = InterfaceSettings {
            mtu: Some(mtu),
            ..InterfaceSettings::default()
        };
        server
            .run(|| {
                let rtnetlink = Rtnetlink::open().expect("the kernel's");
                rtnetlink
                    .add_pair("san0", "eth0", &peer_in)
                    .expect("a pair");
                rtnetlink
                    .set_up(rtnetlink.index("san0").expect("made"), &settings)
                    .expect("up");
            })
            .expect("a thread");
        client
            .run(|| {
                let rtnetlink = Rtnetlink::open().expect("the kernel's");
                rtnetlink
                    .set_up(rtnetlink.index("eth0").expect("made"), &settings)
                    .expect("up");
            })
            .expect("a thread");
        Some(Site {
            server,
            client,
            folder: TempDir::new().expect("a temporary folder"),
        })
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Starts Linerate's server with these options, and waits until it serves.
    pub(crate) fn serve(&self, options: &[&str]) -> Running {
        let mut command = self.server.command(LINERATE);
        command
            .args(["--log", "error", "serve", "--state", &self.path("state")])
            .args(options);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("started");
        let said = BufReader::new(child.stdout.take().expect("piped"));
        let running = Running(child);
        let is_ready = said
            .lines()
            .map_while(Result::ok)
            .any(|line| line == "ready");
        assert!(is_ready, "it ended before it served");
        running
    }

    /// The address of the server's interface.
    pub(crate) fn client_sees_server(&self) -> reactor::MacAddress {
        let mut command = self.server.command("cat");
        let address = run_command(command.arg("/sys/class/net/san0/address")).expect_success();
        address.trim().parse().expect("a MAC address")
    }

    fn vblade(&self, file: &str) -> Running {
        let mut command = self.server.command("vblade");
        command.args(["7", "1", "san0", file]).stdout(Stdio::null());
        Running(command.spawn().expect("started"))
    }

    /// The output of a program on the client.
    fn client(&self, program: &str, arguments: &[&str]) -> String {
        run_command(self.client.command(program).args(arguments)).expect_success()
    }
}

/// A file with different bytes in each sector.
fn write_file(path: &str, sectors: u32) {
    let sector = |number: u32| number.wrapping_mul(2_654_435_761).to_le_bytes().repeat(128);
    fs::write(path, (0..sectors).flat_map(sector).collect::<Vec<u8>>()).expect("written");
}

#[test]
fn aoetools_find_our_server_and_configure_it() {
    needs!(installed(&["aoeping", "aoecfg"]));
    let Some(site) = Site::new(1500) else { return };
    let _server = site.serve(&[
        "--listen",
        "aoe://san0",
        "--volume",
        "disk=ram:8MiB",
        "--volume",
        "other=ram:1MiB",
    ]);
    let identity = site.client("aoeping", &["-s", "60", "-I", "0", "0", "eth0"]);
    assert!(identity.contains("LINERATE VIRTUAL-DISK"), "{identity}");
    let config = |command: &str, string: &str| {
        let words = ["-t", "2", "-c", command, "-s", string, "0", "1", "eth0"];
        run_command(site.client.command("aoecfg").args(words)).said
    };
    assert!(config("set", "mine").contains("mine"));
    assert!(config("read", "").contains("mine"));
    assert!(config("test", "mine").contains("mine"));
    assert!(
        !config("test", "other").contains("mine"),
        "a server with another string does not answer"
    );
    let listed = site.client(LINERATE, &["discover", "--aoe", "eth0"]);
    says(&listed, &["aoe://eth0/0.0", "aoe://eth0/0.1"]);
    assert!(listed.contains("\"mine\""), "{listed}");
}

#[test]
fn our_client_reads_and_writes_what_vblade_serves() {
    needs!(installed(&["vblade"]));
    let Some(site) = Site::new(1500) else { return };
    let (disk, copy) = (site.path("disk"), site.path("copy"));
    write_file(&disk, 16_384);
    let _server = site.vblade(&disk);
    let info = site.client(LINERATE, &["info", "aoe://eth0/7.1"]);
    says(&info, &["8MiB (8,388,608 bytes)", "2 sectors"]);
    let told = site.client(LINERATE, &["info", "aoe://eth0/7.1", "--json"]);
    check(INFO, &serde_json::from_str(&told).expect("JSON"));
    site.client(LINERATE, &["copy", "aoe://eth0/7.1", &copy]);
    assert!(
        fs::read(&disk).expect("there") == fs::read(&copy).expect("there"),
        "the copy is the disk"
    );
    site.client(
        LINERATE,
        &[&["bench", "aoe://eth0/7.1"][..], VERIFY].concat(),
    );
}

#[test]
fn tshark_decodes_a_session_as_we_do() {
    needs!(installed(&["tshark"]));
    let Some(site) = Site::new(9000) else { return };
    let (disk, copy, capture) = (site.path("disk"), site.path("copy"), site.path("capture"));
    write_file(&disk, 2048);
    let _server = site.serve(&["--listen", "aoe://san0", "--volume", "disk=ram:1MiB"]);
    let mut tshark = site.client.command("tshark");
    tshark.args([
        "-q",
        "-i",
        "eth0",
        "-F",
        "pcap",
        "-w",
        &capture,
        "-f",
        "ether proto 0x88a2",
    ]);
    let mut tshark = Running(tshark.stderr(Stdio::null()).spawn().expect("started"));
    until("tshark captures", || {
        site.client("aoeping", &["-s", "60", "0", "0", "eth0"]);
        fs::metadata(&capture).is_ok_and(|file| file.len() > 24)
    });
    site.client(LINERATE, &["copy", "--yes", &disk, "aoe://eth0/0.0"]);
    site.client(LINERATE, &["copy", "aoe://eth0/0.0", &copy]);
    assert!(
        fs::read(&disk).expect("there") == fs::read(&copy).expect("there"),
        "the copy is the disk"
    );
    signal(&tshark.0, "INT");
    end_of(&mut tshark.0);
    let malformed = run(
        "tshark",
        &[
            "-r",
            &capture,
            "-Y",
            "_ws.malformed || _ws.expert.severity >= 6291456",
        ],
    );
    let malformed: Vec<String> = complaints(&malformed.expect_success());
    assert!(malformed.is_empty(), "{malformed:#?}");
    let fields = [
        "aoe.version",
        "aoe.response",
        "aoe.major",
        "aoe.minor",
        "aoe.cmd",
        "aoe.tag",
        "aoe.lba",
    ];
    let mut words = vec!["-r", &capture, "-T", "fields"];
    fields.iter().for_each(|field| words.extend(["-e", field]));
    let decoded = run("tshark", &words).expect_success();
    let decoded = complaints(&decoded);
    let ours: Vec<String> = frames(Path::new(&capture))
        .iter()
        .map(|frame| our_fields(frame))
        .collect();
    assert!(ours.len() > 400, "{} frames", ours.len());
    assert_eq!(decoded.len(), ours.len());
    for (theirs, ours) in decoded.iter().zip(&ours) {
        assert_eq!(theirs, ours);
    }
}

/// The lines of tshark's output that are not about tshark itself.
pub(crate) fn complaints(said: &str) -> Vec<String> {
    said.lines()
        .filter(|line| !line.is_empty() && !line.starts_with("Running as user"))
        .map(str::to_owned)
        .collect()
}

/// The payloads of the frames in a file of libpcap's first format, in this machine's byte order.
pub(crate) fn frames(path: &Path) -> Vec<Vec<u8>> {
    let file = fs::read(path).expect("there");
    let mut rest = &file[24..];
    let mut frames = Vec::new();
    while let Some((head, behind)) = rest.split_first_chunk::<16>() {
        let length = u32::from_ne_bytes([head[8], head[9], head[10], head[11]]) as usize;
        frames.push(behind[14..length].to_vec());
        rest = &behind[length..];
    }
    frames
}

/// The same fields, as parsed by Linerate's codec.
fn our_fields(payload: &[u8]) -> String {
    let frame = ::aoe::Frame::parse(payload).expect("a frame");
    let (command, lba) = match &frame.body {
        ::aoe::Body::Ata(ata, _) => (0, format!("0x{:016x}", ata.lba)),
        ::aoe::Body::Config(_) => (1, String::new()),
        ::aoe::Body::Mask(_) => (2, String::new()),
        ::aoe::Body::Reserve(_) => (3, String::new()),
    };
    let header = frame.header;
    let (major, minor) = (header.address.major, header.address.minor);
    let response = u8::from(header.is_response);
    format!(
        "1\t{response}\t0x{major:04x}\t0x{minor:02x}\t{command}\t0x{:08x}\t{lba}",
        header.tag
    )
}

#[test]
fn what_is_missing_is_said_before_anything_is_served() {
    let Some(site) = Site::new(1500) else { return };
    let refused = |listen: &str| {
        let mut command = site.server.command(LINERATE);
        command.args([
            "serve",
            "--state",
            &site.path("state"),
            "--listen",
            listen,
            "--volume",
            "disk=ram:1MiB",
        ]);
        run_command(&mut command).expect_failure()
    };
    let unknown = refused("aoe://eth9");
    says(
        &unknown,
        &["cannot listen on eth9: there is no interface eth9; this machine has lo, san0"],
    );
    let down = refused("aoe://lo");
    says(
        &down,
        &["interface lo is down; bring it up (ip link set lo up)"],
    );
    let mut down = site.client.command(LINERATE);
    let down = run_command(down.args(["info", "aoe://lo/9.9"]));
    assert_eq!(
        down.status.code(),
        Some(3),
        "it can come up again: {}",
        down.said
    );
    let mut silent = site.client.command(LINERATE);
    let silent = run_command(silent.args(["info", "aoe://eth0/9.9?timeout=1s"])).expect_failure();
    says(&silent, &["no AoE device 9.9 responded on eth0 within 1 s"]);
}

#[test]
fn both_ends_verify_what_they_write_in_long_frames() {
    let Some(site) = Site::new(9000) else { return };
    let _server = site.serve(&["--listen", "aoe://san0", "--volume", "disk=ram:4MiB"]);
    let info = site.client(LINERATE, &["info", "aoe://eth0/0.0"]);
    says(&info, &["17 sectors", "4MiB (4,194,304 bytes)"]);
    site.client(
        LINERATE,
        &[&["bench", "aoe://eth0/0.0"][..], VERIFY].concat(),
    );
}
