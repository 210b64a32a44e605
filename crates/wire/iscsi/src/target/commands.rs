//! SCSI commands as they arrive: delivered in CmdSN order, held, or refused.

use super::Session;
use super::event::{Command, ConnectionId, Event, TaskId};
use super::inbound::Inbound;
use super::incoming::Incoming;
use super::outbound::ExpectedLengths;
use super::respond::Response;
use super::task::{HeldCommand, StagedData, Task, staged_cost};
use super::window::{CmdSnOrder, Held};
use crate::pdu::{Ahs, Bhs, Malformed, RejectReason, ScsiCommand};
use crate::serial::Sn;
use crate::slab::Key;

impl Session {
    pub(super) fn take_command(&mut self, id: ConnectionId, bhs: &Bhs, ahs: &[u8]) -> Result<(), Malformed> {
        let pdu = ScsiCommand::parse(bhs)?;
        let ahs = if ahs.is_empty() { Ahs::default() } else { Ahs::parse(ahs)? };
        let order = if pdu.immediate { CmdSnOrder::Next } else { self.window.order(pdu.cmd_sn) };
        self.observe("SCSI Command of its tag", |session| session.tags.find(pdu.itt));
        if order == CmdSnOrder::Ignored {
            self.counters.commands_ignored += 1;
        } else if !pdu.immediate && self.is_aborted_early(pdu.cmd_sn, pdu.lun) {
            self.skip_aborted(pdu.cmd_sn, order);
        } else if self.tags.find(pdu.itt).is_some() {
            // Section 11.2.1.8 requires unique tags. A status would be taken for the other task's, so this is
            // one of the few cases for a Reject; its CmdSN does not count as received (section 7.3).
            self.reject(id, RejectReason::TaskInProgress);
        } else if pdu.immediate && self.immediate >= self.config.immediate_max {
            self.reject(id, RejectReason::ImmediateCommandReject);
        } else {
            self.accept_command(id, &pdu, &ahs, order);
        }
        Ok(())
    }

    /// A command that a TMF aborted before it arrived: its CmdSN counts as received, and no task is created.
    fn skip_aborted(&mut self, cmd_sn: Sn, order: CmdSnOrder) {
        self.counters.commands_ignored += 1;
        if order == CmdSnOrder::Ahead {
            return self.window.hold(cmd_sn, Held::Received);
        }
        self.window.advance();
        self.release();
    }

    fn accept_command(&mut self, id: ConnectionId, pdu: &ScsiCommand, ahs: &Ahs<'_>, order: CmdSnOrder) {
        let inbound = Inbound::new(pdu, &self.config.parameters);
        let key = self.tasks.insert(Task {
            connection: id,
            itt: pdu.itt,
            lun: pdu.lun,
            immediate: pdu.immediate,
            announced: false,
            waiting: None,
            lengths: lengths(pdu, ahs),
            inbound,
            outbound: None,
            queued: false,
        });
        self.tags.insert(pdu.itt, key);
        self.immediate += u32::from(pdu.immediate);
        if pdu.data_segment_length > 0 && inbound.fault().is_none() {
            self.set_incoming(id, Incoming::Immediate { key, length: pdu.data_segment_length });
        }
        let command = command(TaskId { key, connection: id }, pdu, ahs);
        match order {
            CmdSnOrder::Ahead => self.hold_command(key, pdu.cmd_sn, command),
            CmdSnOrder::Next | CmdSnOrder::Ignored => self.announce_next(command),
        }
    }

    fn announce_next(&mut self, command: Command) {
        let immediate = command.immediate;
        self.announce(command);
        if !immediate {
            self.window.advance();
            self.release();
        }
    }

    fn announce(&mut self, command: Command) {
        let task = command.task;
        self.counters.commands += 1;
        self.active += u32::from(!command.immediate);
        self.events.push_back(Event::Command(command));
        let Some(entry) = self.tasks.get_mut(task.key) else { return };
        entry.announced = true;
        if let Some(fault) = entry.inbound.fault() {
            self.events.push_back(Event::DataFailed { task, fault });
        }
    }

    fn hold_command(&mut self, key: Key, cmd_sn: Sn, command: Command) {
        if let Some(since) = self.connection(command.task.connection).map(|connection| connection.header_at)
            && let Some(task) = self.tasks.get_mut(key)
        {
            task.waiting = Some(Box::new(HeldCommand { command, since, staged: Vec::new(), overrun: false }));
        }
        self.window.hold(cmd_sn, Held::Command(key));
    }

    /// Delivers what is held for the next CmdSN, and for those after it.
    pub(super) fn release(&mut self) {
        while let Some(held) = self.window.take_next() {
            match held {
                Held::Command(key) => self.release_command(key),
                Held::Request(request) => {
                    self.staged_bytes -= staged_cost(request.data.len());
                    self.carry_out(*request);
                }
                Held::Received => {}
            }
        }
        self.release_tmfs();
    }

    fn release_command(&mut self, key: Key) {
        let Some(waiting) = self.tasks.get_mut(key).and_then(|task| task.waiting.take()) else { return };
        let HeldCommand { command, staged, overrun, .. } = *waiting;
        let task = command.task;
        if overrun {
            return self.refuse_overrun(task, &staged);
        }
        self.announce(command);
        for StagedData { offset, bytes } in staged {
            self.staged_bytes -= staged_cost(bytes.len());
            self.events.push_back(Event::StagedData { task, offset, bytes });
        }
    }

    /// There was no room for the data of a held command: TASK SET FULL, so that the initiator retries (SAM-5
    /// 5.3.1).
    fn refuse_overrun(&mut self, task: TaskId, staged: &[StagedData]) {
        self.staged_bytes -= staged.iter().map(|staged| staged_cost(staged.bytes.len())).sum::<usize>();
        self.active += 1;
        self.respond(task, Response { status: TASK_SET_FULL, ..Response::default() });
    }
}

fn command(task: TaskId, pdu: &ScsiCommand, ahs: &Ahs<'_>) -> Command {
    Command {
        task,
        lun: pdu.lun,
        attribute: pdu.attribute,
        immediate: pdu.immediate,
        read: pdu.read,
        write: pdu.write,
        edtl: pdu.expected_data_transfer_length,
        bidirectional_read_edtl: (pdu.read && pdu.write).then(|| ahs.expected_read_length.unwrap_or(0)),
        immediate_data: pdu.data_segment_length,
        cdb: pdu.cdb,
        long_cdb: ahs.extended_cdb.map(|rest| [&pdu.cdb, rest].concat().into_boxed_slice()),
    }
}

fn lengths(pdu: &ScsiCommand, ahs: &Ahs<'_>) -> ExpectedLengths {
    let edtl = pdu.expected_data_transfer_length;
    let read = match (pdu.read, pdu.write) {
        (true, true) => ahs.expected_read_length.unwrap_or(0),
        (true, false) => edtl,
        (false, _) => 0,
    };
    ExpectedLengths { write: if pdu.write { edtl } else { 0 }, read, bidirectional: pdu.read && pdu.write }
}

/// SAM-5 5.3.1.
const TASK_SET_FULL: u8 = 0x28;
