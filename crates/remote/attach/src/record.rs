//! Records of attachments, for `detach` and `attachments`: one file per process in the runtime directory,
//! locked as long as the process lives. An unlocked record belongs to a process that was killed.

use std::cell::RefCell;
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use volume::spec::Bytes;

/// An attachment. `attachments --json` prints this structure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The path of the file.
    pub path: PathBuf,
    /// The attached volume: a URL without secrets, or a volume specification.
    pub volume: String,
    /// The process that serves the volume.
    pub pid: u32,
    /// The volume's size at the last query.
    pub bytes: u64,
    /// Whether writes are rejected.
    pub read_only: bool,
    /// Whether Linerate created the empty file under the mount, and must remove it.
    pub made_file: bool,
    /// The log file of the process; `None` if it runs in the foreground.
    pub log: Option<PathBuf>,
    /// Why data may be lost although the process has ended normally.
    pub failure: Option<String>,
    /// The error of the first of the current consecutive failures; `None` if the last request succeeded.
    #[serde(default)]
    pub error: Option<String>,
}

/// The changing part of a live record. It is a separate file that is replaced atomically: the record itself
/// is locked, and is never read while it changes.
pub(crate) struct LiveRecord {
    at: PathBuf,
    state: RefCell<LiveState>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LiveState {
    bytes: u64,
    error: Option<String>,
}

/// The record of this process.
pub(crate) struct OwnRecord {
    record: Record,
    at: PathBuf,
    file: File,
}

/// The record of this or another process.
pub struct FoundRecord {
    /// Its content.
    pub record: Record,
    at: PathBuf,
    file: File,
}

/// The directory of the records within the runtime directory; created with access for its owner only.
///
/// # Errors
/// The system's.
pub fn directory(runtime: &Path) -> io::Result<PathBuf> {
    let directory = runtime.join("attach");
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory);
    made.map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("cannot create {}: {error}", directory.display()),
        )
    })?;
    Ok(directory)
}

impl OwnRecord {
    /// Writes the record atomically.
    pub(crate) fn begin(directory: &Path, record: Record) -> io::Result<OwnRecord> {
        let at = directory.join(format!("{}.json", record.pid));
        let unfinished = at.with_extension("new");
        let _ = fs::remove_file(live(&at)); // a killed process may have had the same PID
        let mut file = File::create(&unfinished)?;
        file.lock()?;
        serde_json::to_writer(&mut file, &record)?;
        fs::rename(unfinished, &at)?;
        Ok(OwnRecord { record, at, file })
    }

    /// The changing part.
    pub(crate) fn live(&self) -> LiveRecord {
        let Record { bytes, error, .. } = self.record.clone();
        LiveRecord {
            at: live(&self.at),
            state: LiveState { bytes, error }.into(),
        }
    }

    /// Removes the record after a successful end.
    pub(crate) fn remove(self) {
        remove(&self.at, self.record.log.as_deref());
    }

    /// Records that the attachment has ended with an error. `detach` waits for it.
    pub(crate) fn fail(mut self, why: String) -> io::Result<()> {
        self.record.failure = Some(why);
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(&serde_json::to_vec(&self.record)?)
    }
}

impl LiveRecord {
    /// Records the current size.
    pub(crate) fn set_bytes(&self, bytes: u64) {
        let state = self.state.borrow().clone();
        self.set(LiveState { bytes, ..state });
    }

    /// Records why requests fail; `None` if they succeed.
    pub(crate) fn set_error(&self, error: Option<String>) {
        let state = self.state.borrow().clone();
        self.set(LiveState { error, ..state });
    }

    fn set(&self, state: LiveState) {
        if *self.state.borrow() == state {
            return;
        }
        let unfinished = self.at.with_extension("state-new");
        let saved = serde_json::to_vec(&state)
            .map_err(io::Error::from)
            .and_then(|text| fs::write(&unfinished, text))
            .and_then(|()| fs::rename(&unfinished, &self.at));
        if let Err(error) = saved {
            tracing::debug!("cannot update the record of this attachment: {error}");
        }
        *self.state.borrow_mut() = state;
    }
}

/// The file of the changing part of a record.
fn live(record: &Path) -> PathBuf {
    record.with_extension("state")
}

impl FoundRecord {
    /// Returns all records, except records that are removed during the call.
    ///
    /// # Errors
    /// The system's.
    pub fn all(directory: &Path) -> io::Result<Vec<FoundRecord>> {
        let entries = fs::read_dir(directory)?
            .filter_map(Result::ok)
            .map(|entry| entry.path());
        let records = entries.filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        });
        let mut all: Vec<_> = records
            .filter_map(|at| FoundRecord::open(at).ok())
            .collect();
        all.sort_by(|one, other| one.record.path.cmp(&other.record.path));
        Ok(all)
    }

    /// Returns the record of the attachment at a path. If a killed process has also left a record for this
    /// path, returns the record of the live process.
    ///
    /// # Errors
    /// The system's.
    pub fn at(directory: &Path, path: &Path) -> io::Result<Option<FoundRecord>> {
        let mut here: Vec<_> = FoundRecord::all(directory)?
            .into_iter()
            .filter(|found| found.record.path == path)
            .collect();
        here.sort_by_key(FoundRecord::is_alive);
        Ok(here.pop())
    }

    fn open(at: PathBuf) -> io::Result<FoundRecord> {
        let mut file = File::open(&at)?;
        let mut record = read(&mut file)?;
        let state = fs::read(live(&at))
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok());
        if let Some(LiveState { bytes, error }) = state {
            record = Record {
                bytes,
                error,
                ..record
            };
        }
        Ok(FoundRecord { record, at, file })
    }

    /// Whether its process is alive.
    pub fn is_alive(&self) -> bool {
        match self.file.try_lock_shared() {
            Ok(()) => {
                let _ = self.file.unlock(); // so that others wait only for the process, not for this lock
                false
            }
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Error(_)) => false,
        }
    }

    /// Waits for the end of its process. Returns its failure, if there was one.
    pub(crate) fn wait(&mut self) -> io::Result<Option<String>> {
        self.file.lock_shared()?;
        self.file.rewind()?;
        let record = read(&mut self.file)?;
        self.file.unlock()?;
        Ok(record.failure)
    }

    pub(crate) fn remove(self) {
        remove(&self.at, self.record.log.as_deref());
    }
}

/// Path, volume, health, process and log, each on its own lines, since paths and URLs are long.
impl fmt::Display for FoundRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record {
            path,
            volume,
            bytes,
            pid,
            log,
            ..
        } = &self.record;
        write!(
            f,
            "{}\n  {volume}\n  {}, {}, process {pid}",
            path.display(),
            Bytes(*bytes),
            state(self)
        )?;
        if let Some(error) = self.record.error.as_ref().filter(|_| self.is_alive()) {
            write!(f, "\n  requests fail: {error}")?;
        }
        log.iter()
            .try_for_each(|log| write!(f, "\n  log {}", log.display()))
    }
}

fn state(found: &FoundRecord) -> String {
    match (&found.record.failure, found.is_alive()) {
        (Some(why), false) => format!("ended: {why}"),
        (_, false) => "its process was killed; detach it".to_owned(),
        (_, true) if found.record.read_only => "read-only".to_owned(),
        (_, true) => "read-write".to_owned(),
    }
}

fn read(file: &mut File) -> io::Result<Record> {
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

fn remove(record: &Path, log: Option<&Path>) {
    for path in [Some(record), Some(&*live(record)), log]
        .into_iter()
        .flatten()
    {
        // A missing file is not an error.
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let error = directory(file.path())
            .expect_err("a file is no directory")
            .to_string();
        assert!(
            error.contains(&file.path().join("attach").display().to_string()),
            "{error}"
        );
    }

    fn record(path: &str) -> Record {
        Record {
            path: path.into(),
            volume: "ram:1MiB".to_owned(),
            pid: std::process::id(),
            bytes: 1 << 20,
            read_only: false,
            made_file: true,
            log: None,
            failure: None,
            error: None,
        }
    }

    #[test]
    fn a_record_shows_the_current_size_and_whether_requests_fail() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let kept = OwnRecord::begin(directory.path(), record("/mnt/disk")).expect("written");
        let found = || {
            FoundRecord::all(directory.path())
                .expect("read")
                .pop()
                .expect("a record")
        };
        let live = kept.live();
        live.set_bytes(2 << 20);
        live.set_error(Some("cannot read".to_owned()));
        let Record { bytes, error, .. } = found().record;
        assert_eq!((bytes, error.as_deref()), (2 << 20, Some("cannot read")));
        assert!(
            found().to_string().contains("2MiB, read-write")
                && found().to_string().contains("requests fail")
        );
        live.set_error(None);
        assert!(!found().to_string().contains("requests fail"));
        kept.remove();
        assert_eq!(fs::read_dir(directory.path()).expect("read").count(), 0);
    }

    #[test]
    fn a_record_is_alive_as_long_as_it_is_held() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let kept = OwnRecord::begin(directory.path(), record("/mnt/disk")).expect("written");
        let found = FoundRecord::at(directory.path(), Path::new("/mnt/disk"))
            .expect("read")
            .expect("there");
        assert!(found.is_alive() && found.is_alive());
        drop(kept); // killed
        assert!(!found.is_alive());
        found.remove();
        assert!(FoundRecord::all(directory.path()).expect("read").is_empty());
    }

    #[test]
    fn who_waits_for_the_end_is_told_what_went_wrong() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let kept = OwnRecord::begin(directory.path(), record("/mnt/disk")).expect("written");
        let mut found = FoundRecord::at(directory.path(), Path::new("/mnt/disk"))
            .expect("read")
            .expect("there");
        kept.fail("the flush failed".to_owned()).expect("written");
        assert_eq!(
            found.wait().expect("read").as_deref(),
            Some("the flush failed")
        );
    }

    #[test]
    fn who_waits_for_a_good_end_is_told_nothing() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let kept = OwnRecord::begin(directory.path(), record("/mnt/disk")).expect("written");
        let mut found = FoundRecord::at(directory.path(), Path::new("/mnt/disk"))
            .expect("read")
            .expect("there");
        kept.remove();
        assert_eq!(found.wait().expect("read"), None);
    }
}
