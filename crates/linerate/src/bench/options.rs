//! A workload by options, and what lists in them make: a sweep.

use std::path::PathBuf;

use bench::plan::{Align, BlocksList, Data, Distribution, Percent, Rate, Rule, Stop, Suite, Sweep};

use super::shorter::Shorter;
use crate::failure::Failure;

/// One workload, or as many as there are combinations of what the lists hold.
#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "A workload of your own")]
pub(super) struct WorkloadOptions {
    /// Lengths of requests: one, a list (4KiB,64KiB) to measure one after the other, or a mix with percentages
    /// (4KiB:70,64KiB:30) [default: 4KiB]
    #[arg(long, value_name = "SIZES")]
    block: Option<BlocksList>,
    /// Requests under way at once, in each session; may be a list [default: 32]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=65_536))]
    depth: Vec<u32>,
    /// How many of the requests are reads; may be a list [default: 100]
    #[arg(long, value_name = "PERCENT", value_delimiter = ',')]
    read: Vec<Percent>,
    /// How many of the requests go to random places; the others follow the one before them; may be a list [default: 100]
    #[arg(long, value_name = "PERCENT", value_delimiter = ',')]
    random: Vec<Percent>,
    /// How random places are spread: uniform, zipf:THETA, pareto:H or hot:REQUESTS/SPAN in percent, such as hot:90/10
    #[arg(long, value_name = "HOW")]
    distribution: Option<Distribution>,
    /// Where requests may start: natural (at multiples of their length), block, or at multiples of a size
    #[arg(long, value_name = "SIZE")]
    align: Option<Align>,
    /// Clients, each a thread with sessions of its own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    clients: Option<u16>,
    /// Sessions of each client, each with its own requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    sessions: Option<u16>,
    /// Make so many requests a second in each client, whether others have ended or not (open loop); may be a list
    #[arg(long, value_name = "N[/s]", value_delimiter = ',')]
    rate: Vec<Rate>,
    /// At random distances with that rate on average, as independent users would, instead of equal ones
    #[arg(long, requires = "rate")]
    poisson: bool,
    /// Pause for so many milliseconds before each burst, while what is under way goes on (Iometer's transfer delay)
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=3_600_000), conflicts_with = "rate")]
    pause_ms: Option<u32>,
    /// Requests made between two pauses (Iometer's burst length) [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "pause_ms")]
    burst: Option<u32>,
    /// How long to measure [default: 5, or at most 60 with --stop-at]; with a suite, the longest time for each of its
    /// runs
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<f64>,
    /// How long to make requests before they are counted
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    warm_up: Option<f64>,
    /// Stop as soon as the rate is known to so many percent (half of its 95 % confidence interval)
    #[arg(long, value_name = "PERCENT", value_parser = confidence)]
    stop_at: Option<f64>,
    /// Measure all of a sweep so often, in changing order; the results are medians. With a suite, the most rounds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: Option<u32>,
    /// What is written: random numbers, or zeros
    #[arg(long, value_name = "DATA", value_parser = ["random", "zeros"])]
    data: Option<String>,
    /// Write data that can be recognised, and check it in reads
    #[arg(long, conflicts_with = "data")]
    verify: bool,
    /// Note in this file what the storage promises, beyond a crash of either side: `linerate verify-log` then checks that
    /// it has kept it. One write of eight goes to stable storage by itself, and every 64 are followed by a flush
    #[arg(long, value_name = "FILE", requires = "verify")]
    pub(super) verify_log: Option<PathBuf>,
    /// Where random places and data come from [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// How long something takes, in seconds.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
    let fits = (0.001..=86_400.0).contains(&seconds);
    if fits { Ok(seconds) } else { Err("a run takes from 0.001 to 86400 seconds".to_owned()) }
}

fn confidence(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.trim_end_matches('%').parse().ok();
    let fits = number.filter(|percent| (0.1..=50.0).contains(percent));
    fits.ok_or_else(|| "write how well the rate is to be known, from 0.1 to 50 percent".to_owned())
}

impl WorkloadOptions {
    /// Whether nothing was said.
    pub(super) fn is_empty(&self) -> bool {
        self.shortens_at_most() && self.seconds.is_none() && self.repeats.is_none()
    }

    /// Whether nothing was said but how long and how often, which may be said of a suite too. The fields are all named: one more
    /// does not compile until it is here.
    fn shortens_at_most(&self) -> bool {
        let WorkloadOptions {
            block,
            depth,
            read,
            random,
            distribution,
            align,
            clients,
            sessions,
            rate,
            poisson,
            pause_ms,
            burst,
            seconds: _,
            warm_up,
            stop_at,
            repeats: _,
            data,
            verify,
            verify_log,
            seed,
        } = self;
        let lists = [depth.is_empty(), read.is_empty(), random.is_empty(), rate.is_empty()];
        let values = [
            block.is_none(),
            distribution.is_none(),
            align.is_none(),
            clients.is_none(),
            sessions.is_none(),
            pause_ms.is_none(),
            burst.is_none(),
            warm_up.is_none(),
            stop_at.is_none(),
            data.is_none(),
            verify_log.is_none(),
            seed.is_none(),
        ];
        lists.into_iter().chain(values).all(|is_absent| is_absent) && !poisson && !verify
    }

    /// What was said for a suite; `None` if that is more than a suite takes.
    pub(super) fn shorter(&self) -> Option<Shorter> {
        self.shortens_at_most().then_some(Shorter { seconds: self.seconds, rounds: self.repeats })
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
        Sweep {
            blocks: self.block.clone().unwrap_or_default().0,
            depths: or(&self.depth, DEPTH),
            reads: or(&self.read, Percent::ALL),
            randoms: or(&self.random, Percent::ALL),
            rates: or(&self.rate.iter().copied().map(Some).collect::<Vec<_>>(), None),
            poisson: self.poisson,
            distribution: self.distribution.unwrap_or_default(),
            align: self.align.unwrap_or_default(),
            clients: self.clients.unwrap_or(1),
            sessions: self.sessions.unwrap_or(1),
            burst: self.burst.unwrap_or(1),
            pause_ms: self.pause_ms.unwrap_or(0),
            data: match self.data.as_deref() {
                _ if self.verify => Data::Stamped,
                Some("zeros") => Data::Zeros,
                _ => Data::Random,
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
            "--verify --data zeros",
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
