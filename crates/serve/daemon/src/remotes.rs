//! Volumes that are reached over a network, for which this server is a gateway. Their sessions live on the reactors of the
//! cores, by turns: what is asked on the same core needs no other thread, and requests of other cores are passed on.

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use block::BlockDevice;
use host::{Epoll, EpollOptions};
use reactor::{Receiver, Sender, mailbox};

use backends::Failure;
use volume::backend::Opening;
use volume::spec::Spec;

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
