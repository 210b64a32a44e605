//! Collects the samples and results of a run by agents, until all agents have ended the run.

use std::time::{Duration, Instant};

use agent::wire::message::{self, Notification, Order};
use backends::{Failure, FailureKind};
use bench::Go;
use bench::plan::{Cell, Stop};
use bench::record::{ClientRun, Cpu, Flow, Run, Sample};

use super::post::Post;
use crate::agents::post::Clock;
use crate::client::RoleResult;
use crate::crew::{CellOutcome, Progress};
use crate::view::{Silence, TOLD_EVERY};

/// The progress of a run.
pub(super) struct Gathering<'a> {
    post: &'a mut Post,
    shares: Vec<Share>,
    stop: Stop,
    roles: Vec<RoleProgress>,
    counting: bool,
    /// Whether all agents have been asked to end the run.
    ending: bool,
    /// The first failure of an agent that is still connected.
    failed: Option<Failure>,
    lost: Option<Failure>,
}

/// An agent's share of a run.
struct Share {
    agent: usize,
    clock: Clock,
    /// The roles of the agent, as positions in the cell.
    roles: Vec<usize>,
    ended: bool,
}

/// The progress of one role.
struct RoleProgress {
    name: String,
    agent: usize,
    samples: Vec<Sample>,
    part: Option<RoleResult>,
    /// The maximum error of the times that the agent's clock reports.
    clock_error: Duration,
}

/// Time allowed beyond the maximum run time, for hanging requests and for the network.
const GRACE: Duration = Duration::from_secs(60);
/// The maximum run time, one week. Agents reject longer runs.
const LONGEST: Duration = Duration::from_secs(7 * 86_400);

impl<'a> Gathering<'a> {
    /// Creates the state of a run that these agents have been ordered to start.
    pub(super) fn new(
        post: &'a mut Post,
        cell: &Cell,
        clocks: Vec<(usize, Clock)>,
        stop: Stop,
    ) -> Gathering<'a> {
        let share = |(agent, clock): (usize, Clock)| {
            let of_agent = |at: &usize| usize::from(cell.roles[*at].client) == agent;
            Share {
                agent,
                clock,
                roles: (0..cell.roles.len()).filter(of_agent).collect(),
                ended: false,
            }
        };
        let told = |role: &bench::plan::Role| RoleProgress {
            name: role.name.clone(),
            agent: usize::from(role.client),
            samples: Vec::new(),
            part: None,
            clock_error: Duration::ZERO,
        };
        Gathering {
            shares: clocks.into_iter().map(share).collect(),
            roles: cell.roles.iter().map(told).collect(),
            post,
            stop,
            counting: false,
            ending: false,
            failed: None,
            lost: None,
        }
    }

    /// Receives notifications until all agents have ended the run.
    pub(super) async fn gather(
        mut self,
        progress: &mut dyn FnMut(Progress<'_>) -> Go,
    ) -> Result<CellOutcome, Failure> {
        let longest =
            Duration::try_from_secs_f64(self.stop.warm_up_s + self.stop.max_s).unwrap_or(LONGEST);
        let deadline = Instant::now() + longest.min(LONGEST) + GRACE;
        let mut silence = Silence::from(Instant::now());
        while self.shares.iter().any(|share| !share.ended) {
            let left = deadline.saturating_duration_since(Instant::now());
            let heard = self.post.hear(left.min(TOLD_EVERY)).await;
            if let Some((_, Ok(Notification::Sample { sample, .. }))) = &heard {
                silence.heard(Instant::now(), sample);
            }
            if let Some(waited) = silence.due(Instant::now()) {
                progress(Progress::Waiting(waited));
            }
            let go = match heard {
                None if left > TOLD_EVERY => Go::On,
                Some((agent, Ok(news))) => self.hear(agent, news, progress),
                Some((agent, Err(failure))) => self.fail(agent, failure),
                None => self.give_up(),
            };
            if go == Go::Stop {
                self.end();
            }
        }
        self.carried()
    }

    fn hear(
        &mut self,
        agent: usize,
        news: Notification,
        progress: &mut dyn FnMut(Progress<'_>) -> Go,
    ) -> Go {
        let Some(at) = self
            .shares
            .iter()
            .position(|share| share.agent == agent && !share.ended)
        else {
            return Go::On;
        };
        match news {
            Notification::Counting if self.counting => Go::On,
            Notification::Counting => {
                self.counting = true;
                progress(Progress::Counting)
            }
            Notification::Sample { role, sample } => match self.shares[at].roles.get(role) {
                Some(&role) => {
                    self.roles[role].samples.push(sample);
                    progress(Progress::Sample {
                        role,
                        sample: &sample,
                    })
                }
                None => self.fail_astray(agent),
            },
            Notification::Ended { parts } if parts.len() == self.shares[at].roles.len() => {
                self.keep(at, parts)
            }
            _ => self.fail_astray(agent),
        }
    }

    fn keep(&mut self, at: usize, parts: Vec<message::RoleReport>) -> Go {
        let share = &mut self.shares[at];
        share.ended = true;
        let agent = self.post.name(share.agent);
        for (&role, part) in share.roles.iter().zip(parts) {
            let Some(started) = share.clock.here(Duration::from_nanos(part.started_ns)) else {
                continue;
            };
            let run = ClientRun {
                client: agent.clone(),
                ..part.run
            };
            self.roles[role].part = Some(RoleResult {
                run,
                tables: part.tables,
                started,
            });
            self.roles[role].clock_error = share.clock.error;
        }
        Go::On
    }

    fn fail_astray(&mut self, agent: usize) -> Go {
        let failure = self.post.astray(agent);
        self.fail(agent, failure)
    }

    /// Handles an agent that failed to run its share, or that was lost: asks the other agents to end the run.
    fn fail(&mut self, agent: usize, failure: Failure) -> Go {
        self.shares
            .iter_mut()
            .filter(|share| share.agent == agent)
            .for_each(|share| share.ended = true);
        let place = if self.post.is_lost(agent) {
            &mut self.lost
        } else {
            &mut self.failed
        };
        place.get_or_insert(failure);
        Go::Stop
    }

    fn give_up(&mut self) -> Go {
        let late = self.shares.iter_mut().filter(|share| !share.ended);
        let names: Vec<String> = late
            .map(|share| {
                share.ended = true;
                self.post.name(share.agent)
            })
            .collect();
        let sentence = format!("agent {} did not finish in time", names.join(", "));
        self.lost
            .get_or_insert(Failure::new(FailureKind::Unreachable, sentence));
        Go::Stop
    }

    fn end(&mut self) {
        if !std::mem::replace(&mut self.ending, true) {
            for share in self.shares.iter().filter(|share| !share.ended) {
                self.post.say(share.agent, &Order::Stop);
            }
        }
    }

    /// Returns the result of each role. For a lost agent, it contains only the samples received.
    fn carried(self) -> Result<CellOutcome, Failure> {
        if let Some(failure) = self.failed {
            return Err(failure);
        }
        let begun = |told: &RoleProgress| {
            told.part
                .as_ref()
                .map(|part| (part.started, told.agent, told.clock_error))
        };
        let first = self.roles.iter().filter_map(begun).min();
        let post = self.post;
        let parts = self.roles.into_iter().map(|told| {
            let RoleProgress {
                name,
                agent,
                samples,
                part,
                clock_error,
            } = told;
            let Some(mut part) = part else {
                return fragment(name, post.name(agent), samples);
            };
            if let Some((first, first_agent, first_error)) = first {
                part.run.late_us = us(part.started.saturating_duration_since(first));
                // Times of the same clock have no error relative to each other.
                let error = if agent == first_agent {
                    Duration::ZERO
                } else {
                    clock_error + first_error
                };
                part.run.late_error_us = us(error);
            }
            part
        });
        Ok(CellOutcome {
            parts: parts.collect(),
            lost: self.lost,
        })
    }
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Creates the result of a role whose agent was lost: only its samples are known, not its latencies or CPU
/// time.
fn fragment(role: String, client: String, samples: Vec<Sample>) -> RoleResult {
    let sum = |number: fn(&Sample) -> u64| samples.iter().map(number).fold(0, u64::saturating_add);
    let flow = |ios, bytes| Flow {
        ios,
        bytes,
        ..Flow::default()
    };
    let seconds: f64 = samples.iter().map(|sample| sample.seconds).sum();
    let under_way: f64 = samples
        .iter()
        .map(|sample| sample.under_way * sample.seconds)
        .sum();
    let run = Run {
        seconds,
        under_way_mean: if seconds > 0.0 {
            under_way / seconds
        } else {
            0.0
        },
        reads: flow(sum(|sample| sample.reads), sum(|sample| sample.read_bytes)),
        writes: flow(
            sum(|sample| sample.writes),
            sum(|sample| sample.written_bytes),
        ),
        backlog_max: 0,
        errors: 0,
        mismatches: 0,
        first_failure: Some(format!(
            "agent {client} disconnected: only its samples are available"
        )),
        samples,
    };
    let run = ClientRun {
        role,
        client,
        run,
        cpu: Cpu::default(),
        late_us: 0.0,
        late_error_us: 0.0,
        sessions: Vec::new(),
    };
    RoleResult {
        run,
        tables: Vec::new(),
        started: Instant::now(),
    }
}
