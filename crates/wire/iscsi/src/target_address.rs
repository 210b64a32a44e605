//! The address in a TargetAddress key (RFC 7143 section 13.8): `domainname[:port]`, without the portal group tag.

use core::net::{Ipv4Addr, Ipv6Addr};
use std::fmt;
use std::str::FromStr;

use derive_more::{Display, Error};

/// Where initiators find a portal: a host, and a port other than 3260 if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetAddress {
    host: Host,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    V4(Ipv4Addr),
    V6(Ipv6Addr),
    Name(String),
}

/// Why initiators could not use a text as an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
pub enum BadTargetAddress {
    /// Neither an IP address nor a domain name.
    #[display("a host is an IPv4 address, an IPv6 address in brackets, or a domain name")]
    Host,
    /// Of an address that is valid on one machine only.
    #[display("an IPv6 zone such as %eth0 has a meaning on this machine only; initiators cannot use it")]
    Zone,
    /// Not a port.
    #[display("a port is a number from 1 to 65535")]
    Port,
}

impl fmt::Display for TargetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::V4(address) => write!(f, "{address}")?,
            Host::V6(address) => write!(f, "[{address}]")?,
            Host::Name(name) => f.write_str(name)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl FromStr for TargetAddress {
    type Err = BadTargetAddress;

    fn from_str(text: &str) -> Result<TargetAddress, BadTargetAddress> {
        let (host, rest) = match text.strip_prefix('[') {
            Some(bracketed) => {
                let (address, rest) = bracketed.split_once(']').ok_or(BadTargetAddress::Host)?;
                if address.contains('%') {
                    return Err(BadTargetAddress::Zone);
                }
                (Host::V6(address.parse().map_err(|_| BadTargetAddress::Host)?), rest)
            }
            None => {
                let (host, rest) = text.split_at(text.find(':').unwrap_or(text.len()));
                let address = host.parse().map(Host::V4).ok();
                let name = || is_domain_name(host).then(|| Host::Name(host.to_owned()));
                (address.or_else(name).ok_or(BadTargetAddress::Host)?, rest)
            }
        };
        let port = match rest.strip_prefix(':') {
            None if rest.is_empty() => None,
            None => return Err(BadTargetAddress::Host),
            Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
                Some(port.parse().ok().filter(|port| *port != 0).ok_or(BadTargetAddress::Port)?)
            }
            Some(_) => return Err(BadTargetAddress::Port),
        };
        Ok(TargetAddress { host, port })
    }
}

/// Labels of letters, digits and hyphens (RFC 1123 section 2.1), and of underscores, which names in use have. The last
/// label is no number: 300.1.1.1 is a mistyped address.
fn is_domain_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(is_inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
    name.len() <= 253 && name.split('.').all(is_label) && !name.split('.').next_back().is_some_and(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_initiators_understand_are_taken_as_written() {
        for text in [
            "192.0.2.1",
            "192.0.2.1:3260",
            "[2001:db8::1]:3261",
            "[::1]",
            "san.example.com:3260",
            "san_1",
            "1und1.example.",
        ] {
            assert_eq!(text.parse::<TargetAddress>().expect(text).to_string(), text);
        }
    }

    #[test]
    fn addresses_that_lock_initiators_out_are_refused() {
        use BadTargetAddress::{Host, Port, Zone};
        for (text, why) in [
            ("", Host),
            (" ", Host),
            ("::1", Host),
            (":3260", Host),
            ("a b", Host),
            ("a\nb", Host),
            ("[::1", Host),
            ("[::1]x", Host),
            ("300.1.1.1:3260", Host),
            ("-san.example.com", Host),
            (&"x".repeat(300), Host),
            ("127.0.0.1:", Port),
            ("127.0.0.1:99999", Port),
            ("127.0.0.1:0", Port),
            ("127.0.0.1:+80", Port),
            ("127.0.0.1:abc", Port),
            ("127.0.0.1:3260,1", Port),
            ("127.0.0.1:3260\0X=1", Port),
            ("iscsi://127.0.0.1:3260", Port),
            ("[fe80::1%eth0]:3260", Zone),
        ] {
            assert_eq!(text.parse::<TargetAddress>(), Err(why), "{text:?}");
        }
    }
}
