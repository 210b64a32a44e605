//! Channels over a network that cuts connections, stalls, delays and delivers late, to a server that restarts
//! or whose disk loses unflushed writes. The runs use virtual time and are checked against a model of each
//! block. Without fencing, the same runs detect the effects of late writes ("ghosts").

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::future::poll_fn;
use std::ops::Range;

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use block::{BlockDevice, BlockSize, Blocks, Geometry, LossCounter, Losses, Null, Pending};
use failover::{
    Channels, Claim, Connected, Content, Failed, Late, Link, Loss, Name, Owner, Part, ReplayRule,
    Request, RequestKind, Settings, Transport, Writers,
};
use reactor::{Alone, block_on, now, sleep, sleep_until, spawn, timeout, yield_now};
use testkit::Random;

const BLOCKS: usize = 24;
const QUARANTINE: Duration = Duration::from_secs(3);

fn random_time(random: &mut Random, longest: Duration) -> Duration {
    Duration::from_micros(random.below(longest.as_micros() as u64))
}

/// Every block of a write contains the write's version.
#[derive(Clone)]
enum Asked {
    Read(Range<u64>),
    Write(Range<u64>, u32, bool),
    Unmap(Range<u64>),
    Flush,
}

impl Request for Asked {
    fn kind(&self) -> RequestKind {
        match self {
            Asked::Read(_) => RequestKind::Read,
            Asked::Flush => RequestKind::Flush,
            Asked::Write(range, _, is_durable) => RequestKind::Change {
                range: range.clone(),
                is_durable: *is_durable,
            },
            Asked::Unmap(range) => RequestKind::Change {
                range: range.clone(),
                is_durable: false,
            },
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Asked::Read(range) | Asked::Write(range, ..) => range.end - range.start,
            Asked::Unmap(_) | Asked::Flush => 0,
        }
    }

    fn content(&self) -> Option<Content<&[u8]>> {
        matches!(self, Asked::Unmap(_)).then_some(Content::Unmap)
    }
}

impl Part for Asked {
    fn part(&self, range: Range<u64>) -> Asked {
        match self {
            Asked::Write(_, version, is_durable) => Asked::Write(range, *version, *is_durable),
            Asked::Unmap(_) => Asked::Unmap(range),
            other => other.clone(),
        }
    }

    fn memory_bytes(&self) -> usize {
        self.bytes() as usize
    }
}

/// Which lost connections the server terminates on notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fencing {
    None,
    ByAnyPath,
    /// Those of the notifying path. Paths are cut occasionally.
    ByOwnPath,
}

/// The server and the network.
struct World {
    random: RefCell<Random>,
    fencing: Fencing,
    /// How late a request on a lost connection can arrive.
    ghosts_for: Duration,
    cache: RefCell<[u32; BLOCKS]>,
    durable: RefCell<[u32; BLOCKS]>,
    /// Blocks that a failed flush has left in the cache: reads return them, but no flush stores them.
    abandoned: RefCell<[bool; BLOCKS]>,
    incarnation: Cell<u64>,
    /// Its cache survives a restart, as the page cache survives a killed process.
    cache_stays: Cell<bool>,
    /// The generation number of its cache.
    generation: Cell<u64>,
    /// How often its disk has lost unflushed writes, without a restart.
    losses: Cell<u64>,
    /// The next flush loses the unflushed writes and is the only one to report it, as kernels do for a failed
    /// write-back.
    fails_next_flush: Cell<bool>,
    is_up: Cell<bool>,
    /// Longer reads are rejected.
    read_max: Cell<u64>,
    /// Delays the reply to the next handshake, whose content is already determined.
    holds_next_handshake: Cell<bool>,
    held_handshakes: RefCell<Vec<Rc<Cell<bool>>>>,
    dead: RefCell<HashSet<u64>>,
    links: RefCell<Vec<Rc<Wire>>>,
    /// Time of the last connection attempt.
    asked_at: Cell<Instant>,
    ghosts: Cell<u64>,
    /// The losses that its client counts.
    counted: LossCounter,
}

impl World {
    fn new(seed: u64, fencing: Fencing, ghosts_for: Duration) -> Rc<World> {
        Rc::new(World {
            random: RefCell::new(Random::new(seed)),
            fencing,
            ghosts_for,
            cache: RefCell::new([0; BLOCKS]),
            durable: RefCell::new([0; BLOCKS]),
            abandoned: RefCell::new([false; BLOCKS]),
            incarnation: Cell::new(0),
            cache_stays: Cell::new(false),
            generation: Cell::new(0),
            losses: Cell::new(0),
            fails_next_flush: Cell::new(false),
            is_up: Cell::new(true),
            read_max: Cell::new(u64::MAX),
            holds_next_handshake: Cell::new(false),
            held_handshakes: RefCell::default(),
            dead: RefCell::default(),
            links: RefCell::default(),
            asked_at: Cell::new(now()),
            ghosts: Cell::new(0),
            counted: LossCounter::default(),
        })
    }

    fn time(&self, longest: Duration) -> Duration {
        random_time(&mut self.random.borrow_mut(), longest)
    }

    fn carry_out(&self, asked: &Asked) -> Vec<u32> {
        let (mut cache, mut abandoned) = (self.cache.borrow_mut(), self.abandoned.borrow_mut());
        match asked {
            Asked::Read(range) => return cache[range.start as usize..range.end as usize].to_vec(),
            Asked::Write(range, version, is_durable) => {
                let range = range.start as usize..range.end as usize;
                cache[range.clone()].fill(*version);
                abandoned[range.clone()].fill(false);
                if *is_durable {
                    self.durable.borrow_mut()[range].fill(*version);
                }
            }
            Asked::Unmap(range) => {
                let range = range.start as usize..range.end as usize;
                cache[range.clone()].fill(0);
                abandoned[range].fill(false);
            }
            Asked::Flush => {
                let mut durable = self.durable.borrow_mut();
                let stored = (0..BLOCKS).filter(|block| !abandoned[*block]);
                stored.for_each(|block| durable[block] = cache[block]);
            }
        }
        Vec::new()
    }

    fn restart(&self) {
        self.incarnation.set(self.incarnation.get() + 1);
        if !self.cache_stays.get() {
            self.generation.set(self.generation.get() + 1);
            self.drop_cache();
        }
    }

    fn drop_cache(&self) {
        *self.cache.borrow_mut() = *self.durable.borrow();
        self.abandoned.borrow_mut().fill(false);
    }

    /// A flush fails. Like Linux, the server keeps the unflushed blocks in its cache, or has dropped them
    /// since.
    fn fail_flush(&self, keeps: bool) {
        let (cache, durable) = (*self.cache.borrow(), *self.durable.borrow());
        for (block, abandoned) in self.abandoned.borrow_mut().iter_mut().enumerate() {
            *abandoned |= cache[block] != durable[block];
        }
        if !keeps {
            self.drop_cache();
        }
    }

    /// Another client's flush fails.
    fn lose_writes(&self, keeps: bool) {
        self.losses.set(self.losses.get() + 1);
        self.fail_flush(keeps);
    }

    fn flips(&self) -> bool {
        self.random.borrow_mut().below(2) == 0
    }
}

/// A connection.
struct Wire {
    world: Rc<World>,
    number: u64,
    path: usize,
    incarnation: u64,
    /// The loss count last reported to its client.
    losses_told: Cell<u64>,
    inner: RefCell<Inner>,
}

#[derive(Default)]
struct Inner {
    loss: Option<Loss>,
    is_leaving: bool,
    /// Nothing is delivered before this time; `None` if nothing is held.
    held_until: Option<Instant>,
    /// It is slow: replies to earlier requests keep arriving, and delay all others.
    delivers: bool,
    tasks: BTreeMap<u64, Task>,
    next: u64,
    watching: Vec<Waker>,
}

#[derive(Default)]
struct Task {
    claim: Option<Claim>,
    reply: Option<Result<Vec<u32>, Failed<()>>>,
    is_abandoned: bool,
}

impl Wire {
    fn wake(&self) {
        let watching = std::mem::take(&mut self.inner.borrow_mut().watching);
        watching.into_iter().for_each(Waker::wake);
    }

    /// Delays the delivery of outstanding requests.
    fn lose(&self, loss: Loss, late: Duration) {
        let mut inner = self.inner.borrow_mut();
        inner.loss.get_or_insert(loss);
        inner.held_until = Some(now() + late);
        drop(inner);
        self.wake();
    }

    async fn watch<R>(&self, ready: impl Fn(&mut Inner) -> Option<R>) -> R {
        poll_fn(|cx| {
            let mut inner = self.inner.borrow_mut();
            match ready(&mut inner) {
                Some(ready) => Poll::Ready(ready),
                None => {
                    inner.watching.push(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    async fn deliver(self: Rc<Self>, number: u64, asked: Asked) {
        sleep(self.world.time(Duration::from_millis(4))).await;
        loop {
            let held = self
                .inner
                .borrow()
                .held_until
                .map(|until| until.saturating_duration_since(now()));
            match held.filter(|held| !held.is_zero()) {
                Some(held) => sleep(held.min(Duration::from_millis(100))).await,
                None => break,
            }
        }
        let world = &self.world;
        let is_there = world.incarnation.get() == self.incarnation && world.is_up.get();
        if !is_there || world.dead.borrow().contains(&self.number) {
            return;
        }
        let has_failed = matches!(asked, Asked::Flush) && world.fails_next_flush.take();
        let is_too_long =
            matches!(&asked, Asked::Read(range) if range.end - range.start > world.read_max.get());
        let mut reply = match has_failed {
            true => {
                world.fail_flush(world.flips());
                Err(Failed::Server(()))
            }
            false if is_too_long => Err(Failed::Server(())),
            false => Ok(world.carry_out(&asked)),
        };
        if matches!(asked, Asked::Write(..)) && self.inner.borrow().loss.is_some() {
            world.ghosts.set(world.ghosts.get() + 1);
        }
        sleep(world.time(Duration::from_millis(4))).await;
        // Replies arrive in this order.
        let is_flush = matches!(asked, Asked::Flush);
        if is_flush && self.losses_told.replace(world.losses.get()) != world.losses.get() {
            reply = Err(Failed::Server(()));
        }
        let mut inner = self.inner.borrow_mut();
        if matches!(inner.loss, Some(Loss::Ended(_))) {
            return;
        }
        let is_abandoned = inner
            .tasks
            .get(&number)
            .is_none_or(|task| task.is_abandoned);
        let removed = if is_abandoned {
            inner.tasks.remove(&number)
        } else {
            None
        };
        if let Some(task) = inner.tasks.get_mut(&number) {
            task.reply = Some(reply);
            task.claim = None;
        }
        drop(inner);
        drop(removed);
        self.wake();
    }
}

struct Abandon(Rc<Wire>, u64);

impl Drop for Abandon {
    fn drop(&mut self) {
        let mut inner = self.0.inner.borrow_mut();
        let answered = inner
            .tasks
            .get(&self.1)
            .is_some_and(|task| task.reply.is_some());
        let removed = if answered {
            inner.tasks.remove(&self.1)
        } else {
            None
        };
        if let Some(task) = inner.tasks.get_mut(&self.1) {
            task.is_abandoned = true;
        }
        drop(inner);
        drop(removed);
    }
}

impl Link for Wire {
    type Request = Asked;
    type Reply = Vec<u32>;
    type Error = ();

    fn exchange(
        self: &Rc<Self>,
        request: &Asked,
        claim: Option<Claim>,
        deadline: Instant,
        late: Option<Late>,
    ) -> impl Future<Output = Result<Vec<u32>, Failed<()>>> + 'static {
        let mut inner = self.inner.borrow_mut();
        let number = inner.next;
        inner.next += 1;
        inner.tasks.insert(
            number,
            Task {
                claim,
                ..Task::default()
            },
        );
        if inner.loss.is_none() {
            drop(spawn(Rc::clone(self).deliver(number, request.clone())));
        }
        drop(inner);
        let (wire, abandon) = (Rc::clone(self), Abandon(Rc::clone(self), number));
        async move {
            let answered = wire.watch(|inner| {
                let reply = inner
                    .tasks
                    .get_mut(&number)
                    .and_then(|task| task.reply.clone());
                reply.or(inner.loss.is_some().then_some(Err(Failed::Lost)))
            });
            let mut is_late = Box::pin(async {
                sleep_until(deadline).await;
                while wire.inner.borrow().delivers {
                    sleep(Duration::from_millis(100)).await;
                }
                if let Some(late) = late {
                    late.tell();
                    std::future::pending().await
                }
            });
            let mut answered = Box::pin(answered);
            let ended = poll_fn(|cx| match answered.as_mut().poll(cx) {
                Poll::Ready(ended) => Poll::Ready(ended),
                Poll::Pending => is_late.as_mut().poll(cx).map(|()| Err(Failed::TimedOut)),
            })
            .await;
            drop(abandon);
            ended
        }
    }

    fn shows(change: &Asked, reply: &Vec<u32>) -> bool {
        matches!(change, Asked::Write(_, version, _) if reply.iter().all(|found| found == version))
    }

    fn is_rejection((): &()) -> bool {
        false
    }

    fn is_no_space((): &()) -> bool {
        false
    }

    fn is_lost(&self) -> bool {
        self.inner.borrow().loss.is_some()
    }

    async fn lost(&self) -> Loss {
        self.watch(|inner| {
            if inner.is_leaving && inner.tasks.is_empty() {
                inner.loss.get_or_insert(Loss::Ended("left".to_owned()));
            }
            inner.loss.clone()
        })
        .await
    }

    async fn settled(&self) {
        self.watch(|inner| {
            inner
                .tasks
                .values()
                .all(|task| task.claim.is_none())
                .then_some(())
        })
        .await;
    }

    fn take_unanswered(&self) -> Vec<Claim> {
        self.inner
            .borrow_mut()
            .tasks
            .values_mut()
            .filter_map(|task| task.claim.take())
            .collect()
    }

    fn reset(&self) {
        self.inner.borrow_mut().loss = Some(Loss::Ended("reset".to_owned()));
        let late = self.world.time(self.world.ghosts_for);
        self.lose(Loss::Ended("reset".to_owned()), late);
    }

    fn leave(&self) {
        self.inner.borrow_mut().is_leaving = true;
        self.wake();
    }
}

#[derive(Clone)]
struct Network(Rc<World>);

impl Transport for Network {
    type Link = Wire;

    async fn connect(
        &self,
        path: usize,
        name: Name,
        ended: &[u64],
    ) -> Result<Connected<Wire>, String> {
        let world = &self.0;
        world.asked_at.set(now());
        sleep(world.time(Duration::from_millis(20))).await;
        if !world.is_up.get() {
            return Err("refused".to_owned());
        }
        let fences = world.fencing != Fencing::None;
        let can_be_cut = world.fencing == Fencing::ByOwnPath && name.number > 0;
        if can_be_cut && world.random.borrow_mut().below(2) == 0 {
            return Err("this path is cut".to_owned());
        }
        let is_ended = |number: &u64| match world.fencing {
            Fencing::None => false,
            Fencing::ByAnyPath => true,
            Fencing::ByOwnPath => world
                .links
                .borrow()
                .iter()
                .any(|wire| wire.number == *number && wire.path == path),
        };
        let (dead, not_ended): (Vec<u64>, Vec<u64>) =
            ended.iter().partition(|number| is_ended(number));
        world.dead.borrow_mut().extend(dead);
        let incarnation = world.incarnation.get();
        let wire = Rc::new(Wire {
            world: Rc::clone(world),
            number: name.number,
            path,
            incarnation,
            losses_told: Cell::new(world.losses.get()),
            inner: RefCell::default(),
        });
        let start = u128::from(world.generation.get()) << 64 | u128::from(world.losses.get());
        world.links.borrow_mut().push(Rc::clone(&wire));
        sleep(world.time(Duration::from_millis(20))).await;
        if world.holds_next_handshake.take() {
            let is_held = Rc::new(Cell::new(true));
            world.held_handshakes.borrow_mut().push(Rc::clone(&is_held));
            while is_held.get() {
                sleep(Duration::from_micros(100)).await;
            }
        }
        let not_ended = if fences { not_ended } else { Vec::new() };
        Ok(Connected {
            link: wire,
            fences,
            not_ended,
            start: fences.then_some(start),
        })
    }

    fn path_name(&self, path: usize) -> String {
        path.to_string()
    }

    fn probe(&self) -> Asked {
        Asked::Read(0..1)
    }

    fn read(&self, range: Range<u64>) -> Asked {
        Asked::Read(range)
    }

    fn read_bytes_max(&self) -> u64 {
        self.0.read_max.get()
    }

    fn flush(&self) -> Asked {
        Asked::Flush
    }

    fn losses(&self) -> LossCounter {
        self.0.counted.clone()
    }
}

/// The results that clients received, by block. Versions grow in the order in which the writes were submitted.
#[derive(Default)]
struct Told {
    acknowledged: [u32; BLOCKS],
    /// Covered by a successful flush, or durable from the start.
    durable: [u32; BLOCKS],
    /// Acknowledged and lost, and no flush has failed since.
    lost: [u32; BLOCKS],
    next: u32,
}

#[derive(Clone, Copy)]
struct Run {
    fencing: Fencing,
    quarantine: Duration,
    channels: usize,
    is_coherent: bool,
    journal_bytes: usize,
    writers: Writers,
    /// Whether the disk loses writes.
    has_losses: bool,
}

/// Channels over two paths; the first path is connected.
async fn opened(world: &Rc<World>, seed: u64, run: &Run) -> Channels<Network> {
    opened_for(world, seed, run, Duration::from_secs(3600)).await
}

async fn opened_for(
    world: &Rc<World>,
    seed: u64,
    run: &Run,
    timeout: Duration,
) -> Channels<Network> {
    let network = Network(Rc::clone(world));
    let first = network
        .connect(
            0,
            Name {
                session: 1,
                number: 0,
            },
            &[],
        )
        .await
        .expect("it is up");
    let settings = Settings {
        channels: run.channels,
        paths: 2,
        timeout,
        quarantine: run.quarantine,
        journal_bytes: run.journal_bytes,
        is_volatile: true,
        is_coherent: run.is_coherent,
        // If the server reports nothing about its cache, a restart may or may not have lost writes.
        writers: run.writers,
        session: 1,
        seed,
    };
    Channels::new(network, settings, first, 0)
}

/// One run. Returns the stale or lost data, if any, and the numbers of ghosts, replays and resends.
fn run(seed: u64, run: &Run) -> (Option<String>, [u64; 3]) {
    block_on(Alone::exact_virtual_time(), async {
        let is_sure = run.fencing == Fencing::ByAnyPath;
        let ghosts_for = if is_sure {
            10 * QUARANTINE
        } else {
            QUARANTINE.mul_f64(0.9)
        };
        let world = World::new(seed, run.fencing, ghosts_for);
        let channels = Rc::new(opened(&world, seed, run).await);
        let (told, fault) = (
            Rc::new(RefCell::new(Told::default())),
            Rc::new(RefCell::new(None::<String>)),
        );
        let ends = now() + Duration::from_secs(60);
        let mut tasks = Vec::new();
        for _ in 0..6 {
            let (world, channels, told, fault) = (
                Rc::clone(&world),
                Rc::clone(&channels),
                Rc::clone(&told),
                Rc::clone(&fault),
            );
            tasks.push(spawn(async move {
                while now() < ends && fault.borrow().is_none() {
                    if let Some(why) = step(&world, &channels, &told).await {
                        fault.borrow_mut().get_or_insert(why);
                    }
                }
            }));
        }
        let chaos = spawn(trouble(Rc::clone(&world), ends));
        let losses = spawn(losses(
            Rc::clone(&world),
            Rc::clone(&told),
            run.has_losses.then_some(ends),
        ));
        for task in tasks {
            task.await;
        }
        chaos.await;
        losses.await;
        if fault.borrow().is_none() {
            let mut flushed = channels.ask(Asked::Flush).await;
            // The last loss is reported once by each connection, and once by an abandoned flush.
            for _ in 0..if run.has_losses { run.channels + 1 } else { 0 } {
                if flushed.is_err() {
                    flushed = channels.ask(Asked::Flush).await;
                }
            }
            assert_eq!(flushed, Ok(Vec::new()), "seed {seed}");
            let durable = *world.durable.borrow();
            let acknowledged = told.borrow().acknowledged;
            if durable
                .iter()
                .zip(acknowledged)
                .any(|(durable, told)| *durable < told)
            {
                *fault.borrow_mut() = Some(format!("lost: {durable:?} for {acknowledged:?}"));
            }
        }
        let status = channels.status();
        channels.leave();
        (
            fault.take(),
            [world.ghosts.get(), status.replays, status.resends],
        )
    })
}

/// One request; returns the error in its result, if any.
async fn step(world: &World, channels: &Channels<Network>, told: &RefCell<Told>) -> Option<String> {
    let (choice, range, pause) = {
        let mut random = world.random.borrow_mut();
        let start = random.below(BLOCKS as u64);
        let end = start + 1 + random.below((BLOCKS as u64 - start).min(5));
        (
            random.below(20),
            start..end,
            random_time(&mut random, Duration::from_millis(30)),
        )
    };
    let blocks = range.start as usize..range.end as usize;
    let mut wrong = None;
    match choice {
        0..10 => {
            let is_durable = choice == 0;
            told.borrow_mut().next += 1;
            let (version, losses) = (told.borrow().next, world.losses.get());
            let written = channels.ask(Asked::Write(range, version, is_durable)).await;
            assert_eq!(written, Ok(Vec::new()));
            let mut told = told.borrow_mut();
            for block in blocks {
                // The write may have been lost before it was acknowledged.
                if is_durable || losses == world.losses.get() {
                    told.acknowledged[block] = told.acknowledged[block].max(version);
                }
                if is_durable {
                    told.durable[block] = told.durable[block].max(version);
                }
            }
        }
        10..18 => {
            let (least, losses) = (told.borrow().acknowledged, world.losses.get());
            let read = channels
                .ask(Asked::Read(range))
                .await
                .expect("nothing fails");
            for (block, found) in blocks.zip(read) {
                if found < least[block] && losses == world.losses.get() {
                    wrong = Some(format!(
                        "block {block} was {found} after {} was acknowledged",
                        least[block]
                    ));
                }
            }
        }
        18 => {
            // An impatient caller: it may abandon the flush before the reply.
            let patience = world.time(Duration::from_millis(8));
            if let Ok(Err(_)) = timeout(patience, channels.ask(Asked::Flush)).await {
                told.borrow_mut().lost = [0; BLOCKS];
            }
        }
        _ => {
            let (covered, lost) = (told.borrow().acknowledged, told.borrow().lost);
            let flushed = channels.ask(Asked::Flush).await;
            let mut told = told.borrow_mut();
            if world.losses.get() > 0 && flushed.is_err() {
                told.lost = [0; BLOCKS];
                return None;
            }
            assert_eq!(flushed, Ok(Vec::new()));
            let durable = world.durable.borrow();
            if let Some(block) = (0..BLOCKS).find(|block| durable[*block] < lost[*block]) {
                wrong = Some(format!(
                    "block {block}: {} is lost, and a flush says nothing",
                    lost[block]
                ));
            }
            for (durable, covered) in told.durable.iter_mut().zip(covered) {
                *durable = (*durable).max(covered);
            }
        }
    }
    sleep(pause).await;
    // If server and client crashed now, the durable data would remain.
    let (told, durable) = (told.borrow(), world.durable.borrow());
    if let Some(block) = (0..BLOCKS).find(|block| durable[*block] < told.durable[*block]) {
        wrong = Some(format!(
            "block {block}: {} on the medium, {} flushed",
            durable[block], told.durable[block]
        ));
    }
    wrong
}

/// Loses unflushed writes, until `ends`: a flush must report the loss, or the writes are replayed.
async fn losses(world: Rc<World>, told: Rc<RefCell<Told>>, ends: Option<Instant>) {
    while ends.is_some_and(|ends| now() < ends) {
        sleep(world.time(Duration::from_secs(4))).await;
        world.lose_writes(world.flips());
        let mut told = told.borrow_mut();
        let (durable, acknowledged) = (*world.durable.borrow(), told.acknowledged);
        for block in 0..BLOCKS {
            if durable[block] < acknowledged[block] {
                told.lost[block] = acknowledged[block];
                told.acknowledged[block] = durable[block];
            }
        }
    }
}

/// Cuts, stalls and restarts.
async fn trouble(world: Rc<World>, ends: Instant) {
    while now() < ends {
        sleep(world.time(Duration::from_millis(1500))).await;
        let live: Vec<Rc<Wire>> = world
            .links
            .borrow()
            .iter()
            .filter(|wire| !wire.is_lost())
            .map(Rc::clone)
            .collect();
        let choice = world.random.borrow_mut().below(8);
        let Some(wire) = live.get(world.random.borrow_mut().below(live.len() as u64) as usize)
        else {
            continue;
        };
        match choice {
            0..3 => wire.lose(Loss::Ended("cut".to_owned()), world.time(world.ghosts_for)),
            3..5 => {
                // A stall long enough to be detected.
                wire.inner.borrow_mut().held_until = Some(now() + Duration::from_secs(3600));
                sleep(world.time(Duration::from_millis(300))).await;
                if !wire.is_lost() {
                    let late = world.time(Duration::from_millis(2500));
                    wire.lose(Loss::Silent, late);
                }
            }
            5 => {
                // A stall too short to be detected.
                wire.inner.borrow_mut().held_until =
                    Some(now() + world.time(Duration::from_millis(300)));
            }
            _ => {
                world.is_up.set(false);
                world.restart();
                sleep(world.time(Duration::from_millis(400))).await;
                let is_up_first = world.random.borrow_mut().below(2) == 0;
                world.is_up.set(is_up_first);
                for wire in live {
                    // Connections to the old instance are found to be dead one after another.
                    sleep(world.time(Duration::from_millis(100))).await;
                    wire.lose(
                        Loss::Ended("reset by the server".to_owned()),
                        Duration::ZERO,
                    );
                }
                world.is_up.set(true);
            }
        }
    }
    // The remaining connections see no further trouble: those that are stalled are cut.
    for wire in world.links.borrow().iter().filter(|wire| !wire.is_lost()) {
        wire.lose(Loss::Ended("cut".to_owned()), world.time(world.ghosts_for));
    }
}

fn runs() -> Vec<Run> {
    let mut runs = Vec::new();
    for fencing in [Fencing::ByAnyPath, Fencing::ByOwnPath, Fencing::None] {
        for (channels, is_coherent) in [(1, false), (1, true), (4, true)] {
            for journal_bytes in [12, 1 << 20] {
                let run = Run {
                    fencing,
                    quarantine: QUARANTINE,
                    channels,
                    is_coherent,
                    journal_bytes,
                    writers: if fencing == Fencing::None {
                        Writers::One
                    } else {
                        Writers::Unknown
                    },
                    has_losses: false,
                };
                // Only servers that support fencing report losses.
                if fencing != Fencing::None && is_coherent {
                    runs.push(Run {
                        has_losses: true,
                        ..run
                    });
                }
                runs.push(run);
            }
        }
    }
    runs
}

#[test]
fn nothing_stale_is_read_and_nothing_acknowledged_is_lost() {
    let mut counted = [0; 3];
    for (place, how) in runs().iter().enumerate() {
        for seed in 1..=4 {
            let (fault, counts) = run(seed * 100 + place as u64, how);
            assert_eq!(
                fault, None,
                "seed {seed}, {} channels, fencing: {:?}",
                how.channels, how.fencing
            );
            (0..3).for_each(|place| counted[place] += counts[place]);
        }
    }
    assert!(
        counted.iter().all(|count| *count > 20),
        "{counted:?}: ghosts, replays, resends"
    );
}

#[test]
fn without_fencing_a_ghost_is_found() {
    for fencing in [Fencing::None, Fencing::ByOwnPath] {
        let unfenced = Run {
            fencing,
            quarantine: Duration::ZERO,
            channels: 4,
            is_coherent: true,
            journal_bytes: 1 << 20,
            writers: Writers::Unknown,
            has_losses: false,
        };
        let found = (1..=40).find_map(|seed| run(seed, &unfenced).0);
        assert!(found.is_some(), "no ghost did any harm: {fencing:?}");
    }
}

/// One connection to a server that reports nothing except through its replies.
const OF_OTHERS: Run = Run {
    fencing: Fencing::None,
    quarantine: QUARANTINE,
    channels: 1,
    is_coherent: true,
    journal_bytes: 1 << 20,
    writers: Writers::Unknown,
    has_losses: false,
};

/// This client has written blocks 0 to 3, and no flush has covered that. Another host has durably replaced
/// the last two. Then the server restarts.
#[test]
fn what_another_host_has_made_durable_is_replaced_only_by_who_knows_of_a_loss() {
    use Fencing::{ByAnyPath, None};
    use Writers::{One, Several, Unknown};
    let told = Err(Failed::WritesLost);
    for (fencing, writers, cache_stays, is_replaced, found, flushed) in [
        // The server reports its cache state: no write was lost.
        (ByAnyPath, Unknown, true, true, [1, 1, 9, 9], Ok(Vec::new())),
        (ByAnyPath, One, true, true, [1, 1, 9, 9], Ok(Vec::new())),
        (ByAnyPath, Several, true, true, [1, 1, 9, 9], Ok(Vec::new())),
        // Writes were lost.
        (ByAnyPath, Several, false, true, [0, 0, 9, 9], told.clone()),
        (
            ByAnyPath,
            Unknown,
            false,
            false,
            [1, 1, 1, 1],
            Ok(Vec::new()),
        ),
        // The server reports nothing, so the blocks are read.
        (None, Unknown, true, false, [1, 1, 1, 1], Ok(Vec::new())),
        (None, Unknown, true, true, [1, 1, 9, 9], told.clone()),
        (None, Unknown, false, true, [0, 0, 9, 9], told.clone()),
        (None, Several, false, false, [0, 0, 0, 0], told.clone()),
        (None, One, false, false, [1, 1, 1, 1], Ok(Vec::new())),
    ] {
        block_on(Alone::exact_virtual_time(), async {
            let case = format!(
                "{fencing:?}, {writers:?}, the cache stays: {cache_stays}, replaced: {is_replaced}"
            );
            let world = World::new(11, fencing, Duration::ZERO);
            world.cache_stays.set(cache_stays);
            let channels = opened(
                &world,
                11,
                &Run {
                    fencing,
                    writers,
                    ..OF_OTHERS
                },
            )
            .await;
            channels
                .ask(Asked::Write(0..4, 1, false))
                .await
                .expect("written");
            if is_replaced {
                drop(world.carry_out(&Asked::Write(2..4, 9, true)));
            }
            world.restart();
            let wire = Rc::clone(world.links.borrow().last().expect("the one in use"));
            wire.lose(
                Loss::Ended("reset by the server".to_owned()),
                Duration::ZERO,
            );
            assert_eq!(
                channels.ask(Asked::Read(0..4)).await,
                Ok(found.to_vec()),
                "{case}"
            );
            assert_eq!(channels.ask(Asked::Flush).await, flushed, "{case}");
            assert_eq!(
                channels.ask(Asked::Flush).await,
                Ok(Vec::new()),
                "{case}: it is reported once"
            );
            assert_eq!(world.durable.borrow()[..4], found, "{case}");
            channels.leave();
        });
    }
}

/// Another client's flush fails. The server still shows the writes of this client, but will not store them.
#[test]
fn what_a_failed_flush_has_left_in_the_cache_does_not_count_as_written() {
    for (writers, durable, flushed) in [
        (Writers::One, [1; 4], Ok(Vec::new())),
        (Writers::Unknown, [1; 4], Ok(Vec::new())),
        (Writers::Several, [0; 4], Err(Failed::WritesLost)),
    ] {
        block_on(Alone::exact_virtual_time(), async {
            let world = World::new(29, Fencing::ByAnyPath, Duration::ZERO);
            let how = Run {
                fencing: Fencing::ByAnyPath,
                writers,
                ..OF_OTHERS
            };
            let channels = opened(&world, 29, &how).await;
            channels
                .ask(Asked::Write(0..4, 1, false))
                .await
                .expect("written");
            world.lose_writes(true);
            let wire = Rc::clone(world.links.borrow().last().expect("the one in use"));
            wire.lose(
                Loss::Ended("reset by the server".to_owned()),
                Duration::ZERO,
            );
            assert_eq!(
                channels.ask(Asked::Read(0..4)).await,
                Ok(vec![1; 4]),
                "{writers:?}"
            );
            assert_eq!(channels.ask(Asked::Flush).await, flushed, "{writers:?}");
            assert_eq!(world.durable.borrow()[..4], durable, "{writers:?}");
            channels.leave();
        });
    }
}

/// The server restarts and the connection in use is lost, while a newer write to some blocks is outstanding.
/// The server's cache survives.
async fn restarted(
    world: &World,
    channels: &Rc<Channels<Network>>,
    outstanding: Option<Range<u64>>,
) {
    let wire = Rc::clone(world.links.borrow().last().expect("the one in use"));
    let written = outstanding.map(|range| {
        wire.inner.borrow_mut().held_until = Some(now() + Duration::from_secs(3600));
        let channels = Rc::clone(channels);
        spawn(async move { channels.ask(Asked::Write(range, 2, false)).await })
    });
    yield_now().await;
    world.cache_stays.set(true);
    world.restart();
    wire.lose(
        Loss::Ended("reset by the server".to_owned()),
        Duration::ZERO,
    );
    if let Some(written) = written {
        assert_eq!(written.await, Ok(Vec::new()));
    }
}

/// This client has written blocks 0 to 3, and another host has durably replaced the last two. A newer write
/// of this client to block 0 is outstanding when the server, which reports nothing, restarts.
#[test]
fn a_write_that_is_outstanding_has_only_its_own_blocks_written_again() {
    block_on(Alone::exact_virtual_time(), async {
        let world = World::new(13, Fencing::None, Duration::ZERO);
        let channels = Rc::new(opened(&world, 13, &OF_OTHERS).await);
        channels
            .ask(Asked::Write(0..4, 1, false))
            .await
            .expect("written");
        drop(world.carry_out(&Asked::Write(2..4, 9, true)));
        restarted(&world, &channels, Some(0..1)).await;
        assert_eq!(channels.ask(Asked::Read(0..4)).await, Ok(vec![2, 1, 9, 9]));
        assert_eq!(channels.ask(Asked::Flush).await, Err(Failed::WritesLost));
        assert_eq!(world.durable.borrow()[..4], [2, 1, 9, 9]);
        channels.leave();
    });
}

/// Some servers limit reads to less than a journal entry's length. Deallocated blocks have no content that
/// could be lost.
#[test]
fn a_comparison_finds_no_loss_where_there_was_none() {
    for (asked, read_max) in [
        (Asked::Write(0..9, 1, false), 4),
        (Asked::Unmap(0..9), u64::MAX),
        (Asked::Unmap(0..9), 4),
    ] {
        block_on(Alone::exact_virtual_time(), async {
            let world = World::new(17, Fencing::None, Duration::ZERO);
            world.read_max.set(read_max);
            let channels = Rc::new(opened(&world, 17, &OF_OTHERS).await);
            channels.ask(asked).await.expect("done");
            restarted(&world, &channels, None).await;
            assert_eq!(channels.ask(Asked::Flush).await, Ok(Vec::new()));
            channels.leave();
        });
    }
}

/// The server instance that the header of a journal file names: it follows four numbers and the boot's
/// number.
fn start_in(path: &std::path::Path) -> Option<u128> {
    let page = std::fs::read(path).expect("a file");
    let at = page
        .windows(8)
        .position(|bytes| bytes == CAPACITY.to_le_bytes())
        .expect("a header")
        + 48;
    let has_start = page[at] & 1 == 1;
    has_start.then(|| u128::from_le_bytes(page[at + 4..at + 20].try_into().expect("16 bytes")))
}

const CAPACITY: u64 = 65_543;

/// Because several hosts write, lost writes are not replayed. Until a flush has reported the
/// loss, the file must not state that the server has the file's content: the next process would mistake the
/// difference for another host's writes.
#[test]
fn a_journal_file_names_the_start_of_the_server_against_which_it_was_verified() {
    block_on(Alone::exact_virtual_time(), async {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        let geometry = Geometry {
            block_size: BlockSize::B512,
            blocks: Blocks(2048),
            physical_exponent: 0,
        };
        let owner = Owner {
            identity: "disk".to_owned(),
            bytes: 1 << 20,
            writers: Writers::Several,
        };
        let world = World::new(23, Fencing::ByAnyPath, Duration::ZERO);
        let several = Run {
            fencing: Fencing::ByAnyPath,
            writers: Writers::Several,
            ..OF_OTHERS
        };
        let channels = opened(&world, 23, &several).await;
        let kept = channels
            .keep_in(
                &path,
                ReplayRule::Auto,
                CAPACITY,
                &owner,
                &Null::new(geometry),
            )
            .await;
        kept.expect("a new file");
        channels
            .ask(Asked::Write(0..4, 1, false))
            .await
            .expect("written");
        world.restart();
        let wire = Rc::clone(world.links.borrow().last().expect("the one in use"));
        wire.lose(
            Loss::Ended("reset by the server".to_owned()),
            Duration::ZERO,
        );
        assert_eq!(
            channels.ask(Asked::Read(0..4)).await,
            Ok(vec![0; 4]),
            "lost"
        );
        assert_eq!(
            start_in(&path),
            Some(0),
            "it does not have what the file holds"
        );
        let wire = Rc::clone(world.links.borrow().last().expect("the one in use"));
        wire.lose(Loss::Ended("cut".to_owned()), Duration::ZERO);
        assert_eq!(
            channels.ask(Asked::Read(0..4)).await,
            Ok(vec![0; 4]),
            "by another connection"
        );
        assert_eq!(start_in(&path), Some(0), "nothing was replayed");
        assert_eq!(channels.ask(Asked::Flush).await, Err(Failed::WritesLost));
        assert_eq!(start_in(&path), Some(1 << 64), "the file holds nothing");
        channels.leave();
    });
}

thread_local! {
    /// Runs before the first flush of an [`Interrupted`] completes.
    static INTERRUPTION: RefCell<Option<Pending<'static, ()>>> = const { RefCell::new(None) };
}

/// An empty device whose server may have changed by the time its first flush is answered. Counts the flushes.
struct Interrupted(Null, AtomicU64);

impl BlockDevice for Interrupted {
    block::forward!(self => self.0; geometry, profile, read, write, unmap, write_zeroes, allocation, losses, quiesced);

    fn flush(&self) -> Pending<'_, ()> {
        self.1.fetch_add(1, Relaxed);
        INTERRUPTION.take().unwrap_or_else(|| self.0.flush())
    }
}

/// A journal file is compared and flushed again unless the server reports that its cache is unchanged: a
/// server that reports nothing may have lost the compared writes whenever a connection was replaced.
#[test]
fn a_journal_file_is_emptied_only_if_the_server_kept_its_cache_meanwhile() {
    use Fencing::{ByAnyPath, None};
    for (fencing, cache_stays, flushes) in [
        (ByAnyPath, true, 1),
        (ByAnyPath, false, 2),
        (None, true, 2),
        (None, false, 2),
    ] {
        block_on(Alone::exact_virtual_time(), async {
            let world = World::new(31, fencing, Duration::ZERO);
            world.cache_stays.set(cache_stays);
            let channels = Rc::new(
                opened(
                    &world,
                    31,
                    &Run {
                        fencing,
                        ..OF_OTHERS
                    },
                )
                .await,
            );
            let (server, asking) = (Rc::clone(&world), Rc::clone(&channels));
            INTERRUPTION.set(Some(Box::pin(async move {
                server.restart();
                let wire = Rc::clone(server.links.borrow().last().expect("the one in use"));
                wire.lose(
                    Loss::Ended("reset by the server".to_owned()),
                    Duration::ZERO,
                );
                asking
                    .ask(Asked::Read(0..1))
                    .await
                    .expect("by the next connection");
                Ok(())
            })));
            let folder = tempfile::tempdir().expect("a folder");
            let geometry = Geometry {
                block_size: BlockSize::B512,
                blocks: Blocks(2048),
                physical_exponent: 0,
            };
            let owner = Owner {
                identity: "disk".to_owned(),
                bytes: 1 << 20,
                writers: Writers::Unknown,
            };
            let device = Interrupted(Null::new(geometry), AtomicU64::new(0));
            let path = folder.path().join("journal");
            channels
                .keep_in(&path, ReplayRule::Auto, CAPACITY, &owner, &device)
                .await
                .expect("kept");
            assert_eq!(
                device.1.load(Relaxed),
                flushes,
                "{fencing:?}, the cache stays: {cache_stays}"
            );
            channels.leave();
        });
    }
}

/// Three channels. The handshake of one is answered before the disk loses its unflushed writes, and the reply
/// arrives after another channel has found the loss. The late reply proves neither that nothing was lost nor
/// that a second loss occurred.
#[test]
fn a_handshake_from_before_a_loss_resolves_no_doubt() {
    for (arrives_late, journal_bytes) in [(false, 1 << 20), (true, 1 << 20), (false, 0), (true, 0)]
    {
        block_on(Alone::exact_virtual_time(), async {
            let world = World::new(19, Fencing::ByAnyPath, Duration::ZERO);
            let three = Run {
                fencing: Fencing::ByAnyPath,
                channels: 3,
                journal_bytes,
                ..OF_OTHERS
            };
            let is_kept = u32::from(journal_bytes > 0);
            let channels = opened(&world, 19, &three).await;
            channels
                .ask(Asked::Write(0..4, 1, false))
                .await
                .expect("written");
            while channels.links().len() < 3 {
                sleep(Duration::from_micros(100)).await;
            }
            let [_, second, third] = [0, 1, 2].map(|place| Rc::clone(&world.links.borrow()[place]));
            world.holds_next_handshake.set(true);
            second.lose(Loss::Ended("cut".to_owned()), Duration::ZERO);
            while world.held_handshakes.borrow().is_empty() {
                sleep(Duration::from_micros(100)).await;
            }
            world.lose_writes(false);
            third.lose(Loss::Ended("cut".to_owned()), Duration::ZERO);
            let (losses, lost) = (channels.losses(), now());
            while !losses.get().is_in_doubt() {
                assert!(
                    now() < lost + Duration::from_secs(60),
                    "a read may lack a write, without a doubt"
                );
                sleep(Duration::from_micros(100)).await;
            }
            let arrive = || {
                world
                    .held_handshakes
                    .borrow()
                    .iter()
                    .for_each(|held| held.set(false))
            };
            if !arrives_late {
                arrive();
            }
            while channels.status().replays == 0 && losses.get().count() == 0 {
                assert!(
                    losses.get().is_in_doubt(),
                    "a read would count although it may lack a write"
                );
                sleep(Duration::from_micros(100)).await;
            }
            sleep(Duration::from_secs(1)).await;
            arrive();
            sleep(Duration::from_secs(20)).await;
            assert_eq!(
                losses.get(),
                Losses::counted((1 - is_kept).into()),
                "the journal, if any, had all of it"
            );
            assert_eq!(
                (channels.status().replays, channels.links().len()),
                (is_kept.into(), 3)
            );
            assert_eq!(channels.ask(Asked::Read(0..4)).await, Ok(vec![is_kept; 4]));
            channels.leave();
        });
    }
}

/// No connection is left. One handshake is answered before the disk loses its unflushed writes, and its reply
/// arrives after another channel has found the loss: it is no evidence of a second one.
#[test]
fn a_handshake_from_before_a_loss_is_no_evidence_of_another() {
    for is_alone in [false, true] {
        block_on(Alone::exact_virtual_time(), async {
            let world = World::new(19, Fencing::ByAnyPath, Duration::ZERO);
            let two = Run {
                fencing: Fencing::ByAnyPath,
                channels: 2,
                journal_bytes: 0,
                ..OF_OTHERS
            };
            let channels = opened(&world, 19, &two).await;
            let soon = || sleep(Duration::from_micros(100));
            while channels.links().len() < 2 {
                soon().await;
            }
            channels
                .ask(Asked::Write(0..4, 1, false))
                .await
                .expect("written");
            let [first, second] = [0, 1].map(|place| Rc::clone(&world.links.borrow()[place]));
            world.holds_next_handshake.set(true);
            first.lose(Loss::Ended("cut".to_owned()), Duration::ZERO);
            while world.held_handshakes.borrow().is_empty() {
                soon().await;
            }
            world.lose_writes(false);
            second.lose(Loss::Ended("cut".to_owned()), Duration::ZERO);
            while channels.links().is_empty() {
                soon().await;
            }
            assert_eq!(channels.losses().get(), Losses::counted(1));
            channels
                .ask(Asked::Write(0..4, 2, false))
                .await
                .expect("written");
            let used = Rc::clone(world.links.borrow().last().expect("the one in use"));
            if is_alone {
                used.lose(Loss::Ended("cut".to_owned()), Duration::ZERO);
            }
            world
                .held_handshakes
                .borrow()
                .iter()
                .for_each(|held| held.set(false));
            sleep(Duration::from_secs(20)).await;
            assert_eq!(
                channels.losses().get(),
                Losses::counted(1),
                "alone: {is_alone}"
            );
            assert_eq!(
                used.is_lost(),
                is_alone,
                "an old reply closes no connection"
            );
            assert_eq!(channels.ask(Asked::Read(0..4)).await, Ok(vec![2; 4]));
            channels.leave();
        });
    }
}

/// A disk reports a loss to only one flush, and the caller of that flush had abandoned it, or it timed out.
#[test]
fn the_error_of_a_flush_that_nobody_waits_for_fails_the_next_one() {
    for is_late in [false, true] {
        block_on(Alone::exact_virtual_time(), async {
            let world = World::new(3, Fencing::None, Duration::ZERO);
            let channels = opened_for(&world, 3, &OF_OTHERS, Duration::from_secs(2)).await;
            channels
                .ask(Asked::Write(0..4, 1, false))
                .await
                .expect("written");
            let wire = Rc::clone(world.links.borrow().last().expect("the one in use"));
            wire.inner.borrow_mut().held_until = Some(now() + Duration::from_secs(4));
            world.fails_next_flush.set(true);
            match is_late {
                true => assert_eq!(channels.ask(Asked::Flush).await, Err(Failed::TimedOut)),
                false => drop(timeout(Duration::from_secs(1), channels.ask(Asked::Flush)).await),
            }
            sleep(Duration::from_secs(5)).await;
            assert!(!world.fails_next_flush.get(), "it was carried out");
            assert_eq!(
                channels.ask(Asked::Flush).await,
                Err(Failed::WritesLost),
                "late: {is_late}"
            );
            assert_eq!(
                channels.ask(Asked::Flush).await,
                Ok(Vec::new()),
                "it is reported once"
            );
            assert_eq!(world.durable.borrow()[..4], [0; 4], "it is lost");
            channels.leave();
        });
    }
}

/// A connection that keeps delivering, but so slowly that a new request takes 5 s. No request times out while
/// replies keep arriving, not even one that waits for another.
#[test]
fn a_time_out_counts_from_the_last_progress_for_flushes_and_for_what_waits_for_others() {
    let (limit, slow) = (Duration::from_secs(2), Duration::from_secs(5));
    let [write, overlapping, apart] =
        [0..4, 2..6, 8..12].map(|range| Asked::Write(range, 1, false));
    for (journal_bytes, asked) in [
        (1 << 20, vec![Asked::Flush]),
        (1 << 20, vec![write.clone(), overlapping.clone()]),
        (
            1 << 20,
            vec![write.clone(), overlapping, Asked::Write(4..8, 2, false)],
        ),
        (3, vec![apart]), // no journal space before a flush
    ] {
        for delivers in [true, false] {
            block_on(Alone::exact_virtual_time(), async {
                let world = World::new(29, Fencing::None, Duration::ZERO);
                let run = Run {
                    journal_bytes,
                    ..OF_OTHERS
                };
                let channels = Rc::new(opened_for(&world, 29, &run, limit).await);
                channels.ask(write.clone()).await.expect("written");
                let wire = Rc::clone(world.links.borrow().last().expect("the one in use"));
                wire.inner.borrow_mut().held_until = Some(now() + slow);
                wire.inner.borrow_mut().delivers = delivers;
                let begun = now();
                let names: Vec<RequestKind> = asked.iter().map(Request::kind).collect();
                let asked: Vec<_> = asked
                    .iter()
                    .map(|asked| {
                        let (channels, asked) = (Rc::clone(&channels), asked.clone());
                        spawn(async move { channels.ask(asked).await })
                    })
                    .collect();
                for answer in asked {
                    let (answer, took) = (answer.await, now() - begun);
                    match delivers {
                        true => {
                            assert!(answer.is_ok() && took >= slow, "{answer:?} after {took:?}")
                        }
                        false => {
                            assert_eq!((answer, took), (Err(Failed::TimedOut), limit), "{names:?}")
                        }
                    }
                }
                channels.leave();
            });
        }
    }
}

/// The flush that replaces an abandoned one can be answered before it.
#[test]
fn no_flush_succeeds_before_one_that_was_given_up_is_answered() {
    let mut overtaken = 0;
    for seed in 1..=40 {
        block_on(Alone::exact_virtual_time(), async {
            let world = World::new(seed, Fencing::None, Duration::ZERO);
            let channels = opened(&world, seed, &OF_OTHERS).await;
            channels
                .ask(Asked::Write(0..4, 1, false))
                .await
                .expect("written");
            world.fails_next_flush.set(true);
            let _ = timeout(Duration::from_micros(1), channels.ask(Asked::Flush)).await;
            let begun = now();
            let flushed = channels.ask(Asked::Flush).await;
            overtaken += u64::from(flushed == Err(Failed::WritesLost));
            assert!(flushed.is_err(), "seed {seed}: after {:?}", now() - begun);
            assert_eq!(
                channels.ask(Asked::Flush).await,
                Ok(Vec::new()),
                "it is reported once"
            );
            channels.leave();
        });
    }
    assert!((5..40).contains(&overtaken), "{overtaken} of 40");
}

/// Flushes to a server that answers none of them do not accumulate.
#[test]
fn flushes_that_nobody_waits_for_are_bounded_and_end_with_the_channels() {
    block_on(Alone::exact_virtual_time(), async {
        let world = World::new(5, Fencing::None, Duration::ZERO);
        let channels = opened(&world, 5, &OF_OTHERS).await;
        let wire = Rc::clone(world.links.borrow().last().expect("the one in use"));
        wire.inner.borrow_mut().held_until = Some(now() + Duration::from_secs(3600));
        for _ in 0..100 {
            let _ = timeout(Duration::from_millis(1), channels.ask(Asked::Flush)).await;
        }
        let outstanding = || {
            let inner = wire.inner.borrow();
            (
                inner.tasks.len(),
                inner
                    .tasks
                    .values()
                    .filter(|task| task.is_abandoned)
                    .count(),
            )
        };
        assert_eq!(outstanding(), (16, 0), "their answers are waited for");
        channels.leave();
        yield_now().await;
        assert_eq!(outstanding(), (16, 16));
    });
}

/// A server that accepts every connection and closes it immediately is not retried in a tight loop: pauses
/// grow to seconds, and start over once a connection has lasted for a while. A connection that lasted a
/// second is replaced without a pause.
#[test]
fn a_connection_that_is_lost_at_once_is_followed_by_a_pause() {
    let alone = Run {
        fencing: Fencing::ByAnyPath,
        quarantine: QUARANTINE,
        channels: 1,
        is_coherent: true,
        journal_bytes: 1 << 20,
        writers: Writers::Unknown,
        has_losses: false,
    };
    block_on(Alone::exact_virtual_time(), async {
        let world = World::new(7, Fencing::ByAnyPath, Duration::ZERO);
        let channels = opened(&world, 7, &alone).await;
        let mut pauses = Vec::new();
        let lives = [0; 12]
            .into_iter()
            .chain([2, 0, 11, 0])
            .map(Duration::from_secs);
        for life in lives {
            while channels.links().is_empty() {
                sleep(Duration::from_micros(100)).await; // until it is in use
            }
            let wire = Rc::clone(world.links.borrow().last().expect("the one in use"));
            sleep(life).await;
            let lost_at = now();
            wire.lose(Loss::Ended("cut".to_owned()), Duration::ZERO);
            while world.asked_at.get() < lost_at {
                sleep(Duration::from_micros(100)).await;
            }
            pauses.push(world.asked_at.get() - lost_at);
        }
        let millis = |from: u64, to: u64| Duration::from_millis(from)..=Duration::from_millis(to);
        assert!(millis(25, 50).contains(&pauses[0]), "{pauses:?}");
        assert!(millis(50, 100).contains(&pauses[1]), "{pauses:?}");
        assert!(
            pauses[7..12]
                .iter()
                .all(|pause| millis(2500, 5000).contains(pause)),
            "{pauses:?}"
        );
        let [after_a_while, not_anew, after_long, anew] = pauses[12..] else {
            panic!("{pauses:?}")
        };
        assert!(
            after_a_while.is_zero() && millis(2500, 5000).contains(&not_anew),
            "{pauses:?}"
        );
        assert!(
            after_long.is_zero() && millis(25, 50).contains(&anew),
            "{pauses:?}"
        );
        channels.leave();
    });
}

/// The journal file has no room for a record, so each change waits for a flush. A loss, found by that flush or
/// by an earlier one that was abandoned, is left to the user's next flush.
#[test]
fn a_change_that_waits_for_space_in_the_journal_file_reports_no_loss_of_others() {
    for (is_abandoned, is_durable) in [(true, false), (true, true), (false, false), (false, true)] {
        block_on(Alone::exact_virtual_time(), async {
            let case = format!("an abandoned flush: {is_abandoned}, durable: {is_durable}");
            let folder = tempfile::tempdir().expect("a folder");
            let geometry = Geometry {
                block_size: BlockSize::B512,
                blocks: Blocks(2048),
                physical_exponent: 0,
            };
            let owner = Owner {
                identity: "disk".to_owned(),
                bytes: 1 << 20,
                writers: Writers::One,
            };
            let world = World::new(37, Fencing::None, Duration::ZERO);
            let channels = opened(&world, 37, &OF_OTHERS).await;
            channels
                .ask(Asked::Write(0..4, 1, false))
                .await
                .expect("written, and not in the file");
            let path = folder.path().join("journal");
            let kept = channels
                .keep_in(&path, ReplayRule::Auto, 16, &owner, &Null::new(geometry))
                .await;
            kept.expect("a new file");
            world.fails_next_flush.set(true);
            if is_abandoned {
                let _ = timeout(Duration::from_micros(1), channels.ask(Asked::Flush)).await;
                sleep(Duration::from_secs(1)).await;
            }
            assert_eq!(
                channels.ask(Asked::Write(2..6, 2, is_durable)).await,
                Ok(Vec::new()),
                "{case}"
            );
            assert!(
                !world.fails_next_flush.get(),
                "{case}: the server has lost writes"
            );
            assert_eq!(channels.losses().get(), Losses::counted(1), "{case}");
            assert_eq!(
                channels.ask(Asked::Flush).await,
                Err(Failed::WritesLost),
                "{case}"
            );
            assert_eq!(
                channels.ask(Asked::Flush).await,
                Ok(Vec::new()),
                "{case}: it is reported once"
            );
            channels.leave();
        });
    }
}

/// A flush that the user did not wait for finds a loss, and this process ends before or after the user's next
/// flush.
#[test]
fn a_loss_that_was_not_reported_is_reported_by_the_next_process() {
    #[derive(Clone, Copy, Debug)]
    enum FoundBy {
        /// The file has no room, so each change waits for a flush.
        Change,
        /// Then a stable write, whose flush succeeds, empties the file.
        AbandonedFlush,
        /// Then the user's next flush reports the loss, but the process is killed before the user has recorded
        /// it.
        ReportedFlush,
        /// Likewise, but another flush succeeds, and the device is closed. Both flushes may be a layer's own,
        /// such as those of RAID.
        ReportedFlushAndAnother,
        /// Then the user records the loss, and flushes again.
        Recorded,
        /// Then the user records the loss, and closes the device.
        RecordedAndClosed,
    }
    for (found_by, capacity, told) in [
        (FoundBy::Change, 16, Err(Failed::WritesLost)),
        (FoundBy::AbandonedFlush, CAPACITY, Err(Failed::WritesLost)),
        (FoundBy::ReportedFlush, CAPACITY, Err(Failed::WritesLost)),
        (
            FoundBy::ReportedFlushAndAnother,
            CAPACITY,
            Err(Failed::WritesLost),
        ),
        (FoundBy::Recorded, CAPACITY, Ok(Vec::new())),
        (FoundBy::RecordedAndClosed, CAPACITY, Ok(Vec::new())),
    ] {
        block_on(Alone::exact_virtual_time(), async {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("journal");
            let geometry = Geometry {
                block_size: BlockSize::B512,
                blocks: Blocks(2048),
                physical_exponent: 0,
            };
            let owner = Owner {
                identity: "disk".to_owned(),
                bytes: 1 << 20,
                writers: Writers::Several,
            };
            let world = World::new(41, Fencing::None, Duration::ZERO);
            let started = async || {
                let channels = opened(
                    &world,
                    41,
                    &Run {
                        writers: Writers::Several,
                        ..OF_OTHERS
                    },
                )
                .await;
                let device = Null::new(geometry);
                let kept = channels
                    .keep_in(&path, ReplayRule::Auto, capacity, &owner, &device)
                    .await;
                kept.expect("no other process uses the file");
                channels
            };
            let killed = async |channels: Channels<Network>| {
                channels.leave();
                drop(channels);
                sleep(Duration::from_secs(1)).await; // its tasks have ended
            };
            let channels = started().await;
            world.fails_next_flush.set(true);
            channels
                .ask(Asked::Write(0..4, 1, false))
                .await
                .expect("written");
            if !matches!(found_by, FoundBy::Change) {
                let _ = timeout(Duration::from_micros(1), channels.ask(Asked::Flush)).await;
                sleep(Duration::from_secs(1)).await;
                let write = channels.begin_stable_write();
                channels
                    .ask(Asked::Write(8..9, 2, false))
                    .await
                    .expect("written");
                assert_eq!(channels.end_stable_write(write).await, Ok(()));
            }
            assert!(
                !world.fails_next_flush.get(),
                "{found_by:?}: the server has lost writes"
            );
            if !matches!(found_by, FoundBy::Change | FoundBy::AbandonedFlush) {
                let reported = channels.ask(Asked::Flush).await;
                assert_eq!(reported, Err(Failed::WritesLost));
            }
            if matches!(found_by, FoundBy::Recorded | FoundBy::RecordedAndClosed) {
                let losses = channels.losses();
                losses.recorded(losses.get().count());
            }
            if matches!(
                found_by,
                FoundBy::ReportedFlushAndAnother | FoundBy::Recorded
            ) {
                assert_eq!(channels.ask(Asked::Flush).await, Ok(Vec::new()));
            }
            if matches!(
                found_by,
                FoundBy::ReportedFlushAndAnother | FoundBy::RecordedAndClosed
            ) {
                channels.close().await;
            }
            killed(channels).await;
            killed(started().await).await;
            let channels = started().await;
            let counted = channels.losses().get().count();
            assert_eq!(channels.ask(Asked::Flush).await, told, "{found_by:?}");
            let counts = channels.losses().get().count() - counted;
            assert_eq!(
                counts,
                u64::from(told.is_err()),
                "layers above, which started before, see it"
            );
            let losses = channels.losses();
            losses.recorded(losses.get().count());
            assert_eq!(channels.ask(Asked::Flush).await, Ok(Vec::new()));
            killed(channels).await;
            assert_eq!(
                started().await.ask(Asked::Flush).await,
                Ok(Vec::new()),
                "{found_by:?}: once"
            );
        });
    }
}
