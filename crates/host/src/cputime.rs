//! How much CPU time this process and this thread have used, for benchmarks and for `linerate prove`.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// User and system time of all threads of this process.
pub fn process() -> Duration {
    read(ClockId::ProcessCPUTime)
}

/// User and system time of the calling thread.
pub fn thread() -> Duration {
    read(ClockId::ThreadCPUTime)
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    // CPU clocks start at zero: neither part is negative.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
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
}
