//! The setup of a simulation: a server with its volumes, initiators of several kinds, and a director that
//! injects faults. The seed determines everything.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use iscsi::observed::Observation;

use crate::cores;
use crate::disk::DiskBehaviour;
use crate::features::{Addition, Feature};
use crate::network::{self, Machine, NetworkConditions, Trouble};
use crate::ours::Protocol;
use crate::simulation::Simulation;
use crate::universe::{self, draw, note};
use crate::{adversary, fencing, nbd, ours, portals, writing};

/// The result of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// A hash over all events in order.
    pub fingerprint: u64,
    /// Number of recorded steps.
    pub steps: u64,
    /// Simulated time.
    pub passed: Duration,
    /// Number of commands requested by initiators.
    pub commands: u64,
    /// Number of servers killed.
    pub crashes: u64,
    /// Number of orderly shutdowns of servers while initiators were active.
    pub ends: u64,
    /// Number of blocks checked.
    pub checks: u64,
    /// Number of times that the state machines of target and initiator received each event in each state.
    pub met: BTreeMap<Observation, u64>,
    /// A description of the first fault, if any.
    pub fault: Option<String>,
}

/// The parameters of a simulation.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The seed, which determines everything.
    pub seed: u64,
    /// Print the steps.
    pub shown: bool,
    /// Features to omit.
    pub without: Vec<Feature>,
    /// Additions to include.
    pub with: Vec<Addition>,
    /// Maximum number of commands, after which faults are repaired and initiators stop.
    pub commands: Option<u64>,
    /// Run without faults, with initiators that send as many commands as possible: a volume in memory, a fast
    /// network, many outstanding commands. This measures the cost of a busy simulated second.
    pub dense: bool,
}

/// Runs a simulation. It runs on a new thread, so that buffers which earlier simulations cached do not affect
/// it.
///
/// # Panics
/// If the simulation panics, or no thread can be created.
pub fn run(run: &Run) -> Outcome {
    let run = run.clone();
    let thread = std::thread::Builder::new()
        .name(format!("seed {}", run.seed))
        .spawn(move || play(&run));
    match thread.expect("a thread for the simulation").join() {
        Ok(outcome) => outcome,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn play(run: &Run) -> Outcome {
    let seed = run.seed;
    universe::begin(seed, run.shown);
    cores::begin();
    let simulation = if run.dense {
        Simulation::dense()
    } else {
        Simulation::set(run.without.clone(), run.with.clone())
    };
    let busy = match (simulation.is_dense, simulation.is_long) {
        (true, _) => DENSE_SECONDS,
        (false, true) => draw(|random| random.between(100, 600)),
        (false, false) => draw(|random| random.between(5, 60)),
    };
    note(&[10, busy], || {
        format!(
            "seed {seed}: {busy} s, {} cores, volumes: {:?}{}",
            simulation.core_count,
            simulation
                .volumes
                .iter()
                .map(|volume| volume.kind())
                .collect::<Vec<_>>(),
            if simulation.is_calm {
                "; a calm day"
            } else {
                ""
            }
        )
    });
    simulation.start_server();
    if simulation.redirects {
        portals::begin_redirector();
    }
    if simulation.with(Addition::Breaks) {
        portals::begin_breaker(&simulation);
    }
    let actors = begin_actors(&simulation);
    let director = Machine::new("director");
    director.run({
        let simulation = Rc::clone(&simulation);
        move || direct(simulation)
    });
    let end = universe::nanoseconds() + busy * 1_000_000_000;
    let enough = run.commands.unwrap_or(if simulation.is_dense {
        u64::MAX
    } else {
        COMMANDS_MAX
    });
    cores::run_until(
        || universe::nanoseconds() >= end || simulation.commands.get() >= enough,
        end,
    );
    simulation.is_over.set(true);
    director.kill();
    finish(&simulation, &actors);
    let (commands, crashes, ends) = (
        simulation.commands.get(),
        simulation.crashes.get(),
        simulation.ends.get(),
    );
    let checks = simulation
        .volumes
        .iter()
        .map(|volume| volume.checks())
        .sum();
    cores::end();
    network::end();
    let ended = universe::end();
    Outcome {
        seed,
        fingerprint: ended.fingerprint,
        steps: ended.steps,
        passed: ended.passed,
        commands,
        crashes,
        ends,
        checks,
        met: ended.met,
        fault: ended.fault,
    }
}

fn begin_actors(simulation: &Rc<Simulation>) -> Vec<Machine> {
    let mut actors = Vec::new();
    let writers = if simulation.is_dense {
        DENSE_WRITERS
    } else if simulation.has(Feature::Writers) {
        draw(|random| random.between(1, 3))
    } else {
        1
    };
    for number in 0..writers {
        actors.push(writing::begin(simulation, number + 1));
    }
    // Only our initiators follow redirections or connect through the breaker.
    let least = u64::from(simulation.redirects || simulation.with(Addition::Breaks));
    let ours = if simulation.has(Feature::Ours) {
        draw(|random| random.between(least, 2))
    } else {
        0
    };
    for number in 0..ours {
        actors.push(ours::begin(simulation, Protocol::Iscsi, number + 1));
    }
    if simulation.has_our_nbd() {
        for number in 0..draw(|random| random.between(1, 2)) {
            actors.push(ours::begin(simulation, Protocol::Nbd, number + 1));
        }
    }
    if simulation.volumes.iter().any(|volume| volume.is_fenced) {
        actors.push(fencing::begin(simulation));
    }
    // Without faults, the adversary must not affect any initiator.
    if simulation.has(Feature::Adversary)
        && (simulation.is_calm || draw(|random| random.once_in(3)))
    {
        actors.push(adversary::begin(simulation));
    }
    if simulation.with(Addition::Nbd) {
        for number in 0..draw(|random| random.between(1, 3)) {
            actors.push(nbd::writing::begin(simulation, number + 1));
        }
        if simulation.has(Feature::Adversary) && draw(|random| random.once_in(2)) {
            actors.push(nbd::adversary::begin(simulation));
        }
    }
    if simulation.with(Addition::Floods) {
        actors.extend(nbd::flood::begin(simulation));
    }
    actors
}

/// Injects one fault after another until the simulation ends.
async fn direct(simulation: Rc<Simulation>) {
    // In some simulations, faults follow each other so quickly that there is hardly time to log in. In
    // others, there are hardly any faults.
    let often = draw(|random| {
        random.of_any_size(
            5_000_000,
            if simulation.is_long {
                60_000_000_000
            } else {
                10_000_000_000
            },
        )
    });
    // Servers are killed only in some simulations, so that they run for a long time in others.
    let has_journals = simulation.with(Addition::Journals);
    let crashes =
        simulation.has(Feature::Crashes) && (has_journals || draw(|random| random.once_in(2)));
    let ends = simulation.has(Feature::Ends)
        && !has_journals
        && (simulation.is_calm || draw(|random| random.once_in(2)));
    let network = simulation.has(Feature::NetworkTrouble);
    // Do not shut down a server that has just started, so that initiators can use it for a while.
    let life = draw(|random| random.of_any_size(20_000_000, 10_000_000_000));
    if simulation.is_moving {
        return isolate_again_and_again(&simulation).await;
    }
    loop {
        let wait = draw(|random| random.between(1, often));
        reactor::sleep(Duration::from_nanos(wait)).await;
        let kind = draw(|random| random.below(12));
        let longest = if simulation.is_long {
            200_000_000_000
        } else {
            40_000_000_000
        };
        let time = draw(|random| random.of_any_size(1_000_000, longest));
        let later = Rc::clone(&simulation);
        let is_young = universe::nanoseconds() < simulation.started.get() + life;
        match kind {
            11 if simulation.has(Feature::Changes) => {
                // Our NBD client reports errors when its export is removed, but must not report errors in a
                // calm simulation.
                let may_go = !(simulation.is_calm && simulation.has_our_nbd());
                let of_nbd = simulation.has_nbd() && may_go && draw(|random| random.once_in(2));
                universe::after(0, move || {
                    if of_nbd {
                        later.change_exports()
                    } else {
                        later.change_luns()
                    }
                });
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
                later.crash_server(!has_journals && draw(|random| random.once_in(2)));
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

/// Isolates the server from the network for this many nanoseconds.
fn isolate_server(simulation: &Simulation, time: u64) {
    if let Some(machine) = simulation
        .server
        .borrow()
        .as_ref()
        .map(|running| running.machine)
    {
        universe::after(0, move || network::trouble(Trouble::Isolate(machine, time)));
    }
}

/// Repairs all faults and stops all initiators, then checks the final state.
fn finish(simulation: &Rc<Simulation>, actors: &[Machine]) {
    if universe::is_faulty() {
        return;
    }
    note(&[11], || "all faults are repaired".to_owned());
    network::heal();
    network::set_weather(NetworkConditions::default());
    simulation
        .disks()
        .for_each(|disk| disk.set_habits(DiskBehaviour::default()));
    if simulation.server.borrow().is_none() {
        simulation.start_server();
    }
    let patience = universe::nanoseconds() + PATIENCE.as_nanos() as u64;
    if simulation.has_our_nbd() {
        cores::run_until(|| simulation.show_all_exports(), patience);
    }
    cores::run_until(|| !actors.iter().any(|actor| actor.is_busy()), patience);
    for actor in actors {
        if actor.is_busy() && !universe::is_faulty() {
            universe::fault(format!(
                "{actor} has not finished {} s after all faults were repaired",
                PATIENCE.as_secs()
            ));
        }
    }
    if universe::is_faulty() {
        return;
    }
    let reader = Machine::new("reader");
    let last = Rc::clone(simulation);
    reader.run(move || writing::read_everything(last));
    let patience = universe::nanoseconds() + PATIENCE.as_nanos() as u64;
    cores::run_until(|| !reader.is_busy(), patience);
    if reader.is_busy() && !universe::is_faulty() {
        universe::fault("the final check of the volumes has not finished".to_owned());
    }
    simulation.stop_server();
}

/// Number of initiators in a dense simulation ([`Run::dense`]).
const DENSE_WRITERS: u64 = 4;
/// Simulated duration of a dense simulation in seconds.
const DENSE_SECONDS: u64 = 3;
/// Maximum number of commands of a simulation. With fast disks and a fast network, running another simulation
/// finds more faults than continuing this one.
const COMMANDS_MAX: u64 = 300_000;

/// Time within which all activity must stop after all faults are repaired: the longest hang of a disk, plus
/// the deadlines that start after it.
const PATIENCE: Duration = Duration::from_secs(600);
