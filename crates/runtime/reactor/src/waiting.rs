//! Asynchronous calls that wait on streams, listeners and datagrams. Each call counts against the budget of
//! the task's current poll ([`consume_budget`](crate::consume_budget)), so that no peer can monopolize a
//! core.

use std::future::poll_fn;
use std::io;

use crate::datagrams::{DatagramBatch, Datagrams};
use crate::executor::{proceed, spend};
use crate::stream::{InSlice, OutSlice, Stream};
use crate::world::Listener;

impl dyn Stream + '_ {
    /// Waits for data, and receives as many available bytes as fit. `Ok(0)` means that the peer has ended the
    /// stream. No byte is lost if the future is dropped.
    ///
    /// Like all calls in this module, this one yields to the core's other tasks once the task has used up its
    /// budget for one poll. So a peer that never stops sending or receiving cannot delay a deadline.
    pub async fn read_some(&self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            proceed().await;
            let read = self.try_read(&mut [InSlice::Bytes(bytes)]);
            spend(*read.as_ref().unwrap_or(&0));
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll_fn(|cx| self.poll_readable(cx)).await?;
                }
                read => return read,
            }
        }
    }

    /// Fills `bytes`, and reads nothing beyond them. It is an error if the stream ends before that.
    ///
    /// If the future is dropped, the number of bytes read is unknown: close the stream.
    pub async fn read_exact(&self, bytes: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.read_some(&mut bytes[filled..]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => filled += read,
            }
        }
        Ok(())
    }

    /// Sends all of `bytes`.
    ///
    /// If the future is dropped, the number of bytes sent is unknown: close the stream.
    pub async fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        let mut sent = 0;
        while sent < bytes.len() {
            proceed().await;
            let written = self.try_write(&[OutSlice::Bytes(&bytes[sent..])]);
            spend(*written.as_ref().unwrap_or(&0));
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => sent += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll_fn(|cx| self.poll_writable(cx)).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl dyn Listener + '_ {
    /// Waits for the next connection. Yields periodically, even if connections arrive continuously.
    pub async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        loop {
            proceed().await;
            spend(0);
            match self.try_accept() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll_fn(|cx| self.poll_acceptable(cx)).await?;
                }
                accepted => return accepted,
            }
        }
    }
}

impl dyn Datagrams + '_ {
    /// Waits for the next datagrams, and returns their number, which is never 0.
    ///
    /// # Errors
    /// The same as for [`Datagrams::try_receive`], except `WouldBlock`.
    pub async fn receive(&self, into: &mut DatagramBatch) -> io::Result<usize> {
        loop {
            proceed().await;
            let received = self.try_receive(into);
            spend(into.place_bytes * received.as_ref().unwrap_or(&0));
            match received {
                Ok(0) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll_fn(|cx| self.poll_receivable(cx)).await?;
                }
                received => return received,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::SocketAddr;
    use std::task::{Context, Poll};
    use std::time::Duration;

    use super::*;
    use crate::alone::Alone;
    use crate::executor::{block_on, spawn};
    use crate::stream::Detached;
    use crate::timer::{Elapsed, sleep, timeout};

    /// A peer that always has more to send, and accepts everything.
    #[derive(Default)]
    struct Endless {
        calls: Cell<u32>,
    }

    impl Endless {
        fn count(&self, bytes: usize) -> io::Result<usize> {
            self.calls.set(self.calls.get() + 1);
            assert!(
                self.calls.get() < STARVED,
                "a peer kept the core from its other tasks and its timers"
            );
            Ok(bytes)
        }
    }

    /// Far more calls than one task may make before other tasks run.
    const STARVED: u32 = 1_000_000;

    impl Stream for Endless {
        fn try_read(&self, into: &mut [InSlice<'_>]) -> io::Result<usize> {
            let room = into.iter().map(|slice| match slice {
                InSlice::Bytes(bytes) => bytes.len(),
                InSlice::Shared(bytes) => bytes.len(),
            });
            self.count(room.sum())
        }

        fn try_write(&self, from: &[OutSlice<'_>]) -> io::Result<usize> {
            self.count(from.iter().map(OutSlice::len).sum())
        }

        fn poll_readable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_writable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn peer(&self) -> SocketAddr {
            SocketAddr::from(([127, 0, 0, 1], 1))
        }

        fn local(&self) -> SocketAddr {
            SocketAddr::from(([127, 0, 0, 1], 2))
        }

        fn shutdown(&self) {}

        fn detach(self: Box<Self>) -> Detached {
            Box::new(())
        }
    }

    /// Receives 16-byte options and replies to each one, as in a handshake.
    async fn talk(stream: &dyn Stream) -> io::Result<()> {
        loop {
            stream.read_exact(&mut [0; 16]).await?;
            stream.write_all(&[0; 20]).await?;
        }
    }

    #[test]
    fn a_peer_that_never_stops_sending_runs_into_its_deadline() {
        block_on(Alone::virtual_time(), async {
            let talked = timeout(Duration::from_millis(1), talk(&Endless::default())).await;
            assert!(matches!(talked, Err(Elapsed)));
        });
    }

    #[test]
    fn a_peer_that_never_stops_sending_leaves_other_tasks_their_turns() {
        block_on(Alone::virtual_time(), async {
            let flood = spawn(async { talk(&Endless::default()).await });
            for _ in 0..100 {
                sleep(Duration::from_micros(10)).await;
            }
            flood.abort();
        });
    }

    #[test]
    fn long_work_for_a_peer_is_done_in_parts() {
        block_on(Alone::virtual_time(), async {
            let scan = async {
                for step in 0.. {
                    assert!(step < STARVED, "a scan kept the core from its timers");
                    crate::consume_budget(64 << 10).await;
                }
            };
            assert_eq!(timeout(Duration::from_millis(1), scan).await, Err(Elapsed));
        });
    }
}
