//! Every third-party dependency is declared once: in the root manifest, or in the manifest of the only crate
//! that uses it. The comment above the declaration is the reason for the dependency. The table in
//! docs/dependencies.md is written from these comments.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::Fault;
use xtask::workspace::Metadata;

const PAGE: &str = "docs/dependencies.md";

/// A line of a manifest with a version of a third-party dependency.
#[derive(Debug, PartialEq, Eq)]
struct Declaration {
    name: String,
    /// The comment above the declaration.
    reason: String,
    /// The manifest.
    place: String,
}

/// Returns dependencies without a reason, declared twice, or in a form that [`declared`] does not find. A
/// page that is out of date is a fault, and is updated.
pub(super) fn faults(root: &Path, metadata: &Metadata) -> Result<Vec<Fault>> {
    let crates = metadata
        .packages
        .iter()
        .map(|package| package.manifest_path.clone());
    let mut all = Vec::new();
    for manifest in std::iter::once(root.join("Cargo.toml")).chain(crates) {
        all.extend(read(root, &manifest)?);
    }
    // The Python module is a separate workspace, which shares most of the dependencies.
    let of_python = read(root, &root.join("python/Cargo.toml"))?;
    let is_known = |name: &str| all.iter().any(|known| known.name == name);
    let only_python: Vec<_> = of_python
        .into_iter()
        .filter(|one| !is_known(&one.name))
        .collect();
    all.extend(only_python);

    let mut faults = compared(&all);
    faults.extend(undeclared(&all, metadata));
    let page = fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    let updated = with_rows(&page, &all).with_context(|| format!("{PAGE} has no table"))?;
    if updated != page {
        fs::write(root.join(PAGE), updated).context(PAGE)?;
        let what = "was out of date, and has been updated: check the difference".to_owned();
        faults.push(Fault {
            place: PAGE.to_owned(),
            what,
        });
    }
    Ok(faults)
}

fn read(root: &Path, manifest: &Path) -> Result<Vec<Declaration>> {
    let place = manifest
        .strip_prefix(root)
        .unwrap_or(manifest)
        .display()
        .to_string();
    let text = fs::read_to_string(manifest).with_context(|| place.clone())?;
    Ok(declared(&text, &place))
}

/// Returns the third-party dependencies that a manifest declares: the lines of its dependency tables, with
/// the comments directly above them.
fn declared(manifest: &str, place: &str) -> Vec<Declaration> {
    let (mut declared, mut comment, mut is_table) = (Vec::new(), Vec::new(), false);
    for line in manifest.lines() {
        if let Some(text) = line.strip_prefix("# ") {
            comment.push(text);
            continue;
        }
        let reason = std::mem::take(&mut comment).join(" ");
        if line.starts_with('[') {
            is_table = line.ends_with("dependencies]");
        } else if is_table
            && let Some((name, value)) = line.split_once(" = ")
            && !value.contains("path = ")
            && !value.contains("workspace = true")
            && !name.ends_with(".workspace")
        {
            declared.push(Declaration {
                name: name.to_owned(),
                reason,
                place: place.to_owned(),
            });
        }
    }
    declared
}

fn compared(declared: &[Declaration]) -> Vec<Fault> {
    let mut places: BTreeMap<&str, &str> = BTreeMap::new();
    let mut faults = Vec::new();
    for Declaration {
        name,
        reason,
        place,
    } in declared
    {
        let mut fault = |what| {
            faults.push(Fault {
                place: place.clone(),
                what,
            })
        };
        if reason.is_empty() {
            fault(format!("{name} has no reason; write it in a comment above"));
        }
        if let Some(other) = places.insert(name, place) {
            fault(format!(
                "{name} is declared in {other} too; declare it once, in the root's Cargo.toml"
            ));
        }
    }
    faults
}

fn undeclared(declared: &[Declaration], metadata: &Metadata) -> Vec<Fault> {
    let names: BTreeSet<&str> = declared
        .iter()
        .map(|declaration| &*declaration.name)
        .collect();
    let mut faults = Vec::new();
    for package in &metadata.packages {
        let theirs = package
            .dependencies
            .iter()
            .filter(|dependency| dependency.path.is_none());
        for dependency in theirs.filter(|dependency| !names.contains(&*dependency.name)) {
            let place = package.manifest_path.display().to_string();
            let what = format!(
                "{} is not declared as one line, `name = version`",
                dependency.name
            );
            faults.push(Fault { place, what });
        }
    }
    faults
}

/// Returns the page with these dependencies in its first table.
fn with_rows(page: &str, declared: &[Declaration]) -> Option<String> {
    const DASHES: &str = "\n|---|---|\n";
    let (head, rest) = page.split_once(DASHES)?;
    let tail = rest.find("\n\n").map_or("", |end| &rest[end + 1..]);
    let by_name: BTreeMap<&str, &str> = declared
        .iter()
        .map(|one| (&*one.name, &*one.reason))
        .collect();
    let rows: String = by_name
        .iter()
        .map(|(name, reason)| format!("| `{name}` | {reason} |\n"))
        .collect();
    Some(format!("{head}{DASHES}{rows}{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "# A comment.\n[workspace.dependencies]\n# Ours\nblock = { path = \"crates/block\" }\n\n\
        # Others\n\n# calls and\n# constants\nlibc = \"0.2\"\nrand = { version = \"1\" }\n\n\
        [dev-dependencies]\nserde.workspace = true\ntokio = { workspace = true, features = [\"net\"] }\n\n\
        [features]\nfast = []\n";

    fn declaration(name: &str, reason: &str) -> Declaration {
        Declaration {
            name: name.to_owned(),
            reason: reason.to_owned(),
            place: "Cargo.toml".to_owned(),
        }
    }

    #[test]
    fn declarations_are_lines_with_a_version_and_reasons_are_comments_directly_above() {
        let expected = [
            declaration("libc", "calls and constants"),
            declaration("rand", ""),
        ];
        assert_eq!(declared(MANIFEST, "Cargo.toml"), expected);
    }

    #[test]
    fn a_dependency_needs_a_reason_and_one_declaration() {
        let faults = compared(&[
            declaration("libc", "constants"),
            declaration("rand", ""),
            declaration("libc", "too"),
        ]);
        let faults: Vec<String> = faults.iter().map(Fault::to_string).collect();
        assert_eq!(
            faults,
            [
                "Cargo.toml: rand has no reason; write it in a comment above",
                "Cargo.toml: libc is declared in Cargo.toml too; declare it once, in the root's Cargo.toml"
            ]
        );
    }

    #[test]
    fn the_page_has_a_row_for_each() {
        let page = "# Why\n\n| crate | reason |\n|---|---|\n| `old` | gone |\n\nMore.\n";
        let updated = with_rows(
            page,
            &[declaration("libc", "calls"), declaration("csv", "tables")],
        );
        let rows = "| `csv` | tables |\n| `libc` | calls |\n";
        assert_eq!(updated, Some(page.replace("| `old` | gone |\n", rows)));
    }
}
