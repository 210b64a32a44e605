//! Facts about the path to the target: the interface and its link, TCP statistics and congestion control, and
//! the negotiated keys.

use std::net::IpAddr;
use std::time::Duration;

use backends::location::Location;
use bench::record::{Fact, Group};
use host::rtnetlink;
use inspect::negotiation::negotiated;
use iscsi::negotiate::{Offers, Parameters};
use iscsi_client::ConnectionStatistics;
use model::link::Link;
use reactor::PathInfo;
use readable::figures::significant;
use serde::{Deserialize, Serialize};

use crate::fact;
use crate::system::System;

/// Returns facts from the connections of a session. All connections lead to one target, and the first one
/// represents them.
pub(super) fn facts(system: &System, connections: &[ConnectionStatistics]) -> Vec<Fact> {
    let Some(first) = connections.first() else {
        return Vec::new();
    };
    // If the addresses cannot be listed, only the interface is unknown.
    let addresses = rtnetlink::addresses().unwrap_or_default();
    let interface = interface(&addresses, first.local.ip(), first.peer.ip());
    let mut facts = vec![known("target", first.peer.to_string(), None)];
    if connections.len() > 1 {
        facts.push(known("connections", connections.len().to_string(), None));
    }
    let mtu = interface
        .as_ref()
        .and_then(|name| system.number(net(name, "mtu")));
    facts.extend(interface.iter().flat_map(|name| link(system, name, mtu)));
    facts.extend(
        first
            .path
            .iter()
            .flat_map(|path| tcp(path, interface.as_deref(), mtu)),
    );
    facts
}

/// Returns the link to the peer, if it is a physical link whose speed and MTU are known. An interface without
/// a device is virtual, and its reported speed is not a limit.
pub(super) fn ethernet(system: &System, connection: &ConnectionStatistics) -> Option<Link> {
    let addresses = rtnetlink::addresses().ok()?;
    let interface = interface(&addresses, connection.local.ip(), connection.peer.ip())?;
    let ipv6 = connection.peer.ip().to_canonical().is_ipv6();
    ethernet_of(system, &interface).map(|link| Link { ipv6, ..link })
}

fn ethernet_of(system: &System, interface: &str) -> Option<Link> {
    let is_real = system.has(net(interface, "device"));
    let mbit = system
        .number(net(interface, "speed"))
        .filter(|mbit| *mbit > 0 && is_real)?;
    let mtu = system
        .number(net(interface, "mtu"))
        .and_then(|mtu| u32::try_from(mtu).ok())?;
    // According to proc_sys_net_ipv4(5), 1 and 2 request timestamps; nearly every peer agrees.
    let timestamps = system.number("proc/sys/net/ipv4/tcp_timestamps") != Some(0);
    Some(Link {
        timestamps,
        ..Link::ethernet(mbit as f64 * 1e6, mtu)
    })
}

fn known(name: &str, value: impl Into<String>, better: Option<String>) -> Fact {
    fact(Group::Network, name, value, better)
}

/// Returns the interface of a connection. Packets to an address of this machine use the loopback interface,
/// even if another interface has the address. Other packets are sent from the interface with their source
/// address, unless policy routing is configured.
pub fn interface(addresses: &[(String, IpAddr)], local: IpAddr, peer: IpAddr) -> Option<String> {
    let holder = |address: IpAddr| {
        addresses
            .iter()
            .find(|(_, own)| *own == address.to_canonical())
    };
    match holder(peer) {
        Some(_) => Some(LOOPBACK.to_owned()),
        None => holder(local).map(|(name, _)| name.clone()),
    }
}

/// The loopback interface.
pub const LOOPBACK: &str = "lo";
/// The maximum length of an IP packet. The MTU of the loopback interface is one byte larger.
const IP_PACKET_MAX: i64 = 65_535;

/// Returns the path of the kernel's file for an interface.
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

/// Returns the speed negotiated with the link partner. An interface without a cable reports none, or -1.
fn speed(system: &System, name: &str) -> Option<Fact> {
    let mbit = system.number(net(name, "speed")).filter(|mbit| *mbit > 0)?;
    let duplex = system
        .text(net(name, "duplex"))
        .filter(|duplex| duplex != "unknown");
    let shown = duplex
        .as_ref()
        .map_or_else(String::new, |duplex| format!(", {duplex} duplex"));
    // The crossover cable of document 000 had two instead of four pairs, and reached 10 MB/s.
    let better = match (mbit, duplex.as_deref()) {
        (_, Some("half")) => {
            Some("full duplex: enable auto-negotiation at both ends, or at neither")
        }
        (..1000, _) => {
            Some("1000 Mbit/s: with a two-pair cable, gigabit interfaces fall back to 100")
        }
        _ => None,
    };
    Some(known(
        "link",
        format!("{mbit} Mbit/s{shown}"),
        better.map(str::to_owned),
    ))
}

fn tcp(path: &PathInfo, interface: Option<&str>, mtu: Option<i64>) -> Vec<Fact> {
    let us = |time: Duration| significant(time.as_secs_f64() * 1e6);
    let least = path
        .round_trip_min
        .map_or_else(String::new, |least| format!(", shortest {}", us(least)));
    // BBR sets its rate according to a model of the path that does not suit the loopback interface.
    let paced = interface == Some(LOOPBACK) && path.congestion.starts_with("bbr");
    let congestion = paced.then(|| "cubic (congestion=cubic): BBR is slow on loopback".to_owned());
    let narrow = mtu.filter(|mtu| i64::from(path.path_mtu_bytes) < (*mtu).min(IP_PACKET_MAX));
    let narrow = narrow
        .map(|mtu| format!("{mtu}, as on the interface: a hop on the path has a smaller MTU"));
    let lossy = (path.retransmissions > 0).then(|| "0: segments were lost on the path".to_owned());
    vec![
        known("congestion control", &*path.congestion, congestion),
        known(
            "round trip",
            format!("{} µs{least}", us(path.round_trip)),
            None,
        ),
        known("MSS", path.segment_bytes.to_string(), None),
        known("path MTU", path.path_mtu_bytes.to_string(), narrow),
        known("retransmissions", path.retransmissions.to_string(), lossy),
    ]
}

// The interface on the path to a target, for a diagnosis: its speed, and the packets that it drops during a
// measurement.

/// The first interface on the path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkLayer {
    /// The name, such as `eth0`.
    pub interface: String,
    /// The speed in bits per second, if reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits_per_s: Option<f64>,
    /// Whether the link is full duplex, if reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_duplex: Option<bool>,
    /// The length of the longest packet, in bytes.
    pub mtu: u32,
    /// Whether the path stays within this machine.
    pub loopback: bool,
    /// The number of packets that the interface dropped or found corrupted during the measurement.
    pub faults: u64,
}

/// An interface under observation.
pub struct LinkWatch {
    system: System,
    name: String,
    /// The sum of the counters at the start.
    faults: u64,
}

/// Counters of packets that were corrupted, or dropped because a buffer was full
/// (`Documentation/ABI/testing/sysfs-class-net-statistics`). `rx_dropped` is not included, because it also
/// counts packets of unknown protocols.
const FAULTS: [&str; 5] = [
    "rx_errors",
    "tx_errors",
    "rx_missed_errors",
    "tx_dropped",
    "collisions",
];

impl LinkWatch {
    /// Starts to observe the interface of this connection. On failure, returns the reason.
    pub fn begin(connection: Option<&ConnectionStatistics>) -> Result<LinkWatch, String> {
        let connection = connection.ok_or("the session had already ended")?;
        let addresses =
            rtnetlink::addresses().map_err(|error| format!("cannot list interfaces: {error}"))?;
        let name = interface(&addresses, connection.local.ip(), connection.peer.ip());
        let name =
            name.ok_or("no interface of this machine has the source address of the connection")?;
        Ok(LinkWatch::new(System::this(), name))
    }

    fn new(system: System, name: String) -> LinkWatch {
        let faults = faults(&system, &name);
        LinkWatch {
            system,
            name,
            faults,
        }
    }

    /// Returns the properties of the interface, with the faults since [`LinkWatch::begin`].
    ///
    /// # Errors
    /// Returns the reason if the properties are unknown.
    pub fn end(self) -> Result<LinkLayer, String> {
        link_layer(&self.system, self.name, self.faults)
    }
}

fn link_layer(system: &System, name: String, faults_before: u64) -> Result<LinkLayer, String> {
    let Some(mtu) = system
        .number(net(&name, "mtu"))
        .and_then(|mtu| u32::try_from(mtu).ok())
    else {
        return Err(format!("the kernel has no data on the interface {name}"));
    };
    // An interface without a device is virtual, and its reported speed is not a limit, unless the speed was
    // configured: the interface of a lab or of a virtual machine then represents a physical one.
    let is_real = system.has(net(&name, "device"));
    let is_set = |mbit: &i64| *mbit > 0 && (is_real || !UNSET_MBIT.contains(mbit));
    let mbit = system.number(net(&name, "speed")).filter(is_set);
    let full_duplex = match system
        .text(net(&name, "duplex"))
        .as_deref()
        .filter(|_| is_real)
    {
        Some("full") => Some(true),
        Some("half") => Some(false),
        Some(_) | None => None,
    };
    Ok(LinkLayer {
        bits_per_s: mbit.map(|mbit| mbit as f64 * 1e6),
        full_duplex,
        mtu,
        loopback: name == LOOPBACK,
        faults: faults(system, &name).saturating_sub(faults_before),
        interface: name,
    })
}

/// The initial speeds that the kernel's drivers for tun and tap (drivers/net/tun.c) and for veth
/// (drivers/net/veth.c) report, in Mbit/s.
const UNSET_MBIT: [i64; 2] = [10, 10_000];

fn faults(system: &System, name: &str) -> u64 {
    let counters = FAULTS
        .iter()
        .map(|counter| system.number(net(name, &format!("statistics/{counter}"))));
    counters
        .flatten()
        .filter_map(|count| u64::try_from(count).ok())
        .fold(0, u64::saturating_add)
}

/// Returns the congestion control of the sockets to a place, if there are any. It affects only writes,
/// because reads are subject to the target's congestion control.
pub fn congestion(place: &Location) -> Option<String> {
    match place {
        Location::Lun(url) => Some(
            url.settings
                .stream
                .congestion
                .clone()
                .unwrap_or_else(system_congestion),
        ),
        Location::Volume(_) | Location::Path(_) => None,
    }
}

/// Returns the system's default for sockets without a setting.
pub fn system_congestion() -> String {
    let default = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    default.map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

/// Returns a fact for each key.
pub(super) fn negotiated_facts(offers: &Offers, got: &Parameters) -> Vec<Fact> {
    let keys = negotiated(offers, got);
    keys.iter()
        .map(|key| fact(Group::Negotiated, key.name(), key.value(), key.better()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use iscsi::negotiate::SessionType;
    use iscsi_client::Settings;

    use crate::system::TestSystem;

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
        assert_eq!(
            leaves("::ffff:10.0.0.5", "::ffff:10.0.0.9").as_deref(),
            Some("eth0")
        );
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
        let link = Link {
            timestamps: true,
            ..Link::ethernet(1e9, 9000)
        };
        assert_eq!(ethernet_of(&made.system, "eth0"), Some(link));
        assert_eq!(ethernet_of(&made.system, "veth0"), None);
    }

    fn speeds(speed: &str, duplex: &str) -> Option<(String, bool)> {
        let files = [
            ("sys/class/net/eth0/speed", speed),
            ("sys/class/net/eth0/duplex", duplex),
        ];
        let fact = super::speed(&TestSystem::with(&files).system, "eth0")?;
        Some((fact.value, fact.better.is_some()))
    }

    #[test]
    fn a_link_that_fell_back_is_marked() {
        assert_eq!(
            speeds("10000", "full"),
            Some(("10000 Mbit/s, full duplex".to_owned(), false))
        );
        assert_eq!(
            speeds("100", "full"),
            Some(("100 Mbit/s, full duplex".to_owned(), true))
        );
        assert_eq!(
            speeds("1000", "half"),
            Some(("1000 Mbit/s, half duplex".to_owned(), true))
        );
        assert_eq!(speeds("-1", "unknown"), None);
    }

    #[test]
    fn an_interface_has_a_driver() {
        let made = TestSystem::with(&[(
            "sys/class/net/eth0/device/driver",
            "->../../bus/virtio/drivers/virtio_net",
        )]);
        assert_eq!(
            link(&made.system, "eth0", Some(9000))[0].value,
            "eth0 (virtio_net)"
        );
    }

    #[test]
    fn a_narrow_place_on_the_way_is_marked() {
        let path = PathInfo {
            path_mtu_bytes: 1500,
            congestion: "bbr".to_owned(),
            ..PathInfo::default()
        };
        let marked = |interface, mtu| -> Vec<String> {
            let facts = tcp(&path, Some(interface), Some(mtu));
            facts
                .into_iter()
                .filter(|fact| fact.better.is_some())
                .map(|fact| fact.name)
                .collect()
        };
        assert_eq!(marked("eth0", 9000), ["path MTU"]);
        assert_eq!(marked("eth0", 1500), Vec::<String>::new());
        assert_eq!(marked(LOOPBACK, 1500), ["congestion control"]);
        let widest = PathInfo {
            path_mtu_bytes: 65_535,
            ..PathInfo::default()
        };
        assert!(
            tcp(&widest, Some(LOOPBACK), Some(65_536))
                .iter()
                .all(|fact| fact.better.is_none())
        );
    }

    fn watched(name: &str, files: &[(&str, &str)]) -> Result<LinkLayer, String> {
        link_layer(&TestSystem::with(files).system, name.to_owned(), 7)
    }

    #[test]
    fn an_interface_that_is_gone_is_not_known() {
        assert!(matches!(watched("eth0", &[]), Err(why) if why.contains("eth0")));
    }

    #[test]
    fn only_what_was_lost_meanwhile_counts_and_only_a_link_that_somebody_gave_one_has_a_speed() {
        let files = [
            ("sys/class/net/eth0/mtu", "1500"),
            ("sys/class/net/eth0/speed", "100"),
            ("sys/class/net/eth0/duplex", "half"),
            ("sys/class/net/eth0/device/driver", "->../../drivers/igc"),
            ("sys/class/net/eth0/statistics/rx_errors", "9"),
            ("sys/class/net/eth0/statistics/rx_dropped", "1000"),
            ("sys/class/net/tap0/mtu", "9000"),
            ("sys/class/net/tap0/speed", "10"),
            ("sys/class/net/tap1/mtu", "1500"),
            ("sys/class/net/tap1/speed", "400"),
        ];
        let eth0 = LinkLayer {
            interface: "eth0".to_owned(),
            bits_per_s: Some(1e8),
            full_duplex: Some(false),
            mtu: 1500,
            loopback: false,
            faults: 2,
        };
        assert_eq!(watched("eth0", &files), Ok(eth0));
        let tap0 = watched("tap0", &files);
        assert!(
            matches!(
                tap0,
                Ok(LinkLayer {
                    bits_per_s: None,
                    mtu: 9000,
                    ..
                })
            ),
            "{tap0:?}"
        );
        let tap1 = watched("tap1", &files);
        assert!(
            matches!(
                tap1,
                Ok(LinkLayer {
                    bits_per_s: Some(4e8),
                    ..
                })
            ),
            "{tap1:?}"
        );
    }

    #[test]
    fn a_key_that_costs_something_says_what_would_be_better_and_why() {
        let got = Parameters::defaults(SessionType::Normal);
        let facts = negotiated_facts(&Settings::default().offers, &got);
        let key = |name| facts.iter().find(|fact| fact.name == name).expect("a key");
        assert_eq!(key("InitialR2T").value, "Yes");
        assert!(
            key("InitialR2T")
                .better
                .as_ref()
                .is_some_and(|better| better.starts_with("No: "))
        );
        assert_eq!(key("HeaderDigest").better, None);
    }
}
