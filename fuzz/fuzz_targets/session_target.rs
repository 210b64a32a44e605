//! Arbitrary input for a target's session on two connections, while its driver responds at arbitrary times:
//! nothing panics, no data exceeds a command's announced length, and each task passed to the driver completes
//! or is aborted exactly once.
#![no_main]

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use iscsi::negotiate::{Parameters, SessionType};
use iscsi::pdu::{BHS_BYTES, Bhs, Cid, Lun, Pdu, Sn, TaskManagementResult};
use iscsi::target::{
    ConnectionId, ConnectionStart, Destination, Event, Notice, Payload, Receipt, Response, Session,
    SessionConfig, TaskId, TmfId,
};
use libfuzzer_sys::fuzz_target;
use script::Script;

const WINDOW: u32 = 6;
const IMMEDIATE_MAX: u32 = 4;

struct Driver {
    session: Session,
    now: Instant,
    connections: Vec<ConnectionId>,
    /// Each task with its announced write length, and the length of its response data.
    tasks: HashMap<TaskId, (u32, u32)>,
    functions: Vec<TmfId>,
    /// Requested receipts that have not arrived.
    receipts: BTreeSet<u64>,
}

fuzz_target!(|bytes: &[u8]| {
    let mut script = Script(bytes);
    let mut driver = Driver::new(&mut script);
    while !script.is_over() {
        driver.act(&mut script);
        driver.handle_events(&mut script);
        assert!(driver.session.commands_in_flight() <= (WINDOW + IMMEDIATE_MAX) as usize);
    }
    driver.end();
});

impl Driver {
    fn new(script: &mut Script<'_>) -> Driver {
        let choices = script.byte();
        let session_type = if choices & 0xf0 == 0xf0 {
            SessionType::Discovery
        } else {
            SessionType::Normal
        };
        let parameters = Parameters {
            initial_r2t: choices & 1 == 1,
            immediate_data: choices & 2 == 0,
            max_burst_length: 64,
            first_burst_length: 48,
            max_outstanding_r2t: 2,
            local_max_recv_data_segment_length: 128,
            peer_max_recv_data_segment_length: 40,
            protocol_level: 1 + u8::from(choices & 4 == 4),
            ..Parameters::defaults(session_type)
        };
        let config = SessionConfig {
            window: WINDOW,
            immediate_max: IMMEDIATE_MAX,
            staged_bytes_max: 150,
            text_bytes_max: 200,
            ..SessionConfig::new(parameters.clone(), Sn(u32::MAX - 1))
        };
        let (mut session, now) = (Session::new(config), Instant::now());
        let connections = (0..2)
            .map(|cid| {
                session.add_connection(now, Cid(cid), ConnectionStart::new(Sn(0), &parameters))
            })
            .collect();
        let (tasks, functions, receipts) = (HashMap::new(), Vec::new(), BTreeSet::new());
        Driver {
            session,
            now,
            connections,
            tasks,
            functions,
            receipts,
        }
    }

    fn act(&mut self, script: &mut Script<'_>) {
        let id = self.connections[usize::from(script.byte() & 1)];
        match script.byte() {
            0..200 => self.hear(id, script),
            200..225 => self.say(id, usize::from(script.byte())),
            225..235 => self.answer(script),
            235..240 => self.abort(script),
            240..245 => self.finish_function(),
            245..248 => self.pass(Duration::from_secs(script.byte().into())),
            248..250 => {
                let next = script.flag().then(|| "iqn.next".to_owned());
                self.session.text_reply(id, script.text(), next);
            }
            250..252 => self.session.notify(
                self.now,
                id,
                Notice::Scsi {
                    lun: Lun(0),
                    sense: script.bytes(18),
                },
            ),
            252..254 => self
                .session
                .request_logout(self.now, Duration::from_secs(5)),
            254.. => self.session.remove_connection(self.now, id),
        }
    }

    /// Receives a PDU; the driver gets its events between header and data.
    fn hear(&mut self, id: ConnectionId, script: &mut Script<'_>) {
        let bhs = header(script);
        let ahs = script.bytes(bhs.total_ahs_length()).to_vec();
        if ahs.len() < bhs.total_ahs_length() {
            return;
        }
        let Ok(segment) = self.session.handle_header(self.now, id, &bhs, &ahs) else {
            return self.session.remove_connection(self.now, id);
        };
        self.handle_events(script);
        let data = vec![0x5a; segment.length as usize];
        if let Destination::Task { task, offset } = segment.destination
            && let Some((announced, _)) = self.tasks.get(&task)
        {
            assert!(
                offset + segment.length <= *announced,
                "data beyond the announced length"
            );
        }
        let inline = if segment.destination == Destination::Inline {
            &data[..]
        } else {
            &[]
        };
        if segment.length > 0
            && self
                .session
                .handle_segment(self.now, id, script.byte() < 250, inline)
                .is_err()
        {
            self.session.remove_connection(self.now, id);
        }
    }

    fn say(&mut self, id: ConnectionId, most: usize) {
        for _ in 0..most {
            let Some(transmit) = self.session.poll_transmit(id) else {
                return;
            };
            Pdu::parse(&transmit.header).expect("our own PDUs are well formed");
            let length = match transmit.payload {
                Payload::None => 0,
                Payload::Inline(bytes) => bytes.len() as u32,
                Payload::Task {
                    task,
                    offset,
                    length,
                } => {
                    let (_, answered) = self.tasks[&task];
                    assert!(
                        offset + length <= answered,
                        "data beyond the driver's response"
                    );
                    length
                }
            };
            assert_eq!(length, transmit.header.data_segment_length());
            if let Some(task) = transmit.last_of {
                // The state machine answers some commands itself, without passing them to the driver.
                self.tasks.remove(&task);
            }
        }
    }

    fn handle_events(&mut self, script: &mut Script<'_>) {
        while let Some(event) = self.session.poll_event() {
            match event {
                Event::Command(command) => {
                    let known = self
                        .tasks
                        .insert(command.task, (command.data_out_bytes(), 0));
                    assert_eq!(known, None, "a task starts once");
                    match script.byte() {
                        0..128 => self.session.expect_data(command.task, script.byte().into()),
                        128..200 => self.respond(command.task, script),
                        200.. => {}
                    }
                }
                Event::StagedData {
                    task,
                    offset,
                    bytes,
                } => {
                    assert!(offset as usize + bytes.len() <= self.tasks[&task].0 as usize);
                }
                Event::DataComplete { task } | Event::DataFailed { task, .. } => {
                    self.respond(task, script)
                }
                Event::TaskManagement(request) => self.functions.push(request.tmf),
                Event::SendTargets { connection, .. } if script.flag() => {
                    let next = script.flag().then(|| "iqn.next".to_owned());
                    self.session.text_reply(connection, script.text(), next);
                }
                Event::TaskGone { task } => drop(self.tasks.remove(&task)),
                Event::LogoutPending { logout } => self.session.logout_done(logout),
                Event::Acknowledged(Receipt { value, .. }) => {
                    assert!(
                        self.receipts.remove(&value),
                        "a response with this receipt is acknowledged once"
                    );
                }
                Event::SendTargets { .. } | Event::TransmitReady { .. } | Event::Close { .. } => {}
            }
        }
    }

    fn respond(&mut self, task: TaskId, script: &mut Script<'_>) {
        let Some((_, answered)) = self.tasks.get_mut(&task) else {
            return;
        };
        let data_in = u32::from(script.byte());
        *answered = (*answered).max(data_in);
        let status = if script.byte() < 200 { 0 } else { 2 };
        let sense = if status == 2 { script.bytes(18) } else { &[] };
        let value = self.receipts.last().map_or(0, |last| last + 1);
        let receipt = (status == 2).then_some(Receipt { subject: 0, value });
        self.receipts.extend(receipt.map(|receipt| receipt.value));
        let expected = script.byte().into();
        self.session.respond(
            task,
            Response {
                status,
                sense,
                data_in,
                expected,
                receipt,
            },
        );
    }

    fn answer(&mut self, script: &mut Script<'_>) {
        if let Some(task) = self.some_task(script) {
            self.respond(task, script);
        }
    }

    fn abort(&mut self, script: &mut Script<'_>) {
        if let Some(task) = self.some_task(script) {
            self.session.abort(task);
            self.tasks.remove(&task);
        }
    }

    /// Chooses a task by position, so that a script is reproducible.
    fn some_task(&self, script: &mut Script<'_>) -> Option<TaskId> {
        let place = usize::from(script.byte() % 10);
        self.tasks
            .keys()
            .copied()
            .find(|task| task.index() == place)
    }

    fn finish_function(&mut self) {
        if let Some(tmf) = self.functions.pop() {
            self.session
                .tmf_done(tmf, TaskManagementResult::FunctionComplete);
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.session.handle_timeout(self.now);
    }

    /// Checks that no task is left after all connections are closed.
    fn end(mut self) {
        for id in self.connections.clone() {
            self.session.remove_connection(self.now, id);
        }
        self.handle_events(&mut Script(&[]));
        assert_eq!(self.session.commands_in_flight(), 0);
        assert!(
            self.tasks.is_empty(),
            "tasks whose end was never reported to the driver"
        );
    }
}

/// Returns a header with small numbers, so that tags, CmdSNs and offsets match existing ones.
fn header(script: &mut Script<'_>) -> Bhs {
    const OPCODES: [u8; 16] = [
        1, 1, 1, 5, 5, 5, 2, 2, 0, 0x40, 4, 6, 0x10, 0x41, 0x42, 0x1f,
    ];
    let mut bhs = Bhs([0; BHS_BYTES]);
    bhs.set_u8(0, OPCODES[usize::from(script.byte()) % OPCODES.len()]);
    bhs.set_u8(1, script.byte());
    bhs.set_u24(5, script.segment_length());
    for at in (16..BHS_BYTES).step_by(4) {
        bhs.set_u32(at, script.word());
    }
    if script.byte() >= 0xf8 {
        let at = usize::from(script.byte()) % BHS_BYTES;
        let value = script.byte();
        bhs.set_u8(at, value);
    }
    bhs
}
