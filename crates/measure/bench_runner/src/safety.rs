//! Checks before storage is overwritten: reservations, write protection, content, consent.

use super::fit::Limits;
use super::storage::Storage;
use backends::Failure;
use backends::Overwritten;
use bench::Extent;
use disk_contents::Consent;

/// Checks that the storage may be overwritten within its limits: writing was allowed, it is neither reserved
/// nor write-protected, and it is empty or there is consent.
pub async fn consent(storage: &Storage, limits: &Limits, consent: Consent<'_>) -> Result<(), Failure> {
    if !limits.writes {
        return Err(Failure::refused(
            "this writes, which destroys what is on the storage; say --allow-write",
        ));
    }
    let part = (limits.part != Extent::ALL).then(|| limits.part.to_string());
    let (name, lun) = (&storage.subject.place, storage.lun.as_deref());
    Overwritten { device: &*storage.device, name, part, lun }
        .consent(if storage.keeps { consent } else { Consent::Given })
        .await
}
