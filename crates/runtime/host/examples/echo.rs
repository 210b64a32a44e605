//! Measures round trips of 48 bytes over loopback between two reactor threads, with and without busy-polling,
//! and the CPU time of an idle reactor.

use std::future::poll_fn;
use std::io;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use host::{Epoll, EpollOptions, cputime};
use reactor::{InSlice, ListenOptions, OutSlice, Stream, StreamOptions, block_on, sleep, world};

const ROUNDS: u32 = 50_000;

fn main() {
    println!(
        "CPUs: {}",
        std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
    );
    for round in 0..3 {
        for spin_us in [0, 50] {
            measure(round, Duration::from_micros(spin_us));
        }
    }
    idle();
}

/// Runs an idle reactor with a timer that fires ten times a second, as in a server with some connections.
fn idle() {
    block_on(
        Epoll::shared(EpollOptions::default()).expect("an epoll"),
        async {
            let (start, cpu) = (Instant::now(), cputime::thread());
            for _ in 0..10 {
                sleep(Duration::from_millis(100)).await;
            }
            println!(
                "idle: {:?} CPU in {:?}",
                cputime::thread() - cpu,
                start.elapsed()
            );
        },
    );
}

fn measure(round: u32, spin: Duration) {
    let (tell, hear) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        block_on(
            Epoll::shared(EpollOptions {
                spin,
                ..EpollOptions::default()
            })
            .expect("an epoll"),
            async move {
                let at = "127.0.0.1:0".parse().expect("an address");
                let listener = world()
                    .listen(at, &ListenOptions::default())
                    .expect("listening");
                tell.send(listener.local()).expect("heard");
                poll_fn(|cx| listener.poll_acceptable(cx))
                    .await
                    .expect("acceptable");
                let stream = loop {
                    match listener.try_accept() {
                        Ok(stream) => break stream,
                        Err(_) => poll_fn(|cx| listener.poll_acceptable(cx))
                            .await
                            .expect("acceptable"),
                    }
                };
                while receive(&*stream).await > 0 {
                    stream
                        .try_write(&[OutSlice::Bytes(&[1; 48])])
                        .expect("room for a reply");
                }
            },
        );
    });
    let at = hear.recv().expect("an address");
    block_on(
        Epoll::shared(EpollOptions {
            spin,
            ..EpollOptions::default()
        })
        .expect("an epoll"),
        async {
            let stream = world()
                .connect(at, &StreamOptions::default())
                .expect("begun");
            poll_fn(|cx| stream.poll_writable(cx))
                .await
                .expect("connected");
            let (start, cpu) = (Instant::now(), cputime::process());
            for _ in 0..ROUNDS {
                stream
                    .try_write(&[OutSlice::Bytes(&[1; 48])])
                    .expect("room for a request");
                receive(&*stream).await;
            }
            let (time, cpu) = (
                start.elapsed() / ROUNDS,
                (cputime::process() - cpu) / ROUNDS,
            );
            println!(
                "round {round}, spin {spin:?}: {time:?} per round trip, {cpu:?} CPU for both ends"
            );
        },
    );
    server.join().expect("the server ends");
}

async fn receive(stream: &dyn Stream) -> usize {
    let mut bytes = [0; 48];
    loop {
        match stream.try_read(&mut [InSlice::Bytes(&mut bytes)]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll_fn(|cx| stream.poll_readable(cx)).await.expect("open");
            }
            read => return read.expect("open"),
        }
    }
}
