//! `linerate bench`: measures storage of any kind, and keeps what was measured.
//!
//! ```text
//!   arguments ── a suite ── fit ── safety ──► conduct ──► crew ──► client ──► bench::run, on a thread of its own
//!                            ▲                   │  ▲        (or agents)
//!                         storage      keeper ◄──┘  └── samples: stop, view
//!                                        │
//!                                      folder ── result.json
//! ```
//!
//! Reading order: [`run`] (the order of events); `arguments`, `options` (what was asked for), `storage`, `fit`, `safety`
//! (what may be done); `client`, `ways`, `costs`, `crew` (who does it); `conduct`, `stop`, `keeper`, `folder` (the
//! measurement); `view`, `measured` (what is seen of it).

mod arguments;
mod begin;
mod client;
mod conduct;
mod costs;
mod crew;
mod extent;
mod fit;
mod folder;
mod keeper;
mod measured;
mod options;
mod purge;
mod resume;
mod safety;
mod stop;
mod storage;
mod timestamp;
mod values;
mod view;
mod ways;

use std::io::{IsTerminal, stderr};
use std::process::ExitCode;

pub(crate) use arguments::BenchArguments;
use bench::plan::{Step, Suite};
use bench::record::{Facts, Record};
use conduct::{Conductor, Outcome};
use crew::{Crew, LocalCrew};
use fit::Limits;
use folder::Folder;
use keeper::Keeper;
use measured::{Beside, Measured};
pub(crate) use options::seconds;
use storage::Storage;
use view::{Line, Nobody, View};

use crate::failure::{Failure, Kind};
use crate::interrupt::Interrupt;
use crate::output::say;
use crate::place::Place;
use crate::remote;

/// Runs the command.
pub(crate) fn run(arguments: &BenchArguments) -> Result<ExitCode, Failure> {
    let place = arguments.place()?;
    let interrupt = Interrupt::listen()?;
    remote::run(measure(arguments, &place, &interrupt))
}

async fn measure(
    arguments: &BenchArguments,
    place: &Place,
    interrupt: &Interrupt,
) -> Result<ExitCode, Failure> {
    let plan = Plan::of(arguments)?;
    let may_write = arguments.safety.allow_write.is_some();
    let storage = Storage::open(place, may_write && plan.suite().writes(), arguments.safety.size).await?;
    let prepared = prepare(arguments, &storage, plan, may_write).await;
    let source = storage.source.clone();
    storage.close().await;
    let mut keeper = prepared?;
    let mut crew = LocalCrew::new(source, arguments.session.spin());
    let mut view = view(arguments);
    let mut conductor =
        Conductor { crew: &mut crew, keeper: &mut keeper, view: &mut *view, interrupt, tables: Vec::new() };
    let outcome = conductor.conduct(SEED).await;
    let tables = conductor.tables;
    drop(view);
    crew.close().await;
    if let Ok(Outcome::Complete) = outcome {
        keeper.complete();
    }
    if let Err(failure) = &outcome {
        keeper.note(format!("ended by a failure: {failure}"));
    }
    let (record, folder, lost) = keeper.end();
    print(arguments, place, &record, &tables)?;
    verdict(&record, outcome, folder.as_ref(), lost)
}

/// What is to be measured.
enum Plan {
    New(Suite),
    /// What is left of one that was interrupted.
    Resumed(Box<Record>, Folder),
}

impl Plan {
    fn of(arguments: &BenchArguments) -> Result<Plan, Failure> {
        let Some(path) = &arguments.output.resume else { return arguments.workload.suite().map(Plan::New) };
        if !arguments.workload.is_empty() {
            let why =
                "--resume goes on with the workloads of its record; leave out those of the command line";
            return Err(Failure::refused(why));
        }
        let folder = Folder::open(path);
        Ok(Plan::Resumed(Box::new(folder.load()?), folder))
    }

    fn suite(&self) -> &Suite {
        match self {
            Plan::New(suite) => suite,
            Plan::Resumed(record, _) => &record.suite,
        }
    }
}

/// The order in which cells are repeated is the same whenever a suite is.
const SEED: u64 = 1;

/// Everything that can be refused is refused here, before anything is measured.
async fn prepare(
    arguments: &BenchArguments,
    storage: &Storage,
    plan: Plan,
    may_write: bool,
) -> Result<Keeper, Failure> {
    let part = arguments.safety.part()?;
    let limits = Limits {
        device_bytes: storage.subject.bytes,
        block_bytes: storage.subject.block_bytes,
        writes: may_write || !storage.keeps,
        part,
    };
    let (record, folder) = match plan {
        Plan::New(suite) => {
            let mut fitted = fit::fit(suite, &limits)?;
            if storage.is_new {
                fitted.suite.steps.insert(0, FILL);
            }
            let notes = storage.notes.iter().cloned().chain(fitted.notes).collect();
            (begin::record(storage.subject.clone(), fitted.suite, Facts::default(), notes), None)
        }
        Plan::Resumed(record, folder) => {
            let record = resume::resumed(*record, &storage.subject)?;
            if fit::fit(record.suite.clone(), &limits)?.suite != record.suite {
                let why = "this was begun with leave to use and write more than now; say the same again";
                return Err(Failure::refused(why));
            }
            (record, Some(folder))
        }
    };
    if record.suite.writes() {
        safety::consent(storage, &limits, arguments.safety.yes).await?;
    }
    let folder = match folder {
        None => arguments.output.out.as_deref().map(Folder::create).transpose()?,
        resumed => resumed,
    };
    Keeper::new(record, folder)
}

/// What a file that was made for the measurement gets: reading holes would measure nothing.
const FILL: Step = Step::Fill { block_bytes: 1 << 20, depth: 8, passes: 1 };

fn view(arguments: &BenchArguments) -> Box<dyn View> {
    match stderr().is_terminal() && !arguments.output.quiet {
        true => Box::new(Line::new()),
        false => Box::new(Nobody),
    }
}

/// What was measured, on standard output.
fn print(
    arguments: &BenchArguments,
    place: &Place,
    record: &Record,
    tables: &[String],
) -> Result<(), Failure> {
    let congestion = congestion(place);
    let statistics = arguments.output.statistics;
    let beside = Beside { record, congestion: congestion.as_deref(), statistics };
    if arguments.output.json {
        return record
            .runs
            .iter()
            .try_for_each(|run| Measured::of(run, beside).json().map(|line| say(&line)));
    }
    for run in record.runs.iter().filter(|_| !arguments.output.quiet) {
        let cell = record.suite.cells().find(|cell| cell.name == run.cell);
        cell.iter().for_each(|cell| say(&Measured::of(run, beside).text(cell, record)));
    }
    if statistics {
        tables.iter().for_each(|table| say(&format!("\n{table}")));
    }
    Ok(())
}

/// The congestion control of our own sockets, if there are any: it is writes that it slows down, reads are up to the
/// target's.
fn congestion(place: &Place) -> Option<String> {
    match place {
        Place::Lun(url) => Some(url.settings.stream.congestion.clone().unwrap_or_else(system_congestion)),
        Place::Volume(_) | Place::Path(_) => None,
    }
}

/// The system's choice for sockets that make none.
pub(crate) fn system_congestion() -> String {
    let default = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    default.map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

/// The exit code: of what ended it, else of what was lost, else of requests that failed.
fn verdict(
    record: &Record,
    outcome: Result<Outcome, Failure>,
    folder: Option<&Folder>,
    lost: Option<Failure>,
) -> Result<ExitCode, Failure> {
    let runs = record.runs.len();
    let then = match folder {
        Some(folder) if lost.is_none() => format!("go on with --resume {}", folder.path().display()),
        _ => "what was measured is above, and nowhere else".to_owned(),
    };
    match outcome? {
        Outcome::Interrupted => {
            Err(Failure::new(Kind::Interrupted, format_args!("interrupted after {runs} runs; {then}")))
        }
        Outcome::Complete => {
            let failed = record.runs.iter().flat_map(|run| &run.clients);
            let failed = failed.into_iter().any(|client| client.run.first_failure.is_some());
            lost.map_or(Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }), Err)
        }
    }
}
