//! Runs loads: requests of one kind at a fixed queue depth, in short rounds between the probes. Also measures
//! the contribution of each layer.
//!
//! Reading order: [`Loads`], `round` (one round), `snapshot` (clocks and counters before and after), `sum`
//! (all rounds).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bench::plan::{Percent, Span, Workload};
use bench::record::{Histogram, Run, Sample};
use bench::{Go, Orders};
use block::{BlockDevice, Durability, Extent, Pending, Slice};
use environment::server::{Server, ServerClocks};
use host::cputime;
use iscsi_client::{ClassStatistics, ConnectionStatistics, Phase, Statistics};
use model::{Direction, Load};
use reactor::PathInfo;

use crate::measure::device::{Device, Told};
use crate::measure::places::Part;
use crate::measure::probe::connect;
use crate::measure::way::{Address, Way};
use crate::{Known, LoadRun, Parts, PathUnderLoad, Timed};

/// A load in progress, with the sessions that it needs in addition to the first.
pub(super) struct Running {
    load: Load,
    sum: Sum,
    others: Vec<Way>,
}

impl Running {
    pub(super) fn new(load: &Load, named: bool) -> Running {
        Running {
            load: *load,
            sum: Sum::new(load, named),
            others: Vec::new(),
        }
    }

    /// Creates a load that is not run, for this reason.
    pub(super) fn failed(load: &Load, named: bool, why: &str) -> Running {
        let mut running = Running::new(load, named);
        running.sum.fail(why.to_owned());
        running
    }

    /// Whether another round may succeed.
    pub(super) fn goes_on(&self) -> bool {
        !self.sum.is_hopeless()
    }

    pub(super) fn load(&self) -> &Load {
        &self.load
    }

    /// Runs a round on this part of the LUN, and returns its rate in bytes per second. A failure is part of
    /// the result.
    pub(super) async fn round(
        &mut self,
        way: &mut Way,
        part: Part,
        server: Option<&Server>,
        times: Times,
        seed: u64,
    ) -> Option<f64> {
        match self.devices(way).await {
            Ok(devices) => {
                let address = devices.first().and_then(|device| way.address(device));
                let place = Where {
                    devices: &devices,
                    part,
                    server,
                    address,
                };
                match round(place, &self.load, times, seed).await {
                    Ok(round) => return Some(self.sum.add(round)),
                    Err(why) => self.sum.fail(why),
                }
            }
            Err(why) => self.sum.fail(why),
        }
        None
    }

    /// Returns one device for each session. The first session is already open.
    async fn devices(&mut self, way: &mut Way) -> Result<Vec<Device>, String> {
        while self.others.len() + 1 < usize::from(self.load.sessions) {
            self.others.push(
                Way::open(way.subject())
                    .await
                    .map_err(|failure| failure.to_string())?,
            );
        }
        let mut devices = vec![way.device().await?];
        for other in &mut self.others {
            devices.push(other.device().await?);
        }
        Ok(devices)
    }

    /// Returns the result of all rounds.
    pub(super) async fn finish(self) -> LoadRun {
        for other in self.others {
            other.close().await;
        }
        self.sum.finish()
    }
}

// Writes that reach stable storage before they complete.

/// A wrapper around a device that makes all writes durable.
struct Durable(Arc<dyn BlockDevice>);

impl BlockDevice for Durable {
    block::forward!(self => self.0; geometry, profile, read, flush, losses, unmap, write_zeroes, allocation, quiesced);

    fn write(&self, extent: Extent, data: Slice, _: Durability) -> Pending<'_, ()> {
        self.0.write(extent, data, Durability::Stable)
    }
}

// One round of a load: requests for a short time with NOPs in parallel, and all clocks and counters before
// and after.

/// The times of a round.
#[derive(Clone, Copy, Debug)]
pub(in crate::measure) struct Times {
    /// The time after which TCP's windows, caches and queues are in a steady state.
    pub(in crate::measure) warm_up: Duration,
    pub(in crate::measure) counted: Duration,
}

/// The result of a round.
struct Round {
    run: Run,
    /// The clocks at the start and the end of counting; `None` if the round ended early because of too many
    /// failures.
    clocks: Option<(Snapshot, Snapshot)>,
    /// The times of NOPs during the round.
    nops: Vec<Duration>,
    /// The times of TCP handshakes during the round.
    connects: Vec<Duration>,
}

/// The storage on which a round runs.
struct Where<'a> {
    /// One device for each session.
    devices: &'a [Device],
    part: Part,
    server: Option<&'a Server>,
    address: Option<Address>,
}

/// Time after the round for outstanding requests, which `bench::run` abandons earlier. The rest is reserve
/// for a path that is lost completely.
const DRAIN: Duration = Duration::from_secs(13);

/// Runs a round. On failure, returns the reason.
async fn round(place: Where<'_>, load: &Load, times: Times, seed: u64) -> Result<Round, String> {
    let devices: Vec<Arc<dyn BlockDevice>> = place
        .devices
        .iter()
        .map(|device| match load.durable {
            true => Arc::new(Durable(device.shared())) as Arc<dyn BlockDevice>,
            false => device.shared(),
        })
        .collect();
    let workload = workload(load, place.part, seed);
    let start = reactor::now();
    let (from, to) = (start + times.warm_up, start + times.warm_up + times.counted);
    let orders = Orders {
        warm_up: times.warm_up,
        max: times.counted,
        start: Some(start),
        ..Orders::for_time(times.counted)
    };
    let watch = Watch::begin(&place, from, to);
    let mut on = |_: &Sample| Go::On;
    let run = bench::run(&devices, &workload, &orders, &mut on);
    let run = reactor::timeout(times.warm_up + times.counted + DRAIN, run).await;
    let (clocks, nops, connects) = watch.end(to).await;
    let run = run
        .map_err(|_| "requests did not complete".to_owned())?
        .map_err(|error| error.to_string())?;
    Ok(Round {
        run,
        clocks,
        nops,
        connects,
    })
}

fn workload(load: &Load, part: Part, seed: u64) -> Workload {
    let all_or_nothing = |all| if all { Percent::ALL } else { Percent::NONE };
    let read = all_or_nothing(load.direction == Direction::Read);
    let span = Span {
        start_bytes: part.start_bytes,
        bytes: Some(part.bytes),
    };
    Workload {
        span,
        seed,
        ..Workload::simple(
            load.block_bytes,
            load.depth,
            read,
            all_or_nothing(load.random),
        )
    }
}

/// Reads clocks and counters when counting starts and ends, and sends probes in between.
struct Watch {
    snapshots: reactor::JoinHandle<(Snapshot, Snapshot)>,
    nops: Probes,
    connects: Probes,
}

impl Watch {
    fn begin(place: &Where<'_>, from: Instant, to: Instant) -> Watch {
        let (devices, server) = (place.devices.to_vec(), place.server.cloned());
        let snapshots = reactor::spawn(async move {
            reactor::sleep_until(from).await;
            let before = Snapshot::take(&devices, server.as_ref()).await;
            reactor::sleep_until(to).await;
            (before, Snapshot::take(&devices, server.as_ref()).await)
        });
        let (device, address) = (place.devices.first().cloned(), place.address.clone());
        let nops = Probes::begin(from, to, NOPS, async move || {
            device.as_ref()?.ping_aside().await.ok()
        });
        let connects = Probes::begin(from, to, CONNECTS, async move || {
            connect(address.as_ref()?).await.ok()
        });
        Watch {
            snapshots,
            nops,
            connects,
        }
    }

    async fn end(
        self,
        to: Instant,
    ) -> (Option<(Snapshot, Snapshot)>, Vec<Duration>, Vec<Duration>) {
        let (nops, connects) = (self.nops.end(), self.connects.end());
        let clocks = match reactor::now() >= to {
            true => Some(self.snapshots.await),
            false => {
                self.snapshots.abort();
                None
            }
        };
        (clocks, nops, connects)
    }
}

/// The number of NOPs and of TCP handshakes in a round.
const NOPS: u32 = 30;
const CONNECTS: u32 = 8;
/// The minimum time between two probes, so that they are not a load themselves.
const GAP_MIN: Duration = Duration::from_millis(5);

/// Probes of one kind during a round, sent one at a time until one fails.
struct Probes {
    task: reactor::JoinHandle<()>,
    times: Rc<RefCell<Vec<Duration>>>,
}

impl Probes {
    fn begin(
        from: Instant,
        to: Instant,
        count: u32,
        mut probe: impl AsyncFnMut() -> Option<Duration> + 'static,
    ) -> Probes {
        let times: Rc<RefCell<Vec<Duration>>> = Rc::default();
        let measured = Rc::clone(&times);
        let task = reactor::spawn(async move {
            reactor::sleep_until(from).await;
            while reactor::now() < to {
                let Some(time) = probe().await else { return };
                measured.borrow_mut().push(time);
                reactor::sleep(((to - from) / count).max(GAP_MIN)).await;
            }
        });
        Probes { task, times }
    }

    fn end(self) -> Vec<Duration> {
        self.task.abort();
        self.times.take()
    }
}

// Clocks and counters at one point in time. The difference between two snapshots is the cost of a load.

/// Clocks and counters at one point in time.
struct Snapshot {
    at: Instant,
    /// The CPU time of this thread.
    cpu: Duration,
    /// The time for which this thread waited for a CPU; zero if the kernel does not report it.
    waited: Duration,
    server: Option<ServerClocks>,
    /// The state of each session.
    told: Vec<Told>,
}

impl Snapshot {
    async fn take(devices: &[Device], server: Option<&Server>) -> Snapshot {
        let mut told = Vec::new();
        for device in devices {
            told.extend(device.told().await);
        }
        Snapshot {
            at: reactor::now(),
            cpu: cputime::thread(),
            waited: cputime::thread_waited().unwrap_or_default(),
            server: server.and_then(|server| server.clocks().ok()),
            told,
        }
    }
}

// The total of all rounds of a load.

/// The sums over rounds, sessions and connections.
pub(in crate::measure) struct Sum {
    run: LoadRun,
    /// The total counted time; `session_time` is the sum over all sessions.
    time: Duration,
    session_time: Duration,
    commands: u64,
    parts: [Duration; PARTS],
    stalled: Duration,
    r2ts: u64,
    under_way: Duration,
    cpu: Duration,
    waited: Duration,
    digests: Option<Duration>,
    server: Option<Duration>,
    nops: Vec<Duration>,
    connects: Vec<Duration>,
    /// For each connection, the times in which sending was limited by the peer's window and by our send
    /// buffer.
    limited: Vec<(Duration, Duration)>,
}

/// The number of parts of a command's time: waiting, and the initiator's phases.
const PARTS: usize = 1 + Phase::ALL.len();

impl Sum {
    pub(in crate::measure) fn new(load: &Load, named: bool) -> Sum {
        let run = LoadRun {
            load: *load,
            named,
            bytes_per_s: Vec::new(),
            service: Histogram::default(),
            under_way: 0.0,
            parts: Parts::default(),
            window_stalled: 0.0,
            r2ts_per_command: 0.0,
            busy_answers: 0,
            errors: 0,
            first_failure: None,
            nop: Known::Unknown("the time was used up".to_owned()),
            connect: Known::Unknown("the time was used up".to_owned()),
            paths: Vec::new(),
            beside: Vec::new(),
            client_busy: 0.0,
            client_waited: 0.0,
            client_digests: None,
            server_busy: None,
        };
        Sum {
            run,
            time: Duration::ZERO,
            session_time: Duration::ZERO,
            commands: 0,
            parts: [Duration::ZERO; PARTS],
            stalled: Duration::ZERO,
            r2ts: 0,
            under_way: Duration::ZERO,
            cpu: Duration::ZERO,
            waited: Duration::ZERO,
            digests: None,
            server: None,
            nops: Vec::new(),
            connects: Vec::new(),
            limited: Vec::new(),
        }
    }

    /// Whether nothing was transferred at all, so that another round is not worthwhile.
    pub(in crate::measure) fn is_hopeless(&self) -> bool {
        self.run.errors > 0 && self.run.service.is_empty()
    }

    /// Records that a round failed as a whole.
    pub(in crate::measure) fn fail(&mut self, why: String) {
        self.run.errors += 1;
        self.run.first_failure.get_or_insert(why);
    }

    /// Adds a round, and returns its rate in bytes per second.
    fn add(&mut self, round: Round) -> f64 {
        let Round {
            run,
            clocks,
            nops,
            connects,
        } = round;
        if let Some((before, after)) = clocks {
            self.add_clocks(&before, &after);
        }
        self.nops.extend(nops);
        self.connects.extend(connects);
        let flow = match self.run.load.direction {
            Direction::Read => &run.reads,
            Direction::Write => &run.writes,
        };
        self.run.service = self.run.service.merged(&flow.service);
        let rate = run.bytes_per_s();
        self.run.bytes_per_s.push(rate);
        self.run.errors += run.errors;
        if let Some(failure) = run.first_failure {
            self.run.first_failure.get_or_insert(failure);
        }
        rate
    }

    fn add_clocks(&mut self, before: &Snapshot, after: &Snapshot) {
        let time = after.at.saturating_duration_since(before.at);
        self.time += time;
        self.cpu += after.cpu.saturating_sub(before.cpu);
        self.waited += after.waited.saturating_sub(before.waited);
        if let (Some(after), Some(before)) = (&after.server, &before.server) {
            *self.server.get_or_insert_default() += after.busiest_since(before);
        }
        for (after, before) in after.told.iter().zip(&before.told) {
            self.session_time += time;
            if let (Some(after), Some(before)) = (&after.session, &before.session) {
                self.add_session(&after.since(before));
            }
            self.add_paths(&after.connections, &before.connections);
        }
    }

    fn add_session(&mut self, since: &Statistics) {
        let class: &ClassStatistics = match self.run.load.direction {
            Direction::Read => &since.read,
            Direction::Write => &since.write,
        };
        self.commands += class.latency.count();
        let phases = Phase::ALL.map(|phase| class.phase(phase).sum());
        let parts = std::iter::once(class.waiting.sum()).chain(phases);
        self.parts
            .iter_mut()
            .zip(parts)
            .for_each(|(sum, part)| *sum += part);
        self.under_way += class.latency.sum().saturating_sub(class.waiting.sum());
        self.stalled += since.counters.window_stalled;
        self.r2ts += since.counters.r2ts;
        self.run.busy_answers += since.incidents.busy + since.incidents.task_set_full;
        if since.digests.bytes > 0 {
            *self.digests.get_or_insert_default() += since.digests.estimate();
        }
    }

    fn add_paths(&mut self, after: &[ConnectionStatistics], before: &[ConnectionStatistics]) {
        for now in after {
            let Some(earlier) = before
                .iter()
                .find(|earlier| earlier.cid == now.cid && earlier.local == now.local)
            else {
                continue;
            };
            let (Some(path), Some(earlier)) = (&now.path, &earlier.path) else {
                continue;
            };
            let place = self
                .run
                .paths
                .iter()
                .position(|path| path.cid == now.cid.0)
                .unwrap_or_else(|| {
                    self.run.paths.push(PathUnderLoad {
                        cid: now.cid.0,
                        ..PathUnderLoad::default()
                    });
                    self.limited.push(Default::default());
                    self.run.paths.len() - 1
                });
            add_path(&mut self.run.paths[place], path, earlier);
            let since = |of: fn(&PathInfo) -> Option<Duration>| {
                of(path)
                    .unwrap_or_default()
                    .saturating_sub(of(earlier).unwrap_or_default())
            };
            self.limited[place].0 += since(|path| path.limited_by_receiver);
            self.limited[place].1 += since(|path| path.limited_by_send_buffer);
        }
    }

    pub(in crate::measure) fn finish(mut self) -> LoadRun {
        self.count_requests();
        let Sum { mut run, .. } = self;
        let share = |part: Duration, whole: Duration| match whole.is_zero() {
            true => 0.0,
            false => part.as_secs_f64() / whole.as_secs_f64(),
        };
        let each = |part: Duration| match self.commands {
            0 => 0.0,
            commands => part.as_secs_f64() * 1e6 / commands as f64,
        };
        let [waiting, queued, sending, r2t, answer, data, status] = self.parts.map(each);
        run.parts = Parts {
            waiting_us: waiting,
            queued_us: queued,
            sending_us: sending,
            r2t_us: r2t,
            answer_us: answer,
            data_us: data,
            status_us: status,
        };
        // A request that is outstanding at the start or end of counting counts with its whole time, so limit
        // the result to the depth of all sessions.
        run.under_way = share(self.under_way, self.time).min(run.places());
        run.window_stalled = share(self.stalled, self.session_time).min(1.0);
        run.r2ts_per_command = if self.commands == 0 {
            0.0
        } else {
            self.r2ts as f64 / self.commands as f64
        };
        run.client_busy = share(self.cpu, self.time);
        run.client_waited = share(self.waited, self.time);
        run.client_digests = self.digests.map(|digests| share(digests, self.time));
        run.server_busy = self.server.map(|server| share(server, self.time));
        for (path, (receiver, buffer)) in run.paths.iter_mut().zip(self.limited) {
            path.limited_by_receiver = share(receiver, self.time);
            path.limited_by_send_buffer = share(buffer, self.time);
        }
        if let Some(timed) = Timed::of(&self.nops) {
            run.nop = Known::Measured(timed);
        }
        if let Some(timed) = Timed::of(&self.connects) {
            run.connect = Known::Measured(timed);
        }
        run
    }
}

impl Sum {
    /// If there are no counters of an initiator, computes the outstanding requests from the requests' times.
    fn count_requests(&mut self) {
        let service = &self.run.service;
        if self.commands > 0 || service.is_empty() {
            return;
        }
        let all_ns: u128 = service
            .0
            .iter()
            .map(|(ns, count)| u128::from(*ns) * u128::from(*count))
            .sum();
        let all = Duration::from_nanos(u64::try_from(all_ns).unwrap_or(u64::MAX));
        self.commands = service.count();
        self.under_way = all;
        self.parts[ANSWER] = all;
    }
}

/// The index of the part that covers the path and the server.
const ANSWER: usize = 4;

/// Adds the counts of this round, and replaces the states by those at its end.
fn add_path(sum: &mut PathUnderLoad, now: &PathInfo, earlier: &PathInfo) {
    let long = |of: fn(&PathInfo) -> Option<u64>| Some(of(now)?.saturating_sub(of(earlier)?));
    // A 32-bit counter may have wrapped.
    let short =
        |of: fn(&PathInfo) -> Option<u32>| Some(u64::from(of(now)?.wrapping_sub(of(earlier)?)));
    let add = |sum: &mut Option<u64>, more: Option<u64>| {
        if let Some(more) = more {
            *sum.get_or_insert_default() += more;
        }
    };
    sum.sent_bytes += long(|path| path.sent_bytes).unwrap_or_default();
    sum.received_bytes += long(|path| path.received_bytes).unwrap_or_default();
    add(&mut sum.segments_in, short(|path| path.data_segments_in));
    add(&mut sum.segments_out, short(|path| path.data_segments_out));
    add(
        &mut sum.out_of_order_segments,
        short(|path| path.out_of_order_segments),
    );
    sum.retransmitted_segments += short(|path| Some(path.retransmissions)).unwrap_or_default();
    sum.round_trip_us = now.round_trip.as_secs_f64() * 1e6;
    sum.congestion_window_bytes =
        u64::from(now.congestion_window_segments) * u64::from(now.segment_bytes);
    let most = |most: Option<u64>, now: Option<u32>| most.max(now.map(u64::from));
    sum.peer_window_bytes = most(sum.peer_window_bytes, now.peer_window_bytes);
    let own = now.own_window_bytes.or(Some(now.receive_space_bytes));
    sum.own_window_bytes = most(sum.own_window_bytes, own);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_passed_their_end_are_counted_on() {
        let mut sum = PathUnderLoad::default();
        let earlier = PathInfo {
            data_segments_in: Some(u32::MAX - 4),
            retransmissions: 7,
            ..PathInfo::default()
        };
        let now = PathInfo {
            data_segments_in: Some(5),
            retransmissions: 9,
            ..PathInfo::default()
        };
        add_path(&mut sum, &now, &earlier);
        add_path(&mut sum, &now, &earlier);
        assert_eq!((sum.segments_in, sum.retransmitted_segments), (Some(20), 4));
        assert_eq!(
            (sum.segments_out, sum.out_of_order_segments),
            (None, None),
            "an old kernel does not tell"
        );
    }

    #[test]
    fn requests_of_all_sessions_are_outstanding() {
        let load = Load {
            direction: Direction::Read,
            block_bytes: 4096,
            depth: 8,
            sessions: 4,
            random: true,
            durable: false,
        };
        let mut sum = Sum::new(&load, true);
        sum.time = Duration::from_secs(1);
        sum.under_way = Duration::from_secs(33);
        sum.commands = 1;
        assert_eq!(sum.finish().under_way, 32.0);
    }

    #[test]
    fn nothing_that_was_measured_is_nothing_and_no_nonsense() {
        let load = Load {
            direction: Direction::Read,
            block_bytes: 4096,
            depth: 1,
            sessions: 1,
            random: true,
            durable: false,
        };
        let mut sum = Sum::new(&load, true);
        sum.fail("the session was lost".to_owned());
        assert!(sum.is_hopeless());
        let run = sum.finish();
        let numbers = [
            run.under_way,
            run.window_stalled,
            run.r2ts_per_command,
            run.client_busy,
            run.parts.r2t_us,
        ];
        assert_eq!(numbers, [0.0; 5]);
        assert_eq!(run.first_failure.as_deref(), Some("the session was lost"));
    }
}
