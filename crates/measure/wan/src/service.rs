//! A service for a limited number of concurrent connections.

use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use bench::raw;
use reactor::{Listener, Stream};

/// Connections that are answered at once; one more is closed at once. Those who say nothing for
/// `raw::SILENCE_MAX` are closed too, so that idle peers do not block others.
pub const CONNECTIONS_MAX: u32 = 64;
/// What each of them reads and writes, again and again: larger than a core's caches of most machines are.
const MEMORY_BYTES: usize = 4 << 20;
/// Before a connection is accepted again, if that has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves all connections; never returns.
pub async fn keep(listener: &dyn Listener) -> Infallible {
    let present = Rc::new(Cell::new(0));
    loop {
        match listener.accept().await {
            Ok(stream) => {
                if let Some(slot) = ConnectionSlot::enter(&present) {
                    drop(reactor::spawn(answer(slot, stream)));
                }
            }
            Err(error) => {
                // No file descriptors or no memory: there may be some later.
                tracing::warn!(%error, "cannot accept a connection");
                reactor::sleep(PAUSE).await;
            }
        }
    }
}

async fn answer(_slot: ConnectionSlot, stream: Box<dyn Stream>) {
    let mut memory = vec![0x5a; MEMORY_BYTES];
    if let Err(error) = raw::serve(&*stream, &mut memory).await {
        // One who has measured enough goes away in the middle, which is no failure.
        tracing::debug!(peer = %stream.peer(), %error, "a connection has ended");
    }
}

/// A counted connection.
struct ConnectionSlot(Rc<Cell<u32>>);

impl ConnectionSlot {
    fn enter(present: &Rc<Cell<u32>>) -> Option<ConnectionSlot> {
        let count = present.get();
        (count < CONNECTIONS_MAX).then(|| {
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
            (0..CONNECTIONS_MAX).filter_map(|_| ConnectionSlot::enter(&present)).collect();
        assert_eq!(guests.len(), CONNECTIONS_MAX as usize);
        assert!(ConnectionSlot::enter(&present).is_none());
        guests.pop();
        assert!(ConnectionSlot::enter(&present).is_some());
    }
}
