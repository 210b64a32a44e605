//! The suites that are part of the program.

use std::sync::LazyLock;

use super::parse;
use crate::plan::Suite;

/// In the order in which they are listed: the default first, then the documents' tests, then the others'.
const FILES: [&str; 11] = [
    include_str!("../../suites/quick.toml"),
    include_str!("../../suites/dd-ladder.toml"),
    include_str!("../../suites/dpmeter.toml"),
    include_str!("../../suites/vmware4.toml"),
    include_str!("../../suites/vmware4-aligned.toml"),
    include_str!("../../suites/atto.toml"),
    include_str!("../../suites/clients.toml"),
    include_str!("../../suites/iometer-sweep.toml"),
    include_str!("../../suites/bonnie.toml"),
    include_str!("../../suites/cern.toml"),
    include_str!("../../suites/pts.toml"),
];

static PRESETS: LazyLock<Vec<Suite>> = LazyLock::new(|| {
    // They are part of the program, and a test reads each of them.
    FILES.iter().map(|text| parse(text).expect("a preset")).collect()
});

/// All of them, the default first.
pub fn presets() -> &'static [Suite] {
    &PRESETS
}

/// Their names, the default first.
pub fn names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|suite| suite.name.as_str())
}

/// The preset of this name.
pub fn named(name: &str) -> Option<Suite> {
    PRESETS.iter().find(|suite| suite.name == name).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_a_suite_of_its_files_name() {
        for text in FILES {
            parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        }
        assert!(names().eq([
            "quick",
            "dd-ladder",
            "dpmeter",
            "vmware4",
            "vmware4-aligned",
            "atto",
            "clients",
            "iometer-sweep",
            "bonnie",
            "cern",
            "pts",
        ]));
        assert_eq!(named("quick").map(|suite| suite.name), Some("quick".to_owned()));
        assert_eq!(named("slow"), None);
    }
}
