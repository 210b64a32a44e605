//! Requests on the control socket of a running server, and their replies.
//!
//! To add, remove or resize one volume, the server edits the configuration, applies it, and only then writes
//! it to the file. After an order to a RAID set, the set's new specification is written to the configuration
//! file.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use backends::layers::LayerStates;
use backends::raid::{Order, PendingOrder, Running, without_overruling};
use backends::{Failure, parse};
use front_end_core::AUDIT;
use volume::spec::{Bytes, Spec};

use crate::config::file::ConfigFile;
use crate::config::values::VolumeName;
use crate::config::{Addition, Config, Volume};
use crate::control::{self, Change, ControlReply, ControlRequest, FaultMode, RaidOrder};
use crate::difference::Difference;
use crate::live::{Live, LiveState, ReloadOptions, Reloaded, refuse_losses};
use crate::shrink;
use crate::start_options::StartOptions;
use crate::waiting::{CLOSE_TIME, block_on};

impl Live {
    /// Handles one request. Blocks for up to one second, unless it changes the configuration. `by` names the
    /// requester for the audit log.
    pub fn answer(&self, request: &ControlRequest, by: &str) -> ControlReply {
        match request {
            ControlRequest::Sessions => ControlReply::Sessions {
                sessions: self.sessions(),
            },
            ControlRequest::Targets => ControlReply::Targets {
                targets: self.targets(),
            },
            ControlRequest::Drop { sessions, force } => {
                match self.drop_sessions(sessions, *force) {
                    Ok(0) => ControlReply::Refused {
                        reason: format!("no session has the TSIH or initiator name {sessions}"),
                    },
                    Ok(sessions) => ControlReply::Dropped { sessions },
                    Err(reason) => ControlReply::Refused { reason },
                }
            }
            ControlRequest::Volumes => ControlReply::Volumes {
                volumes: self.volumes(),
            },
            ControlRequest::Metrics => ControlReply::Metrics {
                text: self.metrics(),
            },
            ControlRequest::Usage => ControlReply::Usage { text: self.usage() },
            ControlRequest::Reload { dry_run, force } => reloaded(self.reload(
                ReloadOptions {
                    dry_run: *dry_run,
                    force: *force,
                },
                by,
            )),
            ControlRequest::Change {
                change,
                dry_run,
                force,
            } => reloaded(self.change(
                change,
                ReloadOptions {
                    dry_run: *dry_run,
                    force: *force,
                },
                by,
            )),
            ControlRequest::Raid { volume, set, order } => {
                reloaded(self.raid(volume, *set, order, by))
            }
            ControlRequest::Fault { volume, mode } => switch(self, volume, *mode, by),
            ControlRequest::Events => ControlReply::Refused {
                reason: "events are sent on the control socket, or by Live::events".to_owned(),
            },
        }
    }
}

fn reloaded(outcome: Result<Reloaded, Failure>) -> ControlReply {
    match outcome {
        Ok(Reloaded {
            changes,
            notes,
            failed,
        }) => ControlReply::Reloaded {
            changes,
            notes,
            failed,
        },
        Err(failure) => ControlReply::Refused {
            reason: failure.to_string(),
        },
    }
}

fn switch(live: &Live, name: &str, mode: FaultMode, by: &str) -> ControlReply {
    let switched = live
        .now()
        .volumes
        .named(name)
        .map(|volume| volume.switch(mode));
    let reason = match switched {
        Some(true) => {
            tracing::info!(target: AUDIT, by, volume = name, ?mode, "fault");
            return ControlReply::Done;
        }
        Some(false) => {
            format!("volume {name} has no fault: layer; to inject faults, use fault:[…]")
        }
        None => format!("no volume named {name} is served"),
    };
    ControlReply::Refused { reason }
}

/// A new text of the configuration file.
#[derive(Clone, Copy)]
struct Rewrite<'a> {
    before: &'a ConfigFile,
    after: &'a ConfigFile,
}

impl Rewrite<'_> {
    fn write(self) -> io::Result<()> {
        self.after.replace(self.before)
    }

    /// Restores the former text, because the change that was written is not in effect. If this fails, adds the
    /// error to the outcome of the change.
    fn take_back(self, served: Result<Reloaded, Failure>) -> Result<Reloaded, Failure> {
        let Err(error) = self.before.replace(self.after) else {
            return served;
        };
        let why = format!(
            "{} still contains the change, because its former text could not be restored ({error}): undo the \
             change there before the next start or reload",
            self.before.path().display()
        );
        match served {
            Ok(mut reloaded) => {
                reloaded.failed.push(why);
                Ok(reloaded)
            }
            Err(failure) => Err(failure.and(why)),
        }
    }
}

/// A changed configuration.
struct Changed {
    start_options: StartOptions,
    file: Option<ConfigFile>,
    /// A note on the duration of the change, if it is not written to the file.
    lasts: Option<String>,
}

impl Live {
    /// Applies a change to the running server and to the configuration file. `by` names the requester for the
    /// audit log.
    ///
    /// # Errors
    /// The reason for the failure; in this case nothing has changed.
    pub fn change(
        &self,
        change: &Change,
        options: ReloadOptions,
        by: &str,
    ) -> Result<Reloaded, Failure> {
        self.noted(options, by, || self.change_unnoted(change, options))
    }

    fn change_unnoted(&self, change: &Change, options: ReloadOptions) -> Result<Reloaded, Failure> {
        if let Change::Resize {
            volume,
            bytes,
            shrink: true,
            discard_data: false,
        } = change
            && !options.dry_run
            && let Some(served) = self.volume_to_cut(volume, change, options)?
            && let Some(device) = served.upgrade().map(|served| Arc::clone(served.device()))
        {
            // Check for data first, so that hosts do not lose the volume because of an order that is then
            // refused. Other orders do not wait for this check.
            block_on(shrink::check_served(volume, device, &served, Bytes(*bytes)))?;
        }
        let plan = |now: &LiveState| {
            let (file, changed) = now.changed(change)?;
            Ok((changed.wanted(file.as_ref())?, (file, changed)))
        };
        let (mut now, wanted, (file, changed)) = self.lock_for(options, plan)?;
        let files = file
            .as_ref()
            .zip(changed.file.as_ref())
            .filter(|_| !options.dry_run);
        let files = files.map(|(before, after)| Rewrite { before, after });
        let asked = changed.wanted(file.as_ref())?;
        // Write a larger size to the file before the volume grows. If the server is killed in between, its next
        // start grows the volume. In the other order, the start would refuse to shrink the volume.
        let is_growth = matches!(change, Change::Resize { shrink: false, .. });
        let early = files.filter(|_| is_growth).map(|files| files.write());
        let served = self.serve(&mut now, wanted, options, Some(change));
        let is_in_effect =
            served.is_ok() && Difference::between(&now.config, &asked).lines.is_empty();
        let mut reloaded = match (files, &early) {
            // If a file could not grow, the configuration must not specify the new size at the next start either.
            (Some(files), Some(Ok(()))) if !is_in_effect => files.take_back(served)?,
            _ => served?,
        };
        reloaded.notes.extend(changed.lasts.clone());
        if options.dry_run || !is_in_effect {
            return Ok(reloaded);
        }
        if let Some(files) = files {
            let path = files.before.path().display();
            match early.unwrap_or_else(|| files.write()) {
                Ok(()) => reloaded.notes.push(format!("{path} was also updated")),
                Err(error) => reloaded.failed.push(format!(
                    "the change is in effect, but {path} could not be written ({error}): make the change there \
                     before the next start or reload"
                )),
            }
        }
        now.start_options = changed.start_options;
        Ok(reloaded)
    }

    /// Returns the volume that this change shrinks, if the change is forced.
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

    /// The volumes being served.
    pub fn volumes(&self) -> Vec<control::Volume> {
        let now = self.now();
        let served = now.config.volumes.iter().filter_map(|volume| {
            let opened = now.volumes.get(&volume.name)?;
            let unit = &opened.unit;
            let (geometry, identity) = (unit.volume().device().geometry(), unit.identity());
            let [naa, _] = identity.names();
            Some(control::Volume {
                name: volume.name.to_string(),
                spec: volume.spec.to_string(),
                bytes: geometry.bytes(),
                block_bytes: geometry.block_size.bytes(),
                naa: naa.to_string(),
                serial: identity.serial(),
                luns: now.config.exports_of(&volume.name),
                in_file: !now.start_options.has_volume(&volume.name),
                layers: LayerStates::of(&opened.layers),
            })
        });
        served.collect()
    }
}

impl LiveState {
    /// Returns the configuration file, and the configuration with this change.
    fn changed(&self, change: &Change) -> Result<(Option<ConfigFile>, Changed), Failure> {
        let file = self.start_options.file()?;
        self.check_served(file.as_ref())?;
        let changed =
            Changed::by(change, &self.start_options, file.as_ref()).map_err(Failure::refused)?;
        if let Change::Resize {
            volume,
            bytes,
            shrink,
            ..
        } = change
        {
            let difference = Difference::between(&self.config, &changed.wanted(file.as_ref())?);
            let served = self
                .config
                .volumes
                .iter()
                .find(|served| served.name == *volume);
            let is_of_file = served.is_some_and(|served| served.spec.file().is_some());
            if !(*shrink && is_of_file && difference.shrunk.iter().any(|(name, ..)| name == volume))
            {
                check_growth(volume, Bytes(*bytes), &difference)?;
            }
        }
        Ok((file, changed))
    }
}

impl Changed {
    fn wanted(&self, file: Option<&ConfigFile>) -> Result<Config, Failure> {
        self.start_options
            .safe_config_with(self.file.as_ref().or(file))
    }

    fn by(
        change: &Change,
        start_options: &StartOptions,
        file: Option<&ConfigFile>,
    ) -> Result<Changed, String> {
        let (Change::Add { volume, .. }
        | Change::Remove { volume }
        | Change::Resize { volume, .. }) = change;
        let on_command_line = |start_options| {
            let mut lasts = format!(
                "this is lost at a restart: volume {volume} is not in the configuration file"
            );
            if matches!(change, Change::Resize { .. }) {
                lasts += "; set the new size on the command line: a start with a smaller size is refused";
            }
            Changed {
                start_options,
                file: None,
                lasts: Some(lasts),
            }
        };
        let in_file = |file| Changed {
            start_options: start_options.clone(),
            file: Some(file),
            lasts: None,
        };
        match (change, start_options.has_volume(volume), file) {
            (Change::Add { .. }, true, _) => Err(format!("volume {volume} already exists")),
            (
                Change::Add {
                    spec,
                    front_end,
                    target,
                    lun,
                    initiators,
                    keys,
                    ..
                },
                false,
                Some(file),
            ) => {
                let (spec, target) = (read(spec)?.to_string(), target.as_deref());
                let kind = start_options.front_ends.named(front_end.as_deref())?;
                file.with_volume(
                    &Addition {
                        volume,
                        spec: &spec,
                        target,
                        lun: *lun,
                        initiators,
                        keys,
                    },
                    kind,
                )
                .map(in_file)
            }
            (
                Change::Add {
                    spec,
                    front_end,
                    target,
                    lun,
                    initiators,
                    keys,
                    ..
                },
                false,
                None,
            ) => {
                if front_end.is_some()
                    || target.is_some()
                    || lun.is_some()
                    || !(initiators.is_empty() && keys.is_empty())
                {
                    return Err(
                        "this server has no configuration file, so each volume is LUN 0 of a separate target \
                         without access control; for anything else, use a configuration file \
                         (`serve --config`)"
                            .to_owned(),
                    );
                }
                let lasts =
                    "this is lost at a restart: the server has no configuration file".to_owned();
                let start_options = start_options.with_volume(volume, &read(spec)?);
                Ok(Changed {
                    start_options,
                    file: None,
                    lasts: Some(lasts),
                })
            }
            (Change::Remove { .. }, true, None) if start_options.volumes.len() == 1 => {
                Err(format!(
                    "{volume} is the last volume; a server without a configuration file needs one"
                ))
            }
            (Change::Remove { .. }, true, _) => {
                Ok(on_command_line(start_options.without_volume(volume)))
            }
            (Change::Resize { bytes, .. }, true, _) => start_options
                .with_size(volume, Bytes(*bytes))
                .map(on_command_line),
            (Change::Remove { .. }, false, Some(file)) => file.without_volume(volume).map(in_file),
            (Change::Resize { bytes, .. }, false, Some(file)) => {
                file.with_size(volume, Bytes(*bytes)).map(in_file)
            }
            (Change::Remove { .. } | Change::Resize { .. }, false, None) => {
                Err(format!("volume {volume} does not exist"))
            }
        }
    }
}

/// Parses a specification. Its paths must be absolute, so that it means the same to the server as to the
/// client.
pub(crate) fn read(spec: &str) -> Result<Spec, String> {
    let spec = backends::parse(spec).map_err(|error| error.to_string())?;
    match relative(&spec) {
        None => Ok(spec),
        Some(path) => Err(format!(
            "{path} is a relative path, but the server's working directory differs; use an absolute path, \
             such as file:/data/{path}"
        )),
    }
}

/// Returns a file in the specification whose path is not absolute.
fn relative(spec: &Spec) -> Option<String> {
    let own = spec.backend.path().filter(|path| path.is_relative());
    own.map(|path| path.display().to_string())
        .or_else(|| spec.backend.members().iter().find_map(relative))
}

/// Returns an error if the change to the volume is not growth.
fn check_growth(name: &VolumeName, size: Bytes, difference: &Difference) -> Result<(), Failure> {
    let grows = difference.grown.iter().any(|(grown, _)| grown == name);
    match grows || difference.lines.is_empty() {
        true => Ok(()),
        false => Err(Failure::refused(format!(
            "volume {name} cannot be resized to {size} while it is served: only file volumes can be resized, \
             to a larger number of whole blocks, or, with --shrink, to a smaller number"
        ))),
    }
}

/// A set that takes longer than this to respond counts as unresponsive. This is less than the timeout of the
/// control socket's client.
const ANSWER_TIME: Duration = Duration::from_secs(240);

impl Live {
    /// Sends an order to a RAID set of a volume, and writes the set's new specification to the configuration
    /// file. `by` names the requester for the audit log.
    ///
    /// # Errors
    /// The order was not executed, or is not complete.
    pub fn raid(
        &self,
        volume: &str,
        set: Option<usize>,
        order: &RaidOrder,
        by: &str,
    ) -> Result<Reloaded, Failure> {
        let outcome = self.raid_unnoted(volume, set, order, ANSWER_TIME);
        let order = serde_json::to_string(order).unwrap_or_default();
        match &outcome {
            Ok(Reloaded { failed, .. }) => {
                tracing::info!(target: AUDIT, by, volume, order, "raid");
                failed
                    .iter()
                    .for_each(|why| tracing::error!(target: AUDIT, by, volume, why, "not changed"));
            }
            Err(why) => tracing::error!(target: AUDIT, by, volume, order, %why, "raid refused"),
        }
        outcome
    }

    /// [`Live::raid`] without a line in the audit log. If the order takes longer than `answer_time`, this
    /// returns, and the order continues.
    pub(crate) fn raid_unnoted(
        &self,
        volume: &str,
        set: Option<usize>,
        order: &RaidOrder,
        answer_time: Duration,
    ) -> Result<Reloaded, Failure> {
        let order = order_of(order).map_err(Failure::refused)?;
        let is_assembly = matches!(order, Order::Assemble);
        let mut now = self.now();
        // Wait for earlier orders to the volume, because each order changes the specification that the
        // previous one has written.
        while !is_assembly && now.ordered.iter().any(|name| name.as_str() == volume) {
            now = self.order_ended(now);
        }
        let opened = now
            .volumes
            .named(volume)
            .ok_or_else(|| Failure::refused(format_args!("no volume named {volume} is served")))?;
        let set = match (&opened.sets()[..], set) {
            ([], _) => {
                return Err(Failure::refused(format_args!(
                    "volume {volume} is not a RAID set"
                )));
            }
            ([only], None) => Arc::clone(only),
            (sets, Some(number)) if number < sets.len() => Arc::clone(&sets[number]),
            (sets, _) => {
                return Err(Failure::refused(format_args!(
                    "volume {volume} consists of {} RAID sets: name one, {volume}/0 to {volume}/{}",
                    sets.len(),
                    sets.len() - 1
                )));
            }
        };
        if !is_assembly {
            now.check_served(now.start_options.file()?.as_ref())?;
        }
        let claim = (!is_assembly).then(|| Claim::new(self, &mut now, volume));
        // Release the lock: the order may wait for members, and reloads and orders to other volumes must not
        // wait for it.
        drop(now);
        let mut pending = set.order(order)?;
        let answer = match block_on(async { reactor::timeout(answer_time, &mut pending).await }) {
            Ok(answer) => answer?,
            Err(_) if pending.withdraw() => {
                return Err(Failure::failed(format_args!(
                    "the set of volume {volume} is unresponsive; the operation was withdrawn; see the log"
                )));
            }
            Err(_) => {
                self.write_down_later(volume, set, pending)?;
                return Err(Failure::failed(format_args!(
                    "the set of volume {volume} is unresponsive; the operation continues, and its outcome \
                     will be logged"
                )));
            }
        };
        let mut reloaded = Reloaded {
            changes: vec![answer],
            ..Reloaded::default()
        };
        let mut now = self.now();
        debug_assert!(
            claim
                .as_ref()
                .is_none_or(|claim| now.ordered.contains(&claim.volume)),
            "the claim lasts until the outcome is written down"
        );
        debug_assert!(
            claim
                .as_ref()
                .is_none_or(|claim| now.volumes.get(&claim.volume).is_some()),
            "a claimed volume is not taken away"
        );
        now.write_down(&set, &mut reloaded);
        // Release the lock before the claim is dropped, because dropping the claim takes the lock again.
        drop(now);
        Ok(reloaded)
    }

    /// Waits on a separate thread for an order whose requester has stopped waiting, and records its outcome.
    /// The claim on the volume has been released, so that an order to remove the unresponsive member need not
    /// wait for this one.
    fn write_down_later(
        &self,
        volume: &str,
        set: Arc<Running>,
        pending: PendingOrder,
    ) -> Result<(), Failure> {
        let (live, volume) = (Weak::clone(&self.me), volume.to_owned());
        let wait = move || {
            let outcome = block_on(pending);
            let Some(live) = live.upgrade() else { return };
            let mut reloaded = Reloaded::default();
            live.now().write_down(&set, &mut reloaded);
            match outcome {
                Ok(answer) => tracing::info!(target: AUDIT, volume, answer, "late raid order"),
                Err(why) => tracing::error!(target: AUDIT, volume, %why, "late raid order failed"),
            }
            reloaded
                .notes
                .iter()
                .for_each(|note| tracing::info!(target: AUDIT, volume, note, "changed"));
            reloaded
                .failed
                .iter()
                .for_each(|why| tracing::error!(target: AUDIT, volume, why, "not changed"));
        };
        let spawned = thread::Builder::new()
            .name("raid-order".to_owned())
            .spawn(wait);
        spawned.map(drop).map_err(Failure::failed)
    }
}

/// A volume with an order to one of its RAID sets. Until this claim is dropped, other orders to the volume's
/// sets wait, and so do configuration changes that concern the volume ([`Live::lock_for`]).
struct Claim<'a> {
    live: &'a Live,
    volume: VolumeName,
}

impl Claim<'_> {
    fn new<'a>(live: &'a Live, now: &mut LiveState, volume: &str) -> Claim<'a> {
        let volume: VolumeName = volume.parse().expect("a volume of this name is served");
        debug_assert!(!now.ordered.contains(&volume), "one order at a time");
        now.ordered.push(volume.clone());
        Claim { live, volume }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut now = self.live.now();
        debug_assert!(
            now.ordered.contains(&self.volume),
            "an order is claimed until this is dropped"
        );
        now.ordered.retain(|volume| *volume != self.volume);
        drop(now);
        self.live.orders.notify_all();
    }
}

impl Live {
    /// Closes all RAID sets, which have no more users. A set that does not respond is resynchronised at the
    /// next start.
    pub(crate) fn close_sets(&self) {
        // The probe has its own lock. The lock of the configuration may be held for a long time by a change.
        let sets = self.probe().sets();
        let close = async {
            for set in sets {
                if let Err(failure) = set.close().await {
                    tracing::warn!("a RAID set was not closed: {failure}");
                }
            }
        };
        let closed = block_on(async { reactor::timeout(CLOSE_TIME, close).await });
        if closed.is_err() {
            tracing::warn!("RAID sets were not closed: they are unresponsive");
        }
    }
}

impl LiveState {
    /// Records the new specification of a set, if orders have changed it and the set is in use.
    fn write_down(&mut self, set: &Arc<Running>, reloaded: &mut Reloaded) {
        let Some(volume) = self.volumes.of_set(set) else {
            return;
        };
        let named = |known: &Volume| known.name == *volume;
        let Some(at) = self.config.volumes.iter().position(named) else {
            return;
        };
        let Some([before, after]) = set.rewritten() else {
            return;
        };
        let rewritten = |spec: &Spec| {
            let text = spec.to_string();
            match text.contains(&before) {
                true => parse(&without_overruling(&text.replacen(&before, &after, 1)))
                    .map_err(|error| error.to_string()),
                false => Err("the specification of the set in the file differs".to_owned()),
            }
        };
        let outcome = rewritten(&self.config.volumes[at].spec).and_then(|spec| {
            let name = self.config.volumes[at].name.clone();
            self.config.volumes[at].spec = spec.clone();
            self.volumes.describe(&self.config);
            self.written(&name, &spec, &rewritten)
        });
        match outcome {
            Ok(note) => reloaded.notes.push(note),
            Err(why) => reloaded.failed.push(format!(
                "the operation succeeded, but the configuration could not be updated ({why}): in the \
                 configuration, replace {before} by {after}"
            )),
        }
    }

    /// Writes the change to the configuration file, if there is one, and adds a note on the duration of the change.
    fn written(
        &mut self,
        name: &VolumeName,
        spec: &Spec,
        rewritten: &dyn Fn(&Spec) -> Result<Spec, String>,
    ) -> Result<String, String> {
        if self.start_options.has_volume(name) {
            self.start_options = self.start_options.with_spec(name, spec);
            return Ok(format!(
                "volume {name} is not in a configuration file: next time, start the server with --volume '{name}={spec}'"
            ));
        }
        let file = self
            .start_options
            .file()
            .map_err(|failure| failure.to_string())?;
        let file = file.ok_or("the server has no configuration file")?;
        let other = |text: &str| {
            let spec = parse(text).map_err(|error| error.to_string())?;
            rewritten(&spec).map(|spec| spec.to_string())
        };
        let changed = file.with_spec(name, other)?;
        changed.replace(&file).map_err(|error| error.to_string())?;
        Ok(format!("{} was also updated", file.path().display()))
    }
}

fn order_of(order: &RaidOrder) -> Result<Order, String> {
    Ok(match order {
        RaidOrder::Fail { member } => Order::Fail { member: *member },
        RaidOrder::Replace {
            member,
            with,
            overwrite,
        } => Order::Replace {
            member: *member,
            with: read(with)?,
            overwrites: *overwrite,
        },
        RaidOrder::Add { spare, overwrite } => Order::Add {
            spare: read(spare)?,
            overwrites: *overwrite,
        },
        RaidOrder::Scrub { repair } => Order::Scrub { repairs: *repair },
        RaidOrder::CancelScrub => Order::CancelScrub,
        RaidOrder::Grow => Order::Grow,
        RaidOrder::Assemble => Order::Assemble,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FrontEnds;

    #[test]
    fn a_change_that_is_neither_made_nor_taken_back_names_both_errors() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("linerate.toml");
        std::fs::write(&path, "[volume.v]\nspec = \"file:/v.img?size=1MiB\"\n").expect("written");
        let before = ConfigFile::read(&path, FrontEnds(&[])).expect("a file");
        let after = before
            .with_size(&"v".parse().expect("a name"), Bytes(2 << 20))
            .expect("a size");
        let files = Rewrite {
            before: &before,
            after: &after,
        };
        let not_grown = || Reloaded {
            failed: vec!["cannot grow".to_owned()],
            ..Reloaded::default()
        };
        files.write().expect("written");
        assert_eq!(
            files.take_back(Ok(not_grown())).expect("an outcome").failed,
            ["cannot grow"]
        );
        assert!(
            std::fs::read_to_string(&path)
                .expect("a file")
                .contains("size=1MiB"),
            "taken back"
        );

        files.write().expect("written");
        std::fs::write(&path, "# another program's\n").expect("written");
        let failed = files
            .take_back(Ok(not_grown()))
            .expect("an outcome")
            .failed
            .join("; ");
        let refused = files
            .take_back(Err(Failure::failed("cannot grow")))
            .expect_err("both")
            .to_string();
        for told in [failed, refused] {
            testkit::says(&told, &["cannot grow; ", "linerate.toml still contains"]);
        }
        assert_eq!(
            std::fs::read_to_string(&path).expect("a file"),
            "# another program's\n"
        );
    }
}
