//! The cost of a run for its client, from the end of the warm-up to the last sample: CPU time, and statistics
//! of its sessions, or of the channels of the device.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bench::record::Cpu;
use host::{cputime, threads};
use iscsi_client::Statistics;
use reactor::JoinHandle;

use super::channels::ChannelFigures;
use super::frames::FrameFigures;
use super::ways::{StoragePaths, told};
use backends::peers::Channelled;

/// Under way.
pub(crate) struct Costs {
    alone: bool,
    /// What was known when counting began.
    before: JoinHandle<Before>,
    /// The clocks at the last sample: what comes after it (requests that come to their end) is not counted
    /// either.
    last: Cell<Option<Clocks>>,
    channels: Option<Arc<dyn Channelled>>,
}

struct Before {
    clocks: Clocks,
    statistics: Vec<Statistics>,
    channels: Option<ChannelFigures>,
    frames: Vec<Option<FrameFigures>>,
}

/// What it came to.
pub(crate) struct Cost {
    pub cpu: Cpu,
    pub statistics: Vec<Statistics>,
    pub channels: Option<ChannelFigures>,
    /// Of each HyperSCSI session.
    pub frames: Vec<FrameFigures>,
}

#[derive(Clone, Copy)]
struct Clocks {
    thread: Duration,
    looked_in_vain: Duration,
    process: Duration,
    machine: Option<Duration>,
}

impl Costs {
    /// Looks at the clocks when counting begins, and says so.
    pub(crate) fn begin(
        alone: bool,
        counting: Instant,
        ways: &StoragePaths,
        channels: Option<&Arc<dyn Channelled>>,
        say: impl FnOnce() + 'static,
    ) -> Costs {
        let (targets, sessions, channels) =
            (ways.targets().to_vec(), ways.sessions().to_vec(), channels.cloned());
        let device = channels.clone();
        let before = reactor::spawn(async move {
            reactor::sleep_until(counting).await;
            say();
            let clocks = Clocks::now();
            let channels = ChannelFigures::of(device.as_ref()).await;
            let frames = FrameFigures::of(&sessions).await;
            Before { clocks, statistics: told(&targets).await, channels, frames }
        });
        Costs { alone, before, last: Cell::new(None), channels }
    }

    /// A sample has ended.
    pub(crate) fn note(&self) {
        self.last.set(Some(Clocks::now()));
    }

    /// All of it. Nothing, if it ended before anything was counted.
    pub(crate) async fn end(self, ways: &StoragePaths) -> Cost {
        let after = self.last.get().unwrap_or_else(Clocks::now);
        if !self.before.is_finished() {
            self.before.abort();
            let cpu = Cpu { cpus: cpus(), ..Cpu::default() };
            return Cost { cpu, statistics: Vec::new(), channels: None, frames: Vec::new() };
        }
        let channels = ChannelFigures::of(self.channels.as_ref()).await;
        let statistics = told(ways.targets()).await;
        let frames = FrameFigures::of(ways.sessions()).await;
        let before = self.before.await;
        let since = statistics.iter().zip(&before.statistics);
        let statistics = since.map(|(after, before)| after.since(before)).collect();
        let channels = channels.zip(before.channels).map(|(after, before)| after.since(&before));
        let frames = frames.into_iter().zip(&before.frames);
        let frames = frames.filter_map(|(after, before)| Some(after?.since(before.as_ref()?))).collect();
        Cost { cpu: after.since(&before.clocks, self.alone), statistics, channels, frames }
    }
}

impl Clocks {
    fn now() -> Clocks {
        Clocks {
            thread: cputime::thread(),
            looked_in_vain: reactor::world().looked_in_vain(),
            process: cputime::process(),
            machine: cputime::machine().ok(),
        }
    }

    fn since(&self, before: &Clocks, alone: bool) -> Cpu {
        let thread = self.thread.saturating_sub(before.thread).as_secs_f64();
        let process = self.process.saturating_sub(before.process).as_secs_f64();
        let machine = self.machine.zip(before.machine).map(|(after, before)| after.saturating_sub(before));
        Cpu {
            seconds: if alone { process } else { thread },
            busiest_thread_s: thread,
            looked_in_vain_s: self.looked_in_vain.saturating_sub(before.looked_in_vain).as_secs_f64(),
            machine_s: machine.map(|machine| machine.as_secs_f64()),
            cpus: cpus(),
        }
    }
}

/// CPUs that this process may use.
pub(crate) fn cpus() -> u32 {
    u32::try_from(threads::available().get()).unwrap_or(u32::MAX)
}
