//! `[[hyperscsi.target]]`: a target, who may use it, and its LUNs.

use std::str::FromStr;
use std::sync::Arc;

use front_end_core::{Network, Portal};
use hyperscsi::{Psk, is_name};
use hyperscsi_server::{Access, Export, HYPERSCSI, NamePattern};
use reactor::MacAddress;
use volume::spec::Bytes;

use crate::config::{Section, Unfit, VolumeName};
use crate::control;
use crate::front_ends::{Document, Serving, for_whom, secret};

/// A target and who may use it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Target {
    pub(super) name: String,
    /// Initiators that may use it; `None` for any.
    initiators: Option<Vec<NamePattern>>,
    /// Stations of the Ethernet that they may have; `None` is any.
    stations: Option<Vec<MacAddress>>,
    /// Networks that they may come from, over UDP; `None` is any.
    networks: Option<Vec<Network>>,
    /// The keys of initiators, each name once. If there is one, all need one.
    keys: Vec<(String, Psk)>,
    /// Its LUNs, each number once.
    pub(super) luns: Vec<Lun>,
}

/// A volume under a number.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lun {
    pub(super) lun: u16,
    pub(super) volume: VolumeName,
    /// Initiators that it is visible to; `None` for all that may log in.
    pub(super) initiators: Option<Vec<NamePattern>>,
}

struct Name(String);

struct Pattern(NamePattern);

/// A login can be recorded, and secrets tried against it: 128 bits, if they are random.
const SECRET_MIN: usize = 16;
const SECRET_MAX: usize = 255;

impl FromStr for Name {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<Name, Unfit> {
        match is_name(text) {
            true => Ok(Name(text.to_owned())),
            false => {
                Err(Unfit(format!("`{text}` is not a name: it has letters, digits and .:-_, 223 at most")))
            }
        }
    }
}

impl FromStr for Pattern {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<Pattern, Unfit> {
        let stem = text.strip_suffix('*');
        if stem != Some("") {
            stem.unwrap_or(text).parse::<Name>()?;
        }
        Ok(Pattern(NamePattern::new(text)))
    }
}

impl Target {
    /// A target for any initiator, with one volume at LUN 0. A volume's name has no letter that a target's may not have.
    pub(super) fn of_volume(volume: &VolumeName) -> Target {
        Target {
            name: volume.to_string(),
            initiators: None,
            stations: None,
            networks: None,
            keys: Vec::new(),
            luns: vec![Lun { lun: 0, volume: volume.clone(), initiators: None }],
        }
    }

    /// Who may use it, or one of its LUNs.
    pub(super) fn audience(&self, lun: Option<&Lun>) -> String {
        let is_listed = self.initiators.is_some() || lun.is_some_and(|lun| lun.initiators.is_some());
        let who = if is_listed { "listed initiators" } else { "any initiator" };
        let near = match (&self.stations, &self.networks) {
            (None, None) => "",
            (Some(_), None) => " from listed stations",
            (None, Some(_)) => " from listed networks",
            (Some(_), Some(_)) => " from listed stations and networks",
        };
        let proof = if self.keys.is_empty() { "" } else { ", with keys" };
        format!("{who}{near}{proof}")
    }

    pub(super) fn served(&self, serving: Serving<'_>) -> hyperscsi_server::Target {
        hyperscsi_server::Target {
            name: self.name.clone(),
            exports: self.luns.iter().filter_map(|lun| lun.export(serving)).collect(),
            access: Access {
                initiators: self.initiators.clone(),
                stations: self.stations.clone(),
                networks: self.networks.clone(),
            },
            keys: self.keys.iter().cloned().collect(),
        }
    }

    /// For the control socket.
    pub(super) fn told<'a>(&self, portals: impl Iterator<Item = &'a Portal>) -> control::Target {
        let near = self.stations.iter().flatten().map(ToString::to_string);
        let near = near.chain(self.networks.iter().flatten().map(ToString::to_string));
        let is_near = self.stations.is_some() || self.networks.is_some();
        control::Target {
            front_end: HYPERSCSI.to_owned(),
            name: self.name.clone(),
            alias: None,
            portals: portals.map(|portal| portal.listen.to_string()).collect(),
            initiators: self.initiators.as_ref().map(|all| all.iter().map(ToString::to_string).collect()),
            networks: is_near.then(|| near.collect()),
            users: self.keys.iter().map(|(initiator, _)| initiator.clone()).collect(),
            redirect: None,
            luns: self
                .luns
                .iter()
                .map(|lun| control::TargetLun { lun: lun.lun, volume: lun.volume.to_string() })
                .collect(),
            sessions: 0,
        }
    }

    /// For a server that has begun: at this URL, and at so many more.
    pub(super) fn announced(&self, url: &str, more: usize, volumes: &[control::Volume]) -> String {
        let exported = |lun: &Lun| {
            let volume = volumes.iter().find(|volume| volume.name == lun.volume.as_str());
            let size = volume.map(|volume| format!(" ({}, {})", volume.spec, Bytes(volume.bytes)));
            format!("LUN {} {}{}", lun.lun, lun.volume, size.unwrap_or_default())
        };
        let (shown, rest) = self.luns.split_at(self.luns.len().min(LUNS_SHOWN));
        let shown: Vec<String> = shown.iter().map(exported).collect();
        let rest = if rest.is_empty() { String::new() } else { format!("; {} more", rest.len()) };
        let elsewhere = if more == 0 { String::new() } else { format!(", and {more} more portals") };
        let lun = self.luns.first().map_or_else(String::new, |lun| format!("/{}", lun.lun));
        let (name, audience, shown) = (&self.name, self.audience(None), shown.join("; "));
        format!("\nHyperSCSI {name}, for {audience}\n  {shown}{rest}\n  {url}/{name}{lun}{elsewhere}\n")
    }

    /// What to type on a host; the URL of the server as the host has it.
    pub(super) fn usage(&self, url: &str) -> String {
        let name = &self.name;
        let key = if self.keys.is_empty() { "" } else { "?key=FILE" };
        let lines = self.luns.iter().map(|lun| format!("linerate info '{url}/{name}/{}{key}'\n", lun.lun));
        let lines: Vec<String> = lines.collect();
        format!("HyperSCSI {name}\n  Linerate  {}", lines.join("            "))
    }
}

/// A line that people read has no more.
const LUNS_SHOWN: usize = 4;

impl Lun {
    /// `None` if its volume is not open, which happens only during a change.
    fn export(&self, serving: Serving<'_>) -> Option<Export> {
        Some(Export {
            lun: self.lun,
            volume: self.volume.to_string(),
            unit: Arc::clone(serving.volumes.unit(&self.volume)?),
            initiators: self.initiators.clone(),
            deadline: serving.config.volume(&self.volume)?.deadline,
        })
    }
}

/// All targets of `[hyperscsi]`.
pub(super) fn all(section: &Section<'_>, document: &Document<'_>) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    for section in section.sections("target", "[[hyperscsi.target]]") {
        let Some(target) = read(&section, document) else { continue };
        if targets.iter().any(|other| other.name == target.name) {
            let sentence = format!(
                "the target {} is there twice; put all its LUNs under one [[hyperscsi.target]]",
                target.name
            );
            section.mistakes.add(section.at(), sentence);
        }
        targets.push(target);
    }
    targets
}

fn read(section: &Section<'_>, document: &Document<'_>) -> Option<Target> {
    let name = section.required("name", section.parsed::<Name>("name"), "\"disks\"");
    let initiators = patterns(section);
    let (stations, networks) = (section.list("stations"), section.list("networks"));
    let keys = keys(&section.sections("key", "[[hyperscsi.target.key]]"));
    let luns = luns(&section.sections("lun", "[[hyperscsi.target.lun]]"), document);
    section.done();
    // What a target says of hosts outlives its last volume, and counts for the next one.
    let says_more = ["initiators", "stations", "networks", "key"];
    if !section.has("lun") && !says_more.iter().any(|key| section.has(key)) {
        let sentence =
            "this target has no LUN; write [[hyperscsi.target.lun]] with lun = 0 and volume = \"…\" under it";
        section.mistakes.add(section.at(), sentence);
    }
    Some(Target { name: name?.value.0, initiators, stations, networks, keys, luns })
}

fn patterns(section: &Section<'_>) -> Option<Vec<NamePattern>> {
    Some(section.list::<Pattern>("initiators")?.into_iter().map(|pattern| pattern.0).collect())
}

fn keys(sections: &[Section<'_>]) -> Vec<(String, Psk)> {
    let mut keys: Vec<(String, Psk)> = Vec::new();
    for section in sections {
        let initiator = section.required("initiator", section.parsed::<Name>("initiator"), "\"host1\"");
        let secret = secret::read(section, "16 random letters or more");
        section.done();
        let (Some(initiator), Some((place, secret))) = (initiator, secret) else { continue };
        if !(SECRET_MIN..=SECRET_MAX).contains(&secret.len()) {
            let length = secret.len();
            let sentence = format!(
                "this secret has {length} bytes; one for HyperSCSI has 16 bytes at least and {SECRET_MAX} at most"
            );
            section.mistakes.add(place.at.clone(), sentence);
        }
        let name = initiator.value.0;
        if keys.iter().any(|(other, _)| *other == name) {
            let sentence = format!("the initiator `{name}` has two keys; keep one");
            section.mistakes.add(initiator.at, sentence);
        }
        keys.push((name, Psk::from_secret(&secret)));
    }
    keys
}

fn luns(sections: &[Section<'_>], document: &Document<'_>) -> Vec<Lun> {
    let mut luns: Vec<(u16, Option<Lun>)> = Vec::new();
    for section in sections {
        let number = section.required("lun", section.count("lun", 0..=16_383), "0");
        let volume = section.required("volume", section.text("volume"), "\"vm1\"");
        let initiators = patterns(section);
        section.done();
        let volume = volume.and_then(|volume| document.volume(section, &volume));
        let Some(number) = number else { continue };
        let lun = number.value as u16;
        // One without a volume keeps what is said of it for the next.
        if luns.iter().any(|(other, _)| *other == lun) {
            let free = (0..).find(|free| *free != lun && luns.iter().all(|(other, _)| other != free));
            let free = free.unwrap_or_default();
            let sentence = format!("LUN {lun} is there twice in this target; LUN {free} is free");
            section.mistakes.add(number.at, sentence);
        }
        luns.push((lun, volume.map(|volume| Lun { lun, volume, initiators })));
    }
    luns.into_iter().filter_map(|(_, lun)| lun).collect()
}

/// What is different between two lists of targets, a line each. The fields are all named, so that a new one is compared.
pub(super) fn changes(
    now: &[Target],
    wanted: &[Target],
    renamed: &[(VolumeName, VolumeName)],
) -> Vec<String> {
    let mut lines = Vec::new();
    for after in wanted {
        let Target { name, initiators, stations, networks, keys, luns } = after;
        let Some(before) = now.iter().find(|before| before.name == *name) else {
            let luns: Vec<String> =
                luns.iter().map(|lun| format!("LUN {} = {}", lun.lun, lun.volume)).collect();
            let audience = for_whom(&after.audience(None));
            lines.push(format!("+ HyperSCSI {name} ({}) {audience}", luns.join(", ")));
            continue;
        };
        for lun in luns {
            lines.extend(lun_change(after, before.luns.iter().find(|old| old.lun == lun.lun), lun, renamed));
        }
        let is_gone = |old: &&Lun| luns.iter().all(|lun| lun.lun != old.lun);
        let gone = before.luns.iter().filter(is_gone);
        lines.extend(gone.map(|lun| format!("- HyperSCSI {name} LUN {} = {}", lun.lun, lun.volume)));
        if luns.is_empty() && !before.luns.is_empty() {
            let audience = for_whom(&after.audience(None));
            lines.push(format!("~ HyperSCSI {name} has no LUN now, and stays {audience}"));
        }
        let differences = [
            (before.initiators != *initiators, "initiators"),
            (before.stations != *stations, "stations"),
            (before.networks != *networks, "networks"),
            (before.keys != *keys, "keys"),
        ];
        let differs = differences.iter().filter(|(differs, _)| *differs);
        lines.extend(differs.map(|(_, what)| format!("~ HyperSCSI {name}: {what}")));
        if before.audience(None) != after.audience(None) {
            lines.push(format!("~ HyperSCSI {name} is {}", for_whom(&after.audience(None))));
        }
    }
    let is_gone = |before: &&Target| wanted.iter().all(|after| after.name != before.name);
    let gone = now.iter().filter(is_gone);
    lines.extend(gone.map(|before| {
        format!("- HyperSCSI {}, which was {}", before.name, for_whom(&before.audience(None)))
    }));
    lines
}

fn lun_change(
    target: &Target,
    before: Option<&Lun>,
    after: &Lun,
    renamed: &[(VolumeName, VolumeName)],
) -> Option<String> {
    let (Lun { lun, volume, initiators }, name) = (after, &target.name);
    let audience = for_whom(&target.audience(Some(after)));
    let Some(before) = before else {
        return Some(format!("+ HyperSCSI {name} LUN {lun} = {volume} {audience}"));
    };
    let called_now = renamed.iter().find(|(from, _)| *from == before.volume);
    if called_now.map_or(&before.volume, |(_, to)| to) != volume {
        return Some(format!("~ HyperSCSI {name} LUN {lun} = {volume} (was {}) {audience}", before.volume));
    }
    (before.initiators != *initiators)
        .then(|| format!("~ HyperSCSI {name} LUN {lun}: who sees it; {audience}"))
}
