//! What can be asked of `linerate bench`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::wire::message::Open;
use bench::plan::Suite;

use super::agents::{AgentName, Agents};
use super::folder::Folder;
use super::options::WorkloadOptions;
use crate::completions::{self, Offering};
use crate::failure::Failure;
use crate::location::Location;
use crate::progress::ProgressKind;
use crate::spec::Bytes;
use crate::terminal;
use bench::Extent;
use bench_runner::prepare::{Plan, Terms, Wanted, plans};
use model::LinkRate;

#[derive(clap::Args, Debug)]
pub(crate) struct BenchArguments {
    /// Storage to measure: a LUN, a volume such as ram:1GiB, a file or block device (see `linerate help targets`)
    #[arg(value_name = "TARGET", value_hint = clap::ValueHint::AnyPath, required_unless_present_any = ["list", "suite"])]
    pub(super) place: Option<String>,
    /// Suite of tests by its name (--list), or a file: NAME.toml, or NAME.icf as Iometer writes it; repeatable [default:
    /// quick, if there is no workload either]
    #[arg(long, value_name = "SUITE", hide_possible_values = true,
        value_parser = Offering(clap::builder::StringValueParser::new(), completions::suites))]
    pub(super) suite: Vec<String>,
    /// Job file of fio, whose jobs are measured on TARGET; what has no meaning here is listed, and what would change what is
    /// measured is refused
    #[arg(long, value_name = "FILE.fio", value_hint = clap::ValueHint::FilePath, conflicts_with_all = ["suite", "resume"])]
    job: Option<PathBuf>,
    /// Leave out these options of the job file, although they change what is measured
    #[arg(long, value_name = "OPTION,...", value_delimiter = ',', requires = "job")]
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

/// The network of a suite that brings its own.
#[derive(clap::Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Lab of --suite wan")]
pub(crate) struct LabOptions {
    /// Rate of its link [default: 1Gbit/s]
    #[arg(long, value_name = "RATE")]
    pub(crate) link: Option<LinkRate>,
    /// Measure a part of the matrix for a short time, to see whether all of it works
    #[arg(long)]
    pub(crate) quick: bool,
}

impl LabOptions {
    fn is_empty(&self) -> bool {
        self.link.is_none() && !self.quick
    }
}

/// Who measures, if it is not this machine.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Several machines")]
pub(super) struct AgentOptions {
    /// Measure by these machines at the same time, where `linerate bench agent` listens
    #[arg(long, value_name = "HOST[:PORT],...", value_delimiter = ',', conflicts_with = "verify_log")]
    pub(super) agents: Vec<AgentName>,
    /// Look at the CPU load of the machine that serves, where `linerate bench agent` listens; for a server elsewhere
    #[arg(long, value_name = "HOST[:PORT]")]
    server_agent: Option<AgentName>,
    /// File with the secret that agents and coordinator share, for its owner only (mode 0600) [default: the environment
    /// variable LINERATE_AGENT_SECRET, or a question]
    #[arg(long, value_name = "FILE")]
    agent_secret_file: Option<PathBuf>,
}

/// What may be written, and where.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Storage")]
pub(super) struct SafetyOptions {
    /// Let requests write, to all of the storage or to a part of it (--allow-write=1GiB..3GiB), which destroys its data
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

/// How the storage is reached.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Sessions")]
pub(super) struct SessionOptions {
    /// Connections of each session, as the key `connections` of the URL
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=8))]
    pub(super) connections: Option<u16>,
    /// TCP congestion control of the initiator, such as cubic, as the key `congestion` of the URL
    #[arg(long, value_name = "NAME")]
    pub(super) congestion: Option<String>,
    /// Busy-poll time; useful where this program has a CPU to itself
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 100)]
    poll_us: u64,
}

/// What is to be seen and kept of it.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputOptions {
    /// Save the result in this directory, with a report: result.json, cells.csv, samples.csv, report.md and report.html
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath, conflicts_with = "resume")]
    pub(super) out: Option<PathBuf>,
    /// Resume an interrupted measurement
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(super) resume: Option<PathBuf>,
    /// Draw the published curves of a source document into the report; repeatable
    #[arg(long, value_name = "DOCUMENT", value_parser = ["000", "001", "002", "003", "004"])]
    pub(super) beside: Vec<String>,
    /// Form of the progress [default: a bar on a terminal, else a line every five seconds]
    #[arg(long, value_name = "FORM")]
    pub(super) progress: Option<ProgressKind>,
    /// Show the measurement on the whole screen while it runs
    #[arg(long, conflicts_with_all = ["json", "quiet"])]
    pub(super) watch: bool,
    /// Print the statistics of each session: wait times, traffic, and what the kernel knows of its connections
    #[arg(long)]
    pub(super) statistics: bool,
    /// Print JSON, one line for each cell
    #[arg(long)]
    pub(super) json: bool,
    /// Print nothing but errors
    #[arg(long, short, conflicts_with = "json")]
    pub(super) quiet: bool,
}

impl BenchArguments {
    /// What is measured, with its secrets.
    pub(super) fn place(&self) -> Result<Location, Failure> {
        let session = &self.session;
        if !self.lab.is_empty() {
            return Err(Failure::refused(
                "--link and --quick are for --suite wan, which has a lab of its own",
            ));
        }
        let Some(place) = self.place.as_deref() else {
            return Err(Failure::refused(
                "name what to measure: a URL, a volume, or a path (`linerate help targets`)",
            ));
        };
        Location::parse(place)?.reached_by(session.connections, session.congestion.as_deref())
    }

    /// What is to be measured, one after the other.
    pub(super) fn plans(&self) -> Result<Vec<Plan>, Failure> {
        let (suites, workload) = (&self.suite, &self.workload);
        if let Some(path) = &self.output.resume {
            if !suites.is_empty() || !workload.is_empty() {
                let why = "--resume goes on with what is in its record: leave out suites and workloads";
                return Err(Failure::refused(why));
            }
            let folder = Folder::open(path);
            return Ok(vec![Plan::Resumed(Box::new(folder.load()?), folder)]);
        }
        let named = |name: &str| {
            let shorter = workload.shorter().ok_or_else(|| {
                let why = "a suite says what its workloads are: leave out --suite, or the options of a workload other \
                           than --seconds and --repeats";
                Failure::refused(why)
            })?;
            bench_runner::suites::suite(name).map(|suite| shorter.made_of(suite))
        };
        if let Some(path) = &self.job {
            let why = "a job file says what its workloads are: leave out --job, or the options of a workload other than \
                       --seconds";
            let shorter = workload.shorter().ok_or_else(|| Failure::refused(why))?;
            let (name, jobs) = bench_runner::suites::jobs(path, &self.job_ignore)?;
            let folder = self.out().map(Folder::create).transpose()?;
            return Ok(vec![Plan::New(Wanted::Jobs(name, jobs, shorter), folder)]);
        }
        let suites = match (suites.as_slice(), workload.is_empty()) {
            ([], true) => vec![named("quick")?],
            ([], false) => vec![workload.suite()?],
            (names, _) => names.iter().map(|name| named(name)).collect::<Result<_, _>>()?,
        };
        plans(suites, self.out())
    }

    /// On what terms it is measured.
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

    /// Refuses what has no meaning where storage and network are the suite's own.
    pub(crate) fn refuse_beside_a_lab(&self) -> Result<(), Failure> {
        let said = [
            (self.suite.len() != 1, "another --suite"),
            (self.place.is_some(), "the target"),
            (self.workload.shorter().is_none(), "a workload of your own"),
            (!self.agents.agents.is_empty(), "--agents"),
            (self.safety.allow_write.is_some() || self.safety.span.is_some(), "--allow-write or --span"),
            (self.safety.size.is_some(), "--size"),
            (self.session.connections.is_some() || self.session.congestion.is_some(), "keys of a session"),
            (self.output.resume.is_some() && !self.lab.is_empty(), "--link or --quick with --resume"),
        ];
        match said.into_iter().find(|(is_said, _)| *is_said) {
            None => Ok(()),
            Some((_, what)) => Err(Failure::refused(format!(
                "--suite wan brings storage, network and workloads of its own; leave out {what}"
            ))),
        }
    }

    /// The directory of a measurement to go on with.
    pub(crate) fn resumed(&self) -> Option<Folder> {
        self.output.resume.as_deref().map(Folder::open)
    }

    /// Where the result goes.
    pub(crate) fn out(&self) -> Option<&Path> {
        self.output.out.as_deref()
    }

    /// The suite in as much time as it may take.
    pub(crate) fn shortened(&self, suite: Suite) -> Suite {
        match self.workload.shorter() {
            Some(shorter) => shorter.made_of(suite),
            None => suite,
        }
    }

    /// What agents are to open: to read, unless the suite writes.
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
    /// Nothing if nobody is named. Asks for the secret if it has to.
    pub(super) fn found(&self) -> Result<Option<Agents>, Failure> {
        let server = self.server_agent.as_ref();
        Agents::named(&self.agents, server, self.agent_secret_file.as_deref(), "--agent-secret-file")
    }
}

impl SafetyOptions {
    /// What may be used at all.
    pub(super) fn part(&self) -> Result<Extent, Failure> {
        let allowed = self.allow_write.unwrap_or(Extent::ALL);
        let wanted = self.span.unwrap_or(Extent::ALL);
        wanted.within(allowed).ok_or_else(|| {
            Failure::refused(format!(
                "--span ({wanted}) and --allow-write ({allowed}) have nothing in common"
            ))
        })
    }
}

impl SessionOptions {
    pub(super) fn spin(&self) -> Duration {
        Duration::from_micros(self.poll_us)
    }
}
