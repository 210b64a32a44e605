//! Every option of fio 3.33 (`fio --cmdhelp=all`, and the options of its I/O engines), and its treatment
//! here.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::suite::SuiteError as Mistake;

/// The treatment of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// The option defines the workload, and is read.
    Read,
    /// The option controls how fio works, reports or finds its files. The workload does not depend on it.
    Ignored,
    /// The option changes the measurement in an unsupported way, unless it has one of these values.
    Refused(&'static [&'static str]),
}

/// An option of fio, with its treatment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// The name in fio's manual.
    pub(super) name: &'static str,
    /// Alternative names.
    aliases: &'static [&'static str],
    pub(super) becomes: Use,
}

/// Returns the option with this name or alias.
pub(super) fn key(name: &str) -> Option<&'static Key> {
    KEYS.iter()
        .flat_map(|keys| keys.iter())
        .find(|key| key.name == name || key.aliases.contains(&name))
}

/// Returns all names and aliases.
pub(super) fn names() -> Vec<&'static str> {
    let keys = KEYS.iter().flat_map(|keys| keys.iter());
    keys.flat_map(|key| std::iter::once(key.name).chain(key.aliases.iter().copied()))
        .collect()
}

const KEYS: [&[Key]; 3] = [READ, IGNORED, REFUSED];

const fn read(name: &'static str, aliases: &'static [&'static str]) -> Key {
    Key {
        name,
        aliases,
        becomes: Use::Read,
    }
}

const fn ignored(name: &'static str) -> Key {
    Key {
        name,
        aliases: &[],
        becomes: Use::Ignored,
    }
}

const fn refused(name: &'static str, neutral: &'static [&'static str]) -> Key {
    Key {
        name,
        aliases: &[],
        becomes: Use::Refused(neutral),
    }
}

const fn alias(key: Key, aliases: &'static [&'static str]) -> Key {
    Key { aliases, ..key }
}

const READ: &[Key] = &[
    read("name", &[]),
    read("description", &[]),
    read("rw", &["readwrite"]),
    read("bs", &["blocksize"]),
    read("ba", &["blockalign"]),
    read("bsrange", &["blocksize_range"]),
    read("bssplit", &[]),
    read("iodepth", &[]),
    read("size", &[]),
    read("io_size", &["io_limit"]),
    read("offset", &["fileoffset"]),
    read("offset_increment", &[]),
    read("number_ios", &[]),
    read("loops", &[]),
    read("numjobs", &[]),
    read("runtime", &["timeout"]),
    read("time_based", &[]),
    read("ramp_time", &[]),
    read("rwmixread", &[]),
    read("rwmixwrite", &[]),
    read("percentage_random", &[]),
    read("random_distribution", &[]),
    read("norandommap", &[]),
    read("randseed", &[]),
    read("rate", &[]),
    read("rate_iops", &[]),
    read("rate_process", &[]),
    read("thinktime", &[]),
    read("thinktime_blocks", &[]),
    read("stonewall", &["wait_for_previous"]),
    read("zero_buffers", &[]),
    read("buffer_compress_percentage", &[]),
    read("sync", &[]),
    read("fsync", &[]),
    read("fdatasync", &[]),
    read("verify", &[]),
    read("do_verify", &[]),
    read("kb_base", &[]),
];

const IGNORED: &[Key] = &[
    // These options are ignored as settings, but are read for the queue depth and the notes.
    ignored("ioengine"),
    ignored("direct"),
    ignored("buffered"),
    // fio's options for finding files; here, TARGET names the storage.
    ignored("filename"),
    ignored("directory"),
    ignored("filename_format"),
    ignored("unique_filename"),
    ignored("lockfile"),
    ignored("opendir"),
    ignored("filesize"),
    alias(ignored("nrfiles"), &["nr_files"]),
    ignored("openfiles"),
    ignored("file_service_type"),
    ignored("fallocate"),
    ignored("fadvise_hint"),
    ignored("invalidate"),
    ignored("overwrite"),
    ignored("create_serialize"),
    ignored("create_fsync"),
    ignored("create_on_open"),
    ignored("allow_file_create"),
    ignored("allow_mounted_write"),
    ignored("unlink"),
    ignored("unlink_each_loop"),
    // Options for fio's processes and random numbers.
    ignored("thread"),
    ignored("randrepeat"),
    ignored("allrandrepeat"),
    ignored("random_generator"),
    ignored("softrandommap"),
    ignored("rw_sequencer"),
    ignored("serialize_overlap"),
    ignored("io_submit_mode"),
    alias(ignored("mem"), &["iomem"]),
    ignored("iomem_align"),
    ignored("hugepage-size"),
    ignored("lockmem"),
    ignored("clocksource"),
    ignored("gtod_reduce"),
    ignored("gtod_cpu"),
    ignored("job_start_clock_id"),
    ignored("nice"),
    ignored("prio"),
    ignored("prioclass"),
    ignored("cpumask"),
    ignored("cpus_allowed"),
    ignored("cpus_allowed_policy"),
    ignored("numa_cpu_nodes"),
    ignored("numa_mem_policy"),
    ignored("cgroup"),
    ignored("cgroup_nodelete"),
    ignored("cgroup_weight"),
    ignored("uid"),
    ignored("gid"),
    ignored("ioscheduler"),
    ignored("write_hint"),
    ignored("ignore_error"),
    ignored("continue_on_error"),
    ignored("error_dump"),
    ignored("exitall"),
    ignored("exit_what"),
    ignored("exitall_on_error"),
    ignored("thinktime_spin"),
    alias(ignored("rate_cycle"), &["ratecycle"]),
    ignored("scramble_buffers"),
    ignored("refill_buffers"),
    ignored("unit_base"),
    // Options for the way in which fio verifies data.
    ignored("verify_fatal"),
    ignored("verify_dump"),
    ignored("verify_async"),
    ignored("verify_async_cpus"),
    ignored("verify_state_load"),
    ignored("verify_state_save"),
    // Options for fio's output.
    ignored("group_reporting"),
    ignored("new_group"),
    ignored("per_job_logs"),
    ignored("write_bw_log"),
    ignored("write_lat_log"),
    ignored("write_iops_log"),
    ignored("write_hist_log"),
    ignored("bwavgtime"),
    ignored("iopsavgtime"),
    ignored("log_entries"),
    ignored("log_avg_msec"),
    ignored("log_hist_msec"),
    ignored("log_hist_coarseness"),
    ignored("log_max_value"),
    ignored("log_offset"),
    ignored("log_prio"),
    ignored("log_compression"),
    ignored("log_compression_cpus"),
    ignored("log_store_compressed"),
    ignored("log_unix_epoch"),
    ignored("log_alternate_epoch"),
    ignored("log_alternate_epoch_clock_id"),
    ignored("block_error_percentiles"),
    ignored("clat_percentiles"),
    ignored("lat_percentiles"),
    ignored("slat_percentiles"),
    ignored("percentile_list"),
    ignored("significant_figures"),
    ignored("disk_util"),
    ignored("disable_lat"),
    ignored("disable_clat"),
    ignored("disable_slat"),
    alias(ignored("disable_bw_measurement"), &["disable_bw"]),
    ignored("unified_rw_reporting"),
    // Options of io_uring, libaio, pvsync2 and other engines that use files or disks.
    ignored("hipri"),
    ignored("hipri_percentage"),
    ignored("fixedbufs"),
    ignored("nonvectored"),
    ignored("force_async"),
    ignored("registerfiles"),
    ignored("sqthread_poll"),
    ignored("sqthread_poll_cpu"),
    ignored("uncached"),
    ignored("nowait"),
    ignored("userspace_reap"),
    ignored("cmdprio"),
    ignored("cmdprio_class"),
    ignored("cmdprio_percentage"),
    ignored("cmdprio_bssplit"),
    ignored("cmd_type"),
    ignored("thp"),
    // Options of engines with their own kind of storage; here, TARGET names the storage.
    ignored("hostname"),
    ignored("port"),
    ignored("uri"),
    ignored("conf"),
    ignored("clustername"),
    ignored("clientname"),
    ignored("rbdname"),
    ignored("pool"),
    ignored("volume"),
    ignored("brick"),
    ignored("busy_poll"),
    ignored("touch_objects"),
];

const REFUSED: &[Key] = &[
    // Options that determine when requests are made.
    refused("wait_for", &[]),
    refused("startdelay", &["0"]),
    alias(refused("iodepth_batch", &["1"]), &["iodepth_batch_submit"]),
    alias(
        refused("iodepth_batch_complete_min", &["1"]),
        &["iodepth_batch_complete"],
    ),
    refused("iodepth_batch_complete_max", &["1"]),
    refused("iodepth_low", &["0"]),
    alias(refused("rate_min", &["0"]), &["ratemin"]),
    refused("rate_iops_min", &["0"]),
    refused("rate_ignore_thinktime", &["0"]),
    refused("thinktime_blocks_type", &["complete"]),
    refused("thinktime_iotime", &["0"]),
    refused("flow", &["0"]),
    refused("flow_id", &["0"]),
    refused("flow_sleep", &["0"]),
    refused("latency_target", &["0"]),
    refused("latency_window", &["0"]),
    refused("latency_percentile", &["100"]),
    refused("latency_run", &["0"]),
    // Options that determine when a job ends.
    refused("max_latency", &["0"]),
    alias(refused("fill_device", &["0"]), &["fill_fs"]),
    alias(refused("steadystate", &[]), &["ss"]),
    alias(refused("steadystate_duration", &["0"]), &["ss_dur"]),
    alias(refused("steadystate_ramp_time", &["0"]), &["ss_ramp"]),
    // Options that select the requests.
    alias(refused("bs_unaligned", &["0"]), &["blocksize_unaligned"]),
    refused("offset_align", &["0"]),
    refused("file_append", &["0"]),
    refused("pre_read", &["0"]),
    refused("create_only", &["0"]),
    refused("atomic", &["0"]),
    refused("trim_percentage", &["0"]),
    refused("trim_verify_zero", &["0"]),
    refused("trim_backlog", &["0"]),
    refused("trim_backlog_batch", &["0"]),
    refused("zonemode", &["none"]),
    refused("zonesize", &["0"]),
    refused("zonecapacity", &["0"]),
    refused("zonerange", &["0"]),
    refused("zoneskip", &["0"]),
    refused("read_beyond_wp", &["0"]),
    refused("max_open_zones", &["0"]),
    refused("job_max_open_zones", &["0"]),
    refused("ignore_zone_limits", &["0"]),
    refused("zone_reset_threshold", &["0"]),
    refused("zone_reset_frequency", &["0"]),
    refused("profile", &[]),
    refused("write_iolog", &[]),
    refused("read_iolog", &[]),
    refused("read_iolog_chunked", &["0"]),
    refused("replay_no_stall", &["0"]),
    refused("replay_redirect", &[]),
    refused("replay_scale", &["1"]),
    refused("replay_align", &["0"]),
    refused("replay_time_scale", &["100"]),
    refused("replay_skip", &[]),
    refused("merge_blktrace_file", &[]),
    refused("merge_blktrace_scalars", &[]),
    refused("merge_blktrace_iters", &[]),
    // Options that request guarantees for writes.
    refused("sync_file_range", &[]),
    refused("write_barrier", &["0"]),
    refused("end_fsync", &["0"]),
    refused("fsync_on_close", &["0"]),
    refused("readfua", &["0"]),
    refused("writefua", &["0"]),
    refused("sg_write_mode", &["write"]),
    // Options for the content of writes, and for its verification.
    refused("buffer_pattern", &[]),
    refused("buffer_compress_chunk", &["0"]),
    refused("dedupe_percentage", &["0"]),
    refused("dedupe_mode", &["repeat"]),
    refused("dedupe_working_set_percentage", &[]),
    refused("dedupe_global", &["0"]),
    refused("verify_only", &["0"]),
    refused("verify_interval", &["0"]),
    refused("verify_offset", &["0"]),
    refused("verify_pattern", &[]),
    refused("verify_backlog", &["0"]),
    refused("verify_backlog_batch", &["0"]),
    refused("experimental_verify", &["0"]),
    // Programs that prepare the storage, and options that exclude jobs from the report.
    refused("exec_prerun", &[]),
    refused("exec_postrun", &[]),
    refused("stats", &["1"]),
    // Options of engines that do not measure storage.
    refused("arguments", &[]),
    refused("program", &[]),
    refused("std_redirect", &[]),
    refused("grace_time", &[]),
    refused("bindname", &[]),
    refused("cpuchunks", &[]),
    refused("cpuload", &[]),
    refused("cpumode", &[]),
    refused("exit_on_io_done", &[]),
    refused("donorname", &[]),
    refused("inplace", &[]),
    refused("interface", &[]),
    refused("listen", &[]),
    refused("mss", &[]),
    refused("nodelay", &[]),
    refused("pingpong", &[]),
    refused("protocol", &[]),
    refused("single-instance", &[]),
    refused("skip_bad", &[]),
    refused("stat_type", &[]),
    refused("stream_id", &[]),
    refused("ttl", &[]),
    refused("verb", &[]),
    refused("window_size", &[]),
];

// Parsers of sizes, times, numbers and lists in fio's syntax. Values that fio interprets unexpectedly (`1.5k`
// as one byte, `1h30m` as one microsecond) are rejected.

/// The meaning of `k` in a size, set by `kb_base`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum KbBase {
    /// `k` is 1,024 and `KiB` is 1,000. This is fio's default, for compatibility with old job files.
    #[default]
    Binary,
    /// `k` is 1,000 and `KiB` is 1,024.
    Decimal,
}

impl KbBase {
    pub(super) fn named(text: &str) -> Result<KbBase, String> {
        match text {
            "1024" => Ok(KbBase::Binary),
            "1000" => Ok(KbBase::Decimal),
            _ => Err(format!("`{text}` is not 1024 or 1000")),
        }
    }
}

/// An amount of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// A number of bytes.
    Bytes(u64),
    /// A percentage of the capacity.
    Percent(u8),
}

impl Amount {
    /// Returns the amount in bytes, for storage of this capacity.
    pub(super) fn of(self, device_bytes: u64) -> u64 {
        match self {
            Amount::Bytes(bytes) => bytes,
            Amount::Percent(percent) => {
                (u128::from(device_bytes) * u128::from(percent) / 100) as u64
            }
        }
    }
}

/// Parses a whole number. Any number may have one of fio's units: `iodepth=1k` is 1,024.
pub(super) fn number(text: &str, base: KbBase, range: RangeInclusive<u64>) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let unit = unit.to_ascii_lowercase();
    let (letter, is_iec) = match unit.as_str() {
        "" | "b" => ("", false),
        "k" | "kb" | "ki" | "m" | "mb" | "mi" | "g" | "gb" | "gi" | "t" | "tb" | "ti" | "p"
        | "pb" | "pi" => (&unit[..1], false),
        "kib" | "mib" | "gib" | "tib" | "pib" => (&unit[..1], true),
        _ => return Err(format!("`{text}` has an unknown unit; use k, m, g, t or p")),
    };
    let step: u64 = if (base == KbBase::Binary) == is_iec {
        1000
    } else {
        1024
    };
    let power = "kmgtp"
        .find(letter)
        .map_or(0, |at| if letter.is_empty() { 0 } else { at as u32 + 1 });
    let value = step
        .checked_pow(power)
        .and_then(|unit| number.checked_mul(unit));
    let (least, most) = (range.start(), range.end());
    value
        .filter(|value| range.contains(value))
        .ok_or_else(|| format!("`{text}` is not a number from {least} to {most}"))
}

/// Returns whether a size has a unit such as `KiB` that fio interprets as a power of 1,000.
pub(super) fn is_opposite(text: &str, base: KbBase) -> bool {
    base == KbBase::Binary && text.to_ascii_lowercase().contains("ib")
}

/// Parses a size, or a percentage of the storage.
pub(super) fn amount(text: &str, base: KbBase) -> Result<Amount, String> {
    match text.strip_suffix('%') {
        Some(share) => share
            .parse()
            .ok()
            .filter(|share| *share <= 100)
            .map(Amount::Percent),
        None => return number(text, base, 0..=1 << 53).map(Amount::Bytes),
    }
    .ok_or_else(|| format!("`{text}` is not a share from 0% to 100%"))
}

/// Parses a time; a number without a unit is in multiples of `unit`.
pub(super) fn time(text: &str, unit: Duration) -> Result<Duration, String> {
    let (number, named) = split(text)?;
    let us: u64 = match named.to_ascii_lowercase().as_str() {
        "" => unit.as_micros() as u64,
        "us" | "usec" => 1,
        "ms" | "msec" => 1000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => {
            return Err(format!(
                "`{text}` is not a time; use a number with one unit: d, h, m, s, ms or us"
            ));
        }
    };
    // The limit is one week.
    let time = number.checked_mul(us).filter(|us| *us <= 604_800_000_000);
    time.map(Duration::from_micros)
        .ok_or_else(|| format!("`{text}` is more than a week"))
}

/// Parses an option that needs no value.
pub(super) fn flag(value: Option<&str>) -> Result<bool, String> {
    match value {
        None | Some("1") => Ok(true),
        Some("0") => Ok(false),
        Some(other) => Err(format!("`{other}` is not 0 or 1")),
    }
}

/// Splits an option's value into the values for reads and for writes. The last value also applies to the
/// positions after it, unless a comma follows it. A missing value is `None`; the value for trims is ignored.
pub(super) fn directions(text: &str) -> Result<[Option<&str>; 2], String> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let said = |at: usize| parts.get(at).copied().filter(|part| !part.is_empty());
    match parts.len() {
        1 => Ok([said(0), said(0)]),
        2 | 3 => Ok([said(0), said(1)]),
        _ => Err(format!(
            "`{text}` has more than three values (reads, writes and trims)"
        )),
    }
}

fn split(text: &str) -> Result<(u64, &str), String> {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, radix) = hexadecimal.map_or((text, 10), |digits| (digits, 16));
    let end = digits
        .find(|letter: char| !letter.is_digit(radix))
        .unwrap_or(digits.len());
    let (digits, unit) = digits.split_at(end);
    if radix == 16 && !unit.is_empty() {
        return Err(format!(
            "`{text}` has a unit, but fio does not support units after a hexadecimal number"
        ));
    }
    let number = u64::from_str_radix(digits, radix).ok();
    number
        .map(|number| (number, unit))
        .ok_or_else(|| format!("`{text}` does not start with a whole number"))
}

// The lines of a job file: sections and their options, each with its position.
//
// ```text
//   [global]          ; a section whose name starts with this applies to the following jobs
//   bs=4k             # comments start with ; or #, even after a value
//   [job]
//   stonewall         ; options can have no value
// ```

/// An option and its position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written<'a> {
    pub(super) name: &'a str,
    /// `None` if there is no `=`. Blanks after the `=` are kept, since they change how fio reads the value.
    pub(super) value: Option<&'a str>,
    /// The line number, counted from 1.
    pub(super) line: usize,
    /// The columns of the name and of the value, in characters from 1.
    pub(super) columns: [usize; 2],
    /// The meaning of `k` in the option's section.
    pub(super) base: KbBase,
}

/// A section of a job file.
#[derive(Debug)]
pub(super) struct Section<'a> {
    pub(super) name: &'a str,
    pub(super) line: usize,
    pub(super) options: Vec<Written<'a>>,
}

impl Section<'_> {
    /// Returns whether the section contains defaults for later jobs. Like fio, this compares only the first
    /// six letters.
    pub(super) fn is_global(&self) -> bool {
        self.name.starts_with("global")
    }
}

impl Written<'_> {
    /// Returns an error in the option's name.
    pub(super) fn unusable(&self, why: impl Into<String>) -> Mistake {
        Mistake {
            line: self.line,
            column: self.columns[0],
            why: why.into(),
        }
    }

    /// Returns an error in the option's value.
    pub(super) fn wrong(&self, why: impl std::fmt::Display) -> Mistake {
        Mistake {
            line: self.line,
            column: self.columns[1],
            why: format!("`{}`: {why}", self.name),
        }
    }
}

/// The options in force for a job, by fio's names. Each has a value for reads and one for writes, which are
/// the same unless the option distinguishes them (`DIRECTED`).
pub(super) type Options<'a> = BTreeMap<&'static str, [Option<Written<'a>>; 2]>;

/// Returns the last occurrence of this option.
pub(super) fn latest<'a>(options: &Options<'a>, name: &str) -> Option<Written<'a>> {
    options
        .get(name)?
        .iter()
        .flatten()
        .max_by_key(|option| option.line)
        .copied()
}

/// Parses a file into sections. A line that is neither a section nor an option is an error.
pub(super) fn sections<'a>(text: &'a str, mistakes: &mut Vec<Mistake>) -> Vec<Section<'a>> {
    let mut sections: Vec<Section<'a>> = Vec::new();
    for (index, whole) in text.lines().enumerate() {
        let line = index + 1;
        let used = whole
            .find([';', '#'])
            .map_or(whole, |comment| &whole[..comment])
            .trim();
        if used.is_empty() {
            continue;
        }
        // `used` and its parts are slices of the line.
        let column = |part: &str| {
            1 + whole[..part.as_ptr() as usize - whole.as_ptr() as usize]
                .chars()
                .count()
        };
        let at = |part: &str, why: String| Mistake {
            line,
            column: column(part),
            why,
        };
        if let Some(named) = used.strip_prefix('[') {
            match named.strip_suffix(']') {
                Some(name) => sections.push(Section {
                    name,
                    line,
                    options: Vec::new(),
                }),
                None => mistakes.push(at(
                    used,
                    "the name of a job must end with `]` at the end of the line".to_owned(),
                )),
            }
            continue;
        }
        let Some(section) = sections.last_mut() else {
            mistakes.push(at(
                used,
                "options must be in a section, such as [global] or [job]".to_owned(),
            ));
            continue;
        };
        let (name, value) = match used.split_once('=') {
            Some((name, value)) => (name.trim_end(), Some(value)),
            None => (used, None),
        };
        // Errors in an empty value point to the start of the option.
        let value_at = value.map_or(used, |value| if value.is_empty() { used } else { value });
        let written = Written {
            name,
            value,
            line,
            columns: [column(used), column(value_at)],
            base: KbBase::default(),
        };
        match name.split_whitespace().next() {
            Some("include") => mistakes.push(
                written.unusable("`include` is not supported; insert the file's options here"),
            ),
            _ if value.is_some_and(|value| value.contains("${")) => {
                mistakes.push(
                    written.wrong("environment variables are not supported; insert the value"),
                );
            }
            _ => section.options.push(written),
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_there_once() {
        let mut names = names();
        names.sort_unstable();
        let twice = names.windows(2).find(|two| two[0] == two[1]);
        assert_eq!(twice, None);
        assert_eq!(key("blocksize").map(|key| key.name), Some("bs"));
    }

    fn bytes(text: &str, base: KbBase) -> Result<u64, String> {
        number(text, base, 0..=u64::MAX)
    }

    #[test]
    fn units_are_fios() {
        for (text, binary, decimal) in [
            ("4096", 4096, 4096),
            ("0x10", 16, 16),
            ("4k", 4096, 4000),
            ("4K", 4096, 4000),
            ("4kb", 4096, 4000),
            ("4ki", 4096, 4000),
            ("4KiB", 4000, 4096),
            ("2m", 2 << 20, 2_000_000),
            ("1p", 1 << 50, 1_000_000_000_000_000),
        ] {
            let found = [KbBase::Binary, KbBase::Decimal].map(|base| bytes(text, base));
            assert_eq!(found, [Ok(binary), Ok(decimal)], "{text}");
        }
        for text in [
            "",
            "k",
            "-1",
            "1.5k",
            "4kx",
            "99999999p",
            "0x",
            "0x10k",
            "4 k",
        ] {
            assert!(bytes(text, KbBase::Binary).is_err(), "{text}");
        }
    }

    #[test]
    fn times_have_one_unit() {
        let seconds = |text| time(text, Duration::from_secs(1));
        assert_eq!(seconds("30"), Ok(Duration::from_secs(30)));
        assert_eq!(seconds("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(seconds("1500ms"), Ok(Duration::from_millis(1500)));
        for text in ["1h30m", "1:30", "1.5", "10sec", "8d"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_no_comma_follows_holds_for_writes_too() {
        assert_eq!(directions("4k"), Ok([Some("4k"); 2]));
        assert_eq!(directions("4k,8k"), Ok([Some("4k"), Some("8k")]));
        assert_eq!(directions("4k,"), Ok([Some("4k"), None]));
        assert_eq!(directions(",8k"), Ok([None, Some("8k")]));
        assert!(directions("1,2,3,4").is_err());
    }
}
