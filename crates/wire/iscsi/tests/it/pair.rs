//! An initiator and a target, connected.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use iscsi::framing::Framing;
use iscsi::negotiate::{DigestKind, Parameters, SessionType};
use iscsi::pdu::{
    Bhs, Cid, Lun, Pdu, Residual, Sn, TaskAttribute, TaskManagementFunction, TaskManagementResult,
};
use iscsi::{initiator, target};

use crate::disk::{self, Disk};
use crate::wire::{Arrival, Pipe, encode};

/// The driver of the target replies to SendTargets in parts of this length.
pub(crate) const PART_BYTES: usize = 3000;

/// The offset at which a part of this reply starts. The target's driver encodes it as a name.
pub(crate) fn place(name: &str) -> usize {
    name.parse().expect("a name of ours")
}

/// Both state machines, the wires between them, the target's disk, and a record of events.
pub(crate) struct Pair {
    pub(crate) initiator: initiator::Session,
    pub(crate) target: target::Session,
    pub(crate) now: Instant,
    pub(crate) wires: Vec<Wire>,
    pub(crate) disk: Disk,
    /// Number of bytes that arrive together.
    pub(crate) cut: usize,
    /// Buffers of the initiator's commands: data to write, or data read.
    pub(crate) buffers: HashMap<initiator::TaskId, Vec<u8>>,
    /// Command results.
    pub(crate) ended: HashMap<initiator::TaskId, Ended>,
    /// Times per phase of commands with a status.
    pub(crate) times: HashMap<initiator::TaskId, initiator::Times>,
    /// Other events at the initiator.
    pub(crate) initiator_events: Vec<initiator::Event>,
    /// Commands at the target, by their tasks.
    pub(crate) commands: HashMap<target::TaskId, AtTarget>,
    /// Offsets of the commands, in the order in which they reached the disk.
    pub(crate) order: Vec<usize>,
    /// The target's devices are slow to release aborted commands: scenes determine when they do.
    pub(crate) is_slow: bool,
    /// All requests to the target except commands.
    pub(crate) target_events: Vec<target::Event>,
    /// All PDUs sent by the target.
    pub(crate) said: Vec<(usize, Pdu)>,
    /// The target's answer to SendTargets.
    pub(crate) targets: Vec<u8>,
}

pub(crate) struct Wire {
    pub(crate) initiator: initiator::ConnectionId,
    pub(crate) target: target::ConnectionId,
    pub(crate) framing: Framing,
    pub(crate) to_target: Pipe,
    pub(crate) to_initiator: Pipe,
    /// Nothing arrives at the target.
    pub(crate) held: bool,
    /// Nothing reaches the initiator: the scene acts in its place.
    pub(crate) intercepted: bool,
    pub(crate) is_up: bool,
    pub(crate) target_fatal: Option<target::Fatal>,
    pub(crate) initiator_fatal: Option<initiator::Fatal>,
    target_destinations: VecDeque<target::Destination>,
    initiator_destinations: VecDeque<initiator::Destination>,
}

pub(crate) struct AtTarget {
    pub(crate) command: target::Command,
    pub(crate) landing: Vec<u8>,
    pub(crate) outgoing: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Done {
        status: u8,
        sense: Vec<u8>,
        residual: Residual,
        data_in: Vec<u8>,
    },
    Failed(initiator::Failure),
}

/// Parameters of a scene.
pub(crate) struct Setup {
    pub(crate) parameters: Parameters,
    pub(crate) connections: u16,
    pub(crate) window: u32,
    pub(crate) cmd_sn: Sn,
    pub(crate) staged_bytes_max: usize,
    /// The response to ABORT TASK for a finished task.
    pub(crate) abort_of_finished: TaskManagementResult,
    /// The initiator's limit for one PDU; the target's is the parameters' local value.
    pub(crate) initiator_segment_max: u32,
}

impl Setup {
    pub(crate) fn new() -> Setup {
        Setup {
            parameters: Parameters {
                initial_r2t: false,
                local_max_recv_data_segment_length: 8192,
                ..Parameters::defaults(SessionType::Normal)
            },
            connections: 1,
            window: 32,
            cmd_sn: Sn(0xffff_fff0),
            staged_bytes_max: 16 << 20,
            abort_of_finished: TaskManagementResult::TaskDoesNotExist,
            initiator_segment_max: 8192,
        }
    }

    pub(crate) fn with_digests() -> Setup {
        let mut setup = Setup::new();
        setup.parameters.header_digest = DigestKind::Crc32c;
        setup.parameters.data_digest = DigestKind::Crc32c;
        setup
    }

    pub(crate) fn build(self) -> Pair {
        let now = Instant::now();
        let at_target = Parameters {
            peer_max_recv_data_segment_length: self.initiator_segment_max,
            ..self.parameters.clone()
        };
        let config = target::SessionConfig {
            window: self.window,
            staged_bytes_max: self.staged_bytes_max,
            abort_of_finished: self.abort_of_finished,
            ..target::SessionConfig::new(at_target.clone(), self.cmd_sn)
        };
        let target = target::Session::new(config);
        let attached = initiator::SessionConfig {
            parameters: at_target.mirrored(),
            cmd_sn: self.cmd_sn,
            max_cmd_sn: target.max_cmd_sn(),
            tasks_max: 4096,
            nop: initiator::NopPolicy::OF_INITIATOR,
            text_bytes_max: 1 << 20,
        };
        let mut pair = Pair {
            initiator: initiator::Session::new(attached),
            target,
            now,
            wires: Vec::new(),
            disk: Disk::new(),
            cut: usize::MAX,
            buffers: HashMap::new(),
            ended: HashMap::new(),
            times: HashMap::new(),
            initiator_events: Vec::new(),
            commands: HashMap::new(),
            order: Vec::new(),
            is_slow: false,
            target_events: Vec::new(),
            said: Vec::new(),
            targets: b"TargetName=iqn.2026-11.test:one\0".to_vec(),
        };
        (0..self.connections).for_each(|cid| pair.connect(cid, &at_target));
        pair
    }
}

impl Pair {
    /// One connection, no digests, unsolicited data allowed.
    pub(crate) fn new() -> Pair {
        Setup::new().build()
    }

    pub(crate) fn connect(&mut self, cid: u16, at_target: &Parameters) {
        let stat_sn = Sn(0xffff_fffe);
        let target = self.target.add_connection(
            self.now,
            Cid(cid),
            target::ConnectionStart::new(stat_sn, at_target),
        );
        let start = initiator::ConnectionStart {
            exp_stat_sn: stat_sn,
            local_max_recv_data_segment_length: at_target.peer_max_recv_data_segment_length,
            peer_max_recv_data_segment_length: at_target.local_max_recv_data_segment_length,
        };
        let initiator = self.initiator.add_connection(self.now, Cid(cid), start);
        self.wires.push(Wire {
            initiator,
            target,
            framing: Framing::new(at_target),
            to_target: Pipe::default(),
            to_initiator: Pipe::default(),
            held: false,
            intercepted: false,
            is_up: true,
            target_fatal: None,
            initiator_fatal: None,
            target_destinations: VecDeque::new(),
            initiator_destinations: VecDeque::new(),
        });
    }

    // --- actions of the initiator's user

    pub(crate) fn submit(
        &mut self,
        wire: usize,
        cdb: &[u8],
        read_bytes: u32,
        data: &[u8],
    ) -> initiator::TaskId {
        self.submit_to(wire, Lun(0), cdb, read_bytes, data)
    }

    pub(crate) fn submit_to(
        &mut self,
        wire: usize,
        lun: Lun,
        cdb: &[u8],
        read_bytes: u32,
        data: &[u8],
    ) -> initiator::TaskId {
        let command = initiator::Command {
            lun,
            cdb,
            attribute: TaskAttribute::Simple,
            read_bytes,
            write_bytes: data.len() as u32,
        };
        let task = self
            .initiator
            .submit(self.now, self.wires[wire].initiator, &command)
            .expect("there is room");
        let buffer = if data.is_empty() {
            vec![0xee; read_bytes as usize]
        } else {
            data.to_vec()
        };
        self.buffers.insert(task, buffer);
        task
    }

    pub(crate) fn write(&mut self, wire: usize, offset: u32, data: &[u8]) -> initiator::TaskId {
        self.submit(
            wire,
            &disk::cdb(disk::WRITE, offset, data.len() as u32),
            0,
            data,
        )
    }

    pub(crate) fn read(&mut self, wire: usize, offset: u32, length: u32) -> initiator::TaskId {
        self.submit(wire, &disk::cdb(disk::READ, offset, length), length, &[])
    }

    pub(crate) fn hang(&mut self, wire: usize, lun: Lun) -> initiator::TaskId {
        self.submit_to(wire, lun, &disk::cdb(disk::HANG, 0, 0), 0, &[])
    }

    // --- results

    pub(crate) fn status(&self, task: initiator::TaskId) -> Option<u8> {
        match self.ended.get(&task)? {
            Ended::Done { status, .. } => Some(*status),
            Ended::Failed(_) => None,
        }
    }

    pub(crate) fn failure(&self, task: initiator::TaskId) -> Option<initiator::Failure> {
        match self.ended.get(&task)? {
            Ended::Done { .. } => None,
            Ended::Failed(why) => Some(*why),
        }
    }

    pub(crate) fn data(&self, task: initiator::TaskId) -> &[u8] {
        match &self.ended[&task] {
            Ended::Done { data_in, .. } => data_in,
            Ended::Failed(why) => panic!("the command failed: {why:?}"),
        }
    }

    /// PDUs of one kind sent by the target.
    pub(crate) fn said<T>(&self, pick: impl Fn(&Pdu) -> Option<T>) -> Vec<T> {
        self.said.iter().filter_map(|(_, pdu)| pick(pdu)).collect()
    }

    pub(crate) fn rejects(&self) -> Vec<iscsi::pdu::RejectReason> {
        self.said(|pdu| match pdu {
            Pdu::Reject(reject) => Some(reject.reason),
            _ => None,
        })
    }

    pub(crate) fn management_results(&self) -> Vec<TaskManagementResult> {
        self.said(|pdu| match pdu {
            Pdu::TaskManagementResponse(response) => Some(response.result),
            _ => None,
        })
    }

    // --- the environment

    /// Runs both sides until nothing moves.
    pub(crate) fn deliver(&mut self) {
        while self.step() {}
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.tick(time);
        self.deliver();
    }

    /// Advances time, and runs the timeouts of both sides' drivers.
    pub(crate) fn tick(&mut self, time: Duration) {
        self.now += time;
        self.target.handle_timeout(self.now);
        self.target_acts();
        self.initiator.handle_timeout(self.now);
        self.initiator_is_told();
    }

    /// Advances time until the target no longer waits for missing PDUs.
    pub(crate) fn outwait(&mut self) {
        [0, 2, 0, 1, 0, 1]
            .into_iter()
            .for_each(|seconds| self.pass(Duration::from_secs(seconds)));
    }

    /// Breaks the TCP connection for both sides at the same time.
    pub(crate) fn disconnect(&mut self, wire: usize) {
        let wire = &mut self.wires[wire];
        wire.is_up = false;
        wire.to_target = Pipe::default();
        wire.to_initiator = Pipe::default();
        self.target.remove_connection(self.now, wire.target);
        self.initiator.remove_connection(self.now, wire.initiator);
        self.target_acts();
        self.initiator_is_told();
    }

    /// Sends a PDU to the target in the initiator's name.
    pub(crate) fn inject(&mut self, wire: usize, header: &Bhs, data: &[u8]) {
        let bytes = encode(self.wires[wire].framing, header, &[], data);
        self.wires[wire].to_target.pdus.push_back(bytes);
    }

    /// Sends a PDU to the initiator in the target's name.
    pub(crate) fn inject_answer(&mut self, wire: usize, header: &Bhs, data: &[u8]) {
        let bytes = encode(self.wires[wire].framing, header, &[], data);
        self.wires[wire].to_initiator.pdus.push_back(bytes);
    }

    /// Ends a command that hangs.
    pub(crate) fn finish(&mut self, task: target::TaskId) {
        self.target.respond(task, target::Response::default());
    }

    /// The commands of the target's driver, oldest first.
    pub(crate) fn under_way(&self) -> Vec<target::TaskId> {
        let mut tasks: Vec<_> = self.commands.keys().copied().collect();
        tasks.sort_by_key(|task| task.index());
        tasks
    }

    /// Runs one round; returns whether anything moved.
    pub(crate) fn step(&mut self) -> bool {
        let mut moved = false;
        for wire in 0..self.wires.len() {
            moved |= self.initiator_speaks(wire);
            moved |= self.target_hears(wire);
            moved |= self.target_speaks(wire);
            moved |= self.initiator_hears(wire);
        }
        self.target_acts();
        self.initiator_is_told();
        moved
    }

    pub(crate) fn initiator_speaks(&mut self, wire: usize) -> bool {
        let Wire {
            initiator,
            framing,
            is_up: true,
            ..
        } = self.wires[wire]
        else {
            return false;
        };
        let mut moved = false;
        while let Some(transmit) = self.initiator.poll_transmit(self.now, initiator) {
            let data = match transmit.payload {
                initiator::Payload::None => Vec::new(),
                initiator::Payload::Inline(data) => data,
                initiator::Payload::Task {
                    task,
                    offset,
                    length,
                } => self.buffers[&task][offset as usize..(offset + length) as usize].to_vec(),
            };
            let bytes = encode(framing, &transmit.header, &transmit.ahs, &data);
            self.wires[wire].to_target.pdus.push_back(bytes);
            moved = true;
        }
        moved
    }

    pub(crate) fn target_speaks(&mut self, wire: usize) -> bool {
        let Wire {
            target,
            framing,
            is_up: true,
            ..
        } = self.wires[wire]
        else {
            return false;
        };
        let mut moved = false;
        while let Some(transmit) = self.target.poll_transmit(target) {
            let data = match transmit.payload {
                target::Payload::None => Vec::new(),
                target::Payload::Inline(data) => data,
                target::Payload::Task {
                    task,
                    offset,
                    length,
                } => self.commands[&task].outgoing[offset as usize..(offset + length) as usize]
                    .to_vec(),
            };
            if let Some(task) = transmit.last_of {
                self.commands.remove(&task);
            }
            self.said.push((
                wire,
                Pdu::parse(&transmit.header).expect("what a target says is well-formed"),
            ));
            let bytes = encode(framing, &transmit.header, &[], &data);
            if !self.wires[wire].intercepted {
                self.wires[wire].to_initiator.pdus.push_back(bytes);
            }
            moved = true;
        }
        moved
    }

    pub(crate) fn target_hears(&mut self, wire: usize) -> bool {
        if self.wires[wire].held || !self.wires[wire].is_up {
            return false;
        }
        let moved = self.wires[wire].to_target.carry(self.cut);
        loop {
            let Wire {
                target, framing, ..
            } = self.wires[wire];
            let Some(arrival) = self.wires[wire].to_target.next(framing) else {
                return moved;
            };
            let outcome = match arrival {
                Arrival::Header { intact: false, .. } => Err(target::Fatal::HeaderDigest),
                Arrival::Header { bhs, ahs, .. } => self
                    .target
                    .handle_header(self.now, target, &bhs, &ahs)
                    .map(|segment| {
                        if segment.length > 0 {
                            self.wires[wire]
                                .target_destinations
                                .push_back(segment.destination);
                        }
                    }),
                Arrival::Segment { data, intact } => {
                    let place = self.wires[wire]
                        .target_destinations
                        .pop_front()
                        .expect("a header came first");
                    if let target::Destination::Task { task, offset } = place {
                        self.land(task, offset, &data);
                    }
                    let inline = if place == target::Destination::Inline {
                        &data[..]
                    } else {
                        &[]
                    };
                    self.target.handle_segment(self.now, target, intact, inline)
                }
            };
            self.target_acts();
            if let Err(fatal) = outcome {
                self.wires[wire].target_fatal = Some(fatal);
                self.disconnect(wire);
                return true;
            }
        }
    }

    pub(crate) fn initiator_hears(&mut self, wire: usize) -> bool {
        if !self.wires[wire].is_up {
            return false;
        }
        let moved = self.wires[wire].to_initiator.carry(self.cut);
        loop {
            let Wire {
                initiator, framing, ..
            } = self.wires[wire];
            let Some(arrival) = self.wires[wire].to_initiator.next(framing) else {
                return moved;
            };
            let outcome = match arrival {
                Arrival::Header { intact: false, .. } => Err(initiator::Fatal::HeaderDigest),
                Arrival::Header { bhs, ahs, .. } => self
                    .initiator
                    .handle_header(self.now, initiator, &bhs, &ahs)
                    .map(|segment| {
                        if segment.length > 0 {
                            self.wires[wire]
                                .initiator_destinations
                                .push_back(segment.destination);
                        }
                    }),
                Arrival::Segment { data, intact } => {
                    let place = self.wires[wire]
                        .initiator_destinations
                        .pop_front()
                        .expect("a header came first");
                    if let initiator::Destination::Task { task, offset } = place {
                        let offset = offset as usize;
                        // The command may have been aborted since the header. An offset outside the buffer
                        // would make the test panic here.
                        if let Some(buffer) = self.buffers.get_mut(&task) {
                            buffer[offset..offset + data.len()].copy_from_slice(&data);
                        }
                    }
                    let inline = if place == initiator::Destination::Inline {
                        &data[..]
                    } else {
                        &[]
                    };
                    self.initiator
                        .handle_segment(self.now, initiator, intact, inline)
                }
            };
            self.initiator_is_told();
            if let Err(fatal) = outcome {
                self.wires[wire].initiator_fatal = Some(fatal);
                self.disconnect(wire);
                return true;
            }
        }
    }

    fn initiator_is_told(&mut self) {
        while let Some(event) = self.initiator.poll_event() {
            match event {
                initiator::Event::Done {
                    task,
                    status,
                    sense,
                    residual,
                    data_in_bytes,
                    times,
                    ..
                } => {
                    let mut data_in = self.buffers.remove(&task).expect("it ends once");
                    data_in.truncate(data_in_bytes as usize);
                    self.times.insert(task, times);
                    let ended = Ended::Done {
                        status,
                        sense: sense.into_vec(),
                        residual,
                        data_in,
                    };
                    assert_eq!(self.ended.insert(task, ended), None);
                }
                initiator::Event::Failed { task, why } => {
                    self.buffers.remove(&task).expect("it ends once");
                    assert_eq!(self.ended.insert(task, Ended::Failed(why)), None);
                }
                other => self.initiator_events.push(other),
            }
        }
    }

    // --- the target's driver

    fn target_acts(&mut self) {
        while let Some(event) = self.target.poll_event() {
            match event {
                target::Event::Command(command) => self.begin(command),
                target::Event::StagedData {
                    task,
                    offset,
                    ref bytes,
                } => self.land(task, offset, bytes),
                target::Event::DataComplete { task } => self.store(task),
                target::Event::DataFailed { task, .. } => {
                    let response = target::Response {
                        status: 2,
                        sense: disk::SENSE,
                        ..Default::default()
                    };
                    self.target.respond(task, response);
                    self.target_events.push(event);
                }
                target::Event::TaskManagement(request) => {
                    self.manage(&request);
                    self.target_events.push(event);
                }
                target::Event::SendTargets {
                    connection,
                    ref from,
                    ..
                } => {
                    let from = from.as_deref().map_or(0, place);
                    let end = self.targets.len().min(from + PART_BYTES);
                    let next = (end < self.targets.len()).then(|| end.to_string());
                    self.target
                        .text_reply(connection, self.targets[from..end].to_vec(), next);
                    self.target_events.push(event);
                }
                target::Event::TaskGone { task } => {
                    self.commands.remove(&task).expect("the driver knows it");
                    self.target_events.push(event);
                }
                target::Event::LogoutPending { logout } if !self.is_slow => {
                    self.target.logout_done(logout)
                }
                target::Event::LogoutPending { .. } => self.target_events.push(event),
                target::Event::Acknowledged(_) | target::Event::Close { .. } => {
                    self.target_events.push(event)
                }
                target::Event::TransmitReady { .. } => {} // every wire is polled anyway
            }
        }
    }

    fn begin(&mut self, command: target::Command) {
        let task = command.task;
        let disk::Cdb { op, offset, length } = disk::parse(command.cdb());
        let mut at_target = AtTarget {
            command,
            landing: Vec::new(),
            outgoing: Vec::new(),
        };
        let mut response = None;
        match op {
            disk::READ => {
                at_target.outgoing = self.disk.read(offset, length as usize);
                self.order.push(offset);
                let expected = u64::from(length);
                response = Some(target::Response {
                    data_in: length,
                    expected,
                    ..Default::default()
                });
            }
            disk::WRITE => {
                let wanted = length.min(at_target.command.data_out_bytes());
                at_target.landing = vec![0xdd; wanted as usize];
                self.target.expect_data(task, wanted);
            }
            disk::FAIL => {
                response = Some(target::Response {
                    status: 2,
                    sense: disk::SENSE,
                    ..Default::default()
                });
            }
            disk::HANG => {}
            _ => response = Some(target::Response::default()),
        }
        let landed = self.commands.insert(task, at_target);
        assert!(landed.is_none(), "a task begins once");
        if let Some(response) = response {
            self.target.respond(task, response);
        }
    }

    fn land(&mut self, task: target::TaskId, offset: u32, data: &[u8]) {
        // Data beyond the accepted range is dropped, as documented for `Destination::Task`.
        let Some(at_target) = self.commands.get_mut(&task) else {
            return;
        };
        let Some(place) = at_target.landing.get_mut(offset as usize..) else {
            return;
        };
        let count = place.len().min(data.len());
        place[..count].copy_from_slice(&data[..count]);
    }

    fn store(&mut self, task: target::TaskId) {
        let at_target = &self.commands[&task];
        let disk::Cdb { offset, length, .. } = disk::parse(at_target.command.cdb());
        self.disk.write(offset, &at_target.landing);
        self.order.push(offset);
        let response = target::Response {
            expected: u64::from(length),
            ..Default::default()
        };
        self.target.respond(task, response);
    }

    fn manage(&mut self, request: &target::TmfRequest) {
        let doomed: Vec<target::TaskId> = match request.function {
            TaskManagementFunction::AbortTask => request.referenced.into_iter().collect(),
            TaskManagementFunction::LogicalUnitReset | TaskManagementFunction::AbortTaskSet => {
                let of_lun = |(_, at): &(&target::TaskId, &AtTarget)| at.command.lun == request.lun;
                self.commands
                    .iter()
                    .filter(of_lun)
                    .map(|(task, _)| *task)
                    .collect()
            }
            _ => self.commands.keys().copied().collect(),
        };
        for task in doomed {
            self.commands.remove(&task);
            self.target.abort(task);
        }
        self.target
            .tmf_done(request.tmf, TaskManagementResult::FunctionComplete);
    }
}

/// Seeded bytes that all differ from their neighbours.
pub(crate) fn pattern(seed: u32, length: usize) -> Vec<u8> {
    (0..length as u32)
        .map(|i| (i.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 23) as u8)
        .collect()
}
