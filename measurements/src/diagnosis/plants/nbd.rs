//! Causes over NBD: what differs from iSCSI's, and storage once more behind a server of others.

use std::time::Duration;

use super::Planted;
use super::cores::{CLIENT, SERVER, taken_from};
use crate::diagnosis::scene::{NbdServer, Scene};
use crate::lot::Lot;

impl Scene {
    /// The same path, with our server of NBD at its end.
    fn over_nbd(mut self) -> Scene {
        self.server.nbd = Some(NbdServer::Linerate { tls: false });
        self
    }

    /// With nbdkit, 1 GiB of memory, and these filters with their parameters.
    fn over_nbdkit(mut self, filters: &[String]) -> Scene {
        let names = filters.iter().filter(|argument| argument.starts_with("--"));
        let parameters = filters.iter().filter(|argument| !argument.starts_with("--"));
        let plugin = ["memory".to_owned(), "1G".to_owned()];
        let arguments = names.cloned().chain(plugin).chain(parameters.cloned()).collect();
        self.server.nbd = Some(NbdServer::Nbdkit(arguments));
        self
    }
}

/// nbdkit's filters that delay each read, or let so many bytes a second through.
pub(super) fn medium(lot: &mut Lot) -> Planted {
    let (megabits, round_trip) = (lot.one_of(&[200.0, 400.0]), lot.between(1.0, 3.0));
    let (filters, how) = match lot.one_of(&[true, true, false]) {
        true => {
            let ms = lot.between(4.0, 20.0).round();
            (["--filter=delay".to_owned(), format!("rdelay={ms}ms")], format!("{ms} ms a read"))
        }
        false => {
            let rate = lot.between(40.0, 80.0).round();
            (["--filter=rate".to_owned(), format!("rate={rate}M")], format!("{rate} Mbit/s for all"))
        }
    };
    let path = Scene::network(megabits, round_trip);
    let (scene, cured) = (path.clone().over_nbdkit(&filters), path.over_nbdkit(&[]));
    Planted::new(format!("{how}, {round_trip} ms, {megabits} Mbit/s"), scene, cured)
}

/// A window of the server's host each round trip, or what nbdkit lets one connection have: at most 10 MB/s, where the link
/// carries at least 23. Mended by four connections.
pub(super) fn connections(lot: &mut Lot) -> Planted {
    let (megabits, round_trip) = (lot.one_of(&[200.0, 300.0]), lot.between(8.0, 20.0));
    let path = Scene::network(megabits, round_trip);
    let (scene, how) = match lot.one_of(&[true, true, false]) {
        true => {
            let kib = lot.one_of(&[32, 48, 64]);
            let mut scene = path.over_nbd();
            // Of what the kernel is told, a half is the window.
            let bytes = kib * 2 * 1024;
            scene.server.sysctls = vec![("net.ipv4.tcp_wmem".to_owned(), format!("4096 {bytes} {bytes}"))];
            (scene, format!("{kib} KiB sent at once"))
        }
        false => {
            let rate = lot.between(30.0, 60.0).round();
            // The bucket of tokens would else hold two seconds, more than a round of a quick diagnosis takes.
            let filters =
                ["--filter=rate", "burstiness=0.1", &format!("connection-rate={rate}M")].map(str::to_owned);
            (path.over_nbdkit(&filters), format!("{rate} Mbit/s a connection"))
        }
    };
    let cured = scene.clone().with_key("connections", 4);
    Planted::new(format!("{how}, {round_trip} ms, {megabits} Mbit/s"), scene, cured)
}

pub(super) fn server_cpu(lot: &mut Lot) -> Planted {
    taken_from(lot, SERVER, Scene::over_nbd)
}

/// Each end has a core, and no link is in the way.
pub(super) fn tls(lot: &mut Lot) -> Planted {
    let number = lot.number() % 100_000;
    let with = |tls| {
        let mut scene = Scene { client_core: Some(CLIENT), ..Scene::loopback() };
        scene.server.core = Some(SERVER);
        scene.server.nbd = Some(NbdServer::Linerate { tls });
        scene
    };
    Planted::new(format!("no. {number}"), with(true), with(false))
}

/// Draws a path of its kind, and says what it is.
type Kind = fn(&mut Lot) -> (String, Scene);

/// A path that does what it can, and what it is, in a few words.
pub(in super::super) fn healthy(lot: &mut Lot, number: u32) -> (String, Scene) {
    let kinds: [Kind; 4] = [
        |lot| lan(lot, 400.0),
        |lot| {
            let (what, scene) = lan(lot, 100.0);
            (format!("{what}, 4 connections"), scene.with_key("connections", 4))
        },
        |lot| {
            let round_trip = lot.between(10.0, 15.0);
            let scene = Scene::network(50.0, round_trip).over_nbd();
            (format!("WAN, 50 Mbit/s, {round_trip} ms"), scene)
        },
        |lot| {
            let (what, scene) = lan(lot, 200.0);
            let jitter = |conditions: &mut lab::Conditions| conditions.jitter = Duration::from_micros(50);
            (format!("{what}, nbdkit, jitter of 50 µs"), scene.over_nbdkit(&[]).with_conditions(jitter))
        },
    ];
    kinds[number as usize % kinds.len()](lot)
}

fn lan(lot: &mut Lot, megabits: f64) -> (String, Scene) {
    let round_trip = lot.between(0.2, 0.6);
    (format!("LAN, {megabits} Mbit/s, {round_trip} ms"), Scene::network(megabits, round_trip).over_nbd())
}
