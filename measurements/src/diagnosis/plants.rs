//! The planted causes, each with a path that has the cause and the same path without it.
//!
//! Each repeat chooses its own random distances, rates and sizes. According to the model, the cause is the bottleneck over the
//! whole range; the numbers are in the comment of each plant.

use std::time::Duration;

use diagnose::Cause;
use lab::{Conditions, Spread};

use crate::diagnosis::world::{Burner, Forwarder, NbdServer, Scene};
use crate::random::Random;

/// A cause in a path, and its cure.
pub(super) struct Planted {
    /// The random parameters, human-readable.
    pub(super) details: String,
    pub(super) scene: Scene,
    pub(super) cure: Cure,
}

/// The removal of a cause.
pub(super) enum Cure {
    /// Another path instead of the planted one.
    Path(Box<Scene>),
    /// Another load: the change that the finding proposes.
    Trial,
}

impl Planted {
    fn new(details: impl Into<String>, scene: Scene, cured: Scene) -> Planted {
        Planted {
            details: details.into(),
            scene,
            cure: Cure::Path(Box::new(cured)),
        }
    }
}

/// One row of the matrix.
pub(super) struct Plant {
    pub(super) cause: Cause,
    /// Whether the path is to an NBD export.
    pub(super) nbd: bool,
    /// A short description of the cause.
    pub(super) what: &'static str,
    pub(super) plant: fn(&mut Random) -> Planted,
}

pub(super) const ALL: &[Plant] = {
    use Cause::*;
    &[
        row(
            TcpWindow,
            "a TCP window of 32 to 64 KiB, 10 to 20 ms away",
            tcp_window,
        ),
        row(
            Solicitation,
            "InitialR2T=Yes with ImmediateData=No, 4 to 15 ms away",
            solicitation,
        ),
        row(
            SmallBursts,
            "MaxBurstLength of 4 or 8 KiB, one R2T at a time, 20 to 30 ms away",
            small_bursts,
        ),
        row(
            SmallSegments,
            "MaxRecvDataSegmentLength of 512 bytes",
            small_segments,
        ),
        row(
            CommandWindow,
            "a command window of 1 or 2, 8 to 15 ms away",
            command_window,
        ),
        row(
            Depth,
            "a client with one request at a time, 2 to 10 ms away",
            depth,
        ),
        row(
            LinkRate,
            "a link that fell back to a tenth of its rate",
            link_rate,
        ),
        row(
            PathMtu,
            "interfaces with an MTU of 9000, a path with 1500",
            path_mtu,
        ),
        row(Loss, "0.5 to 2 % of packets lost", loss),
        row(SlowPath, "two connections, one on a slow lane", slow_path),
        row(
            Medium,
            "a medium that takes 2 to 10 ms, or has a low rate",
            storage_medium,
        ),
        row(Flush, "a flush that takes 10 to 40 ms", flush),
        row(
            Misalignment,
            "writes of 512 bytes on blocks of 4 KiB, or across their boundaries",
            misalignment,
        ),
        row(
            TargetCpu,
            "60 to 85 % of the target's core used by others",
            target,
        ),
        row(
            ClientCpu,
            "60 to 85 % of the client's core used by others",
            client,
        ),
        row(
            DelayedAck,
            "a target that sends header and data separately, without TCP_NODELAY",
            delayed_ack,
        ),
        nbd_row(
            Medium,
            "NBD: nbdkit's filters delay reads by 4 to 20 ms, or limit their rate",
            nbd_medium,
        ),
        nbd_row(
            Connections,
            "NBD: the rate of one connection, limited by a TCP window of 32 to 64 KiB or by nbdkit's filter",
            connections,
        ),
        nbd_row(
            TargetCpu,
            "NBD: 60 to 85 % of the server's core used by others",
            server_cpu,
        ),
        nbd_row(Tls, "NBD: TLS on loopback, one core for each end", tls),
    ]
};

const fn row(cause: Cause, what: &'static str, plant: fn(&mut Random) -> Planted) -> Plant {
    Plant {
        cause,
        nbd: false,
        what,
        plant,
    }
}

const fn nbd_row(cause: Cause, what: &'static str, plant: fn(&mut Random) -> Planted) -> Plant {
    Plant {
        cause,
        nbd: true,
        what,
        plant,
    }
}

impl Plant {
    /// Returns the plant's name on the command line: the name of its cause, with the prefix `nbd-` over NBD.
    pub(super) fn name(&self) -> String {
        named(Some(self.cause), self.nbd)
    }
}

/// Returns the name of a plant, or of a healthy path.
pub(super) fn named(cause: Option<Cause>, nbd: bool) -> String {
    let cause = cause.map_or_else(|| "healthy".to_owned(), name);
    if nbd { format!("nbd-{cause}") } else { cause }
}

/// Returns the name of a cause in JSON and on the command line.
pub(super) fn name(cause: Cause) -> String {
    match serde_json::to_value(cause) {
        Ok(serde_json::Value::String(name)) => name,
        // Unit variants are strings; anything else would be obvious in the output.
        other => format!("{other:?}"),
    }
}

// Causes on the link between the two hosts.

/// Limits the sender to one window per round trip: up to 64 KiB in 8 ms, or 8 MB/s, while the link carries 12
/// or more.
fn tcp_window(random: &mut Random) -> Planted {
    let (kib, round_trip) = (
        random.one_of(&[32u64, 48, 64, 64]),
        random.between(10.0, 20.0),
    );
    let megabits = random.one_of(&[100.0, 150.0, 200.0]);
    let reads = random.one_of(&[true, false]);
    // The kernel doubles the requested size, and uses half of the result as the window.
    let scene = Scene::network(megabits, round_trip);
    let (scene, cured, whose) = if reads {
        (
            scene.clone().with_key("receive-buffer", kib << 10),
            scene,
            "ours",
        )
    } else {
        let cured = scene.writable();
        let mut scene = cured.clone();
        scene.server.receive_buffer = Some(kib << 10);
        (scene, cured, "the target's")
    };
    Planted::new(
        format!("{kib} KiB, {whose}, {round_trip} ms, {megabits} Mbit/s"),
        scene,
        cured,
    )
}

/// A cable with two broken wire pairs reduces the rate to a tenth. The rated speed comes from the user or
/// from our interface.
fn link_rate(random: &mut Random) -> Planted {
    let (built, fell) = random.one_of(&[(1000.0, 100.0), (1000.0, 100.0), (100.0, 10.0)]);
    let round_trip = random.between(0.2, 1.0);
    let told = random.one_of(&[true, false]);
    let cured = Scene::network(built, round_trip);
    let mut scene = Scene::unknown_network(fell, round_trip);
    let how = if told {
        scene = scene.asking(["--link", &format!("{built}Mbit/s")]);
        "specified by the user"
    } else {
        // The far end of the path has fallen back to the lower rate, but our own interface still reports the
        // full rate.
        if let Some(link) = &mut scene.link {
            link.reported_megabits = Some(built as u32);
        }
        "reported by our interface"
    };
    Planted::new(
        format!("{fell} of {built} Mbit/s, {how}, {round_trip} ms"),
        scene,
        cured,
    )
}

/// Jumbo frames are enabled at both ends, but the switch between them does not support jumbo frames.
fn path_mtu(random: &mut Random) -> Planted {
    let (interface, path) = (
        random.one_of(&[9000, 9000, 4000]),
        random.one_of(&[1500, 1500, 1400]),
    );
    let (megabits, round_trip) = (random.one_of(&[100.0, 200.0]), random.between(0.2, 5.0));
    let with = |mtu| {
        let mut scene =
            Scene::network(megabits, round_trip).with_conditions(|conditions| conditions.mtu = mtu);
        if let Some(link) = &mut scene.link {
            link.interface_mtu = Some(interface);
        }
        scene
    };
    let details = format!("{interface} over {path} bytes, {round_trip} ms, {megabits} Mbit/s");
    Planted::new(details, with(path), with(interface))
}

/// According to Mathis' formula, a connection with cubic reaches a few MB/s with these losses.
fn loss(random: &mut Random) -> Planted {
    let (percent, round_trip) = (random.between(0.5, 2.0), random.between(2.0, 10.0));
    let megabits = random.one_of(&[100.0, 150.0, 200.0]);
    let seed = random.number();
    let cured = Scene::network(megabits, round_trip);
    let scene = cured.clone().with_conditions(|conditions| {
        conditions.loss = percent / 100.0;
        conditions.seed = seed;
    });
    Planted::new(
        format!("{percent} %, {round_trip} ms, {megabits} Mbit/s"),
        scene,
        cured,
    )
}

/// A bundle of two links, one of which has a reduced rate and a longer delay.
fn slow_path(random: &mut Random) -> Planted {
    let (megabits, round_trip) = (random.one_of(&[100.0, 200.0]), random.between(1.0, 3.0));
    let (share, further) = (random.between(0.1, 0.3), random.between(5.0, 15.0));
    let seed = random.number();
    let bundle = |rate: f64, delay: f64| {
        let scene = Scene::network(2.0 * megabits, round_trip).with_key("connections", 2);
        scene.with_conditions(|conditions| {
            conditions.seed = seed;
            let lane = |rate: f64, delay: f64| Conditions {
                bits_per_s: Some(megabits * 1e6 * rate),
                delay: conditions.delay + Duration::from_secs_f64(delay / 2e3),
                ..conditions.clone()
            };
            conditions.lanes = vec![lane(1.0, 0.0), lane(rate, delay)];
            conditions.spread = Spread::InTurn;
        })
    };
    let details = format!(
        "{megabits} Mbit/s at {round_trip} ms, and {:.0} Mbit/s at {:.1} ms",
        megabits * share,
        round_trip + further
    );
    Planted::new(details, bundle(share, further), bundle(1.0, 0.0))
}

/// Nagle's algorithm at one end and delayed acknowledgements at the other delay each response shorter than a
/// segment by 40 ms. Longer segments affect more responses.
fn delayed_ack(random: &mut Random) -> Planted {
    let (megabits, round_trip) = (
        random.one_of(&[100.0, 200.0, 400.0]),
        random.between(0.3, 2.0),
    );
    let with = |nagle| {
        let jumbo = |conditions: &mut Conditions| conditions.mtu = 9000;
        let scene = Scene::network(megabits, round_trip).with_conditions(jumbo);
        Scene {
            middle: Some(Forwarder { nagle }),
            ..scene
        }
    };
    Planted::new(
        format!("{round_trip} ms, {megabits} Mbit/s, MTU 9000"),
        with(true),
        with(false),
    )
}

// Causes in negotiated keys, and in the client's load.
/// A write of 4 KiB waits two round trips instead of one.
fn solicitation(random: &mut Random) -> Planted {
    let (megabits, round_trip) = (
        random.one_of(&[100.0, 200.0, 400.0]),
        random.between(4.0, 15.0),
    );
    let cured = Scene::network(megabits, round_trip).writable();
    let mut scene = cured.clone();
    scene.server.session = vec![
        "initial-r2t = true".to_owned(),
        "immediate-data = false".to_owned(),
    ];
    Planted::new(format!("{round_trip} ms, {megabits} Mbit/s"), scene, cured)
}

/// Sends 32 outstanding writes of 64 KiB, each in bursts of up to 8 KiB. Each write takes 8 round trips of 20
/// ms, so the rate is up to 13 MB/s, while a link of 200 Mbit/s carries 23.
fn small_bursts(random: &mut Random) -> Planted {
    let (kib, round_trip) = (random.one_of(&[4, 8, 8]), random.between(20.0, 30.0));
    let megabits = random.one_of(&[200.0, 250.0]);
    let cured = Scene::network(megabits, round_trip).writable();
    let mut scene = cured.clone();
    scene.server.session = vec![
        format!("max-burst = \"{kib}KiB\""),
        "max-outstanding-r2t = 1".to_owned(),
    ];
    Planted::new(
        format!("{kib} KiB, {round_trip} ms, {megabits} Mbit/s"),
        scene,
        cured,
    )
}

/// Without a link, the cost of each PDU is the bottleneck.
fn small_segments(random: &mut Random) -> Planted {
    let bytes = random.one_of(&[512, 512, 768, 1024]);
    let (reads, writes) = random.one_of(&[(true, true), (true, false), (false, true)]);
    let cured = Scene::loopback().writable();
    let mut scene = cured.clone();
    if writes {
        scene.server.session = vec![format!("max-segment = \"{bytes}B\"")];
    }
    if reads {
        scene = scene.with_key("max-segment", bytes);
    }
    let which = if reads && writes {
        "both ways"
    } else if reads {
        "reads"
    } else {
        "writes"
    };
    let number = random.number() % 1000;
    Planted::new(
        format!("{bytes} bytes, {which} (no. {number})"),
        scene,
        cured,
    )
}

/// Permits one or two commands of 64 KiB per round trip: up to 16 MB/s, while the link carries 23 or more.
fn command_window(random: &mut Random) -> Planted {
    let (window, round_trip) = (random.one_of(&[1, 1, 2]), random.between(8.0, 15.0));
    let megabits = random.one_of(&[200.0, 250.0]);
    let cured = Scene::network(megabits, round_trip);
    let mut scene = cured.clone();
    scene.server.window = Some(window);
    Planted::new(
        format!("{window} commands, {round_trip} ms, {megabits} Mbit/s"),
        scene,
        cured,
    )
}

/// The user's own load: one request at a time, much smaller than the bandwidth-delay product.
fn depth(random: &mut Random) -> Planted {
    let (block, round_trip) = (
        random.one_of(&["4KiB", "8KiB", "16KiB"]),
        random.between(2.0, 10.0),
    );
    let megabits = random.one_of(&[100.0, 200.0]);
    let scene = Scene::network(megabits, round_trip).asking(["--block", block, "--depth", "1"]);
    Planted {
        details: format!("{block}, {round_trip} ms, {megabits} Mbit/s"),
        scene,
        cure: Cure::Trial,
    }
}

// Causes in the target's storage.

/// A medium with a longer latency or a lower rate than the network.
fn storage_medium(random: &mut Random) -> Planted {
    let (megabits, round_trip) = (random.one_of(&[200.0, 400.0]), random.between(1.0, 3.0));
    let cured = Scene::network(megabits, round_trip);
    let (volume, how) = match random.one_of(&[true, true, false]) {
        true => {
            let ms = random.between(2.0, 10.0);
            (
                format!("delay:{:.0}us:[ram:1GiB]", ms * 1e3),
                format!("{ms} ms a request"),
            )
        }
        false => {
            let rate = random.between(5.0, 20.0);
            (
                format!("limit:{rate}MB/s:[ram:1GiB]"),
                format!("{rate} MB/s"),
            )
        }
    };
    let scene = cured.clone().with_volume(volume);
    Planted::new(
        format!("{how}, {round_trip} ms, {megabits} Mbit/s"),
        scene,
        cured,
    )
}

/// A write cache that is slow to flush.
fn flush(random: &mut Random) -> Planted {
    let (round_trip, ms) = (random.between(1.0, 5.0), random.between(10.0, 40.0));
    let megabits = random.one_of(&[100.0, 200.0]);
    let with = |flush: f64| {
        let volume = format!("delay:0us:[ram:1GiB]?flush={:.0}us", flush * 1e3);
        Scene::network(megabits, round_trip)
            .with_volume(volume)
            .writable()
    };
    // The cure is a disk with power-loss protection, which flushes in no time.
    Planted::new(
        format!("{ms} ms, {round_trip} ms away, {megabits} Mbit/s"),
        with(ms),
        with(0.0),
    )
}

/// Each write must first read its block.
fn misalignment(random: &mut Random) -> Planted {
    let (round_trip, ms) = (random.between(0.5, 2.0), random.between(3.0, 8.0));
    let block = random.one_of(&["512", "512", "1KiB", "2KiB"]);
    let medium = |volume: &str| format!("delay:{:.0}us:[{volume}]", ms * 1e3);
    let on = |volume: String| {
        let scene = Scene::network(200.0, round_trip)
            .with_volume(volume)
            .writable();
        scene.asking(["--write", "--block", block, "--depth", "1"])
    };
    let scene = on(format!("512e:[{}]", medium("ram:1GiB?block=4096")));
    let cured = on(medium("ram:1GiB?block=512&physical=512"));
    Planted::new(
        format!("{block}, {ms} ms a request, {round_trip} ms away"),
        scene,
        cured,
    )
}

// Causes in the CPUs.

/// The two programs use different cores, so that a burner affects only one of them.
const SERVER: usize = 0;
const CLIENT: usize = 1;

fn apart() -> Scene {
    let mut scene = Scene {
        client_core: Some(CLIENT),
        ..Scene::loopback()
    };
    scene.server.core = Some(SERVER);
    scene
}

fn target(random: &mut Random) -> Planted {
    taken_from(random, SERVER, |scene| scene)
}

fn client(random: &mut Random) -> Planted {
    taken_from(random, CLIENT, |scene| scene)
}

/// Runs a burner with priority on a core for a part of each period, in the scene from `made`.
fn taken_from(random: &mut Random, core: usize, made: fn(Scene) -> Scene) -> Planted {
    let (share, ms) = (random.between(0.6, 0.85), random.between(3.0, 12.0));
    let period = Duration::from_secs_f64(ms / 1e3);
    let scene = Scene {
        burner: Some(Burner {
            core,
            share,
            period,
        }),
        ..made(apart())
    };
    Planted::new(
        format!("{:.0} % of each {ms} ms", share * 100.0),
        scene,
        made(apart()),
    )
}

/// Causes over NBD: those that differ from iSCSI's, and storage behind a third-party server.
impl Scene {
    /// Returns the same path with Linerate's NBD server.
    fn over_nbd(mut self) -> Scene {
        self.server.nbd = Some(NbdServer::Linerate { tls: false });
        self
    }

    /// Returns the same path with nbdkit, 1 GiB of memory, and these filters with their parameters.
    fn over_nbdkit(mut self, filters: &[String]) -> Scene {
        let names = filters.iter().filter(|argument| argument.starts_with("--"));
        let parameters = filters
            .iter()
            .filter(|argument| !argument.starts_with("--"));
        let plugin = ["memory".to_owned(), "1G".to_owned()];
        let arguments = names
            .cloned()
            .chain(plugin)
            .chain(parameters.cloned())
            .collect();
        self.server.nbd = Some(NbdServer::Nbdkit(arguments));
        self
    }
}

/// nbdkit's filters that delay each read, or limit the rate.
fn nbd_medium(random: &mut Random) -> Planted {
    let (megabits, round_trip) = (random.one_of(&[200.0, 400.0]), random.between(1.0, 3.0));
    let (filters, how) = match random.one_of(&[true, true, false]) {
        true => {
            let ms = random.between(4.0, 20.0).round();
            (
                ["--filter=delay".to_owned(), format!("rdelay={ms}ms")],
                format!("{ms} ms a read"),
            )
        }
        false => {
            let rate = random.between(40.0, 80.0).round();
            (
                ["--filter=rate".to_owned(), format!("rate={rate}M")],
                format!("{rate} Mbit/s in total"),
            )
        }
    };
    let path = Scene::network(megabits, round_trip);
    let (scene, cured) = (path.clone().over_nbdkit(&filters), path.over_nbdkit(&[]));
    Planted::new(
        format!("{how}, {round_trip} ms, {megabits} Mbit/s"),
        scene,
        cured,
    )
}

/// Limits each connection to one window of the server's host per round trip, or by nbdkit's own limit: up to
/// 10 MB/s, while the link carries 23 or more. Four connections remove the limit.
fn connections(random: &mut Random) -> Planted {
    let (megabits, round_trip) = (random.one_of(&[200.0, 300.0]), random.between(8.0, 20.0));
    let path = Scene::network(megabits, round_trip);
    let (scene, how) = match random.one_of(&[true, true, false]) {
        true => {
            let kib = random.one_of(&[32, 48, 64]);
            let mut scene = path.over_nbd();
            // The kernel uses half of the configured size as the window.
            let bytes = kib * 2 * 1024;
            scene.server.sysctls = vec![(
                "net.ipv4.tcp_wmem".to_owned(),
                format!("4096 {bytes} {bytes}"),
            )];
            (scene, format!("send window of {kib} KiB"))
        }
        false => {
            let rate = random.between(30.0, 60.0).round();
            // By default, nbdkit's token bucket lasts two seconds, longer than a round of a quick diagnosis.
            let filters = [
                "--filter=rate",
                "burstiness=0.1",
                &format!("connection-rate={rate}M"),
            ]
            .map(str::to_owned);
            (
                path.over_nbdkit(&filters),
                format!("{rate} Mbit/s per connection"),
            )
        }
    };
    let cured = scene.clone().with_key("connections", 4);
    Planted::new(
        format!("{how}, {round_trip} ms, {megabits} Mbit/s"),
        scene,
        cured,
    )
}

fn server_cpu(random: &mut Random) -> Planted {
    taken_from(random, SERVER, Scene::over_nbd)
}

/// Each end has its own core, and there is no link.
fn tls(random: &mut Random) -> Planted {
    let number = random.number() % 100_000;
    let with = |tls| {
        let mut scene = Scene {
            client_core: Some(CLIENT),
            ..Scene::loopback()
        };
        scene.server.core = Some(SERVER);
        scene.server.nbd = Some(NbdServer::Linerate { tls });
        scene
    };
    Planted::new(format!("no. {number}"), with(true), with(false))
}

/// Generates a random path of one kind, and its description.
type NbdKind = fn(&mut Random) -> (String, Scene);

/// Generates a healthy path to an NBD export, and its description.
pub(in super::super) fn nbd_healthy(random: &mut Random, number: u32) -> (String, Scene) {
    let kinds: [NbdKind; 4] = [
        |random| nbd_lan(random, 400.0),
        |random| {
            let (what, scene) = nbd_lan(random, 100.0);
            (
                format!("{what}, 4 connections"),
                scene.with_key("connections", 4),
            )
        },
        |random| {
            let round_trip = random.between(10.0, 15.0);
            let scene = Scene::network(50.0, round_trip).over_nbd();
            (format!("WAN, 50 Mbit/s, {round_trip} ms"), scene)
        },
        |random| {
            let (what, scene) = nbd_lan(random, 200.0);
            let jitter =
                |conditions: &mut lab::Conditions| conditions.jitter = Duration::from_micros(50);
            (
                format!("{what}, nbdkit, jitter of 50 µs"),
                scene.over_nbdkit(&[]).with_conditions(jitter),
            )
        },
    ];
    kinds[number as usize % kinds.len()](random)
}

fn nbd_lan(random: &mut Random, megabits: f64) -> (String, Scene) {
    let round_trip = random.between(0.2, 0.6);
    (
        format!("LAN, {megabits} Mbit/s, {round_trip} ms"),
        Scene::network(megabits, round_trip).over_nbd(),
    )
}

// Healthy paths.

/// Generates a random path of one kind, and its description.
type HealthyKind = fn(&mut Random) -> (String, Scene);

/// Generates a healthy path, and its description.
pub(in super::super) fn healthy(random: &mut Random, number: u32) -> (String, Scene) {
    let kinds: [HealthyKind; 10] = [
        |_| ("loopback".to_owned(), Scene::loopback()),
        |random| healthy_lan(random, 1000.0, 0.2),
        |random| wan(random, 10.0),
        |_| {
            (
                "loopback, with writes".to_owned(),
                Scene::loopback().writable(),
            )
        },
        |_| {
            (
                "loopback, a file".to_owned(),
                Scene::loopback().with_volume("file:{state}/disk?size=1GiB"),
            )
        },
        |random| healthy_lan(random, 100.0, 0.3),
        |random| wan(random, 50.0),
        written_lan,
        two_connections,
        jumbo,
    ];
    let kind = kinds[number as usize % kinds.len()];
    kind(random)
}

fn healthy_lan(random: &mut Random, megabits: f64, round_trip_ms: f64) -> (String, Scene) {
    let round_trip = random.between(round_trip_ms, 2.0 * round_trip_ms);
    (
        format!("LAN, {megabits} Mbit/s, {round_trip} ms"),
        Scene::network(megabits, round_trip),
    )
}

/// Generates a path over the lab's network, whose windows are large, so that the distance is not a
/// bottleneck.
fn wan(random: &mut Random, round_trip_ms: f64) -> (String, Scene) {
    let round_trip = random.between(round_trip_ms, 1.4 * round_trip_ms);
    let megabits = random.one_of(&[50.0, 100.0]);
    (
        format!("WAN, {megabits} Mbit/s, {round_trip} ms"),
        Scene::network(megabits, round_trip),
    )
}

fn written_lan(random: &mut Random) -> (String, Scene) {
    let (what, scene) = healthy_lan(random, 400.0, 0.2);
    (
        format!("{what}, a file, with writes"),
        scene.with_volume("file:{state}/disk?size=1GiB").writable(),
    )
}

fn two_connections(random: &mut Random) -> (String, Scene) {
    let (what, scene) = healthy_lan(random, 400.0, 0.5);
    (
        format!("{what}, two connections"),
        scene.with_key("connections", 2),
    )
}

fn jumbo(random: &mut Random) -> (String, Scene) {
    let (what, scene) = healthy_lan(random, 1000.0, 0.2);
    let jitter = Duration::from_micros(50);
    let scene = scene.with_conditions(|conditions| {
        conditions.mtu = 9000;
        conditions.jitter = jitter;
    });
    (format!("{what}, MTU 9000, jitter of 50 µs"), scene)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plant_has_a_name_of_its_own_and_draws_differently_each_time() {
        for (at, plant) in ALL.iter().enumerate() {
            assert!(ALL[..at].iter().all(|other| other.name() != plant.name()));
            let mut details: Vec<String> = (0..10)
                .map(|repeat| (plant.plant)(&mut Random::new(1, plant.what, repeat)).details)
                .collect();
            details.sort();
            details.dedup();
            assert!(details.len() >= 5, "{}: {details:?}", plant.what);
        }
    }

    #[test]
    fn causes_have_the_names_that_json_has() {
        assert_eq!(name(Cause::TcpWindow), "tcp-window");
    }
}
