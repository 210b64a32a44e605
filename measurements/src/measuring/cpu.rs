//! The CPU time that programs have used, as the kernel counts it (proc(5), `/proc/PID/stat`), in steps of 10 ms.

use std::fs;

use anyhow::{Context, Result};

/// A running process: user and system time of all its threads.
pub(crate) fn of_process(pid: u32) -> Result<f64> {
    seconds(&pid.to_string(), OWN).context("the server has ended")
}

/// All the programs that we have started and that have ended. The kernel adds them when we wait for them.
pub(crate) fn of_ended_children() -> Result<f64> {
    seconds("self", CHILDREN)
}

/// utime and stime, which are fields 14 and 15, and cutime and cstime behind them; the first field behind the program's
/// name is number 3.
const OWN: usize = 14 - 3;
const CHILDREN: usize = 16 - 3;

fn seconds(process: &str, field: usize) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let ticks = ticks(&stat, field).context("/proc/PID/stat")?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// The program's name stands in brackets and may hold anything, brackets and spaces too: fields count from behind it.
fn ticks(stat: &str, field: usize) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(field);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
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
}
