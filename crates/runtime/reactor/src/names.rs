//! Host addresses.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::{fmt, io, thread};

use derive_more::{Display, Error};

use crate::mailbox::mailbox;

/// An IPv6 address in its usual form: without brackets, and with its zone if it needs one (RFC 4007 section
/// 11). A link-local address is valid on one link only, so connecting to it requires the interface's name or
/// number: `fe80::1%eth0`, or `fe80::1%25eth0` in URLs (RFC 6874).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ipv6Host {
    address: Ipv6Addr,
    zone: Option<String>,
}

/// The reason why a text is not a host address.
#[derive(Clone, Debug, PartialEq, Eq, Display, Error)]
pub enum BadAddress {
    /// The text is not an IP address.
    #[display("`{_0}` is not an IP address")]
    Form(#[error(not(source))] String),
    /// A link-local address without its zone.
    #[display("{_0} is a link-local address; add the interface, as in {_0}%eth0")]
    NoZone(#[error(not(source))] Ipv6Addr),
    /// An address that is not link-local has a zone.
    #[display("{_0} is not a link-local address (fe80::/10); omit %{_1}")]
    StrayZone(Ipv6Addr, String),
    /// A zone that cannot be an interface name.
    #[display(
        "`{_0}` is not an interface name; a link-local address needs one, as in fe80::1%eth0"
    )]
    Zone(#[error(not(source))] String),
    /// This machine has no such interface.
    #[display("this machine has no interface `{_0}`")]
    NoInterface(#[error(not(source))] String),
}

/// The reason why a text is not `HOST[:PORT]`.
#[derive(Clone, Debug, PartialEq, Eq, Display, Error)]
pub enum BadHost {
    /// A bracket is unpaired, or an IPv6 address has no brackets.
    #[display("an IPv6 address must be in brackets, as in [::1]")]
    Brackets,
    /// The brackets do not contain an IPv6 address.
    Address(BadAddress),
    /// The host is empty.
    #[display("the host is missing")]
    Missing,
    /// The port is invalid.
    #[display("the port must be a number from 1 to 65535")]
    Port,
}

/// Linux's limit on interface names (IFNAMSIZ includes the terminating zero).
const INTERFACE_NAME_MAX: usize = 15;

impl FromStr for Ipv6Host {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Ipv6Host, BadAddress> {
        let (address, zone) = match text.split_once('%') {
            // `%25` is an escaped `%` from a URL. If nothing follows it, it is interface number 25 instead.
            Some((address, zone)) => (
                address,
                Some(
                    zone.strip_prefix("25")
                        .filter(|zone| !zone.is_empty())
                        .unwrap_or(zone),
                ),
            ),
            None => (text, None),
        };
        let address: Ipv6Addr = address
            .parse()
            .map_err(|_| BadAddress::Form(text.to_owned()))?;
        match (address.is_unicast_link_local(), zone) {
            (true, None) => Err(BadAddress::NoZone(address)),
            (false, Some(zone)) => Err(BadAddress::StrayZone(address, zone.to_owned())),
            (true, Some(zone)) if !is_zone(zone) => Err(BadAddress::Zone(zone.to_owned())),
            (_, zone) => Ok(Ipv6Host {
                address,
                zone: zone.map(str::to_owned),
            }),
        }
    }
}

/// Prints the form that the system's resolver accepts.
impl fmt::Display for Ipv6Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)?;
        self.zone
            .as_ref()
            .map_or(Ok(()), |zone| write!(f, "%{zone}"))
    }
}

impl Ipv6Host {
    /// Parses an address. If it is a link-local address without a zone, adds `zone`, for example the
    /// interface on which a peer announced the address.
    pub fn on_link(text: &str, zone: Option<&str>) -> Result<Ipv6Host, BadAddress> {
        match (text.parse(), zone) {
            (Err(BadAddress::NoZone(address)), Some(zone)) => Ok(Ipv6Host {
                address,
                zone: Some(zone.to_owned()),
            }),
            (read, _) => read,
        }
    }

    /// The address without its zone.
    pub fn address(&self) -> Ipv6Addr {
        self.address
    }

    /// The zone of a link-local address: an interface name or number.
    pub fn zone(&self) -> Option<&str> {
        self.zone.as_deref()
    }
}

fn is_zone(zone: &str) -> bool {
    (1..=INTERFACE_NAME_MAX).contains(&zone.len())
        && zone
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"%/:[]".contains(&byte))
}

/// Splits `HOST`, `HOST:PORT`, `[IPv6]` or `[IPv6]:PORT` into the host and the port, if there is one. The
/// host has no brackets, as [`resolve`] expects it.
///
/// # Errors
/// The first error in the text.
pub fn host_and_port(text: &str) -> Result<(String, Option<u16>), BadHost> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (inside, rest) = rest.split_once(']').ok_or(BadHost::Brackets)?;
            let host = inside.parse::<Ipv6Host>().map_err(BadHost::Address)?;
            let port = match rest.strip_prefix(':') {
                None if !rest.is_empty() => return Err(BadHost::Port),
                port => port,
            };
            (host.to_string(), port)
        }
        None => match text.split_once(':') {
            Some((_, port)) if port.contains(':') => return Err(BadHost::Brackets),
            Some((host, port)) => (host.to_owned(), Some(port)),
            None => (text.to_owned(), None),
        },
    };
    if host.is_empty() {
        return Err(BadHost::Missing);
    }
    let number = |port: &str| {
        port.parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or(BadHost::Port)
    };
    Ok((host, port.map(number).transpose()?))
}

/// Displays a host from [`host_and_port`] in the form that can precede a port: an IPv6 address is in
/// brackets.
pub fn bracketed(host: &str) -> impl fmt::Display + '_ {
    fmt::from_fn(move |f| match host.contains(':') {
        true => write!(f, "[{host}]"),
        false => f.write_str(host),
    })
}

/// Parses an IP address without name resolution: IPv4, or IPv6 without brackets. The system is queried only
/// for the interface number of a link-local address.
///
/// # Errors
/// The text is not an address, or there is no such interface.
pub fn numeric_address(text: &str, port: u16) -> Result<SocketAddr, BadAddress> {
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Ok(SocketAddr::from((address, port)));
    }
    let host: Ipv6Host = text.parse()?;
    let Some(zone) = host.zone() else {
        return Ok(SocketAddr::from((host.address, port)));
    };
    let mut found = (host.to_string(), port)
        .to_socket_addrs()
        .into_iter()
        .flatten();
    found
        .next()
        .ok_or_else(|| BadAddress::NoInterface(zone.to_owned()))
}

/// Parses an address to listen on: `ADDRESS:PORT` or `[IPv6]:PORT`. The port can be omitted if `usual`
/// specifies a default. Port 0 selects a free port.
///
/// # Errors
/// The text is not an address, or there is no such interface.
pub fn listen_address(text: &str, usual: Option<u16>) -> Result<SocketAddr, BadAddress> {
    let form = || BadAddress::Form(text.to_owned());
    let (address, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or_else(form)?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    // Brackets and colons belong together: an IPv6 address has both, an IPv4 address neither.
    if text.starts_with('[') != address.contains(':') {
        return Err(form());
    }
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().ok(),
        None if port.is_empty() => usual,
        None => None,
    };
    numeric_address(address, port.ok_or_else(form)?).map_err(|wrong| match wrong {
        BadAddress::Form(_) => form(),
        wrong => wrong,
    })
}

/// Returns the addresses of a host, which is given as a name, an IPv4 address, or an IPv6 address without
/// brackets. Names are resolved on a separate thread, because the system's resolver blocks.
pub async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    match numeric_address(host, port) {
        Ok(address) => return Ok(vec![address]),
        Err(BadAddress::Form(_)) => {}
        Err(wrong) => return Err(io::Error::new(io::ErrorKind::InvalidInput, wrong)),
    }
    let (answer, mut answered) = mailbox();
    let host = host.to_owned();
    thread::Builder::new()
        .name("resolver".to_owned())
        .spawn(move || {
            let found = (host.as_str(), port)
                .to_socket_addrs()
                .map(Iterator::collect);
            // If the caller no longer waits for the result, sending it fails.
            let _ = answer.send(found);
        })?;
    answered
        .recv()
        .await
        .unwrap_or_else(|| Err(io::ErrorKind::Other.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alone::Alone;
    use crate::executor::block_on;

    #[test]
    fn addresses_are_taken_as_they_are_and_names_are_looked_up() {
        block_on(Alone::real_time(), async {
            let of = async |host: &str| resolve(host, 7).await.expect("addresses");
            assert_eq!(
                of("::1").await,
                [SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 7))]
            );
            assert_eq!(
                of("192.0.2.1").await,
                [SocketAddr::from(([192, 0, 2, 1], 7))]
            );
            assert!(
                of("localhost")
                    .await
                    .iter()
                    .all(|address| address.ip().is_loopback() && address.port() == 7)
            );
        });
    }

    #[test]
    fn a_link_local_address_is_reached_through_its_interface() {
        let SocketAddr::V6(at) = numeric_address("fe80::1%lo", 7).expect("an address") else {
            panic!("no IPv6 address");
        };
        // The loopback interface is the first in every network namespace.
        assert_eq!((at.scope_id(), at.port()), (1, 7));
        let why = |text| numeric_address(text, 7).expect_err(text).to_string();
        assert_eq!(
            why("fe80::1"),
            "fe80::1 is a link-local address; add the interface, as in fe80::1%eth0"
        );
        assert_eq!(
            why("fe80::1%nosuch0"),
            "this machine has no interface `nosuch0`"
        );
        block_on(Alone::real_time(), async {
            let error = resolve("fe80::1", 7).await.expect_err("no zone");
            assert!(error.to_string().contains("add the interface"), "{error}");
        });
    }

    #[test]
    fn a_server_listens_on_an_address_with_a_port() {
        let at = |text, usual| listen_address(text, usual).map(|at| at.to_string());
        for (text, expected) in [
            ("0.0.0.0:860", "0.0.0.0:860"),
            ("[::]:0", "[::]:0"),
            ("[::1]", "[::1]:3260"),
            ("10.0.0.7", "10.0.0.7:3260"),
            ("[fe80::1%lo]:860", "[fe80::1%1]:860"),
            ("[fe80::1%25lo]", "[fe80::1%1]:3260"),
        ] {
            assert_eq!(at(text, Some(3260)).as_deref(), Ok(expected), "{text}");
        }
        for text in [
            "",
            ":860",
            "san1:860",
            "::1",
            "[10.0.0.7]:860",
            "10.0.0.7:",
            "10.0.0.7:70000",
            "[::1]860",
        ] {
            assert_eq!(
                at(text, Some(3260)),
                Err(BadAddress::Form(text.to_owned())),
                "{text}"
            );
        }
        assert!(matches!(at("[::1]", None), Err(BadAddress::Form(_))));
        assert!(matches!(
            at("[fe80::1]:860", None),
            Err(BadAddress::NoZone(_))
        ));
    }

    #[test]
    fn a_zone_is_written_with_or_without_the_escape_of_urls() {
        for (text, expected) in [
            ("fe80::1%eth0", "fe80::1%eth0"),
            ("fe80::1%25eth0", "fe80::1%eth0"),
            ("fe80::1%25br-0.7", "fe80::1%br-0.7"),
            ("fe80::1%3", "fe80::1%3"),
            ("fe80::1%25", "fe80::1%25"),
            ("fe80::1%253", "fe80::1%3"),
            ("2001:db8::7", "2001:db8::7"),
        ] {
            assert_eq!(text.parse::<Ipv6Host>().expect(text).to_string(), expected);
        }
        let wrong = |text: &str| text.parse::<Ipv6Host>().expect_err(text);
        assert_eq!(wrong("fe80::1%"), BadAddress::Zone(String::new()));
        assert_eq!(wrong("fe80::1%a b"), BadAddress::Zone("a b".to_owned()));
        assert_eq!(
            wrong("fe80::1%sixteen-letters-"),
            BadAddress::Zone("sixteen-letters-".to_owned())
        );
        assert!(matches!(
            wrong("2001:db8::7%eth0"),
            BadAddress::StrayZone(..)
        ));
        assert!(matches!(wrong("eth0"), BadAddress::Form(_)));
        assert!(matches!(wrong("10.0.0.1%eth0"), BadAddress::Form(_)));
    }

    #[test]
    fn a_host_may_have_a_port() {
        for (text, expected) in [
            ("san1", Ok(("san1", None))),
            ("san1:860", Ok(("san1", Some(860)))),
            ("10.0.0.7:860", Ok(("10.0.0.7", Some(860)))),
            ("[::1]", Ok(("::1", None))),
            ("[fe80::1%25eth0]:860", Ok(("fe80::1%eth0", Some(860)))),
            (
                "[fe80::1]:860",
                Err(BadHost::Address(BadAddress::NoZone(
                    "fe80::1".parse().expect("IPv6"),
                ))),
            ),
            (
                "[san1]:860",
                Err(BadHost::Address(BadAddress::Form("san1".to_owned()))),
            ),
            ("[::1", Err(BadHost::Brackets)),
            ("::1", Err(BadHost::Brackets)),
            ("[::1]860", Err(BadHost::Port)),
            ("san1:", Err(BadHost::Port)),
            ("san1:0", Err(BadHost::Port)),
            ("san1:70000", Err(BadHost::Port)),
            ("", Err(BadHost::Missing)),
            (":860", Err(BadHost::Missing)),
        ] {
            let expected = expected.map(|(host, port)| (host.to_owned(), port));
            assert_eq!(host_and_port(text), expected, "{text}");
        }
        assert_eq!(
            format!("{}:1 {}:2", bracketed("fe80::1%eth0"), bracketed("san1")),
            "[fe80::1%eth0]:1 san1:2"
        );
    }

    #[test]
    fn an_address_that_came_over_a_link_is_on_that_link() {
        let at = |text, zone| Ipv6Host::on_link(text, zone).map(|host| host.to_string());
        assert_eq!(at("fe80::1", Some("eth0")), Ok("fe80::1%eth0".to_owned()));
        assert_eq!(
            at("fe80::1%eth1", Some("eth0")),
            Ok("fe80::1%eth1".to_owned())
        );
        assert_eq!(
            at("2001:db8::7", Some("eth0")),
            Ok("2001:db8::7".to_owned())
        );
        assert!(matches!(at("fe80::1", None), Err(BadAddress::NoZone(_))));
    }
}
