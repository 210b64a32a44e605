//! Where things lie in the source tree, and what `cargo metadata` says of it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::process;

/// The root of the source tree: the folder above this crate's.
pub fn root() -> &'static Path {
    // xtask lies directly under the root, so its manifest's folder has a parent.
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Where cargo puts what it builds; `CARGO_TARGET_DIR` is obeyed.
pub fn target_directory() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => root().join(directory),
        None => root().join("target"),
    }
}

/// The profile of the packaged program, and its folder. It costs a tenth fewer instructions a command than `release`, which
/// builds in a fraction of the time.
pub const SHIPPED: &str = "shipped";

/// Builds the program that is packaged and measured, and returns its path.
pub fn release_binary() -> Result<PathBuf> {
    binary(&["--profile", SHIPPED], SHIPPED)
}

/// The same as the tests have it: at once there, slower, and with assertions.
pub fn test_binary() -> Result<PathBuf> {
    binary(&[], "debug")
}

fn binary(options: &[&str], folder: &str) -> Result<PathBuf> {
    let build = [&["build", "--package", "linerate"], options].concat();
    process::succeed(process::cargo(&build)).context("building the linerate binary")?;
    Ok(target_directory().join(folder).join("linerate"))
}

/// The part of `cargo metadata` that tidy reads.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    /// The packages of the workspace.
    pub packages: Vec<Package>,
}

/// A member of the workspace.
#[derive(Debug, Deserialize)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its `Cargo.toml`.
    pub manifest_path: PathBuf,
    /// The packages that its code and its tests import.
    pub dependencies: Vec<Dependency>,
}

/// What a member depends on, for building, testing or its build script.
#[derive(Debug, Deserialize)]
pub struct Dependency {
    /// The name of the package.
    pub name: String,
    /// Set for what lies in this source tree.
    pub path: Option<PathBuf>,
    /// `dev` or `build`; `None` for what the program itself imports.
    pub kind: Option<String>,
}

/// Asks cargo about the workspace's own members.
pub fn metadata() -> Result<Metadata> {
    let output =
        process::capture(process::cargo(&["metadata", "--no-deps", "--offline", "--format-version", "1"]))?;
    serde_json::from_str(&output).context("reading what cargo metadata printed")
}
