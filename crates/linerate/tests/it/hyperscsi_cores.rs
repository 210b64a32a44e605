//! Tests of HyperSCSI on servers with two and three cores: sessions run on all cores, over UDP and raw
//! Ethernet, and every event is handled on any core.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;

use ::hyperscsi::initiator::{Config, EndReason, Event, Times};
use ::hyperscsi::{ETHERTYPE, Header, Opcode};
use host::rtnetlink::{InterfaceSettings, Rtnetlink};
use reactor::{DatagramAddress, DatagramEndpoint};

use crate::aoe::{Running, Site};
use crate::hyperscsi::{Client, Load, READ, cdb, config, control, write_and_read};
use crate::program::{LINERATE, end_of, linerate, run, run_command, until};
use crate::remote::in_a_world;
use crate::server::Server;

const TEXT: &str = r#"
reactors = 3
[log]
filter = "warn,audit=info,daemon=info"
[[portal]]
listen = "127.0.0.1:{port}"
[volume.disk]
spec = "file:{state}/disk?size=8MiB"
[[target]]
name = "iqn.2026-01.io.linerate:disk"
lun = [{ lun = 0, volume = "disk" }]
[hyperscsi]
listen = ["hyperscsi+udp://127.0.0.1:{port}"]
[[hyperscsi.target]]
name = "disks"
lun = [{ lun = 0, volume = "disk" }]
"#;

/// The sessions that `server sessions` shows, with their cores and numbers, by the initiator's port.
fn shown(control: &str) -> BTreeMap<u32, (u64, u64)> {
    let said = linerate(&["server", "sessions", "--json", "--control", control]).expect_success();
    let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let sessions = said["sessions"]
        .as_array()
        .or(said.as_array())
        .expect("a list")
        .iter();
    let hyperscsi = sessions.filter(|session| session["front_end"] == "hyperscsi");
    let fact = |session: &serde_json::Value| {
        let port =
            u32::from_str_radix(session["isid"].as_str().expect("a number"), 16).expect("a number");
        let [core, handle] = ["core", "tsih"].map(|name| session[name].as_u64().expect("a number"));
        (port, (core, handle))
    };
    hyperscsi.map(fact).collect()
}

fn cores(control: &str) -> Vec<u64> {
    shown(control).values().map(|(core, _)| *core).collect()
}

fn with_port(port: u32) -> Config {
    Config {
        port,
        ..config("host1", "disks", None)
    }
}

#[test]
fn sessions_over_udp_live_on_all_cores() {
    let mut server = or_skip!(Server::configured(TEXT));
    let (port, control) = (server.port(), control(&server));
    in_a_world(async {
        let mut clients = Vec::new();
        for number in 0..6 {
            clients.push(Client::udp(port, with_port(number)).logged_in().await);
        }
        for client in &mut clients {
            write_and_read(client, 256, 64).await;
        }
        let before = shown(&control);
        let cores: Vec<u64> = before.values().map(|(core, _)| *core).collect();
        assert_eq!(cores.iter().collect::<BTreeSet<_>>().len(), 3, "{before:?}");
        assert!(
            cores.windows(2).all(|pair| pair[1] == (pair[0] + 1) % 3),
            "{before:?}"
        );
        let handles: BTreeSet<u64> = before.values().map(|(_, handle)| *handle).collect();
        assert_eq!(handles.len(), 6, "no number is used twice: {before:?}");

        // A new session of a nexus replaces the old one, on whichever core that is.
        for number in 0..3 {
            let mut newer = Client::udp(port, with_port(number)).logged_in().await;
            write_and_read(&mut newer, 256, 64).await;
            clients[number as usize] = newer;
        }
        let after = shown(&control);
        for (port, (core, handle)) in &before {
            assert_eq!(after[port].0, *core);
            assert_eq!(after[port].1 == *handle, *port > 2, "{before:?}, {after:?}");
        }
        until("three lines of replaced sessions", || {
            server
                .log()
                .lines()
                .filter(|line| line.contains("why=\"reinstated\""))
                .count()
                == 3
        });

        // A session is ended by its number, on any core, and no other session is ended.
        for number in [3, 4, 5] {
            let handle = after[&number].1.to_string();
            let words = ["server", "drop", handle.as_str(), "--control", &control];
            run(LINERATE, &words).expect_success();
            let client = &mut clients[number as usize];
            client
                .until("the end", |client| !client.events.is_empty())
                .await;
            assert_eq!(client.events, [Event::Ended(EndReason::ByTarget)]);
        }
        assert_eq!(
            shown(&control).keys().copied().collect::<Vec<_>>(),
            [0, 1, 2]
        );
        clients.truncate(3);

        // Frames with the numbers of others' sessions, or of none, have no effect on any core.
        for number in 0..3000u32 {
            let session = clients[number as usize % 3]
                .machine
                .session()
                .expect("it is logged in");
            let header = Header {
                session: if number % 2 == 0 {
                    session
                } else {
                    session.wrapping_add(number)
                },
                epoch: number as u16 % 3,
                number: u64::from(number),
                ..Header::plain(Opcode::AckRequest)
            };
            clients[0].send(&[&header.bytes()[..], &number.to_be_bytes()].concat());
        }
        for client in &mut clients {
            write_and_read(client, 256, 64).await;
        }

        // When the server is asked to shut down, each core closes its sessions. After a kill and a restart,
        // no core has any state.
        server.signal("TERM");
        for client in &mut clients {
            client
                .until("the end", |client| !client.events.is_empty())
                .await;
            assert_eq!(client.events, [Event::Ended(EndReason::ByTarget)]);
        }
        assert!(server.ended().success());
        server.restart();
        let mut clients = Vec::new();
        for number in 0..3 {
            clients.push(Client::udp(port, with_port(number)).logged_in().await);
        }
        let mut loads = [Load::new(), Load::new(), Load::new()];
        for (place, (load, client)) in (0..).zip(loads.iter_mut().zip(&mut clients)) {
            load.start = place * Load::BLOCKS;
            load.begin_again(client);
            load.until(client, 10).await;
        }
        server.kill();
        server.restart();
        for (load, client) in loads.iter_mut().zip(&mut clients) {
            client
                .until("another session", |client| {
                    matches!(
                        client.events[..],
                        [Event::NexusLost, Event::LoggedIn { .. }]
                    )
                })
                .await;
            load.end_of_session(client);
            load.verify(client).await;
            load.begin_again(client);
            load.until(client, 10).await;
        }
        let found: BTreeSet<u64> = shown(&control).values().map(|(core, _)| *core).collect();
        assert_eq!(found, BTreeSet::from([0, 1, 2]));
    });
    server.stop();
}

/// The kernel delivers joined datagrams to the core of the first one.
#[test]
fn frames_that_udp_brings_to_another_core_are_handed_over() {
    let mut server = or_skip!(Server::configured(TEXT));
    let (port, control) = (server.port(), control(&server));
    in_a_world(async {
        for number in 0..3 {
            let mut client = Client::udp(port, with_port(number)).logged_in().await;
            client.joins = true;
            write_and_read(&mut client, 256, 64).await;
            // A login among others also reaches its core.
            let mut newer = Client::udp(port, with_port(number));
            newer.joins = true;
            let mut newer = newer.logged_in().await;
            write_and_read(&mut newer, 256, 64).await;
        }
        assert_eq!(
            cores(&control).into_iter().collect::<BTreeSet<_>>(),
            BTreeSet::from([0, 1, 2])
        );
    });
    server.stop();
}

#[test]
fn a_portal_comes_and_goes_on_all_cores() {
    let mut server = or_skip!(Server::configured(TEXT));
    let (port, control) = (server.port(), control(&server));
    let text = TEXT.replace("{port}", &port.to_string());
    let text = text.replace("{state}", &server.state().display().to_string());
    let udp = |address: &str| format!("\"hyperscsi+udp://{address}:{port}\"");
    let serve = |server: &mut Server, listen: &[String]| {
        server.reconfigure(&text.replace(&udp("127.0.0.1"), &listen.join(", ")));
        linerate(&["server", "reload", "--control", &control]).expect_success();
    };
    in_a_world(async {
        let mut clients = Vec::new();
        for number in 0..3 {
            clients.push(Client::udp(port, with_port(number)).logged_in().await);
        }
        // The wildcard address differs from the served one; it is closed and opened on each core, one after
        // the other.
        for round in 0..3 {
            serve(&mut server, &[udp("127.0.0.1"), udp("127.0.0.2")]);
            serve(&mut server, &[udp("0.0.0.0")]);
            for client in &mut clients {
                write_and_read(client, 256, 64).await;
            }
            serve(&mut server, &[udp("127.0.0.2")]);
            serve(&mut server, &[udp("127.0.0.1")]);
            for number in 0..3 {
                let newer = with_port(3 + 3 * round + number);
                clients.push(Client::udp(port, newer).logged_in().await);
            }
        }
        for client in &mut clients {
            write_and_read(client, 256, 64).await;
            assert!(client.events.is_empty(), "{:?}", client.events);
        }
        let cores = cores(&control);
        for core in 0..3 {
            assert_eq!(
                cores.iter().filter(|other| **other == core).count(),
                4,
                "{cores:?}"
            );
        }
        // A port in use by another process is not shared with it.
        let taken = std::net::UdpSocket::bind("127.0.0.3:0").expect("a socket");
        let address = format!("\"hyperscsi+udp://{}\"", taken.local_addr().expect("bound"));
        server.reconfigure(&text.replace(&udp("127.0.0.1"), &address));
        let refused = linerate(&["server", "reload", "--control", &control]).expect_failure();
        assert!(refused.contains("in use"), "{refused}");
        for client in &mut clients {
            write_and_read(client, 256, 64).await;
            assert!(client.events.is_empty(), "{:?}", client.events);
        }
    });
    server.stop();
}

/// Frames reach every session while others arrive, and the interface goes down and up under all of them.
#[test]
fn sessions_over_raw_ethernet_live_on_all_cores_and_survive_their_interface() {
    for count in [2, 3] {
        let Some(site) = Site::new(9000) else { return };
        let reactors = count.to_string();
        let control = site.path("control");
        let _server = site.serve(&[
            "--reactors",
            &reactors,
            "--control",
            &control,
            "--listen",
            "hyperscsi://san0",
            "--volume",
            "disks=ram:8MiB",
        ]);
        let to = DatagramAddress::Ethernet(site.client_sees_server());
        let set = |up: bool| {
            site.server
                .run(|| {
                    let rtnetlink = Rtnetlink::open().expect("the kernel's");
                    let index = rtnetlink.index("san0").expect("there");
                    match up {
                        true => rtnetlink
                            .set_up(index, &InterfaceSettings::default())
                            .expect("up"),
                        false => rtnetlink.set_down(index).expect("down"),
                    }
                })
                .expect("a thread");
        };
        let sessions = || {
            in_a_world(async {
                let mut clients = Vec::new();
                for port in 0..6 {
                    let here = DatagramEndpoint::Ethernet {
                        interface: "eth0".to_owned(),
                        ether_type: ETHERTYPE,
                    };
                    let times = Times {
                        rekey_frames: 100,
                        ..Times::default()
                    };
                    let config = Config {
                        times,
                        ..with_port(port)
                    };
                    clients.push(Client::at(here, to, config).logged_in().await);
                }
                for client in &mut clients {
                    write_and_read(client, 1024, 256).await;
                }
                let before = shown(&control);
                let cores: Vec<u64> = before.values().map(|(core, _)| *core).collect();
                assert!(
                    cores
                        .windows(2)
                        .all(|pair| pair[1] == (pair[0] + 1) % count),
                    "{before:?}"
                );
                assert_eq!(cores.iter().collect::<BTreeSet<_>>().len() as u64, count);
                set(false);
                for client in &mut clients {
                    client.submit(0, &cdb(READ, 0, 1), 512, Vec::new());
                    client.turn().await;
                }
                set(true);
                for client in &mut clients {
                    client
                        .until("an answer", |client| client.answers.len() == 1)
                        .await;
                    client.answers.clear();
                    write_and_read(client, 1024, 256).await;
                    assert!(
                        !client.events.is_empty(),
                        "it logs in again after so few frames"
                    );
                    assert!(
                        client.events.iter().all(|event| *event == Event::Resumed),
                        "{:?}",
                        client.events
                    );
                }
                assert_eq!(
                    shown(&control),
                    before,
                    "all of them went on where they were"
                );
            });
        };
        site.client.run(sessions).expect("a thread");
    }
}

/// Uses Linerate's client, as in normal use: each session opens its own sockets, and several sessions share
/// one interface.
#[test]
fn a_verified_load_of_many_sessions_uses_both_cores() {
    let Some(site) = Site::new(1500) else { return };
    let control = site.path("control");
    let options = [
        "--reactors",
        "2",
        "--control",
        &control,
        "--listen",
        "hyperscsi://san0",
    ];
    let _server = site.serve(&[&options[..], &["--volume", "disk=ram:8MiB"]].concat());
    let mut command = site.client.command(LINERATE);
    command.args("--log error bench hyperscsi://eth0/disk/0 --sessions 4 --verify".split(' '));
    command.args("--read 50 --depth 8 --seconds 4 --allow-write --yes".split(' '));
    let bench = command.stdout(Stdio::null()).spawn().expect("started");
    let mut bench = Running(bench);
    until("four sessions", || shown(&control).len() == 4);
    let mut cores = cores(&control);
    cores.sort_unstable();
    assert_eq!(
        cores,
        [0, 0, 1, 1],
        "ports of one program follow each other"
    );
    assert!(end_of(&mut bench.0).success());
    let _ = run_command(
        site.client
            .command(LINERATE)
            .args(["discover", "--hyperscsi", "eth0"]),
    )
    .expect_success();
}
