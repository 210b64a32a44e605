//! Who has the cores.

use std::time::Duration;

use super::Planted;
use crate::diagnosis::scene::{Burner, Scene};
use crate::lot::Lot;

/// The two programs have a core each, so that what is taken from one is not taken from the other.
pub(super) const SERVER: usize = 0;
pub(super) const CLIENT: usize = 1;

fn apart() -> Scene {
    let mut scene = Scene { client_core: Some(CLIENT), ..Scene::loopback() };
    scene.server.core = Some(SERVER);
    scene
}

pub(super) fn target(lot: &mut Lot) -> Planted {
    taken_from(lot, SERVER, |scene| scene)
}

pub(super) fn client(lot: &mut Lot) -> Planted {
    taken_from(lot, CLIENT, |scene| scene)
}

/// By somebody who goes first, for a part of each period, of the ends that `made` makes.
pub(super) fn taken_from(lot: &mut Lot, core: usize, made: fn(Scene) -> Scene) -> Planted {
    let (share, ms) = (lot.between(0.6, 0.85), lot.between(3.0, 12.0));
    let period = Duration::from_secs_f64(ms / 1e3);
    let scene = Scene { burner: Some(Burner { core, share, period }), ..made(apart()) };
    Planted::new(format!("{:.0} % of each {ms} ms", share * 100.0), scene, made(apart()))
}
