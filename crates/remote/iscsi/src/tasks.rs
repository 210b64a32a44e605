//! The commands under way: each with its data, and with whoever waits for it.
//!
//! Data belong to the command, not to its waiter: a waiter that goes away leaves them behind, and what a late
//! Data-In writes into is never somebody else's memory.

use std::ops::Range;
use std::task::Waker;
use std::time::Instant;

use block::{Buffer, Slice};
use iscsi::initiator::{ConnectionId, TaskId};
use iscsi::pdu::Lun;

use crate::error::CommandError;
use crate::statistics::Account;
use crate::timeouts::{EscalationStep, Timeouts};

/// The data of a command.
#[derive(Debug, Default)]
pub enum Transfer {
    /// None.
    #[default]
    None,
    /// From the target into a part of a buffer.
    In {
        /// The buffer.
        buffer: Buffer,
        /// The part.
        range: Range<usize>,
    },
    /// To the target.
    Out(Slice),
}

impl Transfer {
    /// From the target into all of a buffer.
    pub fn into_all_of(buffer: Buffer) -> Transfer {
        let range = 0..buffer.len();
        Transfer::In { buffer, range }
    }

    /// What is expected to come, in bytes.
    pub(crate) fn in_bytes(&self) -> usize {
        match self {
            Transfer::In { range, .. } => range.len(),
            Transfer::None | Transfer::Out(_) => 0,
        }
    }

    /// What there is to send.
    pub(crate) fn sent(&self) -> &[u8] {
        match self {
            Transfer::Out(data) => data,
            Transfer::None | Transfer::In { .. } => &[],
        }
    }

    /// What there is to send, in bytes.
    pub(crate) fn out_bytes(&self) -> usize {
        self.sent().len()
    }
}

/// How a command ended, before anybody asks what that means.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) outcome: Result<Status, CommandError>,
    /// The data, given back.
    pub(crate) transfer: Transfer,
    /// The target may have seen it.
    pub(crate) was_sent: bool,
}

impl Ended {
    /// A command that was never sent.
    pub(crate) fn unsent(transfer: Transfer, error: CommandError) -> Ended {
        Ended { outcome: Err(error), transfer, was_sent: false }
    }

    /// A command that has not ended, as far as is known, and has its data still.
    pub(crate) fn unfinished(error: CommandError) -> Ended {
        Ended { outcome: Err(error), transfer: Transfer::None, was_sent: true }
    }
}

/// A target's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) status: u8,
    /// As they came; empty without CHECK CONDITION.
    pub(crate) sense: Box<[u8]>,
    /// What came of the data, in bytes.
    pub(crate) in_bytes: usize,
    pub(crate) residual: iscsi::pdu::Residual,
}

struct Task {
    id: TaskId,
    connection: ConnectionId,
    lun: Lun,
    transfer: Transfer,
    state: TaskState,
    /// What was done last to end it, and until when that has time to work.
    step: EscalationStep,
    until: Instant,
    waits_for_end: bool,
    account: Account,
}

/// A command whose time is up, once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overdue {
    pub(crate) id: TaskId,
    pub(crate) lun: Lun,
    /// What is to be done now.
    pub(crate) step: EscalationStep,
}

/// A command that begins.
pub(crate) struct NewTask {
    pub(crate) id: TaskId,
    pub(crate) connection: ConnectionId,
    pub(crate) lun: Lun,
    pub(crate) transfer: Transfer,
    /// When its time is up.
    pub(crate) until: Instant,
    /// Its waiter is not to be told then.
    pub(crate) waits_for_end: bool,
    pub(crate) account: Account,
}

/// What is left of a command that has ended.
pub(crate) struct EndedTask {
    pub(crate) connection: ConnectionId,
    pub(crate) lun: Lun,
    pub(crate) account: Account,
    /// What it had to send, in bytes.
    pub(crate) out_bytes: usize,
}

enum TaskState {
    /// Somebody waits for it.
    Awaited(Option<Waker>),
    /// Its time is up, and its waiter has yet to see that. It is still under way.
    Expired(Orphan),
    /// Nobody waits for it any more: its end frees the slot.
    Orphaned(Orphan),
    /// It has ended, and its waiter has yet to see that.
    Ended(Result<Status, CommandError>),
}

/// The number of a command that was given up while under way, in the order of giving up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Orphan(u64);

/// A waiter's claim to the end of its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    place: usize,
    id: TaskId,
}

/// All commands of a session that were sent and not yet forgotten.
///
/// The machine uses a task's index again as soon as the task has ended; whoever waits for it looks later. So
/// commands have places of their own here, and the machine's indices lead to them.
#[derive(Default)]
pub(crate) struct Tasks {
    places: Vec<Option<Task>>,
    free: Vec<usize>,
    /// By the machine's index, the place of the command that had it last.
    by_index: Vec<usize>,
    orphans: u64,
    /// Woken whenever an orphan ends.
    quiet: Vec<Waker>,
}

impl Tasks {
    /// A command was sent; `waker` is woken when it ends.
    pub(crate) fn insert(&mut self, beginning: NewTask, waker: Waker) -> Ticket {
        let NewTask { id, connection, lun, transfer, until, waits_for_end, account } = beginning;
        let place = self.free.pop().unwrap_or(self.places.len());
        if place == self.places.len() {
            self.places.push(None);
        }
        if self.by_index.len() <= id.index() {
            self.by_index.resize(id.index() + 1, usize::MAX);
        }
        self.by_index[id.index()] = place;
        let (state, step) = (TaskState::Awaited(Some(waker)), EscalationStep::Wait);
        self.places[place] =
            Some(Task { id, connection, lun, transfer, state, step, until, waits_for_end, account });
        Ticket { place, id }
    }

    /// Where `length` bytes from `offset` of a command's incoming data belong.
    pub(crate) fn landing(&mut self, id: TaskId, offset: usize, length: usize) -> Option<&mut [u8]> {
        let place = self.place(id)?;
        match &mut self.at(place, id)?.transfer {
            Transfer::In { buffer, range } => {
                buffer.get_mut(range.clone())?.get_mut(offset..offset.checked_add(length)?)
            }
            Transfer::None | Transfer::Out(_) => None,
        }
    }

    /// `length` bytes from `offset` of a command's outgoing data.
    pub(crate) fn outgoing(&self, id: TaskId, offset: usize, length: usize) -> Option<Slice> {
        let task = self.places.get(self.place(id)?)?.as_ref().filter(|task| task.id == id)?;
        match &task.transfer {
            Transfer::Out(data) => data.part(offset..offset.checked_add(length)?),
            Transfer::None | Transfer::In { .. } => None,
        }
    }

    /// The command has ended: its waiter is woken, or it is forgotten if it has none.
    pub(crate) fn end(&mut self, id: TaskId, outcome: Result<Status, CommandError>) -> Option<EndedTask> {
        let place = self.place(id)?;
        let task = self.at(place, id)?;
        let out_bytes = task.transfer.out_bytes();
        let left = EndedTask { connection: task.connection, lun: task.lun, account: task.account, out_bytes };
        match &mut task.state {
            TaskState::Awaited(waker) => {
                let waker = waker.take();
                task.state = TaskState::Ended(outcome);
                waker.into_iter().for_each(Waker::wake);
            }
            TaskState::Expired(_) => task.state = TaskState::Ended(Err(CommandError::TimedOut)),
            TaskState::Orphaned(_) => self.forget(place),
            TaskState::Ended(_) => return None,
        }
        self.quiet.drain(..).for_each(Waker::wake);
        Some(left)
    }

    /// What is kept of a command for the statistics.
    pub(crate) fn account(&mut self, ticket: Ticket) -> Option<&mut Account> {
        Some(&mut self.at(ticket.place, ticket.id)?.account)
    }

    /// What the waiter sees: the end, or nothing yet, in which case `waker` is woken by it.
    pub(crate) fn poll(&mut self, ticket: Ticket, waker: &Waker) -> Option<Ended> {
        let Some(task) = self.at(ticket.place, ticket.id) else {
            return Some(Ended::unfinished(CommandError::ConnectionLost));
        };
        match &mut task.state {
            TaskState::Awaited(kept) => {
                if !kept.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
                    *kept = Some(waker.clone());
                }
                None
            }
            TaskState::Expired(orphan) => {
                task.state = TaskState::Orphaned(*orphan);
                Some(Ended::unfinished(CommandError::TimedOut))
            }
            TaskState::Orphaned(_) => Some(Ended::unfinished(CommandError::TimedOut)),
            TaskState::Ended(outcome) => {
                let outcome = std::mem::replace(outcome, Err(CommandError::ConnectionLost));
                let transfer = std::mem::take(&mut task.transfer);
                let ended = Ended { outcome, transfer, was_sent: true };
                self.forget(ticket.place);
                Some(ended)
            }
        }
    }

    /// The waiter went away. The command, if it is still under way and the target does not know yet; it has until
    /// `until` to be aborted.
    pub(crate) fn orphan(&mut self, ticket: Ticket, until: Instant) -> Option<TaskId> {
        let next = Orphan(self.orphans);
        let task = self.at(ticket.place, ticket.id)?;
        match task.state {
            TaskState::Awaited(_) => {
                task.state = TaskState::Orphaned(next);
                (task.step, task.until) = (EscalationStep::AbortTask, until);
                self.orphans += 1;
                return Some(ticket.id);
            }
            TaskState::Expired(orphan) => task.state = TaskState::Orphaned(orphan),
            TaskState::Orphaned(_) => {}
            TaskState::Ended(_) => self.forget(ticket.place),
        }
        None
    }

    /// Tells which commands' time is up, and what is to be done about each. The first time, that ends the wait for
    /// it, unless its waiter insists; the command is still under way.
    pub(crate) fn escalate(&mut self, now: Instant, timeouts: &Timeouts) -> Vec<Overdue> {
        let mut overdue = Vec::new();
        for task in self.places.iter_mut().flatten().filter(|task| task.until <= now) {
            match &mut task.state {
                TaskState::Ended(_) => continue,
                TaskState::Expired(_) | TaskState::Orphaned(_) => {}
                TaskState::Awaited(_) if task.waits_for_end => {}
                TaskState::Awaited(waker) => {
                    let waker = waker.take();
                    task.state = TaskState::Expired(Orphan(self.orphans));
                    self.orphans += 1;
                    waker.into_iter().for_each(Waker::wake);
                }
            }
            task.step = task.step.next();
            task.until = now + timeouts.time_limit(task.step);
            overdue.push(Overdue { id: task.id, lun: task.lun, step: task.step });
        }
        overdue
    }

    /// The mark for [`Tasks::poll_quiet`]: orphans up to now come before it.
    pub(crate) fn orphan_mark(&self) -> Orphan {
        Orphan(self.orphans)
    }

    /// Whether no orphan from before `mark` is under way; if one is, `waker` is woken when that may have changed.
    pub(crate) fn poll_quiet(&mut self, mark: Orphan, waker: &Waker) -> bool {
        let old = |task: &Task| match task.state {
            TaskState::Orphaned(orphan) | TaskState::Expired(orphan) => orphan < mark,
            TaskState::Awaited(_) | TaskState::Ended(_) => false,
        };
        let quiet = !self.places.iter().flatten().any(old);
        if !quiet {
            self.quiet.push(waker.clone());
        }
        quiet
    }

    fn place(&self, id: TaskId) -> Option<usize> {
        self.by_index.get(id.index()).copied()
    }

    /// The command at a place, if it is this one.
    fn at(&mut self, place: usize, id: TaskId) -> Option<&mut Task> {
        self.places.get_mut(place)?.as_mut().filter(|task| task.id == id)
    }

    fn forget(&mut self, place: usize) {
        // It is long, and is not to be moved to be dropped.
        if let Some(task) = self.places.get_mut(place).filter(|task| task.is_some()) {
            *task = None;
            self.free.push(place);
        }
    }
}
