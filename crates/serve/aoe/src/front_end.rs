//! AoE as a front end: the state shared by all cores, and each core's own part, which receives and sends
//! frames and keeps track of the stations. All portals are on the first core, which therefore does all of the
//! work.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use aoe::{Address, Body, Config as ConfigQuery, ErrorCode, Frame, Header, Reserve};
use block::Lock;
use front_end_core::{
    AbortOrder, Accepted, AddressBlock, Budget, Charge, CoreFrontEnd, CoreHandle, CoreStatistics,
    CoreTally, FrontEnd, HostNames, Phase, Portal, Requests, RunningCore, Server, SessionCounts,
    SlowHolder, Traffic, VolumeTally,
};
use reactor::{
    DatagramAddress, DatagramBatch, Datagrams, MacAddress, OutDatagram, OutSlice, Sender,
};
use volume::{AttachmentId, Departed, HostPath, HostPort, Requester, ServicePort, Volume};

use crate::history::{ReportedLosses, Writers, Writes};
use crate::slot::{Config, Slot, SlotState};

/// The name of this front end in [`Portal::front_end`](front_end_core::Portal::front_end).
pub const AOE: &str = "aoe";

/// The AoE front end: slots, and the settings that hosts have made.
pub struct Aoe {
    /// The current configuration. A change replaces it.
    config: Lock<Arc<Config>>,
    /// The settings that hosts have made at each served address. They are kept only in memory.
    states: Lock<BTreeMap<Address, Arc<Lock<SlotState>>>>,
    /// The labels of hosts for monitoring.
    names: HostNames,
}

impl Aoe {
    /// Creates a front end that serves these slots.
    pub fn new(config: Config) -> Arc<Aoe> {
        let config = Lock::new(Arc::new(config));
        Arc::new(Aoe {
            config,
            states: Lock::default(),
            names: HostNames::default(),
        })
    }

    /// The current configuration.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.lock())
    }

    /// Replaces the configuration. Must be called within [`Server::reconfigure`], which then makes each core
    /// adapt. The settings of hosts are kept for addresses that remain.
    pub fn adopt(&self, config: Config) {
        self.states
            .lock()
            .retain(|address, _| config.slots.iter().any(|slot| slot.address == *address));
        *self.config.lock() = Arc::new(config);
    }

    /// Returns the stations that currently use a slot. Blocks for up to one second, so reactor threads must
    /// not call it.
    pub fn stations(&self, server: &Server) -> Vec<StationStatus> {
        let status =
            |local: &Rc<RunningCore>| local.front_end::<CoreShelves>().map(|core| core.status());
        server
            .ask_cores(Duration::from_secs(1), status)
            .into_iter()
            .flatten()
            .flatten()
            .flatten()
            .collect()
    }

    /// Returns the settings that hosts have made at an address.
    fn state(&self, address: Address) -> Arc<Lock<SlotState>> {
        Arc::clone(self.states.lock().entry(address).or_default())
    }
}

impl FrontEnd for Aoe {
    fn name(&self) -> &'static str {
        AOE
    }

    fn begin(self: Arc<Self>, handle: CoreHandle) -> Rc<dyn CoreFrontEnd> {
        Rc::new(CoreShelves::new(self, handle))
    }

    /// Always false, because the protocol has no logins.
    fn has_sessions(&self, _: AddressBlock) -> bool {
        false
    }

    /// Does nothing, because hosts poll the size with IDENTIFY DEVICE.
    fn volume_grew(&self, _: &Arc<Volume>) {}
}

/// Maximum number of frames received before outgoing frames are sent.
const BATCH: usize = 64;
/// Idle time after which a station is removed.
const IDLE: Duration = Duration::from_secs(60);
/// Maximum number of stations at one slot. If a further station appears, the station that has been idle
/// longest is removed.
const STATIONS_MAX: usize = 256;
/// The firmware version reported by the server: the AoE release that it implements.
const FIRMWARE: u16 = 11;

/// State shared by the tasks of a core.
pub(crate) struct CoreShelves {
    front_end: Arc<Aoe>,
    handle: CoreHandle,
    slots: RefCell<Vec<Rc<CoreSlot>>>,
    /// Memory for the data of commands.
    pub(crate) memory: Rc<Budget>,
    tally: CoreTally,
    /// Counts the stations, at all slots, whose recent replies are kept.
    writers: Writers,
}

/// A slot. All stations share one attachment to its volume, so reservations between stations are enforced
/// here.
pub(crate) struct CoreSlot {
    pub(crate) address: Address,
    pub(crate) volume: Arc<Volume>,
    /// The configuration of the slot. It is replaced when the configuration changes.
    settings: RefCell<Arc<Slot>>,
    /// Held by the task of each command. It is replaced on an abort, so that the end of the earlier tasks can
    /// be detected.
    pub(crate) running: RefCell<Rc<()>>,
    name: String,
    pub(crate) requests: Requests,
    path: HostPath,
    state: Arc<Lock<SlotState>>,
    pub(crate) tally: Rc<VolumeTally>,
    stations: RefCell<BTreeMap<MacAddress, Rc<Station>>>,
    /// The losses reported to departed stations.
    departed: RefCell<Departed<MacAddress, ReportedLosses>>,
}

/// A host that sends commands to a slot.
pub(crate) struct Station {
    pub(crate) address: MacAddress,
    counted_as: Arc<str>,
    pub(crate) running: Cell<usize>,
    pub(crate) writes: RefCell<Writes>,
    pub(crate) told: Cell<ReportedLosses>,
    pub(crate) traffic: Cell<Traffic>,
    since: Instant,
    heard: Cell<Instant>,
}

/// The status of a station.
#[derive(Clone, Debug)]
pub struct StationStatus {
    /// Its MAC address.
    pub station: MacAddress,
    /// The slot that it uses.
    pub slot: Address,
    /// Time since its first command.
    pub age: Duration,
    /// The core that serves it.
    pub core: usize,
    /// Outstanding commands.
    pub in_flight: usize,
    /// Its traffic.
    pub traffic: Traffic,
}

impl CoreShelves {
    fn new(front_end: Arc<Aoe>, handle: CoreHandle) -> CoreShelves {
        let limits = front_end.config().limits;
        let memory = Budget::new(limits.staging_bytes, Some(Rc::clone(&handle.memory)));
        let slots = RefCell::default();
        let (tally, writers) = (CoreTally::default(), Writers::default());
        let core = CoreShelves {
            front_end,
            handle,
            slots,
            memory,
            tally,
            writers,
        };
        drop(core.take_slots());
        core
    }

    /// Switches to the slots of the current configuration. Returns removed slots, and slots whose commands
    /// must be aborted.
    fn take_slots(&self) -> Vec<Rc<CoreSlot>> {
        let (config, volumes) = (self.front_end.config(), self.handle.server.volumes());
        let mut slots = self.slots.borrow_mut();
        let mut before = std::mem::take(&mut *slots);
        let mut ending = Vec::new();
        for slot in config
            .slots
            .iter()
            .filter(|slot| volumes.contains(&slot.volume))
        {
            let is_same = |core: &Rc<CoreSlot>| {
                core.address == slot.address && Arc::ptr_eq(&core.volume, &slot.volume)
            };
            let Some(place) = before.iter().position(is_same) else {
                slots.push(Rc::new(self.core_slot(slot)));
                continue;
            };
            let core = before.swap_remove(place);
            let old = core.settings.replace(Arc::clone(slot));
            let gone = core.without_those_not_admitted();
            gone.iter().for_each(|station| self.see_off(&core, station));
            // All commands of a slot belong to one attachment, so they can only be aborted together.
            let is_cut_off = gone.iter().any(|station| station.running.get() > 0);
            if is_cut_off || old.read_only != slot.read_only {
                ending.push(Rc::clone(&core));
            }
            slots.push(core);
        }
        for slot in &before {
            slot.stations
                .take()
                .values()
                .for_each(|station| self.see_off(slot, station));
            slot.volume
                .end_reservation(Some(slot.requests.attachment()));
        }
        ending.append(&mut before);
        debug_assert!(
            (1..slots.len()).all(|at| slots[..at]
                .iter()
                .all(|other| other.address != slots[at].address)),
            "an address has one slot"
        );
        ending
    }

    fn core_slot(&self, slot: &Arc<Slot>) -> CoreSlot {
        let name = slot.name();
        let path = HostPath {
            host: HostPort {
                name: format!("{AOE}:{name}"),
                qualifier: [0; 6],
            },
            service: ServicePort {
                name: format!("{AOE}:{name}"),
                group: 1,
                relative_port: 1,
            },
        };
        let requests = Requests::new(Arc::clone(&slot.volume), AttachmentId::next(), path.clone());
        CoreSlot {
            address: slot.address,
            volume: Arc::clone(&slot.volume),
            settings: RefCell::new(Arc::clone(slot)),
            running: RefCell::default(),
            name,
            requests,
            path,
            state: self.front_end.state(slot.address),
            tally: self.tally.volume(&slot.volume),
            stations: RefCell::default(),
            departed: RefCell::default(),
        }
    }

    fn status(&self) -> Vec<StationStatus> {
        let now = reactor::now();
        let of_slot = |core_slot: &Rc<CoreSlot>| {
            let status = |station: &Rc<Station>| StationStatus {
                station: station.address,
                slot: core_slot.address,
                age: now.saturating_duration_since(station.since),
                core: self.handle.core,
                in_flight: station.running.get(),
                traffic: station.traffic.get(),
            };
            core_slot
                .stations
                .borrow()
                .values()
                .map(status)
                .collect::<Vec<_>>()
        };
        self.slots.borrow().iter().flat_map(of_slot).collect()
    }

    pub(crate) fn commands_max(&self) -> u16 {
        self.front_end.config().limits.commands
    }

    async fn serve(self: Rc<Self>, portal: Portal, mut datagrams: Box<dyn Datagrams>) {
        let outgoing = Rc::new(Outgoing::default());
        loop {
            let error = self.serve_while_up(&*datagrams, &outgoing).await;
            tracing::warn!(portal = %portal.listen, %error, "an interface has failed");
            if let Some(again) = portal.open_again().await {
                datagrams = again;
            }
            tracing::info!(portal = %portal.listen, "the interface works again");
        }
    }

    /// Serves an interface until it fails, and returns the error.
    async fn serve_while_up(
        self: &Rc<Self>,
        datagrams: &dyn Datagrams,
        outgoing: &Rc<Outgoing>,
    ) -> io::Error {
        let mtu = datagrams.payload_bytes_max();
        let sectors_max = u8::try_from(aoe::sectors_of(mtu)).unwrap_or(u8::MAX);
        let interface = Interface {
            outgoing: Rc::clone(outgoing),
            sectors_max,
        };
        let mut batch = DatagramBatch::new(BATCH, mtu.max(aoe::ATA_BYTES));
        loop {
            let received = datagrams.try_receive(&mut batch);
            if received.is_ok() {
                for (from, payload) in batch.iter() {
                    if let DatagramAddress::Ethernet(station) = from {
                        self.take(station, payload, &interface);
                    }
                }
            }
            let sent = outgoing.send(datagrams);
            match received.and(sent) {
                Ok(()) => reactor::yield_now().await,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll_fn(|cx| {
                        let is_waiting = outgoing.poll_waiting(cx).is_ready();
                        let can_send = is_waiting && datagrams.poll_sendable(cx).is_ready();
                        let can_receive = datagrams.poll_receivable(cx).is_ready();
                        if can_send || can_receive {
                            Poll::Ready(())
                        } else {
                            Poll::Pending
                        }
                    })
                    .await;
                }
                Err(error) => return error,
            }
        }
    }

    fn take(self: &Rc<Self>, from: MacAddress, payload: &[u8], by: &Interface) {
        if self.handle.server.phase() != Phase::Open {
            return; // hosts retransmit
        }
        let frame = match Frame::parse(payload) {
            Ok(frame) => frame,
            Err(malformed) => {
                let slots = self.slots.borrow();
                let is_meant = |slot: &&Rc<CoreSlot>| {
                    malformed
                        .header()
                        .is_some_and(|header| header.address == slot.address)
                };
                if slots
                    .iter()
                    .find(is_meant)
                    .is_some_and(|slot| slot.hears(from))
                {
                    malformed
                        .answer()
                        .into_iter()
                        .for_each(|answer| by.answer(from, answer));
                }
                return;
            }
        };
        if frame.header.is_response {
            return;
        }
        let slots: Vec<Rc<CoreSlot>> = {
            let slots = self.slots.borrow();
            slots
                .iter()
                .filter(|slot| frame.header.address.is_for(slot.address))
                .cloned()
                .collect()
        };
        for slot in slots.into_iter().filter(|slot| slot.hears(from)) {
            let header = &frame.header;
            match &frame.body {
                // A command addressed to all devices is invalid.
                Body::Ata(..) if header.address != slot.address => {}
                Body::Ata(ata, data) => self.command(&slot, from, by, header, ata, data),
                Body::Config(query) => slot.config(from, by, header, query, self.commands_max()),
                Body::Mask(asked) => {
                    let answer = slot.state.lock().mask(asked).map(Body::Mask);
                    slot.reply(from, by, header, answer, &frame.body);
                }
                Body::Reserve(asked) => {
                    let answer = slot.reserve(from, asked).map(Body::Reserve);
                    slot.reply(from, by, header, answer, &frame.body);
                }
            }
        }
    }

    /// Finds the station, or adds it if it is new. `None` if there are too many stations.
    pub(crate) fn station(&self, slot: &CoreSlot, address: MacAddress) -> Option<Rc<Station>> {
        let now = reactor::now();
        let mut stations = slot.stations.borrow_mut();
        if let Some(station) = stations.get(&address) {
            station.heard.set(now);
            return Some(Rc::clone(station));
        }
        if stations.len() >= STATIONS_MAX {
            let idle = stations
                .values()
                .filter(|station| station.running.get() == 0);
            // Prefer to remove a station that has not written recently: copies of a writer's commands may be
            // in transit.
            let order =
                |station: &&Rc<Station>| (station.writes.borrow().are_kept(), station.heard.get());
            let silent = idle.min_by_key(order).map(|station| station.address)?;
            stations
                .remove(&silent)
                .into_iter()
                .for_each(|station| self.see_off(slot, &station));
        }
        let presumed = slot.volume.presumed_reported(now);
        let told =
            ReportedLosses::of_arriving(&mut slot.departed.borrow_mut(), address, presumed, now);
        let station = Rc::new(Station {
            address,
            counted_as: self.front_end.names.label(&address.to_string()),
            running: Cell::new(0),
            writes: RefCell::new(Writes::new(&self.writers)),
            told: Cell::new(told),
            traffic: Cell::default(),
            since: now,
            heard: Cell::new(now),
        });
        stations.insert(address, Rc::clone(&station));
        debug_assert!(stations.len() <= STATIONS_MAX, "one made space");
        Some(station)
    }

    fn see_off(&self, slot: &CoreSlot, station: &Station) {
        let is_it = |gone: &MacAddress| *gone == station.address;
        slot.departed
            .borrow_mut()
            .note(station.address, station.told.get(), reactor::now(), is_it);
        self.tally
            .session_ended(&slot.name, &station.counted_as, station.traffic.get());
    }
}

impl Station {
    /// Counts a started command task.
    pub(crate) fn begin_task(&self) {
        self.running.set(self.running.get() + 1);
    }

    /// Counts an ended command task.
    pub(crate) fn end_task(&self) {
        debug_assert!(self.running.get() > 0, "a task ends once");
        self.running.set(self.running.get() - 1);
    }
}

impl CoreSlot {
    /// Removes the stations that the settings do not admit.
    fn without_those_not_admitted(&self) -> Vec<Rc<Station>> {
        let (settings, mut stations) = (self.settings(), self.stations.borrow_mut());
        let gone = stations.extract_if(.., |address, _| !settings.admits(*address));
        gone.map(|(_, station)| station).collect()
    }

    /// Its current configuration.
    pub(crate) fn settings(&self) -> Arc<Slot> {
        Arc::clone(&self.settings.borrow())
    }

    fn hears(&self, station: MacAddress) -> bool {
        self.settings.borrow().admits(station) && self.state.lock().hears(station)
    }

    /// Whether the reservation allows this station's commands.
    pub(crate) fn serves(&self, station: MacAddress) -> bool {
        let mut state = self.state.lock();
        if state.is_reserved() && self.volume.reserved_by() != Some(self.requests.attachment()) {
            state.lose_reservation(); // a reset by another front end has released it
        }
        state.serves(station)
    }

    fn config(
        &self,
        from: MacAddress,
        by: &Interface,
        header: &Header,
        query: &ConfigQuery<'_>,
        commands: u16,
    ) {
        let mut state = self.state.lock();
        let (string, error) = match state.config(query) {
            None => return,
            Some(Ok(string)) => (string, None),
            Some(Err(error)) => (query.string, Some(error)),
        };
        let answer = ConfigQuery {
            buffer_count: commands,
            firmware: FIRMWARE,
            sectors_max: by.sectors_max,
            command: query.command,
            string,
        };
        let header = header.answer(self.address, error);
        by.answer(
            from,
            Frame {
                header,
                body: Body::Config(answer),
            }
            .write(),
        );
    }

    fn reserve(&self, from: MacAddress, asked: &Reserve) -> Result<Reserve, ErrorCode> {
        self.serves(from); // detects whether the reservation was lost
        let mut state = self.state.lock();
        if let Some(holders) = state.reservation(asked, from)? {
            let requester = Requester {
                attachment: self.requests.attachment(),
                path: &self.path,
            };
            let volume = &self.volume;
            let changed = if holders.is_empty() {
                volume.release(&requester)
            } else {
                volume.reserve(&requester)
            };
            changed.map_err(|_| ErrorCode::Reserved)?;
            state.set_holders(holders);
        }
        Ok(state.holders(asked.command))
    }

    /// Replies with a new body, or with the request's body and an error.
    fn reply(
        &self,
        to: MacAddress,
        by: &Interface,
        header: &Header,
        answer: Result<Body<'_>, ErrorCode>,
        asked: &Body<'_>,
    ) {
        let (body, error) = match answer {
            Ok(body) => (body, None),
            Err(error) => (asked.clone(), Some(error)),
        };
        by.answer(
            to,
            Frame {
                header: header.answer(self.address, error),
                body,
            }
            .write(),
        );
    }
}

impl CoreFrontEnd for CoreShelves {
    fn accept(self: Rc<Self>, _: Accepted) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async {})
    }

    fn receive(
        self: Rc<Self>,
        portal: Portal,
        _: u32,
        datagrams: Box<dyn Datagrams>,
    ) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(self.serve(portal, datagrams))
    }

    fn abort(self: Rc<Self>, order: &AbortOrder, done: &Sender<()>) {
        for slot in self
            .slots
            .borrow()
            .iter()
            .filter(|slot| Arc::ptr_eq(&slot.volume, &order.volume))
        {
            match order.is_about(slot.requests.attachment()) {
                true => slot.requests.abort(),
                false => slot.requests.abort_reserved(),
            }
        }
        // Quiesce after the woken tasks have run, because only then are their blocks locked until the device
        // has quiesced.
        let done = Sender::clone(done);
        drop(reactor::spawn(async move {
            reactor::yield_now().await;
            drop(done);
        }));
    }

    fn adapt(self: Rc<Self>, done: &Sender<()>) {
        let ending = self.take_slots();
        self.memory
            .set_limit(self.front_end.config().limits.staging_bytes);
        self.tally
            .keep_served(|target| self.slots.borrow().iter().any(|slot| slot.name == target));
        for slot in ending {
            let before = slot.running.take();
            slot.requests.abort();
            let (done, server) = (Sender::clone(done), Arc::clone(&self.handle.server));
            drop(reactor::spawn(async move {
                while Rc::strong_count(&before) > 1 {
                    reactor::yield_now().await;
                }
                if slot.requests.has_left_changes() {
                    server
                        .quiesce(vec![Arc::clone(slot.requests.volume())])
                        .await;
                }
                drop(done);
            }));
        }
    }

    fn statistics(&self) -> CoreStatistics {
        let slots = self.slots.borrow();
        let of_slot = |slot: &Rc<CoreSlot>| {
            let counts = |station: &Rc<Station>| SessionCounts {
                target: Some(slot.name.clone()),
                host: Arc::clone(&station.counted_as),
                connections: 1,
                traffic: station.traffic.get(),
            };
            slot.stations
                .borrow()
                .values()
                .map(counts)
                .collect::<Vec<_>>()
        };
        let mut statistics = self.tally.statistics(slots.iter().flat_map(of_slot));
        for volume in &mut statistics.volumes {
            let uses = |slot: &&Rc<CoreSlot>| Arc::as_ptr(&slot.volume) == volume.volume.as_ptr();
            let running = |slot: &Rc<CoreSlot>| -> u64 {
                slot.stations
                    .borrow()
                    .values()
                    .map(|station| station.running.get() as u64)
                    .sum()
            };
            volume.in_flight = slots.iter().filter(uses).map(running).sum();
        }
        statistics
    }

    fn tick(&self, now: Instant) -> bool {
        let mut is_busy = false;
        for slot in self.slots.borrow().iter() {
            if let Some(silent) = slot.requests.expire(now, slot.settings().deadline) {
                self.handle.server.fence(&slot.volume, silent);
            }
            is_busy |= slot.requests.are_outstanding();
            slot.stations.borrow_mut().retain(|_, station| {
                station.writes.borrow_mut().forget_old(now);
                let is_idle = now.saturating_duration_since(station.heard.get()) > IDLE;
                let stays = !is_idle || station.running.get() > 0;
                if !stays {
                    self.see_off(slot, station);
                }
                stays
            });
        }
        is_busy
    }

    /// Returns `None`, because replies are sent as fast as the interface accepts them, and no station can
    /// delay them.
    fn slowest_holder(&self, _: Instant) -> Option<SlowHolder> {
        None
    }

    /// Does nothing, because the protocol has no message for this. Hosts see an unresponsive server.
    fn ask_to_leave(&self, _: Duration) {}

    fn is_idle(&self) -> bool {
        let is_idle = |slot: &Rc<CoreSlot>| {
            slot.stations
                .borrow()
                .values()
                .all(|station| station.running.get() == 0)
        };
        self.slots.borrow().iter().all(is_idle)
    }

    fn close_all(&self) {
        self.slots
            .borrow()
            .iter()
            .for_each(|slot| slot.requests.abort());
    }
}

/// The interface on which a command arrived, for the task that executes the command.
#[derive(Clone)]
pub(crate) struct Interface {
    pub(crate) outgoing: Rc<Outgoing>,
    /// Maximum number of sectors per frame.
    pub(crate) sectors_max: u8,
}

/// Frames to send: command tasks add them, and the receiving task sends them.
#[derive(Default)]
pub(crate) struct Outgoing {
    frames: RefCell<VecDeque<OutFrame>>,
    waker: RefCell<Option<Waker>>,
}

/// A frame, and the memory charged for it.
pub(crate) struct OutFrame {
    pub(crate) to: DatagramAddress,
    pub(crate) payload: Vec<u8>,
    pub(crate) _charge: Option<Charge>,
}

/// Maximum number of frames sent in one call.
const CALL_MAX: usize = 64;

/// Maximum number of queued frames. Further frames are dropped, since the interface accepts none. Hosts
/// retransmit unanswered commands.
const WAITING_MAX: usize = 4096;

impl Outgoing {
    pub(crate) fn push(&self, mut frame: OutFrame) {
        let bytes = frame.payload.len().max(aoe::PAYLOAD_BYTES_MIN);
        frame.payload.resize(bytes, 0);
        let mut frames = self.frames.borrow_mut();
        if frames.len() < WAITING_MAX {
            frames.push_back(frame);
        }
        debug_assert!(frames.len() <= WAITING_MAX);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn poll_waiting(&self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.frames.borrow().is_empty() {
            return Poll::Ready(());
        }
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Sends as many frames as the interface accepts. A frame that it rejects is dropped, and its error is
    /// returned, except for a frame that is too long, which is dropped without an error.
    fn send(&self, by: &dyn Datagrams) -> io::Result<()> {
        let mut frames = self.frames.borrow_mut();
        while !frames.is_empty() {
            let payloads: Vec<[OutSlice<'_>; 1]> = frames
                .iter()
                .take(CALL_MAX)
                .map(|frame| [OutSlice::Bytes(&frame.payload)])
                .collect();
            let to = frames.iter().map(|frame| frame.to);
            let datagrams: Vec<OutDatagram<'_>> = to
                .zip(&payloads)
                .map(|(to, payload)| OutDatagram { to, payload })
                .collect();
            match by.try_send(&datagrams) {
                Ok(sent) => {
                    debug_assert!(
                        sent <= datagrams.len(),
                        "a send does not exceed the available bytes"
                    );
                    drop(frames.drain(..sent));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => {
                    frames.pop_front();
                    if error.kind() != io::ErrorKind::InvalidInput {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Interface {
    pub(crate) fn answer(&self, to: MacAddress, payload: Vec<u8>) {
        self.outgoing.push(OutFrame {
            to: DatagramAddress::Ethernet(to),
            payload,
            _charge: None,
        });
    }
}
