//! A sample as Prometheus' text.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use backends::raid::{Condition, MemberCondition, MemberStatus, SetState};
use backends::secrets::masked;
use front_end_core::{
    CoreStatistics, Count, Counted, Durations, HostStatistics, Operation, Phase, VolumeStatistics,
};
use volume::Volume;

use super::families::{self as all, Exposition, Family, seconds};
use super::sample::{CoreSample, Sample, VolumeSample};

/// A family, and where its values come from.
type Column<T> = (&'static Family, T);
type VolumeValue<'a> = &'a dyn Fn(&Volume) -> u64;
type HostValue = fn(&HostStatistics) -> u64;
type CoreValue = fn(&CoreSample) -> f64;

pub(crate) fn text(sample: &Sample) -> String {
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

/// What all cores have counted of one volume in one protocol.
#[derive(Default)]
struct VolumeSum {
    durations: BTreeMap<Operation, Durations>,
    device: BTreeMap<Operation, Durations>,
    read_bytes: u64,
    written_bytes: u64,
    waits: u64,
    failures: BTreeMap<(Operation, &'static str), u64>,
    in_flight: u64,
}

type Times = fn(&VolumeSum) -> &BTreeMap<Operation, Durations>;
type VolumeCount = fn(&VolumeSum) -> u64;

impl VolumeSum {
    fn add(&mut self, other: &VolumeStatistics) {
        let VolumeStatistics {
            volume: _,
            durations,
            device,
            read_bytes,
            written_bytes,
            waits,
            failures,
            in_flight,
        } = other;
        for (sums, more) in [(&mut self.durations, durations), (&mut self.device, device)] {
            more.iter().for_each(|(operation, times)| sums.entry(*operation).or_default().add(times));
        }
        for (operation, kind, count) in failures {
            *self.failures.entry((*operation, *kind)).or_default() += count;
        }
        self.read_bytes += read_bytes;
        self.written_bytes += written_bytes;
        self.waits += waits;
        self.in_flight += in_flight;
    }
}

/// What each core has counted, by protocol.
fn statistics(sample: &Sample) -> impl Iterator<Item = (&'static str, &CoreStatistics)> {
    let cores = sample.cores.iter().filter_map(|core| core.latest.as_ref());
    cores.flat_map(|core| core.front_ends.iter().map(|(protocol, statistics)| (*protocol, statistics)))
}

fn volumes(out: &mut Exposition, sample: &Sample) {
    let mut sums: BTreeMap<(*const Volume, &str), VolumeSum> = BTreeMap::new();
    for (protocol, core) in statistics(sample) {
        for counted in &core.volumes {
            sums.entry((counted.volume.as_ptr(), protocol)).or_default().add(counted);
        }
    }
    let of_volume = |volume: &VolumeSample| {
        let address = Arc::as_ptr(&volume.volume);
        let all = sums.range((address, "")..).take_while(move |((other, _), _)| *other == address);
        all.map(|((_, protocol), sum)| (*protocol, sum)).collect::<Vec<_>>()
    };
    // A volume that nobody has used yet has none.
    let counted: Vec<(&str, &str, &VolumeSum)> = sample
        .volumes
        .iter()
        .flat_map(|volume| {
            of_volume(volume).into_iter().map(|(protocol, sum)| (volume.name.as_str(), protocol, sum))
        })
        .collect();

    let mut family = out.family(&all::VOLUME_INFO);
    for volume in &sample.volumes {
        if let Some((backend, uuid)) = &volume.description {
            family.add(&[&volume.name, backend, &uuid.to_string()], 1);
        }
    }
    let mut family = out.family(&all::VOLUME_SIZE);
    for volume in &sample.volumes {
        family.add(&[&volume.name], volume.volume.device().geometry().bytes());
    }
    let mut family = out.family(&all::VOLUME_ALLOCATED);
    for volume in &sample.volumes {
        if let Some(bytes) = volume.volume.device().allocated_bytes() {
            family.add(&[&volume.name], bytes);
        }
    }
    let mut family = out.family(&all::VOLUME_COMMANDS);
    for (volume, protocol, sum) in &counted {
        for (operation, durations) in &sum.durations {
            family.add(&[volume, protocol, operation.name()], durations.counts.iter().sum::<u64>());
        }
    }
    let mut family = out.family(&all::VOLUME_BYTES);
    for (volume, protocol, sum) in &counted {
        family.add(&[volume, protocol, "read"], sum.read_bytes);
        family.add(&[volume, protocol, "write"], sum.written_bytes);
    }
    let families: [Column<Times>; 2] =
        [(&all::VOLUME_DURATION, |sum| &sum.durations), (&all::VOLUME_DEVICE_DURATION, |sum| &sum.device)];
    for (family, times) in families {
        let mut family = out.family(family);
        for (volume, protocol, sum) in &counted {
            for (operation, durations) in times(sum) {
                family.histogram(&[volume, protocol, operation.name()], durations);
            }
        }
    }
    let mut family = out.family(&all::VOLUME_ERRORS);
    for (volume, protocol, sum) in &counted {
        for ((operation, kind), count) in &sum.failures {
            family.add(&[volume, protocol, operation.name(), kind], count);
        }
    }
    let families: [Column<VolumeCount>; 2] =
        [(&all::VOLUME_IN_FLIGHT, |sum| sum.in_flight), (&all::VOLUME_WAITS, |sum| sum.waits)];
    for (family, count) in families {
        let mut family = out.family(family);
        counted.iter().for_each(|(volume, protocol, sum)| family.add(&[volume, protocol], count(sum)));
    }
    states(out, &sample.volumes);
    sets(out, &sample.volumes);
}

type SetValue<'a> = &'a dyn Fn(&SetState) -> Option<f64>;

fn sets(out: &mut Exposition, volumes: &[VolumeSample]) {
    let all_sets: Vec<(&str, String, &SetState)> = volumes
        .iter()
        .flat_map(|volume| {
            let numbered = volume.sets.iter().enumerate();
            numbered.map(|(number, set)| (volume.name.as_str(), number.to_string(), set))
        })
        .collect();
    let mut family = out.family(&all::RAID_LACKING);
    for (volume, number, set) in &all_sets {
        family.add(&[volume, number, &set.level], set.lacking());
    }
    let is = |set: &SetState, condition| Some(f64::from(u8::from(set.state == condition)));
    let families: [Column<SetValue<'_>>; 2] = [
        (&all::RAID_FAILED, &|set| is(set, Condition::Failed)),
        (&all::RAID_SPARES, &|set| Some(set.spares.len() as f64)),
    ];
    set_values(out, &all_sets, &families);
    let mut family = out.family(&all::RAID_MEMBER);
    for (volume, number, set) in &all_sets {
        for (member, MemberStatus { volume: disk, state, .. }) in set.members.iter().enumerate() {
            let (member, disk) = (member.to_string(), disk.as_deref().map(masked).unwrap_or_default());
            for other in MemberCondition::ALL {
                let labels = [volume, number.as_str(), &member, &disk, &other.to_string()];
                family.add(&labels, u8::from(other == *state));
            }
        }
    }
    let mut family = out.family(&all::RAID_REBUILD);
    for (volume, number, set) in &all_sets {
        for (member, MemberStatus { percent, .. }) in set.members.iter().enumerate() {
            if let Some(percent) = percent {
                family.add(&[volume, number, &member.to_string()], *percent as f64 / 100.0);
            }
        }
    }
    let scrub = |set: &SetState| set.scrub.as_ref().map(|scrub| scrub.progress);
    let scrubbing =
        |set: &SetState| set.scrub.as_ref().filter(|scrub| !scrub.has_ended).map(|scrub| scrub.progress);
    let families: [Column<SetValue<'_>>; 7] = [
        (&all::RAID_UNSYNCED, &|set| is(set, Condition::Synchronising)),
        (&all::RAID_RATE, &|set| set.work.map(|work| work.bytes_per_s as f64)),
        (&all::RAID_LEFT, &|set| set.work?.seconds_left.map(|seconds| seconds as f64)),
        (&all::RAID_SCRUB, &|set| scrub(set).map(|scrub| scrub.done as f64 / scrub.total.max(1) as f64)),
        (&all::RAID_SCRUB_RATE, &|set| scrubbing(set).map(|scrub| scrub.bytes_per_s as f64)),
        (&all::RAID_SCRUB_LEFT, &|set| scrubbing(set)?.seconds_left.map(|seconds| seconds as f64)),
        (&all::RAID_SCRUB_WRONG, &|set| {
            let found = &set.scrub.as_ref()?.found;
            Some((found.unreadable + found.mismatches).saturating_sub(found.repaired) as f64)
        }),
    ];
    set_values(out, &all_sets, &families);
}

fn set_values(out: &mut Exposition, sets: &[(&str, String, &SetState)], families: &[Column<SetValue<'_>>]) {
    for (family, value) in families {
        let mut family = out.family(family);
        for (volume, number, set) in sets {
            value(set).into_iter().for_each(|value| family.add(&[volume, number], value));
        }
    }
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

fn targets(out: &mut Exposition, sample: &Sample) {
    let mut family = out.family(&all::TARGET_LUNS);
    for target in sample.targets.iter() {
        family.add(&[&target.front_end, &target.name], target.luns.len());
    }
    let mut family = out.family(&all::TARGET_OPEN);
    for target in sample.targets.iter() {
        let is_open = target.initiators.is_none() && target.networks.is_none() && target.users.is_empty();
        family.add(&[&target.front_end, &target.name], u8::from(is_open));
    }
    hosts(out, sample);
    let mut sums: BTreeMap<(Counted, &str, &str, &str), u64> = BTreeMap::new();
    for (protocol, core) in statistics(sample) {
        for Count { counted, target, word, count } in &core.counts {
            *sums.entry((*counted, protocol, target, word)).or_default() += count;
        }
    }
    for counted in all::COUNTED {
        let family = all::of_counted(*counted);
        let mut samples = out.family(family);
        for ((_, protocol, target, word), count) in sums.iter().filter(|((of, ..), _)| of == counted) {
            match family.labels.len() {
                2 => samples.add(&[protocol, word], count),
                _ => samples.add(&[protocol, target, word], count),
            }
        }
    }
}

fn hosts(out: &mut Exposition, sample: &Sample) {
    let mut sums: BTreeMap<(&str, &str, &str), HostStatistics> = BTreeMap::new();
    let mut discovery: BTreeMap<&str, u64> = BTreeMap::new();
    for (protocol, core) in statistics(sample) {
        *discovery.entry(protocol).or_default() += core.discovery_sessions;
        for counted in &core.hosts {
            sums.entry((protocol, &counted.target, &counted.host))
                .and_modify(|sum| {
                    sum.sessions += counted.sessions;
                    sum.connections += counted.connections;
                    sum.traffic = sum.traffic.plus(counted.traffic);
                })
                .or_insert_with(|| counted.clone());
        }
    }
    let families: [Column<HostValue>; 4] = [
        (&all::SESSIONS, |sum| sum.sessions),
        (&all::CONNECTIONS, |sum| sum.connections),
        (&all::SESSION_COMMANDS, |sum| sum.traffic.commands),
        (&all::SESSION_WINDOW_FULL, |sum| sum.traffic.window_full),
    ];
    let mut family = out.family(&all::SESSION_INFO);
    for labels in &sample.sessions {
        family.add(&labels.each_ref().map(String::as_str), 1);
    }
    for (family, value) in families {
        let mut family = out.family(family);
        sums.iter()
            .for_each(|((protocol, target, host), sum)| family.add(&[protocol, target, host], value(sum)));
    }
    let mut family = out.family(&all::SESSION_BYTES);
    for ((protocol, target, host), sum) in &sums {
        family.add(&[protocol, target, host, "read"], sum.traffic.read_bytes);
        family.add(&[protocol, target, host, "write"], sum.traffic.written_bytes);
    }
    let mut family = out.family(&all::DISCOVERY_SESSIONS);
    discovery.iter().for_each(|(protocol, sessions)| family.add(&[protocol], sessions));
}

fn reactors(out: &mut Exposition, sample: &Sample) {
    let numbers: Vec<String> = (0..sample.cores.len()).map(|number| number.to_string()).collect();
    let cores = || numbers.iter().map(String::as_str).zip(&sample.cores);
    let mut family = out.family(&all::REACTOR_UP);
    cores().for_each(|(number, core)| family.add(&[number], u8::from(core.lag.is_some())));
    let mut family = out.family(&all::REACTOR_LAG);
    for (number, core) in cores() {
        if let Some(lag) = core.lag {
            family.add(&[number], seconds(lag));
        }
    }
    let families: [Column<CoreValue>; 4] = [
        (&all::REACTOR_CPU, |core| seconds(core.cpu)),
        (&all::REACTOR_SPIN, |core| seconds(core.spin)),
        (&all::STAGING, |core| core.memory_used as f64),
        (&all::STAGING_LIMIT, |core| core.memory_limit as f64),
    ];
    for (family, value) in families {
        let mut family = out.family(family);
        for (number, core) in cores() {
            if let Some(sample) = &core.latest {
                family.add(&[number], value(sample));
            }
        }
    }
}

fn process(out: &mut Exposition, started: SystemTime) {
    out.family(&all::PROCESS_CPU).add(&[], seconds(host::cputime::process()));
    out.family(&all::PROCESS_START).add(&[], timestamp(started));
    if let Some(most) = host::usage::open_files_max() {
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
