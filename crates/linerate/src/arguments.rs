//! The command line.

use std::io;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use backends::peers;
use clap::{ArgMatches, Args, CommandFactory as _, FromArgMatches, Parser, Subcommand};
use daemon::config::Log;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::attach::{self, AttachArguments, DetachArguments};
use crate::bench::{self, BenchArguments, VerifyLogArguments};
use crate::copy::{self, CopyArguments};
use crate::diagnose::{self, DiagnoseArguments};
use crate::failure::{Failure, exit_codes};
use crate::help::{self, CompletionsArguments, Offering, Topic};
use crate::import::{self, ImportArguments};
use crate::info::{self, DiscoverArguments, InfoArguments};
use crate::interrupt::{self, RecordFile};
use crate::lab::{self, RunArguments};
use crate::limits::{self, LimitsArguments};
use crate::listen::{self, AgentArguments, PeerArguments};
use crate::log::{self, LogLines};
use crate::man::{self, ManArguments};
use crate::output::{note, remark, report_json, say, wants_json};
use crate::prove::{self, ProveArguments};
use crate::raid::{self, RaidArguments};
use crate::report::{self, CompareArguments, PublishedArguments, ReportArguments};
use crate::reproduce::{self, ReproduceArguments};
use crate::scsi::{self, ScsiArguments};
use crate::serve::{self, ServeArguments};
use crate::server::{self, ServerArguments};
use crate::stream::{self, ReadArguments, WriteArguments};
use crate::{secrets, spec};

/// An IP SAN in one program: serve, use and measure block storage over iSCSI, NBD, HyperSCSI and AoE
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, after_long_help = exit_codes())]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Log level or filter, such as debug
    #[arg(long, global = true, value_name = "FILTER", help_heading = GLOBAL, hide_possible_values = true,
        value_parser = Offering(clap::builder::StringValueParser::new(), || LEVELS.to_vec()))]
    log: Option<String>,
    /// Log format
    #[arg(long, global = true, value_name = "text|json", hide_possible_values = true, help_heading = GLOBAL)]
    log_format: Option<LogLines>,
    /// Save the last PDUs of each connection (pcapng)
    #[arg(long, global = true, value_name = "FILE", help_heading = GLOBAL)]
    record: Option<PathBuf>,
}

/// The log levels that are offered for completion. A filter may also name log targets.
const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

const GLOBAL: &str = "Global options";

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve volumes over iSCSI, NBD, HyperSCSI and AoE, until SIGTERM
    ///
    /// Without arguments, this command serves a 1 GiB RAM volume on 127.0.0.1:3260.
    Serve(Box<ServeArguments>),
    /// Manage a running server: sessions, volumes, targets, metrics
    Server(ServerArguments),
    /// List the targets of a portal
    Discover(DiscoverArguments),
    /// Convert the configuration of tgt or LIO to a linerate.toml
    ///
    /// Settings without an equivalent become comments in the output, and are listed on standard error with
    /// file and line number. If there are any, the exit code is 14.
    Import(ImportArguments),
    /// Create and maintain RAID sets of volumes
    Raid(RaidArguments),
    /// Show the parameters negotiated at login, and the LUNs of a target
    Info(InfoArguments),
    /// Attach a LUN or volume as a file, for losetup and mount
    Attach(AttachArguments),
    /// Flush and detach an attached file
    Detach(DetachArguments),
    /// Copy a LUN, volume, file or block device to another
    ///
    /// Holes are preserved. To resume an interrupted copy, run the same command again.
    Copy(Box<CopyArguments>),
    /// Read a LUN or volume, or a part of it, to standard output or a file
    Read(ReadArguments),
    /// Write standard input to a LUN or volume, or to a part of it
    ///
    /// The command returns when the data is on stable storage.
    Write(WriteArguments),
    /// Send a SCSI command to a LUN and show the response
    Scsi(ScsiArguments),
    /// Measure storage with suites of tests or your own workload
    Bench(Box<Nested<BenchArguments, BenchCommand>>),
    /// Compare two results and show the significant differences
    ///
    /// The significance level applies to all cells together: if both results are from the same storage, a
    /// difference is reported in at most 5 of 100 comparisons. The table shows the smallest detectable
    /// difference of each cell. Differences in the environment are listed below it. The exit code is 12 if
    /// anything is worse in B.
    Compare(CompareArguments),
    /// Regenerate the report of a result, or print it in another format
    Report(Box<Nested<ReportArguments, ReportCommand>>),
    /// Repeat the tests of a source document in a lab
    ///
    /// The page has every table of the document with measured number, published number and ratio: on a model of the
    /// document's hardware, and on this machine.
    Reproduce(ReproduceArguments),
    /// Find out why the path to a LUN or an NBD export is slow
    ///
    /// The path is measured layer by layer, from the network card to the medium. The diagnosis names the bottleneck, the
    /// expected gain of removing it, and the settings to change.
    Diagnose(Box<Nested<DiagnoseArguments, DiagnoseCommand>>),
    /// Test this machine: verify data and measure performance on loopback
    #[command(visible_alias = "prove")]
    Selftest(ProveArguments),
    /// Simulate hosts and links, and run peers for network measurements
    #[command(subcommand)]
    Lab(LabCommand),
    /// Print a shell script that completes commands and options
    #[command(hide = true)]
    Completions(CompletionsArguments),
    /// Print the manual page, or write all pages to a directory
    #[command(hide = true)]
    Man(ManArguments),
    #[command(flatten)]
    Topic(Topic),
}

/// A command that also has subcommands. An `Option` of flattened arguments would not work: in clap, it is
/// always `None` if these arguments contain flattened arguments themselves.
#[derive(Debug)]
enum Nested<Own, Below> {
    Own(Own),
    Below(Below),
}

impl<Own: Args, Below: Subcommand> FromArgMatches for Nested<Own, Below> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        match matches.subcommand_name() {
            Some(_) => Below::from_arg_matches(matches).map(Nested::Below),
            None => Own::from_arg_matches(matches).map(Nested::Own),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Nested::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<Own: Args, Below: Subcommand> Args for Nested<Own, Below> {
    fn augment_args(command: clap::Command) -> clap::Command {
        let command = Below::augment_subcommands(Own::augment_args(command));
        command
            .args_conflicts_with_subcommands(true)
            .subcommand_negates_reqs(true)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Nested::<Own, Below>::augment_args(command)
    }
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Measure for a coordinator on another machine (bench --agents)
    Agent(AgentArguments),
    /// After a crash, verify the writes logged by bench --verify-log
    Verify(VerifyLogArguments),
}

#[derive(Debug, Subcommand)]
enum ReportCommand {
    /// Print the results published in the source documents, in the original units and in MB/s
    Published(PublishedArguments),
}

#[derive(Debug, Subcommand)]
enum DiagnoseCommand {
    /// Print the maximum throughput of a link, and the queue depth that fills it over a distance
    ///
    /// The figures are calculated frame by frame (Ethernet, TCP payload and iSCSI data), not measured.
    Limits(LimitsArguments),
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Build a lab, run a command in one of its hosts, and exit with the command's exit code
    Run(RunArguments),
    /// Serve plain TCP, to measure the throughput of a path without storage
    Peer(PeerArguments),
}

impl Command {
    fn uses_targets(&self) -> bool {
        match self {
            Command::Serve(_)
            | Command::Server(_)
            | Command::Import(_)
            | Command::Detach(_)
            | Command::Compare(_)
            | Command::Completions(_)
            | Command::Man(_)
            | Command::Topic(_)
            | Command::Lab(_)
            | Command::Report(_)
            | Command::Reproduce(_) => false,
            Command::Diagnose(diagnose) => matches!(**diagnose, Nested::Own(_)),
            _ => true,
        }
    }

    /// Whether this process only starts another process with the same arguments, which does the work.
    fn is_handed_on(&self) -> bool {
        matches!(self, Command::Attach(arguments) if arguments.goes_into_background())
    }

    /// Whether other programs depend on this process, so that it must not end when its terminal is closed.
    fn ignores_hangups(&self) -> bool {
        match self {
            Command::Bench(bench) => matches!(**bench, Nested::Below(BenchCommand::Agent(_))),
            Command::Lab(LabCommand::Peer(_)) => true,
            Command::Attach(_) => !self.is_handed_on(),
            _ => false,
        }
    }

    /// The signals that end this process: all ending signals that the command does not handle itself.
    fn ended_by(&self) -> Vec<i32> {
        match self {
            Command::Attach(_) | Command::Copy(_) | Command::Read(_) | Command::Write(_) => {
                Vec::new()
            }
            Command::Bench(bench) if matches!(**bench, Nested::Own(_)) => Vec::new(),
            Command::Reproduce(_) => Vec::new(),
            // SIGHUP makes a server reload its configuration.
            Command::Serve(_) => vec![SIGINT, SIGTERM],
            _ if self.ignores_hangups() => vec![SIGINT, SIGTERM],
            _ => interrupt::endings(),
        }
    }
}

/// Names of values that may contain sizes.
const SIZED: [&str; 6] = ["SIZE", "START", "TARGET", "VOLUME", "SOURCE", "DESTINATION"];

/// Prints notes for people on standard error, unless the output is for programs. One note says that a size
/// such as `4k` is a power of two, unlike in SI units; it is printed once. The other says that the command is
/// waiting for an unresponsive peer. A server logs such waits instead.
fn note_for_people(command: &clap::Command, matches: &ArgMatches) {
    if let Some((name, below)) = matches.subcommand() {
        return command
            .find_subcommand(name)
            .into_iter()
            .for_each(|command| note_for_people(command, below));
    }
    let is_quiet = matches
        .try_get_one("quiet")
        .is_ok_and(|quiet| quiet == Some(&true));
    if is_quiet || wants_json() {
        return;
    }
    if command.get_name() != "serve" {
        peers::announce_waits_by(|sentence| remark(format_args!("linerate: {sentence}")));
    }
    let is_size = |argument: &&clap::Arg| {
        let mut names = argument.get_value_names().into_iter().flatten();
        names.any(|name| SIZED.iter().any(|sized| name.contains(sized)))
    };
    let values = command
        .get_arguments()
        .filter(is_size)
        .filter_map(|argument| matches.get_raw(argument.get_id().as_str()));
    let bare = values
        .flatten()
        .filter_map(|value| spec::bare_unit(value.to_str()?))
        .next();
    if let Some((text, bytes)) = bare {
        remark(format_args!(
            "note: {text} is {bytes}, a power of two (`linerate help units`)"
        ));
    }
}

impl Arguments {
    /// Parses the command line. If clap has printed help, the version or an error, returns the exit code.
    pub(crate) fn read() -> Result<Arguments, ExitCode> {
        let mut command = help::explained(Arguments::command());
        let words = help::without_repetition(&command, std::env::args_os().collect());
        let read = command
            .try_get_matches_from_mut(words)
            .inspect(|read| note_for_people(&command, read));
        read.and_then(|read| Arguments::from_arg_matches(&read))
            .map_err(|told| {
                let told = told.format(&mut command);
                if told.use_stderr() {
                    // An error message quotes the words of the command line, which may include a secret.
                    let safe = secrets::masked(&told.render().to_string());
                    drop(io::stderr().write_all(safe.as_bytes()));
                    report_json(
                        safe.trim_start_matches("error: ").trim_end(),
                        told.exit_code() as u8,
                    );
                } else {
                    note(told.print().and_then(|()| io::stdout().flush()));
                }
                // the exit code is 0 or 2
                ExitCode::from(told.exit_code() as u8)
            })
    }

    /// Runs the command. If `--record` is given, the recording is written even if the command fails.
    pub(crate) fn run(mut self) -> Result<ExitCode, Failure> {
        let Some(path) = self.record.take() else {
            return self.carry_out();
        };
        if !self.command.uses_targets() {
            return Err(Failure::refused(
                "--record needs a command that connects to a target",
            ));
        }
        if self.command.is_handed_on() {
            return self.carry_out();
        }
        let file = RecordFile::create(&path)?;
        file.write_at_signals(&self.command.ended_by())?;
        let outcome = self.carry_out();
        let written = file.write();
        outcome.and_then(|code| written.map(|()| code))
    }

    fn carry_out(self) -> Result<ExitCode, Failure> {
        let log = Log {
            filter: self.log,
            format: self.log_format.map(Into::into),
        };
        match self.command {
            Command::Serve(_) => {} // it starts logging after it has read its configuration file
            Command::Server(_) => log::begin(&log, &Log::default())?,
            // The output of the other commands is for people, and log lines about logins would clutter it.
            _ => log::begin(
                &log,
                &Log {
                    filter: Some("warn".to_owned()),
                    ..Log::default()
                },
            )?,
        }
        if self.command.ignores_hangups() {
            interrupt::ignore_hangups()?;
        }
        match self.command {
            Command::Serve(arguments) => serve::run(&arguments, &log)?,
            Command::Server(arguments) => server::run(&arguments)?,
            Command::Discover(arguments) => info::run_discover(&arguments)?,
            Command::Import(arguments) => return import::run(&arguments),
            Command::Raid(arguments) => return raid::run(&arguments),
            Command::Info(arguments) => info::run(&arguments)?,
            Command::Attach(arguments) => return attach::run(&arguments),
            Command::Detach(arguments) => attach::detach(&arguments)?,
            Command::Copy(arguments) => copy::run(&arguments)?,
            Command::Read(arguments) => stream::read(&arguments)?,
            Command::Write(arguments) => stream::write(&arguments)?,
            Command::Scsi(arguments) => scsi::run(&arguments)?,
            Command::Bench(bench) => match *bench {
                Nested::Own(arguments) => return bench::run(&arguments),
                Nested::Below(BenchCommand::Agent(arguments)) => listen::run_agent(&arguments)?,
                Nested::Below(BenchCommand::Verify(arguments)) => {
                    return bench::verify_log(&arguments);
                }
            },
            Command::Compare(arguments) => return report::run_compare(&arguments),
            Command::Report(report) => match *report {
                Nested::Own(arguments) => report::run(&arguments)?,
                Nested::Below(ReportCommand::Published(arguments)) => {
                    report::run_published(&arguments)?
                }
            },
            Command::Reproduce(arguments) => return reproduce::run(&arguments),
            Command::Diagnose(diagnose) => match *diagnose {
                Nested::Own(arguments) => return diagnose::run(&arguments),
                Nested::Below(DiagnoseCommand::Limits(arguments)) => limits::run(&arguments)?,
            },
            Command::Selftest(arguments) => return prove::run(&arguments),
            Command::Lab(LabCommand::Run(arguments)) => return lab::run(&arguments),
            Command::Lab(LabCommand::Peer(arguments)) => listen::run_peer(&arguments)?,
            Command::Completions(arguments) => {
                help::run_completions(&arguments, Arguments::command())
            }
            Command::Man(arguments) => man::run(&arguments, Arguments::command())?,
            Command::Topic(topic) => say(topic.text()),
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_commands_below_it_does_its_own_work_too() {
        let parsed = |line: &str| {
            Arguments::try_parse_from(line.split(' '))
                .expect(line)
                .command
        };
        for own in ["linerate bench ram:1MiB --depth 4", "linerate bench --list"] {
            assert!(
                matches!(parsed(own), Command::Bench(bench) if matches!(*bench, Nested::Own(_))),
                "{own}"
            );
        }
        let below = parsed("linerate bench verify log ram:1MiB");
        assert!(
            matches!(below, Command::Bench(bench) if matches!(*bench, Nested::Below(BenchCommand::Verify(_))))
        );
        let own = parsed("linerate diagnose iscsi://a/iqn.b/0 --quick");
        assert!(matches!(own, Command::Diagnose(diagnose) if matches!(*diagnose, Nested::Own(_))));
    }

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }
}
