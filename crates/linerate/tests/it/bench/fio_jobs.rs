//! fio's job files on a target: the measured jobs, the notes on ignored options, and the rejected options.

use super::{REFUSED, Scene, bench, cells_run, expect, record, runs};
use crate::program::says;
use crate::server::Server;

const JOBS: &str = "\
; nightly
[global]
ioengine=libaio
direct=1
bs=8k
iodepth=4
runtime=200ms
time_based
norandommap
[mixed]
rw=randrw
rwmixread=70
numjobs=2
size=50%
[tail]
stonewall
rw=read
bs=64k
";

#[test]
fn a_job_file_is_measured_and_told_of() {
    let server = Server::serving(&["disk=ram:16MiB"]);
    let scene = Scene::new();
    let (file, out) = (scene.file("nightly.fio", JOBS), scene.text("out"));
    let words = [
        &server.url("disk"),
        "--job",
        &file,
        "--allow-write",
        "--yes",
        "--out",
        &out,
    ];
    let said = bench(&words).expect_success();
    says(&said, &["ignored: `direct` (line 4), `ioengine` (line 3)"]);
    let record = record(&scene.path("out"));
    assert_eq!(record["suite"]["name"], "nightly");
    assert_eq!(
        cells_run(&record),
        [("mixed".to_owned(), 0), ("tail".to_owned(), 0)]
    );
    let cells = &record["suite"]["steps"][0]["measure"]["cells"];
    let workload = &cells[0]["roles"][1]["workload"];
    assert_eq!(
        (&workload["depth"], &workload["span"]["bytes"]),
        (&4.into(), &(8 << 20).into()),
        "{workload}"
    );
    assert_eq!(
        runs(&record)[0]["clients"].as_array().map(Vec::len),
        Some(2)
    );
    let ios =
        |cell: usize, kind: &str| runs(&record)[cell]["clients"][0]["run"][kind]["ios"].as_u64();
    assert!(ios(0, "writes") > Some(0) && ios(1, "writes") == Some(0) && ios(1, "reads") > Some(0));
}

#[test]
fn a_job_file_with_mistakes_is_refused_with_all_of_them() {
    let scene = Scene::new();
    let file = scene.file(
        "wrong.fio",
        "[a]\nrw=randread\nzonemode=zbd\nbs=4x\nblcksize=4k\n",
    );
    let words = [
        "line 3, column 1: `zonemode`",
        "line 4, column 4: `bs`",
        "line 5, column 1",
        "`blocksize`?",
    ];
    expect(bench(&["ram:16MiB", "--job", &file]), REFUSED, &words);
    let file = scene.file(
        "zones.fio",
        "[a]\nrw=randread\nzonemode=zbd\nnumber_ios=10\n",
    );
    let said = bench(&["ram:16MiB", "--job", &file, "--job-ignore", "zonemode"]).expect_success();
    assert!(said.contains("`zonemode` (line 3)"), "{said}");
    let two = scene.file(
        "two.fio",
        "[a]\nruntime=1\ntime_based\n[b]\nruntime=2\ntime_based\n",
    );
    expect(
        bench(&["ram:16MiB", "--job", &two]),
        REFUSED,
        &["a ends after 1 s and b ends after 2 s"],
    );
    let writes = scene.file("writes.fio", "[a]\nrw=write\n");
    expect(
        bench(&[&scene.image("image", 1), "--job", &writes]),
        REFUSED,
        &["--allow-write"],
    );
    expect(
        bench(&["ram:16MiB", "--job", &file, "--depth", "4"]),
        REFUSED,
        &["--job", "--seconds"],
    );
    expect(
        bench(&["ram:16MiB", "--job", &scene.text("none.fio")]),
        REFUSED,
        &["cannot read"],
    );
}

#[test]
fn a_size_with_a_bare_letter_is_noted_once() {
    let noted = |words: &[&str]| {
        let said = bench(&[&["--seconds", "0.5"], words].concat()).expect_success();
        said.matches("note: ").count()
    };
    assert_eq!(noted(&["ram:1MiB", "--bs", "4k,8k"]), 1);
    assert_eq!(noted(&["ram:1M"]), 1);
    assert_eq!(noted(&["ram:1MiB", "--bs", "4KiB"]), 0);
    assert_eq!(noted(&["ram:1048576", "--bs", "4k", "--json"]), 0);
    assert_eq!(noted(&["ram:1MiB", "--bs", "4k", "--quiet"]), 0);
}
