//! Access control of an agent: it serves peers that prove knowledge of the secret, one at a time.
//!
//! Unauthenticated connections are limited in number (a new one closes the oldest: a coordinator
//! authenticates within milliseconds), time (a few seconds) and bytes (one kilobyte). A second coordinator is
//! told which one the agent works for, and has to try again.

use std::cell::Cell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use reactor::{JoinHandle, Listener, Stream};

use crate::channel::{Broken, Channel};
use crate::wire::Secret;
use crate::wire::handshake::Refusal;
use crate::wire::message::Notification;

/// Unauthenticated connections at the same time.
const STRANGERS_MAX: usize = 8;

/// The pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);

/// The work for a coordinator, until it disconnects.
pub type Work = Pin<Box<dyn Future<Output = ()>>>;

/// State shared by all connections.
struct Door {
    secret: Secret,
    work: Box<dyn Fn(Channel) -> Work>,
    coordinator: Cell<Option<SocketAddr>>,
}

/// Accepts authenticated coordinators, one at a time, and runs `work` for each; never returns.
pub async fn keep(
    listener: &dyn Listener,
    secret: Secret,
    work: impl Fn(Channel) -> Work + 'static,
) -> Infallible {
    let door = Rc::new(Door { secret, work: Box::new(work), coordinator: Cell::new(None) });
    let mut strangers: VecDeque<JoinHandle<()>> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok(stream) => stream,
            Err(error) => {
                // No file descriptors or no memory: there may be some later.
                tracing::warn!(%error, "cannot accept a connection");
                reactor::sleep(PAUSE).await;
                continue;
            }
        };
        strangers.retain(|stranger| !stranger.is_finished());
        if strangers.len() >= STRANGERS_MAX {
            strangers.pop_front().into_iter().for_each(JoinHandle::abort);
        }
        strangers.push_back(reactor::spawn(open(Rc::clone(&door), stream)));
    }
}

async fn open(door: Rc<Door>, stream: Box<dyn Stream>) {
    let peer = stream.peer();
    match Channel::accept(stream, &door.secret, Notification::Alive.text()).await {
        Ok(channel) => drop(reactor::spawn(let_in(door, channel))),
        Err(why @ Broken::Refused(Refusal::WrongSecret)) => tracing::warn!("{peer} was not let in: {why}"),
        Err(why) => tracing::debug!("{peer} was not let in: {why}"),
    }
}

/// Serves an authenticated coordinator, which no longer counts as unauthenticated.
async fn let_in(door: Rc<Door>, channel: Channel) {
    let peer = channel.peer();
    if let Some(coordinator) = door.coordinator.get() {
        channel.sender.send(Notification::Busy { coordinator: coordinator.to_string() }.text());
        return channel.sender.close().await;
    }
    door.coordinator.set(Some(peer));
    (door.work)(channel).await;
    door.coordinator.set(None);
}
