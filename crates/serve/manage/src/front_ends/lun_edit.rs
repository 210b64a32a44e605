//! LUNs that are written into, and taken out of, the text of a configuration file: a list `lun` in each of a list `target`.

use toml_edit::{TableLike, Value};

use crate::config::{Addition, Tables, VolumeName, not_editable, text_of};

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

/// Without the LUNs that are this volume, and the targets that have no LUN then, but for those that `stays` without any.
pub(super) fn remove(
    parent: &mut dyn TableLike,
    volume: &VolumeName,
    stays: impl Fn(&dyn TableLike) -> bool,
) -> Result<(), String> {
    let is_it = |lun: &dyn TableLike| text_of(lun, "volume") == Some(volume.as_str());
    let mut targets = Tables::under(parent, "target")?;
    targets.retain(|target| {
        if !target.contains_key("lun") {
            return true;
        }
        let Ok(mut luns) = Tables::under(target, "lun") else { return true };
        luns.retain(|lun| !is_it(&*lun));
        luns.any(|_| true) || stays(&*target)
    });
    if !targets.any(|_| true) {
        parent.remove("target"); // an empty list would be a mistake of its own
    }
    Ok(())
}
