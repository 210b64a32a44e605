//! The counters of the session's thread.

use std::time::{Duration, Instant};

use iscsi::initiator::{Counters, Session as Machine, Times};
use iscsi::pdu::Residual;
use scsi::{Sense, status};

use super::{Calls, Class, ClassStatistics, ConnectionStatistics, DigestTime, Incidents, Statistics};
use crate::effect::Effect;
use crate::error::CommandError;
use crate::tasks::{EndedTask, Status};

/// What a session counts.
pub(crate) struct Meter {
    begun: Instant,
    read: ClassStatistics,
    write: ClassStatistics,
    other: ClassStatistics,
    /// What the machines have counted that the session had before this one.
    pub(super) before: Counters,
    pub(crate) received: Calls,
    pub(crate) sent: Calls,
    pub(crate) digests: DigestTime,
    pub(crate) incidents: Incidents,
}

/// What is kept of a command under way, for when it has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    pub(crate) class: Class,
    pub(crate) effect: Effect,
    /// How long it waited before it could be submitted, in nanoseconds.
    pub(crate) waited_ns: u64,
}

/// How a command ended, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was carried out. Bytes that came, and bytes of those that there were to send that the target did
    /// not want.
    Good {
        in_bytes: usize,
        unwanted_bytes: usize,
    },
    Busy,
    TaskSetFull,
    UnitAttention,
    /// Anything else, or unknown.
    Failed,
}

impl Outcome {
    pub(crate) fn from_result(outcome: &Result<Status, CommandError>) -> Outcome {
        let Ok(answer) = outcome else { return Outcome::Failed };
        match answer.status {
            status::GOOD | status::CONDITION_MET => {
                let unwanted_bytes = match answer.residual {
                    Residual::Underflow(bytes) => bytes as usize,
                    Residual::None | Residual::Overflow(_) => 0,
                };
                Outcome::Good { in_bytes: answer.in_bytes, unwanted_bytes }
            }
            status::BUSY => Outcome::Busy,
            status::TASK_SET_FULL => Outcome::TaskSetFull,
            _ if Sense::parse(&answer.sense).is_some_and(Sense::is_unit_attention) => Outcome::UnitAttention,
            _ => Outcome::Failed,
        }
    }
}

impl ClassStatistics {
    /// A command was carried out.
    fn note(&mut self, account: &Account, times: &Times) {
        self.latency.record(account.waited_ns.saturating_add(times.total_ns()));
        self.waiting.record(account.waited_ns);
        for (phase, spent_ns) in self.phases.iter_mut().zip(times.spent_ns()) {
            phase.record(*spent_ns);
        }
    }
}

impl Incidents {
    fn note(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Busy => self.busy += 1,
            Outcome::TaskSetFull => self.task_set_full += 1,
            Outcome::UnitAttention => self.unit_attentions += 1,
            Outcome::Good { .. } | Outcome::Failed => {}
        }
    }
}

impl Meter {
    pub(crate) fn new(now: Instant) -> Meter {
        Meter {
            begun: now,
            read: ClassStatistics::default(),
            write: ClassStatistics::default(),
            other: ClassStatistics::default(),
            before: Counters::default(),
            received: Calls::default(),
            sent: Calls::default(),
            digests: DigestTime::default(),
            incidents: Incidents::default(),
        }
    }

    /// A command has ended.
    pub(crate) fn ended(&mut self, left: &EndedTask, outcome: Outcome, times: &Times) {
        let class = self.class(left.account.class);
        class.commands += 1;
        let Outcome::Good { in_bytes, unwanted_bytes } = outcome else {
            class.errors += 1;
            return self.incidents.note(outcome);
        };
        class.bytes += (in_bytes + left.out_bytes.saturating_sub(unwanted_bytes)) as u64;
        class.note(&left.account, times);
    }

    /// The session was away and has another machine now.
    pub(crate) fn reconnected(&mut self, before: &Counters, away: Duration) {
        self.before += *before;
        let incidents = &mut self.incidents;
        incidents.reconnects += 1;
        incidents.away = incidents.away.saturating_add(away);
        incidents.away_longest = incidents.away_longest.max(away);
    }

    pub(crate) fn statistics(
        &self,
        now: Instant,
        machine: &Machine,
        connections: Vec<ConnectionStatistics>,
    ) -> Statistics {
        let mut counters = self.before;
        counters += *machine.counters();
        Statistics {
            time: now.saturating_duration_since(self.begun),
            read: self.read.clone(),
            write: self.write.clone(),
            other: self.other.clone(),
            counters,
            received: self.received,
            sent: self.sent,
            digests: self.digests,
            incidents: self.incidents,
            window_room: machine.room(),
            under_way: machine.in_flight() as u32, // at most 65,535
            connections,
        }
    }

    fn class(&mut self, class: Class) -> &mut ClassStatistics {
        match class {
            Class::Read => &mut self.read,
            Class::Write => &mut self.write,
            Class::Other => &mut self.other,
        }
    }
}
