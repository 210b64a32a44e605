//! Arbitrary input for an initiator's session: nothing panics, no data is transferred outside a command's
//! buffers, and each command completes or fails exactly once.
#![no_main]

use std::collections::HashMap;
use std::time::{Duration, Instant};

use iscsi::initiator::{
    Command, ConnectionId, ConnectionStart, Destination, Event, NopPolicy, Payload, Session,
    SessionConfig, TaskId,
};
use iscsi::negotiate::{Parameters, SessionType};
use iscsi::pdu::{
    BHS_BYTES, Bhs, Cid, LogoutReason, Lun, Pdu, Sn, TaskAttribute, TaskManagementFunction,
};
use libfuzzer_sys::fuzz_target;
use script::Script;

struct Driver {
    session: Session,
    now: Instant,
    connections: Vec<ConnectionId>,
    /// Each task with the number of bytes that it reads and writes.
    tasks: HashMap<TaskId, (u32, u32)>,
    /// Tags that were sent, for the target to answer.
    tags: Vec<u32>,
}

fuzz_target!(|bytes: &[u8]| {
    let mut script = Script(bytes);
    let mut driver = Driver::new(&mut script);
    while !script.is_over() {
        driver.act(&mut script);
        driver.handle_events();
    }
    driver.end();
});

impl Driver {
    fn new(script: &mut Script<'_>) -> Driver {
        let choices = script.byte();
        let parameters = Parameters {
            initial_r2t: choices & 1 == 1,
            immediate_data: choices & 2 == 0,
            max_burst_length: 64,
            first_burst_length: 48,
            max_outstanding_r2t: 2,
            local_max_recv_data_segment_length: 128,
            peer_max_recv_data_segment_length: 40,
            ..Parameters::defaults(SessionType::Normal)
        };
        let mut session = Session::new(SessionConfig {
            parameters,
            cmd_sn: Sn(u32::MAX - 1),
            max_cmd_sn: Sn(6),
            tasks_max: 12,
            nop: NopPolicy::OF_INITIATOR,
            text_bytes_max: 200,
        });
        let start = ConnectionStart {
            exp_stat_sn: Sn(0),
            local_max_recv_data_segment_length: 128,
            peer_max_recv_data_segment_length: 40,
        };
        let now = Instant::now();
        let connections = (0..2)
            .map(|cid| session.add_connection(now, Cid(cid), start))
            .collect();
        Driver {
            session,
            now,
            connections,
            tasks: HashMap::new(),
            tags: Vec::new(),
        }
    }

    fn act(&mut self, script: &mut Script<'_>) {
        let id = self.connections[usize::from(script.byte() & 1)];
        match script.byte() {
            0..150 => self.hear(id, script),
            150..190 => self.submit(id, script),
            190..230 => self.say(id, usize::from(script.byte())),
            230..236 => self.abort(script),
            236..240 => {
                let function = TaskManagementFunction::from(script.byte() & 0x0f);
                let _ = self.session.manage(self.now, id, function, Lun(0));
            }
            240..244 => drop(self.session.ping(id, script.bytes(9))),
            244..247 => drop(self.session.send_targets(id, "All")),
            247..250 => self.pass(Duration::from_secs(script.byte().into())),
            250..252 => drop(
                self.session
                    .log_out(self.now, id, LogoutReason::CloseConnection),
            ),
            252..254 => drop(
                self.session
                    .log_out(self.now, id, LogoutReason::CloseSession),
            ),
            254.. => self.session.remove_connection(self.now, id),
        }
    }

    fn submit(&mut self, id: ConnectionId, script: &mut Script<'_>) {
        let (read_bytes, write_bytes) = match script.byte() {
            0..100 => (u32::from(script.byte()), 0),
            100..200 => (0, u32::from(script.byte())),
            200.. => (u32::from(script.byte()), u32::from(script.byte())),
        };
        let length = if script.byte() < 200 {
            10
        } else {
            usize::from(script.byte())
        };
        let cdb = vec![0x28; length];
        let command = Command {
            lun: Lun(0),
            cdb: &cdb,
            attribute: TaskAttribute::Simple,
            read_bytes,
            write_bytes,
        };
        if let Ok(task) = self.session.submit(self.now, id, &command) {
            assert_eq!(
                self.tasks.insert(task, (read_bytes, write_bytes)),
                None,
                "a task starts once"
            );
        }
    }

    fn hear(&mut self, id: ConnectionId, script: &mut Script<'_>) {
        let bhs = self.header(script);
        let Ok(segment) = self.session.handle_header(self.now, id, &bhs, &[]) else {
            return self.session.remove_connection(self.now, id);
        };
        if let Destination::Task { task, offset } = segment.destination {
            let (read_bytes, _) = self.tasks[&task];
            assert!(
                offset + segment.length <= read_bytes,
                "data outside the command's buffer"
            );
        }
        let data = script.bytes(segment.length as usize);
        let inline = if segment.destination == Destination::Inline {
            data
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
            let Some(transmit) = self.session.poll_transmit(self.now, id) else {
                return;
            };
            Pdu::parse(&transmit.header).expect("our own PDUs are well formed");
            assert_eq!(transmit.header.total_ahs_length(), transmit.ahs.len());
            let length = match transmit.payload {
                Payload::None => 0,
                Payload::Inline(bytes) => bytes.len() as u32,
                Payload::Task {
                    task,
                    offset,
                    length,
                } => {
                    let (_, write_bytes) = self.tasks[&task];
                    assert!(
                        offset + length <= write_bytes,
                        "data outside the command's buffer"
                    );
                    length
                }
            };
            assert_eq!(length, transmit.header.data_segment_length());
            self.tags.push(transmit.header.itt_raw());
        }
    }

    fn abort(&mut self, script: &mut Script<'_>) {
        let place = usize::from(script.byte() % 16);
        let task = self
            .tasks
            .keys()
            .copied()
            .find(|task| task.index() == place);
        if let Some(task) = task {
            let _ = self.session.abort_task(self.now, task);
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.session.handle_timeout(self.now);
    }

    fn handle_events(&mut self) {
        while let Some(event) = self.session.poll_event() {
            match event {
                Event::Done {
                    task,
                    data_in_bytes,
                    ..
                } => {
                    let (read_bytes, _) = self.tasks.remove(&task).expect("it ends once");
                    assert!(data_in_bytes <= read_bytes);
                }
                Event::Failed { task, .. } => drop(self.tasks.remove(&task).expect("it ends once")),
                Event::Managed { .. }
                | Event::Text { .. }
                | Event::Pong { .. }
                | Event::LoggedOut { .. }
                | Event::Message { .. }
                | Event::Close { .. } => {}
            }
        }
    }

    /// Checks that no task is left after all connections are closed.
    fn end(mut self) {
        for id in self.connections.clone() {
            self.session.remove_connection(self.now, id);
        }
        self.handle_events();
        assert_eq!(self.session.in_flight(), 0);
        assert!(self.tasks.is_empty(), "commands that never ended");
    }

    /// Returns a header of a response, with small numbers.
    fn header(&self, script: &mut Script<'_>) -> Bhs {
        const OPCODES: [u8; 16] = [
            0x25, 0x25, 0x25, 0x25, 0x21, 0x21, 0x31, 0x31, 0x31, 0x20, 0x22, 0x24, 0x26, 0x32,
            0x3f, 0x3e,
        ];
        let mut bhs = Bhs([0; BHS_BYTES]);
        bhs.set_u8(0, OPCODES[usize::from(script.byte()) % OPCODES.len()]);
        bhs.set_u8(1, script.byte());
        bhs.set_u24(5, script.segment_length());
        for at in (20..BHS_BYTES).step_by(4) {
            bhs.set_u32(at, script.word());
        }
        let known = self
            .tags
            .get(usize::from(script.byte()))
            .or(self.tags.last());
        bhs.set_u32(16, known.copied().unwrap_or(u32::MAX));
        if script.byte() >= 0xf0 {
            bhs.set_u32(16, script.word());
        }
        bhs
    }
}
