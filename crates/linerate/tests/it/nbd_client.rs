//! Tests of Linerate's NBD client with other servers: nbdkit with its filters, and QEMU's server.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use block::{Allocation, BlockDevice, Buffer, DeviceError, Durability, Extent};
use testkit::Random;

use crate::json::{INFO, check};
use crate::nbd::tls::Pki;
use crate::program::{
    Ended, LINERATE, PATIENCE, ended_within, installed, run, says, until, write_patterned_file,
};
use crate::remote::in_a_world;
use crate::server::{Server, free_port};

const BYTES: usize = 8 << 20;

/// Another server, which is terminated when this is dropped.
pub(crate) struct Foreign {
    child: Child,
    pub(crate) port: u16,
}

impl Foreign {
    /// Starts a server. `PORT` in `arguments` is replaced by the port.
    fn begin(program: &str, arguments: &[&str]) -> Foreign {
        Foreign::begin_at(free_port(), program, arguments)
    }

    fn begin_at(port: u16, program: &str, arguments: &[&str]) -> Foreign {
        let arguments: Vec<_> = arguments
            .iter()
            .map(|argument| argument.replace("PORT", &port.to_string()))
            .collect();
        Foreign::spawn(port, program, &arguments, || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        })
    }

    fn spawn(
        port: u16,
        program: &str,
        arguments: &[String],
        listens: impl Fn() -> bool,
    ) -> Foreign {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {program}: {error}"));
        let mut foreign = Foreign { child, port };
        until("the server listens", || {
            let ended = foreign.child.try_wait().expect("a child to wait for");
            assert!(ended.is_none(), "{command:?} has ended");
            listens()
        });
        foreign
    }

    pub(crate) fn nbdkit(arguments: &[&str]) -> Foreign {
        Foreign::nbdkit_at(free_port(), arguments)
    }

    pub(crate) fn nbdkit_at(port: u16, arguments: &[&str]) -> Foreign {
        Foreign::begin_at(
            port,
            "nbdkit",
            &[&["-f", "-p", "PORT", "-i", "127.0.0.1"], arguments].concat(),
        )
    }

    /// Starts nbdkit on a Unix socket, without a port.
    pub(crate) fn nbdkit_on(socket: &str, arguments: &[&str]) -> Foreign {
        let arguments: Vec<_> = [&["-f", "-U", socket], arguments]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect();
        Foreign::spawn(0, "nbdkit", &arguments, || {
            UnixStream::connect(socket).is_ok()
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("nbd://127.0.0.1:{}/", self.port)
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill(); // it may have ended
        ended_within(&mut self.child, PATIENCE);
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) async fn opened(url: &str) -> Arc<dyn BlockDevice> {
    let spec = backends::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
    backends::open(&spec)
        .await
        .unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn linerate(arguments: &[&str]) -> String {
    run(LINERATE, arguments).expect_success()
}

fn there_and_back(url: &str, before: &Path, after: &Path) {
    let [from, to] = [before, after].map(|path| path.display().to_string());
    linerate(&["copy", &from, url, "--verify", "--yes"]);
    linerate(&["copy", url, &to, "--yes"]);
    let read = |path| std::fs::read(path).expect("an image");
    assert!(read(before) == read(after), "{url}");
}

#[test]
fn an_image_copied_there_and_back_is_the_same() {
    needs!(installed(&["nbdkit", "qemu-nbd"]));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (before, after) = (
        folder.path().join("before.img"),
        folder.path().join("after.img"),
    );
    write_patterned_file(&before, BYTES);
    for variant in [
        &["memory", "8M"][..],
        &["--no-sr", "memory", "8M"],
        &["--mask-handshake=0", "memory", "8M"],
        &[
            "--filter=blocksize-policy",
            "memory",
            "8M",
            "blocksize-minimum=4096",
            "blocksize-error-policy=error",
        ],
        &[
            "--filter=blocksize-policy",
            "memory",
            "8M",
            "blocksize-maximum=64K",
            "blocksize-error-policy=error",
        ],
        &["--filter=nozero", "--filter=fua", "memory", "8M"],
        &[
            "--filter=multi-conn",
            "memory",
            "8M",
            "multi-conn-mode=disable",
        ],
    ] {
        eprintln!("nbdkit {}", variant.join(" "));
        let server = Foreign::nbdkit(variant);
        there_and_back(&server.url(), &before, &after);
        there_and_back(&(server.url() + "?connections=3"), &before, &after);
    }
    let image = folder.path().join("qemu.img");
    std::fs::File::create(&image)
        .and_then(|file| file.set_len(BYTES as u64))
        .expect("an empty image");
    let image = image.display().to_string();
    let server = Foreign::begin(
        "qemu-nbd",
        &[
            "-f",
            "raw",
            "-t",
            "-e",
            "8",
            "-b",
            "127.0.0.1",
            "-p",
            "PORT",
            &image,
        ],
    );
    there_and_back(&server.url(), &before, &after);
}

/// Concurrent requests at random offsets, compared with an array in memory.
#[test]
fn random_requests_find_what_a_model_says() {
    needs!(installed(&["nbdkit"]));
    let (seed, server) = (20_261_125, Foreign::nbdkit(&["memory", "8M"]));
    in_a_world(async {
        let device = opened(&(server.url() + "?connections=4")).await;
        let (geometry, mut random) = (device.geometry(), Random::new(seed));
        let block = geometry.block_size.bytes() as usize;
        let mut model = vec![0u8; BYTES];
        for _ in 0..400 {
            let lba = random.below(geometry.blocks.0);
            let blocks = 1 + random.below((geometry.blocks.0 - lba).min(600));
            let extent = Extent::new(lba, blocks);
            let bytes = lba as usize * block..(lba + blocks) as usize * block;
            match random.below(6) {
                0 => {
                    let zeroed = device.write_zeroes(extent, random.below(2) == 0).await;
                    zeroed.unwrap_or_else(|error| panic!("{extent:?}: {error}"));
                    model[bytes].fill(0);
                }
                1 => {
                    device
                        .unmap(extent)
                        .await
                        .unwrap_or_else(|error| panic!("{extent:?}: {error}"));
                    model[bytes].fill(0);
                }
                2 | 3 => {
                    let mut data = Buffer::zeroed(bytes.len());
                    data.fill_with(|| random.next() as u8);
                    model[bytes].copy_from_slice(&data);
                    let durability = if random.below(2) == 0 {
                        Durability::Stable
                    } else {
                        Durability::Cached
                    };
                    let written = device.write(extent, data.share(), durability).await;
                    written.unwrap_or_else(|error| panic!("{extent:?}: {error}"));
                }
                4 => {
                    let runs = device.allocation(extent, 8).await.expect("it is reported");
                    let mut at = lba;
                    for run in runs {
                        assert_eq!(run.extent.lba.0, at, "without gaps");
                        at += run.extent.blocks.0;
                        let bytes =
                            (at - run.extent.blocks.0) as usize * block..at as usize * block;
                        let is_hole = run.allocation == Allocation::Deallocated;
                        assert!(
                            !is_hole || model[bytes].iter().all(|byte| *byte == 0),
                            "{run:?} is no hole"
                        );
                    }
                    assert!((lba + 1..=lba + blocks).contains(&at));
                }
                _ => {
                    let read = device
                        .read(extent, Buffer::recycled(bytes.len()))
                        .await
                        .expect("memory");
                    assert!(read[..] == model[bytes], "{extent:?} of seed {seed}");
                }
            }
        }
        device.flush().await.expect("memory");
    });
}

/// Regression: lengths were silently rounded to whole blocks, in one version down, in a later one up with
/// zeros.
#[test]
fn an_export_of_any_length_is_used_to_its_last_byte() {
    needs!(installed(&["nbdkit"]));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (image, copied, tail) = (path("image"), path("copied"), path("tail"));
    let mut content: Vec<u8> = (0..1_000_003u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    std::fs::write(&image, &content).expect("written");
    let server = Foreign::nbdkit(&["file", &image]);
    linerate(&["copy", &server.url(), &copied, "--verify"]);
    assert!(
        std::fs::read(&copied).expect("a copy") == content,
        "a copy from it"
    );
    linerate(&[
        "read",
        &server.url(),
        "--offset",
        "999990",
        "--length",
        "13",
        "--output",
        &tail,
    ]);
    assert_eq!(std::fs::read(&tail).expect("read"), content[999_990..]);
    std::fs::write(&tail, [0xaa; 3]).expect("written");
    let write = format!(
        "{} write {} --offset 1000000 --yes < {tail}",
        LINERATE,
        server.url()
    );
    run("sh", &["-c", &write]).expect_success();
    content[1_000_000..].fill(0xaa);
    assert!(
        std::fs::read(&image).expect("an image") == content,
        "a write of its last bytes"
    );
    content.reverse();
    std::fs::write(&copied, &content).expect("written");
    linerate(&["copy", &copied, &server.url(), "--verify", "--yes"]);
    assert!(
        std::fs::read(&image).expect("an image") == content,
        "a copy to it"
    );
    let told = run(LINERATE, &["info", &server.url(), "--json"]).expect_success();
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told["bytes"], 1_000_003);
    // A user of whole blocks could not reach the end of the export.
    let (volume, set) = (
        format!("v={}", server.url()),
        format!("raid1:[{}, ram:64MiB]", server.url()),
    );
    let (state, control) = (path("state"), path("state/control"));
    let listen = format!("127.0.0.1:{}", free_port());
    for words in [
        &["serve", "--check", "--volume", &volume][..],
        &[
            "serve",
            "--volume",
            &volume,
            "--listen",
            &listen,
            "--state",
            &state,
            "--control",
            &control,
        ],
        &["raid", "create", &set, "--yes"],
        &["bench", &server.url(), "--bs", "4k", "--seconds", "0.1"],
    ] {
        let told = run(LINERATE, words).expect_failure();
        assert!(
            told.contains("1000003 bytes, which is not a multiple"),
            "{words:?}: {told}"
        );
    }
}

#[test]
fn errors_of_a_server_are_those_of_the_device() {
    needs!(installed(&["nbdkit"]));
    for (error, expected) in [
        ("ENOSPC", DeviceError::NoSpace),
        ("EIO", DeviceError::Unwritable(block::Lba(8))),
        ("EPERM", DeviceError::ReadOnly),
        ("ESHUTDOWN", DeviceError::NotReady),
    ] {
        let which = format!("error-pwrite={error}");
        let server = Foreign::nbdkit(&[
            "--filter=error",
            "memory",
            "8M",
            &which,
            "error-pwrite-rate=100%",
        ]);
        in_a_world(async {
            // A server that shuts down may return within this time.
            let device = opened(&(server.url() + "?timeout=1")).await;
            let data = || Buffer::zeroed(4096).share();
            let written = device
                .write(Extent::new(8, 8), data(), Durability::Cached)
                .await;
            assert_eq!(written, Err(expected), "{error}");
            let mut read = device.read(Extent::new(8, 8), Buffer::zeroed(4096)).await;
            // The connection was lost repeatedly, so the next attempt waits for nearly a second, and on a
            // busy machine longer than a request's timeout.
            for _ in 0..60 {
                if error != "ESHUTDOWN" || !matches!(read, Err(DeviceError::NotReady)) {
                    break;
                }
                read = device.read(Extent::new(8, 8), Buffer::zeroed(4096)).await;
            }
            read.expect("reads are served");
        });
    }
}

#[test]
fn a_server_that_is_gone_fails_what_is_asked_when_its_time_is_over() {
    needs!(installed(&["nbdkit"]));
    let mut server = Foreign::nbdkit(&["memory", "8M"]);
    in_a_world(async {
        let device = opened(&(server.url() + "?connections=2&timeout=1")).await;
        let write = || {
            device.write(
                Extent::new(0, 8),
                Buffer::zeroed(4096).share(),
                Durability::Cached,
            )
        };
        write().await.expect("memory");
        server.kill();
        assert_eq!(write().await, Err(DeviceError::NotReady));
        assert_eq!(device.flush().await, Err(DeviceError::NotReady));
        let read = device.read(Extent::new(0, 8), Buffer::zeroed(4096)).await;
        assert_eq!(read.map(drop), Err(DeviceError::NotReady));
    });
}

#[test]
fn a_server_that_does_not_answer_is_given_up() {
    needs!(installed(&["nbdkit"]));
    let server = Foreign::nbdkit(&["--filter=delay", "memory", "8M", "rdelay=1000"]);
    in_a_world(async {
        let device = opened(&(server.url() + "?timeout=1")).await;
        let read = device.read(Extent::new(0, 8), Buffer::zeroed(4096)).await;
        assert_eq!(read.map(drop), Err(DeviceError::NotReady));
    });
}

#[test]
fn what_is_refused_is_told_with_its_exit_code() {
    let server = Server::serving(&["disk=ram:1MiB"]);
    if !server.is_ours() || !installed(&["nbdkit"]) {
        return;
    }
    let foreign = Foreign::nbdkit(&["memory", "8M"]);
    let binary = LINERATE;
    for (url, code, says) in [
        (format!("nbd://127.0.0.1:{}/x", free_port()), 3, "refused"),
        (format!("nbd://{}/x", server.portal()), 3, ""), // it waits for a login
        (
            foreign.url() + "?conections=2",
            2,
            "unknown key `conections`",
        ),
    ] {
        let url = url.replace("/x", "/x?timeout=1");
        let ended = run(binary, &["info", &url]);
        assert_eq!(ended.status.code(), Some(code), "{url}: {}", ended.said);
        assert!(ended.said.contains(says), "{url}: {}", ended.said);
    }
    let info = run(binary, &["info", &foreign.url(), "--json"]).expect_success();
    let info: serde_json::Value = serde_json::from_str(&info).expect("JSON");
    check(INFO, &info);
    assert_eq!(
        (&info["bytes"], &info["replies"]),
        (&(8 << 20).into(), &"structured".into())
    );
}

/// A gateway serves an export of nbdkit, and QEMU's initiator reads nbdkit's data over iSCSI.
#[test]
fn an_export_of_others_is_served_again() {
    needs!(installed(&["nbdkit", "qemu-img"]));
    let foreign = Foreign::nbdkit(&["memory", "8M"]);
    let server = Server::serving(&[&format!("disk={}", foreign.url())]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = folder.path().join("image");
    write_patterned_file(&image, BYTES);
    let image = image.display().to_string();
    run(
        "qemu-img",
        &[
            "convert",
            "-n",
            "-f",
            "raw",
            "-O",
            "raw",
            &image,
            &server.url("disk"),
        ],
    )
    .expect_success();
    run(
        "qemu-img",
        &[
            "compare",
            "-f",
            "raw",
            "-F",
            "raw",
            &image,
            &server.url("disk"),
        ],
    )
    .expect_success();
    run(
        "qemu-img",
        &["compare", "-f", "raw", "-F", "raw", &image, &foreign.url()],
    )
    .expect_success();
}

/// Uses TLS, with and without a client certificate.
#[test]
fn servers_of_others_encrypt() {
    needs!(installed(&["nbdkit", "qemu-nbd"]));
    let pki = Pki::new();
    let folder = pki.folder();
    let (before, after) = (pki.file("before.img"), pki.file("after.img"));
    write_patterned_file(Path::new(&before), BYTES);
    let secure =
        |server: &Foreign, query: &str| format!("nbds://localhost:{}/?{query}", server.port);
    let (ca, all) = (
        format!("tls-ca={folder}/ca-cert.pem"),
        format!("tls-certificates={folder}"),
    );
    let certificates = format!("--tls-certificates={folder}");
    for (peer, query) in [("--tls-verify-peer", &all), ("-v", &ca)] {
        let server = Foreign::nbdkit(&["--tls=require", &certificates, peer, "memory", "8M"]);
        there_and_back(
            &secure(&server, query),
            Path::new(&before),
            Path::new(&after),
        );
        there_and_back(
            &secure(&server, &format!("{query}&connections=3")),
            Path::new(&before),
            Path::new(&after),
        );
        let told = info(&server.url()).expect_failure();
        says(&told, &["the server requires TLS; use nbds://"]);
        let stranger = format!("tls-ca={folder}/stranger-cert.pem");
        let told = info(&secure(&server, &stranger)).expect_failure();
        says(
            &told,
            &["unknown CA: the peer's certificate is not signed by a CA"],
        );
        let told = info(&secure(&server, &format!("{query}&tls-hostname=san1"))).expect_failure();
        says(&told, &["wrong name: the certificate is for"]);
    }
    let image = pki.file("qemu.img");
    std::fs::File::create(&image)
        .and_then(|file| file.set_len(BYTES as u64))
        .expect("an empty image");
    let object = format!("tls-creds-x509,id=t,endpoint=server,dir={folder},verify-peer=yes");
    let server = Foreign::begin(
        "qemu-nbd",
        &[
            "-f",
            "raw",
            "-t",
            "-e",
            "8",
            "-b",
            "127.0.0.1",
            "-p",
            "PORT",
            "--object",
            &object,
            "--tls-creds",
            "t",
            &image,
        ],
    );
    there_and_back(
        &secure(&server, &all),
        Path::new(&before),
        Path::new(&after),
    );
    let told = info(&secure(&server, &ca)).expect_failure();
    says(&told, &["it may require a client certificate"]);
}

/// If STARTTLS is rejected, or removed by an attacker on the path, the client must not continue without it.
#[test]
fn nothing_is_said_in_clear_text_where_tls_is_wanted() {
    needs!(installed(&["nbdkit"]));
    let (pki, server) = (Pki::new(), Foreign::nbdkit(&["--tls=off", "memory", "8M"]));
    let ca = pki.file("ca-cert.pem");
    let told = info(&format!("nbds://localhost:{}/?tls-ca={ca}", server.port)).expect_failure();
    assert!(told.contains("the server does not support TLS"), "{told}");
}

#[test]
fn a_server_on_a_unix_socket_is_used() {
    needs!(installed(&["nbdkit"]));
    let pki = Pki::new();
    let (before, after) = (pki.file("before.img"), pki.file("after.img"));
    write_patterned_file(Path::new(&before), BYTES);
    let certificates = format!("--tls-certificates={}", pki.folder());
    for (tls, scheme, query) in [
        ("--tls=off", "nbd+unix", String::new()),
        (
            "--tls=require",
            "nbds+unix",
            format!("&tls-certificates={}", pki.folder()),
        ),
    ] {
        let path = pki.file(scheme);
        let arguments = ["-f", "-U", &path, tls, &certificates, "memory", "8M"];
        let mut child = Command::new("nbdkit")
            .args(arguments)
            .spawn()
            .expect("nbdkit");
        until("the server listens", || {
            std::os::unix::net::UnixStream::connect(&path).is_ok()
        });
        let url = format!("{scheme}:///?socket={path}{query}");
        there_and_back(&url, Path::new(&before), Path::new(&after));
        assert!(linerate(&["info", &url]).starts_with(&format!("{scheme}:///?socket=/")));
        let _ = child.kill();
        ended_within(&mut child, PATIENCE);
    }
    let told = info("nbd+unix:///?socket=/nonexistent/nbd.sock").expect_failure();
    assert!(told.contains("/nonexistent/nbd.sock"), "{told}");
}

fn info(url: &str) -> Ended {
    run(LINERATE, &["info", url])
}
