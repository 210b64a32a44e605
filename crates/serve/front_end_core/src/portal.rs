//! Portals: the addresses that hosts connect to, and their front ends.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use reactor::{DatagramEndpoint, DatagramOptions, Datagrams, StreamOptions};

/// The address of a portal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// An address of this host. Port 0 selects a free port.
    Inet(SocketAddr),
    /// A Unix socket with this path. Its clients count as 127.0.0.1, with port 0.
    Unix(PathBuf),
    /// Datagrams, which the front end [receives](crate::CoreFrontEnd::receive) itself.
    Datagrams(DatagramOptions),
}

impl ListenAddress {
    /// The address, if it is an Internet address.
    pub fn inet(&self) -> Option<SocketAddr> {
        match self {
            ListenAddress::Inet(address) => Some(*address),
            ListenAddress::Unix(_) | ListenAddress::Datagrams(_) => None,
        }
    }

    /// Returns the URL that is displayed: `SCHEME://ADDR:PORT`, `SCHEME+unix://PATH`, `SCHEME://INTERFACE` or
    /// `SCHEME+udp://ADDR:PORT`.
    pub fn url(&self, scheme: &str) -> String {
        match self {
            ListenAddress::Inet(address) => format!("{scheme}://{address}"),
            ListenAddress::Unix(path) => format!("{scheme}+unix://{}", path.display()),
            ListenAddress::Datagrams(DatagramOptions {
                endpoint: DatagramEndpoint::Ethernet { interface, .. },
                ..
            }) => format!("{scheme}://{interface}"),
            ListenAddress::Datagrams(DatagramOptions {
                endpoint: DatagramEndpoint::Udp(address),
                ..
            }) => {
                format!("{scheme}+udp://{address}")
            }
        }
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> ListenAddress {
        ListenAddress::Inet(address)
    }
}

/// `ADDR:PORT`, `unix:PATH`, the name of an interface, or `udp:ADDR:PORT`.
impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Inet(address) => address.fmt(f),
            ListenAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            ListenAddress::Datagrams(options) => match &options.endpoint {
                DatagramEndpoint::Ethernet { interface, .. } => f.write_str(interface),
                DatagramEndpoint::Udp(address) => write!(f, "udp:{address}"),
            },
        }
    }
}

/// An address to listen on, and the front end whose hosts connect there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portal {
    /// The name of the front end ([`FrontEnd::name`](crate::FrontEnd::name)).
    pub front_end: &'static str,
    /// The address to listen on.
    pub listen: ListenAddress,
    /// A number whose meaning depends on the front end. In iSCSI it is the portal group tag, at least 1 (RFC
    /// 7143 section 4.4.1).
    pub tag: u16,
    /// The address that discovery reports instead, for targets behind address translation: `host:port`.
    pub advertise: Option<String>,
    /// The options of accepted connections.
    pub stream: StreamOptions,
}

impl Portal {
    /// Whether a connection with the local address `local` was accepted by this portal.
    pub fn took_in(&self, local: SocketAddr) -> bool {
        self.listen.inet().is_some_and(|listen| {
            let (ip, here) = (listen.ip().to_canonical(), local.ip().to_canonical());
            // Two interfaces may have the same link-local address, so the scope must also match.
            let is_here = match (listen, local) {
                (SocketAddr::V6(listen), SocketAddr::V6(local)) => {
                    ip == here && (listen.scope_id() == 0 || listen.scope_id() == local.scope_id())
                }
                _ => ip == here,
            };
            listen.port() == local.port() && (ip.is_unspecified() || is_here)
        })
    }

    /// Whether this portal's socket can serve the other portal without being reopened.
    pub(crate) fn stays_for(&self, other: &Portal) -> bool {
        Portal {
            advertise: other.advertise.clone(),
            ..self.clone()
        } == *other
    }

    /// Reopens the datagram socket of a portal after its interface has failed, once the interface is up. The
    /// old socket cannot be reused if the interface was removed and created again. `None` if the caller must
    /// retry with the old socket.
    pub async fn open_again(&self) -> Option<Box<dyn Datagrams>> {
        let ListenAddress::Datagrams(options) = &self.listen else {
            return None;
        };
        loop {
            reactor::sleep(OPEN_PAUSE).await;
            // All sockets that share this port would have to be reopened, in order. This is not necessary,
            // because they are not bound to an interface that can disappear.
            if matches!(options.endpoint, DatagramEndpoint::Udp(_)) && options.share.is_some() {
                return None;
            }
            match reactor::world().datagrams(options) {
                Ok(datagrams) => return Some(datagrams),
                // The process dropped the privilege to open such a socket after its start.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return None,
                Err(_) => {}
            }
        }
    }
}

/// Rejects a portal that is listed twice, even under different names, because each frame of its interface
/// would be received twice. Resolves names in the runtime environment of this thread.
///
/// # Errors
/// The text names the portal.
pub fn each_once(portals: &[Portal]) -> io::Result<()> {
    for (index, Portal { listen, .. }) in portals.iter().enumerate() {
        if let Some(before) = portals[..index]
            .iter()
            .find(|before| is_same_place(&before.listen, listen))
        {
            let why = match before.listen.to_string() == listen.to_string() {
                true => format!("{listen}: it is listed twice; list it once"),
                false => format!(
                    "{listen}: this is the interface {} under another name; list it once",
                    before.listen
                ),
            };
            return Err(io::Error::other(why));
        }
    }
    Ok(())
}

/// Whether both addresses are the same endpoint. Two addresses with port 0 always differ.
fn is_same_place(one: &ListenAddress, other: &ListenAddress) -> bool {
    use DatagramEndpoint::{Ethernet, Udp};
    match (one, other) {
        (ListenAddress::Datagrams(one), ListenAddress::Datagrams(other)) => {
            match (&one.endpoint, &other.endpoint) {
                (
                    Ethernet {
                        interface: one,
                        ether_type: frames,
                    },
                    Ethernet {
                        interface: other,
                        ether_type: others,
                    },
                ) => {
                    let name = |name| reactor::world().interface_name(name);
                    frames == others && (one == other || name(one) == name(other))
                }
                (Udp(one), Udp(other)) => one == other && one.port() != 0,
                _ => false,
            }
        }
        (ListenAddress::Inet(one), ListenAddress::Inet(other)) => one == other && one.port() != 0,
        (ListenAddress::Unix(one), ListenAddress::Unix(other)) => one == other,
        _ => false,
    }
}

/// Pause after an error of an interface.
const OPEN_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_with_one_link_local_address_are_portals_apart() {
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let portal = |listen| Portal {
            front_end: "test",
            listen: address(listen).into(),
            tag: 1,
            advertise: None,
            stream: StreamOptions::default(),
        };
        let took_in = |listen, local| portal(listen).took_in(address(local));
        assert!(took_in("[fe80::1%2]:3260", "[fe80::1%2]:3260"));
        assert!(!took_in("[fe80::1%2]:3260", "[fe80::1%3]:3260"));
        assert!(
            took_in("[::]:3260", "[fe80::1%3]:3260")
                && took_in("10.0.0.1:1", "[::ffff:10.0.0.1]:1")
        );
    }
}
