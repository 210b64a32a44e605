//! What a logical unit keeps through a restart: persistent reservations with APTPL and saved mode pages.

use scsi::{Condition, SenseKey, asc};
use volume::reservations::Registrations;
use volume::{Damaged, SaveLock, Saved, Volume};

use crate::failure::Failure;
use crate::mode::Pages;
use crate::unit::LogicalUnit;

/// Brings back what `volume` has saved, if anything: mode pages into `modes`, registrations as they were.
pub(crate) fn restore(volume: &Volume, modes: &mut Pages) -> Result<Registrations, Damaged> {
    let Some(bytes) = volume.saved() else {
        return Ok(Registrations::default());
    };
    let saved = Saved::from_bytes(&bytes)?;
    modes.restore(&saved.front_end)?;
    Registrations::from_bytes(&saved.reservations)
}

impl LogicalUnit {
    /// Saves `next` in place of the registrations, unless a restart would see no difference.
    pub(crate) async fn save_registrations(
        &self,
        next: &Registrations,
        lock: &SaveLock,
    ) -> Result<(), Failure> {
        let (before, front_end) = self.look(|state| (state.registrations.to_bytes(), state.modes.to_bytes()));
        let reservations = next.to_bytes();
        if reservations == before {
            return Ok(());
        }
        self.save(Saved { reservations, front_end }, lock).await
    }

    /// Saves `next` in place of the mode pages.
    pub(crate) async fn save_modes(&self, next: &Pages, lock: &SaveLock) -> Result<(), Failure> {
        let reservations = self.look(|state| state.registrations.to_bytes());
        self.save(Saved { reservations, front_end: next.to_bytes() }, lock).await
    }

    async fn save(&self, saved: Saved, lock: &SaveLock) -> Result<(), Failure> {
        let failed = Condition::new(SenseKey::HardwareError, asc::INTERNAL_TARGET_FAILURE);
        self.volume().save(saved.to_bytes(), lock).await.map_err(|_| failed.into())
    }
}
