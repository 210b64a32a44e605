//! Host addresses, networks, and the address blocks that count as one host.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use derive_more::Display;
use reactor::{DatagramAddress, MacAddress};

/// The unit for counting the connections or failures of an address: an IPv4 address, or the 2^64 addresses of
/// an IPv6 network, because one host can use any of them. Each Ethernet station is a separate unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressBlock(Block);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Block {
    Network(IpAddr),
    Station(MacAddress),
}

impl AddressBlock {
    /// Returns the block that contains `address`.
    pub fn containing(address: IpAddr) -> AddressBlock {
        match address.to_canonical() {
            IpAddr::V6(v6) => AddressBlock(Block::Network(
                Ipv6Addr::from_bits(v6.to_bits() & !0 << 64).into(),
            )),
            v4 => AddressBlock(Block::Network(v4)),
        }
    }
}

impl From<HostAddress> for AddressBlock {
    fn from(address: HostAddress) -> AddressBlock {
        match address {
            HostAddress::Inet(address) => AddressBlock::containing(address.ip()),
            HostAddress::Station(station) => AddressBlock(Block::Station(station)),
        }
    }
}

impl fmt::Display for AddressBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Block::Network(IpAddr::V4(v4)) => v4.fmt(f),
            Block::Network(IpAddr::V6(v6)) => write!(f, "{v6}/64"),
            Block::Station(station) => station.fmt(f),
        }
    }
}

/// The address of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum HostAddress {
    /// A port of an IP address. Clients of a Unix socket have port 0 of 127.0.0.1.
    Inet(SocketAddr),
    /// An Ethernet station.
    Station(MacAddress),
}

impl HostAddress {
    /// Returns the address without its port, because the port differs for every connection.
    pub fn without_port(self) -> String {
        match self {
            HostAddress::Inet(address) => address.ip().to_canonical().to_string(),
            HostAddress::Station(station) => station.to_string(),
        }
    }
}

impl FromStr for HostAddress {
    type Err = NotAHostAddress;

    fn from_str(text: &str) -> Result<HostAddress, NotAHostAddress> {
        let inet = text.parse().map(HostAddress::Inet);
        inet.or_else(|_| text.parse().map(HostAddress::Station))
            .map_err(|_| NotAHostAddress)
    }
}

/// The error for a text that is neither an address with a port nor a MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[display("neither an address with a port nor a MAC address")]
pub struct NotAHostAddress;

impl std::error::Error for NotAHostAddress {}

impl From<SocketAddr> for HostAddress {
    fn from(address: SocketAddr) -> HostAddress {
        HostAddress::Inet(address)
    }
}

impl From<DatagramAddress> for HostAddress {
    fn from(address: DatagramAddress) -> HostAddress {
        match address {
            DatagramAddress::Ethernet(station) => HostAddress::Station(station),
            DatagramAddress::Udp(address) => HostAddress::Inet(address),
        }
    }
}

/// An IP network in CIDR notation; an address without a prefix length is a network of one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[display("{address}/{prefix_bits}")]
pub struct Network {
    address: IpAddr,
    prefix_bits: u8,
}

/// The error for a text that is not an address, or whose prefix length is not valid for the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[display("not a network; write an address with a prefix length, such as 10.0.0.0/24 or fd00::/8")]
pub struct NotANetwork;

impl std::error::Error for NotANetwork {}

impl Network {
    /// Whether `address` belongs to the network. An IPv4 address that was received over an IPv6 socket counts
    /// as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        debug_assert!(self.prefix_bits <= if self.address.is_ipv4() { 32 } else { 128 });
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
        (prefix_bits <= widest)
            .then_some(Network {
                address,
                prefix_bits,
            })
            .ok_or(NotANetwork)
    }
}

/// Counters per address block.
#[derive(Default)]
pub struct Counts {
    all: usize,
    per_block: BTreeMap<AddressBlock, usize>,
}

impl Counts {
    /// The sum over all address blocks.
    pub fn all(&self) -> usize {
        self.all
    }

    /// Returns the count of this address block.
    pub fn count_of(&self, block: AddressBlock) -> usize {
        self.per_block.get(&block).copied().unwrap_or(0)
    }

    /// Adds one to the count of the block.
    pub fn add(&mut self, block: AddressBlock) {
        self.all += 1;
        *self.per_block.entry(block).or_default() += 1;
        debug_assert!(
            self.all >= self.per_block.len(),
            "each block that is there counts"
        );
    }

    /// Subtracts one from the count of the block.
    pub fn remove(&mut self, block: AddressBlock) {
        if let Some(count) = self.per_block.get_mut(&block) {
            debug_assert!(
                (1..=self.all).contains(count),
                "a count is a part of the sum"
            );
            self.all -= 1;
            *count -= 1;
            if *count == 0 {
                self.per_block.remove(&block);
            }
        }
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
        assert!(
            net("127.0.0.1").contains(host("::ffff:127.0.0.1")),
            "IPv4 over an IPv6 socket"
        );
        assert!(!net("0.0.0.0/0").contains(host("fd12::1")));
    }

    #[test]
    fn an_ipv6_host_counts_by_its_network() {
        let block = |text: &str| AddressBlock::containing(text.parse().expect("an address"));
        assert_eq!(
            block("2001:db8:1:2:3:4:5:6").to_string(),
            "2001:db8:1:2::/64"
        );
        assert_eq!(block("::ffff:192.0.2.7"), block("192.0.2.7"));
        assert_eq!(block("192.0.2.7").to_string(), "192.0.2.7");
    }

    #[test]
    fn an_address_of_a_host_is_read_as_it_is_written() {
        for text in ["192.0.2.7:51000", "[2001:db8::1]:7", "02:00:00:00:00:01"] {
            assert_eq!(
                text.parse()
                    .map(|host: HostAddress| host.to_string())
                    .as_deref(),
                Ok(text)
            );
        }
        assert_eq!("192.0.2.7".parse::<HostAddress>(), Err(NotAHostAddress));
        let block = |text: &str| {
            text.parse::<HostAddress>()
                .map(AddressBlock::from)
                .expect("an address")
        };
        assert_eq!(block("192.0.2.7:1"), block("192.0.2.7:2"));
        assert_ne!(block("02:00:00:00:00:01"), block("02:00:00:00:00:02"));
    }

    #[test]
    fn addresses_of_an_ipv6_network_are_counted_together() {
        let block = |text: &str| AddressBlock::containing(text.parse().expect("an address"));
        let mut counts = Counts::default();
        counts.add(block("2001:db8::1"));
        counts.add(block("2001:db8::2"));
        counts.add(block("2001:db8:0:1::1"));
        assert_eq!(
            (counts.count_of(block("2001:db8::ffff:3")), counts.all()),
            (2, 3)
        );
        counts.remove(block("2001:db8::2"));
        counts.remove(block("2001:db8:0:1::1"));
        counts.remove(block("2001:db8:0:1::1"));
        assert_eq!(
            (counts.count_of(block("2001:db8::1")), counts.all()),
            (1, 1)
        );
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for bad in [
            "",
            "10.0.0.0/33",
            "10.0.0/8",
            "fd00::/129",
            "host/8",
            "10.0.0.0/-1",
        ] {
            assert_eq!(bad.parse::<Network>(), Err(NotANetwork), "{bad}");
        }
    }
}
