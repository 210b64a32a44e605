//! Copies any storage to any other storage. Requests are concurrent, holes are not read, and an interrupted
//! copy can be resumed.
//!
//! [`copy`] defines the order of events. Reading order: `options` (options and progress), `source` and
//! `destination` (the two ends), `pieces` (the work), `carry` and `offload` (one piece), `pump` (concurrent
//! pieces), `journal` (the durable checkpoint), `compare`, `digest`, `report`. [`stream`] copies between
//! storage and a pipe. All of them address devices by bytes ([`block::bytewise`]).
//!
//! This crate prints nothing: an [`Observer`] receives the progress.
//!
//! ```
//! use backends::location::Location;
//! use copy::{Options, Unobserved};
//!
//! let [from, to] = ["ram:1MiB", "ram:2MiB"].map(|text| Location::parse(text).expect("a place"));
//! let options = Options { verify: true, ..Options::default() };
//! let report = backends::remote::run(copy::copy(&from, &to, &options, &Unobserved));
//! let report = report.expect("a copy");
//! assert!(report.verified && report.bytes == 1 << 20);
//! ```

mod compare;
mod destination;
mod options;
mod pieces;
mod pump;
mod source;
pub mod stream;

use std::rc::Rc;
use std::time::Instant;

use backends::Failure;
use backends::location::Location;
use volume::spec::Bytes;

use crate::destination::{Destination, Journal};
use crate::pump::{Ended, Offload, Pump};
use crate::source::Source;

pub use options::{JournalPlace, Observer, Options, Phase, Position, Unobserved};
pub use pump::Report;

/// Copies the whole source to the beginning of the destination.
///
/// # Errors
/// The reason why the copy is incomplete; [`backends::FailureKind::Interrupted`] if the observer interrupted
/// the copy.
pub async fn copy(
    from: &Location,
    to: &Location,
    options: &Options<'_>,
    observer: &dyn Observer,
) -> Result<Report, Failure> {
    let source = Rc::new(Source::open(from).await?);
    if !options.raw {
        source.refuse_image(to).await?;
    }
    let journal = Journal::open(options, &source, to).await?;
    let begun = journal.as_ref().and_then(Journal::begun).cloned();
    let destination =
        Rc::new(Destination::open(to, &source, begun.as_ref(), options.consent).await?);
    let journal = journal.filter(|journal| journal.serves(&destination));
    let start = begun.map_or(0, |begun| begun.done_bytes());
    let report = between(options, &source, &destination, journal, start, observer).await;
    let report = destination.explained(source.explained(report).await).await;
    source.close().await;
    destination.close().await;
    report
}

async fn between(
    options: &Options<'_>,
    source: &Rc<Source>,
    destination: &Rc<Destination>,
    journal: Option<Journal>,
    start: u64,
    observer: &dyn Observer,
) -> Result<Report, Failure> {
    observer.begin(Phase::Copy, start, source.bytes);
    let notes = [
        destination.note(source.bytes),
        destination::remark(options, source, destination),
    ];
    notes
        .into_iter()
        .flatten()
        .for_each(|note| observer.note(&note));
    if start > 0 {
        observer.note(&format!("resuming at {}", Bytes(start)));
    }
    let offload = offload(options, source, destination, observer).await;
    let clock = Instant::now();
    let mut pump = Pump::new(
        options,
        Rc::clone(source),
        Rc::clone(destination),
        journal,
        offload,
        start,
    );
    let ended = pump.run(observer).await?;
    let mut report = Report::new(source, destination, start, pump.account(), clock.elapsed());
    match ended {
        Ended::Complete(digest) => report.sha256 = digest,
        Ended::Interrupted(at) => {
            return Err(destination::interrupted(
                at,
                source.bytes,
                pump.is_resumable(),
            ));
        }
    }
    pump.forget_journal().await?;
    if options.verify {
        observer.begin(Phase::Compare, 0, source.bytes);
        compare::compare(options, source, destination, observer).await?;
        report.verified = true;
    }
    destination.complete(source.bytes)?;
    Ok(report)
}

/// Returns the target, if it can copy the data internally; `None` if this process must see the data.
async fn offload(
    options: &Options<'_>,
    source: &Source,
    destination: &Destination,
    observer: &dyn Observer,
) -> Option<Offload> {
    if !options.offload || options.checksum || options.skip_errors {
        return None;
    }
    Offload::between(source, destination)
        .await
        .unwrap_or_else(|why| {
            observer.note(&why);
            None
        })
}

#[cfg(test)]
mod tests;
