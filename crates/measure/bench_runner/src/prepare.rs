//! From what is wanted to a measurement that may begin. Everything that can be refused is refused here, before anything is
//! measured.

use std::path::Path;

use agent::wire::message::Open;
use bench::Extent;
use bench::fio_job::Jobs;
use bench::plan::{Step, Suite};
use bench::record::Record;
use disk_contents::Consent;
use volume::spec::Bytes;

use backends::Failure;
use backends::location::Location;

use super::agents::{AgentCrew, Agents, ServerAgent, spread};
use super::fit::{self, Limits};
use super::folder::Folder;
use super::keeper::Keeper;
use super::serving::Serving;
use super::shorter::Shorter;
use super::storage::Storage;
use super::ways::Source;
use super::{begin, holes, resume, safety};

/// On which storage, by whom, and what may be done to it.
pub struct Terms<'a> {
    /// The storage.
    pub place: &'a Location,
    /// Those who measure instead of this machine, or look at the one that serves, and how they are to open the storage.
    pub agents: Option<(&'a Agents, Open)>,
    /// Whether what is there may be overwritten.
    pub allow_write: bool,
    /// The part of the storage that may be used.
    pub part: Extent,
    /// How long the file is to be, if it has to be made.
    pub size: Option<Bytes>,
    /// Who agrees to lose what is there.
    pub consent: Consent<'a>,
}

/// What is to be measured.
pub enum Plan {
    /// A suite, and where it is kept.
    New(Wanted, Option<Folder>),
    /// What is left of one that was interrupted.
    Resumed(Box<Record>, Folder),
}

/// A suite, or what becomes one when the capacity is known.
pub enum Wanted {
    /// A suite.
    Suite(Suite),
    /// fio's jobs, the name of their suite, and how much shorter it is to be.
    Jobs(String, Jobs, Shorter),
}

/// A measurement that may begin.
pub struct Prepared {
    /// Its record.
    pub keeper: Keeper,
    /// Who measures.
    pub hands: Hands,
    /// Who serves the storage, if that is known.
    pub server: Option<Serving>,
}

/// Who measures.
pub enum Hands {
    /// This machine.
    Here(Source),
    /// Others.
    Agents(AgentCrew),
}

/// The plans of these suites, in this order. What is kept of one goes to `out`, of several to folders of their names in it.
///
/// # Errors
/// Two suites of one name, or a folder that cannot be made or holds a result.
pub fn plans(suites: Vec<Suite>, out: Option<&Path>) -> Result<Vec<Plan>, Failure> {
    let called = |at: usize| suites[at].name.as_str();
    let twice = (1..suites.len()).find(|at| suites[..*at].iter().any(|suite| suite.name == called(*at)));
    if let Some(twice) = twice {
        return Err(Failure::refused(format!(
            "two suites are called {}, and the results of each go to a folder of its name",
            called(twice)
        )));
    }
    let is_alone = suites.len() == 1;
    let plan = |suite: Suite| {
        let out = out.map(|out| if is_alone { out.to_owned() } else { out.join(&suite.name) });
        Ok(Plan::New(Wanted::Suite(suite), out.as_deref().map(Folder::create).transpose()?))
    };
    suites.into_iter().map(plan).collect()
}

impl Plan {
    fn writes(&self) -> bool {
        match self {
            Plan::New(Wanted::Suite(suite), _) => suite.writes(),
            Plan::New(Wanted::Jobs(_, jobs, _), _) => jobs.writes(),
            Plan::Resumed(record, _) => record.suite.writes(),
        }
    }

    /// Opens the storage, looks at it, and cuts what is to be measured to it. `made` tells that an earlier measurement of
    /// the same program has made the file.
    ///
    /// # Errors
    /// What keeps it from being measured.
    pub async fn prepare(self, terms: &Terms<'_>, made: &mut bool) -> Result<Prepared, Failure> {
        let may_write = terms.allow_write || *made;
        let writes = may_write && (self.writes() || terms.place.new_file().is_some());
        let storage = Storage::open(terms.place, writes, terms.size).await?;
        let prepared = self.on(terms, &storage, *made).await;
        *made |= storage.is_new;
        storage.close().await;
        prepared
    }

    async fn on(self, terms: &Terms<'_>, storage: &Storage, made: bool) -> Result<Prepared, Failure> {
        let is_ours = made || !storage.keeps;
        let agents = terms.agents.as_ref().map(|(agents, _)| agents.count()).filter(|count| *count > 0);
        let limits = Limits {
            device_bytes: storage.subject.bytes,
            block_bytes: storage.subject.block_bytes,
            writes: terms.allow_write || is_ours,
            part: terms.part,
            clients: agents,
        };
        let environment = storage.facts(terms.place).await;
        let (mut record, folder) = match self {
            Plan::New(wanted, folder) => {
                let (suite, said) = wanted.suite(storage.subject.bytes)?;
                let mut fitted = fit::fit(spread(suite, agents.unwrap_or(1)), &limits)?;
                if storage.is_new {
                    fitted.suite.steps.insert(0, FILL);
                }
                // Memory of this process has never been written, and everybody knows.
                let holes =
                    if storage.keeps { holes::note(&*storage.device, &fitted.suite).await } else { None };
                let notes = said.into_iter().chain(storage.notes.iter().cloned());
                let notes = notes.chain(fitted.notes).chain(holes).collect();
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
            safety::consent(storage, &limits, terms.consent).await?;
        }
        // After the question for consent: an agent does not wait for a coordinator that waits for somebody.
        let hands = match &terms.agents {
            None => Hands::Here(storage.source.clone()),
            Some((agents, _)) if agents.count() == 0 => Hands::Here(storage.source.clone()),
            Some((agents, open)) => {
                let open = Open { write: record.suite.writes(), ..open.clone() };
                let crew = AgentCrew::assemble(agents, &open, &record.subject).await?;
                record.environment.0.extend(crew.facts().0.iter().cloned());
                Hands::Agents(crew)
            }
        };
        let server = match &terms.agents {
            Some((Agents { server: Some(name), secret, .. }, _)) => {
                Some(Serving::Machine(ServerAgent::connect(name, secret).await?))
            }
            _ => storage.server(terms.place).await.map(Serving::Process),
        };
        Ok(Prepared { keeper: Keeper::new(record, folder)?, hands, server })
    }
}

impl Wanted {
    /// The suite for a storage with this capacity, and what is to be said of it.
    fn suite(self, device_bytes: u64) -> Result<(Suite, Vec<String>), Failure> {
        match self {
            Wanted::Suite(suite) => Ok((suite, Vec::new())),
            Wanted::Jobs(name, jobs, shorter) => {
                let suite = jobs.suite(&name, device_bytes).map_err(Failure::refused)?;
                Ok((shorter.made_of(suite), jobs.notes))
            }
        }
    }
}

/// What a file that was made for the measurement gets: reading holes would measure nothing.
const FILL: Step = Step::Fill { block_bytes: 1 << 20, depth: 8, passes: 1 };
