//! A plan as a TOML file, read key by key, so that errors have a position.

use std::net::IpAddr;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::conditions::{Conditions, Spread};
use crate::error::PlanError;
use crate::plan::{EndPlan, HostPlan, LINKS_MAX, LinkPlan, MTU, Plan, ReadyCheck, is_interface, is_sysctl};
use crate::units;

pub(crate) fn parse(text: &str) -> Result<Plan, PlanError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(PlanError { line: 1, column: 1, what: "a plan is at most 1 MiB long".to_owned() });
    }
    let whole = DeTable::parse(text).map_err(|error| {
        let at = error.span().unwrap_or(0..0);
        placed(text, Mistake { at, what: format!("this is not TOML: {}", error.message()) })
    })?;
    plan(whole.get_ref()).map_err(|mistake| placed(text, mistake))
}

/// Plans are written by people.
const TEXT_BYTES_MAX: usize = 1 << 20;

struct Mistake {
    at: Range<usize>,
    what: String,
}

type Read<T> = Result<T, Mistake>;

fn placed(text: &str, mistake: Mistake) -> PlanError {
    let before = text.get(..mistake.at.start).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    PlanError {
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
        what: mistake.what,
    }
}

fn plan(root: &DeTable<'_>) -> Read<Plan> {
    let file = Section { at: 0..0, table: root };
    file.knows(&["seed", "host", "link"])?;
    let seed = file.number("seed", 0..=u64::MAX >> 1)?.unwrap_or(0);
    let hosts = file.tables("host")?;
    if hosts.is_empty() {
        return Err(file.wrong("a lab needs a host; write [host.NAME]"));
    }
    let hosts = hosts.iter().map(|(name, section)| host(name, section)).collect::<Read<Vec<_>>>()?;
    let links = file.tables("link")?;
    if let Some((_, section)) = links.get(LINKS_MAX) {
        return Err(section.wrong(format!("a lab has at most {LINKS_MAX} links")));
    }
    let links = links.iter().map(|(name, section)| link(name, section, &hosts, seed)).collect::<Read<_>>()?;
    Ok(Plan { hosts, links })
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
    if let Some(time) = section.read("ready-within", units::time)? {
        host.ready_within = time;
    }
    for key in ["ready", "ready-within"] {
        let needed = if key == "ready" { "run" } else { "ready" };
        if section.table.contains_key(key) && !section.table.contains_key(needed) {
            return Err(section.wrong_at(key, format!("this is for a host with `{needed}`")));
        }
    }
    Ok(host)
}

fn ready(section: &Section<'_>) -> Read<Option<ReadyCheck>> {
    match section.table.get("ready").map(Spanned::get_ref) {
        None => Ok(None),
        Some(DeValue::Array(_)) => match section.words("ready")?.unwrap_or_default() {
            words if words.is_empty() => Err(section.wrong_at("ready", "write a program with its arguments")),
            words => Ok(Some(ReadyCheck::Command(words))),
        },
        Some(DeValue::Integer(_)) => {
            Ok(section.number("ready", 1..=65_535)?.map(|port| ReadyCheck::Port(port as u16)))
        }
        Some(_) => {
            let what = "write a port, or a command that must succeed: [\"curl\", \"…\"]";
            Err(section.wrong_at("ready", what))
        }
    }
}

fn sysctl(name: &Spanned<std::borrow::Cow<'_, str>>, value: &Spanned<DeValue<'_>>) -> Read<(String, String)> {
    let key: &str = name.get_ref();
    if !is_sysctl(key) {
        let what =
            format!("`{key}` is not a setting of the network; write one such as \"net.ipv4.tcp_sack\" = 0");
        return Err(Mistake { at: name.span(), what });
    }
    let value = match value.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        _ => return Err(Mistake { at: value.span(), what: format!("`{key}`: write a string or a number") }),
    };
    Ok((key.to_owned(), value))
}

fn link(name: &str, section: &Section<'_>, hosts: &[HostPlan], seed: u64) -> Read<LinkPlan> {
    section.knows(&[CONDITIONS, &["between", "end", "towards", "lane", "spread"]].concat())?;
    if !is_interface(name) {
        return Err(
            section.wrong(format!("`{name}` cannot name a link: up to 15 letters, digits, - and _, not lo"))
        );
    }
    let [first, second] = between(section, hosts)?;
    let unsaid = Conditions { seed, ..Conditions::default() };
    let mut both = conditions(section, unsaid)?;
    for lane in section.sections("lane")? {
        lane.knows(CONDITIONS)?;
        let unsaid = Conditions { lanes: Vec::new(), ..both.clone() };
        // Lanes that do the same still lose different frames.
        let seed = seed.wrapping_add(both.lanes.len() as u64 + 1);
        both.lanes.push(conditions(&lane, Conditions { seed, ..unsaid })?);
    }
    both.spread = section.read("spread", spread)?.unwrap_or_default();
    let mut link = LinkPlan::new(name, first, second, both);
    if link.conditions[1].lanes.is_empty() {
        link.conditions[1].seed ^= BACK;
    }
    link.conditions[1].lanes.iter_mut().for_each(|lane| lane.seed ^= BACK);
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
        _ => Err("flows are spread by \"hash\" or \"in-turn\"".to_owned()),
    }
}

/// Both directions lose frames of their own, also where the plan says the same of both. The seed of a bundle
/// itself spreads flows over its lanes, which both directions do alike.
const BACK: u64 = 1 << 63;

fn between<'a>(section: &Section<'a>, hosts: &[HostPlan]) -> Read<[&'a str; 2]> {
    let example = "write the two hosts that it joins, such as between = [\"client\", \"server\"]";
    let names = section.texts("between")?.ok_or_else(|| section.wrong(example))?;
    for (at, name) in &names {
        if !hosts.iter().any(|host| host.name == *name) {
            return Err(Mistake {
                at: at.clone(),
                what: format!("there is no host `{name}`; write [host.{name}]"),
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
    found.ok_or_else(|| section.wrong(format!("link {} does not end at `{host}`", link.name)))
}

const CONDITIONS: &[&str] = &["rate", "delay", "jitter", "loss", "reorder", "mtu", "buffer"];

/// The conditions of a section; keys without a value take those of `unsaid`.
fn conditions(section: &Section<'_>, mut unsaid: Conditions) -> Read<Conditions> {
    unsaid.bits_per_s = section.read("rate", units::rate)?.or(unsaid.bits_per_s);
    unsaid.delay = section.read("delay", units::time)?.unwrap_or(unsaid.delay);
    unsaid.jitter = section.read("jitter", units::time)?.unwrap_or(unsaid.jitter);
    unsaid.loss = section.read("loss", units::share)?.unwrap_or(unsaid.loss);
    unsaid.reorder = section.read("reorder", units::share)?.unwrap_or(unsaid.reorder);
    unsaid.mtu = mtu(section, "mtu")?.unwrap_or(unsaid.mtu);
    unsaid.buffer_bytes = section.read("buffer", units::size)?.unwrap_or(unsaid.buffer_bytes);
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
        reported_megabits: section.read("reports", units::rate)?.map(|rate| (rate / 1e6) as u32),
    })
}

/// `10.0.0.1/24`.
fn address(text: &str) -> Result<(IpAddr, u8), String> {
    let parsed = text.split_once('/').and_then(|(address, prefix)| {
        let (address, prefix) = (address.parse::<IpAddr>().ok()?, prefix.parse::<u8>().ok()?);
        let bits = if address.is_ipv4() { 32 } else { 128 };
        (prefix <= bits).then_some((address, prefix))
    });
    parsed.ok_or_else(|| format!("`{text}` is not an address; write one such as \"10.0.0.1/24\""))
}

/// A string, and where it stands.
type PlacedText<'a> = (Range<usize>, &'a str);

/// A table of the file.
struct Section<'a> {
    /// Where its name stands.
    at: Range<usize>,
    table: &'a DeTable<'a>,
}

impl<'a> Section<'a> {
    fn wrong(&self, what: impl Into<String>) -> Mistake {
        Mistake { at: self.at.clone(), what: what.into() }
    }

    fn wrong_at(&self, key: &str, what: impl Into<String>) -> Mistake {
        let at = self.table.get(key).map_or_else(|| self.at.clone(), Spanned::span);
        Mistake { at, what: format!("`{key}`: {}", what.into()) }
    }

    /// Refuses keys that mean nothing here.
    fn knows(&self, keys: &[&str]) -> Read<()> {
        let mut unknown: Vec<_> =
            self.table.iter().filter(|(key, _)| !keys.contains(&key.get_ref().as_ref())).collect();
        unknown.sort_by_key(|(key, _)| key.span().start);
        unknown.first().map_or(Ok(()), |(key, _)| {
            let what = format!("`{}` means nothing here; what does: {}", key.get_ref(), keys.join(", "));
            Err(Mistake { at: key.span(), what })
        })
    }

    fn text(&self, key: &str) -> Read<Option<&'a str>> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        let text = value.get_ref().as_str();
        text.map(Some).ok_or_else(|| self.wrong_at(key, "write a string in quotes"))
    }

    /// A string, or a number that is read as if it were in quotes.
    fn read<T>(&self, key: &str, read: fn(&str) -> Result<T, String>) -> Read<Option<T>> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        let text = match value.get_ref() {
            DeValue::String(text) => text.as_ref(),
            DeValue::Integer(number) => number.as_str(),
            DeValue::Float(number) => number.as_str(),
            _ => return Err(self.wrong_at(key, "write a string in quotes")),
        };
        read(text).map(Some).map_err(|what| self.wrong_at(key, what))
    }

    fn number(&self, key: &str, range: std::ops::RangeInclusive<u64>) -> Read<Option<u64>> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        let integer = value.get_ref().as_integer();
        let number = integer.and_then(|number| u64::from_str_radix(number.as_str(), number.radix()).ok());
        number.filter(|number| range.contains(number)).map(Some).ok_or_else(|| {
            self.wrong_at(key, format!("write a number from {} to {}", range.start(), range.end()))
        })
    }

    fn texts(&self, key: &str) -> Read<Option<Vec<PlacedText<'a>>>> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        let refused = || self.wrong_at(key, "write strings in brackets: [\"…\", \"…\"]");
        let list = value.get_ref().as_array().ok_or_else(refused)?;
        let text = |value: &'a Spanned<DeValue<'a>>| {
            value.get_ref().as_str().map(|text| (value.span(), text)).ok_or_else(refused)
        };
        list.iter().map(text).collect::<Read<_>>().map(Some)
    }

    /// The same, without their places.
    fn words(&self, key: &str) -> Read<Option<Vec<String>>> {
        let texts = self.texts(key)?;
        Ok(texts.map(|texts| texts.into_iter().map(|(_, word)| word.to_owned()).collect()))
    }

    fn section(&self, key: &str) -> Read<Option<Section<'a>>> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        let table = value.get_ref().as_table();
        let table = table.ok_or_else(|| self.wrong_at(key, format!("write a table, [{key}]")))?;
        Ok(Some(Section { at: value.span(), table }))
    }

    /// The tables of an array of tables.
    fn sections(&self, key: &str) -> Read<Vec<Section<'a>>> {
        let Some(value) = self.table.get(key) else { return Ok(Vec::new()) };
        let refused = || self.wrong_at(key, format!("write a table with two brackets for each: [[…{key}]]"));
        let list = value.get_ref().as_array().ok_or_else(refused)?;
        let table = |value: &'a Spanned<DeValue<'a>>| {
            let table = value.get_ref().as_table().ok_or_else(refused)?;
            Ok(Section { at: value.span(), table })
        };
        list.iter().map(table).collect()
    }

    /// The tables under `key` that have names of the user's choice, in the order of the file.
    fn tables(&self, key: &str) -> Read<Vec<(&'a str, Section<'a>)>> {
        let Some(parent) = self.section(key)? else { return Ok(Vec::new()) };
        let mut entries: Vec<_> = parent.table.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        let named = entries.into_iter().map(|(name, value)| {
            let what = || format!("write a table, [{key}.{}]", name.get_ref());
            let table =
                value.get_ref().as_table().ok_or_else(|| Mistake { at: name.span(), what: what() })?;
            Ok((name.get_ref().as_ref(), Section { at: name.span(), table }))
        });
        named.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const PAIR: &str = "[host.client]\n[host.server]\n[link.wire]\nbetween = [\"client\", \"server\"]\n";

    fn refused(text: &str) -> String {
        parse(text).expect_err("wrong").to_string()
    }

    #[test]
    fn mistakes_are_told_with_line_and_column() {
        assert!(refused("[host.client").starts_with("1:13: this is not TOML"), "{}", refused("[host.client"));
        assert_eq!(refused(""), "1:1: a lab needs a host; write [host.NAME]");
        let unknown = refused("[host.client]\n  colour = 1");
        assert!(unknown.starts_with("2:3: `colour` means nothing here"), "{unknown}");
        assert_eq!(
            refused(&format!("{PAIR}rate = \"1G\"")),
            "5:8: `rate`: `1G` is not a rate; write one such as \"160Mbit/s\""
        );
        assert_eq!(refused(&format!("{PAIR}mtu = 20")), "5:7: `mtu`: write a number from 68 to 65521");
        assert!(refused(&format!("{PAIR}loss = true")).starts_with("5:8: `loss`: write a string"));
        assert_eq!(
            refused("[host.a]\n[link.wire]\nbetween = [\"a\", \"b\"]"),
            "3:17: there is no host `b`; write [host.b]"
        );
        let elsewhere = format!("{PAIR}[link.wire.towards.moon]\ndelay = \"1.3s\"");
        assert_eq!(refused(&elsewhere), "5:20: link wire does not end at `moon`");
        let escape = "[host.a]\nsysctl = { \"kernel.panic\" = 1 }";
        assert!(refused(escape).starts_with("2:12: `kernel.panic` is not a setting of the network"));
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
        assert_eq!((there.bits_per_s, back.bits_per_s), (Some(160e6), Some(160e6)));
        assert_eq!((there.delay, there.buffer_bytes), (Duration::from_millis(25), 1 << 20));
        assert_eq!((there.loss, back.loss), (0.01, 0.5));
        assert_ne!(there.seed, back.seed);
        let [client, server] = &plan.links[0].ends;
        assert_eq!((client.interface_mtu, server.interface_mtu), (None, Some(9000)));
        assert_eq!(server.reported_megabits, Some(1000));
    }

    #[test]
    fn lanes_have_the_links_conditions_and_their_own() {
        let plan = parse(&format!(
            "{PAIR}rate = \"1Gbit/s\"\n[[link.wire.lane]]\n[[link.wire.lane]]\nrate = \"100Mbit/s\"\n"
        ))
        .expect("sound");
        let rates: Vec<_> = plan.links[0].conditions[0].lanes.iter().map(|lane| lane.bits_per_s).collect();
        assert_eq!(rates, [Some(1e9), Some(1e8)]);
        let [there, back] = &plan.links[0].conditions;
        assert_eq!((there.seed, there.spread), (back.seed, Spread::ByHash), "a flow has one lane");
        let wrong = parse(&format!("{PAIR}spread = \"by-lot\"\n")).expect_err("no way to spread");
        assert!(wrong.what.contains("\"in-turn\""), "{wrong}");
    }

    #[test]
    fn hosts_are_in_the_order_of_the_file() {
        let plan =
            parse("[host.zeta]\nrun = [\"sleep\", \"1\"]\nready = 3260\n[host.alpha]\ncongestion = \"bbr\"")
                .expect("sound");
        assert_eq!((plan.hosts[0].name.as_str(), plan.hosts[1].name.as_str()), ("zeta", "alpha"));
        assert_eq!(plan.hosts[1].congestion, "bbr");
    }

    #[test]
    fn a_program_is_ready_by_its_port_or_by_a_command() {
        let host = |keys: &str| {
            let plan = parse(&format!("[host.a]\nrun = [\"sleep\", \"1\"]\n{keys}")).expect("sound");
            (plan.hosts[0].ready.clone(), plan.hosts[0].ready_within)
        };
        let usual = HostPlan::new("a").ready_within;
        assert_eq!(host(""), (None, usual));
        assert_eq!(host("ready = 3260"), (Some(ReadyCheck::Port(3260)), usual));
        let words = ["test", "-e", "/run/x"].map(str::to_owned).to_vec();
        let expected = (Some(ReadyCheck::Command(words)), Duration::from_secs(90));
        assert_eq!(host("ready = [\"test\", \"-e\", \"/run/x\"]\nready-within = \"90s\""), expected);
        for (keys, what) in [
            ("run = [\"x\"]\nready = \"3260\"", "3:9: `ready`: write a port, or a command"),
            ("run = [\"x\"]\nready = 0", "3:9: `ready`: write a number from 1"),
            ("run = [\"x\"]\nready = []", "3:9: `ready`: write a program"),
            ("run = [\"x\"]\nready = [1]", "3:9: `ready`: write strings"),
            ("ready = 3260", "2:9: `ready`: this is for a host with `run`"),
            ("run = [\"x\"]\nready-within = \"1s\"", "3:16: `ready-within`: this is for a host with `ready`"),
        ] {
            let told = refused(&format!("[host.a]\n{keys}"));
            assert!(told.starts_with(what), "{told}");
        }
    }

    #[test]
    fn the_plans_of_the_documentation_are_sound() {
        let page = include_str!("../../../../docs/lab.md");
        let plans: Vec<_> =
            page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
        assert!(plans.len() >= 4);
        for text in plans {
            let plan = parse(text).unwrap_or_else(|error| panic!("{error} in:\n{text}"));
            assert_eq!(plan.mistake(), None, "{text}");
        }
    }

    #[test]
    fn the_documentation_lists_every_condition() {
        let page = include_str!("../../../../docs/lab.md");
        let missing = CONDITIONS.iter().find(|key| !page.contains(&format!("| `{key}` |")));
        assert_eq!(missing, None);
    }
}
