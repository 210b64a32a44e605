//! What lies between the two hosts.

use std::time::Duration;

use lab::{Conditions, Spread};

use super::Planted;
use crate::diagnosis::scene::{Forwarder, Scene};
use crate::lot::Lot;

/// A window each round trip: at most 64 KiB in 8 ms, 8 MB/s, where the link carries at least 12.
pub(super) fn tcp_window(lot: &mut Lot) -> Planted {
    let (kib, round_trip) = (lot.one_of(&[32u64, 48, 64, 64]), lot.between(10.0, 20.0));
    let megabits = lot.one_of(&[100.0, 150.0, 200.0]);
    let reads = lot.one_of(&[true, false]);
    // What the kernel is asked for it doubles, and of that a half is window.
    let scene = Scene::network(megabits, round_trip);
    let (scene, cured, whose) = if reads {
        (scene.clone().with_key("receive-buffer", kib << 10), scene, "ours")
    } else {
        let cured = scene.writable();
        let mut scene = cured.clone();
        scene.server.receive_buffer = Some(kib << 10);
        (scene, cured, "the target's")
    };
    Planted::new(format!("{kib} KiB, {whose}, {round_trip} ms, {megabits} Mbit/s"), scene, cured)
}

/// A cable of which two pairs are dead: a rate of a tenth, and the switch says so, or the person does.
pub(super) fn link_rate(lot: &mut Lot) -> Planted {
    let (built, fell) = lot.one_of(&[(1000.0, 100.0), (1000.0, 100.0), (100.0, 10.0)]);
    let round_trip = lot.between(0.2, 1.0);
    let told = lot.one_of(&[true, false]);
    let cured = Scene::network(built, round_trip);
    let mut scene = Scene::unknown_network(fell, round_trip);
    let how = if told {
        scene = scene.asking(["--link", &format!("{built}Mbit/s")]);
        "said by the person"
    } else {
        // It is the other end of the way that fell back: our own interface knows nothing of it.
        if let Some(link) = &mut scene.link {
            link.reported_megabits = Some(built as u32);
        }
        "said by our interface"
    };
    Planted::new(format!("{fell} of {built} Mbit/s, {how}, {round_trip} ms"), scene, cured)
}

/// Jumbo frames at both ends, and a switch between that has not heard of them.
pub(super) fn path_mtu(lot: &mut Lot) -> Planted {
    let (interface, path) = (lot.one_of(&[9000, 9000, 4000]), lot.one_of(&[1500, 1500, 1400]));
    let (megabits, round_trip) = (lot.one_of(&[100.0, 200.0]), lot.between(0.2, 5.0));
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

/// By Mathis' rule a connection of cubic does a few MB/s there.
pub(super) fn loss(lot: &mut Lot) -> Planted {
    let (percent, round_trip) = (lot.between(0.5, 2.0), lot.between(2.0, 10.0));
    let megabits = lot.one_of(&[100.0, 150.0, 200.0]);
    let seed = lot.number();
    let cured = Scene::network(megabits, round_trip);
    let scene = cured.clone().with_conditions(|conditions| {
        conditions.loss = percent / 100.0;
        conditions.seed = seed;
    });
    Planted::new(format!("{percent} %, {round_trip} ms, {megabits} Mbit/s"), scene, cured)
}

/// A bundle of two links, of which one has become long and narrow.
pub(super) fn slow_path(lot: &mut Lot) -> Planted {
    let (megabits, round_trip) = (lot.one_of(&[100.0, 200.0]), lot.between(1.0, 3.0));
    let (share, further) = (lot.between(0.1, 0.3), lot.between(5.0, 15.0));
    let seed = lot.number();
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
        "{megabits} Mbit/s at {round_trip} ms beside {:.0} Mbit/s at {:.1} ms",
        megabits * share,
        round_trip + further
    );
    Planted::new(details, bundle(share, further), bundle(1.0, 0.0))
}

/// Nagle's algorithm at one end, delayed acknowledgements at the other: 40 ms for each answer that is shorter than a
/// segment. With longer segments that is more of them.
pub(super) fn delayed_ack(lot: &mut Lot) -> Planted {
    let (megabits, round_trip) = (lot.one_of(&[100.0, 200.0, 400.0]), lot.between(0.3, 2.0));
    let with = |nagle| {
        let jumbo = |conditions: &mut Conditions| conditions.mtu = 9000;
        let scene = Scene::network(megabits, round_trip).with_conditions(jumbo);
        Scene { middle: Some(Forwarder { nagle }), ..scene }
    };
    Planted::new(format!("{round_trip} ms, {megabits} Mbit/s, MTU 9000"), with(true), with(false))
}
