//! The clients that run a cell together: threads of this process, or agents on other machines.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use backends::Failure;
use bench::Go;
use bench::plan::{Cell, Span, Stop};
use bench::record::Sample;
use reactor::{Receiver, mailbox};

use crate::client::{Client, ClientOptions, Report, RoleResult, Site, StopFlag, Task};
use crate::client_paths::{Source, StoragePaths};
use crate::storage::purge;
use crate::view::{Purged, Silence, TOLD_EVERY, awaited};

/// Clients that start and end together.
// The conductor and its crew run on one thread, so their futures need not be Send.
#[allow(async_fn_in_trait)]
pub trait Crew {
    /// Runs all roles of a cell concurrently, with the same start time, until the stop rule or `progress`
    /// ends them. Returns the result of each role, in order.
    ///
    /// Fails if the cell could not be started. Failed requests, or the loss of a client during the run, are
    /// part of the result.
    async fn run(
        &mut self,
        cell: &Cell,
        stop: Stop,
        progress: &mut dyn FnMut(Progress<'_>) -> Go,
    ) -> Result<CellOutcome, Failure>;

    /// Deallocates the blocks of a span, or writes zeros where deallocation is not possible. Only the first
    /// client does this.
    async fn purge(
        &mut self,
        span: Span,
        progress: &mut dyn FnMut(Purged) -> Go,
    ) -> Result<(), Failure>;

    /// Checks that all clients can still reach the storage, allowing the time that their initiators need to
    /// reconnect.
    async fn look_alive(&mut self) -> Result<(), Failure>;

    /// Returns remarks on how the cells were run, for readers of the record. Called at the end.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    /// Logs out of the storage.
    async fn close(self);
}

/// The result of a cell.
pub struct CellOutcome {
    /// The result of each role.
    pub parts: Vec<RoleResult>,
    /// The failure if a client was lost. Only the samples received from it are known. The loss ended the
    /// cell, and no other cell can start.
    pub lost: Option<Failure>,
}

/// The progress of a cell.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// The warm-up is over; requests are counted from now on.
    Counting,
    /// The sample of one client.
    Sample {
        /// The role in the cell.
        role: usize,
        /// The sample of this role.
        sample: &'a Sample,
    },
    /// The storage has not responded for this long. This is reported about every second.
    Waiting(Duration),
}

/// A crew of one thread for each role. Threads of earlier cells are kept for later ones.
pub struct LocalCrew {
    /// The places of the clients; never empty. If there are more clients, they use them in turn.
    seats: Vec<Seat>,
    spin: Duration,
    /// Whether nothing else runs in this process.
    alone: bool,
    /// The journal file of the storage's guarantees.
    log: Option<PathBuf>,
    /// The clients by client number. If a client has several concurrent roles, each role has a separate
    /// thread; the second number is the role's index among them.
    clients: BTreeMap<(u16, usize), Client>,
}

/// The place of a client: the network on which it runs, and the storage that it measures from there.
#[derive(Clone)]
struct Seat {
    site: Site,
    source: Source,
}

impl LocalCrew {
    /// Creates a crew without clients. They are started with their roles.
    pub fn new(source: Source, spin: Duration) -> LocalCrew {
        LocalCrew {
            seats: vec![Seat {
                site: Site::Here,
                source,
            }],
            spin,
            alone: true,
            log: None,
            clients: BTreeMap::new(),
        }
    }

    /// Sets up the crew for a process that also serves the storage: only the CPU time of its thread then
    /// counts for a client.
    pub fn beside_its_server(self) -> LocalCrew {
        LocalCrew {
            alone: false,
            ..self
        }
    }

    /// Sets the network on which the clients run, or the first client if there are [more](LocalCrew::and_at).
    pub fn at(mut self, site: Site) -> LocalCrew {
        self.seats[0].site = site;
        self
    }

    /// Adds a network on which clients run, and the storage that they measure from there: the first client
    /// uses the crew's own, the second one this, and so on.
    pub fn and_at(mut self, site: Site, source: Source) -> LocalCrew {
        self.seats.push(Seat { site, source });
        self
    }

    /// Sets the journal file. The crew then has one client, which records the storage's guarantees.
    pub fn with_log(self, log: Option<PathBuf>) -> LocalCrew {
        LocalCrew { log, ..self }
    }

    /// Starts and prepares the clients of a cell.
    pub async fn prepare(&mut self, cell: &Cell) -> Result<(), Failure> {
        for (key, role) in keys(cell).into_iter().zip(&cell.roles) {
            let seat = &self.seats[usize::from(role.client) % self.seats.len()];
            let client = match self.clients.entry(key) {
                Entry::Occupied(client) => client.into_mut(),
                Entry::Vacant(place) => place.insert(Client::start(ClientOptions {
                    name: format!("client {}", u32::from(role.client) + 1),
                    source: seat.source.clone(),
                    spin: self.spin,
                    site: seat.site.clone(),
                    log: self.log.clone(),
                })?),
            };
            client.prepare(role.sessions).await?;
        }
        Ok(())
    }

    /// Runs a prepared cell with this start time.
    pub async fn run_at(
        &mut self,
        cell: &Cell,
        stop: Stop,
        start: Instant,
        progress: &mut dyn FnMut(Progress<'_>) -> Go,
    ) -> Result<Vec<RoleResult>, Failure> {
        let (end, (tell, reports)) = (StopFlag::default(), mailbox());
        let alone = self.alone && cell.roles.len() == 1;
        for (index, (key, role)) in keys(cell).iter().zip(&cell.roles).enumerate() {
            let task = Task {
                role: role.clone(),
                stop,
                start,
                end: end.clone(),
                alone,
            };
            if let Some(client) = self.clients.get(key) {
                client.begin(task, index, &tell);
            }
        }
        drop(tell);
        let mut parts = gather(cell.roles.len(), reports, &end, progress).await?;
        let first = parts.iter().map(|part| part.started).min();
        for part in &mut parts {
            let late = part
                .started
                .saturating_duration_since(first.unwrap_or(part.started));
            part.run.late_us = late.as_secs_f64() * 1e6;
        }
        // All clients are on this machine, whose CPU time must be counted only once.
        parts
            .iter_mut()
            .skip(1)
            .for_each(|part| part.run.cpu.machine_s = None);
        Ok(parts)
    }
}

/// Returns the key of each role's client.
fn keys(cell: &Cell) -> Vec<(u16, usize)> {
    let before = |at: usize, client| {
        cell.roles[..at]
            .iter()
            .filter(|role| role.client == client)
            .count()
    };
    cell.roles
        .iter()
        .enumerate()
        .map(|(at, role)| (role.client, before(at, role.client)))
        .collect()
}

/// Time between the order and the start: long enough for all clients to receive the order.
const BEFORE_THE_START: Duration = Duration::from_millis(5);

impl Crew for LocalCrew {
    async fn run(
        &mut self,
        cell: &Cell,
        stop: Stop,
        progress: &mut dyn FnMut(Progress<'_>) -> Go,
    ) -> Result<CellOutcome, Failure> {
        let tell = |waited| {
            progress(Progress::Waiting(waited));
        };
        awaited(self.prepare(cell), tell).await?;
        let parts = self
            .run_at(cell, stop, Instant::now() + BEFORE_THE_START, progress)
            .await?;
        Ok(CellOutcome { parts, lost: None })
    }

    async fn purge(
        &mut self,
        span: Span,
        progress: &mut dyn FnMut(Purged) -> Go,
    ) -> Result<(), Failure> {
        let mut paths = StoragePaths::none(&self.seats[0].source);
        paths.prepare(1).await?;
        let outcome = match paths.first() {
            Some(device) => purge(&**device, span, progress).await,
            None => Ok(()),
        };
        paths.close().await;
        outcome
    }

    async fn look_alive(&mut self) -> Result<(), Failure> {
        for client in self.clients.values() {
            client.look_alive().await?;
        }
        Ok(())
    }

    async fn close(self) {
        for client in self.clients.into_values() {
            client.close().await;
        }
    }
}

/// Receives reports until all clients have ended the run. If one fails, the others are asked to end.
pub async fn gather(
    roles: usize,
    mut reports: Receiver<(usize, Report)>,
    end: &StopFlag,
    progress: &mut dyn FnMut(Progress<'_>) -> Go,
) -> Result<Vec<RoleResult>, Failure> {
    let mut parts: Vec<Option<RoleResult>> = (0..roles).map(|_| None).collect();
    let (mut counting, mut failed) = (false, None);
    let mut silence = Silence::from(reactor::now());
    loop {
        let heard = reactor::timeout(TOLD_EVERY, reports.recv()).await;
        let now = reactor::now();
        if let Ok(Some((_, Report::Sample(sample)))) = &heard {
            silence.heard(now, sample);
        }
        if let Some(waited) = silence.due(now) {
            progress(Progress::Waiting(waited));
        }
        let (role, report) = match heard {
            Ok(Some(heard)) => heard,
            Ok(None) => break,
            Err(_) => continue,
        };
        let go = match report {
            Report::Counting if !counting => {
                counting = true;
                progress(Progress::Counting)
            }
            Report::Counting => Go::On,
            Report::Sample(sample) => progress(Progress::Sample {
                role,
                sample: &sample,
            }),
            Report::Ended(outcome) => match *outcome {
                Ok(part) => {
                    parts[role] = Some(part);
                    Go::On
                }
                Err(failure) => {
                    failed.get_or_insert(failure);
                    Go::Stop
                }
            },
        };
        if let Go::Stop = go {
            end.ask();
        }
    }
    let parts: Option<Vec<RoleResult>> = parts.into_iter().collect();
    match (failed, parts) {
        (None, Some(parts)) => Ok(parts),
        (Some(failure), _) => Err(failure),
        (None, None) => Err(Failure::failed("a client stopped unexpectedly")),
    }
}
