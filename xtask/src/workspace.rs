//! Paths in the source tree, and its `cargo metadata`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::process;

/// Returns the root of the source tree: the parent of this crate's directory.
pub fn root() -> &'static Path {
    // xtask is directly below the root, so its manifest's directory has a parent.
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap_or(Path::new("."))
}

/// Returns Cargo's target directory: the default, or `CARGO_TARGET_DIR`.
pub fn target_directory() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => root().join(directory),
        None => root().join("target"),
    }
}

/// The profile of the packaged program, and its directory. Compared with `release`, which builds in a fraction of the time,
/// it saves a tenth of the instructions per command.
pub const SHIPPED: &str = "shipped";

/// Builds the program for packages and measurements, and returns its path.
pub fn release_binary() -> Result<PathBuf> {
    binary(&["--profile", SHIPPED], SHIPPED)
}

/// Builds the program as the tests use it, and returns its path. This build is faster than a release build,
/// but its program runs slower and contains assertions.
pub fn test_binary() -> Result<PathBuf> {
    built_by_tests("linerate").map_or_else(|| binary(&[], "debug"), Ok)
}

/// `cargo test --workspace` builds programs with the features that tests add to their dependencies. `cargo build` would
/// compile most crates again without them.
static ARE_BUILT_BY_TESTS: AtomicBool = AtomicBool::new(false);

/// Makes [`built_by_tests`] return the programs that `cargo test --workspace` has just built.
pub fn use_programs_of_tests() {
    ARE_BUILT_BY_TESTS.store(true, Ordering::Relaxed);
}

/// Returns the path of a program, if the tests have just built it.
pub fn built_by_tests(program: &str) -> Option<PathBuf> {
    let are_built = ARE_BUILT_BY_TESTS.load(Ordering::Relaxed);
    are_built.then(|| target_directory().join("debug").join(program))
}

fn binary(options: &[&str], folder: &str) -> Result<PathBuf> {
    let build = [&["build", "--package", "linerate"], options].concat();
    process::succeed(process::cargo(&build)).context("building the linerate binary")?;
    Ok(target_directory().join(folder).join("linerate"))
}

/// The parts of `cargo metadata` that tidy reads.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    /// The packages of the workspace.
    pub packages: Vec<Package>,
}

/// A member of the workspace.
#[derive(Debug, Deserialize)]
pub struct Package {
    /// The package's name.
    pub name: String,
    /// The path of the package's `Cargo.toml`.
    pub manifest_path: PathBuf,
    /// The packages that its code and its tests import.
    pub dependencies: Vec<Dependency>,
}

/// A dependency of a member, for its code, its tests or its build script.
#[derive(Debug, Deserialize)]
pub struct Dependency {
    /// The name of the package.
    pub name: String,
    /// The path of the package if it is in this source tree.
    pub path: Option<PathBuf>,
    /// `dev` or `build`; `None` for dependencies of the program itself.
    pub kind: Option<String>,
}

/// Reads the metadata of the workspace's own members.
pub fn metadata() -> Result<Metadata> {
    let output = process::capture(process::cargo(&[
        "metadata",
        "--no-deps",
        "--offline",
        "--format-version",
        "1",
    ]))?;
    serde_json::from_str(&output).context("reading the output of cargo metadata")
}
