//! Paths with nothing wrong.

use std::time::Duration;

use super::super::scene::Scene;
use crate::lot::Lot;

/// Draws a path of its kind, and says what it is.
type Kind = fn(&mut Lot) -> (String, Scene);

/// A path that does what it can, and what it is, in a few words.
pub(in super::super) fn healthy(lot: &mut Lot, number: u32) -> (String, Scene) {
    let kinds: [Kind; 10] = [
        |_| ("loopback".to_owned(), Scene::loopback()),
        |lot| lan(lot, 1000.0, 0.2),
        |lot| wan(lot, 10.0),
        |_| ("loopback, written too".to_owned(), Scene::loopback().writable()),
        |_| ("loopback, a file".to_owned(), Scene::loopback().with_volume("file:{state}/disk?size=1GiB")),
        |lot| lan(lot, 100.0, 0.3),
        |lot| wan(lot, 50.0),
        written_lan,
        two_connections,
        jumbo,
    ];
    let kind = kinds[number as usize % kinds.len()];
    kind(lot)
}

fn lan(lot: &mut Lot, megabits: f64, round_trip_ms: f64) -> (String, Scene) {
    let round_trip = lot.between(round_trip_ms, 2.0 * round_trip_ms);
    (format!("LAN, {megabits} Mbit/s, {round_trip} ms"), Scene::network(megabits, round_trip))
}

/// The lab's windows are large, and so the distance is no reason.
fn wan(lot: &mut Lot, round_trip_ms: f64) -> (String, Scene) {
    let round_trip = lot.between(round_trip_ms, 1.4 * round_trip_ms);
    let megabits = lot.one_of(&[50.0, 100.0]);
    (format!("WAN, {megabits} Mbit/s, {round_trip} ms"), Scene::network(megabits, round_trip))
}

fn written_lan(lot: &mut Lot) -> (String, Scene) {
    let (what, scene) = lan(lot, 400.0, 0.2);
    (format!("{what}, a file, written too"), scene.with_volume("file:{state}/disk?size=1GiB").writable())
}

fn two_connections(lot: &mut Lot) -> (String, Scene) {
    let (what, scene) = lan(lot, 400.0, 0.5);
    (format!("{what}, two connections"), scene.with_key("connections", 2))
}

fn jumbo(lot: &mut Lot) -> (String, Scene) {
    let (what, scene) = lan(lot, 1000.0, 0.2);
    let jitter = Duration::from_micros(50);
    let scene = scene.with_conditions(|conditions| {
        conditions.mtu = 9000;
        conditions.jitter = jitter;
    });
    (format!("{what}, MTU 9000, jitter of 50 µs"), scene)
}
