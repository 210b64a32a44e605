//! Aborted commands of a session: by task management, by other initiators, and by the loss of their
//! connection.

use std::sync::Arc;

use iscsi::pdu::Lun;
use iscsi::target::TaskId;
use logical_unit::{LogicalUnit, NexusId, Reply, Status};
use volume::Volume;

use super::{Session, Task, TaskState};

impl Task {
    /// A part of it is begun, and the rest is not wanted. Returns the units it uses besides its LUN's.
    fn give_up(&mut self, state: TaskState) -> Option<Vec<Arc<LogicalUnit>>> {
        match std::mem::replace(&mut self.state, state) {
            TaskState::Running(work) => Some(work.give_up()),
            TaskState::Lasting(reply) => {
                reply.abort();
                None // what goes on is the logical unit's
            }
            TaskState::Receiving(..) | TaskState::Held | TaskState::Cleared | TaskState::Answered(_) => None,
        }
    }
}

impl Session {
    /// Removes a task that the machine has removed. Returns the units, besides that of its LUN, whose devices
    /// may still carry it out.
    pub(super) fn forget(&mut self, id: TaskId) -> Vec<Arc<LogicalUnit>> {
        let Some(mut task) = self.take(id) else { return Vec::new() };
        let others = task.give_up(TaskState::Cleared);
        if let Some(others) = &others {
            self.add_aborted_units(task.slot, others);
        }
        if let (Some(index), true) = (task.slot, task.entered) {
            self.leave(index);
        }
        others.unwrap_or_default()
    }

    pub(super) fn add_aborted_units(&mut self, slot: Option<usize>, others: &[Arc<LogicalUnit>]) {
        let own = slot.map(|index| self.luns.unit(index));
        self.aborted_units.add(own.as_slice());
        self.aborted_units.add(others);
    }

    /// Takes the units whose devices may still carry out aborted commands.
    pub(crate) fn take_aborted_units(&mut self) -> Vec<Arc<LogicalUnit>> {
        self.aborted_units.take()
    }

    /// Aborts a command: no response, and no further effect once its devices have quiesced. Returns the units
    /// besides that of its LUN.
    pub(crate) fn abort(&mut self, id: TaskId) -> Vec<Arc<LogicalUnit>> {
        self.machine.abort(id);
        self.forget(id)
    }

    /// Aborts every command that uses `unit` except `except`. Returns all units that these commands used, and
    /// those commands that were addressed to another LUN (copies): their initiator waits for a response, so
    /// answer them with [`Session::tell_aborted`] once the devices have quiesced.
    #[must_use]
    pub(crate) fn abort_unit(
        &mut self,
        unit: &Arc<LogicalUnit>,
        except: Option<TaskId>,
    ) -> (Vec<Arc<LogicalUnit>>, Vec<TaskId>) {
        let doomed: Vec<TaskId> =
            self.tasks_of(unit).map(|task| task.id).filter(|id| Some(*id) != except).collect();
        // The waiting first, so that nothing begins because something else was aborted.
        for id in &doomed {
            if let Some(task) = self.waiting_task(*id) {
                task.state = TaskState::Cleared;
            }
        }
        let (mut units, mut untold) = (vec![Arc::clone(unit)], Vec::new());
        for id in doomed {
            let index = self.task(id).and_then(|task| task.slot);
            let received = index.map(|index| self.luns.unit(index));
            scsi_session::add_units(&mut units, received.as_slice());
            match received {
                Some(received) if !Arc::ptr_eq(&received, unit) => {
                    self.clear(id, &mut units);
                    untold.push(id);
                }
                _ => scsi_session::add_units(&mut units, &self.abort(id)),
            }
        }
        (units, untold)
    }

    /// Aborts every command that uses `unit` for another initiator, except those already answered. They have
    /// no further effect once the devices have quiesced; then answer them by [`Session::tell_aborted`]. Adds
    /// the units that they used to `units`.
    #[must_use]
    pub(crate) fn clear_unit(
        &mut self,
        unit: &Arc<LogicalUnit>,
        units: &mut Vec<Arc<LogicalUnit>>,
    ) -> Vec<TaskId> {
        let cleared = unanswered(self.tasks_of(unit));
        cleared.iter().for_each(|id| self.clear(*id, units));
        cleared
    }

    /// As [`Session::clear_unit`], of the commands that one LUN received, by its place.
    #[must_use]
    pub(super) fn clear_lun(&mut self, place: usize, units: &mut Vec<Arc<LogicalUnit>>) -> Vec<TaskId> {
        let cleared = unanswered(self.tasks.iter().flatten().filter(|task| task.slot == Some(place)));
        cleared.iter().for_each(|id| self.clear(*id, units));
        cleared
    }

    /// Aborts a command's device requests, drops its further data, and frees its memory.
    fn clear(&mut self, id: TaskId, units: &mut Vec<Arc<LogicalUnit>>) {
        let Some(task) = self.task(id) else { return };
        task.charge = None;
        let slot = task.slot;
        if let Some(others) = task.give_up(TaskState::Cleared) {
            self.add_aborted_units(slot, &others);
            let received = slot.map(|index| self.luns.unit(index));
            scsi_session::add_units(units, received.as_slice());
            scsi_session::add_units(units, &others);
        }
    }

    /// Answers commands that another initiator has aborted with TASK ABORTED: TAS is set in the control mode
    /// page (SPC-4 7.5.8).
    pub(crate) fn tell_aborted(&mut self, cleared: &[TaskId]) {
        for id in cleared {
            self.answer(*id, Reply::status(Status::TaskAborted));
        }
        self.handle_events(reactor::now());
        self.wake_all();
    }

    /// The unit behind a LUN field, if this session sees one there.
    pub(crate) fn unit(&self, lun: Lun) -> Option<Arc<LogicalUnit>> {
        self.luns.find(lun.0).map(|index| self.luns.unit(index))
    }

    /// Whether any command for `unit` is under way.
    pub(crate) fn has_tasks_for(&self, unit: &Arc<LogicalUnit>) -> bool {
        self.tasks_of(unit).next().is_some()
    }

    /// The commands that use `unit`: those for its LUN, and copies that another LUN received.
    fn tasks_of<'a>(&'a self, unit: &'a Arc<LogicalUnit>) -> impl Iterator<Item = &'a Task> {
        let same = |other: &Arc<LogicalUnit>| Arc::ptr_eq(other, unit);
        self.tasks.iter().flatten().filter(move |task| {
            let others = match &task.state {
                TaskState::Running(work) => work.watch.others(),
                _ => &[],
            };
            task.slot.is_some_and(|index| same(self.luns.unit_at(index))) || others.iter().any(same)
        })
    }

    /// All units that this session sees.
    pub(crate) fn units(&self) -> Vec<Arc<LogicalUnit>> {
        self.luns.iter().map(|slot| Arc::clone(&slot.unit)).collect()
    }

    /// The nexus of this session at `unit`.
    pub(crate) fn nexus_of(&self, unit: &Arc<LogicalUnit>) -> Option<NexusId> {
        self.user_of(unit.volume()).map(|(_, nexus)| nexus)
    }

    /// This session's unit of a volume and its nexus there, if it has or had it.
    pub(crate) fn user_of(&self, volume: &Arc<Volume>) -> Option<(Arc<LogicalUnit>, NexusId)> {
        self.luns.user_of(volume)
    }

    /// Commands in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.tasks.iter().flatten().count()
    }
}

fn unanswered<'a>(tasks: impl Iterator<Item = &'a Task>) -> Vec<TaskId> {
    tasks.filter(|task| !matches!(task.state, TaskState::Answered(_))).map(|task| task.id).collect()
}
