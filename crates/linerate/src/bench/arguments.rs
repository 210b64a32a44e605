//! The arguments of `linerate bench`: [`BenchArguments`], including the workload ([`WorkloadOptions`]).

use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::wire::message::Open;
use bench::Extent;
use bench::plan::{
    Align, BlocksList, Data, Distribution, Durable, Percent, Rate, Rule, Stop, Suite, Sweep,
};
use bench_runner::agents::{AgentName, Agents};
use bench_runner::fit::Shorten;
use bench_runner::folder::Folder;
use bench_runner::prepare::{Plan, Terms, Wanted, plans};
use model::LinkRate;

use crate::failure::Failure;
use crate::help::{self, Offering};
use crate::location::Location;
use crate::spec::{Bytes, NotAValue, Time};
use crate::terminal::{self, ProgressKind};

#[derive(clap::Args, Debug)]
pub(crate) struct BenchArguments {
    /// Storage to measure: a LUN, a volume such as ram:1GiB, a file or block device (see `linerate help targets`)
    #[arg(value_name = "TARGET", value_hint = clap::ValueHint::AnyPath, required_unless_present_any = ["list", "suite"])]
    pub(super) place: Option<String>,
    /// Further storage, which is refused with a hint
    #[arg(hide = true, value_name = "ANOTHER")]
    others: Vec<String>,
    /// Suite of tests by its name (--list), or a file: NAME.toml, or NAME.icf from Iometer; repeatable
    /// [default: quick, unless there is a workload]
    #[arg(long, value_name = "SUITE", hide_possible_values = true,
        value_parser = Offering(clap::builder::StringValueParser::new(), help::suites))]
    pub(super) suite: Vec<String>,
    /// fio job file to run on TARGET; options that do not apply are listed, and unsupported options that
    /// would change the measurement are rejected
    #[arg(long, value_name = "FILE.fio", value_hint = clap::ValueHint::FilePath, conflicts_with_all = ["suite", "resume"])]
    job: Option<PathBuf>,
    /// Ignore these unsupported options of the job file, although the measurement then differs from fio's
    #[arg(
        long,
        value_name = "OPTION,...",
        value_delimiter = ',',
        requires = "job"
    )]
    job_ignore: Vec<String>,
    /// List the suites
    #[arg(long)]
    pub(super) list: bool,
    #[command(flatten)]
    pub(super) workload: WorkloadOptions,
    #[command(flatten)]
    pub(super) safety: SafetyOptions,
    #[command(flatten)]
    pub(super) session: SessionOptions,
    #[command(flatten)]
    pub(super) agents: AgentOptions,
    #[command(flatten)]
    pub(crate) lab: LabOptions,
    #[command(flatten)]
    pub(super) output: OutputOptions,
}

/// Options of `--suite wan`, which creates its own lab network.
#[derive(clap::Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Lab of --suite wan")]
pub(crate) struct LabOptions {
    /// Rate of the lab's link [default: 1Gbit/s]
    #[arg(long, value_name = "RATE")]
    pub(crate) link: Option<LinkRate>,
    /// Measure a part of the matrix for a short time, to test the setup
    #[arg(long)]
    pub(crate) quick: bool,
}

impl LabOptions {
    fn is_empty(&self) -> bool {
        self.link.is_none() && !self.quick
    }
}

/// The agents that measure instead of this machine.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Several machines")]
pub(super) struct AgentOptions {
    /// Measure concurrently on these machines, each of which runs `linerate bench agent`
    #[arg(
        long,
        value_name = "HOST[:PORT],...",
        value_delimiter = ',',
        conflicts_with = "verify_log"
    )]
    pub(super) agents: Vec<AgentName>,
    /// Also record the CPU load of the storage server's machine, which must run `linerate bench agent`
    #[arg(long, value_name = "HOST[:PORT]")]
    server_agent: Option<AgentName>,
    /// File with the secret shared by agents and coordinator, readable only by its owner (mode 0600)
    /// [default: the environment variable LINERATE_AGENT_SECRET, or a prompt]
    #[arg(long, value_name = "FILE")]
    agent_secret_file: Option<PathBuf>,
}

/// The parts of the storage that may be written.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Storage")]
pub(super) struct SafetyOptions {
    /// Allow writes to all of the storage, or to a part of it (--allow-write=1GiB..3GiB); existing data there
    /// is lost
    #[arg(long, value_name = "START..END", num_args = 0..=1, require_equals = true,
        default_missing_value = "..")]
    pub(super) allow_write: Option<Extent>,
    /// Overwrite the data without asking
    #[arg(long)]
    pub(super) yes: bool,
    /// Create the file with this size if it does not exist
    #[arg(long, value_name = "SIZE")]
    pub(super) size: Option<Bytes>,
    /// Use only this part of the storage: a length from its start, or START..END
    #[arg(long, value_name = "SIZE|START..END")]
    pub(super) span: Option<Extent>,
}

/// Options of the sessions.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Sessions")]
pub(super) struct SessionOptions {
    /// Connections per session; same as the key `connections` of the URL
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=8))]
    pub(super) connections: Option<u16>,
    /// TCP congestion control of the initiator, such as cubic; same as the key `congestion` of the URL
    #[arg(long, value_name = "NAME")]
    pub(super) congestion: Option<String>,
    /// Time to busy-poll before sleeping; useful if this program has a CPU to itself
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 100)]
    poll_us: u64,
}

/// The output and the saved files.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputOptions {
    /// Save the result in this directory, with a report: result.json, cells.csv, samples.csv, report.md and report.html
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath, conflicts_with = "resume")]
    pub(super) out: Option<PathBuf>,
    /// Resume an interrupted measurement
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(super) resume: Option<PathBuf>,
    /// Compare the results with those of the same class in a source document; repeatable
    #[arg(long, value_name = "DOCUMENT", value_parser = ["000", "001", "002", "003", "004"])]
    pub(super) beside: Vec<String>,
    /// Progress display [default: a bar on a terminal, otherwise a line every five seconds]
    #[arg(long, value_name = "FORM")]
    pub(super) progress: Option<ProgressKind>,
    /// Show the running measurement full-screen
    #[arg(long, conflicts_with_all = ["json", "quiet"])]
    pub(super) watch: bool,
    /// Print the statistics of each session: wait times, traffic, and the kernel's statistics of its
    /// connections
    #[arg(long)]
    pub(super) statistics: bool,
    /// Print JSON, one line for each cell
    #[arg(long)]
    pub(super) json: bool,
    /// Print only errors
    #[arg(long, short, conflicts_with = "json")]
    pub(super) quiet: bool,
}

impl BenchArguments {
    /// The storage to measure, with its secrets.
    pub(super) fn place(&self) -> Result<Location, Failure> {
        let session = &self.session;
        if !self.lab.is_empty() {
            return Err(Failure::refused(
                "--link and --quick apply only to --suite wan, which includes a lab",
            ));
        }
        if let Some(another) = self.others.first() {
            return Err(Failure::refused(format!(
                "bench measures one TARGET, but `{another}` is a second one: measure it with a separate command, \
                 and compare the results with `linerate compare DIR DIR`"
            )));
        }
        let Some(place) = self.place.as_deref() else {
            return Err(Failure::refused(
                "specify the storage to measure: a URL, a volume, or a path (`linerate help targets`)",
            ));
        };
        Location::parse(place)?.reached_by(session.connections, session.congestion.as_deref())
    }

    /// The measurements, in order.
    pub(super) fn plans(&self) -> Result<Vec<Plan>, Failure> {
        let (suites, workload) = (&self.suite, &self.workload);
        if let Some(path) = &self.output.resume {
            if !suites.is_empty() || !workload.is_empty() {
                let why = "--resume continues the recorded plan: omit suites and workloads";
                return Err(Failure::refused(why));
            }
            let folder = Folder::open(path);
            return Ok(vec![Plan::Resumed(Box::new(folder.load()?), folder)]);
        }
        let named = |name: &str| {
            let shorter = workload.shorter().ok_or_else(|| {
                let why = "a suite defines its workloads: omit --suite, or the workload options other than \
                           --seconds and --repeats";
                Failure::refused(why)
            })?;
            bench_runner::suites::suite(name).map(|suite| shorter.apply(suite))
        };
        if let Some(path) = &self.job {
            let why = "a job file defines its workloads: omit --job, or the workload options other than --seconds";
            let shorter = workload.shorter().ok_or_else(|| Failure::refused(why))?;
            let (name, jobs) = bench_runner::suites::jobs(path, &self.job_ignore)?;
            let folder = self.out().map(Folder::create).transpose()?;
            return Ok(vec![Plan::New(Wanted::Jobs(name, jobs, shorter), folder)]);
        }
        let suites = match (suites.as_slice(), workload.is_empty()) {
            ([], true) => vec![named("quick")?],
            ([], false) => vec![workload.suite()?],
            (names, _) => names
                .iter()
                .map(|name| named(name))
                .collect::<Result<_, _>>()?,
        };
        plans(suites, self.out())
    }

    /// The terms of the measurement.
    pub(super) fn terms<'a>(
        &self,
        place: &'a Location,
        agents: Option<&'a Agents>,
    ) -> Result<Terms<'a>, Failure> {
        Ok(Terms {
            place,
            agents: agents.map(|agents| (agents, self.order_to_open())),
            allow_write: self.safety.allow_write.is_some(),
            part: self.safety.part()?,
            size: self.safety.size,
            consent: terminal::consent(self.safety.yes),
        })
    }

    /// Rejects options that have no meaning for a suite with its own storage and network.
    pub(crate) fn refuse_beside_a_lab(&self) -> Result<(), Failure> {
        let said = [
            (self.suite.len() != 1, "the other --suite"),
            (self.place.is_some(), "the target"),
            (self.workload.shorter().is_none(), "workload options"),
            (!self.agents.agents.is_empty(), "--agents"),
            (
                self.safety.allow_write.is_some() || self.safety.span.is_some(),
                "--allow-write or --span",
            ),
            (self.safety.size.is_some(), "--size"),
            (
                self.session.connections.is_some() || self.session.congestion.is_some(),
                "session options",
            ),
            (
                self.output.resume.is_some() && !self.lab.is_empty(),
                "--link or --quick with --resume",
            ),
        ];
        match said.into_iter().find(|(is_said, _)| *is_said) {
            None => Ok(()),
            Some((_, what)) => Err(Failure::refused(format!(
                "--suite wan includes its storage, network and workloads; omit {what}"
            ))),
        }
    }

    /// The directory of a measurement to resume.
    pub(crate) fn resumed(&self) -> Option<Folder> {
        self.output.resume.as_deref().map(Folder::open)
    }

    /// The directory for the result, if there is one.
    pub(crate) fn out(&self) -> Option<&Path> {
        self.output.out.as_deref()
    }

    /// Shortens a suite to the allowed time.
    pub(crate) fn shortened(&self, suite: Suite) -> Suite {
        match self.workload.shorter() {
            Some(shorter) => shorter.apply(suite),
            None => suite,
        }
    }

    /// The request by which agents open the storage. It is read-only, unless writes are allowed.
    fn order_to_open(&self) -> Open {
        Open {
            place: self.place.clone().unwrap_or_default(),
            write: false,
            connections: self.session.connections,
            congestion: self.session.congestion.clone(),
            poll_us: self.session.poll_us,
        }
    }
}

impl AgentOptions {
    /// The agents and their secret; `None` if no agent is named. Prompts for the secret if necessary.
    pub(super) fn found(&self) -> Result<Option<Agents>, Failure> {
        let server = self.server_agent.as_ref();
        Agents::named(
            &self.agents,
            server,
            self.agent_secret_file.as_deref(),
            "--agent-secret-file",
        )
    }
}

impl SafetyOptions {
    /// The part of the storage that may be used.
    pub(super) fn part(&self) -> Result<Extent, Failure> {
        let allowed = self.allow_write.unwrap_or(Extent::ALL);
        let wanted = self.span.unwrap_or(Extent::ALL);
        wanted.within(allowed).ok_or_else(|| {
            Failure::refused(format!(
                "--span ({wanted}) and --allow-write ({allowed}) do not overlap"
            ))
        })
    }
}

impl SessionOptions {
    pub(super) fn spin(&self) -> Duration {
        Duration::from_micros(self.poll_us)
    }
}

/// One workload, or all combinations of the lists.
#[derive(clap::Args, Debug, Default, PartialEq)]
#[command(next_help_heading = "Custom workload")]
pub(super) struct WorkloadOptions {
    /// Block size of requests: one size, a list (4k,64k) to measure one after the other, or a mix with
    /// percentages (4k:70,64k:30) [default: 4KiB]
    #[arg(long, visible_alias = "bs", value_name = "SIZE,...")]
    block: Option<BlocksList>,
    /// Queue depth: outstanding requests of each session; may be a list [default: 32]
    #[arg(long, visible_alias = "iodepth", value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=65_536))]
    depth: Vec<u32>,
    /// Access pattern by fio's name: read, write, rw, randread, randwrite or randrw; overridden by --read and
    /// --random
    #[arg(long, value_name = "PATTERN", hide_possible_values = true)]
    rw: Option<Pattern>,
    /// Share of reads; may be a list [default: 100]
    #[arg(
        long,
        visible_alias = "rwmixread",
        value_name = "PERCENT,...",
        value_delimiter = ','
    )]
    read: Vec<Percent>,
    /// Share of requests at random offsets, while the others are sequential; may be a list [default: 100]
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',')]
    random: Vec<Percent>,
    #[arg(long, value_name = "DISTRIBUTION",
        help = format!("Distribution of random offsets: {}", Distribution::choices(Distribution::to_string)))]
    distribution: Option<Distribution>,
    /// Alignment of requests: natural (the request size), block (the storage's block size), or a size
    #[arg(long, value_name = "SIZE", hide_possible_values = true,
        value_parser = Offering(str::parse::<Align>, || vec!["natural", "block"]))]
    align: Option<Align>,
    /// Clients, each a thread with its own sessions
    #[arg(long, visible_alias = "numjobs", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    clients: Option<u16>,
    /// Sessions per client, each with the full queue depth
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    sessions: Option<u16>,
    /// Requests per second that each client starts, whether or not earlier requests have completed (open
    /// loop); may be a list
    #[arg(long, value_name = "N[/s],...", value_delimiter = ',')]
    rate: Vec<Rate>,
    /// Use random intervals between requests, as with independent users, instead of equal intervals; the
    /// average rate is --rate
    #[arg(long, requires = "rate")]
    poisson: bool,
    /// Pause in milliseconds before each burst, while outstanding requests continue (Iometer's transfer delay)
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=3_600_000), conflicts_with = "rate")]
    pause_ms: Option<u32>,
    /// Requests between two pauses (Iometer's burst length) [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "pause_ms")]
    burst: Option<u32>,
    /// Time to measure [default: 5s, or up to 60s with --stop-at]; with a suite, the maximum time for each of
    /// its runs
    #[arg(long, visible_alias = "runtime", value_name = "TIME", value_parser = seconds)]
    seconds: Option<f64>,
    /// Warm-up time, during which requests are made but not counted
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    warm_up: Option<f64>,
    /// Stop when the rate is known to this precision (half the width of its 95 % confidence interval)
    #[arg(long, value_name = "PERCENT", value_parser = confidence)]
    stop_at: Option<f64>,
    /// Rounds of a sweep, each in a different order; results are medians. With a suite, the maximum number of
    /// rounds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: Option<u32>,
    /// Content of writes: random, zeros, or compressible:PERCENT [default: random]
    #[arg(long, value_name = "CONTENT", conflicts_with_all = ["verify", "verify_log"])]
    data: Option<Data>,
    /// Durable writes: fua, or flush:N for a flush after every N writes of a session
    #[arg(long, value_name = "GUARANTEE", conflicts_with = "verify_log")]
    durable: Option<Durable>,
    /// Write verifiable data, and verify the data of reads
    #[arg(long)]
    verify: bool,
    /// Log the acknowledged and flushed writes to this file; `linerate bench verify` checks them after a
    /// crash. One write in eight has FUA, and a flush follows every 64 writes. Includes --verify
    #[arg(long, value_name = "FILE")]
    pub(super) verify_log: Option<PathBuf>,
    /// Random seed of offsets and data [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// Access patterns with fio's names.
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
    /// The share of reads, and the share of random offsets.
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

/// Parses the duration of a run, in seconds.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let Time(time) = text.parse().map_err(|why: NotAValue| why.to_string())?;
    let fits = (0.001..=86_400.0).contains(&time.as_secs_f64());
    if fits {
        Ok(time.as_secs_f64())
    } else {
        Err("the duration must be from 1ms to 24h".to_owned())
    }
}

fn confidence(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.trim_end_matches('%').parse().ok();
    let fits = number.filter(|percent| (0.1..=50.0).contains(percent));
    fits.ok_or_else(|| "give the precision of the rate, from 0.1 to 50 percent".to_owned())
}

impl WorkloadOptions {
    /// Whether no option was given.
    pub(super) fn is_empty(&self) -> bool {
        *self == WorkloadOptions::default()
    }

    /// The limits for a suite; `None` if options were used that a suite does not support.
    pub(super) fn shorter(&self) -> Option<Shorten> {
        let (seconds, rounds) = (self.seconds, self.repeats);
        let at_most = WorkloadOptions {
            seconds,
            repeats: rounds,
            ..WorkloadOptions::default()
        };
        (*self == at_most).then_some(Shorten { seconds, rounds })
    }

    /// The suite to measure.
    pub(super) fn suite(&self) -> Result<Suite, Failure> {
        let suite = self.sweep().suite().map_err(Failure::refused)?;
        let alone = suite.cells().map(|cell| cell.roles.len()).sum::<usize>() == 1;
        if self.verify_log.is_some() && !alone {
            return Err(Failure::refused(
                "--verify-log supports one workload of one client: omit lists and --clients",
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
            rates: or(
                &self.rate.iter().copied().map(Some).collect::<Vec<_>>(),
                None,
            ),
            poisson: self.poisson,
            distribution: self.distribution.unwrap_or_default(),
            align: self.align.unwrap_or_default(),
            clients: self.clients.unwrap_or(1),
            sessions: self.sessions.unwrap_or(1),
            burst: self.burst.unwrap_or(1),
            pause_ms: self.pause_ms.unwrap_or(0),
            data: match self.verify || self.verify_log.is_some() {
                true => Data::Stamped,
                false => self.data.unwrap_or_default(),
            },
            durable: self.durable.unwrap_or_default(),
            seed: self.seed.unwrap_or(1),
            stop: self.stop(),
            repeats: self.repeats.unwrap_or(1),
        }
    }

    fn stop(&self) -> Stop {
        let warm_up_s = self.warm_up.unwrap_or(0.0);
        match self.stop_at {
            None => Stop {
                warm_up_s,
                ..Stop::after(self.seconds.unwrap_or(SECONDS))
            },
            Some(percent) => {
                let max_s = self.seconds.unwrap_or(SECONDS_TO_KNOW);
                Stop {
                    warm_up_s,
                    min_s: max_s.min(1.0),
                    max_s,
                    rule: Rule::Confidence { percent },
                }
            }
        }
    }
}

/// The defaults of `linerate bench`.
const DEPTH: u32 = 32;
const SECONDS: f64 = 5.0;
/// The default of `--seconds` with `--stop-at`. If the required precision is not reached after a minute, it
/// is unlikely to be reached.
const SECONDS_TO_KNOW: f64 = 60.0;

fn or<T: Clone>(given: &[T], usual: T) -> Vec<T> {
    if given.is_empty() {
        vec![usual]
    } else {
        given.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench::plan::{Pace, Step};
    use clap::Parser;

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
        options
            .suite()
            .unwrap_or_else(|failure| panic!("{arguments}: {failure}"))
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
            "--distribution zipf:11",
            "--seconds 0",
        ] {
            assert!(parsed(arguments).is_err(), "{arguments}");
        }
        let lists = (1..=1001)
            .map(|depth| depth.to_string())
            .collect::<Vec<_>>()
            .join(",");
        let many = parsed(&format!("--depth {lists}")).expect("a list");
        assert!(
            many.suite()
                .is_err_and(|failure| failure.to_string().contains("1001 combinations"))
        );
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
        assert_eq!(
            names[..2],
            ["random-read-4KiB-depth-1", "random-read-4KiB-depth-8"]
        );
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
        let seeds: Vec<_> = cell
            .roles
            .iter()
            .map(|role| (role.client, role.sessions, role.workload.seed))
            .collect();
        assert_eq!(seeds, [(0, 2, 7), (1, 2, 8), (2, 2, 9)]);
    }

    #[test]
    fn a_rate_makes_an_open_loop() {
        let pace = |arguments| {
            suite(arguments).cells().next().expect("a cell").roles[0]
                .workload
                .pace
        };
        assert_eq!(pace("--rate 1000/s"), Pace::Constant { per_second: 1000.0 });
        assert_eq!(
            pace("--rate 1000 --poisson"),
            Pace::Poisson { per_second: 1000.0 }
        );
    }

    #[test]
    fn bursts_have_their_pause_before_them() {
        let suite = suite("--burst 32 --pause-ms 2");
        let access = &suite.cells().next().expect("a cell").roles[0]
            .workload
            .accesses[0];
        assert_eq!((access.burst, access.delay_ms), (32, 2));
    }

    #[test]
    fn a_confidence_has_a_longest_time() {
        let Step::Measure { stop, .. } = &suite("--stop-at 2%").steps[0] else {
            panic!("no measurement")
        };
        assert_eq!(
            (stop.min_s, stop.max_s, stop.rule),
            (1.0, 60.0, Rule::Confidence { percent: 2.0 })
        );
    }
}
