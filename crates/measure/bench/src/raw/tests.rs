//! Scenarios with both ends on a stream in memory that transfers a few bytes at a time.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use reactor::{Alone, Detached, InSlice, OutSlice, Stream, block_on};

use super::*;
use crate::plan::{Role, Workload};

/// One direction of a stream.
#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    closed: bool,
    wakers: Vec<Waker>,
}

/// One end of a stream, which transfers at most `at_once` bytes per call.
pub(super) struct End {
    incoming: Rc<RefCell<Pipe>>,
    outgoing: Rc<RefCell<Pipe>>,
    at_once: usize,
}

const ROOM_BYTES: usize = 1_000;

pub(super) fn pair(at_once: usize) -> (End, End) {
    let (there, back) = (
        Rc::<RefCell<Pipe>>::default(),
        Rc::<RefCell<Pipe>>::default(),
    );
    let one = End {
        incoming: Rc::clone(&back),
        outgoing: Rc::clone(&there),
        at_once,
    };
    (
        one,
        End {
            incoming: there,
            outgoing: back,
            at_once,
        },
    )
}

impl Pipe {
    fn wake(&mut self) {
        self.wakers.drain(..).for_each(Waker::wake);
    }
}

impl Stream for End {
    fn try_read(&self, into: &mut [InSlice<'_>]) -> io::Result<usize> {
        let mut pipe = self.incoming.borrow_mut();
        let mut bytes = 0;
        // Like a socket, continue with the next slice when one is full.
        for slice in into.iter_mut() {
            let room = self.at_once - bytes;
            bytes += match slice {
                InSlice::Bytes(slice) => {
                    let part = slice.len().min(room).min(pipe.bytes.len());
                    slice
                        .iter_mut()
                        .zip(pipe.bytes.drain(..part))
                        .for_each(|(place, byte)| *place = byte);
                    part
                }
                InSlice::Shared(slice) => {
                    let part = slice.len().min(room).min(pipe.bytes.len());
                    slice
                        .iter()
                        .zip(pipe.bytes.drain(..part))
                        .for_each(|(place, byte)| place.store(byte, Relaxed));
                    part
                }
            };
        }
        if bytes == 0 {
            return if pipe.closed {
                Ok(0)
            } else {
                Err(io::ErrorKind::WouldBlock.into())
            };
        }
        pipe.wake();
        Ok(bytes)
    }

    fn try_write(&self, from: &[OutSlice<'_>]) -> io::Result<usize> {
        let mut pipe = self.outgoing.borrow_mut();
        let room = self.at_once.min(ROOM_BYTES - pipe.bytes.len());
        if room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let before = pipe.bytes.len();
        for slice in from {
            let left = before + room - pipe.bytes.len();
            match slice {
                OutSlice::Bytes(slice) => pipe.bytes.extend(slice.iter().take(left)),
                OutSlice::Shared(slice) => pipe
                    .bytes
                    .extend(slice.iter().take(left).map(|byte| byte.load(Relaxed))),
            }
        }
        let bytes = pipe.bytes.len() - before;
        pipe.wake();
        Ok(bytes)
    }

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut pipe = self.incoming.borrow_mut();
        if pipe.closed || !pipe.bytes.is_empty() {
            return Poll::Ready(Ok(()));
        }
        pipe.wakers.push(cx.waker().clone());
        Poll::Pending
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut pipe = self.outgoing.borrow_mut();
        if pipe.bytes.len() < ROOM_BYTES {
            return Poll::Ready(Ok(()));
        }
        pipe.wakers.push(cx.waker().clone());
        Poll::Pending
    }

    fn peer(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, 1).into()
    }

    fn local(&self) -> SocketAddr {
        self.peer()
    }

    fn shutdown(&self) {
        let mut pipe = self.outgoing.borrow_mut();
        pipe.closed = true;
        pipe.wake();
    }

    fn detach(self: Box<Self>) -> Detached {
        Box::new(()) as Box<dyn Any + Send>
    }
}

#[test]
fn requests_are_answered_however_the_bytes_are_cut() {
    for (direction, block_bytes) in [
        (Direction::Read, 4096),
        (Direction::Write, 4096),
        (Direction::Write, 0),
        (Direction::Read, 512),
    ] {
        for at_once in [31, 47, 100_000] {
            let question = Question {
                direction,
                block_bytes,
                depth: 3,
            };
            let answered = measured(question, at_once).expect("the server answers");
            assert!(
                answered.requests > 10,
                "{question:?} by {at_once} bytes: {answered:?}"
            );
        }
    }
}

#[test]
fn no_write_is_forgotten_whose_end_comes_with_the_next_header() {
    const WRITES: usize = 20;
    let mut write = header(Direction::Write, 4096).to_vec();
    write.resize(HEADER_BYTES + 4096, 0x5a);
    for at_once in [47, 500, 997] {
        let wire = write.repeat(WRITES);
        let answers = block_on(Alone::virtual_time(), async move {
            let (client, server) = pair(at_once);
            let serving = reactor::spawn(async move { serve(&server, &mut [0; 10_000]).await });
            let (mut sent, mut answers) = (0, 0);
            while answers < WRITES * HEADER_BYTES {
                let wrote = client.try_write(&[OutSlice::Bytes(&wire[sent..])]);
                sent += unless_blocked(wrote)
                    .expect("the server listens")
                    .unwrap_or(0);
                let mut scratch = [0; 4096];
                let read = client.try_read(&mut [InSlice::Bytes(&mut scratch)]);
                match unless_blocked(read).expect("the server lives") {
                    Some(bytes) => answers += bytes,
                    None if reactor::timeout(
                        Duration::from_secs(1),
                        heard(&client, sent < wire.len()),
                    )
                    .await
                    .is_err() =>
                    {
                        break;
                    }
                    None => {}
                }
            }
            client.shutdown();
            serving
                .await
                .expect("the client ends the stream in good order");
            answers
        });
        assert_eq!(answers, WRITES * HEADER_BYTES, "by {at_once} bytes");
    }
}

/// Waits until data can be received, or until data can be sent if `sends` is set.
async fn heard(end: &End, sends: bool) {
    std::future::poll_fn(|cx| {
        let room = sends && end.poll_writable(cx).is_ready();
        if end.poll_readable(cx).is_ready() || room {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

#[test]
fn whoever_sends_something_else_is_told_so() {
    let refused = block_on(Alone::virtual_time(), async {
        let (client, server) = pair(1000);
        client
            .try_write(&[OutSlice::Bytes(&[7; HEADER_BYTES])])
            .expect("there is room");
        serve(&server, &mut [0; 64]).await
    });
    assert_eq!(
        refused.map_err(|error| error.kind()),
        Err(io::ErrorKind::InvalidData)
    );
}

#[test]
fn a_server_that_goes_away_ends_the_question() {
    let ended = block_on(Alone::virtual_time(), async {
        let (client, server) = pair(1000);
        server.shutdown();
        ask(&client, QUESTION, 4096, Duration::from_secs(1)).await
    });
    assert_eq!(
        ended.map_err(|error| error.kind()),
        Err(io::ErrorKind::UnexpectedEof)
    );
}

#[test]
fn a_server_that_says_nothing_is_not_waited_for() {
    let (client, _silent) = pair(1000);
    let answered = block_on(Alone::virtual_time(), async move {
        ask(&client, QUESTION, 4096, Duration::from_secs(1)).await
    });
    assert_eq!(answered.expect("nothing failed").requests, 0);
}

#[test]
fn a_client_that_says_nothing_is_not_kept() {
    let (ended, took) = block_on(Alone::virtual_time(), async {
        let (_client, server) = pair(1000);
        let begun = reactor::now();
        let ended = serve(&server, &mut [0; 64]).await;
        (ended.map_err(|error| error.kind()), reactor::now() - begun)
    });
    assert_eq!(ended, Err(io::ErrorKind::TimedOut));
    assert!(took >= SILENCE_MAX, "{took:?}");
}

#[test]
fn a_client_that_always_has_something_to_ask_lets_others_have_their_turn() {
    let left = block_on(Alone::virtual_time(), async {
        let (client, server) = pair(1);
        server
            .incoming
            .borrow_mut()
            .bytes
            .extend(header(Direction::Write, 1 << 20));
        server.incoming.borrow_mut().bytes.extend([0; 5000]);
        client.shutdown();
        let incoming = Rc::clone(&server.incoming);
        let other = reactor::spawn(async move { incoming.borrow().bytes.len() });
        serve(&server, &mut [0; 64])
            .await
            .expect("the client has ended the stream");
        other.await
    });
    assert!(
        left > 4000,
        "{left} bytes were left when the other one had its turn"
    );
}

const QUESTION: Question = Question {
    direction: Direction::Read,
    block_bytes: 512,
    depth: 1,
};

fn measured(question: Question, at_once: usize) -> io::Result<Answered> {
    block_on(Alone::virtual_time(), async move {
        let (client, server) = pair(at_once);
        let serving = reactor::spawn(async move { serve(&server, &mut [0; 10_000]).await });
        let answered = ask(&client, question, 4096, Duration::from_micros(20)).await;
        client.shutdown();
        serving
            .await
            .expect("the client ends the stream in good order");
        answered
    })
}

#[test]
fn a_mixture_has_no_ceiling() {
    let half = Percent::new(50).expect("a share");
    let role = Role::new("mixed", 0, Workload::simple(4096, 1, half, Percent::ALL));
    let cell = Cell::new("mixed", "mixed", vec![role]);
    assert_eq!(Question::of_cell(&cell), None);
}

#[test]
fn the_ceiling_is_that_of_the_same_direction_depth_and_length() {
    let limit = |direction: &str, depth, rate| Limit {
        name: String::new(),
        direction: direction.to_owned(),
        depth: Some(depth),
        points: vec![(4096, 1.0), (65_536, rate)],
    };
    let limits = [
        limit("write", 8, 1e9),
        limit("read", 1, 2e9),
        limit("read", 8, 3e9),
    ];
    let asked = Question {
        direction: Direction::Read,
        block_bytes: 65_536,
        depth: 8,
    };
    assert_eq!(asked.ceiling(&limits), Some(3e9));
    assert_eq!(Question { depth: 2, ..asked }.ceiling(&limits), None);
}
