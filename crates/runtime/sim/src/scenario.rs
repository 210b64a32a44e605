//! The setup of a simulation: a server with its volumes, initiators of several kinds, and a director that
//! injects faults. All of it is drawn from the seed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::str::FromStr;
use std::time::Duration;

use iscsi::observed::Observation;
use iscsi_server::Limits;

use crate::cores::{self, Machine};
use crate::director::direct;
use crate::disk::{Disk, DiskBehaviour};
use crate::network::{self, NetworkConditions};
use crate::ours::Protocol;
use crate::server::Running;
use crate::universe::{self, draw, note};
use crate::volume::Volume;
use crate::{adversary, breaker, fencing, nbd, ours, redirector, writing};

/// The target's name.
pub(crate) const TARGET: &str = "iqn.2026-01.io.linerate:simulated";

/// The state shared by all parts of a simulation.
pub(crate) struct Simulation {
    pub(crate) volumes: Vec<Rc<Volume>>,
    pub(crate) is_over: Cell<bool>,
    pub(crate) commands: Cell<u64>,
    pub(crate) server: RefCell<Option<Running>>,
    pub(crate) servers: Cell<u64>,
    /// When the last one did, in nanoseconds.
    pub(crate) started: Cell<u64>,
    pub(crate) crashes: Cell<u64>,
    pub(crate) ends: Cell<u64>,
    pub(crate) core_count: usize,
    pub(crate) limits: Limits,
    pub(crate) server_limits: front_end_core::Limits,
    /// No faults are injected except orderly restarts of the server.
    pub(crate) is_calm: bool,
    /// Pauses are long, so that events that take minutes occur: detection of silent peers, deadlines, long
    /// stalls.
    pub(crate) is_long: bool,
    /// A portal redirects logins.
    pub(crate) redirects: bool,
    /// The server is out of reach again and again, for longer than our initiator waits, and nothing else
    /// befalls it but what its disks do: what was on its way arrives when the session has long been begun
    /// again, perhaps in another portal group.
    pub(crate) is_moving: bool,
    /// Nothing but as many commands as possible: [`Run::dense`].
    pub(crate) is_dense: bool,
    without: Vec<Feature>,
    with: Vec<Addition>,
    /// Exports that NBD clients do not find, by the bits of their LUNs.
    pub(crate) hidden: Cell<u64>,
}

/// Bytes of a block.
pub(crate) const BLOCK: usize = 512;
/// Portal groups, of one portal each.
pub(crate) const GROUPS: u16 = 2;

/// The result of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Which it was.
    pub seed: u64,
    /// A number over everything that happened, in its order.
    pub fingerprint: u64,
    /// Steps that were noted.
    pub steps: u64,
    /// Simulated time.
    pub passed: Duration,
    /// Commands that initiators asked for.
    pub commands: u64,
    /// Servers that were killed.
    pub crashes: u64,
    /// Servers that ended as they were asked to, while others were at work.
    pub ends: u64,
    /// Blocks that were checked.
    pub checks: u64,
    /// How often the machines of target and initiator have met which event in which state.
    pub met: BTreeMap<Observation, u64>,
    /// What was wrong, if anything.
    pub fault: Option<String>,
}

/// Where a portal group listens.
pub(crate) fn portal(group: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 255, 0, group as u8)), 3260)
}

/// A feature that a simulation can omit, to reproduce a fault in a smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// Servers that are killed, and power cuts.
    Crashes,
    /// Servers that end as they are asked to, and others in their place.
    Ends,
    /// LUNs that come and go while a server serves.
    Changes,
    /// Connections that are cut, stalled or half-open.
    NetworkTrouble,
    /// Disks that hang or fail.
    DiskTrouble,
    /// Our initiator.
    Ours,
    /// Preemption.
    Fencing,
    /// An initiator that breaks rules.
    Adversary,
    /// Logins that are sent to another portal group.
    Redirections,
    /// Resets of logical units.
    Resets,
    /// Commands that are aborted or abandoned.
    Aborts,
    /// Peers that are slow to send or to read.
    SlowPeers,
    /// Copies between volumes.
    Copies,
    /// COMPARE AND WRITE.
    Exchanges,
    /// Zeros.
    Zeros,
    /// Flushes.
    Flushes,
    /// More than one volume.
    Volumes,
    /// More than one core.
    Cores,
    /// More than one writer.
    Writers,
    /// More than one command at once of each.
    Depth,
    /// Volumes in memory.
    Memory,
    /// Volumes with a cache in the server's memory.
    Layers,
    /// Little memory for commands, and narrow windows.
    Want,
}

impl Feature {
    /// All of them, those that matter most for who reads a trace first.
    pub const ALL: [Feature; 23] = [
        Feature::Crashes,
        Feature::Ends,
        Feature::Changes,
        Feature::NetworkTrouble,
        Feature::DiskTrouble,
        Feature::Ours,
        Feature::Fencing,
        Feature::Adversary,
        Feature::Redirections,
        Feature::Resets,
        Feature::Aborts,
        Feature::Copies,
        Feature::Volumes,
        Feature::Cores,
        Feature::Writers,
        Feature::SlowPeers,
        Feature::Exchanges,
        Feature::Zeros,
        Feature::Flushes,
        Feature::Memory,
        Feature::Layers,
        Feature::Want,
        Feature::Depth,
    ];
}

impl FromStr for Feature {
    type Err = String;

    fn from_str(name: &str) -> Result<Feature, String> {
        let all = || Feature::ALL.into_iter().map(|part| (format!("{part:?}"), part));
        let known = || all().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
        let found = all().find(|(known, _)| known == name);
        found.map(|(_, part)| part).ok_or_else(|| format!("there are {}", known()))
    }
}

/// What a simulation can have that others do not have, and draw nothing for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addition {
    /// NBD clients of the simulation's own on the initiators' volumes.
    Nbd,
    /// Our NBD client.
    OurNbd,
    /// Sessions of our initiator that break after each login but the first.
    Breaks,
    /// Peers of server and clients that never stop sending before a login has ended.
    Floods,
}

impl FromStr for Addition {
    type Err = String;

    fn from_str(name: &str) -> Result<Addition, String> {
        let all = [Addition::Nbd, Addition::OurNbd, Addition::Breaks, Addition::Floods];
        let found = all.into_iter().find(|addition| format!("{addition:?}") == name);
        found.ok_or_else(|| format!("there are {all:?}"))
    }
}

/// Which simulation, and how it is shown.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Decides all of it.
    pub seed: u64,
    /// Prints its steps.
    pub shown: bool,
    /// What it is to be without.
    pub without: Vec<Feature>,
    /// What it is to have besides.
    pub with: Vec<Addition>,
    /// Its busy part ends after so many commands, if not before.
    pub commands: Option<u64>,
    /// A day on which nothing goes wrong and initiators ask for as much as they can: a volume in memory, a
    /// quick network, many commands at once. It shows what a simulated second of many commands costs.
    pub dense: bool,
}

/// Runs a simulation, on a thread of its own: what threads keep for later, such as buffers, is none of its
/// business.
///
/// # Panics
/// If the simulation itself does, or cannot have a thread.
pub fn run(run: &Run) -> Outcome {
    let run = run.clone();
    let thread = std::thread::Builder::new().name(format!("seed {}", run.seed)).spawn(move || play(&run));
    match thread.expect("a thread for the simulation").join() {
        Ok(outcome) => outcome,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn play(run: &Run) -> Outcome {
    let seed = run.seed;
    universe::begin(seed, run.shown);
    let simulation =
        if run.dense { Simulation::dense() } else { Simulation::set(run.without.clone(), run.with.clone()) };
    let busy = match (simulation.is_dense, simulation.is_long) {
        (true, _) => DENSE_SECONDS,
        (false, true) => draw(|random| random.between(100, 600)),
        (false, false) => draw(|random| random.between(5, 60)),
    };
    note(&[10, busy], || {
        format!(
            "seed {seed}: {busy} s, {} cores, volumes: {:?}{}",
            simulation.core_count,
            simulation.volumes.iter().map(|volume| volume.kind()).collect::<Vec<_>>(),
            if simulation.is_calm { "; a calm day" } else { "" }
        )
    });
    simulation.start_server();
    if simulation.redirects {
        redirector::begin();
    }
    if simulation.with(Addition::Breaks) {
        breaker::begin(&simulation);
    }
    let actors = begin_actors(&simulation);
    let director = Machine::new("director");
    director.run({
        let simulation = Rc::clone(&simulation);
        move || direct(simulation)
    });
    let end = universe::nanoseconds() + busy * 1_000_000_000;
    let enough = run.commands.unwrap_or(if simulation.is_dense { u64::MAX } else { COMMANDS_MAX });
    cores::run_until(|| universe::nanoseconds() >= end || simulation.commands.get() >= enough, end);
    simulation.is_over.set(true);
    director.kill();
    finish(&simulation, &actors);
    let (commands, crashes, ends) =
        (simulation.commands.get(), simulation.crashes.get(), simulation.ends.get());
    let checks = simulation.volumes.iter().map(|volume| volume.checks()).sum();
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
    // Nobody else follows a redirection, or goes through what breaks sessions.
    let least = u64::from(simulation.redirects || simulation.with(Addition::Breaks));
    let ours = if simulation.has(Feature::Ours) { draw(|random| random.between(least, 2)) } else { 0 };
    for number in 0..ours {
        actors.push(ours::begin(simulation, Protocol::Iscsi, number + 1));
    }
    if simulation.with(Addition::OurNbd) {
        for number in 0..draw(|random| random.between(1, 2)) {
            actors.push(ours::begin(simulation, Protocol::Nbd, number + 1));
        }
    }
    if simulation.volumes.iter().any(|volume| volume.is_fenced) {
        actors.push(fencing::begin(simulation));
    }
    // Without faults no initiator may notice it.
    if simulation.has(Feature::Adversary) && (simulation.is_calm || draw(|random| random.once_in(3))) {
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

/// Ends all faults and all initiators, then checks the final state.
fn finish(simulation: &Rc<Simulation>, actors: &[Machine]) {
    if universe::is_faulty() {
        return;
    }
    note(&[11], || "everything is made whole".to_owned());
    network::heal();
    network::set_weather(NetworkConditions::default());
    simulation.disks().for_each(|disk| disk.set_habits(DiskBehaviour::default()));
    if simulation.server.borrow().is_none() {
        simulation.start_server();
    }
    let patience = universe::nanoseconds() + PATIENCE.as_nanos() as u64;
    if simulation.with(Addition::OurNbd) {
        cores::run_until(|| simulation.show_all_exports(), patience);
    }
    cores::run_until(|| !actors.iter().any(|actor| actor.is_busy()), patience);
    for actor in actors {
        if actor.is_busy() && !universe::is_faulty() {
            universe::fault(format!(
                "{actor} has not come to its end {} s after all was whole",
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
        universe::fault("the last look at the volumes has not come to its end".to_owned());
    }
    simulation.stop_server();
}

/// Initiators on a dense day.
const DENSE_WRITERS: u64 = 4;
/// How long a dense day lasts.
const DENSE_SECONDS: u64 = 3;
/// Parts that keep initiators from asking for as much as they can.
const NOT_DENSE: [Feature; 13] = [
    Feature::Crashes,
    Feature::Ends,
    Feature::Changes,
    Feature::NetworkTrouble,
    Feature::DiskTrouble,
    Feature::Ours,
    Feature::Fencing,
    Feature::Adversary,
    Feature::Redirections,
    Feature::Resets,
    Feature::Aborts,
    Feature::SlowPeers,
    Feature::Want,
];

/// With quick disks and a quick network a world ends after so many commands: another one shows more.
const COMMANDS_MAX: u64 = 300_000;

/// Little enough for one initiator that does not read to take all of it.
const CALM_STAGING: usize = 1 << 20;
/// Longer than a command waits for memory before it ends with BUSY.
const CALM_STALL: Duration = Duration::from_secs(90);

/// After all was made whole everything ends in this time: the longest hang of a disk, and all deadlines after
/// it.
const PATIENCE: Duration = Duration::from_secs(600);

impl Simulation {
    fn set(without: Vec<Feature>, with: Vec<Addition>) -> Rc<Simulation> {
        let has = |part: Feature| !without.contains(&part);
        let is_calm = has(Feature::Ends) && draw(|random| random.once_in(6));
        let is_long = draw(|random| random.once_in(3));
        let redirects = has(Feature::Redirections) && draw(|random| random.once_in(2));
        let is_moving =
            redirects && !is_calm && has(Feature::NetworkTrouble) && draw(|random| random.once_in(3));
        let count = if has(Feature::Volumes) { draw(|random| random.between(1, 3)) as u16 } else { 1 };
        let volumes = (0..count).map(|lun| Rc::new(Volume::drawn(lun, &without, is_calm))).collect();
        let core_count = if has(Feature::Cores) { draw(|random| random.between(1, 3)) as usize } else { 1 };
        let staging_bytes = draw(|random| *random.pick(&[256 << 10, 4 << 20, 1 << 30]));
        let limits = draw(|random| Limits {
            session_staging_bytes: *random.pick(&[256 << 10, 256 << 20]),
            window: *random.pick(&[4, 32, 256]),
            nop_interval: Duration::from_secs(random.between(2, 15)),
            send_stall: Duration::from_secs(random.between(5, 60)),
            ..Limits::default()
        });
        // On a calm day memory is scarce, and an initiator that does not read keeps its connection for longer
        // than a command may wait: the target has to take its memory back as soon as other sessions need it.
        let (staging_bytes, limits) = match is_calm {
            true => (staging_bytes.min(CALM_STAGING), Limits { send_stall: CALM_STALL, ..limits }),
            false => (staging_bytes, limits),
        };
        let server_limits = front_end_core::Limits { staging_bytes, ..front_end_core::Limits::default() };
        network::set_weather(draw(|random| NetworkConditions {
            least_delay: random.mostly_small(5_000, 5_000_000),
            most_delay: random.mostly_small(5_000_000, 200_000_000),
            lost_once_in: random.between(100, 20_000),
            most_buffer: random.between(2 << 10, 1 << 20),
        }));
        Rc::new(Simulation {
            volumes,
            is_over: Cell::new(false),
            commands: Cell::new(0),
            server: RefCell::new(None),
            servers: Cell::new(0),
            started: Cell::new(0),
            crashes: Cell::new(0),
            ends: Cell::new(0),
            core_count,
            limits: if has(Feature::Want) { limits } else { Limits::default() },
            server_limits: if has(Feature::Want) { server_limits } else { front_end_core::Limits::default() },
            is_calm,
            is_long,
            redirects,
            is_moving,
            is_dense: false,
            without,
            with,
            hidden: Cell::new(0),
        })
    }

    /// The simulation of [`Run::dense`].
    fn dense() -> Rc<Simulation> {
        let mut simulation = Simulation::set(NOT_DENSE.to_vec(), Vec::new());
        network::set_weather(NetworkConditions {
            least_delay: 1_000,
            most_delay: 10_000,
            lost_once_in: crate::disk::NEVER,
            most_buffer: 1 << 20,
        });
        let set = Rc::get_mut(&mut simulation).expect("nobody else has it yet");
        (set.is_dense, set.is_long, set.is_moving, set.core_count) = (true, false, false, 1);
        set.volumes = vec![Rc::new(Volume::dense())];
        simulation
    }

    fn disks(&self) -> impl Iterator<Item = &Disk> {
        self.volumes.iter().filter_map(|volume| volume.disk())
    }

    /// Whether it is not without that.
    pub(crate) fn has(&self, part: Feature) -> bool {
        !self.without.contains(&part)
    }

    /// Whether it has that besides.
    pub(crate) fn with(&self, addition: Addition) -> bool {
        self.with.contains(&addition)
    }

    /// Whether the volumes are exported over NBD.
    pub(crate) fn has_nbd(&self) -> bool {
        self.with(Addition::Nbd) || self.with(Addition::OurNbd) || self.with(Addition::Floods)
    }

    /// No command waits for memory.
    pub(crate) fn is_roomy(&self) -> bool {
        self.server_limits.staging_bytes >= 1 << 30 && self.limits.session_staging_bytes >= 256 << 20
    }

    /// Between two commands of one hand.
    pub(crate) async fn pause(&self) {
        if self.is_long {
            let wait = draw(|random| random.mostly_small(1_000_000, 4_000_000_000));
            reactor::sleep(Duration::from_nanos(wait)).await;
        }
    }

    /// A volume by lot.
    pub(crate) fn any_volume(&self) -> Rc<Volume> {
        Rc::clone(draw(|random| random.pick(&self.volumes)))
    }

    pub(crate) fn count_command(&self) {
        self.commands.set(self.commands.get() + 1);
    }
}
