//! The plan of a lab: hosts, and links between them.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use crate::conditions::Conditions;
use crate::document;
use crate::error::PlanError;

/// The hosts and links of a lab.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The first is where a command runs that names none.
    pub hosts: Vec<HostPlan>,
    /// Each is an interface of its name in either host.
    pub links: Vec<LinkPlan>,
}

/// One host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPlan {
    /// What it is called.
    pub name: String,
    /// The congestion control of TCP.
    pub congestion: String,
    /// More settings of the kernel (sysctl), all below `net.`; they come after the lab's own.
    pub sysctls: Vec<(String, String)>,
    /// A program with its arguments that `linerate lab run` starts here before the command and ends after it.
    pub run: Vec<String>,
    /// How the program shows that it is ready.
    pub ready: Option<ReadyCheck>,
    /// How long that may take.
    pub ready_within: Duration,
}

/// How a program shows that it is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadyCheck {
    /// It listens on this TCP port.
    Port(u16),
    /// This program succeeds, with these arguments, in the same host.
    Command(Vec<String>),
}

/// A link between two hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkPlan {
    /// What it and its interfaces are called: at most 15 letters, digits, `-` and `_`.
    pub name: String,
    /// Its two ends.
    pub ends: [EndPlan; 2],
    /// What it does to frames from the first end to the second, and back.
    pub conditions: [Conditions; 2],
}

/// One end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndPlan {
    /// The host on this side.
    pub host: String,
    /// The interface's address and the bits of its network; without: 10.77.N.1 and .2 of 24, N counting the
    /// links.
    pub address: Option<(IpAddr, u8)>,
    /// The longest packet that the interface sends or takes; without: what the link carries.
    pub interface_mtu: Option<u32>,
    /// The speed that the interface claims to have, in Mbit/s; without: the link's rate.
    pub reported_megabits: Option<u32>,
}

impl Plan {
    /// Reads a plan from TOML, as `docs/lab.md` describes it.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn parse(text: &str) -> Result<Plan, PlanError> {
        document::parse(text)
    }

    /// Two hosts, `client` and `server`, and one link between them, `wire`, which does the same in both
    /// directions.
    pub fn pair(conditions: Conditions) -> Plan {
        Plan {
            hosts: vec![HostPlan::new("client"), HostPlan::new("server")],
            links: vec![LinkPlan::new("wire", "client", "server", conditions)],
        }
    }

    /// What contradicts itself, if anything does.
    pub(crate) fn mistake(&self) -> Option<String> {
        let hosts: Vec<&str> = self.hosts.iter().map(|host| host.name.as_str()).collect();
        let links: Vec<&str> = self.links.iter().map(|link| link.name.as_str()).collect();
        let twice = |names: &[&str]| {
            let again = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name));
            again.map(|(_, name)| format!("there are two named {name}"))
        };
        if hosts.is_empty() {
            return Some("a lab needs a host; write [host.NAME]".to_owned());
        }
        (links.len() > LINKS_MAX)
            .then(|| format!("a lab has at most {LINKS_MAX} links"))
            .or_else(|| twice(&hosts))
            .or_else(|| twice(&links))
            .or_else(|| self.links.iter().find_map(|link| link.mistake(&hosts)))
            .or_else(|| self.hosts.iter().find_map(HostPlan::mistake))
    }
}

impl HostPlan {
    /// A host with `cubic`, as most are, and the lab's settings.
    pub fn new(name: impl Into<String>) -> HostPlan {
        HostPlan {
            name: name.into(),
            congestion: "cubic".to_owned(),
            sysctls: Vec::new(),
            run: Vec::new(),
            ready: None,
            ready_within: Duration::from_secs(30),
        }
    }

    fn mistake(&self) -> Option<String> {
        let wrong = self.sysctls.iter().find(|(name, _)| !is_sysctl(name));
        wrong.map(|(name, _)| {
            format!("{name} is not a setting of the network; write one such as net.ipv4.tcp_sack")
        })
    }
}

impl LinkPlan {
    /// A link that does the same in both directions.
    pub fn new(
        name: impl Into<String>,
        first: impl Into<String>,
        second: impl Into<String>,
        conditions: Conditions,
    ) -> LinkPlan {
        let ends = [EndPlan::new(first), EndPlan::new(second)];
        LinkPlan { name: name.into(), ends, conditions: [conditions.clone(), conditions] }
    }

    /// The longest packet that an end's interface sends or takes.
    pub(crate) fn interface_mtu(&self, end: usize) -> u32 {
        let carried = self.conditions.iter().map(Conditions::mtu_max).max().unwrap_or(IP_BYTES_MAX);
        self.ends[end].interface_mtu.unwrap_or(carried)
    }

    fn mistake(&self, hosts: &[&str]) -> Option<String> {
        let name = &self.name;
        if !is_interface(name) {
            return Some(format!("{name} cannot name a link: up to 15 letters, digits, - and _, and not lo"));
        }
        let stranger = self.ends.iter().find(|end| !hosts.contains(&end.host.as_str()));
        if let Some(end) = stranger {
            return Some(format!("link {name} ends at {}, which is not a host of the plan", end.host));
        }
        if self.ends[0].host == self.ends[1].host {
            return Some(format!("link {name} ends twice at {}", self.ends[0].host));
        }
        let mtu = (0..2).map(|end| self.interface_mtu(end)).find(|mtu| !MTU.contains(mtu));
        mtu.map(|mtu| format!("an interface of {name} has MTU {mtu}; it is from 68 to 65521")).or_else(|| {
            self.conditions.iter().find_map(Conditions::mistake).map(|what| format!("{name}: {what}"))
        })
    }
}

impl EndPlan {
    /// An end whose address, MTU and speed follow from the link.
    pub fn new(host: impl Into<String>) -> EndPlan {
        EndPlan { host: host.into(), address: None, interface_mtu: None, reported_megabits: None }
    }
}

/// The default address of an end: in the network of the `link`-th link.
pub(crate) fn default_address(link: usize, end: usize) -> (IpAddr, u8) {
    (Ipv4Addr::new(10, 77, link as u8, end as u8 + 1).into(), 24)
}

/// A name that an interface can have; `lo` every host has already.
pub(crate) fn is_interface(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (1..=15).contains(&name.len()) && name.bytes().all(plain) && name != "lo"
}

/// The name of a setting that each namespace has for itself.
pub(crate) fn is_sysctl(name: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    name.starts_with("net.") && name.split('.').all(part)
}

/// Each link has a network in 10.77.0.0/16.
pub(crate) const LINKS_MAX: usize = 200;
/// From what IPv4 demands (RFC 791) to what a tap takes.
pub(crate) const MTU: std::ops::RangeInclusive<u32> = 68..=IP_BYTES_MAX;
const IP_BYTES_MAX: u32 = 65_521;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_sound() {
        assert_eq!(Plan::pair(Conditions::default()).mistake(), None);
    }

    #[test]
    fn contradictions_are_told() {
        let told = |change: fn(&mut Plan)| {
            let mut plan = Plan::pair(Conditions::default());
            change(&mut plan);
            plan.mistake().expect("wrong")
        };
        assert_eq!(told(|plan| plan.hosts.clear()), "a lab needs a host; write [host.NAME]");
        assert_eq!(told(|plan| plan.hosts.push(HostPlan::new("client"))), "there are two named client");
        assert!(told(|plan| plan.links[0].ends[1].host = "nobody".to_owned()).contains("not a host"));
        assert!(told(|plan| plan.links[0].ends[1].host = "client".to_owned()).contains("twice"));
        assert!(told(|plan| plan.links[0].name = "an interface".to_owned()).contains("cannot name a link"));
        assert!(told(|plan| plan.links[0].ends[0].interface_mtu = Some(20)).contains("MTU 20"));
        assert!(told(|plan| plan.links[0].conditions[1].loss = -0.1).contains("loss"));
        let escape = |plan: &mut Plan| {
            plan.hosts[0].sysctls.push(("net...kernel.panic".to_owned(), "1".to_owned()));
        };
        assert!(told(escape).contains("not a setting of the network"));
    }
}
