//! Suites by name and in files: errors are shown with their position.

use super::{REFUSED, Scene, bench, expect, number, record, runs};

#[test]
fn an_unknown_suite_is_answered_with_the_one_that_was_probably_meant() {
    expect(
        bench(&["ram:16MiB", "--suite", "vmware5"]),
        REFUSED,
        &["vmware5", "vmware4"],
    );
    expect(
        bench(&["ram:16MiB", "--suite", "bonny"]),
        REFUSED,
        &["bonny", "bonnie"],
    );
}

/// A file whose first four lines are correct, and whose fifth is wrong.
const ICF: &str = "\
Version 1.1.0
'ACCESS SPECIFICATIONS =========
'Access specification name,default assignment
\tMax Throughput,NONE
'size,% of size,% reads,% random,delay,burst,align,reply
\t32768,100,many,0,0,1,0,0
'END access specifications
Version 1.1.0
";

#[test]
fn a_malformed_icf_is_pointed_at() {
    let scene = Scene::new();
    let ram = "ram:16MiB";
    let file = scene.file("vmware.icf", ICF);
    expect(
        bench(&[ram, "--suite", &file]),
        REFUSED,
        &["vmware.icf", "many", "6", "12"],
    ); // line and column
    let file = scene.file("cut.icf", &ICF[..60]);
    expect(bench(&[ram, "--suite", &file]), REFUSED, &["cut.icf"]);
    let file = scene.file("other.icf", "[suite]\nname = \"x\"\n");
    expect(
        bench(&[ram, "--suite", &file]),
        REFUSED,
        &["other.icf", "1"],
    );
    std::fs::write(scene.path("binary.icf"), [0xff, 0, 0xfe, b'\n']).expect("a file");
    expect(
        bench(&[ram, "--suite", &scene.text("binary.icf")]),
        REFUSED,
        &["binary.icf"],
    );
}

#[test]
fn a_malformed_suite_is_pointed_at() {
    let scene = Scene::new();
    for (content, words) in [
        ("name = \"x\"\ntitle = ", &["2"][..]),
        ("name = \"x\"\nnonsense = 3\n", &["nonsense", "2"]),
        ("", &["name"]),
    ] {
        let file = scene.file("mine.toml", content);
        expect(
            bench(&["ram:16MiB", "--suite", &file]),
            REFUSED,
            &[&["mine.toml"], words].concat(),
        );
    }
    expect(
        bench(&["ram:16MiB", "--suite", &scene.text("missing.toml")]),
        REFUSED,
        &["missing.toml"],
    );
}

#[test]
fn a_suite_takes_no_workload_but_less_time() {
    expect(
        bench(&["ram:16MiB", "--suite", "vmware4", "--depth", "4"]),
        REFUSED,
        &["--suite", "--seconds"],
    );
    let scene = Scene::new();
    let out = scene.text("out");
    let short = [
        "--suite",
        "quick",
        "--seconds",
        "0.5",
        "--repeats",
        "1",
        "--span",
        "8MiB",
        "--out",
        &out,
    ];
    bench(&[&["ram:16MiB"], &short[..]].concat()).expect_success();
    let record = record(&scene.path("out"));
    // Only the configured time is checked: the duration of a run also depends on the machine.
    let steps = record["suite"]["steps"].as_array().expect("steps");
    let most = |step: &serde_json::Value| number(&step["measure"]["stop"]["max_s"]);
    assert!(steps.iter().map(most).all(|seconds| seconds == 0.5) && !runs(&record).is_empty());
    assert!(
        record["suite"]["assumed"].to_string().contains("0.5 s"),
        "{}",
        record["suite"]["assumed"]
    );
}
