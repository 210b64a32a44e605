//! The name of an agent on the command line: `HOST`, `HOST:PORT`, `ADDRESS` or `[IPv6 ADDRESS]:PORT`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

use agent::PORT;

use backends::{Failure, FailureKind};
use reactor::{BadAddress, BadHost, Ipv6Host};

/// Where an agent listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgentName {
    host: String,
    port: u16,
}

impl AgentName {
    /// Its first address.
    pub(super) fn address(&self) -> Result<SocketAddr, Failure> {
        let unreachable = |why: &dyn fmt::Display| {
            Failure::new(FailureKind::Unreachable, format_args!("cannot find agent {self}: {why}"))
        };
        let mut addresses =
            (self.host.as_str(), self.port).to_socket_addrs().map_err(|error| unreachable(&error))?;
        addresses.next().ok_or_else(|| unreachable(&"the name has no address"))
    }
}

impl FromStr for AgentName {
    type Err = String;

    fn from_str(text: &str) -> Result<AgentName, String> {
        // Without brackets it can have no port.
        let bare = text.parse::<Ipv6Host>();
        let read = match bare {
            Ok(address) => Ok((address.to_string(), None)),
            Err(BadAddress::Form(_)) => reactor::host_and_port(text),
            Err(why) => Err(BadHost::Address(why)),
        };
        match read {
            Ok((host, port)) => Ok(AgentName { host, port: port.unwrap_or(PORT) }),
            Err(BadHost::Address(why)) => Err(why.to_string()),
            Err(_) => Err(format!("{text:?} is not HOST, HOST:PORT or [IPv6 ADDRESS]:PORT")),
        }
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", reactor::bracketed(&self.host), self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_named_as_people_name_hosts() {
        for (text, expected) in [
            ("client1", Some("client1:9860")),
            ("client1:7000", Some("client1:7000")),
            ("10.0.0.7", Some("10.0.0.7:9860")),
            ("::1", Some("[::1]:9860")),
            ("[::1]", Some("[::1]:9860")),
            ("[::1]:7000", Some("[::1]:7000")),
            ("fe80::1%eth0", Some("[fe80::1%eth0]:9860")),
            ("[fe80::1%25eth0]:7000", Some("[fe80::1%eth0]:7000")),
            ("fe80::1", None),
            ("", None),
            (":7000", None),
            ("client1:", None),
            ("client1:0", None),
            ("client1:70000", None),
            ("a:b:c", None),
            ("[client1]:7000", None),
            ("[::1]7000", None),
        ] {
            assert_eq!(
                text.parse::<AgentName>().ok().map(|name| name.to_string()).as_deref(),
                expected,
                "{text}"
            );
        }
    }
}
