//! The volumes of a server: devices with their kept identities, as logical units.

use std::collections::HashMap;
use std::sync::Arc;

use scsi::{Identity, LogicalUnit, LogicalUnitOptions};

use crate::config::{Config, Volume, VolumeName};
use crate::control::FaultMode;
use crate::failure::Failure;
use crate::state::{Claim, State};

/// The volumes that are served, by name.
pub(super) struct Volumes(HashMap<VolumeName, Opened>);

/// A volume in use.
pub(super) struct Opened {
    /// What initiators speak to.
    pub(super) unit: Arc<LogicalUnit>,
    _claim: Claim,
}

impl Volumes {
    pub(super) fn get(&self, name: &VolumeName) -> Option<&Opened> {
        self.0.get(name)
    }

    /// Switches the fault layers of a volume; whether it has any, or `None` if there is no such volume.
    pub(super) fn switch(&self, name: &str, mode: FaultMode) -> Option<bool> {
        let (_, opened) = self.0.iter().find(|(known, _)| known.as_str() == name)?;
        let _ = (opened, mode);
        Some(false)
    }
}

/// Opens every volume that is under a LUN.
pub(super) fn open(config: &Config, state: &State) -> Result<Volumes, Failure> {
    let used = config.volumes.iter().filter(|volume| super::summary::is_used(config, volume.name.as_str()));
    used.map(|volume| Ok((volume.name.clone(), open_one(volume, state)?)))
        .collect::<Result<_, _>>()
        .map(Volumes)
}

fn open_one(volume: &Volume, state: &State) -> Result<Opened, Failure> {
    let claim = state.claim(&volume.name).map_err(Failure::refused)?;
    let uuid = state.identity(volume).map_err(Failure::refused)?;
    let device = crate::volume::open(&volume.spec)
        .map_err(|error| Failure::refused(format!("cannot open volume {}: {error}", volume.name)))?;
    let options = LogicalUnitOptions {
        identity: Identity::new(uuid.0),
        read_only: volume.spec.is_readonly(),
        removable: volume.spec.removable,
        thin: None,
    };
    let unit = LogicalUnit::new(device, options, None)
        .map_err(|damaged| Failure::refused(format!("what is kept of volume {}: {damaged}", volume.name)))?;
    Ok(Opened { unit, _claim: claim })
}
