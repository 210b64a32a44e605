//! Deadlines of a session's commands. They are checked by the core's tick, not on the path of a command.
//!
//! ```text
//!   waits for                         limit               then
//!   a device request                  the LUN's deadline  the command fails, the device's volume is fenced
//!   its turn, memory, or a range lock the LUN's deadline  BUSY, or the command fails; nothing is fenced
//! ```
//!
//! A deadline counts from the request to the device: a command that waits for its turn or for memory is no sign of a
//! hanging device, and must not fence it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use block::DeviceError;
use logical_unit::{DeviceRequest, LogicalUnit, Reply, Status};

use crate::session::{Session, Task, TaskState};

/// What a task waited for at the last tick, and since when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waited {
    stage: WaitingFor,
    since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitingFor {
    /// Its turn, memory, or blocks that another command has.
    Others,
    /// This request of a device.
    Device(DeviceRequest),
    /// Its logical unit's own work, or the end of a task management function: these have no deadline here.
    Unit,
}

impl Task {
    fn stage(&self) -> WaitingFor {
        match &self.state {
            TaskState::Held => WaitingFor::Others,
            TaskState::Running(work) => work.watch.request().map_or(WaitingFor::Others, WaitingFor::Device),
            TaskState::Lasting(_) | TaskState::Cleared => WaitingFor::Unit,
        }
    }

    fn observe(&mut self, now: Instant) -> Waited {
        let stage = self.stage();
        let since = match self.waited {
            Some(before) if before.stage == stage => before.since,
            // It came since the last look; what it waits for first, it waits for since then.
            None if stage == WaitingFor::Others => self.started,
            _ => now,
        };
        *self.waited.insert(Waited { stage, since })
    }
}

impl Session {
    /// Ends commands that have waited too long. Returns the units whose devices do not answer, with the time
    /// since the request, for the caller to fence.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<(Arc<LogicalUnit>, Duration)> {
        let mut late = Vec::new();
        for (number, task) in &mut self.tasks {
            let Waited { stage, since } = task.observe(now);
            let Some(index) = task.slot else { continue };
            let time = now.saturating_duration_since(since);
            if stage != WaitingFor::Unit && time > self.luns.deadline(index) {
                late.push((*number, index, stage, time));
            }
        }
        let mut hung: Vec<(Arc<LogicalUnit>, Duration)> = Vec::new();
        for (number, index, stage, time) in late {
            // The end of another one may have begun it, or ended it, in between.
            if self.tasks.get(&number).is_none_or(|task| task.stage() != stage) {
                continue;
            }
            let unit = self.luns.unit(index);
            let Some(others) = self.give_up(number) else {
                // It has not begun: nothing of it has happened (SAM-5 5.3.1, BUSY).
                self.answer(number, Reply::status(Status::Busy));
                continue;
            };
            if let WaitingFor::Device(request) = stage {
                let silent = match request.unit.checked_sub(1) {
                    None => Arc::clone(&unit),
                    Some(other) => others.get(other).map_or_else(|| Arc::clone(&unit), Arc::clone),
                };
                silent.volume().health().timed_out();
                if !hung.iter().any(|(known, _)| Arc::ptr_eq(known, &silent)) {
                    hung.push((silent, time));
                }
            }
            self.answer(number, unit.gave_up(DeviceError::TimedOut));
        }
        hung
    }
}
