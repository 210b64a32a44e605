//! Where a command of ours listens: the address as people write it, and listening there.

use std::net::SocketAddr;

use reactor::{BadAddress, ListenOptions, Listener, StreamOptions};

use crate::failure::Failure;

/// `ADDRESS` or `ADDRESS:PORT`; the port is `usual` if none is named.
pub(crate) fn address(text: &str, usual: u16) -> Result<SocketAddr, String> {
    // Without brackets it can have no port.
    let address = match reactor::numeric_address(text, usual) {
        Err(BadAddress::Form(_)) => reactor::listen_address(text, Some(usual)),
        whole => whole,
    };
    address.map_err(|why| match why {
        BadAddress::Form(_) => {
            format!("`{text}` is not an address; write one such as 0.0.0.0 or [::]:{usual}")
        }
        why => why.to_string(),
    })
}

/// Listens there, in the world of this thread, with such sockets.
pub(crate) fn at(address: SocketAddr, stream: StreamOptions) -> Result<Box<dyn Listener>, Failure> {
    let listener = reactor::world().listen(address, &ListenOptions { stream });
    listener.map_err(|error| Failure::refused(format!("cannot listen on {address}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_come_without_a_port() {
        for (text, expected) in [
            ("0.0.0.0", Some("0.0.0.0:9860")),
            ("10.0.0.7:7000", Some("10.0.0.7:7000")),
            ("::", Some("[::]:9860")),
            ("[::]", Some("[::]:9860")),
            ("[::1]:7000", Some("[::1]:7000")),
            ("fe80::1%lo", Some("[fe80::1%1]:9860")),
            ("[fe80::1%25lo]:7000", Some("[fe80::1%1]:7000")),
            ("client1", None),
        ] {
            assert_eq!(address(text, 9860).ok().map(|at| at.to_string()).as_deref(), expected, "{text}");
        }
    }

    /// An address without brackets once lost its advice: it was read again as one with a port.
    #[test]
    fn a_wrong_zone_is_named_with_and_without_brackets() {
        for (text, expected) in [
            ("fe80::1", "give the interface, as in fe80::1%eth0"),
            ("[fe80::1]:7000", "give the interface, as in fe80::1%eth0"),
            ("fe80::1%nosuch0", "this machine has no interface `nosuch0`"),
            ("[fe80::1%nosuch0]", "this machine has no interface `nosuch0`"),
            ("client1", "`client1` is not an address"),
        ] {
            let why = address(text, 9860).expect_err(text);
            assert!(why.contains(expected), "{text}: {why}");
        }
    }
}
