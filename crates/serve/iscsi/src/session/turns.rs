//! Order of the commands of a LUN by task attribute (SAM-5 section 8.6).

use iscsi::target::TaskId;
use scsi_session::Turn;

use super::{Session, Waiting};

impl Session {
    pub(super) fn enter(&mut self, id: TaskId, index: usize, turn: Turn) -> bool {
        let entered = self.luns.slot(index).enter(turn);
        if let Some(task) = self.task(id) {
            task.entered = entered;
        }
        entered
    }

    /// A command has left its LUN: starts waiting commands, in the order of their arrival.
    pub(super) fn leave(&mut self, index: usize) {
        self.luns.slot(index).leave();
        while let Some(next) = self.luns.slot(index).waiting.pop_front() {
            let id = next.task();
            // One that was ended while it waited never begins.
            let Some(turn) = self.waiting_task(id).map(|task| task.turn) else { continue };
            let slot = self.luns.slot(index);
            if !slot.may_enter(turn) {
                return slot.waiting.push_front(next);
            }
            slot.take_turn(turn);
            if let Some(task) = self.task(id) {
                task.entered = true;
            }
            match next {
                Waiting::Begin(command) => self.begin_command(index, &command, false),
                Waiting::Finish(id, job, data) => self.finish(id, job, data),
            }
        }
    }
}
