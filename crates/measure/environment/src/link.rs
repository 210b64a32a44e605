//! The interface of the path to a target, for diagnosis: its speed, and the packets that it drops during a
//! measurement.

use host::rtnetlink;
use iscsi_client::ConnectionStatistics;
use serde::{Deserialize, Serialize};

use super::network::{LOOPBACK, interface, net};
use super::system::System;

/// The interface that the way begins with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkLayer {
    /// Its name, such as `eth0`.
    pub interface: String,
    /// What it runs at, in bits a second, if it tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits_per_s: Option<f64>,
    /// Whether it can send and receive at once, if it tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_duplex: Option<bool>,
    /// The longest packet it takes, in bytes.
    pub mtu: u32,
    /// The way does not leave this machine.
    pub loopback: bool,
    /// Packets that it dropped or found damaged while we measured.
    pub faults: u64,
}

/// An interface that is being watched.
pub struct LinkWatch {
    system: System,
    name: String,
    /// Where its counters stood.
    faults: u64,
}

/// Packets that were damaged, or that were dropped for want of room
/// (`Documentation/ABI/testing/sysfs-class-net-statistics`). `rx_dropped` is not one of them: it also counts
/// packets for unknown protocols.
const FAULTS: [&str; 5] = ["rx_errors", "tx_errors", "rx_missed_errors", "tx_dropped", "collisions"];

impl LinkWatch {
    /// Begins to watch the one that this connection leaves by. A sentence says why that is not known.
    pub fn begin(connection: Option<&ConnectionStatistics>) -> Result<LinkWatch, String> {
        let connection = connection.ok_or("there was no session any more")?;
        let addresses = rtnetlink::addresses().map_err(|error| format!("no list of interfaces: {error}"))?;
        let name = interface(&addresses, connection.local.ip(), connection.peer.ip());
        let name = name.ok_or("no interface of this machine has the address that we come from")?;
        Ok(LinkWatch::new(System::this(), name))
    }

    fn new(system: System, name: String) -> LinkWatch {
        let faults = faults(&system, &name);
        LinkWatch { system, name, faults }
    }

    /// What is known of it, with the faults since it is watched.
    ///
    /// # Errors
    /// A sentence that says why nothing is.
    pub fn end(self) -> Result<LinkLayer, String> {
        known(&self.system, self.name, self.faults)
    }
}

fn known(system: &System, name: String, faults_before: u64) -> Result<LinkLayer, String> {
    let Some(mtu) = system.number(net(&name, "mtu")).and_then(|mtu| u32::try_from(mtu).ok()) else {
        return Err(format!("the kernel tells nothing of the interface {name}"));
    };
    // What has no device behind it is memory, and what it calls its speed limits nothing, unless somebody has
    // set it: for an interface of a laboratory or of a virtual machine to say what it stands for.
    let is_real = system.has(net(&name, "device"));
    let is_set = |mbit: &i64| *mbit > 0 && (is_real || !UNSET_MBIT.contains(mbit));
    let mbit = system.number(net(&name, "speed")).filter(is_set);
    let full_duplex = match system.text(net(&name, "duplex")).as_deref().filter(|_| is_real) {
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

/// What the kernel's drivers for tun and tap (drivers/net/tun.c) and for veth (drivers/net/veth.c) begin
/// with.
const UNSET_MBIT: [i64; 2] = [10, 10_000];

fn faults(system: &System, name: &str) -> u64 {
    let counters = FAULTS.iter().map(|counter| system.number(net(name, &format!("statistics/{counter}"))));
    counters.flatten().filter_map(|count| u64::try_from(count).ok()).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::super::system::TestSystem;
    use super::*;

    fn watched(name: &str, files: &[(&str, &str)]) -> Result<LinkLayer, String> {
        known(&TestSystem::with(files).system, name.to_owned(), 7)
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
        assert!(matches!(tap0, Ok(LinkLayer { bits_per_s: None, mtu: 9000, .. })), "{tap0:?}");
        let tap1 = watched("tap1", &files);
        assert!(matches!(tap1, Ok(LinkLayer { bits_per_s: Some(4e8), .. })), "{tap1:?}");
    }
}
