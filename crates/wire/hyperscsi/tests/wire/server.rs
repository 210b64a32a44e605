//! A server process: the target state machine, and a disk with delays.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use hyperscsi::target::{Admission, Config, Directory, Event, SessionId, TaskId};
use hyperscsi::{Function, FunctionResult, Payload, Psk, Refusal, Response, Target};
use testkit::Random;

use super::ledger::Ledger;

/// Host and interface.
pub(crate) type Address = (u8, u8);

pub(crate) struct Everybody {
    pub(crate) key: Option<Psk>,
}

impl Directory<Address> for Everybody {
    fn admit(&self, initiator: &str, target: &str, from: &Address) -> Result<Admission, Refusal> {
        let is_known = target == "disk" && initiator == format!("host-{}", from.0);
        match &self.key {
            _ if !is_known => Err(Refusal::UnknownTarget),
            Some(key) => Ok(Admission::Key(key.clone())),
            None => Ok(Admission::Open),
        }
    }

    fn targets(&self, _: &Address) -> Vec<String> {
        vec!["disk".to_owned()]
    }
}

struct Job {
    due: u64,
    id: u64,
    data: Payload,
    lun: [u8; 8],
}

pub(crate) struct Server {
    pub(crate) machine: Target<Address, Everybody>,
    jobs: BTreeMap<TaskId, Job>,
    /// Ended sessions, and functions, that wait for jobs which cannot be cancelled.
    ended: BTreeSet<SessionId>,
    slow_per_mille: u64,
}

impl Server {
    pub(crate) fn new(
        config: Config,
        key: Option<Psk>,
        seed: [u8; 32],
        slow_per_mille: u64,
    ) -> Server {
        let machine = Target::new(config, Everybody { key }, seed);
        Server {
            machine,
            jobs: BTreeMap::new(),
            ended: BTreeSet::new(),
            slow_per_mille,
        }
    }

    pub(crate) fn due(&self) -> Option<u64> {
        self.jobs.values().map(|job| job.due).min()
    }

    pub(crate) fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// Runs due jobs, and handles events of the state machine.
    pub(crate) fn run(&mut self, now_us: u64, ledger: &mut Ledger, random: &mut Random) {
        loop {
            let due = self
                .jobs
                .iter()
                .find(|(_, job)| job.due <= now_us)
                .map(|(task, _)| *task);
            if let Some(task) = due {
                self.carry_out(task, ledger);
            } else if let Some(event) = self.machine.poll_event() {
                self.handle(event, now_us, random);
            } else {
                return;
            }
        }
    }

    fn carry_out(&mut self, task: TaskId, ledger: &mut Ledger) {
        let job = self.jobs.remove(&task).expect("it is there");
        let data = ledger.execute(job.id, &job.data).into();
        self.machine.respond(
            task,
            Response {
                data,
                ..Response::default()
            },
        );
        self.quiesce();
    }

    fn quiesce(&mut self) {
        let is_done = |session: &SessionId| !self.jobs.keys().any(|task| task.session == *session);
        let done: Vec<SessionId> = self.ended.iter().copied().filter(is_done).collect();
        for session in done {
            self.ended.remove(&session);
            self.machine.quiesced(session);
        }
    }

    fn handle(&mut self, event: Event, now_us: u64, random: &mut Random) {
        match event {
            Event::SessionBegan { .. } | Event::LoginRefused { .. } | Event::Received { .. } => {}
            Event::SessionEnded { session, reason } => {
                assert_ne!(
                    reason,
                    hyperscsi::target::SessionEnd::Misbehaved,
                    "our initiator keeps the rules"
                );
                // Some can be cancelled, others are already at the disk.
                self.jobs
                    .retain(|task, _| task.session != session || random.per_mille(500));
                self.ended.insert(session);
                self.quiesce();
            }
            Event::Command { task, command } => {
                let id =
                    u64::from_be_bytes(*command.cdb[2..].first_chunk().expect("sixteen bytes"));
                let slow = random.per_mille(self.slow_per_mille);
                let due = now_us
                    + if slow {
                        random.below(300_000)
                    } else {
                        random.below(50)
                    };
                let job = Job {
                    due,
                    id,
                    data: command.data_out,
                    lun: command.lun,
                };
                assert!(
                    self.jobs.insert(task, job).is_none(),
                    "a task is begun once"
                );
            }
            Event::Function {
                task,
                function,
                lun,
                referenced,
            } => {
                let is_meant = |of: &TaskId, job: &Job| match function {
                    Function::AbortTask => Some(*of) == referenced,
                    Function::AbortTaskSet => of.session == task.session && job.lun == lun,
                    Function::ITNexusReset => of.session == task.session,
                    Function::TargetReset => true,
                    _ => job.lun == lun,
                };
                let meant: Vec<TaskId> = self
                    .jobs
                    .iter()
                    .filter(|(of, job)| is_meant(of, job))
                    .map(|(of, _)| *of)
                    .collect();
                for of in meant {
                    self.jobs.remove(&of);
                    self.machine.respond(of, Response::task_aborted());
                }
                self.machine.function_done(task, FunctionResult::Complete);
                self.quiesce();
            }
        }
    }

    pub(crate) fn handle_frame(&mut self, now: Instant, from: Address, frame: &mut [u8]) {
        self.machine.handle_frame(now, &from, frame);
    }
}
