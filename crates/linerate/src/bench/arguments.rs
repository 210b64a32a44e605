//! What can be asked of `linerate bench`.

use std::path::PathBuf;
use std::time::Duration;

use super::agents::{AgentName, Agents};
use super::extent::Extent;
use super::options::WorkloadOptions;
use crate::agent::secret;
use crate::agent::wire::message::Open;
use crate::failure::Failure;
use crate::place::Place;
use crate::spec::Bytes;

/// Measures storage: suites of well-known tests, or a workload of your own
#[derive(clap::Args, Debug)]
pub(crate) struct BenchArguments {
    /// What to measure: iscsi://[user@]host[:port]/target/lun[?key=value&...], a volume such as ram:1GiB, or the path
    /// of a file or block device
    #[arg(value_name = "PLACE", required_unless_present = "list")]
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
    pub(super) output: OutputOptions,
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
    pub(super) fn place(&self) -> Result<Place, Failure> {
        let session = &self.session;
        Place::parse(self.place.as_deref().unwrap_or_default())?
            .reached_by(session.connections, session.congestion.as_deref())
    }

    /// What agents are to open.
    pub(super) fn order_to_open(&self, write: bool) -> Open {
        Open {
            place: self.place.clone().unwrap_or_default(),
            write,
            connections: self.session.connections,
            congestion: self.session.congestion.clone(),
            poll_us: self.session.poll_us,
        }
    }
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
