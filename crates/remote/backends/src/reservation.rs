//! Checks before storage is overwritten or used: reservations of other initiators, then its content.
//!
//! The session of this command is a new nexus without a registration, so every reservation belongs to another
//! nexus. A reservation by RESERVE(6) cannot be queried: it is detected when a read fails with RESERVATION
//! CONFLICT.

use std::fmt::Display;

use block::{BlockDevice, Buffer, DeviceError, Extent};
use disk_contents::Consent;
use iscsi_client::RemoteLun;
use iscsi_client::verbs::{Registration, Reservation, VerbError};

use crate::failure::{Failure, FailureKind};

/// Storage that a command is about to overwrite.
pub struct Overwritten<'a> {
    /// The device.
    pub device: &'a dyn BlockDevice,
    /// The storage's name for messages.
    pub name: &'a dyn Display,
    /// The part that is overwritten, for messages; `None` for the whole device.
    pub part: Option<String>,
    /// The LUN, if reservations of other initiators must be checked first.
    pub lun: Option<&'a RemoteLun>,
}

impl Overwritten<'_> {
    /// Checks that the storage is neither write-protected nor reserved, and that it is empty or there is
    /// consent to lose its content.
    ///
    /// # Errors
    /// Returns the reason why the storage must not be overwritten.
    pub async fn consent(&self, consent: Consent<'_>) -> Result<(), Failure> {
        let Overwritten {
            device,
            name,
            ref part,
            lun,
        } = *self;
        if let Some(lun) = lun.filter(|_| !device.profile().read_only) {
            check(lun, false, "reads are allowed").await?;
        }
        let overwritten = disk_contents::Overwritten {
            device,
            name,
            part: part.as_deref(),
        };
        Ok(overwritten.consent(consent).await?)
    }
}

/// Rejects a LUN that reservations protect from the intended use. `instead` is the alternative if only writes
/// are restricted.
///
/// # Errors
/// Returns the holder of the reservation, or the reason why the query failed.
pub async fn check(lun: &RemoteLun, read_only: bool, instead: &str) -> Result<(), Failure> {
    match lun.unit().reservation().await {
        Ok(Some(held)) if !(read_only && held.kind.others_may_read()) => {
            // The registrations are needed only to name the holder in the message, so an error of this query
            // is ignored.
            let registrations = lun.unit().registrations().await.unwrap_or_default();
            Err(refusal(held, &registrations, instead))
        }
        // A target that rejects the command has no persistent reservations.
        Ok(_) | Err(VerbError::Refused { .. }) => readable(lun).await,
        Err(error) => Err(error.into()),
    }
}

/// Returns the failure "another initiator has reserved the LUN: write-exclusive, key 0x…, held by iqn.…;
/// --read-only is allowed".
fn refusal(held: Reservation, registrations: &[Registration], instead: &str) -> Failure {
    let Reservation { key, kind } = held;
    let holder = registrations
        .iter()
        .find(|registration| registration.holds.is_some());
    let holder = holder.and_then(|registration| registration.initiator.as_ref());
    let holder = holder.map_or_else(String::new, |initiator| format!(", held by {initiator}"));
    let way = if kind.others_may_read() {
        format!("; {instead}")
    } else {
        String::new()
    };
    let sentence =
        format!("another initiator has reserved the LUN: {kind}, key {key:#018x}{holder}{way}");
    Failure::new(FailureKind::Reserved, sentence)
}

/// Checks that the LUN is readable, by reading its first block.
async fn readable(lun: &RemoteLun) -> Result<(), Failure> {
    let first = Extent::new(0, 1);
    let buffer = Buffer::zeroed(lun.geometry().block_size.bytes() as usize);
    match lun.read(first, buffer).await {
        Ok(_) => Ok(()),
        Err(DeviceError::Reserved) => Err(Failure::new(
            FailureKind::Reserved,
            "another initiator has reserved the LUN, by RESERVE(6)",
        )),
        Err(error) => Err(Failure::device("cannot read block 0", error)),
    }
}

#[cfg(test)]
mod tests {
    use iscsi_client::verbs::{ReservationType, TransportId};

    use super::*;

    #[test]
    fn the_sentence_names_the_type_the_key_and_the_holder() {
        let kind = ReservationType::WriteExclusiveRegistrantsOnly;
        let registration = |name: &str, holds| Registration {
            key: 0xabc,
            holds,
            all_ports: true,
            relative_port: 0,
            initiator: Some(TransportId::Iscsi {
                name: name.to_owned(),
                isid: None,
            }),
        };
        let registrations = [
            registration("iqn.x:bystander", None),
            registration("iqn.x:holder", Some(kind)),
        ];
        let said = refusal(
            Reservation { key: 0xabc, kind },
            &registrations,
            "--read-only is allowed",
        )
        .to_string();
        let expected = "another initiator has reserved the LUN: write-exclusive-registrants-only, key \
                        0x0000000000000abc, held by iqn.x:holder; --read-only is allowed";
        assert_eq!(said, expected);
    }
}
