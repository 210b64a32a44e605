//! A workload by options, and what lists in them make: a sweep.

use std::path::PathBuf;

use bench::plan::{Align, BlocksList, Data, Distribution, Percent, Rate, Rule, Stop, Suite, Sweep};

use super::shorter::Shorter;
use crate::completions::Offering;
use crate::failure::Failure;
use crate::spec::{NotATime, Time};

/// One workload, or as many as there are combinations of what the lists hold.
#[derive(clap::Args, Debug, Default, PartialEq)]
#[command(next_help_heading = "A workload of your own")]
pub(super) struct WorkloadOptions {
    /// Block size of requests: one, a list (4k,64k) to measure one after the other, or a mix with percentages
    /// (4k:70,64k:30) [default: 4KiB]
    #[arg(long, visible_alias = "bs", value_name = "SIZE,...")]
    block: Option<BlocksList>,
    /// Queue depth: outstanding requests of each session; may be a list [default: 32]
    #[arg(long, visible_alias = "iodepth", value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=65_536))]
    depth: Vec<u32>,
    /// Access pattern as fio names it: read, write, rw, randread, randwrite or randrw; --read and --random go before it
    #[arg(long, value_name = "PATTERN", hide_possible_values = true)]
    rw: Option<Pattern>,
    /// Share of reads; may be a list [default: 100]
    #[arg(long, visible_alias = "rwmixread", value_name = "PERCENT,...", value_delimiter = ',')]
    read: Vec<Percent>,
    /// Share of requests at random offsets, while others follow the one before them; may be a list [default: 100]
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',')]
    random: Vec<Percent>,
    /// Distribution of random offsets: uniform, zipf:THETA, pareto:H or hot:REQUESTS/SPAN in percent, such as hot:90/10
    #[arg(long, value_name = "DISTRIBUTION")]
    distribution: Option<Distribution>,
    /// Alignment of requests: natural (multiples of their size), block, or multiples of a size
    #[arg(long, value_name = "SIZE", hide_possible_values = true,
        value_parser = Offering(str::parse::<Align>, || vec!["natural", "block"]))]
    align: Option<Align>,
    /// Clients, each a thread with its own sessions
    #[arg(long, visible_alias = "numjobs", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    clients: Option<u16>,
    /// Sessions of each client, each with the queue depth
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    sessions: Option<u16>,
    /// Rate of each client in requests per second, whether or not earlier ones have completed (open loop); may be a list
    #[arg(long, value_name = "N[/s],...", value_delimiter = ',')]
    rate: Vec<Rate>,
    /// Random intervals with that rate on average, as independent users make, instead of equal ones
    #[arg(long, requires = "rate")]
    poisson: bool,
    /// Pause in milliseconds before each burst, while outstanding requests continue (Iometer's transfer delay)
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=3_600_000), conflicts_with = "rate")]
    pause_ms: Option<u32>,
    /// Requests between two pauses (Iometer's burst length) [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "pause_ms")]
    burst: Option<u32>,
    /// Time to measure [default: 5s, or at most 60s with --stop-at]; with a suite, the longest time for each of its runs
    #[arg(long, visible_alias = "runtime", value_name = "TIME", value_parser = seconds)]
    seconds: Option<f64>,
    /// Time to make requests before they are counted
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    warm_up: Option<f64>,
    /// Stop when the rate is known to this precision (half of its 95 % confidence interval)
    #[arg(long, value_name = "PERCENT", value_parser = confidence)]
    stop_at: Option<f64>,
    /// Rounds of a sweep, in changing order; results are medians. With a suite, the most rounds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: Option<u32>,
    /// Write data that can be verified, and verify it in reads
    #[arg(long)]
    verify: bool,
    /// Log what the storage promises to this file; `linerate bench verify` checks it after a crash. One write of eight has
    /// FUA, and every 64 are followed by a flush. Includes --verify
    #[arg(long, value_name = "FILE")]
    pub(super) verify_log: Option<PathBuf>,
    /// Random seed of offsets and data [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// Access patterns by fio's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Pattern {
    /// Sequential reads
    Read,
    /// Sequential writes
    Write,
    /// Random reads
    Randread,
    /// Random writes
    Randwrite,
    /// Sequential reads and writes
    #[value(alias = "readwrite")]
    Rw,
    /// Random reads and writes
    Randrw,
}

impl Pattern {
    /// The shares of reads, and of random offsets.
    fn shares(self) -> [Percent; 2] {
        let half = Percent::new(50).expect("a percentage");
        match self {
            Pattern::Read => [Percent::ALL, Percent::NONE],
            Pattern::Write => [Percent::NONE, Percent::NONE],
            Pattern::Randread => [Percent::ALL, Percent::ALL],
            Pattern::Randwrite => [Percent::NONE, Percent::ALL],
            Pattern::Rw => [half, Percent::NONE],
            Pattern::Randrw => [half, Percent::ALL],
        }
    }
}

/// How long a run takes, in seconds.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let Time(time) = text.parse().map_err(|why: NotATime| why.to_string())?;
    let fits = (0.001..=86_400.0).contains(&time.as_secs_f64());
    if fits { Ok(time.as_secs_f64()) } else { Err("a run takes from 1ms to 24h".to_owned()) }
}

fn confidence(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.trim_end_matches('%').parse().ok();
    let fits = number.filter(|percent| (0.1..=50.0).contains(percent));
    fits.ok_or_else(|| "write how well the rate is to be known, from 0.1 to 50 percent".to_owned())
}

impl WorkloadOptions {
    /// Whether nothing was said.
    pub(super) fn is_empty(&self) -> bool {
        *self == WorkloadOptions::default()
    }

    /// What was said for a suite; `None` if that is more than a suite takes.
    pub(super) fn shorter(&self) -> Option<Shorter> {
        let (seconds, rounds) = (self.seconds, self.repeats);
        let at_most = WorkloadOptions { seconds, repeats: rounds, ..WorkloadOptions::default() };
        (*self == at_most).then_some(Shorter { seconds, rounds })
    }

    /// What is to be measured.
    pub(super) fn suite(&self) -> Result<Suite, Failure> {
        let suite = self.sweep().suite().map_err(Failure::refused)?;
        let alone = suite.cells().map(|cell| cell.roles.len()).sum::<usize>() == 1;
        if self.verify_log.is_some() && !alone {
            return Err(Failure::refused(
                "--verify-log is for one workload of one client: leave out lists and --clients",
            ));
        }
        Ok(suite)
    }

    fn sweep(&self) -> Sweep {
        let [reads, randoms] = self.rw.map_or([Percent::ALL; 2], Pattern::shares);
        Sweep {
            blocks: self.block.clone().unwrap_or_default().0,
            depths: or(&self.depth, DEPTH),
            reads: or(&self.read, reads),
            randoms: or(&self.random, randoms),
            rates: or(&self.rate.iter().copied().map(Some).collect::<Vec<_>>(), None),
            poisson: self.poisson,
            distribution: self.distribution.unwrap_or_default(),
            align: self.align.unwrap_or_default(),
            clients: self.clients.unwrap_or(1),
            sessions: self.sessions.unwrap_or(1),
            burst: self.burst.unwrap_or(1),
            pause_ms: self.pause_ms.unwrap_or(0),
            data: match self.verify || self.verify_log.is_some() {
                true => Data::Stamped,
                false => Data::Random,
            },
            seed: self.seed.unwrap_or(1),
            stop: self.stop(),
            repeats: self.repeats.unwrap_or(1),
        }
    }

    fn stop(&self) -> Stop {
        let warm_up_s = self.warm_up.unwrap_or(0.0);
        match self.stop_at {
            None => Stop { warm_up_s, ..Stop::after(self.seconds.unwrap_or(SECONDS)) },
            Some(percent) => {
                let max_s = self.seconds.unwrap_or(SECONDS_TO_KNOW);
                Stop { warm_up_s, min_s: max_s.min(1.0), max_s, rule: Rule::Confidence { percent } }
            }
        }
    }
}

/// As `linerate bench` has always done.
const DEPTH: u32 = 32;
const SECONDS: f64 = 5.0;
/// A rate that is not known after a minute is not going to be.
const SECONDS_TO_KNOW: f64 = 60.0;

fn or<T: Clone>(given: &[T], usual: T) -> Vec<T> {
    if given.is_empty() { vec![usual] } else { given.to_vec() }
}

#[cfg(test)]
mod tests {
    use bench::plan::{Pace, Step};
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        workload: WorkloadOptions,
    }

    fn parsed(arguments: &str) -> Result<WorkloadOptions, clap::Error> {
        let arguments = std::iter::once("bench").chain(arguments.split_whitespace());
        Program::try_parse_from(arguments).map(|program| program.workload)
    }

    fn suite(arguments: &str) -> Suite {
        let options = parsed(arguments).unwrap_or_else(|error| panic!("{arguments}: {error}"));
        options.suite().unwrap_or_else(|failure| panic!("{arguments}: {failure}"))
    }

    #[test]
    fn impossible_options_are_refused() {
        for arguments in [
            "--poisson",
            "--burst 8",
            "--pause-ms 1 --rate 10",
            "--stop-at 0",
            "--depth 0",
            "--read 101",
            "--rate 0",
            "--block 4KiB:70,8KiB:40",
            "--block 4KiB:70,8KiB",
            "--block 0",
            "--distribution zipf:1",
            "--seconds 0",
        ] {
            assert!(parsed(arguments).is_err(), "{arguments}");
        }
        let lists = (1..=1001).map(|depth| depth.to_string()).collect::<Vec<_>>().join(",");
        let many = parsed(&format!("--depth {lists}")).expect("a list");
        assert!(many.suite().is_err_and(|failure| failure.to_string().contains("1001 combinations")));
    }

    #[test]
    fn nothing_said_is_told_from_the_usual_said() {
        assert!(parsed("").expect("nothing").is_empty());
        assert!(!parsed("--depth 32").expect("a depth").is_empty());
        assert!(!parsed("--verify").expect("a flag").is_empty());
    }

    #[test]
    fn lists_make_a_sweep_of_all_combinations() {
        let suite = suite("--block 4KiB,8KiB --depth 1,8,32 --read 100,0");
        let names: Vec<_> = suite.cells().map(|cell| cell.name.as_str()).collect();
        assert_eq!(names.len(), 12);
        assert_eq!(names[..2], ["random-read-4KiB-depth-1", "random-read-4KiB-depth-8"]);
        assert_eq!(names[11], "random-write-8KiB-depth-32");
    }

    #[test]
    fn fios_options_are_understood() {
        let fio = suite("--rw randrw --rwmixread 70 --bs 8k --iodepth 4 --numjobs 2 --runtime 3s");
        let ours = suite("--read 70 --block 8KiB --depth 4 --clients 2 --seconds 3");
        assert_eq!(format!("{fio:?}"), format!("{ours:?}"));
        assert_eq!(
            suite("--rw write").cells().next().expect("a cell").name,
            "sequential-write-4KiB-depth-32"
        );
    }

    #[test]
    fn a_mix_is_one_workload_of_several_lengths() {
        let suite = suite("--block 4KiB:70,64KiB:30 --read 65 --random 60");
        let cell = suite.cells().next().expect("a cell");
        let lengths: Vec<_> = cell.roles[0]
            .workload
            .accesses
            .iter()
            .map(|access| (access.block_bytes, access.share.get()))
            .collect();
        assert_eq!(lengths, [(4096, 70), (65536, 30)]);
        assert_eq!(cell.name, "random60-read65-4KiB:70,64KiB:30-depth-32");
    }

    #[test]
    fn clients_are_roles_with_seeds_of_their_own() {
        let suite = suite("--clients 3 --sessions 2 --seed 7");
        let cell = suite.cells().next().expect("a cell");
        let seeds: Vec<_> =
            cell.roles.iter().map(|role| (role.client, role.sessions, role.workload.seed)).collect();
        assert_eq!(seeds, [(0, 2, 7), (1, 2, 8), (2, 2, 9)]);
    }

    #[test]
    fn a_rate_makes_an_open_loop() {
        let pace = |arguments| suite(arguments).cells().next().expect("a cell").roles[0].workload.pace;
        assert_eq!(pace("--rate 1000/s"), Pace::Constant { per_second: 1000.0 });
        assert_eq!(pace("--rate 1000 --poisson"), Pace::Poisson { per_second: 1000.0 });
    }

    #[test]
    fn bursts_have_their_pause_before_them() {
        let suite = suite("--burst 32 --pause-ms 2");
        let access = &suite.cells().next().expect("a cell").roles[0].workload.accesses[0];
        assert_eq!((access.burst, access.delay_ms), (32, 2));
    }

    #[test]
    fn a_confidence_has_a_longest_time() {
        let Step::Measure { stop, .. } = &suite("--stop-at 2%").steps[0] else { panic!("no measurement") };
        assert_eq!((stop.min_s, stop.max_s, stop.rule), (1.0, 60.0, Rule::Confidence { percent: 2.0 }));
    }
}
