//! A server at a moment, as monitoring sees it.

use std::collections::BTreeMap;
use std::mem;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use server::{CoreStatistics, Phase, RunningCore};
use volume::Volume;

use crate::config::{Config, Uuid};
use crate::control::Target;
use crate::live::Live;
use crate::volumes::Volumes;

/// How long a core may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// All that is known at a moment.
pub(super) struct Sample {
    pub(super) phase: Phase,
    pub(super) io_engine: &'static str,
    pub(super) cores: Vec<CoreState>,
    pub(super) volumes: Vec<VolumeSample>,
    pub(super) targets: Arc<[Target]>,
    pub(super) generation: u64,
    pub(super) reloads: ReloadCounts,
    pub(super) started: SystemTime,
}

/// A core, as far as is known.
#[derive(Clone, Default)]
pub(super) struct CoreState {
    /// Whether it has answered this time, and how long that took.
    pub(super) lag: Option<Duration>,
    /// Its latest answer: counters must not fall while it hangs.
    pub(super) latest: Option<Arc<CoreSample>>,
}

/// What one core answers.
pub(super) struct CoreSample {
    pub(super) cpu: Duration,
    pub(super) spin: Duration,
    /// Memory that commands hold, and may hold, in bytes.
    pub(super) memory_used: usize,
    pub(super) memory_limit: usize,
    /// By the name of the front end.
    pub(super) front_ends: Vec<(&'static str, CoreStatistics)>,
}

/// A volume that is served.
pub(super) struct VolumeSample {
    pub(super) name: String,
    /// What it is made of, outermost, and its identity; not known for a moment while a reload adds it.
    pub(super) description: Option<(&'static str, Uuid)>,
    pub(super) volume: Arc<Volume>,
}

/// What a server keeps to be asked for samples.
pub(crate) struct Probe {
    described: Mutex<Described>,
    cores: Mutex<Vec<CoreState>>,
    io_engine: &'static str,
    started: SystemTime,
}

/// What is served, for which a sample must not wait: a reload holds the configuration for as long as it lasts.
#[derive(Clone)]
struct Described {
    volumes: Arc<BTreeMap<String, (&'static str, Uuid)>>,
    targets: Arc<[Target]>,
}

impl Described {
    fn of(config: &Config, volumes: &Volumes) -> Described {
        let described = config.volumes.iter().filter_map(|volume| {
            let uuid = Uuid(volumes.unit(&volume.name)?.identity().uuid);
            Some((volume.name.to_string(), (volume.spec.backend.kind().name, uuid)))
        });
        Described {
            volumes: Arc::new(described.collect()),
            targets: config.front_ends().flat_map(|front_end| front_end.targets(&[])).collect(),
        }
    }
}

impl Probe {
    pub(crate) fn new(config: &Config, volumes: &Volumes) -> Probe {
        Probe {
            described: Mutex::new(Described::of(config, volumes)),
            cores: Mutex::default(),
            io_engine: match config.io_engine.unwrap_or_default().choose() {
                Ok(host::IoEngine::Uring) => "uring",
                _ => "threads",
            },
            started: SystemTime::now(),
        }
    }

    /// This is served from now on.
    pub(crate) fn describe(&self, config: &Config, volumes: &Volumes) {
        *lock(&self.described) = Described::of(config, volumes);
    }

    /// The targets of all front ends, without their sessions.
    pub(crate) fn targets(&self) -> Arc<[Target]> {
        Arc::clone(&lock(&self.described).targets)
    }

    /// The state of all cores after these answers.
    fn heard(&self, answers: Vec<Option<(Duration, CoreSample)>>) -> Vec<CoreState> {
        let mut cores = lock(&self.cores);
        cores.resize_with(answers.len(), CoreState::default);
        for (core, answer) in cores.iter_mut().zip(answers) {
            *core = match answer {
                Some((lag, sample)) => CoreState { lag: Some(lag), latest: Some(Arc::new(sample)) },
                None => CoreState { lag: None, ..mem::take(core) },
            };
        }
        cores.clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How reloads went.
pub(crate) struct Reloads {
    succeeded: AtomicU64,
    failed: AtomicU64,
    latest: Mutex<(bool, SystemTime)>,
}

/// The same at a moment.
#[derive(Clone, Copy)]
pub(super) struct ReloadCounts {
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    /// Whether the latest one succeeded.
    pub(super) last_succeeded: bool,
    /// When the configuration in force was read.
    pub(super) in_force_since: SystemTime,
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
    /// One has ended.
    pub(crate) fn ended(&self, succeeded: bool) {
        let count = if succeeded { &self.succeeded } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
        let mut latest = lock(&self.latest);
        *latest = (succeeded, if succeeded { SystemTime::now() } else { latest.1 });
    }

    fn counts(&self) -> ReloadCounts {
        let (last_succeeded, in_force_since) = *lock(&self.latest);
        let (succeeded, failed) =
            (self.succeeded.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed));
        ReloadCounts { succeeded, failed, last_succeeded, in_force_since }
    }
}

impl Live {
    /// The server now. It takes no lock that a reload holds.
    pub(super) fn sample(&self) -> Sample {
        let (server, probe) = (self.server(), self.probe());
        let (snapshot, described) = (server.volumes(), lock(&probe.described).clone());
        let volume = |(name, volume): (&str, &Arc<Volume>)| VolumeSample {
            name: name.to_owned(),
            description: described.volumes.get(name).copied(),
            volume: Arc::clone(volume),
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
        Sample {
            phase: server.phase(),
            io_engine: probe.io_engine,
            cores: probe.heard(server.ask_cores(ANSWER_TIME, core)),
            volumes,
            targets: described.targets,
            generation: snapshot.version(),
            reloads: self.reloads().counts(),
            started: probe.started,
        }
    }
}
