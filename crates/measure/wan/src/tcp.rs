//! Measures plain TCP as a cell: bytes in one direction at full speed, between the client's host and the peer
//! in the server's host. Also contains the service of the peer ([`keep`]).

use std::cell::Cell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use std::{io, thread};

use backends::Failure;
use bench::Go;
use bench::plan::{Role, Stop, Way};
use bench::raw::{self, Direction, Question, ask_while};
use bench::record::{ClientRun, Cpu, Flow, Histogram, Run, Sample};
use bench_runner::client::{Report, RoleResult, Site, StopFlag};
use bench_runner::crew::{CellOutcome, Progress, gather};
use host::{Epoll, EpollOptions, cputime};
use reactor::{Listener, Sender, Stream, StreamOptions, mailbox};

use crate::ground;

/// The length of a request to the peer. It is small, so that the bytes of a slow flow are counted in small
/// steps.
const PIECE_BYTES: u32 = 16 << 10;
/// The amount of outstanding data. It exceeds any window of the matrix, so that the window is the limit.
const UNDER_WAY_BYTES: u32 = 32 << 20;
/// Maximum number of bytes of a system call.
const CALL_BYTES: usize = 256 << 10;
/// The interval of samples.
const INTERVAL: Duration = Duration::from_millis(50);

/// Measures a cell of plain TCP between this site and a peer.
///
/// # Errors
/// The cell is none of plain TCP, or the peer does not respond.
pub async fn measure(
    peer: SocketAddr,
    cell: &bench::plan::Cell,
    stop: Stop,
    site: &Site,
    progress: &mut dyn FnMut(Progress<'_>) -> Go,
) -> Result<CellOutcome, Failure> {
    let (Some(setting), Some(role)) = (cell.setting.as_deref(), cell.roles.first()) else {
        return Err(crate::nothing_to_do(cell));
    };
    let direction = match setting.way {
        Way::Tcp { to_target: true } => Direction::Write,
        Way::Tcp { to_target: false } => Direction::Read,
        Way::Reads | Way::MostSolicited | Way::MostUnsolicited => {
            return Err(crate::nothing_to_do(cell));
        }
    };
    let flow = TcpFlow {
        peer,
        stream: ground::stream(setting),
        direction,
        stop,
        role: role.clone(),
    };
    flow.measure(site, progress).await
}

/// A flow to measure.
struct TcpFlow {
    peer: SocketAddr,
    stream: StreamOptions,
    direction: Direction,
    stop: Stop,
    role: Role,
}

impl TcpFlow {
    /// Measures the flow from this site.
    async fn measure(
        self,
        site: &Site,
        progress: &mut dyn FnMut(Progress<'_>) -> Go,
    ) -> Result<CellOutcome, Failure> {
        let (end, (tell, reports)) = (StopFlag::default(), mailbox());
        let (site, asked) = (site.clone(), end.clone());
        let main = move || {
            let outcome = site
                .run(|| self.run(&tell, &asked))
                .and_then(|outcome| outcome);
            // The receiver may have been dropped.
            let _ = tell.send((0, Report::Ended(Box::new(outcome))));
        };
        thread::Builder::new()
            .name("tcp".to_owned())
            .spawn(main)
            .map_err(Failure::failed)?;
        let parts = gather(1, reports, &end, progress).await?;
        Ok(CellOutcome { parts, lost: None })
    }

    fn run(&self, tell: &Sender<(usize, Report)>, end: &StopFlag) -> Result<RoleResult, Failure> {
        let world = Epoll::shared(EpollOptions::default()).map_err(Failure::failed)?;
        reactor::block_on(world, self.ask(tell, end))
            .map_err(|error| Failure::failed(format_args!("plain TCP with {}: {error}", self.peer)))
    }

    async fn ask(&self, tell: &Sender<(usize, Report)>, end: &StopFlag) -> io::Result<RoleResult> {
        let stream = reactor::world().connect(self.peer, &self.stream)?;
        poll_fn(|cx| stream.poll_writable(cx)).await?;
        let question = Question {
            direction: self.direction,
            block_bytes: PIECE_BYTES,
            depth: UNDER_WAY_BYTES / PIECE_BYTES,
        };
        let started = reactor::now();
        let mut log = Log::new(self, started);
        let cpu = Cell::new(Duration::ZERO);
        let say = |report| drop(tell.send((0, report)));
        ask_while(&*stream, question, CALL_BYTES, |now, pieces| {
            let bytes = pieces * u64::from(PIECE_BYTES);
            match log.heard(now, bytes) {
                Heard::Nothing => {}
                Heard::Counting => {
                    cpu.set(cputime::thread());
                    say(Report::Counting);
                }
                Heard::Sample(sample) => say(Report::Sample(sample)),
            }
            (!log.is_over(now) && !end.is_asked()).then_some(log.next)
        })
        .await?;
        let cpu_s = cputime::thread().saturating_sub(cpu.get()).as_secs_f64();
        stream.shutdown();
        let cpus = u32::try_from(host::threads::available().get()).unwrap_or(u32::MAX);
        let cpu = Cpu {
            seconds: cpu_s,
            busiest_thread_s: cpu_s,
            cpus,
            ..Cpu::default()
        };
        let run = ClientRun {
            role: self.role.name.clone(),
            client: "client 1".to_owned(),
            run: log.run(),
            cpu,
            late_us: 0.0,
            late_error_us: 0.0,
            sessions: Vec::new(),
        };
        Ok(RoleResult {
            run,
            tables: Vec::new(),
            started,
        })
    }
}

/// The event to report after new bytes.
enum Heard {
    Nothing,
    Counting,
    Sample(Sample),
}

/// Converts the byte count to samples. A flow has no requests, so each consecutive block of the cell's length
/// counts as one. Its latency is the time in which its bytes arrive.
struct Log {
    direction: Direction,
    block_bytes: u64,
    begin: Instant,
    end: Instant,
    /// The time of the next sample.
    next: Instant,
    /// The start of the current sample, and the number of bytes at that time.
    since: Option<(Instant, u64)>,
    samples: Vec<Sample>,
    service: Vec<(u64, u64)>,
}

impl Log {
    fn new(flow: &TcpFlow, started: Instant) -> Log {
        let begin = started + seconds(flow.stop.warm_up_s);
        let block_bytes = u64::from(flow.role.workload.block_bytes_max().max(1));
        Log {
            direction: flow.direction,
            block_bytes,
            begin,
            end: begin + seconds(flow.stop.max_s),
            next: begin,
            since: None,
            samples: Vec::new(),
            service: Vec::new(),
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        now >= self.end
    }

    /// Records the total number of bytes so far.
    fn heard(&mut self, now: Instant, bytes: u64) -> Heard {
        if now < self.next {
            return Heard::Nothing;
        }
        self.next = (now + INTERVAL).min(self.end);
        match self.since.replace((now, bytes)) {
            None => {
                self.begin = now;
                Heard::Counting
            }
            Some((since, before)) => Heard::Sample(self.sample(since, now, before, bytes - before)),
        }
    }

    fn sample(&mut self, since: Instant, now: Instant, before: u64, bytes: u64) -> Sample {
        let seconds = (now - since).as_secs_f64();
        // Blocks are counted from the start of the flow, so that partial blocks are not lost between samples.
        let blocks = (before + bytes) / self.block_bytes - before / self.block_bytes;
        let block_s = if bytes > 0 {
            seconds * self.block_bytes as f64 / bytes as f64
        } else {
            0.0
        };
        if blocks > 0 {
            self.service.push(((block_s * 1e9) as u64, blocks));
        }
        let (reads, writes) = match self.direction {
            Direction::Read => ((blocks, bytes), (0, 0)),
            Direction::Write => ((0, 0), (blocks, bytes)),
        };
        let us = block_s * 1e6;
        let sample = Sample {
            at_s: (now - self.begin).as_secs_f64(),
            seconds,
            reads: reads.0,
            writes: writes.0,
            read_bytes: reads.1,
            written_bytes: writes.1,
            p50_us: us,
            p99_us: us,
            max_us: us,
            under_way: 1.0,
        };
        self.samples.push(sample);
        sample
    }

    fn run(self) -> Run {
        let bytes: u64 = self
            .samples
            .iter()
            .map(|sample| sample.read_bytes + sample.written_bytes)
            .sum();
        let service = Histogram::default().merged(&Histogram(self.service));
        let flow = Flow {
            ios: bytes / self.block_bytes,
            bytes,
            service,
            response: Histogram::default(),
        };
        let (reads, writes) = match self.direction {
            Direction::Read => (flow, Flow::default()),
            Direction::Write => (Flow::default(), flow),
        };
        Run {
            seconds: self.samples.iter().map(|sample| sample.seconds).sum(),
            under_way_mean: 1.0,
            reads,
            writes,
            backlog_max: 0,
            errors: 0,
            mismatches: 0,
            first_failure: None,
            samples: self.samples,
        }
    }
}

/// Converts seconds to a duration. A record may contain any number; an invalid one counts as zero.
fn seconds(seconds: f64) -> Duration {
    const DAY_S: f64 = 86_400.0;
    Duration::try_from_secs_f64(seconds.min(DAY_S)).unwrap_or_default()
}

/// Maximum number of concurrent connections. Further connections are closed immediately. A connection that is
/// idle for `raw::SILENCE_MAX` is also closed, so that idle peers do not block others.
pub const CONNECTIONS_MAX: u32 = 64;
/// The amount of memory that each connection reads and writes repeatedly. It exceeds the caches of most
/// cores.
const MEMORY_BYTES: usize = 4 << 20;
/// The delay after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves all connections. Never returns.
pub async fn keep(listener: &dyn Listener) -> Infallible {
    let present = Rc::new(Cell::new(0));
    loop {
        match listener.accept().await {
            Ok(stream) => {
                if let Some(slot) = ConnectionSlot::enter(&present) {
                    drop(reactor::spawn(answer(slot, stream)));
                }
            }
            Err(error) => {
                // There may be no file descriptors or no memory, which may become available later.
                tracing::warn!(%error, "cannot accept a connection");
                reactor::sleep(PAUSE).await;
            }
        }
    }
}

async fn answer(_slot: ConnectionSlot, stream: Box<dyn Stream>) {
    let mut memory = vec![0x5a; MEMORY_BYTES];
    if let Err(error) = raw::serve(&*stream, &mut memory).await {
        // A client disconnects while requests are outstanding, which is not a failure.
        tracing::debug!(peer = %stream.peer(), %error, "a connection closed unexpectedly");
    }
}

/// A connection that is counted as long as this exists.
struct ConnectionSlot(Rc<Cell<u32>>);

impl ConnectionSlot {
    fn enter(present: &Rc<Cell<u32>>) -> Option<ConnectionSlot> {
        let count = present.get();
        (count < CONNECTIONS_MAX).then(|| {
            present.set(count + 1);
            ConnectionSlot(Rc::clone(present))
        })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench::plan::{Percent, Workload};

    use crate::ground::Peer;

    fn flow(direction: Direction) -> TcpFlow {
        let stop = Stop {
            warm_up_s: 1.0,
            ..Stop::after(0.1)
        };
        let workload = Workload::simple(64 << 10, 1, Percent::ALL, Percent::NONE);
        let role = Role::new("client", 0, workload);
        TcpFlow {
            peer: ([127, 0, 0, 1], 1).into(),
            stream: StreamOptions::default(),
            direction,
            stop,
            role,
        }
    }

    #[test]
    fn bytes_of_the_warm_up_do_not_count() {
        let started = Instant::now();
        let mut log = Log::new(&flow(Direction::Write), started);
        let at = |ms| started + Duration::from_millis(ms);
        assert!(matches!(log.heard(at(500), 1 << 30), Heard::Nothing));
        assert!(matches!(log.heard(at(1000), 1 << 30), Heard::Counting));
        assert!(matches!(
            log.heard(at(1050), (1 << 30) + (1 << 20)),
            Heard::Sample(_)
        ));
        assert!(!log.is_over(at(1050)));
        assert!(matches!(
            log.heard(at(1100), (1 << 30) + (2 << 20)),
            Heard::Sample(_)
        ));
        assert!(log.is_over(at(1100)));
        let run = log.run();
        assert_eq!(
            (
                run.bytes(),
                run.writes.ios,
                run.reads.ios,
                run.samples.len()
            ),
            (2 << 20, 32, 0, 2)
        );
        assert!((run.seconds - 0.1).abs() < 1e-9);
        // The blocks follow each other, so the product of their rate and mean latency is one.
        let under_way = run.writes.ios as f64 / run.seconds * run.writes.service.mean_ns() / 1e9;
        assert!((under_way - 1.0).abs() < 0.01, "{under_way}");
    }

    #[test]
    fn plain_tcp_goes_both_ways() {
        let listen = (std::net::Ipv4Addr::LOCALHOST, 0).into();
        let peer = Peer::start(listen, StreamOptions::default(), &Site::Here).expect("a peer");
        for direction in [Direction::Read, Direction::Write] {
            let stop = Stop {
                warm_up_s: 0.05,
                ..Stop::after(0.2)
            };
            let flow = TcpFlow {
                peer: peer.address,
                stop,
                ..flow(direction)
            };
            let carried =
                backends::remote::run(async { flow.measure(&Site::Here, &mut |_| Go::On).await });
            let run = &carried.expect("loopback carries bytes").parts[0].run.run;
            assert!(
                run.bytes() > 0 && run.samples.len() > 1,
                "{direction:?}: {run:?}"
            );
        }
    }

    #[test]
    fn a_flow_that_stands_still_has_samples_of_nothing() {
        let started = Instant::now();
        let mut log = Log::new(&flow(Direction::Read), started);
        log.heard(started + Duration::from_millis(1000), 100);
        log.heard(started + Duration::from_millis(1060), 100);
        let run = log.run();
        assert_eq!(
            (run.bytes(), run.samples.len(), run.reads.service.is_empty()),
            (0, 1, true)
        );
    }

    #[test]
    fn a_full_house_lets_nobody_in_until_somebody_leaves() {
        let present = Rc::default();
        let mut guests: Vec<ConnectionSlot> = (0..CONNECTIONS_MAX)
            .filter_map(|_| ConnectionSlot::enter(&present))
            .collect();
        assert_eq!(guests.len(), CONNECTIONS_MAX as usize);
        assert!(ConnectionSlot::enter(&present).is_none());
        guests.pop();
        assert!(ConnectionSlot::enter(&present).is_some());
    }
}
