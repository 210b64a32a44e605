//! A sample of a server's state, for monitoring.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use backends::layers::LayerStates;
use backends::raid::{self, Running};
use front_end_core::{CoreStatistics, Phase, RunningCore, Server};
use volume::Volume;
use volume::backend::Layers;

use crate::config::Config;
use crate::config::values::Uuid;
use crate::control::{ServedSession, Target};
use crate::volumes::{Opened, Volumes};

/// Time limit of a core's response.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// A session's labels: protocol, target, initiator, CHAP user (empty without CHAP), address.
pub(super) type SessionLabels = [String; 5];

/// Maximum number of different labels in the lifetime of a server. Initiators choose their own names, and
/// each combination is a time series that the monitoring system stores until its data expires.
const SESSION_LABELS_MAX: usize = 1024;

/// The whole sample. The default describes a server without volumes.
#[derive(Default)]
pub(crate) struct Sample {
    pub(super) phase: Phase,
    pub(super) io_engine: &'static str,
    pub(super) cores: Vec<CoreState>,
    pub(super) volumes: Vec<VolumeSample>,
    pub(super) targets: Arc<[Target]>,
    pub(super) sessions: BTreeSet<SessionLabels>,
    pub(super) generation: u64,
    pub(super) reloads: ReloadCounts,
    /// The time at which the server started, in seconds since 1970.
    pub(super) started: f64,
}

/// The known state of a core.
#[derive(Clone, Default)]
pub(super) struct CoreState {
    /// The response time of this sample; `None` if there was no response.
    pub(super) lag: Option<Duration>,
    /// The latest response of the core, which is kept while the core hangs: counters must not decrease.
    pub(super) latest: Option<Arc<CoreSample>>,
}

pub(super) struct CoreSample {
    pub(super) cpu: Duration,
    pub(super) spin: Duration,
    /// Memory that commands hold, and its limit, in bytes.
    pub(super) memory_used: usize,
    pub(super) memory_limit: usize,
    /// The statistics of each front end, by its name.
    pub(super) front_ends: Vec<(&'static str, CoreStatistics)>,
}

/// A served volume.
pub(super) struct VolumeSample {
    pub(super) name: String,
    /// The type of the volume's outermost layer, and its identity. `None` for a short time while a reload
    /// adds the volume.
    pub(super) description: Option<(&'static str, Uuid)>,
    pub(super) volume: Arc<Volume>,
    pub(super) layers: LayerStates,
}

/// The state that a server keeps for taking samples.
pub(crate) struct Probe {
    described: Mutex<Described>,
    cores: Mutex<Vec<CoreState>>,
    logged_in: Mutex<LoggedIn>,
    io_engine: &'static str,
    started: SystemTime,
}

/// Sessions with a target, by their labels.
#[derive(Default)]
struct LoggedIn {
    /// All labels ever exported, at most [`SESSION_LABELS_MAX`].
    known: BTreeSet<SessionLabels>,
    now: BTreeSet<SessionLabels>,
}

impl LoggedIn {
    fn update(&mut self, sessions: Vec<ServedSession>) {
        self.now.clear();
        for session in sessions {
            let (Some(target), Some(first)) = (session.target, session.connections.first()) else {
                continue;
            };
            let address = first.peer.without_port();
            let user = session.user.unwrap_or_default();
            let labels = [session.front_end, target, session.initiator, user, address];
            if self.known.len() < SESSION_LABELS_MAX || self.known.contains(&labels) {
                self.known.insert(labels.clone());
                self.now.insert(labels);
            }
        }
        debug_assert!(self.known.len() <= SESSION_LABELS_MAX && self.now.len() <= self.known.len());
        debug_assert!(
            self.now.is_subset(&self.known),
            "labels are counted before they are exported"
        );
    }
}

/// A description of the served configuration. It is separate because a sample must not wait for the lock of
/// the configuration, which a reload holds until it ends.
#[derive(Clone)]
struct Described {
    volumes: Arc<BTreeMap<String, (&'static str, Uuid, Layers)>>,
    targets: Arc<[Target]>,
}

impl Described {
    fn of(config: &Config, volumes: &Volumes) -> Described {
        let described = config.volumes.iter().filter_map(|volume| {
            let Opened { unit, layers, .. } = volumes.get(&volume.name)?;
            let (kind, uuid) = (volume.spec.backend.kind().name, Uuid(unit.identity().uuid));
            Some((volume.name.to_string(), (kind, uuid, layers.clone())))
        });
        Described {
            volumes: Arc::new(described.collect()),
            targets: config.targets(&[]).into(),
        }
    }
}

impl Probe {
    pub(crate) fn new(config: &Config, volumes: &Volumes) -> Probe {
        Probe {
            described: Mutex::new(Described::of(config, volumes)),
            cores: Mutex::default(),
            logged_in: Mutex::default(),
            io_engine: match config.io_engine.unwrap_or_default().choose() {
                Ok(host::IoEngine::Uring) => "uring",
                _ => "threads",
            },
            started: SystemTime::now(),
        }
    }

    /// Sets the served configuration.
    pub(crate) fn describe(&self, config: &Config, volumes: &Volumes) {
        *lock(&self.described) = Described::of(config, volumes);
    }

    /// The targets of all front ends, without their sessions.
    pub(crate) fn targets(&self) -> Arc<[Target]> {
        Arc::clone(&lock(&self.described).targets)
    }

    /// The RAID sets of all volumes; for each volume, starting with the outermost.
    pub(crate) fn sets(&self) -> Vec<Arc<Running>> {
        lock(&self.described)
            .volumes
            .values()
            .flat_map(|(.., layers)| raid::sets(layers))
            .collect()
    }

    /// Takes a sample now. It takes no lock that a reload holds.
    pub(crate) fn sample(
        &self,
        server: &Server,
        reloads: &Reloads,
        sessions: impl FnOnce() -> Vec<ServedSession>,
    ) -> Sample {
        let (snapshot, described) = (server.volumes(), lock(&self.described).clone());
        let volume = |(name, volume): (&str, &Arc<Volume>)| {
            let known = described.volumes.get(name);
            VolumeSample {
                name: name.to_owned(),
                description: known.map(|(kind, uuid, _)| (*kind, *uuid)),
                volume: Arc::clone(volume),
                layers: known
                    .map(|(.., layers)| LayerStates::of(layers))
                    .unwrap_or_default(),
            }
        };
        let volumes = snapshot.iter().map(volume).collect();
        let begin = Instant::now();
        let core = move |local: &Rc<RunningCore>| {
            let sample = CoreSample {
                cpu: host::cputime::thread(),
                spin: reactor::world().looked_in_vain(),
                memory_used: local.memory().used(),
                memory_limit: local.memory().limit(),
                front_ends: local.statistics(),
            };
            (begin.elapsed(), sample)
        };
        let cores = self.heard(server.ask_cores(ANSWER_TIME, core));
        // If a core hangs, do not wait for it again.
        if cores.iter().all(|core| core.lag.is_some()) {
            lock(&self.logged_in).update(sessions());
        }
        Sample {
            phase: server.phase(),
            io_engine: self.io_engine,
            cores,
            sessions: lock(&self.logged_in).now.clone(),
            volumes,
            targets: described.targets,
            generation: snapshot.version(),
            reloads: reloads.counts(),
            started: timestamp(self.started),
        }
    }

    /// Updates the state of all cores with these responses, and returns the state.
    fn heard(&self, answers: Vec<Option<(Duration, CoreSample)>>) -> Vec<CoreState> {
        let mut cores = lock(&self.cores);
        debug_assert!(
            cores.is_empty() || cores.len() == answers.len(),
            "a server keeps its cores"
        );
        cores.resize_with(answers.len(), CoreState::default);
        for (core, answer) in cores.iter_mut().zip(answers) {
            *core = match answer {
                Some((lag, sample)) => CoreState {
                    lag: Some(lag),
                    latest: Some(Arc::new(sample)),
                },
                None => CoreState {
                    lag: None,
                    ..mem::take(core)
                },
            };
        }
        cores.clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Seconds since 1970; 0 for earlier clocks.
fn timestamp(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

pub(crate) struct Reloads {
    succeeded: AtomicU64,
    failed: AtomicU64,
    latest: Mutex<(bool, SystemTime)>,
}

/// The counts of reloads at one point in time.
#[derive(Clone, Copy, Default)]
pub(super) struct ReloadCounts {
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    /// Whether the latest reload succeeded.
    pub(super) last_succeeded: bool,
    /// The end of the latest successful reload, or else the start of the server, in seconds since 1970.
    pub(super) in_force_since: f64,
}

impl Default for Reloads {
    fn default() -> Reloads {
        Reloads {
            succeeded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            latest: Mutex::new((true, SystemTime::now())),
        }
    }
}

impl Reloads {
    pub(crate) fn ended(&self, succeeded: bool) {
        let count = if succeeded {
            &self.succeeded
        } else {
            &self.failed
        };
        count.fetch_add(1, Ordering::Relaxed);
        let mut latest = lock(&self.latest);
        *latest = (
            succeeded,
            if succeeded {
                SystemTime::now()
            } else {
                latest.1
            },
        );
    }

    fn counts(&self) -> ReloadCounts {
        let (last_succeeded, read) = *lock(&self.latest);
        let (succeeded, failed) = (
            self.succeeded.load(Ordering::Relaxed),
            self.failed.load(Ordering::Relaxed),
        );
        ReloadCounts {
            succeeded,
            failed,
            last_succeeded,
            in_force_since: timestamp(read),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Connection;

    fn session(initiator: String, port: u16) -> ServedSession {
        let peer = front_end_core::HostAddress::Inet(([192, 0, 2, 7], port).into());
        ServedSession {
            front_end: "iscsi".to_owned(),
            initiator,
            user: Some("alice".to_owned()),
            isid: None,
            tsih: Some(port),
            target: Some("iqn.2026-01.com.example:disks".to_owned()),
            age_seconds: 1.0,
            core: 0,
            connections: vec![Connection {
                cid: Some(0),
                peer,
                local: peer.to_string(),
            }],
            parameters: Vec::new(),
            in_flight: 0,
            commands: 0,
            read_bytes: 0,
            written_bytes: 0,
        }
    }

    #[test]
    fn random_names_of_initiators_do_not_make_more_series_and_those_known_before_stay() {
        let mut logged_in = LoggedIn::default();
        let known = || "iqn.2026-01.com.example:known".to_owned();
        logged_in.update(vec![session(known(), 1), session(known(), 2)]);
        assert_eq!(logged_in.now.len(), 1, "the port is no label");
        logged_in.update(
            (0..10_000)
                .map(|number| session(format!("iqn.2026-01.com.example:{number}"), 3))
                .collect(),
        );
        assert_eq!(
            (logged_in.now.len(), logged_in.known.len()),
            (SESSION_LABELS_MAX - 1, SESSION_LABELS_MAX)
        );
        logged_in.update(vec![
            session(known(), 4),
            session("iqn.2026-01.com.example:late".to_owned(), 5),
        ]);
        let now: Vec<&str> = logged_in
            .now
            .iter()
            .map(|labels| labels[2].as_str())
            .collect();
        assert_eq!(now, [known()]);
    }
}
