//! Hosts on this machine, joined by links of a rate: network namespaces, pairs of interfaces (veth(4)) and the kernel's token
//! buckets (tc-tbf(8)). The lab's wires delay, lose and reorder, and are threads that would want the cores of what is measured
//! here.

use anyhow::{Context, Result};

use xtask::namespace::Namespace;
use xtask::process;
use xtask::serving::Placement;

/// Removed when dropped.
#[derive(Debug)]
pub(crate) struct Network {
    hosts: Vec<(&'static str, Namespace)>,
}

/// What a link's buffer holds, in milliseconds: as a switch's port has.
const QUEUE_MS: u32 = 10;
/// Two segments of the longest kind that the kernel sends in one piece.
const BUCKET_BYTES: u32 = 128 << 10;

impl Network {
    /// Hosts that know of nobody.
    pub(crate) fn of(names: &[&'static str]) -> Result<Network> {
        process::require(&["ip", "tc", "nsenter", "taskset"])?;
        let hosts = names.iter().map(|name| Ok((*name, Namespace::named(&format!("-{name}"))?)));
        Ok(Network { hosts: hosts.collect::<Result<_>>()? })
    }

    /// Joins two of them by a link of this rate: interface `linkN`, whose addresses are 10.88.N.1 and 10.88.N.2.
    pub(crate) fn join(&self, number: u8, ends: [&str; 2], bits_per_s: f64) -> Result<()> {
        self.join_freely(number, ends)?;
        let (rate, bucket) = (format!("{bits_per_s:.0}bit"), format!("{BUCKET_BYTES}b"));
        let (interface, queue) = (format!("link{number}"), format!("{QUEUE_MS}ms"));
        for end in ends {
            self.host(end)?.within(&[
                "tc", "qdisc", "add", "dev", &interface, "root", "tbf", "rate", &rate, "burst", &bucket,
                "latency", &queue,
            ])?;
        }
        Ok(())
    }

    /// The same by a link without a limit.
    pub(crate) fn join_freely(&self, number: u8, ends: [&str; 2]) -> Result<()> {
        let [first, second] = ends.map(|end| self.host(end));
        let (first, second) = (first?, second?);
        let interface = format!("link{number}");
        process::run(
            "ip",
            &[
                "link",
                "add",
                &interface,
                "netns",
                &first.name,
                "type",
                "veth",
                "peer",
                "name",
                &interface,
                "netns",
                &second.name,
            ],
        )?;
        for (end, host) in [(1, first), (2, second)] {
            let ip = |words: &[&str]| process::run("ip", &[&["-n", &host.name], words].concat());
            ip(&["address", "add", &format!("10.88.{number}.{end}/24"), "dev", &interface])?;
            ip(&["link", "set", &interface, "up"])?;
        }
        Ok(())
    }

    /// How long packets of a link may be, at both ends.
    pub(crate) fn set_mtu(&self, number: u8, ends: [&str; 2], mtu: u32) -> Result<()> {
        for end in ends {
            let name = &self.host(end)?.name;
            let words = ["-n", name, "link", "set", &format!("link{number}"), "mtu", &mtu.to_string()];
            process::run("ip", &words)?;
        }
        Ok(())
    }

    /// Makes a host a switch between these links, which lose their addresses there.
    pub(crate) fn bridge(&self, host: &str, links: &[u8]) -> Result<()> {
        let name = &self.host(host)?.name;
        let ip = |words: &[&str]| process::run("ip", &[&["-n", name], words].concat());
        ip(&["link", "add", "bridge", "type", "bridge"])?;
        ip(&["link", "set", "bridge", "up"])?;
        for link in links {
            let interface = format!("link{link}");
            ip(&["address", "flush", "dev", &interface])?;
            ip(&["link", "set", &interface, "master", "bridge"])?;
        }
        Ok(())
    }

    /// Gives a host one more address on a link.
    pub(crate) fn address(&self, host: &str, link: u8, address: &str) -> Result<()> {
        let name = &self.host(host)?.name;
        let words = ["-n", name, "address", "add", address, "dev", &format!("link{link}")];
        process::run("ip", &words).map(drop)
    }

    /// Has a host cut what it sends by a link into segments itself, so that a queue behind it sees them one by one.
    pub(crate) fn send_segments_alone(&self, link: u8, host: &str) -> Result<()> {
        let name = &self.host(host)?.name;
        let words = ["-n", name, "link", "set", &format!("link{link}"), "gso_max_segs", "1"];
        process::run("ip", &words).map(drop)
    }

    /// Both ends of a link cut and join no segments: each is a packet of its own.
    pub(crate) fn cut_and_join_nothing(&self, link: u8, ends: [&str; 2]) -> Result<()> {
        process::require(&["ethtool"])?;
        for end in ends {
            self.host(end)?.within(&[
                "ethtool",
                "-K",
                &format!("link{link}"),
                "tso",
                "off",
                "gso",
                "off",
                "gro",
                "off",
                "tx-udp-segmentation",
                "off",
            ])?;
        }
        Ok(())
    }

    /// Takes this host's end of a link down, or up again.
    pub(crate) fn set_up(&self, number: u8, host: &str, is_up: bool) -> Result<()> {
        let (name, state) = (&self.host(host)?.name, if is_up { "up" } else { "down" });
        process::run("ip", &["-n", name, "link", "set", &format!("link{number}"), state]).map(drop)
    }

    /// There, on one core.
    pub(crate) fn place(&self, host: &str, core: usize) -> Result<Placement> {
        Ok(Placement { namespace: Some(self.host(host)?.name.clone()), core: Some(core) })
    }

    fn host(&self, name: &str) -> Result<&Namespace> {
        let found = self.hosts.iter().find(|(host, _)| *host == name);
        found.map(|(_, namespace)| namespace).with_context(|| format!("no host {name}"))
    }
}
