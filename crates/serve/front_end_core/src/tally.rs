//! What front ends count for monitoring: commands of each volume with their durations and failures, logins, connections that
//! ended, task management, and the traffic of each host.
//!
//! A front end has a [`CoreTally`] on each core. Everything is counted on the thread of that core, without atomics, and read
//! there on request ([`crate::CoreFrontEnd::statistics`]). The path of a command does one thing for it,
//! [`VolumeTally::record`]; everything else is counted where something is out of the ordinary.
//!
//! Counts are bounded whatever hosts do: they are kept by targets and volumes that are served, by words of the front end's,
//! and by the names of at most [`HOSTS_MAX`] hosts, all later ones under one name ([`OTHERS`]).

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use volume::Volume;

/// What a command does, as it is counted.
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
    /// Has the server copy.
    ExtendedCopy,
    /// Any other.
    Other,
}

impl Operation {
    /// All of them, in the order of their numbers.
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

    /// The name that monitoring has for it.
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

/// Classes of durations: up to 4 µs, 8 µs, and so on, each twice as long, to [`Durations::bound`] of the last but one, 16.8 s;
/// then everything longer.
pub const CLASSES: usize = 24;
/// The first class ends at 2^FIRST_BITS µs.
const FIRST_BITS: u32 = 2;

/// Durations of commands, counted by class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// How many there were of each class.
    pub counts: [u64; CLASSES],
    /// All of them together.
    pub sum: Duration,
}

impl Durations {
    /// The longest duration of a class; the last has none.
    pub fn bound(class: usize) -> Option<Duration> {
        (class + 1 < CLASSES).then(|| Duration::from_micros(1 << (class as u32 + FIRST_BITS)))
    }

    /// Adds others.
    pub fn add(&mut self, others: &Durations) {
        self.counts.iter_mut().zip(others.counts).for_each(|(count, more)| *count += more);
        self.sum += others.sum;
    }
}

/// The same while they are counted.
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
        self.nanoseconds.set(self.nanoseconds.get().wrapping_add(nanoseconds));
    }

    fn durations(&self) -> Durations {
        let counts = std::array::from_fn(|class| self.counts[class].get());
        Durations { counts, sum: Duration::from_nanos(self.nanoseconds.get()) }
    }
}

/// How long commands took that were taken in at one time and answered at another. A round answers many of them: what two
/// instants are apart takes longer to find than to compare them with those of the command before.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    begin: Instant,
    end: Instant,
    class: usize,
    nanoseconds: u64,
}

impl Span {
    /// From one to the other.
    pub fn new(begin: Instant, end: Instant) -> Span {
        let nanoseconds = nanoseconds(end.saturating_duration_since(begin));
        Span { begin, end, class: class(nanoseconds), nanoseconds }
    }

    /// Between these.
    #[inline]
    pub fn to(self, begin: Instant, end: Instant) -> Span {
        if self.begin == begin && self.end == end { self } else { Span::new(begin, end) }
    }
}

/// 584 years fit.
fn nanoseconds(time: Duration) -> u64 {
    time.as_secs().wrapping_mul(1_000_000_000).wrapping_add(time.subsec_nanos().into())
}

/// The class of a duration: a bound belongs to the class that it ends.
#[inline]
fn class(nanoseconds: u64) -> usize {
    let microseconds = nanoseconds.saturating_sub(1) / 1000;
    ((u64::BITS - (microseconds >> FIRST_BITS).leading_zeros()) as usize).min(CLASSES - 1)
}

/// By [`Operation`]; made when the first of a kind ends.
type ByOperation = [OnceCell<Box<Counting>>; Operation::ALL.len()];

/// Counts of one volume on one core.
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
    /// A command has its answer, all of which is on its way. The span began when the core took it in.
    #[inline]
    pub fn record(&self, operation: Operation, span: Span) {
        self.durations[operation as usize].get_or_init(Box::default).add(span.class, span.nanoseconds);
    }

    /// A command has its answer after the device had its requests for so long, all together.
    pub fn record_device(&self, operation: Operation, time: Duration) {
        let nanoseconds = nanoseconds(time);
        self.device[operation as usize].get_or_init(Box::default).add(class(nanoseconds), nanoseconds);
    }

    /// So many bytes were read of it and written to it. Front ends whose logical units count that need not tell.
    pub fn moved(&self, read_bytes: u64, written_bytes: u64) {
        self.read_bytes.set(self.read_bytes.get() + read_bytes);
        self.written_bytes.set(self.written_bytes.get() + written_bytes);
    }

    /// A command waits for the device.
    pub fn note_wait(&self) {
        self.waits.set(self.waits.get() + 1);
    }

    /// A command was answered with an error of this kind, a word of the front end's.
    pub fn failed(&self, operation: Operation, kind: &'static str) {
        *self.failures.borrow_mut().entry((operation, kind)).or_default() += 1;
    }
}

/// A volume and what is counted of it.
type TalliedVolume = (Weak<Volume>, Rc<VolumeTally>);

/// What is counted by target and by a word of the front end's. `daemon::metrics` has a family for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counted {
    /// Logins that have ended, by their result. Without a target: discovery, or a target that is not served.
    Login,
    /// Connections of sessions that have ended, by reason. Without a target: discovery.
    ConnectionClosed,
    /// Task management functions that were asked for, by function.
    TaskManagement,
    /// Unit attentions that were reported, by kind.
    UnitAttention,
    /// Digests that did not match, by what they were of: a header, or data.
    DigestError,
    /// Frames of a protocol of datagrams, by what became of them, without targets. Not counted by a [`CoreTally`].
    Frame,
}

/// How often something has happened, by target (empty: none) and word.
pub type WordCounts = BTreeMap<(Counted, String, &'static str), u64>;

/// Counts of one front end on one core.
#[derive(Default)]
pub struct CoreTally {
    /// By address, which no other volume has as long as there is a `Weak` to it.
    volumes: RefCell<BTreeMap<usize, TalliedVolume>>,
    counts: RefCell<WordCounts>,
    /// Of sessions that have ended, by target and host.
    traffic: RefCell<BTreeMap<(String, Arc<str>), Traffic>>,
}

impl CoreTally {
    /// The counts of a volume.
    pub fn volume(&self, volume: &Arc<Volume>) -> Rc<VolumeTally> {
        let mut volumes = self.volumes.borrow_mut();
        let (_, tally) = volumes
            .entry(Arc::as_ptr(volume) as usize)
            .or_insert_with(|| (Arc::downgrade(volume), Rc::default()));
        Rc::clone(tally)
    }

    /// What is counted of volumes and targets that are not served any more is forgotten.
    pub fn keep_served(&self, is_served: impl Fn(&str) -> bool) {
        self.volumes.borrow_mut().retain(|_, (volume, _)| volume.strong_count() > 0);
        self.counts.borrow_mut().retain(|(_, target, _), _| target.is_empty() || is_served(target));
        self.traffic.borrow_mut().retain(|(target, _), _| is_served(target));
    }

    /// Counts one more. `target` is one that is served.
    pub fn note(&self, counted: Counted, target: Option<&str>, word: &'static str) {
        let key = (counted, target.unwrap_or_default().to_owned(), word);
        *self.counts.borrow_mut().entry(key).or_default() += 1;
    }

    /// A session has ended.
    pub fn session_ended(&self, target: &str, host: &Arc<str>, traffic: Traffic) {
        let mut sums = self.traffic.borrow_mut();
        let sum = sums.entry((target.to_owned(), Arc::clone(host))).or_default();
        *sum = sum.plus(traffic);
    }
}

/// Hosts that are counted by name, as long as the server runs. Each is a label in a time series of every monitoring system
/// that asks, for as long as that keeps its data.
pub const HOSTS_MAX: usize = 256;
/// The name under which further hosts are counted.
pub const OTHERS: &str = "(others)";

/// The names under which hosts are counted.
#[derive(Debug, Default)]
pub struct HostNames {
    // Not a `block::Lock`: it is held for a lookup, and is no place where a simulation need try another order.
    known: Mutex<BTreeMap<String, Arc<str>>>,
}

impl HostNames {
    /// The name under which a host is counted.
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

/// What a host has moved.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    /// Commands begun.
    pub commands: u64,
    /// Data that it has read, in bytes.
    pub read_bytes: u64,
    /// Data of its writes, in bytes: blocks, and no parameters.
    pub written_bytes: u64,
    /// How often its commands in flight were as many as it may have.
    pub window_full: u64,
}

impl Traffic {
    /// Both sums together.
    pub fn plus(self, other: Traffic) -> Traffic {
        Traffic {
            commands: self.commands + other.commands,
            read_bytes: self.read_bytes + other.read_bytes,
            written_bytes: self.written_bytes + other.written_bytes,
            window_full: self.window_full + other.window_full,
        }
    }
}

/// A session now.
#[derive(Clone, Debug)]
pub struct SessionCounts {
    /// What it uses; `None` is a session that only asks what there is.
    pub target: Option<String>,
    /// The name under which its host is counted ([`HostNames::label`]).
    pub host: Arc<str>,
    /// Its connections.
    pub connections: u64,
    /// What it has moved.
    pub traffic: Traffic,
}

/// What one front end has counted on one core, and what is under way there.
#[derive(Clone, Debug, Default)]
pub struct CoreStatistics {
    /// Of each volume that a session of this core uses or used.
    pub volumes: Vec<VolumeStatistics>,
    /// By target and word.
    pub counts: WordCounts,
    /// By target and host.
    pub hosts: Vec<HostStatistics>,
    /// Sessions now that only ask what there is.
    pub discovery_sessions: u64,
}

/// Counts of a volume on one core.
#[derive(Clone, Debug)]
pub struct VolumeStatistics {
    /// Which volume.
    pub volume: Weak<Volume>,
    /// How long commands took, from when they were taken in until their answers were on their way.
    pub durations: Vec<(Operation, Durations)>,
    /// For how long the device had the requests of those that waited for it.
    pub device: Vec<(Operation, Durations)>,
    /// Data that was read of it, in bytes. A front end that counts for all cores at once tells it on the first.
    pub read_bytes: u64,
    /// Data that was written to it, in bytes.
    pub written_bytes: u64,
    /// Commands that neither memory nor the page cache could carry out at once.
    pub waits: u64,
    /// Commands that were answered with an error, by its kind.
    pub failures: Vec<(Operation, &'static str, u64)>,
    /// Commands now.
    pub in_flight: u64,
}

/// What a host has done at a target.
#[derive(Clone, Debug)]
pub struct HostStatistics {
    /// The target's name.
    pub target: String,
    /// The host's name, or [`OTHERS`].
    pub host: Arc<str>,
    /// Its sessions now.
    pub sessions: u64,
    /// Their connections.
    pub connections: u64,
    /// What all its sessions have moved, those that have ended, too.
    pub traffic: Traffic,
}

impl CoreTally {
    /// What was counted, with the sessions that there are now. Commands in flight are for the caller to add.
    pub fn statistics(&self, sessions: impl Iterator<Item = SessionCounts>) -> CoreStatistics {
        let ended = self.traffic.borrow();
        let mut hosts: BTreeMap<(String, Arc<str>), (u64, u64, Traffic)> =
            ended.iter().map(|(key, traffic)| (key.clone(), (0, 0, *traffic))).collect();
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
            volumes: self.volumes.borrow().values().map(|(volume, tally)| tally.statistics(volume)).collect(),
            counts: self.counts.borrow().clone(),
            hosts: hosts.into_iter().map(host).collect(),
            discovery_sessions,
        }
    }
}

impl VolumeTally {
    fn statistics(&self, volume: &Weak<Volume>) -> VolumeStatistics {
        let counted = |times: &ByOperation| -> Vec<(Operation, Durations)> {
            let counting =
                |operation: Operation| times[operation as usize].get().map(|it| (operation, it.durations()));
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
            failures: failures.iter().map(|((operation, kind), count)| (*operation, *kind, *count)).collect(),
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
        tally.record(Operation::Flush, span.to(begin, begin + Duration::from_secs(60)));
        let counted = tally.statistics(&Weak::new()).durations;
        let [(Operation::Read, reads), (Operation::Flush, flushes)] = &counted[..] else {
            panic!("{counted:?}")
        };
        assert_eq!((reads.counts[0], reads.counts[1], reads.counts[8]), (3, 1, 1));
        assert_eq!(reads.sum, Duration::from_micros(1014));
        assert_eq!((flushes.counts[CLASSES - 1], flushes.sum), (1, Duration::from_secs(60)));
    }

    #[test]
    fn operations_are_in_the_order_of_their_numbers() {
        assert!((0..).zip(Operation::ALL).all(|(at, operation)| operation as usize == at));
    }

    #[test]
    fn random_names_of_hosts_are_counted_under_one() {
        let names = HostNames::default();
        for number in 0..10_000 {
            names.label(&format!("iqn.2026-01.com.example:{number}"));
        }
        assert_eq!(&*names.label("iqn.2026-01.com.example:7"), "iqn.2026-01.com.example:7");
        assert_eq!(&*names.label("iqn.2026-01.com.example:9999"), OTHERS);
        assert_eq!(names.known.lock().expect("not poisoned").len(), HOSTS_MAX);
    }
}
