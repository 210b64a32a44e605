//! The directory of a result: `result.json` is replaced as a whole after each run, so that after a crash it
//! has the state after a complete run and is resumable.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use bench::record::{FORMAT, Record};

use backends::Failure;

const RESULT: &str = "result.json";
/// What `linerate diagnose` leaves for programs.
pub const DIAGNOSIS: &str = "diagnosis.json";
/// The largest file that is read as a result; larger than any that this program writes.
const RESULT_BYTES_MAX: u64 = 2 << 30;

/// A directory that results are kept in.
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Creates it. Fails if it contains a result, a diagnosis, or the report of one.
    pub fn create(path: &Path) -> Result<Folder, Failure> {
        let folder = Folder { path: path.to_owned() };
        let holds = |name: &str| folder.file(name).exists();
        let held = match () {
            () if holds(RESULT) => "a result; name another directory, or go on with it (--resume)",
            () if holds(DIAGNOSIS) => "a diagnosis; name another directory",
            () if holds("report.html") => "a report; name another directory",
            () => return Folder::replace(path),
        };
        Err(Failure::refused(format!("{} holds {held}", path.display())))
    }

    /// Creates it, or replaces a result that is not worth keeping.
    pub fn replace(path: &Path) -> Result<Folder, Failure> {
        let folder = Folder { path: path.to_owned() };
        fs::create_dir_all(path).map_err(|error| folder.failed(&error))?;
        Ok(folder)
    }

    /// One that holds a result.
    pub fn open(path: &Path) -> Folder {
        Folder { path: path.to_owned() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where a file of it is.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Reads the result.
    pub fn load(&self) -> Result<Record, Failure> {
        read_result(&self.path)
    }

    /// Writes the result, whole or not at all.
    pub fn save(&self, record: &Record) -> Result<(), Failure> {
        let text = serde_json::to_vec(record).map_err(Failure::failed)?;
        self.write(RESULT, &text)
    }

    /// Writes a file of the directory, whole or not at all.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), Failure> {
        let (path, temporary) = (self.file(name), self.file(&format!(".{name}.new")));
        let written = File::create(&temporary)
            .and_then(|mut file| file.write_all(content).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&temporary, &path))
            .and_then(|()| File::open(&self.path)?.sync_all());
        written.map_err(|error| {
            // What is half written only takes the space that is missing.
            let _ = fs::remove_file(&temporary);
            self.failed(&error)
        })
    }

    fn failed(&self, error: &io::Error) -> Failure {
        Failure::unwritten(self.path.display(), error)
    }
}

/// Folders that hold a result: this one, and those in it, by their names; [`DEPTH_MAX`] below it at most, and not behind links.
///
/// # Errors
/// A folder that cannot be read.
pub fn with_results(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    look(path, DEPTH_MAX, &mut found)?;
    Ok(found)
}

/// All folders with results in these directories, each once. A directory without any is one of them, to be refused by its name.
///
/// # Errors
/// A folder that cannot be read.
pub fn with_results_in(directories: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for directory in directories {
        let mut found = if directory.is_dir() { with_results(directory)? } else { Vec::new() };
        if found.is_empty() {
            found.push(directory.clone());
        }
        found.retain(|path| !folders.contains(path));
        folders.append(&mut found);
    }
    Ok(folders)
}

/// A tree of results is two or three folders deep: by host, by day, by suite.
const DEPTH_MAX: usize = 8;

fn look(path: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    if path.join(RESULT).is_file() {
        found.push(path.to_owned());
    }
    let unread = |error: io::Error| Failure::refused(format!("cannot read {}: {error}", path.display()));
    let mut within = Vec::new();
    for entry in fs::read_dir(path).map_err(unread)? {
        let entry = entry.map_err(unread)?;
        if entry.file_type().map_err(unread)?.is_dir()
            && !entry.file_name().as_encoded_bytes().starts_with(b".")
        {
            within.push(entry.path());
        }
    }
    within.sort();
    match depth {
        0 => Ok(()),
        _ => within.iter().try_for_each(|folder| look(folder, depth - 1, found)),
    }
}

/// Reads a result: of its directory, or of a file by itself, whatever it is called.
pub fn read_result(path: &Path) -> Result<Record, Failure> {
    let path = if path.is_dir() { path.join(RESULT) } else { path.to_owned() };
    let shown = path.display();
    let unread = |error: io::Error| Failure::refused(format!("cannot read {shown}: {error}"));
    let mut text = String::new();
    let file = File::open(&path).map_err(unread)?;
    file.take(RESULT_BYTES_MAX).read_to_string(&mut text).map_err(unread)?;
    // The version first: a later format may have lost a field of this one.
    let version: Version = parsed(&text, &path)?;
    if version.format != FORMAT {
        let sentence = format!("{shown} is of format {}, and this program reads {FORMAT}", version.format);
        return Err(Failure::refused(sentence));
    }
    parsed(&text, &path)
}

#[derive(serde::Deserialize)]
struct Version {
    format: u32,
}

fn parsed<T: serde::de::DeserializeOwned>(text: &str, path: &Path) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|error| {
        Failure::refused(format!("{} is not a result of linerate bench: {error}", path.display()))
    })
}
