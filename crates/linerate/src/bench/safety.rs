//! Before anything is overwritten: whose it is, and what it is.

use super::fit::Limits;
use super::storage::Storage;
use crate::failure::Failure;
use crate::terminal::Overwritten;
use bench::Extent;

/// Whether the storage may be overwritten within its limits: it was allowed, nobody has reserved it, it is not
/// write-protected, and there is nothing on it, or whoever started this agrees to lose it.
pub(super) async fn consent(storage: &Storage, limits: &Limits, yes: bool) -> Result<(), Failure> {
    if !limits.writes {
        return Err(Failure::refused(
            "this writes, which destroys what is on the storage; say --allow-write",
        ));
    }
    let part = (limits.part != Extent::ALL).then(|| limits.part.to_string());
    let (name, lun) = (&storage.subject.place, storage.lun.as_deref());
    Overwritten { device: &*storage.device, name, part, lun }
        .consent(crate::terminal::consent(yes || !storage.keeps))
        .await
}
