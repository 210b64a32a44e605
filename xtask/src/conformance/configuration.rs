//! The configurations that the suite's tests need, each with its own server.

use super::cunit::Test;

/// 100 MiB: enough for the largest transfer of the suite, and quick to overwrite.
pub(super) const SIZE_BYTES: u64 = 100 << 20;

/// A server to run tests against.
#[derive(Debug)]
pub(super) struct Configuration {
    pub(super) name: &'static str,
    /// The configuration's description on the page.
    pub(super) what: &'static str,
    /// Its volume's specification. `{state}` is the server's state directory, `{far}` the URL of the volume in
    /// [`Configuration::far`], and `{rbd}` an image of a Ceph cluster that is started for it.
    pub(super) volume: &'static str,
    /// The volume of a second Linerate server, to which this server is a gateway.
    pub(super) far: Option<&'static str>,
    /// Number of portals; with two, the tool uses both as paths to the same logical unit.
    pub(super) listeners: usize,
    /// Families, or `Family.Test`, that need this configuration; a quick run includes only these.
    needed_by: &'static [&'static str],
    /// Whether even a full run includes only those tests.
    only_needed: bool,
    /// Permitted changes to the medium.
    medium: Medium,
    /// Whether this configuration runs only if named with `--configuration`, because it takes minutes.
    pub(super) is_long: bool,
}

/// Permitted changes to a configuration's medium.
#[derive(Debug)]
enum Medium {
    /// All changes.
    Writable,
    /// No changes. Without `--dataloss`, the tool skips the tests that require a change.
    Protected {
        /// Tests that run with `--dataloss` here, because they write nothing or test that writes fail.
        destructive: &'static [&'static str],
        /// Tests that write even without `--dataloss`, and so cannot run here.
        unfit: &'static [&'static str],
    },
}

/// Whether a test's name starts with any of these prefixes.
fn begins_with_any(test: &Test, prefixes: &[&str]) -> bool {
    prefixes
        .iter()
        .any(|prefix| test.name().starts_with(prefix))
}

/// Defaults: one portal and a writable medium.
const USUAL: Configuration = Configuration {
    name: "",
    what: "",
    volume: "",
    far: None,
    listeners: 1,
    needed_by: &[],
    only_needed: false,
    medium: Medium::Writable,
    is_long: false,
};

/// `slow` comes first, because it takes longest and mostly waits.
pub(super) const ALL: &[Configuration] = &[
    Configuration {
        name: "slow",
        what: "every request takes 200 ms, for the one test that needs a SANITIZE to take seconds",
        volume: "delay:200ms:[ram:100MiB]",
        needed_by: &["Sanitize.Reset"],
        only_needed: true,
        ..USUAL
    },
    Configuration {
        name: "plain",
        what: "512-byte logical and physical blocks, thin provisioned",
        volume: "ram:100MiB?physical=512",
        needed_by: &[""], // matches every name
        ..USUAL
    },
    Configuration {
        name: "thick",
        what: "as `plain`, but not thin provisioned, for WRITE SAME to the end of the medium",
        volume: "ram:100MiB?physical=512&thick",
        needed_by: &["WriteSame10", "WriteSame16", "Unmap", "Inquiry"],
        only_needed: true,
        ..USUAL
    },
    Configuration {
        name: "4k",
        what: "4096-byte blocks, thin provisioned",
        volume: "ram:100MiB?block=4096",
        needed_by: &[
            "Read10",
            "Write10",
            "CompareAndWrite",
            "WriteSame10",
            "Unmap",
            "Sanitize.Overwrite",
        ],
        ..USUAL
    },
    Configuration {
        name: "512e",
        what: "512-byte logical blocks on 4096-byte physical blocks, thin provisioned",
        volume: "ram:100MiB?physical=4096",
        needed_by: &[
            "CompareAndWrite.InvalidDataOutSize",
            "WriteSame10",
            "WriteSame16",
            "Unmap",
        ],
        ..USUAL
    },
    Configuration {
        name: "file",
        what: "a sparse file, thin provisioned: UNMAP punches holes",
        volume: "file:{state}/disk.img?size=100MiB&physical=512",
        needed_by: &[
            "Inquiry",
            "Unmap",
            "WriteSame10",
            "WriteSame16",
            "GetLBAStatus",
            "Sanitize.BlockErase",
        ],
        ..USUAL
    },
    Configuration {
        name: "read-only",
        what: "write-protected; of the tests that write, only those of the protection itself run",
        volume: "ram:100MiB?physical=512&read-only",
        needed_by: &["ReadOnly"],
        medium: Medium::Protected {
            destructive: &[
                "ReadOnly",
                "Prin",
                "Prout",
                "Reserve6",
                "Sanitize.InvalidServiceAction",
            ],
            unfit: &[
                "ProutReserve.Access",
                "WriteVerify10.Dpo",
                "WriteVerify12.Dpo",
                "WriteVerify16.Dpo",
            ],
        },
        ..USUAL
    },
    Configuration {
        name: "removable",
        what: "removable medium",
        volume: "ram:100MiB?physical=512&removable",
        needed_by: &["PreventAllow", "NoMedia", "StartStopUnit"],
        ..USUAL
    },
    Configuration {
        name: "two-paths",
        what: "two portals to the same logical unit",
        volume: "ram:100MiB?physical=512",
        listeners: 2,
        needed_by: &["MultipathIO"],
        ..USUAL
    },
    Configuration {
        name: "gateway",
        what: "a LUN of another server, like `plain`, over iSCSI",
        volume: "{far}",
        far: Some("ram:100MiB?physical=512"),
        needed_by: &[
            "Read16",
            "Write16",
            "CompareAndWrite",
            "Unmap",
            "WriteSame16",
            "Reserve6",
        ],
        ..USUAL
    },
    Configuration {
        name: "rbd",
        what: "an image of a one-node Ceph cluster, 512-byte logical and physical blocks",
        volume: "{rbd}&size=100MiB&physical=512",
        is_long: true,
        ..USUAL
    },
];

impl Configuration {
    /// Whether a test is run here.
    pub(super) fn runs(&self, test: &Test, quick: bool) -> bool {
        let unfit = match self.medium {
            Medium::Writable => false,
            Medium::Protected { unfit, .. } => begins_with_any(test, unfit),
        };
        let unneeded = (quick || self.only_needed) && !begins_with_any(test, self.needed_by);
        !unfit && !unneeded
    }

    /// Whether a test may destroy data here (`--dataloss`).
    pub(super) fn may_lose_data(&self, test: &Test) -> bool {
        match self.medium {
            Medium::Writable => true,
            Medium::Protected { destructive, .. } => begins_with_any(test, destructive),
        }
    }
}

/// Returns the names of all configurations, for messages.
pub(super) fn names() -> String {
    ALL.iter()
        .map(|configuration| configuration.name)
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> &'static Configuration {
        ALL.iter()
            .find(|configuration| configuration.name == name)
            .expect("a configuration of that name")
    }

    fn test(name: &str) -> Test {
        let (family, test) = name.split_once('.').expect("Family.Test");
        Test {
            family: family.to_owned(),
            test: test.to_owned(),
        }
    }

    #[test]
    fn the_slow_volume_runs_only_what_needs_it() {
        assert!(named("slow").runs(&test("Sanitize.Reset"), false));
        assert!(!named("slow").runs(&test("Read10.Simple"), false));
    }

    #[test]
    fn a_quick_run_still_runs_everything_once() {
        assert!(named("plain").runs(&test("Verify16.Dpo"), true));
        assert!(!named("removable").runs(&test("Verify16.Dpo"), true));
        assert!(named("removable").runs(&test("Verify16.Dpo"), false));
    }

    #[test]
    fn a_read_only_volume_is_written_to_by_its_own_test_alone() {
        assert!(named("read-only").may_lose_data(&test("ReadOnly.ReadOnlySBC")));
        assert!(!named("read-only").may_lose_data(&test("Write10.Simple")));
        assert!(!named("read-only").runs(&test("ProutReserve.AccessEA"), false));
    }
}
