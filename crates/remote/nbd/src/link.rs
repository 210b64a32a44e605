//! One connection: requests that wait for their answers, and the task that moves bytes.

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use block::{Buffer, Slice};
use nbd::{BadReply, BlockStatus, Command, Request, Session};
use reactor::{Payload, SendQueue, Sleep, Stream};

use crate::receive::Receiver;

/// How often answers that are late are looked for.
const LOOK: Duration = Duration::from_secs(1);

/// A connection with a session.
pub(crate) struct Link {
    session: Arc<Session>,
    inner: RefCell<Inner>,
}

/// What its requests and its task share. Borrowed for one round, never across an await.
pub(crate) struct Inner {
    queue: SendQueue<()>,
    pub(crate) tasks: Tasks,
    /// That of the connection's task.
    waker: Option<Waker>,
    /// Nobody will ask any more.
    is_leaving: bool,
    /// It has ended.
    has_ended: bool,
    /// Who waits for abandoned requests.
    quiescing: Vec<Waker>,
}

/// Requests that are not answered, by the lower half of their cookie.
#[derive(Default)]
pub(crate) struct Tasks {
    all: Vec<Option<Task>>,
    free: Vec<usize>,
    count: usize,
    /// The upper half of the next cookie, so that a late answer finds no other request.
    next: u32,
}

/// A request that is not answered.
pub(crate) struct Task {
    pub(crate) request: Request,
    since: Instant,
    /// Where the data of a read belong.
    pub(crate) buffer: Option<Buffer>,
    /// Which bytes of them have come, in order.
    pub(crate) received: Vec<Range<u64>>,
    pub(crate) extents: Vec<BlockStatus>,
    /// Why it has failed.
    pub(crate) error: Option<u32>,
    state: State,
}

impl Task {
    /// How many bytes of a read have come.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.received.iter().map(|range| range.end - range.start).sum()
    }
}

enum State {
    /// Its future, if it was polled, is woken by this.
    Awaited(Option<Waker>),
    /// Its future was dropped.
    Abandoned,
    Answered,
}

/// What a request has returned.
pub(crate) struct Returned {
    pub(crate) buffer: Option<Buffer>,
    pub(crate) extents: Vec<BlockStatus>,
}

/// Why a request has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The server says so, with this error.
    Server(u32),
    /// The connection was lost before the answer.
    Lost,
}

/// Why a connection ended.
#[derive(Debug)]
pub(crate) enum Ending {
    Socket(io::Error),
    Closed,
    Violation(BadReply),
    /// An answer that no request has asked for, or that does not fit it.
    Unfit,
    TimedOut(Duration),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Socket(error) => error.fmt(f),
            Ending::Closed => f.write_str("closed by the server"),
            Ending::Violation(bad) => write!(f, "the server breaks the protocol: {bad}"),
            Ending::Unfit => f.write_str("the server breaks the protocol: an answer that fits no request"),
            Ending::TimedOut(time) => write!(f, "no answer for {} s", time.as_secs()),
        }
    }
}

/// A request on its way. Dropping it early abandons it: the server may carry it out still.
pub(crate) struct Exchange {
    link: Rc<Link>,
    cookie: u64,
}

impl Link {
    /// Begins to serve a connection that has shaken hands. A server that does not answer for `timeout` is
    /// given up.
    pub(crate) fn begin(stream: Box<dyn Stream>, session: Arc<Session>, timeout: Duration) -> Rc<Link> {
        let inner = Inner {
            queue: SendQueue::default(),
            tasks: Tasks::default(),
            waker: None,
            is_leaving: false,
            has_ended: false,
            quiescing: Vec::new(),
        };
        let link = Rc::new(Link { session, inner: RefCell::new(inner) });
        let served = Rc::clone(&link);
        drop(reactor::spawn(async move {
            let mut connection = Connection { stream, receiver: Receiver::default(), timeout, look: None };
            let ending = poll_fn(|cx| connection.poll(&served, cx)).await;
            connection.stream.shutdown();
            if let Some(ending) = ending {
                let (peer, why) = (connection.stream.peer(), ending.to_string());
                tracing::warn!(%peer, why, "the connection is lost");
            }
            served.inner.borrow_mut().end();
        }));
        link
    }

    /// How many requests are outstanding.
    pub(crate) fn load(&self) -> usize {
        self.inner.borrow().tasks.count
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.inner.borrow().has_ended
    }

    /// Sends a request, with the data of a write, and a buffer for those of a read.
    pub(crate) fn exchange(
        self: &Rc<Link>,
        kind: Command,
        flags: u16,
        (offset, length): (u64, u64),
        data: Option<Slice>,
        buffer: Option<Buffer>,
    ) -> Exchange {
        let inner = &mut *self.inner.borrow_mut();
        let request = Request { flags, kind: kind as u16, cookie: 0, offset, length };
        let request = inner.tasks.add(request, buffer);
        if !inner.has_ended {
            let form = self.session.form;
            inner.queue.append(|out| request.write(form, out));
            if let Some(data) = data {
                let (end, all) = (inner.queue.arena_end(), 0..data.len());
                inner.queue.push(end, Payload::Slice(data), all, None);
            }
            inner.wake();
        }
        Exchange { link: Rc::clone(self), cookie: request.cookie }
    }

    /// Ends when no request that was dropped before can reach the server's medium any more. False if that
    /// will never be known.
    pub(crate) async fn quiesced(&self) -> bool {
        poll_fn(|cx| {
            let mut inner = self.inner.borrow_mut();
            let are_abandoned = inner.tasks.are_abandoned();
            if inner.has_ended || !are_abandoned {
                return Poll::Ready(!are_abandoned);
            }
            inner.quiescing.push(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Takes leave of the server once all is answered.
    pub(crate) fn leave(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.is_leaving = true;
        inner.wake();
    }
}

impl Inner {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn end(&mut self) {
        self.has_ended = true;
        self.queue = SendQueue::default();
        self.tasks.wake_all();
        self.quiescing.drain(..).for_each(Waker::wake);
    }

    /// The last word about a request has come.
    pub(crate) fn answered(&mut self, cookie: u64) {
        if self.tasks.answered(cookie) {
            self.quiescing.drain(..).for_each(Waker::wake);
        }
    }
}

impl Tasks {
    fn add(&mut self, mut request: Request, buffer: Option<Buffer>) -> Request {
        let index = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() - 1
        });
        self.next = self.next.wrapping_add(1);
        request.cookie = u64::from(self.next) << 32 | index as u64;
        let (since, state) = (reactor::now(), State::Awaited(None));
        let task =
            Task { request, since, buffer, received: Vec::new(), extents: Vec::new(), error: None, state };
        self.all[index] = Some(task);
        self.count += 1;
        request
    }

    /// The request of this cookie.
    pub(crate) fn get(&mut self, cookie: u64) -> Option<&mut Task> {
        let task = self.all.get_mut(cookie as u32 as usize)?.as_mut();
        task.filter(|task| task.request.cookie == cookie)
    }

    fn remove(&mut self, cookie: u64) -> Option<Task> {
        self.get(cookie)?;
        self.count -= 1;
        self.free.push(cookie as u32 as usize);
        self.all[cookie as u32 as usize].take()
    }

    /// Returns whether it was abandoned before.
    fn answered(&mut self, cookie: u64) -> bool {
        let Some(task) = self.get(cookie) else { return false };
        match std::mem::replace(&mut task.state, State::Answered) {
            State::Awaited(waker) => {
                waker.into_iter().for_each(Waker::wake);
                false
            }
            State::Abandoned => self.remove(cookie).is_some(),
            State::Answered => false,
        }
    }

    fn are_abandoned(&self) -> bool {
        self.all.iter().flatten().any(|task| matches!(task.state, State::Abandoned))
    }

    fn wake_all(&mut self) {
        for task in self.all.iter_mut().flatten() {
            if let State::Awaited(waker) = &mut task.state {
                waker.take().into_iter().for_each(Waker::wake);
            }
        }
    }

    /// Since when the oldest has waited.
    fn oldest(&self) -> Option<Instant> {
        let waiting = self.all.iter().flatten().filter(|task| !matches!(task.state, State::Answered));
        waiting.map(|task| task.since).min()
    }
}

impl Future for Exchange {
    type Output = Result<Returned, Failed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut inner = self.link.inner.borrow_mut();
        let has_ended = inner.has_ended;
        let Some(task) = inner.tasks.get(self.cookie) else { return Poll::Ready(Err(Failed::Lost)) };
        match &mut task.state {
            State::Answered => {}
            _ if has_ended => return Poll::Ready(Err(Failed::Lost)),
            State::Awaited(waker) => {
                *waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            State::Abandoned => return Poll::Pending,
        }
        let Some(task) = inner.tasks.remove(self.cookie) else { return Poll::Ready(Err(Failed::Lost)) };
        Poll::Ready(match task.error {
            Some(error) => Err(Failed::Server(error)),
            None => Ok(Returned { buffer: task.buffer, extents: task.extents }),
        })
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let mut inner = self.link.inner.borrow_mut();
        let has_ended = inner.has_ended;
        let Some(task) = inner.tasks.get(self.cookie) else { return };
        match task.state {
            State::Awaited(_) if !has_ended => task.state = State::Abandoned,
            // After the end it stays, unanswered for ever, if it was abandoned while the server had it.
            State::Awaited(_) => task.state = State::Abandoned,
            State::Answered => drop(inner.tasks.remove(self.cookie)),
            State::Abandoned => {}
        }
    }
}

/// The task of a connection.
struct Connection {
    stream: Box<dyn Stream>,
    receiver: Receiver,
    timeout: Duration,
    look: Option<Sleep>,
}

impl Connection {
    /// Ready at the end: `None` if that was wanted.
    fn poll(&mut self, link: &Link, cx: &mut Context<'_>) -> Poll<Option<Ending>> {
        match self.round(link, cx) {
            Ok(ended) => ended.map(|()| None),
            Err(ending) => Poll::Ready(Some(ending)),
        }
    }

    fn round(&mut self, link: &Link, cx: &mut Context<'_>) -> Result<Poll<()>, Ending> {
        let inner = &mut *link.inner.borrow_mut();
        inner.waker = Some(cx.waker().clone());
        while self.stream.poll_readable(cx).map_err(Ending::Socket)?.is_ready() {
            if self.receiver.receive(&*self.stream, &link.session, inner)? {
                cx.waker().wake_by_ref(); // other tasks must not wait for what is left
                break;
            }
        }
        if inner.is_leaving && inner.tasks.count == 0 && inner.queue.is_empty() {
            let request =
                Request { flags: 0, kind: Command::Disconnect as u16, cookie: 0, offset: 0, length: 0 };
            inner.queue.append(|out| request.write(link.session.form, out));
            let _ = inner.queue.send(&*self.stream);
            return Ok(Poll::Ready(()));
        }
        while !inner.queue.is_empty() {
            inner.queue.send(&*self.stream).map_err(Ending::Socket)?;
            let is_full = !inner.queue.is_empty();
            if is_full && self.stream.poll_writable(cx).map_err(Ending::Socket)?.is_pending() {
                break;
            }
        }
        self.look_for_late_ones(inner, cx)?;
        Ok(Poll::Pending)
    }

    fn look_for_late_ones(&mut self, inner: &Inner, cx: &mut Context<'_>) -> Result<(), Ending> {
        if inner.tasks.count == 0 {
            self.look = None;
            return Ok(());
        }
        while Pin::new(self.look.get_or_insert_with(|| reactor::sleep(LOOK))).poll(cx).is_ready() {
            self.look = None;
            let waited = inner.tasks.oldest().map(|since| reactor::now().saturating_duration_since(since));
            if waited.is_some_and(|waited| waited > self.timeout) {
                return Err(Ending::TimedOut(self.timeout));
            }
        }
        Ok(())
    }
}
