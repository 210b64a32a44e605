//! The state directory: what must outlive a server. Per volume its UUID (`NAME.uuid`), from which initiators
//! know it again, its persistent reservations (`NAME.reservations`, written by the logical unit), and a lock
//! (`NAME.lock`), so that no two servers give one identity to two disks.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::config::{Uuid, Volume, VolumeName};
use crate::failure::Failure;

/// The directory, there and writable.
#[derive(Debug)]
pub(crate) struct State {
    directory: PathBuf,
}

/// Holds a volume's name against other servers until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    _lock: File,
}

/// Why a volume's state is not to be had.
#[derive(Debug)]
pub(crate) enum StateError {
    /// Neither an argument nor the environment names a directory.
    NoPlace,
    /// Another server with this state directory serves the volume.
    InUse(VolumeName, PathBuf),
    /// A UUID file that holds no UUID.
    Damaged(PathBuf),
    /// The system says no.
    Io(&'static str, PathBuf, io::Error),
}

impl std::error::Error for StateError {}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateError::NoPlace => f.write_str(
                "there is no place to keep identities: HOME is not set; name a directory with --state",
            ),
            StateError::InUse(volume, directory) => write!(
                f,
                "volume {volume} is in use: another server has it, with the state directory {}; stop that server, \
                 or give this one its own with --state",
                directory.display()
            ),
            StateError::Damaged(path) => {
                write!(
                    f,
                    "{} holds no UUID; restore it, or remove it to give the volume a new identity",
                    path.display()
                )
            }
            StateError::Io(what, path, error) => {
                write!(f, "cannot {what} {}: {error}; is --state right?", path.display())
            }
        }
    }
}

impl State {
    /// Makes the directory if it is not there, for its owner only.
    pub(crate) fn open(directory: &Path) -> Result<State, StateError> {
        use std::os::unix::fs::DirBuilderExt;
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|error| StateError::Io("make the state directory", directory.to_owned(), error))?;
        Ok(State { directory: directory.to_owned() })
    }

    /// Where it is.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes sure that no other server with this directory serves the volume.
    pub(crate) fn claim(&self, volume: &VolumeName) -> Result<Claim, StateError> {
        let path = self.file(volume, "lock");
        let failed = |error| StateError::Io("lock", path.clone(), error);
        let lock = File::options().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Claim { _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(StateError::InUse(volume.clone(), self.directory.clone())),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// The UUID of a volume: the configured one; else the one kept under its name; else the one kept under its
    /// previous name, which moves over; else a new one.
    pub(crate) fn identity(&self, volume: &Volume) -> Result<Uuid, StateError> {
        if let Some(previous) = &volume.previous_name {
            self.rename(previous, &volume.name)?;
        }
        if let Some(uuid) = volume.uuid {
            return Ok(uuid);
        }
        if let Some(uuid) = self.kept(&volume.name)? {
            return Ok(uuid);
        }
        let mut random = [0; 16];
        let path = self.file(&volume.name, "uuid");
        getrandom::fill(&mut random).map_err(|error| {
            StateError::Io("draw a UUID for", path.clone(), io::Error::other(error.to_string()))
        })?;
        let uuid = Uuid::from_random(random);
        self.keep(&path, &uuid.to_string())?;
        Ok(uuid)
    }

    /// Takes over what is kept under `previous`, unless there is something under `name` already: the line may
    /// stay in the configuration.
    fn rename(&self, previous: &VolumeName, name: &VolumeName) -> Result<(), StateError> {
        if self.file(name, "uuid").exists() {
            return Ok(());
        }
        // The UUID last: it marks that the move is complete.
        for kind in ["reservations", "uuid"] {
            let (from, to) = (self.file(previous, kind), self.file(name, kind));
            match fs::rename(&from, &to) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(StateError::Io("rename", from, error));
                }
                _ => {}
            }
        }
        self.sync()
    }

    fn kept(&self, volume: &VolumeName) -> Result<Option<Uuid>, StateError> {
        let path = self.file(volume, "uuid");
        match fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().map(Some).map_err(|_| StateError::Damaged(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StateError::Io("read", path, error)),
        }
    }

    /// All of it or nothing, also across a crash: a volume that came back with another UUID would be another
    /// disk to every initiator.
    fn keep(&self, path: &Path, text: &str) -> Result<(), StateError> {
        let draft = path.with_added_extension("new");
        let written = File::create(&draft).and_then(|mut file| {
            writeln!(file, "{text}")?;
            file.sync_all()
        });
        let kept = written.and_then(|()| fs::rename(&draft, path));
        kept.map_err(|error| StateError::Io("write", path.to_owned(), error))?;
        self.sync()
    }

    fn sync(&self) -> Result<(), StateError> {
        let synced = File::open(&self.directory).and_then(|directory| directory.sync_all());
        synced.map_err(|error| StateError::Io("write", self.directory.clone(), error))
    }

    fn file(&self, volume: &VolumeName, kind: &str) -> PathBuf {
        self.directory.join(format!("{volume}.{kind}"))
    }
}

/// Where the state is if nobody says otherwise: `/var/lib/linerate` for root, `$XDG_STATE_HOME/linerate` or
/// `~/.local/state/linerate` for others.
pub(crate) fn usual_directory() -> Result<PathBuf, StateError> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    place(is_root(), variable("XDG_STATE_HOME"), variable("HOME")).ok_or(StateError::NoPlace)
}

fn place(root: bool, state_home: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    match (root, state_home, home) {
        (true, ..) => Some(PathBuf::from("/var/lib/linerate")),
        // The base directory specification tells to ignore relative ones.
        (false, Some(state), _) if state.is_absolute() => Some(state.join("linerate")),
        (false, _, home) => home.map(|home| home.join(".local/state/linerate")),
    }
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    // /proc/self belongs to the effective user, and std has no other way to ask.
    fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

/// The control socket that was named, or the usual one.
pub(crate) fn control_socket(named: Option<&Path>) -> Result<PathBuf, Failure> {
    match named {
        Some(path) => Ok(path.to_owned()),
        None => usual_directory().map(|directory| directory.join(CONTROL)).map_err(Failure::refused),
    }
}

/// The control socket's name within the state directory.
pub(crate) const CONTROL: &str = "control.sock";

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(name: &str) -> Volume {
        let spec = "ram:1MiB".parse().expect("a specification");
        Volume::new(name.parse().expect("a name"), spec)
    }

    fn state() -> (tempfile::TempDir, State) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let state = State::open(&directory.path().join("a/b")).expect("a state directory");
        (directory, state)
    }

    #[test]
    fn an_identity_survives_a_restart_and_is_nobody_elses() {
        let (_directory, state) = state();
        let uuid = state.identity(&volume("vm1")).expect("an identity");
        assert_eq!(
            State::open(state.directory()).expect("again").identity(&volume("vm1")).expect("kept"),
            uuid
        );
        assert_ne!(state.identity(&volume("vm2")).expect("another"), uuid);
    }

    #[test]
    fn an_identity_and_reservations_move_with_a_rename() {
        let (_directory, state) = state();
        let uuid = state.identity(&volume("old")).expect("an identity");
        fs::write(state.directory().join("old.reservations"), "kept").expect("reservations");
        let renamed = Volume { previous_name: Some("old".parse().expect("a name")), ..volume("new") };
        for _restart in 0..2 {
            assert_eq!(state.identity(&renamed).expect("moved"), uuid);
        }
        assert_eq!(fs::read_to_string(state.directory().join("new.reservations")).expect("moved"), "kept");
        assert_ne!(state.identity(&volume("old")).expect("a new volume under the old name"), uuid);
    }

    #[test]
    fn a_configured_uuid_goes_before_a_kept_one() {
        let (_directory, state) = state();
        state.identity(&volume("vm1")).expect("an identity");
        let uuid = Some(Uuid([7; 16]));
        assert_eq!(state.identity(&Volume { uuid, ..volume("vm1") }).ok(), uuid);
    }

    #[test]
    fn a_damaged_identity_is_not_silently_replaced() {
        let (_directory, state) = state();
        fs::write(state.directory().join("vm1.uuid"), "").expect("damage");
        let error = state.identity(&volume("vm1")).expect_err("damaged");
        assert!(error.to_string().contains("vm1.uuid holds no UUID; restore it"), "{error}");
    }

    #[test]
    fn two_servers_cannot_serve_one_volume() {
        let (_directory, state) = state();
        let name = volume("vm1").name;
        let claim = state.claim(&name).expect("free");
        let error = state.claim(&name).expect_err("taken");
        assert!(error.to_string().starts_with("volume vm1 is in use"), "{error}");
        drop(claim);
        state.claim(&name).expect("free again");
    }

    #[test]
    fn the_usual_place_depends_on_who_asks() {
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(place(true, path("/x"), path("/root")), path("/var/lib/linerate"));
        assert_eq!(place(false, path("/x"), path("/home/a")), path("/x/linerate"));
        assert_eq!(place(false, path("x"), path("/home/a")), path("/home/a/.local/state/linerate"));
        assert_eq!(place(false, None, None), None);
    }
}
