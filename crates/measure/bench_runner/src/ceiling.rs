//! What TCP on this machine carries at most, asked and answered like the cells of a suite, but without a protocol and
//! without storage: the limit that a target on it is measured by.

use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use backends::Failure;
use bench::plan::Suite;
use bench::raw::{Question, ask, serve};
use bench::record::Limit;
use host::{Epoll, EpollOptions};
use reactor::{ListenOptions, StreamOptions};

/// How long each is asked at a time: the rate is steady from the first milliseconds on.
const TIME: Duration = Duration::from_millis(100);
/// Bytes of a system call, each tried by a connection of its own. The best counts, since nothing that slowed the others
/// down is a limit: what else the machine did, or two ends that waited for each other.
const CALLS_BYTES: [usize; 4] = [64 << 10, 256 << 10, 64 << 10, 256 << 10];

/// The ceilings for all cells that read or write and do not mix, measured now, one after the other: for each direction and
/// depth a roof over its lengths. The server's data come from so many bytes of memory.
///
/// # Errors
/// Loopback carries nothing.
pub async fn measure(
    suite: &Suite,
    memory_bytes: usize,
    options: EpollOptions,
    stream: &StreamOptions,
) -> Result<Vec<Limit>, Failure> {
    let mut questions: Vec<Question> = suite.cells().filter_map(Question::of_cell).collect();
    questions.sort_by_key(|question| (question.direction as u8, question.depth, question.block_bytes));
    questions.dedup();
    let address = start(options, stream, CALLS_BYTES.len() * questions.len(), memory_bytes)
        .map_err(|error| failed(&error))?;
    let mut limits: Vec<Limit> = Vec::new();
    for question in questions {
        let mut per_second = 0.0_f64;
        for call_bytes in CALLS_BYTES {
            let once =
                answered(address, stream, question, call_bytes).await.map_err(|error| failed(&error))?;
            per_second = per_second.max(once);
        }
        let point = (question.block_bytes, per_second * f64::from(question.block_bytes));
        match limits.last_mut().filter(|last| question.is_under(last)) {
            Some(curve) => curve.points.push(point),
            None => limits.push(question.limit(point)),
        }
    }
    limits.iter_mut().for_each(|limit| roof(&mut limit.points));
    Ok(limits)
}

/// The roof over what was reached: as many requests a second as of any length, and as many bytes a second. One length by
/// itself is no bound: two ends that wait for each other in step are slower than a target that does more and waits less
/// (64 KiB writes, 4.9 GB/s plain and 7.7 GB/s with iSCSI in them).
fn roof(points: &mut [(u32, f64)]) {
    let bytes = points.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let requests = points.iter().map(|(block, rate)| rate / f64::from(*block)).fold(0.0, f64::max);
    points.iter_mut().for_each(|(block, rate)| *rate = bytes.min(requests * f64::from(*block)));
}

fn failed(error: &io::Error) -> Failure {
    Failure::failed(format_args!("cannot measure what TCP on this machine carries: {error}"))
}

/// A thread that serves so many connections, one after the other.
fn start(
    options: EpollOptions,
    stream: &StreamOptions,
    connections: usize,
    memory_bytes: usize,
) -> io::Result<SocketAddr> {
    let (tell, bound) = mpsc::channel();
    let stream = stream.clone();
    thread::Builder::new().name("raw".to_owned()).spawn(move || match Epoll::shared(options) {
        Ok(world) => reactor::block_on(world, answer(stream, connections, memory_bytes, tell)),
        Err(error) => drop(tell.send(Err(error))),
    })?;
    bound.recv().unwrap_or_else(|_| Err(io::Error::other("its server did not start")))
}

async fn answer(
    stream: StreamOptions,
    connections: usize,
    memory_bytes: usize,
    tell: mpsc::Sender<io::Result<SocketAddr>>,
) {
    let options = ListenOptions { stream };
    let listener = match reactor::world().listen((Ipv4Addr::LOCALHOST, 0).into(), &options) {
        Ok(listener) => listener,
        Err(error) => return drop(tell.send(Err(error))),
    };
    let mut memory = vec![0x5a; memory_bytes];
    if tell.send(Ok(listener.local())).is_err() {
        return;
    }
    let mut served = 0;
    while served < connections && poll_fn(|cx| listener.poll_acceptable(cx)).await.is_ok() {
        // Nobody may be there after all.
        let Ok(stream) = listener.try_accept() else { continue };
        // A client that has heard enough goes away in the middle, which is no failure.
        let _ = serve(&*stream, &mut memory).await;
        served += 1;
    }
}

async fn answered(
    address: SocketAddr,
    options: &StreamOptions,
    question: Question,
    call_bytes: usize,
) -> io::Result<f64> {
    let stream = reactor::world().connect(address, options)?;
    poll_fn(|cx| stream.poll_writable(cx)).await?;
    let answered = ask(&*stream, question, call_bytes, TIME).await?;
    stream.shutdown();
    Ok(answered.per_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_of_one_direction_has_a_ceiling_of_its_own() {
        let suite = bench::suite::named("quick").expect("it is built in");
        let options = EpollOptions { spin: Duration::ZERO, ..EpollOptions::default() };
        let world = Epoll::shared(options).expect("an epoll set");
        let limits = reactor::block_on(world, measure(&suite, 256 << 20, options, &StreamOptions::default()));
        let limits = limits.expect("loopback carries bytes");
        for question in suite.cells().filter_map(Question::of_cell) {
            assert!(question.ceiling(&limits) > Some(0.0), "{question:?}: {limits:?}");
        }
    }

    #[test]
    fn the_roof_is_as_many_requests_and_as_many_bytes_as_any_length_reached() {
        let mut points = [(1000, 5e6), (10_000, 20e6), (100_000, 100e6)];
        roof(&mut points);
        assert_eq!(points, [(1000, 5e6), (10_000, 50e6), (100_000, 100e6)]);
    }
}
