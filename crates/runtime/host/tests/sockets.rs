//! Tests streams and listeners over epoll, as tasks use them.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use block::{BlockDevice as _, Extent};
use host::{Epoll, EpollOptions, RamDevice, RamOptions};
use reactor::{
    InSlice, ListenOptions, Listener, OutSlice, Stream, StreamOptions, block_on, mailbox, spawn,
    timeout, world,
};

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn run<F: Future>(future: F) -> F::Output {
    block_on(
        Epoll::shared(EpollOptions::default()).expect("an epoll"),
        async {
            timeout(Duration::from_secs(20), future)
                .await
                .expect("in time")
        },
    )
}

async fn accept(listener: &dyn Listener) -> Box<dyn Stream> {
    loop {
        match listener.try_accept() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll_fn(|cx| listener.poll_acceptable(cx))
                    .await
                    .expect("listening");
            }
            accepted => return accepted.expect("a connection"),
        }
    }
}

async fn read(stream: &dyn Stream, into: &mut [InSlice<'_>]) -> io::Result<usize> {
    loop {
        match stream.try_read(into) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll_fn(|cx| stream.poll_readable(cx)).await?;
            }
            read => return read,
        }
    }
}

async fn write(stream: &dyn Stream, from: &[OutSlice<'_>]) -> io::Result<usize> {
    loop {
        match stream.try_write(from) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll_fn(|cx| stream.poll_writable(cx)).await?;
            }
            written => return written,
        }
    }
}

async fn write_all(stream: &dyn Stream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let sent = write(stream, &[OutSlice::Bytes(bytes)])
            .await
            .expect("sent");
        bytes = &bytes[sent..];
    }
}

async fn read_exactly(stream: &dyn Stream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut have = 0;
    while have < length {
        let read = read(stream, &mut [InSlice::Bytes(&mut bytes[have..])])
            .await
            .expect("received");
        assert!(read > 0, "the stream ended {have} bytes into {length}");
        have += read;
    }
    bytes
}

fn listen(at: SocketAddr) -> Box<dyn Listener> {
    world()
        .listen(at, &ListenOptions::default())
        .expect("listening")
}

async fn pair() -> (Box<dyn Stream>, Box<dyn Stream>) {
    let listener = listen(LOOPBACK);
    let client = world()
        .connect(listener.local(), &StreamOptions::default())
        .expect("begun");
    let server = accept(&*listener).await;
    (client, server)
}

#[test]
fn bytes_arrive_in_order_through_buffers_that_fill() {
    run(async {
        let (client, server) = pair().await;
        let sent: Vec<u8> = (0..8_000_000u32).map(|n| (n % 251) as u8).collect();
        let copy = sent.clone();
        let sender = spawn(async move { write_all(&*client, &copy).await });
        assert!(read_exactly(&*server, sent.len()).await == sent);
        sender.await;
    });
}

#[test]
fn nothing_to_read_is_would_block() {
    run(async {
        let (_client, server) = pair().await;
        let mut byte = [0];
        let error = server
            .try_read(&mut [InSlice::Bytes(&mut byte)])
            .expect_err("nothing sent");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let waits = poll_fn(|cx| Poll::Ready(server.poll_readable(cx).is_pending())).await;
        assert!(waits);
    });
}

#[test]
fn the_end_of_a_stream_is_seen_even_right_behind_its_last_bytes() {
    run(async {
        for _ in 0..200 {
            let (client, server) = pair().await;
            write_all(&*client, b"last words").await;
            drop(client);
            let mut large = [0; 64];
            assert_eq!(
                read(&*server, &mut [InSlice::Bytes(&mut large)])
                    .await
                    .expect("words"),
                10
            );
            assert_eq!(
                read(&*server, &mut [InSlice::Bytes(&mut large)])
                    .await
                    .expect("the end"),
                0
            );
        }
    });
}

#[test]
fn a_refused_connection_is_told_by_the_first_write() {
    run(async {
        let nobody = listen(LOOPBACK).local();
        let stream = world()
            .connect(nobody, &StreamOptions::default())
            .expect("begun");
        let error = write(&*stream, &[OutSlice::Bytes(b"x")])
            .await
            .expect_err("refused");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    });
}

#[test]
fn writing_to_a_peer_that_is_gone_is_an_error_and_not_a_signal() {
    run(async {
        let (client, server) = pair().await;
        drop(server);
        while write(&*client, &[OutSlice::Bytes(&[0; 4096])])
            .await
            .is_ok()
        {}
    });
}

#[test]
fn both_wildcards_can_be_listened_on_with_one_port() {
    run(async {
        let four = listen(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        let six = listen(SocketAddr::from((
            Ipv6Addr::UNSPECIFIED,
            four.local().port(),
        )));
        let client = world()
            .connect(
                SocketAddr::from((Ipv6Addr::LOCALHOST, six.local().port())),
                &StreamOptions::default(),
            )
            .expect("begun");
        assert_eq!(accept(&*six).await.peer().ip(), Ipv6Addr::LOCALHOST);
        drop(client);
    });
}

#[test]
fn a_port_in_use_is_refused() {
    run(async {
        let taken = listen(LOOPBACK);
        let refused = world()
            .listen(taken.local(), &ListenOptions::default())
            .err()
            .expect("refused");
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    });
}

#[test]
fn an_unknown_congestion_control_is_refused_and_cubic_is_not() {
    run(async {
        let options = |name: &str| ListenOptions {
            stream: StreamOptions {
                congestion: Some(name.into()),
                ..StreamOptions::default()
            },
        };
        assert!(world().listen(LOOPBACK, &options("no-such-thing")).is_err());
        assert!(world().listen(LOOPBACK, &options("cubic")).is_ok());
    });
}

#[test]
fn slices_of_both_kinds_travel_in_one_call() {
    run(async {
        let device = RamDevice::new(RamOptions::new(1 << 20)).expect("memory");
        device
            .memory_to_write(Extent::new(0, 8))
            .expect("memory")
            .put(0, &[7; 4096]);
        let source = device.memory(Extent::new(0, 8)).expect("memory");
        let (client, server) = pair().await;
        let parts = [
            OutSlice::Bytes(b"head"),
            OutSlice::Shared(source.bytes()),
            OutSlice::Bytes(b"tail"),
        ];
        assert_eq!(write(&*client, &parts).await.expect("sent"), 4104);
        let place = device.memory(Extent::new(64, 8)).expect("memory");
        let (mut head, mut tail) = ([0; 4], [0; 4]);
        let mut into = [
            InSlice::Bytes(&mut head),
            InSlice::Shared(place.bytes()),
            InSlice::Bytes(&mut tail),
        ];
        assert_eq!(read(&*server, &mut into).await.expect("received"), 4104);
        let mut stored = [0; 4096];
        place.load(0, &mut stored);
        assert_eq!((&head, &stored, &tail), (b"head", &[7; 4096], b"tail"));
    });
}

#[test]
fn more_slices_than_one_call_takes_are_sent_by_the_next() {
    run(async {
        let (client, server) = pair().await;
        let slices: Vec<_> = (0..100).map(|_| OutSlice::Bytes(b"x")).collect();
        let sent = write(&*client, &slices).await.expect("sent");
        assert!((1..100).contains(&sent));
        assert_eq!(read_exactly(&*server, sent).await.len(), sent);
    });
}

#[test]
fn a_stream_detached_with_bytes_waiting_is_adopted_with_them() {
    let (to_other, mut from_other) = mailbox();
    let (unread, receive) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        run(async move {
            let stream = world()
                .adopt(receive.recv().expect("a stream"))
                .expect("adopted");
            let words = read_exactly(&*stream, 5).await;
            write_all(&*stream, b"reply").await;
            to_other.send((words, stream.peer())).expect("heard");
        });
    });
    run(async {
        let (client, server) = pair().await;
        write_all(&*client, b"words").await;
        unread.send(server.detach()).expect("sent");
        let (words, peer) = from_other.recv().await.expect("an answer");
        assert_eq!(words, b"words");
        assert_eq!(peer, client.local());
        assert_eq!(read_exactly(&*client, 5).await, b"reply");
    });
    other.join().expect("the other thread ends");
}

#[test]
fn events_of_a_closed_stream_do_not_reach_its_successor() {
    run(async {
        for _ in 0..100 {
            let (client, server) = pair().await;
            write_all(&*client, b"x").await;
            drop(server);
            let (_client, fresh) = pair().await;
            let mut byte = [0];
            let error = fresh
                .try_read(&mut [InSlice::Bytes(&mut byte)])
                .expect_err("nothing sent here");
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
    });
}

#[test]
fn shutdown_ends_both_directions() {
    run(async {
        let (client, server) = pair().await;
        server.shutdown();
        let mut byte = [0];
        assert_eq!(
            read(&*client, &mut [InSlice::Bytes(&mut byte)])
                .await
                .expect("the end"),
            0
        );
        assert!(write(&*server, &[OutSlice::Bytes(b"x")]).await.is_err());
    });
}

#[test]
fn a_hundred_connections_are_served_by_one_thread() {
    run(async {
        let listener = listen(LOOPBACK);
        let served = Rc::new(Cell::new(0));
        let clients: Vec<_> = (0..100)
            .map(|_| {
                world()
                    .connect(listener.local(), &StreamOptions::default())
                    .expect("begun")
            })
            .collect();
        let mut tasks = Vec::new();
        for _ in &clients {
            let (stream, served) = (accept(&*listener).await, Rc::clone(&served));
            tasks.push(spawn(async move {
                write_all(&*stream, &read_exactly(&*stream, 3).await).await;
                served.set(served.get() + 1);
            }));
        }
        for client in &clients {
            write_all(&**client, b"abc").await;
            assert_eq!(read_exactly(&**client, 3).await, b"abc");
        }
        for task in tasks {
            task.await;
        }
        assert_eq!(served.get(), 100);
    });
}

#[test]
fn an_unpark_from_another_thread_ends_the_sleep() {
    let world = Epoll::shared(EpollOptions::default()).expect("an epoll");
    let unpark = Arc::clone(&world.unpark());
    let other = std::thread::spawn(move || unpark.unpark());
    world.turn(reactor::Park::Forever);
    other.join().expect("the other thread ends");
}

#[test]
fn a_stream_tells_of_its_path() {
    run(async {
        let listener = listen(LOOPBACK);
        let options = StreamOptions {
            congestion: Some("cubic".into()),
            ..StreamOptions::default()
        };
        let client = world().connect(listener.local(), &options).expect("begun");
        let server = accept(&*listener).await;
        write_all(&*client, &[0; 1000]).await;
        read_exactly(&*server, 1000).await;
        let path = client.path().expect("told");
        assert_eq!(path.congestion, "cubic");
        assert!(path.round_trip > Duration::ZERO && path.segment_bytes > 500);
        assert!(path.congestion_window_segments > 0);
        assert!(
            path.round_trip_min.is_some(),
            "every kernel since 4.6 tells"
        );
        assert!(path.path_mtu_bytes > path.segment_bytes);
        let received = server.path().expect("told").received_bytes;
        assert_eq!(received, Some(1000), "every kernel since 4.1 tells");
        if let (Some(sent), Some(again)) = (path.sent_bytes, path.retransmitted_bytes) {
            assert_eq!(sent - again, 1000, "every kernel since 4.19 tells");
        }
    });
}

#[test]
fn segments_are_as_short_as_is_wanted_in_both_directions() {
    run(async {
        let listener = listen(LOOPBACK);
        let options = StreamOptions {
            segment_bytes: Some(1000),
            ..StreamOptions::default()
        };
        let client = world().connect(listener.local(), &options).expect("begun");
        let server = accept(&*listener).await;
        write_all(&*server, &[0; 5000]).await;
        read_exactly(&*client, 5000).await;
        for end in [&client, &server] {
            let segment = end.path().expect("told").segment_bytes;
            assert!(segment <= 1000, "{segment}");
        }
        let told = client.path().expect("told").data_segments_in;
        assert!(
            told.is_none_or(|segments| segments >= 1),
            "every kernel since 4.6 tells: {told:?}"
        );
    });
}

#[test]
fn a_short_sleep_is_not_rounded_to_milliseconds() {
    let shortest = run(async {
        let mut shortest = Duration::MAX;
        for _ in 0..100 {
            let start = reactor::now();
            reactor::sleep(Duration::from_micros(100)).await;
            shortest = shortest.min(reactor::now() - start);
        }
        shortest
    });
    // On a busy machine, some sleeps may end late, but not all.
    assert!(
        shortest >= Duration::from_micros(100) && shortest < Duration::from_micros(900),
        "{shortest:?}"
    );
}

#[test]
fn a_sleep_of_milliseconds_and_a_bit_ends_after_the_bit() {
    let time = Duration::from_micros(2_300);
    let shortest = run(async {
        let mut shortest = Duration::MAX;
        for _ in 0..30 {
            let start = reactor::now();
            reactor::sleep(time).await;
            shortest = shortest.min(reactor::now() - start);
        }
        shortest
    });
    assert!(
        shortest >= time && shortest < Duration::from_micros(2_900),
        "{shortest:?}"
    );
}

/// Runs `future` in a world that gathers events for the time `gather`.
fn run_gathering<F: Future>(gather: Duration, future: F) -> F::Output {
    let options = EpollOptions {
        gather,
        ..EpollOptions::default()
    };
    block_on(Epoll::shared(options).expect("an epoll"), async {
        timeout(Duration::from_secs(20), future)
            .await
            .expect("in time")
    })
}

#[test]
fn what_comes_soon_after_work_is_found_together() {
    run_gathering(Duration::from_secs(1), async {
        let listener = listen(LOOPBACK);
        let address = listener.local();
        let sender = std::thread::spawn(move || {
            use std::io::Write as _;
            let mut peer = std::net::TcpStream::connect(address).expect("connected");
            peer.set_nodelay(true).expect("a socket");
            for byte in [1u8, 2, 3] {
                peer.write_all(&[byte]).expect("sent");
                std::thread::sleep(Duration::from_millis(50));
            }
            peer
        });
        // Accepting counts as work, so the reactor then gathers, and reads the next bytes in one batch.
        let stream = accept(&*listener).await;
        let mut bytes = [0; 8];
        let mut reads = Vec::new();
        while reads.iter().sum::<usize>() < 3 {
            reads.push(
                read(&*stream, &mut [InSlice::Bytes(&mut bytes)])
                    .await
                    .expect("received"),
            );
        }
        assert!(reads.len() < 3, "{reads:?}");
        drop(sender.join());
    });
}

#[test]
fn another_thread_does_not_wait_for_events_to_gather() {
    run_gathering(Duration::from_secs(3600), async {
        let (to_here, mut from_there) = mailbox();
        let (to_there, at_there) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            for number in at_there {
                to_here.send(number).expect("received");
            }
        });
        for number in 0..20 {
            to_there.send(number).expect("a thread");
            assert_eq!(from_there.recv().await, Some(number));
        }
        drop(to_there);
        thread.join().expect("the thread ends");
    });
}
