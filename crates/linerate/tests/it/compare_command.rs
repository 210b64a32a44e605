//! `linerate compare`, on results that `linerate bench` has just made.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::program::{Ended, LINERATE, run};

/// Three short runs of one cell on a volume in memory, saved in a directory.
fn measured(folder: &Path, name: &str, volume: &str) -> PathBuf {
    let directory = folder.join(name);
    let out = directory.to_str().expect("a path").to_owned();
    let workload = [
        "--block",
        "4KiB",
        "--depth",
        "4",
        "--seconds",
        "0.5",
        "--repeats",
        "3",
    ];
    let arguments: Vec<&str> = ["bench", volume]
        .into_iter()
        .chain(workload)
        .chain(["--out", &out])
        .collect();
    run(LINERATE, &arguments).expect_success();
    directory
}

fn compared(a: &Path, b: &Path, more: &[&str]) -> Ended {
    let paths = [a, b].map(|path| path.to_str().expect("a path"));
    let arguments: Vec<&str> = ["compare"]
        .into_iter()
        .chain(paths)
        .chain(more.iter().copied())
        .collect();
    run(LINERATE, &arguments)
}

#[test]
fn a_volume_that_has_become_slower_fails_the_gate() {
    let folder = tempfile::tempdir().expect("a folder");
    let fast = measured(folder.path(), "fast", "ram:16MiB");
    let slow = measured(folder.path(), "slow", "delay:20ms:[ram:16MiB]");

    let worse = compared(&fast, &slow, &[]);
    assert_eq!(worse.status.code(), Some(12), "{worse:?}");
    for word in [
        "B is worse in 1 cell.",
        "▼ worse",
        "different too",
        "delay:20ms:[ram:16MiB]",
    ] {
        assert!(worse.said.contains(word), "{word}: {worse:?}");
    }
    assert!(worse.said.contains("B is worse in "), "{worse:?}");

    let better = compared(&slow, &fast, &[]);
    assert_eq!(better.status.code(), Some(0), "{better:?}");
    assert!(
        better.said.starts_with("B is better in 1 cell."),
        "{better:?}"
    );
}

#[test]
fn a_result_is_not_worse_than_itself_and_may_be_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let result = measured(folder.path(), "result", "delay:5ms:[ram:16MiB]");
    let copy = folder.path().join("baseline.json");
    fs::copy(result.join("result.json"), &copy).expect("a copy");

    let same = compared(&copy, &result, &["--json"]);
    assert_eq!(same.status.code(), Some(0), "{same:?}");
    let told: Value = serde_json::from_str(&same.said).expect("JSON");
    assert_eq!(told["cells"][0]["judgement"]["is"], "undecided");
    assert_eq!(
        (&told["worse"], &told["environment"]),
        (&Value::Array(vec![]), &Value::Array(vec![]))
    );
    assert!(
        compared(&copy, &result, &["--markdown"])
            .said
            .contains("| :-- | --: |")
    );
}

#[test]
fn what_is_no_result_is_refused_with_the_place_where_it_ends_to_be_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a file");
        path
    };
    let broken = at(
        "broken.json",
        "{\n  \"format\": 1,\n  \"version\": oops\n}\n",
    );
    let later = at("later.json", "{\"format\": 99}");
    let nothing = folder.path().join("nothing");
    for (path, why) in [
        (&broken, "line 3 column"),
        (&later, "format 99"),
        (&nothing, "cannot read"),
    ] {
        let refused = compared(path, path, &[]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(refused.said.contains(why), "{why}: {refused:?}");
    }
    let refused = compared(&broken, &broken, &["--fail-above", "-3"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}
