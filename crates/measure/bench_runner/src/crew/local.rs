//! Clients that are threads of this process.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bench::Go;
use bench::plan::{Cell, Span, Stop};
use reactor::{Receiver, mailbox};

use super::{CellOutcome, Crew, Progress, Purged};
use crate::client::{Client, ClientOptions, Report, RoleResult, StopFlag, Task};
use crate::purge::purge;
use crate::silence::{Silence, TOLD_EVERY, awaited};
use crate::site::Site;
use crate::ways::{Source, StoragePaths};
use backends::Failure;

/// A thread for each role; those of earlier cells stay for later ones.
pub struct LocalCrew {
    source: Source,
    spin: Duration,
    site: Site,
    /// Whether nothing else runs in this process.
    alone: bool,
    /// Where what the storage promises is noted.
    log: Option<PathBuf>,
    /// By the number of the client and, where one has several roles at once, which of them it is.
    clients: BTreeMap<(u16, usize), Client>,
}

impl LocalCrew {
    /// A crew without clients, which are started with the roles.
    pub fn new(source: Source, spin: Duration) -> LocalCrew {
        LocalCrew { source, spin, site: Site::Here, alone: true, log: None, clients: BTreeMap::new() }
    }

    /// The same in a process that serves what is measured too: the CPU time of a client is that of its thread
    /// alone.
    pub fn beside_its_server(self) -> LocalCrew {
        LocalCrew { alone: false, ..self }
    }

    /// The same on another network.
    pub fn at(self, site: Site) -> LocalCrew {
        LocalCrew { site, ..self }
    }

    /// The same, whose one client notes what the storage promises.
    pub fn with_log(self, log: Option<PathBuf>) -> LocalCrew {
        LocalCrew { log, ..self }
    }

    /// Starts and prepares the clients of a cell.
    pub async fn prepare(&mut self, cell: &Cell) -> Result<(), Failure> {
        for (key, role) in keys(cell).into_iter().zip(&cell.roles) {
            let client = match self.clients.entry(key) {
                Entry::Occupied(client) => client.into_mut(),
                Entry::Vacant(place) => place.insert(Client::start(ClientOptions {
                    name: format!("client {}", u32::from(role.client) + 1),
                    source: self.source.clone(),
                    spin: self.spin,
                    site: self.site.clone(),
                    log: self.log.clone(),
                })?),
            };
            client.prepare(role.sessions).await?;
        }
        Ok(())
    }

    /// Carries out a prepared cell, starting at this moment.
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
            let task = Task { role: role.clone(), stop, start, end: end.clone(), alone };
            if let Some(client) = self.clients.get(key) {
                client.begin(task, index, &tell);
            }
        }
        drop(tell);
        let mut parts = gather(cell.roles.len(), reports, &end, progress).await?;
        let first = parts.iter().map(|part| part.started).min();
        for part in &mut parts {
            let late = part.started.saturating_duration_since(first.unwrap_or(part.started));
            part.run.late_us = late.as_secs_f64() * 1e6;
        }
        // All of them are on this machine, and its CPU time is counted once.
        parts.iter_mut().skip(1).for_each(|part| part.run.cpu.machine_s = None);
        Ok(parts)
    }
}

/// Which client has which role.
fn keys(cell: &Cell) -> Vec<(u16, usize)> {
    let before = |at: usize, client| cell.roles[..at].iter().filter(|role| role.client == client).count();
    cell.roles.iter().enumerate().map(|(at, role)| (role.client, before(at, role.client))).collect()
}

/// Enough for all to have heard of it.
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
        let parts = self.run_at(cell, stop, Instant::now() + BEFORE_THE_START, progress).await?;
        Ok(CellOutcome { parts, lost: None })
    }

    async fn purge(&mut self, span: Span, progress: &mut dyn FnMut(Purged) -> Go) -> Result<(), Failure> {
        let mut ways = StoragePaths::none(&self.source);
        ways.prepare(1).await?;
        let outcome = match ways.first() {
            Some(device) => purge(&**device, span, progress).await,
            None => Ok(()),
        };
        ways.close().await;
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

/// Receives all reports until all clients have ended. If one fails, the others are asked to end.
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
            Report::Sample(sample) => progress(Progress::Sample { role, sample: &sample }),
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
        (None, None) => Err(Failure::failed("a client has ended unexpectedly")),
    }
}
