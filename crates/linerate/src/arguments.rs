//! The command line.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use manage::config::Log;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::agent::{self, AgentArguments};
use crate::attach::{self, AttachArguments, AttachmentsArguments, DetachArguments};
use crate::bench::{self, BenchArguments};
use crate::compare::{self, CompareArguments};
use crate::completions::{self, CompletionsArguments};
use crate::copy::{self, CopyArguments};
use crate::diagnose::{self, DiagnoseArguments};
use crate::discover::{self, DiscoverArguments};
use crate::failure::{Failure, exit_codes};
use crate::fault_command::{self, FaultArguments};
use crate::info::{self, InfoArguments};
use crate::interrupt;
use crate::lab::{self, LabArguments};
use crate::limits::{self, LimitsArguments};
use crate::log::{self, LogLines};
use crate::man::{self, ManArguments};
use crate::output::{note, report_json};
use crate::peer::{self, PeerArguments};
use crate::prove::{self, ProveArguments};
use crate::published::{self, PublishedArguments};
use crate::raw::{self, RawArguments};
use crate::recording::RecordFile;
use crate::reload::{self, ReloadArguments};
use crate::report::{self, ReportArguments};
use crate::scsi::{self, ScsiArguments};
use crate::secrets;
use crate::serve::{self, ServeArguments};
use crate::server::{self, ServerArguments};
use crate::sessions::{self, SessionsArguments};
use crate::stream::{self, ReadArguments, WriteArguments};
use crate::verify_log::{self, VerifyLogArguments};

/// An IP SAN in one program: serves block storage over iSCSI, uses it and measures it
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, after_help = exit_codes())]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// What to log to standard error, such as info, debug or warn,target=debug [default: warnings, logins and
    /// logouts]
    #[arg(long, global = true, value_name = "FILTER")]
    log: Option<String>,
    /// How to write it
    #[arg(long, global = true, value_name = "FORMAT")]
    log_format: Option<LogLines>,
    /// Where to write the last PDUs of each connection to a target, for Wireshark (pcapng)
    #[arg(long, global = true, value_name = "FILE")]
    record: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(Box<ServeArguments>),
    Server(ServerArguments),
    Sessions(SessionsArguments),
    Reload(ReloadArguments),
    Fault(FaultArguments),
    Bench(Box<BenchArguments>),
    VerifyLog(VerifyLogArguments),
    Agent(AgentArguments),
    Peer(PeerArguments),
    Raw(RawArguments),
    Compare(CompareArguments),
    Prove(ProveArguments),
    Published(PublishedArguments),
    Diagnose(Box<DiagnoseArguments>),
    Discover(DiscoverArguments),
    Info(InfoArguments),
    Lab(LabArguments),
    Limits(LimitsArguments),
    Copy(Box<CopyArguments>),
    Read(ReadArguments),
    Report(ReportArguments),
    Write(WriteArguments),
    Scsi(ScsiArguments),
    Attach(AttachArguments),
    Detach(DetachArguments),
    Attachments(AttachmentsArguments),
    Completions(CompletionsArguments),
    Man(ManArguments),
}

impl Command {
    fn uses_targets(&self) -> bool {
        !matches!(
            self,
            Command::Serve(_)
                | Command::Server(_)
                | Command::Sessions(_)
                | Command::Reload(_)
                | Command::Fault(_)
                | Command::Limits(_)
                | Command::Published(_)
                | Command::Peer(_)
                | Command::Raw(_)
                | Command::Detach(_)
                | Command::Attachments(_)
                | Command::Compare(_)
                | Command::Completions(_)
                | Command::Man(_)
                | Command::Lab(_)
                | Command::Report(_)
        )
    }

    /// Whether another process does the work, with the same arguments.
    fn is_handed_on(&self) -> bool {
        matches!(self, Command::Attach(arguments) if arguments.goes_into_background())
    }

    /// Whether others depend on this process, which must not end with its terminal then.
    fn ignores_hangups(&self) -> bool {
        match self {
            Command::Agent(_) | Command::Peer(_) => true,
            Command::Raw(arguments) => arguments.serves(),
            Command::Attach(_) => !self.is_handed_on(),
            _ => false,
        }
    }

    /// The signals that end it as they end any process: not those that it sees to itself.
    fn ended_by(&self) -> Vec<i32> {
        match self {
            Command::Attach(_)
            | Command::Bench(_)
            | Command::Copy(_)
            | Command::Read(_)
            | Command::Write(_) => Vec::new(),
            // A server reads its configuration again.
            Command::Serve(_) => vec![SIGINT, SIGTERM],
            _ if self.ignores_hangups() => vec![SIGINT, SIGTERM],
            _ => interrupt::endings(),
        }
    }
}

impl Arguments {
    /// Reads the command line. Help, the version and mistakes are clap's to tell: the exit code is left to be returned.
    pub(crate) fn read() -> Result<Arguments, ExitCode> {
        Arguments::try_parse().map_err(|told| {
            if told.use_stderr() {
                // A mistake is shown with the words that it is in, and a secret may be among them.
                let safe = secrets::masked(&told.render().to_string());
                drop(io::stderr().write_all(safe.as_bytes()));
                let first = safe.lines().next().unwrap_or_default();
                report_json(first.trim_start_matches("error: "), told.exit_code() as u8);
            } else {
                note(told.print().and_then(|()| io::stdout().flush()));
            }
            // 0 or 2
            ExitCode::from(told.exit_code() as u8)
        })
    }

    /// Carries the command out, and records it if that is wanted, however it ends.
    pub(crate) fn run(mut self) -> Result<ExitCode, Failure> {
        let Some(path) = self.record.take() else { return self.carry_out() };
        if !self.command.uses_targets() {
            return Err(Failure::refused("--record is for commands that connect to a target"));
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
        let log = Log { filter: self.log, format: self.log_format.map(Into::into) };
        match self.command {
            Command::Serve(_) => {} // has a file to look into first
            Command::Server(_) | Command::Sessions(_) | Command::Reload(_) | Command::Fault(_) => {
                log::begin(&log, &Log::default())?
            }
            // What the others print is for people to look at: logins have no place between.
            _ => log::begin(&log, &Log { filter: Some("warn".to_owned()), ..Log::default() })?,
        }
        if self.command.ignores_hangups() {
            interrupt::ignore_hangups()?;
        }
        match self.command {
            Command::Serve(arguments) => serve::run(&arguments, &log)?,
            Command::Server(arguments) => server::run(&arguments)?,
            Command::Sessions(arguments) => sessions::run(&arguments)?,
            Command::Reload(arguments) => reload::run(&arguments)?,
            Command::Fault(arguments) => fault_command::run(&arguments)?,
            Command::Bench(arguments) => return bench::run(&arguments),
            Command::VerifyLog(arguments) => return verify_log::run(&arguments),
            Command::Agent(arguments) => agent::run(&arguments)?,
            Command::Peer(arguments) => peer::run(&arguments)?,
            Command::Raw(arguments) => raw::run(&arguments)?,
            Command::Compare(arguments) => return compare::run(&arguments),
            Command::Prove(arguments) => return prove::run(&arguments),
            Command::Diagnose(arguments) => return diagnose::run(&arguments),
            Command::Published(arguments) => published::run(&arguments)?,
            Command::Discover(arguments) => discover::run(&arguments)?,
            Command::Info(arguments) => info::run(&arguments)?,
            Command::Lab(arguments) => return lab::run(&arguments),
            Command::Limits(arguments) => limits::run(&arguments)?,
            Command::Copy(arguments) => copy::run(&arguments)?,
            Command::Read(arguments) => stream::read(&arguments)?,
            Command::Report(arguments) => report::run(&arguments)?,
            Command::Write(arguments) => stream::write(&arguments)?,
            Command::Scsi(arguments) => scsi::run(&arguments)?,
            Command::Attach(arguments) => return attach::run(&arguments),
            Command::Detach(arguments) => attach::detach(&arguments)?,
            Command::Attachments(arguments) => attach::list(&arguments)?,
            Command::Completions(arguments) => completions::run(&arguments),
            Command::Man(arguments) => man::run(&arguments)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }
}
