//! The part of the front end that all cores share, and the protocol's state machine of each core.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use block::Lock;
use front_end_core::HostNames;
use hyperscsi::Response;
use hyperscsi::target::{SessionId, TaskId};
use reactor::{Receiver, Sender};

use crate::config::{Config, Door};
use crate::interface::Place;

/// The name of this front end in [`Portal::front_end`](front_end_core::Portal::front_end).
pub const HYPERSCSI: &str = "hyperscsi";

/// The HyperSCSI front end: targets, LUN maps, access control and sessions.
pub struct HyperScsi {
    /// The current configuration. A configuration change replaces it; sessions hold the parts that they use
    /// by `Arc`.
    pub(crate) config: Lock<Arc<Config>>,
    pub(crate) names: HostNames,
    /// The mailbox of each core for frames that other cores have received.
    pub(crate) inboxes: Lock<BTreeMap<u32, Sender<Handed>>>,
}

/// A frame that another core has received, on its way to the core of its session.
pub(crate) struct Handed {
    pub(crate) from: Place,
    pub(crate) frame: Box<[u8]>,
}

/// Maximum number of frames that wait for a core. Further frames are dropped, as on a network, and
/// retransmitted.
const HANDED_MAX: usize = 256;

impl HyperScsi {
    /// Creates a front end that serves these targets.
    pub fn new(config: Config) -> Arc<HyperScsi> {
        let (config, names) = (Lock::new(Arc::new(config)), HostNames::default());
        Arc::new(HyperScsi {
            config,
            names,
            inboxes: Lock::default(),
        })
    }

    /// Returns the mailbox of a core for frames that other cores have received for it.
    pub(crate) fn inbox(&self, core: u32) -> Receiver<Handed> {
        let (sender, receiver) = reactor::bounded_mailbox(HANDED_MAX);
        self.inboxes.lock().insert(core, sender);
        receiver
    }

    /// Passes a frame to another core. Returns false if the mailbox of that core is full.
    pub(crate) fn hand_over(&self, core: u32, handed: Handed) -> bool {
        let inbox = self.inboxes.lock().get(&core).cloned();
        inbox.is_some_and(|inbox| inbox.try_send(handed).is_ok())
    }

    /// The current configuration.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.lock())
    }

    /// Replaces the configuration. Must be called within [`Server::reconfigure`], which makes sessions adapt.
    /// Initiators are notified of added and removed LUNs (REPORTED LUNS DATA HAS CHANGED). Sessions end if
    /// they have lost their target, or access to it. A changed key takes effect at the next login. `random`
    /// is not replaced.
    pub fn adopt(&self, config: Config) {
        *self.config.lock() = Arc::new(config);
    }
}

// The protocol's state machine of a core, and the conditions under which it must be run.

pub(crate) type Machine = hyperscsi::Target<Place, Door>;

/// The state machine of a core, which its sessions use.
pub(crate) struct Wire {
    pub(crate) machine: RefCell<Machine>,
    pub(crate) pace: Pace,
}

/// Determines when `core::drive` has work.
#[derive(Default)]
pub(crate) struct Pace {
    /// Whether the state machine has changed and must be run.
    pub(crate) is_wanted: Cell<bool>,
    /// Whether the state machine is running, and will process changes.
    pub(crate) is_running: Cell<bool>,
    pub(crate) due: Cell<Option<Instant>>,
    pub(crate) waker: RefCell<Option<Waker>>,
}

impl Wire {
    /// Responds to a command.
    pub(crate) fn respond(&self, task: TaskId, response: Response, wants_receipt: bool) {
        let mut machine = self.machine.borrow_mut();
        // The result is false if the session has ended.
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
        self.machine
            .borrow_mut()
            .disconnect(reactor::now(), session);
        self.want_run();
    }

    /// Requests a run of the state machine. Must be called after each change of it.
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
