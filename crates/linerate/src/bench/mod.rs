//! `linerate bench`: measures storage of any kind, and saves the results.
//!
//! ```text
//!   arguments ── plans, terms ──► bench_runner::prepare ──► bench_runner::conductor ──► crew (clients here, or agents)
//!                                                         │  ▲
//!                                  result.json ── keeper ◄┘  └── samples: stop, view
//! ```
//!
//! Reading order: [`run`] (the sequence); `arguments`, `options` (the request), `view` (the progress),
//! `shown` (the result). `bench_runner` prepares and measures.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use ::report::Report;
use ::report::measured::{Beside, Measured};
use ::wan::WanCrew;
use bench::journal::{CheckError, Crash};
use bench::record::Record;
use bench_runner::agents::Serving;
use bench_runner::conductor::{again, conduct, verdict};
use bench_runner::crew::{Crew, LocalCrew};
use bench_runner::folder::{Folder, Keeper, with_results, write_report, write_together};
use bench_runner::prepare::{Hands, Prepared};
use bench_runner::progress::Form;
use bench_runner::storage::{Storage, about_journal, open_journal};
use bench_runner::suites;
use bench_runner::view::{View, awaited};
use clap::ValueEnum;
use model::LinkRate;

use crate::bench::arguments::OutputOptions;
use crate::bench::view::{Notes, Watch};
use crate::failure::{Failure, FailureKind};
use crate::interrupt::Interrupt;
use crate::location::Location;
use crate::output::{say, say_json, width};
use crate::remote;
use crate::terminal::{self, ProgressKind};

mod arguments;
mod view;

pub(crate) use arguments::seconds;
pub(crate) use arguments::{BenchArguments, LabOptions};
pub(crate) use view::ProgressLine;

/// Runs the command.
pub(crate) fn run(arguments: &BenchArguments) -> Result<ExitCode, Failure> {
    if arguments.list {
        say(&suites::listed(width()));
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.suite.iter().any(|name| name == NAME) {
        return run_wan(arguments);
    }
    if arguments.output.watch {
        // Check this before any file is created.
        Watch::is_possible()?;
    }
    let place = arguments.place()?;
    let plans = arguments.plans()?;
    let agents = arguments.agents.found()?;
    let interrupt = Interrupt::listen()?;
    let mut opening = terminal::opening(terminal::kind(
        arguments.output.progress,
        arguments.output.quiet,
    ));
    let several = arguments.output.out.as_deref().filter(|_| plans.len() > 1);
    let (mut made, mut code) = (false, ExitCode::SUCCESS);
    for plan in plans {
        let one = remote::run(async {
            let terms = arguments.terms(&place, agents.as_ref())?;
            let prepared = awaited(plan.prepare(&terms, &mut made), |waited| {
                opening.waiting(waited)
            })
            .await?;
            measure(arguments, &place, prepared, &interrupt).await
        })?;
        if one != ExitCode::SUCCESS {
            code = one;
        }
    }
    if let Some(out) = several {
        let all = write_together(&with_results(out)?, &arguments.output.beside, out)?;
        if !arguments.output.quiet && !arguments.output.json {
            say(&format!("all reports: {}\n", all.display()));
        }
    }
    Ok(code)
}

async fn measure(
    arguments: &BenchArguments,
    place: &Location,
    prepared: Prepared,
    interrupt: &Interrupt,
) -> Result<ExitCode, Failure> {
    let Prepared {
        keeper,
        hands,
        server,
    } = prepared;
    let congestion = environment::congestion(place);
    let work = Work {
        keeper,
        server,
        congestion,
    };
    match hands {
        Hands::Agents(crew) => work.carry_out(crew, arguments, interrupt).await,
        Hands::Here(source) => {
            let crew = LocalCrew::new(source, arguments.session.spin());
            let crew = crew.with_log(arguments.workload.verify_log.clone());
            work.carry_out(crew, arguments, interrupt).await
        }
    }
}

/// A prepared measurement.
pub(crate) struct Work {
    pub(crate) keeper: Keeper,
    /// The storage's server, if known.
    pub(crate) server: Option<Serving>,
    /// The congestion control of the client's sockets, if all of them use the same.
    pub(crate) congestion: Option<String>,
}

impl Work {
    /// Runs the measurement with a crew, shows its progress, and saves the result.
    pub(crate) async fn carry_out(
        self,
        crew: impl Crew,
        arguments: &BenchArguments,
        interrupt: &Interrupt,
    ) -> Result<ExitCode, Failure> {
        let Work {
            mut keeper,
            server,
            congestion,
        } = self;
        let mut view = view(arguments, keeper.record(), interrupt)?;
        keeper
            .record()
            .notes
            .iter()
            .for_each(|note| view.note(note));
        let asked = || interrupt.is_asked();
        let (outcome, tables) = conduct(crew, &mut keeper, &mut *view, server, &asked).await;
        drop(view);
        if let Err(failure) = &outcome {
            keeper.note(format!("stopped by a failure: {failure}"));
        }
        print_result(
            &arguments.output,
            congestion.as_deref(),
            keeper.record(),
            &tables,
        )?;
        // Write the report before the record is marked complete. If the program is killed in between, the
        // measurement can be resumed, and the report is written then.
        let written = keeper
            .folder()
            .map_or(Ok(()), |folder| files(arguments, folder, keeper.record()));
        let (record, folder, lost) = keeper.end();
        let subject = arguments
            .place
            .as_deref()
            .map_or(vec!["--suite", NAME], |place| vec![place]);
        let typed = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        let again = again(&subject, typed);
        let went_well = verdict(
            &record,
            outcome,
            folder.as_ref(),
            lost.or(written.err()),
            &again,
        )?;
        Ok(if went_well {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

/// Writes the files of the result, and prints the path of the main one.
fn files(arguments: &BenchArguments, folder: &Folder, record: &Record) -> Result<(), Failure> {
    write_report(folder, record, &arguments.output.beside)?;
    if !arguments.output.quiet && !arguments.output.json {
        say(&format!(
            "\nreport: {}\n",
            folder.file("report.html").display()
        ));
    }
    Ok(())
}

fn view(
    arguments: &BenchArguments,
    record: &Record,
    interrupt: &Interrupt,
) -> Result<Box<dyn View>, Failure> {
    let output = &arguments.output;
    Ok(match terminal::kind(output.progress, output.quiet) {
        _ if output.watch => Box::new(Watch::new(record, interrupt)?),
        ProgressKind::Bar => Box::new(ProgressLine::new()),
        ProgressKind::Plain => Box::new(terminal::lines(Form::Plain)),
        ProgressKind::Json => Box::new(terminal::lines(Form::Json)),
        ProgressKind::None if output.quiet => Box::new(()),
        ProgressKind::None => Box::new(Notes),
    })
}

pub(crate) use bench::suite::wan::NAME;

/// Runs or resumes the suite `wan`.
pub(crate) fn run_wan(arguments: &BenchArguments) -> Result<ExitCode, Failure> {
    arguments.refuse_beside_a_lab()?;
    ::wan::can_be_made()?;
    let (record, folder) = match arguments.resumed() {
        Some(folder) => (::wan::resumed(&folder)?, Some(folder)),
        None => {
            let folder = arguments.out().map(Folder::create).transpose()?;
            let LabOptions { link, quick } = arguments.lab;
            let link = link.unwrap_or(LinkRate::GIGABIT);
            (
                ::wan::begun(link, quick, |suite| arguments.shortened(suite)),
                folder,
            )
        }
    };
    let interrupt = Interrupt::listen()?;
    remote::run(async {
        let crew = WanCrew::new()?;
        let work = Work {
            keeper: Keeper::new(record, folder)?,
            server: None,
            congestion: None,
        };
        work.carry_out(crew, arguments, &interrupt).await
    })
}

/// Prints the result on standard output. `tables` are the session statistics of the last run.
fn print_result(
    options: &OutputOptions,
    congestion: Option<&str>,
    record: &Record,
    tables: &[String],
) -> Result<(), Failure> {
    let beside = Beside::new(record, congestion, options.statistics);
    if options.json {
        let mut runs = record.runs.iter();
        let lines =
            runs.try_for_each(|run| Measured::of(run, &beside).json().map(|line| say(&line)));
        return lines.map_err(Failure::failed);
    }
    if options.quiet || record.runs.is_empty() {
        return Ok(());
    }
    let mut cells = record.suite.cells();
    match (cells.next(), cells.next(), record.runs.as_slice()) {
        (Some(only), None, [run]) if options.beside.is_empty() => {
            say(&Measured::of(run, &beside).text(only, record, width()))
        }
        _ => say(&Report::new(record)
            .beside(&options.beside)
            .terminal(width())),
    }
    if options.statistics {
        tables.iter().for_each(|table| say(&format!("\n{table}")));
    }
    Ok(())
}

// `linerate bench verify` checks whether storage has kept all guarantees that it gave to an interrupted
// `linerate bench --verify-log`.
//
// The log is a mapped file ([`host::MappedWords`]) in the format of [`bench::journal`].

#[derive(clap::Args, Debug)]
pub(crate) struct VerifyLogArguments {
    /// Log written by --verify-log
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Storage that was measured (see `linerate help targets`)
    #[arg(value_name = "TARGET")]
    place: String,
    /// Side that crashed. After a crash of only the client, every acknowledged write must be present; the
    /// storage may have lost writes that were neither flushed nor had FUA
    #[arg(long, value_name = "SIDE", default_value = "storage")]
    after: After,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The side that crashed.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum After {
    Client,
    Storage,
}

/// Runs the command. If data is missing, there is a separate exit code.
pub(crate) fn verify_log(arguments: &VerifyLogArguments) -> Result<ExitCode, Failure> {
    let path = &arguments.file;
    let journal = open_journal(path)?;
    let crash = match arguments.after {
        After::Client => Crash::OfClient,
        After::Storage => Crash::OfStorage,
    };
    let place = Location::parse(&arguments.place)?;
    let checked = remote::run(async {
        let storage = Storage::open(&place, false, None).await?;
        let checked = Rc::new(journal).check(&storage.device, crash).await;
        storage.close().await;
        checked.map_err(|error| failed(path, error))
    })?;
    if arguments.json {
        say_json(&checked)?;
    }
    if checked.wrong > 0 {
        return Err(Failure::new(FailureKind::Mismatch, checked));
    }
    if !arguments.json {
        say(&format!("{checked}\n"));
    }
    Ok(ExitCode::SUCCESS)
}

fn failed(path: &Path, error: CheckError) -> Failure {
    match error {
        CheckError::Journal(error) => Failure::refused(about_journal(path, error)),
        CheckError::Device(error) => Failure::device("cannot read the data back", error),
    }
}
