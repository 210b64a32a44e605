//! Rules on the text of source files. They are plain text searches with a simple model of Rust: comments do not count, and
//! everything after a file's `#[cfg(test)]` is test code, because tests come last.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Fault;

/// Files with more lines are noted, but are not faults: a long table is fine.
pub(super) const LONG: usize = 500;

/// A Rust file of the tree.
#[derive(Debug)]
pub(super) struct Source {
    /// The path from the root, with `/`.
    pub(super) path: String,
    pub(super) text: String,
}

/// Reads every Rust file of the crates, measurements, xtask and fuzz targets.
pub(super) fn read(root: &Path) -> Result<Vec<Source>> {
    let mut paths = Vec::new();
    for part in ["crates", "measurements", "xtask", "fuzz"] {
        collect(&root.join(part), &mut paths).with_context(|| format!("walking through {part}"))?;
    }
    paths.sort();
    paths
        .into_iter()
        .map(|path| read_one(root, &path))
        .collect()
}

fn collect(directory: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            collect(&path, into)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
    Ok(())
}

fn read_one(root: &Path, path: &Path) -> Result<Source> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let path = path
        .strip_prefix(root)
        .unwrap_or(path)
        .to_string_lossy()
        .into_owned();
    Ok(Source { path, text })
}

/// Returns the files longer than [`LONG`], with their lengths.
pub(super) fn long(files: &[Source]) -> impl Iterator<Item = (&str, usize)> {
    files
        .iter()
        .map(|file| (file.path.as_str(), file.text.lines().count()))
        .filter(|(_, lines)| *lines > LONG)
}

/// Names that pure code must not use: its inputs are bytes, completions and the time, and its outputs are requests.
const IMPURE: &[&str] = &[
    "std::net",
    "std::fs",
    "std::io::stdin",
    "std::process",
    "std::thread",
    "std::env",
    "Instant::now",
    "SystemTime::now",
    "println!",
];

/// The crates whose code only computes values from values.
const PURE: &[&str] = &[
    "crates/storage/block/src/",
    "crates/storage/volume/src/",
    "crates/storage/disk_contents/src/",
    "crates/storage/raid/src/",
    "crates/serve/logical_unit/src/",
    "crates/wire/iscsi/src/",
    "crates/wire/aoe/src/",
    "crates/wire/foreign/src/",
    "crates/wire/readable/src/",
    "crates/wire/nbd/src/",
    "crates/wire/hyperscsi/src/",
    "crates/wire/scsi/src/",
    "crates/measure/stats/src/",
    "crates/measure/published/src/",
    "crates/measure/model/src/",
    "crates/measure/report/src/",
];

/// Uninformative file names.
const EMPTY_NAMES: &[&str] = &["common.rs", "utils.rs", "util.rs", "helpers.rs", "misc.rs"];

/// Returns the faults of one file.
pub(super) fn faults(source: &Source) -> Vec<Fault> {
    let mut faults = of_lines(source);
    let name = source.path.rsplit('/').next().unwrap_or_default();
    if EMPTY_NAMES.contains(&name) || name.contains("_manager") {
        faults.push(Fault {
            place: source.path.clone(),
            what: "a file's name must describe its content".to_owned(),
        });
    }
    if !source.path.starts_with("xtask/src/tidy") && names_absent_page(&source.text) {
        faults.push(Fault {
            place: source.path.clone(),
            what: "cites a page that is not in this tree".to_owned(),
        });
    }
    if !source.text.starts_with("//!") && !is_test_file(&source.path) {
        faults.push(Fault {
            place: source.path.clone(),
            what: "does not start with a description of its purpose".to_owned(),
        });
    }
    faults
}

/// Whether the text cites reference pages, which are not part of this tree.
fn names_absent_page(text: &str) -> bool {
    let is_reference = |word: &str| word.starts_with("reference/") && word.ends_with(".md");
    text.split(|letter: char| letter.is_whitespace() || "`(),;:".contains(letter))
        .any(is_reference)
}

/// Whether a file contains only tests or helpers of tests. Such a file is described where it is declared.
fn is_test_file(path: &str) -> bool {
    let named = ["/tests.rs", "/testing.rs"]
        .iter()
        .any(|name| path.ends_with(name));
    let within = ["/tests/", "/testing/"]
        .iter()
        .any(|folder| path.contains(folder));
    named || within || path.starts_with("fuzz/")
}

fn of_lines(source: &Source) -> Vec<Fault> {
    let tests_begin = source
        .text
        .lines()
        .position(|line| line.trim() == "#[cfg(test)]")
        .unwrap_or(usize::MAX);
    let mut faults = Vec::new();
    for (at, line) in source.text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        for what in of_code(&source.path, code, at >= tests_begin) {
            faults.push(Fault {
                place: format!("{}:{}", source.path, at + 1),
                what,
            });
        }
    }
    faults
}

/// Returns the faults of one line of code.
fn of_code(path: &str, code: &str, is_test: bool) -> Vec<String> {
    if path.starts_with("xtask/src/tidy") {
        return Vec::new(); // these files contain the forbidden names
    }
    let mut found = Vec::new();
    if !path.starts_with("crates/runtime/host/") && allows_unsafe(code) {
        found.push("unsafe code belongs in crates/runtime/host".to_owned());
    }
    for unfinished in ["todo!(", "unimplemented!(", "dbg!("] {
        if code.contains(unfinished) {
            found.push(format!("{}) is unfinished code", unfinished));
        }
    }
    let is_pure = !is_test && PURE.iter().any(|pure| path.starts_with(pure)) && !is_test_file(path);
    if is_pure && let Some(name) = IMPURE.iter().find(|name| code.contains(**name)) {
        found.push(format!("pure code must not use {name}"));
    }
    found
}

fn allows_unsafe(code: &str) -> bool {
    let blocks = [
        "unsafe {",
        "unsafe fn",
        "unsafe impl",
        "unsafe extern",
        "unsafe trait",
        "allow(unsafe_code)",
    ];
    blocks.iter().any(|form| code.contains(form))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_of(path: &str, text: &str) -> Vec<String> {
        let source = Source {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        faults(&source).iter().map(Fault::to_string).collect()
    }

    #[test]
    fn unsafe_has_one_home() {
        let text = "//! A file.\nfn f() {\n    unsafe { g() }\n}\n";
        assert_eq!(
            faults_of("crates/wire/iscsi/src/f.rs", text),
            ["crates/wire/iscsi/src/f.rs:3: unsafe code belongs in crates/runtime/host"]
        );
        assert!(faults_of("crates/runtime/host/src/f.rs", text).is_empty());
    }

    #[test]
    fn pure_code_never_asks_the_time_but_its_tests_may() {
        let text = "//! A file.\nfn f() { Instant::now(); }\n#[cfg(test)]\nmod tests { fn g() { Instant::now(); } }\n";
        assert_eq!(
            faults_of("crates/serve/logical_unit/src/f.rs", text).len(),
            1
        );
        assert!(faults_of("crates/runtime/host/src/f.rs", text).is_empty());
    }

    #[test]
    fn a_comment_may_name_anything() {
        assert!(
            faults_of(
                "crates/serve/logical_unit/src/f.rs",
                "//! Not std::net.\n// never todo!()\n"
            )
            .is_empty()
        );
    }

    #[test]
    fn a_file_says_what_it_is_for() {
        assert_eq!(
            faults_of("crates/serve/logical_unit/src/f.rs", "fn f() {}\n").len(),
            1
        );
        assert_eq!(
            faults_of("crates/serve/logical_unit/src/utils.rs", "//! Things.\n").len(),
            1
        );
        assert_eq!(
            faults_of(
                "crates/serve/logical_unit/src/f.rs",
                "//! As `reference/scsi.md`, 1, says.\n"
            )
            .len(),
            1
        );
    }
}
