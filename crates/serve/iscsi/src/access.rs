//! Who may come in: initiator names, networks, and which LUNs each one sees.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// What an initiator must be to log in to a target. Both lists must let it in.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Names the initiator may have; `None` is any.
    pub initiators: Option<Vec<NamePattern>>,
    /// Networks it may come from; `None` is any.
    pub networks: Option<Vec<Network>>,
}

impl Access {
    /// Whether `initiator`, coming from `address`, may log in, and may know that the target exists.
    pub fn admits(&self, initiator: &str, address: IpAddr) -> bool {
        self.admits_name(initiator) && self.admits_address(address)
    }

    pub(crate) fn admits_name(&self, initiator: &str) -> bool {
        self.initiators.as_ref().is_none_or(|names| names.iter().any(|name| name.matches(initiator)))
    }

    pub(crate) fn admits_address(&self, address: IpAddr) -> bool {
        self.networks.as_ref().is_none_or(|networks| networks.iter().any(|net| net.contains(address)))
    }
}

/// Addresses that count as one where the connections or mistakes of an address are counted: an IPv4 address, or the
/// 2^64 addresses of an IPv6 network, any of which a host in it can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AddressBlock(IpAddr);

impl AddressBlock {
    pub(crate) fn of(address: IpAddr) -> AddressBlock {
        match address.to_canonical() {
            IpAddr::V6(v6) => AddressBlock(Ipv6Addr::from_bits(v6.to_bits() & !0 << 64).into()),
            v4 => AddressBlock(v4),
        }
    }
}

impl fmt::Display for AddressBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(v4) => v4.fmt(f),
            IpAddr::V6(v6) => write!(f, "{v6}/64"),
        }
    }
}

/// An iSCSI name, or the beginning of one followed by `*`. Names compare without regard to case (RFC 7143
/// section 4.2.7.1 asks for normalised, lower-case names).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern {
    stem: String,
    open_ended: bool,
}

impl NamePattern {
    /// `iqn.1993-08.org.debian:01:abc` or `iqn.1993-08.org.debian:*`.
    pub fn new(pattern: &str) -> NamePattern {
        let stem = pattern.strip_suffix('*');
        NamePattern { stem: stem.unwrap_or(pattern).to_ascii_lowercase(), open_ended: stem.is_some() }
    }

    /// Whether `name` is, or begins, so.
    pub fn matches(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        if self.open_ended { name.starts_with(&self.stem) } else { name == self.stem }
    }
}

/// An IP network in CIDR notation; a bare address is a network of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix_bits: u8,
}

/// The text is not an address with an optional prefix length that fits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotANetwork;

impl fmt::Display for NotANetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a network; write an address with a prefix length, such as 10.0.0.0/24 or fd00::/8")
    }
}

impl std::error::Error for NotANetwork {}

impl Network {
    /// Whether `address` lies in it. An IPv4 address that came in over an IPv6 socket counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(host)) => {
                let shift = 32 - u32::from(self.prefix_bits);
                shift == 32 || u32::from(net) >> shift == u32::from(host) >> shift
            }
            (IpAddr::V6(net), IpAddr::V6(host)) => {
                let shift = 128 - u32::from(self.prefix_bits);
                shift == 128 || u128::from(net) >> shift == u128::from(host) >> shift
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Network, NotANetwork> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NotANetwork)?;
        let widest = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match prefix {
            Some(prefix) => prefix.parse().map_err(|_| NotANetwork)?,
            None => widest,
        };
        (prefix_bits <= widest).then_some(Network { address, prefix_bits }).ok_or(NotANetwork)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Network {
        text.parse().expect("a network")
    }

    #[test]
    fn networks_hold_their_addresses_and_no_others() {
        let host = |text: &str| text.parse::<IpAddr>().expect("an address");
        assert!(net("10.1.0.0/16").contains(host("10.1.255.1")));
        assert!(!net("10.1.0.0/16").contains(host("10.2.0.1")));
        assert!(net("0.0.0.0/0").contains(host("192.0.2.1")));
        assert!(net("fd00::/8").contains(host("fd12::1")));
        assert!(net("127.0.0.1").contains(host("::ffff:127.0.0.1")), "IPv4 over an IPv6 socket");
        assert!(!net("0.0.0.0/0").contains(host("fd12::1")));
    }

    #[test]
    fn an_ipv6_host_counts_by_its_network() {
        let block = |text: &str| AddressBlock::of(text.parse().expect("an address"));
        assert_eq!(block("2001:db8:1:2:3:4:5:6").to_string(), "2001:db8:1:2::/64");
        assert_eq!(block("::ffff:192.0.2.7"), block("192.0.2.7"));
        assert_eq!(block("192.0.2.7").to_string(), "192.0.2.7");
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for bad in ["", "10.0.0.0/33", "10.0.0/8", "fd00::/129", "host/8", "10.0.0.0/-1"] {
            assert_eq!(bad.parse::<Network>(), Err(NotANetwork), "{bad}");
        }
    }

    #[test]
    fn a_pattern_with_a_star_matches_what_begins_so() {
        assert!(NamePattern::new("iqn.1993-08.org.debian:*").matches("iqn.1993-08.ORG.debian:01:ab"));
        assert!(!NamePattern::new("iqn.1993-08.org.debian:01").matches("iqn.1993-08.org.debian:012"));
    }

    #[test]
    fn both_lists_must_let_an_initiator_in() {
        let access = Access {
            initiators: Some(vec![NamePattern::new("iqn.a:*")]),
            networks: Some(vec![net("10.0.0.0/8")]),
        };
        let (inside, outside) = ([10, 0, 0, 1].into(), [11, 0, 0, 1].into());
        assert!(access.admits("iqn.a:1", inside));
        assert!(!access.admits("iqn.a:1", outside));
        assert!(!access.admits("iqn.b:1", inside));
        assert!(Access::default().admits("iqn.b:1", outside));
    }

    #[test]
    fn a_list_of_nobody_lets_nobody_in() {
        let access = Access { initiators: Some(Vec::new()), networks: None };
        assert!(!access.admits("iqn.a:1", [10, 0, 0, 1].into()));
        let access = Access { initiators: None, networks: Some(Vec::new()) };
        assert!(!access.admits("iqn.a:1", [10, 0, 0, 1].into()));
    }
}
