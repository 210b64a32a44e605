//! Blocking work on threads without a reactor: waiting for devices, many jobs in parallel, and opening
//! network volumes, for which this server is a gateway. The sessions of network volumes are distributed
//! round-robin over the reactors of the cores. Requests from the same core need no other thread; requests
//! from other cores are passed on.

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

/// A device that takes longer than this to flush counts as unresponsive.
pub(crate) const FLUSH_TIME: Duration = Duration::from_secs(10);
/// Time limit for the last commands of a volume.
pub(crate) const CLOSE_TIME: Duration = Duration::from_secs(10);

/// Waits for a device on this thread, which has no reactor.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    match Epoll::shared(EpollOptions::default()) {
        Ok(world) => reactor::block_on(world, work),
        Err(error) => {
            tracing::warn!(%error, "cannot create an epoll instance for a change of the configuration");
            reactor::block_on(reactor::Alone::real_time(), work)
        }
    }
}

/// Awaits a request to a device, with a time limit, so that neither the caller nor other orders wait
/// indefinitely.
pub(crate) async fn answered<T>(
    request: impl Future<Output = Result<T, DeviceError>>,
) -> Result<T, DeviceError> {
    reactor::timeout(FLUSH_TIME, request)
        .await
        .unwrap_or(Err(DeviceError::TimedOut))
}

/// Number of volumes to open concurrently. A new volume's identity must be on disk before it is served, and a
/// file system commits concurrent writes together: opening 4,096 volumes took 28 s one by one, and takes less
/// than 2 s this way.
pub(crate) const OPENERS: usize = 32;

/// Runs `work` for each of `things` on up to [`OPENERS`] threads; the results are in the order of `things`.
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
        // This thread does a share of the work, or all of it if no thread can be started.
        let helpers = 1..OPENERS.min(things.len());
        let helpers: Vec<_> = helpers
            .map_while(|_| thread::Builder::new().spawn_scoped(scope, run).ok())
            .collect();
        let mut done = run();
        for helper in helpers {
            done.extend(
                helper
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            );
        }
        done
    });
    debug_assert_eq!(done.len(), things.len(), "each is done once");
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// The specification of a volume to open, and the context for opening it.
pub(crate) type Remote = (Spec, Opening);

pub(crate) type Outcome = Result<Arc<dyn BlockDevice>, Failure>;

/// Reactors that open volumes, round-robin.
pub(crate) struct Openers {
    reactors: Vec<Sender<Job>>,
    turn: AtomicUsize,
}

/// A volume to open, with its number and the receiver of the result.
struct Job {
    remote: Remote,
    number: usize,
    told: mpsc::Sender<(usize, Outcome)>,
}

/// The jobs of one reactor.
pub(crate) struct Jobs(Receiver<Job>);

/// A core's part in the shutdown. Other cores may use the devices of this core until all cores have flushed
/// their volumes, and afterwards until [`Ends`] is dropped. Nothing is ever sent on the channels: the signal
/// is that all senders are dropped.
pub(crate) struct LastUse {
    flushed: mpsc::Sender<Infallible>,
    users: Arc<Vec<Sender<Infallible>>>,
    unused: Receiver<Infallible>,
}

/// The shutdown of all cores. The cores keep running until this value is dropped.
pub(crate) struct Ends {
    flushed: mpsc::Receiver<Infallible>,
    _users: Arc<Vec<Sender<Infallible>>>,
}

impl Openers {
    /// Creates openers on `count` reactors. Each reactor processes its jobs, and ends when no core
    /// is needed any longer.
    pub(crate) fn of_cores(count: NonZeroUsize) -> (Openers, Vec<(Jobs, LastUse)>, Ends) {
        let (reactors, jobs): (Vec<_>, Vec<_>) = (0..count.get()).map(|_| mailbox()).unzip();
        let (users, unused): (Vec<_>, Vec<_>) = (0..count.get()).map(|_| mailbox()).unzip();
        let (flushed, all_flushed) = mpsc::channel();
        let users = Arc::new(users);
        let last_use = |unused| LastUse {
            flushed: flushed.clone(),
            users: Arc::clone(&users),
            unused,
        };
        let cores = jobs
            .into_iter()
            .map(Jobs)
            .zip(unused.into_iter().map(last_use))
            .collect();
        debug_assert_eq!(reactors.len(), users.len(), "each core has both");
        let openers = Openers {
            reactors,
            turn: AtomicUsize::new(0),
        };
        (
            openers,
            cores,
            Ends {
                flushed: all_flushed,
                _users: users,
            },
        )
    }

    /// Creates an opener on a separate thread. The thread ends when this value is dropped.
    pub(crate) fn aside() -> Result<Openers, Failure> {
        let (reactor, jobs) = mailbox();
        let world = move || -> Result<(), Failure> {
            let world = Epoll::shared(EpollOptions::default()).map_err(Failure::failed)?;
            reactor::block_on(world, Jobs(jobs).attend());
            Ok(())
        };
        thread::Builder::new()
            .name("remote".to_owned())
            .spawn(world)
            .map_err(Failure::failed)?;
        Ok(Openers {
            reactors: vec![reactor],
            turn: AtomicUsize::new(0),
        })
    }

    /// Opens all volumes concurrently. The results are in the order of the volumes.
    pub(crate) fn open(&self, volumes: Vec<Remote>) -> Vec<Outcome> {
        let mut outcomes: Vec<Outcome> = volumes
            .iter()
            .map(|_| Err(Failure::failed("the reactor of remote volumes has ended")))
            .collect();
        debug_assert!(!self.reactors.is_empty(), "a server has cores");
        let (told, heard) = mpsc::channel();
        for (number, remote) in volumes.into_iter().enumerate() {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.reactors.len();
            // A reactor that has ended sends no result.
            let _ = self.reactors[turn].send(Job {
                remote,
                number,
                told: told.clone(),
            });
        }
        drop(told);
        for (number, outcome) in heard {
            outcomes[number] = outcome;
        }
        outcomes
    }
}

impl Jobs {
    /// Opens the requested volumes, until no more requests can arrive.
    pub(crate) async fn attend(mut self) {
        while let Some(Job {
            remote: (spec, opening),
            number,
            told,
        }) = self.0.recv().await
        {
            drop(reactor::spawn(async move {
                // The receiver may have been dropped.
                let _ = told.send((number, spec.open(&opening).await.map_err(Failure::from)));
            }));
        }
    }
}

impl LastUse {
    /// Waits until this core has no more users.
    pub(crate) async fn ended(mut self) {
        drop((self.flushed, self.users));
        self.unused.recv().await;
    }
}

impl Ends {
    /// Waits until every core has flushed its volumes or has ended.
    pub(crate) fn all_flushed(&self) {
        while self.flushed.recv().is_ok() {}
    }
}
