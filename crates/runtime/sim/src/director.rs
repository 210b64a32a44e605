//! Injects faults: into the network, the server, and the disks.

use std::rc::Rc;
use std::time::Duration;

use crate::network::{self, Trouble};
use crate::scenario::{Addition, Feature, Simulation};
use crate::universe::{self, draw};

/// Injects one fault after the other.
pub(crate) async fn direct(simulation: Rc<Simulation>) {
    // In some simulations there is hardly time to log in, in others hardly anything goes wrong.
    let often = draw(|random| {
        random.of_any_size(5_000_000, if simulation.is_long { 60_000_000_000 } else { 10_000_000_000 })
    });
    // Servers die in some simulations only: others are to go on for long.
    let crashes = simulation.has(Feature::Crashes) && draw(|random| random.once_in(2));
    let ends = simulation.has(Feature::Ends) && (simulation.is_calm || draw(|random| random.once_in(2)));
    let network = simulation.has(Feature::NetworkTrouble);
    // No server ends that has only just begun: others are to see something of it.
    let life = draw(|random| random.of_any_size(20_000_000, 10_000_000_000));
    if simulation.is_moving {
        return isolate_again_and_again(&simulation).await;
    }
    loop {
        let wait = draw(|random| random.between(1, often));
        reactor::sleep(Duration::from_nanos(wait)).await;
        let kind = draw(|random| random.below(12));
        let longest = if simulation.is_long { 200_000_000_000 } else { 40_000_000_000 };
        let time = draw(|random| random.of_any_size(1_000_000, longest));
        let later = Rc::clone(&simulation);
        let is_young = universe::nanoseconds() < simulation.started.get() + life;
        match kind {
            11 if simulation.has(Feature::Changes) => {
                // Our NBD client is told of an error when its export is gone, and on a calm day it is told of none.
                let may_go = !(simulation.is_calm && simulation.with(Addition::OurNbd));
                let of_nbd = simulation.has_nbd() && may_go && draw(|random| random.once_in(2));
                universe::after(0, move || if of_nbd { later.change_exports() } else { later.change_luns() });
            }
            11 => {}
            8.. if is_young => {}
            10 if ends => universe::after(0, move || later.replace_server()),
            10 => {}
            _ if simulation.is_calm => {}
            0..8 if !network => {}
            0..3 => universe::after(0, || network::trouble(Trouble::Cut)),
            3..5 => universe::after(0, move || network::trouble(Trouble::Stall(time))),
            5 => universe::after(0, || network::trouble(Trouble::HalfOpen)),
            6..8 => isolate_server(&simulation, time),
            _ if crashes => universe::after(0, move || {
                later.crash_server(draw(|random| random.once_in(2)));
                let pause = draw(|random| random.mostly_small(1_000_000, 20_000_000_000));
                universe::after(pause, move || {
                    if !later.is_over.get() && later.server.borrow().is_none() {
                        later.start_server();
                    }
                });
            }),
            _ => {}
        }
    }
}

async fn isolate_again_and_again(simulation: &Simulation) {
    loop {
        let wait = draw(|random| random.between(100_000_000, 3_000_000_000));
        reactor::sleep(Duration::from_nanos(wait)).await;
        let time = draw(|random| random.of_any_size(200_000_000, 30_000_000_000));
        isolate_server(simulation, time);
    }
}

/// Nothing goes to the server or from it for so many nanoseconds.
fn isolate_server(simulation: &Simulation, time: u64) {
    if let Some(machine) = simulation.server.borrow().as_ref().map(|running| running.machine) {
        universe::after(0, move || network::trouble(Trouble::Isolate(machine, time)));
    }
}
