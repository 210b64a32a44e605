//! Adding, removing and resizing one volume on request: the configuration is changed as an editor would
//! change it, applied, and only then written to the file.

use std::sync::{Arc, Weak};

use crate::config::{Addition, Config, ConfigFile, VolumeName};
use crate::control::{Change, Volume};
use crate::desired::Desired;
use crate::difference::Difference;
use crate::live::{Live, Now, ReloadOptions, Reloaded, block_on, refuse_losses};
use crate::shrink;
use backends::{Failure, raid};
use volume::spec::{Bytes, Spec};

/// The configuration with a change in it.
struct Changed {
    desired: Desired,
    file: Option<ConfigFile>,
    /// For people: where it stands, if not in the file.
    lasts: Option<String>,
}

impl Live {
    /// Applies a change to the running server and to the configuration file. The audit says `by` whom.
    ///
    /// # Errors
    /// Nothing has changed, and why.
    pub fn change(&self, change: &Change, options: ReloadOptions, by: &str) -> Result<Reloaded, Failure> {
        self.noted(options, by, || self.change_unnoted(change, options))
    }

    fn change_unnoted(&self, change: &Change, options: ReloadOptions) -> Result<Reloaded, Failure> {
        if let Change::Resize { volume, bytes, shrink: true, discard_data: false } = change
            && !options.dry_run
            && let Some(served) = self.volume_to_cut(volume, change, options)?
            && let Some(device) = served.upgrade().map(|served| Arc::clone(served.device()))
        {
            // Before its hosts lose the volume for nothing. Other orders do not wait for it.
            block_on(shrink::check_served(volume, device, &served, Bytes(*bytes)))?;
        }
        let plan = |now: &Now| {
            let (file, changed) = now.changed(change)?;
            Ok((changed.wanted(file.as_ref())?, (file, changed)))
        };
        let (mut now, wanted, (file, changed)) = self.lock_for(options, plan)?;
        let mut reloaded = self.serve(&mut now, wanted, options, Some(change))?;
        reloaded.notes.extend(changed.lasts.clone());
        if options.dry_run {
            return Ok(reloaded);
        }
        // A file that could not grow is not to be as large at the next start, either.
        if !Difference::between(&now.config, &changed.wanted(file.as_ref())?).lines.is_empty() {
            return Ok(reloaded);
        }
        if let (Some(before), Some(after)) = (&file, &changed.file) {
            let path = before.path().display();
            match after.replace(before) {
                Ok(()) => reloaded.notes.push(format!("{path} is updated, too")),
                Err(error) => reloaded.failed.push(format!(
                    "it is served so, but {path} could not be written ({error}): make the change there before the next \
                     start or reload"
                )),
            }
        }
        now.desired = changed.desired;
        Ok(reloaded)
    }

    /// The volume of which this change cuts off a part, if its hosts may lose it.
    fn volume_to_cut(
        &self,
        volume: &VolumeName,
        change: &Change,
        options: ReloadOptions,
    ) -> Result<Option<Weak<::volume::Volume>>, Failure> {
        let now = self.now();
        let (file, changed) = now.changed(change)?;
        let wanted = changed.wanted(file.as_ref())?;
        let difference = Difference::between(&now.config, &wanted);
        refuse_losses(&self.losses(&now, &wanted, &difference), options)?;
        let is_cut = difference.shrunk.iter().any(|(name, ..)| name == volume);
        let opened = now.volumes.get(volume).filter(|_| is_cut);
        Ok(opened.map(|opened| Arc::downgrade(opened.unit.volume())))
    }

    /// What is served.
    pub fn volumes(&self) -> Vec<Volume> {
        let now = self.now();
        let served = now.config.volumes.iter().filter_map(|volume| {
            let unit = &now.volumes.get(&volume.name)?.unit;
            let (geometry, identity) = (unit.volume().device().geometry(), unit.identity());
            let [naa, _] = identity.names();
            Some(Volume {
                name: volume.name.to_string(),
                spec: volume.spec.to_string(),
                bytes: geometry.bytes(),
                block_bytes: geometry.block_size.bytes(),
                naa: naa.to_string(),
                serial: identity.serial(),
                luns: now
                    .config
                    .front_ends()
                    .flat_map(|front_end| front_end.exports_of(&volume.name))
                    .collect(),
                in_file: !now.desired.has_volume(&volume.name),
                raid: now.volumes.get(&volume.name)?.sets().iter().map(|set| set.status()).collect(),
            })
        });
        served.collect()
    }
}

impl Now {
    /// The configuration file, and the configuration with this change in it.
    fn changed(&self, change: &Change) -> Result<(Option<ConfigFile>, Changed), Failure> {
        let file = self.desired.file()?;
        self.check_served(file.as_ref())?;
        let changed = Changed::by(change, &self.desired, file.as_ref()).map_err(Failure::refused)?;
        if let Change::Resize { volume, bytes, shrink, .. } = change {
            let difference = Difference::between(&self.config, &changed.wanted(file.as_ref())?);
            let served = self.config.volumes.iter().find(|served| served.name == *volume);
            let is_of_file = served.is_some_and(|served| raid::file_of(&served.spec).is_some());
            if !(*shrink && is_of_file && difference.shrunk.iter().any(|(name, ..)| name == volume)) {
                check_growth(volume, Bytes(*bytes), &difference)?;
            }
        }
        Ok((file, changed))
    }
}

impl Changed {
    fn wanted(&self, file: Option<&ConfigFile>) -> Result<Config, Failure> {
        self.desired.safe_config_with(self.file.as_ref().or(file))
    }

    fn by(change: &Change, desired: &Desired, file: Option<&ConfigFile>) -> Result<Changed, String> {
        let (Change::Add { volume, .. } | Change::Remove { volume } | Change::Resize { volume, .. }) = change;
        let on_command_line = |desired| {
            let mut lasts =
                format!("this lasts until the server ends: volume {volume} is not in its configuration file");
            if matches!(change, Change::Resize { .. }) {
                lasts += "; write the new size on its command line, because a start refuses a smaller one";
            }
            Changed { desired, file: None, lasts: Some(lasts) }
        };
        let in_file = |file| Changed { desired: desired.clone(), file: Some(file), lasts: None };
        match (change, desired.has_volume(volume), file) {
            (Change::Add { .. }, true, _) => Err(format!("there is a volume {volume} already")),
            (Change::Add { spec, front_end, target, lun, initiators, keys, .. }, false, Some(file)) => {
                let (spec, target) = (read(spec)?.to_string(), target.as_deref());
                let kind = desired.front_ends.named(front_end.as_deref())?;
                file.with_volume(&Addition { volume, spec: &spec, target, lun: *lun, initiators, keys }, kind)
                    .map(in_file)
            }
            (Change::Add { spec, front_end, target, lun, initiators, keys, .. }, false, None) => {
                if front_end.is_some()
                    || target.is_some()
                    || lun.is_some()
                    || !(initiators.is_empty() && keys.is_empty())
                {
                    return Err(
                        "this server has no configuration file, and without one each volume is LUN 0 \
                         of a target of its own, for anybody; give it a file by `serve --config` for \
                         anything else"
                            .to_owned(),
                    );
                }
                let lasts = "this lasts until the server ends: it has no configuration file".to_owned();
                let desired = desired.with_volume(volume, &read(spec)?);
                Ok(Changed { desired, file: None, lasts: Some(lasts) })
            }
            (Change::Remove { .. }, true, _) => Ok(on_command_line(desired.without_volume(volume))),
            (Change::Resize { bytes, .. }, true, _) => {
                desired.with_size(volume, Bytes(*bytes)).map(on_command_line)
            }
            (Change::Remove { .. }, false, Some(file)) => file.without_volume(volume).map(in_file),
            (Change::Resize { bytes, .. }, false, Some(file)) => {
                file.with_size(volume, Bytes(*bytes)).map(in_file)
            }
            (Change::Remove { .. } | Change::Resize { .. }, false, None) => {
                Err(format!("there is no volume {volume}"))
            }
        }
    }
}

/// Parses a specification whose paths are absolute, so that it means the same to the server as to the client.
pub(crate) fn read(spec: &str) -> Result<Spec, String> {
    let spec = backends::parse(spec).map_err(|error| error.to_string())?;
    match relative(&spec) {
        None => Ok(spec),
        Some(path) => Err(format!(
            "{path}: the server has a working directory of its own; write the whole path, such as \
             file:/data/{path}"
        )),
    }
}

/// A file in it that is not named by its whole path.
fn relative(spec: &Spec) -> Option<String> {
    let own = spec.backend.path().filter(|path| path.is_relative());
    own.map(|path| path.display().to_string()).or_else(|| spec.backend.members().iter().find_map(relative))
}

/// Refuses a change of the volume other than growth.
fn check_growth(name: &VolumeName, size: Bytes, difference: &Difference) -> Result<(), Failure> {
    let grows = difference.grown.iter().any(|(grown, _)| grown == name);
    match grows || difference.lines.is_empty() {
        true => Ok(()),
        false => Err(Failure::refused(format!(
            "volume {name} cannot become {size} while it is served: only volumes of files can be resized, to a larger \
             number of whole blocks, or with --shrink to a smaller one"
        ))),
    }
}
