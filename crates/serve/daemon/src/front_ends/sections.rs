//! What the sections of front ends have in common: where they listen, their lists of what hosts find, and the same lists in the
//! text of a configuration file, into which volumes are written and out of which they are taken.

use std::ops::Range;
use std::sync::Arc;

use front_end_core::{ListenAddress, Portal};
use iscsi_server::{Export, NamePattern};
use reactor::StreamOptions;
use toml_edit::{Item, Table, TableLike, Value};

use super::exposed::{Exposed, Lun};
use crate::config::file::{Tables, not_editable, text_of};
use crate::config::section::{Mistakes, Section};
use crate::config::values::VolumeName;
use crate::config::{Addition, Beside, Document, Kind, Serving};

/// A section of its own, as every front end but iSCSI has: where it listens, and what hosts find there.
#[derive(Debug)]
pub(super) struct Listening<E> {
    pub(super) listen: Vec<ListenAddress>,
    pub(super) exports: Vec<E>,
}

impl<E> Default for Listening<E> {
    fn default() -> Listening<E> {
        Listening { listen: Vec::new(), exports: Vec::new() }
    }
}

impl<E: Exposed> Listening<E> {
    /// Where `section` has it listen, and these exports.
    pub(super) fn read(section: &Section<'_>, kind: &Kind, example: &str, exports: Vec<E>) -> Listening<E> {
        let listen = section.required("listen", section.list_by("listen", kind.listen), example);
        Listening { listen: listen.unwrap_or_default(), exports }
    }

    /// Addresses of the command line replace those of the file, and with one of them its volumes are exported, each by what `new`
    /// makes of it. `title` is the front end for people. The error is a sentence.
    pub(super) fn take_over(
        &mut self,
        beside: &Beside<'_>,
        kind: &Kind,
        title: &str,
        new: impl Fn(&[E], &VolumeName) -> Result<E, String>,
    ) -> Result<(), String> {
        if beside.listen.is_empty() {
            return Ok(());
        }
        debug_assert!(beside.has_addresses, "some are this front end's");
        self.listen.clone_from(&beside.listen);
        for volume in &beside.volumes {
            let export = new(&self.exports, volume)?;
            self.exports.push(export);
        }
        match self.exports.is_empty() {
            false => Ok(()),
            true => {
                Err(format!("nothing is exported by {title}; add --volume, or {} to the file", kind.heading))
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.exports.is_empty() && self.listen.is_empty()
    }

    pub(super) fn exposed(&self) -> Vec<&dyn Exposed> {
        self.exports.iter().map(|export| export as &dyn Exposed).collect()
    }

    pub(super) fn portals(&self, kind: &Kind) -> Vec<Portal> {
        let portal = |listen: &ListenAddress| Portal {
            front_end: kind.name,
            listen: listen.clone(),
            tag: 1,
            advertise: None,
            stream: StreamOptions::default(),
        };
        self.listen.iter().map(portal).collect()
    }
}

/// What the entries of a list say. The sentence `twice` is a mistake where an entry has the name of another; those of others are
/// given, too. An entry without a volume has its name for itself.
pub(super) fn each_once<K: PartialEq, E>(
    entries: impl IntoIterator<Item = (K, Range<usize>, Option<E>)>,
    mistakes: &Mistakes<'_>,
    twice: impl Fn(&K, &[K]) -> String,
) -> Vec<E> {
    let (mut names, mut all) = (Vec::new(), Vec::new());
    for (name, at, entry) in entries {
        if names.contains(&name) {
            mistakes.add(at, twice(&name, &names));
        }
        names.push(name);
        all.extend(entry);
    }
    debug_assert!(all.len() <= names.len(), "each has a name");
    all
}

/// The LUNs of a target; `patterns` reads the names of initiators.
pub(super) fn luns(
    target: &Section<'_>,
    title: &str,
    document: &Document<'_>,
    patterns: impl Fn(&Section<'_>) -> Option<Vec<NamePattern>>,
) -> Vec<Lun> {
    let sections = target.sections("lun", title);
    let read = |section: &Section<'_>| {
        let number = section.required("lun", section.count("lun", 0..=16_383), "0");
        let volume = section.required("volume", section.text("volume"), "\"vm1\"");
        let initiators = patterns(section);
        section.done();
        let volume = volume.and_then(|volume| document.volume(section, &volume));
        let (number, at) = number.map(|number| (number.value as u16, number.at))?;
        Some((number, at, volume.map(|volume| Lun { lun: number, volume, initiators })))
    };
    each_once(sections.iter().filter_map(read), target.mistakes, |lun, others| {
        let free = (0..).find(|free| free != lun && !others.contains(free)).unwrap_or_default();
        format!("LUN {lun} is there twice in this target; LUN {free} is free")
    })
}

/// LUNs as they are served. One whose volume is not open, which happens during a change, is left out.
pub(super) fn exports(luns: &[Lun], serving: Serving<'_>) -> Vec<Export> {
    let export = |lun: &Lun| {
        Some(Export {
            lun: lun.lun,
            volume: lun.volume.to_string(),
            unit: Arc::clone(serving.unit(&lun.volume)?),
            initiators: lun.initiators.clone(),
            deadline: serving.config.volume(&lun.volume)?.deadline,
        })
    };
    luns.iter().filter_map(export).collect()
}

/// Random bytes, for challenges and keys. If they repeated, an eavesdropper could log in with an old response.
pub(super) fn random(bytes: &mut [u8]) {
    // It worked at the start, when identities may have been drawn; Linux does not fail afterwards.
    getrandom::fill(bytes).expect("the system's random source works");
}

/// The section of a front end in the text of a file; `example` is an address to listen on. The error is a sentence.
pub(super) fn section_to_edit<'a>(
    root: &'a mut Table,
    name: &str,
    example: &str,
) -> Result<&'a mut dyn TableLike, String> {
    let section = root.get_mut(name).and_then(Item::as_table_like_mut);
    section.ok_or_else(|| format!("the file has no [{name}]; add one with listen = [\"{example}\"]"))
}

/// An export more in the list under `key`, with these entries. One that is there and has no volume gets `volume`.
pub(super) fn add_export<'k>(
    parent: &mut dyn TableLike,
    key: &str,
    is_it: impl Fn(&dyn TableLike) -> bool,
    volume: &VolumeName,
    entries: impl IntoIterator<Item = (&'k str, Value)>,
    taken: String,
) -> Result<(), String> {
    let mut exports = Tables::under(parent, key)?;
    if let Some(known) = exports.tables().into_iter().find(|export| is_it(&**export)) {
        return match text_of(&*known, "volume") {
            Some("") => {
                known.insert("volume", Item::Value(volume.as_str().into()));
                Ok(())
            }
            _ => Err(taken),
        };
    }
    exports.push(entries);
    Ok(())
}

/// Without the exports of this volume in the list `key` of the section `name`. One that says more than `keys`, who may use it, stays
/// without a volume: the next one is for the same hosts. What stays is handed to `stayed`.
pub(super) fn remove_exports(
    root: &mut Table,
    name: &str,
    key: &str,
    volume: &VolumeName,
    keys: &[&str],
    stayed: impl Fn(&mut dyn TableLike),
) -> Result<(), String> {
    let section = root.get_mut(name).and_then(Item::as_table_like_mut);
    let Some(section) = section.filter(|section| section.contains_key(key)) else { return Ok(()) };
    let mut exports = Tables::under(section, key)?;
    exports.retain(|export| {
        if text_of(&*export, "volume") != Some(volume.as_str()) {
            return true;
        }
        let stays = vacate(export, keys);
        if stays {
            stayed(export);
        }
        stays
    });
    match exports.any(|_| true) {
        true => Ok(()),
        false => section.remove(key).map(drop).ok_or_else(not_editable),
    }
}

/// Takes the volume out of an entry that says more than `keys`, and leaves the rest. Whether it does.
fn vacate(entry: &mut dyn TableLike, keys: &[&str]) -> bool {
    let says_more = entry.iter().any(|(key, _)| !keys.contains(&key));
    if says_more {
        entry.insert("volume", Item::Value("".into()));
    }
    says_more
}

/// A LUN more, of the target of this name, which is made if it is not in the file. `is_same` compares names as the
/// protocol does.
pub(super) fn add_lun(
    parent: &mut dyn TableLike,
    name: &str,
    is_same: fn(&str, &str) -> bool,
    addition: &Addition<'_>,
) -> Result<(), String> {
    let mut targets = Tables::under(parent, "target")?;
    let is_it = |target: &dyn TableLike| text_of(target, "name").is_some_and(|other| is_same(other, name));
    if !targets.any(is_it) {
        targets.push([("name", name.into())]);
    }
    let target = targets.tables().into_iter().find(|target| is_it(&**target)).ok_or_else(not_editable)?;
    let mut luns = Tables::under(target, "lun")?;
    let number = |lun: &dyn TableLike| lun.get("lun").and_then(Item::as_integer);
    let taken = luns.tables().into_iter().filter(|lun| text_of(&**lun, "volume") != Some(""));
    let taken: Vec<i64> = taken.filter_map(|lun| number(lun)).collect();
    let free = (0..).find(|number| !taken.contains(number)).unwrap_or_default();
    let lun = addition.lun.map_or(free, i64::from);
    debug_assert!(!taken.contains(&free) && lun >= 0);
    if taken.contains(&lun) {
        return Err(format!("LUN {lun} of {name} is taken; LUN {free} is free"));
    }
    // A LUN that has lost its volume: who sees it was said before.
    if let Some(vacant) = luns.tables().into_iter().find(|entry| number(&**entry) == Some(lun)) {
        if !addition.initiators.is_empty() {
            return Err(format!(
                "LUN {lun} of {name} has initiators in the file; change them there, or take another LUN"
            ));
        }
        vacant.insert("volume", Item::Value(addition.volume.as_str().into()));
        return Ok(());
    }
    let mut entry = vec![("lun", lun.into()), ("volume", addition.volume.as_str().into())];
    if !addition.initiators.is_empty() {
        entry.push(("initiators", Value::Array(addition.initiators.iter().map(String::as_str).collect())));
    }
    luns.push(entry);
    Ok(())
}

/// Without the LUNs that are this volume. A target of which more is said than its name outlives its LUNs, and a LUN that says who
/// sees it its volume: what comes there next is for the same hosts.
pub(super) fn remove_luns(parent: &mut dyn TableLike, volume: &VolumeName) -> Result<(), String> {
    let is_it = |lun: &dyn TableLike| text_of(lun, "volume") == Some(volume.as_str());
    let mut targets = Tables::under(parent, "target")?;
    targets.retain(|target| {
        if !target.contains_key("lun") {
            return true;
        }
        let Ok(mut luns) = Tables::under(target, "lun") else { return true };
        luns.retain(|lun| !is_it(&*lun) || vacate(lun, &["lun", "volume"]));
        if luns.any(|_| true) {
            return true;
        }
        target.remove("lun"); // an empty list would be a mistake of its own
        target.iter().any(|(key, _)| key != "name")
    });
    if !targets.any(|_| true) {
        parent.remove("target"); // an empty list would be a mistake of its own
    }
    Ok(())
}
