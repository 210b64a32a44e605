//! A server with one LUN: the wire crate's target state machine over datagrams, and a logical unit over a
//! disk.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::task::{Poll, Waker};
use std::time::Duration;

use block::{BlockDevice, BlockSize, Buffer};
use front_end_core::{ListenAddress, Portal};
use hyperscsi::target::{Admission, Config, Directory, Event, SessionId, TaskId};
use hyperscsi::{Command, ETHERTYPE, Function, FunctionResult, Psk, Refusal, Response, Target};
use hyperscsi_server::{Access, HYPERSCSI, HyperScsi};
use logical_unit::{
    CommandIn, Data, DataIn, Identity, InitiatorPort, Landing, LogicalUnit, LogicalUnitOptions,
    Nexus, Plan, Reply, Running, SessionTraits, SiblingUnits, Step, TargetPort,
};
use reactor::{
    DatagramAddress, DatagramBatch, DatagramEndpoint, DatagramOptions, Datagrams, JoinHandle,
    OutDatagram, OutSlice, StreamOptions,
};
use testkit::TestDisk;
use volume::{Volume, VolumeOptions};

pub(crate) const TARGET: &str = "iqn.2026-11.test:disk";

/// Access control, and faults of the server.
#[derive(Clone, Default)]
pub(crate) struct Rules {
    pub(crate) secret: Option<&'static str>,
    pub(crate) is_hidden: bool,
    /// Whether READs end with GOOD, but return only half of their data.
    pub(crate) shortens_reads: bool,
    /// Whether the target disconnects each session at its first command.
    pub(crate) ends_sessions: Rc<Cell<bool>>,
}

impl Directory<DatagramAddress> for Rules {
    fn admit(&self, _: &str, target: &str, _: &DatagramAddress) -> Result<Admission, Refusal> {
        if target != TARGET {
            return Err(Refusal::UnknownTarget);
        }
        Ok(self.secret.map_or(Admission::Open, |secret| {
            Admission::Key(Psk::from_secret(secret.as_bytes()))
        }))
    }

    fn targets(&self, _: &DatagramAddress) -> Vec<String> {
        if self.is_hidden {
            Vec::new()
        } else {
            vec![TARGET.to_owned()]
        }
    }
}

/// A disk whose requests take up to 3 ms.
pub(crate) fn slow_disk(seed: u64, blocks: usize) -> Arc<TestDisk> {
    let disk = TestDisk::new(BlockSize::B512, blocks as u64);
    Arc::new(disk.slow(seed, Duration::from_millis(3)))
}

/// A disk that responds immediately.
pub(crate) fn fast_disk(blocks: usize) -> Arc<TestDisk> {
    Arc::new(TestDisk::new(BlockSize::B512, blocks as u64))
}

/// Creates a logical unit whose cache has this generation.
pub(crate) fn unit(disk: &Arc<TestDisk>, generation: u8) -> Arc<LogicalUnit> {
    let identity = Identity::new(*b"hyperscsi client");
    let options = LogicalUnitOptions {
        identity,
        removable: false,
        thin: None,
    };
    let device: Arc<dyn BlockDevice> = Arc::clone(disk) as _;
    let of_volume = VolumeOptions {
        cache_generation: Some([generation; 16]),
        ..VolumeOptions::default()
    };
    let volume = Volume::new(device, of_volume).expect("nothing was saved");
    LogicalUnit::new(volume, options).expect("nothing was saved")
}

/// A running server. Dropping it acts like killing its process: peers are not notified.
pub(crate) struct Server(Option<JoinHandle<()>>);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(JoinHandle::abort);
    }
}

/// Starts a server on an interface of the simulated Ethernet.
pub(crate) fn on_interface(name: &str, unit: Arc<LogicalUnit>, rules: Rules) -> Server {
    let interface = name.to_owned();
    let endpoint = DatagramEndpoint::Ethernet {
        interface,
        ether_type: ETHERTYPE,
    };
    on(vec![open(endpoint)], unit, rules)
}

pub(crate) fn open(endpoint: DatagramEndpoint) -> Box<dyn Datagrams> {
    reactor::world()
        .datagrams(&options(endpoint))
        .expect("an endpoint")
}

fn options(endpoint: DatagramEndpoint) -> DatagramOptions {
    DatagramOptions {
        endpoint,
        receive_buffer_bytes: None,
        ring: None,
        payload_bytes_min: 0,
        share: None,
    }
}

/// Runs Linerate's server as a task. It has a target without LUNs.
pub(crate) fn ours(interface: &str, random: fn(&mut [u8])) -> Arc<front_end_core::Server> {
    let (access, keys) = (Access::default(), BTreeMap::new());
    let target = hyperscsi_server::Target {
        name: TARGET.to_owned(),
        exports: Vec::new(),
        access,
        keys,
    };
    let config = hyperscsi_server::Config {
        targets: vec![Arc::new(target)],
        random,
    };
    let endpoint = DatagramEndpoint::Ethernet {
        interface: interface.to_owned(),
        ether_type: ETHERTYPE,
    };
    let portal = Portal {
        front_end: HYPERSCSI,
        listen: ListenAddress::Datagrams(options(endpoint)),
        tag: 1,
        advertise: None,
        stream: StreamOptions::default(),
    };
    let (volumes, limits) = (Vec::new(), front_end_core::Limits::default());
    let of_server = front_end_core::Config {
        volumes,
        portals: vec![portal],
        limits,
    };
    let (server, cores) =
        front_end_core::Server::new(of_server, 1, vec![HyperScsi::new(config) as _]);
    for core in cores {
        drop(reactor::spawn(async move {
            let (bound, _heard) = mpsc::channel();
            core.run(bound).await;
        }));
    }
    server.open();
    server
}

/// Starts a server on these endpoints.
pub(crate) fn on(
    endpoints: Vec<Box<dyn Datagrams>>,
    unit: Arc<LogicalUnit>,
    rules: Rules,
) -> Server {
    // The sessions of each server have different numbers, as those of different processes do.
    let mut seed = [0; 32];
    LIVES.with_borrow_mut(|lives| {
        *lives += 1;
        seed[..8].copy_from_slice(&lives.to_le_bytes());
    });
    let core = Core {
        endpoints,
        shortens_reads: rules.shortens_reads,
        ends_sessions: Rc::clone(&rules.ends_sessions),
        machine: Target::new(Config::default(), rules, seed),
        unit,
        sessions: BTreeMap::new(),
        running: BTreeMap::new(),
        done: Rc::default(),
    };
    Server(Some(reactor::spawn(core.run())))
}

thread_local! {
    static LIVES: RefCell<u64> = const { RefCell::new(0) };
}

struct OneLun;

impl SiblingUnits for OneLun {
    fn luns(&self) -> Vec<u64> {
        vec![0]
    }

    fn by_designator(&self, _: &[u8]) -> Option<Arc<LogicalUnit>> {
        None
    }

    fn luns_reported(&self) {}
}

enum Done {
    Command(TaskId, Response),
    Function(TaskId, FunctionResult),
    Quiesced(SessionId),
}

#[derive(Default)]
struct Mailbox {
    done: Vec<Done>,
    waker: Option<Waker>,
}

struct Core {
    endpoints: Vec<Box<dyn Datagrams>>,
    machine: Target<DatagramAddress, Rules>,
    unit: Arc<LogicalUnit>,
    shortens_reads: bool,
    ends_sessions: Rc<Cell<bool>>,
    sessions: BTreeMap<SessionId, Rc<RefCell<Nexus>>>,
    running: BTreeMap<TaskId, JoinHandle<()>>,
    done: Rc<RefCell<Mailbox>>,
}

impl Core {
    async fn run(mut self) {
        let longest = self
            .endpoints
            .iter()
            .map(|endpoint| endpoint.payload_bytes_max())
            .max()
            .unwrap_or(0);
        let mut batch = DatagramBatch::new(64, longest.min(hyperscsi::FRAME_BYTES_MAX));
        let (mut frame, mut timer) = (Vec::new(), None);
        poll_fn(|cx| {
            let now = reactor::now();
            self.done.borrow_mut().waker = Some(cx.waker().clone());
            for endpoint in &self.endpoints {
                while endpoint.poll_receivable(cx).is_ready() {
                    let received = endpoint.try_receive(&mut batch).unwrap_or(0);
                    for index in 0..received {
                        if let Some((from, bytes)) = batch.get_mut(index) {
                            self.machine.handle_frame(now, &from, bytes);
                        }
                    }
                }
            }
            if self.machine.poll_timeout().is_some_and(|at| at <= now) {
                self.machine.handle_timeout(now);
            }
            loop {
                let done = std::mem::take(&mut self.done.borrow_mut().done);
                let is_idle = done.is_empty();
                done.into_iter().for_each(|done| self.end(done));
                let mut is_any = false;
                while let Some(event) = self.machine.poll_event() {
                    is_any = true;
                    self.handle(event);
                }
                if is_idle && !is_any {
                    break;
                }
            }
            while let Some(to) = self.machine.poll_transmit(now, &mut frame) {
                // Every address belongs to one endpoint. The other endpoints drop the frame.
                for endpoint in &self.endpoints {
                    let payload = [OutSlice::Bytes(&frame)];
                    let _ = endpoint.try_send(&[OutDatagram {
                        to,
                        payload: &payload,
                    }]);
                }
            }
            timer = self.machine.poll_timeout().map(reactor::sleep_until);
            if let Some(timer) = &mut timer
                && Pin::new(timer).poll(cx).is_ready()
            {
                cx.waker().wake_by_ref();
            }
            Poll::<()>::Pending
        })
        .await;
    }

    fn end(&mut self, done: Done) {
        match done {
            Done::Command(task, response) => {
                self.running.remove(&task);
                self.machine.respond(task, response);
            }
            Done::Function(task, result) => _ = self.machine.function_done(task, result),
            Done::Quiesced(session) => self.machine.quiesced(session),
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::SessionBegan {
                session, initiator, ..
            } => {
                let initiator = InitiatorPort {
                    name: initiator,
                    qualifier: [0; 6],
                };
                let port = TargetPort {
                    name: TARGET.to_owned(),
                    group: 1,
                    relative_port: 1,
                };
                let nexus = self.unit.attach(
                    Arc::new(SessionTraits::new(initiator, port, reactor::now)),
                    reactor::now(),
                );
                self.sessions.insert(session, Rc::new(RefCell::new(nexus)));
            }
            Event::SessionEnded { session, .. } => {
                self.sessions.remove(&session);
                self.abort(|task| task.session == session);
                self.quiesce(Done::Quiesced(session));
            }
            Event::Command { task, .. } if self.ends_sessions.get() => {
                self.machine.disconnect(reactor::now(), task.session);
            }
            Event::Command { task, command } => {
                let Some(nexus) = self.sessions.get(&task.session).cloned() else {
                    return;
                };
                let (unit, done) = (Arc::clone(&self.unit), Rc::clone(&self.done));
                let is_shortened = self.shortens_reads && command.cdb[0] == 0x88;
                let running = reactor::spawn(async move {
                    let mut response = carry_out(&unit, &nexus, command).await;
                    if is_shortened {
                        response.data.truncate(response.data.len() / 2);
                    }
                    tell(&done, Done::Command(task, response));
                });
                self.running.insert(task, running);
            }
            Event::Function {
                task,
                function,
                referenced,
                ..
            } => {
                let aborted = match function {
                    Function::AbortTask => self.abort(|other| Some(other) == referenced),
                    Function::LogicalUnitReset | Function::TargetReset => {
                        self.unit.reset();
                        self.abort(|_| true)
                    }
                    _ => self.abort(|other| other.session == task.session),
                };
                for task in aborted {
                    self.machine.respond(task, Response::task_aborted());
                }
                self.quiesce(Done::Function(task, FunctionResult::Complete));
            }
            // Ignore the other events that a front end may get.
            #[allow(unreachable_patterns)]
            _ => {}
        }
    }

    fn abort(&mut self, is_meant: impl Fn(TaskId) -> bool) -> Vec<TaskId> {
        let aborted: Vec<TaskId> = self
            .running
            .keys()
            .copied()
            .filter(|task| is_meant(*task))
            .collect();
        for task in &aborted {
            self.running
                .remove(task)
                .into_iter()
                .for_each(JoinHandle::abort);
        }
        aborted
    }

    fn quiesce(&self, then: Done) {
        let (volume, done) = (Arc::clone(self.unit.volume()), Rc::clone(&self.done));
        drop(reactor::spawn(async move {
            volume.quiesced().await;
            tell(&done, then);
        }));
    }
}

fn tell(mailbox: &RefCell<Mailbox>, done: Done) {
    let mut mailbox = mailbox.borrow_mut();
    mailbox.done.push(done);
    mailbox.waker.take().into_iter().for_each(Waker::wake);
}

async fn carry_out(unit: &Arc<LogicalUnit>, nexus: &RefCell<Nexus>, command: Command) -> Response {
    let Command {
        lun,
        cdb,
        data_in_bytes,
        data_out,
        ..
    } = command;
    if lun != [0; 8] {
        // Commands to a missing LUN end with CHECK CONDITION, ILLEGAL REQUEST, LOGICAL UNIT NOT SUPPORTED.
        // INQUIRY succeeds, and reports that the LUN is missing.
        return match cdb[0] {
            0x12 => {
                let data = [&[0x7f, 0, 6, 2, 31][..], &[0; 31]].concat().into();
                Response {
                    data,
                    ..Response::default()
                }
            }
            _ => {
                let sense = [
                    &[0x70, 0, 5, 0, 0, 0, 0, 10][..],
                    &[0, 0, 0, 0, 0x25, 0, 0, 0, 0, 0],
                ]
                .concat();
                Response {
                    status: 2,
                    sense,
                    ..Response::default()
                }
            }
        };
    }
    let luns: Arc<dyn SiblingUnits> = Arc::new(OneLun);
    let arrives = CommandIn {
        cdb: &cdb,
        data_out_bytes: data_out.len() as u32,
        data_in_bytes,
        luns: &luns,
        stage: true,
    };
    let plan = unit.begin(&mut nexus.borrow_mut(), &arrives);
    let (job, data) = match plan {
        Plan::Reply(reply) => return response(reply, data_in_bytes, data_out.len()),
        Plan::Run(job) => (job, Data::None),
        Plan::Receive(receive) => {
            let data = &data_out[..receive.bytes as usize];
            match receive.place {
                Landing::Memory(mut blocks) => {
                    blocks.put(0, data);
                    (receive.job, Data::Placed)
                }
                Landing::Buffer => (receive.job, Data::Buffer(Buffer::from(data))),
            }
        }
    };
    let reply = match unit.finish(job, data) {
        Step::Now(reply) => reply,
        Step::Later(Running { reply, watch }) => {
            let reply = reply.await;
            nexus.borrow().note_told(watch.reported_losses());
            reply
        }
        Step::Lasting { reply, work } => {
            drop(reactor::spawn(work));
            reply.await
        }
    };
    response(reply, data_in_bytes, data_out.len())
}

fn response(reply: Reply, room: u32, sent: usize) -> Response {
    let data = match reply.data {
        DataIn::None => Vec::new(),
        DataIn::Bytes(bytes) => bytes,
        DataIn::Buffer(buffer) => buffer.to_vec(),
        DataIn::Region(region, _lock) => {
            let mut bytes = vec![0; region.len()];
            region.load(0, &mut bytes);
            bytes
        }
    };
    let expected = if sent > 0 {
        sent as i64
    } else {
        i64::from(room)
    };
    Response {
        status: reply.status as u8,
        residual: reply.expected_bytes as i64 - expected,
        sense: reply
            .sense
            .map(|sense| sense.bytes().to_vec())
            .unwrap_or_default(),
        data: data.into(),
    }
}
