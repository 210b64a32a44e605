//! The counters of a core for monitoring: commands of each volume with their durations and failures, unit attentions,
//! logins, task management, ended connections, and the traffic of each initiator.
//!
//! Everything is counted on the thread of its core, without atomics, and read there on request ([`statistics`]). The path of a
//! command does one thing for it, [`VolumeTally::record`]; everything else is counted where something is out of the ordinary.
//!
//! Counts are bounded whatever initiators do: they are kept by targets and volumes that are served, by words of this file, and
//! by the names of at most [`INITIATORS_MAX`] initiators, all later ones under one name ([`OTHERS`]).

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use server::RunningCore;
use unit::{Reply, SenseKey, Status, asc};
use volume::Volume;

use crate::config::Config;
use crate::core::CoreSessions;
use crate::status::Traffic;

/// What a command does, as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Operation {
    /// READ (6), (10), (12), (16).
    Read,
    /// WRITE (6) to (16), WRITE AND VERIFY, WRITE ATOMIC.
    Write,
    /// SYNCHRONIZE CACHE.
    Flush,
    /// UNMAP.
    Unmap,
    /// COMPARE AND WRITE.
    CompareAndWrite,
    /// WRITE SAME.
    WriteSame,
    /// EXTENDED COPY.
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

    /// What a command of this operation code does.
    pub(crate) fn from_code(code: u8) -> Operation {
        BY_CODE[usize::from(code)]
    }
}

/// By operation code: a lookup costs less than comparisons.
const BY_CODE: [Operation; 256] = {
    let mut table = [Operation::Other; 256];
    let mut at = 0;
    while at < 256 {
        table[at] = match at {
            0x08 | 0x28 | 0x88 | 0xa8 => Operation::Read,
            0x0a | 0x2a | 0x8a | 0xaa | 0x2e | 0x8e | 0xae | 0x9c => Operation::Write,
            0x35 | 0x91 => Operation::Flush,
            0x42 => Operation::Unmap,
            0x89 => Operation::CompareAndWrite,
            0x41 | 0x93 => Operation::WriteSame,
            0x83 => Operation::ExtendedCopy,
            _ => Operation::Other,
        };
        at += 1;
    }
    table
};

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
    fn add(&self, span: Span) {
        let count = &self.counts[span.class];
        count.set(count.get() + 1);
        self.nanoseconds.set(self.nanoseconds.get().wrapping_add(span.nanoseconds));
    }

    fn durations(&self) -> Durations {
        let counts = std::array::from_fn(|class| self.counts[class].get());
        Durations { counts, sum: Duration::from_nanos(self.nanoseconds.get()) }
    }
}

/// How long commands took that were taken in at one time and answered at another. A round answers many of them: what two
/// instants are apart takes longer to find than to compare them with those of the command before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    begin: Instant,
    end: Instant,
    class: usize,
    nanoseconds: u64,
}

impl Span {
    pub(crate) fn new(begin: Instant, end: Instant) -> Span {
        let time = end.saturating_duration_since(begin);
        // 584 years fit.
        let nanoseconds = time.as_secs().wrapping_mul(1_000_000_000).wrapping_add(time.subsec_nanos().into());
        Span { begin, end, class: class(nanoseconds), nanoseconds }
    }

    /// Between these.
    #[inline]
    pub(crate) fn to(self, begin: Instant, end: Instant) -> Span {
        if self.begin == begin && self.end == end { self } else { Span::new(begin, end) }
    }
}

/// The class of a duration: a bound belongs to the class that it ends.
#[inline]
fn class(nanoseconds: u64) -> usize {
    let microseconds = nanoseconds.saturating_sub(1) / 1000;
    ((u64::BITS - (microseconds >> FIRST_BITS).leading_zeros()) as usize).min(CLASSES - 1)
}

/// Counts of one volume on one core.
#[derive(Default)]
pub(crate) struct VolumeTally {
    /// By [`Operation`]; made when the first of a kind ends.
    durations: [OnceCell<Box<Counting>>; Operation::ALL.len()],
    waits: Cell<u64>,
    failures: RefCell<BTreeMap<(Operation, &'static str), u64>>,
}

impl VolumeTally {
    /// A command has its answer, all of which is on its way. The span began when the core took it in.
    #[inline]
    pub(crate) fn record(&self, operation: Operation, span: Span) {
        self.durations[operation as usize].get_or_init(Box::default).add(span);
    }

    /// A command waits for the device.
    pub(crate) fn note_wait(&self) {
        self.waits.set(self.waits.get() + 1);
    }
}

/// A volume and what is counted of it.
type TalliedVolume = (Weak<Volume>, Rc<VolumeTally>);

/// Counts by target and by a word of this crate's.
type Words = RefCell<BTreeMap<(String, &'static str), u64>>;

/// Counts of one core.
#[derive(Default)]
pub(crate) struct CoreTally {
    /// By address, which no other volume has as long as there is a `Weak` to it.
    volumes: RefCell<BTreeMap<usize, TalliedVolume>>,
    logins: Words,
    closed: Words,
    task_management: Words,
    unit_attentions: Words,
    /// Of sessions that have ended, by target and initiator.
    traffic: RefCell<BTreeMap<(String, Arc<str>), Traffic>>,
}

impl CoreTally {
    /// The counts of a volume.
    pub(crate) fn volume(&self, volume: &Arc<Volume>) -> Rc<VolumeTally> {
        let mut volumes = self.volumes.borrow_mut();
        let (_, tally) = volumes
            .entry(Arc::as_ptr(volume) as usize)
            .or_insert_with(|| (Arc::downgrade(volume), Rc::default()));
        Rc::clone(tally)
    }

    /// What is counted of volumes and targets that are not served any more is forgotten.
    pub(crate) fn keep_served(&self, config: &Config) {
        self.volumes.borrow_mut().retain(|_, (volume, _)| volume.strong_count() > 0);
        let is_served = |target: &str| target.is_empty() || config.target(target).is_some();
        for words in [&self.logins, &self.closed, &self.task_management, &self.unit_attentions] {
            words.borrow_mut().retain(|(target, _), _| is_served(target));
        }
        self.traffic.borrow_mut().retain(|(target, _), _| is_served(target));
    }

    /// A login has ended so. `target` is one that is served.
    pub(crate) fn login(&self, target: Option<&str>, result: &'static str) {
        count(&self.logins, target.unwrap_or_default(), result);
    }

    /// A connection of a session has ended.
    pub(crate) fn connection_closed(&self, target: Option<&str>, reason: &'static str) {
        count(&self.closed, target.unwrap_or_default(), reason);
    }

    /// A task management function was asked for.
    pub(crate) fn task_management(&self, target: Option<&str>, function: &'static str) {
        count(&self.task_management, target.unwrap_or_default(), function);
    }

    /// A command was answered with something else than GOOD.
    pub(crate) fn failure(
        &self,
        target: Option<&str>,
        volume: Option<&VolumeTally>,
        operation: Operation,
        reply: &Reply,
    ) {
        match (failure(reply), volume) {
            (Failure::None, _) | (Failure::Of(_), None) => {}
            (Failure::UnitAttention(kind), _) => {
                count(&self.unit_attentions, target.unwrap_or_default(), kind);
            }
            (Failure::Of(kind), Some(volume)) => {
                *volume.failures.borrow_mut().entry((operation, kind)).or_default() += 1;
            }
        }
    }

    /// A session has ended.
    pub(crate) fn session_ended(&self, target: &str, initiator: &Arc<str>, traffic: Traffic) {
        let mut sums = self.traffic.borrow_mut();
        let sum = sums.entry((target.to_owned(), Arc::clone(initiator))).or_default();
        *sum = sum.plus(traffic);
    }
}

fn count(words: &Words, target: &str, word: &'static str) {
    let mut words = words.borrow_mut();
    *words.entry((target.to_owned(), word)).or_default() += 1;
}

/// What a reply says, as it is counted.
enum Failure {
    None,
    UnitAttention(&'static str),
    Of(&'static str),
}

fn failure(reply: &Reply) -> Failure {
    match (reply.status, &reply.sense) {
        (Status::Good | Status::ConditionMet, _) => Failure::None,
        (Status::Busy, _) => Failure::Of("busy"),
        (Status::ReservationConflict, _) => Failure::Of("reservation_conflict"),
        (Status::TaskSetFull, _) => Failure::Of("task_set_full"),
        (Status::TaskAborted, _) => Failure::Of("task_aborted"),
        (Status::CheckCondition, None) => Failure::Of("other"),
        (Status::CheckCondition, Some(sense)) if sense.key() == SenseKey::UnitAttention as u8 => {
            Failure::UnitAttention(attention(sense.asc()))
        }
        (Status::CheckCondition, Some(sense)) => Failure::Of(sense_key(sense.key())),
    }
}

fn sense_key(key: u8) -> &'static str {
    match key {
        key if key == SenseKey::NotReady as u8 => "not_ready",
        key if key == SenseKey::MediumError as u8 => "medium_error",
        key if key == SenseKey::HardwareError as u8 => "hardware_error",
        key if key == SenseKey::IllegalRequest as u8 => "illegal_request",
        key if key == SenseKey::DataProtect as u8 => "data_protect",
        key if key == SenseKey::AbortedCommand as u8 => "aborted_command",
        key if key == SenseKey::Miscompare as u8 => "miscompare",
        _ => "other",
    }
}

fn attention(code: u16) -> &'static str {
    match code {
        asc::POWER_ON_OR_RESET => "power_on",
        asc::BUS_DEVICE_RESET => "reset",
        asc::MEDIUM_MAY_HAVE_CHANGED => "medium_changed",
        asc::REPORTED_LUNS_DATA_CHANGED => "luns_changed",
        asc::CAPACITY_DATA_CHANGED => "capacity_changed",
        asc::MODE_PARAMETERS_CHANGED => "mode_parameters_changed",
        asc::RESERVATIONS_PREEMPTED => "reservations_preempted",
        asc::RESERVATIONS_RELEASED => "reservations_released",
        asc::REGISTRATIONS_PREEMPTED => "registrations_preempted",
        _ => "other",
    }
}

/// Initiators that are counted by name, as long as the server runs. Each is a label in a time series of every monitoring system
/// that asks, for as long as that keeps its data.
pub const INITIATORS_MAX: usize = 256;
/// The name under which further initiators are counted.
pub const OTHERS: &str = "(others)";

/// The names under which initiators are counted.
#[derive(Debug, Default)]
pub(crate) struct InitiatorNames {
    // Not a `block::Lock`: it is held for a lookup, and is no place where a simulation need try another order.
    known: Mutex<BTreeMap<String, Arc<str>>>,
}

impl InitiatorNames {
    /// The name under which an initiator is counted.
    pub(crate) fn label(&self, initiator: &str) -> Arc<str> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = known.get(initiator) {
            return Arc::clone(name);
        }
        if known.len() == INITIATORS_MAX {
            return OTHERS.into();
        }
        let name: Arc<str> = initiator.into();
        known.insert(initiator.to_owned(), Arc::clone(&name));
        name
    }
}

/// What one core has counted, and what is under way there.
#[derive(Clone, Debug, Default)]
pub struct CoreStatistics {
    /// Of each volume that a session of this core uses or used.
    pub volumes: Vec<VolumeStatistics>,
    /// Logins by target (none: discovery, or a target that is not served) and result.
    pub logins: Vec<Count>,
    /// Connections of sessions that have ended, by target (none: discovery) and reason.
    pub connections_closed: Vec<Count>,
    /// Task management functions by target and function.
    pub task_management: Vec<Count>,
    /// Unit attentions that were reported, by target and kind.
    pub unit_attentions: Vec<Count>,
    /// By target and initiator.
    pub initiators: Vec<InitiatorStatistics>,
    /// Discovery sessions now.
    pub discovery_sessions: usize,
    /// Memory that commands hold, in bytes.
    pub memory_used: usize,
    /// Memory that they may hold, in bytes.
    pub memory_limit: usize,
}

/// Counts of a volume on one core.
#[derive(Clone, Debug)]
pub struct VolumeStatistics {
    /// Which volume.
    pub volume: Weak<Volume>,
    /// How long commands took, from when they were taken in until their answers were on their way.
    pub durations: Vec<(Operation, Durations)>,
    /// Commands that neither memory nor the page cache could carry out at once.
    pub waits: u64,
    /// Commands that were answered with an error, by its kind.
    pub failures: Vec<(Operation, &'static str, u64)>,
    /// Commands now.
    pub in_flight: u64,
}

/// How often something has happened at a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// The target's name; empty if there is none.
    pub target: String,
    /// What has happened.
    pub what: &'static str,
    /// How often.
    pub count: u64,
}

/// What an initiator has done at a target.
#[derive(Clone, Debug)]
pub struct InitiatorStatistics {
    /// The target's name.
    pub target: String,
    /// The initiator's name, or [`OTHERS`].
    pub initiator: Arc<str>,
    /// Its sessions now.
    pub sessions: u64,
    /// Their connections.
    pub connections: u64,
    /// What all its sessions have moved, those that have ended, too.
    pub traffic: Traffic,
}

/// What this core has counted; to be called on its thread. `None` if it does not serve iSCSI.
pub fn statistics(core: &RunningCore) -> Option<CoreStatistics> {
    core.front_end::<CoreSessions>().map(|sessions| sessions.statistics())
}

impl CoreTally {
    pub(crate) fn statistics(&self) -> CoreStatistics {
        let words = |words: &Words| -> Vec<Count> {
            let count = |((target, what), count): (&(String, &'static str), &u64)| Count {
                target: target.clone(),
                what,
                count: *count,
            };
            words.borrow().iter().map(count).collect()
        };
        CoreStatistics {
            volumes: self.volumes.borrow().values().map(|(volume, tally)| tally.statistics(volume)).collect(),
            logins: words(&self.logins),
            connections_closed: words(&self.closed),
            task_management: words(&self.task_management),
            unit_attentions: words(&self.unit_attentions),
            ..CoreStatistics::default()
        }
    }

    /// The traffic of sessions that have ended.
    pub(crate) fn ended(&self) -> BTreeMap<(String, Arc<str>), Traffic> {
        self.traffic.borrow().clone()
    }
}

impl VolumeTally {
    fn statistics(&self, volume: &Weak<Volume>) -> VolumeStatistics {
        let counted = |operation: Operation| {
            self.durations[operation as usize].get().map(|counting| (operation, counting.durations()))
        };
        let failures = self.failures.borrow();
        VolumeStatistics {
            volume: Weak::clone(volume),
            durations: Operation::ALL.into_iter().filter_map(counted).collect(),
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
    fn every_operation_has_its_codes() {
        for (code, name) in [
            (0x28, "read"),
            (0x8a, "write"),
            (0x91, "flush"),
            (0x42, "unmap"),
            (0x89, "caw"),
            (0x93, "write_same"),
            (0x83, "xcopy"),
            (0x12, "other"),
        ] {
            assert_eq!(Operation::from_code(code).name(), name);
        }
        assert!((0..).zip(Operation::ALL).all(|(at, operation)| operation as usize == at));
    }

    #[test]
    fn random_names_of_initiators_are_counted_under_one() {
        let names = InitiatorNames::default();
        for number in 0..10_000 {
            names.label(&format!("iqn.2026-01.com.example:{number}"));
        }
        assert_eq!(&*names.label("iqn.2026-01.com.example:7"), "iqn.2026-01.com.example:7");
        assert_eq!(&*names.label("iqn.2026-01.com.example:9999"), OTHERS);
        assert_eq!(names.known.lock().expect("not poisoned").len(), INITIATORS_MAX);
    }

    #[test]
    fn what_an_initiator_is_told_has_its_kind() {
        use unit::{Condition, SenseFormat};
        let kind = |reply: &Reply| match failure(reply) {
            Failure::None => "none".to_owned(),
            Failure::UnitAttention(kind) => format!("attention {kind}"),
            Failure::Of(kind) => kind.to_owned(),
        };
        let check = |key, code| Reply::check(&Condition::new(key, code), SenseFormat::Descriptor);
        assert_eq!(kind(&Reply::status(Status::Busy)), "busy");
        assert_eq!(
            kind(&check(SenseKey::UnitAttention, asc::CAPACITY_DATA_CHANGED)),
            "attention capacity_changed"
        );
        assert_eq!(kind(&check(SenseKey::MediumError, 0x1100)), "medium_error");
        assert_eq!(kind(&Reply::status(Status::Good)), "none");
    }
}
