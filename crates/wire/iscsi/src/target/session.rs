//! The tables of a session, and the start and end of its connections and tasks.

use std::collections::VecDeque;
use std::time::Instant;

use super::connection::Connection;
use super::fence::{FenceScope, Fences, Timeout};
use super::task::{Tags, Task};
use super::window::Window;
use super::{Command, ConnectionId, ConnectionStart, Event, SessionConfig, TaskId};
use crate::negotiate::Parameters;
use crate::observed::report;
use crate::pdu::{Cid, Itt, LogoutResult, Lun, Sn, TaskManagementFunction, TaskManagementRequest};
use crate::slab::{Connections, Key, Slab};

/// A session: its command window, its tasks and its connections.
#[derive(Debug)]
pub struct Session {
    pub(super) config: SessionConfig,
    pub(super) window: Window,
    pub(super) tasks: Slab<Task>,
    pub(super) tags: Tags,
    pub(super) tmfs: Slab<Tmf>,
    pub(super) logouts: Slab<Logout>,
    pub(super) early_aborts: Vec<EarlyAbort>,
    pub(super) fences: Fences,
    pub(super) connections: Connections<Connection>,
    pub(super) events: VecDeque<Event>,
    pub(super) counters: Counters,
    /// Number of non-immediate tasks whose last PDU has not been sent, and of outstanding non-immediate task
    /// management functions. Each takes a slot of the command window.
    pub(super) active: u32,
    /// Number of outstanding immediate tasks and immediate task management functions.
    pub(super) immediate: u32,
    /// Size of the data of held commands and requests, and of data segments that the state machine itself is
    /// receiving, in bytes. It includes a fixed overhead for each piece.
    pub(super) staged_bytes: usize,
    /// Number of additional bytes that the driver allows the session to hold.
    pub(super) staging_limit: usize,
}

/// Counters of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// SCSI commands announced to the driver.
    pub commands: u64,
    /// Commands outside the command window, or duplicates within it: ignored, as section 4.2.2.1 requires.
    pub commands_ignored: u64,
    /// Data-Out PDUs dropped because their task has ended.
    pub data_out_late: u64,
    /// Data digest errors.
    pub digest_errors: u64,
    /// PDUs answered with a Reject.
    pub rejects: u64,
}

impl Session {
    /// A session without connections. The first to be added is the leading one.
    pub fn new(config: SessionConfig) -> Session {
        Session {
            window: Window::new(config.exp_cmd_sn, config.window),
            config,
            tasks: Slab::new(),
            tags: Tags::default(),
            tmfs: Slab::new(),
            logouts: Slab::new(),
            early_aborts: Vec::new(),
            fences: Fences::default(),
            connections: Connections::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
            active: 0,
            immediate: 0,
            staged_bytes: 0,
            staging_limit: usize::MAX,
        }
    }

    /// Adds a connection after its login.
    pub fn add_connection(
        &mut self,
        now: Instant,
        cid: Cid,
        start: ConnectionStart,
    ) -> ConnectionId {
        let text_bytes_max = self.config.text_bytes_max;
        self.connections
            .add(|id| Connection::new(id, cid, start, now, text_bytes_max))
    }

    /// Removes a connection. Its tasks end (ErrorRecoveryLevel 0); [`Event::TaskGone`] names them. The
    /// session continues if it has other connections.
    pub fn remove_connection(&mut self, _now: Instant, id: ConnectionId) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        let unsaid = connection
            .closes_all()
            .or_else(|| self.fences.closing_blocked(id));
        self.staged_bytes -= connection.reserved_bytes;
        self.connections.remove(id);
        self.drop_connection_tasks(id);
        self.tmfs_connection_lost(id);
        self.fences_connection_lost(id);
        // If all connections were to be closed after a response that can no longer be sent, they are closed
        // anyway.
        if let Some(reason) = unsaid {
            self.close_all(reason);
        }
        self.release();
    }

    /// The next action for the driver.
    pub fn poll_event(&mut self) -> Option<Event> {
        loop {
            let event = self.events.pop_front()?;
            if self.is_current(&event) {
                return Some(event);
            }
        }
    }

    /// The parameters negotiated by the leading login.
    pub fn parameters(&self) -> &Parameters {
        &self.config.parameters
    }

    /// Number of tasks: held, executing, or with a response being sent.
    pub fn commands_in_flight(&self) -> usize {
        self.tasks.len()
    }

    /// Size of the data held by the state machine, in bytes: the data of held commands and requests, and of
    /// queued PDUs.
    pub fn staged_bytes(&self) -> usize {
        let unsent = self
            .connections
            .iter()
            .map(|connection| connection.urgent_bytes);
        self.staged_bytes + unsent.sum::<usize>()
    }

    /// Sets the number of additional bytes that may be buffered. Without a call, only the limits of
    /// [`SessionConfig`] apply.
    pub fn set_staging_limit(&mut self, bytes: usize) {
        self.staging_limit = bytes;
    }

    /// Arrival time and connection of the oldest data that is held because earlier CmdSNs, or the rest of its
    /// data segment, have not arrived.
    pub fn oldest_staged(&self) -> Option<(Instant, ConnectionId)> {
        let commands = self
            .tasks
            .iter()
            .filter(|(_, task)| task.staged_bytes() > 0);
        let commands =
            commands.filter_map(|(_, task)| Some((task.waiting.as_ref()?.since, task.connection)));
        let requests = self
            .window
            .held_requests()
            .map(|request| (request.since, request.connection));
        let coming = self
            .connections
            .iter()
            .filter(|connection| connection.reserved_bytes > 0);
        let coming = coming.map(|connection| (connection.header_at, connection.id));
        commands
            .chain(requests)
            .chain(coming)
            .min_by_key(|(since, _)| *since)
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// ExpCmdSN: the next CmdSN in order.
    pub fn exp_cmd_sn(&self) -> Sn {
        self.window.exp_cmd_sn()
    }

    /// Number of times that a command closed the window, so that the initiator had to wait for a response
    /// before it could send the next command.
    pub fn window_closings(&self) -> u64 {
        self.window.closings()
    }

    /// The last CmdSN announced to the initiator.
    pub fn max_cmd_sn(&self) -> Sn {
        self.window.max_cmd_sn()
    }

    /// The connections.
    pub fn connections(&self) -> impl Iterator<Item = (ConnectionId, Cid)> {
        self.connections
            .iter()
            .map(|connection| (connection.id, connection.cid))
    }

    /// Reports an event of a task before it takes effect.
    pub(super) fn observe(&self, event: &'static str, which: impl FnOnce(&Session) -> Option<Key>) {
        report("target", event, || {
            match which(self).and_then(|key| self.tasks.get(key)) {
                None => "not there",
                Some(task) if task.outbound.is_some() => "answered",
                Some(task) if task.is_held() => "waits for its turn",
                Some(task) if task.inbound.is_wanted() => "takes data",
                Some(_) => "with the driver",
            }
        });
    }

    pub(super) fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        self.connections.get(id)
    }

    pub(super) fn connection_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.get_mut(id)
    }

    /// Whether an event still applies: its task may have ended since.
    fn is_current(&self, event: &Event) -> bool {
        match event {
            Event::Command(Command { task, .. })
            | Event::StagedData { task, .. }
            | Event::DataComplete { task }
            | Event::DataFailed { task, .. } => self
                .tasks
                .get(task.key)
                .is_some_and(|task| task.outbound.is_none()),
            Event::TaskManagement(_)
            | Event::SendTargets { .. }
            | Event::TaskGone { .. }
            | Event::LogoutPending { .. }
            | Event::TransmitReady { .. }
            | Event::Acknowledged(_)
            | Event::Close { .. } => true,
        }
    }

    /// Removes a task, whatever its state, from all tables. Returns whether it existed. The task itself is
    /// not returned: it is large, and would be copied.
    pub(super) fn remove_task(&mut self, key: Key) -> bool {
        let Some(task) = self.tasks.get(key) else {
            return false;
        };
        self.tags.remove(task.itt);
        self.staged_bytes -= task.staged_bytes();
        if task.immediate {
            self.immediate -= 1;
        } else if !task.is_held() {
            self.active -= 1;
        }
        self.tasks.discard(key);
        debug_assert_eq!(self.tags.len(), self.tasks.len(), "each task has its tag");
        true
    }

    /// Ends the tasks of a connection, and reports those that were announced to the driver.
    pub(super) fn drop_connection_tasks(&mut self, id: ConnectionId) {
        self.drop_tasks(|task| task.connection == id);
        debug_assert!(
            self.tasks.iter().all(|(_, task)| task.connection != id),
            "a task outlives its connection"
        );
    }

    /// Drops all tasks that satisfy `is_doomed`: see [`Session::drop_task`].
    pub(super) fn drop_tasks(&mut self, is_doomed: impl Fn(&Task) -> bool) {
        let doomed: Vec<Key> = self
            .tasks
            .iter()
            .filter(|(_, task)| is_doomed(task))
            .map(|(key, _)| key)
            .collect();
        doomed.into_iter().for_each(|key| self.drop_task(key));
    }

    /// Ends a task without a response, and reports this to the driver if the task was announced to it.
    pub(super) fn drop_task(&mut self, key: Key) {
        self.observe("its connection is lost", |_| Some(key));
        let Some(task) = self.tasks.get(key) else {
            return;
        };
        if task.is_held() {
            self.window.mark_received(key);
        }
        // A command that was held without space for its data is answered without the driver.
        if task.announced {
            self.events.push_back(Event::TaskGone {
                task: TaskId {
                    key,
                    connection: task.connection,
                },
            });
        }
        self.remove_task(key);
    }
}

/// An outstanding task management function.
#[derive(Debug)]
pub(super) struct Tmf {
    pub(super) connection: ConnectionId,
    pub(super) itt: Itt,
    pub(super) function: TaskManagementFunction,
    pub(super) lun: Lun,
    pub(super) immediate: bool,
    /// Set while it waits for commands sent before it.
    pub(super) waiting: Option<DelayedTmf>,
}

/// A function that aborted commands before they arrived.
#[derive(Debug)]
pub(super) struct EarlyAbort {
    /// The function's CmdSN.
    pub(super) before: Sn,
    pub(super) scope: FenceScope,
}

/// A function that waits for earlier commands.
#[derive(Debug)]
pub(super) struct DelayedTmf {
    pub(super) pdu: TaskManagementRequest,
    pub(super) timeout: Timeout,
}

// Logout (RFC 7143 sections 11.14 and 11.15): a connection, another one, or all of them.
//
// Commands whose response is already queued are still answered; the others end without a response. The logout
// response is the last PDU on its connection, which is then closed. The logout of another connection is
// answered when none of that connection's commands can reach the medium any more.

/// A logout of another connection.
#[derive(Debug)]
pub(super) struct Logout {
    pub(super) by: ConnectionId,
    pub(super) itt: Itt,
    pub(super) result: LogoutResult,
}
