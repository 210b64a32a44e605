//! The server of a simulation: start, shutdown and crash.

use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use front_end_core::{FrontEnd, Portal, Server};
use iscsi_server::{Config, Export, ISCSI, Iscsi, Target};
use nbd_server::{NBD, Nbd};

use crate::cores;
use crate::network::Machine;
use crate::simulation::{GROUPS, RunningServer, Simulation, TARGET, portal};
use crate::universe::{self, draw, note};
use crate::{adversary, nbd};

/// Maximum duration of a shutdown, in addition to the time that outstanding commands are granted.
const END_MAX: Duration = Duration::from_secs(120);

impl Simulation {
    pub(crate) fn start_server(&self) {
        let number = self.servers.get() + 1;
        self.servers.set(number);
        self.started.set(universe::nanoseconds());
        let machine = Machine::fair(format!("server {number}"));
        let own = self.volumes.iter().map(|volume| volume.export(number));
        let exports: Vec<_> = own.chain([adversary::export()]).collect();
        let units = exports
            .iter()
            .map(|export| Arc::downgrade(&export.unit))
            .collect();
        let config = Config {
            targets: vec![Arc::new(Target::open(TARGET, exports))],
            discovery_authentication: None,
            limits: self.limits.clone(),
            random: universe::fill_random,
        };
        let served = self.served(&config);
        let nbd = self.has_nbd().then(|| {
            let exports = &config.targets[0].exports;
            Nbd::new(nbd::config(self, exports), self.core_count)
        });
        let exports = nbd.iter().flat_map(|nbd| nbd.config().exports.clone());
        let volumes = exports
            .map(|export| Arc::downgrade(&export.volume))
            .collect();
        let iscsi = Iscsi::new(config, self.core_count);
        let mut front_ends: Vec<Arc<dyn FrontEnd>> = vec![iscsi.clone()];
        front_ends.extend(nbd.clone().map(|nbd| nbd as Arc<dyn FrontEnd>));
        let (handle, cores) = Server::new(served, self.core_count, front_ends);
        handle.open();
        let (bound, _) = mpsc::channel();
        for core in cores {
            let bound = bound.clone();
            machine.run(move || async move {
                core.run(bound).await;
            });
        }
        note(&[12, number], || format!("{machine} starts"));
        *self.server.borrow_mut() = Some(RunningServer {
            machine,
            handle,
            iscsi,
            nbd,
            units,
            volumes,
            ends: false,
            changes: Rc::default(),
        });
    }

    /// Returns the full configuration of a server with the targets of `config`.
    fn served(&self, config: &Config) -> front_end_core::Config {
        let named = |export: &Export| (export.volume.clone(), Arc::clone(export.unit.volume()));
        let portal = |tag| Portal {
            front_end: ISCSI,
            listen: portal(tag).into(),
            tag,
            advertise: None,
            stream: Default::default(),
        };
        let nbd = self.has_nbd().then(|| Portal {
            front_end: NBD,
            listen: nbd::portal().into(),
            ..portal(1)
        });
        front_end_core::Config {
            volumes: config
                .targets
                .iter()
                .flat_map(|target| &target.exports)
                .map(named)
                .collect(),
            portals: (1..=GROUPS).map(portal).chain(nbd).collect(),
            limits: self.server_limits,
        }
    }

    /// Removes the adversary's LUN, even if it has outstanding commands, or adds a new, empty one.
    pub(crate) fn change_luns(&self) {
        let mut server = self.server.borrow_mut();
        let Some(running) = server
            .as_mut()
            .filter(|running| !running.ends && !running.changes.get())
        else {
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
        note(&[16, luns as u64], || {
            format!("{} now serves {luns} LUNs", running.machine)
        });
        config.targets = vec![Arc::new(target)];
        running.change(self, config);
    }

    /// Hides an export from NBD clients, or restores it; its LUN remains available.
    pub(crate) fn change_exports(&self) {
        let mut server = self.server.borrow_mut();
        let Some(running) = server
            .as_mut()
            .filter(|running| !running.ends && !running.changes.get())
        else {
            return;
        };
        let config = Config::clone(&running.iscsi.config());
        let exports = &config.targets[0].exports;
        let lun = draw(|random| random.pick(exports).lun);
        self.hidden.set(self.hidden.get() ^ 1 << lun);
        note(&[18, self.hidden.get()], || {
            format!("the export of LUN {lun} is removed or added")
        });
        running.change(self, config);
    }

    /// Restores all hidden exports. Returns false while another change is outstanding.
    pub(crate) fn show_all_exports(&self) -> bool {
        let mut server = self.server.borrow_mut();
        let Some(running) = server
            .as_mut()
            .filter(|running| !running.ends && !running.changes.get())
        else {
            return false;
        };
        if self.hidden.replace(0) != 0 {
            let config = Config::clone(&running.iscsi.config());
            running.change(self, config);
        }
        true
    }

    /// Kills the server's process, which loses its memory, or cuts the power of its machine, which loses
    /// everything not on stable storage.
    pub(crate) fn crash_server(&self, power: bool) {
        let Some(running) = self.server.borrow_mut().take() else {
            return;
        };
        self.crashes.set(self.crashes.get() + 1);
        note(&[13, u64::from(power)], || {
            if power {
                "power cut".to_owned()
            } else {
                "kill".to_owned()
            }
        });
        running.machine.kill();
        running.check_gone();
        self.volumes
            .iter()
            .for_each(|volume| volume.server_died(power));
    }

    /// Shuts the server down, as SIGTERM does, and starts another one afterwards.
    pub(crate) fn replace_server(self: Rc<Simulation>) {
        let machine = match self.server.borrow_mut().as_mut() {
            Some(running) if !running.ends => {
                running.ends = true;
                running.machine
            }
            _ => return,
        };
        let grace = draw(|random| random.mostly_small(10_000_000, 20_000_000_000));
        note(&[14, grace], || {
            format!("{machine} is requested to shut down")
        });
        if let Some(running) = &*self.server.borrow() {
            running.handle.shutdown(Duration::from_nanos(grace));
        }
        let until = universe::nanoseconds() + grace + END_MAX.as_nanos() as u64;
        universe::after(1_000_000, move || self.await_end(machine, until));
    }

    fn await_end(self: Rc<Simulation>, machine: Machine, until: u64) {
        if !machine.is_alive() {
            return; // the server was killed meanwhile, and the code that killed it starts a replacement
        }
        if !machine.is_busy() {
            self.server_has_ended();
            self.ends.set(self.ends.get() + 1);
            return self.start_server();
        }
        match universe::nanoseconds() < until {
            true => universe::after(5_000_000, move || self.await_end(machine, until)),
            false => universe::fault(format!("{machine} did not shut down within its timeout")),
        }
    }

    fn server_has_ended(&self) {
        let Some(running) = self.server.borrow_mut().take() else {
            return;
        };
        note(&[15], || format!("{} has ended", running.machine));
        running.check_gone();
        self.volumes
            .iter()
            .for_each(|volume| volume.server_died(false));
    }

    /// Shuts the server down for the last time.
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
            universe::fault("the server did not shut down within two minutes".to_owned());
        }
        self.server_has_ended();
    }
}

impl RunningServer {
    /// Applies `config` for all protocols, including NBD.
    fn change(&mut self, simulation: &Simulation, config: Config) {
        self.changes.set(true);
        let served = simulation.served(&config);
        let nbd = self
            .nbd
            .clone()
            .map(|nbd| (nbd, nbd::config(simulation, &config.targets[0].exports)));
        let (handle, iscsi) = (Arc::clone(&self.handle), Arc::clone(&self.iscsi));
        let changes = Rc::clone(&self.changes);
        self.machine.run(move || async move {
            let adopt = || {
                iscsi.adopt(config);
                if let Some((nbd, config)) = nbd {
                    nbd.adopt(config);
                }
            };
            if let Err(error) = handle.reconfigure(served, adopt).await {
                note(&[17], || format!("the change is abandoned: {error}"));
            }
            changes.set(false);
        });
    }

    /// Checks that the server's logical units were freed: there is no reference to them or to the memory of
    /// their outstanding commands.
    fn check_gone(self) {
        let RunningServer {
            handle,
            iscsi,
            nbd,
            units,
            volumes,
            ..
        } = self;
        drop((handle, iscsi, nbd));
        let left = units.iter().filter(|unit| unit.strong_count() > 0).count();
        if left > 0 && !universe::is_faulty() {
            universe::fault(format!(
                "{left} logical units were not freed when the server shut down"
            ));
        }
        let left = volumes
            .iter()
            .filter(|volume| volume.strong_count() > 0)
            .count();
        if left > 0 && !universe::is_faulty() {
            universe::fault(format!(
                "{left} volumes of NBD clients were not freed when the server shut down"
            ));
        }
    }
}
