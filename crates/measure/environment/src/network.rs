//! The path to the target: the interface, and TCP statistics.

use std::net::IpAddr;
use std::time::Duration;

use bench::record::{Fact, Group};
use host::rtnetlink;
use iscsi_client::ConnectionStatistics;
use model::link::Link;
use reactor::PathInfo;

use super::fact;
use super::system::System;
use readable::figures::significant;

/// By the connections of a session: all go to one target, and the first stands for them.
pub(super) fn facts(system: &System, connections: &[ConnectionStatistics]) -> Vec<Fact> {
    let Some(first) = connections.first() else { return Vec::new() };
    // Without a list nothing is known of the interface, and the rest all the same.
    let addresses = rtnetlink::addresses().unwrap_or_default();
    let interface = interface(&addresses, first.local.ip(), first.peer.ip());
    let mut facts = vec![known("target", first.peer.to_string(), None)];
    if connections.len() > 1 {
        facts.push(known("connections", connections.len().to_string(), None));
    }
    let mtu = interface.as_ref().and_then(|name| system.number(net(name, "mtu")));
    facts.extend(interface.iter().flat_map(|name| link(system, name, mtu)));
    facts.extend(first.path.iter().flat_map(|path| tcp(path, interface.as_deref(), mtu)));
    facts
}

/// The link that leads there, if it is a real one whose speed and MTU are known: what has no device behind it
/// is memory, and what it calls its speed limits nothing.
pub(super) fn ethernet(system: &System, connection: &ConnectionStatistics) -> Option<Link> {
    let addresses = rtnetlink::addresses().ok()?;
    let interface = interface(&addresses, connection.local.ip(), connection.peer.ip())?;
    let ipv6 = connection.peer.ip().to_canonical().is_ipv6();
    ethernet_of(system, &interface).map(|link| Link { ipv6, ..link })
}

fn ethernet_of(system: &System, interface: &str) -> Option<Link> {
    let is_real = system.has(net(interface, "device"));
    let mbit = system.number(net(interface, "speed")).filter(|mbit| *mbit > 0 && is_real)?;
    let mtu = system.number(net(interface, "mtu")).and_then(|mtu| u32::try_from(mtu).ok())?;
    // proc_sys_net_ipv4(5): 1 and 2 ask for them, and nearly every peer agrees.
    let timestamps = system.number("proc/sys/net/ipv4/tcp_timestamps") != Some(0);
    Some(Link { timestamps, ..Link::ethernet(mbit as f64 * 1e6, mtu) })
}

fn known(name: &str, value: impl Into<String>, better: Option<String>) -> Fact {
    fact(Group::Network, name, value, better)
}

/// Packets to an address of this machine's own take the loopback, whatever interface has the address; others
/// leave by the interface whose address they come from, unless somebody routes by policy.
pub fn interface(addresses: &[(String, IpAddr)], local: IpAddr, peer: IpAddr) -> Option<String> {
    let holder = |address: IpAddr| addresses.iter().find(|(_, own)| *own == address.to_canonical());
    match holder(peer) {
        Some(_) => Some(LOOPBACK.to_owned()),
        None => holder(local).map(|(name, _)| name.clone()),
    }
}

/// The interface of what does not leave this machine.
pub const LOOPBACK: &str = "lo";
/// The loopback's MTU is a byte more than an IP packet can have.
const IP_PACKET_MAX: i64 = 65_535;

/// Where the kernel tells of an interface.
pub fn net(interface: &str, file: &str) -> String {
    format!("sys/class/net/{interface}/{file}")
}

fn link(system: &System, name: &str, mtu: Option<i64>) -> Vec<Fact> {
    let driver = system.link(net(name, "device/driver"));
    let about = match (name, driver) {
        (LOOPBACK, _) => "lo: the target is on this machine".to_owned(),
        (_, Some(driver)) => format!("{name} ({driver})"),
        (_, None) => name.to_owned(),
    };
    let facts = [Some(known("interface", about, None)), speed(system, name)];
    let mtu = mtu.map(|mtu| known("MTU", mtu.to_string(), None));
    facts.into_iter().flatten().chain(mtu).collect()
}

/// What the interface has negotiated with its peer. Interfaces without a cable do not say, or say -1.
fn speed(system: &System, name: &str) -> Option<Fact> {
    let mbit = system.number(net(name, "speed")).filter(|mbit| *mbit > 0)?;
    let duplex = system.text(net(name, "duplex")).filter(|duplex| duplex != "unknown");
    let shown = duplex.as_ref().map_or_else(String::new, |duplex| format!(", {duplex} duplex"));
    // Document 000's crossover cable had two of its four pairs, and 10 MB/s.
    let better = match (mbit, duplex.as_deref()) {
        (_, Some("half")) => Some("full duplex: both ends have to negotiate, or neither"),
        (..1000, _) => Some("1000 Mbit/s: gigabit interfaces fall back to this by a cable with two pairs"),
        _ => None,
    };
    Some(known("link", format!("{mbit} Mbit/s{shown}"), better.map(str::to_owned)))
}

fn tcp(path: &PathInfo, interface: Option<&str>, mtu: Option<i64>) -> Vec<Fact> {
    let us = |time: Duration| significant(time.as_secs_f64() * 1e6);
    let least = path.round_trip_min.map_or_else(String::new, |least| format!(", shortest {}", us(least)));
    // BBR paces by a model of the path that a loopback does not fit.
    let paced = interface == Some(LOOPBACK) && path.congestion.starts_with("bbr");
    let congestion = paced.then(|| "cubic (congestion=cubic): bbr slows a loopback down".to_owned());
    let narrow = mtu.filter(|mtu| i64::from(path.path_mtu_bytes) < (*mtu).min(IP_PACKET_MAX));
    let narrow = narrow.map(|mtu| format!("{mtu}, as the interface has: something on the way is narrower"));
    let lossy = (path.retransmissions > 0).then(|| "0: segments were lost on the way".to_owned());
    vec![
        known("congestion control", &*path.congestion, congestion),
        known("round trip", format!("{} µs{least}", us(path.round_trip)), None),
        known("MSS", path.segment_bytes.to_string(), None),
        known("path MTU", path.path_mtu_bytes.to_string(), narrow),
        known("retransmissions", path.retransmissions.to_string(), lossy),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::system::TestSystem;
    use super::*;

    fn addresses() -> Vec<(String, IpAddr)> {
        let address = |text: &str| text.parse().expect("an address");
        vec![
            (LOOPBACK.to_owned(), address("127.0.0.1")),
            ("eth0".to_owned(), address("10.0.0.5")),
            ("eth1".to_owned(), address("fd00::5")),
        ]
    }

    #[test]
    fn the_interface_is_the_one_that_packets_leave_by() {
        let leaves = |local: &str, peer: &str| {
            let (local, peer) = (local.parse().expect("local"), peer.parse().expect("peer"));
            interface(&addresses(), local, peer)
        };
        assert_eq!(leaves("10.0.0.5", "10.0.0.9").as_deref(), Some("eth0"));
        assert_eq!(leaves("fd00::5", "fd00::9").as_deref(), Some("eth1"));
        assert_eq!(leaves("::ffff:10.0.0.5", "::ffff:10.0.0.9").as_deref(), Some("eth0"));
        assert_eq!(leaves("10.0.0.5", "10.0.0.5").as_deref(), Some(LOOPBACK));
        assert_eq!(leaves("192.0.2.1", "192.0.2.2"), None);
    }

    #[test]
    fn a_real_link_limits_and_one_in_memory_does_not() {
        let files = [
            ("sys/class/net/eth0/speed", "1000"),
            ("sys/class/net/eth0/mtu", "9000"),
            ("sys/class/net/eth0/device/driver", "->../../drivers/igc"),
            ("sys/class/net/veth0/speed", "10000"),
            ("sys/class/net/veth0/mtu", "1500"),
            ("proc/sys/net/ipv4/tcp_timestamps", "1"),
        ];
        let made = TestSystem::with(&files);
        let link = Link { timestamps: true, ..Link::ethernet(1e9, 9000) };
        assert_eq!(ethernet_of(&made.system, "eth0"), Some(link));
        assert_eq!(ethernet_of(&made.system, "veth0"), None);
    }

    fn speeds(speed: &str, duplex: &str) -> Option<(String, bool)> {
        let files = [("sys/class/net/eth0/speed", speed), ("sys/class/net/eth0/duplex", duplex)];
        let fact = super::speed(&TestSystem::with(&files).system, "eth0")?;
        Some((fact.value, fact.better.is_some()))
    }

    #[test]
    fn a_link_that_fell_back_is_marked() {
        assert_eq!(speeds("10000", "full"), Some(("10000 Mbit/s, full duplex".to_owned(), false)));
        assert_eq!(speeds("100", "full"), Some(("100 Mbit/s, full duplex".to_owned(), true)));
        assert_eq!(speeds("1000", "half"), Some(("1000 Mbit/s, half duplex".to_owned(), true)));
        assert_eq!(speeds("-1", "unknown"), None);
    }

    #[test]
    fn an_interface_has_a_driver() {
        let made = TestSystem::with(&[(
            "sys/class/net/eth0/device/driver",
            "->../../bus/virtio/drivers/virtio_net",
        )]);
        assert_eq!(link(&made.system, "eth0", Some(9000))[0].value, "eth0 (virtio_net)");
    }

    #[test]
    fn a_narrow_place_on_the_way_is_marked() {
        let path = PathInfo { path_mtu_bytes: 1500, congestion: "bbr".to_owned(), ..PathInfo::default() };
        let marked = |interface, mtu| -> Vec<String> {
            let facts = tcp(&path, Some(interface), Some(mtu));
            facts.into_iter().filter(|fact| fact.better.is_some()).map(|fact| fact.name).collect()
        };
        assert_eq!(marked("eth0", 9000), ["path MTU"]);
        assert_eq!(marked("eth0", 1500), Vec::<String>::new());
        assert_eq!(marked(LOOPBACK, 1500), ["congestion control"]);
        let widest = PathInfo { path_mtu_bytes: 65_535, ..PathInfo::default() };
        assert!(tcp(&widest, Some(LOOPBACK), Some(65_536)).iter().all(|fact| fact.better.is_none()));
    }
}
