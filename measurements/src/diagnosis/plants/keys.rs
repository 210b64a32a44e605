//! What was agreed on at login, and what the client asks.

use super::{Cure, Planted};
use crate::diagnosis::scene::Scene;
use crate::lot::Lot;

/// A write of 4 KiB waits two round trips instead of one.
pub(super) fn solicitation(lot: &mut Lot) -> Planted {
    let (megabits, round_trip) = (lot.one_of(&[100.0, 200.0, 400.0]), lot.between(4.0, 15.0));
    let cured = Scene::network(megabits, round_trip).writable();
    let mut scene = cured.clone();
    scene.server.session = vec!["initial-r2t = true".to_owned(), "immediate-data = false".to_owned()];
    Planted::new(format!("{round_trip} ms, {megabits} Mbit/s"), scene, cured)
}

/// 32 writes of 64 KiB at once, each in bursts of at most 8 KiB: 8 round trips of 20 ms for 64 KiB, so at most 13 MB/s,
/// where a link of 200 Mbit/s carries 23.
pub(super) fn small_bursts(lot: &mut Lot) -> Planted {
    let (kib, round_trip) = (lot.one_of(&[4, 8, 8]), lot.between(20.0, 30.0));
    let megabits = lot.one_of(&[200.0, 250.0]);
    let cured = Scene::network(megabits, round_trip).writable();
    let mut scene = cured.clone();
    scene.server.session = vec![format!("max-burst = \"{kib}KiB\""), "max-outstanding-r2t = 1".to_owned()];
    Planted::new(format!("{kib} KiB, {round_trip} ms, {megabits} Mbit/s"), scene, cured)
}

/// Where no link is in the way, what each PDU costs is what counts.
pub(super) fn small_segments(lot: &mut Lot) -> Planted {
    let bytes = lot.one_of(&[512, 512, 768, 1024]);
    let (reads, writes) = lot.one_of(&[(true, true), (true, false), (false, true)]);
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
    let number = lot.number() % 1000;
    Planted::new(format!("{bytes} bytes, {which} (no. {number})"), scene, cured)
}

/// One or two commands of 64 KiB each round trip: at most 16 MB/s, where the link carries at least 23.
pub(super) fn command_window(lot: &mut Lot) -> Planted {
    let (window, round_trip) = (lot.one_of(&[1, 1, 2]), lot.between(8.0, 15.0));
    let megabits = lot.one_of(&[200.0, 250.0]);
    let cured = Scene::network(megabits, round_trip);
    let mut scene = cured.clone();
    scene.server.window = Some(window);
    Planted::new(format!("{window} commands, {round_trip} ms, {megabits} Mbit/s"), scene, cured)
}

/// The person's own load: one request at a time, much shorter than what the link carries in a round trip.
pub(super) fn depth(lot: &mut Lot) -> Planted {
    let (block, round_trip) = (lot.one_of(&["4KiB", "8KiB", "16KiB"]), lot.between(2.0, 10.0));
    let megabits = lot.one_of(&[100.0, 200.0]);
    let scene = Scene::network(megabits, round_trip).asking(["--block", block, "--depth", "1"]);
    Planted { details: format!("{block}, {round_trip} ms, {megabits} Mbit/s"), scene, cure: Cure::Trial }
}
