//! The sequence of a diagnosis: the first contact, the search for lost long packets, and then alternating
//! turns of the ladder and rounds of the loads.

use std::time::Duration;

use crate::{Evidence, Known, PathLayer, Storage, Timed};
use bench::record::{Fact, Facts, Group};
use block::Random;
use iscsi::pdu::Cid;
use iscsi_client::verbs::ModeValues;
use iscsi_client::{ConnectionStatistics, Settings};
use model::{Direction, Load};

use super::ladder::{Rungs, shuffle};
use super::load::{Running, Times};
use super::places::{Part, physical_block_bytes};
use super::probe::{Ground, Probe};
use super::way::Way;
use super::{Options, Progress};
use crate::measure::Pace;
use crate::measure::Subject;
use crate::measure::confirm::{Compared, Others};
use crate::measure::device::Device;
use crate::measure::probe;
use crate::measure::{device, places};
use backends::Failure;
use environment::network::LinkWatch;
use environment::server::Server;

/// Collects the evidence. Fails only if no session with the storage can be opened, or if an option cannot be
/// satisfied.
pub async fn evidence(
    subject: &Subject,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Evidence, Failure> {
    progress.begins("logging in");
    let mut way = Way::open(subject).await?;
    let device = way.device().await.map_err(Failure::failed)?;
    let connections = connections(&device).await;
    let link = watched(subject, &connections);
    let part = Part::whole(device.geometry());
    let writable = places::part(&device, subject, options).await?;
    let loads = loads(options, &device, writable)?;
    let parameters = device.lun().map(|lun| lun.target().parameters());
    let nbd = device.nbd(subject).await;
    let mut evidence = Evidence {
        place: subject.to_string(),
        expected_link_bits_per_s: options.expected_link_bits_per_s,
        storage: storage(&device).await,
        asked: settings(subject)
            .zip(parameters.as_ref())
            .map(|(ours, got)| device::asked(&ours.offers, got)),
        got: parameters.as_ref().map(device::got),
        command_window: command_window(&device).await,
        nbd,
        link: Known::Unknown(String::new()),
        connect: Known::Unknown(String::new()),
        paths: Vec::new(),
        long_packets: None,
        ladder: Rungs::new(&[], None, false, Duration::ZERO, Duration::ZERO).ladder(),
        loads: Vec::new(),
        environment: facts(subject, &device).await?,
    };
    let server = match device.lun() {
        Some(lun) => Server::serving(lun.target()).await,
        None => subject.server(),
    };
    evidence
        .environment
        .0
        .extend(hidden_server(&connections, server.as_ref()));
    let mut ground = Ground::new(part, writable, options.seed, way.address(&device));
    let pace = Pace::new(options.quick, options.seconds);
    let round_trip = round_trip(&device, &mut ground).await;
    drop(device);

    // The connections on which NOPs are sent, and the maximum length of NOP data.
    let cids: Vec<Cid> = match parameters {
        Some(_) => connections
            .iter()
            .map(|connection| connection.cid)
            .collect(),
        None => Vec::new(),
    };
    let ping_bytes = parameters.map(|got| got.peer_max_recv_data_segment_length.min(8192));
    let mut unanswered = None;
    if let Some(ping_bytes) = ping_bytes {
        progress.begins("long packets");
        let patience = pace.patience_without_disk(round_trip);
        let found = probe::look(way, &mut ground, &cids, ping_bytes, patience).await?;
        way = found.way;
        evidence.long_packets = found.long_packets;
        unanswered = found.unanswered_ping;
    }

    let rungs = Rungs::new(
        &cids,
        ping_bytes,
        writable.is_some(),
        pace.patience,
        pace.share,
    );
    let others = Others::open(&way, evidence.nbd.as_ref()).await;
    let mut course = Course {
        way,
        others,
        ground,
        rungs,
        pace,
        server,
        round_trip,
    };
    if let Some(why) = unanswered {
        course.rungs.leave_out_pings(&why);
    }
    let hopeless = evidence
        .long_packets
        .as_ref()
        .filter(|lost| lost.works_bytes.is_none());
    let hopeless = hopeless.map(|lost| lost.lost.clone());
    if let Some(why) = &hopeless {
        course.rungs.leave_out_long(why);
    }
    course
        .run(&loads, hopeless.as_deref(), &mut evidence, progress)
        .await;
    evidence.link = link
        .and_then(LinkWatch::end)
        .map_or_else(Known::Unknown, Known::Measured);
    course.others.close().await;
    course.way.close().await;
    Ok(evidence)
}

async fn command_window(device: &Device) -> Option<u32> {
    let statistics = device.lun()?.target().statistics().await?;
    Some(statistics.window_room + statistics.under_way)
}

fn settings(subject: &Subject) -> Option<&Settings> {
    match subject {
        Subject::Lun(url) => Some(&url.settings),
        Subject::Export(_) => None,
    }
}

/// Starts to watch the network interface of the first connection.
fn watched(subject: &Subject, connections: &[ConnectionStatistics]) -> Result<LinkWatch, String> {
    match subject.is_local() {
        true => Err("a Unix socket has no interface".to_owned()),
        false => LinkWatch::begin(connections.first()),
    }
}

/// The state of a measurement.
struct Course {
    way: Way,
    others: Others,
    ground: Ground,
    rungs: Rungs,
    pace: Pace,
    server: Option<Server>,
    round_trip: Duration,
}

impl Course {
    /// Runs turns of the ladder, with rounds of the loads between them. With a reason in `hopeless`, the
    /// rounds are skipped.
    async fn run(
        &mut self,
        loads: &[(Load, bool)],
        hopeless: Option<&str>,
        evidence: &mut Evidence,
        progress: &dyn Progress,
    ) {
        let begun = reactor::now();
        let running = loads.iter().map(|(load, named)| match hopeless {
            Some(why) => Running::failed(load, *named, why),
            None => Running::new(load, *named),
        });
        let mut running: Vec<Compared> = running.map(|own| self.others.compare(own)).collect();
        let runs = self.others.runs(loads);
        let mut random = Random::new(self.ground.random.next());
        progress.of(1);
        self.turn(progress).await;
        evidence.paths = self.paths().await;
        let (rounds, times) = self.pace.rounds(runs, self.round_trip, self.request());
        progress.of(1 + rounds as usize * (loads.len() + 1));
        for round in 0..rounds {
            let mut order: Vec<&mut Compared> = running.iter_mut().collect();
            shuffle(&mut order, &mut random);
            let is_late = round > 0 && reactor::now() - begun > self.pace.most;
            // In the first round, the windows of both ends have to grow to the path's bandwidth-delay
            // product.
            let warm_up = if round == 0 {
                times.warm_up.max(40 * self.round_trip)
            } else {
                times.warm_up
            };
            let times = Times { warm_up, ..times };
            for load in order {
                progress.begins(&bench::plan::load_words(load.own.load()));
                if load.own.goes_on() && !is_late {
                    let part = self.part(load.own.load().direction);
                    let ways = (&mut self.way, &mut self.others);
                    load.round(ways, part, self.server.as_ref(), times, &mut random)
                        .await;
                }
                progress.ended();
            }
            if !is_late {
                self.turn(progress).await;
            }
        }
        for running in running {
            evidence.loads.push(running.finish().await);
        }
        evidence.connect = self.rungs.known(Probe::Connect);
        evidence.ladder = self.rungs.ladder();
        for path in &mut evidence.paths {
            path.nop = match evidence.nbd {
                None => self.nop_by(Cid(path.cid)),
                Some(_) => Known::Unknown(
                    "an NBD client cannot choose the connection of a request".to_owned(),
                ),
            };
        }
    }

    async fn turn(&mut self, progress: &dyn Progress) {
        progress.begins("one request at a time");
        if let Err(why) = self
            .rungs
            .ask(&mut self.way, &mut self.ground, self.pace.turn)
            .await
        {
            self.rungs.end(&why);
        }
        progress.ended();
    }

    /// Returns the time of the slowest single request. A long write may wait for many R2Ts.
    fn request(&self) -> Duration {
        let rungs = [
            Probe::CachedRead(LONG_BYTES),
            Probe::MediumRead,
            Probe::Write(LONG_BYTES),
            Probe::DurableWrite,
        ];
        rungs
            .into_iter()
            .filter_map(|probe| self.rungs.median(probe))
            .max()
            .unwrap_or_default()
    }

    fn part(&self, direction: Direction) -> Part {
        match direction {
            Direction::Read => self.ground.part,
            Direction::Write => self.ground.writable.unwrap_or(self.ground.part),
        }
    }

    /// Returns the times of NOPs on one connection. If the session has only one, these are the general NOPs.
    fn nop_by(&self, cid: Cid) -> Known<Timed> {
        match self.rungs.known(Probe::NopBy(cid, 0)) {
            Known::Measured(timed) => Known::Measured(timed),
            Known::Unknown(_) if !self.rungs.has(Probe::NopBy(cid, 0)) => {
                self.rungs.known(Probe::Nop)
            }
            unknown => unknown,
        }
    }

    /// Returns the session's connections after the first turn of the ladder and before the first load.
    async fn paths(&mut self) -> Vec<PathLayer> {
        let Ok(device) = self.way.device().await else {
            return Vec::new();
        };
        connections(&device).await.iter().filter_map(path).collect()
    }
}

fn path(connection: &ConnectionStatistics) -> Option<PathLayer> {
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let path = connection.path.as_ref()?;
    Some(PathLayer {
        cid: connection.cid.0,
        peer: connection.peer.to_string(),
        congestion: path.congestion.clone(),
        round_trip_min_us: path.round_trip_min.map(us),
        round_trip_us: us(path.round_trip),
        segment_bytes: path.segment_bytes,
        path_mtu_bytes: path.path_mtu_bytes,
        nop: Known::Unknown("it was not measured".to_owned()),
    })
}

async fn connections(device: &Device) -> Vec<ConnectionStatistics> {
    device
        .told()
        .await
        .map(|told| told.connections)
        .unwrap_or_default()
}

/// Estimates the round trip from the shortest of a few NOPs.
async fn round_trip(device: &Device, ground: &mut Ground) -> Duration {
    const LONGEST: Duration = Duration::from_secs(4);
    let mut shortest = None;
    for _ in 0..5 {
        match Probe::Nop.ask(device, ground, LONGEST).await {
            Ok(time) => shortest = Some(shortest.unwrap_or(time).min(time)),
            Err(_) => break,
        }
    }
    shortest.unwrap_or(Duration::from_millis(100))
}

/// The request length of the longer default loads, in bytes.
const LONG_BYTES: u32 = 64 << 10;

/// Returns the loads: first the user's own load, if any, then the default ones.
fn loads(
    options: &Options,
    device: &Device,
    writable: Option<Part>,
) -> Result<Vec<(Load, bool)>, Failure> {
    let load = |direction, block_bytes, depth, random, durable| Load {
        direction,
        block_bytes,
        depth,
        sessions: 1,
        random,
        durable,
    };
    let (read, write) = (Direction::Read, Direction::Write);
    let mut usual = vec![
        load(read, LONG_BYTES, 32, false, false),
        load(read, 4 << 10, 1, true, false),
        load(read, 4 << 10, 32, true, false),
    ];
    if writable.is_some() {
        usual.push(load(write, LONG_BYTES, 32, false, false));
        usual.push(load(write, 4 << 10, 1, true, false));
        usual.push(load(write, 4 << 10, 1, true, true));
    }
    let geometry = device.geometry();
    let block = geometry.block_size.bytes();
    let fits = |load: &Load| {
        let part = if load.direction == read {
            Some(Part::whole(geometry))
        } else {
            writable
        };
        let room = part.map_or(0, |part| part.bytes);
        load.block_bytes.is_multiple_of(block) && u64::from(load.block_bytes) <= room
    };
    if let Some(own) = options.own.filter(|own| !fits(own)) {
        return Err(Failure::refused(format!(
            "requests of {} bytes are not possible on the storage, which has blocks of {block} bytes and {} \
             bytes in total",
            own.block_bytes,
            geometry.bytes()
        )));
    }
    let others = usual
        .into_iter()
        .filter(|load| fits(load) && Some(*load) != options.own);
    Ok(options
        .own
        .into_iter()
        .map(|own| (own, true))
        .chain(others.map(|load| (load, false)))
        .collect())
}

/// Returns the properties of the LUN or export, as reported by the server.
async fn storage(device: &Device) -> Storage {
    const CACHING: u8 = 0x08;
    let (geometry, profile) = (device.geometry(), device.profile());
    let (mut tells, mut product, mut has_cache) = (true, None, profile.volatile_cache);
    if let Some(lun) = device.lun() {
        let unit = lun.unit();
        has_cache = lun.reports_volatile_cache();
        // A LUN without this mode page reports no cache, but may have one.
        tells = has_cache
            || unit
                .mode_sense(CACHING, 0, ModeValues::Current)
                .await
                .is_ok();
        product = unit.inquiry().await.ok().map(|inquiry| {
            foreign::printable(&format!("{} {}", inquiry.vendor, inquiry.product))
                .trim()
                .to_owned()
        });
    }
    Storage {
        bytes: geometry.bytes(),
        block_bytes: geometry.block_size.bytes(),
        physical_block_bytes: u32::try_from(physical_block_bytes(geometry)).unwrap_or(u32::MAX),
        read_only: profile.read_only,
        write_cache: tells.then_some(has_cache),
        product: product.filter(|product| !product.is_empty()),
    }
}

/// Returns a note if the target is a process of this machine whose CPU time we are not permitted to read.
fn hidden_server(connections: &[ConnectionStatistics], server: Option<&Server>) -> Option<Fact> {
    let is_here = connections
        .first()
        .is_some_and(|first| first.peer.ip().is_loopback());
    let may_look = rustix::process::geteuid().is_root();
    (server.is_none() && is_here && !may_look).then(|| Fact {
        group: Group::Storage,
        name: "server's CPU time".to_owned(),
        value: "unknown: only root can see which process has the other end of a connection"
            .to_owned(),
        better: None,
    })
}

async fn facts(subject: &Subject, device: &Device) -> Result<Facts, Failure> {
    let unit = device.lun().map(|lun| lun.unit());
    Ok(environment::facts(&subject.location()?, &**device, unit.as_ref()).await)
}
