//! Tests of a LUN over several sessions, through two portals of its target: sessions that are cut, delayed
//! and delivered late, targets that are restarted, and portals that lead to another LUN.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use backends::Failure;
use backends::location::Location;
use backends::peers::{self, ChannelStatus, Status};
use block::{BlockDevice, DeviceError, Durability};
use iscsi::pdu::Opcode;

use crate::diagnose::meddler::{Fate, Meddle, Meddler, Pdu};
use crate::json::{INFO, check};
use crate::nbd_channels::{
    PAGE, PAGES, all, data, ghosts, page, versions, versions_seen, write_all,
};
use crate::nbd_client::opened;
use crate::program::{LINERATE, linerate, run, says, until};
use crate::proxy::{Proxy, Towards};
use crate::remote::in_a_world;
use crate::server::{Server, free_port};

const NAME: &str = "iqn.2026-01.io.linerate:disk";

/// A target at two portals, on two addresses of the host, and a proxy in front of each on 127.0.0.1.
struct San {
    server: Server,
    other: String,
    proxies: [Proxy; 2],
}

impl San {
    /// Starts a target with portals in these groups.
    fn new(groups: [u16; 2], spec: &str) -> Option<San> {
        let [first, second] = groups;
        let other_port = free_port();
        let server = Server::configured(&format!(
            "[[portal]]\nlisten = \"127.0.0.1:{{port}}\"\ngroup = {first}\n\
             [[portal]]\nlisten = \"0.0.0.0:{other_port}\"\ngroup = {second}\n\
             [volume.disk]\nspec = \"{spec}\"\n\
             [[target]]\nname = \"{NAME}\"\nlun = [{{ lun = 0, volume = \"disk\" }}]\n"
        ))?;
        let proxies = [server.port(), other_port].map(Proxy::to);
        Some(San {
            server,
            other: format!("127.0.0.2:{other_port}"),
            proxies,
        })
    }

    /// The URL with one session through each proxy.
    fn by_proxies(&self, options: &str) -> String {
        let [one, other] = self.proxies.each_ref().map(Proxy::port);
        format!(
            "iscsi://127.0.0.1:{one}/{NAME}/0?address=127.0.0.1:{other}&nop-interval=1&reconnect-time=10min&{options}"
        )
    }

    /// The URL with one or more sessions through each portal.
    fn direct(&self, options: &str) -> String {
        format!(
            "iscsi://{}/{NAME}/0?address={}&{options}",
            self.server.portal(),
            self.other
        )
    }
}

async fn status(url: &str) -> Status {
    let spec = backends::parse(url).expect("a specification");
    peers::channels(&spec)
        .expect("it has channels")
        .status()
        .await
        .expect("on this thread")
}

#[test]
fn sessions_that_are_cut_cost_nothing_but_time() {
    for groups in [[1, 1], [1, 2]] {
        let san = or_skip!(San::new(groups, "ram:8MiB"));
        in_a_world(async {
            let url = san.by_proxies("quarantine=1");
            let device = opened(&url).await;
            for version in 1..=6 {
                let cut = &san.proxies[usize::from(version % 2)];
                // In the middle of the transmitted data, at an arbitrary position.
                cut.cut_after(cut.connections() - 1, 10_000 * usize::from(version));
                write_all(&device, version).await;
                assert_eq!(versions(&device).await, all(version));
            }
            device.flush().await.expect("nothing is lost");
            let status = status(&url).await;
            assert!(status.resends > 0 && status.fences, "{status:?}");
        });
    }
}

/// A proxy holds a write of a lost session, and delivers it after a newer write. A login at the same target
/// port has ended the lost session, so none of its commands may be executed afterwards.
#[test]
fn a_ghost_write_destroys_nothing() {
    let san = or_skip!(San::new([1, 1], "ram:8MiB"));
    in_a_world(async {
        let device = opened(&san.by_proxies("quarantine=300")).await;
        write_all(&device, 1).await;
        let newest = ghosts(&device, &san.proxies[0]).await;
        write_all(&device, newest).await;
        san.proxies[0].release(0);
        until("the ghosts have come", || {
            san.proxies[0].held(0, Towards::Target) == 0 || san.proxies[0].is_cut(0)
        });
        assert_eq!(versions(&device).await, all(newest));
        device.flush().await.expect("nothing is lost");
        assert_eq!(versions(&device).await, all(newest));
    });
}

/// A session lost in another portal group cannot be ended over the remaining path: newer writes to its blocks
/// wait until its own portal is reachable again, and other writes do not.
#[test]
fn newer_writes_wait_for_the_end_of_a_session_in_another_group() {
    let san = or_skip!(San::new([1, 2], "ram:8MiB"));
    in_a_world(async {
        let device = opened(&san.by_proxies("quarantine=1h")).await;
        write_all(&device, 1).await;
        san.proxies[0].close();
        let newest = ghosts(&device, &san.proxies[0]).await;
        let newer = Arc::clone(&device);
        let newer = reactor::spawn(async move { write_all(&newer, newest).await });
        let beside = page(&device, PAGES);
        device
            .write(beside, data(9), Durability::Cached)
            .await
            .expect("its blocks are free");
        assert!(!newer.is_finished(), "the ghosts could still land");
        san.proxies[0].open();
        newer.await;
        san.proxies[0].release(0);
        until("the ghosts have come", || {
            san.proxies[0].held(0, Towards::Target) == 0 || san.proxies[0].is_cut(0)
        });
        assert_eq!(versions(&device).await, all(newest));
    });
}

/// Like the previous test, but newer writes are not delayed, so the late write must be visible.
#[test]
fn without_a_quarantine_a_ghost_write_is_found() {
    let san = or_skip!(San::new([1, 2], "ram:8MiB"));
    in_a_world(async {
        let device = opened(&san.by_proxies("quarantine=0")).await;
        write_all(&device, 1).await;
        san.proxies[0].close();
        let newest = ghosts(&device, &san.proxies[0]).await;
        write_all(&device, newest).await;
        assert_eq!(versions(&device).await, all(newest));
        san.proxies[0].release(0);
        // A page that the late write is writing at the moment also counts.
        while versions_seen(&device)
            .await
            .iter()
            .all(|seen| *seen == Some(newest))
        {
            reactor::sleep(std::time::Duration::from_millis(5)).await;
        }
    });
}

/// A buffered volume reports the loss of its cache. A RAM volume has no cache and reports nothing, so the
/// journal is replayed only with `writers=one`.
#[test]
fn what_a_restarted_target_has_lost_is_written_again() {
    for (spec, sessions, writers) in [
        ("ram:8MiB", 2, "&writers=one"),
        ("ram:8MiB", 5, "&writers=one"),
        ("buffered:4MiB:[file:{state}/disk.img?size=8MiB]", 4, ""),
    ] {
        let mut san = or_skip!(San::new([1, 1], spec));
        in_a_world(async {
            let url = san.direct(&format!("sessions={sessions}{writers}"));
            let device = opened(&url).await;
            for version in 1..=3 {
                write_all(&device, version).await;
                san.server.kill();
                san.server.restart();
                assert_eq!(versions(&device).await, all(version), "{spec}");
            }
            assert_eq!(device.flush().await, Ok(()));
            let status = status(&url).await;
            assert_eq!((status.replays, status.channels.len()), (3, sessions));
        });
    }
}

/// Without a journal, the loss is reported once.
#[test]
fn without_a_journal_a_restart_of_the_target_is_told() {
    let mut san = or_skip!(San::new([1, 1], "ram:8MiB"));
    in_a_world(async {
        let device = opened(&san.direct("journal=0")).await;
        write_all(&device, 1).await;
        san.server.kill();
        san.server.restart();
        assert_eq!(versions(&device).await, all(0));
        assert_eq!(device.flush().await, Err(DeviceError::WritesLost));
        assert_eq!(device.flush().await, Ok(()));
    });
}

/// The target at the other portal has another disk under the same name.
#[test]
fn a_path_to_another_disk_is_not_used() {
    let san = or_skip!(San::new([1, 1], "ram:8MiB"));
    let stranger = or_skip!(San::new([1, 1], "ram:8MiB"));
    in_a_world(async {
        let url = format!(
            "iscsi://{}/{NAME}/0?address={}",
            san.server.portal(),
            stranger.server.portal()
        );
        let device = opened(&url).await;
        write_all(&device, 1).await;
        let status = status(&url).await;
        // Both sessions lead to the disk that was opened.
        let leads_there =
            |channel: &ChannelStatus| channel.is_connected && channel.path == san.server.portal();
        assert!(
            status.channels.len() == 2 && status.channels.iter().all(leads_there),
            "{status:?}"
        );
        let why = status
            .channels
            .iter()
            .find_map(|channel| channel.last_error.clone());
        assert!(
            why.is_some_and(|why| why.contains("not the same device")),
            "{status:?}"
        );
    });
}

/// Replaces the state in the target's report of its port groups, of which there is one.
struct Access {
    state: Arc<AtomicU8>,
    /// The tags of the querying commands.
    asked: Vec<[u8; 4]>,
}

fn tag(pdu: &Pdu) -> [u8; 4] {
    *pdu.bhs.0[16..]
        .first_chunk()
        .expect("a header has 48 bytes")
}

impl Meddle for Access {
    fn to_target(&mut self, pdu: &mut Pdu) -> Fate {
        // MAINTENANCE IN, REPORT TARGET PORT GROUPS (SPC-4 6.37)
        if pdu.command() == Some(0xa3) && pdu.bhs.0[33] & 0x1f == 0x0a {
            self.asked.push(tag(pdu));
        }
        Fate::Passes
    }

    fn to_initiator(&mut self, pdu: &mut Pdu) -> Fate {
        if pdu.is(Opcode::DataIn) && self.asked.contains(&tag(pdu)) {
            pdu.rest[4] = pdu.rest[4] & 0xf0 | self.state.load(Relaxed);
        }
        Fate::Passes
    }
}

/// The states change, and the target does not announce it: they are polled.
#[test]
fn paths_are_used_as_their_access_states_allow() {
    const OPTIMIZED: u8 = 0;
    const NON_OPTIMIZED: u8 = 1;
    const STANDBY: u8 = 2;
    let server = Server::serving(&["disk=ram:8MiB"]);
    needs!(server.is_ours());
    let states = [NON_OPTIMIZED, OPTIMIZED].map(|state| Arc::new(AtomicU8::new(state)));
    let portals = states.each_ref().map(|state| {
        let state = Arc::clone(state);
        let access = move || Access {
            state: Arc::clone(&state),
            asked: Vec::new(),
        };
        Meddler::before(server.port(), access).port()
    });
    let url = format!(
        "iscsi://127.0.0.1:{}/{NAME}/0?address=127.0.0.1:{}",
        portals[0], portals[1]
    );
    in_a_world(async {
        let device = opened(&url).await;
        write_all(&device, 1).await;
        let requests = async || {
            let status = status(&url).await;
            [0, 1].map(|number: usize| status.channels[number].requests)
        };
        assert_eq!(requests().await, [0, PAGES]);
        for (now, by_first) in [
            ([NON_OPTIMIZED, STANDBY], true),
            ([STANDBY, NON_OPTIMIZED], false),
        ] {
            for (state, now) in states.iter().zip(now) {
                state.store(now, Relaxed);
            }
            loop {
                let before = requests().await;
                write_all(&device, 2).await;
                let after = requests().await;
                let more = [after[0] - before[0], after[1] - before[1]];
                if more == if by_first { [PAGES, 0] } else { [0, PAGES] } {
                    break;
                }
                reactor::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    });
}

/// A verified load of the program, while sessions of one portal are dropped repeatedly.
#[test]
fn a_verified_load_goes_on_while_sessions_are_dropped() {
    let san = or_skip!(San::new([1, 1], "ram:32MiB"));
    let url = san.direct("sessions=4");
    let bench = std::thread::spawn(move || {
        let arguments = [
            "bench",
            &url,
            "--bs",
            "4k",
            "--rw",
            "randrw",
            "--iodepth",
            "16",
            "--verify",
        ];
        let more = ["--allow-write", "--seconds", "3", "--json", "--statistics"];
        run(LINERATE, &[&arguments[..], &more].concat()).expect_json_line()
    });
    while !bench.is_finished() {
        // Ignore an error, because there may be no session at this moment. Names are compared without regard
        // to case, as at a login.
        let name = "iqn.2026-01.IO.Linerate:INITIATOR";
        let _ = san.server.ask(&["server", "drop", name]);
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    let told = bench.join().expect("figures");
    assert_eq!(
        (&told["errors"], &told["mismatches"]),
        (&0.into(), &0.into()),
        "{told}"
    );
    let figures = &told["sessions"][0];
    let channels = figures["channels"].as_array().expect("a list");
    let sum = |key: &str| {
        channels
            .iter()
            .filter_map(|channel| channel[key].as_u64())
            .sum::<u64>()
    };
    assert!(
        channels.len() == 4 && sum("requests") > 0 && sum("reconnects") > 0,
        "{told}"
    );
    assert_eq!(sum("bytes") % PAGE, 0, "{told}");
    assert_eq!(figures["fences"], true);
}

/// Requests fail when no path has been available for their timeout, and the command reports the reason.
#[test]
fn a_target_that_no_path_leads_to_any_more_is_unreachable() {
    let mut san = or_skip!(San::new([1, 1], "ram:32MiB"));
    let url = san.direct("command-time=1&reconnect-time=0&login-time=1");
    in_a_world(async {
        let place = Location::parse(&url).expect("a volume");
        let opened = place.open(false).await.expect("it is served");
        write_all(&opened.device, 1).await;
        san.server.kill();
        let written = opened
            .device
            .write(page(&opened.device, 0), data(2), Durability::Cached)
            .await;
        assert_eq!(written, Err(DeviceError::NotReady));
        let failed = opened
            .explained::<()>(Err(Failure::device("cannot write", DeviceError::NotReady)))
            .await;
        let failure = failed.expect_err("a failure");
        assert!(
            failure.is_unreachable() && failure.to_string().contains("no path is available"),
            "{failure}"
        );
    });
}

/// The URL has two paths to the LUN, one path without a server, and one path to another LUN.
#[test]
fn info_shows_each_path() {
    let san = or_skip!(San::new([1, 2], "ram:8MiB"));
    let other = Server::serving(&["disk=ram:8MiB"]);
    let dead = free_port();
    let url = format!(
        "{}&address=127.0.0.1:{dead}&address={}",
        san.direct(""),
        other.portal()
    );
    let told = linerate(&["info", &url, "--json"]).expect_success();
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    check(INFO, &told);
    let paths = told["paths"].as_array().expect("a list");
    let group = |path: &serde_json::Value| (path["usable"].as_bool(), path["port_group"].as_u64());
    assert_eq!(
        paths.iter().map(group).collect::<Vec<_>>(),
        [
            (Some(true), Some(1)),
            (Some(true), Some(1)),
            (Some(false), None),
            (Some(false), Some(1)),
        ]
    );
    let problem = |path: usize| paths[path]["problem"].as_str().expect("a problem");
    assert!(
        problem(2).contains("cannot connect") && problem(3).contains("instead of"),
        "{told}"
    );
    assert!(
        told["luns"].as_array().is_some_and(|luns| luns.len() == 1),
        "{told}"
    );
    let said = linerate(&["info", &url]).expect_success();
    says(&said, &["port group 1, active/", "not usable: "]);
}

/// Commands for a single session use one portal.
#[test]
fn what_is_asked_of_one_session_is_refused_for_several() {
    let url = format!("iscsi://127.0.0.1:1/{NAME}/0?address=127.0.0.1:2");
    for command in [&["scsi", "registrations"][..], &["diagnose"]] {
        let said = linerate(&[command, &[url.as_str()]].concat()).expect_failure();
        assert!(
            said.contains("this command uses one portal"),
            "{command:?}: {said}"
        );
    }
}
