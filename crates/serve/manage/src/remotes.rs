//! Volumes that are reached over a network, for which this server is a gateway. Their sessions run on a
//! reactor of their own as long as the process; requests of the cores are passed to it.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use block::BlockDevice;
use host::{Epoll, EpollOptions};

use backends::Failure;
use volume::backend::Opening;
use volume::spec::Spec;

/// A volume to open: what it is, and with what.
pub(crate) type Remote = (Spec, Opening);

type Outcome = Result<Arc<dyn BlockDevice>, Failure>;

/// Opens all of them at once. The results are in the order of the volumes.
pub(crate) fn open(volumes: Vec<Remote>) -> Result<Vec<Outcome>, Failure> {
    if volumes.is_empty() {
        return Ok(Vec::new());
    }
    let count = volumes.len();
    let (told, heard) = mpsc::channel();
    let world = move || -> Result<(), Failure> {
        let world = Epoll::shared(EpollOptions::default()).map_err(Failure::failed)?;
        reactor::block_on(world, sessions(volumes, told));
        Ok(())
    };
    thread::Builder::new().name("remote".to_owned()).spawn(world).map_err(Failure::failed)?;
    Ok(collected(&heard, count))
}

/// Never ends: the sessions need their reactor.
async fn sessions(volumes: Vec<Remote>, told: Sender<(usize, Outcome)>) {
    for (index, (spec, opening)) in volumes.into_iter().enumerate() {
        let told = told.clone();
        // The receiver may have been dropped meanwhile.
        reactor::spawn(async move {
            let opened = spec.open(&opening).await.map_err(Failure::from);
            let _ = told.send((index, opened));
        });
    }
    drop(told);
    std::future::pending().await
}

fn collected(heard: &Receiver<(usize, Outcome)>, count: usize) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> =
        (0..count).map(|_| Err(Failure::failed("the thread of remote volumes has ended"))).collect();
    for (index, outcome) in heard {
        outcomes[index] = outcome;
    }
    outcomes
}
