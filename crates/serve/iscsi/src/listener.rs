//! The portals: binding them, and taking in what connects.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use reactor::{JoinHandle, ListenOptions, Listener, Stream};

use crate::access::AddressBlock;
use crate::admission::{Door, LOG};
use crate::config::Portal;
use crate::core::Local;
use crate::logins::Logins;

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
    let logins = Rc::new(RefCell::new(Logins::new(local.server.config.limits.logins)));
    for (portal, listener) in bound {
        reactor::spawn(accept(Rc::clone(local), Rc::clone(&logins), portal, listener));
    }
    Ok(addresses)
}

async fn accept(local: Rc<Local>, logins: SharedLogins, portal: Portal, listener: Box<dyn Listener>) {
    let mut burst = 0u32;
    loop {
        match listener.try_accept() {
            Ok(stream) => {
                welcome(&local, &logins, &portal, stream);
                burst = (burst + 1) % BURST;
                if burst == 0 {
                    reactor::yield_now().await; // those that are here have a word before they must give way
                }
            }
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

fn welcome(local: &Rc<Local>, logins: &SharedLogins, portal: &Portal, stream: Box<dyn Stream>) {
    let (server, peer) = (&local.server, stream.peer());
    let (address, block) = (peer.ip(), AddressBlock::of(peer.ip()));
    let most = server.config.limits.connections_per_address;
    if !server.registry.enter(address, most) {
        // One that has not logged in makes room for one that may.
        let ended = logins.borrow_mut().take_oldest(block);
        if let Some(login) = ended {
            give_way(local, login);
        }
        if !server.registry.enter(address, most) {
            if server.may_log(address) {
                tracing::warn!(target: LOG, %peer, most, "refused: too many connections from this address");
            }
            return;
        }
    }
    let door = Door::new(local, portal.tag, stream);
    let begin = |number| {
        let logins = Rc::clone(logins);
        let task = reactor::spawn(async move {
            door.admit().await;
            drop(logins.borrow_mut().remove(number));
        });
        Login { task, peer }
    };
    let ended = logins.borrow_mut().add(block, begin, |block| server.registry.has_sessions(block));
    if let Some(login) = ended {
        give_way(local, login);
    }
}

/// Ends a connection that has not logged in.
fn give_way(local: &Rc<Local>, login: Login) {
    login.task.abort();
    if local.server.may_log(login.peer.ip()) {
        let why = "it gave way to newer connections that want to log in";
        tracing::warn!(target: LOG, peer = %login.peer, why, "login refused");
    }
}

/// A connection on its way through its login.
struct Login {
    task: JoinHandle<()>,
    peer: SocketAddr,
}

type SharedLogins = Rc<RefCell<Logins<Login>>>;

/// Connections taken in at once.
const BURST: u32 = 16;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
