//! Loads suites by name or from a file.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use backends::Failure;
use bench::fio_job::{self, Jobs};
use bench::icf;
use bench::plan::Suite;
use bench::suite::{self, wan};
use readable::table::hanging;
use volume::spec::hint;

/// Maximum length of a file. The longest preset has a few thousand bytes, so a longer file is not a suite.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Returns the suite with this name, or in this file.
pub fn suite(name: &str) -> Result<Suite, Failure> {
    let path = Path::new(name);
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => {
            let text = text(path)?;
            suite::parse(&text).map_err(|error| Failure::refused(format!("{name}: {error}")))
        }
        Some(extension) if extension.eq_ignore_ascii_case("icf") => {
            let setup = icf::parse(&text(path)?);
            let setup = setup.map_err(|error| Failure::refused(format!("{name}: {error}")))?;
            Ok(setup.suite(&named_after(path)))
        }
        _ => suite::named(name).ok_or_else(|| unknown(name)),
    }
}

/// Parses a fio file, ignoring the options in `without`. Returns its jobs, and a name for their suite.
pub fn jobs(path: &Path, without: &[String]) -> Result<(String, Jobs), Failure> {
    let jobs = fio_job::parse(&text(path)?, without).map_err(|mistakes| {
        let lines: Vec<String> = mistakes
            .iter()
            .map(|mistake| format!("{}: {mistake}", path.display()))
            .collect();
        Failure::refused(lines.join("\n"))
    })?;
    Ok((named_after(path), jobs))
}

/// Returns a suite name for a file without one: the file's name, in the syntax of suite names.
fn named_after(path: &Path) -> String {
    let stem = path
        .file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or_default()
        .to_lowercase();
    let dashed: String = stem
        .chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() {
                letter
            } else {
                '-'
            }
        })
        .take(40)
        .collect();
    match dashed.trim_matches('-') {
        "" => "imported".to_owned(),
        name => name.to_owned(),
    }
}

fn unknown(name: &str) -> Failure {
    let names: Vec<_> = suite::names().chain([wan::NAME]).collect();
    Failure::refused(format!("unknown suite `{name}`{}", hint(name, &names)))
}

fn text(path: &Path) -> Result<String, Failure> {
    let unread = |why: String| Failure::refused(format!("cannot read {}: {why}", path.display()));
    let file = File::open(path).map_err(|error| unread(error.to_string()))?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unread(error.to_string()))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(unread(format!(
            "the file is longer than {FILE_BYTES_MAX} bytes"
        )));
    }
    String::from_utf8(bytes).map_err(|_| unread("the file is not valid UTF-8".to_owned()))
}

/// Returns the output of `--list`, in lines of up to `width` letters.
pub fn listed(width: usize) -> String {
    let lines =
        |name: &str, title: &str| hanging(&format!("{name:<16} "), title, width).join("\n") + "\n";
    let suite = |suite: &Suite| {
        let writes = if suite.writes() {
            " (writes, if allowed)"
        } else {
            ""
        };
        lines(&suite.name, &format!("{}{writes}", suite.title))
    };
    suite::presets()
        .iter()
        .map(suite)
        .chain([lines(wan::NAME, wan::TITLE)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(name: &str) -> String {
        suite(name).expect_err(name).to_string()
    }

    #[test]
    fn an_unknown_suite_is_answered_with_those_there_are() {
        assert_eq!(
            why("vmware"),
            "unknown suite `vmware`; did you mean `vmware4`?"
        );
        assert!(
            why("zzzzzzzz").contains("known are `quick`"),
            "{}",
            why("zzzzzzzz")
        );
    }

    #[test]
    fn a_file_that_is_no_suite_is_named_with_the_place_of_the_mistake() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mine.toml");
        let name = path.to_str().expect("text");
        assert!(why(name).contains("cannot read"));
        std::fs::write(&path, "name = \"mine\"\nsteps = 5\n").expect("a file");
        assert!(why(name).contains("mine.toml: line "), "{}", why(name));
        std::fs::write(&path, vec![b' '; 2 << 20]).expect("a file");
        assert!(why(name).contains("longer"), "{}", why(name));
        let path = folder.path().join("mine.icf");
        std::fs::write(
            &path,
            "Version 1.1.0 \n'TEST SETUP ====\n'Run Time\n\tsoon\n",
        )
        .expect("a file");
        let said = why(path.to_str().expect("text"));
        assert!(said.contains("mine.icf: line 4, column "), "{said}");
    }

    #[test]
    fn iometers_file_is_a_suite_of_its_name_or_has_a_place_where_it_is_wrong() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("The Four (2009).ICF");
        let name = path.to_str().expect("text");
        let good = include_str!("../../bench/tests/data/vmware4.icf");
        std::fs::write(&path, good).expect("a file");
        let suite = suite(name).expect("a suite");
        assert_eq!(
            (suite.name.as_str(), suite.cells().count()),
            ("the-four--2009", 4)
        );
        std::fs::write(&path, good.replace("8192,100,65", "8192,100,650")).expect("a file");
        let wrong =
            "line 42, column 11: % reads: expected a whole number from 0 to 100, found `650`";
        assert!(why(name).ends_with(wrong), "{}", why(name));
    }

    #[test]
    fn every_preset_is_listed() {
        let listed = listed(80);
        assert!(suite::names().all(|name| listed.contains(&format!("{name} "))));
    }
}
