//! The address that a command of ours listens on, as people write it.

use std::net::{IpAddr, SocketAddr};

/// `ADDRESS` or `ADDRESS:PORT`; the port is `usual` if none is named.
pub(crate) fn address(text: &str, usual: u16) -> Result<SocketAddr, String> {
    let bare = || text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let wrong = |_| format!("`{text}` is not an address; write one such as 0.0.0.0 or [::]:{usual}");
    text.parse().or_else(|_| bare().map(|address| SocketAddr::new(address, usual))).map_err(wrong)
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
            ("client1", None),
        ] {
            assert_eq!(address(text, 9860).ok().map(|at| at.to_string()).as_deref(), expected, "{text}");
        }
    }
}
