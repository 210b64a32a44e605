//! LUNs that are written into, and taken out of, the text of a configuration file.

use toml_edit::Table;

use super::own_target;
use crate::config::{Addition, VolumeName};
use crate::front_ends::lun_edit;

/// A LUN more, of a target that is made if it is not in the file.
pub(super) fn add(root: &mut Table, addition: &Addition<'_>) -> Result<(), String> {
    let own = own_target(addition.volume);
    lun_edit::add(root, addition.target.unwrap_or(own.as_str()), str::eq_ignore_ascii_case, addition)
}

/// Without the LUNs that are this volume, and the targets of which nothing is left but their names.
pub(super) fn remove(root: &mut Table, volume: &VolumeName) -> Result<(), String> {
    lun_edit::remove(root, volume)
}
