//! `bench` and `diagnose`: the same functions as the commands with these names, with the same JSON.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use backends::Failure;
use backends::location::Location;
use bench::Extent;
use bench::plan::Suite;
use bench::record::Record;
use bench_runner::conductor::conduct;
use bench_runner::crew::LocalCrew;
use bench_runner::fit::Shorten;
use bench_runner::folder::Keeper;
use bench_runner::storage::Storage;
use bench_runner::{fit, folder, prepare, suites};
use blocking::Ended;
use diagnose::measure::{Options, Subject};
use disk_contents::Consent;
use host::EpollOptions;
use pyo3::prelude::*;
use report::DiagnosisReport;
use report::measured::{Beside, Measured};

use crate::errors::raised;
use crate::waiting::{SIGNALS_EVERY, wait};

/// The reason why nothing was measured.
struct Unmeasured(Failure);

impl From<Failure> for Unmeasured {
    fn from(failure: Failure) -> Unmeasured {
        Unmeasured(failure)
    }
}

impl From<Ended> for Unmeasured {
    fn from(_: Ended) -> Unmeasured {
        Unmeasured(Failure::failed("the measuring thread has terminated"))
    }
}

impl From<io::Error> for Unmeasured {
    fn from(error: io::Error) -> Unmeasured {
        Unmeasured(Failure::failed(error))
    }
}

/// Runs a suite on a place. The suite is given as TOML, by name, or as a file. Returns a line of JSON for
/// each run, and the notes.
#[pyfunction(name = "bench")]
#[expect(clippy::too_many_arguments, reason = "the keywords of linerate.bench")]
pub(crate) fn bench_place(
    py: Python<'_>,
    place: &str,
    toml: Option<&str>,
    suite: Option<&str>,
    seconds: Option<f64>,
    repeats: Option<u32>,
    allow_write: Option<&str>,
    span: Option<&str>,
    yes: bool,
) -> PyResult<(Vec<String>, Vec<String>)> {
    let refused = |why: String| raised(py, &Failure::refused(why));
    let suite = match (toml, suite) {
        (Some(text), _) => bench::suite::parse(text).map_err(|error| refused(error.to_string()))?,
        (None, name) => {
            suites::suite(name.unwrap_or("quick")).map_err(|failure| raised(py, &failure))?
        }
    };
    let suite = Shorten {
        seconds,
        rounds: repeats,
    }
    .apply(suite);
    let place = Location::parse(place).map_err(|failure| raised(py, &failure))?;
    let extent = |text: Option<&str>| text.map(str::parse::<Extent>).transpose().map_err(refused);
    let (allowed, span) = (extent(allow_write)?, extent(span)?);
    let part = span
        .unwrap_or(Extent::ALL)
        .within(allowed.unwrap_or(Extent::ALL));
    let part = part.ok_or_else(|| refused("span and allow_write do not overlap".to_owned()))?;
    let allowance = Allowance {
        writes: allowed.is_some(),
        part,
        yes,
    };

    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    let mut request = blocking::run(async move || {
        let record = measure(&place, suite, allowance, &asked).await?;
        let beside = Beside::new(&record, None, false);
        let lines = record
            .runs
            .iter()
            .map(|run| Measured::of(run, &beside).json());
        let lines = lines
            .collect::<Result<Vec<String>, _>>()
            .map_err(Failure::failed)?;
        Ok::<_, Unmeasured>((lines, record.notes.clone()))
    });
    let mut interrupted = Ok(());
    loop {
        match py.detach(|| request.wait_for(SIGNALS_EVERY)) {
            Ok(outcome) => {
                interrupted?;
                return outcome.map_err(|Unmeasured(failure)| raised(py, &failure));
            }
            Err(outstanding) => request = outstanding,
        }
        // Stop the clients first: they log out before the interrupt is raised.
        if interrupted.is_ok() {
            interrupted = py.check_signals();
            stop.store(interrupted.is_err(), Relaxed);
        }
    }
}

/// The part of the storage that may be accessed, and the permission to write.
struct Allowance {
    writes: bool,
    part: Extent,
    /// Whether existing content may be overwritten.
    yes: bool,
}

impl Allowance {
    fn consent(&self) -> Consent<'static> {
        if self.yes {
            Consent::Given
        } else {
            Consent::Ask(&|_| false)
        }
    }
}

async fn measure(
    place: &Location,
    suite: Suite,
    allowance: Allowance,
    stop: &AtomicBool,
) -> Result<Record, Failure> {
    let storage = Storage::open(place, allowance.writes && suite.writes(), None).await?;
    let prepared = prepare(place, &storage, suite, &allowance).await;
    let (source, server) = (
        storage.source.clone(),
        storage.server(place).await.map(Into::into),
    );
    storage.close().await;
    let mut keeper = Keeper::new(prepared?, None)?;
    let crew = LocalCrew::new(source, EpollOptions::default().spin);
    let (outcome, _) = conduct(crew, &mut keeper, &mut (), server, &|| stop.load(Relaxed)).await;
    outcome?;
    Ok(keeper.end().0)
}

async fn prepare(
    place: &Location,
    storage: &Storage,
    suite: Suite,
    allowance: &Allowance,
) -> Result<Record, Failure> {
    let limits = fit::Limits {
        device_bytes: storage.subject.bytes,
        block_bytes: storage.subject.block_bytes,
        writes: allowance.writes || !storage.keeps,
        part: allowance.part,
        clients: None,
    };
    let fitted = fit::fit(suite, &limits)?;
    if fitted.suite.writes() && storage.keeps {
        prepare::consent(storage, &limits, allowance.consent()).await?;
    }
    let holes = if storage.keeps {
        prepare::note_holes(&*storage.device, &fitted.suite).await
    } else {
        None
    };
    let notes = storage
        .notes
        .iter()
        .cloned()
        .chain(fitted.notes)
        .chain(holes)
        .collect();
    Ok(prepare::new_record(
        storage.subject.clone(),
        fitted.suite,
        storage.facts(place).await,
        notes,
    ))
}

/// Diagnoses a slow path, and returns the JSON of `linerate diagnose --json`.
#[pyfunction(name = "diagnose")]
#[expect(
    clippy::too_many_arguments,
    reason = "the keywords of linerate.diagnose"
)]
pub(crate) fn diagnose_path(
    py: Python<'_>,
    url: &str,
    quick: bool,
    seconds: Option<f64>,
    link_bits_per_s: Option<f64>,
    allow_write: Option<&str>,
    yes: bool,
    seed: u64,
) -> PyResult<String> {
    let subject = Subject::parse(url).map_err(|failure| raised(py, &failure))?;
    let allow_write = allow_write.map(str::parse::<Extent>).transpose();
    let options = Options {
        quick,
        seconds,
        own: None,
        allow_write: allow_write.map_err(|why| raised(py, &Failure::refused(why)))?,
        consent: Consent::Given,
        expected_link_bits_per_s: link_bits_per_s,
        seed,
    };
    let diagnosed = blocking::run(async move || {
        // Create the options here, because the consent callback cannot move between threads.
        let options = Options {
            consent: Allowance {
                writes: true,
                part: Extent::ALL,
                yes,
            }
            .consent(),
            ..options
        };
        let begun = folder::timestamp();
        let diagnosis =
            diagnose::diagnose(diagnose::measure::evidence(&subject, &options, &()).await?);
        let report = DiagnosisReport::new(&diagnosis, &begun, env!("CARGO_PKG_VERSION"));
        Ok::<_, Unmeasured>(report.json().map_err(Failure::failed)?)
    });
    wait(py, diagnosed)?.map_err(|Unmeasured(failure)| raised(py, &failure))
}
