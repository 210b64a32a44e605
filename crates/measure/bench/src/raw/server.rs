//! The half that answers.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use reactor::{InSlice, OutSlice, Stream};

use super::{Direction, HEADER_BYTES, parse, unless_blocked};

/// Answers whatever comes until the peer ends the stream. `memory` is the storage: what is read is sent from it, round
/// and round, and what is written is received into it. It must not be empty.
///
/// Fails with what the socket says, with `InvalidData` if a request is none, and with `TimedOut` if nothing moves for
/// [`SILENCE_MAX`].
pub async fn serve(stream: &dyn Stream, memory: &mut [u8]) -> io::Result<()> {
    let mut server = Server { asked: Asked::new(), owed: 0, at: 0, scratch: vec![0; SCRATCH_BYTES] };
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
    /// Bytes of answers that are still to be sent.
    owed: u64,
    /// Where in the memory the next bytes come from or go to.
    at: usize,
    /// Where headers are received, and whatever comes with them.
    scratch: Vec<u8>,
}

enum Received {
    Something,
    Nothing,
    End,
}

/// Whoever asks always has requests under way; one who says nothing for so long has gone, or only takes the place of
/// others. A lossy path may be silent for the retransmission timeouts of several losses in a row.
pub const SILENCE_MAX: Duration = Duration::from_secs(30);
/// One who always has something to ask keeps the others of this thread waiting for no more than so many reads of the
/// socket, which is a millisecond or less.
const TURNS: u64 = 16;
/// Answers that wait are bounded by those whose requests are answered only when these are gone.
const OWED_BYTES_MAX: u64 = 32 << 20;
/// Thousands of headers, or a few writes.
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
        let Some(bytes) = unless_blocked(read)? else { return Ok(Received::Nothing) };
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

    /// Sends as much as fits. Whether anything was.
    fn send(&mut self, stream: &dyn Stream, memory: &mut [u8]) -> io::Result<bool> {
        let before = self.owed;
        while self.owed > 0 {
            let from = place(memory, self.at, self.owed);
            let Some(bytes) = unless_blocked(stream.try_write(&[OutSlice::Bytes(from)]))? else { break };
            self.owed -= bytes as u64;
            self.at = after(memory, self.at, bytes);
        }
        Ok(self.owed < before)
    }

    async fn idle(&self, stream: &dyn Stream) -> io::Result<()> {
        let ready = poll_fn(|cx| {
            let readable = self.owed <= OWED_BYTES_MAX && stream.poll_readable(cx).is_ready();
            let writable = self.owed > 0 && stream.poll_writable(cx).is_ready();
            if readable || writable { Poll::Ready(()) } else { Poll::Pending }
        });
        reactor::timeout(SILENCE_MAX, ready).await.map_err(|_| io::ErrorKind::TimedOut.into())
    }
}

/// As much of the memory from there on as may be used at once.
fn place(memory: &mut [u8], at: usize, bytes: u64) -> &mut [u8] {
    let left = (memory.len() - at).min(usize::try_from(bytes).unwrap_or(usize::MAX));
    &mut memory[at..at + left]
}

fn after(memory: &[u8], at: usize, bytes: usize) -> usize {
    if at + bytes < memory.len() { at + bytes } else { 0 }
}

/// Requests as they come in, cut anywhere.
struct Asked {
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    /// Data of a write that have not come yet.
    data_left: u64,
}

impl Asked {
    fn new() -> Asked {
        Asked { header: [0; HEADER_BYTES], header_bytes: 0, data_left: 0 }
    }

    /// Takes what came, and gives how many bytes of answers that makes.
    fn take(&mut self, mut bytes: &[u8]) -> io::Result<u64> {
        let mut owed = 0;
        while !bytes.is_empty() {
            if self.data_left > 0 {
                let data = bytes.len().min(usize::try_from(self.data_left).unwrap_or(usize::MAX));
                self.data_left -= data as u64;
                bytes = &bytes[data..];
                owed += if self.data_left == 0 { HEADER_BYTES as u64 } else { 0 };
                continue;
            }
            let part = bytes.len().min(HEADER_BYTES - self.header_bytes);
            self.header[self.header_bytes..self.header_bytes + part].copy_from_slice(&bytes[..part]);
            self.header_bytes += part;
            bytes = &bytes[part..];
            if self.header_bytes == HEADER_BYTES {
                self.header_bytes = 0;
                owed += self.begin()?;
            }
        }
        Ok(owed)
    }

    /// A header is whole.
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
