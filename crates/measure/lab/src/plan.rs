//! The plan of a lab: the hosts, the links between them, and the document format with its units.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use crate::conditions::{Conditions, Spread};
use crate::error::PlanError;
use crate::section::{self, Mistake, Read, Section, placed};

/// The hosts and links of a lab.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The hosts. A command without a host name runs in the first one.
    pub hosts: Vec<HostPlan>,
    /// The links. Each link is an interface with the link's name in both hosts.
    pub links: Vec<LinkPlan>,
}

/// The plan of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPlan {
    /// The name of the host.
    pub name: String,
    /// TCP's congestion control algorithm.
    pub congestion: String,
    /// Further kernel settings (sysctl), all of which start with `net.`. They are applied after the lab's own
    /// settings.
    pub sysctls: Vec<(String, String)>,
    /// A program with its arguments. `linerate lab run` starts it in this host before the command, and ends
    /// it after the command.
    pub run: Vec<String>,
    /// How to check that the program is ready.
    pub ready: Option<ReadyCheck>,
    /// The timeout of the check.
    pub ready_within: Duration,
}

/// A check that a program is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadyCheck {
    /// The program listens on this TCP port.
    Port(u16),
    /// This command, with its arguments, succeeds in the same host.
    Command(Vec<String>),
}

/// A link between two hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkPlan {
    /// The name of the link and of its interfaces: up to 15 letters, digits, `-` and `_`.
    pub name: String,
    /// The two ends of the link.
    pub ends: [EndPlan; 2],
    /// The conditions from the first end to the second, and in the opposite direction.
    pub conditions: [Conditions; 2],
}

/// One end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndPlan {
    /// The host on this side.
    pub host: String,
    /// The address and prefix length of the interface. The default is 10.77.N.1 or .2 with 24 bits, where N
    /// is the number of the link.
    pub address: Option<(IpAddr, u8)>,
    /// The length of the longest packet that the interface sends or accepts. The default is the MTU of the
    /// link.
    pub interface_mtu: Option<u32>,
    /// The speed that the interface reports, in Mbit/s. The default is the rate of the link.
    pub reported_megabits: Option<u32>,
}

impl Plan {
    /// Parses a plan in TOML, as described in `docs/lab.md`.
    ///
    /// # Errors
    /// Returns the first error, with its position.
    pub fn parse(text: &str) -> Result<Plan, PlanError> {
        parse(text)
    }

    /// The keys of a plan.
    pub const KEYS: &[&str] = &["seed", "host", "link"];

    /// Reads the [keys](Plan::KEYS) of a plan from a section, which may have others.
    ///
    /// # Errors
    /// Returns the first error, with its position.
    pub fn read(file: &Section<'_>) -> Read<Plan> {
        let seed = file.number("seed", 0..=u64::MAX >> 1)?.unwrap_or(0);
        let hosts = file.tables("host")?;
        if hosts.is_empty() {
            return Err(file.wrong("the plan has no host; add [host.NAME]"));
        }
        let hosts = hosts
            .iter()
            .map(|(name, section)| host(name, section))
            .collect::<Read<Vec<_>>>()?;
        let links = file.tables("link")?;
        if let Some((_, section)) = links.get(LINKS_MAX) {
            return Err(section.wrong(format!("the maximum is {LINKS_MAX} links")));
        }
        let links = links
            .iter()
            .map(|(name, section)| link(name, section, &hosts, seed))
            .collect::<Read<_>>()?;
        Ok(Plan { hosts, links })
    }

    /// Creates a plan with two hosts, `client` and `server`, and one link between them, `wire`, which has the
    /// same conditions in both directions.
    pub fn pair(conditions: Conditions) -> Plan {
        Plan {
            hosts: vec![HostPlan::new("client"), HostPlan::new("server")],
            links: vec![LinkPlan::new("wire", "client", "server", conditions)],
        }
    }

    /// Returns the inconsistency of the plan, if there is one.
    pub(crate) fn mistake(&self) -> Option<String> {
        let hosts: Vec<&str> = self.hosts.iter().map(|host| host.name.as_str()).collect();
        let links: Vec<&str> = self.links.iter().map(|link| link.name.as_str()).collect();
        let twice = |names: &[&str]| {
            let again = names
                .iter()
                .enumerate()
                .find(|(at, name)| names[..*at].contains(name));
            again.map(|(_, name)| format!("the name {name} is used twice"))
        };
        if hosts.is_empty() {
            return Some("the plan has no host; add [host.NAME]".to_owned());
        }
        (links.len() > LINKS_MAX)
            .then(|| format!("the maximum is {LINKS_MAX} links"))
            .or_else(|| twice(&hosts))
            .or_else(|| twice(&links))
            .or_else(|| self.links.iter().find_map(|link| link.mistake(&hosts)))
            .or_else(|| self.hosts.iter().find_map(HostPlan::mistake))
    }
}

impl HostPlan {
    /// Creates a host with the congestion control `cubic`, like most systems, and the lab's settings.
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
            format!("{name} is not a network setting; use one such as net.ipv4.tcp_sack")
        })
    }
}

impl LinkPlan {
    /// Creates a link with the same conditions in both directions.
    pub fn new(
        name: impl Into<String>,
        first: impl Into<String>,
        second: impl Into<String>,
        conditions: Conditions,
    ) -> LinkPlan {
        let ends = [EndPlan::new(first), EndPlan::new(second)];
        LinkPlan {
            name: name.into(),
            ends,
            conditions: [conditions.clone(), conditions],
        }
    }

    /// Returns the length of the longest packet that the interface at an end sends or accepts.
    pub(crate) fn interface_mtu(&self, end: usize) -> u32 {
        let carried = self
            .conditions
            .iter()
            .map(Conditions::mtu_max)
            .max()
            .unwrap_or(IP_BYTES_MAX);
        self.ends[end].interface_mtu.unwrap_or(carried)
    }

    fn mistake(&self, hosts: &[&str]) -> Option<String> {
        let name = &self.name;
        if !is_interface(name) {
            return Some(format!(
                "{name} is not a valid link name; use up to 15 letters, digits, - and _, but not lo"
            ));
        }
        let stranger = self
            .ends
            .iter()
            .find(|end| !hosts.contains(&end.host.as_str()));
        if let Some(end) = stranger {
            return Some(format!(
                "link {name} connects {}, which is not a host in the plan",
                end.host
            ));
        }
        if self.ends[0].host == self.ends[1].host {
            return Some(format!(
                "link {name} connects {} to itself",
                self.ends[0].host
            ));
        }
        let mtu = (0..2)
            .map(|end| self.interface_mtu(end))
            .find(|mtu| !MTU.contains(mtu));
        mtu.map(|mtu| format!("an interface of {name} has MTU {mtu}; use 68 to 65521"))
            .or_else(|| {
                self.conditions
                    .iter()
                    .find_map(Conditions::mistake)
                    .map(|what| format!("{name}: {what}"))
            })
    }
}

impl EndPlan {
    /// Creates an end whose address, MTU and speed follow from the link.
    pub fn new(host: impl Into<String>) -> EndPlan {
        EndPlan {
            host: host.into(),
            address: None,
            interface_mtu: None,
            reported_megabits: None,
        }
    }
}

/// Returns the default address of an end, in the network of link number `link`.
pub(crate) fn default_address(link: usize, end: usize) -> (IpAddr, u8) {
    (Ipv4Addr::new(10, 77, link as u8, end as u8 + 1).into(), 24)
}

/// Whether an interface can have this name. Every host already has an interface `lo`.
pub(crate) fn is_interface(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (1..=15).contains(&name.len()) && name.bytes().all(plain) && name != "lo"
}

/// Whether a kernel setting with this name exists in each namespace.
pub(crate) fn is_sysctl(name: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    name.starts_with("net.") && name.split('.').all(part)
}

/// Maximum number of links. Each link has a network in 10.77.0.0/16.
pub(crate) const LINKS_MAX: usize = 200;
/// The valid range of MTUs: from the minimum of IPv4 (RFC 791) to the maximum of a tap interface.
pub(crate) const MTU: std::ops::RangeInclusive<u32> = 68..=IP_BYTES_MAX;
const IP_BYTES_MAX: u32 = 65_521;

pub(crate) fn parse(text: &str) -> Result<Plan, PlanError> {
    let whole = section::document(text)?;
    let file = Section {
        at: 0..0,
        table: &whole,
    };
    file.knows(Plan::KEYS)
        .and_then(|()| Plan::read(&file))
        .map_err(|mistake| placed(text, mistake))
}

fn host(name: &str, section: &Section<'_>) -> Read<HostPlan> {
    section.knows(&["congestion", "sysctl", "run", "ready", "ready-within"])?;
    let mut host = HostPlan::new(name);
    if let Some(congestion) = section.text("congestion")? {
        host.congestion = congestion.to_owned();
    }
    if let Some(sysctls) = section.section("sysctl")? {
        for (name, value) in sysctls.table.iter() {
            host.sysctls.push(sysctl(name, value)?);
        }
    }
    host.run = section.words("run")?.unwrap_or_default();
    host.ready = ready(section)?;
    if let Some(time) = section.read("ready-within", time)? {
        host.ready_within = time;
    }
    for key in ["ready", "ready-within"] {
        let needed = if key == "ready" { "run" } else { "ready" };
        if section.table.contains_key(key) && !section.table.contains_key(needed) {
            return Err(section.wrong_at(key, format!("this key requires `{needed}`")));
        }
    }
    Ok(host)
}

fn ready(section: &Section<'_>) -> Read<Option<ReadyCheck>> {
    match section.table.get("ready").map(Spanned::get_ref) {
        None => Ok(None),
        Some(DeValue::Array(_)) => match section.words("ready")?.unwrap_or_default() {
            words if words.is_empty() => {
                Err(section.wrong_at("ready", "use a program with its arguments"))
            }
            words => Ok(Some(ReadyCheck::Command(words))),
        },
        Some(DeValue::Integer(_)) => Ok(section
            .number("ready", 1..=65_535)?
            .map(|port| ReadyCheck::Port(port as u16))),
        Some(_) => {
            let what = "use a port, or a command that must succeed: [\"curl\", \"…\"]";
            Err(section.wrong_at("ready", what))
        }
    }
}

fn sysctl(
    name: &Spanned<std::borrow::Cow<'_, str>>,
    value: &Spanned<DeValue<'_>>,
) -> Read<(String, String)> {
    let key: &str = name.get_ref();
    if !is_sysctl(key) {
        let what =
            format!("`{key}` is not a network setting; use one such as \"net.ipv4.tcp_sack\" = 0");
        return Err(Mistake {
            at: name.span(),
            what,
        });
    }
    let value = match value.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        _ => {
            return Err(Mistake {
                at: value.span(),
                what: format!("`{key}`: use a string or a number"),
            });
        }
    };
    Ok((key.to_owned(), value))
}

fn link(name: &str, section: &Section<'_>, hosts: &[HostPlan], seed: u64) -> Read<LinkPlan> {
    section.knows(&[CONDITIONS, &["between", "end", "towards", "lane", "spread"]].concat())?;
    if !is_interface(name) {
        return Err(section.wrong(format!(
            "`{name}` is not a valid link name; use up to 15 letters, digits, - and _, but not lo"
        )));
    }
    let [first, second] = between(section, hosts)?;
    let unsaid = Conditions {
        seed,
        ..Conditions::default()
    };
    let mut both = conditions(section, unsaid)?;
    for lane in section.sections("lane")? {
        lane.knows(CONDITIONS)?;
        let unsaid = Conditions {
            lanes: Vec::new(),
            ..both.clone()
        };
        // The seed differs from lane to lane, so that lanes with the same conditions lose different frames.
        let seed = seed.wrapping_add(both.lanes.len() as u64 + 1);
        both.lanes
            .push(conditions(&lane, Conditions { seed, ..unsaid })?);
    }
    both.spread = section.read("spread", spread)?.unwrap_or_default();
    let mut link = LinkPlan::new(name, first, second, both);
    if link.conditions[1].lanes.is_empty() {
        link.conditions[1].seed ^= BACK;
    }
    link.conditions[1]
        .lanes
        .iter_mut()
        .for_each(|lane| lane.seed ^= BACK);
    for (host, towards) in section.tables("towards")? {
        towards.knows(CONDITIONS)?;
        let direction = 1 - end_at(&link, host, &towards)?;
        link.conditions[direction] = conditions(&towards, link.conditions[direction].clone())?;
    }
    for (host, end) in section.tables("end")? {
        let at = end_at(&link, host, &end)?;
        link.ends[at] = end_plan(host, &end)?;
    }
    Ok(link)
}

fn spread(text: &str) -> Result<Spread, String> {
    match text {
        "hash" => Ok(Spread::ByHash),
        "in-turn" => Ok(Spread::InTurn),
        _ => Err("unknown distribution of flows; use \"hash\" or \"in-turn\"".to_owned()),
    }
}

/// Changes the seed of the opposite direction, so that both directions lose different frames even if the plan
/// has the same conditions for both. The seed that distributes the flows of a bundle over its lanes is the
/// same in both directions.
const BACK: u64 = 1 << 63;

fn between<'a>(section: &Section<'a>, hosts: &[HostPlan]) -> Read<[&'a str; 2]> {
    let example = "specify the two hosts of the link, such as between = [\"client\", \"server\"]";
    let names = section
        .texts("between")?
        .ok_or_else(|| section.wrong(example))?;
    for (at, name) in &names {
        if !hosts.iter().any(|host| host.name == *name) {
            return Err(Mistake {
                at: at.clone(),
                what: format!("there is no host `{name}`; add [host.{name}]"),
            });
        }
    }
    match names[..] {
        [(_, first), (_, second)] if first != second => Ok([first, second]),
        _ => Err(section.wrong_at("between", example)),
    }
}

fn end_at(link: &LinkPlan, host: &str, section: &Section<'_>) -> Read<usize> {
    let found = link.ends.iter().position(|end| end.host == host);
    found.ok_or_else(|| section.wrong(format!("link {} does not connect `{host}`", link.name)))
}

const CONDITIONS: &[&str] = &[
    "rate", "burst", "peak", "delay", "jitter", "loss", "reorder", "mtu", "buffer",
];

/// Reads the conditions of a section. Keys that the section does not contain have the values of `unsaid`.
fn conditions(section: &Section<'_>, mut unsaid: Conditions) -> Read<Conditions> {
    unsaid.bits_per_s = section.read("rate", rate)?.or(unsaid.bits_per_s);
    unsaid.burst_bytes = section.read("burst", size)?.unwrap_or(unsaid.burst_bytes);
    unsaid.peak_bits_per_s = section.read("peak", rate)?.or(unsaid.peak_bits_per_s);
    unsaid.delay = section.read("delay", time)?.unwrap_or(unsaid.delay);
    unsaid.jitter = section.read("jitter", time)?.unwrap_or(unsaid.jitter);
    unsaid.loss = section.read("loss", share)?.unwrap_or(unsaid.loss);
    unsaid.reorder = section.read("reorder", share)?.unwrap_or(unsaid.reorder);
    unsaid.mtu = mtu(section, "mtu")?.unwrap_or(unsaid.mtu);
    unsaid.buffer_bytes = section.read("buffer", size)?.unwrap_or(unsaid.buffer_bytes);
    match unsaid.mistake() {
        Some(what) => Err(section.wrong(what)),
        None => Ok(unsaid),
    }
}

fn mtu(section: &Section<'_>, key: &str) -> Read<Option<u32>> {
    let least_and_most = u64::from(*MTU.start())..=u64::from(*MTU.end());
    Ok(section.number(key, least_and_most)?.map(|mtu| mtu as u32))
}

fn end_plan(host: &str, section: &Section<'_>) -> Read<EndPlan> {
    section.knows(&["address", "interface-mtu", "reports"])?;
    Ok(EndPlan {
        host: host.to_owned(),
        address: section.read("address", address)?,
        interface_mtu: mtu(section, "interface-mtu")?,
        reported_megabits: section
            .read("reports", rate)?
            .map(|rate| (rate / 1e6) as u32),
    })
}

/// Parses an address with a prefix length, such as `10.0.0.1/24`.
fn address(text: &str) -> Result<(IpAddr, u8), String> {
    let parsed = text.split_once('/').and_then(|(address, prefix)| {
        let (address, prefix) = (address.parse::<IpAddr>().ok()?, prefix.parse::<u8>().ok()?);
        let bits = if address.is_ipv4() { 32 } else { 128 };
        (prefix <= bits).then_some((address, prefix))
    });
    parsed.ok_or_else(|| format!("`{text}` is not an address; use one such as \"10.0.0.1/24\""))
}

/// Parses a rate in bits per second, such as `1Gbit/s` or `160 Mbit/s`.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    const UNITS: &[(&str, f64)] = &[("kbit/s", 1e3), ("Mbit/s", 1e6), ("Gbit/s", 1e9)];
    quantity(text, UNITS)
        .ok_or_else(|| format!("`{text}` is not a rate; use one such as \"160Mbit/s\""))
}

/// Parses a time, such as `25ms`, `1.5s` or `0s`.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    const UNITS: &[(&str, f64)] = &[("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    quantity(text, UNITS)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("`{text}` is not a time; use one such as \"25ms\""))
}

/// Parses a size in bytes, such as `64KiB`, `1MB` or `9000`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    const UNITS: &[(&str, f64)] = &[
        ("", 1.0),
        ("B", 1.0),
        ("kB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
    ];
    quantity(text, UNITS)
        .map(|bytes| bytes.round() as u64)
        .ok_or_else(|| format!("`{text}` is not a size; use one such as \"64KiB\""))
}

/// Parses a share from 0 to 1, such as `1%` or `0.01`.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    quantity(text, &[("", 1.0), ("%", 0.01)])
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| format!("`{text}` is not a share; use one such as \"1%\""))
}

/// Parses a nonnegative number with a unit.
fn quantity(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let end = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    number
        .parse::<f64>()
        .ok()
        .map(|number| number * factor)
        .filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

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
        assert_eq!(
            told(|plan| plan.hosts.clear()),
            "the plan has no host; add [host.NAME]"
        );
        assert_eq!(
            told(|plan| plan.hosts.push(HostPlan::new("client"))),
            "the name client is used twice"
        );
        assert!(
            told(|plan| plan.links[0].ends[1].host = "nobody".to_owned()).contains("not a host")
        );
        assert!(
            told(|plan| plan.links[0].ends[1].host = "client".to_owned()).contains("to itself")
        );
        assert!(
            told(|plan| plan.links[0].name = "an interface".to_owned()).contains("valid link name")
        );
        assert!(told(|plan| plan.links[0].ends[0].interface_mtu = Some(20)).contains("MTU 20"));
        assert!(told(|plan| plan.links[0].conditions[1].loss = -0.1).contains("loss"));
        let escape = |plan: &mut Plan| {
            plan.hosts[0]
                .sysctls
                .push(("net...kernel.panic".to_owned(), "1".to_owned()));
        };
        assert!(told(escape).contains("not a network setting"));
    }

    const PAIR: &str =
        "[host.client]\n[host.server]\n[link.wire]\nbetween = [\"client\", \"server\"]\n";

    fn refused(text: &str) -> String {
        parse(text).expect_err("wrong").to_string()
    }

    #[test]
    fn mistakes_are_told_with_line_and_column() {
        assert!(
            refused("[host.client").starts_with("1:13: the file is not valid TOML"),
            "{}",
            refused("[host.client")
        );
        assert_eq!(refused(""), "1:1: the plan has no host; add [host.NAME]");
        let unknown = refused("[host.client]\n  colour = 1");
        assert!(
            unknown.starts_with("2:3: unknown key `colour`"),
            "{unknown}"
        );
        assert_eq!(
            refused(&format!("{PAIR}rate = \"1G\"")),
            "5:8: `rate`: `1G` is not a rate; use one such as \"160Mbit/s\""
        );
        assert_eq!(
            refused(&format!("{PAIR}mtu = 20")),
            "5:7: `mtu`: use a number from 68 to 65521"
        );
        assert!(refused(&format!("{PAIR}loss = true")).starts_with("5:8: `loss`: use a string"));
        assert_eq!(
            refused("[host.a]\n[link.wire]\nbetween = [\"a\", \"b\"]"),
            "3:17: there is no host `b`; add [host.b]"
        );
        let elsewhere = format!("{PAIR}[link.wire.towards.moon]\ndelay = \"1.3s\"");
        assert_eq!(
            refused(&elsewhere),
            "5:20: link wire does not connect `moon`"
        );
        let escape = "[host.a]\nsysctl = { \"kernel.panic\" = 1 }";
        assert!(refused(escape).starts_with("2:12: `kernel.panic` is not a network setting"));
        let twice = "[host.a]\n[host.a]";
        assert!(refused(twice).starts_with("2:"), "{}", refused(twice));
        let mismatch = format!("{PAIR}[link.wire.end.client]\naddress = \"10.0.0.1\"");
        assert!(refused(&mismatch).starts_with("6:11: `address`: `10.0.0.1` is not an address"));
    }

    #[test]
    fn a_link_is_as_written_and_the_same_in_both_directions_where_nothing_else_is_said() {
        let plan = parse(&format!(
            "seed = 7\n{PAIR}rate = \"160Mbit/s\"\ndelay = \"25ms\"\nloss = \"1%\"\nbuffer = \"1MiB\"\n\
             [link.wire.towards.client]\nloss = 0.5\n[link.wire.end.server]\ninterface-mtu = 9000\nreports = \"1Gbit/s\"\n"
        ))
        .expect("sound");
        assert_eq!(plan.mistake(), None);
        let [there, back] = &plan.links[0].conditions;
        assert_eq!(
            (there.bits_per_s, back.bits_per_s),
            (Some(160e6), Some(160e6))
        );
        assert_eq!(
            (there.delay, there.buffer_bytes),
            (Duration::from_millis(25), 1 << 20)
        );
        assert_eq!((there.loss, back.loss), (0.01, 0.5));
        assert_ne!(there.seed, back.seed);
        let [client, server] = &plan.links[0].ends;
        assert_eq!(
            (client.interface_mtu, server.interface_mtu),
            (None, Some(9000))
        );
        assert_eq!(server.reported_megabits, Some(1000));
    }

    #[test]
    fn lanes_have_the_links_conditions_and_their_own() {
        let plan = parse(&format!(
            "{PAIR}rate = \"1Gbit/s\"\n[[link.wire.lane]]\n[[link.wire.lane]]\nrate = \"100Mbit/s\"\n"
        ))
        .expect("sound");
        let rates: Vec<_> = plan.links[0].conditions[0]
            .lanes
            .iter()
            .map(|lane| lane.bits_per_s)
            .collect();
        assert_eq!(rates, [Some(1e9), Some(1e8)]);
        let [there, back] = &plan.links[0].conditions;
        assert_eq!(
            (there.seed, there.spread),
            (back.seed, Spread::ByHash),
            "a flow has one lane"
        );
        let wrong = parse(&format!("{PAIR}spread = \"by-lot\"\n")).expect_err("no way to spread");
        assert!(wrong.what.contains("\"in-turn\""), "{wrong}");
    }

    #[test]
    fn hosts_are_in_the_order_of_the_file() {
        let plan =
            parse("[host.zeta]\nrun = [\"sleep\", \"1\"]\nready = 3260\n[host.alpha]\ncongestion = \"bbr\"")
                .expect("sound");
        assert_eq!(
            (plan.hosts[0].name.as_str(), plan.hosts[1].name.as_str()),
            ("zeta", "alpha")
        );
        assert_eq!(plan.hosts[1].congestion, "bbr");
    }

    #[test]
    fn a_program_is_ready_by_its_port_or_by_a_command() {
        let host = |keys: &str| {
            let plan =
                parse(&format!("[host.a]\nrun = [\"sleep\", \"1\"]\n{keys}")).expect("sound");
            (plan.hosts[0].ready.clone(), plan.hosts[0].ready_within)
        };
        let usual = HostPlan::new("a").ready_within;
        assert_eq!(host(""), (None, usual));
        assert_eq!(host("ready = 3260"), (Some(ReadyCheck::Port(3260)), usual));
        let words = ["test", "-e", "/run/x"].map(str::to_owned).to_vec();
        let expected = (Some(ReadyCheck::Command(words)), Duration::from_secs(90));
        assert_eq!(
            host("ready = [\"test\", \"-e\", \"/run/x\"]\nready-within = \"90s\""),
            expected
        );
        for (keys, what) in [
            (
                "run = [\"x\"]\nready = \"3260\"",
                "3:9: `ready`: use a port, or a command",
            ),
            (
                "run = [\"x\"]\nready = 0",
                "3:9: `ready`: use a number from 1",
            ),
            ("run = [\"x\"]\nready = []", "3:9: `ready`: use a program"),
            ("run = [\"x\"]\nready = [1]", "3:9: `ready`: use strings"),
            ("ready = 3260", "2:9: `ready`: this key requires `run`"),
            (
                "run = [\"x\"]\nready-within = \"1s\"",
                "3:16: `ready-within`: this key requires `ready`",
            ),
        ] {
            let told = refused(&format!("[host.a]\n{keys}"));
            assert!(told.starts_with(what), "{told}");
        }
    }

    #[test]
    fn the_plans_of_the_documentation_are_sound() {
        let page = include_str!("../../../../docs/lab.md");
        let plans: Vec<_> = page
            .split("```toml\n")
            .skip(1)
            .filter_map(|rest| rest.split("```").next())
            .collect();
        assert!(plans.len() >= 4);
        for text in plans {
            let plan = parse(text).unwrap_or_else(|error| panic!("{error} in:\n{text}"));
            assert_eq!(plan.mistake(), None, "{text}");
        }
    }

    #[test]
    fn the_documentation_lists_every_condition() {
        let page = include_str!("../../../../docs/lab.md");
        let missing = CONDITIONS
            .iter()
            .find(|key| !page.contains(&format!("| `{key}` |")));
        assert_eq!(missing, None);
    }

    #[test]
    fn what_has_no_unit_or_a_wrong_one_is_refused_with_an_example() {
        for text in ["", "25", "ms", "-1ms", "1e3ms", "1 m", "25ms ", "1.2.3s"] {
            let refused = time(text).expect_err(text);
            assert!(
                refused.ends_with("is not a time; use one such as \"25ms\""),
                "{refused}"
            );
        }
        assert!(rate("1G").is_err());
        assert!(size("1KB").is_err());
        assert!(share("101%").is_err());
        assert!(time("99999999999999999999999s").is_err());
    }

    #[test]
    fn values_are_as_written() {
        assert_eq!(rate("1Gbit/s"), Ok(1e9));
        assert_eq!(rate("160 Mbit/s"), Ok(160e6));
        assert_eq!(time("0.5ms"), Ok(Duration::from_micros(500)));
        assert_eq!(size("64KiB"), Ok(65_536));
        assert_eq!(size("1MB"), Ok(1_000_000));
        assert_eq!(share("0.1%"), Ok(0.001));
        assert_eq!(share("0.25"), Ok(0.25));
    }
}
