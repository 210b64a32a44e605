//! Before anything is overwritten: whose it is, and what it is.

use super::extent::Extent;
use super::fit::Limits;
use super::storage::Storage;
use crate::attach::reservation;
use crate::contents;
use crate::failure::{Failure, Kind};

/// Whether the storage may be overwritten within its limits: it was allowed, nobody has reserved it, it is not
/// write-protected, and there is nothing on it, or whoever started this agrees to lose it.
pub(super) async fn consent(storage: &Storage, limits: &Limits, yes: bool) -> Result<(), Failure> {
    let name = &storage.subject.place;
    if !limits.writes {
        return Err(Failure::refused(
            "this writes, which destroys what is on the storage; say --allow-write",
        ));
    }
    if storage.device.profile().read_only {
        return Err(Failure::new(Kind::WriteProtected, format_args!("{name} is write-protected")));
    }
    if !storage.keeps {
        return Ok(());
    }
    if let Some(lun) = &storage.lun {
        reservation::check(lun, false, "reading is possible").await?;
    }
    let found = contents::contents(&*storage.device).await;
    let found = found.map_err(|error| Failure::device(format_args!("cannot read {name}"), error))?;
    let whose = match limits.part == Extent::ALL {
        true => name.clone(),
        false => format!("{name}, of which {} would be overwritten", limits.part),
    };
    contents::consent(&whose, found.as_ref(), yes)
}
