//! `linerate copy`: from any place to any other, as fast as both go, holes left out, and to be gone on with after an
//! interruption.
//!
//! The order of events is [`run`]. Reading order: `source` and `destination` (the two ends), `pieces` (what to do),
//! `carry` and `offload` (one piece), `pump` (many at once), `journal` (how far it is for sure), `compare`, `digest`, `progress`,
//! `report`.

mod arguments;
mod carry;
mod compare;
mod destination;
mod digest;
mod journal;
mod offload;
mod pieces;
mod progress;
mod pump;
mod report;
mod source;
mod zeros;

use std::rc::Rc;
use std::time::Instant;

pub(crate) use arguments::CopyArguments;
use destination::Destination;
use journal::Journal;
use offload::Offload;
use progress::Progress;
use pump::{Ended, Pump};
use report::Report;
use source::Source;

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::say;
use crate::place::Place;
use crate::remote;
use crate::spec::Bytes;

/// Runs the command.
pub(crate) fn run(arguments: &CopyArguments) -> Result<(), Failure> {
    let from = Place::parse(&arguments.source)?;
    let to = Place::parse(&arguments.destination)?;
    let interrupt = Interrupt::listen()?;
    let report = remote::run(copy(arguments, &from, &to, &interrupt))?;
    match (arguments.json, arguments.quiet) {
        (true, _) => say(&report.json()?),
        (false, true) => {}
        (false, false) => say(&report.text()),
    }
    report.verdict()
}

async fn copy(
    arguments: &CopyArguments,
    from: &Place,
    to: &Place,
    interrupt: &Interrupt,
) -> Result<Report, Failure> {
    let source = Rc::new(Source::open(from).await?);
    let journal = Journal::open(arguments, &source, to).await?;
    let begun = journal.as_ref().and_then(Journal::begun).cloned();
    let destination = Rc::new(Destination::open(to, &source, begun.as_ref(), arguments.yes).await?);
    let journal = journal.filter(|journal| journal.serves(&destination));
    let start = begun.map_or(0, |begun| begun.done_bytes());
    let report = between(arguments, &source, &destination, journal, start, interrupt).await;
    source.close().await;
    destination.close().await;
    report
}

async fn between(
    arguments: &CopyArguments,
    source: &Rc<Source>,
    destination: &Rc<Destination>,
    journal: Option<Journal>,
    start: u64,
    interrupt: &Interrupt,
) -> Result<Report, Failure> {
    let progress = Progress::new(arguments, "copied", source.bytes);
    progress.note(destination.note(source.bytes));
    progress.note((start > 0).then(|| format!("going on at {}", Bytes(start))));
    let offload = offload(arguments, source, destination, &progress).await;
    let clock = Instant::now();
    let mut pump = Pump::new(arguments, Rc::clone(source), Rc::clone(destination), journal, offload, start);
    let ended = pump.run(&progress, interrupt).await?;
    drop(progress);
    let mut report = Report::new(source, destination, start, pump.account(), clock.elapsed());
    match ended {
        Ended::Complete(digest) => report.sha256 = digest,
        Ended::Interrupted(at) => return Err(journal::interrupted(at, source.bytes, pump.is_resumable())),
    }
    pump.forget_journal().await?;
    if arguments.verify {
        let progress = Progress::new(arguments, "compared", source.bytes);
        compare::compare(arguments, source, destination, &progress, interrupt).await?;
        report.verified = true;
    }
    destination.complete(source.bytes)?;
    Ok(report)
}

/// A target that copies by itself, unless somebody needs to see the data.
async fn offload(
    arguments: &CopyArguments,
    source: &Source,
    destination: &Destination,
    progress: &Progress,
) -> Option<Offload> {
    if arguments.no_xcopy || arguments.checksum || arguments.skip_errors {
        return None;
    }
    Offload::between(source, destination).await.unwrap_or_else(|why| {
        progress.note(Some(why));
        None
    })
}

#[cfg(test)]
mod tests;
