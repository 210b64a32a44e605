//! The texts that a server prints about its configuration. `serve --check` prints a summary. At start-up, a
//! server lists its addresses and volumes; the last line is `ready`, for scripts that wait for it. This
//! module also creates the list of commands to type on a host that uses the server.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use front_end_core::{ListenAddress, Portal};

use crate::config::{Config, Volume as ConfiguredVolume};
use crate::control::Volume;

/// Returns the text at start-up. `bound` contains the portals of the configuration with their actual ports.
pub fn text(config: &Config, volumes: &[Volume], bound: &[Portal]) -> String {
    let mut text = format!("linerate {}\n", env!("CARGO_PKG_VERSION"));
    for ((front_end, _), portal) in config.portals().zip(bound) {
        // Writing to a `String` does not fail.
        let _ = writeln!(text, "listens on {}", front_end.describe(portal));
    }
    let portals = reached(bound);
    config
        .front_ends()
        .for_each(|front_end| text += &front_end.announcement(&portals, volumes));
    text + "\n`linerate server usage` prints the commands for Linux, Windows, ESXi and QEMU.\n\n"
        + READY
}

/// The last line of the text at start-up.
pub const READY: &str = "ready\n";

/// Returns the commands to type on hosts.
pub(crate) fn usage(config: &Config, bound: &[Portal]) -> String {
    let portals = reached(bound);
    config
        .front_ends()
        .map(|front_end| front_end.usage(&portals))
        .collect()
}

fn reached(bound: &[Portal]) -> Vec<Portal> {
    let listen = |portal: &Portal| match portal.listen.inet() {
        Some(address) => reachable(address).into(),
        None => portal.listen.clone(),
    };
    bound
        .iter()
        .map(|portal| Portal {
            listen: listen(portal),
            ..portal.clone()
        })
        .collect()
}

/// Returns an address to paste into a command. A wildcard is replaced by the address of this computer that
/// other hosts see.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => {
            outward(Ipv4Addr::UNSPECIFIED.into(), OUTSIDE_V4.into())
                .unwrap_or(Ipv4Addr::LOCALHOST.into())
        }
        IpAddr::V6(ip) if ip.is_unspecified() => {
            outward(Ipv6Addr::UNSPECIFIED.into(), OUTSIDE_V6.into())
                .unwrap_or(Ipv6Addr::LOCALHOST.into())
        }
        ip => ip,
    };
    // A link-local address keeps its zone.
    let mut reachable = address;
    reachable.set_ip(ip);
    reachable
}

/// Addresses reserved for documentation (RFC 5737, RFC 3849). The route to them is the default route.
const OUTSIDE_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const OUTSIDE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// Returns the source address of packets to `outside`. Connecting a datagram socket sends no packet.
fn outward(any: IpAddr, outside: IpAddr) -> Option<IpAddr> {
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((outside, 9)).ok()?;
    socket.local_addr().ok().map(|local| local.ip())
}

/// Returns the output for a valid configuration.
pub fn summary(config: &Config) -> String {
    summary_of(config, &[]) + "the configuration is valid\n"
}

/// Returns one line for each listener, each export of each front end, and each volume that is not exported.
/// `bound` contains the addresses of the portals with their actual ports; it is empty if the server does not
/// listen.
pub(crate) fn summary_of(config: &Config, bound: &[ListenAddress]) -> String {
    let mut text = String::new();
    // Writing to a `String` does not fail.
    for (number, (front_end, portal)) in config.portals().enumerate() {
        let portal = Portal {
            listen: bound.get(number).cloned().unwrap_or(portal.listen),
            ..portal
        };
        let _ = writeln!(text, "listens on {}", front_end.describe(&portal));
    }
    if let Some(metrics) = &config.metrics {
        let _ = writeln!(text, "metrics on http://{}/metrics", metrics);
    }
    config
        .front_ends()
        .for_each(|front_end| text += &front_end.summary(config));
    let exported: Vec<&ConfiguredVolume> = config.exported().collect();
    let is_idle =
        |volume: &&ConfiguredVolume| !exported.iter().any(|other| other.name == volume.name);
    for volume in config.volumes.iter().filter(is_idle) {
        let _ = writeln!(
            text,
            "volume {} is not exported and will not be opened",
            volume.name
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_shows_what_is_said() {
        let config = crate::StartOptions::default()
            .or_usual()
            .safe_config()
            .expect("nothing wrong");
        let volume = &config.volumes[0];
        let device = backends::open_local(&volume.spec, &backends::opening()).expect("memory");
        let geometry = device.geometry();
        let volumes = [Volume {
            name: volume.name.to_string(),
            spec: volume.spec.to_string(),
            bytes: geometry.bytes(),
            block_bytes: geometry.block_size.bytes(),
            naa: String::new(),
            serial: String::new(),
            luns: Vec::new(),
            in_file: false,
            layers: backends::layers::LayerStates::default(),
        }];
        let bound: Vec<Portal> = config.portals().map(|(_, portal)| portal).collect();
        let readme = include_str!("../../../../README.md");
        assert!(readme.contains(&format!("```text\n{}```", text(&config, &volumes, &bound))));
    }

    #[test]
    fn a_wildcard_is_not_a_place_to_connect_to() {
        for any in ["0.0.0.0:3260", "[::]:3260"] {
            let address = reachable(any.parse().expect("an address"));
            assert!(!address.ip().is_unspecified());
            assert_eq!(address.port(), 3260);
        }
        let fixed = "127.0.0.1:1".parse().expect("an address");
        assert_eq!(reachable(fixed), fixed);
    }

    #[test]
    fn a_target_without_luns_is_announced_without_a_blank_line() {
        let name = "iqn.2026-01.com.example:empty";
        let text = format!(
            "[[portal]]\nlisten = \"127.0.0.1:3260\"\n[[target]]\nname = \"{name}\"\n\
             [[target.lun]]\nlun = 0\nvolume = \"\"\n"
        );
        let config = Config::parse("x.toml", &text).expect("nothing wrong");
        let bound: Vec<Portal> = config.portals().map(|(_, portal)| portal).collect();
        let announced = super::text(&config, &[], &bound);
        let target =
            format!("\n{name}, for any initiator\n  no LUNs\n  iscsi://127.0.0.1:3260/{name}\n");
        assert!(announced.contains(&target), "{announced}");
    }

    #[test]
    fn a_configuration_is_told_in_few_lines() {
        let text = "
[[portal]]
listen = \"[::]:3260\"
group = 2
[volume.vm1]
spec = \"ram:1GiB\"
[volume.spare]
spec = \"ram:1GiB\"
[[target]]
name = \"iqn.2026-01.com.example:disks\"
networks = [\"fd00::/8\"]
[[target.lun]]
lun = 3
volume = \"vm1\"
initiators = [\"iqn.1993-08.org.debian:*\"]
";
        let config = Config::parse("x.toml", text).expect("nothing wrong");
        let expected = "\
listens on [::]:3260 (portal group 2)
target iqn.2026-01.com.example:disks for any initiator in listed networks
  LUN 3: vm1 = ram:1GiB, for listed initiators
volume spare is not exported and will not be opened
the configuration is valid
";
        assert_eq!(summary(&config), expected);
    }
}
