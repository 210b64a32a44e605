//! The volumes that the suite's tests need between them, one server each.

use super::cunit::Test;

/// 100 MiB: enough for the largest transfer of the suite, small enough to be overwritten at once.
pub(super) const SIZE_BYTES: u64 = 100 << 20;

/// A server to run tests against.
#[derive(Debug)]
pub(super) struct Configuration {
    pub(super) name: &'static str,
    /// What a reader of the page should know of it.
    pub(super) what: &'static str,
    /// Its volume's specification; `{state}` is the server's own folder, `{far}` the URL of [`Configuration::far`]'s,
    /// and `{rbd}` an image of a Ceph cluster that is started for it.
    pub(super) volume: &'static str,
    /// What another server of ours serves, to which this one is a gateway.
    pub(super) far: Option<&'static str>,
    /// Portals; with two, the tool gets both as paths to the same logical unit.
    pub(super) listeners: usize,
    /// Families, or `Family.Test`, that need this configuration: what a quick run does here.
    needed_by: &'static [&'static str],
    /// Whether anything else is worth running here.
    only_needed: bool,
    /// What the tool may do to the medium.
    medium: Medium,
    /// Only where it is named (`--configuration`), since it takes minutes.
    pub(super) is_long: bool,
}

/// What the tool may do to a configuration's medium.
#[derive(Debug)]
enum Medium {
    /// Anything.
    Writable,
    /// Nothing: the tool is not given leave (`--dataloss`), and skips the tests that ask for it.
    Protected {
        /// Tests that must ask for it here, and write nothing or must fail to.
        destructive: &'static [&'static str],
        /// Tests that write without asking: they have no business here.
        unfit: &'static [&'static str],
    },
}

/// Names, by their beginnings.
fn begins_with_any(test: &Test, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| test.name().starts_with(prefix))
}

/// One portal, and a medium that may be written.
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

/// The slow one first, because it takes longest and is mostly waiting.
pub(super) const ALL: &[Configuration] = &[
    Configuration {
        name: "slow",
        what: "every request takes 200 ms: for the one test that needs a SANITIZE to take seconds",
        volume: "delay:200ms:[ram:100MiB]",
        needed_by: &["Sanitize.Reset"],
        only_needed: true,
        ..USUAL
    },
    Configuration {
        name: "plain",
        what: "512-byte logical and physical blocks, thin provisioned",
        volume: "ram:100MiB?physical=512",
        needed_by: &[""], // every name begins so
        ..USUAL
    },
    Configuration {
        name: "thick",
        what: "as plain, but no space can be given back: for WRITE SAME to the end of the medium",
        volume: "ram:100MiB?physical=512&thick",
        needed_by: &["WriteSame10", "WriteSame16", "Unmap", "Inquiry"],
        only_needed: true,
        ..USUAL
    },
    Configuration {
        name: "4k",
        what: "4096-byte blocks, thin provisioned",
        volume: "ram:100MiB?block=4096",
        needed_by: &["Read10", "Write10", "CompareAndWrite", "WriteSame10", "Unmap", "Sanitize.Overwrite"],
        ..USUAL
    },
    Configuration {
        name: "512e",
        what: "512-byte logical blocks on 4096-byte physical blocks, thin provisioned",
        volume: "ram:100MiB?physical=4096",
        needed_by: &["CompareAndWrite.InvalidDataOutSize", "WriteSame10", "WriteSame16", "Unmap"],
        ..USUAL
    },
    Configuration {
        name: "file",
        what: "a sparse file behind it, thin provisioned: UNMAP punches holes",
        volume: "file:{state}/disk.img?size=100MiB&physical=512",
        needed_by: &["Inquiry", "Unmap", "WriteSame10", "WriteSame16", "GetLBAStatus", "Sanitize.BlockErase"],
        ..USUAL
    },
    Configuration {
        name: "read-only",
        what: "write protected; tests that write are left to the others, but for those of the protection itself",
        volume: "ram:100MiB?physical=512&read-only",
        needed_by: &["ReadOnly"],
        medium: Medium::Protected {
            destructive: &["ReadOnly", "Prin", "Prout", "Reserve6", "Sanitize.InvalidServiceAction"],
            unfit: &["ProutReserve.Access", "WriteVerify10.Dpo", "WriteVerify12.Dpo", "WriteVerify16.Dpo"],
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
        what: "a LUN of another server as `plain`, over iSCSI",
        volume: "{far}",
        far: Some("ram:100MiB?physical=512"),
        needed_by: &["Read16", "Write16", "CompareAndWrite", "Unmap", "WriteSame16", "Reserve6"],
        ..USUAL
    },
    Configuration {
        name: "rbd",
        what: "an image of a Ceph cluster of one node, 512-byte logical and physical blocks",
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

/// Their names, for messages.
pub(super) fn names() -> String {
    ALL.iter().map(|configuration| configuration.name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> &'static Configuration {
        ALL.iter().find(|configuration| configuration.name == name).expect("a configuration of that name")
    }

    fn test(name: &str) -> Test {
        let (family, test) = name.split_once('.').expect("Family.Test");
        Test { family: family.to_owned(), test: test.to_owned() }
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
