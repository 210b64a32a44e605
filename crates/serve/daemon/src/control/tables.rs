//! Volumes and targets as tables for people.

use super::{Target, Volume};
use stats::table::{Align, Column, fitted, hanging};
use volume::spec::Bytes;

/// A row for each export of each volume, in lines of at most `width` letters.
pub fn volumes(volumes: &[Volume], width: usize) -> String {
    let names = COLUMNS.map(|(name, ..)| name);
    let mut rows = vec![names.map(str::to_owned)];
    for volume in volumes {
        for (index, lun) in volume.luns.iter().enumerate() {
            let once = |text: String| if index == 0 { text } else { String::new() };
            rows.push([
                once(volume.name.clone()),
                once(Bytes(volume.bytes).to_string()),
                once(volume.block_bytes.to_string()),
                if lun.front_end == "iscsi" {
                    lun.target.clone()
                } else {
                    export(&lun.front_end, &lun.target)
                },
                lun.lun.map_or_else(String::new, |lun| lun.to_string()),
                once(volume.spec.clone()),
                once(volume.naa.clone()),
                once(volume.serial.clone()),
            ]);
        }
    }
    let table = fitted(&COLUMNS.map(|(_, align, rank)| Column { align, rank }), &rows, width);
    let note = table.note(&names).into_iter().flat_map(|note| hanging("", &note, width));
    let table: String = table.rows.concat().into_iter().chain(note).map(|line| line + "\n").collect();
    volumes.iter().fold(table, |table, volume| table + &sets(volume))
}

/// A paragraph for each RAID set of a volume.
pub fn sets(volume: &Volume) -> String {
    let name = |number: usize| match volume.raid.len() {
        1 => volume.name.clone(),
        _ => format!("{}/{number}", volume.name),
    };
    volume.raid.iter().enumerate().map(|(number, set)| format!("{}: {set}\n", name(number))).collect()
}

/// What volumes are told by: name, alignment, and rank, the highest of which has to go first where there is no room.
const COLUMNS: [(&str, Align, u8); 8] = [
    ("VOLUME", Align::Left, 0),
    ("SIZE", Align::Right, 0),
    ("BLOCK", Align::Right, 1),
    ("TARGET", Align::Left, 0),
    ("LUN", Align::Right, 0),
    ("MADE OF", Align::Left, 0),
    ("NAA", Align::Left, 2),
    ("SERIAL", Align::Left, 3),
];

/// What a front end without targets calls its own: `NBD export vm1`.
fn export(front_end: &str, name: &str) -> String {
    format!("{} export {name}", front_end.to_uppercase())
}

/// A paragraph for each target, in lines of at most `width` letters: who may use it, where, and what is on it.
pub fn targets(targets: &[Target], width: usize) -> String {
    targets.iter().map(|it| target(it, width)).collect()
}

fn target(target: &Target, width: usize) -> String {
    let alias = target.alias.as_ref().map_or_else(String::new, |alias| format!("  ({alias})"));
    let or_any =
        |list: &Option<Vec<String>>| list.as_ref().map_or_else(|| "any".to_owned(), |all| all.join(", "));
    let chap = if target.users.is_empty() { "none".to_owned() } else { target.users.join(", ") };
    let is_iscsi = target.front_end == "iscsi";
    let mut pairs = vec![
        ("portals", target.portals.join(", ")),
        (if is_iscsi { "initiators" } else { "clients" }, or_any(&target.initiators)),
        ("networks", or_any(&target.networks)),
    ];
    pairs.extend(is_iscsi.then_some(("CHAP users", chap)));
    pairs.push(("sessions", target.sessions.to_string()));
    pairs.extend(target.redirect.clone().map(|address| ("redirects to", address)));
    // Other front ends have no LUNs.
    let label = |lun| if is_iscsi { format!("LUN {lun}") } else { "volume".to_owned() };
    let luns: Vec<(String, &str)> =
        target.luns.iter().map(|lun| (label(lun.lun), lun.volume.as_str())).collect();
    pairs.extend(luns.iter().map(|(lun, volume)| (lun.as_str(), (*volume).to_owned())));
    let names = pairs.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let rows = pairs.iter().flat_map(|(name, value)| hanging(&format!("  {name:<names$}  "), value, width));
    let name = if is_iscsi { target.name.clone() } else { export(&target.front_end, &target.name) };
    let head = hanging("", &format!("{name}{alias}"), width);
    head.into_iter().chain(rows).map(|line| format!("{}\n", line.trim_end())).collect()
}
