//! A running server: its current configuration, and reconfiguration.
//!
//! [`Live::reload`] reads the configuration again, compares it with the current one, and applies the
//! difference. Steps that can fail come first: new volumes are opened and affected sessions are found before
//! anything changes. Then the server adopts the new configuration as a whole, or none of it if a portal
//! cannot be listened on. Finally removed volumes are flushed and closed, and files grow. Failures in this
//! last step are reported, and the next reload tries it again.
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

/// A server, and what it is made of.
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
    /// For what outlives a call.
    me: Weak<Live>,
}

/// What is served.
pub(crate) struct LiveState {
    /// What it is made of, besides the configuration file.
    pub(crate) start_options: StartOptions,
    pub(crate) config: Config,
    pub(crate) volumes: Volumes,
    /// Volumes with an order to one of their RAID sets. It waits for members without the lock.
    pub(crate) ordered: Vec<VolumeName>,
    /// Orders and changes of the configuration that wait for one of them to end.
    pub(crate) waiting: usize,
}

/// How a reload is meant.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReloadOptions {
    /// Only say what would change.
    pub dry_run: bool,
    /// Also what takes something away that initiators use.
    pub force: bool,
}

/// How a reload went.
#[derive(Debug, Default)]
pub struct Reloaded {
    /// What is different, one line each.
    pub changes: Vec<String>,
    /// What there is to know besides.
    pub notes: Vec<String>,
    /// What was to change and has not.
    pub failed: Vec<String>,
}

/// Volumes that could not become something else.
#[derive(Default)]
struct Reopened {
    /// They are what they were.
    unchanged: Vec<VolumeName>,
    /// Nor that.
    not_served: Vec<VolumeName>,
}

impl LiveState {
    /// Refuses to change what is served while the file, as it is now, says something else.
    pub(crate) fn check_served(&self, file: Option<&ConfigFile>) -> Result<(), Failure> {
        let unserved = Difference::between(&self.config, &self.start_options.safe_config_with(file)?);
        match unserved.lines.is_empty() {
            true => Ok(()),
            false => Err(Failure::refused(format!(
                "the configuration has changes that are not served yet; `linerate server reload` first:\n  {}",
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

    /// What happens in the server, for those who subscribe.
    pub fn events(&self) -> &Arc<Events> {
        &self.events
    }

    pub(crate) fn probe(&self) -> &Probe {
        &self.probe
    }

    /// Serves metrics there from now on, and nowhere else.
    pub(crate) fn serve_metrics(&self, bound: Option<Bound>) -> Result<(), Failure> {
        let me: Weak<Live> = Weak::clone(&self.me);
        let endpoint = bound.map(|bound| bound.serve(me));
        *self.endpoint() = endpoint.transpose().map_err(Failure::failed)?;
        Ok(())
    }

    /// Where metrics are served, with the port that was taken.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.endpoint().as_ref().map(Endpoint::address)
    }

    fn endpoint(&self) -> MutexGuard<'_, Option<Endpoint>> {
        self.endpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Tells the service manager that the server serves, and from now on how it goes. Its watchdog hears of this server as
    /// long as every reactor thread answers.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn supervise(self: &Arc<Live>, supervisor: Supervisor) -> Result<(), Failure> {
        let period = supervisor.period();
        let has_watchdog = supervisor.watchdog.is_some();
        // A second one is not told anything.
        let _ = self.supervisor.set(supervisor);
        self.tell_ready();
        let live = Arc::downgrade(self);
        let work = move || watch(&live, period, has_watchdog);
        thread::Builder::new().name("supervisor".to_owned()).spawn(work).map(drop).map_err(Failure::failed)
    }

    /// The server serves, or serves again after a reload.
    pub(crate) fn tell_ready(&self) {
        if let Some(supervisor) = self.supervisor.get() {
            supervisor.ready(&self.status());
        }
    }

    /// For people, in a line.
    fn status(&self) -> String {
        let targets = self.probe.targets().len();
        let volumes = self.server.volumes().iter().count();
        format!("serves {targets} target(s), {volumes} volume(s)")
    }

    /// All metrics now. Blocks for at most a second for each who asks at the same time.
    pub fn metrics(&self) -> String {
        render::text(&self.probe.sample(&self.server, &self.reloads, || self.sessions()))
    }

    /// Whether all is well. Asks no core, and does not block.
    pub fn health(&self) -> Health {
        Health::of(&self.server)
    }

    /// What it says of itself once it serves.
    pub fn announcement(&self) -> String {
        let volumes = self.volumes();
        self.with_config(|config| announce::text(config, &volumes, &self.server.portals()))
    }

    /// What to type on a host to use what is served.
    pub fn usage(&self) -> String {
        self.with_config(|config| announce::usage(config, &self.server.portals()))
    }

    /// Who uses each front end. Blocks for at most a second for each.
    pub(crate) fn sessions(&self) -> Vec<ServedSession> {
        self.front_ends.iter().flat_map(|front_end| front_end.sessions(&self.server)).collect()
    }

    /// What targets are served. Blocks as [`Live::sessions`] does.
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

    /// Ends the sessions with this TSIH, or of this initiator. Returns how many. Each front end has numbers of its own: one that
    /// two of them have is refused without the front end's name, as in `nbd:3`. Blocks as [`Live::sessions`] does.
    pub(crate) fn drop_sessions(&self, which: &str, force: bool) -> Result<usize, String> {
        let of_one = which.split_once(':').filter(|(name, number)| {
            number.parse::<u16>().is_ok() && self.front_ends.iter().any(|front_end| front_end.name() == *name)
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
                    "{number} is the number of several sessions: name one of {}",
                    of.join(", ")
                ));
            }
        }
        let front_ends =
            self.front_ends.iter().filter(|front_end| only.is_none_or(|name| front_end.name() == name));
        Ok(front_ends.map(|front_end| front_end.drop_sessions(&self.server, which, force)).sum())
    }

    /// Does something with the configuration that is served now. A reload waits meanwhile, and it may be one
    /// that lasts that is waited for.
    pub fn with_config<T>(&self, what: impl FnOnce(&Config) -> T) -> T {
        what(&self.now().config)
    }

    /// Has the server end in good order: initiators are asked to log out, and commands in flight have so much
    /// time.
    pub fn shutdown(&self, grace: Duration) {
        tracing::info!(grace_seconds = grace.as_secs(), "ending: initiators are asked to log out");
        if let Some(supervisor) = self.supervisor.get() {
            supervisor.stopping();
        }
        self.server.shutdown(grace);
    }

    pub(crate) fn now(&self) -> MutexGuard<'_, LiveState> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases the lock until an order to a RAID set has ended.
    pub(crate) fn order_ended<'a>(&'a self, mut now: MutexGuard<'a, LiveState>) -> MutexGuard<'a, LiveState> {
        debug_assert!(!now.ordered.is_empty(), "an order ends");
        now.waiting += 1;
        tracing::info!(waiting = now.waiting, "a change waits for an order to a RAID set");
        let mut now = self.orders.wait(now).unwrap_or_else(PoisonError::into_inner);
        now.waiting -= 1;
        now
    }

    /// What is served, locked for a change to the configuration that `plan` makes of it. If the change touches a volume with an
    /// order to a RAID set, it waits for the order without the lock, and plans again.
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

    /// Reads the configuration again and serves that. The audit says `by` whom.
    ///
    /// # Errors
    /// Nothing has changed, and why.
    pub fn reload(&self, options: ReloadOptions, by: &str) -> Result<Reloaded, Failure> {
        self.noted(options, by, || {
            let plan = |now: &LiveState| Ok((now.start_options.safe_config()?, ()));
            let (mut now, wanted, ()) = self.lock_for(options, plan)?;
            self.serve(&mut now, wanted, options, None)
        })
    }

    /// Changes what is served, and tells the audit, subscribers, metrics and the service manager how that went.
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
            Ok(Reloaded { changes, failed, .. }) => {
                let (changes, failed) = (changes.clone(), failed.clone());
                self.events.publish(Event::ReloadApplied { changes, failed });
            }
            Err(failure) => self.events.publish(Event::ReloadRefused { reason: failure.to_string() }),
        }
        self.reloads.ended(outcome.as_ref().is_ok_and(|reloaded| reloaded.failed.is_empty()));
        self.tell_ready();
        outcome
    }

    /// Serves `wanted` from now on. With an error nothing has changed. An `order` is what differs in it from the file.
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
            Some(Change::Resize { volume, shrink: true, discard_data, .. }) => {
                (None, Some(volume), *discard_data)
            }
            _ => (None, None, false),
        };
        let without_order = |volume: &config::Volume| {
            let shrunk = difference.shrunk.iter().find(|(name, ..)| *name == volume.name)?;
            Some(shrunk).filter(|(name, ..)| Some(name) != cut).map(|shrunk| (shrunk, volume.spec.clone()))
        };
        if let Some(((name, before, bytes), spec)) = wanted.volumes.iter().find_map(without_order) {
            return Err(volumes::too_small(name, &spec, *before, *bytes));
        }
        let mut reloaded = Reloaded { changes: difference.lines.clone(), ..Reloaded::default() };
        if !difference.at_next_start.is_empty() {
            let keys = difference.at_next_start.join(", ");
            reloaded.notes.push(format!("counts from the next start on: {keys}"));
        }
        let losses = self.losses(now, &wanted, &difference);
        if difference.is_empty() || options.dry_run {
            let line = |loss| format!("in use: {loss}; --force takes it away all the same");
            reloaded.notes.extend(losses.iter().map(line));
            if !difference.shrunk.is_empty() && !discard_data {
                reloaded
                    .notes
                    .push("a dry run does not look for data in the part that is cut off".to_owned());
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
        let known: Vec<&VolumeName> = added.into_iter().filter(|name| self.state.keeps(name)).collect();
        let opened =
            volumes::open_these(&wanted, &difference.added, &self.state, &self.openers, added, &undo)
                .and_then(|opened| {
                    next.all_but(&difference.reopened).are_distinct_from(&opened).map(|()| opened)
                })
                .inspect_err(|_| undo.take_back())?;
        reloaded.notes.extend(known.iter().filter_map(|name| opened.get(name)?.of_created_file(name)));
        next.adopt(opened);
        let without_reopened = next.all_but(&difference.reopened);
        let units = without_reopened.units();
        let serving = Serving { config: &wanted, units: &units };
        self.apply(serving).map_err(|error| {
            undo.take_back();
            Failure::refused(format!("cannot listen on {error}"))
        })?;
        undo.keep();
        let taken = losses.iter().map(|loss| format!("taken away: {loss}"));
        reloaded.notes.extend(taken);
        now.volumes.rename(&difference.renamed);
        let to_cut: Vec<ToCut> = difference
            .shrunk
            .iter()
            .filter_map(|(name, _, bytes)| {
                let opened = now.volumes.get(name)?;
                let (device, kept) = (Arc::clone(opened.unit.volume().device()), Arc::clone(&opened.kept));
                Some(ToCut { name: name.clone(), bytes: *bytes, device, kept })
            })
            .collect();
        let gone = difference.removed.iter().chain(&difference.reopened);
        let gone: Vec<(VolumeName, Opened)> = gone.filter_map(|name| now.volumes.take(name)).collect();
        now.volumes = without_reopened;
        drop(next);
        let in_doubt = close(gone, &mut reloaded.failed);
        let mut uncut = Vec::new();
        for volume in to_cut {
            let is_closed = !in_doubt.contains(&volume.name);
            let name = volume.name.clone();
            if let Err(error) = volume.prepare(is_closed, discard_data) {
                reloaded.failed.push(format!("{error}; it stays what it was"));
                uncut.push(name);
            }
        }
        let Reopened { unchanged, not_served } =
            self.reopen(now, &wanted, &difference, &uncut, &mut reloaded.failed);
        self.rename(&now.volumes, &difference, &mut reloaded.failed);
        // Or an order to create a file would count again, or never.
        for name in &difference.reordered {
            if let Some(opened) = now.volumes.get(name)
                && let Some(volume) = wanted.volumes.iter().find(|volume| volume.name == *name)
                && let Err(error) = block_on(opened.kept.keep_spec(volume.spec.to_string()))
            {
                reloaded
                    .failed
                    .push(format!("the specification of volume {name} could not be kept: {error}"));
            }
        }
        let not_grown =
            grow(&self.server, &now.volumes, &wanted.volumes, &difference.grown, &mut reloaded.failed);
        let before = std::mem::replace(&mut now.config, wanted);
        // What has failed is different from what is wanted, and tried again by the next reload.
        now.config.keep_volumes(&before, &[not_grown, unchanged].concat());
        now.config.volumes.retain(|volume| !not_served.contains(&volume.name));
        now.volumes.describe(&now.config);
        self.tell_volumes(&difference, &now.volumes);
        self.probe.describe(&now.config, &now.volumes);
        if difference.metrics
            && let Err(error) = self.serve_metrics(metrics)
        {
            reloaded.failed.push(format!("metrics are not served: {error}"));
        }
        Ok(reloaded)
    }

    /// Tells subscribers of volumes that have come, gone and changed; of those that have grown the server does.
    fn tell_volumes(&self, difference: &Difference, served: &Volumes) {
        let text = |name: &VolumeName| name.to_string();
        let is_served = |name: &&VolumeName| served.get(name).is_some();
        let (reopened, lost): (Vec<_>, Vec<_>) = difference.reopened.iter().partition(is_served);
        let renamed = difference.renamed.iter();
        let renamed = renamed.map(|(from, to)| Event::VolumeRenamed { volume: text(to), from: text(from) });
        let removed =
            difference.removed.iter().chain(lost).map(|name| Event::VolumeRemoved { volume: text(name) });
        let replaced = reopened.into_iter().map(|name| Event::VolumeReplaced { volume: text(name) });
        let added = difference.added.iter().map(|name| Event::VolumeAdded { volume: text(name) });
        renamed.chain(removed).chain(replaced).chain(added).for_each(|event| self.events.publish(event));
    }

    /// What initiators would lose. Of volumes that are new they have nothing yet.
    pub(crate) fn losses(&self, now: &LiveState, wanted: &Config, difference: &Difference) -> Vec<String> {
        let gone: Vec<VolumeName> = difference.removed.iter().chain(&difference.reopened).cloned().collect();
        let mut next = now.volumes.all_but(&[]);
        next.rename(&difference.renamed);
        let units = next.all_but(&gone).units();
        let wanted = Serving { config: wanted, units: &units };
        let portals = wanted.of_server().portals;
        self.front_ends
            .iter()
            .flat_map(|front_end| front_end.losses(&self.server, wanted, &portals))
            .collect()
    }

    /// What is kept under a name is somebody's identity and reservations: no volume takes them over by being
    /// renamed.
    fn check_names(&self, difference: &Difference) -> Result<(), Failure> {
        let is_taken = |(_, to): &&(VolumeName, VolumeName)| self.state.keeps(to);
        match difference.renamed.iter().find(is_taken) {
            None => Ok(()),
            Some((from, to)) => Err(Failure::refused(format!(
                "volume {from} cannot be called {to}: something is kept under that name in {}; take another \
                 name, or remove it",
                self.state.directory().display()
            ))),
        }
    }

    fn apply(&self, wanted: Serving<'_>) -> std::io::Result<()> {
        let adopt = || self.front_ends.iter().for_each(|front_end| front_end.adopt(wanted));
        let reconfigured = self.server.reconfigure(wanted.of_server(), adopt);
        reactor::block_on(reactor::Alone::real_time(), reconfigured).map(drop)
    }

    /// Opens the closed volumes with their new specifications. Those in `uncut`, and those that cannot be opened, keep the former ones.
    fn reopen(
        &self,
        now: &mut LiveState,
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
            difference.reopened.iter().all(|name| now.volumes.get(name).is_none()),
            "they are closed"
        );
        for name in &difference.reopened {
            let one = std::slice::from_ref(name);
            let undo = Undo::default();
            let open = |config| volumes::open_these(config, one, &self.state, &self.openers, None, &undo);
            let opened = if uncut.contains(name) {
                reopened.unchanged.push(name.clone());
                open(&now.config)
            } else {
                let opened = open(wanted);
                let opened =
                    opened.and_then(|opened| now.volumes.are_distinct_from(&opened).map(|()| opened));
                opened.or_else(|error| {
                    undo.take_back();
                    failed.push(format!("{error}; it stays what it was"));
                    reopened.unchanged.push(name.clone());
                    open(&now.config)
                })
            };
            match opened {
                Ok(opened) => now.volumes.adopt(opened),
                Err(error) => failed.push(error.to_string()),
            }
            undo.keep();
            if now.volumes.get(name).is_none() {
                failed.push(format!("volume {name} is not served any more"));
                reopened.not_served.push(name.clone());
            }
        }
        if let Err(error) = self.apply(Serving { config: wanted, units: &now.volumes.units() }) {
            failed.push(format!("cannot listen on {error}"));
        }
        reopened
    }

    /// What is kept of a volume is kept under its name.
    fn rename(&self, volumes: &Volumes, difference: &Difference, failed: &mut Vec<String>) {
        // One that was opened again has been by its new name.
        for (from, to) in difference.renamed.iter().filter(|(_, to)| !difference.reopened.contains(to)) {
            let Some(opened) = volumes.get(to) else { continue };
            if let Err(error) = block_on(opened.kept.rename(&self.state, to)) {
                failed.push(format!("what is kept of volume {from} could not be renamed: {error}"));
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

/// Tells the service manager how the server is, until that has ended.
fn watch(live: &Weak<Live>, period: Duration, has_watchdog: bool) {
    loop {
        let begin = Instant::now();
        let Some(live) = live.upgrade() else { return };
        let answers = live.server.ask_cores(period, |_| ()).into_iter().enumerate();
        let silent: Vec<usize> =
            answers.filter(|(_, answer)| answer.is_none()).map(|(core, _)| core).collect();
        let Some(supervisor) = live.supervisor.get() else { return };
        match &silent[..] {
            [] if has_watchdog => supervisor.tell(&format!("WATCHDOG=1\nSTATUS={}", live.status())),
            [] => supervisor.tell(&format!("STATUS={}", live.status())),
            _ => {
                tracing::error!(reactors = ?silent, "reactor threads do not answer");
                supervisor.tell(&format!("STATUS=reactor threads do not answer: {silent:?}"));
            }
        }
        drop(live);
        thread::sleep(period.saturating_sub(begin.elapsed()));
    }
}

/// Who has changed what, a line each.
fn audit(outcome: &Result<Reloaded, Failure>, options: ReloadOptions, by: &str) {
    let force = options.force;
    match outcome {
        Ok(Reloaded { changes, notes, failed }) => {
            tracing::info!(target: AUDIT, by, force, changes = changes.len(), "configuration changed");
            changes.iter().for_each(|change| tracing::info!(target: AUDIT, by, change, "changed"));
            notes.iter().for_each(|note| tracing::info!(target: AUDIT, by, note, "changed"));
            failed.iter().for_each(|why| tracing::error!(target: AUDIT, by, why, "not changed"));
        }
        Err(failure) => {
            // Of several mistakes each has lines of its own.
            let why = failure.to_string();
            why.lines().for_each(|why| tracing::error!(target: AUDIT, by, why, "configuration not changed"));
        }
    }
}

/// A volume of which a part is to be cut off, when it has been closed.
struct ToCut {
    name: VolumeName,
    bytes: Bytes,
    /// As long as it was.
    device: Arc<dyn BlockDevice>,
    kept: Arc<UnitState>,
}

impl ToCut {
    /// Keeps the new length, with which the next start opens the volume, if the part behind it has no data. Hosts could write there
    /// until the volume was closed, so that an earlier check is not enough.
    fn prepare(self, is_closed: bool, discard_data: bool) -> Result<(), Failure> {
        let ToCut { name, bytes, device, kept } = self;
        if !discard_data {
            if !is_closed {
                return Err(Failure::refused(format!(
                    "volume {name} is not cut to {bytes}: data may still be written to it"
                )));
            }
            // Requests that were aborted may be with the kernel.
            let quiesced = block_on(answered(device.quiesced()));
            quiesced.map_err(|error| {
                Failure::device(format_args!("volume {name} is not cut to {bytes}"), error)
            })?;
            block_on(shrink::check(&name, device.as_ref(), bytes))?;
        }
        block_on(kept.keep_bytes(bytes.0)).map_err(|error| {
            Failure::failed(format_args!("the size of volume {name} could not be kept: {error}"))
        })
    }
}

/// Refuses a change that takes away what initiators use, unless it is forced.
pub(crate) fn refuse_losses(losses: &[String], options: ReloadOptions) -> Result<(), Failure> {
    if losses.is_empty() || options.force {
        return Ok(());
    }
    Err(Failure::refused(format!(
        "nothing was changed, since it would take away what is in use; --force does it all the same:\n  {}",
        losses.join("\n  ")
    )))
}

/// Flushes and closes volumes that are no longer served. Returns those that may have requests or unwritten data yet.
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
                true => "its device does not answer",
                false => "commands of it have not ended",
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

/// The volume, if it is still open after this time. Sessions release a volume when the last of its commands has been answered.
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

/// Makes files longer, and tells initiators. Returns the names of those that stay as they are.
fn grow(
    server: &Server,
    volumes: &Volumes,
    specs: &[config::Volume],
    grown: &[(VolumeName, Bytes)],
    failed: &mut Vec<String>,
) -> Vec<VolumeName> {
    let mut not_grown = Vec::new();
    debug_assert!(grown.iter().all(|(name, _)| specs.iter().any(|volume| volume.name == *name)));
    for (name, bytes) in grown {
        let Some(opened) = volumes.get(name) else { continue };
        let growth = reactor::timeout(GROW_TIME, opened.unit.volume().device().grow(bytes.0));
        match block_on(growth).unwrap_or(Err(DeviceError::TimedOut)) {
            Ok(()) => {
                server.volume_grew(opened.unit.volume());
                if let Some(spec) =
                    specs.iter().find(|volume| volume.name == *name).map(|volume| &volume.spec)
                    && let Err(error) = block_on(opened.kept.keep_served(spec.to_string(), bytes.0))
                {
                    failed.push(format!("the size of volume {name} could not be kept: {error}"));
                }
            }
            Err(error) => {
                failed.push(format!("volume {name} does not grow to {bytes}: {error}"));
                not_grown.push(name.clone());
            }
        }
    }
    not_grown
}

/// A file that grows writes back its cached data first, which may be gigabytes.
const GROW_TIME: Duration = Duration::from_secs(60);
const CLOSE_STEP: Duration = Duration::from_millis(5);
