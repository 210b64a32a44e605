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

type Outcome = Result<Arc<dyn BlockDevice>, Failure>;

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

/// A core's end: sessions on one core are used by others until all have flushed their volumes.
pub(crate) struct LastUse {
    /// Of every core. Nothing is ever sent: they are dropped.
    others: Arc<Vec<Sender<Infallible>>>,
    mine: Receiver<Infallible>,
}

impl Openers {
    /// Those of so many reactors, which each attend to their jobs, and end when none of them is needed.
    pub(crate) fn of_cores(count: NonZeroUsize) -> (Openers, Vec<(Jobs, LastUse)>) {
        let (reactors, jobs): (Vec<_>, Vec<_>) = (0..count.get()).map(|_| mailbox()).unzip();
        let (others, mine): (Vec<_>, Vec<_>) = (0..count.get()).map(|_| mailbox()).unzip();
        let others = Arc::new(others);
        let last_uses = mine.into_iter().map(|mine| LastUse { others: Arc::clone(&others), mine });
        let cores = jobs.into_iter().map(Jobs).zip(last_uses).collect();
        (Openers { reactors, turn: AtomicUsize::new(0) }, cores)
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
    /// Waits until every core is here, or gone.
    pub(crate) async fn ended(mut self) {
        drop(self.others);
        self.mine.recv().await;
    }
}
