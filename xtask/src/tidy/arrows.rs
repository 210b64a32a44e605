//! Who may import whom. The table is ARCHITECTURE.md's; what is not in it is forbidden, for tests as for the code.

use super::Fault;
use xtask::workspace::{Dependency, Metadata, Package};

/// A crate and the crates of this tree that it may import, without the `linerate-` that their packages begin with.
const ARROWS: &[(&str, &str)] = &[
    ("block", ""),
    ("iscsi", ""), // a CDB is opaque bytes to a transport
    ("foreign", ""),
    ("readable", ""),
    ("nbd", "foreign"),
    ("aoe", ""),
    ("hyperscsi", ""),
    ("scsi", "foreign"),
    ("reactor", "block"),
    // The tests of every crate may import it, and nothing that is shipped.
    (TESTKIT, "block reactor"),
    ("tls", "foreign reactor"),
    ("volume", "block"),
    ("disk-contents", "block"),
    // Members are devices; no network, no file.
    ("raid", "block"),
    // Its logical unit is the SCSI face of a volume.
    ("logical-unit", "scsi block volume"),
    ("host", "block reactor"),
    // What front ends share knows none of them, and no protocol.
    ("front-end-core", "block volume reactor"),
    // What front ends that carry SCSI share.
    ("scsi-session", "block volume logical-unit reactor front-end-core"),
    // Neither host (the binary joins them) nor each other: a gateway is a target over a device that is a remote LUN.
    ("iscsi-server", "block volume logical-unit iscsi reactor front-end-core scsi-session"),
    ("nbd-server", "block volume nbd reactor tls front-end-core"),
    ("aoe-server", "block volume aoe reactor front-end-core"),
    ("hyperscsi-server", "block volume logical-unit hyperscsi reactor front-end-core scsi-session"),
    ("failover", "block reactor"),
    // Volumes for how times are written; channels for LUNs by several sessions.
    ("iscsi-client", "scsi block volume failover iscsi reactor"),
    ("nbd-client", "block volume failover nbd reactor tls"),
    // The server is for its tests: both ends on one simulated Ethernet.
    ("aoe-client", "block volume failover aoe reactor front-end-core aoe-server"),
    // Its LUNs are the initiator's, over another protocol. Its tests serve one of memory.
    ("hyperscsi-client", "block volume hyperscsi scsi logical-unit reactor host iscsi-client"),
    // It gives a session a thread and a world of its own, for programs that have another runtime.
    ("blocking", "block reactor host iscsi-client"),
    // The one place where specifications meet a system and a network: `volume` knows neither.
    (
        "backends",
        "block volume disk-contents raid failover iscsi reactor host tls iscsi-client nbd-client aoe-client \
         hyperscsi-client",
    ),
    // On nothing: when to stop a run is decided by it, so the workloads stand on it.
    ("stats", ""),
    // A server needs a world, and its volumes may be remote: what joins them is here, so that `front_end_core` and `iscsi_server` know
    // neither.
    (
        "daemon",
        "block volume disk-contents logical-unit foreign readable iscsi nbd aoe hyperscsi reactor host tls front-end-core scsi-session \
         iscsi-server nbd-server aoe-server hyperscsi-server backends",
    ),
    // It offloads to a target that has both ends, and makes files with holes.
    ("copy", "block volume disk-contents reactor host iscsi-client backends"),
    // `host` is for its tests: what it mounts is behind FUSE. Volumes for what is attached by a specification.
    ("attach", "block volume reactor host iscsi-client backends"),
    // What commands of the program and `environment` both print of targets and LUNs.
    ("inspect", "block volume foreign readable iscsi reactor iscsi-client nbd-client backends"),
    ("published", ""),
    // Blocks for what a disk is.
    ("model", "block stats published"),
    ("bench", "block volume readable reactor stats published model"),
    // Orders and news have plans and records in them; `host` is for its tests.
    ("agent", "reactor host bench"),
    // Of this machine and of any storage that can be named.
    (
        "environment",
        "block volume foreign readable iscsi reactor host iscsi-client backends inspect model bench",
    ),
    (
        "diagnose",
        "block disk-contents foreign readable iscsi reactor host iscsi-client nbd-client backends stats model bench environment",
    ),
    // Volumes for how sizes are written.
    ("report", "volume foreign readable stats published model bench diagnose"),
    ("lab", "block reactor host"),
    // It opens storage and makes threads, which `bench` does not. Clients may work on a host of a lab. Reports
    // lie in the folder of a record.
    (
        "bench-runner",
        "block volume disk-contents foreign readable reactor host iscsi-client backends stats published bench environment agent report lab",
    ),
    // The only measurement that brings its own target: nothing of it leaves the process.
    (
        "wan",
        "block volume logical-unit iscsi hyperscsi reactor host front-end-core iscsi-server nbd-server hyperscsi-server iscsi-client backends \
         model bench environment lab bench-runner",
    ),
    (
        "linerate",
        "block volume disk-contents logical-unit foreign readable iscsi aoe hyperscsi reactor host front-end-core iscsi-server daemon iscsi-client blocking backends \
         inspect copy attach stats published model bench agent environment diagnose report lab bench-runner wan",
    ),
    // Both ends over memory, in a program of its own that builds fast: never shipped.
    ("instructions", "block volume logical-unit reactor host front-end-core iscsi-server iscsi-client"),
    // A whole world: never shipped.
    (
        "sim",
        "block volume scsi logical-unit iscsi reactor host front-end-core iscsi-server nbd-server nbd-client iscsi-client testkit",
    ),
    // Every test run builds it first, so it imports none of the others.
    ("xtask", ""),
    // It builds the paths of the diagnosis' matrix, reads what a diagnosis prints, and times a digest by itself.
    ("measurements", "block lab stats model published diagnose iscsi xtask"),
];

/// What only tests import.
const TESTKIT: &str = "testkit";

/// Imports that the table does not allow, and crates that it does not know.
pub(super) fn faults(metadata: &Metadata) -> Vec<Fault> {
    metadata.packages.iter().flat_map(of_package).collect()
}

fn of_package(package: &Package) -> Vec<Fault> {
    let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == short(&package.name)) else {
        return vec![fault(package, "is not in the table of arrows (xtask/src/tidy/arrows.rs)".to_owned())];
    };
    let ours = package.dependencies.iter().filter(|dependency| dependency.path.is_some());
    let is_of_tests = |dependency: &&Dependency| {
        short(&dependency.name) == TESTKIT && dependency.kind.as_deref() == Some("dev")
    };
    ours.filter(|dependency| {
        !allowed.split(' ').any(|name| name == short(&dependency.name)) && !is_of_tests(dependency)
    })
    .map(|dependency| fault(package, format!("must not import {}", dependency.name)))
    .collect()
}

/// A package as the table names it.
fn short(package: &str) -> &str {
    package.strip_prefix("linerate-").unwrap_or(package)
}

fn fault(package: &Package, what: String) -> Fault {
    Fault { place: package.name.clone(), what }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn importing(name: &str, dependency: &str) -> Metadata {
        importing_for(None, name, dependency)
    }

    fn importing_for(kind: Option<&str>, name: &str, dependency: &str) -> Metadata {
        let kind = kind.map(str::to_owned);
        let dependency = Dependency { name: dependency.to_owned(), path: Some("anywhere".into()), kind };
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
        assert_eq!(faults(&importing("linerate-logical-unit", "linerate-block")), []);
    }

    #[test]
    fn only_tests_may_know_the_testkit() {
        assert_eq!(faults(&importing_for(Some("dev"), "linerate-iscsi", "linerate-testkit")), []);
        assert_eq!(faults(&importing("linerate-iscsi", "linerate-testkit")).len(), 1);
    }

    #[test]
    fn a_new_crate_must_be_given_its_place() {
        assert_eq!(faults(&importing("linerate-surprise", "linerate-block")).len(), 1);
    }

    #[test]
    fn no_arrow_of_the_table_closes_a_circle() {
        // Each may import only what stands above it, once xtask and the order of the table are taken for granted.
        for (at, (name, allowed)) in ARROWS.iter().enumerate() {
            for import in allowed.split_whitespace() {
                let above = ARROWS[..at].iter().any(|(other, _)| *other == import);
                assert!(above, "{name} imports {import}, which stands below it");
            }
        }
    }
}
