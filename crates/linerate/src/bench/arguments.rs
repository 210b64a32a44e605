//! What can be asked of `linerate bench`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::wire::message::Open;
use bench::plan::Suite;

use super::agents::{AgentName, Agents};
use super::folder::Folder;
use super::options::WorkloadOptions;
use crate::failure::Failure;
use crate::location::Location;
use crate::progress::ProgressKind;
use crate::spec::Bytes;
use crate::terminal;
use bench::Extent;
use conduct::agents::secret;
use conduct::prepare::{Plan, Terms};
use model::LinkRate;

/// Measures storage: suites of well-known tests, or a workload of your own
#[derive(clap::Args, Debug)]
pub(crate) struct BenchArguments {
    /// What to measure: iscsi://[user@]host[:port]/target/lun[?key=value&...], a volume such as ram:1GiB, or the path
    /// of a file or block device
    #[arg(value_name = "PLACE", required_unless_present_any = ["list", "suite"])]
    place: Option<String>,
    /// A suite of tests by its name (--list), or in a file NAME.toml or, as Iometer writes it, NAME.icf; may be given
    /// several times [default: quick, if there is no workload either]
    #[arg(long, value_name = "SUITE")]
    pub(super) suite: Vec<String>,
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
#[command(next_help_heading = "The lab of --suite wan")]
pub(crate) struct LabOptions {
    /// What its link carries [default: 1Gbit/s]
    #[arg(long, value_name = "RATE")]
    pub(crate) link: Option<LinkRate>,
    /// A part of the matrix, for a short time: to see whether all of it works
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
    /// Measure by these machines, where `linerate agent` listens, all at the same time
    #[arg(long, value_name = "HOST[:PORT],...", value_delimiter = ',', conflicts_with = "verify_log")]
    pub(super) agents: Vec<AgentName>,
    /// The file that holds the secret which agents and coordinator share, for its owner only (mode 0600) [default: the
    /// environment variable LINERATE_AGENT_SECRET, or a question]
    #[arg(long, value_name = "FILE", requires = "agents")]
    agent_secret_file: Option<PathBuf>,
}

/// What may be written, and where.
#[derive(clap::Args, Debug)]
pub(super) struct SafetyOptions {
    /// Let requests write, to all of the storage or to a part of it (--allow-write=1GiB..3GiB), which destroys what is
    /// there
    #[arg(long, value_name = "START..END", num_args = 0..=1, require_equals = true,
        default_missing_value = "..")]
    pub(super) allow_write: Option<Extent>,
    /// Overwrite what is there without asking
    #[arg(long)]
    pub(super) yes: bool,
    /// Make the file, of so many bytes, if it does not exist
    #[arg(long, value_name = "SIZE")]
    pub(super) size: Option<Bytes>,
    /// Use only this part of the storage: a length from its start, or START..END
    #[arg(long, value_name = "SIZE")]
    pub(super) span: Option<Extent>,
}

/// How the storage is reached.
#[derive(clap::Args, Debug)]
pub(super) struct SessionOptions {
    /// Connections of each session; the same as the key `connections` in the URL
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=8))]
    pub(super) connections: Option<u16>,
    /// Congestion control of our sockets, such as cubic; the same as the key `congestion` in the URL
    #[arg(long, value_name = "NAME")]
    pub(super) congestion: Option<String>,
    /// Look for answers so long before going to sleep; worth it where this program has a CPU to itself
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 100)]
    poll_us: u64,
}

/// What is to be seen and kept of it.
#[derive(clap::Args, Debug)]
pub(super) struct OutputOptions {
    /// Keep everything that was measured in this directory, with a report: result.json, cells.csv, samples.csv,
    /// report.md and report.html
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub(super) out: Option<PathBuf>,
    /// Go on with a measurement that was interrupted
    #[arg(long, value_name = "DIR")]
    pub(super) resume: Option<PathBuf>,
    /// Draw the published curves of a source document into the report: 000, 001, 002, 003 or 004; may be repeated
    #[arg(long, value_name = "DOCUMENT")]
    pub(super) beside: Vec<String>,
    /// How to show the progress [default: a bar on a terminal, else a line every five seconds]
    #[arg(long, value_name = "HOW")]
    pub(super) progress: Option<ProgressKind>,
    /// Show it on the whole screen while it runs
    #[arg(long, conflicts_with_all = ["json", "quiet"])]
    pub(super) watch: bool,
    /// Tell what each session did: what its commands waited for, what moved, and what the kernel knows of its
    /// connections
    #[arg(long)]
    pub(super) statistics: bool,
    /// Print JSON, a line for each thing that was measured
    #[arg(long)]
    pub(super) json: bool,
    /// Say nothing but errors
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
            return Err(Failure::refused("name what is to be measured: a URL, a volume, or a path"));
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
        let out = self.output.out.as_deref();
        let named = |name: &str| {
            let shorter = workload.shorter().ok_or_else(|| {
                let why = "a suite says what its workloads are: leave out --suite, or the options of a workload other \
                           than --seconds and --repeats";
                Failure::refused(why)
            })?;
            conduct::suites::suite(name).map(|suite| shorter.made_of(suite))
        };
        match (suites.as_slice(), workload.is_empty()) {
            ([], true) => plan(named("quick")?, out).map(|plan| vec![plan]),
            ([], false) => plan(workload.suite()?, out).map(|plan| vec![plan]),
            ([name], _) => plan(named(name)?, out).map(|plan| vec![plan]),
            (names, _) => {
                let suites: Vec<Suite> = names.iter().map(|name| named(name)).collect::<Result<_, _>>()?;
                let within = |suite: &Suite| out.map(|out| out.join(&suite.name));
                suites.into_iter().map(|suite| plan(suite.clone(), within(&suite).as_deref())).collect()
            }
        }
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
            (self.place.is_some(), "a place"),
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

fn plan(suite: Suite, out: Option<&Path>) -> Result<Plan, Failure> {
    Ok(Plan::New(suite, out.map(Folder::create).transpose()?))
}

impl AgentOptions {
    /// Nothing if nobody is named. Asks for the secret if it has to.
    pub(super) fn found(&self) -> Result<Option<Agents>, Failure> {
        let names = &self.agents;
        if let Some(twice) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
            let sentence = format!("agent {} is named twice, and works for one at a time", twice.1);
            return Err(Failure::refused(sentence));
        }
        if names.is_empty() {
            return Ok(None);
        }
        let secret = secret::find(self.agent_secret_file.as_deref(), "--agent-secret-file")?;
        Ok(Some(Agents { names: names.clone(), secret }))
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
