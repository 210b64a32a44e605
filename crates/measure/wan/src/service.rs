//! A service for a limited number of concurrent connections.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bench::raw;
use reactor::{Listener, Stream};

use backends::Failure;

/// Connections that are answered at once; one more is closed at once. Those who say nothing for
/// `raw::SILENCE_MAX` are closed too, so that idle peers do not block others.
pub const CONNECTIONS_MAX: u32 = 64;
/// What each of them reads and writes, again and again: larger than a core's caches of most machines are.
const MEMORY_BYTES: usize = 4 << 20;
/// Before a connection is accepted again, if that has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves all connections; never returns.
pub async fn keep(listener: &dyn Listener) -> Result<(), Failure> {
    let answer = |stream: Box<dyn Stream>| async move {
        let mut memory = vec![0x5a; MEMORY_BYTES];
        raw::serve(&*stream, &mut memory).await
    };
    match answer_each(listener, CONNECTIONS_MAX, answer).await {}
}

/// Answers each connection, `most` of them at once; one more is closed at once. Never returns.
pub async fn answer_each<F: Future<Output = io::Result<()>> + 'static>(
    listener: &dyn Listener,
    most: u32,
    answer: impl Fn(Box<dyn Stream>) -> F,
) -> Infallible {
    let present = Rc::new(Cell::new(0));
    loop {
        match listener.accept().await {
            Ok(stream) => {
                let peer = stream.peer();
                let answered = ConnectionSlot::enter(&present, most).map(|slot| (slot, answer(stream)));
                drop(answered.map(|(slot, answered)| reactor::spawn(end(slot, peer, answered))));
            }
            Err(error) => {
                // No file descriptors or no memory: there may be some later.
                tracing::warn!(%error, "cannot accept a connection");
                reactor::sleep(PAUSE).await;
            }
        }
    }
}

async fn end(_slot: ConnectionSlot, peer: SocketAddr, answered: impl Future<Output = io::Result<()>>) {
    if let Err(error) = answered.await {
        // One who has measured enough goes away in the middle, which is no failure.
        tracing::debug!(%peer, %error, "a connection has ended");
    }
}

/// A counted connection.
struct ConnectionSlot(Rc<Cell<u32>>);

impl ConnectionSlot {
    fn enter(present: &Rc<Cell<u32>>, most: u32) -> Option<ConnectionSlot> {
        let count = present.get();
        (count < most).then(|| {
            present.set(count + 1);
            ConnectionSlot(Rc::clone(present))
        })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_house_lets_nobody_in_until_somebody_leaves() {
        let present = Rc::default();
        let mut guests: Vec<ConnectionSlot> =
            (0..CONNECTIONS_MAX).filter_map(|_| ConnectionSlot::enter(&present, CONNECTIONS_MAX)).collect();
        assert_eq!(guests.len(), CONNECTIONS_MAX as usize);
        assert!(ConnectionSlot::enter(&present, CONNECTIONS_MAX).is_none());
        guests.pop();
        assert!(ConnectionSlot::enter(&present, CONNECTIONS_MAX).is_some());
    }
}
