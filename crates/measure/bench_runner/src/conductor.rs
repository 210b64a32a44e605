//! Carries out a suite: one run after the other; each is saved as soon as it has ended.

use std::time::Instant;

use bench::Go;
use bench::plan::{Cell, Data, Percent, Role, Rule, Span, Stop, Workload};
use bench::record::{CellRun, ClientRun, Ended};
use bench::schedule::{Schedule, Work};

use super::client::RoleResult;
use super::crew::{CellOutcome, Crew, Progress};
use super::keeper::Keeper;
use super::serving::Serving;
use super::silence::awaited;
use super::stop::StopRule;
use super::view::{RunStart, View};
use backends::Failure;
use bench::Extent;

/// Has the crew carry out what is left to do, until an end is `asked` for. `server` is who serves the storage, if that is
/// known. Gives how it came to its end, and what sessions told of themselves in the last run, as people read it.
pub async fn conduct(
    mut crew: impl Crew,
    keeper: &mut Keeper,
    view: &mut dyn View,
    server: Option<Serving>,
    asked: &dyn Fn() -> bool,
) -> (Result<Outcome, Failure>, Vec<String>) {
    let mut conductor = Conductor { crew: &mut crew, keeper, view, asked, server, tables: Vec::new() };
    let outcome = conductor.conduct(SEED).await;
    let Conductor { tables, server, .. } = conductor;
    if let Some(server) = server {
        server.close().await;
    }
    crew.remarks().into_iter().for_each(|remark| keeper.note(remark));
    crew.close().await;
    if let Ok(Outcome::Complete) = outcome {
        keeper.complete();
    }
    (outcome, tables)
}

/// The environment of a measurement.
struct Conductor<'a, C> {
    crew: &'a mut C,
    keeper: &'a mut Keeper,
    view: &'a mut dyn View,
    asked: &'a dyn Fn() -> bool,
    server: Option<Serving>,
    tables: Vec<String>,
}

/// The order in which cells are repeated is the same whenever a suite is.
const SEED: u64 = 1;

/// How it came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is nothing left to do.
    Complete,
    /// An end was requested.
    Interrupted,
}

impl<C: Crew> Conductor<'_, C> {
    /// Carries out the remaining runs. Completed runs are kept on a failure.
    async fn conduct(&mut self, seed: u64) -> Result<Outcome, Failure> {
        let suite = self.keeper.record().suite.clone();
        let mut schedule = Schedule::new(&suite, &self.keeper.record().runs, seed);
        let mut number = self.keeper.record().runs.len() as u64;
        while let Some(task) = schedule.due() {
            if (self.asked)() {
                return Ok(Outcome::Interrupted);
            }
            let left = schedule.left();
            let doing = |name, stop, roles| RunStart { name, number: number + 1, roles, stop, left };
            match task.work {
                Work::Purge => {
                    self.view.begins(&doing("purge", Stop::after(0.0), Vec::new()));
                    self.purge(whole(&suite)).await?;
                    schedule.prepared(task.step);
                }
                Work::Fill { block_bytes, depth, passes } => {
                    let (cell, stop) = fill(whole(&suite), self.bytes(), block_bytes, depth, passes);
                    self.view.begins(&doing("fill", stop, names(&cell)));
                    let (_, lost) = self.run(&cell, stop, 0).await?;
                    lost.map_or(Ok(()), Err)?;
                    schedule.prepared(task.step);
                }
                Work::Measure { cell, stop } => {
                    self.view.begins(&doing(&cell.name, stop, names(&cell)));
                    let (run, lost) = self.run(&cell, stop, task.round).await?;
                    number += 1;
                    schedule.done(&run);
                    self.keep(run, lost).await?;
                }
            }
        }
        Ok(Outcome::Complete)
    }

    fn bytes(&self) -> u64 {
        self.keeper.record().subject.bytes
    }

    async fn purge(&mut self, span: Span) -> Result<(), Failure> {
        let (view, asked) = (&mut *self.view, self.asked);
        let progress = &mut |purged| {
            view.purged(purged);
            go(asked)
        };
        self.crew.purge(span, progress).await
    }

    /// What came of a cell, and why it is the last one, if a client was lost.
    async fn run(
        &mut self,
        cell: &Cell,
        stop: Stop,
        round: u32,
    ) -> Result<(CellRun, Option<Failure>), Failure> {
        let mut judge = StopRule::new(stop, cell.roles.len());
        let mut counting = Instant::now();
        let server = self.server.as_ref();
        let mut before = None;
        let (view, asked) = (&mut *self.view, self.asked);
        let progress = &mut |progress: Progress<'_>| {
            let enough = match progress {
                Progress::Counting => {
                    counting = Instant::now();
                    before = server.and_then(Serving::look);
                    view.counting();
                    Go::On
                }
                Progress::Sample { role, sample } => {
                    view.sample(role, sample);
                    judge.heard(role, sample)
                }
                Progress::Waiting(waited) => {
                    view.waiting(waited);
                    Go::On
                }
            };
            if asked() { Go::Stop } else { enough }
        };
        let CellOutcome { parts, lost } = self.crew.run(cell, stop, progress).await?;
        let server_cpu = match self.server.as_mut().zip(before) {
            Some((server, before)) => server.since(before).await,
            None => Ok(None),
        };
        let server_cpu = server_cpu.unwrap_or_else(|failure| {
            // What was measured is good without it, and the next run would not learn more.
            self.server = None;
            self.view.note(&format!("the CPU load of the server is not known: {failure}"));
            None
        });
        self.tables = parts.iter().flat_map(|part| part.tables.iter().cloned()).collect();
        let clients: Vec<ClientRun> = parts.into_iter().map(|RoleResult { run, .. }| run).collect();
        let is_cut = lost.is_some() || (self.asked)();
        let ended = judge.ended(clients.iter().map(|client| &client.run), is_cut);
        let begun_s = self.keeper.seconds_at(counting);
        let run = CellRun { cell: cell.name.clone(), round, begun_s, ended, clients, server_cpu };
        Ok((run, lost))
    }

    /// Writes the run down. Where requests failed, goes on only if the storage can still be reached: a target
    /// that has gone is not asked for hours, and the run in which it went is made again by who goes on.
    async fn keep(&mut self, mut run: CellRun, mut lost: Option<Failure>) -> Result<(), Failure> {
        let failed = run.clients.iter().any(|client| client.run.errors > 0);
        if failed && lost.is_none() && !(self.asked)() {
            lost = awaited(self.crew.look_alive(), |waited| self.view.waiting(waited)).await.err();
        }
        if lost.is_some() {
            run.ended = Ended::Interrupted;
        }
        self.view.ended(&run);
        if let Some(sentence) = self.keeper.keep(run) {
            self.view.note(&sentence);
        }
        lost.map_or(Ok(()), Err)
    }
}

fn go(asked: &dyn Fn() -> bool) -> Go {
    if asked() { Go::Stop } else { Go::On }
}

fn names(cell: &Cell) -> Vec<String> {
    cell.roles.iter().map(|role| role.name.clone()).collect()
}

/// All that any cell of the suite uses.
fn whole(suite: &bench::plan::Suite) -> Span {
    let workloads = suite.cells().flat_map(|cell| &cell.roles).map(|role| role.workload.span);
    // Suites are cut to the device before they are run, so that every span has an end.
    let extents = workloads.map(|span| Extent::of(span, u64::MAX));
    extents.reduce(Extent::around).map_or_else(Span::default, Extent::span)
}

/// A cell that writes the span so many times from its start to its end, for as long as that takes.
fn fill(span: Span, device_bytes: u64, block_bytes: u32, depth: u32, passes: u32) -> (Cell, Stop) {
    let bytes = span.bytes.unwrap_or(device_bytes).saturating_mul(u64::from(passes));
    let simple = Workload::simple(block_bytes, depth, Percent::NONE, Percent::NONE);
    let workload = Workload { span, data: Data::Random, ..simple };
    let role = Role {
        name: "fill".to_owned(),
        client: 0,
        sessions: 1,
        read_ahead_bytes: None,
        apart: false,
        workload,
    };
    let cell = Cell::new("fill", "fill", vec![role]);
    // A day: whoever fills more than that in one go knows, and a device that hangs is given up before.
    const DAY_S: f64 = 86_400.0;
    (cell, Stop { warm_up_s: 0.0, min_s: 0.0, max_s: DAY_S, rule: Rule::Bytes { bytes } })
}
