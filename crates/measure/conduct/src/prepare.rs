//! From what was asked for to what will be measured. Everything that can be refused is refused here, before anything is
//! measured.

use bench::plan::{Step, Suite};
use bench::record::Record;

use super::agents::{AgentCrew, Agents, spread};
use super::arguments::BenchArguments;
use super::fit::{self, Limits};
use super::folder::Folder;
use super::keeper::Keeper;
use super::storage::Storage;
use super::ways::Source;
use super::{begin, holes, resume, safety, suites};
use crate::failure::Failure;
use crate::location::Location;
use crate::terminal;
use environment::server::Server;

/// What is to be measured.
pub(super) enum Plan {
    New(Suite, Option<Folder>),
    /// What is left of one that was interrupted.
    Resumed(Box<Record>, Folder),
}

/// A measurement that may begin.
pub(super) struct Prepared {
    pub(super) keeper: Keeper,
    pub(super) hands: Hands,
    /// Who serves the storage, if it is somebody here.
    pub(super) server: Option<Server>,
}

/// Who measures.
pub(super) enum Hands {
    /// This machine.
    Here(Source),
    /// Others.
    Agents(AgentCrew),
}

impl Plan {
    /// One after the other.
    pub(super) fn all(arguments: &BenchArguments) -> Result<Vec<Plan>, Failure> {
        let (suites, workload) = (&arguments.suite, &arguments.workload);
        if let Some(path) = &arguments.output.resume {
            if !suites.is_empty() || !workload.is_empty() {
                let why = "--resume goes on with what is in its record: leave out suites and workloads";
                return Err(Failure::refused(why));
            }
            let folder = Folder::open(path);
            return Ok(vec![Plan::Resumed(Box::new(folder.load()?), folder)]);
        }
        let out = arguments.output.out.as_deref();
        let named = |name: &str| {
            let shorter = workload.shorter().ok_or_else(|| {
                let why = "a suite says what its workloads are: leave out --suite, or the options of a workload other \
                           than --seconds and --repeats";
                Failure::refused(why)
            })?;
            suites::suite(name).map(|suite| shorter.made_of(suite))
        };
        match (suites.as_slice(), workload.is_empty()) {
            ([], true) => Plan::new(named("quick")?, out).map(|plan| vec![plan]),
            ([], false) => Plan::new(workload.suite()?, out).map(|plan| vec![plan]),
            ([name], _) => Plan::new(named(name)?, out).map(|plan| vec![plan]),
            (names, _) => {
                let suites: Vec<Suite> = names.iter().map(|name| named(name)).collect::<Result<_, _>>()?;
                let within = |suite: &Suite| out.map(|out| out.join(&suite.name));
                suites.into_iter().map(|suite| Plan::new(suite.clone(), within(&suite).as_deref())).collect()
            }
        }
    }

    fn new(suite: Suite, out: Option<&std::path::Path>) -> Result<Plan, Failure> {
        Ok(Plan::New(suite, out.map(Folder::create).transpose()?))
    }

    fn writes(&self) -> bool {
        match self {
            Plan::New(suite, _) => suite.writes(),
            Plan::Resumed(record, _) => record.suite.writes(),
        }
    }

    /// Opens the storage, looks at it, and cuts what is to be measured to it. `made` tells that an earlier measurement of
    /// this command has made the file.
    pub(super) async fn prepare(
        self,
        arguments: &BenchArguments,
        place: &Location,
        agents: Option<&Agents>,
        made: &mut bool,
    ) -> Result<Prepared, Failure> {
        let may_write = arguments.safety.allow_write.is_some() || *made;
        let writes = may_write && (self.writes() || place.new_file().is_some());
        let storage = Storage::open(place, writes, arguments.safety.size).await?;
        let prepared = self.on(arguments, place, agents, &storage, *made).await;
        *made |= storage.is_new;
        storage.close().await;
        prepared
    }

    async fn on(
        self,
        arguments: &BenchArguments,
        place: &Location,
        agents: Option<&Agents>,
        storage: &Storage,
        made: bool,
    ) -> Result<Prepared, Failure> {
        let is_ours = made || !storage.keeps;
        let limits = Limits {
            device_bytes: storage.subject.bytes,
            block_bytes: storage.subject.block_bytes,
            writes: arguments.safety.allow_write.is_some() || is_ours,
            part: arguments.safety.part()?,
            clients: agents.map(Agents::count),
        };
        let environment = storage.facts(place).await;
        let (mut record, folder) = match self {
            Plan::New(suite, folder) => {
                let mut fitted = fit::fit(spread(suite, agents.map_or(1, Agents::count)), &limits)?;
                if storage.is_new {
                    fitted.suite.steps.insert(0, FILL);
                }
                // Memory of this process has never been written, and everybody knows.
                let holes =
                    if storage.keeps { holes::note(&*storage.device, &fitted.suite).await } else { None };
                let notes = storage.notes.iter().cloned().chain(fitted.notes).chain(holes).collect();
                let limits = match agents {
                    None => storage.ceilings(&fitted.suite).await,
                    // Each of them has a link of its own.
                    Some(_) => Vec::new(),
                };
                let record = begin::record(storage.subject.clone(), fitted.suite, environment, notes);
                (Record { limits, ..record }, folder)
            }
            Plan::Resumed(record, folder) => {
                let record = resume::resumed(*record, &storage.subject)?;
                if fit::fit(record.suite.clone(), &limits)?.suite != record.suite {
                    let why = "this was begun with more agents, or with leave to use and write more than now; say the \
                               same again";
                    return Err(Failure::refused(why));
                }
                (record, Some(folder))
            }
        };
        if record.suite.writes() && !is_ours {
            safety::consent(storage, &limits, terminal::consent(arguments.safety.yes)).await?;
        }
        // After the question for consent: an agent does not wait for a coordinator that waits for somebody.
        let hands = match agents {
            None => Hands::Here(storage.source.clone()),
            Some(agents) => {
                let open = arguments.order_to_open(record.suite.writes());
                let crew = AgentCrew::assemble(agents, &open, &record.subject).await?;
                record.environment.0.extend(crew.facts().0.iter().cloned());
                Hands::Agents(crew)
            }
        };
        Ok(Prepared { keeper: Keeper::new(record, folder)?, hands, server: storage.server().await })
    }
}

/// What a file that was made for the measurement gets: reading holes would measure nothing.
const FILL: Step = Step::Fill { block_bytes: 1 << 20, depth: 8, passes: 1 };
