//! `cargo measure burn`: a program that does nothing, busily, for a part of each period. It ends with its parent.

use std::time::{Duration, Instant};

use rustix::process::getppid;

use xtask::tally::Verdict;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How much of the time it takes, from 0 to 1
    #[arg(long)]
    share: f64,
    /// In periods of so many microseconds
    #[arg(long)]
    period_us: u64,
}

pub(crate) fn run(options: &Options) -> Verdict {
    let period = Duration::from_micros(options.period_us);
    let busy = period.mul_f64(options.share.clamp(0.0, 1.0));
    let parent = getppid();
    let mut start = Instant::now();
    while getppid() == parent {
        while start.elapsed() < busy {
            std::hint::spin_loop();
        }
        start += period;
        // Whoever was late does not catch up: that would be one long burst.
        start = start.max(Instant::now().checked_sub(period).unwrap_or(start));
        std::thread::sleep(start.saturating_duration_since(Instant::now()));
    }
    Verdict::Holds
}
