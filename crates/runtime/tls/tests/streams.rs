//! Both ends of TLS in memory, over streams that may move only a few bytes in each call.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use reactor::{Alone, Detached, InSlice, OutSlice, Stream};
use tls::{Client, CredentialsError, Failure, Server, TlsStream};

macro_rules! pem {
    ($name:literal) => {
        include_bytes!(concat!("pki/", $name, ".pem")).as_slice()
    };
}

const CA: &[u8] = pem!("ca-cert");
const STRANGER: &[u8] = pem!("stranger-cert");
const SERVER: (&[u8], &[u8]) = (pem!("server-cert"), pem!("server-key"));
const ELSEWHERE: (&[u8], &[u8]) = (pem!("elsewhere-cert"), pem!("elsewhere-key"));
const CLIENT: (&[u8], &[u8]) = (pem!("client-cert"), pem!("client-key"));
const EXPIRED: (&[u8], &[u8]) = (pem!("expired-cert"), pem!("expired-key"));

/// One direction of a stream.
#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    is_closed: bool,
    wakers: Vec<Waker>,
}

impl Pipe {
    fn wake(&mut self) {
        self.wakers.drain(..).for_each(Waker::wake);
    }
}

/// One end of a stream.
struct End {
    incoming: Rc<RefCell<Pipe>>,
    outgoing: Rc<RefCell<Pipe>>,
    /// Maximum number of bytes that one call moves, and that are in transit at the same time.
    at_once: usize,
}

fn pair(at_once: usize) -> (Box<End>, Box<End>) {
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
        Box::new(one),
        Box::new(End {
            incoming: there,
            outgoing: back,
            at_once,
        }),
    )
}

impl Stream for End {
    fn try_read(&self, into: &mut [InSlice<'_>]) -> io::Result<usize> {
        let mut pipe = self.incoming.borrow_mut();
        let InSlice::Bytes(place) = &mut into[0] else {
            panic!("ciphertext has a buffer")
        };
        let count = place.len().min(self.at_once).min(pipe.bytes.len());
        if count == 0 {
            return if pipe.is_closed {
                Ok(0)
            } else {
                Err(io::ErrorKind::WouldBlock.into())
            };
        }
        place
            .iter_mut()
            .zip(pipe.bytes.drain(..count))
            .for_each(|(place, byte)| *place = byte);
        pipe.wake();
        Ok(count)
    }

    fn try_write(&self, from: &[OutSlice<'_>]) -> io::Result<usize> {
        let mut pipe = self.outgoing.borrow_mut();
        let OutSlice::Bytes(bytes) = from[0] else {
            panic!("ciphertext has a buffer")
        };
        let count = bytes
            .len()
            .min(self.at_once - self.at_once.min(pipe.bytes.len()));
        if pipe.is_closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if count == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        pipe.bytes.extend(&bytes[..count]);
        pipe.wake();
        Ok(count)
    }

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut pipe = self.incoming.borrow_mut();
        if pipe.is_closed || !pipe.bytes.is_empty() {
            return Poll::Ready(Ok(()));
        }
        pipe.wakers.push(cx.waker().clone());
        Poll::Pending
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut pipe = self.outgoing.borrow_mut();
        if pipe.is_closed || pipe.bytes.len() < self.at_once {
            return Poll::Ready(Ok(()));
        }
        pipe.wakers.push(cx.waker().clone());
        Poll::Pending
    }

    fn peer(&self) -> SocketAddr {
        ([127, 0, 0, 1], 1).into()
    }

    fn local(&self) -> SocketAddr {
        ([127, 0, 0, 1], 2).into()
    }

    fn shutdown(&self) {
        for pipe in [&self.incoming, &self.outgoing] {
            pipe.borrow_mut().is_closed = true;
            pipe.borrow_mut().wake();
        }
    }

    fn detach(self: Box<Self>) -> Detached {
        panic!("one thread is enough")
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.outgoing.borrow_mut().is_closed = true;
        self.outgoing.borrow_mut().wake();
        self.incoming.borrow_mut().is_closed = true;
    }
}

fn server(own: (&[u8], &[u8]), client_cas: Option<&[u8]>) -> Server {
    Server::new(own.0, own.1, client_cas).expect("a certificate and its key")
}

fn client(name: &str, cas: &[u8], own: Option<(&[u8], &[u8])>) -> Client {
    Client::new(name, cas, own).expect("certificates")
}

/// Runs both ends to completion.
fn meet<A: 'static, B: 'static>(
    server: impl Future<Output = A> + 'static,
    client: impl Future<Output = B> + 'static,
) -> (A, B) {
    reactor::block_on(Alone::virtual_time(), async {
        let server = reactor::spawn(server);
        let client = client.await;
        (server.await, client)
    })
}

/// Performs a handshake, after which each end receives a byte from the other. Returns the results of both
/// ends.
fn outcomes(server: Server, client: Client) -> (Result<Vec<String>, String>, Result<(), String>) {
    let (here, there) = pair(4096);
    let serve = async move {
        let stream = tls::accept(here, &server)
            .await
            .map_err(|failure| failure.to_string())?;
        let (names, stream) = (stream.peer_names(), &stream as &dyn Stream);
        stream
            .write_all(b"s")
            .await
            .map_err(|error| error.to_string())?;
        stream
            .read_exact(&mut [0])
            .await
            .map_err(|error| error.to_string())?;
        Ok(names)
    };
    let ask = async move {
        let stream = tls::connect(there, &client)
            .await
            .map_err(|failure| failure.to_string())?;
        let stream = &stream as &dyn Stream;
        stream
            .read_exact(&mut [0])
            .await
            .map_err(|error| error.to_string())?;
        stream
            .write_all(b"c")
            .await
            .map_err(|error| error.to_string())
    };
    meet(serve, ask)
}

#[test]
fn both_ends_know_each_other() {
    let (names, asked) = outcomes(
        server(SERVER, Some(CA)),
        client("127.0.0.1", CA, Some(CLIENT)),
    );
    assert_eq!(asked, Ok(()));
    assert_eq!(
        names,
        Ok(vec!["host1".to_owned(), "host1.example".to_owned()])
    );
    let (names, asked) = outcomes(server(SERVER, None), client("localhost", CA, Some(CLIENT)));
    assert_eq!(
        (names, asked),
        (Ok(Vec::new()), Ok(())),
        "the certificate was not requested"
    );
}

#[test]
fn the_check_that_failed_is_named_at_both_ends() {
    let good = || client("localhost", CA, Some(CLIENT));
    for (server, client, at_server, at_client) in [
        (
            server(SERVER, None),
            client("localhost", STRANGER, None),
            "unknown CA: the peer does not trust",
            "unknown CA: the peer's certificate",
        ),
        (
            server(EXPIRED, None),
            good(),
            "expired: the peer rejects",
            "expired: the peer's certificate has expired",
        ),
        (
            server(ELSEWHERE, None),
            good(),
            "rejects our certificate",
            "wrong name: the certificate is for",
        ),
        (
            server(CLIENT, None),
            client("host1.example", CA, None),
            "rejects our certificate",
            "wrong purpose",
        ),
        (
            server(SERVER, Some(CA)),
            client("localhost", CA, None),
            "no certificate: the peer did not present",
            "no certificate: the peer requires one",
        ),
        (
            server(SERVER, Some(STRANGER)),
            good(),
            "unknown CA: the peer's certificate",
            "unknown CA: the peer does not trust",
        ),
        (
            server(SERVER, Some(CA)),
            client("localhost", CA, Some(EXPIRED)),
            "expired: the peer's certificate",
            "expired: the peer rejects",
        ),
    ] {
        let (served, asked) = outcomes(server, client);
        let (served, asked) = (served.expect_err(at_server), asked.expect_err(at_client));
        assert!(
            served.contains(at_server) && served.starts_with("TLS: "),
            "{served}: not {at_server}"
        );
        assert!(
            asked.contains(at_client) && asked.starts_with("TLS: "),
            "{asked}: not {at_client}"
        );
    }
}

#[test]
fn what_is_no_certificate_or_key_is_told() {
    let told = |certificate: &[u8], key: &[u8], cas: Option<&[u8]>| {
        Server::new(certificate, key, cas).expect_err("a mistake")
    };
    assert!(
        matches!(told(b"", SERVER.1, None), CredentialsError::Certificate(why) if why.contains("BEGIN CERTIFICATE"))
    );
    assert!(
        matches!(told(pem!("version1-cert"), SERVER.1, None), CredentialsError::Certificate(why) if why.contains("version 1"))
    );
    assert!(
        matches!(told(SERVER.0, SERVER.0, None), CredentialsError::Key(why) if why.contains("BEGIN PRIVATE KEY"))
    );
    assert!(
        matches!(told(SERVER.0, CLIENT.1, None), CredentialsError::Key(why) if why.contains("does not match"))
    );
    assert!(
        matches!(told(SERVER.0, SERVER.1, Some(b"x")), CredentialsError::Ca(why) if why.contains("no certificate"))
    );
    let encrypted =
        b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA==\n-----END ENCRYPTED PRIVATE KEY-----\n";
    assert!(
        matches!(told(SERVER.0, encrypted, None), CredentialsError::Key(why) if why.contains("openssl pkey"))
    );
    assert!(matches!(
        Client::new("a/b", CA, None),
        Err(CredentialsError::Name(_))
    ));
}

async fn both(at_once: usize) -> (TlsStream, TlsStream) {
    let (here, there) = pair(at_once);
    let serving = reactor::spawn(async move { tls::accept(here, &server(SERVER, None)).await });
    let client = tls::connect(there, &client("localhost", CA, None))
        .await
        .expect("a client");
    (serving.await.expect("a server"), client)
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Pending data is sent exactly once and in order, even if the underlying stream moves few bytes per call.
#[test]
fn bytes_arrive_as_they_were_sent() {
    for at_once in [5, 1000, 20_000, 1 << 20] {
        let length = if at_once < 100 { 1000 } else { 200_000 };
        reactor::block_on(Alone::virtual_time(), async move {
            let (server, client) = both(at_once).await;
            let sending = reactor::spawn(async move {
                let sent = pattern(length);
                let mut at = 0;
                // Slices of various lengths. Each call passes more of them, as a send queue does.
                while at < sent.len() {
                    let shared: Vec<AtomicU8> = sent[at..]
                        .iter()
                        .skip(3)
                        .take(20_000)
                        .copied()
                        .map(AtomicU8::new)
                        .collect();
                    let first = &sent[at..(at + 3).min(length)];
                    let rest = &sent[(at + 3 + shared.len()).min(length)..];
                    let slices = [
                        OutSlice::Bytes(first),
                        OutSlice::Shared(&shared),
                        OutSlice::Bytes(rest),
                    ];
                    match server.try_write(&slices) {
                        Ok(count) => at += count,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            poll_fn(|cx| server.poll_writable(cx))
                                .await
                                .expect("an open stream");
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                server
            });
            let mut received = Vec::new();
            while received.len() < length {
                let (mut own, shared) = ([0; 100], [const { AtomicU8::new(0) }; 301]);
                let mut slices = [InSlice::Bytes(&mut own), InSlice::Shared(&shared)];
                match client.try_read(&mut slices) {
                    Ok(0) => panic!("the end after {} bytes", received.len()),
                    Ok(count) => {
                        received.extend_from_slice(&own[..count.min(100)]);
                        received.extend(
                            shared
                                .iter()
                                .take(count.saturating_sub(100))
                                .map(|byte| byte.load(Relaxed)),
                        );
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        poll_fn(|cx| client.poll_readable(cx))
                            .await
                            .expect("an open stream");
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            assert!(received == pattern(length), "{at_once} bytes a call");
            drop(sending.await);
            let end = (&client as &dyn Stream)
                .read_exact(&mut [0])
                .await
                .expect_err("the end");
            assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
        });
    }
}

/// A modified or injected record ends the connection, and none of its content is returned to the reader.
#[test]
fn a_changed_or_injected_record_is_refused() {
    reactor::block_on(Alone::virtual_time(), async {
        let (here, there) = pair(1 << 20);
        let (incoming, changed) = (Rc::clone(&there.incoming), Rc::clone(&there.incoming));
        let serving = reactor::spawn(async move { tls::accept(here, &server(SERVER, None)).await });
        let client = tls::connect(there, &client("localhost", CA, None))
            .await
            .expect("a client");
        let server = serving.await.expect("a server");
        (&server as &dyn Stream)
            .write_all(b"genuine")
            .await
            .expect("sent");
        incoming
            .borrow_mut()
            .bytes
            .extend(b"IHAVEOPT\0\0\0\x07\0\0\0\0");
        let mut heard = [0; 7];
        (&client as &dyn Stream)
            .read_exact(&mut heard)
            .await
            .expect("what was sent before");
        assert_eq!(&heard, b"genuine");
        let refused = (&client as &dyn Stream)
            .read_exact(&mut [0])
            .await
            .expect_err("clear text");
        assert!(refused.to_string().contains("not TLS"), "{refused}");

        changed.borrow_mut().bytes.clear();
        (&server as &dyn Stream)
            .write_all(b"more")
            .await
            .expect("sent");
        *changed.borrow_mut().bytes.back_mut().expect("a record") ^= 1;
        let refused = (&client as &dyn Stream).read_exact(&mut [0]).await;
        assert!(refused.is_err(), "a connection that was refused stays so");
    });
}

#[test]
fn what_is_no_tls_ends_the_handshake() {
    for said in [
        &b"IHAVEOPT\0\0\0\x07\0\0\0\x0a\0\0\0\x04disk\0\0"[..],
        &[0; 600],
        &[0x16, 3, 1, 0xff, 0xff, 0],
    ] {
        reactor::block_on(Alone::virtual_time(), async {
            let (here, there) = pair(1 << 20);
            (&*there as &dyn Stream)
                .write_all(said)
                .await
                .expect("sent");
            let silent = reactor::spawn(async move {
                reactor::sleep(std::time::Duration::from_secs(1)).await;
                drop(there);
            });
            let failure = tls::accept(here, &server(SERVER, None))
                .await
                .err()
                .expect("a refusal");
            assert!(matches!(failure, Failure::Tls(_)), "{failure}");
            silent.await;
        });
    }
}

/// A handshake that never completes uses a limited amount of memory: a message that is too long is rejected.
#[test]
fn a_handshake_without_end_is_refused() {
    reactor::block_on(Alone::virtual_time(), async {
        let (here, there) = pair(1 << 20);
        let flood = reactor::spawn(async move {
            // A ClientHello of 60,000 bytes, sent as one byte per record.
            let first = [0x16, 3, 1, 0, 4, 1, 0, 0xea, 0x60];
            let _ = (&*there as &dyn Stream).write_all(&first).await;
            let rest = [0x16, 3, 1, 0, 1, 0].repeat(1000);
            while (&*there as &dyn Stream).write_all(&rest).await.is_ok() {}
        });
        let failure = tls::accept(here, &server(SERVER, None))
            .await
            .err()
            .expect("a refusal");
        assert!(
            matches!(failure, Failure::Tls(_) | Failure::Socket(_)),
            "{failure}"
        );
        flood.await;
    });
}

/// A server once processed all received data of a handshake before any other task could run.
#[test]
fn a_handshake_in_many_pieces_leaves_other_tasks_their_turns() {
    reactor::block_on(Alone::virtual_time(), async {
        let (mut here, there) = pair(1 << 20);
        here.at_once = 512;
        let arrived = Rc::clone(&here.incoming);
        // The beginning of a ClientHello of 60,000 bytes, sent as one byte per record.
        let first = [0x16, 3, 1, 0, 4, 1, 0, 0xea, 0x60];
        let hello = [&first[..], &[0x16, 3, 1, 0, 1, 0].repeat(12_000)].concat();
        (&*there as &dyn Stream)
            .write_all(&hello)
            .await
            .expect("the stream has room");
        let accepted =
            reactor::spawn(async move { tls::accept(here, &server(SERVER, None)).await.map(drop) });
        let mut turns = 0;
        while !arrived.borrow().bytes.is_empty() {
            assert!(!accepted.is_finished(), "it waits for the rest");
            turns += 1;
            reactor::yield_now().await;
        }
        assert!(turns > 2, "{turns} turns of another task");
        drop(there);
        accepted.await.expect_err("it has not ended");
    });
}
