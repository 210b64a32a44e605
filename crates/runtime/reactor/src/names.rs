//! Addresses of hosts.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::thread;

use crate::mailbox::mailbox;

/// The addresses of a host that is given by a name, by an IPv4 address or by an IPv6 address without brackets. A name is
/// looked up by the system's resolver, which blocks: on a thread of its own, so that nothing else of this one waits.
pub async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (answer, mut answered) = mailbox();
    let host = host.to_owned();
    thread::Builder::new().name("resolver".to_owned()).spawn(move || {
        let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
        // Nobody may want it any more.
        let _ = answer.send(found);
    })?;
    answered.recv().await.unwrap_or_else(|| Err(io::ErrorKind::Other.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Alone, block_on};

    #[test]
    fn addresses_are_taken_as_they_are_and_names_are_looked_up() {
        block_on(Alone::real_time(), async {
            let of = async |host: &str| resolve(host, 7).await.expect("addresses");
            assert_eq!(of("::1").await, [SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 7))]);
            assert_eq!(of("192.0.2.1").await, [SocketAddr::from(([192, 0, 2, 1], 7))]);
            assert!(
                of("localhost").await.iter().all(|address| address.ip().is_loopback() && address.port() == 7)
            );
        });
    }
}
