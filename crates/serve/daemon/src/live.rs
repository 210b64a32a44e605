//! A running server: its current configuration, and reconfiguration.
//!
//! [`Live::reload`] rereads the configuration, compares it with the current one, and applies the difference.
//! Steps that can fail come first: new volumes are opened, and affected sessions are identified, before
//! anything changes. Then the server adopts the whole new configuration, or none of it if a portal cannot be
//! opened. Finally, removed volumes are flushed and closed, and files grow. Failures in this last step are
//! reported, and the next reload retries the failed changes.
//!
//! ```text
//!   reload ─► read, compare ─► open new volumes ─► find affected sessions ─► reconfigure ─► close, grow
//!                  └─ mistake         └─ error             └─ in use, no --force    └─ no portal
//!                     in each of these cases nothing has changed
//! ```

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use backends::Failure;
use block::{BlockDevice, DeviceError};
use front_end_core::{AUDIT, Server};
use volume::Volume;
use volume::backend::Undo;
use volume::spec::Bytes;

use crate::announce;
use crate::config::file::ConfigFile;
use crate::config::values::VolumeName;
use crate::config::{self, Config, RunningFrontEnd, Serving};
use crate::control::{Change, Event, Events, ServedSession, Target};
use crate::difference::Difference;
use crate::metrics::http::{Bound, Endpoint, Monitored};
use crate::metrics::{Health, Probe, Reloads, render};
use crate::shrink;
use crate::start_options::StartOptions;
use crate::state::{ServerState, UnitState};
use crate::supervisor::Supervisor;
use crate::volumes::{self, Opened, Volumes};
use crate::waiting::{CLOSE_TIME, FLUSH_TIME, Openers, answered, block_on};

/// A server and its state.
pub struct Live {
    state: ServerState,
    server: Arc<Server>,
    front_ends: Vec<Arc<dyn RunningFrontEnd>>,
    events: Arc<Events>,
    openers: Openers,
    now: Mutex<LiveState>,
    /// Notified when an order to a RAID set has ended.
    pub(crate) orders: Condvar,
    probe: Probe,
    reloads: Reloads,
    endpoint: Mutex<Option<Endpoint>>,
    supervisor: OnceLock<Supervisor>,
    /// A reference to this value, for threads and callbacks that outlive a call.
    pub(crate) me: Weak<Live>,
}

/// The current configuration and volumes.
pub(crate) struct LiveState {
    /// The options from the command line, which apply in addition to the configuration file.
    pub(crate) start_options: StartOptions,
    pub(crate) config: Config,
    pub(crate) volumes: Volumes,
    /// Volumes with an order to one of their RAID sets. An order does not hold the lock while it waits for
    /// members.
    pub(crate) ordered: Vec<VolumeName>,
    /// Number of orders and configuration changes that wait for one of these orders to end.
    pub(crate) waiting: usize,
}

/// The options of a reload.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReloadOptions {
    /// Only report the changes.
    pub dry_run: bool,
    /// Also apply changes that remove volumes or exports that initiators are using.
    pub force: bool,
}

/// The result of a reload.
#[derive(Debug, Default)]
pub struct Reloaded {
    /// The changes, one line each.
    pub changes: Vec<String>,
    /// Additional notes.
    pub notes: Vec<String>,
    /// Changes that failed.
    pub failed: Vec<String>,
}

/// Volumes whose change failed.
#[derive(Default)]
struct Reopened {
    /// Volumes that are still served unchanged.
    unchanged: Vec<VolumeName>,
    /// Volumes that are no longer served, because they could not be reopened unchanged either.
    not_served: Vec<VolumeName>,
}

impl LiveState {
    /// Refuses a change if the file and the current configuration differ.
    pub(crate) fn check_served(&self, file: Option<&ConfigFile>) -> Result<(), Failure> {
        let unserved =
            Difference::between(&self.config, &self.start_options.safe_config_with(file)?);
        match unserved.lines.is_empty() {
            true => Ok(()),
            false => Err(Failure::refused(format!(
                "the configuration has changes that are not applied yet; run `linerate server reload` first:\n  {}",
                unserved.lines.join("\n  ")
            ))),
        }
    }
}

impl Live {
    pub(crate) fn new(
        state: ServerState,
        server: Arc<Server>,
        front_ends: Vec<Arc<dyn RunningFrontEnd>>,
        events: Arc<Events>,
        openers: Openers,
        now: LiveState,
    ) -> Arc<Live> {
        let probe = Probe::new(&now.config, &now.volumes);
        Arc::new_cyclic(|me| Live {
            state,
            server,
            front_ends,
            events,
            openers,
            now: Mutex::new(now),
            orders: Condvar::new(),
            probe,
            reloads: Reloads::default(),
            endpoint: Mutex::default(),
            supervisor: OnceLock::new(),
            me: Weak::clone(me),
        })
    }

    /// The server's events, for subscribers.
    pub fn events(&self) -> &Arc<Events> {
        &self.events
    }

    pub(crate) fn probe(&self) -> &Probe {
        &self.probe
    }

    /// Serves metrics at this address only; `None` stops serving them.
    pub(crate) fn serve_metrics(&self, bound: Option<Bound>) -> Result<(), Failure> {
        let me: Weak<Live> = Weak::clone(&self.me);
        let endpoint = bound.map(|bound| bound.serve(me));
        *self.endpoint() = endpoint.transpose().map_err(Failure::failed)?;
        Ok(())
    }

    /// The address of the metrics server, with its actual port.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.endpoint().as_ref().map(Endpoint::address)
    }

    fn endpoint(&self) -> MutexGuard<'_, Option<Endpoint>> {
        self.endpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Notifies the service manager that the server is ready, and reports its status from now on. The
    /// watchdog is notified as long as every reactor thread responds.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn supervise(self: &Arc<Live>, supervisor: Supervisor) -> Result<(), Failure> {
        let period = supervisor.period();
        let has_watchdog = supervisor.watchdog.is_some();
        // A second supervisor is ignored.
        let _ = self.supervisor.set(supervisor);
        self.tell_ready();
        let live = Arc::downgrade(self);
        let work = move || watch(&live, period, has_watchdog);
        thread::Builder::new()
            .name("supervisor".to_owned())
            .spawn(work)
            .map(drop)
            .map_err(Failure::failed)
    }

    /// Reports that the server is ready, after its start or a reload.
    pub(crate) fn tell_ready(&self) {
        if let Some(supervisor) = self.supervisor.get() {
            supervisor.ready(&self.status());
        }
    }

    /// A human-readable status line.
    fn status(&self) -> String {
        let targets = self.probe.targets().len();
        let volumes = self.server.volumes().iter().count();
        format!("serves {targets} target(s), {volumes} volume(s)")
    }

    /// The current metrics. Blocks for up to one second per concurrent caller.
    pub fn metrics(&self) -> String {
        render::text(
            &self
                .probe
                .sample(&self.server, &self.reloads, || self.sessions()),
        )
    }

    /// The health of the server. Does not send requests to the cores, and does not block.
    pub fn health(&self) -> Health {
        Health::of(&self.server)
    }

    /// The announcement printed once the server is ready.
    pub fn announcement(&self) -> String {
        let volumes = self.volumes();
        self.with_config(|config| announce::text(config, &volumes, &self.server.portals()))
    }

    /// Commands to run on a host to use the exports.
    pub fn usage(&self) -> String {
        self.with_config(|config| announce::usage(config, &self.server.portals()))
    }

    /// The sessions of all front ends. Blocks for up to one second per front end.
    pub(crate) fn sessions(&self) -> Vec<ServedSession> {
        self.front_ends
            .iter()
            .flat_map(|front_end| front_end.sessions(&self.server))
            .collect()
    }

    /// The targets. Blocks like [`Live::sessions`].
    pub(crate) fn targets(&self) -> Vec<Target> {
        let sessions = self.sessions();
        let portals = self.server.portals();
        let mut targets = self.with_config(|config| config.targets(&portals));
        for target in &mut targets {
            let is_of = |session: &&ServedSession| session.target.as_ref() == Some(&target.name);
            target.sessions = sessions.iter().filter(is_of).count();
        }
        targets
    }

    /// Ends the sessions with this TSIH or of this initiator, and returns their number. Each front end
    /// numbers its sessions separately, so a number that two front ends use must be qualified with the name
    /// of the front end, as in `nbd:3`. Blocks like [`Live::sessions`].
    pub(crate) fn drop_sessions(&self, which: &str, force: bool) -> Result<usize, String> {
        let of_one = which.split_once(':').filter(|(name, number)| {
            number.parse::<u16>().is_ok()
                && self
                    .front_ends
                    .iter()
                    .any(|front_end| front_end.name() == *name)
        });
        let (only, which) = of_one.map_or((None, which), |(name, number)| (Some(name), number));
        if only.is_none()
            && let Ok(number) = which.parse::<u16>()
        {
            let has = |session: &ServedSession| session.tsih == Some(number);
            let of: Vec<String> = self
                .front_ends
                .iter()
                .filter(|front_end| front_end.sessions(&self.server).iter().any(has))
                .map(|front_end| format!("{}:{number}", front_end.name()))
                .collect();
            if of.len() > 1 {
                return Err(format!(
                    "several sessions have the number {number}: name one of {}",
                    of.join(", ")
                ));
            }
        }
        let front_ends = self
            .front_ends
            .iter()
            .filter(|front_end| only.is_none_or(|name| front_end.name() == name));
        Ok(front_ends
            .map(|front_end| front_end.drop_sessions(&self.server, which, force))
            .sum())
    }

    /// Runs a closure on the current configuration. A reload waits until the closure returns. If a reload is
    /// running, which may take long, this call waits for it.
    pub fn with_config<T>(&self, what: impl FnOnce(&Config) -> T) -> T {
        what(&self.now().config)
    }

    /// Shuts the server down: requests logouts, and waits up to `grace` for outstanding commands.
    pub fn shutdown(&self, grace: Duration) {
        tracing::info!(
            grace_seconds = grace.as_secs(),
            "shutting down; requesting logout from initiators"
        );
        if let Some(supervisor) = self.supervisor.get() {
            supervisor.stopping();
        }
        self.server.shutdown(grace);
    }

    pub(crate) fn now(&self) -> MutexGuard<'_, LiveState> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases the lock until an order to a RAID set has ended.
    pub(crate) fn order_ended<'a>(
        &'a self,
        mut now: MutexGuard<'a, LiveState>,
    ) -> MutexGuard<'a, LiveState> {
        debug_assert!(!now.ordered.is_empty(), "an order ends");
        now.waiting += 1;
        tracing::info!(
            waiting = now.waiting,
            "a configuration change is waiting for a RAID operation"
        );
        let mut now = self
            .orders
            .wait(now)
            .unwrap_or_else(PoisonError::into_inner);
        now.waiting -= 1;
        now
    }

    /// Locks the state for a configuration change, which `plan` computes from the state. If the change
    /// concerns a volume with an order to a RAID set, waits for the order without holding the lock, and then
    /// plans again.
    pub(crate) fn lock_for<T>(
        &self,
        options: ReloadOptions,
        plan: impl Fn(&LiveState) -> Result<(Config, T), Failure>,
    ) -> Result<(MutexGuard<'_, LiveState>, Config, T), Failure> {
        let mut now = self.now();
        loop {
            let (wanted, rest) = plan(&now)?;
            let difference = Difference::between(&now.config, &wanted);
            if options.dry_run || !now.ordered.iter().any(|volume| difference.touches(volume)) {
                return Ok((now, wanted, rest));
            }
            now = self.order_ended(now);
        }
    }

    /// Rereads the configuration and applies it. `by` names the requester for the audit log.
    ///
    /// # Errors
    /// The reason for the failure; in this case nothing has changed.
    pub fn reload(&self, options: ReloadOptions, by: &str) -> Result<Reloaded, Failure> {
        self.noted(options, by, || {
            let plan = |now: &LiveState| Ok((now.start_options.safe_config()?, ()));
            let (mut now, wanted, ()) = self.lock_for(options, plan)?;
            self.serve(&mut now, wanted, options, None)
        })
    }

    /// Applies a change, and reports the result to the audit log, subscribers, metrics and the service
    /// manager.
    pub(crate) fn noted(
        &self,
        options: ReloadOptions,
        by: &str,
        change: impl FnOnce() -> Result<Reloaded, Failure>,
    ) -> Result<Reloaded, Failure> {
        if options.dry_run {
            return change();
        }
        if let Some(supervisor) = self.supervisor.get() {
            supervisor.reloading();
        }
        let outcome = change();
        audit(&outcome, options, by);
        match &outcome {
            Ok(Reloaded {
                changes, failed, ..
            }) => {
                let (changes, failed) = (changes.clone(), failed.clone());
                self.events
                    .publish(Event::ReloadApplied { changes, failed });
            }
            Err(failure) => self.events.publish(Event::ReloadRefused {
                reason: failure.to_string(),
            }),
        }
        self.reloads.ended(
            outcome
                .as_ref()
                .is_ok_and(|reloaded| reloaded.failed.is_empty()),
        );
        self.tell_ready();
        outcome
    }

    /// Switches to `wanted`. On error nothing has changed. `order` is the intended difference from the file.
    pub(crate) fn serve(
        &self,
        now: &mut LiveState,
        wanted: Config,
        options: ReloadOptions,
        order: Option<&Change>,
    ) -> Result<Reloaded, Failure> {
        let difference = Difference::between(&now.config, &wanted);
        debug_assert!(
            options.dry_run || !now.ordered.iter().any(|volume| difference.touches(volume)),
            "the configuration was locked for this change"
        );
        let (added, cut, discard_data) = match order {
            Some(Change::Add { volume, .. }) => (Some(volume), None, false),
            Some(Change::Resize {
                volume,
                shrink: true,
                discard_data,
                ..
            }) => (None, Some(volume), *discard_data),
            _ => (None, None, false),
        };
        let without_order = |volume: &config::Volume| {
            let shrunk = difference
                .shrunk
                .iter()
                .find(|(name, ..)| *name == volume.name)?;
            Some(shrunk)
                .filter(|(name, ..)| Some(name) != cut)
                .map(|shrunk| (shrunk, volume.spec.clone()))
        };
        if let Some(((name, before, bytes), spec)) = wanted.volumes.iter().find_map(without_order) {
            return Err(volumes::too_small(name, &spec, *before, *bytes));
        }
        let mut reloaded = Reloaded {
            changes: difference.lines.clone(),
            ..Reloaded::default()
        };
        if !difference.at_next_start.is_empty() {
            let keys = difference.at_next_start.join(", ");
            reloaded
                .notes
                .push(format!("takes effect at the next start: {keys}"));
        }
        // Check before anything changes: hosts must not lose a volume because of a reload that is then
        // refused.
        let is_opened = |volume: &&config::Volume| {
            difference.reopened.contains(&volume.name) || difference.added.contains(&volume.name)
        };
        let moved = wanted.volumes.iter().filter(is_opened);
        let moved: Vec<_> = moved
            .map(|volume| volumes::check_before(volume, &wanted.volumes, &self.state))
            .collect::<Result<_, _>>()?;
        let losses = self.losses(now, &wanted, &difference);
        if difference.is_empty() || options.dry_run {
            reloaded.notes.extend(moved.into_iter().flatten());
            let line = |loss| format!("in use: {loss}; to remove it anyway, use --force");
            reloaded.notes.extend(losses.iter().map(line));
            if !difference.shrunk.is_empty() && !discard_data {
                reloaded
                    .notes
                    .push("a dry run does not check for data in the part to be cut off".to_owned());
            }
            return Ok(reloaded);
        }
        refuse_losses(&losses, options)?;
        self.check_names(&difference)?;
        let metrics = match &wanted.metrics {
            Some(metrics) if difference.metrics => Some(Bound::new(*metrics)?),
            _ => None,
        };
        let undo = Undo::default();
        let mut next = now.volumes.all_but(&difference.removed);
        next.rename(&difference.renamed);
        let known: Vec<&VolumeName> = added
            .into_iter()
            .filter(|name| self.state.keeps(name))
            .collect();
        let opened = volumes::open_these(
            &wanted.volumes,
            &difference.added,
            &self.state,
            &self.openers,
            added,
            &undo,
        )
        .and_then(|opened| {
            next.all_but(&difference.reopened)
                .are_distinct_from(&opened)
                .map(|()| opened)
        })
        .inspect_err(|_| undo.take_back())?;
        reloaded.notes.extend(
            known
                .iter()
                .filter_map(|name| opened.get(name)?.of_created_file(name)),
        );
        reloaded
            .notes
            .extend(opened.all().filter_map(Opened::moved).cloned());
        next.adopt(opened);
        let without_reopened = next.all_but(&difference.reopened);
        let units = without_reopened.units();
        let serving = Serving {
            config: &wanted,
            units: &units,
        };
        self.apply(serving).map_err(|error| {
            undo.take_back();
            Failure::refused(format!("cannot listen on {error}"))
        })?;
        undo.keep();
        let taken = losses
            .iter()
            .map(|loss| format!("removed while in use: {loss}"));
        reloaded.notes.extend(taken);
        now.volumes.rename(&difference.renamed);
        let to_cut: Vec<ToCut> = difference
            .shrunk
            .iter()
            .filter_map(|(name, _, bytes)| {
                let opened = now.volumes.get(name)?;
                let (device, kept) = (
                    Arc::clone(opened.unit.volume().device()),
                    Arc::clone(&opened.kept),
                );
                Some(ToCut {
                    name: name.clone(),
                    bytes: *bytes,
                    device,
                    kept,
                })
            })
            .collect();
        let gone = difference.removed.iter().chain(&difference.reopened);
        let gone: Vec<(VolumeName, Opened)> =
            gone.filter_map(|name| now.volumes.take(name)).collect();
        now.volumes = without_reopened;
        drop(next);
        let in_doubt = close(gone, &mut reloaded.failed);
        let mut uncut = Vec::new();
        for volume in to_cut {
            let is_closed = !in_doubt.contains(&volume.name);
            let name = volume.name.clone();
            if let Err(error) = volume.prepare(is_closed, discard_data) {
                reloaded
                    .failed
                    .push(format!("{error}; the volume is unchanged"));
                uncut.push(name);
            }
        }
        let before = now.config.renamed_volumes(&difference.renamed);
        let Reopened {
            unchanged,
            not_served,
        } = self.reopen(
            now,
            &before,
            &wanted,
            &difference,
            &uncut,
            &mut reloaded.failed,
        );
        let reopened = difference
            .reopened
            .iter()
            .filter(|name| !unchanged.contains(name));
        let reopened = reopened.filter_map(|name| now.volumes.get(name)?.moved());
        reloaded.notes.extend(reopened.cloned());
        self.rename(&now.volumes, &difference, &mut reloaded.failed);
        // Record the new specifications. Otherwise an order to create a file would be repeated, or never
        // executed.
        for name in &difference.reordered {
            if let Some(opened) = now.volumes.get(name)
                && let Some(volume) = wanted.volumes.iter().find(|volume| volume.name == *name)
                && let Err(error) = block_on(opened.kept.keep_spec(volume.spec.to_string()))
            {
                reloaded.failed.push(format!(
                    "the specification of volume {name} could not be saved: {error}"
                ));
            }
        }
        let not_grown = grow(
            &self.server,
            &now.volumes,
            &wanted.volumes,
            &difference.grown,
            &mut reloaded.failed,
        );
        now.config = wanted;
        // Failed changes remain a difference from the wanted configuration, so the next reload retries them.
        now.config
            .keep_volumes(&before, &[not_grown, unchanged].concat());
        now.config
            .volumes
            .retain(|volume| !not_served.contains(&volume.name));
        now.volumes.describe(&now.config);
        self.tell_volumes(&difference, &now.volumes);
        self.probe.describe(&now.config, &now.volumes);
        if difference.metrics
            && let Err(error) = self.serve_metrics(metrics)
        {
            reloaded
                .failed
                .push(format!("metrics are not served: {error}"));
        }
        debug_assert!(
            now.ordered
                .iter()
                .all(|name| now.volumes.get(name).is_some()),
            "a volume with an order stays open"
        );
        Ok(reloaded)
    }

    /// Notifies subscribers of added, removed and changed volumes. The server reports volumes that have
    /// grown.
    fn tell_volumes(&self, difference: &Difference, served: &Volumes) {
        let text = |name: &VolumeName| name.to_string();
        let is_served = |name: &&VolumeName| served.get(name).is_some();
        let (reopened, lost): (Vec<_>, Vec<_>) = difference.reopened.iter().partition(is_served);
        let renamed = difference.renamed.iter();
        let renamed = renamed.map(|(from, to)| Event::VolumeRenamed {
            volume: text(to),
            from: text(from),
        });
        let removed = difference
            .removed
            .iter()
            .chain(lost)
            .map(|name| Event::VolumeRemoved { volume: text(name) });
        let replaced = reopened
            .into_iter()
            .map(|name| Event::VolumeReplaced { volume: text(name) });
        let added = difference
            .added
            .iter()
            .map(|name| Event::VolumeAdded { volume: text(name) });
        renamed
            .chain(removed)
            .chain(replaced)
            .chain(added)
            .for_each(|event| self.events.publish(event));
    }

    /// Describes the losses that a change would cause for initiators. New volumes have no initiators yet.
    pub(crate) fn losses(
        &self,
        now: &LiveState,
        wanted: &Config,
        difference: &Difference,
    ) -> Vec<String> {
        let gone: Vec<VolumeName> = difference
            .removed
            .iter()
            .chain(&difference.reopened)
            .cloned()
            .collect();
        let mut next = now.volumes.all_but(&[]);
        next.rename(&difference.renamed);
        let units = next.all_but(&gone).units();
        let wanted = Serving {
            config: wanted,
            units: &units,
        };
        let portals = wanted.of_server().portals;
        self.front_ends
            .iter()
            .flat_map(|front_end| front_end.losses(&self.server, wanted, &portals))
            .collect()
    }

    /// Refuses a new name under which another volume has state: the persisted identity and reservations of a
    /// volume are stored under its name, and a renamed volume must not adopt those of another volume.
    fn check_names(&self, difference: &Difference) -> Result<(), Failure> {
        let is_taken = |(_, to): &&(VolumeName, VolumeName)| self.state.keeps(to);
        match difference.renamed.iter().find(is_taken) {
            None => Ok(()),
            Some((from, to)) => Err(Failure::refused(format!(
                "volume {from} cannot be renamed to {to}: the state directory {} already has an entry with that \
                 name; choose another name, or remove the entry",
                self.state.directory().display()
            ))),
        }
    }

    fn apply(&self, wanted: Serving<'_>) -> std::io::Result<()> {
        let adopt = || {
            self.front_ends
                .iter()
                .for_each(|front_end| front_end.adopt(wanted))
        };
        let reconfigured = self.server.reconfigure(wanted.of_server(), adopt);
        reactor::block_on(reactor::Alone::real_time(), reconfigured).map(drop)
    }

    /// Reopens the closed volumes with their new specifications. Volumes in `uncut`, and volumes that cannot
    /// be reopened, keep the specifications that they had `before`, under their new names.
    fn reopen(
        &self,
        now: &mut LiveState,
        before: &[config::Volume],
        wanted: &Config,
        difference: &Difference,
        uncut: &[VolumeName],
        failed: &mut Vec<String>,
    ) -> Reopened {
        let mut reopened = Reopened::default();
        if difference.reopened.is_empty() {
            return reopened;
        }
        debug_assert!(
            difference
                .reopened
                .iter()
                .all(|name| now.volumes.get(name).is_none()),
            "they are closed"
        );
        for name in &difference.reopened {
            let one = std::slice::from_ref(name);
            let undo = Undo::default();
            let open = |volumes| {
                volumes::open_these(volumes, one, &self.state, &self.openers, None, &undo)
            };
            let opened = if uncut.contains(name) {
                reopened.unchanged.push(name.clone());
                open(before)
            } else {
                let opened = open(&wanted.volumes);
                let opened = opened
                    .and_then(|opened| now.volumes.are_distinct_from(&opened).map(|()| opened));
                opened.or_else(|error| {
                    undo.take_back();
                    failed.push(format!("{error}; the volume is unchanged"));
                    reopened.unchanged.push(name.clone());
                    open(before)
                })
            };
            match opened {
                Ok(opened) => now.volumes.adopt(opened),
                Err(error) => failed.push(error.to_string()),
            }
            undo.keep();
            if now.volumes.get(name).is_none() {
                failed.push(format!("volume {name} is no longer served"));
                reopened.not_served.push(name.clone());
            }
        }
        if let Err(error) = self.apply(Serving {
            config: wanted,
            units: &now.volumes.units(),
        }) {
            failed.push(format!("cannot listen on {error}"));
        }
        reopened
    }

    /// Renames the persisted state of volumes, which is stored under their names.
    fn rename(&self, volumes: &Volumes, difference: &Difference, failed: &mut Vec<String>) {
        // Reopened volumes already use their new names.
        for (from, to) in difference
            .renamed
            .iter()
            .filter(|(_, to)| !difference.reopened.contains(to))
        {
            let Some(opened) = volumes.get(to) else {
                continue;
            };
            if let Err(error) = block_on(opened.kept.rename(&self.state, to)) {
                failed.push(format!(
                    "the saved state of volume {from} could not be renamed: {error}"
                ));
            }
        }
    }
}

impl Monitored for Live {
    fn metrics(&self) -> String {
        self.metrics()
    }

    fn health(&self) -> Health {
        self.health()
    }
}

/// Reports the server's status to the service manager until the server has ended.
fn watch(live: &Weak<Live>, period: Duration, has_watchdog: bool) {
    loop {
        let begin = Instant::now();
        let Some(live) = live.upgrade() else { return };
        let answers = live
            .server
            .ask_cores(period, |_| ())
            .into_iter()
            .enumerate();
        let silent: Vec<usize> = answers
            .filter(|(_, answer)| answer.is_none())
            .map(|(core, _)| core)
            .collect();
        let Some(supervisor) = live.supervisor.get() else {
            return;
        };
        match &silent[..] {
            [] if has_watchdog => supervisor.tell(&format!("WATCHDOG=1\nSTATUS={}", live.status())),
            [] => supervisor.tell(&format!("STATUS={}", live.status())),
            _ => {
                tracing::error!(reactors = ?silent, "reactor threads are unresponsive");
                supervisor.tell(&format!(
                    "STATUS=reactor threads are unresponsive: {silent:?}"
                ));
            }
        }
        drop(live);
        thread::sleep(period.saturating_sub(begin.elapsed()));
    }
}

/// Logs each change with its requester, one line per change.
fn audit(outcome: &Result<Reloaded, Failure>, options: ReloadOptions, by: &str) {
    let force = options.force;
    match outcome {
        Ok(Reloaded {
            changes,
            notes,
            failed,
        }) => {
            tracing::info!(target: AUDIT, by, force, changes = changes.len(), "configuration changed");
            changes
                .iter()
                .for_each(|change| tracing::info!(target: AUDIT, by, change, "changed"));
            notes
                .iter()
                .for_each(|note| tracing::info!(target: AUDIT, by, note, "changed"));
            failed
                .iter()
                .for_each(|why| tracing::error!(target: AUDIT, by, why, "not changed"));
        }
        Err(failure) => {
            // Log each line of the error separately, because it may contain several errors.
            let why = failure.to_string();
            why.lines().for_each(
                |why| tracing::error!(target: AUDIT, by, why, "configuration not changed"),
            );
        }
    }
}

/// A volume that will be shrunk after it has been closed.
struct ToCut {
    name: VolumeName,
    bytes: Bytes,
    /// The device, which still has its original size.
    device: Arc<dyn BlockDevice>,
    kept: Arc<UnitState>,
}

impl ToCut {
    /// Persists the new size, which takes effect when the volume is opened next, if the part to be cut off
    /// has no data. Hosts could write to that part until the volume was closed, so an earlier check is not
    /// enough.
    fn prepare(self, is_closed: bool, discard_data: bool) -> Result<(), Failure> {
        let ToCut {
            name,
            bytes,
            device,
            kept,
        } = self;
        if !discard_data {
            if !is_closed {
                return Err(Failure::refused(format!(
                    "volume {name} is not shrunk to {bytes}: data may still be written to it"
                )));
            }
            // The kernel may still process aborted requests.
            let quiesced = block_on(answered(device.quiesced()));
            quiesced.map_err(|error| {
                Failure::device(
                    format_args!("volume {name} is not shrunk to {bytes}"),
                    error,
                )
            })?;
            block_on(shrink::check(&name, device.as_ref(), bytes))?;
        }
        block_on(kept.keep_bytes(bytes.0)).map_err(|error| {
            Failure::failed(format_args!(
                "the size of volume {name} could not be saved: {error}"
            ))
        })
    }
}

/// Refuses a change that removes volumes or exports that initiators are using, unless the change is forced.
pub(crate) fn refuse_losses(losses: &[String], options: ReloadOptions) -> Result<(), Failure> {
    if losses.is_empty() || options.force {
        return Ok(());
    }
    Err(Failure::refused(format!(
        "nothing was changed, because resources in use would be removed; to remove them, use --force:\n  {}",
        losses.join("\n  ")
    )))
}

/// Flushes and closes volumes that are no longer served. Returns the volumes that may still have outstanding
/// requests or unwritten data.
fn close(gone: Vec<(VolumeName, Opened)>, failed: &mut Vec<String>) -> Vec<VolumeName> {
    let mut in_doubt = Vec::new();
    for (name, opened) in gone {
        let volume = Arc::downgrade(opened.unit.volume());
        let flushed = block_on(front_end_core::last_flush(opened.unit.volume(), FLUSH_TIME));
        if let Err(cause) = &flushed {
            failed.push(format!("volume {name} could not be flushed: {cause}"));
        }
        drop(opened);
        let open = open_after(CLOSE_TIME, &volume);
        if let Some(volume) = &open {
            let why = match volume.is_fenced() {
                true => "its device is unresponsive",
                false => "its commands have not completed",
            };
            failed.push(format!("volume {name} is not closed yet: {why}"));
        }
        if flushed.is_err() || open.is_some() {
            in_doubt.push(name);
        }
        let _ = block_on(async { reactor::timeout(CLOSE_TIME, backends::raid::closed()).await });
    }
    in_doubt
}

/// Waits for a volume to be closed. Returns it if it is still open after this time. A session releases a
/// volume when the last of its commands has completed.
fn open_after(time: Duration, volume: &Weak<Volume>) -> Option<Arc<Volume>> {
    let end = Instant::now() + time;
    while volume.strong_count() > 0 {
        if Instant::now() > end {
            return volume.upgrade();
        }
        thread::sleep(CLOSE_STEP);
    }
    None
}

/// Grows files, and notifies initiators. Returns the names of volumes that could not grow.
fn grow(
    server: &Server,
    volumes: &Volumes,
    specs: &[config::Volume],
    grown: &[(VolumeName, Bytes)],
    failed: &mut Vec<String>,
) -> Vec<VolumeName> {
    let mut not_grown = Vec::new();
    debug_assert!(
        grown
            .iter()
            .all(|(name, _)| specs.iter().any(|volume| volume.name == *name))
    );
    for (name, bytes) in grown {
        let Some(opened) = volumes.get(name) else {
            continue;
        };
        let growth = reactor::timeout(GROW_TIME, opened.unit.volume().device().grow(bytes.0));
        match block_on(growth).unwrap_or(Err(DeviceError::TimedOut)) {
            Ok(()) => {
                server.volume_grew(opened.unit.volume());
                if let Some(spec) = specs
                    .iter()
                    .find(|volume| volume.name == *name)
                    .map(|volume| &volume.spec)
                    && let Err(error) = block_on(opened.kept.keep_served(spec.to_string(), bytes.0))
                {
                    failed.push(format!(
                        "the size of volume {name} could not be saved: {error}"
                    ));
                }
            }
            Err(error) => {
                failed.push(format!("volume {name} cannot grow to {bytes}: {error}"));
                not_grown.push(name.clone());
            }
        }
    }
    not_grown
}

/// Maximum time to grow a file. The cached data of the file, which may be gigabytes, is written back first.
const GROW_TIME: Duration = Duration::from_secs(60);
const CLOSE_STEP: Duration = Duration::from_millis(5);
