//! What a process uses, as the kernel counts it: memory by page (proc(5), `smaps_rollup`) and CPU time by the
//! nanosecond (`schedstat`), which the 10 ms steps of `stat` are too coarse for where almost nothing happens.

use std::fs;
use std::io::ErrorKind;

use anyhow::{Context, Result};
use rustix::io::Errno;

/// Memory of a process's own, in bytes: what no other process has and no file can give back.
pub(crate) fn own_memory(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).context("the server has ended")?;
    field_kib(&text, "Anonymous:").map(|kib| kib << 10).context("smaps_rollup")
}

/// Proportional set size in bytes: its own memory, and its share of what it has with others (the program's code).
pub(crate) fn proportional_memory(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).context("the server has ended")?;
    field_kib(&text, "Pss:").map(|kib| kib << 10).context("smaps_rollup")
}

/// CPU time of all threads it has, in seconds.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64> {
    let mut nanoseconds = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).context("the server has ended")? {
        let text = match fs::read_to_string(task?.path().join("schedstat")) {
            Ok(text) => text,
            Err(error) if has_ended(&error) => continue, // between the listing and this
            Err(error) => return Err(error).context("schedstat"),
        };
        nanoseconds += text.split(' ').next().and_then(|run| run.parse::<u64>().ok()).context("schedstat")?;
    }
    Ok(nanoseconds as f64 / 1e9)
}

/// Whether a file below `/proc` could not be read because its thread is no more (proc(5); ESRCH once it was open).
fn has_ended(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

fn field_kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(cpu_seconds(pid).expect("readable") > 0.0);
    }

    #[test]
    fn a_thread_that_ends_meanwhile_is_not_missed() {
        std::thread::scope(|scope| {
            scope.spawn(|| (0..2000).for_each(|_| drop(std::thread::spawn(|| ()).join())));
            for _ in 0..2000 {
                assert!(cpu_seconds(std::process::id()).expect("readable") > 0.0);
            }
        });
    }
}
