//! Who may come in: whoever proves that he knows the secret, one at a time.
//!
//! Strangers are few (the oldest goes when one more comes: a coordinator is through in a few milliseconds), have a few
//! seconds, and may say a kilobyte. A second coordinator is told for whom the agent works, and has to come again.

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

/// Connections whose other side has not proved anything yet.
const STRANGERS_MAX: usize = 8;

/// Before a connection is accepted again, if that has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// What is done for a coordinator, until it is gone.
pub type Work = Pin<Box<dyn Future<Output = ()>>>;

/// What all connections share.
struct Door {
    secret: Secret,
    work: Box<dyn Fn(Channel) -> Work>,
    coordinator: Cell<Option<SocketAddr>>,
}

/// Lets in who knows the secret, one at a time, and does `work` for it; for ever.
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

/// One who knows the secret. He is a stranger no more, and not in the way of others who come.
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
