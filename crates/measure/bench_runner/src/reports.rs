//! What people and other programs read beside a record: the files of a report, and the page of the reports of several
//! folders.

use std::fs;
use std::path::{Path, PathBuf};

use backends::Failure;
use bench::record::Record;
use published::Curve;
use report::{Report, Reports, read_diagnosis};

use super::folder::Folder;

/// Writes what people and other programs read beside the record, with these curves drawn into it.
///
/// # Errors
/// A file that cannot be written, or a diagnosis in the folder that cannot be read.
pub fn write(folder: &Folder, record: &Record, beside: Vec<Curve>) -> Result<(), Failure> {
    let report = of_folder(folder, record, beside)?;
    folder.write("cells.csv", report.cells_csv().as_bytes())?;
    folder.write("samples.csv", report.samples_csv().as_bytes())?;
    folder.write("report.md", report.markdown().as_bytes())?;
    folder.write("report.html", report.html().as_bytes())
}

/// The report of a record, with the name of its folder and the diagnosis that is there.
///
/// # Errors
/// A diagnosis that cannot be read.
pub fn of_folder<'a>(folder: &Folder, record: &'a Record, beside: Vec<Curve>) -> Result<Report<'a>, Failure> {
    let report = Report::new(record).beside(beside).in_folder(folder.path().display().to_string());
    let files = ["diagnosis.json", "diagnosis/diagnosis.json"].map(|name| folder.file(name));
    let Some(file) = files.into_iter().find(|file| file.is_file()) else { return Ok(report) };
    let refused = |why: String| Failure::refused(format!("{}: {why}", file.display()));
    let text = fs::read_to_string(&file).map_err(|error| refused(error.to_string()))?;
    read_diagnosis(&text).map(|diagnosis| report.with_diagnosis(diagnosis)).map_err(refused)
}

/// Does something with the reports of these folders.
///
/// # Errors
/// A result or diagnosis that cannot be read, or what `then` fails with.
pub fn together<T>(
    folders: &[PathBuf],
    beside: &[Curve],
    then: impl FnOnce(&Reports<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let folders: Vec<Folder> = folders.iter().map(|path| Folder::open(path)).collect();
    let records: Vec<Record> = folders.iter().map(Folder::load).collect::<Result<_, _>>()?;
    let each = folders.iter().zip(&records);
    let reports = each.map(|(folder, record)| of_folder(folder, record, beside.to_vec()));
    then(&Reports::new(reports.collect::<Result<_, _>>()?))
}

/// Writes the page of several results, and says where it is.
///
/// # Errors
/// As [`together`]; or `out` cannot be written.
pub fn write_together(folders: &[PathBuf], beside: &[Curve], out: &Path) -> Result<PathBuf, Failure> {
    let out = Folder::replace(out)?;
    together(folders, beside, |reports| {
        out.write("reports.md", reports.markdown().as_bytes())?;
        out.write("reports.html", reports.html().as_bytes())
    })?;
    Ok(out.file("reports.html"))
}
