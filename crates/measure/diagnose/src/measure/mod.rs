//! Collects the evidence for a diagnosis, from any vendor's target or NBD server, without software on the
//! server.
//!
//! ```text
//!   Options ── way ── long_packets ──► course ──► Evidence ──► diagnose
//!               ▲                       │   │
//!               │ reopened if lost      │   └── load: rounds of requests, with all clocks and counters
//!               └───────────────────────┴────── ladder: probes alone, in random order, between the rounds
//! ```
//!
//! The LUN is not modified unless writing is allowed. The only task management function used is ABORT TASK
//! for a hanging command, because others also use the LUN. If a target does not support a value, or reports
//! an implausible one, the value is unknown, and the measurement continues without it.
//!
//! Reading order: `course` (the sequence), `ladder` and `probe` (single requests), `load` (concurrent
//! requests), `Pace` (their duration), `way` (the session), `device` (differences between iSCSI and NBD),
//! `confirm` (tests of predicted gains).

mod confirm;
mod course;
mod device;
mod ladder;
mod load;
mod places;
mod probe;
mod way;

use std::fmt;
use std::time::Duration;

use backends::location::Location;
use backends::{Failure, nbd, remote};
use bench::Extent;
use disk_contents::Consent;
use environment::server::Server;
use iscsi_client::Url;
use model::Load;

pub use confirm::confirm;
pub use course::evidence;
use load::Times;

/// Options of a diagnosis.
#[derive(Clone, Copy)]
pub struct Options {
    /// Whether to take about twelve seconds instead of forty.
    pub quick: bool,
    /// The approximate total time in seconds, if specified.
    pub seconds: Option<f64>,
    /// The load that the user specified, if any.
    pub own: Option<Load>,
    /// The part that may be overwritten; `None` forbids writing.
    pub allow_write: Option<Extent>,
    /// How the user gives consent to overwrite existing content.
    pub consent: Consent<'static>,
    /// The rated speed of the link in bits per second, if the user specified it.
    pub expected_link_bits_per_s: Option<f64>,
    /// The seed of offsets, data and order.
    pub seed: u64,
}

/// An observer of the progress.
pub trait Progress {
    /// The number of steps has been determined.
    fn of(&self, steps: usize);

    /// This step starts.
    fn begins(&self, what: &str);

    /// The diagnosis has ended.
    fn ended(&self);
}

/// An observer without output.
impl Progress for () {
    fn of(&self, _: usize) {}
    fn begins(&self, _: &str) {}
    fn ended(&self) {}
}

// The duration of a diagnosis: long enough for a useful result, and limited whatever a target does.

/// The times of one diagnosis.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Number of rounds of each load. A turn of the ladder precedes each round.
    rounds: u32,
    /// The time of a turn of the ladder, if all probes fit into this time.
    turn: Duration,
    /// The maximum total time of one rung of the ladder.
    share: Duration,
    /// The timeout of requests that access a disk.
    patience: Duration,
    /// The time after which no further round starts.
    most: Duration,
    without_disk: Duration,
    /// The total time of all rounds of all loads. It is longer if the path is long or the disk is slow.
    loads: Duration,
    warm_up: Duration,
    /// The minimum duration of a round.
    counted_min: Duration,
}

/// The default duration of a diagnosis.
const FULL_S: f64 = 40.0;
/// The duration with `--quick`.
const QUICK_S: f64 = 12.0;
/// Minimum number of rounds, needed for a useful interval of the median.
const ROUNDS_MIN: u32 = 3;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Pace {
    /// Creates the pace of a diagnosis that takes about the given time, or by default about forty seconds, or
    /// twelve if it is quick.
    fn new(quick: bool, seconds: Option<f64>) -> Pace {
        let seconds = seconds.unwrap_or(if quick { QUICK_S } else { FULL_S });
        let share = |share: f64| Duration::from_secs_f64(seconds * share);
        Pace {
            rounds: if seconds < FULL_S / 2.0 { 4 } else { 6 },
            turn: share(0.045),
            share: share(0.1),
            patience: share(0.4).clamp(ms(1000), ms(10_000)),
            without_disk: share(0.2).clamp(ms(500), ms(2000)),
            most: share(3.0) + ms(10_000),
            loads: share(0.5),
            warm_up: share(0.008).clamp(ms(10), ms(250)),
            counted_min: share(0.025).min(ms(300)),
        }
    }

    /// Returns the timeout of requests without a disk access, on a path with this round trip. By default, it
    /// is at least twice TCP's initial retransmission timeout (RFC 6298: one second), so that a single loss
    /// does not count as a blocked path.
    fn patience_without_disk(&self, round_trip: Duration) -> Duration {
        (self.without_disk + 20 * round_trip).min(ms(8000))
    }

    /// Returns the number and duration of the rounds for this number of loads. `request` is the time of the
    /// slowest single request.
    ///
    /// The warm-up covers twenty round trips, up to two seconds. A connection starts with ten segments and
    /// doubles them in each round trip (RFC 5681, RFC 6928), and the windows of both ends follow, so this
    /// fills any path.
    fn rounds(&self, loads: usize, round_trip: Duration, request: Duration) -> (u32, Times) {
        let loads = loads.max(1) as u32;
        let each = (self.loads / (self.rounds * loads)).clamp(self.counted_min, ms(1500));
        let counted = each
            .max(10 * round_trip)
            .max(4 * request)
            .min(ms(6000).max(each));
        let warm_up = self.warm_up.max(20 * round_trip).max(request).min(ms(2000));
        // If rounds are long, there are fewer of them.
        let fitting = (4 * self.loads).as_secs_f64() / ((warm_up + counted) * loads).as_secs_f64();
        (
            (fitting as u32).clamp(ROUNDS_MIN, self.rounds),
            Times { warm_up, counted },
        )
    }
}

// The storage under diagnosis: a LUN over iSCSI, or an export over NBD.

/// The LUN or export under diagnosis.
#[derive(Clone)]
pub enum Subject {
    /// A LUN of an iSCSI target.
    Lun(Box<Url>),
    /// An export of an NBD server.
    Export(Box<nbd_client::Url>),
}

impl Subject {
    /// Parses a URL. Finds the secrets, and prompts for them if necessary.
    ///
    /// # Errors
    /// The URL is invalid, or a secret is missing.
    pub fn parse(text: &str) -> Result<Subject, Failure> {
        if !nbd::is_url(text) {
            return Ok(Subject::Lun(Box::new(remote::url(text)?)));
        }
        // Parse the URL as a volume, because a volume's errors show their position in the text.
        let spec = backends::parse(text).map_err(Failure::refused)?;
        let url = nbd::url_of(&spec)
            .ok_or_else(|| Failure::refused(format!("{text} is not an NBD export")))?;
        Ok(Subject::Export(Box::new(url)))
    }

    /// Returns the storage with a changed key. On failure, returns the reason.
    fn with(&self, key: &str, value: &str) -> Result<Subject, String> {
        let mut changed = self.clone();
        let wrong = |why: &dyn fmt::Display| format!("{key}={value}: {why}");
        match &mut changed {
            Subject::Lun(url) => url
                .settings
                .set(key, value)
                .map_err(|error| wrong(&error))?,
            Subject::Export(url) => match (key, value, value.parse()) {
                ("connections", _, Ok(count)) => url.options.connections = count,
                ("tls", "off", _) => url.tls = None,
                _ => return Err(wrong(&"this change does not apply to an NBD session")),
            },
        }
        Ok(changed)
    }

    /// Returns the storage as a location for other commands.
    fn location(&self) -> Result<Location, Failure> {
        match self {
            Subject::Lun(url) => Ok(Location::Lun(url.clone())),
            Subject::Export(url) => {
                // Omit the keys of the URL: the facts do not depend on them.
                let text = nbd_client::Url {
                    tls: None,
                    ..(**url).clone()
                }
                .to_string();
                Ok(Location::Volume(
                    backends::parse(&text).map_err(Failure::refused)?,
                ))
            }
        }
    }

    /// Returns the process that serves the export, if it runs on this machine.
    fn server(&self) -> Option<Server> {
        let Subject::Export(url) = self else {
            return None;
        };
        match &url.socket {
            Some(socket) => Server::on_socket(socket),
            None => Server::connected(&url.host, url.port),
        }
    }

    /// Whether the path is a Unix socket.
    fn is_local(&self) -> bool {
        matches!(self, Subject::Export(url) if url.socket.is_some())
    }

    /// Whether the session uses TLS.
    fn is_encrypted(&self) -> bool {
        matches!(self, Subject::Export(url) if url.tls.is_some())
    }
}

/// Formats the storage without the user name, which is confidential, and without keys.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Lun(url) => url.fmt(f),
            Subject::Export(url) => url.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(pace: Pace, loads: usize, round_trip: Duration, request: Duration) -> f64 {
        let (rounds, times) = pace.rounds(loads, round_trip, request);
        assert!((ROUNDS_MIN..=pace.rounds).contains(&rounds));
        let all =
            (times.warm_up + times.counted) * rounds * loads as u32 + pace.turn * (rounds + 1);
        all.as_secs_f64()
    }

    #[test]
    fn it_takes_as_long_as_it_says_on_a_lan() {
        let (round_trip, request) = (Duration::from_micros(200), Duration::from_micros(300));
        let lan = |quick, said, loads| seconds(Pace::new(quick, said), loads, round_trip, request);
        assert!(
            (8.0..13.0).contains(&lan(true, None, 3)),
            "{}",
            lan(true, None, 3)
        );
        assert!(
            (30.0..42.0).contains(&lan(false, None, 3)),
            "{}",
            lan(false, None, 3)
        );
        assert!(
            (30.0..50.0).contains(&lan(false, None, 6)),
            "{}",
            lan(false, None, 6)
        );
        assert!(
            lan(false, Some(1.0), 6) < 1.5,
            "{}",
            lan(false, Some(1.0), 6)
        );
    }

    #[test]
    fn long_ways_and_slow_disks_take_longer_and_not_for_ever() {
        let (quick, full) = (Pace::new(true, None), Pace::new(false, None));
        assert!(seconds(quick, 3, ms(50), ms(50)) < 25.0);
        assert!(seconds(full, 6, ms(50), ms(50)) < 75.0);
        assert!(seconds(quick, 3, ms(1), ms(5000)) < 80.0);
    }
}
