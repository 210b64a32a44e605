//! Tests of the NBD client's channels on real sockets: connections that are cut, delayed and delivered late,
//! servers that are restarted, and a path of a lab that is cut.

use std::io::Read as _;
use std::sync::Arc;

use block::{BlockDevice, Buffer, DeviceError, Durability, Extent, Slice};
use lab::{Conditions, Direction, HostPlan, Lab, LinkPlan, Plan};

use crate::nbd_client::{Foreign, opened};
use crate::program::{LINERATE, installed, run, until};
use crate::proxy::{Proxy, Towards};
use crate::remote::in_a_world;
use crate::server::{Server, free_port};

pub(crate) const PAGE: u64 = 4096;
/// The pages that the tests use, of a device of 8 MiB.
pub(crate) const PAGES: u64 = 64;

/// The extent of a page.
pub(crate) fn page(device: &Arc<dyn BlockDevice>, number: u64) -> Extent {
    let blocks = PAGE >> device.geometry().block_size.shift();
    Extent::new(number * blocks, blocks)
}

pub(crate) fn data(version: u8) -> Slice {
    let mut data = Buffer::zeroed(PAGE as usize);
    data.fill(version);
    data.share()
}

/// Writes all pages concurrently.
pub(crate) async fn write_all(device: &Arc<dyn BlockDevice>, version: u8) {
    let write = |number| {
        let device = Arc::clone(device);
        reactor::spawn(async move {
            device
                .write(page(&device, number), data(version), Durability::Cached)
                .await
        })
    };
    for written in (0..PAGES).map(write).collect::<Vec<_>>() {
        assert_eq!(written.await, Ok(()), "version {version}");
    }
}

/// The versions of all pages; `None` for a page that a write is changing.
pub(crate) async fn versions_seen(device: &Arc<dyn BlockDevice>) -> Vec<Option<u8>> {
    let mut versions = Vec::new();
    for number in 0..PAGES {
        let read = device
            .read(page(device, number), Buffer::zeroed(PAGE as usize))
            .await
            .expect("it is there");
        versions.push(read.iter().all(|byte| *byte == read[0]).then_some(read[0]));
    }
    versions
}

/// The versions of all pages of an idle disk.
pub(crate) async fn versions(device: &Arc<dyn BlockDevice>) -> Vec<u8> {
    let seen = versions_seen(device).await;
    seen.iter()
        .enumerate()
        .map(|(number, seen)| seen.unwrap_or_else(|| panic!("page {number} is mixed")))
        .collect()
}

pub(crate) fn all(version: u8) -> Vec<u8> {
    vec![version; PAGES as usize]
}

/// A Linerate server that exports this volume as `disk`.
fn ours(spec: &str) -> Option<(Server, u16)> {
    let port = free_port();
    let text = format!(
        "[nbd]\nlisten = [\"127.0.0.1:{port}\"]\n[volume.disk]\nspec = \"{spec}\"\n[[nbd.export]]\nvolume = \"disk\"\n"
    );
    Server::configured(&text).map(|server| (server, port))
}

/// Linerate's server with a RAM volume, or nbdkit, each with its port.
enum Either {
    Ours { _server: Server, port: u16 },
    Nbdkit(Foreign),
}

impl Either {
    fn both() -> Vec<Either> {
        let ours = ours("ram:8MiB").map(|(server, port)| Either::Ours {
            _server: server,
            port,
        });
        let nbdkit = installed(&["nbdkit"])
            .then(|| Either::Nbdkit(Foreign::nbdkit(&["--threads=1", "memory", "8M"])));
        [ours, nbdkit].into_iter().flatten().collect()
    }

    fn port(&self) -> u16 {
        match self {
            Either::Ours { port, .. } => *port,
            Either::Nbdkit(foreign) => foreign.port,
        }
    }

    fn export(&self) -> &'static str {
        match self {
            Either::Ours { .. } => "disk",
            Either::Nbdkit(_) => "",
        }
    }

    /// The URL of a device with one connection through each of two proxies.
    fn by(&self, proxies: &[Proxy; 2], options: &str) -> String {
        let [one, other] = proxies.each_ref().map(Proxy::port);
        format!(
            "nbd://127.0.0.1:{one}/{}?address=127.0.0.1:{other}&connections=2&timeout=600&{options}",
            self.export()
        )
    }
}

/// This test uses only Linerate's server: nbdkit 1.32 aborts when a connection is reset while several of its
/// threads send on it. In the other tests, nbdkit has one thread.
#[test]
fn connections_that_are_cut_cost_nothing_but_time() {
    let (server, port) = or_skip!(ours("ram:8MiB"));
    let server = Either::Ours {
        _server: server,
        port,
    };
    let proxies = [Proxy::to(port), Proxy::to(port)];
    in_a_world(async {
        let device = opened(&server.by(&proxies, "stall=1&quarantine=1")).await;
        for version in 1..=6 {
            let cut = &proxies[usize::from(version % 2)];
            // In the middle of the transmitted data, at an arbitrary position.
            cut.cut_after(cut.connections() - 1, 10_000 * usize::from(version));
            write_all(&device, version).await;
            assert_eq!(versions(&device).await, all(version));
        }
        device.flush().await.expect("nothing is lost");
    });
}

/// Writes one version after the other until the proxy holds some pages of a version, because the balancing
/// determines the share of each channel. By then, all pages have been written over the other connection.
/// Returns the next version.
pub(crate) async fn ghosts(device: &Arc<dyn BlockDevice>, proxy: &Proxy) -> u8 {
    proxy.hold_towards_target(0);
    for version in 2..u8::MAX {
        let writer = Arc::clone(device);
        let written = reactor::spawn(async move { write_all(&writer, version).await });
        // Wait for this before the client gives up the connection, which would discard data that the proxy
        // has not read.
        while !written.is_finished() {
            if proxy.held(0, Towards::Target) > PAGE {
                written.await;
                return version + 1;
            }
            reactor::sleep(std::time::Duration::from_millis(1)).await;
        }
    }
    panic!("a channel that is never used");
}

/// A proxy holds a write of a lost connection, and delivers it after a newer write was acknowledged, or
/// should have been.
#[test]
fn a_ghost_write_destroys_nothing() {
    for server in Either::both() {
        let proxies = [Proxy::to(server.port()), Proxy::to(server.port())];
        in_a_world(async {
            let device = opened(&server.by(&proxies, "stall=5&quarantine=300")).await;
            write_all(&device, 1).await;
            let newest = ghosts(&device, &proxies[0]).await;
            match &server {
                Either::Ours { .. } => {
                    write_all(&device, newest).await;
                    proxies[0].release(0);
                    until("the ghosts have come", || {
                        proxies[0].held(0, Towards::Target) == 0 || proxies[0].is_cut(0)
                    });
                }
                Either::Nbdkit(_) => {
                    // Only the replies to the held requests show that the held write has arrived.
                    let newer = Arc::clone(&device);
                    let newer = reactor::spawn(async move { write_all(&newer, newest).await });
                    reactor::yield_now().await;
                    assert!(!newer.is_finished());
                    proxies[0].release(0);
                    newer.await;
                }
            }
            assert_eq!(versions(&device).await, all(newest));
            device.flush().await.expect("nothing is lost");
            assert_eq!(versions(&device).await, all(newest));
        });
    }
}

/// Like the previous test, but newer writes are not delayed, so the late write must be visible.
#[test]
fn without_a_quarantine_a_ghost_write_is_found() {
    needs!(installed(&["nbdkit"]));
    let server = Either::Nbdkit(Foreign::nbdkit(&["--threads=1", "memory", "8M"]));
    let proxies = [Proxy::to(server.port()), Proxy::to(server.port())];
    in_a_world(async {
        let device = opened(&server.by(&proxies, "stall=5&quarantine=0")).await;
        write_all(&device, 1).await;
        let newest = ghosts(&device, &proxies[0]).await;
        write_all(&device, newest).await;
        assert_eq!(versions(&device).await, all(newest));
        proxies[0].release(0);
        while versions(&device).await == all(newest) {
            reactor::sleep(std::time::Duration::from_millis(5)).await;
        }
    });
}

/// nbdkit's memory is empty after a restart. It does not report its cache, so only a client configured as the
/// only writer treats differences as losses, and writes the data again.
#[test]
fn what_a_restarted_server_has_lost_is_written_again() {
    needs!(installed(&["nbdkit"]));
    let mut server = Foreign::nbdkit(&["--threads=1", "memory", "8M"]);
    let port = server.port;
    let lost = Err(DeviceError::WritesLost);
    for (connections, options, expected) in [
        (1, "writers=one", Ok(())),
        (4, "writers=one", Ok(())),
        (4, "writers=several", lost),
        (2, "journal=64MiB", lost),
        (2, "journal=0", lost),
    ] {
        in_a_world(async {
            let url =
                format!("nbd://127.0.0.1:{port}/?connections={connections}&timeout=600&{options}");
            let device = opened(&url).await;
            write_all(&device, 1).await;
            server.kill();
            server = Foreign::nbdkit_at(port, &["memory", "8M"]);
            let found = versions(&device).await;
            assert_eq!(device.flush().await, expected);
            assert_eq!(found, all(u8::from(expected.is_ok())));
            assert_eq!(device.flush().await, Ok(()), "it is reported once");
        });
    }
}

/// Servers sync after a write with FUA. The error of the sync, which also concerns earlier writes, is
/// reported only once.
#[test]
fn a_write_with_fua_that_fails_fails_the_next_flush() {
    needs!(installed(&["nbdkit"]));
    let fails_with_fua =
        "pwrite=cat > /dev/null; case \"$5\" in *fua*) echo EIO lost >&2; exit 1;; esac";
    let reads = ["get_size=echo 8M", "pread=head -c $3 /dev/zero"];
    let writes = [
        "can_write=exit 0",
        "can_flush=exit 0",
        "can_fua=echo native",
        "flush=exit 0",
        fails_with_fua,
    ];
    let server = Foreign::nbdkit(&[&["eval"], &reads[..], &writes[..]].concat());
    in_a_world(async {
        let device = opened(&(server.url() + "?timeout=600")).await;
        let write =
            |durability| device.write(Extent::new(0, 8), Buffer::zeroed(4096).share(), durability);
        write(Durability::Cached).await.expect("written");
        write(Durability::Stable).await.expect_err("with FUA");
        assert_eq!(device.flush().await, Err(DeviceError::WritesLost));
        assert_eq!(device.flush().await, Ok(()), "it is reported once");
    });
}

/// A killed server does not lose data in the page cache. If the server reports its cache, the client must
/// neither overwrite data that another host has since written and flushed, nor report a loss.
#[test]
fn a_restart_that_has_lost_nothing_leaves_what_another_host_has_written() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name| folder.path().join(name).display().to_string();
    if let Some((mut server, port)) = ours(&format!("file:{}?size=8MiB", path("ours.img"))) {
        let restart = || {
            server.kill();
            server.restart();
        };
        two_hosts_around(
            &format!("nbd://127.0.0.1:{port}/disk?timeout=600"),
            restart,
            Ok(()),
        );
    }
    if installed(&["nbdkit"]) {
        let image = path("nbdkit.img");
        std::fs::File::create(&image)
            .and_then(|file| file.set_len(8 << 20))
            .expect("a file");
        let mut server = Foreign::nbdkit(&["file", &image]);
        let (port, url) = (server.port, server.url() + "?timeout=600");
        let restart = || {
            server.kill();
            server = Foreign::nbdkit_at(port, &["file", &image]);
        };
        // nbdkit does not report its cache, so any difference could be a loss.
        two_hosts_around(&url, restart, Err(DeviceError::WritesLost));
    }
}

/// One host writes, another host overwrites the data and flushes, the server is restarted, and the first host
/// continues.
fn two_hosts_around(url: &str, restart: impl FnOnce(), flushed: Result<(), DeviceError>) {
    in_a_world(async {
        let (first, second) = (opened(url).await, opened(url).await);
        write_all(&first, 1).await;
        write_all(&second, 2).await;
        second.flush().await.expect("nothing is lost");
        restart();
        assert_eq!(versions(&first).await, all(2));
        assert_eq!(first.flush().await, flushed);
        assert_eq!(first.flush().await, Ok(()), "it is reported once");
        assert_eq!(versions(&second).await, all(2));
    });
}

#[test]
fn a_smaller_export_is_refused_after_a_restart() {
    needs!(installed(&["nbdkit"]));
    let mut server = Foreign::nbdkit(&["--threads=1", "memory", "8M"]);
    in_a_world(async {
        let device = opened(&(server.url() + "?timeout=2")).await;
        write_all(&device, 1).await;
        server.kill();
        server = Foreign::nbdkit_at(server.port, &["memory", "4M"]);
        let written = device
            .write(page(&device, 0), data(2), Durability::Cached)
            .await;
        assert_eq!(written, Err(DeviceError::NotReady));
    });
}

/// Four connections under load while the server is restarted, with and without a shutdown.
#[test]
fn a_restart_of_our_server_costs_nothing_but_time() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let spec = format!(
        "file:{}?size=8MiB",
        folder.path().join("disk.img").display()
    );
    let (mut server, port) = or_skip!(ours(&spec));
    in_a_world(async {
        let device = opened(&format!(
            "nbd://127.0.0.1:{port}/disk?connections=4&timeout=600"
        ))
        .await;
        for version in 1..=4 {
            let (writing, reading) = (Arc::clone(&device), Arc::clone(&device));
            let writer = reactor::spawn(async move { write_all(&writing, version).await });
            let reader = reactor::spawn(async move { versions(&reading).await });
            reactor::yield_now().await;
            match version % 2 {
                0 => server.kill(),
                _ => server.stop(),
            }
            server.restart();
            writer.await;
            let read = reader.await;
            assert!(
                read.iter()
                    .all(|found| [version - 1, version].contains(found)),
                "{read:?}"
            );
            device.flush().await.expect("nothing is lost");
            assert_eq!(versions(&device).await, all(version));
        }
    });
}

/// Reloads the configuration with `--force`, so that clients may be disconnected.
fn reload(server: &mut Server, text: &str) {
    server.reconfigure(text);
    server
        .ask(&["server", "reload", "--force"])
        .expect_success();
}

fn two_volumes(port: u16, disk: &str, exported: &str) -> String {
    format!(
        "[nbd]\nlisten = [\"127.0.0.1:{port}\"]\n[volume.disk]\nspec = \"{disk}\"\n[volume.other]\nspec = \"ram:8MiB\"\n\
         [[nbd.export]]\nname = \"disk\"\nvolume = \"{exported}\"\n"
    )
}

/// The server keeps running, but reopens the volume. Data that was not durable when the volume was closed is
/// lost, and no flush has reported this.
#[test]
fn what_a_volume_that_was_opened_anew_has_lost_is_written_again() {
    let port = free_port();
    let mut server = or_skip!(Server::configured(&two_volumes(port, "ram:8MiB", "disk")));
    in_a_world(async {
        let device = opened(&format!("nbd://127.0.0.1:{port}/disk?timeout=600")).await;
        write_all(&device, 1).await;
        reload(&mut server, &two_volumes(port, "fault:[ram:8MiB]", "disk"));
        assert_eq!(versions(&device).await, all(1));
        assert_eq!(device.flush().await, Ok(()));
    });
}

/// The new volume has the same size and flags.
#[test]
fn an_export_that_has_become_another_volume_is_refused() {
    let port = free_port();
    let mut server = or_skip!(Server::configured(&two_volumes(port, "ram:8MiB", "disk")));
    in_a_world(async {
        let url = format!("nbd://127.0.0.1:{port}/disk?timeout=2");
        let device = opened(&url).await;
        write_all(&device, 1).await;
        reload(&mut server, &two_volumes(port, "ram:8MiB", "other"));
        let written = device
            .write(page(&device, 0), data(2), Durability::Cached)
            .await;
        assert_eq!(written, Err(DeviceError::NotReady));
        assert_eq!(
            versions(&opened(&url).await).await,
            all(0),
            "nothing is written to it"
        );
    });
}

/// Two links between two hosts: one is throttled to a tenth, the other is cut and restored.
#[test]
fn a_path_that_is_slow_or_gone_leaves_the_other() {
    needs!(crate::lab::can_build());
    let rate = |bits| Conditions {
        bits_per_s: Some(bits),
        ..Conditions::default()
    };
    let link = |name: &str| LinkPlan::new(name, "client", "server", rate(400e6));
    let plan = Plan {
        hosts: vec![HostPlan::new("client"), HostPlan::new("server")],
        links: vec![link("a"), link("b")],
    };
    let lab = Lab::build(&plan).expect("a lab");
    let (client, host) = (
        lab.host("client").expect("a host"),
        lab.host("server").expect("a host"),
    );
    let state = tempfile::tempdir().expect("a temporary folder");
    let mut server = host
        .start(LINERATE, |command| {
            command.args([
                "serve",
                "--volume",
                "disk=ram:8MiB",
                "--listen",
                "nbd://0.0.0.0:10809",
                "--state",
            ]);
            command.arg(state.path());
        })
        .expect("the server starts");
    let served = || {
        until("the server listens", || {
            // A server that is starting closes the connections that it accepts.
            let greets = || {
                let stream = std::net::TcpStream::connect(("10.77.0.2", 10809));
                stream
                    .and_then(|mut stream| stream.read_exact(&mut [0; 8]))
                    .is_ok()
            };
            client.run(greets).expect("a thread")
        });
    };
    served();
    let set = |link: &str, conditions: &Conditions| {
        for direction in [Direction::Forward, Direction::Back] {
            lab.link(link)
                .expect("a link")
                .set(direction, conditions)
                .expect("conditions");
        }
    };
    let (slow, gone) = (
        rate(40e6),
        Conditions {
            loss: 1.0,
            ..Conditions::default()
        },
    );
    let work = || {
        in_a_world(async {
            let url = "nbd://10.77.0.2/disk?address=10.77.1.2&connections=4&timeout=600&stall=1";
            let device = opened(url).await;
            let carried =
                || ["a", "b"].map(|name| lab.link(name).expect("a link").counts().bytes as f64);
            write_all(&device, 1).await;
            set("b", &slow);
            let before = carried();
            for version in 2..40 {
                write_all(&device, version).await;
            }
            let after = carried();
            let (fast, slow) = (after[0] - before[0], after[1] - before[1]);
            assert!(
                slow < fast / 2.0,
                "{slow} bytes by the slow path, {fast} by the fast one"
            );
            assert_eq!(versions(&device).await, all(39));
            set("a", &gone);
            write_all(&device, 41).await;
            assert_eq!(versions(&device).await, all(41));
            set("a", &rate(400e6));
            set("b", &gone);
            write_all(&device, 42).await;
            assert_eq!(versions(&device).await, all(42));
            device.flush().await.expect("nothing is lost");
        });
    };
    client.run(work).expect("a thread of the host");
    let _ = server.kill(); // the lab also ends it
    let _ = server.wait();
}

/// All clients share the channels, and one of them reports their statistics.
#[test]
fn a_benchmark_tells_what_each_channel_did() {
    let (_server, port) = or_skip!(ours("ram:8MiB"));
    let url = format!("nbd://127.0.0.1:{port}/disk?connections=4");
    let asked = [
        "bench",
        &url,
        "--seconds",
        "0.5",
        "--iodepth",
        "16",
        "--clients",
        "2",
        "--json",
    ];
    let bench = |more: &[&str]| run(LINERATE, &[&asked[..], more].concat());
    assert!(bench(&[]).expect_json_line()["sessions"].is_null());
    let told = bench(&["--statistics"]).expect_json_line();
    let [figures] = &told["sessions"].as_array().expect("a list")[..] else {
        panic!("{told}")
    };
    let channels = figures["channels"].as_array().expect("a list");
    let sum = |key: &str| {
        channels
            .iter()
            .filter_map(|channel| channel[key].as_u64())
            .sum::<u64>()
    };
    assert!(channels.len() == 4 && sum("requests") > 0, "{told}");
    assert_eq!(
        (sum("bytes"), sum("reconnects")),
        (PAGE * sum("requests"), 0),
        "{told}"
    );
    let busy = channels
        .iter()
        .find(|channel| channel["requests"] != 0)
        .expect("one of them");
    let figure = |key: &str| busy[key].as_f64().expect("a number");
    assert!(
        figure("service_us_mean") > 0.0 && figure("outstanding_mean") > 0.0,
        "{told}"
    );
    assert_eq!(
        (&busy["connected"], &busy["last_error"]),
        (&true.into(), &serde_json::Value::Null)
    );
}
