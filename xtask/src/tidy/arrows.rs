//! Permitted imports between crates (`xtask/arrows.txt`). All other imports are faults, even in tests.

use super::Fault;
use xtask::workspace::{Dependency, Metadata, Package};

const TABLE: &str = include_str!("../../arrows.txt");

/// Each crate of the table, and the crates of this tree that it may import.
fn arrows() -> impl Iterator<Item = (&'static str, &'static str)> {
    let rows = TABLE.lines().filter(|line| !line.starts_with('#'));
    rows.map(|row| row.split_once(':').unwrap_or((row, "")))
}

/// The crates that only tests import: devices and networks, and the servers of others.
const FOR_TESTS: [&str; 2] = ["testkit", "xtask"];

/// Returns imports that the table does not permit, and crates that the table does not contain.
pub(super) fn faults(metadata: &Metadata) -> Vec<Fault> {
    metadata.packages.iter().flat_map(of_package).collect()
}

fn of_package(package: &Package) -> Vec<Fault> {
    let Some((_, allowed)) = arrows().find(|(name, _)| *name == short(&package.name)) else {
        return vec![fault(
            package,
            "is not in the table of arrows (xtask/arrows.txt)".to_owned(),
        )];
    };
    let ours = package
        .dependencies
        .iter()
        .filter(|dependency| dependency.path.is_some());
    let is_of_tests = |dependency: &&Dependency| {
        FOR_TESTS.contains(&short(&dependency.name)) && dependency.kind.as_deref() == Some("dev")
    };
    ours.filter(|dependency| {
        !allowed
            .split(' ')
            .any(|name| name == short(&dependency.name))
            && !is_of_tests(dependency)
    })
    .map(|dependency| fault(package, format!("must not import {}", dependency.name)))
    .collect()
}

/// Returns the name of a package in the table.
fn short(package: &str) -> &str {
    package.strip_prefix("linerate-").unwrap_or(package)
}

fn fault(package: &Package, what: String) -> Fault {
    Fault {
        place: package.name.clone(),
        what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn importing(name: &str, dependency: &str) -> Metadata {
        importing_for(None, name, dependency)
    }

    fn importing_for(kind: Option<&str>, name: &str, dependency: &str) -> Metadata {
        let kind = kind.map(str::to_owned);
        let dependency = Dependency {
            name: dependency.to_owned(),
            path: Some("anywhere".into()),
            kind,
        };
        let package = Package {
            name: name.to_owned(),
            manifest_path: "Cargo.toml".into(),
            dependencies: vec![dependency],
        };
        Metadata {
            packages: vec![package],
        }
    }

    #[test]
    fn a_protocol_must_not_know_scsi() {
        let faults = faults(&importing("linerate-iscsi", "linerate-scsi"));
        assert_eq!(faults.len(), 1);
        assert_eq!(
            faults[0].to_string(),
            "linerate-iscsi: must not import linerate-scsi"
        );
    }

    #[test]
    fn scsi_may_know_blocks() {
        assert_eq!(
            faults(&importing("linerate-logical-unit", "linerate-block")),
            []
        );
    }

    #[test]
    fn only_tests_may_know_the_testkit() {
        assert_eq!(
            faults(&importing_for(
                Some("dev"),
                "linerate-iscsi",
                "linerate-testkit"
            )),
            []
        );
        assert_eq!(
            faults(&importing("linerate-iscsi", "linerate-testkit")).len(),
            1
        );
    }

    #[test]
    fn a_new_crate_must_be_given_its_place() {
        assert_eq!(
            faults(&importing("linerate-surprise", "linerate-block")).len(),
            1
        );
    }

    #[test]
    fn no_arrow_of_the_table_closes_a_circle() {
        // A crate may import only crates above it in the table.
        for (at, (name, allowed)) in arrows().enumerate() {
            for import in allowed.split_whitespace() {
                let above = arrows().take(at).any(|(other, _)| other == import);
                assert!(above, "{name} imports {import}, which is not above it");
            }
        }
    }
}
