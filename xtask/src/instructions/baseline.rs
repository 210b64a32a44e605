//! The counts that were accepted last: `xtask/instructions.toml`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::cell::{Cell, Counts};
use xtask::workspace;

/// Counts, and what made them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Baseline {
    pub(super) toolchain: String,
    /// By the cells' names.
    pub(super) cells: Vec<(String, Counts)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    toolchain: String,
    cell: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    target: u64,
    initiator: u64,
}

impl Baseline {
    pub(super) fn load() -> Result<Baseline> {
        let path = path();
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Baseline::parse(&text).with_context(|| path.display().to_string())
    }

    pub(super) fn store(&self) -> Result<()> {
        let path = path();
        fs::write(&path, self.text()).with_context(|| path.display().to_string())
    }

    /// Of a cell, if it was there.
    pub(super) fn counts(&self, cell: &Cell) -> Option<Counts> {
        let name = cell.name();
        self.cells.iter().find(|(known, _)| *known == name).map(|(_, counts)| *counts)
    }

    fn parse(text: &str) -> Result<Baseline> {
        let File { toolchain, cell } = toml::from_str(text)?;
        let counts = |entry: &Entry| Counts { target: entry.target, initiator: entry.initiator };
        Ok(Baseline {
            toolchain,
            cells: cell.into_iter().map(|entry| (entry.name.clone(), counts(&entry))).collect(),
        })
    }

    fn text(&self) -> String {
        let cells = self.cells.iter().map(|(name, Counts { target, initiator })| {
            format!("\n[[cell]]\nname = \"{name}\"\ntarget = {target}\ninitiator = {initiator}\n")
        });
        format!("{HEAD}toolchain = \"{}\"\n{}", self.toolchain, cells.collect::<String>())
    }
}

const HEAD: &str = "\
# Instructions for one command, of each end: what `cargo xtask instructions` compares with, and writes with --update.
# Counts of another toolchain than this one are shown beside them and not judged.
";

fn path() -> PathBuf {
    workspace::root().join("xtask/instructions.toml")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_what_is_loaded() {
        let cells = vec![("4 KiB read".to_owned(), Counts { target: 1, initiator: 2 })];
        let baseline = Baseline { toolchain: "x86_64, rustc 1.95.0 (59807616e)".to_owned(), cells };
        assert_eq!(Baseline::parse(&baseline.text()).expect("our own text"), baseline);
    }

    #[test]
    fn every_cell_has_its_baseline() {
        let baseline = Baseline::load().expect("the file is in the repository");
        for cell in super::super::CELLS {
            assert!(
                baseline.counts(cell).is_some(),
                "{}: run cargo xtask instructions --update",
                cell.name()
            );
        }
    }
}
