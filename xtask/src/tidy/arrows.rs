//! Permitted imports between crates, as in the table of ARCHITECTURE.md. All other imports are faults, even
//! in tests.

use super::Fault;
use xtask::workspace::{Dependency, Metadata, Package};

/// Each crate and the crates of this tree that it may import, without their packages' prefix `linerate-`.
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
    // The tests of every crate may import it, but shipped code may not.
    ("testkit", "block reactor"),
    ("tls", "foreign reactor"),
    ("volume", "block"),
    ("disk-contents", "block"),
    // Members are devices, so the crate needs neither a network nor files.
    ("raid", "block"),
    // Presents a volume as a SCSI logical unit.
    ("logical-unit", "scsi block volume"),
    ("host", "block reactor"),
    // Code shared by all front ends, independent of each and of any protocol.
    ("front-end-core", "block volume reactor"),
    // Code shared by front ends that carry SCSI.
    (
        "scsi-session",
        "block volume logical-unit reactor front-end-core",
    ),
    // Front ends import neither host (the binary combines them) nor each other: a gateway is a target over a device that is
    // a remote LUN.
    (
        "iscsi-server",
        "block volume logical-unit iscsi reactor front-end-core scsi-session",
    ),
    ("nbd-server", "block volume nbd reactor tls front-end-core"),
    ("aoe-server", "block volume aoe reactor front-end-core"),
    (
        "hyperscsi-server",
        "block volume logical-unit hyperscsi reactor front-end-core scsi-session",
    ),
    ("failover", "block reactor"),
    // `volume` is for the format of times; `failover` is for LUNs over several sessions.
    ("iscsi-client", "scsi block volume failover iscsi reactor"),
    ("nbd-client", "block volume failover nbd reactor tls"),
    // The server is for tests, with both ends on a simulated Ethernet.
    (
        "aoe-client",
        "block volume failover aoe reactor front-end-core aoe-server",
    ),
    // Its LUNs are the initiator's LUNs, over another protocol. Its tests serve a LUN in memory, and have
    // both ends on a simulated Ethernet.
    (
        "hyperscsi-client",
        "block volume hyperscsi scsi logical-unit reactor host front-end-core iscsi-client hyperscsi-server",
    ),
    // Runs each session on its own thread and runtime environment, for programs with another runtime.
    ("blocking", "block reactor host iscsi-client"),
    // Opens specifications on a system and a network, on neither of which `volume` depends.
    (
        "backends",
        "block volume disk-contents raid failover iscsi reactor host tls iscsi-client nbd-client aoe-client \
         hyperscsi-client",
    ),
    // No imports: it decides when a run stops, so the workloads depend on it.
    ("stats", ""),
    // Combines a server with a runtime environment and with volumes, which can be remote, so that `front_end_core` and
    // `iscsi_server` depend on neither.
    (
        "daemon",
        "block volume disk-contents logical-unit foreign readable iscsi nbd aoe hyperscsi reactor host tls front-end-core scsi-session \
         iscsi-server nbd-server aoe-server hyperscsi-server backends",
    ),
    // Offloads a copy to a target that has both source and destination, and creates sparse files.
    (
        "copy",
        "block volume disk-contents reactor host iscsi-client backends",
    ),
    // `host` is for tests, because their mounts go through FUSE. `volume` is for volumes attached by
    // specification.
    ("attach", "block volume reactor host iscsi-client backends"),
    // Information on targets and LUNs, printed by commands of the program and by `environment`.
    (
        "inspect",
        "block volume foreign readable iscsi reactor iscsi-client nbd-client backends",
    ),
    ("published", ""),
    // `block` is for the properties of a disk.
    ("model", "block stats published"),
    (
        "bench",
        "block volume readable reactor stats published model",
    ),
    // Its messages contain plans and records; `host` is for tests.
    ("agent", "foreign reactor host bench"),
    // Describes this machine and any storage that a location can specify.
    (
        "environment",
        "block volume foreign readable iscsi reactor host iscsi-client backends inspect model bench",
    ),
    (
        "diagnose",
        "block disk-contents foreign readable iscsi reactor host iscsi-client nbd-client backends stats model bench environment",
    ),
    // `volume` is for the format of sizes.
    (
        "report",
        "volume foreign readable stats published model bench diagnose",
    ),
    ("lab", "block reactor host"),
    // Opens storage and starts threads, which `bench` does not. Clients can run on a host of a lab. Reports are stored in the
    // directory of a record.
    (
        "bench-runner",
        "block volume disk-contents foreign readable reactor host iscsi-client backends stats bench environment agent report lab",
    ),
    // The only measurement with its own target, which runs within the process.
    (
        "wan",
        "block volume logical-unit iscsi hyperscsi reactor host front-end-core iscsi-server nbd-server hyperscsi-server iscsi-client backends \
         model bench environment lab bench-runner",
    ),
    // Runs the tests of the source documents in labs; `wan` is for its flows of plain TCP.
    (
        "reproduce",
        "volume backends reactor published bench report lab bench-runner wan",
    ),
    (
        "linerate",
        "block volume disk-contents logical-unit foreign readable iscsi aoe hyperscsi reactor host front-end-core iscsi-server daemon iscsi-client blocking backends \
         inspect copy attach stats published model bench agent environment diagnose report lab bench-runner wan reproduce",
    ),
    // Both ends, connected through memory, in a separate program that builds fast. Not shipped.
    (
        "instructions",
        "block volume logical-unit reactor host front-end-core iscsi-server iscsi-client",
    ),
    // Simulates a complete environment. Not shipped.
    (
        "sim",
        "block volume scsi logical-unit iscsi reactor host front-end-core iscsi-server nbd-server nbd-client iscsi-client testkit",
    ),
    // Fuzzes parsers and protocol machines. Not shipped.
    (
        "fuzz",
        "block iscsi nbd aoe hyperscsi scsi reactor volume disk-contents raid logical-unit daemon iscsi-client bench agent",
    ),
    // Every test run builds it first, so it imports no other crate.
    ("xtask", ""),
    // Builds the paths of the diagnosis matrix, parses diagnoses, and measures the speed of a digest.
    (
        "measurements",
        "block lab stats model published diagnose iscsi xtask",
    ),
];

/// The crates that only tests import: devices and networks, and the servers of others.
const FOR_TESTS: [&str; 2] = ["testkit", "xtask"];

/// Returns imports that the table does not permit, and crates that the table does not contain.
pub(super) fn faults(metadata: &Metadata) -> Vec<Fault> {
    metadata.packages.iter().flat_map(of_package).collect()
}

fn of_package(package: &Package) -> Vec<Fault> {
    let Some((_, allowed)) = ARROWS
        .iter()
        .find(|(name, _)| *name == short(&package.name))
    else {
        return vec![fault(
            package,
            "is not in the table of arrows (xtask/src/tidy/arrows.rs)".to_owned(),
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
        for (at, (name, allowed)) in ARROWS.iter().enumerate() {
            for import in allowed.split_whitespace() {
                let above = ARROWS[..at].iter().any(|(other, _)| *other == import);
                assert!(above, "{name} imports {import}, which is not above it");
            }
        }
    }
}
