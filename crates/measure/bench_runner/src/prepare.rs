//! Prepares a measurement: a plan becomes a new record or a resumed one. All refusals happen here, before
//! anything is measured, including those for missing consent to overwrite. This module also detects blocks
//! that were never written.

use std::path::Path;

use agent::wire::message::Open;
use backends::location::Location;
use backends::{Failure, Overwritten};
use bench::Extent;
use bench::fio_job::Jobs;
use bench::plan::{Step, Suite};
use bench::record::{FORMAT, Facts, Record, Subject};
use block::{Allocation, BlockDevice, Extent as Blocks};
use disk_contents::Consent;
use volume::spec::Bytes;

use crate::agents::{AgentCrew, Agents, ServerAgent, Serving, spread};
use crate::client_paths::Source;
use crate::fit::{self, Limits, Shorten};
use crate::folder::{Folder, Keeper, timestamp};
use crate::storage::Storage;

/// The storage, the clients, and the permitted operations.
pub struct Terms<'a> {
    /// The storage.
    pub place: &'a Location,
    /// The agents that measure instead of this machine, or observe the server, with the order to open the
    /// storage.
    pub agents: Option<(&'a Agents, Open)>,
    /// Whether existing content may be overwritten.
    pub allow_write: bool,
    /// The part of the storage that the measurement may access.
    pub part: Extent,
    /// The size of the file, if it has to be created.
    pub size: Option<Bytes>,
    /// The way in which the user gives consent to overwrite.
    pub consent: Consent<'a>,
}

/// The plan of a measurement.
pub enum Plan {
    /// A suite, and the directory for its results.
    New(Wanted, Option<Folder>),
    /// The rest of an interrupted measurement.
    Resumed(Box<Record>, Folder),
}

/// A suite, or jobs that become a suite once the capacity is known.
pub enum Wanted {
    /// A suite.
    Suite(Suite),
    /// fio's jobs, the name of their suite, and the limits to apply.
    Jobs(String, Jobs, Shorten),
}

/// A measurement that is ready to start.
pub struct Prepared {
    /// The keeper of the record.
    pub keeper: Keeper,
    /// The measuring clients.
    pub hands: Hands,
    /// The server of the storage, if known.
    pub server: Option<Serving>,
}

/// The measuring clients: threads of this process, or agents.
pub enum Hands {
    /// Threads of this process.
    Here(Source),
    /// Agents on other machines.
    Agents(AgentCrew),
}

/// Returns the plans of these suites, in this order. The results of a single suite are written to `out`, the
/// results of several to subdirectories with the suites' names.
///
/// # Errors
/// Two suites have the same name, or a directory cannot be created or contains a result.
pub fn plans(suites: Vec<Suite>, out: Option<&Path>) -> Result<Vec<Plan>, Failure> {
    let called = |at: usize| suites[at].name.as_str();
    let twice =
        (1..suites.len()).find(|at| suites[..*at].iter().any(|suite| suite.name == called(*at)));
    if let Some(twice) = twice {
        return Err(Failure::refused(format!(
            "two suites are named {}, but the results of each are written to a directory with its name",
            called(twice)
        )));
    }
    let is_alone = suites.len() == 1;
    let plan = |suite: Suite| {
        let out = out.map(|out| {
            if is_alone {
                out.to_owned()
            } else {
                out.join(&suite.name)
            }
        });
        Ok(Plan::New(
            Wanted::Suite(suite),
            out.as_deref().map(Folder::create).transpose()?,
        ))
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

    /// Opens and inspects the storage, and adapts the suite to it. `made` is true if an earlier measurement
    /// of the same program has created the file.
    ///
    /// # Errors
    /// Returns the reason why the storage cannot be measured.
    pub async fn prepare(self, terms: &Terms<'_>, made: &mut bool) -> Result<Prepared, Failure> {
        let may_write = terms.allow_write || *made;
        let writes = may_write && (self.writes() || terms.place.new_file().is_some());
        let storage = Storage::open(terms.place, writes, terms.size).await?;
        let prepared = self.on(terms, &storage, *made).await;
        *made |= storage.is_new;
        storage.close().await;
        prepared
    }

    async fn on(
        self,
        terms: &Terms<'_>,
        storage: &Storage,
        made: bool,
    ) -> Result<Prepared, Failure> {
        let is_ours = made || !storage.keeps;
        let agents = terms
            .agents
            .as_ref()
            .map(|(agents, _)| agents.count())
            .filter(|count| *count > 0);
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
                // Memory of this process has never been written, so its unwritten blocks need no note.
                let holes = if storage.keeps {
                    note_holes(&*storage.device, &fitted.suite).await
                } else {
                    None
                };
                let notes = said.into_iter().chain(storage.notes.iter().cloned());
                let notes = notes.chain(fitted.notes).chain(holes).collect();
                let limits = match agents {
                    None => storage.ceilings(&fitted.suite).await,
                    // Each agent has its own link, so no limit is known.
                    Some(_) => Vec::new(),
                };
                let record = new_record(storage.subject.clone(), fitted.suite, environment, notes);
                (Record { limits, ..record }, folder)
            }
            Plan::Resumed(record, folder) => {
                let record = resumed(*record, &storage.subject)?;
                if fit::fit(record.suite.clone(), &limits)?.suite != record.suite {
                    let why = "the measurement was started with more agents, or with permission to use or \
                               write more; resume it with the same options";
                    return Err(Failure::refused(why));
                }
                (record, Some(folder))
            }
        };
        if record.suite.writes() && !is_ours {
            consent(storage, &limits, terms.consent).await?;
        }
        // Connect to the agents only after the user has given consent, so that they do not wait for a user.
        let hands = match &terms.agents {
            None => Hands::Here(storage.source.clone()),
            Some((agents, _)) if agents.count() == 0 => Hands::Here(storage.source.clone()),
            Some((agents, open)) => {
                let open = Open {
                    write: record.suite.writes(),
                    ..open.clone()
                };
                let crew = AgentCrew::assemble(agents, &open, &record.subject).await?;
                record.environment.0.extend(crew.facts().0.iter().cloned());
                Hands::Agents(crew)
            }
        };
        let server = match &terms.agents {
            Some((
                Agents {
                    server: Some(name),
                    secret,
                    ..
                },
                _,
            )) => Some(Serving::Machine(ServerAgent::connect(name, secret).await?)),
            _ => storage.server(terms.place).await.map(Serving::Process),
        };
        Ok(Prepared {
            keeper: Keeper::new(record, folder)?,
            hands,
            server,
        })
    }
}

impl Wanted {
    /// Returns the suite for storage with this capacity, and notes about it.
    fn suite(self, device_bytes: u64) -> Result<(Suite, Vec<String>), Failure> {
        match self {
            Wanted::Suite(suite) => Ok((suite, Vec::new())),
            Wanted::Jobs(name, jobs, shorter) => {
                let suite = jobs.suite(&name, device_bytes).map_err(Failure::refused)?;
                Ok((shorter.apply(suite), jobs.notes))
            }
        }
    }
}

/// Fills a file that was created for the measurement. Reads of its holes would not access the storage.
const FILL: Step = Step::Fill {
    block_bytes: 1 << 20,
    depth: 8,
    passes: 1,
};

/// Checks that the storage may be overwritten within the limits: writing was allowed, the storage is neither
/// reserved nor write-protected, and it is empty or the user has given consent.
pub async fn consent(
    storage: &Storage,
    limits: &Limits,
    consent: Consent<'_>,
) -> Result<(), Failure> {
    if !limits.writes {
        return Err(Failure::refused(
            "the suite overwrites the storage; to permit this, use --allow-write",
        ));
    }
    let part = (limits.part != Extent::ALL).then(|| limits.part.to_string());
    let (name, lun) = (&storage.subject.place, storage.lun.as_deref());
    Overwritten {
        device: &*storage.device,
        name,
        part,
        lun,
    }
    .consent(if storage.keeps {
        consent
    } else {
        Consent::Given
    })
    .await
}

/// Creates a record without runs.
pub fn new_record(
    subject: Subject,
    suite: Suite,
    environment: Facts,
    notes: Vec<String>,
) -> Record {
    Record {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: std::env::args()
            .map(|argument| without_user(&argument))
            .collect(),
        begun: timestamp(),
        ended: None,
        subject,
        environment,
        suite,
        runs: Vec::new(),
        limits: Vec::new(),
        notes,
    }
}

/// Removes the user name and any secret from an argument that is a URL, since records are shown to other
/// people.
fn without_user(argument: &str) -> String {
    match argument.split_once("://") {
        // A secret may contain an @, but the address and the target's name do not, so the last @ counts.
        Some((scheme, rest)) => match rest.rsplit_once('@') {
            Some((_, behind)) => format!("{scheme}://{behind}"),
            None => argument.to_owned(),
        },
        None => argument.to_owned(),
    }
}

/// Returns the record of an interrupted measurement, ready to be resumed on the opened storage.
pub fn resumed(mut record: Record, subject: &Subject) -> Result<Record, Failure> {
    if let Some(ended) = &record.ended {
        return Err(Failure::refused(format!(
            "the measurement was already completed at {ended}"
        )));
    }
    let begun = &record.subject;
    if begun.identity.is_none() {
        let why = format!(
            "{} no longer exists, so the measurement cannot be resumed",
            begun.place
        );
        return Err(Failure::refused(why));
    }
    let is_same = (&begun.identity, begun.bytes, begun.block_bytes)
        == (&subject.identity, subject.bytes, subject.block_bytes);
    if !is_same {
        let why = format!(
            "{} is not the measured storage, which was {}",
            subject.place,
            described(begun)
        );
        return Err(Failure::refused(why));
    }
    let runs = record.runs.len();
    record.notes.push(format!(
        "interrupted after {runs} runs, and resumed at {}",
        timestamp()
    ));
    Ok(record)
}

fn described(subject: &Subject) -> String {
    let identity = subject.identity.as_deref().unwrap_or("without an identity");
    format!("{} ({identity}) of {} bytes", subject.place, subject.bytes)
}

// Blocks that were never written. The storage returns zeros for them from its metadata, without accessing the
// medium. Before its first use, thin storage consists entirely of such blocks.

/// Maximum number of allocation queries. On a fragmented device, they cover only its first part, which is
/// sufficient.
const QUESTIONS_MAX: usize = 64;
/// Maximum number of extents in a reply.
const RUNS: usize = 256;

/// Returns a note for the record if at least a tenth of the data that `suite` reads is not allocated. Returns
/// `None` if the device does not report allocation, or if the suite fills it first.
pub async fn note_holes(device: &dyn BlockDevice, suite: &Suite) -> Option<String> {
    let reads = suite
        .cells()
        .flat_map(|cell| &cell.roles)
        .any(|role| role.workload.reads());
    let fills = suite
        .steps
        .iter()
        .any(|step| matches!(step, bench::plan::Step::Fill { .. }));
    if !reads || fills {
        return None;
    }
    let geometry = device.geometry();
    let spans = suite
        .cells()
        .flat_map(|cell| &cell.roles)
        .map(|role| role.workload.span);
    let span = spans
        .map(|span| Extent::of(span, geometry.bytes()))
        .reduce(Extent::around)?
        .span();
    let block_bytes = u64::from(geometry.block_size.bytes());
    let first = span.start_bytes / block_bytes;
    let blocks = span.bytes.unwrap_or(geometry.bytes()) / block_bytes;
    let (holes, seen) = counted(
        device,
        first,
        blocks.min(geometry.blocks.0.saturating_sub(first)),
    )
    .await?;
    let share = holes * 100 / seen.max(1);
    let of = Bytes(seen * block_bytes);
    (share >= 10).then(|| {
        format!(
            "{share} % of the {of} examined have never been written, so reading them does not measure the \
             medium; to measure it, fill the storage first"
        )
    })
}

/// Counts the deallocated blocks, and all blocks for which the device reported a state. Returns `None` if a
/// query fails.
async fn counted(device: &dyn BlockDevice, first: u64, blocks: u64) -> Option<(u64, u64)> {
    let (mut holes, mut seen) = (0, 0);
    for _ in 0..QUESTIONS_MAX {
        if seen >= blocks {
            break;
        }
        let asked = Blocks::new(first + seen, blocks - seen);
        let runs = device.allocation(asked, RUNS).await.ok()?;
        let before = seen;
        for run in runs {
            seen += run.extent.blocks.0;
            holes += if run.allocation == Allocation::Deallocated {
                run.extent.blocks.0
            } else {
                0
            };
        }
        // The device reported nothing, so stop.
        if seen == before {
            break;
        }
    }
    Some((holes.min(seen), seen.min(blocks)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use backends::remote;
    use bench::plan::{Cell, Order, Percent, Role, Step, Stop, Suite, Workload};
    use bench::record::Facts;
    use block::{Buffer, Durability};
    use host::{RamDevice, RamOptions};

    #[test]
    fn a_record_names_no_user() {
        assert_eq!(
            without_user("iscsi://joe%a@b@san1/iqn.x/0?mtu=1"),
            "iscsi://san1/iqn.x/0?mtu=1"
        );
        assert_eq!(without_user("ram:1GiB"), "ram:1GiB");
        assert_eq!(without_user("--depth"), "--depth");
    }

    fn subject(identity: &str) -> Subject {
        Subject {
            place: "disk.img".to_owned(),
            kind: "file".to_owned(),
            bytes: 1 << 20,
            block_bytes: 512,
            product: None,
            identity: Some(identity.to_owned()),
        }
    }

    fn record() -> Record {
        let (name, title, about) = ("x".to_owned(), String::new(), String::new());
        let suite = Suite {
            name,
            title,
            about,
            document: None,
            assumed: Vec::new(),
            steps: Vec::new(),
        };
        new_record(subject("file 7"), suite, Facts::default(), Vec::new())
    }

    fn why(record: Record, subject: &Subject) -> String {
        resumed(record, subject).expect_err("a refusal").to_string()
    }

    #[test]
    fn what_is_complete_or_elsewhere_is_not_gone_on_with() {
        let ended = Record {
            ended: Some("2026-11-21T15:00:00Z".to_owned()),
            ..record()
        };
        assert!(
            why(ended, &subject("file 7"))
                .contains("the measurement was already completed at 2026")
        );
        assert!(why(record(), &subject("file 8")).contains("(file 7) of 1048576 bytes"));
        let larger = Subject {
            bytes: 2 << 20,
            ..subject("file 7")
        };
        assert!(why(record(), &larger).contains("is not the measured storage"));
        let fleeting = Record {
            subject: Subject {
                identity: None,
                ..subject("x")
            },
            ..record()
        };
        assert!(why(fleeting, &subject("file 7")).contains("cannot be resumed"));
    }

    #[test]
    fn a_record_says_that_it_was_gone_on_with() {
        let record = resumed(record(), &subject("file 7")).expect("the same storage");
        assert!(record.notes[0].starts_with("interrupted after 0 runs"));
    }

    fn suite(read: Percent, fill: bool) -> Suite {
        let role = Role::new("reader", 0, Workload::simple(4096, 1, read, Percent::ALL));
        let cell = Cell::new("cell", "cell", vec![role]);
        let measure = Step::Measure {
            stop: Stop::after(1.0),
            order: Order::Once,
            cells: vec![cell],
        };
        let fill = fill.then_some(Step::Fill {
            block_bytes: 4096,
            depth: 1,
            passes: 1,
        });
        let steps = fill.into_iter().chain([measure]).collect();
        let (name, title, about) = ("x".to_owned(), String::new(), String::new());
        Suite {
            name,
            title,
            about,
            document: None,
            assumed: Vec::new(),
            steps,
        }
    }

    /// Returns the note about 1 MiB of memory of which `written` bytes have been written.
    fn said(written: usize, suite: &Suite) -> Option<String> {
        let device = Arc::new(RamDevice::new(RamOptions::new(1 << 20)).expect("memory"));
        let said = remote::run(async {
            if written > 0 {
                let extent = Blocks::new(0, written as u64 / 512);
                let data = Buffer::zeroed(written).share();
                device
                    .write(extent, data, Durability::Cached)
                    .await
                    .expect("a write");
            }
            Ok(note_holes(&*device, suite).await)
        });
        said.unwrap_or_else(|failure| panic!("{failure}"))
    }

    #[test]
    fn storage_that_was_never_written_is_told() {
        let reads = suite(Percent::ALL, false);
        assert!(said(0, &reads).is_some_and(|said| said.starts_with("100 % of the 1MiB")));
        assert!(said(768 << 10, &reads).is_some_and(|said| said.starts_with("25 %")));
        assert_eq!(said(1 << 20, &reads), None);
    }

    #[test]
    fn nothing_is_told_where_it_does_not_matter() {
        assert_eq!(said(0, &suite(Percent::NONE, false)), None);
        assert_eq!(said(0, &suite(Percent::ALL, true)), None);
    }
}
