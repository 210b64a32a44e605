//! Observes a measurement ([`View`]), and computes the data to display: the rates of the last second
//! ([`LiveState`]), unresponsive storage, and the whole screen ([`Watched`]).

use std::collections::VecDeque;
use std::pin::pin;
use std::time::{Duration, Instant};

use bench::plan::Stop;
use bench::record::{CellRun, Histogram, Record, Sample};
use bench::schedule::Left;
use readable::figures::{grouped, significant};

/// An observer of the progress. It writes to standard error or to the whole screen, since standard output is
/// for results. By default, methods do nothing; `()` is an observer without output.
pub trait View {
    /// A run starts.
    fn begins(&mut self, _doing: &RunStart<'_>) {}

    /// The warm-up is over.
    fn counting(&mut self) {}

    /// A sample of one client.
    fn sample(&mut self, _role: usize, _sample: &Sample) {}

    /// The storage has not responded for this long. This is reported about every second.
    fn waiting(&mut self, _waited: Duration) {}

    /// The progress of a purge.
    fn purged(&mut self, _purged: Purged) {}

    /// A run has ended.
    fn ended(&mut self, _run: &CellRun) {}

    /// A remark for the user.
    fn note(&mut self, _sentence: &str) {}
}

impl View for () {}

/// The progress of a purge.
#[derive(Clone, Copy, Debug)]
pub struct Purged {
    /// Bytes purged so far.
    pub done_bytes: u64,
    /// Bytes to purge.
    pub of_bytes: u64,
}

/// A run that starts.
pub struct RunStart<'a> {
    /// The name of the cell (`read-4KiB`), or `fill`.
    pub name: &'a str,
    /// The number of the run, from 1.
    pub number: u64,
    /// The names of the clients; empty if nothing is measured.
    pub roles: Vec<String>,
    /// The condition that ends the run.
    pub stop: Stop,
    /// The remaining runs and time, including this run.
    pub left: Left,
}

impl RunStart<'_> {
    /// Returns the maximum total number of runs.
    pub fn runs_max(&self) -> u64 {
        (self.number - 1 + self.left.runs_max).max(self.number)
    }

    /// Formats the remaining time: "12 s left", "1 to 4 min left".
    pub fn time_left(&self) -> String {
        let unit = |seconds: u64| match seconds {
            0..120 => (1, "s"),
            120..7200 => (60, "min"),
            _ => (3600, "h"),
        };
        let (least, most) = (
            self.left.time_min.as_secs(),
            self.left.time_max.as_secs_f64().ceil() as u64,
        );
        let (scale, name) = unit(most);
        let (least, most) = (least.div_ceil(scale), most.div_ceil(scale));
        if least == most {
            format!("{most} {name} left")
        } else {
            format!("{least} to {most} {name} left")
        }
    }
}

/// The samples of each client in the last second.
#[derive(Default)]
pub struct LiveState {
    clients: Vec<VecDeque<Sample>>,
    waited: Option<Duration>,
}

/// The rates during the last second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Requests per second.
    pub iops: f64,
    /// Bytes per second, both directions.
    pub bytes_per_s: f64,
    /// The median latency in microseconds: the average of the samples' medians, weighted by request counts.
    /// It is accurate enough for a display, but not for publication.
    pub p50_us: f64,
    /// The highest 99th percentile of any client, in microseconds.
    pub p99_us: f64,
}

/// The time over which rates are averaged. A shorter time produces unreadable numbers, and a longer one
/// outdated numbers.
const WINDOW_S: f64 = 1.0;

impl LiveState {
    /// Creates an empty state for this number of clients.
    pub fn of(clients: usize) -> LiveState {
        LiveState {
            clients: vec![VecDeque::new(); clients],
            waited: None,
        }
    }

    /// Adds a sample, and removes samples that are older than the window.
    pub fn add(&mut self, role: usize, sample: &Sample) {
        if !is_silent(sample) {
            self.waited = None;
        }
        let Some(samples) = self.clients.get_mut(role) else {
            return;
        };
        samples.push_back(*sample);
        while samples
            .front()
            .is_some_and(|first| first.at_s < sample.at_s - WINDOW_S)
        {
            samples.pop_front();
        }
    }

    /// Records that no request has completed for this long.
    pub fn wait(&mut self, waited: Duration) {
        self.waited = Some(waited);
    }

    /// Returns the time since a request last completed, if it is long enough to report.
    pub fn waited(&self) -> Option<Duration> {
        self.waited
    }

    /// Formats the rates: "12,345 IOPS  50.6 MB/s  p99 120 µs", or the time since a request last completed.
    pub fn line(&self) -> String {
        let Rates {
            iops,
            bytes_per_s,
            p99_us,
            ..
        } = self.all();
        self.waited.map_or_else(
            || {
                let (iops, rate) = (grouped(iops.round() as u64), significant(bytes_per_s / 1e6));
                format!("{iops} IOPS  {rate} MB/s  p99 {} µs", significant(p99_us))
            },
            sentence,
        )
    }

    /// Returns the rates of one client.
    pub fn client(&self, role: usize) -> Rates {
        self.clients.get(role).map_or_else(Rates::default, rates)
    }

    /// Returns the rates of all clients combined.
    pub fn all(&self) -> Rates {
        let each = self.clients.iter().map(rates);
        let all = each.fold(Rates::default(), |sum, one| Rates {
            iops: sum.iops + one.iops,
            bytes_per_s: sum.bytes_per_s + one.bytes_per_s,
            p50_us: sum.p50_us + one.p50_us * one.iops,
            p99_us: sum.p99_us.max(one.p99_us),
        });
        Rates {
            p50_us: if all.iops > 0.0 {
                all.p50_us / all.iops
            } else {
                0.0
            },
            ..all
        }
    }
}

fn rates(samples: &VecDeque<Sample>) -> Rates {
    let seconds: f64 = samples.iter().map(|sample| sample.seconds).sum();
    let ios = |sample: &Sample| (sample.reads + sample.writes) as f64;
    let requests: f64 = samples.iter().map(ios).sum();
    if seconds <= 0.0 || requests == 0.0 {
        return Rates::default();
    }
    let bytes: f64 = samples
        .iter()
        .map(|sample| (sample.read_bytes + sample.written_bytes) as f64)
        .sum();
    let p50: f64 = samples
        .iter()
        .map(|sample| sample.p50_us * ios(sample))
        .sum();
    let p99_us = samples
        .iter()
        .map(|sample| sample.p99_us)
        .fold(0.0, f64::max);
    Rates {
        iops: requests / seconds,
        bytes_per_s: bytes / seconds,
        p50_us: p50 / requests,
        p99_us,
    }
}

// Unresponsive storage. A device that hangs may be unresponsive until its timeouts expire, so the wait is
// reported while requests are outstanding.

/// The wait after which unresponsive storage is reported. Shorter waits are normal: a disk spins up, or a
/// path fails over.
pub(crate) const TOLD_AFTER: Duration = Duration::from_secs(3);
/// The interval between reports of a longer wait.
pub(crate) const TOLD_EVERY: Duration = Duration::from_secs(1);

/// Waits for work on the storage. After three seconds, `tell` receives the waiting time about every second.
pub async fn awaited<T>(work: impl Future<Output = T>, mut tell: impl FnMut(Duration)) -> T {
    let mut work = pin!(work);
    let mut silence = Silence::from(reactor::now());
    loop {
        match reactor::timeout(TOLD_EVERY, work.as_mut()).await {
            Ok(output) => return output,
            Err(_) => silence.due(reactor::now()).into_iter().for_each(&mut tell),
        }
    }
}

/// The time for which no request of a run has completed, according to its samples.
pub(crate) struct Silence {
    since: Instant,
    next: Instant,
}

impl Silence {
    /// Creates the state at the start of a run, before any request has completed.
    pub(crate) fn from(now: Instant) -> Silence {
        Silence {
            since: now,
            next: now + TOLD_AFTER,
        }
    }

    /// Records a sample of any client.
    pub(crate) fn heard(&mut self, now: Instant, sample: &Sample) {
        if !is_silent(sample) {
            *self = Silence::from(now);
        }
    }

    /// Returns the waiting time, if a report is due.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Duration> {
        (now >= self.next).then(|| {
            self.next = now + TOLD_EVERY;
            now - self.since
        })
    }
}

/// Returns whether requests were outstanding, but none completed.
pub(crate) fn is_silent(sample: &Sample) -> bool {
    sample.reads + sample.writes == 0 && sample.under_way > 0.0
}

/// Returns a sentence for users.
pub fn sentence(waited: Duration) -> String {
    format!("requests have been waiting for {} s", waited.as_secs())
}

/// The state of the full-screen display, which is updated as a view.
pub struct Watched {
    /// The names of the suite and of the storage.
    pub title: String,
    begun: Instant,
    /// The current run: `[3/24] read-4KiB`.
    pub what: String,
    /// The text of `RunStart::time_left`.
    pub time_left: String,
    /// The progress of the current run, from 0 to 1.
    pub done_share: f64,
    run_seconds: f64,
    /// Names of the clients.
    pub roles: Vec<String>,
    /// The current rates of each client.
    pub now: LiveState,
    /// The recent rates of all clients.
    pub history: VecDeque<Moment>,
    /// The completed runs, the newest last.
    pub ended: Vec<EndedRun>,
    /// The last remark.
    pub note: Option<String>,
}

/// A point of the displayed curves.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Seconds since the measurement began.
    pub at_s: f64,
    /// The rates of all clients at that time.
    pub rates: Rates,
}

/// A completed run.
pub struct EndedRun {
    /// The name of the cell.
    pub name: String,
    /// Requests per second, of all clients.
    pub iops: f64,
    /// Bytes per second, both directions.
    pub bytes_per_s: f64,
    /// The median latency, in microseconds.
    pub p50_us: f64,
    /// The 99th percentile of the latency, in microseconds.
    pub p99_us: f64,
    /// Requests that failed or returned wrong data.
    pub failed: u64,
}

/// Number of points: two minutes, with a sample every tenth of a second.
const MOMENTS: usize = 1200;

impl Watched {
    /// Creates the state before the first run.
    pub fn new(record: &Record) -> Watched {
        Watched {
            title: format!("{} on {}", record.suite.name, record.subject.place),
            begun: Instant::now(),
            what: "preparing".to_owned(),
            time_left: String::new(),
            done_share: 0.0,
            run_seconds: 0.0,
            roles: Vec::new(),
            now: LiveState::default(),
            history: VecDeque::new(),
            ended: record.runs.iter().map(EndedRun::of).collect(),
            note: record.notes.last().cloned(),
        }
    }
}

impl View for Watched {
    fn begins(&mut self, doing: &RunStart<'_>) {
        self.what = format!("[{}/{}] {}", doing.number, doing.runs_max(), doing.name);
        self.time_left = doing.time_left();
        self.done_share = 0.0;
        self.run_seconds = doing.stop.max_s;
        self.roles.clone_from(&doing.roles);
        self.now = LiveState::of(doing.roles.len());
    }

    fn sample(&mut self, role: usize, sample: &Sample) {
        self.now.add(role, sample);
        if role > 0 {
            return;
        }
        self.done_share = if self.run_seconds > 0.0 {
            (sample.at_s / self.run_seconds).min(1.0)
        } else {
            0.0
        };
        self.history.push_back(Moment {
            at_s: self.begun.elapsed().as_secs_f64(),
            rates: self.now.all(),
        });
        while self.history.len() > MOMENTS {
            self.history.pop_front();
        }
    }

    fn purged(&mut self, purged: Purged) {
        self.done_share = purged.done_bytes as f64 / purged.of_bytes.max(1) as f64;
    }

    fn ended(&mut self, run: &CellRun) {
        self.ended.push(EndedRun::of(run));
    }

    fn note(&mut self, sentence: &str) {
        self.note = Some(sentence.to_owned());
    }
}

impl EndedRun {
    fn of(run: &CellRun) -> EndedRun {
        let runs = || run.clients.iter().map(|client| &client.run);
        let flows = runs().flat_map(|run| [&run.reads.service, &run.writes.service]);
        let latencies = flows.fold(Histogram::default(), |all, one| all.merged(one));
        let us = |share| latencies.quantile_ns(share) as f64 / 1e3;
        EndedRun {
            name: run.cell.clone(),
            iops: run.iops(),
            bytes_per_s: run.bytes_per_s(),
            p50_us: us(0.5),
            p99_us: us(0.99),
            failed: runs().map(|run| run.errors + run.mismatches).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reactor::Alone;

    #[test]
    fn the_time_that_is_left_is_one_number_or_two() {
        let left = |least, most| {
            let (time_min, time_max) = (Duration::from_secs(least), Duration::from_secs(most));
            let left = Left {
                runs_min: 1,
                runs_max: 3,
                time_min,
                time_max,
            };
            RunStart {
                name: "x",
                number: 2,
                roles: Vec::new(),
                stop: Stop::after(1.0),
                left,
            }
        };
        assert_eq!(left(12, 12).time_left(), "12 s left");
        assert_eq!(left(50, 200).time_left(), "1 to 4 min left");
        assert_eq!(left(50, 200).runs_max(), 4);
    }

    fn sample(at_s: f64, reads: u64, p99_us: f64) -> Sample {
        Sample {
            at_s,
            seconds: 0.5,
            reads,
            read_bytes: reads * 4096,
            p50_us: 100.0,
            p99_us,
            ..Sample::default()
        }
    }

    #[test]
    fn what_is_a_second_old_is_forgotten() {
        let mut now = LiveState::of(1);
        (1..=10).for_each(|half| {
            now.add(
                0,
                &sample(f64::from(half) / 2.0, if half < 8 { 0 } else { 50 }, 1.0),
            )
        });
        assert_eq!(now.all().iops, 100.0);
        assert_eq!(now.all().bytes_per_s, 409_600.0);
    }

    #[test]
    fn clients_are_added_and_the_worst_is_shown() {
        let mut now = LiveState::of(2);
        now.add(0, &sample(0.5, 100, 300.0));
        now.add(1, &sample(0.5, 300, 900.0));
        let all = now.all();
        assert_eq!((all.iops, all.p50_us, all.p99_us), (800.0, 100.0, 900.0));
    }

    #[test]
    fn nothing_done_is_no_division_by_zero() {
        assert_eq!(LiveState::of(3).all(), Rates::default());
    }

    #[test]
    fn a_wait_is_told_after_three_seconds_and_then_every_second() {
        let mut told = Vec::new();
        reactor::block_on(Alone::virtual_time(), async {
            awaited(reactor::sleep(Duration::from_millis(5500)), |waited| {
                told.push(waited.as_secs())
            })
            .await;
            awaited(reactor::sleep(Duration::from_millis(2500)), |waited| {
                told.push(waited.as_secs())
            })
            .await;
        });
        assert_eq!(told, [3, 4, 5]);
    }

    #[test]
    fn a_completed_request_or_a_pause_ends_the_silence() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let sample = |reads, under_way| Sample {
            reads,
            under_way,
            ..Sample::default()
        };
        let mut silence = Silence::from(begun);
        silence.heard(at(2), &sample(0, 1.0));
        assert_eq!(
            [2, 3].map(|seconds| silence.due(at(seconds)).is_some()),
            [false, true]
        );
        silence.heard(at(4), &sample(1, 1.0));
        assert_eq!(
            [6, 7].map(|seconds| silence.due(at(seconds)).is_some()),
            [false, true]
        );
        silence.heard(at(8), &sample(0, 0.0));
        assert_eq!(
            [10, 11].map(|seconds| silence.due(at(seconds)).is_some()),
            [false, true]
        );
    }
}
