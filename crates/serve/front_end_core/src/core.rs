//! A reactor thread of the server: the front ends' parts on it, its messages from other threads, and its
//! periodic tick.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use reactor::{JoinHandle, Receiver, Sender};
use volume::Volume;

use crate::budget::Budget;
use crate::front_end::{AbortOrder, Accepted, CoreFrontEnd};
use crate::last_flush::{RECORD_TIME, last_flush};
use crate::listener::{ListenAddress, Listeners, OpenedPart, Portal, Receiving};
use crate::server::{Phase, Server};
use crate::tally::CoreStatistics;
use crate::watched::Watched;
use crate::{growth, storage};

/// A closure that runs on a core's thread.
type CoreTask = Box<dyn FnOnce(&Rc<RunningCore>) + Send>;

/// A message to a core from another thread.
pub(crate) enum Message {
    Run(CoreTask),
    /// The server ends: ask hosts to log out, and end within this time.
    Drain(Duration),
}

/// A reactor thread's share of a server. Made by [`Server::new`], moved to its thread, and run there.
pub struct Core {
    pub(crate) index: usize,
    pub(crate) server: Arc<Server>,
    pub(crate) messages: Receiver<Message>,
}

/// What a front end's part of a core has access to.
#[derive(Clone)]
pub struct CoreHandle {
    /// The number of the core, from 0.
    pub core: usize,
    /// The server that it is part of.
    pub server: Arc<Server>,
    /// Memory that the commands of this core may hold, of all front ends.
    pub memory: Rc<Budget>,
}

/// A core while it runs.
pub struct RunningCore {
    index: usize,
    server: Arc<Server>,
    memory: Rc<Budget>,
    front_ends: Vec<Rc<dyn CoreFrontEnd>>,
    /// All listeners are on the first core.
    listeners: RefCell<Listeners>,
    /// The core that the first core gives the next connection to.
    next_login: Cell<usize>,
    /// Logins on this core, by the number that the first core has given each.
    logins: RefCell<BTreeMap<u64, JoinHandle<()>>>,
    /// Datagrams that the first core has opened for this one.
    receiving: RefCell<Vec<Receiving>>,
    /// The volumes that this core, the first one, looks after.
    watched: RefCell<Watched>,
}

impl Core {
    /// Serves until [`Server::shutdown`]. The first core binds the portals and reports their addresses, or
    /// why it could not, to `bound`; the others report nothing. True if all volumes were flushed before the
    /// end.
    pub async fn run(self, bound: std::sync::mpsc::Sender<io::Result<Vec<ListenAddress>>>) -> bool {
        let Core { index, server, mut messages } = self;
        // Before the first message, so that a core that hangs in it is seen too.
        server.note_tick(index, reactor::now());
        let memory = Budget::new(server.memory_of_a_core(), None);
        let handle = CoreHandle { core: index, server: Arc::clone(&server), memory: Rc::clone(&memory) };
        let front_ends =
            server.front_ends.iter().map(|front_end| Arc::clone(front_end).begin(handle.clone())).collect();
        let listeners = RefCell::new(Listeners::new(server.limits().logins));
        let watched = RefCell::default();
        let receiving = RefCell::default();
        let (next_login, logins) = (Cell::new(0), RefCell::default());
        let local = Rc::new(RunningCore {
            index,
            server,
            memory,
            front_ends,
            listeners,
            next_login,
            logins,
            receiving,
            watched,
        });
        if index == 0 {
            let portals = local.server.portals();
            match local.listen(&portals) {
                Ok(addresses) => {
                    local.watch_volumes();
                    drop(bound.send(Ok(addresses)));
                }
                Err(error) => {
                    drop(bound.send(Err(error)));
                    return true; // nothing was served
                }
            }
        }
        drop(bound);
        let _clock = reactor::spawn(tick(Rc::clone(&local)));
        while let Some(message) = messages.recv().await {
            match message {
                Message::Run(run) => run(&local),
                Message::Drain(grace) => return local.drain(grace).await,
            }
        }
        true
    }
}

impl RunningCore {
    /// This core's part of a front end, by its type.
    pub fn front_end<T: CoreFrontEnd>(&self) -> Option<Rc<T>> {
        self.front_ends.iter().find_map(|front_end| {
            let any: Rc<dyn Any> = Rc::<dyn CoreFrontEnd>::clone(front_end);
            any.downcast().ok()
        })
    }

    /// What each front end has counted on this core, by its name ([`crate::FrontEnd::name`]).
    pub fn statistics(&self) -> Vec<(&'static str, CoreStatistics)> {
        let names = self.server.front_ends.iter().map(|front_end| front_end.name());
        names.zip(self.front_ends.iter().map(|front_end| front_end.statistics())).collect()
    }

    /// Memory that the commands of this core may hold, of all front ends.
    pub fn memory(&self) -> &Budget {
        &self.memory
    }

    /// The part of the front end that a portal belongs to.
    pub(crate) fn front_end_of(&self, portal: &Portal) -> Option<&Rc<dyn CoreFrontEnd>> {
        let index = self.server.front_ends.iter().position(|front_end| front_end.name() == portal.front_end);
        index.and_then(|index| self.front_ends.get(index))
    }

    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    pub(crate) fn listen(self: &Rc<Self>, portals: &[Portal]) -> io::Result<Vec<ListenAddress>> {
        self.listeners.borrow_mut().set(self, portals)
    }

    /// Stops listening on this core on what is none of these portals.
    pub(crate) fn close_but(&self, portals: &[Portal]) {
        self.listeners.borrow_mut().close_but(portals);
        let all = std::mem::take(&mut *self.receiving.borrow_mut());
        let (stay, gone): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|receiving| receiving.stays_for_any(portals));
        *self.receiving.borrow_mut() = stay;
        gone.into_iter().for_each(Receiving::close);
    }

    /// Receives what the first core has opened for this one.
    pub(crate) fn receive(&self, wanted: Portal, number: u32, part: OpenedPart) {
        let receiving = Receiving::begin(self, wanted, number, part);
        self.receiving.borrow_mut().extend(receiving);
    }

    /// The core for the next login: each in its turn. A server that drains refuses logins, on the core that accepts them: the
    /// others take no messages.
    pub(crate) fn next_login_core(&self) -> usize {
        if self.server.phase() == Phase::Draining {
            return self.index;
        }
        let core = self.next_login.get();
        self.next_login.set((core + 1) % self.server.cores());
        core
    }

    /// Takes a connection through its login.
    pub(crate) fn log_in(self: &Rc<Self>, number: u64, accepted: Accepted) {
        let Some(front_end) = self.front_end_of(&accepted.portal) else { return self.forget_login(number) };
        let login = Rc::clone(front_end).accept(accepted);
        let local = Rc::clone(self);
        let task = reactor::spawn(async move {
            login.await;
            drop(local.logins.borrow_mut().remove(&number));
            local.forget_login(number);
        });
        self.logins.borrow_mut().insert(number, task);
    }

    /// Ends a connection that has not logged in. False if its login is over.
    pub(crate) fn end_login(&self, number: u64) -> bool {
        let login = self.logins.borrow_mut().remove(&number);
        login.map(JoinHandle::abort).is_some()
    }

    /// Tells the first core that a login is over.
    pub(crate) fn forget_login(&self, number: u64) {
        match self.index {
            0 => self.listeners.borrow().forget_login(number),
            _ => self.server.run_on(0, move |first| first.listeners.borrow().forget_login(number)),
        }
    }

    pub(crate) fn abort(&self, order: &AbortOrder, done: &Sender<()>) {
        self.front_ends.iter().for_each(|front_end| Rc::clone(front_end).abort(order, done));
    }

    /// The configuration has changed: each front end adapts its sessions on this core.
    pub(crate) fn adapt(self: &Rc<Self>, done: &Sender<()>) {
        self.memory.set_limit(self.server.memory_of_a_core());
        if self.index == 0 {
            self.listeners.borrow().set_limit(self.server.limits().logins);
            self.watch_volumes();
        }
        self.front_ends.iter().for_each(|front_end| Rc::clone(front_end).adapt(done));
    }

    /// Starts monitoring volumes that were added.
    fn watch_volumes(&self) {
        for (volume, name) in self.watched.borrow_mut().adapt(&self.server.volumes()) {
            let server = Arc::clone(&self.server);
            drop(reactor::spawn(growth::watch(Arc::clone(&server), Rc::clone(&name), Weak::clone(&volume))));
            drop(reactor::spawn(storage::watch(server, name, volume)));
        }
    }

    /// If a command was refused memory on this core since the last tick, cuts the connection of the slow peer
    /// that has held memory longest.
    fn reclaim_memory(&self, now: Instant) {
        if !self.memory.take_refusal() {
            return;
        }
        let holders = self.front_ends.iter().filter_map(|front_end| front_end.slowest_holder(now));
        if let Some(slowest) = holders.min_by_key(|holder| holder.since) {
            (slowest.cut)();
        }
    }

    /// Asks hosts to log out, waits for commands to end, then cuts the remaining connections. Returns whether
    /// the flush, which the first core does, succeeded.
    async fn drain(self: &Rc<Self>, grace: Duration) -> bool {
        let end = reactor::now() + grace;
        self.front_ends.iter().for_each(|front_end| front_end.ask_to_leave(grace));
        while reactor::now() < end && !self.front_ends.iter().all(|front_end| front_end.is_idle()) {
            reactor::sleep(DRAIN_STEP).await;
        }
        self.front_ends.iter().for_each(|front_end| front_end.close_all());
        // Their tasks see it on their next turn, and end their sessions.
        reactor::sleep(DRAIN_STEP).await;
        let drained = &self.server.drained;
        drained.fetch_add(1, Ordering::AcqRel);
        if self.index != 0 {
            return true;
        }
        // What other cores acknowledge is to be flushed as well. One that hangs is not waited for.
        while drained.load(Ordering::Acquire) < self.server.cores() && reactor::now() < end + DRAIN_MAX {
            reactor::sleep(DRAIN_STEP).await;
        }
        let until = end + FLUSH_END;
        self.flush_all(FLUSH_TIME.min(until.saturating_duration_since(reactor::now()))).await
    }

    /// Flushes all volumes, so that acknowledged writes are on stable storage. Concurrently, so that a
    /// hanging volume does not delay the others.
    async fn flush_all(&self, limit: Duration) -> bool {
        let mut all = true;
        let volumes = self.server.volumes();
        let flush = |volume: Arc<Volume>| async move { last_flush(&volume, limit).await };
        let flushing: Vec<_> =
            volumes.iter().map(|(name, volume)| (reactor::spawn(flush(Arc::clone(volume))), name)).collect();
        for (flushed, volume) in flushing {
            if let Err(cause) = flushed.await {
                tracing::error!(volume, %cause, "could not flush before leaving");
                all = false;
            }
        }
        all
    }
}

/// Handles timeouts: commands that take too long, silent peers, sockets that accept no data.
async fn tick(local: Rc<RunningCore>) {
    loop {
        let now = reactor::now();
        let mut busy = false;
        local.server.note_tick(local.index, now);
        if local.index == 0 {
            local.server.log_left_out();
        }
        for front_end in &local.front_ends {
            busy |= front_end.tick(now);
        }
        local.reclaim_memory(now);
        reactor::sleep(if busy { BUSY_TICK } else { IDLE_TICK }).await;
    }
}

/// Deadlines are in seconds; a resolution of a quarter is enough.
const BUSY_TICK: Duration = Duration::from_millis(250);
/// With no command in flight only silent peers are timed.
const IDLE_TICK: Duration = Duration::from_secs(1);
/// Beyond the grace, for cores that cut their last connections.
const DRAIN_MAX: Duration = Duration::from_millis(500);
const DRAIN_STEP: Duration = Duration::from_millis(20);
/// A last flush has this long, and less if hosts have used up their grace: it ends at [`FLUSH_END`].
const FLUSH_TIME: Duration = Duration::from_secs(4);
/// When the last flush ends at the latest, after the grace.
const FLUSH_END: Duration = Duration::from_secs(3);
/// From the end of the grace of [`Server::shutdown`], a server needs at most this long until each volume is flushed, or its loss is
/// recorded for the next start. A process that is ended earlier loses writes without a record.
pub const AFTER_GRACE: Duration = FLUSH_END.saturating_add(RECORD_TIME);

#[cfg(test)]
mod tests {
    use block::{BlockDevice, BlockSize, Blocks, Fault, FaultControl, Geometry, Null};
    use volume::{PersistentState, VolumeOptions};

    use super::*;
    use crate::last_flush::tests::{Paper, ReactorSleep};
    use crate::server::{Config, Limits};

    /// A device that hung, and a core that used up the grace, once left no time for the record: the process was ended before it.
    #[test]
    fn the_loss_of_a_hanging_volume_is_recorded_in_the_time_that_a_shutdown_has() {
        let (faults, paper) = (FaultControl::default(), Arc::new(Paper::slow(RECORD_TIME / 2)));
        let geometry = Geometry { block_size: BlockSize::B512, blocks: Blocks(8), physical_exponent: 0 };
        let device = Fault::new(Null::new(geometry), Arc::new(ReactorSleep), faults.clone());
        let state = Arc::clone(&paper) as Arc<dyn PersistentState>;
        let options = VolumeOptions { persistent_state: Some(state), ..VolumeOptions::default() };
        let volume = Volume::new(Arc::new(device) as Arc<dyn BlockDevice>, options).expect("nothing is kept");
        faults.hang();
        let volumes = vec![("v".to_owned(), volume)];
        let config = Config { volumes, portals: Vec::new(), limits: Limits::default() };
        // The second core hangs: its messages are never read.
        let (server, mut cores) = Server::new(config, 2, Vec::new());
        let first = cores.remove(0);
        let grace = Duration::from_secs(5);
        let (flushed, took) = reactor::block_on(reactor::Alone::virtual_time(), async {
            let start = reactor::now();
            server.shutdown(grace);
            let (bound, _addresses) = std::sync::mpsc::channel();
            (first.run(bound).await, reactor::now() - start)
        });
        assert!(!flushed);
        assert!(paper.mark().is_some(), "the loss is recorded");
        assert!(took <= grace + AFTER_GRACE, "{took:?}");
        assert!(took >= grace, "the core that hangs was waited for");
    }
}
