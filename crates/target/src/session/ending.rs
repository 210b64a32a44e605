//! Commands that end otherwise than by an answer of their device: aborted, lost with their connection, late.

use std::sync::Arc;
use std::time::Instant;

use block::DeviceError;
use iscsi::pdu::Lun;
use iscsi::target::TaskId;
use scsi::{LogicalUnit, NexusId, Reply, Status};

use super::{Session, State};
use crate::inbox::Landing;

impl Session {
    /// The machine has already forgotten it.
    pub(super) fn forget(&mut self, id: TaskId) {
        let Some(task) = self.take(id) else { return };
        match task.state {
            State::Running(running) | State::Lasting(running) => {
                running.abort();
                self.remember_given_up(task.slot);
            }
            State::Receiving(_) | State::Held | State::Answered => {}
        }
        if let (Some(index), true) = (task.slot, task.entered) {
            self.leave(index);
        }
    }

    pub(super) fn remember_given_up(&mut self, slot: Option<usize>) {
        let Some(unit) = slot.map(|index| self.luns.unit(index)) else { return };
        if !self.given_up.iter().any(|known| Arc::ptr_eq(known, &unit)) {
            self.given_up.push(unit);
        }
    }

    /// Units whose devices may still be at work on what was given up.
    pub(crate) fn take_given_up(&mut self) -> Vec<Arc<LogicalUnit>> {
        std::mem::take(&mut self.given_up)
    }

    /// Gives a command up: no answer, no further effect once its device is quiesced.
    pub(crate) fn abort(&mut self, id: TaskId) {
        self.machine.abort(id);
        self.forget(id);
    }

    /// Gives up every command for `unit` but `except`.
    pub(crate) fn abort_unit(&mut self, unit: &Arc<LogicalUnit>, except: Option<TaskId>) {
        let doomed: Vec<TaskId> = self
            .tasks
            .iter()
            .flatten()
            .filter(|task| task.slot.is_some_and(|index| Arc::ptr_eq(&self.luns.unit(index), unit)))
            .map(|task| task.id)
            .filter(|id| Some(*id) != except)
            .collect();
        // The waiting first, so that nothing begins because something else was aborted.
        for slot in self.luns.iter_mut().filter(|slot| Arc::ptr_eq(&slot.unit, unit)) {
            slot.waiting.clear();
        }
        for id in &doomed {
            self.abort(*id);
        }
    }

    /// Another initiator ends every command for `unit`. They have no further effect once the device is quiesced, and
    /// are then to be answered by [`Session::tell_aborted`]; what has its answer already keeps it.
    #[must_use]
    pub(crate) fn clear_unit(&mut self, unit: &Arc<LogicalUnit>) -> Vec<TaskId> {
        for slot in self.luns.iter_mut().filter(|slot| Arc::ptr_eq(&slot.unit, unit)) {
            slot.waiting.clear();
        }
        let cleared: Vec<TaskId> = self
            .tasks
            .iter()
            .flatten()
            .filter(|task| task.slot.is_some_and(|index| Arc::ptr_eq(&self.luns.unit(index), unit)))
            .filter(|task| !matches!(task.state, State::Answered))
            .map(|task| task.id)
            .collect();
        for id in &cleared {
            self.stop(*id);
        }
        cleared
    }

    /// What the device does for a command is given up, and data that still come for it are dropped.
    fn stop(&mut self, id: TaskId) {
        let Some(task) = self.task(id) else { return };
        task.landing = Landing::Nowhere;
        if let State::Running(running) | State::Lasting(running) =
            std::mem::replace(&mut task.state, State::Held)
        {
            running.abort();
            let slot = task.slot;
            self.remember_given_up(slot);
        }
    }

    /// Answers commands that another initiator has ended: TAS is set in the control mode page (SPC-4 7.5.8).
    pub(crate) fn tell_aborted(&mut self, cleared: &[TaskId]) {
        for id in cleared {
            self.answer(*id, Reply::status(Status::TaskAborted));
        }
        self.handle_events(reactor::now());
        self.wake_all();
    }

    /// The unit behind a LUN field, if this session sees one there.
    pub(crate) fn unit(&self, lun: Lun) -> Option<Arc<LogicalUnit>> {
        self.luns.find(lun).map(|index| self.luns.unit(index))
    }

    /// Whether any command for `unit` is under way.
    pub(crate) fn has_tasks_for(&self, unit: &Arc<LogicalUnit>) -> bool {
        let slots = self.tasks.iter().flatten().filter_map(|task| task.slot);
        let mut slots = slots;
        slots.any(|index| Arc::ptr_eq(&self.luns.unit(index), unit))
    }

    /// All units that this session sees.
    pub(crate) fn units(&self) -> Vec<Arc<LogicalUnit>> {
        self.luns.iter().map(|slot| Arc::clone(&slot.unit)).collect()
    }

    /// The nexus of this session at `unit`.
    pub(crate) fn nexus_of(&self, unit: &Arc<LogicalUnit>) -> Option<NexusId> {
        self.luns.iter().find(|slot| Arc::ptr_eq(&slot.unit, unit)).map(|slot| slot.nexus.id())
    }

    /// Commands that have been with their device for longer than they may: answered with an error, and their
    /// units, which the caller fences until the device lets go.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<Arc<LogicalUnit>> {
        let luns = &self.luns;
        let late: Vec<(TaskId, usize)> = self
            .tasks
            .iter()
            .flatten()
            .filter(|task| matches!(task.state, State::Running(_)))
            .filter_map(|task| Some((task, task.slot?)))
            .filter(|(task, index)| now.duration_since(task.started) > luns.deadline(*index))
            .map(|(task, index)| (task.id, index))
            .collect();
        let mut units: Vec<Arc<LogicalUnit>> = Vec::new();
        for (id, index) in late {
            if let Some(task) = self.task(id)
                && let State::Running(running) = std::mem::replace(&mut task.state, State::Held)
            {
                running.abort();
            }
            let unit = self.luns.unit(index);
            let reply = unit.gave_up(DeviceError::TimedOut);
            if !units.iter().any(|known| Arc::ptr_eq(known, &unit)) {
                units.push(unit);
            }
            self.answer(id, reply);
        }
        units
    }

    /// Takes writes off the medium whose data have been on the way since before `since`: an initiator that has died
    /// in the middle of one must not keep a COMPARE AND WRITE of another waiting (ESXi gives those eight seconds).
    pub(crate) fn withdraw_slow_writes(&mut self, since: Instant) {
        let slow: Vec<TaskId> = self
            .tasks
            .iter()
            .flatten()
            .filter(|task| task.started < since && matches!(task.state, State::Receiving(_)))
            .filter(|task| matches!(task.landing, Landing::Memory(_)))
            .map(|task| task.id)
            .collect();
        for id in slow {
            self.withdraw(id);
        }
    }

    fn withdraw(&mut self, id: TaskId) {
        let Some(Landing::Memory(region)) = self.task(id).map(|task| &task.landing) else { return };
        let (region, bytes) = (region.clone(), region.len());
        if !self.charge(id, bytes) {
            return; // there will be memory at a later tick
        }
        let Some(task) = self.task(id) else { return };
        if let State::Receiving(job) = std::mem::replace(&mut task.state, State::Held) {
            match job.withdraw(&region) {
                Ok((job, buffer)) => {
                    task.state = State::Receiving(job);
                    task.landing = Landing::Buffer(buffer);
                }
                Err(job) => task.state = State::Receiving(job),
            }
        }
    }

    /// Commands in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.tasks.iter().flatten().count()
    }
}
