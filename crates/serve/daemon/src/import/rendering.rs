//! The neutral model as the text of a `linerate.toml`.

use std::fmt::{self, Write as _};

use zeroize::Zeroizing;

use super::Note;
use super::san::{Account, Chap, San, Target, Volume};

/// The text, which says where it is from.
pub(super) fn text(san: &San, source: &str) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::new());
    let source: String = source.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    line(&mut text, format_args!("# Imported from {source}."));
    match san.all_notes().len() {
        0 => text.push_str("# Everything in it was carried over.\n"),
        many => line(
            &mut text,
            format_args!(
                "# Not carried over, or different here: {many}, each a comment that begins with `import:`."
            ),
        ),
    }
    notes(&mut text, &san.notes);
    text.push_str(san.remark);
    for portal in &san.portals {
        line(&mut text, format_args!("\n[[portal]]\nlisten = \"{}\"", portal.listen));
        if portal.group != 1 {
            line(&mut text, format_args!("group = {}", portal.group));
        }
    }
    san.volumes.iter().for_each(|one| volume(&mut text, one));
    for one in &san.targets {
        text.push('\n');
        notes(&mut text, &one.notes);
        let section = target(one);
        match one.left_out {
            None => text.push_str(&section),
            Some(_) => section.lines().for_each(|inside| line(&mut text, format_args!("# {inside}"))),
        }
    }
    if let Some(discovery) = &san.discovery {
        text.push('\n');
        chap(&mut text, "discovery.chap", discovery);
    }
    text
}

fn notes(text: &mut String, notes: &[Note]) {
    notes.iter().for_each(|note| line(text, format_args!("# import: {note}")));
}

fn volume(text: &mut String, volume: &Volume) {
    text.push('\n');
    notes(text, &volume.notes);
    // A dot in a bare key begins a table below it.
    let name = if volume.name.contains('.') { quoted(&volume.name) } else { volume.name.clone() };
    line(text, format_args!("[volume.{name}]\nspec = {}", quoted(&volume.spec)));
    if let Some(uuid) = &volume.uuid {
        line(text, format_args!("uuid = {}", quoted(uuid)));
    }
    volume.names.iter().for_each(|(key, value)| line(text, format_args!("{key} = {}", quoted(value))));
    for (key, is_set) in
        [("read-only", volume.readonly), ("removable", volume.removable), ("thick", volume.thick)]
    {
        if is_set {
            line(text, format_args!("{key} = true"));
        }
    }
}

fn target(target: &Target) -> Zeroizing<String> {
    let mut text = Zeroizing::new(format!("[[target]]\nname = {}\n", quoted(&target.name)));
    if let Some(alias) = &target.alias {
        line(&mut text, format_args!("alias = {}", quoted(alias)));
    }
    if let Some(groups) = &target.groups {
        let groups: Vec<String> = groups.iter().map(u16::to_string).collect();
        line(&mut text, format_args!("groups = [{}]", groups.join(", ")));
    }
    list(&mut text, "initiators", target.initiators.as_deref());
    list(&mut text, "networks", target.networks.as_deref());
    for lun in &target.luns {
        line(
            &mut text,
            format_args!("\n[[target.lun]]\nlun = {}\nvolume = {}", lun.lun, quoted(&lun.volume)),
        );
        list(&mut text, "initiators", lun.initiators.as_deref());
    }
    if !target.session.is_empty() {
        text.push_str("\n[target.session]\n");
        target.session.iter().for_each(|(key, value)| line(&mut text, format_args!("{key} = {value}")));
    }
    if let Some(accounts) = &target.chap {
        text.push('\n');
        chap(&mut text, "target.chap", accounts);
    }
    text
}

fn chap(text: &mut String, section: &str, chap: &Chap) {
    let accounts = chap.accounts.iter().map(|account| (format!("[[{section}.account]]"), account));
    let mutual = chap.mutual.iter().map(|account| (format!("[{section}.mutual]"), account));
    let mut between = "";
    for (heading, Account { user, secret, initiators }) in accounts.chain(mutual) {
        let secret = Zeroizing::new(quoted(secret));
        line(text, format_args!("{between}{heading}\nuser = {}\nsecret = {}", quoted(user), *secret));
        list(text, "initiators", initiators.as_deref());
        between = "\n";
    }
}

fn list(text: &mut String, key: &str, entries: Option<&[String]>) {
    if let Some(entries) = entries {
        let entries: Vec<String> = entries.iter().map(|entry| quoted(entry)).collect();
        line(text, format_args!("{key} = [{}]", entries.join(", ")));
    }
}

/// Writing into a String does not fail.
fn line(text: &mut String, line: impl fmt::Display) {
    let _ = writeln!(text, "{line}");
}

/// A basic string of TOML, on one line.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted += &format!("\\u{:04x}", u32::from(c)),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}
