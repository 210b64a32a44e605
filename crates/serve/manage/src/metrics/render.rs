//! A sample as Prometheus' text.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use server::Phase;
use target::{CoreStatistics, Count, Durations, InitiatorStatistics, Operation, VolumeStatistics};
use volume::Volume;

use crate::config::Uuid;

use super::exposition::{Exposition, Family, seconds};
use super::families::{self as all};
use super::sample::{CoreSample, Sample, VolumeSample};

/// A family, and where its values come from.
type Column<T> = (&'static Family, T);
type VolumeValue<'a> = &'a dyn Fn(&Volume) -> u64;
type CoreCounts = fn(&CoreStatistics) -> &[Count];
type InitiatorValue = fn(&InitiatorStatistics) -> u64;
type CoreValue = fn(&CoreSample) -> f64;

/// All metrics.
pub(super) fn text(sample: &Sample) -> String {
    let mut out = Exposition::default();
    server(&mut out, sample);
    volumes(&mut out, sample);
    targets(&mut out, sample);
    reactors(&mut out, sample);
    process(&mut out, sample.started);
    out.into_text()
}

fn server(out: &mut Exposition, sample: &Sample) {
    let reloads = &sample.reloads;
    out.family(&all::BUILD).add(&[env!("CARGO_PKG_VERSION"), sample.io_engine], 1);
    out.family(&all::UP_PHASE).add(&[], u8::from(sample.phase == Phase::Open));
    out.family(&all::CONFIG_GENERATION).add(&[], sample.generation);
    out.family(&all::CONFIG_OK).add(&[], u8::from(reloads.last_succeeded));
    out.family(&all::CONFIG_TIME).add(&[], timestamp(reloads.in_force_since));
    let mut family = out.family(&all::RELOADS);
    family.add(&["success"], reloads.succeeded);
    family.add(&["failure"], reloads.failed);
}

/// What all cores have counted of one volume.
#[derive(Default)]
struct VolumeSum {
    durations: BTreeMap<Operation, Durations>,
    waits: u64,
    failures: BTreeMap<(Operation, &'static str), u64>,
    in_flight: u64,
}

impl VolumeSum {
    fn add(&mut self, other: &VolumeStatistics) {
        for (operation, durations) in &other.durations {
            self.durations.entry(*operation).or_default().add(durations);
        }
        for (operation, kind, count) in &other.failures {
            *self.failures.entry((*operation, *kind)).or_default() += count;
        }
        self.waits += other.waits;
        self.in_flight += other.in_flight;
    }
}

fn statistics(sample: &Sample) -> impl Iterator<Item = &CoreStatistics> {
    sample.cores.iter().flatten().map(|core| &core.statistics)
}

fn volumes(out: &mut Exposition, sample: &Sample) {
    let mut sums: BTreeMap<*const Volume, VolumeSum> = BTreeMap::new();
    for counted in statistics(sample).flat_map(|core| &core.volumes) {
        sums.entry(counted.volume.as_ptr()).or_default().add(counted);
    }
    let none = VolumeSum::default();
    let volumes: Vec<(&VolumeSample, &VolumeSum)> = sample
        .volumes
        .iter()
        .map(|volume| (volume, sums.get(&Arc::as_ptr(&volume.volume)).unwrap_or(&none)))
        .collect();

    let mut family = out.family(&all::VOLUME_INFO);
    for (volume, _) in &volumes {
        family.add(&[&volume.name, volume.backend, &Uuid(volume.unit.identity().uuid).to_string()], 1);
    }
    let mut family = out.family(&all::VOLUME_SIZE);
    for (volume, _) in &volumes {
        family.add(&[&volume.name], volume.volume.device().geometry().bytes());
    }
    let mut family = out.family(&all::VOLUME_COMMANDS);
    for (volume, sum) in &volumes {
        for (operation, durations) in &sum.durations {
            family.add(&[&volume.name, operation.name()], durations.counts.iter().sum::<u64>());
        }
    }
    let mut family = out.family(&all::VOLUME_BYTES);
    for (volume, _) in &volumes {
        let (traffic, shift) = (volume.unit.traffic(), volume.volume.device().geometry().block_size.shift());
        family.add(&[&volume.name, "read"], traffic.blocks_sent << shift);
        family.add(&[&volume.name, "write"], traffic.blocks_received << shift);
    }
    let mut family = out.family(&all::VOLUME_DURATION);
    for (volume, sum) in &volumes {
        for (operation, durations) in &sum.durations {
            family.histogram(&[&volume.name, operation.name()], durations);
        }
    }
    let mut family = out.family(&all::VOLUME_ERRORS);
    for (volume, sum) in &volumes {
        for ((operation, kind), count) in &sum.failures {
            family.add(&[&volume.name, operation.name(), kind], count);
        }
    }
    let mut family = out.family(&all::VOLUME_IN_FLIGHT);
    for (volume, sum) in &volumes {
        family.add(&[&volume.name], sum.in_flight);
    }
    let mut family = out.family(&all::VOLUME_WAITS);
    for (volume, sum) in &volumes {
        family.add(&[&volume.name], sum.waits);
    }
    states(out, &sample.volumes);
}

/// What volumes know of themselves.
fn states(out: &mut Exposition, volumes: &[VolumeSample]) {
    let is_reserved =
        |volume: &Volume| volume.reservations().reservation().is_some() || volume.reserved_by().is_some();
    let condition = |volume: &Volume| volume.health().condition();
    let families: [Column<VolumeValue<'_>>; 8] = [
        (&all::VOLUME_CACHE, &|volume| volume.device().profile().volatile_cache.into()),
        (&all::VOLUME_STORAGE_ERRORS, &|volume| condition(volume).failed),
        (&all::VOLUME_FAILING, &|volume| condition(volume).is_failing.into()),
        (&all::VOLUME_SILENT, &|volume| condition(volume).silent.is_some().into()),
        (&all::VOLUME_FENCED, &|volume| volume.is_fenced().into()),
        (&all::VOLUME_FENCES, &|volume| volume.fences_made()),
        (&all::VOLUME_RESERVED, &|volume| is_reserved(volume).into()),
        (&all::VOLUME_PROTECTED, &|volume| volume.write_protection().is_some().into()),
    ];
    for (family, value) in families {
        let mut family = out.family(family);
        volumes.iter().for_each(|volume| family.add(&[&volume.name], value(&volume.volume)));
    }
}

/// Adds up what cores have counted by target and word.
fn words(sample: &Sample, which: fn(&CoreStatistics) -> &[Count]) -> BTreeMap<(&str, &'static str), u64> {
    let mut sums = BTreeMap::new();
    for Count { target, what, count } in statistics(sample).flat_map(which) {
        *sums.entry((target.as_str(), *what)).or_default() += count;
    }
    sums
}

fn targets(out: &mut Exposition, sample: &Sample) {
    let targets = &sample.targets;
    let mut family = out.family(&all::TARGET_LUNS);
    targets.iter().for_each(|target| family.add(&[&target.name], target.exports.len()));
    let mut family = out.family(&all::TARGET_OPEN);
    for target in targets {
        let is_open = target.access.is_open() && target.authentication.is_none();
        family.add(&[&target.name], u8::from(is_open));
    }
    initiators(out, sample);
    let discovery: usize = statistics(sample).map(|core| core.discovery_sessions).sum();
    out.family(&all::DISCOVERY_SESSIONS).add(&[], discovery);
    let families: [Column<CoreCounts>; 4] = [
        (&all::LOGINS, |core| &core.logins),
        (&all::CONNECTIONS_CLOSED, |core| &core.connections_closed),
        (&all::TASK_MANAGEMENT, |core| &core.task_management),
        (&all::UNIT_ATTENTIONS, |core| &core.unit_attentions),
    ];
    for (family, which) in families {
        let mut family = out.family(family);
        words(sample, which).iter().for_each(|((target, what), count)| family.add(&[target, what], count));
    }
}

fn initiators(out: &mut Exposition, sample: &Sample) {
    let mut sums: BTreeMap<(&str, &str), InitiatorStatistics> = BTreeMap::new();
    for counted in statistics(sample).flat_map(|core| &core.initiators) {
        sums.entry((&counted.target, &counted.initiator))
            .and_modify(|sum| {
                sum.sessions += counted.sessions;
                sum.connections += counted.connections;
                sum.traffic = sum.traffic.plus(counted.traffic);
            })
            .or_insert_with(|| counted.clone());
    }
    let families: [Column<InitiatorValue>; 3] = [
        (&all::SESSIONS, |sum| sum.sessions),
        (&all::CONNECTIONS, |sum| sum.connections),
        (&all::SESSION_COMMANDS, |sum| sum.traffic.commands),
    ];
    for (family, value) in families {
        let mut family = out.family(family);
        sums.iter().for_each(|((target, initiator), sum)| family.add(&[target, initiator], value(sum)));
    }
    let mut family = out.family(&all::SESSION_BYTES);
    for ((target, initiator), sum) in &sums {
        family.add(&[target, initiator, "read"], sum.traffic.read_bytes);
        family.add(&[target, initiator, "write"], sum.traffic.written_bytes);
    }
}

fn reactors(out: &mut Exposition, sample: &Sample) {
    let numbers: Vec<String> = (0..sample.cores.len()).map(|number| number.to_string()).collect();
    let mut family = out.family(&all::REACTOR_UP);
    for (number, core) in numbers.iter().zip(&sample.cores) {
        family.add(&[number], u8::from(core.is_some()));
    }
    let answered: Vec<(&str, &CoreSample)> = numbers
        .iter()
        .zip(&sample.cores)
        .filter_map(|(number, core)| Some((number.as_str(), core.as_ref()?)))
        .collect();
    let families: [Column<CoreValue>; 4] = [
        (&all::REACTOR_LAG, |core| seconds(core.lag)),
        (&all::REACTOR_CPU, |core| seconds(core.cpu)),
        (&all::STAGING, |core| core.statistics.memory_used as f64),
        (&all::STAGING_LIMIT, |core| core.statistics.memory_limit as f64),
    ];
    for (family, value) in families {
        let mut family = out.family(family);
        answered.iter().for_each(|(number, core)| family.add(&[number], value(core)));
    }
}

fn process(out: &mut Exposition, started: SystemTime) {
    out.family(&all::PROCESS_CPU).add(&[], seconds(host::cputime::process()));
    out.family(&all::PROCESS_START).add(&[], timestamp(started));
    if let Some(most) = host::limits::open_files() {
        out.family(&all::PROCESS_FILES_MAX).add(&[], most);
    }
    // Without procfs there is nothing to say.
    let Ok(usage) = host::usage::of_this_process() else { return };
    for (family, value) in [
        (&all::PROCESS_RESIDENT, usage.resident_bytes),
        (&all::PROCESS_VIRTUAL, usage.virtual_bytes),
        (&all::PROCESS_FILES, usage.open_files),
        (&all::PROCESS_THREADS, usage.threads),
    ] {
        out.family(family).add(&[], value);
    }
}

/// Seconds since 1970; a clock before that says 0.
fn timestamp(time: SystemTime) -> f64 {
    seconds(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO))
}
