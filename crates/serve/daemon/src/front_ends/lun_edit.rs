//! LUNs that are written into, and taken out of, the text of a configuration file: a list `lun` in each of a list `target`.

use toml_edit::{Item, TableLike, Value};

use crate::config::{Addition, Tables, VolumeName, fill, not_editable, text_of, vacate};

/// A LUN more, of the target of this name, which is made if it is not in the file. `is_same` compares names as the
/// protocol does.
pub(super) fn add(
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
    // A LUN that has lost its volume: who sees it was said before.
    if let Some(vacant) = luns.tables().into_iter().find(|entry| number(&**entry) == Some(lun))
        && !taken.contains(&lun)
    {
        if !addition.initiators.is_empty() {
            return Err(format!(
                "LUN {lun} of {name} has initiators in the file; change them there, or take another LUN"
            ));
        }
        fill(vacant, addition.volume);
        return Ok(());
    }
    if taken.contains(&lun) {
        return Err(format!("LUN {lun} of {name} is taken; LUN {free} is free"));
    }
    let mut entry = vec![("lun", lun.into()), ("volume", addition.volume.as_str().into())];
    if !addition.initiators.is_empty() {
        entry.push(("initiators", Value::Array(addition.initiators.iter().map(String::as_str).collect())));
    }
    luns.push(entry);
    Ok(())
}

/// Without the volume. A target of which more is said than its name outlives its LUNs, and a LUN that says who sees it its
/// volume: what comes there next is for the same hosts.
pub(super) fn remove(parent: &mut dyn TableLike, volume: &VolumeName) -> Result<(), String> {
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
