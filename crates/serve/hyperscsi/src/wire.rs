//! The protocol's state machine of a core, and when it must be run.

use std::cell::{Cell, RefCell};
use std::task::Waker;
use std::time::Instant;

use hyperscsi::Response;
use hyperscsi::target::{SessionId, TaskId};

use crate::config::Door;
use crate::interface::Place;

pub(crate) type Machine = hyperscsi::Target<Place, Door>;

/// The state machine of a core, which its sessions use.
pub(crate) struct Wire {
    pub(crate) machine: RefCell<Machine>,
    pub(crate) pace: Pace,
}

/// When `core::drive` has work.
#[derive(Default)]
pub(crate) struct Pace {
    /// The state machine has been changed.
    pub(crate) is_wanted: Cell<bool>,
    /// The state machine is running, and will notice changes.
    pub(crate) is_running: Cell<bool>,
    pub(crate) due: Cell<Option<Instant>>,
    pub(crate) waker: RefCell<Option<Waker>>,
}

impl Wire {
    /// Responds to a command.
    pub(crate) fn respond(&self, task: TaskId, response: Response, wants_receipt: bool) {
        let mut machine = self.machine.borrow_mut();
        // False means that the session has ended.
        let _ = match wants_receipt {
            true => machine.respond_with_receipt(task, response),
            false => machine.respond(task, response),
        };
        drop(machine);
        self.want_run();
    }

    /// Responds to a task management function.
    pub(crate) fn function_done(&self, task: TaskId, result: hyperscsi::FunctionResult) {
        let _ = self.machine.borrow_mut().function_done(task, result);
        self.want_run();
    }

    pub(crate) fn disconnect(&self, session: SessionId) {
        self.machine.borrow_mut().disconnect(reactor::now(), session);
        self.want_run();
    }

    /// Call this after a change of the state machine.
    pub(crate) fn want_run(&self) {
        if !self.pace.is_running.get() && !self.pace.is_wanted.replace(true) {
            self.pace.wake();
        }
    }
}

impl Pace {
    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
