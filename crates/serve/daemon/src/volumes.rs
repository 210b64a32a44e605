//! The volumes of a server: opens their devices, and creates logical units with their stored identities.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use backends::Failure;
use backends::raid::{self, Running};
use block::{BlockDevice, DeviceError, FaultControl};
use logical_unit::{Identity, LogicalUnit, LogicalUnitOptions};
use volume::backend::{Creation, Layers, Opening, Undo};
use volume::spec::{Bytes, Spec};
use volume::{PersistentState, VolumeOptions};

use crate::config::values::VolumeName;
use crate::config::{Config, Units, Volume};
use crate::control::FaultMode;
use crate::identity::{self, Known, Mark};
use crate::state::{Kept, ServerState, UnitState};
use crate::waiting::{Openers, at_once, block_on};

/// The open volumes of a server, by name.
#[derive(Default)]
pub(crate) struct Volumes(HashMap<VolumeName, Opened>);

/// A volume in use.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) unit: Arc<LogicalUnit>,
    /// The specification with which the volume was opened, for display.
    pub(crate) spec: String,
    /// The layers of the volume that accept orders.
    pub(crate) layers: Layers,
    pub(crate) kept: Arc<UnitState>,
    /// The file that was just created for the volume.
    created: Option<PathBuf>,
    /// A note if the data may not belong to the identity of the volume.
    moved: Option<String>,
    /// Controls the volume's `fault:` layers, if it has any.
    pub(crate) faults: Option<FaultControl>,
}

impl Volumes {
    pub(crate) fn get(&self, name: &VolumeName) -> Option<&Opened> {
        self.0.get(name)
    }

    /// Returns a copy without these volumes.
    pub(crate) fn all_but(&self, names: &[VolumeName]) -> Volumes {
        let others = self.0.iter().filter(|(name, _)| !names.contains(name));
        Volumes(
            others
                .map(|(name, opened)| (name.clone(), opened.clone()))
                .collect(),
        )
    }

    /// Checks that initiators can distinguish all of these volumes and `others` by their designators. The
    /// configuration already ensures this for specified names; other names derive from a stored UUID.
    pub(crate) fn are_distinct_from(&self, others: &Volumes) -> Result<(), Failure> {
        debug_assert!(
            others.0.keys().all(|name| !self.0.contains_key(name)),
            "no volume is its own twin"
        );
        let mut taken = HashMap::new();
        for (name, opened) in self.0.iter().chain(&others.0) {
            for designator in opened.unit.identity().names() {
                if let Some(twin) = taken.insert(designator.designator(), name) {
                    let (one, other) = (name.min(twin), name.max(twin));
                    return Err(Failure::refused(format!(
                        "volumes {one} and {other} have the same designator, {designator}, so initiators \
                         would treat them as one disk; change or remove `naa` or `t10-id` of one of them"
                    )));
                }
            }
        }
        Ok(())
    }

    /// The units that front ends serve, by name.
    pub(crate) fn units(&self) -> Units {
        self.0
            .iter()
            .map(|(name, opened)| (name.clone(), Arc::clone(&opened.unit)))
            .collect()
    }

    pub(crate) fn take(&mut self, name: &VolumeName) -> Option<(VolumeName, Opened)> {
        self.0.remove_entry(name)
    }

    pub(crate) fn adopt(&mut self, others: Volumes) {
        debug_assert!(
            others.0.keys().all(|name| !self.0.contains_key(name)),
            "no volume takes another's place"
        );
        self.0.extend(others.0);
    }

    /// Renames volumes, given as pairs of old and new names. All are renamed together, so that two volumes
    /// may exchange their names.
    pub(crate) fn rename(&mut self, renamed: &[(VolumeName, VolumeName)]) {
        let taken: Vec<_> = renamed
            .iter()
            .filter_map(|(from, to)| Some((to.clone(), self.0.remove(from)?)))
            .collect();
        debug_assert_eq!(taken.len(), renamed.len(), "a renamed volume is served");
        taken
            .iter()
            .for_each(|(name, opened)| opened.name_sets(name));
        self.0.extend(taken);
    }

    /// Updates the displayed specifications from the configuration.
    pub(crate) fn describe(&mut self, config: &Config) {
        for volume in &config.volumes {
            if let Some(opened) = self.0.get_mut(&volume.name) {
                opened.spec = volume.spec.to_string();
            }
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Opened> {
        self.0.values()
    }

    /// Returns the volume with this RAID set.
    pub(crate) fn of_set(&self, set: &Arc<Running>) -> Option<&VolumeName> {
        let has_set = |opened: &Opened| opened.sets().iter().any(|known| Arc::ptr_eq(known, set));
        self.0
            .iter()
            .find(|(_, opened)| has_set(opened))
            .map(|(name, _)| name)
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Opened> {
        self.0
            .iter()
            .find(|(known, _)| known.as_str() == name)
            .map(|(_, opened)| opened)
    }
}

impl Opened {
    /// The RAID sets of the volume, starting with the outermost.
    pub(crate) fn sets(&self) -> Vec<Arc<Running>> {
        raid::sets(&self.layers)
    }

    /// Sets the log names of the volume's RAID sets. A single set has the name of the volume; the names of
    /// several sets also contain numbers.
    fn name_sets(&self, name: &VolumeName) {
        let sets = self.sets();
        for (number, set) in sets.iter().enumerate() {
            let number = if sets.len() > 1 {
                format!("/{number}")
            } else {
                String::new()
            };
            set.called(&format!("{name}{number}"));
        }
    }

    /// A note if the data may not belong to the identity of the volume.
    pub(crate) fn moved(&self) -> Option<&String> {
        self.moved.as_ref()
    }

    /// Returns a note if the volume's file has just been created, although hosts know the volume as a disk
    /// with data.
    pub(crate) fn of_created_file(&self, name: &VolumeName) -> Option<String> {
        let path = self.created.as_ref()?;
        Some(format!(
            "{} is new and empty, but hosts would treat it as the volume {name} that was served before",
            path.display()
        ))
    }

    /// Switches the volume's `fault:` layers to `mode`. Returns false if it has none.
    pub(crate) fn switch(&self, mode: FaultMode) -> bool {
        if let Some(faults) = &self.faults {
            match mode {
                FaultMode::Pass => faults.pass(),
                FaultMode::Hang => faults.hang(),
                FaultMode::Fail => faults.fail(DeviceError::NotReady),
                FaultMode::Lose => faults.lose(),
                FaultMode::Slow(time) => faults.slow(time),
            }
        }
        self.faults.is_some()
    }
}

/// Opens every exported volume, for a starting server. If some fail, returns the first failure.
pub(crate) fn open(
    config: &Config,
    state: &ServerState,
    openers: &Openers,
    undo: &Undo,
) -> Result<Volumes, Failure> {
    let volumes = open_all(
        &config.volumes,
        config.exported(),
        state,
        openers,
        None,
        undo,
        Some(Instant::now()),
    )?;
    volumes.are_distinct_from(&Volumes::default())?;
    Ok(volumes)
}

/// Opens the volumes with these names. A file of a volume `added` by an order is created even if the volume
/// was served before.
pub(crate) fn open_these(
    volumes: &[Volume],
    names: &[VolumeName],
    state: &ServerState,
    openers: &Openers,
    added: Option<&VolumeName>,
    undo: &Undo,
) -> Result<Volumes, Failure> {
    let named = volumes.iter().filter(|volume| names.contains(&volume.name));
    open_all(volumes, named, state, openers, added, undo, None)
}

fn open_all<'a>(
    wanted: &[Volume],
    used: impl Iterator<Item = &'a Volume>,
    state: &ServerState,
    openers: &Openers,
    added: Option<&VolumeName>,
    undo: &Undo,
    start: Option<Instant>,
) -> Result<Volumes, Failure> {
    let known = Known::new(state.directory(), wanted);
    let opening = |volume: &Volume| -> Result<(Kept, Opening), Failure> {
        let kept = ServerState::kept_of(state.directory(), volume).map_err(Failure::refused)?;
        check_disk(volume, &kept, &known, Mark::of_file(&volume.spec).as_ref())?;
        kept.check_sizes(volume)
            .map_err(|failure| failure.context(format_args!("volume {}", volume.name)))?;
        let creation = match added == Some(&volume.name) {
            true => Creation::Free,
            false => kept.creation(volume),
        };
        Ok((
            kept,
            Opening {
                creation,
                start,
                undo: undo.clone(),
                ..backends::opening()
            },
        ))
    };
    // State under a previous name must be moved before a new volume of that name is opened, which would
    // otherwise use this state.
    let (renamed, others): (Vec<&Volume>, Vec<&Volume>) =
        used.partition(|volume| volume.previous_name.is_some());
    let remote = remotes(renamed.iter().chain(&others), openers, &opening)?;
    let open = |volume: &Volume| {
        let (kept, opening) = opening(volume)?;
        Ok((
            volume.name.clone(),
            open_one(volume, state, &kept, &known, &remote, &opening)?,
        ))
    };
    let renamed: Vec<_> = renamed.into_iter().map(open).collect();
    let others = at_once(&others, |volume| open(volume));
    renamed
        .into_iter()
        .chain(others)
        .collect::<Result<_, _>>()
        .map(Volumes)
}

/// [`identity::check`], with the volume's name in its error.
fn check_disk(
    volume: &Volume,
    kept: &Kept,
    known: &Known<'_>,
    mark: Option<&Mark>,
) -> Result<Option<String>, Failure> {
    let checked = identity::check(volume, kept, known, mark);
    checked.map_err(|failure| failure.context(format_args!("volume {}", volume.name)))
}

/// Checks that a volume can be served with this specification, before the hosts lose the volume. Returns a
/// note if only the administrator can decide whether the data belongs to the volume.
pub(crate) fn check_before(
    volume: &Volume,
    wanted: &[Volume],
    state: &ServerState,
) -> Result<Option<String>, Failure> {
    let kept = ServerState::kept_of(state.directory(), volume).map_err(Failure::refused)?;
    let mark = Mark::of_file(&volume.spec);
    check_disk(
        volume,
        &kept,
        &Known::new(state.directory(), wanted),
        mark.as_ref(),
    )
}

/// The devices of network volumes, with the controls of their `fault:` layers, and the layers that accept
/// orders.
type Remotes = HashMap<VolumeName, (Arc<dyn BlockDevice>, FaultControl, Layers)>;

fn remotes<'a>(
    volumes: impl Iterator<Item = &'a &'a Volume>,
    openers: &Openers,
    opening: &impl Fn(&Volume) -> Result<(Kept, Opening), Failure>,
) -> Result<Remotes, Failure> {
    let remote = volumes.filter(|volume| volume.spec.opens_later());
    let remote: Vec<(&Volume, Opening)> = remote
        .map(|volume| Ok((*volume, opening(volume)?.1)))
        .collect::<Result<_, Failure>>()?;
    let opened = remote
        .iter()
        .map(|(volume, opening)| (volume.spec.clone(), opening.clone()));
    let opened = openers.open(opened.collect());
    debug_assert_eq!(opened.len(), remote.len(), "an outcome for each");
    let named =
        remote
            .into_iter()
            .zip(opened)
            .map(|((volume, Opening { faults, layers, .. }), device)| {
                let device = device
                    .map_err(|failure| failure.context(format_args!("volume {}", volume.name)))?;
                Ok((volume.name.clone(), (device, faults, layers)))
            });
    named.collect()
}

fn open_one(
    volume: &Volume,
    state: &ServerState,
    before: &Kept,
    disks: &Known<'_>,
    remote: &Remotes,
    opening: &Opening,
) -> Result<Opened, Failure> {
    let refused =
        |why: &dyn std::fmt::Display| Failure::refused(format!("volume {}: {why}", volume.name));
    let folder = state
        .folder(volume, &opening.undo)
        .map_err(Failure::refused)?;
    let known = volume
        .uuid
        .map_or_else(|| folder.identity(), |uuid| Ok(Some(uuid)))
        .map_err(Failure::refused)?;
    let created = volume.spec.store().makes_file().map(Path::to_owned);
    let (device, control, layers) = match remote.get(&volume.name) {
        Some((device, control, layers)) => (Arc::clone(device), control.clone(), layers.clone()),
        None => (
            open_local(volume, before, opening)?,
            opening.faults.clone(),
            opening.layers.clone(),
        ),
    };
    let (mark, bytes) = (Mark::of(&volume.spec, &layers), device.geometry().bytes());
    let moved = check_disk(volume, before, disks, mark.as_ref())?;
    identity::log_note(volume, moved.as_ref());
    if volume.spec.keeps_data() {
        let length = before.check_length(volume, bytes);
        length.map_err(|failure| failure.context(format_args!("volume {}", volume.name)))?;
    }
    // The steps have this order so that if the server ends between two of them, the next start finds the
    // recorded mark or identity on the data. The specification is recorded last, because it shows that a
    // start was completed.
    let uuid = match known {
        Some(uuid) => uuid,
        None => {
            let may_be_known = volume.spec.keeps_data() && created.is_none();
            let marked = may_be_known.then(|| {
                let marked = identity::marked(volume, before, disks, device.as_ref());
                marked.map_err(|failure| failure.context(format_args!("volume {}", volume.name)))
            });
            let marked = marked.transpose()?.flatten();
            folder
                .keep_identity(marked, mark.as_ref(), &opening.undo)
                .map_err(Failure::refused)?
        }
    };
    identity::put_mark(volume, uuid, &opening.undo);
    if volume.spec.keeps_data() {
        let mark = Mark::of(&volume.spec, &layers);
        folder
            .keep_mark(mark.as_ref(), &opening.undo)
            .map_err(Failure::refused)?;
        let kept = folder.keep_served(&volume.spec.to_string(), bytes, &opening.undo);
        kept.map_err(Failure::refused)?;
    }
    // Compute the generation only here: earlier, a newly created file is not yet on a file system.
    let generation = identity::cache_generation(&uuid, &volume.spec);
    let options = LogicalUnitOptions {
        identity: Identity {
            given: volume.names.clone(),
            ..Identity::new(uuid.0)
        },
        removable: volume.spec.removable,
        thin: volume.spec.thick.then_some(false),
    };
    let path = folder.unit_path();
    let kept = Arc::new(folder.unit().map_err(Failure::refused)?);
    let of_volume = VolumeOptions {
        persistent_state: Some(Arc::clone(&kept) as Arc<dyn PersistentState>),
        read_only: volume.spec.is_readonly(),
        cache_generation: Some(generation),
    };
    let in_use = volume::Volume::new(device, of_volume);
    let unit = in_use
        .and_then(|volume| LogicalUnit::new(volume, options))
        .map_err(|damaged| {
            refused(&format_args!(
                "{damaged}: restore {}, or remove it to start without them",
                path.display()
            ))
        })?;
    let faults = volume.spec.has_fault_layer().then_some(control);
    let opened = Opened {
        unit,
        spec: volume.spec.to_string(),
        layers,
        kept,
        created,
        moved,
        faults,
    };
    opened.name_sets(&volume.name);
    Ok(opened)
}

/// Returns the error for a changed specification that would make a volume smaller.
pub(crate) fn too_small(name: &VolumeName, spec: &Spec, before: Bytes, bytes: Bytes) -> Failure {
    let remedy = match spec.cannot_shrink() {
        Some(why) => format!("; {why}"),
        None => format!(
            ", or shrink it while it is served, with `linerate server resize {name} {bytes} --shrink`, which \
             checks for data in the part to be cut off"
        ),
    };
    Failure::refused(format!(
        "the storage of volume {name} has {before}, and would be shrunk to {bytes}: correct its size{remedy}"
    ))
}

/// Opens volumes that need no network. A file grows if it has its last recorded length and the configured
/// size is larger: the server may have ended before a reload grew the file. A file that is shorter than
/// recorded has been truncated, and is rejected.
fn open_local(
    volume: &Volume,
    kept: &Kept,
    opening: &Opening,
) -> Result<Arc<dyn BlockDevice>, Failure> {
    let refused =
        |why: &dyn std::fmt::Display| Failure::refused(format!("volume {}: {why}", volume.name));
    let growing = kept.growing(volume);
    let spec = growing.as_ref().map_or(&volume.spec, |(_, before)| before);
    let device = backends::open_local(spec, opening);
    let device = device.map_err(|error| refused(&kept.explain(volume, error)))?;
    if let Some((bytes, _)) = growing {
        let grown = block_on(device.grow(bytes.0));
        grown.map_err(|error| refused(&format_args!("it cannot grow to {bytes}: {error}")))?;
    }
    Ok(device)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::waiting::OPENERS;

    fn aside() -> Openers {
        Openers::aside().expect("a thread")
    }

    fn config(volumes: &str, luns: &[&str]) -> Config {
        let luns = luns
            .iter()
            .enumerate()
            .map(|(lun, volume)| format!("[[target.lun]]\nlun = {lun}\nvolume = \"{volume}\"\n"));
        let target = "[[target]]\nname = \"iqn.2026-01.com.example:disks\"\n";
        let text = format!("{volumes}{target}{}", luns.collect::<String>());
        Config::parse("x.toml", &text).expect("nothing wrong")
    }

    fn ram(name: &str, more: &str) -> String {
        format!("[volume.{name}]\nspec = \"ram:1MiB\"\n{more}\n")
    }

    #[test]
    fn all_of_many_volumes_are_opened_and_stay_who_they_are() {
        let names: Vec<String> = (0..3 * OPENERS)
            .map(|number| format!("v{number}"))
            .collect();
        let volumes: String = names.iter().map(|name| ram(name, "")).collect();
        let config = config(
            &volumes,
            &names.iter().map(String::as_str).collect::<Vec<_>>(),
        );
        let directory = tempfile::tempdir().expect("a temporary directory");
        let identities = || {
            let state =
                ServerState::open(directory.path(), &Undo::default()).expect("a state directory");
            let volumes = open(&config, &state, &aside(), &Undo::default())
                .unwrap_or_else(|_| panic!("opened"));
            let of = |name: &String| volumes.named(name).expect("opened").unit.identity().uuid;
            names.iter().map(of).collect::<Vec<_>>()
        };
        let first = identities();
        assert_eq!(
            first.iter().collect::<HashSet<_>>().len(),
            names.len(),
            "each has its own"
        );
        assert_eq!(identities(), first);
    }

    #[test]
    fn a_new_volume_under_the_old_name_of_another_does_not_get_its_identity() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let state =
            ServerState::open(directory.path(), &Undo::default()).expect("a state directory");
        let before = open(
            &config(&ram("old", ""), &["old"]),
            &state,
            &aside(),
            &Undo::default(),
        )
        .unwrap_or_else(|_| panic!("opened"));
        let identity = before.named("old").expect("opened").unit.identity().uuid;
        drop(before);
        // The new volume is first in the file, so it would be opened first if the order of the file counted.
        let both = ram("old", "") + &ram("new", "previous-name = \"old\"");
        let after = open(
            &config(&both, &["old", "new"]),
            &state,
            &aside(),
            &Undo::default(),
        )
        .unwrap_or_else(|_| panic!("opened"));
        let uuid = |name| after.named(name).expect("opened").unit.identity().uuid;
        assert_eq!(uuid("new"), identity);
        assert_ne!(uuid("old"), identity);
    }

    #[test]
    fn a_volume_with_the_name_that_another_has_of_its_kept_uuid_is_refused() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let state =
            ServerState::open(directory.path(), &Undo::default()).expect("a state directory");
        let first = open(
            &config(&ram("a", ""), &["a"]),
            &state,
            &aside(),
            &Undo::default(),
        )
        .expect("opened");
        let naa: String = first
            .named("a")
            .expect("opened")
            .unit
            .identity()
            .naa()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        drop(first);
        let both = ram("a", "") + &ram("b", &format!("naa = \"{naa}\""));
        let failure = open(
            &config(&both, &["a", "b"]),
            &state,
            &aside(),
            &Undo::default(),
        )
        .err()
        .expect("two of a name");
        assert!(
            failure
                .to_string()
                .contains(&format!("a and b have the same designator, naa.{naa}")),
            "{failure}"
        );
    }

    #[test]
    fn the_order_to_shrink_is_advised_only_where_it_can_work() {
        let told = |spec: &str| {
            let spec = backends::parse(spec).expect("a specification");
            too_small(
                &"v".parse().expect("a name"),
                &spec,
                Bytes(2 << 20),
                Bytes(1 << 20),
            )
            .to_string()
        };
        assert!(told("delay:1us:[file:/a?size=1MiB]").contains("resize v 1MiB --shrink"));
        let of_set = told("delay:1us:[raid1:[file:/a?size=1MiB, file:/b?size=2MiB]]");
        assert!(
            of_set.contains("a RAID set cannot be shrunk") && !of_set.contains("--shrink"),
            "{of_set}"
        );
    }

    #[test]
    fn the_first_volume_that_cannot_be_opened_says_why() {
        let volumes = "[volume.a]\nspec = \"/nowhere/a\"\n[volume.b]\nspec = \"/nowhere/b\"\n";
        let directory = tempfile::tempdir().expect("a temporary directory");
        let state =
            ServerState::open(directory.path(), &Undo::default()).expect("a state directory");
        let failure = open(
            &config(volumes, &["a", "b"]),
            &state,
            &aside(),
            &Undo::default(),
        )
        .err()
        .expect("there is no such file");
        assert!(failure.to_string().contains("volume a:"), "{failure}");
    }

    /// A server with an image, which may be on an unmounted file system.
    struct Site {
        folder: tempfile::TempDir,
    }

    impl Site {
        fn new() -> Site {
            let folder = tempfile::tempdir().expect("a temporary directory");
            std::fs::create_dir(folder.path().join("data")).expect("a mount point");
            Site { folder }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        /// Starts with this specification, in which `DATA` is the data directory. Returns the length of the
        /// volume.
        fn start(&self, spec: &str) -> Result<u64, String> {
            self.start_noting(spec, &Undo::default())
        }

        /// Starts as [`Site::start`] does, but the start is then refused for a reason unrelated to the
        /// volume.
        fn refused_start(&self, spec: &str) {
            let undo = Undo::default();
            self.start_noting(spec, &undo)
                .expect("the volume can be opened");
            undo.take_back();
        }

        fn start_noting(&self, spec: &str, undo: &Undo) -> Result<u64, String> {
            let state = ServerState::open(&self.path("state"), &Undo::default())
                .expect("a state directory");
            let spec = spec.replace("DATA", &self.path("data").display().to_string());
            let config = config(&format!("[volume.v]\nspec = \"{spec}\"\n"), &["v"]);
            let opened = open(&config, &state, &aside(), undo).inspect_err(|_| undo.take_back());
            let volumes = opened.map_err(|failure| failure.to_string())?;
            Ok(volumes
                .named("v")
                .expect("opened")
                .unit
                .volume()
                .device()
                .geometry()
                .bytes())
        }

        /// Returns the output of `serve --check`.
        fn check(&self, spec: &str) -> String {
            let spec = spec.replace("DATA", &self.path("data").display().to_string());
            let mut config = config(&format!("[volume.v]\nspec = \"{spec}\"\n"), &["v"]);
            config.state = Some(self.path("state"));
            crate::check::check(&config).mistakes.join("\n")
        }
    }

    /// Regression: a start without the volume's mount created an empty disk under the identity of the old
    /// one.
    #[test]
    fn a_volume_that_was_served_is_opened_and_never_created() {
        const SPEC: &str = "delay:1us:[file:DATA/v.img?size=2MiB]";
        let site = Site::new();
        let image = site.path("data/v.img");
        assert_eq!(site.check(SPEC), "", "a first start makes it");
        assert_eq!(site.start(SPEC), Ok(2 << 20));
        std::fs::rename(site.path("data"), site.path("elsewhere")).expect("not mounted");
        std::fs::create_dir(site.path("data")).expect("the mount point");
        for told in [site.start(SPEC).expect_err("missing"), site.check(SPEC)] {
            testkit::says(&told, &["v.img does not exist, and is not created"]);
        }
        let other = site
            .start("file:DATA/w.img?size=2MiB")
            .expect_err("another path, by mistake");
        testkit::says(&other, &["w.img does not exist, and is not created"]);
        assert_eq!(
            std::fs::read_dir(site.path("data"))
                .expect("a folder")
                .count(),
            0,
            "nothing is made"
        );
        std::fs::write(&image, "").expect("emptied");
        let empty = site.start(SPEC).expect_err("emptied");
        testkit::says(&empty, &["has 0 bytes, less than the requested 2097152"]);
        std::fs::remove_file(&image).expect("there");
        let ordered = SPEC.replace("2MiB", "2MiB&create");
        assert_eq!(site.check(&ordered), "");
        assert_eq!(site.start(&ordered), Ok(2 << 20));
        std::fs::remove_file(&image).expect("there");
        for told in [
            site.start(&ordered).expect_err("the order counts once"),
            site.check(&ordered),
        ] {
            assert!(
                told.contains(
                    "the `create` in the specification of its volume has already been used"
                ),
                "{told}"
            );
            assert!(
                told.contains(&format!(
                    "create it (truncate -s 2097152 {})",
                    image.display()
                )),
                "{told}"
            );
        }
        std::fs::File::create(&image)
            .and_then(|file| file.set_len(2 << 20))
            .expect("made by hand");
        assert_eq!(site.start(&ordered), Ok(2 << 20));
    }

    /// Regression: if the size was larger, the record of the last start determined the creation, and not the
    /// configuration.
    #[test]
    fn a_file_that_is_to_grow_is_created_by_the_order_of_now_alone() {
        let site = Site::new();
        let image = site.path("data/v.img");
        assert_eq!(site.start("file:DATA/v.img?size=1MiB&create"), Ok(1 << 20));
        std::fs::remove_file(&image).expect("not mounted");
        for told in [
            site.start("file:DATA/v.img?size=2MiB")
                .expect_err("no order"),
            site.check("file:DATA/v.img?size=2MiB"),
        ] {
            testkit::says(
                &told,
                &["is not created, because its volume was served before"],
            );
        }
        assert!(!image.exists());
        std::fs::write(&image, vec![7; 1 << 20]).expect("mounted");
        assert_eq!(site.start("file:DATA/v.img?size=1MiB"), Ok(1 << 20));
        std::fs::remove_file(&image).expect("lost");
        assert_eq!(site.check("file:DATA/v.img?size=2MiB&create"), "");
        assert_eq!(site.start("file:DATA/v.img?size=2MiB&create"), Ok(2 << 20));
    }

    /// Regression: a start that failed because a port was in use counted as the execution of an order to
    /// create a file, and a mistyped size stayed recorded.
    #[test]
    fn a_refused_start_leaves_the_record_of_the_one_before() {
        let site = Site::new();
        let image = site.path("data/v.img");
        assert_eq!(site.start("file:DATA/v.img?size=2MiB"), Ok(2 << 20));
        std::fs::remove_file(&image).expect("lost");
        site.refused_start("file:DATA/v.img?size=2MiB&create");
        assert!(!image.exists(), "it is taken back");
        assert_eq!(site.start("file:DATA/v.img?size=2MiB&create"), Ok(2 << 20));
        site.refused_start("file:DATA/v.img?size=8MiB&create");
        assert_eq!(
            site.start("file:DATA/v.img?size=4MiB"),
            Ok(4 << 20),
            "as long as was meant"
        );
    }

    /// Regression: after the loss of the state directory, a disk was given another identity, with only a line
    /// in the log. An image without a mark is served for the first time.
    #[test]
    fn a_file_that_was_served_is_no_new_disk_when_the_state_directory_is_lost() {
        let site = Site::new();
        std::fs::write(site.path("data/v.img"), vec![7; 1 << 20]).expect("an image");
        let uuid = || std::fs::read_to_string(site.path("state/volumes/v/uuid")).expect("kept");
        let lose_state = || std::fs::remove_dir_all(site.path("state")).expect("lost");
        assert_eq!(site.check("file:DATA/v.img"), "", "a first start");
        assert_eq!(site.start("file:DATA/v.img"), Ok(1 << 20));
        let first = uuid();
        assert_eq!(site.start("file:DATA/v.img"), Ok(1 << 20));
        lose_state();
        for told in [
            site.start("delay:1us:[file:DATA/v.img]").expect_err("lost"),
            site.check("file:DATA/v.img"),
        ] {
            testkit::says(
                &told,
                &[&format!("was served before, as the disk {}", first.trim())],
            );
        }
        assert!(
            site.start("file:DATA/v.img").is_err(),
            "to ask once is not to be told"
        );
        assert_eq!(site.start("file:DATA/v.img?identity=file"), Ok(1 << 20));
        assert_eq!(uuid(), first);
        lose_state();
        assert_eq!(site.start("file:DATA/v.img?identity=new"), Ok(1 << 20));
        assert_ne!(uuid(), first);
        let second = uuid();
        assert_eq!(site.start("file:DATA/v.img?identity=file"), Ok(1 << 20));
        assert_eq!(uuid(), second, "what is kept counts");
        lose_state();
        std::fs::write(site.path("data/v.img"), vec![0; 1 << 20]).expect("emptied");
        assert_eq!(
            site.start("file:DATA/v.img"),
            Ok(1 << 20),
            "there is nothing to lose"
        );
    }

    impl Site {
        /// Starts with a volume of this name and these keys. Returns its identity, and the note.
        fn serve(&self, name: &str, keys: &str) -> Result<(String, Option<String>), String> {
            let state = ServerState::open(&self.path("state"), &Undo::default())
                .expect("a state directory");
            let undo = Undo::default();
            let config = config(&self.section(name, keys), &[name]);
            let opened = open(&config, &state, &aside(), &undo).inspect_err(|_| undo.take_back());
            let volumes = opened.map_err(|failure| failure.to_string())?;
            let opened = volumes.named(name).expect("opened");
            let uuid = crate::config::values::Uuid(opened.unit.identity().uuid).to_string();
            Ok((uuid, opened.moved.clone()))
        }

        fn section(&self, name: &str, keys: &str) -> String {
            let keys = keys.replace("DATA", &self.path("data").display().to_string());
            format!("[volume.{name}]\n{keys}\n")
        }

        /// Returns the errors of a start and of `--check`, which are the same.
        fn refused(&self, name: &str, keys: &str) -> String {
            let started = self.serve(name, keys).expect_err("refused");
            let mut config = config(&self.section(name, keys), &[name]);
            config.state = Some(self.path("state"));
            assert_eq!(crate::check::check(&config).mistakes, [started.as_str()]);
            started
        }

        /// Writes the record of a volume that was served from storage without a mark.
        fn record(&self, name: &str, spec: &str) {
            let folder = self.path("state/volumes").join(name);
            std::fs::create_dir_all(&folder).expect("a folder");
            let last = name.bytes().last().expect("a name");
            let uuid = format!("6f2d4c1e-8a3b-4f5d-9c7e-1b2a3c4d5e{last:02x}\n");
            std::fs::write(folder.join("uuid"), uuid).expect("a record");
            std::fs::write(folder.join("spec"), spec).expect("a record");
        }

        /// Checks storage without a mark.
        fn check_place(&self, name: &str, spec: &str) -> Result<Option<String>, String> {
            let spec = backends::parse(spec).expect("a specification");
            let volume = Volume::new(name.parse().expect("a name"), spec);
            let kept = ServerState::kept_of(&self.path("state"), &volume).expect("a record");
            let state = self.path("state");
            let checked = identity::check(&volume, &kept, &Known::new(&state, &[]), None);
            checked.map_err(|failure| failure.to_string())
        }

        fn image(&self, name: &str, byte: u8) {
            std::fs::write(self.path("data").join(name), vec![byte; 1 << 20]).expect("an image");
        }

        fn mark(&self, name: &str) -> Option<String> {
            identity::read_mark(&self.path("data").join(name)).map(|uuid| uuid.to_string())
        }

        fn remove_mark(&self, name: &str) {
            rustix::fs::removexattr(self.path("data").join(name), identity::NAME)
                .expect("it has a mark");
        }
    }

    /// Regression: the file of another disk was served under the identity of the volume, and its mark was
    /// overwritten. Hosts that reconnected wrote to the wrong disk.
    #[test]
    fn the_file_of_another_disk_is_not_served_under_the_identity_of_a_volume() {
        for byte in [7, 0] {
            let site = Site::new();
            ["one", "two"]
                .iter()
                .for_each(|name| site.image(name, byte));
            let (one, _) = site
                .serve("v", "spec = \"file:DATA/one\"")
                .expect("a first start");
            let (two, _) = site
                .serve("w", "spec = \"file:DATA/two\"")
                .expect("a first start");
            let told = site.refused("v", "spec = \"delay:1us:[file:DATA/two]\"");
            assert!(told.starts_with("volume v: /"), "{told}");
            let is_known = format!(
                "two was served before as the disk {two} (volume w of this state directory)"
            );
            assert!(told.contains(&is_known), "{told}");
            testkit::says(
                &told,
                &[&format!("but v is the disk {one} in the state directory")],
            );
            assert!(
                told.contains("data/one. Hosts would"),
                "what it was served from: {told}"
            );
            assert_eq!(site.mark("two"), Some(two.clone()));
            // Both remedies that the error names work.
            for keys in [
                "spec = \"file:DATA/two\"",
                "spec = \"file:DATA/two\"\nprevious-name = \"w\"",
            ] {
                let name = if keys.contains("previous") { "x" } else { "w" };
                assert_eq!(site.serve(name, keys), Ok((two.clone(), None)));
            }
            assert_eq!(
                site.serve("v", "spec = \"file:DATA/one\""),
                Ok((one.clone(), None))
            );
            site.remove_mark("two");
            let (as_one, note) = site
                .serve("v", "spec = \"file:DATA/two\"")
                .expect("by order");
            assert_eq!((&as_one, site.mark("two")), (&one, Some(one.clone())));
            assert!(
                note.expect("another place")
                    .contains("hosts treat it as the same disk")
            );
            assert_eq!(
                site.serve("v", "spec = \"file:DATA/two\""),
                Ok((one, None)),
                "it has its mark"
            );
        }
    }

    #[test]
    fn a_volume_becomes_a_new_disk_or_one_of_another_server_by_order() {
        let site = Site::new();
        ["one", "two"].iter().for_each(|name| site.image(name, 7));
        let (two, _) = site
            .serve("w", "spec = \"file:DATA/two\"")
            .expect("a first start");
        std::fs::remove_dir_all(site.path("state")).expect("another server's");
        site.serve("v", "spec = \"file:DATA/one\"")
            .expect("a first start");
        let told = site.refused("v", "spec = \"file:DATA/two\"");
        assert!(
            told.contains(&format!(
                "two was served before as the disk {two}, but v is the disk"
            )),
            "{told}"
        );
        // An option that stays in the specification is not an order for another file.
        for order in ["identity=file", "identity=new"] {
            site.refused("v", &format!("spec = \"file:DATA/two?{order}\""));
        }
        assert_eq!(site.mark("two"), Some(two.clone()));
        assert_eq!(
            site.serve("x", "spec = \"file:DATA/two?identity=file\""),
            Ok((two.clone(), None))
        );
        std::fs::remove_dir_all(site.path("state/volumes/v")).expect("as was said");
        let (new, _) = site
            .serve("v", "spec = \"file:DATA/two?identity=new\"")
            .expect("by order");
        assert_ne!(new, two);
        assert_eq!(site.mark("two"), Some(new));
    }

    /// The key `uuid` specifies the identity of a volume, not its file.
    #[test]
    fn a_configured_uuid_does_not_serve_another_disk_either() {
        const OTHER: &str = "uuid = \"6f2d4c1e-8a3b-4f5d-9c7e-1b2a3c4d5e6f\"";
        const LAST: &str = "uuid = \"6f2d4c1e-8a3b-4f5d-9c7e-1b2a3c4d5e70\"";
        let site = Site::new();
        ["one", "two"].iter().for_each(|name| site.image(name, 7));
        let (one, _) = site
            .serve("v", "spec = \"file:DATA/one\"")
            .expect("a first start");
        let (two, _) = site
            .serve("w", "spec = \"file:DATA/two\"")
            .expect("a first start");
        for uuid in [OTHER, LAST] {
            let (now, _) = site
                .serve("v", &format!("spec = \"file:DATA/one\"\n{uuid}"))
                .expect("its file");
            assert!(uuid.contains(&now), "{now}");
            let told = site.refused("v", &format!("spec = \"file:DATA/two\"\n{uuid}"));
            testkit::says(&told, &[&format!("but `uuid` makes v the disk {now}")]);
        }
        assert_eq!(
            site.serve("v", "spec = \"file:DATA/one\""),
            Ok((one, None)),
            "as before `uuid`"
        );
        // This is the first start of a copy that kept its attributes.
        let told = site.refused("copy", &format!("spec = \"file:DATA/two\"\n{OTHER}"));
        testkit::says(
            &told,
            &["if it is a copy with the original's mark, add `identity=new`"],
        );
        assert_eq!(site.mark("two"), Some(two));
        for _restart in 0..2 {
            let keys = format!("spec = \"file:DATA/two?identity=new\"\n{OTHER}");
            let (copy, _) = site.serve("copy", &keys).expect("by order");
            assert_eq!(site.mark("two"), Some(copy));
        }
    }

    /// Regression: the new identity was recorded before the mark that the file still had, so a start after a
    /// power failure refused the file as another disk.
    #[test]
    fn a_start_that_ended_before_its_file_was_marked_is_repeated() {
        const KEYS: &str = "spec = \"file:DATA/one?identity=new\"";
        let site = Site::new();
        site.image("one", 7);
        let (former, _) = site
            .serve("v", "spec = \"file:DATA/one\"")
            .expect("a first start");
        std::fs::remove_dir_all(site.path("state")).expect("another server's");
        let (config, undo) = (config(&site.section("v", KEYS), &["v"]), Undo::default());
        let volume = config.volumes.first().expect("a volume");
        let state = ServerState::open(&site.path("state"), &undo).expect("a state directory");
        let folder = state.folder(volume, &undo).expect("free");
        let mark = Mark::of_file(&volume.spec);
        let new = folder
            .keep_identity(None, mark.as_ref(), &undo)
            .expect("recorded")
            .to_string();
        drop((folder, state));
        undo.keep(); // a power failure
        assert_eq!(site.mark("one").as_ref(), Some(&former));
        assert_ne!(new, former);
        for _restart in 0..2 {
            assert_eq!(site.serve("v", KEYS), Ok((new.clone(), None)));
            assert_eq!(site.mark("one").as_ref(), Some(&new));
        }
    }

    /// Regression: the error said that the state directory was lost, and an empty disk was given another
    /// identity.
    #[test]
    fn a_volume_keeps_its_identity_without_the_uuid_of_its_first_start() {
        const UUID: &str = "6f2d4c1e-8a3b-4f5d-9c7e-1b2a3c4d5e6f";
        for byte in [7, 0] {
            for order in ["", "?identity=new", "?identity=file"] {
                let site = Site::new();
                site.image("one", byte);
                let keys = format!("spec = \"file:DATA/one{order}\"");
                let with_uuid = site.serve("v", &format!("{keys}\nuuid = \"{UUID}\""));
                assert_eq!(with_uuid, Ok((UUID.to_owned(), None)));
                for _restart in 0..2 {
                    assert_eq!(
                        site.serve("v", &keys),
                        Ok((UUID.to_owned(), None)),
                        "{byte} {order}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_file_without_the_mark_that_its_volume_is_to_have_is_reported() {
        for (byte, warning) in [
            (7, "this volume has data and gets a new identity"),
            (0, "but no identity mark"),
        ] {
            let site = Site::new();
            site.image("one", byte);
            let serve = || {
                site.serve("v", "spec = \"file:DATA/one?identity=file\"")
                    .map(drop)
                    .expect("served")
            };
            let log = crate::log_line::tests::logged(serve);
            assert!(log.contains(warning), "{log}");
            let log = crate::log_line::tests::logged(serve);
            assert!(!log.contains("a new identity"), "{log}");
        }
    }

    #[test]
    fn a_read_only_volume_keeps_the_identity_that_was_chosen_for_it() {
        let site = Site::new();
        site.image("one", 7);
        let (one, _) = site
            .serve("v", "spec = \"file:DATA/one\"")
            .expect("a first start");
        std::fs::remove_dir_all(site.path("state")).expect("another server's");
        let (other, _) = site
            .serve("v", "spec = \"file:DATA/one?read-only&identity=new\"")
            .expect("by order");
        assert_ne!(other, one);
        for _restart in 0..2 {
            assert_eq!(
                site.serve("v", "spec = \"file:DATA/one?read-only\""),
                Ok((other.clone(), None))
            );
        }
        assert_eq!(site.mark("one"), Some(one));
    }

    /// Regression: the error said that the state directory had no record of the disk, although it had a
    /// record under another name.
    #[test]
    fn a_disk_under_a_new_name_is_told_its_old_one() {
        let site = Site::new();
        for byte in [7, 0] {
            site.image("one", byte);
            let (one, _) = site
                .serve("vm1", "spec = \"file:DATA/one\"")
                .expect("served");
            for order in ["", "?identity=file"] {
                let told = site.refused("other", &format!("spec = \"file:DATA/one{order}\""));
                testkit::says(
                    &told,
                    &[&format!("as the disk {one}, which is volume vm1 in the")],
                );
                assert!(told.contains("add `previous-name = \"vm1\"`"), "{told}");
            }
            let keys = "spec = \"file:DATA/one\"\nprevious-name = \"vm1\"";
            assert_eq!(site.serve("other", keys), Ok((one, None)));
            std::fs::remove_dir_all(site.path("state")).expect("removed");
            site.remove_mark("one");
        }
    }

    /// Regression: if a file was missing, the error asked whether its file system was mounted, although the
    /// name had belonged to another disk.
    #[test]
    fn a_missing_file_under_the_name_of_another_disk_is_told_its_specification() {
        let site = Site::new();
        site.serve("vm1", "spec = \"file:DATA/example.img?size=1MiB\"")
            .expect("a first start");
        for order in ["", "&create"] {
            if !order.is_empty() {
                site.serve("vm1", "spec = \"file:DATA/example.img?size=1MiB&create\"")
                    .expect("it is there");
            }
            let told = site.refused(
                "vm1",
                &format!("spec = \"file:DATA/vm1.img?size=1MiB{order}\""),
            );
            testkit::says(&told, &["Volume vm1 was last served from file:/"]);
            assert!(told.contains("example.img"), "{told}");
            assert!(
                told.ends_with("use another volume name for another disk"),
                "{told}"
            );
        }
        std::fs::remove_file(site.path("data/example.img")).expect("lost");
        let told = site.refused("vm1", "spec = \"file:DATA/example.img?size=1MiB\"");
        assert!(!told.contains("last served"), "{told}");
    }

    /// Block devices, LUNs, and file systems without extended attributes have no marks.
    #[test]
    fn unmarked_data_of_another_volume_is_refused_and_unknown_data_noted() {
        let site = Site::new();
        ["one", "two", "three"]
            .iter()
            .for_each(|name| site.image(name, 7));
        let (one, _) = site
            .serve("v", "spec = \"file:DATA/one\"")
            .expect("a first start");
        site.serve("w", "spec = \"file:DATA/two\"")
            .expect("a first start");
        site.remove_mark("two");
        std::fs::remove_file(site.path("state/volumes/w/mark")).expect("recorded");
        let told = site.refused("v", "spec = \"file:DATA/two\"");
        assert!(
            told.contains("data/two was served before as volume w, but volume v is another disk"),
            "{told}"
        );
        let (same, note) = site
            .serve("v", "spec = \"file:DATA/three\"")
            .expect("maybe a copy");
        assert_eq!(same, one);
        let note = note.expect("only the administrator can know");
        testkit::says(&note, &["data/one, and is now served from file:/"]);
        assert_eq!(
            site.serve("v", "spec = \"file:DATA/three\""),
            Ok((one.clone(), None)),
            "noted once"
        );
        let (same, note) = site.serve("v", "spec = \"ram:1MiB\"").expect("served");
        assert_eq!(same, one);
        assert!(
            note.expect("an empty disk")
                .contains("now served from ram:1MiB")
        );
        let spec = site.path("state/volumes/w/spec");
        testkit::says(&told, &[&format!("remove {} and ", spec.display())]);
        std::fs::remove_file(spec).expect("as was said");
        site.serve("v", "spec = \"file:DATA/two\"")
            .expect("it is forgotten");
        assert!(
            site.path("state/volumes/w/uuid").exists(),
            "it keeps its identity"
        );
    }

    /// Regression: the error advised the administrator to remove the record of a volume that was being
    /// served, including its reservations.
    #[test]
    fn a_place_that_a_moved_volume_left_is_free_once_the_move_is_recorded() {
        let site = Site::new();
        ["a", "b", "c"].iter().for_each(|name| site.image(name, 7));
        let at = |name: &str| format!("file:{}", site.path("data").join(name).display());
        [("v", "a"), ("w", "b")]
            .iter()
            .for_each(|(name, file)| site.record(name, &at(file)));
        let configured = |places: &[(&str, &str)]| {
            let section = |(name, file): &(&str, &str)| {
                site.section(name, &format!("spec = \"{}\"", at(file)))
            };
            let names: Vec<&str> = places.iter().map(|(name, _)| *name).collect();
            let mut config = config(&places.iter().map(section).collect::<String>(), &names);
            config.state = Some(site.path("state"));
            config
        };
        let serve = |places: &[(&str, &str)]| {
            let state = ServerState::open(&site.path("state"), &Undo::default())
                .expect("a state directory");
            let undo = Undo::default();
            let opened = open(&configured(places), &state, &aside(), &undo)
                .inspect_err(|_| undo.take_back());
            opened.map(drop).map_err(|failure| failure.to_string())
        };
        let told = serve(&[("v", "c"), ("w", "a")]).expect_err("the place of v");
        testkit::says(
            &told,
            &["first start or reload without w, to serve v from its new location"],
        );
        assert!(!told.contains("remove"), "{told}");
        let mistyped = crate::check::check(&configured(&[("v", "a"), ("w", "a")]))
            .mistakes
            .join("\n");
        testkit::says(&mistyped, &["was served before as volume v"]);
        assert!(
            !mistyped.contains("remove") && !mistyped.contains("new location"),
            "{mistyped}"
        );
        serve(&[("v", "c")]).expect("as was said");
        serve(&[("v", "c"), ("w", "a")]).expect("as was said");
    }

    #[test]
    fn a_gateway_does_not_serve_the_lun_of_another_volume() {
        let site = Site::new();
        let lun = |number| format!("iscsi://san/iqn.2026-01.com.example:a/{number}");
        [("v", 0), ("w", 1)]
            .iter()
            .for_each(|(name, number)| site.record(name, &lun(*number)));
        let check = |number| site.check_place("v", &format!("delay:1us:[{}]", lun(number)));
        assert_eq!(check(0), Ok(None), "its LUN");
        let told = check(1).expect_err("that of another volume");
        testkit::says(
            &told,
            &["was served before as volume w, but volume v is another disk"],
        );
        let note = check(2).expect("an unknown one").expect("a note");
        assert!(note.contains("hosts treat it as the same disk"), "{note}");
    }

    /// Regression: the options of a URL or image were not compared, so URLs with different sockets counted as
    /// the same location.
    #[test]
    fn options_that_select_a_place_are_compared() {
        let specs = [
            "nbd+unix:///?socket=/run/SELECTED.sock",
            "rbd:pool/image?namespace=SELECTED",
            "rbd:pool/image?conf=/etc/ceph/SELECTED.conf",
            "rbd:pool/image?cluster=SELECTED",
            "hyperscsi://eth0/iqn.2026-01.com.example:a/0?station=02:00:00:00:00:SELECTED",
        ];
        for spec in specs {
            let site = Site::new();
            let of = |selected| spec.replace("SELECTED", selected);
            [("v", "0a"), ("w", "0b")]
                .iter()
                .for_each(|(name, selected)| site.record(name, &of(selected)));
            assert_eq!(site.check_place("v", &of("0a")), Ok(None), "{spec}");
            let told = site
                .check_place("v", &of("0b"))
                .expect_err("that of another volume");
            testkit::says(
                &told,
                &["was served before as volume w, but volume v is another disk"],
            );
            let note = site
                .check_place("v", &of("0c"))
                .expect("an unknown one")
                .expect("a note");
            assert!(note.contains("hosts treat it as the same disk"), "{note}");
        }
    }

    #[test]
    fn a_raid_set_is_known_by_its_uuid_wherever_its_members_are() {
        let site = Site::new();
        let of = |one: &str, two: &str| {
            let data = site.path("data");
            format!("raid1:[file:{0}/{one}, file:{0}/{two}]", data.display())
        };
        for (one, two) in [("a", "b"), ("c", "d"), ("e", "f")] {
            for name in [one, two] {
                let file = std::fs::File::create(site.path("data").join(name)).expect("a member");
                file.set_len(96 << 20).expect("a member");
            }
            let set = backends::parse(&of(one, two)).expect("a specification");
            let creation = backends::raid::Creation::default();
            backends::remote::run(async {
                backends::raid::create(&set, &creation, disk_contents::Consent::Given)
                    .await
                    .map(drop)
            })
            .expect("a set");
        }
        let keys = |one, two| format!("spec = \"{}\"", of(one, two));
        let closed = || block_on(backends::raid::closed());
        let serve = |name: &str, keys: &str| {
            let served = site.serve(name, keys);
            closed();
            served
        };
        let (first, _) = serve("v", &keys("a", "b")).expect("a first start");
        serve("w", &keys("c", "d")).expect("a first start");
        let told = serve("v", &keys("c", "d")).expect_err("another set");
        testkit::says(
            &told,
            &["was served before as volume w, but volume v is another disk"],
        );
        for (from, to) in [("a", "g"), ("b", "h")] {
            std::fs::rename(site.path("data").join(from), site.path("data").join(to))
                .expect("moved");
        }
        assert_eq!(
            serve("v", &keys("g", "h")),
            Ok((first.clone(), None)),
            "the same set"
        );
        let (same, note) = serve("v", &keys("e", "f")).expect("maybe a copy");
        assert_eq!(same, first);
        assert!(
            note.expect("another set")
                .contains("hosts treat it as the same disk")
        );
    }

    /// Regression: a volume counted as the disk of the last start if one store was the same. A member of a
    /// RAID set was served under the identity of the set, so hosts found a superblock in place of their data.
    #[test]
    fn a_member_of_a_raid_set_is_not_served_as_the_set() {
        let site = Site::new();
        ["a", "b", "c"].iter().for_each(|name| site.image(name, 7));
        let at = |name: &str| format!("file:{}", site.path("data").join(name).display());
        let set = |one, two| format!("raid1:[{}, {}]", at(one), at(two));
        site.record("v", &set("a", "b"));
        let record = site.path("state/volumes/v/mark");
        std::fs::write(&record, "raid 7f2d4c1e\n").expect("a record");
        let told = site.refused("v", "spec = \"delay:1us:[file:DATA/b]\"");
        testkit::says(
            &told,
            &["is a member of the RAID set 7f2d4c1e, but v is the whole set"],
        );
        testkit::says(
            &told,
            &[&format!("stop the server and remove {}", record.display())],
        );
        assert_eq!(
            site.check_place("v", &set("a", "c")),
            Ok(None),
            "a member was replaced"
        );
        let note = |spec: &str| {
            site.check_place("v", spec)
                .expect("maybe a copy")
                .expect("a note")
        };
        assert!(note(&at("c")).contains("hosts treat it as the same disk"));
        // The file was a volume before it became a member.
        let uuid = std::fs::read_to_string(site.path("state/volumes/v/uuid")).expect("a record");
        let value = uuid.trim().as_bytes();
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(site.path("data/a"), identity::NAME, value, flags).expect("a mark");
        site.refused("v", "spec = \"file:DATA/a\"");
        std::fs::remove_file(record).expect("as was said");
        assert!(note(&at("b")).contains("hosts treat it as the same disk"));
        assert_eq!(
            site.serve("v", "spec = \"file:DATA/a\""),
            Ok((uuid.trim().to_owned(), None)),
            "its mark"
        );
        let note = note(&set("a", "b"));
        assert!(
            note.contains("hosts treat it as the same disk"),
            "the file becomes a member: {note}"
        );
    }

    /// Regression: a stale file below a mount point was served without a note.
    #[test]
    fn a_file_whose_mark_is_gone_is_noted() {
        let site = Site::new();
        site.image("one", 7);
        let (one, _) = site
            .serve("v", "spec = \"file:DATA/one\"")
            .expect("a first start");
        site.remove_mark("one");
        let (same, note) = site
            .serve("v", "spec = \"delay:1us:[file:DATA/one]\"")
            .expect("maybe a copy");
        assert_eq!(same, one);
        let note = note.expect("only the administrator can know");
        testkit::says(
            &note,
            &[&format!("no longer has the mark of the disk {one}")],
        );
        assert_eq!(
            site.serve("v", "spec = \"file:DATA/one\""),
            Ok((one, None)),
            "it has its mark"
        );
    }

    /// Regression: when 256MiB was mistyped as 25MiB, only the start of the disk was served.
    #[test]
    fn a_volume_does_not_become_smaller_without_an_order() {
        let site = Site::new();
        assert_eq!(site.start("file:DATA/v.img?size=2MiB"), Ok(2 << 20));
        for spec in [
            "file:DATA/v.img?size=1MiB",
            "delay:1us:[file:DATA/v.img?size=1MiB]",
        ] {
            for told in [site.start(spec).expect_err("mistyped"), site.check(spec)] {
                testkit::says(&told, &["served with 2MiB, and would be shrunk to 1MiB"]);
            }
        }
        assert_eq!(site.start("file:DATA/v.img"), Ok(2 << 20));
        let file = std::fs::File::options()
            .write(true)
            .open(site.path("data/v.img"))
            .expect("there");
        file.set_len(1 << 20).expect("cut by somebody else");
        for told in [
            site.start("file:DATA/v.img").expect_err("cut"),
            site.check("file:DATA/v.img"),
        ] {
            testkit::says(&told, &["served with 2MiB, and would be shrunk to 1MiB"]);
        }
    }

    /// Regression: a volume that was shrunk on purpose prevented the whole server from starting, and no
    /// option could override this.
    #[test]
    fn a_volume_that_became_smaller_on_purpose_is_served_once_its_kept_size_is_removed() {
        let site = Site::new();
        let image = site.path("data/v.img");
        std::fs::write(&image, vec![7; 2 << 20]).expect("a device");
        let resize = |mib: u64| {
            let file = std::fs::File::options()
                .write(true)
                .open(&image)
                .expect("there");
            file.set_len(mib << 20).expect("resized");
        };
        for spec in ["file:DATA/v.img", "file:DATA/v.img?size=1MiB"] {
            resize(2);
            assert_eq!(site.start("file:DATA/v.img"), Ok(2 << 20));
            resize(1);
            let kept = site.path("state/volumes/v/bytes");
            let remedy = format!("remove {}, which contains the former size", kept.display());
            for told in [site.start(spec).expect_err("no order"), site.check(spec)] {
                assert!(told.contains(&remedy), "{told}");
            }
            std::fs::remove_file(&kept).expect("as was said");
            assert_eq!(site.check(spec), "");
            assert_eq!(site.start(spec), Ok(1 << 20));
            assert_eq!(
                std::fs::read_to_string(&kept).expect("kept again"),
                "1048576\n"
            );
        }
    }

    #[test]
    fn a_file_grows_at_a_start_unless_it_was_cut() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let image = directory.path().join("f");
        let state = ServerState::open(&directory.path().join("state"), &Undo::default())
            .expect("a state directory");
        let opened = |mib: u64| {
            let spec = format!(
                "[volume.f]\nspec = \"delay:1us:[file:{}?size={mib}MiB]\"\n",
                image.display()
            );
            let volumes = open(&config(&spec, &["f"]), &state, &aside(), &Undo::default())?;
            Ok::<_, Failure>(
                volumes
                    .named("f")
                    .expect("opened")
                    .unit
                    .volume()
                    .device()
                    .geometry()
                    .bytes()
                    >> 20,
            )
        };
        let length = |mib: u64| {
            std::fs::File::options()
                .write(true)
                .open(&image)?
                .set_len(mib << 20)
        };
        std::fs::write(&image, "")
            .expect("what a server leaves that is killed while it makes the file");
        assert_eq!(opened(2).expect("made"), 2);
        assert_eq!(opened(3).expect("grown"), 3);
        assert_eq!(std::fs::metadata(&image).expect("a file").len(), 3 << 20);
        length(5).expect("longer by somebody else");
        assert_eq!(opened(4).expect("as long already"), 4);
        length(3).expect("cut");
        for mib in [4, 5] {
            let cut = opened(mib)
                .expect_err("what is missing was data")
                .to_string();
            testkit::says(
                &cut,
                &["has 3145728 bytes, less than the requested 4194304"],
            );
        }
    }
}
