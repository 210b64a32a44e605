//! Volumes and targets as tables for people.

use super::{Target, Volume};
use stats::table::{Align, lines};
use volume::spec::Bytes;

/// A line for each export of each volume.
pub fn volumes(volumes: &[Volume]) -> String {
    let headings = ["VOLUME", "SIZE", "BLOCK", "TARGET", "LUN", "MADE OF"].map(str::to_owned);
    let mut rows = vec![headings];
    for volume in volumes {
        for (index, lun) in volume.luns.iter().enumerate() {
            let once = |text: String| if index == 0 { text } else { String::new() };
            rows.push([
                once(volume.name.clone()),
                once(Bytes(volume.bytes).to_string()),
                once(volume.block_bytes.to_string()),
                lun.target.clone(),
                lun.lun.map_or_else(String::new, |lun| lun.to_string()),
                once(volume.spec.clone()),
            ]);
        }
    }
    let columns = [Align::Left, Align::Right, Align::Right, Align::Left, Align::Right, Align::Left];
    lines(columns, &rows).into_iter().map(|line| line + "\n").collect()
}

/// A paragraph for each target: who may use it, where, and what is on it.
pub fn targets(targets: &[Target]) -> String {
    targets.iter().map(target).collect()
}

fn target(target: &Target) -> String {
    let alias = target.alias.as_ref().map_or_else(String::new, |alias| format!("  ({alias})"));
    let or_any =
        |list: &Option<Vec<String>>| list.as_ref().map_or_else(|| "any".to_owned(), |all| all.join(", "));
    let chap = if target.users.is_empty() { "none".to_owned() } else { target.users.join(", ") };
    let mut pairs = vec![
        ("portals", target.portals.join(", ")),
        ("initiators", or_any(&target.initiators)),
        ("networks", or_any(&target.networks)),
        ("CHAP users", chap),
        ("sessions", target.sessions.to_string()),
    ];
    pairs.extend(target.redirect.clone().map(|address| ("redirects to", address)));
    let luns: Vec<(String, &str)> =
        target.luns.iter().map(|lun| (format!("LUN {}", lun.lun), lun.volume.as_str())).collect();
    pairs.extend(luns.iter().map(|(lun, volume)| (lun.as_str(), (*volume).to_owned())));
    format!("{}{alias}\n{}", target.name, stats::table::pairs("  ", pairs))
}
