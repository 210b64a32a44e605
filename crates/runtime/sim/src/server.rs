//! The server of a simulation: start, shutdown and crash.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;

use server::{Portal, Server};
use target::{Config, Export, ISCSI, Iscsi, Target};
use unit::LogicalUnit;

use crate::adversary;
use crate::cores::{self, Machine};
use crate::scenario::{GROUPS, Simulation, TARGET, portal};
use crate::universe::{self, draw, note};

/// A server that runs, or is about to end.
pub(crate) struct Running {
    pub(crate) machine: Machine,
    handle: Arc<Server>,
    iscsi: Arc<Iscsi>,
    /// What must be gone when it is.
    units: Vec<Weak<LogicalUnit>>,
    ends: bool,
    /// What it serves is being changed.
    changes: Rc<Cell<bool>>,
}

/// Who asked it to end has this long until it has, beyond the time that commands under way are given.
const END_MAX: Duration = Duration::from_secs(120);

impl Simulation {
    pub(crate) fn start_server(&self) {
        let number = self.servers.get() + 1;
        self.servers.set(number);
        self.started.set(universe::nanoseconds());
        let machine = Machine::new(format!("server {number}"));
        let own = self.volumes.iter().map(|volume| volume.export(number));
        let exports: Vec<_> = own.chain([adversary::export()]).collect();
        let units = exports.iter().map(|export| Arc::downgrade(&export.unit)).collect();
        let config = Config {
            targets: vec![Arc::new(Target::open(TARGET, exports))],
            discovery_authentication: None,
            limits: self.limits.clone(),
            random: universe::fill_random,
        };
        let served = self.served(&config);
        let iscsi = Iscsi::new(config, self.core_count);
        let (handle, cores) = Server::new(served, self.core_count, vec![iscsi.clone()]);
        handle.open();
        let (bound, _) = mpsc::channel();
        for core in cores {
            let bound = bound.clone();
            machine.run(move || async move {
                core.run(bound).await;
            });
        }
        note(&[12, number], || format!("{machine} starts"));
        *self.server.borrow_mut() =
            Some(Running { machine, handle, iscsi, units, ends: false, changes: Rc::default() });
    }

    /// What a server serves whose targets are those of `config`.
    fn served(&self, config: &Config) -> server::Config {
        let named = |export: &Export| (export.volume.clone(), Arc::clone(export.unit.volume()));
        let portal = |tag| Portal {
            front_end: ISCSI,
            listen: portal(tag),
            tag,
            advertise: None,
            stream: Default::default(),
        };
        server::Config {
            volumes: config.targets.iter().flat_map(|target| &target.exports).map(named).collect(),
            portals: (1..=GROUPS).map(portal).collect(),
            limits: self.server_limits,
        }
    }

    /// Takes the adversary's LUN away, whatever is under way there, or gives it another, which is empty.
    pub(crate) fn change_luns(&self) {
        let mut server = self.server.borrow_mut();
        let Some(running) = server.as_mut().filter(|running| !running.ends && !running.changes.get()) else {
            return;
        };
        let mut config = Config::clone(&running.iscsi.config());
        let mut target = Target::clone(&config.targets[0]);
        let before = target.exports.len();
        target.exports.retain(|export| export.lun != adversary::LUN);
        if target.exports.len() == before {
            let export = adversary::export();
            running.units.push(Arc::downgrade(&export.unit));
            target.exports.push(export);
        }
        let luns = target.exports.len();
        note(&[16, luns as u64], || format!("{} is to serve {luns} LUNs", running.machine));
        config.targets = vec![Arc::new(target)];
        running.changes.set(true);
        let served = self.served(&config);
        let (handle, iscsi) = (Arc::clone(&running.handle), Arc::clone(&running.iscsi));
        let changes = Rc::clone(&running.changes);
        running.machine.run(move || async move {
            if let Err(error) = handle.reconfigure(served, || iscsi.adopt(config)).await {
                note(&[17], || format!("the change is given up: {error}"));
            }
            changes.set(false);
        });
    }

    /// The server's process is killed, and with it what was in its memory; or its machine loses its power,
    /// and with that what no disk has.
    pub(crate) fn crash_server(&self, power: bool) {
        let Some(running) = self.server.borrow_mut().take() else { return };
        self.crashes.set(self.crashes.get() + 1);
        note(&[13, u64::from(power)], || if power { "power cut".to_owned() } else { "kill".to_owned() });
        running.machine.kill();
        running.check_gone();
        self.volumes.iter().for_each(|volume| volume.server_died(power));
    }

    /// Asks the server to end, as SIGTERM does, and has another take its place when it has.
    pub(crate) fn replace_server(self: Rc<Simulation>) {
        let machine = match self.server.borrow_mut().as_mut() {
            Some(running) if !running.ends => {
                running.ends = true;
                running.machine
            }
            _ => return,
        };
        let grace = draw(|random| random.delay(10_000_000, 20_000_000_000));
        note(&[14, grace], || format!("{machine} is asked to end"));
        if let Some(running) = &*self.server.borrow() {
            running.handle.shutdown(Duration::from_nanos(grace));
        }
        let until = universe::nanoseconds() + grace + END_MAX.as_nanos() as u64;
        universe::after(1_000_000, move || self.await_end(machine, until));
    }

    fn await_end(self: Rc<Simulation>, machine: Machine, until: u64) {
        if !machine.is_alive() {
            return; // it was killed meanwhile, and who did that has another start
        }
        if !machine.is_busy() {
            self.server_has_ended();
            self.ends.set(self.ends.get() + 1);
            return self.start_server();
        }
        match universe::nanoseconds() < until {
            true => universe::after(5_000_000, move || self.await_end(machine, until)),
            false => universe::fault(format!("{machine} has not ended in the time that it was given")),
        }
    }

    fn server_has_ended(&self) {
        let Some(running) = self.server.borrow_mut().take() else { return };
        note(&[15], || format!("{} has ended", running.machine));
        running.check_gone();
        self.volumes.iter().for_each(|volume| volume.server_died(false));
    }

    /// The server ends as it is asked to, and for good.
    pub(crate) fn stop_server(&self) {
        let machine = match &*self.server.borrow() {
            Some(running) if !universe::is_faulty() => {
                running.handle.shutdown(Duration::from_secs(5));
                running.machine
            }
            _ => return,
        };
        let end = universe::nanoseconds() + END_MAX.as_nanos() as u64;
        cores::run_until(|| !machine.is_busy(), end);
        if machine.is_busy() && !universe::is_faulty() {
            universe::fault("the server has not ended in two minutes".to_owned());
        }
        self.server_has_ended();
    }
}

impl Running {
    /// Its logical units are gone with it: nothing holds on to them, and to the memory of what was under way
    /// there.
    fn check_gone(self) {
        let Running { handle, iscsi, units, .. } = self;
        drop((handle, iscsi));
        let left = units.iter().filter(|unit| unit.strong_count() > 0).count();
        if left > 0 && !universe::is_faulty() {
            universe::fault(format!("{left} logical units are left of a server that has ended"));
        }
    }
}
