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
    /// Its volume's specification.
    pub(super) volume: &'static str,
    /// Portals; with two, the tool gets both as paths to the same logical unit.
    pub(super) listeners: usize,
    /// Families, or `Family.Test`, that need this configuration: what a quick run does here.
    needed_by: &'static [&'static str],
    /// Whether anything else is worth running here.
    only_needed: bool,
    /// Whether the tool may write. Where it may not, tests that would are skipped by the tool itself.
    writable: bool,
}

/// The slow one first, because it takes longest and is mostly waiting.
pub(super) const ALL: &[Configuration] = &[
    Configuration {
        name: "slow",
        what: "every request takes 200 ms: for the one test that needs a SANITIZE to take seconds",
        volume: "delay:200ms:[ram:100MiB]",
        listeners: 1,
        needed_by: &["Sanitize.Reset"],
        only_needed: true,
        writable: true,
    },
    Configuration {
        name: "plain",
        what: "512-byte logical and physical blocks, thin provisioned",
        volume: "ram:100MiB",
        listeners: 1,
        needed_by: &[""], // every name begins so
        only_needed: false,
        writable: true,
    },
    Configuration {
        name: "4k",
        what: "4096-byte blocks, thin provisioned",
        volume: "ram:100MiB?block=4096",
        listeners: 1,
        needed_by: &["Read10", "Write10", "CompareAndWrite", "WriteSame10", "Unmap", "Sanitize.Overwrite"],
        only_needed: false,
        writable: true,
    },
    Configuration {
        name: "512e",
        what: "512-byte logical blocks on 4096-byte physical blocks, thin provisioned",
        volume: "ram:100MiB?physical=4096",
        listeners: 1,
        needed_by: &["CompareAndWrite.InvalidDataOutSize", "WriteSame10", "WriteSame16", "Unmap"],
        only_needed: false,
        writable: true,
    },
    Configuration {
        name: "full",
        what: "fully provisioned: no UNMAP",
        volume: "ram:100MiB?thin=off",
        listeners: 1,
        needed_by: &["Inquiry", "Unmap", "WriteSame10", "WriteSame16", "GetLBAStatus"],
        only_needed: false,
        writable: true,
    },
    Configuration {
        name: "read-only",
        what: "write protected; only the test of that may try to write",
        volume: "ram:100MiB?readonly",
        listeners: 1,
        needed_by: &["ReadOnly"],
        only_needed: false,
        writable: false,
    },
    Configuration {
        name: "removable",
        what: "removable medium",
        volume: "ram:100MiB?removable",
        listeners: 1,
        needed_by: &["PreventAllow", "NoMedia", "StartStopUnit"],
        only_needed: false,
        writable: true,
    },
    Configuration {
        name: "two-paths",
        what: "two portals to the same logical unit",
        volume: "ram:100MiB",
        listeners: 2,
        needed_by: &["MultipathIO"],
        only_needed: false,
        writable: true,
    },
];

impl Configuration {
    /// Whether a test is run here.
    pub(super) fn runs(&self, test: &Test, quick: bool) -> bool {
        let needed = self.needed_by.iter().any(|prefix| test.name().starts_with(prefix));
        needed || !(quick || self.only_needed)
    }

    /// Whether a test may destroy data here (`--dataloss`).
    pub(super) fn may_lose_data(&self, test: &Test) -> bool {
        self.writable || test.family == "ReadOnly"
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
    }
}
