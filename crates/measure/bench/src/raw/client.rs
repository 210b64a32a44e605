//! The half that asks: equal requests, a number of them always under way.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::{Duration, Instant};

use reactor::{InSlice, OutSlice, Stream};

use super::{Direction, HEADER_BYTES, header, unless_blocked};

/// What is asked, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Which way the data go.
    pub direction: Direction,
    /// Data of each request, in bytes.
    pub block_bytes: u32,
    /// Requests under way at once.
    pub depth: u32,
}

/// How many requests were answered, and how long that took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answered {
    /// Whole ones.
    pub requests: u64,
    /// From the first request to the end.
    pub time: Duration,
}

impl Answered {
    /// Requests a second.
    pub fn per_second(self) -> f64 {
        let seconds = self.time.as_secs_f64();
        if seconds > 0.0 { self.requests as f64 / seconds } else { 0.0 }
    }
}

/// Asks for at least `duration`, and leaves the stream with requests under way: it is of no further use. A system call
/// moves at most `call_bytes`, or one request or answer: large calls cost less, and small ones let both ends work at the same
/// time; which is faster has to be tried.
///
/// Fails with what the socket says, and with `UnexpectedEof` if the server ends the stream.
pub async fn ask(
    stream: &dyn Stream,
    question: Question,
    call_bytes: usize,
    duration: Duration,
) -> io::Result<Answered> {
    let begun = reactor::now();
    let end = begun + duration;
    let mut answered = Answered { requests: 0, time: Duration::ZERO };
    ask_while(stream, question, call_bytes, |now, requests| {
        answered = Answered { requests, time: now - begun };
        (now < end).then_some(end)
    })
    .await?;
    Ok(answered)
}

/// Asks for as long as `look` wants, which is told in every turn what time it is and how many requests have been answered.
/// It gives the moment when it wants to look again at the latest, or nothing, and then that was all.
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
    /// What one request is on the wire, as often as fits into a system call worth making.
    requests: Vec<u8>,
    request_bytes: u64,
    answer_bytes: u64,
    depth: u64,
    /// Requests that were begun to be sent, and bytes of them that were sent.
    asked: u64,
    sent_bytes: u64,
    received_bytes: u64,
    answered: u64,
    scratch: Vec<u8>,
}

impl Client {
    fn new(question: Question, call_bytes: usize) -> Client {
        let Question { direction, block_bytes, depth } = question;
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

    /// Sends what may be under way and is not. Whether anything was sent.
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
            let Some(bytes) = unless_blocked(wrote)? else { return Ok(any) };
            self.sent_bytes += bytes as u64;
            any = true;
        }
    }

    /// Whether anything came.
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
            if readable || writable { Poll::Ready(()) } else { Poll::Pending }
        });
        // A server that says nothing more is found out at the end.
        let _ = reactor::timeout(until.saturating_duration_since(reactor::now()), ready).await;
    }
}
