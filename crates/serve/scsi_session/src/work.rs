//! A command that waits for its device.

use std::rc::Rc;
use std::sync::Arc;

use logical_unit::{LogicalUnit, Watch};
use reactor::JoinHandle;

/// A running command: a task of the executor that awaits its device.
pub struct Work {
    /// The task.
    pub task: JoinHandle<()>,
    /// Its progress.
    pub watch: Rc<Watch>,
}

impl Work {
    /// Aborts it; work that must run to its end continues by itself. Returns the units, besides that of its
    /// LUN, whose devices may still carry it out.
    pub fn give_up(self) -> Vec<Arc<LogicalUnit>> {
        if !self.watch.is_committed() {
            self.task.abort();
        }
        self.watch.others().to_vec()
    }
}
