//! Every third-party dependency is declared once, in the root manifest, and has a reason in docs/dependencies.md.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::Fault;
use xtask::workspace::Metadata;

/// Dependencies without a reason, reasons without a dependency, and dependencies not declared in the root manifest.
pub(super) fn faults(root: &Path, metadata: &Metadata) -> Result<Vec<Fault>> {
    let page = fs::read_to_string(root.join("docs/dependencies.md")).context("docs/dependencies.md")?;
    let manifest = fs::read_to_string(root.join("Cargo.toml")).context("Cargo.toml")?;
    let declared = declared(&manifest)?;
    let python = fs::read_to_string(root.join("python/Cargo.toml")).context("python/Cargo.toml")?;
    let all = declared.union(&of_python(&python)?).cloned().collect();
    let mut faults = compared(&all, &explained(&page));
    faults.extend(undeclared(&declared, metadata));
    Ok(faults)
}

/// The third-party names of the root's `[workspace.dependencies]`.
fn declared(manifest: &str) -> Result<BTreeSet<String>> {
    let manifest: toml::Table = manifest.parse().context("Cargo.toml")?;
    let table = manifest.get("workspace").and_then(|workspace| workspace.get("dependencies"));
    theirs(table).context("Cargo.toml has no [workspace.dependencies]")
}

/// The third-party dependencies of the Python module, which is a separate workspace.
fn of_python(manifest: &str) -> Result<BTreeSet<String>> {
    let manifest: toml::Table = manifest.parse().context("python/Cargo.toml")?;
    theirs(manifest.get("dependencies")).context("python/Cargo.toml has no [dependencies]")
}

fn theirs(table: Option<&toml::Value>) -> Option<BTreeSet<String>> {
    let table = table?.as_table()?;
    Some(
        table.iter().filter(|(_, value)| value.get("path").is_none()).map(|(name, _)| name.clone()).collect(),
    )
}

/// The names in the first column of the page's table.
fn explained(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split_once('`')).map(|(name, _)| name.to_owned()).collect()
}

fn compared(declared: &BTreeSet<String>, explained: &BTreeSet<String>) -> Vec<Fault> {
    let missing = declared.difference(explained).map(|name| format!("{name} has no reason"));
    let stale = explained.difference(declared).map(|name| format!("{name} is explained but not used"));
    missing.chain(stale).map(|what| Fault { place: "docs/dependencies.md".to_owned(), what }).collect()
}

fn undeclared(declared: &BTreeSet<String>, metadata: &Metadata) -> Vec<Fault> {
    let mut faults = Vec::new();
    for package in &metadata.packages {
        let theirs = package.dependencies.iter().filter(|dependency| dependency.path.is_none());
        for dependency in theirs.filter(|dependency| !declared.contains(&dependency.name)) {
            let place = package.manifest_path.display().to_string();
            let what = format!("{} is not in the root's [workspace.dependencies]", dependency.name);
            faults.push(Fault { place, what });
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &[&str]) -> BTreeSet<String> {
        of.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_dependency_needs_a_reason_and_a_reason_a_dependency() {
        let faults = compared(&names(&["serde", "libc"]), &names(&["serde", "rand"]));
        let faults: Vec<String> = faults.iter().map(Fault::to_string).collect();
        assert_eq!(
            faults,
            [
                "docs/dependencies.md: libc has no reason",
                "docs/dependencies.md: rand is explained but not used"
            ]
        );
    }

    #[test]
    fn our_own_crates_need_none() {
        let manifest = "[workspace.dependencies]\nblock = { path = \"crates/block\" }\nlibc = \"0.2\"\n";
        assert_eq!(declared(manifest).expect("valid"), names(&["libc"]));
    }

    #[test]
    fn the_page_is_a_table() {
        assert_eq!(explained("# Why\n| crate | why |\n|---|---|\n| `libc` | numbers |\n"), names(&["libc"]));
    }
}
