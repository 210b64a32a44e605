//! Configurations of other targets as ours: tgt's `targets.conf` and LIO's `saveconfig.json`.
//!
//! [`read`] tells them apart, reads one ([`apache`] and [`json`] know the formats, [`tgt`] and [`lio`] what their keys mean)
//! into a neutral model ([`san`]), writes that as a `linerate.toml` and has it checked as `serve --check` does. Nothing is
//! dropped in silence: what could not be carried over, or behaves differently, is a [`Note`] with its file and line, and
//! a comment where it belongs in the text. What restricts access and has no equal here never makes a target more open:
//! such a target is written as a comment.
//!
//! Devices are not opened, and no kernel or daemon is asked: a file is read, with what it includes, and that is all.

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

/// A configuration of ours, and what of the other one is not in it.
pub struct Imported {
    /// The text of a `linerate.toml`, which passes every check of `serve --check` that needs no device.
    pub text: Zeroizing<String>,
    /// What could not be carried over, in the order of the text.
    pub notes: Vec<Note>,
    /// Whether `text` holds CHAP secrets, so that only its owner may read it.
    pub has_secrets: bool,
}

/// Reads the configuration of another target at `path`.
///
/// # Errors
/// It cannot be read, is neither format, has a syntax error (with its line), or includes too much.
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
            "{} has neither a target nor storage; is it a targets.conf of tgt, or a saveconfig.json of LIO?",
            path.display()
        )));
    }
    let text = san::rendered(san, &format!("{} ({kind})", path.display()));
    match Config::parse("the imported configuration", &text) {
        Ok(_) => Ok(Imported { notes: san.all_notes(), has_secrets: san.has_secrets(), text }),
        Err(error) => Err(Failure::failed(format_args!(
            "{} makes no valid configuration, which is a fault of this program:\n{error}",
            path.display()
        ))),
    }
}
