//! Work that is waited for on a thread without a reactor: devices that are asked, many things at a time, and volumes that are
//! reached over a network, for which this server is a gateway. The sessions of those live on the reactors of the cores, by turns:
//! what is asked on the same core needs no other thread, and requests of other cores are passed on.

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use backends::Failure;
use block::{BlockDevice, DeviceError};
use host::{Epoll, EpollOptions};
use reactor::{Receiver, Sender, mailbox};
use volume::backend::Opening;
use volume::spec::Spec;

/// A device that takes longer is said not to answer.
pub(crate) const FLUSH_TIME: Duration = Duration::from_secs(10);
/// For the last commands of a volume to end.
pub(crate) const CLOSE_TIME: Duration = Duration::from_secs(10);

/// Waits for a device on this thread, which has no reactor.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    match Epoll::shared(EpollOptions::default()) {
        Ok(world) => reactor::block_on(world, work),
        Err(error) => {
            tracing::warn!(%error, "no epoll to be had for a change of the configuration");
            reactor::block_on(reactor::Alone::real_time(), work)
        }
    }
}

/// The answer of a device to a request that other orders, or the caller, must not wait for without a limit.
pub(crate) async fn answered<T>(
    request: impl Future<Output = Result<T, DeviceError>>,
) -> Result<T, DeviceError> {
    reactor::timeout(FLUSH_TIME, request).await.unwrap_or(Err(DeviceError::TimedOut))
}

/// How many volumes are opened at a time. A new volume's identity must be on the disk before it is served,
/// and a file system commits what waits together: 4,096 of them took 28 s one by one and take below 2 s so.
pub(crate) const OPENERS: usize = 32;

/// Does `work` for each of `things` on up to [`OPENERS`] threads; the results are in the order of the things.
pub(crate) fn at_once<T: Sync, R: Send>(things: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let run = || {
        let mut done = Vec::new();
        while let index = next.fetch_add(1, Ordering::Relaxed)
            && let Some(thing) = things.get(index)
        {
            done.push((index, work(thing)));
        }
        done
    };
    let mut done = thread::scope(|scope| {
        // The rest of the work is this thread's, and all of it if there are no threads to be had.
        let helpers = 1..OPENERS.min(things.len());
        let helpers: Vec<_> =
            helpers.map_while(|_| thread::Builder::new().spawn_scoped(scope, run).ok()).collect();
        let mut done = run();
        for helper in helpers {
            done.extend(helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    });
    debug_assert_eq!(done.len(), things.len(), "each is done once");
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// A volume to open: what it is, and with what.
pub(crate) type Remote = (Spec, Opening);

pub(crate) type Outcome = Result<Arc<dyn BlockDevice>, Failure>;

/// Reactors on which volumes are opened, by turns.
pub(crate) struct Openers {
    reactors: Vec<Sender<Job>>,
    turn: AtomicUsize,
}

/// A volume to be opened, and who hears of it under which number.
struct Job {
    remote: Remote,
    number: usize,
    told: mpsc::Sender<(usize, Outcome)>,
}

/// What a reactor opens.
pub(crate) struct Jobs(Receiver<Job>);

/// A core's end: what lives on one core is used until all have flushed their volumes, and behind that ([`Ends`]). Nothing is
/// ever sent: senders are dropped.
pub(crate) struct LastUse {
    flushed: mpsc::Sender<Infallible>,
    users: Arc<Vec<Sender<Infallible>>>,
    unused: Receiver<Infallible>,
}

/// The ends of all cores, which stay until this is dropped.
pub(crate) struct Ends {
    flushed: mpsc::Receiver<Infallible>,
    _users: Arc<Vec<Sender<Infallible>>>,
}

impl Openers {
    /// Those of so many reactors, which each attend to their jobs, and end when none of them is needed.
    pub(crate) fn of_cores(count: NonZeroUsize) -> (Openers, Vec<(Jobs, LastUse)>, Ends) {
        let (reactors, jobs): (Vec<_>, Vec<_>) = (0..count.get()).map(|_| mailbox()).unzip();
        let (users, unused): (Vec<_>, Vec<_>) = (0..count.get()).map(|_| mailbox()).unzip();
        let (flushed, all_flushed) = mpsc::channel();
        let users = Arc::new(users);
        let last_use = |unused| LastUse { flushed: flushed.clone(), users: Arc::clone(&users), unused };
        let cores = jobs.into_iter().map(Jobs).zip(unused.into_iter().map(last_use)).collect();
        debug_assert_eq!(reactors.len(), users.len(), "each core has both");
        let openers = Openers { reactors, turn: AtomicUsize::new(0) };
        (openers, cores, Ends { flushed: all_flushed, _users: users })
    }

    /// One on a thread of its own, which ends with this.
    pub(crate) fn aside() -> Result<Openers, Failure> {
        let (reactor, jobs) = mailbox();
        let world = move || -> Result<(), Failure> {
            let world = Epoll::shared(EpollOptions::default()).map_err(Failure::failed)?;
            reactor::block_on(world, Jobs(jobs).attend());
            Ok(())
        };
        thread::Builder::new().name("remote".to_owned()).spawn(world).map_err(Failure::failed)?;
        Ok(Openers { reactors: vec![reactor], turn: AtomicUsize::new(0) })
    }

    /// Opens all of them at once. The results are in the order of the volumes.
    pub(crate) fn open(&self, volumes: Vec<Remote>) -> Vec<Outcome> {
        let mut outcomes: Vec<Outcome> =
            volumes.iter().map(|_| Err(Failure::failed("the reactor of remote volumes has ended"))).collect();
        debug_assert!(!self.reactors.is_empty(), "a server has cores");
        let (told, heard) = mpsc::channel();
        for (number, remote) in volumes.into_iter().enumerate() {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.reactors.len();
            // Of a reactor that has ended nothing is heard.
            let _ = self.reactors[turn].send(Job { remote, number, told: told.clone() });
        }
        drop(told);
        for (number, outcome) in heard {
            outcomes[number] = outcome;
        }
        outcomes
    }
}

impl Jobs {
    /// Opens what is asked for, as long as somebody may ask.
    pub(crate) async fn attend(mut self) {
        while let Some(Job { remote: (spec, opening), number, told }) = self.0.recv().await {
            drop(reactor::spawn(async move {
                // The receiver may have been dropped meanwhile.
                let _ = told.send((number, spec.open(&opening).await.map_err(Failure::from)));
            }));
        }
    }
}

impl LastUse {
    /// Waits until nobody uses this core.
    pub(crate) async fn ended(mut self) {
        drop((self.flushed, self.users));
        self.unused.recv().await;
    }
}

impl Ends {
    /// Waits until every core has flushed its volumes, or is gone.
    pub(crate) fn all_flushed(&self) {
        while self.flushed.recv().is_ok() {}
    }
}
