//! LUNs that are written into, and taken out of, the text of a configuration file.

use hyperscsi::is_name;
use toml_edit::{Item, Table, TableLike};

use crate::config::{Addition, VolumeName};
use crate::front_ends::lun_edit;

/// A LUN more, of a target that is made if it is not in the file: that with the volume's name, unless the addition names one.
pub(super) fn add(root: &mut Table, addition: &Addition<'_>) -> Result<(), String> {
    let section = section(root).ok_or("the file has no [hyperscsi]; add one with listen = [\"eth0\"]")?;
    let name = addition.target.unwrap_or(addition.volume.as_str());
    match is_name(name) {
        true => lun_edit::add(section, name, |one, other| one == other, addition),
        false => Err(format!("`{name}` names no HyperSCSI target; use letters, digits and .:-_")),
    }
}

/// Without the LUNs that are this volume, and the targets of which nothing is left but their names.
pub(super) fn remove(root: &mut Table, volume: &VolumeName) -> Result<(), String> {
    match section(root).filter(|section| section.contains_key("target")) {
        Some(section) => lun_edit::remove(section, volume),
        None => Ok(()),
    }
}

fn section(root: &mut Table) -> Option<&mut dyn TableLike> {
    root.get_mut("hyperscsi").and_then(Item::as_table_like_mut)
}
