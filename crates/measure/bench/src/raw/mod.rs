//! Measures the maximum throughput of this machine: transfers the bytes of a storage protocol over TCP,
//! without the protocol and without storage.
//!
//! A request is a header of 48 bytes (the length of an iSCSI header), followed by the data of a write. The
//! server parses eight bytes of the header. It replies with 48 bytes, followed by the data of a read: an
//! iSCSI target may also send status and data in one PDU (RFC 7143 section 11.7.3). The server keeps no
//! session state, checks nothing, and counts outgoing bytes instead of requests. Every target has to perform
//! at least this socket I/O, so no target can be faster.
//!
//! The client and the server run over a [`reactor::Stream`], in either runtime environment: one that sleeps
//! when idle, or one that spins.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::{Duration, Instant};

use reactor::{InSlice, OutSlice, Stream};

use crate::plan::{Cell, Percent};
use crate::record::Limit;

/// The header length of requests and replies.
const HEADER_BYTES: usize = 48;
/// Maximum data length of a request. The longest request of any suite has 8 MiB.
const DATA_BYTES_MAX: u32 = 64 << 20;

/// The direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The data follows the reply.
    Read,
    /// The data follows the request.
    Write,
}

impl Direction {
    /// Returns the first byte of a header.
    fn code(self) -> u8 {
        match self {
            Direction::Read => 1,
            Direction::Write => 2,
        }
    }
}

/// Formats the header of a request for this number of bytes.
fn header(direction: Direction, data_bytes: u32) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[0] = direction.code();
    header[4..8].copy_from_slice(&data_bytes.to_be_bytes());
    header
}

/// Parses a header.
fn parse(header: &[u8; HEADER_BYTES]) -> io::Result<(Direction, u32)> {
    let data_bytes = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    let direction = [Direction::Read, Direction::Write]
        .into_iter()
        .find(|known| known.code() == header[0]);
    match direction {
        Some(direction) if data_bytes <= DATA_BYTES_MAX => Ok((direction, data_bytes)),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "this is not a raw protocol request",
        )),
    }
}

/// Converts the error `WouldBlock` to `None`.
fn unless_blocked(moved: io::Result<usize>) -> io::Result<Option<usize>> {
    match moved {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

impl Question {
    /// Returns the question that corresponds to a cell, or `None` if the cell has several kinds of requests.
    pub fn of_cell(cell: &Cell) -> Option<Question> {
        let [role] = &cell.roles[..] else { return None };
        let [access] = &role.workload.accesses[..] else {
            return None;
        };
        let direction = match access.read {
            Percent::ALL => Direction::Read,
            Percent::NONE => Direction::Write,
            _ => return None,
        };
        Some(Question {
            direction,
            block_bytes: access.block_bytes,
            depth: role.workload.depth,
        })
    }

    /// Creates the limit of TCP throughput, with its first point: a request length, and bytes per second.
    pub fn limit(self, point: (u32, f64)) -> Limit {
        Limit {
            name: "TCP on this machine".to_owned(),
            direction: self.direction_name().to_owned(),
            depth: Some(self.depth),
            points: vec![point],
        }
    }

    /// Returns whether a limit has the direction and depth of this question.
    pub fn is_under(self, limit: &Limit) -> bool {
        (limit.direction.as_str(), limit.depth) == (self.direction_name(), Some(self.depth))
    }

    /// Returns the measured limit for this question, in bytes per second.
    pub fn ceiling(self, limits: &[Limit]) -> Option<f64> {
        let curve = limits.iter().find(|limit| self.is_under(limit))?;
        let point = curve
            .points
            .iter()
            .find(|(block_bytes, _)| *block_bytes == self.block_bytes)?;
        Some(point.1).filter(|rate| *rate > 0.0)
    }

    fn direction_name(self) -> &'static str {
        match self.direction {
            Direction::Read => "read",
            Direction::Write => "write",
        }
    }
}

/// The kind of request that a client repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The direction of the data.
    pub direction: Direction,
    /// The data of each request, in bytes.
    pub block_bytes: u32,
    /// The queue depth.
    pub depth: u32,
}

/// The number of completed requests, and their time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answered {
    /// The number of requests whose whole reply has arrived.
    pub requests: u64,
    /// The time from the first request to the end.
    pub time: Duration,
}

impl Answered {
    /// Requests per second.
    pub fn per_second(self) -> f64 {
        let seconds = self.time.as_secs_f64();
        if seconds > 0.0 {
            self.requests as f64 / seconds
        } else {
            0.0
        }
    }
}

/// Sends requests for at least `duration`. At the end, requests are still outstanding, so the stream cannot
/// be used further. A system call transfers at most `call_bytes`, or one request or reply if that is longer.
/// Large calls cost less CPU time, and small calls let both ends work concurrently. Only a measurement shows
/// which is faster.
///
/// Fails with the socket's error, and with `UnexpectedEof` if the server closes the stream.
pub async fn ask(
    stream: &dyn Stream,
    question: Question,
    call_bytes: usize,
    duration: Duration,
) -> io::Result<Answered> {
    let begun = reactor::now();
    let end = begun + duration;
    let mut answered = Answered {
        requests: 0,
        time: Duration::ZERO,
    };
    ask_while(stream, question, call_bytes, |now, requests| {
        answered = Answered {
            requests,
            time: now - begun,
        };
        (now < end).then_some(end)
    })
    .await?;
    Ok(answered)
}

/// Sends requests until `look` returns `None`. In every turn, `look` receives the time and the number of
/// completed requests, and returns the latest time of its next call, or `None` to stop.
///
/// Fails as [`ask`] does.
pub async fn ask_while(
    stream: &dyn Stream,
    question: Question,
    call_bytes: usize,
    mut look: impl FnMut(Instant, u64) -> Option<Instant>,
) -> io::Result<()> {
    let mut client = Client::new(question, call_bytes);
    while let Some(again) = look(reactor::now(), client.answered) {
        let sent = client.send(stream)?;
        let received = client.receive(stream)?;
        if !sent && !received {
            client.idle(stream, again).await;
        }
    }
    Ok(())
}

struct Client {
    /// A request in wire format, repeated so that a system call can send several.
    requests: Vec<u8>,
    request_bytes: u64,
    answer_bytes: u64,
    depth: u64,
    /// Number of requests that may have been sent, and the number of their bytes that have been sent.
    asked: u64,
    sent_bytes: u64,
    received_bytes: u64,
    answered: u64,
    scratch: Vec<u8>,
}

impl Client {
    fn new(question: Question, call_bytes: usize) -> Client {
        let Question {
            direction,
            block_bytes,
            depth,
        } = question;
        let data_bytes = block_bytes as usize;
        let (behind_request, behind_answer) = match direction {
            Direction::Read => (0, data_bytes),
            Direction::Write => (data_bytes, 0),
        };
        let mut request = header(direction, block_bytes).to_vec();
        request.resize(HEADER_BYTES + behind_request, 0x5a);
        let at_once = (call_bytes / request.len()).clamp(1, depth.max(1) as usize);
        Client {
            requests: request.repeat(at_once),
            request_bytes: request.len() as u64,
            answer_bytes: (HEADER_BYTES + behind_answer) as u64,
            depth: u64::from(depth.max(1)),
            asked: 0,
            sent_bytes: 0,
            received_bytes: 0,
            answered: 0,
            scratch: vec![0; call_bytes.max(HEADER_BYTES + behind_answer)],
        }
    }

    /// Sends requests up to the queue depth. Returns whether anything was sent.
    fn send(&mut self, stream: &dyn Stream) -> io::Result<bool> {
        self.asked = self.answered + self.depth;
        let mut any = false;
        loop {
            let left = self.asked * self.request_bytes - self.sent_bytes;
            if left == 0 {
                return Ok(any);
            }
            let from = (self.sent_bytes % self.request_bytes) as usize;
            let to = self.requests.len().min(from.saturating_add(left as usize));
            let wrote = stream.try_write(&[OutSlice::Bytes(&self.requests[from..to])]);
            let Some(bytes) = unless_blocked(wrote)? else {
                return Ok(any);
            };
            self.sent_bytes += bytes as u64;
            any = true;
        }
    }

    /// Receives replies. Returns whether any bytes arrived.
    fn receive(&mut self, stream: &dyn Stream) -> io::Result<bool> {
        match unless_blocked(stream.try_read(&mut [InSlice::Bytes(&mut self.scratch)]))? {
            None => Ok(false),
            Some(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Some(bytes) => {
                self.received_bytes += bytes as u64;
                self.answered = self.received_bytes / self.answer_bytes;
                Ok(true)
            }
        }
    }

    async fn idle(&self, stream: &dyn Stream, until: Instant) {
        let blocked = self.sent_bytes < self.asked * self.request_bytes;
        let ready = poll_fn(|cx| {
            let readable = stream.poll_readable(cx).is_ready();
            let writable = blocked && stream.poll_writable(cx).is_ready();
            if readable || writable {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        // The caller detects an unresponsive server at the end of the measurement.
        let _ = reactor::timeout(until.saturating_duration_since(reactor::now()), ready).await;
    }
}

/// Serves requests until the peer closes the stream. `memory`, which must not be empty, is the storage. Reads
/// send its content, repeatedly from start to end, and writes are received into it.
///
/// Fails with the socket's error, with `InvalidData` if a request is invalid, and with `TimedOut` if no bytes
/// are transferred for [`SILENCE_MAX`].
pub async fn serve(stream: &dyn Stream, memory: &mut [u8]) -> io::Result<()> {
    let mut server = Server {
        asked: Asked::new(),
        owed: 0,
        at: 0,
        scratch: vec![0; SCRATCH_BYTES],
    };
    for turn in 1_u64.. {
        if turn.is_multiple_of(TURNS) {
            reactor::yield_now().await;
        }
        let received = server.receive(stream, memory)?;
        let sent = server.send(stream, memory)?;
        match received {
            Received::End => return Ok(()),
            Received::Something => {}
            Received::Nothing if sent => {}
            Received::Nothing => server.idle(stream).await?,
        }
    }
    Ok(())
}

struct Server {
    asked: Asked,
    /// Bytes of replies that have not been sent yet.
    owed: u64,
    /// The position in the memory for the next bytes, in both directions.
    at: usize,
    /// The receive buffer for headers and any data after them.
    scratch: Vec<u8>,
}

enum Received {
    Something,
    Nothing,
    End,
}

/// Maximum idle time of a connection. A measuring client always has outstanding requests, so an idle client
/// has failed, or only occupies a slot. On a lossy path, a connection may be idle for several retransmission
/// timeouts in a row.
pub const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Number of socket reads after which a busy client yields to the others on this thread. This number of reads
/// takes a millisecond or less.
const TURNS: u64 = 16;
/// Limit on pending reply bytes. Above it, the server does not read further requests.
const OWED_BYTES_MAX: u64 = 32 << 20;
/// Size of the receive buffer: space for thousands of headers, or for a few writes.
const SCRATCH_BYTES: usize = 256 << 10;

impl Server {
    fn receive(&mut self, stream: &dyn Stream, memory: &mut [u8]) -> io::Result<Received> {
        if self.owed > OWED_BYTES_MAX {
            return Ok(Received::Nothing);
        }
        let scratch = &mut self.scratch[..];
        let from = self.at;
        let into = place(memory, from, self.asked.data_left);
        let direct = into.len();
        let read = if direct == 0 {
            stream.try_read(&mut [InSlice::Bytes(scratch)])
        } else {
            stream.try_read(&mut [InSlice::Bytes(into), InSlice::Bytes(scratch)])
        };
        let Some(bytes) = unless_blocked(read)? else {
            return Ok(Received::Nothing);
        };
        if bytes == 0 {
            return Ok(Received::End);
        }
        let placed = bytes.min(direct);
        self.asked.data_left -= placed as u64;
        self.at = after(memory, from, placed);
        if placed > 0 && self.asked.data_left == 0 {
            self.owed += HEADER_BYTES as u64;
        }
        self.owed += self.asked.take(&self.scratch[..bytes - placed])?;
        Ok(Received::Something)
    }

    /// Sends as many reply bytes as the socket accepts. Returns whether any were sent.
    fn send(&mut self, stream: &dyn Stream, memory: &mut [u8]) -> io::Result<bool> {
        let before = self.owed;
        while self.owed > 0 {
            let from = place(memory, self.at, self.owed);
            let Some(bytes) = unless_blocked(stream.try_write(&[OutSlice::Bytes(from)]))? else {
                break;
            };
            self.owed -= bytes as u64;
            self.at = after(memory, self.at, bytes);
        }
        Ok(self.owed < before)
    }

    async fn idle(&self, stream: &dyn Stream) -> io::Result<()> {
        let ready = poll_fn(|cx| {
            let readable = self.owed <= OWED_BYTES_MAX && stream.poll_readable(cx).is_ready();
            let writable = self.owed > 0 && stream.poll_writable(cx).is_ready();
            if readable || writable {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        reactor::timeout(SILENCE_MAX, ready)
            .await
            .map_err(|_| io::ErrorKind::TimedOut.into())
    }
}

/// Returns up to `bytes` of the memory from this position, as one slice.
fn place(memory: &mut [u8], at: usize, bytes: u64) -> &mut [u8] {
    let left = (memory.len() - at).min(usize::try_from(bytes).unwrap_or(usize::MAX));
    &mut memory[at..at + left]
}

fn after(memory: &[u8], at: usize, bytes: usize) -> usize {
    if at + bytes < memory.len() {
        at + bytes
    } else {
        0
    }
}

/// A parser for requests that arrive in arbitrary pieces.
struct Asked {
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    /// The bytes of a write's data that have not arrived yet.
    data_left: u64,
}

impl Asked {
    fn new() -> Asked {
        Asked {
            header: [0; HEADER_BYTES],
            header_bytes: 0,
            data_left: 0,
        }
    }

    /// Consumes received bytes, and returns the number of reply bytes that they require.
    fn take(&mut self, mut bytes: &[u8]) -> io::Result<u64> {
        let mut owed = 0;
        while !bytes.is_empty() {
            if self.data_left > 0 {
                let data = bytes
                    .len()
                    .min(usize::try_from(self.data_left).unwrap_or(usize::MAX));
                self.data_left -= data as u64;
                bytes = &bytes[data..];
                owed += if self.data_left == 0 {
                    HEADER_BYTES as u64
                } else {
                    0
                };
                continue;
            }
            let part = bytes.len().min(HEADER_BYTES - self.header_bytes);
            self.header[self.header_bytes..self.header_bytes + part]
                .copy_from_slice(&bytes[..part]);
            self.header_bytes += part;
            bytes = &bytes[part..];
            if self.header_bytes == HEADER_BYTES {
                self.header_bytes = 0;
                owed += self.begin()?;
            }
        }
        Ok(owed)
    }

    /// Handles a complete header.
    fn begin(&mut self) -> io::Result<u64> {
        let (direction, data_bytes) = parse(&self.header)?;
        let data_bytes = u64::from(data_bytes);
        Ok(match direction {
            Direction::Read => HEADER_BYTES as u64 + data_bytes,
            Direction::Write if data_bytes == 0 => HEADER_BYTES as u64,
            Direction::Write => {
                self.data_left = data_bytes;
                0
            }
        })
    }
}

#[cfg(test)]
mod tests;
