//! `linerate bench`: measures storage of any kind, and keeps what was measured.
//!
//! ```text
//!   arguments ── plans, terms ──► bench_runner::prepare ──► bench_runner::conductor ──► crew (clients here, or agents)
//!                                                         │  ▲
//!                                  result.json ── keeper ◄┘  └── samples: stop, view
//! ```
//!
//! Reading order: [`run`] (the order of events); `arguments`, `options` (what was asked for), `view` (what is
//! seen of it), `shown` (what is told in the end). Preparing and measuring are `bench_runner`'s.

mod arguments;
mod options;
mod shown;
mod view;

pub(crate) use bench_runner::{agents, crew, folder, keeper, reports, shorter, suites, timestamp};

use std::process::ExitCode;

pub(crate) use arguments::{BenchArguments, LabOptions};
use bench::record::Record;
use bench_runner::conductor::conduct;
use bench_runner::prepare::{Hands, Prepared};
use bench_runner::progress::Form;
use bench_runner::silence::awaited;
use bench_runner::verdict::{again, verdict};
use crew::{Crew, LocalCrew};
use folder::Folder;
pub(crate) use folder::read_result;
use keeper::Keeper;
pub(crate) use options::seconds;
pub(crate) use shown::width;
pub(crate) use view::{Line, View};
use view::{Notes, Watch};

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::location::Location;
use crate::output::say;
use crate::progress::{self, ProgressKind};
use crate::{remote, report, wan};
use bench_runner::serving::Serving;

/// Runs the command.
pub(crate) fn run(arguments: &BenchArguments) -> Result<ExitCode, Failure> {
    if arguments.list {
        say(&suites::listed(width()));
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.suite.iter().any(|name| name == wan::NAME) {
        return wan::run(arguments);
    }
    if arguments.output.watch {
        // Before anything is made.
        Watch::is_possible()?;
    }
    let place = arguments.place()?;
    let plans = arguments.plans()?;
    let agents = arguments.agents.found()?;
    let interrupt = Interrupt::listen()?;
    let mut opening = progress::opening(progress::kind(arguments.output.progress, arguments.output.quiet));
    let several = arguments.output.out.as_deref().filter(|_| plans.len() > 1);
    let (mut made, mut code) = (false, ExitCode::SUCCESS);
    for plan in plans {
        let one = remote::run(async {
            let terms = arguments.terms(&place, agents.as_ref())?;
            let prepared = awaited(plan.prepare(&terms, &mut made), |waited| opening.waiting(waited)).await?;
            measure(arguments, &place, prepared, &interrupt).await
        })?;
        if one != ExitCode::SUCCESS {
            code = one;
        }
    }
    if let Some(out) = several {
        let curves = report::curves(&arguments.output.beside);
        let all = reports::write_together(&folder::with_results(out)?, &curves, out)?;
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
    let Prepared { keeper, hands, server } = prepared;
    let congestion = environment::congestion(place);
    let work = Work { keeper, server, congestion };
    match hands {
        Hands::Agents(crew) => work.carry_out(crew, arguments, interrupt).await,
        Hands::Here(source) => {
            let crew = LocalCrew::new(source, arguments.session.spin());
            let crew = crew.with_log(arguments.workload.verify_log.clone());
            work.carry_out(crew, arguments, interrupt).await
        }
    }
}

/// What is to be done.
pub(crate) struct Work {
    pub(crate) keeper: Keeper,
    /// Who serves the storage, if that is known.
    pub(crate) server: Option<Serving>,
    /// The congestion control of our sockets, if all of them have one.
    pub(crate) congestion: Option<String>,
}

impl Work {
    /// Has a crew do it, shows it and keeps it.
    pub(crate) async fn carry_out(
        self,
        crew: impl Crew,
        arguments: &BenchArguments,
        interrupt: &Interrupt,
    ) -> Result<ExitCode, Failure> {
        let Work { mut keeper, server, congestion } = self;
        let mut view = view(arguments, keeper.record(), interrupt)?;
        keeper.record().notes.iter().for_each(|note| view.note(note));
        let asked = || interrupt.is_asked();
        let (outcome, tables) = conduct(crew, &mut keeper, &mut *view, server, &asked).await;
        drop(view);
        if let Err(failure) = &outcome {
            keeper.note(format!("ended by a failure: {failure}"));
        }
        shown::print(&arguments.output, congestion.as_deref(), keeper.record(), &tables)?;
        // Before the record says that it came to its end: one that is killed meanwhile is gone on with, and gets its report.
        let written = keeper.folder().map_or(Ok(()), |folder| files(arguments, folder, keeper.record()));
        let (record, folder, lost) = keeper.end();
        let subject = arguments.place.as_deref().map_or(vec!["--suite", wan::NAME], |place| vec![place]);
        let typed = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        let again = again(&subject, typed);
        let went_well = verdict(&record, outcome, folder.as_ref(), lost.or(written.err()), &again)?;
        Ok(if went_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Writes the files of the result, and says where the one is that people open.
fn files(arguments: &BenchArguments, folder: &Folder, record: &Record) -> Result<(), Failure> {
    reports::write(folder, record, report::curves(&arguments.output.beside))?;
    if !arguments.output.quiet && !arguments.output.json {
        say(&format!("\nreport: {}\n", folder.file("report.html").display()));
    }
    Ok(())
}

fn view(
    arguments: &BenchArguments,
    record: &Record,
    interrupt: &Interrupt,
) -> Result<Box<dyn View>, Failure> {
    let output = &arguments.output;
    Ok(match progress::kind(output.progress, output.quiet) {
        _ if output.watch => Box::new(Watch::new(record, interrupt)?),
        ProgressKind::Bar => Box::new(Line::new()),
        ProgressKind::Plain => Box::new(progress::lines(Form::Plain)),
        ProgressKind::Json => Box::new(progress::lines(Form::Json)),
        ProgressKind::None if output.quiet => Box::new(()),
        ProgressKind::None => Box::new(Notes),
    })
}
