//! Task management (RFC 7143 sections 4.2.3 and 11.5): which functions the state machine answers itself, and
//! when the others start.
//!
//! | the task of an ABORT TASK                   | response                                             |
//! |---------------------------------------------|------------------------------------------------------|
//! | is executing                                | the driver's, once it has fenced the task            |
//! | is held                                     | it is dropped; Function complete                     |
//! | has a response that waits for its data      | it is dropped; Function complete                     |
//! | has a response that is queued               | `SessionConfig::abort_of_finished`, after that response |
//! | has not arrived, RefCmdSN is in the window  | RefCmdSN counts as received; Function complete       |
//! | is over (RefCmdSN is below the window)      | `SessionConfig::abort_of_finished`                   |
//! | cannot have existed                         | Task does not exist                                  |
//!
//! Section 4.2.3.3 (a) requires a function that ends many tasks to "wait for responses on currently valid
//! Target Transfer Tags of the affected tasks". This implementation does not wait: open-iscsi sends no such
//! data by default (FastAbort=Yes, without negotiation). The tags become invalid immediately, and late data
//! is dropped.

use std::time::{Duration, Instant};

use super::connection::{CloseAfter, PreparedPdu, QueuedPdu, nop_in};
use super::fence::{Blocked, BlockedPdu, Fence, FenceScope, Ping, Timeout, Unacknowledged};
use super::session::{DelayedTmf, EarlyAbort, Session, Tmf};
use super::task::Task;
use super::transmit::Transmit;
use super::window::{CmdSnOrder, Held};
use super::{CloseReason, ConnectionId, Event, TaskId, TmfId, TmfRequest};
use crate::pdu::{
    Bhs, Itt, Lun, Opcode, RejectReason, Sn, TargetNumbers, TaskManagementFunction as Function,
    TaskManagementRequest, TaskManagementResponse, TaskManagementResult, Ttt,
};
use crate::slab::Key;

impl Session {
    /// Answers a task management function. The driver calls this when the function has been executed, or has
    /// failed.
    pub fn tmf_done(&mut self, tmf: TmfId, result: TaskManagementResult) {
        if let Some(tmf) = self.tmfs.remove(tmf.0) {
            debug_assert!(
                tmf.waiting.is_none(),
                "no task management function is waiting"
            );
            *self.active_count(tmf.immediate) -= 1;
            match fence_of(&tmf) {
                Some(scope) => self.respond_fenced(&tmf, scope, result),
                None => self.respond_to_tmf(tmf.connection, tmf.itt, result),
            }
        }
    }

    /// Queues the response to a function. No response of a task that the function ended may arrive after it,
    /// on any connection (sections 4.2.3.3 (f) and 4.2.2.3.4).
    fn respond_fenced(&mut self, tmf: &Tmf, scope: FenceScope, result: TaskManagementResult) {
        let &Tmf {
            connection: id,
            itt,
            function,
            ..
        } = tmf;
        // Section 11.5.1: a cold reset ends "all of its TCP connections to all initiators". The driver ends
        // the other sessions.
        let ends_session = function == Function::TargetColdReset
            && result == TaskManagementResult::FunctionComplete;
        let then = ends_session.then_some(CloseAfter::All(CloseReason::Reset));
        match self.connection(id) {
            Some(connection) if !connection.logged_out => {
                self.queue_fenced(id, response(itt, result), scope, then);
            }
            // The response cannot be sent: its connection is gone or logged out.
            Some(_) | None if ends_session => self.close_all(CloseReason::Reset),
            Some(_) | None => {}
        }
    }

    pub(super) fn handle_tmf(&mut self, id: ConnectionId, pdu: TaskManagementRequest) {
        if pdu.immediate && self.immediate >= self.config.immediate_max {
            return self.reject(id, RejectReason::ImmediateCommandReject);
        }
        if self.must_wait(&pdu) {
            self.open_tmf(id, &pdu, Some(pdu));
        } else {
            self.start(id, &pdu);
        }
    }

    /// Whether a function must wait for earlier commands. Section 4.2.3.3 (b): a function that ends many
    /// tasks "MUST wait … for all commands of the affected tasks to be received, based on the CmdSN
    /// ordering". Commands can be missing only if the session has several connections.
    fn must_wait(&self, pdu: &TaskManagementRequest) -> bool {
        let ends_many = scope_of(pdu.function, pdu.lun).is_some();
        let is_ahead = self.window.exp_cmd_sn().lt(pdu.cmd_sn)
            && pdu.cmd_sn.le(self.window.max_cmd_sn().next());
        pdu.immediate && ends_many && is_ahead && self.connections.iter().count() > 1
    }

    /// Starts the functions for which all earlier commands have arrived.
    pub(super) fn release_tmfs(&mut self) {
        let exp_cmd_sn = self.window.exp_cmd_sn();
        if !self.early_aborts.is_empty() {
            self.early_aborts
                .retain(|early_abort| exp_cmd_sn.lt(early_abort.before));
        }
        if self.immediate > 0 {
            self.start_waiting(|waiting| waiting.pdu.cmd_sn.le(exp_cmd_sn));
        }
    }

    /// Handles the loss of a connection. Its commands may never arrive, so functions no longer wait for them.
    pub(super) fn tmfs_connection_lost(&mut self, id: ConnectionId) {
        let is_orphan = |tmf: &Tmf| tmf.connection == id && tmf.waiting.is_some();
        let orphans: Vec<Key> = self
            .tmfs
            .iter()
            .filter(|(_, entry)| is_orphan(entry))
            .map(|(key, _)| key)
            .collect();
        for key in orphans {
            self.tmfs.remove(key);
            self.immediate -= 1; // only immediate functions ever wait
        }
        self.start_waiting(|_| true);
    }

    /// Starts functions that have waited for [`ARRIVE_WITHIN`], so that a reset starts even if earlier
    /// commands never arrive.
    pub(super) fn tmfs_timeout(&mut self, now: Instant) {
        if self.immediate > 0 {
            self.start_waiting(|waiting| waiting.timeout.has_expired(now));
        }
    }

    /// The earliest time at which a function stops waiting.
    pub(super) fn tmfs_deadline(&self, passed: Instant) -> Option<Instant> {
        if self.immediate == 0 {
            return None; // only immediate functions ever wait
        }
        let waiting = self
            .tmfs
            .iter()
            .filter_map(|(_, entry)| entry.waiting.as_ref());
        waiting
            .map(|waiting| waiting.timeout.deadline(passed))
            .min()
    }

    fn start_waiting(&mut self, mut may_start: impl FnMut(&mut DelayedTmf) -> bool) {
        let ready: Vec<Key> = self
            .tmfs
            .iter_mut()
            .filter_map(|(key, entry)| {
                entry
                    .waiting
                    .as_mut()
                    .is_some_and(&mut may_start)
                    .then_some(key)
            })
            .collect();
        for key in ready {
            let Some(entry) = self.tmfs.get_mut(key) else {
                continue;
            };
            let (connection, waiting) = (entry.connection, entry.waiting.take());
            if let Some(DelayedTmf { pdu, .. }) = waiting {
                self.abort_early(&pdu);
                self.hand_over(connection, &pdu, key, None);
            }
        }
    }

    /// Prepares a function that starts although commands sent before it are missing. The initiator considers
    /// these commands ended by the function's response, so they must not start later: held commands are
    /// dropped, and commands that arrive later are skipped.
    fn abort_early(&mut self, pdu: &TaskManagementRequest) {
        let Some(scope) = scope_of(pdu.function, pdu.lun) else {
            return;
        };
        if !self.window.exp_cmd_sn().lt(pdu.cmd_sn) {
            return;
        }
        for key in self.window.held_before(pdu.cmd_sn) {
            if self
                .tasks
                .get(key)
                .is_some_and(|task| scope.covers(task.lun))
            {
                self.drop_task(key);
            }
        }
        self.early_aborts
            .retain(|other| other.scope != scope || pdu.cmd_sn.lt(other.before));
        // Limits the memory to as many entries as functions may be outstanding. Dropping the oldest entry
        // affects only commands of the same initiator.
        if self.early_aborts.len() >= self.config.immediate_max as usize {
            self.early_aborts.remove(0);
        }
        self.early_aborts.push(EarlyAbort {
            before: pdu.cmd_sn,
            scope,
        });
    }

    /// Whether a function aborted a command before it arrived.
    pub(super) fn is_aborted_early(&self, cmd_sn: Sn, lun: Lun) -> bool {
        let mut early_aborts = self.early_aborts.iter();
        early_aborts
            .any(|early_abort| cmd_sn.lt(early_abort.before) && early_abort.scope.covers(lun))
    }

    fn start(&mut self, id: ConnectionId, pdu: &TaskManagementRequest) {
        let speaks_rfc7144 = self.config.parameters.protocol_level >= 2;
        match pdu.function {
            Function::AbortTask => self.abort_task(id, pdu),
            Function::TaskReassign => {
                self.respond_to_tmf(id, pdu.itt, TaskManagementResult::ReassignmentNotSupported);
            }
            Function::QueryTask if speaks_rfc7144 => self.query_task(id, pdu),
            Function::QueryTaskSet | Function::ITNexusReset | Function::QueryAsynchronousEvent
                if speaks_rfc7144 =>
            {
                self.ask_driver(id, pdu, None);
            }
            Function::AbortTaskSet
            | Function::ClearAca
            | Function::ClearTaskSet
            | Function::LogicalUnitReset
            | Function::TargetWarmReset
            | Function::TargetColdReset => self.ask_driver(id, pdu, None),
            // RFC 7144 section 4: these functions need iSCSIProtocolLevel 2.
            Function::QueryTask
            | Function::QueryTaskSet
            | Function::ITNexusReset
            | Function::QueryAsynchronousEvent
            | Function::Other(_) => {
                self.respond_to_tmf(id, pdu.itt, TaskManagementResult::NotSupported);
            }
        }
    }

    fn abort_task(&mut self, id: ConnectionId, pdu: &TaskManagementRequest) {
        let found = pdu.referenced_task.and_then(|itt| self.tags.find(itt));
        self.observe("ABORT TASK", |_| found);
        let result = match found.and_then(|key| Some((key, self.tasks.get(key)?))) {
            Some((_, task)) if task.lun != pdu.lun => TaskManagementResult::TaskDoesNotExist,
            Some((key, task)) if task.is_held() => {
                self.drop_task(key);
                TaskManagementResult::FunctionComplete
            }
            Some((_, task)) if task.queued => self.config.abort_of_finished,
            Some((key, task)) if task.outbound.is_some() => {
                self.drop_task(key);
                TaskManagementResult::FunctionComplete
            }
            Some((key, task)) => {
                let task = TaskId {
                    key,
                    connection: task.connection,
                };
                return self.ask_driver(id, pdu, Some(task));
            }
            None => self.abort_absent(pdu),
        };
        self.respond_to_tmf(id, pdu.itt, result);
    }

    /// Handles ABORT TASK for a task that does not exist. If its RefCmdSN is within the command window and
    /// less than the CmdSN of the request, the target considers the CmdSN received, and answers "Function
    /// complete" (section 11.5.5).
    fn abort_absent(&mut self, pdu: &TaskManagementRequest) -> TaskManagementResult {
        let sn = pdu.ref_cmd_sn;
        match self.window.order(sn) {
            CmdSnOrder::Next if sn.lt(pdu.cmd_sn) => {
                self.window.advance();
                TaskManagementResult::FunctionComplete
            }
            CmdSnOrder::Ahead if sn.lt(pdu.cmd_sn) => {
                self.window.hold(sn, Held::Received);
                TaskManagementResult::FunctionComplete
            }
            CmdSnOrder::Ignored if sn.lt(self.window.exp_cmd_sn()) => self.config.abort_of_finished,
            CmdSnOrder::Next | CmdSnOrder::Ahead | CmdSnOrder::Ignored => {
                TaskManagementResult::TaskDoesNotExist
            }
        }
    }

    /// Answers QUERY TASK. "Function Succeeded" means that the task exists (RFC 7144 section 4).
    fn query_task(&mut self, id: ConnectionId, pdu: &TaskManagementRequest) {
        let found = pdu.referenced_task.and_then(|itt| self.tags.find(itt));
        self.observe("QUERY TASK", |_| found);
        let is_there = |task: &Task| task.lun == pdu.lun && task.outbound.is_none();
        let result = match found
            .and_then(|key| self.tasks.get(key))
            .is_some_and(is_there)
        {
            true => TaskManagementResult::FunctionSucceeded,
            false => TaskManagementResult::FunctionComplete,
        };
        self.respond_to_tmf(id, pdu.itt, result);
    }

    fn ask_driver(
        &mut self,
        id: ConnectionId,
        pdu: &TaskManagementRequest,
        referenced: Option<TaskId>,
    ) {
        let key = self.open_tmf(id, pdu, None);
        self.hand_over(id, pdu, key, referenced);
    }

    fn open_tmf(
        &mut self,
        connection: ConnectionId,
        pdu: &TaskManagementRequest,
        waiting: Option<TaskManagementRequest>,
    ) -> Key {
        *self.active_count(pdu.immediate) += 1;
        let &TaskManagementRequest {
            itt,
            immediate,
            function,
            lun,
            ..
        } = pdu;
        debug_assert!(
            waiting.is_none() || immediate,
            "only immediate functions wait"
        );
        let timeout = Timeout::new(ARRIVE_WITHIN);
        let waiting = waiting.map(|pdu| DelayedTmf { pdu, timeout });
        self.tmfs.insert(Tmf {
            connection,
            itt,
            function,
            lun,
            immediate,
            waiting,
        })
    }

    /// The counter to which an outstanding function belongs. Non-immediate functions take a slot of the
    /// command window.
    fn active_count(&mut self, immediate: bool) -> &mut u32 {
        if immediate {
            &mut self.immediate
        } else {
            &mut self.active
        }
    }

    fn hand_over(
        &mut self,
        connection: ConnectionId,
        pdu: &TaskManagementRequest,
        key: Key,
        referenced: Option<TaskId>,
    ) {
        if let Some(scope) = scope_of(pdu.function, pdu.lun) {
            // The responses of these tasks wait for the rest of their data, which the initiator will no
            // longer send.
            self.drop_tasks(|task| {
                task.outbound.is_some() && !task.queued && scope.covers(task.lun)
            });
        }
        self.events.push_back(Event::TaskManagement(TmfRequest {
            tmf: TmfId(key),
            connection,
            function: pdu.function,
            lun: pdu.lun,
            referenced,
        }));
    }

    /// Queues the response after all responses on the connection, which may include the response of the
    /// referenced task.
    fn respond_to_tmf(&mut self, id: ConnectionId, itt: Itt, result: TaskManagementResult) {
        // A logout response is the last PDU on its connection.
        if self
            .connection(id)
            .is_some_and(|connection| !connection.logged_out)
        {
            self.queue_after_responses(id, response(itt, result), None);
        }
    }
}

fn response(itt: Itt, result: TaskManagementResult) -> Bhs {
    TaskManagementResponse {
        result,
        itt,
        numbers: TargetNumbers::default(),
    }
    .emit()
}

/// The tasks that a function ends, if it can end more than one.
fn scope_of(function: Function, lun: Lun) -> Option<FenceScope> {
    match function {
        Function::AbortTaskSet | Function::ClearTaskSet | Function::LogicalUnitReset => {
            Some(FenceScope::LogicalUnit(lun))
        }
        Function::TargetWarmReset | Function::TargetColdReset | Function::ITNexusReset => {
            Some(FenceScope::Target)
        }
        Function::AbortTask
        | Function::ClearAca
        | Function::TaskReassign
        | Function::QueryTask
        | Function::QueryTaskSet
        | Function::QueryAsynchronousEvent
        | Function::Other(_) => None,
    }
}

/// The responses that must not overtake the response to a function, if it is fenced. Section 4.2.2.3.4 lists
/// the fenced responses: those to functions that end many tasks, and to CLEAR ACA.
fn fence_of(tmf: &Tmf) -> Option<FenceScope> {
    match tmf.function {
        Function::ClearAca => Some(FenceScope::LogicalUnit(tmf.lun)),
        function => scope_of(function, tmf.lun),
    }
}

/// Time that a reset waits for commands that were sent before it on other connections. One TCP retransmission
/// takes about 200 ms, two take about 600 ms.
const ARRIVE_WITHIN: Duration = Duration::from_secs(2);

impl Session {
    /// Queues a PDU after all responses so far, including blocked ones.
    pub(super) fn queue_after_responses(
        &mut self,
        id: ConnectionId,
        bhs: Bhs,
        then: Option<CloseAfter>,
    ) {
        let pdu = QueuedPdu::Prepared(Box::new(PreparedPdu {
            bhs,
            data: Vec::new(),
            is_status: true,
            then,
        }));
        if self.fences.is_active() {
            self.fences.hold(id, pdu);
        } else if let Some(connection) = self.connection_mut(id) {
            connection.responses.push_back(pdu);
        }
    }

    /// Queues a response that must not overtake, or be overtaken by, responses on other connections.
    pub(super) fn queue_fenced(
        &mut self,
        id: ConnectionId,
        bhs: Bhs,
        scope: FenceScope,
        then: Option<CloseAfter>,
    ) {
        let ready = Box::new(PreparedPdu {
            bhs,
            data: Vec::new(),
            is_status: true,
            then,
        });
        if self.fences.is_active() {
            self.fences.blocked.push_back(Blocked {
                connection: id,
                pdu: BlockedPdu::Fenced(scope, ready),
            });
        } else {
            self.begin_fence(id, scope, ready);
            self.advance_fence();
        }
    }

    /// Starts a fence. Section 4.2.2.3.3: the target "takes note of last-sent and unacknowledged StatSN on
    /// each of the connections". To obtain the acknowledgements, a ping is queued after everything already
    /// queued on each other connection.
    fn begin_fence(
        &mut self,
        requester: ConnectionId,
        scope: FenceScope,
        answer: Box<PreparedPdu>,
    ) {
        debug_assert!(!self.fences.is_active(), "one fence at a time");
        let number = self.fences.begun.wrapping_add(1);
        self.fences.begun = number;
        let others: Vec<ConnectionId> = self
            .connections()
            .map(|(id, _)| id)
            .filter(|&other| other != requester)
            .collect();
        let unacknowledged = others
            .into_iter()
            .map(|other| self.ask(number, other))
            .collect();
        let answer = Some(answer);
        let timeout = Timeout::new(ACKNOWLEDGE_WITHIN);
        self.fences.active = Some(Fence {
            number,
            scope,
            requester,
            answer,
            unacknowledged,
            timeout,
        });
    }

    /// Queues a ping on a connection. If the connection is logging out, no PDU may follow the logout
    /// response, so the fence only waits for the connection to end.
    fn ask(&mut self, number: u32, id: ConnectionId) -> Unacknowledged {
        if let Some(connection) = self
            .connection_mut(id)
            .filter(|connection| !connection.logged_out)
        {
            connection.responses.push_back(QueuedPdu::FencePing(number));
            self.events
                .push_back(Event::TransmitReady { connection: id });
        }
        Unacknowledged {
            connection: id,
            ping: None,
        }
    }

    /// Emits the ping of a fence. Everything queued before it has been sent.
    pub(super) fn emit_fence_ping(&mut self, id: ConnectionId, number: u32) -> Option<Transmit> {
        let active = self
            .fences
            .active
            .as_mut()
            .filter(|fence| fence.number == number)?;
        let unacknowledged = active
            .unacknowledged
            .iter_mut()
            .find(|unacknowledged| unacknowledged.connection == id)?;
        let connection = self.connections.get_mut(id)?;
        let ttt = connection.next_ping();
        unacknowledged.ping = Some(Ping {
            stat_sn: connection.stat_sn,
            ttt,
        });
        let ready = PreparedPdu {
            bhs: nop_in(ttt).emit(),
            data: Vec::new(),
            is_status: false,
            then: None,
        };
        Some(self.emit_prepared(id, ready))
    }

    /// Processes the ExpStatSN of a received PDU while a fence is active.
    pub(super) fn handle_acknowledgement(&mut self, id: ConnectionId, bhs: &Bhs) {
        let Some(fence) = &mut self.fences.active else {
            return;
        };
        let exp_stat_sn = exp_stat_sn(bhs);
        let answered = match bhs.opcode() {
            Some(Opcode::NopOut) => Ttt::new(bhs.u32(TTT)),
            _ => None,
        };
        let arrived = |ping: Ping| {
            ping.stat_sn.le(exp_stat_sn) || (answered.is_some() && answered == ping.ttt)
        };
        fence.unacknowledged.retain(|unacknowledged| {
            unacknowledged.connection != id || !unacknowledged.ping.is_some_and(arrived)
        });
        self.advance_fence();
    }

    /// Handles the loss of a connection: the fence no longer waits for its acknowledgements.
    pub(super) fn fences_connection_lost(&mut self, id: ConnectionId) {
        if let Some(fence) = &mut self.fences.active {
            fence
                .unacknowledged
                .retain(|unacknowledged| unacknowledged.connection != id);
            self.advance_fence();
        }
    }

    /// Ends the fence's wait if it has timed out.
    pub(super) fn fences_timeout(&mut self, now: Instant) {
        if let Some(fence) = &mut self.fences.active
            && fence.timeout.has_expired(now)
        {
            fence.unacknowledged.clear();
            self.advance_fence();
        }
    }

    /// Advances the fence if no acknowledgement is missing: sends the fenced response, or ends the fence.
    fn advance_fence(&mut self) {
        while let Some(mut fence) = self
            .fences
            .active
            .take_if(|fence| fence.unacknowledged.is_empty())
        {
            match fence.answer.take() {
                Some(answer) => self.fences.active = Some(self.send_fenced(fence, answer)),
                None => self.release_blocked(),
            }
        }
    }

    /// Queues the fenced response after all earlier responses have been acknowledged. "The fence … MUST NOT
    /// be considered cleared" before this response has also been acknowledged.
    fn send_fenced(&mut self, fence: Fence, answer: Box<PreparedPdu>) -> Fence {
        debug_assert!(
            fence.unacknowledged.is_empty(),
            "an older response may still be passed"
        );
        let is_last = answer.then.is_some();
        if let Some(connection) = self.connection_mut(fence.requester) {
            connection.responses.push_back(QueuedPdu::Prepared(answer));
            self.events.push_back(Event::TransmitReady {
                connection: fence.requester,
            });
        }
        // A response after which the connections are closed is never acknowledged.
        let is_heard = !is_last
            && self.connections().count() > 1
            && self.connection(fence.requester).is_some();
        let unacknowledged = if is_heard {
            vec![self.ask(fence.number, fence.requester)]
        } else {
            Vec::new()
        };
        let timeout = Timeout::new(ACKNOWLEDGE_WITHIN);
        Fence {
            unacknowledged,
            timeout,
            ..fence
        }
    }

    /// Queues the blocked PDUs, up to the next fenced response.
    fn release_blocked(&mut self) {
        debug_assert!(!self.fences.is_active(), "the fence still blocks them");
        while let Some(Blocked {
            connection: id,
            pdu,
        }) = self.fences.blocked.pop_front()
        {
            match pdu {
                BlockedPdu::Fenced(scope, ready) => return self.begin_fence(id, scope, ready),
                BlockedPdu::Plain(pdu) => {
                    if let Some(connection) = self.connection_mut(id) {
                        connection.responses.push_back(pdu);
                        self.events
                            .push_back(Event::TransmitReady { connection: id });
                    }
                }
            }
        }
    }
}

/// ExpStatSN of a received PDU: the initiator has received all statuses before it.
pub(super) fn exp_stat_sn(bhs: &Bhs) -> Sn {
    Sn(bhs.u32(EXP_STAT_SN))
}

/// Time that a fence waits for acknowledgements. An initiator on a LAN acknowledges within milliseconds; issue
/// 2 requires resets to be answered within five seconds.
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_secs(1);
/// Offsets in all PDUs of an initiator (section 11).
const EXP_STAT_SN: usize = 28;
const TTT: usize = 20;
