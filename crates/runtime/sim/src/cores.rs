//! Machines and their cores. Each core has its own reactor, and all cores take turns on one thread.
//!
//! A core runs until its reactor polls for events ([`reactor::World::turn`]), or until it takes a lock that
//! other cores use. There it stops, and a random choice determines which core runs next. So the seed
//! determines the interleaving of the cores.
//!
//! ```text
//!   Ready   ── chosen at random ─────────────────────► Running, or occasionally Stalled
//!   Stalled ── the stall ends ───────────────────────► Ready
//!   Running ── takes a lock, or a turn without sleep ► Ready
//!   Running ── a turn with nothing to do ────────────► Asleep
//!   Asleep  ── its deadline passes, or it is woken ──► Ready
//!   Running ── its main future has ended ────────────► Ended
//! ```

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use generator::{Generator, Gn};
use reactor::{
    Detached, ListenOptions, Listener, Park, Stream, StreamOptions, Suspended, Unpark, World,
};

use crate::network::{self, Machine};
use crate::universe::{self, Universe};

/// One of a machine's cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Core(pub(crate) usize);

/// All cores ever created. Numbers are not reused.
#[derive(Default)]
struct Cores {
    machines: Vec<MachineState>,
    all: Vec<CoreState>,
    /// The cores that are ready to run, in arbitrary order.
    ready: Vec<Core>,
    running: Option<Core>,
}

struct MachineState {
    name: String,
    alive: bool,
    /// Whether the machine runs product code, which must share its cores fairly among its peers.
    is_fair: bool,
}

struct CoreState {
    machine: Machine,
    /// The core's main function, until the core starts.
    main: Option<Box<dyn FnOnce()>>,
    body: Option<Body>,
    state: RunState,
    /// Time at which to wake the core, if it sleeps.
    wakes_at: u64,
    /// Time of the pending event that checks whether to wake the core. No second event is pending at or
    /// before this time.
    looked_at: u64,
    /// Number of calls of the core that have moved bytes since its last turn.
    transfers: u32,
}

struct Body {
    coroutine: Generator<'static, (), ()>,
    /// The core's executor, while it does not run.
    executor: Suspended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunState {
    /// The core is in the list of cores that are ready to run.
    Ready,
    Running,
    /// The core sleeps until it is woken.
    Asleep,
    /// The core has work, but its CPU is busy with something else.
    Stalled,
    Ended,
}

/// Size of a core's stack in bytes.
const STACK_BYTES: usize = 1 << 20;
const NEVER: u64 = u64::MAX;
/// Shortest and longest time from one stop of a core to the next, in nanoseconds.
const STEP: (u64, u64) = (200, 2_000);
/// A core that takes a lock yields to other cores once in this many times.
const STOPS_ONCE_IN: u64 = 16;
/// A runnable core is stalled once in this many times.
const STALLED_ONCE_IN: u64 = 4_000;
/// Shortest and longest duration of a stall, in nanoseconds.
const STALL: (u64, u64) = (10_000, 20_000_000);
/// Maximum number of calls that move bytes between two turns of a core. A larger number is a fault, because
/// between turns no timer fires and no other socket is served.
const TRANSFERS_MAX: u32 = 1_000;

impl Machine {
    /// Creates a machine on which nothing runs.
    pub(crate) fn new(name: impl Into<String>) -> Machine {
        with(|cores, _| {
            let machines = &mut cores.machines;
            machines.push(MachineState {
                name: name.into(),
                alive: true,
                is_fair: false,
            });
            Machine(machines.len() - 1)
        })
    }

    /// Creates a machine whose cores must not serve one peer for so long that other peers have to wait.
    pub(crate) fn fair(name: impl Into<String>) -> Machine {
        let machine = Machine::new(name);
        with(|cores, _| cores.machines[machine.0].is_fair = true);
        machine
    }

    /// Creates a machine with one core, which runs `live` to completion.
    pub(crate) fn of<S: 'static, F: Future<Output = ()> + 'static>(
        name: &str,
        state: &Rc<S>,
        live: fn(Rc<S>) -> F,
    ) -> Machine {
        let (machine, state) = (Machine::new(name), Rc::clone(state));
        machine.run(move || live(state));
        machine
    }

    /// Runs `main` to completion on a new core of the machine.
    pub(crate) fn run<F: Future<Output = ()> + 'static>(self, main: impl FnOnce() -> F + 'static) {
        let number = with(|cores, _| cores.all.len());
        let core = Core(number);
        let main = Box::new(move || {
            let world = Rc::new(SimWorld {
                machine: self,
                core,
            });
            reactor::block_on(world, main());
        });
        let coroutine = Gn::new_opt(STACK_BYTES / size_of::<usize>(), move || {
            // A coroutine's closure must be `Send`, but `main` may not be. So the coroutine takes `main` from
            // here.
            if let Some(main) = with(|cores, _| cores.all[number].main.take()) {
                main();
            }
        });
        with(|cores, _| {
            let body = Some(Body {
                coroutine,
                executor: Suspended::default(),
            });
            let (main, state) = (Some(main as Box<dyn FnOnce()>), RunState::Ready);
            cores.all.push(CoreState {
                machine: self,
                main,
                body,
                state,
                wakes_at: NEVER,
                looked_at: NEVER,
                transfers: 0,
            });
            cores.ready.push(core);
        });
    }

    /// Kills everything that runs on the machine, as SIGKILL does: the programs stop at their current point
    /// and send and write nothing more, and the kernel closes their connections.
    pub(crate) fn kill(self) {
        if !self.is_alive() {
            return;
        }
        universe::note(&[1, self.0 as u64], || format!("{self} is killed"));
        with(|cores, _| cores.machines[self.0].alive = false);
        network::close_all_of(self);
        let cores = with(|cores, _| {
            let all = cores.all.iter().enumerate();
            let own = all.filter(|(_, core)| core.machine == self && core.state != RunState::Ended);
            own.map(|(number, _)| Core(number)).collect::<Vec<_>>()
        });
        cores.into_iter().for_each(drop_core);
    }

    /// Whether the machine has not been killed.
    pub(crate) fn is_alive(self) -> bool {
        with(|cores, _| cores.machines[self.0].alive)
    }

    /// Whether anything still runs on the machine.
    pub(crate) fn is_busy(self) -> bool {
        with(|cores, _| {
            cores
                .all
                .iter()
                .any(|core| core.machine == self && core.state != RunState::Ended)
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = with(|cores, _| cores.machines[self.0].name.clone());
        f.write_str(&name)
    }
}

/// Runs the simulation until `done`, the first fault, or `end`.
pub(crate) fn run_until(mut done: impl FnMut() -> bool, end: u64) {
    enum Choice {
        Core(Core),
        Event(Box<dyn FnOnce()>),
        Nothing,
    }
    while !universe::is_faulty() && !done() {
        let next = with(|cores, universe| {
            let ready = cores.ready.len() as u64;
            let event = universe.is_due();
            match universe.random.below((ready + u64::from(event)).max(1)) {
                place if place < ready => Choice::Core(cores.ready.swap_remove(place as usize)),
                _ => match universe.due() {
                    Some(act) => Choice::Event(act),
                    None => Choice::Nothing,
                },
            }
        });
        match next {
            Choice::Core(core) => step(core),
            Choice::Event(act) => act(),
            Choice::Nothing => {
                if !with(|_, universe| universe.skip(end)) {
                    return;
                }
            }
        }
    }
}

/// Runs a core until its next stop.
fn step(core: Core) {
    let taken = with(|cores, _| cores.all[core.0].body.take());
    let Some(mut body) = taken else { return };
    if universe::draw(|random| random.once_in(STALLED_ONCE_IN)) {
        let stall = universe::draw(|random| random.mostly_small(STALL.0, STALL.1));
        with(|cores, _| {
            let place = &mut cores.all[core.0];
            (place.body, place.state) = (Some(body), RunState::Stalled);
        });
        return universe::after(stall, move || ready_from(core, RunState::Stalled));
    }
    with(|cores, _| {
        assert!(
            cores.running.is_none() && cores.all[core.0].state == RunState::Ready,
            "one core runs at a time"
        );
        cores.all[core.0].state = RunState::Running;
        cores.running = Some(core);
    });
    body.executor.resume();
    body.coroutine.resume();
    body.executor = reactor::suspend();
    with(|cores, universe| {
        let time = universe.random.between(STEP.0, STEP.1);
        universe.pass(time);
        cores.running = None;
        let place = &mut cores.all[core.0];
        place.transfers += std::mem::take(&mut universe.transfers);
        let ended = body.coroutine.is_done();
        match ended {
            true => place.state = RunState::Ended,
            false => place.body = Some(body),
        }
        if place.state == RunState::Running {
            place.state = RunState::Ready;
            cores.ready.push(core);
        }
    });
}

/// Terminates a core at its current stop: unwinds its stack, and drops its tasks.
fn drop_core(core: Core) {
    let (body, main) = with(|cores, _| {
        let place = &mut cores.all[core.0];
        assert!(
            place.state != RunState::Running,
            "a core ends while it is stopped"
        );
        place.state = RunState::Ended;
        let taken = (place.body.take(), place.main.take());
        cores.ready.retain(|ready| *ready != core);
        taken
    });
    drop(main); // for a core that has not started
    if let Some(Body {
        coroutine,
        executor,
    }) = body
    {
        executor.resume(); // destructors of tasks may use the executor
        UNWINDING.set(true);
        drop(coroutine);
        UNWINDING.set(false);
        drop(reactor::suspend());
    }
}

/// Makes cores on this thread stop when they take a lock, from now on.
pub(crate) fn begin() {
    block::set_interleaving(Some(come_to_a_lock));
}

/// Terminates all cores of all machines.
pub(crate) fn end() {
    let count = with(|cores, _| cores.all.len());
    (0..count).for_each(|number| drop_core(Core(number)));
    block::set_interleaving(None);
}

thread_local! {
    static CORES: RefCell<Cores> = RefCell::default();
    /// Whether a core is being terminated, and so must not stop.
    static UNWINDING: Cell<bool> = const { Cell::new(false) };
}

/// Accesses the cores and the universe. `act` may only access this crate's state, because both are borrowed.
fn with<T>(act: impl FnOnce(&mut Cores, &mut Universe) -> T) -> T {
    CORES.with_borrow_mut(|cores| universe::with(|universe| act(cores, universe)))
}

/// Like `with`, but does nothing if this thread has no universe: objects may be dropped after their
/// simulation has ended.
fn try_with<T>(act: impl FnOnce(&mut Cores, &mut Universe) -> T) -> Option<T> {
    universe::try_with(|universe| CORES.with_borrow_mut(|cores| act(cores, universe)))
}

/// Polls for events on behalf of a core's reactor.
fn turn(core: Core, park: Park) {
    let (transfers, machine) = with(|cores, universe| {
        let Cores { all, machines, .. } = cores;
        let place = &mut all[core.0];
        let transfers =
            std::mem::take(&mut place.transfers) + std::mem::take(&mut universe.transfers);
        (
            transfers,
            Some(place.machine).filter(|machine| machines[machine.0].is_fair),
        )
    });
    if let Some(machine) = machine.filter(|_| transfers > TRANSFERS_MAX) {
        universe::fault(format!(
            "a core of {machine} received and sent {transfers} times without polling for events"
        ));
    }
    stop(core, park);
}

/// Stops a core whose reactor has nothing to do for `park`. With `Park::No`, only yields to other cores.
fn stop(core: Core, park: Park) {
    if UNWINDING.get() {
        return;
    }
    with(|cores, universe| {
        let now = universe.time();
        let place = &mut cores.all[core.0];
        if park != Park::No {
            place.state = RunState::Asleep;
        }
        place.wakes_at = match park {
            Park::For(wait) => now.saturating_add(wait.as_nanos() as u64),
            Park::No | Park::Forever => NEVER,
        };
        look_at_alarm(cores, universe, core);
    });
    #[expect(
        deprecated,
        reason = "a scope cannot be had where a reactor looks for events, deep in its own calls"
    )]
    generator::yield_with(());
}

/// Called when a core is about to take a shared lock: a random choice determines whether another core runs first.
pub(crate) fn come_to_a_lock() {
    if UNWINDING.get() {
        return;
    }
    let drawn = try_with(|cores, universe| {
        cores
            .running
            .filter(|_| universe.random.once_in(STOPS_ONCE_IN))
    });
    if let Some(core) = drawn.flatten() {
        stop(core, Park::No);
    }
}

/// Ensures that a sleeping core is woken in time. Most sleeps end early, so a single pending event per core
/// is cheaper than an event for each sleep.
fn look_at_alarm(cores: &mut Cores, universe: &mut Universe, core: Core) {
    let now = universe.time();
    let place = &mut cores.all[core.0];
    if place.wakes_at < place.looked_at {
        place.looked_at = place.wakes_at;
        let at = place.wakes_at;
        universe.after(at.saturating_sub(now), Box::new(move || alarm(core, at)));
    }
}

fn alarm(core: Core, at: u64) {
    let is_due = with(|cores, universe| {
        let now = universe.time();
        let place = &mut cores.all[core.0];
        if place.looked_at != at {
            return false; // an earlier event has been inserted, and a later one will follow
        }
        place.looked_at = NEVER;
        let sleeps = place.state == RunState::Asleep;
        let is_due = sleeps && place.wakes_at <= now;
        if sleeps && !is_due {
            look_at_alarm(cores, universe, core);
        }
        is_due
    });
    if is_due {
        make_ready(core);
    }
}

fn make_ready(core: Core) {
    ready_from(core, RunState::Asleep);
}

fn ready_from(core: Core, state: RunState) {
    try_with(|cores, _| {
        let place = &mut cores.all[core.0];
        if place.state == state {
            place.state = RunState::Ready;
            cores.ready.push(core);
        }
    });
}

struct Wake(Core);

impl Unpark for Wake {
    fn unpark(&self) {
        make_ready(self.0);
    }
}

/// The world of a simulated core's reactor.
struct SimWorld {
    machine: Machine,
    core: Core,
}

impl World for SimWorld {
    fn now(&self) -> Instant {
        universe::now()
    }

    fn listen(&self, at: SocketAddr, _: &ListenOptions) -> io::Result<Box<dyn Listener>> {
        network::listen(self.machine, at)
    }

    fn connect(&self, to: SocketAddr, _: &StreamOptions) -> io::Result<Box<dyn Stream>> {
        network::connect(self.machine, to)
    }

    fn adopt(&self, stream: Detached) -> io::Result<Box<dyn Stream>> {
        network::adopt(stream)
    }

    fn turn(&self, park: Park) {
        turn(self.core, park);
    }

    fn unpark(&self) -> Arc<dyn Unpark> {
        Arc::new(Wake(self.core))
    }

    fn batch(&self) -> usize {
        universe::draw(|random| random.between(1, 4)) as usize
    }
}
