//! All metrics, and a sample in Prometheus' text format.
//!
//! The names of metrics and labels are stable, because dashboards and alerts use them. The table in
//! docs/metrics.md lists all of them; a test generates the table.

use std::collections::BTreeMap;
use std::sync::Arc;

use backends::layers::{LayerStates, Tables};
use front_end_core::{
    CoreStatistics, Counted, Durations, HostStatistics, Operation, Phase, VolumeStatistics,
};
use host::usage::Usage;
use volume::backend::{Family, Figure, MetricKind};
use volume::{Volume, figures};

use super::exposition::{Exposition, seconds};
use super::sample::{CoreState, Sample, SessionLabels, VolumeSample};
use crate::control::Target;

figures! { SERVER of Sample:
    Gauge "linerate_build_info" ["version", "io_engine"] "Program version and file I/O engine; always 1."
        => |server, add| add(&[env!("CARGO_PKG_VERSION"), server.io_engine], &1);
    Gauge "linerate_open" [] "1 if the server accepts logins; 0 during startup and shutdown."
        => |server, add| add(&[], &u8::from(server.phase == Phase::Open));
    Gauge "linerate_config_generation" [] "Number of configurations served so far."
        => |server, add| add(&[], &server.generation);
    Gauge "linerate_config_last_reload_successful" [] "1 if the latest reload or volume change succeeded, or there was none."
        => |server, add| add(&[], &u8::from(server.reloads.last_succeeded));
    Gauge "linerate_config_last_reload_success_timestamp_seconds" [] "Time of the start, or latest successful reload or volume change, in seconds since 1970."
        => |server, add| add(&[], &server.reloads.in_force_since);
    Counter "linerate_reloads_total" ["result"] "Reloads and changes of single volumes."
        => |server, add| {
            add(&["success"], &server.reloads.succeeded);
            add(&["failure"], &server.reloads.failed);
        };
}

figures! { VOLUMES of VolumeSample:
    Gauge "linerate_volume_info" ["volume", "backend", "uuid"] "Outermost back end or layer of the volume, and its UUID; always 1."
        => |volume, add| volume.description.iter().for_each(|(backend, uuid)| add(&[backend, &uuid.to_string()], &1));
    Gauge "linerate_volume_size_bytes" ["volume"] "Size of a volume."
        => |volume, add| add(&[], &volume.volume.device().geometry().bytes());
    Gauge "linerate_volume_allocated_bytes" ["volume"] "Space allocated in the underlying storage, if known."
        => |volume, add| volume.volume.device().allocated_bytes().iter().for_each(|bytes| add(&[], bytes));
}

figures! { USES of VolumeSum:
    Counter "linerate_volume_commands_total" ["volume", "protocol", "op"] "Completed commands, including failed ones."
        => |sum, add| for (operation, durations) in &sum.durations {
            add(&[operation.name()], &durations.counts.iter().sum::<u64>());
        };
    Counter "linerate_volume_bytes_total" ["volume", "protocol", "op"] "Data of read and write commands."
        => |sum, add| {
            add(&["read"], &sum.read_bytes);
            add(&["write"], &sum.written_bytes);
        };
}

static DURATION: Family = Family {
    name: "linerate_volume_command_duration_seconds",
    kind: MetricKind::Histogram,
    labels: &["volume", "protocol", "op"],
    help: "Time from reading a command to passing its response to the network.",
};
static DEVICE_DURATION: Family = Family {
    name: "linerate_volume_device_duration_seconds",
    help: "Device time of commands that waited for the device. The rest is the server's time.",
    ..DURATION
};

figures! { QUEUES of VolumeSum:
    Counter "linerate_volume_errors_total" ["volume", "protocol", "op", "kind"] "Failed commands, by sense key or status."
        => |sum, add| for ((operation, kind), count) in &sum.failures {
            add(&[operation.name(), kind], count);
        };
    Gauge "linerate_volume_in_flight" ["volume", "protocol"] "Outstanding commands: read, and not yet completely answered."
        => |sum, add| add(&[], &sum.in_flight);
    Counter "linerate_volume_device_waits_total" ["volume", "protocol"] "Commands that waited for the device."
        => |sum, add| add(&[], &sum.waits);
}

figures! { STATES of VolumeSample:
    Gauge "linerate_volume_write_cache" ["volume"] "1 if acknowledged writes may be in a volatile cache until a flush."
        => |of, add| add(&[], &u8::from(of.volume.device().profile().volatile_cache));
    Counter "linerate_volume_storage_errors_total" ["volume"] "Requests that failed because of the storage."
        => |of, add| add(&[], &of.volume.health().condition().failed);
    Gauge "linerate_volume_failing" ["volume"] "1 if the latest request of some kind (read, change, flush) failed because of the storage."
        => |of, add| add(&[], &u8::from(of.volume.health().condition().is_failing));
    Gauge "linerate_volume_silent" ["volume"] "1 if the device is unresponsive."
        => |of, add| add(&[], &u8::from(of.volume.health().condition().silent.is_some()));
    Gauge "linerate_volume_fenced" ["volume"] "1 while the volume is fenced."
        => |of, add| add(&[], &u8::from(of.volume.is_fenced()));
    Counter "linerate_volume_fences_total" ["volume"] "Times the volume was fenced."
        => |of, add| add(&[], &of.volume.fences_made());
    Gauge "linerate_volume_reserved" ["volume"] "1 if a host has reserved the volume."
        => |of, add| add(&[], &u8::from(of.volume.reservations().reservation().is_some() || of.volume.reserved_by().is_some()));
    Gauge "linerate_volume_write_protected" ["volume"] "1 if the volume is write-protected."
        => |of, add| add(&[], &u8::from(of.volume.write_protection().is_some()));
}

figures! { TARGETS of Target:
    Gauge "linerate_target_luns" ["protocol", "target"] "LUNs of a target."
        => |target, add| add(&[], &target.luns.len());
    Gauge "linerate_target_open_to_any" ["protocol", "target"] "1 if any initiator may log in: no list of names or networks, no CHAP."
        => |target, add| {
            let is_open = target.initiators.is_none() && target.networks.is_none() && target.users.is_empty();
            add(&[], &u8::from(is_open));
        };
}

figures! { SESSIONS of SessionLabels:
    Gauge "linerate_session_info" ["protocol", "target", "initiator", "user", "address"] "Current logins by CHAP user and address, for the first 1,024 combinations; always 1."
        => |labels, add| add(&labels.each_ref().map(String::as_str), &1);
}

figures! { HOSTS of HostStatistics:
    Gauge "linerate_sessions" ["protocol", "target", "initiator"] "Current sessions of the first 256 initiators; all others are (others)."
        => |host, add| add(&[], &host.sessions);
    Gauge "linerate_session_connections" ["protocol", "target", "initiator"] "Connections of these sessions."
        => |host, add| add(&[], &host.connections);
    Counter "linerate_session_commands_total" ["protocol", "target", "initiator"] "Commands received from the initiator."
        => |host, add| add(&[], &host.traffic.commands);
    Counter "linerate_session_window_full_total" ["protocol", "target", "initiator"] "Times the command window of a session was full."
        => |host, add| add(&[], &host.traffic.window_full);
    Counter "linerate_session_bytes_total" ["protocol", "target", "initiator", "direction"] "Data read and written by the initiator."
        => |host, add| {
            add(&["read"], &host.traffic.read_bytes);
            add(&["write"], &host.traffic.written_bytes);
        };
}

figures! { DISCOVERY of u64:
    Gauge "linerate_discovery_sessions" ["protocol"] "Current sessions without access to volumes, such as discovery sessions."
        => |sessions, add| add(&[], sessions);
}

macro_rules! counted {
    ($($counted:ident = $name:literal [$($label:literal),*] $help:literal;)*) => {
        /// The counters of front ends that have a word as a label, in output order.
        const COUNTED: &[Counted] = &[$(Counted::$counted),*];

        /// Returns the family of a counter. [`counts`] assigns label values by the number of labels: two
        /// labels are the protocol and the word; three are the protocol, the target and the word. The word is
        /// always last.
        fn family_of(counted: Counted) -> &'static Family {
            match counted {
                $(Counted::$counted => &Family {
                    name: $name,
                    kind: MetricKind::Counter,
                    labels: &[$($label),*],
                    help: $help,
                },)*
            }
        }
    };
}

counted! {
    Login = "linerate_logins_total" ["protocol", "target", "result"] "Logins by result: accepted, or the reason for the refusal. The target is empty for discovery and unknown targets.";
    ConnectionClosed = "linerate_connections_closed_total" ["protocol", "target", "reason"] "Ended connections of sessions, by reason.";
    TaskManagement = "linerate_task_management_total" ["protocol", "target", "function"] "Task management functions requested by initiators.";
    UnitAttention = "linerate_unit_attentions_total" ["protocol", "target", "kind"] "Reported unit attentions.";
    DigestError = "linerate_digest_errors_total" ["protocol", "target", "kind"] "Digest mismatches: of a header, which ends the connection, or of data.";
    Frame = "linerate_frames_total" ["protocol", "kind"] "Frames of a datagram protocol: sent; received, received again (repeated), damaged or refused; not accepted by an interface (dropped); fragments resent (lost).";
}

figures! { REACTORS of CoreState:
    Gauge "linerate_reactor_up" ["reactor"] "1 if the reactor thread answered this scrape within a second."
        => |core, add| add(&[], &u8::from(core.lag.is_some()));
    Gauge "linerate_reactor_lag_seconds" ["reactor"] "Time that the reactor thread took to answer this scrape."
        => |core, add| core.lag.iter().for_each(|lag| add(&[], &seconds(*lag)));
    Counter "linerate_reactor_cpu_seconds_total" ["reactor"] "CPU time of the thread, including busy polling."
        => |core, add| core.latest.iter().for_each(|core| add(&[], &seconds(core.cpu)));
    Counter "linerate_reactor_spin_seconds_total" ["reactor"] "Time spent busy-polling without finding work. The rest of the thread's CPU time is work."
        => |core, add| core.latest.iter().for_each(|core| add(&[], &seconds(core.spin)));
    Gauge "linerate_staging_bytes" ["reactor"] "Memory in use by commands."
        => |core, add| core.latest.iter().for_each(|core| add(&[], &core.memory_used));
    Gauge "linerate_staging_limit_bytes" ["reactor"] "Limit of memory for commands."
        => |core, add| core.latest.iter().for_each(|core| add(&[], &core.memory_limit));
}

figures! { PROCESS of f64:
    Counter "process_cpu_seconds_total" [] "User and system CPU time of the process."
        => |_, add| add(&[], &seconds(host::cputime::process()));
    Gauge "process_start_time_seconds" [] "Start time of the server, in seconds since 1970."
        => |started, add| add(&[], started);
    Gauge "process_max_fds" [] "Limit on open file descriptors."
        => |_, add| host::usage::open_files_max().iter().for_each(|most| add(&[], most));
}

figures! { USAGE of Usage:
    Gauge "process_resident_memory_bytes" [] "Resident memory of the process, including RAM volumes."
        => |usage, add| add(&[], &usage.resident_bytes);
    Gauge "process_virtual_memory_bytes" [] "Address space of the process."
        => |usage, add| add(&[], &usage.virtual_bytes);
    Gauge "process_open_fds" [] "Open file descriptors."
        => |usage, add| add(&[], &usage.open_files);
    Gauge "process_threads" [] "Threads of the process."
        => |usage, add| add(&[], &usage.threads);
}

/// All metrics, in output order. A server without volumes writes the same families.
pub fn families() -> Vec<&'static Family> {
    exposition(&Sample::default()).families
}

pub(crate) fn text(sample: &Sample) -> String {
    exposition(sample).text
}

fn exposition(sample: &Sample) -> Exposition {
    let mut out = Exposition::default();
    out.table(SERVER, [([], sample)]);
    volumes(&mut out, sample);
    out.table(
        TARGETS,
        sample
            .targets
            .iter()
            .map(|target| ([&*target.front_end, &*target.name], target)),
    );
    sessions(&mut out, sample);
    counts(&mut out, sample);
    let numbers: Vec<String> = (0..sample.cores.len())
        .map(|number| number.to_string())
        .collect();
    out.table(
        REACTORS,
        numbers.iter().map(|number| [&**number]).zip(&sample.cores),
    );
    out.table(PROCESS, [([], &sample.started)]);
    out.table(
        USAGE,
        host::usage::of_this_process()
            .iter()
            .map(|usage| ([], usage)),
    );
    out
}

/// The sum of all cores' counters for one volume and one protocol.
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
            more.iter()
                .for_each(|(operation, times)| sums.entry(*operation).or_default().add(times));
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

/// Returns the counters in the latest response of each core, by protocol.
fn statistics(sample: &Sample) -> impl Iterator<Item = (&'static str, &CoreStatistics)> {
    let cores = sample.cores.iter().filter_map(|core| core.latest.as_ref());
    cores.flat_map(|core| {
        core.front_ends
            .iter()
            .map(|(protocol, statistics)| (*protocol, statistics))
    })
}

fn volumes(out: &mut Exposition, sample: &Sample) {
    let mut sums: BTreeMap<(*const Volume, &str), VolumeSum> = BTreeMap::new();
    for (protocol, core) in statistics(sample) {
        for counted in &core.volumes {
            sums.entry((counted.volume.as_ptr(), protocol))
                .or_default()
                .add(counted);
        }
    }
    // An unused volume has no statistics yet.
    let used = sample.volumes.iter().flat_map(|volume| {
        let address = Arc::as_ptr(&volume.volume);
        let of_volume = sums
            .range((address, "")..)
            .take_while(move |((other, _), _)| *other == address);
        of_volume.map(|((_, protocol), sum)| ([volume.name.as_str(), *protocol], sum))
    });
    let all = sample
        .volumes
        .iter()
        .map(|volume| ([volume.name.as_str()], volume));
    out.table(VOLUMES, all.clone());
    out.table(USES, used.clone());
    for (family, is_device) in [(&DURATION, false), (&DEVICE_DURATION, true)] {
        let mut samples = out.family(family);
        for ([volume, protocol], sum) in used.clone() {
            for (operation, durations) in if is_device {
                &sum.device
            } else {
                &sum.durations
            } {
                samples.histogram(&[volume, protocol, operation.name()], durations);
            }
        }
    }
    out.table(QUEUES, used);
    out.table(STATES, all);
    LayerStates::figures(&mut OfLayers(out, &sample.volumes));
}

/// Writes the figures of the layers of volumes.
struct OfLayers<'a>(&'a mut Exposition, &'a [VolumeSample]);

impl Tables for OfLayers<'_> {
    fn table<S>(&mut self, figures: &'static [Figure<S>], of: fn(&LayerStates) -> &[S]) {
        let OfLayers(out, volumes) = self;
        let layers = volumes
            .iter()
            .map(|volume| (&volume.name, of(&volume.layers)));
        let numbered =
            layers.flat_map(|(name, states)| states.iter().enumerate().map(move |it| (name, it)));
        let rows: Vec<_> = numbered
            .map(|(name, (at, state))| (name, at.to_string(), state))
            .collect();
        out.table(
            figures,
            rows.iter()
                .map(|(name, number, state)| ([&***name, &**number], *state)),
        );
    }
}

fn sessions(out: &mut Exposition, sample: &Sample) {
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
    out.table(SESSIONS, sample.sessions.iter().map(|labels| ([], labels)));
    out.table(
        HOSTS,
        sums.iter()
            .map(|((protocol, target, host), sum)| ([*protocol, target, host], sum)),
    );
    out.table(
        DISCOVERY,
        discovery
            .iter()
            .map(|(protocol, sessions)| ([*protocol], sessions)),
    );
}

/// Adds up the cores' counters by protocol, target and word.
fn counts(out: &mut Exposition, sample: &Sample) {
    let mut sums: BTreeMap<(Counted, &str, &str, &str), u64> = BTreeMap::new();
    for (protocol, core) in statistics(sample) {
        for ((counted, target, word), count) in &core.counts {
            *sums.entry((*counted, protocol, target, word)).or_default() += count;
        }
    }
    for counted in COUNTED {
        let family = family_of(*counted);
        let mut samples = out.family(family);
        for ((_, protocol, target, word), count) in
            sums.iter().filter(|((of, ..), _)| of == counted)
        {
            match family.labels.len() {
                2 => samples.add(&[protocol, word], count),
                _ => samples.add(&[protocol, target, word], count),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The document lists the names, types, labels and words on which dashboards and alerts depend.
    #[test]
    fn the_document_has_every_metric() {
        let row = |family: &&Family| {
            let labels: Vec<String> = family
                .labels
                .iter()
                .map(|label| format!("`{label}`"))
                .collect();
            let (kind, labels) = (family.kind.name(), labels.join(", "));
            format!(
                "| `{}` | {kind} | {labels} | {} |",
                family.name, family.help
            )
        };
        let rows: Vec<String> = families().iter().map(row).collect();
        let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/metrics.md");
        testkit::assert_table(document, "| metric | type | labels | meaning |", &rows);
    }
}
