//! SendTargets responses (RFC 7143 appendix C): the targets that an initiator may use, and their portals.
//!
//! A list is produced in parts, on request, so that a session keeps only one part and no configuration. The
//! list is ordered by name, and a part begins at a name. A target that is served all the time is therefore in
//! exactly one part, even if others are added or removed in between.

use std::net::{IpAddr, SocketAddr};

use front_end_core::Portal;

use crate::config::{Config, Target};

/// The requester of SendTargets: its name and addresses.
pub(crate) struct SendTargetsRequester<'a> {
    pub(crate) initiator: &'a str,
    pub(crate) address: IpAddr,
    /// The local address of its connection, which is known to be reachable.
    pub(crate) local: SocketAddr,
}

/// Maximum length of a part of a response, in addition to the requester's limit for one PDU. libiscsi accepts
/// PDUs of 256 KiB, but no response that consists of several PDUs.
pub(crate) const PART_BYTES_MAX: usize = 256 << 10;

/// Returns the targets to which `requester` may log in, starting at the name `from`. Other targets are not
/// reported.
pub(crate) fn visible<'a>(
    config: &'a Config,
    requester: &'a SendTargetsRequester<'a>,
    from: Option<&str>,
) -> impl Iterator<Item = &'a Target> + 'a {
    debug_assert!(
        config
            .targets
            .is_sorted_by(|one, next| one.name <= next.name),
        "see Config::in_order"
    );
    let begin = from.map_or(0, |from| {
        config
            .targets
            .partition_point(|target| *target.name < *from)
    });
    let targets = config.targets[begin..].iter().map(|target| &**target);
    targets.filter(|target| target.access.admits(requester.initiator, requester.address))
}

/// Returns a part of a SendTargets response: `TargetName` and its `TargetAddress`es, each terminated by a
/// NUL. Also returns the name of the first target of the next part, if there is one. The part fits into
/// `segment_max` bytes unless a single target does not.
pub(crate) fn describe<'a>(
    targets: impl Iterator<Item = &'a Target>,
    portals: &[Portal],
    requester: &SendTargetsRequester<'_>,
    segment_max: usize,
) -> (Vec<u8>, Option<String>) {
    let (mut text, bytes_max) = (Vec::new(), segment_max.min(PART_BYTES_MAX));
    for target in targets {
        let before = text.len();
        line(&mut text, "TargetName", &target.name);
        if let Some(alias) = &target.alias {
            line(&mut text, "TargetAlias", alias.as_str());
        }
        for portal in portals
            .iter()
            .filter(|portal| target.is_reached_by(portal.tag))
        {
            if let Some(address) = address_for(portal, requester.local) {
                line(
                    &mut text,
                    "TargetAddress",
                    &format!("{address},{}", portal.tag),
                );
            }
        }
        if before > 0 && text.len() > bytes_max {
            text.truncate(before);
            return (text, Some(target.name.clone()));
        }
    }
    (text, None)
}

/// Returns the address of a portal to report to a requester that is connected to `local`; `None` if the
/// requester could not reach the portal.
fn address_for(portal: &Portal, local: SocketAddr) -> Option<String> {
    if let Some(advertised) = &portal.advertise {
        return Some(advertised.clone());
    }
    let address = portal.listen.inet()?;
    let (listen, here) = (address.ip(), local.ip().to_canonical());
    if listen.is_unspecified() {
        // A wildcard portal is reachable at the address to which the requester has connected, if that address
        // is of the family that the portal accepts.
        return (listen.is_ipv6() == here.is_ipv6()).then(|| with_port(here, address.port()));
    }
    let near =
        listen == here || (listen.is_loopback() == here.is_loopback() && !link_local(listen));
    near.then(|| with_port(listen, address.port()))
}

/// Whether this is an IPv6 link-local address. Such an address needs a zone, which is meaningless to the
/// requester.
fn link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

fn with_port(address: IpAddr, port: u16) -> String {
    SocketAddr::new(address, port).to_string()
}

fn line(text: &mut Vec<u8>, key: &str, value: &str) {
    text.extend_from_slice(key.as_bytes());
    text.push(b'=');
    text.extend_from_slice(value.as_bytes());
    text.push(0);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use scsi_session::NamePattern;

    use crate::config::{Access, Limits};
    use crate::context::ISCSI;

    fn portal(listen: &str, tag: u16) -> Portal {
        let listen = listen.parse::<SocketAddr>().expect("an address").into();
        Portal {
            front_end: ISCSI,
            listen,
            tag,
            advertise: None,
            stream: reactor::StreamOptions::default(),
        }
    }

    fn target(name: &str, initiators: &[&str]) -> Target {
        let names = initiators
            .iter()
            .map(|name| NamePattern::new(name))
            .collect();
        let access = Access {
            initiators: (!initiators.is_empty()).then_some(names),
            networks: None,
        };
        Target {
            access,
            ..Target::open(name, Vec::new())
        }
    }

    fn ask(config: &(Vec<Portal>, Config), initiator: &str, local: &str) -> String {
        ask_for(config, initiator, local, 8192)
    }

    /// Returns all parts of the response to an initiator that accepts PDUs of this size.
    fn ask_for(
        (portals, config): &(Vec<Portal>, Config),
        initiator: &str,
        local: &str,
        segment_max: usize,
    ) -> String {
        let local: SocketAddr = local.parse().expect("an address");
        let requester = SendTargetsRequester {
            initiator,
            address: local.ip(),
            local,
        };
        let (mut all, mut from) = (Vec::new(), None);
        loop {
            let targets = visible(config, &requester, from.as_deref());
            let (part, next) = describe(targets, portals, &requester, segment_max);
            assert!(
                part.len() <= segment_max.clamp(128, PART_BYTES_MAX)
                    && (next.is_none() || next > from)
            );
            all.extend(part);
            let Some(next) = next else { break };
            from = Some(next);
        }
        String::from_utf8(all).expect("UTF-8").replace('\0', "\n")
    }

    /// There are thousands of targets, and every second one is not visible. No part exceeds its limit, and
    /// the parts together list all visible targets.
    #[test]
    fn a_long_list_is_told_in_parts_of_bounded_length() {
        let name = |number: usize| format!("iqn.2026-11.example:store-{number:05}");
        let hidden = |number: usize| {
            if number.is_multiple_of(2) {
                &[][..]
            } else {
                &["iqn.them"][..]
            }
        };
        let targets = (0..8000)
            .map(|number| target(&name(number), hidden(number)))
            .collect();
        let config = config(vec![portal("192.0.2.7:3260", 1)], targets);
        let expected = (0..8000).step_by(2).map(|number| {
            format!(
                "TargetName={}\nTargetAddress=192.0.2.7:3260,1\n",
                name(number)
            )
        });
        let expected = expected.collect::<String>();
        assert!(expected.len() > PART_BYTES_MAX);
        for segment_max in [1, 512, 8192, PART_BYTES_MAX, 16 << 20] {
            let seen = ask_for(&config, "iqn.me", "192.0.2.7:3260", segment_max);
            assert!(seen == expected, "in PDUs of {segment_max} bytes");
        }
    }

    /// Regression: after a reload between two parts, a target that remained was in neither part.
    #[test]
    fn targets_that_stay_are_listed_once_although_others_come_and_go_between_the_parts() {
        let local: SocketAddr = "192.0.2.7:3260".parse().expect("an address");
        let requester = SendTargetsRequester {
            initiator: "iqn.me",
            address: local.ip(),
            local,
        };
        let served = |names: &[&str]| {
            config(
                vec![portal("192.0.2.7:3260", 1)],
                names.iter().map(|name| target(name, &[])).collect(),
            )
        };
        for second in [
            &["iqn.b", "iqn.c", "iqn.d"][..],
            &["iqn.a", "iqn.aa", "iqn.b", "iqn.c", "iqn.d"],
        ] {
            let first = served(&["iqn.d", "iqn.b", "iqn.a", "iqn.c"]);
            let (mut all, mut from) = (Vec::new(), None);
            for config in std::iter::once(first).chain(std::iter::repeat_with(|| served(second))) {
                let targets = visible(&config.1, &requester, from.as_deref());
                let (part, next) = describe(targets, &config.0, &requester, 100);
                all.extend(part);
                let Some(next) = next else { break };
                from = Some(next);
            }
            let all = String::from_utf8(all).expect("UTF-8");
            for name in ["iqn.b", "iqn.c", "iqn.d"] {
                assert_eq!(
                    all.matches(&format!("TargetName={name}\0")).count(),
                    1,
                    "{name} of {second:?}: {all:?}"
                );
            }
        }
    }

    fn config(portals: Vec<Portal>, targets: Vec<Target>) -> (Vec<Portal>, Config) {
        let targets = targets.into_iter().map(Arc::new).collect();
        let limits = Limits::default();
        (
            portals,
            Config {
                targets,
                discovery_authentication: None,
                limits,
                random: |_| {},
            }
            .in_order(),
        )
    }

    #[test]
    fn the_zone_of_an_address_is_this_machines_and_not_told() {
        let told = "TargetName=iqn.t\nTargetAddress=[fe80::1]:3260,1\n";
        for listen in ["[fe80::1%2]:3260", "[::]:3260"] {
            let config = config(vec![portal(listen, 1)], vec![target("iqn.t", &[])]);
            assert_eq!(ask(&config, "iqn.me", "[fe80::1%2]:3260"), told, "{listen}");
        }
    }

    #[test]
    fn hidden_targets_do_not_leak() {
        let config = config(
            vec![portal("127.0.0.1:3260", 1)],
            vec![
                target("iqn.mine", &["iqn.me"]),
                target("iqn.theirs", &["iqn.them"]),
            ],
        );
        let seen = ask(&config, "iqn.me", "127.0.0.1:3260");
        assert_eq!(
            seen,
            "TargetName=iqn.mine\nTargetAddress=127.0.0.1:3260,1\n"
        );
    }

    #[test]
    fn a_wildcard_portal_is_named_as_the_asker_reached_it() {
        let config = config(
            vec![portal("0.0.0.0:3260", 1), portal("[::]:3260", 2)],
            vec![target("iqn.t", &[])],
        );
        assert_eq!(
            ask(&config, "iqn.me", "192.0.2.7:3260"),
            "TargetName=iqn.t\nTargetAddress=192.0.2.7:3260,1\n"
        );
        assert_eq!(
            ask(&config, "iqn.me", "[fd00::7]:3260"),
            "TargetName=iqn.t\nTargetAddress=[fd00::7]:3260,2\n"
        );
    }

    #[test]
    fn loopback_portals_are_for_those_on_this_machine() {
        let config = config(
            vec![
                portal("127.0.0.1:3260", 1),
                portal("192.0.2.7:3260", 1),
                portal("[fe80::1]:3260", 1),
            ],
            vec![target("iqn.t", &[])],
        );
        assert_eq!(
            ask(&config, "i", "192.0.2.7:3260"),
            "TargetName=iqn.t\nTargetAddress=192.0.2.7:3260,1\n"
        );
        assert_eq!(
            ask(&config, "i", "127.0.0.1:3260"),
            "TargetName=iqn.t\nTargetAddress=127.0.0.1:3260,1\n"
        );
    }

    #[test]
    fn a_target_shows_only_the_portals_of_its_groups() {
        let mut grouped = target("iqn.t", &[]);
        grouped.portal_groups = Some(vec![2]);
        let config = config(
            vec![portal("192.0.2.7:3260", 1), portal("192.0.2.7:3261", 2)],
            vec![grouped],
        );
        assert_eq!(
            ask(&config, "i", "192.0.2.7:3260"),
            "TargetName=iqn.t\nTargetAddress=192.0.2.7:3261,2\n"
        );
    }
}
