//! Who may import whom. The table is ARCHITECTURE.md's; what is not in it is forbidden, for tests as for the code.

use super::Fault;
use crate::workspace::{Metadata, Package};

/// A crate's package name and the crates of this tree that it may import.
const ARROWS: &[(&str, &[&str])] = &[
    ("linerate-block", &[]),
    ("linerate-iscsi", &[]), // a CDB is opaque bytes to a transport
    ("linerate-scsi", &[]),
    ("linerate-reactor", &["linerate-block"]),
    ("linerate-volume", &["linerate-block"]),
    ("linerate-contents", &["linerate-block"]),
    // Its logical unit is the SCSI face of a volume.
    ("linerate-unit", &["linerate-scsi", "linerate-block", "linerate-volume"]),
    ("linerate-host", &["linerate-block", "linerate-reactor"]),
    // What front ends share knows none of them, and no protocol.
    ("linerate-server", &["linerate-block", "linerate-volume", "linerate-reactor"]),
    // Neither host (the binary joins them) nor each other: a gateway is a target over a device that is a remote LUN.
    (
        "linerate-target",
        &[
            "linerate-block",
            "linerate-volume",
            "linerate-unit",
            "linerate-iscsi",
            "linerate-reactor",
            "linerate-server",
        ],
    ),
    ("linerate-initiator", &["linerate-scsi", "linerate-block", "linerate-iscsi", "linerate-reactor"]),
    // The one place where specifications meet a system and a network: `volume` knows neither.
    (
        "linerate-backends",
        &[
            "linerate-block",
            "linerate-volume",
            "linerate-contents",
            "linerate-iscsi",
            "linerate-reactor",
            "linerate-host",
            "linerate-initiator",
        ],
    ),
    // A server needs a world, and its volumes may be remote: what joins them is here, so that `server` and `target` know
    // neither.
    (
        "linerate-manage",
        &[
            "linerate-block",
            "linerate-volume",
            "linerate-unit",
            "linerate-iscsi",
            "linerate-reactor",
            "linerate-host",
            "linerate-server",
            "linerate-target",
            "linerate-backends",
        ],
    ),
    // It offloads to a target that has both ends, and makes files with holes.
    (
        "linerate-copy",
        &[
            "linerate-block",
            "linerate-volume",
            "linerate-contents",
            "linerate-reactor",
            "linerate-host",
            "linerate-initiator",
            "linerate-backends",
        ],
    ),
    // `host` is for its tests: what it mounts is behind FUSE.
    (
        "linerate-attach",
        &["linerate-block", "linerate-reactor", "linerate-host", "linerate-initiator", "linerate-backends"],
    ),
    // On nothing: when to stop a run is decided by it, so the workloads stand on it.
    ("linerate-stats", &[]),
    ("linerate-published", &[]),
    // A plan for the WAN says between which ends; a record, which ceilings are known.
    ("linerate-model", &["linerate-stats", "linerate-published"]),
    // The ceiling of an iSCSI target speaks iSCSI.
    (
        "linerate-bench",
        &[
            "linerate-block",
            "linerate-volume",
            "linerate-iscsi",
            "linerate-scsi",
            "linerate-reactor",
            "linerate-stats",
            "linerate-published",
            "linerate-model",
        ],
    ),
    // Orders and news have plans and records in them; `host` is for its tests.
    ("linerate-agent", &["linerate-reactor", "linerate-host", "linerate-bench"]),
    // Of this machine and of any storage that can be named.
    (
        "linerate-environment",
        &[
            "linerate-block",
            "linerate-volume",
            "linerate-iscsi",
            "linerate-reactor",
            "linerate-host",
            "linerate-initiator",
            "linerate-backends",
            "linerate-stats",
            "linerate-model",
            "linerate-bench",
        ],
    ),
    (
        "linerate-diagnose",
        &[
            "linerate-block",
            "linerate-contents",
            "linerate-iscsi",
            "linerate-reactor",
            "linerate-host",
            "linerate-initiator",
            "linerate-backends",
            "linerate-stats",
            "linerate-model",
            "linerate-bench",
            "linerate-environment",
        ],
    ),
    // Volumes for how sizes are written.
    (
        "linerate-report",
        &[
            "linerate-volume",
            "linerate-stats",
            "linerate-published",
            "linerate-model",
            "linerate-bench",
            "linerate-diagnose",
        ],
    ),
    ("linerate-lab", &["linerate-reactor", "linerate-host"]),
    // It opens storage and makes threads: what `bench` leaves to whoever runs it. Clients may work on a host of a lab.
    (
        "linerate-conduct",
        &[
            "linerate-block",
            "linerate-volume",
            "linerate-contents",
            "linerate-reactor",
            "linerate-host",
            "linerate-initiator",
            "linerate-backends",
            "linerate-stats",
            "linerate-bench",
            "linerate-environment",
            "linerate-agent",
            "linerate-lab",
        ],
    ),
    // The only measurement that brings its own target: nothing of it leaves the process.
    (
        "linerate-wan",
        &[
            "linerate-volume",
            "linerate-unit",
            "linerate-iscsi",
            "linerate-reactor",
            "linerate-host",
            "linerate-server",
            "linerate-target",
            "linerate-initiator",
            "linerate-backends",
            "linerate-model",
            "linerate-bench",
            "linerate-environment",
            "linerate-lab",
            "linerate-conduct",
        ],
    ),
    (
        "linerate",
        &[
            "linerate-block",
            "linerate-volume",
            "linerate-contents",
            "linerate-unit",
            "linerate-iscsi",
            "linerate-reactor",
            "linerate-host",
            "linerate-server",
            "linerate-target",
            "linerate-manage",
            "linerate-initiator",
            "linerate-backends",
            "linerate-copy",
            "linerate-attach",
            "linerate-stats",
            "linerate-published",
            "linerate-model",
            "linerate-bench",
            "linerate-agent",
            "linerate-environment",
            "linerate-diagnose",
            "linerate-report",
            "linerate-lab",
            "linerate-conduct",
            "linerate-wan",
        ],
    ),
    // A whole world: never shipped.
    (
        "linerate-sim",
        &[
            "linerate-block",
            "linerate-volume",
            "linerate-scsi",
            "linerate-unit",
            "linerate-iscsi",
            "linerate-reactor",
            "linerate-host",
            "linerate-server",
            "linerate-target",
            "linerate-initiator",
        ],
    ),
    // It builds the paths of the diagnosis' matrix, reads what a diagnosis prints, and times a digest by itself.
    (
        "xtask",
        &[
            "linerate-lab",
            "linerate-stats",
            "linerate-model",
            "linerate-bench",
            "linerate-diagnose",
            "linerate-iscsi",
        ],
    ),
];

/// Imports that the table does not allow, and crates that it does not know.
pub(super) fn faults(metadata: &Metadata) -> Vec<Fault> {
    metadata.packages.iter().flat_map(of_package).collect()
}

fn of_package(package: &Package) -> Vec<Fault> {
    let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == package.name) else {
        return vec![fault(package, "is not in the table of arrows (xtask/src/tidy/arrows.rs)".to_owned())];
    };
    let ours = package.dependencies.iter().filter(|dependency| dependency.path.is_some());
    ours.filter(|dependency| !allowed.contains(&dependency.name.as_str()))
        .map(|dependency| fault(package, format!("must not import {}", dependency.name)))
        .collect()
}

fn fault(package: &Package, what: String) -> Fault {
    Fault { place: package.name.clone(), what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn importing(name: &str, dependency: &str) -> Metadata {
        let dependency = Dependency { name: dependency.to_owned(), path: Some("anywhere".into()) };
        let package = Package {
            name: name.to_owned(),
            manifest_path: "Cargo.toml".into(),
            dependencies: vec![dependency],
        };
        Metadata { packages: vec![package] }
    }

    #[test]
    fn a_protocol_must_not_know_scsi() {
        let faults = faults(&importing("linerate-iscsi", "linerate-scsi"));
        assert_eq!(faults.len(), 1);
        assert_eq!(faults[0].to_string(), "linerate-iscsi: must not import linerate-scsi");
    }

    #[test]
    fn scsi_may_know_blocks() {
        assert_eq!(faults(&importing("linerate-unit", "linerate-block")), []);
    }

    #[test]
    fn a_new_crate_must_be_given_its_place() {
        assert_eq!(faults(&importing("linerate-surprise", "linerate-block")).len(), 1);
    }

    #[test]
    fn no_arrow_of_the_table_closes_a_circle() {
        // Each may import only what stands above it, once xtask and the order of the table are taken for granted.
        for (at, (name, allowed)) in ARROWS.iter().enumerate() {
            for import in *allowed {
                let above = ARROWS[..at].iter().any(|(other, _)| other == import);
                assert!(above, "{name} imports {import}, which stands below it");
            }
        }
    }
}
