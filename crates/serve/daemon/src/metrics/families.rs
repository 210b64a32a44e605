//! The metrics that there are, and Prometheus' text format, version 0.0.4: families with their HELP and TYPE, samples with their labels.
//!
//! The names of metrics and labels are what dashboards and alerts are made of: they stay. docs/operate.md has them all, which a test
//! sees to. <https://prometheus.io/docs/instrumenting/exposition_formats/>

use std::fmt::{Display, Write as _};
use std::time::Duration;

use front_end_core::{CLASSES, Counted, Durations};

/// What the samples of a family are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts of durations by classes.
    Histogram,
}

impl MetricKind {
    /// As the format has it.
    pub fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// A metric: its name, and what all of its samples have in common.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// What its samples are.
    pub kind: MetricKind,
    /// The names of their labels.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

/// A text that grows family by family.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    text: String,
}

impl Exposition {
    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// Begins a family; its samples follow at once.
    pub(super) fn family(&mut self, family: &'static Family) -> Samples<'_> {
        let Family { name, kind, help, .. } = family;
        self.line(format_args!("# HELP {name} {}", help.replace('\\', "\\\\").replace('\n', "\\n")));
        self.line(format_args!("# TYPE {name} {}", kind.name()));
        Samples { text: &mut self.text, family }
    }

    fn line(&mut self, line: impl Display) {
        // Writing into a String does not fail.
        let _ = writeln!(self.text, "{line}");
    }
}

pub(super) struct Samples<'a> {
    text: &'a mut String,
    family: &'static Family,
}

impl Samples<'_> {
    /// A sample, with the values of the labels in their order.
    pub(super) fn add(&mut self, labels: &[&str], value: impl Display) {
        self.sample("", labels, None, value);
    }

    pub(super) fn histogram(&mut self, labels: &[&str], durations: &Durations) {
        let mut count = 0;
        for class in 0..CLASSES {
            count += durations.counts[class];
            let bound = Durations::bound(class).map_or("+Inf".to_owned(), |bound| seconds(bound).to_string());
            self.sample("_bucket", labels, Some(&bound), count);
        }
        self.sample("_sum", labels, None, seconds(durations.sum));
        self.sample("_count", labels, None, count);
    }

    fn sample(&mut self, suffix: &str, labels: &[&str], bound: Option<&str>, value: impl Display) {
        debug_assert_eq!(labels.len(), self.family.labels.len(), "{}", self.family.name);
        self.text.push_str(self.family.name);
        self.text.push_str(suffix);
        let mut opening = '{';
        let labels = self.family.labels.iter().copied().zip(labels.iter().copied());
        for (name, value) in labels.chain(bound.map(|bound| ("le", bound))) {
            self.text.push(opening);
            opening = ',';
            self.text.push_str(name);
            self.text.push_str("=\"");
            escape(self.text, value);
            self.text.push('"');
        }
        if opening == ',' {
            self.text.push('}');
        }
        // Writing into a String does not fail.
        let _ = writeln!(self.text, " {value}");
    }
}

/// A label's value may hold anything, as the name of an initiator may; three characters are written otherwise.
fn escape(text: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            _ => text.push(c),
        }
    }
}

/// The unit of time in Prometheus.
pub(super) fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

macro_rules! families {
    ($($constant:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal $(of $counted:ident)?;)*) => {
        $(pub(super) static $constant: Family =
            Family { name: $name, kind: MetricKind::$kind, labels: &[$($label),*], help: $help };)*

        /// All of them, in the order in which they are written.
        pub static FAMILIES: &[&Family] = &[$(&$constant),*];

        /// What front ends count by words, in the order in which it is written.
        pub(super) const COUNTED: &[Counted] = &[$($(Counted::$counted,)?)*];

        /// Its family, whose samples have the labels protocol, target (if it has targets) and a word.
        pub(super) fn of_counted(counted: Counted) -> &'static Family {
            match counted {
                $($(Counted::$counted => &$constant,)?)*
            }
        }
    };
}

families! {
    BUILD = Gauge "linerate_build_info" ["version", "io_engine"] "The version that runs, and how it reads and writes files; 1.";
    UP_PHASE = Gauge "linerate_open" [] "Whether hosts are let in: 0 while the server starts and ends.";
    CONFIG_GENERATION = Gauge "linerate_config_generation" [] "How many configurations were served, this one included.";
    CONFIG_OK = Gauge "linerate_config_last_reload_successful" [] "Whether the latest reload succeeded; 1 if there was none.";
    CONFIG_TIME = Gauge "linerate_config_last_reload_success_timestamp_seconds" [] "When the configuration in force was read, since 1970.";
    RELOADS = Counter "linerate_reloads_total" ["result"] "Reloads and changes of single volumes.";

    VOLUME_INFO = Gauge "linerate_volume_info" ["volume", "backend", "uuid"] "What a volume is made of, outermost, and its identity; 1.";
    VOLUME_SIZE = Gauge "linerate_volume_size_bytes" ["volume"] "Size of a volume.";
    VOLUME_ALLOCATED = Gauge "linerate_volume_allocated_bytes" ["volume"] "What a volume takes of its storage, if that is known: of a sparse file its blocks, of memory what was written.";
    VOLUME_COMMANDS = Counter "linerate_volume_commands_total" ["volume", "protocol", "op"] "Commands that were answered, those with an error, too.";
    VOLUME_BYTES = Counter "linerate_volume_bytes_total" ["volume", "protocol", "op"] "Data of read and write commands.";
    VOLUME_DURATION = Histogram "linerate_volume_command_duration_seconds" ["volume", "protocol", "op"] "From taking a command in to handing its answer to the network.";
    VOLUME_DEVICE_DURATION = Histogram "linerate_volume_device_duration_seconds" ["volume", "protocol", "op"] "For how long the device had the requests of a command, of commands that waited for it. The rest is the server's share.";
    VOLUME_ERRORS = Counter "linerate_volume_errors_total" ["volume", "protocol", "op", "kind"] "Commands that were answered with an error, by sense key or status.";
    VOLUME_IN_FLIGHT = Gauge "linerate_volume_in_flight" ["volume", "protocol"] "Commands that were taken in and are not answered in full: the queue.";
    VOLUME_WAITS = Counter "linerate_volume_device_waits_total" ["volume", "protocol"] "Commands that waited for the device: neither memory nor the page cache could carry them out at once.";
    VOLUME_CACHE = Gauge "linerate_volume_write_cache" ["volume"] "Whether acknowledged writes may wait for a flush.";
    VOLUME_STORAGE_ERRORS = Counter "linerate_volume_storage_errors_total" ["volume"] "Requests that failed for a reason that is the storage's.";
    VOLUME_FAILING = Gauge "linerate_volume_failing" ["volume"] "Whether the latest request of some kind failed for such a reason.";
    VOLUME_SILENT = Gauge "linerate_volume_silent" ["volume"] "Whether the device does not answer.";
    VOLUME_FENCED = Gauge "linerate_volume_fenced" ["volume"] "Whether the volume is out of service until its device answers.";
    VOLUME_FENCES = Counter "linerate_volume_fences_total" ["volume"] "How often the volume was taken out of service for that.";
    VOLUME_RESERVED = Gauge "linerate_volume_reserved" ["volume"] "Whether a host has reserved the volume.";
    VOLUME_PROTECTED = Gauge "linerate_volume_write_protected" ["volume"] "Whether writes are refused.";

    RAID_LACKING = Gauge "linerate_raid_members_lacking" ["volume", "set", "level"] "Members of a RAID set that do not have all of their data: 0 if it is healthy.";
    RAID_FAILED = Gauge "linerate_raid_failed" ["volume", "set"] "Whether requests to a RAID set fail: it lacks data, or has lost its journal.";
    RAID_SPARES = Gauge "linerate_raid_spares" ["volume", "set"] "Volumes that can replace a member.";
    RAID_MEMBER = Gauge "linerate_raid_member_state" ["volume", "set", "member", "disk", "state"] "Whether a member is in this state: in sync, rebuilding, failed or missing.";
    RAID_REBUILD = Gauge "linerate_raid_rebuild_ratio" ["volume", "set", "member"] "How much of a member is rebuilt, while it is.";
    RAID_UNSYNCED = Gauge "linerate_raid_synchronising" ["volume", "set"] "Whether members are made to fit each other after a crash.";
    RAID_RATE = Gauge "linerate_raid_work_bytes_per_second" ["volume", "set"] "How fast a set rebuilds or synchronises, of each member.";
    RAID_LEFT = Gauge "linerate_raid_work_seconds_left" ["volume", "set"] "For how long yet, at that rate.";
    RAID_SCRUB = Gauge "linerate_raid_scrub_ratio" ["volume", "set"] "How far the latest scrub is.";
    RAID_SCRUB_RATE = Gauge "linerate_raid_scrub_bytes_per_second" ["volume", "set"] "How fast a set is scrubbed, of each member, while it is.";
    RAID_SCRUB_LEFT = Gauge "linerate_raid_scrub_seconds_left" ["volume", "set"] "For how long yet, at that rate.";
    RAID_SCRUB_WRONG = Gauge "linerate_raid_scrub_wrong_stripes" ["volume", "set"] "Stripes that it has found with strips that do not fit or cannot be read, and has not repaired.";

    TARGET_LUNS = Gauge "linerate_target_luns" ["protocol", "target"] "LUNs of a target.";
    TARGET_OPEN = Gauge "linerate_target_open_to_any" ["protocol", "target"] "Whether any initiator may log in: no list of names or networks, no CHAP.";
    SESSION_INFO = Gauge "linerate_session_info" ["protocol", "target", "initiator", "user", "address"] "Who is logged in now, by CHAP user and address; 1. Of the first 1,024 combinations.";
    SESSIONS = Gauge "linerate_sessions" ["protocol", "target", "initiator"] "Sessions now. Of the first 256 initiators; all others are (others).";
    CONNECTIONS = Gauge "linerate_session_connections" ["protocol", "target", "initiator"] "Connections of these sessions.";
    SESSION_COMMANDS = Counter "linerate_session_commands_total" ["protocol", "target", "initiator"] "Commands of an initiator, of all its sessions so far.";
    SESSION_WINDOW_FULL = Counter "linerate_session_window_full_total" ["protocol", "target", "initiator"] "How often a session had as many commands in flight as it may, so that its initiator had to wait.";
    SESSION_BYTES = Counter "linerate_session_bytes_total" ["protocol", "target", "initiator", "direction"] "Data that it has read and written.";
    DISCOVERY_SESSIONS = Gauge "linerate_discovery_sessions" ["protocol"] "Sessions now that only ask what there is, such as discovery sessions.";
    LOGINS = Counter "linerate_logins_total" ["protocol", "target", "result"] "Connections that logged in (accepted), or why not. No target: discovery, or one that is not served." of Login;
    CONNECTIONS_CLOSED = Counter "linerate_connections_closed_total" ["protocol", "target", "reason"] "Connections of sessions that have ended, and why." of ConnectionClosed;
    TASK_MANAGEMENT = Counter "linerate_task_management_total" ["protocol", "target", "function"] "Task management functions that initiators asked for." of TaskManagement;
    UNIT_ATTENTIONS = Counter "linerate_unit_attentions_total" ["protocol", "target", "kind"] "Unit attentions that were reported." of UnitAttention;
    DIGEST_ERRORS = Counter "linerate_digest_errors_total" ["protocol", "target", "kind"] "Digests that did not match: of a header, which ends the connection, or of data." of DigestError;
    FRAMES = Counter "linerate_frames_total" ["protocol", "kind"] "Frames of a protocol of datagrams: sent; received, received again (repeated), damaged or refused; not taken by an interface (dropped); fragments sent again (lost)." of Frame;

    REACTOR_UP = Gauge "linerate_reactor_up" ["reactor"] "Whether a reactor thread answered this scrape within a second.";
    REACTOR_LAG = Gauge "linerate_reactor_lag_seconds" ["reactor"] "How long it took to answer this scrape.";
    REACTOR_CPU = Counter "linerate_reactor_cpu_seconds_total" ["reactor"] "CPU time of the thread, busy-polling included.";
    REACTOR_SPIN = Counter "linerate_reactor_spin_seconds_total" ["reactor"] "Time that the thread has busy-polled and found nothing. The rest of its CPU time is work.";
    STAGING = Gauge "linerate_staging_bytes" ["reactor"] "Memory that commands hold.";
    STAGING_LIMIT = Gauge "linerate_staging_limit_bytes" ["reactor"] "Memory that they may hold.";

    PROCESS_CPU = Counter "process_cpu_seconds_total" [] "User and system CPU time of the process.";
    PROCESS_START = Gauge "process_start_time_seconds" [] "When the server was started, since 1970.";
    PROCESS_FILES_MAX = Gauge "process_max_fds" [] "How many there may be.";
    PROCESS_RESIDENT = Gauge "process_resident_memory_bytes" [] "Memory of the process that is there, RAM volumes included.";
    PROCESS_VIRTUAL = Gauge "process_virtual_memory_bytes" [] "Address space of the process.";
    PROCESS_FILES = Gauge "process_open_fds" [] "Open file descriptors.";
    PROCESS_THREADS = Gauge "process_threads" [] "Threads of the process.";
}

#[cfg(test)]
mod tests {
    use super::*;

    static PLAIN: Family =
        Family { name: "a_bytes", kind: MetricKind::Gauge, labels: &[], help: "One\nline \\." };
    static LABELLED: Family =
        Family { name: "b_total", kind: MetricKind::Counter, labels: &["x", "y"], help: "B." };
    static TIMES: Family =
        Family { name: "c_seconds", kind: MetricKind::Histogram, labels: &["x"], help: "C." };

    #[test]
    fn families_are_written_as_the_format_wants_it() {
        let mut exposition = Exposition::default();
        exposition.family(&PLAIN).add(&[], 7);
        exposition.family(&LABELLED).add(&["a\\b\"c\nd", "ü"], 1.5);
        let expected = "# HELP a_bytes One\\nline \\\\.\n# TYPE a_bytes gauge\na_bytes 7\n\
                        # HELP b_total B.\n# TYPE b_total counter\nb_total{x=\"a\\\\b\\\"c\\nd\",y=\"ü\"} 1.5\n";
        assert_eq!(exposition.into_text(), expected);
    }

    #[test]
    fn a_histogram_is_cumulative_and_ends_with_all() {
        let mut durations = Durations { sum: Duration::from_millis(3), ..Durations::default() };
        (durations.counts[0], durations.counts[2], durations.counts[CLASSES - 1]) = (1, 2, 4);
        let mut exposition = Exposition::default();
        exposition.family(&TIMES).histogram(&["v"], &durations);
        let text = exposition.into_text();
        for line in [
            "c_seconds_bucket{x=\"v\",le=\"0.000004\"} 1",
            "c_seconds_bucket{x=\"v\",le=\"0.000008\"} 1",
            "c_seconds_bucket{x=\"v\",le=\"0.000016\"} 3",
            "c_seconds_bucket{x=\"v\",le=\"16.777216\"} 3",
            "c_seconds_bucket{x=\"v\",le=\"+Inf\"} 7",
            "c_seconds_sum{x=\"v\"} 0.003",
            "c_seconds_count{x=\"v\"} 7",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
    }
}
