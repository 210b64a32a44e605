//! Outstanding commands, with their data and their requesters.
//!
//! A command's data belongs to the command, not to its requester. It is kept when the requester is dropped,
//! so that late Data-In is never stored into reused memory.

use std::ops::Range;
use std::task::Waker;
use std::time::{Duration, Instant};

use block::{Buffer, Slice};
use failover::{Ahead, Patience};
use iscsi::initiator::{ConnectionId, TaskId};
use iscsi::pdu::Lun;
use scsi::cdb::Cdb;

use crate::effect::Account;
use crate::error::CommandError;
use crate::url::{EscalationStep, Timeouts};

/// The data of a command.
#[derive(Debug, Default)]
pub enum Transfer {
    /// The command has no data.
    #[default]
    None,
    /// Data from the target, to be stored in a part of a buffer.
    In {
        /// The buffer.
        buffer: Buffer,
        /// The part.
        range: Range<usize>,
    },
    /// Data to the target.
    Out(Slice),
}

impl Transfer {
    /// Creates a transfer of data from the target into all of a buffer.
    pub fn into_all_of(buffer: Buffer) -> Transfer {
        let range = 0..buffer.len();
        Transfer::In { buffer, range }
    }

    /// Returns the number of bytes expected from the target.
    pub fn in_bytes(&self) -> usize {
        match self {
            Transfer::In { range, .. } => range.len(),
            Transfer::None | Transfer::Out(_) => 0,
        }
    }

    /// Returns the data to send.
    pub fn sent(&self) -> &[u8] {
        match self {
            Transfer::Out(data) => data,
            Transfer::None | Transfer::In { .. } => &[],
        }
    }

    /// Returns the number of bytes to send.
    pub fn out_bytes(&self) -> usize {
        self.sent().len()
    }
}

/// The result of a command.
#[derive(Debug)]
pub struct CommandEnd {
    /// The command's status, or the reason why it has none.
    pub outcome: Result<Status, CommandError>,
    /// The command's data, returned to the requester.
    pub transfer: Transfer,
    /// Whether the target may have received the command.
    pub was_sent: bool,
}

impl CommandEnd {
    /// Returns the result for a command that was not sent.
    pub fn unsent(transfer: Transfer, error: CommandError) -> CommandEnd {
        CommandEnd {
            outcome: Err(error),
            transfer,
            was_sent: false,
        }
    }

    /// Returns the result for a command that may not have ended. Its data is not returned.
    pub fn unfinished(error: CommandError) -> CommandEnd {
        CommandEnd {
            outcome: Err(error),
            transfer: Transfer::None,
            was_sent: true,
        }
    }
}

/// The status of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The status (SAM-5 table 45).
    pub status: u8,
    /// The sense data as received; empty unless the status is CHECK CONDITION.
    pub sense: Box<[u8]>,
    /// Number of bytes received.
    pub in_bytes: usize,
    /// The difference between the expected and the transferred length.
    pub residual: iscsi::pdu::Residual,
}

struct Task {
    id: TaskId,
    /// The number of the command, in the order in which commands were sent.
    number: u64,
    connection: ConnectionId,
    lun: Lun,
    transfer: Transfer,
    state: TaskState,
    /// The last escalation step. `until` is the end of its timeout.
    step: EscalationStep,
    until: Instant,
    /// Set once the command has waited for a long time.
    patience: Option<Box<Patience>>,
    waits_for_end: bool,
    account: Account,
}

/// A command with an expired timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overdue {
    pub(crate) id: TaskId,
    pub(crate) lun: Lun,
    /// The step to take now.
    pub(crate) step: EscalationStep,
}

/// A command to send.
pub struct CommandSpec {
    /// The address of the logical unit.
    pub lun: Lun,
    /// The command.
    pub cdb: Cdb,
    /// The command's data.
    pub transfer: Transfer,
    /// The session for which the command is meant, identified by the number of reinstatements before it;
    /// `None` for any session.
    pub epoch: Option<u64>,
    /// Whether the requester waits for the command to end even after a timeout, in order to retry it.
    pub waits_for_end: bool,
}

/// A new command.
pub(crate) struct NewTask {
    pub(crate) id: TaskId,
    pub(crate) connection: ConnectionId,
    pub(crate) lun: Lun,
    pub(crate) transfer: Transfer,
    /// The end of the command's timeout.
    pub(crate) until: Instant,
    /// Whether the requester waits for the command to end even after a timeout.
    pub(crate) waits_for_end: bool,
    pub(crate) account: Account,
}

/// The data of an ended command that the statistics need.
pub(crate) struct EndedTask {
    pub(crate) connection: ConnectionId,
    pub(crate) lun: Lun,
    pub(crate) account: Account,
    /// Number of bytes that the command had to send.
    pub(crate) out_bytes: usize,
}

enum TaskState {
    /// The requester waits for the command.
    Awaited(Option<Waker>),
    /// The timeout has expired, and the requester has not polled since. The command is still outstanding.
    Expired(Orphan),
    /// The requester was dropped. The end of the command frees the slot.
    Orphaned(Orphan),
    /// The command has ended, and the requester has not polled since.
    Ended(Result<Status, CommandError>),
}

/// The remaining part of its timeout at which a command counts as slow. Until then, its progress is not
/// checked.
const SLOW: f64 = 0.75;

/// The number of an outstanding command without a requester. The numbers are in the order in which requesters
/// were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Orphan(u64);

/// The requester's handle of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    place: usize,
    id: TaskId,
}

/// All commands of a session that were sent and not yet freed.
///
/// The state machine reuses a task's index as soon as the task has ended, but requesters poll later. Commands
/// therefore have their own slots here, to which the state machine's indices are mapped.
#[derive(Default)]
pub(crate) struct Tasks {
    places: Vec<Option<Task>>,
    free: Vec<usize>,
    /// For each index of the state machine, the slot of the last command with this index.
    by_index: Vec<usize>,
    /// The number of the next command.
    next: u64,
    orphans: u64,
    /// Tasks to wake whenever an orphan ends.
    quiet: Vec<Waker>,
}

impl Tasks {
    /// Adds a command that was sent. `waker` is woken when it ends.
    pub(crate) fn insert(&mut self, beginning: NewTask, waker: Waker) -> Ticket {
        let NewTask {
            id,
            connection,
            lun,
            transfer,
            until,
            waits_for_end,
            account,
        } = beginning;
        let place = self.free.pop().unwrap_or(self.places.len());
        if place == self.places.len() {
            self.places.push(None);
        }
        if self.by_index.len() <= id.index() {
            self.by_index.resize(id.index() + 1, usize::MAX);
        }
        debug_assert!(self.places[place].is_none(), "a free slot has no command");
        debug_assert!(
            self.is_free(id.index()),
            "an index is used again when its command has ended"
        );
        self.by_index[id.index()] = place;
        let (state, step) = (TaskState::Awaited(Some(waker)), EscalationStep::Wait);
        let number = self.next;
        self.next += 1;
        self.places[place] = Some(Task {
            id,
            number,
            connection,
            lun,
            transfer,
            state,
            step,
            until,
            patience: None,
            waits_for_end,
            account,
        });
        Ticket { place, id }
    }

    /// Returns the destination of `length` bytes of a command's incoming data, starting at `offset`.
    pub(crate) fn landing(
        &mut self,
        id: TaskId,
        offset: usize,
        length: usize,
    ) -> Option<&mut [u8]> {
        let place = self.place(id)?;
        match &mut self.at(place, id)?.transfer {
            Transfer::In { buffer, range } => buffer
                .get_mut(range.clone())?
                .get_mut(offset..offset.checked_add(length)?),
            Transfer::None | Transfer::Out(_) => None,
        }
    }

    /// Returns `length` bytes of a command's outgoing data, starting at `offset`.
    pub(crate) fn outgoing(&self, id: TaskId, offset: usize, length: usize) -> Option<Slice> {
        let task = self
            .places
            .get(self.place(id)?)?
            .as_ref()
            .filter(|task| task.id == id)?;
        match &task.transfer {
            Transfer::Out(data) => data.part(offset..offset.checked_add(length)?),
            Transfer::None | Transfer::In { .. } => None,
        }
    }

    /// Ends a command: wakes its requester, or frees the slot if there is none.
    pub(crate) fn end(
        &mut self,
        id: TaskId,
        outcome: Result<Status, CommandError>,
    ) -> Option<EndedTask> {
        let place = self.place(id)?;
        let task = self.at(place, id)?;
        let out_bytes = task.transfer.out_bytes();
        let left = EndedTask {
            connection: task.connection,
            lun: task.lun,
            account: task.account,
            out_bytes,
        };
        // The end of a command that is being aborted, or that was terminated together with others, does not
        // count as progress of its connection.
        let is_answered = task.step == EscalationStep::Wait && outcome.is_ok();
        let number = task.number;
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
        if !is_answered {
            let later = self
                .places
                .iter_mut()
                .flatten()
                .filter(|task| task.number > number);
            let later = later.filter(|task| task.connection == left.connection);
            later
                .filter_map(|task| task.patience.as_mut())
                .for_each(|patience| patience.forget());
        }
        self.quiet.drain(..).for_each(Waker::wake);
        Some(left)
    }

    /// Returns the statistics entry of a command.
    pub(crate) fn account(&mut self, ticket: Ticket) -> Option<&mut Account> {
        Some(&mut self.at(ticket.place, ticket.id)?.account)
    }

    /// Polls a command for its requester. `waker` is woken when the command ends.
    pub(crate) fn poll(&mut self, ticket: Ticket, waker: &Waker) -> Option<CommandEnd> {
        let Some(task) = self.at(ticket.place, ticket.id) else {
            return Some(CommandEnd::unfinished(CommandError::ConnectionLost));
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
                Some(CommandEnd::unfinished(CommandError::TimedOut))
            }
            TaskState::Orphaned(_) => Some(CommandEnd::unfinished(CommandError::TimedOut)),
            TaskState::Ended(outcome) => {
                let outcome = std::mem::replace(outcome, Err(CommandError::ConnectionLost));
                let transfer = std::mem::take(&mut task.transfer);
                let ended = CommandEnd {
                    outcome,
                    transfer,
                    was_sent: true,
                };
                self.forget(ticket.place);
                Some(ended)
            }
        }
    }

    /// Records that the requester was dropped. Returns the command if it must be aborted: it is outstanding,
    /// and not being aborted yet. `until` is the deadline of the abort.
    pub(crate) fn orphan(&mut self, ticket: Ticket, until: Instant) -> Option<TaskId> {
        let next = Orphan(self.orphans);
        let task = self.at(ticket.place, ticket.id)?;
        match task.state {
            TaskState::Awaited(_) => {
                debug_assert!(task.step == EscalationStep::Wait || task.waits_for_end);
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

    /// Extends the timeouts of commands whose connection still delivers responses to earlier commands.
    /// `moved_bytes` returns the number of bytes moved for a command so far. Call this periodically, and
    /// before [`Tasks::escalate`].
    pub(crate) fn note_progress(
        &mut self,
        now: Instant,
        limit: Duration,
        moved_bytes: impl Fn(TaskId) -> u64,
    ) {
        let slow = now + limit.mul_f64(SLOW);
        let is_slow = |task: &Task| task.step == EscalationStep::Wait && task.until <= slow;
        let is_outstanding = |task: &Task| !matches!(task.state, TaskState::Ended(_));
        let outstanding = self
            .places
            .iter_mut()
            .flatten()
            .filter(|task| is_outstanding(task));
        let mut outstanding: Vec<&mut Task> = outstanding.collect();
        if !outstanding.iter().any(|task| is_slow(task)) {
            return;
        }
        outstanding.sort_unstable_by_key(|task| task.number);
        let mut connections: Vec<(ConnectionId, Ahead)> = Vec::new();
        for task in outstanding {
            let known = connections
                .iter()
                .position(|(id, _)| *id == task.connection);
            let place = known.unwrap_or_else(|| {
                connections.push((task.connection, Ahead::default()));
                connections.len() - 1
            });
            let ahead = &mut connections[place].1;
            ahead.bytes = ahead.bytes.wrapping_add(moved_bytes(task.id));
            if is_slow(task) {
                let sent = task.until.checked_sub(limit).unwrap_or(now);
                let patience = task
                    .patience
                    .get_or_insert_with(|| Box::new(Patience::new(sent, limit)));
                patience.note(now, *ahead);
                task.until = patience.until();
            }
            ahead.requests += 1;
        }
    }

    /// Escalates commands with expired timeouts, and returns them. At the first escalation, the requester
    /// receives an error, unless it waits for the command to end. The command remains outstanding.
    pub(crate) fn escalate(&mut self, now: Instant, timeouts: &Timeouts) -> Vec<Overdue> {
        let mut overdue = Vec::new();
        for task in self
            .places
            .iter_mut()
            .flatten()
            .filter(|task| task.until <= now)
        {
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
            debug_assert_ne!(task.step, EscalationStep::Wait);
            task.until = now + timeouts.time_limit(task.step);
            overdue.push(Overdue {
                id: task.id,
                lun: task.lun,
                step: task.step,
            });
        }
        overdue
    }

    /// Returns a mark for [`Tasks::poll_quiet`]. All current orphans are before the mark.
    pub(crate) fn orphan_mark(&self) -> Orphan {
        Orphan(self.orphans)
    }

    /// Returns whether no orphan from before `mark` is outstanding. If false, `waker` is woken when this may
    /// have changed.
    pub(crate) fn poll_quiet(&mut self, mark: Orphan, waker: &Waker) -> bool {
        debug_assert!(mark.0 <= self.orphans, "orphans are counted upwards");
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

    /// Returns whether the last command with this index of the state machine has ended.
    fn is_free(&self, index: usize) -> bool {
        let last = self
            .by_index
            .get(index)
            .and_then(|place| self.places.get(*place)?.as_ref());
        last.is_none_or(|task| {
            task.id.index() != index || matches!(task.state, TaskState::Ended(_))
        })
    }

    fn place(&self, id: TaskId) -> Option<usize> {
        self.by_index.get(id.index()).copied()
    }

    /// Returns the command in a slot, if it is the command `id`.
    fn at(&mut self, place: usize, id: TaskId) -> Option<&mut Task> {
        self.places
            .get_mut(place)?
            .as_mut()
            .filter(|task| task.id == id)
    }

    fn forget(&mut self, place: usize) {
        // A task is large, so drop it in place instead of moving it.
        if let Some(task) = self.places.get_mut(place).filter(|task| task.is_some()) {
            *task = None;
            debug_assert!(!self.free.contains(&place));
            self.free.push(place);
        }
    }
}
