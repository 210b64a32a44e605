//! The properties of the machine that affect the figures, and the CPU time and memory of processes as counted by the kernel
//! (proc(5)).

use std::fs;
use std::io::ErrorKind;

use anyhow::{Context, Result};
use rustix::io::Errno;

/// Returns the number and model of the machine's cores.
pub(crate) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{cores} cores, {}", processor())
}

/// Returns the release of Linux.
pub(crate) fn kernel() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    name.unwrap_or("unknown")
        .trim_start_matches([' ', '\t', ':'])
        .to_owned()
}

/// Returns the load average of the last minute.
pub(crate) fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|minute| minute.parse().ok())
        .unwrap_or(0.0)
}

/// Returns the share of the machine's CPU time that is used now, from 0 to 1, by a measurement of a second (proc(5), the
/// first line of `/proc/stat`: user, nice, system, idle, iowait, …).
pub(crate) fn busy_share() -> Result<f64> {
    let times = || -> Result<[f64; 2]> {
        let text = fs::read_to_string("/proc/stat").context("/proc/stat")?;
        let line = text.lines().next().unwrap_or_default();
        let times: Vec<f64> = line
            .split_whitespace()
            .filter_map(|time| time.parse().ok())
            .collect();
        Ok([
            times.iter().take(8).sum(),
            times.iter().skip(3).take(2).sum(),
        ])
    };
    let [all, idle] = times()?;
    std::thread::sleep(std::time::Duration::from_secs(1));
    let [all_later, idle_later] = times()?;
    Ok(1.0 - (idle_later - idle) / (all_later - all).max(1.0))
}

/// Returns the user and system time of all threads of a running process, in seconds, in steps of 10 ms.
pub(crate) fn cpu_s(pid: u32) -> Result<f64> {
    seconds(&pid.to_string(), OWN).context("the server has terminated")
}

/// Like [`cpu_s`], for all child processes that have ended. The kernel adds their times when this process
/// waits for them.
pub(crate) fn children_cpu_s() -> Result<f64> {
    seconds("self", CHILDREN)
}

/// Indices of utime and stime, which are fields 14 and 15; cutime and cstime follow. The first field after
/// the program's name is number 3.
const OWN: usize = 14 - 3;
const CHILDREN: usize = 16 - 3;

fn seconds(process: &str, field: usize) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let ticks = ticks(&stat, field).context("/proc/PID/stat")?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Returns a field of a process's statistics. The program's name is in parentheses and can contain any
/// character, including parentheses and spaces, so fields are counted from its end.
fn ticks(stat: &str, field: usize) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(field);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// Returns the private memory of a process in bytes: memory neither shared with other processes nor backed by
/// a file.
pub(crate) fn own_memory(pid: u32) -> Result<u64> {
    memory(pid, "Anonymous:")
}

/// Returns the proportional set size in bytes: private memory, plus a share of shared memory such as the
/// program's code.
pub(crate) fn proportional_memory(pid: u32) -> Result<u64> {
    memory(pid, "Pss:")
}

fn memory(pid: u32, field: &str) -> Result<u64> {
    let text =
        fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).context("the server has ended")?;
    field_kib(&text, field)
        .map(|kib| kib << 10)
        .context("smaps_rollup")
}

/// Returns the CPU time of all current threads of a process, in seconds, with nanosecond resolution.
/// [`cpu_s`] is too coarse for an almost idle process.
pub(crate) fn threads_cpu_s(pid: u32) -> Result<f64> {
    let mut nanoseconds = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).context("the server has ended")? {
        let text = match fs::read_to_string(task?.path().join("schedstat")) {
            Ok(text) => text,
            // The thread has exited since the listing. The error is ESRCH if the file was already open.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => continue,
            Err(error) => return Err(error).context("schedstat"),
        };
        nanoseconds += text
            .split(' ')
            .next()
            .and_then(|run| run.parse::<u64>().ok())
            .context("schedstat")?;
    }
    Ok(nanoseconds as f64 / 1e9)
}

fn field_kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_any_name() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 100 0 0 0 42 8 3 4 20 0 3 0 100 1 2";
        assert_eq!(ticks(stat, OWN), Some(50));
        assert_eq!(ticks(stat, CHILDREN), Some(7));
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "Rss:    9320 kB\nPss:    7331 kB\nPss_Dirty:   12 kB\nAnonymous:    916 kB\n";
        assert_eq!(field_kib(text, "Pss:"), Some(7331));
        assert_eq!(field_kib(text, "Anonymous:"), Some(916));
        assert_eq!(field_kib(text, "Swap:"), None);
    }

    #[test]
    fn this_process_has_memory_and_used_time() {
        let pid = std::process::id();
        assert!(own_memory(pid).expect("readable") > 0);
        assert!(proportional_memory(pid).expect("readable") > 0);
        assert!(threads_cpu_s(pid).expect("readable") > 0.0);
    }

    #[test]
    fn a_thread_that_ends_meanwhile_is_not_missed() {
        std::thread::scope(|scope| {
            scope.spawn(|| (0..2000).for_each(|_| drop(std::thread::spawn(|| ()).join())));
            for _ in 0..2000 {
                assert!(threads_cpu_s(std::process::id()).expect("readable") > 0.0);
            }
        });
    }
}
