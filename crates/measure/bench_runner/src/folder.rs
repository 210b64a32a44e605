//! A result on disk. `result.json` is replaced as a whole after each run. After a crash, the directory
//! therefore contains the record of all completed runs, and the measurement can be resumed ([`Keeper`]). The
//! reports are in the same directory.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use backends::Failure;
use bench::record::{CellRun, FORMAT, Record};
use report::{Report, Reports, read_diagnosis};

const RESULT: &str = "result.json";
/// The file that `linerate diagnose` writes for programs.
pub const DIAGNOSIS: &str = "diagnosis.json";
/// Maximum size of a result file. This program writes only smaller files.
const RESULT_BYTES_MAX: u64 = 2 << 30;

/// A directory for results.
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Creates the directory. Fails if it contains a result, a diagnosis or a report.
    pub fn create(path: &Path) -> Result<Folder, Failure> {
        let folder = Folder {
            path: path.to_owned(),
        };
        let holds = |name: &str| folder.file(name).exists();
        let held = match () {
            () if holds(RESULT) => "a result; name another directory, or resume it (--resume)",
            () if holds(DIAGNOSIS) => "a diagnosis; name another directory",
            () if holds("report.html") => "a report; name another directory",
            () => return Folder::replace(path),
        };
        Err(Failure::refused(format!("{} holds {held}", path.display())))
    }

    /// Creates the directory. If it exists, its files may be overwritten.
    pub fn replace(path: &Path) -> Result<Folder, Failure> {
        let folder = Folder {
            path: path.to_owned(),
        };
        fs::create_dir_all(path).map_err(|error| folder.failed(&error))?;
        Ok(folder)
    }

    /// Names a directory that contains a result.
    pub fn open(path: &Path) -> Folder {
        Folder {
            path: path.to_owned(),
        }
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a file in the directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Reads the result.
    pub fn load(&self) -> Result<Record, Failure> {
        read_result(&self.path)
    }

    /// Writes the result atomically.
    pub fn save(&self, record: &Record) -> Result<(), Failure> {
        let text = serde_json::to_vec(record).map_err(Failure::failed)?;
        self.write(RESULT, &text)
    }

    /// Writes a file of the directory atomically.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), Failure> {
        let (path, temporary) = (self.file(name), self.file(&format!(".{name}.new")));
        let written = File::create(&temporary)
            .and_then(|mut file| file.write_all(content).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&temporary, &path))
            .and_then(|()| File::open(&self.path)?.sync_all());
        written.map_err(|error| {
            // An incomplete file would only take up space, which may be why the write failed.
            let _ = fs::remove_file(&temporary);
            self.failed(&error)
        })
    }

    fn failed(&self, error: &io::Error) -> Failure {
        Failure::unwritten(self.path.display(), error)
    }
}

/// Returns the directories that contain a result: `path` and its subdirectories up to [`DEPTH_MAX`] levels
/// below it, in order of their names. Symbolic links are not followed.
///
/// # Errors
/// A directory cannot be read.
pub fn with_results(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    look(path, DEPTH_MAX, &mut found)?;
    Ok(found)
}

/// Returns all directories with results in these directories, without duplicates. A directory without any
/// result is included itself, so that the caller can name it in an error.
///
/// # Errors
/// A directory cannot be read.
pub fn with_results_in(directories: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for directory in directories {
        let mut found = if directory.is_dir() {
            with_results(directory)?
        } else {
            Vec::new()
        };
        if found.is_empty() {
            found.push(directory.clone());
        }
        found.retain(|path| !folders.contains(path));
        folders.append(&mut found);
    }
    Ok(folders)
}

/// Maximum depth of a search. A tree of results has two or three levels: host, day and suite.
const DEPTH_MAX: usize = 8;

fn look(path: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    if path.join(RESULT).is_file() {
        found.push(path.to_owned());
    }
    let unread =
        |error: io::Error| Failure::refused(format!("cannot read {}: {error}", path.display()));
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
        _ => within
            .iter()
            .try_for_each(|folder| look(folder, depth - 1, found)),
    }
}

/// Reads a result from its directory, or from a file of any name.
pub fn read_result(path: &Path) -> Result<Record, Failure> {
    let path = if path.is_dir() {
        path.join(RESULT)
    } else {
        path.to_owned()
    };
    let shown = path.display();
    let unread = |error: io::Error| Failure::refused(format!("cannot read {shown}: {error}"));
    let mut text = String::new();
    let file = File::open(&path).map_err(unread)?;
    file.take(RESULT_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(unread)?;
    // Check the version first: a later format may not have all fields of this one.
    let version: Version = parsed(&text, &path)?;
    if version.format != FORMAT {
        let sentence = format!(
            "{shown} has format {}, but this program supports {FORMAT}",
            version.format
        );
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
        Failure::refused(format!(
            "{} is not a result of linerate bench: {error}",
            path.display()
        ))
    })
}

/// A record and its directory.
pub struct Keeper {
    record: Record,
    folder: Option<Folder>,
    /// The start of the program, and the age of the record at that time: a resumed record began in an earlier
    /// program.
    begun: Instant,
    before: Duration,
    /// The reason why the directory does not contain the whole record.
    lost: Option<Failure>,
}

impl Keeper {
    /// Saves the record immediately, so that a directory that is not writable is detected before the
    /// measurement.
    pub fn new(record: Record, folder: Option<Folder>) -> Result<Keeper, Failure> {
        if let Some(folder) = &folder {
            folder.save(&record)?;
        }
        let last = record
            .runs
            .iter()
            .map(|run| run.begun_s + longest(run))
            .fold(0.0, f64::max);
        Ok(Keeper {
            record,
            folder,
            begun: Instant::now(),
            before: Duration::from_secs_f64(last),
            lost: None,
        })
    }

    /// Returns the record so far.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Returns the directory of the record, if it has one.
    pub fn folder(&self) -> Option<&Folder> {
        self.folder.as_ref()
    }

    /// Returns the seconds since the start of the record.
    pub fn seconds_at(&self, instant: Instant) -> f64 {
        (self.before + instant.saturating_duration_since(self.begun)).as_secs_f64()
    }

    /// Adds a run and saves the record. Returns a message for users if the record could not be saved.
    pub fn keep(&mut self, run: CellRun) -> Option<String> {
        self.record.runs.push(run);
        self.save()
    }

    /// Adds a remark for readers of the record.
    pub fn note(&mut self, sentence: String) {
        self.record.notes.push(sentence);
    }

    /// Marks the record as complete.
    pub fn complete(&mut self) {
        self.record.ended = Some(timestamp());
    }

    /// Saves the record. Returns a message the first time that this fails. Later attempts may succeed, since
    /// space may become available.
    pub fn save(&mut self) -> Option<String> {
        let saved = self.folder.as_ref()?.save(&self.record);
        let Err(failure) = saved else {
            self.lost = None;
            return None;
        };
        let sentence = self.lost.is_none().then(|| failure.to_string());
        self.lost = Some(failure);
        sentence
    }

    /// Saves the record for the last time. Returns the record, and the reason if the directory does not
    /// contain all of it.
    pub fn end(mut self) -> (Record, Option<Folder>, Option<Failure>) {
        self.save();
        (self.record, self.folder, self.lost)
    }
}

fn longest(run: &CellRun) -> f64 {
    run.clients
        .iter()
        .map(|client| client.run.seconds)
        .fold(0.0, f64::max)
}

/// Writes the reports of the record, in human-readable form and for other programs, with the results
/// of further documents.
///
/// # Errors
/// A file cannot be written, or the diagnosis in the directory cannot be read.
pub fn write_report(folder: &Folder, record: &Record, beside: &[String]) -> Result<(), Failure> {
    let report = report_of(folder, record, beside)?;
    folder.write("cells.csv", report.cells_csv().as_bytes())?;
    folder.write("samples.csv", report.samples_csv().as_bytes())?;
    folder.write("report.md", report.markdown().as_bytes())?;
    folder.write("report.html", report.html().as_bytes())
}

/// Returns the report of a record, with the name of its directory and the diagnosis in it.
///
/// # Errors
/// The diagnosis cannot be read.
pub fn report_of<'a>(
    folder: &Folder,
    record: &'a Record,
    beside: &[String],
) -> Result<Report<'a>, Failure> {
    let report = Report::new(record)
        .beside(beside)
        .in_folder(folder.path().display().to_string());
    let files = ["diagnosis.json", "diagnosis/diagnosis.json"].map(|name| folder.file(name));
    let Some(file) = files.into_iter().find(|file| file.is_file()) else {
        return Ok(report);
    };
    let refused = |why: String| Failure::refused(format!("{}: {why}", file.display()));
    let text = fs::read_to_string(&file).map_err(|error| refused(error.to_string()))?;
    read_diagnosis(&text)
        .map(|diagnosis| report.with_diagnosis(diagnosis))
        .map_err(refused)
}

// Report files: those next to a record, and the page of the reports of several directories.

/// Calls `then` with the reports of these directories.
///
/// # Errors
/// A result or diagnosis cannot be read, or `then` fails.
pub fn together<T>(
    folders: &[PathBuf],
    beside: &[String],
    then: impl FnOnce(&Reports<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let folders: Vec<Folder> = folders.iter().map(|path| Folder::open(path)).collect();
    let records: Vec<Record> = folders.iter().map(Folder::load).collect::<Result<_, _>>()?;
    let each = folders.iter().zip(&records);
    let reports = each.map(|(folder, record)| report_of(folder, record, beside));
    then(&Reports::new(reports.collect::<Result<_, _>>()?))
}

/// Writes the page of several results, and returns its path.
///
/// # Errors
/// Fails as [`together`] does, or if `out` cannot be written.
pub fn write_together(
    folders: &[PathBuf],
    beside: &[String],
    out: &Path,
) -> Result<PathBuf, Failure> {
    let out = Folder::replace(out)?;
    together(folders, beside, |reports| {
        out.write("reports.md", reports.markdown().as_bytes())?;
        out.write("reports.html", reports.html().as_bytes())
    })?;
    Ok(out.file("reports.html"))
}

/// Returns the current time in UTC, to the second (RFC 3339).
pub fn timestamp() -> String {
    jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}
