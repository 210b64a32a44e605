//! CPU time of this process, this thread, another process or the whole machine, for benchmarks and for
//! `linerate selftest`.

// SAFETY of this file: two calls that fill in a local value, each in a wrapper that states why it is sound.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

/// User and system time of all threads of this process.
pub fn process() -> Duration {
    read(ClockId::ProcessCPUTime)
}

/// User and system time of the calling thread.
pub fn thread() -> Duration {
    read(ClockId::ThreadCPUTime)
}

/// Time during which the calling thread was runnable but had no CPU. Fails if the kernel does not report this
/// time (without CONFIG_SCHED_INFO).
pub fn thread_waited() -> io::Result<Duration> {
    let told = fs::read_to_string("/proc/thread-self/schedstat")?;
    let waited = told
        .split_ascii_whitespace()
        .nth(1)
        .and_then(|ns| ns.parse().ok());
    waited
        .map(Duration::from_nanos)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "schedstat has another form"))
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    // CPU clocks start at zero, so neither part is negative.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// User and system time of all threads of process `pid`, including threads that have ended. Needs no
/// privileges, even for processes of other users.
pub fn of_process(pid: u32) -> io::Result<Duration> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::ErrorKind::NotFound)?;
    let mut clock: libc::clockid_t = 0;
    // SAFETY: writes one clockid_t, which `clock` is.
    let error = unsafe { libc::clock_getcpuclockid(pid, &mut clock) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec, which `time` is. A clock whose process has ended is refused with EINVAL.
    match unsafe { libc::clock_gettime(clock, &mut time) } {
        0 => Ok(Duration::new(
            time.tv_sec.unsigned_abs(),
            time.tv_nsec as u32,
        )),
        _ => Err(io::Error::last_os_error()),
    }
}

/// CPU time of each thread of a process, by thread number, in the kernel's ticks of 10 ms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Threads(BTreeMap<u32, Duration>);

impl Threads {
    /// Reads the CPU time of all threads of process `pid`.
    pub fn of_process(pid: u32) -> io::Result<Threads> {
        let mut times = BTreeMap::new();
        for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
            let entry = entry?;
            let thread = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            // Skip a thread that has ended since the directory was read.
            let time = fs::read_to_string(entry.path().join("stat"))
                .ok()
                .and_then(|stat| used(&stat));
            times.extend(thread.zip(time));
        }
        Ok(Threads(times))
    }

    /// Reads the CPU time of a single thread of process `pid`. Fails if the thread has ended.
    pub fn only(pid: u32, thread: u32) -> io::Result<Threads> {
        let stat = fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat"))?;
        let time = used(&stat).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(Threads(BTreeMap::from([(thread, time)])))
    }

    /// CPU time of one thread; zero if the thread was not running when the times were read.
    pub fn of_thread(&self, thread: u32) -> Duration {
        self.0.get(&thread).copied().unwrap_or_default()
    }

    /// CPU time since `earlier` of the thread that was busiest in that period.
    pub fn busiest_since(&self, earlier: &Threads) -> Duration {
        let used = self
            .0
            .iter()
            .map(|(thread, time)| time.saturating_sub(earlier.of_thread(*thread)));
        used.max().unwrap_or_default()
    }
}

/// Busy time of all CPUs since boot, for programs, the kernel and interrupts. Excludes time that a hypervisor
/// gave to other guests.
pub fn machine() -> io::Result<Duration> {
    let stat = fs::read_to_string("/proc/stat")?;
    worked(&stat)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/stat has another form"))
}

/// Returns user plus system time from `/proc/PID/stat` (proc_pid_stat(5): fields 14 and 15). The second
/// field, the name, may contain any characters, including parentheses, and ends at the last closing
/// parenthesis.
fn used(stat: &str) -> Option<Duration> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name
        .split_ascii_whitespace()
        .skip(11)
        .map(|ticks| ticks.parse::<u64>().ok());
    Some(ticks(fields.next()??.checked_add(fields.next()??)?))
}

/// Returns the busy time from the line `cpu` of `/proc/stat` (proc_stat(5)). Its values are user, nice,
/// system, idle, iowait, irq, softirq and steal, followed by values that are already contained in user.
fn worked(stat: &str) -> Option<Duration> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let numbers: Vec<u64> = line
        .split_ascii_whitespace()
        .map_while(|number| number.parse().ok())
        .collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, ..] = numbers[..] else {
        return None;
    };
    Some(ticks(
        [user, nice, system, irq, softirq]
            .into_iter()
            .fold(0, u64::saturating_add),
    ))
}

fn ticks(ticks: u64) -> Duration {
    let per_second = clock_ticks_per_second().max(1);
    Duration::from_secs(ticks / per_second)
        + Duration::from_nanos(ticks % per_second * 1_000_000_000 / per_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_uses_cpu_time() {
        let before = thread();
        while thread() == before {
            std::hint::black_box(0);
        }
        assert!(process() >= thread());
    }

    #[test]
    fn waiting_for_a_cpu_only_grows() {
        // Skip the test if the kernel does not report the time.
        let Ok(before) = thread_waited() else { return };
        std::thread::yield_now();
        assert!(thread_waited().expect("as before") >= before);
    }

    #[test]
    fn another_process_is_asked_by_its_number() {
        let (before, other) = (
            process(),
            of_process(std::process::id()).expect("we are there"),
        );
        assert!(other >= before && other <= process());
    }

    #[test]
    fn a_process_that_is_not_there_has_no_time() {
        // Numbers above the largest process number on Linux (2^22).
        assert!(of_process(1 << 23).is_err() && of_process(u32::MAX).is_err());
        assert!(
            Threads::of_process(1 << 23).is_err()
                && Threads::only(std::process::id(), 1 << 23).is_err()
        );
    }

    #[test]
    fn the_busiest_thread_is_the_one_that_worked() {
        let before = Threads::of_process(std::process::id()).expect("we are there");
        let start = thread();
        while thread() - start < Duration::from_millis(40) {
            std::hint::black_box(0);
        }
        let after = Threads::of_process(std::process::id()).expect("we are there");
        assert!(
            after.busiest_since(&before) >= Duration::from_millis(20),
            "{before:?} {after:?}"
        );
    }

    #[test]
    fn a_name_may_hold_brackets_and_blanks() {
        let stat = "71 (a) b 1 2) S 1 71 71 0 -1 4194560 5 0 0 0 250 150 0 0 20 0 1 0 6 7 8";
        assert_eq!(used(stat), Some(ticks(400)));
        for bad in [
            "",
            "71 (x",
            "71 (x) S",
            "71 (x) S 1 71 71 0 -1 4194560 5 0 0 0 -1 150",
        ] {
            assert_eq!(used(bad), None, "{bad}");
        }
    }

    #[test]
    fn idle_and_stolen_time_is_not_work() {
        let stat = "cpu  100 20 30 99999 8888 4 5 7777 60 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n";
        assert_eq!(worked(stat), Some(ticks(159)));
        for bad in ["", "cpu", "cpu  1 2 3", "cpu  a b c d e f g h"] {
            assert_eq!(worked(bad), None, "{bad}");
        }
        assert!(machine().expect("Linux has it") > Duration::ZERO);
    }
}
