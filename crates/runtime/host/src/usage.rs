//! Resources that this process uses, except CPU time ([`crate::cputime`]), and its limit on open files.

use std::fs;
use std::io;

use rustix::param::page_size;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Resources of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Address space in bytes.
    pub virtual_bytes: u64,
    /// Number of open file descriptors.
    pub open_files: u64,
    /// Number of threads.
    pub threads: u64,
}

/// Returns the resources that this process currently uses.
pub fn of_this_process() -> io::Result<Usage> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "/proc/self has another form");
    let statm = fs::read_to_string("/proc/self/statm")?;
    let stat = fs::read_to_string("/proc/self/stat")?;
    let mut pages = statm
        .split_ascii_whitespace()
        .map_while(|number| number.parse::<u64>().ok());
    let (size, resident) = pages.next().zip(pages.next()).ok_or_else(invalid)?;
    Ok(Usage {
        resident_bytes: resident * page_size() as u64,
        virtual_bytes: size * page_size() as u64,
        open_files: open_files()?,
        threads: threads(&stat).ok_or_else(invalid)?,
    })
}

/// Returns the number of open files. Linux 6.2 and later report it as the size of `/proc/self/fd`. Earlier
/// kernels report zero, so the entries are counted.
fn open_files() -> io::Result<u64> {
    match fs::metadata("/proc/self/fd")?.len() {
        // One of the entries is the descriptor of the directory itself.
        0 => Ok(fs::read_dir("/proc/self/fd")?.count().saturating_sub(1) as u64),
        count => Ok(count),
    }
}

/// Returns `num_threads` from `/proc/PID/stat` (proc_pid_stat(5): field 20). The program's name in front of
/// it may contain any characters.
fn threads(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(17)?.parse().ok()
}

/// Raises this process's soft limit on open files to its hard limit. The usual soft limit of 1,024 is for
/// programs that use select(2), and is too low for the sessions of a busy server. Returns the new limit;
/// `None` means unlimited.
pub fn raise_open_files() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // Raising the soft limit to the hard limit is always allowed. If it failed nevertheless, the old limit
    // would remain.
    let _ = setrlimit(Resource::Nofile, raised);
    getrlimit(Resource::Nofile).current
}

/// This process's soft limit on open files; `None` means unlimited.
pub fn open_files_max() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_holds_something() {
        let usage = of_this_process().expect("procfs");
        assert!(
            usage.resident_bytes > 0 && usage.virtual_bytes >= usage.resident_bytes,
            "{usage:?}"
        );
        assert!(usage.open_files >= 3 && usage.threads >= 1, "{usage:?}");
    }

    #[test]
    fn threads_are_the_twentieth_field() {
        let stat = "71 (a) b 1) S 1 71 71 0 -1 4194560 5 0 0 0 250 150 0 0 20 0 9 0 6 7 8";
        assert_eq!(threads(stat), Some(9));
        assert_eq!(threads("71 (x"), None);
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        assert_eq!(raise_open_files(), getrlimit(Resource::Nofile).maximum);
    }
}
