//! Exports that are written into, and taken out of, the text of a configuration file.

use toml_edit::{Item, Table, TableLike};

use crate::config::{Addition, Tables, VolumeName, fill, not_editable, text_of, vacate};

/// An export more. A target, as the addition may name one, is the name of the export here.
pub(super) fn add(root: &mut Table, addition: &Addition<'_>) -> Result<(), String> {
    if addition.lun.is_some() || !addition.initiators.is_empty() {
        return Err("an NBD export has neither a LUN nor initiators".to_owned());
    }
    let nbd = section(root).ok_or("the file has no [nbd]; add one with listen = [\"127.0.0.1:10809\"]")?;
    let name = addition.target.unwrap_or(addition.volume.as_str());
    let mut exports = Tables::under(nbd, "export")?;
    if let Some(known) = exports.tables().into_iter().find(|export| name_of(&**export) == Some(name)) {
        return match text_of(&*known, "volume") {
            Some("") => {
                fill(known, addition.volume);
                Ok(())
            }
            _ => Err(format!("there is an export {name} already")),
        };
    }
    let mut entry = vec![("volume", addition.volume.as_str().into())];
    if name != addition.volume.as_str() {
        entry.push(("name", name.into()));
    }
    exports.push(entry);
    Ok(())
}

/// Without the exports of this volume. One that says who may use it stays, without a volume: the next one is for the same hosts.
pub(super) fn remove(root: &mut Table, volume: &VolumeName) -> Result<(), String> {
    let Some(nbd) = section(root).filter(|nbd| nbd.contains_key("export")) else { return Ok(()) };
    let mut exports = Tables::under(nbd, "export")?;
    exports.retain(|export| {
        if text_of(&*export, "volume") != Some(volume.as_str()) {
            return true;
        }
        let stays = vacate(export, &["name", "volume"]);
        if stays && !export.contains_key("name") {
            export.insert("name", Item::Value(volume.as_str().into()));
        }
        stays
    });
    match exports.any(|_| true) {
        true => Ok(()),
        false => nbd.remove("export").map(drop).ok_or_else(not_editable),
    }
}

fn section(root: &mut Table) -> Option<&mut dyn TableLike> {
    root.get_mut("nbd").and_then(Item::as_table_like_mut)
}

fn name_of(export: &dyn TableLike) -> Option<&str> {
    text_of(export, "name").or_else(|| text_of(export, "volume"))
}
