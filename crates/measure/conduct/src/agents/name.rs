//! The name of an agent on the command line: `HOST`, `HOST:PORT`, `ADDRESS` or `[IPv6 ADDRESS]:PORT`.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

use agent::PORT;

use backends::{Failure, Kind};

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
            Failure::new(Kind::Unreachable, format_args!("cannot find agent {self}: {why}"))
        };
        let mut addresses =
            (self.host.as_str(), self.port).to_socket_addrs().map_err(|error| unreachable(&error))?;
        addresses.next().ok_or_else(|| unreachable(&"the name has no address"))
    }
}

impl FromStr for AgentName {
    type Err = String;

    fn from_str(text: &str) -> Result<AgentName, String> {
        let named = |host: &str, port| AgentName { host: host.to_owned(), port };
        let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (host, port) = match (bracketed, text.rsplit_once(':')) {
            _ if text.parse::<Ipv6Addr>().is_ok() => return Ok(named(text, PORT)),
            (Some((host, "")), _) => (host, None),
            (Some((host, port)), _) => (host, Some(port.strip_prefix(':').unwrap_or_default())),
            (None, Some((host, port))) => (host, Some(port)),
            (None, None) => (text, None),
        };
        let right = !host.is_empty() && (bracketed.is_some() == host.contains(':'));
        let port = port.map_or(Some(PORT), |port| port.parse().ok().filter(|port| *port > 0));
        match port {
            Some(port) if right => Ok(named(host, port)),
            _ => Err(format!("{text:?} is not HOST, HOST:PORT or [IPv6 ADDRESS]:PORT")),
        }
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
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
