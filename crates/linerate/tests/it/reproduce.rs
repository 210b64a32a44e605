//! Tests of `linerate reproduce`: the files of a reproduction, interruptions, and bad input. Reproductions are
//! skipped if no lab can be built.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::lab::can_build;
use crate::program::{Ended, run_command};

/// Document 001's four patterns on a small LUN, on two beds.
const PLAN: &str = r#"
document = "001"
quick = true
[bed.document]
about = "a model"
fitted = ["names.box"]
names = { box = "limit:20000iops:[ram:16MiB]" }
[bed.document.host.esx]
[bed.document.host.box]
run = ["linerate", "serve", "--quiet", "--log", "warn", "--listen", "0.0.0.0:3260", "--volume", "box={box}", "--state", "{state}"]
ready = 3260
[bed.document.link.lan]
between = ["esx", "box"]
rate = "1Gbit/s"
[bed.machine]
like = "document"
names = { box = "ram:16MiB" }
[[test]]
table = "Test 001"
suite = "vmware4"
storage = "iscsi://10.77.0.2/iqn.2026-01.io.linerate:box/0"
"#;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    command.arg("reproduce").args(arguments);
    command
}

fn ended(arguments: &[&str]) -> Ended {
    run_command(&mut command(arguments))
}

/// A folder with a plan.
fn plan(text: &str) -> (tempfile::TempDir, String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let (plan, out) = (path("mine.toml"), path("out"));
    fs::write(&plan, text).expect("a file");
    (folder, plan, out)
}

fn runs(out: &str, bed: &str) -> String {
    fs::read_to_string(Path::new(out).join(bed).join("01-test-001/result.json")).expect("a result")
}

#[test]
fn bad_input_is_refused_in_a_sentence_and_nothing_is_written() {
    let unknown = ended(&["006"]);
    assert_eq!(unknown.status.code(), Some(2), "{}", unknown.said);
    assert!(
        unknown.said.contains("there is no document `006`"),
        "{}",
        unknown.said
    );
    let (_folder, plan, out) = plan(&PLAN.replace("vmware4", "vmware5"));
    let mistaken = ended(&[&plan, "--out", &out]);
    assert_eq!(mistaken.status.code(), Some(2), "{}", mistaken.said);
    let said = "mine.toml:20:9: `suite`: unknown suite `vmware5`; did you mean `vmware4`?\n  suite = \
                \"vmware5\"\n          ^";
    assert!(mistaken.said.contains(said), "{}", mistaken.said);
    assert!(!Path::new(&out).exists());
    let nothing = ended(&["--resume", &out]);
    assert_eq!(nothing.status.code(), Some(2), "{}", nothing.said);
    assert!(nothing.said.contains("cannot read"), "{}", nothing.said);
}

#[test]
fn a_printed_plan_is_that_of_the_document() {
    let printed = ended(&["002", "--plan"]);
    assert!(printed.status.success(), "{}", printed.said);
    let (_folder, plan, _) = plan(&printed.said);
    let again = ended(&[&plan, "--plan"]);
    assert_eq!(again.said, printed.said, "{}", again.said);
}

#[test]
fn every_test_runs_on_every_bed_and_the_page_has_their_numbers() {
    if !can_build() {
        return;
    }
    let (_folder, plan, out) = plan(PLAN);
    let done = ended(&[&plan, "--out", &out, "--progress", "none"]);
    assert!(done.status.success(), "{}", done.said);
    assert!(done.said.contains("document: "), "{}", done.said);
    let page = fs::read_to_string(Path::new(&out).join("report.md")).expect("a page");
    assert!(page.contains("This is a quick run"), "{page}");
    assert!(
        page.contains("fitted, document: names.box = limit:20000iops"),
        "{page}"
    );
    let numbers = fs::read_to_string(Path::new(&out).join("numbers.csv")).expect("numbers");
    assert_eq!(numbers.lines().count(), 1 + 2 * 16, "{numbers}");
    let of_machine = |line: &&str| line.contains(",55.058866,machine,");
    assert!(numbers.lines().any(|line| of_machine(&line)), "{numbers}");

    let twice = ended(&[&plan, "--out", &out]);
    assert_eq!(twice.status.code(), Some(2), "{}", twice.said);
    assert!(
        twice.said.contains("contains a reproduction"),
        "{}",
        twice.said
    );

    // Completed tests are not measured again.
    let before = runs(&out, "document");
    fs::remove_dir_all(Path::new(&out).join("machine")).expect("removes");
    let resumed = ended(&["--resume", &out, "--progress", "none"]);
    assert!(resumed.status.success(), "{}", resumed.said);
    assert_eq!(runs(&out, "document"), before);
    assert!(runs(&out, "machine").contains("max-throughput-100-read"));
}

#[test]
fn an_interrupted_reproduction_is_resumed_after_its_last_cell() {
    if !can_build() {
        return;
    }
    let (_folder, plan, out) = plan(PLAN);
    let mut child = command(&[&plan, "--out", &out, "--progress", "plain"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut said = BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut all = String::new();
    while !all.contains("bed document, test 01-test-001") {
        all += &said.next().expect("a line").expect("text");
    }
    kill_process(Pid::from_child(&child), Signal::INT).expect("runs");
    said.map_while(Result::ok).for_each(|line| all += &line);
    assert_ne!(child.wait().expect("ends").code(), Some(0));
    let again = format!("interrupted; to resume: linerate reproduce --resume {out}");
    assert!(all.contains(&again), "{all}");
    assert!(!Path::new(&out).join("report.md").exists());

    let resumed = ended(&["--resume", &out, "--progress", "none"]);
    assert!(resumed.status.success(), "{}", resumed.said);
    assert!(Path::new(&out).join("report.html").exists());
}
