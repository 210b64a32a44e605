//! Imports configurations of other targets: tgt's `targets.conf` and LIO's `saveconfig.json`.
//!
//! [`read`] detects the format and parses the file ([`apache`] and [`json`] parse the formats, [`tgt`] and
//! [`lio`] interpret the keys) into a neutral model ([`san`]). It writes the model as a `linerate.toml`, and
//! checks the result like `serve --check`. No setting is dropped silently: a setting that could not be
//! carried over, or behaves differently, becomes a [`Note`] with its file and line, and a comment in the
//! text. If a restriction of access has no equivalent, the target is written as a comment, so that it never
//! becomes more open.
//!
//! The import only reads the file and the files that it includes. It does not open devices, and does not
//! query the kernel or a daemon.

mod apache;
mod json;
mod lio;
mod san;
#[cfg(test)]
mod tests;
mod tgt;

use std::path::Path;
use std::rc::Rc;

use backends::Failure;
use zeroize::Zeroizing;

use crate::config::Config;
use san::{Reader, San};

pub use san::Note;

/// The imported configuration, and notes on settings that are missing in it.
pub struct Imported {
    /// The text of a `linerate.toml`, which passes every check of `serve --check` that needs no device.
    pub text: Zeroizing<String>,
    /// Notes on settings that could not be carried over, in the order of the text.
    pub notes: Vec<Note>,
    /// Whether `text` contains CHAP secrets, so that only its owner may read it.
    pub has_secrets: bool,
}

/// Reads the configuration of another target at `path`.
///
/// # Errors
/// The file cannot be read, has neither format, has a syntax error (reported with its line), or includes too
/// many files or too much data.
pub fn read(path: &Path) -> Result<Imported, Failure> {
    let mut reader = Reader::default();
    let text = reader.read(path)?;
    let file: Rc<str> = path.display().to_string().into();
    let (kind, san): (&str, San) = if text.trim_start().starts_with('{') {
        ("LIO", lio::san(&json::Document::new(file, &text))?)
    } else {
        ("tgt", tgt::san(&apache::entries(path, &text, &mut reader)?))
    };
    imported(kind, path, &san)
}

fn imported(kind: &str, path: &Path, san: &San) -> Result<Imported, Failure> {
    if san.is_empty() {
        return Err(Failure::refused(format_args!(
            "{} defines neither targets nor storage; name a targets.conf of tgt, or a saveconfig.json of LIO",
            path.display()
        )));
    }
    let text = san::rendered(san, &format!("{} ({kind})", path.display()));
    match Config::parse("the imported configuration", &text) {
        Ok(_) => Ok(Imported {
            notes: san.all_notes(),
            has_secrets: san.has_secrets(),
            text,
        }),
        Err(error) => Err(Failure::failed(format_args!(
            "the configuration imported from {} is not valid, which is a bug in this program:\n{error}",
            path.display()
        ))),
    }
}
