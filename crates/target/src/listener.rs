//! The portals: binding them, and taking in what connects.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use reactor::{ListenOptions, Listener, Stream};

use crate::admission::{self, LOG};
use crate::config::Portal;
use crate::core::Local;

/// Binds all portals and begins to accept; or none, and says which one failed.
pub(crate) fn bind(local: &Rc<Local>) -> io::Result<Vec<SocketAddr>> {
    let world = reactor::world();
    let mut bound: Vec<(Portal, Box<dyn Listener>)> = Vec::new();
    for portal in &local.server.config.portals {
        let options = ListenOptions { stream: portal.stream.clone() };
        let listener = world
            .listen(portal.listen, &options)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", portal.listen)))?;
        bound.push((Portal { listen: listener.local(), ..portal.clone() }, listener));
    }
    let portals: Vec<Portal> = bound.iter().map(|(portal, _)| portal.clone()).collect();
    let addresses = portals.iter().map(|portal| portal.listen).collect();
    // The first core binds once in a server's life.
    let _ = local.server.portals.set(portals);
    for (portal, listener) in bound {
        reactor::spawn(accept(Rc::clone(local), portal, listener));
    }
    Ok(addresses)
}

async fn accept(local: Rc<Local>, portal: Portal, listener: Box<dyn Listener>) {
    loop {
        match listener.try_accept() {
            Ok(stream) => welcome(&local, &portal, stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if poll_fn(|cx| listener.poll_acceptable(cx)).await.is_err() {
                    reactor::sleep(ACCEPT_PAUSE).await;
                }
            }
            Err(error) => {
                // Out of descriptors, most likely; those that end will make room.
                tracing::warn!(portal = %portal.listen, %error, "cannot accept a connection");
                reactor::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn welcome(local: &Rc<Local>, portal: &Portal, stream: Box<dyn Stream>) {
    let (address, most) = (stream.peer().ip(), local.server.config.limits.connections_per_address);
    if !local.server.registry.enter(address, most) {
        if local.server.may_log(address) {
            let peer = stream.peer();
            tracing::warn!(target: LOG, %peer, most, "refused: too many connections from this address");
        }
        return;
    }
    reactor::spawn(admission::admit(Rc::clone(local), portal.tag, stream));
}

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
