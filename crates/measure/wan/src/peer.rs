//! The other end of plain TCP in a host of the lab: `linerate lab peer` on a thread.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use host::{Epoll, EpollOptions};
use reactor::{ListenOptions, Receiver, Sender, StreamOptions, mailbox};

use crate::service;
use backends::Failure;
use bench_runner::site::Site;

/// A peer that answers until it is dropped.
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// Its thread ends when all senders are dropped.
    alive: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Peer {
    /// Answers on the network of this site.
    pub(crate) fn start(listen: SocketAddr, stream: StreamOptions, site: &Site) -> Result<Peer, Failure> {
        let (alive, end) = mailbox();
        let (tell, bound) = mpsc::channel();
        let site = site.clone();
        let main = move || {
            let ran = site.run(|| serve(listen, stream, end, &tell)).and_then(|served| served);
            // The receiver has got the address, or gets this error.
            let _ = ran.map_err(|failure| tell.send(Err(failure)));
        };
        let thread = thread::Builder::new().name("peer".to_owned()).spawn(main).map_err(Failure::failed)?;
        let address = bound.recv().map_err(|_| Failure::failed("the peer did not start"))??;
        Ok(Peer { address, alive: Some(alive), thread: Some(thread) })
    }
}

fn serve(
    listen: SocketAddr,
    stream: StreamOptions,
    mut end: Receiver<()>,
    tell: &mpsc::Sender<Result<SocketAddr, Failure>>,
) -> Result<(), Failure> {
    let world = Epoll::shared(EpollOptions::default()).map_err(Failure::failed)?;
    reactor::block_on(world, async {
        let listener = reactor::world().listen(listen, &ListenOptions { stream });
        let listener =
            listener.map_err(|error| Failure::failed(format_args!("cannot listen on {listen}: {error}")))?;
        // Otherwise the receiver was dropped.
        let _ = tell.send(Ok(listener.local()));
        let answering = reactor::spawn(async move { service::keep(&*listener).await });
        end.recv().await;
        answering.abort();
        Ok(())
    })
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.alive = None;
        // A thread that broke down has said why.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
