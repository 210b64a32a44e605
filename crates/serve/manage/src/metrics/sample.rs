//! A server at a moment, as monitoring sees it.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use server::{Phase, RunningCore};
use target::{CoreStatistics, Target};
use unit::LogicalUnit;
use volume::Volume;

use crate::config::Config;
use crate::live::Live;

/// How long a core may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// All that is known at a moment.
pub(super) struct Sample {
    pub(super) phase: Phase,
    pub(super) io_engine: &'static str,
    /// `None`: it did not answer in time.
    pub(super) cores: Vec<Option<CoreSample>>,
    pub(super) volumes: Vec<VolumeSample>,
    /// Of iSCSI.
    pub(super) targets: Vec<Arc<Target>>,
    pub(super) generation: u64,
    pub(super) reloads: ReloadCounts,
    pub(super) started: SystemTime,
}

/// What one core answers.
pub(super) struct CoreSample {
    pub(super) lag: Duration,
    pub(super) cpu: Duration,
    pub(super) statistics: CoreStatistics,
}

/// A volume that is served.
pub(super) struct VolumeSample {
    pub(super) name: String,
    pub(super) backend: &'static str,
    pub(super) volume: Arc<Volume>,
    pub(super) unit: Arc<LogicalUnit>,
}

/// What a server keeps to be asked for samples.
pub(crate) struct Probe {
    /// What volumes are made of, outermost, by name.
    backends: Mutex<BTreeMap<String, &'static str>>,
    io_engine: &'static str,
    started: SystemTime,
}

impl Probe {
    pub(crate) fn new(config: &Config) -> Probe {
        let probe = Probe {
            backends: Mutex::default(),
            io_engine: match config.io_engine.unwrap_or_default().choose() {
                Ok(host::IoEngine::Uring) => "uring",
                _ => "threads",
            },
            started: SystemTime::now(),
        };
        probe.describe(config);
        probe
    }

    /// This is served from now on.
    pub(crate) fn describe(&self, config: &Config) {
        let kinds =
            config.volumes.iter().map(|volume| (volume.name.to_string(), volume.spec.backend.kind().name));
        *self.backends.lock().unwrap_or_else(PoisonError::into_inner) = kinds.collect();
    }
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
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        *latest = (succeeded, if succeeded { SystemTime::now() } else { latest.1 });
    }

    fn counts(&self) -> ReloadCounts {
        let (last_succeeded, in_force_since) = *self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let (succeeded, failed) =
            (self.succeeded.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed));
        ReloadCounts { succeeded, failed, last_succeeded, in_force_since }
    }
}

impl Live {
    /// The server now. It takes no lock that a reload holds.
    pub(super) fn sample(&self) -> Sample {
        let (server, probe) = (self.server(), self.probe());
        let targets = self.iscsi().map_or_else(Vec::new, |iscsi| iscsi.config().targets.clone());
        let snapshot = server.volumes();
        let exports = targets.iter().flat_map(|target| &target.exports);
        let units: BTreeMap<&str, &Arc<LogicalUnit>> =
            exports.map(|export| (export.volume.as_str(), &export.unit)).collect();
        let backends = probe.backends.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let volume = |(name, volume): (&str, &Arc<Volume>)| {
            let unit = units.get(name).filter(|unit| Arc::ptr_eq(unit.volume(), volume))?;
            Some(VolumeSample {
                name: name.to_owned(),
                backend: backends.get(name).copied().unwrap_or_default(),
                volume: Arc::clone(volume),
                unit: Arc::clone(unit),
            })
        };
        let volumes = snapshot.iter().filter_map(volume).collect();
        let begin = Instant::now();
        let core = move |local: &Rc<RunningCore>| CoreSample {
            lag: begin.elapsed(),
            cpu: host::cputime::thread(),
            statistics: target::statistics(local).unwrap_or_default(),
        };
        Sample {
            phase: server.phase(),
            io_engine: probe.io_engine,
            cores: server.ask_cores(ANSWER_TIME, core),
            volumes,
            targets,
            generation: snapshot.version(),
            reloads: self.reloads().counts(),
            started: probe.started,
        }
    }
}
