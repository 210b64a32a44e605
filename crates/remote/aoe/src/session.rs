//! The outstanding commands of one device, and the task that sends and resends them.
//!
//! ```text
//!   ask ──► waiting ── the window has room ──► sent ── answered ──────────────► its future
//!                                              │  ▲                               └ sent once: a round trip
//!                                              └──┘ timed out: sent again, and the window restarts at one
//!                                              └─── its deadline passes, or it is dropped: given up; a change
//!                                                   or a flush is kept, and sent, until it is answered
//! ```
//!
//! A change that was sent has a claim on its sectors. If no copy of the change can still arrive, the claim
//! ends with the reply; otherwise it ends one quarantine later. Without a reply, the server may still be
//! executing the change. So if the requester was dropped, the claim lasts until a reply arrives, or for a
//! minute.
//!
//! A server may report lost writes only once, in the reply to the flush that detected the loss. That reply is
//! counted as one loss when it arrives, even if the requester of the flush was dropped. If another flush
//! succeeds before that reply arrives, its success says nothing about the loss. It is therefore returned only
//! after all abandoned flushes have ended.
//!
//! After some seconds without a reply, the client searches the Ethernet for the device, and reopens the
//! interface if it has failed. If the same device responds at a different MAC address, that address replaces
//! the old one. Commands sent to the old address may still be executed, so claims of changes that may have
//! arrived there end one quarantine after their replies.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use aoe::{
    Address, Ata, Body, Config, ConfigCommand, ETHER_TYPE, ErrorCode, Frame, Header,
    IDENTITY_BYTES, Identity, SECTOR_BYTES,
};
use block::{DeviceError, LossCounter, Slice};
use failover::Claim;
use reactor::{
    DatagramAddress, DatagramBatch, DatagramEndpoint, DatagramOptions, Datagrams, MacAddress,
    OutDatagram, OutSlice, Sleep,
};

/// Maximum number of frames sent in one call.
const BATCH: usize = 64;
/// Minimum time before a flush is resent. A flush takes as long as its disk needs, so a late reply does not
/// indicate a lost frame.
const SLOW: Duration = Duration::from_secs(1);
/// Pause after a network interface error.
const PAUSE: Duration = Duration::from_millis(50);
/// Time for which the session keeps an abandoned change or flush that has no reply.
const KEPT: Duration = Duration::from_secs(60);
/// Maximum quarantine for which a Linerate server recognises every copy of a write: the server keeps the
/// record of a write for 5 s.
const REMEMBERED: Duration = Duration::from_secs(2);
/// If a device has not answered for this long, the client searches for it, repeatedly if necessary.
const SILENCE: Duration = Duration::from_secs(3);
/// Maximum duration of a search.
const SEARCH: Duration = Duration::from_secs(1);
/// Maximum number of batches received in one turn.
const ROUNDS: usize = 16;

/// The state of the communication with one device.
pub(crate) struct Session {
    interface: String,
    address: Address,
    /// Whether the server keeps records of completed writes, so that it does not execute a duplicate of a
    /// completed write.
    remembers: Cell<bool>,
    quarantine: Duration,
    inner: RefCell<Inner>,
}

/// The interface, the address and the socket over which a device is reached.
pub(crate) struct Route {
    pub(crate) interface: String,
    pub(crate) address: Address,
    pub(crate) datagrams: Rc<dyn Datagrams>,
    pub(crate) station: MacAddress,
}

struct Inner {
    datagrams: Rc<dyn Datagrams>,
    station: MacAddress,
    /// Whether the last call to the interface failed.
    is_down: bool,
    /// Whether the interface was reopened.
    is_new: bool,
    /// The device's identity, once it is known.
    identity: Option<Identity>,
    /// When the current period without replies started: the time at which a command was sent, or the last
    /// search started.
    silent_since: Option<Instant>,
    is_searching: bool,
    tasks: BTreeMap<u32, Task>,
    /// Tags of commands that were not sent yet, in sending order.
    waiting: VecDeque<u32>,
    /// Tags of commands in the window that wait for space in the interface's send queue.
    sending: VecDeque<u32>,
    /// Number of commands sent and not answered.
    outstanding: usize,
    flow: Flow,
    next_tag: u32,
    is_leaving: bool,
    waker: Option<Waker>,
    /// Flushes that wait until all abandoned flushes have ended.
    flush_wakers: Vec<Waker>,
    counters: Counters,
}

/// Counters since the session started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commands answered.
    pub answered: u64,
    /// Frames retransmitted.
    pub retransmissions: u64,
    /// Frames that matched no outstanding command, or were malformed for the command that they matched.
    pub stray: u64,
}

struct Task {
    head: Vec<u8>,
    data: Option<Slice>,
    /// Number of bytes in the reply.
    returns: usize,
    claim: Option<Claim>,
    /// For a flush: counts the loss that the flush's reply reports.
    losses: Option<LossCounter>,
    is_slow: bool,
    deadline: Instant,
    /// Whether the requester has dropped the command.
    is_given_up: bool,
    /// When the command was last sent. `times` is the number of transmissions.
    sent: Option<Instant>,
    times: u32,
    is_queued: bool,
    /// Whether copies of the command were sent to more than one station.
    has_moved: bool,
    answer: Option<Answer>,
    waker: Option<Waker>,
}

type Answer = Result<Vec<u8>, Failed>;

/// Why a command has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The server rejected the command.
    Refused(ErrorCode),
    /// The device reported an error. The value is its error register.
    Device(u8),
    /// No reply arrived before the deadline.
    TimedOut,
}

impl Failed {
    /// The error of a flush that failed for this reason.
    pub(crate) fn of_flush(self) -> DeviceError {
        match self {
            // Neither error means that writes are lost: their data is still in the cache, and a later flush
            // reports its loss.
            Failed::TimedOut | Failed::Refused(ErrorCode::Unavailable) => DeviceError::NotReady,
            Failed::Refused(ErrorCode::Reserved) => DeviceError::Reserved,
            Failed::Refused(_) | Failed::Device(_) => DeviceError::WritesLost,
        }
    }
}

/// A command to send.
pub(crate) struct Asked {
    pub(crate) ata: Ata,
    pub(crate) data: Option<Slice>,
    /// Number of data bytes in the reply.
    pub(crate) returns: usize,
    pub(crate) claim: Option<Claim>,
    /// For a flush: counts the loss that the flush's reply reports.
    pub(crate) losses: Option<LossCounter>,
    pub(crate) is_slow: bool,
    pub(crate) deadline: Instant,
}

/// An outstanding command, as a future. If the future is dropped before it completes, the command is
/// abandoned, but the server may still execute it.
pub(crate) struct Exchange {
    session: Rc<Session>,
    tag: u32,
}

impl Session {
    /// Starts serving a device, with up to `most` commands outstanding.
    pub(crate) fn begin(route: Route, most: u16, quarantine: Duration) -> Rc<Session> {
        let Route {
            interface,
            address,
            datagrams,
            station,
        } = route;
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
            flush_wakers: Vec::new(),
            counters: Counters::default(),
        };
        let (remembers, inner) = (Cell::new(false), RefCell::new(inner));
        let session = Rc::new(Session {
            interface,
            address,
            remembers,
            quarantine,
            inner,
        });
        let served = Rc::clone(&session);
        drop(reactor::spawn(async move {
            let (mut batch, mut timer) = (DatagramBatch::new(BATCH, aoe::ATA_BYTES), None);
            poll_fn(|cx| served.poll(&mut batch, &mut timer, cx)).await;
        }));
        session
    }

    /// Records the device's identity. A search then accepts only a device with the same identity.
    pub(crate) fn identified(&self, identity: Identity) {
        self.inner.borrow_mut().identity = Some(identity);
    }

    /// Records that the server keeps the tags of completed writes.
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
        let Asked {
            ata,
            data,
            returns,
            claim,
            losses,
            is_slow,
            deadline,
        } = asked;
        debug_assert_eq!(
            claim.is_some(),
            data.is_some(),
            "a change has data and a claim, and nothing else has"
        );
        debug_assert!(
            data.as_ref()
                .is_none_or(|data| data.len().is_multiple_of(SECTOR_BYTES)),
            "the data of a command is whole sectors"
        );
        let mut inner = self.inner.borrow_mut();
        let mut tag = inner.next_tag;
        while inner.tasks.contains_key(&tag) || tag == 0 {
            tag = tag.wrapping_add(1);
        }
        inner.next_tag = tag.wrapping_add(1);
        let header = Header {
            is_response: false,
            error: None,
            address: self.address,
            tag,
        };
        let head = Frame {
            header,
            body: Body::Ata(ata, &[]),
        }
        .write();
        let task = Task {
            head,
            data,
            returns,
            claim,
            losses,
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
        let earlier = inner.tasks.insert(tag, task);
        debug_assert!(earlier.is_none(), "a tag is of one command");
        inner.waiting.push_back(tag);
        inner.wake();
        drop(inner);
        Exchange {
            session: Rc::clone(self),
            tag,
        }
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
                Ok(_) => batch
                    .iter()
                    .for_each(|(from, payload)| self.take(inner, now, from, payload)),
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
                    // The frames count as sent and lost, and are resent when due.
                    self.note_failure(inner, &error);
                    inner.sending_failed(now);
                    pause = Some(now + PAUSE);
                    break;
                }
            }
        }
        if inner.is_silent(now)
            && !inner.is_leaving
            && !std::mem::replace(&mut inner.is_searching, true)
        {
            let session = Rc::clone(self);
            drop(reactor::spawn(async move {
                let _ = reactor::timeout(SEARCH, session.search()).await;
                let mut inner = session.inner.borrow_mut();
                inner.is_searching = false;
                inner.silent_since = inner.silent_since.map(|_| reactor::now());
            }));
        }
        let due = inner
            .next_due()
            .map(|due| pause.map_or(due, |pause| due.max(pause)));
        *timer = due.map(reactor::sleep_until);
        if let Some(sleep) = timer
            && Pin::new(sleep).poll(cx).is_ready()
        {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Searches for the device at all MAC addresses.
    async fn search(&self) {
        let Ok(datagrams) = endpoint(&self.interface) else {
            return;
        };
        let datagrams: Rc<dyn Datagrams> = datagrams.into();
        let (known, before) = {
            let inner = self.inner.borrow();
            (inner.identity.clone(), inner.station)
        };
        let Some(known) = known else { return };
        let station = loop {
            let mut all = Vec::new();
            let is_before =
                |found: &Found| found.address == self.address && found.station == before;
            let _ = reactor::timeout(AGAIN, query(&*datagrams, self.address, &mut all, is_before))
                .await;
            // Prefer the old MAC address if the device responds there: that server may have received many
            // changes.
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
                    // The interface has failed again. Wait before the next search.
                    Ok(Err(_)) => reactor::sleep(AGAIN).await,
                    Err(_) => {}
                }
            };
            let is_same = (&found.serial, &found.model, found.sectors)
                == (&known.serial, &known.model, known.sectors);
            if !is_same {
                tracing::warn!(device = %self.address, %station, "another device now has this address");
                return;
            }
        }
        let inner = &mut *self.inner.borrow_mut();
        if station == before && !inner.is_down {
            return; // the interface is only busy
        }
        tracing::info!(device = %self.address, %station, "the device responds again");
        (inner.datagrams, inner.station) = (datagrams, station);
        (inner.is_new, inner.is_down) = (true, false);
        if station != before {
            inner
                .tasks
                .values_mut()
                .filter(|task| task.times > 0)
                .for_each(|task| task.has_moved = true);
        }
        inner.wake();
    }

    fn note_failure(&self, inner: &mut Inner, error: &io::Error) {
        if !std::mem::replace(&mut inner.is_down, true) {
            tracing::warn!(device = %self.address, %error, "the interface has failed");
        }
    }

    /// Processes a received frame.
    fn take(&self, inner: &mut Inner, now: Instant, from: DatagramAddress, payload: &[u8]) {
        let Ok(Frame { header, body }) = Frame::parse(payload) else {
            inner.counters.stray += 1;
            return;
        };
        let is_ours =
            from == DatagramAddress::Ethernet(inner.station) && header.address == self.address;
        if !header.is_response || !is_ours {
            return;
        }
        let Some(task) = inner
            .tasks
            .get_mut(&header.tag)
            .filter(|task| task.sent.is_some() && task.answer.is_none())
        else {
            inner.counters.stray += 1;
            return;
        };
        let answer = match (header.error, body) {
            (Some(code), _) => Err(Failed::Refused(code)),
            (None, Body::Ata(ata, _)) if ata.has_failed() => {
                Err(Failed::Device(ata.feature_or_error))
            }
            (None, Body::Ata(_, data)) if data.len() >= task.returns => {
                Ok(data[..task.returns].to_vec())
            }
            _ => {
                inner.counters.stray += 1;
                return;
            }
        };
        debug_assert!(task.times > 0, "only a command that was sent is answered");
        if let (Some(losses), Err(failed)) = (&task.losses, &answer)
            && failed.of_flush().is_loss()
        {
            losses.count();
        }
        let is_done = answer.is_ok();
        task.answer = Some(answer);
        if std::mem::take(&mut task.is_queued) {
            inner.sending.retain(|tag| *tag != header.tag);
        }
        let (times, is_slow, sent, has_moved) =
            (task.times, task.is_slow, task.sent, task.has_moved);
        if let Some(claim) = task.claim.take() {
            // The server remembers only writes that it has executed, not those that it has rejected.
            let is_remembered = self.remembers.get() && self.quarantine <= REMEMBERED;
            match is_done && !has_moved && (times == 1 || is_remembered) {
                true => drop(claim),
                false => hold(claim, self.quarantine),
            }
        }
        task.waker.take().into_iter().for_each(Waker::wake);
        if task.is_given_up {
            inner.tasks.remove(&header.tag);
            inner.wake_flushes();
        }
        inner.silent_since = None;
        inner.counters.answered += 1;
        debug_assert!(inner.outstanding > 0);
        inner.outstanding -= 1;
        if let Some(sent) = sent.filter(|_| times == 1 && !is_slow) {
            inner.flow.measure(now.saturating_duration_since(sent));
        }
        inner.flow.answered();
    }

    /// Sends queued frames, up to the limit of the interface.
    fn send(&self, inner: &mut Inner, now: Instant) -> io::Result<()> {
        let tags: Vec<u32> = inner.sending.iter().copied().take(BATCH).collect();
        let frames: Vec<[OutSlice<'_>; 2]> = tags
            .iter()
            .filter_map(|tag| inner.tasks.get(tag))
            .map(|task| {
                [
                    OutSlice::Bytes(&task.head),
                    OutSlice::Bytes(task.data.as_deref().unwrap_or_default()),
                ]
            })
            .collect();
        debug_assert_eq!(
            frames.len(),
            tags.len(),
            "each queued frame is that of a command"
        );
        let to = DatagramAddress::Ethernet(inner.station);
        let datagrams: Vec<OutDatagram<'_>> = frames
            .iter()
            .map(|payload| OutDatagram { to, payload })
            .collect();
        let sent = inner.datagrams.try_send(&datagrams)?;
        for tag in inner.sending.drain(..sent) {
            if let Some(task) = inner.tasks.get_mut(&tag) {
                task.is_queued = false;
                task.sent = Some(now);
            }
        }
        Ok(())
    }

    /// Resolves when all abandoned flushes have ended.
    pub(crate) async fn abandoned_flushes_ended(&self) {
        poll_fn(|cx| {
            let mut inner = self.inner.borrow_mut();
            let is_abandoned = |task: &Task| task.is_given_up && task.losses.is_some();
            if !inner.tasks.values().any(is_abandoned) {
                return Poll::Ready(());
            }
            inner.flush_wakers.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn give_up(&self, tag: u32) {
        let mut inner = self.inner.borrow_mut();
        let Some(task) = inner.tasks.get_mut(&tag) else {
            return;
        };
        debug_assert!(!task.is_given_up, "a command is given up once");
        let has_effect = task.claim.is_some() || task.losses.is_some();
        if task.times > 0 && task.answer.is_none() && has_effect {
            (task.is_given_up, task.deadline) = (true, reactor::now() + KEPT);
        } else {
            inner.forget(tag);
        }
        inner.wake();
    }
}

/// Keeps the claim for the quarantine, so that newer changes to the same sectors wait.
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

    fn wake_flushes(&mut self) {
        std::mem::take(&mut self.flush_wakers)
            .into_iter()
            .for_each(Waker::wake);
    }

    /// Moves waiting commands into the window. Returns true if there is nothing to send.
    fn fill_window(&mut self, now: Instant) -> bool {
        while self.outstanding < self.flow.window()
            && let Some(tag) = self.waiting.pop_front()
        {
            debug_assert!(
                self.tasks.get(&tag).is_some_and(|task| task.times == 0),
                "a waiting command was not sent"
            );
            self.enqueue(tag, now);
            self.outstanding += 1;
            debug_assert!(
                self.outstanding as f64 <= self.flow.most,
                "no more commands than the server accepts"
            );
        }
        let is_outstanding = |task: &&Task| task.times > 0 && task.answer.is_none();
        debug_assert_eq!(
            self.outstanding,
            self.tasks.values().filter(is_outstanding).count()
        );
        self.sending.is_empty()
    }

    fn enqueue(&mut self, tag: u32, now: Instant) {
        if let Some(task) = self.tasks.get_mut(&tag) {
            debug_assert!(!task.is_queued && task.answer.is_none());
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

    /// Removes a command: it is not sent any more, and a reply to it is ignored.
    fn forget(&mut self, tag: u32) -> Option<Task> {
        let task = self.tasks.remove(&tag)?;
        self.waiting.retain(|waiting| *waiting != tag);
        self.sending.retain(|sending| *sending != tag);
        if task.times > 0 && task.answer.is_none() {
            debug_assert!(self.outstanding > 0);
            self.outstanding -= 1;
        }
        Some(task)
    }

    /// After a failure of the interface, treats all queued frames as sent now and lost.
    fn sending_failed(&mut self, now: Instant) {
        for tag in std::mem::take(&mut self.sending) {
            if let Some(task) = self.tasks.get_mut(&tag) {
                (task.is_queued, task.sent) = (false, Some(now));
            }
        }
    }

    /// Resends unanswered commands that are due. For commands past their deadline, wakes the requester, or
    /// removes the command if it was abandoned.
    fn look_for_late_ones(&mut self, now: Instant, quarantine: Duration) {
        let (mut late, mut over) = (Vec::new(), Vec::new());
        for (tag, task) in self
            .tasks
            .iter_mut()
            .filter(|(_, task)| task.answer.is_none())
        {
            if task.deadline <= now && task.is_given_up {
                over.push(*tag);
            } else if task.deadline <= now {
                task.waker.take().into_iter().for_each(Waker::wake);
            } else if task.due(&self.flow).is_some_and(|due| due <= now) {
                late.push((*tag, task.is_slow));
            }
        }
        if !over.is_empty() {
            self.wake_flushes();
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

    /// Time of the next resend or deadline.
    fn next_due(&self) -> Option<Instant> {
        let unanswered = self.tasks.values().filter(|task| task.answer.is_none());
        unanswered
            .map(|task| {
                task.due(&self.flow)
                    .map_or(task.deadline, |due| due.min(task.deadline))
            })
            .min()
    }
}

impl Task {
    /// When the command must be resent.
    fn due(&self, flow: &Flow) -> Option<Instant> {
        let sent = self.sent.filter(|_| !self.is_queued)?;
        let patience = flow.patience(self.times);
        Some(
            sent + if self.is_slow {
                patience.max(SLOW)
            } else {
                patience
            },
        )
    }
}

impl Future for Exchange {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let mut inner = self.session.inner.borrow_mut();
        let Some(task) = inner.tasks.get_mut(&self.tag) else {
            return Poll::Ready(Err(Failed::TimedOut));
        };
        if let Some(answer) = task.answer.take() {
            inner.tasks.remove(&self.tag);
            return Poll::Ready(answer);
        }
        if task.deadline <= reactor::now() {
            return Poll::Ready(Err(Failed::TimedOut)); // dropping it abandons the command
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

// Flow control: the number of outstanding commands and the time of a resend, as in the Linux driver.
//
// The round-trip time is estimated by its mean and mean deviation (Jacobson and Karels). The first resend
// follows after twice the mean plus eight times the deviation; each further one takes twice as long. The
// window grows by one per reply up to a threshold, and then by one per window. A loss halves the threshold
// and resets the window to one.

/// Timeout until a round-trip time was measured.
const INITIAL: Duration = Duration::from_millis(250);
/// Minimum timeout. On a path with constant round-trip times, the estimate alone would be too short for a
/// server that is briefly busy.
const LEAST: Duration = Duration::from_millis(10);
const MOST: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    /// Mean round-trip time in seconds, once measured.
    mean: Option<f64>,
    deviation: f64,
    window: f64,
    threshold: f64,
    most: f64,
    /// Time of the last loss that reduced the window. Further losses within one round trip do not reduce it
    /// again.
    loss: Option<Instant>,
}

impl Flow {
    /// Creates a flow for up to `most` outstanding commands, which is the server's limit.
    pub(crate) fn new(most: u16) -> Flow {
        let most = f64::from(most.max(1));
        Flow {
            mean: None,
            deviation: 0.0,
            window: most.min(4.0),
            threshold: most,
            most,
            loss: None,
        }
    }

    /// Maximum number of outstanding commands.
    pub(crate) fn window(&self) -> usize {
        self.window as usize
    }

    /// Time to wait for a reply after the command was sent `times` times.
    pub(crate) fn patience(&self, times: u32) -> Duration {
        let first = match self.mean {
            None => INITIAL,
            Some(mean) => {
                Duration::from_secs_f64(2.0 * mean + 8.0 * self.deviation).clamp(LEAST, MOST)
            }
        };
        first
            .saturating_mul(1 << times.saturating_sub(1).min(8))
            .min(MOST)
    }

    /// Records the round-trip time of a command that was sent once.
    pub(crate) fn measure(&mut self, time: Duration) {
        let time = time.as_secs_f64();
        match &mut self.mean {
            None => (self.mean, self.deviation) = (Some(time), time / 2.0),
            Some(mean) => {
                let error = time - *mean;
                *mean += error / 8.0;
                self.deviation += (error.abs() - self.deviation) / 4.0;
            }
        }
        debug_assert!(
            self.mean >= Some(0.0) && self.deviation >= 0.0,
            "a round trip takes time"
        );
    }

    /// Records a reply.
    pub(crate) fn answered(&mut self) {
        let step = if self.window < self.threshold {
            1.0
        } else {
            1.0 / self.window
        };
        self.window = (self.window + step).min(self.most);
        debug_assert!((1.0..=self.most).contains(&self.window));
    }

    /// Records a command that timed out.
    pub(crate) fn lost(&mut self, now: Instant) {
        let is_new = self
            .loss
            .is_none_or(|loss| now.saturating_duration_since(loss) > self.patience(1));
        if is_new {
            self.threshold = (self.window / 2.0).max(2.0).min(self.most);
            self.window = 1.0;
            debug_assert!(self.threshold <= self.most);
            self.loss = Some(now);
        }
    }
}

// Queries: find devices, and check whether one is the same as before.

/// Interval between queries.
pub(crate) const AGAIN: Duration = Duration::from_millis(250);
/// Size of the receive buffer: enough for the replies to a full window of jumbo frames.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// A device that has responded to a query.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    /// Shelf and slot.
    pub address: Address,
    /// The server's MAC address.
    pub station: MacAddress,
    /// Maximum number of outstanding commands.
    pub buffer_count: u16,
    /// Maximum number of sectors per frame.
    pub sectors_max: u8,
    /// The configuration string.
    pub string: Vec<u8>,
}

/// The first tag. It is random, so that it differs from the tags of a client that has just exited on this
/// host.
pub(crate) fn first_tag() -> u32 {
    RandomState::new().build_hasher().finish() as u32
}

/// Opens a datagram socket for AoE on an interface.
pub(crate) fn endpoint(interface: &str) -> io::Result<Box<dyn Datagrams>> {
    let options = DatagramOptions {
        endpoint: DatagramEndpoint::Ethernet {
            interface: interface.to_owned(),
            ether_type: ETHER_TYPE,
        },
        receive_buffer_bytes: Some(RECEIVE_BUFFER_BYTES),
        ring: None,
        payload_bytes_min: aoe::ATA_BYTES + SECTOR_BYTES,
        share: None,
    };
    reactor::world().datagrams(&options)
}

/// Sends one query, and collects the replies until the wanted one arrives.
pub(crate) async fn query(
    datagrams: &dyn Datagrams,
    address: Address,
    all: &mut Vec<Found>,
    is_wanted: impl Fn(&Found) -> bool,
) {
    let tag = first_tag();
    let header = Header {
        is_response: false,
        error: None,
        address,
        tag,
    };
    let frame = Frame {
        header,
        body: Body::Config(Config::query(ConfigCommand::Read, &[])),
    }
    .write();
    let to = DatagramAddress::Ethernet(MacAddress::BROADCAST);
    // Ignore a failure: the query then gets no reply, and the caller repeats it.
    let _ = datagrams.try_send(&[OutDatagram {
        to,
        payload: &[OutSlice::Bytes(&frame)],
    }]);
    let mut batch = DatagramBatch::new(64, datagrams.payload_bytes_max());
    loop {
        if datagrams.receive(&mut batch).await.is_err() {
            reactor::sleep(AGAIN).await;
            continue;
        }
        reactor::yield_now().await; // enforces the timeout, whatever arrives
        for (from, payload) in batch.iter() {
            let (DatagramAddress::Ethernet(station), Ok(frame)) = (from, Frame::parse(payload))
            else {
                continue;
            };
            let Frame {
                header,
                body: Body::Config(config),
            } = frame
            else {
                continue;
            };
            if header.is_response && header.error.is_none() && address.is_for(header.address) {
                let found = Found {
                    address: header.address,
                    station,
                    buffer_count: config.buffer_count,
                    sectors_max: config.sectors_max,
                    string: config.string.to_vec(),
                };
                let is_last = is_wanted(&found);
                all.push(found);
                if is_last {
                    return;
                }
            }
        }
    }
}

/// Requests the identity of the device at a station, once.
pub(crate) async fn identify(
    datagrams: &dyn Datagrams,
    address: Address,
    station: MacAddress,
) -> io::Result<Identity> {
    let header = Header {
        is_response: false,
        error: None,
        address,
        tag: first_tag(),
    };
    let frame = Frame {
        header,
        body: Body::Ata(Ata::identify(), &[]),
    }
    .write();
    let to = DatagramAddress::Ethernet(station);
    datagrams.try_send(&[OutDatagram {
        to,
        payload: &[OutSlice::Bytes(&frame)],
    }])?;
    let mut batch = DatagramBatch::new(64, datagrams.payload_bytes_max());
    loop {
        datagrams.receive(&mut batch).await?;
        reactor::yield_now().await; // enforces the timeout, whatever arrives
        for (_, payload) in batch.iter().filter(|(from, _)| *from == to) {
            if let Ok(Frame {
                header: answer,
                body: Body::Ata(ata, data),
            }) = Frame::parse(payload)
                && (answer.is_response, answer.error, answer.tag) == (true, None, header.tag)
                && !ata.has_failed()
                && let Some(sector) = data.first_chunk::<IDENTITY_BYTES>()
            {
                return Ok(Identity::parse(sector));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_follows_the_round_trip() {
        let mut flow = Flow::new(16);
        assert_eq!(flow.patience(1), INITIAL);
        for _ in 0..100 {
            flow.measure(Duration::from_millis(20));
        }
        let steady = flow.patience(1);
        assert!((40..42).contains(&steady.as_millis()), "{steady:?}");
        assert_eq!((flow.patience(2), flow.patience(30)), (steady * 2, MOST));
        flow.measure(Duration::from_millis(100));
        assert!(
            flow.patience(1) > Duration::from_millis(200),
            "one that was late is a deviation"
        );
        for _ in 0..100 {
            flow.measure(Duration::from_micros(50));
        }
        assert_eq!(flow.patience(1), LEAST);
    }

    #[test]
    fn a_loss_begins_anew_and_its_companions_do_not() {
        let (mut flow, now) = (Flow::new(16), Instant::now());
        (0..100).for_each(|_| flow.answered());
        assert_eq!(flow.window(), 16);
        flow.lost(now);
        flow.answered();
        flow.lost(now + Duration::from_millis(1));
        assert_eq!(flow.window(), 2);
        (0..6).for_each(|_| flow.answered());
        assert_eq!(flow.window(), 8, "doubled up to half of before");
        (0..8).for_each(|_| flow.answered());
        assert_eq!(flow.window(), 8, "then by one for each windowful");
        flow.lost(now + Duration::from_secs(9));
        assert_eq!(flow.window(), 1);
        assert_eq!(Flow::new(0).window(), 1, "a server that says none has one");
    }
}
