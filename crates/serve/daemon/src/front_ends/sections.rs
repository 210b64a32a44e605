//! The common parts of the sections of front ends: listen addresses; lists of targets, exports or slots; and
//! edits of these lists in the text of a configuration file, when a volume is added or removed.

use std::collections::BTreeSet;
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
use crate::config::{Addition, Beside, Document, FrontEndKind, Serving};

/// The section of a front end other than iSCSI: its listen addresses, and its exports.
#[derive(Debug)]
pub(super) struct Listening<E> {
    pub(super) listen: Vec<ListenAddress>,
    pub(super) exports: Vec<E>,
}

impl<E> Default for Listening<E> {
    fn default() -> Listening<E> {
        Listening {
            listen: Vec::new(),
            exports: Vec::new(),
        }
    }
}

impl<E: Exposed> Listening<E> {
    /// Reads the listen addresses of `section`, and adds these exports.
    pub(super) fn read(
        section: &Section<'_>,
        kind: &FrontEndKind,
        example: &str,
        exports: Vec<E>,
    ) -> Listening<E> {
        let listen = section.required("listen", section.list_by("listen", kind.listen), example);
        Listening {
            listen: listen.unwrap_or_default(),
            exports,
        }
    }

    /// If the command line has listen addresses, they replace those of the file, and the volumes of the
    /// command line are exported there. `new` creates the export of a volume. `title` names the front end in
    /// messages. The error is a sentence.
    pub(super) fn take_over(
        &mut self,
        beside: &Beside<'_>,
        kind: &FrontEndKind,
        title: &str,
        new: impl Fn(&[E], &VolumeName) -> Result<E, String>,
    ) -> Result<(), String> {
        if beside.listen.is_empty() {
            return Ok(());
        }
        debug_assert!(beside.has_addresses, "this front end has some");
        self.listen.clone_from(&beside.listen);
        for volume in &beside.volumes {
            let export = new(&self.exports, volume)?;
            self.exports.push(export);
        }
        match self.exports.is_empty() {
            false => Ok(()),
            true => Err(format!(
                "{title} exports no volume; add --volume, or {} to the file",
                kind.heading
            )),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.exports.is_empty() && self.listen.is_empty()
    }

    pub(super) fn exposed(&self) -> Vec<&dyn Exposed> {
        self.exports
            .iter()
            .map(|export| export as &dyn Exposed)
            .collect()
    }

    pub(super) fn portals(&self, kind: &FrontEndKind) -> Vec<Portal> {
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

/// Returns the entries of a list. An entry with the name of an earlier entry is an error. `twice` returns its
/// sentence, given the name and all earlier names. An entry without a volume also reserves its name.
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

/// Reads the LUNs of a target; `patterns` reads the names of initiators.
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
        Some((
            number,
            at,
            volume.map(|volume| Lun {
                lun: number,
                volume,
                initiators,
            }),
        ))
    };
    each_once(
        sections.iter().filter_map(read),
        target.mistakes,
        |lun, others| {
            let free = (0..)
                .find(|free| free != lun && !others.contains(free))
                .unwrap_or_default();
            format!("LUN {lun} is defined twice in this target; LUN {free} is free")
        },
    )
}

/// Returns the LUNs to serve. A LUN whose volume is not open, as happens during a change, is omitted.
pub(super) fn exports(luns: &[Lun], serving: Serving<'_>) -> Vec<Export> {
    debug_assert_eq!(
        luns.iter()
            .map(|lun| lun.lun)
            .collect::<BTreeSet<u16>>()
            .len(),
        luns.len(),
        "a target has each LUN once"
    );
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

/// Fills `bytes` with random bytes for challenges and keys. If these bytes repeated, an eavesdropper could
/// replay an old response.
pub(super) fn random(bytes: &mut [u8]) {
    // The random source has worked at the start, and on Linux it does not fail afterwards.
    getrandom::fill(bytes).expect("the system's random source works");
}

/// Returns the section of a front end in the text of a file; `example` is an address to listen on. The error
/// is a sentence.
pub(super) fn section_to_edit<'a>(
    root: &'a mut Table,
    name: &str,
    example: &str,
) -> Result<&'a mut dyn TableLike, String> {
    let section = root.get_mut(name).and_then(Item::as_table_like_mut);
    section
        .ok_or_else(|| format!("the file has no [{name}]; add one with listen = [\"{example}\"]"))
}

/// Adds an export with these entries to the list under `key`. If an existing export matches `is_it` and has
/// no volume, `volume` is assigned to this export instead. If it has a volume, the error is `taken`.
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

/// Removes the exports of this volume from the list `key` of the section `name`. An export with keys other
/// than `keys`, such as access control, stays without a volume, so that these keys apply to the next volume
/// of the export. Such an export is passed to `stayed`.
pub(super) fn remove_exports(
    root: &mut Table,
    name: &str,
    key: &str,
    volume: &VolumeName,
    keys: &[&str],
    stayed: impl Fn(&mut dyn TableLike),
) -> Result<(), String> {
    let section = root.get_mut(name).and_then(Item::as_table_like_mut);
    let Some(section) = section.filter(|section| section.contains_key(key)) else {
        return Ok(());
    };
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

/// Clears the volume of an entry that has keys other than `keys`. Returns whether the entry stays.
fn vacate(entry: &mut dyn TableLike, keys: &[&str]) -> bool {
    let says_more = entry.iter().any(|(key, _)| !keys.contains(&key));
    if says_more {
        entry.insert("volume", Item::Value("".into()));
    }
    says_more
}

/// Adds a LUN to the target of this name, which is added if it is not in the file. `is_same` compares names
/// as the protocol does.
pub(super) fn add_lun(
    parent: &mut dyn TableLike,
    name: &str,
    is_same: fn(&str, &str) -> bool,
    addition: &Addition<'_>,
) -> Result<(), String> {
    let mut targets = Tables::under(parent, "target")?;
    let is_it =
        |target: &dyn TableLike| text_of(target, "name").is_some_and(|other| is_same(other, name));
    if !targets.any(is_it) {
        targets.push([("name", name.into())]);
    }
    let target = targets
        .tables()
        .into_iter()
        .find(|target| is_it(&**target))
        .ok_or_else(not_editable)?;
    let mut luns = Tables::under(target, "lun")?;
    let number = |lun: &dyn TableLike| lun.get("lun").and_then(Item::as_integer);
    let taken = luns
        .tables()
        .into_iter()
        .filter(|lun| text_of(&**lun, "volume") != Some(""));
    let taken: Vec<i64> = taken.filter_map(|lun| number(lun)).collect();
    let free = (0..)
        .find(|number| !taken.contains(number))
        .unwrap_or_default();
    let lun = addition.lun.map_or(free, i64::from);
    debug_assert!(!taken.contains(&free) && lun >= 0);
    if taken.contains(&lun) {
        return Err(format!("LUN {lun} of {name} is in use; LUN {free} is free"));
    }
    // A LUN without a volume keeps its access control.
    if let Some(vacant) = luns
        .tables()
        .into_iter()
        .find(|entry| number(&**entry) == Some(lun))
    {
        if !addition.initiators.is_empty() {
            return Err(format!(
                "LUN {lun} of {name} has initiators in the file; change them there, or use another LUN"
            ));
        }
        vacant.insert("volume", Item::Value(addition.volume.as_str().into()));
        return Ok(());
    }
    let mut entry = vec![
        ("lun", lun.into()),
        ("volume", addition.volume.as_str().into()),
    ];
    if !addition.initiators.is_empty() {
        entry.push((
            "initiators",
            Value::Array(addition.initiators.iter().map(String::as_str).collect()),
        ));
    }
    luns.push(entry);
    Ok(())
}

/// Removes the LUNs of this volume. A target with keys other than its name stays without LUNs. A LUN with
/// access control stays without a volume, so that the access control applies to the next volume at this LUN.
pub(super) fn remove_luns(parent: &mut dyn TableLike, volume: &VolumeName) -> Result<(), String> {
    let is_it = |lun: &dyn TableLike| text_of(lun, "volume") == Some(volume.as_str());
    let mut targets = Tables::under(parent, "target")?;
    targets.retain(|target| {
        if !target.contains_key("lun") {
            return true;
        }
        let Ok(mut luns) = Tables::under(target, "lun") else {
            return true;
        };
        luns.retain(|lun| !is_it(&*lun) || vacate(lun, &["lun", "volume"]));
        if luns.any(|_| true) {
            return true;
        }
        target.remove("lun"); // an empty list would be another error
        target.iter().any(|(key, _)| key != "name")
    });
    if !targets.any(|_| true) {
        parent.remove("target"); // an empty list would be another error
    }
    Ok(())
}

// The layout of command lines for a terminal of 80 columns, from which users type or copy them.

/// Columns of the terminal.
const COLUMNS: usize = 80;
/// Indentation after the label of a system.
const INDENT: usize = 12;
/// Indentation of a continued command line.
const HANGING: usize = INDENT + 2;

/// Returns the lines of one system after its label. A line that is too long is continued with `mark`, in the
/// syntax of that system's shell. A word stays whole unless it contains commas. After a comma, the
/// continuation begins in the first column, so that the shell parses one word.
pub(super) fn labelled(label: &str, lines: &[String], mark: char) -> String {
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let label = if index == 0 { label } else { "" };
        text += &broken(&format!("  {label:<9} "), line, mark);
        text.push('\n');
    }
    text
}

fn broken(label: &str, line: &str, mark: char) -> String {
    let letters = |text: &str| text.chars().count();
    if letters(label) + letters(line) <= COLUMNS {
        return format!("{label}{line}");
    }
    let (mut done, mut now) = (String::new(), label.to_owned());
    let mut is_first = true;
    for word in line.split(' ') {
        let gap = if is_first { "" } else { " " };
        // Leave space for a blank and the mark.
        if letters(&now) + gap.len() + letters(word) + 2 <= COLUMNS {
            now = format!("{now}{gap}{word}");
            is_first = false;
            continue;
        }
        if !is_first && (letters(word) + HANGING + 2 <= COLUMNS || !word.contains(',')) {
            done += &format!("{now} {mark}\n");
            now = format!("{:HANGING$}{word}", "");
            continue;
        }
        now += gap;
        is_first = false;
        for part in word.split_inclusive(',') {
            if letters(&now) + letters(part) + 1 > COLUMNS && now.ends_with(',') {
                done += &format!("{now}{mark}\n");
                now.clear();
            }
            now += part;
        }
    }
    done + &now
}

/// Returns the text as the shell parses it.
#[cfg(test)]
pub(super) fn joined(text: &str) -> String {
    let hanging = format!("\n{:HANGING$}", "");
    let text = ['\\', '`'].iter().fold(text.to_owned(), |text, mark| {
        text.replace(&format!("{mark}{hanging}"), "")
    });
    text.replace(",\\\n", ",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_is_what_was_meant() {
        let long = "word-that-is-long".repeat(6);
        for line in [
            "iscsiadm -m node -T iqn.2026-01.io.linerate:vm1 -o update -n node.session.auth.authmethod -v CHAP".to_owned(),
            format!("-blockdev driver=iscsi,{}lun=7 -snapshot", "portal=[2001:db8::1]:3260,".repeat(9)),
            format!("iscsi-inq -i 'iqn.1993-08.org.debian:01:host1' {long} x"),
            long.clone(),
            format!("{long},{long},a"),
        ] {
            for mark in ['\\', '`'] {
                let text = labelled("Linux", &[line.clone(), "ls".to_owned()], mark);
                let text = text.replace(",`\n", ",\\\n");
                assert_eq!(joined(&text), format!("  Linux     {line}\n            ls\n"), "{text}");
                let is_short = |line: &str| line.chars().count() <= COLUMNS || line.contains("word-that");
                assert!(text.lines().all(is_short), "{text}");
            }
        }
    }
}
