//! What happens in a simulation: a server with its volumes, initiators of several kinds, and a director who sees to it that
//! they have a bad day. Everything is drawn from the seed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use block::{BlockDevice, BlockSize};
use host::{RamDevice, RamOptions};
use iscsi::negotiate::Offers;
use scsi::{Identity, LogicalUnit, LogicalUnitOptions};
use target::{Access, Export, Limits, Portal, ServerConfig, Target};

use crate::checker::{Checker, Writer};
use crate::cores::{self, Machine};
use crate::disk::{Disk, Habits, Lost, NEVER};
use crate::keep::SimKeep;
use crate::network::{self, Trouble, Weather};
use crate::universe::{self, draw, note};
use crate::{fencing, ours, writing};

/// The target's name.
pub(crate) const TARGET: &str = "iqn.2026-01.io.linerate:simulated";

/// A LUN, and what is known of it.
pub(crate) struct Volume {
    pub(crate) lun: u16,
    pub(crate) blocks: u64,
    medium: Medium,
    keep: SimKeep,
    checker: RefCell<Checker>,
    /// Writers must have registered, and are preempted.
    pub(crate) is_fenced: bool,
    pub(crate) registering: RefCell<BTreeMap<Writer, Registering>>,
}

/// How often a nexus has sent its registration, and how many are without an answer. Of one that was under way beside a preemption
/// nobody knows which was first, and what is sent behind it may be carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registering {
    pub(crate) sent: u64,
    pub(crate) under_way: u64,
}

enum Medium {
    /// Gone with the server.
    Ram,
    Disk(Disk),
}

/// What everybody in a simulation shares.
pub(crate) struct Stage {
    pub(crate) volumes: Vec<Rc<Volume>>,
    pub(crate) is_over: Cell<bool>,
    pub(crate) commands: Cell<u64>,
    server: RefCell<Option<Running>>,
    servers: Cell<u64>,
    pub(crate) crashes: Cell<u64>,
    core_count: usize,
    limits: Limits,
    without: Vec<Part>,
}

struct Running {
    machine: Machine,
    handle: Arc<target::Server>,
}

/// Bytes of a block.
pub(crate) const BLOCK: usize = 512;
/// Portal groups, of one portal each.
pub(crate) const GROUPS: u16 = 2;

/// What a simulation came to.
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
    /// Blocks that were checked.
    pub checks: u64,
    /// What was wrong, if anything.
    pub fault: Option<String>,
}

/// Where a portal group listens.
pub(crate) fn portal(group: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 255, 0, group as u8)), 3260)
}

/// What a simulation can be without: so that a fault is found again in a smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Servers that are killed, and power cuts.
    Crashes,
    /// Connections that are cut, stalled or half-open.
    NetworkTrouble,
    /// Disks that hang or fail.
    DiskTrouble,
    /// Our initiator.
    Ours,
    /// Preemption.
    Fencing,
    /// Resets of logical units.
    Resets,
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
    /// Little memory for commands, and narrow windows.
    Want,
}

impl Part {
    /// All of them, those that matter most for who reads a trace first.
    pub const ALL: [Part; 17] = [
        Part::Crashes,
        Part::NetworkTrouble,
        Part::DiskTrouble,
        Part::Ours,
        Part::Fencing,
        Part::Resets,
        Part::Copies,
        Part::Volumes,
        Part::Cores,
        Part::Writers,
        Part::SlowPeers,
        Part::Exchanges,
        Part::Zeros,
        Part::Flushes,
        Part::Memory,
        Part::Want,
        Part::Depth,
    ];
}

/// Which simulation, and how it is shown.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Decides all of it.
    pub seed: u64,
    /// Prints its steps.
    pub shown: bool,
    /// What it is to be without.
    pub without: Vec<Part>,
}

/// Runs a simulation, on a thread of its own: what threads keep for later, such as buffers, is none of its business.
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
    let stage = Stage::set(run.without.clone());
    let busy = draw(|random| random.between(5, 60));
    note(&[10, busy], || {
        format!(
            "seed {seed}: {busy} s, {} cores, volumes: {:?}",
            stage.core_count,
            stage.volumes.iter().map(|v| matches!(v.medium, Medium::Ram)).collect::<Vec<_>>()
        )
    });
    stage.start_server();
    let actors = begin_actors(&stage);
    let director = Machine::new("director");
    director.run({
        let stage = Rc::clone(&stage);
        move || direct(stage)
    });
    cores::run_for(Duration::from_secs(busy));
    stage.is_over.set(true);
    director.kill();
    finish(&stage, &actors);
    let (commands, crashes) = (stage.commands.get(), stage.crashes.get());
    let checks = stage.volumes.iter().map(|volume| volume.checker.borrow().checks).sum();
    let ended = universe::end();
    Outcome {
        seed,
        fingerprint: ended.fingerprint,
        steps: ended.steps,
        passed: ended.passed,
        commands,
        crashes,
        checks,
        fault: ended.fault,
    }
}

fn begin_actors(stage: &Rc<Stage>) -> Vec<Machine> {
    let mut actors = Vec::new();
    let writers = if stage.has(Part::Writers) { draw(|random| random.between(1, 3)) } else { 1 };
    for number in 0..writers {
        actors.push(writing::begin(stage, number + 1));
    }
    let ours = if stage.has(Part::Ours) { draw(|random| random.between(0, 2)) } else { 0 };
    for number in 0..ours {
        actors.push(ours::begin(stage, number + 1));
    }
    if stage.volumes.iter().any(|volume| volume.is_fenced) {
        actors.push(fencing::begin(stage));
    }
    actors
}

/// Everything is made whole; whoever is at work ends; and what is there is looked at.
fn finish(stage: &Rc<Stage>, actors: &[Machine]) {
    if universe::is_faulty() {
        return;
    }
    note(&[11], || "everything is made whole".to_owned());
    network::heal();
    network::set_weather(Weather::default());
    stage.disks().for_each(|disk| disk.set_habits(Habits::default()));
    if stage.server.borrow().is_none() {
        stage.start_server();
    }
    let patience = universe::nanoseconds() + PATIENCE.as_nanos() as u64;
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
    let last = Rc::clone(stage);
    reader.run(move || writing::read_everything(last));
    let patience = universe::nanoseconds() + PATIENCE.as_nanos() as u64;
    cores::run_until(|| !reader.is_busy(), patience);
    if reader.is_busy() && !universe::is_faulty() {
        universe::fault("the last look at the volumes has not come to its end".to_owned());
    }
    stage.stop_server();
}

/// After all was made whole everything ends in this time: the longest hang of a disk, and all deadlines after it.
const PATIENCE: Duration = Duration::from_secs(600);

impl Stage {
    fn set(without: Vec<Part>) -> Rc<Stage> {
        let has = |part: Part| !without.contains(&part);
        let count = if has(Part::Volumes) { draw(|random| random.between(1, 3)) as u16 } else { 1 };
        let volumes = (0..count).map(|lun| Rc::new(Volume::drawn(lun, &without))).collect();
        let core_count = if has(Part::Cores) { draw(|random| random.between(1, 3)) as usize } else { 1 };
        let limits = draw(|random| Limits {
            staging_bytes: *random.pick(&[256 << 10, 4 << 20, 1 << 30]),
            session_staging_bytes: *random.pick(&[256 << 10, 256 << 20]),
            window: *random.pick(&[4, 32, 256]),
            nop_interval: Duration::from_secs(random.between(2, 15)),
            send_stall: Duration::from_secs(random.between(5, 60)),
            ..Limits::default()
        });
        network::set_weather(draw(|random| Weather {
            least_delay: random.delay(5_000, 5_000_000),
            most_delay: random.delay(5_000_000, 200_000_000),
            lost_once_in: random.between(100, 20_000),
            most_buffer: random.between(2 << 10, 1 << 20),
        }));
        Rc::new(Stage {
            volumes,
            is_over: Cell::new(false),
            commands: Cell::new(0),
            server: RefCell::new(None),
            servers: Cell::new(0),
            crashes: Cell::new(0),
            core_count,
            limits: if has(Part::Want) { limits } else { Limits::default() },
            without,
        })
    }

    fn disks(&self) -> impl Iterator<Item = &Disk> {
        self.volumes.iter().filter_map(|volume| match &volume.medium {
            Medium::Disk(disk) => Some(disk),
            Medium::Ram => None,
        })
    }

    /// Whether it is not without that.
    pub(crate) fn has(&self, part: Part) -> bool {
        !self.without.contains(&part)
    }

    /// A volume by lot.
    pub(crate) fn any_volume(&self) -> Rc<Volume> {
        Rc::clone(draw(|random| random.pick(&self.volumes)))
    }

    pub(crate) fn count_command(&self) {
        self.commands.set(self.commands.get() + 1);
    }

    fn start_server(&self) {
        let number = self.servers.get() + 1;
        self.servers.set(number);
        let machine = Machine::new(format!("server {number}"));
        let exports = self.volumes.iter().map(|volume| volume.export()).collect();
        let portals = (1..=GROUPS)
            .map(|tag| Portal { listen: portal(tag), tag, advertise: None, stream: Default::default() })
            .collect();
        let config = ServerConfig {
            portals,
            targets: vec![Target {
                name: TARGET.to_owned(),
                alias: None,
                exports,
                access: Access::default(),
                authentication: None,
                offers: Offers::of_target(),
                portal_groups: None,
                redirect: None,
            }],
            discovery_authentication: None,
            limits: self.limits.clone(),
            cores: self.core_count,
            random: universe::fill_random,
        };
        let (handle, cores) = target::Server::new(config);
        handle.open();
        let (bound, _) = mpsc::channel();
        for core in cores {
            let bound = bound.clone();
            machine.run(move || async move {
                core.run(bound).await;
            });
        }
        note(&[12, number], || format!("{machine} starts"));
        *self.server.borrow_mut() = Some(Running { machine, handle });
    }

    /// The server's process is killed, and with it what was in its memory; or its machine loses its power, and with that what
    /// no disk has.
    fn crash_server(&self, power: bool) {
        let Some(running) = self.server.borrow_mut().take() else { return };
        self.crashes.set(self.crashes.get() + 1);
        note(&[13, u64::from(power)], || if power { "power cut".to_owned() } else { "kill".to_owned() });
        running.machine.kill();
        drop(running.handle);
        for volume in &self.volumes {
            let mut checker = volume.checker.borrow_mut();
            match &volume.medium {
                Medium::Ram => checker.erase(),
                Medium::Disk(disk) if power => {
                    disk.cut_power();
                    checker.cut_power();
                }
                Medium::Disk(disk) => {
                    disk.kill();
                    checker.all_are_over();
                    checker.has_restarted(ours::is_ours);
                }
            }
        }
    }

    /// The server ends as it is asked to.
    fn stop_server(&self) {
        let Some(running) = self.server.borrow_mut().take() else { return };
        if universe::is_faulty() {
            return;
        }
        running.handle.shutdown(Duration::from_secs(5));
        let end = universe::nanoseconds() + 60_000_000_000;
        cores::run_until(|| !running.machine.is_busy(), end);
        if running.machine.is_busy() && !universe::is_faulty() {
            universe::fault("the server has not ended a minute after it was asked to".to_owned());
        }
    }
}

impl Volume {
    fn drawn(lun: u16, without: &[Part]) -> Volume {
        let has = |part: Part| !without.contains(&part);
        let blocks = draw(|random| random.between(32, 512));
        let medium = match has(Part::Memory) && draw(|random| random.once_in(3)) {
            true => Medium::Ram,
            false => {
                let disk = Disk::new(format!("disk {lun}"), BlockSize::B512, blocks);
                let habits = draw(|random| Habits {
                    least_time: random.delay(1_000, 1_000_000),
                    most_time: random.delay(1_000_000, 100_000_000),
                    hangs_once_in: *random.pick(&[NEVER, NEVER, 1_000, 10_000]),
                    fails_once_in: *random.pick(&[NEVER, NEVER, 200, 5_000]),
                    sync_fails_once_in: *random.pick(&[NEVER, NEVER, 4, 50]),
                    ..Habits::default()
                });
                if has(Part::DiskTrouble) {
                    disk.set_habits(habits);
                }
                Medium::Disk(disk)
            }
        };
        let checker =
            RefCell::new(Checker::new(u64::from(lun), BLOCK, blocks, matches!(medium, Medium::Ram)));
        let is_fenced = has(Part::Fencing) && draw(|random| random.once_in(3));
        let (keep, registering) = (SimKeep::default(), RefCell::default());
        Volume { lun, blocks, medium, keep, checker, is_fenced, registering }
    }

    fn device(&self) -> Arc<dyn BlockDevice> {
        match &self.medium {
            Medium::Ram => {
                let mut options = RamOptions::new(self.blocks * BLOCK as u64);
                options.huge_pages = false; // a thread of its own makes them
                Arc::new(RamDevice::new(options).expect("memory for a small volume"))
            }
            Medium::Disk(disk) => Arc::new(disk.clone()),
        }
    }

    fn identity(&self) -> Identity {
        let mut uuid = *b"simulated volume";
        uuid[15] = self.lun as u8;
        let cache_generation = match &self.medium {
            Medium::Ram => None,
            Medium::Disk(disk) => {
                Some((disk.power_cuts() << 64 | u128::from(self.keep.losses())).to_be_bytes())
            }
        };
        Identity { cache_generation, ..Identity::new(uuid) }
    }

    /// Its name in copy commands.
    pub(crate) fn naa(&self) -> [u8; 8] {
        self.identity().naa()
    }

    fn export(&self) -> Export {
        let options =
            LogicalUnitOptions { identity: self.identity(), read_only: false, removable: false, thin: None };
        let keep: Arc<dyn scsi::Keep> = Arc::new(self.keep.clone());
        let unit = match LogicalUnit::new(self.device(), options, Some(keep)) {
            Ok(unit) => unit,
            Err(error) => {
                universe::fault(format!("LUN {}: {error}", self.lun));
                LogicalUnit::new(self.device(), options, None).expect("a unit that keeps nothing")
            }
        };
        Export {
            lun: self.lun,
            volume: format!("volume{}", self.lun),
            unit,
            initiators: None,
            deadline: Duration::from_secs(30),
        }
    }

    /// Asks the checker, or tells it.
    pub(crate) fn check<T>(&self, ask: impl FnOnce(&mut Checker) -> T) -> T {
        let mut checker = self.checker.borrow_mut();
        if let Medium::Disk(disk) = &self.medium {
            for Lost { lba, lost, kept } in disk.take_lost() {
                checker.sync_failed(lba, &lost, &kept);
            }
        }
        ask(&mut checker)
    }

    /// Whether data that were read are such as may be there.
    pub(crate) fn check_read(&self, by: Writer, begun: crate::checker::Now, lba: u64, data: &[u8]) {
        if let Err(wrong) = self.check(|checker| checker.read(begun, lba, data)) {
            universe::fault(format!("LUN {}, read by {by}: {wrong}", self.lun));
        }
    }
}

/// Sees to it that things go wrong.
async fn direct(stage: Rc<Stage>) {
    let often = draw(|random| random.between(50_000_000, 10_000_000_000));
    // Servers die in some simulations only: others are to go on for long.
    let crashes = stage.has(Part::Crashes) && draw(|random| random.once_in(2));
    let network = stage.has(Part::NetworkTrouble);
    loop {
        let wait = draw(|random| random.between(1, often));
        reactor::sleep(Duration::from_nanos(wait)).await;
        let kind = draw(|random| random.below(10));
        let time = draw(|random| random.delay(1_000_000, 40_000_000_000));
        let later = Rc::clone(&stage);
        match kind {
            0..8 if !network => {}
            0..3 => universe::after(0, || network::trouble(Trouble::Cut)),
            3..6 => universe::after(0, move || network::trouble(Trouble::Stall(time))),
            6 => universe::after(0, || network::trouble(Trouble::HalfOpen)),
            7 => universe::after(0, move || {
                let machine = later.server.borrow().as_ref().map(|running| running.machine);
                if let Some(machine) = machine {
                    network::trouble(Trouble::Isolate(machine, time));
                }
            }),
            _ if crashes => universe::after(0, move || {
                later.crash_server(draw(|random| random.once_in(2)));
                let pause = draw(|random| random.delay(1_000_000, 20_000_000_000));
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
