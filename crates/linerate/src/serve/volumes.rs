//! The volumes of a server: devices with their kept identities, as logical units.

use std::collections::HashMap;
use std::sync::Arc;

use block::{DeviceError, FaultControl};
use scsi::{Identity, LogicalUnit, LogicalUnitOptions};

use crate::config::{Config, Volume, VolumeName};
use crate::control::FaultMode;
use crate::failure::Failure;
use crate::state::State;
use crate::volume;

/// The volumes that are served, by name.
pub(super) struct Volumes(HashMap<VolumeName, Opened>);

/// A volume in use.
pub(super) struct Opened {
    /// What initiators speak to.
    pub(super) unit: Arc<LogicalUnit>,
    /// Of its `fault:` layers, if it has any.
    faults: Option<FaultControl>,
}

impl Volumes {
    pub(super) fn get(&self, name: &VolumeName) -> Option<&Opened> {
        self.0.get(name)
    }

    /// The volume that somebody calls `name`.
    pub(super) fn named(&self, name: &str) -> Option<&Opened> {
        self.0.iter().find(|(known, _)| known.as_str() == name).map(|(_, opened)| opened)
    }
}

impl Opened {
    /// Switches its `fault:` layers; false if it has none.
    pub(super) fn switch(&self, mode: FaultMode) -> bool {
        if let Some(faults) = &self.faults {
            match mode {
                FaultMode::Pass => faults.pass(),
                FaultMode::Hang => faults.hang(),
                FaultMode::Fail => faults.fail(DeviceError::NotReady),
                FaultMode::Slow(time) => faults.slow(time),
            }
        }
        self.faults.is_some()
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
    let refused = |why: &dyn std::fmt::Display| Failure::refused(format!("volume {}: {why}", volume.name));
    let folder = state.folder(volume).map_err(Failure::refused)?;
    let uuid = folder.identity(volume.uuid).map_err(Failure::refused)?;
    let control = FaultControl::default();
    let device = volume::open_with_faults(&volume.spec, &control).map_err(|error| refused(&error))?;
    let options = LogicalUnitOptions {
        identity: Identity::new(uuid.0),
        read_only: volume.spec.is_readonly(),
        removable: volume.spec.removable,
        thin: None,
    };
    let path = folder.unit_path();
    let keep = folder.unit().map_err(Failure::refused)?;
    let unit = LogicalUnit::new(device, options, Some(Arc::new(keep))).map_err(|damaged| {
        refused(&format_args!("{damaged}: restore {}, or remove it to begin without them", path.display()))
    })?;
    let faults = volume.spec.has_fault_layer().then_some(control);
    Ok(Opened { unit, faults })
}
