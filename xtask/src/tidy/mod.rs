//! The rules of the source tree that a compiler does not hold: which crate may import which, where `unsafe` may
//! stand, what pure code may not touch, a reason for each dependency, lock files that fit, how long files are, links between
//! documents, and prose.
//!
//! Each rule is a function from what was read to the faults found, so that each is tested here on its own, and the
//! same functions run over the real tree both as `cargo xtask tidy` and as a test.

mod arrows;
mod dependencies;
mod links;
mod prose;
mod sources;

use derive_more::Display;

use anyhow::Result;

use xtask::process;
use xtask::tally::Verdict;
use xtask::workspace;

/// A rule broken somewhere.
#[derive(Debug, PartialEq, Eq, Display)]
#[display("{place}: {what}")]
pub(crate) struct Fault {
    /// A file of the tree, with `:line` where there is one, or a crate's name.
    place: String,
    what: String,
}

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Store lower counts of prose in xtask/prose.toml
    #[arg(long)]
    ratchet: bool,
}

/// Prints the faults, and the files a reader may find long.
pub(crate) fn run(options: &Options) -> Result<Verdict> {
    let root = workspace::root();
    let files = sources::read(root)?;
    for (path, lines) in sources::long(&files) {
        println!("note: {path} has {lines} lines, more than the {} a file should have", sources::LONG);
    }
    let prose = prose::count(root, &files)?;
    print!("{}", prose::summary(&prose));
    if options.ratchet {
        prose::Ratchet::load(root)?.lowered(&prose).store(root)?;
    }
    let mut faults = faults(&files)?;
    faults.extend(links::faults(root)?);
    faults.extend(prose::Ratchet::load(root)?.faults(&prose));
    for fault in &faults {
        println!("{fault}");
    }
    println!("tidy: {} files, {} faults", files.len(), faults.len());
    Ok(Verdict::of(faults.is_empty()))
}

fn faults(files: &[sources::Source]) -> Result<Vec<Fault>> {
    let metadata = workspace::metadata()?;
    let mut faults = arrows::faults(&metadata);
    faults.extend(files.iter().flat_map(sources::faults));
    faults.extend(dependencies::faults(workspace::root(), &metadata)?);
    faults.extend(["python", "fuzz"].into_iter().filter_map(lock_fault));
    Ok(faults)
}

/// Whether the lock file of a workspace of its own, which a build of the root's does not touch, has fallen behind the crates.
fn lock_fault(folder: &str) -> Option<Fault> {
    let manifest = format!("{folder}/Cargo.toml");
    let ask = ["metadata", "--locked", "--format-version", "1", "--manifest-path", &manifest];
    let error = process::capture(process::cargo(&ask)).err()?;
    let mended_by = format!("cargo metadata --manifest-path {manifest}");
    Some(Fault { place: format!("{folder}/Cargo.lock"), what: format!("{error:#} (`{mended_by}` mends it)") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_between_crates_are_as_designed() {
        let metadata = workspace::metadata().expect("cargo metadata");
        assert_eq!(arrows::faults(&metadata), []);
    }

    #[test]
    fn every_dependency_has_a_reason() {
        let metadata = workspace::metadata().expect("cargo metadata");
        assert_eq!(dependencies::faults(workspace::root(), &metadata).expect("readable"), []);
    }

    #[test]
    fn sources_keep_the_rules() {
        let files = sources::read(workspace::root()).expect("a readable tree");
        let faults: Vec<Fault> = files.iter().flat_map(sources::faults).collect();
        assert_eq!(faults, []);
    }
}
