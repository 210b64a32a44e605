//! What the target keeps its data on.

use super::Planted;
use crate::diagnosis::scene::Scene;
use crate::lot::Lot;

/// Longer than the network takes, or slower than it.
pub(super) fn medium(lot: &mut Lot) -> Planted {
    let (megabits, round_trip) = (lot.one_of(&[200.0, 400.0]), lot.between(1.0, 3.0));
    let cured = Scene::network(megabits, round_trip);
    let (volume, how) = match lot.one_of(&[true, true, false]) {
        true => {
            let ms = lot.between(2.0, 10.0);
            (format!("delay:{:.0}us:[ram:1GiB]", ms * 1e3), format!("{ms} ms a request"))
        }
        false => {
            let rate = lot.between(5.0, 20.0);
            (format!("limit:{rate}MB/s:[ram:1GiB]"), format!("{rate} MB/s"))
        }
    };
    let scene = cured.clone().with_volume(volume);
    Planted::new(format!("{how}, {round_trip} ms, {megabits} Mbit/s"), scene, cured)
}

/// A write cache that is slow to empty.
pub(super) fn flush(lot: &mut Lot) -> Planted {
    let (round_trip, ms) = (lot.between(1.0, 5.0), lot.between(10.0, 40.0));
    let megabits = lot.one_of(&[100.0, 200.0]);
    let with = |flush: f64| {
        let volume = format!("delay:0us:[ram:1GiB]?flush={:.0}us", flush * 1e3);
        Scene::network(megabits, round_trip).with_volume(volume).writable()
    };
    // A good disk's: a flush that has power behind it.
    Planted::new(format!("{ms} ms, {round_trip} ms away, {megabits} Mbit/s"), with(ms), with(0.0))
}

/// Each write reads its block first.
pub(super) fn misalignment(lot: &mut Lot) -> Planted {
    let (round_trip, ms) = (lot.between(0.5, 2.0), lot.between(3.0, 8.0));
    let block = lot.one_of(&["512", "512", "1KiB", "2KiB"]);
    let medium = |volume: &str| format!("delay:{:.0}us:[{volume}]", ms * 1e3);
    let on = |volume: String| {
        let scene = Scene::network(200.0, round_trip).with_volume(volume).writable();
        scene.asking(["--write", "--block", block, "--depth", "1"])
    };
    let scene = on(format!("512e:[{}]", medium("ram:1GiB?block=4096")));
    let cured = on(medium("ram:1GiB?block=512&physical=512"));
    Planted::new(format!("{block}, {ms} ms a request, {round_trip} ms away"), scene, cured)
}
