//! A session of a target: the requests seen, the running ones, and their replies.
//!
//! ```text
//!  request ── its number is new ──► Waiting ── memory for its data, no earlier session active ──► Running ──► reply
//!        └─── its number is known: already executed, or running. Its reply is under way, so nothing follows
//! ```
//!
//! This is the duplicate-request cache: `replay_window` contains every number ever seen in the session, and a
//! reply stays in the transport until it is acknowledged, over all epochs.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use super::interface::{Config, Event, SessionEnd, SessionId, TaskId};
use crate::frame::{MESSAGES_OPEN_MAX, PATHS_MAX};
use crate::pdu::{
    Command, Everywhere, Function, FunctionResult, Reply, Request, Response, SENSE_BYTES_MAX,
};
use crate::reassembly::ReplayWindow;
use crate::transport::{Counters, Message, Transport};

/// Maximum number of resets whose earlier commands may still arrive. Beyond that they are merged.
const RESETS_MAX: usize = 32;

/// Initiator, port and target: the I_T nexus.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Nexus {
    pub(super) initiator: String,
    pub(super) port: u32,
    pub(super) target: String,
}

/// A request without a reply.
#[derive(Debug)]
enum Live {
    Waiting {
        command: Box<Command>,
        charge: u64,
    },
    Running {
        lun: [u8; 8],
        charge: u64,
        data_in_bytes: u32,
    },
    Function,
}

/// A function that ended the commands with lower numbers, of one logical unit or of all.
#[derive(Clone, Copy, Debug)]
struct Reset {
    lun: Option<[u8; 8]>,
    before: u64,
}

/// A session.
#[derive(Debug)]
pub(super) struct Session<A> {
    pub(super) id: SessionId,
    pub(super) nexus: Nexus,
    pub(super) instance: u64,
    pub(super) transport: Transport,
    /// The address of each path.
    pub(super) addresses: [Option<A>; PATHS_MAX],
    pub(super) epochs: u16,
    /// An earlier session of the nexus may still reach the medium.
    pub(super) on_hold: bool,
    /// If the session has ended: the time until which it remains, to acknowledge its initiator's last
    /// messages.
    pub(super) closing: Option<Instant>,
    /// Counters of earlier epochs.
    pub(super) counters: Counters,
    /// The receipt of the response being sent must be reported.
    pub(super) wants_receipt: bool,
    queue_depth: u64,
    send_bytes_max: usize,
    replay_window: ReplayWindow,
    live: BTreeMap<u64, Live>,
    /// Commands not started yet, in order of arrival.
    waiting: VecDeque<u64>,
    running_bytes: usize,
    resets: Vec<Reset>,
    /// Size of stored commands that are not included in the credit of this epoch, in bytes.
    debt: u64,
}

/// The initiator violated the protocol.
#[derive(Debug)]
pub(super) struct Misbehaved;

impl<A> Session<A> {
    pub(super) fn new(
        config: &Config,
        id: SessionId,
        nexus: Nexus,
        instance: u64,
        transport: Transport,
    ) -> Session<A> {
        Session {
            id,
            nexus,
            instance,
            epochs: transport.epoch(),
            transport,
            addresses: [const { None }; PATHS_MAX],
            on_hold: false,
            closing: None,
            counters: Counters::default(),
            wants_receipt: false,
            queue_depth: u64::from(config.queue_depth),
            send_bytes_max: config.send_bytes_max,
            replay_window: ReplayWindow::default(),
            live: BTreeMap::new(),
            waiting: VecDeque::new(),
            running_bytes: 0,
            resets: Vec::new(),
            debt: 0,
        }
    }

    /// Size of the stored commands, in bytes.
    pub(super) fn charged(&self) -> u64 {
        let charges = self.live.values().map(|live| match live {
            Live::Waiting { charge, .. } | Live::Running { charge, .. } => *charge,
            Live::Function => 0,
        });
        charges.sum()
    }

    /// Time at which the initiator was last known to be alive and to acknowledge replies. Acknowledgements
    /// count, because an initiator that sends but never acknowledges would occupy the memory of its replies
    /// forever.
    pub(super) fn alive_at(&self) -> Instant {
        let heard = self.transport.last_heard();
        self.transport
            .stalled()
            .map_or(heard, |stalled| stalled.min(heard))
    }

    /// Number of outstanding requests.
    pub(super) fn live(&self) -> usize {
        self.live.len()
    }

    /// Continues in another epoch, whose credit was granted when commands of `charged_then` bytes were
    /// stored.
    pub(super) fn begin_epoch(&mut self, transport: Transport, charged_then: u64) {
        let before = std::mem::replace(&mut self.transport, transport);
        self.counters += before.counters;
        before
            .into_messages()
            .for_each(|message| self.transport.send(message));
        let charged = self.charged();
        self.debt = charged.saturating_sub(charged_then);
        self.transport.release(charged_then.saturating_sub(charged));
    }

    fn release(&mut self, charge: u64) {
        let owed = charge.min(self.debt);
        self.debt -= owed;
        self.transport.release(charge - owed);
    }

    fn task(&self, number: u64) -> TaskId {
        TaskId {
            session: self.id,
            number,
        }
    }

    fn reply(&mut self, number: u64, response: Response) {
        let receipt = self.wants_receipt.then_some(number);
        self.transport.send(Message {
            receipt,
            ..Reply::Response { number, response }.message()
        });
    }

    /// Reports responses that were received.
    pub(super) fn note_receipts(&mut self, events: &mut VecDeque<Event>) {
        let id = self.id;
        let received = self.transport.take_receipts();
        events.extend(received.map(|number| Event::Received {
            task: TaskId {
                session: id,
                number,
            },
        }));
    }

    fn done(&mut self, number: u64, result: FunctionResult) {
        self.live.remove(&number);
        self.transport
            .send(Reply::Done { number, result }.message());
    }

    /// Handles a request, which uses `charge` bytes of the credit.
    pub(super) fn handle_request(
        &mut self,
        bytes: Vec<u8>,
        charge: u64,
        events: &mut VecDeque<Event>,
    ) -> Result<(), Misbehaved> {
        let request = Request::parse(bytes).ok_or(Misbehaved)?;
        let number = match &request {
            Request::Command { number, .. } | Request::TaskManagement { number, .. } => *number,
        };
        if self.replay_window.contains(number) {
            self.counters.messages_repeated += 1;
            self.release(charge);
            return Ok(());
        }
        // Check this before the number is noted: a reset is dropped when the last missing number before it
        // arrives.
        let was_reset = match &request {
            Request::Command { command, .. } => self.was_reset(number, command.lun),
            Request::TaskManagement { .. } => false,
        };
        self.note(number)?;
        match request {
            Request::Command { number, .. } if was_reset => {
                self.release(charge);
                self.reply(number, Response::task_aborted());
            }
            Request::Command { number, command } => {
                self.live.insert(
                    number,
                    Live::Waiting {
                        command: Box::new(command),
                        charge,
                    },
                );
                self.waiting.push_back(number);
            }
            Request::TaskManagement {
                number,
                function,
                lun,
                referenced,
            } => {
                self.live.insert(number, Live::Function);
                self.manage(number, function, lun, referenced, events)?;
            }
        }
        self.begin(events);
        Ok(())
    }

    /// Notes a number. An initiator has no more outstanding requests than the queue depth, which limits both
    /// missing and running requests.
    fn note(&mut self, number: u64) -> Result<(), Misbehaved> {
        // A correct initiator leaves no more replies unacknowledged than messages may be open (twice that
        // during a change of epochs), plus one per outstanding request.
        let unheard_max = 2 * u64::from(MESSAGES_OPEN_MAX) + self.queue_depth;
        if number == u64::MAX
            || self.transport.unacknowledged() as u64 > unheard_max
            || self.replay_window.missing_with(number) + self.live.len() as u64 >= self.queue_depth
        {
            return Err(Misbehaved);
        }
        self.replay_window.insert(number);
        debug_assert!(
            (self.live.len() as u64) < self.queue_depth,
            "more requests than the queue is deep"
        );
        let lowest = self.replay_window.lowest();
        self.resets.retain(|reset| reset.before > lowest);
        Ok(())
    }

    fn was_reset(&self, number: u64, lun: [u8; 8]) -> bool {
        let of_it = |reset: &&Reset| reset.lun.is_none_or(|reset| reset == lun);
        self.resets
            .iter()
            .filter(of_it)
            .any(|reset| number < reset.before)
    }

    fn manage(
        &mut self,
        number: u64,
        function: Function,
        lun: [u8; 8],
        referenced: u64,
        events: &mut VecDeque<Event>,
    ) -> Result<(), Misbehaved> {
        if let Some(Everywhere(everywhere)) = function.ends_commands() {
            self.reset(Reset {
                lun: (!everywhere).then_some(lun),
                before: number,
            });
            events.push_back(Event::Function {
                task: self.task(number),
                function,
                lun,
                referenced: None,
            });
            return Ok(());
        }
        let is_live = matches!(
            self.live.get(&referenced),
            Some(Live::Waiting { .. } | Live::Running { .. })
        );
        // A request that has not arrived yet counts as existing: it will be executed on arrival.
        let is_coming = referenced < number && !self.replay_window.contains(referenced);
        let result = match function {
            Function::QueryTask if is_live || is_coming => FunctionResult::Succeeded,
            Function::QueryTaskSet => {
                let on_lun = self.live.values().any(|live| match live {
                    Live::Waiting { command, .. } => command.lun == lun,
                    Live::Running { lun: of_it, .. } => *of_it == lun,
                    Live::Function => false,
                });
                // The logical unit of missing requests is unknown.
                let is_any_coming = self.replay_window.lowest() < number;
                if on_lun || is_any_coming {
                    FunctionResult::Succeeded
                } else {
                    FunctionResult::Complete
                }
            }
            Function::AbortTask => return self.abort(number, lun, referenced, events),
            Function::QueryTask => FunctionResult::Complete,
            _ => FunctionResult::Rejected,
        };
        self.done(number, result);
        Ok(())
    }

    /// Executes ABORT TASK. A command that has not arrived yet will not be executed on arrival.
    fn abort(
        &mut self,
        number: u64,
        lun: [u8; 8],
        referenced: u64,
        events: &mut VecDeque<Event>,
    ) -> Result<(), Misbehaved> {
        if referenced >= number {
            self.done(number, FunctionResult::Complete);
            return Ok(());
        }
        if !self.replay_window.contains(referenced) {
            self.note(referenced)?;
            self.reply(referenced, Response::task_aborted());
        } else if matches!(self.live.get(&referenced), Some(Live::Running { .. })) {
            let (task, referenced) = (self.task(number), Some(self.task(referenced)));
            events.push_back(Event::Function {
                task,
                function: Function::AbortTask,
                lun,
                referenced,
            });
            return Ok(());
        } else {
            self.end_waiting(|waiting, _| waiting == referenced);
        }
        self.done(number, FunctionResult::Complete);
        Ok(())
    }

    /// Ends commands that have not started or not arrived yet.
    fn reset(&mut self, reset: Reset) {
        self.end_waiting(|number, lun| {
            number < reset.before && reset.lun.is_none_or(|of_it| of_it == lun)
        });
        if let Some(earlier) = self
            .resets
            .iter_mut()
            .find(|earlier| earlier.lun == reset.lun)
        {
            earlier.before = earlier.before.max(reset.before);
            return;
        }
        self.resets.push(reset);
        if self.resets.len() > RESETS_MAX {
            let before = self
                .resets
                .iter()
                .fold(0, |before, reset| before.max(reset.before));
            self.resets = vec![Reset { lun: None, before }];
        }
    }

    fn end_waiting(&mut self, is_meant: impl Fn(u64, [u8; 8]) -> bool) {
        let meant = |(&number, live): (&u64, &Live)| match live {
            Live::Waiting { command, charge } if is_meant(number, command.lun) => {
                Some((number, *charge))
            }
            _ => None,
        };
        let ended: Vec<(u64, u64)> = self.live.iter().filter_map(meant).collect();
        for (number, charge) in ended {
            self.live.remove(&number);
            self.waiting.retain(|waiting| *waiting != number);
            self.release(charge);
            self.reply(number, Response::task_aborted());
        }
    }

    /// Starts commands in order of arrival, while there is memory for their data.
    pub(super) fn begin(&mut self, events: &mut VecDeque<Event>) {
        while let Some(&number) = self.waiting.front() {
            let Some(Live::Waiting { command, .. }) = self.live.get(&number) else {
                return;
            };
            let data_in_bytes = command.data_in_bytes;
            let unacknowledged = self.transport.unacknowledged_bytes();
            let is_idle = self.running_bytes == 0 && unacknowledged == 0;
            let has_memory =
                self.running_bytes + unacknowledged + data_in_bytes as usize <= self.send_bytes_max;
            let has_turn = self.transport.unacknowledged() as u64 <= self.queue_depth;
            if self.on_hold || self.closing.is_some() || !(has_turn && (has_memory || is_idle)) {
                return;
            }
            self.waiting.pop_front();
            let Some(Live::Waiting { command, charge }) = self.live.remove(&number) else {
                return;
            };
            self.running_bytes += data_in_bytes as usize;
            self.live.insert(
                number,
                Live::Running {
                    lun: command.lun,
                    charge,
                    data_in_bytes,
                },
            );
            events.push_back(Event::Command {
                task: self.task(number),
                command: *command,
            });
        }
    }

    /// Completes a command. Returns false if it is not running.
    pub(super) fn respond(
        &mut self,
        number: u64,
        mut response: Response,
        events: &mut VecDeque<Event>,
    ) -> bool {
        let Some(&Live::Running {
            charge,
            data_in_bytes,
            ..
        }) = self.live.get(&number)
        else {
            return false;
        };
        self.live.remove(&number);
        debug_assert!(
            self.running_bytes >= data_in_bytes as usize,
            "a running command was counted"
        );
        self.running_bytes -= data_in_bytes as usize;
        self.release(charge);
        response.sense.truncate(SENSE_BYTES_MAX);
        response.data.truncate(data_in_bytes as usize);
        self.reply(number, response);
        self.begin(events);
        true
    }

    /// Completes a function. Returns false if it is not outstanding.
    pub(super) fn function_done(&mut self, number: u64, result: FunctionResult) -> bool {
        let is_live = matches!(self.live.get(&number), Some(Live::Function));
        if is_live {
            self.done(number, result);
        }
        is_live
    }

    /// Ends the session, which remains for a while.
    pub(super) fn close(
        &mut self,
        until: Instant,
        reason: SessionEnd,
        events: &mut VecDeque<Event>,
    ) {
        self.closing = Some(until);
        self.live.clear();
        self.waiting.clear();
        events.retain(|event| match event {
            Event::Command { task, .. } | Event::Function { task, .. } => task.session != self.id,
            Event::Received { .. }
            | Event::LoginRefused { .. }
            | Event::SessionBegan { .. }
            | Event::SessionEnded { .. } => true,
        });
        events.push_back(Event::SessionEnded {
            session: self.id,
            reason,
        });
    }
}
