//! Statistics of front ends for monitoring: commands of each volume with their durations and failures,
//! logins, closed connections, task management, and the traffic of each host.
//!
//! A front end has a [`CoreTally`] on each core. Everything is counted on the thread of that core, without
//! atomics, and read on that thread on request ([`crate::CoreFrontEnd::statistics`]). The command path makes
//! only one call, [`VolumeTally::record`]; everything else is counted only on exceptional events.
//!
//! The memory for statistics is bounded, whatever hosts do: the keys are the targets and volumes served, the
//! front end's fixed words, and the names of at most [`HOSTS_MAX`] hosts. All later hosts share one name
//! ([`OTHERS`]).

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use volume::Volume;

/// The kind of a command, for statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Operation {
    /// Reads blocks.
    Read,
    /// Writes blocks.
    Write,
    /// Flushes acknowledged writes.
    Flush,
    /// Deallocates blocks.
    Unmap,
    /// Compares and writes.
    CompareAndWrite,
    /// Writes one block many times, or zeroes.
    WriteSame,
    /// Copies blocks within the server.
    ExtendedCopy,
    /// Any other operation.
    Other,
}

impl Operation {
    /// All operations, in numerical order.
    pub const ALL: [Operation; 8] = [
        Operation::Read,
        Operation::Write,
        Operation::Flush,
        Operation::Unmap,
        Operation::CompareAndWrite,
        Operation::WriteSame,
        Operation::ExtendedCopy,
        Operation::Other,
    ];

    /// The name for monitoring.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => "flush",
            Operation::Unmap => "unmap",
            Operation::CompareAndWrite => "caw",
            Operation::WriteSame => "write_same",
            Operation::ExtendedCopy => "xcopy",
            Operation::Other => "other",
        }
    }
}

/// Number of classes of durations. The first class ends at 4 µs, the next at 8 µs, and so on; each bound is
/// twice the previous one ([`Durations::bound`]). The second to last class ends at 16.8 s, and the last has
/// no upper bound.
pub const CLASSES: usize = 24;
/// The first class ends at 2^FIRST_BITS µs.
const FIRST_BITS: u32 = 2;

/// Durations of commands, counted by class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// Number of commands in each class.
    pub counts: [u64; CLASSES],
    /// Sum of all durations.
    pub sum: Duration,
}

impl Durations {
    /// Upper bound of a class; the last has none.
    pub fn bound(class: usize) -> Option<Duration> {
        (class + 1 < CLASSES).then(|| Duration::from_micros(1 << (class as u32 + FIRST_BITS)))
    }

    /// Adds other counts.
    pub fn add(&mut self, others: &Durations) {
        self.counts
            .iter_mut()
            .zip(others.counts)
            .for_each(|(count, more)| *count += more);
        self.sum += others.sum;
    }
}

/// [`Durations`] that can be updated through a shared reference.
#[derive(Default)]
struct Counting {
    counts: [Cell<u64>; CLASSES],
    nanoseconds: Cell<u64>,
}

impl Counting {
    #[inline]
    fn add(&self, class: usize, nanoseconds: u64) {
        let count = &self.counts[class];
        count.set(count.get() + 1);
        self.nanoseconds
            .set(self.nanoseconds.get().wrapping_add(nanoseconds));
    }

    fn durations(&self) -> Durations {
        let counts = std::array::from_fn(|class| self.counts[class].get());
        Durations {
            counts,
            sum: Duration::from_nanos(self.nanoseconds.get()),
        }
    }
}

/// The duration of commands that started and ended at two instants. One iteration of the reactor completes
/// many commands with the same two instants: comparing the instants with those of the previous command is
/// faster than computing the duration again.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    begin: Instant,
    end: Instant,
    class: usize,
    nanoseconds: u64,
}

impl Span {
    /// Creates a span between two instants.
    pub fn new(begin: Instant, end: Instant) -> Span {
        let nanoseconds = nanoseconds(end.saturating_duration_since(begin));
        Span {
            begin,
            end,
            class: class(nanoseconds),
            nanoseconds,
        }
    }

    /// Returns a span between two instants; reuses this one if they are the same.
    #[inline]
    pub fn to(self, begin: Instant, end: Instant) -> Span {
        if self.begin == begin && self.end == end {
            self
        } else {
            Span::new(begin, end)
        }
    }
}

/// Returns a duration in nanoseconds. 64 bits are sufficient for 584 years.
fn nanoseconds(time: Duration) -> u64 {
    time.as_secs()
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.subsec_nanos().into())
}

/// Returns the class of a duration. Upper bounds are inclusive.
#[inline]
fn class(nanoseconds: u64) -> usize {
    let microseconds = nanoseconds.saturating_sub(1) / 1000;
    let class =
        ((u64::BITS - (microseconds >> FIRST_BITS).leading_zeros()) as usize).min(CLASSES - 1);
    debug_assert!(
        Durations::bound(class).is_none_or(|bound| u128::from(nanoseconds) <= bound.as_nanos()),
        "a class holds no longer durations than its bound"
    );
    class
}

/// Indexed by [`Operation`]; each is allocated when the first command of its kind ends.
type ByOperation = [OnceCell<Box<Counting>>; Operation::ALL.len()];

/// Statistics of one volume on one core.
#[derive(Default)]
pub struct VolumeTally {
    durations: ByOperation,
    device: ByOperation,
    read_bytes: Cell<u64>,
    written_bytes: Cell<u64>,
    waits: Cell<u64>,
    failures: RefCell<BTreeMap<(Operation, &'static str), u64>>,
}

impl VolumeTally {
    /// Records a completed command whose whole reply has been queued. The span starts when the core received
    /// the command.
    #[inline]
    pub fn record(&self, operation: Operation, span: Span) {
        self.durations[operation as usize]
            .get_or_init(Box::default)
            .add(span.class, span.nanoseconds);
    }

    /// Records the total time that the device took for a command's requests.
    pub fn record_device(&self, operation: Operation, time: Duration) {
        let nanoseconds = nanoseconds(time);
        self.device[operation as usize]
            .get_or_init(Box::default)
            .add(class(nanoseconds), nanoseconds);
    }

    /// Adds bytes read from and written to the volume. Front ends whose logical units count these bytes do
    /// not call this.
    pub fn moved(&self, read_bytes: u64, written_bytes: u64) {
        self.read_bytes.set(self.read_bytes.get() + read_bytes);
        self.written_bytes
            .set(self.written_bytes.get() + written_bytes);
    }

    /// Records a command that waits for the device.
    pub fn note_wait(&self) {
        self.waits.set(self.waits.get() + 1);
    }

    /// Records a command that failed. `kind` is one of the front end's words for failures.
    pub fn failed(&self, operation: Operation, kind: &'static str) {
        *self
            .failures
            .borrow_mut()
            .entry((operation, kind))
            .or_default() += 1;
    }
}

/// A volume and its statistics.
type TalliedVolume = (Weak<Volume>, Rc<VolumeTally>);

/// Events counted by target and by one of the front end's words. `daemon::metrics` has a family for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counted {
    /// Completed logins, by result. Without a target: discovery, or a target that is not served.
    Login,
    /// Closed connections of sessions, by reason. Without a target: discovery.
    ConnectionClosed,
    /// Task management functions received, by function.
    TaskManagement,
    /// Unit attentions reported, by kind.
    UnitAttention,
    /// Digest errors, by the part that the digest covers: a header, or data.
    DigestError,
    /// Frames of a datagram protocol, by outcome, without targets. Not counted by a [`CoreTally`].
    Frame,
}

/// Event counts, by target (empty: none) and word.
pub type WordCounts = BTreeMap<(Counted, String, &'static str), u64>;

/// Statistics of one front end on one core.
#[derive(Default)]
pub struct CoreTally {
    /// Keyed by the memory address of the volume, which is unique as long as a `Weak` to the volume exists.
    volumes: RefCell<BTreeMap<usize, TalliedVolume>>,
    counts: RefCell<WordCounts>,
    /// Traffic of closed sessions, by target and host.
    traffic: RefCell<BTreeMap<(String, Arc<str>), Traffic>>,
}

impl CoreTally {
    /// Returns the statistics of a volume.
    pub fn volume(&self, volume: &Arc<Volume>) -> Rc<VolumeTally> {
        let mut volumes = self.volumes.borrow_mut();
        let (known, tally) = volumes
            .entry(Arc::as_ptr(volume) as usize)
            .or_insert_with(|| (Arc::downgrade(volume), Rc::default()));
        debug_assert!(
            std::ptr::eq(known.as_ptr(), Arc::as_ptr(volume)),
            "an address is that of one volume while it is counted"
        );
        Rc::clone(tally)
    }

    /// Removes the statistics of volumes and targets that are no longer served.
    pub fn keep_served(&self, is_served: impl Fn(&str) -> bool) {
        self.volumes
            .borrow_mut()
            .retain(|_, (volume, _)| volume.strong_count() > 0);
        self.counts
            .borrow_mut()
            .retain(|(_, target, _), _| target.is_empty() || is_served(target));
        self.traffic
            .borrow_mut()
            .retain(|(target, _), _| is_served(target));
    }

    /// Counts an event. `target` must be a target that is served.
    pub fn note(&self, counted: Counted, target: Option<&str>, word: &'static str) {
        let key = (counted, target.unwrap_or_default().to_owned(), word);
        *self.counts.borrow_mut().entry(key).or_default() += 1;
    }

    /// Records the end of a session.
    pub fn session_ended(&self, target: &str, host: &Arc<str>, traffic: Traffic) {
        let mut sums = self.traffic.borrow_mut();
        let sum = sums
            .entry((target.to_owned(), Arc::clone(host)))
            .or_default();
        *sum = sum.plus(traffic);
    }
}

/// Maximum number of hosts counted by name while the server runs. Each name is a label of a time series in
/// every monitoring system that scrapes the server, for as long as that system keeps its data.
pub const HOSTS_MAX: usize = 256;
/// The name under which further hosts are counted.
pub const OTHERS: &str = "(others)";

/// The labels under which hosts are counted.
#[derive(Debug, Default)]
pub struct HostNames {
    // This is not a `block::Lock`: the lock is held only for a lookup, so a simulation need not vary the
    // order of threads here.
    known: Mutex<BTreeMap<String, Arc<str>>>,
}

impl HostNames {
    /// Returns the label under which a host is counted.
    pub fn label(&self, host: &str) -> Arc<str> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = known.get(host) {
            return Arc::clone(name);
        }
        if known.len() == HOSTS_MAX {
            return OTHERS.into();
        }
        debug_assert!(known.len() < HOSTS_MAX);
        let name: Arc<str> = host.into();
        known.insert(host.to_owned(), Arc::clone(&name));
        name
    }
}

/// The traffic of a host.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    /// Commands started.
    pub commands: u64,
    /// Bytes read by the host.
    pub read_bytes: u64,
    /// Bytes of blocks written by the host, without parameter data.
    pub written_bytes: u64,
    /// Number of times the host's outstanding commands reached the maximum.
    pub window_full: u64,
}

impl Traffic {
    /// Returns the sum of this traffic and `other`.
    pub fn plus(self, other: Traffic) -> Traffic {
        Traffic {
            commands: self.commands + other.commands,
            read_bytes: self.read_bytes + other.read_bytes,
            written_bytes: self.written_bytes + other.written_bytes,
            window_full: self.window_full + other.window_full,
        }
    }
}

/// A current session.
#[derive(Clone, Debug)]
pub struct SessionCounts {
    /// The target that it uses; `None` for a discovery session.
    pub target: Option<String>,
    /// The label under which its host is counted ([`HostNames::label`]).
    pub host: Arc<str>,
    /// Number of its connections.
    pub connections: u64,
    /// Its traffic.
    pub traffic: Traffic,
}

/// The statistics of one front end on one core, including current values.
#[derive(Clone, Debug, Default)]
pub struct CoreStatistics {
    /// Statistics of each volume that a session of this core uses or has used.
    pub volumes: Vec<VolumeStatistics>,
    /// Event counts, by target and word.
    pub counts: WordCounts,
    /// Statistics of hosts, by target and host.
    pub hosts: Vec<HostStatistics>,
    /// Current discovery sessions.
    pub discovery_sessions: u64,
}

/// Statistics of a volume on one core.
#[derive(Clone, Debug)]
pub struct VolumeStatistics {
    /// The volume.
    pub volume: Weak<Volume>,
    /// Durations of commands, from their receipt until their replies were queued.
    pub durations: Vec<(Operation, Durations)>,
    /// Time spent in the device, for commands that waited for it.
    pub device: Vec<(Operation, Durations)>,
    /// Bytes read from the volume. A front end that counts for all cores together reports them on the first
    /// core.
    pub read_bytes: u64,
    /// Bytes written to the volume.
    pub written_bytes: u64,
    /// Commands that could not be completed immediately from memory or the page cache.
    pub waits: u64,
    /// Failed commands, by kind of error.
    pub failures: Vec<(Operation, &'static str, u64)>,
    /// Outstanding commands.
    pub in_flight: u64,
}

/// Statistics of a host at a target.
#[derive(Clone, Debug)]
pub struct HostStatistics {
    /// The target's name.
    pub target: String,
    /// The host's name, or [`OTHERS`].
    pub host: Arc<str>,
    /// Its current sessions.
    pub sessions: u64,
    /// Number of their connections.
    pub connections: u64,
    /// Traffic of all its sessions, including closed ones.
    pub traffic: Traffic,
}

impl CoreTally {
    /// Returns the statistics, including the current sessions. The caller must add outstanding commands.
    pub fn statistics(&self, sessions: impl Iterator<Item = SessionCounts>) -> CoreStatistics {
        let ended = self.traffic.borrow();
        let mut hosts: BTreeMap<(String, Arc<str>), (u64, u64, Traffic)> = ended
            .iter()
            .map(|(key, traffic)| (key.clone(), (0, 0, *traffic)))
            .collect();
        let mut discovery_sessions = 0;
        for session in sessions {
            let Some(target) = session.target else {
                discovery_sessions += 1;
                continue;
            };
            let (sessions, connections, traffic) = hosts.entry((target, session.host)).or_default();
            *sessions += 1;
            *connections += session.connections;
            *traffic = traffic.plus(session.traffic);
        }
        let host = |((target, host), (sessions, connections, traffic))| HostStatistics {
            target,
            host,
            sessions,
            connections,
            traffic,
        };
        CoreStatistics {
            volumes: self
                .volumes
                .borrow()
                .values()
                .map(|(volume, tally)| tally.statistics(volume))
                .collect(),
            counts: self.counts.borrow().clone(),
            hosts: hosts.into_iter().map(host).collect(),
            discovery_sessions,
        }
    }
}

impl VolumeTally {
    fn statistics(&self, volume: &Weak<Volume>) -> VolumeStatistics {
        let counted = |times: &ByOperation| -> Vec<(Operation, Durations)> {
            let counting = |operation: Operation| {
                times[operation as usize]
                    .get()
                    .map(|it| (operation, it.durations()))
            };
            Operation::ALL.into_iter().filter_map(counting).collect()
        };
        let failures = self.failures.borrow();
        VolumeStatistics {
            volume: Weak::clone(volume),
            durations: counted(&self.durations),
            device: counted(&self.device),
            read_bytes: self.read_bytes.get(),
            written_bytes: self.written_bytes.get(),
            waits: self.waits.get(),
            failures: failures
                .iter()
                .map(|((operation, kind), count)| (*operation, *kind, *count))
                .collect(),
            in_flight: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_the_class_that_it_ends() {
        for at in 0..CLASSES - 1 {
            let bound = Durations::bound(at).expect("a bound").as_nanos() as u64;
            assert_eq!((class(bound), class(bound + 1)), (at, at + 1), "{bound} ns");
        }
        assert_eq!(Durations::bound(0), Some(Duration::from_micros(4)));
        assert_eq!(Durations::bound(CLASSES - 1), None);
        assert_eq!((class(0), class(1), class(u64::MAX)), (0, 0, CLASSES - 1));
    }

    #[test]
    fn durations_are_counted_and_summed() {
        let tally = VolumeTally::default();
        let begin = Instant::now();
        let mut span = Span::new(begin, begin);
        for microseconds in [1, 4, 4, 5, 1000] {
            span = span.to(begin, begin + Duration::from_micros(microseconds));
            tally.record(Operation::Read, span);
        }
        tally.record(
            Operation::Flush,
            span.to(begin, begin + Duration::from_secs(60)),
        );
        let counted = tally.statistics(&Weak::new()).durations;
        let [(Operation::Read, reads), (Operation::Flush, flushes)] = &counted[..] else {
            panic!("{counted:?}")
        };
        assert_eq!(
            (reads.counts[0], reads.counts[1], reads.counts[8]),
            (3, 1, 1)
        );
        assert_eq!(reads.sum, Duration::from_micros(1014));
        assert_eq!(
            (flushes.counts[CLASSES - 1], flushes.sum),
            (1, Duration::from_secs(60))
        );
    }

    #[test]
    fn operations_are_in_the_order_of_their_numbers() {
        assert!(
            (0..)
                .zip(Operation::ALL)
                .all(|(at, operation)| operation as usize == at)
        );
    }

    #[test]
    fn random_names_of_hosts_are_counted_under_one() {
        let names = HostNames::default();
        for number in 0..10_000 {
            names.label(&format!("iqn.2026-01.com.example:{number}"));
        }
        assert_eq!(
            &*names.label("iqn.2026-01.com.example:7"),
            "iqn.2026-01.com.example:7"
        );
        assert_eq!(&*names.label("iqn.2026-01.com.example:9999"), OTHERS);
        assert_eq!(names.known.lock().expect("not poisoned").len(), HOSTS_MAX);
    }
}
