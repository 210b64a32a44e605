//! Carries out the tests of a plan on its beds. Each test has a directory with its result, which is saved after
//! each cell, so an interrupted reproduction can be resumed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs};

use backends::location::Location;
use backends::{Failure, remote};
use bench::Extent;
use bench::plan::Suite;
use bench::record::{Facts, Record, Subject};
use bench_runner::agents::Serving;
use bench_runner::client::{Site, lab_failure};
use bench_runner::client_paths::Source;
use bench_runner::conductor::{Outcome, conduct, verdict};
use bench_runner::fit::{self, Limits, Shorten};
use bench_runner::folder::{Folder, Keeper};
use bench_runner::prepare;
use bench_runner::storage::Storage;
use bench_runner::view::View;
use lab::{Background, Host, Lab, Output};
use tempfile::TempDir;

use crate::crew::{BedCrew, Distance, Target};
use crate::plan::{Bed, FILES, Plan, STATE, Test, peer};

/// The caller's view of a reproduction.
pub trait Watch: Sync {
    /// Returns an observer of a test.
    fn view(&self, bed: &Bed, test: &Test, record: &Record) -> Box<dyn View>;

    /// A test measured nothing in some of its cells, for this reason.
    fn missing(&self, reason: &Failure);

    /// Whether the end was requested.
    fn is_asked(&self) -> bool;
}

/// Carries out the remaining tests. `out` contains the results so far.
///
/// # Errors
/// A lab cannot be built, a test fails, or a result cannot be saved. Completed cells are kept.
pub fn reproduce(plan: &Plan, out: &Path, watch: &dyn Watch) -> Result<Outcome, Failure> {
    for bed in &plan.beds {
        let mut running: Option<Running<'_>> = None;
        for test in &plan.tests {
            let begun = begun(out, bed, test)?;
            if begun.as_ref().is_some_and(|record| record.ended.is_some()) {
                continue;
            }
            if watch.is_asked() {
                return Ok(Outcome::Interrupted);
            }
            let running = match &mut running {
                Some(running) => running,
                None => running.insert(Running::start(bed)?),
            };
            let rest = Rest {
                test,
                is_quick: plan.is_quick,
                folder: Folder::replace(&directory(out, bed, test))?,
                begun,
                watch,
            };
            let outcome = running.measure(rest).map_err(|failure| {
                failure.and(format_args!("in test {} on bed {}", test.name, bed.name))
            })?;
            if outcome == Outcome::Interrupted {
                return Ok(outcome);
            }
        }
    }
    Ok(Outcome::Complete)
}

/// The directory of a test's result.
pub(crate) fn directory(out: &Path, bed: &Bed, test: &Test) -> PathBuf {
    out.join(&bed.name).join(&test.name)
}

/// Returns the result of a test so far, if it has begun.
pub(crate) fn begun(out: &Path, bed: &Bed, test: &Test) -> Result<Option<Record>, Failure> {
    let folder = Folder::open(&directory(out, bed, test));
    let exists = folder.file("result.json").exists();
    exists.then(|| folder.load()).transpose()
}

/// Checks that the machine and the user meet the requirements of the plan's labs, before anything is written.
///
/// # Errors
/// Returns the reason why a lab cannot be built.
pub fn can_be_built(plan: &Plan) -> Result<(), Failure> {
    plan.beds
        .iter()
        .try_for_each(|bed| Lab::build(&bed.lab).map(drop))
        .map_err(lab_failure)
}

/// The part of a test that remains.
struct Rest<'a> {
    test: &'a Test,
    is_quick: bool,
    folder: Folder,
    /// The result so far.
    begun: Option<Record>,
    watch: &'a dyn Watch,
}

/// A bed whose lab and programs are running. They end, in this order, when this value is dropped.
struct Running<'a> {
    bed: &'a Bed,
    _programs: Background,
    lab: Arc<Lab>,
    /// Other users cannot change the files that programs of this user read.
    _state: TempDir,
}

impl Running<'_> {
    fn start(bed: &Bed) -> Result<Running<'_>, Failure> {
        // The path is short, since it is part of the path of sockets.
        let state = tempfile::Builder::new()
            .prefix("reproduce-")
            .tempdir()
            .map_err(|error| Failure::unwritten(env::temp_dir().display(), &error))?;
        let program = env::current_exe().map_err(Failure::failed)?;
        let files = state.path().join("files");
        fs::create_dir_all(&files).map_err(|error| Failure::unwritten(files.display(), &error))?;
        for (name, text) in &bed.files {
            let path = files.join(name);
            fs::write(&path, text).map_err(|error| Failure::unwritten(path.display(), &error))?;
        }
        let mut plan = bed.lab.clone();
        for host in &mut plan.hosts {
            let directory = state.path().join(&host.name);
            if let Some(first) = host.run.first_mut() {
                *first = own(first, &program);
            }
            for word in &mut host.run {
                *word = word
                    .replace(STATE, &directory.display().to_string())
                    .replace(FILES, &files.display().to_string());
            }
        }
        let lab = Lab::build(&plan).map_err(lab_failure)?;
        let programs = Background::start(&lab, Output::Discarded).map_err(lab_failure)?;
        Ok(Running {
            bed,
            _programs: programs,
            lab: Arc::new(lab),
            _state: state,
        })
    }

    /// Runs the rest of a test in the network of its first client.
    fn measure(&self, rest: Rest<'_>) -> Result<Outcome, Failure> {
        let host = &rest.test.clients[0].host;
        let host = self.lab.host(host).map_err(lab_failure)?;
        self.prepare(rest.test, host)?;
        let measured = host.run(|| remote::run(self.conducted(rest)));
        measured.map_err(lab_failure)?
    }

    /// Runs the program that prepares a test.
    fn prepare(&self, test: &Test, host: &Host) -> Result<(), Failure> {
        let words = self.bed.preparation(test).map_err(Failure::refused)?;
        let Some((program, arguments)) = words.split_first() else {
            return Ok(());
        };
        let exe = env::current_exe().map_err(Failure::failed)?;
        let ended = host.command(own(program, &exe)).args(arguments).output();
        let ended = ended
            .map_err(|error| Failure::refused(format_args!("cannot run {program}: {error}")))?;
        if ended.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&ended.stderr);
        let words = words.join(" ");
        Err(Failure::failed(format_args!(
            "{words} failed: {}",
            said.trim()
        )))
    }

    async fn conducted(&self, rest: Rest<'_>) -> Result<Outcome, Failure> {
        let Rest {
            test,
            is_quick,
            folder,
            begun,
            watch,
        } = rest;
        let suite = if is_quick {
            QUICK.apply(test.suite.clone())
        } else {
            test.suite.clone()
        };
        let Ready {
            target,
            record,
            storage,
            server,
        } = self.ready(test, suite).await?;
        let record = match begun {
            Some(begun) => prepare::resumed(begun, &record.subject)?,
            None => record,
        };
        let crew = BedCrew::new(target, self.distance(test));
        let mut view = watch.view(self.bed, test, &record);
        let mut keeper = Keeper::new(record, Some(folder))?;
        let asked = || watch.is_asked();
        let (outcome, _) = conduct(crew, &mut keeper, &mut *view, server, &asked).await;
        drop(view);
        if let Some(storage) = storage {
            storage.close().await;
        }
        let (record, _, lost) = keeper.end();
        let outcome = outcome?;
        if let Some(lost) = lost {
            return Err(lost);
        }
        // The page lists the missing numbers, and the other tests do not depend on them.
        if let Err(reason) = verdict(&record, Ok(Outcome::Complete), None, None, "") {
            watch.missing(&reason.and(format_args!(
                "in test {} on bed {}",
                test.name, self.bed.name
            )));
        }
        Ok(outcome)
    }

    fn distance(&self, test: &Test) -> Option<Distance> {
        let name = test.link.as_deref()?;
        let link = self.bed.lab.links.iter().find(|link| link.name == name)?;
        Some(Distance::new(&self.lab, name, link.conditions.clone()))
    }

    /// Opens the storage of a test, and adapts its suite to it.
    async fn ready(&self, test: &Test, suite: Suite) -> Result<Ready, Failure> {
        let mut places = Vec::new();
        for (number, client) in test.clients.iter().enumerate() {
            // This thread, which starts the clients, is already in the host of the first one.
            let site = match number {
                0 => Site::Here,
                _ => Site::Host {
                    lab: Arc::clone(&self.lab),
                    name: client.host.clone(),
                },
            };
            let storage = self.bed.storage(client).map_err(Failure::refused)?;
            places.push((site, storage));
        }
        let (site, first) = places.remove(0);
        // The lab, and so the storage, is created again when a test is resumed.
        let identity = Some(format!("bed {}, test {}", self.bed.name, test.name));
        if let Some(peer) = peer(&first) {
            let subject = Subject {
                place: first,
                kind: "tcp".to_owned(),
                bytes: 0,
                block_bytes: 512,
                product: None,
                identity,
            };
            return Ok(Ready {
                target: Target::Tcp(site, peer),
                record: prepare::new_record(subject, suite, Facts::default(), Vec::new()),
                storage: None,
                server: None,
            });
        }
        let place = Location::parse(&first)?;
        let storage = Storage::open(&place, true, None).await?;
        let limits = Limits {
            device_bytes: storage.subject.bytes,
            block_bytes: storage.subject.block_bytes,
            writes: true,
            part: Extent::ALL,
            clients: None,
        };
        let fitted = fit::fit(suite, &limits)?;
        let subject = Subject {
            identity,
            ..storage.subject.clone()
        };
        let facts = storage.facts(&place).await;
        let record = prepare::new_record(subject, fitted.suite, facts, fitted.notes);
        let mut seats = vec![(site, storage.source.clone())];
        for (site, other) in places {
            match Location::parse(&other)? {
                Location::Lun(url) => seats.push((site, Source::Lun(url))),
                // A plan with such clients is refused.
                Location::Volume(_) | Location::Path(_) => {}
            }
        }
        let server = storage.server(&place).await.map(Serving::Process);
        Ok(Ready {
            target: Target::Storage(seats),
            record,
            storage: Some(storage),
            server,
        })
    }
}

/// Returns the path of a plan's program. `linerate` is the running program.
fn own(program: &str, exe: &Path) -> String {
    if program == "linerate" {
        exe.display().to_string()
    } else {
        program.to_owned()
    }
}

/// A test that is ready to run.
struct Ready {
    target: Target,
    record: Record,
    storage: Option<Storage>,
    server: Option<Serving>,
}

/// The limits of a quick run.
const QUICK: Shorten = Shorten {
    seconds: Some(0.5),
    rounds: Some(1),
};
