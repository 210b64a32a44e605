//! The global state of a simulation: clock, random numbers, pending events, and the trace.
//!
//! A simulation runs on one thread, and accesses its universe through a thread-local variable, which is never
//! borrowed while code outside this crate runs.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::{Duration, Instant};

use iscsi::observed::Observation;
use testkit::Random;

thread_local! {
    static UNIVERSE: RefCell<Option<Universe>> = const { RefCell::new(None) };
}

/// The state of a simulation.
pub(crate) struct Universe {
    /// Current time in nanoseconds since the start.
    now: u64,
    beginning: Instant,
    pub(crate) random: Random,
    events: BinaryHeap<Event>,
    next_event: u64,
    /// Number of receives and sends of the running core.
    pub(crate) transfers: u32,
    trace: Trace,
    /// Number of times that the state machines received each event in each state.
    met: BTreeMap<Observation, u64>,
    /// A description of the first fault.
    fault: Option<String>,
}

struct Event {
    at: u64,
    /// A random number, so that simultaneous events happen in random order.
    lot: u32,
    number: u64,
    act: Box<dyn FnOnce()>,
}

impl Event {
    fn key(&self) -> (u64, u32, u64) {
        (self.at, self.lot, self.number)
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Event) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Event) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    /// Compares in reverse order: the heap returns its greatest element first, and this must be the earliest
    /// event.
    fn cmp(&self, other: &Event) -> Ordering {
        other.key().cmp(&self.key())
    }
}

/// The trace: a fingerprint of all steps, and a printed line for each step if the trace is shown.
struct Trace {
    fingerprint: u64,
    steps: u64,
    shown: bool,
}

/// Begins a simulation on this thread.
pub(crate) fn begin(seed: u64, shown: bool) {
    let universe = Universe {
        now: 0,
        beginning: Instant::now(),
        random: Random::new(seed),
        events: BinaryHeap::new(),
        next_event: 0,
        transfers: 0,
        trace: Trace {
            fingerprint: 0xcbf2_9ce4_8422_2325,
            steps: 0,
            shown,
        },
        met: BTreeMap::new(),
        fault: None,
    };
    UNIVERSE.with_borrow_mut(|place| {
        assert!(place.is_none(), "one thread runs one simulation at a time");
        *place = Some(universe);
    });
    iscsi::observed::observe(|met| {
        try_with(|universe| *universe.met.entry(met).or_default() += 1);
    });
}

/// Ends the simulation on this thread, and drops all of its state.
pub(crate) fn end() -> Ended {
    let universe = UNIVERSE.with_borrow_mut(Option::take).expect(OUTSIDE);
    Ended {
        fingerprint: universe.trace.fingerprint,
        steps: universe.trace.steps,
        passed: Duration::from_nanos(universe.now),
        met: universe.met,
        fault: universe.fault,
    }
}

/// The result of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) fingerprint: u64,
    pub(crate) steps: u64,
    pub(crate) passed: Duration,
    pub(crate) fault: Option<String>,
    pub(crate) met: BTreeMap<Observation, u64>,
}

const OUTSIDE: &str = "called on a thread that runs a simulation";

/// Accesses the universe. `act` may only access this crate's state, because the universe is borrowed.
pub(crate) fn with<T>(act: impl FnOnce(&mut Universe) -> T) -> T {
    UNIVERSE.with_borrow_mut(|universe| act(universe.as_mut().expect(OUTSIDE)))
}

/// Like `with`, but does nothing if this thread has no universe: objects may be dropped after their
/// simulation has ended.
pub(crate) fn try_with<T>(act: impl FnOnce(&mut Universe) -> T) -> Option<T> {
    UNIVERSE
        .try_with(|universe| universe.borrow_mut().as_mut().map(act))
        .ok()
        .flatten()
}

/// Returns the current time of the reactor's clock.
pub(crate) fn now() -> Instant {
    with(|universe| universe.beginning + Duration::from_nanos(universe.now))
}

/// Returns the current time in nanoseconds since the start.
pub(crate) fn nanoseconds() -> u64 {
    with(|universe| universe.now)
}

/// Schedules `act` in `delay` nanoseconds.
pub(crate) fn after(delay: u64, act: impl FnOnce() + 'static) {
    with(|universe| universe.after(delay, Box::new(act)));
}

pub(crate) fn draw<T>(how: impl FnOnce(&mut Random) -> T) -> T {
    with(|universe| how(&mut universe.random))
}

/// Fills `bytes` with random bytes, in place of the program's random source.
pub(crate) fn fill_random(bytes: &mut [u8]) {
    draw(|random| random.fill(bytes));
}

/// Records a step: adds `numbers` to the fingerprint, and prints the line if the trace is shown.
pub(crate) fn note(numbers: &[u64], line: impl FnOnce() -> String) {
    let shown = with(|universe| {
        universe.trace.add(universe.now, numbers);
        universe.trace.shown.then_some(universe.now)
    });
    if let Some(now) = shown {
        println!("{:>16.9}  {}", now as f64 / 1e9, line());
    }
}

/// Records a fault. The simulation stops at the first one.
pub(crate) fn fault(what: String) {
    note(&[u64::MAX], || format!("FAULT: {what}"));
    with(|universe| {
        universe.fault.get_or_insert(what);
    });
}

pub(crate) fn is_faulty() -> bool {
    with(|universe| universe.fault.is_some())
}

impl Universe {
    pub(crate) fn after(&mut self, delay: u64, act: Box<dyn FnOnce()>) {
        let event = Event {
            at: self.now.saturating_add(delay),
            lot: self.random.next() as u32,
            number: self.next_event,
            act,
        };
        self.next_event += 1;
        self.events.push(event);
    }

    /// Removes and returns the next event that is due, if any.
    pub(crate) fn due(&mut self) -> Option<Box<dyn FnOnce()>> {
        if self.is_due() {
            self.events.pop().map(|event| event.act)
        } else {
            None
        }
    }

    pub(crate) fn is_due(&self) -> bool {
        self.events.peek().is_some_and(|event| event.at <= self.now)
    }

    /// Advances the clock by the duration of some work.
    pub(crate) fn pass(&mut self, nanoseconds: u64) {
        self.now += nanoseconds;
    }

    /// Advances the clock to the next event, but not beyond `end`. Returns false if there is no event before `end`.
    pub(crate) fn skip(&mut self, end: u64) -> bool {
        match self.events.peek() {
            Some(event) if event.at < end => {
                self.now = self.now.max(event.at);
                true
            }
            _ => {
                self.now = self.now.max(end);
                false
            }
        }
    }

    pub(crate) fn time(&self) -> u64 {
        self.now
    }
}

impl Trace {
    /// Adds a step to the fingerprint with FNV-1a, a word at a time.
    fn add(&mut self, now: u64, numbers: &[u64]) {
        self.steps += 1;
        for number in std::iter::once(&now).chain(numbers) {
            self.fingerprint = (self.fingerprint ^ number).wrapping_mul(0x0000_0100_0000_01b3);
            self.fingerprint ^= self.fingerprint >> 29;
        }
    }
}
