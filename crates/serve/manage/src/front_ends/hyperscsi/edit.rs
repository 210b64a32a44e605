//! LUNs that are written into, and taken out of, the text of a configuration file.

use toml_edit::{Item, Table, TableLike, Value};

use crate::config::{Addition, Tables, VolumeName, not_editable, text_of};

/// A LUN more, of a target that is made if it is not in the file: that with the volume's name, unless the addition names one.
pub(super) fn add(root: &mut Table, addition: &Addition<'_>) -> Result<(), String> {
    let section = section(root).ok_or("the file has no [hyperscsi]; add one with listen = [\"eth0\"]")?;
    let name = addition.target.unwrap_or(addition.volume.as_str());
    if !hyperscsi::is_name(name) {
        return Err(format!("`{name}` names no HyperSCSI target; use letters, digits and .:-_"));
    }
    let mut targets = Tables::under(section, "target")?;
    let is_it = |target: &dyn TableLike| text_of(target, "name") == Some(name);
    if !targets.any(is_it) {
        targets.push([("name", name.into())]);
    }
    let target = targets.tables().into_iter().find(|target| is_it(&**target)).ok_or_else(not_editable)?;
    let mut luns = Tables::under(target, "lun")?;
    let taken: Vec<i64> = luns.tables().iter().filter_map(|lun| lun.get("lun")?.as_integer()).collect();
    let free = (0..).find(|number| !taken.contains(number)).unwrap_or_default();
    let lun = addition.lun.map_or(free, i64::from);
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

/// Without the LUNs that are this volume, and the targets that have no LUN then.
pub(super) fn remove(root: &mut Table, volume: &VolumeName) -> Result<(), String> {
    let Some(section) = section(root).filter(|section| section.contains_key("target")) else { return Ok(()) };
    let is_it = |lun: &dyn TableLike| text_of(lun, "volume") == Some(volume.as_str());
    let mut targets = Tables::under(section, "target")?;
    targets.retain(|target| {
        let Ok(mut luns) = Tables::under(target, "lun") else { return true };
        luns.retain(|lun| !is_it(&*lun));
        luns.any(|_| true)
    });
    match targets.any(|_| true) {
        true => Ok(()),
        false => section.remove("target").map(drop).ok_or_else(not_editable),
    }
}

fn section(root: &mut Table) -> Option<&mut dyn TableLike> {
    root.get_mut("hyperscsi").and_then(Item::as_table_like_mut)
}
