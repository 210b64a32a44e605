//! `serve --check`: checks whether a start would succeed. It tries everything that a start needs, but changes
//! nothing.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use backends::Failure;
use front_end_core::ListenAddress;
use host::{OpenError, local_socket};
use reactor::ListenOptions;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use volume::backend::{Creation, Layers, Opening};

use crate::config::values::VolumeName;
use crate::config::{Config, Volume};
use crate::control::{BindError, Socket};
use crate::identity::{self, Known, Mark};
use crate::metrics::http::Bound;
use crate::start::{control, no_listener, state_directory};
use crate::state::{ServerState, StateError};
use crate::waiting::{Openers, Outcome, at_once, block_on};

/// The result of a check.
#[derive(Debug, Default)]
pub struct Checked {
    /// Errors that would prevent the server from starting, as one sentence each.
    pub mistakes: Vec<String>,
    /// Additional notes.
    pub notes: Vec<String>,
}

/// A check in progress. If a server uses the state directory, the configuration is probably intended for a
/// reload of that server. Anything that is in use is then not an error.
struct Trial<'a> {
    config: &'a Config,
    state: &'a Path,
    known: Known<'a>,
    is_running: bool,
    found: Checked,
}

/// Tries to open all volumes for reading and to listen on all addresses, and checks the paths of files that a
/// start creates. Blocks for some seconds if another process uses a volume, and for as long as the targets of
/// remote volumes take to respond.
pub fn check(config: &Config) -> Checked {
    let state = match state_directory(config) {
        Ok(state) => state,
        Err(failure) => {
            return Checked {
                mistakes: vec![failure.to_string()],
                notes: Vec::new(),
            };
        }
    };
    let mut trial = Trial {
        config,
        state: &state,
        known: Known::new(&state, &config.volumes),
        is_running: false,
        found: Checked::default(),
    };
    if let Err(error) = config.io_engine.unwrap_or_default().choose() {
        trial.mistake(&format!(
            "io_uring is unavailable ({error}); use --io-engine auto"
        ));
    }
    trial.state();
    trial.volumes();
    trial.addresses();
    trial.control();
    trial.found
}

impl Trial<'_> {
    fn mistake(&mut self, sentence: &impl ToString) {
        self.found.mistakes.push(sentence.to_string());
    }

    /// Reports that something is in use: as an error, or as a note if a running server may be using it.
    fn in_use(&mut self, sentence: &impl ToString) {
        match self.is_running {
            true => self.found.notes.push(format!(
                "in use, probably by that server: {}",
                sentence.to_string()
            )),
            false => self.mistake(sentence),
        }
    }

    fn state(&mut self) {
        match ServerState::look(self.state) {
            Ok(()) => {}
            Err(StateError::Held(directory, pid)) => {
                self.is_running = true;
                let process = pid.map_or(String::new(), |pid| format!(" (process {pid})"));
                let directory = directory.display();
                self.found.notes.push(format!(
                    "a server runs with the state directory {directory}{process}"
                ));
            }
            Err(error) => self.mistake(&error),
        }
        if let Err(error) = can_make(&self.state.join("volumes").join("x")) {
            let directory = self.state.display();
            self.mistake(&format!(
                "cannot create or modify the state directory {directory}: {error}"
            ));
        }
    }

    fn volumes(&mut self) {
        let exported: Vec<&Volume> = self.config.exported().collect();
        self.paths(&exported);
        let (remote, local): (Vec<&Volume>, Vec<&Volume>) = exported
            .into_iter()
            .partition(|volume| volume.spec.opens_later());
        let outcomes = at_once(&local, |volume| (volume.name.clone(), self.local(volume)));
        for (name, outcome) in outcomes {
            let error = match outcome {
                Ok(note) => {
                    self.found.notes.extend(note);
                    continue;
                }
                Err(error) => error,
            };
            let sentence = format!("volume {name}: {error}");
            match error.downcast_ref() {
                Some(OpenError::AlreadyInUse { .. }) => self.in_use(&sentence),
                _ => self.mistake(&sentence),
            }
        }
        let remote: Vec<(&Volume, Opening)> = remote
            .into_iter()
            .map(|volume| (volume, read_only()))
            .collect();
        let specs = remote
            .iter()
            .map(|(volume, opening)| (volume.spec.clone(), opening.clone()));
        match Openers::aside().map(|openers| openers.open(specs.collect())) {
            Ok(outcomes) => {
                for ((volume, opening), outcome) in remote.iter().zip(outcomes) {
                    match self.remote(volume, &opening.layers, outcome) {
                        Ok(note) => self.found.notes.extend(note),
                        Err(failure) => self.mistake(&format!("volume {}: {failure}", volume.name)),
                    }
                }
            }
            Err(failure) => self.mistake(&failure),
        }
    }

    /// Checks a network volume that has been opened with these layers. Returns a note.
    fn remote(
        &self,
        volume: &Volume,
        layers: &Layers,
        device: Outcome,
    ) -> Result<Option<String>, Failure> {
        let kept = ServerState::kept_of(self.state, volume).map_err(Failure::refused)?;
        identity::check(
            volume,
            &kept,
            &self.known,
            Mark::of_file(&volume.spec).as_ref(),
        )?;
        kept.check_sizes(volume)?;
        let device = device?;
        kept.check_length(volume, device.geometry().bytes())?;
        identity::check(
            volume,
            &kept,
            &self.known,
            Mark::of(&volume.spec, layers).as_ref(),
        )
    }

    /// Reports two volumes with the same file, because only one volume can use a file.
    fn paths(&mut self, volumes: &[&Volume]) {
        let mut taken: HashMap<PathBuf, &VolumeName> = HashMap::new();
        for volume in volumes.iter().filter(|volume| !volume.spec.is_readonly()) {
            let Some(path) = volume.spec.path() else {
                continue;
            };
            let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            if let Some(other) = taken.insert(path.clone(), &volume.name) {
                let path = path.display();
                self.mistake(&format!(
                    "volume {}: {path} is also used by volume {other}; use a different path",
                    volume.name
                ));
            }
        }
    }

    /// Checks a volume that needs no network. Returns a note.
    fn local(&self, volume: &Volume) -> Result<Option<String>, volume::backend::OpenError> {
        let kept = ServerState::kept_of(self.state, volume)?;
        let is_its_disk = |mark: Option<&Mark>| {
            identity::check(volume, &kept, &self.known, mark).map_err(|failure| failure.to_string())
        };
        is_its_disk(Mark::of_file(&volume.spec).as_ref())?;
        kept.check_sizes(volume)
            .map_err(|failure| failure.to_string())?;
        let is_readonly = volume.spec.is_readonly();
        let creation = kept.creation(volume);
        let is_made = creation == Creation::Free
            || creation == Creation::Ordered && volume.spec.orders_creation();
        if let Some(path) = volume
            .spec
            .store()
            .makes_file()
            .filter(|_| is_made && !is_readonly)
        {
            // A start creates directories in the state directory, but not the directory of a volume's file.
            let folder = path
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty());
            let there = fs::metadata(folder.unwrap_or(Path::new("."))).map(drop);
            let source = |source| OpenError::NotCreated {
                path: path.to_owned(),
                source,
            };
            let can_make = there.and_then(|()| can_make(path));
            return can_make
                .map(|()| None)
                .map_err(|error| source(error).into());
        }
        let growing = kept.growing(volume);
        let spec = growing.as_ref().map_or(&volume.spec, |(_, before)| before);
        let opening = Opening {
            creation,
            ..read_only()
        };
        let device =
            backends::open_local(spec, &opening).map_err(|error| kept.explain(volume, error))?;
        let grown = growing.map_or(0, |(bytes, _)| bytes.0);
        let length = kept.check_length(volume, grown.max(device.geometry().bytes()));
        length.map_err(|failure| failure.to_string())?;
        if volume.uuid.or(kept.identity).is_none() && volume.spec.keeps_data() {
            let marked = identity::marked(volume, &kept, &self.known, device.as_ref());
            marked.map_err(|failure| failure.to_string())?;
        }
        let note = is_its_disk(Mark::of(&volume.spec, &opening.layers).as_ref())?;
        if let Some(path) = volume.spec.path().filter(|_| !is_readonly) {
            let writable = accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS);
            writable.map_err(|error| format!("cannot write to {}: {error}", path.display()))?;
        }
        Ok(note)
    }

    fn addresses(&mut self) {
        let portals: Vec<front_end_core::Portal> =
            self.config.portals().map(|(_, portal)| portal).collect();
        // All portals are opened together, as in a start.
        let failed: Vec<io::Error> = block_on(async {
            if let Err(error) = front_end_core::each_once(&portals) {
                return vec![error];
            }
            let listened = portals.iter().map(|portal| {
                let listener = match &portal.listen {
                    ListenAddress::Inet(address) => {
                        let options = ListenOptions {
                            stream: portal.stream.clone(),
                        };
                        reactor::world().listen(*address, &options).map(Some)
                    }
                    ListenAddress::Unix(path) => can_bind(path).map(|()| None),
                    ListenAddress::Datagrams(options) => reactor::world()
                        .datagrams(options)
                        .map(|_| None)
                        .map_err(io::Error::other),
                };
                listener.map_err(|error| {
                    io::Error::new(error.kind(), format!("{}: {error}", portal.listen))
                })
            });
            let listened: Vec<io::Result<_>> = listened.collect();
            listened.into_iter().filter_map(Result::err).collect()
        });
        for error in failed {
            match error.kind() {
                io::ErrorKind::AddrInUse => self.in_use(&no_listener(&error)),
                _ => self.mistake(&no_listener(&error)),
            }
        }
        if let Some(Err(failure)) = self
            .config
            .metrics
            .map(|metrics| Bound::new(metrics).map(drop))
        {
            self.in_use(&failure);
        }
    }

    fn control(&mut self) {
        let path = control(self.config, self.state);
        match Socket::look(&path) {
            Err(error @ BindError::InUse(_)) => self.in_use(&error),
            Err(error) => return self.mistake(&error),
            Ok(()) => {}
        }
        if let Err(error) = can_make(&path).map_err(|error| BindError::Io(path.clone(), error)) {
            // Problems in the state directory have already been reported.
            if !path.starts_with(self.state) {
                self.mistake(&error);
            }
        }
    }
}

fn read_only() -> Opening {
    Opening {
        read_only: true,
        ..backends::opening()
    }
}

/// Checks that a Unix socket can be created at `path`. Changes nothing.
fn can_bind(path: &Path) -> io::Result<()> {
    local_socket::look(path)?;
    // A start does not create the directory of the socket.
    let folder = path.parent().unwrap_or(path);
    let can_make = fs::metadata(folder).and_then(|_| can_make(path));
    can_make.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

/// Checks that a file can be created at `path`. Its directory may be missing, because a start creates it.
fn can_make(path: &Path) -> io::Result<()> {
    let there = path
        .ancestors()
        .skip(1)
        .find(|folder| folder.as_os_str().is_empty() || folder.exists());
    let folder = there
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    Ok(accessat(
        CWD,
        folder,
        Access::WRITE_OK | Access::EXEC_OK,
        AtFlags::EACCESS,
    )?)
}
