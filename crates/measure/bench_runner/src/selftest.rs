//! The parts of `linerate selftest`, on storage that this process serves: data integrity over every path
//! ([`check_integrity`]), the maximum TCP throughput of this machine ([`measure_ceiling`]), and a suite
//! ([`OwnStorage`]).

use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{io, thread};

use backends::location::Location;
use backends::{Failure, FailureKind, hyperscsi, nbd, remote};
use bench::plan::Suite;
use bench::raw::{Question, ask, serve};
use bench::record::{Limit, Record};
use bench::{RoundTrip, read_back, round_trip};
use block::{BlockDevice, Blocks, Extent};
use environment::server::Server;
use host::{Epoll, EpollOptions};
use iscsi_client::{Settings, Url};
use reactor::{ListenOptions, StreamOptions};

use crate::conductor::{Outcome, conduct};
use crate::crew::LocalCrew;
use crate::folder::{Folder, Keeper, write_report};
use crate::prepare::new_record;
use crate::storage::Storage;
use crate::view::View;

// Measures storage that this process itself serves, as `linerate selftest` does. Such storage needs no
// consent, its content does not have to be kept, and an earlier report may be replaced.

/// A LUN that this process serves, and the parameters of its measurement.
pub struct OwnStorage<'a> {
    /// The LUN.
    pub url: Url,
    /// Time for which clients poll for replies before they sleep.
    pub spin: Duration,
    /// The directory of the result.
    pub out: &'a Path,
    /// The known limits.
    pub limits: Vec<Limit>,
    /// The thread that serves the LUN.
    pub server: Server,
}

impl OwnStorage<'_> {
    /// Runs the suite until it is complete or `asked` to end, and writes the same files as `linerate bench
    /// --out`.
    ///
    /// # Errors
    /// Fails if the suite could not be completed. Failed requests are part of the record.
    pub async fn measure(
        self,
        suite: Suite,
        view: &mut dyn View,
        asked: &dyn Fn() -> bool,
    ) -> Result<Record, Failure> {
        let place = Location::Lun(Box::new(self.url));
        let storage = Storage::open(&place, true, None).await?;
        let environment = storage.facts(&place).await;
        let mut record = new_record(storage.subject.clone(), suite, environment, Vec::new());
        record.limits = self.limits;
        let source = storage.source.clone();
        storage.close().await;
        let mut keeper = Keeper::new(record, Some(Folder::replace(self.out)?))?;
        let crew = LocalCrew::new(source, self.spin).beside_its_server();
        let (outcome, _) = conduct(crew, &mut keeper, view, Some(self.server.into()), asked).await;
        let (record, folder, lost) = keeper.end();
        lost.map_or(Ok(()), Err)?;
        folder
            .iter()
            .try_for_each(|folder| write_report(folder, &record, &[]))?;
        match outcome? {
            Outcome::Complete => Ok(record),
            Outcome::Interrupted => Err(Failure::new(FailureKind::Interrupted, "interrupted")),
        }
    }
}

// Measures the maximum TCP throughput of this machine, with the same requests and replies as the cells of a
// suite, but without a protocol and without storage. A target is compared with this limit.

/// The duration of each measurement. The rate is steady after a few milliseconds.
const TIME: Duration = Duration::from_millis(100);
/// The maximum number of bytes per system call; each size is measured over a separate connection. The best
/// result counts, because a slower result has causes that are not limits: other load on the machine, or two
/// ends that waited for each other.
const CALLS_BYTES: [usize; 4] = [64 << 10, 256 << 10, 64 << 10, 256 << 10];

/// Measures the limits for all cells that only read or only write, one after the other. Returns a curve over
/// the request lengths for each direction and depth. The server's data is in `memory_bytes` of memory.
///
/// # Errors
/// Fails if the loopback interface does not work.
pub async fn measure_ceiling(
    suite: &Suite,
    memory_bytes: usize,
    options: EpollOptions,
    stream: &StreamOptions,
) -> Result<Vec<Limit>, Failure> {
    let mut questions: Vec<Question> = suite.cells().filter_map(Question::of_cell).collect();
    questions.sort_by_key(|question| {
        (
            question.direction as u8,
            question.depth,
            question.block_bytes,
        )
    });
    questions.dedup();
    let address = start(
        options,
        stream,
        CALLS_BYTES.len() * questions.len(),
        memory_bytes,
    )
    .map_err(|error| failed(&error))?;
    let mut limits: Vec<Limit> = Vec::new();
    for question in questions {
        let mut per_second = 0.0_f64;
        for call_bytes in CALLS_BYTES {
            let once = answered(address, stream, question, call_bytes)
                .await
                .map_err(|error| failed(&error))?;
            per_second = per_second.max(once);
        }
        let point = (
            question.block_bytes,
            per_second * f64::from(question.block_bytes),
        );
        match limits.last_mut().filter(|last| question.is_under(last)) {
            Some(curve) => curve.points.push(point),
            None => limits.push(question.limit(point)),
        }
    }
    limits
        .iter_mut()
        .for_each(|limit| raise_to_ceiling(&mut limit.points));
    Ok(limits)
}

/// Raises each point to the highest values of the curve: the highest request rate of any length, and the
/// highest byte rate. The result of a single length is not a limit: two ends that wait for each other in
/// lockstep can be slower than a target that does more work and waits less. For example, 64 KiB writes reach
/// 4.9 GB/s over plain TCP, and 7.7 GB/s with iSCSI.
fn raise_to_ceiling(points: &mut [(u32, f64)]) {
    let bytes = points.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let requests = points
        .iter()
        .map(|(block, rate)| rate / f64::from(*block))
        .fold(0.0, f64::max);
    points
        .iter_mut()
        .for_each(|(block, rate)| *rate = bytes.min(requests * f64::from(*block)));
}

fn failed(error: &io::Error) -> Failure {
    Failure::failed(format_args!(
        "cannot measure the TCP throughput of this machine: {error}"
    ))
}

/// Starts a thread that serves this number of connections, one after the other.
fn start(
    options: EpollOptions,
    stream: &StreamOptions,
    connections: usize,
    memory_bytes: usize,
) -> io::Result<SocketAddr> {
    let (tell, bound) = mpsc::channel();
    let stream = stream.clone();
    thread::Builder::new()
        .name("raw".to_owned())
        .spawn(move || match Epoll::shared(options) {
            Ok(world) => reactor::block_on(world, answer(stream, connections, memory_bytes, tell)),
            Err(error) => drop(tell.send(Err(error))),
        })?;
    bound
        .recv()
        .unwrap_or_else(|_| Err(io::Error::other("the selftest server did not start")))
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
        // The client may already have disconnected.
        let Ok(stream) = listener.try_accept() else {
            continue;
        };
        // A client disconnects while requests are outstanding, which is not a failure.
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

/// One path over which data is checked.
struct Way {
    name: &'static str,
    /// The settings of the path, as keys of a URL.
    settings: &'static [(&'static str, &'static str)],
}

const WAYS: &[Way] = &[
    Way {
        name: "immediate and unsolicited data",
        settings: &[],
    },
    Way {
        name: "immediate data only",
        settings: &[("initial-r2t", "yes")],
    },
    Way {
        name: "unsolicited data only",
        settings: &[("immediate-data", "no")],
    },
    Way {
        name: "no unsolicited data, bursts of 16 KiB, one R2T at a time",
        settings: &[
            ("immediate-data", "no"),
            ("initial-r2t", "yes"),
            ("max-burst", "16384"),
            ("first-burst", "16384"),
            ("max-outstanding-r2t", "1"),
        ],
    },
    Way {
        name: "segments of 4 KiB, bursts of 12 KiB, four R2Ts at a time",
        settings: &[
            ("max-segment", "4096"),
            ("first-burst", "8192"),
            ("max-burst", "12288"),
            ("max-outstanding-r2t", "4"),
        ],
    },
    Way {
        name: "header digests",
        settings: &[("header-digest", "crc32c")],
    },
    Way {
        name: "header and data digests",
        settings: &[("header-digest", "crc32c"), ("data-digest", "crc32c")],
    },
    Way {
        name: "data digests, no unsolicited data",
        settings: &[
            ("data-digest", "crc32c"),
            ("immediate-data", "no"),
            ("initial-r2t", "yes"),
        ],
    },
    Way {
        name: "four connections in one session",
        settings: &[("connections", "4")],
    },
    Way {
        name: "eight connections, both digests, bursts of 64 KiB",
        settings: &[
            ("connections", "8"),
            ("header-digest", "crc32c"),
            ("data-digest", "crc32c"),
            ("first-burst", "65536"),
            ("max-burst", "65536"),
        ],
    },
];

/// Lengths of requests in blocks of 512 bytes, each with the number of bytes to write: from one block to 1
/// MiB. They include odd lengths, to find off-by-one errors at the end of a burst.
const REQUESTS: &[(u64, u64)] = &[
    (1, 256 << 10),
    (3, 768 << 10),
    (8, 2 << 20),
    (33, 4 << 20),
    (128, 8 << 20),
    (513, 8 << 20),
    (2048, 16 << 20),
];

const DEPTH: u32 = 16;

/// Minimum size of the LUN.
pub const LUN_BYTES: u64 = 39 << 20;

/// Paths over NBD: the name, the options of the URL, and whether to use TLS.
const NBD_WAYS: &[(&str, &str, bool)] = &[
    ("NBD", "", false),
    ("NBD, four connections", "?connections=4", false),
    ("NBD over TLS 1.3, two connections", "?connections=2", true),
];

/// URLs of the same volume over other protocols, on a [target of this process](nbd::open_over_loopback_tls).
/// `None` if the target does not serve that protocol.
#[derive(Clone, Debug, Default)]
pub struct Others {
    /// The URL over NBD.
    pub nbd: Option<String>,
    /// The URL over HyperSCSI.
    pub hyperscsi: Option<String>,
}

/// Writes and reads back data over every path and over the other protocols. `share`, in (0, 1], is the share
/// of the data to check; at least one request of each length is checked. `tell` receives the name and result
/// of each path: the number of verified bytes, or the failure. Returns whether all data was intact.
///
/// # Errors
/// Fails if the LUN cannot be opened.
pub async fn check_integrity(
    url: &Url,
    others: &Others,
    share: f64,
    tell: &dyn Fn(&str, &Result<u64, bench::Failure>),
) -> Result<bool, Failure> {
    let (mut sound, mut generation) = (true, 0);
    for way in WAYS {
        generation += 1;
        let outcome = travel(&by(url, way.settings), share, generation, None).await?;
        sound &= outcome.is_ok();
        tell(way.name, &outcome);
    }
    let nbd_ways = others
        .nbd
        .iter()
        .flat_map(|export| NBD_WAYS.iter().map(move |way| (export, way)));
    for (export, (name, options, is_encrypted)) in nbd_ways {
        generation += 1;
        let url = nbd::Url::parse(&format!("{export}{options}")).map_err(Failure::failed)?;
        let device: Arc<dyn BlockDevice> = match is_encrypted {
            true => Arc::new(nbd::open_over_loopback_tls(&url).await?),
            false => Arc::new(nbd::open(&url).await?),
        };
        let outcome = made(&device, share, generation, None).await;
        sound &= outcome.is_ok();
        tell(name, &outcome);
    }
    if let Some(url) = &others.hyperscsi {
        generation += 1;
        let url = hyperscsi::Url::parse(url).map_err(Failure::failed)?;
        let device: Arc<dyn BlockDevice> = Arc::new(hyperscsi::open(&url).await?);
        let outcome = made(&device, share, generation, None).await;
        sound &= outcome.is_ok();
        tell("HyperSCSI over UDP", &outcome);
    }
    // Read all data that the last path wrote, over a new session and with a different request length.
    let outcome = travel(url, share, generation, Some(Blocks(100))).await?;
    tell("read again, over another session", &outcome);
    Ok(sound && outcome.is_ok())
}

fn by(url: &Url, settings: &[(&str, &str)]) -> Url {
    let mut url = url.clone();
    for (key, value) in settings {
        set(&mut url.settings, key, value);
    }
    url
}

fn set(settings: &mut Settings, key: &str, value: &str) {
    settings
        .set(key, value)
        .expect("the table above has keys and values that settings take");
}

/// Returns the number of verified bytes, or the failure. If `read` sets a request length, the data is only
/// read back.
async fn travel(
    url: &Url,
    share: f64,
    generation: u64,
    read: Option<Blocks>,
) -> Result<Result<u64, bench::Failure>, Failure> {
    let lun = remote::open(url).await?;
    let target = Arc::clone(lun.target());
    let device: Arc<dyn BlockDevice> = Arc::new(lun);
    let outcome = made(&device, share, generation, read).await;
    target.close().await;
    Ok(outcome)
}

async fn made(
    device: &Arc<dyn BlockDevice>,
    share: f64,
    generation: u64,
    read: Option<Blocks>,
) -> Result<u64, bench::Failure> {
    let mut outcome = Ok(0);
    for trip in trips(share, generation) {
        let made = match read {
            None => round_trip(device, trip).await,
            Some(request) => read_back(device, RoundTrip { request, ..trip }).await,
        };
        outcome =
            outcome.and_then(|bytes| made.map(|()| bytes + device.geometry().length(trip.extent)));
    }
    outcome
}

/// Returns the round trips, whose extents follow each other on the volume.
fn trips(share: f64, generation: u64) -> impl Iterator<Item = RoundTrip> {
    let mut lba = 0;
    REQUESTS.iter().map(move |&(request, bytes)| {
        let blocks = ((bytes / 512) as f64 * share).ceil() as u64;
        let extent = Extent::new(lba, blocks.clamp(request, bytes / 512));
        lba += extent.blocks.0;
        RoundTrip {
            extent,
            request: Blocks(request),
            depth: DEPTH,
            generation,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_of_one_direction_has_a_ceiling_of_its_own() {
        let suite = bench::suite::named("quick").expect("it is built in");
        let options = EpollOptions {
            spin: Duration::ZERO,
            ..EpollOptions::default()
        };
        let world = Epoll::shared(options).expect("an epoll set");
        let limits = reactor::block_on(
            world,
            measure_ceiling(&suite, 256 << 20, options, &StreamOptions::default()),
        );
        let limits = limits.expect("loopback carries bytes");
        for question in suite.cells().filter_map(Question::of_cell) {
            assert!(
                question.ceiling(&limits) > Some(0.0),
                "{question:?}: {limits:?}"
            );
        }
    }

    #[test]
    fn the_roof_is_as_many_requests_and_as_many_bytes_as_any_length_reached() {
        let mut points = [(1000, 5e6), (10_000, 20e6), (100_000, 100e6)];
        raise_to_ceiling(&mut points);
        assert_eq!(points, [(1000, 5e6), (10_000, 50e6), (100_000, 100e6)]);
    }

    #[test]
    fn every_way_is_one_that_settings_can_take() {
        for way in WAYS {
            way.settings
                .iter()
                .for_each(|(key, value)| set(&mut Settings::default(), key, value));
        }
    }

    #[test]
    fn all_trips_fit_on_the_volume_beside_each_other() {
        let trips: Vec<RoundTrip> = trips(1.0, 1).collect();
        assert!(
            trips
                .windows(2)
                .all(|two| !two[0].extent.overlaps(two[1].extent))
        );
        let end = trips
            .last()
            .and_then(|last| last.extent.end())
            .expect("there are trips");
        assert_eq!(end.0 * 512, LUN_BYTES);
    }

    #[test]
    fn a_small_share_still_has_a_request_of_each_length() {
        let blocks = |share| {
            crate::selftest::trips(share, 1)
                .map(|trip| trip.extent.blocks.0)
                .collect::<Vec<u64>>()
        };
        assert_eq!(blocks(0.1), [52, 154, 410, 820, 1639, 1639, 3277]);
        assert_eq!(
            blocks(1e-9),
            REQUESTS
                .iter()
                .map(|(request, _)| *request)
                .collect::<Vec<u64>>()
        );
    }
}
