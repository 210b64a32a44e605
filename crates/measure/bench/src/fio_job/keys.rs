//! Every option of fio 3.33 (`fio --cmdhelp=all`, and those of its I/O engines), and what becomes of it here.

/// What becomes of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// It says what is measured, and is read.
    Read,
    /// It says how fio works, reports or finds its files: a workload is the same without it.
    Ignored,
    /// It changes what is measured in a way that does not exist here, unless it has one of these values.
    Refused(&'static [&'static str]),
}

/// An option.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// As fio's manual has it.
    pub(super) name: &'static str,
    /// Its other names.
    aliases: &'static [&'static str],
    pub(super) becomes: Use,
}

/// The option of this name.
pub(super) fn key(name: &str) -> Option<&'static Key> {
    KEYS.iter().flat_map(|keys| keys.iter()).find(|key| key.name == name || key.aliases.contains(&name))
}

/// All names.
pub(super) fn names() -> Vec<&'static str> {
    let keys = KEYS.iter().flat_map(|keys| keys.iter());
    keys.flat_map(|key| std::iter::once(key.name).chain(key.aliases.iter().copied())).collect()
}

const KEYS: [&[Key]; 3] = [READ, IGNORED, REFUSED];

const fn read(name: &'static str, aliases: &'static [&'static str]) -> Key {
    Key { name, aliases, becomes: Use::Read }
}

const fn ignored(name: &'static str) -> Key {
    Key { name, aliases: &[], becomes: Use::Ignored }
}

const fn refused(name: &'static str, neutral: &'static [&'static str]) -> Key {
    Key { name, aliases: &[], becomes: Use::Refused(neutral) }
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
    read("verify", &[]),
    read("do_verify", &[]),
    read("kb_base", &[]),
];

const IGNORED: &[Key] = &[
    // Read for what is different without them.
    ignored("ioengine"),
    ignored("direct"),
    ignored("buffered"),
    // Where fio finds its files: TARGET is the storage here.
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
    // How it works.
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
    // How it verifies.
    ignored("verify_fatal"),
    ignored("verify_dump"),
    ignored("verify_async"),
    ignored("verify_async_cpus"),
    ignored("verify_state_load"),
    ignored("verify_state_save"),
    // What it reports.
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
    // Of io_uring, libaio, pvsync2 and other engines that use files or disks.
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
    // Of engines that bring their own storage, which is TARGET here.
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
    // When requests are made.
    refused("wait_for", &[]),
    refused("startdelay", &["0"]),
    alias(refused("iodepth_batch", &["1"]), &["iodepth_batch_submit"]),
    alias(refused("iodepth_batch_complete_min", &["1"]), &["iodepth_batch_complete"]),
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
    // When a job ends.
    refused("max_latency", &["0"]),
    alias(refused("fill_device", &["0"]), &["fill_fs"]),
    alias(refused("steadystate", &[]), &["ss"]),
    alias(refused("steadystate_duration", &["0"]), &["ss_dur"]),
    alias(refused("steadystate_ramp_time", &["0"]), &["ss_ramp"]),
    // Which requests are made.
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
    // What is promised for writes.
    refused("sync", &["0", "none"]),
    refused("fsync", &["0"]),
    refused("fdatasync", &["0"]),
    refused("sync_file_range", &[]),
    refused("write_barrier", &["0"]),
    refused("end_fsync", &["0"]),
    refused("fsync_on_close", &["0"]),
    refused("readfua", &["0"]),
    refused("writefua", &["0"]),
    refused("sg_write_mode", &["write"]),
    // What is written, and how it is verified.
    refused("buffer_pattern", &[]),
    refused("buffer_compress_percentage", &["0"]),
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
    // Programs that prepare the storage, and jobs that are not reported.
    refused("exec_prerun", &[]),
    refused("exec_postrun", &[]),
    refused("stats", &["1"]),
    // Of engines that measure no storage.
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
}
