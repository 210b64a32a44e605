//! Rules of the source tree that a compiler does not enforce: imports between crates, places for `unsafe`, limits on pure
//! code, reasons for dependencies, up-to-date lock files, file lengths, links between documents, and prose.
//!
//! Each rule is a function from file contents to faults, so it can be tested separately. The same functions check the real
//! tree, both in `cargo xtask tidy` and in tests.

mod arrows;
mod dependencies;
pub(crate) mod links;
mod prose;
mod sources;

use derive_more::Display;

use anyhow::Result;

use xtask::process;
use xtask::tally::Verdict;
use xtask::workspace;

/// A violation of a rule.
#[derive(Debug, PartialEq, Eq, Display)]
#[display("{place}: {what}")]
pub(crate) struct Fault {
    /// A file of the tree, with `:line` if known, or the name of a crate.
    place: String,
    what: String,
}

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Store lower counts of prose in xtask/prose.toml
    #[arg(long)]
    ratchet: bool,
}

/// Prints the faults, and notes long files.
pub(crate) fn run(options: &Options) -> Result<Verdict> {
    let root = workspace::root();
    let files = sources::read(root)?;
    for (path, lines) in sources::long(&files) {
        println!(
            "note: {path} has {lines} lines; a file should have up to {}",
            sources::LONG
        );
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
    faults.extend(lock_fault("python"));
    Ok(faults)
}

/// Checks that the lock file of a separate workspace is up to date with the crates; builds of the root workspace do not
/// update it.
fn lock_fault(folder: &str) -> Option<Fault> {
    let manifest = format!("{folder}/Cargo.toml");
    let ask = [
        "metadata",
        "--locked",
        "--format-version",
        "1",
        "--manifest-path",
        &manifest,
    ];
    let error = process::capture(process::cargo(&ask)).err()?;
    let update = format!("cargo metadata --manifest-path {manifest}");
    Some(Fault {
        place: format!("{folder}/Cargo.lock"),
        what: format!("{error:#} (`{update}` updates it)"),
    })
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
        assert_eq!(
            dependencies::faults(workspace::root(), &metadata).expect("readable"),
            []
        );
    }

    #[test]
    fn sources_keep_the_rules() {
        let files = sources::read(workspace::root()).expect("a readable tree");
        let faults: Vec<Fault> = files.iter().flat_map(sources::faults).collect();
        assert_eq!(faults, []);
    }
}
