//! A simple NBD client that follows the specification, and sends only the requests of its callers. It shares no
//! code with `wire/nbd`, so that the two cannot share a misinterpretation of the specification. It reports
//! protocol violations by the server as faults.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Poll, Waker};

use reactor::Stream;

use crate::pdu::{self, Outbox};
use crate::simple::{Lost, SILENCE_MAX, Slowness, dawdle};
use crate::universe;

/// Commands.
pub(super) const READ: u16 = 0;
pub(super) const WRITE: u16 = 1;
pub(super) const DISCONNECT: u16 = 2;
pub(super) const FLUSH: u16 = 3;
pub(super) const TRIM: u16 = 4;
pub(super) const CACHE: u16 = 5;
pub(super) const WRITE_ZEROES: u16 = 6;

/// Command flags.
pub(super) const FUA: u16 = 1;
pub(super) const NO_HOLE: u16 = 2;
pub(super) const DF: u16 = 4;
pub(super) const FAST_ZERO: u16 = 16;

/// Transmission flags.
pub(super) const SEND_TRIM: u16 = 1 << 5;
pub(super) const CAN_MULTI_CONN: u16 = 1 << 8;

/// Errors.
pub(super) const EPERM: u32 = 1;
const EINVAL: u32 = 22;
pub(super) const ENOSPC: u32 = 28;
pub(super) const ENOTSUP: u32 = 95;
const EOVERFLOW: u32 = 75;

/// Options.
pub(super) const OPT_EXPORT_NAME: u32 = 1;
pub(super) const OPT_GO: u32 = 7;
pub(super) const OPT_STRUCTURED_REPLY: u32 = 8;
pub(super) const OPT_EXTENDED_HEADERS: u32 = 11;
pub(super) const REPLY_ACK: u32 = 1;
pub(super) const REPLY_INFO: u32 = 3;

pub(super) const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
pub(super) const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
pub(super) const REQUEST: u32 = 0x2560_9513;
const EXTENDED_REQUEST: u32 = 0x21e4_1c71;
const SIMPLE_REPLY: u32 = 0x6744_6698;
const STRUCTURED_REPLY: u32 = 0x668e_33ef;
const EXTENDED_REPLY: u32 = 0x6e8a_278c;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Simple,
    Structured,
    Extended,
}

/// Parameters of a client's handshake.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) export: String,
    pub(super) form: Form,
    /// Whether to use NBD_OPT_EXPORT_NAME instead of NBD_OPT_GO.
    pub(super) old: bool,
    pub(super) slow: Slowness,
    pub(super) is_calm: bool,
}

#[derive(Clone)]
pub(super) struct Client(Rc<Inner>);

struct Inner {
    stream: Box<dyn Stream>,
    /// The client's own address.
    local: SocketAddr,
    form: Form,
    bytes: u64,
    flags: u16,
    slow: Slowness,
    is_calm: bool,
    state: RefCell<State>,
    lost: Cell<bool>,
}

#[derive(Default)]
struct State {
    next: u64,
    requests: BTreeMap<u64, Request>,
    out: Outbox,
    end: Option<Waker>,
}

struct Request {
    command: u16,
    offset: u64,
    data: Vec<u8>,
    /// Number of bytes received.
    filled: usize,
    error: u32,
    done: bool,
    waker: Option<Waker>,
}

/// The result of a request: an error or 0, and the data read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) error: u32,
    pub(super) data: Vec<u8>,
}

fn wrong(what: impl Into<String>) -> io::Error {
    universe::fault(format!(
        "the NBD server violates the protocol: {}",
        what.into()
    ));
    io::ErrorKind::InvalidData.into()
}

async fn bytes<const N: usize>(stream: &dyn Stream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    pdu::read(stream, &mut bytes).await?;
    Ok(bytes)
}

async fn get_16(stream: &dyn Stream) -> io::Result<u16> {
    bytes(stream).await.map(u16::from_be_bytes)
}

async fn get_32(stream: &dyn Stream) -> io::Result<u32> {
    bytes(stream).await.map(u32::from_be_bytes)
}

async fn get_64(stream: &dyn Stream) -> io::Result<u64> {
    bytes(stream).await.map(u64::from_be_bytes)
}

pub(super) fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut sent = OPTION_MAGIC.to_vec();
    sent.extend(number.to_be_bytes());
    sent.extend((data.len() as u32).to_be_bytes());
    sent.extend(data);
    sent
}

/// Encodes the data of NBD_OPT_GO: a name, and no requests for information.
pub(super) fn go(export: &str) -> Vec<u8> {
    let mut data = (export.len() as u32).to_be_bytes().to_vec();
    data.extend(export.as_bytes());
    data.extend([0, 0]);
    data
}

/// Receives the greeting, and replies with the client's flags.
pub(super) async fn greet(stream: &dyn Stream) -> io::Result<()> {
    if bytes(stream).await? != *b"NBDMAGIC" || bytes(stream).await? != *OPTION_MAGIC {
        return Err(wrong("its greeting"));
    }
    if get_16(stream).await? & 1 == 0 {
        return Err(wrong("it does not support fixed newstyle"));
    }
    pdu::write(stream, &3u32.to_be_bytes()).await // fixed newstyle, no zeroes
}

/// Receives the next reply to an option, and returns its type and its data.
pub(super) async fn option_reply(stream: &dyn Stream, to: u32) -> io::Result<(u32, Vec<u8>)> {
    if get_64(stream).await? != OPTION_REPLY || get_32(stream).await? != to {
        return Err(wrong(format!("its reply to option {to}")));
    }
    let (kind, length) = (get_32(stream).await?, get_32(stream).await?);
    let mut data = vec![0; length as usize];
    pdu::read(stream, &mut data).await?;
    Ok((kind, data))
}

/// Requests an export, and returns its size and flags; `None` if the server refuses it.
async fn shake_hands(stream: &dyn Stream, terms: &Terms) -> io::Result<Option<(u64, u16)>> {
    greet(stream).await?;
    let wanted = match terms.form {
        Form::Simple => None,
        Form::Structured => Some(OPT_STRUCTURED_REPLY),
        Form::Extended => Some(OPT_EXTENDED_HEADERS),
    };
    if let Some(wanted) = wanted {
        pdu::write(stream, &option(wanted, &[])).await?;
        if option_reply(stream, wanted).await?.0 != REPLY_ACK {
            return Err(wrong(format!("it rejects option {wanted}")));
        }
    }
    if terms.old {
        pdu::write(stream, &option(OPT_EXPORT_NAME, terms.export.as_bytes())).await?;
        return Ok(Some((get_64(stream).await?, get_16(stream).await?)));
    }
    pdu::write(stream, &option(OPT_GO, &go(&terms.export))).await?;
    let mut export = None;
    loop {
        match option_reply(stream, OPT_GO).await? {
            (REPLY_INFO, data) if data.len() == 12 && data[..2] == [0, 0] => {
                let bytes = data[2..10]
                    .iter()
                    .fold(0, |value, byte| value << 8 | u64::from(*byte));
                export = Some((bytes, u16::from_be_bytes([data[10], data[11]])));
            }
            (REPLY_INFO, _) => {}
            (REPLY_ACK, _) if export.is_some() => return Ok(export),
            (kind, _) if kind >> 31 == 1 => return Ok(None),
            (kind, _) => return Err(wrong(format!("reply {kind:#x} to GO"))),
        }
    }
}

impl Client {
    /// Connects to an export. Returns `None` if the export does not exist or the connection fails.
    pub(super) async fn connect(to: SocketAddr, terms: &Terms) -> Option<Client> {
        let stream = reactor::world().connect(to, &Default::default()).ok()?;
        let (bytes, flags) = shake_hands(&*stream, terms).await.ok().flatten()?;
        let client = Client(Rc::new(Inner {
            local: stream.local(),
            stream,
            form: terms.form,
            bytes,
            flags,
            slow: terms.slow,
            is_calm: terms.is_calm,
            state: RefCell::default(),
            lost: Cell::new(false),
        }));
        reactor::spawn(read(client.clone()));
        reactor::spawn(write(client.clone()));
        Some(client)
    }

    pub(super) fn local(&self) -> SocketAddr {
        self.0.local
    }

    /// Returns the size of the export in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.0.bytes
    }

    pub(super) fn can(&self, flag: u16) -> bool {
        self.0.flags & flag != 0
    }

    /// Whether replies to reads consist of chunks.
    pub(super) fn has_chunks(&self) -> bool {
        self.0.form != Form::Simple
    }

    pub(super) fn is_lost(&self) -> bool {
        self.0.lost.get()
    }

    /// Sends a request and waits for its reply.
    pub(super) async fn request(
        &self,
        command: u16,
        flags: u16,
        (offset, length): (u64, u64),
        data: &[u8],
    ) -> Result<Reply, Lost> {
        let cookie = self.send(command, flags, (offset, length), data);
        let reply = poll_fn(|cx| {
            let mut state = self.0.state.borrow_mut();
            let Some(request) = state.requests.get_mut(&cookie) else {
                return Poll::Ready(Err(Lost));
            };
            if request.done {
                let reply = Reply {
                    error: request.error,
                    data: std::mem::take(&mut request.data),
                };
                state.requests.remove(&cookie);
                return Poll::Ready(Ok(reply));
            }
            if self.0.lost.get() {
                return Poll::Ready(Err(Lost));
            }
            request.waker = Some(cx.waker().clone());
            Poll::Pending
        });
        self.or_leave(reply).await.unwrap_or(Err(Lost))
    }

    fn send(&self, command: u16, flags: u16, (offset, length): (u64, u64), data: &[u8]) -> u64 {
        let mut state = self.0.state.borrow_mut();
        let cookie = state.next;
        state.next += 1;
        let is_extended = self.0.form == Form::Extended;
        // With extended headers, the flag NBD_CMD_FLAG_PAYLOAD_LEN indicates that a write's data follows.
        let flags = flags
            | if is_extended && command == WRITE {
                1 << 5
            } else {
                0
            };
        let magic = if is_extended {
            EXTENDED_REQUEST
        } else {
            REQUEST
        };
        let mut sent = magic.to_be_bytes().to_vec();
        sent.extend(flags.to_be_bytes());
        sent.extend(command.to_be_bytes());
        sent.extend(cookie.to_be_bytes());
        sent.extend(offset.to_be_bytes());
        match is_extended {
            true => sent.extend(length.to_be_bytes()),
            false => sent.extend((length as u32).to_be_bytes()),
        }
        sent.extend(data);
        state.out.put(&sent);
        let data = vec![0; if command == READ { length as usize } else { 0 }];
        let request = Request {
            command,
            offset,
            data,
            filled: 0,
            error: 0,
            done: false,
            waker: None,
        };
        if command != DISCONNECT {
            state.requests.insert(cookie, request);
        }
        cookie
    }

    /// Disconnects as the specification requires, and waits until the server has closed the connection.
    pub(super) async fn disconnect(&self) {
        if self.is_lost() {
            return;
        }
        self.send(DISCONNECT, 0, (0, 0), &[]);
        let end = poll_fn(|cx| {
            if self.0.lost.get() {
                return Poll::Ready(());
            }
            self.0.state.borrow_mut().end = Some(cx.waker().clone());
            Poll::Pending
        });
        self.or_leave(end).await;
    }

    /// Waits for up to [`SILENCE_MAX`], then closes the connection: if the server no longer has the
    /// connection, nothing arrives on it.
    async fn or_leave<T>(&self, something: impl Future<Output = T>) -> Option<T> {
        match reactor::timeout(SILENCE_MAX, something).await {
            Ok(value) => Some(value),
            Err(_) => {
                if self.0.is_calm {
                    let seconds = SILENCE_MAX.as_secs();
                    universe::fault(format!(
                        "an NBD request has had no reply for {seconds} s, although nothing blocks it"
                    ));
                }
                self.leave();
                None
            }
        }
    }

    /// Closes the connection without a disconnect request.
    pub(super) fn leave(&self) {
        self.0.stream.shutdown();
        self.lose();
    }

    fn lose(&self) {
        self.0.lost.set(true);
        let wakers = {
            let mut state = self.0.state.borrow_mut();
            let mut wakers: Vec<Waker> = state
                .requests
                .values_mut()
                .filter_map(|request| request.waker.take())
                .collect();
            wakers.extend(state.out.take_writer());
            wakers.extend(state.end.take());
            wakers
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    async fn reply(&self) -> io::Result<()> {
        let stream = &*self.0.stream;
        let magic = get_32(stream).await?;
        let is_legal = match self.0.form {
            Form::Simple => magic == SIMPLE_REPLY,
            Form::Structured => magic == SIMPLE_REPLY || magic == STRUCTURED_REPLY,
            Form::Extended => magic == EXTENDED_REPLY,
        };
        if !is_legal {
            return Err(wrong(format!("a reply starts with {magic:#x}")));
        }
        if magic == SIMPLE_REPLY {
            let (error, cookie) = (get_32(stream).await?, get_64(stream).await?);
            let command = self.command(cookie)?;
            if command == READ && self.0.form != Form::Simple {
                return Err(wrong(
                    "a simple reply to a read, although structured replies were negotiated",
                ));
            }
            let length = self.length(cookie, error);
            let mut data = vec![0; length];
            pdu::read(stream, &mut data).await?;
            self.fill(cookie, 0, &data)?;
            return self.end(cookie, error);
        }
        let (flags, kind) = (get_16(stream).await?, get_16(stream).await?);
        let cookie = get_64(stream).await?;
        let length = match self.0.form {
            Form::Extended => {
                get_64(stream).await?; // the offset of the request
                get_64(stream).await?
            }
            _ => u64::from(get_32(stream).await?),
        };
        let command = self.command(cookie)?;
        if length > 1 << 20 {
            return Err(wrong(format!("a chunk of {length} bytes")));
        }
        let mut payload = vec![0; length as usize];
        pdu::read(stream, &mut payload).await?;
        let number = |at: usize, bytes: usize| {
            let found = payload
                .get(at..at + bytes)
                .ok_or_else(|| wrong("a short chunk"));
            found.map(|found| {
                found
                    .iter()
                    .fold(0, |value, byte| value << 8 | u64::from(*byte))
            })
        };
        let mut error = 0;
        match kind {
            0 if length == 0 => {}
            1 if command == READ => self.fill(cookie, number(0, 8)?, &payload[8..])?,
            2 if command == READ => {
                self.fill(cookie, number(0, 8)?, &vec![0; number(8, 4)? as usize])?
            }
            _ if kind >> 15 == 1 => error = number(0, 4)? as u32,
            _ => {
                return Err(wrong(format!(
                    "a chunk of type {kind:#x} to command {command}"
                )));
            }
        }
        match (flags & 1, error) {
            (1, _) => self.end(cookie, error),
            (_, 0) => Ok(()),
            _ => self.note(cookie, error),
        }
    }

    fn command(&self, cookie: u64) -> io::Result<u16> {
        let state = self.0.state.borrow();
        let request = state.requests.get(&cookie).filter(|request| !request.done);
        request
            .map(|request| request.command)
            .ok_or_else(|| wrong(format!("unsolicited reply to {cookie}")))
    }

    /// Returns the number of bytes that follow a simple reply.
    fn length(&self, cookie: u64, error: u32) -> usize {
        let state = self.0.state.borrow();
        state
            .requests
            .get(&cookie)
            .filter(|_| error == 0)
            .map_or(0, |request| request.data.len())
    }

    /// Stores data of a read at this offset of the export. In a simple reply, `offset` 0 stands for the
    /// offset of the request.
    fn fill(&self, cookie: u64, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.0.state.borrow_mut();
        let Some(request) = state.requests.get_mut(&cookie) else {
            return Ok(());
        };
        let at = offset.max(request.offset) - request.offset;
        let Some(place) = request.data.get_mut(at as usize..at as usize + data.len()) else {
            return Err(wrong("more data than requested"));
        };
        place.copy_from_slice(data);
        request.filled += data.len();
        Ok(())
    }

    fn note(&self, cookie: u64, error: u32) -> io::Result<()> {
        if let Some(request) = self.0.state.borrow_mut().requests.get_mut(&cookie) {
            request.error = error;
        }
        Ok(())
    }

    fn end(&self, cookie: u64, error: u32) -> io::Result<()> {
        let mut state = self.0.state.borrow_mut();
        let Some(request) = state.requests.get_mut(&cookie) else {
            return Ok(());
        };
        if error == EOVERFLOW || error == EINVAL {
            return Err(wrong(format!("it rejects a legal request (error {error})")));
        }
        request.error = request.error.max(error);
        if request.error == 0 && request.filled != request.data.len() {
            return Err(wrong(format!(
                "{} of {} bytes were read",
                request.filled,
                request.data.len()
            )));
        }
        request.done = true;
        if let Some(waker) = request.waker.take() {
            waker.wake();
        }
        Ok(())
    }
}

async fn read(client: Client) {
    while !client.is_lost() {
        dawdle(client.0.slow.reads_once_in, client.0.slow.longest).await;
        if client.reply().await.is_err() {
            return client.lose();
        }
    }
}

async fn write(client: Client) {
    loop {
        let taken = poll_fn(|cx| {
            client
                .0
                .state
                .borrow_mut()
                .out
                .poll_take(cx, client.0.lost.get())
        })
        .await;
        let Some(bytes) = taken else { return };
        let mut at = 0;
        while at < bytes.len() {
            // Send in pieces, so that a slow client pauses in the middle of a request.
            dawdle(client.0.slow.sends_once_in, client.0.slow.longest).await;
            let end = bytes.len().min(at + (8 << 10));
            if client.is_lost()
                || pdu::write(&*client.0.stream, &bytes[at..end])
                    .await
                    .is_err()
            {
                return client.lose();
            }
            at = end;
        }
    }
}
