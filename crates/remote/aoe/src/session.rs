//! The commands that one device has outstanding, and the task that sends them, again if need be.
//!
//! ```text
//!   ask ──► waiting ── the window has room ──► sent ── answered ──────────────► its future
//!                                              │  ▲                               └ sent once: a round trip
//!                                              └──┘ not in time: sent again, and the window begins anew
//!                                              └─── its deadline passes, or it is dropped: given up;
//!                                                   a change is kept, and sent, until it is answered
//! ```
//!
//! A change that was sent has a claim of its sectors. If no copy of it can be left, the claim ends with the answer; otherwise, a quarantine
//! later. Without an answer the server may be at it still: the claim of a change that nobody waits for any more stays until one
//! comes, or for a minute.
//!
//! If nothing is answered for some seconds, the device is searched on the Ethernet, by an interface that is opened anew if it has failed. A
//! station that has the same device is taken in place of the old one. What the old one has been sent may still be carried out: claims of
//! changes that it may have end a quarantine after their answers.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use aoe::{Address, Ata, Body, ErrorCode, Frame, Header, Identity};
use block::Slice;
use failover::Claim;
use reactor::{DatagramAddress, DatagramBatch, Datagrams, MacAddress, OutDatagram, OutSlice, Sleep};

use crate::flow::Flow;
use crate::search::{AGAIN, Found, endpoint, first_tag, identify, query};

/// Frames of one call.
const BATCH: usize = 64;
/// A flush takes as long as its disk: no answer for a moment is no loss.
const SLOW: Duration = Duration::from_secs(1);
/// After an error of the interface nothing is tried for so long.
const PAUSE: Duration = Duration::from_millis(50);
/// A change that was given up is kept for so long if it gets no answer.
const KEPT: Duration = Duration::from_secs(60);
/// For so long at most a frame may take, if copies of a write are to find a server of Linerate that remembers it: it does for 5 s.
const REMEMBERED: Duration = Duration::from_secs(2);
/// A device that answers nothing for so long is searched, and then again and again.
const SILENCE: Duration = Duration::from_secs(3);
/// A search ends after this time.
const SEARCH: Duration = Duration::from_secs(1);
/// Batches that are received in one turn.
const ROUNDS: usize = 16;

/// How a device answers.
pub(crate) struct Session {
    interface: String,
    address: Address,
    /// Whether the server remembers what it has done, so that an answered write is not carried out again.
    remembers: Cell<bool>,
    quarantine: Duration,
    inner: RefCell<Inner>,
}

/// How a device is reached.
pub(crate) struct Route {
    pub(crate) interface: String,
    pub(crate) address: Address,
    pub(crate) datagrams: Rc<dyn Datagrams>,
    pub(crate) station: MacAddress,
}

struct Inner {
    datagrams: Rc<dyn Datagrams>,
    station: MacAddress,
    /// The last call of the interface has failed.
    is_down: bool,
    /// The interface was opened anew.
    is_new: bool,
    /// What the device says of itself, once it has.
    identity: Option<Identity>,
    /// When something was sent, if nothing was answered since, or when it was searched last.
    silent_since: Option<Instant>,
    is_searching: bool,
    tasks: BTreeMap<u32, Task>,
    /// Not sent yet, in order.
    waiting: VecDeque<u32>,
    /// To be sent once the interface has room.
    sending: VecDeque<u32>,
    /// Sent, and not answered.
    outstanding: usize,
    flow: Flow,
    next_tag: u32,
    is_leaving: bool,
    waker: Option<Waker>,
    counters: Counters,
}

/// What has happened since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commands that were answered.
    pub answered: u64,
    /// Frames that were sent again.
    pub retransmissions: u64,
    /// Frames that were for no command, or did not fit it.
    pub stray: u64,
}

struct Task {
    head: Vec<u8>,
    data: Option<Slice>,
    /// Bytes that an answer has.
    returns: usize,
    claim: Option<Claim>,
    is_slow: bool,
    deadline: Instant,
    /// Nobody waits for it.
    is_given_up: bool,
    /// When it was sent last, and how often.
    sent: Option<Instant>,
    times: u32,
    is_queued: bool,
    /// Copies of it were sent to another station.
    has_moved: bool,
    answer: Option<Answer>,
    waker: Option<Waker>,
}

type Answer = Result<Vec<u8>, Failed>;

/// Why a command has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The server refuses it.
    Refused(ErrorCode),
    /// The device says so: its error register.
    Device(u8),
    /// No answer.
    TimedOut,
}

/// A command to be sent.
pub(crate) struct Asked {
    pub(crate) ata: Ata,
    pub(crate) data: Option<Slice>,
    /// Bytes that it returns.
    pub(crate) returns: usize,
    pub(crate) claim: Option<Claim>,
    pub(crate) is_slow: bool,
    pub(crate) deadline: Instant,
}

/// A command on its way. Dropping it early gives it up; the server may carry it out still.
pub(crate) struct Exchange {
    session: Rc<Session>,
    tag: u32,
}

impl Session {
    /// Begins to serve a device, with at most so many commands outstanding.
    pub(crate) fn begin(route: Route, most: u16, quarantine: Duration) -> Rc<Session> {
        let Route { interface, address, datagrams, station } = route;
        let inner = Inner {
            datagrams,
            station,
            is_down: false,
            is_new: true,
            identity: None,
            silent_since: None,
            is_searching: false,
            tasks: BTreeMap::new(),
            waiting: VecDeque::new(),
            sending: VecDeque::new(),
            outstanding: 0,
            flow: Flow::new(most),
            next_tag: first_tag(),
            is_leaving: false,
            waker: None,
            counters: Counters::default(),
        };
        let (remembers, inner) = (Cell::new(false), RefCell::new(inner));
        let session = Rc::new(Session { interface, address, remembers, quarantine, inner });
        let served = Rc::clone(&session);
        drop(reactor::spawn(async move {
            let (mut batch, mut timer) = (DatagramBatch::new(BATCH, aoe::ATA_BYTES), None);
            poll_fn(|cx| served.poll(&mut batch, &mut timer, cx)).await;
        }));
        session
    }

    /// What the device has said of itself: only such a one is taken in its place.
    pub(crate) fn identified(&self, identity: Identity) {
        self.inner.borrow_mut().identity = Some(identity);
    }

    /// The server is known to remember the tags of writes.
    pub(crate) fn server_remembers(&self) {
        self.remembers.set(true);
    }

    pub(crate) fn leave(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.is_leaving = true;
        inner.wake();
    }

    pub(crate) fn counters(&self) -> Counters {
        self.inner.borrow().counters
    }

    pub(crate) fn ask(self: &Rc<Self>, asked: Asked) -> Exchange {
        let Asked { ata, data, returns, claim, is_slow, deadline } = asked;
        let mut inner = self.inner.borrow_mut();
        let mut tag = inner.next_tag;
        while inner.tasks.contains_key(&tag) || tag == 0 {
            tag = tag.wrapping_add(1);
        }
        inner.next_tag = tag.wrapping_add(1);
        let header = Header { is_response: false, error: None, address: self.address, tag };
        let head = Frame { header, body: Body::Ata(ata, &[]) }.write();
        let task = Task {
            head,
            data,
            returns,
            claim,
            is_slow,
            deadline,
            is_given_up: false,
            sent: None,
            times: 0,
            is_queued: false,
            has_moved: false,
            answer: None,
            waker: None,
        };
        inner.tasks.insert(tag, task);
        inner.waiting.push_back(tag);
        inner.wake();
        drop(inner);
        Exchange { session: Rc::clone(self), tag }
    }

    fn poll(
        self: &Rc<Self>,
        batch: &mut DatagramBatch,
        timer: &mut Option<Sleep>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let inner = &mut *self.inner.borrow_mut();
        inner.waker = Some(cx.waker().clone());
        let (now, datagrams) = (reactor::now(), Rc::clone(&inner.datagrams));
        if std::mem::take(&mut inner.is_new) {
            *batch = DatagramBatch::new(BATCH, datagrams.payload_bytes_max().max(aoe::ATA_BYTES));
        }
        let mut rounds = 0..ROUNDS;
        while datagrams.poll_receivable(cx).is_ready() {
            if rounds.next().is_none() {
                cx.waker().wake_by_ref();
                break;
            }
            match datagrams.try_receive(batch) {
                Ok(_) => batch.iter().for_each(|(from, payload)| self.take(inner, now, from, payload)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    self.note_failure(inner, &error);
                    cx.waker().wake_by_ref();
                    break;
                }
            }
        }
        if inner.is_leaving && inner.tasks.values().all(|task| task.is_given_up) {
            return Poll::Ready(());
        }
        inner.look_for_late_ones(now, self.quarantine);
        let mut pause = None;
        while !inner.fill_window(now) {
            if datagrams.poll_sendable(cx).is_pending() {
                break;
            }
            match self.send(inner, now) {
                Ok(()) => inner.is_down = false,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    // They count as sent and lost, and are sent again in their time.
                    self.note_failure(inner, &error);
                    inner.sending_failed(now);
                    pause = Some(now + PAUSE);
                    break;
                }
            }
        }
        if inner.is_silent(now) && !inner.is_leaving && !std::mem::replace(&mut inner.is_searching, true) {
            let session = Rc::clone(self);
            drop(reactor::spawn(async move {
                let _ = reactor::timeout(SEARCH, session.search()).await;
                let mut inner = session.inner.borrow_mut();
                inner.is_searching = false;
                inner.silent_since = inner.silent_since.map(|_| reactor::now());
            }));
        }
        let due = inner.next_due().map(|due| pause.map_or(due, |pause| due.max(pause)));
        *timer = due.map(reactor::sleep_until);
        if let Some(sleep) = timer
            && Pin::new(sleep).poll(cx).is_ready()
        {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Looks for the device, at whatever station.
    async fn search(&self) {
        let Ok(datagrams) = endpoint(&self.interface) else { return };
        let datagrams: Rc<dyn Datagrams> = datagrams.into();
        let (known, before) = {
            let inner = self.inner.borrow();
            (inner.identity.clone(), inner.station)
        };
        let Some(known) = known else { return };
        let station = loop {
            let mut all = Vec::new();
            let is_before = |found: &Found| found.address == self.address && found.station == before;
            let _ = reactor::timeout(AGAIN, query(&*datagrams, self.address, &mut all, is_before)).await;
            // The old one if it answers, too: it may have many changes.
            let found = all.iter().find(|found| is_before(found)).or(all.first());
            if let Some(found) = found {
                break found.station;
            }
        };
        if station != before {
            let found = loop {
                let asked = identify(&*datagrams, self.address, station);
                match reactor::timeout(AGAIN, asked).await {
                    Ok(Ok(found)) => break found,
                    // The interface has failed again.
                    Ok(Err(_)) => reactor::sleep(AGAIN).await,
                    Err(_) => {}
                }
            };
            let is_same =
                (&found.serial, &found.model, found.sectors) == (&known.serial, &known.model, known.sectors);
            if !is_same {
                tracing::warn!(device = %self.address, %station, "another device answers in its place");
                return;
            }
        }
        let inner = &mut *self.inner.borrow_mut();
        if station == before && !inner.is_down {
            return; // it is busy
        }
        tracing::info!(device = %self.address, %station, "the device is found again");
        (inner.datagrams, inner.station) = (datagrams, station);
        (inner.is_new, inner.is_down) = (true, false);
        if station != before {
            inner.tasks.values_mut().filter(|task| task.times > 0).for_each(|task| task.has_moved = true);
        }
        inner.wake();
    }

    fn note_failure(&self, inner: &mut Inner, error: &io::Error) {
        if !std::mem::replace(&mut inner.is_down, true) {
            tracing::warn!(device = %self.address, %error, "the interface has failed");
        }
    }

    /// A frame has come.
    fn take(&self, inner: &mut Inner, now: Instant, from: DatagramAddress, payload: &[u8]) {
        let Ok(Frame { header, body }) = Frame::parse(payload) else {
            inner.counters.stray += 1;
            return;
        };
        let is_ours = from == DatagramAddress::Ethernet(inner.station) && header.address == self.address;
        if !header.is_response || !is_ours {
            return;
        }
        let Some(task) =
            inner.tasks.get_mut(&header.tag).filter(|task| task.sent.is_some() && task.answer.is_none())
        else {
            inner.counters.stray += 1;
            return;
        };
        let answer = match (header.error, body) {
            (Some(code), _) => Err(Failed::Refused(code)),
            (None, Body::Ata(ata, _)) if ata.has_failed() => Err(Failed::Device(ata.feature_or_error)),
            (None, Body::Ata(_, data)) if data.len() >= task.returns => Ok(data[..task.returns].to_vec()),
            _ => {
                inner.counters.stray += 1;
                return;
            }
        };
        let is_done = answer.is_ok();
        task.answer = Some(answer);
        if std::mem::take(&mut task.is_queued) {
            inner.sending.retain(|tag| *tag != header.tag);
        }
        let (times, is_slow, sent, has_moved) = (task.times, task.is_slow, task.sent, task.has_moved);
        if let Some(claim) = task.claim.take() {
            // Nobody remembers what was refused.
            let is_remembered = self.remembers.get() && self.quarantine <= REMEMBERED;
            match is_done && !has_moved && (times == 1 || is_remembered) {
                true => drop(claim),
                false => hold(claim, self.quarantine),
            }
        }
        task.waker.take().into_iter().for_each(Waker::wake);
        if task.is_given_up {
            inner.tasks.remove(&header.tag);
        }
        inner.silent_since = None;
        inner.counters.answered += 1;
        inner.outstanding -= 1;
        if let Some(sent) = sent.filter(|_| times == 1 && !is_slow) {
            inner.flow.measure(now.saturating_duration_since(sent));
        }
        inner.flow.answered();
    }

    /// Sends what is to be sent, as much as the interface takes.
    fn send(&self, inner: &mut Inner, now: Instant) -> io::Result<()> {
        let tags: Vec<u32> = inner.sending.iter().copied().take(BATCH).collect();
        let frames: Vec<[OutSlice<'_>; 2]> = tags
            .iter()
            .filter_map(|tag| inner.tasks.get(tag))
            .map(|task| {
                [OutSlice::Bytes(&task.head), OutSlice::Bytes(task.data.as_deref().unwrap_or_default())]
            })
            .collect();
        let to = DatagramAddress::Ethernet(inner.station);
        let datagrams: Vec<OutDatagram<'_>> =
            frames.iter().map(|payload| OutDatagram { to, payload }).collect();
        let sent = inner.datagrams.try_send(&datagrams)?;
        for tag in inner.sending.drain(..sent) {
            if let Some(task) = inner.tasks.get_mut(&tag) {
                task.is_queued = false;
                task.sent = Some(now);
            }
        }
        Ok(())
    }

    fn give_up(&self, tag: u32) {
        let mut inner = self.inner.borrow_mut();
        let Some(task) = inner.tasks.get_mut(&tag) else { return };
        if task.times > 0 && task.answer.is_none() && task.claim.is_some() {
            (task.is_given_up, task.deadline) = (true, reactor::now() + KEPT);
        } else {
            inner.forget(tag);
        }
        inner.wake();
    }
}

/// Keeps newer changes of the same sectors waiting for so long.
fn hold(claim: Claim, quarantine: Duration) {
    drop(reactor::spawn(async move {
        reactor::sleep(quarantine).await;
        drop(claim);
    }));
}

impl Inner {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Lets commands that wait into the window; whether there is nothing to send.
    fn fill_window(&mut self, now: Instant) -> bool {
        while self.outstanding < self.flow.window()
            && let Some(tag) = self.waiting.pop_front()
        {
            self.enqueue(tag, now);
            self.outstanding += 1;
        }
        self.sending.is_empty()
    }

    fn enqueue(&mut self, tag: u32, now: Instant) {
        if let Some(task) = self.tasks.get_mut(&tag) {
            task.times += 1;
            task.is_queued = true;
            task.sent = Some(now);
            self.sending.push_back(tag);
            self.silent_since.get_or_insert(now);
        }
    }

    /// Whether commands are outstanding and nothing was answered for [`SILENCE`].
    fn is_silent(&self, now: Instant) -> bool {
        let is_long = |since: Instant| now.saturating_duration_since(since) >= SILENCE;
        self.outstanding > 0 && self.silent_since.is_some_and(is_long)
    }

    /// It is neither sent nor waited for any more.
    fn forget(&mut self, tag: u32) -> Option<Task> {
        let task = self.tasks.remove(&tag)?;
        self.waiting.retain(|waiting| *waiting != tag);
        self.sending.retain(|sending| *sending != tag);
        if task.times > 0 && task.answer.is_none() {
            self.outstanding -= 1;
        }
        Some(task)
    }

    /// The interface takes nothing.
    fn sending_failed(&mut self, now: Instant) {
        for tag in std::mem::take(&mut self.sending) {
            if let Some(task) = self.tasks.get_mut(&tag) {
                (task.is_queued, task.sent) = (false, Some(now));
            }
        }
    }

    /// Sends again what is not answered, and wakes those whose deadline has passed; of those that were given up, it ends.
    fn look_for_late_ones(&mut self, now: Instant, quarantine: Duration) {
        let (mut late, mut over) = (Vec::new(), Vec::new());
        for (tag, task) in self.tasks.iter_mut().filter(|(_, task)| task.answer.is_none()) {
            if task.deadline <= now && task.is_given_up {
                over.push(*tag);
            } else if task.deadline <= now {
                task.waker.take().into_iter().for_each(Waker::wake);
            } else if task.due(&self.flow).is_some_and(|due| due <= now) {
                late.push((*tag, task.is_slow));
            }
        }
        for claim in over.into_iter().filter_map(|tag| self.forget(tag)?.claim) {
            hold(claim, quarantine);
        }
        for (tag, is_slow) in late {
            if !is_slow {
                self.flow.lost(now);
            }
            self.counters.retransmissions += 1;
            self.enqueue(tag, now);
        }
    }

    /// When there is something to do next.
    fn next_due(&self) -> Option<Instant> {
        let unanswered = self.tasks.values().filter(|task| task.answer.is_none());
        unanswered.map(|task| task.due(&self.flow).map_or(task.deadline, |due| due.min(task.deadline))).min()
    }
}

impl Task {
    /// When it is to be sent again.
    fn due(&self, flow: &Flow) -> Option<Instant> {
        let sent = self.sent.filter(|_| !self.is_queued)?;
        let patience = flow.patience(self.times);
        Some(sent + if self.is_slow { patience.max(SLOW) } else { patience })
    }
}

impl Future for Exchange {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let mut inner = self.session.inner.borrow_mut();
        let Some(task) = inner.tasks.get_mut(&self.tag) else { return Poll::Ready(Err(Failed::TimedOut)) };
        if let Some(answer) = task.answer.take() {
            inner.tasks.remove(&self.tag);
            return Poll::Ready(answer);
        }
        if task.deadline <= reactor::now() {
            return Poll::Ready(Err(Failed::TimedOut)); // dropped, it is given up
        }
        task.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.session.give_up(self.tag);
    }
}
