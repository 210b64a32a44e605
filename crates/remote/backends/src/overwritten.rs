//! Checks before storage of any kind is overwritten: reservations of other initiators, then its content.

use std::fmt::Display;

use block::BlockDevice;
use disk_contents::Consent;
use iscsi_client::RemoteLun;

use crate::{Failure, reservation};

/// Storage that a command is about to write over, whatever is there.
pub struct Overwritten<'a> {
    /// The device.
    pub device: &'a dyn BlockDevice,
    /// Its place, for people.
    pub name: &'a dyn Display,
    /// The part that is written, for people, if it is not all of it.
    pub part: Option<String>,
    /// The LUN that it is, if reservations of other initiators are to be told beforehand.
    pub lun: Option<&'a RemoteLun>,
}

impl Overwritten<'_> {
    /// Checks that it is not write-protected, not reserved, and empty, or that there is consent to lose its
    /// content.
    ///
    /// # Errors
    /// What keeps it from being overwritten.
    pub async fn consent(&self, consent: Consent<'_>) -> Result<(), Failure> {
        let Overwritten { device, name, ref part, lun } = *self;
        if let Some(lun) = lun.filter(|_| !device.profile().read_only) {
            reservation::check(lun, false, "reading is possible").await?;
        }
        let overwritten = disk_contents::Overwritten { device, name, part: part.as_deref() };
        Ok(overwritten.consent(consent).await?)
    }
}
