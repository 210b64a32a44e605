//! Runs a suite: executes one run after the other, and saves each as soon as it has ended. [`StopRule`]
//! decides when a run has measured enough, and [`verdict`] evaluates the whole measurement.

use std::time::Instant;

use backends::{Failure, FailureKind};
use bench::plan::{Cell, Data, Percent, Role, Rule, Span, Stop, Workload};
use bench::record::{CellRun, ClientRun, Ended, Record, Run, Sample};
use bench::schedule::{Schedule, Work};
use bench::{Extent, Go};
use stats::known_well_enough;
use volume::spec::shell_word;

use crate::agents::Serving;
use crate::client::RoleResult;
use crate::crew::{CellOutcome, Crew, Progress};
use crate::folder::{Folder, Keeper};
use crate::view::{RunStart, View, awaited};

/// Executes the remaining runs with the crew, until they are complete or `asked` requests the end. `server`
/// is the server of the storage, if known. Returns the outcome, and the session statistics of the last run in
/// human-readable form.
pub async fn conduct(
    mut crew: impl Crew,
    keeper: &mut Keeper,
    view: &mut dyn View,
    server: Option<Serving>,
    asked: &dyn Fn() -> bool,
) -> (Result<Outcome, Failure>, Vec<String>) {
    let mut conductor = Conductor {
        crew: &mut crew,
        keeper,
        view,
        asked,
        server,
        tables: Vec::new(),
    };
    let outcome = conductor.conduct(SEED).await;
    let Conductor { tables, server, .. } = conductor;
    if let Some(server) = server {
        server.close().await;
    }
    crew.remarks()
        .into_iter()
        .for_each(|remark| keeper.note(remark));
    crew.close().await;
    if let Ok(Outcome::Complete) = outcome {
        keeper.complete();
    }
    (outcome, tables)
}

/// The state of a measurement.
struct Conductor<'a, C> {
    crew: &'a mut C,
    keeper: &'a mut Keeper,
    view: &'a mut dyn View,
    asked: &'a dyn Fn() -> bool,
    server: Option<Serving>,
    tables: Vec<String>,
}

/// The seed of the order of repeated cells. It is constant, so the order depends only on the suite.
const SEED: u64 = 1;

/// The outcome of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All runs are complete.
    Complete,
    /// The end was requested before all runs were complete.
    Interrupted,
}

impl<C: Crew> Conductor<'_, C> {
    /// Executes the remaining runs. If one fails, the completed runs are kept.
    async fn conduct(&mut self, seed: u64) -> Result<Outcome, Failure> {
        let suite = self.keeper.record().suite.clone();
        let mut schedule = Schedule::new(&suite, &self.keeper.record().runs, seed);
        let mut number = self.keeper.record().runs.len() as u64;
        while let Some(task) = schedule.due() {
            if (self.asked)() {
                return Ok(Outcome::Interrupted);
            }
            let left = schedule.left();
            let doing = |name, stop, roles| RunStart {
                name,
                number: number + 1,
                roles,
                stop,
                left,
            };
            match task.work {
                Work::Purge => {
                    self.view
                        .begins(&doing("purge", Stop::after(0.0), Vec::new()));
                    self.purge(whole(&suite)).await?;
                    schedule.prepared(task.step);
                }
                Work::Fill {
                    block_bytes,
                    depth,
                    passes,
                } => {
                    let (cell, stop) =
                        fill(whole(&suite), self.bytes(), block_bytes, depth, passes);
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

    /// Runs a cell. Returns its result, and a failure that stops the suite if a client was lost.
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
            // The measurement is valid without the server's CPU time. The next run would fail in the same
            // way, so it is no longer requested.
            self.server = None;
            self.view
                .note(&format!("the CPU load of the server is unknown: {failure}"));
            None
        });
        self.tables = parts
            .iter()
            .flat_map(|part| part.tables.iter().cloned())
            .collect();
        let clients: Vec<ClientRun> = parts
            .into_iter()
            .map(|RoleResult { run, .. }| run)
            .collect();
        let is_cut = lost.is_some() || (self.asked)();
        let ended = judge.ended(clients.iter().map(|client| &client.run), is_cut);
        let begun_s = self.keeper.seconds_at(counting);
        let run = CellRun {
            cell: cell.name.clone(),
            round,
            begun_s,
            ended,
            clients,
            server_cpu,
        };
        Ok((run, lost))
    }

    /// Saves the run. If requests failed, the suite continues only if the storage is still reachable;
    /// otherwise every further request would time out. The run in which the target was lost is repeated when
    /// the measurement is resumed.
    async fn keep(&mut self, mut run: CellRun, mut lost: Option<Failure>) -> Result<(), Failure> {
        let failed = run.clients.iter().any(|client| client.run.errors > 0);
        if failed && lost.is_none() && !(self.asked)() {
            lost = awaited(self.crew.look_alive(), |waited| self.view.waiting(waited))
                .await
                .err();
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

/// Returns the smallest span that contains all spans of the suite.
fn whole(suite: &bench::plan::Suite) -> Span {
    let workloads = suite
        .cells()
        .flat_map(|cell| &cell.roles)
        .map(|role| role.workload.span);
    // Suites are adapted to the device before they run, so every span has an end.
    let extents = workloads.map(|span| Extent::of(span, u64::MAX));
    extents
        .reduce(Extent::around)
        .map_or_else(Span::default, Extent::span)
}

/// Returns a cell that writes the span `passes` times from start to end, with a stop after the last byte.
fn fill(span: Span, device_bytes: u64, block_bytes: u32, depth: u32, passes: u32) -> (Cell, Stop) {
    let bytes = span
        .bytes
        .unwrap_or(device_bytes)
        .saturating_mul(u64::from(passes));
    let simple = Workload::simple(block_bytes, depth, Percent::NONE, Percent::NONE);
    let workload = Workload {
        span,
        data: Data::Random,
        ..simple
    };
    let role = Role {
        name: "fill".to_owned(),
        client: 0,
        sessions: 1,
        read_ahead_bytes: None,
        apart: false,
        workload,
    };
    let cell = Cell::new("fill", "fill", vec![role]);
    // The time limit of a fill is one day. Longer fills are unlikely, and a hanging device is detected
    // earlier.
    const DAY_S: f64 = 86_400.0;
    (
        cell,
        Stop {
            warm_up_s: 0.0,
            min_s: 0.0,
            max_s: DAY_S,
            rule: Rule::Bytes { bytes },
        },
    )
}

/// Decides from all samples when a run ends.
pub(crate) struct StopRule {
    stop: Stop,
    /// The requests per second in each interval, for each role.
    rates: Vec<Vec<f64>>,
    /// The number of intervals that all roles had reported at the last check.
    judged: usize,
    known: bool,
}

impl StopRule {
    /// Creates the stop rule of a run with this number of roles.
    pub(crate) fn new(stop: Stop, roles: usize) -> StopRule {
        StopRule {
            stop,
            rates: vec![Vec::new(); roles],
            judged: 0,
            known: false,
        }
    }

    /// Adds a sample of a role. Stops the run when the total rate is precise enough.
    pub(crate) fn heard(&mut self, role: usize, sample: &Sample) -> Go {
        let Rule::Confidence { percent } = self.stop.rule else {
            return Go::On;
        };
        if let Some(rates) = self.rates.get_mut(role) {
            rates.push(sample.iops());
        }
        let complete = self.rates.iter().map(Vec::len).min().unwrap_or(0);
        if complete > self.judged && sample.at_s >= self.stop.min_s {
            self.judged = complete;
            self.known = self.known || known_well_enough(&self.together(complete), percent);
        }
        if self.known { Go::Stop } else { Go::On }
    }

    fn together(&self, intervals: usize) -> Vec<f64> {
        (0..intervals)
            .map(|at| self.rates.iter().map(|rates| rates[at]).sum())
            .collect()
    }

    /// Returns the reason why a run with these results ended.
    pub(crate) fn ended<'a>(
        &self,
        runs: impl Iterator<Item = &'a Run> + Clone,
        interrupted: bool,
    ) -> Ended {
        let failures = runs
            .clone()
            .map(|run| run.errors + run.mismatches)
            .max()
            .unwrap_or(0);
        let shortest = runs.map(|run| run.seconds).fold(f64::INFINITY, f64::min);
        // A loop that stops by its clock may stop slightly early or late.
        let is_short = shortest < self.stop.max_s * 0.99;
        match self.stop.rule {
            _ if interrupted => Ended::Interrupted,
            _ if failures > 0 && is_short && !self.known => Ended::Failures,
            Rule::Time => Ended::Time,
            Rule::Confidence { .. } if self.known => Ended::Confidence,
            Rule::Bytes { .. } | Rule::Requests { .. } if is_short => Ended::Work,
            Rule::Confidence { .. } | Rule::Bytes { .. } | Rule::Requests { .. } => {
                Ended::OutOfTime
            }
        }
    }
}

/// Options of `bench` that control access to the storage and consent. A measurement must be resumed with the
/// same values.
const KEPT: [&str; 7] = [
    "--span",
    "--connections",
    "--congestion",
    "--poll-us",
    "--agents",
    "--server-agent",
    "--agent-secret-file",
];
/// Options in this list that take no value.
const KEPT_ALONE: [&str; 2] = ["--allow-write", "--yes"];

/// Returns the arguments with which `bench` resumes a measurement, up to `--resume`: the storage (`subject`),
/// and the options that are needed again.
pub fn again(subject: &[&str], mut line: impl Iterator<Item = String>) -> String {
    let mut words: Vec<String> = subject.iter().map(|&word| word.to_owned()).collect();
    while let Some(word) = line.next() {
        let name = word.split_once('=').map_or(&word[..], |(name, _)| name);
        let is_with_value = KEPT.contains(&name);
        if is_with_value || KEPT_ALONE.contains(&name) {
            let value = (is_with_value && name.len() == word.len())
                .then(|| line.next())
                .flatten();
            words.extend([word].into_iter().chain(value));
        }
    }
    let words: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
    words.join(" ")
}

/// Returns whether every request succeeded and every run completed some. `lost` is the reason why the
/// directory does not contain the whole record. `again` is the list of arguments with which `bench` resumes
/// the measurement.
///
/// # Errors
/// Returns the failure that ended the measurement, or else `lost`.
pub fn verdict(
    record: &Record,
    outcome: Result<Outcome, Failure>,
    folder: Option<&Folder>,
    lost: Option<Failure>,
    again: &str,
) -> Result<bool, Failure> {
    let done = match record.runs.len() {
        1 => "1 run".to_owned(),
        runs => format!("{runs} runs"),
    };
    // If the record could not be saved, do not mention the directory; `lost` has its own message.
    let kept = folder.filter(|_| lost.is_none());
    let then = kept.map(|folder| {
        let directory = folder.path().display().to_string();
        match record.subject.identity {
            Some(_) => format!(
                "to resume: linerate bench {again} --resume {}",
                shell_word(&directory)
            ),
            None => format!("the results are in {directory}"),
        }
    });
    match outcome {
        Err(failure) => Err(match then {
            Some(then) if !record.runs.is_empty() => {
                failure.and(format_args!("{done} completed; {then}"))
            }
            _ => failure,
        }),
        Ok(Outcome::Interrupted) => {
            let then = then.map(|then| format!("; {then}")).unwrap_or_default();
            Err(Failure::new(
                FailureKind::Interrupted,
                format_args!("interrupted after {done}{then}"),
            ))
        }
        Ok(Outcome::Complete) => match lost.or_else(|| silent(&record.runs)) {
            Some(failure) => Err(failure),
            None => Ok(record.runs.iter().all(CellRun::went_well)),
        },
    }
}

/// Returns the failure of runs in which nothing completed, with the cause if a request reported one. The
/// cause is in the message because not every user reads the tables.
fn silent(runs: &[CellRun]) -> Option<Failure> {
    let is_silent = |run: &&CellRun| run.clients.iter().all(|client| client.run.ios() == 0);
    let silent: Vec<&CellRun> = runs.iter().filter(is_silent).collect();
    let mut clients = silent.first()?.clients.iter();
    let why = clients.find_map(|client| client.run.first_failure.as_deref());
    Some(Failure::failed(format_args!(
        "no request completed in {} of {} runs: {}",
        silent.len(),
        runs.len(),
        why.unwrap_or(
            "the storage did not respond during the run (to make runs longer, use --seconds)"
        )
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench::record::{Cpu, Flow};

    fn judge(rule: Rule, roles: usize) -> StopRule {
        StopRule::new(
            Stop {
                warm_up_s: 0.0,
                min_s: 1.0,
                max_s: 10.0,
                rule,
            },
            roles,
        )
    }

    fn sample(index: usize, reads: u64) -> Sample {
        Sample {
            at_s: (index + 1) as f64 / 10.0,
            seconds: 0.1,
            reads,
            ..Sample::default()
        }
    }

    fn run(seconds: f64, errors: u64) -> Run {
        Run {
            seconds,
            under_way_mean: 1.0,
            reads: Flow::default(),
            writes: Flow::default(),
            backlog_max: 0,
            errors,
            mismatches: 0,
            first_failure: None,
            samples: Vec::new(),
        }
    }

    fn client(run: Run) -> ClientRun {
        ClientRun {
            role: String::new(),
            client: String::new(),
            run,
            cpu: Cpu::default(),
            late_us: 0.0,
            late_error_us: 0.0,
            sessions: Vec::new(),
        }
    }

    #[test]
    fn a_steady_rate_is_known_after_the_shortest_time_and_not_before() {
        let mut judge = judge(Rule::Confidence { percent: 5.0 }, 1);
        let stopped = (0..100).find(|index| {
            let wobble = index % 3;
            matches!(
                judge.heard(0, &sample(*index, 1000 + wobble as u64)),
                Go::Stop
            )
        });
        assert!(
            stopped.is_some_and(|index| (9..30).contains(&index)),
            "{stopped:?}"
        );
        assert_eq!(judge.ended([run(1.0, 0)].iter(), false), Ended::Confidence);
    }

    #[test]
    fn a_client_that_has_told_nothing_keeps_the_others_going() {
        let mut judge = judge(Rule::Confidence { percent: 5.0 }, 2);
        assert!((0..50).all(|index| matches!(judge.heard(0, &sample(index, 1000)), Go::On)));
    }

    #[test]
    fn what_ended_a_run_is_told_by_its_rule_and_its_length() {
        let time = judge(Rule::Time, 1);
        assert_eq!(time.ended([run(10.0, 0)].iter(), false), Ended::Time);
        assert_eq!(time.ended([run(10.0, 3)].iter(), false), Ended::Time);
        assert_eq!(time.ended([run(2.0, 100)].iter(), false), Ended::Failures);
        assert_eq!(time.ended([run(2.0, 100)].iter(), true), Ended::Interrupted);
        let work = judge(Rule::Bytes { bytes: 1 << 30 }, 1);
        assert_eq!(work.ended([run(2.0, 0)].iter(), false), Ended::Work);
        assert_eq!(work.ended([run(10.0, 0)].iter(), false), Ended::OutOfTime);
        assert_eq!(
            judge(Rule::Confidence { percent: 1.0 }, 1).ended([run(10.0, 0)].iter(), false),
            Ended::OutOfTime
        );
    }

    /// Regression test: a run in which no request completed ended with exit code 1 and without a reason.
    #[test]
    fn runs_in_which_no_request_completes_fail_with_the_reason() {
        let cell = |runs: Vec<Run>| CellRun {
            cell: String::new(),
            round: 0,
            begun_s: 0.0,
            ended: Ended::Time,
            clients: runs.into_iter().map(client).collect(),
            server_cpu: None,
        };
        let working = || Run {
            reads: Flow {
                ios: 1,
                ..Flow::default()
            },
            ..run(1.0, 0)
        };
        let failing = || Run {
            first_failure: Some("the device is gone".to_owned()),
            ..run(1.0, 7)
        };
        let told = |cells: &[CellRun]| silent(cells).map(|failure| failure.to_string());
        assert_eq!(
            told(&[cell(vec![working()]), cell(vec![run(1.0, 0), working()])]),
            None
        );
        assert_eq!(
            told(&[cell(vec![working()]), cell(vec![run(1.0, 0), failing()])]).as_deref(),
            Some("no request completed in 1 of 2 runs: the device is gone")
        );
        let hung = told(&[cell(vec![run(1.0, 0)])]).expect("a failure");
        assert!(hung.ends_with(
            "in 1 of 1 runs: the storage did not respond during the run (to make runs longer, use --seconds)"
        ));
    }

    #[test]
    fn a_measurement_is_resumed_with_what_it_needs_again() {
        let line = "linerate bench U --bs 4k --allow-write=1GiB..3GiB --yes --span 2GiB --agents=a,b --out d --seconds 5";
        let again = again(
            &["iscsi://a/iqn.b/0?login-time=5"],
            line.split(' ').map(str::to_owned),
        );
        let expected = "'iscsi://a/iqn.b/0?login-time=5' --allow-write=1GiB..3GiB --yes --span 2GiB --agents=a,b";
        assert_eq!(again, expected);
    }
}
