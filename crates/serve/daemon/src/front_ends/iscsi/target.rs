//! `[[target]]`: a target, its access control and its LUNs.

use std::ops::Range;

use front_end_core::Network;
use iscsi::name::Name;
use iscsi::name::TargetAddress;
use iscsi::negotiate::Offers;
use iscsi::text::PrintableText;
use iscsi_server::{NamePattern, Redirect};

use super::chap::Protected;
use super::names::patterns;
use super::{Chap, Portal, chap, own_target, session};
use crate::config::VolumeName;
use crate::config::{Placed, Section};
use crate::front_ends::Document;

/// A target and who may use it.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Its iSCSI name.
    pub name: Name,
    /// What people call it.
    pub alias: Option<PrintableText>,
    /// The portal groups that reach it; `None` is all.
    pub groups: Option<Vec<u16>>,
    /// Initiators that may use it; `None` for any.
    pub initiators: Option<Vec<NamePattern>>,
    /// Where they may come from; `None` is anywhere.
    pub networks: Option<Vec<Network>>,
    /// What they must prove.
    pub chap: Option<Chap>,
    /// What it offers and accepts at login.
    pub offers: Offers,
    /// Whether those that may not use it are told that there is no such target.
    pub hidden: bool,
    /// Where they are sent instead.
    pub redirect: Option<Redirect>,
    /// Its LUNs, each number once.
    pub luns: Vec<Lun>,
}

/// A volume under a number.
#[derive(Clone, Debug, PartialEq)]
pub struct Lun {
    /// Its number.
    pub lun: u16,
    /// What initiators find there.
    pub volume: VolumeName,
    /// Initiators that it is visible to; `None` for all that may log in.
    pub initiators: Option<Vec<NamePattern>>,
}

impl Target {
    /// A target for any initiator, with one volume at LUN 0.
    pub fn of_volume(volume: &VolumeName) -> Target {
        Target {
            name: own_target(volume),
            alias: None,
            groups: None,
            initiators: None,
            networks: None,
            chap: None,
            offers: Offers::of_target(),
            hidden: true,
            redirect: None,
            luns: vec![Lun { lun: 0, volume: volume.clone(), initiators: None }],
        }
    }

    /// Whether portals of this group lead to it.
    pub fn is_reached_by(&self, group: u16) -> bool {
        self.groups.as_ref().is_none_or(|groups| groups.contains(&group))
    }
}

/// Reads all targets of a document.
pub(super) fn all(sections: &[Section<'_>], document: &Document<'_>, portals: &[Portal]) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    for section in sections {
        let Some((name, target)) = read(section, document, portals) else { continue };
        if targets.iter().any(|other| other.name == target.name) {
            let sentence =
                format!("the target {} is there twice; put all its LUNs under one [[target]]", target.name);
            section.mistakes.add(name.at, sentence);
        }
        targets.push(target);
    }
    targets
}

fn read(
    section: &Section<'_>,
    document: &Document<'_>,
    portals: &[Portal],
) -> Option<(Placed<Name>, Target)> {
    let name = section.required("name", section.parsed::<Name>("name"), "\"iqn.2026-01.com.example:disks\"");
    let alias = section.parsed("alias").map(|alias| alias.value);
    let groups = groups(section, portals);
    let (initiators, networks) = (patterns(section), section.list("networks"));
    let chap =
        section.section("chap", "[target.chap]").and_then(|section| chap::read(&section, Protected::Target));
    let offers = section.section("session", "[target.session]");
    let offers = offers.map_or_else(Offers::of_target, |section| session::read(&section));
    let hidden = section.flag("hidden").unwrap_or(true);
    let redirect = section.section("redirect", "[target.redirect]");
    let (redirected, redirect) = (redirect.is_some(), redirect.as_ref().and_then(read_redirect));
    let sections = section.sections("lun", "[[target.lun]]");
    let luns = luns(&sections, document);
    section.done();
    // What a target says of hosts outlives its last volume, and counts for the next one.
    let says_more = ["alias", "groups", "initiators", "networks", "chap", "session", "hidden"];
    if !section.has("lun") && !redirected && !says_more.iter().any(|key| section.has(key)) {
        let sentence =
            "this target has no LUN; write [[target.lun]] with lun = 0 and volume = \"…\" under it";
        section.mistakes.add(section.at(), sentence);
    }
    let name = name?;
    let target = Target {
        name: name.value.clone().normalised(),
        alias,
        groups,
        initiators,
        networks,
        chap,
        offers,
        hidden,
        redirect,
        luns,
    };
    Some((name, target))
}

/// Reports a group without a portal: the target would be unreachable.
fn groups(section: &Section<'_>, portals: &[Portal]) -> Option<Vec<u16>> {
    let groups = section.counts("groups", 1..=65_535)?;
    for group in
        groups.iter().filter(|group| !portals.iter().any(|portal| u64::from(portal.group) == group.value))
    {
        let sentence =
            format!("no [[portal]] has group = {}; give one this group or remove it here", group.value);
        section.mistakes.add(group.at.clone(), sentence);
    }
    Some(groups.iter().map(|group| group.value as u16).collect())
}

fn read_redirect(section: &Section<'_>) -> Option<Redirect> {
    let address =
        section.required("address", section.parsed::<TargetAddress>("address"), "\"192.0.2.2:3260\"");
    let permanent = section.flag("permanent").unwrap_or(false);
    section.done();
    Some(Redirect { address: address?.value, permanent })
}

fn luns(sections: &[Section<'_>], document: &Document<'_>) -> Vec<Lun> {
    let mut luns: Vec<(u16, Option<Lun>)> = Vec::new();
    for section in sections {
        let Some((place, number, lun)) = lun(section, document) else { continue };
        if luns.iter().any(|(other, _)| *other == number) {
            let free = (0..).find(|free| *free != number && luns.iter().all(|(other, _)| other != free));
            let free = free.unwrap_or_default();
            let sentence = format!("LUN {number} is there twice in this target; LUN {free} is free");
            section.mistakes.add(place, sentence);
        }
        luns.push((number, lun));
    }
    luns.into_iter().filter_map(|(_, lun)| lun).collect()
}

/// A LUN, which may have no volume: where its number is written, and the number.
fn lun(section: &Section<'_>, document: &Document<'_>) -> Option<(Range<usize>, u16, Option<Lun>)> {
    let number = section.required("lun", section.count("lun", 0..=16_383), "0");
    let volume = section.required("volume", section.text("volume"), "\"vm1\"");
    let initiators = patterns(section);
    section.done();
    let volume = volume.and_then(|volume| document.volume(section, &volume));
    let Placed { value, at } = number?;
    let lun = value as u16;
    Some((at, lun, volume.map(|volume| Lun { lun, volume, initiators })))
}
