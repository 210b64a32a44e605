//! The order of events: getting acquainted, looking for long packets that vanish, then rounds of the ladder and of the
//! loads in turn.

use std::sync::Arc;
use std::time::Duration;

use crate::{Evidence, Known, PathLayer, Storage, Timed};
use bench::record::{Fact, Group};
use block::BlockDevice as _;
use initiator::verbs::ModeValues;
use initiator::{ConnectionStatistics, RemoteLun, Url};
use iscsi::pdu::Cid;
use model::{Direction, Load};
use stats::Random;

use super::ladder::{Rungs, shuffle};
use super::load::{Running, Times};
use super::long_packets::{self, Found};
use super::pace::Pace;
use super::places::{Part, physical_block_bytes};
use super::probe::{Ground, Probe};
use super::way::{Way, told};
use super::{Options, Progress, keys, writing};
use backends::Failure;
use backends::location::Location;
use environment::link::LinkWatch;
use environment::server::Server;

/// Measures everything. Fails only if there is no session with the LUN at all, or something was asked for that cannot be.
pub async fn evidence(url: &Url, options: &Options, progress: &dyn Progress) -> Result<Evidence, Failure> {
    progress.begins("logging in");
    let mut way = Way::open(url).await?;
    let lun = way.lun().await.map_err(Failure::failed)?;
    let connections = connections(&lun).await;
    let link = LinkWatch::begin(connections.first());
    let part = Part::whole(lun.geometry());
    let writable = writing::part(&lun, url, options).await?;
    let loads = loads(options, &lun, writable)?;
    let (parameters, address) = (lun.target().parameters(), lun.target().nexus().address);
    let mut evidence = Evidence {
        place: url.to_string(),
        expected_link_bits_per_s: options.expected_link_bits_per_s,
        storage: storage(&lun).await,
        asked: keys::asked(&url.settings, &parameters),
        got: keys::got(&parameters),
        link: Known::Unknown(String::new()),
        connect: Known::Unknown(String::new()),
        paths: Vec::new(),
        long_packets: None,
        ladder: Rungs::new(&[], 0, false, Duration::ZERO, Duration::ZERO).ladder(),
        loads: Vec::new(),
        environment: facts(url, &lun).await,
    };
    let server = Server::serving(lun.target()).await;
    evidence.environment.0.extend(hidden_server(&connections, server.as_ref()));
    let mut ground = Ground::new(part, writable, options.seed, address, &url.settings);
    let pace = Pace::new(options.quick, options.seconds);
    let round_trip = round_trip(&lun, &mut ground).await;
    drop(lun);

    progress.begins("long packets");
    let cids: Vec<Cid> = connections.iter().map(|connection| connection.cid).collect();
    let ping_bytes = parameters.peer_max_recv_data_segment_length.min(8192);
    let patience = pace.patience_without_disk(round_trip);
    let Found { way, long_packets, unanswered_ping } =
        long_packets::look(way, &mut ground, &cids, ping_bytes, patience).await?;
    evidence.long_packets = long_packets;

    let rungs = Rungs::new(&cids, ping_bytes, writable.is_some(), pace.patience, pace.share);
    let mut course = Course { way, ground, rungs, pace, server, round_trip };
    if let Some(why) = unanswered_ping {
        course.rungs.leave_out_pings(&why);
    }
    let hopeless = evidence.long_packets.as_ref().filter(|lost| lost.works_bytes.is_none());
    let hopeless = hopeless.map(|lost| lost.lost.clone());
    if let Some(why) = &hopeless {
        course.rungs.leave_out_long(why);
    }
    course.run(&loads, hopeless.as_deref(), &mut evidence, progress).await;
    evidence.link = link.and_then(LinkWatch::end).map_or_else(Known::Unknown, Known::Measured);
    course.way.close().await;
    Ok(evidence)
}

/// All that changes while it is measured.
struct Course {
    way: Way,
    ground: Ground,
    rungs: Rungs,
    pace: Pace,
    server: Option<Server>,
    round_trip: Duration,
}

impl Course {
    /// Turns of the ladder, and rounds of the loads between them, unless these are hopeless.
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
        let mut running: Vec<Running> = running.collect();
        let mut random = Random::new(self.ground.random.next());
        progress.of(1);
        self.turn(progress).await;
        evidence.paths = self.paths().await;
        let (rounds, times) = self.pace.rounds(loads.len(), self.round_trip, self.request());
        progress.of(1 + rounds as usize * (loads.len() + 1));
        for round in 0..rounds {
            let mut order: Vec<&mut Running> = running.iter_mut().collect();
            shuffle(&mut order, &mut random);
            let is_late = round > 0 && reactor::now() - begun > self.pace.most;
            // The first time the windows of both ends have to grow to what the way holds.
            let warm_up = if round == 0 { times.warm_up.max(40 * self.round_trip) } else { times.warm_up };
            let times = Times { warm_up, ..times };
            for load in order {
                progress.begins(&super::load::described(load.load()));
                if load.goes_on() && !is_late {
                    let part = self.part(load.load().direction);
                    load.round(&mut self.way, part, self.server.as_ref(), times, random.next()).await;
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
            path.nop = self.nop_by(Cid(path.cid));
        }
    }

    async fn turn(&mut self, progress: &dyn Progress) {
        progress.begins("one thing at a time");
        if let Err(why) = self.rungs.ask(&mut self.way, &mut self.ground, self.pace.turn).await {
            self.rungs.end(&why);
        }
        progress.ended();
    }

    /// What one request takes, alone, where it takes longest: a long write may wait for many R2Ts.
    fn request(&self) -> Duration {
        let rungs =
            [Probe::CachedRead(LONG_BYTES), Probe::MediumRead, Probe::Write(LONG_BYTES), Probe::DurableWrite];
        rungs.into_iter().filter_map(|probe| self.rungs.median(probe)).max().unwrap_or_default()
    }

    fn part(&self, direction: Direction) -> Part {
        match direction {
            Direction::Read => self.ground.part,
            Direction::Write => self.ground.writable.unwrap_or(self.ground.part),
        }
    }

    /// NOPs by one connection: those by any, if it is the only one.
    fn nop_by(&self, cid: Cid) -> Known<Timed> {
        match self.rungs.known(Probe::NopBy(cid, 0)) {
            Known::Measured(timed) => Known::Measured(timed),
            Known::Unknown(_) if !self.rungs.has(Probe::NopBy(cid, 0)) => self.rungs.known(Probe::Nop),
            unknown => unknown,
        }
    }

    /// The session's connections, after the first turn and before the first load.
    async fn paths(&mut self) -> Vec<PathLayer> {
        let Ok(lun) = self.way.lun().await else { return Vec::new() };
        connections(&lun).await.iter().filter_map(path).collect()
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
        nop: Known::Unknown("it was not asked".to_owned()),
    })
}

async fn connections(lun: &RemoteLun) -> Vec<ConnectionStatistics> {
    told(lun).await.map(|told| told.connections).unwrap_or_default()
}

/// A first idea of how long the way is: the shortest of a few NOPs.
async fn round_trip(lun: &RemoteLun, ground: &mut Ground) -> Duration {
    const LONGEST: Duration = Duration::from_secs(4);
    let mut shortest = None;
    for _ in 0..5 {
        match Probe::Nop.ask(lun, ground, LONGEST).await {
            Ok(time) => shortest = Some(shortest.unwrap_or(time).min(time)),
            Err(_) => break,
        }
    }
    shortest.unwrap_or(Duration::from_millis(100))
}

/// The longer requests of the usual loads.
const LONG_BYTES: u32 = 64 << 10;

/// What is asked together: the person's own load first, then usual ones.
fn loads(options: &Options, lun: &RemoteLun, writable: Option<Part>) -> Result<Vec<(Load, bool)>, Failure> {
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
    let geometry = lun.geometry();
    let block = geometry.block_size.bytes();
    let fits = |load: &Load| {
        let part = if load.direction == read { Some(Part::whole(geometry)) } else { writable };
        let room = part.map_or(0, |part| part.bytes);
        load.block_bytes.is_multiple_of(block) && u64::from(load.block_bytes) <= room
    };
    if let Some(own) = options.own.filter(|own| !fits(own)) {
        return Err(Failure::refused(format!(
            "requests of {} bytes do not fit: the LUN has blocks of {block} bytes, and {} bytes of them",
            own.block_bytes,
            geometry.bytes()
        )));
    }
    let others = usual.into_iter().filter(|load| fits(load) && Some(*load) != options.own);
    Ok(options.own.into_iter().map(|own| (own, true)).chain(others.map(|load| (load, false))).collect())
}

/// The LUN, as it says of itself.
async fn storage(lun: &RemoteLun) -> Storage {
    const CACHING: u8 = 0x08;
    let (geometry, profile, unit) = (lun.geometry(), lun.profile(), lun.unit());
    // Without the page it says nothing, and a cache that it does not tell of may be there all the same.
    let tells = profile.volatile_cache || unit.mode_sense(CACHING, 0, ModeValues::Current).await.is_ok();
    let product = unit.inquiry().await.ok().map(|inquiry| {
        stats::printable(&format!("{} {}", inquiry.vendor, inquiry.product)).trim().to_owned()
    });
    Storage {
        bytes: geometry.bytes(),
        block_bytes: geometry.block_size.bytes(),
        physical_block_bytes: u32::try_from(physical_block_bytes(geometry)).unwrap_or(u32::MAX),
        read_only: profile.read_only,
        write_cache: tells.then_some(profile.volatile_cache),
        product: product.filter(|product| !product.is_empty()),
    }
}

/// That the target is a process of this machine whose CPU time we may not see, if it is one.
fn hidden_server(connections: &[ConnectionStatistics], server: Option<&Server>) -> Option<Fact> {
    let is_here = connections.first().is_some_and(|first| first.peer.ip().is_loopback());
    let may_look = rustix::process::geteuid().is_root();
    (server.is_none() && is_here && !may_look).then(|| Fact {
        group: Group::Storage,
        name: "target's CPU time".to_owned(),
        value: "not known: only root may see which process has the other end of a connection".to_owned(),
        better: None,
    })
}

async fn facts(url: &Url, lun: &Arc<RemoteLun>) -> bench::record::Facts {
    environment::facts(&Location::Lun(Box::new(url.clone())), &**lun, Some(&lun.unit())).await
}
