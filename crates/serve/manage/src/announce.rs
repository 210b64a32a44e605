//! What a server says on standard output once it serves: where it listens, and per LUN what to paste. The last
//! line is `ready`, for scripts that wait for it.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use volume::spec::Bytes;

use crate::config::Config;
use crate::front_ends::iscsi::{Lun, Portal};
use crate::control::Volume;
use crate::paste::{Way, lines};

/// The whole of it; `bound` are the addresses of the portals, with the ports that were really taken.
pub fn text(config: &Config, volumes: &[Volume], bound: &[SocketAddr]) -> String {
    let portals: Vec<(&Portal, SocketAddr)> = config.portals.iter().zip(bound.iter().copied()).collect();
    let mut text = format!("linerate {}\n", env!("CARGO_PKG_VERSION"));
    for (portal, address) in &portals {
        // Writing into a String does not fail.
        let _ = writeln!(text, "listens on {address} (portal group {})", portal.group);
    }
    for target in &config.targets {
        let portal = portals.iter().find(|(portal, _)| target.is_reached_by(portal.group));
        let Some((_, address)) = portal else { continue };
        for lun in &target.luns {
            let _ = writeln!(text, "\n{}, LUN {}: {}", target.name, lun.lun, volume(volumes, lun));
            text += &lines(&Way {
                portal: reachable(*address),
                target: target.name.as_str(),
                lun: lun.lun,
                user: target
                    .chap
                    .as_ref()
                    .and_then(|chap| chap.accounts.first())
                    .map(|account| account.credentials.name.as_str()),
            });
        }
    }
    text + "\nready\n"
}

fn volume(volumes: &[Volume], lun: &Lun) -> String {
    let Some(volume) = volumes.iter().find(|volume| volume.name == lun.volume.as_str()) else {
        return lun.volume.to_string();
    };
    let (bytes, block) = (Bytes(volume.bytes), Bytes(volume.block_bytes.into()));
    format!("{}, {}, {bytes} in blocks of {block}", volume.name, volume.spec)
}

/// An address to paste: a wildcard is no place to connect to, so one that the outside would see instead.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => {
            outward(Ipv4Addr::UNSPECIFIED.into(), OUTSIDE_V4.into()).unwrap_or(Ipv4Addr::LOCALHOST.into())
        }
        IpAddr::V6(ip) if ip.is_unspecified() => {
            outward(Ipv6Addr::UNSPECIFIED.into(), OUTSIDE_V6.into()).unwrap_or(Ipv6Addr::LOCALHOST.into())
        }
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Addresses for documentation (RFC 5737, RFC 3849): the route to anywhere, to nobody in particular.
const OUTSIDE_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const OUTSIDE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// The address from which packets for `outside` would go. Connecting a datagram socket sends none.
fn outward(any: IpAddr, outside: IpAddr) -> Option<IpAddr> {
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((outside, 9)).ok()?;
    socket.local_addr().ok().map(|local| local.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_shows_what_is_said() {
        let config = crate::Desired::default().or_usual().safe_config().expect("nothing wrong");
        let volume = &config.volumes[0];
        let device = backends::open_local(&volume.spec, Default::default()).expect("memory");
        let geometry = device.geometry();
        let volumes = [Volume {
            name: volume.name.to_string(),
            spec: volume.spec.to_string(),
            bytes: geometry.bytes(),
            block_bytes: geometry.block_size.bytes(),
            luns: Vec::new(),
            in_file: false,
        }];
        let bound: Vec<SocketAddr> = config.portals.iter().map(|portal| portal.listen.0).collect();
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
}
