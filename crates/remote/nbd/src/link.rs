//! A connection: its outstanding requests, and the task that moves bytes.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use block::{Buffer, LossCounter, PAGE_BYTES, Slice};
use derive_more::Display;
use failover::{Ahead, Claim, Content, Failed, Late, Loss, Patience, RequestKind};
use nbd::flags::command;
use nbd::{BadReply, BlockStatus, Chunk, Command, Errno, Reply, ReplyForm, Request, Session};
use reactor::{PathInfo, Payload, Received, SendQueue, Sleep, Stream};

/// The kernel's current information on a connection to the server.
#[derive(Clone, Debug)]
pub struct ConnectionState {
    /// The number of the connection's channel.
    pub number: usize,
    /// The local address.
    pub local: SocketAddr,
    /// The server's address.
    pub peer: SocketAddr,
    /// The TCP path between them.
    pub path: Option<PathInfo>,
}

/// Longest interval between two checks for late replies.
const LOOK: Duration = Duration::from_secs(1);

/// A connection in its transmission phase.
pub(crate) struct Link {
    session: Arc<Session>,
    inner: RefCell<Inner>,
    /// The socket. The connection's task owns it, so it is closed when the task ends.
    stream: Weak<dyn Stream>,
}

/// State that the requests and the task of a connection share. It is borrowed for one round, and never across
/// an await.
pub(crate) struct Inner {
    queue: SendQueue<()>,
    pub(crate) tasks: Tasks,
    /// The waker of the connection's task.
    waker: Option<Waker>,
    /// Whether no more requests will be sent.
    is_leaving: bool,
    /// Why the connection is lost, if it is. It accepts no more requests, and its outstanding requests are
    /// resent over another connection.
    loss: Option<Loss>,
    /// Whether the connection has ended, or must end immediately.
    has_ended: bool,
    /// When bytes last moved, or when the wait for the first bytes began.
    moved: Instant,
    /// Futures that wait for the loss of the connection, or for replies to changes.
    watching: Vec<Waker>,
    /// The counter of lost writes, if the server may report a loss in the reply to a write with FUA.
    losses: Option<LossCounter>,
}

/// Unanswered requests, by the lower half of their cookie.
#[derive(Default)]
pub(crate) struct Tasks {
    all: Vec<Option<Task>>,
    free: Vec<usize>,
    count: usize,
    /// The upper half of the next cookie. It differs for each request, so that a late reply matches no other
    /// request.
    next: u32,
}

/// An unanswered request.
pub(crate) struct Task {
    pub(crate) request: Request,
    deadline: Instant,
    /// Set at the first check. Most requests are answered before that.
    patience: Option<Box<Patience>>,
    /// Whether the deadline has passed.
    is_late: bool,
    /// Set if the requester continues to wait for the reply after the deadline.
    late: Option<Late>,
    /// The claim of a change.
    claim: Option<Claim>,
    /// The position of the request's end in the connection's send stream.
    sent_at: u64,
    /// The data of a read, once the first part has arrived.
    pub(crate) buffer: Option<Buffer>,
    /// The byte ranges received, in order.
    pub(crate) received: Vec<Range<u64>>,
    pub(crate) extents: Vec<BlockStatus>,
    /// Number of chunks received without data.
    pub(crate) empty_chunks: usize,
    /// The error code, if the request has failed.
    pub(crate) error: Option<u32>,
    state: State,
}

impl Task {
    /// Number of bytes received by a read.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.received
            .iter()
            .map(|range| range.end - range.start)
            .sum()
    }
}

enum State {
    /// A future waits for the reply. Contains the future's waker, once it was polled.
    Awaited(Option<Waker>),
    /// The request's future was dropped.
    Abandoned,
    Answered,
}

/// Why a connection ended.
#[derive(Debug, Display)]
pub(crate) enum Ending {
    Socket(io::Error),
    #[display("the server closed the connection")]
    Closed,
    #[display("the server violates the NBD protocol: {_0}")]
    Violation(BadReply),
    /// The server sent a reply without a matching request, or of the wrong kind.
    #[display("the server violates the NBD protocol: a reply without a request")]
    Unfit,
    /// The server sent a reply with more chunks than any request needs.
    #[display("the server violates the NBD protocol: a reply has no end")]
    Endless,
    /// The client closed the connection immediately.
    #[display("abandoned")]
    Reset,
}

/// An outstanding request, as a future. If the future is dropped early, the request is abandoned, but the
/// server may still execute it.
pub(crate) struct Exchange {
    link: Rc<Link>,
    cookie: u64,
}

impl Link {
    /// Starts serving a connection after its handshake. The connection is considered lost if no data is
    /// transferred for `stall` while requests are outstanding.
    pub(crate) fn begin(
        stream: Box<dyn Stream>,
        session: Arc<Session>,
        stall: Duration,
        losses: LossCounter,
    ) -> Rc<Link> {
        let stream: Rc<dyn Stream> = Rc::from(stream);
        let inner = Inner::new(session.channel.is_none().then_some(losses));
        let link = Rc::new(Link {
            session,
            inner: RefCell::new(inner),
            stream: Rc::downgrade(&stream),
        });
        let served = Rc::clone(&link);
        drop(reactor::spawn(async move {
            let mut connection = Connection {
                stream,
                receiver: Receiver::default(),
                stall,
                look: None,
            };
            let ending = poll_fn(|cx| connection.poll(&served, cx)).await;
            match &ending {
                Some(_) => connection.stream.reset(),
                None => connection.stream.shutdown(),
            }
            served
                .inner
                .borrow_mut()
                .end(ending.map_or("closed".to_owned(), |ending| ending.to_string()));
        }));
        link
    }

    /// Sends a request, including the data of a write.
    pub(crate) fn send(
        self: &Rc<Link>,
        asked: &Asked,
        claim: Option<Claim>,
        deadline: Instant,
    ) -> Exchange {
        let inner = &mut *self.inner.borrow_mut();
        let Asked {
            kind,
            flags,
            offset,
            length,
            ..
        } = *asked;
        debug_assert_eq!(
            claim.is_some(),
            matches!(failover::Request::kind(asked), RequestKind::Change { .. }),
            "an outstanding change has a claim, and nothing else has"
        );
        debug_assert_eq!(
            asked.data.is_some(),
            kind == Command::Write,
            "a write has data, and nothing else has"
        );
        debug_assert!(
            asked
                .data
                .as_ref()
                .is_none_or(|data| data.len() as u64 == length),
            "the data of a write has its length"
        );
        let form = self.session.form;
        // With extended headers, a flag must announce a payload.
        let announced = if kind == Command::Write && form == ReplyForm::Extended {
            command::PAYLOAD_LEN
        } else {
            0
        };
        let request = Request {
            flags: flags | announced,
            kind: kind as u16,
            cookie: 0,
            offset,
            length,
        };
        if inner.tasks.count == 0 {
            inner.moved = reactor::now();
        }
        drop(asked.buffer.take());
        let request = inner.tasks.add(request, claim, deadline);
        if inner.loss.is_none() {
            inner.queue.append(|out| request.write(form, out));
            if let Some(data) = asked.data.clone() {
                let (end, all) = (inner.queue.arena_end(), 0..data.len());
                inner.queue.push(end, Payload::Slice(data), all, None);
            }
            let (_, end) = inner.queue.position();
            inner
                .tasks
                .get(request.cookie)
                .into_iter()
                .for_each(|task| task.sent_at = end);
            inner.wake();
        }
        Exchange {
            link: Rc::clone(self),
            cookie: request.cookie,
        }
    }
}

impl failover::Link for Link {
    type Request = Asked;
    type Reply = Returned;
    type Error = u32;

    fn exchange(
        self: &Rc<Link>,
        request: &Asked,
        claim: Option<Claim>,
        deadline: Instant,
        late: Option<Late>,
    ) -> impl Future<Output = Result<Returned, Failed<u32>>> + 'static {
        let exchange = self.send(request, claim, deadline);
        if late.is_some() {
            let mut inner = self.inner.borrow_mut();
            inner
                .tasks
                .get(exchange.cookie)
                .into_iter()
                .for_each(|task| task.late.clone_from(&late));
        }
        exchange
    }

    fn shows(change: &Asked, reply: &Returned) -> bool {
        let content = failover::Request::content(change);
        content
            .zip(reply.buffer.as_deref())
            .is_some_and(|(content, read)| content.is_shown_by(read))
    }

    /// A sync does not fail with these errors, so a server that returns one has rejected the request.
    fn is_rejection(error: &u32) -> bool {
        matches!(Errno::try_from(*error), Ok(Errno::Eperm | Errno::Eshutdown))
    }

    fn is_no_space(error: &u32) -> bool {
        Errno::try_from(*error) == Ok(Errno::Enospc)
    }

    fn is_lost(&self) -> bool {
        self.inner.borrow().loss.is_some()
    }

    async fn lost(&self) -> Loss {
        self.watch(|inner| inner.loss.clone()).await
    }

    async fn settled(&self) {
        self.watch(|inner| (inner.has_ended || !inner.tasks.have_claims()).then_some(()))
            .await;
    }

    fn take_unanswered(&self) -> Vec<Claim> {
        let mut inner = self.inner.borrow_mut();
        let unanswered = inner.tasks.all.iter_mut().flatten();
        let unanswered = unanswered.filter(|task| !matches!(task.state, State::Answered));
        unanswered.filter_map(|task| task.claim.take()).collect()
    }

    fn reset(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.has_ended = true;
        inner.lose(Loss::Ended(Ending::Reset.to_string()));
        inner.wake();
    }

    fn leave(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.is_leaving = true;
        inner.wake();
    }
}

impl Link {
    /// The current state of the connection, as channel `number`; `None` once it has ended.
    pub(crate) fn connection(&self, number: usize) -> Option<ConnectionState> {
        let stream = self.stream.upgrade()?;
        Some(ConnectionState {
            number,
            local: stream.local(),
            peer: stream.peer(),
            path: stream.path(),
        })
    }

    async fn watch<R>(&self, ready: impl Fn(&Inner) -> Option<R>) -> R {
        failover::watch(&self.inner, |inner| &mut inner.watching, ready).await
    }
}

impl Inner {
    fn new(losses: Option<LossCounter>) -> Inner {
        Inner {
            queue: SendQueue::default(),
            tasks: Tasks::default(),
            waker: None,
            is_leaving: false,
            loss: None,
            has_ended: false,
            moved: reactor::now(),
            watching: Vec::new(),
            losses,
        }
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Marks the connection as lost. If it is already lost, the first reason is kept.
    fn lose(&mut self, loss: Loss) {
        self.loss.get_or_insert(loss);
        self.tasks.wake_all();
        self.watching.drain(..).for_each(Waker::wake);
    }

    fn end(&mut self, why: String) {
        self.has_ended = true;
        self.queue = SendQueue::default();
        self.lose(Loss::Ended(why));
    }

    /// A connection with one outstanding request, and the request's cookie.
    #[cfg(test)]
    pub(crate) fn asking(kind: Command, length: u64) -> (Inner, u64) {
        let request = Request {
            flags: 0,
            kind: kind as u16,
            cookie: 0,
            offset: 0,
            length,
        };
        let mut inner = Inner::new(None);
        let cookie = inner.tasks.add(request, None, reactor::now()).cookie;
        (inner, cookie)
    }

    /// Records that the reply to a request is complete.
    pub(crate) fn answered(&mut self, cookie: u64) {
        self.tasks.answered(cookie);
        if self.loss.is_some() {
            self.watching.drain(..).for_each(Waker::wake);
        }
    }
}

impl Tasks {
    fn add(&mut self, mut request: Request, claim: Option<Claim>, deadline: Instant) -> Request {
        let index = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() - 1
        });
        self.next = self.next.wrapping_add(1);
        request.cookie = u64::from(self.next) << 32 | index as u64;
        debug_assert!(self.all[index].is_none(), "a free place has no request");
        self.all[index] = Some(Task {
            request,
            deadline,
            patience: None,
            is_late: false,
            late: None,
            claim,
            sent_at: 0,
            buffer: None,
            received: Vec::new(),
            extents: Vec::new(),
            empty_chunks: 0,
            error: None,
            state: State::Awaited(None),
        });
        self.count += 1;
        debug_assert_eq!(self.count + self.free.len(), self.all.len());
        request
    }

    /// The request with this cookie.
    pub(crate) fn get(&mut self, cookie: u64) -> Option<&mut Task> {
        let task = self.all.get_mut(cookie as u32 as usize)?.as_mut();
        task.filter(|task| task.request.cookie == cookie)
    }

    fn remove(&mut self, cookie: u64) -> Option<Task> {
        self.get(cookie)?;
        self.count -= 1;
        self.free.push(cookie as u32 as usize);
        debug_assert_eq!(self.count + self.free.len(), self.all.len());
        self.all[cookie as u32 as usize].take()
    }

    fn answered(&mut self, cookie: u64) {
        let Some(task) = self.get(cookie) else { return };
        match std::mem::replace(&mut task.state, State::Answered) {
            State::Awaited(waker) => waker.into_iter().for_each(Waker::wake),
            State::Abandoned => drop(self.remove(cookie)),
            State::Answered => {}
        }
    }

    fn have_claims(&self) -> bool {
        let unanswered = self
            .all
            .iter()
            .flatten()
            .filter(|task| !matches!(task.state, State::Answered));
        unanswered.into_iter().any(|task| task.claim.is_some())
    }

    fn wake_all(&mut self) {
        for task in self.all.iter_mut().flatten() {
            if let State::Awaited(waker) = &mut task.state {
                waker.take().into_iter().for_each(Waker::wake);
            }
        }
    }

    /// Extends the deadlines of requests while their connection makes progress, which means that it sends
    /// these or earlier requests, or receives their replies. `sent` is the total number of bytes that the
    /// connection has sent. `open` is the request whose reply data is being received, and the number of bytes
    /// still missing.
    fn note_progress(&mut self, now: Instant, sent: u64, open: Option<(u64, usize)>) {
        let next = self.next;
        let outstanding = self
            .all
            .iter_mut()
            .flatten()
            .filter(|task| !matches!(task.state, State::Answered));
        let mut outstanding: Vec<&mut Task> = outstanding.collect();
        // The numbers in cookies can wrap.
        outstanding.sort_unstable_by_key(|task| {
            std::cmp::Reverse(next.wrapping_sub((task.request.cookie >> 32) as u32))
        });
        let mut ahead = Ahead::default();
        for task in outstanding {
            let missing = open.filter(|(cookie, _)| *cookie == task.request.cookie);
            let missing = missing.map_or(0, |(_, bytes)| bytes as u64);
            ahead.bytes = ahead
                .bytes
                .wrapping_add(task.received_bytes())
                .wrapping_sub(missing);
            // Count the bytes sent up to the end of this request.
            let so_far = Ahead {
                bytes: ahead.bytes.wrapping_add(sent.min(task.sent_at)),
                ..ahead
            };
            let limit = task.deadline.saturating_duration_since(now);
            let patience = task
                .patience
                .get_or_insert_with(|| Box::new(Patience::new(now, limit)));
            patience.note(now, so_far);
            task.deadline = patience.until();
            ahead.requests += 1;
        }
    }

    /// Wakes requests whose deadline has passed.
    fn look_for_late_ones(&mut self, now: Instant) {
        for task in self
            .all
            .iter_mut()
            .flatten()
            .filter(|task| task.deadline <= now)
        {
            if let Some(late) = &task.late {
                late.tell();
                continue;
            }
            task.is_late = true;
            if let State::Awaited(waker) = &mut task.state {
                waker.take().into_iter().for_each(Waker::wake);
            }
        }
    }

    /// Whether the reply to any request is outstanding.
    fn are_unanswered(&self) -> bool {
        self.all
            .iter()
            .flatten()
            .any(|task| !matches!(task.state, State::Answered))
    }
}

impl Future for Exchange {
    type Output = Result<Returned, Failed<u32>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut inner = self.link.inner.borrow_mut();
        let is_lost = inner.loss.is_some();
        let Some(task) = inner.tasks.get(self.cookie) else {
            return Poll::Ready(Err(Failed::Lost));
        };
        match &mut task.state {
            State::Answered => {}
            _ if is_lost => return Poll::Ready(Err(Failed::Lost)),
            State::Awaited(_) if task.is_late => return Poll::Ready(Err(Failed::TimedOut)),
            State::Awaited(waker) => {
                *waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            State::Abandoned => return Poll::Pending,
        }
        let Some(task) = inner.tasks.remove(self.cookie) else {
            return Poll::Ready(Err(Failed::Lost));
        };
        if task.error == Some(Errno::Eshutdown as u32) {
            // The server has not executed the request and will close the connection, so the request waits for
            // the next connection.
            inner.lose(Loss::Ended("the server is shutting down".to_owned()));
            return Poll::Ready(Err(Failed::Lost));
        }
        Poll::Ready(match task.error {
            Some(error) => Err(Failed::Server(error)),
            None => Ok(Returned {
                buffer: task.buffer,
                extents: task.extents,
            }),
        })
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let mut inner = self.link.inner.borrow_mut();
        let Some(task) = inner.tasks.get(self.cookie) else {
            return;
        };
        match task.state {
            // The request is kept until it is answered, or until the connection is abandoned with its claims.
            State::Awaited(_) | State::Abandoned => task.state = State::Abandoned,
            State::Answered => drop(inner.tasks.remove(self.cookie)),
        }
    }
}

/// The task of a connection.
struct Connection {
    stream: Rc<dyn Stream>,
    receiver: Receiver,
    stall: Duration,
    look: Option<Sleep>,
}

impl Connection {
    /// Ready when the connection has ended: `None` if the end was intended.
    fn poll(&mut self, link: &Link, cx: &mut Context<'_>) -> Poll<Option<Ending>> {
        match self.round(link, cx) {
            Ok(ended) => ended.map(|()| None),
            Err(ending) => Poll::Ready(Some(ending)),
        }
    }

    fn round(&mut self, link: &Link, cx: &mut Context<'_>) -> Result<Poll<()>, Ending> {
        let inner = &mut *link.inner.borrow_mut();
        inner.waker = Some(cx.waker().clone());
        if inner.has_ended {
            return Err(Ending::Reset);
        }
        while self
            .stream
            .poll_readable(cx)
            .map_err(Ending::Socket)?
            .is_ready()
        {
            inner.moved = reactor::now();
            if self.receiver.receive(&*self.stream, &link.session, inner)? {
                cx.waker().wake_by_ref(); // other tasks must not wait for the remaining bytes
                break;
            }
        }
        if inner.is_leaving && inner.tasks.count == 0 && inner.queue.is_empty() {
            let request = Request {
                flags: 0,
                kind: Command::Disconnect as u16,
                cookie: 0,
                offset: 0,
                length: 0,
            };
            inner
                .queue
                .append(|out| request.write(link.session.form, out));
            let _ = inner.queue.send(&*self.stream);
            return Ok(Poll::Ready(()));
        }
        while !inner.queue.is_empty() {
            if inner.queue.send(&*self.stream).map_err(Ending::Socket)? {
                inner.moved = reactor::now();
            }
            let is_full = !inner.queue.is_empty();
            if is_full
                && self
                    .stream
                    .poll_writable(cx)
                    .map_err(Ending::Socket)?
                    .is_pending()
            {
                break;
            }
        }
        self.look_for_late_ones(inner, cx)?;
        Ok(Poll::Pending)
    }

    fn look_for_late_ones(
        &mut self,
        inner: &mut Inner,
        cx: &mut Context<'_>,
    ) -> Result<(), Ending> {
        if inner.tasks.count == 0 {
            self.look = None;
            return Ok(());
        }
        let pause = LOOK.min(self.stall / 4);
        while Pin::new(self.look.get_or_insert_with(|| reactor::sleep(pause)))
            .poll(cx)
            .is_ready()
        {
            self.look = None;
            let now = reactor::now();
            let (sent, _) = inner.queue.position();
            inner.tasks.note_progress(now, sent, self.receiver.open());
            inner.tasks.look_for_late_ones(now);
            let silent = now.saturating_duration_since(inner.moved) > self.stall;
            if silent && inner.is_leaving && inner.tasks.are_unanswered() {
                return Err(Ending::Reset); // nothing else would close the connection
            }
            if silent && inner.loss.is_none() && inner.tasks.are_unanswered() {
                inner.lose(Loss::Silent);
            }
        }
        Ok(())
    }
}

// Reception: reply headers are parsed in place, and data is copied to the buffers of its requests. The rest
// of long data is received directly into its buffer.

/// The maximum size of one read.
const SCRATCH_BYTES: usize = 256 << 10;
/// Minimum size of a remainder that is received directly into its buffer.
const DIRECT_BYTES: usize = 32 << 10;
/// Minimum length of long data: copying it costs more than another read.
const LONG_BYTES: usize = 128 << 10;
/// Number of bytes read after long data. It is small, so that the data of the next reply is also received
/// directly into its buffer.
const NEXT_BYTES: usize = 4 << 10;

/// Maximum number of separate parts of a read. A reply with more parts is invalid. This limits the memory
/// that a server can occupy.
const PARTS_MAX: usize = 1024;
/// Maximum number of chunks without data in one reply. A reply with more is invalid, so that no server can
/// prolong a reply forever. The number equals that of the parts of a read, because each part can fail.
const EMPTY_CHUNKS_MAX: usize = PARTS_MAX;
/// Maximum number of extents that are kept. A caller that needs more sends another request for the rest.
const EXTENTS_MAX: usize = 4096;

/// The receive state of a connection.
pub(crate) struct Receiver {
    scratch: Box<[u8]>,
    /// Number of bytes at the start of `scratch` that form an incomplete header.
    kept: usize,
    payload: Option<ReplyPayload>,
    /// Whether the latest data was long. The next data may be long as well.
    is_long: bool,
}

/// The payload after a header.
struct ReplyPayload {
    cookie: u64,
    is_last: bool,
    left: usize,
    kind: PayloadKind,
}

enum PayloadKind {
    /// Data for the buffer, from this offset.
    Data { at: usize },
    /// Extents.
    Extents(Vec<u8>),
    /// Ignored data.
    Dropped,
}

impl Default for Receiver {
    fn default() -> Receiver {
        Receiver {
            scratch: vec![0; SCRATCH_BYTES].into(),
            kept: 0,
            payload: None,
            is_long: false,
        }
    }
}

impl Receiver {
    /// Receives available bytes. Returns true if there may be more.
    pub(crate) fn receive(
        &mut self,
        stream: &dyn Stream,
        session: &Session,
        inner: &mut Inner,
    ) -> Result<bool, Ending> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let received = self.receive_into(&mut scratch, stream, session, inner);
        self.scratch = scratch;
        received
    }

    fn receive_into(
        &mut self,
        scratch: &mut [u8],
        stream: &dyn Stream,
        session: &Session,
        inner: &mut Inner,
    ) -> Result<bool, Ending> {
        let kept = self.kept;
        debug_assert!(
            kept < scratch.len(),
            "an incomplete header leaves room for its rest"
        );
        let least = if self.is_long { 1 } else { DIRECT_BYTES };
        let direct = self
            .payload
            .as_mut()
            .and_then(|payload| payload.rest(inner, least))
            .unwrap_or_default();
        let end = if self.is_long {
            scratch.len().min(kept + NEXT_BYTES)
        } else {
            scratch.len()
        };
        let received = match stream.receive(direct, &[], &mut scratch[kept..end]) {
            Ok(Received {
                placed: 0, rest: 0, ..
            }) => return Err(Ending::Closed),
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(Ending::Socket(error)),
        };
        if let Some(payload) = &mut self.payload {
            payload.advance(received.placed);
        }
        let end = kept + received.rest;
        let taken = self.take(&scratch[..end], session, inner)?;
        debug_assert!(taken <= end && end <= scratch.len());
        scratch.copy_within(taken..end, 0);
        self.kept = end - taken;
        Ok(received.is_full)
    }

    /// The cookie of the request whose reply data is being received, and the number of bytes still missing.
    pub(crate) fn open(&self) -> Option<(u64, usize)> {
        self.payload
            .as_ref()
            .map(|payload| (payload.cookie, payload.left))
    }

    /// Consumes all complete headers and data. Returns the number of bytes consumed.
    fn take(
        &mut self,
        bytes: &[u8],
        session: &Session,
        inner: &mut Inner,
    ) -> Result<usize, Ending> {
        let mut at = 0;
        loop {
            if let Some(payload) = &mut self.payload {
                at += payload.put(&bytes[at..], inner);
                if payload.left > 0 {
                    return Ok(at);
                }
            }
            if let Some(payload) = self.payload.take() {
                payload.end(session, inner)?;
            }
            let parsed = Reply::parse(session.form, &bytes[at..]).map_err(Ending::Violation)?;
            let Some((reply, length)) = parsed else {
                return Ok(at);
            };
            at += length;
            self.begin(reply, inner)?;
        }
    }

    fn begin(&mut self, reply: Reply, inner: &mut Inner) -> Result<(), Ending> {
        debug_assert!(
            self.payload.is_none(),
            "no reply is within the payload of another one"
        );
        let Reply {
            cookie,
            is_last,
            chunk,
        } = reply;
        let task = inner.tasks.get(cookie).ok_or(Ending::Unfit)?;
        let is_read = task.request.command() == Some(Command::Read);
        // Data and holes of at least one byte are not counted: each byte is received only once, so their
        // number is limited.
        let brings_data = matches!(
            chunk,
            Chunk::Data { bytes: 1.., .. } | Chunk::Hole { bytes: 1.., .. }
        );
        task.empty_chunks += usize::from(!brings_data);
        if task.empty_chunks > EMPTY_CHUNKS_MAX {
            return Err(Ending::Endless);
        }
        let (kind, left) = match chunk {
            Chunk::Simple if is_read => {
                let whole = place(task, task.request.offset, task.request.length);
                whole.ok_or(Ending::Unfit)?;
                (PayloadKind::Data { at: 0 }, task.request.length)
            }
            Chunk::Simple | Chunk::None => (PayloadKind::Dropped, 0),
            Chunk::Data { offset, bytes } if is_read => (
                PayloadKind::Data {
                    at: place(task, offset, bytes).ok_or(Ending::Unfit)?,
                },
                bytes,
            ),
            Chunk::Hole { offset, bytes } if is_read => {
                let at = place(task, offset, bytes).ok_or(Ending::Unfit)?;
                let hole = task
                    .buffer
                    .as_mut()
                    .and_then(|buffer| buffer.get_mut(at..at + bytes as usize));
                hole.ok_or(Ending::Unfit)?.fill(0);
                (PayloadKind::Dropped, 0)
            }
            // Only one chunk is valid, because only one context was requested.
            Chunk::BlockStatus { bytes }
                if task.request.command() == Some(Command::BlockStatus)
                    && task.extents.is_empty() =>
            {
                (PayloadKind::Extents(Vec::new()), bytes)
            }
            Chunk::Data { .. } | Chunk::Hole { .. } | Chunk::BlockStatus { .. } => {
                return Err(Ending::Unfit);
            }
            Chunk::Error { error, text_bytes } => {
                if may_report_losses(&task.request, error) {
                    // Count the loss now, because the requester may have been dropped.
                    inner.losses.iter().for_each(LossCounter::count);
                }
                task.error.get_or_insert(error);
                (PayloadKind::Dropped, text_bytes)
            }
        };
        match kind {
            PayloadKind::Data { .. } => self.is_long = left as usize >= LONG_BYTES,
            PayloadKind::Extents(_) => self.is_long = false,
            PayloadKind::Dropped => {}
        }
        // Lengths are limited by the request or by `Reply::parse`.
        self.payload = Some(ReplyPayload {
            cookie,
            is_last,
            left: left as usize,
            kind,
        });
        Ok(())
    }
}

/// Whether this error may be the only report of a loss of earlier acknowledged writes. A server that syncs
/// after a write with FUA replies with the error of the sync. This can be any error: ENOSPC also represents
/// EDQUOT, and EINVAL represents errors unknown to the protocol. Therefore, every error that counts as a loss
/// for a flush also counts here. A Linerate server replies only for the write itself, and reports losses to
/// the flushes of every connection, so its errors do not count (`Link::begin`).
fn may_report_losses(request: &Request, error: u32) -> bool {
    request.flags & command::FUA != 0 && !<Link as failover::Link>::is_rejection(&error)
}

/// The position in a read's buffer of the `bytes` bytes at `offset` of the export. The buffer is allocated
/// when the first part arrives.
fn place(task: &mut Task, offset: u64, bytes: u64) -> Option<usize> {
    let at = offset.checked_sub(task.request.offset)?;
    let end = at
        .checked_add(bytes)
        .filter(|end| *end <= task.request.length)?;
    if !is_new(&mut task.received, at..end) {
        return None;
    }
    let buffer = task
        .buffer
        .get_or_insert_with(|| Buffer::recycled(task.request.length as usize));
    debug_assert!(end as usize <= buffer.len());
    debug_assert_eq!(
        buffer.len() as u64,
        task.request.length,
        "a read has one buffer, of its length"
    );
    Some(at as usize)
}

/// Records a part of a read. Returns false if some of it was already received. Each byte must be received
/// exactly once, because a gap would expose data of an earlier request.
fn is_new(received: &mut Vec<Range<u64>>, part: Range<u64>) -> bool {
    let before = received.partition_point(|known| known.end <= part.start);
    if received
        .get(before)
        .is_some_and(|next| next.start < part.end)
    {
        return false;
    }
    let parts = received.len();
    match received[..before]
        .last_mut()
        .filter(|last| last.end == part.start)
    {
        Some(last) => last.end = part.end,
        None if parts == PARTS_MAX => return false,
        None => received.insert(before, part),
    }
    debug_assert!(
        received
            .windows(2)
            .all(|parts| parts[0].end <= parts[1].start)
    );
    debug_assert!(received.len() <= PARTS_MAX, "a read has few parts");
    true
}

impl ReplyPayload {
    /// The missing part of the buffer, if it has `least` bytes or more, so that it is received directly.
    fn rest<'a>(&self, inner: &'a mut Inner, least: usize) -> Option<&'a mut [u8]> {
        let PayloadKind::Data { at } = self.kind else {
            return None;
        };
        let buffer = inner.tasks.get(self.cookie)?.buffer.as_mut()?;
        buffer
            .get_mut(at..at + self.left)
            .filter(|rest| rest.len() >= least)
    }

    /// Consumes the payload's bytes from the front of `bytes`, and returns their number.
    fn put(&mut self, bytes: &[u8], inner: &mut Inner) -> usize {
        let taken = self.left.min(bytes.len());
        match &mut self.kind {
            PayloadKind::Data { at } => {
                let buffer = inner
                    .tasks
                    .get(self.cookie)
                    .and_then(|task| task.buffer.as_mut());
                if let Some(place) = buffer.and_then(|buffer| buffer.get_mut(*at..*at + taken)) {
                    place.copy_from_slice(&bytes[..taken]);
                }
            }
            PayloadKind::Extents(extents) => extents.extend_from_slice(&bytes[..taken]),
            PayloadKind::Dropped => {}
        }
        self.advance(taken);
        taken
    }

    fn advance(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.left);
        self.left -= bytes;
        if let PayloadKind::Data { at } = &mut self.kind {
            *at += bytes;
        }
    }

    fn end(self, session: &Session, inner: &mut Inner) -> Result<(), Ending> {
        debug_assert_eq!(self.left, 0, "a payload ends when all of it has arrived");
        let Some(task) = inner.tasks.get(self.cookie) else {
            return Ok(());
        };
        if let PayloadKind::Extents(payload) = &self.kind {
            let extents = session.extents(payload).ok_or(Ending::Unfit)?;
            task.extents.extend(extents.into_iter().take(EXTENTS_MAX));
        }
        if self.is_last {
            let is_read = task.request.command() == Some(Command::Read);
            if is_read && task.error.is_none() && task.received_bytes() != task.request.length {
                return Err(Ending::Unfit);
            }
            inner.answered(self.cookie);
        }
        Ok(())
    }
}

// Requests that can be sent more than once, and their results.

/// A request, in a form that can be passed to another thread.
pub(crate) struct Asked {
    pub(crate) kind: Command,
    pub(crate) flags: u16,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) data: Option<Slice>,
    /// The caller's buffer for a read, which is lent to the link's thread. Until the data arrives, other
    /// requests on that thread can use the buffer. Data is received into the buffer that was used last,
    /// because that is in the processor's cache.
    pub(crate) buffer: RefCell<Option<Buffer>>,
}

/// The result of a request.
pub(crate) struct Returned {
    pub(crate) buffer: Option<Buffer>,
    pub(crate) extents: Vec<BlockStatus>,
}

impl Asked {
    /// Creates a request without data.
    pub(crate) fn order(kind: Command, flags: u16, (offset, length): (u64, u64)) -> Asked {
        Asked {
            kind,
            flags,
            offset,
            length,
            data: None,
            buffer: RefCell::default(),
        }
    }
}

impl Clone for Asked {
    fn clone(&self) -> Asked {
        let Asked {
            kind,
            flags,
            offset,
            length,
            ref data,
            ..
        } = *self;
        Asked {
            kind,
            flags,
            offset,
            length,
            data: data.clone(),
            buffer: RefCell::default(),
        }
    }
}

impl failover::Request for Asked {
    fn kind(&self) -> RequestKind {
        match self.kind {
            Command::Write | Command::WriteZeroes | Command::Trim => RequestKind::Change {
                range: self.offset..self.offset.saturating_add(self.length),
                is_durable: self.flags & command::FUA != 0,
            },
            Command::Flush => RequestKind::Flush,
            Command::Read | Command::Disconnect | Command::Cache | Command::BlockStatus => {
                RequestKind::Read
            }
        }
    }

    fn bytes(&self) -> u64 {
        match self.kind {
            Command::Read | Command::Write => self.length,
            _ => 0,
        }
    }

    fn content(&self) -> Option<Content<&[u8]>> {
        match self.kind {
            Command::Write => self.data.as_deref().map(Content::Write),
            Command::WriteZeroes => Some(Content::Zeroes {
                may_unmap: self.flags & command::NO_HOLE == 0,
            }),
            Command::Trim => Some(Content::Unmap),
            Command::Read
            | Command::Disconnect
            | Command::Flush
            | Command::Cache
            | Command::BlockStatus => None,
        }
    }
}

impl failover::Part for Asked {
    fn part(&self, range: Range<u64>) -> Asked {
        let (from, length) = (
            (range.start - self.offset) as usize,
            range.end - range.start,
        );
        let data = self
            .data
            .as_ref()
            .map(|data| Buffer::from(&data[from..from + length as usize]).share());
        Asked {
            data,
            ..Asked::order(self.kind, self.flags, (range.start, length))
        }
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Asked>()
            + self
                .data
                .as_ref()
                .map_or(0, |data| data.len().next_multiple_of(PAGE_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use nbd::{BlockSizes, Export, ReplyForm};
    use reactor::{Alone, block_on};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    /// Sends `count` reads of 1 MiB together, and checks once a second, for `seconds` seconds, whether each
    /// is late. `step` simulates the server for one second. It returns the request whose reply data is being
    /// received, and the number of bytes still missing.
    fn late(
        count: usize,
        seconds: u64,
        mut step: impl FnMut(u64, &mut Tasks, &[u64]) -> Option<(u64, usize)>,
    ) -> Vec<bool> {
        block_on(Alone::exact_virtual_time(), async {
            let begun = reactor::now();
            let mut tasks = Tasks {
                next: u32::MAX - 1,
                ..Tasks::default()
            }; // so that the numbers wrap
            let request = Request {
                flags: 0,
                kind: Command::Read as u16,
                cookie: 0,
                offset: 0,
                length: 1 << 20,
            };
            let sent: Vec<u64> = (0..count)
                .map(|_| tasks.add(request, None, begun + LIMIT).cookie)
                .collect();
            for second in 1..=seconds {
                let open = step(second, &mut tasks, &sent);
                tasks.note_progress(begun + Duration::from_secs(second), 0, open);
                tasks.look_for_late_ones(begun + Duration::from_secs(second));
            }
            let is_late = |task: &Task| task.is_late && !matches!(task.state, State::Answered);
            sent.iter()
                .map(|cookie| tasks.get(*cookie).is_some_and(|task| is_late(task)))
                .collect()
        })
    }

    /// The test sends two writes of 4 MiB over a connection that sends 100 kB/s, and checks whether each is
    /// late.
    #[test]
    fn the_data_of_a_write_are_waited_for_while_the_connection_takes_them() {
        let late = |seconds: u64, taken: fn(u64) -> u64| {
            block_on(Alone::exact_virtual_time(), async {
                let begun = reactor::now();
                let mut tasks = Tasks::default();
                let request = Request {
                    flags: 0,
                    kind: Command::Write as u16,
                    cookie: 0,
                    offset: 0,
                    length: 4 << 20,
                };
                for number in 1..=2 {
                    let cookie = tasks.add(request, None, begun + LIMIT).cookie;
                    tasks.get(cookie).expect("added").sent_at = number * (4 << 20);
                }
                for second in 1..=seconds {
                    let now = begun + Duration::from_secs(second);
                    tasks.note_progress(now, taken(second), None);
                    tasks.look_for_late_ones(now);
                }
                let [first, second] =
                    [0, 1].map(|place| tasks.all[place].as_ref().expect("there").is_late);
                (first, second)
            })
        };
        assert_eq!(late(70, |second| second * 100_000), (false, false));
        assert_eq!(
            late(80, |second| second * 100_000),
            (true, false),
            "the first is not answered"
        );
        assert_eq!(
            late(70, |second| second.min(20) * 100_000),
            (true, true),
            "nothing moves"
        );
    }

    /// At 100 kB/s, each read takes more than 10 s.
    #[test]
    fn a_request_is_waited_for_while_the_answers_to_earlier_ones_come() {
        let slow = |second: u64, tasks: &mut Tasks, sent: &[u64]| {
            let bytes = second * 100_000;
            let place = (bytes >> 20) as usize;
            sent[..place]
                .iter()
                .for_each(|cookie| tasks.answered(*cookie));
            Some((sent[place], (1 << 20) - (bytes as usize & 0xf_ffff)))
        };
        assert_eq!(late(16, 160, slow), [false; 16]);
    }

    /// A request is not late while its own data arrives, up to a limit.
    #[test]
    fn the_data_of_a_request_are_waited_for_but_not_without_end() {
        let slow =
            |second: u64, _: &mut Tasks, sent: &[u64]| Some((sent[0], (1 << 20) - second as usize));
        assert_eq!(
            (late(1, 290, slow), late(1, 310, slow)),
            (vec![false], vec![true])
        );
    }

    #[test]
    fn answers_to_later_requests_do_not_keep_one_waiting() {
        let lost = |second: u64, tasks: &mut Tasks, sent: &[u64]| {
            tasks.answered(sent[1 + second as usize / 8]);
            None
        };
        assert_eq!(late(6, 32, lost)[..2], [true, false]);
    }

    fn session() -> Session {
        let export = Export {
            name: String::new(),
            description: String::new(),
            bytes: 1 << 40,
            flags: 0,
            block_sizes: BlockSizes {
                minimum: 1,
                preferred: 4096,
                maximum: 32 << 20,
            },
        };
        Session {
            export,
            form: ReplyForm::Structured,
            allocation: Some(1),
            channel: None,
        }
    }

    /// A structured chunk that is not the last of its reply.
    fn chunk(cookie: u64, kind: u16, payload: &[u8]) -> Vec<u8> {
        let header = [
            &0x668e_33ef_u32.to_be_bytes()[..],
            &[0, 0],
            &kind.to_be_bytes(),
            &cookie.to_be_bytes(),
        ];
        [
            &header.concat()[..],
            &(payload.len() as u32).to_be_bytes(),
            payload,
        ]
        .concat()
    }

    /// Returns the number of such chunks that a request accepts before its connection ends, and the number of
    /// extents that it keeps.
    fn taken(kind: Command, chunk_kind: u16, payload: &[u8]) -> (usize, usize) {
        reactor::block_on(Alone::virtual_time(), async {
            let (mut inner, cookie) = Inner::asking(kind, 1 << 20);
            let (mut receiver, session) = (Receiver::default(), session());
            let chunk = chunk(cookie, chunk_kind, payload);
            let times = (0..100_000)
                .take_while(|_| receiver.take(&chunk, &session, &mut inner).is_ok())
                .count();
            (
                times,
                inner.tasks.get(cookie).map_or(0, |task| task.extents.len()),
            )
        })
    }

    /// The server never sends the last chunk of a reply. Regression: one reply had 4.4 GiB in 47 s.
    #[test]
    fn a_reply_that_does_not_end_is_no_reply() {
        let extents = [
            &1_u32.to_be_bytes()[..],
            &[0, 0, 2, 0, 0, 0, 0, 3].repeat(4096),
        ]
        .concat();
        assert_eq!(taken(Command::BlockStatus, 5, &extents), (1, 4096));
        let of_another_context = [&9_u32.to_be_bytes()[..], &[0, 0, 2, 0, 0, 0, 0, 3]].concat();
        assert_eq!(
            taken(Command::BlockStatus, 5, &of_another_context),
            (EMPTY_CHUNKS_MAX, 0)
        );
        let error = [0, 0, 0, 5, 0, 0];
        for kind in [
            Command::Read,
            Command::Write,
            Command::Flush,
            Command::BlockStatus,
        ] {
            assert_eq!(
                taken(kind, 0x8001, &error),
                (EMPTY_CHUNKS_MAX, 0),
                "{kind:?}"
            );
        }
        let hole_of_nothing = [0; 12];
        assert_eq!(
            taken(Command::Read, 2, &hole_of_nothing),
            (EMPTY_CHUNKS_MAX, 0)
        );
    }

    #[test]
    fn extents_that_nobody_asked_for_so_many_of_are_dropped() {
        let extents = [
            &1_u32.to_be_bytes()[..],
            &[0, 0, 2, 0, 0, 0, 0, 3].repeat(100_000),
        ]
        .concat();
        assert_eq!(taken(Command::BlockStatus, 5, &extents), (1, EXTENTS_MAX));
    }

    #[test]
    fn no_byte_of_a_read_comes_twice() {
        let mut received = Vec::new();
        for part in [512..1024, 0..512, 2048..4096, 1024..2048] {
            assert!(is_new(&mut received, part));
        }
        assert_eq!(
            received
                .iter()
                .map(|part| part.end - part.start)
                .sum::<u64>(),
            4096
        );
        for part in [0..1, 511..513, 4095..4097, 0..4096] {
            assert!(!is_new(&mut received, part));
        }
        assert!(is_new(&mut received, 4096..4097));
    }

    #[test]
    fn parts_that_do_not_touch_are_bounded() {
        let mut received = Vec::new();
        let taken = (0..10_000)
            .filter(|part| is_new(&mut received, 2 * part..2 * part + 1))
            .count();
        assert_eq!((taken, received.len()), (PARTS_MAX, PARTS_MAX));
    }
}
